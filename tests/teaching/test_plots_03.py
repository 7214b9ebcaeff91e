"""The pictures of lesson 3: lanes and the hourglass."""

import io

import matplotlib
import numpy as np
import pytest
from matplotlib import text as matplotlib_text
from matplotlib.patches import FancyBboxPatch, Rectangle
from PIL import Image

from npformer.teaching import plots

RNG = np.random.default_rng(0)
MEANING, ORDER, OUTPUT = RNG.normal(size=(3, 3, 4))
HIDDEN = np.maximum(RNG.normal(size=32), 0)
TOKENS = ["dog", "bites", "man"]
DRAWN = {
    "lanes": lambda: plots.lanes(MEANING, ORDER, OUTPUT, TOKENS),
    "hourglass": lambda: plots.hourglass(MEANING[0], HIDDEN, OUTPUT[0]),
}
every_picture = pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)


@every_picture
def test_letters_are_legible_from_the_back_of_a_room(draw):
    figure = draw()
    figure.canvas.draw()
    written = [t for t in figure.findobj(matplotlib_text.Text) if t.get_text().strip()]
    assert min(t.get_fontsize() for t in written) >= 13


@every_picture
def test_nothing_is_cut_off_at_the_edge(draw):
    pixels = np.asarray(Image.open(io.BytesIO(plots.encoded(draw()))).convert("RGB"))
    for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
        assert (edge == 255).all()


@every_picture
def test_a_picture_is_the_same_bytes_whatever_the_reader_s_settings(draw):
    plain = plots.encoded(draw())
    with matplotlib.rc_context({"font.size": 6, "lines.linewidth": 9}):
        assert plots.encoded(draw()) == plain


def strips(axes):
    """The numbers of each strip, from the first one drawn to the last."""
    return [image.get_array()[0] for image in axes.get_images()]


def test_each_lane_shows_meaning_order_their_sum_and_its_output():
    axes = plots.lanes(MEANING, ORDER, OUTPUT, TOKENS).axes[0]
    expected = [*MEANING, *ORDER, *(MEANING + ORDER), *OUTPUT]
    np.testing.assert_array_equal(strips(axes), expected)
    assert len({image.get_clim() for image in axes.get_images()}) == 1  # one scale for all
    written = [t.get_text() for t in axes.texts]
    assert [text for text in written if text in TOKENS] == TOKENS
    assert written.count("FFN") == sum(isinstance(p, FancyBboxPatch) for p in axes.patches) == 3
    assert f"{MEANING[0, 0]:z.1f}".replace("-", "−") in written


def test_the_frames_of_meaning_and_order_have_their_colours():
    axes = plots.lanes(MEANING, ORDER, OUTPUT, TOKENS).axes[0]
    frames = [
        matplotlib.colors.to_hex(p.get_edgecolor()).upper() for p in axes.patches if type(p) is Rectangle
    ]
    assert frames == [plots.MEANING] * 3 + [plots.POSITION] * 3 + [plots.INK] * 6


def test_the_hourglass_shows_the_three_rows_and_counts_the_units_that_are_on():
    axes = plots.hourglass(MEANING[0], HIDDEN, OUTPUT[0]).axes[0]
    for shown, given in zip(strips(axes), (MEANING[0], HIDDEN, OUTPUT[0]), strict=True):
        np.testing.assert_array_equal(shown, given)
    on = int(np.sum(HIDDEN > 0))
    assert [t.get_text() for t in axes.texts][1] == f"hidden: 32 numbers, {on} of them above 0"
