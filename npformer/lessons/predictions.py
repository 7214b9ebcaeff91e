"""The predictions of a lesson: a question, the cell that answers it, and an answer shown below its output.

In a lesson's notebook the structure is in the cells' metadata. The markdown cell that ends with the question
has `{"npformer": {"predict": "3.2a"}}`, the code cell after it `{"npformer": {"reveal": "3.2a"}}`, and its
last line is `reveal("3.2a")`. The answers are not in the notebook: they are package data, a file a lesson,
`answers/03.md`, a heading an answer, `## 3.2a`.

Why a call, and neither a folded element nor hidden cells: what is not in the file cannot be seen too early,
in whichever program it is opened, and an output below a cell is the one thing that JupyterLab, Notebook 7,
VS Code, the browser edition and an exported page all show alike, in the order of reading; each was tried,
Colab was not. Hidden cells are a convention of one program each, and a page that folds lets a class read
ahead.
"""

import re
from typing import NamedTuple

ID = re.compile(r"(\d+)\.\d+[a-z]")
HEADING = re.compile(r"^## (\S+)$", flags=re.M)
QUESTION = "**Predict.**"


class Answer(NamedTuple):
    """The answer to one prediction: a notebook shows it as Markdown, a terminal as text."""

    text: str

    def _repr_markdown_(self) -> str:
        return f"**Answer.** {self.text}"

    def __repr__(self) -> str:
        return f"Answer. {self.text}"


def reveal(id: str) -> Answer:
    """The answer to prediction `id`, such as "3.2a": as the last line of a cell, it stands below the output.

    Raises TypeError unless id is a string, ValueError when there is no such answer.

    >>> reveal("1.1a")
    Answer. Yes. A sum does not care about order: both sentences are one **bag of words**.
    """
    if not isinstance(id, str):
        raise TypeError(f"reveal: id is a {type(id).__name__}; expected a string such as '1.1a'")
    named = ID.fullmatch(id)
    found = answers(int(named[1])) if named else {}
    if id not in found:
        known = f"that lesson has {', '.join(found)}" if found else "an id is such as '1.1a'"
        raise ValueError(f"reveal: there is no answer {id!r}; {known}")
    return Answer(found[id])


def answers(lesson: int) -> dict[str, str]:
    """{id: answer} of a lesson, in the file's order; none for a lesson without such a file.

    >>> list(answers(1))[:2], answers(99)
    (['1.1a', '1.1b'], {})
    """
    from importlib import resources

    file = resources.files("npformer.lessons").joinpath(f"answers/{lesson:02}.md")
    if not file.is_file():
        return {}
    _, *parts = HEADING.split(file.read_text(encoding="utf-8"))
    return {id: text.strip() for id, text in zip(parts[::2], parts[1::2], strict=True)}
