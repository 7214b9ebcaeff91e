"""Both sides of the grader in this process: reading, frames, the student's side, files, the judge."""

import base64
import json
import os
import signal
import socket
import sys
import zipfile
from types import SimpleNamespace

import honest
import hostile
import numpy as np
import pytest

from npformer.exercises import reply as checker
from npformer.exercises.topics import bank
from npformer.grader import hand_ins as files_of
from npformer.grader import judge, student
from npformer.grader.frames import LENGTH, MOST_BYTES, Forged, Opaque, pack, unpack
from npformer.grader.hand_ins import hand_ins
from npformer.grader.judge import Judge, Limits
from npformer.grader.reading import answer_of, read_submission

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
    ("a.py", "# coding: cp1252\norder_bag = '€'".encode("cp1252"), "€", ""),
    ("a.py", b"# coding: klingon\norder_bag = '\xe9'", "é", ""),
    ("a.ipynb", b" ", None, "The file cannot be read: it is empty."),
    ("a.ipynb", b"no", None, "The file cannot be read: it is no notebook: Expecting value: line 1 column 1"),
    ("a.ipynb", b"[]", None, "The file cannot be read: it has no cells."),
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
    (tmp_path / "class.zip").write_bytes(honest.zipped(**{"ada.zip": inner, "x\ny.py": "z", "folder/": ""}))
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
    assert found["class.zip/ada.zip/a.py"].read() == b"x"
    with pytest.raises(ValueError, match=r"no \.py or \.ipynb file in"):
        hand_ins(tmp_path / "essay.pdf")
    with pytest.raises(ValueError, match="there is no file or folder"):
        hand_ins(tmp_path / "none")
    assert next(each.name for each in hand_ins(tmp_path / "class.zip")) == "class.zip/ada.zip/a.py"


def test_what_cannot_be_read_says_so(tmp_path, monkeypatch):
    (tmp_path / "secret").mkdir()
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing")
    (tmp_path / "around.py").symlink_to(tmp_path / "around.py")
    (tmp_path / "out.py").symlink_to(os.__file__)
    os.mkfifo(tmp_path / "pipe.py")
    for name, kind in (("stored.zip", zipfile.ZIP_STORED), ("deflated.zip", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(tmp_path / name, "w", kind) as archive:
            archive.writestr("a.py", "x = 1\n" * 99)
        data = bytearray((tmp_path / name).read_bytes())
        data[34:44] = b"\xff" * 10
        (tmp_path / name).write_bytes(data)
    monkeypatch.setattr(files_of.os, "access", lambda *given: False)
    found = {each.name: each for each in hand_ins(tmp_path)}
    assert found["secret"].passed_over == "a folder that cannot be opened"
    for name, why in (
        ("gone.py", "No such file or directory"),
        ("around.py", ""),
        ("out.py", "it is a link to a place outside the folder"),
        ("pipe.py", "it is no file"),
        ("stored.zip/a.py", "Bad CRC"),
        ("deflated.zip/a.py", "Error -3"),
    ):
        with pytest.raises(ValueError, match=f"It cannot be read: {why}"):
            found[name].read()


def test_no_more_is_read_than_is_allowed(tmp_path, monkeypatch):
    """A bomb too: what a zip file says of its sizes is not believed."""
    monkeypatch.setattr(files_of, "LARGEST", 100)
    inner = honest.zipped(**{"a.py": "x" * 101, "b.py": "x" * 100})
    (tmp_path / "a.zip").write_bytes(inner.replace((101).to_bytes(4, "little"), (100).to_bytes(4, "little")))
    (tmp_path / "b.zip").write_bytes(honest.zipped(**{"c.zip": inner}))
    (tmp_path / "c.py").write_text("x" * 101)
    found = {each.name: each for each in hand_ins(tmp_path)}
    assert (
        found["b.zip/c.zip"].passed_over == "a zip file that cannot be read: It is larger than 0 megabytes."
    )
    for name in ("a.zip/a.py", "c.py"):
        with pytest.raises(ValueError, match=r"larger than|Bad CRC"):
            found[name].read()
    assert found["a.zip/b.py"].read() == b"x" * 100
    assert files_of.HandIn("x.txt", open, 0.0).kind == "x.txt"


# --- frames ---------------------------------------------------------------------------------------


def same(value):
    return unpack(pack(value))


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_values_cross_as_they_are_and_what_says_it_is_one_is_one():
    class Three:
        def __float__(self):
            return 3.0

    class Row:
        def __array__(self, *arguments, **options):
            return np.ones(2)

    class Whole(int):
        pass

    array = np.arange(6.0).reshape(2, 3).T
    for value in (None, True, 3, -2.5, "é\udcff", [1, (2, [3])], {"a": 1, "b": None}, 1j, 10**40, ...):
        assert same(value) == value and type(same(value)) is type(value)
    for value in (array, np.float32(3), np.zeros((0, 4)), np.array(True), np.arange(3, dtype=">i4")):
        back = same(value)
        assert type(back) is type(value) and np.array_equal(back, value) and back.shape == value.shape
    assert same(array).flags.writeable and same(array).dtype.isnative and np.isnan(same(float("nan")))
    assert same(Three()) == 3.0 and same(Whole(7)) == 7 and same(range(3)) == [0, 1, 2]
    assert np.array_equal(same(Row()), [1, 1]) and same(np.matrix([[1]])).shape == (1, 1)
    for strange in (object, len, np.array([object()]), np.zeros(2, "M8[s]"), {1}, {1: 2}, Opaque("set")):
        assert isinstance(same(strange), Opaque)
    assert same({1}).kind == same(Opaque("set")).kind == "set" and repr(same({1})) == "<a set>"
    functions = []
    frame = pack((len, 1), functions)
    assert functions == [len] and unpack(frame, [max].__getitem__) == (max, 1)


EIGHT = base64.b64encode(b"\0" * 8).decode()
FORGED = (
    b"",
    b"\xff" * 40,
    b"1x",
    b"[" * 100_000 + b"]" * 100_000,
    b"[" + b'{"e":0},' * 500_000 + b"0]",
    b'"' + b"x" * MOST_BYTES + b'"',
    {"x": 1, "y": 2},
    {},
    {"z": 1},
    {"a": 0},
    {"f": 0},
    {"c": ["a", "b"]},
    {"d": [1]},
    {"d": [[2**61 - 1, 1]]},
    {"a": ["|O", [1], EIGHT]},
    {"a": ["<f77", [1], EIGHT]},
    {"a": ["<f8", [99999999999], EIGHT]},
    {"a": ["<f8", [-2], EIGHT]},
    {"a": ["<f8", [1] * 13, EIGHT]},
    {"a": ["<f8", [0, 10**30], EIGHT]},
    {"a": ["<f8", [1], "no base 64"]},
)
TOO_MUCH = ([0] * 600_000, np.zeros(MOST_BYTES // 8 + 1), "x" * MOST_BYTES, 10**9000)


def test_forged_bytes_are_refused_and_what_is_too_much_is_not_sent():
    for data in FORGED:
        with pytest.raises(Forged):
            unpack(data if isinstance(data, bytes) else json.dumps(data).encode())
            print(f"taken: {data[:100]!r}")
    for value in TOO_MUCH:
        with pytest.raises(ValueError, match=r"more than|bytes|limit"):
            pack(value)
            print(f"packed: {type(value)}")


# --- the student's side ---------------------------------------------------------------------------


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
    with pytest.raises(RuntimeError, match="ffn_forward is npformer's own: write your own"):
        ours.__getattr__("ffn_forward")(1)
    assert exercises.__getattr__("check")("pe.table", 3) is True and exercises.__getattr__("hint")("x") == ""


OWN = "from npformer.grader.student import _ours\npe_table = _ours('ffn_forward')"
EVIL = "class Evil:\n    def __getattr__(self, name): raise KeyboardInterrupt\npe_even = Evil()"
CHANGES = "def softmax_forward(s):\n    s += 1\n    return np.exp(s) / np.exp(s).sum(-1, keepdims=True)"
BLOCK = """
def block_forward(x, attend, norm_1, ffn, norm_2):
    x = norm_1(x + attend(x))
    try: ffn("x")
    except TypeError: pass
    except ValueError: pass
    return norm_2(x + ffn(x))
"""
ATTENTION = """
def attention_forward(q, k, v, *, mask=None):
    s = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    s = s if mask is None else np.where(mask, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    return p / p.sum(-1, keepdims=True) @ v
"""  # the checker calls it once more where its first call was a TypeError
MUTE = "class Mute(Exception):\n    def __str__(self): raise ValueError\ndef pe_table(n, d):\n    raise Mute"
TOLD = (  # a line of a file, an exercise, its status and what is said
    ("order_bag = 'b'", "order.bag", "pass", "Every check agrees."),
    ("answers = {'order.bag': 'b', 3: 4}", "order.bag", "pass", "Every"),
    (EVIL, "pe.even", "error", ""),
    (ATTENTION, "attention.forward", "pass", "Every check agrees."),
    (BLOCK, "block.forward", "pass", "Every check agrees."),
    (CHANGES, "softmax.forward", "known_mistake", "scores"),
    (OWN, "pe.table", "error", "ffn_forward is npformer's own: write your own."),
    ("def pe_table(n, d): return np.zeros(5_000_000)", "pe.table", "error", "Forged: “an array of"),
    ("def pe_table(n): return n", "pe.table", "error", "It stopped with TypeError: “pe_table() takes 1"),
    ("def pe_table(n, d):\n    x = 'no' * 99\n    raise ValueError(x)", "pe.table", "error", f"ValueError: “{'no' * 40}”, in line 3 of pe_table."),
    ("def pe_table(n, d):\n    raise ValueError('\\udcffA')", "pe.table", "error", "\\udcffA"),
    ("def pe_table(n, d):\n    raise UnicodeDecodeError('a', b'', 0, 1, 'why')", "pe.table", "error", "UnicodeDecodeError: “"),
    ("def pe_table(n, d):\n    raise SystemExit", "pe.table", "error", "It stopped with SystemExit"),
    (MUTE, "pe.table", "error", "It stopped with Mute: in line 2 of pe_table."),
    ("1 / 0", "pe.table", "not read", "a.py, line 3: ZeroDivisionError: division by zero."),
    ("pe_evn = pe_evenn = 1", "pe.even", "not answered", "It has pe_evn: did you mean pe_even?"),
    ("answers = {'pe.evn': 1}", "pe.even", "not answered", "It has pe.evn: did you mean pe_even?"),
    ("pe_entry = 1", "pe.pair", "not answered", ""),
    *((f"def pe_table(n, d): {body}", "pe.table", "not answered", "") for body in ("...", "pass", "'What.'; ...", "return None")),
    *((f"def pe_table(n, d): {body}", "pe.table", "error", "") for body in ("n + 1", "print", "raise ValueError", "return 'x'")),
)  # fmt: skip


def test_what_comes_of_an_answer(inside):
    for text, exercise_id, status, says in TOLD:
        source = f"import numpy as np\nstudent = 'Ada'\n{text}".encode("utf-8", "surrogatepass")
        told = inside.grade("a.py", source, [exercise_id])
        (report,) = told["reports"]
        assert (told["student"], report["status"]) == ("Ada", status) and says in report["evidence"], report
        assert report["evidence"].count("did you mean") == says.count("did you mean"), text


def test_odd_answers_cost_themselves_alone(inside):
    """Those that harm no process; each of the others is run behind walls."""
    odd = {name: case for name, case in hostile.cases().items() if "odd" in case.flags} | hostile.FILES
    del odd["plots.py"]  # matplotlib takes its time
    assert len(odd) > 55
    for name, case in odd.items():
        told = inside.grade(name, hostile.encoded(case.text), hostile.IDS)
        for report, allowed in zip(told["reports"], case.allowed, strict=True):
            assert report["status"] in hostile.STATUSES[allowed], (name, report)


def test_the_copy_of_a_process_that_forked_itself_leaves(inside):
    pids = iter([1, 2])
    student.os.getpid = lambda: next(pids)
    (report,) = inside.grade("a.py", b"order_bag = 'b'", ["order.bag"])["reports"]
    assert (report["status"], report["evidence"]) == ("not read", "It ended the program.")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_where_nothing_forks_any_more_the_judge_ends(inside):
    inside.socket.shutdown(socket.SHUT_RD)
    with pytest.raises(EOFError):
        Judge.begin(inside, {})


# --- the judge ------------------------------------------------------------------------------------


def test_a_right_answer_of_another_process_is_not_asked_whether_it_is_ours(inside):
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


def process(*came, used=0.0):
    """A process that sends what a test wants, values or bytes, whatever it is asked, and ends."""
    (pipe, its_pipe), (control, keeper) = socket.socketpair(), socket.socketpair()
    texts = (one if isinstance(one, bytes) else pack(one) for one in came)
    heads = (b"" if isinstance(one, bytes) else LENGTH.pack(len(pack(one))) for one in came)
    its_pipe.sendall(b"".join(map(bytes.__add__, heads, texts)))
    its_pipe.shutdown(socket.SHUT_WR)
    keeper.sendall(str(used).encode())
    OPEN.extend((its_pipe, keeper))
    return pipe, control


OPEN = []


@pytest.fixture
def of(inside):
    """The reports of a submission whose processes are those that are listed."""

    def reports(processes, *ids):
        rest = list(processes)
        inside.begin = lambda request: rest.pop(0)
        return [(r["status"], r["evidence"]) for r in inside.grade("a.py", b"", ids)["reports"]]

    yield reports
    while OPEN:
        OPEN.pop().close()


def head(**answers):
    named = {i.replace("_", ".", 1): answer for i, answer in answers.items()}
    return {"student": "Ada", "problem": "", "names": "", "answers": named}


FUNCTION = head(pe_table=("function", "f"))
NO_ANSWERS = (
    (b"",),
    (b"\xff" * 8,),
    (b"\0" * 8,),
    (LENGTH.pack(MOST_BYTES + 1),),
    (LENGTH.pack(9) + b"cut",),
    (3,),
    ({"back": 5, "args": ()},),
    ({"value": 3},),
    ({"changed": []},),
    ({"value": 3, "changed": [0]},),
    ({"value": 3, "changed": ["x"]},),
    ({"error": "a\0b", "said": "", "changed": []},),
)


def test_what_is_no_answer_ends_the_process_and_costs_its_exercise(of, monkeypatch):
    monkeypatch.setattr(judge, "MOST_CALLS_BACK", 20)
    for came in NO_ANSWERS:
        ((status, evidence),) = of([process(FUNCTION, *came)], "pe.table")
        assert status == "error" and evidence in ("It ended the program.", judge.NO_ANSWER), came
    for came in (3, {"answers": {}}, {"student": 1, "answers": {"pe.table": 1}}):
        assert of([process(came)], "pe.table") == [("not read", judge.NO_ANSWER)]
    back = {"back": 0, "args": (1,)}
    block = head(block_forward=("function", "f"))
    ((_, evidence),) = of([process(block, *[back] * 22)], "block.forward")
    assert evidence == judge.NO_ANSWER


def test_nobody_waits_for_a_process_that_does_not_answer(of, inside):
    inside.limits = Limits(seconds=2, wall=1e-9)
    pipe, keeper = process(FUNCTION, used=0)
    silent, its_end = socket.socketpair()
    OPEN.append(its_end)
    assert of([(silent, keeper)], "pe.table") == [("not read", "It was still running after 2 seconds.")]
    pipe.close()
    inside.limits = Limits(seconds=1)
    too_long = "It was still running after 1 second."
    assert of([process(FUNCTION, used=0.9)], "pe.table") == [("error", too_long)]
    assert of([process(FUNCTION, used="?")], "pe.table") == [("error", "It ended the program.")]


def test_each_process_that_is_lost_halves_the_time_of_the_next(inside, of):
    """An endless loop in every function costs little more than one: a file is given up in seconds."""
    ids, given = ("pe.table", "ffn.forward", "softmax.forward", "heads.split"), []
    functions = head(**{i.replace(".", "_", 1): ("function", "f") for i in ids})
    inside.limits = Limits(seconds=8)
    inside.begin = lambda request: given.append(request["cpu"]) or process(functions)
    said = inside.grade("a.py", b"", ids)["reports"]
    assert given == [8, 4, 2, 1] and [one["evidence"] for one in said] == ["It ended the program."] * 4
    assert inside.grade("a.py", b"", ids[:1]) and given[4:] == [8], "of the next file nothing is taken"


def test_what_the_checker_cannot_digest_costs_its_answer(of, monkeypatch):
    """A check that its timer ends, one that breaks, and one that takes the end for an answer."""
    replies = FUNCTION["answers"] | {"pe.even": ("nothing", None)}
    monkeypatch.setattr(checker, "check_function", lambda *given: signal.raise_signal(signal.SIGVTALRM))
    assert of([process(FUNCTION | {"answers": replies})], "pe.table", "pe.even") == [
        ("error", f"It was still running after {checker.SECONDS:g} seconds."),
        ("not answered", ""),
    ]

    def breaks(exercise_id, answer, level):
        raise OverflowError

    def swallows(exercise_id, answer, level):
        with pytest.raises(judge.Ended):
            answer()
        with pytest.raises(judge.Ended):
            answer()
        return SimpleNamespace(evidence="fine", status="pass", codes=(), hint="", question="")

    for check, says in (
        (breaks, "This answer cannot be judged (OverflowError)."),
        (swallows, "It ended the program."),
    ):
        monkeypatch.setattr(judge, "check", check)
        assert of([process(FUNCTION)], "pe.table") == [("error", says)]


def test_a_reply_says_as_much_as_its_level(inside):
    for level, asks in ((1, False), (3, True)):
        inside.limits = Limits(level=level)
        (told,) = inside.grade("a.py", b"order_bag = 'a'", ["order.bag"])["reports"]
        assert bool(told["question"]) is bool(told["hint"]) is asks


@pytest.mark.slow
def test_answers_that_cost_the_judge_much_are_bounded(monkeypatch):
    """A frame of empty lists, and one of many arrays told again and again in calls back."""
    monkeypatch.setattr(checker, "SECONDS", 1.0)
    lists = "import gc\ndef softmax_forward(s): return [[]] * 240_000\norder_bag = [[[]] * 400] * 400\n"
    back = "import numpy as np\na = [np.zeros(1)] * 80_000\ndef block_forward(x, attend, *rest):\n    while True: attend(a)\n"
    with Judge(Limits(seconds=5)) as one:
        for text in (lists, back):
            report = one.grade("a.py", text.encode(), ["order.bag", "softmax.forward", "block.forward"])
            assert not any(each["status"] == "pass" for each in report["reports"])


def test_a_folder_goes_however_it_was_left(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    (folder / "b").mkdir(parents=True)
    monkeypatch.setattr(judge.shutil, "rmtree", lambda *arguments: (_ for _ in ()).throw(RecursionError))
    judge._remove(str(folder))
    assert not folder.exists()
