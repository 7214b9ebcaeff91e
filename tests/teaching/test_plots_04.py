"""Small matrices beside each other: lesson 4's masks and means, lesson 5's conveyor."""

import numpy as np
import pytest
import test_plots

from npformer.teaching import plots

X, Y = np.array([[1.0, -2.0], [0.5, 0.0]]), np.array([[4.0, 0.0], [-0.001, 3.0]])
RULES = (
    test_plots.test_letters_are_legible_from_the_back_of_a_room,
    test_plots.test_nothing_is_cut_off_at_the_edge,
    test_plots.test_axes_are_labelled,
    test_plots.test_the_background_is_opaque_white_so_that_a_dark_page_does_no_harm,
)


def draw():
    return plots.matrices({"x": X, "y": Y, "x + y": X + Y}, across=2, row_labels=["dog", "man"])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_matrices_keep_the_rules_of_all_pictures(rule):
    rule(draw)


def test_each_panel_shows_its_numbers_under_its_title():
    panels = draw().axes
    assert [axes.get_title("left") for axes in panels] == ["x", "y", "x + y"]
    assert [t.get_text() for t in panels[0].texts] == ["1.00", "−2.00", "0.50", "0.00"]
    assert [t.get_text() for t in panels[1].texts] == ["4.00", "0.00", "0.00", "3.00"]  # no −0.00
    assert [t.get_position() for t in panels[1].texts] == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_all_panels_share_one_scale_so_that_their_colours_compare():
    for axes, values in zip(draw().axes, (X, Y, X + Y), strict=True):
        image = axes.get_images()[0]
        np.testing.assert_array_equal(image.get_array(), values)
        assert image.get_clim() == (-5, 5)
    dark = [t.get_text() for t in draw().axes[1].texts if t.get_color() == "white"]
    assert dark == ["4.00"]  # 3 of 5 is not dark, though it is 3 of this panel's 4


def test_weights_start_at_zero():
    figure = plots.matrices({"a": np.eye(2), "b": 0.5 * np.eye(2)}, signed=False)
    assert [axes.get_images()[0].get_clim() for axes in figure.axes] == [(0, 1), (0, 1)]
    assert figure.axes[0].get_images()[0].get_cmap().name == plots.WEIGHT_MAP


def test_rows_are_named_at_the_left_and_columns_under_each_panel():
    panels = draw().axes
    rows = [[t.get_text() for t in axes.get_yticklabels()] for axes in panels]
    assert rows == [["dog", "man"], ["", ""], ["dog", "man"]]  # two across: the third starts a row
    assert [t.get_text() for t in panels[1].get_xticklabels()] == ["0", "1"]


def test_panels_may_differ_in_width():
    figure = plots.matrices({"hidden": np.ones((2, 6)), "f": np.ones((2, 4))})
    assert [len(axes.get_xticklabels()) for axes in figure.axes] == [6, 4]
