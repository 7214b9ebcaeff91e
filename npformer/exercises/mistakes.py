"""The library of mistaken implementations, and what they answer on the probes.

A mistake is the options under which one of the functions in `wrong_code` computes the wrong answer. Two
of them are written under several codes, where no output can tell the causes apart.
"""

import tomllib
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from itertools import combinations
from typing import Any, NamedTuple

from npformer.exercises import wrong_code as wrong
from npformer.exercises.probes import subjects
from npformer.exercises.runs import TOLERANCE, Outcome, agreeing, run, same_outcome
from npformer.exercises.wrong_code import Options


class Family(NamedTuple):
    """A function with the options that make it wrong, and which codes may meet another one."""

    function: Callable[..., Any]
    slips: dict[str, tuple[Options, ...]]
    meets: tuple[str, ...] = ()


class Known(NamedTuple):
    """What a mistake, or two at once, answers on every probe."""

    codes: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    spoilt: frozenset[str]  # the outputs that are not right on some probe


class Words(NamedTuple):
    """What is said about a mistake: the observation, the cause, the question, where to read and to teach."""

    kind: str  # wrong, robustness, variant, convention or precision
    sees: str
    cause: str
    question: str
    read: str
    teach: str
    instead: dict[str, str] = {}  # noqa: RUF012  # another observation, by exercise; never written to

    def seen_in(self, exercise_id: str) -> str:
        """The observation in one exercise."""
        return self.instead.get(exercise_id, self.sees)


FAMILIES = {
    "pe.table": Family(wrong.table, wrong.SLIPS, ("PE-ROW0-ZERO",)),
    "ffn.forward": Family(wrong.ffn_forward, wrong.FFN_FORWARD, tuple(wrong.FFN_FORWARD)),
    "ffn.backward": Family(wrong.ffn_backward, wrong.FFN_BACKWARD, tuple(wrong.FFN_BACKWARD)),
    "layer_norm.forward": Family(
        wrong.layer_norm_forward, wrong.LAYER_NORM_FORWARD, tuple(wrong.LAYER_NORM_FORWARD)
    ),
    "layer_norm.backward": Family(
        wrong.layer_norm_backward, wrong.LAYER_NORM_BACKWARD, tuple(wrong.LAYER_NORM_BACKWARD)
    ),
    "softmax.forward": Family(wrong.softmax, wrong.SOFTMAX_FORWARD),
    "softmax.backward": Family(wrong.softmax_backward, wrong.SOFTMAX_BACKWARD),
    "attention.forward": Family(wrong.attention, wrong.ATTENTION, tuple(wrong.ATTENTION)),
    "heads.split": Family(wrong.heads_split, wrong.HEADS_SPLIT),
    "heads.merge": Family(wrong.heads_merge, wrong.HEADS_MERGE),
    "embedding.forward": Family(wrong.embedding, wrong.EMBEDDING),
    "cross_entropy.forward": Family(wrong.cross_entropy, wrong.CROSS_ENTROPY, ("CE-DOUBLE-SOFTMAX",)),
    "block.forward": Family(wrong.block, wrong.BLOCK, ("BLOCK-NO-RESIDUAL", "BLOCK-NORMS-EXCHANGED")),
    "mask.causal": Family(wrong.causal, wrong.CAUSAL),
    "rope.forward": Family(wrong.rope, wrong.ROPE, ("ROPE-SIGN", "ROPE-HALVES")),
    "adam.step": Family(wrong.adam, wrong.ADAM, tuple(wrong.ADAM)),
    "loss.smoothed": Family(wrong.smoothed, wrong.SMOOTHED, ("CE-SUM", "CE-SIGN")),
    "rms_norm.forward": Family(wrong.rms_norm, wrong.RMS_NORM, tuple(wrong.RMS_NORM)),
    "gate.forward": Family(wrong.gated, wrong.GATED),
    "attention.grouped": Family(wrong.grouped_attention, wrong.GROUPED, tuple(wrong.GROUPED)),
    "rope.attention": Family(
        wrong.rope_attention,
        wrong.ROPE_ATTENTION,
        ("ROPE-ON-VALUES", "ROPE-ONE-SIDE", "AT-NO-SCALE"),
    ),
    "mask.kept": Family(wrong.kept_mask, wrong.KEPT_MASK),
    "sample.temperature": Family(wrong.with_temperature, wrong.TEMPERATURE),
    "sample.top_p": Family(wrong.top_p, wrong.TOP_P, ("TOP-P-NOT-DIVIDED",)),
}

# sin(15,000) from float32 angles is off by more than any other table here.
TOLERANCES = {"PE-EXP-SIGN": 5e-3}


@cache
def words() -> dict[str, Words]:
    """What is said about each code, from mistakes.toml."""
    text = files("npformer.exercises").joinpath("mistakes.toml").read_text(encoding="utf-8")
    return {code: Words(**entry) for code, entry in tomllib.loads(text).items()}


@cache
def right(exercise_id: str) -> tuple[Outcome, ...]:
    """What the right function answers on every probe."""
    return outcomes(exercise_id, subjects()[exercise_id].right)


def outcomes(exercise_id: str, function: Callable[..., Any]) -> tuple[Outcome, ...]:
    """What a function answers on every probe of an exercise."""
    subject = subjects()[exercise_id]
    return tuple(run(function, probe, subject) for probe in subject.probes)


@cache
def singles(exercise_id: str) -> tuple[tuple[Known, Options], ...]:
    """Every listed mistake by itself, with its options."""
    slips = FAMILIES[exercise_id].slips.items()
    forms = [(code, options) for code, ways in slips for options in ways]
    return tuple((_known(exercise_id, (code,), options), options) for code, options in forms)


@cache
def pairs(exercise_id: str) -> tuple[Known, ...]:
    """Every two listed mistakes at once that can meet."""
    meets = set(FAMILIES[exercise_id].meets)
    return tuple(
        _known(exercise_id, (*a.codes, *b.codes), ways_a | ways_b)
        for (a, ways_a), (b, ways_b) in combinations(singles(exercise_id), 2)
        if a.codes != b.codes and not ways_a.keys() & ways_b.keys() and meets & {*a.codes, *b.codes}
    )


def differing(exercise_id: str, found: tuple[Outcome, ...]) -> frozenset[str]:
    """The names of the outputs that are not right on some probe."""
    names = subjects()[exercise_id].outputs
    return frozenset(
        name
        for outcome, expected in zip(found, right(exercise_id), strict=True)
        for name, same in zip(names, agreeing(outcome, expected), strict=True)
        if not same
    )


def _known(exercise_id: str, codes: tuple[str, ...], options: Options) -> Known:
    function = FAMILIES[exercise_id].function
    found = outcomes(exercise_id, partial(function, **options))
    return Known(codes, found, differing(exercise_id, found))


def recognised(exercise_id: str, found: tuple[Outcome, ...]) -> list[tuple[str, ...]]:
    """The listed mistakes that answer so on all probes; two at once only where no single one does."""
    fits = [known.codes for known, _ in singles(exercise_id) if _same(known, found)]
    if not fits:
        spoilt = differing(exercise_id, found)
        fits = [k.codes for k in pairs(exercise_id) if k.spoilt == spoilt and _same(k, found)]
    return list(dict.fromkeys(fits))


def _same(known: Known, found: tuple[Outcome, ...]) -> bool:
    tolerance = TOLERANCES.get(known.codes[0], TOLERANCE)
    if "PE-POS-UNUSED" in known.codes and any((a != a[:1]).any() for o in found for a in o.arrays):
        return False  # nearly alike: tiny angles, which do depend on the position
    return all(same_outcome(a, b, tolerance) for a, b in zip(found, known.outcomes, strict=True))
