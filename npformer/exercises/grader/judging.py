"""The judge: holds the right answers, never runs a line of a student's, and asks their process for numbers.

`Judge` starts the student's side (`student`) and checks one submission after another; a function that was
handed in is, for the checker, a `Proxy` that sends arguments and waits for arrays. In a class each worker of
`grading` runs `python -m npformer.exercises.grader.judging`, which reads jobs from its input, a line each.
"""

import builtins
import hashlib
import json
import os
import queue
import select
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from npformer.exercises.grader import shelter
from npformer.exercises.grader.messages import LENGTHS, Forged, length_of, pack, readable, unpack
from npformer.exercises.reply import NOTHING, check
from npformer.exercises.task import Numbers
from npformer.exercises.topics import bank, find

LARGEST_SUBMISSION = 2**24
MOST_CALLS_BACK = 1000
OVERHEAD = 20.0  # seconds for a system that is slow to start a process; no part of a student's time
TEXTS = {"student": 100, "problem": 1000, "keys": 5000}  # letters that are kept of each
MARK = "NPFORMER_RUN"
READY = pack("ready")
WALLS = ("network", "files")  # named where they are open
HARNESS = (
    "messages",
    "submissions",
    "shelter",
    "student",
)  # what is sent to a student's process, in this order
BOOT = """
import json, os, sys, types
def take(count):
    data = b""
    while len(data) < count:
        data += os.read(0, count - len(data)) or sys.exit(0)
    return data
parts = json.loads(take(int.from_bytes(take(4), "big")))
sys.path[:] = parts["path"] or sys.path
grader = "npformer.exercises.grader"
for name in "npformer", "npformer.exercises", grader:
    sys.modules[name] = types.ModuleType(name)
for name, source in parts["modules"]:
    module = sys.modules[grader + "." + name] = types.ModuleType(grader + "." + name)
    exec(compile(source, name, "exec"), vars(module))
    setattr(sys.modules[grader], name, module)
vars(module)[parts["main"]]()
"""

Report = dict[str, Any]


class Limits(NamedTuple):
    """What one submission may use, how much its reply says, and where it runs."""

    seconds: float = 20.0  # of CPU
    megabytes: int = 2048
    level: int = 2
    wall: float = 0.0  # seconds; 0 is three times the CPU's
    container: str = ""  # docker or podman
    image: str = "npformer-student"


LIMITS = Limits()


class Ended(BaseException):
    """The student's process has ended or had to be ended; the checker must not take it for an answer."""


# --- the two ways to a student's process ----------------------------------------------------------


def boot(main: str, path: Sequence[str]) -> bytes:
    """What a fresh Python reads first: the student's side as text, so that it needs no npformer."""
    folder = files("npformer.exercises.grader")
    modules = [(name, folder.joinpath(f"{name}.py").read_text(encoding="utf-8")) for name in HARNESS]
    text = json.dumps({"main": main, "path": list(path), "modules": modules}).encode()
    return len(text).to_bytes(4, "big") + text


def import_path() -> list[str]:
    """Where a student's process finds NumPy: our own path, without folders that are there for npformer."""
    ours = Path(__file__).parents[3]
    return [p for p in sys.path if p and (Path(p).resolve() != ours or (ours / "numpy").exists())]


def environment(mark: str, home: str) -> dict[str, str]:
    """What Python needs, and nothing of ours: no tokens, no addresses."""
    kept = ("SYSTEMROOT", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    own = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "MPLBACKEND": "Agg", "LANG": "C.UTF-8"}
    places = dict.fromkeys(("HOME", "USERPROFILE", "TMPDIR", "MPLCONFIGDIR", "IPYTHONDIR"), home)
    return {k: os.environ[k] for k in kept if k in os.environ} | threads | own | places | {MARK: mark}


class Server:
    """A Python that has imported NumPy and forks for every submission."""

    def __init__(self, mark: str, home: str) -> None:
        ours, theirs = socket.socketpair()
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment(mark, home),
            cwd=home,
            start_new_session=True,
        )
        theirs.close()
        self.socket = ours
        ours.sendall(boot("serve", import_path()))

    def open(self, request: Report) -> "Forked":
        """A process for one submission."""
        pipe, its_pipe = socket.socketpair()
        control, its_control = socket.socketpair()
        with its_pipe, its_control:
            socket.send_fds(self.socket, [pack(request)], [its_pipe.fileno(), its_control.fileno()])
        return Forked(pipe, control)

    def close(self) -> None:
        """Hang up, which ends it."""
        self.socket.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Forked:
    """A student's process, and its keeper."""

    def __init__(self, pipe: socket.socket, control: socket.socket) -> None:
        self.pipe, self.control = pipe, control
        control.settimeout(OVERHEAD * 3)
        try:
            self.walls: dict[str, Any] = unpack(control.recv(2**12))
        except (OSError, Forged):
            self.close()
            raise Ended("The system had no process for it.") from None
        control.settimeout(OVERHEAD)

    def write(self, data: bytes, seconds: float) -> None:
        """Send; TimeoutError where nobody reads."""
        self.pipe.settimeout(seconds)
        self.pipe.sendall(data)

    def read(self, seconds: float) -> bytes | None:
        """Some bytes, none at the end, None when time is up."""
        ready, _, _ = select.select([self.pipe], [], [], max(seconds, 0))
        return self.pipe.recv(2**16) if ready else None

    def cpu(self) -> float | None:
        """CPU seconds so far."""
        try:
            self.control.sendall(b"?")
            return float(struct.unpack(">d", self.control.recv(8))[0]) if shelter.LINUX else None
        except (OSError, struct.error):
            return None

    def close(self) -> None:
        """Hang up on the keeper, and wait until it has ended everything."""
        self.pipe.close()
        with suppress(OSError):
            self.control.shutdown(socket.SHUT_WR)
            list(iter(lambda: self.control.recv(64), b""))
        self.control.close()


class Alone:
    """A new Python for one submission, on this system or in a container."""

    def __init__(self, command: list[str], finish: list[str], path: Sequence[str], **options: Any) -> None:
        self.finish, self.walls = finish, dict.fromkeys(WALLS, not finish)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, **options
        )
        self.came: queue.Queue[bytes] = queue.Queue()
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()
        try:
            self.write(boot("alone", path), OVERHEAD)
            ready = self.read(3 * OVERHEAD) == READY
        except OSError:
            ready = False
        if not ready:
            self.close()
            raise Ended("The system had no process for it.")

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            while data := os.read(stdout.fileno(), 2**16):
                self.came.put(data)
        self.came.put(b"")

    def write(self, data: bytes, seconds: float) -> None:
        """Send; a process that does not read is ended when time is up."""
        assert self.process.stdin is not None
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(data)
            self.process.stdin.flush()
        finally:
            timer.cancel()

    def read(self, seconds: float) -> bytes | None:
        """Some bytes, none at the end, None when time is up."""
        try:
            return self.came.get(timeout=max(seconds, 0))
        except queue.Empty:
            return None

    def cpu(self) -> float | None:
        """CPU seconds so far, where the process is our own."""
        return shelter.cpu_seconds(self.process.pid) if shelter.LINUX and not self.finish else None

    def close(self) -> None:
        """End it and its group."""
        if self.finish:
            subprocess.run(self.finish, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        shelter.end_group(self.process.pid)
        self.process.kill()
        self.process.wait()
        assert self.process.stdin is not None
        with suppress(OSError):  # what it did not read
            self.process.stdin.close()
        self.listener.join(1)  # longer only where something that it started holds its output open


# --- one submission -------------------------------------------------------------------------------


class Clock:
    """The time of one submission. Every function that does not end halves what the next may use."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.hung, self.waited = limits, 0, 0.0
        self.wall = limits.wall or 3 * limits.seconds

    def share(self, load: bool) -> float:
        """The part of all the time that the next step may use."""
        return 1.0 if load else 0.5 ** (self.hung + 1)

    def over(self) -> bool:
        """Whether nothing is left."""
        return self.waited >= self.wall


class Student:
    """A student's process with a file in it, as the judge sees it: questions, answers and a clock."""

    def __init__(self, process: Forked | Alone, clock: Clock) -> None:
        self.process, self.clock = process, clock
        self.ending, self.came = "", b""
        self.begin(load=True)

    def begin(self, load: bool = False) -> None:
        """From here on time counts for another exercise."""
        self.part, self.since, self.before = self.clock.share(load), 0.0, self.process.cpu()

    def end(self, ending: str) -> NoReturn:
        """Give up on this process."""
        self.ending = self.ending or ending
        raise Ended(self.ending)

    def send(self, value: Any, functions: list[Callable[..., Any]] | None = None) -> None:
        """One frame there."""
        if self.ending:
            raise Ended(self.ending)
        try:
            self.process.write(pack(value, functions), self.clock.wall * self.part)
        except (TimeoutError, OSError):
            self.end("It ended the program.")

    def receive(self) -> Any:
        """One frame back."""
        head = self._exactly(LENGTHS.size)
        try:
            return unpack(head + self._exactly(length_of(head)))
        except Forged:
            self.end("It sent something that is no answer.")

    def _exactly(self, count: int) -> bytes:
        while len(self.came) < count:
            more = self._some()
            if not more:
                self.end("It ended the program.")
            self.came += more
        data, self.came = self.came[:count], self.came[count:]
        return data

    def _some(self) -> bytes:
        """Some bytes, before the time is up: the CPU's, or three times as much on the wall."""
        cpu, wall = self.clock.limits.seconds * self.part, self.clock.wall * self.part
        used = 0.0
        while self.since < wall and used < cpu:
            started = time.monotonic()
            try:
                data = self.process.read(min(max(cpu - used, 0.02), wall - self.since))
            except OSError:
                data = b""
            waited = time.monotonic() - started
            self.since += waited
            self.clock.waited += waited
            if data is not None:
                return data
            now = self.process.cpu()
            used = self.since if now is None or self.before is None else now - self.before
        self.clock.hung += 1
        self.end(
            f"It was still running after {cpu:g} seconds."
        )  # whichever of the two: the same in every run

    def call(self, exercise_id: str, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
        """What the student's function gives for these arguments, which may be changed by it."""
        functions: list[Callable[..., Any]] = []
        self.send({"call": exercise_id, "args": tuple(arguments), "kwargs": options}, functions)
        try:
            reply = self.receive()
            for _ in range(MOST_CALLS_BACK):
                if "back" not in reply:
                    break
                self.send(_called(functions[reply["back"]], reply["args"]))
                reply = self.receive()
            for place, array in reply["changed"].items():
                _put(arguments[int(place)], array)
            failed = _error(reply) if "error" in reply else None
            value = reply.get("value")
        except (TypeError, KeyError, ValueError, IndexError, AttributeError):
            self.end("It sent something that is no answer.")
        if failed is not None:
            raise failed
        return value


def _called(function: Callable[..., Any], arguments: Sequence[Any]) -> Report:
    """One of the checker's own functions, asked for by the student's."""
    try:
        with np.errstate(all="ignore"):
            return {"value": function(*arguments)}
    except Exception as error:
        return {"error": type(error).__name__, "said": readable(str(error))}


def _put(array: Any, changed: Any) -> None:
    """Do to an argument what was done to its copy. Another shape cannot be put in: it is spoilt instead."""
    if not isinstance(array, np.ndarray):
        return
    if getattr(changed, "shape", None) == array.shape:
        np.copyto(array, changed, casting="unsafe")
    else:
        array[...] = 1 - array.astype(float)


def _error(reply: Report) -> Exception:
    """An error like the student's: of the same name, with the message and the line."""
    name, message = str(reply["error"]), str(reply["said"])
    base = getattr(builtins, name, Exception)
    if not (isinstance(base, type) and issubclass(base, Exception | SystemExit)):
        base = Exception
    text = message.removeprefix(name).removeprefix(": ")
    text = ", ".join(part for part in (text, str(reply["where"])) if part)
    kind = type(
        name,
        (base,),
        {"__init__": lambda self: None, "__str__": lambda self: text, "__module__": "submission"},
    )
    return kind()


class Proxy:
    """A student's function, for the checker: it is called like one."""

    def __init__(self, student: Student, exercise_id: str, name: str) -> None:
        self.student, self.exercise_id = student, exercise_id
        self.__name__ = self.__qualname__ = name
        self.__module__ = "submission"

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Ask the student's process."""
        return self.student.call(self.exercise_id, arguments, options)


class Judge:
    """What stays between submissions: the fork server, a temporary folder, and the checker's memory."""

    def __init__(self, limits: Limits = LIMITS, hidden: Iterable[str] = (), fork: bool | None = None) -> None:
        self.limits, self.mark, self.walls = limits, f"{uuid.uuid4()}", dict[str, Any]()
        self.root = tempfile.mkdtemp(prefix="npformer-")
        os.chmod(self.root, 0o711)
        self.hidden = [str(path) for path in _hideable([*_ours(), *hidden], self.root)]
        self.preloaded: set[str] = set()
        forks = not limits.container and hasattr(os, "fork") if fork is None else fork
        self.server = Server(self.mark, self.root) if forks else None

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End everything that was started here, and remove what was written."""
        if self.server:
            self.server.close()
        shelter.end_marked(f"{MARK}={self.mark}")
        _remove(self.root)

    def grade(self, name: str, data: bytes, ids: Sequence[str]) -> tuple[str, list[Report]]:
        """(student, a report for each exercise) of one file. Nothing that it does raises an error here."""
        folder = tempfile.mkdtemp(dir=self.root)
        case = _Case(self, _plain(name), data, tuple(ids), folder)
        try:
            return case.reports()
        finally:
            case.close()
            _remove(folder)

    def open(self, name: str, data: bytes, folder: str) -> Forked | Alone:
        """A process for one submission."""
        preload = {"IPython.core.inputtransformer2"} if name.casefold().endswith(".ipynb") else set()
        preload |= {"matplotlib.pyplot"} if b"matplotlib" in data else set()
        request: Report = {"folder": folder, "hidden": self.hidden, "cpu": self.limits.seconds}
        request |= {"megabytes": self.limits.megabytes, "preload": sorted(preload - self.preloaded)}
        self.preloaded |= preload
        if self.server:
            return self.server.open(request)
        return self._alone(folder)

    def _alone(self, folder: str) -> Alone:
        python = ["python", "-P", "-c", BOOT]
        if not self.limits.container:
            own = {
                "env": environment(self.mark, folder),
                "cwd": folder,
                "start_new_session": os.name == "posix",
            }
            return Alone([sys.executable, *python[1:]], [], import_path(), **own)
        name = f"npformer-{uuid.uuid4()}"
        engine = shutil.which(self.limits.container) or self.limits.container
        command = [engine, "run", "--rm", "--interactive", f"--name={name}", *container_walls(self.limits)]
        return Alone([*command, self.limits.image, *python], [engine, "kill", name], ())


def container_walls(limits: Limits) -> list[str]:
    """What an engine is asked for: no network, no privileges, and only a folder in memory to write to."""
    return [
        "--network=none",
        "--read-only",
        "--tmpfs=/tmp:size=64m,mode=1777",
        "--workdir=/tmp",
        "--user=65534:65534",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        f"--memory={limits.megabytes}m",
        "--pids-limit=64",
        "--cpus=1",
        "--ulimit=core=0",
        *(f"--env={k}={v}" for k, v in environment("", "/tmp").items() if k not in (MARK, "LD_LIBRARY_PATH")),
    ]


class _Case:
    """One submission on its way through the judge."""

    def __init__(self, judge: Judge, name: str, data: bytes, ids: tuple[str, ...], folder: str) -> None:
        self.judge, self.name, self.data, self.ids, self.folder = judge, name, data, ids, folder
        self.clock = Clock(judge.limits)
        self.student: Student | None = None
        self.head: Report = {}

    def close(self) -> None:
        """End the process, if there is one."""
        if self.student:
            self.student.process.close()
            self.student = None

    def start(self) -> None:
        """A process that has run the file. The first time, what the file answers is kept."""
        self.close()
        process = self.judge.open(self.name, self.data, self.folder)
        self.judge.walls = process.walls
        self.student = Student(process, self.clock)
        data = np.frombuffer(self.data, np.uint8)
        request = {"name": self.name, "data": data, "ids": list(self.ids), "folder": self.folder}
        limits = self.judge.limits
        bounds = {"cpu": limits.seconds, "megabytes": limits.megabytes, "hidden": self.judge.hidden}
        self.student.send(request | bounds)
        head = self.student.receive()
        try:
            answers = {i: (str(head["answers"][i][0]), head["answers"][i][1]) for i in self.ids}
            text = {key: " ".join(readable(str(head[key]), most).split()) for key, most in TEXTS.items()}
        except (TypeError, LookupError):
            self.student.end("It sent something that is no answer.")
        self.head = self.head or {**text, "answers": answers}

    def reports(self) -> tuple[str, list[Report]]:
        """The file's student, and a report for each exercise in order."""
        try:
            self.start()
        except Ended as ended:
            return "", [said("not read", str(ended)) for _ in self.ids]
        return self.head["student"], [self.report(exercise_id) for exercise_id in self.ids]

    def report(self, exercise_id: str) -> Report:
        """One exercise."""
        kind, answer = self.head["answers"][exercise_id]
        if kind == "nothing":
            return _unanswered(self.head["problem"], self.head["keys"])
        if kind == "ours":
            return said("error", f"{readable(str(answer))} is npformer's own: write your own.")
        if kind != "function":
            return self.checked(exercise_id, answer)
        try:
            if self.clock.over():
                raise Ended("Not checked: the time for this file was used up.")
            if self.student is None or self.student.ending:
                self.start()
            assert self.student is not None
            self.student.begin()
            report = self.checked(exercise_id, Proxy(self.student, exercise_id, str(answer)))
            return said("error", self.student.ending) if self.student.ending else report
        except Ended as ended:
            return said("error", str(ended))

    def checked(self, exercise_id: str, answer: Any) -> Report:
        """The checker's result. Whatever it cannot digest costs this exercise and no other."""
        name = self.head["student"].strip()
        asked = f"{exercise_id}@{name}" if name and isinstance(find(exercise_id)[0], Numbers) else exercise_id
        try:
            result = check(asked, answer, level=self.judge.limits.level)
        except Exception as error:
            return said("error", f"This answer cannot be judged ({type(error).__name__}).")
        texts = {
            key: readable(str(getattr(result, key) or ""), 2000) for key in ("evidence", "hint", "question")
        }
        status = "not answered" if result.evidence == NOTHING else result.status
        return {"status": status, "codes": list(result.codes), **texts}


def _unanswered(problem: str, keys: str) -> Report:
    """No answer: the file was not read to its end, or there is none, perhaps under a name of no exercise."""
    if problem:
        return said("not read", problem)
    unknown = [repr(key) for key in keys.split() if key not in bank()]
    which = f"answers has {', '.join(unknown[:3])}, which is no exercise." if unknown else ""
    return said("not answered", which)


def said(status: str, evidence: str) -> Report:
    """A report without a check."""
    return {"status": status, "codes": [], "evidence": evidence, "hint": "", "question": ""}


def _plain(name: str) -> str:
    """A file's name that a system takes for its copy."""
    return readable(Path(name).name, 100).replace("/", "_").replace("\\", "_")


def _ours() -> list[Path]:
    """Where the answers lie on this disk: the package, and in a checkout what surrounds it."""
    package = Path(__file__).resolve().parents[2]
    beside = ("tests", "notebooks", ".git", ".ci") if (package.parent / "pyproject.toml").exists() else ()
    return [package, *(package.parent / name for name in beside)]


def _hideable(paths: Iterable[str | Path], root: str) -> list[Path]:
    """Folders that can be emptied for a student's process: Python and its own folder lie in none of them."""
    needed = [Path(p).resolve() for p in (sys.prefix, sys.base_prefix, os.__file__, np.__file__, root)]
    real = dict.fromkeys(Path(path).resolve() for path in paths)
    return [p for p in real if p.is_dir() and not any(n == p or p in n.parents for n in needed)]


def _remove(folder: str) -> None:
    """Remove a folder, however its owner has left it."""
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        if os.name == "posix":
            for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
                subprocess.run([*command, "--", folder], stderr=subprocess.DEVNULL, check=False)
        else:
            shutil.rmtree(folder, ignore_errors=True)


# --- a worker of a class --------------------------------------------------------------------------


def read_file(path: str, inside: str) -> bytes:
    """The bytes of a submission; ValueError in a few words for what is none."""
    try:
        if not Path(path).resolve().is_relative_to(Path(inside).resolve()):
            raise ValueError("It is a link to a place outside the folder.")
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ValueError("It is no file.")
        if os.stat(path).st_size > LARGEST_SUBMISSION:
            raise ValueError(f"It is larger than {LARGEST_SUBMISSION // 2**20} megabytes.")
        with open(path, "rb") as file:
            return file.read(LARGEST_SUBMISSION)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", "") or "a circle of links"
        raise ValueError(f"The file cannot be read: {reason}.") from None


def main() -> None:
    """Jobs in, a line of JSON each; rows out. Ends when its input does, in the middle of a job too."""
    jobs: queue.Queue[Report | None] = queue.Queue()
    first = json.loads(sys.stdin.readline())
    judge = Judge(Limits(*first["limits"]), first["hidden"])

    def listen() -> None:
        for line in sys.stdin:
            jobs.put(json.loads(line))
        judge.close()
        with suppress(OSError):  # the last judge of a run that was ended without a word leaves nothing
            os.rmdir(first["scratch"])
        os._exit(0)

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        while job := jobs.get():
            report = grade_file(judge, job["path"], first["folder"], first["ids"])
            print(json.dumps(report), flush=True)
    except OSError:  # the other side has gone, and the listener is about to leave with all that is ours
        listener.join(OVERHEAD)
        raise


def grade_file(judge: Judge, path: str, folder: str, ids: Sequence[str]) -> Report:
    """The student, the reports and a digest of a file in a folder; and which walls did not stand."""
    digest, problem = digest_of(path, folder)
    if problem:
        return {
            "student": "",
            "reports": [said("not read", problem) for _ in ids],
            "digest": digest,
            "open": [],
        }
    return grade_bytes(judge, path, read_file(path, folder), ids)


def grade_bytes(judge: Judge, name: str, data: bytes, ids: Sequence[str]) -> Report:
    """The same of bytes that came from elsewhere."""
    student, reports = judge.grade(name, data, ids)
    missing = sorted(wall for wall, is_open in judge.walls.items() if is_open is True)
    return {
        "student": student,
        "reports": reports,
        "digest": hashlib.sha256(data).hexdigest(),
        "open": missing,
    }


def digest_of(path: str, folder: str) -> tuple[str, str]:
    """What tells a file from its next version; and why it cannot be read, or ""."""
    try:
        return hashlib.sha256(read_file(path, folder)).hexdigest(), ""
    except ValueError as error:
        return str(error), str(error)


if __name__ == "__main__":
    main()
