"""The parts of the grader one by one, in this process: frames, the student's side, walls, the judge."""

import builtins
import errno
import io
import json
import os
import queue
import runpy
import signal
import socket
import struct
import sys
import threading
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pytest

from npformer.exercises.grader import judging, shelter, student, submissions
from npformer.exercises.grader.judging import Clock, Ended, Judge, Limits, Proxy
from npformer.exercises.grader.messages import LENGTHS, MOST_BYTES, Forged, Opaque, length_of, pack, unpack

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="forks, signals and descriptors of POSIX")


class Left(BaseException):
    """In the place of os._exit."""


def leave(code):
    raise Left(code)


# --- frames -----------------------------------------------------------------------------------------


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


def test_a_function_crosses_as_its_place():
    functions = []
    frame = pack((len, 1), functions)
    assert functions == [len] and unpack(frame, [max]) == (max, 1)


@pytest.mark.parametrize("value", [[0] * 200_001, b"".join, np.zeros(MOST_BYTES // 8 + 1)])
def test_what_is_too_much_is_not_packed(value):
    if callable(value):
        value = []
        for _ in range(30):
            value = [value]
    with pytest.raises(Forged):
        pack(value)


def npy(header, data=b"", version=b"\x01\x00"):
    text = header.encode().ljust(117) + b"\n"
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text + data


def frame(tree, *blobs):
    text = tree if isinstance(tree, bytes) else json.dumps(tree).encode()
    rest = b"".join(struct.pack(">I", len(blob)) + blob for blob in blobs)
    return LENGTHS.pack(len(text), len(rest)) + text + rest


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 40,
        frame("x") + b"more",
        frame(b"\xff"),
        frame(b"[" * 100_000 + b"]" * 100_000),
        frame({"x": 1, "y": 2}),
        frame({"z": 1}),
        frame({"a": 0}),
        frame({"a": True}),
        frame({"a": -1}),
        frame({"f": 0}),
        frame({"c": ["a", "b"]}),
        frame({"d": [1]}),
        frame({"a": 0}, b"no array"),
        frame({"a": 0}, npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", b"\0" * 8)),
        frame(
            {"a": 0}, npy("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999,), }", b"\0" * 8)
        ),
        frame({"a": 0}, npy("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }", b"\0" * 8)),
        frame({"a": 0}, npy("__import__('os')", b"\0" * 8)),
        frame(
            {"a": 0}, npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }", b"\0" * 8, b"\x02\x00")
        ),
    ],
)
def test_forged_bytes_are_refused(data):
    with pytest.raises(Forged):
        unpack(data)


def test_the_length_is_read_before_the_rest():
    assert length_of(LENGTHS.pack(2, 3)) == 5
    with pytest.raises(Forged):
        length_of(b"\xff" * 8)
    assert unpack(frame({"d": [[{"t": []}, 1]]})) == {"{'t': []}": 1}


# --- the student's side -----------------------------------------------------------------------------


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
        request = {"name": "a.py", "data": np.frombuffer(text.encode(), np.uint8), "ids": list(ids)}

        def run():
            try:
                student.work(student.Line(theirs.fileno(), theirs.fileno()), request)
            except (EOFError, Left):
                theirs.close()

        threads.append(threading.Thread(target=run))
        threads[0].start()
        return student.Line(ours.fileno(), ours.fileno())

    yield start
    open_sockets[0].shutdown(socket.SHUT_WR)
    for thread in threads:
        thread.join(10)
    for each in open_sockets:
        each.close()
    monkeypatch.delitem(sys.modules, submissions.MODULE)


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


@POSIX
def test_a_file_at_work(conversation):
    line = conversation(FILE, *IDS)
    head = line.receive()
    kinds = [head["answers"][i][0] for i in IDS]
    assert kinds == ["value", "value", "function", "function", "function", "function", "nothing"]
    assert head["answers"]["pe.even"][1].kind == "Evil" and (head["student"], head["problem"]) == ("Ada", "")
    assert head["keys"] == "order.bag pe.evn"

    def call(name, *arguments, **options):
        line.send({"call": name, "args": arguments, "kwargs": options}, [])
        return line.receive()

    reply = call("softmax.forward", np.ones(2), 3)
    assert reply["value"].tolist() == [4, 4] and reply["changed"]["0"].tolist() == [2, 2]
    assert call("pe.table", 3) == {
        "error": "Mute",
        "said": "Mute",
        "where": "in line 2 of pe_table",
        "changed": {},
    }
    assert call("ffn.forward", 3)["error"] == "Forged"
    assert call("softmax.forward")["where"] == "", "the call itself failed"
    line.send({"call": "block.forward", "args": (np.ones(2), len), "kwargs": {}}, [])
    asked = line.receive()
    assert asked["back"] == 0 and asked["args"][0].tolist() == [1, 1]
    line.send({"value": 5})
    assert line.receive()["value"] == 5
    line.send({"call": "block.forward", "args": (np.ones(2), len), "kwargs": {}}, [])
    line.receive()
    line.send({"error": "KeyError", "said": "no"})
    assert line.receive()["error"] == "KeyError"


@POSIX
def test_the_copy_of_a_process_that_forked_itself_leaves(conversation, monkeypatch):
    pids = iter([1, 2])
    student.os.getpid = lambda: next(pids)
    line = conversation("order_bag = 'b'", "order.bag")
    with pytest.raises(EOFError):
        line.receive()


def test_npformer_is_a_stand_in(monkeypatch):
    monkeypatch.setattr(sys, "modules", {"npformer": 1, "npformer.exercises.topics": 2, "os": os})
    monkeypatch.setattr(sys, "meta_path", [])
    hooks = []
    monkeypatch.setattr(sys, "addaudithook", hooks.append)
    student.hide_npformer(())
    assert list(sys.modules) == ["os"] and hooks == []
    student.hide_npformer((str(os.path.dirname(student.__file__)),))
    with pytest.raises(PermissionError, match="not open while your work is checked"):
        hooks[0]("open", (student.__file__, "r", 0))
    for harmless in (("open", (os.__file__,)), ("open", (3,)), ("exec", (1,))):
        assert hooks[0](*harmless) is None
    finder = sys.meta_path[0]
    assert finder.find_spec("numpy") is None and finder.create_module(None) is None
    with pytest.raises(ModuleNotFoundError, match="not here"):
        finder.find_spec("npformer.exercises.topics")
    module, exercises = (SimpleNamespace(__name__=name) for name in ("npformer", "npformer.exercises"))
    for one in (module, exercises):
        assert finder.find_spec(one.__name__).name == one.__name__
        finder.exec_module(one)
    with pytest.raises(AttributeError):
        module.__getattr__("__path__")
    ours = module.__getattr__("ffn_forward")
    with pytest.raises(RuntimeError, match="ffn_forward is npformer's own: write your own"):
        ours(1)
    assert student.tell(ours, "x", {}) == ("ours", "ffn_forward")
    assert exercises.__getattr__("check")("pe.table", 3) is True and exercises.__getattr__("hint")("x") == ""


# --- the fork server, with everything that it asks of the system noted ---------------------------------


@pytest.fixture
def noted(monkeypatch):
    """The calls of os, shelter and signal that may not happen in this process."""
    calls = []

    def note(name, result=None):
        def act(*arguments, **options):
            calls.append((name, *arguments))
            return result(*arguments) if callable(result) else result

        return act

    system = {name: note(name) for name in ("dup2", "setsid", "close", "chown", "chdir", "write")}
    system |= {"_exit": leave, "dup": lambda fd: fd, "open": lambda *a: 9, "environ": {}}
    fake = SimpleNamespace(**{**vars(os), **system})
    monkeypatch.setattr(student, "os", fake)
    names = ("adopt", "end_descendants", "end_cell", "enter", "become", "limit")
    walls = {name: note(name) for name in names} | {"cell": lambda bounds: "cell"}
    monkeypatch.setattr(student, "shelter", SimpleNamespace(**{**vars(shelter), **walls}))
    monkeypatch.setattr(
        student,
        "signal",
        SimpleNamespace(signal=note("signal"), set_wakeup_fd=note("wakeup"), SIGCHLD=17, SIG_DFL=0),
    )
    monkeypatch.setattr(student, "hide_npformer", note("hide"))
    return calls


REQUEST = {
    "preload": ["json", "no_such_module"],
    "cpu": 2.0,
    "megabytes": 99,
    "hidden": ["/h"],
    "folder": "/f",
}


@POSIX
def test_the_server_forks_until_its_socket_ends(noted, monkeypatch):
    came = iter([(pack(REQUEST), [7, 8], 0, None), (b"", [], 0, None)])
    fake = SimpleNamespace(socket=lambda fileno: None, recv_fds=lambda *arguments: next(came))
    monkeypatch.setattr(student, "socket", fake)
    monkeypatch.setattr(student, "gc", SimpleNamespace(freeze=lambda: None))
    monkeypatch.setattr(student.shelter, "can_become", lambda user: True)
    monkeypatch.setattr(student.os, "fork", lambda: 5, raising=False)
    monkeypatch.setattr(student.os, "geteuid", lambda: 0, raising=False)
    ended = iter([(0, 0), (5, 9), (6, 0), (0, 0)])
    monkeypatch.setattr(student.os, "waitpid", lambda *arguments: next(ended))
    with pytest.raises(Left):
        student.serve()
    names = [call[0] for call in noted]
    assert names.count("end_descendants") == 2, "after a keeper that was ended, and at the end"
    assert ("close", 7) in noted and ("close", 8) in noted and ("end_cell", "cell") in noted


@POSIX
def test_the_fork_becomes_a_keeper(noted, monkeypatch):
    closed, kept = [], []
    monkeypatch.setattr(student.os, "fork", lambda: 0, raising=False)
    monkeypatch.setattr(student, "keep", lambda *arguments: kept.append(arguments))
    student.one(SimpleNamespace(close=lambda: closed.append(1)), REQUEST, [7, 8], True)
    assert closed == [1] and kept[0][1:3] == (7, 8) and kept[0][3] >= student.USER


@POSIX
@pytest.mark.parametrize(("apart", "forks"), [("root", [0, 0]), ("user", [0, 3]), ("root", [4]), ("", [3])])
def test_a_keeper_starts_one_process_and_watches_it(apart, forks, noted, monkeypatch):
    went, rest = [], iter(forks)
    monkeypatch.setattr(student.os, "fork", lambda: next(rest), raising=False)
    monkeypatch.setattr(student.shelter, "apart", lambda: apart)
    monkeypatch.setattr(student.shelter, "walls", lambda *arguments: True, raising=False)

    def go(name):
        def stop(*arguments):
            went.append((name, arguments))
            raise Left

        return stop

    monkeypatch.setattr(student, "start", go("start"))
    monkeypatch.setattr(student, "watch", go("watch"))
    pair = socket.socketpair()
    monkeypatch.setattr(student, "socket", SimpleNamespace(socketpair=lambda: pair))
    with pair[0], pair[1], pytest.raises(Left):
        student.keep(REQUEST, 7, 8, 0, shelter.Bounds(2, 99), "cell")
    if forks == [4]:
        assert went == [], "the parent leaves at once"
        return
    assert went[0][0] == ("start" if forks[-1] == 0 else "watch")
    told = next(unpack(call[2]) for call in noted if call[0] == "write")
    assert told == {"network": not apart, "files": not apart}
    if forks[-1] == 0:
        assert went[0][1][-1] == (), "behind walls no path has to be refused"


@POSIX
@pytest.mark.parametrize(("user", "held"), [(0, False), (5, True)])
def test_the_process_that_works_is_bound_first(user, held, noted, monkeypatch):
    ours, theirs = socket.socketpair()
    worked = []
    monkeypatch.setattr(student, "work", lambda line, request: worked.append(request))
    ours.sendall(pack({"name": "a.py"}))
    with ours, theirs, pytest.raises(Left):
        student.start(REQUEST, theirs.fileno(), shelter.Bounds(2, 99), user, held, ("/h",))
    assert worked == [{"name": "a.py"}]
    names = [call[0] for call in noted]
    assert names == (["chown", "chdir", "become"] if user else ["chdir"]) + ["limit", "hide"]


@POSIX
@pytest.mark.parametrize("how", ["hung up", "asked", "ended", "too many", "too large"])
def test_a_keeper_ends_all_when_it_is_time(how, noted, monkeypatch):
    control, theirs = socket.socketpair()
    woken, wake = socket.socketpair()
    monkeypatch.setattr(student, "TICK", 0.01)
    monkeypatch.setattr(student.shelter, "cpu_seconds", lambda pid: 1.5)
    below = {"too many": dict.fromkeys(range(70), 1), "too large": {1: 2**30}}.get(how, {1: 1})
    monkeypatch.setattr(student.shelter, "descendants", lambda pid: below)
    waits = iter([(0, 0), (0, 0), (3, 0)])
    monkeypatch.setattr(student.os, "waitpid", lambda *a: next(waits) if how == "ended" else (0, 0))
    monkeypatch.setattr(student.os, "write", os.write)
    if how == "hung up":
        control.shutdown(socket.SHUT_WR)
    if how == "asked":
        control.sendall(b"?")
        threading.Timer(0.3, lambda: control.shutdown(socket.SHUT_WR)).start()
    if how == "ended":
        wake.sendall(b"x")
    with control, theirs, woken, wake:
        with pytest.raises(Left):
            student.watch(3, theirs.fileno(), woken.fileno(), shelter.Bounds(2, 99))
        if how == "asked":
            assert struct.unpack(">d", control.recv(8)) == (1.5,)
    assert noted[-1][0] == "end_descendants"


@POSIX
@pytest.mark.parametrize("asks", [True, False])
def test_alone_a_process_reads_its_one_request(asks, noted, monkeypatch):
    ours, theirs = socket.socketpair()
    worked = []
    monkeypatch.setattr(student.os, "dup", lambda fd: theirs.fileno())
    monkeypatch.setattr(student.os, "write", os.write)
    monkeypatch.setattr(student, "work", lambda line, request: worked.append(request["folder"]))
    if asks:
        ours.sendall(pack(REQUEST))
    else:
        ours.shutdown(socket.SHUT_WR)
    with ours, theirs, pytest.raises(Left):
        student.alone()
    assert worked == (["/f"] if asks else [])


# --- the walls --------------------------------------------------------------------------------------


@pytest.fixture
def libc(monkeypatch):
    """What libc is asked for; names in `fails` are refused."""
    asked, fails = [], []

    def call(name, *arguments):
        asked.append((name, *arguments))
        if name in fails or any((name, *arguments) == fail for fail in fails):
            raise OSError(errno.EPERM, name)
        return 0

    monkeypatch.setattr(shelter, "call", call)
    return asked, fails


@pytest.mark.skipif(sys.platform != "linux", reason="glibc or musl")
def test_libc_is_called_by_name():
    assert shelter.call("getpid") == os.getpid()
    with pytest.raises(OSError, match="has no no_such_function"):
        shelter.call("no_such_function")
    with pytest.raises(OSError, match="close: Bad file descriptor"):
        shelter.call("close", -1)


@POSIX
def test_namespaces_are_entered_as_root_or_as_a_user_or_not_at_all(libc, monkeypatch):
    asked, fails = libc
    written = []

    class File(io.StringIO):
        def close(self):
            written.append(self.getvalue())

    monkeypatch.setattr(shelter, "open", lambda *arguments, **options: File(), raising=False)
    assert shelter.apart() == "root" and asked == [("unshare", 0x20000 | 0x8000000 | 0x20000000 | 0x40000000)]
    fails.append(asked[0])
    assert shelter.apart() == "user" and {text.split()[-1] for text in written} == {"deny", "1"}
    fails.append("unshare")
    assert shelter.apart() == ""


@POSIX
def test_walls_are_mounts(libc):
    asked, fails = libc
    shelter.adopt()
    assert shelter.walls("/f", ["/h"], 7)
    targets = [call[2] for call in asked if call[0] == "mount"]
    assert targets == [b"/", b"/proc", b"/h", b"/f"] and asked[-1][-1].endswith(b"uid=7,gid=7")
    fails.append("syscall")
    assert not shelter.walls("/f", [], 7)


@POSIX
@pytest.mark.parametrize(("user", "closed"), [(0, False), (9, False), (9, True)])
def test_privileges_are_given_up(user, closed, libc, monkeypatch):
    asked, _ = libc
    became = []
    for name in ("setgroups", "setresgid", "setresuid"):
        monkeypatch.setattr(os, name, lambda *ids: became.append(ids), raising=False)
    mode = 0o700 if closed else 0o755
    monkeypatch.setattr(os, "stat", lambda path: SimpleNamespace(st_mode=mode))
    shelter.become(user)
    assert [call[0] for call in asked] == ["prctl", "capset", "prctl", "prctl"]
    assert became == ([([],), (9, 9, 9), (9, 9, 9)] if user else [])


@POSIX
@pytest.mark.parametrize("works", [True, False])
def test_whether_one_can_become_another_user_is_tried(works, monkeypatch):
    def become(user):
        if not works:
            raise OSError

    codes = []
    monkeypatch.setattr(shelter, "become", become)
    assert shelter.can_become(9) is works
    monkeypatch.setattr(os, "fork", lambda: 0)

    def note(code):
        codes.append(code)
        raise Left if codes == [1] or len(codes) > 1 else SystemExit

    monkeypatch.setattr(os, "_exit", note)
    with pytest.raises(Left):
        shelter.can_become(9)
    assert codes == ([0, 1] if works else [1])


class Resource:
    RLIMIT_AS, RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_NOFILE, RLIMIT_CORE, RLIMIT_NPROC = range(6)

    def __init__(self):
        self.set = {}

    def setrlimit(self, what, most):
        if what == self.RLIMIT_AS:
            raise OSError("not here")
        self.set[what] = most[0]


def test_limits_hold_where_the_system_has_them(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", resource := Resource())
    shelter.limit(shelter.Bounds(2.5, 10, 5), True)
    assert resource.set == {1: shelter.LARGEST_FILE, 2: 4, 3: shelter.OPEN_FILES, 4: 0, 5: 5}
    monkeypatch.setattr(shelter, "tasks", lambda: {1: (0, 3, 0), 2: (1, 4, 0)})
    shelter.limit(shelter.Bounds(2.5, 10, 5), False)
    assert resource.set[5] == 12
    monkeypatch.setattr(shelter, "tasks", dict)
    monkeypatch.setitem(sys.modules, "resource", fresh := Resource())
    shelter.limit(shelter.Bounds(2.5, 10, 5), False)
    assert 5 not in fresh.set, "where nobody can be counted"
    monkeypatch.setitem(sys.modules, "resource", None)
    shelter.limit(shelter.Bounds(2.5, 10), True)


def test_cpu_time_is_read_by_process(monkeypatch):
    monkeypatch.setattr(shelter, "LINUX", False)
    assert shelter.cpu_seconds(1) == 0
    monkeypatch.setattr(shelter, "LINUX", True)

    def clock(number):
        raise OSError

    monkeypatch.setattr(shelter.time, "clock_gettime", clock, raising=False)
    assert shelter.cpu_seconds(1) == 0


@POSIX
def test_a_tree_is_stopped_before_it_is_ended(monkeypatch):
    """It grows while one looks: 3 comes between two looks; and a process that has ended is no error."""
    looks = iter([{2: 0}, {2: 0, 3: 0}, {2: 0, 3: 0}, {}, {}, {}, {}, {}, {}])
    sent = []

    def kill(pid, number):
        sent.append((pid, number))
        if pid == 3:
            raise ProcessLookupError

    monkeypatch.setattr(shelter, "descendants", lambda of: next(looks))
    monkeypatch.setattr(os, "kill", kill)
    waits = iter([(2, 0)] + [(0, 0)] * 9)
    monkeypatch.setattr(os, "waitpid", lambda *a: next(waits))
    shelter.end_descendants(1)
    assert sent.index((3, signal.SIGSTOP)) < sent.index((2, signal.SIGKILL))


@pytest.mark.skipif(not shelter.LINUX, reason="only Linux has this /proc")
def test_a_proc_of_other_numbers_is_not_believed(monkeypatch):
    """In a container that may have namespaces and may not mount a /proc, process 1 is not process 1 of /proc.

    A keeper that believes it sees the whole machine as its own, and never comes to the end of it.
    """
    assert os.getpid() in shelter.tasks()
    monkeypatch.setattr(os, "getpid", lambda: 1)
    assert shelter.tasks() == {}
    signalled = []
    monkeypatch.setattr(os, "kill", lambda pid, number: signalled.append(pid))
    shelter.end_descendants(1)
    assert signalled == []


def test_without_a_proc_nobody_is_seen(monkeypatch):
    def missing(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(os, "readlink", missing)
    assert shelter.tasks() == {}


def test_descendants_are_found_through_their_parents(monkeypatch):
    every = {1: (0, 1, 5), 2: (1, 1, 6), 3: (2, 1, 7), 4: (0, 1, 8)}
    monkeypatch.setattr(shelter, "tasks", lambda: every)
    assert shelter.descendants(1) == {2: 6, 3: 7}
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    monkeypatch.delattr(os, "killpg", raising=False)
    shelter.end_group(1)


def test_marked_processes_are_ended_and_no_others(monkeypatch):
    marked, killed = {7}, []
    monkeypatch.setattr(shelter, "tasks", lambda: {7: 0, 8: 0, os.getpid(): 0})
    monkeypatch.setattr(shelter, "_carries", lambda pid, mark: pid in marked and mark == b"M=1")

    def kill(pid, number):
        killed.append(pid)
        marked.clear()

    monkeypatch.setattr(os, "kill", kill)
    shelter.end_marked("M=1")
    assert killed == [7]
    monkeypatch.undo()
    assert not shelter._carries(2**30, b"M=1")


@POSIX
def test_a_control_group_is_made_entered_and_removed(tmp_path, monkeypatch):
    texts = {
        "/proc/self/mountinfo": f"1 2 0:3 / {tmp_path} rw - cgroup2 none rw\n",
        "/proc/self/cgroup": "1:cpu:/x\n0::/\n",
    }

    def fake(path, *arguments, **options):
        if path.endswith("memory.max"):
            raise PermissionError
        return io.StringIO(texts[path]) if path in texts else builtins.open(path, *arguments, **options)

    monkeypatch.setattr(shelter, "open", fake, raising=False)
    monkeypatch.setattr(shelter.time, "sleep", lambda seconds: None)
    cell = shelter.cell(shelter.Bounds(2, 99, 5))
    shelter.enter(cell)
    assert sorted(os.listdir(cell)) == ["cgroup.procs", "pids.max"]
    shelter.end_cell(cell)
    assert "cgroup.kill" in os.listdir(cell), "not empty: it was tried for a while"
    for name in os.listdir(cell):
        os.remove(f"{cell}/{name}")
    texts_gone = tmp_path / "gone"
    shelter.end_cell(str(texts_gone))
    os.mkdir(texts_gone)
    monkeypatch.setattr(shelter, "_write", lambda *arguments: None)
    shelter.end_cell(str(texts_gone))
    assert not texts_gone.exists()
    texts["/proc/self/cgroup"] = ""
    assert shelter.cell(shelter.Bounds(2, 99)) == ""
    shelter.enter("")
    shelter.end_cell("")


# --- the judge --------------------------------------------------------------------------------------


class Process:
    """A student's process that says what a test wants."""

    walls = MappingProxyType({})

    def __init__(self, *replies, cpu=None, refuses=False):
        self.replies, self.cpus, self.refuses = list(replies), cpu, refuses

    def write(self, data, seconds):
        if self.refuses:
            raise TimeoutError

    def read(self, seconds):
        reply = self.replies.pop(0) if self.replies else b""
        if isinstance(reply, Exception):
            raise reply
        return reply

    def cpu(self):
        return self.cpus.pop(0) if self.cpus else None

    def close(self):
        pass


def asked(*replies, arguments=(), **options):
    one = judging.Student(Process(*replies, **options), Clock(Limits(seconds=1)))
    return Proxy(one, "pe.table", "pe_table")(*arguments)


def reply(**parts):
    return pack({"changed": {}, **parts})


def test_a_proxy_is_called_like_the_function():
    array = np.zeros(2)
    whole = reply(value=7, changed={"0": np.ones(2), "1": 3})
    assert asked(whole[:5], whole[5:], arguments=(array, 1)) == 7 and array.tolist() == [1, 1]
    asked(reply(value=7, changed={"0": np.ones(3)}), arguments=(array,))
    assert array.tolist() == [0, 0], "another shape: spoilt"
    assert asked(pack({"back": 0, "args": (3,)}), reply(value=1), arguments=(abs,)) == 1
    assert asked(pack({"back": 0, "args": ("x",)}), reply(value=1), arguments=(abs,)) == 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ValueError", ValueError),
        ("UnicodeDecodeError", ValueError),
        ("Own", Exception),
        ("SystemExit", SystemExit),
    ],
)
def test_an_error_arrives_as_one_of_its_name(name, kind):
    with pytest.raises(kind) as caught:
        asked(reply(error=name, said=f"{name}: no", where="in line 2 of f"))
    assert type(caught.value).__name__ == name and str(caught.value) == "no, in line 2 of f"
    with pytest.raises(Exception, match=r"^$"):
        asked(reply(error="KeyboardInterrupt", said="KeyboardInterrupt", where=""))


@pytest.mark.parametrize(
    "came",
    [
        (b"",),
        (b"\xff" * 8,),
        (b"\0" * 8,),
        (pack(3),),
        (pack({"back": 5, "args": ()}),),
        (OSError("reset"),),
        tuple([pack({"back": 0, "args": (1,)})] * 1002),
    ],
)
def test_what_is_no_answer_ends_the_process(came):
    with pytest.raises(Ended, match=r"It (ended the program|sent something that is no answer)\."):
        asked(*came, arguments=(abs,))


def test_nobody_waits_for_a_process_that_does_not_read_or_answer():
    with pytest.raises(Ended, match="It ended the program"):
        asked(refuses=True)
    with pytest.raises(Ended, match="It was still running after 1 seconds"):
        asked(None, None, cpu=[0.0, 0.4, 1.5])
    one = judging.Student(Process(None, cpu=[0.0, 2.0]), Clock(Limits(seconds=1)))
    for _ in range(2):  # it stays ended
        with pytest.raises(Ended, match="still running"):
            one.call("pe.table", (), {})


@pytest.fixture
def judge(monkeypatch):
    """A judge whose processes are the ones a test lists."""
    monkeypatch.setattr(judging, "Server", lambda mark, home: SimpleNamespace(close=lambda: None))
    with Judge(Limits(seconds=1), fork=True) as one:
        yield one


def head(keys="", **answers):
    named = {i.replace("_", "."): answer for i, answer in answers.items()}
    return pack({"student": "Ada", "problem": "", "keys": keys, "answers": named})


def reports(judge, processes, *ids):
    rest = list(processes)
    judge.open = lambda *arguments: rest.pop(0)
    return [(r["status"], r["evidence"]) for r in judge.grade("a.py", b"", ids)[1]]


def test_a_head_that_is_none_is_no_head(judge):
    wrong = "It sent something that is no answer."
    for came in (pack(3), pack({"answers": {}}), pack({"student": 1, "answers": {"order.bag": 1}})):
        assert reports(judge, [Process(came)], "order.bag") == [("not read", wrong)]


def test_time_that_is_used_up_costs_what_is_left(judge, monkeypatch):
    monkeypatch.setattr(Clock, "over", lambda self: True)
    came = [Process(head(order_bag=("value", "b"), pe_table=("function", "f")))]
    assert reports(judge, came, "order.bag", "pe.table") == [
        ("pass", "Every check agrees."),
        ("error", "Not checked: the time for this file was used up."),
    ]
    assert Clock(Limits()).over.__call__() is not None


def test_an_ending_that_the_checker_swallows_is_not_lost(judge, monkeypatch):
    def check(exercise_id, answer, level):
        try:
            answer()
        except Ended:
            return SimpleNamespace(evidence="fine", status="pass", codes=(), hint="", question="")

    monkeypatch.setattr(judging, "check", check)
    came = [Process(head(pe_table=("function", "f")))]
    assert reports(judge, came, "pe.table") == [("error", "It ended the program.")]


def test_an_answer_that_the_checker_cannot_digest_costs_itself(judge, monkeypatch):
    def check(*arguments, **options):
        raise OverflowError

    monkeypatch.setattr(judging, "check", check)
    came = [Process(head(order_bag=("value", 3), pe_even=("nothing", None)))]
    assert reports(judge, came, "order.bag", "pe.even") == [
        ("error", "This answer cannot be judged (OverflowError)."),
        ("not answered", ""),
    ]


def test_an_answer_under_a_name_of_no_exercise_is_told(judge):
    nothing = ("nothing", None)
    for keys, told in (
        ("pe.evn order.bag", "answers has 'pe.evn', which is no exercise."),
        ("a b c d", "answers has 'a', 'b', 'c', which is no exercise."),
        ("pe.entry", ""),
    ):
        came = [Process(head(keys, pe_even=nothing, order_bag=("value", "b")))]
        assert reports(judge, came, "pe.even", "order.bag")[0] == ("not answered", told)


def test_numbers_belong_to_the_student(judge, monkeypatch):
    seen = []

    def check(asked, answer, level):
        seen.append(asked)
        return SimpleNamespace(evidence=judging.NOTHING, status="error", codes=(), hint="", question="")

    monkeypatch.setattr(judging, "check", check)
    came = [Process(head(pe_entry=("value", 3), order_bag=("value", 3)))]
    assert reports(judge, came, "pe.entry", "order.bag")[0][0] == "not answered"
    assert seen == ["pe.entry@Ada", "order.bag"]


def test_a_system_without_processes_is_said(judge):
    def refuse(*arguments):
        raise Ended("The system had no process for it.")

    judge.open = refuse
    assert judge.grade("a.py", b"", ["order.bag"])[1][0]["evidence"] == "The system had no process for it."


@POSIX
@pytest.mark.parametrize("sent", [b"", b"nonsense"])
def test_a_keeper_that_does_not_report_is_hung_up_on(sent):
    pipe, its_pipe = socket.socketpair()
    control, keeper = socket.socketpair()
    keeper.sendall(sent)
    keeper.shutdown(socket.SHUT_WR)
    with its_pipe, keeper, pytest.raises(Ended, match="no process"):
        judging.Forked(pipe, control)


@POSIX
def test_a_keeper_that_falls_silent_has_no_cpu_time():
    pipe, its_pipe = socket.socketpair()
    control, keeper = socket.socketpair()
    keeper.sendall(pack({"network": True}))
    process = judging.Forked(pipe, control)
    keeper.sendall(b"x" * 80)
    keeper.shutdown(socket.SHUT_WR)
    process.control.recv(72)
    process.control.setblocking(False)
    assert process.control.recv(4) == b"xxxx"
    process.control.setblocking(True)
    assert process.cpu() is None and process.walls == {"network": True}
    its_pipe.close(), keeper.close(), process.close()


def test_a_server_that_does_not_leave_is_ended(monkeypatch):
    class Deaf:
        killed = False

        def wait(self, seconds=None):
            if seconds:
                raise judging.subprocess.TimeoutExpired("x", seconds)

        def kill(self):
            self.killed = True

    server = judging.Server.__new__(judging.Server)
    server.socket, server.process = SimpleNamespace(close=lambda: None), Deaf()
    server.close()
    assert server.process.killed


def test_a_folder_goes_however_it_was_left(tmp_path, monkeypatch):
    folder = tmp_path / "a"
    (folder / "b").mkdir(parents=True)

    def fails(*arguments, **options):
        if not options:
            raise RecursionError

    monkeypatch.setattr(judging.shutil, "rmtree", fails)
    monkeypatch.setattr(judging, "os", SimpleNamespace(name="nt"))
    judging._remove(str(folder))
    assert folder.exists()
    if sys.platform != "win32":
        monkeypatch.setattr(judging, "os", os)
        judging._remove(str(folder))
        assert not folder.exists()


def test_files_that_cannot_be_read_say_so(tmp_path, monkeypatch):
    path = tmp_path / "a.py"
    path.write_text("")
    assert judging.digest_of(str(path), str(tmp_path))[1] == ""
    monkeypatch.setattr(judging, "LARGEST_SUBMISSION", -1)
    assert judging.digest_of(str(path), str(tmp_path))[1].startswith("It is larger than")
    assert "It is no file." in judging.digest_of(str(tmp_path), str(tmp_path))
    assert "cannot be read" in judging.digest_of(str(tmp_path / "none"), str(tmp_path))[0]
    assert judging.digest_of(str(tmp_path), str(path))[1] == "It is a link to a place outside the folder."
    with Judge() as judge:
        report = judging.grade_file(judge, str(tmp_path), str(tmp_path), ["order.bag"])
    assert report["reports"][0]["evidence"] == "It is no file."


def test_python_m_runs_a_worker(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("no settings"))
    monkeypatch.delitem(sys.modules, "npformer.exercises.grader.judging")
    with pytest.raises(json.JSONDecodeError):
        runpy.run_module("npformer.exercises.grader.judging", run_name="__main__")


@pytest.mark.parametrize("gone", [False, True])
def test_a_worker_of_a_class_reads_jobs_and_leaves_with_its_input(gone, tmp_path, monkeypatch, capsys):
    (tmp_path / "a.py").write_text("order_bag = 'b'")
    left = queue.Queue()
    go_on = threading.Event()

    class Input:
        def readline(self):
            places = {"folder": str(tmp_path), "scratch": str(tmp_path)}
            return json.dumps({"limits": Limits(), "hidden": [], "ids": ["order.bag"], **places})

        def __iter__(self):
            yield json.dumps({"path": str(tmp_path / "a.py")})
            go_on.wait(60)

    jobs = queue.Queue()

    class Jobs(queue.Queue):
        def get(self):
            if jobs.empty():
                jobs.put(1)
                return super().get()
            go_on.set()
            assert left.get(timeout=60) == 0
            return None

    monkeypatch.setattr(judging.sys, "stdin", Input())
    monkeypatch.setattr(judging.queue, "Queue", Jobs)
    monkeypatch.setattr(judging.os, "_exit", left.put)
    if gone:

        def nobody_reads(*arguments, **options):
            go_on.set()
            raise BrokenPipeError

        monkeypatch.setattr(judging, "print", nobody_reads, raising=False)
        with pytest.raises(BrokenPipeError):
            judging.main()
        assert left.get(timeout=60) == 0, "the listener was waited for"
        return
    judging.main()
    said = json.loads(capsys.readouterr().out)
    assert said["reports"][0]["status"] == "pass"
