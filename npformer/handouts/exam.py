"""Exams: an exam paper from the bank of exercises and a key with the answers, as pages and as notebooks.

The same seed always gives the same paper. For each duration, the four parts (remember, compute, find the
bug, derive) have a fixed number of questions. Topics alternate. The seed selects the numbers of a question
and the wrong line of a function, as a student's name does in an id such as `pe.entry@Ada`.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np

from npformer.exercises.answer_parsing import LETTERS
from npformer.exercises.assignment_file import WHOLE, Assignment, format_assignment
from npformer.exercises.bank import bank
from npformer.exercises.find_the_bug import draw_bug, rename_function
from npformer.exercises.task import RIGHT, Choice, Code, Numbers, Task, Truth, make_generator
from npformer.handouts.assignments import format_notebook, make_cell
from npformer.handouts.paper import make_page
from npformer.handouts.worksheet import KEY
from npformer.lessons.named_example import normalize_name

REMEMBER, COMPUTE, BUG, DERIVE = "Remember", "Compute", "Find the bug", "Derive"


class Part(NamedTuple):
    """One part of an exam paper."""

    points: int  # the points for each question; one point means one minute
    n_lines: int  # the number of lines for the answer
    instruction: str


PARTS = {
    REMEMBER: Part(1, 0, "One answer is correct."),
    COMPUTE: Part(3, 2, "The steps to the result count as well."),
    BUG: Part(5, 1, "One line of this function is wrong. Which (2 points)? What should it be (3 points)?"),
    DERIVE: Part(8, 6, "Derive it by hand (4 points), then write it in NumPy (4 points)."),
}
LENGTHS = {  # {minutes: the number of questions in each part}
    20: {REMEMBER: 4, COMPUTE: 1, BUG: 1, DERIVE: 1},
    45: {REMEMBER: 7, COMPUTE: 4, BUG: 2, DERIVE: 2},
    90: {REMEMBER: 13, COMPUTE: 11, BUG: 4, DERIVE: 3},
}


class Question(NamedTuple):
    """One exercise of the bank as a question in an exam, with the texts for pages and notebooks."""

    task: Task
    part: str
    text: str  # the question, with the numbers that the seed selects
    options: list[str]  # the options of a multiple-choice question
    given: str  # the notebook cell for the answer
    solved: str  # the notebook cell with the answer
    answer: str  # the answer on the printed key


# --- from an exercise to a question -----------------------------------------------------------------


def _make_question(task: Task, part: str, seed: str) -> Question:
    """Make a question from an exercise, with the numbers that the seed selects."""
    if isinstance(task, Code):
        return _make_code_question(task, part, seed)
    text, *options = _list_lines(task, seed)
    if isinstance(task, Truth):
        options = ["True", "False"]
    answer = _find_answer(task, seed)
    solved = f"{task.name} = {answer!r}\n"
    return Question(task, part, text, options, f"{task.name} = None\n", solved, str(answer))


def _make_code_question(task: Code, part: str, seed: str) -> Question:
    """Make a question about a function: derive its body, or find its wrong line."""
    text = _list_lines(task, seed)[0]
    if part == DERIVE:
        solution = rename_function(task, task.solution)
        stub = f"def {task.name}({task.signature}):\n    raise NotImplementedError\n"
        return Question(task, part, text, [], stub, solution, solution)
    bug = draw_bug(task, seed)
    purpose = f"What the function is for: {text}"
    answer = f"Line {bug.line} should be:\n{bug.right}"
    return Question(task, part, purpose, [], bug.text, bug.mended(), answer)


def _list_lines(task: Task, seed: str) -> list[str]:
    return [line.strip() for line in task.lines(seed)]


def _find_answer(task: Task, seed: str) -> object:
    """Return the correct answer to an exercise that does not ask for code."""
    if isinstance(task, Numbers):
        decimals = task.decimals or 6
        return np.round(task.posed(seed).answer, decimals).tolist()
    if isinstance(task, Truth):
        return task.right
    assert isinstance(task, Choice)
    return LETTERS[list(task.options.values()).index(RIGHT)]


def _format_points(part: str) -> str:
    """Return the points for a question in this part, such as "3 points"."""
    points = PARTS[part].points
    return "1 point" if points == 1 else f"{points} points"


# --- the paper --------------------------------------------------------------------------------------


class Exam(NamedTuple):
    """An exam paper."""

    seed: str
    minutes: int
    questions: list[Question]

    @property
    def title(self) -> str:
        """The title of the paper."""
        points = sum(PARTS[question.part].points for question in self.questions)
        return f"Exam, {self.minutes} minutes, {points} points"


def draw_exam(seed: str, minutes: int = 45, lessons: Sequence[str] = ()) -> Exam:
    """Draw an exam paper from a seed. Its questions are spread evenly over the topics.

    Parameters
    ----------
    seed : str
        Any word. Uppercase and lowercase letters give the same paper.
    minutes : int
        The duration: 20, 45 or 90.
    lessons : sequence of str
        The numbers of the lessons whose exercises may be drawn, such as "03". Empty means all lessons.

    Returns
    -------
    exam : Exam

    Raises
    ------
    ValueError
        If the seed is empty, if `minutes` has a different value, if a lesson does not exist, or if the
        lessons have too few exercises.

    Examples
    --------
    >>> Counter(question.part for question in draw_exam("monday", 20).questions)["Remember"]
    4
    """
    letters = normalize_name("draw_exam", seed)
    if minutes not in LENGTHS:
        raise ValueError(f"draw_exam: minutes is {minutes}; expected one of {', '.join(map(str, LENGTHS))}")
    _check_lessons(lessons)
    rng = make_generator(f"exam of {minutes} minutes@{letters}")
    questions: list[Question] = []
    topics: Counter[str] = Counter()  # the number of questions per topic so far
    for part, n_questions in reversed(LENGTHS[minutes].items()):
        pool = _list_pool(part, n_questions, lessons)
        shuffled = [pool[i] for i in rng.permutation(len(pool))]
        for task in _pick_tasks(shuffled, n_questions, topics):
            questions.append(_make_question(task, part, letters))
    return Exam(letters, minutes, _sort_questions(questions))


def _check_lessons(lessons: Sequence[str]) -> None:
    """Raise ValueError for a number that is not the number of a lesson with exercises."""
    known = {_find_lesson(task) for task in bank().values()}
    for number in lessons:
        if number not in known:
            expected = ", ".join(sorted(known))
            raise ValueError(f"draw_exam: lesson {number!r} has no exercises; expected some of {expected}")


def _find_lesson(task: Task) -> str:
    """Return the number of the lesson that teaches an exercise, such as "03"."""
    return task.teach[:2]


def _list_pool(part: str, n_questions: int, lessons: Sequence[str]) -> list[Task]:
    """Return the exercises that this part may contain. Raises ValueError if there are too few."""
    pool = [task for task in bank().values() if choose_part(task) == part]
    if lessons:
        pool = [task for task in pool if _find_lesson(task) in lessons]
    if len(pool) < n_questions:
        few = f"lessons {', '.join(lessons)} have {len(pool)}"
        needed = f"the part {part!r} needs {n_questions} exercises"
        raise ValueError(f"draw_exam: {needed}, but {few}; choose more lessons")
    return pool


def _pick_tasks(pool: Sequence[Task], n_tasks: int, topics: Counter[str]) -> list[Task]:
    """Pick exercises one by one, each from a topic with the fewest questions so far.

    Update the counts in `topics`.
    """
    remaining = list(pool)
    picked = []
    for _ in range(n_tasks):
        task = min(remaining, key=lambda candidate: topics[candidate.topic])
        remaining.remove(task)
        topics[task.topic] += 1
        picked.append(task)
    return picked


def _sort_questions(questions: Sequence[Question]) -> list[Question]:
    """Sort the questions by part. Within a part, keep the order of the bank: easy exercises first."""
    part_order = list(PARTS)
    bank_order = list(bank().values())

    def sort_key(question: Question) -> tuple[int, int]:
        return part_order.index(question.part), bank_order.index(question.task)

    return sorted(questions, key=sort_key)


def choose_part(task: Task) -> str:
    """Return the part of an exam to which an exercise belongs.

    Returns "" for an easy number exercise: it needs no calculation on paper, so exams do not use it.
    """
    if isinstance(task, Code):
        return DERIVE if task.id.endswith(".backward") else BUG
    if isinstance(task, Numbers):
        return COMPUTE if task.level > 1 else ""
    return REMEMBER


# --- the notebook -----------------------------------------------------------------------------------

OPENING = """\
# {}

Write your name between the quotation marks of `student = ""`. Replace each `None` by your answer. Write the
body of each empty function, and correct the wrong line of each complete function. Do not change `PAPER`. The
last cell counts the points.
"""
COUNT = """\
from npformer.exercises import check

POINTS = {}
correct = [name for name in POINTS if check(f"{{name}}@{{PAPER}}", globals()[name.replace(".", "_")])]
print("not correct:", *(name for name in POINTS if name not in correct))
print(sum(POINTS[name] for name in correct), "of", sum(POINTS.values()), "points")
"""


def make_exam_notebook(exam: Exam, key: bool = False) -> str:
    """Format an exam paper as a notebook.

    Parameters
    ----------
    exam : Exam
    key : bool
        Whether the cells contain the answers.

    Returns
    -------
    notebook : str
        The content of the .ipynb file.
    """
    setup = f'import math\n\nimport numpy as np\n\nPAPER = {exam.seed!r}\nstudent = ""\n'
    cells = [make_cell("markdown", OPENING.format(exam.title)), make_cell("code", setup)]
    for number, question in enumerate(exam.questions, start=1):
        heading = f"### {number}. {question.part} ({_format_points(question.part)})"
        paragraphs = [heading, PARTS[question.part].instruction, question.text, *question.options]
        cells.append(make_cell("markdown", "\n\n".join(paragraphs)))
        cells.append(make_cell("code", question.solved if key else question.given))
    points = {question.task.id: PARTS[question.part].points for question in exam.questions}
    cells.append(make_cell("code", COUNT.format(points)))
    return format_notebook(cells)


def make_exam_assignment(exam: Exam) -> str:
    """Format the points for the questions as an assignment file for `npformer grade --assignment`.

    Parameters
    ----------
    exam : Exam

    Returns
    -------
    assignment : str
        The content of the .toml file.
    """
    points = {question.task.id: {WHOLE: float(PARTS[question.part].points)} for question in exam.questions}
    return format_assignment(Assignment(points, exam.title, numbers=exam.seed))


# --- the page -------------------------------------------------------------------------------------

LINE = '<div class="line"></div>'


def make_exam_page(exam: Exam, key: bool = False) -> str:
    """Format an exam paper as an HTML page for printing.

    Parameters
    ----------
    exam : Exam
    key : bool
        Whether the page contains the answers instead of empty lines for the answers.

    Returns
    -------
    page : str
    """
    body = [f"<p>{KEY}</p>"] if key else list(_list_fields(exam))
    part = ""
    for number, question in enumerate(exam.questions, start=1):
        if question.part != part:
            part = question.part
            body.append(f'<h2>{part}</h2>\n<p class="quiet">{PARTS[part].instruction}</p>')
        points = f'<span class="worth">{_format_points(part)}</span>'
        body.append("<section>")
        body.append(f"<p>{points}{number}. {escape(question.text)}</p>")
        body += _list_options(question, key)
        body += _list_solution(question) if key else _list_gaps(question)
        body.append("</section>")
    return make_page("exam", f"{exam.title} ({exam.seed})", "\n".join(body), "@page { margin: 15mm }")


def _list_fields(exam: Exam) -> Iterator[str]:
    """Yield the HTML of the fields above the questions: the points, the name and the permitted aids."""
    total = sum(PARTS[question.part].points for question in exam.questions)
    yield f'<p class="total"><span></span> of {total} points</p>'
    yield f"<p>Name: {40 * '_'}</p>"
    yield f"<p>Permitted aids: {32 * '_'}</p>"


def _list_options(question: Question, key: bool) -> Iterator[str]:
    """Yield the options of a question, or the code with the wrong line."""
    for option in question.options:
        is_marked = key and option.startswith(question.answer)
        if is_marked:
            yield f'<p class="right">☒ {escape(option)}</p>'
        else:
            yield f"<p>☐ {escape(option)}</p>"
    if question.part == BUG:
        code_lines = enumerate(question.given.splitlines(), start=1)
        numbered = "\n".join(f"{i:2}  {line}" for i, line in code_lines)
        yield f"<pre>{escape(numbered)}</pre>"


def _list_solution(question: Question) -> Iterator[str]:
    """Yield the answer, and the lesson section that teaches the topic."""
    has_options = question.part == REMEMBER
    yield "" if has_options else f'<pre class="right">{escape(question.answer)}</pre>'
    yield f'<p class="quiet">{question.task.id}; lesson {escape(question.task.teach)}</p>'


def _list_gaps(question: Question) -> Iterator[str]:
    """Yield the HTML of the empty lines on which students write the answer."""
    lines = PARTS[question.part].n_lines * LINE
    yield "<p>Line ____ should be:</p>" if question.part == BUG else ""
    yield lines
    if question.part == DERIVE:
        signature = question.given.splitlines()[0]
        yield f"<pre>{escape(signature)}</pre>{lines}"


# --- the files ------------------------------------------------------------------------------------


def make_exam_files(exam: Exam, folder: Path) -> dict[Path, str]:
    """Format an exam and its key as pages and as notebooks, and the points as an assignment file.

    Parameters
    ----------
    exam : Exam
    folder : Path

    Returns
    -------
    files : dict of Path to str
        The content of each file. No file is written.
    """
    return {
        folder / "exam.toml": make_exam_assignment(exam),
        folder / "exam.html": make_exam_page(exam),
        folder / "exam.ipynb": make_exam_notebook(exam),
        folder / "exam-key.html": make_exam_page(exam, key=True),
        folder / "exam-key.ipynb": make_exam_notebook(exam, key=True),
    }
