"""Test that the checker rejects every mutant of a solution, unless the mutant gives the same numbers."""

import random

import numpy as np
import pytest
from codings import CODE, check
from mutants import mutant, steps

from npformer.exercises.bank.questions import DRAWN, FRESH
from npformer.exercises.probe import Draws, run, suppress_warnings
from npformer.exercises.task import compile_function

SAMPLE = 2  # the number of mutants per exercise in the fast tests; -m slow runs all
OTHER_SEEDS = range(DRAWN + FRESH, DRAWN + FRESH + 12)  # seeds of calls that the checker does not make
TOO_SMALL = {  # these mutants may pass: for short texts, their effect is below the accuracy of float32
    "rope.attention": ("10000.0 -> 10001.0", "10000.0 -> 9999.0"),
    "port.block": ("10000.0 -> 10001.0", "10000.0 -> 9999.0"),
}
ALLOWED = {  # a mutant may be an accepted variant, such as a different layout of the position table
    "pe.table": {"pass_variant"},
    "ffn.backward": {"pass_variant"},
}


def is_same_function(task, mutant):
    """Return whether a mutant gives the same numbers as the solution on many calls."""
    for seed in OTHER_SEEDS:
        given = task.draw(Draws(seed))
        found = run(mutant, given, task.probe)
        expected = run(task.right, given, task.probe)
        if len(found.arrays) != len(expected.arrays):
            return False
        with suppress_warnings():
            pairs = zip(found.arrays, expected.arrays, strict=True)
            if not all(a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-9) for a, b in pairs):
                return False
    return True


def find_accepted(task, mutants):
    """Yield descriptions of mutants that pass, although they are wrong and not accepted variants."""
    for description, text in mutants:
        if description in TOO_SMALL.get(task.id, ()):
            continue
        function = compile_function(text)
        result = check(task.id, function)
        is_allowed = not result or result.status in ALLOWED.get(task.id, ())
        if not is_allowed and not is_same_function(task, function):
            yield description


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_check_rejects_a_sample_of_mutants(task):
    sample = random.Random(task.id).sample(steps(task.solution), SAMPLE)
    assert list(find_accepted(task, map(mutant, sample))) == []


@pytest.mark.slow
@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_check_rejects_every_mutant(task):
    mutants = sorted(set(map(mutant, steps(task.solution))))
    assert list(find_accepted(task, mutants)) == []
