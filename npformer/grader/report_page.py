"""Write the summary for the teacher, a page that prints on two sheets, and the feedback for the students."""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from statistics import mode
from typing import NamedTuple

from npformer.exercises import list_exercises
from npformer.exercises.assignment_file import Assignment
from npformer.grader.class_list import Owners, Student
from npformer.grader.grading_process import Row
from npformer.grader.points import (
    Attempt,
    StudentPoints,
    compute_row_points,
    count,
    explain_outputs,
    format_card,
)
from npformer.grader.similarity import Pair
from npformer.handouts.paper import make_page

BINS = 10  # the number of bars in the histogram of points
MAX_TOPICS = 6  # the largest number of topics on the page
MAX_MISTAKES_PER_TOPIC = 2
MAX_EXERCISES = 24
MAX_WEAK_STUDENTS = 14
MAX_IDS = 4  # the largest number of exercises that are listed for a weak student
MAX_LINES = 12  # the largest number of topics in the summary, and of lines in a list on the page
MAX_EVIDENCE_LENGTH = 160
MAX_STEM_LENGTH = 100  # the largest length of a feedback file's name, without the suffix


class Mistake(NamedTuple):
    """A mistake in one exercise, and how often it occurred. Mistakes are sorted by these fields."""

    students: int
    exercise_id: str
    evidence: str
    question: str  # a question that the teacher can ask in class


class Topic(NamedTuple):
    """A lesson section, with the mistakes in its exercises and the number of students who made them."""

    section: str
    students: int
    mistakes: list[Mistake]


def find_topics(class_points: Iterable[StudentPoints]) -> list[Topic]:
    """Return the lesson sections to teach again, sorted by the number of students affected, largest first."""
    exercises = {exercise.id: exercise for exercise in list_exercises()}
    wrong_rows = defaultdict[tuple[str, tuple[str, ...]], list[Row]](list)
    students = defaultdict[str, set[Student]](set)
    for entry in class_points:
        for row in entry.rows:
            if row.is_answered and not row.passed:
                wrong_rows[row.exercise, row.codes].append(row)
                students[exercises[row.exercise].teach].add(entry.student)
    mistakes = defaultdict[str, list[Mistake]](list)
    for (exercise_id, codes), rows in wrong_rows.items():
        evidence = mode(row.hint if codes and row.hint else row.evidence for row in rows)
        questions = [row.question for row in rows if row.question] or [exercises[exercise_id].question]
        mistake = Mistake(len(rows), exercise_id, evidence, mode(questions))
        mistakes[exercises[exercise_id].teach].append(mistake)
    topics = []
    for section, section_mistakes in mistakes.items():
        topics.append(Topic(section, len(students[section]), sorted(section_mistakes, reverse=True)))
    return sorted(topics, key=lambda topic: (-topic.students, topic.section))


# --- the summary ----------------------------------------------------------------------------------


def format_summary(
    rows: Sequence[Row], class_points: Sequence[StudentPoints], owners: Owners, note: str = ""
) -> str:
    """Return the text for the terminal: counts, topics to teach again, and decisions for the teacher."""
    lines = [line for line in (format_overview(rows), note) if line]
    topics = find_topics(class_points)[:MAX_LINES]
    if topics:
        lines.append("Topics to teach again, with the number of students:")
    for topic in topics:
        mistake = topic.mistakes[0]
        lines.append(f"  {topic.students:4}  {topic.section}")
        lines.append(f"        {mistake.exercise_id}: {mistake.question}")
    problems = [f"Problems in {name}: {problem}" for name, problem in find_problems(rows).items()]
    return "\n".join([*lines, *list_decisions(rows, owners), *problems])


def format_student_summary(
    class_points: Iterable[StudentPoints], student: Student, assignment: Assignment
) -> str:
    """Return the points of one student, the exercises without full points, and the problems of the files."""
    for entry in class_points:
        if entry.student == student:
            ids = [row.exercise for row in entry.rows if not row.passed]
            not_correct = f" Not correct yet: {', '.join(ids)}." if ids else ""
            line = f"{student}: {entry.total:g} of {count(assignment.worth(), 'point')}.{not_correct}"
            problems = [f"Problems in {name}: {text}" for name, text in list_problems(entry.rows).items()]
            return "\n".join([line, *problems])
    return f"{student} has no file any more."


def format_overview(rows: Sequence[Row]) -> str:
    """Return a line with the number of files, of answers and of correct answers."""
    answered = [row for row in rows if row.is_answered]
    file_count = len({row.submission for row in rows})
    passed_count = sum(row.passed for row in answered)
    return f"{count(file_count, 'file')}, {count(len(answered), 'answer')}, {passed_count} correct."


def list_decisions(rows: Iterable[Row], owners: Owners) -> list[str]:
    """Return one line for each decision that the grader leaves to the teacher."""
    not_graded = {row.submission: row.evidence for row in rows if row.status in ("not read", "passed over")}
    return [
        *(f"To decide: {line}." for line in owners.undecided),
        *(f"Missing: {student}." for student in owners.missing),
        *(f"{name}: {reason}" for name, reason in not_graded.items()),
    ]


def list_problems(rows: Iterable[Row]) -> dict[str, str]:
    """Return the first problems of each submission that has problems."""
    return {row.submission: row.problem for row in rows if row.problem}


def find_problems(rows: Iterable[Row]) -> dict[str, str]:
    """Return the first problems of each submission. Files that `list_decisions` lists are left out."""
    rows = list(rows)
    problems = list_problems(rows)
    for row in rows:
        if row.status in ("not read", "passed over"):
            problems.pop(row.submission, None)
    return problems


# --- feedback for the students --------------------------------------------------------------------


def choose_feedback_paths(class_points: Iterable[StudentPoints], folder: Path) -> dict[Path, StudentPoints]:
    """Choose the path of the feedback file for each student with a submission.

    No two paths differ only in case (`A.md`, `a.md`), because some systems treat them as the same file.
    """
    paths: dict[Path, StudentPoints] = {}
    counts = Counter[str]()
    for entry in class_points:
        if not entry.rows:
            continue
        stem = re.sub(r"[^\w.() @-]+", "_", str(entry.student)).strip(" .")[:MAX_STEM_LENGTH] or "_"
        counts[stem.casefold()] += 1
        number = counts[stem.casefold()]
        suffix = f"~{number}" if number > 1 else ""
        # The name is written in UTF-8 also under an ASCII locale, as in a cron job.
        name = os.fsdecode(f"{stem}{suffix}.md".encode())
        paths[folder / name] = entry
    return paths


def format_feedback(entry: StudentPoints, assignment: Assignment) -> str:
    """Return the feedback for one student in Markdown."""
    paragraphs = [
        f"# {_escape_markdown(f'{assignment.title}: {entry.student}')}",
        f"{entry.total:g} of {count(assignment.worth(), 'point')}{_format_lateness(entry.days_late)}.",
    ]
    for name, problem in list_problems(entry.rows).items():
        paragraphs += [f"Problems in {_escape_markdown(name)}:", f"> {_escape_markdown(problem)}"]
    has_several_files = len({row.submission for row in entry.rows}) > 1
    for attempt in entry.attempts:
        if attempt.row.is_answered:
            paragraphs += _format_attempt(attempt, assignment, has_several_files)
    unanswered = [row for row in entry.rows if not row.is_answered]
    if unanswered:
        worth = sum(sum(assignment.points[row.exercise].values()) for row in unanswered)
        lines = [f"- {row.exercise}: {_escape_markdown(_explain_missing(row))}" for row in unanswered]
        paragraphs.append("\n".join([f"Not answered, so 0 of {count(worth, 'point')}:", "", *lines]))
    return "\n\n".join(paragraphs) + "\n"


def _explain_missing(row: Row) -> str:
    """Return the reason why an exercise counts as not answered."""
    if not row.evidence:
        return f"the file gives no value to the name {row.exercise.replace('.', '_')}."
    is_above = row.problem.startswith(row.evidence)
    return "see the problems above." if is_above else row.evidence


def _format_lateness(days_late: int) -> str:
    """Return the end of the sentence about the points, such as "; 2 days late"."""
    return f"; {count(days_late, 'day')} late" if days_late else ""


def _format_attempt(attempt: Attempt, assignment: Assignment, has_several_files: bool) -> list[str]:
    """Return the paragraphs about one answer: its points, the feedback, and the reasons for the points."""
    row = attempt.row
    title, *lines = format_card(row).split("\n")
    worth = sum(assignment.points[row.exercise].values())
    heading = f"## {row.exercise}: {title} ({attempt.points:g} of {count(worth, 'point')})"
    reasons = [explain_outputs(row, assignment), _explain_lateness(attempt, assignment)]
    if has_several_files:
        rule = "best" if assignment.best else "last"
        reasons.append(f"This answer is in {row.submission}. The {rule} answer to each exercise counts.")
    return [heading, *(_escape_markdown(line) for line in [*lines, *reasons] if line)]


def _explain_lateness(attempt: Attempt, assignment: Assignment) -> str:
    """Return how many points are deducted because the file is late; "" if none are."""
    earned = compute_row_points(attempt.row, assignment)
    if attempt.points == earned:
        return ""
    days = count(attempt.days_late, "day")
    if attempt.points == 0:
        return f"The answer gives {count(earned, 'point')}, but no points remain {days} after the due date."
    deducted = count(earned - attempt.points, "point")
    return f"The answer gives {count(earned, 'point')}, minus {deducted} because the file is {days} late."


def _escape_markdown(text: str) -> str:
    """Escape the characters that have a meaning in Markdown, because students choose parts of the text."""
    return re.sub(r"([\\`*_{}\[\]<>#|~])", r"\\\1", text)


# --- the page -------------------------------------------------------------------------------------

COLOURS = '<i class="right"></i>correct <i class="wrong"></i>not yet <i class="none"></i>no answer'


def format_class_page(
    rows: Sequence[Row],
    class_points: Sequence[StudentPoints],
    owners: Owners,
    similar: list[Pair],
    assignment: Assignment,
    note: str = "",
) -> str:
    """Return the page about the class in HTML. It prints on two sheets and loads no other file."""
    present = [entry for entry in class_points if entry.rows]
    worth = assignment.worth()
    hints = [
        f"{first} and {second}: {share:.0%} of the shorter submission is also in the longer one"
        for share, first, second in similar
    ]
    problems = [f"{name}: {problem}" for name, problem in find_problems(rows).items()]
    first_sheet = {
        "Points, and how many students have them": _draw_points(present, worth),
        f'Exercises, the hardest first <span class="colours">{COLOURS}</span>': _draw_exercises(
            present, assignment
        ),
        "What to teach again, and how many students made a mistake there": _draw_topics(present),
    }
    second_sheet = {
        "Who needs help first": _draw_weak_students(present, worth),
        "To decide: these cases need a person": _format_lines(list_decisions(rows, owners)),
        "Similarity: a hint, not a verdict": _format_lines(hints),
        "Problems in files that were graded": _format_lines(problems),
    }
    overview = f"{len(present)} of {len(class_points)} students submitted; {format_overview(rows)}"
    head = "".join(f"<p>{escape(line)}</p>" for line in (overview, note) if line)
    sheets = [*_iter_sections(first_sheet), '<div class="sheet"></div>', *_iter_sections(second_sheet)]
    body = "\n".join([head, *sheets])
    return make_page("class", assignment.title, body, "@page { size: A4; margin: 13mm }")


def _iter_sections(sections: dict[str, list[str]]) -> Iterator[str]:
    """Yield the heading and the lines of each section. Sections without lines are left out."""
    for heading, lines in sections.items():
        if lines:
            yield f"<h2>{heading}</h2>"
            yield from lines


def _draw_bar(label: str, parts: Iterable[tuple[str, float]], maximum: float, text: str) -> str:
    """Return a bar with a label on its left and a text on its right.

    Each part is a pair of a CSS class (for the colour) and a number. A number equal to `maximum` fills the
    bar.
    """
    spans = []
    for css_class, number in parts:
        width = 100 * number / (maximum or 1)
        spans.append(f'<span class="{css_class}" style="width:{width:.1f}%"></span>')
    bar = f'<span class="bar">{"".join(spans)}</span>'
    return f'<div class="one"><b>{escape(label)}</b>{bar}<span class="n">{escape(text)}</span></div>'


def _draw_points(class_points: Sequence[StudentPoints], worth: float) -> list[str]:
    """Return the histogram of the points."""
    worth = worth or 1.0
    counts = Counter(min(int(entry.total / worth * BINS), BINS - 1) for entry in class_points)
    largest_count = max(counts.values(), default=1)
    edges = [i * worth / BINS for i in range(BINS + 1)]
    bars = []
    for i, (low, high) in enumerate(pairwise(edges)):
        text = str(counts[i]) if counts[i] else ""
        bars.append(_draw_bar(f"{low:g}–{high:g}", [("many", counts[i])], largest_count, text))
    return bars


def _draw_exercises(class_points: Sequence[StudentPoints], assignment: Assignment) -> list[str]:
    """Return a bar for each exercise with the correct and wrong answers. The hardest exercise comes first."""
    answered = [row for entry in class_points for row in entry.rows if row.is_answered]
    passed = Counter(row.exercise for row in answered if row.passed)
    wrong = Counter(row.exercise for row in answered if not row.passed)
    ids = sorted(assignment.points, key=lambda exercise_id: (passed[exercise_id], exercise_id))
    student_count = len(class_points) or 1
    bars = []
    for exercise_id in ids[:MAX_EXERCISES]:
        parts = [("right", passed[exercise_id]), ("wrong", wrong[exercise_id])]
        text = f"{passed[exercise_id] / student_count:.0%}"
        bars.append(_draw_bar(exercise_id, parts, student_count, text))
    lines = ['<div class="every">', *bars, "</div>"]
    if len(ids) > MAX_EXERCISES:
        lines.append(f"<p>{len(ids) - MAX_EXERCISES} more exercises are not shown.</p>")
    return lines


def _draw_topics(class_points: Sequence[StudentPoints]) -> list[str]:
    """Return a bar for each topic to teach again, followed by the topic's most common mistakes."""
    lines = []
    total = len(class_points)
    for topic in find_topics(class_points)[:MAX_TOPICS]:
        text = f"{topic.students} of {total}"
        lines.append(_draw_bar(f"Lesson {topic.section}", [("wrong", topic.students)], total, text))
        for mistake in topic.mistakes[:MAX_MISTAKES_PER_TOPIC]:
            exercise = f'<span class="id">{escape(mistake.exercise_id)}</span>'
            evidence = escape(mistake.evidence[:MAX_EVIDENCE_LENGTH])
            question = f'<span class="say">“{escape(mistake.question)}”</span>'
            lines.append(f"<p>{mistake.students} × {exercise}: {evidence} {question}</p>")
    return lines


def _draw_weak_students(class_points: Sequence[StudentPoints], worth: float) -> list[str]:
    """Return a bar for each student with less than half of the points, with exercises not yet correct."""
    weak = sorted((entry for entry in class_points if entry.total < worth / 2), key=lambda entry: entry.total)
    lines = []
    for entry in weak[:MAX_WEAK_STUDENTS]:
        ids = [row.exercise for row in entry.rows if not row.passed]
        more = f" and {len(ids) - MAX_IDS} more" if len(ids) > MAX_IDS else ""
        text = f"{entry.total:g} of {worth:g}"
        lines.append(_draw_bar(str(entry.student), [("right", entry.total)], worth, text))
        lines.append(f"<p>Not correct yet: {escape(', '.join(ids[:MAX_IDS]))}{more}</p>")
    return lines


def _format_lines(lines: list[str]) -> list[str]:
    """Return the first lines as paragraphs, and the number of lines that are left out."""
    shown = lines[:MAX_LINES]
    if len(lines) > MAX_LINES:
        shown.append(f"and {len(lines) - MAX_LINES} more")
    return [f"<p>{escape(line)}</p>" for line in shown]
