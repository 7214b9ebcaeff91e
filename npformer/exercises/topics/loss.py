"""Cross-entropy: how likely a model found the right class, row by row; and label smoothing."""

import numpy as np

from npformer.exercises.probe import Arguments, Trial, normal
from npformer.exercises.see import CALLS, Seen, close
from npformer.exercises.task import Draw, Edit, Posed
from npformer.exercises.topics.questions import coded, drawn
from npformer.exercises.topics.softmax import LEVELS, large

# --- the loss ----------------------------------------------------------------------------------------

@drawn("loss.uniform", decimals=3)
def uniform(draw: Draw) -> Posed:
    """The cross-entropy of equal logits."""
    V = draw.integer(1000, 50, 5000)
    return Posed({"V": V}, np.log(V), {
        "CF-PROBABILITY-FOR-LOSS": 1 / V,
        "CF-LOG-10": np.log10(V),
        "CF-LOG-2": np.log2(V),
        "CE-SIGN": -np.log(V),
        "CE-DIVIDED-V": np.log(V) / V,
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

forward = coded("cross_entropy.forward",
    ("loss",), calls(), sizes="logits: N V", cancels=SHIFT,
    landmarks={
        "the mean probability of the right classes, without a logarithm": "np.exp(-losses).mean()",
        "the log of the mean probability: the mean is taken before the log":
            "-np.log(np.exp(-losses).mean())",
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
    },
    solution=CROSS_ENTROPY,
    mistakes={
        "CE-DOUBLE-SOFTMAX": [Edit("    losses = ", f"{TWICE}    losses = ")],
        "CE-SUM": [Edit(".mean()", ".sum()")],
        "CE-LOG-2": [Edit(".mean()", ".mean() / np.log(2)")],
        "CE-SIGN": [Edit("-log_p", "log_p")],
        "CE-DIVIDED-V": [Edit(".mean()", ".mean() / logits.shape[1]")],
        "CE-UNREDUCED": [Edit(".mean()", "")],
    },
    hard={
        "SM-OVERFLOW": (normal(3, 7) + 1000, TARGETS),
        "SM-GLOBAL-MAX": (normal(3, 7) + LEVELS, TARGETS),
        "CE-LOG-OF-0": (large(3, 7), np.array([4, 3, 6])),
    },
    looks=(*CALLS, by_row))


backward = coded("cross_entropy.backward", ("dlogits",), calls(), sizes="logits: N V", cancels=SHIFT,
    solution="""
def cross_entropy_backward(logits, targets):
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    p = powers / powers.sum(axis=-1, keepdims=True)
    right = np.eye(p.shape[1])[targets]
    return (p - right) / len(targets)
""",
    mistakes={
        "CE-GRAD-NO-TARGET": [Edit("p - right", "p")],
        "CE-GRAD-TARGET-ONLY": [Edit("(p - right)", "right * (p - right)")],
        "CE-GRAD-COLUMNS": [Edit("np.eye(p.shape[1])[targets]", "np.isin(np.arange(p.shape[1]), targets)")],
        "CE-GRAD-OF-P": [Edit("(p - right)", "-right / p")],
        "CE-SUM": [
            Edit(" / len(targets)", "")
        ],
        "CE-SIGN": [
            Edit("p - right", "right - p")
        ],
        "CE-DOUBLE-SOFTMAX": [
            Edit("    right", "    p = np.exp(p) / np.exp(p).sum(axis=-1, keepdims=True)\n    right")
        ],
    },
    hard={"SM-OVERFLOW": (normal(3, 7) + 1000, TARGETS), "SM-GLOBAL-MAX": (normal(3, 7) + LEVELS, TARGETS)})

SMOOTHED = """
def smoothed(logits, targets, epsilon):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    at = log_p[np.arange(len(targets)), targets]
    spread = log_p.mean(axis=-1)
    return -((1 - epsilon) * at + epsilon * spread).mean()
"""
smoothed = coded("loss.smoothed", ("loss",),
    tuple((*given, epsilon) for given, epsilon in zip(calls(), (0.1, 0.3, 0.2, 0.25), strict=True)),
    sizes="logits: N V", neutral={"epsilon": 0.0},
    landmarks={
        "the loss of a softmax that is taken twice": Edit("    at = ", f"{TWICE}    at = "),
        "the loss without the part of epsilon that belongs to the right class":
            "-((1 - epsilon) * at + epsilon * (spread - at / logits.shape[1])).mean()",
        "the loss of smoothed probabilities, with targets of 0 and 1":
            "-np.log((1 - epsilon) * np.exp(at) + epsilon / logits.shape[1]).mean()",
        "a mean of probabilities, without a logarithm":
            "(1 - epsilon) * np.exp(at).mean() + epsilon / logits.shape[1]",
    },
    cancels=SHIFT,
    solution=SMOOTHED,
    mistakes={
        "LS-IGNORED": [Edit("(1 - epsilon) * at + epsilon * spread", "at")],
        "LS-NOT-DIVIDED": [Edit("log_p.mean(", "log_p.sum(")],
        "LS-OTHERS-ONLY": [Edit("log_p.mean(axis=-1)", "(log_p.sum(axis=-1) - at) / (logits.shape[1] - 1)")],
        "LS-TARGET-WHOLE": [Edit("(1 - epsilon) * at", "at")],
        "LS-NO-SPREAD": [Edit(" + epsilon * spread", "")],
        "CE-SUM": [Edit(".mean()", ".sum()")],
        "CE-SIGN": [Edit("return -", "return ")],
    },
    hard={
        "SM-OVERFLOW": (normal(3, 7) + 1000, TARGETS, 0.1),
        "SM-GLOBAL-MAX": (normal(3, 7) + LEVELS, TARGETS, 0.1),
        "LS-LOG-OF-0": (large(3, 7), TARGETS, 0.1),
    },
    looks=(*CALLS, by_row),
    ours="cross_entropy_forward")
