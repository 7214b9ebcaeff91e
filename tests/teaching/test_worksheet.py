"""The worksheets: whose numbers they are, what stands on the paper, and the files."""

import itertools
import re
import unicodedata
import warnings
import xml.etree.ElementTree as ET
from collections import Counter
from decimal import ROUND_HALF_UP, Decimal
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle

from npformer.teaching import worksheet
from npformer.teaching.recipes import OPERATIONS
from npformer.teaching.worked_example import GIVEN, dog_bites_man, drift, worked_example
from npformer.teaching.worksheet import example_from_name, is_lively, save_worksheet, worksheet_pages
from npformer.tree import leaves, tree_map

MM = 72 / 25.4  # points
PAPERS = {"a4": (210.0, 297.0), "letter": (215.9, 279.4)}
NAME = "Ada"
REAL_NUMBERS = worksheet._numbers


@pytest.fixture(scope="module", autouse=True)
def one_draw_for_all():
    """Every sheet below has this name's numbers: drawing them takes longer than drawing a page."""
    example = example_from_name(NAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worksheet, "example_from_name", lambda name: example)
        yield


@pytest.fixture(scope="module")
def pages():
    return worksheet_pages(NAME)


@pytest.fixture
def drawn(monkeypatch, pages):
    """The pages are drawn once for all tests that look at the files only."""
    monkeypatch.setattr(worksheet, "worksheet_pages", lambda name, **choices: pages)


@pytest.fixture
def short_sheet(monkeypatch, pages):
    """The same with the last two pages, where two will do."""
    monkeypatch.setattr(worksheet, "worksheet_pages", lambda name, **choices: pages[-2:])


@pytest.fixture(scope="module")
def trace():
    return worked_example(example_from_name(NAME), decimals=3)


@pytest.fixture(scope="module", params=["a4", pytest.param("letter", marks=pytest.mark.slow)])
def paper(request):
    return request.param


@pytest.fixture(scope="module")
def blank(paper):
    return worksheet_pages(NAME, paper=paper)


@pytest.fixture(scope="module")
def key(paper):
    return worksheet_pages(NAME, key=True, paper=paper)


def arrays(example):
    return dict(leaves((example.embedding, example.block, example.target)))


def same(one, other):
    one, other = arrays(one), arrays(other)
    return all(np.array_equal(one[path], other[path]) for path in one)


# --- whose numbers --------------------------------------------------------------------------------


def test_a_name_has_its_numbers_for_ever():
    """Sheets and keys printed on other days and machines belong together."""
    example = example_from_name("Ada")
    printed = {
        "-0.5 1 0 1 | 0 -1 0 0 | 0 1 -0.5 -0.5 | -0.5 0.5 0.5 -0.5": example.embedding.E,
        "0 0 1 1 0 .5 | .5 -.5 0 1 0 -0.5 | 0 0 1 -0.5 0 0 | 0.5 -0.5 0 -0.5 -0.5 0.5": example.block.ffn.W_1,
        "-1 0 0 0 | 0 -2 1 2 | -2 -3 1 2": example.target,
    }
    for numbers, array in printed.items():
        assert [[float(number) for number in row.split()] for row in numbers.split("|")] == array.tolist()


SPELLINGS = ["zoë ek", " Zoë  Ek\n", "ZOË EK", unicodedata.normalize("NFD", "Zoë Ek")]


def test_spellings_of_one_name_give_one_sheet(monkeypatch):
    seen = []
    monkeypatch.setattr(worksheet, "_numbers", lambda letters: seen.append(letters) or REAL_NUMBERS("x"))
    for name in ("Groß", "GROSS", "ΣΊΣΥΦΟΣ", "Σίσυφος", "Zoë Ek", *SPELLINGS):  # folded in every script
        example_from_name(name)
    assert seen[0] == seen[1] and seen[2] == seen[3] and seen[0] != seen[2]
    assert len({*seen[4:]}) == 1


def test_other_names_give_other_sheets():
    sheets = [example_from_name(name) for name in ("Bo", "Noor")]
    for i, one in enumerate(sheets):
        assert not any(same(one, other) for other in sheets[:i])


@pytest.mark.parametrize("name", ["Ada", "李"])
def test_every_name_gets_numbers_for_a_pencil(name):
    example = example_from_name(name)
    assert is_lively(example)
    for path, array in arrays(example).items():
        np.testing.assert_array_equal(2 * array, np.rint(2 * array), err_msg=path)
        assert not np.signbit(array[array == 0]).any(), f"{path} prints as -0"
        if array.ndim == 2 and not path.startswith("2"):
            assert array.any(axis=0).all() and array.any(axis=1).all(), f"{path} has an empty row or column"
    assert max(drift(worked_example(example, decimals=3)).values()) <= 0.05
    y = worked_example(example).named["y"].value
    assert abs(example.target - y).max() <= 1.5


def test_a_draw_without_numbers_is_passed_over_in_silence():
    """In one of this name's draws all exponentials of a row round to 0; a warning would fail the test."""
    example = example_from_name("Zoë Ott")
    assert all(np.isfinite(step.value).all() for step in worked_example(example, decimals=3).steps)


def test_an_undecodable_name_still_has_numbers():
    assert is_lively(example_from_name("\udcff"))


DULL = {  # each breaks one rule and no other: the class example with one matrix drawn by these letters
    "a unit is near its kink": ("ffn.W_1", "0"),
    "a token switches no unit on": ("ffn.W_1", "19"),
    "a token switches all units on": ("ffn.W_1", "142"),
    "a head overlooks a token": ("attention.W_Q", "401"),
    "a head looks everywhere alike": ("attention.W_Q", "34"),
    "the first norm divides by little": ("attention.W_V", "21"),
    "the second norm divides by little": ("ffn.W_1", "41"),
    "a number is large": ("attention.W_O", "8"),
    "a gradient is small": ("ffn.W_1", "4"),
    "rounding leads far": ("attention.W_V", "100"),
    "the step of training makes the loss larger": ("attention.W_O", "100"),
}


@pytest.mark.parametrize("rule", DULL)
def test_dull_examples_are_passed_over(rule):
    path, letters = DULL[rule]
    example = dog_bites_man()
    paths = iter([name for name, _ in leaves(example.block)])

    def redraw(array):
        return worksheet._draw_array(worksheet._numbers(letters), array) if next(paths) == path else array

    assert is_lively(example)
    assert not is_lively(example._replace(block=tree_map(redraw, example.block)))


@pytest.mark.parametrize("name", ["", "  ", "\n"])
def test_an_empty_name_is_refused(name):
    with pytest.raises(ValueError, match="example_from_name: the name is empty"):
        example_from_name(name)


def test_a_name_that_is_no_string_is_refused():
    with pytest.raises(TypeError, match="example_from_name: name is int; expected a string"):
        example_from_name(7)


# --- what stands on the paper ---------------------------------------------------------------------


def texts(figures):
    return [text for figure in figures for text in figure.axes[0].texts]


def boxes(figures, colour):
    patches = [patch for figure in figures for patch in figure.axes[0].patches]
    return [p for p in patches if isinstance(p, Rectangle) and np.allclose(p.get_facecolor()[:3], colour)]


def numbers(figures):
    """Every number in a box: they alone are centred and made of digits."""
    centred = [text.get_text() for text in texts(figures) if text.get_ha() == "center"]
    return Counter(text for text in centred if re.fullmatch(r"−?\d+(\.\d+)?", text))


def printed(steps):
    shown = [f"{v:g}" if s.equation == GIVEN else f"{v:.3f}" for s in steps for v in s.value.flat]
    return Counter(text.replace("-", "−") for text in shown)


def sheet(trace):
    """The steps on paper: of the second pass there is y as it comes out, given, and the loss to find."""
    steps = [step for step in trace.steps if not step.section.startswith("Second pass")]
    y = trace.named["new_y"]._replace(name="y′", equation=GIVEN)
    return [*steps, y, trace.named["new_loss"]]


def test_the_blank_sheet_shows_what_is_given_and_nothing_else(blank, trace):
    assert numbers(blank) == printed([step for step in sheet(trace) if step.equation == GIVEN])


def test_the_key_shows_every_number_as_the_pencil_has_it(key, trace):
    assert numbers(key) == printed(sheet(trace))


def test_every_number_to_find_has_a_box_to_write_in(blank, trace):
    to_find = boxes(blank, (1, 1, 1))
    assert len(to_find) == sum(step.value.size for step in sheet(trace) if step.equation != GIVEN)
    assert min(box.get_width() for box in to_find) >= 12 and min(box.get_height() for box in to_find) >= 7


def test_every_equation_stands_above_its_table(blank, trace):
    written = Counter(text.get_text() for text in texts(blank))
    wanted = Counter(step.equation for step in sheet(trace) if step.equation != GIVEN)
    assert wanted <= written
    for step in sheet(trace):
        assert any(text.startswith(step.name) for text in written)


@pytest.mark.parametrize("kind", ["blank", "key"])
def test_heading_and_foot(kind, paper, request):
    figures = request.getfixturevalue(kind)
    written = [text.get_text() for text in texts(figures)]
    assert written.count(NAME) == len(figures) + 1
    for i in range(1, len(figures) + 1):
        assert sum(text.endswith(f"page {i} of {len(figures)}") for text in written) == 1
    marks = sum("the teacher's key" in text for text in written)
    assert marks == (len(figures) + 1 if kind == "key" else 0)


def test_the_way_back_begins_on_a_page_of_its_own(blank):
    sections = [[t.get_text() for t in figure.axes[0].texts if t.get_weight() == "bold"] for figure in blank]
    [page] = [i for i, titles in enumerate(sections) if "Loss" in titles]
    assert sections[page][0] == "Loss"
    assert not any(title.startswith("Back") for titles in sections[:page] for title in titles)
    assert all(title.startswith(("Back", "Loss")) for titles in sections[page:-1] for title in titles)
    assert sections[-1] == ["One step of training"]


def test_the_step_of_training_by_pencil(trace):
    """Decimals of three places on paper: W − 0.01 dW, and half the sum of squares, as the key has them."""
    value = {step.name: step.value for step in sheet(trace)}

    def paper(array):
        return [Decimal(f"{number:.3f}") for number in array.ravel()]

    for name in (
        name.removeprefix("new_") for name in value if name.startswith("new_") and name != "new_loss"
    ):
        by_pencil = [
            w - Decimal("0.01") * d
            for w, d in zip(paper(value[name]), paper(value[f"d_{name}"]), strict=True)
        ]
        rounded = [number.quantize(Decimal("0.001"), ROUND_HALF_UP) for number in by_pencil]
        assert rounded == paper(value[f"new_{name}"]), name
    squares = [(a - b) ** 2 for a, b in zip(paper(value["y′"]), paper(value["target"]), strict=True)]
    assert (sum(squares) / 2).quantize(Decimal("0.001"), ROUND_HALF_UP) == paper(value["new_loss"])[0]
    assert value["new_loss"] < value["loss"]


def test_on_endless_paper_only_the_way_back_and_the_training_turn_the_page(monkeypatch, trace):
    monkeypatch.setitem(worksheet.PAPERS, "a4", (210.0, 3000.0))
    forward, back, training = worksheet._layout(worksheet._sheet(trace, None), "a4")
    assert forward[0].heading == "Words and positions"
    assert back[0].heading == "Loss"
    assert training[0].heading == "One step of training"
    placed = [table.step.name for line in [*forward, *back, *training] for table in line.row]
    assert sorted(placed) == sorted(step.name for step in sheet(trace))


@pytest.mark.parametrize(("given", "used"), [("attention.W_Q", "attention.Q"), ("ffn.W_1", "ffn.z")])
def test_given_arrays_stand_on_the_page_that_uses_them(blank, given, used):
    pages = [[text.get_text().split(" · ")[0] for text in figure.axes[0].texts] for figure in blank]
    assert [given in captions for captions in pages] == [used in captions for captions in pages]
    assert sum(given in captions for captions in pages) == 1


def extents(figure):
    """The outlines in mm, from the left and the bottom, of every text and box of a page."""
    canvas = FigureCanvasAgg(figure)
    figure.set_dpi(72)
    renderer = canvas.get_renderer()
    artists = [*figure.axes[0].texts, *figure.axes[0].patches]
    return [(artist, np.array(artist.get_window_extent(renderer).get_points()) / MM) for artist in artists]


def overlapping(some, others):
    """The pairs (i, j) of outlines (n, 2, 2) of which some[i] lies partly in others[j]."""
    low = np.maximum(some[:, None, 0], others[None, :, 0])
    high = np.minimum(some[:, None, 1], others[None, :, 1])
    return np.argwhere((high > low).all(axis=-1))


def collisions(figures):
    """A page each: the words that meet, those that cross a box, and what comes near the edge."""
    for figure in figures:
        edge = figure.get_size_inches() * 25.4 - 5
        words = [(a.get_text(), box) for a, box in extents(figure) if not isinstance(a, Rectangle)]
        names, lines = [name for name, _ in words], np.array([box for _, box in words])
        squares = np.array([box for a, box in extents(figure) if isinstance(a, Rectangle)])
        meet = [(names[i], names[j]) for i, j in overlapping(lines, lines) if i < j]
        inside = [
            ((squares[j, 0] <= lines[i, 0]) & (lines[i, 1] <= squares[j, 1])).all()
            for i, j in overlapping(lines, squares)
        ]
        out = [box for box in (*lines, *squares) if (box < 5).any() or (box > edge).any()]
        yield [*meet, *[False for whole in inside if not whole], *out]


@pytest.mark.parametrize("kind", ["blank", "key"])
def test_nothing_overlaps_and_nothing_leaves_the_page(kind, paper, request):
    figures = request.getfixturevalue(kind)
    assert all(tuple(f.get_size_inches() * 25.4) == pytest.approx(PAPERS[paper]) for f in figures)
    assert max(collisions(figures), key=len) == []


@pytest.mark.slow
def test_a_name_without_a_font_gets_a_line_to_write_on(pages):
    nameless = "\U0010fffd"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures = worksheet_pages(nameless)
        FigureCanvasAgg(figures[0]).draw()
    assert nameless not in [text.get_text() for text in texts(figures)]
    for i, (figure, other) in enumerate(zip(figures, pages, strict=True)):
        assert len(figure.axes[0].lines) == len(other.axes[0].lines) + (2 if i == 0 else 1)


def test_names_are_neither_mathematics_nor_endless():
    figures = worksheet_pages("$x$ " + "Wolfeschlegelsteinhausen " * 4)
    written = [text for text in texts(figures) if "$x$" in text.get_text()]
    assert len(written) == len(figures) + 1
    assert all(not text.get_parse_math() and len(text.get_text()) <= 32 for text in written)


def test_another_paper_is_refused():
    with pytest.raises(ValueError, match="worksheet_pages: paper is 'a5'; expected one of 'a4', 'letter'"):
        worksheet_pages(NAME, paper="a5")


# --- the short sheets -----------------------------------------------------------------------------

SECONDS = {"*": 8, "/": 8, "square": 8, "+": 4, "-": 4, "max": 2, "relu": 1, "gate": 1}  # else 6: a key
TO_A_TABLE, TO_A_BOX, TO_ADD = 10, 5, 4  # read its equation; write a number; add it to the sum


def work(recipe, cells):
    """The seconds that a recipe takes with a calculator at hand, and its number: ·0, ·1 and +0 are free."""
    if isinstance(recipe, int):
        return 0, cells[recipe]
    if recipe[0] == "number":
        return 0, recipe[1]
    parts, numbers = zip(*(work(part, cells) for part in recipe[1:]), strict=True)
    operation, free = recipe[0], {"*": (0, 1, -1), "/": (1, -1), "+": (0,), "-": (0,)}
    factors = numbers[1:] if operation in "/-" else numbers
    paid = sum(number not in free.get(operation, ()) for number in factors)
    times = {"+": max(0, paid - 1), "*": paid == len(numbers)}.get(operation, paid > 0)
    return sum(parts) + SECONDS.get(operation, 6) * times, float(OPERATIONS[operation](*numbers))


@pytest.mark.parametrize("name", ["Ada", "Noor"])
def test_a_short_sheet_takes_the_minutes_that_stand_on_it(name):
    trace = worked_example(example_from_name(name), decimals=3)
    cells = np.concatenate([step.value.ravel() for step in trace.steps])
    for minutes in worksheet.MINUTES:
        sheet, seconds = worksheet._sheet(trace, minutes), 0
        for step in sheet.steps:
            asked = sheet.to_find[step.name].ravel()
            found = [work(recipe, cells)[0] for recipe in itertools.compress(step.recipes, asked)]
            seconds += sum(found) + (TO_A_BOX + TO_ADD) * len(found) + TO_A_TABLE * bool(found)
        assert 0.75 * minutes < seconds / 60 < minutes


@pytest.mark.parametrize("minutes", [15, *(pytest.param(n, marks=pytest.mark.slow) for n in (30, 45))])
def test_a_short_sheet_asks_one_row_a_table_and_says_its_sum(trace, minutes):
    blank, key = (worksheet_pages(NAME, minutes=minutes, key=key) for key in (False, True))
    hidden = numbers(key) - numbers(blank)
    assert hidden.total() == len(boxes(blank, (1, 1, 1))) == len(boxes(key, (1, 1, 1)))
    assert not numbers(blank) - numbers(key) and max(collisions(key), key=len) == []
    steps = worksheet._sheet(trace, minutes)
    for step in steps.steps:
        places = np.argwhere(steps.to_find[step.name])
        assert len({tuple(place[:-1]) for place in places}) <= 1
        if len(places) > 1:
            total = sum(Decimal(f"{step.matrices[tuple(place)]:.3f}") for place in places)
            assert f"Σ {total:z}".replace("-", "−") in worksheet._caption(step)
    last = "a" if minutes == 15 else "loss" if minutes == 30 else "new_loss"
    assert steps.steps[-1].name == last


def test_other_minutes_are_refused():
    with pytest.raises(ValueError, match="worksheet_pages: minutes is 20; expected 15, 30, 45 or None"):
        worksheet_pages(NAME, minutes=20)


def test_rows_of_gradients_are_counted(blank):
    written = Counter(text.get_text() for text in texts(blank))
    assert written["row 6"] == 1  # dW_2
    assert written["row 4"] == 5  # of each row of tables the first: dW_V stands beside dW_K


# --- the files ------------------------------------------------------------------------------------


def test_a_pdf_has_all_pages(tmp_path, pages, drawn):
    [file] = save_worksheet(NAME, tmp_path / "sheet.pdf")
    content = file.read_bytes()
    assert content.startswith(b"%PDF-") and len(re.findall(rb"/Type /Page\b", content)) == len(pages)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("kind", [pytest.param("pdf", marks=pytest.mark.slow), "svg", "html"])
def test_a_file_is_the_same_each_time(tmp_path, short_sheet, kind):
    first, second = (save_worksheet(NAME, tmp_path / f"{name}.{kind}") for name in ("first", "second"))
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_an_svg_file_holds_one_page(tmp_path, short_sheet):
    files = save_worksheet(NAME, tmp_path / "sheet.SVG")
    assert [file.name for file in files] == ["sheet-1.SVG", "sheet-2.SVG"]
    assert sorted(tmp_path.iterdir()) == files
    for file in files:
        root = ET.parse(file).getroot()
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        size = [float(number) / MM for number in root.attrib["viewBox"].split()[2:]]
        assert size == pytest.approx(PAPERS["a4"], abs=0.01)


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.references = Counter(), [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags[tag] += 1
        self.ids += [attributes["id"]] if "id" in attributes else []
        for value in attributes.values():
            self.references |= set(re.findall(r"^#(.+)$|url\(#(.+?)\)", value or ""))


def test_html_holds_every_page_and_nothing_from_elsewhere(tmp_path, pages, drawn):
    [file] = save_worksheet(NAME, tmp_path / "sheet.html")
    text = file.read_text(encoding="utf-8")
    page = Page(text)
    assert page.tags["svg"] == len(pages) == text.count('role="img" aria-label="Worksheet, page ')
    assert page.tags["main"] == page.tags["h1"] == 1 and page.tags["h2"] == len(
        pages
    )  # to find one's way by ear
    assert len(set(page.ids)) == len(page.ids)
    assert {a or b for a, b in page.references} <= set(page.ids)
    assert not {"script", "link", "img", "iframe"} & set(page.tags)


@pytest.mark.parametrize("paper", PAPERS)
def test_html_is_printed_on_the_paper_it_was_drawn_for(tmp_path, short_sheet, paper):
    [file] = save_worksheet(NAME, tmp_path / "sheet.html", paper=paper)
    width, height = PAPERS[paper]
    text = file.read_text(encoding="utf-8")
    assert f"@page {{ size: {width}mm {height}mm; margin: 0 }}" in text
    assert f"svg {{ display: block; width: {width}mm; height: {height}mm }}" in text
    assert "section { break-after: page }" in text


@pytest.mark.parametrize("paper", PAPERS)
def test_a_file_holds_what_was_asked_for(tmp_path, monkeypatch, pages, paper):
    asked = []
    monkeypatch.setattr(
        worksheet, "worksheet_pages", lambda name, **choices: asked.append((name, choices)) or pages[-1:]
    )
    choices = {"key": True, "paper": paper, "minutes": 15}
    save_worksheet("Ida", tmp_path / "sheet.pdf", **choices)
    save_worksheet("Ida", tmp_path / "sheet.pdf")
    assert asked == [("Ida", choices), ("Ida", {"key": False, "paper": "a4", "minutes": None})]


@pytest.mark.parametrize("name", ["sheet.png", "sheet", "sheet.pdf.txt"])
def test_another_kind_of_file_is_refused(tmp_path, name):
    with pytest.raises(
        ValueError, match=rf"save_worksheet: '{name}' should end in one of \.pdf, \.svg, \.html"
    ):
        save_worksheet(NAME, tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"save_worksheet: there is no folder '.*nowhere'"):
        save_worksheet(NAME, tmp_path / "nowhere" / "sheet.pdf")


def test_a_full_disk_leaves_the_old_files_and_no_parts(tmp_path, monkeypatch, short_sheet):
    old = tmp_path / "sheet-1.svg"
    old.write_text("old")
    write, written = Path.write_bytes, []

    def full(path, content):
        if len(written) == 1:
            raise OSError(28, "No space left on device")
        written.append(path)
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        OSError, match=r"save_worksheet: '.*sheet\.svg' cannot be written: No space left on device"
    ):
        save_worksheet(NAME, tmp_path / "sheet.svg")
    assert len(written) == 1 and list(tmp_path.iterdir()) == [old] and old.read_text() == "old"


def test_a_folder_in_the_place_of_the_file_is_refused(tmp_path, short_sheet):
    (tmp_path / "sheet.pdf").mkdir()
    with pytest.raises(OSError, match=r"save_worksheet: .* cannot be written"):
        save_worksheet(NAME, tmp_path / "sheet.pdf")
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.pdf"]
