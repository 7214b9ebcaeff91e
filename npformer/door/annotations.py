"""What may stand in a signature: arrays with their shapes, numbers with their ranges.

`Float[Array, "... T d_model"]` is an array of floats with these axes; further rules may follow the letters.
For a type checker it is the plain type, an `Annotated`. signature.py reads them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from npformer.door import validate
from npformer.door.signature import ANYTHING, Call, Letters, Rule, all_of, has_leading, learn, shape_of

__all__ = [
    "Bias", "Count", "DType", "Finite", "Float", "Ids",
    "Integer", "Length", "Mask", "NonNegative", "Numbers", "Positive", "Rate", "Rng", "Shape", "Size",
    "integer", "number",
]  # fmt: skip


def floats(text: str, letters: Letters) -> Rule:
    """An array of float32 or float64, of one dtype with all others."""

    def ask(x: Any, name: str, call: Call) -> None:
        validate.check_array(call.function, name, x, letters, call.letters, call.dtype)
        call.dtype = x.dtype
        learn_all(letters, x, name, call)

    return Rule(text, ask, letters=letters)


def ids(text: str, letters: Letters) -> Rule:
    """An array of integers; where "vocab_size" is known, of ids below it."""

    def ask(x: Any, name: str, call: Call) -> None:
        validate.check_ids(call.function, name, x)
        validate.check_shape(call.function, name, x, letters, call.letters)
        learn_all(letters, x, name, call)

    return Rule(text, ask, turn=2, letters=letters)


def learn_all(letters: Letters, x: Any, name: str, call: Call) -> None:
    """Remember an array's letters; refuse other leading axes than those of the first array that has some."""
    if call.leader and has_leading(letters) and x.shape[: len(x.shape) - len(letters) + 1] != call.leading:
        expected = f"the leading axes of {call.leader}, {call.leading}"
        raise validate.wrong_shape(call.function, name, x, expected)
    learn(letters, x.shape, name, call)


def numbers(text: str, letters: Letters) -> Rule:
    """An array of finite integers or floats."""

    def ask(x: Any, name: str, call: Call) -> None:
        validate.check_numbers(call.function, name, x)
        validate.check_shape(call.function, name, x, letters, call.letters)

    return Rule(text, ask, turn=2, by_value=True)


def mask(text: str, letters: Letters) -> Rule:
    """Booleans that broadcast to these axes."""

    def ask(x: Any, name: str, call: Call) -> None:
        words = "a boolean array, True = may attend", "bool, True = may attend"
        validate.check_entries(call.function, name, x, "b", *words)
        validate.check_broadcast(call.function, name, x, letters, shape_of(letters, call))

    return Rule(text, ask, turn=3)


def bias(text: str, letters: Letters) -> Rule:
    """Floats that broadcast to these axes."""

    def ask(x: Any, name: str, call: Call) -> None:
        validate.check_array(call.function, name, x, ("...",), {}, call.dtype)
        validate.check_broadcast(call.function, name, x, letters, shape_of(letters, call))

    return Rule(text, ask, turn=3)


def shape(text: str, letters: Letters) -> Rule:
    """Not an array, but the shape of one: a field of a cache."""
    return Rule(text, ANYTHING.ask, letters=letters)


class Axes:
    """`Float[Array, "... T d_model"]`: a kind of array, and after it the letters of its axes."""

    def __init__(self, name: str, kind: Callable[[str, Letters], Rule]) -> None:
        self.name, self.kind = name, kind

    def __getitem__(self, item: tuple[Any, ...]) -> Rule:
        _, letters, *rules = item
        text = f"{self.name}[Array, {', '.join([repr(letters), *map(str, rules)])}]"
        return all_of(text, [self.kind(text, tuple(letters.split())), *rules])


def number(text: str, **bounds: float) -> Rule:
    """A finite number within bounds: above, minimum, below, maximum."""
    return Rule(text, lambda v, name, call: validate.check_number(call.function, name, v, **bounds))


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
DType = Annotated[Any, Rule("dtype", lambda v, name, call: validate.check_dtype(call.function, v))]
if TYPE_CHECKING:
    from typing import Annotated as Bias
    from typing import Annotated as Float
    from typing import Annotated as Ids
    from typing import Annotated as Mask
    from typing import Annotated as Numbers
    from typing import Annotated as Shape

    from numpy.random import Generator as Rng
else:
    kinds = {"Float": floats, "Ids": ids, "Numbers": numbers, "Mask": mask, "Bias": bias, "Shape": shape}
    Float, Ids, Numbers, Mask, Bias, Shape = (Axes(name, kind) for name, kind in kinds.items())
    Rng = Rule("Rng", lambda v, name, call: validate.check_generator(call.function, name, v))
