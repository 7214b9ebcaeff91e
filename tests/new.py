"""Bring the lists of the exercises in line with the bank, after an exercise was added or changed.

    uv run python tests/new.py exercises

writes the cells of notebooks/exercises.ipynb, the number of exercises in README.md and the table of
tests/data/confusion.md, says what it has written, and names the exercises that still lack codings.
"""

import argparse
import json
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "exercises"), str(ROOT / "tests" / "data")]

import make_confusion  # noqa: E402
from codings import CODE, codings  # noqa: E402

from npformer.exercises import check, list_exercises, result, show  # noqa: E402
from npformer.exercises.task import Choice, Code, Numbers, Truth  # noqa: E402

NOTEBOOK, README = ROOT / "notebooks" / "exercises.ipynb", ROOT / "README.md"
LEAST_CORRECT, LEAST_WRONG = 2, 5  # codings of an exercise that asks for a function


# --- the students' copy ------------------------------------------------------------------------------


def text_of(task):
    """The task as a paragraph, with its options; None where a code cell prints it with own numbers."""
    if isinstance(task, Numbers):
        return None
    begin = f"**{task.id}** (level {task.level}). {task.task}"
    if isinstance(task, Truth):
        return f"{begin} `True` or `False`."
    if isinstance(task, Choice):
        options = [f"- **{letter})** {text}" for letter, text in zip("abcdef", task.options, strict=False)]
        return "\n".join([f"{begin} A letter.", "", *options])
    return f"{begin} A function."


def code_of(task):
    """The code cell in which a student answers."""
    name = task.name
    if isinstance(task, Code):
        return f'def {name}({task.signature}):\n    ...\n\n\ncheck("{task.id}", {name}, level=2)'
    if isinstance(task, Numbers):
        asked = f'f"{task.id}@{{student}}"'
        return f"print(show({asked}))\n{name} = None\ncheck({asked}, {name}, level=2)"
    return f'{name} = None\ncheck("{task.id}", {name}, level=2)'


def cells_of(task):
    """The cells of one exercise, with what an unanswered one prints."""
    text, cells = text_of(task), []
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
    """What a notebook shows of an answer that is still None."""
    answer, passed = check(task.id, None, level=2), set(result._passed)
    result._passed.clear()  # a notebook begins with none
    data = {"text/html": [answer._repr_html_()], "text/plain": [repr(answer)]}
    result._passed.update(passed)
    return {"data": data, "metadata": {}, "output_type": "execute_result"}


def lines_of(text):
    """Text as a notebook's file has it."""
    return text.splitlines(keepends=True)


def exercise_in(cell):
    """The id of the exercise that a cell of the notebook belongs to; "" of another cell."""
    source = "".join(cell["source"])
    pattern = r'check\(f?"([\w.]+)' if cell["cell_type"] == "code" else r"\*\*([\w.]+)\*\* \(level"
    found = re.search(pattern, source)
    return found[1] if found else ""


def notebook_text():
    """The notebook's file with the cells of every exercise; a new one comes after those of its topic."""
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    tasks = {task.id: task for task in list_exercises()}
    cells, done = [], []
    for cell in notebook["cells"]:
        exercise = exercise_in(cell)
        if exercise not in tasks:
            cells.append(cell)
        elif cell["cell_type"] == "code":
            cells += cells_of(tasks[exercise])
            done.append(exercise)
    for exercise in [exercise for exercise in tasks if exercise not in done]:
        place = place_for(tasks[exercise], tasks, cells)
        cells[place:place] = cells_of(tasks[exercise])
    notebook["cells"] = numbered(cells)
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def place_for(task, tasks, cells):
    """Where the cells of a new exercise go."""
    same_topic = [other.id for other in tasks.values() if other.topic == task.topic]
    places = [i for i, cell in enumerate(cells) if exercise_in(cell) in same_topic]
    headings = [i for i, cell in enumerate(cells) if "".join(cell["source"]).startswith("## Find the bug")]
    return places[-1] + 1 if places else headings[0]


def numbered(cells):
    """The cells with ids and execution counts in order."""
    count, made = 0, []
    for number, cell in enumerate(cells, start=1):
        cell = {**cell, "id": f"cell-{number:02}"}
        if cell["cell_type"] == "code":
            count += 1
            cell["execution_count"] = count
            cell["outputs"] = [with_count(output, count) for output in cell["outputs"]]
        made.append(dict(sorted(cell.items())))
    return made


def with_count(output, count):
    """An output with the execution count that it needs."""
    numbered_output = {**output, "execution_count": count}
    return dict(sorted((numbered_output if output["output_type"] == "execute_result" else output).items()))


# --- the other lists -----------------------------------------------------------------------------------


def readme_text():
    """The README with the number of exercises."""
    text = README.read_text(encoding="utf-8")
    link = "exercises](notebooks/exercises.ipynb)"
    return re.sub(rf"\[\d+ {re.escape(link)}", f"[{len(list_exercises())} {link}", text)


def lacking():
    """A line for each exercise that has too few codings."""
    for task in CODE:
        labels = [coding.label for coding in codings() if coding.exercise == task.id]
        wrong = sum(label in ("wrong", "unseen") for label in labels)
        correct = len(labels) - wrong
        if correct < LEAST_CORRECT or wrong < LEAST_WRONG:
            wanted = f"at least {LEAST_CORRECT} correct codings and {LEAST_WRONG} wrong ones"
            yield f"{task.id}: {wanted}; there are {correct} and {wrong}"


def refresh_exercises():
    """Write the three files, and say what was written and what is missing."""
    texts = {NOTEBOOK: notebook_text(), README: readme_text(), make_confusion.FILE: make_confusion.table()}
    for path, text in texts.items():
        is_new = path.read_text(encoding="utf-8") != text
        path.write_text(text, encoding="utf-8")
        print(f"{'written' if is_new else 'unchanged'}: {path.relative_to(ROOT)}")
    for line in lacking():
        print(f"to write, in tests/exercises/codings: {line}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["exercises"])
    parser.parse_args()
    refresh_exercises()
