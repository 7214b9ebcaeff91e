r"""Read a number that is typed as a calculation: "√256", "7 × 5", "2π", "6.908 nats" or "\frac{1}{2}".

The text is split into tokens, and a recursive descent parser evaluates the tokens with floats. Nothing is
executed. The length of the text, the nesting and the size of every value are limited, so no text takes long.
Text with two plausible meanings is rejected.

The grammar follows; [x] is optional and {x} may be repeated. The value of an answer is the value of its last
side, and all sides have to agree.

    answer    = [name] ["=" | "≈" | "~"] side {("=" | "≈") side}
    side      = product share | sum [words]
    sum       = product {("+" | "-") product}
    product   = signed {("*" | "/") signed | power}       2π and 2(3 + 4) are products without "*"
    signed    = ["+" | "-"] power
    power     = factorial [("^" | "**") signed | superscript]
    factorial = atom ["!"]
    atom      = number | fraction | whole number, fraction | constant | group | call
    group     = "(" sum ")" | "[" sum "]" | "{" sum "}"
    call      = "\frac" braces braces | function group | function ["+" | "-"] (number | fraction | constant)
    fraction  = "½" | "¾" | ...                           A fraction is a single character.
    share     = "%" | "percent" | "per cent"

This module rejects some texts as ambiguous, although the grammar allows them:

- "1/2π" and "2^3π", in which a factor without "*" follows a quotient or a power;
- "sin π/2", "ln 10^3" and "√2π", in which the argument has no brackets, so its end is not clear;
- "2e", which may be an unfinished 2e3;
- "log(8,2)" and "10,000^2", in which the comma may be a decimal comma or not;
- "6 KB" and "2 dozen", in which a word changes the number.
"""

import math
import re
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

MAX_LENGTH = 200  # the longest text that is read, in characters
MAX_DEPTH = 20  # the deepest nesting of brackets and exponents
MAX_FACTORIAL = 170  # the largest n for which n! is computed; 171! is too large for a float
AGREEMENT = 0.01  # the largest relative difference between two sides of an equation such as "√2 = 1.41"

FUNCTIONS: dict[str, Callable[[float], float]] = {
    "√": math.sqrt,
    "sqrt": math.sqrt,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
    "exp": math.exp,
    "ln": math.log,
    "log": math.log,  # the natural logarithm, as in NumPy
    "log2": math.log2,
    "log10": math.log10,
    "abs": math.fabs,
}
CONSTANTS = {"π": math.pi, "pi": math.pi, "e": math.e}
CLOSING = {"(": ")", "[": "]", "{": "}"}

SYMBOLS = str.maketrans(
    {"−": "-", "×": "*", "·": "*", "⋅": "*", "∙": "*", "∗": "*", "÷": "/", "∕": "/", "⁄": "/", "≃": "≈"}
)
COMMANDS = {
    r"\cdot": "*",
    r"\times": "*",
    r"\div": "/",
    r"\sqrt": "√",
    r"\approx": "≈",
    r"\dfrac": r"\frac",
    r"\tfrac": r"\frac",
    r"\left": "",
    r"\right": "",
    r"\,": " ",
    r"\%": "%",
}

SMALL_WORDS = ("in", "of")
NUMBER_WORDS = frozenset(
    """
    zero one two three four five six seven eight nine ten eleven twelve dozen double triple twice thrice
    once half halves third quarter fourth fifth sixth seventh eighth ninth tenth twentieth couple pair gross
    percent cent pct permille mil mille mio mrd tausend hundert prozent kib mib gib tib deg degree
    plus minus times over divided multiplied raised power squared cubed square cube root factorial modulo mod
    sine cosine tangent logarithm inverse reciprocal negative and not nor but than more less fewer least most
    above below under between out until
    """.split()
)
SCALES = re.compile(
    "kilo|mega|giga|tera|peta|kibi|mebi|gibi|tebi|centi|milli|micro|nano|pico|hundred|thousand|billi|trilli"
    "|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|(?:thir|four|fif|six|seven|eigh|nine)teen"
)

TOKEN = re.compile(
    r"""
    (?P<number> [0-9]+(?:,[0-9]+)*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)? | \.[0-9]+(?:[eE][+-]?[0-9]+)?)
    | (?P<fraction> [¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞])
    | (?P<superscript> [⁺⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+)
    | (?P<word> \\?(?:(?:np|numpy|math)\.)?(?:[Ll]og_?(?:10|2)(?![0-9])|[Ll]og_\{(?:10|2)\}|[A-Za-z]+|π))
    | (?P<sign> \*\*|[-+*/^!%√(){}[\]])
    """,
    re.VERBOSE,
)
SUPERSCRIPTS = str.maketrans("⁺⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "+-0123456789")


class UnreadableError(ValueError):
    """The text is not one number, or its meaning is uncertain."""


class Token(NamedTuple):
    """One number, name or sign of the text."""

    kind: str  # one of number, fraction, superscript, constant, function, word, sign and end
    text: str
    value: float  # 0 unless the token is a number, a fraction, a superscript or a constant
    is_spaced: bool  # whether a space precedes it


END = Token("end", "", 0.0, True)


def read_arithmetic(text: str, whole: bool = False) -> float | None:
    r"""Evaluate a number that is typed as a calculation, and return None if the text cannot be read.

    Parameters
    ----------
    text : str
        The number. A name and a sign may come before it ("x = "), and words may follow ("nats").
    whole : bool
        Whether the comma of "6,144" separates thousands. Otherwise a single comma is a decimal comma.

    Examples
    --------
    >>> [read_arithmetic(text) for text in ("√256", "7 × 5", "4!", "1½", "64 numbers", "50 percent")]
    [16.0, 35.0, 24.0, 1.5, 64.0, 0.5]
    >>> [read_arithmetic(text) for text in (r"$\frac{1}{2}$", "x = 10^2", "7*5 = 35", "-2²")]
    [0.5, 100.0, 35.0, -4.0]
    >>> [read_arithmetic(text) for text in ("1/0", "1 23", "6 KB", "1/2π", "9^9^9^9", "three")]
    [None, None, None, None, None, None]
    """
    if len(text) > MAX_LENGTH:
        return None
    try:
        return _read_sides(remove_name(simplify(text)), whole)
    except (ValueError, ArithmeticError):
        return None


def _read_sides(text: str, whole: bool) -> float:
    """Read the sides of an equation such as "7 × 5 = 35", and return the last side."""
    sides = [Parser(split_tokens(side, whole)).read_side() for side in re.split("[=≈]", text)]
    last = sides[-1]
    for side in sides:
        if not math.isclose(side, last, rel_tol=AGREEMENT, abs_tol=1e-9):
            raise UnreadableError("the sides of the equation differ")
    return last


# --- tokens ----------------------------------------------------------------------------------------


def simplify(text: str) -> str:
    r"""Replace LaTeX commands and mathematical characters by the characters that the parser knows.

    >>> simplify(r"$\left[ 2 \cdot \sqrt{3}, 1 ÷ 2 \right]$")
    '[ 2 * √{3}, 1 / 2 ]'
    """
    text = text.strip()
    formula = re.fullmatch(r"(\$\$?)([^$]+)\1", text)
    if formula:
        text = formula[2].strip()
    text = re.sub(r"\\(?:[A-Za-z]+|[,%])", lambda found: COMMANDS.get(found[0], found[0]), text)
    return text.translate(SYMBOLS)


def remove_name(text: str) -> str:
    """Remove the name and the sign before the number in "x = 0.5", "d_k = 64" or "≈ 0.5".

    >>> remove_name("d_k = 64"), remove_name("~ 0.5")
    ('64', '0.5')
    """
    return re.sub(r"^(?:\\?[^\W\d]\w*(?:_\{\w+\})?\s*)?[=≈~]\s*", "", text)


def split_tokens(text: str, whole: bool) -> list[Token]:
    """Split a text into tokens.

    >>> [token.text for token in split_tokens("2π + 7x5 nats", whole=False)]
    ['2', 'π', '+', '7', '*', '5', 'nats']
    """
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        is_space = text[position].isspace()
        if is_space:
            position += 1
            continue
        found = TOKEN.match(text, position)
        if found is None:
            raise UnreadableError(f"unknown character {text[position]!r}")
        is_spaced = text[position - 1 : position].isspace()
        tokens.append(_make_token(str(found.lastgroup), found[0], is_spaced, whole))
        position = found.end()
    numbers = [token.text for token in tokens if token.kind == "number"]
    is_calculation = len(numbers) > 1
    if is_calculation and not whole:
        _reject_uncertain_commas(numbers)
    return tokens


def _reject_uncertain_commas(numbers: list[str]) -> None:
    """Raise an error for a number such as "10,000", whose comma may be a decimal comma or not."""
    for number in numbers:
        if re.fullmatch("[1-9][0-9]{0,2},[0-9]{3}", number):
            raise UnreadableError(f"{number}: a decimal comma, or thousands")


def _make_token(kind: str, text: str, is_spaced: bool, whole: bool) -> Token:
    """Make a token of this kind, and compute its value."""
    if kind == "number":
        return Token(kind, text, _read_decimal(text, whole), is_spaced)
    if kind == "fraction":
        return Token(kind, text, unicodedata.numeric(text), is_spaced)
    if kind == "superscript":
        return Token(kind, text, float(text.translate(SUPERSCRIPTS)), is_spaced)
    if text in ("x", "X"):
        return Token("sign", "*", 0.0, is_spaced)
    name = _find_name(text)
    if name in CONSTANTS:
        return Token("constant", name, CONSTANTS[name], is_spaced)
    if name in FUNCTIONS or name == r"\frac":
        return Token("function", name, 0.0, is_spaced)
    return Token(kind, text, 0.0, is_spaced)


def _find_name(text: str) -> str:
    r"""Reduce "np.cos", "\cos", "Cos" and "log_{2}" to the names of this module."""
    if text == r"\frac":
        return text
    name = re.sub(r"[_{}]", "", text.removeprefix("\\").rpartition(".")[2])
    is_capitalized = name.istitle() and name != "E"
    if is_capitalized:
        name = name.lower()
    return name


def _read_decimal(text: str, whole: bool) -> float:
    """Read digits with a decimal point, a decimal comma or commas that separate thousands."""
    commas = text.count(",")
    is_grouped = re.fullmatch(r"[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]+)?", text) is not None
    is_thousands = is_grouped and (whole or commas > 1 or "." in text)
    if is_thousands:
        return _require_finite(float(text.replace(",", "")))
    return _require_finite(float(text.replace(",", ".")))


# --- the parser ------------------------------------------------------------------------------------


class Parser:
    """Evaluate tokens from left to right, with one method for each rule of the grammar."""

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.position = 0
        self.depth = 0
        # The end of an argument or exponent without brackets is not clear. If such a part was read last, this
        # field is "root" (the argument of √), "function" (the argument of another function) or "exponent".
        # Otherwise it is "".
        self.bare = ""

    @property
    def next(self) -> Token:
        """The next token, which has not been read yet."""
        if self.position < len(self.tokens):
            return self.tokens[self.position]
        return END

    def take(self) -> Token:
        """Return the next token and move past it."""
        token = self.next
        self.position += 1
        return token

    def read_side(self) -> float:
        """Read all tokens: a percentage, or a number with optional words."""
        value = self.read_product()
        if self.skip_percent():
            self.require_end()
            return value / 100
        value = self.read_terms(value)
        self.skip_units()
        self.require_end()
        return value

    def skip_percent(self) -> bool:
        """Move past "%", "percent" or "per cent" if this is next, and return whether the parser has moved."""
        ahead = [token.text for token in self.tokens[self.position : self.position + 2]]
        if ahead == ["per", "cent"]:
            self.position += 2
            return True
        is_percent = self.next.text in ("%", "percent")
        if is_percent:
            self.position += 1
        return is_percent

    def skip_units(self) -> None:
        """Move past words that do not change the number."""
        while is_unit(self.next):
            self.position += 1

    def require_end(self) -> None:
        """Raise an error if tokens are left."""
        if self.position < len(self.tokens):
            raise UnreadableError(f"unexpected {self.next.text!r}")

    def read_sum(self) -> float:
        """Read a sum: products that are separated by "+" or "-"."""
        return self.read_terms(self.read_product())

    def read_terms(self, value: float) -> float:
        """Add and subtract the products that follow the first product."""
        while self.next.text in ("+", "-"):
            sign = self.take().text
            term = self.read_product()
            if sign == "-":
                term = -term
            value = _require_finite(value + term)
        return value

    def read_product(self) -> float:
        """Read a product: factors that are separated by "*", by "/" or by no sign."""
        value = self.read_signed()
        is_quotient = False
        while True:
            has_sign = self.next.text in ("*", "/")
            if has_sign and self.bare == "function":
                raise UnreadableError("a bare argument that might be longer")
            if has_sign:
                is_quotient = self.next.text == "/"
                value = self.read_factor(value)
            elif self.is_factor_next():
                if is_quotient or self.bare:
                    raise UnreadableError("a product without a sign that might belong to what precedes it")
                value = _require_finite(value * self.read_power())
            else:
                return value

    def read_factor(self, value: float) -> float:
        """Read "*" or "/" and the next factor, and multiply or divide the value by this factor."""
        sign = self.take().text
        factor = self.read_signed()
        if sign == "*":
            return _require_finite(value * factor)
        return _require_finite(value / factor)

    def is_factor_next(self) -> bool:
        """Return whether a factor without "*" comes next: a name, √ or an opening bracket."""
        token = self.next
        previous = self.tokens[self.position - 1]
        if token.text == "(":
            return previous.kind == "number" or previous.text in (")", "}")
        if token.text == "e" and previous.kind == "number" and not token.is_spaced:
            raise UnreadableError("an unfinished power of ten")
        is_fraction_command = token.text == r"\frac"
        return token.kind in ("constant", "function") and not is_fraction_command

    def read_signed(self) -> float:
        """Read a power after an optional sign. This method limits the depth of all nested expressions."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise UnreadableError("too many brackets or exponents inside each other")
        is_negative = self.next.text == "-"
        if self.next.text in ("+", "-"):
            self.position += 1
        value = self.read_power()
        self.depth -= 1
        if is_negative:
            return -value
        return value

    def read_power(self) -> float:
        """Read a base and an optional exponent."""
        base = self.read_factorial()
        has_sign = self.next.text in ("^", "**")
        has_superscript = self.next.kind == "superscript"
        if not has_sign and not has_superscript:
            return base
        if self.bare:
            raise UnreadableError("a bare argument that might be longer")
        token = self.take()
        if has_superscript:
            return math.pow(base, token.value)
        has_group = self.next.text in CLOSING
        exponent = self.read_signed()
        if not has_group:
            self.bare = self.bare or "exponent"
        return math.pow(base, exponent)

    def read_factorial(self) -> float:
        """Read an atom and an optional exclamation mark."""
        value = self.read_atom()
        if self.next.text != "!":
            return value
        if self.bare:
            raise UnreadableError("a bare argument that might be longer")
        if value > MAX_FACTORIAL or not value.is_integer():
            raise UnreadableError("no factorial, or one that is too large")
        self.position += 1
        return float(math.factorial(int(value)))

    def read_atom(self) -> float:
        """Read a number, a constant, a group or the call of a function."""
        token = self.take()
        if token.kind == "function":
            return self.read_call(token)
        if token.text in CLOSING:
            return self.read_group(token)
        value = self.require_value(token)
        is_mixed = token.text.isdecimal() and self.next.kind == "fraction"
        if is_mixed:
            value += self.take().value
        self.bare = ""
        return value

    def require_value(self, token: Token) -> float:
        """Return the value of a token, or raise an error if the token has no value."""
        if token.kind not in ("number", "fraction", "constant"):
            raise UnreadableError(f"expected a number, not {token.text!r}")
        return token.value

    def read_group(self, opening: Token) -> float:
        """Read a sum and the bracket that closes it."""
        value = self.read_sum()
        if self.take().text != CLOSING[opening.text]:
            raise UnreadableError(f"{opening.text!r} is not closed")
        self.bare = ""
        return value

    def read_call(self, token: Token) -> float:
        r"""Read the arguments of a function or of \frac, and call it."""
        if token.text == r"\frac":
            numerator = self.read_braces()
            return _require_finite(numerator / self.read_braces())
        function = FUNCTIONS[token.text]
        if self.next.text not in ("(", "{"):
            return function(self.read_bare_argument(token))
        opening = self.take()
        has_base = token.text == "log" and "," in self.next.text
        if has_base:
            raise UnreadableError("a decimal comma or a base")
        return function(self.read_group(opening))

    def read_braces(self) -> float:
        """Read a sum in braces."""
        opening = self.take()
        if opening.text != "{":
            raise UnreadableError("expected a brace")
        return self.read_group(opening)

    def read_bare_argument(self, function: Token) -> float:
        """Read an argument without brackets, such as the number in "sin 2.3" or "√2"."""
        is_joined = function.text == "log" and not self.next.is_spaced
        if is_joined:
            raise UnreadableError("log28 may be log2 of 8")
        is_negative = self.next.text == "-"
        if self.next.text in ("+", "-"):
            self.position += 1
        value = self.require_value(self.take())
        self.bare = "function"
        if function.text == "√":
            self.bare = "root"
        if is_negative:
            return -value
        return value


def is_unit(token: Token) -> bool:
    """Return whether a token is a word that does not change the number, such as "nats".

    >>> [is_unit(Token("word", text, 0.0, True)) for text in ("nats", "KB", "thousand", "k", "dozens")]
    [True, False, False, False, False]
    """
    if token.kind != "word" or not token.is_spaced:
        return False
    word = token.text
    is_small_word = word in SMALL_WORDS
    is_plain = re.fullmatch("[A-Za-z][a-z]{2,}", word) is not None
    lowered = word.lower()
    is_number_word = lowered in NUMBER_WORDS or lowered.removesuffix("s") in NUMBER_WORDS
    is_scale = SCALES.match(lowered) is not None
    changes_number = is_number_word or is_scale
    return is_small_word or (is_plain and not changes_number)


def _require_finite(value: float) -> float:
    """Return a value, or raise an error if the value is infinite or NaN."""
    if not math.isfinite(value):
        raise UnreadableError("a value that is too large")
    return value
