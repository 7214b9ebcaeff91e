"""Measure how the time and memory of grading grow with the size of the class.

    uv run python tests/benchmarks/grading.py [SUBMISSIONS ...] [--functions N] [--workers N]

Every submission answers up to 13 exercises that ask for a function, by default four. Every second submission
has two wrong answers. The CPU time is the user and system time of this process, of all grading processes and
of all workers. With bubblewrap, the kernel does not report the time of workers, so the CPU time is too small.
To measure all of it, run this script with a PATH without `bwrap`.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from npformer.exercises.assignment_file import make_assignment
from npformer.exercises.bank import bank
from npformer.exercises.find_the_bug import rename_function
from npformer.exercises.task import Code
from npformer.grader.grading_process import Limits
from npformer.grader.points import format_answers_table
from npformer.grader.submissions import find_submissions
from npformer.grader.supervisor import Journal, grade_class

IDS = (
    "ffn.forward",
    "layer_norm.backward",
    "softmax.forward",
    "attention.forward",
    "pe.table",
    "heads.split",
    "heads.merge",
    "layer_norm.forward",
    "ffn.backward",
    "attention.backward",
    "cross_entropy.forward",
    "cross_entropy.backward",
    "softmax.backward",
)


def rename_solution(exercise_id: str) -> str:
    """Return the solution of an exercise, as a function with the name that the exercise asks for."""
    task = bank()[exercise_id]
    assert isinstance(task, Code)
    return rename_function(task, task.solution)


SOLUTIONS = [rename_solution(exercise_id) for exercise_id in IDS]


class Measurement(NamedTuple):
    """The cost of grading a class."""

    wall_seconds: float
    cpu_seconds: float
    own_megabytes: float
    largest_megabytes: float  # the peak memory of the largest child process
    share_correct: float  # the number of correct answers divided by the number of answers


def make_submission(number, n_functions):
    """Return the text of a submission. If the number is odd, two answers are 1.5 times too large."""
    wrong = {(number // 2 + k) % n_functions for k in range(2)} if number % 2 else set()
    answers = []
    for i, text in enumerate(SOLUTIONS[:n_functions]):
        answers.append(text.replace("return ", "return 1.5 * ", 1) if i in wrong else text)
    return "\n\n\n".join(["import math\nimport numpy as np", f"student = 'Student {number}'", *answers])


def get_cpu_seconds():
    """Return the CPU time of this process and of its children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime + time.process_time()


def get_peak_megabytes(who):
    """Return the peak memory of this process, or of its largest child process, as `who` selects."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(who).ru_maxrss / unit


def measure(count, n_functions, workers):
    """Grade a class with `count` submissions and return the measurement."""
    ids = [*IDS[:n_functions]]
    with tempfile.TemporaryDirectory() as scratch:
        folder, out = Path(scratch, "class"), Path(scratch, "out.csv")
        folder.mkdir()
        for i in range(count):
            (folder / f"{i:06}.py").write_text(make_submission(i, n_functions), encoding="utf-8")
        cpu_before, wall_before = get_cpu_seconds(), time.perf_counter()
        rows = grade_class(find_submissions(folder), ids, Limits(), workers=workers, journal=Journal(out))
        out.write_text(format_answers_table(rows, make_assignment(ids)), newline="")
        wall, cpu = time.perf_counter() - wall_before, get_cpu_seconds() - cpu_before
    assert len(rows) == count * len(ids)
    passed_count = sum(row.status == "pass" for row in rows)
    return Measurement(
        wall,
        cpu,
        get_peak_megabytes(resource.RUSAGE_SELF),
        get_peak_megabytes(resource.RUSAGE_CHILDREN),
        passed_count / len(rows),
    )


def main():
    """Print one line of measurements per class size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("counts", nargs="*", type=int, default=[50, 200, 1000])
    parser.add_argument("--functions", type=int, default=4, choices=range(2, len(IDS) + 1), metavar="N")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    print("submissions      wall   a submission: CPU      wall    memory   largest  right")
    for count in options.counts:
        result = measure(count, options.functions, options.workers)
        cpu_ms, wall_ms = result.cpu_seconds / count * 1e3, result.wall_seconds / count * 1e3
        times = f"{result.wall_seconds:7.1f} s {cpu_ms:16.0f} ms {wall_ms:6.0f} ms"
        memory = f"{result.own_megabytes:6.0f} MB {result.largest_megabytes:6.0f} MB"
        print(f"{count:11} {times} {memory} {result.share_correct:6.1%}", flush=True)


if __name__ == "__main__":
    main()
