"""Sentences for a verdict: the one module that decides what feedback says. No module reads it."""

from typing import NamedTuple, Protocol

from npformer.exercises import templates
from npformer.exercises.bank import bank
from npformer.exercises.task import Mistake
from npformer.exercises.templates import STOPPED, sentence
from npformer.exercises.verdict import Finding, Role, Verdict

# --- a verdict in sentences --------------------------------------------------------------------------


class Text(NamedTuple):
    """The text of a result at one level."""

    evidence: str
    hint: str
    question: str | None


def text_of(verdict: Verdict, level: int) -> Text:
    """Write the sentences for a verdict.

    Level 1 says what is correct and where the first difference is. Level 2 says what was observed. Level 3
    adds the likely cause, one question, and where to read. Level 2 asks the question if nothing was observed.
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
    """The observations of listed mistakes, of wrong options and of detectors."""
    findings = [sentence(finding, verdict.outputs) for finding in verdict.of_role(Role.OBSERVATION)]
    texts = list(dict.fromkeys(_observation_of(verdict.exercise, code) for code in verdict.codes))
    if verdict.status == "ambiguous" and len(texts) > 1:
        texts = [templates.catalog().texts["one_of_these"].format(" ".join(texts))]
    return list(dict.fromkeys(text for text in [*texts, *findings] if text))


def _observation_of(exercise: str, code: str) -> str:
    """The observation that belongs to a code: that of a wrong option, or that of a mistake."""
    option = templates.catalog().options.get((exercise, code))
    if option is not None:
        return option
    mistake = _mistake(code)
    return mistake.sees_in.get(exercise, mistake.sees)


def _mistake(code: str) -> Mistake:
    return templates.catalog().mistakes[code]


NEEDED = ("stopped_in_one_check", "one_call_returned_none", "wrong_shape", "wrong_number_of_axes")


def _needed_places(verdict: Verdict) -> list[str]:
    """The places that a reader needs although something was observed: calls that stopped, other shapes."""
    kinds = {finding.kind for finding in verdict.findings}
    if verdict.codes or "outputs_returned" in kinds:
        return []
    needed = [finding for finding in verdict.of_role(Role.PLACE) if finding.kind in NEEDED]
    return [sentence(finding, verdict.outputs) for finding in needed]


def _causes(verdict: Verdict) -> str:
    """The likely causes; if more than one cause fits, none is stated as a fact."""
    codes = [code for code in verdict.codes if (verdict.exercise, code) not in templates.catalog().options]
    causes = list(dict.fromkeys(_mistake(code).cause for code in codes))
    if not causes:
        is_unknown = verdict.status == "unrecognised" and not _is_explained(verdict)
        return templates.catalog().texts["no_known_mistake"] if is_unknown else ""
    if verdict.status == "ambiguous" and len(causes) > 1:
        return templates.catalog().texts["one_of_these"].format(" ".join(causes))
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
    mistake = templates.catalog().mistakes.get(verdict.codes[0]) if verdict.codes else None
    place = mistake.place if mistake else task.place
    return templates.catalog().texts["read"].format(place.read)


def _question(verdict: Verdict) -> str:
    """One question: of the mistake, of the finding, of the error, or of the exercise."""
    own = templates.catalog().questions[verdict.exercise]
    if verdict.codes:
        is_option = (verdict.exercise, verdict.codes[0]) in templates.catalog().options
        return own if is_option else _mistake(verdict.codes[0]).question
    for role in (Role.PROBLEM, Role.OBSERVATION, Role.PLACE, Role.AGREEMENT):
        for finding in verdict.of_role(role):
            if finding.kind in STOPPED:
                return _question_of_error(finding)
            if asks := sentence(finding, verdict.outputs, "asks"):
                return asks
    return _question_about_outputs(verdict) if verdict.agreed else own


def _question_about_outputs(verdict: Verdict) -> str:
    """A question about the outputs that differ, where others agree."""
    differ = [name for name in verdict.outputs if name not in verdict.agreed]
    return templates.catalog().texts["ask_about_outputs"].format(templates.join_names(differ))


def _question_of_error(finding: Finding) -> str:
    """The question that belongs to the type of an error."""
    errors, error = templates.catalog().errors, finding.parameters["error"]
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
    return templates.catalog().texts.get(f"title_{status.replace(' ', '_')}", status.capitalize())


def card_lines(card: Card) -> list[str]:
    """The title, and what is to be said below it, a line each."""
    if not card.is_answered:
        return [line for line in (card.evidence,) if line]
    return [title_of(card.status), *(line for line in (card.evidence, card.hint, card.question) if line)]


def passed_text(progress: str) -> str:
    """How many exercises have passed."""
    return templates.catalog().texts["passed"].format(progress)


def heading(title: str, progress: str) -> str:
    """The first line of a card in a terminal."""
    return f"{title}  ({passed_text(progress)})"
