"""What gradcheck says of a wrong gradient: each kind where it is so, and nothing where nothing is."""

import math
from itertools import product

import numpy as np
import pytest

from npformer.gradcheck.differences import HALF
from npformer.gradcheck.relations import LOOKS, Case, relation, words

rng = np.random.default_rng(7)
R3, R2, dy = rng.standard_normal((2, 3, 4)), rng.standard_normal((4, 4)), rng.standard_normal((3, 4))
k = rng.standard_normal((2, 3, 4))
fours = {"axis 2 of x": 4, "axis 0 of x": 2}

# what came back, what is right, what else was there, the kind and a word of what is said
ARRAYS = {
    "transposed": (R2.T, R2, {}, ""),
    "transposed in three axes": (R3.transpose(2, 0, 1), R3, {}, "(2, 0, 1)"),
    "reshaped": (R3.reshape(6, 4), R3, {}, "(6, 4)"),
    "sum missing": (R3, R3.sum((0, 1)), {}, "axes 0 and 1"),
    "mean missing": (R3, R3.mean(0), {}, "axis 0"),
    "sum too many": (R3.sum(), R3, {}, "axes 0 and 1 and 2"),
    "sum too many, kept": (R3.sum(1, keepdims=True), R3, {}, "axis 1"),
    "mean too many": (R3.mean(1), R3, {}, "axis 1"),
    "zero": (0 * R3, R3, {}, ""),
    "should be zero": (k, 0 * R3, {"the gradient of k": k / 2}, "2 times the gradient of k"),
    "should be zero, and is nothing known": (k, 0 * R3, {}, ""),
    "sign": (-R3, R3, {}, ""),
    "factor": (R3 / 4, R3, {}, "1/4 (4 is the length of axis 2 of x)"),
    "factor, two lengths": (R3 / 8, R3, {}, "1/8 (8 is the length of axis 2 of x times axis 0 of x)"),
    "factor, a root": (R3 * math.sqrt(2), R3, {}, "√2 (√2 is the root of the length of axis 0 of x)"),
    "factor, a root of a fraction": (R3 * math.sqrt(2 / 3), R3, {}, "√(2/3)"),
    "factor of no size": (R3 * 0.7734, R3, {}, "0.7734"),
    "factor of no size, small": (R3 * 0.00100007, R3, {}, "0.00100007"),
    "factor, nearly 1, beside what is far larger": (R3 * (1e-12 + 3e-20), R3 * 1e-12, {"dy": k}, "1 + 3e-08"),
    "other": (k, R3, {"cache.k": k}, "cache.k"),
    "other, some times": (3 * k, R3, {"cache.k": k}, "3 times cache.k"),
    "other, far smaller": (1e150 * k, 1e150 * R3, {"cache.k": 1e-100 * k}, "1e+250 times cache.k"),
    "moved": (np.roll(R3, 1, axis=1), R3, {}, "axis 1: 2, 0, 1"),
    "moved, the first in all": (R3[:1] + 0 * R3, R3, {}, "axis 0: 0, 0"),
    "term missing": (R3 - k, R3, {"d_output": k}, "d_output"),
    "term added": (R3 + 2 * k, R3, {"d_output": k}, "2 times d_output"),
    "constant along": (R3 + rng.standard_normal((2, 1, 4)), R3, {}, "axis 1"),
    "multiple along": (R3 + k * rng.standard_normal((2, 3, 1)), R3, {"cache.k": k}, "cache.k along axis 2"),
    "few": (R3 + np.eye(24)[5].reshape(2, 3, 4), R3, {}, "1 of 24 entries, first [0, 1, 1]"),
    "near": (R3 * (1 + 1e-5 * k), R3, {}, "e-05"),
}  # fmt: skip


def kind(name):
    return name.split(",")[0].split(" in ")[0].split(" of ")[0]


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name):
    found, right, others, what = ARRAYS[name]
    seen = relation([Case(found, right, others, fours)])
    assert seen is not None and seen.kind == kind(name)
    assert what in seen.what and "{}" not in words()[seen.kind].format(seen.what)


# The table of a backward pass: y[t, j] from x[t, i], so that a gradient of x is a sum over j of the table.
W, x, y = rng.standard_normal((4, 4)), rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
eye3, eye4 = np.eye(3), np.eye(4)
linear = np.einsum("ts,ij->tjsi", eye3, W)  # of y = x W
entry = np.einsum("ts,ij,tj->tjsi", eye3, eye4, y)  # of a function of single entries whose slope is y
outer = np.einsum("ts,tj,ti->tjsi", eye3, y, y)
softmax = np.einsum("ts,tj,ij->tjsi", eye3, y, eye4) - outer
bias = np.einsum("tj,ij->tji", np.ones((3, 4)), eye4)  # of y = x + b
mask = (rng.random((3, 4)) < 0.5)[:, :, None, None]
along_x, along_y = x[:, :, None, None], y[:, :, None, None]
squares = {"scores": np.where(eye3, 0, -np.inf), "u": eye3 + 1, "W_1": W, "W_2": R2}
TABLES = {
    "one index": (bias * np.eye(3)[0][:, None, None], bias, {}, "index 0 of axis 0"),
    "ends exchanged": (linear.swapaxes(1, 3), linear, {}, "axis 1"),
    "ends exchanged, both": (
        *(np.einsum(f"st,ij->{ends}", R2[:3, :3], W) for ends in ("sitj", "tjsi")), {}, "axes 0 and 1"),
    "untransposed": (linear @ np.linalg.solve(R2.T, R2), linear, squares, "W_2"),
    "own only": (entry, softmax, {}, "axis 1"),
    "mixes": (softmax, entry, {}, "axis 1"),
    "mixes, another": (np.einsum("tj,sj,ij->tjsi", y, y, eye4), outer, {}, "axis 0, and not those of axis 1"),
    "zero there": (linear * mask, linear, {}, "of 144"),
    "not zero there": (linear, linear * mask, {}, "of 144"),
    "another mask": (linear * mask, linear * np.roll(mask, 1), {}, "of 144"),
    "multiplied": (linear * along_x, linear, {"cache.x": x}, "times cache.x"),
    "multiplied, divided": (linear / along_x, linear, {"cache.x": x}, "divided by cache.x"),
    "multiplied, another": (linear * along_x, linear * along_y, {"x": x, "y": y}, "with x in place of y"),
    "other, times d_output": (
        entry, entry * (1 - along_y), {"W": W, "the output": y}, "d_output times the output"),
    "numbers": (np.einsum("ts,ij,tj->tjsi", eye3, eye4, 1 - y), entry, {}, ""),
    "stray": (
        np.einsum("ts,tij->tjsi", eye3, rng.standard_normal((3, 4, 4))), linear * mask, {}, "d_output["),
}  # fmt: skip


def tabled(F, R, others=None):
    d_output = dy if F.shape[:2] == dy.shape else rng.standard_normal((4, 4))
    found, right = (np.tensordot(d_output, table, 2) for table in (F, R))
    return Case(found, right, others or {}, d_output=d_output, found_table=F, right_table=R)


@pytest.mark.parametrize("name", TABLES)
def test_tables(name):
    F, R, others, what = TABLES[name]
    for unit in (1.0, 1e-30, 1e30):
        seen = relation([tabled(unit * F, unit * R, others)])
        assert seen is not None and seen.kind == kind(name), unit
        assert what in seen.what


def test_nothing_is_said_of_what_is_right_or_not_finite_or_has_nothing_to_do_with_it():
    for seed in range(15):
        draw = np.random.default_rng(seed).standard_normal
        F, R, other, three = *draw((2, 3, 4, 3, 4)), {"other": draw((3, 4))}, draw((2, 3, 4, 3))
        for case in (
            tabled(F, R, other), tabled(R + 1e-9 * draw(R.shape), R, other),
            Case(draw((2, 3)), draw((2, 4))), Case(draw((70, 2)), draw((70, 2))),
            tabled(F, R)._replace(right=np.ones((3, 5)), right_table=np.ones((3, 4, 3, 5))),
            tabled(three[0][..., None, :], three[1][..., None, :]),  # d_output has another shape
        ):  # fmt: skip
            assert relation([case]) is None
    one = Case(np.array(0.77123), np.array(0.31337), {"other": np.array(0.2)})  # one number fits any
    for case in (Case(R3 * np.inf, R3), Case(0 * R3, 0 * R3), one):
        assert relation([case]) is None


def test_what_is_hardly_wrong_gets_no_name_by_accident():
    for seed, times in product(range(5), (1.5, 3, 10)):  # of what counts as equal
        noise = times * HALF * np.random.default_rng(seed).standard_normal(R3.shape)
        for off in (noise, noise * R3, noise[0, 0, 0] * (R3 == R3.max())):
            seen = relation([Case(R3 + off, R3, {"cache.k": k}, fours)])
            assert seen is None or seen.kind in ("near", "few"), (seed, times)


def test_what_is_not_known_does_not_count():
    known = np.where(rng.random(R3.shape) < 0.1, np.nan, R3)
    assert relation([Case(2 * R3, known)]).what == "2"
    R = np.where(rng.random(linear.shape) < 0.1, np.nan, linear)
    assert relation([tabled(linear * mask, linear)._replace(right_table=R)]).kind == "zero there"


def test_a_relation_holds_in_every_case_or_is_none():
    assert relation([Case(2 * R3, R3), Case(3 * R3, R3)]).what.startswith("2")  # a factor that follows a size
    assert relation([Case(2 * R3, R3), Case(R3 + k, R3)]) is None
    assert relation([Case(2 * R3, R3), Case(k, 0 * R3)]) is None


def test_every_look_has_words_and_every_kind_of_word_was_seen():
    assert {*map(kind, [*ARRAYS, *TABLES])} == {*words()}
    assert len({*LOOKS}) == len(LOOKS)
