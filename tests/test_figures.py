"""Tests of figures/: no figure is missing or stale, and its numbers and alternative text are correct."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import make
import numpy as np
import pytest
import screens
import train
from PIL import Image, ImageSequence
from test_notebooks import picture_difference, text_difference

from npformer import encoder_backward, encoder_block_forward, encoder_forward, init_encoder

FOLDER = Path(__file__).parent.parent / "figures"
KEPT = json.loads(train.FILE.read_text(encoding="utf-8"))


def figure_difference(name, committed, drawn):
    """Return a description of the difference between two versions of a figure, or None.

    With the matplotlib version that drew the files, the bytes must be equal. With other versions, only the
    texts and the sizes are compared.
    """
    if (FOLDER / make.DRAWN_WITH).read_text() == make.versions():
        return None if committed == drawn else f"{name} is stale"
    if name.endswith(".png"):
        return picture_difference(base64.b64encode(committed), base64.b64encode(drawn))
    return text_difference(words(committed), words(drawn))


def words(svg):
    """Return the size and all texts of an SVG file. matplotlib writes each text into a comment."""
    text = svg.decode("utf-8")
    return "\n".join([*re.findall(r"viewBox=\"(.*?)\"", text)[:1], *re.findall(r"<!-- (.*?) -->", text)])


NOW = ("worked_table.svg", "heat_map.png")  # every run tests these figures; `pytest -m slow` tests all


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in NOW else pytest.mark.slow) for name in make.FIGURES]
)
def test_figure_file_is_not_stale(name):
    difference = figure_difference(name, (FOLDER / name).read_bytes(), make.drawn(name))
    assert difference is None, f"{difference}\nuv run python figures/make.py {name}"


def test_make_check_detects_a_stale_figure(tmp_path):
    svg = (FOLDER / "worked_table.svg").read_bytes()
    (tmp_path / "worked_table.svg").write_bytes(svg.replace(b"0.841", b"0.845"))
    assert make.main(["--check", "worked_table.svg"], tmp_path) == 1


# --- the numbers of the figures ----------------------------------------------------------------


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_encoder_block_figure_ends_with_the_output(norm):
    figure = make.encoder_block() if norm == "post" else make.encoder_block_pre_norm()
    first = figure.axes[0].get_images()[0].get_array()
    last = figure.axes[1].get_images()[-1].get_array()
    config = make.EXAMPLE.config._replace(norm=norm)
    y, _ = encoder_block_forward(np.asarray(first), make.EXAMPLE.block, config)
    np.testing.assert_allclose(last, y, atol=1e-12)


def test_attention_and_order_differs_only_with_positions():
    tables: list[Any] = [axes.get_images()[0].get_array() for axes in make.attention_and_order().axes]
    np.testing.assert_allclose(tables[0], tables[1], atol=1e-12)
    assert np.abs(tables[2] - tables[3]).max() > 0.1
    np.testing.assert_allclose([table.sum(axis=-1) for table in tables], 1)


def test_gradient_sizes_are_those_of_the_package():
    rng = np.random.default_rng(0)
    params = init_encoder(make.DEEP, rng)
    x = rng.normal(size=(10, 64))
    y, cache = encoder_forward(x, params, make.DEEP)
    dx, grads = encoder_backward(rng.normal(size=y.shape), cache)
    of_x, of_W_Q = make.gradient_sizes("post", True)
    np.testing.assert_allclose(of_x[0], np.linalg.norm(dx), rtol=6e-4)
    expected = [np.linalg.norm(block.attention.W_Q) for block in grads.blocks]
    np.testing.assert_allclose(of_W_Q, expected, rtol=6e-4)  # the figure has numbers of four digits


def test_stored_accuracies_need_positions():
    single, seeds = KEPT["with and without positions"], KEPT["five seeds"]
    assert abs(single["no positions"][0][-1] - 0.5) < 0.02
    assert single["sinusoidal"][0][-1] >= 0.99
    assert {name: len(runs) for name, runs in seeds.items()} == {"sinusoidal": 5, "learned": 5}
    assert min(run[-1] for runs in seeds.values() for run in runs) > 0.97


def test_stored_accuracies_of_long_sentences_are_low():
    free = KEPT["longer than in training"]["every word sees all"]
    assert all(row[0] == 0.5 for row in free["ALiBi"])  # reversing three words keeps their distances
    assert all(row[KEPT["words"].index(16)] < 0.5 for row in free["sinusoidal"])


def test_stored_cross_attention_weights_are_plausible():
    weights = np.array(KEPT["cross-attention"]["weights"])
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-3)
    assert KEPT["cross-attention"]["words"][int(weights[1].argmax())] == "forty"


# --- the files and their alternative texts ---------------------------------------------------------


def test_files_are_exactly_the_figures_and_scripts():
    files = {path.name for path in FOLDER.iterdir() if path.is_file()}
    scripts = {"banner.py", "make.py", "screens.py", "steps.py", "train.py"}
    assert files == {*scripts, make.DRAWN_WITH, *make.FIGURES, *screens.SCREENS}


def test_alternative_texts_are_different_and_long():
    texts = [*map(make.alt, make.FIGURES), *map(screens.alt, screens.SCREENS)]
    assert len(set(texts)) == len(texts) and min(map(len, texts)) > 60


def test_pages_use_the_alternative_texts():
    for page in [FOLDER.parent / "README.md", *(FOLDER.parent / "notebooks").rglob("*.md")]:
        shown = re.findall(r"!\[([^]]*)\]\((?:\.\./)*figures/(.*?)\)", page.read_text(encoding="utf-8"))
        expected = [screens.alt(name) if name in screens.SCREENS else make.alt(name) for _, name in shown]
        assert [alt for alt, _ in shown] == expected


def test_gallery_explains_every_figure():
    text = (FOLDER.parent / "notebooks" / "guide" / "figures.md").read_text(encoding="utf-8")
    shown = re.findall(r"^!\[.+\]\(\.\./\.\./figures/(.+)\)\n\n\*\*.{9,}\*\* (.+)$", text, flags=re.M)
    assert sorted(name for name, _ in shown) == sorted(make.FIGURES)
    assert all(len(words.split()) > 12 for _, words in shown)


@pytest.mark.parametrize("name", screens.SCREENS)
def test_screenshot_has_its_size(name):
    with Image.open(FOLDER / name) as picture:
        assert picture.size == screens.SCREENS[name]
        assert len(picture.getcolors(10**7)) > 50  # an empty page has few colours
    is_film = name == "player_moves.webp"
    assert (FOLDER / name).stat().st_size < (1_000_000 if is_film else 150_000)


def test_film_of_the_player_moves():
    with Image.open(FOLDER / "player_moves.webp") as film:
        frames = {frame.convert("L").tobytes() for frame in ImageSequence.Iterator(film)}
        assert film.info["loop"] == 0 and len(frames) > 25
