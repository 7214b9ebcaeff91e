"""What may stand in a signature: arrays with their shapes, numbers with their ranges.

`Float[Array, "... T d_model"]` is an array of floats with these axes; further rules may follow the letters.
For a type checker it is the plain type, an `Annotated`. signature.py reads them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from npformer.validation import checks as validate
from npformer.validation.signature import ANYTHING, Ask, Call, Letters, Rule, all_of, by, learn, shape_of

__all__ = [
    "Bias", "Count", "DType", "Finite", "Float", "Ids",
    "Integer", "Length", "Mask", "NonNegative", "Numbers", "Positive", "Rate", "Rng", "Shape", "Size",
    "integer", "number",
]  # fmt: skip


def floats(x: Any, name: str, call: Call) -> None:
    """Entries of float32 or float64, of one dtype with all others."""
    validate.check_float(call.function, name, x, call.dtype)
    call.dtype = x.dtype


def fitting(letters: Letters, x: Any, name: str, call: Call) -> None:
    """Axes of these lengths."""
    validate.check_shape(call.function, name, x, letters, call.letters)


def telling(letters: Letters, x: Any, name: str, call: Call) -> None:
    """The same, and they tell others; no other leading axes than those of the first array that has some."""
    fitting(letters, x, name, call)
    if call.leader and "..." in letters and x.shape[: len(x.shape) - len(letters) + 1] != call.leading:
        expected = f"the leading axes of {call.leader}, {call.leading}"
        raise validate.wrong_shape(call.function, name, x, expected)
    learn(letters, x.shape, name, call)


def stretching(letters: Letters, x: Any, name: str, call: Call) -> None:
    """Axes that broadcast to these."""
    validate.check_broadcast(call.function, name, x, letters, shape_of(letters, call))


class Axes:
    """`Float[Array, "... T d_model"]`: a kind of entries, and after it the letters of the axes."""

    def __init__(
        self, name: str, entries: Ask, axes: Callable[..., None], turn: int = 1, by_value: bool = False
    ) -> None:
        self.name, self.entries, self.axes, self.turn, self.by_value = name, entries, axes, turn, by_value

    def __getitem__(self, item: tuple[Any, ...]) -> Rule:
        _, axes, *rules = item
        text = f"{self.name}[Array, {', '.join([repr(axes), *map(str, rules)])}]"
        letters: Letters = tuple(axes.split())

        def ask(x: Any, name: str, call: Call) -> None:
            self.entries(x, name, call)
            self.axes(letters, x, name, call)

        told = letters if self.axes is telling else None
        return all_of(text, [Rule(text, ask, self.turn, told, by_value=self.by_value), *rules])


def number(text: str, **bounds: float) -> Rule:
    """A finite number within bounds: above, minimum, below, maximum."""
    return Rule(text, by(validate.check_number, **bounds))


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
DType = Annotated[Any, Rule("dtype", by(validate.check_that, validate.names_floats, "float32 or float64"))]
if TYPE_CHECKING:
    from typing import Annotated as Bias
    from typing import Annotated as Float
    from typing import Annotated as Ids
    from typing import Annotated as Mask
    from typing import Annotated as Numbers
    from typing import Annotated as Shape

    from numpy.random import Generator as Rng
else:
    booleans = by(
        validate.check_entries, "b", "a boolean array, True = may attend", "bool, True = may attend"
    )
    Float, Bias = Axes("Float", floats, telling), Axes("Bias", floats, stretching, turn=3)
    Ids = Axes("Ids", by(validate.check_ids), telling, turn=2)  # below "vocab_size", where that is known
    Mask = Axes("Mask", booleans, stretching, turn=3)
    Numbers = Axes("Numbers", by(validate.check_numbers), fitting, turn=2, by_value=True)
    Shape = Axes("Shape", ANYTHING.ask, telling)  # not an array, but the shape of one: a field of a cache
    Rng = Rule("Rng", by(validate.check_generator))
