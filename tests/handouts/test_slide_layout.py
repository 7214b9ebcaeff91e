"""Test how a slide arranges its blocks."""

import base64
import re

import pytest

from npformer.handouts.slide_layout import (
    FULL_PICTURE,
    Block,
    choose_bar_size,
    choose_words_size,
    make_formulas,
    measure_formula,
    name_layout,
    read_ratio,
    split_blocks,
    wrap_code,
)
from npformer.handouts.slide_pictures import (
    LINE_WIDTH,
    PURPLE,
    TABLE_WIDTH,
    YELLOW,
    Drawing,
    align_arrays,
    draw_numbers,
    enlarge,
    mix_with_white,
    wrap_printed,
)

HEADER = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + (300).to_bytes(4) + (100).to_bytes(4)
PICTURE = f'<img src="data:image/png;base64,{base64.b64encode(HEADER).decode()}">'


def test_read_ratio_reads_the_png_header():
    assert read_ratio(PICTURE) == 3
    assert read_ratio("<img>") == FULL_PICTURE


def test_split_blocks_keeps_the_order():
    text = (
        f"So.\n\n```python\na\nb\n```\n\n{PICTURE}\n\n<iframe title='x'></iframe>\n\n"
        "<pre style=''>1</pre>\n\n```text\n12\n```\n\n$$a$$\n\nEnd."
    )
    blocks = split_blocks(text)
    kinds = ["words", "code", "picture", "player", "table", "table", "formula", "words"]
    assert [block.kind for block in blocks] == kinds
    assert blocks[1].style == "--letters: 1; --lines: 2" and blocks[2].style == "--ratio: 3.0000"
    assert blocks[5].style == "--letters: 2; --lines: 1"


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        (r"a", r"a + b"),
        (r"a", r"\hat a + \sqrt[3]{b}"),
        (r"a", r"\frac{a + b}{2}"),
        (r"a_i", r"a_{i + 1}"),
        (r"a_i^2", r"a_i^{10}"),
        (r"\sum_i a", r"\sum_i a \quad b"),
        (r"a\,b", r"\sqrt{a\,b}"),
        (r"1", r"\begin{pmatrix}1 & 2\\3 & 4\end{pmatrix}"),
    ],
)
def test_measure_formula_grows_with_the_formula(smaller, larger):
    assert measure_formula(smaller)[0] < measure_formula(larger)[0]


def test_make_formulas_splits_wide_formulas():
    wide = r"a + b + c + d + e \qquad f + g + h + i + j \qquad k + l + m + n"
    assert make_formulas([wide]).text.count("$$") == 6
    assert make_formulas([r"a \qquad b"]).text.count("$$") == 2


def test_name_layout_long_code_makes_room():
    code = Block("code", "", "--letters: 9; --lines: 9")
    assert name_layout([code], [code], has_bar=True) == "asks long"
    assert name_layout([code], [], has_bar=False) == ""
    assert name_layout([Block("picture", "")], [], has_bar=False) == "pictured"


def test_words_are_smaller_next_to_other_blocks():
    formula = Block("formula", "$$a$$")
    assert choose_words_size("Why?", [formula], has_bar=True) == 34
    assert choose_bar_size("Why?", [formula]) == 56 and choose_bar_size("Why?", []) == 80


def test_draw_numbers_bars_below_long_lines():
    drawn = draw_numbers("x" * 50 + " 2.0\n" + "x" * 50 + " 1.0", Drawing("bars"))
    assert '--letters: 54; --lines: 4"' in drawn and drawn.count("\n") == 3


def test_draw_numbers_columns_leave_other_lines_out():
    columns = Drawing("columns", row=r"a (\d)(x)?, b (\d)", head="a||b")
    assert draw_numbers("so\na 1, b 2", columns) == enlarge("a      b\n1      2")
    assert draw_numbers("so", columns) == enlarge("so")


def test_enlarge_wraps_a_long_sentence():
    assert '--lines: 2"' in enlarge("word " * 12)


def test_wrap_printed_keeps_the_rows_of_a_table():
    row = "a  " + "0.5 " * 30
    assert LINE_WIDTH < len(row) <= TABLE_WIDTH
    assert wrap_printed([row]) == [row]
    assert wrap_printed(["a  0.5", row]) == ["a  0.5", row]


@pytest.mark.parametrize("line", ["  row  " + "0.5 " * 40, "  " + "word " * 20])
def test_wrap_printed_indents_the_continuation(line):
    first, *others = wrap_printed(["a  1", "b  2", line])[2:]
    assert first.startswith("  ") and not first.startswith("   ")
    assert others and all(other.startswith("      ") and other[6] != " " for other in others)


def test_wrap_code_moves_a_comment_above_its_line():
    code, comment = "    x = f(a)", "# " + "c" * 70
    assert wrap_code([f"{code}  {comment}"]) == [f"    {comment}", code]
    assert wrap_code([f"{code}  # c"]) == [f"{code}  # c"]


def test_wrap_code_breaks_outside_brackets():
    called = "aaaaaaaaaaaaaaaa(bbbbbbbb, cccccccc, dddddddd)"
    line = f"    x = {called} if {called} else 0"
    assert wrap_code([line]) == [f"    x = {called}", f"            if {called} else 0"]
    endless = "x" * (LINE_WIDTH + 1)
    assert wrap_code([endless]) == [endless]


def test_align_arrays_aligns_the_decimal_points():
    lines = ["z [-3.  1.]", "GELU [-0.004 0.8]", "ids [1 2 3]", "[[ 0. 1.]", " [10. 2.]]", "a [x]", "b [y]"]
    aligned = align_arrays(lines)
    assert aligned == ["z    [-3.    1. ]", "GELU [-0.004 0.8]", *lines[2:]]


def test_align_arrays_aligns_the_text_between_arrays():
    assert align_arrays(["row [1.] -> [2.]", "row x 10 [10.] -> [2.]"]) == [
        "row      [ 1.] -> [2.]",
        "row x 10 [10.] -> [2.]",
    ]


def read_text_of_lines(drawn):
    return [re.sub("<[^>]*>", "", line).rstrip() for line in drawn.split("\n")]


def test_draw_numbers_names_the_columns_of_bars():
    printed = "seed   first   second\n   0     1.5      2.5\n   1     2.0      1.0"
    bars = Drawing("bars", where=r"\d\.\d")
    head, row, _ = read_text_of_lines(draw_numbers(printed, bars))
    assert head.split() == ["seed", "first", "second", "first", "second"] and row.split() == [
        "0",
        "1.5",
        "2.5",
    ]
    asked, *_ = read_text_of_lines(draw_numbers(printed, bars, hidden=True))
    assert asked.split() == head.split()


@pytest.mark.parametrize(("full", "expected"), [(0, [100.0, 60.0]), (24, [83.3, 50.0])])
def test_draw_numbers_full_sets_the_scale(full, expected):
    drawn = draw_numbers("a 20 of 24\nb 12 of 24", Drawing("bars", where=r"\d+(?= of)", full=full))
    assert [float(width) for width in re.findall(r"width: ([\d.]+)%", drawn)] == expected


def test_draw_numbers_head_names_the_numbers():
    printed = "seed 0   1.5   2.5\nseed 1   2.0   1.0"
    bars = Drawing("bars", where=r"\d\.\d", head="loss|later loss")
    head, row, _ = read_text_of_lines(draw_numbers(printed, bars))
    assert re.split("  +", head.strip()) == ["loss", "later loss", "loss", "later loss"]
    assert head.index("loss") + len("loss") == row.index("1.5") + len("1.5")


@pytest.mark.parametrize("head", ["so", "all of them, with one name"])
def test_draw_numbers_columns_without_a_name_have_none(head):
    drawn = draw_numbers(f"{head}\nseed 0   1.5   2.5", Drawing("bars", where=r"\d\.\d"))
    assert read_text_of_lines(drawn)[0] == head


@pytest.mark.parametrize(
    ("printed", "squares"),
    [
        ("a 1.5   2.5\nb 12.5  0.5", ["1.5 ", "2.5", "12.5", "0.5"]),  # one column may be wider
        ("a 1.5\nb 12.5 0.5", ["1.5", "12.5", "0.5"]),  # a different number of columns
        ("1.5\nname  2.5", ["1.5", "2.5"]),  # different places
        ("1.25 2.5\n    10.5  3.5", ["1.25", "2.5", "10.5", "3.5"]),  # the second overlaps the first
        ("1.2 34.5 6.7\n    1.25 x34.5", ["1.2", "34.5", "6.7", "1.25", "34.5"]),
        ("12.5\nx1.5", ["12.5", "1.5"]),  # a different text
        ("a 12.5\nof 1.5", ["12.5", "1.5"]),  # it would touch a different text
    ],
)
def test_draw_numbers_squares_of_column_equally_wide(printed, squares):
    drawn = draw_numbers(printed, Drawing("squares", where=r"\d+\.\d+"))
    assert re.findall(r'<b class="square"[^>]*>(.*?)</b>', drawn) == squares


def test_draw_numbers_shows_given_rows_in_questions():
    bars = Drawing("bars", where=r"\d\.\d", given="^whole")
    asked = draw_numbers("whole 1.5\nhalf  0.5", bars, hidden=True)
    whole, half = asked.split("\n")
    assert "whole 1.5" in whole and "width: 100.0%" in whole
    assert 'class="box"' in half and "width: 0.0%" in half


def test_draw_numbers_groups_have_different_colours():
    squares = Drawing("squares", where="fails|(?P<other>differs)|(?P<pale><rest>)")
    drawn = draw_numbers("a fails differs <rest>", squares)
    assert f'background: {mix_with_white(PURPLE, 1)}">fails<' in drawn
    assert f'background: {mix_with_white(YELLOW, 1)}">differs<' in drawn
    assert '<b class="pale">&lt;rest&gt;</b>' in drawn


def test_draw_numbers_puts_header_lines_closer_together():
    squares = Drawing("squares", row=r"^(\w) (\S+)", head="row|first\nsecond\nthird")
    drawn = draw_numbers("a 0.5\nb 0.25", squares)
    upper = re.findall(r'<span class="upper">(.*?)</span>', drawn)
    assert [line.strip() for line in upper] == ["first", "second"]
    below = re.sub("<[^>]*>", "", drawn.rpartition("</span>")[2]).split("\n")
    assert [line.split() for line in below] == [["row", "third"], ["a", "0.5"], ["b", "0.25"]]


def test_draw_numbers_array_has_no_brackets():
    drawn = draw_numbers("x [1. 2.5] of 2\nx[0] [3. 4. ]", Drawing("squares", where=r"2\.5"))
    assert read_text_of_lines(drawn) == ["x  1  2.5  of 2", "x[0]  3  4"]


def test_draw_numbers_leaves_out_claims():
    assert draw_numbers("it is equal: True", Drawing("columns")) == ""
