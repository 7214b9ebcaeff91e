"""Both sides of the grader in this process: submissions, files, the protocol, the worker, the judge."""

import base64
import json
import os
import re
import socket
import sys
import threading
import time
import zipfile
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import honest
import hostile
import numpy as np
import pytest

from npformer.exercises import check as check_exercise
from npformer.exercises import checker, templates
from npformer.exercises.remote_calls import RemoteResult
from npformer.exercises.verdict import find
from npformer.grader import grading_process as judge
from npformer.grader import submissions as files_of
from npformer.grader.grading_process import Judge, Limits
from npformer.grader.submissions import hand_ins
from npformer.grader.worker import server as worker_server
from npformer.grader.worker.protocol import MAX_BYTES, Channel, Forged, Opaque, pack, unpack
from npformer.grader.worker.student_module import answer_of, read_submission

# --- reports ---------------------------------------------------------------------------------------

TOLD = re.compile(r"^=== (py|ipynb) (\S+) (\w+) \|(.*)\n((?:(?!===|# ---).*\n)*)", re.MULTILINE)


def test_grade_reports_each_kind_of_answer(inside):
    found = TOLD.findall(Path(__file__).with_name("told.txt").read_text("utf-8"))
    assert len(found) > 40
    for kind, exercise_id, status, says, text in found:
        data = text.encode() if kind == "py" else honest.notebook(*text.rstrip("\n").split("\n\n"))
        (report,) = inside.grade(f"a.{kind}", data, [exercise_id])
        told, says = report.evidence, says.strip()
        assert report.status.replace(" ", "_") == status, (text, report)
        assert says in told and (says[-1:] != "." or told.endswith(says)), (text, report)
        assert told.count("did you mean") == says.count("did you mean"), text


MINUS = "x = " + "-" * 100_000 + "1"
READ = (  # what no text holds: a file's name and bytes, its answer to order.bag, and how its problem begins
    ("a.py", b"student = 3\nx = '\0'", None, "a.py"),
    ("a.py", "# coding: cp1252\norder_bag = '€'".encode("cp1252"), "€", ""),
    ("a.py", b"# coding: klingon\norder_bag = '\xe9'", "é", ""),
    ("(1).py", b"import json\njson.loads('')", None, "(1).py, line 2: JSONDecodeError: "),
    ("a.ipynb", b" ", None, "The file cannot be read: it is empty."),
    ("a.ipynb", b"no", None, "The file cannot be read: it is no notebook: Expecting value: line 1 column 1"),
    ("a.ipynb", b"[]", None, "The file cannot be read: it has no cells."),
    ("a.ipynb", honest.notebook(3), None, "The file cannot be read: can only join"),
    ("a.ipynb", b"[" * 10**5, None, "The file cannot be read: it is nested too deeply."),
    ("a.ipynb", honest.notebook(MINUS, "order_bag = 'b'"), "b", "code cell 1: "),
)


def read(name, data):
    submission = read_submission(name, data)
    return answer_of(submission, "order.bag"), submission.problem


def test_read_submission_reports_problems_in_one_line():
    for name, data, answer, begins in READ:
        got, problem = read(name, data)
        assert got == answer and problem.startswith(begins) and bool(problem) == bool(begins), data[:60]
        assert "\n" not in problem


@pytest.mark.parametrize("installed", [True, False])
def test_read_submission_translates_magics_with_ipython(installed, monkeypatch):
    if installed:
        pytest.importorskip("IPython")
    else:
        monkeypatch.setitem(sys.modules, "IPython.core.inputtransformer2", None)
    cells = "%%time\n%matplotlib inline\n!ls\nif 1:\n    len?\n    order_bag = 'b'", ">>> x = 1\n>>> y = 2"
    answer, problem = read("a.ipynb", honest.notebook(*cells))
    assert answer == "b" and problem.startswith(
        "" if installed else "code cell 2, line 1: this is not Python"
    )


# --- the files of a class -------------------------------------------------------------------------

INNER = {"a.py": "x", "b.txt": "", ".DS_Store": "", "deeper.zip": honest.zipped(**{"c.py": "y"})}
BOMB = honest.zipped(**{"a.py": "x" * 2001, "b.py": "x" * 2000})  # what it says of its sizes is not believed
ZIPPED = {
    "bad.zip": b"PK no",
    "class.zip": honest.zipped(
        **{"ada.zip": honest.zipped(**INNER), "x\ny.py": "z", "x\\ny.py": "Z", "folder/": ""}
    ),
    "bomb.zip": BOMB.replace((2001).to_bytes(4, "little"), (2000).to_bytes(4, "little")),
    "large.zip": honest.zipped(**{"in.zip": BOMB}),
}
CLASS = {  # what is in it, and what is read, or how it begins to say why not
    ".ipynb_checkpoints/a.py": "a copy by Jupyter",
    "2~class.zip/x\\ny.py": b"Z",  # written as another one is
    "around.py": "It cannot be read: ",
    "bad.zip": "a zip file that cannot be read: File is not a zip file",
    "bomb.zip/a.py": "It ",
    "bomb.zip/b.py": b"x" * 2000,
    "class.zip/ada.zip/a.py": b"x",
    "class.zip/ada.zip/b.txt": "no .py file and no notebook",
    "class.zip/ada.zip/deeper.zip": "no .py file and no notebook",
    "class.zip/x\\ny.py": b"z",
    "deflated.zip/a.py": "It cannot be read: Error -3",
    "essay.pdf": "no .py file and no notebook",
    "gone.py": "It cannot be read: No such file or directory.",
    "large.py": "It is larger than 0 megabytes.",
    "large.zip/in.zip": "a zip file that cannot be read: It is larger than 0 megabytes.",
    "linked": "a link to a folder",
    "my_env": "a virtual environment",
    "n\\xff.py": b"",
    "out.py": "It cannot be read: it is a link to a place outside the folder.",
    "pipe.py": "It cannot be read: it is no file.",
    "secret": "a folder that cannot be opened",
    "stored.zip/a.py": "It cannot be read: Bad CRC",
    "x.py/a.py": b"",
}


def read_or_why(hand_in):
    try:
        return hand_in.passed_over or hand_in.read()
    except ValueError as error:
        return str(error)


def test_hand_ins_lists_every_file_of_zips(tmp_path, monkeypatch):
    for name, data in (ZIPPED | {"essay.pdf": b"", "large.py": b"x" * 2001}).items():
        (tmp_path / name).write_bytes(data)
    for name, target in {"gone.py": "nothing", "around.py": "around.py", "out.py": os.__file__}.items():
        (tmp_path / name).symlink_to(target)
    for name, kind in (("stored.zip", zipfile.ZIP_STORED), ("deflated.zip", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(tmp_path / name, "w", kind) as archive:
            archive.writestr("a.py", "x = 1\n" * 99)
        data = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(data[:34] + b"\xff" * 10 + data[44:])
    for name in (
        ".git/a.py",
        ".ipynb_checkpoints/a.py",
        "my_env/pyvenv.cfg",
        "x.py/a.py",
        "._a.py",
        os.fsdecode(b"n\xff.py"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "linked").symlink_to(".git")
    (tmp_path / "secret").mkdir(), os.mkfifo(tmp_path / "pipe.py"), os.utime(tmp_path / "class.zip", (0, 0))
    monkeypatch.setattr(files_of, "LARGEST", 2000)
    monkeypatch.setattr(files_of.os, "access", lambda path, mode: path.name != "secret")
    found = {each.name: each for each in hand_ins(tmp_path)}
    assert list(found) == sorted(CLASS)
    for name, says in CLASS.items():
        assert read_or_why(found[name])[: len(says)] == says, name
    assert found["class.zip/ada.zip/a.py"].time > 10**9, "its own time, not that of the zip file"
    assert abs(found["stored.zip/a.py"].time - (tmp_path / "stored.zip").stat().st_mtime) < 60


# --- the protocol ---------------------------------------------------------------------------------


def same(value):
    return unpack(pack(value))


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_pack_unpack_preserves_values():
    class Three:
        def __float__(self):
            return 3.0

    class Row:
        def __array__(self, *arguments, **options):
            return np.ones(2)

    class Whole(int):
        pass

    array = np.arange(6.0).reshape(2, 3).T
    for value in (None, True, 3, -2.5, "é\udcff", [1, (2, [3])], {"a": 1, "b": None}, {}, 1j, 10**40, ...):
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
    b"[" + b'{"\\u0000e":0},' * 500_000 + b"0]",
    b'"' + b"x" * MAX_BYTES + b'"',
    {"\0a": 0},
    {"\0f": 0},
    {"\0c": ["a", "b"]},
    {"\0t": 1},
    {"\0a": ["|O", [1], EIGHT]},
    {"\0a": ["<f77", [1], EIGHT]},
    {"\0a": ["<f8", [99999999999], EIGHT]},
    {"\0a": ["<f8", [-2], EIGHT]},
    {"\0a": ["<f8", [1] * 13, EIGHT]},
    {"\0a": ["<f8", [0, 2**31], EIGHT]},
    {"\0a": ["<f8", ["a", 9], EIGHT]},
    {"\0a": ["<f8", [1], "no base 64"]},
)
TOO_MUCH = ([0] * 600_000, np.zeros(MAX_BYTES // 8 + 1), "x" * MAX_BYTES, 10**9000)


def test_unpack_rejects_forged_bytes_pack_large_values():
    for data in FORGED:
        with pytest.raises(Forged):
            unpack(data if isinstance(data, bytes) else json.dumps(data).encode())
            print(f"taken: {data[:100]!r}")
    for value in TOO_MUCH:
        with pytest.raises(ValueError, match=r"more than|bytes|limit"):
            pack(value)
            print(f"packed: {type(value)}")


def test_unpack_returns_plain_tuples():
    """No frame holds an object of the checker's."""
    for value in (RemoteResult(np.ones(2), (0,)), {"value": 1, "changed": [0]}):
        received = unpack(pack(value))
        assert type(received) in (tuple, dict) and not isinstance(received, RemoteResult)


@pytest.fixture
def channel():
    """A channel and the socket at its other end."""
    here, there = socket.socketpair()
    with here, there:
        yield Channel(here), there


def test_channel_receives_what_was_sent(channel):
    here, there = channel
    other = Channel(there)
    for frame in (b"", b"x", b"y" * 50_000):
        other.send(frame)
        assert here.receive() == frame
        here.send(frame, time.monotonic() + 5)
        assert other.receive(time.monotonic() + 5) == frame
    other.close()
    with pytest.raises(EOFError):
        here.receive()


def test_channel_rejects_a_frame_that_is_too_long(channel):
    here, there = channel
    there.sendall(b"\xff" * 8)
    with pytest.raises(Forged, match="a frame of 4,294,967,295 bytes"):
        here.receive()


@pytest.mark.parametrize("sent", [b"", b"\0\0", b"\0\0\0\x09half"])
def test_channel_receive_stops_at_the_deadline(channel, sent):
    here, there = channel
    there.sendall(sent)
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        here.receive(started + 0.1)
    with pytest.raises(TimeoutError):
        here.receive(started)
    assert time.monotonic() - started < 5


def test_channel_receive_stops_while_bytes_trickle(channel):
    """A side that sends a byte now and then gets no more time than one that sends nothing."""
    here, there = channel
    there.sendall(b"\0\0\xff\xff")
    is_over = threading.Event()

    def trickle():
        while not is_over.wait(0.02):
            there.sendall(b"x")

    thread = threading.Thread(target=trickle)
    thread.start()
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        here.receive(started + 0.2)
    assert time.monotonic() - started < 5
    is_over.set()
    thread.join()


def test_channel_send_stops_if_nothing_is_read(channel):
    here, _ = channel
    with pytest.raises(TimeoutError):
        here.send(b"x" * 2**23, time.monotonic() + 0.1)


# --- the worker -----------------------------------------------------------------------------------


def test_leave_search_path_removes_our_directory(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/ours", "/home", "/packages"])
    monkeypatch.setenv("PYTHONPATH", "/ours:/home:/packages")
    worker_server.leave_search_path()
    assert sys.path == ["/packages"] and os.environ["PYTHONPATH"] == "/home:/packages"


def test_hide_npformer_replaces_it(monkeypatch):
    ours = {"npformer": 1, "npformer.exercises.bank": 2, "__main__": worker_server}
    monkeypatch.setattr(sys, "modules", {**ours, "os": os})
    monkeypatch.setattr(sys, "meta_path", [])
    worker_server.hide_npformer()
    assert sorted(sys.modules) == ["__main__", "os"] and not hasattr(sys.modules["__main__"], "__file__")
    finder = sys.meta_path[0]
    assert finder.find_spec("numpy") is None and finder.create_module(None) is None
    ours, exercises = (SimpleNamespace(__name__=name) for name in ("npformer", "npformer.exercises"))
    for module in (ours, exercises):
        assert finder.find_spec(module.__name__).name == module.__name__
        finder.exec_module(module)
    with pytest.raises(AttributeError):
        ours.__getattr__("__path__")
    with pytest.raises(RuntimeError, match="ffn_forward is npformer's own: write your own"):
        ours.__getattr__("ffn_forward")(1)
    assert exercises.__getattr__("check")("pe.table", 3) is True


def test_grade_odd_answers_cost_only_themselves(inside):
    """The cases that harm no process; the others are run in the sandbox."""
    odd = {name: case for name, case in hostile.cases().items() if "odd" in case.flags} | hostile.FILES
    del odd["plots.py"]  # matplotlib takes its time
    assert len(odd) > 55
    for name, case in odd.items():
        told = inside.grade(name, hostile.encoded(case.text), hostile.IDS)
        for report, allowed in zip(told, case.allowed, strict=True):
            assert report.status in hostile.STATUSES[allowed], (name, report)


def test_serve_submission_ends_a_forked_copy(inside):
    pids = iter([1, 2])
    worker_server.os.getpid = lambda: next(pids)
    (report,) = inside.grade("a.py", b"order_bag = 'b'", ["order.bag"])
    assert (report.status, report.evidence) == ("not read", "It ended the program.")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_fork_worker_raises_without_server(inside):
    inside.server.shutdown(socket.SHUT_RD)
    with pytest.raises(EOFError):
        Judge.fork_worker(inside, {})


# --- the judge ------------------------------------------------------------------------------------


@pytest.fixture
def of(inside):
    """The results of exercises whose worker sends these values or bytes, whatever it is asked, and ends."""
    with ExitStack() as stack:

        def reports(*came, ids=("pe.table",), used=b"0.0", given=None, left=None, after=0.0):
            def fork_worker(request):
                threading.Timer(after, inside.theirs.sendall, [used]).start()
                inside.wall_left = inside.wall_left if left is None else left
                here, there = socket.socketpair()
                stack.enter_context(there)
                for one in came:
                    Channel(there).send(one if isinstance(one, bytes) else pack(one, []))
                there.shutdown(socket.SHUT_WR)
                if given is not None:
                    given.append((request["cpu"], inside.wall_left))
                return Channel(here)

            inside.fork_worker = fork_worker
            return [(r.status, r.evidence) for r in inside.grade("a.py", b"", ids)]

        yield reports


def head(*ids):
    return {"student": "Ada", "problem": "", "names": "", "answers": dict.fromkeys(ids, len)}


TABLE = head("pe.table")
ERROR = {"type_name": "KeyError", "message": "x", "line": 3, "function": "f\n"}
NO_ANSWER = templates.sentence(find("no_answer_sent"))
NO_ANSWERS = (
    b"",
    b"\xff" * 8,
    b"\0" * 8,
    3,
    {"back": 5, "args": ()},
    {"value": 3},
    {"changed": []},
    {"value": 3, "changed": [0]},  # the arguments of pe.table are no arrays
    {"value": 3, "changed": ["x"]},
    {"value": 3, "changed": 0},
    {"value": len, "changed": []},
    {"error": {}, "changed": []},
    {"error": 3, "changed": []},
)


def test_request_gives_up_after_forged_reply(of, monkeypatch):
    monkeypatch.setattr(judge, "MAX_CALLBACKS", 20)
    for came in NO_ANSWERS:
        ((status, evidence),) = of(TABLE, came)
        assert status == "error" and evidence in ("It ended the program.", NO_ANSWER), came
    for came in (3, {"answers": {}}, {"student": 1, "answers": {"pe.table": 1}}, TABLE | {"student": len}):
        assert of(came) == [("not read", NO_ANSWER)]
    back = {"back": 0, "args": (1,)}
    assert of(head("block.forward"), *[back] * 22, ids=["block.forward"]) == [("error", NO_ANSWER)]


def test_call_remotely_reads_plain_fields(of):
    """What looks like an object of the checker's in a reply is a value like any other."""

    def evidence(reply):
        return of(TABLE, *[reply | {"changed": []}] * 99)[0][1]

    result = {"value": np.zeros((6, 8)), "changed": [0]}
    for value in (result, ERROR, {"error": ERROR}):
        assert " dict" in evidence({"value": value})
    assert evidence({"error": ERROR}) == "It stopped with KeyError: “x”, in line 3 of f."
    assert evidence({"error": ERROR | {"line": None}}) == "It stopped with KeyError: “x”."


@pytest.mark.parametrize("field", [{"line": 2**30}, {"line": "3"}, {"line": True}, {"message": 3}])
def test_call_remotely_rejects_forged_error_fields(of, field):
    reply = {"error": ERROR | field, "changed": []}
    assert of(TABLE, *[reply] * 99) == [("error", NO_ANSWER)]


def test_exchange_uses_up_the_wall_limit(inside):
    inside.wall_left = 5.0
    here, there = socket.socketpair()
    with here, there:
        threading.Timer(0.2, Channel(there).send, [b"x"]).start()
        assert inside.exchange(Channel(here), b"") == b"x"
    assert inside.wall_left < 4.9


def test_call_remotely_reports_changed_arguments(inside):
    inside.answers = {}
    inside.failure, inside.wall_left, inside.cpu = None, 5.0, 1.0
    here, there = socket.socketpair()
    inside.channel = Channel(here)
    with there:
        Channel(there).send(pack({"value": 2, "changed": [1]}))
        assert inside.call_remotely(0, 3, np.ones(2)) == RemoteResult(2, (1,))
        here.close()


SLEEPS_ONCE = """
import time
import numpy as np
calls = []
def softmax_forward(s):
    if not calls:
        calls.append(1)
        time.sleep(0.8)
    powers = np.exp(s - s.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
"""


def test_exchange_does_not_count_for_the_checker(inside, monkeypatch):
    """The checker's own limit by the clock, here 0.6 seconds, leaves out the waiting for a worker."""
    monkeypatch.setattr(checker, "SECONDS", 0.2)
    (row,) = inside.grade("a.py", SLEEPS_ONCE.encode(), ["softmax.forward"])
    assert row.status == "pass", row


def test_request_stops_waiting_at_the_limit(of, inside):
    inside.limits = Limits(seconds=2, wall=1e-9)
    assert of(TABLE) == [("not read", "It was still running after 2 seconds.")]
    assert of(TABLE, left=0.0) == [("not read", "It was still running after 2 seconds.")]
    assert of(TABLE, left=0.1, after=0.3) == [("error", "It ended the program.")], "no alarm after its end"
    inside.limits = Limits(seconds=1)
    assert of(TABLE, used=b"0.9") == [("error", "It was still running after 1 second.")]


def test_start_worker_halves_time_after_each_loss(inside, of):
    """An endless loop in every function costs little more than one: a file is given up in seconds."""
    ids, given = ("pe.table", "ffn.forward", "softmax.forward", "heads.split"), []
    inside.limits = Limits(seconds=8)
    assert of(head(*ids), ids=ids, given=given) == [("error", "It ended the program.")] * 4
    assert given == [(8, 24), (4, 12), (2, 6), (1, 3)], "of CPU, and by the clock"
    assert of(TABLE, given=given) and given[4:] == [(8, 24)], "of the next file nothing is taken"


def test_check_answer_survives_errors_of_the_checker(of, monkeypatch):
    """A check that breaks, and one that takes the end for an answer."""

    def breaks(exercise_id, answer, level):
        raise OverflowError

    def swallows(exercise_id, answer, level):
        for _ in range(2):
            with pytest.raises(judge.WorkerEnded):
                answer()
        return check_exercise("order.bag", "b")

    for check, says in (
        (breaks, "This answer cannot be checked (OverflowError)."),
        (swallows, "It ended the program."),
    ):
        monkeypatch.setattr(judge, "check", check)
        assert of(TABLE) == [("error", says)]


def test_grade_feedback_depends_on_level(inside):
    for level, asks in ((1, False), (3, True)):
        inside.limits = Limits(level=level)
        (told,) = inside.grade("a.py", b"order_bag = 'a'", ["order.bag"])
        assert bool(told.question) is bool(told.hint) is asks


@pytest.mark.slow
def test_grade_bounds_the_cost_of_replies(tmp_path, monkeypatch):
    """A frame of empty lists, and one of many arrays told again and again in calls back."""
    monkeypatch.setattr(checker, "SECONDS", 1.0)
    lists = "import gc\ndef softmax_forward(s): return [[]] * 240_000\norder_bag = [[[]] * 400] * 400\n"
    back = "import numpy as np\na = [np.zeros(1)] * 80_000\ndef block_forward(x, attend, *rest):\n    while True: attend(a)\n"
    with Judge(str(tmp_path), Limits(seconds=5)) as one:
        for text in (lists, back):
            report = one.grade("a.py", text.encode(), ["order.bag", "softmax.forward", "block.forward"])
            assert not any(each.status == "pass" for each in report)
