"""Slides: from a lesson's cells to what is on stage, and the page that holds them."""

import asyncio
import base64
import html
import json
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest

from npformer import cli
from npformer.teaching import slides
from npformer.teaching.lessons import reveal, source_of
from npformer.teaching.player import play
from npformer.teaching.slides import (
    ROOM,
    Plan,
    Slide,
    blocks,
    code_slides,
    evenly,
    height_of,
    lesson_file,
    markdown_slides,
    packed,
    pages,
    plan_of,
    plan_text,
    save_slides,
    slides_of,
    title_of,
    with_outputs,
    without_plumbing,
)


def png(width, height):
    """A picture's element, with the beginning of its file."""
    head = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + width.to_bytes(4) + height.to_bytes(4)
    return f'<img alt="a line" width="3" src="data:image/png;base64,{base64.b64encode(head).decode()}">'


PICTURE = png(1000, 200)
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


def small_lesson():
    asked = "## 1.1 Sums\n\nWe add.\n\n**Predict.** Equal?"
    answer = {"output_type": "execute_result", "data": {"text/markdown": "**Answer.** Yes."}}
    source = 'x = 1\nprint(x)\npicture(x)\nreveal("1.1a")'
    cells = [
        text("# 1. Where?\n\nHere."),
        code("import math", {"output_type": "stream", "text": ""}),
        text(asked, predict="1.1a"),
        code(source, printed("1\n"), shown(PICTURE), answer, reveal="1.1a"),
    ]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_question_pause_run_picture_answer():
    found = slides_of(small_lesson(), PLAN)
    kinds = [("code" if slide.code else slide.text.split("\n")[0]) for slide in found]
    assert kinds == ["# 1. Where?", "## 1.1 Sums", "## Predict", "code", PICTURE]
    assert "Equal?" in found[2].text and "Write your guess down." in found[2].text
    assert (found[3].text, found[3].then) == ("x = 1\nprint(x)", ("```text\n1\n```",))
    assert "picture(x)" in found[3].notes
    assert found[4].then == (f"**Answer.** {reveal('1.1a').text}",)


def test_an_answer_stands_beside_what_it_is_about_where_there_is_room():
    (one,) = code_slides(code("x = 1", printed("1\n"), reveal="1.1a"))
    assert one.then[0].startswith("```text") and one.then[1].startswith("**Answer.** Yes.")
    assert "Compare." in one.notes
    high = code("picture(x)", shown(png(1000, 500)), reveal="1.1a")
    first, second = code_slides(high)
    assert first.then == () and second.text.startswith("## Answer")
    assert first.notes.startswith("Run. The whole cell:")
    (only,) = code_slides(code("", reveal="1.1a"))
    assert only.text.startswith("## Answer")


def test_the_player_has_a_slide_and_its_keys_are_in_the_notes():
    frame = play(at="ffn.z")._repr_html_()
    (slide,) = code_slides(code('play(at="ffn.z")', shown(frame)))
    assert "\n" not in slide.text and slide.text.count("<") == 2
    looks = Path(slides.__file__).parent.joinpath("stage", "player.css").read_text(encoding="utf-8")
    assert html.unescape(slide.text).replace(f"<style>{looks}</style>", "", 1) == html.unescape(frame)
    assert 'play(at="ffn.z")' in slide.notes and "H hides the" in slide.notes
    first, second = code_slides(code('play(at="ffn.z")', shown(frame), reveal="1.1a"))
    assert first.then == () and second.text.startswith("## Answer")


def test_no_slide_holds_what_the_full_ones_before_it_left_over():
    assert [slide.count("line") for slide in evenly(["line"] * 10)] == [5, 5]
    assert evenly(["line"]) == ["line"] and evenly([]) == []
    assert [slide.count("word") for slide in evenly(["word " * 100] * 3)] == [100, 100, 100]


def test_the_speaker_reads_minutes_and_questions():
    found = slides_of(small_lesson(), PLAN)
    assert found[1].notes.startswith("Section 1.1: 7 minutes.")
    for slide in (found[0], found[-1]):
        assert "**Why?** Because." in slide.notes
    assert "A minute" in found[2].notes
    assert slides_of(small_lesson(), Plan({}, []))[1].notes.strip() == ""


def test_the_plan_of_a_lesson_is_read_from_the_lesson_plan():
    plan = plan_of(5, plan_text(lesson_file("05").parent))
    assert len(plan.minutes) == 7 and sum(plan.minutes.values()) > 60
    assert len(plan.questions) >= 3


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("import a\nfrom b import c\nx = 1", "x = 1"),
        ("figure = plots.matrix(x)\npicture(figure)", ""),
        ('names = ["a"]\nlabels = {"n": names}\npicture(plots.matrix(x, **labels))', ""),
        ("y = x + 1\nprint(y)\npicture(plots.matrix(y))", "y = x + 1\nprint(y)"),
        ("@interact(p=IntSlider())\ndef turn(p):\n    picture(p)", ""),
        ("np.set_printoptions(precision=3)\nx = 1\n\n\n\nimport a\ny = 2", "x = 1\n\ny = 2"),
        ("for word in words:\n    print(word)", "for word in words:\n    print(word)"),
    ],
)
def test_what_only_draws_is_folded_away(source, kept):
    assert without_plumbing(source) == kept


def test_a_short_lead_stands_above_its_question_and_a_long_one_before_it():
    (one,) = markdown_slides("Look at this.\n\n**Predict.** Which?")
    assert one.text.startswith("Look at this.\n\n## Predict")
    first, second = markdown_slides("Many words. " * 55 + "\n\n**Predict.** Which?")
    assert "Predict" not in first.text and second.text.startswith("## Predict")


def test_a_heading_alone_stands_above_its_question():
    (one,) = markdown_slides("### What for?\n\n**Predict.** Which?")
    assert one.text.startswith("### What for?\n\n## Predict")
    assert len(list(markdown_slides("## 1.1 Sums\n\nWe add.\n\n**Predict.** Which?"))) == 2


def test_folded_answers_go_into_the_notes():
    (slide,) = markdown_slides(
        "1. What?\n\n<details><summary>The answers</summary>\n\n1. That.\n\n</details>"
    )
    assert "That" not in slide.text and "1. That." in slide.notes


def test_a_full_slide_is_cut_and_a_heading_begins_the_next():
    long = "\n\n".join(["A paragraph of some words, which takes a line or two of a slide, no more."] * 12)
    found = [slide.text for slide in markdown_slides(f"{long}\n\n## 1.2 Next\n\n{long}")]
    assert all(height_of(each) <= ROOM for each in found)
    assert sum(each.startswith("## 1.2 Next") for each in found) == 1
    assert not any("\n## " in each for each in found)


def test_one_paragraph_that_fills_more_than_a_slide_is_cut_at_sentences():
    paragraph = "These are words of one sentence that goes on for a while. " * 20
    found = list(blocks(paragraph))
    assert len(found) > 1 and all(each.rstrip().endswith(".") for each in found)


def test_points_tables_and_formulas_are_blocks():
    assert list(blocks("- a\n- b\n  still b")) == ["- a", "- b\n  still b"]
    table = "| a | b |\n|---|---|\n" + "\n".join(f"| {i} | x |" for i in range(7))
    first, second = blocks(table)
    assert first.count("\n") == 6 and second.startswith("| a | b |\n|---|---|\n| 5 |")
    assert list(blocks("so\n$$a \\qquad b$$\nthen")) == ["so", "$$a$$", "$$b$$", "then"]
    wide = "| a | b |\n|---|---|\n| the letters | $" + "x + " * 30 + "y$ |"
    (point,) = blocks(wide)
    assert point.startswith("- *a* the letters; *b* $x +")
    assert next(blocks(wide.replace("| a |", "| |"))).startswith("- the letters; *b* $x +")
    assert height_of(table) > height_of("$$a$$") == 2.5


def test_a_heading_alone_does_not_fill_a_slide():
    assert list(packed(["## A heading", "word " * 300], ROOM)) == ["## A heading\n\n" + "word " * 300]
    assert list(packed([], ROOM)) == []


def test_long_code_and_long_prints_are_cut_by_the_lines_they_take():
    assert [page.count("x") for page in pages("x\n" * 40)] == [17, 17, 6]
    assert list(pages(" \n")) == []
    crowded = code("\n".join(f"x{i} = {i}" for i in range(12)), printed("1\n" * 9))
    first, second = code_slides(crowded)
    assert first.then == () and second.text.startswith("```text\n1\n")


def runnable(source, *outputs):
    cells = [text("# 1. Where?"), {**code(source, *outputs), "execution_count": None}]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}


def test_a_lesson_is_run_for_its_slides_in_a_place_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = "import os\nopen('mine', 'w').close()\nprint(6 * 7, 'NPFORMER_STAGE' in os.environ)"
    run = with_outputs(runnable(source, printed("41")))
    assert run["cells"][1]["outputs"][0]["text"] == "42 True\n"
    assert not list(tmp_path.iterdir()) and "NPFORMER_STAGE" not in os.environ


def test_a_lesson_that_cannot_be_run_here_is_shown_as_it_was_saved(tmp_path, capsys, monkeypatch):
    lesson, said = (
        runnable("import nowhere", printed("41")),
        "its code cell 1, which begins with `import nowhere`",
    )
    (tmp_path / "01_a.ipynb").write_text(json.dumps(lesson))
    (tmp_path / "README.md").write_text("")
    monkeypatch.setattr(slides, "lesson_files", lambda: [tmp_path / "01_a.ipynb"])
    monkeypatch.setattr(slides, "as_page", lambda slides, title, stage: str(slides))
    assert cli.main(["slides", "--out", str(tmp_path / "deck")]) == 0
    assert "41" in (tmp_path / "deck" / "01_a.html").read_text()
    out, err = capsys.readouterr()
    assert out == f"written: {tmp_path / 'deck' / '01_a.html'}\n"
    assert (
        err.startswith(f"npformer slides: 01_a.ipynb does not run here: {said}, fails. ") and "nowhere" in err
    )
    assert err.endswith("Its slides show what was saved, with smaller letters.\n") and err.count("\n") == 1


def test_without_a_kernel_it_is_said_how_to_get_one(tmp_path, monkeypatch):
    spec = tmp_path / "kernels" / "python3" / "kernel.json"
    spec.parent.mkdir(parents=True)
    spec.write_text(json.dumps({"argv": [str(tmp_path / "none")], "display_name": "x", "language": "python"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    with pytest.raises(slides.LessonFails, match=r"^a lesson .*: no kernel starts\. To get one: python -m"):
        with_outputs(runnable("1"), "a lesson")


def test_a_slider_is_no_slide_and_what_it_draws_is():
    slider = {
        "output_type": "display_data",
        "data": {slides.WIDGET: {}, "text/plain": "interactive(children"},
    }
    assert [slide.text for slide in code_slides(code("", slider, shown(PICTURE)))] == [PICTURE]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("\nx = 1\nprint(y)", "which begins with `x = 1`, fails. NameError: name 'y' is not defined. "),
        pytest.param(
            "import os\nos._exit(1)",
            "which begins with `import os`, fails. Kernel died. ",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_lesson_whose_cell_fails_is_named_and_the_others_are_made(
    source, said, tmp_path, capsys, monkeypatch
):
    def lesson(number, *sources):
        found = [{**code(s), "execution_count": None} for s in sources]
        cells = [text(f"# {number}. A\n\nB."), *found]
        file = tmp_path / f"0{number}_a.ipynb"
        file.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}))
        return file

    files = [lesson(1, "1", "", source, "2"), lesson(2, "print(1)")]
    (tmp_path / "README.md").write_text("")
    monkeypatch.setattr(slides, "lesson_files", lambda: files)
    monkeypatch.setattr(slides, "as_page", lambda slides, title, stage: title)
    assert cli.main(["slides", "--out", str(tmp_path / "deck")]) == 1
    out, err = capsys.readouterr()
    assert out == f"written: {tmp_path / 'deck' / '02_a.html'}\n"
    assert err.startswith("npformer slides: 01_a.ipynb does not run here: its code cell 2, ") and said in err
    assert err.endswith("run the lesson in JupyterLab; npformer lessons writes a copy.\n")
    assert err.count("\n") == 1 and not (tmp_path / "deck" / "01_a.html").exists()


def test_ctrl_c_while_a_lesson_runs_ends_the_command_in_one_line(tmp_path, capsys, monkeypatch):
    def cancelled(client, env):
        raise asyncio.CancelledError

    file = tmp_path / "01_a.ipynb"
    cells = [{**code("1"), "execution_count": None}]
    file.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}))
    monkeypatch.setattr(slides, "lesson_files", lambda: [file])
    monkeypatch.setattr("nbclient.NotebookClient.execute", cancelled)
    assert cli.main(["slides", "--out", str(tmp_path / "deck")]) == 130
    assert capsys.readouterr() == ("", "npformer slides: interrupted\n")


@pytest.fixture(scope="module")
def deck(tmp_path_factory):
    """Of what the lesson was saved with; the tests in a browser run it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slides, "run_on_stage", lambda notebook, name: notebook)
        return save_slides("1", tmp_path_factory.mktemp("stage") / "deck")


def test_the_page_holds_everything_and_asks_nobody(deck):
    page = deck.read_text(encoding="utf-8")
    own = re.sub(r"<script>.*?</script>|<style>.*?</style>", "", page, flags=re.S)
    assert deck.name == "01_positional_encoding.html"
    assert "<title>1. Positional encoding: where does a word stand?</title>" in page
    assert not re.search(r'(src|href)="(?!data:)[^"#]', own.replace('href="exercises.ipynb"', ""))
    assert own.count("<math") > 20 and "$" not in re.sub(r"<(pre|code)\b.*?</\1>", "", own, flags=re.S)
    assert "sin</mi><mspace" in own
    assert own.count('<aside class="notes">') > 20


def test_what_there_is_no_lesson_for_is_refused():
    for wrong in ("77", "five", ""):
        with pytest.raises(
            ValueError, match=rf"^slides: there is no lesson '{wrong}'; expected one of 01, 02"
        ):
            lesson_file(wrong)


def test_the_command_writes_one_lesson_or_all(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(slides, "save_slides", lambda lesson, folder: f"{folder}/{lesson}")
    assert cli.main(["slides", "05", "--out", "deck"]) == 0
    assert capsys.readouterr().out == "written: deck/05\n"
    assert cli.main(["slides", "--out", "deck"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == ["written: deck/01", "written: deck/02"]


def test_without_nbconvert_the_command_says_how_to_get_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "nbconvert.exporters", None)
    monkeypatch.setattr(slides, "with_outputs", lambda lesson, name: lesson)
    assert cli.main(["slides", "01", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "nbconvert" in said and "npformer[slides]" in said


def test_without_reveal_js_it_is_said_how_to_get_it_before_a_lesson_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sys, "path", [place for place in sys.path if "site-packages" not in place])
    monkeypatch.delattr(slides, "with_outputs")
    assert cli.main(["slides", "01", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert 'sphinx-revealjs; to get it: pip install "npformer[slides]"' in said


def test_the_page_names_those_who_wrote_what_it_holds(deck):
    page, stage = deck.read_text(encoding="utf-8"), slides.sheets()
    assert page.count(stage["LICENSE"].strip()) == 1 and "free of charge" in stage["LICENSE"]
    assert "markedjs/marked" in stage["notes.js"] and "2018+, MarkedJS (" in page.partition("<html")[0]


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


def test_titles_and_slides_without_notes():
    assert title_of(small_lesson()) == "1. Where?"
    assert Slide("x").notes == "" and json.dumps(Slide("x")) == '["x", false, [], ""]'
