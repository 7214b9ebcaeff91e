"""Read the templates of the feedback, and fill a template with the parameters of a finding.

The sentences are in feedback.toml, bank/mistakes.md and bank/questions.md. A placeholder in braces stands
for one of these:

- a parameter of the finding;
- the output that the finding is about: {it}, or {It} at the beginning of a sentence;
- a phrase, which is made from the parameters (see ``PHRASES``).
"""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from npformer.exercises.bank.questions import load_mistakes, load_questions
from npformer.exercises.number_detectors import ScaleFactor
from npformer.exercises.task import Mistake
from npformer.exercises.verdict import KINDS, Finding
from npformer.gradcheck.relations import Factor

# --- the templates -----------------------------------------------------------------------------------


class Catalog(NamedTuple):
    """All texts of the feedback."""

    findings: Mapping[str, Mapping[str, str]]  # {kind of finding: its templates "says", "says_many", "asks"}
    texts: Mapping[str, str]  # titles and short texts
    words: Mapping[str, Mapping[str, Any]]  # {parameter: the words for its values}
    errors: Mapping[str, str]  # {type of error: the question in the feedback}
    mistakes: Mapping[str, Mistake]  # {code: the listed mistake}
    options: Mapping[tuple[str, str], str]  # {(exercise id, code): feedback on a wrong answer}
    questions: Mapping[str, str]  # {exercise id: the question if no mistake was recognised}


@cache
def catalog() -> Catalog:
    """Read the templates."""
    toml = tomllib.loads(Path(__file__).with_name("feedback.toml").read_text(encoding="utf-8"))
    options = {}
    questions = {}
    for exercise, question in load_questions().items():
        questions[exercise] = question.task["question"]
        for wrong in question.answers.values():
            options[exercise, wrong.code] = wrong.says
    return Catalog(
        findings=toml["findings"],
        texts=toml["texts"],
        words=toml["words"],
        errors=toml["errors"],
        mistakes=load_mistakes(),
        options=options,
        questions=questions,
    )


# --- values in sentences -----------------------------------------------------------------------------


def join_names(names: Sequence[str]) -> str:
    """Join names for a sentence: a, b and c."""
    if len(names) < 2:
        return "".join(names)
    return catalog().texts["and"].format(", ".join(names[:-1]), names[-1])


def number_text(number: float) -> str:
    """Format a number with three significant digits, below a million without an exponent."""
    text = f"{number + 0.0:.3g}"  # adding 0.0 turns -0.0 into 0.0
    if "e+" in text and abs(number) < 1e6:
        return f"{float(text):.0f}"
    return text


def value_text(parameter: str, value: Any) -> str:
    """Format the value of a parameter for a sentence."""
    words_of_values = catalog().words.get(parameter, {})
    if parameter == "line" and value not in words_of_values:
        words_of_values = catalog().words["axis"]
    if isinstance(value, str) and value in words_of_values:
        word = words_of_values[value]
        if isinstance(word, str):
            return word
        return str(word[0])  # the singular; word[1] is the plural
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
    """Format a tuple. Names are joined with "and". An index or a shape is put in parentheses."""
    if parameter in ("axes", "indices", "places"):
        return join_names([str(part) for part in value])
    if parameter == "order":
        return ", ".join(map(str, value))
    if all(isinstance(part, int) for part in value):
        is_index_in_list = parameter == "index" and len(value) == 1
        return str(value[0]) if is_index_in_list else str(value)
    return join_names(_returned_texts(value))


def _returned_texts(names: tuple[str, ...]) -> list[str]:
    """Return a phrase for each returned output, and one phrase for all outputs without a name."""
    texts = [value_text("returned", name) for name in names if name]
    n_unknown = names.count("")
    if n_unknown == 1:
        texts.append(value_text("returned", ""))
    elif n_unknown > 1:
        texts.append(catalog().texts["several_unknown_outputs"].format(n_unknown))
    return texts


def factor_text(factor: ScaleFactor) -> str:
    """Format a factor, such as "2", "-1/√d_k" or "about 3.2 times √(T_q · d_k)"."""
    texts = catalog().texts
    if factor.constant:
        name = catalog().words["constant"][factor.constant]
    else:
        name = _sizes_text(factor)
    if factor.number != 1:
        number = number_text(factor.sign * factor.number)
        template = texts["factor_whatever_the_sizes"] if name == "1" else texts["factor_times"]
        return template.format(number=number, name=name)
    if factor.sign > 0:
        return name
    return texts["factor_negative"].format(name=name)


def _sizes_text(factor: ScaleFactor) -> str:
    """Format the sizes of a factor as a product or a quotient, possibly under √ or as "1/…"."""
    if not factor.top:
        return "1"
    product = " · ".join(factor.top)
    if factor.bottom:
        product = f"{product}/{factor.bottom[0]}"
    is_compound = len(factor.top) > 1 or bool(factor.bottom)
    needs_brackets = is_compound and factor.power != 1.0
    text = f"({product})" if needs_brackets else product
    if abs(factor.power) == 0.5:
        text = f"√{text}"
    if factor.power < 0:
        text = f"1/{text}"
    return text


# --- phrases -----------------------------------------------------------------------------------------

# A phrase is a part of a sentence that is made from the parameters of a finding.

Given = Mapping[str, Any]


def _axes(given: Given) -> str:
    """Return the name of the finding's axis in the plural, such as "columns"."""
    return _plural("axis", given["axis"])


def _capital_axis(given: Given) -> str:
    """Return the name of the finding's axis with a capital letter, such as "Column"."""
    return _capitalise(value_text("axis", given["axis"]))


def _capital_axes(given: Given) -> str:
    """Return the name of the finding's axis in the plural with a capital letter, such as "Columns"."""
    return _capitalise(_axes(given))


def _nan(given: Given) -> str:
    """Return the phrase that says that some wrong entries are NaN, or "" if no entry is NaN."""
    return _text_if(given["has_nan"], "nan_among_them")


def _text_if(condition: bool, name: str) -> str:
    """Return the short text with this name if a condition holds, otherwise ""."""
    if condition:
        return catalog().texts[name]
    return ""


def _lines(given: Given) -> str:
    """Return "rows" or "columns"."""
    return str(catalog().words["lines"][given["line"]])


def _which(given: Given) -> str:
    """Return the phrase that says which entries the function returned, such as only the first ones."""
    return str(catalog().words["which"][given["end"]])


def _quoted_names(given: Given) -> str:
    """Put each name in backticks, and join the names."""
    return join_names([f"`{name}`" for name in given["names"]])


def _sequence(given: Given) -> str:
    """Join the names with commas."""
    return ", ".join(given["names"])


def _power(given: Given) -> str:
    """Return the word for a power of the gradient, such as the square."""
    return str(catalog().words["power"][str(given["power"])])


def _agreement(given: Given) -> str:
    """Return a sentence such as "dx is correct." or "dx and dgamma are correct."."""
    return _in_number(given["agree"], "agrees", "agree")


def _difference(given: Given) -> str:
    """Return a sentence such as "dx is wrong." or "dx and dgamma are wrong."."""
    return _in_number(given["differ"], "differs", "differ")


def _in_number(names: Sequence[str], one: str, several: str) -> str:
    """Insert the names into a text, which has one version for a single name and one for several names."""
    return catalog().texts[one if len(names) == 1 else several].format(join_names(names))


def _asked(given: Given) -> str:
    """Return the phrase for the number of expected outputs."""
    count = len(given["expected"])
    if count == 1:
        return catalog().texts["one_output_asked"]
    return catalog().texts["outputs_asked"].format(count)


def _entry(given: Given) -> str:
    """Format an index as it is written inside brackets: "0, 2"."""
    return ", ".join(map(str, given["index"]))


def _count(given: Given) -> str:
    """Return the phrase for the number of returned outputs."""
    count = len(given["returned"])
    if count == 1:
        return catalog().texts["one_output"]
    return catalog().texts["several_outputs"].format(count)


def _wave(given: Given) -> str:
    """Return the phrase for the frequency of a wave: "correct", or a number."""
    if given["is_correct"]:
        return catalog().texts["wave_at_correct_speed"]
    return catalog().texts["wave_at_speed"].format(number_text(given["speed"]))


def _first_at(given: Given) -> str:
    """Return the phrase for the index of the first wrong entry, or "" if the output is a single number."""
    if not given["index"]:
        return ""
    return catalog().texts["first_at"].format(value_text("index", given["index"]))


def _change(given: Given) -> str:
    """Return the phrase for a changed argument, such as the square of the argument."""
    return str(catalog().words["change"][given["change"]]).format(name=given["name"])


def _duration(given: Given) -> str:
    """Format a number of seconds, such as "10 seconds"."""
    template = catalog().texts["one_second" if given["seconds"] == 1 else "several_seconds"]
    return template.format(f"{given['seconds']:g}")


def _kept_decimals(given: Given) -> str:
    """Return the phrase for the number of decimals in an answer."""
    template = catalog().texts["one_decimal" if given["kept"] == 1 else "several_decimals"]
    return template.format(given["kept"])


def _found_numbers(given: Given) -> str:
    """Return the phrase for how many numbers an answer has."""
    count = given["found"]
    if count == 1:
        return catalog().texts["one_number"]
    return catalog().texts["several_numbers"].format(count)


def _agreeing_of_them(given: Given) -> str:
    """Return the phrase for how many numbers of an answer are correct."""
    count = given["agreeing"]
    if count == 1:
        return catalog().texts["one_of_them_agrees"]
    return catalog().texts["several_of_them_agree"].format(count)


def _expected_axes(given: Given) -> str:
    """Return the phrase for the expected number of axes. A single number has no axes."""
    count = given["expected"]
    if count == 0:
        return catalog().texts["no_axes"]
    if count == 1:
        return catalog().texts["one_axis"]
    return catalog().texts["several_axes"].format(count)


def _no_change(given: Given) -> str:
    """Return the phrase for a change that is expected but missing, such as "is not doubled"."""
    return str(catalog().words["no_change"][given["change"]])


def _whole_line(given: Given) -> str:
    """Return the phrase for a whole row or column of zeros, or "" if there is no such row or column."""
    return _text_if(given["whole_line"], "whole_line")


def _others_agree(given: Given) -> str:
    """Return the phrase "all other numbers are correct", or "" if other numbers are wrong too."""
    return _text_if(given["others_agree"], "others_agree")


def _error_text(given: Given) -> str:
    """Describe an error with its message, its line and its function, if these are known."""
    texts = catalog().texts
    text = str(given["error"])
    if given["message"]:
        template = texts["error_quoted" if given["is_remote"] else "error_message"]
        text = template.format(error=text, message=given["message"])
    if given["line"] is None:
        return text
    template = texts["error_line_of"] if given["function"] else texts["error_line"]
    return template.format(text=text, line=given["line"], function=given["function"])


def _lengths(given: Given) -> str:
    """Return the phrase for axes that are longer or shorter than they should be."""
    parts = []
    for name in ("longer", "shorter"):
        axes = [str(axis) for axis in given[name]]
        if axes:
            template = catalog().texts[name if len(axes) == 1 else f"{name}_many"]
            parts.append(template.format(join_names(axes)))
    return join_names(parts)


def _share(given: Given) -> str:
    """Format an error as a percentage of the largest number in the correct output."""
    texts = catalog().texts
    share = given["share"]
    if share < 0.01:
        return texts["small_share"]
    if share < 10:
        return texts["share"].format(100 * share)
    return texts["large_share"]


def _settings(given: Given) -> str:
    """List arguments with the values at which they have no effect, such as "gamma = 1 and eps near 0"."""
    texts = catalog().texts
    parts = []
    for name, value in zip(given["names"], given["values"], strict=True):
        template = texts["setting"] if value in (0, 1) else texts["setting_near_0"]
        parts.append(template.format(name=name, value=number_text(value)))
    return join_names(parts)


STOPPED = ("stopped", "stopped_in_one_check")
WITH_AXIS = tuple(kind for kind, (_, names) in KINDS.items() if "axis" in names)
WAVES = ("sines_agree_and_a_wave", "cosines_agree_and_a_wave")
AGREEMENTS = ("outputs_agree", "outputs_agree_where_it_runs", "some_outputs_agree")
# {placeholder: (the kinds of findings that may use the phrase, the function that makes the phrase)}
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
    "names": (("unused", "unused_there", "argument_changed"), _quoted_names),
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
    "agreeing_of_them": (("some_numbers_agree",), _agreeing_of_them),
    "expected_axes": (("wrong_number_of_axes",), _expected_axes),
    "no_change": (("not_linear",), _no_change),
    "found_numbers": (("wrong_count_of_numbers", "one_number_expected"), _found_numbers),
    "whole_line": (("unfilled",), _whole_line),
    "others_agree": (("nan_at", "infinite_at"), _others_agree),
}


def fill(template: str, finding: Finding, outputs: Sequence[str]) -> str:
    """Fill a template with the parameters and phrases of a finding."""
    if not template:
        return ""
    values = {name: value_text(name, value) for name, value in finding.parameters.items()}
    for phrase, (kinds, make) in PHRASES.items():
        if finding.kind in kinds:
            values[phrase] = make(finding.parameters)
    values["it"], values["It"] = _name_output(finding, outputs)
    values["name_of_output"] = finding.output
    return template.format(**values)


def _name_output(finding: Finding, outputs: Sequence[str]) -> tuple[str, str]:
    """Return the phrases for the output inside a sentence ({it}) and at its beginning ({It})."""
    texts = catalog().texts
    is_only_output = len(outputs) <= 1
    if not finding.output:
        it = texts["it"]
        it_at_beginning = texts["It"]
    elif is_only_output:
        it = texts["the_output"].format(finding.output)
        it_at_beginning = texts["The_output"].format(finding.output)
    else:
        it = finding.output
        it_at_beginning = finding.output
    if finding.view:  # A phrase about the derived call is at the beginning, before {It}.
        it = catalog().words["view_output"][finding.view]
        it_at_beginning = it
    return it, it_at_beginning


def _plural(parameter: str, value: Any) -> str:
    """Return the word for the value of a parameter, in the plural."""
    words_of_values = catalog().words.get(parameter, {})
    if isinstance(value, str) and value in words_of_values:
        return str(words_of_values[value][1])
    return str(value)


# These parameters are lists. If a list has several items, `sentence` prefers a template such as "says_many".
ENUMERATIONS = ("names", "indices", "places", "axes")


def sentence(finding: Finding, outputs: Sequence[str] = (), part: str = "says") -> str:
    """Write the sentence about a finding.

    If ``part`` is "cause" or "asks", write the likely cause or the question instead. Return "" if the finding
    has no template for this part.
    """
    template = catalog().findings[finding.kind]
    has_several = any(len(finding.parameters.get(name, ())) > 1 for name in ENUMERATIONS)
    several = f"{part}_many"
    if several in template and has_several:
        text = fill(template[several], finding, outputs)
    else:
        text = fill(template.get(part, ""), finding, outputs)
    if part == "says" and finding.view:
        view = catalog().words["view"][finding.view]
        return catalog().texts["in_a_view"].format(view=view, text=_capitalise(text))
    begins_with_name = template.get(part, "").startswith("{")
    if begins_with_name:
        return text
    return _capitalise(text)


def _capitalise(text: str) -> str:
    """Return a text with a capital first letter."""
    return text[:1].upper() + text[1:]


def decapitalise(text: str) -> str:
    """Return a text with a lowercase first letter."""
    return text[:1].lower() + text[1:]
