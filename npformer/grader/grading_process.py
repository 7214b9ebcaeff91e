"""Grade one submission after another, in a process that never runs a student's code.

This process knows the correct answers. `SubmissionGrader` starts a process for each submission, the worker
(`worker_process`). When the checker calls a student's function, the call is a remote call: it sends the
arguments to the worker and waits for the result. To grade a class, `supervisor` starts several of these
grading processes.
"""

import hashlib
import os
import signal
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
from npformer.exercises.verdict import Finding, make_finding
from npformer.grader.bubblewrap import Contents, Protection, find_protection
from npformer.grader.companions import Companions
from npformer.grader.worker import sandbox
from npformer.grader.worker.protocol import Channel, Forged, Functions, pack, readable, unpack
from npformer.grader.worker_process import WorkerProcess

MAX_CALLBACKS = 1000  # how often one call of a student's function may call functions of the checker
MIN_SHARE = 0.05  # a worker gets at least this part of the time limit
BUDGET = 3.0  # the time for all files of one student together, as a multiple of the time limit
RESERVE = 1.0  # when only this part of the budget is left, each worker gets MIN_SHARE of the time limit
WALL_SECONDS_PER_CPU_SECOND = 3  # gives the limit of wall time if the user has set none
CPU_TOLERANCE = 0.5  # A worker that has used all but this many seconds counts as stopped by the CPU limit.
SYSTEM_SECONDS = 60.0  # the time limit for starting a process; it does not count as the student's time
TEXT_LENGTHS = {
    "student": 100,
    "problem": 600,
    "notes": 300,
    "names": 5000,
}  # the largest lengths of texts from the worker
REASON_LENGTH = 300  # the largest length of the reason why an answer is missing
REPLY_LENGTH = 2000  # the largest length of each text in a row
MESSAGE_LENGTH = 80  # the largest length of an error message, which the student may have written
TYPE_NAME_LENGTH = 60
FUNCTION_NAME_LENGTH = 100
MAX_LINE = 2**24  # the largest line number; a submission has at most this number of bytes
NAME_SIMILARITY = 0.8  # the least similarity of a misspelt name and the suggested name
SLOW_IMPORTS = {  # modules that take seconds to import, each with bytes that show its use in a submission
    "matplotlib.pyplot": (b"matplotlib",),
    "IPython.core.inputtransformer2": (b'"cells"', b"\n%", b"\n!"),
}

NO_COMPANIONS = Companions()

Message = dict[str, Any]


class Limits(NamedTuple):
    """The limits of one submission, and the settings of its checks."""

    seconds: float = 20.0  # the limit of CPU time
    megabytes: int = 2048
    level: int = 3  # the level of the feedback
    wall: float = 0.0  # the limit of wall time in seconds; 0 means three times the CPU limit
    numbers: str = ""  # the name that selects the same numbers for all students, or ""
    hidden: str = ""  # a directory that the sandbox hides from the submission


def get_wall_limit(limits: Limits) -> float:
    """Return the limit of wall time of a submission, in seconds."""
    return limits.wall or WALL_SECONDS_PER_CPU_SECOND * limits.seconds


class Row(NamedTuple):
    """The answer of one submission to one exercise.

    A skipped file has one row without an exercise. The field names are also the column names of the table
    that users read, so do not rename the fields.
    """

    submission: str
    student: str
    exercise: str
    status: str  # the status of a Result, or "not answered", "not read" or "passed over"
    codes: tuple[str, ...] = ()  # the codes of the mistakes that fit the answer
    agreed: tuple[str, ...] = ()  # the names of the correct outputs
    evidence: str = ""  # `evidence`, `hint` and `question` are texts for people; no program reads them.
    hint: str = ""
    question: str = ""
    problem: str = ""  # the first problems in running the submission, the same text in all of its rows

    @property
    def passed(self) -> bool:
        """Return whether the answer is correct."""
        return self.status in ("pass", "pass_variant")

    @property
    def is_answered(self) -> bool:
        """Return whether there was an answer to check."""
        return self.status not in ("not answered", "not read", "passed over")

    @classmethod
    def from_list(cls, fields: Sequence[Any]) -> "Row":
        """Convert a list, which is how JSON stores a row, to a row."""
        values: list[Any] = [tuple(value) if isinstance(value, list) else value for value in fields]
        return cls(*values)


def make_unread_rows(name: str, ids: Iterable[str], reason: str) -> list[Row]:
    """Return the rows of a file that cannot be graded."""
    return [Row(name, "", exercise_id, "not read", evidence=reason, problem=reason) for exercise_id in ids]


def digest(data: bytes | str, companions: Companions = NO_COMPANIONS) -> str:
    """Return the digest of a file and its companions.

    If `data` is a text, the file could not be read. Then return this text, which gives the reason.
    """
    if isinstance(data, str):
        return data
    files = [(path, hashlib.sha256(content).hexdigest()) for path, content in companions.files]
    own = hashlib.sha256(data).hexdigest()
    if not files:
        return own
    return hashlib.sha256(repr((own, companions.folder, files)).encode()).hexdigest()


# --- one submission -------------------------------------------------------------------------------


class WorkerEnded(Exception):
    """The worker has ended, or the grader has stopped using the worker.

    The checker may catch this error and treat it as an error of the student's function. Therefore
    `SubmissionGrader` also stores the failure. If a failure occurs during a check, the result of the check is
    ignored.
    """

    def __init__(self, reason: Finding) -> None:
        super().__init__(reason.kind)
        self.reason = reason


class SubmissionGrader(AbstractContextManager["SubmissionGrader"]):
    """Grades one submission after another, each in a new worker.

    Without a sandbox, the workers write in the directory `home`, which the caller creates and removes.
    """

    def __init__(self, home: str, limits: Limits) -> None:
        self.limits = limits
        self.search_path = _make_search_path(Path(__file__).parents[2].resolve())
        self.contents = _choose_contents(home, limits.hidden, self.search_path)
        # If a submission starts another Python process, `import npformer` finds this empty module.
        Path(home, "npformer.py").touch()
        sandbox.adopt_orphans(True)
        self.protection = find_protection(self.contents)
        self.channel: Channel | None = None

    def __exit__(self, *error: object) -> None:
        """End the worker."""
        self.close_worker()
        sandbox.adopt_orphans(False)

    @property
    def missing_protections(self) -> list[str]:
        """The names of the protections that this system does not offer."""
        return list(self.protection.missing)

    def grade(
        self,
        name: str,
        data: bytes,
        ids: Sequence[str],
        companions: Companions = NO_COMPANIONS,
        budget: float = BUDGET,
    ) -> list[Row]:
        """Return one row for each exercise. Raises EOFError if no worker can be started, and no other error.

        `companions` are the student's other files. `budget` is the time for the file, as a multiple of the
        time limit. Afterwards, the attribute `used` is the part of the budget that was used.
        """
        self.name = name
        self.data = data
        self.ids = tuple(ids)
        self.companions = companions
        self.budget = budget
        self.used = 0.0
        self.call_notes: dict[str, None] = {}  # notes about calls of the student's functions, each once
        try:
            self.start_worker()
            rows = [self.grade_exercise(exercise_id) for exercise_id in self.ids]
            return [row._replace(problem=self.describe_problems()) for row in rows]
        except WorkerEnded as ended:
            return make_unread_rows(name, ids, templates.sentence(ended.reason))
        finally:
            self.close_worker()

    # --- the worker

    def start_worker(self) -> None:
        """Start a worker, which runs the file and sends the file's answers.

        The first worker of a student gets the whole time limit. After each endless loop, the student's next
        worker gets half as much time, but at least MIN_SHARE. So a few endless loops, in one file or several,
        take about two time limits together, and time remains for answers without such a loop. All files of a
        student together take at most BUDGET time limits.
        """
        self.close_worker()
        remaining = self.budget - self.used
        if remaining < MIN_SHARE:
            self.give_up(make_finding("budget_used"))
        half_of_remaining = (remaining - RESERVE) / 2
        self.share = max(MIN_SHARE, min(half_of_remaining, 1.0))
        self.cpu = max(self.limits.seconds * self.share, 1.0)
        self.wall_left = get_wall_limit(self.limits) * self.share
        self.channel = self.launch_worker()
        self.failure: Finding | None = None  # why this worker gets no more requests
        data = np.frombuffer(self.data, np.uint8)
        files = {path: np.frombuffer(content, np.uint8) for path, content in self.companions.files}
        message = {
            "name": Path(self.name).name,
            "data": data,
            "ids": self.ids,
            "folder": self.companions.folder,
            "files": files,
        }
        self.read_answers(self.request(message, decode=partial(unpack, function_at=self.make_function)))

    def launch_worker(self) -> Channel:
        """Start a worker and return the channel to it."""
        self.worker = WorkerProcess(self.contents, self.protection, self.search_path, self.limits.megabytes)
        imports = [module for module, signs in SLOW_IMPORTS.items() if any(s in self.data for s in signs)]
        deadline = time.monotonic() + SYSTEM_SECONDS
        self.channel = self.worker.channel
        try:
            self.worker.settle(self.cpu, imports, deadline)
        except OSError:
            raise EOFError("the worker has ended before it received the submission") from None
        return self.channel

    def read_answers(self, reply: Any) -> None:
        """Read a worker's first reply: the answers, the student's name, and the names in the file.

        The worker may have forged any part of the reply.
        """
        try:
            self.answers = {exercise_id: reply["answers"][exercise_id] for exercise_id in self.ids}
            self.reasons = {}  # why answers are missing
            for exercise_id in self.ids:
                reason = readable(reply["reasons"][exercise_id], REASON_LENGTH)
                self.reasons[exercise_id] = " ".join(reason.split())
            texts = {}
            for key, length in TEXT_LENGTHS.items():
                texts[key] = " ".join(readable(reply[key], length).split())
        except (TypeError, LookupError, AttributeError):
            self.give_up(make_finding("no_answer_sent"))
        self.student, self.problem, self.names = texts["student"], texts["problem"], texts["names"]
        self.notes = texts["notes"]

    def describe_problems(self) -> str:
        """Return the first problems in running the file, the notes, and the files that are left out."""
        call_notes = readable(" ".join(self.call_notes), TEXT_LENGTHS["notes"])
        sentences = [self.problem, self.notes, call_notes]
        if self.companions.left_out:
            names = readable(", ".join(self.companions.left_out), REASON_LENGTH)
            sentences.append(f"These files are left out because they are too large or too many: {names}.")
        return " ".join(sentence for sentence in sentences if sentence)

    def close_worker(self) -> float:
        """End the worker, if there is a worker, and return the CPU seconds that the worker has used."""
        if self.channel is None:
            return 0.0
        self.channel = None
        cpu_used = self.worker.end()
        wall_used = get_wall_limit(self.limits) * self.share - self.wall_left
        share_used = max(cpu_used / self.limits.seconds, wall_used / get_wall_limit(self.limits))
        self.used += min(share_used, self.share)
        return cpu_used

    def give_up(self, failure: Finding) -> NoReturn:
        """Record the failure, so that this worker gets no more requests. Raises WorkerEnded."""
        self.failure = failure
        raise WorkerEnded(failure)

    def request(
        self, message: Message, functions: Functions | None = None, decode: Callable[[bytes], Any] = unpack
    ) -> Any:
        """Send a message to the worker, and return the worker's reply, decoded by `decode`."""
        given_up = make_finding("checks_given_up")
        if self.failure or self.channel is None:
            raise WorkerEnded(self.failure or given_up)
        self.failure = given_up  # If an unexpected error is raised below, this value remains.
        too_long = make_finding("too_long", seconds=self.cpu)
        try:
            reply = decode(self.exchange(self.channel, pack(message, functions)))
        except TimeoutError:
            self.give_up(too_long)
        except Forged:
            self.give_up(make_finding("no_answer_sent"))
        except (EOFError, OSError):
            # The limits of CPU time and wall time give the same finding. Chance decides which limit is
            # reached first.
            used_all_cpu = self.close_worker() >= self.cpu - CPU_TOLERANCE
            ended = too_long if used_all_cpu else make_finding("program_ended")
            self.give_up(self.worker.finding or ended)
        self.failure = None
        return reply

    def exchange(self, channel: Channel, frame: bytes) -> bytes:
        """Send a frame and wait for the reply. Only this wait counts as the submission's wall time."""
        started = time.monotonic()
        deadline = started + self.wall_left
        try:
            with pause_wall_limit():
                channel.send(frame, deadline)
                return channel.receive(deadline)
        finally:
            self.wall_left -= time.monotonic() - started

    # --- remote calls

    def make_function(self, position: int) -> Callable[..., RemoteResult]:
        """Return a function that calls the worker's function with this index, by a remote call."""
        return partial(self.call_remotely, position)

    def call_remotely(self, position: int, *arguments: Any, **options: Any) -> RemoteResult:
        """Call a student's function in the worker. Raises StudentError if the function raises an error."""
        functions: Functions = []  # `request` adds the arguments that are functions of the checker
        reply = self.request({"call": position, "args": arguments, "kwargs": options}, functions)
        try:
            for _ in range(MAX_CALLBACKS):
                if "callback" not in reply:
                    break
                function = functions[reply["callback"]]
                reply = self.request(_call_back(function, reply["args"]))
            answer = _read_answer(reply, arguments)
            note = " ".join(readable(reply.get("notes", ""), TEXT_LENGTHS["notes"]).split())
            if note:
                self.call_notes[note] = None
        except (TypeError, LookupError, ValueError, AttributeError):  # The reply was forged.
            self.give_up(make_finding("no_answer_sent"))
        if isinstance(answer, StudentError):
            raise answer
        return answer

    # --- one exercise

    def grade_exercise(self, exercise_id: str) -> Row:
        """Check the answer to one exercise, and return the row."""
        make_row = partial(Row, self.name, self.student, exercise_id)
        if callable(self.answers[exercise_id]) and self.failure:
            with suppress(WorkerEnded):
                self.start_worker()
        answer = self.answers[exercise_id]  # A worker that was restarted may have given a different answer.
        result = self.check_answer(exercise_id, answer)
        if callable(answer) and self.failure:
            return make_row("error", evidence=templates.sentence(self.failure))
        if isinstance(result, Finding):
            return make_row("error", evidence=templates.sentence(result))
        if result.is_answered:
            texts = [result.evidence, result.hint, result.question]
            readable_texts = [readable(text or "", REPLY_LENGTH) for text in texts]
            return make_row(result.status, result.codes, result.agreed, *readable_texts)
        reason = self.reasons[exercise_id] or self.problem
        if reason:
            return make_row("not read", evidence=reason)
        return make_row("not answered", evidence=_suggest_name(exercise_id, self.names.split()))

    def check_answer(self, exercise_id: str, answer: Any) -> Result | Finding:
        """Return the checker's result, or a finding if the checker fails on this exercise."""
        student = self.limits.numbers or self.student
        try:
            key = f"{exercise_id}@{student}" if student else exercise_id
            return check(key, answer, level=self.limits.level)
        except Exception as error:
            return make_finding("not_checked", error=type(error).__name__)


def _read_answer(reply: Message, arguments: Sequence[Any]) -> RemoteResult | StudentError:
    """Return the result or the error in a reply. The worker may have forged any part of the reply."""
    changed = _read_changed(reply["changed"], arguments)
    if "error" in reply:
        return _read_error(reply["error"])
    return RemoteResult(reply["value"], changed)


def _read_error(fields: Message) -> StudentError:
    """Make an error from its description in a reply. Raises ValueError for an impossible line number."""
    line = fields["line"]
    if line is not None and (type(line) is not int or abs(line) > MAX_LINE):
        raise ValueError(f"{line!r} is no line number")
    type_name = readable(fields["type_name"], TYPE_NAME_LENGTH)
    message = readable(fields["message"], MESSAGE_LENGTH)
    function = " ".join(readable(fields["function"], FUNCTION_NAME_LENGTH).split())
    return StudentError(type_name, message, line, function)


def _read_changed(positions: Any, arguments: Sequence[Any]) -> tuple[int, ...]:
    """Return the indices of the changed arguments. Raises ValueError if these arguments are not arrays."""
    array_positions = [i for i, argument in enumerate(arguments) if isinstance(argument, np.ndarray)]
    is_valid = isinstance(positions, list) and all(type(i) is int and i in array_positions for i in positions)
    if not is_valid:
        raise ValueError(f"{positions!r} are no positions of arrays")
    return tuple(positions)


def _call_back(function: Callable[..., Any], arguments: Sequence[Any]) -> Message:
    """Call a function of the checker for the worker, and return the message with the result.

    The student's function has received this function as an argument.
    """
    try:
        with np.errstate(all="ignore"):
            return {"value": function(*arguments)}
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


def _suggest_name(exercise_id: str, names: Sequence[str]) -> str:
    """Return a sentence about a name that may be the misspelt name of this exercise, or ""."""
    wanted = exercise_id.replace(".", "_")
    exercise_names = [exercise.name for exercise in list_exercises()]
    for name in names:
        similar = name.casefold().replace(".", "_")
        closest = get_close_matches(similar, exercise_names, 1, NAME_SIMILARITY)
        if name != wanted and closest == [wanted]:
            return templates.sentence(make_finding("name_suggested", name=name, wanted=wanted))
    return ""


# --- the sandbox ----------------------------------------------------------------------------------


def find_system_protection(limits: Limits) -> Protection:
    """Return how submissions are protected on this system."""
    with tempfile.TemporaryDirectory(prefix="npformer-") as home, SubmissionGrader(home, limits) as grader:
        return grader.protection


def _choose_contents(home: str, hidden: str, search_path: Sequence[str]) -> Contents:
    """Return the directories that the sandbox shows and hides."""
    package = Path(__file__).parent.resolve() / "worker"
    needed = [sys.prefix, sys.base_prefix, *filter(os.path.isdir, search_path)]
    secret = [Path(path).resolve() for path in (f"{package.parents[1]}", hidden) if path]
    return Contents(str(package), home, tuple(needed), tuple(_choose_covered(secret, needed)))


def _make_search_path(root: Path) -> list[str]:
    """Return the directories from which submissions import modules.

    The current directory and a clone of npformer are left out: submissions must import neither the teacher's
    files nor the correct answers. `root` is the parent directory of the package npformer.
    """
    left_out = {Path.cwd()}
    is_clone = not (root / "numpy").exists()  # otherwise `root` is site-packages, which submissions need
    if is_clone:
        left_out.add(root)
    return [path for path in sys.path if path and Path(path).resolve() not in left_out]


def _choose_covered(secret: Sequence[Path], needed: Sequence[str]) -> list[str]:
    """Return the secret directories that contain no needed directory.

    If the sandbox covers a directory, it also hides every directory inside.
    """
    covered = []
    for directory in secret:
        contains_needed = any(Path(path).resolve().is_relative_to(directory) for path in needed)
        if not contains_needed:
            covered.append(str(directory))
    return covered


# --- the process ----------------------------------------------------------------------------------


def run_grading_process(connection: Any, home: str, limits: Limits) -> None:
    """Receive files and send reports on them until the supervisor closes the connection.

    If the supervisor is killed, this process receives SIGTERM and ends its worker.
    """
    os.setsid()  # In a new session, Ctrl+C and Ctrl+Z reach only the supervisor.
    signal.signal(signal.SIGTERM, _exit)
    sandbox.end_with_parent(signal.SIGTERM)
    sandbox.protect_memory()
    budgets: dict[str, float] = {}  # {student: the remaining time, as a multiple of the time limit}
    with SubmissionGrader(home, limits) as grader, suppress(EOFError, OSError):
        while True:
            name, data, ids, student, companions = connection.recv()
            rows = make_unread_rows(name, ids, data)
            if isinstance(data, bytes):
                budget = budgets.get(student, BUDGET)
                rows = grader.grade(name, data, ids, companions, budget)
                budgets[student] = budget - grader.used
            connection.send((name, grader.missing_protections, digest(data, companions), rows))


def _exit(number: int, frame: object) -> NoReturn:
    """Raise SystemExit, so that the worker is ended before this process ends."""
    sys.exit(128 + number)
