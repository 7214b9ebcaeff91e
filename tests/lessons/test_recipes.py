"""A recipe looks only back, says what the equation says, and comes out of its packet as it went in.

That recipes give the right numbers is tested where they are evaluated: test_worked_example holds every step
against the package, test_player_browser the page against Python.
"""

import itertools
import json

import pytest

from npformer.lessons.recipes import pack_recipes
from npformer.lessons.worked_example import GIVEN, VARIANTS, apply_variants, dog_bites_man, worked_example

TRACE = worked_example(update="adam")
FIRST = dict(
    zip(TRACE.named, itertools.accumulate((s.value.size for s in TRACE.steps), initial=0), strict=False)
)


def parts(recipe):
    yield recipe
    if not isinstance(recipe, int) and recipe[0] != "number":
        for part in recipe[1:]:
            yield from parts(part)


def cells(recipe):
    return [part for part in parts(recipe) if isinstance(part, int)]


def test_a_recipe_looks_only_back_and_every_cell_is_used_but_what_the_next_step_of_training_takes():
    used = {cell for step in TRACE.steps for recipe in step.recipes for cell in cells(recipe)}
    for step in TRACE.steps:
        first = FIRST[step.name]
        assert len(step.recipes) == (0 if step.equation == GIVEN else step.value.size), step.name
        assert all(cell < first for recipe in step.recipes for cell in cells(recipe)), step.name
        kept = step.name in ("loss", "new_loss") or step.name.startswith(("new_m_", "new_v_"))
        assert kept or not used.isdisjoint(range(first, first + step.value.size)), step.name


def unpacked(packet, count):
    distances, before = iter(packet["cells"]), {}

    def filled(form, slots):
        if form == "":
            slot = next(slots)
            before[slot] = before.get(slot, 0) + next(distances)
            return before[slot]
        return form if form[0] == "number" else [form[0], *(filled(part, slots) for part in form[1:])]

    which = packet.get("form", [0] * count)
    return [filled(packet["forms"][i], itertools.count()) for i in which]


@pytest.mark.parametrize("variants", [[], list(VARIANTS)])
def test_what_is_packed_comes_out_again(variants):
    for step in worked_example(apply_variants(dog_bites_man(), variants)).steps:
        if step.recipes:
            packet = json.loads(json.dumps(pack_recipes(step.recipes)))
            assert unpacked(packet, step.value.size) == json.loads(json.dumps(step.recipes)), step.name
