"""Exercises on attention: scores, softmax, masks, the backward pass, and several heads.

The docstring of the package `npformer.exercises.bank` defines the terms call, derived call, view, edit,
intermediate result (`landmarks`) and detector.
"""

import numpy as np

from npformer.backend import Array
from npformer.exercises.bank.questions import function_exercise, number_exercise
from npformer.exercises.probe import Arguments, Draws, View, normal
from npformer.exercises.task import Draw, Edit, PosedQuestion, edit_either_line

# --- scores, and their scale ---------------------------------------------------------------------------

@number_exercise("attention.width")
def width(draw: Draw) -> PosedQuestion:
    """Ask for the width of one head."""
    h, d_k = 2 ** draw.integer(3, 1, 4), 2 ** draw.integer(6, 3, 6)
    return PosedQuestion({"d": h * d_k, "h": h}, d_k, {
        "CF-FULL-WIDTH-HEADS": h * d_k,
        "CF-NUMBER-OF-HEADS": h,
        "CF-WIDTHS-ADDED": h * h * d_k,
    })


@number_exercise("attention.scale", decimals=2)
def scale(draw: Draw) -> PosedQuestion:
    """Ask for the number by which the scores of one head are divided."""
    given, d_k, _ = width.draw(draw)
    d, h = given["d"], given["h"]
    return PosedQuestion(given, d_k**0.5, {
        "CF-SCALE-D-MODEL": d**0.5,
        "AT-SCALE-DK": d_k,
        "CF-SCALE-INVERSE": d_k**-0.5,
        "CF-SCALE-HEADS": h**0.5,
    })


# --- attention, forward ------------------------------------------------------------------------------

def calls() -> tuple[Arguments, ...]:
    """Return the calls on which the checker runs every answer.

    Some calls have no mask, some have a mask, and one has a mask that hides nothing. The widths differ. In
    two calls q, k, v and y have the same shape; one of these two calls has a mask that is not symmetric.
    """
    q, k = 2 * normal(4, 6), 2 * normal(5, 6)
    some = np.array([[1, 0, 1, 0, 1], [0, 1, 1, 0, 0], [1, 1, 0, 0, 1], [0, 0, 1, 1, 0]], bool)
    few = np.array([[1, 0, 0, 1, 0, 1, 1], [0, 1, 0, 0, 0, 0, 1], [0, 1, 1, 0, 1, 0, 0]], bool)
    small, wide = (normal(3, 2), normal(4, 2)), (4 * normal(3, 9), 4 * normal(7, 9))
    square = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 1]], bool)
    return (
        (q, k, normal(5, 4), None),
        (q, k, normal(5, 3), some),
        (*small, normal(4, 5), np.ones((3, 4), bool)),
        (*wide, normal(7, 2), few),
        (normal(3, 3, seed=1), normal(3, 3, seed=2), normal(3, 3, seed=3), square),
        (normal(3, 3, seed=1), normal(3, 3, seed=2), normal(3, 3, seed=3), None),
        (normal(2, 1), normal(1, 1), normal(1, 3), None),
        (normal(1, 3), normal(4, 3), normal(4, 1), None),
    )


def draw(draws: Draws) -> Arguments:
    """Return a random call with a mask. No row and no column of the mask is completely hidden."""
    T_q, T_k, d_k, d_v = (draws.size() for _ in range(4))
    mask = draws.rng.random((T_q, T_k)) < 0.6
    mask[np.arange(T_q), draws.rng.integers(0, T_k, size=T_q)] = True
    mask[draws.rng.integers(0, T_q, size=T_k), np.arange(T_k)] = True
    q, k = draws.normal(T_q, d_k), draws.normal(T_k, d_k)
    return q, k, draws.normal(T_k, d_v), mask


EDGE = 990.0  # added to ordinary scores, which then stay below 1000, the largest allowed score


def huge(level: Array, keys: Array | None = None) -> Arguments:
    """Return a call with huge scores.

    Each score is the sum of an ordinary score and a product: the query's entry of `level` times the key's
    entry of `keys`. Without `keys`, the second factor is 1.
    """
    own = np.ones(5) if keys is None else keys
    more = 5**0.5 * own[:, None]
    return np.append(normal(3, 4), level, axis=1), np.append(normal(5, 4), more, axis=1), normal(5, 2), None


def weights(q: Array, k: Array, v: Array, *mask: Array | None) -> Arguments:
    """Replace v in a call by the identity matrix, so that the result equals the attention weights.

    A column of zeros is appended to the identity matrix, so that T_k and d_v differ.
    """
    T_k = v.shape[-2]
    identity = np.eye(T_k, T_k + 1)
    return (q, k, np.broadcast_to(identity, (*v.shape[:-1], T_k + 1)).copy(), *mask)


def without_last_column(answer: Array) -> Array:
    """Remove the column of zeros that `weights` has added, so that only attention weights are left."""
    return answer[..., :-1]


VIEWS = {"weights": View(weights, without_last_column)}
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

forward = function_exercise("attention.forward", ("y",), calls(),
    draw=draw, axes="q: T_q d_k; k: T_k d_k; v: T_k d_v; mask: T_q T_k; y: T_q d_v", neutral={"mask": None},
    landmarks={"weights": "weights"},
    views=VIEWS,
    invariances={"all_keys": lambda q, k, *more: (q, k + normal(k.shape[1]), *more)},
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
        "SM-OVERFLOW": huge(np.full((3, 1), EDGE), np.array([1.0, 1.0, 1.0, 1.0, -1.0])),
        "SM-GLOBAL-MAX": huge(np.array([[EDGE], [-EDGE], [0.0]])),
        "AT-MASK-SMALL": (
            *huge(np.full((3, 1), EDGE), np.array([-1.0, -1.0, 1.0, -1.0, 1.0]))[:3],
            np.array([[1, 1, 0, 0, 0], [1, 0, 0, 1, 0], [1, 1, 0, 1, 0]], bool),
        ),
    })

# --- attention, backward -----------------------------------------------------------------------------

CENTRED = "(dw - (dw * w).sum(axis=-1, keepdims=True))"

backward = function_exercise("attention.backward", ("dq", "dk", "dv"),
    tuple(
        (normal(T_q, d_v, seed=3), normal(T_q, d_k), normal(T_k, d_k, seed=1), normal(T_k, d_v, seed=2))
        for T_q, T_k, d_k, d_v in ((4, 4, 6, 3), (3, 5, 2, 4), (6, 4, 7, 5), (3, 3, 3, 3))
    ),
    axes="dy: T_q d_v; q: T_q d_k; k: T_k d_k; v: T_k d_v; dq: T_q d_k; dk: T_k d_k; dv: T_k d_v",
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
        "AT-GRAD-NO-SCALE": edit_either_line("dq = scale * ", "dq = ", "dk = scale * ", "dk = "),
        "AT-GRAD-NO-SOFTMAX": [Edit(f"w * {CENTRED}", "dw")],
        "AT-GRAD-UNTRANSPOSED": edit_either_line("ds.T", "ds", "w.T", "w"),
        "SM-JAC-DIAGONAL": [
            Edit(CENTRED, "dw * (1 - w)")
        ],
        "SM-JAC-PRODUCT": [Edit(CENTRED, "dw")],
        "SM-JAC-NO-P": [Edit(f"w * {CENTRED}", CENTRED)],
        "SM-JAC-MEAN": [Edit(CENTRED, "(dw - dw.mean(axis=-1, keepdims=True))")],
        "SM-JAC-PLUS": [Edit("(dw - (dw * w)", "(dw + (dw * w)")],
    })

# --- masks -------------------------------------------------------------------------------------------

@number_exercise("attention.causal")
def visible(draw: Draw) -> PosedQuestion:
    """Ask for the number of cells that a causal mask leaves visible."""
    T = draw.integer(5, 4, 30)
    return PosedQuestion({"T": T}, T * (T + 1) // 2, {
        "CF-NOT-ITSELF": T * (T - 1) // 2,
        "CF-NO-MASK": T * T,
        "CF-HALF": T * T / 2,
        "CF-DIAGONAL-HIDDEN": T * T - T,
        "CF-ONE-SCORE-EACH": T,
    })

causal = function_exercise("mask.causal", ("mask",), ((4,), (6,), (1,)),
    draw=lambda draws: (draws.size(),), axes="T: T; mask: T T",
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

CHANGED = ".swapaxes(1, 2)"

def with_heads(draws: Draws) -> Arguments:
    """Return a random x, whose last axis has the length n_heads · d_k, and a random n_heads."""
    B, T, h, d_k = (draws.size(high=7) for _ in range(4))
    return draws.normal(B, T, h * d_k), h


split = function_exercise("heads.split", ("heads",),
    ((normal(2, 3, 8), 4), (normal(3, 5, 6), 2), (normal(2, 2, 4), 2)),
    draw=with_heads,
    axes="x: batch T d_model; n_heads: n_heads; heads: batch n_heads T d_k",
    solution=f"""
def split_heads(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, T, n_heads, d_model // n_heads){CHANGED}
""",
    mistakes={
        "AT-HEADS-RESHAPE": [Edit("T, n_heads,", "n_heads, T,", CHANGED, ""), Edit(CHANGED, "")],
        "AT-HEADS-STRIDED": [
            Edit("n_heads, d_model // n_heads", "d_model // n_heads, n_heads",
                CHANGED, ".transpose(0, 3, 1, 2)"),
        ],
    },
    ours="split_heads")

merge = function_exercise("heads.merge",
    ("y",), ((normal(2, 4, 3, 2),), (normal(3, 2, 5, 4),), (normal(2, 3, 3, 3),)),
    axes="x: batch n_heads T d_k; y: batch T d_model",
    landmarks={
        "sum_of_heads": "x.sum(axis=1)",
        "mean_of_heads": "x.mean(axis=1)",
    },
    solution=f"""
def merge_heads(x):
    B, h, T, d_k = x.shape
    return x{CHANGED}.reshape(B, T, h * d_k)
""",
    mistakes={
        "AT-HEADS-RESHAPE": [Edit(CHANGED, "")],
        "AT-HEADS-AXES": [Edit(CHANGED, ".swapaxes(1, 3)"), Edit(CHANGED, ".swapaxes(2, 3)")],
        "AT-HEADS-INTERLEAVED": [Edit(CHANGED, ".transpose(0, 2, 3, 1)")],
    },
    ours="merge_heads")
