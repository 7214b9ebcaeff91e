"""Slides: turn a lesson's notebook into a slide show that a browser shows without a network.

    question → pause → run → picture → answer

nbconvert's exporter for reveal.js makes the page, which is a single file. The files of reveal.js and their
licences come from sphinx-revealjs, a package of the extra `slides`. Formulas become MathML, which browsers
display without further code. Code that draws a picture is moved to the speaker notes (key S). The notes also
contain the minutes, the lesson's text and the likely wrong guesses. Questions and answers appear at the
bottom of a slide, over its content.

The metadata of a cell define how the cell becomes a slide. Jupyter defines `slideshow.slide_type`. The
following entries are under `npformer`:

title     the title of the slide
stage     a shorter text for the slide; in a code cell, formulas below the picture or above the table
ask       a shorter question
answer    a shorter answer
code      the lines of the cell's code that are shown, such as "2-5"
drawn     how the printed output is drawn: "bars", "squares", "signed" or "columns" (see slide_pictures.py)
where     which numbers are drawn, as a regular expression. Words in its group `other` get a square of a
          different colour, and text in its group `pale` is grey
row       the columns of a row, as the groups of a regular expression; lines without a match are left out
head      the names of the columns, such as "logits|loss"; without `row`, the names of the drawn numbers
          (in a table with `row` and drawn numbers, a name may have several lines)
given     the rows whose numbers the question's slide shows, too, as a regular expression
full      the number of a full bar or square, such as "24" in a table of answers to 24 questions;
          a larger number also gets a full bar or square
saved     whether the slide shows the saved output of the cell, because the text describes a measured time
instead   a table that replaces the printed output, such as one with the results of another library
needs     the command that installs the weights of the cell; without them, its slides are left out
station   a step of the worked example; the question's slide shows the player at this step, or at a cell of it
decimals  the number of decimals to which this player rounds each step; without it, nothing is rounded
again     the title of an earlier slide, whose picture or table the question's slide repeats
cover     the part of the answer's picture that is visible before the answer is shown (see `make_covers`)
ahead     like `cover`, but the question's slide shows the result of the next code slide in advance;
          with "table", the result is a table with gaps. The output of a code cell on the question's
          own slide (a fragment) replaces this table

The lesson is run again for the slides, because the letters in a saved picture are too small for a large room.
In this run, a figure is smaller than in the lesson, so its letters are larger on the slide (see plots.style).
"""

import html
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from npformer.handouts.lesson_copies import get_entry, get_source, list_lesson_files
from npformer.handouts.slide_layout import (
    choose_bar_size,
    choose_words_size,
    name_layout,
    split_blocks,
    wrap_block,
)
from npformer.handouts.slide_pictures import Drawing, draw_numbers, narrow_columns
from npformer.lessons.plan import Guess, Plan, read_guesses, read_plan
from npformer.lessons.plots.style import STAGE
from npformer.lessons.predictions import QUESTION, reveal
from npformer.lessons.worked_example import worked_example
from npformer.player.player_page import OLD_BROWSER, play

STAGE_FOLDER = Path(__file__).parent / "stage"
CELL_SECONDS = 600  # the longest time that a cell may run
NO_KERNEL = "no kernel starts. To get one: python -m ipykernel install --sys-prefix."
PLAYING = """Click into the player. Its keys: → a cell on, ↑ ↓ a step, Page Up and Page Down a station, Home
and End, Enter the whole step, Backspace back, H hides the results, S the arithmetic, V the values beside
their gradients, L the live pictures. Click on the slide's title, and → is the next slide again."""
COLLECTING = """A minute to write a guess down. Collect a few, or count hands: each press of 1 to 6 counts
one hand for the answer A to F, and Shift takes one away. T is the second vote, and 0 hides the counts."""
WIDGET = "application/vnd.jupyter.widget-view+json"  # the type of a slider, which needs a kernel
ASKED = '<i class="over" data-question="{}"></i>'  # marks a question, which is at the bottom of a slide
ANSWERED = '<i class="over answer"></i>'  # marks an answer, which is shown at the bottom of a slide
BAR = '<i class="over'  # the begin of the marks of a question and an answer
FRAME = re.compile(r"""<iframe title="([^"]*)"[^>]*? srcdoc='([^']*)'></iframe>""")
IMAGE = re.compile(r"<img [^>]*>")
SIGN = re.compile(r"(&#x000(?:28|2C|3D);</mo>(?:<mspace [^>]*/>)*)<mo>(?=&#x02212;</mo>)")  # after ( , or =
SHOWN = re.compile(r"<img [^>]*>|```text\n.*?```|<pre .*?</pre>", flags=re.S)
PRINTED = re.compile(r"```text\n(.*?)\n```", flags=re.S)
SECTION = re.compile(r"^## (\d+\.\d+) ", flags=re.M)
PANELS = re.compile(r'data-panels="([^"]+)"')
EMPTY = re.compile(r' data-empty="([^"]*)"')
MATH = re.compile(
    r"(?P<kept><(?P<tag>script|style|pre|code)\b.*?</(?P=tag)>|</?[a-z][^>]*>)"
    r"|\$\$(?P<shown>.+?)\$\$|(?P<before>\(*)\$(?P<inline>[^$]+)\$(?P<after>[.,:;?!)]*)"
    r"|(?P<space>(?<=\d) (?=%))",
    flags=re.S,
)
REPAIRS = {  # in the MathML of a formula
    "&#x0005E;</mo></mover>": "\u02c6</mo></mover>",  # a flat hat
    "<mo>&#x00028;</mo><mtable>": '<mo stretchy="true">&#x00028;</mo><mtable>',  # as high as the matrix
    "</mtable><mo>&#x00029;</mo>": '</mtable><mo stretchy="true">&#x00029;</mo>',
}


class Slide(NamedTuple):
    """One slide."""

    text: str  # the first content, as Markdown
    then: tuple[str, ...] = ()  # the parts that further clicks add
    notes: str = ""  # the speaker notes


def _ignore_message(message: str) -> None:
    """Ignore a message."""


def save_slides(
    lesson: str, folder: str | os.PathLike[str], tell: Callable[[str], object] = _ignore_message
) -> Path:
    """Write the slides of a lesson as one HTML file.

    If a cell of the lesson fails, the slides show the saved outputs instead.

    Parameters
    ----------
    lesson : str
        The number of the lesson, such as "05".
    folder : str or path
        The folder, which is created if it does not exist.
    tell : function of a str
        The function that receives the reason if the saved outputs are shown or slides are left out.

    Returns
    -------
    file : Path

    Raises
    ------
    ValueError
        If the lesson does not exist.
    LessonFails
        If a cell fails and the notebook has no saved outputs, like a student's copy.
    ModuleNotFoundError
        If the packages of the extra `slides` are not installed.
    """
    file = find_lesson(lesson)
    page_parts = read_page_parts()  # comes first, because it raises an error if a package is missing
    notebook = json.loads(file.read_text(encoding="utf-8"))
    try:
        notebook = keep_saved_outputs(run_for_slides(notebook, file.name), notebook)
    except LessonFails as error:
        has_outputs = any(cell.get("outputs") for cell in notebook["cells"])
        if not has_outputs:
            raise
        tell(f"{error} Its slides show what was saved, with smaller letters.")
    notebook, missing = leave_out_cells(notebook)
    for command, titles in missing.items():
        tell(
            f"{file.name}: weights are not installed. To get them: {command}. Left out: {'; '.join(titles)}."
        )
    slides = make_slides(notebook, read_plan(int(lesson)), read_guesses())
    target = Path(folder, f"{file.stem}.html")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(format_page(slides, find_title(notebook), page_parts), encoding="utf-8")
    return target


def list_lessons() -> dict[str, Path]:
    """Return the notebook of each lesson by lesson number: {"01": Path(...), …}.

    >>> list_lessons()["05"].name
    '05_encoder_block.ipynb'
    """
    return {file.name[:2]: file for file in list_lesson_files() if file.name[:2].isdecimal()}


def find_lesson(lesson: str) -> Path:
    """Return the notebook of a lesson. The number may lack the leading zero.

    Raises ValueError if the lesson does not exist.
    """
    lessons = list_lessons()
    number = lesson.zfill(2)
    if number not in lessons:
        raise ValueError(f"slides: there is no lesson {lesson!r}; expected one of {', '.join(lessons)}")
    return lessons[number]


# --- running a lesson ---------------------------------------------------------------------------


class LessonFails(RuntimeError):
    """A cell of a lesson raised an error or took too long, or no kernel started."""


def run_for_slides(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """Run a notebook in an empty folder, draw pictures for slides, and return the notebook with outputs.

    Raises LessonFails with the name of the lesson's file and the failing cell.
    """
    from asyncio import CancelledError

    import nbformat
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    run = nbformat.reads(json.dumps(notebook), as_version=4)
    started: list[Any] = []  # the code cells that were started so far
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(run, timeout=CELL_SECONDS, coalesce_streams=True, resources=resources)
        client.on_cell_execute = lambda cell, cell_index: started.append(cell)
        client.widget_registry = {}  # so that a slider's output is stored in its cell
        client.extra_arguments = ["--log-level=ERROR"]  # hides the kernel's notices
        try:
            client.execute(env={**os.environ, STAGE: "1"})
        except CellExecutionError as error:
            raise _explain_failure(name, started, f"{error.ename}: {error.evalue}") from None
        except (RuntimeError, OSError, NoSuchKernel) as error:  # The kernel died, is slow or is missing.
            first_line = str(error).partition("\n")[0]
            raise _explain_failure(name, started, first_line.rstrip(".")) from None
        except CancelledError:  # nbclient raises this error after Ctrl+C.
            raise KeyboardInterrupt from None
    return dict(run)


def _explain_failure(name: str, started: Sequence[dict[str, Any]], reason: str) -> LessonFails:
    """Make an error that names the last started cell and explains what to do."""
    if not started:
        return LessonFails(f"{name} does not run here: {NO_KERNEL}")
    first_line = get_source(started[-1]).strip().partition("\n")[0]
    where = f"{name} does not run here: its code cell {len(started)}, which begins with `{first_line}`, fails"
    advice = "To see all of it, run the lesson in JupyterLab; npformer lessons writes a copy"
    return LessonFails(f"{where}. {' '.join(reason.split())}. {advice}.")


def keep_saved_outputs(run: dict[str, Any], saved: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook that was run, but with the saved outputs of the cells with the entry "saved".

    On a busy machine, a new measurement could contradict the text of a slide. A student's copy has no saved
    outputs, so its slides show the new ones.
    """
    cells = []
    for cell, saved_cell in zip(run["cells"], saved["cells"], strict=True):
        is_kept = get_entry(cell, "saved") and bool(saved_cell.get("outputs"))
        cells.append(saved_cell if is_kept else cell)
    return {**run, "cells": cells}


# --- from cells to slides -----------------------------------------------------------------------


def leave_out_cells(notebook: dict[str, Any]) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return the notebook without the cells whose weights are not installed, and the titles of these cells.

    The entry "needs" of a code cell is the command that installs the weights. Without the weights, the cell
    has no output except an answer. The question of the cell is left out too.
    """
    left_out = []
    for cell in notebook["cells"]:
        if get_entry(cell, "needs") and not list_outputs(cell):
            left_out.append(cell)
    command_of = {get_entry(cell, "reveal"): get_entry(cell, "needs") for cell in left_out}
    kept = []
    missing: dict[str, list[str]] = {}
    for cell in notebook["cells"]:
        prediction = get_entry(cell, "predict")
        is_question = prediction != "" and prediction in command_of
        if is_question or cell in left_out:
            command = command_of[prediction] if is_question else get_entry(cell, "needs")
            missing.setdefault(command, []).append(get_entry(cell, "title"))
        else:
            kept.append(cell)
    return {**notebook, "cells": kept}, missing


def make_slides(notebook: dict[str, Any], plan: Plan, guesses: dict[str, list[Guess]]) -> list[Slide]:
    """Make slides from a notebook. The metadata of a cell say "slide", "fragment" or "skip".

    The last slide contains the summary of the lesson. The notes of the first and of the last slide contain
    the students' questions. The notes of the first slide begin with what to say in the first two minutes.
    """
    slides = make_lesson_slides(notebook["cells"], plan, guesses)
    if not slides:  # No cell has metadata for slides.
        slides = [Slide(f"# {find_title(notebook)}")]
    summary = "\n".join(f"- {line}" for line in get_entry(notebook, "known"))
    if summary:
        notes = "Ask for the three before you show them."
        slides.append(Slide(f"## What we know now\n\n{summary}", notes=notes))
    opening = "\n\n".join(get_entry(notebook, "opening"))
    if opening:
        slides[0] = slides[0]._replace(notes=f"The first two minutes:\n\n{opening}\n\n{slides[0].notes}")
    expected = "\n\n".join(f"**{question}** {answer}" for question, answer in plan.questions)
    for i in (0, -1):
        slides[i] = slides[i]._replace(notes=f"{slides[i].notes}\n\nQuestions to expect:\n\n{expected}")
    return slides


def make_lesson_slides(
    cells: Sequence[dict[str, Any]], plan: Plan, guesses: dict[str, list[Guess]]
) -> list[Slide]:
    """Make the slides of a notebook's cells. Text that is on no slide is in the notes of the next slide."""
    slides: list[Slide] = []
    introduction = ""
    for i, cell in enumerate(cells):
        if _slide_type(cell) == "skip" and cell["cell_type"] == "markdown":
            introduction += f"{format_text(get_source(cell), plan)}\n\n"
            continue
        if _slide_type(cell) == "fragment":
            slides[-1] = slides[-1]._replace(notes=f"{slides[-1].notes}\n\n{introduction}")
            slides[-1] = add_fragment(slides[-1], cell)
            introduction = ""
            continue
        made: list[Slide] = []
        if _is_slide(cell, "markdown"):
            subject = make_subject(cell, slides, _find_next_code(cells[i:]))
            made = [make_question_slide(cell, plan, guesses, subject)]
        elif _is_slide(cell, "code"):
            made = make_code_slides(cell)
        if made:
            slides += [made[0]._replace(notes=f"{introduction}{made[0].notes}"), *made[1:]]
            introduction = ""
    return slides


def format_text(text: str, plan: Plan) -> str:
    """Return a text of the lesson for the notes. If a section begins with it, its minutes come first."""
    section = SECTION.search(text)
    minutes = format_minutes(section[1], plan) if section else ""
    plain_text = re.sub("</?(details|summary)>", "", text)
    return "\n\n".join(part for part in (minutes, plain_text) if part)


def _slide_type(cell: dict[str, Any]) -> str | None:
    slide_type: str | None = cell["metadata"].get("slideshow", {}).get("slide_type")
    return slide_type


def _is_slide(cell: dict[str, Any], cell_type: str) -> bool:
    return _slide_type(cell) == "slide" and cell["cell_type"] == cell_type


def _find_next_code(cells: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the first code cell that the slides show, or None."""
    for cell in cells:
        is_shown = _slide_type(cell) in ("slide", "fragment")
        if is_shown and cell["cell_type"] == "code":
            return cell
    return None


# --- the slide of a question ---


def make_subject(cell: dict[str, Any], before: Sequence[Slide], coming: dict[str, Any] | None) -> str:
    """Return the subject of a question's slide as HTML, or "" if the metadata of the cell name no subject.

    The subject is the player at a step, the covered result of the next cell, or the picture of an earlier
    slide.
    """
    station = get_entry(cell, "station")
    if station:
        decimals = get_entry(cell, "decimals")
        trace = worked_example(decimals=int(decimals)) if decimals else None
        return play(trace, at=station)._repr_html_()
    ahead = get_entry(cell, "ahead")
    if ahead and coming:
        shown = list_outputs(coming, hidden=True)
        elements = [part for part in (*cover_pictures(shown, ahead), *shown) if part.startswith("<")]
        return elements[0] if elements else ""
    heading = f"## {get_entry(cell, 'again')}\n"
    pictures = []
    for slide in before:
        if slide.text.startswith(heading):
            pictures += SHOWN.findall("\n\n".join((slide.text, *slide.then)))
    return pictures[-1] if pictures else ""


def cover_pictures(outputs: Sequence[str], visible: str = "") -> list[str]:
    """Return the pictures and players among the outputs. Everything except the visible part is covered.

    >>> cover_pictures(["<img>"], "0%")
    ['<img><i class="cover" style="--left: 0; --right: 100; --top: 0; --bottom: 100"></i>']
    """
    pictures = [part for part in outputs if part.startswith("<i")]  # matches <img> and <iframe>
    covered = []
    for picture in pictures:
        covers = make_covers(picture, str(visible))
        covered.append(EMPTY.sub("", picture, count=1) + "".join(covers))
    return covered


def make_covers(picture: str, visible: str) -> Iterator[str]:
    """Yield the HTML elements that cover a picture, except for its visible part.

    The values of `visible` mean:

    - "": the whole picture is visible;
    - "30%": the left 30 % of the picture are visible;
    - "2": the first two panels are visible;
    - "axes": the axes are visible, without curves, numbers and legends;
    - "axes 30%": like "axes", but the left 30 % of the inside are visible too;
    - "axes 2": like "axes", but the first two panels are visible too.

    With "axes", the cover is a picture of the empty axes (see `hide_contents`). A saved picture contains
    neither the empty axes nor the places of its panels. In this case "2" and "axes" cover the whole picture.
    """
    kind, _, share = visible.partition(" ")
    panels = _read_panels(picture)
    empty = EMPTY.search(picture)
    if kind == "axes" and panels and empty:
        yield _draw_empty_axes(empty[1], _find_visible_boxes(panels, share))
        return
    boxes: list[tuple[float, ...]] = []  # the edges of the covers in percent: left, right, top, bottom
    if kind.endswith("%"):
        boxes = [(float(kind.strip("%")), 100, 0, 100)]
    elif kind == "axes" and panels:
        visible_share = float(share.strip("% ") or 0) / 100
        for _, left, right, top, bottom in panels:
            boxes.append((left + visible_share * (right - left), right, top, bottom))
    elif kind.isdecimal() and panels:
        n_visible = int(kind)
        if n_visible < len(panels):
            boxes = [(panels[n_visible][0], 100, 0, 100)]
    elif kind == "axes" or kind.isdecimal():
        boxes = [(0, 100, 0, 100)]
    for left, right, top, bottom in boxes:
        where = f"--left: {left:g}; --right: {right:g}; --top: {top:g}; --bottom: {bottom:g}"
        yield f'<i class="cover" style="{where}"></i>'


def _find_visible_boxes(panels: Sequence[Sequence[float]], share: str) -> Iterator[tuple[float, ...]]:
    """Yield the edges of the visible boxes in percent: left, right, top, bottom.

    The share is "30%" for the left 30 % of each panel, "2" for the first two panels, or "" for no panel.

    >>> list(_find_visible_boxes([[1, 5, 45, 10, 90]], "50%"))
    [(5, 25.0, 10, 90)]
    """
    n_visible = int(share) if share.isdecimal() else 0
    for _, left, right, top, bottom in panels[:n_visible]:
        yield (left, right, top, bottom)
    if share.endswith("%"):
        for _, left, right, top, bottom in panels:
            yield (left, left + float(share.strip("%")) / 100 * (right - left), top, bottom)


def _draw_empty_axes(png: str, visible_boxes: Iterator[tuple[float, ...]]) -> str:
    """Return a cover with a picture of the empty axes. The cover has a hole at each visible box."""
    whole = (0.0, 100.0, 0.0, 100.0)
    corners = []
    for left, right, top, bottom in (whole, *visible_boxes):
        box = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
        corners += [*box, (0.0, 0.0)]  # The lines to the first corner enclose no area.
    points = ", ".join(f"{x:g}% {y:g}%" for x, y in corners)
    where = "--left: 0; --right: 100; --top: 0; --bottom: 100"
    drawn = f"background-image: url(data:image/png;base64,{png}); clip-path: polygon(evenodd, {points})"
    return f'<i class="cover" style="{where}; {drawn}"></i>'


def _read_panels(picture: str) -> list[list[float]]:
    """Return five numbers for each panel: the left edge of the panel, and the four edges of its axes."""
    match = PANELS.search(picture)
    if match is None:
        return []
    return [[float(number) for number in panel.split(",")] for panel in match[1].split()]


def make_question_slide(
    cell: dict[str, Any], plan: Plan, guesses: dict[str, list[Guess]], subject: str = ""
) -> Slide:
    """Make a slide with a title, a subject, and a question that appears after a click.

    The notes contain the lesson's text before the question.
    """
    text, _, question = get_source(cell).partition(QUESTION)
    level = "# " if text.startswith("# ") else "## "
    heading = level + get_entry(cell, "title")
    content = draw_printed(get_entry(cell, "stage"), cell)
    if not content and not subject:
        content = list_formulas(text)
    shown = "\n\n".join(part for part in (heading, content, subject) if part)
    prediction = get_entry(cell, "predict")
    then: tuple[str, ...] = ()
    hints = ""
    if prediction:
        asked = get_entry(cell, "ask") or " ".join(question.split())
        then = (f"{ASKED.format(prediction)}{QUESTION} {asked}",)
        hints = "\n\n".join([COLLECTING, *map(format_guess, guesses.get(prediction, []))])
    if subject.startswith("<iframe"):
        hints += f"\n\n{PLAYING}"
    return Slide(shown, then, f"{format_text(text, plan)}\n\n{hints}")


def format_guess(guess: Guess) -> str:
    """Return a wrong guess for the notes.

    >>> format_guess(Guess("It is 0.", "The student forgets b.", "What is added?"))
    'guess: It is 0. — shows: The student forgets b. — ask: What is added?'
    """
    return f"guess: {guess.guess} — shows: {guess.shows} — ask: {guess.ask}"


def format_minutes(section: str, plan: Plan) -> str:
    """Return a text with the time for a section, and the time that is left when the section begins.

    >>> format_minutes("1.2", Plan({"1.1": 7, "1.2": 3, "1.3": 4}))
    'Section 1.2: 3 minutes; 7 are left, with this one.'
    """
    if section not in plan.minutes:
        return ""
    sections = list(plan.minutes)
    remaining = sections[sections.index(section) :]
    left = sum(plan.minutes[later] for later in remaining)
    return f"Section {section}: {plan.minutes[section]} minutes; {left} are left, with this one."


# --- the slides of code, output and answer ---


def make_code_slides(cell: dict[str, Any]) -> list[Slide]:
    """Make one slide per picture, or one slide with the code and its output. The last slide has the answer.

    A cell without code, output and answer gets no slide; this happens if the weights for the cell are not
    installed.
    """
    outputs = list_outputs(cell)
    code = select_code(cell)
    has_answer = bool(get_entry(cell, "reveal"))
    if not (outputs or code or has_answer):
        return []
    heading = f"## {get_entry(cell, 'title')}"
    pictures = cover_pictures(outputs)
    if pictures:
        slides = [Slide(f"{heading}\n\n{picture}") for picture in pictures]
        formulas = get_entry(cell, "stage")
        if formulas:
            slides[-1] = Slide(f"{slides[-1].text}\n\n{formulas}")
    elif code:
        slides = [Slide(f"{heading}\n\n{code}", tuple(outputs))]  # The output appears after a click.
    else:
        parts = (heading, get_entry(cell, "stage"), *outputs)
        slides = [Slide("\n\n".join(part for part in parts if part))]
    has_player = bool(pictures) and pictures[-1].startswith("<iframe")
    instruction = PLAYING if has_player else "Run."
    last = add_answer(slides[-1], cell, f"{instruction} The whole cell:")
    return [*slides[:-1], last]


def select_code(cell: dict[str, Any]) -> str:
    """Return the lines of code that the cell's entry "code" selects, or "" if there is no such entry.

    >>> select_code({"source": "import a\\nb = 1\\nprint(b)", "metadata": {"npformer": {"code": "2-2"}}})
    '```python\\nb = 1\\n```'
    """
    first, _, last = get_entry(cell, "code").partition("-")
    start = int(first or 1) - 1
    stop = int(last or 0)
    lines = get_source(cell).split("\n")[start:stop]
    if not lines:
        return ""
    return "\n".join(["```python", *lines, "```"])


def add_fragment(slide: Slide, cell: dict[str, Any]) -> Slide:
    """Add the output of a cell and its answer to a slide.

    A picture is on the slide from the beginning. Until the answer appears, only the part in the entry "cover"
    is visible. Without this entry, the whole picture is hidden. Printed output and the answer appear after
    one click each.
    """
    outputs = list_outputs(cell)
    pictures = cover_pictures(outputs, get_entry(cell, "cover") or "0%")
    if pictures:
        slide = slide._replace(text=f"{slide.text}\n\n{pictures[-1]}")
    else:
        slide = slide._replace(then=(*slide.then, *outputs))
    return add_answer(slide, cell)


def list_outputs(cell: dict[str, Any], hidden: bool = False) -> list[str]:
    """Return the outputs of a cell. If the metadata say so, draw printed output, with gaps if `hidden`."""
    table = get_entry(cell, "instead")
    if table:
        return [draw_printed(f"```text\n{table}\n```", cell, hidden)]
    outputs = []
    for output in cell["outputs"]:
        for part in format_output(output):
            drawn = draw_printed(part, cell, hidden)
            if drawn:
                outputs.append(drawn)
    return outputs


def draw_printed(part: str, cell: dict[str, Any], hidden: bool = False) -> str:
    """Draw a part if it is printed output and the cell has the entry "drawn", else return the part."""
    printed = PRINTED.fullmatch(part)
    kind = get_entry(cell, "drawn")
    if printed is None or not kind:
        return part
    names = ("where", "row", "head", "given")
    where, row, head, given = (get_entry(cell, name) for name in names)
    full = float(get_entry(cell, "full") or 0)
    drawing = Drawing(kind, where, row, head, given, full)
    return draw_numbers(printed[1], drawing, hidden)


def add_answer(slide: Slide, cell: dict[str, Any], notes: str = "") -> Slide:
    """Add the answer's first paragraph, which appears after a click, and add the cell's code to the notes."""
    notes = f"{slide.notes}{notes}\n\n```python\n{get_source(cell)}\n```"
    prediction = get_entry(cell, "reveal")
    if not prediction:
        return slide._replace(notes=notes)
    full_answer = reveal(prediction).text
    answer = get_entry(cell, "answer") or full_answer.strip().partition("\n\n")[0]
    then = (*slide.then, f"{ANSWERED}**Answer.** {answer}")
    return slide._replace(then=then, notes=f"{notes}\n\nCompare. {full_answer}")


def list_formulas(text: str) -> str:
    """Return the displayed formulas of a text as paragraphs. Formulas on both sides of \\qquad are split.

    >>> list_formulas("so\\n$$a\\n\\\\qquad b$$\\nfollows")
    '$$a$$\\n\\n$$b$$'
    """
    formulas: list[str] = []
    for displayed in re.findall(r"\$\$(.+?)\$\$", text, flags=re.S):
        formulas += re.split(r"(?:\\qquad|\\quad)+", displayed)
    return "\n\n".join(f"$${formula.strip()}$$" for formula in formulas if formula.strip())


def find_title(notebook: dict[str, Any]) -> str:
    """Return the heading of the lesson, without its "# ".

    >>> find_title({"cells": [{"source": "# 1. Where?\\n\\nHere."}]})
    '1. Where?'
    """
    return get_source(notebook["cells"][0]).partition("\n")[0].removeprefix("# ")


def format_output(output: dict[str, Any]) -> Iterator[str]:
    """Yield a picture or a player as HTML, or printed output as Markdown. Skip answers and sliders."""
    data = output.get("data", {})
    if "text/markdown" in data or WIDGET in data:
        return
    shown = "".join(data.get("text/html", ""))
    if shown.startswith("<iframe "):
        yield shown
        return
    image = IMAGE.search(shown)  # without its caption, because a slide has a title
    if image:
        yield image[0]
        return
    printed = "".join(output.get("text", data.get("text/plain", ""))).strip("\n")
    if printed:
        yield "\n".join(["```text", *narrow_columns(printed.split("\n")), "```"])


# --- the page -----------------------------------------------------------------------------------


def format_page(slides: Sequence[Slide], title: str, page_parts: dict[str, str]) -> str:
    """Return the HTML page. nbconvert's exporter for reveal.js makes the page with the template in `stage`.

    Raises ModuleNotFoundError if nbconvert is not installed.
    """
    from nbconvert.exporters import SlidesExporter
    from nbformat.v4 import new_notebook

    slides, players = share_players(slides)
    page_parts = {**page_parts, "pages": json.dumps(players).replace("<", "\\u003c")}
    notebook = new_notebook(cells=[cell for slide in slides for cell in make_cells(slide)])
    notebook.metadata.title = title
    exporter = SlidesExporter(
        template_name="stage", extra_template_basedirs=[str(STAGE_FOLDER.parent)], exclude_anchor_links=True
    )
    page, _ = exporter.from_notebook_node(notebook, resources={"stage": page_parts})
    return MATH.sub(convert_formula, str(page))


def share_players(slides: Sequence[Slide]) -> tuple[list[Slide], list[str]]:
    """Return the slides with empty frames, and the pages with players that a script puts into the frames.

    Frames whose players differ only in the first step share one page.
    """
    players: list[str] = []
    styled_body = f"<body><style>{(STAGE_FOLDER / 'player.css').read_text(encoding='utf-8')}</style>"

    def empty_frame(frame: re.Match[str]) -> str:
        page = html.unescape(frame[2]).replace("<body>", styled_body, 1)
        before, step, after = re.split(r'(?<="at":")([^"]*)', page, maxsplit=1)
        player = before + after
        if player not in players:
            players.append(player)
        return f'<iframe title="{frame[1]}" data-page="{players.index(player)}" data-at="{step}"></iframe>'

    return [slide._replace(text=FRAME.sub(empty_frame, slide.text)) for slide in slides], players


def make_cells(slide: Slide) -> Iterator[Any]:
    """Yield the Markdown cells for one slide: the title, the blocks, the question, the answer and the notes.

    The metadata `before` and `after` of a cell are the HTML around its content.
    """
    title, _, content = slide.text.partition("\n")
    blocks = split_blocks(content)
    bars = []  # pairs of the part and its number among the fragments
    later = []
    for i, part in enumerate(slide.then):
        if part.startswith(BAR):
            bars.append((part, i))
        else:
            later += [(block, i) for block in split_blocks(part)]
    all_blocks = [*blocks, *(block for block, _ in later)]
    layout = name_layout(blocks, [block for block, _ in later], bool(bars))
    words_size = choose_words_size(content, all_blocks, bool(bars))
    before = f'<section><section class="{layout}"><div class="heading">'
    yield _make_cell(title, before, '</div><div class="area">')
    for block in blocks:
        yield _make_cell(block.text, *wrap_block(block, words_size))
    for block, i in later:
        yield _make_cell(block.text, *wrap_block(block, words_size, i))
    yield _make_cell("", "</div>", "")
    for part, i in bars:
        kind = "answer" if part.startswith(ANSWERED) else "question"
        size = choose_bar_size(part, all_blocks)
        before = f'<div class="footer {kind} fragment" data-fragment-index="{i}" style="--size: {size}px">'
        yield _make_cell(part, before, "</div>")
    yield _make_cell(slide.notes.strip(), '<aside class="notes">', "</aside></section></section>")


def _make_cell(text: str, before: str, after: str) -> Any:
    from nbformat.v4 import new_markdown_cell

    return new_markdown_cell(text, metadata={"before": before, "after": after})


def read_page_parts() -> dict[str, str]:
    """Return the other parts of the page: reveal.js with its licence, and the style sheets.

    The files come from sphinx-revealjs, which is not imported. Raises ModuleNotFoundError if a package of the
    extra `slides` is missing.
    """
    from importlib.metadata import distribution

    from pygments.formatters import HtmlFormatter

    reveal_js = Path(str(distribution("sphinx-revealjs").locate_file("sphinx_revealjs/_static/revealjs")))
    files = [
        reveal_js / "LICENSE",
        reveal_js / "dist" / "reveal.js",
        reveal_js / "dist" / "reveal.css",
        reveal_js / "plugin" / "notes" / "notes.js",
        STAGE_FOLDER / "stage.css",
        STAGE_FOLDER / "hands.css",
        STAGE_FOLDER / "hands.js",
        STAGE_FOLDER / "print.css",
        STAGE_FOLDER / "print.js",
    ]
    parts = {file.name: file.read_text(encoding="utf-8") for file in files}
    parts["old_browser"] = OLD_BROWSER
    parts["code.css"] = HtmlFormatter(style="default").get_style_defs(".highlight")
    return parts


def convert_formula(match: re.Match[str]) -> str:
    """Convert a formula to MathML. Code and tags stay unchanged: there, $ does not begin a formula.

    A line cannot end between a formula and a bracket or punctuation, or before a percent sign.
    """
    from latex2mathml.converter import convert

    if match["kept"]:
        return match["kept"]
    if match["space"]:
        return "\u00a0"
    is_displayed = match["shown"] is not None
    tex = html.unescape(match["shown"] if is_displayed else match["inline"])
    tex = re.sub(r"\\(sin|cos|exp|ln|log) +(?=[\w\\])", r"\\\1\\,", tex)  # adds the space in "sin 1"
    tex = re.sub(r"(?<=\w)(?<!\\)(?=\\(?:sin|cos)\b)", r"\\,", tex)  # adds the space in "i sin b"
    formula = str(convert(tex, display="block" if is_displayed else "inline"))
    for old, new in REPAIRS.items():
        formula = formula.replace(old, new)
    formula = SIGN.sub(r'\1<mo form="prefix">', formula)  # without the spaces of a subtraction
    if match["before"] or match["after"]:
        return f'<span class="unbroken">{match["before"]}{formula}{match["after"]}</span>'
    return formula
