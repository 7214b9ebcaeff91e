"""Start the process that runs a submission, watch it and its children, and end them all.

The grading process is the parent of the worker. It also becomes the parent of processes that the worker
leaves behind. So all children of the grading process belong to the current submission.
"""

import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from npformer.exercises.verdict import Finding, make_finding
from npformer.grader.bubblewrap import (
    PACKAGE_DIRECTORY,
    WORKING_DIRECTORY,
    Contents,
    Protection,
    get_own_user,
    make_command,
)
from npformer.grader.worker.protocol import Channel, pack
from npformer.grader.worker.sandbox import MAX_PROCESSES

# This command also removes directories that a submission has made unreadable or too deep for Python.
REMOVE_COMMAND = ("sh", "-c", 'chmod -R u+rwX "$0"; rm -rf "$0"')
REMOVE_SECONDS = 60.0  # the time limit of REMOVE_COMMAND
WATCH_SECONDS = 0.2  # the time between two measurements of a submission's memory and processes
SANDBOX_PROCESSES = 4  # the largest number of processes that bubblewrap adds
HOMES = ("HOME", "TMPDIR", "MPLCONFIGDIR", "IPYTHONDIR")
PASSED_ON = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "MPLBACKEND": "Agg",
    "LANG": "C.UTF-8",
}


class WorkerProcess:
    """The process that runs one submission.

    `finding` is the reason why the watching thread has ended the submission, or None.
    """

    def __init__(
        self, contents: Contents, protection: Protection, search_path: list[str], megabytes: int
    ) -> None:
        self.finding: Finding | None = None
        self.protection = protection
        self.megabytes = megabytes
        self.directory = ""
        self.cpu_seconds = 0.0  # the CPU seconds of all processes together, when last measured
        self.cpu_before = 0.0  # the CPU seconds before the submission begins
        self.cpu_allowed = math.inf  # the CPU seconds that the submission may use
        self.others = set(list_children(os.getpid()))  # children that belong to no submission
        own_end, worker_end = socket.socketpair()
        with worker_end:
            self.process = self._start(contents, search_path, worker_end)
        self.channel = Channel(own_end)
        self.is_over = threading.Event()
        self.watcher = threading.Thread(target=self._watch, daemon=True)
        self.watcher.start()

    def _start(
        self, contents: Contents, search_path: list[str], end: socket.socket
    ) -> "subprocess.Popen[bytes]":
        """Start the process, which receives this end of the channel as its standard input."""
        command = [sys.executable, "-P", "-m", "worker"]
        user = get_own_user() if self.protection.has_own_users else None
        if self.protection.has_sandbox:
            command = [*make_command(contents, is_root=user is not None), *command]
            user = None  # The command changes the user.
        else:
            self.directory = tempfile.mkdtemp(dir=contents.home)
        if user is not None:
            os.chown(self.directory, user, user)
        environment = _make_environment(contents, self.directory, search_path)
        return subprocess.Popen(
            command,
            stdin=end.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd=self.directory or contents.home,
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=None if user is None else (),
        )

    def settle(self, cpu: float, imports: list[str], deadline: float) -> None:
        """Send the limits, and wait until the worker has set them.

        Raises EOFError if the worker has ended.
        """
        settings = {
            "cpu": cpu,
            "megabytes": self.megabytes,
            "processes": count_allowed_processes(self.protection),
            "has_sandbox": self.protection.has_sandbox,
            "imports": imports,
        }
        self.channel.send(pack(settings), deadline)
        self.channel.receive(deadline)
        # The kernel limits the CPU time of each process. The watching thread limits the sum.
        self._measure_cpu(_iter_descendants(self.others))
        self.cpu_before = self.cpu_seconds
        self.cpu_allowed = cpu

    def end(self) -> float:
        """End all processes of the submission, and return the CPU seconds that they have used."""
        self.is_over.set()
        self.watcher.join()
        self.channel.close()
        # The kernel forgets the CPU time of processes that it ends together with their sandbox.
        self._measure_cpu(_iter_descendants(self.others))
        with suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        seconds = max(end_processes(self.others, self.process.pid), self.cpu_seconds)
        self.process.wait()  # returns at once, because the process has ended
        if self.directory:
            remove_directory(self.directory)
        return seconds

    def _watch(self) -> None:
        """End the submission if its processes are too many, or use too much memory or CPU time together."""
        while not self.is_over.wait(WATCH_SECONDS):
            processes = list(_iter_descendants(self.others))
            self._measure_cpu(processes)
            megabytes = sum(map(_read_memory, processes)) / 2**20
            # Too many processes may also use too much memory together, so their number is checked first.
            if len(processes) > MAX_PROCESSES + SANDBOX_PROCESSES:
                self.finding = make_finding("too_many_processes", count=MAX_PROCESSES)
            elif megabytes > self.megabytes:
                self.finding = make_finding("too_much_memory", megabytes=self.megabytes)
            elif self.cpu_seconds - self.cpu_before > self.cpu_allowed:
                self.finding = make_finding("too_long", seconds=self.cpu_allowed)
            if self.finding:
                _kill(*processes)
                # The grading process stops waiting, even if other processes of the submission are alive.
                with suppress(OSError):
                    self.channel.socket.shutdown(socket.SHUT_RDWR)
                return

    def _measure_cpu(self, processes: Iterable[int]) -> None:
        """Measure the CPU seconds of these processes together, and keep the largest sum so far.

        The sum can fall, because processes that have ended are no longer measured.
        """
        self.cpu_seconds = max(self.cpu_seconds, sum(map(_read_cpu_seconds, processes)))


def count_allowed_processes(protection: Protection) -> int:
    """Return the limit of processes that the kernel enforces.

    Without a user for each worker and without a sandbox, the kernel also counts the processes of the teacher.
    """
    is_counted_alone = protection.has_own_users or protection.has_sandbox
    return MAX_PROCESSES if is_counted_alone else MAX_PROCESSES + _count_threads()


def _make_environment(contents: Contents, directory: str, search_path: list[str]) -> dict[str, str]:
    """Return the environment variables of a worker.

    `directory` is the worker's working directory, or "" in a sandbox, where it is WORKING_DIRECTORY. Only the
    variables that programs need are passed on, because the teacher's environment may contain passwords and
    access tokens.
    """
    modules = [PACKAGE_DIRECTORY, f"{PACKAGE_DIRECTORY}/hidden"]
    if directory:
        modules = [str(Path(contents.package).parent), contents.home]
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment |= ENVIRONMENT | dict.fromkeys(HOMES, directory or WORKING_DIRECTORY)
    environment["PYTHONPATH"] = os.pathsep.join([*modules, *search_path])
    environment["NPFORMER_RUN"] = contents.home
    return environment


def remove_directory(path: str) -> None:
    """Remove a directory, even if its files are protected."""
    with suppress(subprocess.TimeoutExpired):
        subprocess.run(
            [*REMOVE_COMMAND, path],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=REMOVE_SECONDS,
            check=False,
        )


# --- processes ------------------------------------------------------------------------------------


def end_processes(others: set[int], first: int | None = None) -> float:
    """Kill all children except `others`, and return the CPU seconds that they have used.

    `first` is a child that is killed even if the system does not list children.
    """
    seconds = 0.0
    remaining = set(list_children(os.getpid())) - others
    if first is not None:
        remaining.add(first)
    while remaining:
        _kill(*remaining)
        for process_id in remaining:
            with suppress(ChildProcessError):
                usage = os.wait4(process_id, 0)[2]
                seconds += usage.ru_utime + usage.ru_stime
        # The children of an ended process become children of this process.
        remaining = set(list_children(os.getpid())) - others
    return seconds


def _kill(*process_ids: int) -> None:
    """Send SIGKILL to processes. Processes that have ended already are left out."""
    for process_id in process_ids:
        with suppress(OSError):
            os.kill(process_id, signal.SIGKILL)


def _iter_descendants(others: set[int]) -> Iterator[int]:
    """Yield the ids of all descendants of this process, except `others` and their descendants."""
    waiting = [child for child in list_children(os.getpid()) if child not in others]
    while waiting:
        process_id = waiting.pop()
        yield process_id
        waiting += list_children(process_id)


def list_children(process_id: int) -> list[int]:
    """Return the ids of a process's children, or [] if the system does not list children."""
    paths = Path(f"/proc/{process_id}/task").glob("*/children")
    return [int(child) for path in paths for child in _read_text(path).split()]


def _read_memory(process_id: int) -> int:
    """Return the bytes of memory that a process has written to. Libraries, which are files, do not count.

    Processes share the memory that their parent wrote to before the fork. If the system allows it, each of n
    processes counts 1/n of a shared page. Otherwise each process counts the whole page.
    """
    shares = _sum_fields(Path(f"/proc/{process_id}/smaps_rollup"), ("Pss_Anon", "Pss_Shmem"))
    return shares or _sum_fields(Path(f"/proc/{process_id}/status"), ("RssAnon", "RssShmem"))


def _sum_fields(path: Path, names: Sequence[str]) -> int:
    """Return the sum of these fields of a file in /proc, in bytes."""
    kilobytes = 0
    for line in _read_text(path).splitlines():
        name, _, value = line.partition(":")
        if name in names:
            kilobytes += int(value.split()[0])
    return kilobytes * 2**10


def _read_cpu_seconds(process_id: int) -> float:
    """Return the CPU seconds of a process and of its children that have ended."""
    # The name of the program is in parentheses and can contain spaces. After the name there are 11 other
    # fields, and then the user and system time of the process and of its ended children, in clock ticks.
    fields = _read_text(Path(f"/proc/{process_id}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _count_threads() -> int:
    """Return the number of threads on this system, or 0 if the system does not report the number."""
    # The text looks like "0.20 0.18 0.12 1/80 11206", which means 80 threads.
    threads = _read_text(Path("/proc/loadavg")).strip().rpartition("/")[2].partition(" ")[0]
    return int(threads or 0)


def _read_text(path: Path) -> str:
    """Return the text of a file in /proc, or "" if the file does not exist."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
