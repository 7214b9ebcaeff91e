"""CPU time of one check of each code exercise, for a right answer and for a wrong one that nothing explains.

    uv run python tests/benchmarks/checker.py

The wrong one is the slowest there is: it meets every mistake and relation. The first check of a process
also builds these; the times are those of the checks after it, the student's own function included.
"""

import statistics
import time

import numpy as np

from npformer.exercises import check
from npformer.exercises.task import Code
from npformer.exercises.topics import bank


def noisy(right):
    """The right answer with noise upon it, the same at every call."""

    def moved(part):
        return part + 0.1 * np.random.default_rng(0).normal(size=np.shape(part))

    def wrong(*args):
        out = right(*args)
        return tuple(map(moved, out)) if isinstance(out, tuple) else moved(out)

    return wrong


def cpu(exercise, answer, repeats=9):
    times = []
    for _ in range(repeats + 1):
        start = time.process_time()
        check(exercise, answer)
        times.append(time.process_time() - start)
    return statistics.median(times[1:])


def main():
    print(f"{'exercise':24} {'right':>9} {'wrong':>9}")
    for name, right in ((task.id, task.solved()) for task in bank().values() if isinstance(task, Code)):
        times = [1e3 * cpu(name, answer) for answer in (right, noisy(right))]
        print(f"{name:24} {times[0]:6.1f} ms {times[1]:6.1f} ms")


if __name__ == "__main__":
    main()
