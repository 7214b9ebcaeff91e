"""The page of the player: what is in it and what is not, and its way into a notebook; without a browser."""

import html
import json
import re
from importlib import resources

from npformer.lessons.named_example import example_from_name
from npformer.lessons.recipes import pack_recipes
from npformer.lessons.worked_example import GIVEN, apply_variants, dog_bites_man, worked_example
from npformer.player.player_page import SCRIPTS, Mark, join_scripts, play


def data_of(player):
    return json.loads(re.search(r'id="data">(.*?)</script>', player.page, re.DOTALL)[1])


def test_the_page_has_the_given_numbers_and_the_recipes_of_all_others():
    assert play() == play(worked_example()) and data_of(play())["decimals"] is None
    trace = worked_example(example_from_name("Ada"), decimals=3)
    page, data = play(trace).page, data_of(play(trace))
    assert len(page.encode()) < 140_000 and "default-src 'none'" in page  # small, and asks nobody
    assert not re.search(r"https?:|url\(|@import|\bimport\b|fetch|\bsrc=", page)
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


def test_a_name_can_draw_the_numbers_of_a_page_whose_other_numbers_are_those_of_a_worksheet():
    example = dog_bites_man()
    assert data_of(play())["named"] and data_of(play(worked_example(example_from_name("Ada"))))["named"]
    other_norm = example.block._replace(norm_2=example.block.norm_1)
    for other in [
        example._replace(block=other_norm),
        example._replace(tokens=("man", "bites", "dog"), ids=example.ids[::-1]),
        example._replace(config=example.config._replace(eps=1e-6)),
        apply_variants(example, ["rms-norm"]),
    ]:
        assert data_of(play(worked_example(other)))["named"] is False


def test_words_of_a_sentence_cannot_break_out_of_the_page():
    example = dog_bites_man()
    words = ("</script><b>", "'\"&amp;", "<!--")
    player = play(worked_example(example._replace(tokens=words)))
    data = data_of(player)
    assert data["looks"][data["steps"][1]["look"]]["rows"] == list(words)
    assert player.page.count("</script>") == 2 and "<!--" not in player.page
    assert "<b>" not in player.page.split("<script")[0]
    (inside,) = re.findall(r"<iframe [^']* srcdoc='([^']*)'></iframe>$", player._repr_html_())
    assert html.unescape(inside) == player.page and repr(player) == f"the player: {player.title}"


def test_variants_marks_and_places_are_in_the_page_and_it_is_saved_as_a_file(tmp_path):
    for at in ("x", "ffn.z,17", "loss,0"):
        assert data_of(play(at=at))["at"] == at
    marks = [Mark("ffn.z", 8, 1.0, 2.0), Mark("y", 3, -1.0, 2.0)]
    trace = worked_example(decimals=3, update="adam")
    player = play(trace, variants=["pre-norm", "gelu"], marks=marks)
    data = data_of(player)
    assert (data["norm"], data["decimals"], data["update"], data["at"]) == ("pre", 3, "adam", "ffn.z,8")
    assert data["marks"][1] == {"station": "y", "cell": 3, "expected": "−1", "received": "2"}
    assert player.save(tmp_path / "play.html") == tmp_path / "play.html"
    assert (tmp_path / "play.html").read_text(encoding="utf-8") == player.page


def test_the_code_of_the_page_is_in_files_of_the_package_and_keeps_the_rules_of_the_house():
    files = {file.name: file.read_text("utf-8") for file in resources.files("npformer.player.page").iterdir()}
    scripts = [files.pop(f"{name}.js") for name in SCRIPTS]
    assert join_scripts(scripts) in play().page and files.pop("look.css") in play().page
    assert [*files] == ["page.html"]
    bodies = re.findall(r"^[a-z ]*function\*? (\w+)(.*?)^}", "\n".join(scripts), re.DOTALL | re.MULTILINE)
    assert len(bodies) > 60 and [name for name, body in bodies if body.count("\n") > 25] == []
    assert max(len(line) for code in scripts for line in code.splitlines()) <= 110
