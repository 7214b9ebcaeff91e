"""Exercises on cross-entropy and label smoothing.

The docstring of the package `npformer.exercises.bank` defines the terms call, edit, intermediate result
(`landmarks`) and detector.
"""

import numpy as np

from npformer.exercises.bank.questions import function_exercise, number_exercise
from npformer.exercises.bank.softmax import at_the_limits, far_apart, overflowing
from npformer.exercises.call_detectors import DETECTORS
from npformer.exercises.number_detectors import are_close
from npformer.exercises.probe import Arguments, Draws, Trial, normal
from npformer.exercises.task import Draw, Edit, PosedQuestion
from npformer.exercises.verdict import Finding, make_finding

# --- the loss ----------------------------------------------------------------------------------------

@number_exercise("loss.uniform", decimals=3)
def uniform(draw: Draw) -> PosedQuestion:
    """Ask for the cross-entropy of equal logits."""
    V = draw.integer(1000, 50, 5000)
    return PosedQuestion({"V": V}, np.log(V), {
        "CF-PROBABILITY-FOR-LOSS": 1 / V,
        "CF-LOG-10": np.log10(V),
        "CF-LOG-2": np.log2(V),
        "CE-SIGN": -np.log(V),
        "CE-DIVIDED-V": np.log(V) / V,
        "CF-COUNT": V,
        "CF-NO-DOUBT": 0,
    })


def calls() -> tuple[Arguments, ...]:
    """Return calls of several sizes. Two calls have as many rows as classes."""
    targets = [3, 0, 6, 2, 2], [0, 3, 2], [8, 5], [2, 0, 1, 1, 2, 0, 1], [2, 0, 1]
    logits = normal(5, 7), 3 * normal(3, 4), 2 * normal(2, 9), normal(7, 3), normal(3, 3)
    gap = np.array([[0.0, 25.0], [1.0, 0.0]])  # Row 0 gives its correct class a probability of e^-25.
    ordinary = [(z, np.array(t)) for z, t in zip(logits, targets, strict=True)]
    return (*ordinary, (gap, np.array([0, 0])), (normal(1, 4), np.array([2])))


def draw(draws: Draws) -> Arguments:
    """Return random logits and classes."""
    N, V = draws.size(), draws.size(low=3)
    return 2 * draws.normal(N, V), draws.rng.integers(0, V, size=N)


TARGETS = np.array([4, 0, 6])
SHIFT = {"logits_of_a_row": lambda z, *more: (z + normal(len(z), 1), *more)}


def by_row(trial: Trial) -> Finding | None:
    """Find out whether the loss of a single row is wrong, or only the mean over the rows."""
    single, whole = [], []
    for found, (logits, targets, *more) in zip(trial.found, trial.calls, strict=True):
        rows = [trial.both((logits[[n]], targets[[n]], *more)) for n in range(len(targets))]
        scalars = [row for row in rows if row and not row[0].ndim]
        if found.ndim or len(scalars) < len(rows):
            return None
        single += [are_close(*row) for row in scalars]
        whole.append(are_close(found, np.asarray(np.mean([loss for loss, _ in scalars]))))
    if all(single):
        return make_finding("mean_of_rows_missing")
    if not all(whole):
        return None
    return limited(trial) or make_finding("single_row_differs")


def limited(trial: Trial) -> Finding | None:
    """Detect a loss with an upper limit, although the probability of the correct class falls towards 0."""
    gaps = [np.array([[gap, 0.0, 0.0]]) for gap in (1.0, 50.0, 100.0)]
    found = [pair[0] for z in gaps if (pair := trial.both((z, np.array([1]), *trial.calls[0][2:])))]
    if len(found) < len(gaps) or not are_close(found[1], found[2]) or are_close(found[0], found[1]):
        return None
    return make_finding("loss_has_a_limit", limit=float(found[2]))


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

forward = function_exercise("cross_entropy.forward",
    ("loss",), calls(), draw=draw, axes="logits: N V; targets: N; loss:", invariances=SHIFT,
    landmarks={
        "mean_probability": "np.exp(-losses).mean()",
        "log_of_mean_probability": "-np.log(np.exp(-losses).mean())",
        "perplexity": "np.exp(losses.mean())",
        "loss_of_last_row": "losses[-1]",
        "loss_of_largest_logit": "-log_p.max(axis=1).mean()",
        "loss_of_next_class": f"-(np.roll(log_p, -1, axis=1) * {HOT}).sum(axis=1).mean()",
        "loss_of_previous_class": f"-(np.roll(log_p, 1, axis=1) * {HOT}).sum(axis=1).mean()",
        "binary_cross_entropy": f"(np.logaddexp(0, logits) - logits * {HOT}).sum(axis=1).mean()",
        "binary_cross_entropy_of_p":
            f"-np.log(abs(1 - {HOT} - np.exp(log_p))).sum(axis=1).mean()",
        "every_row_with_every_target": "-log_p[:, targets].mean()",
        "squared_distance": f"((np.exp(log_p) - {HOT}) ** 2).sum(axis=1).mean()",
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
        "SM-OVERFLOW": (at_the_limits(3, 7), TARGETS),
        "SM-GLOBAL-MAX": (far_apart(3, 7), TARGETS),
        "CE-LOG-OF-0": (at_the_limits(3, 7), np.array([4, 3, 6])),
    },
    detectors=(*DETECTORS, by_row))


backward = function_exercise("cross_entropy.backward", ("dlogits",), calls(), draw=draw,
    axes="logits: N V; targets: N; dlogits: N V", invariances=SHIFT,
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
    hard={
        "SM-OVERFLOW": (at_the_limits(3, 7), TARGETS),
        "SM-GLOBAL-MAX": (far_apart(3, 7), TARGETS),
    })

EPSILONS = (0.1, 0.3, 0.2, 0.25, 0.15, 0.0, 0.1)
SMOOTHED = """
def smoothed(logits, targets, epsilon):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    at = log_p[np.arange(len(targets)), targets]
    spread = log_p.mean(axis=-1)
    return -((1 - epsilon) * at + epsilon * spread).mean()
"""
smoothed = function_exercise("loss.smoothed", ("loss",),
    tuple((*given, epsilon) for given, epsilon in zip(calls(), EPSILONS, strict=True)),
    draw=lambda draws: (*draw(draws), draws.uniform(0.05, 0.4)),
    axes="logits: N V; targets: N; loss:", neutral={"epsilon": 0.0},
    landmarks={
        "loss_of_softmax_twice": Edit("    at = ", f"{TWICE}    at = "),
        "no_epsilon_at_target":
            "-((1 - epsilon) * at + epsilon * (spread - at / logits.shape[1])).mean()",
        "smoothed_probabilities":
            "-np.log((1 - epsilon) * np.exp(at) + epsilon / logits.shape[1]).mean()",
        "mean_of_probabilities": "(1 - epsilon) * np.exp(at).mean() + epsilon / logits.shape[1]",
    },
    invariances=SHIFT,
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
        "SM-OVERFLOW": (overflowing(3, 7), TARGETS, 0.1),
        "SM-GLOBAL-MAX": (far_apart(3, 7), TARGETS, 0.1),
        "LS-LOG-OF-0": (at_the_limits(3, 7), TARGETS, 0.1),
    },
    detectors=(*DETECTORS, by_row),
    ours="cross_entropy_forward")
