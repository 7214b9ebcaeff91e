"""Heads of a published model beside each other, lesson 8."""

import numpy as np
import pytest
from test_plots_04 import RULES

from npformer.teaching import plots

TOKENS = ["[CLS]", "dogs", "[SEP]"]
HEADS = {
    "before": np.array([[1.0, 0.0, 0.0], [0.96, 0.04, 0.0], [0.0, 0.95, 0.05]]),
    "everywhere": np.full((3, 3), 1 / 3),
    "[CLS]": np.eye(3)[[0, 0, 0]],
}


def draw():
    return plots.attention_heads(HEADS, TOKENS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_heads_keep_the_rules_of_all_pictures(rule):
    rule(draw)


def test_each_head_has_its_title_and_its_larger_weights():
    before, everywhere, cls = draw().axes
    assert [axes.get_title("left") for axes in (before, everywhere, cls)] == list(HEADS)
    written = {text.get_position(): text.get_text() for text in before.texts}
    assert written == {(0, 0): "1.00", (0, 1): "0.96", (1, 2): "0.95", (2, 2): "0.05"}
    assert [text.get_text() for text in everywhere.texts] == ["0.33"] * 9


def test_all_heads_share_one_scale_of_weights():
    for axes, weights in zip(draw().axes, HEADS.values(), strict=True):
        (image,) = axes.get_images()
        np.testing.assert_array_equal(image.get_array(), weights)
        assert image.get_clim() == (0, 1)
        assert image.get_cmap().name == plots.WEIGHT_MAP


def test_tokens_are_named_on_both_sides_of_each_map():
    for axes in draw().axes:
        assert [label.get_text() for label in axes.get_yticklabels()] == TOKENS
        assert [label.get_text() for label in axes.get_xticklabels()] == TOKENS
    assert "looks" in draw().get_supylabel() and "looked at" in draw().get_supxlabel()


def test_two_stand_in_a_row_and_one_stays_alone():
    corners = [axes.get_subplotspec().get_geometry()[:3] for axes in draw().axes]
    assert corners == [(2, 2, 0), (2, 2, 1), (2, 2, 2)]
    one = plots.attention_heads({"before": HEADS["before"]}, TOKENS)
    assert one.axes[0].get_subplotspec().get_geometry()[:2] == (1, 1)
