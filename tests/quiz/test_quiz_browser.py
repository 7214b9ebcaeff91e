"""Answer QTI 2.1 questions in Chromium, correctly and with each known mistake, and read the feedback.

The player is qti-components from npm, which plays QTI 3. QTI 3 differs from QTI 2.1 in the names of elements
and attributes, so the tests rename them.
"""

import importlib.util
import io
import re
import shutil
import zipfile
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from test_quiz import is_named

from npformer.exercises.bank import find_exercise
from npformer.exercises.task import RIGHT, Choice, Numbers, Truth
from npformer.quiz.formulas import HTML, format_text
from npformer.quiz.qti_21 import write_qti_21_package
from npformer.quiz.quiz_questions import make_categories, name_variants

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: uv sync --extra test")
pytestmark = pytest.mark.browser

PLAYER = "@citolab/qti-components@7.27.4"
SCRIPT = "cdn/index.global.js"
NPM = Path(__file__).parents[2] / ".ci" / "site" / "npm.py"
OPEN = """async xml => {
    document.body.innerHTML = "<qti-item><item-container></item-container></qti-item>";
    const container = document.querySelector("item-container");
    await container.updateComplete;
    container.itemXML = xml;
}"""
NUMBERS = [
    "pe.pair",
    "pe.entry",
    "pe.row",
    "cost.parameters",
    "attention.scale",
    "norm.token",
    "search.cosine",
]
CHOICES = ["order.bag", "order.padding", "pe.both"]
HTML_ELEMENTS = {"p", "sub", "sup"}


def to_qti_3(xml):
    """Rename the elements and the attributes of a QTI 2.1 item as in QTI 3."""
    root = ET.fromstring(xml)
    for node in root.iter():
        name = node.tag.partition("}")[2]
        node.tag = name if name in HTML_ELEMENTS else f"qti-{to_kebab_case(name)}"
        node.attrib = {to_kebab_case(key): value for key, value in node.attrib.items()}
    root.set("xmlns", "http://www.imsglobal.org/xsd/imsqtiasi_v3p0")
    return ET.tostring(root, encoding="unicode")


def to_kebab_case(name):
    return re.sub("[A-Z]", lambda letter: f"-{letter[0].lower()}", name)


@pytest.fixture(scope="module")
def script():
    """Return the path of the player's script; npm downloads it once."""
    if not shutil.which("npm"):
        pytest.skip("needs npm")
    spec = importlib.util.spec_from_file_location("npm", NPM)
    npm = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(npm)
    return npm.from_npm(PLAYER) / SCRIPT


@pytest.fixture(scope="module")
def questions():
    """Return {id of the exercise: (name of the question, its QTI 3)}."""
    points = dict.fromkeys([*NUMBERS, *CHOICES], 1.0)
    categories = make_categories(points, name_variants("browser", 1), 1)
    found = {}
    with zipfile.ZipFile(io.BytesIO(write_qti_21_package(categories, "Ten questions"))) as archive:
        for category in categories:
            file = f"{category.exercise_id.replace('.', '_')}_1.xml"
            found[category.exercise_id] = category.questions[0].id, to_qti_3(archive.read(file))
    return found


@pytest.fixture
def page(chromium, script):
    """Return a page with the player. It must have no error and use no network."""
    troubles = []
    page = chromium.new_page(viewport={"width": 800, "height": 600})
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: troubles.append(request.url))
    page.set_default_timeout(30_000)
    page.set_content("<!doctype html><meta charset='utf-8'>")
    page.add_script_tag(path=script)
    yield page
    page.close()
    assert troubles == []


def open_item(page, xml):
    """Show a new copy of a question in the player."""
    page.evaluate(OPEN, xml)
    page.locator("qti-item-body").wait_for()


def submit(page):
    """Submit the response. Return the score and the HTML of the feedback that is shown."""
    score, shown = page.evaluate("""() => {
        const item = document.querySelector("item-container").shadowRoot.querySelector("qti-assessment-item");
        item.processResponse();
        const all = [...item.querySelectorAll("qti-modal-feedback")];
        const name = item.variables.find(variable => variable.identifier === "FEEDBACK").value;
        const score = item.variables.find(variable => variable.identifier === "SCORE").value;
        return [Number(score), all.filter(node => node.identifier === name).map(node => node.innerHTML)];
    }""")
    dialog = page.locator("qti-modal-feedback dialog[open]")
    dialog.wait_for()
    assert dialog.count() == 1 and len(shown) == 1
    return score, shown[0]


def type_numbers(page, xml, numbers):
    """Type numbers into the gaps of a question, and submit them."""
    open_item(page, xml)
    gaps = page.locator("qti-text-entry-interaction input")
    assert gaps.count() == len(numbers)
    for k, number in enumerate(numbers):
        gaps.nth(k).press_sequentially(np.format_float_positional(number, trim="-"))
    return submit(page)


@pytest.mark.parametrize("exercise_id", NUMBERS)
def test_typed_numbers_get_the_feedback_on_the_mistake(page, questions, exercise_id):
    name, xml = questions[exercise_id]
    task, student = find_exercise(name)
    assert isinstance(task, Numbers)
    posed = task.posed(student)
    decimals = task.decimals or 3
    right = np.atleast_1d(np.round(posed.answer, decimals))
    score, feedback = type_numbers(page, xml, right)
    assert score == 1 and "Correct." in feedback
    for wrong, value in posed.wrong.items():  # each fits into the gaps, so that each is typed
        assert np.shape(value) == np.shape(posed.answer)
        score, feedback = type_numbers(page, xml, np.atleast_1d(np.round(value, decimals)))
        assert score == 0 and is_named(task.id, wrong, feedback, HTML)
    score, feedback = type_numbers(page, xml, np.full_like(right, 98765.5, dtype=float))
    assert score == 0 and format_text(task.question, HTML) in feedback


@pytest.mark.parametrize("exercise_id", CHOICES)
def test_chosen_options_get_their_feedback(page, questions, exercise_id):
    name, xml = questions[exercise_id]
    task, _ = find_exercise(name)
    if isinstance(task, Choice):
        options = task.options
    else:
        assert isinstance(task, Truth)
        options = {str(value): RIGHT if value == task.right else task.wrong for value in (True, False)}
    for k, wrong in enumerate(options.values()):
        open_item(page, xml)
        page.locator("qti-simple-choice").nth(k).click()
        score, feedback = submit(page)
        assert score == (wrong is RIGHT)
        assert ("Correct." if wrong is RIGHT else format_text(wrong.says, HTML)) in feedback
