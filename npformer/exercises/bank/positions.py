"""Exercises on the sinusoidal positional encoding, and a detector of the frequencies in a wrong table.

The docstring of the package `npformer.exercises.bank` defines the terms call, edit, intermediate result
(`landmarks`) and detector.
"""


import numpy as np

from npformer.backend import Array
from npformer.exercises.bank.questions import function_exercise, number_exercise
from npformer.exercises.number_detectors import are_close
from npformer.exercises.probe import Trial
from npformer.exercises.task import Draw, Edit, PosedQuestion
from npformer.exercises.verdict import Finding, make_finding
from npformer.positional import Layout, positional_encoding

# --- the table ----------------------------------------------------------------------------------------

def fit(tables: tuple[Array, ...]) -> tuple[float, Layout] | None:
    """Return the base and the layout with which all these tables were made, or None if nothing fits.

    >>> base, layout = fit((positional_encoding(6, 8, base=500.0), positional_encoding(7, 12, base=500.0)))
    >>> round(base), layout
    (500, 'interleaved')
    """
    first, width = tables[0], tables[0].shape[1]
    places: dict[Layout, tuple[int, int]] = {"interleaved": (2, 3), "halves": (1, width // 2 + 1)}
    for layout, (sine, cosine) in places.items():
        turn = float(np.arctan2(first[1, sine], first[1, cosine]))  # the angle of pair 1, base^(-2/d_model)
        base = turn ** (-width / 2) if turn > 0 else np.nan
        rebuilt = [positional_encoding(*table.shape, base=base, layout=layout) for table in tables]
        if all(map(are_close, tables, rebuilt)):
            return base, layout
    return None


def waves(trial: Trial) -> Finding | None:
    """Detect a table with a different base, with only sines or cosines correct, or with wrong frequencies."""
    tables = list(zip(trial.found, trial.right, strict=True))
    if any(a.shape != b.shape for a, b in tables):
        return None
    if fitting := fit(trial.found):
        base, layout = fitting
        all_turn_equally = abs(base - 1) < 1e-2
        if all_turn_equally:
            return make_finding("equal_speeds")
        return make_finding("other_base", layout=layout, base=base)
    for start, kind in ((0, "sines_agree"), (1, "cosines_agree")):
        if all(are_close(a[:, start::2], b[:, start::2]) for a, b in tables):
            return half_agrees(kind, *tables[0], 1 - start)
    turning = [0.0 if abs(column).max() < 1e-6 else wave(column) for column in trial.found[0].T]
    speeds = [speed for speed in turning if speed is not None]
    if len(speeds) < len(turning):
        return None
    wanted = [wave(column) or 0.0 for column in trial.right[0].T]
    if np.allclose(speeds, wanted, rtol=0, atol=1e-6):
        return make_finding("waves_at_correct_speeds")
    return make_finding("wave_speeds", speeds=speeds[::2])


def half_agrees(kind: str, found: Array, right: Array, start: int) -> Finding:
    """Make the finding about a table in which all sines or all cosines are correct.

    The finding describes the first wrong column after column pair 0.
    """
    differ = [j for j in range(start, found.shape[1], 2) if not are_close(found[:, j], right[:, j])]
    column = next((j for j in differ if j > 1), 0)
    nearly_all = 2 * len(differ) >= found.shape[1] - 2
    amount = "all" if nearly_all else "some"
    speed, wanted = wave(found[:, column]), wave(right[:, column])
    if speed is None or wanted is None:
        return make_finding(kind, amount=amount)
    is_correct = abs(speed - wanted) < 1e-6
    kind = f"{kind}_and_a_wave"
    return make_finding(kind, amount=amount, column=column, speed=speed, is_correct=is_correct)


def wave(column: Array) -> float | None:
    """Return ω if a column contains sin(ωp) or cos(ωp) for the positions p, and None otherwise.

    Both functions satisfy x[p-1] + x[p+1] = 2 cos(ω) x[p] for every p, so this equation gives ω.
    """
    middle, sides = column[1:-1], column[:-2] + column[2:]
    cosine = float((middle * sides).sum() / (middle * middle).sum() / 2)
    return float(np.arccos(cosine)) if abs(cosine) <= 1 and are_close(sides, 2 * cosine * middle) else None


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
    """Return three edits. All columns j get this wave, with 2 * (j // 2), j or 2 * j in the exponent."""
    return [Edit(WAVES, wave), Edit(WAVES, wave, PAIR, "j"), Edit(WAVES, wave, PAIR, "2 * j")]


table = function_exercise("pe.table", ("table",), ((6, 8), (7, 12), (4, 4), (1, 4)),
    draw=lambda draws: (draws.size(low=3, high=12), draws.size(low=4, high=12, multiple_of=2)),
    axes="n: n; d_model: d_model; table: n d_model",
    landmarks={
        "table_from_minus_1": Edit("np.arange(n)", "np.arange(-1, n - 1)"),
        "table_times_2_pi": Edit("angles = ", "angles = 2 * np.pi * "),
    },
    solution=SOLUTION,
    mistakes={
        "PE-EXP-COLUMN": [Edit(PAIR, "2 * j")],
        "PE-EXP-DOUBLED": [Edit(PAIR, "4 * (j // 2)")],
        "PE-BASE-1E8": [Edit("10000.0", "1e8")],
        "PE-EXP-DOUBLED-COS": [Edit(PAIR, "(4 * (j // 2) + j % 2)")],
        "PE-COS-OWN-INDEX": [Edit(PAIR, "j")],
        "PE-COS-NEXT-PAIR": [Edit(PAIR, "2 * ((j + 1) // 2)")],
        "PE-EXP-NO-2": [Edit(PAIR, "(j // 2)")],
        "PE-BASE-100": [Edit("10000.0", "100.0")],
        "PE-BASE-1000": [Edit("10000.0", "1000.0")],
        "PE-BASE-100000": [Edit("10000.0", "100000.0")],
        "PE-EXP-SQRT-D": [Edit("/ d_model", "/ np.sqrt(d_model)")],
        "PE-EXP-NO-D": [Edit(" / d_model", "")],
        "PE-EXP-SIGN": [Edit("exponent = ", "exponent = -")],
        "PE-SUM": any_speeds("np.sin(angles) + np.cos(angles)"),
        "PE-SWAPPED": [Edit("j % 2 == 0", "j % 2 == 1")],
        "PE-COS-OVERWRITES": [Edit(WAVES, "np.where(j % 2 == 0, np.cos(angles), 0.0)")],
        "PE-SIN-ONLY": any_speeds("np.sin(angles)"),
        "PE-COS-OF-SIN": [Edit("np.cos(angles)", "np.cos(np.sin(angles))")],
        "PE-ODD-EMPTY": [Edit("np.cos(angles)", "0.0")],
        "PE-POS-UNUSED": [
            *(Edit("return table", f"return table[[{row}] * n]") for row in (0, 1, -1)),
            Edit("return table", "return table[[-1] * n]", *FROM_1),
        ],
        "PE-POS-ONE-BASED": [Edit(*FROM_1)],
        "PE-TRANSPOSED": [Edit("return table", "return table.T")],
        "PE-DEGREES": [Edit("angles = ", "angles = np.pi / 180 * ")],
        "PE-HALVES": [Edit(*SINES_FIRST)],
        "PE-HALVES-ENDPOINT": [Edit(*HALVES_END, *SINES_FIRST)],
        "PE-HALVES-COSINE": [Edit(*COSINES_FIRST), Edit(*HALVES_END, *COSINES_FIRST)],
        "PE-ROW0-ZERO": [Edit("return table", "return table * (position > 0)")],
    },
    hard={"PE-FLOAT32-ANGLES": (20000, 16)},
    detectors=(waves,),
    ours="positional_encoding")

# --- in numbers ---------------------------------------------------------------------------------------

@number_exercise("pe.pair")
def pair(draw: Draw) -> PosedQuestion:
    """Ask for the pair to which a column belongs."""
    j = 2 * draw.integer(3, 2, 60) + 1
    return PosedQuestion({"j": j}, j // 2, {
        "PE-EXP-COLUMN": j,
        "CF-PAIR-FROM-1": j // 2 + 1,
        "CF-NEXT-PAIR": j / 2,
    })


def rows(position: int, d_model: int) -> tuple[Array, dict[str, Array]]:
    """Return a row of the table, and the row that each mistake would give."""
    n = position + 2
    known = [mistake.code for mistake in table.mistakes if mistake.kind == "wrong"]
    tables = {code: f(n, d_model) for code, f in table.slips(*known).items()}
    wrong = {code: made[position] for code, made in tables.items() if made.shape == (n, d_model)}
    right = positional_encoding(n, d_model)
    return right[position], wrong | {"CF-POSITION-BEFORE": right[position - 1]}


@number_exercise("pe.entry", decimals=3)
def entry(draw: Draw) -> PosedQuestion:
    """Ask for one entry of an odd column, a cosine. An even column would not show mistakes in the cosines."""
    p, d = draw.integer(23, 20, 60), 2 * draw.integer(4, 3, 5)
    j = 2 * draw.integer(1, 1, d // 2 - 1) + 1
    row, wrong = rows(p, d)
    return PosedQuestion({"p": p, "d": d, "j": j}, row[j], {shown: w[j] for shown, w in wrong.items()} | {
        "CF-COLUMN-FROM-1": row[j - 1],
        "CF-COLUMN-AFTER": row[(j + 1) % d],
        "CF-ANGLE": p / 10000 ** ((j - 1) / d),
        "CF-NOT-SLOWED": np.cos(p),
    })


@number_exercise("pe.row", decimals=3)
def row(draw: Draw) -> PosedQuestion:
    """Ask for one row of the table."""
    p = draw.integer(3, 2, 40)
    right, wrong = rows(p, 6)
    sines_first = np.concatenate([right[::2], right[1::2]])
    return PosedQuestion({"p": p, "d": 6}, right, wrong | {"CF-SINES-FIRST": sines_first})


@number_exercise("pe.shift", decimals=3)
def shift(draw: Draw) -> PosedQuestion:
    """Ask for the angle by which one pair of columns turns in k steps."""
    k = draw.integer(5, 3, 40)
    return PosedQuestion({"k": k}, k / 100, {
        "CF-ONE-STEP": 0.01,
        "CF-FAST-HAND": k,
        "PE-EXP-COLUMN": k / 10000,
        "PE-DEGREES": np.degrees(k / 100),
        "CF-WAVELENGTH-200": k / 200,
        "CF-ONE-STEP-MORE": (k + 1) / 100,
        "CF-PART-OF-A-TURN": k / (200 * np.pi),
        "CF-SCALE-INVERSE": 100 / k,
        "CF-TIMES-WAVELENGTH": k * 200 * np.pi,
    })


@number_exercise("pe.wavelength", decimals=1)
def wavelength(draw: Draw) -> PosedQuestion:
    """Ask for the longest wavelength of a table, in units of 2π."""
    d = 2 * draw.integer(4, 2, 16)
    longest = 10000.0 ** ((d - 2) / d)
    return PosedQuestion({"d": d}, longest, {
        "CF-WAVELENGTH-LIMIT": 10000.0,
        "CF-FREQUENCY": 1 / longest,
        "CF-TURNS-TOO": 2 * np.pi * longest,
        "PE-BASE-1000": 1000.0 ** ((d - 2) / d),
        "PE-EXP-NO-2": longest**0.5,
        "PE-COS-OWN-INDEX": 10000.0 ** ((d - 1) / d),
        "CF-FASTEST-PAIR": 1.0,
    })
