"""Create the files of a new operation, exercise or section, or update the lists of exercises.

    uv run python tests/new.py operation NAME           a module of npformer/modern (--core: of npformer)
    uv run python tests/new.py exercise ID              an exercise, such as kl.backward
    uv run python tests/new.py section NUMBER TITLE     the last section of a lesson before its exercises
    uv run python tests/new.py exercises                update the lists after a change of an exercise

The first three commands create files and lines with marks where text or code is missing. Tests fail until
every mark is replaced. Each command prints the files that it writes and what to do next.
No new file replaces an existing one.

`exercises` writes the cells of notebooks/exercises.ipynb, the number of exercises in README.md and the table
of tests/data/confusion.md. It prints what it has written, and names the exercises that still
need example answers.
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "exercises"), str(ROOT / "tests" / "data")]

import make_confusion  # noqa: E402
from codings import CODE, list_codings  # noqa: E402
from scaffolds.exercise import KINDS, create_exercise  # noqa: E402
from scaffolds.files import CannotCreate  # noqa: E402
from scaffolds.operation import create_operation  # noqa: E402
from scaffolds.section import create_section  # noqa: E402

from npformer.exercises import check, list_exercises, result, show  # noqa: E402
from npformer.exercises.task import Choice, Code, Numbers, Truth  # noqa: E402

NOTEBOOK = ROOT / "notebooks" / "exercises.ipynb"
README = ROOT / "README.md"
# The least numbers of correct and wrong example answers (codings) of an exercise that asks for a function.
LEAST_CORRECT = 2
LEAST_WRONG = 5


# --- the notebook of exercises -----------------------------------------------------------------------


def text_of(task):
    """Return the text of a task with its options, or None if a code cell prints the task."""
    if isinstance(task, Numbers):
        return None
    begin = f"**{task.id}** (level {task.level}). {task.task}"
    if isinstance(task, Truth):
        return f"{begin} Answer with `True` or `False`."
    if isinstance(task, Choice):
        options = [f"- **{letter})** {text}" for letter, text in zip("abcdef", task.options, strict=False)]
        return "\n".join([f"{begin} Answer with a letter.", "", *options])
    return f"{begin} Answer with a function."


def code_of(task):
    """Return the text of the code cell in which a student answers."""
    name = task.name
    if isinstance(task, Code):
        return f'def {name}({task.signature}):\n    ...\n\n\ncheck("{task.id}", {name}, level=2)'
    if isinstance(task, Numbers):
        asked = f'f"{task.id}@{{student}}"'
        return f"print(show({asked}))\n{name} = None\ncheck({asked}, {name}, level=2)"
    return f'{name} = None\ncheck("{task.id}", {name}, level=2)'


def cells_of(task):
    """Return the cells of one exercise, with the output for a missing answer."""
    text = text_of(task)
    cells = []
    if text is not None:
        cells.append({"cell_type": "markdown", "metadata": {}, "source": lines_of(text)})
    outputs = []
    if isinstance(task, Numbers):
        printed = lines_of(f"{show(task.id)}\n")
        outputs.append({"name": "stdout", "output_type": "stream", "text": printed})
    outputs.append(unanswered(task))
    source = lines_of(code_of(task))
    cells.append({"cell_type": "code", "metadata": {}, "outputs": outputs, "source": source})
    return cells


def unanswered(task):
    """Return the output of `check` if the answer is still None."""
    answer = check(task.id, None, level=2)
    passed = set(result._passed)
    result._passed.clear()  # The output must not depend on exercises that were passed earlier.
    data = {"text/html": [answer._repr_html_()], "text/plain": [repr(answer)]}
    result._passed.update(passed)
    return {"data": data, "metadata": {}, "output_type": "execute_result"}


def lines_of(text):
    """Return the lines of a text as a list, because notebook files store texts in this form."""
    return text.splitlines(keepends=True)


def exercise_in(cell):
    """Return the id of the exercise to which a cell belongs, or "" if the cell belongs to no exercise."""
    source = "".join(cell["source"])
    pattern = r'check\(f?"([\w.]+)' if cell["cell_type"] == "code" else r"\*\*([\w.]+)\*\* \(level"
    found = re.search(pattern, source)
    return found[1] if found else ""


def notebook_text():
    """Return the text of the notebook of exercises; a new exercise comes last among those of its topic."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    tasks = {task.id: task for task in list_exercises()}
    cells = []
    done = []
    for cell in notebook["cells"]:
        exercise = exercise_in(cell)
        if exercise not in tasks:
            cells.append(cell)
        elif cell["cell_type"] == "code":
            cells += cells_of(tasks[exercise])
            done.append(exercise)
    for exercise in [exercise for exercise in tasks if exercise not in done]:
        index = index_for(tasks[exercise], tasks, cells)
        cells[index:index] = cells_of(tasks[exercise])
    notebook["cells"] = numbered(cells)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def index_for(task, tasks, cells):
    """Return the index at which the cells of a new exercise are inserted."""
    same_topic = [other.id for other in tasks.values() if other.topic == task.topic]
    indices = [i for i, cell in enumerate(cells) if exercise_in(cell) in same_topic]
    headings = [i for i, cell in enumerate(cells) if "".join(cell["source"]).startswith("## Find the bug")]
    return indices[-1] + 1 if indices else headings[0]


def numbered(cells):
    """Number the cells: each cell gets an id, and each code cell gets an execution count."""
    count = 0
    made = []
    for number, cell in enumerate(cells, start=1):
        cell = {**cell, "id": f"cell-{number:02}"}
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = [with_count(output, count) for output in cell["outputs"]]
        made.append(dict(sorted(cell.items())))
    return made


def with_count(output, count):
    """Return an output with sorted keys. The result of a cell also gets the execution count of the cell."""
    if output["output_type"] == "execute_result":
        output = {**output, "execution_count": count}
    return dict(sorted(output.items()))


# --- the other lists -----------------------------------------------------------------------------------


def readme_text():
    """Return the text of the README with the current number of exercises."""
    text = README.read_text(encoding="utf-8")
    link = "exercises](notebooks/exercises.ipynb)"
    return re.sub(rf"\[\d+ {re.escape(link)}", f"[{len(list_exercises())} {link}", text)


def lacking():
    """Yield a line for each exercise that has too few example answers (codings)."""
    for task in CODE:
        labels = [coding.label for coding in list_codings() if coding.exercise == task.id]
        wrong = sum(label in ("wrong", "unseen") for label in labels)
        correct = len(labels) - wrong
        if correct < LEAST_CORRECT or wrong < LEAST_WRONG:
            wanted = f"at least {LEAST_CORRECT} correct codings and {LEAST_WRONG} wrong ones"
            yield f"{task.id}: {wanted}; there are {correct} and {wrong}"


def refresh_exercises():
    """Write the notebook, README.md and confusion.md. Print what changed and which codings are missing."""
    texts = {NOTEBOOK: notebook_text(), README: readme_text(), make_confusion.FILE: make_confusion.table()}
    for path, text in texts.items():
        is_new = path.read_text(encoding="utf-8") != text
        path.write_text(text, encoding="utf-8")
        print(f"{'written' if is_new else 'unchanged'}: {path.relative_to(ROOT)}")
    for line in lacking():
        print(f"to write, in tests/exercises/codings: {line}")


# --- the command ---------------------------------------------------------------------------------------


def parser():
    """Return the parser of the command line."""
    raw = argparse.RawDescriptionHelpFormatter
    command = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    subcommands = command.add_subparsers(dest="command", required=True)
    operation = subcommands.add_parser("operation", help="create the files of an operation")
    operation.add_argument("name", help="such as rms_norm")
    operation.add_argument("--core", action="store_true", help="in npformer, not in npformer/modern")
    exercise = subcommands.add_parser("exercise", help="create the text and the code of an exercise")
    exercise.add_argument("id", help="such as kl.backward")
    exercise.add_argument("--kind", choices=KINDS, default="function", help="how it is answered")
    exercise.add_argument("--section", help="the section that teaches it, such as 07.2")
    exercise.add_argument("--file", help="the file of npformer/exercises/bank, such as loss")
    exercise.add_argument("--topic", help="the topic in the list of exercises, such as backward")
    exercise.add_argument("--level", type=int, choices=range(1, 6), default=2, help="1 is easy, 5 is hard")
    section = subcommands.add_parser("section", help="create the cells and the answer of a section")
    section.add_argument("number", help="such as 07.11")
    section.add_argument("title", help='such as "Beam search"')
    subcommands.add_parser("exercises", help="bring the lists in line with the bank")
    return command


def main():
    """Run the command `operation`, `exercise`, `section` or `exercises`."""
    options = parser().parse_args()
    try:
        if options.command == "operation":
            create_operation(options.name, options.core)
        elif options.command == "exercise":
            create_exercise(
                options.id, options.kind, options.section, options.file, options.topic, options.level
            )
        elif options.command == "section":
            create_section(options.number, options.title)
        else:
            refresh_exercises()
    except CannotCreate as error:
        sys.exit(f"nothing was written: {error}")


if __name__ == "__main__":
    main()
