"""Attention: scores, a mask, shares of the values; and the heads that do it side by side."""

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Arguments, Probe, normal
from npformer.exercises.task import Code, Draw, Edit, Mistake, Place, Posed, either
from npformer.exercises.topics import softmax
from npformer.exercises.topics.questions import drawn
from npformer.exercises.topics.shared import instead

PAPER = '"Attention Is All You Need", section '
S4_2 = Place(f"{PAPER}3.2.1", "04, section 4.2, Why divide by √d_k?")
S4_4 = softmax.S4_4
S4_5 = Place(f"{PAPER}3.2.3", "04, section 4.5, Masks: who may look")
S4_6 = Place(f"{PAPER}3.2.2", "04, section 4.6, Heads: split and merge by hand")

# --- what is said ------------------------------------------------------------------------------------

NO_SCALE = Mistake("AT-NO-SCALE", S4_2, "Weights go to the right keys, and too much to the largest.",
    "This output matches scores that are not divided.",
    "How does the spread of q·k grow with d_k?")
SCALE_DK = Mistake("AT-SCALE-DK", S4_2, "Weights go to the right keys, and too evenly.",
    "This output matches scores divided by d_k.",
    "How does the spread of q·k grow with d_k?")
SCALE_MULTIPLIED = Mistake("AT-SCALE-MULTIPLIED", S4_2, "Nearly all weight goes to one key.",
    "This output matches scores multiplied by the root of d_k.",
    "Should the scale make scores larger or smaller?")
GRAD_NO_SCALE = Mistake("AT-GRAD-NO-SCALE", S4_4,
    "What differs has the right proportions and is too large, by the root of d_k.",
    "This pattern appears when the scale of the scores is left out on the way back.",
    "The scores are q·k over √d_k: what does a little more of q add to them?")
GRAD_NO_SOFTMAX = Mistake("AT-GRAD-NO-SOFTMAX", S4_4,
    "dv is what the weights say; dq and dk know nothing of the weights.",
    "This output matches a way back from the weights to the scores without the softmax between them.",
    "What stands between the scores and the weights?")
GRAD_UNTRANSPOSED = Mistake("AT-GRAD-UNTRANSPOSED", S4_4,
    "With as many queries as keys there are numbers, and not the right ones; else it stops.",
    "This pattern appears when a table (T_q, T_k) meets something of T_q rows and is not transposed.",
    "k and v have a row for each key: what has to stand first in the product?")
SCALE_AFTER = Mistake("AT-SCALE-AFTER", S4_2, "Each row of weights sums to less than 1, by the root of d_k.",
    "This output matches a scale that comes after the softmax.",
    "What do the weights of one query sum to?")
MASK_AFTER = Mistake("AT-MASK-AFTER", S4_5,
    "Without a mask all agrees; with one, a row of weights sums to less than 1.",
    "This pattern appears when weights are set to 0 after the softmax.",
    "Who gets the share of a hidden key?")
MASK_IGNORED = Mistake("AT-MASK-IGNORED", S4_5,
    "Without a mask all agrees; with one, nothing changes: the mask is ignored.",
    "This output does not depend on the mask.",
    "Which line of the function reads the mask?")
MASK_ADDED = Mistake("AT-MASK-ADDED", S4_5,
    "Without a mask all agrees; with one, hidden keys still get weight, only less.",
    "This output matches scores to which the mask itself is added: True adds 1 and False adds 0.",
    "What has to be added to a score, so that exp makes 0 of it?")
MASK_TIMES = Mistake("AT-MASK-TIMES", S4_5,
    "Without a mask all agrees; with one, hidden keys still get weight.",
    "This pattern appears when scores are multiplied by the mask, or hidden ones set to 0.",
    "What does the softmax make of a score of 0?")
MASK_SIGN = Mistake("AT-MASK-SIGN", S4_5,
    "Without a mask all agrees; with one, the weight goes to hidden keys only.",
    "This pattern appears when a large number is added where it should be taken away.",
    "What does the softmax make of a very large score?")
MASK_INVERTED = Mistake("AT-MASK-INVERTED", S4_5,
    "Without a mask all agrees; with one, the weight goes to hidden keys only.",
    "This pattern appears when True is read as \"hide\".",
    "What does True mean in this mask?")
MASK_SMALL = Mistake("AT-MASK-SMALL", S4_5,
    "Ordinary scores agree; where they are near -1000, hidden keys get weight.",
    "This pattern appears when a hidden score becomes a number such as -100, which another score may be.",
    "Which number is below every score that may come?")
NOT_ITSELF = Mistake("MASK-NOT-ITSELF", S4_5, "The triangle is there, without its diagonal.",
    "This output matches a mask in which no word may see itself.",
    "Whom does the first word see?")
LOOKS_AHEAD = Mistake("MASK-LOOKS-AHEAD", S4_5, "The triangle is there, with one diagonal more.",
    "This output matches a mask that shows each word the next one: the future leaks.",
    "May a word see the one after it?")
UPPER = Mistake("MASK-UPPER", S4_5, "The triangle lies on the other side of the diagonal.",
    "This output matches a mask in which True stands for what is to come: the future is shown, or True is "
    "read as hide.",
    "Which words stand before the first one?")
HEADS_RESHAPE = Mistake("AT-HEADS-RESHAPE", S4_6, "All the numbers are there, in other places.",
    "This pattern appears when axes are cut by a reshape where two should change places.",
    "Which numbers of one token belong to head 0?")

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
        SCALE_DK: d_k,
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

forward = Code("attention.forward", "attention", 4, softmax.S4_3,
    task="Write attention for q (T_q, d_k), k (T_k, d_k), v (T_k, d_v); mask (T_q, T_k) or None, True "
    "where a query may look. Scores may be as large as 1000, or as small as -1000. Return y, an "
    "array.",
    hint="Scores, mask, softmax, mix.",
    question="What do the weights of one query sum to, before and after the mask?",
    probe=Probe(
        "q, k, v, mask=None", ("y",), calls(),
        sizes="q: T_q d_k; k: T_k d_k; v: T_k d_v", unit="query", neutral={"mask": None},
        landmarks=instead(ATTENTION, {"the weights, before they meet v": "weights"}),
        shows=SHOWN,
        cancels={"the same vector added to all keys": lambda q, k, *more: (q, k + normal(k.shape[1]), *more)},
    ),
    solution=ATTENTION,
    mistakes={
        NO_SCALE: [Edit(SCALE, "")],
        SCALE_DK: [Edit(SCALE, " / k.shape[-1]")],
        SCALE_MULTIPLIED: [Edit(SCALE, " * k.shape[-1] ** 0.5")],
        SCALE_AFTER: [Edit(SCALE, "", "@ v", f"@ v{SCALE}")],
        MASK_AFTER: [Edit(HIDE, "scores", "weights @", "(weights if mask is None else weights * mask) @")],
        MASK_IGNORED: [Edit(HIDE, "scores")],
        MASK_ADDED: [Edit(HIDE, "scores + mask")],
        MASK_TIMES: [Edit(HIDE, "scores * mask")],
        MASK_SIGN: [Edit("-np.inf", "1e9"), Edit(HIDE, "scores - 1e6 * mask")],
        MASK_INVERTED: [
            Edit(HIDE, "np.where(mask, -np.inf, scores)"), Edit(HIDE, "np.where(mask, -1e30, scores)"),
            Edit(HIDE, "scores - 1e6 * mask"),
        ],
        softmax.AXIS.seen_as("The weights of one query do not sum to 1; those of one key do."): [
            Edit("axis=-1", "axis=0")
        ],
        softmax.GLOBAL_SUM.seen_as("All weights together sum to 1, and those of no query do."): [
            Edit("axis=-1", "axis=None")
        ],
    },
    hard={
        softmax.OVERFLOW: huge(np.full((3, 1), 1000.0), last=-1.0),
        softmax.GLOBAL_MAX: huge(softmax.LEVELS),
        MASK_SMALL: (*huge(np.full((3, 1), -1000.0))[:3], np.arange(5) < [[2], [5], [3]]),
    })

# --- and back ------------------------------------------------------------------------------------------

CENTRED = "(dw - (dw * w).sum(axis=-1, keepdims=True))"

backward = Code("attention.backward", "backward", 5, S4_4,
    task="Write the gradients of attention without a mask, softmax(q kᵀ/√d_k) v: q (T_q, d_k), k (T_k, d_k), "
    "v (T_k, d_v), and dy in the shape of its output. Return dq, dk, dv in this order.",
    hint="Compute the weights again, then walk back: the mixing, the softmax, the scores.",
    question="Which line of the forward pass do you stand at, and what does it multiply?",
    probe=Probe(
        "dy, q, k, v", ("dq", "dk", "dv"),
        tuple(
            (normal(T_q, d_v, seed=3), normal(T_q, d_k), normal(T_k, d_k, seed=1), normal(T_k, d_v, seed=2))
            for T_q, T_k, d_k, d_v in ((4, 4, 6, 3), (3, 5, 2, 4), (6, 4, 7, 5))
        ),
        sizes="q: T_q d_k; k: T_k d_k; v: T_k d_v", unit="query",
    ),
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
        NO_SCALE: [Edit("k.shape[-1] ** -0.5", "1.0")],
        GRAD_NO_SCALE: either("dq = scale * ", "dq = ", "dk = scale * ", "dk = "),
        GRAD_NO_SOFTMAX: [Edit(f"w * {CENTRED}", "dw")],
        GRAD_UNTRANSPOSED: either("ds.T", "ds", "w.T", "w"),
        softmax.JAC_DIAGONAL.seen_as("dq and dk follow each weight by itself: no other one pays for it."): [
            Edit(CENTRED, "dw * (1 - w)")
        ],
        softmax.JAC_PRODUCT.seen_as("dq and dk hold the first of two terms."): [Edit(CENTRED, "dw")],
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

causal = Code("mask.causal", "decoder", 2, S4_5,
    task="Write the causal mask (T, T): True where query i may look at key j, itself included.",
    hint="Compare a column of row numbers with a row of column numbers.",
    question="Which keys may the first query see, and which the last?",
    probe=Probe("T", ("mask",), ((4,), (6,)), sizes="T: T"),
    solution="""
def causal_mask(T):
    i, j = np.arange(T)[:, None], np.arange(T)
    return j <= i
""",
    mistakes={
        NOT_ITSELF: [Edit("<=", "<")],
        LOOKS_AHEAD: [Edit("<= i", "<= i + 1")],
        UPPER: [Edit("<=", ">="), Edit("<=", ">")],
    },
    ours="causal_mask")

# --- heads ---------------------------------------------------------------------------------------------

CHANGED = ".swapaxes(1, 2)"  # two axes change places

split = Code("heads.split", "attention", 3, S4_6,
    task="Split x (batch, T, d_model) into heads (batch, n_heads, T, d_k).",
    hint="Cut the last axis first, then let two axes change places.",
    question="Which numbers of one token belong to head 0?",
    probe=Probe(
        "x, n_heads", ("heads",), ((normal(2, 3, 8), 4), (normal(3, 5, 6), 2)),
        sizes="x: batch T d_model; n_heads: n_heads",
    ),
    solution=f"""
def split_heads(x, n_heads):
    B, T, d_model = x.shape
    return x.reshape(B, T, n_heads, d_model // n_heads){CHANGED}
""",
    mistakes={HEADS_RESHAPE: [Edit("T, n_heads,", "n_heads, T,", CHANGED, ""), Edit(CHANGED, "")]},
    ours="split_heads")

merge = Code("heads.merge", "attention", 3, S4_6,
    task="Put heads (batch, n_heads, T, d_k) side by side again: (batch, T, d_model).",
    hint="Undo the split, last step first.",
    question="Which head stands first in a token's row?",
    probe=Probe(
        "x", ("y",), ((normal(2, 4, 3, 2),), (normal(3, 2, 5, 4),)), sizes="x: batch n_heads T d_k",
        landmarks={
            "the sum of the heads": lambda x: x.sum(axis=1),
            "the mean of the heads": lambda x: x.mean(axis=1),
        },
    ),
    solution=f"""
def merge_heads(x):
    B, h, T, d_k = x.shape
    return x{CHANGED}.reshape(B, T, h * d_k)
""",
    mistakes={HEADS_RESHAPE: [Edit(CHANGED, "")]},
    ours="merge_heads")
