"""Turn the lessons into pages with their stored outputs. Answers are hidden until a reader clicks."""

import base64
import hashlib
import html
import json
import re
from pathlib import Path
from typing import Any

from lite import LESSON_URL

Cell = dict[str, Any]
ANSWER = "**Answer.**"
# The formats of an output that a page can show. If an output has several of them, the first one is shown.
KINDS = ("text/html", "image/png", "text/markdown", "text/plain")
PLAYER = re.compile(
    r"""<iframe title="(?P<title>[^"]*)"[^>]*? srcdoc='(?P<page>[^']*)'></iframe>""", re.DOTALL
)
PICTURE = re.compile(r"""<img alt="(?P<alt>[^"]*)"[^>]*? src="data:image/png;base64,(?P<data>[^"]*)"[^>]*>""")
BUTTON = """\
<p class="run"><a class="button" href="../{url}">Run in the browser</a>
<span>nothing to install; below is the lesson with its outputs</span></p>
"""


def write_lessons(notebooks: Path, pages: Path, static: Path) -> None:
    """Write the source of a page for every notebook of the folder."""
    pages.mkdir(parents=True)
    (static / "outputs").mkdir(parents=True)
    for file in sorted(notebooks.glob("*.ipynb")):
        notebook = json.loads(file.read_text(encoding="utf-8"))
        notebook["cells"] = with_button(static_cells(notebook["cells"], static / "outputs"), file.name)
        (pages / file.name).write_text(json.dumps(notebook, ensure_ascii=False), encoding="utf-8")


def with_button(cells: list[Cell], name: str) -> list[Cell]:
    """Insert a button below the title in the first cell. The button runs the lesson in the browser."""
    title, _, rest = text(cells[0]["source"]).partition("\n")
    button = BUTTON.format(url=LESSON_URL.format(lesson=name.removesuffix(".ipynb")))
    return [{**cells[0], "source": f"{title}\n\n{button}\n{rest}"}, *cells[1:]]


def static_cells(cells: list[Cell], folder: Path) -> list[Cell]:
    """Return the cells for a page that does not execute code."""
    found: list[Cell] = []
    for cell in cells:
        outputs = cell.get("outputs", [])
        answers = [answer for output in outputs if (answer := answer_in(output))]
        if cell["cell_type"] == "code":
            cell = {**cell, "outputs": [static_output(o, folder) for o in outputs if not answer_in(o)]}
        found.append(cell)
        found += [
            folded_answer(answer, f"{cell.get('id', 'cell')}-answer-{n}") for n, answer in enumerate(answers)
        ]
    return found


def answer_in(output: Cell) -> str:
    """Return the answer that `reveal` displayed, without the word Answer, or "" if there is none."""
    markdown = text(output.get("data", {}).get("text/markdown", "")).strip()
    is_answer = markdown.startswith(ANSWER)
    return markdown.removeprefix(ANSWER).strip() if is_answer else ""


def folded_answer(answer: str, name: str) -> Cell:
    source = f'<details class="answer"><summary>Answer</summary>\n\n{answer}\n\n</details>'
    return {"cell_type": "markdown", "id": name[-64:], "metadata": {}, "source": source}


def static_output(output: Cell, folder: Path) -> Cell:
    """Return an output in only one data format. Pictures and players are written to separate files."""
    data = output.get("data")
    if data is None:
        return output
    kind = next((kind for kind in KINDS if kind in data), None)
    if kind is None:
        return {"output_type": "stream", "name": "stdout", "text": ""}
    content = text(data[kind])
    if kind == "image/png":
        words = html.escape(output.get("metadata", {}).get("image/png", {}).get("alt", ""))
        kind, content = "text/html", image(content, words, folder)
    elif kind == "text/html":
        content = PICTURE.sub(lambda found: image(found["data"], found["alt"], folder), content)
        content = PLAYER.sub(
            lambda found: player(found["title"], html.unescape(found["page"]), folder), content
        )
    return {"output_type": "display_data", "metadata": {}, "data": {kind: content}}


def image(encoded: str, words: str, folder: Path) -> str:
    """Return an <img> element with the size of the PNG file, so that text does not move while it loads."""
    data = base64.b64decode(encoded)
    width, height = (int.from_bytes(data[start : start + 4], "big") for start in (16, 20))
    size = f'width="{width}" height="{height}"'
    source = f"../_static/outputs/{write_file(data, '.png', folder)}"
    return f'<img src="{source}" alt="{words}" {size} loading="lazy">'


def player(title: str, page: str, folder: Path) -> str:
    """Return a frame that shows the player. Lessons that open the player at the same step share one file."""
    name = write_file(page.encode(), ".html", folder)
    return f'<iframe class="player" title="{title}" src="../_static/outputs/{name}" loading="lazy"></iframe>'


def write_file(data: bytes, suffix: str, folder: Path) -> str:
    """Write the bytes to a file named by their hash, and return its name."""
    name = hashlib.sha256(data).hexdigest()[:16] + suffix
    (folder / name).write_bytes(data)
    return name


def text(source: str | list[str]) -> str:
    """Join a source that a notebook stores as lines or as one string."""
    return source if isinstance(source, str) else "".join(source)
