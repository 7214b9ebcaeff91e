"""Write confusion.md: what the checker says to every coding in tests/exercises/student_codings.py.

uv run python tests/data/make_confusion.py
"""

import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "exercises"))

import student_codings  # noqa: E402

from npformer.exercises import check  # noqa: E402
from npformer.exercises.mistakes import words  # noqa: E402

# Mistakes that no output can tell apart. PE-BASE-1E8 and PE-BASE-100 are the other halves.
SAME = {"PE-EXP-DOUBLED": "PE-BASE-1E8", "PE-EXP-NO-2": "PE-BASE-100"}
SAME |= {b: a for a, b in SAME.items()}


def verdict(exercise, code, function):
    """(column, what it was called): itself, in its group, confused or missed."""
    codes = set(check(exercise, function).codes)
    if not codes:
        return "missed", ""
    if codes == {code}:
        return "itself", ""
    if codes == {code, SAME.get(code)}:
        return "in its group", ""
    return "confused", ", ".join(sorted(codes - {code}))


def table():
    """The whole file as text."""
    counts = defaultdict(lambda: dict.fromkeys(("itself", "in its group", "confused", "missed"), 0))
    names = defaultdict(set)
    for exercise, code, function in student_codings.MISTAKES:
        column, called = verdict(exercise, code, function)
        counts[code][column] += 1
        names[code] |= {called} - {""}
    passed = sum(check(exercise, f).status == "pass" for exercise, _, f in student_codings.ACCEPTED)
    lines = [
        "# What the checker calls each mistake",
        "",
        "Written by make_confusion.py from the codings in student_codings.py. `≡` is the code that no output",
        "can tell from this one: both are named then.",
        "",
        f"Right answers, coded in {len(student_codings.ACCEPTED)} ways: {passed} pass.",
        "",
        "| code | ≡ | codings | itself | in its group | confused with | missed |",
        "|---|---|---:|---:|---:|---|---:|",
    ]
    for code in words():
        n = counts[code]
        cells = [code, SAME.get(code, ""), sum(n.values()), n["itself"], n["in its group"]]
        lines.append(
            "| " + " | ".join(map(str, [*cells, ", ".join(sorted(names[code])), n["missed"]])) + " |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (HERE / "confusion.md").write_text(table(), encoding="utf-8")
