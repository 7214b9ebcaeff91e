"""Many cases in one test: each that fails is told by its name."""

import traceback


def failures(check, cases):
    """{case: what went wrong} of the cases, tuples of `check`'s arguments, that it does not hold for."""
    wrong = {}
    for case in cases:
        try:
            check(*case)
        except Exception as error:
            *_, last = traceback.extract_tb(error.__traceback__)
            name = ", ".join(each if isinstance(each, str) else repr(each)[:60] for each in case)
            wrong[name] = f"{type(error).__name__} in line {last.lineno} of {last.name}: {error}"
    return wrong
