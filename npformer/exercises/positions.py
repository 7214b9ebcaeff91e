"""The position table written wrongly: one function, and what each known mistake changes in it."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from npformer.backend import Array

Exponent: TypeAlias = Callable[[Array, int], Array]  # (column numbers j, d_model) -> exponent of 10000
Options: TypeAlias = dict[str, Any]


def by_pair(j: Array, d: int) -> Array:
    """The paper's exponent, 2i/d_model with i = j // 2: both columns of a pair share it."""
    return 2 * (j // 2) / d


def base(value: float) -> Exponent:
    """The paper's exponent for another base, as an exponent of 10000."""
    return lambda j, d: by_pair(j, d) * np.log(value) / np.log(10000)


def table(
    n: int,
    d_model: int,
    *,
    exponent: Exponent = by_pair,
    wave: Callable[[Array, Array], Array] | None = None,
    finish: Callable[[Array], Array] = lambda table: table,
    first: int = 0,
    unit: float = 1.0,
    layout: str = "interleaved",
) -> Array:
    """The position table (n, d_model); every option but the defaults is a mistake or a variant."""
    position = np.arange(first, first + n)[:, None]  # (n, 1)
    j = np.arange(d_model)
    if layout == "halves":
        half = (d_model + 1) // 2
        j = np.where(j < half, 2 * j, 2 * (j - half) + 1)
    angles = unit * position / 10000.0 ** exponent(j, d_model)  # (n, d_model)
    return finish((wave or paper)(angles, j))


def paper(angles: Array, j: Array) -> Array:
    """Sine in the even columns, cosine in the odd ones."""
    return np.where(j % 2 == 0, np.sin(angles), np.cos(angles))


def _row_0_zero(table: Array) -> Array:
    return np.concatenate([0 * table[:1], table[1:]])


def _alike(row: int) -> Callable[[Array], Array]:
    return lambda table: np.repeat(table[row][None], len(table), axis=0)


_END = {"layout": "halves", "exponent": lambda j, d: (j // 2) / max(d / 2 - 1, 1)}

SLIPS: dict[str, tuple[Options, ...]] = {
    "PE-EXP-COLUMN": ({"exponent": lambda j, d: 2 * j / d},),
    "PE-EXP-DOUBLED": ({"exponent": lambda j, d: 4 * (j // 2) / d},),
    "PE-BASE-1E8": ({"exponent": base(1e8)},),
    "PE-EXP-DOUBLED-COS": ({"exponent": lambda j, d: (4 * (j // 2) + j % 2) / d},),
    "PE-COS-OWN-INDEX": ({"exponent": lambda j, d: j / d},),
    "PE-EXP-NO-2": ({"exponent": lambda j, d: (j // 2) / d},),
    "PE-BASE-100": ({"exponent": base(100)},),
    "PE-BASE-1000": ({"exponent": base(1000)},),
    "PE-BASE-100000": ({"exponent": base(100000)},),
    "PE-EXP-SQRT-D": ({"exponent": lambda j, d: 2 * (j // 2) / np.sqrt(d)},),
    "PE-EXP-NO-D": ({"exponent": lambda j, d: 2.0 * (j // 2)},),
    "PE-EXP-SIGN": ({"exponent": lambda j, d: -by_pair(j, d)},),
    "PE-SUM": tuple(
        {"exponent": exponent, "wave": lambda angles, j: np.sin(angles) + np.cos(angles)}
        for exponent in (by_pair, lambda j, d: j / d, lambda j, d: 2 * j / d)
    ),
    "PE-SWAPPED": ({"wave": lambda angles, j: paper(angles, j + 1)},),
    "PE-COS-OVERWRITES": ({"wave": lambda angles, j: np.where(j % 2 == 0, np.cos(angles), 0.0)},),
    "PE-SIN-ONLY": tuple(
        {"exponent": exponent, "wave": lambda angles, j: np.sin(angles)}
        for exponent in (by_pair, lambda j, d: j / d, lambda j, d: 2 * j / d)
    ),
    "PE-COS-OF-SIN": (
        {"wave": lambda angles, j: np.where(j % 2 == 0, np.sin(angles), np.cos(np.sin(angles)))},
    ),
    "PE-ODD-EMPTY": ({"wave": lambda angles, j: np.where(j % 2 == 0, np.sin(angles), 0.0)},),
    "PE-POS-UNUSED": (
        *({"finish": _alike(row)} for row in (0, 1, -1)),
        {"finish": _alike(-1), "first": 1},
    ),
    "PE-POS-ONE-BASED": ({"first": 1},),
    "PE-TRANSPOSED": ({"finish": lambda table: table.T},),
    "PE-DEGREES": ({"unit": np.pi / 180},),
    "PE-HALVES": ({"layout": "halves"},),
    "PE-HALVES-ENDPOINT": (_END,),
    "PE-ROW0-ZERO": ({"finish": _row_0_zero},),
}
