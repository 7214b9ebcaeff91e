"""Pictures show the numbers they are given, in the colours of the lessons, and leave nothing behind.

First the rules that every picture keeps, then what is in each, from tables: squares, lines, words.
"""

import base64
import functools
import io
import re
import struct
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from letters import letters, troubles
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from together import together

from npformer import angular_frequencies, positional_encoding, wavelengths
from npformer.teaching import plots
from npformer.teaching.plots import style

RNG = np.random.default_rng(0)
TOKENS = ["dog", "bites", "man"]
OMEGA = angular_frequencies(8)
TABLE = positional_encoding(20, 8)
LINES = {"sines": TABLE[:, 0], "cosines": TABLE[:, 1]}
BITS, WAVES = (np.arange(8)[:, None] >> np.arange(3)) & 1, positional_encoding(8, 6, base=8.0)
MEANING, ORDER, OUTPUT = RNG.normal(size=(3, 3, 4))
HIDDEN = np.maximum(RNG.normal(size=32), 0)
X, Y = np.array([[1.0, -2.0], [0.5, 0.0]]), np.array([[4.0, 0.0], [-0.001, 3.0]])
HEADS = {
    "before": np.array([[1.0, 0.0, 0.0], [0.96, 0.04, 0.0], [0.0, 0.95, 0.05]]),
    "everywhere": np.full((3, 3), 1 / 3),
    "[CLS]": np.eye(3)[[0, 0, 0]],
}
HALF = [("x", MEANING), ("f = FFN(x)", ORDER), ("x + f", MEANING + ORDER)]
DOWN, FLAT = 10.0 ** -np.arange(4), np.full(4, 2.0)
GRADIENTS = {
    "with residuals": {"post-norm": DOWN, "pre-norm": FLAT, "no norm": 1 / DOWN},
    "without residuals": {"post-norm": np.where(DOWN < 0.05, np.nan, DOWN), "pre-norm": FLAT},
}
LENGTHS = [3, 4, 8, 16]
FREE = {"sinusoidal": np.array([[1.0, 1.0, 1.0, 0.2], [0.8, 1.0, 1.0, 0.4]]), "ALiBi": np.full((2, 4), 0.9)}
MASKED = {"no positions": np.ones((3, 4))}
STAIRS = np.array([[0.97, 0.03, 0.0], [0.0, 0.3, 0.7]])
SURE = {"smoothed": np.array([0.9, 0.91, 0.9, 0.4]), "plain": np.ones(3)}
SIZES = np.array([32.0, 64, 128, 256, 512])
TIMES = {
    "positions n": (SIZES, {"measured": 2 * SIZES, "predicted": SIZES}),
    "blocks": (SIZES[:3], {"measured": SIZES[:3], "predicted": SIZES[:3] / 2}),
}
GPU_RUNS = [
    {"T": T, "dtype": dtype, "seconds": {"numpy": T / 1000, "cupy": 0.002}}
    for dtype in ("float32", "float64")
    for T in (32, 64, 128)
]
COSINES = np.array([[1.0, 0.5, 0.1], [0.5, 1.0, -0.2], [0.1, -0.2, 1.0]])
SPANS = {
    "in turns": {"host": [(0.0, 20.0), (50.0, 70.0)], "device": [(20.0, 50.0), (70.0, 100.0)]},
    "at once": {"host": [(0.0, 20.0), (20.0, 40.0)], "device": [(20.0, 50.0), (50.0, 80.0)]},
}
SHARES = {"temperature 1": np.array([0.75, 0.25]), "top-p 0.5": np.array([1.0, 0.0])}
DRAWN = {
    "heat_map": lambda: plots.heat_map(TABLE, title="positions"),
    "matrix": lambda: plots.matrix(TABLE[:3, :4]),
    "frequency_bands": lambda: plots.frequency_bands(OMEGA),
    "clock_hands": lambda: plots.clock_hands([0, 3, 15], OMEGA),
    "one_clock": lambda: plots.clock_hands([5], OMEGA),
    "wavelength_curves": lambda: plots.wavelength_curves({"base 10000": wavelengths(8)}),
    "position_similarity": lambda: plots.position_similarity(TABLE),
    "curves": lambda: plots.curves(np.arange(20), {"": LINES}, x_label="distance", y_label="dot product"),
    "two_curves": lambda: plots.curves(np.arange(20), {"value": LINES, "slope": LINES}, x_label="z"),
    "heat_maps": lambda: plots.heat_maps({"interleaved": TABLE, "halves": -2 * TABLE}),
    "binary_counter": lambda: plots.binary_counter(BITS, WAVES, base=8),
    "lanes": lambda: plots.lanes(MEANING, ORDER, OUTPUT, TOKENS),
    "hourglass": lambda: plots.hourglass(MEANING[0], HIDDEN, OUTPUT[0]),
    "matrices": lambda: plots.matrices({"x": X, "y": Y, "x + y": X + Y}, across=2, row_labels=["dog", "man"]),
    "attention_weights": lambda: plots.attention_weights(np.full((3, 3), 1 / 3), TOKENS),
    "dataflow": lambda: plots.dataflow([HALF, HALF[1:]], TOKENS, residuals=[(0, 2)]),
    "block_diagram": lambda: plots.block_diagram("post", "pre"),
    "gradient_by_depth": lambda: plots.gradient_by_depth(GRADIENTS),
    "accuracy": lambda: plots.accuracy([0, 10, 20, 30], {"": FREE}, x_label="training steps"),
    "accuracy_by_length": lambda: plots.accuracy(
        LENGTHS, {"free": FREE, "masked": MASKED}, x_label="words", trained=(3, 8)
    ),
    "cross_attention": lambda: plots.cross_attention(STAIRS, ["forty", "thousand", "two"], ["4", "<stop>"]),
    "confidence": lambda: plots.confidence(SURE, mark=0.902),
    "attention_heads": lambda: plots.attention_heads(HEADS, ["[CLS]", "dogs", "[SEP]"]),
    "themes": lambda: plots.themes(COSINES, {"money": 2, "music": 1}),
    "growth": lambda: plots.growth(TIMES),
    "gpu_growth": lambda: plots.gpu_growth(GPU_RUNS),
    "timeline": lambda: plots.timeline(SPANS),
    "score_tiles": lambda: plots.score_tiles(4, (2, 1)),
    "next_token": lambda: plots.next_token(SHARES, [" shy", " kind"]),
}
CROWDED = {"lanes": 13, "attention_heads": 14}  # points of the numbers in their squares
WITHOUT_AXES = {"lanes", "hourglass", "dataflow", "block_diagram"}  # squares with names beside them
ODD = {"font.size": 6, "lines.linewidth": 9, "figure.facecolor": "black", "svg.hashsalt": "mine"}
# What all pictures have in common is looked at in these now, in the others by `pytest -m slow`.
NOW = {"heat_map", "curves", "matrices", *CROWDED, "lanes", "block_diagram"}
LATER = {name: pytest.mark.slow for name in DRAWN if name not in NOW}
every_picture = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=LATER.get(name, [])) for name in DRAWN]
)


@functools.cache
def figure(name):
    """A picture, drawn under settings that may not show: only to be looked at."""
    with matplotlib.rc_context(ODD):
        return DRAWN[name]()


@functools.cache
def data(name):
    with matplotlib.rc_context(ODD):
        return plots.encoded(figure(name))


def written(texts):
    return [t.get_text() for t in texts]


# --- the rules of all pictures ------------------------------------------------------------------


def test_there_is_a_picture_of_every_kind():
    drawing = {name for name in plots.__all__ if name.islower()} - {"describe", "encoded", "picture"}
    assert drawing <= set(DRAWN)


@every_picture
def test_a_picture_keeps_the_rules(name):
    """Legible from the back of a room, opaque and whole, labelled, told apart without colours, described."""
    drawn, seen = figure(name), np.asarray(Image.open(io.BytesIO(data(name))).convert("RGBA"))
    assert min(t.get_fontsize() for t in drawn.findobj(Text) if t.get_text().strip()) >= 13
    assert (seen[..., 3] == 255).all()
    for edge in (seen[:2], seen[-2:], seen[:, :2], seen[:, -2:]):
        assert (edge == 255).all(), "cut off"
    for axes in drawn.axes:
        named = axes.get_xlabel() or axes.get_ylabel() or axes.get_title("left") or axes.get_title()
        assert named or name in WITHOUT_AXES
        lines = [line for line in axes.get_lines() if not line.get_label().startswith("_")]
        looks = {(line.get_linestyle(), line.get_marker(), *line.get_color()[:9]) for line in lines}
        assert len(looks) == len(lines)
    words = drawn.get_label()
    assert 20 < len(words) <= 900 and re.search(r"\d", words) and not re.search("\n|nan", words)


@every_picture
def test_on_a_slide_every_letter_is_as_large_as_those_of_the_text(name, monkeypatch):
    """15 points of 9.4 inches, which are 28 pixels of 1268; less only where numbers stand close together."""
    monkeypatch.setenv(style.STAGE, "")
    style.fill_stage(drawn := DRAWN[name]())
    assert drawn.get_figwidth() == 9.4 and drawn.get_figheight() <= 4.86
    found = letters(drawn)
    assert min(points for _, points in found) >= CROWDED.get(name, 15)
    assert troubles(drawn, found) == []


def test_the_bytes_of_a_file_name_neither_day_nor_software_nor_the_reader_s_settings():
    for kind in ("png", "svg"):
        plain = plots.encoded(DRAWN["one_clock"](), kind)
        with matplotlib.rc_context(ODD):
            assert plots.encoded(DRAWN["one_clock"](), kind) == plain
            assert matplotlib.rcParams["font.size"] == 6, "and are put back"
        assert not re.search(b"Software|dc:date|dc:creator", plain)


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


def test_a_picture_in_a_notebook_carries_its_description_into_the_page(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    plots.picture(DRAWN["heat_map"](), alt='twenty "positions"')
    plots.picture(DRAWN["heat_map"]())
    given, own = (handed._repr_mimebundle_(include=None, exclude=None) for handed in shown)
    assert 'alt="twenty &quot;positions&quot;"' in given["text/html"]
    assert given["text/plain"] == repr(shown[0]) == 'twenty "positions"'
    assert base64.b64encode(data("heat_map")).decode() in given["text/html"]
    assert own["text/plain"] == figure("heat_map").get_label()
    with pytest.raises(ValueError, match="the figure has no description"):
        plots.picture(Figure())
    for height, width in ((5, 1000), (8, 800)):  # a high one is shown smaller
        plots.picture(plots.describe(Figure(figsize=(10, height)), "nothing"))
        assert shown[-1].width == width
    monkeypatch.setenv(style.STAGE, "")
    plots.picture(drawn := DRAWN["curves"]())
    high = pytest.approx(200 * drawn.get_figheight(), abs=1)
    assert struct.unpack(">2I", shown[-1].png[16:24]) == (1880, high)


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
    draw_lines({name: np.arange(1.0, 3) for name in "abc"})
    with pytest.raises(ValueError, match=r"^plots: 4 lines in one panel; expected at most 3"):
        draw_lines({name: np.arange(1.0, 3) for name in "abcd"})


# --- every number that a picture is given is in it -----------------------------------------------

SQUARES = {  # what is shown as squares, from the first table drawn to the last
    "heat_map": [TABLE],
    "matrix": [TABLE[:3, :4]],
    "position_similarity": [np.array([[np.dot(p, q) for q in TABLE] for p in TABLE])],
    "heat_maps": [TABLE, -2 * TABLE],
    "binary_counter": [BITS, WAVES],
    "lanes": [*MEANING, *ORDER, *(MEANING + ORDER), *OUTPUT],
    "hourglass": [MEANING[0], HIDDEN, OUTPUT[0]],
    "matrices": [X, Y, X + Y],
    "attention_weights": [np.full((3, 3), 1 / 3)],
    "dataflow": [MEANING, ORDER, MEANING + ORDER, ORDER, MEANING + ORDER],
    "cross_attention": [STAIRS],
    "attention_heads": list(HEADS.values()),
    "themes": [COSINES * (1 - np.eye(3))],
}
WRITTEN = {  # how many of them are written in their squares too; of weights the larger ones
    "matrix": 12, "binary_counter": 72, "lanes": 48, "matrices": 12, "attention_weights": 9, "dataflow": 60,
    "cross_attention": 3, "attention_heads": 16,
}  # fmt: skip
LINES_OF = {  # what is shown as lines, by their names
    "wavelength_curves": [("base 10000", wavelengths(8))],
    "curves": LINES.items(),
    "two_curves": LINES.items(),
    "gradient_by_depth": [line for lines in GRADIENTS.values() for line in lines.items()],
    "accuracy": [("sinusoidal", np.array([90, 100, 100, 30])), ("ALiBi", np.full(4, 90))],
    "growth": [line for _, lines in TIMES.values() for line in lines.items()],
    "gpu_growth": [("NumPy", np.array([32, 64, 128])), ("GPU", np.full(3, 2))],
}


@together("name", SQUARES)
def test_every_number_is_a_square_on_a_scale_that_can_be_compared(name):
    """Signed values lie on a diverging scale centred at zero, weights on one from zero, all tables on one."""
    images = [image for axes in figure(name).axes for image in axes.get_images()]
    for image, given in zip(images, SQUARES[name], strict=True):
        np.testing.assert_allclose(np.squeeze(image.get_array()), given, rtol=0, atol=1e-12)
    largest = max(np.abs(given).max() for given in SQUARES[name])
    for image in images:
        low, high = image.get_clim()
        signed = image.get_cmap().name == "RdBu_r"
        assert low == (-high if signed else np.min(image.get_array()) if name == "position_similarity" else 0)
        if name not in ("hourglass", "binary_counter", "cross_attention"):
            assert high == pytest.approx(largest, rel=1e-12)  # which was summed in another order
    assert name not in ("attention_heads", "cross_attention") or {i.get_clim() for i in images} == {(0, 1)}


def test_weights_lie_on_a_sequential_map_and_zeros_can_be_drawn():
    (alone,) = plots.heat_map(np.array([[0.25, 0.75]]), signed=False).axes[0].get_images()
    beside = plots.matrices({"a": np.eye(2), "b": 0.5 * np.eye(2)}, signed=False)
    assert {image.get_clim() for axes in beside.axes for image in axes.get_images()} == {(0, 1)}
    assert (alone.get_clim(), alone.get_cmap().name) == ((0, 0.75), style.WEIGHT_MAP)
    assert plots.heat_map(np.zeros((2, 3))).axes[0].get_images()[0].get_clim() == (-1, 1)


@together("name", WRITTEN)
def test_a_number_that_is_written_stands_in_its_square_and_can_be_read_there(name):
    found = 0
    for axes in figure(name).axes:
        texts = {tuple(np.round(t.get_position(), 6)): t for t in axes.texts}
        for image in axes.get_images():
            values = np.atleast_2d(image.get_array())
            left, right, bottom, top = image.get_extent()
            for row, column in np.ndindex(values.shape):
                x = left + (right - left) * (column + 0.5) / values.shape[1]
                y = top + (bottom - top) * (row + 0.5) / values.shape[0]
                if text := texts.get((round(x, 6), round(y, 6))):
                    decimals = len(text.get_text().partition(".")[2])
                    value = values[row, column]
                    assert text.get_text() == f"{value:z.{decimals}f}".replace("-", "−")
                    dark = abs(value) > 0.65 * image.get_clim()[1]
                    assert text.get_color() == ("white" if dark else style.INK)
                    found += 1
    assert found == WRITTEN[name]


@together("name", LINES_OF)
def test_every_line_is_its_numbers(name):
    lines = [line for axes in figure(name).axes for line in axes.get_lines()]
    for label, given in LINES_OF[name]:
        shown = [line.get_ydata() for line in lines if line.get_label() == label]
        assert any(y.shape == given.shape and np.allclose(y, given, equal_nan=True) for y in shown), label


def first_two(array, decimals=1):
    return ", ".join(f"{x:z.{decimals}f}" for x in array).replace(".0", "").replace("-", "−")


SAID = {  # in words made from the numbers
    "heat_map": "20 rows, 8 columns, numbers from −1 to 1; from one row to the next a number changes by",
    "matrices": "x: row dog: 1, −2; row man: 0.5, 0. y: row dog: 4, 0; row man: 0, 3. x + y: row dog: 5,",
    "lanes": f"; man: {first_two((MEANING + ORDER)[2])} in, {first_two(OUTPUT[2])} out",
    "hourglass": f"hidden: 32 numbers, {int(np.sum(HIDDEN > 0))} of them above 0",
    "attention_heads": "before: 3 tokens look at 3; [CLS] at [CLS] 1, dogs at [CLS] 0.96, [SEP] at dogs 0.95",
    "dataflow": "A path leads past 1 from table 1 to table 3.",
    "gradient_by_depth": "with residuals: post-norm 1 at block 0, 1e-03 at block 3; pre-norm 2 at block 0",
    "accuracy_by_length": "right answers in percent: free: sinusoidal from 90 at 3 to 30 at 16, lowest 30",
    "cross_attention": "4 looks at forty with 0.97; <stop> looks at two with 0.7",
    "confidence": "smoothed: 0.777 on average; half from 0.775 to 0.903",
    "themes": "inside money 0.5 on average; inside music 0 on average; between different themes −0.05",
    "growth": "over positions n: measured from 64 at 32 to 1,024 at 512",
    "timeline": "in turns: host works 2 times, 40 ms in all, until 70 ms; device works 2 times, 60 ms in all",
    "score_tiles": "A table of 4 by 4 tiles: 4 done, 1 in memory now, 5 to come, 6 never computed",
    "next_token": "temperature 1: shy 0.75, kind 0.25. top-p 0.5: shy 1, kind 0",
}


@together("name", SAID)
def test_a_picture_says_what_it_shows(name):
    assert SAID[name] in figure(name).get_label()


def test_what_is_left_out_is_not_said():
    gap = plots.curves(np.arange(3), {"": {"y": np.array([1.0, np.nan, 3.0])}}, x_label="x").get_label()
    assert gap == "y from 1 at 0 to 3 at 2, lowest 1 at 0, highest 3 at 2"
    one = plots.attention_weights(np.eye(6), list("abcdef"), title="one").get_label()
    assert one == "one: 6 tokens look at 6; a at a 1, b at b 1, c at c 1, d at d 1"
    assert plots.themes(np.eye(2), {"all": 2}, title="t").get_label() == "t: inside all 0 on average"
    uneven = plots.matrices({"W": X, "b": np.ones((1, 2))}, row_labels=["dog", "man"]).get_label()
    assert uneven == "W: row dog: 1, −2; row man: 0.5, 0. b: row 0: 1, 1"
    ended = figure("gradient_by_depth").get_label()
    assert "without residuals: post-norm 1 at block 0, 1e-01 at block 1, zero from the next block on" in ended


NAMED = {  # what is written, in this order among other words
    "heat_maps": ["interleaved", "halves"],
    "matrices": ["x", "y", "x + y"],
    "attention_heads": ["before", "everywhere", "[CLS]"],
    "two_curves": ["z", "value", "slope"],
    "cross_attention": ["forty", "thousand", "two", "4", "<stop>"],
    "themes": ["money", "music", "money", "music"],
    "timeline": ["host", "device", "in turns", "time, ms", "host", "device", "at once"],
    "growth": ["positions n", "time, ms", "measured", "predicted", "blocks"],
    "gpu_growth": ["words, float32", "NumPy", "GPU", "words, float64"],
    "gradient_by_depth": ["with residuals", "without residuals"],
    "binary_counter": ["bit 0", "bit 1", "bit 2", "sin 0", "cos 0", "sin 1"],
    "lanes": ["FFN", "FFN", "FFN", "one FFN"],
    "dataflow": [*TOKENS, "x", "f = FFN(x)", "x + f"],
    "hourglass": ["in: 4 numbers", f"hidden: 32 numbers, {int(np.sum(HIDDEN > 0))} of them above 0"],
    "frequency_bands": [f"pair i = 2: columns 4 and 5, {wavelengths(8)[2]:.1f} positions a turn"],
    "clock_hands": [f"medium hand, pair 1\n{wavelengths(8)[1]:.1f} positions a turn"],
    "wavelength_curves": ["6,283", "base 10000"],
    "next_token": ["' shy'", "' kind'"],
    "confidence": ["0.902", "0.902"],
}


@together("name", NAMED)
def test_what_has_a_name_is_named(name):
    figure(name).draw_without_rendering()
    words = iter(written(figure(name).findobj(Text)))
    assert [word for word in NAMED[name] if word not in words] == []


def test_what_grows_lies_on_a_logarithmic_axis():
    for name in ("growth", "gpu_growth", "gradient_by_depth", "wavelength_curves"):
        assert {axes.get_yscale() for axes in figure(name).axes} == {"log"}
    assert figure("growth").axes[0].get_xscale() == "log" != figure("curves").axes[0].get_yscale()


# --- what is neither square nor a line of numbers --------------------------------------------------


def lines_of(axes, colour):
    return [line.get_xydata() for line in axes.get_lines() if line.get_color() == colour]


def test_the_waves_of_a_band_pass_through_the_table_s_columns():
    found = plots.frequency_bands(OMEGA, pairs=(0, 2), n=20)
    for axes, i in zip(found.axes, (0, 2), strict=True):
        for colour, wave, column in ((style.SINE, np.sin, 2 * i), (style.COSINE, np.cos, 2 * i + 1)):
            between, dots = lines_of(axes, colour)
            np.testing.assert_allclose(dots, np.column_stack([np.arange(20), TABLE[:, column]]), atol=1e-12)
            np.testing.assert_allclose(between[:, 1], wave(OMEGA[i] * between[:, 0]), atol=1e-12)
            np.testing.assert_array_equal(between[[0, -1], 0], [0, 19])
            assert len(between) > 10 * len(dots)


def test_a_hand_points_at_its_pair_of_the_table_and_sine_and_cosine_lead_to_its_tip():
    found = plots.clock_hands([3, 11], OMEGA)
    for axes, (p, i) in zip(found.axes, [(p, i) for p in (3, 11) for i in range(3)], strict=True):
        (_, tip), _ = lines_of(axes, style.POSITION)
        np.testing.assert_allclose(tip, TABLE[p, 2 * i : 2 * i + 2], atol=1e-12)
        (right,), (up,) = lines_of(axes, style.SINE), lines_of(axes, style.COSINE)
        np.testing.assert_array_equal([right, up], [[[0, 0], [tip[0], 0]], [[tip[0], 0], tip]])
    assert (found.axes[0].get_xlabel(), found.axes[3].get_ylabel()) == ("(0.14, −0.99)", "p = 11")


def test_a_residual_of_the_diagram_leads_from_what_enters_a_station_to_its_sum():
    for axes in figure("block_diagram").axes:
        x = {word: [t.get_position()[0] for t in axes.texts if t.get_text() == word] for word in "xh+"}
        for path, before, plus in zip(axes.get_lines(), "xh", x["+"], strict=True):
            start, up, end = path.get_xdata()
            assert x[before][0] < start == up < end == plus


def test_a_line_that_ends_early_has_a_mark_at_its_last_block_and_no_other_line_has():
    with_residuals, without = figure("gradient_by_depth").axes
    assert not with_residuals.collections
    (mark,) = without.collections
    np.testing.assert_allclose(mark.get_offsets(), [[1, 0.1]])
    whole = plots.gradient_by_depth({"": {"pre-norm": FLAT}})
    assert written(whole.legends[0].get_texts()) == ["pre-norm"]
    assert with_residuals.get_lines()[0].get_color() == style.GRADIENT


def test_the_band_around_a_mean_is_the_range_of_the_runs_and_guessing_is_a_line():
    axes = figure("accuracy").axes[0]
    band = axes.collections[0].get_paths()[0].vertices
    assert [{y for x, y in band if x == at} for at in (0, 30)] == [{80.0, 100.0}, {20.0, 40.0}]
    assert axes.get_lines()[0].get_ydata() == [50, 50]


def test_bars_are_shares_and_spans_on_one_scale():
    smoothed, plain = figure("confidence").axes
    assert [sum(bar.get_height() for bar in axes.patches) for axes in (smoothed, plain)] == [100, 100]
    assert max(bar.get_height() for bar in smoothed.patches) == 75
    assert smoothed.get_ylim() == plain.get_ylim() and smoothed.get_lines()[0].get_xdata() == [0.902, 0.902]
    assert not plots.confidence({"sure": np.ones(2)}).axes[0].get_lines()
    for axes, shares in zip(figure("next_token").axes, SHARES.values(), strict=True):
        assert [bar.get_width() for bar in axes.patches] == shares.tolist() and axes.yaxis_inverted()
    for axes, lanes in zip(figure("timeline").axes, SPANS.values(), strict=True):
        for row, (bars, spans) in enumerate(zip(axes.collections, lanes.values(), strict=True)):
            boxes = [path.get_extents() for path in bars.get_paths()]
            assert [(box.x0, box.x1) for box in boxes] == spans
            assert all(row - 0.5 < box.y0 < row < box.y1 < row + 0.5 for box in boxes)


def test_themes_are_named_in_the_middle_of_their_texts_and_the_diagonal_is_left_out():
    axes = figure("themes").axes[0]
    assert axes.get_xticks().tolist() == [0.5, 2] and axes.get_images()[0].get_clim() == (0, 0.5)


def test_each_tile_shows_whether_it_is_done_here_to_come_or_never_computed():
    (axes,) = figure("score_tiles").axes
    looks = {}
    for tile in axes.patches:
        look = (tile.get_hatch(), to_hex(tile.get_facecolor()).upper())
        looks.setdefault(look, set()).add((round(tile.get_y() + 0.5), round(tile.get_x() + 0.5)))
    done, later = {(0, 0), (1, 0), (1, 1), (2, 0)}, {(2, 2), *((3, column) for column in range(4))}
    never = {(row, column) for row in range(4) for column in range(row + 1, 4)}
    assert looks.pop((None, style.COSINE)) == {(2, 1)}
    assert sorted(looks.values(), key=len) == [done, later, never]
