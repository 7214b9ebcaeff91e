"""The parts of the grader one by one, in this process: reading, frames, the student's side, files, the judge."""

import io
import json
import os
import signal
import socket
import struct
import sys
import threading
import zipfile
from contextlib import nullcontext
from types import SimpleNamespace

import honest
import numpy as np
import pytest

from npformer.exercises import reply as checker
from npformer.exercises.topics import bank
from npformer.grader import hand_ins as files_of
from npformer.grader import judge, reading, student
from npformer.grader.frames import (
    LENGTHS,
    MOST_BYTES,
    MOST_ITEMS,
    MOST_TEXT,
    Forged,
    Opaque,
    length_of,
    pack,
    unpack,
)
from npformer.grader.hand_ins import hand_ins
from npformer.grader.judge import Ended, Judge, Limits, Proxy, Student
from npformer.grader.reading import answer_of, read_submission


class Left(BaseException):
    """In the place of os._exit."""


def leave(code):
    raise Left(code)


# --- reading --------------------------------------------------------------------------------------


def answers(name, text, *ids):
    submission = read_submission(name, text if isinstance(text, bytes) else text.encode())
    return [answer_of(submission, i) for i in ids], submission.problem


BAD_CELLS = ("x = 1", "def f(:", "x = 2", "1 / 0", "y", "z", "display(1)\norder_bag = 'b'")
READ = (  # a file's name and bytes, its answer to order.bag, and how its problem begins
    ("a.py", b"order_bag = 'b'", "b", ""),
    ("a.py", b"answers = {'order.bag': 'b'}", "b", ""),
    ("a.py", b"student = 'Ada'", None, ""),
    ("a.py", b"x = 1\nraise SystemExit", None, "a.py, line 2: SystemExit."),
    ("a.py", b"raise KeyboardInterrupt", None, "a.py, line 1: KeyboardInterrupt."),
    ("a.py", b"class M(Exception):\n def __str__(self): 1 / 0\nraise M", None, "a.py, line 3: M."),
    ("a.py", b"def f(:", None, "a.py, line 1: this is not Python yet (invalid syntax)."),
    ("a.py", b"x = '\0'", None, "a.py"),
    ("a.py", "order_bag = 'é'".encode("utf-16"), "é", ""),
    ("a.py", "order_bag = 'é'".encode("latin-1"), "é", ""),
    ("a.py", "# coding: cp1252\norder_bag = '€'".encode("cp1252"), "€", ""),
    ("a.py", b"# coding: klingon\norder_bag = '\xe9'", "é", ""),
    ("a.ipynb", b" ", None, "The file cannot be read: it is empty."),
    ("a.ipynb", b"no", None, "The file cannot be read: it is no notebook: Expecting value: line 1 column 1"),
    ("a.ipynb", b"[]", None, "The file cannot be read: it has no cells."),
    ("a.ipynb", b"{}", None, "The file cannot be read: it has no cells."),
    ("a.ipynb", honest.notebook(3), None, "The file cannot be read: can only join"),
    ("a.ipynb", b"[" * 10**5, None, "The file cannot be read: it is nested too deeply."),
    ("a.ipynb", honest.notebook("x = " + "-" * 100_000 + "1", "order_bag = 'b'"), "b", "code cell 1: "),
    ("a.ipynb", honest.notebook(*BAD_CELLS), "b", "code cell 2, line 1: this is not Python yet (invalid syn"),
)  # fmt: skip


def test_a_file_is_read_and_what_cannot_be_read_is_one_line():
    for name, data, answer, problem in READ:
        (got,), told = answers(name, data, "order.bag")
        assert got == answer and told.startswith(problem) and bool(told) == bool(problem), (name, data[:60])
        assert "\n" not in told
    assert "code cell 5, line 1: NameError" in told and "code cell 6" not in told, "three are enough to say"


CELLS = {
    "%%time\nx = 1": {"x": 1},
    "\n%%timeit -n 1\n%%capture out\nx = 1": {"x": 1},
    "%%bash\nx=1": {},
    "%%html\n<b>": {},
    "x = 1\n%time y = 2": {"x": 1, "y": 2},
    "y = %time 3 - 1\nx = 1": {"x": 1, "y": 2},
    "%%time\n%timeit": {},
    "def f(n): return n\n%timeit -n 10 f(3)\n%timeit -r2 -n 10 f(1 / 0)\nx = f(1)": {"x": 1},
    "%load_ext autoreload\n%autoreload 2\nx = 1": {"x": 1},
    "!ls \\\n  -la \\\n -h\nx = 1": {"x": 1},
    "x = 7 % 4\nif x != 2:\n    %matplotlib inline\n    y = x": {"x": 3, "y": 3},
    "import math\nmath.sin?\nmath.cos??\n?math\nx = 1": {"x": 1},
    "files = !ls\nx = 1": {"x": 1},
    "get_ipython().run_cell_magic('time', '', 'x = 1')": {"x": 1},
    "get_ipython().run_cell_magic('bash', '', 'x=1')": {},
    "g = get_ipython()\ng.run_line_magic('time', 'x = 1')\ng.run_line_magic('timeit', '-n 10 x')\ng.system('ls')": {"x": 1},
}  # fmt: skip


def test_magics_go_and_the_code_stays():
    for source, names in CELLS.items():
        one = read_submission("a.ipynb", honest.notebook(source))
        assert (one.problem, {key: one.names[key] for key in "xy" if key in one.names}) == ("", names), source


@pytest.mark.parametrize("installed", [True, False])
def test_what_else_a_notebook_understands_is_ipython_s_to_say(installed, monkeypatch):
    if installed:
        pytest.importorskip("IPython")
    else:
        monkeypatch.setitem(sys.modules, "IPython.core.inputtransformer2", None)
    problem = answers("a.ipynb", honest.notebook(">>> x = 1\n>>> y = 2", "order_bag = 'b'"), "order.bag")[1]
    assert ("this is not Python yet" in problem) is not installed


# --- the files of a class -------------------------------------------------------------------------


def test_zip_files_are_looked_into_and_nothing_is_silent(tmp_path, monkeypatch):
    (tmp_path / "bad.zip").write_bytes(b"PK no")
    (tmp_path / "essay.pdf").write_text("")
    inner = honest.zipped(
        **{"a.py": "x", "b.txt": "", ".DS_Store": "", "deeper.zip": honest.zipped(**{"c.py": "y"})}
    )
    (tmp_path / "class.zip").write_bytes(honest.zipped(**{"ada.zip": inner, "x\ny.py": "z"}))
    os.utime(tmp_path / "class.zip", (0, 0))
    found = {each.name: each for each in hand_ins(tmp_path)}
    assert {name: each.passed_over for name, each in found.items()} == {
        "bad.zip": "a zip file that cannot be read: File is not a zip file",
        "class.zip/ada.zip/a.py": "",
        "class.zip/ada.zip/b.txt": "no .py file and no notebook",
        "class.zip/ada.zip/deeper.zip": "no .py file and no notebook",
        "class.zip/x\\ny.py": "",
        "essay.pdf": "no .py file and no notebook",
    }
    assert found["class.zip/ada.zip/a.py"].time > 10**9, "its own time, not that of the zip file"
    assert found["class.zip/ada.zip/a.py"].read() == b"x" and found["bad.zip"].read() == b""
    with pytest.raises(ValueError, match=r"no \.py or \.ipynb file in"):
        hand_ins(tmp_path / "essay.pdf")
    with pytest.raises(ValueError, match="there is no file or folder"):
        hand_ins(tmp_path / "none")
    assert next(each.name for each in hand_ins(tmp_path / "class.zip")) == "class.zip/ada.zip/a.py"


def test_what_cannot_be_taken_out_of_a_zip_file_says_so(tmp_path, monkeypatch):
    for kind, says in ((zipfile.ZIP_STORED, "Bad CRC"), (zipfile.ZIP_DEFLATED, "Error -3")):
        with zipfile.ZipFile(tmp_path / "a.zip", "w", kind) as archive:
            archive.writestr("a.py", "x = 1\n" * 99)
        data = bytearray((tmp_path / "a.zip").read_bytes())
        data[34:44] = b"\xff" * 10
        (tmp_path / "a.zip").write_bytes(data)
        (one,) = hand_ins(tmp_path)
        with pytest.raises(ValueError, match=f"It cannot be taken out of its zip file: {says}"):
            one.read()
    monkeypatch.setattr(files_of, "LARGEST", 5)
    with pytest.raises(ValueError, match="larger than"):
        one.read()


def test_files_and_folders_that_cannot_be_read_say_so(tmp_path, monkeypatch):
    path = tmp_path / "a.py"
    path.write_text("")
    (tmp_path / "secret").mkdir()
    assert files_of.read_file(path, tmp_path) == b""
    for place, inside, why in (
        (tmp_path, tmp_path, "It is no file."),
        (tmp_path / "none", tmp_path, "cannot be read"),
        (tmp_path, path, "It is a link to a place outside"),
    ):
        with pytest.raises(ValueError, match=why):
            files_of.read_file(place, inside)
    monkeypatch.setattr(files_of.os, "access", lambda *given: False)
    told = {each.name: each.passed_over for each in hand_ins(tmp_path)}
    assert told == {"a.py": "", "secret": "a folder that cannot be opened"}
    assert files_of.HandIn("x.txt", bytes, 0.0).kind == "x.txt"
    monkeypatch.setattr(files_of, "LARGEST", -1)
    with pytest.raises(ValueError, match="It is larger than"):
        files_of.read_file(path, tmp_path)


# --- frames ---------------------------------------------------------------------------------------


def same(value):
    return unpack(pack(value))


def test_values_cross_as_they_are():
    array = np.arange(6.0).reshape(2, 3).T
    for value in (None, True, 3, -2.5, "é", [1, (2, [3])], {"a": 1, 2: None}, 1j, 10**40, ...):
        assert same(value) == value and type(same(value)) is type(value)
    for value in (array, np.float32(3), np.zeros((0, 4)), np.array(True), np.arange(3, dtype=">i4")):
        back = same(value)
        assert type(back) is type(value) and np.array_equal(back, value) and back.shape == value.shape
    assert same(array).flags.writeable and np.isnan(same(float("nan")))
    assert same([np.float64(0.5), array, np.ones(1)])[2].tolist() == [1]


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_what_says_that_it_is_a_number_or_an_array_is_one():
    class Three:
        def __float__(self):
            return 3.0

    class Row:
        def __array__(self, *arguments, **options):
            return np.ones(2)

    class Whole(int):
        pass

    assert same(Three()) == 3.0 and same(Whole(7)) == 7 and same(range(3)) == [0, 1, 2]
    assert np.array_equal(same(Row()), [1, 1]) and same(np.matrix([[1]])).shape == (1, 1)
    assert same(SimpleNamespace(x=1)).kind == "SimpleNamespace"
    for strange in (object, len, np.array([object()]), np.zeros(2, "M8[s]"), 10**9000, {1}, Opaque("Graph")):
        assert isinstance(same(strange), Opaque)
    functions = []
    frame = pack((len, 1), functions)
    assert functions == [len] and unpack(frame, [max].__getitem__) == (max, 1)


def test_what_is_too_much_is_not_packed():
    for value in ([0] * 200_001, [[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]], np.zeros(MOST_BYTES // 8 + 1)):
        with pytest.raises(Forged):
            pack(value)
            print(f"packed: {len(value)} items")


def frame(tree, arrays=b""):
    text = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    return LENGTHS.pack(len(text), len(arrays)) + text + arrays


FORGED = (
    b"",
    b"\xff" * 40,
    frame("x") + b"more",
    frame(b"\xff"),
    frame(b"[" * 100_000 + b"]" * 100_000),
    frame(b"[" + b'{"e":0},' * (MOST_ITEMS + 1) + b"0]"),
    frame(b" " * (MOST_TEXT + 1)),
    frame({"x": 1, "y": 2}),
    frame({"z": 1}),
    frame({"a": 0}),
    frame({"f": True}),
    frame({"f": -1}),
    frame({"f": 0}),
    frame({"c": ["a", "b"]}),
    frame({"d": [1]}),
    frame({"d": [[[], 1]]}),
    frame({"a": ["|O", [1]]}, b"\0" * 8),
    frame({"a": ["<f8", [99999999999]]}, b"\0" * 8),
    frame({"a": ["<f8", [-1]]}, b"\0" * 8),
    frame({"a": ["<f8", [1] * 40]}, b"\0" * 8),
    frame({"a": ["<f77", [1]]}, b"\0" * 8),
    frame({"a": ["<f8", [0, 10**30]]}),
)


def test_forged_bytes_are_refused():
    assert length_of(LENGTHS.pack(2, 3)) == 5
    for data in FORGED:
        with pytest.raises(Forged):
            unpack(data)
            print(f"taken: {data[:100]!r}")


# --- the student's side ---------------------------------------------------------------------------


@pytest.fixture
def conversation(tmp_path, monkeypatch):
    """A file at work in a thread; gives back a line to it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(student, "os", SimpleNamespace(**{**vars(os), "_exit": leave}))
    open_sockets, threads = [], []

    def start(text, *ids):
        ours, theirs = socket.socketpair()
        open_sockets.extend((ours, theirs))

        def run():
            try:
                student.work(student.Line(theirs.recv, theirs.sendall))
            except (EOFError, Left):
                theirs.close()

        threads.append(threading.Thread(target=run))
        threads[0].start()
        line = student.Line(ours.recv, ours.sendall)
        line.send({"name": "a.py", "data": np.frombuffer(text.encode(), np.uint8), "ids": list(ids)})
        return line

    yield start
    open_sockets[0].shutdown(socket.SHUT_WR)
    for thread in threads:
        thread.join(10)
    for each in open_sockets:
        each.close()
    monkeypatch.delitem(sys.modules, reading.MODULE)


FILE = """
import numpy as np
order_bag = 'b'
answers = {'order.bag': 'b', 'pe.evn': 1, 3: 4}
class Evil:
    def __getattr__(self, name): raise KeyboardInterrupt
pe_even = Evil()
student = 'Ada'
def softmax_forward(s, more=None):
    s += 1
    return s * 2
def block_forward(x, attend):
    return attend(x)
def pe_table(n):
    raise Mute
class Mute(Exception):
    def __str__(self): raise ValueError
def ffn_forward(n):
    return [0] * 300_000
"""
IDS = ("order.bag", "pe.even", "softmax.forward", "block.forward", "pe.table", "ffn.forward", "pe.pair")


CALLS = (  # a function's name, its arguments, and what comes back
    ("pe.table", (3,), {"error": "Mute", "said": "Mute", "where": "in line 2 of pe_table", "changed": []}),
    ("ffn.forward", (3,), {"error": "Forged"}),
    ("softmax.forward", (), {"error": "TypeError", "where": ""}),  # the call itself failed
)


def test_a_file_at_work(conversation):
    line = conversation(FILE, *IDS)
    head = line.receive()
    assert [head["answers"][i][0] for i in IDS] == ["value"] * 2 + ["function"] * 4 + ["nothing"]
    assert head["answers"]["pe.even"][1].kind == "Evil" and (head["student"], head["problem"]) == ("Ada", "")
    assert {"ffn_forward", "answers", "pe.evn"} <= set(head["names"].split())

    def call(name, *arguments):
        line.send({"call": name, "args": arguments, "kwargs": {}}, [])
        return line.receive()

    reply = call("softmax.forward", np.ones(2), 3)
    assert reply["value"].tolist() == [4, 4] and reply["changed"] == [0]
    for name, arguments, told in CALLS:
        assert call(name, *arguments).items() >= told.items(), name
    for answer, told in (
        ({"value": 5}, ("value", 5)),
        ({"error": "KeyError", "said": "no"}, ("error", "KeyError")),
    ):
        back = call("block.forward", np.ones(2), len)
        assert back["back"] == 0 and back["args"][0].tolist() == [1, 1]
        line.send(answer)
        assert told in line.receive().items()


def test_the_copy_of_a_process_that_forked_itself_leaves(conversation):
    pids = iter([1, 2])
    student.os.getpid = lambda: next(pids)
    line = conversation("order_bag = 'b'", "order.bag")
    with pytest.raises((EOFError, ConnectionResetError)):
        line.receive()


def test_npformer_is_a_stand_in(monkeypatch):
    monkeypatch.setattr(sys, "modules", {"npformer": 1, "npformer.exercises.topics": 2, "os": os})
    monkeypatch.setattr(sys, "meta_path", [])
    hooks = []
    monkeypatch.setattr(sys, "addaudithook", hooks.append)
    student.hide_npformer(())
    assert list(sys.modules) == ["os"] and hooks == []
    student.hide_npformer((os.path.dirname(student.__file__),))
    with pytest.raises(PermissionError, match="not open while your work is checked"):
        hooks[0]("open", (student.__file__, "r", 0))
    for harmless in (("open", (os.__file__,)), ("open", (3,)), ("exec", (1,))):
        assert hooks[0](*harmless) is None
    finder = sys.meta_path[0]
    assert finder.find_spec("numpy") is None and finder.create_module(None) is None
    for name in ("npformer.exercises.topics", "npformer.grader"):
        with pytest.raises(ModuleNotFoundError, match="not here"):
            finder.find_spec(name)
    ours, exercises = (SimpleNamespace(__name__=name) for name in ("npformer", "npformer.exercises"))
    for module in (ours, exercises):
        assert finder.find_spec(module.__name__).name == module.__name__
        finder.exec_module(module)
    with pytest.raises(AttributeError):
        ours.__getattr__("__path__")
    forward = ours.__getattr__("ffn_forward")
    with pytest.raises(RuntimeError, match="ffn_forward is npformer's own: write your own"):
        forward(1)
    assert student.tell(forward, "x", {}) == ("ours", "ffn_forward")
    assert exercises.__getattr__("check")("pe.table", 3) is True and exercises.__getattr__("hint")("x") == ""


BODIES = {"...": "nothing", "pass": "nothing", "'What.'; ...": "nothing", "return None": "nothing"}
BODIES |= dict.fromkeys(
    ("return x", "return 5", "return 'x'", "x + 1", "raise ValueError", "print"), "function"
)


def test_a_body_that_does_nothing_is_no_answer():
    for body, kind in BODIES.items():
        told, functions = {}, {}
        exec(f"def f(x): {body}", told)
        assert student.tell(told["f"], "pe.table", functions)[0] == kind, body
        assert bool(functions) is (kind == "function")


# --- the judge ------------------------------------------------------------------------------------


class Pipe(nullcontext):
    """A student's process, or its keeper, that says what a test wants."""

    def __init__(self, *replies):
        self.enter_result, self.came = None, list(replies)
        self.close = lambda: None
        self.sendall = self.settimeout = self.shutdown = lambda given: None

    def recv(self, count):
        reply = self.came.pop(0) if self.came else b""
        if isinstance(reply, Exception):
            raise reply
        if len(reply) > count:
            self.came.insert(0, reply[count:])
        return reply[:count]


def pipes(*replies, used=0.0):
    """Its pipe, and its keeper's, which tells the CPU seconds."""
    return Pipe(*replies), Pipe(struct.pack(">d", used))


def asked(*replies, arguments=(), **options):
    return Proxy(Student(*pipes(*replies, **options), 2.0, 6.0), "pe.table", "pe_table")(*arguments)


def reply(**parts):
    return pack({"changed": [], **parts})


def test_a_right_answer_of_another_process_is_not_asked_whether_it_is_ours():
    """Its process has no npformer: each call costs a way there and back."""
    task, asked_for = bank()["softmax.forward"], []

    def softmax(*given):
        asked_for.append(given)
        return task.right(*given)

    softmax.elsewhere = False
    assert checker.check_function(task, softmax).passes
    here = len(asked_for)
    softmax.elsewhere = True
    assert checker.check_function(task, softmax).passes and len(asked_for) == 2 * here - 1
    assert Proxy.elsewhere is True


def test_a_proxy_is_called_like_the_function():
    array = np.zeros(2)
    whole = reply(value=7, changed=[0])
    assert asked(whole[:5], whole[5:], arguments=(array, 1)) == 7 and array.all(), "no number is what it was"
    assert asked(pack({"back": 0, "args": (3,)}), reply(value=1), arguments=(abs,)) == 1
    assert asked(pack({"back": 0, "args": ("x",)}), reply(value=1), arguments=(abs,)) == 1


KINDS = (("ValueError", ValueError), ("UnicodeDecodeError", ValueError), ("Own", Exception), ("SystemExit", SystemExit))  # fmt: skip


def test_an_error_arrives_as_one_of_its_name_and_its_own_words_cut_and_quoted():
    for name, kind in KINDS:
        with pytest.raises(kind) as caught:
            asked(reply(error=name, said=f"{name}: {'no' * 99}", where="in line 2 of f"))
        assert type(caught.value).__name__ == name and str(caught.value) == f"“{'no' * 40}”, in line 2 of f"
    with pytest.raises(Exception, match=r"^$"):
        asked(reply(error="KeyboardInterrupt", said="KeyboardInterrupt", where=""))


NO_ANSWERS = (
    (b"",),
    (b"\xff" * 8,),
    (b"\0" * 8,),
    (pack(3),),
    (pack({"back": 5, "args": ()}),),
    (reply(changed=[0]),),
    (reply(changed=["x"]),),
    (OSError("reset"),),
    tuple([pack({"back": 0, "args": (1,)})] * 1002),
)


def test_what_is_no_answer_ends_the_process():
    for came in NO_ANSWERS:
        with pytest.raises(Ended, match=r"It (ended the program|sent something that is no answer)\."):
            asked(*came, arguments=(abs,))
            print(f"taken: {came[:1]}")


def test_nobody_waits_for_a_process_that_does_not_answer():
    with pytest.raises(Ended, match=r"It was still running after 2 seconds\."):
        asked(TimeoutError())
    one = Student(*pipes(used=1.9), 2.0, 6.0)
    for _ in range(2):  # it stays ended
        with pytest.raises(Ended, match="still running after 2 seconds"):
            one.call("pe.table", (), {})
    one = Student(*pipes(), 1.0, 0.0)
    with pytest.raises(Ended, match=r"still running after 1 second\."):
        one.call("pe.table", (), {})
    one = Student(*pipes(), 1.0, 1.0)
    one.pipe.recv = lambda count: leave(0)
    with pytest.raises(Left):
        one.ask({})
    assert one.ending == "The checks of this answer were given up.", "a reply that comes too late is nobody's"


@pytest.mark.slow
def test_answers_that_cost_the_judge_much_are_bounded(monkeypatch):
    """A frame of empty lists, and one of many arrays told again and again in calls back."""
    monkeypatch.setattr(checker, "SECONDS", 1.0)
    lists = "import gc\ndef softmax_forward(s): return [[]] * 199_000\norder_bag = [[[]] * 400] * 400\n"
    back = "import numpy as np\na = [np.zeros(1)] * 40_000\ndef block_forward(x, attend, *rest):\n    while True: attend(a)\n"
    with Judge(Limits(seconds=5)) as one:
        for text in (lists, back):
            report = one.grade("a.py", text.encode(), ["order.bag", "softmax.forward", "block.forward"])
            assert not any(each["status"] == "pass" for each in report["reports"])


@pytest.fixture
def no_server(monkeypatch):
    """A judge whose processes are the ones a test lists."""
    monkeypatch.setattr(judge, "Server", lambda home, hidden: SimpleNamespace(close=lambda: None, open=[]))
    with Judge(Limits(seconds=1)) as one:
        yield one


def head(names="", **answers):
    named = {i.replace("_", "."): answer for i, answer in answers.items()}
    return pack({"student": "Ada", "problem": "", "names": names, "answers": named})


def reports(judge, processes, *ids):
    rest = list(processes)
    judge.server.begin = lambda request: rest.pop(0)
    return [(r["status"], r["evidence"]) for r in judge.grade("a.py", b"", ids)["reports"]]


def test_a_head_that_is_none_is_no_head(no_server):
    wrong = "It sent something that is no answer."
    for came in (pack(3), pack({"answers": {}}), pack({"student": 1, "answers": {"order.bag": 1}})):
        assert reports(no_server, [pipes(came)], "order.bag") == [("not read", wrong)]


def raises(error):
    def check(*given, **options):
        raise error

    return check


def swallows(exercise_id, answer, level=1):
    try:
        answer()
    except Ended:
        return SimpleNamespace(evidence="fine", status="pass", codes=(), hint="", question="")


NOTHING = "nothing", None
JUDGED = (  # the head of a submission, the checker in the place of ours, and what comes of each answer
    (head(pe_table=("function", "f")), swallows, {"pe.table": ("error", "It ended the program.")}),
    (head(order_bag=("value", 3)), raises(OverflowError), {"order.bag": ("error", "This answer cannot be judged (OverflowError).")}),
    (head(pe_table=("ours", "x")), None, {"pe.table": ("error", "x is npformer's own: write your own.")}),
    (head("pe.evn order.bag", pe_even=NOTHING), None, {"pe.even": ("not answered", "It has pe.evn: did you mean pe_even?")}),
    (head("a pe.entry", pe_even=NOTHING), None, {"pe.even": ("not answered", "")}),
    (head("np pe_evn order_bag", pe_even=NOTHING, pe_pair=NOTHING), None, {"pe.even": ("not answered", "It has pe_evn: did you mean pe_even?"), "pe.pair": ("not answered", "")}),
)  # fmt: skip


def test_what_comes_of_an_answer(no_server, monkeypatch):
    for came, check, told in JUDGED:
        with monkeypatch.context() as patch:
            patch.setattr(judge, "check", check or judge.check)
            assert reports(no_server, [pipes(came)], *told) == list(told.values())


def test_each_process_that_is_lost_halves_the_time_of_the_next(no_server):
    """An endless loop in every function costs little more than one: a file is given up in seconds."""
    no_server.limits, given, ids = Limits(seconds=8), [], IDS[2:6]
    functions = head(**{i.replace(".", "_"): ("function", "f") for i in ids})
    no_server.server.begin = lambda request: given.append(request["cpu"]) or pipes(functions)
    said = no_server.grade("a.py", b"", ids)["reports"]
    assert given == [8, 4, 2, 1] and [one["evidence"] for one in said] == ["It ended the program."] * 4
    assert no_server.grade("a.py", b"", ids[:1]) and given[4:] == [8], "of the next file nothing is taken"


def test_checks_that_the_checkers_timer_ends_cost_their_answer(no_server, monkeypatch):
    monkeypatch.setattr(checker, "check_function", lambda *given: signal.raise_signal(signal.SIGVTALRM))
    came = [pipes(head(pe_table=("function", "f"), pe_even=("nothing", None)))]
    assert reports(no_server, came, "pe.table", "pe.even") == [
        ("error", f"It was still running after {checker.SECONDS:g} seconds."),
        ("not answered", ""),
    ]


def test_a_reply_says_as_much_as_its_level(no_server):
    no_server.server.begin = lambda request: pipes(head(order_bag=("value", "a")))
    for level, asks in ((1, False), (3, True)):
        no_server.limits = Limits(level=level)
        (told,) = no_server.grade("a.py", b"", ["order.bag"])["reports"]
        assert bool(told["question"]) is bool(told["hint"]) is asks


def test_a_system_without_processes_is_said(no_server):
    no_server.server.begin = raises(OSError)
    (report,) = no_server.grade("a.py", b"", ["order.bag"])["reports"]
    assert report["evidence"] == "The system had no process for it."


def test_a_keeper_that_was_ended_has_no_cpu_time():
    pipe, its_pipe = socket.socketpair()
    control, keeper = socket.socketpair()
    process = Student(pipe, control, 1.0, 1.0)
    keeper.sendall(struct.pack(">d", 1.5))
    keeper.shutdown(socket.SHUT_WR)
    assert process.close() == 1.5 and process.close() == 0.0
    its_pipe.close(), keeper.close()


def test_a_folder_goes_however_it_was_left(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    (folder / "b").mkdir(parents=True)
    monkeypatch.setattr(judge.shutil, "rmtree", lambda *arguments: (_ for _ in ()).throw(RecursionError))
    judge._remove(str(folder))
    assert not folder.exists()


def test_a_worker_of_a_class_reads_jobs_and_leaves_with_its_input(tmp_path, monkeypatch, capsys):
    settings = {"limits": Limits(), "hidden": [], "home": str(tmp_path)}
    job = {"name": "a.py", "data": "b3JkZXJfYmFnID0gJ2In", "ids": ["order.bag"]}
    monkeypatch.setattr(sys, "argv", ["judge", json.dumps(settings)])
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(job)))
    judge.main()
    assert json.loads(capsys.readouterr().out)["reports"][0]["status"] == "pass" and not tmp_path.exists()
