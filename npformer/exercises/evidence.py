"""The words of a result: what is right first, then the observation. Never the expected numbers."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises import structure
from npformer.exercises.bank import Exercise
from npformer.exercises.mistakes import right, words
from npformer.exercises.probes import Subject, subjects
from npformer.exercises.result import NOTHING, Result
from npformer.exercises.running import Outcome, agreeing, same


def passed(note: str = "Every check agrees.") -> Result:
    """A right answer."""
    return Result("pass", (), note, "", None)


def unanswered() -> Result:
    """None, or a stub as it was handed out."""
    return Result("error", (), NOTHING, "", None)


def known(
    exercise: Exercise,
    found: tuple[Outcome, ...],
    fits: Sequence[tuple[str, ...]],
    status: str,
    first: str = "",
) -> Result:
    """One listed mistake, two at once, or several that no output can tell apart."""
    codes = tuple(dict.fromkeys(code for fit in fits for code in fit))
    said = [words()[code] for code in codes]
    sees = list(dict.fromkeys(entry.seen_in(exercise.id) for entry in said))
    causes = list(dict.fromkeys(entry.cause for entry in said))
    first = first or ("" if status == "pass_variant" else _right_first(exercise, found))
    seen = " ".join([first, *sees, *_beside(exercise, found, codes)]).strip()
    return Result(status, codes, seen, " ".join(causes), said[0].question)


def stopped(exercise: Exercise, found: tuple[Outcome, ...]) -> Result:
    """The function ends in an error on every probe."""
    error = next(outcome.error for outcome in found if outcome.error)
    return Result("error", (), f"It stopped with {error}.", "", "What are the shapes in that line?")


def unknown(
    exercise: Exercise,
    found: tuple[Outcome, ...],
    expected: tuple[Outcome, ...] | None = None,
    said: str = "",
) -> Result:
    """No listed mistake fits: what is right, and where the first difference is."""
    expected = expected or right(exercise.id)
    alike = len(found) == len(right(exercise.id))
    first = [said or _right_first(exercise, found)] if alike else ["Ordinary sizes agree."]
    place = _first_difference(subjects()[exercise.id], found, expected)
    seen = " ".join([*first, place, *_beside(exercise, found, ())]).strip()
    return Result("unrecognised", (), seen, _structure(exercise, found), exercise.question)


def _beside(exercise: Exercise, found: tuple[Outcome, ...], codes: tuple[str, ...]) -> list[str]:
    changed = sorted({name for outcome in found for name in outcome.changed})
    if not changed or "MUTATES-INPUT" in codes:
        return [f"Changed: {', '.join(changed)}."] if changed else []
    return [f"And the call changed its argument {', '.join(changed)}."]


def _structure(exercise: Exercise, found: tuple[Outcome, ...]) -> str:
    arrays = [array for outcome in found for array in outcome.arrays]
    whole = len(arrays) == len(found)
    if exercise.id == "pe.table" and whole and (fit := structure.fit(tuple(arrays))) is not None:
        return f"Sines, cosines and pairs fit exactly ({fit.layout}), with a base of about {fit.base:.3g}."
    if exercise.id == "attention.forward" and found[0].arrays:
        q, k, *_ = subjects()[exercise.id].probes[0]
        scale = structure.scale(q @ k.T, arrays[0])  # v = 1 on this probe: the output shows the weights
        if scale is not None:
            return f"Without a mask the weights are a softmax of q·k times one number, about {scale:.3g}."
    return "No known mistake fits."


def _right_first(exercise: Exercise, found: tuple[Outcome, ...]) -> str:
    """What is right: which outputs agree on every probe, or else the shape, or part of the columns."""
    subject, expected = subjects()[exercise.id], right(exercise.id)
    verdicts = [agreeing(a, b) for a, b in zip(found, expected, strict=True) if a.arrays]
    agree = [name for name, *oks in zip(subject.outputs, *verdicts, strict=True) if all(oks)]
    if len(subject.outputs) > 1 and agree:
        differ = [name for name in subject.outputs if name not in agree]
        ends = f" {listed(differ)} {verb(differ, 'differ')}." if differ else ""
        return f"{listed(agree)} {verb(agree, 'agree')}.{ends}"
    return _parts(exercise.id, found, expected)


def _parts(exercise_id: str, found: tuple[Outcome, ...], expected: tuple[Outcome, ...]) -> str:
    pairs = [
        (a, b)
        for one, other in zip(found, expected, strict=True)
        for a, b in zip(one.arrays, other.arrays, strict=False)
    ]
    if any(a.shape != b.shape for a, b in pairs):
        return "It runs and returns numbers."
    said = "The shape is right." if len(pairs) == len(found) else "The shapes are right."
    a, b = pairs[0]
    if exercise_id == "pe.table":
        same_columns = [j for j in range(a.shape[1]) if same(a[:, j], b[:, j], 2e-6)]
        if len(same_columns) == a.shape[1]:
            return f"{said} Every column agrees."
        if same_columns:
            columns = "Column" if len(same_columns) == 1 else "Columns"
            agree = verb(same_columns, "agree")
            return f"{said} {columns} {listed([str(j) for j in same_columns])} {agree}."
    return said


def _first_difference(subject: Subject, found: tuple[Outcome, ...], expected: tuple[Outcome, ...]) -> str:
    return next(
        place
        for got, wanted in zip(found, expected, strict=True)
        for place in _differences(subject, got, wanted)
    )


def _differences(subject: Subject, got: Outcome, wanted: Outcome) -> Iterator[str]:
    if got.error:
        yield f"One of the checks stopped with {got.error}."
    elif got.empty:
        yield "One call returned nothing."
    else:
        for name, a, b in zip(subject.outputs, got.arrays, wanted.arrays, strict=True):
            if a.shape != b.shape:
                yield f"The shape of {name} is {a.shape}; it differs first there."
            elif not same(a, b):
                yield _place(name, a, b)


def _place(name: str, a: Array, b: Array) -> str:
    wrong = ~np.isclose(a.astype(float), b, rtol=0, atol=1e-4 * max(1.0, float(np.abs(b).max())))
    if a.ndim == 0:
        return f"{name} differs."
    place: Any = tuple(int(i) for i in np.argwhere(wrong)[0])
    many = f" ({int(wrong.sum())} of {wrong.size} entries differ)"
    return f"{name} differs first at {place if len(place) > 1 else place[0]}{many}."


def listed(names: list[str]) -> str:
    """Names in a sentence: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def verb(names: Sequence[object], word: str) -> str:
    """The word with an s after a single name."""
    return f"{word}s" if len(names) == 1 else word
