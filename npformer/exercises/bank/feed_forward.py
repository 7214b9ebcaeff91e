"""Exercises on the feed-forward network: two layers for each token, and their backward pass.

The docstring of the package `npformer.exercises.bank` defines the terms call, edit, intermediate result
(`landmarks`) and detector.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from npformer.backend import Array
from npformer.exercises.bank.questions import function_exercise, number_exercise
from npformer.exercises.number_detectors import are_close
from npformer.exercises.probe import Arguments, Trial, normal, run
from npformer.exercises.task import Draw, Edit, PosedQuestion, compile_function, edit_either_line
from npformer.exercises.verdict import Finding, make_finding

# --- forward -----------------------------------------------------------------------------------------

AXES = (
    "x: batch positions d_model; W_1: d_model d_ff; b_1: d_ff; W_2: d_ff d_model; b_2: d_model; "
    "y: batch positions d_model"
)
RELU = "np.maximum(z, 0)"


def bent(*ways: str) -> list[Edit]:
    """Return one edit of the solution per expression. The edit replaces ReLU by this expression."""
    return [Edit(RELU, way) for way in ways]


def calls(*, way_back: bool = False) -> tuple[Arguments, ...]:
    """Return the calls on which the checker runs every answer: backward calls if `way_back` is true.

    In the first call all sizes differ, in the second d_ff = d_model, in the third the hidden units are large,
    and in the fourth there is a single token. In every call, the hidden unit with index 1 has the
    pre-activation z = 0 for each token.
    """
    made: list[Arguments] = []
    for B, T, d_model, d_ff, scale in ((2, 3, 4, 5, 1), (4, 2, 3, 3, 1), (2, 2, 3, 4, 9), (1, 1, 2, 3, 1)):
        W_1, b_1 = scale * normal(d_model, d_ff), normal(d_ff)
        W_1[:, 1], b_1[1] = 0, 0
        x, dy = normal(B, T, d_model), normal(B, T, d_model, seed=1)
        made.append((*[dy] * way_back, x, W_1, b_1, normal(d_ff, d_model, seed=1), normal(d_model)))
    return tuple(made)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "softplus": lambda z: np.log1p(np.exp(z)),
    "silu": lambda z: z / (1 + np.exp(-z)),
    "elu": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))),
    "squared_relu": lambda z: np.maximum(z, 0) ** 2,
    "minimum": lambda z: np.minimum(z, 0),
    "relu_up_to_1": lambda z: np.clip(z, 0, 1),
    "relu_up_to_6": lambda z: np.clip(z, 0, 6),
}
POINTS, MORE = np.array([-2.0, -1, 0, 1, 2]), np.linspace(-8, 8, 65)


def one_unit(trial: Trial, around: str, kind: str) -> Finding | None:
    """Find out whether the activation function alone is wrong.

    `around` is the text of the solution, in which a call of a function `own` replaces the activation function
    (in a backward pass, its derivative). The detector defines `own` by the student's results for a single
    hidden unit. If `around` then gives the student's results for every call, nothing else is wrong.
    """
    own, function = partial(of_one_unit, trial), compile_function(around)
    function.__globals__["own"] = own
    for found, given in zip(trial.found, trial.calls, strict=True):
        if not are_close(found, run(function, given, trial.probe).arrays[trial.output]):
            return None
    for activation, f in ACTIVATIONS.items():
        if kind == "unit_values" and are_close(own(MORE), f(MORE)):
            return make_finding("unit_is", activation=activation)
    return make_finding(kind, values=own(POINTS).tolist())


def of_one_unit(trial: Trial, z: Array) -> Array:
    """Return the answer's first output for a network with one hidden unit whose pre-activations are z.

    Both weights are 1, both biases are 0, and each entry of z is one token. In a backward pass, dy is 1.
    """
    one, none = np.ones((1, 1)), np.zeros(1)
    dy = [np.ones((1, z.size, 1))] * (trial.names[0] == "dy")
    outcome = run(trial.function, (*dy, z.reshape(1, -1, 1), one, none, one, none), trial.probe)
    return outcome.arrays[0].reshape(z.shape)


FFN = """
def ffn(x, W_1, b_1, W_2, b_2):
    z = x @ W_1 + b_1
    hidden = np.maximum(z, 0)
    y = hidden @ W_2 + b_2
    return y
"""
forward = function_exercise("ffn.forward", ("y",), calls(), axes=AXES, neutral={"b_1": 0.0, "b_2": 0.0},
    landmarks={
        "hidden_layer": "hidden",
        "activation_on_x":
            "(np.maximum(x, 0) @ W_1 + b_1) @ W_2 + b_2",
        "softmax_over_hidden":
            "np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True) @ W_2 + b_2",
    },
    solution=FFN,
    mistakes={
        "FFN-NO-RELU": bent("z"),
        "FFN-RELU-BEFORE-BIAS": [Edit(" + b_1", "", RELU, f"{RELU} + b_1")],
        "FFN-RELU-TWICE": [Edit("return y", "return np.maximum(y, 0)")],
        "FFN-RELU-LAST": [Edit(RELU, "z", "return y", "return np.maximum(y, 0)")],
        "FFN-NO-B1": [Edit(" + b_1", "")],
        "FFN-NO-B2": [Edit(" + b_2", "")],
        "FFN-STEP": bent("1.0 * (z > 0)", "1.0 * (z >= 0)", "np.sign(z)"),
        "FFN-GELU": bent(
            "z * (1 + np.vectorize(math.erf, otypes=[float])(z / 2**0.5)) / 2",
            "z * (1 + np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z**3))) / 2",
        ),
        "FFN-SIGMOID": bent("1 / (1 + np.exp(-z))"),
        "FFN-TANH": bent("np.tanh(z)"),
        "FFN-LEAKY": bent(*(f"np.where(z > 0, z, {slope} * z)" for slope in (0.01, 0.1, 0.2, 0.3))),
        "FFN-ABS": bent("np.abs(z)"),
    },
    detectors=(partial(one_unit, around=Edit(RELU, "own(z)").of(FFN), kind="unit_values"),))


@number_exercise("ffn.token")
def token(draw: Draw) -> PosedQuestion:
    """Ask for the output for one token."""
    x, b_1, b_2 = draw.row([2, -3]), draw.row([1, -1, 2]), draw.row([-2, 1])
    W_1, W_2 = np.array([[1, 2, -1], [1, -1, 1]]), np.array([[1, 0], [2, -1], [-1, 3]])
    given = {"x": x, "W_1": W_1, "b_1": b_1, "W_2": W_2, "b_2": b_2}
    wrong = {code: f(*given.values()) for code, f in forward.slips().items()}
    hidden = np.maximum(x @ W_1 + b_1, 0)
    return PosedQuestion(given, forward.right(*given.values()), wrong | {"CF-HIDDEN": hidden})

# --- backward ----------------------------------------------------------------------------------------

@number_exercise("backward.relu")
def relu(draw: Draw) -> PosedQuestion:
    """Ask for the gradient before ReLU, given the gradient after ReLU."""
    z, dy = draw.row([2, -1, 3, -4], -4, 5), draw.row([5, 2, 4, 3], 1, 5) * np.array([-1, 1, 1, 1])
    z = np.where(z == 0, 5, z)  # ReLU has no derivative at 0, so the exercise avoids z = 0.
    return PosedQuestion({"z": z, "dy": dy}, dy * (z > 0), {
        "FFN-NO-MASK": dy,
        "FFN-MASK-UPSTREAM": dy * (dy > 0),
        "FFN-MASK-TIMES-A": dy * np.maximum(z, 0),
        "FFN-MASK-INVERTED": dy * (z < 0),
        "FFN-MASK-TIMES-Z": dy * z,
        "CF-MASK-ALONE": 1 * (z > 0),
        "CF-FORWARD": np.maximum(z, 0),
        "CF-MASKED-TWICE": dy * (z > 0) * (dy > 0),
    })


@number_exercise("backward.bias")
def bias(draw: Draw) -> PosedQuestion:
    """Ask for the gradient of a bias, given the gradients of three rows."""
    dz = np.stack([draw.row(row) for row in ([1, 2], [2, -1], [4, 3])])
    return PosedQuestion({"dz": dz}, dz.sum(axis=0), {
        "FFN-DB-MEAN": dz.mean(axis=0),
        "FFN-DB-SCALAR": dz.sum(),
        "CF-LAST-ROW": dz[-1],
        "CF-FIRST-ROW": dz[0],
        "CF-ROW-SUMS": dz.sum(axis=1),
        "FFN-DB-UNSUMMED": dz,
        "CF-SIGN": -dz.sum(axis=0),
    })


BACK_AXES = (
    f"dy: batch positions d_model; {AXES}; "
    "dx: batch positions d_model; dW_1: d_model d_ff; db_1: d_ff; dW_2: d_ff d_model; db_2: d_model"
)
GRADIENTS = "dx", "dW_1", "db_1", "dW_2", "db_2"
RETURNED, MASKED = ", ".join(GRADIENTS), "dhidden * (z > 0)"
SUM = ".sum(axis=(0, 1))"
DB_1, DB_2 = f"dz{SUM}", f"dy{SUM}"


def summed(way: str) -> list[Edit]:
    """Return three edits: they compute db_1, db_2, or both with this sum, such as ".sum(axis=0)"."""
    return edit_either_line(DB_1, f"dz{way}", DB_2, f"dy{way}")


def averaged(*names: str) -> list[Edit]:
    """Return edits that divide these gradients by the number of rows, of sentences, or of positions."""
    counts = "len(x) * x.shape[1]", "len(x)", "x.shape[1]"
    divided = [", ".join(f"{g} / ({n})" if g in names else g for g in GRADIENTS) for n in counts]
    return [Edit(f"return {RETURNED}", f"return {way}") for way in divided]


FFN_BACK = f"""
def ffn_backward(dy, x, W_1, b_1, W_2, b_2):
    z = x @ W_1 + b_1
    hidden = np.maximum(z, 0)
    dhidden = dy @ W_2.T
    dz = {MASKED}
    dx = dz @ W_1.T
    dW_1 = np.einsum("btd,btf->df", x, dz)
    db_1 = {DB_1}
    dW_2 = np.einsum("btf,btd->fd", hidden, dy)
    db_2 = {DB_2}
    return {RETURNED}
"""
backward = function_exercise("ffn.backward", GRADIENTS, calls(way_back=True), axes=BACK_AXES,
    neutral={"b_1": 0.0},
    solution=FFN_BACK,
    mistakes={
        "FFN-DB-SCALAR": summed(".sum()"),
        "FFN-DB-BATCH-ONLY": summed(".sum(axis=0)"),
        "FFN-DB-UNSUMMED": summed(""),
        "FFN-DB-MEAN": [*averaged("db_1", "db_2"), *averaged("db_1"), *averaged("db_2")],
        "FFN-GRAD-MEAN": [*averaged(*GRADIENTS[1:]), *averaged(*GRADIENTS)],
        "FFN-DW-UNSUMMED": edit_either_line("->df", "->bdf", "->fd", "->bfd"),
        "FFN-DB-ROW": [*summed(f"{SUM}[None]"), *summed(".sum(axis=(0, 1), keepdims=True)")],
        "FFN-DW-TRANSPOSED": edit_either_line("x, dz)", "x, dz).T", "hidden, dy)", "hidden, dy).T"),
        "FFN-W-UNTRANSPOSED": edit_either_line("W_1.T", "W_1", "W_2.T", "W_2"),
        "FFN-NO-MASK": [Edit(MASKED, "dhidden")],
        "FFN-MASK-UPSTREAM": [Edit(MASKED, "dhidden * (dhidden > 0)")],
        "FFN-MASK-TIMES-Z": [Edit(MASKED, "dhidden * z")],
        "FFN-MASK-INVERTED": [Edit(MASKED, "dhidden * (z <= 0)")],
        "FFN-MASK-TIMES-A": [Edit(MASKED, "dhidden * hidden")],
        "FFN-DW2-PREACT": [Edit("hidden, dy)", "z, dy)")],
        "FFN-DB1-DHIDDEN": [Edit(DB_1, f"dhidden{SUM}")],
        "FFN-RELU-AT-0": [
            Edit(MASKED, "dhidden * (z >= 0)"), Edit(MASKED, "dhidden * np.heaviside(z, 0.5)"),
        ],
    },
    detectors=(partial(one_unit, around=Edit("(z > 0)", "own(z)").of(FFN_BACK), kind="unit_slopes"),))
