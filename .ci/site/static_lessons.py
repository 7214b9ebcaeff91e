"""The lessons as pages: outputs as they stand in the files, answers folded, pictures and players as files."""

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
KINDS = ("text/html", "image/png", "text/markdown", "text/plain")  # of an output the first of these is shown
PLAYER = re.compile(
    r"""<iframe title="(?P<title>[^"]*)"[^>]*? srcdoc='(?P<page>[^']*)'></iframe>""", re.DOTALL
)
PICTURE = re.compile(r"""<img alt="(?P<alt>[^"]*)"[^>]*? src="data:image/png;base64,(?P<data>[^"]*)"[^>]*>""")
BUTTON = """\
<p class="run"><a class="button" href="../{url}">Run in the browser</a>
<span>nothing to install; below is the lesson with its outputs</span></p>
"""


def write_lessons(notebooks: Path, pages: Path, static: Path) -> None:
    """Every notebook of the folder as a page's source."""
    pages.mkdir(parents=True)
    (static / "outputs").mkdir(parents=True)
    for file in sorted(notebooks.glob("*.ipynb")):
        notebook = json.loads(file.read_text(encoding="utf-8"))
        notebook["cells"] = with_button(static_cells(notebook["cells"], static / "outputs"), file.name)
        (pages / file.name).write_text(json.dumps(notebook, ensure_ascii=False), encoding="utf-8")


def with_button(cells: list[Cell], name: str) -> list[Cell]:
    """The first cell is the title; the button stands below it."""
    title, _, rest = text(cells[0]["source"]).partition("\n")
    button = BUTTON.format(url=LESSON_URL.format(lesson=name.removesuffix(".ipynb")))
    return [{**cells[0], "source": f"{title}\n\n{button}\n{rest}"}, *cells[1:]]


def static_cells(cells: list[Cell], folder: Path) -> list[Cell]:
    """The same cells for a page that runs nothing."""
    found: list[Cell] = []
    for cell in cells:
        outputs = cell.get("outputs", [])
        answers = [answer for output in outputs if (answer := answer_in(output))]
        if cell["cell_type"] == "code":
            cell = {**cell, "outputs": [shown(o, folder) for o in outputs if not answer_in(o)]}
        found.append(cell)
        found += [folded(answer, f"{cell.get('id', 'cell')}-answer-{n}") for n, answer in enumerate(answers)]
    return found


def answer_in(output: Cell) -> str:
    """What `reveal` has displayed, without its first word, or nothing."""
    said = text(output.get("data", {}).get("text/markdown", "")).strip()
    return said.removeprefix(ANSWER).strip() if said.startswith(ANSWER) else ""


def folded(answer: str, name: str) -> Cell:
    source = f'<details class="answer"><summary>Answer</summary>\n\n{answer}\n\n</details>'
    return {"cell_type": "markdown", "id": name[-64:], "metadata": {}, "source": source}


def shown(output: Cell, folder: Path) -> Cell:
    """An output with one kind of data, what is large in it written to a file."""
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
    """An element that shows a PNG file; its size is known before it is loaded, so that nothing jumps."""
    data = base64.b64decode(encoded)
    width, height = (int.from_bytes(data[start : start + 4], "big") for start in (16, 20))
    size = f'width="{width}" height="{height}"'
    return (
        f'<img src="../_static/outputs/{written(data, ".png", folder)}" alt="{words}" {size} loading="lazy">'
    )


def player(title: str, page: str, folder: Path) -> str:
    """A frame with the player's page, which many lessons share but for the step where it opens."""
    name = written(page.encode(), ".html", folder)
    return f'<iframe class="player" title="{title}" src="../_static/outputs/{name}" loading="lazy"></iframe>'


def written(data: bytes, suffix: str, folder: Path) -> str:
    """The name of a file that has these bytes."""
    name = hashlib.sha256(data).hexdigest()[:16] + suffix
    (folder / name).write_bytes(data)
    return name


def text(source: str | list[str]) -> str:
    return source if isinstance(source, str) else "".join(source)
