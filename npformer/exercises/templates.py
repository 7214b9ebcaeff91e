"""Templates of feedback: where they are read, and how one is filled with the parameters of a finding.

The sentences are in feedback.toml, bank/mistakes.md and bank/questions.md. A placeholder
in braces is a parameter of the finding, or one of these: {it} is the output that the finding is about, {It}
the same at the beginning of a sentence, and a phrase combines several parameters (`PHRASES`).
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from npformer.exercises.bank.questions import asked, words
from npformer.exercises.number_detectors import ScaleFactor
from npformer.exercises.task import Mistake
from npformer.exercises.verdict import KINDS, Finding
from npformer.gradcheck.relations import Factor

# --- the templates -----------------------------------------------------------------------------------


class Catalog(NamedTuple):
    """Every text that feedback is made of."""

    findings: Mapping[str, Mapping[str, str]]  # per kind: says, asks, and says_many for several names
    texts: Mapping[str, str]  # titles and short texts
    words: Mapping[str, Mapping[str, Any]]  # per parameter: the words for its values
    errors: Mapping[str, str]  # per type of an error: the question
    mistakes: Mapping[str, Mistake]  # per code
    options: Mapping[tuple[str, str], str]  # per exercise and code: what a wrong option or number shows
    questions: Mapping[str, str]  # per exercise: asked when nothing more is known


@cache
def catalog() -> Catalog:
    """Read the templates."""
    given = tomllib.loads(Path(__file__).with_name("feedback.toml").read_text(encoding="utf-8"))
    options = {
        (name, wrong.code): wrong.says
        for name, question in asked().items()
        for wrong in question.answers.values()
    }
    questions = {name: question.task["question"] for name, question in asked().items()}
    return Catalog(
        given["findings"], given["texts"], given["words"], given["errors"], words(), options, questions
    )


# --- values in sentences -----------------------------------------------------------------------------


def join_names(names: Sequence[str]) -> str:
    """Names in a sentence: a, b and c."""
    if len(names) < 2:
        return "".join(names)
    return catalog().texts["and"].format(", ".join(names[:-1]), names[-1])


def number_text(number: float) -> str:
    """A number with three digits."""
    return f"{number + 0.0:.3g}"


def value_text(parameter: str, value: Any) -> str:
    """Format one parameter for a sentence."""
    in_words = catalog().words.get(parameter, {})
    if parameter == "line" and value not in in_words:
        in_words = catalog().words["axis"]
    if isinstance(value, str) and value in in_words:
        word = in_words[value]
        return word if isinstance(word, str) else str(word[0])
    if isinstance(value, ScaleFactor):
        return factor_text(value)
    if isinstance(value, Factor):
        return number_text(value.value)
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, list):
        return ", ".join(value_text("", part) for part in value)
    if isinstance(value, tuple):
        return tuple_text(parameter, value)
    return str(value)


def tuple_text(parameter: str, value: tuple[Any, ...]) -> str:
    """Names in a list with "and"; an index or a shape in parentheses."""
    if parameter in ("axes", "indices", "places"):
        return join_names([str(part) for part in value])
    if parameter == "order":
        return ", ".join(map(str, value))
    if all(isinstance(part, int) for part in value):
        return str(value[0]) if parameter == "index" and len(value) == 1 else str(value)
    return join_names([value_text("returned", part) for part in value])


def factor_text(factor: ScaleFactor) -> str:
    """A factor: "2", "-1/√d_k", "about 3.2 times √(T_q · d_k)"."""
    texts = catalog().texts
    if factor.constant:
        name = catalog().words["constant"][factor.constant]
    else:
        name = _sizes_text(factor)
    if factor.number != 1:
        number = number_text(factor.sign * factor.number)
        template = texts["factor_whatever_the_sizes"] if name == "1" else texts["factor_times"]
        return template.format(number=number, name=name)
    return name if factor.sign > 0 else texts["factor_negative"].format(name=name)


def _sizes_text(factor: ScaleFactor) -> str:
    """Sizes as a product or a quotient, under a root or below 1."""
    if not factor.top:
        return "1"
    product = " · ".join(factor.top)
    if factor.bottom:
        product = f"{product}/{factor.bottom[0]}"
    is_compound = len(factor.top) > 1 or bool(factor.bottom)
    is_bare = factor.power == 1.0
    inner = f"({product})" if is_compound and not is_bare else product
    rooted = f"√{inner}" if abs(factor.power) == 0.5 else inner
    return f"1/{rooted}" if factor.power < 0 else rooted


# Parts of sentences that are made of several parameters, or of one in another form: which kinds of findings
# have them, and how they are made of the parameters.

Given = Mapping[str, Any]


def _axes(given: Given) -> str:
    """The word for several lines along an axis."""
    return _plural("axis", given["axis"])


def _capital_axis(given: Given) -> str:
    return _capitalised(value_text("axis", given["axis"]))


def _capital_axes(given: Given) -> str:
    return _capitalised(_axes(given))


def _nan(given: Given) -> str:
    """Whether NaN is among the entries that differ."""
    return catalog().texts["nan_among_them"] if given["has_nan"] else ""


def _lines(given: Given) -> str:
    return str(catalog().words["lines"][given["line"]])


def _which(given: Given) -> str:
    """The phrase for the entries that were returned, if there are too few."""
    return str(catalog().words["which"][given["end"]])


def _names_or(given: Given) -> str:
    """Names in a list with "or"."""
    *before, last = given["names"]
    return catalog().texts["or"].format(", ".join(before), last) if before else str(last)


def _sequence(given: Given) -> str:
    return ", ".join(given["names"])


def _power(given: Given) -> str:
    return str(catalog().words["power"][str(given["power"])])


def _agreement(given: Given) -> str:
    """ "dx agrees." or "dx and dgamma agree." """
    return _in_number(given["agree"], "agrees", "agree")


def _difference(given: Given) -> str:
    return _in_number(given["differ"], "differs", "differ")


def _in_number(names: Sequence[str], one: str, several: str) -> str:
    """A text about one name, or about several."""
    return catalog().texts[one if len(names) == 1 else several].format(join_names(names))


def _asked(given: Given) -> str:
    """How many outputs are asked for."""
    texts, count = catalog().texts, len(given["expected"])
    return texts["one_output_asked"] if count == 1 else texts["outputs_asked"].format(count)


def _entry(given: Given) -> str:
    """An index as it is written in brackets."""
    return ", ".join(map(str, given["index"]))


def _count(given: Given) -> str:
    return str(len(given["returned"]))


def _wave(given: Given) -> str:
    """Whether a column turns at the correct speed, or at which."""
    if given["is_correct"]:
        return catalog().texts["wave_at_correct_speed"]
    return catalog().texts["wave_at_speed"].format(number_text(given["speed"]))


def _first_at(given: Given) -> str:
    """The first place; nothing where the output is one number."""
    if not given["index"]:
        return ""
    return catalog().texts["first_at"].format(value_text("index", given["index"]))


def _change(given: Given) -> str:
    return str(catalog().words["change"][given["change"]]).format(name=given["name"])


def _duration(given: Given) -> str:
    template = catalog().texts["one_second" if given["seconds"] == 1 else "several_seconds"]
    return template.format(f"{given['seconds']:g}")


def _kept_decimals(given: Given) -> str:
    template = catalog().texts["one_decimal" if given["kept"] == 1 else "several_decimals"]
    return template.format(given["kept"])


def _whole_line(given: Given) -> str:
    return catalog().texts["whole_line"] if given["whole_line"] else ""


def _others_agree(given: Given) -> str:
    return catalog().texts["others_agree"] if given["others_agree"] else ""


def _error_text(given: Given) -> str:
    """An error with its message, its line and its function, as far as they are known."""
    texts, text = catalog().texts, str(given["error"])
    if given["message"]:
        template = texts["error_quoted" if given["is_remote"] else "error_message"]
        text = template.format(error=text, message=given["message"])
    if given["line"] is None:
        return text
    template = texts["error_line_of"] if given["function"] else texts["error_line"]
    return template.format(text=text, line=given["line"], function=given["function"])


def _lengths(given: Given) -> str:
    """The phrase for axes that are longer or shorter than they should be."""
    parts = []
    for name in ("longer", "shorter"):
        axes = [str(axis) for axis in given[name]]
        if axes:
            template = catalog().texts[name if len(axes) == 1 else f"{name}_many"]
            parts.append(template.format(join_names(axes)))
    return join_names(parts)


def _share(given: Given) -> str:
    """A share of the largest number, in per cent."""
    texts, share = catalog().texts, given["share"]
    if share < 0.01:
        return texts["small_share"]
    return texts["share"].format(100 * share) if share < 10 else texts["large_share"]


def _settings(given: Given) -> str:
    """Arguments with the values at which they do nothing: gamma = 1 and eps near 0."""
    texts, parts = catalog().texts, []
    for name, value in zip(given["names"], given["values"], strict=True):
        template = texts["setting"] if value in (0, 1) else texts["setting_near_0"]
        parts.append(template.format(name=name, value=number_text(value)))
    return join_names(parts)


STOPPED = ("stopped", "stopped_in_one_check")
WITH_AXIS = tuple(kind for kind, (_, names) in KINDS.items() if "axis" in names)
WAVES = ("sines_agree_and_a_wave", "cosines_agree_and_a_wave")
AGREEMENTS = ("outputs_agree", "some_outputs_agree")
PHRASES: dict[str, tuple[tuple[str, ...], Callable[[Given], str]]] = {
    "axes": (WITH_AXIS, _axes),
    "Axes": (WITH_AXIS, _capital_axes),
    "Axis": (WITH_AXIS, _capital_axis),
    "error_text": (STOPPED, _error_text),
    "lengths": (("wrong_shape",), _lengths),
    "nan": (("differs_at",), _nan),
    "share": (("off_by",), _share),
    "lines": (("too_few", "too_many"), _lines),
    "which": (("too_few", "too_few_entries"), _which),
    "names_or": (("unused", "unused_there"), _names_or),
    "settings": (("agrees_at_neutral",), _settings),
    "sequence": (("calls_in_order",), _sequence),
    "power": (("running_mean",), _power),
    "agreement": (AGREEMENTS, _agreement),
    "difference": (("some_outputs_agree",), _difference),
    "asked": (("outputs_returned", "unreadable_count"), _asked),
    "entry": (("ignores_line",), _entry),
    "count": (("outputs_returned",), _count),
    "wave": (WAVES, _wave),
    "first_at": (("nan_at", "infinite_at"), _first_at),
    "change": (("correct_for_changed_argument",), _change),
    "duration": (("too_long",), _duration),
    "kept_decimals": (("rounded_answer", "truncated_answer"), _kept_decimals),
    "whole_line": (("unfilled",), _whole_line),
    "others_agree": (("nan_at", "infinite_at"), _others_agree),
}


def fill(template: str, finding: Finding, outputs: Sequence[str]) -> str:
    """A template with the parameters of a finding."""
    if not template:
        return ""
    named = {name: value_text(name, value) for name, value in finding.parameters.items()}
    for phrase, (kinds, make) in PHRASES.items():
        if finding.kind in kinds:
            named[phrase] = make(finding.parameters)
    has_several_outputs = len(outputs) > 1
    if has_several_outputs or not finding.output:
        named["it"] = named["It"] = finding.output or catalog().texts["it"]
        named["It"] = finding.output or catalog().texts["It"]
    else:
        named["it"] = catalog().texts["the_output"].format(finding.output)
        named["It"] = catalog().texts["The_output"].format(finding.output)
    if finding.view:
        named["It"] = named["it"]  # a sentence goes on
    named["name_of_output"] = finding.output
    return template.format(**named)


def _plural(parameter: str, value: Any) -> str:
    word = catalog().words.get(parameter, {}).get(value) if isinstance(value, str) else None
    return str(value) if word is None else str(word[1])


def sentence(finding: Finding, outputs: Sequence[str] = (), part: str = "says") -> str:
    """Write the sentence about a finding, or with part="asks" its question; "" if there is none."""
    template = catalog().findings[finding.kind]
    names = finding.parameters.get("names") or finding.parameters.get("indices") or ()
    several = f"{part}_many"
    if several in template and len(names) > 1:
        text = fill(template[several], finding, outputs)
    else:
        text = fill(template.get(part, ""), finding, outputs)
    if part == "says" and finding.view:
        view = catalog().words["view"][finding.view]
        return catalog().texts["in_a_view"].format(view=view, text=text)
    begins_with_a_name = template.get(part, "").startswith("{")
    return text if begins_with_a_name else _capitalised(text)


def _capitalised(text: str) -> str:
    """The text with a capital at its beginning."""
    return text[:1].upper() + text[1:]
