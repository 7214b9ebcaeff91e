"""Exercises on softmax and its backward pass.

The docstring of the package `npformer.exercises.bank` defines the terms call, edit and intermediate result
(`landmarks`).
"""

import numpy as np

from npformer.backend import Array
from npformer.exercises.bank.questions import function_exercise, number_exercise
from npformer.exercises.probe import Arguments, Draws, normal
from npformer.exercises.task import Draw, Edit, PosedQuestion
from npformer.functional import softmax_forward

# --- forward -----------------------------------------------------------------------------------------

def at_the_limits(rows: int, columns: int) -> Array:
    """Return scores near 1000 and near -1000, the limits of the scores that the task allows.

    Row 1 has one number near 1000, and its other numbers are near -1000. All other rows are near 1000.
    """
    numbers = 1000 - np.abs(normal(rows, columns))
    numbers[1, 1:] = -1000 + np.abs(normal(columns - 1, seed=1))
    return numbers


def overflowing(rows: int, columns: int) -> Array:
    """Return scores near 1000 whose softmax has no zeros. In row 1, all scores but the first are near 280."""
    numbers = 1000 - np.abs(normal(rows, columns))
    numbers[1, 1:] = 280 + np.abs(normal(columns - 1, seed=1))
    return numbers


def far_apart(rows: int, columns: int) -> Array:
    """Return scores whose rows are near 1000, near -1000 or near 0."""
    steps = np.abs(normal(rows, columns))
    levels = np.array([1000.0, -1000.0, 0.0])[np.arange(rows) % 3, None]
    return levels - steps * np.sign(levels + 0.5)


def shares(scores: Array) -> Array:
    """Return the softmax of the scores as npformer computes it."""
    return softmax_forward(scores)[0]


forward = function_exercise("softmax.forward", ("p",),
    ((normal(3, 4),), (2 * normal(5, 2),), (3 * normal(4, 6),), (normal(4, 4),), (normal(3, 1),),
        (normal(1, 4),), (np.repeat(normal(3, 2), 2, axis=1),)),
    axes="scores: rows columns; p: rows columns",
    landmarks={
        "log_softmax": "np.log(p)",
        "exp_scores": "np.exp(scores)",
    },
    invariances={"scores_of_a_row": lambda s: (s + normal(len(s), 1),)},
    solution="""
def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p = powers / powers.sum(axis=-1, keepdims=True)
    return p
""",
    mistakes={
        "SM-AXIS": [Edit("axis=-1", "axis=0"), Edit("powers.sum(axis=-1", "powers.sum(axis=0")],
        "SM-GLOBAL-SUM": [Edit("axis=-1", "axis=None"), Edit("powers.sum(axis=-1", "powers.sum(axis=None")],
        "SM-TWICE": [Edit("return p", "return np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)")],
    },
    hard={"SM-OVERFLOW": (at_the_limits(3, 4),), "SM-GLOBAL-MAX": (far_apart(3, 4),)})


@number_exercise("attention.softmax", decimals=3)
def row(draw: Draw) -> PosedQuestion:
    """Ask for the softmax of logarithms of integers."""
    n = draw.row([1, 3, 4], 1, 6)
    logs = np.log(n)
    return PosedQuestion({"n": ", ".join(f"ln {k}" for k in n)}, n / n.sum(), {
        "CF-NOT-DIVIDED": n,
        "CF-LARGEST-ONLY": 1.0 * (n == n.max()),
        "CF-LOGS-SHARED": logs / max(logs.sum(), 1e-9),
        "CF-EQUAL-SHARES": np.full(3, 1 / 3),
        "CF-LOG-FORGOTTEN": np.exp(n) / np.exp(n).sum(),
    })


# --- backward ----------------------------------------------------------------------------------------

def calls() -> tuple[Arguments, ...]:
    """Return the calls: dp, and the softmax of some scores as p."""
    shapes = (3, 4), (5, 2), (4, 6), (3, 3), (1, 4)
    return tuple((2 * normal(*shape, seed=1), shares(normal(*shape))) for shape in shapes)


CENTRED = "(dp - (dp * p).sum(axis=-1, keepdims=True))"

def draw(draws: Draws) -> Arguments:
    """Return a random dp, and the softmax of random scores."""
    shape = draws.size(), draws.size()
    return draws.normal(*shape), shares(draws.normal(*shape))


backward = function_exercise("softmax.backward", ("dx",), calls(), draw=draw,
    axes="dp: rows columns; p: rows columns; dx: rows columns",
    landmarks={
        "plain_sum_of_dp": "p * (dp - dp.sum(axis=-1, keepdims=True))",
        "softmax_of_p": Edit(
            "return", "p = np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)\n    return"),
    },
    invariances={"all_of_dp": lambda dp, p: (dp + 2.0, p)},
    solution=f"""
def softmax_backward(dp, p):
    return p * {CENTRED}
""",
    mistakes={
        "SM-JAC-DIAGONAL": [Edit(CENTRED, "dp * (1 - p)")],
        "SM-JAC-PRODUCT": [Edit(CENTRED, "dp")],
        "SM-JAC-NO-P": [Edit("return p * ", "return ")],
        "SM-JAC-MEAN": [Edit(CENTRED, "(dp - dp.mean(axis=-1, keepdims=True))")],
        "SM-JAC-PLUS": [Edit("(dp - (dp * p)", "(dp + (dp * p)")],
        "SM-GRAD-ROWS": [Edit("return ", "return 1 / len(p) * ")],
        "SM-AXIS": [Edit("axis=-1", "axis=0")],
        "SM-GLOBAL-SUM": [Edit("axis=-1", "axis=None")],
    })


@number_exercise("backward.softmax", decimals=2)
def row_backward(draw: Draw) -> PosedQuestion:
    """Ask for the gradient of three scores. Σ p dp is not 0, so an answer without this sum is wrong."""
    p, dp = np.array([0.5, 0.25, 0.25]), 4 * draw.row([1, 3, -2])
    slips = backward.slips("SM-JAC-DIAGONAL", "SM-JAC-PRODUCT", "SM-JAC-NO-P")
    wrong = {code: f(dp[None], p[None])[0] for code, f in slips.items()}
    more = {
        "CF-NO-JACOBIAN": dp,
        "CF-PLAIN-MEAN": p * (dp - dp.mean()),
        "CF-PLAIN-SUM": p * (dp - dp.sum()),
        "CF-SIGN": -p * (dp - (p * dp).sum()),
    }
    return PosedQuestion({"p": p, "dp": dp}, p * (dp - (p * dp).sum()), wrong | more)
