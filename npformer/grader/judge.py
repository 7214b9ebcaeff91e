"""The judge: holds the right answers, never runs a line of a student's, and asks their process for numbers.

`Judge` starts the student's side (`student`) and checks one submission after another; a function that was
handed in is, for the checker, one that sends arguments and waits for arrays. In a class `run` has several of
them `work` in processes of their own, which are sent files and send rows.
"""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from difflib import get_close_matches
from functools import partial
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from npformer.exercises import check, list_exercises
from npformer.exercises.reply import NOTHING
from npformer.grader.frames import MOST_BYTES, Forged, pack, readable, unpack

MOST_CALLS_BACK = 1000
LEAST = 0.05  # of the time for a submission; so much is left for a function after any number of endless ones
OVERHEAD = 60.0  # seconds for a system that is slow to start a process; no part of a student's time
TEXTS = {"student": 100, "problem": 300, "names": 5000}  # letters that are kept of each
LONGEST_MESSAGE = 80  # letters of an error's own words that are told: they are the file's to choose
NO_ANSWER = "It sent something that is no answer."
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
SLOW = {"matplotlib.pyplot": b"matplotlib", "IPython.core.inputtransformer2": b'"cells"'}  # to import
SERVE = (  # not by npformer's front door, which imports everything: a student has what `student` imports
    "import sys, types; del sys.path[0]; sys.modules['npformer'] = own = types.ModuleType('npformer'); "
    "own.__path__ = [sys.argv[1]]; from npformer.grader import student; student.serve()"
)

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
    codes: str = ""  # separated by spaces
    evidence: str = ""
    hint: str = ""
    question: str = ""

    @property
    def passed(self) -> bool:
        """Whether it is right."""
        return self.status in ("pass", "pass_variant")

    @property
    def answered(self) -> bool:
        """Whether there was an answer to check."""
        return self.status not in ("not answered", "not read", "passed over")


def unread(name: str, ids: Iterable[str], why: str) -> list[Row]:
    """The rows of a file that cannot be judged."""
    return [Row(name, "", exercise_id, "not read", evidence=why) for exercise_id in ids]


def digest(data: bytes | str) -> str:
    """Of a file's bytes; or why they cannot be read."""
    return data if isinstance(data, str) else hashlib.sha256(data).hexdigest()


class Ended(Exception):
    """The student's process has ended or had to be ended: what the checker makes of it is not used."""


class Told(TypeError):  # as such the checker calls again, where an argument may be taken by its name alone
    """An error of the student's, which has a `type_name`: its line, and its own words cut and in quotes."""

    def __init__(self, reply: Message) -> None:
        self.type_name = readable(reply["error"], 60)
        message = readable(reply["said"].removeprefix(reply["error"]).removeprefix(": "), LONGEST_MESSAGE)
        words = f"“{message}”" if message else "", readable(reply["where"], 100)
        super().__init__(", ".join(filter(None, words)))


class Judge(AbstractContextManager["Judge"]):
    """A Python with NumPy, and of npformer no more than SERVE says, that forks for every submission.

    `home` is a folder for what is written on its side: the caller makes it, and removes it.
    """

    def __init__(self, home: str, limits: Limits) -> None:
        self.limits = limits
        signal.signal(signal.SIGALRM, _too_late)
        self.process, self.server = _serving(home, limits.hidden)
        self.server.settimeout(OVERHEAD)
        self.open: list[str] = json.loads(self.server.recv(2**10))  # what this system does not close

    def __exit__(self, *error: object) -> None:
        """End everything that was started here."""
        self.server.close()
        self.process.wait()

    def grade(self, name: str, data: bytes, ids: Sequence[str]) -> list[Row]:
        """A row for each exercise. Nothing that a file does raises an error here."""
        self.name, self.data, self.ids = name, data, tuple(ids)
        self.lost = 0  # processes that came to their end before their time
        self.pipe: Connection | None = None
        try:
            self.begin()
            return [self.row(exercise_id) for exercise_id in self.ids]
        except Ended as ended:
            return unread(name, ids, str(ended))
        finally:
            self.hang_up()

    def begin(self) -> None:
        """A process that has run the file; each that was lost halves the time of the next."""
        self.hang_up()
        limits, part = self.limits, max(0.5**self.lost, LEAST)
        self.lost += 1
        self.cpu, self.left = max(limits.seconds * part, 1.0), (limits.wall or 3 * limits.seconds) * part
        needs = [module for module, sign in SLOW.items() if sign in self.data]
        self.pipe = self.forked({"cpu": self.cpu, "megabytes": limits.megabytes, "needs": needs})
        self.ending = ""  # why there is nobody to ask; "" where there is
        data = np.frombuffer(self.data, np.uint8)
        head = self.ask({"name": Path(self.name).name, "data": data, "ids": self.ids})
        try:
            self.answers = {exercise_id: head["answers"][exercise_id] for exercise_id in self.ids}
            texts = {key: " ".join(readable(head[key], most).split()) for key, most in TEXTS.items()}
        except (TypeError, LookupError, AttributeError):
            self.end(NO_ANSWER)
        self.student, self.problem, self.names = (texts[key] for key in ("student", "problem", "names"))

    def forked(self, request: Message) -> Connection:
        """The pipe to a process for one submission, which ends with all that it started when we hang up."""
        pipe, its_pipe = Pipe()
        with its_pipe:
            socket.send_fds(self.server, [json.dumps(request).encode()], [its_pipe.fileno()])
        if not self.server.recv(1):
            raise EOFError("the system has no process for it, or a file has ended the one that forks")
        return pipe

    def hang_up(self) -> float:
        """Wait until everything has ended; the CPU seconds that were used."""
        if self.pipe is None:
            return 0.0
        self.pipe.close()
        self.pipe = None
        return float(self.server.recv(40) or 0)  # nothing comes where the one that forks has ended too

    def end(self, ending: str) -> NoReturn:
        """Give up on this process."""
        self.ending = ending
        raise Ended(ending)

    def ask(self, message: Message, functions: list[Callable[..., Any]] | None = None) -> Any:
        """One frame there and one back; only this waiting is the student's time, by the clock."""
        if self.ending or self.pipe is None:
            raise Ended(self.ending)
        self.ending = "The checks of this answer were given up."  # until its reply is here
        too_long = f"It was still running after {self.cpu:g} second{'s' * (self.cpu != 1)}."
        try:
            try:
                signal.setitimer(signal.ITIMER_REAL, max(self.left, 1e-6))  # 0 would be for ever
                self.pipe.send_bytes(pack(message, functions))
                reply = unpack(self.pipe.recv_bytes(MOST_BYTES), lambda place: partial(self.call, place))
            finally:  # the alarm is off before anything else is waited for
                self.left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        except TimeoutError:
            self.end(too_long)
        except Forged:
            self.end(NO_ANSWER)
        except (EOFError, OSError):  # whichever limit was met: the same words in every run
            self.end(too_long if self.hang_up() >= self.cpu - 0.5 else "It ended the program.")
        self.ending = ""
        return reply

    def call(self, place: int, *arguments: Any, **options: Any) -> Any:
        """What the student's function gives for these arguments, which may be changed by it."""
        functions: list[Callable[..., Any]] = []
        reply = self.ask({"call": place, "args": arguments, "kwargs": options}, functions)
        try:
            for _ in range(MOST_CALLS_BACK):
                if "back" not in reply:
                    break
                reply = self.ask(_called(functions[reply["back"]], reply["args"]))
            for i in reply["changed"]:  # the checker sees that it is another
                np.logical_not(arguments[i], out=arguments[i], casting="unsafe")
            told = Told(reply) if "error" in reply else None
            value = told or reply["value"]
        except (TypeError, KeyError, ValueError, IndexError, AttributeError):
            self.end(NO_ANSWER)
        if told:
            raise told
        return value

    def row(self, exercise_id: str) -> Row:
        """One exercise."""
        said = partial(Row, self.name, self.student, exercise_id)
        if callable(self.answers[exercise_id]) and self.ending:
            with suppress(Ended):
                self.begin()  # which may bring another answer
        texts = self.checked(exercise_id, self.answers[exercise_id])
        if callable(self.answers[exercise_id]) and self.ending:
            return said("error", evidence=self.ending)
        if texts[0] != "not answered":
            return said(*texts)
        if self.problem:
            return said("not read", evidence=self.problem)
        return said("not answered", evidence=_misspelt(exercise_id, self.names.split()))

    def checked(self, exercise_id: str, answer: Any) -> tuple[str, ...]:
        """The checker's result, from the status on. What it cannot digest costs this exercise alone."""
        name = self.limits.numbers or self.student
        try:
            result = check(f"{exercise_id}@{name}" if name else exercise_id, answer, level=self.limits.level)
        except Exception as error:
            return "error", "", f"This answer cannot be judged ({type(error).__name__})."
        texts = (readable(text or "", 2000) for text in (result.evidence, result.hint, result.question))
        return "not answered" if result.evidence == NOTHING else result.status, " ".join(result.codes), *texts


def _too_late(*_: object) -> NoReturn:
    raise TimeoutError


def _called(function: Callable[..., Any], arguments: Sequence[Any]) -> Message:
    """One of the checker's own functions, asked for by the student's."""
    try:
        with np.errstate(all="ignore"):
            return {"value": function(*arguments)}
    except Exception as error:
        return {"error": type(error).__name__, "said": str(error)}


def _misspelt(exercise_id: str, names: Sequence[str]) -> str:
    """Under which name an answer may stand that was not found."""
    asked, of_all = exercise_id.replace(".", "_"), [exercise.name for exercise in list_exercises()]
    for name in names:
        if name != asked and get_close_matches(name.replace(".", "_"), of_all, 1, 0.8) == [asked]:
            return f"It has {name}: did you mean {asked}?"
    return ""


# --- the student's side -------------------------------------------------------------------------------


def _serving(home: str, hidden: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The process that forks, with no more of npformer than `student` imports; and the socket to it."""
    ours = Path(__file__).parents[2]
    apart = {Path.cwd(), *[ours][(ours / "numpy").exists() :]}  # from where the student's modules are
    path = [p for p in sys.path if p and Path(p).resolve() not in apart]
    needed = [sys.prefix, sys.base_prefix, *filter(os.path.isdir, path)]
    places = [Path(place).resolve() for place in (f"{ours}/npformer", hidden) if place]  # nobody's to read
    covered = [str(p) for p in places if not any(Path(n).resolve().is_relative_to(p) for n in needed)]
    place = json.dumps([tempfile.mkdtemp(dir=home), needed, covered])
    Path(home, "npformer.py").touch()  # all that a Python which a file starts can import of it
    here, there = socket.socketpair()
    with there:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", SERVE, f"{ours}/npformer", place],
            stdin=there.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(home, path),
            cwd=home,
            start_new_session=True,
        )
    return process, here


def environment(home: str, path: Sequence[str]) -> dict[str, str]:
    """What Python needs, and nothing of ours: no tokens, no addresses."""
    kept = {k: os.environ[k] for k in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH") if k in os.environ}
    own = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg", "LANG": "C.UTF-8"}
    places = dict.fromkeys(("HOME", "TMPDIR", "NPFORMER_RUN"), home)
    return kept | ONE_THREAD | own | places | {"PYTHONPATH": os.pathsep.join([home, *path])}


def work(line: Any, home: str, limits: Limits) -> None:
    """Files in, rows out, until the other side hangs up: a process of its own does this."""
    os.setsid()  # Ctrl+C and Ctrl+Z reach the other side alone
    with Judge(home, limits) as judge, suppress(EOFError, OSError):
        while True:
            name, data, ids = line.recv()
            rows = unread(name, ids, data) if isinstance(data, str) else judge.grade(name, data, ids)
            if judge.process.poll() is not None:  # a file has ended the one that forks, and pays for it alone
                break
            line.send((name, judge.open, digest(data), rows))
