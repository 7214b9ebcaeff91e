"""Write a quiz as a QTI 2.1 package: a test, and one file for each question.

Unlike QTI 1.2 in Canvas, QTI 2.1 compares typed numbers with intervals, and it can compare a whole list. So
the feedback on a list is the one that the checker gives.
"""

from collections.abc import Iterable
from typing import NamedTuple
from xml.etree import ElementTree as ET

from npformer.quiz.formulas import HTML, format_text
from npformer.quiz.known_answers import ListAnswer, NumberAnswer, format_number
from npformer.quiz.qti_package import format_xml, make_package
from npformer.quiz.quiz_questions import QuizCategory, QuizQuestion

QTI = "http://www.imsglobal.org/xsd/imsqti_v2p1"  # the name of the namespace; no program opens it
TEST_FILE = "test.xml"
SCHEMA = ("QTIv2.1 Package", "1.0.0")
RESPONSE = "RESPONSE"  # the identifier of a choice; gaps for numbers have RESPONSE_1, RESPONSE_2, …
FEEDBACK = "FEEDBACK"  # the outcome that holds the identifier of the feedback
OTHER = "other"  # the identifier of the feedback on a number that is not recognised


def write_qti_21_package(categories: Iterable[QuizCategory], title: str) -> bytes:
    """Write the questions as a QTI 2.1 package. The test asks each student one variant of each exercise.

    Parameters
    ----------
    categories : iterable of QuizCategory
    title : str
        The title of the test.

    Returns
    -------
    data : bytes
        The content of the zip file.
    """
    test = ET.Element("assessmentTest", xmlns=QTI, identifier="npformer_test", title=title)
    part = {"identifier": "part", "navigationMode": "nonlinear", "submissionMode": "individual"}
    questions = ET.SubElement(test, "testPart", part)
    files = {}
    for category in categories:
        stem = category.exercise_id.replace(".", "_")
        attributes = {"identifier": f"section_{stem}", "title": category.exercise_id, "visible": "true"}
        section = ET.SubElement(questions, "assessmentSection", attributes)
        ET.SubElement(section, "selection", select="1")
        for number, question in enumerate(category.questions, start=1):
            identifier = f"{stem}_{number}"
            file = f"{identifier}.xml"
            reference = ET.SubElement(section, "assessmentItemRef", identifier=identifier, href=file)
            ET.SubElement(reference, "weight", identifier="WEIGHT", value=f"{category.points:g}")
            files[file] = write_item(identifier, question)
    formats = dict.fromkeys(files, "imsqti_item_xmlv2p1")
    return make_package(
        {TEST_FILE: format_xml(test), **files},
        {TEST_FILE: "imsqti_test_xmlv2p1", **formats},
        SCHEMA,
        {TEST_FILE: files},
    )


class Rule(NamedTuple):
    """A recognised response: the identifier of its feedback, the condition, and the feedback."""

    identifier: str
    condition: ET.Element
    feedback: str


def write_item(identifier: str, question: QuizQuestion) -> str:
    """Return one question as a QTI 2.1 item, which gives 1 point for the correct answer.

    Parameters
    ----------
    identifier : str
    question : QuizQuestion

    Returns
    -------
    xml : str
    """
    item = ET.Element("assessmentItem", xmlns=QTI, identifier=identifier, title=question.id)
    item.set("adaptive", "false")
    item.set("timeDependent", "false")
    body = ET.Element("itemBody")
    body.append(_make_html("p", question.text))
    if question.numbers:
        _add_gaps(item, body, question)
        rules = _make_number_rules(question)
    else:
        _add_options(item, body, question)
        rules = [
            Rule(_name_option(k), _make_match(_name_option(k)), option.feedback)
            for k, option in enumerate(question.options)
        ]
    _declare(item, "outcomeDeclaration", "SCORE", "float")
    _declare(item, "outcomeDeclaration", FEEDBACK, "identifier")
    item.append(body)
    _add_processing(item, rules, _find_correct(question))
    texts = {rule.identifier: rule.feedback for rule in rules}
    for name, text in {**texts, OTHER: question.other}.items():
        if text:
            _add_feedback(item, name, [text, question.reading])
    return format_xml(item)


def _declare(item: ET.Element, kind: str, identifier: str, base_type: str, correct: str = "") -> None:
    """Declare a response with its correct value, or an outcome."""
    attributes = {"identifier": identifier, "cardinality": "single", "baseType": base_type}
    declaration = ET.SubElement(item, kind, attributes)
    if correct:
        ET.SubElement(ET.SubElement(declaration, "correctResponse"), "value").text = correct


def _make_html(name: str, text: str) -> ET.Element:
    """Make an element that contains a text with its formulas."""
    return ET.fromstring(f"<{name}>{format_text(text, HTML)}</{name}>")


def _add_feedback(item: ET.Element, name: str, texts: Iterable[str]) -> None:
    """Add a feedback text, which is shown if the outcome FEEDBACK has the value `name`."""
    attributes = {"outcomeIdentifier": FEEDBACK, "identifier": name, "showHide": "show"}
    feedback = ET.SubElement(item, "modalFeedback", attributes)
    for text in texts:
        feedback.append(_make_html("p", text))


# --- choices ---------------------------------------------------------------------------------------


def _name_option(k: int) -> str:
    """Return the identifier of option k, which is also the identifier of its feedback."""
    return f"option_{k + 1}"


def _find_correct(question: QuizQuestion) -> str:
    """Return the identifier of the feedback on the correct answer."""
    if question.numbers:
        return _name_known(0)
    return _name_option([option.is_correct for option in question.options].index(True))


def _add_options(item: ET.Element, body: ET.Element, question: QuizQuestion) -> None:
    """Add the options of a choice, and the declaration of the response."""
    _declare(item, "responseDeclaration", RESPONSE, "identifier", _find_correct(question))
    attributes = {"responseIdentifier": RESPONSE, "shuffle": "false", "maxChoices": "1"}
    interaction = ET.SubElement(body, "choiceInteraction", attributes)
    for k, option in enumerate(question.options):
        choice = _make_html("simpleChoice", option.text)
        choice.set("identifier", _name_option(k))
        interaction.append(choice)


def _make_match(option: str) -> ET.Element:
    """Make the condition that an option was chosen."""
    match = ET.Element("match")
    ET.SubElement(match, "variable", identifier=RESPONSE)
    ET.SubElement(match, "baseValue", baseType="identifier").text = option
    return match


# --- numbers ---------------------------------------------------------------------------------------


def _name_known(k: int) -> str:
    """Return the identifier of the feedback on recognised answer k; answer 0 is the correct one."""
    return f"known_{k}"


def _name_gap(k: int) -> str:
    """Return the identifier of the response for number k of the answer."""
    return f"{RESPONSE}_{k + 1}"


def _add_gaps(item: ET.Element, body: ET.Element, question: QuizQuestion) -> None:
    """Add one gap for each number of the answer, and the declarations of the responses."""
    body.append(_make_html("p", question.answer_form))
    paragraph = ET.SubElement(body, "p")
    for k, answers in enumerate(question.numbers):
        _declare(item, "responseDeclaration", _name_gap(k), "float", format_number(answers[0].value))
        attributes = {"responseIdentifier": _name_gap(k), "expectedLength": "10"}
        ET.SubElement(paragraph, "textEntryInteraction", attributes).tail = " "


def _make_number_rules(question: QuizQuestion) -> list[Rule]:
    """Make a rule for an empty gap, and a rule for each recognised number or list."""
    empty = ET.Element("or")
    for k in range(len(question.numbers)):
        ET.SubElement(ET.SubElement(empty, "isNull"), "variable", identifier=_name_gap(k))
    rules = [Rule(OTHER, empty, question.other)]
    answers: Iterable[NumberAnswer | ListAnswer] = question.lists or question.numbers[0]
    for k, answer in enumerate(answers):
        lists = answer.lists if isinstance(answer, ListAnswer) else ((answer.value,),)
        condition = ET.Element("or")
        for numbers in lists:
            condition.append(_make_interval(numbers, answer.tolerance))
        rules.append(Rule(_name_known(k), condition, answer.feedback))
    return rules


def _make_interval(numbers: Iterable[float], tolerance: float) -> ET.Element:
    """Make the condition that each response is within the tolerance of its number."""
    interval = ET.Element("and")
    for k, number in enumerate(numbers):
        for comparison, limit in (("gte", number - tolerance), ("lte", number + tolerance)):
            bound = ET.SubElement(interval, comparison)
            ET.SubElement(bound, "variable", identifier=_name_gap(k))
            ET.SubElement(bound, "baseValue", baseType="float").text = format_number(limit)
    return interval


# --- the processing of a response ------------------------------------------------------------------


def _add_processing(item: ET.Element, rules: list[Rule], correct: str) -> None:
    """Add the rules: the first that fits decides the feedback, and the correct one gives the point."""
    condition = ET.SubElement(ET.SubElement(item, "responseProcessing"), "responseCondition")
    for rule in rules:
        is_first = rule is rules[0]
        branch = ET.SubElement(condition, "responseIf" if is_first else "responseElseIf")
        branch.append(rule.condition)
        if rule.identifier == correct:
            _set_outcome(branch, "SCORE", "float", "1")
        _set_outcome(branch, FEEDBACK, "identifier", rule.identifier)
    _set_outcome(ET.SubElement(condition, "responseElse"), FEEDBACK, "identifier", OTHER)


def _set_outcome(branch: ET.Element, name: str, base_type: str, value: str) -> None:
    """Add the assignment of a value to an outcome."""
    outcome = ET.SubElement(branch, "setOutcomeValue", identifier=name)
    ET.SubElement(outcome, "baseValue", baseType=base_type).text = value
