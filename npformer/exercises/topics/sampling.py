"""Drawing the next token: a temperature, and the fewest likeliest tokens that have a share together."""

import numpy as np

from npformer.exercises.probe import Arguments, Trial, normal
from npformer.exercises.relations import proportions, row_sums
from npformer.exercises.see import Seen
from npformer.exercises.task import Edit
from npformer.exercises.topics.questions import coded
from npformer.exercises.topics.softmax import LEVELS, large

# --- what is asked -----------------------------------------------------------------------------------

temperature = coded("sample.temperature", ("p",),
    ((normal(3, 4), 0.5), (2 * normal(5, 2), 1.6), (0.5 * normal(4, 6), 0.8)),
    sizes="logits: rows V", neutral={"temperature": 1.0},
    landmarks={"the logits, divided": "scores"},
    cancels={"the same number added to all logits of a row": lambda z, t: (z + normal(len(z), 1), t)},
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
        "SM-AXIS": [Edit("axis=-1", "axis=0")],
        "SM-GLOBAL-SUM": [Edit("axis=-1", "axis=None")],
    },
    hard={"SM-OVERFLOW": (large(3, 4), 0.5), "SM-GLOBAL-MAX": (normal(3, 4) + LEVELS, 0.5)})


def calls() -> tuple[Arguments, ...]:
    """The likeliest token stands first, last or between; in one call it alone has the share."""
    p = np.array([0.08, 0.4, 0.02, 0.25, 0.15, 0.1])
    return (p, 0.7), (p[::-1], 0.5), (np.array([0.1, 0.05, 0.85]), 0.6), (p[[3, 0, 1, 5, 4, 2]], 0.93)


def tokens_left(trial: Trial) -> Seen | None:
    """Which tokens keep a probability: too few, too many, others, or the right ones with other numbers."""
    if all(a.shape != b.shape or np.array_equal(a > 0, b > 0) for a, b in trial.pairs):
        return row_sums(trial) or proportions(trial)
    more = [int((a > 0).sum() - (b > 0).sum()) for a, b in trial.pairs]
    left = [(p[a > 0], p[a <= 0]) for a, (p, _) in zip(trial.found, trial.calls, strict=True)]
    if any(kept.min(initial=1.0) < dropped.max(initial=0.0) for kept, dropped in left):
        return Seen("In {it} a token is left, and a likelier one is not.",
            "In which order do tokens get in, and does the result stand in p's order again?")
    many = "on some calls too many of them, on others too few" if min(more) < 0 < max(more) else (
        "too many of them" if max(more) > 0 else "too few of them")
    return Seen(f"The likeliest tokens are left: {many}.",
        "What is compared with the share, and is the token with which it is reached left or dropped?")


top_p = coded("sample.top_p", ("kept",), calls(), sizes="p: V",
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
    looks=(tokens_left,))
