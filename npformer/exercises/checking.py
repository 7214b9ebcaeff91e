"""`check`: one answer in, one result out."""

from typing import Any

from npformer.exercises import answers, code, evidence
from npformer.exercises.bank import Exercise, find
from npformer.exercises.mistakes import words
from npformer.exercises.progress import record
from npformer.exercises.result import Result
from npformer.validate import check_integer


def check(exercise_id: str, answer: Any, *, level: int = 1) -> Result:
    """Check one answer: a letter, True or False, a number, a list of numbers or a function.

    An id may end in @ and a name, for a student's own numbers. Level 1 says what is right and what was
    seen, level 2 adds one question, level 3 the section to read. The answer's own errors become a result.

    Raises ValueError for an exercise that the bank does not have or a level that is not 1, 2 or 3.

    >>> check("ffn.sharing", "a", level=2).question
    'If a sentence grows by a word, does the network grow?'
    """
    exercise, name = find(exercise_id)
    check_integer("check", "level", level, minimum=1)
    if level > 3:
        raise ValueError(f"check: level is {level}; expected 1, 2 or 3")
    result = _checked(exercise, answer, name)
    record(exercise.id, bool(result))
    if not result and level == 3:
        result = result._replace(hint=f"{result.hint} Read {_section(exercise, result)}.".strip())
    return result if level > 1 and not result else result._replace(question=None)


def _checked(exercise: Exercise, answer: Any, name: str) -> Result:
    if answer is None or answer is ...:
        return evidence.unanswered()
    if exercise.kind == "code":
        if not callable(answer):
            return Result(
                "error", (), f"A function is asked for: {exercise.name}({exercise.signature}).", "", None
            )
        return code.check_function(exercise, answer)
    if callable(answer):
        return Result("error", (), "This is a function; its answer is asked for.", "", None)
    if exercise.kind == "choice":
        return answers.check_choice(exercise, answer)
    if exercise.kind == "truth":
        return answers.check_truth(exercise, answer)
    return answers.check_numbers(exercise, answer, name)


def _section(exercise: Exercise, result: Result) -> str:
    known = words().get(result.codes[0]) if result.codes else None
    return known.read if known else exercise.read
