"""The time limit of an answer: by CPU time and by the clock."""

import signal
import threading
import time
from contextlib import suppress

import pytest
from codings import check

from npformer.exercises import checker
from npformer.exercises.probe import TooLong, limit_time, pause_wall_limit


def computes(s):
    while True:
        s = s + 0


def sleeps(s):
    while True:
        time.sleep(0.5)


def catches_exceptions(s):
    while True:
        with suppress(Exception):
            time.sleep(0.5)


def catches_all(s):
    while True:
        try:
            time.sleep(0.5)
        except:  # noqa: E722
            pass


def catches_all_and_goes_on(s):
    try:
        time.sleep(1000)
    except:  # noqa: E722
        pass
    sleeps(s)


def waits_in_a_library(s):
    while True:
        with suppress(BaseException):
            threading.Event().wait(1000)


@pytest.mark.parametrize(
    "answer", [computes, sleeps, catches_exceptions, catches_all, catches_all_and_goes_on, waits_in_a_library]
)
def test_check_ends_an_endless_answer(answer, monkeypatch):
    monkeypatch.setattr(checker, "SECONDS", 0.05)
    started = time.monotonic()
    result = check("softmax.forward", answer)
    assert time.monotonic() - started < 10
    assert (result.status, result.evidence) == ("error", "It was still running after 0.05 seconds.")
    assert check("order.bag", "b"), "the timers are off"
    assert signal.getitimer(signal.ITIMER_REAL) == signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


def test_within_continues_the_outer_limit():
    with pytest.raises(TooLong), limit_time(0.1):
        with limit_time(5.0):
            pass
        remaining, interval = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < remaining <= 0.3 and interval == 1.0
        time.sleep(1000)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_pause_wall_limit_stops_the_clock():
    with limit_time(0.05):
        with pause_wall_limit():
            time.sleep(0.3)
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    with pytest.raises(TooLong), limit_time(0.05):
        with pause_wall_limit():
            pass
        time.sleep(1000)


def test_within_has_no_limit_outside_the_main_thread():
    def compute():
        with limit_time(0.0):
            sums.append(sum(range(1000)))

    sums = []
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join()
    assert sums == [499500]
