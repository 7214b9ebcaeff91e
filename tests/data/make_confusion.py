"""Write confusion.md: what the checker says to every coding in tests/exercises.

The slips of student_codings.py are those of the checker's list; stranger_codings.py was written and labelled
apart from it.

uv run python tests/data/make_confusion.py
"""

import re
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
FILE = HERE / "confusion.md"
sys.path.insert(0, str(HERE.parent / "exercises"))

import homework_01  # noqa: E402
import later_strangers  # noqa: E402
import stranger_codings  # noqa: E402
import student_codings  # noqa: E402

from npformer.exercises import check  # noqa: E402
from npformer.exercises.topics import words  # noqa: E402

# Mistakes that no output can tell apart. PE-BASE-1E8 and PE-BASE-100 are the other halves.
SAME = {"PE-EXP-DOUBLED": "PE-BASE-1E8", "PE-EXP-NO-2": "PE-BASE-100"}
SAME |= {b: a for a, b in SAME.items()}


@cache
def reply(exercise, function):
    """What the checker says to a coding; asked once, however many tests look at it."""
    return check(exercise, function, level=3)


def verdict(exercise, code, function):
    """(column, what it was called): itself, in its group, confused or missed."""
    codes = set(reply(exercise, function).codes)
    if not codes:
        return "missed", ""
    if codes == {code}:
        return "itself", ""
    if codes == {code, SAME.get(code)}:
        return "in its group", ""
    return "confused", ", ".join(sorted(codes - {code}))


def known():
    """The first half: every mistake of the list."""
    counts = defaultdict(lambda: dict.fromkeys(("itself", "in its group", "confused", "missed"), 0))
    names = defaultdict(set)
    for exercise, code, function in student_codings.MISTAKES:
        column, called = verdict(exercise, code, function)
        counts[code][column] += 1
        names[code] |= {called} - {""}
    passed = sum(reply(exercise, f).status == "pass" for exercise, _, f in student_codings.ACCEPTED)
    lines = [
        "# What the checker calls each mistake",
        "",
        "Every mistake that the checker knows, tried on functions that were written with it on purpose.",
        "*codings*: in how many ways it was written. *itself*: so many of them got this code and no other.",
        "`≡`: a code that no output can tell from this one; both are named, and counted as *in its group*.",
        "*confused with*: other codes that came. *missed*: no code came. Written by make_confusion.py from",
        "the codings in student_codings.py.",
        "",
        f"Right answers, coded in {len(student_codings.ACCEPTED)} ways: {passed} pass.",
        "",
        "| code | ≡ | codings | itself | in its group | confused with | missed |",
        "|---|---|---:|---:|---:|---|---:|",
    ]
    for code, told in words().items():
        n = counts[code]
        cells = [
            f"**{code}**<br>{told.cause}",
            SAME.get(code, ""),
            sum(n.values()),
            n["itself"],
            n["in its group"],
        ]
        lines.append(
            "| " + " | ".join(map(str, [*cells, ", ".join(sorted(names[code])), n["missed"]])) + " |"
        )
    return lines


def table():
    """The whole file as text."""
    parts = [known(), *(strangers(head, codings) for head, codings in OTHERS)]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def said_to(exercise, label, word, function):
    """(column) refused or passed; of a slip: named, seen (an observation with the word), unseen or passed."""
    result = reply(exercise, function)
    if label != "wrong":
        return "passed" if result else "refused"
    if result:
        return "passed"
    return "named" if result.codes else "seen" if re.search(word, result.evidence, re.I) else "unseen"


FIRST = [
    "## Codings by strangers",
    "",
    "From stranger_codings.py: labelled right, variant or wrong by mathematics before the checker saw",
    "them, and not changed since. *named*: a code of the list above. *seen*: an exact observation that",
    "contains the word which the label asks for.",
]
LATER = [
    "## Codings by strangers, later",
    "",
    "From later_strangers.py: for the newer exercises, and a second visit to the older ones. Written before",
    "the checker saw them; two labels were wrong and two too kind, and are mended. *unseen*: the observation",
    "lacks the word.",
]
HOMEWORK = [
    "## Homework",
    "",
    "From homework_01.py: written from the tasks alone, as students write; one slip in each. *unseen*: the",
    "observation lacks the word.",
]


OTHERS = [
    (FIRST, stranger_codings.STRANGERS),
    (LATER, later_strangers.LATER),
    (HOMEWORK, homework_01.HOMEWORK),
]


def strangers(head, codings):
    """The second half: codings that were written apart from the list, by exercise."""
    told = Counter((e, label, said_to(e, label, word, f)) for e, label, word, f in codings)
    total = Counter()
    for (_, label, column), n in told.items():
        total[label == "wrong", column] += n
    slips = sum(n for (wrong, _), n in total.items() if wrong)
    fine = sum(n for (wrong, _), n in total.items() if not wrong)
    named, seen = total[True, "named"], total[True, "seen"]
    lines = [
        *head,
        "",
        f"{fine} right codings and variants: {total[False, 'refused']} refused. {slips} slips: "
        f"{total[True, 'passed']} passed, {named} named, {seen} seen, {total[True, 'unseen']} unseen; "
        f"{100 * (named + seen) / slips:.1f} % get a name or an exact observation.",
        "",
        "| exercise | right | refused | slips | named | seen | unseen | passed |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for exercise in dict.fromkeys(e for e, *_ in codings):
        of = {key[1:]: n for key, n in told.items() if key[0] == exercise}
        right = [
            sum(n for (label, c), n in of.items() if label != "wrong" and c == column)
            for column in ("passed", "refused")
        ]
        wrong = [of.get(("wrong", column), 0) for column in ("named", "seen", "unseen", "passed")]
        cells = [exercise, sum(right), right[1], sum(wrong), *wrong]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


if __name__ == "__main__":
    FILE.write_text(table(), encoding="utf-8")
