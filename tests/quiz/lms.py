"""Read quiz files as Moodle and Canvas read them. The tests use these readers instead of npformer's objects.

The rules for Moodle are those of question/format/xml/format.php, for lists those of
question/type/multianswer/questiontype.php. The rules for Canvas are those of its QTI import and export.
"""

import io
import re
import zipfile
from html import unescape
from typing import NamedTuple
from xml.etree import ElementTree as ET

FORMATS = {"html", "moodle_auto_format", "plain_text", "wiki_like", "markdown"}
COMMON = {"name", "questiontext", "generalfeedback", "defaultgrade", "penalty", "hidden", "hint"}
UNITS = {"unitgradingtype", "unitpenalty", "showunits", "unitsleft"}
ELEMENTS = {  # the elements that the importer reads, for each type of question
    "multichoice": COMMON
    | {"single", "shuffleanswers", "answernumbering", "showstandardinstruction", "answer"},
    "truefalse": COMMON | {"answer"},
    "numerical": COMMON | UNITS | {"answer"},
    "cloze": COMMON - {"defaultgrade"},
}
QTI = "{http://www.imsglobal.org/xsd/ims_qtiasiv1p2}"
CONTENT_PACKAGE = "{http://www.imsglobal.org/xsd/imscp_v1p1}"


class Answer(NamedTuple):
    text: str  # the option, the truth value or the number
    tolerance: float
    is_correct: bool
    feedback: str  # as HTML


class Question(NamedTuple):
    name: str
    kind: str
    text: str
    points: float
    general: str
    answers: list[list[Answer]]  # one list for each part of the answer


# --- Moodle ------------------------------------------------------------------------------------------


def read_moodle(xml):
    """Return {category: its questions}. Fails if the importer would ignore or reject something."""
    root = ET.fromstring(xml)
    assert root.tag == "quiz"
    categories = {}
    category = None
    for node in root:
        assert node.tag == "question"
        if node.get("type") == "category":
            category = read_text(node.find("category"))
            assert category.startswith("$course$/top/") and category not in categories
            categories[category] = []
        else:
            categories[category].append(read_question(node))
    return categories


def read_text(node):
    """Return the text of an element, without spaces at its ends, as `getpath` does."""
    if "format" in node.attrib:
        assert node.get("format") in FORMATS
    (text,) = node.findall("text")
    return (text.text or "").strip()


def read_question(node):
    kind = node.get("type")
    assert {child.tag for child in node} <= ELEMENTS[kind]
    name = read_text(node.find("name"))
    assert name
    if kind == "cloze":
        text, points, answers = read_cloze(read_text(node.find("questiontext")))
    else:
        text = read_text(node.find("questiontext"))
        points = float(node.find("defaultgrade").text)
        answers = [[read_answer(answer, kind) for answer in node.findall("answer")]]
    return Question(name, kind, text, points, read_text(node.find("generalfeedback")), answers)


def read_answer(node, kind):
    tolerance = 0.0
    if kind == "numerical":
        tolerance = float(node.find("tolerance").text)
    assert node.get("fraction") in ("0", "100")
    feedback = read_text(node.find("feedback"))
    return Answer(read_text(node), tolerance, node.get("fraction") == "100", feedback)


# The regular expressions of questiontype.php, without the types of gaps other than NUMERICAL.
ALTERNATIVE = (
    r"(?P<mark>=|%-?[0-9]+%)?(?P<answer>.+?(?<!\\|&)(?=[~#}]|$))(#(?P<feedback>.*?(?<!\\)(?=[~}]|$)))?"
)
NAMELESS = re.sub(r"\?P<\w+>", "", ALTERNATIVE)
GAP = re.compile(rf"\{{([0-9]*):(?:NUMERICAL|NM):({NAMELESS}(?:~{NAMELESS})*)\}}", re.DOTALL)
NUMBER = r"-?(?:(?:[0-9]+[.,]?[0-9]*|[.,][0-9]+)(?:[eE][-+]?[0-9]+)?)"
NUMERICAL = re.compile(rf"({NUMBER}):({NUMBER})")


def read_cloze(text):
    """Return the text without its gaps, the sum of the points, and the answers of each gap."""
    points = 0
    gaps = []
    while found := GAP.search(text):
        points += int(found[1])
        gaps.append(read_gap(found[2]))
        text = text.replace(found[0], f"{{#{len(gaps)}}}", 1)
    assert ":NUMERICAL:" not in text
    return text, points, gaps


def read_gap(alternatives):
    answers = []
    while found := re.match(f"~?{ALTERNATIVE}", alternatives, re.DOTALL):
        number = NUMERICAL.fullmatch(found["answer"])
        value, tolerance = number.groups() if number else (found["answer"], "0")
        is_correct = found["mark"] == "="
        answers.append(Answer(value, float(tolerance), is_correct, unescape(found["feedback"])))
        alternatives = alternatives[found.end() :]
    assert alternatives == ""
    return answers


def find_answer(answers, number):
    """Return the first answer whose interval contains a number, as Moodle does."""
    for answer in answers:
        if answer.text == "*" or abs(float(answer.text) - number) <= answer.tolerance:
            return answer
    return None


# --- Canvas ------------------------------------------------------------------------------------------


def read_qti(data):
    """Return {title of the group: its questions} from a QTI package."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        manifest = ET.fromstring(archive.read("imsmanifest.xml"))
        (resource,) = manifest.iter(f"{CONTENT_PACKAGE}resource")
        assert resource.get("type") == "imsqti_xmlv1p2"
        assert set(archive.namelist()) == {"imsmanifest.xml", resource.get("href")}
        root = ET.fromstring(archive.read(resource.get("href")))
    (section,) = root.findall(f"{QTI}assessment/{QTI}section")
    idents = [node.get("ident") for node in root.iter() if node.tag in (f"{QTI}item", f"{QTI}response_label")]
    assert len(set(idents)) == len(idents)
    groups = {}
    for group in section.findall(f"{QTI}section"):
        assert [node.text for node in group.iter(f"{QTI}selection_number")] == ["1"]
        (points,) = (float(node.text) for node in group.iter(f"{QTI}points_per_item"))
        groups[group.get("title")] = [read_item(item, points) for item in group.findall(f"{QTI}item")]
    return groups


def read_item(item, points):
    fields = {
        field.find(f"{QTI}fieldlabel").text: field.find(f"{QTI}fieldentry").text
        for field in item.iter(f"{QTI}qtimetadatafield")
    }
    assert float(fields["points_possible"]) == points
    texts = {
        node.get("ident"): node.find(f".//{QTI}mattext").text for node in item.iter(f"{QTI}itemfeedback")
    }
    correct = []
    shown = {}
    for condition in item.iter(f"{QTI}respcondition"):
        option = condition.find(f"{QTI}conditionvar/{QTI}varequal")
        if condition.find(f"{QTI}setvar") is not None:
            correct.append(option.text)
        else:
            feedback = condition.find(f"{QTI}displayfeedback").get("linkrefid")
            shown["" if option is None else option.text] = texts.pop(feedback)
    assert texts == {} and len(correct) == 1
    answers = []
    for label in item.iter(f"{QTI}response_label"):
        ident = label.get("ident")
        text = label.find(f".//{QTI}mattext").text
        answers.append(Answer(text, 0.0, ident in correct, shown.pop(ident)))
    text = item.find(f"{QTI}presentation/{QTI}material/{QTI}mattext").text
    general = shown.pop("")
    assert shown == {}
    return Question(item.get("title"), fields["question_type"], text, points, general, [answers])


# --- QTI 2.1 -----------------------------------------------------------------------------------------

QTI_21 = "{http://www.imsglobal.org/xsd/imsqti_v2p1}"
ORDER = [  # the order of the elements in the schema of QTI 2.1
    "responseDeclaration", "outcomeDeclaration", "itemBody", "responseProcessing", "modalFeedback",
]  # fmt: skip


class Item(NamedTuple):
    name: str
    gaps: list[str]  # the identifiers of the gaps; empty for a choice
    options: dict[str, str]  # {identifier of an option: its text}
    correct: list  # the declared correct responses
    condition: ET.Element  # the rules
    feedback: dict[str, str]  # {identifier: the feedback as XML}


def read_qti_21(data):
    """Return the items of a QTI 2.1 package, in the order of its test."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        manifest = ET.fromstring(archive.read("imsmanifest.xml"))
        files = [node.get("href") for node in manifest.iter(f"{CONTENT_PACKAGE}file")]
        assert archive.namelist() == ["imsmanifest.xml", *files]
        needed = [node.get("identifierref") for node in manifest.iter(f"{CONTENT_PACKAGE}dependency")]
        names = [node.get("identifier") for node in manifest.iter(f"{CONTENT_PACKAGE}resource")]
        assert names == ["resource_test", *needed]
        schema = [node.text for node in manifest.find(f"{CONTENT_PACKAGE}metadata")]
        assert schema == ["QTIv2.1 Package", "1.0.0"]
        test = ET.fromstring(archive.read("test.xml"))
        references = [node.get("href") for node in test.iter(f"{QTI_21}assessmentItemRef")]
        assert ["test.xml", *references] == files
        sections = list(test.iter(f"{QTI_21}assessmentSection"))
        assert all(section.find(f"{QTI_21}selection").get("select") == "1" for section in sections)
        return [read_item_21(ET.fromstring(archive.read(name))) for name in references]


def read_item_21(root):
    tags = [child.tag.removeprefix(QTI_21) for child in root]
    assert tags == sorted(tags, key=ORDER.index)
    gaps = [node.get("responseIdentifier") for node in root.iter(f"{QTI_21}textEntryInteraction")]
    options = {
        node.get("identifier"): "".join(node.itertext()) for node in root.iter(f"{QTI_21}simpleChoice")
    }
    declared = list(root.iter(f"{QTI_21}responseDeclaration"))
    assert [node.get("identifier") for node in declared] == (gaps or ["RESPONSE"])
    values = [node.find(f"{QTI_21}correctResponse/{QTI_21}value").text for node in declared]
    correct = [float(value) for value in values] if gaps else values
    feedback = {}
    for node in root.iter(f"{QTI_21}modalFeedback"):
        assert node.get("identifier") not in feedback
        xml = ET.tostring(node, encoding="unicode")
        feedback[node.get("identifier")] = re.sub(r"ns0:| xmlns:ns0=\"[^\"]*\"", "", xml)
    condition = root.find(f"{QTI_21}responseProcessing/{QTI_21}responseCondition")
    return Item(root.get("title"), gaps, options, correct, condition, feedback)


def answer_item(item, responses):
    """Return the score and the feedback on responses: numbers for the gaps, or one option."""
    values = dict(zip(item.gaps or ["RESPONSE"], responses, strict=True))
    for branch in item.condition:
        parts = list(branch)
        is_else = branch.tag == f"{QTI_21}responseElse"
        if is_else or holds(parts.pop(0), values):
            outcomes = {part.get("identifier"): part.find(f"{QTI_21}baseValue").text for part in parts}
            return float(outcomes.get("SCORE", 0)), item.feedback[outcomes["FEEDBACK"]]
    return None


def holds(node, values):
    """Return whether a condition holds. A comparison with an empty response does not hold."""
    name = node.tag.removeprefix(QTI_21)
    if name == "or":
        return any([holds(part, values) for part in node])
    if name == "and":
        return all([holds(part, values) for part in node])
    value = values[node.find(f"{QTI_21}variable").get("identifier")]
    if name == "isNull":
        return value is None
    limit = node.find(f"{QTI_21}baseValue").text
    if name == "match":
        return value == limit
    assert name in ("gte", "lte")
    if value is None:
        return False
    return value >= float(limit) if name == "gte" else value <= float(limit)
