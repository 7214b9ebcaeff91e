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

The example answers are functions in tests/exercises/codings, as students write them. Each was labelled
correct or wrong from its task alone, before the checker was run. If several wrong answers get the same
reply, only one is kept. A correct answer is *accepted* or *rejected*. A wrong answer *passed*, or the checker
*named* its mistake, or *described* the difference with the words that the label asks for, or did *not
describe* it."""


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
