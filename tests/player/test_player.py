"""Tests of the player's page that need no browser: its contents, and its use in notebooks and files."""

import html
import json
import re
from importlib import resources

import pytest

from npformer.lessons.named_example import example_from_name
from npformer.lessons.recipes import pack_recipes
from npformer.lessons.worked_example import GIVEN, apply_variants, dog_bites_man, worked_example
from npformer.player.player_page import SCRIPTS, Mark, join_scripts, play


def data_of(player):
    return json.loads(re.search(r'id="data">(.*?)</script>', player.page, re.DOTALL)[1])


def test_play_shows_the_worked_example_by_default():
    assert play() == play(worked_example()) and data_of(play())["decimals"] is None


TRACE = worked_example(example_from_name("Ada"), decimals=3)
PLAYER = play(TRACE)


def test_page_is_small_and_needs_no_network():
    assert len(PLAYER.page.encode()) < 180_000 and "default-src 'none'" in PLAYER.page
    assert not re.search(r"https?:|url\(|@import|\bimport\b|fetch|\bsrc=", PLAYER.page)


def test_page_has_given_numbers_and_recipes():
    trace, data = TRACE, data_of(PLAYER)
    assert data["decimals"] == 3 and data["at"] == "embedding"
    sent_steps = [*data["steps"], *data["updates"]["sgd"]]
    names = [step["name"] for step in sent_steps] + [name for _, name, _ in data["again"]]
    assert names == list(trace.named)
    for sent, step in zip(sent_steps, trace.steps, strict=False):
        look = data["looks"][sent["look"]]
        assert (tuple(look["shape"]), tuple(look["rows"])) == (step.matrices.shape, step.rows)
        assert (sent["equation"], sent["source"]) == (step.equation, step.source)
        assert sent.get("given") == (step.value.ravel().tolist() if step.equation == GIVEN else None)
        packet = json.loads(json.dumps(pack_recipes(step.recipes))) if step.recipes else {}
        assert {key: sent[key] for key in ("forms", "form", "cells") if key in sent} == packet


EXAMPLE = dog_bites_man()
EXAMPLES_WITHOUT_NAMES = {
    "other norm": EXAMPLE._replace(block=EXAMPLE.block._replace(norm_2=EXAMPLE.block.norm_1)),
    "other tokens": EXAMPLE._replace(tokens=("man", "bites", "dog"), ids=EXAMPLE.ids[::-1]),
    "other eps": EXAMPLE._replace(config=EXAMPLE.config._replace(eps=1e-6)),
    "RMSNorm": apply_variants(EXAMPLE, ["rms-norm"]),
}


@pytest.mark.parametrize("example", [EXAMPLE, example_from_name("Ada")], ids=["dog bites man", "Ada"])
def test_page_can_draw_numbers_from_a_name(example):
    assert data_of(play(worked_example(example)))["named"]


@pytest.mark.parametrize("example", EXAMPLES_WITHOUT_NAMES.values(), ids=EXAMPLES_WITHOUT_NAMES)
def test_page_of_another_example_draws_no_names(example):
    """Only the page of the worksheet's example draws numbers from a name. These examples are different."""
    assert data_of(play(worked_example(example)))["named"] is False


def test_page_escapes_the_words_of_a_sentence():
    example = dog_bites_man()
    words = ("</script><b>", "'\"&amp;", "<!--")
    player = play(worked_example(example._replace(tokens=words)))
    data = data_of(player)
    assert data["looks"][data["steps"][1]["look"]]["rows"] == list(words)
    assert player.page.count("</script>") == 3 and "<!--" not in player.page
    assert "<b>" not in player.page.split("<script")[0]
    (inside,) = re.findall(r"<iframe [^']* srcdoc='([^']*)'></iframe>$", player._repr_html_())
    assert html.unescape(inside) == player.page and repr(player) == f"the player: {player.title}"


@pytest.mark.parametrize("at", ["x", "ffn.z,17", "loss,0"])
def test_play_opens_at_a_step_or_cell(at):
    assert data_of(play(at=at))["at"] == at


def test_play_keeps_variants_marks_and_settings():
    marks = [Mark("ffn.z", 8, 1.0, 2.0), Mark("y", 3, -1.0, 2.0)]
    trace = worked_example(decimals=3, update="adam")
    player = play(trace, variants=["pre-norm", "gelu"], marks=marks)
    data = data_of(player)
    assert (data["norm"], data["decimals"], data["update"], data["at"]) == ("pre", 3, "adam", "ffn.z,8")
    assert data["marks"][1] == {"station": "y", "cell": 3, "expected": "−1", "received": "2"}


def test_save_writes_the_page_to_a_file(tmp_path):
    assert PLAYER.save(tmp_path / "play.html") == tmp_path / "play.html"
    assert (tmp_path / "play.html").read_text(encoding="utf-8") == PLAYER.page


def test_page_contains_the_files_of_its_folder():
    files = {file.name: file.read_text("utf-8") for file in resources.files("npformer.player.page").iterdir()}
    scripts = [files.pop(f"{name}.js") for name in SCRIPTS]
    assert join_scripts(scripts) in play().page and files.pop("look.css") in play().page
    assert [*files] == ["page.html"]


def test_scripts_have_short_functions_and_short_lines():
    folder = resources.files("npformer.player.page")
    scripts = [folder.joinpath(f"{name}.js").read_text("utf-8") for name in SCRIPTS]
    bodies = re.findall(r"^[a-z ]*function\*? (\w+)(.*?)^}", "\n".join(scripts), re.DOTALL | re.MULTILINE)
    assert len(bodies) > 60 and [name for name, body in bodies if body.count("\n") > 25] == []
    assert max(len(line) for code in scripts for line in code.splitlines()) <= 110
