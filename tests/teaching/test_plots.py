"""Pictures show the numbers they are given, in the colours of the lessons, and leave nothing behind."""

import functools
import io
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib import text as matplotlib_text
from PIL import Image

from npformer.positional import angular_frequencies, positional_encoding, wavelengths
from npformer.teaching import plots

OMEGA = angular_frequencies(8)
TABLE = positional_encoding(20, 8)
DRAWN = {
    "heat_map": lambda: plots.heat_map(TABLE, title="positions"),
    "matrix": lambda: plots.matrix(TABLE[:3, :4]),
    "attention_weights": lambda: plots.attention_weights(np.full((3, 3), 1 / 3), ["dog", "bites", "man"]),
    "position_similarity": lambda: plots.position_similarity(TABLE),
    "frequency_bands": lambda: plots.frequency_bands(OMEGA),
    "clock_hands": lambda: plots.clock_hands([0, 3, 15], OMEGA),
    "one_clock": lambda: plots.clock_hands([5], OMEGA),
    "wavelength_curves": lambda: plots.wavelength_curves({"base 10000": wavelengths(8)}),
}
every_picture = pytest.mark.parametrize("draw", DRAWN.values(), ids=DRAWN)


@functools.cache
def image(draw):
    return Image.open(io.BytesIO(plots.encoded(draw())))


@every_picture
def test_letters_are_legible_from_the_back_of_a_room(draw):
    figure = draw()
    figure.draw_without_rendering()
    written = [t for t in figure.findobj(matplotlib_text.Text) if t.get_text().strip()]
    assert written
    assert min(t.get_fontsize() for t in written) >= 13


@every_picture
def test_nothing_is_cut_off_at_the_edge(draw):
    pixels = np.asarray(image(draw).convert("RGB"))
    for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
        assert (edge == 255).all()


@every_picture
def test_axes_are_labelled(draw):
    for axes in draw().axes:
        labelled = axes.get_xlabel() or axes.get_ylabel() or axes.get_title(loc="left")
        assert labelled


@every_picture
@pytest.mark.parametrize("kind", ["png", "svg"])
def test_a_picture_is_the_same_bytes_each_time_and_names_no_software(draw, kind):
    data = plots.encoded(draw(), kind)
    assert data == plots.encoded(draw(), kind)
    assert b"Software" not in data
    assert b"dc:date" not in data and b"dc:creator" not in data


@every_picture
def test_the_background_is_opaque_white_so_that_a_dark_page_does_no_harm(draw):
    rgba = image(draw).convert("RGBA")
    assert rgba.getpixel((0, 0)) == (255, 255, 255, 255)
    assert rgba.getextrema()[3] == (255, 255)


def test_the_reader_s_settings_are_neither_used_nor_changed():
    plain = plots.encoded(DRAWN["matrix"]())
    with matplotlib.rc_context({"font.size": 6, "lines.linewidth": 9}):
        assert plots.encoded(DRAWN["matrix"]()) == plain
        assert matplotlib.rcParams["font.size"] == 6


def test_pyplot_and_ipython_are_not_imported_by_drawing():
    program = """
import sys, numpy as np
from npformer.teaching import plots
assert "matplotlib" not in sys.modules
plots.encoded(plots.heat_map(np.eye(3)))
print(*({"matplotlib.pyplot", "IPython"} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_a_picture_in_a_notebook_carries_its_description():
    shown = plots.picture(plots.heat_map(TABLE), alt="twenty positions")
    data, metadata = shown._repr_png_()
    assert data and metadata == {"alt": "twenty positions"}


def test_the_same_thing_has_the_same_colour():
    assert (plots.SINE, plots.COSINE, plots.POSITION) == ("#0072B2", "#E69F00", "#009E73")
    assert (plots.MEANING, plots.GRADIENT) == ("#7F7F7F", "#D55E00")


# --- each shows its numbers ---------------------------------------------------------------------


def image_of(figure):
    return figure.axes[0].get_images()[0]


def lines_of(axes, colour):
    return [line.get_xydata() for line in axes.get_lines() if line.get_color() == colour]


@pytest.mark.parametrize("values", [TABLE, TABLE - 0.5, -TABLE])
def test_a_heat_map_of_signed_values_is_centred_at_zero(values):
    shown = image_of(plots.heat_map(values))
    np.testing.assert_array_equal(shown.get_array(), values)
    assert shown.get_clim() == (-np.abs(values).max(), np.abs(values).max())
    assert shown.get_cmap().name == "RdBu_r"


def test_weights_lie_on_a_sequential_map_from_zero():
    shown = image_of(plots.heat_map(np.array([[0.25, 0.75]]), signed=False))
    assert shown.get_clim() == (0, 0.75)
    assert shown.get_cmap().name == "Purples"


def test_a_table_of_zeros_can_be_drawn():
    assert image_of(plots.heat_map(np.zeros((2, 3)))).get_clim() == (-1, 1)


def test_each_square_of_a_matrix_holds_its_number():
    figure = plots.matrix(np.array([[0.8413, -0.4161], [-0.0004, 1.0]]), row_labels=["dog", "man"])
    axes = figure.axes[0]
    assert [t.get_text() for t in axes.texts] == ["0.841", "−0.416", "0.000", "1.000"]
    assert [t.get_position() for t in axes.texts] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["dog", "man"]
    assert [t.get_color() for t in axes.texts] == ["white", plots.INK, plots.INK, "white"]


def test_attention_weights_name_the_tokens_on_both_axes():
    weights = np.array([[0.75, 0.25], [0.5, 0.5]])
    axes = plots.attention_weights(weights, ["hot", "dog"], title="who looks at whom").axes[0]
    assert [t.get_text() for t in axes.texts] == ["0.75", "0.25", "0.50", "0.50"]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["hot", "dog"]
    assert axes.get_title() == "who looks at whom"


def test_position_similarity_is_half_d_model_on_the_diagonal():
    values = image_of(plots.position_similarity(TABLE)).get_array()
    np.testing.assert_allclose(np.diag(values), 4)
    np.testing.assert_allclose(values, [[np.dot(p, q) for q in TABLE] for p in TABLE])


def test_the_dots_of_the_bands_are_the_table_s_columns():
    figure = plots.frequency_bands(OMEGA, pairs=(0, 2), n=20)
    for axes, i in zip(figure.axes, (0, 2), strict=True):
        for colour, column in ((plots.SINE, 2 * i), (plots.COSINE, 2 * i + 1)):
            dots = lines_of(axes, colour)[1]
            np.testing.assert_allclose(dots, np.column_stack([np.arange(20), TABLE[:, column]]), atol=1e-12)
    assert "columns 4 and 5" in figure.axes[1].get_title(loc="left")
    assert f"{wavelengths(8)[2]:.1f} positions a turn" in figure.axes[1].get_title(loc="left")


def test_a_hand_points_at_its_pair_of_the_table():
    figure = plots.clock_hands([3, 11], OMEGA)
    for axes, (p, i) in zip(figure.axes, [(p, i) for p in (3, 11) for i in range(3)], strict=True):
        hand, tip = lines_of(axes, plots.POSITION)
        np.testing.assert_allclose(hand, [[0, 0], TABLE[p, 2 * i : 2 * i + 2]], atol=1e-12)
        np.testing.assert_allclose(tip[0], hand[1])
    assert figure.axes[0].get_xlabel() == "(0.14, −0.99)"
    assert figure.axes[3].get_ylabel() == "p = 11"


def test_a_wavelength_curve_ends_in_its_longest():
    axes = plots.wavelength_curves({"paper": wavelengths(8), "notes": wavelengths(8, base=1000.0)}).axes[0]
    np.testing.assert_array_equal(axes.get_lines()[0].get_ydata(), wavelengths(8))
    assert [t.get_text() for t in axes.texts] == ["6,283", "1,117"]
    assert [t.get_text() for t in axes.get_legend().get_texts()] == ["paper", "notes"]
