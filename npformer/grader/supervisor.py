"""Grade a class in several grading processes at the same time.

As soon as a submission is graded, its rows are appended to a journal. Therefore an interrupted run can be
resumed. The rows are in the order of the files, whichever process finishes first.
"""

import json
import os
import sys
import tempfile
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, suppress
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, cast

from npformer.grader.companions import read_companions
from npformer.grader.grading_process import (
    BUDGET,
    SYSTEM_SECONDS,
    Limits,
    Row,
    digest,
    get_wall_limit,
    make_unread_rows,
    run_grading_process,
)
from npformer.grader.submissions import Submission
from npformer.grader.worker.sandbox import adopt_orphans, protect_memory
from npformer.grader.worker_process import end_processes, list_children, remove_directory
from npformer.installation import version
from npformer.validation.output_files import name_file_in_errors, write_files

# A report: the name of a file, the protections that the system lacks, the digest of the file, and the rows.
Report: TypeAlias = tuple[str, list[str], str, list[Row]]
HOME_PREFIX = "npformer-"  # the names of the temporary directories begin with this text
LOST = "The grading process ended twice on this file. Please look at the file yourself."
STUCK = "The grading process did not answer in time and was ended. Please look at the file yourself."
JOIN_SECONDS = 1.0  # a grading process that has not ended after this time is killed
CHECK_SECONDS = 30.0  # the limit of wall time of the checks of one answer, see `limit_time`


def grade_class(
    files: list[Submission],
    ids: list[str],
    limits: Limits,
    workers: int = 1,
    journal: "Journal | None" = None,
    students: Mapping[str, str] | None = None,
) -> list[Row]:
    """Return one row for each submission and exercise, in the order of the files.

    `students` maps the names of files to students. The files of one student share one budget of time. A file
    that is not in `students` has its own budget.
    """
    to_grade = [file for file in files if not file.skip_reason]
    finished = journal.begin(to_grade, ids, limits) if journal else {}
    remaining = [file for file in to_grade if file.name not in finished]
    with closing(iter_reports(remaining, ids, limits, workers, students or {})) as reports:
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
        self.limits = limits
        self.is_stuck = False
        self.clock = threading.Timer(0.0, self.kill_stuck)
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

    def send(self, file: Submission, ids: list[str], student: str) -> None:
        """Send a file to the process, and start the clock that kills the process if it does not answer.

        Without a sandbox, a submission can stop this process with SIGSTOP. Then only SIGKILL ends the
        process, and with it the wait for its report.
        """
        self.file = file
        self.clock = threading.Timer(get_longest_time(self.limits, len(ids)), self.kill_stuck)
        self.clock.daemon = True  # If a second signal ends the run, Python does not wait for the timer.
        self.clock.start()
        with suppress(OSError):  # If the process has ended, `receive` reports this.
            message = (file.name, _read_or_explain(file), ids, student, read_companions(file))
            self.connection.send(message)

    def kill_stuck(self) -> None:
        """Kill the process, because it has not answered in time."""
        self.is_stuck = True
        self.process.kill()

    def receive(self) -> Report | None:
        """Return the report on the file, or None if the process has ended."""
        report = None
        with suppress(EOFError, OSError):
            report = cast(Report, self.connection.recv())
        self.clock.cancel()
        if report is None:
            self.end()
        return report

    def end(self) -> None:
        """Close the connection and end the process.

        A process without a file ends by itself. A process that is grading a file gets SIGTERM, which also
        ends the file's worker. If the process still does not end, it is killed.
        """
        self.clock.cancel()
        self.connection.close()
        self.process.join(JOIN_SECONDS)
        self.process.terminate()
        self.process.join(JOIN_SECONDS)
        self.process.kill()
        self.process.join(SYSTEM_SECONDS)


def get_longest_time(limits: Limits, exercise_count: int) -> float:
    """Return the seconds in which a grading process must answer: the limits of all its steps together."""
    return BUDGET * get_wall_limit(limits) + CHECK_SECONDS * exercise_count + SYSTEM_SECONDS


def iter_reports(
    files: list[Submission], ids: list[str], limits: Limits, workers: int, students: Mapping[str, str]
) -> Generator[Report]:
    """Yield the report on each file as soon as the file is graded.

    All processes write into one temporary directory, which is removed at the end, also after Ctrl+C. After
    SIGKILL, the next run removes the directory.
    """
    protect_memory()
    adopt_orphans(True)
    resource_tracker.ensure_running()  # This helper process of Python must be in `others` below.
    others = set(list_children(os.getpid()))
    remove_old_homes()
    home, lock = _make_home()
    processes: list[GradingProcess] = []
    try:
        yield from _distribute(_queue_files(files, students), ids, limits, max(workers, 1), home, processes)
    finally:
        try:
            for process in processes:
                process.end()
        finally:  # This also runs after a second signal, which interrupts the loop above.
            for process in processes:
                process.process.kill()
            end_processes(others)  # A grading process that was killed may have left processes behind.
            adopt_orphans(False)
            remove_directory(home)
            os.close(lock)


def _make_home() -> tuple[str, int]:
    """Make the temporary directory of this run. Returns its path and the descriptor of its lock.

    Another run removes every directory whose name begins with HOME_PREFIX, unless it is locked. So the
    directory is locked first, and then gets such a name.
    """
    unlocked = tempfile.mkdtemp(prefix=f"new-{HOME_PREFIX}")
    lock = _lock_directory(unlocked)
    os.chmod(unlocked, 0o755)  # Submissions may run as other users, who need access.
    home = unlocked.replace(f"new-{HOME_PREFIX}", HOME_PREFIX)
    os.rename(unlocked, home)
    return home, lock


def remove_old_homes() -> None:
    """Remove the temporary directories of runs that were killed.

    A run holds a lock on its directory. The kernel removes the lock when the run ends, however it ends.
    """
    for path in Path(tempfile.gettempdir()).glob(f"{HOME_PREFIX}*"):
        with suppress(OSError):  # The directory may belong to another user, or to an active run.
            is_own = not path.is_symlink() and path.stat().st_uid == os.geteuid()
            if is_own:
                lock = _lock_directory(str(path))
                remove_directory(str(path))
                os.close(lock)


def _lock_directory(path: str) -> int:
    """Lock a directory, and return the file descriptor of the lock. Raises OSError if it is locked."""
    import fcntl  # imported here because Windows lacks the module

    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


class StudentFiles(NamedTuple):
    """The files of one student that are not graded yet. One process grades them, one after the other."""

    student: str
    files: list[Submission]


def _queue_files(files: Iterable[Submission], students: Mapping[str, str]) -> list[StudentFiles]:
    """Return the files of each student, in the order of each student's first file."""
    queue: dict[str, StudentFiles] = {}
    for file in files:
        student = students.get(file.name, file.name)
        queue.setdefault(student, StudentFiles(student, [])).files.append(file)
    return list(queue.values())


def _distribute(
    queue: list[StudentFiles],
    ids: list[str],
    limits: Limits,
    workers: int,
    home: str,
    processes: list[GradingProcess],
) -> Generator[Report]:
    """Send files to processes and yield the reports. The list `processes` contains the running processes.

    If a process ends while it grades a file, another process grades the file again.
    """
    waiting = list(reversed(queue))
    retried = set[str]()
    idle: list[GradingProcess] = []
    busy: dict[Connection, tuple[GradingProcess, StudentFiles]] = {}
    while waiting or busy:
        while waiting and len(busy) < workers:
            if not idle:
                idle.append(GradingProcess(home, limits))
                processes.append(idle[-1])
            process, current = idle.pop(), waiting.pop()
            process.send(current.files.pop(0), ids, current.student)
            busy[process.connection] = process, current
        process, current = busy.pop(cast(Connection, wait(list(busy))[0]))
        report = process.receive()
        if report is None:
            processes.remove(process)
            report = _explain_loss(process, current, retried, ids)
        else:
            idle.append(process)
        if report:
            yield report
        if current.files:  # They come next, and go to the process that was appended to `idle`.
            waiting.append(current)


def _explain_loss(
    process: GradingProcess, current: StudentFiles, retried: set[str], ids: list[str]
) -> Report | None:
    """Return the report on a file whose process has ended, or None if the file will be graded again."""
    file = process.file
    if process.is_stuck or file.name in retried:
        reason = STUCK if process.is_stuck else LOST
        return file.name, [], "", make_unread_rows(file.name, ids, reason)
    retried.add(file.name)
    current.files.insert(0, file)
    return None


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
        # A journal that was joined from those of several machines has the settings of each machine.
        reports = [line for line in lines if line != settings]
        has_other_settings = any(len(line) == len(settings) for line in reports)
        if has_other_settings or (lines and lines[0] != settings):
            raise ValueError(
                f"{str(self.path)!r} belongs to other exercises, other limits or another version"
            )
        files_by_name = {file.name: file for file in files}
        finished = {}
        kept_lines = [settings]
        for report in reports:
            name, missing, old_digest, cells = report
            file = files_by_name.get(name)
            if file is not None and digest(_read_or_explain(file), read_companions(file)) == old_digest:
                finished[name] = [Row.from_list(fields) for fields in cells]
                self.missing_protections.update(missing)
                kept_lines.append(report)
        # The new file replaces the old one at once: if the disk is full, the old journal remains.
        write_files({self.path: "".join(json.dumps(line) + "\n" for line in kept_lines)})
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
        with name_file_in_errors(self.path), self.path.open("a", encoding="ascii") as file:
            file.write(json.dumps(report) + "\n")
