"""The student's side: the file is run here, and its functions are called with the arguments that arrive.

A fresh Python holds this module and the three that it imports, and nothing else of npformer. Only `frames`
leave it: whatever a file does there changes no more than what its own functions answer. `serve` forks: a
keeper, and below it the process that works, which the keeper ends with all that it started.
"""

import builtins
import dis
import json
import os
import random
import select
import shutil
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from multiprocessing.connection import Connection
from types import ModuleType
from typing import Any

import numpy as np

from npformer.grader import walls
from npformer.grader.frames import Functions, Opaque, pack, unpack
from npformer.grader.reading import Submission, answer_of, names_of, read_submission, said

USER = 2**30  # users from here on belong to nobody
TICK = 20  # milliseconds between two looks at a process that works


# --- one submission -------------------------------------------------------------------------------


def work(pipe: Connection) -> None:
    """Run the file, tell what it answers, then call its functions until the other side has had enough."""
    me, getpid, leave = os.getpid(), os.getpid, os._exit
    request = unpack(pipe.recv_bytes())
    sys.argv = [str(request["name"])]
    submission = read_submission(sys.argv[0], request["data"].tobytes())
    if getpid() != me:  # the file has forked and its copy came back here
        leave(0)
    functions: Functions = []
    answers = {exercise_id: _sent(answer_of(submission, exercise_id)) for exercise_id in request["ids"]}
    texts = {"student": submission.student, "problem": submission.problem, "names": names_of(submission)}
    pipe.send_bytes(pack({**texts, "answers": answers}, functions))
    while True:
        message = unpack(pipe.recv_bytes(), partial(there, pipe))
        pipe.send_bytes(pack(answered(functions[message["call"]], message, submission)))


def _sent(answer: Any) -> Any:
    """What is sent of an answer: a function, a value, or the name of its type; None of a stub."""
    try:
        if callable(answer):
            return None if _is_stub(answer) else answer
        pack(answer)
        return answer
    except BaseException:
        return Opaque(type(answer).__name__)


def _is_stub(function: Any) -> bool:
    """Whether a body does nothing, as `...` and `pass`: all that it loads is the None that it returns."""
    code = dis.get_instructions(function.__code__) if hasattr(function, "__code__") else ()
    return [i.argval for i in code if i.opname.startswith(("LOAD", "RETURN_CONST"))] == [None]


def answered(function: Callable[..., Any], message: dict[str, Any], submission: Submission) -> dict[str, Any]:
    """What a call gave, or its error; and the places of the arguments that are not what they were."""
    arguments = message["args"]
    before = [pack(a) if isinstance(a, np.ndarray) else b"" for a in arguments]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            reply = {"value": function(*arguments, **message["kwargs"])}
        pack(reply)
    except BaseException as error:
        reply = {"error": type(error).__name__, "said": said(error), "where": _where(error, submission)}
    pairs = enumerate(zip(arguments, before, strict=True))
    return {**reply, "changed": [i for i, (array, was) in pairs if was and pack(array) != was]}


def _where(error: BaseException, submission: Submission) -> str:
    """The last line of the file's own that an error came through, counted from its function's first."""
    for frame, line in reversed([*traceback.walk_tb(error.__traceback__)]):
        code = frame.f_code
        if code.co_filename in submission.places:
            return f"in line {line - code.co_firstlineno + 1} of {code.co_name}"
    return ""


def there(pipe: Connection, place: int) -> Callable[..., Any]:
    """A function among the arguments of a call lives on the other side: this one asks there."""

    def ask(*arguments: Any) -> Any:
        pipe.send_bytes(pack({"back": place, "args": arguments}))
        reply = unpack(pipe.recv_bytes())
        if "error" in reply:
            raise getattr(builtins, reply["error"], ValueError)(reply["said"])
        return reply["value"]

    return ask


# --- npformer is not here -------------------------------------------------------------------------


class _Absent(MetaPathFinder, Loader):
    """In the place of npformer: every name can be imported, none computes."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "npformer" else None

    def exec_module(self, module: ModuleType) -> None:
        """A module with any name in it: what checks says yes, what computes says whose it is."""

        def any_name(name: str) -> Any:
            def function(*arguments: Any, **options: Any) -> bool:
                if module.__name__ == "npformer.exercises":
                    return True
                raise RuntimeError(f"{name} is npformer's own: write your own")

            if name.startswith("__"):
                raise AttributeError(name)
            return function

        vars(module)["__getattr__"] = any_name


def hide_npformer() -> None:
    """Put the stand-in before all else that finds modules."""
    for name in [name for name in sys.modules if name.split(".")[0] == "npformer"]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Absent())


# --- a server that forks --------------------------------------------------------------------------
# Nothing below runs in a process that coverage can trace; tests/grader/test_grader.py asks the kernel.


def serve() -> None:  # pragma: no cover
    """Wait for submissions on descriptor 0, a socket; with each comes its pipe."""
    server, place = socket.socket(fileno=os.dup(0)), json.loads(sys.argv[2])
    around = _around(place)
    server.sendall(json.dumps(around["open"]).encode())
    while True:
        data, pipes, _, _ = socket.recv_fds(server, 2**16, 1)
        if not data:
            os._exit(0)
        request = json.loads(data)
        for module in request["needs"]:  # once for all: it takes seconds
            with suppress(Exception):
                import_module(module)
        server.sendall(b".")  # from here on it is the student's time
        keeper = os.fork()
        if keeper == 0:
            server.close()
            keep(Connection(pipes[0]), place, around | request)
        os.close(pipes[0])
        usage = os.wait4(keeper, 0)[2]  # of all that it has seen end
        server.sendall(str(usage.ru_utime + usage.ru_stime).encode())


def _around(place: list[Any]) -> dict[str, Any]:  # pragma: no cover
    """What this system can hold back from all who come."""
    os.dup2(1, 0)  # nobody reads what is printed, and nothing can be read
    np.random.seed(0)  # noqa: NPY002  # what a file draws without a seed is the same in every run
    walled = walls.tried(partial(walls.apart, os.geteuid(), *place))
    another: list[Callable[[], object]] = [partial(walls.become, USER), partial(open, os.__file__)]
    apart = [partial(walls.apart, USER, *place)] if walled else []
    own_users = os.geteuid() == 0 and walls.tried(*apart, *another)
    countless = os.geteuid() == 0 and not own_users  # the kernel does not count the processes of root
    processes = walls.PROCESSES + (0 if own_users else walls.threads_of_the_system())
    ways = [] if walled else ["network", "files", *(["processes"] if countless else [])]
    return {"open": ways, "own_users": own_users, "processes": processes, "walled": walled}


def keep(pipe: Connection, place: list[Any], given: dict[str, Any]) -> None:  # pragma: no cover
    """The keeper: start the process that works; when it ends or the other side hangs up, end all of it."""
    try:
        os.setsid()
        walls.adopt()
        user = os.getpid() % USER + USER if given["own_users"] else 0
        if given["walled"]:
            walls.apart(user or os.geteuid(), *place)
        else:
            os.chdir(tempfile.mkdtemp(dir=os.environ["TMPDIR"]))
            os.environ.update(dict.fromkeys(("HOME", "TMPDIR"), os.getcwd()))
            os.chown(".", user or -1, user or -1)
        child = os.fork()
        if child == 0:
            start(pipe, user, given)
        hung_up = select.poll()
        hung_up.register(pipe, select.POLLHUP)
        while not hung_up.poll(TICK) and not os.waitpid(child, os.WNOHANG)[0]:
            pass
        walls.end(child)
        shutil.rmtree(os.getcwd(), ignore_errors=True)
    finally:
        os._exit(0)


def start(pipe: Connection, user: int, given: dict[str, Any]) -> None:  # pragma: no cover
    """The process that works, bound and without privileges, until the other side hangs up: an EOFError."""
    os.setsid()
    if given["walled"]:
        walls.own_processes()
    if user or given["walled"]:
        walls.become(user)
    walls.limit(given["cpu"], given["megabytes"], given["processes"])
    hide_npformer()
    random.seed(0)  # Python has drawn a seed of its own in this process
    work(pipe)
