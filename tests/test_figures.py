"""The files in figures/ are what figures/make.py draws: no more, no fewer, none stale."""

import base64
import functools
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from test_notebooks import picture_difference, text_difference

from npformer import encoder_backward, encoder_block_forward, encoder_forward, init_encoder

FOLDER = Path(__file__).parent.parent / "figures"
spec = importlib.util.spec_from_file_location("make", FOLDER / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)
drawn = functools.cache(make.drawn)


def figure_difference(name, committed, drawn, exact):
    """None when the two files show the same: byte for byte, or in what they say and how large they are."""
    if exact:
        return None if committed == drawn else f"{name} is stale: uv run python figures/make.py {name}"
    if name.endswith(".png"):
        return picture_difference(base64.b64encode(committed), base64.b64encode(drawn))
    return text_difference(words(committed), words(drawn))


def words(svg):
    """The size and every word of an SVG file: matplotlib names each word in a comment beside its outlines."""
    text = svg.decode("utf-8")
    return "\n".join([*re.findall(r"viewBox=\"(.*?)\"", text)[:1], *re.findall(r"<!-- (.*?) -->", text)])


@pytest.mark.parametrize("name", make.FIGURES)
def test_a_figure_is_what_its_file_shows(name):
    exact = (FOLDER / make.DRAWN_WITH).read_text() == make.versions()
    difference = figure_difference(name, (FOLDER / name).read_bytes(), drawn(name), exact)
    assert difference is None, f"{difference}\nuv run python figures/make.py {name}"


def test_every_file_has_its_figure():
    files = {path.name for path in FOLDER.iterdir() if path.is_file()}
    assert files == {"make.py", "train.py", make.DRAWN_WITH, *make.FIGURES}


@pytest.fixture
def few_figures(monkeypatch):
    monkeypatch.setattr(
        make, "FIGURES", {"worked_table.svg": make.worked_table, "heat_map.png": make.heat_map}
    )


@pytest.mark.usefixtures("few_figures")
def test_files_are_written_and_then_found_as_before(tmp_path, capsys):
    assert make.main(["--check", "worked_table.svg"], tmp_path) == 1
    assert not list(tmp_path.iterdir())
    assert make.main([], tmp_path) == 0
    assert make.main(["--check"], tmp_path) == 0
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()[-2:]] == ["before", "before"]


@pytest.mark.usefixtures("few_figures")
def test_one_figure_is_drawn_alone_unless_the_versions_have_changed(tmp_path):
    make.main(["worked_table.svg"], tmp_path)
    assert (tmp_path / "heat_map.png").is_file()
    (tmp_path / "heat_map.png").unlink()
    make.main(["worked_table.svg"], tmp_path)
    assert not (tmp_path / "heat_map.png").exists()
    (tmp_path / make.DRAWN_WITH).write_text("matplotlib 1.0")
    make.main(["worked_table.svg"], tmp_path)
    assert (tmp_path / "heat_map.png").is_file()


@pytest.mark.usefixtures("few_figures")
def test_a_stale_file_and_an_unknown_name_are_caught(tmp_path, capsys):
    make.main(["worked_table.svg"], tmp_path)
    (tmp_path / "worked_table.svg").write_bytes(drawn("worked_table.svg").replace(b"0.841", b"0.840"))
    assert make.main(["--check", "worked_table.svg"], tmp_path) == 1
    assert f"files: {make.versions()}" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        make.main(["no_such_figure.svg"], tmp_path)


def test_what_differs_elsewhere_is_caught_too():
    svg, png = drawn("worked_table.svg"), drawn("heat_map.png")
    assert figure_difference("a.svg", svg, svg.replace(b'd="M', b'd="M '), exact=False) is None
    assert figure_difference("a.svg", svg, svg.replace(b"0.841", b"0.845"), exact=False) is not None
    assert figure_difference("a.svg", svg, svg.replace(b"man", b"cat"), exact=False) is not None
    assert figure_difference("a.png", png, png, exact=False) is None
    assert figure_difference("a.png", png, drawn("position_similarity.png"), exact=False) is not None
    assert figure_difference("a.svg", svg, svg + b"\n", exact=True) is not None


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
    np.testing.assert_allclose(of_x[0], np.linalg.norm(dx), rtol=2e-4)
    expected = [np.linalg.norm(block.attention.W_Q) for block in grads.blocks]
    np.testing.assert_allclose(of_W_Q, expected, rtol=2e-4)  # drawn to four digits of its logarithm


# --- descriptions for those who cannot see it ---------------------------------------------------


@pytest.mark.parametrize("name", make.FIGURES)
def test_a_figure_has_a_description_of_its_own(name):
    assert len(make.alt(name)) > 60
    assert [make.alt(other) for other in make.FIGURES].count(make.alt(name)) == 1


def test_a_page_describes_a_figure_in_the_figure_s_words():
    for page in [FOLDER.parent / "README.md", *(FOLDER.parent / "notebooks").glob("*.md")]:
        shown = re.findall(r"!\[([^]]*)\]\((?:\.\./)?figures/(.*?)\)", page.read_text(encoding="utf-8"))
        assert [alt for alt, _ in shown] == [make.alt(name) for _, name in shown]


def test_descriptions_are_printed_and_nothing_is_drawn(tmp_path, capsys):
    assert make.main(["--alt", "banner.png"], tmp_path) == 0
    assert capsys.readouterr().out == f"![{make.alt('banner.png')}](figures/banner.png)\n"
    assert not list(tmp_path.iterdir())
