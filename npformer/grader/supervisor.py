"""Grades a class in several grading processes at the same time.

The rows of each submission are appended to a journal as soon as they exist, so that an interrupted run can go
on. The order of the rows is the order of the files, whichever process graded them and when.
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

from npformer.grader.grading_process import Limits, Row, digest, run_grading_process, unread_rows
from npformer.grader.submissions import HandIn
from npformer.installation import version
from npformer.validation.output_files import write_files

# of one file: its name, the protections that were missing, the digest of its bytes, its rows
Report: TypeAlias = tuple[str, list[str], str, list[Row]]
REMOVE = ("sh", "-c", 'chmod -R u+rwX "$0"; rm -rf "$0"')  # a directory, however deep those in it are
LOST = "The grader ended on this file; look at it yourself."


def grade(
    files: list[HandIn], ids: list[str], limits: Limits, workers: int = 1, journal: "Journal | None" = None
) -> list[Row]:
    """Return one row for each submission and exercise, in the order of the files."""
    to_grade = [each for each in files if not each.passed_over]
    done = journal.begin(to_grade, ids, limits) if journal else {}
    left = [each for each in to_grade if each.name not in done]
    with closing(iter_reports(left, ids, limits, workers)) as reports:
        for report in reports:
            name, _, _, rows = report
            done[name] = rows
            if journal:
                journal.add(report)
                print(f"{len(done)} of {len(to_grade)}  {name}", file=sys.stderr, flush=True)
    for each in (each for each in files if each.passed_over):
        done[each.name] = [Row(each.name, "", "", "passed over", evidence=f"Not graded: {each.passed_over}.")]
    return [row for each in files for row in done[each.name]]


class GradingProcess:
    """A process that grades files, and the connection to it."""

    def __init__(self, *settings: Any) -> None:
        spawn, program = get_context("spawn"), sys.modules["__main__"]
        self.connection, there = spawn.Pipe()
        self.process = spawn.Process(target=run_grading_process, args=(there, *settings), daemon=True)
        with there:
            try:  # multiprocessing would run the program that called us a second time
                sys.modules["__main__"] = ModuleType("__main__")
                self.process.start()
            finally:
                sys.modules["__main__"] = program

    def send(self, file: HandIn, ids: list[str]) -> None:
        """Send a file to the process."""
        self.file = file
        with suppress(OSError):  # it has ended, which `receive` reports
            self.connection.send((file.name, _read(file), ids))

    def receive(self) -> Report | None:
        """Return the report on the file, None if the process has ended."""
        with suppress(EOFError, OSError):
            return cast(Report, self.connection.recv())
        self.end()
        return None

    def end(self) -> None:
        """Close the connection: a process that waits ends what it has started, and then itself."""
        self.connection.close()
        self.process.join(1)
        self.process.kill()  # in the middle of a file: the processes below it notice that it ends
        self.process.join()


def iter_reports(files: list[HandIn], ids: list[str], limits: Limits, workers: int) -> Generator[Report]:
    """Yield the report on each file as it arrives. A file on which a process ends is graded once more."""
    left, lost = list(reversed(files)), set[str]()
    idle, busy = list[GradingProcess](), dict[Any, GradingProcess]()
    home = tempfile.mkdtemp(prefix="npformer-")
    os.chmod(home, 0o755)
    try:
        while left or busy:
            while left and len(busy) < max(workers, 1):
                process = idle.pop() if idle else GradingProcess(home, limits)
                process.send(left.pop(), ids)
                busy[process.connection] = process
            process = busy.pop(wait(list(busy))[0])
            report, file = process.receive(), process.file
            if report:
                idle.append(process)
            elif file.name not in lost:
                lost.add(file.name)
                left.append(file)
                continue
            yield report or (file.name, [], "", unread_rows(file.name, ids, LOST))
    finally:
        try:
            for process in (*idle, *busy.values()):
                process.end()
        finally:  # also after a second Ctrl+C
            subprocess.run([*REMOVE, home], stderr=subprocess.DEVNULL, start_new_session=True, check=False)


def _read(file: HandIn) -> bytes | str:
    """Return the bytes of a file, or the sentence that reports why they cannot be read."""
    try:
        return file.read()
    except ValueError as error:
        return str(error)


class Journal:
    """Finished submissions, one line of JSON for each, in a file next to the table.

    The caller removes the file when the table is written. Raises ValueError if there is a journal of an
    interrupted run, unless `resume` is true.
    """

    def __init__(self, table: Path, resume: bool = False) -> None:
        self.path = table.with_name(table.name + ".journal")
        self.open = set[str]()  # protections that this system did not offer
        if self.path.exists() and not resume:
            begun = "is of a run that was interrupted: --resume goes on; to begin anew, remove it"
            raise ValueError(f"{str(self.path)!r} {begun}")

    def begin(self, files: list[HandIn], ids: list[str], limits: Limits) -> dict[str, list[Row]]:
        """Return the finished rows by the name of the file, without files that have changed since."""
        settings = [version(), ids, list(limits[:-1])]  # without the hidden folder, which may have moved
        lines = []
        for line in self.path.read_text(encoding="ascii").splitlines() if self.path.exists() else ():
            with suppress(ValueError):  # a line that a full disk or a crash has cut: its file is graded again
                lines.append(json.loads(line))
        if lines and lines[0] != settings:
            raise ValueError(f"{str(self.path)!r} belongs to other exercises, limits or another version")
        write_files({self.path: json.dumps(settings) + "\n"})
        now, done = {file.name: file for file in files}, dict[str, list[Row]]()
        for name, missing, digest_then, cells in lines[1:]:
            if name in now and digest(_read(now[name])) == digest_then:
                done[name] = [Row.from_list(each) for each in cells]
                self.add((name, missing, digest_then, done[name]))
        return done

    def add(self, report: Report) -> None:
        """Append one report."""
        _, missing, *_ = report
        self.open |= {*missing}
        with self.path.open("a", encoding="ascii") as file:
            file.write(json.dumps(report) + "\n")
