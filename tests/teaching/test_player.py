"""The page of the player: what is in it and what is not, and its way into a notebook; without a browser."""

import html
import json
import re
from collections import Counter
from importlib import resources

import pytest

from npformer.teaching.player import SCRIPTS, Mark, joined, play
from npformer.teaching.recipes import OPERATIONS, packed
from npformer.teaching.worked_example import GIVEN, dog_bites_man, varied, worked_example
from npformer.teaching.worksheet import example_from_name


def data_of(player):
    return json.loads(re.search(r'id="data">(.*?)</script>', player.page, re.DOTALL)[1])


def test_the_page_has_the_given_numbers_and_the_recipes_of_all_others():
    trace = worked_example(decimals=3)
    data = data_of(play(trace))
    assert data["decimals"] == 3 and data["at"] == "embedding"
    sent_steps = [*data["steps"], *data["updates"]["sgd"]]
    names = [step["name"] for step in sent_steps] + [name for _, name, _ in data["again"]]
    assert names == list(trace.named)
    for sent, step in zip(sent_steps, trace.steps, strict=False):
        look = data["looks"][sent["look"]]
        assert (tuple(look["shape"]), tuple(look["rows"])) == (step.matrices.shape, step.rows)
        assert (sent["equation"], sent["source"]) == (step.equation, step.source)
        assert sent.get("given") == (step.value.ravel().tolist() if step.equation == GIVEN else None)
        packet = json.loads(json.dumps(packed(step.recipes))) if step.recipes else {}
        assert {key: sent[key] for key in ("forms", "form", "cells") if key in sent} == packet


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
        varied(example, ["rms-norm"]),
    ]:
        assert data_of(play(worked_example(other)))["named"] is False


def test_the_page_is_small_and_asks_nobody_for_anything():
    page = play(worked_example(example_from_name("Ada"), decimals=8)).page
    assert len(page.encode()) < 140_000
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
    data = data_of(player)
    assert data["looks"][data["steps"][1]["look"]]["rows"] == list(words)
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


def test_variants_and_marks_are_in_the_page_and_others_are_refused():
    marks = [Mark("ffn.z", 8, 1.0, 2.0), Mark("y", 3, -1.0, 2.0)]
    data = data_of(
        play(worked_example(decimals=3, update="adam"), variants=["pre-norm", "gelu"], marks=marks)
    )
    assert (data["norm"], data["decimals"], data["update"], data["at"]) == ("pre", 3, "adam", "ffn.z,8")
    assert data["marks"][1] == {"station": "y", "cell": 3, "expected": "−1", "received": "2"}
    with pytest.raises(ValueError, match="play: a variant is 'post-norm'; expected"):
        play(variants=["post-norm"])
    with pytest.raises(ValueError, match=r"play: at is 'ffn\.z,18'; expected a cell"):
        play(marks=[Mark("ffn.z", 18, 1.0, 2.0)])
    with pytest.raises(TypeError, match="play: a mark is"):
        play(marks=[("ffn.z", 8, 1.0, 2.0)])


# --- its code ------------------------------------------------------------------------------------

FOLDER = resources.files("npformer.teaching").joinpath("page")
CODE = {name: FOLDER.joinpath(f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS}
CSS = FOLDER.joinpath("look.css").read_text(encoding="utf-8")
DEFINED = re.compile(r"^(?:export )?(?:const|let|(?:async )?function\*?) (\w+)", re.MULTILINE)


def test_the_code_of_the_page_is_in_files_of_the_package_and_keeps_the_rules_of_the_house():
    assert joined(list(CODE.values())) in play().page and CSS in play().page
    assert {f"{name}.js" for name in CODE} | {"look.css"} == {file.name for file in FOLDER.iterdir()}
    lengths = {}
    for code in CODE.values():
        assert max(map(len, code.splitlines())) <= 110
        bodies = re.findall(r"^[a-z ]*function\*? (\w+)(.*?)^}", code, re.DOTALL | re.MULTILINE)
        lengths |= {name: body.count("\n") for name, body in bodies}
    assert len(lengths) > 60
    assert {name: length for name, length in lengths.items() if length > 25} == {}


def test_no_name_stands_in_two_files_and_nothing_is_unused():
    """One page holds them all."""
    defined = [name for code in CODE.values() for name in DEFINED.findall(code)]
    assert [name for name, count in Counter(defined).items() if count > 1] == []
    whole = joined(list(CODE.values()))
    assert [name for name in defined if len(re.findall(rf"\b{name}\b", whole)) < 2] == []


def test_the_arithmetic_knows_no_page():
    imported = {name: set(re.findall(r'from "\./(\w+)\.js"', code)) for name, code in CODE.items()}
    assert imported["arithmetic"] == imported["trace"] == set() and imported["words"] == {"arithmetic"}
    assert not re.search("document|window|page", CODE["arithmetic"].split("*/")[-1].replace("of a page", ""))


def test_the_operations_are_those_of_the_recipes():
    body = CODE["arithmetic"]
    body = body[body.index("const OPERATIONS") : body.index("// Of a normal distribution")]
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
    day, night = CSS.split("@media (prefers-color-scheme: dark)")[:2]
    for part in (day, night.split("\n}")[0]):
        look = colours(part)
        for way in ("forward", "gradient"):
            one = look | {"way": look[way]}
            for letters, behind in [("ink", "paper"), ("ink", "soft"), ("ink", "enters"), ("on", "way")]:
                assert contrast(one[letters], one[behind]) >= 4.5, (letters, behind)
            for letters in ("quiet", "way"):
                assert min(contrast(one[letters], one[behind]) for behind in ("paper", "soft")) >= 4.5
            assert contrast(one["enters-edge"], one["paper"]) >= 3
