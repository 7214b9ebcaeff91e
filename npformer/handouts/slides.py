"""Stage mode: a lesson's own notebook as slides, one idea a slide, for a browser and without a network.

    question → pause → run → picture → answer

nbconvert makes the page, by its reveal.js exporter. reveal.js itself, which nbconvert would load from the
network, comes from the files of sphinx-revealjs, a package of the extra `slides`, and formulas become MathML,
which browsers draw by themselves: one file holds it all, licences included. What draws a picture is folded
away into the speaker notes (key S), beside the minutes, what the lesson tells its readers, and the wrong
guesses that come. What a cell is on stage, its metadata says: `slideshow.slide_type`, and under `npformer` a
`title` and, where the reader's words are too many, shorter ones: `stage`, `ask`, `answer`. What a question
is about is on its slide: `station` is a step of the worked example, at which the player stands there; `again`
the title of a slide whose picture or table comes once more; `cover` what of the answer's own picture is to be
seen before the answer (see `covers`); `ahead` the same where the answer has a slide of its own. `drawn` says
how what is printed is drawn, as "bars" or "squares", and `where` which of its numbers (see drawn.py; `ahead`
makes boxes to fill in of it). `code` are the lines of a cell that are shown. A lesson is run anew for its
slides: a saved picture, enlarged, has letters too small for the back of a room, so pictures are drawn on less
paper (see plots.style). Questions and answers stand at the foot, over what is there.
"""

import html
import itertools
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from npformer.handouts.lesson_copies import lesson_files, named, source_of
from npformer.handouts.slide_pictures import drawn, large, narrow
from npformer.lessons.plots.style import STAGE
from npformer.lessons.predictions import QUESTION, reveal
from npformer.player.player_page import play

STAGE_FOLDER = Path(__file__).parent / "stage"
CODE_WIDE = 80  # letters in a line of code
CELL_SECONDS = 600  # for a cell to run
NO_KERNEL = "no kernel starts. To get one: python -m ipykernel install --sys-prefix."
PLAYING = """Click into the player. Its keys: → a cell on, ↑ ↓ a step, Page Up and Page Down a station, Home
and End, Enter the whole step, Backspace back, H hides the results, S the arithmetic, V the values beside
their gradients, L the live pictures. Click on the slide's title, and → is the next slide again."""
WIDGET = "application/vnd.jupyter.widget-view+json"  # a slider, which lives only while a kernel runs
ASKED, ANSWERED = ('<i class="over"></i>', '<i class="over answer"></i>')  # words at the foot
FRAME = re.compile(r"""<iframe title="([^"]*)"[^>]*? srcdoc='([^']*)'></iframe>""")
SHOWN = re.compile(r"<img [^>]*>|```text\n.*?```|<pre .*?</pre>", flags=re.S)
PRINTED = re.compile(r"```text\n(.*?)\n```", flags=re.S)
SECTION = re.compile(r"^## (\d+\.\d+) ", flags=re.M)
PANELS = re.compile(r'data-panels="([^"]+)"')
GUESSES = re.compile(r"^\*\*(\d+\.\d+[a-z])\*\* (.+)$", flags=re.M)
MATH = re.compile(
    r"(?P<kept><(?P<tag>script|style|pre|code)\b.*?</(?P=tag)>|</?[a-z][^>]*>)"
    r"|\$\$(?P<shown>.+?)\$\$|\$(?P<inline>[^$]+)\$",
    flags=re.S,
)


class Slide(NamedTuple):
    """What is on one slide, as Markdown, what each further click adds, and the speaker's notes."""

    text: str
    then: tuple[str, ...] = ()
    notes: str = ""


class Plan(NamedTuple):
    """What the lesson plan says of a lesson: minutes of each section, and (question, answer) to expect."""

    minutes: dict[str, int]
    questions: list[tuple[str, str]]


def save_slides(
    lesson: str, folder: str | os.PathLike[str], tell: Callable[[str], object] = lambda line: None
) -> Path:
    """Write the slides of a lesson, "05", into a folder, which is made, as one file; return where it is.

    A lesson that does not run to its end is shown as it was saved, and `tell` hears why.

    Raises ValueError for a lesson that does not exist, LessonFails where nothing was saved, as in a student's
    copy, ModuleNotFoundError without the extra `slides`.
    """
    file, stage = lesson_file(lesson), sheets()  # what is missing is said before the lesson runs
    notebook = json.loads(file.read_text(encoding="utf-8"))
    try:
        notebook = run_on_stage(notebook, file.name)
    except LessonFails as error:
        if not any(cell.get("outputs") for cell in notebook["cells"]):
            raise
        tell(f"{error} Its slides show what was saved, with smaller letters.")
    plan = plan_of(int(lesson), (file.parent / "README.md").read_text(encoding="utf-8"))
    slides = slides_of(notebook, plan, guesses_of(file.parent / "guide" / "guesses.md"))
    target = Path(folder, f"{file.stem}.html")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(as_page(slides, title_of(notebook), stage), encoding="utf-8")
    return target


def lesson_numbers() -> dict[str, Path]:
    """The lessons that there are: {"01": its notebook, …}.

    >>> lesson_numbers()["05"].name
    '05_encoder_block.ipynb'
    """
    return {file.name[:2]: file for file in lesson_files() if file.name[:2].isdecimal()}


def lesson_file(lesson: str) -> Path:
    """The notebook of a lesson; its number may come without the leading zero."""
    lessons = lesson_numbers()
    if lesson.zfill(2) not in lessons:
        raise ValueError(f"slides: there is no lesson {lesson!r}; expected one of {', '.join(lessons)}")
    return lessons[lesson.zfill(2)]


class LessonFails(RuntimeError):
    """A cell of a lesson did not run to its end."""


def run_on_stage(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """The notebook with the results of a run in an empty folder, its pictures drawn for slides.

    Raises LessonFails, which names the lesson's file and the cell.
    """
    from asyncio import CancelledError

    import nbformat
    from jupyter_client.kernelspec import NoSuchKernel
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    run, begun = nbformat.reads(json.dumps(notebook), as_version=4), list[Any]()
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(run, timeout=CELL_SECONDS, coalesce_streams=True, resources=resources)
        client.on_cell_execute = lambda cell, cell_index: begun.append(cell)
        client.widget_registry = {}  # what a slider draws is the cell's
        client.extra_arguments = ["--log-level=ERROR"]  # no notices of its own in the terminal
        try:
            client.execute(env={**os.environ, STAGE: "1"})
        except CellExecutionError as error:
            raise _fails(name, begun, f"{error.ename}: {error.evalue}") from None
        except (RuntimeError, OSError, NoSuchKernel) as error:  # dead, too slow, not there
            raise _fails(name, begun, str(error).partition("\n")[0].rstrip(".")) from None
        except CancelledError:  # what nbclient makes of Ctrl+C
            raise KeyboardInterrupt from None
    return dict(run)


def _fails(name: str, begun: Sequence[dict[str, Any]], said: str) -> LessonFails:
    """Which cell it was, and what to do; `begun` are the code cells so far."""
    if not begun:
        return LessonFails(f"{name} does not run here: {NO_KERNEL}")
    first = source_of(begun[-1]).strip().partition("\n")[0]
    where = f"{name} does not run here: its code cell {len(begun)}, which begins with `{first}`, fails"
    how = "To see all of it, run the lesson in JupyterLab; npformer lessons writes a copy"
    return LessonFails(f"{where}. {' '.join(said.split())}. {how}.")


# --- the lesson plan ----------------------------------------------------------------------------


def plan_of(lesson: int, text: str) -> Plan:
    """Its minutes and its questions, read from the plan's tables.

    >>> plan_of(1, "| 01 | 1.1 **7** · 1.2 **3** |\\n| 1 | Why? | Because. |")
    Plan(minutes={'1.1': 7, '1.2': 3}, questions=[('Why?', 'Because.')])
    """
    minutes = re.findall(rf"\b({lesson}\.\d+) \*\*(\d+)\*\*", text)
    questions = re.findall(rf"^\| {lesson} \| ([^|]+) \| ([^|]+) \|$", text, flags=re.M)
    return Plan({section: int(number) for section, number in minutes}, questions)


def guesses_of(page: Path) -> dict[str, str]:
    """{id: the wrong guesses that come, as Markdown}; none without the page."""
    text = page.read_text(encoding="utf-8") if page.is_file() else ""
    found: dict[str, str] = {}
    for id, guess in GUESSES.findall(text):
        found[id] = f"{found.get(id, '')}\n\n{guess}"
    return found


# --- from cells to slides -----------------------------------------------------------------------


def slides_of(notebook: dict[str, Any], plan: Plan, guesses: dict[str, str]) -> list[Slide]:
    """What the cells say they are, by Jupyter's metadata: slide, fragment, skip.

    The plan's words and the wrong guesses are in the notes, what the lesson says we know now at the end.
    """
    found: list[Slide] = []
    cells = [(cell["metadata"].get("slideshow", {}).get("slide_type"), cell) for cell in notebook["cells"]]
    for place, (kind, cell) in enumerate(cells):
        if kind == "slide" and cell["cell_type"] == "markdown":
            coming = next((c for k, c in cells[place:] if k == "slide" and c["cell_type"] == "code"), None)
            found.append(told(cell, plan, guesses, subject_of(cell, found, coming)))
        elif kind == "slide":
            before, words = cells[place - 1] if place else ("", cell)
            leads_in = before == "skip" and words["cell_type"] == "markdown"
            found += ran(cell, source_of(words) if leads_in else "")
        elif kind == "fragment":
            found[-1] = joined(found[-1], cell)
    found = found or [Slide(f"# {title_of(notebook)}")]  # of a notebook whose cells say nothing of a stage
    expected = "\n\n".join(f"**{question}** {answer}" for question, answer in plan.questions)
    if points := "\n".join(f"- {line}" for line in named(notebook, "known")):
        notes = "Ask for the three before you show them."
        found.append(Slide(f"## What we know now\n\n{points}", notes=notes))
    for place in (0, -1):
        notes = f"{found[place].notes}\n\nQuestions that will come:\n\n{expected}"
        found[place] = found[place]._replace(notes=notes)
    return found


def subject_of(cell: dict[str, Any], before: Sequence[Slide], coming: dict[str, Any] | None) -> str:
    """What a question is about: the player at its step, a part of what comes, or an earlier picture again."""
    if station := named(cell, "station"):
        return play(at=station)._repr_html_()
    if coming and (ahead := named(cell, "ahead")):
        shown = shown_by(coming, hidden=True)
        return next((part for part in (*pictures_in(shown, ahead), *shown) if part.startswith("<")), "")
    again = f"## {named(cell, 'again')}\n"
    wholes = ["\n\n".join((slide.text, *slide.then)) for slide in before if slide.text.startswith(again)]
    return next(iter(SHOWN.findall("".join(wholes))[::-1]), "")


def pictures_in(shown: Sequence[str], seen: str = "") -> list[str]:
    """The pictures and players of what is shown; `seen` is what is not covered until the answer comes.

    >>> pictures_in(["<img>"], "0%")
    ['<img><i class="cover" style="--left: 0; --right: 100; --top: 0; --bottom: 100"></i>']
    """
    return [part + "".join(covers(part, str(seen))) for part in shown if part.startswith("<i")]


def covers(part: str, seen: str) -> Iterator[str]:
    """What lies over a picture, of which so much is `seen`: "2" panels, "30%" from the left, or its "axes".

    What is drawn in the axes is covered then, all of it or, as in "axes 30%", what is further to the right.
    Of a picture that was saved, which does not say where they are, nothing is seen.
    """
    found, (kind, _, share) = PANELS.search(part), f"{seen} ".partition(" ")
    panels = [[float(at) for at in panel.split(",")] for panel in (found[1].split() if found else ())]
    boxes = list[list[float]]()
    if kind.endswith("%"):
        boxes = [[float(kind.strip("%")), 100, 0, 100]]
    elif not panels and (kind == "axes" or kind.isdecimal()):
        boxes = [[0, 100, 0, 100]]
    elif kind == "axes":
        from_left = float(share.strip("% ") or 0) / 100
        boxes = [[left + from_left * (right - left), right, *down] for _, left, right, *down in panels]
    elif kind.isdecimal():
        boxes = [[outside, 100, 0, 100] for outside, *_ in panels[int(kind) :][:1]]
    for left, right, top, bottom in boxes:
        where = f"--left: {left:g}; --right: {right:g}; --top: {top:g}; --bottom: {bottom:g}"
        yield f'<i class="cover" style="{where}"></i>'


def told(cell: dict[str, Any], plan: Plan, guesses: dict[str, str], subject: str = "") -> Slide:
    """A title, what it is about, and a question as a fragment; what the lesson tells is what one says."""
    told, _, question = source_of(cell).partition(QUESTION)
    mark = "# " if told.startswith("# ") else "## "
    heading, id = mark + named(cell, "title"), named(cell, "predict")
    beside = drawn_as_told(named(cell, "stage"), cell) or ("" if subject else formulas_of(told))
    text = "\n\n".join(filter(None, (heading, beside, subject)))
    asked = named(cell, "ask") or " ".join(question.split())
    then = (f"{ASKED}{QUESTION} {asked}",) if id else ()
    section = SECTION.search(told)
    minutes = minutes_left(section[1], plan) if section else ""
    wrong = f"A minute to write a guess down; collect a few. {guesses.get(id, '')}" if id else ""
    wrong += f"\n\n{PLAYING}" if subject.startswith("<iframe") else ""
    return Slide(text, then, f"{minutes}\n\n{re.sub('</?(details|summary)>', '', told)}\n\n{wrong}")


def minutes_left(section: str, plan: Plan) -> str:
    """How long a section takes, and what is left of the lesson when it begins.

    >>> minutes_left("1.2", Plan({"1.1": 7, "1.2": 3, "1.3": 4}, []))
    'Section 1.2: 3 minutes; 7 are left, with this one.'
    """
    later = dict(itertools.dropwhile(lambda part: part[0] != section, plan.minutes.items()))
    left = f"minutes; {sum(later.values())} are left, with this one."
    return f"Section {section}: {later[section]} {left}" if later else ""


def ran(cell: dict[str, Any], words: str = "") -> list[Slide]:
    """A slide for each picture, or one with the code's few lines and what it prints; then the answer.

    None where there is none of these: it waits for weights that are not here. `words` is what the lesson
    tells its readers before the cell, and so what one says.
    """
    heading, shown, code = f"## {named(cell, 'title')}", shown_by(cell), code_of(cell)
    if not (shown or code or named(cell, "reveal")):
        return []
    pictures = pictures_in(shown)
    *before, last = [Slide(f"{heading}\n\n{picture}") for picture in pictures] or [
        Slide(f"{heading}\n\n{code}", tuple(shown))  # what it prints comes with a click
        if code
        else Slide("\n\n".join([heading, *shown]))
    ]
    runs = PLAYING if pictures and pictures[-1].startswith("<iframe") else "Run."
    return [*before, with_answer(last, cell, f"{words}\n\n{runs} The whole cell:")]


def code_of(cell: dict[str, Any]) -> str:
    """The lines of its code that are the idea, as its metadata says: "2-5"; most cells show none.

    >>> code_of({"source": "import a\\nb = 1\\nprint(b)", "metadata": {"npformer": {"code": "2-2"}}})
    '```python\\nb = 1\\n```'
    """
    first, _, last = named(cell, "code").partition("-")
    lines = source_of(cell).split("\n")[int(first or 1) - 1 : int(last or 0)]
    return "\n".join(["```python", *lines, "```"]) if lines else ""


def joined(slide: Slide, cell: dict[str, Any]) -> Slide:
    """The slide with what a cell prints and its answer, each with one more click; its picture is there."""
    shown = shown_by(cell)
    if pictures := pictures_in(shown, named(cell, "cover") or "0%"):  # the question is about it
        slide = slide._replace(text="\n\n".join((slide.text, pictures[-1])))
    else:
        slide = slide._replace(then=(*slide.then, *shown))
    return with_answer(slide, cell)


def shown_by(cell: dict[str, Any], hidden: bool = False) -> list[str]:
    """What the cell shows, part by part: what it prints is drawn where its metadata says so."""
    return [drawn_as_told(part, cell, hidden) for output in cell["outputs"] for part in parts_of(output)]


def drawn_as_told(part: str, cell: dict[str, Any], hidden: bool = False) -> str:
    """Something printed, drawn if the cell's metadata says how."""
    printed, kind = PRINTED.fullmatch(part), named(cell, "drawn")
    return drawn(printed[1], kind, named(cell, "where"), CODE_WIDE, hidden) if printed and kind else part


def with_answer(slide: Slide, cell: dict[str, Any], said: str = "") -> Slide:
    """The answer's first sentences with one more click; the cell's code in the notes."""
    notes, id = f"{slide.notes}{said}\n\n```python\n{source_of(cell)}\n```", named(cell, "reveal")
    if not id:
        return slide._replace(notes=notes)
    answer = named(cell, "answer") or reveal(id).text.strip().partition("\n\n")[0]
    then = (*slide.then, f"{ANSWERED}**Answer.** {answer}")
    return slide._replace(then=then, notes=f"{notes}\n\nCompare. {reveal(id).text}")


def formulas_of(text: str) -> str:
    """The displayed formulas of a text, each a paragraph, and in two where it is two beside each other.

    >>> formulas_of("so\\n$$a\\n\\\\qquad b$$\\nfollows")
    '$$a$$\\n\\n$$b$$'
    """
    shown = re.findall(r"\$\$(.+?)\$\$", text, flags=re.S)
    parts = [part.strip() for each in shown for part in re.split(r"(?:\\qquad|\\quad)+", each)]
    return "\n\n".join(f"$${part}$$" for part in parts if part)


def title_of(notebook: dict[str, Any]) -> str:
    """The lesson's heading.

    >>> title_of({"cells": [{"source": "# 1. Where?\\n\\nHere."}]})
    '1. Where?'
    """
    return source_of(notebook["cells"][0]).partition("\n")[0].removeprefix("# ")


def parts_of(output: dict[str, Any]) -> Iterator[str]:
    """A picture as it is, the player in its frame, what was printed as text; an answer comes later."""
    data = output.get("data", {})
    shown = source_of({"source": data.get("text/html", "")})
    if "text/markdown" in data or WIDGET in data:
        return
    if shown.startswith("<iframe ") or "<img " in shown:
        yield shown
    elif printed := source_of({"source": output.get("text", data.get("text/plain", ""))}).strip("\n"):
        yield "\n".join(["```text", *narrow(printed.split("\n")), "```"])


# --- the page -----------------------------------------------------------------------------------


def as_page(slides: Sequence[Slide], title: str, stage: dict[str, str]) -> str:
    """One file of HTML, by nbconvert's exporter for reveal.js with the template of the folder stage.

    Raises ModuleNotFoundError without nbconvert.
    """
    from nbconvert.exporters import SlidesExporter
    from nbformat.v4 import new_notebook

    slides, pages = short_frames(slides)
    stage = {**stage, "pages": json.dumps(pages).replace("<", "\\u003c")}
    notebook = new_notebook(cells=[cell for slide in slides for cell in cells_of(slide)])
    notebook.metadata.title = title
    exporter = SlidesExporter(
        template_name="stage", extra_template_basedirs=[str(STAGE_FOLDER.parent)], exclude_anchor_links=True
    )
    page, _ = exporter.from_notebook_node(notebook, resources={"stage": stage})
    return MATH.sub(as_mathml, str(page))


def short_frames(slides: Sequence[Slide]) -> tuple[list[Slide], list[str]]:
    """The slides with empty frames, and the player's pages for them: each once, wherever frames open it."""
    pages: list[str] = []
    looks = f"<body><style>{(STAGE_FOLDER / 'player.css').read_text(encoding='utf-8')}</style>"

    def short(found: re.Match[str]) -> str:
        page = html.unescape(found[2]).replace("<body>", looks, 1)
        before, at, after = re.split(r'(?<="at":")([^"]*)', page, maxsplit=1)
        if before + after not in pages:
            pages.append(before + after)
        number = pages.index(before + after)
        return f'<iframe title="{found[1]}" data-page="{number}" data-at="{at}"></iframe>'

    return [slide._replace(text=FRAME.sub(short, slide.text)) for slide in slides], pages


def cells_of(slide: Slide) -> Iterator[Any]:
    """A slide as cells of a notebook: the slide, its fragments and its notes."""
    from nbformat.v4 import new_markdown_cell

    fragments = (("fragment", more) for more in slide.then)
    kinds = [("slide", slide.text), *fragments, ("notes", slide.notes.strip())]
    code = "```python" in slide.text
    for kind, text in kinds:
        text = text if code or kind == "notes" else PRINTED.sub(lambda found: large(found[1]), text)
        yield new_markdown_cell(text, metadata={"slideshow": {"slide_type": kind}})


def sheets() -> dict[str, str]:
    """What goes into the page besides the slides: reveal.js with its licence, its looks and ours.

    Its files come from sphinx-revealjs, of which nothing is imported. Raises ModuleNotFoundError without a
    package of the extra `slides`.
    """
    from importlib.metadata import distribution

    from pygments.formatters import HtmlFormatter

    reveal = Path(str(distribution("sphinx-revealjs").locate_file("sphinx_revealjs/_static/revealjs")))
    files = [
        reveal / name for name in ("LICENSE", "dist/reveal.js", "dist/reveal.css", "plugin/notes/notes.js")
    ]
    found = {file.name: file.read_text(encoding="utf-8") for file in [*files, STAGE_FOLDER / "stage.css"]}
    return {**found, "code.css": HtmlFormatter(style="default").get_style_defs(".highlight")}


def as_mathml(found: re.Match[str]) -> str:
    """A formula as MathML; code and tags, in which a dollar is a dollar, as they are."""
    from latex2mathml.converter import convert

    if found["kept"]:
        return found["kept"]
    shown = found["shown"] is not None
    tex = html.unescape(found["shown"] if shown else found["inline"])
    tex = re.sub(r"\\(sin|cos|exp|ln|log) +(?=[\w\\])", r"\\\1\\,", tex)  # sin 1, not sin1
    return str(convert(tex, display="block" if shown else "inline"))
