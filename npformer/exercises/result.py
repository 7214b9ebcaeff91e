"""The result of `check`: the verdict's data, and the sentences that `feedback` makes of it."""

import html
from typing import NamedTuple

from npformer.exercises import feedback
from npformer.exercises.bank import bank
from npformer.exercises.verdict import PASSES, Finding, Verdict

GREEN, VERMILLION = "#009E73", "#D55E00"
_passed: set[str] = set()  # the one thing here that remembers


def progress() -> str:
    """Return how many exercises passed in this session of Python; a later wrong answer takes none back.

    >>> progress().endswith(f"of {len(bank())}")
    True
    """
    return f"{len(_passed)} of {len(bank())}"


class Result(NamedTuple):
    """One checked answer; true when it passes.

    The first five fields are data. The last three are text for people; no program should read them.
    `evidence` says what is correct and what was observed. `hint` names the likely cause and where to read.
    `question` is None at level 1.
    """

    status: str  # "pass", "pass_variant", "known_mistake", "ambiguous", "unrecognised" or "error"
    codes: tuple[str, ...]  # the mistakes or variants that fit
    agreed: tuple[str, ...]  # the outputs that are correct on every call; none where the whole is rejected
    outputs: tuple[str, ...]  # the names of all outputs
    findings: tuple[Finding, ...]  # what was found out, as data
    evidence: str
    hint: str
    question: str | None

    def __bool__(self) -> bool:
        return self.status in PASSES

    @property
    def is_answered(self) -> bool:
        """Whether there was an answer at all: neither None nor the stub that was handed out."""
        return all(finding.kind != "unanswered" for finding in self.findings)

    def raise_if_wrong(self) -> None:
        """Raise AssertionError with the feedback as its message, unless the answer is correct.

        >>> from npformer.exercises import check
        >>> check("order.bag", "b").raise_if_wrong()
        """
        __tracebackhide__ = True  # pytest shows the line of the test
        if not self:
            raise AssertionError(str(self))

    def __repr__(self) -> str:
        title, *lines = feedback.card_lines(self)
        return "\n".join([feedback.heading(title, progress()), *(f"  {line}" for line in lines)])

    def _repr_html_(self) -> str:
        title, *lines = feedback.card_lines(self)
        body = "".join(f"<p style='margin:0.3em 0'>{html.escape(line)}</p>" for line in lines)
        colour = GREEN if self else VERMILLION
        border = f"border-left:4px solid {colour};padding:0.2em 0.8em;max-width:46em"
        passed = feedback.passed_text(progress())
        return (
            f"<div style='{border}'><b>{html.escape(title)}</b> "
            f"<span style='float:right'>{html.escape(passed)}</span>{body}</div>"
        )


def make_result(verdict: Verdict, level: int) -> Result:
    """The result with as much feedback as the level allows; a pass is counted."""
    if verdict.passes:
        _passed.add(verdict.exercise)
    text = feedback.text_of(verdict, level)
    data = (verdict.status, verdict.codes, verdict.agreed, verdict.outputs, verdict.findings)
    return Result(*data, text.evidence, text.hint, text.question)
