"""What a check says: a verdict, the evidence for it and one question; quiet text or a quiet card."""

import dis
import html
import sys
from types import FrameType
from typing import NamedTuple

from npformer.exercises.bank import progress

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
    evidence: str  # what is right, then what was seen
    hint: str  # what such a pattern comes from; at level 3 also where to read
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
            f"<span style='color:#7F7F7F;float:right'>{progress()} passed</span>{body}</div>"
        )


def passed(note: str = "Every check agrees.", codes: tuple[str, ...] = ()) -> Result:
    """A right answer."""
    return Result("pass", codes, note, "", None)


def unanswered() -> Result:
    """None, or a stub as it was handed out."""
    return Result("error", (), NOTHING, "", None)


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
