"""Write confusion.md: the checker's verdicts on the answers in tests/exercises/codings.

uv run python tests/data/make_confusion.py
"""

import sys
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
FILE = HERE / "confusion.md"
sys.path.insert(0, str(HERE.parent / "exercises"))

from codings import get_reply, list_codings  # noqa: E402

from npformer.exercises.bank.questions import load_mistakes  # noqa: E402

HEAD = """# What the checker says

Functions as students and strangers write them, labelled right or wrong from the tasks alone, before the
checker saw them. Of slips to which it says the same, one is kept. *named*: the mistake got its own name.
*seen*: an exact observation that contains the words which the label asks for. *unseen*: it lacks them."""


def column_of(coding):
    """Return the column of the table that counts this coding."""
    result = get_reply(coding)
    if coding.label in ("right", "variant", "remarked"):
        return "right" if result else "refused"
    if result or result.codes:
        return "passed" if result else "named"
    return "seen" if coding.label == "wrong" else "unseen"


def table():
    """Return the text of confusion.md."""
    counts = Counter((coding.exercise, column_of(coding)) for coding in list_codings())
    totals = Counter(map(column_of, list_codings()))
    slips = sum(totals[column] for column in COLUMNS[2:])
    lines = [
        HEAD,
        "",
        f"{totals['right'] + totals['refused']} right codings and variants: {totals['refused']} refused. "
        f"{slips} slips: " + ", ".join(f"{totals[column]} {column}" for column in COLUMNS[2:]) + ".",
        "",
        f"| exercise | {' | '.join(COLUMNS)} |",
        f"|---|{'---:|' * len(COLUMNS)}",
    ]
    for exercise in dict.fromkeys(coding.exercise for coding in list_codings()):
        lines.append(f"| {exercise} | {' | '.join(str(counts[exercise, column]) for column in COLUMNS)} |")
    lines += ["", "## Mistakes with a name", "", "| code | what it comes from | coded in |", "|---|---|---|"]
    for code, mistake in load_mistakes().items():
        exercises = dict.fromkeys(coding.exercise for coding in list_codings() if code in coding.codes)
        lines.append(f"| **{code}** | {mistake.cause} | {', '.join(exercises)} |")
    return "\n".join(lines) + "\n"


COLUMNS = ("right", "refused", "passed", "named", "seen", "unseen")

if __name__ == "__main__":
    FILE.write_text(table(), encoding="utf-8")
