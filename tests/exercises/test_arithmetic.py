"""Test how typed answers are read: numbers, calculations, lists and words. Ambiguous text is rejected."""

import math
import time

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from npformer.exercises.answer_parsing import (
    read_letter,
    read_number,
    read_numbers,
    read_truth,
    word,
)
from npformer.exercises.arithmetic import read_arithmetic

PI = math.pi
E = math.e

TYPED = {
    # plain numbers
    "0.5": 0.5,
    " .5 ": 0.5,
    "64.": 64,
    "+3": 3,
    "-0,666": -0.666,
    "−0.666": -0.666,
    "1.5e3": 1500,
    "1,5e3": 1500,
    "5E-2": 0.05,
    "1 000": 1000,
    " 12 000 ": 12000,
    "−12 000": -12000,
    "+12 000": 12000,
    "1\u202f234\u00a0567": 1234567,
    "1'234'567": 1234567,
    "2,099,712": 2099712,
    "-1,234,567": -1234567,
    "6,144": 6.144,
    "50%": 0.5,
    "12,5 %": 0.125,
    "50 %%": 0.005,
    "-1/3": -1 / 3,
    "1 / 2": 0.5,
    "1,5/2": 0.75,
    "0,5/2,5": 0.2,
    "1/2 %": 0.005,
    # signs and order of operations
    "7*5": 35,
    "7x5": 35,
    "7 X 5": 35,
    "7 × 5": 35,
    "7·5": 35,
    "7⋅5": 35,
    "7∙5": 35,
    "7∗5": 35,
    "7 ÷ 5": 1.4,
    "7∕5": 1.4,
    "7⁄5": 1.4,
    "10*10": 100,
    "1 + 2*3": 7,
    "(1+2)*3": 9,
    "[1+2]*3": 9,
    "{1+2}*3": 9,
    "8 - 4 - 2": 2,
    "8 − 3": 5,
    "8/4/2": 1,
    "6/2*3": 9,
    "2*-3": -6,
    "2*+3": 6,
    "-(1+2)": -3,
    "+(1+2)": 3,
    ".5*2": 1,
    "5.*2": 10,
    "1.5e3*2": 3000,
    "1.5E+3*2": 3000,
    ".5e-1*2": 0.1,
    ".5e+1*2": 10,
    ".5E1*2": 10,
    ".25e10*2": 5e9,
    "5e-2*2": 0.1,
    "1e12*2": 2e12,
    # powers and factorials
    "10^2": 100,
    "10**2": 100,
    "10²": 100,
    "10⁻³": 0.001,
    "2⁺¹⁰": 1024,
    "1.5×10^3": 1500,
    "4·10³": 4000,
    "-2^2": -4,
    "2^-1": 0.5,
    "2^3^2": 512,
    "2^3*4": 32,
    "2^3!": 64,
    "(2^3)!/8!": 1,
    "2^3²": 512,
    "2^(1+2)": 8,
    "2^(1)(3)": 6,
    "2^-(1)": 0.5,
    "0^0": 1,
    "10^{-3}": 0.001,
    "e^2": E**2,
    "e^-1/2": 1 / E / 2,
    "2^10 - 1": 1023,
    "4!": 24,
    "0!": 1,
    "-3!": -6,
    "2*3!": 12,
    "3!^2": 36,
    "170!/169!": 170,
    "(1+2)!": 6,
    "1e308": 1e308,
    # roots and other functions
    "√256": 16,
    "√(2+2)": 2,
    "√{16}": 4,
    "√0,25": 0.5,
    "√½": math.sqrt(0.5),
    "√2/2": math.sqrt(2) / 2,
    "√4*3": 6,
    "√4 + 1": 3,
    "1/√2": 1 / math.sqrt(2),
    "2√3": 2 * math.sqrt(3),
    "√(4)(3)": 6,
    "sqrt(256)": 16,
    "sqrt 256": 16,
    "sqrt256": 16,
    "Sqrt(2)": math.sqrt(2),
    "math.sqrt(2)": math.sqrt(2),
    "np.cos(2.3)": math.cos(2.3),
    "numpy.sin(2.3)": math.sin(2.3),
    "cos(2.3)": math.cos(2.3),
    "cos(2,3)": math.cos(2.3),
    "sin 2.3": math.sin(2.3),
    "sin -2.3": math.sin(-2.3),
    "sin +2.3": math.sin(2.3),
    "sin 2 + 1": math.sin(2) + 1,
    "2 sin 3": 2 * math.sin(3),
    "cos π": -1,
    "tan(1)": math.tan(1),
    "exp(-1)": 1 / E,
    "ln 1000": math.log(1000),
    "ln(1000)": math.log(1000),
    "ln(0,5)": math.log(0.5),
    "ln2": math.log(2),
    "log(1000)": math.log(1000),
    "log 10": math.log(10),
    "Log(2)": math.log(2),
    "log2(8)": 3,
    "log2 8": 3,
    "Log2(8)": 3,
    "np.log10(100)": 2,
    "log_2(8)": 3,
    "log_{10} 100": 2,
    "log_{2}(8)": 3,
    "Log_{2}(8)": 3,
    "abs(-3)": 3,
    "1/(1+exp(-2))": 1 / (1 + math.exp(-2)),
    "ln(2)/ln(10)": math.log(2) / math.log(10),
    "cos(1)^2": math.cos(1) ** 2,
    "2^cos(0)*3": 6,
    # constants, and products without a multiplication sign
    "π": PI,
    "2π": 2 * PI,
    "2 pi": 2 * PI,
    "2Pi": 2 * PI,
    "2*np.pi": 2 * PI,
    "2π/3": 2 * PI / 3,
    "6/2*3π": 9 * PI,
    "½π": PI / 2,
    "2 e": 2 * E,
    "(2)e": 2 * E,
    "e": E,
    "3(4)": 12,
    "(1+2)(3+4)": 21,
    "2π^2": 2 * PI**2,
    "2²π": 4 * PI,
    "2^{2}π": 4 * PI,
    "4!π": 24 * PI,
    # fractions that are a single character
    "½": 0.5,
    "-¾": -0.75,
    "1½": 1.5,
    "1 ½": 1.5,
    "1½ + ½": 2,
    "2^½": math.sqrt(2),
    # LaTeX
    r"\frac{1}{2}": 0.5,
    r"$\frac{1}{2}$": 0.5,
    r"$$ \frac{1}{2} $$": 0.5,
    r"-\dfrac{1+2}{4}": -0.75,
    r"\tfrac{1}{2}\pi": PI / 2,
    r"\frac{1}{2}(3+4)": 3.5,
    r"\sqrt{256}": 16,
    r"\frac{\sqrt{2}}{2}": math.sqrt(2) / 2,
    r"2\cdot 3": 6,
    r"2 \times 3": 6,
    r"6 \div 3": 2,
    r"2\,\pi": 2 * PI,
    r"\ln(10)": math.log(10),
    r"\log_2 8": 3,
    r"\left(1+2\right)\cdot 3": 9,
    r"e^{-1/2}": E**-0.5,
    r"50\%": 0.5,
    "$64$": 64,
    " $8^2$ ": 64,
    r"64\,nats": 64,
    r"\sqrt 2/2": math.sqrt(2) / 2,
    # names, equals signs and equations
    "= 0.5": 0.5,
    "~0.5": 0.5,
    "≈ 0.5": 0.5,
    "≃ 0.5": 0.5,
    "x ≃ 0.5": 0.5,
    "$ x = 2 $": 2,
    r"\approx 0.5": 0.5,
    "x = 0.5": 0.5,
    "x ≈ 0,5": 0.5,
    "d_k = 64": 64,
    r"\alpha=2": 2,
    r"x \approx 0.5": 0.5,
    "W_{12} = 3": 3,
    "x2 = 7*5": 35,
    "7*5 = 35": 35,
    "x = 1/3 = 0.333": 0.333,
    "cos(2.3) ≈ -0.67": -0.67,
    "sin(π) = 0": 0,
    "100 = 99.5": 99.5,
    "1/2 = 50%": 0.5,
    # units, other words and percentages
    "64 numbers": 64,
    "64 Numbers": 64,
    "6.908 nats": 6.908,
    "6,908 nats": 6.908,
    "3 tokens": 3,
    "64 numbers in total": 64,
    "3 of them": 3,
    "3 centers": 3,
    "3 pictures": 3,
    "3 terms": 3,
    "3 bills": 3,
    "3 mills": 3,
    "7*5 cells": 35,
    "2π radians": 2 * PI,
    "2/3 of the tokens": 2 / 3,
    "50 percent": 0.5,
    "50 per cent": 0.5,
    "10^2 %": 1,
    "64 numbers per token": 64,
    # thousands in a calculation
    "2,099,712 * 2": 4199424,
    "1,234.5": 1234.5,
    "1,234.5 * 2": 2469,
    "1,234.56": 1234.56,
    "1234,567*2": 2469.134,
    "0,125*8": 1,
    "0,5*2": 1,
    "1,5*2,5": 3.75,
}  # fmt: skip

UNREAD = """
1/0 | 1/ | x% | 1 23 | 2 3 | 6 KB | 1,23,456 | ,234,567 | 1234,567,890 | half | three | x | X | E | %
many | 1,234,56 | 1,234,5678 | 1.2.3 | 1.234,5 | 1,2.3 | 1,2345.6 | 01,234.5 | 0.5 0.5 | 3–5 | 5:2 | $5
$5$5$ | 1|2 | 0.5? | "1/2" | 2 3 * 4 | ½½ | 7x | 7* | *7 | 7**  | 7^ | ^7 | --3 | +-3 | 2*--3 | 2***3
7//5 | 15,500*2 | () | (1 | 1) | (1] | [1) | {1) | 2( | 1/2π | 1/2(3) | 1/2 √3 | 2*1/2π | 2^3π | 2^3(4) | 2^πe
2^cos 1π | π(2) | π2 | (2)3 | 2e | 2e^3 | 2e+ | 1e | 1.5½ | π½ | e1 | sin π/2 | sin 2*3 | sin 2^2
sin 2² | sin 3! | sin 2π | sin 2(3) | ln 2/ln 10 | √2π | √2(3) | √2^2 | √2² | √4! | √1½ | √-4 | √ | sin
sin cos 1 | sin(1 | sin() | cos(1;2) | sin[1] | sin²(1) | cos^2(1) | log28 | log100 | log210 | log2
log(8,2) | np.log(8,2) | log(8, 2) | \\sqrt[3]{8} | \\frac12 | \\frac{1}2 | \\frac(1)(2) | \\frac{1}{0}
\\frac{1} | 1\\frac{1}{2} | \\foo | \\foo{2} | 3 \\foo | np.pip | os.sin(1) | f(2) | foo 2 | SIN(1) | PI
5!! | 2.5! | (-1)! | 171! | -1! ! | (-8)^(1/3) | 0^-1 | ln 0 | ln(-1) | 9^9^9^9 | 10000000! | 1e308*10
1/(1e308*10) | (1e308)/0.1 | 1e308 + 1e308 | 2*1e999 | 1e999 nats | exp(1000) | \\frac{1e308}{0.1}
10,000^2 | 10,000/2,5 | 2 * 6,908 | 6,144 * 2 | 1 000 * 2 | 1,000,00 nats | 6 kB | 6 KiB | 6 k | 6 M
20 ms | 6 thousand | 6 thousands | 2 dozen | 3 million | 3 Billion | 5 kilobytes | 3 halves | 1 half
3 hundred | 3 squared | 3 times four | 3 plus one | 3 percentages of % | 12 FLOPs | 3 tokens!
3 tokens 4 | 3tokens | 3 tokens + 1 | 3xpi | 3 not | 3 mib | 5 per token cent | 5 percent tokens
50% tokens | 1 + 50% | 50% + 1 | 50 % * 2 | 2 + 3 percent | forty | 3 forty | 3 sixteen | 7*5 = 36
7*5 = | = | x = | 7x = 35 | 1/3 = 0.3 | 3 = y | == 2 | 2 ~ 2 | x = y | 0.001 = 0.002 | 1 = 2 = 2 | 3 sin
3 cos tokens | 3 np.foo | sin 1 2 | sin x | 3 ab | 50 per cent 3 | 2^sin 1*3 | 100 = 98.5
"""  # the texts are separated by " | " or by newlines

HUGE = {
    "nines": "9^" * 90 + "9",
    "brackets": "(" * 10000 + "1+1" + ")" * 10000,
    "unclosed brackets": "(" * 10000,
    "roots": "√" * 199 + "4",
    "minus signs": "-" * 150 + "1",
    "exponents": "2^(" * 30 + "1" + ")" * 30,
    "factorial": "10000000!",
    "long factorial": "9" * 150 + "!",
    "percent signs": "%" * 10000,
    "digits": "1 " * 5000,
    "words": "3" + " ab" * 5000,
    "names": "a" * 10000,
    "equations": "1=" * 5000,
}


@pytest.mark.parametrize("text", TYPED)
def test_read_number_reads_what_students_type(text):
    assert read_number(text) == pytest.approx(TYPED[text], rel=1e-14, abs=1e-15)


@pytest.mark.parametrize("text", TYPED)
def test_read_numbers_reads_the_same_single_number(text):
    number = read_numbers(f" {text}. ", ())
    assert number is not None and number.shape == ()
    assert number == pytest.approx(TYPED[text], rel=1e-14, abs=1e-15)


def split_unread():
    """Return the texts in UNREAD."""
    lines = UNREAD.strip().replace("\n", " | ")
    return [text for text in lines.split(" | ") if text.strip()]


@pytest.mark.parametrize("text", ["", " ", *split_unread()])
def test_read_number_rejects_ambiguous_text_and_nonsense(text):
    assert read_number(text) is None


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
def test_read_number_rejects_huge_text_quickly(text):
    start = time.process_time()
    assert read_number(text) is None
    assert read_numbers(text, ()) is None
    assert time.process_time() - start < 30, "CPU seconds; usually less than 0.1"


WHOLE = {
    "6,144": 6144,
    "6,144 bytes": 6144,
    "6,144 * 2": 12288,
    "x = 2 * 16,000": 32000,
    "0,125 * 8": 1,
    "1,5 * 2": 3,
    "6,144%": 0.06144,
    "1,234,567": 1234567,
    "001,234,567": 1234567,
    "√256": 16,
}


@pytest.mark.parametrize("text", WHOLE)
def test_read_number_whole_separates_thousands(text):
    assert read_number(text, whole=True) == pytest.approx(WHOLE[text], rel=1e-14)
    assert read_numbers(text, (), whole=True) == pytest.approx(WHOLE[text], rel=1e-14)


@pytest.mark.parametrize(("length", "expected"), [(200, 2), (201, None)])
def test_read_arithmetic_limits_the_length(length, expected):
    assert read_arithmetic("1+1".rjust(length)) == expected


@pytest.mark.parametrize("opening", ["(", "-(", "1^(", "cos(0)^("])
def test_read_arithmetic_limits_the_nesting(opening):
    openings = opening.count("(") - opening.count(")") + opening.count("^")  # an exponent is one level
    deepest = 19 // openings
    assert read_arithmetic(opening * deepest + "1" + ")" * deepest) is not None
    deepest += 1
    assert read_arithmetic(opening * deepest + "1" + ")" * deepest) is None


CHANGING_WORDS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
    sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred
    thousand million billion trillion dozen double triple twice thrice once half halves third quarter
    fourth fifth sixth seventh eighth ninth tenth twentieth hundredth thousandth couple pair gross pct
    permille mil mille mio mrd tausend hundert prozent kib mib gib tib kilobyte megabyte gigabyte
    terabyte petabyte kibibyte mebibyte gibibyte tebibyte centimeter millisecond microsecond nanosecond
    picosecond degree deg plus minus times over divided multiplied raised power squared cubed square
    cube root factorial modulo mod sine cosine tangent logarithm inverse reciprocal negative and not nor
    but than more less fewer least most above below under between out until cent
""".split()


@pytest.mark.parametrize("changing", CHANGING_WORDS)
def test_read_number_rejects_words_that_change_it(changing):
    for words in (changing, f"{changing}s", changing.capitalize(), f"numbers {changing}"):
        assert read_number(f"3 {words}") is None


FRACTIONS = {
    "½": 1 / 2, "⅓": 1 / 3, "⅔": 2 / 3, "¼": 1 / 4, "¾": 3 / 4,
    "⅕": 1 / 5, "⅖": 2 / 5, "⅗": 3 / 5, "⅘": 4 / 5,
    "⅙": 1 / 6, "⅚": 5 / 6, "⅛": 1 / 8, "⅜": 3 / 8, "⅝": 5 / 8, "⅞": 7 / 8,
}  # fmt: skip


@pytest.mark.parametrize("character", FRACTIONS)
def test_read_arithmetic_reads_every_fraction_character(character):
    assert read_arithmetic(character) == FRACTIONS[character]


@pytest.mark.parametrize("exponent", range(10))
def test_read_arithmetic_reads_every_superscript_digit(exponent):
    digit = "⁰¹²³⁴⁵⁶⁷⁸⁹"[exponent]
    assert read_arithmetic(f"2{digit}") == read_arithmetic(f"2⁺{digit}") == 2**exponent
    assert read_arithmetic(f"2⁻{digit}") == 2**-exponent


def test_read_arithmetic_single_comma_is_decimal():
    assert read_arithmetic("6,144 nats") == 6.144


def test_read_numbers_none_in_a_list_is_nan():
    assert np.isnan(read_numbers([None, 1.0], (2,))).tolist() == [True, False]


def test_read_arithmetic_many_groups_do_not_nest():
    assert read_arithmetic("+".join(["(1)"] * 50)) == 50


# --- lists -----------------------------------------------------------------------------------------

LISTS = {
    "0,5 0,25": [0.5, 0.25],
    "-0,5 +25%": [-0.5, 0.25],
    "−0,5 0,25": [-0.5, 0.25],
    "0,5; 0,25": [0.5, 0.25],
    "2 3": [2, 3],
    "2,3": [2, 3],
    "2, 3": [2, 3],
    "(2, 3)": [2, 3],
    "[[2, 3]]": [2, 3],
    "[2, 3].": [2, 3],
    "p = [0.125, 3/8]": [0.125, 0.375],
    "2;3;": [2, 3],
    "2 ; ; 3": [2, 3],
    "[√2, 1/2]": [math.sqrt(2), 0.5],
    "√2,1/2": [math.sqrt(2), 0.5],
    "√4 √9": [2, 3],
    "√4\n√9": [2, 3],
    "√4\t √9": [2, 3],
    "√0,25 3,5": [0.5, 3.5],
    "√4, 3,": [2, 3],
    "√4 ; ; √9": [2, 3],
    "cos(1); sin(1)": [math.cos(1), math.sin(1)],
    "cos(1), sin(1)": [math.cos(1), math.sin(1)],
    "cos(1,5), sin(2)": [math.cos(1.5), math.sin(2)],
    "cos(1,5); sin(2,5);": [math.cos(1.5), math.sin(2.5)],
    "[cos(1,5) sin(2)]": [math.cos(1.5), math.sin(2)],
    "cos 1, sin 1": [math.cos(1), math.sin(1)],
    "[cos(1), sin(1)]": [math.cos(1), math.sin(1)],
    "((1+1), (1+2))": [2, 3],
    "(1+1), (1+2)": [2, 3],
    "[1+1], [1+2]": [2, 3],
    "[[ 1+1, 1+2 ]]": [2, 3],
    "[ [1+1, 1+2] ]": [2, 3],
    "1 + 2, 3 * 4": [3, 12],
    "2 pi, 3": [2 * PI, 3],
    "10², 10³": [100, 1000],
    "3 tokens, 4 tokens": [3, 4],
    "50 percent; 1/2": [0.5, 0.5],
    r"$[\frac{1}{8}, \frac{3}{8}]$": [1 / 8, 3 / 8],
    r"\left[ \frac{1}{8}, 2 \cdot 3 \right]": [1 / 8, 6],
    r"$p = [\frac{1}{8}, \frac{3}{8}]$": [1 / 8, 3 / 8],
    "p ≈ [√4, 3]": [2, 3],
    "{1+1}, 3": [2, 3],
    "1/8, 3/8, 1/2": [1 / 8, 3 / 8, 1 / 2],
    "√4, 5 √9, 1": [2, 15, 1],
    "√4 √9 √16": [2, 3, 4],
    "√4": [2],
    "7*5": [35],
    "0,5 0,25 1": [0.5, 0.25, 1],
}


@pytest.mark.parametrize("text", LISTS)
def test_read_numbers_reads_lists(text):
    expected = LISTS[text]
    numbers = read_numbers(text, (len(expected),))
    assert numbers is not None and numbers.tolist() == pytest.approx(expected, rel=1e-14)


UNREAD_LISTS = [
    ("1,5 √4", 2),  # ambiguous: it means either 1 and 5√4, or 1.5 and √4
    ("√4 √9", 3),
    ("√4, 3", 3),
    ("√4, x", 2),
    ("1|3", 2),
    ("(√4, 3", 2),
    ("(√4, 33", 2),
    ("√4], [3", 2),
    ("[1/2, x]", 2),
    ("√4; 3", 3),
    ("√4; x", 2),
    (r"\frac{1, 2}{3}, 4", 2),
    ("7*5", 2),
    ("(" * 5000 + "√4, 3" + ")" * 5000, 2),
    ("\ud800", 2),
]


@pytest.mark.parametrize(("text", "count"), UNREAD_LISTS, ids=lambda value: ascii(value)[:20])
def test_read_numbers_rejects_ambiguous_lists(text, count):
    assert read_numbers(text, (count,)) is None


@pytest.mark.parametrize(("length", "expected"), [(1000, [2, 3]), (1001, None)])
def test_read_numbers_limits_lists_of_calculations(length, expected):
    text = "[√4, 3" + " " * (length - 7) + "]"
    numbers = read_numbers(text, (2,))
    if expected is None:
        assert numbers is None
    else:
        assert numbers.tolist() == expected


OTHER_COUNTS = {
    "0,5 0,25": [0, 5, 0, 25],
    "2 3": [2, 3],
    "2; 3": [2, 3],
    "2,5; 3": [2.5, 3],
    "2,099,712; 3": [2099712, 3],
    "1,234,567,890; 3": [1234567890, 3],
    "(2, 3)": [2, 3],
    "W = [2, 3]": [2, 3],
    "d_k  =  [2, 3]": [2, 3],
    "1/2; 3": [0.5, 3],
    "[2, 3]": [2, 3],
    "2; ;3": [2, 3],
    "1,2 3, 4,5": [1, 2, 3, 4, 5],
    "": [],
}


@pytest.mark.parametrize("text", OTHER_COUNTS)
def test_read_numbers_reads_plain_lists_of_other_lengths(text):
    numbers = read_numbers(text, (3,))
    assert numbers is not None and numbers.tolist() == OTHER_COUNTS[text]


ANSWERS = [
    (7, (), 7),
    (b"1/2", (), 0.5),
    (b"\xff", (), None),
    (True, (), None),
    (np.True_, (), None),
    ([1, 2], (2,), [1, 2]),
    (["√4", 3], (2,), [2, 3]),
    (("1/2", 3), (2,), [0.5, 3]),
    (["√4", "x"], (2,), None),
    ([None, "1"], (2,), None),
    ([[1], [2, 3]], (2,), None),
    ([10**400], (1,), None),
    ([[1, 2]], (2,), [1, 2]),
    ([[1], [2]], (2,), [1, 2]),
    ([[5]], (), 5),
    ([1, 2, 3], (2,), [1, 2, 3]),
    ([[1, 2], [3, 4]], (4,), [[1, 2], [3, 4]]),
    ([1, 2, 3, 4], (2, 2), [[1, 2], [3, 4]]),
    ([[1, 2], [3, 4]], (2, 2), [[1, 2], [3, 4]]),
    ("1 2 3 4", (2, 2), [[1, 2], [3, 4]]),
    ("[7]", (), 7),
    ("(7).", (), 7),
    ("(7", (), 7),
    ("7)", (), 7),
    ("[7", (), 7),
    ("7]", (), 7),
    ("[12 000]", (), 12000),
    ("x_1 = 7", (), 7),
    ("−7", (), -7),
    ("−7 3", (2,), [-7, 3]),
    (range(3), (3,), [0, 1, 2]),
    ({1: 2}, (1,), None),
]


@pytest.mark.parametrize(("answer", "shape", "expected"), ANSWERS, ids=lambda value: ascii(value)[:30])
def test_read_numbers_reads_python_values(answer, shape, expected):
    numbers = read_numbers(answer, shape)
    if expected is None:
        assert numbers is None
    else:
        assert numbers is not None and numbers.tolist() == expected


# --- words -----------------------------------------------------------------------------------------

WORDS = [
    (["B"], "b"),
    (("B",), "b"),
    (np.array(["B"]), "b"),
    (["a", "b"], "a', 'b"),
    (b"B", "b"),
    (b"\xff", "\ufffd"),
    (2.0, "2"),
    (2.5, "2.5"),
    ("\tB\n", "b"),
    ([2.0], "2"),
    ((b"B",), "b"),
    (np.array([[3.0]]), "3"),
    (" '(\"[B]\").,:; ' ", "b"),
    ("X", "x"),
]


@pytest.mark.parametrize(("answer", "expected"), WORDS, ids=lambda value: ascii(value)[:20])
def test_word_removes_quotes_and_brackets(answer, expected):
    assert word(answer) == expected


LETTER_ANSWERS = {
    "b": "b",
    "B)": "b",
    "2": "b",
    "2.": "b",
    "1": "a",
    "a": "a",
    "option b": "b",
    "the option is b": "b",
    "answer: 2": "b",
    "the answer b: cosine": "b",
    "cosine": "b",
    "b]": "b",
    "b) because": "b",
    "b. because": "b",
    "b: because": "b",
    "b] because": "b",
    "c": "",
    "3": "",
    "7": "",
    "0": "",
    "": "",
    "bb": "",
    "b cosine": "",
}


@pytest.mark.parametrize("answer", LETTER_ANSWERS)
def test_read_letter_reads_letters_numbers_and_words(answer):
    assert read_letter(answer, ["Sine.", "Cosine."]) == LETTER_ANSWERS[answer]


def test_read_letter_reads_up_to_six_options():
    options = ["one", "two", "three", "four", "five", "six"]
    assert [read_letter(letter, options) for letter in "abcdef"] == list("abcdef")
    assert [read_letter(number, options) for number in "123456"] == list("abcdef")
    assert read_letter("g", [*options, "seven"]) == ""


TRUTH_ANSWERS = {  # {truth value: answers that `read_truth` reads as this value}
    True: ["True", "t", "1", "yes", "YES, always", "true: so", "t; so", "1. so", True, 1, 1.0],
    False: ["false", "F", "0", "no", "No, never", False, 0, 0.0],
    None: ["", "maybe", "true so", "no idea", "x.", "2", "...", 2],
}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [(answer, expected) for expected, answers in TRUTH_ANSWERS.items() for answer in answers],
)
def test_read_truth_reads_words_and_digits(answer, expected):
    assert read_truth(answer) is expected


# --- random calculations ---------------------------------------------------------------------------

# Each calculation is a pair: the text that a student types, and the same calculation in Python.
LEAVES = [
    ("0", "0.0"), ("1", "1.0"), ("2", "2.0"), ("3", "3.0"), ("10", "10.0"), ("0,5", "0.5"), (".25", "0.25"),
    ("1e2", "100.0"), ("½", "(1 / 2)"), ("1½", "(3 / 2)"), ("π", "math.pi"), ("pi", "math.pi"),
    ("np.pi", "math.pi"), ("e", "math.e"), (r"\pi", "math.pi"), ("(√2)", "math.sqrt(2.0)"),
    ("(2π)", "(2.0 * math.pi)"), ("(4!)", "24.0"), ("2²", "(2.0 ** 2.0)"),
]  # fmt: skip
OPERATORS = [
    ("+", "+"), ("-", "-"), ("−", "-"), ("*", "*"),
    (" × ", "*"), (" x ", "*"), (" · ", "*"), (r"\cdot ", "*"),
    ("/", "/"), (" ÷ ", "/"), ("^", "**"), ("**", "**"),
]  # fmt: skip
CALLS = [
    ("(%s)", "(%s)"), ("[%s]", "(%s)"), ("{%s}", "(%s)"), (r"\left(%s\right)", "(%s)"), ("-(%s)", "-(%s)"),
    ("√(%s)", "math.sqrt(%s)"), (r"\sqrt{%s}", "math.sqrt(%s)"), ("np.sqrt( %s )", "math.sqrt(%s)"),
    ("sin(%s)", "math.sin(%s)"), ("cos(%s)", "math.cos(%s)"), ("tan(%s)", "math.tan(%s)"),
    ("exp(%s)", "math.exp(%s)"), ("ln(%s)", "math.log(%s)"), ("log2(%s)", "math.log2(%s)"),
    (r"\log_{10}(%s)", "math.log10(%s)"), ("abs(%s)", "abs(%s)"), ("(%s)²", "(%s) ** 2.0"),
]  # fmt: skip


def combine(parts):
    """Return a strategy for calculations with one more operator, function or fraction."""
    operation = st.builds(join_by_operator, parts, st.sampled_from(OPERATORS), parts)
    call = st.builds(insert_in_call, st.sampled_from(CALLS), parts)
    fraction = st.builds(make_fraction, parts, parts)
    return operation | call | fraction


def join_by_operator(left, operator, right):
    """Join two calculations by an operator."""
    text = left[0] + operator[0] + right[0]
    code = f"{left[1]} {operator[1]} {right[1]}"
    return text, code


def insert_in_call(call, argument):
    """Make a calculation the argument of a function, or put it into brackets."""
    return call[0] % argument[0], call[1] % argument[1]


def make_fraction(numerator, denominator):
    """Make a fraction of two calculations, in LaTeX and in Python."""
    text = rf"\frac{{{numerator[0]}}}{{{denominator[0]}}}"
    code = f"(({numerator[1]}) / ({denominator[1]}))"
    return text, code


def calculate(code):
    """Evaluate an expression in Python; return None for errors and for complex or infinite values."""
    try:
        value = eval(code, {"math": math})
    except (ArithmeticError, ValueError, TypeError):  # such as the cosine of a complex number
        return None
    if isinstance(value, complex) or not math.isfinite(value):
        return None
    return value


@given(st.recursive(st.sampled_from(LEAVES), combine, max_leaves=8))
@example(("-(2)^2", "-(2) ** 2"))
def test_read_arithmetic_agrees_with_python(calculation):
    text, code = calculation
    assume(len(text) <= 200)
    expected = calculate(code)
    number = read_arithmetic(text)
    if expected is None:
        assert number is None
    else:
        assert number == pytest.approx(expected, rel=1e-12, nan_ok=False), text


@given(st.text(alphabet="0123456789.,+-*/^!%()[]{}√πex ²½=~\\$sinlogfrac", max_size=20))
def test_read_number_any_text_gives_float_or_none(text):
    number = read_number(text)
    assert number is None or isinstance(number, float)
    read_numbers(text, (2,))


@given(st.lists(st.sampled_from(LEAVES), min_size=2, max_size=5))
def test_read_numbers_agrees_with_single_numbers(leaves):
    texts = [text for text, _ in leaves]
    expected = [calculate(code) for _, code in leaves]
    for separator in (";", "; "):
        numbers = read_numbers(separator.join(texts), (len(texts),))
        assert numbers is not None and numbers.tolist() == pytest.approx(expected)
