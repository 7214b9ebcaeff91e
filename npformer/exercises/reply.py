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
    TOLERANCE,
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
    RIGHT,
    Choice,
    Code,
    Mistake,
    Numbers,
    Task,
    Truth,
    Wrong,
)
from npformer.exercises.topics import bank, find
from npformer.exercises.topics.questions import words

Function = Callable[..., Any]
SECONDS = 10.0  # of computing that one answer may take
ROUGH = 2e-2  # where logits are as large as 1000, float32 has few digits left
FAR = (
    "With scores near 1000 or -1000 the numbers are finite, and not the right ones:",
    "Are two scores such as 1000 and 999 still 1 apart when exp meets them?",
)

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

    def __repr__(self) -> str:
        title, *lines = _lines(self)
        return "\n".join([f"{title}  ({progress()} passed)", *(f"  {line}" for line in lines)])

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
    first: str = ""  # what is right
    where: str = ""  # where the first difference stands; what was seen takes its place
    seen: str = ""
    cause: str = ""
    asks: str = ""
    codes: tuple[str, ...] = ()

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


RIGHT_ANSWER = Verdict("pass", "Every check agrees.")
UNANSWERED = Verdict("error", NOTHING)  # None, or a stub as it was handed out


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
    return [TITLES[result.status], *filter(None, (result.evidence, result.hint, result.question))]


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
        asks = "Which line puts another in its place? Start Python again without it."
        return Verdict("error", seen, asks=asks)
    try:
        with within(SECONDS):
            return _read_and_checked(task, answer, name)
    except TooLong:
        seen = f"It was still running after {SECONDS:g} seconds."
        return Verdict("error", seen, asks="What ends the loop?")
    except Exception as error:  # an answer may do anything, in its own methods too
        return Verdict("error", f"This answer cannot be read: {type(error).__name__}.")


def _read_and_checked(task: Task, answer: Any, name: str) -> Verdict:
    if answer is None or answer is ...:
        return UNANSWERED
    if isinstance(task, Code) and callable(answer):
        return check_function(task, answer)
    if isinstance(task, Code):
        return Verdict("error", f"A function is asked for: {task.name}({task.signature}).")
    if callable(answer):
        return Verdict("error", "This is a function; its answer is asked for.")
    if isinstance(task, Numbers):
        return check_numbers(task, answer, name)
    assert isinstance(task, Choice | Truth)
    return check_choice(task, answer)


def _unreadable(wanted: str) -> Verdict:
    return Verdict("error", f"This answer cannot be read; expected {wanted}.")


# --- letters and truth values ------------------------------------------------------------------------


def check_choice(task: Choice | Truth, answer: Any) -> Verdict:
    """A letter, the number of an option counted from 1, or its words; or True or False, 1 and 0, a yes."""
    if isinstance(task, Truth):
        said = read_truth(answer)
        wanted, where = "True or False", "Not so."
        chosen = None if said is None else RIGHT if said == task.right else task.wrong
    else:
        letter, left = read_letter(answer, task.options), len(task.options) - 1
        wanted, where = f"a letter from a to {LETTERS[left]}", f"Not this one; {left} are left."
        chosen = list(task.options.values())[LETTERS.index(letter)] if letter else None
    if chosen is None or chosen is RIGHT:
        return _unreadable(wanted) if chosen is None else RIGHT_ANSWER
    seen, asks = chosen.says, task.question
    return Verdict("known_mistake", where=where, seen=seen, asks=asks, codes=(chosen.code,))


# --- numbers ---------------------------------------------------------------------------------------


def check_numbers(task: Numbers, answer: Any, name: str) -> Verdict:
    """A number or a list of numbers, for those that belong to the student's name."""
    question = task.posed(name)
    right = np.asarray(question.answer, float)
    given = read_numbers(answer, right.shape, whole=task.decimals == 0)
    if given is None:
        a_list = f"a list of {right.size} numbers"
        return _unreadable(a_list if right.ndim else "a number such as 0.25, without words")
    if near(given, right, task):
        return RIGHT_ANSWER
    wrong = {shown: np.asarray(value, float) for shown, value in question.wrong.items()}
    first, off = _right_first(given, right, task), _off(given, right, task)
    if fits := {shown: value for shown, value in wrong.items() if near(given, value, task)}:
        return _named(task, _nearest(fits, given, task), first, off)
    if given.shape == right.shape and np.isfinite(given).all():
        if rounded := _rounded(given, right, task):
            return Verdict("unrecognised", rounded, asks="How many decimals does the task ask for?")
        if (seen := _likeness(given, right, task)) is not None:
            return Verdict("unrecognised", "", first, seen.says, asks=seen.asks)
    return Verdict("unrecognised", first, "", off, UNKNOWN, task.question)


UNKNOWN = "No known mistake fits."


def near(a: Array, b: Array, task: Numbers) -> bool:
    """Equal to the decimals that are asked for; the last one may be off by a little more than its half."""
    return a.shape == b.shape and bool((np.abs(a - b) <= task.tolerance).all())


def _nearest(fits: dict[Mistake | Wrong, Array], given: Array, task: Numbers) -> list[Mistake | Wrong]:
    """Of several wrong answers those that are met to the last digit, where the answer has so many."""
    if np.allclose(given, np.round(given, task.decimals), rtol=0, atol=1e-9):
        return list(fits)
    exact = [shown for shown, value in fits.items() if np.allclose(given, value, rtol=1e-7, atol=1e-9)]
    return exact or list(fits)


def _named(task: Numbers, fits: list[Mistake | Wrong], first: str, off: str) -> Verdict:
    """A number that shows a mistake or a confusion, or several."""
    seen = fits[0].says if isinstance(fits[0], Wrong) else off
    cause = _one_of(shown.cause for shown in fits if isinstance(shown, Mistake))
    cause = cause if isinstance(fits[0], Mistake) else ""
    asks = task.question if isinstance(fits[0], Wrong) else fits[0].question
    status = "ambiguous" if len(fits) > 1 else "known_mistake"
    return Verdict(status, first, "", seen, cause, asks, tuple(shown.code for shown in fits))


def _one_of(causes: Iterable[str]) -> str:
    """Causes that no number can tell apart are not stated as facts."""
    told = list(dict.fromkeys(causes))
    return f"One of these: {' '.join(told)}" if len(told) > 1 else "".join(told)


def _rounded(given: Array, right: Array, task: Numbers) -> str:
    """What is said of an answer that is right, and rounded or cut too far; "" of another."""
    for kept in range(task.decimals - 1, -1, -1):
        unit = 10.0**-kept
        whole = np.allclose(given / unit, np.round(given / unit), rtol=0, atol=1e-9)
        rounded = np.abs(given - right).max() <= (0.5 + 1e-9) * unit  # a half may go either way
        cut = np.allclose(given, np.trunc(right / unit) * unit, rtol=0, atol=1e-9)
        if given.any() and whole and (rounded or cut):
            how = f"{'rounded' if rounded else 'cut off'} after {kept} decimal{'s' * (kept != 1)}"
            return f"This is right as far as it goes: it is {how}, and {task.decimals} are asked for."
    return ""


MANY = 1000  # of a larger whole number a few more or less are left out by rounding
FEW = 10  # of a smaller whole number "one off" would leave nothing to think about
LIKENESS: dict[Seen, Callable[[Array, Array], tuple[Array, Array]]] = {  # which two are equal then
    Seen("Only the sign differs.", "Where does a sign get lost?"): lambda a, b: (-a, b),
    Seen("The numbers are the right ones, in another order.", "Which number belongs to which place?"): (
        lambda a, b: (np.sort(a), np.sort(b))
    ),
    Seen("The sizes are right, and not all of the signs.", "Where does a sign get lost?"): (
        lambda a, b: (np.abs(a), np.abs(b))
    ),
    Seen("Every number is off by the same amount.", "What is added to every number?"): (
        lambda a, b: (a - a.mean(), b - b.mean())
    ),
    Seen("Every number is off by the same factor.", "What is every number multiplied by?"): (
        lambda a, b: (a / (a @ b) * (b @ b), b)
    ),
}


def _likeness(given: Array, right: Array, task: Numbers) -> Seen | None:
    """What is seen of numbers that miss by a sign, by one, by their order, a factor or a sum."""
    with np.errstate(all="ignore"):
        for seen, sides in list(LIKENESS.items())[: None if right.ndim else 1]:
            if near(*sides(given, right), task):
                return seen
    off, size = np.abs(given - right).max(), np.abs(right).max()
    if right.ndim or task.decimals:
        return None
    if size >= FEW and off == 1:
        return Seen("One off.", "Are the first and the last both counted, and only once?")
    says = "The size is right; a count is asked for, to its last digit."
    return Seen(says, "What is counted, part by part?") if size >= MANY and off < 0.01 * size else None


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
    first = f"{int(fine.sum())} of {right.size} agree, number {int(np.argmin(fine)) + 1} differs first"
    return f"{right.size} numbers, as asked; {first if fine.any() else 'none agrees'}."


def _off(given: Array, right: Array, task: Numbers) -> str:
    """On which side a number lies, or which numbers of a list differ."""
    if given.shape != right.shape or not np.isfinite(given).all():
        return ""
    off = np.where(np.abs(given - right) > task.tolerance, given - right, 0)
    side = "too large" if off.min() >= 0 else "too small" if off.max() <= 0 else ""
    if right.ndim == 0 or off.all():
        whole = "All are" if right.ndim else "It is"
        return f"{whole} {side}." if side else "Some are too large, some too small."
    differ = [str(k + 1) for k in np.flatnonzero(off)]
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
    if any(a.size > HUGE or a.ndim > AXES for outcome in found for a in outcome.arrays):
        return _observed(task, found)
    if fits := recognised(task, found):
        return known(task, found, fits)
    if (seen := mixed(task, found) or turned(task, function)) is not None:
        return _observed(task, found, [seen])
    return _observed(task, found, observations(task, function, found))


def known(task: Code, found: tuple[Outcome, ...], fits: Sequence[tuple[Mistake, ...]]) -> Verdict:
    """One listed mistake, several in different outputs, or several that no output can tell apart."""
    said = list({mistake.code: mistake for fit in fits for mistake in fit}.values())
    passes = len(fits) == 1 and all(mistake.passes for mistake in said)
    status = "ambiguous" if len(fits) > 1 else "pass_variant" if passes else "known_mistake"
    first, places = ("", []) if passes else (_agreeing(task, found), _places(task, found))
    sees, causes = (
        list(dict.fromkeys(part)) for part in zip(*((m.sees, m.cause) for m in said), strict=True)
    )
    cause = _one_of(causes) if len(fits) > 1 else " ".join(causes)
    asks, codes = said[0].question, tuple(mistake.code for mistake in said)
    if not places:  # all is right on ordinary calls: this says where it is not
        return Verdict(status, _joined(first, *sees, *_changed(found)), cause=cause, asks=asks, codes=codes)
    measured = any(map(str.isdigit, "".join(sees)))  # else a number is told: by how much it is off
    seen = _joined(*sees, "" if measured else places[0].off or places[0].place, *_changed(found))
    return Verdict(status, first, _joined(places[0].place, *_changed(found)), seen, cause, asks, codes)


RANDOM = Seen(
    "The same call gives other numbers the second time.",
    "What is drawn at random, or kept between two calls?",
)
HUGE, AXES = 10**6, 6  # no task asks for so many: the shape is told, and nothing is searched in the numbers


# --- right numbers, and what else is asked -----------------------------------------------------------


def _right_numbers(task: Code, function: Function, found: tuple[Outcome, ...]) -> Verdict:
    """The numbers are right. Whose are they? What about changed arguments, huge logits, far positions?"""
    name, own = task.ours or task.name, words()["NPFORMERS-OWN"]
    if returned_by_npformer(name, function, task.probe):
        first = f"The numbers are right. {own.sees} It is called {name}."
        return Verdict("known_mistake", first, cause=own.cause, asks=own.question, codes=(own.code,))
    if any(outcome.changed for outcome in found):
        return known(task, found, [(words()["MUTATES-INPUT"],)])
    note = RIGHT_ANSWER
    for mistake, given in task.hard.items():
        answer, expected = (run(f, given, task.probe) for f in (function, task.right))
        if same_outcome(answer, expected, TOLERANCE if mistake.kind == "precision" else ROUGH):
            continue
        if answer.error and answer.kind not in NO_NUMBER:
            return _far_off(task, answer, expected, "", _asked(answer))
        fails = not answer.arrays or any(not np.isfinite(a).all() for a in answer.arrays)
        near = same_outcome(answer, expected, mistake.tolerance)
        if mistake.kind == "note":
            note = Verdict("pass", _joined("Every other check agrees.", mistake.sees), codes=(mistake.code,))
        elif {"wrong": True, "robustness": fails, "precision": near}[mistake.kind]:
            return known(task, found, [(mistake,)])
        else:
            return _far_off(task, answer, expected, *FAR[: 2 * (mistake.kind == "robustness")])
    return note


NO_NUMBER = ("OverflowError", "ZeroDivisionError", "ValueError")  # of `math`, where NumPy gives inf or NaN


def _far_off(task: Code, answer: Outcome, expected: Outcome, says: str = "", asks: str = "") -> Verdict:
    place = next(_differences(task.probe, answer, expected)).place
    first = _joined("Ordinary sizes agree.", says, place)
    return Verdict("unrecognised", first, asks=asks or task.question)


# --- nothing, or an error --------------------------------------------------------------------------


def nothing_came_back(function: Function, found: tuple[Outcome, ...]) -> Verdict:
    """The stub as it was handed out, or a function without a return."""
    if is_stub(function) or any(outcome.kind for outcome in found):
        return UNANSWERED
    return Verdict("error", "The function runs, and returns nothing (None).", asks="Is there a `return`?")


def is_stub(function: Function) -> bool:
    """Whether a body does nothing at all, as `...` and `pass`."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_names or len(code.co_code) > 8:
        return False
    return all(part is None or part is ... or isinstance(part, str) for part in code.co_consts)


ASKS = {
    "Unread": "What stands behind `return`, and what is asked for?",
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


def _asked(outcome: Outcome) -> str:
    if outcome.kind == "TypeError" and "argument" in outcome.error:
        return "Which arguments does the task's signature hand over?"
    if outcome.kind == "ValueError" and "truth value" in outcome.error:
        return "Which word in that line (if, and, or, not, max, min) asks a whole array for one yes or no?"
    return ASKS.get(outcome.kind, "What does that line expect, and what does it get?")


# --- what is right, and where it ends ----------------------------------------------------------------


def _observed(task: Code, found: tuple[Outcome, ...], seen: Sequence[Seen] = ()) -> Verdict:
    """What is right, what was seen, and the question that follows; or the place of the first difference."""
    places, first = [place for place, _ in _places(task, found)], _agreeing(task, found)
    errors = [outcome for outcome in found if outcome.error]
    if not any(outcome.arrays for outcome in found) and not seen:
        told = next(_differences(task.probe, errors[0], errors[0])).place
        return Verdict("error", told.replace(_STOPPED, "It stopped with"), asks=_asked(errors[0]))
    ends = [place for place in places if place.startswith(_STOPPED)][:1]
    where = _joined(*(ends or places[:1]), *_changed(found))
    if seen:
        few = [place for place in places[:1] if "(1 of" in place or place.startswith("The shape")]
        told = _joined(*(_capital(one.says) for one in seen), *few, *ends, *_changed(found))
        return Verdict("unrecognised", first, where, told, asks=seen[0].asks)
    asks = _asked(errors[0]) if errors else task.question
    return Verdict("unrecognised", first, where, cause="" if errors else UNKNOWN, asks=asks)


def _capital(text: str) -> str:
    """A sentence that begins with "the" gets its capital; a variable keeps its letter."""
    return text[0].upper() + text[1:] if text.startswith("the ") else text


def _changed(found: tuple[Outcome, ...]) -> list[str]:
    changed = sorted({name for outcome in found for name in outcome.changed})
    return [f"The call changed its argument {listed(changed)}."] if changed else []


def _agreeing(task: Code, found: tuple[Outcome, ...]) -> str:
    """What is right where it ran: which outputs agree, or else the shape, and which rows or columns."""
    pairs = [(a, b) for a, b in zip(found, right(task), strict=True) if a.arrays]
    outputs, verdicts = task.probe.outputs, [agreeing(a, b) for a, b in pairs]
    agree = [name for name, *oks in zip(outputs, *verdicts, strict=True) if pairs and all(oks)]
    if len(outputs) > 1 and agree:
        differ = [name for name in outputs if name not in agree]
        ends = f" {listed(differ)} {verb(differ, 'differ')}." if differ else ""
        return f"{listed(agree)} {verb(agree, 'agree')}.{ends}"
    sides = [side for a, b in pairs for side in zip(a.arrays, b.arrays, strict=True)]
    if any(a.shape != b.shape for a, b in sides):
        return "It runs and returns numbers."
    said = "The shape is right." if len(outputs) == 1 else "The shapes are right."
    said = "Where it runs, the shape is right." if len(pairs) < len(found) else said
    part = len(outputs) == 1 and not all(same(a, b) for a, b in sides)
    return _joined(said * bool(pairs), _parts(task.probe, sides) if part else "")


def _parts(probe: Probe, sides: list[tuple[Array, Array]]) -> str:
    """Entries of an axis that agree in every call: columns, rows, or one head."""
    for axis in reversed(range(ndim := sides[0][1].ndim)):
        lengths = [b.shape[axis] for _, b in sides]
        agree = [
            i for i in range(min(lengths)) if all(close(a.take(i, axis), b.take(i, axis)) for a, b in sides)
        ]
        if 0 < len(agree) < max(lengths):
            outer = f"Along axis {axis}," if axis else probe.outer.capitalize() + "s" * (len(agree) > 1)
            lines = {1: "Column" if ndim > 1 else "Row", 2: "Row"}
            name = f"{lines[ndim - axis]}{'s' * (len(agree) > 1)}" if ndim - axis in lines else outer
            return f"{name} {listed(list(map(str, agree)))} {verb(agree, 'agree')}."
    return ""


class Difference(NamedTuple):
    """Where an answer differs from the right one in one call, and by how much."""

    place: str
    off: str = ""


def _places(task: Code, found: tuple[Outcome, ...]) -> list[Difference]:
    """Every first difference, call by call and output by output."""
    pairs = zip(found, right(task), strict=True)
    return [place for got, wanted in pairs for place in _differences(task.probe, got, wanted)]


_STOPPED = "One of the checks stopped with"


def _differences(probe: Probe, got: Outcome, wanted: Outcome) -> Iterator[Difference]:
    if got.kind == "Unread":
        yield Difference(f"What came back cannot be read: {got.error.removeprefix('Unread: ')}.")
    elif got.error:
        yield Difference(f"{_STOPPED} {got.error}.")
    elif got.empty:
        yield Difference("One call returned nothing.")
    else:
        for name, a, b in zip(probe.outputs, got.arrays, wanted.arrays, strict=True):
            if a.shape != b.shape:
                yield Difference(f"The shape of {name} is {a.shape}; {_other_shape(a.shape, b.shape)}.")
            elif not same(a, b):
                yield _difference(name if len(probe.outputs) > 1 else "It", name, a.astype(float), b)


def _other_shape(found: tuple[int, ...], right: tuple[int, ...]) -> str:
    """Which axes are longer or shorter than asked for, or how many there should be."""
    if len(found) != len(right):
        return f"the number of axes asked for is {len(right)}"
    sides = zip(found, right, strict=True)
    said = [f"axis {k} is {'longer' if a > b else 'shorter'}" for k, (a, b) in enumerate(sides) if a != b]
    return f"{listed(said)} than asked for"


def _difference(it: str, name: str, a: Array, b: Array) -> Difference:
    """Where an output differs first, in how many places, and by which share."""
    largest = float(np.abs(b).max())
    share = 100 * float(np.abs(a - b).max()) / max(largest, 1e-300)
    part = f"{share:.0f} %" if 1 <= share < 1000 else "less than 1 %" if share < 1 else "more than 1000 %"
    told = b.dtype != bool and bool(np.isfinite(share))
    if b.ndim == 0:
        return Difference(f"{name} differs.", f"{it} is off by {part}." * told)
    wrong = ~np.isclose(a, b, rtol=0, atol=1e-4 * max(1.0, largest))
    first = tuple(np.argwhere(wrong)[0].tolist())
    nan = "; NaN is among them" * bool(np.isnan(a[wrong]).any())
    many = f"({int(wrong.sum())} of {wrong.size} entries differ{nan})"
    place = f"{name} differs first at {first if len(first) > 1 else first[0]} {many}."
    return Difference(place, f"{it} is off by up to {part} of the largest right number." * told)
