"""A class at once: hand-ins become rows, by judges in processes of their own.

Every submission's rows are appended to a journal as soon as they exist, so that a run which is interrupted
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
from typing import Any, NamedTuple

from npformer.grader.hand_ins import HandIn
from npformer.grader.judge import LIMITS, Limits, Row, unread, work
from npformer.installed import version
from npformer.teaching.places import write_files

LOST = "The grader ended on this file; look at it yourself."


class Report(NamedTuple):
    """What came of one file."""

    rows: list[Row]
    open: list[str]  # what the system did not close for its process
    digest: str  # of its bytes; or why it cannot be read


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
    rows: list[Row] = []
    for each in files:
        over = Row(each.name, "", "", "passed over", evidence=f"Not graded: {each.passed_over}.")
        rows += [over] if each.passed_over else done[each.name].rows
    return rows


class Worker:
    """A judge in a process of its own, and the line to it."""

    def __init__(self, *settings: Any) -> None:
        spawn = get_context("spawn")
        self.line, its_line = spawn.Pipe()
        self.process = spawn.Process(target=work, args=(its_line, *settings), daemon=True)
        with its_line:
            self.process.start()

    def give(self, file: HandIn, ids: Sequence[str]) -> None:
        """Send a file there."""
        data, self.digest = _read(file)
        self.file = file
        with suppress(OSError):  # it has ended, which `report` sees
            self.line.send((file.name, data, list(ids)))

    def report(self) -> Report | None:
        """What it says of its file; None where it has ended."""
        with suppress(EOFError, OSError):
            rows, ways = self.line.recv()
            return Report(rows, ways, self.digest)
        self.end()
        return None

    def end(self) -> None:
        """Hang up: a judge that waits ends what it has started, and then itself."""
        self.line.close()
        self.process.join(1)
        self.process.kill()  # in the middle of a file: what is below it sees that it ends
        self.process.join()


def judged(
    files: Sequence[HandIn], ids: Sequence[str], limits: Limits, hidden: Sequence[str], workers: int
) -> Generator[tuple[str, Report], None, None]:
    """The name and the report of each file, as they come; one on which a judge ends is given to another."""
    left, lost = list(reversed(files)), set[str]()
    idle, busy = list[Worker](), dict[Any, Worker]()
    with tempfile.TemporaryDirectory(prefix="npformer-class-", ignore_cleanup_errors=True) as home:
        try:
            while left or busy:
                while left and len(busy) < max(workers, 1):
                    worker = idle.pop() if idle else Worker(limits, hidden, home)
                    worker.give(left.pop(), ids)
                    busy[worker.line] = worker
                worker = busy.pop(wait(list(busy))[0])
                report, file = worker.report(), worker.file
                if report:
                    idle.append(worker)
                elif file.name not in lost:
                    lost.add(file.name)
                    left.append(file)
                    continue
                yield file.name, report or Report(unread(file.name, ids, LOST), [], worker.digest)
        finally:
            for worker in (*idle, *busy.values()):
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
        settings = [version(), list(ids), list(limits)]
        lines = []
        for line in self.path.read_text(encoding="ascii").splitlines() if self.path.exists() else ():
            with suppress(ValueError):  # one that a full disk or a crash has cut is judged again
                lines.append(json.loads(line))
        if lines and lines[0] != settings:
            raise ValueError(f"{str(self.path)!r} belongs to other exercises, limits or another version")
        kept = {name: Report([Row(*cells) for cells in rows], *rest) for name, rows, *rest in lines[1:]}
        done = {f.name: kept[f.name] for f in files if f.name in kept and _read(f)[1] == kept[f.name].digest}
        write_files({self.path: json.dumps(settings) + "\n"})
        for name, report in done.items():
            self.add(name, report)
        return done

    def add(self, name: str, report: Report) -> None:
        """Keep one more."""
        self.open |= {*report.open}
        with self.path.open("a", encoding="ascii") as file:
            file.write(json.dumps([name, *report]) + "\n")
