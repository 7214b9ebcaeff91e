"""Bad input is refused before any arithmetic and in our own words."""

import contextlib
from collections import defaultdict
import numpy as np
import pytest
from bad_calls import CHECKED, faults_of, spoilt, valid_places
from valid_calls import CALLS, call, fingerprint, with_arrays

import npformer as npf


class Arithmetic(AssertionError):
    """NumPy was asked to calculate."""


class Spy(np.ndarray):
    """An array that can be looked at (shape, dtype) and cut, but not calculated with."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        raise Arithmetic(ufunc.__name__)

    def __array_function__(self, function, types, args, options):
        raise Arithmetic(function.__name__)


def spied(array):
    floats = type(array) is np.ndarray and array.dtype in (np.float32, np.float64)
    return array.view(Spy) if floats else array


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory):
    """Where files are written."""
    with contextlib.chdir(tmp_path_factory.mktemp("files")):
        yield


def refusal(name, arguments):
    """What the call ends in: an error of ours, raised before anything was changed, with nothing chained."""
    before = fingerprint(arguments)
    try:
        call(name, arguments)
    except (TypeError, ValueError) as error:
        assert fingerprint(arguments) == before
        assert error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)
        return error
    return None


def problem(place, fault):
    """What is wrong with the answer to a bad call; nothing when it is refused as it should be."""
    arguments = spoilt(place, fault)
    for version in (arguments, with_arrays(arguments, spied))[: 1 if fault.error is None else 2]:
        received = fault.received if version is arguments else ""
        error = refusal(place.function, version)
        if fault.error is None:
            return error and f"refused: {error}"
        message = str(error)
        start = f"{place.function}: {place.path}"
        if (
            type(error) is not fault.error
            or not message.startswith(start)
            or message[len(start)] not in " .'"
        ):
            return f"{type(error).__name__} {message}"
        if received not in message or "; expected " not in message or len(message) > 300 or "\n" in message:
            return message
    return None


PLACES = [place for name in CHECKED for place in valid_places(name)]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_what_may_not_stand_in_a_place_is_refused(place):
    found = {}
    for fault in faults_of(place, valid_places(place.function)):
        if (wrong := problem(place, fault)) is not None:
            found[fault.name] = wrong
    assert found == {}
