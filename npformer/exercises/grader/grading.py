"""A class at once: a folder of submissions becomes rows, by judges in processes of their own.

Every submission's result is appended to a journal as soon as it exists, so that a run which is interrupted
goes on where it was. The order of the rows is that of the files, whoever judged them and when.
"""

import atexit
import csv
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

from npformer.exercises.grader.judging import (
    LIMITS,
    Judge,
    Limits,
    Report,
    digest_of,
    grade_bytes,
    grade_file,
    read_file,
    said,
)
from npformer.exercises.grader.messages import readable
from npformer.exercises.grader.submissions import SUFFIXES
from npformer.exercises.reply import PASSES
from npformer.installed import how_to_get, version

UNANSWERED = ("not answered", "not read")
SKIPPED = ("__MACOSX", "__pycache__", "site-packages", "node_modules", "venv", "env")
FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # what a spreadsheet would run, in either width
TRIES = 2  # a judge that ends in the middle of a submission is replaced once
IN_FLIGHT = 1000  # submissions that a cluster knows of at a time


Judged: TypeAlias = Generator[tuple[int, Report], None, None]


class Row(NamedTuple):
    """One submission's answer to one exercise."""

    submission: str
    student: str
    exercise: str
    status: str  # a Result's status, or one of UNANSWERED
    codes: str  # separated by spaces
    evidence: str
    hint: str
    question: str


# --- the folder -----------------------------------------------------------------------------------


def submissions(folder: Path) -> list[Path]:
    """Every .py and .ipynb file below a folder, in order of name.

    Raises ValueError for a folder that does not exist or holds none.
    """
    return listed(folder)[0]


def listed(folder: Path) -> tuple[list[Path], list[str]]:
    """The submissions; and the folders passed over that look like one, are links, or cannot be opened."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r}")
    found: list[Path] = []
    passed_over: list[str] = []

    def cannot_open(error: OSError) -> None:
        passed_over.append(shown(Path(error.filename), folder))

    for here, below, names in os.walk(folder, onerror=cannot_open):
        kept = [name for name in below if not _skipped(Path(here, name))]
        passed_over += [
            shown(Path(here, name), folder) for name in below if _looks_like_one(Path(here, name))
        ]
        below[:] = [name for name in kept if not _looks_like_one(Path(here, name))]
        found += [Path(here, name) for name in names if _is_submission(name)]
    if not found:
        raise ValueError(f"no .py or .ipynb file in {str(folder)!r}")
    return sorted(found), sorted(passed_over)


def _is_submission(name: str) -> bool:
    return name.casefold().endswith(SUFFIXES) and not name.startswith("._")  # macOS writes ._x.py beside x.py


def _skipped(folder: Path) -> bool:
    return folder.name.startswith(".") or folder.name in SKIPPED or (folder / "pyvenv.cfg").exists()


def _looks_like_one(folder: Path) -> bool:
    return _is_submission(folder.name) or folder.is_symlink()


def shown(path: Path, folder: Path) -> str:
    """A path inside a folder, in text that every codec can write.

    >>> shown(Path("class", os.fsdecode(bytes([0xFF])) + ".py"), Path("class"))
    '\\\\xff.py'
    """
    inside = os.fsencode(path.relative_to(folder).as_posix())
    return (
        readable(inside.decode("utf-8", "backslashreplace"), 1000).replace("\n", "\\n").replace("\t", "\\t")
    )


# --- the run --------------------------------------------------------------------------------------


class Class(NamedTuple):
    """What is to be judged, and how."""

    folder: Path
    paths: list[Path]
    ids: tuple[str, ...]
    limits: Limits

    def settings(self) -> Report:
        """What decides the rows, besides the files."""
        fixed = self.limits._replace(seconds=float(self.limits.seconds), wall=float(self.limits.wall))
        return {"version": version(), "exercises": list(self.ids), "limits": list(fixed)}


def grade(
    folder: Path,
    ids: Iterable[str],
    *,
    limits: Limits = LIMITS,
    workers: int = 1,
    tell: Callable[[str], None] = lambda line: None,
    journal: "Journal | None" = None,
    cluster: str = "",
    walls: set[str] | None = None,
) -> list[Row]:
    """One row for each submission and exercise, in order, whatever the number of workers.

    `journal` keeps what is done, `cluster` is the address of a Dask scheduler, `walls` gathers the names of
    the walls that this system did not raise around the students' processes.
    """
    course = Class(folder, submissions(folder), tuple(ids), limits)
    done = journal.begin(course) if journal else {}
    left = [i for i in range(len(course.paths)) if i not in done]
    judged = by_cluster(course, left, cluster) if cluster else by_workers(course, left, max(workers, 1))
    try:
        for i, path in enumerate(course.paths):
            while i not in done:
                place, report = next(judged)
                done[place] = report
                if journal:
                    journal.add(course.paths[place], report)
            tell(f"{i + 1} of {len(course.paths)}  {shown(path, folder)}")
    finally:
        judged.close()
    if walls is not None:
        walls.update(*(report["open"] for report in done.values()))
    return rows_of(course, done)


def rows_of(course: Class, done: dict[int, Report]) -> list[Row]:
    """The reports of a class as rows. Equal texts are one object: most replies are given many times."""
    once: dict[str, str] = {}
    rows = []
    for i, path in enumerate(course.paths):
        for exercise_id, report in zip(course.ids, done[i]["reports"], strict=True):
            said_ = [report[key] for key in ("evidence", "hint", "question")]
            cells = [done[i]["student"], exercise_id, report["status"], " ".join(report["codes"]), *said_]
            rows.append(Row(*(once.setdefault(cell, cell) for cell in [shown(path, course.folder), *cells])))
    return rows


def grade_one(path: Path, ids: Sequence[str], limits: Limits = LIMITS) -> list[Row]:
    """Check one file."""
    with Judge(limits, [str(path.parent)]) as judge:
        report = grade_file(judge, str(path), str(path.parent), tuple(ids))
    return rows_of(Class(path.parent, [path], tuple(ids), limits), {0: report})


def by_workers(course: Class, left: Sequence[int], workers: int) -> Judged:
    """(place, report) of each file, as they come, from judges on this machine."""
    jobs: queue.Queue[int] = queue.Queue()
    results: queue.Queue[tuple[int, Report] | BaseException] = queue.Queue()
    for i in left:
        jobs.put(i)
    with tempfile.TemporaryDirectory(prefix="npformer-class-", ignore_cleanup_errors=True) as scratch:
        hands = [Hand(course, scratch) for _ in range(min(workers, len(left)))]
        threads = [threading.Thread(target=hand.work, args=(jobs, results), daemon=True) for hand in hands]
        try:
            for thread in threads:
                thread.start()
            for _ in left:
                result = results.get()
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            for hand in hands:
                hand.hang_up()
            for thread in threads:
                thread.join()
            for hand in hands:
                hand.close()


class Hand:
    """One judge in a process of its own, replaced when it ends in the middle of a submission."""

    def __init__(self, course: Class, scratch: str) -> None:
        self.course, self.scratch, self.closed = course, scratch, False
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """A judge that waits for jobs. It finds modules where we do, but not in the folder of the call."""
        here = Path.cwd()
        places = [p for p in sys.path if p and Path(p).resolve() != here]
        own = str(Path(__file__).parents[3])
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*places, own]), "TMPDIR": self.scratch}
        one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "npformer.exercises.grader.judging"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment | one_thread,
            encoding="ascii",
            start_new_session=True,  # Ctrl+C reaches us alone: we end the judges, and each judge its student
        )
        folder = str(self.course.folder)
        first = {"limits": self.course.limits, "hidden": [folder], "folder": folder, "ids": self.course.ids}
        self._say({**first, "scratch": self.scratch})

    def _say(self, line: Report) -> None:
        assert self.process is not None and self.process.stdin is not None
        with suppress(OSError):  # it has ended: the answer will not come, which is seen there
            self.process.stdin.write(json.dumps(line) + "\n")
            self.process.stdin.flush()

    def work(
        self, jobs: "queue.Queue[int]", results: "queue.Queue[tuple[int, Report] | BaseException]"
    ) -> None:
        """Job after job."""
        try:
            while not self.closed:
                place = jobs.get_nowait()
                results.put((place, self.judged(self.course.paths[place])))
        except queue.Empty:
            return
        except BaseException as error:
            results.put(error)

    def judged(self, path: Path) -> Report:
        """The report of one file; where no judge survives it, one that says so."""
        for _ in range(TRIES):
            if self.closed:
                break
            if self.process is None:
                self.start()
            self._say({"path": str(path)})
            assert self.process is not None and self.process.stdout is not None
            guard = threading.Timer(self._longest(), self.process.kill)
            guard.start()
            line = self.process.stdout.readline()
            guard.cancel()
            if line.endswith("\n"):
                return json.loads(line)
            self._drop()
        digest, _ = digest_of(str(path), str(self.course.folder))
        reports = [
            said("not read", "The grader ended on this file; look at it yourself.") for _ in self.course.ids
        ]
        return {"student": "", "reports": reports, "digest": digest, "open": []}

    def _drop(self) -> None:
        """A judge that has ended, or has to."""
        assert self.process is not None and self.process.stdin is not None and self.process.stdout is not None
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        with suppress(OSError):
            self.process.stdin.close()
        self.process = None

    def _longest(self) -> float:
        """Far more than a submission may take, checks included: a judge that needs longer hangs."""
        limits = self.course.limits
        return 4 * (limits.wall or 3 * limits.seconds) + 120

    def hang_up(self) -> None:
        """The judge hears it, ends what it has started, and then itself."""
        self.closed = True
        process = self.process
        if process and process.stdin:
            with suppress(OSError):
                process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)

    def close(self) -> None:
        """When nobody waits for it any more."""
        if self.process:
            self._drop()


# --- a cluster ------------------------------------------------------------------------------------


def by_cluster(course: Class, left: Sequence[int], address: str) -> Judged:
    """(place, report) of each file, from the workers of a Dask cluster. The bytes travel with the task."""
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise ValueError(f"--dask needs the package distributed; to get it: {how_to_get('dask')}") from None
    waiting = iter(left)
    with Client(address, set_as_default=False) as client:
        coming = as_completed(loop=client.loop)
        places = {}

        def submit() -> None:
            for i in waiting:
                path = course.paths[i]
                task = client.submit(
                    _on_a_worker, course.limits, course.ids, *_travelling(course, path), pure=False
                )
                places[task.key] = i
                coming.add(task)
                return

        for _ in range(IN_FLIGHT):
            submit()
        for task in coming:
            yield places.pop(task.key), _from_a_worker(task, course)
            submit()


def _travelling(course: Class, path: Path) -> tuple[str, bytes, str]:
    """(name, bytes, "") of a file, or ("", b"", why not)."""
    try:
        return path.name, read_file(str(path), str(course.folder)), ""
    except ValueError as error:
        return "", b"", str(error)


def _on_a_worker(limits: Limits, ids: tuple[str, ...], name: str, data: bytes, problem: str) -> Report:
    """One submission on a worker of a cluster, by a judge that each of its threads keeps."""
    if problem:
        return {
            "student": "",
            "reports": [said("not read", problem) for _ in ids],
            "digest": problem,
            "open": [],
        }
    judges = vars(_kept).setdefault("judges", {})
    if limits not in judges:
        judges[limits] = Judge(limits)
        atexit.register(judges[limits].close)
    return grade_bytes(judges[limits], name, data, ids)


_kept = threading.local()


def _from_a_worker(task: Any, course: Class) -> Report:
    """A task's report. A submission that ended every worker it was sent to costs itself alone."""
    try:
        return task.result()
    except Exception as error:
        evidence = f"The grader ended on this file ({type(error).__name__}); look at it yourself."
        reports = [said("not read", evidence) for _ in course.ids]
        return {"student": "", "reports": reports, "digest": "", "open": []}


# --- what is kept ---------------------------------------------------------------------------------


class Journal:
    """Finished submissions beside the table, a line of JSON each; removed when the table is written."""

    def __init__(self, table: Path, resume: bool = False) -> None:
        self.path, self.resume = table.with_name(table.name + ".journal"), resume
        self.file: IO[str] | None = None
        self.course: Class | None = None

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *error: object) -> None:
        if self.file:
            self.file.close()

    def begin(self, course: Class) -> dict[int, Report]:
        """What is already done, by place; a file that has changed since is not."""
        self.course = course
        kept = self._lines() if self.resume and self.path.exists() else []
        if kept and kept[0] != course.settings():
            raise ValueError(f"{str(self.path)!r} belongs to other exercises, limits or another version")
        entries = {line["file"]: line["report"] for line in kept[1:]}
        done = {}
        for i, path in enumerate(course.paths):
            report = entries.get(shown(path, course.folder))
            if report and report["digest"] == digest_of(str(path), str(course.folder))[0]:
                done[i] = report
        self._rewrite([{"file": shown(course.paths[i], course.folder), "report": r} for i, r in done.items()])
        return done

    def _lines(self) -> list[Report]:
        """Whole lines; one that a full disk or a crash has cut is judged again."""
        lines = []
        with self.path.open(encoding="ascii") as file:
            for line in file:
                with suppress(ValueError):
                    lines.append(json.loads(line))
        return lines

    def _rewrite(self, entries: list[Report]) -> None:
        assert self.course is not None
        with replacing(self.path) as file:
            file.writelines(json.dumps(line) + "\n" for line in [self.course.settings(), *entries])
        self.file = self.path.open("a", encoding="ascii")

    def add(self, path: Path, report: Report) -> None:
        """Keep one more."""
        assert self.file is not None and self.course is not None
        self.file.write(json.dumps({"file": shown(path, self.course.folder), "report": report}) + "\n")
        self.file.flush()

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


def write_csv(rows: Iterable[Row], path: Path, points: dict[str, float] | None = None) -> None:
    """The rows as a table. What a spreadsheet would take for a formula gets a quote in front."""
    with replacing(path) as file:
        table = csv.writer(file)
        table.writerow([*Row._fields, *(["points"] if points is not None else [])])
        for row in rows:
            earned = [] if points is None else [f"{points[row.exercise] * (row.status in PASSES):g}"]
            table.writerow([*map(harmless, row), *earned])


def harmless(cell: str) -> str:
    """A cell that no spreadsheet runs."""
    return f"'{cell}" if cell.startswith(FORMULA) else cell
