"""Read the answers that tests give to the checker.

Answers to exercises that ask for a function are in codings/, one file per topic. Such an answer is called a
coding. The other answers are in plain_answers.txt, one per line: `exercise | label and pattern | answer`.

A file of codings begins with code that its blocks share. A block begins with a line
`## exercise | label | pattern`, and then has an expression or a function. The label is one of these:

- right: correct
- variant: correct in an accepted variant
- remarked: correct, and the reply contains a remark
- wrong: wrong; the label is followed by the codes of the mistakes that the reply has to name
- unseen: wrong, and the reply does not contain the pattern.

The labels in plain_answers.txt are right, wrong and unread. Unread means that the answer cannot be parsed.

The pattern is a regular expression that the reply has to contain, except for the label unseen. Labels and
patterns were written from the tasks, before the checker was run on the code. If several wrong codings
get the same reply, only one is kept.
"""

import ast
import functools
import itertools
import math
import re
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from npformer.exercises import check, list_exercises
from npformer.exercises.bank import bank
from npformer.exercises.task import Code, Numbers

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent / "codings"
CODE = [task for task in list_exercises() if isinstance(task, Code)]
NUMBERS = [task for task in list_exercises() if isinstance(task, Numbers)]
check = functools.partial(check, level=3)  # replies of level 3 have the most text


class Coding(NamedTuple):
    """One coding with its label."""

    exercise: str
    label: str
    codes: tuple
    words: str  # the pattern, a regular expression
    function: object
    place: str  # the file, the number of the block and the first line of the block


@cache
def solution_of(exercise):
    """Return the bank's solution of an exercise as a function, not npformer's own function."""
    return code_task(exercise).right


def code_task(exercise) -> Code:
    """Return an exercise whose answer is a function."""
    task = bank()[exercise]
    assert isinstance(task, Code)
    return task


def evaluate(code, names):
    """Run a block, and return the value of its last expression or the function that it defines last."""
    *before, last = ast.parse(code).body
    scope = dict(names)
    if isinstance(last, ast.Expr):
        exec(compile(ast.Module(before, []), "<a coding>", "exec"), scope)
        return eval(compile(ast.Expression(last.value), "<a coding>", "eval"), scope)
    exec(compile(code, "<a coding>", "exec"), scope)
    return scope[last.name]


def read_codings(path):
    """Yield the codings of a file."""
    shared, *parts = re.split(r"^## (.*)\n", path.read_text(encoding="utf-8"), flags=re.M)
    names = {
        "np": np,
        "math": math,
        "functools": functools,
        "itertools": itertools,
        "Fraction": Fraction,
        "own": solution_of,
        "partial": functools.partial,
        "reduce": functools.reduce,
        "product": itertools.product,
    }
    exec(compile(shared, path.name, "exec"), names)
    heads = parts[::2]
    bodies = parts[1::2]
    for k, (head, code) in enumerate(zip(heads, bodies, strict=True)):
        exercise, label_and_codes, words = (part.strip() for part in head.split("|", 2))
        label, *codes = label_and_codes.split()
        place = f"{path.stem} {k}: {head}"
        yield Coding(exercise, label, tuple(codes), words, evaluate(code, names), place)


@cache
def list_codings():
    """Return the codings of all files."""
    return [coding for path in sorted(FOLDER.glob("*.txt")) for coding in read_codings(path)]


def plain_answers():
    """Yield (line, exercise, label, pattern, answer) for each answer that is not a function."""
    names = {"np": np, "math": math, "Fraction": Fraction, "inf": math.inf, "nan": math.nan}
    for line in FOLDER.with_name("plain_answers.txt").read_text(encoding="utf-8").splitlines():
        exercise, label_and_words, answer = line.split(" | ", 2)
        label, _, words = label_and_words.partition(" ")
        yield line, exercise, label, words, eval(answer, dict(names))


@cache
def get_reply(coding):
    """Return the reply to a coding; replies are cached, because several tests use the same reply."""
    return check(coding.exercise, coding.function)
