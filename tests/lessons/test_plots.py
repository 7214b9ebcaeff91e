"""Tests of pictures: they show the numbers in their arguments, in the colours of the lessons.

The first part checks rules that every picture must follow. The second part searches every picture for all
numbers and words in its arguments.
"""

import base64
import functools
import io
import re
import struct
import subprocess
import sys
from collections.abc import Mapping
from functools import partial

import matplotlib
import numpy as np
import pytest
from letters import letters, troubles
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from npformer import angular_frequencies, positional_encoding, wavelengths
from npformer.lessons import plots
from npformer.lessons.plots import colours, style

RNG = np.random.default_rng(0)
TOKENS = ["dog", "bites", "man"]
OMEGA, TABLE = angular_frequencies(8), positional_encoding(20, 8)
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
DOWN, FLAT = 10.0 ** -np.arange(4), np.full(4, 2.0)
GRADIENTS = {
    "with residuals": {"post-norm": DOWN, "pre-norm": FLAT, "no norm": 1 / DOWN},
    "without residuals": {"post-norm": np.where(DOWN < 0.05, np.nan, DOWN), "pre-norm": FLAT},
}
FREE = {"sinusoidal": np.array([[1.0, 1.0, 1.0, 0.2], [0.8, 1.0, 1.0, 0.4]]), "ALiBi": np.full((2, 4), 0.9)}
PANELS = {"free": FREE, "masked": {"no positions": np.ones((3, 4))}}
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
RANKS = {  # two panels of the ranks of a token
    "capital": {"plain lens": np.array([4000, 30, 11, 1]), "tuned lens": np.array([900, 9, 1, 1])},
    "opposite": {"plain lens": np.array([10, 7, 2, 3]), "tuned lens": np.array([50, 40, 30, 20])},
}
COSINES = np.array([[1.0, 0.5, 0.1], [0.5, 1.0, -0.2], [0.1, -0.2, 1.0]])
SPANS = {
    "in turns": {"host": [(0.0, 20.0), (50.0, 70.0)], "device": [(20.0, 50.0), (70.0, 100.0)]},
    "at once": {"host": [(0.0, 20.0), (20.0, 40.0)], "device": [(20.0, 50.0), (50.0, 80.0)]},
}
CLOUDS = {"correct": np.array([0.5, -1.0, 0.5]), "wrong": np.array([4.5, 5.0, 5.5])}
SHARES = {"temperature 1": np.array([0.75, 0.25]), "top-p 0.5": np.array([1.0, 0.0])}
DRAWN = {
    "heat_map": partial(plots.heat_map, TABLE, title="positions"),
    "matrix": partial(plots.matrix, TABLE[:3, :4]),
    "frequency_bands": partial(plots.frequency_bands, OMEGA),
    "clock_hands": partial(plots.clock_hands, [0, 3, 15], OMEGA),
    "wavelength_curves": partial(plots.wavelength_curves, {"base 10000": wavelengths(8)}),
    "position_similarity": partial(plots.position_similarity, TABLE),
    "curves": partial(
        plots.curves, np.arange(20), {"value": LINES, "slope": LINES}, x_label="z", y_label="y"
    ),
    "heat_maps": partial(plots.heat_maps, {"interleaved": TABLE, "halves": -2 * TABLE}),
    "binary_counter": partial(plots.binary_counter, BITS, WAVES, base=8),
    "lanes": partial(plots.lanes, MEANING, ORDER, OUTPUT, TOKENS),
    "hourglass": partial(plots.hourglass, MEANING[0], HIDDEN, OUTPUT[0]),
    "matrices": partial(plots.matrices, {"x": X, "y": Y, "x + y": X + Y}, across=2, row_labels=TOKENS[:2]),
    "attention_weights": partial(plots.attention_weights, np.full((3, 3), 1 / 3), TOKENS),
    "block_diagram": partial(plots.block_diagram, "post", "pre"),
    "gradient_by_depth": partial(plots.gradient_by_depth, GRADIENTS),
    "accuracy": partial(plots.accuracy, [3, 4, 8, 16], PANELS, x_label="words", trained=(3, 8)),
    "cross_attention": partial(plots.cross_attention, STAIRS, ["forty", "thousand", "two"], ["4", "<stop>"]),
    "confidence": partial(plots.confidence, SURE, mark=0.902),
    "attention_heads": partial(plots.attention_heads, HEADS, ["[CLS]", "dogs", "[SEP]"]),
    "themes": partial(plots.themes, COSINES, {"money": 2, "music": 1}),
    "growth": partial(plots.growth, TIMES),
    "gpu_growth": partial(plots.gpu_growth, GPU_RUNS),
    "ranks": partial(plots.ranks, np.arange(0, 8, 2), RANKS, x_label="blocks passed"),
    "error_clouds": partial(plots.error_clouds, CLOUDS, y_label="error"),
    "seeds": partial(plots.seeds, {"with": [60.0, 71.5], "without": [20.0, 0.0]}, x_label="correct (%)"),
    "timeline": partial(plots.timeline, SPANS),
    "score_tiles": partial(plots.score_tiles, 4, (2, 1)),
    "next_token": partial(plots.next_token, SHARES, [" shy", " kind"]),
}
CROWDED = {"lanes": 13, "attention_heads": 14}  # allowed font sizes below the usual minimum, in points
WITHOUT_AXES = {"lanes", "hourglass", "block_diagram"}  # pictures without titles and axis labels
# Unusual settings of matplotlib. A reader may have such settings, and they must not change a picture.
ODD = {"font.size": 6, "lines.linewidth": 9, "figure.facecolor": "black", "svg.hashsalt": "mine"}
# Every run checks the rules for these pictures. `pytest -m slow` checks them for all pictures.
NOW = {"heat_map", "curves", "matrices", *CROWDED, "block_diagram"}
every_picture = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in NOW else pytest.mark.slow) for name in DRAWN]
)


@functools.cache
def figure(name):
    """Return a picture that is drawn with the settings ODD. It is cached, so tests must not change it."""
    with matplotlib.rc_context(ODD):
        drawn = DRAWN[name]()
        drawn.draw_without_rendering()
        return drawn


def written(texts):
    return [t.get_text() for t in texts]


# --- the rules of all pictures ------------------------------------------------------------------


def test_every_plot_is_drawn_here():
    drawn = {draw.func.__name__ for draw in DRAWN.values()}
    assert drawn | {"describe", "encoded", "picture"} == set(plots.__all__)


@every_picture
def test_picture_is_legible_opaque_labelled_and_described(name):
    """The letters are large, the background is white, and lines look different even without colours."""
    drawn = figure(name)
    with matplotlib.rc_context(ODD):
        pixels = np.asarray(Image.open(io.BytesIO(plots.encoded(drawn))).convert("RGBA"))
    assert min(t.get_fontsize() for t in drawn.findobj(Text) if t.get_text().strip()) >= 13
    assert (pixels[..., 3] == 255).all() and drawn.get_figwidth() > drawn.get_figheight()
    for edge in (pixels[:2], pixels[-2:], pixels[:, :2], pixels[:, -2:]):
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
def test_picture_on_a_slide_has_large_letters(name, monkeypatch):
    """The font size is at least 15 points, except for the numbers in the pictures in CROWDED.

    If a picture of 9.4 inches is shown with a width of 1268 pixels, 15 points are 28 pixels.
    """
    monkeypatch.setenv(style.STAGE, "")
    style.fill_stage(drawn := DRAWN[name]())
    assert drawn.get_figwidth() == 9.4 and drawn.get_figheight() <= 4.86
    found = letters(drawn)
    assert min(points for _, points in found) >= CROWDED.get(name, 15)
    assert troubles(drawn, found) == []


@pytest.mark.parametrize("kind", ["png", "svg"])
def test_encoded_bytes_depend_only_on_the_figure(kind):
    plain = plots.encoded(DRAWN["matrix"](), kind)
    with matplotlib.rc_context(ODD):
        assert plots.encoded(DRAWN["matrix"](), kind) == plain
        assert matplotlib.rcParams["font.size"] == 6, "the reader's settings are not restored"
    assert not re.search(b"Software|dc:date|dc:creator", plain)


def test_plots_import_neither_pyplot_nor_ipython():
    program = """
import sys, numpy as np
from npformer.lessons import plots
assert "matplotlib" not in sys.modules
plots.encoded(plots.heat_map(np.eye(3)))
assert not {"matplotlib.pyplot", "IPython"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.fixture
def displayed(monkeypatch):
    """Return a list to which IPython's `display` appends its arguments instead of displaying them."""
    objects = []
    monkeypatch.setattr("IPython.display.display", objects.append)
    return objects


def bundle_of(picture):
    return picture._repr_mimebundle_(include=None, exclude=None)


def test_picture_shows_the_given_alternative_text(displayed):
    plots.picture(DRAWN["heat_map"](), alt='twenty "positions"')
    bundle = bundle_of(displayed[0])
    assert 'alt="twenty &quot;positions&quot;"' in bundle["text/html"]
    assert bundle["text/plain"] == repr(displayed[0]) == 'twenty "positions"'
    assert base64.b64encode(plots.encoded(DRAWN["heat_map"]())).decode() in bundle["text/html"]


def test_picture_shows_the_text_of_the_figure(displayed):
    plots.picture(DRAWN["heat_map"]())
    assert bundle_of(displayed[0])["text/plain"] == figure("heat_map").get_label()


def test_picture_shows_the_caption_with_its_number(displayed, monkeypatch):
    plots.picture(DRAWN["heat_map"](), "a table", number="1.5")
    bundle = bundle_of(displayed[0])
    caption = f"Figure 1.5. {style.read_captions()['1.5']}"
    assert f'<div class="caption">{caption}</div>' in bundle["text/html"]
    assert bundle["text/plain"] == f"{caption} a table"
    monkeypatch.setenv(style.STAGE, "")
    plots.picture(DRAWN["heat_map"](), "a table", number="1.5")
    assert "caption" not in bundle_of(displayed[1])["text/html"]  # a slide has a title instead


def test_picture_rejects_an_unknown_number(displayed):
    with pytest.raises(ValueError, match=r"no figure has the number '1\.50'; expected a key of captions"):
        plots.picture(DRAWN["heat_map"](), number="1.50")
    assert displayed == []


def test_picture_rejects_a_figure_without_text(displayed):
    with pytest.raises(ValueError, match="the figure has no description"):
        plots.picture(Figure())


@pytest.mark.parametrize(("height", "width"), [(5, 1000), (8, 800)])
def test_picture_shows_high_figures_smaller(height, width, displayed):
    plots.picture(plots.describe(Figure(figsize=(10, height)), "nothing"))
    assert displayed[0].width == width


def test_picture_for_slides_has_twice_the_pixels(displayed, monkeypatch):
    monkeypatch.setenv(style.STAGE, "")
    drawn = DRAWN["curves"]()
    plots.picture(drawn)
    expected_height = pytest.approx(200 * drawn.get_figheight(), abs=1)
    for png in (displayed[0].png, displayed[0].empty):
        assert struct.unpack(">2I", png[16:24]) == (1880, expected_height)
    assert displayed[0].empty != displayed[0].png
    assert bundle_of(displayed[0])["text/html"].count("data-empty=") == 1


def test_curves_have_the_full_height_on_slides(monkeypatch):
    def draw():
        return plots.curves(np.arange(2), {"": {"x": np.arange(2)}}, x_label="x", height=3)

    assert draw().get_figheight() == 3
    monkeypatch.setenv(style.STAGE, "")
    assert draw().get_figheight() == 4.4


@pytest.mark.parametrize("name", ["curves", "heat_maps", "accuracy"])
def test_panels_of_gives_the_positions_of_panels(name, monkeypatch):
    """Paint each panel red in turn, and compare the red pixels with the result of `panels_of`."""
    monkeypatch.setenv(style.STAGE, "")
    for i, axes in enumerate(DRAWN[name]().axes):
        axes = (drawn := DRAWN[name]()).axes[i]
        style.fill_stage(drawn)
        axes.add_patch(Rectangle((0, 0), 1, 1, transform=axes.transAxes, color="red", zorder=99))
        pixels = imread(io.BytesIO(plots.encoded(drawn)))[:, :, :3]
        outside, *box = map(float, style.panels_of(drawn).split()[i].split(","))
        red = np.argwhere((pixels == (1, 0, 0)).all(axis=-1)) / pixels.shape[:2] * 100
        (top, left), (bottom, right) = red.min(0), red.max(0)
        assert box == pytest.approx([left, right, top, bottom], abs=0.4) and outside <= box[0]


@pytest.mark.parametrize("name", ["curves", "heat_maps", "attention_heads"])
def test_hide_contents_leaves_grey_axes(name, monkeypatch):
    """Outside the axes, nothing moves. Inside, only grey lines remain."""
    monkeypatch.setenv(style.STAGE, "")
    drawn = DRAWN[name]()
    style.fill_stage(drawn)
    before = imread(io.BytesIO(plots.encoded(drawn)))[:, :, :3]
    panels = style.panels_of(drawn).split()[: len(drawn.axes) - (name == "heat_maps")]
    style.hide_contents(drawn)
    after = imread(io.BytesIO(plots.encoded(drawn)))[:, :, :3]
    height, width, _ = before.shape
    for panel in panels:
        _, left, right, top, bottom = (float(number) / 100 for number in panel.split(","))
        inside = np.s_[int(top * height) : int(bottom * height), int(left * width) : int(right * width)]
        assert np.ptp(before[inside], axis=-1).max() > 0.1 and np.ptp(after[inside], axis=-1).max() == 0
        assert after[inside].min() < 1  # the grid or the frame
        before[inside] = after[inside] = 0
    assert name == "heat_maps" or (before != after).mean() < 0.01  # a colour bar loses its numbers


def test_hide_contents_hides_legends_and_colour_bars():
    drawn = Figure(layout="constrained")
    left, right = drawn.subplots(1, 2)
    left.plot([0, 1], label="loss")
    left.legend()
    bar = drawn.colorbar(right.imshow(np.eye(2)))
    plots.encoded(drawn)
    style.hide_contents(drawn)
    plots.encoded(drawn)
    assert not left.get_legend().get_visible() and not left.lines[0].get_visible()
    assert not any(tick.label2.get_visible() for tick in bar.ax.yaxis.get_major_ticks())


# --- every picture shows all numbers and words in its arguments -----------------------------------

# Pictures that do not show the numbers in their arguments: {name: [(title or label, the numbers shown), …]}
OTHERWISE = {
    "position_similarity": [("", np.array([[np.dot(p, q) for q in TABLE] for p in TABLE]))],
    "lanes": [("", rows) for rows in (MEANING, ORDER, MEANING + ORDER, OUTPUT)],
    "themes": [("", COSINES * (1 - np.eye(3)))],
    "accuracy": [("sinusoidal", np.array([90, 100, 100, 30])), ("masked", np.full(4, 100))],
    "gpu_growth": [("NumPy", np.array([32, 64, 128])), ("GPU", np.full(3, 2))],
    "frequency_bands": [("", column) for column in positional_encoding(64, 8).T]
    + [("sine, column 2i", np.sin(w * np.linspace(0, 63, 1280))) for w in OMEGA]
    + [("cosine, column 2i+1", np.cos(w * np.linspace(0, 63, 1280))) for w in OMEGA],
    "clock_hands": [  # coordinates of both ends of a line: the hand, its horizontal part, its vertical part
        (name, np.array(ends))
        for s, c in TABLE[[0, 3, 15], :6].reshape(-1, 2)
        for name, ends in {"the hand": [0, c], "sine: to the right": [0, s], "cosine: up": [s, s]}.items()
    ],
    "confidence": [],  # see `test_confidence_bars_add_up_to_one_hundred`
}
ALSO = {  # words that a picture shows although no argument contains them, in the order of the picture
    "gpu_growth": ["tokens, float32", "time, ms", "tokens, float64", "NumPy", "GPU"],
    "timeline": ["host", "device", "in turns", "time, ms", "host", "device", "at once"],
    "binary_counter": ["bit 0", "bit 1", "bit 2", "sin 0", "cos 0", "sin 1", "cos 1", "sin 2", "cos 2"],
    "lanes": ["meaning", "order tag", "input", "output", "FFN", "FFN", "FFN", "FFN"],
    "frequency_bands": [f"pair i = 2: columns 4 and 5, {wavelengths(8)[2]:.1f} positions per turn"],
    "clock_hands": [f"medium hand, pair 1\n{wavelengths(8)[1]:.1f} positions per turn", "p = 3"],
    "wavelength_curves": ["6,283", "base 10000"],
    "confidence": ["0.902", "0.902"],
    "accuracy": ["3", "4", "8", "16", "trained on", "coin"],
    "ranks": ["first ten", "1,000", "plain lens", "tuned lens"],
}
WRITTEN = {  # how many squares show a number; squares of small weights show none
    "matrix": 12, "binary_counter": 72, "lanes": 48, "matrices": 12, "attention_weights": 9,
    "cross_attention": 3, "attention_heads": 16,
}  # fmt: skip
OWN_SCALES = {"hourglass", "binary_counter"}  # pictures whose tables have different scales
SAID = {  # a part of the alt text
    "heat_map": "20 rows, 8 columns, numbers from −1 to 1; from one row to the next a number changes by",
    "matrices": "x: row dog: 1, −2; row bites: 0.5, 0. y: row dog: 4, 0; row bites: 0, 3. x + y: row dog: 5,",
    "lanes": f"; man: {', '.join(f'{x:.1f}'.replace('-', '−') for x in (MEANING + ORDER)[2])} in, ",
    "clock_hands": "Position 3: the fast hand has made 0.48 turns; the medium hand has made 0.05 turns",
    "frequency_bands": "Sine and cosine at positions 0 to 63: pair 0 makes 10 turns; pair 1 makes 1 turns",
    "binary_counter": "first: 000, 100, 010, 110, 001, 101, 011, 111; each step in the waves next to them",
    "attention_heads": "before: 3 tokens look at 3; [CLS] at [CLS] 1, dogs at [CLS] 0.96, [SEP] at dogs 0.95",
    "gradient_by_depth": "post-norm 1 at block 0, 1e-01 at block 1, zero from the next block on; pre-norm",
    "accuracy": "accuracy in percent: free: sinusoidal from 90 at 3 to 30 at 16, lowest 30",
    "cross_attention": "4 looks at forty with 0.97; <stop> looks at two with 0.7",
    "confidence": "smoothed: 0.777 on average; half from 0.775 to 0.903",
    "themes": "inside money 0.5 on average; inside music 0 on average; between different themes −0.05",
    "growth": "over positions n: measured from 64 at 32 to 1,024 at 512",
    "ranks": "capital: plain lens 4,000 at 0, 1 at 6, among the first ten from 6 on; tuned lens 900 at 0, "
    "1 at 6, among the first ten from 2 on. opposite: plain lens 10 at 0, 3 at 6, among the first "
    "ten from 0 on; tuned lens 50 at 0, 20 at 6, not among the first ten",
    "error_clouds": "correct: mean 0.0, standard deviation 0.9; wrong: mean 5.0, standard deviation 0.5",
    "seeds": "correct (%): with from 60 to 71.5 in 2 runs; without from 0 to 20 in 2 runs",
    "timeline": "in turns: host works 2 times, 40 ms in all, until 70 ms; device works 2 times, 60 ms in all",
    "score_tiles": "A table of 4 by 4 tiles: 4 done, 1 in memory now, 5 to come, 6 never computed",
    "next_token": "temperature 1: shy 0.75, kind 0.25. top-p 0.5: shy 1, kind 0",
}


def given(value, key=""):
    """Yield (key, value) for every array and word of an argument; the innermost mapping gives the key."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from [(key, name), *given(part, name)]
    elif isinstance(value, list | tuple):
        for part in value:
            yield from given(part, key)
    else:
        yield key, value


def shown(drawn):
    """Yield (titles and labels, numbers) for each image, each line and each row of bars."""
    for axes in drawn.axes:
        titles = {"", axes.get_title(), axes.get_title("left"), axes.get_xlabel()}
        for image in axes.get_images():
            yield titles, np.squeeze(image.get_array())
        for line in axes.get_lines():
            yield from (({*titles, line.get_label()}, values) for values in line.get_data())
        yield titles, np.array([bar.get_width() for bar in axes.patches if isinstance(bar, Rectangle)])


@pytest.mark.parametrize("name", DRAWN)
def test_picture_shows_all_its_numbers_and_words(name):
    everything = [*given([*DRAWN[name].args, *DRAWN[name].keywords.values()])]
    arrays = [(key, value) for key, value in everything if isinstance(value, np.ndarray)]
    there = [*shown(figure(name))]

    def found(key, values):
        return any(
            key in names
            and np.shape(numbers) == np.shape(values)
            and np.allclose(numbers, values, equal_nan=True)
            for names, numbers in there
        )

    for key, values in OTHERWISE.get(name, arrays):
        assert found(key, values) or all(found(key, row) for row in values), key
    texts = written(figure(name).findobj(Text))
    words = [value for _, value in everything if isinstance(value, str)] if name != "gpu_growth" else []
    assert [word for word in words if not any(word in text for text in texts)] == []
    in_order = iter(texts)
    assert [word for word in ALSO.get(name, []) if word not in in_order] == []
    assert SAID.get(name, "") in figure(name).get_label()


@pytest.mark.parametrize("name", DRAWN)
def test_squares_have_one_scale_and_legible_numbers(name):
    """The colours of signed values are centred at zero, and the colours of weights start at zero."""
    count, images = 0, [image for axes in figure(name).axes for image in axes.get_images()]
    largest = max((np.abs(image.get_array()).max() for image in images), default=None)
    assert name in OWN_SCALES or {image.get_clim()[1] for image in images} in (set(), {largest}, {1})
    for axes in figure(name).axes:
        texts = {tuple(np.round(t.get_position(), 6)): t for t in axes.texts}
        for image in axes.get_images():
            values, (low, high) = np.atleast_2d(image.get_array()), image.get_clim()
            signed, pairs = image.get_cmap().name == "RdBu_r", name == "position_similarity"
            assert low == (-high if signed else values.min() if pairs else 0) and values.max() <= high + 1e-12
            left, right, bottom, top = image.get_extent()
            for row, column in np.ndindex(values.shape):
                x = left + (right - left) * (column + 0.5) / values.shape[1]
                y = top + (bottom - top) * (row + 0.5) / values.shape[0]
                if text := texts.get((round(x, 6), round(y, 6))):
                    decimals, value = len(text.get_text().partition(".")[2]), values[row, column]
                    assert decimals == 0 or values.dtype.kind == "f", "a bit is a bit"
                    assert text.get_text() == f"{value:z.{decimals}f}".replace("-", "−")
                    assert text.get_color() == ("white" if abs(value) > 0.65 * high else colours.INK)
                    count += 1
    assert count == WRITTEN.get(name, 0)


def test_heat_map_scales_of_zeros_and_weights():
    zeros, weights = plots.heat_map(np.zeros((2, 3))), plots.heat_map(np.eye(2) / 2, signed=False)
    looks = [(i.get_clim(), i.get_cmap().name) for f in (zeros, weights) for i in f.axes[0].get_images()]
    assert looks == [((-1, 1), colours.SIGNED_MAP), ((0, 0.5), colours.WEIGHT_MAP)]


def test_heat_maps_scale_of_weights_starts_at_zero():
    drawn = plots.heat_maps({"a": np.eye(2) / 4, "b": np.eye(2)}, signed=False)
    images = [image for axes in drawn.axes for image in axes.get_images()]
    assert [(image.get_clim(), image.get_cmap().name) for image in images] == 2 * [
        ((0, 1), colours.WEIGHT_MAP)
    ]


def test_curves_mark_and_shared_legend():
    panels = {title: {"y": np.arange(4), "z": np.ones(4)} for title in ("left", "right")}
    drawn = plots.curves(np.arange(4), panels, x_label="x", mark=(2, "here"), shared_legend=True)
    (legend,) = drawn.legends
    assert written(legend.get_texts()) == ["y", "z"]
    for axes in drawn.axes:
        assert axes.get_legend() is None
        assert axes.get_lines()[-1].get_xdata() == [2, 2] and "here" in axes.texts[0].get_text()
    assert str(drawn.get_label()).endswith("; here at 2")
    alone = plots.curves(np.arange(4), panels, x_label="x", mark=(2, "here"))
    assert not alone.legends and all(axes.get_legend() for axes in alone.axes)


def test_next_token_axis_has_three_ticks():
    assert written(figure("next_token").axes[0].get_xticklabels()) == ["0", "0.5", "1"]


def test_themes_labels_are_centred():
    assert figure("themes").axes[0].get_xticks().tolist() == [0.5, 2]


def test_alternative_text_of_a_line_skips_nan():
    gap = plots.curves(np.arange(3), {"": {"y": np.array([1.0, np.nan, 3.0])}}, x_label="x").get_label()
    assert gap == "y from 1 at 0 to 3 at 2, lowest 1 at 0, highest 3 at 2"


@pytest.mark.parametrize("least", [0.03, 0.004, 1e-9])
def test_alternative_text_of_small_numbers_is_not_zero(least):
    """Only a number that is 0 is written as 0."""
    panels = {"n": (np.array([8.0, 16.0]), {"measured": np.array([least, 10.0])})}
    text = str(plots.growth(panels).get_label())
    shares = str(plots.next_token({"": np.array([1 - least, least])}, ["a", "b"]).get_label())
    numbers = [
        float(word.replace("−", "-"))
        for word in re.findall(r"(?<=measured from )\S+|(?<=b )\S+", text + shares)
    ]
    assert numbers == [pytest.approx(least, rel=0.05)] * 2
    assert plots.next_token({"": np.array([1.0, 0.0])}, ["a", "b"]).get_label() == "a 1, b 0"


def test_alternative_text_of_weights_has_four_rows():
    one = plots.attention_weights(np.eye(6), list("abcdef"), title="one").get_label()
    assert one == "one: 6 tokens look at 6; a at a 1, b at b 1, c at c 1, d at d 1"


def test_alternative_text_of_one_theme():
    assert plots.themes(np.eye(2), {"all": 2}, title="t").get_label() == "t: inside all 0 on average"


def test_matrices_have_row_labels_of_their_own():
    """A matrix whose title has no labels gets no labels."""
    labels = {"W": ["unit 0", "unit 1"], "dy": ["lane 0", "lane 1"]}
    drawn = plots.matrices({"W": X, "dy": Y, "b": X}, row_labels=labels)
    shown = [[label.get_text() for label in axes.get_yticklabels()] for axes in drawn.axes]
    assert shown == [["unit 0", "unit 1"], ["lane 0", "lane 1"], ["", ""]]
    text = str(drawn.get_label())
    assert "W: row unit 0:" in text and "dy: row lane 0:" in text and "b: row 0:" in text


def test_matrices_have_column_labels_of_their_own():
    labels = {"W": ["dog", "man"], "dy": ["man", "dog"]}
    drawn = plots.matrices({"W": X, "dy": Y}, column_labels=labels, x_label="key", y_label="query")
    assert [written(axes.get_xticklabels()) for axes in drawn.axes] == [["dog", "man"], ["man", "dog"]]
    assert [axes.get_xlabel() for axes in drawn.axes] == ["key", "key"]
    assert [axes.get_ylabel() for axes in drawn.axes] == ["query", ""]


def test_alternative_text_of_matrices_with_different_rows():
    uneven = plots.matrices({"W": X, "b": np.ones((1, 2))}, row_labels=["dog", "man"]).get_label()
    assert uneven == "W: row dog: 1, −2; row man: 0.5, 0. b: row 0: 1, 1"


@pytest.mark.parametrize("name", ["growth", "gpu_growth", "gradient_by_depth", "ranks", "wavelength_curves"])
def test_picture_has_a_logarithmic_y_axis(name):
    assert {axes.get_yscale() for axes in figure(name).axes} == {"log"}


def test_growth_has_a_logarithmic_x_axis():
    assert figure("growth").axes[0].get_xscale() == "log" != figure("curves").axes[0].get_yscale()


# --- properties of single pictures ----------------------------------------------------------------


def test_clock_hand_points_to_its_pair():
    for k, axes in enumerate(figure("clock_hands").axes):
        (hand,) = (line for line in axes.get_lines() if line.get_label() == "the hand")
        np.testing.assert_allclose(hand.get_xydata()[1], TABLE[(0, 3, 15)[k // 3], 2 * (k % 3) :][:2])


def test_block_diagram_residual_leads_to_its_sum():
    for axes in figure("block_diagram").axes:
        x = {word: [t.get_position()[0] for t in axes.texts if t.get_text() == word] for word in "xh+"}
        for path, before, plus in zip(axes.get_lines(), "xh", x["+"], strict=True):
            start, up, end = path.get_xdata()
            assert x[before][0] < start == up < end == plus


def test_gradient_by_depth_marks_lines_that_end_early():
    with_residuals, without = figure("gradient_by_depth").axes
    assert not with_residuals.collections
    (mark,) = without.collections
    np.testing.assert_allclose(mark.get_offsets(), [[1, 0.1]])
    whole = plots.gradient_by_depth({"": {"pre-norm": FLAT}})
    assert written(whole.legends[0].get_texts()) == ["pre-norm"]
    assert with_residuals.get_lines()[0].get_color() == colours.GRADIENT


def test_accuracy_band_is_the_range_of_runs():
    axes = figure("accuracy").axes[0]
    band = axes.collections[0].get_paths()[0].vertices
    assert [{y for x, y in band if x == at} for at in (3, 16)] == [{80.0, 100.0}, {20.0, 40.0}]
    assert axes.get_lines()[0].get_ydata() == [50, 50]


def test_confidence_bars_add_up_to_one_hundred():
    smoothed, plain = figure("confidence").axes
    assert [sum(bar.get_height() for bar in axes.patches) for axes in (smoothed, plain)] == [100, 100]
    assert max(bar.get_height() for bar in smoothed.patches) == 75
    assert smoothed.get_ylim() == plain.get_ylim() and smoothed.get_lines()[0].get_xdata() == [0.902, 0.902]


def test_confidence_of_one_panel_is_narrower():
    alone = plots.confidence({"sure": np.ones(2)})
    assert not alone.axes[0].get_lines() and alone.get_figwidth() < figure("confidence").get_figwidth()


def test_next_token_lists_tokens_from_the_top():
    assert all(axes.yaxis_inverted() for axes in figure("next_token").axes)


def test_timeline_bars_are_the_time_spans():
    for axes, lanes in zip(figure("timeline").axes, SPANS.values(), strict=True):
        for row, (bars, spans) in enumerate(zip(axes.collections, lanes.values(), strict=True)):
            boxes = [path.get_extents() for path in bars.get_paths()]
            assert [(box.x0, box.x1) for box in boxes] == spans
            assert all(row - 0.5 < box.y0 < row < box.y1 < row + 0.5 for box in boxes)


def test_score_tiles_show_four_states():
    (axes,) = figure("score_tiles").axes
    looks = {}
    for tile in axes.patches:
        look = (tile.get_hatch(), to_hex(tile.get_facecolor()).upper())
        looks.setdefault(look, set()).add((round(tile.get_y() + 0.5), round(tile.get_x() + 0.5)))
    done, later = {(0, 0), (1, 0), (1, 1), (2, 0)}, {(2, 2), *((3, column) for column in range(4))}
    never = {(row, column) for row in range(4) for column in range(row + 1, 4)}
    assert looks.pop((None, colours.COSINE)) == {(2, 1)}
    assert sorted(looks.values(), key=len) == [done, later, never]
