"""The looks of exercises that are not moved into a topic yet."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Arguments, Trial, run
from npformer.exercises.relations import Seen, close, named_factor
from npformer.exercises.see import added_for_multiplied, exchanged, unused, written

Function = Callable[..., Any]

# --- one hidden unit -------------------------------------------------------------------------------

SHAPES: dict[str, Callable[[Array], Array]] = {
    "softplus, log(1 + e^z)": lambda z: np.log1p(np.exp(z)),
    "SiLU, z times its sigmoid": lambda z: z / (1 + np.exp(-z)),
    "ELU": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))),
    "the square of a ReLU": lambda z: np.maximum(z, 0) ** 2,
    "min(z, 0), the other half": lambda z: np.minimum(z, 0),
    "a ReLU that stops at 1": lambda z: np.clip(z, 0, 1),
    "no bend at all": lambda z: z,
}
POINTS = np.array([-2.0, -1, 0, 1, 2])


def one_unit(trial: Trial) -> Seen | None:
    """The network is right but for what one hidden unit does to its z."""
    hidden = [probe[0] @ probe[1] + probe[2] for probe in trial.calls]
    answers, pairs = _unit(trial, POINTS), zip(hidden, trial.calls, strict=True)
    if answers is None or not all(_rebuilt(trial, z, probe) for z, probe in pairs):
        return None
    known = next((f" It is {name}." for name, f in SHAPES.items() if close(answers, f(POINTS))), "")
    return Seen(
        "Everything around the activation is right. One hidden unit makes of -2, -1, 0, 1, 2: "
        f"{written(answers)}.{known}",
        "What does max(0, z) make of these five numbers?",
    )


def _unit(trial: Trial, z: Array) -> Array | None:
    one, none = np.ones((1, 1)), np.zeros(1)
    outcome = run(trial.function, (z.reshape(1, -1, 1), one, none, one, none), trial.probe)
    return outcome.arrays[0].reshape(z.shape) if outcome.arrays and outcome.arrays[0].size == z.size else None


def _rebuilt(trial: Trial, z: Array, probe: Arguments) -> bool:
    hidden, pair = _unit(trial, z), trial.both(probe)
    return hidden is not None and pair is not None and close(pair[0], hidden @ probe[3] + probe[4])


def one_slope(trial: Trial) -> Seen | None:
    """The backward pass is right but for the slope of one hidden unit."""
    answers = _slope(trial, POINTS)
    if trial.output > 2 or answers is None:
        return None
    for probe in trial.calls:
        dy, x, W_1, b_1, W_2, _ = probe
        z, pair = x @ W_1 + b_1, trial.both(probe)
        slope = _slope(trial, z)
        if slope is None or pair is None:
            return None
        dz = slope * (dy @ W_2.T)
        made = (dz @ W_1.T, np.einsum("btd,btf->df", x, dz), dz.sum(axis=(0, 1)))
        if not close(pair[0], made[trial.output]):
            return None
    return Seen(
        "Everything around the activation is right. The slope that one hidden unit has at -2, -1, 0, 1, 2: "
        f"{written(answers)}.",
        "What is the slope of max(0, z) at these five numbers: where is the unit on, where off?",
    )


def _slope(trial: Trial, z: Array) -> Array | None:
    one, none, flat = np.ones((1, 1)), np.zeros(1), z.reshape(1, -1, 1)
    outcome = run(trial.function, (np.ones_like(flat), flat, one, none, one, none), trial.probe)
    return outcome.arrays[0].reshape(z.shape) if outcome.arrays and outcome.arrays[0].size == z.size else None


# --- shares, weights, spreads ----------------------------------------------------------------------


def scale(products: Array, weights: Array) -> float | None:
    """The number s with weights = softmax(s q·k), or None: centred log-weights against centred products.

    >>> from npformer.functional import softmax_forward
    >>> products = np.array([[1.0, 3.0, -2.0], [0.0, 1.0, 5.0]])
    >>> round(scale(products, softmax_forward(0.3 * products)[0]), 3)
    0.3
    """
    if weights.shape != products.shape or not np.isfinite(weights).all() or (weights <= 0).any():
        return None
    logs = np.log(weights)
    x, y = (a - a.mean(axis=-1, keepdims=True) for a in (products, logs))
    slope = float((x * y).sum() / (x * x).sum())
    whole = np.allclose(weights.sum(axis=-1), 1, atol=1e-4)
    return (
        slope if whole and np.allclose(y, slope * x, atol=1e-4 * max(1.0, float(np.abs(y).max()))) else None
    )


def scores_times(trial: Trial) -> Seen | None:
    """A softmax, of the scores times one number."""
    pairs = [(probe[0], trial.both(probe)) for probe in trial.calls]
    found = [scale(scores, pair[0]) if pair else None for scores, pair in pairs]
    if not all(found):
        return None
    name = named_factor([s for s in found if s], trial.sizes)
    return Seen(
        f"{{it}} is a softmax, but of the scores times {name or 'a number that changes from call to call'}.",
        "What happens to the scores before exp: a sign, a base, a division?",
    )


def _row_sums(trial: Trial) -> list[Array]:
    pairs = [trial.both(probe) for probe in trial.calls]
    fits = all(pair and pair[0].shape == pair[1].shape for pair in pairs)
    return [pair[0].sum(axis=-1) for pair in pairs if pair and fits]


def no_exponential(trial: Trial) -> Seen | None:
    """Shares that sum to 1, and come from the scores by something else than exp."""
    sums = _row_sums(trial)
    if not sums or not all(np.allclose(s, 1, atol=1e-6) for s in sums):
        return None
    return Seen(
        "The rows sum to 1; two numbers of a row are not in the ratio e to the power of the difference "
        "of their scores.",
        "By which factor does exp grow when a score grows by 1, and is that so here?",
    )


def shares(trial: Trial) -> Seen | None:
    """Rows that do not sum to 1."""
    sums = _row_sums(trial)
    if not sums or any(np.allclose(s, 1, atol=2e-3) for s in sums):  # float16 has three digits
        return no_exponential(trial)
    return Seen(
        f"The rows do not sum to 1: the first sums to {sums[0][0]:.3g}, the next to {sums[0][1]:.3g}.",
        "What do the numbers of one row sum to in a softmax, and what makes them do so?",
    )


def weights(trial: Trial) -> Seen | None:
    """What the weights of attention are: v = 1 shows them."""
    shown = []
    for q, k, _, mask in trial.calls:
        pair = trial.both((q, k, np.eye(len(k)), mask))
        if pair is None or pair[0].shape != pair[1].shape:
            return None
        shown.append((q @ k.T, k.shape[1], mask, pair[0]))
    free = [(products, w, d_k) for products, d_k, mask, w in shown if mask is None or mask.all()]
    found = [scale(products, w) for products, w, _ in free]
    known = [s for s in found if s]
    if later_keys_hidden([w for _, w, _ in free]):
        return OWN_MASK
    if len(known) < len(found):
        return _no_softmax([w for *_, w in shown])
    if not np.allclose(known, [d_k**-0.5 for *_, d_k in free], rtol=1e-4):
        return _scaled(known, trial)
    hidden = [w[~mask] for _, _, mask, w in shown if mask is not None and not mask.all()]
    if all((w != 0).any() for w in hidden):
        asks = "What has a hidden score to be, so that exp makes 0 of it?"
        return Seen("Keys that the mask hides still get weight.", asks)
    return None


OWN_MASK = Seen(
    "Where nothing is to be hidden, keys that stand later than the query get no weight, and the others do: "
    "a causal mask.",
    "Which keys may a query look at when no mask is given?",
)


def later_keys_hidden(shown: list[Array]) -> bool:
    """Whether every weight above the diagonal is 0, and none on it or below."""
    above = [np.triu(np.ones(w.shape[-2:], bool), k=1) for w in shown]
    return all(
        hidden.any() and (w[..., ~hidden] > 0).all() and not w[..., hidden].any()
        for w, hidden in zip(shown, above, strict=True)
    )


def _no_softmax(shown: list[Array]) -> Seen:
    if not any(np.allclose(w.sum(axis=-1), 1, atol=1e-6) for w in shown):
        return Seen(
            "The weights of one query do not sum to 1, so they are no softmax over the keys.",
            "What do the weights of one query sum to, and over which axis?",
        )
    return Seen(
        "The weights of each query sum to 1, and they are no softmax of q·k times one number.",
        "What stands between the products q·k and the weights, line by line?",
    )


def _scaled(found: list[float], trial: Trial) -> Seen:
    free = [
        sizes
        for sizes, probe in zip(trial.sizes, trial.calls, strict=True)
        if probe[3] is None or probe[3].all()
    ]
    name = named_factor(found, tuple(free))
    return Seen(
        "Without a mask the weights are a softmax of q·k times one number, "
        f"{name.replace('the sizes are', 'd_k is') or 'another one for each d_k'}"
        f"{', whose sign is the opposite' * (found[0] < 0)}.",
        "By what are the scores divided, and does it follow d_k?",
    )


def spread(trial: Trial) -> Seen | None:
    """Mean and spread of each token, with gamma = 1 and beta = 0."""
    told = []
    for x, gamma, beta, _ in trial.calls:
        pair = trial.both((x, np.ones_like(gamma), np.zeros_like(beta), 1e-12))
        if pair is None or pair[0].shape != x.shape or not np.isfinite(pair[0]).all():
            return None
        big = x.var(axis=-1) > 1e-4
        told.append(
            (
                np.abs(pair[0].mean(axis=-1)[big]).max() < 1e-6,
                np.abs(pair[0].std(axis=-1)[big] - 1).max() < 1e-4,
            )
        )
    means, spreads = (all(part) for part in zip(*told, strict=True))
    if means and spreads:
        return None
    mean, wide = ("is" if ok else "is not" for ok in (means, spreads))
    return Seen(
        f"With gamma = 1 and beta = 0, each token's mean {mean} 0 and its spread {wide} 1.",
        "Which line sets the spread (variance, root)?" if means else "What is subtracted from each token?",
    )


# --- the stations of a block -----------------------------------------------------------------------


def stations(trial: Trial) -> Seen | None:
    """Which of the four functions are called, in which order, and which first gets another argument."""
    names = trial.names[1:]
    student, right = (_calls(f, trial.calls[0], names) for f in (trial.function, trial.correct))
    order = [name for name, _ in student]
    missing = [name for name in names if name not in order]
    if missing:
        be = "is" if len(missing) == 1 else "are"
        return Seen(f"{' and '.join(missing)} {be} never called.", "Which stations are there in a block?")
    if order != [name for name, _ in right]:
        return Seen(
            f"The calls come in this order: {', '.join(order)}.",
            "Which of them comes first in the paper's block, and how often is each called?",
        )
    return _first_other_argument(student, right)


def _first_other_argument(student: list[tuple[str, Array]], right: list[tuple[str, Array]]) -> Seen:
    for (name, given), (_, wanted) in zip(student, right, strict=True):
        if not close(given, wanted):
            return Seen(
                f"The order of the calls is right. {name} is the first that gets another array than in the "
                "paper's block: look at what is added (the residual) or subtracted before it.",
                f"What goes into {name}?",
            )
    return Seen(
        "All four calls get the right arrays; {it} differs after the last of them: "
        "something is added or changed once more.",
        "What is done after norm_2?",
    )


def _calls(function: Function, probe: Arguments, names: list[str]) -> list[tuple[str, Array]]:
    made: list[tuple[str, Array]] = []

    def watched(name: str, f: Function) -> Function:
        def layer(x: Array) -> Any:
            made.append((name, np.array(x, float)))
            return f(x)

        return layer

    function(probe[0].copy(), *(watched(name, f) for name, f in zip(names, probe[1:], strict=True)))
    return made


def turning(trial: Trial) -> Seen | None:
    """Whether each pair of columns keeps its length, and by how much it turns from position 0 to 1."""
    T, d = trial.calls[0][0].shape
    east = np.tile([1.0, 0.0], (T, d // 2))
    pair, general = trial.both((east,)), trial.both(trial.calls[0])
    if pair is None or general is None or pair[0].shape != (T, d) or general[0].shape != (T, d):
        return None
    if close(pair[0] - east, general[0] - trial.calls[0][0]):
        return Seen(
            "{it} is x with numbers added to it that do not depend on x: nothing is turned.",
            "What does a rotation make of a row of zeros?",
        )
    lengths = [np.hypot(a[:, 0::2], a[:, 1::2]) for a in (general[0], trial.calls[0][0])]
    if not close(*lengths):
        return Seen(
            "The two columns of a pair do not keep their length together, as a rotation would.",
            "What do the two columns (a, b) of one pair become: which product has a minus, and are a and b "
            "still the old ones in it?",
        )
    angles = np.arctan2(pair[0][1, 1::2], pair[0][1, 0::2])
    return Seen(
        "Each pair of columns keeps its length and turns; from position 0 to 1 the pairs turn by the angles "
        f"{written(angles)}.",
        "By which angle does pair i turn in one step, and which columns are pair i?",
    )


# --- a loss, row by row ----------------------------------------------------------------------------


def loss_by_row(trial: Trial) -> Seen | None:
    """Whether the loss of one row is wrong already, and whether several rows give the mean of theirs."""
    single, whole = [], []
    for logits, targets, *more in trial.calls:
        rows = [trial.both((logits[[n]], targets[[n]], *more)) for n in range(len(targets))]
        pair, told = trial.both((logits, targets, *more)), [row for row in rows if row and not row[0].ndim]
        if pair is None or pair[0].ndim or len(told) < len(rows):
            return None
        single += [close(*row) for row in told]
        whole.append(close(pair[0], np.asarray(np.mean([found for found, _ in told]))))
    if all(single):
        return Seen(
            "For each row by itself {it} is right; for several rows it is not the mean of theirs.",
            "How do N losses become one?",
        )
    if not all(whole):
        return None
    return limit_of_loss(trial) or Seen(
        "For several rows {it} is the mean of the rows' losses, as it should be; the loss of a single row is "
        "another one already.",
        "What happens in one row, from its logits to its loss?",
    )


def limit_of_loss(trial: Trial) -> Seen | None:
    """A loss that stops growing while the right class becomes ever less likely."""
    more = trial.calls[0][2:]
    gaps = [np.array([[gap, 0.0, 0.0]]) for gap in (1.0, 50.0, 100.0)]
    found = [pair[0] for logits in gaps if (pair := trial.both((logits, np.array([1]), *more)))]
    if len(found) < len(gaps) or not close(found[1], found[2]) or close(found[0], found[1]):
        return None
    return Seen(
        f"While the right class becomes ever less likely, {{it}} stops at {float(found[2]):.3g}.",
        "Is a probability held above a limit before its logarithm is taken?",
    )


# --- the waves of a position table -----------------------------------------------------------------


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
    found = speeds(table)
    return _base(*found) if found else None


def speeds(table: Array) -> tuple[Array, str] | None:
    """By how much each pair turns from row to row, and the layout, where sines and cosines explain all."""
    if table.ndim != 2 or len(table) < 3 or table.shape[1] % 2 or not np.isfinite(table).all():
        return None
    sines, layout = _layout(table[0])
    if layout == "":
        return None
    table = table.astype(float)
    sine, cosine = table[:, sines], table[:, ~sines]
    # sin 2ω = 2 sin ω cos ω tells cos ω, and the two together tell ω
    cos_w = sine[2] / (2 * np.where(sine[1] == 0, np.inf, sine[1]))
    turns = np.arctan2(sine[1], cos_w)
    angles = np.arange(len(table))[:, None] * turns
    explained = np.allclose(sine, np.sin(angles), atol=1e-4) and np.allclose(
        cosine, np.cos(angles), atol=1e-4
    )
    return (turns, layout) if explained else None


def _layout(row: Array) -> tuple[Array, str]:
    """Row 0 is sin 0 = 0 or cos 0 = 1: which columns are sines, and the name of their order."""
    sines = np.abs(row) < 1e-4
    j = np.arange(len(row))
    orders = {"interleaved": j % 2 == 0, "halves": j < len(row) // 2}
    known = np.all(sines | (np.abs(row - 1) < 1e-4))
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


def table_fits(trial: Trial) -> Seen | None:
    """A table of sines and cosines, but for its base."""
    pairs = [trial.both(probe) for probe in trial.calls]
    if not all(pair and pair[0].shape == pair[1].shape for pair in pairs):
        return None
    found = fit(tuple(pair[0] for pair in pairs if pair))
    if found is None:
        return _other_speeds(next(pair[0] for pair in pairs if pair))
    if abs(found.base - 1) < 1e-2:
        return Seen(
            "Sines and cosines stand where they should, and all pairs turn equally fast.",
            "What makes a later pair slower, and what does that number come to in pair 1?",
        )
    return Seen(
        f"Sines, cosines and pairs fit exactly ({found.layout}), with a base of about {found.base:.3g}.",
        "Which base does the paper choose, and how do its speeds fall along the row?",
    )


def _other_speeds(table: Array) -> Seen | None:
    """Sines and cosines in the paper's places, at speeds of which hardly anything is left in some pair."""
    turns, layout = speeds(table) or (np.zeros(1), "")
    if layout != "interleaved" or np.abs(turns).min() > 1e-6:
        return None
    return Seen(
        "Sines and cosines stand where they should; from row to row the pairs turn by "
        f"{written(turns)} radians (whole turns do not show), which is next to nothing in some of them.",
        "By what is the position divided in columns 2 and 3: what does that come to, bracket by bracket?",
    )


def halves_of_pairs(trial: Trial) -> Seen | None:
    """All sine columns agree, or all cosine columns; and what the first of the others does."""
    pairs = [trial.both(probe) for probe in trial.calls]
    if not all(pair and pair[0].shape == pair[1].shape for pair in pairs):
        return None
    tables = [pair for pair in pairs if pair]
    for start, good, bad in ((0, "sine", "cosine"), (1, "cosine", "sine")):
        if all(close(a[:, start::2], b[:, start::2]) for a, b in tables):
            found, right = tables[0]
            differ = [j for j in range(1 - start, found.shape[1], 2) if not close(found[:, j], right[:, j])]
            some = "the" if 2 * len(differ) >= found.shape[1] - 2 else "some"
            return Seen(
                f"All {good} columns agree, and {some} {bad} columns differ."
                f"{_first_wave(found, right, next((j for j in differ if j > 1), 0))}",
                f"What is the angle of a {bad}, and what is done with it?",
            )
    found, _ = tables[0]
    turned = [speed for j in range(found.shape[1]) if (speed := wave(found[:, j])) is not None]
    if len(turned) < found.shape[1]:
        return None
    said = ", ".join(f"{speed:.3g}" for speed in turned[::2])
    return Seen(
        f"Every column is a wave; in one step from row to row the even columns turn by {said} radians.",
        "By what is the position divided, or multiplied, in columns 0 and 2: which speed has each pair?",
    )


def _first_wave(table: Array, right: Array, column: int) -> str:
    """What the first wrong column beyond pair 0 is, in the student's own numbers."""
    speed, wanted = wave(table[:, column]), wave(right[:, column])
    if speed is None or wanted is None:
        return ""
    if abs(speed - wanted) < 1e-6:
        return (
            f" Column {column} is a wave and turns at the right speed; its start or its sign is another one."
        )
    return f" Column {column} is a wave that turns by {speed:.3g} radians a row."


def wave(column: Array) -> float | None:
    """ω with x[p-1] + x[p+1] = 2 cos ω x[p] for every p, which sines and cosines of ωp obey, or None."""
    middle, sides = column[1:-1], column[:-2] + column[2:]
    if not np.isfinite(column).all() or np.abs(middle).max() < 1e-6:
        return None
    cosine = float((middle * sides).sum() / (middle * middle).sum() / 2)
    return float(np.arccos(cosine)) if abs(cosine) <= 1 and close(sides, 2 * cosine * middle) else None


SPECIAL: dict[str, tuple[Callable[[Trial], Seen | None], ...]] = {
    "pe.table": (table_fits, halves_of_pairs),
    "ffn.forward": (one_unit,),
    "ffn.backward": (one_slope,),
    "softmax.forward": (scores_times,),
    "attention.forward": (unused, weights),
    "layer_norm.forward": (exchanged, added_for_multiplied, spread),
    "block.forward": (stations,),
}
LATER: dict[str, Callable[[Trial], Seen | None]] = {
    "softmax.forward": shares,
    "rope.forward": turning,
    "cross_entropy.forward": loss_by_row,
    "loss.smoothed": loss_by_row,
}
