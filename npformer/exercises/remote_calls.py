"""What the checker receives from a function that runs in another process: a result, or the student's error.

Only the grading process creates these objects, from replies that hold plain values and arrays.
"""

from typing import Any, NamedTuple


class RemoteResult(NamedTuple):
    """The value that a remote call returned, and the positions of the arguments that the call changed."""

    value: Any
    changed: tuple[int, ...]


class StudentError(Exception):
    """An error that a student's function raised in another process.

    `line` counts from the first line of `function`. It is None if the error did not pass the student's file.
    """

    def __init__(self, type_name: str, message: str, line: int | None = None, function: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name
        self.message = message
        self.line = line
        self.function = function
