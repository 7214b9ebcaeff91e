"""One submission in a process of its own: python -m npformer.exercises.worker FILE LEVEL MEGABYTES ID…

Prints one line of JSON when the file was read and one for each exercise. What the student's code prints goes
nowhere, and its input is empty. Limits on memory and on written files hold where the system has them.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from npformer.exercises import evidence
from npformer.exercises.bank import find
from npformer.exercises.checking import check
from npformer.exercises.submissions import Submission, answer_of, personal, read_submission

LARGEST_FILE = 2**24


def main(arguments: list[str]) -> None:
    """Read the file, check the exercises that are named, report each at once."""
    path, level, megabytes, *ids = arguments
    report = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    _limit(int(megabytes))
    submission = read_submission(Path(path))
    print(json.dumps({"student": submission.student, "problem": submission.problem}), file=report)
    for exercise_id in ids:
        row = {"exercise": exercise_id, **_row(submission, exercise_id, int(level))}
        print(json.dumps(row), file=report)
    report.flush()
    os._exit(0)  # whatever the student's code left running or registered


def _limit(megabytes: int) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for what, most in ((resource.RLIMIT_AS, megabytes * 2**20), (resource.RLIMIT_FSIZE, LARGEST_FILE)):
        try:
            resource.setrlimit(what, (most, most))
        except (ValueError, OSError):  # a system that has the limit by name only
            continue


def _row(submission: Submission, exercise_id: str, level: int) -> dict[str, Any]:
    exercise, _ = find(exercise_id)
    answer = answer_of(submission, exercise)
    if answer is None:
        status = "not read" if submission.problem else "not answered"
        return {**evidence.unanswered()._asdict(), "status": status, "evidence": submission.problem}
    result = check(personal(submission, exercise), answer, level=level)
    if result == evidence.unanswered():
        return {**result._asdict(), "status": "not answered"}
    return result._asdict()


if __name__ == "__main__":
    main(sys.argv[1:])
