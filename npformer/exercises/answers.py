"""Checking what is not a function: letters, truth values, numbers and short lists of numbers."""

from typing import Any

import numpy as np

from npformer.exercises import evidence
from npformer.exercises.bank import Exercise
from npformer.exercises.confusions import said_of
from npformer.exercises.recipes import posed
from npformer.exercises.result import Result

LETTERS = "abcdef"
WORDS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
ROUNDING = 6e-4  # three decimals are enough


def check_choice(exercise: Exercise, answer: Any) -> Result:
    """A letter, or the number of an option counted from 1."""
    options = dict(zip(LETTERS, exercise.options, strict=False))
    letter = str(answer).strip().rstrip(").").casefold()
    if letter.isdecimal() and 1 <= int(letter) <= len(options):
        letter = LETTERS[int(letter) - 1]
    if letter not in options:
        return _unreadable(f"a letter from a to {max(options)}")
    option = options[letter]
    if letter == exercise.right:
        return evidence.passed()
    return Result("known_mistake", (option.confusion,), option.says, "", exercise.question)


def check_truth(exercise: Exercise, answer: Any) -> Result:
    """True or False; 1 and 0 and the words count too."""
    said = WORDS.get(str(answer).strip().casefold())
    if said is None:
        return _unreadable("True or False")
    if said == WORDS[exercise.right]:
        return evidence.passed()
    option = exercise.options[0]
    return Result("known_mistake", (option.confusion,), option.says, "", exercise.question)


def check_numbers(exercise: Exercise, answer: Any, name: str) -> Result:
    """A number or a list of numbers, for the parameters that belong to the student's name."""
    question = posed(exercise.recipe, exercise.id, name)
    right = np.asarray(question.answer, float)
    try:
        given = np.asarray(answer, float)
    except (TypeError, ValueError):
        return _unreadable("a number" if right.ndim == 0 else f"a list of {right.size} numbers")
    if close(given, right):
        return evidence.passed()
    fits = [code for code, wrong in question.wrong.items() if close(given, np.asarray(wrong, float))]
    if fits:
        sees, cause, asks = said_of(fits[0], exercise)
        status = "ambiguous" if len(fits) > 1 else "known_mistake"
        causes = " ".join(dict.fromkeys(said_of(code, exercise)[1] for code in fits)) if cause else ""
        seen = f"{_right_first(given, right)} {sees}".strip()
        return Result(status, tuple(fits), seen, causes, asks)
    return Result("unrecognised", (), _right_first(given, right), "No known mistake fits.", exercise.question)


def close(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    """Equal to about three decimals, or three digits of a large number that is not whole."""
    if a.shape != b.shape:
        return False
    return bool(np.isclose(a, b, rtol=0, atol=_tolerance(b)).all())


def _tolerance(right: np.ndarray[Any, Any]) -> float:
    """Whole numbers are counted, the others rounded."""
    whole = bool((right == np.round(right)).all())
    return ROUNDING if whole else ROUNDING * max(1.0, float(np.abs(right).max()))


def _right_first(given: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> str:
    """What is right: the form, and in a list the numbers that agree."""
    if given.shape != right.shape:
        return f"The answer has shape {given.shape}; one of shape {right.shape} is asked for."
    if right.ndim == 0:
        return "One number, as asked."
    fine = np.isclose(given, right, rtol=0, atol=_tolerance(right))
    agree = f"; {int(fine.sum())} of {right.size} agree," if fine.any() else ";"
    return f"{right.size} numbers, as asked{agree} number {int(np.argmin(fine)) + 1} differs first."


def _unreadable(wanted: str) -> Result:
    return Result("error", (), f"This answer cannot be read; expected {wanted}.", "", None)
