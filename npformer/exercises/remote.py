"""What a function that runs in another process sends back: a value, or the error that ended the call."""

from typing import Any, NamedTuple


class RemoteResult(NamedTuple):
    """A value from another process, and the positions of the arguments that the call changed there."""

    value: Any
    changed: tuple[int, ...]


class StudentError(Exception):
    """An error that ended a call in another process: its type, its message, and where it occurred."""

    def __init__(self, type_name: str, message: str, line: int | None = None, function: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name
        self.message = message
        self.line = line
        self.function = function
