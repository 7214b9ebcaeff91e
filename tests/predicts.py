"""Every prediction of a lesson: its id, the question, the number of the cell that answers it, the answer."""

from typing import NamedTuple

from npformer.handouts.lesson_copies import named, source_of
from npformer.lessons.predictions import QUESTION, reveal


class Predict(NamedTuple):
    id: str
    question: str
    cell: int
    answer: str


def predicts(notebook):
    """In the order of reading; cells count from 0. The code cell after a question answers it."""
    cells, found = notebook["cells"], []
    for number, cell in enumerate(cells):
        if id := named(cell, "predict"):
            code = next(i for i in range(number + 1, len(cells)) if cells[i]["cell_type"] == "code")
            assert named(cells[code], "reveal") == id, f"the code cell after question {id} does not reveal it"
            found.append(Predict(id, source_of(cell).partition(QUESTION)[2].strip(), code, reveal(id).text))
    return found
