"""Typeset the formulas in the text of an exercise, such as d_model, √d_k and 10000^(2i/d_model)."""

import re
from html import escape
from typing import NamedTuple


class Notation(NamedTuple):
    """How a format writes the parts of a formula. Each field is a template; its comment lists the values."""

    root: str  # the radicand
    subscript: str  # a letter and its index
    power: str  # a base and its exponent
    word: str  # an index of several letters
    formula: str  # a complete formula within a text


# MathJax, which Moodle loads by default, typesets TeX between \( and \).
TEX = Notation(r"\sqrt{{{}}}", "{}_{{{}}}", "{}^{{{}}}", r"\mathrm{{{}}}", r"\({}\)")
HTML = Notation("√{}", "{}<sub>{}</sub>", "{}<sup>{}</sup>", "{}", "{}")
FORMULA = re.compile(
    r"(?P<root>√?)(?P<base>[A-Za-z]+|\d+)(?:_(?P<index>[A-Za-z0-9]+))?(?:\^(?P<power>\([^()]*\)|-?\d+))?"
)


def format_text(text: str, notation: Notation) -> str:
    """Return a text as HTML, in which the formulas have this notation.

    Parameters
    ----------
    text : str
    notation : Notation
        ``TEX`` or ``HTML``.

    Returns
    -------
    html : str

    Examples
    --------
    >>> format_text("1 < √d_model", TEX), format_text("10000^(2i/d_model)", HTML)
    ('1 &lt; \\\\(\\\\sqrt{d_{\\\\mathrm{model}}}\\\\)', '10000<sup>2i/d<sub>model</sub></sup>')
    """

    def replace(match: re.Match[str]) -> str:
        if not _is_formula(match):
            return match[0]
        return notation.formula.format(_format_formula(match, notation))

    return FORMULA.sub(replace, escape(text, quote=False))


def _is_formula(match: re.Match[str]) -> bool:
    """Return whether a word or a number has a root, an index or a power."""
    return bool(match["root"] or match["index"] or match["power"])


def _format_formula(match: re.Match[str], notation: Notation) -> str:
    """Write one formula. Its exponent may contain further formulas."""
    text = match["base"]
    index = match["index"]
    if index:
        has_several_letters = len(index) > 1
        if has_several_letters:
            index = notation.word.format(index)
        text = notation.subscript.format(text, index)
    if match["power"]:
        exponent = match["power"].strip("()")
        text = notation.power.format(
            text, FORMULA.sub(lambda inner: _format_formula(inner, notation), exponent)
        )
    if match["root"]:
        text = notation.root.format(text)
    return text
