"""Serves submissions: runs a file, then calls its functions with the arguments that it receives.

`serve` forks a supervisor for each submission, and the supervisor forks the worker, in which the submission
runs. The supervisor ends the worker and everything that the worker has started. Only frames (`protocol`)
leave the worker: a file can change nothing but the replies of its own functions.
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
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from . import sandbox
from .protocol import Channel, Functions, Opaque, pack, unpack
from .student_module import Submission, answer_of, message_of, names_of, read_submission

FIRST_USER = 2**30  # no user of a system has such a number
POLL_MILLISECONDS = 20  # between two looks at a worker
MESSAGE_LENGTH = 150


# --- one submission -------------------------------------------------------------------------------


def serve_submission(channel: Channel) -> None:
    """Run the file, send its answers, and call its functions until the other side closes the channel."""
    own_pid, getpid, leave = os.getpid(), os.getpid, os._exit  # the file may replace those of `os`
    request = unpack(channel.receive())
    sys.argv = [str(request["name"])]
    submission = read_submission(sys.argv[0], request["data"].tobytes())
    is_copy = getpid() != own_pid  # the file has forked
    if is_copy:
        leave(0)
    functions: Functions = []
    answers = {each: prepare_answer(answer_of(submission, each)) for each in request["ids"]}
    texts = {"student": submission.student, "problem": submission.problem, "names": names_of(submission)}
    channel.send(pack({**texts, "answers": answers}, functions))
    while True:
        message = unpack(channel.receive(), partial(make_callback, channel))
        channel.send(pack(call_function(functions[message["call"]], message, submission)))


def prepare_answer(answer: Any) -> Any:
    """Return what is sent of an answer: the function or value, None for a stub, or the name of its type."""
    try:
        if callable(answer):
            return None if _is_stub(answer) else answer
        pack(answer)
        return answer
    except BaseException:
        return Opaque(type(answer).__name__)


def _is_stub(function: Any) -> bool:
    """Return whether a body does nothing, like `...` and `pass`: it only loads the None that it returns."""
    code = dis.get_instructions(function.__code__) if hasattr(function, "__code__") else ()
    return [i.argval for i in code if i.opname.startswith(("LOAD", "RETURN_CONST"))] == [None]


def call_function(
    function: Callable[..., Any], message: dict[str, Any], submission: Submission
) -> dict[str, Any]:
    """Return the value of a call or its error, and the positions of the arguments that the call changed."""
    arguments = message["args"]
    before = [pack(each) if isinstance(each, np.ndarray) else None for each in arguments]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            reply = {"value": function(*arguments, **message["kwargs"])}
        pack(reply)
    except BaseException as error:
        reply = {"error": describe_call_error(error, submission)}
    pairs = enumerate(zip(arguments, before, strict=True))
    return {**reply, "changed": [i for i, (array, was) in pairs if was is not None and pack(array) != was]}


def describe_call_error(error: BaseException, submission: Submission) -> dict[str, Any]:
    """Return the fields of an error. Its place is the last line of the submission that it came through.

    The line counts from the first line of its function, as in the messages about functions of this process.
    """
    line, function = None, ""
    for frame, at in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        if code.co_filename in submission.places:
            line, function = at - code.co_firstlineno + 1, code.co_name
    message = message_of(error)[:MESSAGE_LENGTH].rstrip(": ")
    return {"type_name": type(error).__name__, "message": message, "line": line, "function": function}


def make_callback(channel: Channel, position: int) -> Callable[..., Any]:
    """Make a function that stands for one of the checker's among the arguments, and is called over there."""

    def call_back(*arguments: Any) -> Any:
        channel.send(pack({"back": position, "args": arguments}))
        reply = unpack(channel.receive())
        if "error" in reply:
            raise getattr(builtins, reply["error"], ValueError)(reply["message"])
        return reply["value"]

    return call_back


# --- npformer is hidden ---------------------------------------------------------------------------


class _Absent(MetaPathFinder, Loader):
    """Replaces npformer: every name can be imported, none of them computes anything."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "npformer" else None

    def exec_module(self, module: ModuleType) -> None:
        """Give the module every name: the functions of the checker return True, the others raise."""

        def any_name(name: str) -> Any:
            def function(*arguments: Any, **options: Any) -> bool:
                if module.__name__ == "npformer.exercises":
                    return True
                raise RuntimeError(f"{name} is npformer's own: write your own")

            if name.startswith("__"):
                raise AttributeError(name)
            return function

        vars(module)["__getattr__"] = any_name


def leave_search_path() -> None:
    """Remove the first two directories of PYTHONPATH from the search path: this package's, and the home.

    Processes that a file starts still find the empty npformer.py in the home, and none of our modules.
    """
    own, home, *rest = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.path[:] = [path for path in sys.path if path not in (own, home)]
    os.environ["PYTHONPATH"] = os.pathsep.join([home, *rest])


def hide_npformer() -> None:
    """Remove npformer, this package and its program from the modules; find the replacement first."""
    package = __name__.partition(".")[0]  # in the student's process this is `worker`
    for name in list(sys.modules):
        if name.partition(".")[0] in ("npformer", package):
            del sys.modules[name]
    sys.modules["__main__"] = ModuleType("__main__")
    sys.meta_path.insert(0, _Absent())


# --- processes ------------------------------------------------------------------------------------
# Coverage cannot trace a process that runs what is below; tests/grader/test_grader.py asks the kernel.


def serve() -> None:  # pragma: no cover
    """Wait for submissions at descriptor 0, a socket. Each request comes with the socket of its channel."""
    leave_search_path()
    server, mounts = socket.socket(fileno=os.dup(0)), json.loads(sys.argv[1])
    os.dup2(1, 0)  # nothing can be read from standard input
    np.random.seed(0)  # noqa: NPY002  # numbers that a file draws without a seed are the same in every run
    protections = find_protections(mounts)
    server.sendall(json.dumps(protections["missing"]).encode())
    while True:
        data, descriptors, _, _ = socket.recv_fds(server, 2**16, 1)
        if not data:
            os._exit(0)
        request = json.loads(data)
        for module in request["imports"]:  # once for all submissions: such an import takes seconds
            with suppress(Exception):
                import_module(module)
        server.sendall(b".")  # the student's time starts here
        supervisor = os.fork()
        if supervisor == 0:
            server.close()
            supervise(socket.socket(fileno=descriptors[0]), mounts, protections | request)
        os.close(descriptors[0])
        usage = os.wait4(supervisor, 0)[2]  # of all processes that it has waited for
        server.sendall(str(usage.ru_utime + usage.ru_stime).encode())


def find_protections(mounts: list[Any]) -> dict[str, Any]:  # pragma: no cover
    """Find out which protections this system offers, and which are missing."""
    is_root = os.geteuid() == 0
    has_sandbox = sandbox.works(partial(sandbox.enter_sandbox, os.geteuid(), *mounts))
    steps: list[Callable[[], object]] = []
    if has_sandbox:
        steps.append(partial(sandbox.enter_sandbox, FIRST_USER, *mounts))
    steps += [partial(sandbox.drop_privileges, FIRST_USER), partial(open, os.__file__)]
    has_own_users = is_root and sandbox.works(*steps)
    processes = sandbox.MAX_PROCESSES
    if not has_own_users:  # the kernel counts all processes of a user
        processes += sandbox.count_threads()
    missing = [] if has_sandbox else ["network", "files"]
    if is_root and not has_own_users and not has_sandbox:  # the kernel does not count the processes of root
        missing.append("processes")
    return {
        "has_sandbox": has_sandbox,
        "has_own_users": has_own_users,
        "processes": processes,
        "missing": missing,
    }


def supervise(end: socket.socket, mounts: list[Any], given: dict[str, Any]) -> NoReturn:  # pragma: no cover
    """Start the worker. When it ends or the other side closes the channel, end all that it has started."""
    try:
        os.setsid()
        sandbox.set_subreaper()
        user = os.getpid() % FIRST_USER + FIRST_USER if given["has_own_users"] else 0
        if given["has_sandbox"]:
            sandbox.enter_sandbox(user or os.geteuid(), *mounts)
        else:
            os.chdir(tempfile.mkdtemp(dir=os.environ["TMPDIR"]))
            os.environ.update(dict.fromkeys(("HOME", "TMPDIR"), os.getcwd()))
            os.chown(".", user or -1, user or -1)
        child = os.fork()
        if child == 0:
            run_worker(end, user, given)
        is_closed = select.poll()
        is_closed.register(end, select.POLLHUP)
        while not is_closed.poll(POLL_MILLISECONDS) and not os.waitpid(child, os.WNOHANG)[0]:
            pass
        sandbox.kill_all(child)
        shutil.rmtree(os.getcwd(), ignore_errors=True)
    finally:
        os._exit(0)


def run_worker(end: socket.socket, user: int, given: dict[str, Any]) -> None:  # pragma: no cover
    """Drop privileges, set the limits and serve the submission until the channel is closed: EOFError."""
    os.setsid()
    if given["has_sandbox"]:
        sandbox.mount_own_proc()
    if user or given["has_sandbox"]:
        sandbox.drop_privileges(user)
    sandbox.limit_resources(given["cpu"], given["megabytes"], given["processes"])
    hide_npformer()
    random.seed(0)  # Python has drawn a seed of its own in this process
    serve_submission(Channel(end))
