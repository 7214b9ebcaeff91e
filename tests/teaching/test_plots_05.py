"""The size of a gradient at each block."""

import numpy as np
import pytest
import test_plots
from test_plots_04 import RULES

from npformer.teaching import plots

DOWN, FLAT = 10.0 ** -np.arange(4), np.full(4, 2.0)
PANELS = {
    "with residuals": {"post-norm": DOWN, "pre-norm": FLAT, "no norm": 1 / DOWN},
    "without residuals": {"post-norm": np.where(DOWN < 0.05, np.nan, DOWN), "pre-norm": FLAT},
}


def draw():
    return plots.gradient_by_depth(PANELS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_gradient_by_depth_keeps_the_rules_of_all_pictures(rule):
    rule(draw)


def test_each_line_is_its_sizes_in_the_same_colour_in_every_panel():
    for axes, (title, lines) in zip(draw().axes, PANELS.items(), strict=True):
        assert (axes.get_title(), axes.get_yscale()) == (title, "log")
        for line, (label, sizes) in zip(axes.get_lines(), lines.items(), strict=True):
            np.testing.assert_array_equal(line.get_ydata(), sizes)
            assert line.get_label() == label
        assert axes.get_lines()[0].get_color() == plots.GRADIENT


def test_panels_of_a_row_share_their_axis_and_the_legend_names_every_kind():
    figure = draw()
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["post-norm", "pre-norm", "no norm"]


def test_a_picture_is_the_same_bytes_each_time():
    test_plots.test_a_picture_is_the_same_bytes_each_time_and_names_no_software(draw, "png")
