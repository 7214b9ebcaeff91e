"""A class at once: hand-ins become rows, by judges in processes of their own.

Every submission's result is appended to a journal as soon as it exists, so that a run which is interrupted
goes on where it was. The order of the rows is that of the files, whoever judged them and when.
"""

import hashlib
import json
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import closing, suppress
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from npformer.grader.hand_ins import HandIn
from npformer.grader.judge import LIMITS, Limits, Report, unread, work
from npformer.installed import version
from npformer.teaching.places import write_files

LOST = "The grader ended on this file; look at it yourself."


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


def grade(
    files: Sequence[HandIn],
    ids: Sequence[str],
    limits: Limits = LIMITS,
    workers: int = 1,
    hidden: Sequence[str] = (),
    journal: "Journal | None" = None,
) -> list[Row]:
    """One row for each submission and exercise, in order, whoever judges them.

    `hidden` are folders that no student's process may see.
    """
    to_judge = [each for each in files if not each.passed_over]
    done = journal.begin(to_judge, ids, limits) if journal else {}
    left = [each for each in to_judge if each.name not in done]
    with closing(judged(left, ids, limits, hidden, workers)) as reports:
        for name, report in reports:
            done[name] = report
            if journal:
                journal.add(name, report)
                print(f"{len(done)} of {len(to_judge)}  {name}", file=sys.stderr, flush=True)
    return [row for each in files for row in rows_of(each, ids, done.get(each.name))]


def rows_of(file: HandIn, ids: Sequence[str], report: Report | None) -> list[Row]:
    """What is said of one file."""
    if report is None:
        return [Row(file.name, "", "", "passed over", evidence=f"Not graded: {file.passed_over}.")]
    asked = zip(ids, report["reports"], strict=True)
    return [Row(file.name, report["student"], exercise_id, **texts) for exercise_id, texts in asked]


class Worker(NamedTuple):
    """A judge in a process of its own, and the line to it."""

    process: Any
    line: Any

    def reply(self) -> Report | None:
        """Its report; None where it has ended."""
        try:
            return dict(self.line.recv())
        except (EOFError, OSError):
            self.end()
            return None

    def end(self) -> None:
        """Hang up: a judge that waits ends what it has started, and then itself."""
        self.line.close()
        self.process.join(1)
        self.process.kill()  # in the middle of a file: what is below it sees that it ends
        self.process.join()


def hired(*settings: Any) -> Worker:
    """A new judge. The program that called us is not run again there, as multiprocessing would."""
    spawn, program = get_context("spawn"), sys.modules["__main__"]
    line, its_line = spawn.Pipe()
    process = spawn.Process(target=work, args=(its_line, *settings), daemon=True)
    with its_line:
        try:
            sys.modules["__main__"] = ModuleType("__main__")
            process.start()
        finally:
            sys.modules["__main__"] = program
    return Worker(process, line)


def judged(
    files: Sequence[HandIn], ids: Sequence[str], limits: Limits, hidden: Sequence[str], workers: int
) -> Generator[tuple[str, Report], None, None]:
    """The name and the report of each file, as they come; one on which a judge ends is given to another."""
    left, lost = list(reversed(files)), set[str]()
    idle, busy = list[Worker](), dict[Any, tuple[Worker, HandIn, str]]()
    with tempfile.TemporaryDirectory(prefix="npformer-class-", ignore_cleanup_errors=True) as home:
        try:
            while left or busy:
                while left and len(busy) < max(workers, 1):
                    file, worker = left.pop(), idle.pop() if idle else hired(limits, hidden, home)
                    data, digest = _read(file)
                    busy[worker.line] = worker, file, digest
                    with suppress(OSError):  # it has ended, which is seen below
                        worker.line.send((file.kind, data, list(ids)))
                worker, file, digest = busy.pop(wait(list(busy))[0])
                report = worker.reply()
                if report is not None:
                    idle.append(worker)
                elif file.name not in lost:
                    lost.add(file.name)
                    left.append(file)
                    continue
                yield file.name, (report or unread(ids, LOST)) | {"digest": digest}
        finally:
            for worker in (*idle, *(worker for worker, *_ in busy.values())):
                worker.end()


def _read(file: HandIn) -> tuple[bytes | str, str]:
    """The bytes of a file and their digest; or, twice, why it cannot be read."""
    try:
        data = file.read()
    except ValueError as error:
        return str(error), str(error)
    return data, hashlib.sha256(data).hexdigest()


class Journal:
    """Finished submissions beside the table, a line of JSON each; removed when the table is written.

    Raises ValueError where there is one of a run that was interrupted, unless that is to go on.
    """

    def __init__(self, table: Path, resume: bool = False) -> None:
        self.path = table.with_name(table.name + ".journal")
        self.open = set[str]()  # what this system did not close for the students' processes
        if self.path.exists() and not resume:
            begun = "is of a run that was interrupted: --resume goes on; to begin anew, remove it"
            raise ValueError(f"{str(self.path)!r} {begun}")

    def begin(self, files: Sequence[HandIn], ids: Sequence[str], limits: Limits) -> dict[str, Report]:
        """What is already done, by name; a file that has changed since is not."""
        settings = {"version": version(), "exercises": list(ids), "limits": list(limits)}
        lines = []
        if self.path.exists():
            for line in self.path.read_text(encoding="ascii").splitlines():
                with suppress(ValueError):  # one that a full disk or a crash has cut is judged again
                    lines.append(json.loads(line))
        if lines and lines[0] != settings:
            raise ValueError(f"{str(self.path)!r} belongs to other exercises, limits or another version")
        kept = {line["file"]: line["report"] for line in lines[1:]}
        names = (f.name for f in files if f.name in kept and _read(f)[1] == kept[f.name]["digest"])
        done = {name: kept[name] for name in names}
        write_files({self.path: json.dumps(settings) + "\n"})
        for name, report in done.items():
            self.add(name, report)
        return done

    def add(self, name: str, report: Report) -> None:
        """Keep one more."""
        self.open |= {*report["open"]}
        with self.path.open("a", encoding="ascii") as file:
            file.write(json.dumps({"file": name, "report": report}) + "\n")
