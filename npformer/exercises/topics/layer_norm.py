"""Layer norm: a token's own mean and spread, and the three paths back through them."""

import numpy as np

from npformer.exercises.probe import Arguments, Probe, normal
from npformer.exercises.see import CALLS, NUMBERS, exchanged
from npformer.exercises.task import Code, Draw, Edit, Mistake, Place, Posed
from npformer.exercises.topics.questions import drawn
from npformer.exercises.topics.shared import instead

PAPER = '"Layer Normalization" (Ba, Kiros and Hinton), section 3'
S4_8 = Place(PAPER, "04, section 4.8, Layer norm, forward")
S4_9 = Place("lesson 04, section 4.9", "04, section 4.9, Layer norm, backward")

# --- what is said ------------------------------------------------------------------------------------

DDOF = Mistake("LN-DDOF", S4_8,
    "Each token's mean is right; its spread is off by one constant factor, the root of d/(d-1).",
    "This pattern appears when the variance is divided by d - 1.",
    "How many numbers are averaged in the variance?")
EPS_OUTSIDE = Mistake("LN-EPS-OUTSIDE", S4_8, "Ordinary tokens nearly agree; tokens of small spread do not.",
    "This pattern appears when eps is added to the standard deviation.",
    "What stands under the root?")
DDOF_EPS = Mistake("LN-DDOF-EPS", S4_8,
    "The spread is off for ordinary tokens and more so for tokens of small spread.",
    "This pattern appears when the variance is divided by d - 1 and eps is added outside the root.",
    "What stands under the root, and what is averaged there?")
AXIS = Mistake("LN-AXIS", S4_8,
    "A token's own numbers do not have mean 0 and spread 1 before gamma and beta.",
    "This pattern appears when the statistics run over other numbers than one token's features.",
    "Whose mean is taken: that of one token, of one feature, or of many tokens together?")
NO_MEAN = Mistake("LN-NO-MEAN", S4_8,
    "The spread of each token is right; its mean is not the one that beta sets.",
    "This output matches a layer norm in which the mean is not subtracted.",
    "What is subtracted from x before it is divided?")
RMS = Mistake("LN-RMS", S4_8,
    "With gamma = 1 and beta = 0 the mean of a token is not 0, and the mean of its squares is 1.",
    "This output matches RMS norm, which takes no mean off.",
    "What does layer norm subtract before it divides?")
NO_GAMMA = Mistake("LN-NO-GAMMA", S4_8, "The answer is the same whatever gamma is.",
    "This output does not depend on gamma.",
    "What multiplies the normalised number?")
NO_BETA = Mistake("LN-NO-BETA", S4_8, "The output is off by the same vector at every token.",
    "This output does not depend on beta.",
    "What is added last?")
VAR_NOT_STD = Mistake("LN-VAR-NOT-STD", S4_8,
    "Tokens of large spread come out too small and those of small spread too large.",
    "This pattern appears when the variance divides.",
    "In which unit is a variance, if x is in metres?")
DX_DIRECT = Mistake("LN-DX-DIRECT", S4_9,
    "A constant added to x would change the output, if dx were right: its rows do not sum to 0.",
    "This output matches a dx that treats mean and spread as constants.",
    "Along how many paths does one x reach the output?")
DX_GAMMA_OUTSIDE = Mistake("LN-DX-GAMMA-OUTSIDE", S4_9, "With gamma = 1 dx would agree.",
    "This output matches gamma multiplied after the two means are taken.",
    "Which gradient arrives at the normalised numbers?")
DX_NO_MEAN = Mistake("LN-DX-NO-MEAN", S4_9, "The rows of dx do not sum to 0.",
    "This output matches a dx without the path through the mean.",
    "What happens to the output when all of a row grows by 1?")
DX_NO_VAR = Mistake("LN-DX-NO-VAR", S4_9,
    "The rows of dx sum to 0, and scaling a row still changes the output to first order.",
    "This output matches a dx without the path through the spread.",
    "What happens to the output when a row is doubled?")
DGAMMA_SHAPE = Mistake("LN-DGAMMA-SHAPE", S4_9, "A parameter's gradient is not of the parameter's shape.",
    "This pattern appears when dgamma or dbeta is not summed over all tokens.",
    "How many gammas are there?")

# --- forward -----------------------------------------------------------------------------------------

def calls(way_back: bool) -> tuple[Arguments, ...]:
    """A large eps; then rows of very small spread, and forward a constant one."""
    made: list[Arguments] = []
    for shape, eps in (((2, 3, 5), 0.1), ((3, 4, 7), 1e-5)):
        x, dy = 0.7 + normal(*shape), normal(*shape, seed=1)
        if eps < 0.1:
            spreads = [1.0, 0.1, 0.1, 2.0] if way_back else [1.0, 1e-3, 0.0, 2.0]
            x = 1 + x * np.array(spreads)[:, None]
        gamma, beta = 1 + 0.5 * normal(shape[-1]), normal(shape[-1], seed=1)
        made.append((*[dy] * way_back, x, gamma, beta, eps))
    return tuple(made)


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
forward = Code("layer_norm.forward", "norm", 3, S4_8,
    task="Write layer norm for x (batch, positions, d_model), with gamma and beta (d_model,), eps "
    "added to the variance. Return y in x's shape.",
    hint="Everything happens along the last axis.",
    question="Which line takes the mean off, which sets the spread, and over which axis?",
    probe=Probe(
        "x, gamma, beta, eps", ("y",), calls(False), sizes="x: batch positions d_model", unit="token",
        neutral={"gamma": 1.0, "beta": 0.0, "eps": 1e-12},
        landmarks=instead(FORWARD, {"x̂, before gamma and beta": "x_hat"}),
        cancels={"the same number added to all features of x": lambda x, *more: (x + 3.0, *more)},
    ),
    solution=FORWARD,
    mistakes={
        DDOF: [Edit("ddof=0", "ddof=1")],
        EPS_OUTSIDE: [Edit(ROOT, "(np.sqrt(variance) + eps)")],
        DDOF_EPS: [Edit("ddof=0", "ddof=1", ROOT, "(np.sqrt(variance) + eps)")],
        AXIS: OTHER_AXES,
        NO_MEAN: [Edit("(x - mean)", "x")],
        RMS: [Edit(*SQUARES), Edit(*SQUARES, " + beta", "")],
        NO_GAMMA: [Edit("gamma * ", "")],
        NO_BETA: [Edit(" + beta", "")],
        VAR_NOT_STD: [Edit(ROOT, "(variance + eps)"), Edit(ROOT, "variance")],
    },
    looks=(*NUMBERS, exchanged, *CALLS))


@drawn("norm.token", decimals=3)
def token(draw: Draw) -> Posed:
    """One token through layer norm, with eps = 0: no feature of it stands at the mean."""
    order = draw.order([0, 1, 3, 2])
    x = np.array([-3.0, -1, 1, 3])[order] + draw.integer(5, 2, 9)
    gamma = np.array([1.0, 2, 3, -1])[draw.order([2, 3, 1, 0])]
    beta = np.array([1.0, 2, -1, 3])[draw.order([0, 1, 3, 2])]
    x_hat = (x - x.mean()) / x.std()
    slips = forward.slips(DDOF, NO_GAMMA, NO_BETA, VAR_NOT_STD, RMS, NO_MEAN)
    wrong = {mistake: f(x[None, None], gamma, beta, 0.0)[0, 0] for mistake, f in slips.items()}
    return Posed({"x": x, "gamma": gamma, "beta": beta}, gamma * x_hat + beta, wrong | {
        "CF-X-HAT": x_hat,
        "CF-BETA-FIRST": gamma * (x_hat + beta),
        "CF-NOT-DIVIDED-SPREAD": gamma * (x - x.mean()) + beta,
    })

# --- backward ----------------------------------------------------------------------------------------

# their own derivatives, not those of √(var + eps)
OWN_DDOF = ("along = ", "along = x.shape[-1] / (x.shape[-1] - 1) * ")
OWN_EPS = ("along = ", "along = std / np.sqrt(variance) * ")
OWN_BOTH = ("along = ", "along = std / np.sqrt(variance) * x.shape[-1] / (x.shape[-1] - 1) * ")
OUTSIDE = (ROOT, "np.sqrt(variance) + eps")
SUM = ".sum(axis=(0, 1))"
DGAMMA, DBETA = f"(dy * x_hat){SUM}", f"dy{SUM}"
UNSUMMED = "", ".sum(axis=0)", ".sum(axis=1)", ".sum(axis=(0, 1), keepdims=True)"


def unsummed(left: str) -> list[Edit]:
    """Another sum for dgamma and dbeta, or for one of them."""
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
backward = Code("layer_norm.backward", "backward", 5, S4_9,
    task="Write the gradients of layer norm. Return dx, dgamma, dbeta in this order, each in the shape "
    "of what it belongs to.",
    hint="One x reaches the output directly, through the mean and through the spread.",
    question="Along which paths does one x reach the output?",
    probe=Probe(
        "dy, x, gamma, beta, eps", ("dx", "dgamma", "dbeta"), calls(True),
        sizes="x: batch positions d_model", unit="token",
        neutral={"gamma": 1.0, "eps": 1e-12},
        landmarks=instead(BACKWARD, {
            "the sum of dy · x, where x is not normalised": "(dy * x).sum(axis=(0, 1))",
        }),
        directions=instead(BACKWARD, {"x̂": "x_hat"}),
    ),
    solution=BACKWARD,
    mistakes={
        DDOF.seen_as("dgamma has the right proportions and is a little too small."): [
            Edit("ddof=0", "ddof=1"), Edit("ddof=0", "ddof=1", *OWN_DDOF),
        ],
        EPS_OUTSIDE.seen_as("The gradients are off most where a token's spread is small."): [
            Edit(*OUTSIDE), Edit(*OUTSIDE, *OWN_EPS),
        ],
        DDOF_EPS.seen_as("The gradients are off for every token, most where its spread is small."): [
            Edit("ddof=0", "ddof=1", *OUTSIDE), Edit("ddof=0", "ddof=1", *OUTSIDE, *OWN_BOTH),
        ],
        AXIS.seen_as(
            "The rows of dx do not sum to 0: a token's gradient depends on other tokens."
        ): OTHER_AXES,
        NO_GAMMA.seen_as("dx is the same whatever gamma is."): [Edit("dy * gamma", "dy")],
        VAR_NOT_STD.seen_as(
            "Tokens of large spread get gradients that are too small, those of small spread too large."
        ): [Edit(ROOT, "variance + eps")],
        DX_DIRECT: [Edit(" - mean - along", "")],
        DX_GAMMA_OUTSIDE: [Edit("dy * gamma", "dy", "dx = ", "dx = gamma * ")],
        DX_NO_MEAN: [Edit(" - mean", "")],
        DX_NO_VAR: [Edit(" - along", "")],
        DGAMMA_SHAPE: [edit for left in UNSUMMED for edit in unsummed(left)],
    })
