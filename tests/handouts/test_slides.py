"""Slides: from a lesson's cells to what is on stage, and the page that holds them."""

import asyncio
import json
import os
import re
import sys
import tomllib
from pathlib import Path
from unittest.mock import Mock

import pytest

from npformer import cli
from npformer.handouts import slides
from npformer.handouts.lesson_copies import source_of
from npformer.handouts.slide_pictures import LETTER, LONGEST, enlarge
from npformer.handouts.slides import (
    Plan,
    lesson_file,
    lesson_numbers,
    make_code_slides,
    make_slides,
    parse_plan,
    read_guesses,
)
from npformer.lessons.predictions import answers
from npformer.player.player_page import play

PICTURE = '<img alt="a line" width="3" src="data:image/png;base64,iVBO">'
PLAN = Plan({"1.1": 7}, [("Why?", "Because.")])


def code(source, *outputs, **roles):
    metadata = {"npformer": roles} if roles else {}
    return {"cell_type": "code", "source": source, "outputs": list(outputs), "metadata": metadata}


def text(source, **roles):
    return {"cell_type": "markdown", "source": source, "metadata": {"npformer": roles} if roles else {}}


def printed(words):
    return {"output_type": "stream", "name": "stdout", "text": words}


def shown(element):
    return {"output_type": "display_data", "data": {"text/html": element, "text/plain": "a line"}}


def notebook_of(*cells, **metadata):
    return {"cells": list(cells), "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}


def runnable(*sources, saved=()):
    cells = [{**on_stage(code(source, *saved)), "execution_count": None} for source in sources]
    return notebook_of(text("# 1. Where?\n\nHere."), *cells)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """The command with lessons of our own: its exit code, what it says and which pages it wrote."""

    def run(*lessons):
        files = [tmp_path / f"0{i}_a.ipynb" for i, _ in enumerate(lessons, 1)]
        for file, lesson in zip(files, lessons, strict=True):
            file.write_text(json.dumps(lesson))
        (tmp_path / "README.md").write_text("")
        monkeypatch.setattr(slides, "lesson_files", lambda: files)
        monkeypatch.setattr(slides, "format_page", lambda slides, title, stage: str(slides))
        code, said = cli.main(["slides", "--out", str(tmp_path / "deck")]), capsys.readouterr()
        pages = {file.name: file.read_text() for file in sorted(tmp_path.glob("deck/*"))}
        assert said.out == "".join(f"written: {tmp_path / 'deck' / name}\n" for name in pages)
        return code, said.err, pages

    return run


def test_a_lesson_is_run_for_its_slides_in_a_place_of_its_own(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = "import os\nopen('mine', 'w').close()\nprint(6 * 7, 'NPFORMER_STAGE' in os.environ)"
    exit_code, err, pages = command(runnable(source, saved=[printed("41")]))
    assert (exit_code, err) == (0, "") and "42 True" in pages["01_a.html"]
    assert not Path("mine").exists() and "NPFORMER_STAGE" not in os.environ


FAILS = "{} does not run here: its code cell {}, which begins with `{}`, fails. "
DIES = pytest.param("import os\nos._exit(1)", "Kernel died. ", marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("source", "said"), [("\nimport os\nprint(y)", "NameError: name 'y' is not defined. "), DIES]
)
def test_a_lesson_whose_cell_fails_is_shown_as_saved_or_named_and_the_others_are_made(source, said, command):
    saved = runnable("import nowhere", saved=[printed("41")])
    exit_code, err, pages = command(runnable("1", "", source, "2"), runnable("print(1)"), saved)
    assert exit_code == 1 and [*pages] == ["02_a.html", "03_a.html"] and "41" in pages["03_a.html"]
    first, second = err.splitlines()
    assert first.startswith(f"npformer slides: {FAILS.format('01_a.ipynb', 2, 'import os')}{said}")
    assert first.endswith("run the lesson in JupyterLab; npformer lessons writes a copy.")
    assert second.startswith(f"npformer slides: {FAILS.format('03_a.ipynb', 1, 'import nowhere')}ModuleNotF")
    assert second.endswith("Its slides show what was saved, with smaller letters.")


def test_a_kernel_that_is_not_there_and_a_stop_are_said_in_one_line(command, tmp_path, monkeypatch):
    spec = tmp_path / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": [str(tmp_path / "none")], "display_name": "x", "language": "python"}))
    with monkeypatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(tmp_path))
        exit_code, err, _ = command(runnable("1"))
    assert exit_code == 1 and ": no kernel starts. To get one: python -m " in err
    monkeypatch.setattr("nbclient.NotebookClient.execute", Mock(side_effect=asyncio.CancelledError))
    assert command(runnable("1")) == (130, "npformer slides: interrupted\n", {})


@pytest.fixture(scope="module")
def deck(tmp_path_factory):
    """Of what the lesson was saved with; the tests in a browser run it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slides, "run_for_slides", lambda notebook, name: notebook)
        return slides.save_slides("1", tmp_path_factory.mktemp("stage") / "deck")


def test_the_page_holds_everything_and_asks_nobody(deck):
    page = deck.read_text(encoding="utf-8")
    own = re.sub(r"<script\b.*?</script>|<style>.*?</style>", "", page, flags=re.S)
    assert deck.name == "01_positional_encoding.html"
    assert "<title>1. Positional encoding: where does a word stand?</title>" in page
    assert not re.search(r'(src|href)="(?!data:)[^"#]', own.replace('href="exercises.ipynb"', ""))
    assert own.count("<math") > 9 and "$" not in re.sub(r"<(pre|code)\b.*?</\1>", "", own, flags=re.S)
    assert "sin</mi><mspace" in own
    assert own.count('<aside class="notes">') > 20
    stage = slides.read_page_parts()  # those who wrote what it holds are named
    assert page.count(stage["LICENSE"].strip()) == 1 and "free of charge" in stage["LICENSE"]
    assert "markedjs/marked" in stage["notes.js"] and "2018+, MarkedJS (" in page.partition("<html")[0]


def test_what_is_not_installed_is_named_with_the_way_to_get_it(tmp_path, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(slides, "run_for_slides", lambda lesson, name: lesson)
        patch.setitem(sys.modules, "nbconvert.exporters", None)
        assert cli.main(["slides", "01", "--out", str(tmp_path)]) == 2
    assert re.search(r"nbconvert.*npformer\[slides\]", capsys.readouterr().err)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if "site-packages" not in place])
    monkeypatch.delattr(slides, "run_for_slides")  # reveal.js is looked for before a lesson runs
    assert cli.main(["slides", "01", "--out", str(tmp_path)]) == 2
    assert 'sphinx-revealjs; to get it: pip install "npformer[slides]"' in capsys.readouterr().err


def test_the_extra_has_what_the_cells_import():
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    listed = extras["slides"] + extras["plots"] + extras["pretrained"]  # lesson 8 asks for its weights itself
    names = {re.split(r"[>=]", line)[0] for line in listed} | {"numpy", "npformer"}
    files = [lesson_file(number) for number in slides.lesson_numbers()]
    cells = [cell for file in files for cell in json.loads(file.read_text(encoding="utf-8"))["cells"]]
    code = "\n".join(source_of(cell) for cell in cells if cell["cell_type"] == "code")
    wanted = set(re.findall(r"^(?:import|from) (\w+)", code, flags=re.M)) - sys.stdlib_module_names
    assert wanted <= names and "npformer[plots]" in extras["slides"]


def on_stage(cell, kind="slide", **said):
    roles = {**cell["metadata"].get("npformer", {}), **said}
    return {**cell, "metadata": {"slideshow": {"slide_type": kind}, "npformer": roles}}


def small_lesson(**metadata):
    asked = "## 1.1 Sums\n\nWe add.\n\n$$a$$\n\n**Predict.** Equal?"
    answer = {"output_type": "execute_result", "data": {"text/markdown": "**Answer.** Yes."}}
    source = 'x = 1\nprint(x)\npicture(x)\nreveal("1.1a")'
    cells = [
        on_stage(text("# 1. Where?\n\nHere."), title="Where?"),
        code("import math"),
        on_stage(text(asked, predict="1.1a"), title="Is it?"),
        on_stage(code(source, printed("1\n"), answer, reveal="1.1a"), title="It is", code="1-2"),
    ]
    return notebook_of(*cells, **metadata)


def test_question_pause_run_answer():
    notebook = small_lesson(npformer={"known": ["One.", "Two.", "Three."]})
    first, asked, run, last = make_slides(notebook, PLAN, {"1.1a": "guess: no"})
    assert (asked.text, asked.then) == ("## Is it?\n\n$$a$$", (f"{slides.ASKED}**Predict.** Equal?",))
    assert run.text == "## It is\n\n```python\nx = 1\nprint(x)\n```" and run.then[0] == "```text\n1\n```"
    assert run.then[1].startswith(f"{slides.ANSWERED}**Answer.** Yes.") and "picture(x)" in run.notes
    assert asked.notes.startswith("Section 1.1: 7 minutes; 7 are left") and asked.notes.endswith("guess: no")
    assert last.text == "## What we know now\n\n- One.\n- Two.\n- Three."
    assert all("**Why?** Because." in slide.notes for slide in (first, last))


def test_a_fragment_joins_the_slide_before_it():
    *cells, last = small_lesson()["cells"]
    _, asked = make_slides(notebook_of(*cells, on_stage(last, "fragment")), Plan({}, []), {})
    assert [part.rpartition(">")[2][:9] for part in asked.then] == ["**Predict", "```text\n1", "**Answer."]
    assert "x = 1" in asked.notes


def test_a_question_stands_beside_what_it_is_about():
    asked = "So.\n\n**Predict.** Which?"
    cells = [
        on_stage(code("picture(x)", shown(PICTURE.replace("line", "dot")), shown(PICTURE)), title="A line"),
        on_stage(text(asked, predict="1.1a"), title="Again", again="A line"),
        on_stage(text(asked, predict="1.1b"), title="At its step", station="ffn.z,8"),
        on_stage(text(asked, predict="1.1b"), title="Half of it", stage="$$a$$"),
        on_stage(code("picture(x)", shown(PICTURE), reveal="1.1b"), "fragment", cover="30%"),
        on_stage(text(asked, predict="1.1b"), title="Again at a step", station="d_y"),
    ]
    _, _, again, step, half, back = make_slides(notebook_of(*cells), Plan({}, []), {})
    assert again.text == f"## Again\n\n{PICTURE}" and again.then == (f"{slides.ASKED}**Predict.** Which?",)
    assert half.text == f"## Half of it\n\n$$a$$\n\n{slides.cover_pictures([PICTURE], '30%')[0]}"
    assert half.then[0] == again.then[0] and half.then[1].startswith(slides.ANSWERED)
    frames, (page,) = slides.share_players([again, step, back])  # one page for both
    assert frames[0] == again and "Which?" in frames[1].then[0] and "live pictures" in frames[1].notes
    opened = re.findall(r'<iframe title="“dog[^"]+" data-page="0" data-at="(.*)"></iframe>', frames[1].text)
    assert opened == ["ffn.z,8"] and 'data-at="d_y"' in frames[2].text
    head, body = play(at="ffn.z,8").page.split("<body>")
    looks = Path(slides.__file__).parent.joinpath("stage", "player.css").read_text(encoding="utf-8")
    assert page == f"{head}<body><style>{looks}</style>" + body.replace('"at":"ffn.z,8"', '"at":""')


TABLE = "a fair coin:   50.0 %\nyes and no:  25.0 %\nas in the book: True"


def test_what_is_printed_is_drawn_and_comes_first_as_boxes_to_fill_in():
    asked = on_stage(text("So.\n\n**Predict.** Which?", predict="1.1a"), title="Which?", ahead="axes")
    answer = on_stage(code("print(x)", printed(TABLE), reveal="1.1a"), title="So", drawn="bars")
    leads_in = on_stage(text("It halves."), "skip")
    before, after = make_slides(notebook_of(asked, leads_in, answer), Plan({}, []), {})
    assert after.notes.startswith("It halves.") and "halves" not in f"{before}{after.text}{after.then}"
    lines = [re.sub("<[^>]*>", "", line).split() for line in after.text.split("\n")[2:]]
    assert after.text.startswith("## So\n\n") and lines == [
        ["a", "fair", "coin:", "50.0", "%"],
        ["yes", "and", "no:", "25.0", "%"],
    ]
    fifty, quarter = (float(number) for number in re.findall(r"width: (.+?)em", after.text))
    assert fifty == pytest.approx(2 * quarter, abs=0.02) == pytest.approx(0.5 * LONGEST * LETTER, abs=0.02)
    (reply,) = after.then
    assert reply.startswith(slides.ANSWERED) and "print(x)" in after.notes
    assert "fair coin" in before.text and not re.search(r">[^<]*\d", before.text.partition(">")[2])
    assert before.text.count('class="box"') == 4 and before.then[0].endswith("**Predict.** Which?")

    answer["outputs"] = [*answer["outputs"], shown(PICTURE)]  # a picture comes before a table
    before, *_ = make_slides(notebook_of(asked, answer), Plan({}, []), {})
    assert before.text.endswith(slides.cover_pictures([PICTURE], "0%")[0])  # all of it


PANELLED = PICTURE.replace(" src", ' data-panels="1.0,5.0,45.0,10.0,90.0 50.0,55.0,95.0,10.0,80.0" src')
COVERED = {  # left, right, top and bottom in percent, of each
    "1": [(50, 100, 0, 100)],
    "2": [],
    "table": [],
    "axes": [(5, 45, 10, 90), (55, 95, 10, 80)],
    "axes 50%": [(25, 45, 10, 90), (75, 95, 10, 80)],
    "30%": [(30, 100, 0, 100)],
    "": [],
}


def test_of_a_picture_is_covered_what_is_not_to_be_seen_yet():
    for seen, boxes in COVERED.items():
        (part,) = slides.cover_pictures([PANELLED, "no picture"], seen)
        found = re.findall(r"--left: (.*?); --right: (.*?); --top: (.*?); --bottom: (.*?)\"", part)
        assert part.startswith(PANELLED) and [tuple(map(float, box)) for box in found] == boxes
        (saved,) = slides.cover_pictures([PICTURE], seen)  # which does not say where its panels are
        assert saved.count("--left: 0; --right: 100;") == (seen[:1] in ("a", "1", "2"))


def test_squares_have_one_scale_and_words_are_marked():
    (slide,) = make_code_slides(
        on_stage(code("x", printed("[[ 2. -1.]\n [ 0.5 4.]]")), drawn="squares", code="1-1")
    )
    assert "```python\nx\n```" in slide.text
    squares = re.findall(r'<b class="(.*?)" style="--part: (.+?)%">(.+?)</b>', slide.then[0])
    assert squares == [("square", "50", "2."), ("minus square", "25", "-1."), ("square", "12", "0.5"),
                       ("square", "100", "4.")]  # fmt: skip
    (slide,) = make_code_slides(
        on_stage(code("x", printed("y <pass>, z fail")), drawn="squares", where="fail|pass")
    )
    assert slide.text.count('style="--part: 100%"') == 2 and "&lt;<b" in slide.text
    (slide,) = make_code_slides(on_stage(code("x", printed("a 0.0\nb 0.0")), drawn="bars"))
    assert slide.text.count("width: 0.00em") == 2
    assert make_code_slides(on_stage(code("if weights: picture(x)"), title="Not here")) == []
    (slide,) = make_code_slides(on_stage(code("x", printed("no number")), drawn="bars"))
    assert slide.text.endswith(enlarge("no number")) and slide.then == ()


def test_a_picture_fills_its_slide_and_the_answer_comes_over_it():
    first, second = make_code_slides(
        code("picture(x)", printed("1"), shown(PICTURE), shown(PICTURE), reveal="1.1a")
    )
    assert PICTURE in first.text and first.then == ()
    assert second.then[0].startswith(f"{slides.ANSWERED}**Answer.")
    slider = {"data": {slides.WIDGET: {}, "text/plain": "interactive(children"}}
    assert list(slides.format_output(slider)) == list(slides.format_output(printed("\n"))) == []


def test_the_player_has_a_slide_and_its_keys_are_in_the_notes():
    frame = play(at="ffn.z")._repr_html_()
    (slide,) = make_code_slides(code('play(at="ffn.z")', shown(frame)))
    assert slide.text.endswith(frame) and 'play(at="ffn.z")' in slide.notes and "H hides the" in slide.notes


WORDS, LINES = 40, 8  # on a slide: words at most, and lines of code
SEEN = r'\$\$|<img |<iframe |<pre class="drawn"'  # what there is to look at


def words(text):
    """Those that are to be read: no code, print or picture; a formula is one."""
    text = re.sub(r"```.*?```|<pre .*?</pre>|<[^>]*>", "", text, flags=re.S)
    return len(re.findall(r"\S*\w\S*", re.sub(r"\$\$.*?\$\$|\$[^$]*\$", "x", text, flags=re.S)))


@pytest.mark.parametrize("number", lesson_numbers())
def test_every_lesson_has_a_deck_that_can_be_shown(number):
    file = lesson_file(number)
    plan = parse_plan(int(number), (file.parent / "README.md").read_text(encoding="utf-8"))
    assert 4 < len(plan.minutes) < 20 and sum(plan.minutes.values()) > 40 and len(plan.questions) >= 1
    found, _ = slides.share_players(make_slides(json.loads(file.read_text(encoding="utf-8")), plan, {}))
    titles = [slide.text.partition("\n")[0] for slide in found]
    assert 25 <= len(found) <= 40 and len(set(titles)) == len(titles)
    assert all(title.startswith("#") and len(title.lstrip("# ")) > 3 for title in titles)
    wholes = ["\n\n".join((slide.text, *slide.then)) for slide in found]
    for whole in wholes:
        assert words(whole) <= WORDS and "import " not in whole.partition("<")[0]
        shown = re.findall(r"```python\n(.*?)\n```", whole, flags=re.S)
        assert all(len(lines.split("\n")) <= LINES for lines in shown)
        drawings = re.findall(r'<pre class="drawn".*?</pre>', whole, flags=re.S)
        assert all(re.search('class="(bar|box|.*square)"', drawing) for drawing in drawings)
    assert 3 * sum(bool(re.search(SEEN, whole)) for whole in wholes) >= 2 * len(found)


def test_each_prediction_of_the_lessons_on_the_page_has_two_wrong_guesses():
    page = lesson_file("1").parent / "guide" / "guesses.md"
    found = read_guesses(page)
    lessons = re.findall(r"^## Lesson (\d+)", page.read_text(encoding="utf-8"), flags=re.M)
    assert len(lessons) > 5 and found.keys() == {id for number in lessons for id in answers(int(number))}
    for said in found.values():
        whole = re.findall(r"guess: .+? — shows: .+? — ask: .+\?$", said, flags=re.M)
        assert len(whole) == said.count("guess:") == 2
    assert read_guesses(page.with_name("none.md")) == {}
