"""What a reply says, and what it must not say: slips that were met after the observations were written."""

from functools import partial

import numpy as np
import pytest
from codings import own

from npformer.exercises import check
from npformer.exercises.reading import read_letter, read_number, read_truth

check = partial(check, level=3)  # which says most


# --- numbers and letters ---------------------------------------------------------------------------


def test_a_number_with_all_its_digits_tells_mistakes_apart():
    rounded, whole = check("pe.entry", 1.0), check("pe.entry", np.cos(23 / 10000**0.75))
    assert len(rounded.codes) > 1 and whole.codes == ("PE-EXP-COLUMN",)


NUMBERS = {
    "1 234": 1234,
    "1'234'567": 1234567,
    "-1,234,567": -1234567,
    "0,5": 0.5,
    "-3/4": -0.75,
    "12,5 %": 0.125,
}
NO_NUMBERS = ("1/0", "1/", "x%", "1 23", "6 KB", "1,23,456")
LETTERS = {**dict.fromkeys(("B", "2", "b) cosine", "the answer is b.", "Option b", "Cosine."), "b")}
LETTERS |= dict.fromkeys(("because", "c", "3", "b or a", "ab"), "")
TRUTHS = {"yes": True, "No, never": False, "true: it is": True, "no idea": None, "": None, "x.": None}


def test_numbers_letters_and_truth_values_are_read_or_not():
    assert {text: read_number(text) for text in NUMBERS} == NUMBERS
    assert [text for text in NO_NUMBERS if read_number(text) is not None] == []
    assert {said: read_letter(said, ["Sine.", "Cosine."]) for said in LETTERS} == LETTERS
    assert {said: read_truth(said) for said in TRUTHS} == TRUTHS


class Column:
    """What a table of another library gives: something that makes an array of itself."""

    def __init__(self, numbers):
        self.numbers = numbers

    def __array__(self, dtype=None, copy=None):
        return np.array(self.numbers, dtype)


@pytest.mark.parametrize("kind", [Column, np.asarray, np.ma.masked_array, np.ndarray.tolist])
def test_numbers_are_read_in_many_forms(kind):
    assert check("adam.step", lambda *a: tuple(map(kind, own("adam.step")(*a))))
    assert check("mask.causal", lambda T: kind(np.tri(T)))
