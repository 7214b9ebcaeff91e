"""A block as a row of steps, and the banner at the top of the README."""

import io

import matplotlib
import numpy as np
import pytest
import test_plots
from PIL import Image
from test_plots_04 import RULES

from npformer.positional import positional_encoding
from npformer.teaching import plots

TOKENS = ["dog", "bites", "man"]
X, F = np.random.default_rng(0).normal(size=(2, 3, 4))
HALF = [("x", X), ("f = FFN(x)", F), ("x + f", X + F)]
TABLE = positional_encoding(20, 16)


def dataflow():
    return plots.dataflow([HALF, HALF[1:]], TOKENS, residuals=[(0, 2)])


def banner():
    return plots.banner(TABLE, 3, [0, 2, 7], HALF, TOKENS, residuals=[(0, 2)])


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule is not test_plots.test_axes_are_labelled])
def test_dataflow_keeps_the_rules_of_all_pictures(rule):
    rule(dataflow)


@pytest.mark.parametrize("draw", [dataflow, banner])
def test_a_picture_is_the_same_bytes_whatever_the_reader_s_settings(draw):
    plain = plots.encoded(draw())
    with matplotlib.rc_context({"font.size": 6, "lines.linewidth": 9, "figure.facecolor": "black"}):
        assert plots.encoded(draw()) == plain


def test_the_banner_s_letters_are_legible():
    test_plots.test_letters_are_legible_from_the_back_of_a_room(banner)


def tables(axes):
    return [image.get_array() for image in axes.get_images()]


def test_each_step_shows_its_name_and_its_numbers():
    first, second = dataflow().axes
    np.testing.assert_array_equal(tables(first), [X, F, X + F])
    np.testing.assert_array_equal(tables(second), [F, X + F])
    written = [t.get_text() for t in first.texts if t.get_text()]
    numbers = [f"{value:z.1f}".replace("-", "−") for values in (X, F, X + F) for value in values.ravel()]
    assert written == [*TOKENS, "x", "f = FFN(x)", "x + f", *numbers]
    assert len({image.get_clim() for axes in (first, second) for image in axes.get_images()}) == 1


def test_a_residual_leaves_below_its_start_and_arrives_below_its_end():
    (path,) = dataflow().axes[0].get_lines()
    (start, *_), (*_, end) = path.get_xydata(), path.get_xydata()
    first, _, third = (image.get_extent() for image in dataflow().axes[0].get_images())
    np.testing.assert_allclose((start[0], end[0]), (np.mean(first[:2]), np.mean(third[:2])))


def test_the_hands_of_the_banner_are_the_marked_row_of_its_table():
    card, heat_map, *dials, block = banner().axes
    np.testing.assert_array_equal(heat_map.get_images()[0].get_array(), TABLE)
    (mark,) = heat_map.patches
    assert mark.get_y() + mark.get_height() / 2 == pytest.approx(3)
    for dial, i in zip(dials, (0, 2, 7), strict=True):
        hand, _ = test_plots.lines_of(dial, plots.POSITION)
        np.testing.assert_array_equal(hand[1], TABLE[3, 2 * i : 2 * i + 2])
    np.testing.assert_array_equal(tables(block), [X, F, X + F])
    written = [t.get_text() for t in card.texts]
    assert written[:2] == ["20 positions, 16 numbers each", "position 3 as clock hands, fast to slow"]


def test_the_line_from_the_marked_row_meets_it_and_the_clocks():
    card, heat_map, dial, *_ = banner().axes
    (line,) = card.get_lines()
    height = line.get_ydata()[0]
    inside = heat_map.transData.transform((0, 3))[1] / heat_map.figure.bbox.height
    box = dial.get_position()
    assert height == pytest.approx(inside) == pytest.approx((box.y0 + box.y1) / 2)


def test_the_banner_is_a_white_card_that_sits_on_any_page():
    picture = Image.open(io.BytesIO(plots.encoded(banner())))
    assert picture.size == (1600, 480)
    corners = [picture.getpixel((x, y))[3] for x in (0, 1599) for y in (0, 479)]
    assert corners == [0, 0, 0, 0]
    assert picture.getpixel((800, 15)) == (255, 255, 255, 255)
