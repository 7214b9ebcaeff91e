"""Read the exercises from questions.md and the feedback on mistakes from mistakes.md.

The docstring of the package `npformer.exercises.bank` defines the terms call, fresh call, edit, intermediate
result (`landmarks`) and direction.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from npformer.exercises.probe import Arguments, Draws, Probe, draw_from_axes
from npformer.exercises.task import (
    RIGHT,
    Choice,
    Code,
    Draw,
    Mistake,
    Numbers,
    Place,
    PosedQuestion,
    Truth,
    Wrong,
    compile_function,
    replace_result,
)

DRAWN = 2  # the number of random calls on which an answer is checked
FRESH = 2  # the number of fresh calls, which have to confirm each finding
QUESTION = re.compile(
    r"""^## (?P<id>\S+) \((?P<topic>.+), level (?P<level>\d)\)

(?P<task>.+)

(?P<answers>(?:- .+\n(?:  .+\n)?)*)\n?Hint: (?P<hint>.+)
Ask: (?P<question>.+)""",
    re.MULTILINE,
)
ANSWER = re.compile(r"^- (?:\[([x ])\] (.+)\n?)?(?: *([A-Z0-9-]+): (.+))?", re.MULTILINE)
MISTAKE = re.compile(
    r"""^## (?P<code>\S+)(?: \((?P<kind>\w+)(?:, within (?P<tolerance>\S+))?\))?
(?P<sees>.+)
(?P<sees_in>(?:In \S+(?:, \S+)*: .+\n)*)(?P<cause>.+)
(?P<question>.+)""",
    re.MULTILINE,
)
SEES_IN = re.compile(r"^In (\S+(?:, \S+)*): (.+)", re.MULTILINE)


def read_text(name: str) -> str:
    """Return the text of questions.md or mistakes.md."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def find_sections(text: str, pattern: re.Pattern[str]) -> Iterator[dict[str, Any]]:
    """Yield a dict of the named groups for every match of the pattern.

    The key "place" has the `Place` of the match: what to read, and the section of the lesson.
    """
    for section in text.split("\n# ")[1:]:
        teach, read = section[: section.index(".\n\n## ")].split("\n\nRead ")
        for match in pattern.finditer(section):
            fields = {name: value for name, value in match.groupdict().items() if value is not None}
            fields["place"] = Place(read, teach)
            yield fields


# --- mistakes ----------------------------------------------------------------------------------------


def mistakes_of(text: str) -> dict[str, Mistake]:
    """Return the mistakes that a text in the format of mistakes.md describes, by their codes."""
    found = {}
    for fields in find_sections(text, MISTAKE):
        fields["sees_in"] = {
            exercise: observation
            for exercises, observation in SEES_IN.findall(fields["sees_in"])
            for exercise in exercises.split(", ")
        }
        if "tolerance" in fields:
            fields["tolerance"] = float(fields["tolerance"])
        found[fields["code"]] = Mistake(**fields)
    return found


@cache
def load_mistakes() -> dict[str, Mistake]:
    """Return all mistakes of mistakes.md, by their codes."""
    return mistakes_of(read_text("mistakes.md"))


# --- questions ---------------------------------------------------------------------------------------


class Question(NamedTuple):
    """The fields of an exercise in questions.md, and the feedback on each wrong answer."""

    task: dict[str, Any]  # arguments for a subclass of Task
    answers: dict[str, Wrong]  # key: the text of an option, or the code of a wrong number


def questions_of(text: str) -> dict[str, Question]:
    """Return the questions that a text in the format of questions.md contains, by their ids."""
    found = {}
    for task in find_sections(text, QUESTION):
        answers = {}
        for mark, option, code, feedback in ANSWER.findall(task.pop("answers")):
            is_correct = mark == "x"
            answers[option or code] = RIGHT if is_correct else Wrong(code, feedback)
        task["level"] = int(task["level"])
        found[task["id"]] = Question(task, answers)
    return found


@cache
def load_questions() -> dict[str, Question]:
    """Return all questions of questions.md, by their ids."""
    return questions_of(read_text("questions.md"))


def choice_exercises() -> Iterator[Choice | Truth]:
    """Yield the exercises that need no code: multiple choice, and true or false."""
    for task, answers in load_questions().values():
        if list(answers) == ["True", "False"]:
            right = answers["True"] is RIGHT
            yield Truth(**task, right=right, wrong=answers[str(not right)])
        elif RIGHT in answers.values():
            yield Choice(**task, options=answers)


def number_exercise(name: str, decimals: int = 0) -> Callable[[Callable[[Draw], PosedQuestion]], Numbers]:
    """Turn the decorated function into the exercise with this id.

    The decorated function draws the numbers of the question. It returns these numbers, the correct answer,
    and the wrong answers by the codes of their mistakes.
    """
    task, answers = load_questions()[name]

    def exercise(draw: Callable[[Draw], PosedQuestion]) -> Numbers:
        def posed(numbers: Draw) -> PosedQuestion:
            question = draw(numbers)
            wrong: dict[Any, Any] = {}
            for code, value in question.wrong.items():
                mistake = answers[code] if code in answers else load_mistakes()[code]
                wrong[mistake] = value
            return question._replace(wrong=wrong)

        return Numbers(**task, draw=posed, decimals=decimals)

    return exercise


def with_sizes_of_1(draw: Callable[[Draws], Arguments]) -> Iterator[Arguments]:
    """Yield one random call for each size that `draw` draws.

    This size is 1 in the call, if the exercise allows 1.
    """
    counting = Draws(0)
    draw(counting)
    for k in range(counting.count):
        yield draw(Draws(0, one=k))


def function_exercise(
    name: str,
    outputs: tuple[str, ...],
    calls: tuple[Arguments, ...],
    *,
    draw: Callable[[Draws], Arguments] | None = None,
    **parts: Any,
) -> Code:
    """Make an exercise that asks for a function.

    Parameters
    ----------
    name : str
        The id of the exercise in questions.md.
    outputs : tuple of str
        The names of the values that the function returns.
    calls : tuple of tuples
        One call for each edge case that the task allows. This function adds random calls.
    draw : callable, optional
        Makes a random call. By default, each argument is a random array with the axes in `axes`.
    parts : further fields of `Code` and `Probe`
        `solution` is a text. The keys of `mistakes` and `hard` are the codes of mistakes. The values of
        `landmarks` and `directions` are edits of the solution, or expressions to return instead.
    """
    text, right = parts["solution"], compile_function(parts["solution"])
    for part in ("mistakes", "hard"):
        parts[part] = {load_mistakes()[code]: edits for code, edits in parts.get(part, {}).items()}
    for part in ("landmarks", "directions"):
        parts[part] = {name: replace_result(text, edit) for name, edit in parts.get(part, {}).items()}
    probe_parts = {part: parts.pop(part) for part in Probe._fields if part in parts}
    probe = Probe(str(signature(right))[1:-1], outputs, (), **probe_parts)
    draw = draw or partial(draw_from_axes, probe)
    random_calls = [draw(Draws(seed)) for seed in range(DRAWN + FRESH)]
    every_call = (*calls, *random_calls[:DRAWN], *with_sizes_of_1(draw))
    probe = probe._replace(calls=every_call, fresh=tuple(random_calls[DRAWN:]))
    return Code(**load_questions()[name].task, probe=probe, draw=draw, **parts)
