"""What may stand in a signature: arrays with their shapes, numbers with their ranges.

`Float[Array, "... T d_model"]` is an array of floats with these axes; further rules may follow the letters.
For a type checker it is the plain type, an `Annotated`. signature.py reads them.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from npformer.door import validate
from npformer.door.signature import (
    ANYTHING,
    STRETCHED,
    Call,
    Heard,
    Letters,
    Rule,
    all_of,
    learn,
    shape_of,
)

__all__ = [
    "Bias", "Count", "DType", "Finite", "Float", "Ids",
    "Integer", "Length", "Mask", "NonNegative", "Numbers", "Positive", "Rate", "Rng", "Shape", "Size",
    "integer", "number",
]  # fmt: skip


def floats(text: str, letters: Letters) -> Rule:
    """An array of float32 or float64, of one dtype with all others."""

    def ask(x: Any, name: str, call: Call) -> None:
        validate.check_array(call.function, name, x, letters, call.letters, call.dtype)
        validate.check_leading(call.function, name, x, letters, call.leader, call.leading)
        call.dtype = x.dtype
        learn(letters, x.shape, name, call)

    return Rule(text, ask, letters=letters, arrays=heard(letters))


def heard(letters: Letters) -> Callable[[Any, str], Iterator[Heard]]:
    """An array speaks of its letters; anything else is not heard."""
    return lambda x, name: iter([(name, letters, x)] if validate.is_array(x) else [])


def ids(text: str, letters: Letters) -> Rule:
    """An array of integers; where "vocab_size" is known, of ids below it."""

    def ask(x: Any, name: str, call: Call) -> None:
        validate.check_ids(call.function, name, x)
        validate.check_shape(call.function, name, x, letters, call.letters)
        validate.check_leading(call.function, name, x, letters, call.leader, call.leading)
        learn(letters, x.shape, name, call)

    return Rule(text, ask, turn=2, letters=letters)


def numbers(text: str, letters: Letters) -> Rule:
    """An array of finite integers or floats."""

    def ask(x: Any, name: str, call: Call) -> None:
        validate.check_numbers(call.function, name, x)
        validate.check_shape(call.function, name, x, letters, call.letters)

    return Rule(text, ask, turn=2, by_value=True)


def mask(text: str, letters: Letters) -> Rule:
    """Booleans that broadcast to these axes."""

    def ask(x: Any, name: str, call: Call) -> None:
        validate.check_mask(call.function, name, x, f"({', '.join(letters)})", shape_of(letters, call))

    return Rule(text, ask, turn=3, arrays=heard(STRETCHED + letters[1:]))


def bias(text: str, letters: Letters) -> Rule:
    """Floats that broadcast to these axes."""

    def ask(x: Any, name: str, call: Call) -> None:
        validate.check_array(call.function, name, x, ("...",), {}, call.dtype)
        validate.check_broadcast(call.function, name, x, f"({', '.join(letters)})", shape_of(letters, call))

    return Rule(text, ask, turn=3, arrays=heard(STRETCHED + letters[1:]))


def shape(text: str, letters: Letters) -> Rule:
    """Not an array, but the shape of one: a field of a cache."""
    return Rule(text, ANYTHING.ask, letters=letters)


class Axes:
    """`Float[Array, "... T d_model"]`: a kind of array, and after it the letters of its axes."""

    def __init__(self, name: str, kind: Callable[[str, Letters], Rule]) -> None:
        self.name, self.kind = name, kind

    def __getitem__(self, item: tuple[Any, ...]) -> Rule:
        _, letters, *rules = item
        rule = self.kind(
            f"{self.name}[Array, {', '.join([repr(letters), *map(str, rules)])}]", tuple(letters.split())
        )
        return all_of(str(rule), [rule, *rules]) if rules else rule


def number(text: str, **bounds: float) -> Rule:
    """A finite number within bounds: above, minimum, below, maximum."""

    def ask(value: Any, name: str, call: Call) -> None:
        validate.check_number(call.function, name, value, **bounds)

    return Rule(text, ask)


def integer(text: str, minimum: int = -validate.LARGEST, *, letter: bool = False) -> Rule:
    """A whole number; of a size, the argument's or field's own name is the letter."""

    def ask(value: Any, name: str, call: Call) -> None:
        validate.check_integer(call.function, name, value, minimum)
        if letter:
            call.letters[name.rpartition(".")[2]] = value

    return Rule(text, ask)


Rate = Annotated[float, number("0 <= · < 1", minimum=0, below=1)]
NonNegative = Annotated[float, number(">= 0", minimum=0)]
Positive = Annotated[float, number("> 0", above=0)]
Finite = Annotated[float, number("finite")]
Integer = Annotated[int, integer("an integer")]
Count = Annotated[int, integer(">= 1", 1)]
Size = Annotated[int, integer(">= 1, a letter", 1, letter=True)]
Length = Annotated[int, integer(">= 0", 0)]
DType = Annotated[Any, Rule("dtype", lambda v, name, call: validate.check_dtype(call.function, v) and None)]
if TYPE_CHECKING:
    from typing import Annotated as Bias
    from typing import Annotated as Float
    from typing import Annotated as Ids
    from typing import Annotated as Mask
    from typing import Annotated as Numbers
    from typing import Annotated as Shape

    from numpy.random import Generator as Rng
else:
    Float, Ids, Numbers = Axes("Float", floats), Axes("Ids", ids), Axes("Numbers", numbers)
    Mask, Bias, Shape = Axes("Mask", mask), Axes("Bias", bias), Axes("Shape", shape)
    Rng = Rule("Rng", lambda v, name, call: validate.check_generator(call.function, name, v))
