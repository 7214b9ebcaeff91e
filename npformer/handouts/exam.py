"""Exams: a paper drawn from the bank, the same for the same seed, and its key, for pencil and notebook.

Each length has its number of questions to remember, to compute, to find the bug and to derive; topics take
turns. A number, or a function's wrong line, is drawn for the seed as it is for a student's name.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np

from npformer.exercises.answer_parsing import LETTERS
from npformer.exercises.assignment_file import WHOLE, Assignment, written
from npformer.exercises.bank import bank
from npformer.exercises.find_the_bug import bug_of, under_its_name
from npformer.exercises.task import RIGHT, Choice, Code, Numbers, Task, Truth, generator
from npformer.handouts.assignments import cell, notebook_of
from npformer.handouts.paper import paper
from npformer.handouts.worksheet import KEY
from npformer.lessons.named_example import letters_of

REMEMBER, COMPUTE, BUG, DERIVE = "Remember", "Compute", "Find the bug", "Derive"


class Part(NamedTuple):
    """One part of a paper: a mark is a minute."""

    marks: int
    room: int  # lines to write on
    asks: str


PARTS = {
    REMEMBER: Part(1, 0, "One answer is right."),
    COMPUTE: Part(3, 2, "The way to the number counts as well."),
    BUG: Part(5, 1, "One line of this function is not right: which (2 marks), and what should it be (3)?"),
    DERIVE: Part(8, 6, "Derive it by hand (4 marks), then write it in lines of NumPy (4)."),
}
LENGTHS = {  # minutes: how many questions of each part
    minutes: dict(zip(PARTS, many, strict=True))
    for minutes, many in {20: (4, 1, 1, 1), 45: (7, 4, 2, 2), 90: (13, 11, 4, 3)}.items()
}


class Question(NamedTuple):
    """One exercise of the bank as this paper asks it; pages and notebooks are made of these words."""

    task: Task
    part: str
    text: str  # what is asked, with the seed's numbers
    options: list[str]  # what can be chosen
    given: str  # a notebook's cell, which waits for the answer
    solved: str  # or has it
    answer: str  # on paper


def _question(task: Task, part: str, seed: str) -> Question:
    text, *options = (line.strip() for line in task.lines(seed))
    if isinstance(task, Code):
        right, bug = under_its_name(task, task.solution), bug_of(task, seed)
        if part == DERIVE:
            stub = f"def {task.name}({task.signature}):\n    raise NotImplementedError\n"
            return Question(task, part, text, [], stub, right, right)
        text, line = f"What the function is for: {text}", f"Line {bug.line} should be:\n{bug.right}"
        return Question(task, part, text, [], bug.text, bug.mended(), line)
    if isinstance(task, Numbers):
        answer = np.round(task.posed(seed).answer, task.decimals or 6).tolist()
    elif isinstance(task, Truth):
        answer, options = task.right, ["True", "False"]
    else:
        assert isinstance(task, Choice)
        answer = LETTERS[list(task.options.values()).index(RIGHT)]
    solved = f"{task.name} = {answer!r}\n"
    return Question(task, part, text, options, f"{task.name} = None\n", solved, str(answer))


def _worth(part: str) -> str:
    marks = PARTS[part].marks
    return f"{marks} mark{'s' * (marks > 1)}"


class Exam(NamedTuple):
    """A paper."""

    seed: str
    minutes: int
    questions: list[Question]

    @property
    def title(self) -> str:
        """What stands above it."""
        return f"Exam, {self.minutes} minutes, {sum(PARTS[each.part].marks for each in self.questions)} marks"


def draw_exam(seed: str, minutes: int = 45, lessons: Sequence[str] = ()) -> Exam:
    """The paper of a seed: topics take turns, easy questions come first. Lessons are such as "03".

    Raises ValueError for an empty seed, another length, and lessons that have too few exercises for it.

    >>> Counter(question.part for question in draw_exam("monday", 20).questions)["Remember"]
    4
    """
    letters = letters_of("draw_exam", seed)
    if minutes not in LENGTHS:
        raise ValueError(f"{minutes} minutes; expected one of {', '.join(map(str, LENGTHS))}")
    known = {task.teach[:2] for task in bank().values()}
    if unknown := [number for number in lessons if number not in known]:
        raise ValueError(f"there is no lesson {unknown[0]!r}; expected some of {', '.join(sorted(known))}")
    rng = generator(f"exam of {minutes} minutes@{letters}")
    topics, questions = Counter[str](), list[Question]()
    for part, many in reversed(LENGTHS[minutes].items()):
        pool = [task for task in bank().values() if part_of(task) == part]
        pool = [task for task in pool if not lessons or task.teach[:2] in lessons]
        if len(pool) < many:
            few = f"of lessons {', '.join(lessons)} there are {len(pool)}"
            raise ValueError(f"{many} questions are due under {part!r}; {few}: choose more lessons")
        pool = [pool[i] for i in rng.permutation(len(pool))]
        for _ in range(many):
            task = min(pool, key=lambda task: topics[task.topic])
            pool.remove(task)
            topics[task.topic] += 1
            questions.append(_question(task, part, letters))
    in_bank, parts = list(bank().values()), list(PARTS)
    questions.sort(key=lambda each: (parts.index(each.part), in_bank.index(each.task)))
    return Exam(letters, minutes, questions)


def part_of(task: Task) -> str:
    """Where an exercise stands on a paper, if it does: a number that needs no pencil is none to compute."""
    if isinstance(task, Code):
        return DERIVE if task.id.endswith(".backward") else BUG
    if isinstance(task, Numbers):
        return COMPUTE if task.level > 1 else ""
    return REMEMBER


# --- the notebook -----------------------------------------------------------------------------------

OPENING = """\
# {}

Write your name over `""`, and each answer over `None`, into the function's body, or over the line that is not
right. Leave `PAPER` as it is. The last cell counts the marks.
"""
COUNT = """\
from npformer.exercises import check

MARKS = {}
right = [each for each in MARKS if check(f"{{each}}@{{PAPER}}", globals()[each.replace(".", "_")])]
print("not right:", *(each for each in MARKS if each not in right))
print(sum(MARKS[each] for each in right), "of", sum(MARKS.values()), "marks")
"""


def exam_notebook(exam: Exam, key: bool = False) -> str:
    """The paper as a notebook's file: with places for the answers, or with the answers."""
    cells = [
        cell("markdown", OPENING.format(exam.title)),
        cell("code", f'import math\n\nimport numpy as np\n\nPAPER = {exam.seed!r}\nstudent = ""\n'),
    ]
    for number, each in enumerate(exam.questions, start=1):
        heading = f"### {number}. {each.part} ({_worth(each.part)})"
        words = [heading, PARTS[each.part].asks, each.text, *each.options]
        cells += [cell("markdown", "\n\n".join(words)), cell("code", each.solved if key else each.given)]
    marks_of = {question.task.id: PARTS[question.part].marks for question in exam.questions}
    return notebook_of([*cells, cell("code", COUNT.format(marks_of))])


def exam_points(exam: Exam) -> str:
    """The marks as `npformer grade --assignment` reads them."""
    worth = {question.task.id: {WHOLE: float(PARTS[question.part].marks)} for question in exam.questions}
    return written(Assignment(worth, exam.title, numbers=exam.seed))


# --- the page -------------------------------------------------------------------------------------

LINE = '<div class="line"></div>'


def exam_page(exam: Exam, key: bool = False) -> str:
    """The paper as a page of HTML to print, with room to answer, or with the answers."""
    body, part = [f"<p>{KEY if key else 'Name: ' + 40 * '_'}</p>"], ""
    for number, each in enumerate(exam.questions, start=1):
        if part != (part := each.part):
            body.append(f'<h2>{part}</h2>\n<p class="quiet">{PARTS[part].asks}</p>')
        asked = f'<p><span class="worth">{_worth(part)}</span>{number}. {escape(each.text)}</p>'
        body += ["<section>", asked, *_answered(each, key), "</section>"]
    return paper("exam", f"{exam.title} ({exam.seed})", "\n".join(body), "@page { margin: 15mm }")


def _answered(each: Question, key: bool) -> Iterator[str]:
    """Where to answer; or what is right, and the section that teaches it."""
    for text in each.options:
        right = key and text.startswith(each.answer)
        yield f'<p class="right">☒ {escape(text)}</p>' if right else f"<p>☐ {escape(text)}</p>"
    if each.part == BUG:
        lines = enumerate(each.given.splitlines(), start=1)
        yield f"<pre>{escape(chr(10).join(f'{i:2}  {line}' for i, line in lines))}</pre>"
    if key:
        yield f'<pre class="right">{escape(each.answer)}</pre>' if each.part != REMEMBER else ""
        yield f'<p class="quiet">{each.task.id}; lesson {escape(each.task.teach)}</p>'
        return
    yield "<p>Line ____ should be:</p>" if each.part == BUG else ""
    yield PARTS[each.part].room * LINE
    if each.part == DERIVE:
        yield f"<pre>{escape(each.given.splitlines()[0])}</pre>" + PARTS[DERIVE].room * LINE


def exam_files(exam: Exam, folder: Path) -> dict[Path, str]:
    """Paper and key as page and as notebook, and the points."""
    files = {"exam.toml": exam_points(exam)}
    for name, key in (("exam", False), ("exam-key", True)):
        files |= {f"{name}.html": exam_page(exam, key), f"{name}.ipynb": exam_notebook(exam, key)}
    return {folder / name: text for name, text in files.items()}
