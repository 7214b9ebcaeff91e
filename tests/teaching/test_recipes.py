"""The recipe of every cell gives the number that stands in the trace, and enters nothing that comes later."""

import itertools

import numpy as np
import pytest

from npformer.teaching.recipes import OPERATIONS, check_recipes, evaluate, recipes
from npformer.teaching.worked_example import GIVEN, dog_bites_man, worked_example
from npformer.teaching.worksheet import example_from_name

TRACE = worked_example()
RECIPES = recipes(TRACE)
FIRST = dict(
    zip(TRACE.named, itertools.accumulate((s.value.size for s in TRACE.steps), initial=0), strict=False)
)
NAMES = """Ada Björn Chen Dana Emeka Fatima Goran Hana Ines Jun Kofi Lea Mirza Noor Olga Pavel Quim Rosa
Søren Tomás""".split()


def numbers(trace):
    return np.concatenate([step.value.ravel() for step in trace.steps]).tolist()


def largest_error(trace):
    found, values = recipes(trace), numbers(trace)
    pairs = [
        (evaluate(recipe, values), value)
        for name, made in found.items()
        for recipe, value in zip(made, trace.named[name].value.ravel(), strict=True)
    ]
    assert len(pairs) == sum(step.value.size for step in trace.steps if step.equation != GIVEN)
    return max(abs(got - value) for got, value in pairs)


def cells(recipe):
    if isinstance(recipe, int):
        return [recipe]
    return [] if recipe[0] == "number" else [cell for part in recipe[1:] for cell in cells(part)]


# --- every cell -----------------------------------------------------------------------------------


def test_every_calculated_cell_has_a_recipe():
    assert list(RECIPES) == [step.name for step in TRACE.steps if step.equation != GIVEN]
    assert sum(map(len, RECIPES.values())) == 689


def test_every_recipe_gives_the_exact_number():
    assert largest_error(TRACE) < 1e-12


@pytest.mark.parametrize("decimals", [1, 2, 3])
def test_every_recipe_gives_the_rounded_number_but_for_half_a_unit(decimals):
    """A millionth of a unit more: so far up a pencil's half may be taken."""
    assert largest_error(worked_example(decimals=decimals)) < 0.500002 * 10.0**-decimals


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_gives_the_numbers_of_a_worksheet(name):
    example = example_from_name(name)
    assert largest_error(worked_example(example)) < 1e-12
    assert largest_error(worked_example(example, decimals=3)) < 0.500002e-3


@pytest.mark.parametrize("tokens", ["man bites dog", "dog bites dog", "bites", "dog dog dog man bites"])
def test_other_sentences_have_recipes_too(tokens):
    example = dog_bites_man()
    words = tuple(tokens.split())
    ids = np.array([example.vocabulary.index(word) for word in words])
    target = np.resize(example.target, (len(words), 4))
    trace = worked_example(example._replace(tokens=words, ids=ids, target=target))
    assert largest_error(trace) < 1e-12


def test_a_recipe_looks_only_back():
    for name, made in RECIPES.items():
        for recipe in made:
            assert all(cell < FIRST[name] for cell in cells(recipe)), name


def test_every_cell_but_the_gradients_of_parameters_is_used():
    used = {cell for made in RECIPES.values() for recipe in made for cell in cells(recipe)}
    for step in TRACE.steps:
        some = any(FIRST[step.name] + i in used for i in range(step.value.size))
        end = step.name in ("loss", "d_E") or f"{step.name}"[2:] in {
            given.name for given in TRACE.steps if given.equation == GIVEN
        }
        assert some != end, step.name


# --- what they say --------------------------------------------------------------------------------


def test_the_recipe_of_z_is_a_row_times_a_column_and_a_bias():
    h, W_1, b_1 = FIRST["h"], FIRST["ffn.W_1"], FIRST["ffn.b_1"]
    products = [("*", h + 4 + k, W_1 + 6 * k + 2) for k in range(4)]  # row 1, column 2
    assert RECIPES["ffn.z"][8] == ("+", *products, b_1 + 2)


def test_heads_are_cut_from_neighbouring_columns():
    Q, K = FIRST["attention.Q"], FIRST["attention.K"]
    assert cells(RECIPES["attention.scores"][9 + 1]) == [Q + 2, K + 6, Q + 3, K + 7]  # head 2, dog, bites


def test_a_word_that_is_not_in_the_sentence_says_so():
    operation, value, text = RECIPES["d_E"][0]
    assert (operation, value) == ("number", 0.0) and "does not stand in the sentence" in text


def test_every_operation_is_used_and_no_other():
    def operations(recipe):
        if not isinstance(recipe, int) and recipe[0] != "number":
            yield recipe[0]
            for part in recipe[1:]:
                yield from operations(part)

    assert {o for made in RECIPES.values() for recipe in made for o in operations(recipe)} == set(OPERATIONS)


# --- the check ------------------------------------------------------------------------------------


@pytest.mark.parametrize("decimals", [None, 3])
def test_a_number_that_its_recipe_does_not_give_is_refused(decimals):
    trace = worked_example(decimals=decimals)
    check_recipes(trace, recipes(trace))
    wrong = trace.named["ffn.z"].value + np.eye(3, 6) * 0.001
    steps = [step._replace(value=wrong) if step.name == "ffn.z" else step for step in trace.steps]
    broken = trace._replace(steps=tuple(steps))
    with pytest.raises(ValueError, match=r"play: ffn\.z, cell 0 of the trace, is -0\.9\d+; expected -0\.9"):
        check_recipes(broken, recipes(broken))
