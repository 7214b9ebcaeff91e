"""Write the feedback on a verdict. No other module decides what the feedback says."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from npformer.exercises import templates
from npformer.exercises.bank import bank
from npformer.exercises.task import Mistake
from npformer.exercises.templates import STOPPED, sentence
from npformer.exercises.verdict import Finding, Role, Verdict

# --- sentences about a verdict -----------------------------------------------------------------------


class Text(NamedTuple):
    """The text of a result at one level."""

    evidence: str
    hint: str
    question: str | None


def write_feedback(verdict: Verdict, level: int) -> Text:
    """Write the sentences for a verdict. The docstring of ``check`` defines the levels."""
    observations = _write_observations(verdict)
    fitting = _write_fitting_mistakes(verdict)
    correct = _write_sentences(verdict, Role.AGREEMENT)
    problems = _write_sentences(verdict, Role.PROBLEM)
    if verdict.passes:
        causes = dict.fromkeys(_mistake(code).cause for code in verdict.codes)
        return Text(_join(*problems, *correct, *observations), " ".join(causes), None)
    details = _write_sentences(verdict, Role.PLACE)
    if level > 1 and (observations or fitting):
        rejected = _write_places(verdict, WRONG_CHOICES)
        details = [*rejected, *observations, *_write_needed_places(verdict)]
    is_found_by_hard_calls_only = not (problems or correct or details)
    if is_found_by_hard_calls_only:
        details = observations
    evidence = _join(*problems, *correct, *details, *_write_sentences(verdict, Role.REMARK))
    is_unanswered = any(finding.kind == "unanswered" for finding in verdict.findings)
    if is_unanswered:
        return Text(evidence, "", None)
    if level == 1:
        return Text(evidence, "", None)
    hint = fitting or _write_causes(verdict)
    if level == 3:
        hint = _join(hint, write_reading(verdict))
    return Text(evidence, hint, _choose_question(verdict))


def _write_sentences(verdict: Verdict, role: Role) -> list[str]:
    """Write a sentence about each finding that has this role."""
    return [sentence(finding, verdict.outputs) for finding in verdict.of_role(role)]


def _write_observations(verdict: Verdict) -> list[str]:
    """Write the observations of listed mistakes, of wrong options and of detectors.

    If several mistakes fit and their observations differ, the observations of the mistakes are left out,
    because ``_write_fitting_mistakes`` lists the mistakes.
    """
    of_codes = _distinct_observations(verdict)
    if _is_list_of_mistakes(verdict) and len(of_codes) > 1:
        of_codes = []
    of_findings = [
        sentence(finding, verdict.outputs)
        for finding in verdict.of_role(Role.OBSERVATION)
        if not (verdict.codes and finding.kind in SIDES)  # "too large" adds nothing to a listed mistake.
    ]
    texts = dict.fromkeys([*of_codes, *of_findings])
    return [text for text in texts if text]


def _write_fitting_mistakes(verdict: Verdict) -> str:
    """Write one list of the mistakes that fit, or "" if the answer does not fit several mistakes.

    Each item is the likely cause of a mistake, or the text about a wrong number, which has no cause.
    """
    if not _is_list_of_mistakes(verdict):
        return ""
    items = _causes_of_codes(verdict)
    return templates.catalog().texts["fitting_mistakes"].format(len(items), _number_texts(items))


def _is_list_of_mistakes(verdict: Verdict) -> bool:
    """Return whether the feedback lists several mistakes that fit."""
    return verdict.status == "ambiguous" and len(_causes_of_codes(verdict)) > 1


def _causes_of_codes(verdict: Verdict) -> list[str]:
    """Return the likely cause of each listed mistake, and the text about each wrong number."""
    exercise = verdict.exercise
    texts = [_cause_of(exercise, code) or _observation_of(exercise, code) for code in verdict.codes]
    return list(dict.fromkeys(texts))


def _number_texts(texts: Sequence[str]) -> str:
    """Join texts with a number before each, as parts of one sentence: (1) perhaps …; (2) perhaps …"""
    parts = [templates.decapitalise(text.removesuffix(".")) for text in texts]
    return "; ".join(f"({i}) {part}" for i, part in enumerate(parts, start=1))


def _distinct_observations(verdict: Verdict) -> list[str]:
    """Return the observation of each listed mistake and each wrong option, without repetitions."""
    return list(dict.fromkeys(_observation_of(verdict.exercise, code) for code in verdict.codes))


def _observation_of(exercise: str, code: str) -> str:
    """Return the text that describes a wrong option or a listed mistake with this code."""
    option = templates.catalog().options.get((exercise, code))
    if option is not None:
        return option
    mistake = _mistake(code)
    return mistake.sees_in.get(exercise, mistake.sees)


def _cause_of(exercise: str, code: str) -> str:
    """Return the likely cause of a listed mistake, or "" for a wrong option, which has no cause."""
    is_option = (exercise, code) in templates.catalog().options
    return "" if is_option else _mistake(code).cause


def _mistake(code: str) -> Mistake:
    """Return the listed mistake with this code."""
    return templates.catalog().mistakes[code]


NEEDED = ("stopped_in_one_check", "one_call_returned_none", "wrong_shape", "wrong_number_of_axes")
WRONG_CHOICES = ("not_this_option", "not_so")


def _write_needed_places(verdict: Verdict) -> list[str]:
    """Write the sentences about failed calls and wrong shapes.

    A student needs these sentences in addition to the observations. They are left out if a listed mistake or
    the form of the returned value explains the answer.
    """
    kinds = {finding.kind for finding in verdict.findings}
    if verdict.codes or "outputs_returned" in kinds:
        return []
    return _write_places(verdict, NEEDED)


def _write_places(verdict: Verdict, kinds: Sequence[str]) -> list[str]:
    """Write the sentences about the first difference, if the findings are of these kinds."""
    places = [finding for finding in verdict.of_role(Role.PLACE) if finding.kind in kinds]
    return [sentence(finding, verdict.outputs) for finding in places]


def _write_causes(verdict: Verdict) -> str:
    """Write the likely causes of the listed mistakes, or else the first likely cause of an observation."""
    causes = dict.fromkeys(_cause_of(verdict.exercise, code) for code in verdict.codes)
    if any(causes):
        return _join(*causes)
    of_observations = _causes_of_observations(verdict)
    if of_observations:
        return of_observations[0]
    is_unknown = verdict.status == "unrecognised" and not _is_explained(verdict)
    if is_unknown:
        return templates.catalog().texts["no_known_mistake"]
    return ""


def _causes_of_observations(verdict: Verdict) -> list[str]:
    """Return the likely cause of each observation that has one."""
    causes = [sentence(finding, verdict.outputs, "cause") for finding in verdict.of_role(Role.OBSERVATION)]
    return [cause for cause in causes if cause]


def _is_explained(verdict: Verdict) -> bool:
    """Return whether a finding describes more than the size, the sign or the place of an error."""
    for finding in verdict.findings:
        is_observation = finding.role == Role.OBSERVATION and finding.kind not in ONLY_SIDES
        if is_observation or finding.kind in EXPLAINING:
            return True
    return False


SIDES = ("too_large", "too_small", "all_too_large", "all_too_small", "too_large_and_too_small")
ONLY_SIDES = (*SIDES, "numbers_differ", "numbers_too_large", "numbers_too_small", "off_by")
EXPLAINING = (
    "rounded_answer", "truncated_answer", "unmended", "stopped", "stopped_in_one_check",
    "finite_but_wrong_far_out", "unreadable_type", "unreadable_count",
)  # fmt: skip


def write_reading(verdict: Verdict) -> str:
    """Name what to read for the first listed mistake, or for the exercise: the lesson, then the paper."""
    place = bank()[verdict.exercise].place
    if verdict.codes:
        mistake = templates.catalog().mistakes.get(verdict.codes[0])
        if mistake is not None:
            place = mistake.place
    texts = templates.catalog().texts
    if place.read.startswith("lesson "):
        return texts["read"].format(place.read)
    lesson = texts["lesson"].format(", ".join(place.teach.split(", ")[:2]))
    return texts["read_both"].format(lesson, place.read)


def _choose_question(verdict: Verdict) -> str:
    """Return one question: about the listed mistakes, a finding, the outputs, or the exercise."""
    catalog = templates.catalog()
    general_question = catalog.questions[verdict.exercise]
    if _is_list_of_mistakes(verdict):
        return catalog.texts["ask_which_mistake"]
    if verdict.codes:
        is_option = (verdict.exercise, verdict.codes[0]) in catalog.options
        if is_option:
            return general_question
        return _mistake(verdict.codes[0]).question
    for role in (Role.PROBLEM, Role.OBSERVATION, Role.PLACE, Role.AGREEMENT):
        for finding in verdict.of_role(role):
            if finding.kind in STOPPED:
                return _question_of_error(finding)
            question = sentence(finding, verdict.outputs, "asks")
            if question:
                return question
    if verdict.agreed:
        return _question_about_outputs(verdict)
    return general_question


def _question_about_outputs(verdict: Verdict) -> str:
    """Return a question about the outputs that differ, if some outputs agree."""
    differ = [name for name in verdict.outputs if name not in verdict.agreed]
    return templates.catalog().texts["ask_about_outputs"].format(templates.join_names(differ))


def _question_of_error(finding: Finding) -> str:
    """Return the question for the type of an error."""
    errors = templates.catalog().errors
    error = finding.parameters["error"]
    never_started = error == "TypeError" and finding.parameters["line"] is None
    if never_started:
        return errors["call"]
    return errors.get(error, errors["other"])


def _join(*parts: str) -> str:
    """Join the texts that are not empty."""
    return " ".join(part for part in parts if part)


# --- cards -------------------------------------------------------------------------------------------


class Card(Protocol):
    """The fields that a feedback card shows. A ``Result`` and a row of the grader's table have them."""

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
    """Return the title of a card with this status."""
    return templates.catalog().texts.get(f"title_{status.replace(' ', '_')}", status.capitalize())


def card_lines(card: Card) -> list[str]:
    """Return the lines of a card: its title and each text that is not empty.

    The card of an unanswered exercise has no title.
    """
    if not card.is_answered:
        lines = [card.evidence]
    else:
        lines = [title_of(card.status), card.evidence, card.hint, card.question or ""]
    return [line for line in lines if line]


def passed_text(n_passed: int) -> str:
    """Return the text about the number of exercises that passed since Python started.

    Each lesson runs in its own Python process, so in a lesson this number counts the lesson's exercises.
    """
    return templates.catalog().texts["passed"].format(n_passed)


def heading(title: str, n_passed: int) -> str:
    """Return the first line of a card in a terminal."""
    return f"{title}  ({passed_text(n_passed)})"
