"""Tests of recipes: they use only earlier cells, every cell is used, and packing loses nothing.

Other tests check that recipes give the correct numbers: test_worked_example compares every step with
npformer, and test_player_browser compares the page with Python.
"""

import itertools
import json

import pytest

from npformer.lessons.recipes import pack_recipes
from npformer.lessons.worked_example import GIVEN, VARIANTS, apply_variants, dog_bites_man, worked_example

TRACE = worked_example(update="adam")


def parts_of(recipe):
    """Yield a recipe and all recipes inside it."""
    yield recipe
    if not isinstance(recipe, int) and recipe[0] != "number":
        for part in recipe[1:]:
            yield from parts_of(part)


def cells_of(step):
    """Return the cell numbers in all recipes of a step."""
    return {part for recipe in step.recipes for part in parts_of(recipe) if isinstance(part, int)}


USED_CELLS = set().union(*(cells_of(step) for step in TRACE.steps))
SIZES = [step.value.size for step in TRACE.steps]
FIRST_CELLS = list(itertools.accumulate(SIZES, initial=0))[:-1]
per_step = pytest.mark.parametrize(
    ("step", "first_cell"), list(zip(TRACE.steps, FIRST_CELLS, strict=True)), ids=list(TRACE.named)
)


@per_step
def test_recipes_use_only_earlier_cells(step, first_cell):
    assert len(step.recipes) == (0 if step.equation == GIVEN else step.value.size)
    assert all(cell < first_cell for cell in cells_of(step))


@per_step
def test_every_step_is_used_by_a_later_one(step, first_cell):
    is_result = step.name in ("loss", "new_loss")
    is_for_next_training_step = step.name.startswith(("new_m_", "new_v_"))
    if not is_result and not is_for_next_training_step:
        assert not USED_CELLS.isdisjoint(range(first_cell, first_cell + step.value.size))


def unpack(packet, count):
    """Return the recipes of a step from the result of `pack_recipes`, unpacked as in JavaScript."""
    differences, previous = iter(packet["cells"]), {}

    def fill(form, positions):
        if form == "":
            position = next(positions)
            previous[position] = previous.get(position, 0) + next(differences)
            return previous[position]
        if form[0] == "number":
            return form
        return [form[0], *(fill(part, positions) for part in form[1:])]

    form_numbers = packet.get("form", [0] * count)
    return [fill(packet["forms"][i], itertools.count()) for i in form_numbers]


@pytest.mark.parametrize("variants", [[], list(VARIANTS)], ids=["paper's block", "all variants"])
def test_pack_recipes_loses_nothing(variants):
    for step in worked_example(apply_variants(dog_bites_man(), variants)).steps:
        if step.recipes:
            packet = json.loads(json.dumps(pack_recipes(step.recipes)))
            recipes = json.loads(json.dumps(step.recipes))
            assert unpack(packet, step.value.size) == recipes, step.name
