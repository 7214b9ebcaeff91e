"""Exercises on layer norm: the mean and standard deviation of each token, and the backward pass.

The docstring of the package `npformer.exercises.bank` defines the terms call, edit, intermediate result
(`landmarks`) and direction.
"""

import numpy as np

from npformer.exercises.bank.questions import function_exercise, number_exercise
from npformer.exercises.probe import Arguments, Draws, normal
from npformer.exercises.task import Draw, Edit, PosedQuestion

# --- forward -----------------------------------------------------------------------------------------

def calls(way_back: bool) -> tuple[Arguments, ...]:
    """Return calls with a large eps, with rows of small variance, and with a constant row."""
    made: list[Arguments] = []
    for shape, eps in (((2, 3, 5), 0.1), ((3, 4, 7), 1e-5)):
        x, dy = 0.7 + normal(*shape), normal(*shape, seed=1)
        if eps < 0.1:
            spreads = [1.0, 0.1, 0.1, 2.0] if way_back else [1.0, 1e-3, 0.0, 2.0]
            x = 1 + x * np.array(spreads)[:, None]
        gamma, beta = 1 + 0.5 * normal(shape[-1]), normal(shape[-1], seed=1)
        made.append((*[dy] * way_back, x, gamma, beta, eps))
    x, dy, gamma, beta = normal(1, 2, 4), normal(1, 2, 4, seed=1), 1 + 0.5 * normal(4), normal(4, seed=1)
    x[0, 1] = 2.0  # All features of this token are equal, in a batch with a single sentence.
    made.append((*[dy] * way_back, x, gamma, beta, 1e-3))
    return tuple(made)


def draw(draws: Draws) -> Arguments:
    """Return random x, gamma and beta, and an eps that is large enough to change the result."""
    shape = draws.size(), draws.size(), draws.size(low=3)
    gamma, beta = 1 + 0.5 * draws.normal(shape[-1]), draws.normal(shape[-1])
    return 0.7 + draws.normal(*shape), gamma, beta, draws.uniform(0.01, 0.3)


def draw_back(draws: Draws) -> Arguments:
    """Return a random backward call: the gradient of the output, and the arguments of a forward call."""
    x, *rest = draw(draws)
    return draws.normal(*x.shape), x, *rest


OTHER_AXES = [
    Edit("axis=-1", f"axis={axes}") for axes in ((-2,), (-3,), (-3, -2), (-2, -1), (-3, -1), (-3, -2, -1))
]
ROOT, SQUARES = "np.sqrt(variance + eps)", ("(x - mean)", "x", "x.var(", "(x * x).mean(", "ddof=0, ", "")

FORWARD = """
def layer_norm(x, gamma, beta, eps):
    mean = x.mean(axis=-1, keepdims=True)
    variance = x.var(axis=-1, ddof=0, keepdims=True)
    x_hat = (x - mean) / np.sqrt(variance + eps)
    return gamma * x_hat + beta
"""
forward = function_exercise("layer_norm.forward",
    ("y",), calls(False), draw=draw,
    axes="x: batch positions d_model; gamma: d_model; beta: d_model; y: batch positions d_model",
    neutral={"gamma": 1.0, "beta": 0.0, "eps": 1e-12},
    landmarks={"x_hat": "x_hat"},
    invariances={"all_features": lambda x, *more: (x + 3.0, *more)},
    solution=FORWARD,
    mistakes={
        "LN-DDOF": [Edit("ddof=0", "ddof=1")],
        "LN-EPS-OUTSIDE": [Edit(ROOT, "(np.sqrt(variance) + eps)")],
        "LN-DDOF-EPS": [Edit("ddof=0", "ddof=1", ROOT, "(np.sqrt(variance) + eps)")],
        "LN-AXIS": OTHER_AXES,
        "LN-NO-MEAN": [Edit("(x - mean)", "x")],
        "LN-RMS": [Edit(*SQUARES), Edit(*SQUARES, " + beta", "")],
        "LN-NO-GAMMA": [Edit("gamma * ", "")],
        "LN-NO-BETA": [Edit(" + beta", "")],
        "LN-VAR-NOT-STD": [Edit(ROOT, "(variance + eps)"), Edit(ROOT, "variance")],
    })


@number_exercise("norm.token", decimals=3)
def token(draw: Draw) -> PosedQuestion:
    """Ask for the output for one token with eps = 0. No feature of the token equals the mean."""
    order = draw.order([0, 1, 3, 2])
    x = np.array([-3.0, -1, 1, 3])[order] + draw.integer(5, 2, 9)
    gamma = np.array([1.0, 2, 3, -1])[draw.order([2, 3, 1, 0])]
    beta = np.array([1.0, 2, -1, 3])[draw.order([0, 1, 3, 2])]
    x_hat = (x - x.mean()) / x.std()
    slips = forward.slips("LN-DDOF", "LN-NO-GAMMA", "LN-NO-BETA", "LN-VAR-NOT-STD", "LN-RMS", "LN-NO-MEAN")
    wrong = {code: f(x[None, None], gamma, beta, 0.0)[0, 0] for code, f in slips.items()}
    return PosedQuestion({"x": x, "gamma": gamma, "beta": beta}, gamma * x_hat + beta, wrong | {
        "CF-X-HAT": x_hat,
        "CF-BETA-FIRST": gamma * (x_hat + beta),
        "CF-NOT-DIVIDED-SPREAD": gamma * (x - x.mean()) + beta,
    })

# --- backward ----------------------------------------------------------------------------------------

# These edits make mistakes in the backward pass of the standard deviation. Each edit replaces the derivative
# of √(var + eps) by the derivative of a wrong standard deviation.
OWN_DDOF = ("along = ", "along = x.shape[-1] / (x.shape[-1] - 1) * ")
OWN_EPS = ("along = ", "along = std / np.sqrt(variance) * ")
OWN_BOTH = ("along = ", "along = std / np.sqrt(variance) * x.shape[-1] / (x.shape[-1] - 1) * ")
OUTSIDE = (ROOT, "np.sqrt(variance) + eps")
SUM = ".sum(axis=(0, 1))"
DGAMMA, DBETA = f"(dy * x_hat){SUM}", f"dy{SUM}"
UNSUMMED = "", ".sum(axis=0)", ".sum(axis=1)", ".sum(axis=(0, 1), keepdims=True)"


def unsummed(left: str) -> list[Edit]:
    """Return three edits: they replace the sum in dgamma, in dbeta, or in both by this text."""
    dgamma, dbeta = (DGAMMA, DGAMMA.replace(SUM, left)), (DBETA, DBETA.replace(SUM, left))
    return [Edit(*dgamma, *dbeta), Edit(*dgamma), Edit(*dbeta)]


BACKWARD = """
def layer_norm_backward(dy, x, gamma, beta, eps):
    variance = x.var(axis=-1, ddof=0, keepdims=True)
    std = np.sqrt(variance + eps)
    x_hat = (x - x.mean(axis=-1, keepdims=True)) / std
    dx_hat = dy * gamma
    mean = dx_hat.mean(axis=-1, keepdims=True)
    along = x_hat * (dx_hat * x_hat).mean(axis=-1, keepdims=True)
    dx = (dx_hat - mean - along) / std
    return dx, (dy * x_hat).sum(axis=(0, 1)), dy.sum(axis=(0, 1))
"""
backward = function_exercise("layer_norm.backward", ("dx", "dgamma", "dbeta"), calls(True), draw=draw_back,
    axes="dy: batch positions d_model; x: batch positions d_model; gamma: d_model; beta: d_model; "
        "dx: batch positions d_model; dgamma: d_model; dbeta: d_model",
    neutral={"gamma": 1.0, "eps": 1e-12},
    landmarks={"sum_of_dy_x": "(dy * x).sum(axis=(0, 1))"},
    directions={"x̂": "x_hat"},
    solution=BACKWARD,
    mistakes={
        "LN-DDOF": [
            Edit("ddof=0", "ddof=1"), Edit("ddof=0", "ddof=1", *OWN_DDOF),
        ],
        "LN-EPS-OUTSIDE": [
            Edit(*OUTSIDE), Edit(*OUTSIDE, *OWN_EPS),
        ],
        "LN-DDOF-EPS": [
            Edit("ddof=0", "ddof=1", *OUTSIDE), Edit("ddof=0", "ddof=1", *OUTSIDE, *OWN_BOTH),
        ],
        "LN-AXIS": OTHER_AXES,
        "LN-NO-GAMMA": [Edit("dy * gamma", "dy")],
        "LN-VAR-NOT-STD": [Edit(ROOT, "variance + eps")],
        "LN-DX-DIRECT": [Edit(" - mean - along", "")],
        "LN-DX-GAMMA-OUTSIDE": [Edit("dy * gamma", "dy", "dx = ", "dx = gamma * ")],
        "LN-DX-NO-MEAN": [Edit(" - mean", "")],
        "LN-DX-NO-VAR": [Edit(" - along", "")],
        "LN-DGAMMA-SHAPE": [edit for left in UNSUMMED for edit in unsummed(left)],
    })
