"""The result of ``check``: the data of the verdict, and the sentences that ``feedback`` writes about it."""

import html
import re
from typing import NamedTuple

from npformer.exercises import feedback
from npformer.exercises.bank import bank
from npformer.exercises.verdict import PASSES, Finding, Verdict

GREEN, VERMILLION = "#009E73", "#D55E00"
_passed: set[str] = set()  # the ids of the exercises with a correct answer since Python started


def progress() -> str:
    """Return how many exercises were answered correctly since Python started, such as "3 of 120".

    An exercise counts once. A wrong answer after a correct answer does not change the number.

    Returns
    -------
    text : str

    Examples
    --------
    >>> progress().endswith(f"of {len(bank())}")
    True
    """
    return f"{len(_passed)} of {len(bank())}"


class Result(NamedTuple):
    """The result of checking one answer. It is true if the answer is correct.

    The first five fields are data for programs. The last three fields are text for people, and their wording
    may change.

    Attributes
    ----------
    status : str
        "pass": correct.
        "pass_variant": correct in a different form, which ``codes`` names.
        "known_mistake": wrong, in the way that ``codes`` names.
        "ambiguous": wrong, and several mistakes in ``codes`` give this answer.
        "unrecognised": wrong, but not in a listed way; ``findings`` describes the difference.
        "error": the answer could not be checked, for example because the function stopped with an error.
    codes : tuple of str
        The codes of the listed mistakes or variants that give this answer.
    agreed : tuple of str
        The names of the outputs that are correct on every call. It is empty if the whole answer is rejected.
    outputs : tuple of str
        The names of all outputs. It is empty if the exercise does not ask for a function.
    findings : tuple of Finding
        The facts about the answer: each has a ``kind``, an ``output``, ``parameters`` and a ``view``.
    evidence : str
        What is correct and what was observed.
    hint : str
        The likely cause if one is known, and at level 3 what to read. It is "" at level 1, except for a
        variant that passes.
    question : str or None
        A question that leads to the mistake. It is None at level 1.

    Examples
    --------
    >>> from npformer.exercises import check
    >>> result = check("order.bag", "b")
    >>> bool(result), result.status, result.codes
    (True, 'pass', ())
    """

    status: str
    codes: tuple[str, ...]
    agreed: tuple[str, ...]
    outputs: tuple[str, ...]
    findings: tuple[Finding, ...]
    evidence: str
    hint: str
    question: str | None

    def __bool__(self) -> bool:
        return self.status in PASSES

    @property
    def is_answered(self) -> bool:
        """Whether there was an answer. None and an empty function are no answers."""
        return all(finding.kind != "unanswered" for finding in self.findings)

    def raise_if_wrong(self) -> None:
        """Raise an error with the feedback as its message, unless the answer is correct.

        Raises
        ------
        AssertionError
            If the answer is wrong or could not be checked.

        Examples
        --------
        >>> from npformer.exercises import check
        >>> check("order.bag", "b").raise_if_wrong()
        """
        __tracebackhide__ = True  # With this name, pytest shows the line of the test instead of this line.
        if not self:
            raise AssertionError(str(self))

    def __repr__(self) -> str:
        title, *lines = feedback.card_lines(self)
        return "\n".join([feedback.heading(title, len(_passed)), *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        title, *lines = feedback.card_lines(self)
        body = "".join(f"<p style='margin:0.3em 0'>{_to_html(line)}</p>" for line in lines)
        colour = GREEN if self else VERMILLION
        border = f"border-left:4px solid {colour};padding:0.2em 0.8em;max-width:46em"
        passed = feedback.passed_text(len(_passed))
        return (
            f"<div style='{border}'><b>{html.escape(title)}</b> "
            f"<span style='float:right'>{html.escape(passed)}</span>{body}</div>"
        )


def _to_html(line: str) -> str:
    """Return a line of a card as HTML. Text between backticks is shown as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(line))


def make_result(verdict: Verdict, level: int) -> Result:
    """Make the result with the feedback at this level, and record the exercise if the answer is correct."""
    if verdict.passes:
        _passed.add(verdict.exercise)
    text = feedback.write_feedback(verdict, level)
    return Result(
        status=verdict.status,
        codes=verdict.codes,
        agreed=verdict.agreed,
        outputs=verdict.outputs,
        findings=verdict.findings,
        evidence=text.evidence,
        hint=text.hint,
        question=text.question,
    )
