"""Write a quiz as Moodle XML, which Moodle imports into its question bank.

The names of the elements are those that Moodle's importer reads (question/format/xml/format.php). The syntax
of a list is that of its Cloze questions (question/type/multianswer/questiontype.php).
"""

from collections.abc import Iterable
from html import escape
from xml.etree import ElementTree as ET

from npformer.quiz.formulas import HTML, TEX, format_text
from npformer.quiz.known_answers import NumberAnswer, format_number
from npformer.quiz.quiz_questions import QuizCategory, QuizQuestion

FOLDER = "$course$/top/npformer"  # the parent of the categories, in the question bank of the course
PENALTY = "0.3333333"  # Moodle's default: the share of the points that each further try costs
TYPES = {"choice": "multichoice", "truth": "truefalse", "number": "numerical", "vector": "cloze"}
NO_UNITS = {"unitgradingtype": "0", "unitpenalty": "0.1", "showunits": "3", "unitsleft": "0"}
ANY = "*"  # matches every number that no answer before it matches


def write_moodle_xml(categories: Iterable[QuizCategory]) -> str:
    """Write the questions as Moodle XML, with one category of the question bank per exercise.

    Parameters
    ----------
    categories : iterable of QuizCategory

    Returns
    -------
    xml : str
        The content of the file.
    """
    quiz = ET.Element("quiz")
    for category in categories:
        heading = ET.SubElement(quiz, "question", type="category")
        _add_text(heading, "category", f"{FOLDER}/{category.exercise_id}")
        for question in category.questions:
            _add_question(quiz, question, category.points)
    ET.indent(quiz)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(quiz, encoding="unicode") + "\n"


def _add_question(quiz: ET.Element, question: QuizQuestion, points: float) -> None:
    """Add a question: the elements of all types, and then the answers."""
    node = ET.SubElement(quiz, "question", type=TYPES[question.kind])
    _add_text(node, "name", question.id)
    paragraphs = [format_text(question.text, TEX), format_text(question.answer_form, TEX)]
    if question.kind == "vector":
        paragraphs.append(_format_gaps(question, points))
    _add_html(node, "questiontext", "".join(f"<p>{text}</p>" for text in paragraphs if text))
    _add_html(node, "generalfeedback", format_text(question.reading, TEX))
    if question.kind != "vector":  # Moodle adds up the points of a list from its gaps.
        ET.SubElement(node, "defaultgrade").text = f"{points:g}"
    ET.SubElement(node, "penalty").text = PENALTY
    ET.SubElement(node, "hidden").text = "0"
    if question.kind == "choice":
        _add_choice(node, question)
    elif question.kind == "truth":
        _add_truth(node, question)
    elif question.kind == "number":
        _add_number(node, question)
    _add_html(node, "hint", format_text(question.hint, TEX))


def _add_text(node: ET.Element, name: str, text: str) -> ET.Element:
    """Add an element that contains a text, and return it."""
    element = ET.SubElement(node, name)
    ET.SubElement(element, "text").text = text
    return element


def _add_html(node: ET.Element, name: str, html: str) -> None:
    """Add an element that contains HTML."""
    _add_text(node, name, html).set("format", "html")


def _add_answer(node: ET.Element, text: str, is_correct: bool, feedback: str) -> ET.Element:
    """Add an answer with its share of the points, in percent, and its feedback. Return the answer."""
    answer = _add_text(node, "answer", text)
    answer.set("fraction", "100" if is_correct else "0")
    _add_html(answer, "feedback", format_text(feedback, TEX))
    return answer


def _add_choice(node: ET.Element, question: QuizQuestion) -> None:
    """Add the options of a choice. They keep their order, because an option may refer to those before it."""
    ET.SubElement(node, "single").text = "true"
    ET.SubElement(node, "shuffleanswers").text = "false"
    ET.SubElement(node, "answernumbering").text = "abc"
    ET.SubElement(node, "showstandardinstruction").text = "0"
    for option in question.options:
        text = format_text(option.text, TEX)
        _add_answer(node, text, option.is_correct, option.feedback).set("format", "html")


def _add_truth(node: ET.Element, question: QuizQuestion) -> None:
    """Add the answers true and false."""
    for option in question.options:
        _add_answer(node, option.text.lower(), option.is_correct, option.feedback)


def _add_number(node: ET.Element, question: QuizQuestion) -> None:
    """Add the recognised numbers with their tolerances, and then the feedback on every other number."""
    for known in question.numbers[0]:
        answer = _add_answer(node, format_number(known.value), known.is_correct, known.feedback)
        ET.SubElement(answer, "tolerance").text = format_number(known.tolerance)
    ET.SubElement(_add_answer(node, ANY, False, question.other), "tolerance").text = "0"
    for name, value in NO_UNITS.items():
        ET.SubElement(node, name).text = value


# --- lists of numbers ------------------------------------------------------------------------------


def _format_gaps(question: QuizQuestion, points: float) -> str:
    """Return one gap for each number of a list. Each gap gets the same whole number of points, at least 1."""
    weight = max(1, round(points / len(question.numbers)))
    gaps = [_format_gap(answers, question.other, weight) for answers in question.numbers]
    return f"[{', '.join(gaps)}]"


def _format_gap(answers: Iterable[NumberAnswer], other: str, weight: int) -> str:
    """Return a gap for one number: its points, its type, and the recognised numbers with their feedback."""
    parts = []
    for known in answers:
        mark = "=" if known.is_correct else ""
        number = f"{format_number(known.value)}:{format_number(known.tolerance)}"
        parts.append(f"{mark}{number}#{_format_gap_feedback(known.feedback)}")
    parts.append(f"{ANY}#{_format_gap_feedback(other)}")
    return f"{{{weight}:NUMERICAL:{'~'.join(parts)}}}"


def _format_gap_feedback(text: str) -> str:
    """Return the feedback of a gap as HTML that is escaped again, because Moodle decodes its entities.

    A brace or a tilde would end the feedback, so both are written as entities.
    """
    html = escape(format_text(text, HTML), quote=False)
    return html.replace("}", "&#125;").replace("~", "&#126;").replace("\\", "&#92;")
