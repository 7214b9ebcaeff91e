"""Run the commands about exercises, such as `show` and `exam`. npformer.cli defines their options."""

from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path

from npformer.exercises import find_the_bug, list_exercises
from npformer.exercises import show as show_exercise
from npformer.handouts.assignments import make_assignment_files
from npformer.handouts.exam import draw_exam, make_exam_files
from npformer.handouts.homework import make_homework_files
from npformer.validation.output_files import check_output_file, check_output_folder, write_files


def exercises(options: Namespace) -> Iterator[str]:
    """Yield the list of all exercises as text."""
    yield str(list_exercises())


def show(options: Namespace) -> Iterator[str]:
    """Yield the text of one exercise, or the exercise's solution with one wrong line."""
    if options.bug:
        yield str(find_the_bug(options.id))
    else:
        yield str(show_exercise(options.id))


def assignment(options: Namespace) -> Iterator[str]:
    """Write an assignment notebook."""
    ids = parse_ids(options.exercises)
    notebook = check_output_file(options.out)
    yield from _write(make_assignment_files(ids, notebook, points=options.points, format=options.format))


def exam(options: Namespace) -> Iterator[str]:
    """Write an exam and its key. Without --force, no file is overwritten."""
    folder = check_output_folder(options.out)
    numbers = options.lessons.split(",") if options.lessons else []
    lessons = [number.strip().rjust(2, "0") for number in numbers]
    files = make_exam_files(draw_exam(options.seed, options.minutes, lessons), folder)
    _check_new(files, options)
    yield from _write(files)


def homework(options: Namespace) -> Iterator[str]:
    """Write the assignment files of the course. Without --force, no file is overwritten."""
    folder = check_output_folder(options.out)
    files = make_homework_files(folder, options.start)
    _check_new(files, options)
    yield from _write(files)


def _check_new(files: Iterable[Path], options: Namespace) -> None:
    """Raise ValueError if one of the files exists, unless the user chose --force."""
    for path in files:
        if path.exists() and not options.force:
            raise ValueError(f"{options.out!r} already contains {path.name!r}; --force overwrites it")


def _write(files: dict[Path, str]) -> Iterator[str]:
    """Write the files, and yield one line of output per file."""
    for path in write_files(files):
        yield f"written: {path}"


def parse_ids(chosen: str | None) -> list[str]:
    """Return the exercise ids of a comma-separated list, without repetitions; all ids if the list is empty.

    Raises ValueError if an exercise does not exist.
    """
    if not chosen:
        return [exercise.id for exercise in list_exercises()]
    ids: list[str] = []
    for text in chosen.split(","):
        exercise_id = text.strip().partition("@")[0]
        show_exercise(exercise_id)  # raises ValueError if the exercise does not exist
        ids.append(exercise_id)
    return list(dict.fromkeys(ids))
