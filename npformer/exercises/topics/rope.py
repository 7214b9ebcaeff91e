"""RoPE: pairs of columns that turn with their position."""

import numpy as np

from npformer.exercises.probe import Trial, normal
from npformer.exercises.see import CALLS, Seen, close, written
from npformer.exercises.task import Edit
from npformer.exercises.topics.questions import coded

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


forward = coded("rope.forward", ("y",), ((normal(5, 6),), (normal(3, 8),)), sizes="x: T d", unit="position",
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
        "ROPE-SIGN": [Edit("np.sin(angles)", "np.sin(-angles)")],
        "ROPE-HALVES": [Edit("2 * i, 2 * i + 1", "i, i + d // 2")],
        "ROPE-FROM-1": [Edit("np.arange(T)", "np.arange(1, T + 1)")],
        "ROPE-EXP-NO-2": [Edit("2 * i / d", "i / d")],
        "ROPE-EXP-DOUBLED": [Edit("2 * i / d", "4 * i / d")],
    },
    looks=(*CALLS, turning))


backward = coded("rope.backward", ("dx",), forward.probe.calls, sizes="dy: T d", unit="position",
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
        "ROPE-GRAD-FORWARD": [Edit("np.sin(angles)", "-np.sin(angles)")],
        "ROPE-GRAD-ONE-WAY": [Edit("np.sin(angles)", "0 * angles")],
        **forward.edits("ROPE-HALVES", "ROPE-FROM-1", "ROPE-EXP-NO-2", "ROPE-EXP-DOUBLED"),
    },
    looks=(*CALLS, turning))
