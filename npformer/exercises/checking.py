"""`check`: one answer in, one result out. Letters, truth values and numbers are judged here."""

from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises.bank import Exercise, confusions, find, record
from npformer.exercises.computed import Posed, posed, tolerance
from npformer.exercises.mistakes import words
from npformer.exercises.reading import LETTERS, TRUTHS, read_letter, read_numbers, read_truth
from npformer.exercises.result import Result, passed, unanswered
from npformer.exercises.verdict import check_function


def check(exercise_id: str, answer: Any, *, level: int = 1) -> Result:
    """Check one answer: a letter, True or False, a number, a list of numbers or a function.

    An id may end in @ and a name, for a student's own numbers. Level 1 says what is right and what was
    seen, level 2 adds one question, level 3 the section to read. The answer's own errors become a result.

    Raises ValueError for an exercise that the bank does not have or a level that is not 1, 2 or 3.

    >>> check("ffn.sharing", "a", level=2).question
    'If a sentence grows by a word, does the network grow?'
    """
    exercise, name = find(exercise_id)
    if isinstance(level, bool) or not isinstance(level, int | np.integer):
        raise TypeError(f"check: level is {level!r}; expected 1, 2 or 3")
    if not 1 <= level <= 3:
        raise ValueError(f"check: level is {level}; expected 1, 2 or 3")
    result = _checked(exercise, answer, name)
    record(exercise.id, bool(result))
    if not result and level == 3:
        result = result._replace(hint=f"{result.hint} Read {_section(exercise, result)}.".strip())
    return result if level > 1 and not result else result._replace(question=None)


def _checked(exercise: Exercise, answer: Any, name: str) -> Result:
    try:
        return _read_and_checked(exercise, answer, name)
    except Exception as error:  # an answer may do anything, in its own methods too
        return Result("error", (), f"This answer cannot be read: {type(error).__name__}.", "", None)


def _read_and_checked(exercise: Exercise, answer: Any, name: str) -> Result:
    if answer is None or answer is ...:
        return unanswered()
    if exercise.kind == "code":
        if not callable(answer):
            return Result(
                "error", (), f"A function is asked for: {exercise.name}({exercise.signature}).", "", None
            )
        return check_function(exercise, answer)
    if callable(answer):
        return Result("error", (), "This is a function; its answer is asked for.", "", None)
    if exercise.kind == "choice":
        return check_choice(exercise, answer)
    if exercise.kind == "truth":
        return check_truth(exercise, answer)
    return check_numbers(exercise, answer, name)


def _section(exercise: Exercise, result: Result) -> str:
    known = words().get(result.codes[0]) if result.codes else None
    return known.read if known else exercise.read


def _unreadable(wanted: str) -> Result:
    return Result("error", (), f"This answer cannot be read; expected {wanted}.", "", None)


# --- letters and truth values ----------------------------------------------------------------------


def check_choice(exercise: Exercise, answer: Any) -> Result:
    """A letter, the number of an option counted from 1, or the option itself."""
    options = dict(zip(LETTERS, exercise.options, strict=False))
    letter = read_letter(answer, [option.text for option in exercise.options])
    if not letter:
        return _unreadable(f"a letter from a to {max(options)}")
    option = options[letter]
    if letter == exercise.right:
        return passed()
    return Result("known_mistake", (option.confusion,), option.says, "", exercise.question)


def check_truth(exercise: Exercise, answer: Any) -> Result:
    """True or False; 1 and 0 and the words count too."""
    said = read_truth(answer)
    if said is None:
        return _unreadable("True or False")
    if said == TRUTHS[exercise.right]:
        return passed()
    option = exercise.options[0]
    return Result("known_mistake", (option.confusion,), option.says, "", exercise.question)


# --- numbers ---------------------------------------------------------------------------------------


def check_numbers(exercise: Exercise, answer: Any, name: str) -> Result:
    """A number or a list of numbers, for the parameters that belong to the student's name."""
    question = posed(exercise.recipe, exercise.id, name)
    right = np.asarray(question.answer, float)
    given = read_numbers(answer, right.shape, whole=question.decimals == 0)
    if given is None:
        return _unreadable(
            "a number such as 0.25, without words" if right.ndim == 0 else f"a list of {right.size} numbers"
        )
    if close(given, right, question.decimals):
        return passed()
    fits = [
        code
        for code, value in question.wrong.items()
        if close(given, np.asarray(value, float), question.decimals)
    ]
    if fits:
        return _named(exercise, _nearest(fits, given, question), _right_first(given, question))
    seen, asks = _rounded(given, question) or _likeness(given, right, question.decimals)
    if seen:
        return Result("unrecognised", (), seen, "", asks)
    seen = _right_first(given, question)
    return Result("unrecognised", (), seen, "No known mistake fits.", exercise.question)


def close(a: Array, b: Array, decimals: int) -> bool:
    """Equal to the decimals that are asked for; the last one may be off by a little more than its half."""
    return a.shape == b.shape and bool((np.abs(a - b) <= tolerance(decimals)).all())


def _nearest(fits: list[str], given: Array, question: Posed) -> list[str]:
    """Of several wrong answers those that are met to the last digit, where the answer has so many."""
    if np.allclose(given, np.round(given, question.decimals), rtol=0, atol=1e-9):
        return fits
    wrong = {code: np.asarray(question.wrong[code], float) for code in fits}
    exact = [code for code, value in wrong.items() if np.allclose(given, value, rtol=1e-7, atol=1e-9)]
    return exact or fits


def _named(exercise: Exercise, fits: list[str], first: str) -> Result:
    sees, cause, asks = _said_of(fits[0], exercise)
    status = "ambiguous" if len(fits) > 1 else "known_mistake"
    causes = " ".join(dict.fromkeys(_said_of(code, exercise)[1] for code in fits)) if cause else ""
    return Result(status, tuple(fits), f"{first} {sees}".strip(), causes.strip(), asks)


def _said_of(code: str, exercise: Exercise) -> tuple[str, str, str]:
    """(observation, cause, question) for a number that shows this mistake or confusion."""
    if code in words():
        return "", words()[code].cause, words()[code].question
    return confusions()[code], "", exercise.question


def _rounded(given: Array, question: Posed) -> tuple[str, str] | None:
    """What is said and asked of an answer that is right, and rounded or cut too far; None of another."""
    right = np.asarray(question.answer, float)
    if given.shape != right.shape or not np.isfinite(given).all():
        return None
    for kept in range(question.decimals - 1, -1, -1):
        unit = 10.0**-kept
        whole = np.allclose(given / unit, np.round(given / unit), rtol=0, atol=1e-9)
        rounded = np.abs(given - right).max() <= (0.5 + 1e-9) * unit  # a half may go either way
        cut = np.allclose(given, np.trunc(right / unit) * unit, rtol=0, atol=1e-9)
        if given.any() and whole and (rounded or cut):
            seen = (
                f"This is right as far as it goes: it is {'rounded' if rounded else 'cut off'} after {kept} "
                f"decimals, and {question.decimals} are asked for."
            )
            return seen, "How many decimals does the task ask for?"
    return None


def _likeness(given: Array, right: Array, decimals: int) -> tuple[str, str]:
    """What is seen and asked of numbers that miss by a sign, by one, by their order, a factor or a sum."""
    if given.shape != right.shape or not np.isfinite(given).all():
        return "", ""
    if close(-given, right, decimals):
        seen = "Only the sign differs." if right.ndim == 0 else "The sizes are right, and every sign differs."
        return seen, "Where does a sign get lost?"
    if right.ndim == 0:
        return _count_like(given, right) if decimals == 0 else ("", "")
    if close(np.sort(given), np.sort(right), decimals):
        return "The numbers are the right ones, in another order.", "Which number belongs to which place?"
    if close(abs(given), abs(right), decimals):
        return "The sizes are right, and not all of the signs.", "Where does a sign get lost?"
    if close(given - given.mean(), right - right.mean(), decimals):
        return "Every number is off by the same amount.", "What is added to every number?"
    factor = float(given @ right / (right @ right))
    if factor and close(given / factor, right, decimals) and close(given, factor * right, decimals):
        return "Every number is off by the same factor.", "What is every number multiplied by?"
    return "", ""


def _count_like(given: Array, right: Array) -> tuple[str, str]:
    """What is seen of a count that is nearly right."""
    if abs(right) >= FEW and abs(given - right) == 1:
        return "One off.", "Are the first and the last both counted, and only once?"
    if abs(right) >= MANY and abs(given - right) < 0.01 * abs(right):
        return "The size is right; a count is asked for, to its last digit.", "What is counted, part by part?"
    return "", ""


MANY = 1000  # of a larger whole number a few more or less are left out by rounding
FEW = 10  # of a smaller whole number "one off" would leave nothing to think about


def _right_first(given: Array, question: Posed) -> str:
    """What is right: the form, and in a list the numbers that agree."""
    right = np.asarray(question.answer, float)
    if given.shape != right.shape:
        wanted = "one number" if right.ndim == 0 else f"a list of {right.size} numbers"
        seen = f"The answer has {given.size} numbers, in the shape {given.shape}; {wanted} is asked for."
        return seen if right.ndim else f"{seen} In Python a comma begins another number: 12345, not 12,345."
    if not np.isfinite(given).all():
        return "This is not a finite number."
    if right.ndim == 0:
        return "One number, as asked."
    fine = np.abs(given - right) <= tolerance(question.decimals)
    agree = f"; {int(fine.sum())} of {right.size} agree," if fine.any() else ";"
    return f"{right.size} numbers, as asked{agree} number {int(np.argmin(fine)) + 1} differs first."
