"""Softmax: shares of one whole, and what a gradient becomes on its way through."""

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Arguments, Probe, normal
from npformer.exercises.task import Code, Draw, Edit, Mistake, Place, Posed
from npformer.exercises.topics.questions import drawn
from npformer.functional import softmax_backward, softmax_forward

S4_3 = Place('"Attention Is All You Need", section 3.2.1', "04, section 4.3, Softmax, and the output")
S4_4 = Place("lesson 04, section 4.4", "04, section 4.4, Backward through the softmax")

# --- what is said ------------------------------------------------------------------------------------

FAR = (
    "With scores near 1000 or -1000 the numbers are finite, and not the right ones:",
    "Are two scores such as 1000 and 999 still 1 apart when exp meets them?",
)

AXIS = Mistake("SM-AXIS", S4_3, "The columns sum to 1 and the rows do not.",
    "This pattern appears when the sum runs along another axis than the last.",
    "Which numbers share one whole: those of one query, or those of one key?")
GLOBAL_SUM = Mistake("SM-GLOBAL-SUM", S4_3, "All numbers together sum to 1, and no row does.",
    "This pattern appears when the sum runs over the whole array.",
    "How many rows are to sum to 1?")
TWICE = Mistake("SM-TWICE", S4_3,
    "Rows sum to 1 and keep their order; the largest share is much too near the smallest.",
    "This output matches a softmax taken of a softmax.",
    "How often does exp act on a score on its way?")
OVERFLOW = Mistake("SM-OVERFLOW", S4_3, "Small scores agree; scores near 1000 give no numbers.",
    "This pattern appears when e is raised to a large number.",
    "What may be subtracted from a whole row without changing its softmax?", kind="robustness", finite=FAR)
GLOBAL_MAX = Mistake("SM-GLOBAL-MAX", S4_3,
    "Ordinary scores agree, and so do large ones; where rows lie far apart, as 1000 and -1000, some rows "
    "give no finite numbers.",
    "This pattern appears when one number, such as the maximum of the whole array, is subtracted from all "
    "rows.",
    "Which maximum does each row need?", kind="robustness", finite=FAR)
JAC_DIAGONAL = Mistake("SM-JAC-DIAGONAL", S4_4, "The rows of the gradient do not sum to 0.",
    "This output matches p (1 - p) taken for the whole derivative.",
    "If one score grows, what happens to the other shares?")
JAC_PRODUCT = Mistake("SM-JAC-PRODUCT", S4_4,
    "The rows of the gradient do not sum to 0: this is p·dp, the first of two terms.",
    "This output matches p·dp, from which nothing is subtracted.",
    "If one score grows, what happens to the other shares?")
JAC_NO_P = Mistake("SM-JAC-NO-P", S4_4, "dp less its mean, weighted by p: the sum is right.",
    "This output matches a gradient that is not multiplied by p in the end.",
    "How much can a share of nearly 0 change when its score does?")
GRAD_ROWS = Mistake("SM-GRAD-ROWS", S4_4,
    "The gradient is smaller by one constant factor, the number of rows.",
    "This pattern appears when a mean over the rows is taken once more; dp has it in it already.",
    "Where was anything divided by the number of rows?")

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


forward = Code("softmax.forward", "attention", 2, S4_3,
    task="Write the softmax of each row of scores (rows, columns). Scores may be as large as 1000, or as "
    "small as -1000.",
    hint="A whole row may be shifted.",
    question="What do the numbers of one row sum to?",
    probe=Probe(
        "scores", ("p",), ((normal(3, 4),), (2 * normal(5, 2),), (3 * normal(4, 6),)),
        sizes="scores: rows columns",
        landmarks={
            "the logarithm of the softmax": lambda s: np.log(shares(s)),
            "e to the power of the scores": np.exp,
        },
        cancels={"the same number added to all scores of a row": lambda s: (s + normal(len(s), 1),)},
    ),
    solution="""
def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p = powers / powers.sum(axis=-1, keepdims=True)
    return p
""",
    mistakes={
        AXIS: [Edit("axis=-1", "axis=0")],
        GLOBAL_SUM: [Edit("axis=-1", "axis=None")],
        TWICE: [Edit("return p", "return np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)")],
    },
    hard={OVERFLOW: (large(3, 4),), GLOBAL_MAX: (normal(3, 4) + LEVELS,)})


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

backward = Code("softmax.backward", "backward", 4, S4_4,
    task="p (rows, columns) is the softmax of each row of some scores. Given the gradient dp, return the "
    "gradient of the scores.",
    hint="Every share depends on every score of its row.",
    question="If one score grows, what happens to the other shares?",
    probe=Probe(
        "dp, p", ("dx",), calls(), sizes="p: rows columns",
        landmarks={
            "p times dp less the plain sum of dp, in which no dp has a weight": lambda dp, p: (
                p * (dp - dp.sum(axis=-1, keepdims=True))
            ),
            "the gradient for the softmax of p: a softmax is taken once more": lambda dp, p: (
                softmax_backward(dp, softmax_forward(p)[1])
            ),
        },
        cancels={"the same number added to all of dp": lambda dp, p: (dp + 2.0, p)},
    ),
    solution=f"""
def softmax_backward(dp, p):
    return p * {CENTRED}
""",
    mistakes={
        JAC_DIAGONAL: [Edit(CENTRED, "dp * (1 - p)")],
        JAC_PRODUCT: [Edit(CENTRED, "dp")],
        JAC_NO_P: [Edit("return p * ", "return ")],
        GRAD_ROWS: [Edit("return ", "return 1 / len(p) * ")],
        AXIS.seen_as("The rows of the gradient do not sum to 0."): [Edit("axis=-1", "axis=0")],
        GLOBAL_SUM.seen_as(
            "The rows of the gradient do not sum to 0: every row has the same number taken away."
        ): [Edit("axis=-1", "axis=None")],
    })


@drawn("backward.softmax", decimals=2)
def row_backward(draw: Draw) -> Posed:
    """A gradient, (3,), on its way through a softmax; Σ p dp is not 0, or the sum would hide."""
    p, dp = np.array([0.5, 0.25, 0.25]), 4 * draw.row([1, 3, -2])
    wrong = {
        m: f(dp[None], p[None])[0] for m, f in backward.slips(JAC_DIAGONAL, JAC_PRODUCT, JAC_NO_P).items()
    }
    more = {
        "CF-NO-JACOBIAN": dp,
        "CF-PLAIN-MEAN": p * (dp - dp.mean()),
        "CF-PLAIN-SUM": p * (dp - dp.sum()),
        "CF-SIGN": -p * (dp - (p * dp).sum()),
    }
    return Posed({"p": p, "dp": dp}, p * (dp - (p * dp).sum()), wrong | more)
