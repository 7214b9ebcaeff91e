"""Typeset npformer/handouts/one_page.py as a page and a poster with two columns.

The forward pass is on the left and the backward pass on the right. A function that contains a function
`backward` becomes a pair. The numbers at the ends of lines connect each backward line with its forward line.
This script also runs the file, and shows the printed output and a picture of the attention.
"""

import ast
import contextlib
import io
import re
import shutil
import subprocess
import textwrap
from html import escape
from math import sqrt
from pathlib import Path

import numpy as np
from pygments.lexers import PythonLexer
from pygments.token import Comment, Keyword, Name, String

from npformer.handouts import one_page

STYLE = Path(__file__).with_name("one_page.css")
NUMBER = re.compile(r"^([①-⑨]) ?")
WORD = "dog bites man"
PAPERS = {
    "A4": (210, 297, 0.426),
    "A1": (594, 841, 1.205),
}  # width, height, and the unit of the style sheet, in mm
NAMES = set(re.findall(r"[A-Za-z]\w*", Path(one_page.__file__).read_text(encoding="utf-8")))
LINKS = '<a href="../index.html">npformer</a> · <a href="one_page.py" download>one_page.py</a>'
BROWSERS = "chromium", "chromium-browser", "google-chrome"


def write_one_page(folder: Path) -> None:
    """Write a copy of one_page.py, its web page and, if Chromium is installed, its posters."""
    source = Path(one_page.__file__).read_text(encoding="utf-8")
    (folder / "one_page.py").write_text(source, encoding="utf-8")
    printed, picture = a_run()
    chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
    if chromium is None:
        print("one_page_set.py: no Chromium, so no posters")
    run = f"<figure class=run><pre>{escape(printed)}</pre></figure>"
    links = LINKS + "".join(f" · <a href=one_page_{p}.pdf>poster, {p}</a>" for p in PAPERS if chromium)
    (folder / "one_page.html").write_text(
        page(f"<nav>{links}</nav>{body(source, picture, at_end=run)}", "screen"), encoding="utf-8"
    )
    if chromium is None:
        return
    for paper, (wide, high, unit) in PAPERS.items():
        sheet = folder / f"one_page_{paper}.html"
        size = f"@page {{ size: {wide}mm {high}mm; margin: 0 }} :root {{ --u: {unit}mm }}"
        sheet.write_text(page(body(source, run + picture), "poster", size), encoding="utf-8")
        out = folder / f"one_page_{paper}.pdf"
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-pdf-header-footer",
            f"--print-to-pdf={out}",
        ]
        subprocess.run([chromium, *options, sheet.as_uri()], check=True, capture_output=True, timeout=120)


def page(parts: str, kind: str, more: str = "") -> str:
    style = STYLE.read_text(encoding="utf-8")
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>A Transformer on one page</title><style>{style}{more}</style>"
        f'<body class="{kind}">{parts}</body></html>\n'
    )


def body(source: str, beside: str, at_end: str = "") -> str:
    tree, lines = ast.parse(source), source.splitlines()
    title, *words = (ast.get_docstring(tree) or "").splitlines()
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    first = functions[0].lineno - 1
    pairs = [pair(f, lines) for f in functions if turn(f)]
    opening = (tree.body[0].end_lineno or 0) + 1
    middle = functions.index(next(filter(turn, reversed(functions))))
    before, after = (
        "".join(plain(f, lines) for f in part if not turn(f))
        for part in (functions[:middle], functions[middle:])
    )
    before = f"<section class=plain>{listing(lines[opening : first - 1])}</section>{before}"
    after += f"<section class=plain>{listing(lines[functions[-1].end_lineno or 0 :])}</section>"
    return (
        f"<header><h1>{escape(title)}</h1><div class=columns><div class=words>{prose(words)}</div>"
        f"{beside}</div></header><main>"
        f"<div class=rest>{before}</div>"
        "<p class=way><span>forward: read down ↓</span><span>backward: read up ↑</span></p>"
        f"{''.join(pairs)}<div class=rest>{after}{at_end}</div></main>"
        f"<footer>{len(lines)} lines of Python and NumPy · npformer</footer>"
    )


def prose(words: list[str]) -> str:
    """Return the text as HTML paragraphs. Indented text keeps its line breaks."""
    said = []
    for part in "\n".join(words).strip("\n").split("\n\n"):
        tag = "pre" if part.startswith(" ") else "p"
        said.append(f"<{tag}>{escape(textwrap.dedent(part))}</{tag}>")
    return "".join(said)


def turn(function: ast.FunctionDef) -> ast.FunctionDef | None:
    return next((node for node in function.body if isinstance(node, ast.FunctionDef)), None)


def pair(function: ast.FunctionDef, lines: list[str]) -> str:
    """Return a function and its `backward` as HTML cells in file order.

    On a wide screen the style sheet puts cells with the same number next to each other.
    """
    inner = turn(function)
    assert inner is not None
    start, end, last = inner.lineno - 1, inner.end_lineno or 0, function.end_lineno or 0
    top = function.body[0].end_lineno or 0
    forward, backward = grouped(lines[top:start]), grouped(lines[start + 1 : end])
    rows = {number: row for row, number in enumerate(sorted({n for n, _ in forward + backward if n}), 2)}
    bottom = len(rows) + 2
    cells = [cell(code, rows.get(number, 1), 1, number) for number, code in forward]
    cells.append(cell(lines[end:last], bottom, 1))
    cells.append(cell([lines[start]], bottom, 2))
    cells += [cell(code, rows.get(number, 1), 2, number) for number, code in backward]
    said = escape(ast.get_docstring(function) or "")
    head = f"<h2>{colour(lines[function.lineno - 1])}</h2><p class=equation>{said}</p>"
    return f"<section class=pair>{head}<div class=lines>{''.join(cells)}</div></section>"


def grouped(lines: list[str]) -> list[tuple[str, list[str]]]:
    """Group neighbouring lines with the same number. The number of a line without a number is ""."""
    groups: list[tuple[str, list[str]]] = []
    for line in lines:
        found = NUMBER.match(line.partition("  # ")[2])
        number = found[1] if found else ""
        if not groups or groups[-1][0] != number:
            groups.append((number, []))
        groups[-1][1].append(line)
    return groups


def cell(lines: list[str], row: int, column: int, number: str = "") -> str:
    """Return lines of code as one HTML cell: first the number, then each line with its shape on the right."""
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    said = []
    for line in lines:
        code, _, comment = line[margin:].partition("  # ")
        shape = NUMBER.sub("", comment)
        said.append(
            f"<span class=code>{colour(code.rstrip())}</span><i></i><span class=shape>{escape(shape)}</span>"
        )
    badge = f"<b>{number}</b>" if number else ""
    side = "forward" if column == 1 else "backward"
    inner = "".join(f"<div class=line>{line}</div>" for line in said)
    return f'<div class="cell {side}" style="--row:{row}">{badge}<div class=code-lines>{inner}</div></div>'


def plain(function: ast.FunctionDef, lines: list[str]) -> str:
    """Return a function without a `backward` as HTML."""
    top, said = function.body[0].end_lineno or 0, escape(ast.get_docstring(function) or "")
    head = f"<h2>{colour(lines[function.lineno - 1])}</h2><p class=equation>{said}</p>"
    return f"<section class=plain>{head}{listing(lines[top : function.end_lineno])}</section>"


def listing(lines: list[str]) -> str:
    """Return lines of code as HTML, with their comments on the right."""
    said = []
    for line in lines:
        code, _, comment = line.partition("  # ")
        shape = f"<i></i><span class=shape>{escape(comment)}</span>" if comment else ""
        said.append(f"<div class=line><span class=code>{colour(code.rstrip()) or ' '}</span>{shape}</div>")
    return "".join(said)


def colour(code: str) -> str:
    """Mark gradients, keywords and strings with the classes of the style sheet.

    A name such as dffn counts as a gradient if a name in one_page.py begins with ffn.
    """
    out = []
    for kind, text in PythonLexer(stripnl=False, ensurenl=False).get_tokens(code):
        name = ""
        if kind in Name and text[0] == "d" and text[1:] and any(n.startswith(text[1:]) for n in NAMES):
            name = "g"
        elif kind in Keyword or text in ("def", "in", "not", "and"):
            name = "k"
        elif kind in String or kind in Comment:
            name = "s"
        out.append(f'<span class="{name}">{escape(text)}</span>' if name else escape(text))
    return "".join(out)


def a_run() -> tuple[str, str]:
    """Run the one-page program.

    Return its printed output and a picture of the attention in its last block.
    """
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        weights = one_page.main()
    return printed.getvalue().rstrip(), picture(weights)


def picture(weights: list[np.ndarray]) -> str:
    """Draw the attention weights of the last block: a row per output letter, a column per input letter."""
    n, line = one_page.N, WORD.rjust(one_page.N) + "|" + one_page.say(WORD, weights)
    ids = np.array([[one_page.LETTERS.index(letter) for letter in line.ljust(2 * one_page.N)]])
    x = weights[0][ids] * sqrt(weights[0].shape[1]) + one_page.positions(2 * n, weights[0].shape[1])
    *earlier, (W_Q, W_K) = [weights[i : i + 2] for i in range(1, len(weights), 12)]
    for i in range(len(earlier)):
        x, _ = one_page.block(x, *weights[1 + 12 * i : 13 + 12 * i])
    Q, K = x[:, None] @ W_Q, x[:, None] @ W_K
    later = np.where(np.tri(2 * n), 0, -np.inf)
    A = one_page.softmax(Q @ K.mT / sqrt(W_K.shape[-1]) + later)[0]  # (h, 2N, 2N)
    said, read = line[n + 1 :], range(n - len(WORD), n)
    squares = A[:, n : n + len(WORD), n - len(WORD) : n].mean(0)
    return drawing(squares, said, "".join(line[i] for i in read))


def drawing(squares: np.ndarray, said: str, read: str) -> str:
    side, edge = 10, 16
    size = edge + side * len(read)
    marks = [
        f'<rect x="{edge + side * j}" y="{edge + side * i}" width="{side - 1}" height="{side - 1}" '
        f'fill="#0072b2" fill-opacity="{max(0.05, value):.2f}"/>'
        for (i, j), value in np.ndenumerate(squares)
    ]
    for k, (a, b) in enumerate(zip(read, said, strict=True)):
        at = edge + side * (k + 0.5)
        marks += [
            f'<text x="{at}" y="{edge - 4}">{a}</text>',
            f'<text x="{edge - 6}" y="{at + 3}">{b}</text>',
        ]
    words = "Where the last block looks as it says the word: from the last letter to the first"
    return (
        f'<figure class=look><svg viewBox="0 0 {size} {size}" role="img" aria-label="{words}">'
        f"{''.join(marks)}</svg>"
        f"<figcaption>It says <b>{said}</b>, a letter a row, and looks at <b>{read}</b>: "
        "nobody told it where.</figcaption></figure>"
    )
