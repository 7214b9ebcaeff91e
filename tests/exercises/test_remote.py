"""Test that the checker can receive results and errors from functions that run in another process."""

import numpy as np
import pytest
from codings import check, solution_of

from npformer.exercises import checker, templates
from npformer.exercises.probe import Probe, call, run
from npformer.exercises.remote_calls import RemoteResult, StudentError

PROBE = Probe("x, y", ("z",), ((np.ones(2), np.ones(2)),))


def test_run_unpacks_a_remote_result():
    outcome = run(lambda x, y: RemoteResult(x + y, (1,)), PROBE.calls[0], PROBE)
    assert np.array_equal(outcome.raw, [2, 2])
    assert outcome.changed == ("y",)


def test_run_remote_none_is_empty():
    assert run(lambda x, y: RemoteResult(None, ()), PROBE.calls[0], PROBE).empty


def test_check_reports_arguments_changed_by_remote_call():
    def answer(scores):
        return RemoteResult(solution_of("softmax.forward")(scores), (0,))

    assert check("softmax.forward", answer).codes == ("MUTATES-INPUT",)


class Opaque:
    """A mock of the object by which the grader represents a value in another process."""

    kind = "DataFrame"


def test_run_names_the_type_of_remote_objects():
    outcome = run(lambda x, y: Opaque(), PROBE.calls[0], PROBE)
    assert outcome.unreadable.parameters == {"name": "z", "type": "DataFrame"}


RAISED = (
    (StudentError("KeyError", "no  x", 3, "f"), "KeyError: “no x” (line 3 of f)"),
    (StudentError("KeyError", "no x"), "KeyError: “no x”"),
    (StudentError("KeyError", "", 3, "f"), "KeyError (line 3 of f)"),
    (KeyError("no x"), "KeyError: 'no x' (line 2 of f)"),
    (KeyError(), "KeyError (line 2 of f)"),
)


@pytest.mark.parametrize(("error", "expected"), RAISED)
def test_run_describes_local_and_remote_errors(error, expected):
    def f(x, y):
        raise error

    outcome = run(f, PROBE.calls[0], PROBE)
    finding = next(checker.find_differences(PROBE, outcome, outcome))
    assert outcome.error.type_name == "KeyError"
    assert templates.sentence(finding) == f"In one of the checks, your function stopped with {expected}."


@pytest.mark.parametrize("error", [TypeError("x"), StudentError("TypeError", "x")])
def test_call_passes_mask_by_name_after_type_error(error):
    def f(x, *rest, mask=None):
        if rest:
            raise error
        return x, mask

    assert call(f, (1, 2), ["x", "mask"]) == (1, 2)
    assert call(f, (1, None), ["x", "mask"]) == (1, None)
    with pytest.raises(type(error)):
        call(f, (1, 2), ["x", "y"])


@pytest.mark.parametrize("error", [ValueError("x"), StudentError("ValueError", "x")])
def test_call_does_not_retry_after_other_errors(error):
    calls = []

    def f(*given, **named):
        calls.append(given)
        raise error

    with pytest.raises(type(error)):
        call(f, (1, 2), ["x", "mask"])
    assert calls == [(1, 2)]
