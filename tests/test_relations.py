"""Tests of relations: detectors find each kind of relation and its parameters, templates describe it."""

import re
from dataclasses import FrozenInstanceError
from fractions import Fraction
from pathlib import Path
from string import Formatter

import numpy as np
import pytest
from pairs import LATER_BUGS, PLANTED_BUGS

from npformer import gradcheck
from npformer.gradcheck import notes
from npformer.gradcheck.finite_differences import SQRT_EPS
from npformer.gradcheck.relations import (
    KINDS,
    Case,
    Factor,
    Origin,
    Relation,
    find_relation,
    make_factor,
)

rng = np.random.default_rng(7)


def draw_integers(*shape):
    """Draw integers other than 0, so that sums and factors are exact."""
    return rng.choice([-1.0, 1.0], shape) * rng.integers(1, 100, shape)


RIGHT, CACHED, D_OUTPUT = (draw_integers(2, 3, 4) for _ in range(3))
OTHERS = {"cache.k": CACHED}
SIZES = {"axis 2 of x": 4, "axis 0 of x": 2}
HALF_OF = Factor(0.5, Fraction(1, 2), False)

W, V, gamma, std = draw_integers(4, 4), draw_integers(4, 4), draw_integers(4), draw_integers(4)
time_weights = draw_integers(3, 3)
full, full_wrong = draw_integers(3, 4, 3, 4), draw_integers(3, 4, 3, 4)
linear = np.einsum("ts,ij->tisj", np.eye(3), W)  # the derivatives dy[t, i] / dx[s, j] for y = x Wᵀ
over_time = np.einsum("ts,ij->tisj", time_weights, np.eye(4))
one_path_less = linear.copy()
one_path_less[0, 0, 0, :] = 0
half_masked, otherwise_masked = full.copy(), full.copy()
half_masked[1, 0, 2, :] = 0
otherwise_masked[0, 0, 0, :] = 0
neighbours = np.einsum("ts,ij->tisj", np.eye(3), np.kron(np.eye(2), draw_integers(2, 2)))
halves = np.einsum("ts,ij->tisj", np.eye(3), np.kron(draw_integers(2, 2), np.eye(2)))
SQUARE = draw_integers(6, 6)
SQUARE_OUT, SHORT = draw_integers(3, 3, 5), draw_integers(2, 3, 5)
ERRORS = 200 * draw_integers(3, 4, 3, 4)
same_time = np.eye(3, dtype=bool)[:, None, :, None]
without_one_entry = full.copy()
without_one_entry[1, 2, 0, 3] = 0


def make_table_case(found_table, right_table, others=None):
    """Make a case whose arrays are the products of a random d_output and these tables."""
    d_output = draw_integers(*found_table.shape[:2])
    found, right = (np.tensordot(d_output, table, 2) for table in (found_table, right_table))
    return Case(
        found, right, others or {}, d_output=d_output, found_table=found_table, right_table=right_table
    )


def make_output_case(found_table, right_table):
    """Make a case in which d_output joins three outputs of four entries each."""
    shape = (12, *found_table.shape[2:])
    d_output = draw_integers(12)
    tables = [table.reshape(shape) for table in (found_table, right_table)]
    found, right = (np.tensordot(d_output, table, 1) for table in tables)
    outputs = {f"d_output.{i}": slice(4 * i, 4 * i + 4) for i in range(3)}
    return Case(
        found, right, d_output=d_output, found_table=tables[0], right_table=tables[1], outputs=outputs
    )


def correlate(*kernel):
    """Make the table of a correlation: entry i of d_output contributes the kernel to entries i, i + 1, ..."""
    table = np.zeros((1, 4, 6))
    for i in range(4):
        table[0, i, i : i + 3] = kernel
    return table


def change_one_entry(array):
    """Return a copy with one wrong entry."""
    changed = array.copy()
    changed[1, 2, 0] += 5
    return changed


# One case of each kind of relation, with the parameters that must be found

EXAMPLES = {
    "zero": (Case(0 * RIGHT, RIGHT), {}),
    "transposed": (Case(RIGHT.transpose(2, 0, 1), RIGHT), {"order": (2, 0, 1)}),
    "reshaped": (Case(RIGHT.reshape(6, 4), RIGHT), {"shape": (6, 4)}),
    "sum_missing": (Case(RIGHT, RIGHT.sum((0, 1))), {"axes": (0, 1)}),
    "mean_missing": (Case(RIGHT, RIGHT.mean(0)), {"axes": (0,)}),
    "sum_too_many": (Case(RIGHT.sum(1), RIGHT), {"axes": (1,)}),
    "mean_too_many": (Case(RIGHT.mean((0, 2)), RIGHT), {"axes": (0, 2)}),
    "should_be_zero": (
        Case(0.5 * CACHED, 0 * RIGHT, OTHERS),
        {"other": Relation("other", {"name": "cache.k", "factor": HALF_OF, "times_d_output": False})},
    ),
    "should_be_zero_here": (Case(RIGHT, 0 * RIGHT, is_zero_here_only=True), {"other": None}),
    "sign": (Case(-RIGHT, RIGHT), {}),
    "factor": (
        Case(0.5 * RIGHT, RIGHT, sizes=SIZES),
        {"factor": HALF_OF, "origins": (Origin(("axis 2 of x",), True), Origin(("axis 0 of x",), False))},
    ),
    "other": (
        Case(0.5 * CACHED * D_OUTPUT, RIGHT, OTHERS, d_output=D_OUTPUT),
        {"name": "cache.k", "factor": HALF_OF, "times_d_output": True},
    ),
    "moved": (Case(RIGHT[:, [2, 0, 1]], RIGHT), {"axis": 1, "order": (2, 0, 1)}),
    "flipped": (Case(RIGHT[::-1, :, ::-1], RIGHT), {"axes": (0, 2)}),
    "shifted_by": (
        Case(np.pad(SQUARE, ((1, 0), (0, 2)))[:-1, 2:], SQUARE),
        {"shifts": (1, -2)},
    ),
    "symmetric": (Case((SQUARE + SQUARE.T) / 2, SQUARE), {"factor": HALF_OF}),
    "partners": (
        make_table_case(neighbours, halves),
        {"axis": 1, "found_distance": 1, "right_distance": 2},
    ),
    "term_missing": (Case(RIGHT - CACHED, RIGHT, OTHERS), {"name": "cache.k"}),
    "term_added": (Case(RIGHT + 0.5 * CACHED, RIGHT, OTHERS), {"name": "cache.k", "factor": HALF_OF}),
    "multiple_along": (
        Case(RIGHT + CACHED * draw_integers(2, 3, 1), RIGHT, OTHERS),
        {"name": "cache.k", "axis": 2},
    ),
    "constant_along": (Case(RIGHT + draw_integers(2, 1, 4), RIGHT), {"axis": 1}),
    "few": (Case(change_one_entry(RIGHT), RIGHT), {"count": 1, "size": 24, "index": (1, 2, 0)}),
    "near": (
        Case(RIGHT + np.sign(CACHED) / 1024, RIGHT),
        {"share": 1 / 1024 / np.abs(RIGHT).max()},
    ),
    "ends_exchanged": (make_table_case(full.swapaxes(0, 2), full), {"axes": (0,)}),
    "untransposed": (
        make_table_case(
            np.einsum("ts,ij->tisj", np.eye(3), W @ V), np.einsum("ts,ij->tisj", np.eye(3), W.T @ V), {"W": W}
        ),
        {"name": "W"},
    ),
    "multiplied": (
        make_table_case(full * gamma, full * std, {"gamma": gamma, "std": std}),
        {"name": "gamma", "instead_of": "std"},
    ),
    "mixes": (make_table_case(over_time, linear), {"axis": 0, "not_along": 1}),
    "own_only": (make_table_case(full * np.eye(3)[:, None, :, None], full), {"axis": 0}),
    "one_index": (
        make_table_case(linear * (np.arange(4) % 2)[:, None, None], linear),
        {"indices": (1, 3), "axis": 1},
    ),
    "outputs_unused": (
        make_output_case(full * (np.arange(3) != 1)[:, None, None, None], full),
        {"names": ("d_output.1",)},
    ),
    "outputs_wrong": (
        make_output_case(full * np.array([1, 3, 1])[:, None, None, None], full),
        {"names": ("d_output.1",)},
    ),
    "zero_there": (make_table_case(one_path_less, linear), {"count": 4, "size": 144}),
    "not_zero_there": (make_table_case(linear, one_path_less), {"count": 4, "size": 144}),
    "another_mask": (make_table_case(half_masked, otherwise_masked), {"count": 4, "size": 144}),
    "stray": (
        make_table_case(full_wrong, without_one_entry),
        {"from_index": (1, 2), "to_index": (0, 3)},
    ),
    "d_output_transposed": (make_table_case(SQUARE_OUT.swapaxes(0, 1), SQUARE_OUT), {"order": (1, 0)}),
    "d_output_moved": (
        make_table_case(SHORT.reshape(6, 5)[[0, 3, 1, 4, 2, 5]].reshape(2, 3, 5), SHORT),
        {},
    ),
    "reversed_each": (make_table_case(correlate(1, 4, 9), correlate(9, 4, 1)), {"axes": (0,)}),
    "factor_along": (make_table_case(full * [[2], [3], [5]], full), {"axes": (0,)}),
    "d_output_factor_along": (
        make_table_case(full * np.array([2, 3, 5, 7])[:, None, None], full),
        {"axes": (1,)},
    ),
    "others_wrong": (make_table_case(np.where(same_time, full, full + ERRORS), full), {"axis": 0}),
    "own_wrong": (make_table_case(np.where(same_time, full + ERRORS, full), full), {"axis": 0}),
    "wrong_there": (
        make_table_case(full + ERRORS * (np.arange(3) == 1)[:, None, None, None], full),
        {"count": 48, "size": 144},
    ),
    "numbers": (make_table_case((linear + ERRORS) * (linear != 0), linear), {}),
}


def test_examples_cover_every_kind():
    assert set(EXAMPLES) == set(KINDS)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_find_relation_returns_kind_with_its_parameters(kind):
    case, parameters = EXAMPLES[kind]
    assert find_relation([case]) == Relation(kind, parameters)


def is_plain_data(value, names):
    """Return whether a parameter contains only numbers, tuples of numbers, and the given names."""
    if isinstance(value, Relation):
        return all(is_plain_data(part, names) for part in value.parameters.values())
    if isinstance(value, tuple):
        return all(is_plain_data(part, names) for part in value)
    if isinstance(value, str):
        return value in names
    return value is None or type(value) in (int, float, bool, Fraction)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_find_relation_parameters_hold_no_text(kind):
    case, _ = EXAMPLES[kind]
    assert is_plain_data(find_relation([case]), {*case.others, *case.sizes, *case.outputs, ""})


def test_find_relation_mixes_without_a_missing_axis():
    both = np.einsum("ts,ij->tisj", time_weights, W)
    assert find_relation([make_table_case(both, linear)]).parameters == {"axis": 0, "not_along": None}


@pytest.mark.parametrize("name, instead_of", [("gamma", ""), ("", "std")])
def test_find_relation_multiplied_with_one_array_only(name, instead_of):
    arrays = {"gamma": gamma, "std": std, "": np.ones(4)}
    others = {"gamma": gamma, "std": std}
    case = make_table_case(full * arrays[name], full * arrays[instead_of], others)
    assert find_relation([case]) == Relation("multiplied", {"name": name, "instead_of": instead_of})


MASK = np.array([0.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize(
    "factors, others, kind",
    [
        # Both sides of found · mask = correct · mask are 0 where the mask is 0, so this proves nothing.
        pytest.param([3, 1, 1, 3], {"t": MASK, "cache.t": MASK}, "factor_along", id="mask and its copy"),
        pytest.param([0.3, 1.7], {"std": np.array([0.3, 1.7])}, "multiplied", id="two numbers"),
        pytest.param([3, 2], {"ids": np.array([3, 2])}, "factor_along", id="two whole numbers"),
    ],
)
def test_find_relation_multiplied_needs_telling_arrays(factors, others, kind):
    table = draw_integers(3, 4, 3, len(factors))
    assert find_relation([make_table_case(table * factors, table, others)]).kind == kind


def test_find_relation_multiplied_with_array_of_joined_outputs():
    """d_output joins both outputs, and its index says which entry of the array is the factor."""
    forget = rng.standard_normal((2, 3))
    right = np.eye(6).reshape(6, 2, 3)
    d_output = rng.standard_normal(6)
    tables = right / forget, right
    found, correct = (np.tensordot(d_output, table, 1) for table in tables)
    case = Case(found, correct, {"f": forget}, {}, SQRT_EPS, 0.0, d_output, *tables, outputs={"h": slice(6)})
    assert find_relation([case]) == Relation("multiplied", {"name": "", "instead_of": "f"})


@pytest.mark.parametrize(
    "found, right, kind",
    [
        pytest.param(np.ones((3, 3, 3)), np.eye(3), "not_zero_there", id="whole rows for the diagonal"),
        pytest.param(np.ones((3, 3, 3)) * np.arange(1, 4), np.eye(3), "stray", id="and wrong numbers"),
    ],
)
def test_find_relation_mixes_needs_all_matching_axes(found, right, kind):
    """The output is a matrix diagonal, so d_output[i] belongs to row i and column i. Rows do not mix."""
    own_row = np.eye(3)[:, :, None]
    case = make_vector_case(found * own_row, right[:, :, None] * right[:, None, :])
    assert find_relation([case]).kind == kind


def make_vector_case(found_table, right_table):
    """Make a case whose d_output has one axis."""
    d_output = draw_integers(len(found_table))
    found, right = (np.tensordot(d_output, table, 1) for table in (found_table, right_table))
    return Case(found, right, d_output=d_output, found_table=found_table, right_table=right_table)


def test_find_relation_exchanged_ends_are_of_the_gradient():
    """d_output has one more leading axis than the gradient: its axis 1 matches axis 0 of the gradient."""
    table = draw_integers(2, 4, 4)
    relation = find_relation([make_table_case(table.swapaxes(1, 2), table)])
    assert relation == Relation("ends_exchanged", {"axes": (0,)})


def test_find_relation_transposed_d_output_of_outer_product():
    """For y = a bᵀ, db = d_outputᵀ a. Both axes of d_output fit the one axis of b."""
    right = np.einsum("i,jk->ijk", draw_integers(4), np.eye(4))
    relation = find_relation([make_table_case(right.swapaxes(0, 1), right)])
    assert relation == Relation("d_output_transposed", {"order": (1, 0)})


def test_find_relation_partners_axis_is_of_the_gradient():
    found, right = (np.kron(np.eye(2), np.ones((2, 2))), np.kron(np.ones((2, 2)), np.eye(2)))
    tables = [np.stack([table, 2 * table]) * draw_integers(2, 4, 4) for table in (found, right)]
    relation = find_relation([make_table_case(*tables)])
    assert relation == Relation("partners", {"axis": 0, "found_distance": 1, "right_distance": 2})


def test_find_relation_partners_axis_in_a_batch():
    """d_output and the gradient have three axes. The partners are along the last axis of the gradient."""
    batch = draw_integers(2, 1, 1, 2, 1, 1) * np.eye(2)[:, None, None, :, None, None]
    found, right = (batch * table[None, :, :, None] for table in (neighbours, halves))
    d_output = draw_integers(2, 3, 4)
    found_dx, right_dx = (np.tensordot(d_output, table, 3) for table in (found, right))
    case = Case(found_dx, right_dx, d_output=d_output, found_table=found, right_table=right)
    parameters = {"axis": 2, "found_distance": 1, "right_distance": 2}
    assert find_relation([case]) == Relation("partners", parameters)


def test_find_relation_reversed_contributions_lie_in_boxes():
    """Nine entries of d_output contribute a 2 × 2 kernel each, and a tenth entry contributes nothing."""
    kernel = draw_integers(2, 2)
    tables = np.zeros((2, 10, 4, 4))
    for n, (i, j) in enumerate(np.ndindex(3, 3)):
        tables[0, n, i : i + 2, j : j + 2] = kernel[:, ::-1]
        tables[1, n, i : i + 2, j : j + 2] = kernel
    assert find_relation([make_vector_case(*tables)]) == Relation("reversed_each", {"axes": (1,)})


def test_find_relation_factors_along_both_are_none():
    factors = draw_integers(3, 1, 1, 1) * draw_integers(4)
    assert find_relation([make_table_case(full * factors, full)]) is None


def test_find_relation_approximate_minus_one_is_sign():
    assert find_relation([Case((-1 - 3e-8) * RIGHT, RIGHT, exact=1e-10)]) == Relation("sign")


# Cases without a relation


def make_unrelated_case(name, seed):
    """Make a case in which the received array is correct, or has no relation to the correct array."""
    draw = np.random.default_rng(seed).standard_normal
    F, R = draw((2, 3, 4, 3, 4))
    others = {"other": draw((3, 4))}
    F_3, R_3 = draw((2, 3, 4, 3))
    if name == "unrelated tables":
        return make_table_case(F, R, others)
    if name == "correct table":
        return make_table_case(R + 1e-9 * draw(R.shape), R, others)
    if name == "other shape":
        return Case(draw((2, 3)), draw((2, 4)))
    if name == "long array":
        return Case(draw((70, 2)), draw((70, 2)))
    if name == "table of other shape":
        return make_table_case(F, R)._replace(right=np.ones((3, 5)), right_table=np.ones((3, 4, 3, 5)))
    assert name == "d_output of other shape"
    return make_table_case(F_3[..., None, :], R_3[..., None, :])


UNRELATED = (
    "unrelated tables",
    "correct table",
    "other shape",
    "long array",
    "table of other shape",
    "d_output of other shape",
)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("name", UNRELATED)
def test_find_relation_correct_or_unrelated_is_none(name, seed):
    assert find_relation([make_unrelated_case(name, seed)]) is None


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(RIGHT * np.inf, RIGHT), id="infinite"),
        pytest.param(Case(0 * RIGHT, 0 * RIGHT), id="correct zeros"),
        # a single number is always a multiple of another one, so a factor proves nothing
        pytest.param(
            Case(np.array(0.77123), np.array(0.31337), {"other": np.array(0.2)}), id="single number"
        ),
    ],
)
def test_find_relation_without_conclusive_numbers_is_none(case):
    assert find_relation([case]) is None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("times", [1.5, 3, 10])
@pytest.mark.parametrize("form", ["absolute", "relative", "one entry"])
def test_find_relation_tiny_errors_are_near_or_few(form, times, seed):
    R = np.random.default_rng(7).standard_normal((2, 3, 4))
    noise = times * SQRT_EPS * np.random.default_rng(seed).standard_normal(R.shape)
    errors = {"absolute": noise, "relative": noise * R, "one entry": noise[0, 0, 0] * (R == R.max())}
    relation = find_relation([Case(R + errors[form], R, OTHERS, SIZES)])
    assert relation is None or relation.kind in ("near", "few")


def test_find_relation_ignores_unknown_entries():
    known = np.where(rng.random(RIGHT.shape) < 0.1, np.nan, RIGHT)
    assert find_relation([Case(2 * RIGHT, known)]).parameters["factor"].fraction == 2


def test_find_relation_ignores_unknown_entries_of_table():
    R = np.where(rng.random(linear.shape) < 0.1, np.nan, linear)
    mask = (rng.random((3, 4)) < 0.5)[:, :, None, None]
    case = make_table_case(linear * mask, linear)._replace(right_table=R)
    assert find_relation([case]).kind == "zero_there"


DOUBLED = Case(2 * RIGHT, RIGHT)


@pytest.mark.parametrize("noise, kind", [(1e-3, "other"), (0.1, None)])
def test_find_relation_other_explains_nearly_all(noise, kind):
    """Arrays with a tolerance of 30 % are nearly multiples of many arrays."""
    found = CACHED * (1 + noise * np.cos(RIGHT))
    relation = find_relation([Case(found, RIGHT, OTHERS, exact=0.3)])
    assert (relation and relation.kind) == kind


def test_find_relation_factor_may_differ_between_cases():
    relation = find_relation([DOUBLED, Case(3 * RIGHT, RIGHT)])  # a factor may depend on the shapes of a case
    assert relation.kind == "factor"
    assert relation.parameters["factor"].fraction == 2


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(RIGHT + CACHED, RIGHT), id="a sum"),
        pytest.param(Case(CACHED, 0 * RIGHT), id="should be zero"),
    ],
)
def test_find_relation_must_hold_in_every_case(case):
    assert find_relation([DOUBLED, case]) is None


# The kinds that compare whole arrays. Kinds that may differ between two cases, and kinds that describe a
# single case, are left out.
KINDS_OF_ARRAYS = [
    kind
    for kind, (case, _) in EXAMPLES.items()
    if case.found_table is None and kind not in ("sign", "factor", "few", "near")
]


@pytest.mark.parametrize("kind", KINDS_OF_ARRAYS)
def test_find_relation_holds_in_two_equal_cases(kind):
    case, parameters = EXAMPLES[kind]
    assert find_relation([case, case]) == Relation(kind, parameters)


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("kind", [k for k in KINDS_OF_ARRAYS if not k.startswith("should_be_zero")])
def test_find_relation_unrelated_second_case_is_none(kind, is_first):
    case, _ = EXAMPLES[kind]
    unrelated = case._replace(found=draw_integers(*case.found.shape))
    assert find_relation([case, unrelated] if is_first else [unrelated, case]) is None


@pytest.mark.parametrize("kind", [k for k in KINDS_OF_ARRAYS if k[:6] not in ("reshap", "should")])
@pytest.mark.parametrize("is_first", [True, False])
def test_find_relation_correct_second_case_is_none(kind, is_first):
    case, _ = EXAMPLES[kind]
    correct = case._replace(found=case.right)
    assert find_relation([case, correct] if is_first else [correct, case]) is None


def test_find_relation_term_needs_long_arrays():
    cases = []
    for n in (2, 24):
        right, other = draw_integers(2, n)
        cases.append(Case(right + 2 * other, right, {"other": other}))
    assert find_relation(cases[1:]).kind == "term_added"
    assert find_relation(cases) is None
    assert find_relation(cases[::-1]) is None


# How exact a relation must be


@pytest.mark.parametrize(
    "kind", ["transposed", "moved", "flipped", "term_missing", "symmetric", "multiple_along"]
)
def test_find_relation_rejects_relation_that_leaves_errors(kind):
    """Errors of 1e-4 are far smaller than the difference between the arrays, but larger than rounding."""
    case, _ = EXAMPLES[kind]
    inexact = case.found * (1 + 1e-4 * np.sign(draw_integers(*case.found.shape)))
    assert find_relation([case._replace(found=inexact)]) is None


@pytest.mark.parametrize("scale, kind", [(1.0, "transposed"), (0.0, None)])
def test_find_relation_errors_are_relative_to_scale(scale, kind):
    right = 1e-6 * SQUARE  # the rounding errors of 1e-11 are large compared with this array only
    found = right.T + 1e-11 * np.sign(draw_integers(6, 6))
    relation = find_relation([Case(found, right, scale=scale)])
    assert (relation and relation.kind) == kind


def test_find_relation_few_ignores_rounding_of_correct_case():
    rounded = RIGHT.copy()
    rounded[0, 1, 1] += 1e-9
    relation = find_relation([Case(rounded, RIGHT), Case(change_one_entry(RIGHT), RIGHT)])
    assert relation == Relation("few", {"count": 1, "size": 24, "index": (1, 2, 0)})


# Lengths and positions of axes


@pytest.mark.parametrize(
    "error, kind, axis",
    [
        pytest.param(draw_integers(1, 3, 4), "constant_along", 0, id="constant along two entries"),
        pytest.param(draw_integers(2, 1, 4), "constant_along", 1, id="constant along three entries"),
        pytest.param(CACHED * draw_integers(2, 1, 4), "multiple_along", 1, id="multiple along three entries"),
        pytest.param(CACHED * draw_integers(1, 3, 4), None, None, id="multiple along two entries"),
    ],
)
def test_find_relation_error_along_short_axis(error, kind, axis):
    relation = find_relation([Case(RIGHT + error, RIGHT, OTHERS)])
    assert (relation and relation.kind) == kind
    assert relation is None or relation.parameters["axis"] == axis


def test_find_relation_constant_error_beside_array_of_ones():
    others = {"ones": np.ones_like(RIGHT)}  # a constant is simpler than a multiple of an array
    relation = find_relation([Case(RIGHT + draw_integers(2, 1, 4), RIGHT, others)])
    assert relation == Relation("constant_along", {"axis": 1})


@pytest.mark.parametrize(
    "shape, p, q, kind",
    [
        pytest.param((4, 2, 4), 0, 2, "own_only", id="the same position from the first axis"),
        pytest.param((2, 4, 4), 1, 2, "own_only", id="the same position from the last axis"),
        pytest.param((2, 4, 3, 5, 4), 1, 4, "own_only", id="a gradient with three axes"),
        pytest.param((3, 2, 2, 3), 0, 3, "zero_there", id="first axis and last axis"),
        pytest.param((2, 3, 3, 5), 1, 2, "zero_there", id="last axis and first axis"),
    ],
)
def test_find_relation_own_only_needs_matching_positions(shape, p, q, kind):
    """The first two axes belong to d_output. Only paths between equal indices of axes p and q are left."""
    table = draw_integers(*shape)
    indices = np.indices(shape)
    relation = find_relation([make_table_case(table * (indices[p] == indices[q]), table)])
    assert relation.kind == kind
    assert kind == "zero_there" or relation.parameters == {"axis": q - 2}  # an axis of the gradient


@pytest.mark.parametrize("size, kind", [(2, None), (3, "term_added")])
def test_find_relation_term_needs_three_entries(size, kind):
    right, other = np.array([3.0, 5.0, 7.0])[:size], np.array([1.0, -2.0, 4.0])[:size]
    relation = find_relation([Case(right + 2 * other, right, {"other": other})])
    assert (relation and relation.kind) == kind


def test_find_relation_own_only_has_the_first_axis():
    both = np.eye(3)[:, None, :, None] * np.eye(4)[:, None, :]
    assert find_relation([make_table_case(full * both, full)]) == Relation("own_only", {"axis": 0})


def test_find_relation_symmetric_matrix_is_not_untransposed():
    """The matrix is so ill-conditioned that only a far larger difference would be meaningful."""
    tables = full + 5 * np.sign(full_wrong), full
    assert find_relation([make_table_case(*tables, {"W": np.diag([1e7, 1, 1, 1])})]) is None


@pytest.mark.parametrize(("exact", "kind"), [(1e-4, "untransposed"), (1e-2, None)])
def test_find_relation_nearly_singular_matrix_needs_precise_arrays(exact, kind):
    """The inverse of W increases the errors of the arrays 10,000 times."""
    generator = np.random.default_rng(3)
    U, S = (np.linalg.qr(generator.standard_normal((4, 4)))[0] for _ in range(2))
    matrix = U @ np.diag([1, 1, 1, 1e-4]) @ S
    right = np.einsum("ts,ij->tisj", np.eye(3), generator.standard_normal((4, 4)))
    errors = np.einsum("ts,ij->tisj", np.eye(3), generator.uniform(-1, 1, (4, 4)))
    largest_error = exact * np.abs(right).max() * 1e4
    found = right @ np.linalg.solve(matrix, matrix.T) + largest_error / 2 * errors
    relation = find_relation([make_table_case(found, right, {"W": matrix})._replace(exact=exact)])
    assert (relation and relation.kind) == kind


def test_find_relation_few_accepts_errors_up_to_rounding():
    right = np.array([64.0, 1, 2, 3, 4, 5])
    errors = np.array([0, 50, 1, 1, 1, 0]) / np.array([1, 1, 16, 16, 16, 1])
    relation = find_relation([Case(right + errors, right, exact=2.0**-10)])  # 64 · 2⁻¹⁰ = 1/16
    assert relation == Relation("few", {"count": 1, "size": 6, "index": (1,)})


# Paths that should not exist


@pytest.mark.parametrize(
    "found, right, kind",
    [
        pytest.param(50.0, 0.0, "stray", id="path without correct path"),
        pytest.param(50.0, 1e-12, None, id="path that is almost zero"),
        pytest.param(1e-12, 0.0, "numbers", id="rounding error instead of zero"),
    ],
)
def test_find_relation_stray_path_should_be_exactly_zero(found, right, kind):
    found_table, right_table = full_wrong.copy(), full.copy()
    found_table[1, 2, 0, 3], right_table[1, 2, 0, 3] = found, right
    relation = find_relation([make_table_case(found_table, right_table)])
    assert (relation and relation.kind) == kind


def test_find_relation_stray_has_the_first_path():
    right_table = without_one_entry.copy()
    right_table[2, 0, 1, 1] = 0
    relation = find_relation([make_table_case(full_wrong, right_table)])
    assert relation.parameters == {"from_index": (1, 2), "to_index": (0, 3)}


# Relations and factors are data


@pytest.mark.parametrize(
    "kind, parameters, message",
    [
        ("sum missing", {"axes": (0,)}, "kind is 'sum missing'; expected one of zero, transposed, "),
        ("moved", {"axis": 0}, "parameters of 'moved' are ['axis']; expected ['axis', 'order']"),
        ("zero", {"axis": 0}, "parameters of 'zero' are ['axis']; expected []"),
        ("mixes", {"axis": 0, "not along": 1}, "parameters of 'mixes' are ['axis', 'not along']; "),
    ],
)
def test_relation_rejects_unknown_kinds_and_parameters(kind, parameters, message):
    with pytest.raises(ValueError, match=f"^{re.escape(f'Relation: {message}')}"):
        Relation(kind, parameters)


def test_relation_is_compared_by_value_and_frozen():
    one, two = (Relation("constant_along", {"axis": axis}) for axis in (1, 2))
    assert one == Relation("constant_along", {"axis": 1}) != two
    with pytest.raises(FrozenInstanceError):
        one.kind = "zero"  # type: ignore[misc]  # a wrong assignment on purpose


@pytest.mark.parametrize(
    "value, fraction, is_root, text",
    [
        (2.0, Fraction(2), False, "2"),
        (1.0, Fraction(1), False, "1"),
        (-1 / 3, Fraction(-1, 3), False, "-1/3"),
        (5**0.5, Fraction(5), True, "√5"),
        (-((2 / 3) ** 0.5), Fraction(2, 3), True, "-√(2/3)"),
        (0.7734, None, False, "0.7734"),
        ((12568 / 17) ** 0.5, None, False, "27.18996"),  # a root needs a short fraction
        (1 + 3e-8, None, False, "1 + 3e-08"),
        (1e160, None, False, "1e+160"),  # the square of this number is infinite
    ],
)
def test_make_factor_finds_simple_fractions_only(value, fraction, is_root, text):
    factor = make_factor(value, 1e-9)
    assert factor == Factor(value, fraction, is_root)
    assert notes.format_factor(factor) == text


@pytest.mark.parametrize(
    "value, exact, fraction",
    [
        # The product of numerator and denominator is at most 0.01 / (2 · 1e-9) = 5,000,000.
        (2235 / 2236, 1e-9, Fraction(2235, 2236)),  # 2235 · 2236 = 4,997,460
        (2236 / 2237, 1e-9, None),  # 2236 · 2237 = 5,001,932
        (1 / 5000, 1e-9, Fraction(1, 5000)),
        (4e6, 1e-9, Fraction(4_000_000)),
        (6e6, 1e-9, None),
        (10.0, 5e-4, Fraction(10)),  # 0.01 / (2 · 5e-4) = 10
        (11.0, 5e-4, None),
        # The error is relative to the value.
        (1 / 3 * (1 + 5e-10), 1e-9, Fraction(1, 3)),
        (3000 * (1 + 5e-10), 1e-9, Fraction(3000)),
        (1 / 5000 * (1 + 1e-6), 1e-9, None),
        # The result is never the fraction 0.
        (0.0, 1e-9, None),
        (0.3, 1.0, None),
    ],
)
def test_make_factor_fraction_is_simple_and_exact(value, exact, fraction):
    assert make_factor(value, exact) == Factor(value, fraction, False)


# The templates

TEMPLATES = notes.load_templates()


def find_placeholders(template):
    return {name for _, name, _, _ in Formatter().parse(template) if name is not None}


def test_load_templates_has_every_kind_and_no_more():
    assert set(TEMPLATES) == set(KINDS)


@pytest.mark.parametrize("kind", TEMPLATES)
def test_load_templates_placeholders_are_parameters(kind):
    template = dict(TEMPLATES[kind])
    assert find_placeholders(template.pop("cause")) == set()
    assert find_placeholders(template.pop("sizes", "")) <= {"origins"}
    assert find_placeholders(template.pop("observation")) <= set(KINDS[kind])
    for key, text in template.items():
        start, _, names = key.partition("_without_")
        left_out = set(names.split("_and_"))
        assert start == "observation" and left_out <= set(notes.OPTIONAL[kind])
        assert find_placeholders(text) <= set(KINDS[kind]) - left_out


@pytest.mark.parametrize("kind", TEMPLATES)
def test_load_templates_every_kind_is_on_the_page(kind):
    page = (Path(__file__).parent / "data" / "kills.md").read_text(encoding="utf-8")
    found = 0
    for key in set(TEMPLATES[kind]) - {"cause", "sizes"}:
        shown = TEMPLATES[kind][key].replace(", first [{index}]", "")  # the page has no indices
        pieces = (re.escape(text) for text, *_ in Formatter().parse(shown))
        found += bool(re.search(f"{'.+'.join(pieces)}.*; {re.escape(TEMPLATES[kind]['cause'])}", page))
    assert found > 0


SIXTH = Factor(1 / 6, Fraction(1, 6), False)
ONE = Factor(1.0, Fraction(1), False)
NAMES = ("axis 0 of x", "axis 1 of x")


@pytest.mark.parametrize(
    "kind, parameters, text",
    [
        (
            "sum_missing",
            {"axes": (0, 1)},
            "the gradient would be correct if it were summed over axes 0 and 1",
        ),
        ("sum_missing", {"axes": (2,)}, "the gradient would be correct if it were summed over axis 2"),
        ("transposed", {"order": (1, 0)}, "the gradient is the transpose of the correct gradient"),
        (
            "transposed",
            {"order": (2, 0, 1)},
            "the gradient is the transpose of the correct gradient, with its axes in the order (2, 0, 1)",
        ),
        ("reshaped", {"shape": (5,)}, "the gradient has the correct numbers in the shape (5,)"),
        (
            "few",
            {"count": 1, "size": 9, "index": (0, 2)},
            "the gradient is wrong in 1 of 9 entries, first [0, 2]",
        ),
        ("near", {"share": 2.3e-5}, "the gradient is off by only 2e-05 of its largest entry"),
        ("factor", {"factor": SIXTH, "origins": ()}, "the gradient is 1/6 times the correct gradient"),
        (
            "other",
            {"name": "z", "factor": SIXTH, "times_d_output": True},
            "the gradient is 1/6 times d_output times z",
        ),
        ("other", {"name": "z", "factor": ONE, "times_d_output": True}, "the gradient is d_output times z"),
        ("other", {"name": "z", "factor": SIXTH, "times_d_output": False}, "the gradient is 1/6 times z"),
        ("other", {"name": "z", "factor": ONE, "times_d_output": False}, "the gradient is z"),
        (
            "term_added",
            {"name": "z", "factor": SIXTH},
            "the gradient is the correct gradient plus 1/6 times z",
        ),
        ("term_added", {"name": "z", "factor": ONE}, "the gradient is the correct gradient plus z"),
        (
            "multiplied",
            {"name": "a", "instead_of": "b"},
            "entry by entry, the gradient contains the factor a instead of b",
        ),
        (
            "multiplied",
            {"name": "a", "instead_of": ""},
            "entry by entry, the gradient is the correct gradient times a",
        ),
        (
            "multiplied",
            {"name": "", "instead_of": "b"},
            "entry by entry, the gradient is the correct gradient divided by b",
        ),
        (
            "mixes",
            {"axis": 1, "not_along": 0},
            "the gradient mixes the indices of axis 1, which the forward pass keeps separate, "
            "instead of those of axis 0",
        ),
        (
            "mixes",
            {"axis": 1, "not_along": None},
            "the gradient mixes the indices of axis 1, which the forward pass keeps separate",
        ),
        (
            "stray",
            {"from_index": (1,), "to_index": (0, 3)},
            "entry [0, 3] of the gradient depends on d_output[1], but it should not",
        ),
        (
            "stray",
            {"from_index": (), "to_index": (0, 3)},
            "entry [0, 3] of the gradient depends on d_output, but it should not",
        ),
        (
            "stray",
            {"from_index": (1,), "to_index": ()},
            "the gradient depends on d_output[1], but it should not",
        ),
        (
            "stray",
            {"from_index": (), "to_index": ()},
            "the gradient depends on d_output, but it should not",
        ),
        (
            "d_output_transposed",
            {"order": (2, 0, 1)},
            "the gradient would be correct if d_output were transposed, with its axes in the order (2, 0, 1)",
        ),
    ],
)
def test_describe_observation_formats_its_parameters(kind, parameters, text):
    assert notes.describe_observation(Relation(kind, parameters)) == text


@pytest.mark.parametrize(
    "factor, origins, text",
    [
        (SIXTH, (Origin(NAMES, False),), "6 is the length of axis 0 of x times axis 1 of x"),
        (
            Factor(-(2**0.5), Fraction(2), True),
            (Origin(NAMES[:1], True),) * 3,
            "√2 is the root of the length of axis 0 of x, and the root of the length of axis 0 of x",
        ),
        (
            Factor(-0.31, None, False),
            (Origin(NAMES[:1], False),),
            "3.225806 is the length of axis 0 of x",
        ),
    ],
)
def test_describe_relation_reports_sizes_last(factor, origins, text):
    relation = Relation("factor", {"factor": factor, "origins": origins})
    observation, cause, sizes = notes.describe_relation(relation)
    assert observation == f"the gradient is {notes.format_factor(factor)} times the correct gradient"
    assert cause == TEMPLATES["factor"]["cause"] and sizes == f"the factor may also come from a size: {text}"


@pytest.mark.parametrize("is_known", [True, False])
def test_describe_relation_adds_the_other_relation(is_known):
    other = Relation("other", {"name": "z", "factor": ONE, "times_d_output": False})
    relation = Relation("should_be_zero", {"other": other if is_known else None})
    observation, *more, cause = notes.describe_relation(relation)
    assert observation == TEMPLATES["should_be_zero"]["observation"]
    assert more == (["the gradient is z"] if is_known else [])
    assert cause == TEMPLATES["should_be_zero"]["cause"]
    assert notes.describe_parameters(relation) == {"other": "the gradient is z" if is_known else ""}


def check_every_sixth_bug():
    """Run gradcheck on every sixth planted mistake, and return the rows of all reports."""
    rows = []
    for bug in list((PLANTED_BUGS | LATER_BUGS).values())[::6]:
        rows += gradcheck(bug.forward, bug.wrong, *bug.args).rows
    return rows


def test_gradcheck_verdicts_do_not_depend_on_templates(monkeypatch):
    before = check_every_sixth_bug()
    texts = {kind: dict.fromkeys(template, "x") for kind, template in TEMPLATES.items()}
    monkeypatch.setattr(notes, "load_templates", lambda: texts)
    after = check_every_sixth_bug()
    assert [repr(row._replace(note="")) for row in after] == [repr(row._replace(note="")) for row in before]
    assert sum(row.note.startswith("x; x") for row in after) > 15


def triple_first(x, y):
    return 3 * x + 0 * y, None


@pytest.mark.parametrize(
    "kind, backward",
    [
        ("zero", lambda dy, _: (0 * dy, 0 * dy)),
        ("sign", lambda dy, _: (-3 * dy, 0 * dy)),
        ("factor", lambda dy, _: (6 * dy, 0 * dy)),
        ("should_be_zero", lambda dy, _: (3 * dy, dy)),
        (None, lambda dy, _: (3 * dy[::-1], 0 * dy)),  # slices in a different order
    ],
)
def test_gradcheck_directions_find_relations_of_whole_arrays(kind, backward):
    rows = gradcheck(triple_first, backward, *rng.standard_normal((2, 5, 4)), directions=3).rows
    (note,) = (row.note for row in rows if row.verdict == "fail")
    if kind is None:
        assert note == ""
    else:
        assert f"; {TEMPLATES[kind]['cause']}" in note


def test_find_relation_unknown_entry_may_be_wrong_too():
    right = RIGHT.copy()
    right[0, 0, 0] = np.nan
    assert find_relation([Case(change_one_entry(RIGHT), right)]) is None


def test_find_relation_equal_tables_explain_nothing():
    case = make_table_case(full, full)
    odd = draw_integers(*case.right.shape)
    assert find_relation([case._replace(found=case.found + odd)]) is None


def test_find_relation_of_all_outputs_names_no_index():
    """The joined outputs have no axes of their own, so an index of d_output would be puzzling."""
    case = make_output_case(full * (np.arange(4) != 3), full)
    relation = find_relation([case])
    assert relation == Relation("zero_there", {"count": 36, "size": 144})
