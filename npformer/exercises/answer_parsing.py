"""Read an answer that a student typed: a letter, a truth value, a number or a list of numbers."""

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises.arithmetic import read_arithmetic, remove_name, simplify

MAX_LIST_LENGTH = 1000  # characters; a longer list of calculations is rejected

LETTERS = "abcdef"  # the letters before the options in a question
TRUTHS = {"true": True, "t": True, "1": True, "yes": True}
TRUTHS |= {"false": False, "f": False, "0": False, "no": False}


# --- words -----------------------------------------------------------------------------------------


def word(answer: Any) -> str:
    """Return an answer as one lowercase word, without quotes, brackets or punctuation around the word.

    A list or an array with a single entry is read as this entry.
    """
    if isinstance(answer, list | tuple | np.ndarray) and np.size(answer) == 1:
        answer = np.asarray(answer, object).ravel()[0]
    if isinstance(answer, bytes):
        answer = answer.decode(errors="replace")
    if isinstance(answer, float) and answer.is_integer():
        answer = int(answer)
    return str(answer).strip().strip("'\"()[].,:; ").casefold()


def read_letter(answer: Any, texts: Iterable[str]) -> str:
    """Return the letter of the option that was chosen, or "" if the answer cannot be read.

    Parameters
    ----------
    answer : a letter, the number of an option counted from 1, or the text of the option
    texts : iterable of str
        The options in their order.

    Examples
    --------
    >>> read_letter("Answer: b) cosine", ["sine", "cosine"])
    'b'
    """
    answer_word = word(answer)
    options = dict(zip(LETTERS, texts, strict=False))
    letter_of_text = {word(text): letter for letter, text in options.items()}
    if answer_word in letter_of_text:
        return letter_of_text[answer_word]
    found = re.match(r"(?:(?:the )?(?:answer|option)(?: is)?\W*)?([a-f1-6])(?:[).:\]]|$)", answer_word)
    if found is None:
        return ""
    letter = found[1]
    if letter.isdigit():
        letter = LETTERS[int(letter) - 1]
    if letter not in options:
        return ""
    return letter


def read_truth(answer: Any) -> bool | None:
    """Read a truth value, such as True, 1, "yes" or "true, because …"; return None for any other answer.

    >>> read_truth("No, it has no weights."), read_truth("no idea")
    (False, None)
    """
    found = re.match(r"\w+(?=[,.;:]|$)", word(answer))
    if found is None:
        return None
    return TRUTHS.get(found[0])


# --- numbers ---------------------------------------------------------------------------------------


def read_numbers(answer: Any, shape: tuple[int, ...], whole: bool = False) -> Array | None:
    """Read a number or a list of numbers, typed in any usual way; return None if the answer cannot be read.

    Parameters
    ----------
    answer : a number, an array, a list that may contain strings, or a string
    shape : tuple of int
        The shape of the expected answer; () for one number. A row or a column of the same size is reshaped.
    whole : bool
        Whether a whole number is expected. Then the comma of "6,144" separates thousands.

    Returns
    -------
    numbers : float array, or None
        Its shape differs from ``shape`` if the answer has a different number of entries.

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
    """Replace the strings in a list by numbers; return None if a string cannot be read."""
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
    """Read a string as one number if ``shape`` is (), and otherwise as a list of numbers."""
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
    """Split at semicolons, or at commas and spaces, or only at spaces if each comma is a decimal comma."""
    if ";" in text:
        return [part for part in text.split(";") if part.strip()]
    words = text.split()
    plain_words = [part for part in words if re.fullmatch(r"[+-]?\d+(,\d+)?%?", part)]
    has_decimal_commas = len(words) == count and plain_words == words
    if has_decimal_commas:
        return words
    return text.replace(",", " ").split()


def _read_calculations(text: str, count: int) -> list[float] | None:
    """Read a list of calculations; return None unless it can be split into ``count`` numbers in just one way.

    >>> _read_calculations("[cos(0), 2 * 3]", 2), _read_calculations("√4 3!", 2)
    ([1.0, 6.0], [2.0, 6.0])
    >>> _read_calculations("1,5 √4", 2)  # None: the text may mean 1 and 5√4, or 1.5 and √4
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
    """For each character, count the brackets that are still open after this character.

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
    """Split a text at each separator that is outside brackets, and leave out blank parts.

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
    """Read one number: plain digits, a fraction, a percentage or a calculation.

    Parameters
    ----------
    text : str
    whole : bool
        Whether the comma of "6,144" separates thousands. Otherwise a single comma is a decimal comma.

    Returns
    -------
    number : float, or None if the text cannot be read

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
    """Read a number, a fraction of two numbers, or a percentage; return None for any other text."""
    text = text.strip().replace("−", "-")
    if text.endswith("%"):
        return _read_percentage(text)
    group_count = "{2,}"  # at least two groups of three digits, because a single comma may be a decimal comma
    if whole:
        group_count = "+"
    if re.fullmatch(rf"[+-]?\d{{1,3}}((,\d{{3}}){group_count}|([ '\u00a0\u202f]\d{{3}})+)", text):
        text = re.sub(r"[^\d+-]", "", text)
    if text.count(",") == 1:
        text = text.replace(",", ".")
    numerator, slash, denominator = text.partition("/")
    try:
        value = float(numerator)
        if slash:
            value /= float(denominator)
    except (ValueError, ZeroDivisionError):
        return None
    return value


def _read_percentage(text: str) -> float | None:
    """Read a plain number and the "%" after it. Each "%" divides the number by 100."""
    digits = text.rstrip("% ")
    value = _read_plain_number(digits)
    if value is None:
        return None
    for _ in range(text.count("%", len(digits))):
        value /= 100
    return value
