"""Pictures of trained models in lessons 6 and 7, and the kept numbers that the README's figures show."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
from test_plots_04 import RULES

from npformer.teaching import plots

FOLDER = Path(__file__).parents[2] / "figures"
spec = importlib.util.spec_from_file_location("train", FOLDER / "train.py")
train = importlib.util.module_from_spec(spec)
spec.loader.exec_module(train)
KEPT = json.loads(train.FILE.read_text(encoding="utf-8"))

LENGTHS = [3, 4, 8, 16]
FREE = {"sinusoidal": np.array([[1.0, 1.0, 1.0, 0.2], [0.8, 1.0, 1.0, 0.4]]), "ALiBi": np.full((2, 4), 0.9)}
MASKED = {"no positions": np.ones((3, 4))}


def steps():
    return plots.accuracy([0, 10, 20, 30], {"": FREE}, x_label="training steps")


def lengths():
    return plots.accuracy(LENGTHS, {"free": FREE, "masked": MASKED}, x_label="words", trained=(3, 8))


def staircase():
    return plots.cross_attention(
        np.array([[0.97, 0.03, 0.0], [0.0, 0.3, 0.7]]), ["forty", "thousand", "two"], ["4", "<stop>"]
    )


def heaps():
    return plots.confidence({"smoothed": np.array([0.9, 0.91, 0.9, 0.4]), "plain": np.ones(3)}, mark=0.902)


def from_file():
    return {
        "with and without": plots.accuracy(
            KEPT["steps"], {"": KEPT["with and without positions"]}, x_label="training steps"
        ),
        "five seeds": plots.accuracy(KEPT["steps"], {"": KEPT["five seeds"]}, x_label="training steps"),
        "longer": plots.accuracy(
            KEPT["words"], KEPT["longer than in training"], x_label="words", trained=(3, 8)
        ),
        "cross-attention": plots.cross_attention(
            np.array(KEPT["cross-attention"]["weights"]),
            KEPT["cross-attention"]["words"],
            KEPT["cross-attention"]["written"],
        ),
    }


DRAWN = {"steps": steps, "lengths": lengths, "staircase": staircase, "heaps": heaps}
DRAWN |= {name: lambda name=name: from_file()[name] for name in from_file()}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("name", DRAWN)
def test_pictures_of_trained_models_keep_the_rules_of_all_pictures(rule, name):
    rule(DRAWN[name])


def line(axes, label):
    return next(line for line in axes.get_lines() if line.get_label() == label)


def test_a_line_is_the_mean_of_the_runs_in_percent_and_the_band_their_range():
    axes = steps().axes[0]
    np.testing.assert_allclose(line(axes, "sinusoidal").get_ydata(), [90, 100, 100, 30])
    band = axes.collections[0].get_paths()[0].vertices
    assert [{y for x, y in band if x == at} for at in (0, 30)] == [{80.0, 100.0}, {20.0, 40.0}]
    assert axes.get_lines()[0].get_ydata() == [50, 50]  # the coin
    assert "coin" in [text.get_text() for text in axes.texts]


def test_a_scheme_has_one_colour_everywhere_and_the_legend_names_each_once():
    free, masked = lengths().axes
    assert line(free, "sinusoidal").get_color() == plots.POSITION
    assert line(masked, "no positions").get_color() == plots.MEANING
    (legend,) = lengths().legends
    assert [text.get_text() for text in legend.get_texts()] == ["sinusoidal", "ALiBi", "no positions"]
    styles = list(plots.SCHEMES.values())
    assert len({colour for colour, _ in styles}) == len({mark[0] for _, mark in styles}) == len(styles)


def test_all_answers_are_in_view_and_no_space_is_lost_below():
    assert steps().axes[0].get_ylim() == (12, 104)
    only_good = plots.accuracy([0, 1], {"": {"learned": np.ones((1, 2))}}, x_label="training steps")
    assert only_good.axes[0].get_ylim() == (42, 104)


def test_the_lengths_of_the_training_are_shaded_on_a_logarithmic_axis():
    for axes in lengths().axes:
        assert axes.get_xscale() == "log"
        assert [tick.get_text() for tick in axes.get_xticklabels()] == ["3", "4", "8", "16"]
        (shade,) = axes.patches
        assert (shade.get_x(), shade.get_x() + shade.get_width()) == (3, 8)


def test_attention_of_the_decoder_has_a_row_a_token_and_its_larger_numbers():
    axes = staircase().axes[0]
    np.testing.assert_array_equal(axes.get_images()[0].get_array(), [[0.97, 0.03, 0.0], [0.0, 0.3, 0.7]])
    assert axes.get_images()[0].get_clim() == (0, 1)
    assert [t.get_text() for t in axes.get_yticklabels()] == ["4", "<stop>"]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["forty", "thousand", "two"]
    assert [t.get_text() for t in axes.texts] == ["0.97", "0.30", "0.70"]


def test_a_histogram_counts_in_percent_on_one_scale():
    smoothed, plain = heaps().axes
    assert [sum(bar.get_height() for bar in axes.patches) for axes in (smoothed, plain)] == [100, 100]
    assert max(bar.get_height() for bar in smoothed.patches) == 75
    assert smoothed.get_ylim() == plain.get_ylim()
    assert smoothed.get_lines()[0].get_xdata() == [0.902, 0.902]
    assert not plots.confidence({"sure": np.ones(2)}).axes[0].get_lines()


# --- the numbers that are kept --------------------------------------------------------------------


def test_the_kept_numbers_say_what_the_lessons_say():
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


def test_the_numbers_are_taken_from_what_the_lessons_define():
    curve, row = np.array([0.5, 0.99999]), np.array([[1.0, 0.12345]])
    order = {
        "steps": range(0, 40, 20),
        "curve_plain": curve,
        "curve_waves": curve,
        "runs": {"learned": [("parameters", curve)]},
        "LONG": [3, 4],
        "free": {"RoPE": row},
        "behind": {"none": row},
    }
    translator = {"words": ["two"], "digits": ["2"], "weights": np.array([[1.0]])}
    kept = train.numbers(order, translator)
    assert kept.keys() == KEPT.keys()
    assert kept["made by"] == KEPT["made by"] == train.COMMAND
    assert kept["five seeds"] == {"learned": [[0.5, 1.0]]}
    assert kept["longer than in training"]["causal mask"] == {"none": [[1.0, 0.1235]]}
    assert json.loads(json.dumps(kept)) == kept


def test_a_lesson_s_cells_are_run_from_top_to_bottom(tmp_path, monkeypatch):
    cells = [("code", "x = 1"), ("markdown", "no code"), ("code", ["y = x + 1\n", "z = __name__"])]
    notebook = [{"cell_type": kind, "id": "a", "source": source} for kind, source in cells]
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "small.ipynb").write_text(json.dumps({"cells": notebook}))
    monkeypatch.setattr(train, "ROOT", tmp_path)
    names = train.run("small.ipynb")
    assert (names["y"], names["z"]) == (2, "small.ipynb")
