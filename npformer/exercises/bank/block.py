"""Exercises on an encoder block: two sub-layers, each with a residual connection and a norm.

The docstring of the package `npformer.exercises.bank` defines the terms call, edit and detector.
"""

from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises.bank.questions import function_exercise
from npformer.exercises.number_detectors import are_close
from npformer.exercises.probe import Arguments, Draws, Function, Trial, normal
from npformer.exercises.task import Edit, edit_either_line
from npformer.exercises.verdict import Finding, make_finding
from npformer.layer_norm import LayerNormParams, layer_norm_backward, layer_norm_forward

# --- the calls, and a detector -----------------------------------------------------------------------

H, Y = "norm_1(x + attend(x))", "norm_2(h + ffn(h))"


def call(d: int, T: int = 3, *, way_back: bool = False) -> Arguments:
    """Return x and the four layers of a block as functions: attention, a norm, a feed-forward layer, a norm.

    The attention layer mixes the rows with fixed weights. If `way_back` is true, return dy and the backward
    functions of the four layers instead.
    """
    x, mix, W = normal(T, d), normal(T, T), normal(d, d)
    norms = [LayerNormParams(1 + 0.5 * normal(d), normal(d, seed=n)) for n in (1, 2)]
    h, cache_1 = layer_norm_forward(x + mix @ x, norms[0])
    hidden = np.tanh(h @ W)
    cache_2 = layer_norm_forward(h + hidden, norms[1])[1]
    forth: dict[str, Function] = {
        "attend": lambda x: mix @ x,
        "norm_1": lambda x: layer_norm_forward(x, norms[0])[0],
        "ffn": lambda x: np.tanh(x @ W),
        "norm_2": lambda x: layer_norm_forward(x, norms[1])[0],
    }
    back: dict[str, Function] = {
        "attend_back": lambda dy: mix.T @ dy,
        "norm_1_back": lambda dy: layer_norm_backward(dy, cache_1)[0],
        "ffn_back": lambda dy: dy * (1 - hidden**2) @ W.T,
        "norm_2_back": lambda dy: layer_norm_backward(dy, cache_2)[0],
    }
    layers = back if way_back else forth
    for name, layer in layers.items():
        layer.__name__ = layer.__qualname__ = name  # The student sees this name in error messages.
    return normal(T, d, seed=1) if way_back else x, *layers.values()


def draw(draws: Draws) -> Arguments:
    """Return a forward call of random size."""
    return call(draws.size(low=3), draws.size())


def draw_back(draws: Draws) -> Arguments:
    """Return a backward call of random size."""
    return call(draws.size(low=3), draws.size(), way_back=True)


def stations(trial: Trial) -> Finding | None:
    """Detect a layer that is not called, layers in the wrong order, or a layer that gets a wrong argument."""
    names = trial.names[1:]
    student, right = (layers_called(f, trial.calls[0], names) for f in (trial.function, trial.correct))
    order = tuple(name for name, _ in student)
    missing = tuple(name for name in names if name not in order)
    if missing:
        return make_finding("calls_missing", names=missing)
    if order != tuple(name for name, _ in right):
        return make_finding("calls_in_order", names=order)
    for (name, given), (_, wanted) in zip(student, right, strict=True):
        if not are_close(given, wanted):
            return make_finding("call_gets_other_array", name=name)
    return make_finding("differs_after_last_call", name=order[-1])


def layers_called(function: Function, given: Arguments, names: list[str]) -> list[tuple[str, Array]]:
    """Call the function once, and return the name and the argument of every layer that the function calls."""
    made: list[tuple[str, Array]] = []

    def watched(name: str, f: Function) -> Function:
        def layer(x: Array) -> Any:
            made.append((name, np.array(x, float)))
            return f(x)

        return layer

    function(given[0].copy(), *(watched(name, f) for name, f in zip(names, given[1:], strict=True)))
    return made


forward = function_exercise("block.forward", ("y",), (call(4), call(6), call(3, 3)), draw=draw,
    axes="x: T d_model; y: T d_model",
    solution=f"""
def block(x, attend, norm_1, ffn, norm_2):
    h = {H}
    y = {Y}
    return y
""",
    mistakes={
        "BLOCK-PRE-FOR-POST": [Edit(H, "x + attend(norm_1(x))", Y, "h + ffn(norm_2(h))")],
        "BLOCK-RESIDUAL-NORMED": [Edit(H, "norm_1(x) + attend(norm_1(x))", Y, "norm_2(h) + ffn(norm_2(h))")],
        "BLOCK-NO-RESIDUAL": edit_either_line("x + attend", "attend", "h + ffn", "ffn"),
        "BLOCK-RESIDUAL-X": [Edit("h + ffn", "x + ffn")],
        "BLOCK-NORMS-EXCHANGED": [Edit("h = norm_1", "h = norm_2", "y = norm_2", "y = norm_1")],
        "BLOCK-ONE-NORM-TWICE": [Edit("norm_2(h", "norm_1(h"), Edit("norm_1(x", "norm_2(x")],
        "BLOCK-NO-NORM": edit_either_line("norm_1(x", "(x", "norm_2(h", "(h"),
        "BLOCK-NORM-INSIDE": [Edit(H, "x + norm_1(attend(x))", Y, "h + norm_2(ffn(h))")],
    },
    detectors=(stations,),
    ours=None)

backward = function_exercise("block.backward", ("dx",),
    (call(4, way_back=True), call(6, way_back=True), call(3, 3, way_back=True)), draw=draw_back,
    axes="dy: T d_model; dx: T d_model",
    solution="""
def block_backward(dy, attend_back, norm_1_back, ffn_back, norm_2_back):
    dt = norm_2_back(dy)
    dh = dt + ffn_back(dt)
    ds = norm_1_back(dh)
    dx = ds + attend_back(ds)
    return dx
""",
    mistakes={
        "BLOCK-NO-RESIDUAL": edit_either_line(
            "dt + ffn", "ffn", "ds + attend", "attend"
        ),
        "BLOCK-BACK-PAST-NORM": edit_either_line("dt + ffn", "dy + ffn", "ds + attend", "dh + attend"),
        "BLOCK-BACK-FORWARD": [
            Edit("norm_2_back(dy)", "dy + attend_back(dy)", "dt + ffn_back(dt)", "norm_1_back(dt)",
                "norm_1_back(dh)", "dh + ffn_back(dh)", "ds + attend_back(ds)", "norm_2_back(ds)"),
            Edit("norm_2_back(dy)", "norm_1_back(dy)", "ffn_back(dt)", "attend_back(dt)",
                "norm_1_back(dh)", "norm_2_back(dh)", "attend_back(ds)", "ffn_back(ds)"),
        ],
        "BLOCK-PRE-FOR-POST": [
            Edit("norm_2_back(dy)", "dy", "ffn_back(dt)", "norm_2_back(ffn_back(dt))",
                "norm_1_back(dh)", "dh", "attend_back(ds)", "norm_1_back(attend_back(ds))"),
        ],
        "BLOCK-NORMS-EXCHANGED": [
            Edit("dt = norm_2_back", "dt = norm_1_back", "ds = norm_1_back", "ds = norm_2_back")
        ],
        "BLOCK-NO-NORM": edit_either_line(
            "norm_2_back(dy)", "dy", "norm_1_back(dh)", "dh"
        ),
    },
    detectors=(stations,),
    ours=None)
