"""The student's side: the file is run here, and its functions are called with the arguments that arrive.

The text of this module and of the three that it imports is sent to a fresh Python, which holds nothing else
of npformer: no answers, no checker. What leaves are values and arrays (`messages`), so whatever a file does
to NumPy, to this module or to its process, it can only change what its own functions answer.

On POSIX, `serve` waits with NumPy imported and forks: the keeper, which ends with its submission and takes
along all that it started, and below it the process that works. Elsewhere every submission gets a new Python.
"""

import builtins
import gc
import os
import random
import select
import signal
import socket
import struct
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np

from npformer.grader import shelter
from npformer.grader.messages import LENGTHS, Forged, Opaque, length_of, pack, readable, unpack
from npformer.grader.submissions import Submission, answer_of, keys_of, read_submission, said

USER = 2**30  # users from here on belong to nobody
TICK = 0.25  # seconds between two looks at how many processes there are
CPU = struct.Struct(">d")
QUIET = {"check": True, "hint": "", "show": "", "progress": "", "list_exercises": "", "Result": ""}


# --- one submission -------------------------------------------------------------------------------


class Line:
    """Frames in and out of two descriptors."""

    def __init__(self, read_from: int, write_to: int) -> None:
        self.read_from, self.write_to = read_from, write_to
        self._read, self._write = os.read, os.write  # as they are now: a file may patch them

    def send(self, value: Any, functions: list[Callable[..., Any]] | None = None) -> None:
        """Write one frame."""
        frame = memoryview(pack(value, functions))
        while frame:
            frame = frame[self._write(self.write_to, frame) :]

    def receive(self, functions: tuple[Callable[..., Any], ...] = ()) -> Any:
        """Read one frame; EOFError at the end."""
        head = self._exactly(LENGTHS.size)
        return unpack(head + self._exactly(length_of(head)), functions)

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._read(self.read_from, count - len(data))
            if not more:
                raise EOFError
            data += more
        return data


def work(line: Line, request: dict[str, Any]) -> None:
    """Run the file, tell what it answers, then call its functions until the other side has had enough."""
    me, getpid, leave = os.getpid(), os.getpid, os._exit
    name, data = str(request["name"]), request["data"].tobytes()
    with (
        suppress(OSError, ValueError),
        open(name, "xb") as file,
    ):  # a copy beside it, for code that looks itself up
        file.write(data)
    sys.argv = [name]
    submission = read_submission(name, data)
    if getpid() != me:  # the file has forked and its copy came back here
        leave(0)
    functions: dict[str, Callable[..., Any]] = {}
    answers = {i: tell(answer_of(submission, i), i, functions) for i in request["ids"]}
    texts = {"problem": readable(submission.problem, 1000), "keys": readable(keys_of(submission), 5000)}
    line.send({"student": submission.student, "answers": answers} | texts)
    while True:
        message = line.receive(_Stubs(line))
        line.send(answered(functions[message["call"]], message, submission))


def tell(answer: Any, exercise_id: str, functions: dict[str, Callable[..., Any]]) -> tuple[str, Any]:
    """One answer in words that cross the pipe: a function stays here, a value goes."""
    try:
        if answer is None or answer is ...:
            return "nothing", None
        if getattr(answer, "__npformer__", None) is _MARK:
            return "ours", answer.__name__
        if callable(answer):
            functions[exercise_id] = answer
            return "function", readable(str(getattr(answer, "__name__", "")))
        pack(answer)
        return "value", answer
    except BaseException:
        return "value", Opaque(readable(type(answer).__name__))


def answered(function: Callable[..., Any], message: dict[str, Any], submission: Submission) -> dict[str, Any]:
    """What a call gave, or its error; and the arguments that are not what they were."""
    arguments = message["args"]
    before = [pack(a) if isinstance(a, np.ndarray) else b"" for a in arguments]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            value = function(*arguments, **message["kwargs"])
        reply = {"value": value}
        pack(reply)
    except BaseException as error:
        reply = _failure(error, submission)
    changed = {
        str(i): a for i, (a, was) in enumerate(zip(arguments, before, strict=True)) if was and pack(a) != was
    }
    return {**reply, "changed": changed}


def _failure(error: BaseException, submission: Submission) -> dict[str, Any]:
    frames = [(f.f_code, line) for f, line in traceback.walk_tb(error.__traceback__)]
    own = [(code, line) for code, line in frames if code.co_filename in submission.places]
    where = ""
    if own:
        code, line = own[-1]
        where = f"in line {line - code.co_firstlineno + 1} of {code.co_name}"
    return {"error": readable(type(error).__name__), "said": readable(said(error)), "where": readable(where)}


class _Stubs(tuple[Callable[..., Any], ...]):
    """The functions among the arguments of a call live on the other side; these ask there."""

    def __new__(cls, line: Line) -> "_Stubs":
        return super().__new__(cls)

    def __init__(self, line: Line) -> None:
        self.line = line

    def __getitem__(self, place: Any) -> Any:
        def ask(*arguments: Any) -> Any:
            self.line.send({"back": place, "args": arguments})
            reply = self.line.receive()
            if "error" in reply:
                raise getattr(builtins, reply["error"], ValueError)(reply["said"])
            return reply["value"]

        return ask


# --- npformer is not here -------------------------------------------------------------------------

_MARK = object()


class _Absent(MetaPathFinder, Loader):
    """In the place of npformer: every name can be imported, none can be called."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.split(".")[0] != "npformer":
            return None
        if name.startswith("npformer.exercises."):
            raise ModuleNotFoundError(
                f"{name} is not here: this is where your work is checked, not where it is judged"
            )
        return ModuleSpec(name, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """A module with any name in it."""
        of = module.__name__

        def any_name(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return _quiet(name) if of == "npformer.exercises" and name in QUIET else _ours(name)

        vars(module)["__getattr__"] = any_name


def _quiet(name: str) -> Callable[..., Any]:
    """`check` and its like, in a notebook that asks while it is judged: no answer, no error."""
    return lambda *arguments, **options: QUIET[name]


def _ours(name: str) -> Callable[..., Any]:
    def ours(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError(f"{name} is npformer's own: write your own")

    ours.__name__ = ours.__qualname__ = name
    vars(ours)["__npformer__"] = _MARK
    return ours


def hide_npformer(hidden: tuple[str, ...]) -> None:
    """Put the stand-in before all else that finds modules, and refuse to open files of the real one."""
    for name in [name for name in sys.modules if name.split(".")[0] == "npformer"]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Absent())
    if hidden:
        real, below = os.path.realpath, tuple(os.fsencode(os.path.realpath(path)) for path in hidden)

        def watch(event: str, arguments: tuple[Any, ...]) -> None:
            if event in ("open", "os.listdir", "os.scandir") and isinstance(arguments[0], str | bytes):
                if os.fsencode(real(arguments[0])).startswith(below):
                    raise PermissionError("this folder is not open while your work is checked")

        sys.addaudithook(watch)


# --- POSIX: a server that forks -------------------------------------------------------------------


def serve() -> None:
    """Wait for submissions on descriptor 0, a socket; with each come its pipe and the keeper's."""
    server = socket.socket(fileno=os.dup(0))
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    shelter.adopt()
    np.random.seed(0)  # noqa: NPY002  # what a file draws without a seed is the same in every run
    random.seed(0)
    user_works = os.geteuid() == 0 and shelter.LINUX and shelter.can_become(USER)
    gc.freeze()
    cell = ""
    while True:
        data, descriptors, _, _ = socket.recv_fds(server, 2**16, 2)
        reap()
        shelter.end_cell(cell)
        if not data:
            break
        cell = one(server, unpack(data), descriptors, user_works)
    shelter.end_descendants(os.getpid())
    os._exit(0)


def one(server: socket.socket, request: dict[str, Any], descriptors: list[int], user_works: bool) -> str:
    """Fork a keeper for one submission; returns its control group."""
    for name in request["preload"]:
        with suppress(Exception):
            import_module(name)
    bounds = shelter.Bounds(request["cpu"], request["megabytes"])
    cell = shelter.cell(bounds)
    if os.fork() == 0:
        server.close()
        user = USER + os.getpid() % USER if user_works else 0
        keep(request, descriptors[0], descriptors[1], user, bounds, cell)
    for descriptor in descriptors:
        os.close(descriptor)
    return cell


def reap() -> None:
    """Take leave of keepers; what one left that its own submission has ended is ended here."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if os.WIFSIGNALED(ended[1]):
                shelter.end_descendants(os.getpid())


def keep(
    request: dict[str, Any], pipe: int, control: int, user: int, bounds: shelter.Bounds, cell: str
) -> None:
    """The keeper: start the process that works, tell its CPU time, end all when the other side hangs up."""
    os.setsid()
    shelter.enter(cell)
    held = shelter.apart()
    if held and os.fork():
        os._exit(0)  # the child is process 1: when it ends, the system ends all below it
    user = 0 if held == "user" else user
    shelter.adopt()
    hidden = tuple(request["hidden"])
    walled = bool(held) and shelter.walls(request["folder"], hidden, user or os.geteuid())
    os.write(control, pack({"network": not held, "files": not walled}))
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    child = os.fork()
    if child == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (control, woken.fileno(), wake.fileno()):
            os.close(descriptor)
        start(request, pipe, bounds, user, bool(held), () if walled else hidden)
    os.close(pipe)
    watch(child, control, woken.fileno(), bounds)


def start(
    request: dict[str, Any], pipe: int, bounds: shelter.Bounds, user: int, held: bool, hidden: tuple[str, ...]
) -> None:
    """The process that works: bound, without privileges, in its folder."""
    try:
        if user:
            with suppress(OSError):
                os.chown(request["folder"], user, user)
        os.chdir(request["folder"])
        os.environ.update(dict.fromkeys(("HOME", "TMPDIR"), request["folder"]))
        if user or held:
            shelter.become(user)
        shelter.limit(bounds, bool(user) or held)
        hide_npformer(hidden)
        line = Line(pipe, pipe)
        work(line, line.receive())
    finally:
        os._exit(0)


def watch(child: int, control: int, woken: int, bounds: shelter.Bounds) -> None:
    """Until the other side hangs up, the child has ended or too much runs; then what is left is ended too."""
    while True:
        ready, _, _ = select.select([control, woken], [], [], TICK)
        if woken in ready:
            os.read(woken, 64)
        if control in ready:
            asked = os.read(control, 16)
            if not asked:
                break
            os.write(control, CPU.pack(shelter.cpu_seconds(child)))
        with suppress(ChildProcessError):
            if os.waitpid(child, os.WNOHANG)[0]:
                break
        if not ready:
            below = shelter.descendants(os.getpid())
            if len(below) > bounds.processes or sum(below.values()) > bounds.megabytes * 2**20:
                break
    shelter.end_descendants(os.getpid())
    os._exit(0)


# --- elsewhere, and in a container: a Python for each submission -----------------------------------


def alone() -> None:
    """One submission on descriptors 0 and 1, which are the pipe from now on."""
    line = Line(os.dup(0), os.dup(1))
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    try:
        line.send("ready")
        request = line.receive()
        with suppress(OSError):
            os.chdir(request["folder"])
        shelter.limit(shelter.Bounds(request["cpu"], request["megabytes"]), False)
        hide_npformer(tuple(request["hidden"]))
        work(line, request)
    except (EOFError, OSError, Forged):
        pass
    finally:
        os._exit(0)
