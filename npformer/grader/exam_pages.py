"""An exam on paper, with room to answer or with the key; and its files. Lengths in mm, letters in points."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from npformer.grader.exam import (
    ASKS,
    BUG,
    COMPUTE,
    DERIVE,
    Exam,
    Question,
    exam_notebook,
    exam_points,
)
from npformer.teaching.plots import GRADIENT, STYLE
from npformer.teaching.worksheet import (
    FOOT,
    KEY,
    LONGEST_NAME,
    MARGIN,
    PAPERS,
    QUIET,
    draw_footer,
    pdf_of,
    write_files,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE = 90  # letters in a line
INDENT = 7.0
MONO = {"family": "DejaVu Sans Mono"}  # comes with matplotlib, as the other letters do
LOOKS: dict[str, tuple[float, float, dict[str, Any]]] = {  # size of letters, height of the line, the rest
    "title": (17, 10.0, {"weight": "bold"}),
    "part": (12, 8.5, {"weight": "bold"}),
    "plain": (9.5, 4.9, {}),
    "quiet": (8.5, 5.5, {"color": QUIET}),
    "code": (8.5, 4.3, MONO),
    "key": (9.5, 4.9, {"color": GRADIENT}),
    "key code": (8.5, 4.3, {"color": GRADIENT, **MONO}),
    "line": (9.5, 8.0, {}),  # to write on
    "gap": (9.5, 3.5, {}),
}
ROOM = 6  # lines to derive on, and as many to write NumPy on
LINE = "_" * 46


class Line(NamedTuple):
    """One line of a page."""

    text: str
    look: str = "plain"
    right: str = ""  # at the right margin
    indent: float = INDENT


def exam_pages(exam: Exam, *, key: bool = False, paper: str = "a4") -> list["Figure"]:
    """The paper, one Figure a page, or the teacher's key."""
    from matplotlib import style

    pages = _paged(_blocks(exam, key), PAPERS[paper][1] - FOOT)
    with style.context(["default", STYLE]):
        figures = [_drawn(page, paper) for page in pages]
        for i, figure in enumerate(figures, start=1):
            draw_footer(
                figure.axes[0],
                shorten(exam.seed, LONGEST_NAME, placeholder="…"),
                f"page {i} of {len(figures)}",
                key,
            )
    return figures


def _paged(blocks: Iterator[list[Line]], bottom: float) -> list[list[Line]]:
    """A question stays on one page."""
    pages: list[list[Line]] = [[]]
    y = MARGIN
    for block in blocks:
        height = sum(LOOKS[line.look][1] for line in block)
        if y + height > bottom:
            pages.append([])
            y = MARGIN
        pages[-1] += block
        y += height
    return pages


def _blocks(exam: Exam, key: bool) -> Iterator[list[Line]]:
    """What stays together: a question, the first of a part with its heading."""
    yield [Line(exam.title, "title", indent=0), Line(KEY if key else f"Name: {LINE}", "quiet", indent=0)]
    numbered = enumerate(exam.questions, start=1)
    for part, group in groupby(numbered, key=lambda each: each[1].part):
        above = [Line("", "gap"), Line(part, "part", indent=0), Line(ASKS[part], "quiet", indent=0)]
        for number, question in group:
            yield [*above, *_question(number, question, key)]
            above = []


def _question(number: int, question: Question, key: bool) -> Iterator[Line]:
    first, *more = wrap(f"{number}.  {question.text}", WIDE, break_on_hyphens=False)
    yield Line(first, right=question.worth, indent=0)
    yield from map(Line, more)
    yield from (_key if key else _room)(question)
    if key:
        yield Line(f"{question.task.id}; lesson {question.task.teach}", "quiet")
    yield Line("", "gap")


def _room(question: Question) -> Iterator[Line]:
    """Where to answer."""
    yield from (Line(f"☐  {text}") for text in question.options())
    if question.part == COMPUTE:
        yield from (Line("", "line"), Line(f"Answer: {LINE}", "line"))
    if question.part == BUG:
        yield from _numbered(question)
        yield Line(f"Line ____ should be: {LINE}{LINE[:20]}", "line")
    if question.part == DERIVE:
        yield from ROOM * [Line("", "line")]
        yield Line(question.code(key=False).splitlines()[0], "code")
        yield from ROOM * [Line("", "line")]


def _key(question: Question) -> Iterator[Line]:
    """What is right."""
    answer = str(question.answer())
    for text in question.options():
        yield Line(f"☒  {text}", "key") if text.startswith(answer) else Line(f"☐  {text}")
    if question.part == COMPUTE:
        yield Line(f"Answer: {answer}", "key")
    if question.part == BUG:
        yield from _numbered(question)
        yield Line(f"Line {question.bug.line} should be:", "key")
        yield Line(question.bug.right, "key code")
    if question.part == DERIVE:
        yield from (Line(line, "key code") for line in answer.splitlines())


def _numbered(question: Question) -> Iterator[Line]:
    yield Line("", "gap")
    for i, line in enumerate(question.bug.text.splitlines(), start=1):
        yield Line(f"{i:2}  {line}", "code")


def _drawn(page: list[Line], paper: str) -> "Figure":
    from matplotlib.figure import Figure

    width, height = PAPERS[paper]
    figure = Figure(figsize=(width / 25.4, height / 25.4))
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.axis("off")
    y = MARGIN
    for line in page:
        size, high, look = LOOKS[line.look]
        put = {"fontsize": size, "va": "center_baseline", "parse_math": False, **look}
        axes.text(MARGIN + line.indent, y + high / 2, line.text, **put)
        if line.right:
            axes.text(width - MARGIN, y + high / 2, line.right, ha="right", **{**put, "color": QUIET})
        y += high
    return figure


# --- the files --------------------------------------------------------------------------------------


def write_exam(exam: Exam, folder: Path, *, paper: str = "a4", force: bool = False) -> list[Path]:
    """Paper and key as PDF and as notebook, and the points. Raises ValueError where one of them is there."""
    names = ("exam.pdf", "exam-key.pdf", "exam.ipynb", "exam-key.ipynb", "exam.toml")
    files = [folder / name for name in names]
    if not force and (there := [file.name for file in files if file.exists()]):
        raise ValueError(f"{str(folder)!r} holds {there[0]!r}, which stays; --force writes it anew")
    content: dict[Path, bytes] = {}
    for i, key in enumerate((False, True)):
        content |= pdf_of(files[i], exam_pages(exam, key=key, paper=paper))
        content[files[2 + i]] = exam_notebook(exam, key).encode()
    content[files[4]] = exam_points(exam).encode()
    folder.mkdir(parents=True, exist_ok=True)
    write_files(content)
    return files
