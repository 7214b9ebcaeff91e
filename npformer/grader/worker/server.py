"""Serve a submission: run its file, then call its functions with the arguments from the checker.

Each submission has its own process, the worker. A submission can change everything in its worker. Only
frames (`protocol`) leave the worker. Therefore a submission can forge its answers and replies, but not the
results of the checker or of other submissions.
"""

import builtins
import dis
import os
import random
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np

from . import sandbox
from .protocol import Channel, Functions, Opaque, pack, unpack
from .statements import Record, format_message
from .student_files import use_student_files
from .student_module import (
    StudentModule,
    explain_missing_answer,
    find_answer,
    list_names,
    run_submission,
)

MESSAGE_LENGTH = 150  # the largest length of an error message
# Bytecode instructions that load a constant have names with one of these beginnings.
STUB_INSTRUCTIONS = ("LOAD", "RETURN_CONST")


# --- one submission -------------------------------------------------------------------------------


def serve_submission(channel: Channel) -> None:
    """Run the file, send its answers, and call its functions until the other side closes the channel."""
    getpid, exit_process = os.getpid, os._exit  # The file may replace these functions in `os`.
    own_pid = getpid()
    request = unpack(channel.receive())
    sys.argv = [str(request["name"])]
    record = Record()
    use_student_files(request["folder"], request["files"], record)
    student_module = run_submission(sys.argv[0], request["data"].tobytes(), record)
    is_copy = getpid() != own_pid  # The file may call `os.fork`, but only one process may answer.
    if is_copy:
        exit_process(0)
    functions: Functions = []
    channel.send(pack(make_first_reply(student_module, request["ids"]), functions))
    while True:
        message = unpack(channel.receive(), partial(make_callback, channel))
        channel.send(pack(call_function(functions[message["call"]], message, student_module)))


def make_first_reply(student_module: StudentModule, ids: Sequence[str]) -> dict[str, Any]:
    """Return the answers to the exercises with these ids, and texts about what happened in the file."""
    answers = {}
    reasons = {}
    for exercise_id in ids:
        answers[exercise_id] = prepare_answer(find_answer(student_module, exercise_id))
        reasons[exercise_id] = explain_missing_answer(student_module, exercise_id)
    return {
        "student": student_module.student,
        "problem": student_module.problem,
        "notes": " ".join(student_module.record.notes),
        "reasons": reasons,
        "names": list_names(student_module),
        "answers": answers,
    }


def prepare_answer(answer: Any) -> Any:
    """Return what is sent for an answer: its value, None for a stub, or the name of its type."""
    try:
        if callable(answer):
            return None if _is_stub(answer) else answer
        pack(answer)
        return answer
    except BaseException:  # The answer may have methods that the student wrote and that raise any error.
        return Opaque(type(answer).__name__)


def _is_stub(function: Any) -> bool:
    """Return whether the body of a function only returns None, as with `...` or `pass`."""
    if not hasattr(function, "__code__"):
        return False
    instructions = dis.get_instructions(function.__code__)
    constants = [each.argval for each in instructions if each.opname.startswith(STUB_INSTRUCTIONS)]
    return constants == [None]


def call_function(
    function: Callable[..., Any], message: dict[str, Any], student_module: StudentModule
) -> dict[str, Any]:
    """Return the value of a call or its error, the changed arguments' indices, and the notes of the call."""
    arguments = message["args"]
    notes_before = len(student_module.record.notes)
    frames_before = [_pack_if_array(argument) for argument in arguments]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            reply = {"value": function(*arguments, **message["kwargs"])}
        pack(reply)
    except BaseException as error:
        reply = {"error": describe_call_error(error, student_module)}
    pairs = zip(arguments, frames_before, strict=True)
    changed = [i for i, (argument, frame) in enumerate(pairs) if _pack_if_array(argument) != frame]
    notes = " ".join(student_module.record.notes[notes_before:])
    return {**reply, "changed": changed, "notes": notes}


def _pack_if_array(argument: Any) -> bytes | None:
    """Return the frame for an array, or None for any other argument."""
    return pack(argument) if isinstance(argument, np.ndarray) else None


def describe_call_error(error: BaseException, student_module: StudentModule) -> dict[str, Any]:
    """Return the fields that describe an error. The line is the submission's last line in the traceback.

    The line number counts from the first line of the function, as in the checker's other messages.
    """
    line = None
    function = ""
    for frame, line_in_file in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if code.co_filename in student_module.record.places:
            line = line_in_file - code.co_firstlineno + 1
            function = code.co_name
    reason = student_module.record.explain_name_error(error)
    message = f"{format_message(error)}{reason}"[:MESSAGE_LENGTH].rstrip(": ")
    return {"type_name": type(error).__name__, "message": message, "line": line, "function": function}


def make_callback(channel: Channel, position: int) -> Callable[..., Any]:
    """Return a function that calls the checker's function with this index, in the grading process."""

    def call_back(*arguments: Any) -> Any:
        channel.send(pack({"callback": position, "args": arguments}))
        reply = unpack(channel.receive())
        if "error" in reply:
            error_type = getattr(builtins, reply["error"], ValueError)
            raise error_type(reply["message"])
        return reply["value"]

    return call_back


# --- npformer is hidden ---------------------------------------------------------------------------


class _FakeNpformer(MetaPathFinder, Loader):
    """Replaces npformer by modules in which every name can be imported as a function that computes nothing.

    A submission must not use npformer's functions as answers. An import of npformer still works, because
    notebooks import and call the checker.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.split(".")[0] != "npformer":
            return None
        return ModuleSpec(name, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """Make every name in the module a function.

        The function returns True in the module of the checker, and raises an error in every other module.
        """

        def make_function(name: str) -> Any:
            def function(*arguments: Any, **options: Any) -> bool:
                if module.__name__ == "npformer.exercises":
                    return True
                raise RuntimeError(f"{name} is npformer's own: write your own")

            if name.startswith("__"):
                raise AttributeError(name)
            return function

        vars(module)["__getattr__"] = make_function


def leave_search_path() -> None:
    """Remove the directories of this package and of the server from the search path of imports.

    These are the first two directories of PYTHONPATH. The server's directory stays in PYTHONPATH. If a
    submission starts another Python process, that process finds only the empty npformer.py there.
    """
    package, home, *others = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = [path for path in sys.path if path not in (package, home)]
    os.environ["PYTHONPATH"] = os.pathsep.join([home, *others])


def hide_npformer() -> None:
    """Remove npformer and this package from the imported modules, and install the replacement.

    After this call, a submission cannot import our modules by name.
    """
    this_package = __name__.partition(".")[0]  # the name is "worker" in the student's process
    for name in list(sys.modules):
        if name.partition(".")[0] in ("npformer", this_package):
            del sys.modules[name]
    sys.modules["__main__"] = ModuleType("__main__")
    sys.meta_path.insert(0, _FakeNpformer())


# --- the process ----------------------------------------------------------------------------------
# Coverage cannot trace this process. tests/grader/test_grader.py starts and tests it.


def serve() -> None:  # pragma: no cover
    """Set the limits that the grading process sends, and serve the submission until the channel is closed.

    The channel is a socket at descriptor 0.
    """
    sandbox.end_with_parent()
    sandbox.forbid_privileges()
    leave_search_path()
    channel = Channel(socket.socket(fileno=os.dup(0)))
    os.dup2(1, 0)  # Otherwise a submission could read the socket as standard input.
    settings = unpack(channel.receive())
    if not settings["has_sandbox"]:  # In a sandbox, no other submission sees this process.
        sandbox.protect_memory()
    for module in settings["imports"]:  # The time for slow imports does not count as the student's time.
        with suppress(Exception):
            import_module(module)
    sandbox.limit_resources(settings["cpu"], settings["megabytes"], settings["processes"])
    hide_npformer()
    random.seed(0)  # so that unseeded random numbers of a submission are the same in every run
    np.random.seed(0)  # noqa: NPY002
    channel.send(pack("ready"))
    serve_submission(channel)
