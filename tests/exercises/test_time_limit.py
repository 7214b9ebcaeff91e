"""Test the limits of CPU time and of elapsed time for an answer."""

import signal
import sys
import threading
import time
import weakref
from contextlib import suppress

import pytest
from codings import check

from npformer.exercises import checker
from npformer.exercises.probe import TooLong, limit_time, pause_wall_limit


def compute_forever(s):
    while True:
        s = s + 0


def sleep_forever(s):
    while True:
        time.sleep(0.5)


def catch_exceptions(s):
    while True:
        with suppress(Exception):
            time.sleep(0.5)


def catch_all_errors(s):
    while True:
        try:
            time.sleep(0.5)
        except:  # noqa: E722
            pass


def catch_all_errors_once(s):
    try:
        time.sleep(1000)
    except:  # noqa: E722
        pass
    sleep_forever(s)


class Thing:
    """An object that can have weak references."""


def sleep_in_weakref_callback(s):
    """Sleep where Python ignores every error and only prints a message about it."""
    thing = Thing()
    reference = weakref.ref(thing, sleep_forever)  # noqa: F841
    del thing
    sleep_forever(s)


def wait_in_library(s):
    while True:
        with suppress(BaseException):
            threading.Event().wait(1000)


@pytest.mark.parametrize(
    "answer",
    [
        compute_forever,
        sleep_forever,
        catch_exceptions,
        catch_all_errors,
        catch_all_errors_once,
        sleep_in_weakref_callback,
        wait_in_library,
    ],
)
def test_check_stops_endless_functions(answer, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checker, "SECONDS", 0.05)
        result = check("softmax.forward", answer)
    assert (result.status, result.evidence) == ("error", "The code was still running after 0.05 seconds.")
    assert check("order.bag", "b"), "a timer is still running"
    assert signal.getitimer(signal.ITIMER_REAL) == signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_limit_time_reports_other_ignored_errors(monkeypatch):
    reported = []
    monkeypatch.setattr(sys, "unraisablehook", reported.append)
    thing = Thing()
    reference = weakref.ref(thing, lambda reference: 1 / 0)  # noqa: F841
    with limit_time(1000):
        del thing
    (unraisable,) = reported
    assert unraisable.exc_type is ZeroDivisionError and sys.unraisablehook == reported.append


def test_limit_time_continues_the_outer_limit():
    with pytest.raises(TooLong), limit_time(0.1):
        with limit_time(5.0):
            pass
        remaining, interval = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < remaining <= 0.3 and interval == 1.0
        time.sleep(1000)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_pause_wall_limit_stops_elapsed_time():
    with limit_time(1000):
        with pause_wall_limit():
            assert signal.getitimer(signal.ITIMER_REAL)[0] == 0.0
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    with pytest.raises(TooLong), limit_time(0.05):
        with pause_wall_limit():
            pass
        time.sleep(1000)


def test_limit_time_is_inactive_outside_main_thread():
    def compute():
        with limit_time(0.0):
            sums.append(sum(range(1000)))

    sums = []
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert sums == [499500]
