"""The data that the checker receives when it calls a function in another process: a result, or an error.

Only the grading process creates these objects, from replies that contain only plain values and arrays.
"""

from typing import Any, NamedTuple


class RemoteResult(NamedTuple):
    """The value that a remote call returned, and the indices of the arguments that the call changed."""

    value: Any
    changed: tuple[int, ...]


class StudentError(Exception):
    """An error that a student's function raised in another process.

    Parameters
    ----------
    type_name : str
        The name of the error's type, such as "KeyError".
    message : str
    line : int, optional
        The line of the student's function, counted from its first line. None if the line is not known.
    function : str
        The name of the student's function in which the error occurred.
    """

    def __init__(self, type_name: str, message: str, line: int | None = None, function: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name
        self.message = message
        self.line = line
        self.function = function
