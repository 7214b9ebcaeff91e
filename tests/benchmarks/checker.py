"""CPU time of one check of each code exercise, for a right answer and for a wrong one that nothing explains.

    uv run python tests/benchmarks/checker.py

The wrong one is the slowest there is: it is held against every known mistake. The first check of a process
also builds these; the times are those of the checks after it, the student's own function included.
"""

import statistics
import time

from npformer.exercises import check
from npformer.exercises.probes import subjects


def off_by_one(right):
    def wrong(*args):
        out = right(*args)
        return tuple(part + 1 for part in out) if isinstance(out, tuple) else out + 1

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
    for name, subject in subjects().items():
        times = [1e3 * cpu(name, answer) for answer in (subject.right, off_by_one(subject.right))]
        print(f"{name:24} {times[0]:6.1f} ms {times[1]:6.1f} ms")


if __name__ == "__main__":
    main()
