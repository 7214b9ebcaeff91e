"""RoPE: pairs of columns that turn with their position."""

import numpy as np

from npformer.exercises.probe import Probe, Trial, normal
from npformer.exercises.see import CALLS, NUMBERS, Seen, close, written
from npformer.exercises.task import Code, Edit, Mistake, Place

S2_3 = Place('"RoFormer" (Su et al.), section 3.2', "02, section 2.3, One step is one rotation")
S10_4_BACK = Place("lesson 10, section 10.4", "10, section 10.4, RoPE: distance only")

# --- what is said ------------------------------------------------------------------------------------

SIGN = Mistake("ROPE-SIGN", S2_3,
    "Each pair keeps its length and turns by the right angle, the other way round.",
    "This output matches a rotation with the sign of its sines exchanged.",
    "In which direction does a hand turn from one position to the next?")
HALVES = Mistake("ROPE-HALVES", S2_3, "Angles fit, and other columns form the pairs.",
    "This output matches pairs made of a column and the one half a row further, as some libraries have it.",
    "Which two columns does this task call a pair?")
FROM_1 = Mistake("ROPE-FROM-1", S2_3, "Each row is turned by one step too many.",
    "This pattern appears when positions are counted from 1.",
    "By what angle does position 0 turn?")
EXP_NO_2 = Mistake("ROPE-EXP-NO-2", S2_3,
    "Pairs turn, and the speeds fall half as fast along the row as they should.",
    "This pattern appears when the exponent is i over d.",
    "What does the exponent of the last pair come close to?")
EXP_DOUBLED = Mistake("ROPE-EXP-DOUBLED", S2_3,
    "Pairs turn, and the speeds fall twice as fast along the row as they should.",
    "This pattern appears when i already counts by twos and is doubled once more.",
    "When the column is 4, what is i, and what is 2i?")

GRAD_FORWARD = Mistake("ROPE-GRAD-FORWARD", S10_4_BACK,
    "Each pair keeps its length and turns by the right angle, the other way round.",
    "This output matches dy turned once more, as x was on the way forward.",
    "y = R x for each pair, so dx = Rᵀ dy: in which direction does the transpose of a rotation turn?")
GRAD_ONE_WAY = Mistake("ROPE-GRAD-ONE-WAY", S10_4_BACK,
    "A pair does not keep its length: each column is only multiplied by its cosine.",
    "This pattern appears when a column of x is followed into one column of y.",
    "Into which two columns of y does one column of x go?")

# --- what is asked -----------------------------------------------------------------------------------


def turning(trial: Trial) -> Seen | None:
    """Whether each pair of columns keeps its length, and by how much it turns from position 0 to 1."""
    x, y = trial.calls[0][0], trial.found[0]
    east = np.tile([1.0, 0.0], (len(x), x.shape[1] // 2))
    pair = trial.both((east,))
    if pair is None or pair[0].shape != x.shape or y.shape != x.shape:
        return None
    if not close(*(np.hypot(a[:, 0::2], a[:, 1::2]) for a in (y, x))):
        return Seen("The two columns of a pair do not keep their length together, as a rotation would.",
            "What do the two columns (a, b) of one pair become: which product has a minus, and are a and b "
            "still the old ones in it?")
    angles = np.arctan2(pair[0][1, 1::2], pair[0][1, 0::2])
    return Seen(
        "Each pair of columns keeps its length and turns; from position 0 to 1 the pairs turn by the angles "
        f"{written(angles)}.",
        "By which angle does pair i turn in one step, and which columns are pair i?")


forward = Code("rope.forward", "sinusoids", 4, S2_3,
    task="Write RoPE for x (T, d), d even: at position p, counted from 0, the pair of columns 2i and 2i+1 "
    "turns by the angle p / 10000^(2i/d), so that (1, 0) becomes (cos, sin). Return y in x's shape.",
    hint="A rotation of (a, b) is (a cos - b sin, a sin + b cos).",
    question="What do the two columns of one pair become when their hand turns by a right angle?",
    probe=Probe(
        "x", ("y",), ((normal(5, 6),), (normal(3, 8),)), sizes="x: T d", unit="position",
    ),
    solution="""
def rope(x):
    T, d = x.shape
    i = np.arange(d // 2)
    even, odd = 2 * i, 2 * i + 1
    angles = np.arange(T)[:, None] / 10000.0 ** (2 * i / d)
    y = np.zeros_like(x)
    y[:, even] = x[:, even] * np.cos(angles) - x[:, odd] * np.sin(angles)
    y[:, odd] = x[:, even] * np.sin(angles) + x[:, odd] * np.cos(angles)
    return y
""",
    mistakes={
        SIGN: [Edit("np.sin(angles)", "np.sin(-angles)")],
        HALVES: [Edit("2 * i, 2 * i + 1", "i, i + d // 2")],
        FROM_1: [Edit("np.arange(T)", "np.arange(1, T + 1)")],
        EXP_NO_2: [Edit("2 * i / d", "i / d")],
        EXP_DOUBLED: [Edit("2 * i / d", "4 * i / d")],
    },
    looks=(*NUMBERS, *CALLS, turning))


backward = Code("rope.backward", "backward", 4, S10_4_BACK,
    task="RoPE turns x (T, d), d even: at position p, counted from 0, the pair of columns 2i and 2i+1 turns "
    "by the angle p / 10000^(2i/d), so that (1, 0) becomes (cos, sin). Given dy in x's shape, return dx.",
    hint="A rotation's transpose is a rotation, too.",
    question="Which columns of x went into column 2i of y, and what comes back along the same ways?",
    probe=Probe("dy", ("dx",), forward.probe.calls, sizes="dy: T d", unit="position"),
    solution="""
def rope_backward(dy):
    T, d = dy.shape
    i = np.arange(d // 2)
    even, odd = 2 * i, 2 * i + 1
    angles = np.arange(T)[:, None] / 10000.0 ** (2 * i / d)
    cos, sin = np.cos(angles), np.sin(angles)
    dx = np.zeros_like(dy)
    dx[:, even] = dy[:, even] * cos + dy[:, odd] * sin
    dx[:, odd] = dy[:, odd] * cos - dy[:, even] * sin
    return dx
""",
    mistakes={
        GRAD_FORWARD: [Edit("np.sin(angles)", "-np.sin(angles)")],
        GRAD_ONE_WAY: [Edit("np.sin(angles)", "0 * angles")],
        **{mistake: forward.mistakes[mistake] for mistake in (HALVES, FROM_1, EXP_NO_2, EXP_DOUBLED)},
    },
    looks=(*NUMBERS, *CALLS, turning))
