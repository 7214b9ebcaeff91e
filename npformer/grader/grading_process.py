"""The grading process: holds the right answers, and asks the student's process for numbers.

`Judge` starts the student's process (package `worker`) and checks one submission after another. It never runs
a line of a submission: for the checker, a function of a submission is one that sends its arguments to the
worker and waits for the result. For a class, `run` starts several grading processes.
"""

import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from npformer.exercises import Result, check, list_exercises, templates
from npformer.exercises.probe import pause_wall_limit
from npformer.exercises.remote_calls import RemoteResult, StudentError
from npformer.exercises.verdict import Finding, find
from npformer.grader.worker.protocol import Channel, Forged, Functions, pack, readable, unpack

MAX_CALLBACKS = 1000  # in one call of a student's function
MIN_SHARE = 0.05  # of the time of a submission: a worker gets at least this, however many have been lost
SYSTEM_SECONDS = 60.0  # the system may take this long to start a process; they do not count for the student
TEXT_LENGTHS = {"student": 100, "problem": 300, "names": 5000}
MESSAGE_LENGTH = 80  # of an error's message, whose words the student chooses
MAX_LINE = 2**24  # a file has no more bytes
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SLOW_IMPORTS = {  # a module that takes seconds to import, and the bytes in a submission that needs it
    "matplotlib.pyplot": b"matplotlib",
    "IPython.core.inputtransformer2": b'"cells"',
}

Message = dict[str, Any]


class Limits(NamedTuple):
    """What one submission may use, and how much its reply says."""

    seconds: float = 20.0  # of CPU
    megabytes: int = 2048
    level: int = 3
    wall: float = 0.0  # seconds; 0 is three times the CPU's
    numbers: str = ""  # whose numbers everybody has; else each has their own
    hidden: str = ""  # a folder that its process may not see


class Row(NamedTuple):
    """One submission's answer to one exercise; a file that was passed over has one row, of no exercise."""

    submission: str
    student: str
    exercise: str
    status: str  # a Result's status; or "not answered", "not read", "passed over"
    codes: tuple[str, ...] = ()  # of the mistakes that fit
    agreed: tuple[str, ...] = ()  # the outputs that are correct
    evidence: str = ""  # text for people from here on: no program reads it
    hint: str = ""
    question: str = ""

    @property
    def passed(self) -> bool:
        """Whether it is right."""
        return self.status in ("pass", "pass_variant")

    @property
    def is_answered(self) -> bool:
        """Whether there was an answer to check."""
        return self.status not in ("not answered", "not read", "passed over")

    @classmethod
    def from_list(cls, fields: Sequence[Any]) -> "Row":
        """Make a row from the list that JSON has made of it."""
        values: list[Any] = [tuple(each) if isinstance(each, list) else each for each in fields]
        return cls(*values)


def unread_rows(name: str, ids: Iterable[str], why: str) -> list[Row]:
    """Return the rows of a file that cannot be graded."""
    return [Row(name, "", exercise_id, "not read", evidence=why) for exercise_id in ids]


def digest(data: bytes | str) -> str:
    """Return the digest of a file's bytes, or the sentence that reports why they cannot be read."""
    return data if isinstance(data, str) else hashlib.sha256(data).hexdigest()


class WorkerEnded(Exception):
    """The worker has ended or had to be ended. What the checker makes of this error is not used."""

    def __init__(self, reason: Finding) -> None:
        super().__init__(reason.kind)
        self.reason = reason


class Judge(AbstractContextManager["Judge"]):
    """Grades submissions, one after another, by means of a server that forks a worker for each of them.

    `home` is a directory for what the student's side writes. The caller creates and removes it.
    """

    def __init__(self, home: str, limits: Limits) -> None:
        self.limits = limits
        self.process, self.server = _start_server(home, limits.hidden)
        self.server.settimeout(SYSTEM_SECONDS)
        self.missing: list[str] = json.loads(self.server.recv(2**10))  # protections

    def __exit__(self, *error: object) -> None:
        """End every process that was started here."""
        self.server.close()
        self.process.wait()

    def grade(self, name: str, data: bytes, ids: Sequence[str]) -> list[Row]:
        """Return one row for each exercise. Whatever the file does, this method raises no error."""
        self.name, self.data, self.ids = name, data, tuple(ids)
        self.lost_workers = 0
        self.channel: Channel | None = None
        try:
            self.start_worker()
            return [self.grade_exercise(exercise_id) for exercise_id in self.ids]
        except WorkerEnded as ended:
            return unread_rows(name, ids, templates.sentence(ended.reason))
        finally:
            self.close_worker()

    def start_worker(self) -> None:
        """Start a worker that runs the file. Each worker that was lost halves the time of the next one."""
        self.close_worker()
        limits, share = self.limits, max(0.5**self.lost_workers, MIN_SHARE)
        self.lost_workers += 1
        self.cpu = max(limits.seconds * share, 1.0)
        self.wall_left = (limits.wall or 3 * limits.seconds) * share
        imports = [module for module, sign in SLOW_IMPORTS.items() if sign in self.data]
        self.channel = self.fork_worker({"cpu": self.cpu, "megabytes": limits.megabytes, "imports": imports})
        self.failure: Finding | None = None  # why the worker cannot be asked; None while it can
        data = np.frombuffer(self.data, np.uint8)
        message = {"name": Path(self.name).name, "data": data, "ids": self.ids}
        head = self.request(message, read=partial(unpack, function_at=self.make_function))
        try:
            self.answers = {exercise_id: head["answers"][exercise_id] for exercise_id in self.ids}
            texts = {key: " ".join(readable(head[key], most).split()) for key, most in TEXT_LENGTHS.items()}
        except (TypeError, LookupError, AttributeError):
            self.give_up(find("no_answer_sent"))
        self.student, self.problem, self.names = texts["student"], texts["problem"], texts["names"]

    def fork_worker(self, request: Message) -> Channel:
        """Return the channel to a new worker. Closing it ends the worker and all its children."""
        here, there = socket.socketpair()
        with there:
            socket.send_fds(self.server, [json.dumps(request).encode()], [there.fileno()])
        if not self.server.recv(1):
            here.close()
            raise EOFError("the system cannot start a process, or a file has ended the server")
        return Channel(here)

    def close_worker(self) -> float:
        """End the worker, if there is one, and return the CPU seconds that it has used."""
        if self.channel is None:
            return 0.0
        self.channel.close()
        self.channel = None
        return float(self.server.recv(40) or 0)  # nothing is received if the server has ended too

    def give_up(self, failure: Finding) -> NoReturn:
        """Ask this worker nothing more."""
        self.failure = failure
        raise WorkerEnded(failure)

    def request(
        self, message: Message, functions: Functions | None = None, read: Callable[[bytes], Any] = unpack
    ) -> Any:
        """Send a message to the worker and return its reply. `read` decodes the reply."""
        given_up = find("checks_given_up")
        if self.failure or self.channel is None:
            raise WorkerEnded(self.failure or given_up)
        self.failure = given_up  # until its reply is here
        too_long = find("too_long", seconds=self.cpu)
        try:
            reply = read(self.exchange(self.channel, pack(message, functions)))
        except TimeoutError:
            self.give_up(too_long)
        except Forged:
            self.give_up(find("no_answer_sent"))
        except (EOFError, OSError):  # the same words in every run, whichever limit was reached
            used_all_cpu = self.close_worker() >= self.cpu - 0.5
            self.give_up(too_long if used_all_cpu else find("program_ended"))
        self.failure = None
        return reply

    def exchange(self, channel: Channel, frame: bytes) -> bytes:
        """Send a frame and wait for the next one. Only this wait counts as wall time of the submission."""
        started = time.monotonic()
        deadline = started + self.wall_left
        try:
            with pause_wall_limit():
                channel.send(frame, deadline)
                return channel.receive(deadline)
        finally:
            self.wall_left -= time.monotonic() - started

    def make_function(self, position: int) -> Callable[..., RemoteResult]:
        """Return the function that stands for one of the submission's."""
        return partial(self.call_remotely, position)

    def call_remotely(self, position: int, *arguments: Any, **options: Any) -> RemoteResult:
        """Call a function of the submission in the worker. Raises StudentError if that function raises."""
        functions: Functions = []
        reply = self.request({"call": position, "args": arguments, "kwargs": options}, functions)
        try:
            for _ in range(MAX_CALLBACKS):
                if "back" not in reply:
                    break
                reply = self.request(_call_back(functions[reply["back"]], reply["args"]))
            answer = _read_answer(reply, arguments)
        except (TypeError, LookupError, ValueError, AttributeError):
            self.give_up(find("no_answer_sent"))
        if isinstance(answer, StudentError):
            raise answer
        return answer

    def grade_exercise(self, exercise_id: str) -> Row:
        """Return the row of one exercise."""
        make_row = partial(Row, self.name, self.student, exercise_id)
        if callable(self.answers[exercise_id]) and self.failure:
            with suppress(WorkerEnded):
                self.start_worker()  # its file may give another answer
        result = self.check_answer(exercise_id, self.answers[exercise_id])
        if callable(self.answers[exercise_id]) and self.failure:
            return make_row("error", evidence=templates.sentence(self.failure))
        if isinstance(result, Finding):
            return make_row("error", evidence=templates.sentence(result))
        if result.is_answered:
            texts = [readable(text or "", 2000) for text in (result.evidence, result.hint, result.question)]
            return make_row(result.status, result.codes, result.agreed, *texts)
        if self.problem:
            return make_row("not read", evidence=self.problem)
        return make_row("not answered", evidence=_suggest_name(exercise_id, self.names.split()))

    def check_answer(self, exercise_id: str, answer: Any) -> Result | Finding:
        """Return the checker's result, or why there is none. An error in it costs only this exercise."""
        name = self.limits.numbers or self.student
        try:
            return check(f"{exercise_id}@{name}" if name else exercise_id, answer, level=self.limits.level)
        except Exception as error:
            return find("not_checked", error=type(error).__name__)


def _read_answer(reply: Message, arguments: Sequence[Any]) -> RemoteResult | StudentError:
    """Make a result or an error from a worker's reply, any part of which may be forged."""
    changed = _read_changed(reply["changed"], arguments)
    if "error" in reply:
        return _read_error(reply["error"])
    return RemoteResult(reply["value"], changed)


def _read_error(fields: Message) -> StudentError:
    """Make an error from the fields that describe it. Raises ValueError if the line is no line number."""
    line = fields["line"]
    if line is not None and (type(line) is not int or abs(line) > MAX_LINE):
        raise ValueError(f"{line!r} is no line number")
    type_name, message = readable(fields["type_name"], 60), readable(fields["message"], MESSAGE_LENGTH)
    function = " ".join(readable(fields["function"], 100).split())
    return StudentError(type_name, message, line, function)


def _read_changed(positions: Any, arguments: Sequence[Any]) -> tuple[int, ...]:
    """Return the positions of the changed arguments. Raises ValueError unless these arguments are arrays."""
    arrays = [i for i, argument in enumerate(arguments) if isinstance(argument, np.ndarray)]
    if not isinstance(positions, list) or not all(type(i) is int and i in arrays for i in positions):
        raise ValueError(f"{positions!r} are no positions of arrays")
    return tuple(positions)


def _call_back(function: Callable[..., Any], arguments: Sequence[Any]) -> Message:
    """Call one of the checker's functions, which the student's function has received as an argument."""
    try:
        with np.errstate(all="ignore"):
            return {"value": function(*arguments)}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


def _suggest_name(exercise_id: str, names: Sequence[str]) -> str:
    """Return a sentence about a name that may be this exercise's, misspelt; "" without one."""
    wanted = exercise_id.replace(".", "_")
    exercise_names = [exercise.name for exercise in list_exercises()]
    for name in names:
        if name != wanted and get_close_matches(name.replace(".", "_"), exercise_names, 1, 0.8) == [wanted]:
            return templates.sentence(find("name_suggested", name=name, wanted=wanted))
    return ""


# --- the student's side ---------------------------------------------------------------------------


def _start_server(home: str, hidden: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start the server that forks the workers. Returns its process and the socket to it."""
    package, root = Path(__file__).parent.resolve(), Path(__file__).parents[2].resolve()
    is_clone = not (root / "numpy").exists()  # else it is site-packages
    left_out = {Path.cwd(), root} if is_clone else {Path.cwd()}  # submissions import nothing from there
    path = [p for p in sys.path if p and Path(p).resolve() not in left_out]
    needed = [sys.prefix, sys.base_prefix, *filter(os.path.isdir, path)]
    secret = [Path(place).resolve() for place in (f"{root}/npformer", hidden) if place]
    covered = [str(p) for p in secret if not any(Path(n).resolve().is_relative_to(p) for n in needed)]
    mounts = json.dumps([tempfile.mkdtemp(dir=home), needed, covered])
    Path(home, "npformer.py").touch()  # all that a Python process which a file starts can import of npformer
    here, there = socket.socketpair()
    with there:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "worker", mounts],
            stdin=there.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=_make_environment(home, [str(package), home, *path]),
            cwd=home,
            start_new_session=True,
        )
    return process, here


def _make_environment(home: str, path: Sequence[str]) -> dict[str, str]:
    """Return the environment that Python needs, without the tokens and addresses in ours."""
    kept = {k: os.environ[k] for k in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if k in os.environ}
    own = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg", "LANG": "C.UTF-8"}
    places = dict.fromkeys(("HOME", "TMPDIR", "NPFORMER_RUN"), home)
    return kept | ONE_THREAD | own | places | {"PYTHONPATH": os.pathsep.join(path)}


def run_grading_process(connection: Any, home: str, limits: Limits) -> None:
    """Receive files and send their rows until the other side closes the connection."""
    os.setsid()  # Ctrl+C and Ctrl+Z only reach the other side
    with Judge(home, limits) as judge, suppress(EOFError, OSError):
        while True:
            name, data, ids = connection.recv()
            rows = unread_rows(name, ids, data) if isinstance(data, str) else judge.grade(name, data, ids)
            has_server_ended = judge.process.poll() is not None
            if has_server_ended:  # a file has ended it: this file alone is lost
                break
            connection.send((name, judge.missing, digest(data), rows))
