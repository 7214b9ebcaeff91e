"""Test the conversion of lesson cells to slides, the page with the slides, and the command."""

import asyncio
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from npformer import cli
from npformer.handouts import slides
from npformer.handouts.lesson_copies import get_source
from npformer.handouts.slide_pictures import (
    BLUE,
    LETTER,
    PURPLE,
    RED,
    choose_bar_width,
    enlarge,
    mix_with_white,
)
from npformer.handouts.slides import (
    find_lesson,
    list_lessons,
    make_code_slides,
    make_slides,
)
from npformer.lessons.plan import Guess, Plan, Question, read_plan
from npformer.lessons.plots.colours import SIGNED_MAP, WEIGHT_MAP
from npformer.player.player_page import play

PICTURE = '<img alt="a line" width="3" src="data:image/png;base64,iVBO">'
PLAN = Plan({"1.1": 7}, questions=(Question("Why?", "Because."),))


def make_code_cell(source, *outputs, **roles):
    metadata = {"npformer": roles} if roles else {}
    return {"cell_type": "code", "source": source, "outputs": list(outputs), "metadata": metadata}


def make_text_cell(source, **roles):
    return {"cell_type": "markdown", "source": source, "metadata": {"npformer": roles} if roles else {}}


def make_printed_output(words):
    return {"output_type": "stream", "name": "stdout", "text": words}


def make_html_output(element):
    return {"output_type": "display_data", "data": {"text/html": element, "text/plain": "a line"}}


def make_notebook(*cells, **metadata):
    return {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}


def make_runnable_notebook(*sources, saved=()):
    cells = [{**put_on_slide(make_code_cell(source, *saved)), "execution_count": None} for source in sources]
    return make_notebook(make_text_cell("# 1. Where?\n\nHere."), *cells)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command `slides`; the given notebooks replace the lessons.

    The function returns the exit code, the error messages and the written pages.
    """

    def run(*lessons):
        files = [tmp_path / f"0{i}_a.ipynb" for i, _ in enumerate(lessons, 1)]
        for file, lesson in zip(files, lessons, strict=True):
            file.write_text(json.dumps(lesson))
        (tmp_path / "README.md").write_text("")
        monkeypatch.setattr(slides, "list_lesson_files", lambda: files)
        monkeypatch.setattr(slides, "format_page", lambda slides, title, stage: str(slides))
        exit_code = cli.main(["slides", "--out", str(tmp_path / "deck")])
        out, err = capsys.readouterr()
        pages = {file.name: file.read_text() for file in sorted(tmp_path.glob("deck/*"))}
        assert out == "".join(f"written: {tmp_path / 'deck' / name}\n" for name in pages)
        return exit_code, err, pages

    return run


def test_slides_run_the_lesson_in_an_empty_folder(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = "import os\nopen('mine', 'w').close()\nprint(6 * 7, 'NPFORMER_STAGE' in os.environ)"
    exit_code, err, pages = command(make_runnable_notebook(source, saved=[make_printed_output("41")]))
    assert (exit_code, err) == (0, "") and "42 True" in pages["01_a.html"]
    assert not Path("mine").exists() and "NPFORMER_STAGE" not in os.environ


FAILS = "{} does not run here: its code cell {}, which begins with `{}`, fails. "
DIES = pytest.param("import os\nos._exit(1)", "Kernel died. ", marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("source", "message"), [("\nimport os\nprint(y)", "NameError: name 'y' is not defined. "), DIES]
)
def test_slides_of_a_failing_lesson(source, message, command):
    """Lessons 1 and 3 fail. The slides of lesson 3 show its saved outputs. Lesson 1 gets no slides."""
    saved = make_runnable_notebook("import nowhere", saved=[make_printed_output("41")])
    exit_code, err, pages = command(
        make_runnable_notebook("1", "", source, "2"), make_runnable_notebook("print(1)"), saved
    )
    assert exit_code == 1 and [*pages] == ["02_a.html", "03_a.html"] and "41" in pages["03_a.html"]
    first, second = err.splitlines()
    assert first.startswith(f"npformer slides: {FAILS.format('01_a.ipynb', 2, 'import os')}{message}")
    assert first.endswith("run the lesson in JupyterLab; npformer lessons writes a copy.")
    assert second.startswith(f"npformer slides: {FAILS.format('03_a.ipynb', 1, 'import nowhere')}ModuleNotF")
    assert second.endswith("Its slides show what was saved, with smaller letters.")


def test_slides_report_a_missing_kernel(command, tmp_path, monkeypatch):
    spec = tmp_path / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": [str(tmp_path / "none")], "display_name": "x", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    exit_code, err, _ = command(make_runnable_notebook("1"))
    assert exit_code == 1 and ": no kernel starts. To get one: python -m " in err


def test_slides_report_ctrl_c(command, monkeypatch):
    monkeypatch.setattr("nbclient.NotebookClient.execute", Mock(side_effect=asyncio.CancelledError))
    assert command(make_runnable_notebook("1")) == (130, "npformer slides: interrupted\n", {})


@pytest.fixture(scope="module")
def deck(tmp_path_factory):
    """Write the slides of lesson 1 from its saved outputs, without running the lesson. Return the file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slides, "run_for_slides", lambda notebook, name: notebook)
        return slides.save_slides("1", tmp_path_factory.mktemp("stage") / "deck")


def remove_scripts_and_styles(page):
    return re.sub(r"<script\b.*?</script>|<style>.*?</style>", "", page, flags=re.S)


def test_slides_page_needs_no_network(deck):
    page = deck.read_text(encoding="utf-8")
    content = remove_scripts_and_styles(page)
    assert deck.name == "01_positional_encoding.html"
    assert "<title>1. Positional encoding: where does a word stand?</title>" in page
    assert not re.search(r'(src|href)="(?!data:)[^"#]', content.replace('href="exercises.ipynb"', ""))


def test_slides_page_has_mathml_and_notes(deck):
    content = remove_scripts_and_styles(deck.read_text(encoding="utf-8"))
    without_code = re.sub(r"<(pre|code)\b.*?</\1>", "", content, flags=re.S)
    assert content.count("<math") > 9 and "$" not in without_code
    assert "sin</mi><mspace" in content
    assert content.count('<aside class="notes">') > 20


def test_slides_page_contains_the_licences(deck):
    page = deck.read_text(encoding="utf-8")
    parts = slides.read_page_parts()
    assert page.count(parts["LICENSE"].strip()) == 1 and "free of charge" in parts["LICENSE"]
    assert "markedjs/marked" in parts["notes.js"] and "2018+, MarkedJS (" in page.partition("<html")[0]


def test_slides_name_the_missing_package(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(slides, "run_for_slides", lambda lesson, name: lesson)
    monkeypatch.setitem(sys.modules, "nbconvert.exporters", None)
    assert cli.main(["slides", "01", "--out", str(tmp_path)]) == 2
    assert re.search(r"nbconvert.*npformer\[slides\]", capsys.readouterr().err)


def test_slides_name_missing_revealjs_before_running(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [folder for folder in sys.path if "site-packages" not in folder])
    monkeypatch.delattr(slides, "run_for_slides")  # if the code tries to run a lesson, this raises an error
    assert cli.main(["slides", "01", "--out", str(tmp_path)]) == 2
    assert 'sphinx-revealjs; to get it: pip install "npformer[slides]"' in capsys.readouterr().err


def test_extra_slides_has_every_imported_package():
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    listed = extras["slides"] + extras["plots"] + extras["pretrained"]  # lesson 8 needs weights
    names = {re.split(r"[>=]", line)[0] for line in listed} | {"numpy", "npformer"}
    files = [find_lesson(number) for number in slides.list_lessons()]
    cells = [cell for file in files for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]]
    code = "\n".join(get_source(cell) for cell in cells if cell["cell_type"] == "code")
    wanted = set(re.findall(r"^(?:import|from) (\w+)", code, flags=re.M)) - sys.stdlib_module_names
    assert wanted <= names and "npformer[plots]" in extras["slides"]


def put_on_slide(cell, slide_type="slide", **entries):
    """Return the cell with metadata that makes it a slide of this type."""
    entries = {**cell["metadata"].get("npformer", {}), **entries}
    return {**cell, "metadata": {"slideshow": {"slide_type": slide_type}, "npformer": entries}}


def make_small_lesson(**metadata):
    asked = "## 1.1 Sums\n\nWe add.\n\n$$a$$\n\n**Predict.** Equal?"
    answer = {"output_type": "execute_result", "data": {"text/markdown": "**Answer.** Yes."}}
    source = 'x = 1\nprint(x)\npicture(x)\nreveal("1.1a")'
    cells = [
        put_on_slide(make_text_cell("# 1. Where?\n\nHere."), title="Where?"),
        make_code_cell("import math"),
        put_on_slide(make_text_cell(asked, predict="1.1a"), title="Is it?"),
        put_on_slide(
            make_code_cell(source, make_printed_output("1\n"), answer, reveal="1.1a"),
            title="It is",
            code="1-2",
        ),
    ]
    return make_notebook(*cells, **metadata)


def test_make_slides_question_run_answer():
    notebook = make_small_lesson(npformer={"known": ["One.", "Two.", "Three."], "opening": ["Vote!", "Why?"]})
    first, asked, run, last = make_slides(notebook, PLAN, {"1.1a": [Guess("no", "A.", "B?")]})
    question = f"{slides.ASKED.format('1.1a')}**Predict.** Equal?"
    assert (asked.text, asked.then) == ("## Is it?\n\n$$a$$", (question,))
    assert run.text == "## It is\n\n```python\nx = 1\nprint(x)\n```" and run.then[0] == "```text\n1\n```"
    assert run.then[1].startswith(f"{slides.ANSWERED}**Answer.** Yes.") and "picture(x)" in run.notes
    assert asked.notes.startswith("Section 1.1: 7 minutes; 7 are left") and asked.notes.endswith(
        "guess: no — shows: A. — ask: B?"
    )
    assert last.text == "## What we know now\n\n- One.\n- Two.\n- Three."
    assert all("**Why?** Because." in slide.notes for slide in (first, last))
    assert first.notes.startswith("The first two minutes:\n\nVote!\n\nWhy?\n\n") and "Vote!" not in last.notes


def test_make_slides_without_metadata_has_a_title():
    (slide,) = make_slides(make_notebook(make_text_cell("# 1. Where?\n\nHere.")), Plan({}), {})
    assert slide.text == "# 1. Where?"


def test_make_slides_fragment_joins_the_slide_before():
    *cells, last = make_small_lesson()["cells"]
    _, asked = make_slides(make_notebook(*cells, put_on_slide(last, "fragment")), Plan({}), {})
    assert [part.rpartition(">")[2][:9] for part in asked.then] == ["**Predict", "```text\n1", "**Answer."]
    assert "x = 1" in asked.notes


def test_make_slides_question_shows_its_subject():
    asked = "So.\n\n**Predict.** Which?"
    cells = [
        put_on_slide(
            make_code_cell(
                "picture(x)", make_html_output(PICTURE.replace("line", "dot")), make_html_output(PICTURE)
            ),
            title="A line",
        ),
        put_on_slide(make_text_cell(asked, predict="1.1a"), title="Again", again="A line"),
        put_on_slide(make_text_cell(asked, predict="1.1b"), title="At its step", station="ffn.z,8"),
        put_on_slide(make_text_cell(asked, predict="1.1b"), title="Half of it", stage="$$a$$"),
        put_on_slide(
            make_code_cell("picture(x)", make_html_output(PICTURE), reveal="1.1b"), "fragment", cover="30%"
        ),
        put_on_slide(make_text_cell(asked, predict="1.1b"), title="Again at a step", station="d_y"),
    ]
    _, _, again, step, half, back = make_slides(make_notebook(*cells), Plan({}), {})
    assert again.text == f"## Again\n\n{PICTURE}"
    assert again.then == (f"{slides.ASKED.format('1.1a')}**Predict.** Which?",)
    assert half.text == f"## Half of it\n\n$$a$$\n\n{slides.cover_pictures([PICTURE], '30%')[0]}"
    assert half.then[0] == f"{slides.ASKED.format('1.1b')}**Predict.** Which?"
    assert half.then[1].startswith(slides.ANSWERED)
    frames, (page,) = slides.share_players([again, step, back])  # both players share one page
    assert frames[0] == again and "Which?" in frames[1].then[0] and "live pictures" in frames[1].notes
    opened = re.findall(r'<iframe title="“dog[^"]+" data-page="0" data-at="(.*)"></iframe>', frames[1].text)
    assert opened == ["ffn.z,8"] and 'data-at="d_y"' in frames[2].text
    head, body = play(at="ffn.z,8").page.split("<body>")
    looks = Path(slides.__file__).parent.joinpath("stage", "player.css").read_text(encoding="utf-8")
    assert page == f"{head}<body><style>{looks}</style>" + body.replace('"at":"ffn.z,8"', '"at":""')


@pytest.mark.parametrize(("rounding", "decimals"), [({}, "null"), ({"decimals": 3}, "3")])
def test_make_slides_player_rounds_to_decimals(rounding, decimals):
    asked = make_text_cell("**Predict.** Which?", predict="1.1a")
    cell = put_on_slide(asked, title="At its cell", station="d_E,7", **rounding)
    _, (page,) = slides.share_players(make_slides(make_notebook(cell), Plan({}), {}))
    assert f'"decimals":{decimals},' in page


TABLE = "a fair coin:   50.0 %\nyes and no:  25.0 %\nas in the book: True"


def test_make_slides_question_shows_the_table_with_gaps():
    asked = put_on_slide(
        make_text_cell("So.\n\n**Predict.** Which?", predict="1.1a"), title="Which?", ahead="axes"
    )
    answer = put_on_slide(
        make_code_cell("print(x)", make_printed_output(TABLE), reveal="1.1a"), title="So", drawn="bars"
    )
    leads_in = put_on_slide(make_text_cell("It halves."), "skip")
    before, after = make_slides(make_notebook(asked, leads_in, answer), Plan({}), {})
    assert after.notes.startswith("It halves.") and "halves" not in f"{before}{after.text}{after.then}"
    lines = [re.sub("<[^>]*>", "", line).split() for line in after.text.split("\n")[2:]]
    assert after.text.startswith("## So\n\n") and lines == [
        ["a", "fair", "coin:", "50.0", "%"],
        ["yes", "and", "no:", "25.0", "%"],
    ]
    bar_width = choose_bar_width(len("a fair coin:  50.0 %"), 1, 2)
    tracks = [float(number) for number in re.findall(r"width: (.+?)em", after.text)]
    assert tracks == pytest.approx([bar_width * LETTER] * 2, abs=0.01)
    assert re.findall(r"width: ([\d.]+)%", after.text) == ["50.0", "25.0"]
    # At the question, the tracks are empty.
    assert re.findall(r"width: ([\d.]+)%", before.text) == ["0.0", "0.0"]
    (reply,) = after.then
    assert reply.startswith(slides.ANSWERED) and "print(x)" in after.notes
    assert "fair coin" in before.text and not re.search(r">[^<]*\d", before.text.partition(">")[2])
    assert before.text.count('class="box"') == 2 and before.then[0].endswith("**Predict.** Which?")

    answer["outputs"] = [*answer["outputs"], make_html_output(PICTURE)]  # a picture replaces the table
    before, *_ = make_slides(make_notebook(asked, answer), Plan({}), {})
    assert before.text.endswith(slides.cover_pictures([PICTURE], "0%")[0])  # a cover hides the whole picture


def test_make_slides_output_replaces_the_table_with_gaps():
    asked = put_on_slide(make_text_cell("**Predict.** Which?", predict="1.1a"), title="Which?", ahead="table")
    printed = make_code_cell("print(x)", make_printed_output(TABLE), reveal="1.1a")
    fragment = put_on_slide(printed, "fragment", drawn="bars")
    (slide,) = make_slides(make_notebook(asked, fragment), Plan({}), {})
    question, output, answer = slide.then
    assert slide.text.count('class="box"') == 2 and output.count('class="bar"') == 2
    assert question.startswith(slides.ASKED.format("1.1a")) and answer.startswith(slides.ANSWERED)
    befores = [cell.metadata.before for cell in slides.make_cells(slide)]
    tables = [before for before in befores if "block table" in before]
    assert ["gaps" in before for before in tables] == [True, False]  # the style sheet hides the first one
    assert ["fragment" in before for before in tables] == [False, True]


PANELLED = PICTURE.replace(" src", ' data-panels="1.0,5.0,45.0,10.0,90.0 50.0,55.0,95.0,10.0,80.0" src')
COVERED = {  # {the visible part: the left, right, top and bottom of each cover in percent}
    "1": [(50, 100, 0, 100)],
    "2": [],
    "table": [],
    "axes": [(5, 45, 10, 90), (55, 95, 10, 80)],
    "axes 50%": [(25, 45, 10, 90), (75, 95, 10, 80)],
    "30%": [(30, 100, 0, 100)],
    "": [],
}


@pytest.mark.parametrize(("visible", "covers"), COVERED.items(), ids=[name or "empty" for name in COVERED])
def test_cover_pictures_covers_the_hidden_part(visible, covers):
    (part,) = slides.cover_pictures([PANELLED, "no picture"], visible)
    found = re.findall(r"--left: (.*?); --right: (.*?); --top: (.*?); --bottom: (.*?)\"", part)
    assert part.startswith(PANELLED)
    assert [tuple(float(number) for number in cover) for cover in found] == covers


@pytest.mark.parametrize("visible", COVERED, ids=[name or "empty" for name in COVERED])
def test_cover_pictures_without_panels_covers_everything(visible):
    """Saved pictures do not contain the positions of their panels."""
    (part,) = slides.cover_pictures([PICTURE], visible)
    needs_panels = visible in ("1", "2", "axes", "axes 50%")
    assert part.count("--left: 0; --right: 100;") == (1 if needs_panels else 0)


HOLES = {  # {the visible part: the corners of the holes in the cover, in percent}
    "axes": [],
    "axes 50%": [(5, 25, 10, 90), (55, 75, 10, 80)],
    "axes 1": [(5, 45, 10, 90)],
}


@pytest.mark.parametrize(("visible", "holes"), HOLES.items(), ids=HOLES)
def test_cover_pictures_shows_the_empty_axes(visible, holes):
    (part,) = slides.cover_pictures([PANELLED.replace(" src", ' data-empty="iVBOR/8=" src')], visible)
    assert part.startswith(PANELLED) and part.count("<i ") == part.count("base64,iVBOR/8=") == 1
    (points,) = re.findall(r"polygon\(evenodd, (.*?)\)", part)
    corners = [tuple(float(number.strip("%")) for number in point.split()) for point in points.split(", ")]
    whole, *found = [corners[i : i + 5] for i in range(0, len(corners), 6)]
    assert whole == [(0, 0), (100, 0), (100, 100), (0, 100), (0, 0)]
    assert [(box[0][0], box[1][0], box[0][1], box[2][1]) for box in found] == holes


def test_cover_pictures_leaves_unused_axes_out():
    (part,) = slides.cover_pictures([PANELLED.replace(" src", ' data-empty="iVBOR/8=" src')], "1")
    assert part.startswith(PANELLED) and "iVBOR" not in part


def make_printed_slide(text, **entries):
    """Return the only slide of a cell that prints a text; `entries` are added to the metadata of the cell."""
    cell = make_code_cell("x", make_printed_output(text))
    (slide,) = make_code_slides(put_on_slide(cell, **entries))
    return slide


def test_make_code_slides_squares_share_one_scale():
    slide = make_printed_slide("[[ 2. -1.]\n [ 0.5 4.]]", drawn="squares", code="1-1")
    assert "```python\nx\n```" in slide.text
    squares = re.findall(r'<b class="square" style="background: (.+?)">(.+?)</b>', slide.then[0])
    assert squares == [
        (mix_with_white(RED, 0.5), "2 "),
        (mix_with_white(BLUE, 0.25), "-1 "),
        (mix_with_white(RED, 0.125), "0.5"),
        (mix_with_white(RED, 1), "4 "),
    ]


@pytest.mark.parametrize(
    ("colour", "name", "share"), [(RED, SIGNED_MAP, 0.8), (BLUE, SIGNED_MAP, 0.2), (PURPLE, WEIGHT_MAP, 0.6)]
)
def test_squares_have_the_hues_of_the_heat_maps(colour, name, share):
    """The letters on the darkest square have a contrast of at least 4.5."""
    colormaps = pytest.importorskip("matplotlib").colormaps
    colors = pytest.importorskip("matplotlib.colors")
    hue, *_ = colors.rgb_to_hsv(np.array(colour) / 255)
    expected, *_ = colors.rgb_to_hsv(colormaps[name](share)[:3])
    assert abs((hue - expected + 0.5) % 1 - 0.5) < 0.05
    assert compute_contrast(colour, (0x1A, 0x1A, 0x1A)) > 4.5


def compute_contrast(colour, other):
    """Return the contrast of two colours by the rule of WCAG 2."""
    lightness = []
    for channels in (colour, other):
        shares = np.array(channels) / 255
        linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
        lightness.append(linear @ [0.2126, 0.7152, 0.0722] + 0.05)
    return max(lightness) / min(lightness)


def test_squares_without_a_sign_are_purple():
    assert mix_with_white(PURPLE, 1) in make_printed_slide("[0.5 4.]", drawn="squares").text
    assert mix_with_white(RED, 1) in make_printed_slide("[0.5 4.]", drawn="signed").text


def test_make_code_slides_words_are_marked():
    slide = make_printed_slide("y <pass>, z fail", drawn="squares", where="fail|pass")
    assert slide.text.count(f"background: {mix_with_white(PURPLE, 1)}") == 2 and "&lt;<b" in slide.text


def test_make_code_slides_bars_of_zeros_are_empty():
    slide = make_printed_slide("a 0.0\nb 0.0", drawn="bars")
    assert slide.text.count("width: 0.0%") == 2


def test_make_code_slides_shows_a_table_instead():
    slide = make_printed_slide("on numpy", drawn="squares", where="fails", instead="a  works\nb  fails")
    assert "on numpy" not in slide.text and "a  works\nb  <b" in slide.text


def test_slides_keep_the_saved_output_of_a_measurement(command):
    """The copy of a student has no saved outputs, so its slides show the new ones."""
    lesson = make_runnable_notebook("6 * 7", "6 * 8", saved=[make_printed_output("the saved time")])
    lesson["cells"][1]["metadata"]["npformer"]["saved"] = True
    _, _, pages = command(lesson)
    assert "the saved time" in pages["01_a.html"] and "42" not in pages["01_a.html"]
    assert "48" in pages["01_a.html"]
    for cell in lesson["cells"][1:]:
        cell["outputs"] = []
    _, _, pages = command(lesson)
    assert "42" in pages["01_a.html"]


def test_make_code_slides_enlarges_text_without_numbers():
    slide = make_printed_slide("no number", drawn="bars")
    assert slide.text.endswith(enlarge("no number")) and slide.then == ()


def test_make_code_slides_without_output_is_empty():
    assert make_code_slides(put_on_slide(make_code_cell("if weights: picture(x)"), title="Not here")) == []


def test_make_code_slides_one_picture_per_slide():
    first, second = make_code_slides(
        make_code_cell(
            "picture(x)",
            make_printed_output("1"),
            make_html_output(PICTURE),
            make_html_output(PICTURE),
            reveal="1.1a",
        )
    )
    assert PICTURE in first.text and first.then == ()
    assert second.then[0].startswith(f"{slides.ANSWERED}**Answer.")


def test_format_output_ignores_sliders_and_empty_lines():
    slider = {"data": {slides.WIDGET: {}, "text/plain": "interactive(children"}}
    assert list(slides.format_output(slider)) == []
    assert list(slides.format_output(make_printed_output("\n"))) == []


def test_make_code_slides_notes_have_player_keys():
    frame = play(at="ffn.z")._repr_html_()
    (slide,) = make_code_slides(make_code_cell('play(at="ffn.z")', make_html_output(frame)))
    assert slide.text.endswith(frame) and 'play(at="ffn.z")' in slide.notes and "H hides the" in slide.notes


def test_slides_without_weights_are_left_out(command):
    asked = put_on_slide(make_text_cell("So.\n\n**Predict.** Which?", predict="1.1a"), title="Which?")
    code = {**make_code_cell("pass", reveal="1.1a", needs="get weights"), "execution_count": None}
    shown = {**make_code_cell("print(7)", needs="get weights"), "execution_count": None}
    title = make_text_cell("# 1. Where?\n\nHere.")
    lesson = make_notebook(
        title, asked, put_on_slide(code, title="It is"), put_on_slide(shown, title="Seven")
    )
    exit_code, err, pages = command(lesson)
    assert exit_code == 0 and "Seven" in pages["01_a.html"] and "Which?" not in pages["01_a.html"]
    assert "To get them: get weights. Left out: Which?; It is." in err


def test_convert_formula_keeps_punctuation_on_the_same_line():
    text = "So ($a$), $b$ holds in 32 % of <code>9 %</code>."
    page = slides.MATH.sub(slides.convert_formula, text)
    before, kept, after = re.split('<span class="unbroken">(.*?)</span>', page)
    assert before == "So " and re.fullmatch(r"\(<math.*</math>\),", kept)
    assert after.startswith(" <math") and after.endswith(" holds in 32\u00a0% of <code>9 %</code>.")


@pytest.mark.parametrize(
    ("tex", "mathml"),
    [
        (r"\hat{x}", "<mo>\u02c6</mo></mover>"),
        (r"\begin{pmatrix}1\end{pmatrix}", '<mo stretchy="true">&#x00028;</mo><mtable>'),
    ],
)
def test_convert_formula_repairs_hats_and_brackets(tex, mathml):
    assert mathml in slides.MATH.sub(slides.convert_formula, f"${tex}$")


def test_make_code_slides_formula_is_above_the_table():
    assert make_printed_slide("1.5", stage="$$x$$", drawn="squares").text.startswith("## \n\n$$x$$\n\n<pre")


def test_make_code_slides_leaves_out_claims():
    slide = make_printed_slide("it is equal: True", drawn="columns", code="1-1")
    assert slide.then == ()


def test_convert_formula_marks_signs_of_negative_numbers():
    formula = slides.MATH.sub(slides.convert_formula, r"$(-1,\; -2) - 3 = -4$")
    assert formula.count("&#x02212;") == 4
    assert formula.count('<mo form="prefix">&#x02212;</mo>') == 3


MOST_WORDS, MOST_LINES = 40, 8  # the largest numbers of words and of code lines on a slide
PICTURE_TAG = r'\$\$|<img |<iframe |<pre class="drawn"'  # a formula, a picture, a player or a drawn table


def count_words(text):
    """Count the words of a slide without code, printed output and pictures. A formula is one word."""
    text = re.sub(r"```.*?```|<pre .*?</pre>|<[^>]*>", "", text, flags=re.S)
    return len(re.findall(r"\S*\w\S*", re.sub(r"\$\$.*?\$\$|\$[^$]*\$", "x", text, flags=re.S)))


@pytest.mark.parametrize("number", list_lessons())
def test_slides_of_every_lesson_are_readable(number):
    file = find_lesson(number)
    plan = read_plan(int(number))
    assert 4 < len(plan.minutes) < 20 and sum(plan.minutes.values()) > 40 and len(plan.questions) >= 1
    found, _ = slides.share_players(make_slides(json.loads(file.read_text(encoding="utf-8")), plan, {}))
    titles = [slide.text.partition("\n")[0] for slide in found]
    assert 25 <= len(found) <= 40 and len(set(titles)) == len(titles)
    assert all(title.startswith("#") and len(title.lstrip("# ")) > 3 for title in titles)
    wholes = ["\n\n".join((slide.text, *slide.then)) for slide in found]
    problems = {}
    for title, whole in zip(titles, wholes, strict=True):
        if problems_of_slide(whole):
            problems[title] = problems_of_slide(whole)
    assert problems == {}
    without_picture = [
        title for title, whole in zip(titles, wholes, strict=True) if not re.search(PICTURE_TAG, whole)
    ]
    advice = (
        f"at most a third of the slides may have no picture; {HOW_TO_DRAW} "
        f"Slides without a picture: {without_picture}"
    )
    assert 3 * len(without_picture) <= len(found), advice


@pytest.mark.parametrize("number", list_lessons())
def test_notes_contain_every_section_before_the_last_slide(number):
    cells = json.loads(find_lesson(number).read_text(encoding="utf-8"))["cells"]
    shown = [i for i, cell in enumerate(cells) if slides._slide_type(cell) in ("slide", "fragment")]
    texts = ["".join(cell["source"]) for cell in cells[: shown[-1]] if cell["cell_type"] == "markdown"]
    sections = [section for text in texts for section in slides.SECTION.findall(text)]
    plan = read_plan(int(number))
    notes = "".join(slide.notes for slide in slides.make_lesson_slides(cells, plan, {}))
    assert len(sections) > 4
    assert [section for section in sections if f"## {section} " not in notes] == []
    missing = [section for section in sections if slides.format_minutes(section, plan) not in notes]
    assert missing == []


@pytest.mark.parametrize("number", list_lessons())
def test_rows_are_found_in_the_stored_outputs(number):
    """If the printed text of a cell changes, the entry `row` of its metadata must change, too."""
    missing = []
    for cell in json.loads(find_lesson(number).read_text(encoding="utf-8"))["cells"]:
        row = slides.get_entry(cell, "row")
        if not row or cell["cell_type"] != "code" or not cell["outputs"]:
            continue
        undrawn = {"npformer": {"instead": slides.get_entry(cell, "instead")}}
        parts = slides.list_outputs({**cell, "metadata": undrawn})
        printed = [match[1] for match in map(slides.PRINTED.fullmatch, parts) if match]
        if not any(re.search(row, text, flags=re.M) for text in printed):
            missing.append((cell["id"], row))
    assert missing == []


HOW_TO_SHORTEN = "`stage`, `ask` or `answer` in the cell's metadata gives a shorter text for the slide"
HOW_TO_DRAW = "`drawn` in a cell's metadata draws its printed numbers."


def problems_of_slide(whole):
    """Return a message for each problem of a slide's text, with its remedy."""
    problems = []
    if count_words(whole) > MOST_WORDS:
        problems.append(f"{count_words(whole)} words, at most {MOST_WORDS}: {HOW_TO_SHORTEN}")
    if "import " in whole.partition("<")[0]:
        problems.append("an import: move it into a cell that is skipped on slides")
    for code in re.findall(r"```python\n(.*?)\n```", whole, flags=re.S):
        n_lines = len(code.split("\n"))
        if n_lines > MOST_LINES:
            problems.append(f"{n_lines} lines of code, at most {MOST_LINES}: split the cell")
    for drawing in re.findall(r'<pre class="drawn".*?</pre>', whole, flags=re.S):
        if not re.search('class="(bar|box|.*square)"', drawing):
            problems.append("`drawn` draws nothing: `where` must match printed numbers")
    return problems
