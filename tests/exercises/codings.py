"""Answers as people might write them, read by test_codings.py: functions, a topic a file in codings/, the
others in plain_answers.txt, as `exercise | right, wrong or unread, and words of the reply | answer`.

A file begins with what its blocks share. A block is a line `## exercise | label | words` and an expression or
a function. The label is right, variant (right in another form), remarked (right, with a remark), wrong, with
the codes of the mistakes that have to be named, or unseen. The words, a regular expression, have to stand in
the reply, but for an unseen slip. Labels and words were written from the tasks, before the checker saw the
code. Of answers to which it says the same, one is kept.
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

ROOT, FOLDER = Path(__file__).parents[2], Path(__file__).parent / "codings"
CODE = [task for task in list_exercises() if isinstance(task, Code)]
NUMBERS = [task for task in list_exercises() if isinstance(task, Numbers)]
check = functools.partial(check, level=3)  # which says most


class Coding(NamedTuple):
    """One block."""

    exercise: str
    label: str
    codes: tuple
    words: str
    function: object
    place: str


@cache
def own(exercise):
    """The exercise's solution: right, and not npformer's function."""
    return bank()[exercise].right


def made(code, names):
    """The value of an expression, or the last thing that is defined."""
    *before, last = ast.parse(code).body
    scope = dict(names)
    if isinstance(last, ast.Expr):
        exec(compile(ast.Module(before, []), "<a coding>", "exec"), scope)
        return eval(compile(ast.Expression(last.value), "<a coding>", "eval"), scope)
    exec(compile(code, "<a coding>", "exec"), scope)
    return scope[last.name]


def blocks(path):
    """The codings of a file."""
    shared, *parts = re.split(r"^## (.*)\n", path.read_text(encoding="utf-8"), flags=re.M)
    names = dict(np=np, math=math, functools=functools, itertools=itertools, Fraction=Fraction, own=own)
    names |= dict(partial=functools.partial, reduce=functools.reduce, product=itertools.product)
    exec(compile(shared, path.name, "exec"), names)
    for k, (head, code) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        exercise, said, words = (part.strip() for part in head.split("|", 2))
        label, *codes = said.split()
        yield Coding(exercise, label, tuple(codes), words, made(code, names), f"{path.stem} {k}: {head}")


@cache
def codings():
    """All of them."""
    return [coding for path in sorted(FOLDER.glob("*.txt")) for coding in blocks(path)]


def plain_answers():
    """(line, exercise, label, words of the reply, answer) of those that are no functions."""
    names = {"np": np, "math": math, "Fraction": Fraction, "inf": math.inf, "nan": math.nan}
    for line in FOLDER.with_name("plain_answers.txt").read_text(encoding="utf-8").splitlines():
        exercise, said, written = line.split(" | ", 2)
        label, _, words = said.partition(" ")
        yield line, exercise, label, words, eval(written, dict(names))


@cache
def reply(coding):
    """What the checker says; asked once, however many tests look at it."""
    return check(coding.exercise, coding.function)
