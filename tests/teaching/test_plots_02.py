"""The pictures of lesson 2: lines, tables beside each other, the binary counter."""

import io

import matplotlib
import numpy as np
import pytest
from matplotlib import text as matplotlib_text
from PIL import Image

from npformer.positional import positional_encoding
from npformer.teaching import plots

TABLE = positional_encoding(20, 8)
BITS = (np.arange(16)[:, None] >> np.arange(4)) & 1
WAVES = positional_encoding(16, 8, base=16.0)
LINES = {"sines": TABLE[:, 0], "cosines": TABLE[:, 1]}
DRAWN = {
    "one_panel": lambda: plots.curves(np.arange(20), {"": LINES}, x_label="distance", y_label="dot product"),
    "two_panels": lambda: plots.curves(np.arange(20), {"value": LINES, "slope": LINES}, x_label="z"),
    "heat_maps": lambda: plots.heat_maps({"interleaved": TABLE, "halves": -2 * TABLE}),
    "binary_counter": lambda: plots.binary_counter(BITS, WAVES),
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


def test_each_line_of_each_panel_shows_its_numbers_and_has_a_name():
    x = np.arange(20)
    figure = plots.curves(x, {"value": LINES, "slope": {"cosines": TABLE[:, 1]}}, x_label="z", y_label="y")
    value, slope = figure.axes
    np.testing.assert_array_equal(value.get_lines()[0].get_xydata(), np.column_stack([x, TABLE[:, 0]]))
    np.testing.assert_array_equal(value.get_lines()[1].get_ydata(), TABLE[:, 1])
    np.testing.assert_array_equal(slope.get_lines()[0].get_ydata(), TABLE[:, 1])
    assert [t.get_text() for t in value.get_legend().get_texts()] == ["sines", "cosines"]
    assert [axes.get_title() for axes in figure.axes] == ["value", "slope"]
    assert (value.get_xlabel(), value.get_ylabel(), slope.get_xlabel()) == ("z", "y", "z")
    assert len({line.get_linestyle() for line in value.get_lines()}) == 2  # told apart without colours


def test_tables_beside_each_other_share_one_scale_centred_at_zero():
    figure = plots.heat_maps({"a": TABLE, "b": -2 * TABLE})
    first, second = (axes.get_images()[0] for axes in figure.axes[:2])
    np.testing.assert_array_equal(first.get_array(), TABLE)
    np.testing.assert_array_equal(second.get_array(), -2 * TABLE)
    largest = 2 * np.abs(TABLE).max()
    assert first.get_clim() == second.get_clim() == (-largest, largest)
    assert [axes.get_title() for axes in figure.axes[:2]] == ["a", "b"]


def test_the_counter_writes_every_bit_and_every_wave():
    left, right = plots.binary_counter(BITS, WAVES).axes
    assert [t.get_text() for t in left.texts] == [str(bit) for bit in BITS.ravel()]
    assert [float(t.get_text().replace("−", "-")) for t in right.texts] == pytest.approx(
        WAVES.ravel(), abs=0.05
    )
    ones = left.get_images()[0]
    assert ones.cmap(ones.norm(1.0)) == matplotlib.colors.to_rgba(plots.POSITION)
    assert [t.get_text() for t in left.get_xticklabels()] == ["bit 0", "bit 1", "bit 2", "bit 3"]
    assert [t.get_text() for t in right.get_xticklabels()][:3] == ["sin 0", "cos 0", "sin 1"]
