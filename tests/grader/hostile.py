"""A folder of hostile, broken and odd submissions, and the allowed results of each submission.

Most submissions are in hostile.txt, which explains its format. This module has the submissions that are not
plain text.
"""

import json
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

from honest import make_notebook

IDS = ("order.bag", "pe.table", "softmax.forward")
START = 'import numpy as np\norder_bag = "b"\n\ndef pe_table(n, d_model):\n'
RIGHT_TABLE = """
j = np.arange(d_model)
angles = np.arange(n)[:, None] / 10000 ** (2 * (j // 2) / d_model)
return np.where(j % 2 == 0, np.sin(angles), np.cos(angles))
"""
SOFTMAX = """
def softmax_forward(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
"""


def make_file(table_body):
    """Return a file with a correct letter, a correct softmax, and this body of `pe_table`."""
    return START + textwrap.indent(table_body, "    ") + SOFTMAX


RIGHT = make_file(RIGHT_TABLE)
ZEROS = make_file("return np.zeros((n, d_model))")
ROOT = str(Path(__file__).resolve().parents[2])
BLOCK = re.compile(r"^=== (\S+) (before|after|table|whole)(.*)\n((?:(?!===|# ---).*\n)*)", re.MULTILINE)

WRONG = {"known_mistake", "ambiguous", "unrecognised", "error"}
NO_ANSWER = {"not answered", "not read"}
STATUSES = {  # each word in hostile.txt, and the statuses of a row that it allows
    "pass": {"pass", "pass_variant"},
    "wrong": WRONG,
    "none": NO_ANSWER,
    "not_right": WRONG | NO_ANSWER,
    "any": WRONG | NO_ANSWER | {"pass"},
}
USUAL = {"bag": "pass", "table": "wrong", "softmax": "pass"}
LOST = ("none", "none", "none")  # no answers: the grader cannot read these files to the end


class Case(NamedTuple):
    """A file, and for each exercise the key of STATUSES that lists the allowed statuses."""

    text: str | bytes
    allowed: tuple[str, ...] = tuple(USUAL.values())
    flags: frozenset[str] = frozenset()


def read_cases():
    """Return {file name: case} for hostile.txt and FILES."""
    cases = {}
    for name, position, words, code in BLOCK.findall(Path(__file__).with_suffix(".txt").read_text("utf-8")):
        file_name = name if "." in name else f"{name}.py"
        exceptions = dict(word.split("=") for word in words.split() if "=" in word)
        flags = frozenset(word for word in words.split() if "=" not in word)
        allowed = LOST if "lost" in flags else tuple((USUAL | exceptions).values())
        cases[file_name] = Case(place_code(position, code.rstrip("\n")), allowed, flags)
    return cases | FILES


def place_code(position, code):
    """Insert the code into a file of answers at the place that `position` names."""
    if position == "before":
        return f"{code}\n{ZEROS}"
    if position == "after":
        return f"{ZEROS}\n{code}"
    if position == "table":
        return make_file(code)
    return code.replace("{zeros}", ZEROS).replace("{softmax}", SOFTMAX)


VERSION_3 = json.dumps({"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": [ZEROS]}]}]})
MAGIC_CELLS = [
    "%matplotlib inline\n!ls\nimport numpy as np",
    "%%time\norder_bag = 'b'",
    "?np.sin\nnp.cos?\nfiles = !ls\n!ls \\\n  -la",
    ZEROS[ZEROS.index("def pe_table") :],
    "%%bash\nexit 1",
    "%time x = 1",
]
ODD_NAMES = (
    "numpy.py", "json.py", "sitecustomize.py", "npformer.py", "UPPER.PY", "with space & quote'.py", "-rf.py",
    "=1+1.py", "%s{}.py", "two\nlines.py", "sub/numpy.py",
)  # fmt: skip
FILES = {name: Case(ZEROS) for name in ODD_NAMES} | {
    "bom.py": Case(b"\xef\xbb\xbf" + ZEROS.encode()),
    "utf16.py": Case(("# é\n" + ZEROS).encode("utf-16")),
    "utf16_no_mark.py": Case(ZEROS.encode("utf-16-le"), LOST),
    "latin1.py": Case(("# Zoë\n" + ZEROS).encode("latin-1")),
    "cookie.py": Case(("# coding: latin-1\n# Zoë\n" + ZEROS).encode("latin-1")),
    "no_cookie.py": Case(("# coding: klingon\n" + ZEROS).encode()),
    "nul.py": Case("x = 1\0", LOST),
    "binary.py": Case(bytes(range(256)) * 50, LOST),
    "too_large_a_file.py": Case(b"#" * (2**24 + 1), LOST),
    "crlf.py": Case(ZEROS.replace("\n", "\r\n").encode()),
    "nested.py": Case("x = " + "(" * 5000 + "\n", LOST),
    "minus.py": Case("x = " + "-" * 100_000 + "1\n" + ZEROS),
    "deep.ipynb": Case("[" * 100_000, LOST),
    "magic.ipynb": Case(make_notebook(*MAGIC_CELLS)),
    "bad_cell.ipynb": Case(make_notebook("import numpy as np", "def f(:", "1 / 0", ZEROS)),
    "version3.ipynb": Case(VERSION_3, LOST),
    "utf16.ipynb": Case(make_notebook("# é", ZEROS).decode().encode("utf-16")),
    "UPPER.IPYNB": Case(make_notebook(ZEROS)),
    "exits.ipynb": Case(make_notebook("import sys; sys.exit()", ZEROS)),
    "plots.py": Case("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\n" + ZEROS),
}
# `write_class` writes these files even when `few` is true.
FEW_FILES = ("numpy.py", "two\nlines.py", "bad_cell.ipynb", "too_large_a_file.py")


def encode(text, **places):
    """Return the bytes of a file; `places` are the paths and ports that replace the placeholders in it."""
    if isinstance(text, bytes):
        return text
    for key, value in places.items():
        text = text.replace(f"{{{key}!r}}", repr(value))
    return text.encode("utf-8", "surrogatepass")


def write_class(folder, *, out, port=9, correct_files=0, few=False):
    """Write all hostile files (or a few), and some correct files. Return {file name: case}."""
    cases = read_cases()
    if few:
        cases = {name: case for name, case in cases.items() if name in FEW_FILES or "few" in case.flags}
    for name, case in cases.items():
        path = Path(folder, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encode(case.text, root=ROOT, folder=str(folder), out=str(out), port=port))
    for i in range(correct_files):
        name = f"good_{i:03}.py"
        Path(folder, name).write_text(f"student = 'Student {i}'\n{RIGHT}", encoding="utf-8")
        cases[name] = Case("", ("pass",) * 3)
    return cases
