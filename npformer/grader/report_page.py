"""What a teacher reads: a summary, a page that prints on two sheets, and feedback to send back."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import mode
from typing import TypeAlias

from npformer.exercises import list_exercises
from npformer.exercises.assignment_file import Assignment
from npformer.grader.class_list import Student, Whose
from npformer.grader.grading_process import Row
from npformer.grader.points import Mark, card, earned
from npformer.grader.similarity import Pair
from npformer.handouts.paper import paper

BINS = 10
Pattern: TypeAlias = tuple[int, str, str, str]  # students, an exercise, what was seen, what a teacher can say
SECTIONS, PATTERNS, EXERCISES, STUDENTS, LINES = 6, 2, 24, 14, 12  # shown at most of each


def to_teach(given: Iterable[Mark]) -> list[tuple[str, int, list[Pattern]]]:
    """The sections of the lessons with how many students went wrong there, and their commonest mistakes."""
    of = {exercise.id: exercise for exercise in list_exercises()}
    wrong = defaultdict[tuple[str, tuple[str, ...]], list[Row]](list)
    who = defaultdict[str, set[Student]](set)
    for student, row in ((mark.student, row) for mark in given for row in mark.rows):
        if row.is_answered and not row.passed:
            wrong[row.exercise, row.codes].append(row)
            who[of[row.exercise].teach].add(student)
    patterns = defaultdict[str, list[Pattern]](list)
    for (exercise_id, codes), rows in wrong.items():
        seen = mode(row.hint if codes and row.hint else row.evidence for row in rows)
        say = mode([row.question for row in rows if row.question] or [of[exercise_id].question])
        patterns[of[exercise_id].teach].append((len(rows), exercise_id, seen, say))
    found = [(teach, len(who[teach]), sorted(own, reverse=True)) for teach, own in patterns.items()]
    return sorted(found, key=lambda entry: (-entry[1], entry[0]))


def summary(rows: Sequence[Row], given: Sequence[Mark], owners: Whose) -> str:
    """For the terminal: how many are right, what to teach again, and what a person has to decide."""
    lines = [overview(rows)]
    for i, (teach, students, patterns) in enumerate(to_teach(given)[:LINES]):
        _, exercise_id, _, say = patterns[0]
        lines += ["To teach again, and how many students:"] if i == 0 else []
        lines += [f"  {students:4}  {teach}", f"        {exercise_id}: {say}"]
    return "\n".join([*lines, *to_decide(rows, owners)])


def overview(rows: Sequence[Row]) -> str:
    """One line."""
    answered = [row for row in rows if row.is_answered]
    files, passed = len({row.submission for row in rows}), sum(row.passed for row in answered)
    return f"{files} files, {len(answered)} answers, {passed} right."


def to_decide(rows: Iterable[Row], owners: Whose) -> list[str]:
    """A line for each thing that the grader leaves to a person."""
    lost = {row.submission: row.evidence for row in rows if row.status in ("not read", "passed over")}
    return [
        *(f"To decide: {line}." for line in owners.doubtful),
        *(f"Missing: {student}." for student in owners.missing),
        *(f"{name}: {why}" for name, why in lost.items()),
    ]


def places_of(given: Iterable[Mark], folder: Path) -> dict[Path, Mark]:
    """The file of each student who handed something in; no two differ in capitals alone."""
    places, taken = dict[Path, Mark](), Counter[str]()
    for mark in (mark for mark in given if mark.rows):
        stem = re.sub(r"[^\w.() @-]+", "_", str(mark.student)).strip(" .")[:100] or "_"
        taken[stem.casefold()] += 1
        number = taken[stem.casefold()]
        places[folder / f"{stem}{f'~{number}' * (number > 1)}.md"] = mark
    return places


def feedback(mark: Mark, assignment: Assignment) -> str:
    """One student's replies as Markdown, to send back."""
    late = f"; {mark.days_late} day{'s' * (mark.days_late > 1)} late" if mark.days_late else ""
    parts = [f"# {_markdown(f'{assignment.title}: {mark.student}')}"]
    parts += [f"{mark.total:g} of {assignment.worth():g} points{late}."]
    for why in dict.fromkeys(row.evidence for row in mark.rows if row.status == "not read"):
        parts += ["Not read to the end:", f"> {_markdown(why)}"]
    for row in (row for row in mark.rows if row.is_answered):
        title, *said = card(row).split("\n")
        parts += [f"## {row.exercise}: {title} ({earned(row, assignment):g} points)", *map(_markdown, said)]
    missing = [row.exercise for row in mark.rows if not row.is_answered]
    parts += [f"Not answered: {', '.join(missing)}."] if missing else []
    return "\n\n".join(parts) + "\n"


def _markdown(text: str) -> str:
    """Text that Markdown leaves as it is."""
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", text)


# --- one page -------------------------------------------------------------------------------------

COLOURS = '<i class="right"></i>right <i class="wrong"></i>not yet <i class="none"></i>none'


def class_page(
    rows: Sequence[Row], given: Sequence[Mark], owners: Whose, pairs: list[Pair], assignment: Assignment
) -> str:
    """The class on two sheets that need nothing else; what there is nothing to say about has no heading."""
    here, worth = [mark for mark in given if mark.rows], assignment.worth()
    hints = [f"{one} and {other}: {share:.0%} of the shorter" for share, one, other in pairs]
    first = {
        "Points, and how many students have them": _points(here, worth),
        f'Exercises, the hardest first <span class="colours">{COLOURS}</span>': _exercises(here, assignment),
        "What to teach again, and how many students went wrong there": _teach(here),
    }
    second = {
        "Who needs help first": _help(here, worth),
        "To decide, by a person": _some(to_decide(rows, owners)),
        "Alike: a hint, no verdict": _some(hints),
    }
    head = f"<p>{len(here)} of {len(given)} students; {escape(overview(rows))}</p>"
    body = [head, *_headed(first), '<div class="sheet"></div>', *_headed(second)]
    return paper("class", assignment.title, "\n".join(body), "@page { size: A4; margin: 13mm }")


def _headed(parts: dict[str, list[str]]) -> Iterator[str]:
    for heading, lines in parts.items():
        yield from (f"<h2>{heading}</h2>", *lines) if lines else ()


def _bar(label: str, parts: Iterable[tuple[str, float]], most: float, text: str) -> str:
    """The one picture of the page: a bar of so many parts of the most, with words on both sides."""
    wide = ((kind, 100 * n / (most or 1)) for kind, n in parts)
    bar = "".join(f'<span class="{kind}" style="width:{width:.1f}%"></span>' for kind, width in wide)
    texts = f'<b>{escape(label)}</b><span class="bar">{bar}</span><span class="n">{escape(text)}</span>'
    return f'<div class="one">{texts}</div>'


def _points(given: Sequence[Mark], worth: float) -> list[str]:
    """How many students have how many points."""
    counts = Counter(min(int(mark.total / (worth or 1.0) * BINS), BINS - 1) for mark in given)
    ends, most = [i * (worth or 1.0) / BINS for i in range(BINS + 1)], max(counts.values(), default=1)
    bins = enumerate(pairwise(ends))
    return [_bar(f"{a:g}–{b:g}", [("many", counts[i])], most, str(counts[i] or "")) for i, (a, b) in bins]


def _exercises(given: Sequence[Mark], assignment: Assignment) -> list[str]:
    """Of each exercise the parts that are right, wrong and not answered; the hardest first."""
    answered = [row for mark in given for row in mark.rows if row.is_answered]
    right = Counter(row.exercise for row in answered if row.passed)
    wrong = Counter(row.exercise for row in answered if not row.passed)
    ids, every = sorted(assignment.points, key=lambda i: (right[i], i)), len(given) or 1
    parts = {i: (("right", right[i]), ("wrong", wrong[i])) for i in ids[:EXERCISES]}
    bars = [_bar(i, both, every, f"{right[i] / every:.0%}") for i, both in parts.items()]
    more = [f"<p>{len(ids) - EXERCISES} more are not shown.</p>"] if len(ids) > EXERCISES else []
    return ['<div class="every">', *bars, "</div>", *more]


def _teach(given: Sequence[Mark]) -> list[str]:
    lines, every = [], len(given)
    for teach, students, patterns in to_teach(given)[:SECTIONS]:
        lines.append(_bar(f"Lesson {teach}", [("wrong", students)], every, f"{students} of {every}"))
        for many, exercise_id, seen, say in patterns[:PATTERNS]:
            told = f'<span class="id">{escape(exercise_id)}</span>: {escape(seen[:160])}'
            lines.append(f'<p>{many} × {told} <span class="say">“{escape(say)}”</span></p>')
    return lines


def _help(given: Sequence[Mark], worth: float) -> list[str]:
    """Those with the fewest points, and what they have not right yet."""
    weak = sorted((mark for mark in given if mark.total < worth / 2), key=lambda mark: mark.total)
    lines = []
    for mark in weak[:STUDENTS]:
        ids = [row.exercise for row in mark.rows if not row.passed]
        more = f" and {len(ids) - 4} more" if len(ids) > 4 else ""
        lines.append(_bar(str(mark.student), [("right", mark.total)], worth, f"{mark.total:g} of {worth:g}"))
        lines.append(f"<p>Not right yet: {escape(', '.join(ids[:4]))}{more}</p>")
    return lines


def _some(lines: list[str]) -> list[str]:
    more = [f"and {len(lines) - LINES} more"] if len(lines) > LINES else []
    return [f"<p>{escape(line)}</p>" for line in [*lines[:LINES], *more]]
