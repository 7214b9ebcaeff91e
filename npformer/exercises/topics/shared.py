"""What several topics are made of."""

from npformer.exercises.probe import Function
from npformer.exercises.task import Edit, compiled


def instead(solution: str, others: dict[str, str | Edit]) -> dict[str, Function]:
    """By the words for them, other things than the solution returns: an expression of its names, or an edit.

    >>> double = "def double(x):\\n    y = x + x\\n    return y"
    >>> instead(double, {"the square of it": "y * y"})["the square of it"](3)
    36
    """
    before = solution.rpartition("return ")[0]
    return {
        words: compiled(other.of(solution) if isinstance(other, Edit) else f"{before}return {other}")
        for words, other in others.items()
    }
