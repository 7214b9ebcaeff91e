"""Positions: sines and cosines, a pair of columns for each speed; and what a wrong table is made of."""

from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Probe, Trial, same
from npformer.exercises.see import CALLS, NUMBERS, Seen, close
from npformer.exercises.task import Code, Draw, Edit, Mistake, Place, Posed
from npformer.exercises.topics.questions import drawn
from npformer.exercises.topics.shared import instead
from npformer.positional import Layout, positional_encoding

PAPER = '"Attention Is All You Need", section 3.5'
S1_3 = Place(PAPER, "01, section 1.3, The formula")
S1_5 = Place(PAPER, "01, section 1.5, The same in one line")
S1_7 = Place(PAPER, "01, section 1.7, The whole table at once")
S1_8 = Place(PAPER, "01, section 1.8, Why 10000?")
S2_6 = Place(PAPER, "02, section 2.6, One idea, three layouts")
S2_7 = Place(PAPER, "02, section 2.7, Where float32 goes wrong")

# --- what is said -------------------------------------------------------------------------------------

EXP_COLUMN = Mistake("PE-EXP-COLUMN", S1_3,
    "Columns 0 and 1 oscillate at different speeds, and so does every later pair.",
    "This pattern appears when the column number is used where the formula wants the pair number.",
    "Which columns share one i?")
EXP_DOUBLED = Mistake("PE-EXP-DOUBLED", S1_3,
    "The two columns of each pair share a speed, and the speeds fall twice as fast along the row as the "
    "paper's.",
    "This pattern appears when i already counts by twos and is doubled once more.",
    "When the column is 4, what is i, and what is 2i?")
BASE_1E8 = Mistake("PE-BASE-1E8", S1_8,
    "The two columns of each pair share a speed, and the speeds fall twice as fast along the row as the "
    "paper's.",
    "A base of 10 to the 8 gives the same numbers.",
    "By what factor is the last pair slower than the first?")
EXP_DOUBLED_COS = Mistake("PE-EXP-DOUBLED-COS", S1_3,
    "The speeds fall too fast along the row, and each cosine is a little slower than its sine.",
    "This pattern appears when i counts by twos, is doubled again, and the cosine takes 2i + 1.",
    "Which exponent do sine and cosine of one pair share?")
COS_OWN_INDEX = Mistake("PE-COS-OWN-INDEX", S1_3, "Each cosine column is slower than the sine on its left.",
    "This pattern appears when an odd column takes its own number in the exponent.",
    "Which number stands in the exponent of column 3?")
COS_NEXT_PAIR = Mistake("PE-COS-NEXT-PAIR", S1_3,
    "Every sine column is right; each cosine column turns at the speed of the pair after its own.",
    "This pattern appears when the cosine's exponent is taken from its own even neighbour to the right, 2(i "
    "+ 1).",
    "Which exponent do the sine and the cosine of one pair share?")
EXP_NO_2 = Mistake("PE-EXP-NO-2", S1_3,
    "The two columns of each pair share a speed, but the speeds fall half as fast along the row as the "
    "paper's.",
    "This pattern appears when the exponent is i over d_model.",
    "What does the exponent of the last pair come close to?")
BASE_100 = Mistake("PE-BASE-100", S1_8,
    "The two columns of each pair share a speed, but the speeds fall half as fast along the row as the "
    "paper's.",
    "A base of 100 gives the same numbers.",
    "By what factor is the last pair slower than the first?")
BASE_1000 = Mistake("PE-BASE-1000", S1_8,
    "Layout and pairs are those of the paper; the slow columns turn faster than the paper's.",
    "This output matches a base of 1000, which some lecture notes print.",
    "Which base does the paper choose?")
BASE_100000 = Mistake("PE-BASE-100000", S1_8,
    "Layout and pairs are those of the paper; the slow columns turn more slowly than the paper's.",
    "This output matches a base of 100000.",
    "Which base does the paper choose?")
EXP_SQRT_D = Mistake("PE-EXP-SQRT-D", S1_3,
    "Pairs share a speed, but the speeds fall far too fast along the row.",
    "This output matches an exponent divided by the root of d_model.",
    "What divides 2i in the exponent?")
EXP_NO_D = Mistake("PE-EXP-NO-D", S1_3, "From the second pair on, the columns hardly move.",
    "This output matches an exponent that is not divided by d_model.",
    "How large may the exponent become at the end of a row?")
EXP_SIGN = Mistake("PE-EXP-SIGN", S1_3, "The columns turn faster and faster along the row.",
    "This pattern appears when the minus of the exponent is lost, or the position is multiplied where it "
    "should be divided.",
    "Which hand of a clock belongs to the last pair?", tolerance=5e-3)
SUM = Mistake("PE-SUM", S1_3, "Every cell holds a sine and a cosine added together: row 0 is 1 everywhere.",
    "This pattern appears when both waves are put in one cell.",
    "How many numbers describe one hand of a clock?")
SWAPPED = Mistake("PE-SWAPPED", S1_3, "Row 0 reads 1, 0, 1, 0: the even columns start at 1.",
    "This output matches cosine in the even columns and sine in the odd ones.",
    "What is sin 0, and in which columns does the paper have it?")
COS_OVERWRITES = Mistake("PE-COS-OVERWRITES", S1_5,
    "The even columns hold a cosine and the odd ones nothing.",
    "This pattern appears when both waves are written to the same columns.",
    "Which columns does each of the two assignments reach?")
SIN_ONLY = Mistake("PE-SIN-ONLY", S1_3, "Row 0 is zero everywhere: all columns are sines.",
    "This output matches sine in every column.",
    "Can one sine tell 30 degrees from 150?")
COS_OF_SIN = Mistake("PE-COS-OF-SIN", S1_5, "The odd columns never leave the numbers from 0.54 to 1.",
    "This pattern appears when the cosine is taken of a column that holds a sine already.",
    "What is in the odd columns at the moment the cosine is taken?")
ODD_EMPTY = Mistake("PE-ODD-EMPTY", S1_5, "The odd columns are zero in every row.",
    "This output matches a table in which only the sines were filled in.",
    "Where do the cosines go?")
POS_UNUSED = Mistake("PE-POS-UNUSED", S1_3, "All rows are alike.",
    "This pattern appears when the angle does not depend on the position.",
    "Where does the row number enter the angle?", unless=lambda found: bool((found != found[:1]).any()))
POS_ONE_BASED = Mistake("PE-POS-ONE-BASED", S1_3,
    "Each row stands one place too high: row 0 is what row 1 should be.",
    "This pattern appears when positions are counted from 1.",
    "Which position has the first word?")
DEGREES = Mistake("PE-DEGREES", S1_3, "Every column turns very slowly, the first one too.",
    "This output matches angles taken as degrees.",
    "How far does the fast hand turn in one step, in radians?")
TRANSPOSED = Mistake("PE-TRANSPOSED", S1_7,
    "The numbers are right, with positions along the columns: (d_model, n).",
    "Here positions go down the rows.",
    "Which axis is the word, which the feature?", kind="convention")
HALVES = Mistake("PE-HALVES", S2_6, "The paper's frequencies, with all sines first and then all cosines.",
    "Many libraries use this order; a linear layer cannot tell the two apart.",
    "Which permutation of columns leads to the paper's order?", kind="variant")
HALVES_ENDPOINT = Mistake("PE-HALVES-ENDPOINT", S2_6,
    "All sines first, and speeds spread so that the last one is the slowest possible, 1/10000.",
    "This is the form of tensor2tensor and fairseq, with d_model/2 - 1 in the exponent.",
    "How do its speeds differ from the paper's?", kind="variant")
HALVES_COSINE = Mistake("PE-HALVES-COSINE", S2_6, "The cosines come first, then all sines.",
    "Some libraries use this order; a linear layer cannot tell it from the paper's.",
    "Which permutation of columns leads to the paper's order?", kind="variant")
ROW0_ZERO = Mistake("PE-ROW0-ZERO", S2_6, "Row 0 is all zeros.",
    "Some libraries keep row 0 for padding.",
    "Which encoding does the first word get then?", kind="variant")
ODD_D = Mistake("PE-ODD-D", S1_5, "Even sizes only: an odd d_model, such as 7, does not get its table.",
    "This pattern appears when sines and cosines are given the same number of columns.",
    "How many cosine columns are there when d_model is 7?", kind="note")
FLOAT32_ANGLES = Mistake("PE-FLOAT32-ANGLES", S2_7,
    "Near the start all agrees; thousands of positions later the numbers drift.",
    "This pattern appears when angles are computed in float32. A table computed in float64 and cast at the "
    "end does not drift.",
    "How many digits has float32 left after 5,000 turns?", kind="precision")

# --- the table ----------------------------------------------------------------------------------------

def fit(tables: tuple[Array, ...]) -> tuple[float, Layout] | None:
    """The base and the layout that explain every table, or None.

    >>> base, layout = fit((positional_encoding(6, 8, base=500.0), positional_encoding(7, 12, base=500.0)))
    >>> round(base), layout
    (500, 'interleaved')
    """
    first, width = tables[0], tables[0].shape[1]
    places: dict[Layout, tuple[int, int]] = {"interleaved": (2, 3), "halves": (1, width // 2 + 1)}
    for layout, (sine, cosine) in places.items():
        turn = float(np.arctan2(first[1, sine], first[1, cosine]))  # of pair 1: base^(-2/d_model)
        base = turn ** (-width / 2) if turn > 0 else np.nan
        if all(close(table, positional_encoding(*table.shape, base=base, layout=layout)) for table in tables):
            return base, layout
    return None


def waves(trial: Trial) -> Seen | None:
    """The paper's table with another base; or all its sines, or cosines; or waves at other speeds."""
    tables = list(zip(trial.found, trial.right, strict=True))
    if any(a.shape != b.shape for a, b in tables):
        return None
    if fitting := fit(trial.found):
        return of_base(*fitting)
    found, right = tables[0]
    for start, good, bad in ((0, "sine", "cosine"), (1, "cosine", "sine")):
        if all(close(a[:, start::2], b[:, start::2]) for a, b in tables):
            differ = [j for j in range(1 - start, found.shape[1], 2) if not close(found[:, j], right[:, j])]
            some = "the" if 2 * len(differ) >= found.shape[1] - 2 else "some"
            return Seen(f"All {good} columns agree, and {some} {bad} columns differ."
                f"{first_wave(found, right, next((j for j in differ if j > 1), 0))}",
                f"What is the angle of a {bad}, and what is done with it?")
    speeds = [0.0 if abs(column).max() < 1e-6 else wave(column) for column in found.T]
    if None in speeds:
        return None
    told = ", ".join(f"{speed:.3g}" for speed in speeds[::2])
    return Seen(
        f"Every column is a wave; in one step from row to row the even columns turn by {told} radians.",
        "By what is the position divided, or multiplied, in columns 0 and 2: which speed has each pair?")


def of_base(base: float, layout: str) -> Seen:
    """What is said of a table that is right but for its base."""
    if abs(base - 1) < 1e-2:
        return Seen("Sines and cosines stand where they should, and all pairs turn equally fast.",
            "What makes a later pair slower, and what does that number come to in pair 1?")
    return Seen(f"Sines, cosines and pairs fit exactly ({layout}), with a base of about {base:.3g}.",
        "Which base does the paper choose, and how do its speeds fall along the row?")


def first_wave(table: Array, right: Array, column: int) -> str:
    """What the first wrong column beyond pair 0 is, in the student's own numbers."""
    speed, wanted = wave(table[:, column]), wave(right[:, column])
    if speed is None or wanted is None:
        return ""
    if abs(speed - wanted) < 1e-6:
        return f" Column {column} is a wave and turns at the right speed; its start or sign is another one."
    return f" Column {column} is a wave that turns by {speed:.3g} radians a row."


def wave(column: Array) -> float | None:
    """ω with x[p-1] + x[p+1] = 2 cos ω x[p] for every p, which sines and cosines of ωp obey, or None."""
    middle, sides = column[1:-1], column[:-2] + column[2:]
    cosine = float((middle * sides).sum() / (middle * middle).sum() / 2)
    return float(np.arccos(cosine)) if abs(cosine) <= 1 and close(sides, 2 * cosine * middle) else None


def float32_angles(table: Array, expected: Array) -> Mistake | None:
    """Far enough for angles in float32 to show: errors no larger than 24 bits of an angle can make them."""
    if table.shape != expected.shape or same(table, expected, 1.5e-5):
        return None
    angles = np.arange(len(table))[:, None]
    return FLOAT32_ANGLES if (np.abs(table - expected) <= 4e-7 * (1 + angles)).all() else None


SOLUTION = """
def positional_encoding(n, d_model):
    position = np.arange(n)[:, None]
    j = np.arange(d_model)
    exponent = 2 * (j // 2) / d_model
    angles = position / 10000.0**exponent
    table = np.where(j % 2 == 0, np.sin(angles), np.cos(angles))
    return table
"""
PAIR, FROM_1 = "2 * (j // 2)", ("np.arange(n)", "np.arange(1, n + 1)")
WAVES = "np.where(j % 2 == 0, np.sin(angles), np.cos(angles))"
HALVES_END = ("exponent = 2 * (j // 2) / d_model", "exponent = (j // 2) / max(d_model / 2 - 1, 1)")
SINES_FIRST = ("return table", "return np.hstack([table[:, ::2], table[:, 1::2]])")
COSINES_FIRST = ("return table", "return np.hstack([table[:, 1::2], table[:, ::2]])")


def any_speeds(wave: str) -> list[Edit]:
    """Another wave; at the paper's speeds, with each column's own number, with that doubled."""
    return [Edit(WAVES, wave), Edit(WAVES, wave, PAIR, "j"), Edit(WAVES, wave, PAIR, "2 * j")]


table = Code("pe.table", "sinusoids", 3, S1_5,
    task="Write the position table of the paper: n rows, d_model columns, an even number.",
    hint="Make one column of positions and one row of speeds, and let them meet.",
    question="Which columns share one i, and how fast does each pair turn?",
    probe=Probe(
        "n, d_model", ("table",), ((6, 8), (7, 12)), sizes="n: n; d_model: d_model",
        landmarks=instead(SOLUTION, {
            "the table from position -1 on": Edit("np.arange(n)", "np.arange(-1, n - 1)"),
            "the table with all speeds multiplied by 2π": Edit("angles = ", "angles = 2 * np.pi * "),
        }),
    ),
    solution=SOLUTION,
    mistakes={
        EXP_COLUMN: [Edit(PAIR, "2 * j")],
        EXP_DOUBLED: [Edit(PAIR, "4 * (j // 2)")],
        BASE_1E8: [Edit("10000.0", "1e8")],
        EXP_DOUBLED_COS: [Edit(PAIR, "(4 * (j // 2) + j % 2)")],
        COS_OWN_INDEX: [Edit(PAIR, "j")],
        COS_NEXT_PAIR: [Edit(PAIR, "2 * ((j + 1) // 2)")],
        EXP_NO_2: [Edit(PAIR, "(j // 2)")],
        BASE_100: [Edit("10000.0", "100.0")],
        BASE_1000: [Edit("10000.0", "1000.0")],
        BASE_100000: [Edit("10000.0", "100000.0")],
        EXP_SQRT_D: [Edit("/ d_model", "/ np.sqrt(d_model)")],
        EXP_NO_D: [Edit(" / d_model", "")],
        EXP_SIGN: [Edit("exponent = ", "exponent = -")],
        SUM: any_speeds("np.sin(angles) + np.cos(angles)"),
        SWAPPED: [Edit("j % 2 == 0", "j % 2 == 1")],
        COS_OVERWRITES: [Edit(WAVES, "np.where(j % 2 == 0, np.cos(angles), 0.0)")],
        SIN_ONLY: any_speeds("np.sin(angles)"),
        COS_OF_SIN: [Edit("np.cos(angles)", "np.cos(np.sin(angles))")],
        ODD_EMPTY: [Edit("np.cos(angles)", "0.0")],
        POS_UNUSED: [
            *(Edit("return table", f"return table[[{row}] * n]") for row in (0, 1, -1)),
            Edit("return table", "return table[[-1] * n]", *FROM_1),
        ],
        POS_ONE_BASED: [Edit(*FROM_1)],
        TRANSPOSED: [Edit("return table", "return table.T")],
        DEGREES: [Edit("angles = ", "angles = np.pi / 180 * ")],
        HALVES: [Edit(*SINES_FIRST)],
        HALVES_ENDPOINT: [Edit(*HALVES_END, *SINES_FIRST)],
        HALVES_COSINE: [Edit(*COSINES_FIRST), Edit(*HALVES_END, *COSINES_FIRST)],
        ROW0_ZERO: [Edit("return table", "return table * (position > 0)")],
    },
    hard={ODD_D: (6, 7)},
    looks=(*NUMBERS, waves, *CALLS),
    last=((5000, 16), float32_angles),
    ours="positional_encoding")

# --- in numbers ---------------------------------------------------------------------------------------

@drawn("pe.pair")
def pair(draw: Draw) -> Posed:
    """The pair number of a column."""
    j = 2 * draw.integer(3, 2, 60) + 1
    return Posed({"j": j}, j // 2, {
        EXP_COLUMN: j,
        "CF-PAIR-FROM-1": j // 2 + 1,
        "CF-NEXT-PAIR": j / 2,
    })


def rows(position: int, d_model: int) -> tuple[Array, dict[Any, Array]]:
    """A row of the table, and what each mistake makes of it."""
    n, known = position + 2, [mistake for mistake in table.mistakes if mistake.kind == "wrong"]
    tables = {mistake: f(n, d_model) for mistake, f in table.slips(*known).items()}
    right = positional_encoding(n, d_model)
    wrong = {mistake: made[position] for mistake, made in tables.items()}
    return right[position], wrong | {"CF-POSITION-BEFORE": right[position - 1]}


@drawn("pe.entry", decimals=3)
def entry(draw: Draw) -> Posed:
    """One entry of the position table, in an odd column: an even one would hide every slip of the cosines."""
    p, d = draw.integer(23, 20, 60), 2 * draw.integer(4, 3, 5)
    j = 2 * draw.integer(1, 1, d // 2 - 1) + 1
    row, wrong = rows(p, d)
    return Posed({"p": p, "d": d, "j": j}, row[j], {shown: w[j] for shown, w in wrong.items()} | {
        "CF-COLUMN-FROM-1": row[j - 1],
        "CF-COLUMN-AFTER": row[(j + 1) % d],
        "CF-ANGLE": p / 10000 ** ((j - 1) / d),
        "CF-NOT-SLOWED": np.cos(p),
    })


@drawn("pe.row", decimals=3)
def row(draw: Draw) -> Posed:
    """One row of the position table."""
    p = draw.integer(3, 2, 40)
    right, wrong = rows(p, 6)
    sines_first = np.concatenate([right[::2], right[1::2]])
    return Posed({"p": p, "d": 6}, right, wrong | {"CF-SINES-FIRST": sines_first})


@drawn("pe.shift", decimals=3)
def shift(draw: Draw) -> Posed:
    """How far a hand turns in k steps."""
    k = draw.integer(5, 3, 40)
    return Posed({"k": k}, k / 100, {
        "CF-ONE-STEP": 0.01,
        "CF-FAST-HAND": k,
        EXP_COLUMN: k / 10000,
        DEGREES: np.degrees(k / 100),
        "CF-WAVELENGTH-200": k / 200,
        "CF-ONE-STEP-MORE": (k + 1) / 100,
        "CF-PART-OF-A-TURN": k / (200 * np.pi),
        "CF-SCALE-INVERSE": 100 / k,
        "CF-TIMES-WAVELENGTH": k * 200 * np.pi,
    })


@drawn("pe.wavelength", decimals=1)
def wavelength(draw: Draw) -> Posed:
    """The longest wavelength of a table, in units of 2π."""
    d = 2 * draw.integer(4, 2, 16)
    longest = 10000.0 ** ((d - 2) / d)
    return Posed({"d": d}, longest, {
        "CF-WAVELENGTH-LIMIT": 10000.0,
        "CF-FREQUENCY": 1 / longest,
        "CF-TURNS-TOO": 2 * np.pi * longest,
        BASE_1000: 1000.0 ** ((d - 2) / d),
        EXP_NO_2: longest**0.5,
        COS_OWN_INDEX: 10000.0 ** ((d - 1) / d),
        "CF-FASTEST-PAIR": 1.0,
    })
