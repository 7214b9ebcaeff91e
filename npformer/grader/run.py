"""A class at once: hand-ins become rows, by judges in processes of their own.

Every submission's result is appended to a journal as soon as it exists, so that a run which is interrupted
goes on where it was. The order of the rows is that of the files, whoever judged them and when.
"""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from multiprocessing.connection import Pipe, wait
from pathlib import Path
from typing import IO, Any, NamedTuple

from npformer.grader.hand_ins import HandIn
from npformer.grader.judge import LIMITS, ONE_THREAD, Limits, Report, said
from npformer.installed import version

TRIES = 2  # a judge that ends in the middle of a submission is replaced once
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
    *,
    limits: Limits = LIMITS,
    workers: int = 1,
    hidden: Sequence[str] = (),
    tell: Callable[[str], None] = lambda line: None,
    journal: "Journal | None" = None,
    left_open: set[str] | None = None,
) -> list[Row]:
    """One row for each submission and exercise, in order, whoever judges them.

    `hidden` are folders that no student's process may see; `left_open` gathers what this system did not
    close for them.
    """
    to_judge = [each for each in files if not each.passed_over]
    done = journal.begin(to_judge, ids, limits) if journal else {}
    left = [each for each in to_judge if each.name not in done]
    with closing(judged(left, ids, limits, hidden, workers)) as reports:
        for name, report in reports:
            done[name] = report
            if journal:
                journal.add(name, report)
            tell(f"{len(done)} of {len(to_judge)}  {name}")
    if left_open is not None:
        left_open.update(*(report["open"] for report in done.values()))
    return [row for each in files for row in rows_of(each, ids, done.get(each.name))]


def rows_of(file: HandIn, ids: Sequence[str], report: Report | None) -> list[Row]:
    """What is said of one file. Equal texts are one object: most replies are given many times."""
    if report is None:
        return [Row(file.name, "", "", "passed over", evidence=f"Not graded: {file.passed_over}.")]
    rows = []
    for exercise_id, one in zip(ids, report["reports"], strict=True):
        texts = {key: sys.intern(text) for key, text in one.items()}
        rows.append(Row(file.name, report["student"], exercise_id, **texts))
    return rows


def _read(file: HandIn) -> tuple[bytes | None, str]:
    """The bytes of a file and their digest; or None, and why it cannot be read."""
    try:
        data = file.read()
    except ValueError as error:
        return None, str(error)
    return data, hashlib.sha256(data).hexdigest()


def _unread(ids: Sequence[str], why: str) -> Report:
    """The report of a file that was not judged."""
    return {"student": "", "reports": [said("not read", why) for _ in ids], "open": [], "digest": why}


# --- judges ---------------------------------------------------------------------------------------


class Worker(NamedTuple):
    """A judge in a process of its own, and the line to it."""

    process: Any
    line: Any

    def end(self) -> None:
        """Hang up: a judge that waits ends what it has started, and then itself."""
        self.line.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        self.process.kill()  # in the middle of a file: what is below it sees that it ends
        self.process.wait()


class Job(NamedTuple):
    """A file on its way through a judge."""

    file: HandIn
    data: bytes
    digest: str
    ids: Sequence[str]
    tries: int = TRIES


def judged(
    files: Sequence[HandIn], ids: Sequence[str], limits: Limits, hidden: Sequence[str], workers: int
) -> Generator[tuple[str, Report], None, None]:
    """The name and the report of each file, as they come."""
    with Judges(limits, hidden) as judges:
        for file in files:
            data, digest = _read(file)
            if data is None:
                yield file.name, _unread(ids, digest)
                continue
            judges.give(Job(file, data, digest, ids))
            while len(judges.busy) >= max(workers, 1):
                yield from judges.reports()
        while judges.busy:
            yield from judges.reports()


class Judges(AbstractContextManager["Judges"]):
    """Judges in processes of their own, as many as have something to do; one that ends is replaced."""

    def __init__(self, limits: Limits, hidden: Sequence[str]) -> None:
        self.home = tempfile.TemporaryDirectory(prefix="npformer-class-", ignore_cleanup_errors=True)
        self.settings = {"limits": limits, "hidden": list(hidden), "home": self.home.name}
        self.idle, self.busy = list[Worker](), dict[Any, tuple[Worker, Job]]()

    def __exit__(self, *error: object) -> None:
        for worker in (*self.idle, *(worker for worker, _ in self.busy.values())):
            worker.end()
        self.home.cleanup()

    def give(self, job: Job) -> None:
        """A file to a judge who has none, or to a new one."""
        worker = self.idle.pop() if self.idle else hired(self.settings)
        self.busy[worker.line] = worker, job
        with suppress(OSError):  # it has ended: `reports` sees it
            worker.line.send((job.file.kind, job.data, list(job.ids)))

    def reports(self) -> Iterator[tuple[str, Report]]:
        """Wait for one or more; what a judge has ended on is given to another, and then given up."""
        for line in wait(list(self.busy)):
            worker, job = self.busy.pop(line)
            try:
                report = worker.line.recv()
                self.idle.append(worker)
            except (EOFError, OSError):
                worker.end()
                if job.tries > 1:
                    self.give(job._replace(tries=job.tries - 1))
                    continue
                report = _unread(job.ids, LOST)
            yield job.file.name, report | {"digest": job.digest}


def hired(settings: dict[str, Any]) -> Worker:
    """A new judge. It finds modules where we do, but not in the folder of the call."""
    here, own = Path.cwd(), str(Path(__file__).parents[2])
    places = [p for p in sys.path if p and Path(p).resolve() != here]
    paths = {"PYTHONPATH": os.pathsep.join([*places, own]), "TMPDIR": settings["home"]}
    line, its_line = Pipe()
    with its_line:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "npformer.grader.judge", json.dumps(settings)],
            stdin=its_line.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **paths, **ONE_THREAD},
            start_new_session=True,  # Ctrl+C reaches us alone
        )
    return Worker(process, line)


# --- what is kept ---------------------------------------------------------------------------------


class Journal:
    """Finished submissions beside the table, a line of JSON each; removed when the table is written."""

    def __init__(self, table: Path, resume: bool = False) -> None:
        self.path, self.resume = table.with_name(table.name + ".journal"), resume

    def begin(self, files: Sequence[HandIn], ids: Sequence[str], limits: Limits) -> dict[str, Report]:
        """What is already done, by name; a file that has changed since is not."""
        settings = {"version": version(), "exercises": list(ids), "limits": list(limits)}
        lines = []
        if self.resume and self.path.exists():
            for line in self.path.read_text(encoding="ascii").splitlines():
                with suppress(ValueError):  # one that a full disk or a crash has cut is judged again
                    lines.append(json.loads(line))
        if lines and lines[0] != settings:
            raise ValueError(f"{str(self.path)!r} belongs to other exercises, limits or another version")
        kept = {line["file"]: line["report"] for line in lines[1:]}
        names = (f.name for f in files if f.name in kept and _read(f)[1] == kept[f.name]["digest"])
        done = {name: kept[name] for name in names}
        with replacing(self.path) as file:
            entries = [{"file": name, "report": report} for name, report in done.items()]
            file.writelines(json.dumps(line) + "\n" for line in [settings, *entries])
        return done

    def add(self, name: str, report: Report) -> None:
        """Keep one more."""
        with self.path.open("a", encoding="ascii") as file:
            file.write(json.dumps({"file": name, "report": report}) + "\n")

    def remove(self) -> None:
        """The table is written: nothing is left to go on with."""
        self.path.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[IO[str]]:
    """A file that takes the place of another at once, when it is whole."""
    new = path.with_name(path.name + ".new")
    try:
        with new.open("w", newline="", encoding="utf-8", errors="backslashreplace") as file:
            yield file
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
