"""What the system can hold back: limits on one process, and walls around it and all that it starts.

Linux has the walls, called through libc: namespaces (no network, no other process to see, files to read only,
some folders empty), another user where we are root, a subreaper elsewhere. Other systems have less; each
function does what it can and says what holds. Imports no other module of npformer.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

LINUX = sys.platform == "linux"
LARGEST_FILE = 2**24
SCRATCH = "64m"  # the size of the private folder, where it is a file system of its own
OPEN_FILES = 256
NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
READ_ONLY, NO_SETUID, RECURSIVE, PRIVATE = 1, 2, 0x4000, 0x40000  # of mount
PARENT_DIES, DUMPABLE, KEEP_CAPS, SUBREAPER, NO_NEW_PRIVILEGES = 1, 4, 8, 36, 38  # of prctl
MOUNT_SETATTR, HERE, ALL_BELOW = 442, -100, 0x8000
READ_ANYTHING = 1 << 2  # the capability to read what root may read, for a Python that lies in root's home


class Bounds(NamedTuple):
    """What one submission may use."""

    cpu: float
    megabytes: int
    processes: int = 64


def call(name: str, *arguments: object) -> int:
    """A function of libc; OSError where it fails or is missing."""
    try:
        function = getattr(ctypes.CDLL(None, use_errno=True), name)
    except (AttributeError, TypeError):
        raise OSError(f"this system has no {name}") from None
    result = int(function(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def adopt() -> None:
    """Become the parent of what one's children leave behind."""
    with suppress(OSError):
        call("prctl", SUBREAPER, 1, 0, 0, 0)


def apart() -> bool:
    """Leave the network, the processes and the mounts of the system. The next child is process 1 of its own.

    Root does it by itself, others where the system lets users have a namespace; False where nobody may.
    """
    flags, uid, gid = NEWNS | NEWIPC | NEWPID | NEWNET, os.geteuid(), os.getegid()
    try:
        call("unshare", flags)
    except OSError:
        try:
            call("unshare", flags | NEWUSER)
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{uid} {uid} 1"),
                ("gid_map", f"{gid} {gid} 1"),
            ):
                with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                    file.write(text)
        except OSError:
            return False
    return True


def walls(folder: str, hidden: Iterable[str], owner: int) -> bool:
    """In a namespace of one's own: all files to read only, but for one folder in memory; some folders empty."""
    try:
        call("mount", b"none", b"/", None, RECURSIVE | PRIVATE, None)
        with suppress(OSError):
            call("mount", b"proc", b"/proc", b"proc", 0, None)
        for path in hidden:
            call("mount", b"none", os.fsencode(path), b"tmpfs", 0, b"size=4k,mode=755")
        _read_only(b"/", 0, READ_ONLY | NO_SETUID)
        options = f"size={SCRATCH},nr_inodes=4k,mode=700,uid={owner},gid={owner}".encode()
        call("mount", b"none", os.fsencode(folder), b"tmpfs", NO_SETUID, options)
    except OSError:
        return False
    return True


def _read_only(path: bytes, clear: int, put: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(put, clear, 0, 0)
    call("syscall", ctypes.c_long(MOUNT_SETATTR), HERE, path, ALL_BELOW, ctypes.byref(attributes), 32)


def become(user: int) -> None:
    """Give every privilege up, for good. As root: become a user whom nobody else is."""
    call("prctl", KEEP_CAPS, 1, 0, 0, 0)
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    held = 0 if not user or _for_everyone() else READ_ANYTHING
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)(held, held, 0, 0, 0, 0)))
    call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    call("prctl", DUMPABLE, 1, 0, 0, 0)


def _for_everyone() -> bool:
    """Whether a user without privileges can read this Python."""
    for path in (sys.prefix, sys.base_prefix):
        parts = path.split(os.sep)
        if any(
            not os.stat(os.sep.join(parts[:n]) or os.sep).st_mode & 0o001 for n in range(1, len(parts) + 1)
        ):
            return False
    return True


def can_become(user: int) -> bool:
    """Whether a child that becomes this user still finds its modules: tried once, in a child."""
    pid = os.fork()
    if pid == 0:
        try:
            become(user)
            os.stat(os.__file__)
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def limit(bounds: Bounds, count_processes: bool) -> None:
    """The system's own limits, where it has them. The count is of a user's processes: only for one of our own."""
    try:
        import resource
    except ImportError:  # Windows
        return
    seconds = int(bounds.cpu) + 2
    wanted = {
        "RLIMIT_AS": bounds.megabytes * 2**20,
        "RLIMIT_FSIZE": LARGEST_FILE,
        "RLIMIT_CPU": seconds,
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_CORE": 0,
    }
    if count_processes:
        wanted["RLIMIT_NPROC"] = bounds.processes
    for name, most in wanted.items():
        with suppress(ValueError, OSError, AttributeError):  # a system that has the limit by name only
            resource.setrlimit(getattr(resource, name), (most, most))


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process that still runs; 0 where the system does not say."""
    try:
        return time.clock_gettime((~pid << 3) | 2) if LINUX else 0.0
    except OSError:
        return 0.0


def descendants(of: int) -> dict[int, int]:
    """{process: bytes in memory} of everything that a process has started, from /proc."""
    parents, memory = {}, {}
    for name in os.listdir("/proc") if LINUX else ():
        with suppress(OSError, ValueError, IndexError):
            if name.isdecimal():
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                parents[int(name)], memory[int(name)] = int(fields[1]), int(fields[21])
    found: dict[int, int] = {}
    while more := {
        p: memory[p] for p, parent in parents.items() if (parent == of or parent in found) and p not in found
    }:
        found |= more
    page = os.sysconf("SC_PAGE_SIZE") if found else 1
    return {pid: pages * page for pid, pages in found.items()}


def end_descendants(of: int) -> None:
    """End everything that this process has started, again until nothing is left."""
    for _ in range(1000):
        below = descendants(of)
        for pid in below:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        if not below:
            return


def end_group(pid: int) -> None:
    """End what a process that leads a group has started: what /proc shows below it, and its group."""
    for below in descendants(pid):
        with suppress(OSError):
            os.kill(below, signal.SIGKILL)
    if hasattr(os, "killpg"):
        with suppress(OSError):
            os.killpg(pid, signal.SIGKILL)


def end_marked(mark: str) -> None:
    """End what carries a mark in its environment: the last sweep after a run, for what lost its parents."""
    for name in os.listdir("/proc") if LINUX else ():
        with suppress(OSError, ValueError):
            if int(name) != os.getpid():
                with open(f"/proc/{name}/environ", "rb") as file:
                    if mark.encode() in file.read().split(b"\0"):
                        os.kill(int(name), signal.SIGKILL)
