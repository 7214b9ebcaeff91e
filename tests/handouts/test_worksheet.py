"""The worksheets: whose numbers they are, what stands on the paper, and the files."""

import re
import unicodedata
from collections import Counter
from decimal import Decimal
from functools import cache, partial
from pathlib import Path
from unittest.mock import Mock, call

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle
from together import together
from valid_calls import replaced

from npformer.handouts import worksheet
from npformer.handouts.worksheet import save_worksheet, worksheet_pages
from npformer.lessons import named_example
from npformer.lessons.named_example import example_from_name, is_lively
from npformer.lessons.worked_example import GIVEN, dog_bites_man, drift, worked_example
from npformer.tree import leaves
from npformer.validation.output_files import write_files

MM = 72 / 25.4  # points
PAPERS = {"a4": (210.0, 297.0), "letter": (215.9, 279.4)}
ADA = example_from_name("Ada")
TRACE = worked_example(ADA, decimals=3)


@pytest.fixture(scope="module", autouse=True)
def one_draw_for_all():
    """Every sheet below has this name's numbers: drawing them takes longer than drawing a page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worksheet, "example_from_name", lambda name: ADA)
        yield


@cache
def sheet(**choices):
    """The pages of a sheet, drawn once for all tests that only look at them."""
    return worksheet_pages("Ada", **choices)


def arrays(example):
    return dict(leaves((example.embedding, example.block, example.target)))


# --- whose numbers --------------------------------------------------------------------------------


def test_a_name_has_its_numbers_for_ever():
    """Sheets and keys printed on other days and machines belong together."""
    printed = {
        "-0.5 1 0 1 | 0 -1 0 0 | 0 1 -0.5 -0.5 | -0.5 0.5 0.5 -0.5": ADA.embedding.E,
        "0 0 1 1 0 .5 | .5 -.5 0 1 0 -0.5 | 0 0 1 -0.5 0 0 | 0.5 -0.5 0 -0.5 -0.5 0.5": ADA.block.ffn.W_1,
        "-1 0 0 0 | 0 -2 1 2 | -2 -3 1 2": ADA.target,
    }
    for numbers, array in printed.items():
        assert [[float(number) for number in row.split()] for row in numbers.split("|")] == array.tolist()


def test_spellings_of_one_name_give_one_sheet_and_other_names_others(monkeypatch):
    seen, real = [], named_example._numbers
    monkeypatch.setattr(named_example, "_numbers", lambda letters: seen.append(letters) or real("x"))
    spelt = ["zoë ek", " Zoë  Ek\n", "ZOË EK", unicodedata.normalize("NFD", "Zoë Ek")]
    for name in ("Groß", "GROSS", "ΣΊΣΥΦΟΣ", "Σίσυφος", *spelt):  # folded in every script
        example_from_name(name)
    assert seen[0] == seen[1] and seen[2] == seen[3] and len({*seen}) == 3 and len({*seen[4:]}) == 1


@pytest.mark.parametrize("name", ["李", "\udcff", "Zoë Ott"])
def test_every_name_gets_numbers_for_a_pencil(name):
    """In a draw of the last one all exponentials of a row round to 0; a warning would fail the test."""
    example = example_from_name(name)
    assert any((array != arrays(ADA)[path]).any() for path, array in arrays(example).items())
    assert is_lively(example)
    for path, array in arrays(example).items():
        np.testing.assert_array_equal(2 * array, np.rint(2 * array), err_msg=path)
        assert not np.signbit(array[array == 0]).any(), f"{path} prints as -0"
        if array.ndim == 2 and not path.startswith("2"):
            assert array.any(axis=0).all() and array.any(axis=1).all(), f"{path} has an empty row or column"
    assert max(drift(worked_example(example, decimals=3)).values()) <= 0.05
    assert abs(example.target - worked_example(example).named["y"].value).max() <= 1.5


DULL = [  # each breaks one rule and no other: the class example with one matrix drawn by these letters
    ("a unit is near its kink", "ffn.W_1", "0"),
    ("a token switches no unit on", "ffn.W_1", "19"),
    ("a token switches all units on", "ffn.W_1", "142"),
    ("a head overlooks a token", "attention.W_Q", "401"),
    ("a head looks everywhere alike", "attention.W_Q", "34"),
    ("the first norm divides by little", "attention.W_V", "21"),
    ("the second norm divides by little", "ffn.W_1", "41"),
    ("a number is large", "attention.W_O", "8"),
    ("a gradient is small", "ffn.W_1", "4"),
    ("rounding leads far", "attention.W_V", "100"),
    ("the step of training makes the loss larger", "attention.W_O", "100"),
]


@together(("rule", "path", "letters"), DULL)
def test_dull_examples_are_passed_over(rule, path, letters):
    draw = partial(named_example._draw_array, named_example._numbers(letters))
    assert is_lively(dog_bites_man()) and not is_lively(replaced(dog_bites_man(), f"block.{path}", draw))


# --- what stands on the paper ---------------------------------------------------------------------

COLUMN = re.compile(r"−?\d+(\.\d+)?")


def texts(figures):
    return [text for figure in figures for text in figure.axes[0].texts]


def written(figures):
    return Counter(text.get_text() for text in texts(figures))


def boxes_to_fill(figures):
    patches = [patch for figure in figures for patch in figure.axes[0].patches]
    return [p for p in patches if isinstance(p, Rectangle) and p.get_facecolor()[:3] == (1, 1, 1)]


def numbers(figures):
    """Every number in a box: they alone are centred and made of digits."""
    centred = [text.get_text() for text in texts(figures) if text.get_ha() == "center"]
    return Counter(filter(COLUMN.fullmatch, centred))


def printed(steps):
    shown = [f"{v:g}" if s.equation == GIVEN else f"{v:.3f}" for s in steps for v in s.value.flat]
    return Counter(text.replace("-", "−") for text in shown)


# The steps on paper: of the second pass there is y as it comes out, given, and the loss to find.
SHEET = [step for step in TRACE.steps if not step.section.startswith("Second pass")]
SHEET += [TRACE.named["new_y"]._replace(name="y′", equation=GIVEN), TRACE.named["new_loss"]]
TO_FIND = [step for step in SHEET if step.equation != GIVEN]


@pytest.mark.parametrize("paper", ["a4", pytest.param("letter", marks=pytest.mark.slow)])
@pytest.mark.parametrize("key", [False, True])
def test_a_sheet_shows_what_is_given_and_a_key_every_number_as_the_pencil_has_it(key, paper):
    figures = sheet(key=key, paper=paper)
    assert numbers(figures) == printed(SHEET if key else [s for s in SHEET if s.equation == GIVEN])
    boxes, said = boxes_to_fill(figures), written(figures)
    assert len(boxes) == sum(step.value.size for step in TO_FIND)
    assert min(box.get_width() for box in boxes) >= 12 and min(box.get_height() for box in boxes) >= 7
    assert Counter(step.equation for step in TO_FIND) <= said
    assert all(any(text.startswith(step.name) for text in said) for step in SHEET)
    assert said["row 6"] == 1 and said["row 4"] == 5  # of each row of gradients the first: dW_V beside dW_K
    n = len(figures)
    assert said["Ada"] == n + 1
    assert all(sum(text.endswith(f"page {i} of {n}") for text in said) == 1 for i in range(1, n + 1))
    assert sum(count for text, count in said.items() if "the teacher's key" in text) == key * (n + 1)
    assert all(tuple(f.get_size_inches() * 25.4) == pytest.approx(PAPERS[paper]) for f in figures)
    assert not key or not any(map(collisions, figures)), "a key has all that a sheet has"


def test_the_way_back_and_the_training_begin_pages_and_what_is_given_stands_where_it_is_used():
    pages = sheet(key=False, paper="a4")
    sections = [[t.get_text() for t in figure.axes[0].texts if t.get_weight() == "bold"] for figure in pages]
    [page] = [i for i, titles in enumerate(sections) if "Loss" in titles]
    assert sections[page][0] == "Loss" and sections[-1] == ["One step of training"]
    assert "Words and positions" in sections[0], "below the title"
    assert not any(title.startswith("Back") for titles in sections[:page] for title in titles)
    assert all(title.startswith(("Back", "Loss")) for titles in sections[page:-1] for title in titles)
    captions = [[text.get_text().split(" · ")[0] for text in figure.axes[0].texts] for figure in pages]
    assert captions[-1].index("eta") < captions[-1].index("new_E")
    for given, used in (("attention.W_Q", "attention.Q"), ("ffn.W_1", "ffn.z")):
        assert [given in page for page in captions] == [used in page for page in captions]


def collisions(figure):
    """The words of a page that meet, those that cross a box's edge, and what comes near the paper's."""
    figure.set_dpi(72)
    axes, renderer = figure.axes[0], FigureCanvasAgg(figure).get_renderer()
    artists, n = [*axes.texts, *axes.patches], len(axes.texts)
    outlines = [artist.get_window_extent(renderer).get_points() for artist in artists]
    low, high = np.swapaxes(outlines, 0, 1) / MM
    meet = (np.minimum(high[:n, None], high) > np.maximum(low[:n, None], low)).all(axis=-1)
    inside = ((low <= low[:n, None]) & (high[:n, None] <= high)).all(axis=-1)
    meet[:, n:] &= ~inside[:, n:]
    near = (low < 5) | (high > figure.get_size_inches() * 25.4 - 5)
    return [*np.argwhere(np.triu(meet, k=1)), *np.argwhere(near)]


def test_names_are_neither_mathematics_nor_endless_nor_without_letters():
    figures = worksheet_pages("$x$ " + "Wolfeschlegelsteinhausen " * 4, minutes=15)
    found = [text for text in texts(figures) if "$x$" in text.get_text()]
    assert len(found) == len(figures) + 1
    assert not any("key" in text.get_text() for text in texts(figures)), "which is made when asked for"
    assert all(not text.get_parse_math() and len(text.get_text()) <= 32 for text in found)
    nameless = "\U0010fffd"  # which no font has: there is a line to write on
    figures = worksheet_pages(nameless, minutes=15)
    FigureCanvasAgg(figures[0]).draw()  # a warning would fail the test
    assert nameless not in written(figures)
    with_name = sheet(minutes=15, key=False)
    more = [len(a.axes[0].lines) - len(b.axes[0].lines) for a, b in zip(figures, with_name, strict=True)]
    assert more == [2, *[1] * (len(figures) - 1)]
    assert all(len({*line.get_ydata()}) == 1 for figure in figures for line in figure.axes[0].lines)


# --- the short sheets -----------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [15, *(pytest.param(n, marks=pytest.mark.slow) for n in (30, 45))])
def test_a_short_sheet_asks_one_row_a_table_and_says_its_sum(minutes):
    blank, key = (sheet(minutes=minutes, key=key) for key in (False, True))
    hidden = numbers(key) - numbers(blank)
    assert hidden.total() == len(boxes_to_fill(blank)) == len(boxes_to_fill(key))
    assert minutes < hidden.total() < 3 * minutes, "a box takes 20 to 60 seconds"
    assert not numbers(blank) - numbers(key) and not any(map(collisions, key))
    steps = worksheet._make_sheet(TRACE, minutes)
    for step in steps.steps:
        places = np.argwhere(steps.to_find[step.name])
        assert len({tuple(place[:-1]) for place in places}) <= 1
        if len(places) > 1:
            total = sum(Decimal(f"{step.matrices[tuple(place)]:.3f}") for place in places)
            assert f"Σ {total:z}".replace("-", "−") in worksheet._caption(step)
    assert steps.steps[-1].name == {15: "a", 30: "loss", 45: "new_loss"}[minutes]


# --- the files ------------------------------------------------------------------------------------


def test_a_file_is_the_same_each_time_and_holds_every_page_as_asked_and_nothing_else(tmp_path, monkeypatch):
    drawn = Mock(return_value=2 * sheet(minutes=15, key=False)[-1:])
    monkeypatch.setattr(worksheet, "worksheet_pages", drawn)
    choices = {"key": True, "paper": "letter", "minutes": 15}
    for kind in ("PDF", "html"):
        first, second = (save_worksheet("Ida", tmp_path / f"{i}.{kind}", **choices) for i in "ab")
        assert first.read_bytes() == second.read_bytes() and first == tmp_path / f"a.{kind}"
    save_worksheet("Ida", tmp_path / "b.html")
    asked = [*[call("Ida", **choices)] * 4, call("Ida", key=False, paper="a4", minutes=None)]
    assert drawn.call_args_list == asked
    assert len(re.findall(rb"/Type /Page\b", (tmp_path / "a.PDF").read_bytes())) == 2
    for file, (width, height) in zip("ba", PAPERS.values(), strict=True):
        text = (tmp_path / f"{file}.html").read_text(encoding="utf-8")
        assert f"@page {{ size: {width}mm {height}mm; margin: 0 }}" in text and "break-after: page" in text
        assert f"svg {{ width: {width}mm; height: {height}mm }}" in text
    tags = Counter(re.findall(r"<(\w+)", text))
    assert tags["svg"] == tags["h2"] == 2 == text.count('role="img" aria-label="Worksheet, page ')
    assert tags["main"] == tags["h1"] == 1 and not {"script", "link", "img", "iframe"} & set(tags)
    ids = re.findall(r'\bid="(.+?)"', text)
    assert len(set(ids)) == len(ids)
    assert {a or b for a, b in re.findall(r'="#(.+?)"|url\(#(.+?)\)', text)} <= set(ids)


def test_a_full_disk_leaves_the_old_files_and_no_parts(tmp_path, monkeypatch):
    old, other = tmp_path / "sheet.html", tmp_path / "other"
    old.write_text("old")
    write, done = Path.write_bytes, []

    def full(path, content):
        if done:
            raise OSError(28, "No space left on device")
        done.append(write(path, content))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left on device"):
        write_files({old: b"new", other: b"new"})
    assert done and list(tmp_path.iterdir()) == [old] and old.read_text() == "old"
