"""Cross-entropy: how likely a model found the right class, row by row; and label smoothing."""

import numpy as np

from npformer.exercises.probe import Arguments, Probe, Trial, normal
from npformer.exercises.see import CALLS, NUMBERS, Seen, close
from npformer.exercises.task import Code, Draw, Edit, Mistake, Place, Posed
from npformer.exercises.topics.questions import drawn
from npformer.exercises.topics.shared import instead
from npformer.exercises.topics.softmax import GLOBAL_MAX, LEVELS, OVERFLOW, large

PAPER = '"Attention Is All You Need", section {}'
FORCING = Place("lesson 07, section 7.2", "07, section 7.2, Teacher forcing")
BACK = Place("lesson 07, section 7.3, and lesson 04, section 4.4", "07, section 7.3, The model")
SMOOTHING = Place("lesson 07, section 7.10", "07, section 7.10, Label smoothing: how sure may a model be?")

# --- what is said ------------------------------------------------------------------------------------

SIGN = Mistake("CE-SIGN", FORCING, "The size is right and the sign is the opposite.",
    "This output matches a loss without its minus.",
    "Which sign has the log of a probability?")
DIVIDED_V = Mistake("CE-DIVIDED-V", FORCING,
    "The answer is smaller by one constant factor, V, the number of classes.",
    "This pattern appears when a mean runs over the classes too.",
    "Over how many numbers does the mean run?")
DOUBLE_SOFTMAX = Mistake("CE-DOUBLE-SOFTMAX", FORCING,
    "Even the best possible logits would keep the loss away from 0.",
    "This pattern appears when a softmax is taken of something that is a softmax already.",
    "What does the loss expect: logits or probabilities?")
SUM = Mistake("CE-SUM", FORCING, "The answer is larger by one constant factor, the number of rows.",
    "This output matches a sum over the rows where a mean is asked for.",
    "Is it a sum or a mean, and of how many numbers?")
LOG_2 = Mistake("CE-LOG-2", FORCING, "The answer is off by one constant factor, 1/log 2.",
    "This output matches a logarithm of base 2: the loss in bits.",
    "Which base has the logarithm of the loss?")
UNREDUCED = Mistake("CE-UNREDUCED", FORCING, "One number for each row came back, and their mean is right.",
    "This output matches losses of which no mean is taken yet.",
    "How many numbers is a loss?")
LOG_OF_0 = Mistake("CE-LOG-OF-0", FORCING,
    "Only where a row holds 1000 and -1000, and the small one is the right class, the loss is not right.",
    "This pattern appears when a logarithm is taken of a probability that has been rounded to 0.",
    "What is the logarithm of a softmax, written with the logits and one log only?",
    kind="note", finite=("There p is held above a small number before its logarithm is taken.", ""))
GRAD_NO_TARGET = Mistake("CE-GRAD-NO-TARGET", BACK,
    "Each row has the right numbers but for one: at the right class the gradient does not fall below 0.",
    "This output matches the probabilities alone, from which nothing is taken at the right class.",
    "Which way should the right class's logit go, and what says so in the gradient?")
GRAD_TARGET_ONLY = Mistake("CE-GRAD-TARGET-ONLY", BACK,
    "At the right class of each row the gradient is right; at the other classes it is 0.",
    "This pattern appears when only the right class's logit is followed into the loss.",
    "If the logit of another class grows, what happens to the right class's probability?")
GRAD_COLUMNS = Mistake("CE-GRAD-COLUMNS", BACK,
    "A column that is no row's right class is right; from the other columns something is taken in every row.",
    "This pattern appears when something is taken from whole columns, as p[:, targets] does.",
    "Which numbers does p[:, targets] mean, and how many are the right classes of N rows?")
GRAD_OF_P = Mistake("CE-GRAD-OF-P", BACK,
    "The rows of the gradient do not sum to 0: only the right class has a number, below -1/N.",
    "This output matches the gradient of the probabilities, in which the way back ends.",
    "What stands between the logits and the probabilities, and what does it send back?")
IGNORED = Mistake("LS-IGNORED", SMOOTHING, "This is the loss without smoothing.",
    "This output does not depend on epsilon.",
    "Where does epsilon enter?")
NOT_DIVIDED = Mistake("LS-NOT-DIVIDED", SMOOTHING,
    "With epsilon = 0 the answer agrees; the smoothed part is larger by V, the number of classes.",
    "This pattern appears when each class gets epsilon and not its V-th part.",
    "What do the V smoothed targets sum to?")
OTHERS_ONLY = Mistake("LS-OTHERS-ONLY", SMOOTHING,
    "With epsilon = 0 the answer agrees; epsilon is shared among the other classes.",
    "This output matches epsilon divided by V - 1, with nothing of it for the right class, as some papers "
    "have it.",
    "How many classes share epsilon in this task?")
TARGET_WHOLE = Mistake("LS-TARGET-WHOLE", SMOOTHING,
    "With epsilon = 0 the answer agrees; the right class keeps its whole weight.",
    "This output matches targets that sum to more than 1.",
    "What do the smoothed targets sum to?")
NO_SPREAD = Mistake("LS-NO-SPREAD", SMOOTHING,
    "With epsilon = 0 the answer agrees; the other classes get nothing.",
    "This output matches a loss multiplied by 1 - epsilon.",
    "Where does the weight go that is taken from the right class?")
SMOOTHED_LOG_OF_0 = Mistake("LS-LOG-OF-0", SMOOTHING,
    "Ordinary logits agree; where one logit of a row is far above another, the loss is no finite number.",
    "This pattern appears when a logarithm is taken of a probability that has been rounded to 0.",
    "What is the logarithm of a softmax, written with the logits and one log only?", kind="robustness")

# --- the loss ----------------------------------------------------------------------------------------

@drawn("loss.uniform", decimals=3)
def uniform(draw: Draw) -> Posed:
    """The cross-entropy of equal logits."""
    V = draw.integer(1000, 50, 5000)
    return Posed({"V": V}, np.log(V), {
        "CF-PROBABILITY-FOR-LOSS": 1 / V,
        "CF-LOG-10": np.log10(V),
        "CF-LOG-2": np.log2(V),
        SIGN: -np.log(V),
        DIVIDED_V: np.log(V) / V,
        "CF-COUNT": V,
        "CF-NO-DOUBT": 0,
    })


def calls() -> tuple[Arguments, ...]:
    """Logits of four sizes, and the right classes."""
    targets = [3, 0, 6, 2, 2], [0, 3, 2], [8, 5], [2, 0, 1, 1, 2, 0, 1]
    logits = normal(5, 7), 3 * normal(3, 4), 2 * normal(2, 9), normal(7, 3)
    return tuple((z, np.array(t)) for z, t in zip(logits, targets, strict=True))


TARGETS = np.array([4, 0, 6])
SHIFT = {"the same number added to all logits of a row": lambda z, *more: (z + normal(len(z), 1), *more)}
def by_row(trial: Trial) -> Seen | None:
    """Whether the loss of one row is wrong already, and whether several rows give the mean of theirs."""
    single, whole = [], []
    for found, (logits, targets, *more) in zip(trial.found, trial.calls, strict=True):
        rows = [trial.both((logits[[n]], targets[[n]], *more)) for n in range(len(targets))]
        told = [row for row in rows if row and not row[0].ndim]
        if found.ndim or len(told) < len(rows):
            return None
        single += [close(*row) for row in told]
        whole.append(close(found, np.asarray(np.mean([loss for loss, _ in told]))))
    if all(single):
        return Seen("For each row by itself {it} is right; for several rows it is not the mean of theirs.",
            "How do N losses become one?")
    if not all(whole):
        return None
    return limited(trial) or Seen(
        "For several rows {it} is the mean of the rows' losses, as it should be; the loss of a single row is "
        "another one already.",
        "What happens in one row, from its logits to its loss?")


def limited(trial: Trial) -> Seen | None:
    """A loss that stops growing while the right class becomes ever less likely."""
    gaps = [np.array([[gap, 0.0, 0.0]]) for gap in (1.0, 50.0, 100.0)]
    found = [pair[0] for z in gaps if (pair := trial.both((z, np.array([1]), *trial.calls[0][2:])))]
    if len(found) < len(gaps) or not close(found[1], found[2]) or close(found[0], found[1]):
        return None
    return Seen(f"While the right class becomes ever less likely, {{it}} stops at {float(found[2]):.3g}.",
        "Is a probability held above a limit before its logarithm is taken?")


CROSS_ENTROPY = """
def cross_entropy(logits, targets):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    losses = -log_p[np.arange(len(targets)), targets]
    return losses.mean()
"""
TWICE = """    p = np.exp(log_p)
    log_p = p - np.log(np.exp(p).sum(axis=-1, keepdims=True))
"""
HOT = "np.eye(logits.shape[1])[targets]"
NEAR = instead(CROSS_ENTROPY, {
    "the mean probability of the right classes, without a logarithm": "np.exp(-losses).mean()",
    "the log of the mean probability: the mean is taken before the log": "-np.log(np.exp(-losses).mean())",
    "e to the power of the loss, the perplexity": "np.exp(losses.mean())",
    "the loss of the last row": "losses[-1]",
    "the loss of the class with the largest logit, whatever the targets": "-log_p.max(axis=1).mean()",
    "the loss of the classes one after the targets":
        f"-(np.roll(log_p, -1, axis=1) * {HOT}).sum(axis=1).mean()",
    "a binary cross-entropy, in which every class is judged by itself through a sigmoid":
        f"(np.logaddexp(0, logits) - logits * {HOT}).sum(axis=1).mean()",
    "a binary cross-entropy of the probabilities, in which the wrong classes count too":
        f"-np.log(abs(1 - {HOT} - np.exp(log_p))).sum(axis=1).mean()",
    "the mean over every row with every target, N × N numbers": "-log_p[:, targets].mean()",
    "the mean squared distance between the probabilities and the right class":
        f"((np.exp(log_p) - {HOT}) ** 2).sum(axis=1).mean()",
})

forward = Code("cross_entropy.forward", "attention", 3, Place(PAPER.format("5.4"), FORCING.teach),
    task="Write the mean cross-entropy of logits (N, V) for the right classes targets (N,): one "
    "number. Logits may be as large as 1000, or as small as -1000.",
    hint="The log of the softmax, at the right class.",
    question="Which number of each row counts, and what is done with it before the mean?",
    probe=Probe("logits, targets", ("loss",), calls(), sizes="logits: N V", landmarks=NEAR, cancels=SHIFT),
    solution=CROSS_ENTROPY,
    mistakes={
        DOUBLE_SOFTMAX: [Edit("    losses = ", f"{TWICE}    losses = ")],
        SUM: [Edit(".mean()", ".sum()")],
        LOG_2: [Edit(".mean()", ".mean() / np.log(2)")],
        SIGN: [Edit("-log_p", "log_p")],
        DIVIDED_V: [Edit(".mean()", ".mean() / logits.shape[1]")],
        UNREDUCED: [Edit(".mean()", "")],
    },
    hard={
        OVERFLOW: (normal(3, 7) + 1000, TARGETS),
        GLOBAL_MAX: (normal(3, 7) + LEVELS, TARGETS),
        LOG_OF_0: (large(3, 7), np.array([4, 3, 6])),
    },
    looks=(*NUMBERS, *CALLS, by_row))


backward = Code("cross_entropy.backward", "backward", 4, BACK,
    task="The loss is the mean cross-entropy of logits (N, V) for the right classes targets (N,). Return the "
    "gradient of the logits, in their shape. Logits may be as large as 1000, or as small as -1000.",
    hint="What a row has too much of, and what it lacks.",
    question="What do the gradients of one row's logits sum to, and which of them is below 0?",
    probe=Probe("logits, targets", ("dlogits",), calls(), sizes="logits: N V", cancels=SHIFT),
    solution="""
def cross_entropy_backward(logits, targets):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p = powers / powers.sum(axis=-1, keepdims=True)
    right = np.eye(p.shape[1])[targets]
    return (p - right) / len(targets)
""",
    mistakes={
        GRAD_NO_TARGET: [Edit("p - right", "p")],
        GRAD_TARGET_ONLY: [Edit("(p - right)", "right * (p - right)")],
        GRAD_COLUMNS: [Edit("np.eye(p.shape[1])[targets]", "np.isin(np.arange(p.shape[1]), targets)")],
        GRAD_OF_P: [Edit("(p - right)", "-right / p")],
        SUM.seen_as("The gradient is larger by one constant factor, the number of rows."): [
            Edit(" / len(targets)", "")
        ],
        SIGN.seen_as("The size is right and the sign is the opposite: a step would make the loss larger."): [
            Edit("p - right", "right - p")
        ],
        DOUBLE_SOFTMAX.seen_as("Even for the best possible logits the gradient would not be near 0."): [
            Edit("    right", "    p = np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)\n    right")
        ],
    },
    hard={OVERFLOW: (normal(3, 7) + 1000, TARGETS), GLOBAL_MAX: (normal(3, 7) + LEVELS, TARGETS)})

SMOOTHED = """
def smoothed(logits, targets, epsilon):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    at = log_p[np.arange(len(targets)), targets]
    spread = log_p.mean(axis=-1)
    return -((1 - epsilon) * at + epsilon * spread).mean()
"""
smoothed = Code("loss.smoothed", "decoder", 3, SMOOTHING,
    task="Write the mean cross-entropy with label smoothing: 1 - epsilon at the right class, and "
    "epsilon / V at every class, the right one too. Logits (N, V) may be as large as 1000, "
    "targets are (N,).",
    hint="Two averages of log-probabilities, weighted.",
    question="Which weight has each class, and what do the weights of one row sum to?",
    probe=Probe(
        "logits, targets, epsilon", ("loss",),
        tuple((*given, epsilon) for given, epsilon in zip(calls(), (0.1, 0.3, 0.2, 0.25), strict=True)),
        sizes="logits: N V", neutral={"epsilon": 0.0},
        landmarks=instead(SMOOTHED, {
            "the loss of a softmax that is taken twice": Edit("    at = ", f"{TWICE}    at = "),
            "the loss without the part of epsilon that belongs to the right class":
                "-((1 - epsilon) * at + epsilon * (spread - at / logits.shape[1])).mean()",
            "the loss of smoothed probabilities, with targets of 0 and 1":
                "-np.log((1 - epsilon) * np.exp(at) + epsilon / logits.shape[1]).mean()",
            "a mean of probabilities, without a logarithm":
                "(1 - epsilon) * np.exp(at).mean() + epsilon / logits.shape[1]",
        }),
        cancels=SHIFT,
    ),
    solution=SMOOTHED,
    mistakes={
        IGNORED: [Edit("(1 - epsilon) * at + epsilon * spread", "at")],
        NOT_DIVIDED: [Edit("log_p.mean(", "log_p.sum(")],
        OTHERS_ONLY: [Edit("log_p.mean(axis=-1)", "(log_p.sum(axis=-1) - at) / (logits.shape[1] - 1)")],
        TARGET_WHOLE: [Edit("(1 - epsilon) * at", "at")],
        NO_SPREAD: [Edit(" + epsilon * spread", "")],
        SUM: [Edit(".mean()", ".sum()")],
        SIGN: [Edit("return -", "return ")],
    },
    hard={
        OVERFLOW: (normal(3, 7) + 1000, TARGETS, 0.1),
        GLOBAL_MAX: (normal(3, 7) + LEVELS, TARGETS, 0.1),
        SMOOTHED_LOG_OF_0: (large(3, 7), TARGETS, 0.1),
    },
    looks=(*NUMBERS, *CALLS, by_row),
    ours="cross_entropy_forward")
