"""Grade a class in several grading processes at the same time.

As soon as a submission is graded, its rows are appended to a journal. Therefore an interrupted run can be
resumed. The rows are in the order of the files, whichever process finishes first.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import closing, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, cast

from npformer.grader.companions import read_companions
from npformer.grader.grading_process import Limits, Row, digest, make_unread_rows, run_grading_process
from npformer.grader.submissions import Submission
from npformer.installation import version
from npformer.validation.output_files import write_files

# A report: the name of a file, the protections that the system lacks, the digest of the file, and the rows.
Report: TypeAlias = tuple[str, list[str], str, list[Row]]
# This command also removes directories that a submission has made unreadable or too deep for Python.
REMOVE_COMMAND = ("sh", "-c", 'chmod -R u+rwX "$0"; rm -rf "$0"')
LOST = "The grading process ended twice on this file. Please look at the file yourself."
JOIN_SECONDS = 1.0  # a grading process that has not ended after this time is killed


def grade_class(
    files: list[Submission],
    ids: list[str],
    limits: Limits,
    workers: int = 1,
    journal: "Journal | None" = None,
) -> list[Row]:
    """Return one row for each submission and exercise, in the order of the files."""
    to_grade = [file for file in files if not file.skip_reason]
    finished = journal.begin(to_grade, ids, limits) if journal else {}
    remaining = [file for file in to_grade if file.name not in finished]
    with closing(iter_reports(remaining, ids, limits, workers)) as reports:
        for report in reports:
            name, _, _, rows = report
            finished[name] = rows
            if journal:
                journal.add(report)
                print(f"{len(finished)} of {len(to_grade)}  {name}", file=sys.stderr, flush=True)
    for file in files:
        if file.skip_reason:
            evidence = f"Not graded: {file.skip_reason}."
            finished[file.name] = [Row(file.name, "", "", "passed over", evidence=evidence)]
    return [row for file in files for row in finished[file.name]]


# --- grading processes ----------------------------------------------------------------------------


class GradingProcess:
    """A process that runs `run_grading_process`, and the connection to it."""

    def __init__(self, home: str, limits: Limits) -> None:
        spawn = get_context("spawn")
        self.connection, other_end = spawn.Pipe()
        arguments = (other_end, home, limits)
        self.process = spawn.Process(target=run_grading_process, args=arguments, daemon=True)
        program = sys.modules["__main__"]
        with other_end:
            try:
                # A new process runs the main module again. So the main module is replaced by an empty module.
                sys.modules["__main__"] = ModuleType("__main__")
                self.process.start()
            finally:
                sys.modules["__main__"] = program

    def send(self, file: Submission, ids: list[str]) -> None:
        """Send a file to the process."""
        self.file = file
        with suppress(OSError):  # If the process has ended, `receive` reports this.
            self.connection.send((file.name, _read_or_explain(file), ids, read_companions(file)))

    def receive(self) -> Report | None:
        """Return the report on the file, or None if the process has ended."""
        with suppress(EOFError, OSError):
            return cast(Report, self.connection.recv())
        self.end()
        return None

    def end(self) -> None:
        """Close the connection and end the process.

        A process without a file ends by itself. A process that is grading a file is killed. Its children
        notice its end and end too.
        """
        self.connection.close()
        self.process.join(JOIN_SECONDS)
        self.process.kill()
        self.process.join()


def iter_reports(files: list[Submission], ids: list[str], limits: Limits, workers: int) -> Generator[Report]:
    """Yield the report on each file as soon as the file is graded.

    All processes write into one temporary directory, which is removed at the end, also after Ctrl+C.
    """
    home = tempfile.mkdtemp(prefix="npformer-")
    os.chmod(home, 0o755)  # Submissions may run as other users, who need access.
    processes: list[GradingProcess] = []
    try:
        yield from _distribute(files, ids, limits, max(workers, 1), home, processes)
    finally:
        try:
            for process in processes:
                process.end()
        finally:  # This also runs after a second Ctrl+C.
            subprocess.run(
                [*REMOVE_COMMAND, home], stderr=subprocess.DEVNULL, start_new_session=True, check=False
            )


def _distribute(
    files: list[Submission],
    ids: list[str],
    limits: Limits,
    workers: int,
    home: str,
    processes: list[GradingProcess],
) -> Generator[Report]:
    """Send files to processes and yield the reports. The list `processes` contains the running processes.

    If a process ends while it grades a file, another process grades the file once more.
    """
    remaining = list(reversed(files))
    retried = set[str]()
    idle: list[GradingProcess] = []
    busy: dict[Connection, GradingProcess] = {}
    while remaining or busy:
        while remaining and len(busy) < workers:
            if not idle:
                idle.append(GradingProcess(home, limits))
                processes.append(idle[-1])
            process = idle.pop()
            process.send(remaining.pop(), ids)
            busy[process.connection] = process
        process = busy.pop(cast(Connection, wait(list(busy))[0]))
        report = process.receive()
        file = process.file
        if report:
            idle.append(process)
            yield report
            continue
        processes.remove(process)
        if file.name in retried:
            yield file.name, [], "", make_unread_rows(file.name, ids, LOST)
        else:
            retried.add(file.name)
            remaining.append(file)


def _read_or_explain(file: Submission) -> bytes | str:
    """Return the bytes of a file, or the sentence that explains why they cannot be read."""
    try:
        return file.read()
    except ValueError as error:
        return str(error)


# --- the journal ----------------------------------------------------------------------------------


class Journal:
    """A file that stores the report on each finished submission as one line of JSON.

    The file is next to the table of answers. Its first line contains the settings. The caller removes the
    journal when the table is written. Raises ValueError if a journal of an interrupted run exists, unless
    `resume` is true.
    """

    def __init__(self, table: Path, resume: bool = False) -> None:
        self.path = table.with_name(table.name + ".journal")
        self.missing_protections = set[str]()
        if self.path.exists() and not resume:
            advice = "--resume continues it; to start again, delete this file"
            raise ValueError(f"{str(self.path)!r} belongs to an interrupted run: {advice}")

    def begin(self, files: list[Submission], ids: list[str], limits: Limits) -> dict[str, list[Row]]:
        """Start the journal, and return the rows of finished files by file name.

        Files that have changed since the interrupted run are left out.
        """
        # The last limit, `hidden`, is left out, because the hidden folder may have moved.
        settings = [version(), ids, list(limits[:-1])]
        lines = self._read_lines()
        if lines and lines[0] != settings:
            raise ValueError(
                f"{str(self.path)!r} belongs to other exercises, other limits or another version"
            )
        write_files({self.path: json.dumps(settings) + "\n"})
        files_by_name = {file.name: file for file in files}
        finished = {}
        for name, missing, old_digest, cells in lines[1:]:
            file = files_by_name.get(name)
            if file is not None and digest(_read_or_explain(file), read_companions(file)) == old_digest:
                finished[name] = [Row.from_list(fields) for fields in cells]
                self.add((name, missing, old_digest, finished[name]))
        return finished

    def _read_lines(self) -> list[Any]:
        """Return the lines of an interrupted run.

        A truncated line is skipped, so the file of this line is graded again.
        """
        if not self.path.exists():
            return []
        lines = []
        for line in self.path.read_text(encoding="ascii").splitlines():
            with suppress(ValueError):  # A full disk or a crash may have truncated the line.
                lines.append(json.loads(line))
        return lines

    def add(self, report: Report) -> None:
        """Append one report to the journal."""
        _, missing, _, _ = report
        self.missing_protections.update(missing)
        with self.path.open("a", encoding="ascii") as file:
            file.write(json.dumps(report) + "\n")
