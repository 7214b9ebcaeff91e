"""The page of the player: what is in it and what is not, and its way into a notebook; without a browser."""

import html
import json
import re
from importlib import resources

import numpy as np
import pytest

from npformer.teaching.player import play
from npformer.teaching.recipes import OPERATIONS, recipes
from npformer.teaching.worked_example import GIVEN, dog_bites_man, worked_example
from npformer.teaching.worksheet import example_from_name


def data_of(player):
    return json.loads(re.search(r'id="data">(.*?)</script>', player.page, re.DOTALL)[1])


def as_lists(recipe):
    return [as_lists(part) for part in recipe] if isinstance(recipe, tuple) else recipe


def test_the_page_has_the_given_numbers_and_the_recipes_of_all_others():
    trace = worked_example(decimals=3)
    data, found = data_of(play(trace)), recipes(trace)
    assert data["decimals"] == 3 and data["at"] == "embedding"
    assert [step["name"] for step in data["steps"]] == list(trace.named)
    for sent, step in zip(data["steps"], trace.steps, strict=True):
        assert tuple(sent["shape"]) == step.matrices.shape
        assert (sent["equation"], sent["source"]) == (step.equation, step.source)
        assert sent.get("given") == (step.value.ravel().tolist() if step.equation == GIVEN else None)
        assert sent.get("recipes") == as_lists(tuple(found[step.name]) if step.name in found else None)


def test_without_a_trace_it_is_dog_bites_man_exactly():
    assert play() == play(worked_example())
    assert data_of(play())["decimals"] is None
    assert play().title == "“dog bites man” through one encoder block and back"


def test_a_name_plays_the_numbers_of_its_worksheet():
    example = example_from_name("Ada")
    data = data_of(play(worked_example(example, decimals=3)))
    given = {step["name"]: step.get("given") for step in data["steps"]}
    assert given["ffn.W_1"] == example.block.ffn.W_1.ravel().tolist()
    assert given["target"] == example.target.ravel().tolist()


def test_a_name_can_draw_the_numbers_of_a_page_whose_other_numbers_are_those_of_a_worksheet():
    example = dog_bites_man()
    assert data_of(play())["named"] and data_of(play(worked_example(example_from_name("Ada"))))["named"]
    other_norm = example.block._replace(norm_2=example.block.norm_1)
    for other in [
        example._replace(block=other_norm),
        example._replace(tokens=("man", "bites", "dog"), ids=example.ids[::-1]),
        example._replace(config=example.config._replace(eps=1e-6)),
    ]:
        assert data_of(play(worked_example(other)))["named"] is False


def test_the_page_is_small_and_asks_nobody_for_anything():
    page = play(worked_example(example_from_name("Ada"), decimals=8)).page
    assert len(page.encode()) < 120_000
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|url\(|@import|\bimport\b|fetch|\bsrc=", page)


def test_a_notebook_gets_the_whole_page_in_a_frame():
    player = play(at="ffn.z,8")
    (inside,) = re.findall(r"<iframe [^']* srcdoc='([^']*)'></iframe>$", player._repr_html_())
    assert html.unescape(inside) == player.page
    assert repr(player) == f"the player: {player.title}"


def test_words_of_a_sentence_cannot_break_out_of_the_page():
    example = dog_bites_man()
    words = ("</script><b>", "'\"&amp;", "<!--")
    player = play(worked_example(example._replace(tokens=words)))
    assert data_of(player)["steps"][1]["rows"] == list(words)
    assert player.page.count("</script>") == 2 and "<!--" not in player.page
    assert "<b>" not in player.page.split("<script")[0]
    (inside,) = re.findall(r"srcdoc='([^']*)'", player._repr_html_())
    assert html.unescape(inside) == player.page


def test_it_is_saved_as_a_file(tmp_path):
    player = play()
    assert player.save(tmp_path / "play.html") == tmp_path / "play.html"
    assert (tmp_path / "play.html").read_text(encoding="utf-8") == player.page
    with pytest.raises(FileNotFoundError, match="save: there is no folder"):
        player.save(tmp_path / "nowhere" / "play.html")


@pytest.mark.parametrize("at", ["x", "ffn.z", "ffn.z,0", "ffn.z,17", "loss,0", "attention.W_Q,3"])
def test_it_opens_where_it_is_told_to(at):
    assert data_of(play(at=at))["at"] == at


@pytest.mark.parametrize(
    ("at", "message"),
    [
        ("u", "play: at is 'u'; the trace has no step 'u'"),
        ("ffn.z,18", "play: at is 'ffn.z,18'; expected a cell of ffn.z from 0 to 17"),
        ("ffn.z,-1", "expected a cell of ffn.z from 0 to 17"),
        ("ffn.z, 1", "expected a cell of ffn.z from 0 to 17"),
    ],
)
def test_a_place_that_is_not_there_is_refused(at, message):
    with pytest.raises(ValueError) as error:
        play(at=at)
    assert message in str(error.value)


@pytest.mark.parametrize("wrong", [{"trace": dog_bites_man()}, {"trace": "dog bites man"}, {"at": 3}])
def test_another_kind_of_thing_is_refused(wrong):
    with pytest.raises(TypeError, match=f"play: {next(iter(wrong))} is "):
        play(**wrong)


def test_a_trace_that_was_changed_is_refused():
    trace = worked_example()
    steps = [s._replace(value=s.value * np.nan) if s.name == "y" else s for s in trace.steps]
    with pytest.raises(ValueError, match="play: y, cell 0 of the trace, is nan"):
        play(trace._replace(steps=tuple(steps)))


# --- its code ------------------------------------------------------------------------------------

CODE = resources.files("npformer.teaching").joinpath("player.js").read_text(encoding="utf-8")


def test_the_code_of_the_page_is_a_file_of_the_package_and_keeps_the_rules_of_the_house():
    assert CODE in play().page
    assert max(map(len, CODE.splitlines())) <= 110
    lengths = {
        name: body.count("\n")
        for name, body in re.findall(r"^[a-z ]*function\*? (\w+)(.*?)^}", CODE, re.DOTALL | re.MULTILINE)
    }
    assert len(lengths) > 30
    assert {name: length for name, length in lengths.items() if length > 25} == {}


def test_nothing_in_the_code_is_unused():
    code = CODE[: CODE.index("const CSS")]
    defined = re.findall(r"^(?:const|let|(?:async )?function\*?) (\w+)", code, re.MULTILINE)
    assert [name for name in defined if len(re.findall(rf"\b{name}\b", code)) < 2] == []


def test_the_operations_are_those_of_the_recipes():
    body = CODE[CODE.index("const OPERATIONS") : CODE.index("function evaluate")]
    assert set(re.findall(r'^  "?([^\s":]+)"?:', body, re.MULTILINE)) == set(OPERATIONS)


def colours(block):
    return dict(re.findall(r"--([\w-]+): (#\w+)", block))


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    shares = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    r, g, b = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_has_the_contrast_of_the_standard():
    assert contrast("#000", "#ffffff") == pytest.approx(21)


def test_letters_stand_out_from_what_is_behind_them_by_day_and_by_night():
    """At least 4.5 to 1, level AA of the guidelines for accessible content; edges at least 3 to 1."""
    css = CODE[CODE.index("const CSS") :]
    day, night = css.split("@media (prefers-color-scheme: dark)")[:2]
    for part in (day, night.split("\n}")[0]):
        look = colours(part)
        back = {**look, **colours(part[part.index(".back {") :])}
        for one in (look, back):
            for letters, behind in [("ink", "paper"), ("ink", "soft"), ("ink", "enters"), ("on", "way")]:
                assert contrast(one[letters], one[behind]) >= 4.5, (letters, behind)
            for letters in ("quiet", "way"):
                assert min(contrast(one[letters], one[behind]) for behind in ("paper", "soft")) >= 4.5
            assert contrast(one["enters-edge"], one["paper"]) >= 3
