"""Slopes by differences, and how far each may be off. Knows numbers along a line, and no layer.

φ(t) is d_output · output at the arguments moved by t along a line; wanted is φ'(0). A window is the right and
the left quotients (φ(t) - φ(0)) / t at t = h, h/2, h/4. Their mean D(t) is off by even powers of t alone, so
(4 D(t/2) - D(t)) / 3 is off by O(h⁴), and the same once more, with 16 and 15, by O(h⁶). L. F. Richardson,
"The Approximate Arithmetical Solution by Finite Differences …", 1911. Their difference tends to 0 as a t + b t³,
unless the slope jumps at 0.

A window's doubt comes from the window: how far its two estimates of order four are apart, how far right and
left are apart at t → 0, and how much outputs that are rounded may have moved the last quotient.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FIRST = 2.0 ** (-52 / 7)  # of the scale: where what the formula leaves, h⁶, is what rounding leaves, ε / h
LEAST = 2.0**-26  # of the first step, √ε: below it half of the digits of what is moved are gone
LEAP = 64.0  # upwards, where only rounding is to be overcome: six halvings find the best step between two
SLACK = 10.0  # a doubt is an estimate, no bound: a verdict keeps a digit's distance from it


class Slope(NamedTuple):
    """The slope that a window shows, and what it is worth."""

    value: float
    doubt: float  # how far it may be off
    noise: float  # the part of it that rounding explains
    hidden: float  # what outputs that have not changed so far may hide beside it
    still: bool  # whether not one output changed
    terms: Floats  # output by output; their sum is the value


class Line:
    """φ along one line, with everything that was seen of it."""

    def __init__(
        self,
        at: Callable[[float], tuple[float, Floats]],
        output: Floats,
        weights: Floats,
        eps: float,
        draws: np.random.Generator,
    ):
        self.at = at  # t → the step as it was made, and the output there; NaN where there is none
        self.output, self.weights, self.eps, self.draws = output, weights, eps, draws
        self.size = abs(weights * output)
        self.quotients: dict[float, Floats] = {}
        self.moved = np.zeros(output.shape, dtype=bool)  # the outputs that ever changed along this line
        self.reach = 0.0  # the longest step

    def quotient(self, t: float) -> Floats:
        """(φ(t) - φ(0)) / t, output by output."""
        if t not in self.quotients:
            made, output = self.at(t)
            rise = self.weights * (output - self.output)
            self.moved |= (rise != 0) & np.isfinite(rise)
            self.reach = max(self.reach, abs(made))
            self.quotients[t] = rise / made
        return self.quotients[t]

    def noise(self, t: float) -> float:
        """How far outputs that are rounded may have moved the quotient; those that never change add none."""
        quotient = self.quotient(t)
        sizes = np.maximum(self.size, abs(self.weights * self.output + quotient * t))
        return _rounded(sizes[self.moved] if self.moved.any() else sizes, self.eps) / abs(t)

    def hidden(self) -> float:
        """How much of a slope the outputs that never changed may hide."""
        return _rounded(self.size[~self.moved], self.eps) / self.reach

    def window(self, scale: float) -> Slope:
        """The slope from steps of h, h/2 and h/4 to both sides.

        h is drawn: a function that repeats, or moves in stairs, may know every power of two.
        """
        h = FIRST * scale * 2 ** self.draws.uniform(-0.5, 0.5)
        steps = (h, h / 2, h / 4)
        right, left = ([self.quotient(side * t) for t in steps] for side in (1, -1))
        D_0, D_1, D_2 = ((r + l) / 2 for r, l in zip(right, left, strict=True))  # noqa: E741
        J_0, J_1, J_2 = (float((r - l).sum()) for r, l in zip(right, left, strict=True))  # noqa: E741
        coarse, fine = (4 * D_1 - D_0) / 3, (4 * D_2 - D_1) / 3
        terms = (16 * fine - coarse) / 15
        jump = (8 * (2 * J_2 - J_1) - (2 * J_1 - J_0)) / 7
        noise = max(self.noise(steps[-1]), self.noise(-steps[-1]))
        doubt = abs(float((fine - coarse).sum())) + abs(jump) + noise
        still = not any(q.any() for q in (*right, *left))
        if not math.isfinite(doubt):
            doubt, noise = math.inf, 0.0
        return Slope(float(terms.sum()), doubt, noise, self.hidden(), still, terms)

    def search(self, scale: float, widest: float, known: Callable[[Slope], bool]) -> Slope:
        """The window with the least doubt: longer steps while rounding rules, then shorter ones until it does.

        It ends as soon as enough is known.
        """
        found = best = self.borne_out(scale, math.inf)
        while not known(best) and found.doubt <= SLACK * found.noise and scale < widest / FIRST**2:
            scale *= LEAP
            found = self.borne_out(scale, best.doubt)
            best = min(best, found, key=lambda slope: slope.doubt)
        least = LEAST * scale
        while not known(best) and found.noise < best.doubt and scale > least and not _worse(found, best):
            scale /= 4
            found = self.borne_out(scale, best.doubt)
            best = min(best, found, key=lambda slope: slope.doubt)
        return best

    def borne_out(self, scale: float, doubt: float) -> Slope:
        """A window, and one with other steps where it has less doubt than that: one of many may by accident."""
        found = self.window(scale)
        return apart(found, self.window(scale)) if found.doubt < doubt else found

    def is_stair(self, best: Slope) -> bool:
        """Whether it stands still close by and has, from afar, one slope on both sides."""
        longest = max(self.quotients)
        right, left = (float(self.quotient(t).sum()) for t in (longest, -longest))
        return best.still and abs(right - left) < abs(right + left) / 2

    def reveals(self, t: float) -> bool:
        """Whether outputs that never changed may hide a slope: they do change at ±t, or nothing is finite there."""
        before = self.moved.copy()
        finite = [np.isfinite(self.quotient(side * t)).all() for side in (1, -1)]
        return bool((self.moved & ~before).any()) or not any(finite)

    def nature(self) -> tuple[str, float, float]:
        """What keeps windows from agreeing, seen from the shortest steps that rounding leaves clear; and at a
        kink the least and the largest of the slopes there."""
        steps = sorted(t for t in self.quotients if t > 0 and {-t, 2 * t, -2 * t} <= self.quotients.keys())
        if not all(np.isfinite(self.quotient(side * steps[0])).all() for side in (1, -1)):
            return "there is no finite value close to it", math.nan, math.nan
        for t in steps:
            near, far = (np.stack([self.quotient(t * k), self.quotient(-t * k)]) for k in (1, 2))
            gap = _total(near[0] - near[1])
            if self.noise(t) * SLACK**2 > gap:
                continue
            low, high = float(near.min(axis=0).sum()), float(near.max(axis=0).sum())
            if _total(near - far) < gap / SLACK:
                right, left = (float(side.sum()) + 0.0 for side in near)
                words = f"slope {left:.3g} on its left, {right:.3g} on its right"
                return words, low - gap / SLACK, high + gap / SLACK
            if _total(near - 2 * far) < _total(near) / SLACK:
                return "the value jumps", math.nan, math.nan
            if near.max() == near.max() and _total(far) * 1.1 < _total(near) < _total(far) * 1.9:
                return "its slope grows without end", math.nan, math.nan
            return "too rough to judge, the steps do not agree", math.nan, math.nan
        return "too small to judge, rounding hides it", math.nan, math.nan


def apart(slope: Slope, other: Slope) -> Slope:
    """In doubt by as much as the other window differs."""
    off = abs(slope.value - other.value)
    return slope._replace(doubt=max(slope.doubt, off) if math.isfinite(off) else math.inf)


def _worse(found: Slope, best: Slope) -> bool:
    """Whether a slope known to two digits is being lost in noise, or in stairs, as the steps get shorter."""
    return best.doubt * SLACK**2 < abs(best.value) and found.doubt > best.doubt * SLACK**2


def _rounded(sizes: Floats, eps: float) -> float:
    """How far a sum of terms of these sizes may be off when each is rounded; without squares that overflow."""
    return (eps * float(sizes.max(initial=0)) + 5e-324) * math.sqrt(sizes.size)


def _total(x: Floats) -> float:
    return float(abs(x).sum())
