"""Run many cases in one test, and report all failing cases by their names."""

import copy
import functools
import inspect
import traceback

import numpy as np


def failures(check, cases):
    """Return {name of case: error} for all cases in which `check` fails. A case is a tuple of arguments."""
    wrong = {}
    for case in cases:
        try:
            check(*case)
        except Exception as error:
            *_, last = traceback.extract_tb(error.__traceback__)
            name = ", ".join(str(each)[:60] for each in case)
            wrong[name] = f"{type(error).__name__} in line {last.lineno} of {last.name}: {error}"
    return wrong


def together(names, cases):
    """Like pytest.mark.parametrize, but with one test for all cases. Each case gets its own fixtures."""
    if isinstance(names, str):
        names, cases = (names,), [(case,) for case in cases]

    def decorate(test):
        @functools.wraps(test)
        def whole(*given, **fixtures):
            def check(*case):
                fresh = {name: afresh(value) for name, value in fixtures.items()}
                test(*given, **fresh, **dict(zip(names, case, strict=True)))

            if wrong := failures(check, cases):
                raise AssertionError("".join(f"\n{case}: {said}" for case, said in wrong.items()))

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name not in names]
        whole.__signature__ = signature.replace(parameters=others)
        return whole

    return decorate


def afresh(fixture):
    return copy.deepcopy(fixture) if isinstance(fixture, np.random.Generator | np.ndarray) else fixture
