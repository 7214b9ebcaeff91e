"""A class at once: hand-ins become rows, by judges in processes of their own.

Every submission's rows are appended to a journal as soon as they exist, so that a run which is interrupted
goes on where it was. The order of the rows is that of the files, whoever judged them and when.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import closing, suppress
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, cast

from npformer.grader.hand_ins import HandIn
from npformer.grader.judge import Limits, Row, digest, unread, work
from npformer.installed import version
from npformer.teaching.places import write_files

# what came of a file: its name, what the system did not close for it, the digest of its bytes, its rows
Report: TypeAlias = tuple[str, list[str], str, list[Row]]
REMOVE = ("sh", "-c", 'chmod -R u+rwX "$0"; rm -rf "$0"')  # a folder, however deep those in it are
LOST = "The grader ended on this file; look at it yourself."


def grade(
    files: list[HandIn], ids: list[str], limits: Limits, workers: int = 1, journal: "Journal | None" = None
) -> list[Row]:
    """One row for each submission and exercise, in order, whoever judges them."""
    to_judge = [each for each in files if not each.passed_over]
    done = journal.begin(to_judge, ids, limits) if journal else {}
    left = [each for each in to_judge if each.name not in done]
    with closing(judged(left, ids, limits, workers)) as reports:
        for report in reports:
            name, _, _, rows = report
            done[name] = rows
            if journal:
                journal.add(report)
                print(f"{len(done)} of {len(to_judge)}  {name}", file=sys.stderr, flush=True)
    for each in (each for each in files if each.passed_over):
        done[each.name] = [Row(each.name, "", "", "passed over", evidence=f"Not graded: {each.passed_over}.")]
    return [row for each in files for row in done[each.name]]


class Worker:
    """A judge in a process of its own, and the line to it."""

    def __init__(self, *settings: Any) -> None:
        spawn, program = get_context("spawn"), sys.modules["__main__"]
        self.line, its_line = spawn.Pipe()
        self.process = spawn.Process(target=work, args=(its_line, *settings), daemon=True)
        with its_line:
            try:  # the program that called us is not run again there, as multiprocessing would
                sys.modules["__main__"] = ModuleType("__main__")
                self.process.start()
            finally:
                sys.modules["__main__"] = program

    def give(self, file: HandIn, ids: list[str]) -> None:
        """Send a file there."""
        self.file = file
        with suppress(OSError):  # it has ended, which `report` sees
            self.line.send((file.name, _read(file), ids))

    def report(self) -> Report | None:
        """What it says of its file; None where it has ended."""
        with suppress(EOFError, OSError):
            return cast(Report, self.line.recv())
        self.end()
        return None

    def end(self) -> None:
        """Hang up: a judge that waits ends what it has started, and then itself."""
        self.line.close()
        self.process.join(1)
        self.process.kill()  # in the middle of a file: what is below it sees that it ends
        self.process.join()


def judged(files: list[HandIn], ids: list[str], limits: Limits, workers: int) -> Generator[Report]:
    """The report of each file, as they come; one on which a judge ends is given to another."""
    left, lost = list(reversed(files)), set[str]()
    idle, busy = list[Worker](), dict[Any, Worker]()
    home = tempfile.mkdtemp(prefix="npformer-")
    os.chmod(home, 0o755)
    try:
        while left or busy:
            while left and len(busy) < max(workers, 1):
                worker = idle.pop() if idle else Worker(home, limits)
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
            yield report or (file.name, [], "", unread(file.name, ids, LOST))
    finally:
        try:
            for worker in (*idle, *busy.values()):
                worker.end()
        finally:  # also after a second Ctrl+C
            subprocess.run([*REMOVE, home], stderr=subprocess.DEVNULL, start_new_session=True, check=False)


def _read(file: HandIn) -> bytes | str:
    """The bytes of a file, or why it cannot be read."""
    try:
        return file.read()
    except ValueError as error:
        return str(error)


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

    def begin(self, files: list[HandIn], ids: list[str], limits: Limits) -> dict[str, list[Row]]:
        """What is already done, by name; a file that has changed since is not."""
        settings = [version(), ids, list(limits[:-1])]  # wherever the folder is now
        lines = []
        for line in self.path.read_text(encoding="ascii").splitlines() if self.path.exists() else ():
            with suppress(ValueError):  # one that a full disk or a crash has cut is judged again
                lines.append(json.loads(line))
        if lines and lines[0] != settings:
            raise ValueError(f"{str(self.path)!r} belongs to other exercises, limits or another version")
        write_files({self.path: json.dumps(settings) + "\n"})
        now, done = {file.name: file for file in files}, dict[str, list[Row]]()
        for name, ways, was, cells in lines[1:]:
            if name in now and digest(_read(now[name])) == was:
                done[name] = [Row(*each) for each in cells]
                self.add((name, ways, was, done[name]))
        return done

    def add(self, report: Report) -> None:
        """Keep one more."""
        _, ways, *_ = report
        self.open |= {*ways}
        with self.path.open("a", encoding="ascii") as file:
            file.write(json.dumps(report) + "\n")
