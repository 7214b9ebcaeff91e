"""Write a quiz as a QTI 1.2 package, which Canvas imports: a zip file with the quiz and a manifest.

The labels of the metadata and the identifiers of the feedback are those of Canvas' own export
(lib/cc/qti/qti_items.rb). Canvas counts every answer that a numerical question lists as correct, so a
numerical question could not recognise a mistake. Numbers and lists are therefore written as a choice between
the correct answer and the answers to which known mistakes lead.
"""

from collections.abc import Iterable
from itertools import count
from xml.etree import ElementTree as ET

from npformer.quiz.formulas import HTML, format_text
from npformer.quiz.qti_package import format_xml, make_package
from npformer.quiz.quiz_questions import QuizCategory, QuizQuestion

QTI = "http://www.imsglobal.org/xsd/ims_qtiasiv1p2"  # the name of the namespace; no program opens it
QUIZ_FILE = "quiz.xml"
SCHEMA = ("IMS Content", "1.1.3")  # as in Canvas' own export
TYPES = {"truth": "true_false_question"}  # all other kinds are multiple-choice questions
RESPONSE = "response1"
MOST_OPTIONS = 10  # the numbers of options are MOST_OPTIONS * (number of the question) + 0, 1, 2, …


def write_canvas_package(categories: Iterable[QuizCategory], title: str) -> bytes:
    """Write the questions as a QTI 1.2 package. The quiz asks each student one variant of each exercise.

    Parameters
    ----------
    categories : iterable of QuizCategory
    title : str
        The title of the quiz.

    Returns
    -------
    data : bytes
        The content of the zip file.
    """
    return make_package({QUIZ_FILE: write_qti(categories, title)}, {QUIZ_FILE: "imsqti_xmlv1p2"}, SCHEMA)


def write_qti(categories: Iterable[QuizCategory], title: str) -> str:
    """Return the quiz as QTI 1.2: one section per exercise, from which one variant is selected."""
    root = ET.Element("questestinterop", xmlns=QTI)
    assessment = ET.SubElement(root, "assessment", ident="npformer_quiz", title=title)
    section = ET.SubElement(assessment, "section", ident="root_section")
    numbers = count(1)
    for category in categories:
        ident = category.exercise_id.replace(".", "_")
        group = ET.SubElement(section, "section", ident=f"group_{ident}", title=category.exercise_id)
        ordering = ET.SubElement(group, "selection_ordering")
        selection = ET.SubElement(ordering, "selection")
        ET.SubElement(selection, "selection_number").text = "1"
        extension = ET.SubElement(selection, "selection_extension")
        ET.SubElement(extension, "points_per_item").text = f"{category.points:g}"
        for question in category.questions:
            _add_item(group, next(numbers), question, category.points)
    return format_xml(root)


def _add_item(group: ET.Element, number: int, question: QuizQuestion, points: float) -> None:
    """Add a question with its options, its points and its feedback. An option gets a number, as in Canvas."""
    item = ET.SubElement(group, "item", ident=f"question_{number}", title=question.id)
    labels = [str(MOST_OPTIONS * number + k) for k in range(len(question.options))]
    metadata = ET.SubElement(ET.SubElement(item, "itemmetadata"), "qtimetadata")
    fields = {
        "question_type": TYPES.get(question.kind, "multiple_choice_question"),
        "points_possible": f"{points:g}",
    }
    for name, value in fields.items():
        field = ET.SubElement(metadata, "qtimetadatafield")
        ET.SubElement(field, "fieldlabel").text = name
        ET.SubElement(field, "fieldentry").text = value
    presentation = ET.SubElement(item, "presentation")
    _add_material(presentation, question.text)
    response = ET.SubElement(presentation, "response_lid", ident=RESPONSE, rcardinality="Single")
    choice = ET.SubElement(response, "render_choice")
    for label, option in zip(labels, question.options, strict=True):
        _add_material(ET.SubElement(choice, "response_label", ident=label), option.text)
    _add_processing(item, question, labels)
    _add_feedback(item, "general_fb", question.reading)
    for label, option in zip(labels, question.options, strict=True):
        _add_feedback(item, f"{label}_fb", option.feedback)


def _add_material(node: ET.Element, text: str) -> None:
    """Add a text with its formulas as HTML."""
    material = ET.SubElement(node, "material")
    ET.SubElement(material, "mattext", texttype="text/html").text = f"<p>{format_text(text, HTML)}</p>"


def _add_processing(item: ET.Element, question: QuizQuestion, labels: list[str]) -> None:
    """Add the rules: the general feedback, the feedback on each option, and 100 % for the correct option."""
    processing = ET.SubElement(item, "resprocessing")
    outcomes = ET.SubElement(processing, "outcomes")
    ET.SubElement(outcomes, "decvar", maxvalue="100", minvalue="0", varname="SCORE", vartype="Decimal")
    condition = ET.SubElement(processing, "respcondition", {"continue": "Yes"})
    ET.SubElement(ET.SubElement(condition, "conditionvar"), "other")
    ET.SubElement(condition, "displayfeedback", feedbacktype="Response", linkrefid="general_fb")
    for label in labels:
        condition = _add_condition(processing, label, "Yes")
        ET.SubElement(condition, "displayfeedback", feedbacktype="Response", linkrefid=f"{label}_fb")
    for label, option in zip(labels, question.options, strict=True):
        if option.is_correct:
            condition = _add_condition(processing, label, "No")
            ET.SubElement(condition, "setvar", action="Set", varname="SCORE").text = "100"


def _add_condition(processing: ET.Element, label: str, goes_on: str) -> ET.Element:
    """Add a rule for a chosen option, and return it. `goes_on` says whether later rules are applied too."""
    condition = ET.SubElement(processing, "respcondition", {"continue": goes_on})
    variable = ET.SubElement(condition, "conditionvar")
    ET.SubElement(variable, "varequal", respident=RESPONSE).text = label
    return condition


def _add_feedback(item: ET.Element, ident: str, text: str) -> None:
    """Add a feedback text, to which the rules refer by its identifier."""
    feedback = ET.SubElement(item, "itemfeedback", ident=ident)
    _add_material(ET.SubElement(feedback, "flow_mat"), text)
