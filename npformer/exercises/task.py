"""The parts of an exercise: four kinds of tasks, the listed mistakes, and the edits that make the mistakes.

The files in ``bank/`` build their exercises from these classes. An edit is a replacement in the text of the
solution. It makes a mutant of the solution: a wrong function with one listed mistake. The sentences about
mistakes are in mistakes.md. The modules of the checker (probe, detectors, checker, feedback) do not depend on
any topic.
"""

import hashlib
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, lru_cache
from itertools import combinations
from types import CodeType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises.answer_parsing import LETTERS
from npformer.exercises.probe import Arguments, Draws, Probe

LINE = 80  # characters per line; on a projector, a notebook breaks longer lines within words
APART = 10  # a known wrong answer differs from the correct answer by at least 10 tolerances
EXTRA_DRAWS = 10  # how many more questions are drawn if some known wrong answers are equal


class Place(NamedTuple):
    """The lesson section and the reading that explain a topic."""

    read: str  # a lesson or a paper with its section, as the student sees it
    teach: str  # the section of the lesson that teaches the topic


@dataclass(frozen=True, eq=False)
class Mistake:
    """A listed mistake and the sentences about it. No sentence contains the expected numbers."""

    code: str
    place: Place
    sees: str  # the observation: how the answer differs
    cause: str  # the likely cause of this observation
    question: str
    kind: str = "wrong"  # one of "wrong", "robustness", "variant", "convention", "precision" and "note"
    tolerance: float | None = (
        None  # the tolerance for a comparison with this mistake's output; None means the default
    )
    sees_in: dict[str, str] = field(default_factory=dict)  # {exercise id: a more specific observation}

    @property
    def passes(self) -> bool:
        """Whether an answer with this listed difference counts as correct."""
        return self.kind in ("variant", "convention", "precision")


class Wrong(NamedTuple):
    """A wrong option or a wrong number, with its feedback."""

    code: str  # the code of the mistake or confusion behind this answer
    says: str  # the feedback on this answer


RIGHT = Wrong("", "")  # stored instead of a `Wrong` for the correct option


class Edit:
    """Replacements in the text of a solution. The arguments are an old text, its new text, and so on."""

    def __init__(self, *words: str) -> None:
        self.pairs = list(zip(words[::2], words[1::2], strict=True))

    def of(self, text: str) -> str:
        """Apply the edit to a text. Raise ValueError if the text lacks one of the old texts."""
        for old, new in self.pairs:
            if old not in text:
                raise ValueError(f"the solution does not have {old!r}")
            text = text.replace(old, new)
        return text


def edit_either_line(*words: str) -> list[Edit]:
    """Make three edits from two replacements: both replacements, only the first, only the second."""
    first, second = words[:2], words[2:]
    return [Edit(*words), Edit(*first), Edit(*second)]


@cache
def _compile_text(text: str) -> CodeType:
    """Compile the text of a solution."""
    return compile(textwrap.dedent(text), "<a solution>", "exec")


def replace_result(solution: str, other: "str | Edit") -> Callable[..., Any]:
    """Make a function that returns a different result than the solution.

    Parameters
    ----------
    solution : str
        The text of the solution.
    other : str or Edit
        An expression to return instead, which may use the solution's variables; or an edit of the solution.

    Returns
    -------
    function : callable

    Examples
    --------
    >>> double = "def double(x):\\n    y = x + x\\n    return y"
    >>> replace_result(double, "y * y")(3)
    36
    """
    if isinstance(other, Edit):
        return compile_function(other.of(solution))
    text_before_return = solution.rpartition("return ")[0]
    return compile_function(f"{text_before_return}return {other}")


def compile_function(text: str) -> Callable[..., Any]:
    """Run a text, and return the last function that it defines. The text may use np and math."""
    names: dict[str, Any] = {"np": np, "math": math}
    exec(_compile_text(text), names)
    return list(names.values())[-1]


# --- the tasks -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Task:
    """One exercise. ``str(task)`` is the text of the exercise with the standard numbers."""

    id: str
    topic: str
    level: int  # the difficulty, from 1 to 5
    place: Place
    _: KW_ONLY
    task: str
    hint: str
    question: str  # asked in the feedback if no mistake was recognised
    kind: ClassVar[str] = ""
    answer_form: ClassVar[str] = ""  # a sentence such as "Answer with a letter."

    @property
    def name(self) -> str:
        """The id as a Python name: "pe.table" becomes "pe_table"."""
        return self.id.replace(".", "_")

    @property
    def read(self) -> str:
        """The lesson or paper in which the student can read about the topic."""
        return self.place.read

    @property
    def teach(self) -> str:
        """The section of the lesson that teaches the topic."""
        return self.place.teach

    def lines(self, name: str = "") -> list[str]:
        """Return the task with the numbers of this student, and then the options if there are any."""
        return [self.task]

    @property
    def title(self) -> str:
        """The id with the topic and the level."""
        return f"{self.id}  ({self.topic}, level {self.level})"

    def text(self, name: str = "") -> str:
        """Return the title, the task with the numbers of this student, and the form of the answer."""
        lines = [self.title]
        for part in (*self.lines(name), self.answer_form):
            lines += textwrap.wrap(part, LINE, break_on_hyphens=False)
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True, eq=False, kw_only=True)
class Choice(Task):
    """A question with several options. One option is correct."""

    options: dict[str, Wrong]  # {text of the option: its feedback}; RIGHT for the correct option
    kind = "choice"
    answer_form = "Answer with a letter."

    def lines(self, name: str = "") -> list[str]:
        """Return the task, and then each option with its letter."""
        lines = [self.task]
        for letter, option in zip(LETTERS, self.options, strict=False):
            lines.append(f"  {letter}) {option}")
        return lines


@dataclass(frozen=True, eq=False, kw_only=True)
class Truth(Task):
    """A statement that is true or false."""

    right: bool
    wrong: Wrong
    kind = "truth"
    answer_form = "Answer with True or False."


class Draw:
    """Draw the numbers for one student. Without a generator, the methods return the standard numbers."""

    def __init__(self, rng: np.random.Generator | None) -> None:
        self.rng = rng

    def integer(self, standard: int, low: int, high: int) -> int:
        """Draw an integer from `low` to `high`, both included."""
        if self.rng is None:
            return standard
        return int(self.rng.integers(low, high + 1))

    def row(self, standard: list[int], low: int = -3, high: int = 4) -> Array:
        """Draw integers from `low` to `high`, as many as the standard list has entries."""
        if self.rng is None:
            return np.array(standard)
        return self.rng.integers(low, high + 1, size=len(standard))

    def order(self, standard: list[int]) -> Array:
        """Draw a permutation of 0, 1, …, as long as the standard list."""
        if self.rng is None:
            return np.array(standard)
        return self.rng.permutation(len(standard))


class PosedQuestion(NamedTuple):
    """The question for one student: the given numbers, the correct answer and the known wrong answers."""

    given: dict[str, Any]  # {placeholder in the text of the task: the number that replaces it}
    answer: Any
    wrong: Mapping[Any, Any]  # {Mistake, Wrong or code of a mistake: the wrong answer}


@dataclass(frozen=True, eq=False, kw_only=True)
class Numbers(Task):
    """A task whose answer is a number or a list of numbers. Each student gets different numbers.

    In the text of the task, a placeholder such as {p} is replaced by the number with the name p.
    """

    draw: Callable[[Draw], PosedQuestion]
    decimals: int = 0  # the number of decimals that the answer needs; 0 for whole numbers

    @property
    def kind(self) -> str:  # type: ignore[override]
        """Return "number" or "vector"."""
        if np.ndim(self.posed().answer):
            return "vector"
        return "number"

    @property
    def answer_form(self) -> str:  # type: ignore[override]
        """The sentence that says in which form to answer."""
        if self.kind == "vector":
            return "Answer with a list of numbers."
        return "Answer with a number."

    def lines(self, name: str = "") -> list[str]:
        """Return the task with the numbers of this student."""
        given = self.posed(name).given
        numbers = {key: np.asarray(value).tolist() for key, value in given.items()}
        return [self.task.format(**numbers)]

    def posed(self, name: str = "") -> PosedQuestion:
        """Return the question for a student's name. The same name always gets the same numbers."""
        return _pose(self, name)

    @property
    def tolerance(self) -> float:
        """The largest error of a correct answer: a little more than half a unit of the last decimal."""
        decimals = self.decimals
        if decimals == 0:
            decimals = 3  # An answer in whole numbers has to be exact, so the tolerance is small.
        return 0.6 * 10.0**-decimals

    def has_distinct_wrong_answers(self, question: PosedQuestion) -> bool:
        """Return whether 0, 1 and every known wrong answer differ clearly from the correct answer."""
        right = np.asarray(question.answer, float)
        wrong_answers = [np.asarray(value, float) for value in question.wrong.values()]
        wrong_answers += [np.zeros_like(right), np.ones_like(right)]
        return all(self._is_far(wrong, right) for wrong in wrong_answers)

    def _is_far(self, wrong: Array, right: Array) -> bool:
        """Return whether a wrong answer has a wrong shape or a number that differs clearly."""
        if wrong.shape != right.shape:
            return True
        return bool(np.abs(wrong - right).max() > APART * self.tolerance)

    def count_equal_wrong_answers(self, question: PosedQuestion) -> int:
        """Count the pairs of known wrong answers that are equal within the tolerance."""
        wrong_answers = [np.asarray(value, float) for value in question.wrong.values()]
        return sum(self.are_equal(a, b) for a, b in combinations(wrong_answers, 2))

    def are_equal(self, a: Array, b: Array) -> bool:
        """Return whether two wrong answers are so close that one student's answer could fit both."""
        if a.shape != b.shape:
            return False
        return bool((np.abs(a - b) <= 2 * self.tolerance).all())


def make_generator(words: str) -> np.random.Generator:
    """Make a random generator from a text, whose hash is the seed."""
    digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng(list(digest))


@lru_cache(maxsize=256)
def _pose(task: Numbers, name: str) -> PosedQuestion:
    """Draw the numbers for a name. If possible, each known mistake leads to a different answer."""
    if not name:
        return task.draw(Draw(None))
    draw = Draw(make_generator(f"{task.id}@{name.casefold()}"))
    questions: list[PosedQuestion] = []
    counts: list[int] = []
    while len(questions) <= EXTRA_DRAWS:
        question = task.draw(draw)
        if not task.has_distinct_wrong_answers(question):
            continue
        count = task.count_equal_wrong_answers(question)
        if count == 0:
            return question
        questions.append(question)
        counts.append(count)
    return questions[counts.index(min(counts))]


@dataclass(frozen=True, eq=False, kw_only=True)
class Code(Task):
    """A task whose answer is a function. The checker compares the answer with the solution."""

    probe: Probe
    solution: str
    mistakes: dict[Mistake, list[Edit]]
    # {mistake: a call with extreme arguments}. The call reveals this mistake in an otherwise correct answer.
    hard: dict[Mistake, Arguments] = field(default_factory=dict)
    detectors: tuple[Any, ...] = ()  # extra detectors, which run before the detectors of call_detectors
    draw: Callable[[Draws], Arguments]  # draws the arguments of one call
    # The name of npformer's function for this task. "" means that the function is called ``name``. None means
    # that npformer has no such function.
    ours: str | None = ""
    kind = "code"

    @property
    def answer_form(self) -> str:  # type: ignore[override]
        """The sentence that says in which form to answer."""
        return f"Answer with a function {self.name}({self.signature}); it changes no argument."

    @property
    def signature(self) -> str:
        """The arguments of the function, separated by commas."""
        return self.probe.arguments

    @property
    def right(self) -> Callable[..., Any]:
        """The solution as a function. A test compares it with npformer or with finite differences."""
        return compile_function(self.solution)

    def wrong_functions(self) -> Iterator[tuple[Mistake, Callable[..., Any]]]:
        """Yield (mistake, wrong function) for each edit of each mistake."""
        for mistake, edits in self.mistakes.items():
            for edit in edits:
                yield mistake, compile_function(edit.of(self.solution))

    def edits(self, *codes: str) -> dict[str, list[Edit]]:
        """Return the edits of the mistakes with these codes, or of all mistakes if no code is given."""
        edits_by_code = {mistake.code: edits for mistake, edits in self.mistakes.items()}
        if not codes:
            return edits_by_code
        return {code: edits_by_code[code] for code in codes}

    def slips(self, *codes: str) -> dict[str, Callable[..., Any]]:
        """Return {code of a mistake: the wrong function that the mistake's first edit makes}."""
        functions = {}
        for code, edits in self.edits(*codes).items():
            functions[code] = compile_function(edits[0].of(self.solution))
        return functions
