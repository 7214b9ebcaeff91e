"""What the commands exercises, show, assignment and exam do; what can be typed is in npformer.cli."""

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from npformer.exercises import find_the_bug, list_exercises
from npformer.exercises import show as show_exercise
from npformer.handouts.assignments import assignment_files
from npformer.handouts.exam import draw_exam, exam_files
from npformer.validation.output_files import folder_for, place_for, write_files


def exercises(options: Namespace) -> Iterator[str]:
    """The bank."""
    yield str(list_exercises())


def show(options: Namespace) -> Iterator[str]:
    """One exercise, or its solution with one wrong line."""
    yield str(find_the_bug(options.id) if options.bug else show_exercise(options.id))


def assignment(options: Namespace) -> Iterator[str]:
    """A notebook to hand out."""
    ids, out = ids_of(options.exercises), place_for(options.out)
    yield from _written(assignment_files(ids, out, points=options.points, format=options.format))


def exam(options: Namespace) -> Iterator[str]:
    """An exam and its key."""
    folder = folder_for(options.out)
    lessons = [f"{number.strip():0>2}" for number in options.lessons.split(",")] if options.lessons else []
    files = exam_files(draw_exam(options.seed, options.minutes, lessons), folder)
    if not options.force and (there := [path.name for path in files if path.exists()]):
        raise ValueError(f"{options.out!r} holds {there[0]!r}, which stays; --force writes it anew")
    yield from _written(files)


def _written(files: dict[Path, str]) -> Iterator[str]:
    yield from (f"written: {path}" for path in write_files(files))


def ids_of(chosen: str | None) -> list[str]:
    """Exercises by their ids with commas between, or all of them; ValueError where there is no such one."""
    if not chosen:
        return [exercise.id for exercise in list_exercises()]
    ids = [each.strip().partition("@")[0] for each in chosen.split(",")]
    for exercise_id in ids:
        show_exercise(exercise_id)  # raises ValueError for one that the bank does not have
    return list(dict.fromkeys(ids))
