"""Attention: scores, a mask, shares of the values; and the heads that do it side by side."""

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Arguments, normal
from npformer.exercises.task import Draw, Edit, Posed, either
from npformer.exercises.topics import softmax
from npformer.exercises.topics.questions import coded, drawn

# --- scores, and their scale ---------------------------------------------------------------------------

@drawn("attention.width")
def width(draw: Draw) -> Posed:
    """The width of one head."""
    h, d_k = 2 ** draw.integer(3, 1, 4), 2 ** draw.integer(6, 3, 6)
    return Posed({"d": h * d_k, "h": h}, d_k, {
        "CF-FULL-WIDTH-HEADS": h * d_k,
        "CF-NUMBER-OF-HEADS": h,
        "CF-WIDTHS-ADDED": h * h * d_k,
    })


@drawn("attention.scale", decimals=2)
def scale(draw: Draw) -> Posed:
    """What the scores of one head are divided by."""
    given, d_k, _ = width.draw(draw)
    d, h = given["d"], given["h"]
    return Posed(given, d_k**0.5, {
        "CF-SCALE-D-MODEL": d**0.5,
        "AT-SCALE-DK": d_k,
        "CF-SCALE-INVERSE": d_k**-0.5,
        "CF-SCALE-HEADS": h**0.5,
    })


# --- the whole of it -----------------------------------------------------------------------------------

def calls() -> tuple[Arguments, ...]:
    """v = 1 shows the weights. No mask, some and some, one that hides nothing; and three widths d_k."""
    q, k = 2 * normal(4, 6), 2 * normal(5, 6)
    some = np.array([[1, 0, 1, 0, 1], [0, 1, 1, 0, 0], [1, 1, 0, 0, 1], [0, 0, 1, 1, 0]], bool)
    few = np.array([[1, 0, 0, 1, 0, 1, 1], [0, 1, 0, 0, 0, 0, 1], [0, 1, 1, 0, 1, 0, 0]], bool)
    small, wide = (normal(3, 2), normal(4, 2)), (4 * normal(3, 9), 4 * normal(7, 9))
    return (
        (q, k, np.eye(5), None),
        (q, k, normal(5, 3), some),
        (*small, np.eye(4), np.ones((3, 4), bool)),
        (*wide, normal(7, 2), few),
    )


def huge(level: Array, last: float = 1.0) -> Arguments:
    """Queries and keys whose scores are `level` more than ordinary ones, the last key's `last` times that."""
    more = 5**0.5 * np.array([[1.0], [1.0], [1.0], [1.0], [last]])
    return np.append(normal(3, 4), level, axis=1), np.append(normal(5, 4), more, axis=1), normal(5, 2), None


def weights(q: Array, k: Array, v: Array, *mask: Array | None) -> Arguments:
    """The call whose answer is the weights."""
    return (q, k, np.broadcast_to(np.eye(v.shape[-2]), (*v.shape[:-1], v.shape[-2])).copy(), *mask)


SHOWN = {"With v = 1, which shows the weights": weights}
SCALE = " / k.shape[-1] ** 0.5"
HIDE = "np.where(mask, scores, -np.inf)"
ATTENTION = f"""
def attention(q, k, v, mask=None):
    scores = q @ k.swapaxes(-1, -2){SCALE}
    if mask is not None:
        scores = {HIDE}
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = powers / powers.sum(axis=-1, keepdims=True)
    return weights @ v
"""

forward = coded("attention.forward", ("y",), calls(),
    sizes="q: T_q d_k; k: T_k d_k; v: T_k d_v", unit="query", neutral={"mask": None},
    landmarks={"the weights, before they meet v": "weights"},
    shows=SHOWN,
    cancels={"the same vector added to all keys": lambda q, k, *more: (q, k + normal(k.shape[1]), *more)},
    solution=ATTENTION,
    mistakes={
        "AT-NO-SCALE": [Edit(SCALE, "")],
        "AT-SCALE-DK": [Edit(SCALE, " / k.shape[-1]")],
        "AT-SCALE-MULTIPLIED": [Edit(SCALE, " * k.shape[-1] ** 0.5")],
        "AT-SCALE-AFTER": [Edit(SCALE, "", "@ v", f"@ v{SCALE}")],
        "AT-MASK-AFTER": [
            Edit(HIDE, "scores", "weights @", "(weights if mask is None else weights * mask) @")
        ],
        "AT-MASK-IGNORED": [Edit(HIDE, "scores")],
        "AT-MASK-ADDED": [Edit(HIDE, "scores + mask")],
        "AT-MASK-TIMES": [Edit(HIDE, "scores * mask")],
        "AT-MASK-SIGN": [Edit("-np.inf", "1e9"), Edit(HIDE, "scores - 1e6 * mask")],
        "AT-MASK-INVERTED": [
            Edit(HIDE, "np.where(mask, -np.inf, scores)"), Edit(HIDE, "np.where(mask, -1e30, scores)"),
            Edit(HIDE, "scores - 1e6 * mask"),
        ],
        "SM-AXIS": [
            Edit("axis=-1", "axis=0")
        ],
        "SM-GLOBAL-SUM": [
            Edit("axis=-1", "axis=None")
        ],
    },
    hard={
        "SM-OVERFLOW": huge(np.full((3, 1), 1000.0), last=-1.0),
        "SM-GLOBAL-MAX": huge(softmax.LEVELS),
        "AT-MASK-SMALL": (*huge(np.full((3, 1), -1000.0))[:3], np.arange(5) < [[2], [5], [3]]),
    })

# --- and back ------------------------------------------------------------------------------------------

CENTRED = "(dw - (dw * w).sum(axis=-1, keepdims=True))"

backward = coded("attention.backward", ("dq", "dk", "dv"),
    tuple(
        (normal(T_q, d_v, seed=3), normal(T_q, d_k), normal(T_k, d_k, seed=1), normal(T_k, d_v, seed=2))
        for T_q, T_k, d_k, d_v in ((4, 4, 6, 3), (3, 5, 2, 4), (6, 4, 7, 5))
    ),
    sizes="q: T_q d_k; k: T_k d_k; v: T_k d_v", unit="query",
    solution=f"""
def attention_backward(dy, q, k, v):
    scale = k.shape[-1] ** -0.5
    powers = np.exp(scale * (q @ k.T))
    w = powers / powers.sum(axis=-1, keepdims=True)
    dw = dy @ v.T
    ds = w * {CENTRED}
    dq = scale * ds @ k
    dk = scale * ds.T @ q
    dv = w.T @ dy
    return dq, dk, dv
""",
    mistakes={
        "AT-NO-SCALE": [Edit("k.shape[-1] ** -0.5", "1.0")],
        "AT-GRAD-NO-SCALE": either("dq = scale * ", "dq = ", "dk = scale * ", "dk = "),
        "AT-GRAD-NO-SOFTMAX": [Edit(f"w * {CENTRED}", "dw")],
        "AT-GRAD-UNTRANSPOSED": either("ds.T", "ds", "w.T", "w"),
        "SM-JAC-DIAGONAL": [
            Edit(CENTRED, "dw * (1 - w)")
        ],
        "SM-JAC-PRODUCT": [Edit(CENTRED, "dw")],
    })

# --- who may look --------------------------------------------------------------------------------------

@drawn("attention.causal")
def visible(draw: Draw) -> Posed:
    """The cells that a causal mask leaves visible."""
    T = draw.integer(5, 4, 30)
    return Posed({"T": T}, T * (T + 1) // 2, {
        "CF-NOT-ITSELF": T * (T - 1) // 2,
        "CF-NO-MASK": T * T,
        "CF-HALF": T * T / 2,
        "CF-DIAGONAL-HIDDEN": T * T - T,
        "CF-ONE-SCORE-EACH": T,
    })

causal = coded("mask.causal", ("mask",), ((4,), (6,)), sizes="T: T",
    solution="""
def causal_mask(T):
    i, j = np.arange(T)[:, None], np.arange(T)
    return j <= i
""",
    mistakes={
        "MASK-NOT-ITSELF": [Edit("<=", "<")],
        "MASK-LOOKS-AHEAD": [Edit("<= i", "<= i + 1")],
        "MASK-UPPER": [Edit("<=", ">="), Edit("<=", ">")],
    },
    ours="causal_mask")

# --- heads ---------------------------------------------------------------------------------------------

CHANGED = ".swapaxes(1, 2)"  # two axes change places

split = coded("heads.split", ("heads",), ((normal(2, 3, 8), 4), (normal(3, 5, 6), 2)),
    sizes="x: batch T d_model; n_heads: n_heads",
    solution=f"""
def split_heads(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, T, n_heads, d_model // n_heads){CHANGED}
""",
    mistakes={"AT-HEADS-RESHAPE": [Edit("T, n_heads,", "n_heads, T,", CHANGED, ""), Edit(CHANGED, "")]},
    ours="split_heads")

merge = coded("heads.merge",
    ("y",), ((normal(2, 4, 3, 2),), (normal(3, 2, 5, 4),)), sizes="x: batch n_heads T d_k",
    landmarks={
        "the sum of the heads": "x.sum(axis=1)",
        "the mean of the heads": "x.mean(axis=1)",
    },
    solution=f"""
def merge_heads(x):
    B, h, T, d_k = x.shape
    return x{CHANGED}.reshape(B, T, h * d_k)
""",
    mistakes={"AT-HEADS-RESHAPE": [Edit(CHANGED, "")]},
    ours="merge_heads")
