"""Reading a position table that no listed mistake explains: waves, speeds, base. Silent unless exact."""

from typing import NamedTuple

import numpy as np

from npformer.backend import Array

EXACT = 1e-4


class Fit(NamedTuple):
    """sin and cos of position · base^(-2i/d_model), in one of two layouts."""

    base: float
    layout: str


def fit(tables: tuple[Array, ...]) -> Fit | None:
    """The base and the layout that explain every table, or None.

    >>> from npformer.positional import positional_encoding
    >>> found = fit((positional_encoding(6, 8, base=500.0), positional_encoding(7, 12, base=500.0)))
    >>> round(found.base), found.layout
    (500, 'interleaved')
    """
    fits = [_fit_one(table) for table in tables]
    first = fits[0]
    agree = first is not None and all(
        f is not None and f.layout == first.layout and abs(np.log(f.base / first.base)) < 1e-2 for f in fits
    )
    return first if agree else None


def _fit_one(table: Array) -> Fit | None:
    if table.ndim != 2 or len(table) < 3 or table.shape[1] % 2 or not np.isfinite(table).all():
        return None
    sines, layout = _layout(table[0])
    if layout == "":
        return None
    table = table.astype(float)
    sine, cosine = table[:, sines], table[:, ~sines]
    # sin 2ω = 2 sin ω cos ω tells cos ω, and the two together tell ω
    cos_w = sine[2] / (2 * np.where(sine[1] == 0, np.inf, sine[1]))
    speeds = np.arctan2(sine[1], cos_w)
    angles = np.arange(len(table))[:, None] * speeds
    explained = np.allclose(sine, np.sin(angles), atol=EXACT) and np.allclose(
        cosine, np.cos(angles), atol=EXACT
    )
    return _base(speeds, layout) if explained else None


def _layout(row: Array) -> tuple[Array, str]:
    """Row 0 is sin 0 = 0 or cos 0 = 1: which columns are sines, and the name of their order."""
    sines = np.abs(row) < EXACT
    j = np.arange(len(row))
    orders = {"interleaved": j % 2 == 0, "halves": j < len(row) // 2}
    known = np.all(sines | (np.abs(row - 1) < EXACT))
    fits = [name for name, order in orders.items() if known and np.array_equal(sines, order)]
    return sines, fits[0] if fits else ""


def _base(speeds: Array, layout: str) -> Fit | None:
    """A straight line through log ω over i: its slope is -log(base) / (number of pairs)."""
    i = np.arange(len(speeds))
    if (speeds <= 0).any():
        return None
    slope, start = np.polyfit(i, np.log(speeds), 1)
    straight = np.allclose(np.log(speeds), slope * i + start, atol=1e-3) and abs(start) < 1e-3
    return Fit(float(np.exp(-slope * len(speeds))), layout) if straight else None


def scale(products: Array, weights: Array) -> float | None:
    """The number s with weights = softmax(s q·k), or None: centred log-weights against centred products.

    >>> from npformer.functional import softmax_forward
    >>> products = np.array([[1.0, 3.0, -2.0], [0.0, 1.0, 5.0]])
    >>> round(scale(products, softmax_forward(0.3 * products)[0]), 3)
    0.3
    """
    if weights.shape != products.shape or not np.isfinite(weights).all() or (weights <= 0).any():
        return None
    logs = np.log(weights.astype(float))
    x, y = (a - a.mean(axis=-1, keepdims=True) for a in (products, logs))
    slope = float((x * y).sum() / (x * x).sum())
    whole = np.allclose(weights.sum(axis=-1), 1, atol=EXACT)
    return (
        slope if whole and np.allclose(y, slope * x, atol=EXACT * max(1.0, float(np.abs(y).max()))) else None
    )
