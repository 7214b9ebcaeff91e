"""A class at once: each submission in its own process, a row for each exercise, a summary for the teacher."""

import csv
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from npformer.exercises.bank import bank
from npformer.exercises.mistakes import words
from npformer.exercises.result import PASSES
from npformer.exercises.submissions import SUFFIXES


class Limits(NamedTuple):
    """What one process may use, and how much it says."""

    seconds: float = 20.0
    megabytes: int = 2048
    level: int = 2


LIMITS = Limits()
UNANSWERED = ("not answered", "not read")


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


def submissions(folder: Path) -> list[Path]:
    """Every .py and .ipynb file below a folder, in order of name.

    Raises ValueError for a folder that does not exist or holds none.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder {str(folder)!r}")
    found = [
        path
        for path in folder.rglob("*")
        if path.suffix in SUFFIXES and ".ipynb_checkpoints" not in path.parts
    ]
    if not found:
        raise ValueError(f"no .py or .ipynb file in {str(folder)!r}")
    return sorted(found)


def grade(
    folder: Path,
    ids: Iterable[str],
    *,
    limits: Limits = LIMITS,
    workers: int = 1,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Row]:
    """One row for each submission and exercise, in order, whatever the number of workers."""
    paths, wanted = submissions(folder), tuple(ids)
    rows: list[Row] = []
    with ThreadPoolExecutor(max_workers=max(workers, 1)) as pool:
        graded = pool.map(lambda path: grade_one(path, wanted, limits), paths)
        for i, (path, reports) in enumerate(zip(paths, graded, strict=True), 1):
            name = path.relative_to(folder).as_posix()
            rows += [row._replace(submission=name) for row in reports]
            tell(f"{i} of {len(paths)}  {name}")
    return rows


def grade_one(path: Path, ids: tuple[str, ...], limits: Limits) -> list[Row]:
    """Check one file. Where its process ends early, the exercise is marked and the rest get a new one."""
    rows: list[Row] = []
    while len(rows) < len(ids):
        rest = ids[len(rows) :]
        head, found, ending = _process(path, rest, limits)
        rows += [
            _row(path, head, exercise_id, report) for exercise_id, report in zip(rest, found, strict=False)
        ]
        if head is None:  # the file itself does not end: no use to try again
            return [_row(path, head, exercise_id, _stopped("not read", ending)) for exercise_id in ids]
        if len(found) < len(rest):
            rows.append(_row(path, head, rest[len(found)], _stopped("error", ending)))
    return rows


Report = dict[str, object]


def _process(path: Path, ids: tuple[str, ...], limits: Limits) -> tuple[Report | None, list[Report], str]:
    """What a worker reported: the file's own line, the exercises, and how it ended."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "npformer.exercises.worker", str(path)]
    worker = subprocess.Popen(
        [*command, str(limits.level), str(limits.megabytes), *ids],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **one_thread, "PYTHONHASHSEED": "0"},
        start_new_session=True,
    )
    try:
        out, _ = worker.communicate(timeout=limits.seconds)
        ending = "It ended the program."
    except subprocess.TimeoutExpired:
        _kill(worker)
        out, _ = worker.communicate()
        ending = f"It was still running after {limits.seconds:g} seconds."
    _kill(worker)
    return *_reports(out.decode("utf-8"), ids), ending


def _kill(worker: "subprocess.Popen[bytes]") -> None:
    """End the process and what it has started; a copy that holds the pipe open would keep us waiting."""
    if not hasattr(os, "killpg"):  # Windows
        worker.kill()
        return
    try:
        os.killpg(worker.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # all have ended
        return


def _reports(text: str, ids: tuple[str, ...]) -> tuple[Report | None, list[Report]]:
    """The file's line, and the exercises up to the first that is missing; the first line of each counts."""
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    by_id: dict[str, Report] = {}
    for line in lines[1:]:
        by_id.setdefault(str(line.get("exercise")), line)
    return (lines[0] if lines else None), [by_id[i] for i in takewhile(by_id.__contains__, ids)]


def _stopped(status: str, ending: str) -> Report:
    return {"status": status, "codes": [], "evidence": ending, "hint": "", "question": None}


def _row(path: Path, head: Report | None, exercise_id: str, report: Report) -> Row:
    codes = report["codes"]
    assert isinstance(codes, list)
    said = [str(report[key] or "") for key in ("evidence", "hint", "question")]
    student = str(head["student"]) if head else ""
    return Row(path.name, student, exercise_id, str(report["status"]), " ".join(codes), *said)


def write_csv(rows: Iterable[Row], path: Path) -> None:
    """The rows as a table. What a spreadsheet would take for a formula gets a quote in front."""
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(Row._fields)
        table.writerows([f"'{cell}" if cell[:1] in tuple("=+-@") else cell for cell in row] for row in rows)


def summary(rows: list[Row]) -> str:
    """For the class: how many are right, the commonest mistakes, and which section to teach again."""
    answered = [row for row in rows if row.status not in UNANSWERED]
    passed = sum(row.status in PASSES for row in answered)
    patterns = Counter(
        f"{code}  in {row.exercise}; teach {_section(code, row.exercise)}"
        for row in answered
        for code in row.codes.split()
    )
    unexplained = Counter(
        f"{row.exercise}; teach {bank()[row.exercise].teach}"
        for row in answered
        if row.status in ("unrecognised", "error")
    )
    unread = sorted({row.submission for row in rows if row.status == "not read"})
    return "\n".join(
        [
            f"{len({row.submission for row in rows})} submissions, {len(answered)} answers, {passed} right.",
            *_ranked("The commonest patterns, and how many students:", patterns),
            *_ranked("Explained by no known mistake:", unexplained),
            *([f"Not read to the end: {', '.join(unread)}."] if unread else []),
        ]
    )


def _ranked(heading: str, counted: Counter[str]) -> list[str]:
    first = sorted(counted.items(), key=lambda item: (-item[1], item[0]))[:10]
    return [heading, *(f"  {n:4}  {line}" for line, n in first)] if first else []


def _section(code: str, exercise_id: str) -> str:
    return words()[code].teach if code in words() else bank()[exercise_id].teach
