"""How an answer is read: a letter, a truth value, a number or several, in the ways that people write them."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from npformer.backend import Array

LETTERS = "abcdef"
TRUTHS = {"true": True, "t": True, "1": True, "yes": True}
TRUTHS |= {"false": False, "f": False, "0": False, "no": False}


# --- words -----------------------------------------------------------------------------------------


def word(answer: Any) -> str:
    """An answer as a word: the only entry of a list, without quotes, brackets and full stops."""
    if isinstance(answer, list | tuple | np.ndarray) and np.size(answer) == 1:
        answer = np.asarray(answer, object).ravel()[0]
    if isinstance(answer, bytes):
        answer = answer.decode(errors="replace")
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)
    return str(answer).strip().strip("'\"()[].,:; ").casefold()


def read_letter(answer: Any, texts: Iterable[str]) -> str:
    """The letter of an option: the letter, its number counted from 1, or the option's own words; or "".

    >>> read_letter("Answer: b) cosine", ["sine", "cosine"])
    'b'
    """
    said, options = word(answer), dict(zip(LETTERS, texts, strict=False))
    spelt = {word(text): letter for letter, text in options.items()}
    if said in spelt:
        return spelt[said]
    found = re.match(r"(?:(?:the )?(?:answer|option)(?: is)?\W*)?([a-f1-6])(?:[).:\]]|$)", said)
    letter = found[1] if found else ""
    letter = LETTERS[int(letter) - 1] if letter.isdigit() else letter
    return letter if letter in options else ""


def read_truth(answer: Any) -> bool | None:
    """True or False, also as 1, "yes" or "true, because …"; None where it cannot be read.

    >>> read_truth("No, it has no weights."), read_truth("no idea")
    (False, None)
    """
    found = re.match(r"\w+(?=[,.;:]|$)", word(answer))
    return TRUTHS.get(found[0]) if found else None


# --- numbers ---------------------------------------------------------------------------------------


def read_numbers(answer: Any, shape: tuple[int, ...], whole: bool = False) -> Array | None:
    """The numbers of an answer, also of "0.030", "0,03", "1/20", "[1, 2]" or a list in a list, or None.

    Where `whole` numbers are asked for, the comma of "6,144" sets thousands apart.
    """
    if isinstance(answer, bytes):
        answer = answer.decode(errors="replace")
    if isinstance(answer, str):
        answer = _parsed(str(answer), shape, whole)
    elif isinstance(answer, list | tuple) and any(isinstance(part, str) for part in answer):
        answer = _all([read_number(part) if isinstance(part, str) else part for part in answer])
    if answer is None or isinstance(answer, bool | np.bool_):
        return None
    try:
        given = np.asarray(answer, float)
    except (TypeError, ValueError, OverflowError):
        return None
    lonely = given.size == int(np.prod(shape)) and (given.ndim < 2 or max(given.shape) == given.size)
    return given.reshape(shape) if lonely else given


def _parsed(text: str, shape: tuple[int, ...], whole: bool) -> Any:
    text = re.sub(r"^[^\W\d]\w*\s*=\s*", "", text.strip()).rstrip(".").replace("−", "-")
    if shape:
        return _all([read_number(part) for part in _parts(text.strip("[]()"), int(np.prod(shape)))])
    return read_number(text.strip("[]()"), whole)


def _parts(text: str, count: int) -> list[str]:
    """The numbers of a list: between semicolons, between commas or spaces, or with decimal commas."""
    if ";" in text:
        return [part for part in text.split(";") if part.strip()]
    words = text.split()
    decimal = len(words) == count and all(re.fullmatch(r"[+-]?\d+(,\d+)?%?", part) for part in words)
    return words if decimal else text.replace(",", " ").split()


def _all(numbers: list[Any]) -> list[Any] | None:
    return None if any(number is None for number in numbers) else numbers


def read_number(text: str, whole: bool = False) -> float | None:
    """One number: with a decimal comma, thousands set apart, as a fraction or in per cent; or None.

    >>> [read_number(text) for text in ("0,5", "1/2", "50 %", "2,099,712", "12 000", "half")]
    [0.5, 0.5, 0.5, 2099712.0, 12000.0, None]
    """
    text = text.strip().replace("−", "-")
    if text.endswith("%"):
        share = read_number(text[:-1])
        return None if share is None else share / 100
    many = "+" if whole else "{2,}"  # one comma alone may be a decimal one
    if re.fullmatch(rf"[+-]?\d{{1,3}}((,\d{{3}}){many}|([ '\u00a0\u202f]\d{{3}})+)", text):
        text = re.sub(r"[^\d+-]", "", text)
    top, stroke, below = (text.replace(",", ".") if text.count(",") == 1 else text).partition("/")
    try:
        return float(top) / float(below) if stroke else float(top)
    except (ValueError, ZeroDivisionError):
        return None
