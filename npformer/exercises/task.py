"""What a topic is written in: places to read, mistakes, edits of a solution, and four kinds of tasks.

A mistake is an edit of the solution's text. What is said about it is written once, in mistakes.md; the
checker itself (probe, detectors, checker, feedback) knows no topic.
"""

import hashlib
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cache, lru_cache
from itertools import chain, combinations, islice
from types import CodeType
from typing import Any, ClassVar, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Arguments, Draws, Probe

LINE = 80  # letters in a line: a notebook on a stage shows no more, and breaks longer ones within words
APART = 10  # how many tolerances a known wrong answer is away from the right one


class Place(NamedTuple):
    """Where a student reads on, and the section of a lesson that teaches it."""

    read: str
    teach: str


@dataclass(frozen=True, eq=False)
class Mistake:
    """A listed mistake; its sentences, which never hold the expected numbers, are for `feedback` alone."""

    code: str
    place: Place
    sees: str  # the observation
    cause: str  # what such a pattern comes from
    question: str
    kind: str = "wrong"  # wrong, robustness, variant, convention, precision or note
    tolerance: float | None = None  # how near an answer has to be to the mistake's own, if not as usual
    sees_in: dict[str, str] = field(default_factory=dict)  # other observations, in exercises by their ids

    @property
    def passes(self) -> bool:
        """Whether an answer with this form is correct all the same."""
        return self.kind in ("variant", "convention", "precision")


class Wrong(NamedTuple):
    """A wrong option or number: the code of the mistake or confusion that it shows, and what to say."""

    code: str
    says: str


RIGHT = Wrong("", "")  # the right option


class Edit:
    """Words of the solution and what a mistake writes in their place, in pairs."""

    def __init__(self, *words: str) -> None:
        self.pairs = list(zip(words[::2], words[1::2], strict=True))

    def of(self, text: str) -> str:
        """The edited text. Raises ValueError for words that it does not have."""
        for old, new in self.pairs:
            if old not in text:
                raise ValueError(f"the solution does not have {old!r}")
            text = text.replace(old, new)
        return text


def either(*words: str) -> list[Edit]:
    """The same slip in two lines, four words, or in one of them."""
    return [Edit(*words), Edit(*words[:2]), Edit(*words[2:])]


@cache
def _code(text: str) -> CodeType:
    return compile(textwrap.dedent(text), "<a solution>", "exec")


def instead(solution: str, other: "str | Edit") -> Callable[..., Any]:
    """Another thing than a solution returns, as a function: an expression of its names, or an edit.

    >>> double = "def double(x):\\n    y = x + x\\n    return y"
    >>> instead(double, "y * y")(3)
    36
    """
    before = solution.rpartition("return ")[0]
    return compiled(other.of(solution) if isinstance(other, Edit) else f"{before}return {other}")


def compiled(text: str) -> Callable[..., Any]:
    """The last function of a text, which may use np and math."""
    names: dict[str, Any] = {"np": np, "math": math}
    exec(_code(text), names)
    return list(names.values())[-1]


# --- the tasks -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Task:
    """One exercise; `str` is its task and how to answer."""

    id: str
    topic: str
    level: int  # of difficulty, 1 to 5
    place: Place
    _: KW_ONLY
    task: str
    hint: str
    question: str  # asked when the answer is not right and nothing more is known
    kind: ClassVar[str] = ""
    way: ClassVar[str] = ""  # to answer

    @property
    def name(self) -> str:
        """The exercise's id as a name in Python: pe.table is pe_table."""
        return self.id.replace(".", "_")

    @property
    def read(self) -> str:
        """Where the student reads on."""
        return self.place.read

    @property
    def teach(self) -> str:
        """The lesson's section."""
        return self.place.teach

    def lines(self, name: str = "") -> list[str]:
        """What is asked, with the numbers that belong to a name, and the options."""
        return [self.task]

    def told(self, name: str = "") -> str:
        """The task with a student's own numbers, and how to answer."""
        parts = (*self.lines(name), self.way)
        below = [textwrap.wrap(part, LINE, break_on_hyphens=False) for part in parts]
        return "\n".join([f"{self.id}  ({self.topic}, level {self.level})", *chain.from_iterable(below)])

    def __str__(self) -> str:
        return self.told()


@dataclass(frozen=True, eq=False, kw_only=True)
class Choice(Task):
    """One option of several, RIGHT or Wrong."""

    options: dict[str, Wrong]
    kind = "choice"
    way = "Answer with a letter."

    def lines(self, name: str = "") -> list[str]:
        """The task and the options, with their letters."""
        lettered = zip("abcdef", self.options, strict=False)
        return [self.task, *(f"  {letter}) {text}" for letter, text in lettered)]


@dataclass(frozen=True, eq=False, kw_only=True)
class Truth(Task):
    """True or False."""

    right: bool
    wrong: Wrong
    kind = "truth"
    way = "Answer with True or False."


class Draw:
    """Numbers for one student; without a generator, the standard ones."""

    def __init__(self, rng: np.random.Generator | None) -> None:
        self.rng = rng

    def integer(self, standard: int, low: int, high: int) -> int:
        """One from low to high."""
        return standard if self.rng is None else int(self.rng.integers(low, high + 1))

    def row(self, standard: list[int], low: int = -3, high: int = 4) -> Array:
        """As many as the standard ones."""
        given = np.array(standard)
        return given if self.rng is None else self.rng.integers(low, high + 1, size=given.size)

    def order(self, standard: list[int]) -> Array:
        """0, 1, … in another order."""
        return np.array(standard) if self.rng is None else self.rng.permutation(len(standard))


class Posed(NamedTuple):
    """One question in numbers: what stands in its text, its answer, and answers that show a mistake."""

    given: dict[str, Any]
    answer: Any
    wrong: Mapping[Any, Any]  # what each Mistake, or Wrong with what it shows, makes of it


@dataclass(frozen=True, eq=False, kw_only=True)
class Numbers(Task):
    """A number or a list of numbers, drawn for a student's name; {p} in the task is one of those given."""

    draw: Callable[[Draw], Posed]
    decimals: int = 0  # that are asked for; 0 for whole numbers

    @property
    def kind(self) -> str:  # type: ignore[override]
        """A number or a vector."""
        return "vector" if np.ndim(self.posed().answer) else "number"

    @property
    def way(self) -> str:  # type: ignore[override]
        """How to answer."""
        return "Answer with a list of numbers." if self.kind == "vector" else "Answer with a number."

    def lines(self, name: str = "") -> list[str]:
        """The task with the numbers that belong to a name."""
        given = self.posed(name).given
        return [self.task.format(**{key: np.asarray(value).tolist() for key, value in given.items()})]

    def posed(self, name: str = "") -> Posed:
        """The question for a student: the same name gets the same numbers; without one, the standard ones."""
        return _posed(self, name)

    @property
    def tolerance(self) -> float:
        """Half a unit in the last decimal that is asked for, and a little more; whole numbers are counted."""
        return 0.6 * 10.0 ** -(self.decimals or 3)

    def separated(self, question: Posed) -> bool:
        """Whether every known wrong answer, 0 and 1 among them, is far from the right one in some number."""
        right = np.asarray(question.answer, float)
        wrong = [np.asarray(value, float) for value in (*question.wrong.values(), 0 * right, 0 * right + 1)]
        far = max(APART * self.tolerance, 10.0**-self.decimals * (self.decimals > 0))
        return all(w.shape != right.shape or np.abs(w - right).max() > far for w in wrong)

    def alike(self, question: Posed) -> int:
        """How many pairs of known wrong answers cannot be told apart."""
        pairs = combinations([np.asarray(value, float) for value in question.wrong.values()], 2)
        return sum(a.shape == b.shape and bool((abs(a - b) <= 2 * self.tolerance).all()) for a, b in pairs)


def generator(words: str) -> np.random.Generator:
    """The same words give the same draws."""
    digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng(list(digest))


@lru_cache(maxsize=256)
def _posed(task: Numbers, name: str) -> Posed:
    if not name:
        return task.draw(Draw(None))
    draw = Draw(generator(f"{task.id}@{name.casefold()}"))
    drawn = (question for question in iter(lambda: task.draw(draw), None) if task.separated(question))
    tried: list[tuple[int, Posed]] = []
    for question in islice(drawn, DRAWS + 1):  # another, while two causes would give the same answer
        tried.append((task.alike(question), question))
        if not tried[-1][0]:
            break
    return min(tried, key=lambda each: each[0])[1]


DRAWS = 10  # in some tasks two causes always give the same answer: the reply says "one of"


@dataclass(frozen=True, eq=False, kw_only=True)
class Code(Task):
    """A function. npformer's own is right, and so is the solution; each mistake is an edit of that."""

    probe: Probe
    solution: str
    mistakes: dict[Mistake, list[Edit]]
    hard: dict[Mistake, Arguments] = field(default_factory=dict)  # tried where all else is correct
    detectors: tuple[Any, ...] = ()  # its own, before those of call_detectors
    draw: Callable[[Draws], Arguments]  # one more call
    ours: str | None = ""  # npformer's name for what is asked, if not the exercise's own; None without one
    kind = "code"

    @property
    def way(self) -> str:  # type: ignore[override]
        """How to answer."""
        return f"Answer with a function {self.name}({self.signature}); it changes no argument."

    @property
    def signature(self) -> str:
        """The arguments."""
        return self.probe.arguments

    @property
    def right(self) -> Callable[..., Any]:
        """The solution, as a function; a test holds it against npformer, or against differences."""
        return compiled(self.solution)

    def wrongly(self) -> Iterator[tuple[Mistake, Callable[..., Any]]]:
        """Every form of every mistake, as a function."""
        for mistake, edits in self.mistakes.items():
            for edit in edits:
                yield mistake, compiled(edit.of(self.solution))

    def edits(self, *codes: str) -> dict[str, list[Edit]]:
        """The forms of the mistakes with these codes, or of all."""
        made = {mistake.code: edits for mistake, edits in self.mistakes.items()}
        return {code: made[code] for code in codes or made}

    def slips(self, *codes: str) -> dict[str, Callable[..., Any]]:
        """The first form of each of these mistakes."""
        return {code: compiled(edits[0].of(self.solution)) for code, edits in self.edits(*codes).items()}
