"""Read the predictions of a lesson: the id, the question, the cell that answers it, and the answer."""

from typing import NamedTuple

from npformer.handouts.lesson_copies import get_entry, get_source
from npformer.lessons.predictions import QUESTION, reveal


class Predict(NamedTuple):
    id: str
    question: str
    cell: int  # the index of the code cell that answers the question
    answer: str


def predicts(notebook):
    """Return the predictions of a notebook in order. The first code cell after a question answers it."""
    cells = notebook["cells"]
    found = []
    for i, cell in enumerate(cells):
        id = get_entry(cell, "predict")
        if id:
            code_cell = next(j for j in range(i + 1, len(cells)) if cells[j]["cell_type"] == "code")
            reveals_answer = get_entry(cells[code_cell], "reveal") == id
            assert reveals_answer, f"the code cell after question {id} does not reveal it"
            question = get_source(cell).partition(QUESTION)[2].strip()
            found.append(Predict(id, question, code_cell, reveal(id).text))
    return found
