"""Run the command `quiz`. npformer.cli defines its options."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from npformer.exercises.assignment_file import Assignment, read_assignment
from npformer.exercises.bank import bank
from npformer.exercises.task import Code
from npformer.handouts.exercise_commands import parse_ids
from npformer.lessons.named_example import normalize_name
from npformer.quiz.canvas_qti import write_canvas_package
from npformer.quiz.moodle_xml import write_moodle_xml
from npformer.quiz.qti_21 import write_qti_21_package
from npformer.quiz.quiz_questions import QuizCategory, make_categories, name_variants
from npformer.validation.output_files import check_output_file, write_files

SUFFIXES = {"moodle": ".xml", "qti": ".zip", "qti21": ".zip"}


def quiz(options: Namespace) -> Iterator[str]:
    """Write a quiz. Yield the points and variants of each exercise, and the exercises that are left out."""
    file = check_output_file(options.out, SUFFIXES[options.format])
    seed = normalize_name("quiz: --seed", options.seed)
    assignment = Assignment({}, title="npformer")
    if options.assignment:
        assignment = read_assignment(Path(options.assignment))
    for text in (seed, assignment.title, assignment.numbers):
        if not text.isprintable():
            raise ValueError(f"{text!r} has a character that XML cannot contain")
    chosen = parse_ids(",".join(options.ids)) if options.ids else []
    points, left_out = _find_points(assignment, chosen)
    # An assignment whose numbers are the same for every student has one variant.
    names = [assignment.numbers] if assignment.numbers else name_variants(seed, options.variants)
    categories = make_categories(points, names, options.variants)
    content: str | bytes
    if options.format == "moodle":
        content = write_moodle_xml(categories)
    elif options.format == "qti":
        content = write_canvas_package(categories, assignment.title)
    else:
        content = write_qti_21_package(categories, assignment.title)
    yield from _report_categories(categories)
    if left_out:
        yield f"left out, because a quiz cannot check a function: {', '.join(left_out)}"
    for path in write_files({file: content}):
        yield f"written: {path}"


def _find_points(assignment: Assignment, chosen: list[str]) -> tuple[dict[str, float], list[str]]:
    """Return the points for each exercise of the quiz, and the exercises that are left out.

    A chosen exercise that asks for a function is not left out here, so `make_categories` rejects it.
    """
    points = {exercise_id: sum(parts.values()) for exercise_id, parts in assignment.points.items()}
    if not points:
        points = dict.fromkeys(bank(), 1.0)
    for exercise_id in chosen:
        if exercise_id not in points:
            raise ValueError(f"the assignment gives no points for {exercise_id}")
    if chosen:
        return {exercise_id: points[exercise_id] for exercise_id in chosen}, []
    left_out = [exercise_id for exercise_id in points if isinstance(bank()[exercise_id], Code)]
    kept = {exercise_id: worth for exercise_id, worth in points.items() if exercise_id not in left_out}
    if not kept:
        raise ValueError(f"a quiz cannot check a function, and {', '.join(left_out)} ask for one")
    return kept, left_out


def _report_categories(categories: list[QuizCategory]) -> Iterator[str]:
    """Yield one line for each exercise: its points and the number of its variants."""
    for category in categories:
        points = _count(f"{category.points:g}", "point")
        yield f"{category.exercise_id}: {points}, {_count(str(len(category.questions)), 'variant')}"


def _count(number: str, noun: str) -> str:
    """Return a number with a noun, such as "1 point" or "2 points"."""
    return f"{number} {noun}" if number == "1" else f"{number} {noun}s"
