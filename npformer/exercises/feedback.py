"""Sentences for a verdict: the one module that writes feedback. No module reads it.

The sentences are templates in feedback.toml, mistakes.md and questions.md. A template has the parameters of
a finding in braces, and four names more: {it}, the output that a finding is about, {It} at the beginning of a
sentence, {names} and others in a list with "and", and {axis} and {axes} as the words for one and for several
lines along an axis.
"""

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from npformer.exercises.bank import bank
from npformer.exercises.bank.questions import asked, words
from npformer.exercises.number_detectors import ScaleFactor
from npformer.exercises.task import Mistake
from npformer.exercises.verdict import Finding, Role, Verdict
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
        for wrong in question.said.values()
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
    """One parameter as it stands in a sentence."""
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


def fill(template: str, finding: Finding, outputs: Sequence[str]) -> str:
    """A template with the parameters of a finding."""
    if not template:
        return ""
    named = {name: value_text(name, value) for name, value in finding.parameters.items()}
    named |= _phrases(finding)
    has_several_outputs = len(outputs) > 1
    if has_several_outputs or not finding.output:
        named["it"] = named["It"] = finding.output or catalog().texts["it"]
        named["It"] = finding.output or catalog().texts["It"]
    else:
        named["it"] = catalog().texts["the_output"].format(finding.output)
        named["It"] = catalog().texts["The_output"].format(finding.output)
    named["name_of_output"] = finding.output
    return template.format(**named)


def _phrases(finding: Finding) -> dict[str, str]:
    """Parts of sentences that are made of several parameters, or of one in another form."""
    texts, given, phrases = catalog().texts, finding.parameters, dict[str, str]()
    if "axis" in given:
        phrases["axes"] = _plural("axis", given["axis"])
        phrases["Axes"] = _capitalised(phrases["axes"])
        phrases["Axis"] = _capitalised(value_text("axis", given["axis"]))
    if finding.kind in STOPPED:
        phrases["error_text"] = _error_text(finding)
    if finding.kind == "wrong_shape":
        phrases["lengths"] = _lengths_text(finding)
    if finding.kind == "differs_at":
        phrases["nan"] = texts["nan_among_them"] if given["has_nan"] else ""
    if finding.kind == "off_by":
        phrases["share"] = _share_text(given["share"])
    if finding.kind in ("too_few", "too_many"):
        phrases["lines"] = catalog().words["lines"][given["line"]]
    if finding.kind in ("too_few", "too_few_entries"):
        phrases["which"] = catalog().words["which"][given["end"]]
    if finding.kind in ("unused", "unused_there"):
        *before, last = given["names"]
        phrases["names_or"] = texts["or"].format(", ".join(before), last) if before else last
    if finding.kind == "agrees_at_neutral":
        phrases["settings"] = _settings_text(finding)
    if finding.kind == "calls_in_order":
        phrases["sequence"] = ", ".join(given["names"])
    if finding.kind == "running_mean":
        phrases["power"] = catalog().words["power"][str(given["power"])]
    if finding.kind in ("outputs_agree", "some_outputs_agree"):
        phrases["agreement"] = _agreement_text(given["agree"], "agrees", "agree")
    if finding.kind == "some_outputs_agree":
        phrases["difference"] = _agreement_text(given["differ"], "differs", "differ")
    if finding.kind in ("outputs_returned", "unreadable_count"):
        phrases["asked"] = _asked_text(given.get("expected", given.get("outputs", ())))
    if finding.kind == "outputs_returned":
        phrases["count"] = str(len(given["returned"]))
    if finding.kind in ("sines_agree_and_a_wave", "cosines_agree_and_a_wave"):
        at_speed = texts["wave_at_speed"].format(number_text(given["speed"]))
        phrases["wave"] = texts["wave_at_correct_speed"] if given["is_correct"] else at_speed
    if finding.kind in ("nan_at", "infinite_at"):
        index = given["index"]
        phrases["first_at"] = texts["first_at"].format(value_text("index", index)) if index else ""
    if finding.kind == "correct_for_changed_argument":
        phrases["change"] = catalog().words["change"][given["change"]].format(name=given["name"])
    if finding.kind == "too_long":
        seconds = given["seconds"]
        phrases["duration"] = texts["one_second" if seconds == 1 else "several_seconds"].format(
            f"{seconds:g}"
        )
    if finding.kind in ("rounded_answer", "truncated_answer"):
        kept = given["kept"]
        phrases["kept_decimals"] = texts["one_decimal" if kept == 1 else "several_decimals"].format(kept)
    for flag in ("whole_line", "others_agree"):
        if flag in given:
            phrases[flag] = texts[flag] if given[flag] else ""
    return phrases


def _agreement_text(names: Sequence[str], one: str, several: str) -> str:
    """ "dx agrees." or "dx and dgamma agree." """
    template = catalog().texts[one if len(names) == 1 else several]
    return template.format(join_names(names))


def _asked_text(outputs: Sequence[str]) -> str:
    """How many outputs are asked for."""
    texts = catalog().texts
    return texts["one_output_asked"] if len(outputs) == 1 else texts["outputs_asked"].format(len(outputs))


def _error_text(finding: Finding) -> str:
    """An error with its message, its line and its function, as far as they are known."""
    texts, given = catalog().texts, finding.parameters
    text = given["error"]
    if given["message"]:
        template = texts["error_quoted" if given["is_remote"] else "error_message"]
        text = template.format(error=text, message=given["message"])
    if given["line"] is None:
        return str(text)
    template = texts["error_line_of"] if given["function"] else texts["error_line"]
    return template.format(text=text, line=given["line"], function=given["function"])


def _lengths_text(finding: Finding) -> str:
    """Which axes are longer or shorter than asked for."""
    parts = []
    for name in ("longer", "shorter"):
        axes = [str(axis) for axis in finding.parameters[name]]
        if axes:
            template = catalog().texts[name if len(axes) == 1 else f"{name}_many"]
            parts.append(template.format(join_names(axes)))
    return join_names(parts)


def _share_text(share: float) -> str:
    """A share of the largest number, in per cent."""
    texts = catalog().texts
    if share < 0.01:
        return texts["small_share"]
    return texts["share"].format(100 * share) if share < 10 else texts["large_share"]


def _settings_text(finding: Finding) -> str:
    """Arguments with the values at which they do nothing: gamma = 1 and eps near 0."""
    texts, parts = catalog().texts, []
    for name, value in zip(finding.parameters["names"], finding.parameters["values"], strict=True):
        is_exact = value in (0, 1)
        template = texts["setting"] if is_exact else texts["setting_near_0"]
        parts.append(template.format(name=name, value=number_text(value)))
    return join_names(parts)


def _plural(parameter: str, value: Any) -> str:
    word = catalog().words.get(parameter, {}).get(value) if isinstance(value, str) else None
    return str(value) if word is None else str(word[1])


def sentence(finding: Finding, outputs: Sequence[str] = (), part: str = "says") -> str:
    """What is said of a finding, or with part="asks" the question that follows; "" where there is none."""
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


# --- a verdict in sentences --------------------------------------------------------------------------


class Text(NamedTuple):
    """The text of a result at one level."""

    evidence: str
    hint: str
    question: str | None


def text_of(verdict: Verdict, level: int) -> Text:
    """The sentences for a verdict.

    Level 1 says what is correct and where the first difference is, level 2 what was observed, level 3 also
    the likely cause, one question, and where to read. Level 2 asks the question where nothing was observed.
    """
    seen = _observations(verdict)
    correct = _sentences(verdict, Role.AGREEMENT)
    remarks = _sentences(verdict, Role.REMARK)
    problems = _sentences(verdict, Role.PROBLEM)
    if verdict.passes:
        mistakes = [_mistake(code) for code in verdict.codes]
        causes = " ".join(dict.fromkeys(mistake.cause for mistake in mistakes))
        return Text(_joined(*problems, *correct, *seen), causes, None)
    places = _sentences(verdict, Role.PLACE)
    if level > 1 and seen:
        evidence = _joined(*problems, *correct, *seen, *_needed_places(verdict), *remarks)
    else:
        evidence = _joined(*problems, *correct, *places, *remarks)
    asks_already = level == 2 and not seen
    question = _question(verdict) if level > 2 or asks_already else ""
    hint = _joined(_causes(verdict), _reading(verdict)) if level > 2 else ""
    if any(finding.kind == "unanswered" for finding in verdict.findings):
        return Text(evidence, "", None)
    return Text(evidence, hint, question or None)


def _sentences(verdict: Verdict, role: Role) -> list[str]:
    return [sentence(finding, verdict.outputs) for finding in verdict.of_role(role)]


def _observations(verdict: Verdict) -> list[str]:
    """What was observed: of listed mistakes, of an option, or by detectors."""
    findings = [sentence(finding, verdict.outputs) for finding in verdict.of_role(Role.OBSERVATION)]
    texts = [_observation_of(verdict.exercise, code) for code in verdict.codes]
    return list(dict.fromkeys(text for text in [*texts, *findings] if text))


def _observation_of(exercise: str, code: str) -> str:
    """What a code says that was observed: as an answer to this question, or as a mistake."""
    option = catalog().options.get((exercise, code))
    if option is not None:
        return option
    mistake = _mistake(code)
    return mistake.sees_in.get(exercise, mistake.sees)


def _mistake(code: str) -> Mistake:
    return catalog().mistakes[code]


STOPPED = ("stopped", "stopped_in_one_check")
NEEDED = ("stopped_in_one_check", "one_call_returned_none", "wrong_shape", "wrong_number_of_axes")


def _needed_places(verdict: Verdict) -> list[str]:
    """The places that a reader needs although something was observed: calls that stopped, other shapes."""
    kinds = {finding.kind for finding in verdict.findings}
    if verdict.codes or "outputs_returned" in kinds:
        return []
    needed = [finding for finding in verdict.of_role(Role.PLACE) if finding.kind in NEEDED]
    return [sentence(finding, verdict.outputs) for finding in needed]


def _causes(verdict: Verdict) -> str:
    """The likely causes; several that no output can tell apart are not stated as facts."""
    codes = [code for code in verdict.codes if (verdict.exercise, code) not in catalog().options]
    causes = list(dict.fromkeys(_mistake(code).cause for code in codes))
    if not causes:
        is_unknown = verdict.status == "unrecognised" and not _is_explained(verdict)
        return catalog().texts["no_known_mistake"] if is_unknown else ""
    if verdict.status == "ambiguous" and len(causes) > 1:
        return catalog().texts["one_of_these"].format(" ".join(causes))
    return " ".join(causes)


def _is_explained(verdict: Verdict) -> bool:
    """Whether a finding says more than where an answer differs and on which side."""
    for finding in verdict.findings:
        is_observation = finding.role == Role.OBSERVATION and finding.kind not in ONLY_SIDES
        if is_observation or finding.kind in EXPLAINING:
            return True
    return False


ONLY_SIDES = (
    "too_large", "too_small", "all_too_large", "all_too_small", "too_large_and_too_small",
    "numbers_differ", "numbers_too_large", "numbers_too_small", "off_by",
)  # fmt: skip
EXPLAINING = (
    "rounded_answer", "truncated_answer", "unmended", "stopped", "stopped_in_one_check",
    "finite_but_wrong_far_out", "unreadable_type", "unreadable_count",
)  # fmt: skip


def _reading(verdict: Verdict) -> str:
    """Where to read on."""
    task = bank()[verdict.exercise]
    mistake = catalog().mistakes.get(verdict.codes[0]) if verdict.codes else None
    place = mistake.place if mistake else task.place
    return catalog().texts["read"].format(place.read)


def _question(verdict: Verdict) -> str:
    """One question: of the mistake, of the finding, of the error, or of the exercise."""
    own = catalog().questions[verdict.exercise]
    if verdict.codes:
        is_option = (verdict.exercise, verdict.codes[0]) in catalog().options
        return own if is_option else _mistake(verdict.codes[0]).question
    for role in (Role.PROBLEM, Role.OBSERVATION, Role.PLACE, Role.AGREEMENT):
        for finding in verdict.of_role(role):
            if finding.kind in STOPPED:
                return _question_of_error(finding)
            if asks := sentence(finding, verdict.outputs, "asks"):
                return asks
    return own


def _question_of_error(finding: Finding) -> str:
    """The question that belongs to the type of an error."""
    errors, error = catalog().errors, finding.parameters["error"]
    never_started = error == "TypeError" and finding.parameters["line"] is None
    return errors["call"] if never_started else errors.get(error, errors["other"])


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


# --- cards -------------------------------------------------------------------------------------------


class Card(Protocol):
    """What a card is made of: a `Result`, or a row of a grader's table."""

    @property
    def status(self) -> str: ...
    @property
    def evidence(self) -> str: ...
    @property
    def hint(self) -> str: ...
    @property
    def question(self) -> str | None: ...
    @property
    def is_answered(self) -> bool: ...


def title_of(status: str) -> str:
    """The title of a card with this status."""
    return catalog().texts.get(f"title_{status.replace(' ', '_')}", status.capitalize())


def card_lines(card: Card) -> list[str]:
    """The title, and what is to be said below it, a line each."""
    if not card.is_answered:
        return [line for line in (card.evidence,) if line]
    return [title_of(card.status), *(line for line in (card.evidence, card.hint, card.question) if line)]


def passed_text(progress: str) -> str:
    """How many exercises have passed."""
    return catalog().texts["passed"].format(progress)


def heading(title: str, progress: str) -> str:
    """The first line of a card in a terminal."""
    return f"{title}  ({passed_text(progress)})"
