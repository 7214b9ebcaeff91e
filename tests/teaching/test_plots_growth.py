"""Times against sizes, measured and predicted."""

import numpy as np
import pytest
from test_plots_04 import RULES

from npformer.teaching import plots

X = np.array([32.0, 64, 128, 256, 512])
PANELS = {
    "positions n": (X, {"measured": 2 * X, "predicted": X}),
    "blocks": (X[:3], {"measured": X[:3], "predicted": X[:3] / 2}),
}


def draw():
    return plots.growth(PANELS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_growth_keeps_the_rules_of_all_pictures(rule):
    rule(draw)


def test_each_line_is_its_times_on_two_logarithmic_axes():
    for axes, (label, (_, lines)) in zip(draw().axes, PANELS.items(), strict=True):
        assert (axes.get_xlabel(), axes.get_xscale(), axes.get_yscale()) == (label, "log", "log")
        for line, (name, y) in zip(axes.get_lines(), lines.items(), strict=True):
            np.testing.assert_array_equal(line.get_ydata(), y)
            assert line.get_label() == name


def test_every_second_size_is_written_on_the_axis():
    assert [label.get_text() for label in draw().axes[0].get_xticklabels()] == ["32", "128", "512"]
