"""The verdict on a function: it runs, it is right, a known mistake, or else what can be seen in its answer.

The words say what is right first, then the observation, then one question; never the expected numbers.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises.bank import Exercise
from npformer.exercises.behaviour import LATER, SPECIAL, Trial, first_behaviour, transposed_weights
from npformer.exercises.evidence import BEFORE, SINCE_2017
from npformer.exercises.mistakes import differing, outcomes, recognised, right, words
from npformer.exercises.probes import Subject, subjects
from npformer.exercises.relations import (
    Seen,
    View,
    along,
    by_part,
    close,
    coarse,
    first_relation,
    no_entries,
    not_finite,
    nothing_finite,
    only_not_finite,
    same_for_all,
    tried,
)
from npformer.exercises.result import Result, passed, unanswered
from npformer.exercises.runs import (
    Outcome,
    Unread,
    agreeing,
    as_array,
    quiet,
    returned_by_npformer,
    run,
    same,
    same_outcome,
)

Function = Callable[..., Any]
LONG = (5000, 16)  # far enough for angles in float32 to show
PASSING = ("variant", "convention", "precision")
ROUGH = 2e-2  # where logits are as large as 1000, float32 has few digits left


def check_function(exercise: Exercise, function: Function) -> Result:
    """One verdict: it runs, inputs, shapes, right, variants, mistakes, relations, in this order."""
    found = outcomes(exercise.id, function)
    if all(outcome.empty for outcome in found):
        return nothing_came_back(function, found)
    if not differing(exercise.id, found):
        return _right_numbers(exercise, function, found)
    fits = recognised(exercise.id, found)
    if fits:
        return known(exercise, found, fits, _status(fits))
    if special := _precision(exercise.id, found):
        return known(exercise, found, [(special,)], "known_mistake")
    if (seen := mixed(exercise.id, found)) is not None:
        return _observed(exercise, found, [seen])
    if (seen := _turned(exercise.id, function, found)) is not None:
        return _observed(exercise, found, [seen])
    if all(outcome.error or outcome.empty for outcome in found):
        return stopped(found)
    return _observed(exercise, found, observations(exercise.id, function, found))


def _turned(exercise_id: str, function: Function, found: tuple[Outcome, ...]) -> Seen | None:
    """Weights that fit only transposed: most calls stop, or, with d_ff = d_model, give other numbers."""
    subject = subjects()[exercise_id]
    if not any(outcome.error for outcome in found):
        return None
    with quiet():
        seen = tried(transposed_weights, Trial(subject, function, 0, (), {}))
    return Seen(seen.says.replace("{it}", _it(subject, subject.outputs[0])), seen.asks) if seen else None


def _status(fits: list[tuple[str, ...]]) -> str:
    if len(fits) > 1:
        return "ambiguous"
    passing = all(words()[code].kind in PASSING for code in fits[0])
    return "pass_variant" if passing else "known_mistake"


# --- right numbers, and what else is asked ---------------------------------------------------------


def _right_numbers(exercise: Exercise, function: Function, found: tuple[Outcome, ...]) -> Result:
    """The numbers are right. Whose are they? What about changed arguments, huge logits, far positions?"""
    subject = subjects()[exercise.id]
    if name := returned_by_npformer(exercise.id, function, subject):
        return _ours(name)
    if any(outcome.changed for outcome in found):
        return known(exercise, found, [("MUTATES-INPUT",)], "known_mistake")
    note = passed()
    for code, probe in subject.hard.items():
        answer, expected = run(function, probe, subject), run(subject.right, probe, subject)
        if same_outcome(answer, expected, ROUGH):
            continue
        if words()[code].kind == "note":
            note = passed(_noted(code, answer), (code,))
        elif _fails(answer):
            return known(exercise, found, [(code,)], "known_mistake")
        else:
            return _far_off(exercise, answer, expected, LARGE.get(code.partition("-")[0]))
    return _far_positions(exercise, function, found, note)


def _ours(name: str) -> Result:
    entry = words()["NPFORMERS-OWN"]
    seen = f"The numbers are right. {entry.sees} It is called {name}."
    return Result("known_mistake", ("NPFORMERS-OWN",), seen, entry.cause, entry.question)


def _fails(answer: Outcome) -> bool:
    """Whether a run ended in an error or no finite numbers, rather than in other numbers."""
    return not answer.arrays or any(not np.isfinite(a).all() for a in answer.arrays)


def _noted(code: str, answer: Outcome) -> str:
    """What is remarked: with a finite answer, that probabilities are held above a limit."""
    sees = words()[code].sees
    if code == "PE-ODD-D":
        return f"Every check agrees. {sees}"
    why = "" if _fails(answer) else " There p is held above a small number before its logarithm is taken."
    return f"Every other check agrees. {sees}{why}"


LARGE = {"SM": "Are two scores such as 1000 and 999 still 1 apart when exp meets them?"}


def _far_off(exercise: Exercise, answer: Outcome, expected: Outcome, asks: str | None = None) -> Result:
    place = next(_differences(subjects()[exercise.id], answer, expected))
    if asks:
        place = f"With scores near 1000 or -1000 the numbers are finite, and not the right ones: {place}"
    return Result("unrecognised", (), f"Ordinary sizes agree. {place}", "", asks or exercise.question)


def _far_positions(
    exercise: Exercise, function: Function, found: tuple[Outcome, ...], note: Result
) -> Result:
    if exercise.id != "pe.table":
        return note
    subject = subjects()[exercise.id]
    answer, expected = run(function, LONG, subject), run(subject.right, LONG, subject)
    if answer.arrays and same(answer.arrays[0], expected.arrays[0], 1.5e-5):
        return note
    if answer.arrays and _grows(answer.arrays[0], expected.arrays[0]):
        return known(exercise, found, [("PE-FLOAT32-ANGLES",)], "pass_variant")
    return note if same_outcome(answer, expected) else _far_off(exercise, answer, expected)


def _grows(table: Array, expected: Array) -> bool:
    """Errors no larger than rounding an angle of this size to 24 bits can make them."""
    if table.shape != expected.shape:
        return False
    angles = np.arange(len(table))[:, None]
    return bool((np.abs(table - expected) <= 4e-7 * (1 + angles)).all())


def _precision(exercise_id: str, found: tuple[Outcome, ...]) -> str:
    """PE-FLOAT16 where every number is one of float16's and no further off than 11 bits can explain."""
    if exercise_id != "pe.table" or not all(outcome.arrays for outcome in found):
        return ""
    pairs = [(a.arrays[0], b.arrays[0]) for a, b in zip(found, right(exercise_id), strict=True)]
    coarse = all(
        a.shape == b.shape and np.array_equal(a.astype(np.float16), a) and (np.abs(a - b) < 2e-2).all()
        for a, b in pairs
    )
    return "PE-FLOAT16" if coarse else ""


# --- nothing, an error, a tuple --------------------------------------------------------------------


def nothing_came_back(function: Function, found: tuple[Outcome, ...]) -> Result:
    """The stub as it was handed out, or a function without a return."""
    if is_stub(function) or any(outcome.kind for outcome in found):
        return unanswered()
    return Result("error", (), "The function runs, and returns nothing (None).", "", "Is there a `return`?")


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
    "OverflowError": "How large can the number become in that line?",
    "ValueError": "What are the shapes in that line?",
    "AssertionError": "What does that line take for granted?",
    "ModuleNotFoundError": "Can it be written with NumPy alone?",
    "ImportError": "Can it be written with NumPy alone?",
}


def stopped(found: tuple[Outcome, ...]) -> Result:
    """The function ends in an error on every probe."""
    outcome = next(outcome for outcome in found if outcome.error)
    seen = f"It stopped with {outcome.error}."
    if outcome.kind == "Unread":
        seen = f"What came back cannot be read: {outcome.error.removeprefix('Unread: ')}."
    return Result("error", (), seen, "", _asked(outcome))


def _asked(outcome: Outcome) -> str:
    if outcome.kind == "Unread":
        return "What stands behind `return`, and what is asked for?"
    if outcome.kind == "TypeError" and "argument" in outcome.error:
        return "Which arguments does the task's signature hand over?"
    if outcome.kind == "ValueError" and "truth value" in outcome.error:
        return "Which word in that line (if, and, or, not, max, min) asks a whole array for one yes or no?"
    return ASKS.get(outcome.kind, "What does that line expect, and what does it get?")


def mixed(exercise_id: str, found: tuple[Outcome, ...]) -> Seen | None:
    """The right arrays in a tuple or dict where one is asked for, in another order, or not all of them."""
    outputs, named = subjects()[exercise_id].outputs, [_named(outcome.raw) for outcome in found]
    if len(outputs) == 1 and isinstance(found[0].raw, np.ndarray):
        return None
    if any(not parts or parts.keys() != named[0].keys() for parts in named):
        return None
    places = {label: _place_of(label, named, exercise_id) for label in named[0]}
    fits = {label: name for label, name in places.items() if name}
    kind = "dict" if isinstance(found[0].raw, dict) else "tuple"
    if len(outputs) > 1:
        return _several(list(outputs), places, kind)
    entry = next(iter(fits), None)
    says = f"A {kind} came back, and its entry {entry!r} agrees. One array is asked for."
    return Seen(says, "What stands behind `return`, and which of it is asked for?") if fits else None


def _several(outputs: list[str], places: dict[Any, str], kind: str) -> Seen | None:
    asks = f"In which order are {listed(outputs)} asked for?"
    came = [name or "something else" for name in places.values()]
    if kind == "dict":
        fine = sum(map(bool, places.values()))
        return Seen(f"A dict came back: {fine} of its entries agree. A tuple is asked for.", asks)
    if len(came) != len(outputs):
        says = (
            f"{len(outputs)} outputs are asked for, {listed(outputs)}; {len(came)} came back: {listed(came)}."
        )
        return Seen(says, asks)
    moved = [name for label, name in places.items() if name and outputs.index(name) != label]
    return (
        Seen(f"The outputs stand in another order: {listed(came)} came back.", asks)
        if len(moved) > 1
        else None
    )


def _named(raw: Any) -> dict[Any, Array]:
    """The entries of a tuple, a list or a dict as arrays; a plain array is one entry of several outputs."""
    if isinstance(raw, np.ndarray):
        raw = (raw,)
    entries = raw if isinstance(raw, dict) else dict(enumerate(raw)) if isinstance(raw, tuple | list) else {}
    arrays = {}
    for label, part in entries.items():
        try:
            arrays[label] = as_array(str(label), part).astype(float)
        except Unread:
            arrays[label] = np.array(np.nan)  # it is counted, and agrees with no output
    return arrays


def _place_of(label: Any, named: list[dict[Any, Array]], exercise_id: str) -> str:
    """The output that an entry agrees with on every probe, or ""."""
    for k, name in enumerate(subjects()[exercise_id].outputs):
        if all(
            same(parts[label], wanted.arrays[k])
            for parts, wanted in zip(named, right(exercise_id), strict=True)
        ):
            return name
    return ""


# --- observations ----------------------------------------------------------------------------------


def observations(exercise_id: str, function: Function, found: tuple[Outcome, ...]) -> list[Seen]:
    """What can be said of the outputs that differ, at most two of them; [] where nothing holds exactly.

    Calls that stopped are left out: what the others show is told all the same.
    """
    ran = [n for n, outcome in enumerate(found) if outcome.arrays]
    subject = subjects()[exercise_id]
    subject = subject._replace(probes=tuple(subject.probes[n] for n in ran))
    sides = [(found[n], right(exercise_id)[n]) for n in ran]
    memo: dict[Any, Any] = {}
    seen: list[tuple[Seen, str]] = []
    for k, name in enumerate(subject.outputs):
        if len(seen) < 2 and not all(agreeing(a, b)[k] for a, b in sides):
            with quiet():
                look = _look(exercise_id, function, subject, sides, k, memo)
            alike = look is not None and look in [one for one, _ in seen]
            seen += [(look, name)] if look and not alike else []
    return [Seen(look.says.replace("{it}", _it(subject, name)), look.asks) for look, name in seen]


def _it(subject: Subject, name: str) -> str:
    return name if len(subject.outputs) > 1 else f"the output {name}"


WHOLE = Seen(
    "{it} holds whole numbers: its type is integer.", "Which type has the array that holds the numbers?"
)


def _look(
    exercise_id: str,
    function: Function,
    subject: Subject,
    sides: list[tuple[Outcome, Outcome]],
    k: int,
    memo: dict[Any, Any],
) -> Seen | None:
    arguments = tuple(dict(zip(subject.names, probe, strict=True)) for probe in subject.probes)
    sizes = tuple(_sizes(subject.sizes, given) for given in arguments)
    if all(o.arrays[k].dtype.kind in "iu" for o, _ in sides) and not _whole(exercise_id, k):
        return WHOLE
    mine, theirs = (tuple(pair[n].arrays[k].astype(float) for pair in sides) for n in (0, 1))
    view = View(mine, theirs, arguments, sizes, subject.landmarks)
    trial = Trial(subject, function, k, sizes, memo)
    special = (*SPECIAL.get(exercise_id, ()), *SINCE_2017.get(exercise_id, ()))
    return (
        tried(no_entries, view)
        or tried(coarse, view)
        or (tried(BEFORE[exercise_id], trial) if exercise_id in BEFORE else None)
        or first_relation(view)
        or tried(nothing_finite, view)
        or tried(only_not_finite, view)
        or first_behaviour(trial, special)
        or tried(not_finite, view)
        or tried(along, view, DIRECTIONS.get(exercise_id, {}))
        or tried(by_part, view)
        or tried(same_for_all, view)
        or (tried(LATER[exercise_id], trial) if exercise_id in LATER else None)
    )


def _whole(exercise_id: str, k: int) -> bool:
    return all(np.array_equal(o.arrays[k], np.round(o.arrays[k])) for o in right(exercise_id))


DIRECTIONS: dict[str, dict[str, Callable[..., Any]]] = {
    "layer_norm.forward": {"gamma": lambda x, gamma, beta, eps: gamma},
    "layer_norm.backward": {"x̂": lambda dy, x, gamma, beta, eps: x - x.mean(axis=-1, keepdims=True)},
    "softmax.backward": {"p": lambda dp, p: p},
}


def _sizes(letters: str, given: dict[str, Any]) -> dict[str, int]:
    """ "x: T d" and the arguments -> the sizes by name."""
    sizes: dict[str, int] = {}
    for part in filter(None, letters.split("; ")):
        name, _, axes = part.partition(": ")
        value = given[name]
        sizes |= dict(
            zip(axes.split(), value.shape if isinstance(value, np.ndarray) else [value], strict=True)
        )
    return sizes


def _observed(exercise: Exercise, found: tuple[Outcome, ...], seen: list[Seen]) -> Result:
    """What is right, what was seen, and the question that follows; or the place of the first difference."""
    first = _right_first(exercise, found) if any(outcome.arrays for outcome in found) else ""
    places = [
        place
        for got, wanted in zip(found, right(exercise.id), strict=True)
        for place in _differences(subjects()[exercise.id], got, wanted)
    ]
    beside = _beside(found, ())
    errors = [outcome for outcome in found if outcome.error]
    ends = [f"{_STOPPED} {outcome.error}." for outcome in errors if outcome.kind != "Unread"]
    if seen:
        few = [place for place in places[:1] if "(1 of" in place or _untold(place, seen)]
        says = " ".join([first, *(_capital(one.says) for one in seen), *few, *ends[:1], *beside]).strip()
        return Result("unrecognised", (), says, "", seen[0].asks)
    if errors:
        says = " ".join([first, *(ends or places)[:1], *beside]).strip()
        return Result("unrecognised", (), says, "", _asked(errors[0]))
    says = " ".join([first, *_where_equal(exercise.id, found), places[0], *beside]).strip()
    return Result("unrecognised", (), says, "No known mistake fits.", exercise.question)


def _untold(place: str, seen: list[Seen]) -> bool:
    """Whether a place is another shape, of which nothing is said yet."""
    return place.startswith("The shape") and not any(word in one.says for one in seen for word in _OF_SHAPES)


_OF_SHAPES = ("shape", "axis", "axes", "transposed", "flattened", "column", "row", "entries", "one too many")


def _capital(text: str) -> str:
    """A sentence that begins with "the" gets its capital; a variable keeps its letter."""
    return text[0].upper() + text[1:] if text.startswith("the ") else text


def known(
    exercise: Exercise, found: tuple[Outcome, ...], fits: Sequence[tuple[str, ...]], status: str
) -> Result:
    """One listed mistake, two at once, or several that no output can tell apart."""
    codes = tuple(dict.fromkeys(code for fit in fits for code in fit))
    said = [words()[code] for code in codes]
    sees = list(dict.fromkeys(entry.seen_in(exercise.id) for entry in said))
    causes = list(dict.fromkeys(entry.cause for entry in said))
    first = "" if status == "pass_variant" else _right_first(exercise, found)
    seen = " ".join([first, *sees, *_beside(found, codes)]).strip()
    return Result(status, codes, seen, " ".join(causes), said[0].question)


def _beside(found: tuple[Outcome, ...], codes: tuple[str, ...]) -> list[str]:
    changed = sorted({name for outcome in found for name in outcome.changed})
    if not changed or "MUTATES-INPUT" in codes:
        return [f"Changed: {', '.join(changed)}."] if changed else []
    return [f"And the call changed its argument {', '.join(changed)}."]


def _right_first(exercise: Exercise, found: tuple[Outcome, ...]) -> str:
    """What is right: which outputs agree on every probe, or else the shape, or part of the columns."""
    subject, expected = subjects()[exercise.id], right(exercise.id)
    verdicts = [agreeing(a, b) for a, b in zip(found, expected, strict=True) if a.arrays]
    agree = [name for name, *oks in zip(subject.outputs, *verdicts, strict=True) if all(oks)]
    if len(subject.outputs) > 1 and agree:
        differ = [name for name in subject.outputs if name not in agree]
        ends = f" {listed(differ)} {verb(differ, 'differ')}." if differ else ""
        return f"{listed(agree)} {verb(agree, 'agree')}.{ends}"
    return _parts(exercise.id, found, expected)


def _parts(exercise_id: str, found: tuple[Outcome, ...], expected: tuple[Outcome, ...]) -> str:
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
    if exercise_id == "pe.table":
        same_columns = [j for j in range(a.shape[1]) if same(a[:, j], b[:, j], 2e-6)]
        if len(same_columns) == a.shape[1]:
            return f"{said} Every column agrees."
        if same_columns:
            columns = "Column" if len(same_columns) == 1 else "Columns"
            return f"{said} {columns} {listed(list(map(str, same_columns)))} {verb(same_columns, 'agree')}."
    return said


def _where_equal(exercise_id: str, found: tuple[Outcome, ...]) -> list[str]:
    """Entries of an axis that agree on every probe, such as the first row, or one head."""
    pairs = [(a.arrays[0], b.arrays[0]) for a, b in zip(found, right(exercise_id), strict=True) if a.arrays]
    subject = subjects()[exercise_id]
    several = len(subject.outputs) > 1
    if exercise_id == "pe.table" or several or any(a.shape != b.shape for a, b in pairs):
        return []
    said = []
    for axis in range(pairs[0][1].ndim):
        length = min(b.shape[axis] for _, b in pairs)
        agree = [i for i in range(length) if all(close(a.take(i, axis), b.take(i, axis)) for a, b in pairs)]
        if agree:
            name = _axis_name(axis, pairs[0][1].ndim, len(agree), subject.outer)
            said.append(f"{name} {listed(list(map(str, agree)))} {verb(agree, 'agree')}.")
    return said


def _axis_name(axis: int, ndim: int, many: int, outer: str) -> str:
    if axis < ndim - 2:
        return f"Along axis {axis}," if axis else f"{outer.capitalize()}{'s' * (many > 1)}"
    return ("Column" if axis == ndim - 1 and ndim > 1 else "Row") + "s" * (many > 1)


_STOPPED = "One of the checks stopped with"


def _differences(subject: Subject, got: Outcome, wanted: Outcome) -> Iterator[str]:
    if got.error:
        yield f"{_STOPPED} {got.error}."
    elif got.empty:
        yield "One call returned nothing."
    else:
        for name, a, b in zip(subject.outputs, got.arrays, wanted.arrays, strict=True):
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


def listed(names: list[str]) -> str:
    """Names in a sentence: a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def verb(names: Sequence[object], word: str) -> str:
    """The word with an s after a single name."""
    return f"{word}s" if len(names) == 1 else word
