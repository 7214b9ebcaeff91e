"""Measure the noise of a forward pass, and detect a forward pass that is a staircase.

Finite differences assume that forward is accurate to the precision of its dtype. A forward pass that rounds
inside to a shorter dtype, or an iteration that stops early, is less accurate: its output changes by random
amounts when the input moves a little. A staircase (rounding to a grid, sign, argmax) does not change at all
for short steps. The noise is measured only if a gradient does not pass or, in low precision, if its error
scatters widely.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from npformer.arrays import to_host
from npformer.gradcheck.finite_differences import Floats
from npformer.gradcheck.function_calls import Keys, Leaf
from npformer.gradcheck.relations import max_abs, root_mean_square

Evaluate = Callable[[float], Floats]  # returns the output after a step along the line

SHORTEST = 2.0**-44  # the shortest step t; t = 1 moves each entry by about the root mean square of the array
# At these steps, a smooth function has no visible second difference, and its difference quotients differ by
# at most the share AGREEMENT.
SHORT_STEPS = (2.0**-28, 2.0**-25, 2.0**-22)
AGREEMENT = 1e-3
# A term that is rounded to a grid is constant for short steps. At this longer step, its slope is visible.
LONGER_STEP = 2.0**-6
AGREEMENT_OF_LONGER_STEP = 2.0**-5
GROWTH = 4.0  # each step is this many times as long as the step before
LONGEST = 1.0  # the longest step
# The distance of neighbouring points on the line, relative to the step, and the number of points.
SPACING = 2.0**-4
POINTS = 7
# Differences that are this many times as large as the rounding error cannot be rounding.
VISIBLE = 10.0
# The second difference of noise has about the same magnitude for three lengths of the step, and for twice the
# spacing: the largest magnitude is at most FLAT times the smallest. If the step grows by the factor GROWTH,
# the second difference of a smooth function grows by GROWTH², and at a kink by GROWTH. At a cusp such as
# √|x|, the second difference grows with the spacing.
LENGTHS_OF_NOISE = 3
FLAT = GROWTH
# Noise that does not begin suddenly must begin at one of the first five lengths with a visible second
# difference. It may begin later than at the first length, where only a few entries of the output may have
# changed. A function that saturates has differences of the same magnitude too, but only for long steps.
MOST_STARTS = 5
# If only one term of the output is noisy, the second differences of the other terms are visible first. Then
# the noise begins suddenly: within a few lengths, the second difference grows SUDDEN times more than that of
# a smooth function, which grows by GROWTH² per length.
SUDDEN = GROWTH
MOST_LENGTHS_OF_GROWTH = 3
# The points t on the line close to which a staircase must be constant.
FAR = (-8.0, -4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
# A staircase is constant from t to t + CLOSE. If it jumps between these two points by accident, it must be
# constant from t + CLOSE to t + 2 CLOSE.
CLOSE = 2.0**-36
MOST_CHANGED = 1 / 8  # the share of the output's entries that may change and still count as constant


# The largest share of noise that may come from rounding. If forward rounds to bfloat16 inside, the noise is
# about 2^-8 of the rounded numbers, and more for an output in which terms cancel. Noise above this limit
# along one array does not excuse errors in the gradients of other arrays.
LARGEST_ROUNDING = 2.0**-4


class Function(Protocol):
    """Calls of the function whose noise is measured: a `Calls` or a `ReferenceCalls` object."""

    output: Floats  # at the given arguments
    eps: float  # of the output's dtype
    step_rng: np.random.Generator

    def compute_output(self, keys: Keys, x: Floats) -> Floats:
        """Return the output after replacing the array at `keys` by x."""


class Noise(NamedTuple):
    """The random changes of forward's output when one array of the arguments moves."""

    # The random change, relative to the largest entry of the output or to its change for t = 1, whichever is
    # larger.
    share: float = 0.0
    level: float = 0.0  # the random change, relative to the largest entry of the output; 0 without noise
    height: float = 0.0  # the smallest jump of a staircase; 0 if forward is not a staircase


@np.errstate(all="ignore")
def measure_noise(calls: Function, leaf: Leaf) -> Noise:
    """Measure the noise of forward when one array moves along a random direction."""
    if leaf.x is None:
        return Noise()
    x = np.array(to_host(leaf.x), dtype=float)
    if not x.size:
        return Noise()
    direction = (root_mean_square(x) or 1.0) * calls.step_rng.standard_normal(x.shape)

    def evaluate(t: float) -> Floats:
        return calls.compute_output(leaf.keys, x + t * direction)

    if _is_smooth_nearby(calls, evaluate):
        return Noise()
    differences = _list_second_differences(calls, evaluate)
    height = _measure_height(calls.output, evaluate)
    if height > 0:
        level = max(_find_level_of_staircase(differences), height)
    else:
        early = _list_flat_runs(differences[: MOST_STARTS + LENGTHS_OF_NOISE - 1])
        level = max([*early, *_list_sudden_runs(differences[:-1])], default=0.0)
    magnitude = max_abs(calls.output)
    change = max_abs(evaluate(LONGEST) - calls.output)
    return Noise(level / (max(magnitude, change) or 1.0), level / (magnitude or 1.0), height)


def _is_smooth_nearby(calls: Function, evaluate: Evaluate) -> bool:
    """Return whether a few steps show no noise. Then the longer measurement is not needed.

    The difference quotients of a smooth function agree for all short steps, and are not all 0. They nearly
    agree with the quotient of a longer step.
    """
    visible = _find_visible_difference(calls, evaluate)
    quotients = []
    for t in SHORT_STEPS:
        outputs = [evaluate(t * (1 + i * SPACING)) for i in range(POINTS)]
        if not _measure_second_difference(outputs, 1) <= visible:
            return False
        quotients.append((outputs[0] - calls.output) / t)
    last = quotients[-1]
    longer = (evaluate(LONGER_STEP) - evaluate(-LONGER_STEP)) / (2 * LONGER_STEP)
    agrees_nearby = max_abs(np.array(quotients) - last) <= AGREEMENT * max_abs(last)
    agrees_farther = max_abs(longer - last) <= AGREEMENT_OF_LONGER_STEP * max_abs(last)
    return max_abs(last) > 0 and agrees_nearby and agrees_farther


def _find_visible_difference(calls: Function, evaluate: Evaluate) -> float:
    """Return the smallest second difference that rounding of output and input cannot explain."""
    shortest_change = max_abs(evaluate(SHORTEST) - calls.output)
    rounding_of_input = shortest_change * calls.eps / SHORTEST
    return VISIBLE * max(calls.eps * max_abs(calls.output), rounding_of_input)


def _list_second_differences(calls: Function, evaluate: Evaluate) -> list[tuple[float, float]]:
    """Return a pair of second differences of the output for each of several growing steps.

    The two numbers of a pair belong to two spacings of the points. The list begins with the first pair that
    the rounding errors of the output and of the moved input cannot explain.
    """
    visible = _find_visible_difference(calls, evaluate)
    differences: list[tuple[float, float]] = []
    t = SHORTEST
    while t <= LONGEST:
        outputs = [evaluate(t * (1 + i * SPACING)) for i in range(POINTS)]
        pair = (_measure_second_difference(outputs, 1), _measure_second_difference(outputs, 2))
        if differences or min(pair) > visible:
            differences.append(pair)
        t *= GROWTH
    return differences


def _measure_second_difference(outputs: Sequence[Floats], spacing: int) -> float:
    """Return the root mean square of the largest second differences of outputs that are `spacing` apart."""
    starts = range(len(outputs) - 2 * spacing)
    differences = [outputs[i] - 2 * outputs[i + spacing] + outputs[i + 2 * spacing] for i in starts]
    return root_mean_square(np.array([max_abs(difference) for difference in differences]))


def _list_flat_runs(differences: Sequence[tuple[float, float]]) -> list[float]:
    """Return the largest number of each flat run: differences of about the same magnitude."""
    levels = []
    for start in range(len(differences) - LENGTHS_OF_NOISE + 1):
        run = np.array(differences[start : start + LENGTHS_OF_NOISE])
        if 0 < run.max() <= FLAT * run.min():
            levels.append(float(run.max()))
    return levels


def _list_sudden_runs(differences: Sequence[tuple[float, float]]) -> list[float]:
    """Return the largest number of each flat run that begins suddenly, unlike for a smooth function."""
    levels = []
    for start in range(1, len(differences)):
        run = differences[start : start + LENGTHS_OF_NOISE]
        for n in range(1, min(start, MOST_LENGTHS_OF_GROWTH) + 1):
            largest_if_smooth = max(differences[start - n]) * GROWTH ** (2 * n)
            if SUDDEN * largest_if_smooth < min(map(min, run)):
                levels += _list_flat_runs(run)
    return levels


def _find_level_of_staircase(differences: Sequence[tuple[float, float]]) -> float:
    """Return the largest difference of the last flat run, in which most output entries have changed.

    Without a flat run, return the largest difference for short steps, or 0 if there is none.
    """
    levels = _list_flat_runs(differences)
    if levels:
        return levels[-1]
    short = differences[:-2]  # steps up to 1/16
    return max((max(pair) for pair in short), default=0.0)


def _measure_height(output: Floats, evaluate: Evaluate) -> float:
    """Return the smallest jump of a staircase, or 0 if forward is not a staircase.

    A staircase is constant close to every point in FAR, which includes the given point t = 0.
    """
    for t in FAR:
        if not any(_is_constant(evaluate(near), evaluate(near + CLOSE)) for near in (t, t + CLOSE)):
            return 0.0
    return _find_first_step(output, evaluate)


def _find_first_step(output: Floats, evaluate: Evaluate) -> float:
    """Return the smallest change of an output entry, for the shortest step that changes the output.

    Return 0 if no step changes the output.
    """
    t = CLOSE
    while t <= max(FAR):
        for moved_output in (evaluate(t), evaluate(-t)):
            changes = abs(moved_output - output)
            if not _is_constant(output, moved_output):
                return float(changes[changes > 0].min())
        t *= GROWTH
    return 0.0


def _is_constant(output: Floats, moved_output: Floats) -> bool:
    """Return whether nearly all entries of the output keep their value."""
    n_changed = np.count_nonzero(output != moved_output)
    return bool(n_changed <= MOST_CHANGED * output.size)
