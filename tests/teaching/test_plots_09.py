"""Who works when: host and device on one axis of time."""

import numpy as np
import pytest
from matplotlib.colors import to_hex
from test_plots_04 import RULES

from npformer.teaching import plots

PANELS = {
    "in turns": {"host": [(0.0, 20.0), (50.0, 70.0)], "device": [(20.0, 50.0), (70.0, 100.0)]},
    "at once": {"host": [(0.0, 20.0), (20.0, 40.0)], "device": [(20.0, 50.0), (50.0, 80.0)]},
}


def draw():
    return plots.timeline(PANELS)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_timeline_keeps_the_rules_of_all_pictures(rule):
    rule(draw)


def test_each_span_is_a_bar_from_its_start_to_its_end_in_the_lane_of_its_name():
    for axes, (title, lanes) in zip(draw().axes, PANELS.items(), strict=True):
        assert axes.get_title(loc="left") == title
        assert [label.get_text() for label in axes.get_yticklabels()] == list(lanes)
        for row, (bars, spans) in enumerate(zip(axes.collections, lanes.values(), strict=True)):
            boxes = [path.get_extents() for path in bars.get_paths()]
            assert [(box.x0, box.x1) for box in boxes] == spans
            assert all(box.y0 < row < box.y1 for box in boxes)


def test_lanes_are_told_apart_and_keep_their_colours():
    first, second = ([to_hex(bars.get_facecolor()[0]) for bars in axes.collections] for axes in draw().axes)
    assert first == second
    assert len(set(first)) == len(first)


@pytest.mark.parametrize(
    "draw_lines",
    [
        plots.wavelength_curves,
        lambda lines: plots.curves(np.arange(2), {"": lines}, x_label="x"),
        lambda lines: plots.growth({"x": (np.arange(1, 3), lines)}),
        lambda lines: plots.gradient_by_depth({"": lines}),
        lambda lines: plots.timeline({"": {name: [(0.0, 1.0)] for name in lines}}),
    ],
)
def test_a_line_that_has_no_colour_of_its_own_is_refused_and_not_left_out(draw_lines):
    lines = {name: np.arange(1.0, 3) for name in "abcd"}
    with pytest.raises(ValueError, match=r"^plots: 4 lines in one panel; expected at most 3"):
        draw_lines(lines)


def test_both_panels_share_one_axis_of_time_and_the_first_lane_is_on_top():
    above, below = draw().axes
    assert above.get_xlim() == below.get_xlim()
    assert above.yaxis_inverted()
