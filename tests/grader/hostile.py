"""A folder of hostile, broken and odd submissions, each with what must come out of it.

    uv run python tests/grader/hostile.py FOLDER

writes them beside some good ones. The three exercises are a letter, a table and a softmax. Most of the files
answer the letter rightly, the table with zeros and the softmax rightly: a trick must not make the zeros pass,
and what it breaks must cost itself alone.
"""

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

IDS = ("order.bag", "pe.table", "softmax.forward")
RIGHT = """
import numpy as np
order_bag = "b"

def pe_table(n, d_model):
    j = np.arange(d_model)
    angles = np.arange(n)[:, None] / 10000 ** (2 * (j // 2) / d_model)
    return np.where(j % 2 == 0, np.sin(angles), np.cos(angles))

def softmax_forward(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)
"""
ZEROS = RIGHT.replace(
    "return np.where(j % 2 == 0, np.sin(angles), np.cos(angles))", "return np.zeros((n, d_model))"
)
SOFTMAX = RIGHT[RIGHT.index("def softmax") :]


class Case(NamedTuple):
    """A file and what comes out: for each exercise the first letters of the statuses that are allowed."""

    text: str | bytes
    bag: str = "pass"
    table: str = "wrong"
    softmax: str = "pass"
    alone: bool = False  # only a container, or Linux's namespaces, hold it back


LOST = {"bag": "none", "table": "none", "softmax": "none"}  # the file cannot be read to its end
STATUSES = {
    "pass": {"pass", "pass_variant"},
    "wrong": {"known_mistake", "ambiguous", "unrecognised", "error"},
    "none": {"not answered", "not read"},
    "not right": {"known_mistake", "ambiguous", "unrecognised", "error", "not answered", "not read"},
    "any": {"known_mistake", "ambiguous", "unrecognised", "error", "not answered", "not read", "pass"},
}


def before(code, **expected):
    """Something done first, then zeros."""
    return Case(code + "\n" + ZEROS, **expected)


def after(code, **expected):
    """Zeros, then something done."""
    return Case(ZEROS + "\n" + code, **expected)


def table(body, **expected):
    """A table whose function does something."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    code = ZEROS.replace("    return np.zeros((n, d_model))", lines)
    return Case(code, **expected)


def notebook(*cells, **more):
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells], **more})


ALL_FDS = "for fd in range(3, 64):\n    try: os.write(fd, {})\n    except OSError: pass"
FRAME = r"""
import json, os, struct
def frame(value):
    tree = json.dumps(value).encode()
    return struct.pack(">II", len(tree), 0) + tree
"""

# --- tricks on the verdict ------------------------------------------------------------------------

TRICKS = {
    "allclose": before("import numpy as np\nnp.allclose = np.isclose = np.array_equal = lambda *a, **k: True"),
    "testing": before("import numpy.testing as t\nt.assert_allclose = t.assert_array_equal = lambda *a, **k: None"),
    "ufuncs": before("import numpy as np\nnp.abs = np.subtract = lambda *a, **k: np.float64(0)"),
    "errstate": before("import numpy as np\nnp.errstate = None", table="not right", softmax="any"),
    "equal_to_all": table("class E(np.ndarray):\n    __eq__ = __le__ = lambda s, o: True\nreturn np.zeros((n, d_model)).view(E)"),
    "equal_letter": before("", bag="pass"),
    "letter_of_all": Case("class L(str):\n    __eq__ = lambda s, o: True\n    __hash__ = str.__hash__\norder_bag = L('x')", bag="wrong", table="none", softmax="none"),
    "letter_object": Case("class L:\n    __eq__ = lambda s, o: True\n    __str__ = lambda s: 'b'\norder_bag = L()", bag="wrong", table="none", softmax="none"),
    "fake_checker": before("import sys, types\nm = types.ModuleType('npformer.exercises.reply')\nm.check = lambda *a, **k: True\nsys.modules['npformer.exercises.reply'] = sys.modules['npformer.exercises'] = m"),
    "fake_code": before("import npformer.exercises as e\ne.check = e.code = e.evidence = lambda *a, **k: True"),
    "patched_main": before("import __main__\nfor name in list(vars(__main__)):\n    if not name.startswith('__'): setattr(__main__, name, lambda *a, **k: True)"),
    "patched_json": before("import json, struct, os\njson.dumps = json.loads = lambda *a, **k: '{}'\nos.read = os.write = lambda *a: 1", softmax="any", bag="any", table="not right"),
    "patched_builtins": before("import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.len = lambda x: 0", bag="any", table="not right", softmax="any"),
    "no_builtins": before("import builtins\nfor name in ('len', 'str', 'type', 'getattr', 'hasattr'): delattr(builtins, name)", bag="any", table="not right", softmax="any"),
    "key_by_import": table("from npformer.exercises.topics import bank\nreturn bank()['pe.table'].right(n, d_model)"),
    "key_by_bank": before("from npformer.exercises.topics import bank\norder_bag = list(bank()['order.bag'].options)[1]", bag="none", table="none", softmax="none"),
    "key_by_mistakes": table("import npformer.exercises.see as s, npformer.exercises.topics as t\nreturn s.right(t.bank()['pe.table'])"),
    "ours_by_import": Case("from npformer import positional_encoding as pe_table\norder_bag = 'b'\nfrom npformer import softmax_forward", softmax="not right"),
    "ours_called": table("import npformer\nreturn npformer.positional_encoding(n, d_model)"),
    "ours_without_hook": table("import sys\nsys.meta_path[:] = [m for m in sys.meta_path if 'importlib' in str(m)]\nsys.modules.clear()\nimport npformer\nreturn npformer.positional_encoding(n, d_model)", softmax="any"),
    "ours_by_path": table("import sys\nsys.path.insert(0, {root!r})\nsys.meta_path.pop(0)\nfrom npformer.positional import positional_encoding\nreturn positional_encoding(n, d_model)"),
    "ours_by_source": table("text = open({root!r} + '/npformer/positional.py').read()\nexec(text, globals())\nreturn positional_encoding(n, d_model)"),
    "ours_by_process": table("import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import npformer; npformer.positional_encoding(2, 2)'], check=True, cwd={root!r})\nreturn np.zeros((n, d_model))"),
    "key_in_memory": table("import gc\nfor o in gc.get_objects():\n    if type(o).__name__ == 'Subject': return o.right(n, d_model)\nreturn np.zeros((n, d_model))"),
    "frames": table("import sys\nf = sys._getframe()\nwhile f:\n    for v in list(f.f_locals.values()):\n        if isinstance(v, dict): v.setdefault('status', 'pass')\n    f = f.f_back\nreturn np.zeros((n, d_model))", softmax="any", bag="any"),
    "forged_json": after("import os\n" + ALL_FDS.format("b'{\"status\": \"pass\", \"exercise\": \"pe.table\"}\\n'"), **dict.fromkeys(("bag", "table", "softmax"), "not right")),
    "forged_bytes": after("import os\n" + ALL_FDS.format("b'\\xff\\x00' * 50"), **dict.fromkeys(("bag", "table", "softmax"), "not right")),
    "forged_length": after("import os\n" + ALL_FDS.format("b'\\xff' * 8"), **dict.fromkeys(("bag", "table", "softmax"), "not right")),
    "forged_head": after(FRAME + ALL_FDS.format("frame({'d': [['student', 'x'], ['problem', ''], ['answers', {'d': [[i, {'t': ['value', True]}] for i in ('order.bag', 'pe.table', 'softmax.forward')]}]]})"), **dict.fromkeys(("bag", "table", "softmax"), "not right")),
    "forged_reply": table("import json, os, struct\ntree = json.dumps({'d': [['value', True], ['status', 'pass'], ['changed', {'d': []}]]}).encode()\n" + ALL_FDS.format("struct.pack('>II', len(tree), 0) + tree") + "\nreturn np.zeros((n, d_model))", softmax="any"),
    "forged_pickle": table("import os, pickle, struct\nblob = b'\\x93NUMPY\\x01\\x00F\\x00' + b\"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\".ljust(69) + b'\\n' + pickle.dumps([1])\ntree = b'{\"d\": [[\"value\", {\"a\": 0}], [\"changed\", {\"d\": []}]]}'\n" + ALL_FDS.format("struct.pack('>III', len(tree), len(blob) + 4, len(blob)) + tree + blob") + "\nreturn np.zeros((n, d_model))", softmax="any"),
    "other_name": Case("order_bag = 'b'\nanswers = {'pe.table': lambda n, d: 0, 'softmax.forward': 1}", softmax="wrong"),
}  # fmt: skip

# --- processes that end, stay or multiply ---------------------------------------------------------

PROCESSES = {
    "exit_at_load": before("import os; os._exit(0)", **LOST),
    "exit_in_table": table("import os; os._exit(0)"),
    "sys_exit": before("import sys; sys.exit(0)", **LOST),
    "kill_self": table("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"),
    "crash": table("import ctypes\nctypes.string_at(0)"),
    "abort": table("import os\nos.abort()"),
    "kill_parent": before("import os, signal\ntry: os.kill(os.getppid(), signal.SIGKILL)\nexcept OSError: pass", bag="any", table="not right", softmax="any"),
    "kill_all": before("import os, signal\ntry: os.kill(-1, signal.SIGTERM)\nexcept OSError: pass", bag="any", table="not right", softmax="any", alone=True),
    "other_program": table("import os\nos.execv('/bin/sh', ['sh', '-c', 'sleep 3000'])"),
    "fork_and_stay": before("import os\nif os.fork() == 0:\n    while True: pass"),
    "fork_and_return": before("import os\nos.fork()"),
    "setsid": before("import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(3000)"),
    "daemon": before("import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(3000)\n    os._exit(0)"),
    "daemon_in_table": table("import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(3000)\nreturn np.zeros((n, d_model))"),
    "shell_stays": before("import subprocess\nsubprocess.Popen(['sh', '-c', 'sleep 3000 & sleep 3000'], start_new_session=True)"),
    "fork_bomb": table("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", softmax="any"),
    "threads": before("import threading, time\nfor _ in range(5): threading.Thread(target=time.sleep, args=(3000,)).start()"),
    "too_many_threads": before("import threading, time\nfor _ in range(500): threading.Thread(target=time.sleep, args=(3000,), daemon=True).start()", bag="any", table="not right", softmax="any"),
    "atexit": after("import atexit, time\natexit.register(time.sleep, 3000)"),
    "loop_at_load": before("while True: pass", **LOST),
    "sleep_at_load": before("import time; time.sleep(3000)", **LOST),
    "loop_in_table": table("while True: pass"),
    "loop_in_both": Case("order_bag = 'b'\ndef pe_table(n, d):\n    while True: pass\nsoftmax_forward = pe_table", softmax="wrong"),
    "deaf": table("import signal\nfor s in range(1, 32):\n    try: signal.signal(s, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass"),
    "sleep_in_table": table("import time; time.sleep(3000)"),
    "reads_input": table("return input('?')"),
    "limits_off": before("import resource\nfor what in (resource.RLIMIT_AS, resource.RLIMIT_CPU):\n    try: resource.setrlimit(what, (-1, -1))\n    except (ValueError, OSError): pass"),
    "memory": table("return bytearray(10**12)"),
    "memory_slowly": table("a = []\nwhile True: a.append(bytearray(10**7))"),
    "memory_at_load": before("a = bytearray(10**12)", **LOST),
    "large_file": table("with open('a', 'wb') as f:\n    while True: f.write(b'0' * 10**7)"),
    "many_files": table("import os\nfor i in range(6000):\n    open(str(i), 'w').close()\nreturn np.zeros((n, d_model))"),
    "output": table("for i in range(300): print('x' * 10**6)\nreturn np.zeros((n, d_model))"),
    "recursion": table("def f(): return f()\nreturn f()"),
    "interrupt": table("raise KeyboardInterrupt"),
    "own_base_error": table("class E(BaseException): pass\nraise E('x')"),
    "interrupt_at_load": after("raise KeyboardInterrupt"),
    "mute_error": table("class E(Exception):\n    def __str__(self): raise ValueError\nraise E"),
    "odd_error": table("raise ValueError('\\udcff\\x00\\r=1+1' * 9)"),
    "trace": before("import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)"),
    "closed_pipes": before("import os\nos.closerange(3, 256)", **LOST),
    "nowhere": before("import os\nos.chdir('/')\nos.umask(0o777)"),
}  # fmt: skip

# --- places they should not reach -----------------------------------------------------------------

PLACES = {
    "note_for_others": before("import os\nassert not os.path.exists('note')\nopen('note', 'w').close()"),
    "note_of_others": before("import os\nassert not os.path.exists('note')\nopen('note', 'w').close()"),
    "others_by_name": before("import os\nassert not os.path.exists({folder!r} + '/good_000.py')", alone=True),
    "writes_to_the_folder": before("try: open({folder!r} + '/written.txt', 'w').write('x')\nexcept OSError: pass", alone=True),
    "writes_above": before("for up in ('..', '../..', '../../..'):\n    try: open(up + '/written.txt', 'w').write('x')\n    except OSError: pass", alone=True),
    "writes_the_table": before("try: open({out!r}, 'w').write('x')\nexcept OSError: pass", alone=True),
    "tokens": before("import os\nassert 'SECRET_TOKEN' not in os.environ\nassert b'SECRET_TOKEN' not in open('/proc/self/environ', 'rb').read()"),
    "tokens_of_others": before("import glob\nfor p in glob.glob('/proc/[0-9]*/environ'):\n    try: text = open(p, 'rb').read()\n    except OSError: continue\n    assert b'SECRET_TOKEN' not in text", alone=True),
    "network": before("import socket\ntry:\n    socket.create_connection(('127.0.0.1', {port}), 2)\nexcept OSError: pass\nelse: raise SystemExit('connected')", alone=True),
    "no_rights": before("import os\nos.makedirs('a/b')\nos.chmod('a/b', 0)\nos.chmod('a', 0)\nos.chmod('.', 0)"),
    "deep_folder": before("import os\nfor i in range(1500):\n    os.mkdir('d')\n    os.chdir('d')"),
    "itself_gone": before("import os, shutil\nfor n in os.listdir('.'): os.remove(n)"),
}  # fmt: skip

# --- odd answers ----------------------------------------------------------------------------------

ANSWERS = {
    "surrogate_name": after("student = 'A\\udcff\\x00\\nB'"),
    "formula_name": after("student = '=HYPERLINK(1)'"),
    "tab_formula_name": after("student = '\\t=1+1'"),
    "number_name": after("student = 7"),
    "long_name": after("student = 'x' * 10**7"),
    "at_name": after("student = 'a@b@c'"),
    "evil_answers": Case("class D(dict):\n    def __contains__(self, k): raise SystemExit\n    __getitem__ = get = __contains__\nanswers = D({'order.bag': 'b'})\n" + SOFTMAX, table="none", softmax="wrong"),
    "answers_no_dict": after("answers = 5"),
    "huge_int": after("order_bag = 10**5000", bag="wrong"),
    "huger_int": after("order_bag = 10**100000", bag="wrong"),
    "object_array": table("return np.array([object()] * n)"),
    "generator": table("yield 1"),
    "dict": table("return {'a': np.zeros((n, d_model))}"),
    "deep_list": table("a = []\nfor i in range(10**5): a = [a]\nreturn a"),
    "circle": table("a = []\na.append(a)\nreturn a"),
    "text": table("return 'zeros'"),
    "too_large": table("return np.zeros((10**4, 10**4))"),
    "wide": table("return np.zeros((1,) * 32 + (n, d_model))"),
    "longdouble": table("return np.zeros((n, d_model), np.longdouble)"),
    "complex": table("return np.zeros((n, d_model), complex)"),
    "record": table("return np.zeros(n, [('a', float)])"),
    "date": table("return np.zeros(n, 'datetime64[s]')"),
    "nan": table("return np.full((n, d_model), np.nan)"),
    "matrix": table("return np.matrix(np.zeros((n, d_model)))"),
    "evil_array": table("class A:\n    def __array__(self, *a, **k): raise SystemExit\nreturn A()"),
    "evil_float": table("class A:\n    def __float__(self): raise KeyboardInterrupt\nreturn A()"),
    "evil_class": table("class M(type):\n    __name__ = property(lambda s: 1 / 0)\nreturn M('A', (), {})()"),
    "a_class": Case(ZEROS + "\nclass pe_table: pass"),
    "async": Case(ZEROS.replace("def pe_table", "async def pe_table")),
    "no_arguments": Case(ZEROS.replace("pe_table(n, d_model)", "pe_table()")),
    "changes_arguments": Case(ZEROS.replace("    powers = np.exp(scores -", "    scores -= 1\n    powers = np.exp(scores -"), softmax="wrong"),
    "resizes_arguments": Case(ZEROS.replace("    powers", "    scores.shape = (1, -1)\n    powers", 1), softmax="wrong"),
    "asserts_its_check": Case(ZEROS.replace("def softmax", "from npformer.exercises import check, hint, show, progress, list_exercises\nassert check('pe.table', pe_table)\nshow('pe.table')\nhint('pe.table')\nprogress()\nlist_exercises()\nassert order_bag == 'b'" + "\ndef softmax")),
    "float_errors": before("import numpy as np, warnings\nnp.seterr(all='raise')\nwarnings.simplefilter('error')"),
    "a_dataclass": before("from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n    x: int = 3"),
}  # fmt: skip

# --- odd files ------------------------------------------------------------------------------------

V3 = json.dumps({"nbformat": 3, "worksheets": [{"cells": [{"cell_type": "code", "input": [ZEROS]}]}]})
MAGIC = [
    "%matplotlib inline\n!ls\nimport numpy as np",
    "%%time\norder_bag = 'b'",
    "?np.sin\nnp.cos?\nfiles = !ls\n!ls \\\n  -la",
    ZEROS[ZEROS.index("def pe_table") :],
    "%%bash\nexit 1",
    "%time x = 1",
]
FILES = {
    "numpy.py": Case(ZEROS),
    "json.py": Case(ZEROS),
    "sitecustomize.py": Case(ZEROS),
    "npformer.py": Case(ZEROS),
    "UPPER.PY": Case(ZEROS),
    "with space & quote'.py": Case(ZEROS),
    "-rf.py": Case(ZEROS),
    "=1+1.py": Case(ZEROS),
    "%s{}.py": Case(ZEROS),
    "two\nlines.py": Case(ZEROS),
    "sub/numpy.py": Case(ZEROS),
    "empty.py": Case("", **LOST),
    "nul.py": Case("x = 1\0", **LOST),
    "bom.py": Case(b"\xef\xbb\xbf" + ZEROS.encode()),
    "utf16.py": Case(("# é\n" + ZEROS).encode("utf-16")),
    "utf16_no_mark.py": Case(ZEROS.encode("utf-16-le"), **LOST),
    "latin1.py": Case(("# Zoë\n" + ZEROS).encode("latin-1")),
    "cookie.py": Case(("# coding: latin-1\n# Zoë\n" + ZEROS).encode("latin-1")),
    "no_cookie.py": Case(("# coding: klingon\n" + ZEROS).encode()),
    "binary.py": Case(bytes(range(256)) * 50, **LOST),
    "not_yet.py": Case("def f(:\n" + ZEROS, **LOST),
    "tabs.py": Case("if 1:\n\tx = 1\n        y = 2\n" + ZEROS, **LOST),
    "too_large_a_file.py": Case(b"#" * (2**24 + 1), **LOST),
    "crlf.py": Case(ZEROS.replace("\n", "\r\n").encode()),
    "nested.py": Case("x = " + "(" * 5000 + "\n", **LOST),
    "minus.py": Case("x = " + "-" * 100_000 + "1\n" + ZEROS, **LOST),
    "no.ipynb": Case("no", **LOST),
    "list.ipynb": Case("[]", **LOST),
    "deep.ipynb": Case("[" * 100_000, **LOST),
    "number_source.ipynb": Case('{"cells": [{"cell_type": "code", "source": 3}]}', **LOST),
    "no_source.ipynb": Case('{"cells": [{"cell_type": "code"}, 5, null]}', **LOST),
    "magic.ipynb": Case(notebook(*MAGIC)),
    "bad_cell.ipynb": Case(notebook("import numpy as np", "def f(:", "1 / 0", ZEROS)),
    "version3.ipynb": Case(V3, **LOST),
    "utf16.ipynb": Case(notebook("# é", ZEROS).encode("utf-16")),
    "UPPER.IPYNB": Case(notebook(ZEROS)),
    "exits.ipynb": Case(notebook("import sys; sys.exit()", ZEROS)),
    "plots.py": Case("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()\n" + ZEROS),
}
NOT_READ = ("outside.py", "broken.py", "around.py", "pipe.py", "closed.py")  # links and what is no file


def cases():
    """Every case by the name of its file."""
    named = {
        f"{name}.py": case for group in (TRICKS, PROCESSES, PLACES, ANSWERS) for name, case in group.items()
    }
    return named | FILES


FEW = {  # one of each kind: for the run that everybody waits for
    "allclose.py", "ours_by_import.py", "forged_head.py", "crash.py", "daemon.py", "loop_in_table.py",
    "memory.py", "writes_the_table.py", "tokens_of_others.py", "surrogate_name.py", "formula_name.py",
    "tokens.py", "network.py", "note_for_others.py", "note_of_others.py", "others_by_name.py", "long_name.py",
    "odd_error.py", "numpy.py", "two\nlines.py", "bad_cell.ipynb", "too_large_a_file.py",
}  # fmt: skip


def write(folder, *, out, port=9, good=0, few=False):
    """Write the files, or the FEW, some good ones and what must be passed over. Returns {name: Case}."""
    expected = {name: case for name, case in cases().items() if not few or name in FEW}
    root = str(Path(__file__).resolve().parents[2])
    for name, case in expected.items():
        text = case.text
        if isinstance(text, str):
            for key, value in {"root": root, "folder": str(folder), "out": str(out)}.items():
                text = text.replace(f"{{{key}!r}}", repr(value))
            text = text.replace("{port}", str(port)).encode("utf-8", "surrogatepass")
        path = Path(folder, name)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
    expected |= _odd_names(folder)
    for i in range(good):
        Path(folder, f"good_{i:03}.py").write_text(f"student = 'Student {i}'\n{RIGHT}", encoding="utf-8")
        expected[f"good_{i:03}.py"] = Case("", table="pass")
    return expected | _passed_over(folder)


def _odd_names(folder):
    """Links, a pipe, and a name that is no UTF-8."""
    outside = Path(folder).parent / "outside.py"
    outside.write_text(RIGHT, encoding="utf-8")
    os.symlink(outside, Path(folder, "outside.py"))
    os.symlink(Path(folder, "nothing"), Path(folder, "broken.py"))
    os.symlink(Path(folder, "around.py"), Path(folder, "around.py"))
    os.symlink(outside.parent, Path(folder, "linked"))
    os.mkfifo(Path(folder, "pipe.py"))
    Path(folder, "closed.py").write_text("", encoding="utf-8")
    Path(os.fsdecode(os.fsencode(folder) + b"/n\xff\xfe.py")).write_text(ZEROS, encoding="utf-8")
    return {name: Case("", **LOST) for name in NOT_READ} | {"n\\xff\\xfe.py": Case("")}


def _passed_over(folder):
    """Folders of no work, of a copy of work, and two that are called strangely and hold work."""
    for name in (".git", "__MACOSX", "my_env", ".ipynb_checkpoints", "env", "x.py"):
        Path(folder, name).mkdir()
        Path(folder, name, "inside.py").write_text(RIGHT, encoding="utf-8")
    Path(folder, "my_env", "pyvenv.cfg").touch()
    Path(folder, "._good_000.py").write_bytes(b"\0\5\26\7")
    return {name: Case("", table="pass") for name in ("env/inside.py", "x.py/inside.py")}


PASSED_OVER = {".ipynb_checkpoints/inside.py", "linked", "my_env"}


if __name__ == "__main__":
    where = Path(sys.argv[1])
    where.mkdir()
    print(f"{len(write(where, out=where.with_suffix('.csv'), good=20))} files in {where}")
