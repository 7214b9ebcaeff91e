"""A class of many: CPU and wall time of a submission, and the memory of the run, as the class grows.

    uv run python tests/benchmarks/grading.py [SUBMISSIONS ...] [--workers N]

Every submission answers four exercises that ask for a function; in every second one two of them
are wrong. CPU time is that of all processes: the judges, the students' and the system's work for them.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

from npformer.exercises.assignment_file import assignment_of
from npformer.exercises.bank import bank
from npformer.exercises.find_the_bug import under_its_name
from npformer.grader.grading_process import Limits
from npformer.grader.points import answers_table
from npformer.grader.submissions import hand_ins
from npformer.grader.supervisor import Journal, grade

IDS = ("ffn.forward", "layer_norm.backward", "softmax.forward", "attention.forward")
RIGHT = [under_its_name(bank()[each], bank()[each].solution) for each in IDS]


def submission(number):
    """All right but for two, which are a little off; which ones depends on the number."""
    wrong = {(number // 2 + k) % len(RIGHT) for k in range(2)} if number % 2 else set()
    answers = [text.replace("return ", "return 1.5 * ", i in wrong) for i, text in enumerate(RIGHT)]
    return "\n\n\n".join(["import math\nimport numpy as np", f"student = 'Student {number}'", *answers])


def measure(count, workers):
    """(wall seconds, CPU seconds, megabytes here, of the largest other process, part right) for a class."""
    with tempfile.TemporaryDirectory() as scratch:
        folder, out = Path(scratch, "class"), Path(scratch, "out.csv")
        folder.mkdir()
        for i in range(count):
            (folder / f"{i:06}.py").write_text(submission(i), encoding="utf-8")
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        own = time.process_time()
        rows = grade(hand_ins(folder), [*IDS], Limits(), workers=workers, journal=Journal(out))
        out.write_text(answers_table(rows, assignment_of(IDS)), newline="")
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime + time.process_time() - own
        assert len(rows) == count * len(IDS)
        right = sum(row.status == "pass" for row in rows)
    unit = 2**20 if sys.platform == "darwin" else 2**10
    memory = [
        resource.getrusage(who).ru_maxrss / unit for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return wall, cpu, *memory, right / len(rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("counts", nargs="*", type=int, default=[50, 200, 1000])
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    print("submissions      wall   a submission: CPU      wall    memory   largest  right")
    for count in options.counts:
        wall, cpu, here, largest, right = measure(count, options.workers)
        each = f"{cpu / count * 1e3:16.0f} ms {wall / count * 1e3:6.0f} ms"
        print(f"{count:11} {wall:7.1f} s {each} {here:6.0f} MB {largest:6.0f} MB {right:6.1%}", flush=True)


if __name__ == "__main__":
    main()
