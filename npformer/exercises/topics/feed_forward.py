"""The feed-forward network: two layers for each token by itself, and the way back through them."""

from collections.abc import Callable

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Arguments, Probe, Trial, normal, run
from npformer.exercises.see import CALLS, NUMBERS, Seen, close, written
from npformer.exercises.task import Code, Draw, Edit, Mistake, Place, Posed, either
from npformer.exercises.topics.questions import drawn
from npformer.exercises.topics.shared import instead

PAPER, BACK = '"Attention Is All You Need", section 3.3', "lesson 03, sections 3.8 and 3.9"
EQUATION = Place(PAPER, "03, section 3.2, Equation 2, with a pencil")
BENDS, MASK = (Place(read, "03, section 3.10, ReLU and GELU") for read in (PAPER, BACK))
LINES = Place(BACK, "03, section 3.8, The backward pass, line by line")
SUMS = Place(BACK, "03, section 3.9, Why the gradient of a bias is a sum")

# --- what is said ------------------------------------------------------------------------------------

NO_RELU = Mistake("FFN-NO-RELU", EQUATION,
    "The output of x and the output of -x add up to twice the output of 0: the function is a straight line.",
    "This pattern appears when no activation stands between the two layers.",
    "What makes two linear layers more than one?")
RELU_BEFORE_BIAS = Mistake("FFN-RELU-BEFORE-BIAS", EQUATION, "With b_1 = 0 the outputs agree.",
    "This output matches an activation taken before b_1 is added.",
    "What is inside max(0, ·) in equation 2?")
RELU_TWICE = Mistake("FFN-RELU-TWICE", EQUATION,
    "No output is below zero, and where the right one is positive the two agree.",
    "This output matches an activation after the second layer too.",
    "How often does max stand in equation 2?")
RELU_LAST = Mistake("FFN-RELU-LAST", EQUATION,
    "No output is below zero; before that cut, the function is a straight line.",
    "This output matches an activation after the second layer, and none between the two.",
    "What makes two linear layers more than one?")
NO_B1 = Mistake("FFN-NO-B1", EQUATION, "With b_1 = 0 the outputs agree.",
    "This output does not depend on b_1.",
    "Which two numbers are added inside max(0, ·)?")
NO_B2 = Mistake("FFN-NO-B2", EQUATION, "The outputs differ by the same vector at every token.",
    "This output does not depend on b_2.",
    "What is added after the second layer?")


def bend(code: str, sees: str, cause: str) -> Mistake:
    """Another activation where equation 2 has a ReLU."""
    return Mistake(f"FFN-{code}", BENDS,
        f"Everything around the activation is right; {sees}",
        f"This output matches {cause}",
        "What does max(0, z) make of -2, -1, 0, 1, 2?")


STEP = bend("STEP", "a hidden unit is 0 or 1, or its sign alone.",
    "a step for the activation: which units are on, and not how far.")
GELU = bend("GELU", "a hidden unit bends smoothly and dips below 0.", "GELU where equation 2 has a ReLU.")
SIGMOID = bend("SIGMOID", "every hidden unit stays between 0 and 1.", "a sigmoid for the activation.")
TANH = bend("TANH", "every hidden unit stays between -1 and 1.", "tanh for the activation.")
LEAKY = bend("LEAKY", "units below 0 leak a small part of their z.", "a leaky ReLU.")
ABS = bend("ABS", "a hidden unit below 0 comes out above it.", "the absolute value |z| for the activation.")
NO_MASK = Mistake("FFN-NO-MASK", MASK, "Units that were off in the forward pass receive a gradient.",
    "This output matches a backward pass in which nothing stands for the ReLU.",
    "What is the slope of max(0, z) where z is negative?")
MASK_UPSTREAM = Mistake("FFN-MASK-UPSTREAM", MASK,
    "Which units let the gradient pass depends on the gradient itself.",
    "This pattern appears when the mask is the sign of what comes from above.",
    "Which number decided in the forward pass whether a unit was on?")
MASK_TIMES_A = Mistake("FFN-MASK-TIMES-A", MASK,
    "Units that were off are closed, and the gradient of the others grows with their activation.",
    "This pattern appears when the gradient is multiplied by the activation instead of by 0 or 1.",
    "What is the slope of max(0, z) at z = 3?")
MASK_INVERTED = Mistake("FFN-MASK-INVERTED", MASK,
    "Units that were off let the gradient pass, and those that were on do not.",
    "This output matches a mask with the comparison the other way round.",
    "Where was the unit on?")
MASK_TIMES_Z = Mistake("FFN-MASK-TIMES-Z", MASK,
    "The gradient that passes a unit grows with the unit's z, below 0 too.",
    "This pattern appears when the gradient is multiplied by z instead of by the slope, 0 or 1.",
    "What is the slope of max(0, z) at z = 3, and at z = -3?")
DB_MEAN = Mistake("FFN-DB-MEAN", SUMS, "A bias gradient is smaller by one constant factor, a number of rows.",
    "This pattern appears when rows are averaged where the chain rule adds.",
    "How often does one bias take part in the loss?")
DB_SCALAR = Mistake("FFN-DB-SCALAR", SUMS, "A bias gradient is one number.",
    "This pattern appears when a sum runs over all axes.",
    "How many numbers does the bias have?")
DB_UNSUMMED = Mistake("FFN-DB-UNSUMMED", SUMS, "A bias gradient has the shape of the layer's output.",
    "This pattern appears when nothing is summed.",
    "In how many rows is one bias used?")
DB_BATCH_ONLY = Mistake("FFN-DB-BATCH-ONLY", SUMS, "A bias gradient still has the axis of positions.",
    "This pattern appears when the sum runs over the first axis only.",
    "Over which axes is one bias shared?")
GRAD_MEAN = Mistake("FFN-GRAD-MEAN", LINES,
    "The gradients that differ are smaller by one constant factor, the same for all, a number of rows.",
    "This pattern appears when rows are averaged; any average is in the upstream gradient already.",
    "Where was the loss divided by the number of rows, and how often should that happen?")
DW_UNSUMMED = Mistake("FFN-DW-UNSUMMED", LINES, "A weight gradient still has the batch axis.",
    "This pattern appears when each sentence keeps a gradient of its own.",
    "How many copies of the weight are there?")
DB_ROW = Mistake("FFN-DB-ROW", SUMS,
    "The numbers of a bias gradient are right, and it has an axis of length 1 more than the bias, such as "
    "the shape (1, d).",
    "This pattern appears with keepdims=True, or a bias kept as a row of a matrix.",
    "Which shape has the bias itself?")
DW_TRANSPOSED = Mistake("FFN-DW-TRANSPOSED", LINES, "The numbers of dW are right, in the transposed shape.",
    "This pattern appears when the two factors of the product dW change places.",
    "Which shape has the weight itself?")
W_UNTRANSPOSED = Mistake("FFN-W-UNTRANSPOSED", LINES,
    "Where d_ff = d_model there are numbers, elsewhere the shapes do not fit.",
    "This pattern appears when a weight is used on the way back as it was on the way forward.",
    "Which shape takes d_ff numbers back to d_model?")
DW2_PREACT = Mistake("FFN-DW2-PREACT", LINES, "dW_2 has contributions from units that were off.",
    "This output matches dW_2 taken from the numbers before the ReLU.",
    "What was multiplied by W_2 in the forward pass?")
DB1_DHIDDEN = Mistake("FFN-DB1-DHIDDEN", SUMS,
    "db_1 has contributions from units that were off; dW_1 has none.",
    "This output matches db_1 taken from the gradient above the ReLU.",
    "On which side of the ReLU is b_1 added?")
RELU_AT_0 = Mistake("FFN-RELU-AT-0", MASK, "Where z is exactly 0, the gradient passes.",
    "The slope of ReLU at 0 is a choice, 0 in most libraries and here; yours is 1.",
    "Which slopes would be defensible at 0?", kind="variant")

# --- forward -----------------------------------------------------------------------------------------

SIZES = "x: batch positions d_model; W_1: d_model d_ff"
RELU = "np.maximum(z, 0)"


def bent(*ways: str) -> list[Edit]:
    """Another activation."""
    return [Edit(RELU, way) for way in ways]


def calls(*, way_back: bool = False) -> tuple[Arguments, ...]:
    """All sizes distinct, then d_ff = d_model; in each, one unit whose z is exactly 0 everywhere."""
    made: list[Arguments] = []
    for B, T, d_model, d_ff in ((2, 3, 4, 5), (4, 2, 3, 3)):
        W_1, b_1 = normal(d_model, d_ff), normal(d_ff)
        W_1[:, 1], b_1[1] = 0, 0
        x, dy = normal(B, T, d_model), normal(B, T, d_model, seed=1)
        made.append((*[dy] * way_back, x, W_1, b_1, normal(d_ff, d_model, seed=1), normal(d_model)))
    return tuple(made)


SHAPES: dict[str, Callable[[Array], Array]] = {
    "softplus, log(1 + e^z)": lambda z: np.log1p(np.exp(z)),
    "SiLU, z times its sigmoid": lambda z: z / (1 + np.exp(-z)),
    "ELU": lambda z: np.where(z > 0, z, np.expm1(np.minimum(z, 0))),
    "the square of a ReLU": lambda z: np.maximum(z, 0) ** 2,
    "min(z, 0), the other half": lambda z: np.minimum(z, 0),
    "a ReLU that stops at 1": lambda z: np.clip(z, 0, 1),
}
POINTS = np.array([-2.0, -1, 0, 1, 2])


def one_unit(trial: Trial) -> Seen | None:
    """The network is right but for what one hidden unit does to its z."""
    answers = of_one_unit(trial, POINTS)
    if answers is None:
        return None
    shapes = [name for name, f in SHAPES.items() if close(answers, f(POINTS))]
    for found, (x, W_1, b_1, W_2, b_2) in zip(trial.found, trial.calls, strict=True):
        z = x @ W_1 + b_1
        hidden = of_one_unit(trial, z)
        if hidden is None or not close(found, hidden @ W_2 + b_2):
            return None
        shapes = [name for name in shapes if close(hidden, SHAPES[name](z))]
    known = f" It is {shapes[0]}." if shapes else ""
    return Seen("Everything around the activation is right. One hidden unit makes of -2, -1, 0, 1, 2: "
        f"{written(answers)}.{known}",
        "What does max(0, z) make of these five numbers?")


def of_one_unit(trial: Trial, z: Array, *dy: Array) -> Array | None:
    """The first output of a network of one unit with weights of 1, a token for each z."""
    one, none = np.ones((1, 1)), np.zeros(1)
    outcome = run(trial.function, (*dy, z.reshape(1, -1, 1), one, none, one, none), trial.probe)
    return outcome.arrays[0].reshape(z.shape) if outcome.arrays and outcome.arrays[0].size == z.size else None


FFN = """
def ffn(x, W_1, b_1, W_2, b_2):
    z = x @ W_1 + b_1
    hidden = np.maximum(z, 0)
    y = hidden @ W_2 + b_2
    return y
"""
forward = Code("ffn.forward", "ffn", 3, EQUATION,
    task="Write equation 2: x (batch, positions, d_model), W_1 (d_model, d_ff), W_2 (d_ff, d_model). "
    "Return y in x's shape.",
    hint="Two matrix products, a maximum between them.",
    question="Which of the five arguments is used in which of the two layers?",
    probe=Probe(
        "x, W_1, b_1, W_2, b_2", ("y",), calls(), sizes=SIZES, unit="token",
        neutral={"b_1": 0.0, "b_2": 0.0},
        landmarks=instead(FFN, {
            "the hidden layer": "hidden",
            "a network whose activation acts on x, and not on the hidden units":
                "(np.maximum(x, 0) @ W_1 + b_1) @ W_2 + b_2",
            "a network whose activation is a softmax over the hidden units":
                "np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True) @ W_2 + b_2",
        }),
    ),
    solution=FFN,
    mistakes={
        NO_RELU: bent("z"),
        RELU_BEFORE_BIAS: [Edit(" + b_1", "", RELU, f"{RELU} + b_1")],
        RELU_TWICE: [Edit("return y", "return np.maximum(y, 0)")],
        RELU_LAST: [Edit(RELU, "z", "return y", "return np.maximum(y, 0)")],
        NO_B1: [Edit(" + b_1", "")],
        NO_B2: [Edit(" + b_2", "")],
        STEP: bent("1.0 * (z > 0)", "1.0 * (z >= 0)", "np.sign(z)"),
        GELU: bent(
            "z * (1 + np.vectorize(math.erf, otypes=[float])(z / 2**0.5)) / 2",
            "z * (1 + np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z**3))) / 2",
        ),
        SIGMOID: bent("1 / (1 + np.exp(-z))"),
        TANH: bent("np.tanh(z)"),
        LEAKY: bent(*(f"np.where(z > 0, z, {slope} * z)" for slope in (0.01, 0.1, 0.2, 0.3))),
        ABS: bent("np.abs(z)"),
    },
    looks=(*NUMBERS, one_unit, *CALLS))


@drawn("ffn.token")
def token(draw: Draw) -> Posed:
    """One token through the feed-forward network."""
    x, b_1, b_2 = draw.row([2, -3]), draw.row([1, -1, 2]), draw.row([-2, 1])
    W_1, W_2 = np.array([[1, 2, -1], [1, -1, 1]]), np.array([[1, 0], [2, -1], [-1, 3]])
    given = {"x": x, "W_1": W_1, "b_1": b_1, "W_2": W_2, "b_2": b_2}
    wrong = {mistake: f(*given.values()) for mistake, f in forward.slips(*forward.mistakes).items()}
    hidden = np.maximum(x @ W_1 + b_1, 0)
    return Posed(given, forward.right(*given.values()), wrong | {"CF-HIDDEN": hidden})

# --- backward ----------------------------------------------------------------------------------------

@drawn("backward.relu")
def relu(draw: Draw) -> Posed:
    """A gradient on its way through ReLU."""
    z, dy = draw.row([2, -1, 3, -4], -4, 5), draw.row([5, 2, 4, 3], 1, 5) * np.array([-1, 1, 1, 1])
    z = np.where(z == 0, 5, z)  # the slope at 0 is a choice, and no question
    return Posed({"z": z, "dy": dy}, dy * (z > 0), {
        NO_MASK: dy,
        MASK_UPSTREAM: dy * (dy > 0),
        MASK_TIMES_A: dy * np.maximum(z, 0),
        MASK_INVERTED: dy * (z < 0),
        MASK_TIMES_Z: dy * z,
        "CF-MASK-ALONE": 1 * (z > 0),
        "CF-FORWARD": np.maximum(z, 0),
        "CF-MASKED-TWICE": dy * (z > 0) * (dy > 0),
    })


@drawn("backward.bias")
def bias(draw: Draw) -> Posed:
    """The gradient of a bias from the gradients of three rows."""
    dz = np.stack([draw.row(row) for row in ([1, 2], [2, -1], [4, 3])])
    return Posed({"dz": dz}, dz.sum(axis=0), {
        DB_MEAN: dz.mean(axis=0),
        DB_SCALAR: dz.sum(),
        "CF-LAST-ROW": dz[-1],
        "CF-FIRST-ROW": dz[0],
        "CF-ROW-SUMS": dz.sum(axis=1),
        DB_UNSUMMED: dz,
        "CF-SIGN": -dz.sum(axis=0),
    })


def one_slope(trial: Trial) -> Seen | None:
    """The backward pass is right but for the slope of one hidden unit."""
    answers = slope_of_one_unit(trial, POINTS)
    if trial.output > 2 or answers is None:
        return None
    for found, (dy, x, W_1, b_1, W_2, _) in zip(trial.found, trial.calls, strict=True):
        slope = slope_of_one_unit(trial, x @ W_1 + b_1)
        if slope is None or not close(found, made_of(slope * (dy @ W_2.T), x, W_1)[trial.output]):
            return None
    return Seen(
        "Everything around the activation is right. The slope that one hidden unit has at -2, -1, 0, 1, 2: "
        f"{written(answers)}.",
        "What is the slope of max(0, z) at these five numbers: where is the unit on, where off?")


def made_of(dz: Array, x: Array, W_1: Array) -> tuple[Array, ...]:
    """dx, dW_1 and db_1."""
    return dz @ W_1.T, np.einsum("btd,btf->df", x, dz), dz.sum(axis=(0, 1))


def slope_of_one_unit(trial: Trial, z: Array) -> Array | None:
    """dx where dy is 1."""
    return of_one_unit(trial, z, np.ones((1, z.size, 1)))


GRADIENTS = "dx", "dW_1", "db_1", "dW_2", "db_2"
RETURNED, MASKED = ", ".join(GRADIENTS), "dhidden * (z > 0)"
SUM = ".sum(axis=(0, 1))"
DB_1, DB_2 = f"dz{SUM}", f"dy{SUM}"


def summed(way: str) -> list[Edit]:
    """Other sums for the two biases."""
    return either(DB_1, f"dz{way}", DB_2, f"dy{way}")


def averaged(*names: str) -> list[Edit]:
    """Some gradients divided by a number of rows."""
    counts = "len(x) * x.shape[1]", "len(x)", "x.shape[1]"
    divided = [", ".join(f"{g} / ({n})" if g in names else g for g in GRADIENTS) for n in counts]
    return [Edit(f"return {RETURNED}", f"return {way}") for way in divided]


backward = Code("ffn.backward", "backward", 5, Place("lesson 03, section 3.8", LINES.teach),
    task="Write the gradients of equation 2. dy has the shape of x. Return dx, dW_1, db_1, dW_2, db_2 "
    "in this order, each in the shape of what it belongs to.",
    hint="Compute z again, then walk back line by line.",
    question="Which line of the forward pass do you stand at when you take the product?",
    probe=Probe(
        "dy, x, W_1, b_1, W_2, b_2", GRADIENTS, calls(way_back=True), sizes=SIZES, unit="token",
        neutral={"b_1": 0.0},
    ),
    solution=f"""
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
""",
    mistakes={
        DB_SCALAR: summed(".sum()"),
        DB_BATCH_ONLY: summed(".sum(axis=0)"),
        DB_UNSUMMED: summed(""),
        DB_MEAN: [*averaged("db_1", "db_2"), *averaged("db_1"), *averaged("db_2")],
        GRAD_MEAN: [*averaged(*GRADIENTS[1:]), *averaged(*GRADIENTS)],
        DW_UNSUMMED: either("->df", "->bdf", "->fd", "->bfd"),
        DB_ROW: [*summed(f"{SUM}[None]"), *summed(".sum(axis=(0, 1), keepdims=True)")],
        DW_TRANSPOSED: either("x, dz)", "x, dz).T", "hidden, dy)", "hidden, dy).T"),
        W_UNTRANSPOSED: either("W_1.T", "W_1", "W_2.T", "W_2"),
        NO_MASK: [Edit(MASKED, "dhidden")],
        MASK_UPSTREAM: [Edit(MASKED, "dhidden * (dhidden > 0)")],
        MASK_TIMES_Z: [Edit(MASKED, "dhidden * z")],
        MASK_INVERTED: [Edit(MASKED, "dhidden * (z <= 0)")],
        MASK_TIMES_A: [Edit(MASKED, "dhidden * hidden")],
        DW2_PREACT: [Edit("hidden, dy)", "z, dy)")],
        DB1_DHIDDEN: [Edit(DB_1, f"dhidden{SUM}")],
        RELU_AT_0: [Edit(MASKED, "dhidden * (z >= 0)")],
    },
    looks=(*NUMBERS, one_slope, *CALLS))
