"""Checking a function: run it, compare it with the right one, then with every known mistake."""

from collections.abc import Callable
from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises import evidence, gradients
from npformer.exercises.bank import Exercise
from npformer.exercises.mistakes import differing, outcomes, recognised, right, words
from npformer.exercises.probes import Subject, subjects
from npformer.exercises.result import Result
from npformer.exercises.running import Outcome, run, same, same_outcome

LONG = (5000, 16)  # far enough for angles in float32 to show
PASSING = ("variant", "convention", "precision")


def check_function(exercise: Exercise, function: Callable[..., Any]) -> Result:
    """One verdict: it runs, inputs, shapes, right, variants, mistakes, structure, in this order."""
    found = outcomes(exercise.id, function)
    if all(outcome.empty for outcome in found):
        return evidence.unanswered()
    if not differing(exercise.id, found):
        return _hard_probes(exercise, function, found)
    slopes = gradients.compared(exercise.id, function)
    fits = recognised(exercise.id, found)
    if fits:
        return evidence.known(exercise, found, fits, _status(fits), slopes)
    if special := _precision(exercise.id, found):
        return evidence.known(exercise, found, [(special,)], "known_mistake")
    if all(outcome.error or outcome.empty for outcome in found):
        return evidence.stopped(exercise, found)
    return evidence.unknown(exercise, found, said=slopes)


def _status(fits: list[tuple[str, ...]]) -> str:
    if len(fits) > 1:
        return "ambiguous"
    passing = all(words()[code].kind in PASSING for code in fits[0])
    return "pass_variant" if passing else "known_mistake"


def _hard_probes(exercise: Exercise, function: Callable[..., Any], found: tuple[Outcome, ...]) -> Result:
    """The numbers are right. What about changed arguments, odd sizes, huge logits, far positions?"""
    subject = subjects()[exercise.id]
    if any(outcome.changed for outcome in found):
        return evidence.known(exercise, found, [("MUTATES-INPUT",)], "known_mistake")
    for code, probe in subject.hard.items():
        answer, expected = run(function, probe, subject), run(subject.right, probe, subject)
        if not same_outcome(answer, expected):
            if fails(answer, expected):
                return evidence.known(exercise, found, [(code,)], "known_mistake")
            return evidence.unknown(exercise, (answer,), (expected,))
    return _far_positions(exercise, function, found, subject)


def fails(answer: Outcome, expected: Outcome) -> bool:
    """Whether a run ended in an error, a wrong shape or no finite numbers, rather than in other numbers."""
    if not answer.arrays:
        return True
    pairs = zip(answer.arrays, expected.arrays, strict=True)
    return any(a.shape != b.shape or not np.isfinite(a).all() for a, b in pairs)


def _far_positions(
    exercise: Exercise, function: Callable[..., Any], found: tuple[Outcome, ...], subject: Subject
) -> Result:
    if exercise.id != "pe.table":
        return evidence.passed()
    answer, expected = run(function, LONG, subject), run(subject.right, LONG, subject)
    if answer.arrays and same(answer.arrays[0], expected.arrays[0], 1.5e-5):
        return evidence.passed()
    if answer.arrays and _grows(answer.arrays[0], expected.arrays[0]):
        return evidence.known(exercise, found, [("PE-FLOAT32-ANGLES",)], "pass_variant")
    if same_outcome(answer, expected):
        return evidence.passed()
    return evidence.unknown(exercise, (answer,), (expected,))


def _grows(table: Array, expected: Array) -> bool:
    """Errors no larger than rounding an angle of this size to 24 bits can make them."""
    if table.shape != expected.shape:
        return False
    angles = np.arange(len(table))[:, None]
    return bool((np.abs(table - expected) <= 4e-7 * (1 + angles)).all())


def _precision(exercise_id: str, found: tuple[Outcome, ...]) -> str:
    """PE-FLOAT16 where every number is one of float16's and no further off than 11 bits can explain."""
    if exercise_id != "pe.table" or not all(outcome.arrays for outcome in found):
        return ""
    pairs = [(a.arrays[0], b.arrays[0]) for a, b in zip(found, right(exercise_id), strict=True)]
    coarse = all(
        a.shape == b.shape and np.array_equal(a.astype(np.float16), a) and (np.abs(a - b) < 2e-2).all()
        for a, b in pairs
    )
    return "PE-FLOAT16" if coarse else ""
