"""What a reply says, and what it must not say: slips that were met after the observations were written."""

from functools import partial

import numpy as np
import pytest
from codings import own

from npformer.exercises import check
from npformer.exercises.reading import read_letter, read_number, read_truth

check = partial(check, level=3)  # which says most


def test_an_array_has_no_truth_value_of_its_own():
    result = check("ffn.forward", lambda x, W_1, b_1, W_2, b_2: max(0, x @ W_1) @ W_2, level=3)
    assert result.status == "error" and result.question.startswith("Which word in that line (if, and, or")


def test_a_layer_is_called_by_its_name_in_an_error():
    result = check("block.forward", lambda x, attend, norm_1, ffn, norm_2: attend(x, x))
    assert "attend() takes 1 positional argument but 2 were given" in result.evidence


def test_numbers_past_1000_that_are_finite_and_wrong_get_a_question_about_them():
    result = check("softmax.forward", lambda s: own("softmax.forward")(np.clip(s, -50, 50)), level=3)
    assert "near 1000 or -1000 the numbers are finite" in result.evidence
    assert result.question == "Are two scores such as 1000 and 999 still 1 apart when exp meets them?"


# --- numbers and letters ---------------------------------------------------------------------------


def test_a_number_with_all_its_digits_tells_mistakes_apart():
    rounded, whole = check("pe.entry", 1.0), check("pe.entry", np.cos(23 / 10000**0.75))
    assert len(rounded.codes) > 1 and whole.codes == ("PE-EXP-COLUMN",)


def test_a_half_may_be_rounded_either_way():
    for value in ([0.13, 0.38, 0.5], [0.12, 0.38, 0.5]):
        assert "rounded after 2 decimals" in check("attention.softmax", value).evidence
    assert "as far as it goes" not in check("pe.shift", 0).evidence


def test_a_count_that_is_rounded_is_told_so():
    assert "to its last digit" in check("cost.parameters", 2.1e6).evidence
    assert check("cost.parameters", 3e6).hint.startswith("No known mistake fits.")


def test_a_list_may_hold_fractions_and_shares_and_decimal_commas():
    for answer in (["1/8", 0.375, "50%"], "0,125; 0,375; 0,5", "p = [0.125, 3/8, 0.5]"):
        assert check("attention.softmax", answer)
    assert check("attention.softmax", "0,125 0,375 0,500") and check("attention.softmax", "0.125, 0.375, 0.5")
    assert check("addition.vector", "2,0 , 3, 6") and check("addition.vector", "2 0 3 6")
    for answer in (["1/8", "x", "1/2"], "1|3|4", "1 3 x"):
        assert check("attention.softmax", answer).status == "error"


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


def test_a_threshold_is_not_read_as_another_argument():
    result = check("sample.top_p", lambda p, share: own("sample.top_p")(p, share**0.5))
    assert "root" not in result.evidence and "too many" in result.evidence
