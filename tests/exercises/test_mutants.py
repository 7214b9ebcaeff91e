"""Every one-step mutant of a solution is rejected, or is the same function."""

import random

import numpy as np
import pytest
from codings import CODE, check
from mutants import mutant, steps

from npformer.exercises.bank.questions import DRAWN, FRESH
from npformer.exercises.probe import Draws, run, suppress_warnings
from npformer.exercises.task import compiled

SAMPLE = 2  # mutants of an exercise in the suite; all of them with -m slow
OTHER_SEEDS = range(DRAWN + FRESH, DRAWN + FRESH + 12)  # calls that the checker does not make
TOO_SMALL = {  # a base that is off by one in ten thousand moves short texts less than float32 is accurate
    "rope.attention": ("10000.0 -> 10001.0", "10000.0 -> 9999.0"),
    "port.block": ("10000.0 -> 10001.0", "10000.0 -> 9999.0"),
}
ALLOWED = {  # variants that pass on purpose: other layouts of the position table
    "pe.table": {"pass_variant"},
    "ffn.backward": {"pass_variant"},
}


def is_same_function(task, mutant):
    """Whether a mutant gives the solution's numbers on many calls, to the last digits."""
    for seed in OTHER_SEEDS:
        given = task.draw(Draws(seed))
        found, expected = (run(function, given, task.probe) for function in (mutant, task.right))
        if len(found.arrays) != len(expected.arrays):
            return False
        with suppress_warnings():
            pairs = zip(found.arrays, expected.arrays, strict=True)
            if not all(a.shape == b.shape and np.allclose(a, b, rtol=1e-6, atol=1e-9) for a, b in pairs):
                return False
    return True


def offending(task, chosen):
    """The mutants that pass and are no variant, and not the same function."""
    for what, text in chosen:
        if what in TOO_SMALL.get(task.id, ()):
            continue
        function = compiled(text)
        result = check(task.id, function)
        if result and result.status not in ALLOWED.get(task.id, ()) and not is_same_function(task, function):
            yield what


@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_a_sample_of_mutants_is_rejected(task):
    chosen = random.Random(task.id).sample(steps(task.solution), SAMPLE)
    assert list(offending(task, map(mutant, chosen))) == []


@pytest.mark.slow
@pytest.mark.parametrize("task", CODE, ids=lambda task: task.id)
def test_every_mutant_is_rejected(task):
    assert list(offending(task, sorted(set(map(mutant, steps(task.solution)))))) == []
