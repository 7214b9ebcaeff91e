"""Slopes by differences, and how far each may be off. Knows numbers along a line, and no layer.

φ(t) is d_output · output at arguments moved by t along a line; φ'(0) is wanted. A window is the right and the
left quotients (φ(t) - φ(0)) / t at t = h, h/2, h/4. Their mean D(t) is off by even powers of t alone, so
(4 D(t/2) - D(t)) / 3 is off by O(h⁴), and once more, with 16 and 15, by O(h⁶). L. F. Richardson, "The
Approximate Arithmetical Solution by Finite Differences …", 1911. Right minus left is a t + b t³ + O(t⁵): it
tends to 0 unless the slope jumps.

A window tells its own doubt: how far its two estimates of order four are apart, how far right and left are
apart at t → 0, and how much outputs that are rounded may have moved the quotients.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FIRST = 2.0 ** (-52 / 7)  # of the scale: here what the formula leaves, h⁶, is what rounding leaves, ε / h
HALF = 2.0**-26  # √ε, half of the digits: a difference over less than this share of a step has lost as many
LEAP = 64.0  # upwards, three of the steps of 4 down: what is leapt over is met on the way down
SLACK = 10.0  # a doubt is an estimate and no bound, so verdicts keep a digit's distance from it
SMALLEST = 5e-324  # what underflow may take from a number
HIDDEN = "too small to judge, rounding hides it"
NO_VALUE = "there is no finite value close to it"
STAIR = "it stands still close by and moves from afar: a stair"


class Slope(NamedTuple):
    """The slope that a window shows, and what it is worth."""

    value: float
    doubt: float  # how far it may be off
    noise: float  # the part of it that rounding explains
    hidden: float  # what outputs that never changed so far may hide
    terms: Floats  # output by output; their sum is the value
    why: str = ""  # what keeps it from being known
    low: float = math.nan  # at a kink, what may be there
    high: float = math.nan

    @property
    def is_rounding(self) -> bool:
        """Whether rounding explains the doubt."""
        return self.doubt <= SLACK * self.noise

    @property
    def is_known(self) -> bool:
        """To two digits, or as well as rounding allows: elsewhere two windows may agree by accident."""
        return self.is_rounding or SLACK**2 * self.doubt <= abs(self.value)


class Line:
    """φ along one line, with everything that was seen of it."""

    def __init__(
        self,
        at: Callable[[float], tuple[float, Floats]],
        output: Floats,
        d_output: Floats,
        eps: float,
        draws: np.random.Generator,
    ):
        self.at = at  # t → the step as it was made, and the output there: NaN where there is none
        self.output, self.d_output, self.eps, self.draws = output, d_output, eps, draws
        self.quotients: dict[float, Floats] = {}
        self.moved = np.zeros(output.shape, dtype=bool)  # the outputs that changed at any step
        self.reach = 0.0  # the longest step

    def quotient(self, t: float) -> Floats:
        """(φ(t) - φ(0)) / t, output by output."""
        if t not in self.quotients:
            made, output = self.at(t)
            rise = self.d_output * (output - self.output)
            self.moved |= (rise != 0) & np.isfinite(rise)
            self.reach = max(self.reach, abs(made))
            self.quotients[t] = rise / made
        return self.quotients[t]

    def noise(self, t: float) -> float:
        """How far outputs that are rounded may have moved the quotient; those that never change add none."""
        before = self.d_output * self.output
        sizes = np.maximum(abs(before), abs(before + self.quotient(t) * t))
        return self.rounded(sizes[self.moved] if self.moved.any() else sizes) / abs(t)

    def hidden(self) -> float:
        """How much of a slope the outputs that never changed may hide."""
        return self.rounded(abs(self.d_output * self.output)[~self.moved]) / self.reach

    def rounded(self, sizes: Floats) -> float:
        """How far a sum of terms of these sizes may be off, each of them rounded."""
        return (self.eps * float(sizes.max(initial=0)) + SMALLEST) * math.sqrt(sizes.size)

    def window(self, scale: float) -> Slope:
        """The slope from steps of h, h/2 and h/4 to both sides, h about FIRST of the scale.

        h is drawn: a function that repeats, or climbs by stairs, may know every power of two.
        """
        h = FIRST * scale * 2 ** self.draws.uniform(-0.5, 0.5)
        right, left = ([self.quotient(side * t) for t in (h, h / 2, h / 4)] for side in (1, -1))
        D_0, D_1, D_2 = ((r + l) / 2 for r, l in zip(right, left, strict=True))  # noqa: E741
        J_0, J_1, J_2 = (float((r - l).sum()) for r, l in zip(right, left, strict=True))  # noqa: E741
        coarse, fine = (4 * D_1 - D_0) / 3, (4 * D_2 - D_1) / 3
        terms = (16 * fine - coarse) / 15
        jump = (8 * (2 * J_2 - J_1) - (2 * J_1 - J_0)) / 7
        noise = max(self.noise(h / 4), self.noise(-h / 4))
        doubt = abs(float((fine - coarse).sum())) + abs(jump) + noise
        if not math.isfinite(doubt):
            doubt, noise = math.inf, 0.0
        return Slope(float(terms.sum()), doubt, noise, self.hidden(), terms)

    def borne_out(self, scale: float, doubt: float, other: Slope | None = None) -> Slope:
        """A window; where it has less doubt than that, as one of many has by accident, one more beside it."""
        found, off = self.window(scale), 0.0
        if found.doubt < doubt:
            off = abs(found.value - (other or self.window(scale)).value)
        return found._replace(doubt=max(found.doubt, off) if math.isfinite(off) else math.inf)

    def search(self, first: Slope, far: float, near: float, known: Callable[[Slope], bool]) -> Slope:
        """The window with the least doubt, beside a first one, from afar and then near by, until it is known.

        Near by the steps grow while rounding rules, and then shrink until it does, or until a slope that was
        known to two digits is lost in noise.
        """
        best = self.borne_out(far, math.inf, first)
        if known(best):
            return self.explained(best, True)
        found, scale = self.borne_out(near, best.doubt), near
        best = min(best, found, key=_doubt)
        longest = SLACK * max(far, 1.0) / FIRST  # whose steps are ten times the scale, or 10
        while not known(best) and found.is_rounding and scale < longest:
            scale = min(scale * LEAP, longest)
            found = self.borne_out(scale, best.doubt)
            best = min(best, found, key=_doubt)
        least = HALF * scale
        while not known(best) and found.noise < best.doubt and scale > least and not _lost(best, found):
            scale /= 4
            found = self.borne_out(scale, best.doubt)
            best = min(best, found, key=_doubt)
        return self.explained(best, known(best))

    def explained(self, best: Slope, known: bool) -> Slope:
        """The best slope, with what keeps windows from agreeing as closely as rounding allows."""
        by_rounding = best.is_rounding
        close = best if known or by_rounding else self.window(HALF * max(self.quotients) / FIRST)
        right, left = (float(self.quotients[side * max(self.quotients)].sum()) for side in (1, -1))
        if not close.terms.any() and abs(right - left) < abs(right + left) / 2:
            return best._replace(why=STAIR)
        return best if known else best._replace(why=HIDDEN) if by_rounding else self.of_what_nature(best)

    def of_what_nature(self, rough: Slope) -> Slope:
        """Why the steps do not agree; at a kink, between which slopes an answer may lie."""
        steps = sorted(t for t in self.quotients if {-t, 2 * t, -2 * t} <= self.quotients.keys() and t > 0)
        if not all(np.isfinite(self.quotients[side * steps[0]]).all() for side in (1, -1)):
            return rough._replace(why=NO_VALUE)
        for t in steps:
            near, twice = (np.stack([self.quotients[k * t], self.quotients[-k * t]]) for k in (1, 2))
            gap, moved, before = _total(near[0] - near[1]), _total(near), _total(twice)
            if self.noise(t) * SLACK**2 > gap:
                continue
            if _total(near - twice) < gap / SLACK:
                right, left = (float(side.sum()) + 0.0 for side in near)
                low, high = float(near.min(axis=0).sum()), float(near.max(axis=0).sum())
                words = f"slope {left:.3g} on its left, {right:.3g} on its right"
                return rough._replace(why=words, low=low - gap / SLACK, high=high + gap / SLACK)
            if _total(near - 2 * twice) < moved / SLACK:
                return rough._replace(why="the value jumps")
            if before * (1 + 1 / SLACK) < moved < before * (2 - 1 / SLACK):
                return rough._replace(why="its slope grows without end")
            return rough._replace(why="too rough to judge, the steps do not agree")
        return rough._replace(why=HIDDEN)


def _doubt(slope: Slope) -> float:
    return slope.doubt


def _lost(best: Slope, found: Slope) -> bool:
    """Whether a slope that is known to two digits is two digits less so now."""
    return best.doubt * SLACK**2 < min(abs(best.value), found.doubt)


def _total(x: Floats) -> float:
    return float(abs(x).sum())
