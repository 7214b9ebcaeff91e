"""A folder of hostile, broken and odd submissions, each with what must come out of it.

Most are read from hostile.txt, which says how; here are those that text cannot hold.
"""

import json
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

from honest import notebook

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


def with_table(body):
    return START + textwrap.indent(body, "    ") + SOFTMAX


RIGHT, ZEROS = with_table(RIGHT_TABLE), with_table("return np.zeros((n, d_model))")
ROOT = str(Path(__file__).resolve().parents[2])
BLOCK = re.compile(r"^=== (\S+) (before|after|table|whole)(.*)\n((?:(?!===|# ---).*\n)*)", re.MULTILINE)
WRONG, NONE = {"known_mistake", "ambiguous", "unrecognised", "error"}, {"not answered", "not read"}
STATUSES = {"pass": {"pass", "pass_variant"}, "wrong": WRONG, "none": NONE}
STATUSES |= {"not_right": WRONG | NONE, "any": WRONG | NONE | {"pass"}}
LOST = ("none", "none", "none")  # the file cannot be read to its end


class Case(NamedTuple):
    """A file and what comes out: for each exercise which of STATUSES."""

    text: str | bytes
    allowed: tuple[str, ...] = ("pass", "wrong", "pass")
    flags: frozenset[str] = frozenset()


def cases():
    """Every case by the name of its file."""
    named = {}
    for name, place, words, code in BLOCK.findall(Path(__file__).with_suffix(".txt").read_text("utf-8")):
        code = code.rstrip("\n")
        makers = {"before": f"{code}\n{ZEROS}", "after": f"{ZEROS}\n{code}", "table": with_table(code)}
        said = dict(word.split("=") for word in words.split() if "=" in word)
        flags = frozenset(word for word in words.split() if "=" not in word)
        usual = {"bag": "pass", "table": "wrong", "softmax": "pass"}
        text = makers.get(place) or code.replace("{zeros}", ZEROS).replace("{softmax}", SOFTMAX)
        allowed = LOST if "lost" in flags else tuple((usual | said).values())
        named[name if "." in name else f"{name}.py"] = Case(text, allowed, flags)
    return named | FILES


V3 = json.dumps({"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": [ZEROS]}]}]})
MAGIC = [
    "%matplotlib inline\n!ls\nimport numpy as np",
    "%%time\norder_bag = 'b'",
    "?np.sin\nnp.cos?\nfiles = !ls\n!ls \\\n  -la",
    ZEROS[ZEROS.index("def pe_table") :],
    "%%bash\nexit 1",
    "%time x = 1",
]
NAMES = (
    "numpy.py", "json.py", "sitecustomize.py", "npformer.py", "UPPER.PY", "with space & quote'.py", "-rf.py",
    "=1+1.py", "%s{}.py", "two\nlines.py", "sub/numpy.py",
)  # fmt: skip
FILES = {name: Case(ZEROS) for name in NAMES} | {
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
    "minus.py": Case("x = " + "-" * 100_000 + "1\n" + ZEROS, LOST),
    "deep.ipynb": Case("[" * 100_000, LOST),
    "magic.ipynb": Case(notebook(*MAGIC)),
    "bad_cell.ipynb": Case(notebook("import numpy as np", "def f(:", "1 / 0", ZEROS)),
    "version3.ipynb": Case(V3, LOST),
    "utf16.ipynb": Case(notebook("# é", ZEROS).decode().encode("utf-16")),
    "UPPER.IPYNB": Case(notebook(ZEROS)),
    "exits.ipynb": Case(notebook("import sys; sys.exit()", ZEROS)),
    "plots.py": Case("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\n" + ZEROS),
}
FEW = ("numpy.py", "two\nlines.py", "bad_cell.ipynb", "too_large_a_file.py")  # of these


def encoded(text, **places):
    """The bytes of a file, with the places that it is to try."""
    if isinstance(text, bytes):
        return text
    for key, value in places.items():
        text = text.replace(f"{{{key}!r}}", repr(value))
    return text.encode("utf-8", "surrogatepass")


def write(folder, *, out, port=9, good=0, few=False):
    """Write the files, or a few of each kind, and some good ones: {name: Case}."""
    expected = {n: case for n, case in cases().items() if not few or n in FEW or "few" in case.flags}
    for name, case in expected.items():
        path = Path(folder, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(encoded(case.text, root=ROOT, folder=str(folder), out=str(out), port=port))
    for i in range(good):
        Path(folder, f"good_{i:03}.py").write_text(f"student = 'Student {i}'\n{RIGHT}", encoding="utf-8")
        expected[f"good_{i:03}.py"] = Case("", ("pass",) * 3)
    return expected
