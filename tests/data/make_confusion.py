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

HEAD = """# The checker's verdicts on example answers

The example answers are functions in the folder tests/exercises/codings, written as students write them. Each
answer was labelled correct or wrong before the checker was run, from the text of the task alone. If several
wrong answers get the same reply, the folder contains only one of them.

Each answer is counted in one column of the table. A correct answer is *accepted* or *rejected*. A wrong
answer is counted as *passed* if the checker accepts it, and as *named* if the checker names the mistake. It
is *described* if the checker describes the difference with the words that the label requires, and otherwise
*not described*."""


def column_of(coding):
    """Return the column of the table that counts this coding."""
    result = get_reply(coding)
    if coding.label in ("right", "variant", "remarked"):
        return "accepted" if result else "rejected"
    if result or result.codes:
        return "passed" if result else "named"
    return "described" if coding.label == "wrong" else "not described"


def table():
    """Return the text of confusion.md."""
    counts = Counter((coding.exercise, column_of(coding)) for coding in list_codings())
    totals = Counter(map(column_of, list_codings()))
    wrong = sum(totals[column] for column in COLUMNS[2:])
    lines = [
        HEAD,
        "",
        f"{totals['accepted'] + totals['rejected']} correct answers: {totals['rejected']} rejected. "
        f"{wrong} wrong answers: " + ", ".join(f"{totals[column]} {column}" for column in COLUMNS[2:]) + ".",
        "",
        f"| exercise | {' | '.join(COLUMNS)} |",
        f"|---|{'---:|' * len(COLUMNS)}",
    ]
    for exercise in dict.fromkeys(coding.exercise for coding in list_codings()):
        lines.append(f"| {exercise} | {' | '.join(str(counts[exercise, column]) for column in COLUMNS)} |")
    lines += [
        "",
        "## Mistakes with a name",
        "",
        "| code | cause | exercises with an example |",
        "|---|---|---|",
    ]
    for code, mistake in load_mistakes().items():
        exercises = dict.fromkeys(coding.exercise for coding in list_codings() if code in coding.codes)
        lines.append(f"| **{code}** | {mistake.cause} | {', '.join(exercises)} |")
    return "\n".join(lines) + "\n"


COLUMNS = ("accepted", "rejected", "passed", "named", "described", "not described")

if __name__ == "__main__":
    FILE.write_text(table(), encoding="utf-8")
