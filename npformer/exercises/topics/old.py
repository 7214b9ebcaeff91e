"""Exercises that are not moved into a topic yet, made of the old files beside this one."""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Probe, Trial, same, size
from npformer.exercises.see import CALLS, NUMBERS
from npformer.exercises.task import (
    RIGHT,
    Choice,
    Code,
    Draw,
    Mistake,
    Numbers,
    Place,
    Posed,
    Task,
    Truth,
    Wrong,
)
from npformer.exercises.topics import old_wrong_code as wrong
from npformer.exercises.topics.old_behaviour import LATER, SPECIAL
from npformer.exercises.topics.old_computed import RECIPES
from npformer.exercises.topics.old_evidence import BEFORE, SINCE_2017
from npformer.exercises.topics.old_probes import subjects

FAMILIES: dict[str, tuple[Callable[..., Any], Mapping[str, tuple[dict[str, Any], ...]]]] = {
    "pe.table": (wrong.table, wrong.SLIPS),
    "ffn.forward": (wrong.ffn_forward, wrong.FFN_FORWARD),
    "ffn.backward": (wrong.ffn_backward, wrong.FFN_BACKWARD),
    "layer_norm.forward": (wrong.layer_norm_forward, wrong.LAYER_NORM_FORWARD),
    "layer_norm.backward": (wrong.layer_norm_backward, wrong.LAYER_NORM_BACKWARD),
    "softmax.forward": (wrong.softmax, wrong.SOFTMAX_FORWARD),
    "softmax.backward": (wrong.softmax_backward, wrong.SOFTMAX_BACKWARD),
    "attention.forward": (wrong.attention, wrong.ATTENTION),
    "heads.split": (wrong.heads_split, wrong.HEADS_SPLIT),
    "heads.merge": (wrong.heads_merge, wrong.HEADS_MERGE),
    "embedding.forward": (wrong.embedding, wrong.EMBEDDING),
    "cross_entropy.forward": (wrong.cross_entropy, wrong.CROSS_ENTROPY),
    "block.forward": (wrong.block, wrong.BLOCK),
    "mask.causal": (wrong.causal, wrong.CAUSAL),
    "rope.forward": (wrong.rope, wrong.ROPE),
    "adam.step": (wrong.adam, wrong.ADAM),
    "loss.smoothed": (wrong.smoothed, wrong.SMOOTHED),
    "rms_norm.forward": (wrong.rms_norm, wrong.RMS_NORM),
    "gate.forward": (wrong.gated, wrong.GATED),
    "attention.grouped": (wrong.grouped_attention, wrong.GROUPED),
    "rope.attention": (wrong.rope_attention, wrong.ROPE_ATTENTION),
    "mask.kept": (wrong.kept_mask, wrong.KEPT_MASK),
    "sample.temperature": (wrong.with_temperature, wrong.TEMPERATURE),
    "sample.top_p": (wrong.top_p, wrong.TOP_P),
}
OURS = {
    "pe.table": "positional_encoding",
    "heads.split": "split_heads",
    "heads.merge": "merge_heads",
    "mask.causal": "causal_mask",
    "adam.step": "adam_update",
    "loss.smoothed": "cross_entropy_forward",
    "gate.forward": "gated_ffn_forward",
    "mask.kept": "causal_mask",
}
DIRECTIONS: dict[str, dict[str, Callable[..., Any]]] = {
    "layer_norm.forward": {"gamma": lambda x, gamma, beta, eps: gamma},
    "layer_norm.backward": {"x̂": lambda dy, x, gamma, beta, eps: x - x.mean(axis=-1, keepdims=True)},
    "softmax.backward": {"p": lambda dp, p: p},
}
LARGE = (
    "With scores near 1000 or -1000 the numbers are finite, and not the right ones:",
    "Are two scores such as 1000 and 999 still 1 apart when exp meets them?",
)
HELD = ("There p is held above a small number before its logarithm is taken.", "")
MORE: dict[str, dict[str, Any]] = {
    "PE-EXP-SIGN": {"tolerance": 5e-3},
    "PE-POS-UNUSED": {"unless": lambda found: (found != found[:1]).any()},
    "PE-FLOAT16": {"kind": "wrong"},
    "CE-LOG-OF-0": {"finite": HELD},
    "SM-OVERFLOW": {"finite": LARGE},
    "SM-GLOBAL-MAX": {"finite": LARGE},
}


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(name).read_text(encoding="utf-8"))


@cache
def mistakes() -> tuple[Mistake, ...]:
    """Those of mistakes.toml."""
    made = []
    for code, entry in _read("mistakes.toml").items():
        entry.pop("instead", {})
        place = Place(entry.pop("read"), entry.pop("teach"))
        made.append(Mistake(code, place=place, **entry | MORE.get(code, {})))
    return tuple(made)


@dataclass(frozen=True, eq=False, kw_only=True)
class OldCode(Code):
    """A code exercise whose mistakes are options of a function."""

    forms: tuple[tuple[Mistake, Callable[..., Any]], ...]
    without: Callable[..., Any]

    def solved(self) -> Callable[..., Any]:
        """The function without an option."""
        return self.without

    def wrongly(self) -> Iterator[tuple[Mistake, Callable[..., Any]]]:
        """Every form of every mistake."""
        yield from self.forms


def tasks(moved: set[str], words: Mapping[str, Mistake]) -> list[Task]:
    """Those of bank.toml that are not moved."""
    entries = _read("bank.toml").items()
    return [_task(exercise_id, entry, words) for exercise_id, entry in entries if exercise_id not in moved]


def _task(exercise_id: str, entry: dict[str, Any], words: Mapping[str, Mistake]) -> Task:
    place = Place(entry["read"], entry["teach"])
    same = {key: entry[key] for key in ("topic", "level", "task", "hint", "question")}
    common: dict[str, Any] = {"id": exercise_id, "place": place, **same}
    options = entry.get("options", [])
    if entry["kind"] == "choice":
        made = {o["text"]: Wrong(o["confusion"], o["says"]) if "says" in o else RIGHT for o in options}
        return Choice(options=made, **common)
    if entry["kind"] == "truth":
        wrong_one = Wrong(options[0]["confusion"], options[0]["says"])
        return Truth(right=entry["right"] == "true", wrong=wrong_one, **common)
    if entry["kind"] == "code":
        return _code(exercise_id, common, words)
    recipe = RECIPES[entry["recipe"]]

    def draw(numbers: Draw) -> Posed:
        posed = recipe(numbers.rng)
        return Posed(posed.given, posed.answer, {words.get(c, c): v for c, v in posed.wrong.items()})

    return Numbers(draw=draw, says=_read("confusions.toml"), decimals=recipe(None).decimals, **common)


def _code(exercise_id: str, common: dict[str, Any], words: Mapping[str, Mistake]) -> Task:
    subject, (function, slips) = subjects()[exercise_id], FAMILIES[exercise_id]
    instead = {code: entry["instead"] for code, entry in _read("mistakes.toml").items() if "instead" in entry}
    here = {
        code: words[code].seen_as(instead.get(code, {}).get(exercise_id, words[code].sees)) for code in slips
    }
    forms = tuple(
        (here[code], partial(function, **options)) for code, ways in slips.items() for options in ways
    )
    table = exercise_id == "pe.table"
    return OldCode(
        probe=_probe(exercise_id),
        right=subject.right,
        solution="",
        mistakes={},
        forms=forms,
        without=function,
        hard={words[code]: given for code, given in subject.hard.items()},
        looks=_looks(exercise_id),
        last=((5000, 16), far_positions) if table else None,
        ours=OURS.get(exercise_id, ""),
        **common,
    )


def _probe(exercise_id: str) -> Probe:
    subject = subjects()[exercise_id]
    return Probe(
        subject.arguments,
        subject.outputs,
        subject.probes,
        subject.sizes,
        subject.unit,
        subject.outer,
        exercise_id == "pe.table",
        subject.neutral,
        subject.landmarks,
        DIRECTIONS.get(exercise_id, {}),
        subject.cancels,
    )


def _looks(exercise_id: str) -> tuple[Any, ...]:
    first = [BEFORE[exercise_id]] if exercise_id in BEFORE else []
    own = [*SPECIAL.get(exercise_id, ()), *SINCE_2017.get(exercise_id, ())]
    later = [LATER[exercise_id]] if exercise_id in LATER else []
    return (*([float16] if exercise_id == "pe.table" else first), *NUMBERS, *own, *CALLS, *later)


def far_positions(table: Array, expected: Array) -> Mistake | None:
    """Far enough for angles in float32 to show: errors no larger than 24 bits of an angle can make them."""
    if table.shape != expected.shape or same(table, expected, 1.5e-5):
        return None
    angles = np.arange(len(table))[:, None]
    grows = (np.abs(table - expected) <= 4e-7 * (1 + angles)).all()
    return next(m for m in mistakes() if m.code == "PE-FLOAT32-ANGLES") if grows else None


def float16(trial: Trial) -> Mistake | None:
    """Every number is one of float16's and no further off than 11 bits can explain."""
    coarse = all(
        a.shape == b.shape
        and np.array_equal(a.astype(np.float16), a)
        and (np.abs(a - b) < 2e-2 * size(b)).all()
        for a, b in zip(trial.found, trial.right, strict=True)
    )
    return next(m for m in mistakes() if m.code == "PE-FLOAT16") if coarse else None
