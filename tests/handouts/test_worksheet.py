"""Test worksheets: the numbers that are drawn from a name, the content of the pages, and the files."""

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
from valid_calls import replaced

from npformer.handouts import worksheet
from npformer.handouts.worksheet import save_worksheet, worksheet_pages
from npformer.lessons import named_example
from npformer.lessons.named_example import example_from_name, is_lively
from npformer.lessons.worked_example import GIVEN, dog_bites_man, drift, worked_example
from npformer.tree import leaves
from npformer.validation.output_files import write_files

MM = 72 / 25.4  # points per millimetre
PAPERS = {"a4": (210.0, 297.0), "letter": (215.9, 279.4)}
ADA = example_from_name("Ada")
TRACE = worked_example(ADA, decimals=3)


@pytest.fixture(scope="module", autouse=True)
def use_the_same_numbers():
    """Use Ada's numbers for every worksheet, because drawing numbers takes longer than making a page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worksheet, "example_from_name", lambda name: ADA)
        yield


@cache
def draw_sheet(**choices):
    """Draw a worksheet once for all tests that do not change it."""
    return worksheet_pages("Ada", **choices)


def list_arrays(example):
    return dict(leaves((example.embedding, example.block, example.target)))


# --- the numbers of a name -----------------------------------------------------------------------


@pytest.mark.parametrize(("array", "expected"), [
    pytest.param(
        ADA.embedding.E, [[-0.5, 1, 0, 1], [0, -1, 0, 0], [0, 1, -0.5, -0.5], [-0.5, 0.5, 0.5, -0.5]], id="E"
    ),
    pytest.param(
        ADA.block.ffn.W_1,
        [
            [0, 0, 1, 1, 0, 0.5], [0.5, -0.5, 0, 1, 0, -0.5],
            [0, 0, 1, -0.5, 0, 0], [0.5, -0.5, 0, -0.5, -0.5, 0.5],
        ],
        id="W_1",
    ),
    pytest.param(ADA.target, [[-1, 0, 0, 0], [0, -2, 1, 2], [-2, -3, 1, 2]], id="target"),
])  # fmt: skip
def test_example_from_name_never_changes_its_numbers(array, expected):
    """A worksheet and its key may be printed on different days and machines."""
    assert array.tolist() == expected


def fold_name(monkeypatch, name):
    """Return the letters of a name that `example_from_name` uses as the seed."""
    drawn_from = []
    draw_numbers = named_example._number_stream

    def record_letters(letters):
        drawn_from.append(letters)
        return draw_numbers("x")

    with monkeypatch.context() as patch:
        patch.setattr(named_example, "_number_stream", record_letters)
        example_from_name(name)
    return drawn_from[0]


def test_example_from_name_ignores_spelling(monkeypatch):
    """Spaces and case do not change the numbers, in any alphabet."""
    decomposed = unicodedata.normalize("NFD", "Zoë Ek")
    zoe = {fold_name(monkeypatch, name) for name in ("zoë ek", " Zoë  Ek\n", "ZOË EK", decomposed)}
    gross = {fold_name(monkeypatch, name) for name in ("Groß", "GROSS")}
    sisyphus = {fold_name(monkeypatch, name) for name in ("ΣΊΣΥΦΟΣ", "Σίσυφος")}
    assert len(zoe) == len(gross) == len(sisyphus) == 1
    assert len(zoe | gross | sisyphus) == 3


@pytest.mark.parametrize("name", ["李", "\udcff", "Zoë Ott"])
def test_example_from_name_has_numbers_for_a_pencil(name):
    """In one draw for Zoë Ott, all exponentials of a row round to 0. This must not cause a warning."""
    example = example_from_name(name)
    assert any((array != list_arrays(ADA)[path]).any() for path, array in list_arrays(example).items())
    assert is_lively(example)
    for path, array in list_arrays(example).items():
        np.testing.assert_array_equal(2 * array, np.rint(2 * array), err_msg=path)
        assert not np.signbit(array[array == 0]).any(), f"{path} prints as -0"
        is_target = path.startswith("2")
        if array.ndim == 2 and not is_target:
            assert array.any(axis=0).all() and array.any(axis=1).all(), f"{path} has an empty row or column"
    assert max(drift(worked_example(example, decimals=3)).values()) <= 0.05
    assert abs(example.target - worked_example(example).named["y"].value).max() <= 1.5


# (defect, matrix, seed). If this matrix of the lessons' example is replaced by the matrix that the seed
# gives, the example has this defect and no other.
DULL_EXAMPLES = [
    ("a unit is near its kink", "ffn.W_1", "0"),
    ("a token switches no unit on", "ffn.W_1", "19"),
    ("a token switches all units on", "ffn.W_1", "142"),
    ("a head overlooks a token", "attention.W_Q", "401"),
    ("a head has equal weights", "attention.W_Q", "34"),
    ("the first norm divides by little", "attention.W_V", "21"),
    ("the second norm divides by little", "ffn.W_1", "41"),
    ("a number is large", "attention.W_O", "8"),
    ("a gradient is small", "ffn.W_1", "4"),
    ("rounding leads far", "attention.W_V", "100"),
    ("the step of training makes the loss larger", "attention.W_O", "100"),
]


@pytest.mark.parametrize(
    ("path", "seed"),
    [pytest.param(path, seed, id=rule) for rule, path, seed in DULL_EXAMPLES],
)
def test_is_lively_rejects_a_dull_example(path, seed):
    draw = partial(named_example._draw_array, named_example._number_stream(seed))
    assert is_lively(dog_bites_man())
    assert not is_lively(replaced(dog_bites_man(), f"block.{path}", draw))


# --- the content of the pages ---------------------------------------------------------------------

NUMBER = re.compile(r"−?\d+(\.\d+)?")


def list_texts(figures):
    """Return the text objects of all figures."""
    return [text for figure in figures for text in figure.axes[0].texts]


def count_texts(figures):
    return Counter(text.get_text() for text in list_texts(figures))


def list_boxes_to_fill(figures):
    patches = [patch for figure in figures for patch in figure.axes[0].patches]
    return [p for p in patches if isinstance(p, Rectangle) and p.get_facecolor()[:3] == (1, 1, 1)]


def count_numbers(figures):
    """Count the numbers in the boxes. Numbers outside boxes are not centred, so they are not counted."""
    centred = [text.get_text() for text in list_texts(figures) if text.get_ha() == "center"]
    return Counter(text for text in centred if NUMBER.fullmatch(text))


def count_values(steps):
    """Count the values of these steps, written in the format of the page."""
    counts = Counter()
    for step in steps:
        for value in step.value.flat:
            is_exact = step.equation == GIVEN and step.name != "y′"  # y′ is given, but rounded
            text = f"{value:g}" if is_exact else f"{value:.3f}"
            counts[text.replace("-", "−")] += 1
    return counts


# The steps on a worksheet. Of the second forward pass, it has only two: it shows y′ and asks for the loss.
SHEET = [step for step in TRACE.steps if not step.section.startswith("Second pass")]
SHEET += [TRACE.named["new_y"]._replace(name="y′", equation=GIVEN), TRACE.named["new_loss"]]
TO_FIND = [step for step in SHEET if step.equation != GIVEN]


@pytest.mark.parametrize("paper", ["a4", pytest.param("letter", marks=pytest.mark.slow)])
@pytest.mark.parametrize("key", [False, True])
def test_worksheet_shows_every_step(key, paper):
    figures = draw_sheet(key=key, paper=paper)
    given = [step for step in SHEET if step.equation == GIVEN]
    assert count_numbers(figures) == count_values(SHEET if key else given)
    boxes = list_boxes_to_fill(figures)
    assert len(boxes) == sum(step.value.size for step in TO_FIND)
    assert min(box.get_width() for box in boxes) >= 12
    assert min(box.get_height() for box in boxes) >= 7
    texts = count_texts(figures)
    assert Counter(step.equation for step in TO_FIND) <= texts
    assert all(any(text.startswith(step.name) for text in texts) for step in SHEET)
    # If tables of gradients are next to each other, only the first table has row labels.
    assert texts["row 6"] == 1 and texts["row 4"] == 5


@pytest.mark.parametrize("paper", ["a4", pytest.param("letter", marks=pytest.mark.slow)])
@pytest.mark.parametrize("key", [False, True])
def test_worksheet_pages_have_a_name_and_number(key, paper):
    figures = draw_sheet(key=key, paper=paper)
    n = len(figures)
    texts = count_texts(figures)
    assert texts["Ada"] == n + 1
    for i in range(1, n + 1):
        assert sum(text.endswith(f"page {i} of {n}") for text in texts) == 1
    n_keys = sum(count for text, count in texts.items() if "the teacher's key" in text)
    assert n_keys == (n + 1 if key else 0)
    assert all(tuple(f.get_size_inches() * 25.4) == pytest.approx(PAPERS[paper]) for f in figures)


@pytest.mark.parametrize("paper", ["a4", pytest.param("letter", marks=pytest.mark.slow)])
def test_worksheet_texts_do_not_overlap(paper):
    """It is enough to test the teacher's key, because the key has all texts of the worksheet."""
    for figure in draw_sheet(key=True, paper=paper):
        assert find_collisions(figure) == []


def test_worksheet_backward_pass_begins_a_page():
    pages = draw_sheet(key=False, paper="a4")
    sections = [[t.get_text() for t in figure.axes[0].texts if t.get_weight() == "bold"] for figure in pages]
    [page] = [i for i, titles in enumerate(sections) if "Loss" in titles]
    assert sections[page][0] == "Loss" and sections[-1] == ["One step of training"]
    assert "Words and positions" in sections[0], "below the title"
    assert not any(title.startswith("Back") for titles in sections[:page] for title in titles)
    assert all(title.startswith(("Back", "Loss")) for titles in sections[page:-1] for title in titles)


def test_worksheet_gives_numbers_where_they_are_used():
    pages = draw_sheet(key=False, paper="a4")
    captions = [[text.get_text().split(" · ")[0] for text in figure.axes[0].texts] for figure in pages]
    assert captions[-1].index("eta") < captions[-1].index("new_E")
    for given, used in (("attention.W_Q", "attention.Q"), ("ffn.W_1", "ffn.z")):
        assert [given in page for page in captions] == [used in page for page in captions]


def find_collisions(figure):
    """Return the indices of texts that overlap, cross the edge of a box, or are near a paper edge."""
    figure.set_dpi(72)
    axes, renderer = figure.axes[0], FigureCanvasAgg(figure).get_renderer()
    artists, n = [*axes.texts, *axes.patches], len(axes.texts)
    outlines = [artist.get_window_extent(renderer).get_points() for artist in artists]
    low, high = np.swapaxes(outlines, 0, 1) / MM
    overlaps = (np.minimum(high[:n, None], high) > np.maximum(low[:n, None], low)).all(axis=-1)
    is_inside = ((low <= low[:n, None]) & (high[:n, None] <= high)).all(axis=-1)
    overlaps[:, n:] &= ~is_inside[:, n:]
    is_near_edge = (low < 5) | (high > figure.get_size_inches() * 25.4 - 5)
    return [*np.argwhere(np.triu(overlaps, k=1)), *np.argwhere(is_near_edge)]


def test_worksheet_shortens_a_long_name():
    figures = worksheet_pages("$x$ " + "Wolfeschlegelsteinhausen " * 4, minutes=15)
    names = [text for text in list_texts(figures) if "$x$" in text.get_text()]
    assert len(names) == len(figures) + 1
    assert all(len(text.get_text()) <= 32 for text in names)
    assert not any(text.get_parse_math() for text in names)
    assert not any("key" in text.get_text() for text in list_texts(figures))


def test_worksheet_has_a_line_for_an_unprintable_name():
    name = "\U0010fffd"  # no font has this character
    figures = worksheet_pages(name, minutes=15)
    FigureCanvasAgg(figures[0]).draw()  # drawing the name would cause a warning, which fails the test
    assert name not in count_texts(figures)
    with_name = draw_sheet(minutes=15, key=False)
    n_lines = [len(a.axes[0].lines) - len(b.axes[0].lines) for a, b in zip(figures, with_name, strict=True)]
    assert n_lines == [2, *[1] * (len(figures) - 1)]
    assert all(len(set(line.get_ydata())) == 1 for figure in figures for line in figure.axes[0].lines)


# --- the short sheets -----------------------------------------------------------------------------


@pytest.mark.parametrize("minutes", [15, *(pytest.param(n, marks=pytest.mark.slow) for n in (30, 45))])
def test_short_worksheet_fits_its_minutes(minutes):
    blank = draw_sheet(minutes=minutes, key=False)
    key = draw_sheet(minutes=minutes, key=True)
    hidden = count_numbers(key) - count_numbers(blank)
    assert hidden.total() == len(list_boxes_to_fill(blank)) == len(list_boxes_to_fill(key))
    assert minutes < hidden.total() < 3 * minutes, "a box takes 20 to 60 seconds"
    assert not count_numbers(blank) - count_numbers(key)
    assert not any(find_collisions(figure) for figure in key)


@pytest.mark.parametrize(
    ("minutes", "last"),
    [
        (15, "a"),
        pytest.param(30, "loss", marks=pytest.mark.slow),
        pytest.param(45, "new_loss", marks=pytest.mark.slow),
    ],
)
def test_short_worksheet_asks_one_row_per_table(minutes, last):
    """Each table with several boxes also shows the sum of the boxes."""
    sheet = worksheet._make_sheet(TRACE, minutes)
    for step in sheet.steps:
        boxes = np.argwhere(sheet.to_find[step.name])  # (n_boxes, 3); each row is head, row, column
        assert len({tuple(box[:-1]) for box in boxes}) <= 1
        if len(boxes) > 1:
            total = sum(Decimal(f"{step.matrices[tuple(box)]:.3f}") for box in boxes)
            assert f"Σ {total:z}".replace("-", "−") in worksheet._caption(step)
    assert sheet.steps[-1].name == last


# --- the files ------------------------------------------------------------------------------------


@pytest.fixture
def mock_pages(monkeypatch):
    """Replace `worksheet_pages` by a mock that returns two pages."""
    mock = Mock(return_value=2 * draw_sheet(minutes=15, key=False)[-1:])
    monkeypatch.setattr(worksheet, "worksheet_pages", mock)
    return mock


@pytest.mark.parametrize("suffix", ["PDF", "html"])
def test_save_worksheet_writes_the_same_bytes(tmp_path, mock_pages, suffix):
    choices = {"key": True, "paper": "letter", "minutes": 15}
    first = save_worksheet("Ida", tmp_path / f"a.{suffix}", **choices)
    second = save_worksheet("Ida", tmp_path / f"b.{suffix}", **choices)
    assert first == tmp_path / f"a.{suffix}"
    assert first.read_bytes() == second.read_bytes()
    assert mock_pages.call_args_list == [call("Ida", **choices)] * 2


def test_save_worksheet_pdf_has_every_page(tmp_path, mock_pages):
    file = save_worksheet("Ida", tmp_path / "a.PDF")
    assert len(re.findall(rb"/Type /Page\b", file.read_bytes())) == 2
    assert mock_pages.call_args_list == [call("Ida", key=False, paper="a4", minutes=None)]


@pytest.mark.parametrize("paper", PAPERS)
def test_save_worksheet_html_has_the_paper_size(tmp_path, mock_pages, paper):
    text = save_worksheet("Ida", tmp_path / "a.html", paper=paper).read_text(encoding="utf-8")
    width, height = PAPERS[paper]
    assert f"@page {{ size: {width}mm {height}mm; margin: 0 }}" in text and "break-after: page" in text
    assert f"svg {{ width: {width}mm; height: {height}mm }}" in text


def test_save_worksheet_html_contains_only_the_pages(tmp_path, mock_pages):
    text = save_worksheet("Ida", tmp_path / "a.html").read_text(encoding="utf-8")
    tags = Counter(re.findall(r"<(\w+)", text))
    assert tags["svg"] == tags["h2"] == 2 == text.count('role="img" aria-label="Worksheet, page ')
    assert tags["main"] == tags["h1"] == 1 and not {"script", "link", "img", "iframe"} & set(tags)
    ids = re.findall(r'\bid="(.+?)"', text)
    assert len(set(ids)) == len(ids)
    assert {a or b for a, b in re.findall(r'="#(.+?)"|url\(#(.+?)\)', text)} <= set(ids)


def test_write_files_full_disk_keeps_the_old_files(tmp_path, monkeypatch):
    old, other = tmp_path / "sheet.html", tmp_path / "other"
    old.write_text("old")
    write_bytes = Path.write_bytes
    written = []

    def write_one_file(path, content):
        if written:
            raise OSError(28, "No space left on device")
        write_bytes(path, content)
        written.append(path)

    monkeypatch.setattr(Path, "write_bytes", write_one_file)
    with pytest.raises(OSError, match="No space left on device"):
        write_files({old: b"new", other: b"new"})
    assert written and list(tmp_path.iterdir()) == [old] and old.read_text() == "old"
