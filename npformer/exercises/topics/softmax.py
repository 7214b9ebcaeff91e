"""Softmax: shares of one whole, and what a gradient becomes on its way through."""

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Arguments, normal
from npformer.exercises.task import Draw, Edit, Posed
from npformer.exercises.topics.questions import coded, drawn
from npformer.functional import softmax_forward

# --- forward -----------------------------------------------------------------------------------------

def large(rows: int, columns: int) -> Array:
    """Numbers near 1000; but one row has -1000 too, so that only its maximum makes it safe to subtract."""
    numbers = normal(rows, columns) + 1000
    numbers[1, 1:] -= 2000
    return numbers


LEVELS = np.array([[1000.0], [-1000.0], [0.0]])  # three rows that lie far apart


def shares(scores: Array) -> Array:
    """npformer's."""
    return softmax_forward(scores)[0]


forward = coded("softmax.forward", ("p",), ((normal(3, 4),), (2 * normal(5, 2),), (3 * normal(4, 6),)),
    sizes="scores: rows columns",
    landmarks={
        "the logarithm of the softmax": "np.log(p)",
        "e to the power of the scores": "np.exp(scores)",
    },
    cancels={"the same number added to all scores of a row": lambda s: (s + normal(len(s), 1),)},
    solution="""
def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p = powers / powers.sum(axis=-1, keepdims=True)
    return p
""",
    mistakes={
        "SM-AXIS": [Edit("axis=-1", "axis=0")],
        "SM-GLOBAL-SUM": [Edit("axis=-1", "axis=None")],
        "SM-TWICE": [Edit("return p", "return np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)")],
    },
    hard={"SM-OVERFLOW": (large(3, 4),), "SM-GLOBAL-MAX": (normal(3, 4) + LEVELS,)})


@drawn("attention.softmax", decimals=3)
def row(draw: Draw) -> Posed:
    """The softmax of logarithms of whole numbers."""
    n = draw.row([1, 3, 4], 1, 6)
    logs = np.log(n)
    return Posed({"n": ", ".join(f"ln {k}" for k in n)}, n / n.sum(), {
        "CF-NOT-DIVIDED": n,
        "CF-LARGEST-ONLY": 1.0 * (n == n.max()),
        "CF-LOGS-SHARED": logs / max(logs.sum(), 1e-9),
        "CF-EQUAL-SHARES": np.full(3, 1 / 3),
        "CF-LOG-FORGOTTEN": np.exp(n) / np.exp(n).sum(),
    })


# --- backward ----------------------------------------------------------------------------------------

def calls() -> tuple[Arguments, ...]:
    """dp, and p as a softmax gives it."""
    shapes = (3, 4), (5, 2), (4, 6)
    return tuple((2 * normal(*shape, seed=1), shares(normal(*shape))) for shape in shapes)


CENTRED = "(dp - (dp * p).sum(axis=-1, keepdims=True))"

backward = coded("softmax.backward", ("dx",), calls(), sizes="p: rows columns",
    landmarks={
        "p times dp less the plain sum of dp, in which no dp has a weight": 
            "p * (dp - dp.sum(axis=-1, keepdims=True))",
        "the gradient for the softmax of p: a softmax is taken once more": Edit(
            "return", "p = np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)\n    return"),
    },
    cancels={"the same number added to all of dp": lambda dp, p: (dp + 2.0, p)},
    solution=f"""
def softmax_backward(dp, p):
    return p * {CENTRED}
""",
    mistakes={
        "SM-JAC-DIAGONAL": [Edit(CENTRED, "dp * (1 - p)")],
        "SM-JAC-PRODUCT": [Edit(CENTRED, "dp")],
        "SM-JAC-NO-P": [Edit("return p * ", "return ")],
        "SM-GRAD-ROWS": [Edit("return ", "return 1 / len(p) * ")],
        "SM-AXIS": [Edit("axis=-1", "axis=0")],
        "SM-GLOBAL-SUM": [Edit("axis=-1", "axis=None")],
    })


@drawn("backward.softmax", decimals=2)
def row_backward(draw: Draw) -> Posed:
    """A gradient, (3,), on its way through a softmax; Σ p dp is not 0, or the sum would hide."""
    p, dp = np.array([0.5, 0.25, 0.25]), 4 * draw.row([1, 3, -2])
    slips = backward.slips("SM-JAC-DIAGONAL", "SM-JAC-PRODUCT", "SM-JAC-NO-P")
    wrong = {code: f(dp[None], p[None])[0] for code, f in slips.items()}
    more = {
        "CF-NO-JACOBIAN": dp,
        "CF-PLAIN-MEAN": p * (dp - dp.mean()),
        "CF-PLAIN-SUM": p * (dp - dp.sum()),
        "CF-SIGN": -p * (dp - (p * dp).sum()),
    }
    return Posed({"p": p, "dp": dp}, p * (dp - (p * dp).sum()), wrong | more)
