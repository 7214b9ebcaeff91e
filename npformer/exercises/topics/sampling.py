"""Drawing the next token: a temperature, and the fewest likeliest tokens that have a share together."""

import numpy as np

from npformer.exercises.probe import Arguments, Probe, Trial, normal
from npformer.exercises.relations import proportions, row_sums
from npformer.exercises.see import CALLS, NUMBERS, Seen
from npformer.exercises.task import Code, Edit, Mistake, Place
from npformer.exercises.topics.softmax import AXIS, GLOBAL_MAX, GLOBAL_SUM, LEVELS, OVERFLOW, large

WRITING = Place("lesson 10, section 10.8", "10, section 10.8, A model that writes")
NUCLEUS = Place(
    '"The Curious Case of Neural Text Degeneration" (Holtzman et al.), section 3.1', WRITING.teach
)

# --- what is said ------------------------------------------------------------------------------------

AFTER_SOFTMAX = Mistake("TEMP-AFTER-SOFTMAX", WRITING,
    "The differences between the logits enter without the temperature.",
    "This pattern appears when probabilities are divided where logits should be.",
    "What does a division of all probabilities by one number leave as it was?")
MULTIPLIED = Mistake("TEMP-MULTIPLIED", WRITING, "A higher temperature makes the likeliest token likelier.",
    "This output matches logits that are multiplied by the temperature.",
    "Is a choice at a high temperature more or less even?")
LAST_DROPPED = Mistake("TOP-P-LAST-DROPPED", NUCLEUS,
    "What is left has less than the share that was asked for.",
    "This pattern appears when the token at which the share is reached is left out.",
    "Before this token the share is not reached; is it with it?")
NOT_DIVIDED = Mistake("TOP-P-NOT-DIVIDED", NUCLEUS,
    "The right tokens are left, and their probabilities do not sum to 1.",
    "This output matches probabilities that are not divided by what is left.",
    "What do the new probabilities sum to?")
UNSORTED = Mistake("TOP-P-UNSORTED", NUCLEUS,
    "Tokens at the front of the vocabulary are left, likely or not.",
    "This pattern appears when probabilities are added up in the order of the vocabulary.",
    "In which order are the tokens collected?")
AS_LIMIT = Mistake("TOP-P-AS-LIMIT", NUCLEUS, "Each token is judged by its own probability alone.",
    "This output matches a limit for single probabilities, where a sum should reach the share.",
    "How likely are the tokens together that are left?")

# --- what is asked -----------------------------------------------------------------------------------

temperature = Code("sample.temperature", "modern", 2, WRITING,
    task="Write the probabilities of the next token at a temperature: logits (rows, V), temperature a "
    "number above 0. Return p in the same shape. Logits may be as large as 1000, or as small as "
    "-1000.",
    hint="A low temperature makes large differences larger.",
    question="What is divided by the temperature, and what do the numbers of a row sum to afterwards?",
    probe=Probe(
        "logits, temperature", ("p",),
        ((normal(3, 4), 0.5), (2 * normal(5, 2), 1.6), (0.5 * normal(4, 6), 0.8)),
        sizes="logits: rows V", neutral={"temperature": 1.0},
        landmarks={"the logits, divided": lambda z, t: z / t},
        cancels={"the same number added to all logits of a row": lambda z, t: (z + normal(len(z), 1), t)},
    ),
    solution="""
def with_temperature(logits, temperature):
    scores = logits / temperature
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p = powers / powers.sum(axis=-1, keepdims=True)
    return p
""",
    mistakes={
        AFTER_SOFTMAX: [
            Edit("logits / temperature", "logits", "return p", "return p / temperature"),
            Edit("logits / temperature", "logits", "return p", """powers = np.exp(p / temperature)
    return powers / powers.sum(axis=-1, keepdims=True)"""),
        ],
        MULTIPLIED: [Edit("logits / temperature", "logits * temperature")],
        AXIS: [Edit("axis=-1", "axis=0")],
        GLOBAL_SUM: [Edit("axis=-1", "axis=None")],
    },
    hard={OVERFLOW: (large(3, 4), 0.5), GLOBAL_MAX: (normal(3, 4) + LEVELS, 0.5)})


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


top_p = Code("sample.top_p", "modern", 3, NUCLEUS,
    task="p (V,) are the next token's probabilities, no two alike. Leave the fewest likeliest tokens "
    "that have at least the given share together, and 0 for the others. Return the new "
    "probabilities, in p's order.",
    hint="In falling order: what has been collected before this token?",
    question="At which token is the share reached, and what becomes of that token?",
    probe=Probe("p, share", ("kept",), calls(), sizes="p: V"),
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
        LAST_DROPPED: [
            Edit("sums - falling < share", "sums <= share"),
            Edit("sums - falling < share", "(sums <= share) | (sums == falling)"),
        ],
        NOT_DIVIDED: [Edit(" / kept.sum()", "")],
        UNSORTED: [Edit("np.argsort(-p)", "np.arange(len(p))")],
        AS_LIMIT: [
            Edit("sums - falling < share", "falling >= share"),
            Edit("sums - falling < share", "falling >= 1 - share"),
        ],
    },
    looks=(*NUMBERS, tokens_left, *CALLS))
