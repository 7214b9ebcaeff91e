"""Exercises on sampling the next token: temperature, top-k and top-p.

The docstring of the package `npformer.exercises.bank` defines the terms call, edit, intermediate result
(`landmarks`) and detector.
"""

import numpy as np

from npformer.exercises.bank.questions import function_exercise
from npformer.exercises.bank.softmax import at_the_limits, far_apart
from npformer.exercises.number_detectors import check_proportions, check_row_sums
from npformer.exercises.probe import Arguments, Draws, Trial, normal
from npformer.exercises.task import Edit
from npformer.exercises.verdict import Finding, make_finding

# --- the exercises -----------------------------------------------------------------------------------

temperature = function_exercise("sample.temperature", ("p",),
    ((normal(3, 4), 0.5), (2 * normal(5, 2), 1.6), (0.5 * normal(4, 6), 0.8), (normal(3, 3), 1.0)),
    draw=lambda draws: (draws.normal(draws.size(), draws.size()), draws.uniform(0.3, 2.0)),
    axes="logits: rows V; p: rows V", neutral={"temperature": 1.0},
    landmarks={"divided_logits": "scores"},
    invariances={"logits_of_a_row": lambda z, t: (z + normal(len(z), 1), t)},
    solution="""
def with_temperature(logits, temperature):
    scores = logits / temperature
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p = powers / powers.sum(axis=-1, keepdims=True)
    return p
""",
    mistakes={
        "TEMP-AFTER-SOFTMAX": [
            Edit("logits / temperature", "logits", "return p", "return p / temperature"),
            Edit("logits / temperature", "logits", "return p", """powers = np.exp(p / temperature)
    return powers / powers.sum(axis=-1, keepdims=True)"""),
        ],
        "TEMP-MULTIPLIED": [Edit("logits / temperature", "logits * temperature")],
        "SM-AXIS": [Edit("axis=-1", "axis=0"), Edit("powers.sum(axis=-1", "powers.sum(axis=0")],
        "SM-GLOBAL-SUM": [Edit("axis=-1", "axis=None"), Edit("powers.sum(axis=-1", "powers.sum(axis=None")],
    },
    hard={"SM-OVERFLOW": (at_the_limits(3, 4), 0.5), "SM-GLOBAL-MAX": (far_apart(3, 4), 0.5)})


def calls() -> tuple[Arguments, ...]:
    """Return calls in which the likeliest token is first, last or in between.

    In some calls the likeliest token alone reaches the probability `share`; in other calls every token is
    needed. In the calls with powers of 2, a sum of probabilities equals `share` exactly, because powers of 2
    are added without rounding errors.
    """
    p = np.array([0.08, 0.4, 0.02, 0.25, 0.15, 0.1])
    binary = np.array([0.125, 0.5, 0.0625, 0.25, 0.0625 / 2, 0.0625 / 2 - 2**-10, 2**-10])
    return (
        (p, 0.7), (p[::-1], 0.5), (np.array([0.1, 0.05, 0.85]), 0.6), (p[[3, 0, 1, 5, 4, 2]], 0.93),
        (binary, 0.5), (binary[::-1], 0.75), (np.array([0.36, 0.34, 0.3]), 0.3), (p, 1.0 - 2**-40),
        (binary, 1.0), (np.array([1.0]), 0.5),
    )


def draw(draws: Draws) -> Arguments:
    """Return random probabilities, and a random `share` that no sum of these probabilities equals exactly."""
    powers = np.exp(draws.normal(draws.size(low=4)))
    return powers / powers.sum(), draws.uniform(0.3, 0.95)


def tokens_left(trial: Trial) -> Finding | None:
    """Report whether too few, too many or the wrong tokens are kept (have a probability above 0).

    If the kept tokens are correct, report wrong probabilities.
    """
    if all(a.shape != b.shape or np.array_equal(a > 0, b > 0) for a, b in trial.pairs):
        return check_row_sums(trial) or check_proportions(trial)
    more = [int((a > 0).sum() - (b > 0).sum()) for a, b in trial.pairs]
    left = [(p[a > 0], p[a <= 0]) for a, (p, _) in zip(trial.found, trial.calls, strict=True)]
    if any(kept.min(initial=1.0) < dropped.max(initial=0.0) for kept, dropped in left):
        return make_finding("likelier_token_dropped")
    if min(more) < 0 < max(more):
        return make_finding("too_many_and_too_few_tokens")
    return make_finding("too_many_tokens" if max(more) > 0 else "too_few_tokens")


top_p = function_exercise("sample.top_p", ("kept",), calls(), draw=draw, axes="p: V; kept: V",
    solution="""
def top_p(p, share):
    order = np.argsort(-p)
    falling = p[order]
    sums = np.cumsum(falling)
    left = order[sums - falling < share]
    kept = np.zeros_like(p)
    kept[left] = p[left]
    return kept / kept.sum()
""",
    mistakes={
        "TOP-P-LAST-DROPPED": [
            Edit("sums - falling < share", "sums <= share"),
            Edit("sums - falling < share", "(sums <= share) | (sums == falling)"),
        ],
        "TOP-P-NOT-DIVIDED": [Edit(" / kept.sum()", "")],
        "TOP-P-UNSORTED": [Edit("np.argsort(-p)", "np.arange(len(p))")],
        "TOP-P-AS-LIMIT": [
            Edit("sums - falling < share", "falling >= share"),
            Edit("sums - falling < share", "falling >= 1 - share"),
        ],
    },
    detectors=(tokens_left,))
