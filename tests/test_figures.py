"""The files in figures/ are what figures/make.py draws: no more, no fewer, none stale."""

import base64
import json
import re
from pathlib import Path

import make
import numpy as np
import pytest
import screens
import train
from PIL import Image
from test_notebooks import picture_difference, text_difference

from npformer import encoder_backward, encoder_block_forward, encoder_forward, init_encoder

FOLDER = Path(__file__).parent.parent / "figures"
KEPT = json.loads(train.FILE.read_text(encoding="utf-8"))


def figure_difference(name, committed, drawn):
    """None when the two files show the same: byte for byte, or elsewhere in what they say and how large."""
    if (FOLDER / make.DRAWN_WITH).read_text() == make.versions():
        return None if committed == drawn else f"{name} is stale"
    if name.endswith(".png"):
        return picture_difference(base64.b64encode(committed), base64.b64encode(drawn))
    return text_difference(words(committed), words(drawn))


def words(svg):
    """The size and every word of an SVG file: matplotlib names each word in a comment beside its outlines."""
    text = svg.decode("utf-8")
    return "\n".join([*re.findall(r"viewBox=\"(.*?)\"", text)[:1], *re.findall(r"<!-- (.*?) -->", text)])


NOW = ("worked_table.svg", "heat_map.png")  # the others by `pytest -m slow`


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in NOW else pytest.mark.slow) for name in make.FIGURES]
)
def test_a_figure_is_what_its_file_shows(name):
    difference = figure_difference(name, (FOLDER / name).read_bytes(), make.drawn(name))
    assert difference is None, f"{difference}\nuv run python figures/make.py {name}"


def test_a_stale_figure_is_caught(tmp_path):
    svg = (FOLDER / "worked_table.svg").read_bytes()
    (tmp_path / "worked_table.svg").write_bytes(svg.replace(b"0.841", b"0.845"))
    assert make.main(["--check", "worked_table.svg"], tmp_path) == 1


# --- what a figure is drawn from ----------------------------------------------------------------


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_last_table_of_a_drawn_block_is_the_block_s_output(norm):
    figure = make.encoder_block() if norm == "post" else make.encoder_block_pre_norm()
    first, *_ = (image.get_array() for image in figure.axes[0].get_images())
    *_, last = (image.get_array() for image in figure.axes[1].get_images())
    config = make.EXAMPLE.config._replace(norm=norm)
    y, _ = encoder_block_forward(np.asarray(first), make.EXAMPLE.block, config)
    np.testing.assert_allclose(last, y, atol=1e-12)


def test_the_drawn_attention_sees_order_only_with_positions():
    tables = [axes.get_images()[0].get_array() for axes in make.attention_and_order().axes]
    np.testing.assert_allclose(tables[0], tables[1], atol=1e-12)
    assert np.abs(tables[2] - tables[3]).max() > 0.1
    np.testing.assert_allclose([table.sum(axis=-1) for table in tables], 1)


def test_the_drawn_gradients_are_the_package_s():
    rng = np.random.default_rng(0)
    params = init_encoder(make.DEEP, rng)
    x = rng.normal(size=(10, 64))
    y, cache = encoder_forward(x, params, make.DEEP)
    dx, grads = encoder_backward(rng.normal(size=y.shape), cache)
    of_x, of_W_Q = make.gradient_sizes("post", True)
    np.testing.assert_allclose(of_x[0], np.linalg.norm(dx), rtol=6e-4)
    expected = [np.linalg.norm(block.attention.W_Q) for block in grads.blocks]
    np.testing.assert_allclose(of_W_Q, expected, rtol=6e-4)  # drawn to four digits


def test_the_kept_numbers_of_trained_models_say_what_the_lessons_say():
    single, seeds = KEPT["with and without positions"], KEPT["five seeds"]
    assert abs(single["no positions"][0][-1] - 0.5) < 0.02
    assert single["sinusoidal"][0][-1] >= 0.99
    assert {name: len(runs) for name, runs in seeds.items()} == {"sinusoidal": 5, "learned": 5}
    assert min(run[-1] for runs in seeds.values() for run in runs) > 0.97
    free = KEPT["longer than in training"]["every word sees all"]
    assert all(row[0] == 0.5 for row in free["ALiBi"])  # three words: twins are mirror images
    assert all(row[KEPT["words"].index(16)] < 0.5 for row in free["sinusoidal"])
    weights = np.array(KEPT["cross-attention"]["weights"])
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-3)
    assert KEPT["cross-attention"]["words"][int(weights[1].argmax())] == "forty"


# --- every file, and descriptions for those who cannot see it --------------------------------------


def test_every_file_has_its_figure_and_a_description_of_its_own():
    files = {path.name for path in FOLDER.iterdir() if path.is_file()}
    scripts = {"banner.py", "make.py", "screens.py", "steps.py", "train.py"}
    assert files == {*scripts, make.DRAWN_WITH, *make.FIGURES, *screens.SCREENS}
    said = [*map(make.alt, make.FIGURES), *map(screens.alt, screens.SCREENS)]
    assert len(set(said)) == len(said) and min(map(len, said)) > 60


def test_a_page_describes_a_figure_in_the_figure_s_words_and_the_gallery_explains_each():
    for page in [FOLDER.parent / "README.md", *(FOLDER.parent / "notebooks").rglob("*.md")]:
        shown = re.findall(r"!\[([^]]*)\]\((?:\.\./)*figures/(.*?)\)", page.read_text(encoding="utf-8"))
        of = [screens.alt(name) if name in screens.SCREENS else make.alt(name) for _, name in shown]
        assert [alt for alt, _ in shown] == of
    text = (FOLDER.parent / "notebooks" / "guide" / "figures.md").read_text(encoding="utf-8")
    shown = re.findall(r"^!\[.+\]\(\.\./\.\./figures/(.+)\)\n\n\*\*.{9,}\*\* (.+)$", text, flags=re.M)
    assert sorted(name for name, _ in shown) == sorted(make.FIGURES)
    assert all(len(words.split()) > 12 for _, words in shown)


@pytest.mark.parametrize("name", screens.SCREENS)
def test_a_screenshot_is_there_in_its_size(name):
    with Image.open(FOLDER / name) as picture:
        assert picture.size == screens.SCREENS[name]
        assert len(picture.getcolors(10**7)) > 50  # not an empty page
    assert (FOLDER / name).stat().st_size < 150_000
