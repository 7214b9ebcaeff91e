"""Exercises on RoPE: each pair of columns is rotated by an angle that grows with the position.

The docstring of the package `npformer.exercises.bank` defines the terms call, edit and detector.
"""

import numpy as np

from npformer.exercises.bank.questions import function_exercise
from npformer.exercises.call_detectors import DETECTORS
from npformer.exercises.number_detectors import are_close
from npformer.exercises.probe import Arguments, Draws, Trial, normal
from npformer.exercises.task import Edit
from npformer.exercises.verdict import Finding, make_finding

# --- the calls, and a detector -----------------------------------------------------------------------


def turning(trial: Trial) -> Finding | None:
    """Find out whether each pair of columns is rotated, and by which angle at position 1.

    The detector tries the vectors (1, 0) and (0, 1) at every position. A rotation turns both vectors in the
    same direction, and a reflection turns them in opposite directions.
    """
    x, y = trial.calls[0][0], trial.found[0]
    pairs = x.shape[1] // 2
    first = trial.both((np.tile([1.0, 0.0], (len(x), pairs)),))
    second = trial.both((np.tile([0.0, 1.0], (len(x), pairs)),))
    if first is None or second is None or {first[0].shape, second[0].shape, y.shape} != {x.shape}:
        return None
    if not are_close(*(np.hypot(a[:, 0::2], a[:, 1::2]) for a in (y, x))):
        return make_finding("pair_length_changes")
    cos, sin = first[0][:, 0::2], first[0][:, 1::2]
    if not are_close(second[0], np.stack([-sin, cos], axis=-1).reshape(x.shape)):
        return make_finding("pairs_reflected")
    angles = np.arctan2(sin, cos)
    if np.abs(angles[0]).max() > 1e-6:
        return make_finding("first_position_turns", angles=angles[0].tolist())
    return make_finding("pair_angles", angles=angles[1].tolist())


SIZES = (5, 6), (3, 8), (4, 4), (1, 2), (3, 2), (200, 8)  # Small errors in the angles show at late positions.
CALLS = tuple((normal(*size),) for size in SIZES)


def draw(draws: Draws) -> Arguments:
    """Return a call with a random x that has an even number of columns."""
    T = draws.size(low=3)
    return (draws.normal(T, draws.size(low=4, high=12, multiple_of=2)),)


forward = function_exercise("rope.forward", ("y",), CALLS,
    draw=draw, axes="x: T d; y: T d",
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
    detectors=(*DETECTORS, turning))


backward = function_exercise("rope.backward",
    ("dx",), CALLS,
    draw=draw, axes="dy: T d; dx: T d",
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
    detectors=(*DETECTORS, turning))
