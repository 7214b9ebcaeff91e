"""The predictions of a lesson: a question, the cell that answers it, and an answer below the cell's output.

The structure is in the metadata of a lesson's cells. The markdown cell that ends with a question has
`{"npformer": {"predict": "3.2a"}}`. The code cell after it has `{"npformer": {"reveal": "3.2a"}}`, and its
last line is `reveal("3.2a")`. The answers are not in the notebook but in the package: one file per lesson,
`answers/03.md`, with one heading per answer, `## 3.2a`.

A function call shows each answer. There are two reasons not to use a hidden cell or a text to click open.
First, a notebook file without the answers cannot show an answer too early in any program. Second, JupyterLab,
Notebook 7, VS Code, the browser edition and an exported page all show the output of a cell in the same way.
(All of these were tested; Colab was not.) Hidden cells work differently in each program, and students can
open a hidden text too early.
"""

import re
from typing import NamedTuple

ID = re.compile(r"(\d+)\.\d+[a-z]")
HEADING = re.compile(r"^## (\S+)$", flags=re.M)
QUESTION = "**Predict.**"


class Answer(NamedTuple):
    """The answer to one prediction. A notebook shows it as Markdown, a terminal as text."""

    text: str

    def _repr_markdown_(self) -> str:
        return f"**Answer.** {self.text}"

    def __repr__(self) -> str:
        return f"Answer. {self.text}"


def reveal(id: str) -> Answer:
    """Return the answer to a prediction. A cell that ends with this call shows the answer below its output.

    Parameters
    ----------
    id : str
        The id of the prediction: "3.2a".

    Returns
    -------
    answer : Answer

    Raises
    ------
    ValueError
        If there is no answer with this id.

    Examples
    --------
    >>> reveal("1.1a")
    Answer. Yes. A sum does not depend on the order: both sentences are the same **bag of words**.
    """
    if not isinstance(id, str):
        raise TypeError(f"reveal: id is a {type(id).__name__}; expected a string such as '1.1a'")
    match = ID.fullmatch(id)
    answers_of_lesson = answers(int(match[1])) if match else {}
    if id not in answers_of_lesson:
        hint = "an id is such as '1.1a'"
        if answers_of_lesson:
            hint = f"that lesson has {', '.join(answers_of_lesson)}"
        raise ValueError(f"reveal: there is no answer {id!r}; {hint}")
    return Answer(answers_of_lesson[id])


def answers(lesson: int) -> dict[str, str]:
    """Return the answers of a lesson by id, in the order of the file; {} if the lesson has no file.

    Parameters
    ----------
    lesson : int
        The number of the lesson.

    Examples
    --------
    >>> list(answers(1))[:2], answers(99)
    (['1.1a', '1.1b'], {})
    """
    from importlib import resources

    file = resources.files("npformer.lessons").joinpath(f"answers/{lesson:02}.md")
    if not file.is_file():
        return {}
    _, *parts = HEADING.split(file.read_text(encoding="utf-8"))  # id, answer, id, answer, …
    ids, texts = parts[::2], parts[1::2]
    return {id: text.strip() for id, text in zip(ids, texts, strict=True)}
