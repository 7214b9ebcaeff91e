"""Stage mode: a lesson's own notebook as slides, one idea a slide, for a browser and without a network.

    question → pause → run → picture → answer

nbconvert makes the page, by its reveal.js exporter. reveal.js itself, which nbconvert would load from the
network, comes from the files of sphinx-revealjs, a package of the extra `slides`, and formulas become MathML,
which browsers draw by themselves: one file holds it all, licences included. What draws a picture is folded
away into the speaker notes (key S), beside the minutes and the questions that will come. The player is on its
slide, and runs there. A lesson is run anew for its slides: a saved picture, enlarged, has letters too small
for the back of a room, so pictures are drawn on less paper (see plots.style). Everything is measured in
lines: a slide has room for so many.
"""

import ast
import base64
import html
import json
import os
import re
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from npformer.teaching.handout import lesson_files
from npformer.teaching.lessons import QUESTION, named, reveal, source_of
from npformer.teaching.plots.style import STAGE

STAGE_FOLDER = Path(__file__).parent / "stage"
ROOM = 14.0  # lines of text on a slide
WIDE = 68  # letters in a line of text, on average
CODE_ROOM, CODE_WIDE = 17, 80  # the same for code and what it prints
WIDEST, HIGHEST, CODE_LINE = 1268, 656, 33.6  # pixels of a picture, and of a line of code, in stage.css
CELL_SECONDS = 600  # for a cell to run
NO_KERNEL = "no kernel starts. To get one: python -m ipykernel install --sys-prefix."
PLUMBING = ("picture", "play", "plots", "reveal")  # names that a statement for the eye alone uses
PLAYING = """Click into the player. Its keys: → a cell on, ↑ ↓ a step, Page Up and Page Down a station, Home
and End, Enter the whole step, Backspace back, H hides the results, S the arithmetic, V the values beside
their gradients. Click below the player, and → is the next slide again."""
WIDGET = "application/vnd.jupyter.widget-view+json"  # a slider, which lives only while a kernel runs
HEADING = re.compile(r"#{1,3} ")
SECTION = re.compile(r"## (\d+\.\d+) ")
MATH = re.compile(
    r"(?P<kept><(?P<tag>script|style|pre|code)\b.*?</(?P=tag)>|</?[a-z][^>]*>)"
    r"|\$\$(?P<shown>.+?)\$\$|\$(?P<inline>[^$]+)\$",
    flags=re.S,
)


class Slide(NamedTuple):
    """What is on one slide, as Markdown or as code, what each further click adds, and the speaker's notes."""

    text: str
    code: bool = False
    then: tuple[str, ...] = ()
    notes: str = ""


class Plan(NamedTuple):
    """What the lesson plan says of a lesson: minutes of each section, and (question, answer) to expect."""

    minutes: dict[str, int]
    questions: list[tuple[str, str]]


def save_slides(lesson: str, folder: str | os.PathLike[str]) -> Path:
    """Write the slides of a lesson, "05", into a folder, which is made, as one file; return where it is.

    Raises ValueError for a lesson that does not exist, LessonFails for one with a cell that fails,
    ModuleNotFoundError without the extra `slides`.
    """
    file, stage = lesson_file(lesson), sheets()  # what is missing is said before the lesson runs
    notebook = with_outputs(json.loads(file.read_text(encoding="utf-8")), file.name)
    slides = slides_of(notebook, plan_of(int(lesson), plan_text(file.parent)))
    page = as_page(slides, title_of(notebook), stage)
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    target /= f"{file.stem}.html"
    target.write_text(page, encoding="utf-8")
    return target


def lesson_numbers() -> list[str]:
    """The lessons that there are.

    >>> lesson_numbers()[:2]
    ['01', '02']
    """
    return [file.name[:2] for file in lesson_files() if file.name[:2].isdecimal()]


def lesson_file(lesson: str) -> Path:
    """The notebook of a lesson; its number may come without the leading zero.

    >>> lesson_file("5").name
    '05_encoder_block.ipynb'
    """
    found = [file for file in lesson_files() if file.name[:2] == lesson.zfill(2) and lesson.isdecimal()]
    if not found:
        raise ValueError(
            f"slides: there is no lesson {lesson!r}; expected one of {', '.join(lesson_numbers())}"
        )
    return found[0]


class LessonFails(RuntimeError):
    """A cell of a lesson did not run to its end."""


class AsSaved(UserWarning):
    """The slides show the results that a lesson was saved with."""


def with_outputs(notebook: dict[str, Any], name: str = "the lesson") -> dict[str, Any]:
    """The notebook run now, so that its pictures are drawn for slides; or, where that fails, as it was saved.

    Raises LessonFails, which names the lesson's file and the cell, where a student's copy, which has no
    outputs, does not run to its end.
    """
    try:
        return run_on_stage(notebook, name)
    except LessonFails as error:
        if not any(cell.get("outputs") for cell in notebook["cells"]):
            raise
        warnings.warn(f"{error} Its slides show what was saved, with smaller letters.", AsSaved, stacklevel=3)
        return notebook


def run_on_stage(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """The notebook with the results of a run in an empty folder, its pictures drawn for slides."""
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


def plan_text(folder: Path) -> str:
    """The lesson plan that lies beside the lessons."""
    return (folder / "README.md").read_text(encoding="utf-8")


def plan_of(lesson: int, text: str) -> Plan:
    """Its minutes and its questions, read from the plan's tables.

    >>> plan_of(1, "| 01 | 1.1 **7** · 1.2 **3** |\\n| 1 | Why? | Because. |")
    Plan(minutes={'1.1': 7, '1.2': 3}, questions=[('Why?', 'Because.')])
    """
    minutes = re.findall(rf"\b({lesson}\.\d+) \*\*(\d+)\*\*", text)
    questions = re.findall(rf"^\| {lesson} \| ([^|]+) \| ([^|]+) \|$", text, flags=re.M)
    return Plan({section: int(number) for section, number in minutes}, questions)


# --- from cells to slides -----------------------------------------------------------------------


def slides_of(notebook: dict[str, Any], plan: Plan) -> list[Slide]:
    """All slides of a lesson; the plan's words are in the notes, its questions at the start and the end."""
    found: list[Slide] = []
    for cell in notebook["cells"]:
        found += markdown_slides(source_of(cell)) if cell["cell_type"] == "markdown" else code_slides(cell)
    expected = "\n\n".join(f"**{question}** {answer}" for question, answer in plan.questions)
    timed = [with_minutes(slide, plan) for slide in found]
    first, last = timed[0], timed[-1]
    timed[0] = first._replace(notes=f"Questions that will come:\n\n{expected}\n\n{first.notes}")
    timed[-1] = last._replace(notes=f"{last.notes}\n\nQuestions that will come:\n\n{expected}")
    return timed


def with_minutes(slide: Slide, plan: Plan) -> Slide:
    """On the first slide of a section, how many minutes the plan has for it."""
    section = SECTION.match(slide.text)
    if not section or section[1] not in plan.minutes:
        return slide
    return slide._replace(notes=f"Section {section[1]}: {plan.minutes[section[1]]} minutes.\n\n{slide.notes}")


def title_of(notebook: dict[str, Any]) -> str:
    """The lesson's heading.

    >>> title_of({"cells": [{"source": "# 1. Where?\\n\\nHere."}]})
    '1. Where?'
    """
    return source_of(notebook["cells"][0]).partition("\n")[0].removeprefix("# ")


def markdown_slides(text: str) -> Iterator[Slide]:
    """What is told, cut where a slide is full; a question has a slide of its own."""
    folds = "\n\n".join(re.findall(r"<details>(.*?)</details>", text, flags=re.S))
    told, _, question = re.sub(r"<details>.*?</details>", "", text, flags=re.S).partition(QUESTION)
    before = evenly(list(blocks(told)))
    asked = (
        f'## Predict\n\n{question.strip()}\n\n<p class="pause">Write your guess down.</p>' if question else ""
    )
    alone = bool(before) and ("## " not in before[-1] or "\n" not in before[-1])  # no heading, or only one
    if question and alone and height_of(before[-1]) + height_of(asked) <= ROOM:
        asked = f"{before.pop()}\n\n{asked}"
    for full in before:
        yield Slide(full, notes=re.sub(r"</?summary>", "", folds))
        folds = ""
    if asked:
        yield Slide(asked, notes="A minute to write a guess down; collect a few; then run.")


def height_of(slide: str) -> float:
    """The heights of all blocks of a slide.

    >>> height_of("## 1.1 A heading\\n\\nWords.")
    3.5
    """
    return sum(map(height, slide.split("\n\n")))


def blocks(text: str) -> Iterator[str]:
    """Paragraphs, formulas, single points of lists and tables with their head, each to be kept together."""
    for paragraph in re.split(r"\n{2,}", one_formula_a_paragraph(text).strip()):
        lines = paragraph.split("\n")
        if lines[0].startswith("|"):
            yield from tables(lines)
        elif re.match(r"(- |\d+\. )", lines[0]):
            yield from re.split(r"\n(?=- |\d+\. )", paragraph)
        elif paragraph:
            yield from sentences(paragraph)


def one_formula_a_paragraph(text: str) -> str:
    """Each displayed formula alone, and in two where it is two beside each other.

    >>> one_formula_a_paragraph("so\\n$$a \\\\qquad b$$\\nfollows")
    'so\\n\\n$$a$$\\n\\n$$b$$\\n\\nfollows'
    """

    def apart(found: re.Match[str]) -> str:
        parts = (part.strip() for part in re.split(r"(?:\\qquad|\\quad)+", found[1]))
        return "\n\n" + "\n\n".join(f"$${part}$$" for part in parts if part) + "\n\n"

    return re.sub(r"\s*\$\$(.+?)\$\$\s*", apart, text, flags=re.S)


def tables(lines: Sequence[str], most: int = 5) -> Iterator[str]:
    """A table in pieces of so many rows or a slide's height, under the head; with wide formulas as a list."""
    head, rows = lines[:2], lines[2:]
    if any("$" in row and len(seen(row)) > WIDE for row in rows):
        yield from (f"- {'; '.join(map(named_cell, cells_in(head[0]), cells_in(row)))}" for row in rows)
        return
    piece = list(head)
    for row in rows:
        if len(piece) > 2 and (len(piece) == most + 2 or height("\n".join([*piece, row])) > ROOM):
            yield "\n".join(piece)
            piece = list(head)
        piece.append(row)
    yield "\n".join(piece)


def cells_in(row: str) -> list[str]:
    """What stands in the cells of a table's row."""
    return [cell.strip() for cell in row.strip().removeprefix("|").removesuffix("|").split("|")]


def named_cell(name: str, cell: str) -> str:
    """A cell with the head of its column, if it has one."""
    return f"*{name}* {cell}" if name else cell


def sentences(paragraph: str) -> Iterator[str]:
    """A paragraph, or its sentences where it alone would fill a slide."""
    if height(paragraph) <= ROOM - 2:
        yield paragraph
    else:
        yield from packed(re.split(r"(?<=[.?!]) (?=[A-Z])", " ".join(paragraph.split())), ROOM - 3, " ")


def packed(parts: Any, room: float, between: str = "\n\n") -> Iterator[str]:
    """As many parts on a slide as there is room; a heading begins one, and does not stand alone."""
    full: list[str] = []
    for part in parts:
        crowded = height_of(between.join([*full, part])) > room and not all(map(HEADING.match, full))
        if full and (crowded or HEADING.match(part)):
            yield between.join(full)
            full = []
        full.append(part)
    if full:
        yield between.join(full)


def evenly(parts: Sequence[str]) -> list[str]:
    """No more slides than are needed, and none that holds one line because those before it are full.

    >>> [slide.count("a") for slide in evenly(["a"] * 10)]
    [5, 5]
    """
    full = list(packed(parts, ROOM))
    for room in range(int(ROOM) - 1, 4, -1):
        tried = list(packed(parts, room))
        if len(tried) > len(full):
            break
        full = tried
    return full


def height(block: str) -> float:
    """About how many lines of text a block takes, with the gap below it.

    >>> height("word " * 20), height("## 1.1 A heading"), height("$$a$$")
    (2.5, 2.0, 2.5)
    """
    if HEADING.match(block):
        return 2.0 * -(-len(block) // 48)
    if block.startswith("$$"):
        return 2.5 + 1.3 * block.count(r"\\")
    if block.startswith("|"):
        return sum(row_height(row) for row in block.split("\n")) + 0.5
    return -(-len(seen(block)) // WIDE) + 0.5


def row_height(row: str) -> float:
    """Lines of a table's row: those of its longest cell, and a little for the rule below."""
    cells = row.strip("|").split("|")
    return 0.4 + max(-(-len(seen(cell)) * len(cells) // WIDE) for cell in cells)


def seen(text: str) -> str:
    """A text about as long as the reader sees it: no names of TeX's commands, no addresses of links.

    >>> seen(r"see $\\\\alpha$ in [a](b.ipynb)")
    'see $a$ in a'
    """
    return re.sub(r"\]\([^)]*\)|\[", "", re.sub(r"\\+[a-zA-Z]+", "a", text))


def code_slides(cell: dict[str, Any]) -> Iterator[Slide]:
    """The code without its plumbing, then what it shows, then the answer: below the numbers, if it fits."""
    source = source_of(cell)
    kept = without_plumbing(source)
    found = [Slide(page, code=True) for page in pages(kept)]
    for slide in [slide for output in cell["outputs"] for slide in output_slides(output)]:
        if found and found[-1].code and slide.text.startswith("```") and fits(found[-1], slide.text):
            found[-1] = found[-1]._replace(then=(slide.text,))
        else:
            found.append(slide)
    if found:
        ran = "Run." if kept == source else f"Run. The whole cell:\n\n```python\n{source}\n```"
        found[0] = found[0]._replace(notes=f"{ran}\n\n{found[0].notes}")
    yield from with_answer(found, named(cell, "reveal"))


def with_answer(found: list[Slide], id: str | None) -> list[Slide]:
    """The slides of a cell and the answer that it reveals: with one more click, or on a slide of its own."""
    if id is None:
        return found
    answer = f"**Answer.** {reveal(id).text}"
    if found and fits(found[-1], answer):
        last = found[-1]
        return [*found[:-1], last._replace(then=(*last.then, answer), notes=f"{last.notes}\n\nCompare.")]
    return [*found, *(Slide(text, notes="Compare.") for text in packed(answer_blocks(id), ROOM))]


def fits(slide: Slide, more: str) -> bool:
    """Whether there is room below what a slide has."""
    return sum(map(lines_of, (*slide.then, more)), lines_of(slide.text) + slide.code) <= CODE_ROOM


def lines_of(text: str) -> float:
    """How many lines as high as those of code a text takes: code, a print in its fence, prose, a picture.

    >>> lines_of("x = 1"), lines_of("```text\\n1\\n```"), round(lines_of("**Answer.** One."), 2)
    (1, 3, 1.95)
    """
    if text.startswith("<"):
        return picture_lines(text)
    if text.startswith("**"):
        return 1.3 * sum(map(height, blocks(text)))
    return sum(map(wrapped, text.split("\n")))


def picture_lines(element: str) -> float:
    """The same for a picture, as stage.css shows it, from the size in its PNG; the player fills its slide."""
    found = re.search(r"base64,(\S{32})", element)
    if not found:
        return CODE_ROOM
    head = base64.b64decode(found[1])
    width, height = (int.from_bytes(head[start : start + 4]) for start in (16, 20))
    return min(HIGHEST, height * WIDEST / width) / CODE_LINE


def answer_blocks(id: str) -> Iterator[str]:
    """The answer under its heading."""
    yield "## Answer"
    yield from blocks(reveal(id).text)


def without_plumbing(source: str) -> str:
    """The code that has to do with the idea: no imports, nothing that only draws or shows.

    >>> without_plumbing("from a import b\\nprint(1)\\npicture(x)\\nreveal('1.1a')")
    'print(1)'
    """
    lines, body = source.split("\n"), ast.parse(source).body
    folded: list[ast.stmt] = []
    for place in reversed(range(len(body))):
        if is_plumbing(body[place]) or only_feeds(body[place], body[place + 1 :], folded):
            folded.append(body[place])
    for statement in folded:
        start = min([statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))])
        lines[start - 1 : statement.end_lineno] = ["\0"] * (1 + (statement.end_lineno or start) - start)
    kept = "\n".join(line for line in lines if line != "\0")
    return re.sub(r"\n{3,}", "\n\n", kept).strip("\n")


def only_feeds(statement: ast.stmt, later: Sequence[ast.stmt], folded: Sequence[ast.stmt]) -> bool:
    """Whether it names a thing that only statements already folded away use."""
    made = names_in(statement, ast.Store) if isinstance(statement, ast.Assign) else set()
    users = [other for other in later if made & names_in(other, ast.Load)]
    return bool(users) and all(user in folded for user in users)


def names_in(node: ast.AST, use: type[ast.expr_context]) -> set[str]:
    """The names that a piece of code reads (ast.Load) or sets (ast.Store)."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, use)}


def is_plumbing(statement: ast.stmt) -> bool:
    """Whether a statement imports, sets NumPy's printing, or only makes a picture or shows an answer."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return True
    if isinstance(statement, ast.FunctionDef) and statement.decorator_list:
        return True  # a slider
    drawing = isinstance(statement, ast.Expr | ast.Assign) and names_in(statement, ast.Load) & {*PLUMBING}
    return bool(drawing) or "set_printoptions" in ast.unparse(statement)


def pages(text: str) -> Iterator[str]:
    """Lines of code or of what was printed, so many a page, a long one counted as often as it wraps."""
    page: list[str] = []
    for line in text.rstrip().split("\n") if text.strip() else []:
        if sum(map(wrapped, [*page, line])) > CODE_ROOM:
            yield "\n".join(page)
            page = []
        page.append(line)
    if page:
        yield "\n".join(page)


def wrapped(line: str) -> int:
    """On how many lines of a slide a line of code stands.

    >>> wrapped(""), wrapped("x" * 81)
    (1, 2)
    """
    return max(1, -(-len(line) // CODE_WIDE))


def output_slides(output: dict[str, Any]) -> Iterator[Slide]:
    """A picture as it is, the player in its frame, what was printed as text; an answer comes later."""
    data = output.get("data", {})
    shown = source_of({"source": data.get("text/html", "")})
    if "text/markdown" in data or WIDGET in data:
        return
    if shown.startswith("<iframe "):
        yield Slide(one_line(shown), notes=PLAYING)
    elif "<img " in shown:
        yield Slide(shown)
    else:
        printed = source_of({"source": output.get("text", data.get("text/plain", ""))})
        yield from (Slide(f"```text\n{page}\n```", notes="Read.") for page in pages(printed.strip("\n")))


def one_line(frame: str) -> str:
    """A frame with its page in the looks of the stage, as Markdown lets it pass: no line ends, no tags.

    >>> one_line("<iframe srcdoc='<p>\\n&amp;</p>'></iframe>")
    "<iframe srcdoc='&lt;p&gt;&#10;&amp;&lt;/p&gt;'></iframe>"
    """
    head, start, page = frame.partition("srcdoc='")
    page, end, tail = page.rpartition("'")
    looks = (STAGE_FOLDER / "player.css").read_text(encoding="utf-8")
    page = page.replace("<body>", f"<body><style>{looks}</style>", 1)
    return head + start + page.replace("<", "&lt;").replace(">", "&gt;").replace("\n", "&#10;") + end + tail


# --- the page -----------------------------------------------------------------------------------


def as_page(slides: Sequence[Slide], title: str, stage: dict[str, str]) -> str:
    """One file of HTML, by nbconvert's exporter for reveal.js with the template of the folder stage.

    Raises ModuleNotFoundError without nbconvert.
    """
    from nbconvert.exporters import SlidesExporter
    from nbformat.v4 import new_notebook

    notebook = new_notebook(cells=[cell for slide in slides for cell in cells_of(slide)])
    notebook.metadata.title = title
    exporter = SlidesExporter(
        template_name="stage", extra_template_basedirs=[str(STAGE_FOLDER.parent)], exclude_anchor_links=True
    )
    page, _ = exporter.from_notebook_node(notebook, resources={"stage": stage})
    return MATH.sub(as_mathml, str(page))


def cells_of(slide: Slide) -> Iterator[Any]:
    """A slide as cells of a notebook: the slide, and its notes."""
    from nbformat.v4 import new_code_cell, new_markdown_cell

    new_cell = new_code_cell if slide.code else new_markdown_cell
    yield new_cell(slide.text, metadata={"slideshow": {"slide_type": "slide"}})
    for more in slide.then:
        yield new_markdown_cell(more, metadata={"slideshow": {"slide_type": "fragment"}})
    if slide.notes.strip():
        yield new_markdown_cell(slide.notes, metadata={"slideshow": {"slide_type": "notes"}})


def sheets() -> dict[str, str]:
    """What goes into the page besides the slides: reveal.js with its licence, its looks and ours.

    Raises ModuleNotFoundError without a package of the extra `slides`.
    """
    from pygments.formatters import HtmlFormatter

    names = "LICENSE", "dist/reveal.js", "dist/reveal.css", "plugin/notes/notes.js"
    found = {Path(name).name: borrowed(name) for name in names}
    found["stage.css"] = (STAGE_FOLDER / "stage.css").read_text(encoding="utf-8")
    return {**found, "code.css": HtmlFormatter(style="default").get_style_defs(".highlight")}


def borrowed(name: str) -> str:
    """A file of reveal.js, read from sphinx-revealjs, of which nothing is imported.

    >>> borrowed("LICENSE")[:13]
    'Copyright (C)'
    """
    from importlib.metadata import distribution

    place = distribution("sphinx-revealjs").locate_file(f"sphinx_revealjs/_static/revealjs/{name}")
    return Path(str(place)).read_text(encoding="utf-8")


def as_mathml(found: re.Match[str]) -> str:
    """A formula as MathML; code and tags, in which a dollar is a dollar, as they are."""
    from latex2mathml.converter import convert

    if found["kept"]:
        return found["kept"]
    shown = found["shown"] is not None
    tex = html.unescape(found["shown"] if shown else found["inline"])
    tex = re.sub(r"\\(sin|cos|exp|ln|log) +(?=[\w\\])", r"\\\1\\,", tex)  # sin 1, not sin1
    return str(convert(tex, display="block" if shown else "inline"))
