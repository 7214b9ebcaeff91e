"""A block: two stations, each with a path around it, and a norm."""

from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Arguments, Function, Probe, Trial, normal
from npformer.exercises.see import CALLS, NUMBERS, Seen, close
from npformer.exercises.task import Code, Edit, Mistake, Place, either
from npformer.layer_norm import LayerNormParams, layer_norm_backward, layer_norm_forward

CONVEYOR = Place('"Attention Is All You Need", section 3.1', "05, section 5.1, The conveyor")
NORMS = Place(CONVEYOR.read, "05, section 5.2, Post-norm or pre-norm?")
S5_4 = Place("lesson 05, section 5.4", "05, section 5.4, The whole backward pass on one slide")

# --- what is said ------------------------------------------------------------------------------------

PRE_FOR_POST = Mistake("BLOCK-PRE-FOR-POST", NORMS,
    "The norms stand before the layers, and the output is not normalised.",
    "This output matches pre-norm, which many later models use.",
    "Where does the paper's Add & Norm stand?")
RESIDUAL_NORMED = Mistake("BLOCK-RESIDUAL-NORMED", NORMS,
    "Each layer sees normalised numbers, and so does the path around it.",
    "This pattern appears when the residual is taken from the normalised x.",
    "What does the path around a layer carry?")
NO_RESIDUAL = Mistake("BLOCK-NO-RESIDUAL", CONVEYOR, "A layer's output goes into the norm alone.",
    "This output matches a block in which a residual is missing: what went into a layer is not added to what "
    "comes out.",
    "What is added to a layer's output before the norm?")
RESIDUAL_X = Mistake("BLOCK-RESIDUAL-X", CONVEYOR, "The first station is right; the second adds x itself.",
    "This output matches a second residual that is taken from x, where the station's own input is wanted.",
    "What went into ffn, and is it added again?")
NORMS_EXCHANGED = Mistake("BLOCK-NORMS-EXCHANGED", CONVEYOR,
    "Both stations are there; each ends in the other one's norm.",
    "This output matches norm_1 and norm_2 exchanged.",
    "Which norm closes the attention's station?")
ONE_NORM_TWICE = Mistake("BLOCK-ONE-NORM-TWICE", CONVEYOR,
    "Both stations are there, and end in one and the same norm.",
    "This output matches one of norm_1 and norm_2 used twice.",
    "Which norm closes each of the two stations?")
NO_NORM = Mistake("BLOCK-NO-NORM", NORMS, "A station ends in its sum, without its norm.",
    "This output matches a block in which a norm is missing.",
    "How many norms has an encoder block?")
NORM_INSIDE = Mistake("BLOCK-NORM-INSIDE", NORMS, "The norms act on what the layers give, before the sum.",
    "This output matches x + LayerNorm(Sublayer(x)).",
    "Is the sum taken inside the norm or outside?")
BACK_PAST_NORM = Mistake("BLOCK-BACK-PAST-NORM", S5_4,
    "What is added to the gradient of a layer has not come through the norm.",
    "This output matches a residual whose gradient is taken before the norm's way back.",
    "At which point of the way forward do the two summands meet, before the norm or after it?")
BACK_FORWARD = Mistake("BLOCK-BACK-FORWARD", S5_4, "The station of attend comes first.",
    "This output matches the ways back in the order of the way forward.",
    "Which layer did its work last, and where does its way back stand?")

# --- what is asked -----------------------------------------------------------------------------------

H, Y = "norm_1(x + attend(x))", "norm_2(h + ffn(h))"


def call(d: int, *, way_back: bool = False) -> Arguments:
    """x and four layers to put together: a mixing of the rows, a norm, a layer for each row, a norm.

    Or dy and these layers' ways back, at the numbers of that call.
    """
    x, mix, W = normal(3, d), normal(3, 3), normal(d, d)
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
        layer.__name__ = layer.__qualname__ = name  # an error of a call names it
    return normal(3, d, seed=1) if way_back else x, *layers.values()


def stations(trial: Trial) -> Seen | None:
    """Which of the four functions are called, in which order, and which first gets another argument."""
    names = trial.names[1:]
    student, right = (layers_called(f, trial.calls[0], names) for f in (trial.function, trial.correct))
    order = [name for name, _ in student]
    missing = [name for name in names if name not in order]
    if missing:
        be = "is" if len(missing) == 1 else "are"
        return Seen(f"{' and '.join(missing)} {be} never called.", "Which stations are there in a block?")
    if order != [name for name, _ in right]:
        return Seen(f"The calls come in this order: {', '.join(order)}.",
            "Which of them comes first in the paper's block, and how often is each called?")
    for (name, given), (_, wanted) in zip(student, right, strict=True):
        if not close(given, wanted):
            return Seen(
                f"The order of the calls is right. {name} is the first that gets another array than in the "
                "paper's block: look at what is added (the residual) or subtracted before it.",
                f"What goes into {name}?")
    return Seen("All four calls get the right arrays; {it} differs after the last of them: "
        "something is added or changed once more.",
        f"What is done after {order[-1]}?")


def layers_called(function: Function, given: Arguments, names: list[str]) -> list[tuple[str, Array]]:
    """The calls of one block's layers in their order, each by its name and its argument."""
    made: list[tuple[str, Array]] = []

    def watched(name: str, f: Function) -> Function:
        def layer(x: Array) -> Any:
            made.append((name, np.array(x, float)))
            return f(x)

        return layer

    function(given[0].copy(), *(watched(name, f) for name, f in zip(names, given[1:], strict=True)))
    return made


forward = Code("block.forward", "block", 3, CONVEYOR,
    task="Put a block of the paper together. attend, norm_1, ffn and norm_2 are functions of one "
    "array. Return y.",
    hint="Two stations, each LayerNorm(x + Sublayer(x)).",
    question="What is done last at each station?",
    probe=Probe("x, attend, norm_1, ffn, norm_2", ("y",), (call(4), call(6))),
    solution=f"""
def block(x, attend, norm_1, ffn, norm_2):
    h = {H}
    y = {Y}
    return y
""",
    mistakes={
        PRE_FOR_POST: [Edit(H, "x + attend(norm_1(x))", Y, "h + ffn(norm_2(h))")],
        RESIDUAL_NORMED: [Edit(H, "norm_1(x) + attend(norm_1(x))", Y, "norm_2(h) + ffn(norm_2(h))")],
        NO_RESIDUAL: either("x + attend", "attend", "h + ffn", "ffn"),
        RESIDUAL_X: [Edit("h + ffn", "x + ffn")],
        NORMS_EXCHANGED: [Edit("h = norm_1", "h = norm_2", "y = norm_2", "y = norm_1")],
        ONE_NORM_TWICE: [Edit("norm_2(h", "norm_1(h"), Edit("norm_1(x", "norm_2(x")],
        NO_NORM: either("norm_1(x", "(x", "norm_2(h", "(h"),
        NORM_INSIDE: [Edit(H, "x + norm_1(attend(x))", Y, "h + norm_2(ffn(h))")],
    },
    looks=(*NUMBERS, stations, *CALLS))

backward = Code("block.backward", "backward", 4, S5_4,
    task="Walk back through a block of the paper, h = norm_1(x + attend(x)), y = norm_2(h + ffn(h)). "
    "attend_back, norm_1_back, ffn_back and norm_2_back are functions of one array: each takes the gradient "
    "of its layer's output and gives that of its input. Given dy, return dx.",
    hint="The last line first; and what went two ways comes back as a sum.",
    question="Where did one array go two ways, and what comes back along each of them?",
    probe=Probe(
        "dy, attend_back, norm_1_back, ffn_back, norm_2_back", ("dx",),
        (call(4, way_back=True), call(6, way_back=True)),
    ),
    solution="""
def block_backward(dy, attend_back, norm_1_back, ffn_back, norm_2_back):
    dt = norm_2_back(dy)
    dh = dt + ffn_back(dt)
    ds = norm_1_back(dh)
    dx = ds + attend_back(ds)
    return dx
""",
    mistakes={
        NO_RESIDUAL.seen_as("Of two ways back, that around a layer is missing."): either(
            "dt + ffn", "ffn", "ds + attend", "attend"
        ),
        BACK_PAST_NORM: either("dt + ffn", "dy + ffn", "ds + attend", "dh + attend"),
        BACK_FORWARD: [
            Edit("norm_2_back(dy)", "dy + attend_back(dy)", "dt + ffn_back(dt)", "norm_1_back(dt)",
                "norm_1_back(dh)", "dh + ffn_back(dh)", "ds + attend_back(ds)", "norm_2_back(ds)"),
            Edit("norm_2_back(dy)", "norm_1_back(dy)", "ffn_back(dt)", "attend_back(dt)",
                "norm_1_back(dh)", "norm_2_back(dh)", "attend_back(ds)", "ffn_back(ds)"),
        ],
        PRE_FOR_POST.seen_as("Each layer's way back comes before its norm's, and the sum stands outside."): [
            Edit("norm_2_back(dy)", "dy", "ffn_back(dt)", "norm_2_back(ffn_back(dt))",
                "norm_1_back(dh)", "dh", "attend_back(ds)", "norm_1_back(attend_back(ds))"),
        ],
        NORMS_EXCHANGED.seen_as("Both stations are there; each begins with the other one's norm."): [
            Edit("dt = norm_2_back", "dt = norm_1_back", "ds = norm_1_back", "ds = norm_2_back")
        ],
        NO_NORM.seen_as("A gradient reaches a layer without having come through its norm."): either(
            "norm_2_back(dy)", "dy", "norm_1_back(dh)", "dh"
        ),
    },
    looks=(*NUMBERS, stations, *CALLS))
