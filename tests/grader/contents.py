"""Honest submissions with a line that the grader cannot run, and the answers that must still be correct.

Each submission answers three exercises. The grader skips at most the statement that contains the line. So the
set `due` contains the exercises whose answers do not depend on this statement.
"""

import textwrap
from typing import NamedTuple

from honest import make_notebook
from hostile import IDS, RIGHT_TABLE, SOFTMAX

NUMPY = "import numpy as np\n"
BAG = "order_bag = 'b'\n"
TABLE = "def pe_table(n, d_model):\n" + RIGHT_TABLE.strip().replace("\n", "\n    ").join(["    ", "\n"])
SOFTMAX_BODY = SOFTMAX.partition(":\n")[2]
ANSWERS = BAG + TABLE + SOFTMAX
ALL = frozenset(IDS)
NOT_BAG = ALL - {"order.bag"}
NOT_SOFTMAX = ALL - {"softmax.forward"}


class Content(NamedTuple):
    """A submission, the exercises whose answers must be correct, and a part of the reported problem."""

    text: str | tuple[str, ...]  # a .py file, or the cells of a notebook
    due: frozenset[str] = ALL
    problem: str = ""
    files: tuple[tuple[str, bytes], ...] = ()  # the student's other files

    @property
    def name(self):
        return "hw1.py" if isinstance(self.text, str) else "hw1.ipynb"

    @property
    def data(self):
        return self.text.encode() if isinstance(self.text, str) else make_notebook(*self.text)


def make_module(body):
    """Return the other files of a student: only a module with this text."""
    return (("helper.py", body.encode()),)


COLAB = "from google.colab import drive\ndrive.mount('/content/drive')\n"
HELPER = make_module(NUMPY + TABLE + SOFTMAX)
CONTENTS = {
    # modules that are not installed
    "colab above numpy in one cell": Content(
        (COLAB + NUMPY, ANSWERS),
        problem="line 2: ModuleNotFoundError: google.colab is not installed here; the",
    ),
    "colab above numpy in a file": Content(
        COLAB + NUMPY + ANSWERS,
        problem="line 2: ModuleNotFoundError: google.colab is not installed here; the",
    ),
    "unused torch": Content(
        "import torch\n" + NUMPY + ANSWERS, problem="line 1: torch is not installed here."
    ),
    "unused names of torch": Content(
        "import torch.nn.functional as F\nfrom torch import nn, Tensor\n" + NUMPY + ANSWERS,
        problem="line 1: torch.nn.functional is not installed here.",
    ),
    "torch beside numpy in one import": Content(
        "import torch, numpy as np\n" + ANSWERS, problem="line 1: torch is not installed here."
    ),
    "torch in an annotation": Content(
        ("import torch", NUMPY, ANSWERS.replace("(scores)", "(scores: torch.Tensor) -> torch.Tensor", 1)),
        problem="code cell 1, line 1: torch is not installed here.",
    ),
    "torch in one answer": Content(
        "import torch\n" + NUMPY + BAG + TABLE + "def softmax_forward(s): return torch.softmax(s, -1)\n",
        NOT_SOFTMAX,
        "line 1: torch is not installed here.",
    ),
    "torch in an answer that does not use it": Content(
        NUMPY
        + BAG
        + TABLE
        + "def softmax_forward(scores):\n    import torch, torch.nn as nn\n"
        + SOFTMAX_BODY,
        problem="line 8: torch is not installed here. line 8: torch.nn is not installed here.",
    ),
    "torch in a draft": Content(
        NUMPY + "class Draft:\n    async def run(self):\n        from torch import nn\n" + ANSWERS
    ),
    "torch in an answer that uses it": Content(
        NUMPY + BAG + TABLE + "def softmax_forward(s):\n    import torch\n    return torch.softmax(s, -1)\n",
        NOT_SOFTMAX,
        "line 8: torch is not installed here.",
    ),
    "torch in an answer if it is installed": Content(
        NUMPY + BAG + TABLE + "def softmax_forward(scores):\n"
        "    try:\n        from torch import softmax\n        return softmax(s, -1)\n    except ImportError:\n"
        "        pass\n" + SOFTMAX_BODY
    ),
    "input in an answer": Content(
        NUMPY + BAG + TABLE + "def softmax_forward(scores):\n    input('go? ')\n" + SOFTMAX_BODY,
        problem="input() returned an empty text",
    ),
    "torch if it is installed": Content(
        "try:\n    import torch\nexcept ImportError:\n    torch = None\n" + NUMPY + ANSWERS
    ),
    "annotations of unknown names": Content(
        NUMPY
        + "class Pair:\n    def first(self, x: Vector): ...\nasync def wait(x: Vector): ...\n"
        + ANSWERS.replace("(scores)", "(scores: np.Tensor) -> Optional[Vector]"),
        problem="line 3: an annotation was ignored (NameError: name 'Vector' is not defined). line 4: an",
    ),
    "an annotation and a default that fail": Content(
        NUMPY + BAG + TABLE + SOFTMAX.replace("(scores)", "(scores: Vector, axis=AXIS)"),
        NOT_SOFTMAX,
        "NameError: name 'AXIS' is not defined; the statement was skipped.",
    ),
    # statements that fail
    "a failed plot": Content(
        NUMPY + "picture = open('picture.png')\npicture.read()\n" + ANSWERS,
        problem="line 3: NameError: name 'picture' is not defined because line 2 failed; the statement was skipped.",
    ),
    "a failed test of their own": Content(
        NUMPY + TABLE + "assert pe_table(2, 4).sum() == 0\n" + BAG + SOFTMAX,
        problem="line 6: AssertionError; the",
    ),
    "a failed constant": Content(
        NUMPY + "LETTERS = open('letters.txt').read()\norder_bag = LETTERS[0]\n" + TABLE + SOFTMAX,
        NOT_BAG,
        "line 3: NameError: name 'LETTERS' is not defined because line 2 failed;",
    ),
    "an answer of a failed name": Content(
        NUMPY
        + "SCALE = open('scale.txt').read()\n"
        + BAG
        + TABLE
        + "def softmax_forward(s): return s * SCALE\n",
        NOT_SOFTMAX,
        "line 2: FileNotFoundError",
    ),
    "sys.exit in the middle": Content(
        NUMPY + BAG + "import sys\nsys.exit()\n" + TABLE + SOFTMAX, problem="SystemExit"
    ),
    # lines that are not Python
    "a syntax error in one function": Content(
        NUMPY + "def draft(x):\n    return x +\n\n" + ANSWERS,
        problem="line 3: this is not Python yet (invalid syntax)",
    ),
    "a syntax error in one cell": Content(
        (NUMPY + BAG + "x = = 3\n" + TABLE, SOFTMAX), problem="code cell 1, line 3: this is not Python yet"
    ),
    "an answer that is not Python": Content(
        NUMPY + "order_bag = b'\n" + TABLE + SOFTMAX, NOT_BAG, "line 2: this is not Python yet"
    ),
    "a bracket that is not closed": Content(
        NUMPY + "x = np.zeros((2, 3)\n" + ANSWERS,
        problem="line 2: this is not Python yet ('(' was never closed)",
    ),
    "a line with wrong indentation": Content(
        NUMPY + "  x = 3\n" + ANSWERS, problem="line 2: this is not Python yet (unexpected indent)"
    ),
    "print of Python 2": Content(
        NUMPY + "print 'done'\n" + ANSWERS, problem="line 2: this is not Python yet"
    ),
    "text that is no comment": Content(
        "Homework 1, Ada\n" + NUMPY + ANSWERS, problem="line 1: this is not Python yet"
    ),
    "a list of several lines above an error": Content(
        NUMPY + "x = [\n1,\n2,\n]\ny = '''\nz = = 1\n'''\nelse\n" + ANSWERS,
        problem="line 9: this is not Python yet",
    ),
    # what notebooks can do
    "await in a cell": Content(("import asyncio\nawait asyncio.sleep(0)\n" + NUMPY, ANSWERS)),
    "input in a cell": Content(
        ("student = input('Your name: ')\n" + NUMPY, ANSWERS), problem="input() returned an empty text"
    ),
    "a number from input": Content(
        NUMPY + "n = int(input('n: '))\n" + ANSWERS, problem="line 2: ValueError: invalid literal"
    ),
    "a question without end": Content(
        NUMPY + "while input('go? ') != 'y':\n    pass\n" + ANSWERS,
        problem="line 2: EOFError: input() was called",
    ),
    "line magics in a file": Content(
        "%matplotlib inline\n%load_ext autoreload\n!pip install torch\n"
        + NUMPY
        + ANSWERS
        + "%timeit pe_table(2, 4)\n"
    ),
    "a magic of a cell in a file": Content(NUMPY + BAG + "%%time\n" + TABLE + SOFTMAX),
    "a magic beside a syntax error": Content(
        (NUMPY + "def draft(:\n%time order_bag = 'b'\n" + TABLE + SOFTMAX,),
        problem="code cell 1, line 2: this is",
    ),
    "writefile and import": Content(
        (
            "%%writefile helper.py\n" + NUMPY + TABLE,
            "%%writefile -a helper.py\n" + SOFTMAX,
            BAG + "from helper import *",
        )
    ),
    "writefile and run": Content(("%%file 'my answers.py'\n" + NUMPY + ANSWERS, "%run -i 'my answers.py'")),
    # the student's other files
    "a module": Content(NUMPY + BAG + "from helper import pe_table, softmax_forward\n", files=HELPER),
    "a module with an error": Content(
        NUMPY + BAG + "import helper\npe_table, softmax_forward = helper.pe_table, helper.softmax_forward\n",
        problem="helper.py, line 1: torch is not installed here.",
        files=make_module("import torch\nx = = 3\n" + NUMPY + TABLE + SOFTMAX),
    ),
    "a module that runs": Content((BAG, "%run helper"), files=HELPER),
    "a module that is written again": Content(
        ("%%writefile helper.py\n" + NUMPY + ANSWERS, "from helper import *"),
        files=make_module("pe_table = 3"),
    ),
    "a module in a package": Content(
        BAG + "from tools.helper import pe_table, softmax_forward\n",
        files=(("tools/__init__.py", b""), ("tools/helper.py", HELPER[0][1])),
    ),
    "a table of data": Content(
        NUMPY
        + "from pathlib import Path\norder_bag = Path('data/letters.csv').read_text()[2]\nw = np.loadtxt('w.txt')\nw[0]\n"
        + TABLE
        + SOFTMAX,
        files=(("data/letters.csv", b"a,b"), ("w.txt", b"1 2")),
    ),
    "copies that are read-only": Content(
        NUMPY + "import os\norder_bag = 'a' if os.stat('w.txt').st_mode & 0o222 else 'b'\n" + TABLE + SOFTMAX,
        files=(("w.txt", b"1"), ("w.txt/x.py", b"the name of a file cannot be a folder"), ("x" * 300, b"")),
    ),
    "writefile in a new folder": Content(
        ("!mkdir own", "%%writefile own/steps.py\n" + NUMPY + ANSWERS, "%run own/steps.py")
    ),
    "data after a change of the folder": Content(
        ("%cd data\n" + NUMPY + "order_bag = np.loadtxt('letters.csv', str).item()", TABLE + SOFTMAX),
        files=(("data/letters.csv", b"b"),),
    ),
    "answers of a program in a notebook": Content(
        (NUMPY + BAG, "if __name__ == '__main__':\n" + textwrap.indent(TABLE + SOFTMAX, "    "))
    ),
    "a magic without a file": Content(
        ("%run\n" + NUMPY, ANSWERS),
        problem="line 1: ValueError: the magic names no file; the statement was skipped.",
    ),
    "a loop that imports": Content(
        NUMPY + "for i in range(2):\n    import torch\n" + ANSWERS,
        problem="line 3: ModuleNotFoundError: No module named",
    ),
    "a decorator that is missing": Content(
        "from numba import njit\n" + NUMPY + BAG + TABLE + "@njit\n" + SOFTMAX.strip() + "\n",
        NOT_SOFTMAX,
        "numba is not installed here",
    ),
    "a missing module that is inspected": Content(
        "import torch\nprint(hasattr(torch, '__version__'))\nfrom torch import *\n" + NUMPY + ANSWERS,
        problem="line 1: torch is not installed here. line 3: torch is not installed here.",
    ),
    "a name that numpy lacks": Content(
        "from numpy import float_, array\n" + NUMPY + BAG + TABLE + SOFTMAX + "array(1)\nfloat_(1)\n",
        problem="is not defined because line 1 failed; the statement was skipped.",
    ),
    "branches above an error": Content(
        NUMPY + "if np.pi < 3:\n    x = 1\nelif np.pi > 4:\n    x = 2\nelse:\n    x = 3\ntry:\n    x / 0\n"
        "except ZeroDivisionError:\n    LETTER = 'ab'[x - 2]\ny = = 1\norder_bag = LETTER\n"
        + TABLE
        + SOFTMAX,
        problem="line 12: this is not Python yet",
    ),
    "a branch that is not Python": Content(
        NUMPY + "if np.pi > 3:\n    order_bag = 'b'\nelse:\n    x = = 1\n" + TABLE + SOFTMAX,
        problem="line 4: this is not Python yet",
    ),
    "a return at the top level": Content(
        NUMPY + BAG + "return order_bag\n" + TABLE + SOFTMAX,
        problem="line 3: this is not Python yet ('return' outside",
    ),
    "a bracket that is not closed at the end": Content(
        NUMPY + ANSWERS + "x = (1,\n\n", problem="this is not Python yet ('(' was never closed)"
    ),
    "a file that is missing": Content(
        NUMPY + "%run other.py\nfrom answers_of_ada import f\n" + ANSWERS,
        problem="line 2: FileNotFoundError: [Errno 2] No such file or directory: 'other.py'; the statement was skipped.",
    ),
    # lines that change the meaning of other lines
    "annotations of the future": Content(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass P:\n    next: P | None = None\n" + NUMPY + ANSWERS
    ),
    "a decorator of their own": Content(
        "def same(f):\n    return f\n@same\n" + TABLE + NUMPY + "x = = 3\n" + BAG + SOFTMAX,
        problem="this is not Python yet",
    ),
}
