"""`check`: one answer in, one result out. It says what is right, then what was seen, then asks one question:
a level for each.

The words never hold the expected numbers. Letters, truth values and numbers are judged here; of a function,
`see` says what it sees.
"""

import dis
import html
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import (
    Outcome,
    Probe,
    TooLong,
    agreeing,
    changed_in_numpy,
    returned_by_npformer,
    run,
    same,
    same_outcome,
    within,
)
from npformer.exercises.reading import LETTERS, read_letter, read_numbers, read_truth
from npformer.exercises.see import (
    Seen,
    close,
    differing,
    listed,
    mixed,
    observations,
    outcomes,
    recognised,
    right,
    turned,
    verb,
)
from npformer.exercises.task import (
    MUTATES,
    NPFORMERS_OWN,
    RIGHT,
    Choice,
    Code,
    Mistake,
    Numbers,
    Task,
    Truth,
    Wrong,
)
from npformer.exercises.topics import bank, find, words

Function = Callable[..., Any]
SECONDS = 10.0  # of computing that one answer may take
ROUGH = 2e-2  # where logits are as large as 1000, float32 has few digits left

# --- the result --------------------------------------------------------------------------------------

PASSES = ("pass", "pass_variant")
TITLES = {
    "pass": "Right",
    "pass_variant": "Right, in another form",
    "known_mistake": "Not yet: this pattern is known",
    "ambiguous": "Not yet: more than one cause fits",
    "unrecognised": "Not yet",
    "error": "Not checked to the end",
}
_COLOURS = dict.fromkeys(TITLES, "#D55E00") | dict.fromkeys(PASSES, "#009E73")


NOTHING = "Nothing was answered yet."


class Result(NamedTuple):
    """One checked answer; true when it passes. `question` is None at level 1."""

    status: str  # a key of TITLES
    codes: tuple[str, ...]  # the mistakes or variants that fit
    evidence: str  # what is right, then where it differs; from level 2 on what was seen
    hint: str  # at level 3 what such a pattern comes from, and where to read
    question: str | None

    def __bool__(self) -> bool:
        """Whether it passes. `assert` on one that does not shows the card: graders print assertions."""
        passes = self.status in PASSES
        if not passes and asserted(sys._getframe(1)):
            raise AssertionError(str(self))
        return passes

    def __str__(self) -> str:
        title, *lines = _lines(self)
        return "\n".join([f"{title}  ({progress()} passed)", *(f"  {line}" for line in lines)])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        title, *lines = _lines(self)
        body = "".join(f"<p style='margin:0.3em 0'>{html.escape(line)}</p>" for line in lines)
        border = f"border-left:4px solid {_COLOURS[self.status]};padding:0.2em 0.8em;max-width:46em"
        return (
            f"<div style='{border}'><b>{title}</b> "
            f"<span style='float:right'>{progress()} passed</span>{body}</div>"
        )


_passed: set[str] = set()  # the one thing here that remembers


def progress() -> str:
    """How many exercises passed in this session of Python; a later wrong answer takes none back.

    >>> progress().endswith(f"of {len(bank())}")
    True
    """
    return f"{len(_passed)} of {len(bank())}"


class Verdict(NamedTuple):
    """All that can be said of one answer; each level tells its part."""

    status: str
    codes: tuple[str, ...] = ()
    first: str = ""  # what is right
    where: str = ""  # where the first difference stands; what was seen takes its place
    seen: str = ""
    cause: str = ""
    asks: str = ""

    @property
    def passes(self) -> bool:
        """Whether the answer is right, in some form."""
        return self.status in PASSES

    def at(self, level: int, read: str) -> Result:
        """Level 1: what is right, where it ends; 2: what was seen; 3: the cause, a question, where to read.

        Where nothing more was seen, level 2 asks the question.
        """
        if self.passes:
            return Result(self.status, self.codes, _joined(self.first, self.seen), self.cause, None)
        told = _joined(self.first, self.seen if level > 1 and self.seen else self.where)
        asks = self.asks if level > 2 or (level > 1 and not self.seen) else ""
        hint = f"{self.cause} Read {read}.".strip() if level > 2 else ""
        return Result(self.status, self.codes, told, hint, asks or None)


def _joined(*parts: str) -> str:
    return " ".join(filter(None, parts))


def passed(note: str = "Every check agrees.", codes: tuple[str, ...] = ()) -> Verdict:
    """A right answer."""
    return Verdict("pass", codes, note)


def unanswered() -> Verdict:
    """None, or a stub as it was handed out."""
    return Verdict("error", (), NOTHING)


def asserted(frame: FrameType) -> bool:
    """Whether a frame is just deciding a plain `assert`, one without a message of its own."""
    code = [i for i in dis.get_instructions(frame.f_code) if i.offset >= frame.f_lasti]
    steps = [i.opname for i in code[:8] if i.opname not in ("TO_BOOL", "NOT_TAKEN", "EXTENDED_ARG", "CACHE")]
    jump, load, throw = (*steps, "", "", "")[:3]
    wanted = load in ("LOAD_ASSERTION_ERROR", "LOAD_COMMON_CONSTANT") and throw == "RAISE_VARARGS"
    return wanted and jump.endswith("IF_TRUE")


def _lines(result: Result) -> list[str]:
    """The title, and what is to be said below it."""
    if result.evidence == NOTHING:
        return [NOTHING]
    said = (result.evidence, result.hint, result.question)
    return [TITLES[result.status], *(line for line in said if line)]


def _error(seen: str, asks: str = "") -> Verdict:
    return Verdict("error", (), seen, asks=asks)


def _unknown(first: str, asks: str, where: str = "", seen: str = "", cause: str = "") -> Verdict:
    return Verdict("unrecognised", (), first, where, seen, cause, asks)


# --- one answer --------------------------------------------------------------------------------------


def check(exercise_id: str, answer: Any, *, level: int = 1) -> Result:
    """Check one answer: a letter, True or False, a number, a list of numbers or a function.

    An id may end in @ and a name, for a student's own numbers. Level 1 says what is right and where it ends,
    level 2 what was seen, level 3 what such a pattern comes from, one question and the section to read. The
    answer's own errors become a result.

    Raises ValueError for an exercise that the bank does not have or a level that is not 1, 2 or 3.

    >>> check("ffn.sharing", "a", level=3).question
    'If a sentence grows by a word, does the network grow?'
    """
    task, name = find(exercise_id)
    if isinstance(level, bool) or not isinstance(level, int | np.integer):
        raise TypeError(f"check: level is {level!r}; expected 1, 2 or 3")
    if not 1 <= level <= 3:
        raise ValueError(f"check: level is {level}; expected 1, 2 or 3")
    verdict = _checked(task, answer, name)
    if verdict.passes:
        _passed.add(task.id)
    known = words().get(verdict.codes[0]) if verdict.codes else None
    return verdict.at(level, known.place.read if known else task.read)


def _checked(task: Task, answer: Any, name: str) -> Verdict:
    if replaced := changed_in_numpy():
        seen = f"np.{replaced[0]} is not NumPy's own any more: nothing can be checked so."
        return _error(seen, "Which line puts another in its place? Start Python again without it.")
    try:
        with within(SECONDS):
            return _read_and_checked(task, answer, name)
    except TooLong:
        return _error(f"It was still running after {SECONDS:g} seconds.", "What ends the loop?")
    except Exception as error:  # an answer may do anything, in its own methods too
        return _error(f"This answer cannot be read: {type(error).__name__}.")


def _read_and_checked(task: Task, answer: Any, name: str) -> Verdict:
    if answer is None or answer is ...:
        return unanswered()
    if isinstance(task, Code):
        if not callable(answer):
            return _error(f"A function is asked for: {task.name}({task.signature}).")
        return check_function(task, answer)
    if callable(answer):
        return _error("This is a function; its answer is asked for.")
    if isinstance(task, Numbers):
        return check_numbers(task, answer, name)
    if isinstance(task, Choice):
        return check_choice(task, answer)
    assert isinstance(task, Truth)
    return check_truth(task, answer)


def _unreadable(wanted: str) -> Verdict:
    return _error(f"This answer cannot be read; expected {wanted}.")


# --- letters and truth values ------------------------------------------------------------------------


def check_choice(task: Choice, answer: Any) -> Verdict:
    """A letter, the number of an option counted from 1, or the option itself."""
    letter = read_letter(answer, task.options)
    if not letter:
        return _unreadable(f"a letter from a to {LETTERS[len(task.options) - 1]}")
    chosen = list(task.options.values())[LETTERS.index(letter)]
    left = len(task.options) - 1
    return passed() if chosen is RIGHT else _confused(task, chosen, f"Not this one; {left} are left.")


def check_truth(task: Truth, answer: Any) -> Verdict:
    """True or False; 1 and 0 and the words count too."""
    said = read_truth(answer)
    if said is None:
        return _unreadable("True or False")
    return passed() if said == task.right else _confused(task, task.wrong, "Not so.")


def _confused(task: Task, chosen: Wrong, where: str) -> Verdict:
    return Verdict("known_mistake", (chosen.code,), "", where, chosen.says, asks=task.question)


# --- numbers ---------------------------------------------------------------------------------------


def check_numbers(task: Numbers, answer: Any, name: str) -> Verdict:
    """A number or a list of numbers, for those that belong to the student's name."""
    question = task.posed(name)
    right = np.asarray(question.answer, float)
    given = read_numbers(answer, right.shape, whole=task.decimals == 0)
    if given is None:
        return _unreadable(
            "a number such as 0.25, without words" if right.ndim == 0 else f"a list of {right.size} numbers"
        )
    if near(given, right, task):
        return passed()
    wrong = {shown: np.asarray(value, float) for shown, value in question.wrong.items()}
    fits = {shown: value for shown, value in wrong.items() if near(given, value, task)}
    if fits:
        return _named(task, _nearest(fits, given, task), given, right)
    if rounded := _rounded(given, right, task):
        return _unknown(*rounded)
    first, (seen, asks) = _right_first(given, right, task), _likeness(given, right, task)
    if seen:
        return _unknown("", asks, first, seen)
    return _unknown(first, task.question, seen=_off(given, right, task), cause="No known mistake fits.")


def near(a: Array, b: Array, task: Numbers) -> bool:
    """Equal to the decimals that are asked for; the last one may be off by a little more than its half."""
    return a.shape == b.shape and bool((np.abs(a - b) <= task.tolerance).all())


def _nearest(fits: dict[Mistake | Wrong, Array], given: Array, task: Numbers) -> list[Mistake | Wrong]:
    """Of several wrong answers those that are met to the last digit, where the answer has so many."""
    if np.allclose(given, np.round(given, task.decimals), rtol=0, atol=1e-9):
        return list(fits)
    exact = [shown for shown, value in fits.items() if np.allclose(given, value, rtol=1e-7, atol=1e-9)]
    return exact or list(fits)


def _named(task: Numbers, fits: list[Mistake | Wrong], given: Array, right: Array) -> Verdict:
    said = [_said_of(shown, task) for shown in fits]
    sees, cause, asks = said[0]
    status = "ambiguous" if len(fits) > 1 else "known_mistake"
    causes = _one_of(one for _, one, _ in said) if cause else ""
    codes = tuple(shown.code for shown in fits)
    seen = sees or _off(given, right, task)
    return Verdict(status, codes, _right_first(given, right, task), "", seen, causes.strip(), asks)


def _one_of(causes: Iterable[str]) -> str:
    """Causes that no number can tell apart are not stated as facts."""
    told = list(dict.fromkeys(filter(None, causes)))
    return f"One of these: {' '.join(told)}" if len(told) > 1 else "".join(told)


def _said_of(shown: Mistake | Wrong, task: Numbers) -> tuple[str, str, str]:
    """(observation, cause, question) for a number that shows this mistake or confusion."""
    if isinstance(shown, Wrong):
        return shown.says, "", task.question
    return "", shown.cause, shown.question


def _rounded(given: Array, right: Array, task: Numbers) -> tuple[str, str] | None:
    """What is said and asked of an answer that is right, and rounded or cut too far; None of another."""
    if given.shape != right.shape or not np.isfinite(given).all():
        return None
    for kept in range(task.decimals - 1, -1, -1):
        unit = 10.0**-kept
        whole = np.allclose(given / unit, np.round(given / unit), rtol=0, atol=1e-9)
        rounded = np.abs(given - right).max() <= (0.5 + 1e-9) * unit  # a half may go either way
        cut = np.allclose(given, np.trunc(right / unit) * unit, rtol=0, atol=1e-9)
        if given.any() and whole and (rounded or cut):
            seen = (
                f"This is right as far as it goes: it is {'rounded' if rounded else 'cut off'} after {kept} "
                f"decimal{'s' * (kept != 1)}, and {task.decimals} are asked for."
            )
            return seen, "How many decimals does the task ask for?"
    return None


def _likeness(given: Array, right: Array, task: Numbers) -> tuple[str, str]:
    """What is seen and asked of numbers that miss by a sign, by one, by their order, a factor or a sum."""
    if given.shape != right.shape or not np.isfinite(given).all():
        return "", ""
    if near(-given, right, task):
        seen = "Only the sign differs." if right.ndim == 0 else "The sizes are right, and every sign differs."
        return seen, "Where does a sign get lost?"
    if right.ndim == 0:
        return _count_like(given, right) if task.decimals == 0 else ("", "")
    if near(np.sort(given), np.sort(right), task):
        return "The numbers are the right ones, in another order.", "Which number belongs to which place?"
    if near(abs(given), abs(right), task):
        return "The sizes are right, and not all of the signs.", "Where does a sign get lost?"
    if near(given - given.mean(), right - right.mean(), task):
        return "Every number is off by the same amount.", "What is added to every number?"
    factor = float(given @ right / (right @ right))
    if factor and near(given / factor, right, task) and near(given, factor * right, task):
        return "Every number is off by the same factor.", "What is every number multiplied by?"
    return "", ""


def _count_like(given: Array, right: Array) -> tuple[str, str]:
    """What is seen of a count that is nearly right."""
    if abs(right) >= FEW and abs(given - right) == 1:
        return "One off.", "Are the first and the last both counted, and only once?"
    if abs(right) >= MANY and abs(given - right) < 0.01 * abs(right):
        return "The size is right; a count is asked for, to its last digit.", "What is counted, part by part?"
    return "", ""


MANY = 1000  # of a larger whole number a few more or less are left out by rounding
FEW = 10  # of a smaller whole number "one off" would leave nothing to think about


def _right_first(given: Array, right: Array, task: Numbers) -> str:
    """What is right: the form, and in a list the numbers that agree."""
    if given.shape != right.shape:
        wanted = "one number" if right.ndim == 0 else f"a list of {right.size} numbers"
        seen = f"The answer has {given.size} numbers, in the shape {given.shape}; {wanted} is asked for."
        return seen if right.ndim else f"{seen} In Python a comma begins another number: 12345, not 12,345."
    if not np.isfinite(given).all():
        return "This is not a finite number."
    if right.ndim == 0:
        return "One number, as asked."
    fine = np.abs(given - right) <= task.tolerance
    if not fine.any():
        return f"{right.size} numbers, as asked; none agrees."
    first = f"number {int(np.argmin(fine)) + 1} differs first"
    return f"{right.size} numbers, as asked; {int(fine.sum())} of {right.size} agree, {first}."


def _off(given: Array, right: Array, task: Numbers) -> str:
    """On which side a number lies, or which numbers of a list differ."""
    if given.shape != right.shape or not np.isfinite(given).all():
        return ""
    if right.ndim == 0:
        return f"It is too {'large' if given > right else 'small'}."
    off = np.where(np.abs(given - right) > task.tolerance, given - right, 0)
    differ = [str(k + 1) for k in np.flatnonzero(off)]
    side = "" if off.min() < 0 < off.max() else "too large" if off.max() > 0 else "too small"
    if off.all():
        return f"All are {side}." if side else "Some are too large, some too small."
    side = side and f": {side}"
    return f"Number{'s' * (len(differ) > 1)} {listed(differ)} {verb(differ, 'differ')}{side}."


# --- a function --------------------------------------------------------------------------------------


def check_function(task: Code, function: Function) -> Verdict:
    """One verdict: it runs, inputs, shapes, right, variants, mistakes, relations, in this order."""
    found = outcomes(task, function)
    if all(outcome.empty for outcome in found):
        return nothing_came_back(function, found)
    if not differing(task, found):
        return _right_numbers(task, function, found)
    if not same_outcome(run(function, task.probe.calls[0], task.probe), found[0], 0.0):
        return _observed(task, found, [RANDOM])
    if any(a.size > HUGE for outcome in found for a in outcome.arrays):
        return _observed(task, found, [])
    if fits := recognised(task, found):
        return known(task, found, fits)
    if (seen := mixed(task, found) or turned(task, function, found)) is not None:
        return _observed(task, found, [seen])
    if all(outcome.error or outcome.empty for outcome in found):
        return stopped(found)
    return _observed(task, found, observations(task, function, found))


def known(task: Code, found: tuple[Outcome, ...], fits: Sequence[tuple[Mistake, ...]]) -> Verdict:
    """One listed mistake, several in different outputs, or several that no output can tell apart."""
    said = list({mistake.code: mistake for fit in fits for mistake in fit}.values())
    status = "pass_variant" if all(mistake.passes for mistake in said) else "known_mistake"
    status = "ambiguous" if len(fits) > 1 else status
    first = "" if status == "pass_variant" else _agreeing_first(task, found)
    sees, beside = dict.fromkeys(mistake.sees for mistake in said), _beside(found, MUTATES in said)
    places = [] if status == "pass_variant" else _places(task, found)
    told = dict.fromkeys(mistake.cause for mistake in said)
    causes = _one_of(told) if len(fits) > 1 else " ".join(told)
    codes, where = tuple(mistake.code for mistake in said), _joined(*places[:1], *beside)
    if not places:  # all is right on ordinary calls: this says where it is not
        return Verdict(status, codes, _joined(first, *sees, *beside), cause=causes, asks=said[0].question)
    seen = _joined(*sees, _measured(task, found, sees), *beside)
    return Verdict(status, codes, first, where, seen, causes, said[0].question)


RANDOM = Seen(
    "The same call gives other numbers the second time.",
    "What is drawn at random, or kept between two calls?",
)
HUGE = 10**6  # no task asks for so many numbers: their shape is told, and nothing is searched in them


# --- right numbers, and what else is asked -----------------------------------------------------------


def _right_numbers(task: Code, function: Function, found: tuple[Outcome, ...]) -> Verdict:
    """The numbers are right. Whose are they? What about changed arguments, huge logits, far positions?"""
    name = task.ours or task.name
    if returned_by_npformer(name, function, task.probe):
        seen = f"The numbers are right. {NPFORMERS_OWN.sees} It is called {name}."
        own = NPFORMERS_OWN
        return Verdict("known_mistake", (own.code,), seen, cause=own.cause, asks=own.question)
    if any(outcome.changed for outcome in found):
        return known(task, found, [(MUTATES,)])
    note = passed()
    for mistake, given in task.hard.items():
        answer, expected = run(function, given, task.probe), run(task.right, given, task.probe)
        if same_outcome(answer, expected, ROUGH):
            continue
        if answer.kind == "FloatingPointError":
            return _unknown(f"Ordinary numbers agree. {_STOPPED} {answer.error}.", ASKS["FloatingPointError"])
        if mistake.kind == "note":
            says = "" if _fails(answer) else mistake.finite[0]
            note = passed(f"Every other check agrees. {mistake.sees} {says}".strip(), (mistake.code,))
        elif _fails(answer) or mistake.kind == "wrong":
            return known(task, found, [(mistake,)])
        else:
            return _far_off(task, answer, expected, mistake.finite)
    return _last(task, function, found, note)


def _last(task: Code, function: Function, found: tuple[Outcome, ...], note: Verdict) -> Verdict:
    """The exercise's own last call, on which other numbers may have a name."""
    if task.last is None:
        return note
    given, look = task.last
    answer, expected = run(function, given, task.probe), run(task.right, given, task.probe)
    if answer.arrays and (mistake := look(answer.arrays[0], expected.arrays[0])):
        return known(task, found, [(mistake,)])
    return note if same_outcome(answer, expected) else _far_off(task, answer, expected, ("", ""))


def _fails(answer: Outcome) -> bool:
    """Whether a run ended in an error or no finite numbers, rather than in other numbers."""
    return not answer.arrays or any(not np.isfinite(a).all() for a in answer.arrays)


def _far_off(task: Code, answer: Outcome, expected: Outcome, told: tuple[str, str]) -> Verdict:
    says, asks = told
    place = next(_differences(task.probe, answer, expected))
    return _unknown(_joined("Ordinary sizes agree.", says, place), asks or task.question)


# --- nothing, an error, a tuple --------------------------------------------------------------------


def nothing_came_back(function: Function, found: tuple[Outcome, ...]) -> Verdict:
    """The stub as it was handed out, or a function without a return."""
    if is_stub(function) or any(outcome.kind for outcome in found):
        return unanswered()
    return _error("The function runs, and returns nothing (None).", "Is there a `return`?")


def is_stub(function: Function) -> bool:
    """Whether a body does nothing at all, as `...` and `pass`; a proxy says so in `stub`."""
    if isinstance(told := getattr(function, "stub", None), bool):
        return told
    code = getattr(function, "__code__", None)
    body = [] if code is None else [c for c in code.co_consts if c is not None and c is not ...]
    return (
        code is not None
        and not code.co_names
        and all(isinstance(c, str) for c in body)
        and not code.co_cellvars
        and len(code.co_code) <= 8
    )


ASKS = {
    "NameError": "Where does this name get its value before that line?",
    "UnboundLocalError": "On which path does this name get its value?",
    "AttributeError": "What kind of object is it, and does it have this attribute?",
    "IndexError": "How long is that axis, and which index is asked for?",
    "KeyError": "Which keys are there?",
    "ZeroDivisionError": "Which number is 0 in that line?",
    "RecursionError": "Which case ends the recursion?",
    "FloatingPointError": "Who asked NumPy to stop there: is np.seterr or np.errstate called?",
    "OverflowError": "How large can the number become in that line?",
    "ValueError": "What are the shapes in that line?",
    "AssertionError": "What does that line take for granted?",
    "ModuleNotFoundError": "Can it be written with NumPy alone?",
    "ImportError": "Can it be written with NumPy alone?",
}


def stopped(found: tuple[Outcome, ...]) -> Verdict:
    """The function ends in an error on every probe."""
    outcome = next(outcome for outcome in found if outcome.error)
    seen = _unread(outcome) if outcome.kind == "Unread" else f"It stopped with {outcome.error}."
    return _error(seen, _asked(outcome))


def _unread(outcome: Outcome) -> str:
    return f"What came back cannot be read: {outcome.error.removeprefix('Unread: ')}."


def _asked(outcome: Outcome) -> str:
    if outcome.kind == "Unread":
        return "What stands behind `return`, and what is asked for?"
    if outcome.kind == "TypeError" and "argument" in outcome.error:
        return "Which arguments does the task's signature hand over?"
    if outcome.kind == "ValueError" and "truth value" in outcome.error:
        return "Which word in that line (if, and, or, not, max, min) asks a whole array for one yes or no?"
    return ASKS.get(outcome.kind, "What does that line expect, and what does it get?")


def _observed(task: Code, found: tuple[Outcome, ...], seen: list[Seen]) -> Verdict:
    """What is right, what was seen, and the question that follows; or the place of the first difference."""
    first = _agreeing_first(task, found) if any(outcome.arrays for outcome in found) else ""
    places, beside = _places(task, found), _beside(found)
    errors = [outcome for outcome in found if outcome.error]
    ends = [f"{_STOPPED} {outcome.error}." for outcome in errors if outcome.kind != "Unread"]
    where = _joined(*([] if errors else _where_equal(task, found)), *(ends or places)[:1], *beside)
    if seen:
        few = [place for place in places[:1] if "(1 of" in place or _untold(place, seen)]
        says = (_capital(one.says) for one in seen)
        return _unknown(first, seen[0].asks, where, _joined(*says, *few, *ends[:1], *beside))
    if errors:
        return _unknown(first, _asked(errors[0]), where)
    return _unknown(first, task.question, where, cause="No known mistake fits.")


def _places(task: Code, found: tuple[Outcome, ...]) -> list[str]:
    """Every first difference, call by call and output by output."""
    pairs = zip(found, right(task), strict=True)
    return [place for got, wanted in pairs for place in _differences(task.probe, got, wanted)]


def _measured(task: Code, found: tuple[Outcome, ...], told: Iterable[str]) -> str:
    """A number for what was seen, where none is told: another shape, or how far off the first output is."""
    words = "".join(told)
    if "factor" in words or any(map(str.isdigit, words)):
        return ""
    if (place := _places(task, found)[0]).startswith("The shape"):
        return place
    many = len(task.probe.outputs) > 1
    for got, wanted in zip(found, right(task), strict=True):
        for name, a, b in zip(task.probe.outputs, got.arrays, wanted.arrays, strict=False):
            if not same(a, b) and b.dtype != bool and np.isfinite(a).all():
                share = 100 * float(np.abs(a.astype(float) - b).max() / max(np.abs(b).max(), 1e-300))
                of = "" if b.ndim == 0 else " of the largest right number"
                return f"{name if many else 'It'} is off by {'up to ' * (b.ndim > 0)}{_per_cent(share)}{of}."
    return ""


def _per_cent(share: float) -> str:
    return f"{share:.0f} %" if 1 <= share < 1000 else "less than 1 %" if share < 1 else "more than 1000 %"


def _untold(place: str, seen: list[Seen]) -> bool:
    """Whether a place is another shape, of which nothing is said yet."""
    return place.startswith("The shape") and not any(word in one.says for one in seen for word in _OF_SHAPES)


_OF_SHAPES = ("shape", "axis", "axes", "transposed", "flattened", "column", "row", "entries", "one too many")


def _capital(text: str) -> str:
    """A sentence that begins with "the" gets its capital; a variable keeps its letter."""
    return text[0].upper() + text[1:] if text.startswith("the ") else text


def _beside(found: tuple[Outcome, ...], named: bool = False) -> list[str]:
    changed = sorted({name for outcome in found for name in outcome.changed})
    if not changed or named:
        return [f"Changed: {', '.join(changed)}."] if changed else []
    return [f"And the call changed its argument {', '.join(changed)}."]


def _agreeing_first(task: Code, found: tuple[Outcome, ...]) -> str:
    """What is right: which outputs agree on every probe, or else the shape, or part of the columns."""
    probe, expected = task.probe, right(task)
    verdicts = [agreeing(a, b) for a, b in zip(found, expected, strict=True) if a.arrays]
    agree = [name for name, *oks in zip(probe.outputs, *verdicts, strict=True) if all(oks)]
    if len(probe.outputs) > 1 and agree:
        differ = [name for name in probe.outputs if name not in agree]
        ends = f" {listed(differ)} {verb(differ, 'differ')}." if differ else ""
        return f"{listed(agree)} {verb(agree, 'agree')}.{ends}"
    return _parts(probe, found, expected)


def _parts(probe: Probe, found: tuple[Outcome, ...], expected: tuple[Outcome, ...]) -> str:
    pairs = [
        (a, b)
        for one, other in zip(found, expected, strict=True)
        for a, b in zip(one.arrays, other.arrays, strict=False)
    ]
    if any(a.shape != b.shape for a, b in pairs):
        return "It runs and returns numbers."
    said = "The shape is right." if len(pairs) == len(found) else "The shapes are right."
    if any(outcome.error for outcome in found):
        said = "Where it runs, the shape is right."
    a, b = pairs[0]
    if probe.by_column:
        same_columns = [j for j in range(a.shape[1]) if same(a[:, j], b[:, j], 2e-6)]
        if len(same_columns) == a.shape[1]:
            return f"{said} Every column agrees."
        if same_columns:
            columns = "Column" if len(same_columns) == 1 else "Columns"
            return f"{said} {columns} {listed(list(map(str, same_columns)))} {verb(same_columns, 'agree')}."
    return said


def _where_equal(task: Code, found: tuple[Outcome, ...]) -> list[str]:
    """Entries of an axis that agree on every probe, such as the first row, or one head."""
    pairs = [(a.arrays[0], b.arrays[0]) for a, b in zip(found, right(task), strict=True) if a.arrays]
    probe = task.probe
    if probe.by_column or len(probe.outputs) > 1 or any(a.shape != b.shape for a, b in pairs):
        return []
    said = []
    for axis in range(pairs[0][1].ndim):
        length = min(b.shape[axis] for _, b in pairs)
        agree = [i for i in range(length) if all(close(a.take(i, axis), b.take(i, axis)) for a, b in pairs)]
        if agree:
            name = _axis_name(axis, pairs[0][1].ndim, len(agree), probe.outer)
            said.append(f"{name} {listed(list(map(str, agree)))} {verb(agree, 'agree')}.")
    return said


def _axis_name(axis: int, ndim: int, many: int, outer: str) -> str:
    if axis < ndim - 2:
        return f"Along axis {axis}," if axis else f"{outer.capitalize()}{'s' * (many > 1)}"
    return ("Column" if axis == ndim - 1 and ndim > 1 else "Row") + "s" * (many > 1)


_STOPPED = "One of the checks stopped with"


def _differences(probe: Probe, got: Outcome, wanted: Outcome) -> Iterator[str]:
    if got.kind == "Unread":
        yield _unread(got)
    elif got.error:
        yield f"{_STOPPED} {got.error}."
    elif got.empty:
        yield "One call returned nothing."
    else:
        for name, a, b in zip(probe.outputs, got.arrays, wanted.arrays, strict=True):
            if a.shape != b.shape:
                yield f"The shape of {name} is {a.shape}; {_other_shape(a.shape, b.shape)}."
            elif not same(a, b):
                yield _place(name, a, b)


def _other_shape(found: tuple[int, ...], right: tuple[int, ...]) -> str:
    """Which axes are longer or shorter than asked for, or how many there should be."""
    if len(found) != len(right):
        return f"the number of axes asked for is {len(right)}"
    sides = zip(found, right, strict=True)
    said = [f"axis {k} is {'longer' if a > b else 'shorter'}" for k, (a, b) in enumerate(sides) if a != b]
    return f"{listed(said)} than asked for"


def _place(name: str, a: Array, b: Array) -> str:
    wrong = ~np.isclose(a.astype(float), b, rtol=0, atol=1e-4 * max(1.0, float(np.abs(b).max())))
    if a.ndim == 0:
        return f"{name} differs."
    place: Any = tuple(int(i) for i in np.argwhere(wrong)[0])
    many = f" ({int(wrong.sum())} of {wrong.size} entries differ"
    many += "; NaN is among them)" if (wrong & np.isnan(a)).any() else ")"
    return f"{name} differs first at {place if len(place) > 1 else place[0]}{many}."
