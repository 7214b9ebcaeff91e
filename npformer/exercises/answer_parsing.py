"""How an answer is read: a letter, a truth value, a number or several, in the ways that people write them."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises.arithmetic import read_arithmetic, remove_name, simplify

MAX_LIST_LENGTH = 1000  # characters of a list of calculations

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
    """Read a number or a list of numbers, typed in any usual way; None if the answer cannot be read.

    Parameters
    ----------
    answer : a number, an array, a list that may contain strings, or a string
    shape : the shape of the expected answer
        The empty shape asks for one number. Numbers in one row or column are given this shape if they fit.
    whole : bool
        Whether a whole number is expected. Then the comma of "6,144" separates thousands.

    Examples
    --------
    >>> read_numbers("[1/8, √4, 0.5]", (3,)), read_numbers("0,5 0,25", (2,)), read_numbers("many", ())
    (array([0.125, 2.   , 0.5  ]), array([0.5 , 0.25]), None)
    """
    if isinstance(answer, bytes):
        answer = answer.decode(errors="replace")
    if isinstance(answer, str):
        answer = _read_text(str(answer), shape, whole)
    elif isinstance(answer, list | tuple) and any(isinstance(part, str) for part in answer):
        answer = _read_entries(answer)
    if answer is None or isinstance(answer, bool | np.bool_):
        return None
    try:
        given = np.asarray(answer, float)
    except (TypeError, ValueError, OverflowError):
        return None
    has_size = given.size == int(np.prod(shape))
    is_row_or_column = given.ndim < 2 or max(given.shape) == given.size
    if has_size and is_row_or_column:
        return given.reshape(shape)
    return given


def _read_entries(entries: Iterable[Any]) -> list[Any] | None:
    """Read the strings among the entries of a list; None if one cannot be read."""
    numbers = []
    for entry in entries:
        number = entry
        if isinstance(entry, str):
            number = read_number(entry)
        if number is None:
            return None
        numbers.append(number)
    return numbers


def _read_text(text: str, shape: tuple[int, ...], whole: bool) -> float | list[float] | None:
    """Read a string as one number or, for a shape with dimensions, as a list."""
    text = re.sub(r"^[^\W\d]\w*\s*=\s*", "", text.strip()).rstrip(".").replace("−", "-")
    if shape:
        return _read_list(text, int(np.prod(shape)))
    number = _read_plain_number(text.strip("[]()"), whole)
    if number is None:
        number = read_arithmetic(text, whole)
    return number


def _read_list(text: str, count: int) -> list[float] | None:
    """Read a list of plain numbers, or else a list of calculations."""
    parts = _split_plain_list(text.strip("[]()"), count)
    numbers = [_read_plain_number(part) for part in parts]
    plain = [number for number in numbers if number is not None]
    if len(plain) == len(parts):
        return plain
    return _read_calculations(text, count)


def _split_plain_list(text: str, count: int) -> list[str]:
    """Split at semicolons, at commas and spaces, or only at spaces if each comma is a decimal comma."""
    if ";" in text:
        return [part for part in text.split(";") if part.strip()]
    words = text.split()
    plain_words = [part for part in words if re.fullmatch(r"[+-]?\d+(,\d+)?%?", part)]
    has_decimal_commas = len(words) == count and plain_words == words
    if has_decimal_commas:
        return words
    return text.replace(",", " ").split()


def _read_calculations(text: str, count: int) -> list[float] | None:
    """Read a list of calculations; None unless there is exactly one way to split it into `count` numbers.

    >>> _read_calculations("[cos(0), 2 * 3]", 2), _read_calculations("√4 3!", 2)
    ([1.0, 6.0], [2.0, 6.0])
    >>> _read_calculations("1,5 √4", 2)  # 1 and 5√4, or 1.5 and √4
    """
    if len(text) > MAX_LIST_LENGTH:
        return None
    text = _remove_outer_brackets(remove_name(simplify(text)))
    text = " ".join(text.split())
    separators = [",", " "]
    if ";" in text:
        separators = [";"]
    readings: list[list[float]] = []
    for separator in separators:
        numbers = _read_entries(_split_outside_brackets(text, separator))
        if numbers is None or len(numbers) != count:
            continue
        if numbers not in readings:
            readings.append(numbers)
    if len(readings) == 1:
        return readings[0]
    return None


def _find_depths(text: str) -> list[int]:
    """Count, for each character, the brackets that are open after it.

    >>> _find_depths("a(b)")
    [0, 1, 1, 0]
    """
    depths = []
    depth = 0
    for character in text:
        if character in "([{":
            depth += 1
        if character in ")]}":
            depth -= 1
        depths.append(depth)
    return depths


def _remove_outer_brackets(text: str) -> str:
    """Remove the pairs of brackets that enclose the whole text.

    >>> _remove_outer_brackets("[(1), (2)]"), _remove_outer_brackets("(1), (2)")
    ('(1), (2)', '(1), (2)')
    """
    while text[:1] in ("[", "("):
        depths = _find_depths(text)
        encloses_all = depths[-1] == 0 and 0 not in depths[:-1]
        if not encloses_all:
            return text
        text = text[1:-1].strip()
    return text


def _split_outside_brackets(text: str, separator: str) -> list[str]:
    """Split a text at a separator that is in no brackets; leave out blank parts.

    >>> _split_outside_brackets("cos(1,5), 2", ",")
    ['cos(1,5)', ' 2']
    """
    parts = [""]
    for character, depth in zip(text, _find_depths(text), strict=True):
        if character == separator and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in parts if part.strip()]


def read_number(text: str, whole: bool = False) -> float | None:
    """Read one number: plain digits, a fraction, a percentage or a calculation; None if it cannot be read.

    Parameters
    ----------
    text : str
    whole : bool
        Whether the comma of "6,144" separates thousands. Otherwise a single comma is a decimal comma.

    Examples
    --------
    >>> [read_number(text) for text in ("0,5", "1/2", "50 %", "2,099,712", "12 000", "√256", "half")]
    [0.5, 0.5, 0.5, 2099712.0, 12000.0, 16.0, None]
    """
    number = _read_plain_number(text, whole)
    if number is None:
        number = read_arithmetic(text, whole)
    return number


def _read_plain_number(text: str, whole: bool = False) -> float | None:
    """Read digits with a decimal point, a decimal comma or thousands; a fraction or a percentage of them."""
    text = text.strip().replace("−", "-")
    if text.endswith("%"):
        return _read_percentage(text)
    thousands = "{2,}"  # a single comma may be a decimal comma
    if whole:
        thousands = "+"
    if re.fullmatch(rf"[+-]?\d{{1,3}}((,\d{{3}}){thousands}|([ '\u00a0\u202f]\d{{3}})+)", text):
        text = re.sub(r"[^\d+-]", "", text)
    if text.count(",") == 1:
        text = text.replace(",", ".")
    top, slash, below = text.partition("/")
    try:
        value = float(top)
        if slash:
            value /= float(below)
    except (ValueError, ZeroDivisionError):
        return None
    return value


def _read_percentage(text: str) -> float | None:
    """Read a plain number before "%"; a second "%" divides by 100 again."""
    digits = text.rstrip("% ")
    value = _read_plain_number(digits)
    if value is None:
        return None
    for _ in range(text.count("%", len(digits))):
        value /= 100
    return value
