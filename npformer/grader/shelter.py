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
from typing import ClassVar, NamedTuple

LINUX = sys.platform == "linux"
LARGEST_FILE = 2**24
SCRATCH = "64m"  # the size of the private folder, where it is a file system of its own
OPEN_FILES = 256
QUIET = 3  # looks in a row that find nothing before a sweep is over
NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
READ_ONLY, NO_SETUID, RECURSIVE, PRIVATE = 1, 2, 0x4000, 0x40000  # of mount
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # Windows has one signal that ends a process
STOP = getattr(signal, "SIGSTOP", KILL)
ENDS_WITH_US, MOST_PROCESSES, MOST_MEMORY, MOST_TIME = 0x2000, 0x8, 0x200, 0x2  # of a Windows job
DUMPABLE, KEEP_CAPS, SUBREAPER, NO_NEW_PRIVILEGES = 4, 8, 36, 38  # of prctl
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


def apart() -> str:
    """Leave the network, the processes and the mounts of the system. The next child is process 1 of its own.

    "root" where we may do so by ourselves, "user" where the system lets users have a namespace of users, in
    which no other user can be become, and "" where nobody may.
    """
    flags, uid, gid = NEWNS | NEWIPC | NEWPID | NEWNET, os.geteuid(), os.getegid()
    try:
        call("unshare", flags)
        return "root"
    except OSError:
        pass
    maps = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
    try:
        call("unshare", flags | NEWUSER)
        for name, text in maps.items():
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    except OSError:
        return ""
    return "user"


def walls(folder: str, hidden: Iterable[str], owner: int) -> bool:
    """In namespaces of one's own: files to read only, but for one folder in memory; some folders empty."""
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


def limit(bounds: Bounds, own_user: bool) -> None:
    """The system's own limits, where it has them. It counts a user's processes: those there are, and more."""
    try:
        import resource
    except ImportError:  # Windows
        with suppress(OSError):
            join_a_job(bounds)
        return
    seconds = int(bounds.cpu) + 2
    wanted = {
        "RLIMIT_AS": bounds.megabytes * 2**20,
        "RLIMIT_FSIZE": LARGEST_FILE,
        "RLIMIT_CPU": seconds,
        "RLIMIT_NOFILE": OPEN_FILES,
        "RLIMIT_CORE": 0,
    }
    others = 0 if own_user else sum(threads for _, threads, _ in tasks().values())
    if own_user or others:
        wanted["RLIMIT_NPROC"] = others + bounds.processes
    for name, most in wanted.items():
        with suppress(ValueError, OSError, AttributeError):  # a system that has the limit by name only
            resource.setrlimit(getattr(resource, name), (most, most))


class Job(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION of Windows; what is 0 is not limited."""

    _fields_: ClassVar = [
        ("process_time", ctypes.c_int64),  # in 100 ns
        ("job_time", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("working_sets", ctypes.c_size_t * 2),
        ("processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priorities", ctypes.c_uint32 * 2),
        ("traffic", ctypes.c_uint64 * 6),
        ("process_memory", ctypes.c_size_t),
        ("job_memory", ctypes.c_size_t),
        ("peaks", ctypes.c_size_t * 2),
    ]


def join_a_job(bounds: Bounds) -> None:
    """On Windows: put this process and all that it will start into a job, which ends when this process does.

    The job's one handle is ours and is never closed: the system closes it, however we end. OSError where the
    system does not let us.
    """
    library = getattr(ctypes, "WinDLL", None)
    if library is None:
        raise OSError("this system has no jobs")
    kernel = library("kernel32", use_last_error=True)
    for name in ("CreateJobObjectW", "GetCurrentProcess"):
        getattr(kernel, name).restype = ctypes.c_void_p
    job = ctypes.c_void_p(kernel.CreateJobObjectW(None, None))
    limits = Job(
        process_time=int((bounds.cpu + 2) * 1e7),
        flags=ENDS_WITH_US | MOST_PROCESSES | MOST_MEMORY | MOST_TIME,
        processes=bounds.processes,
        job_memory=bounds.megabytes * 2**20,
    )
    set_limits = kernel.SetInformationJobObject(job, 9, ctypes.byref(limits), ctypes.sizeof(limits))
    us = ctypes.c_void_p(kernel.GetCurrentProcess())
    if not (job and set_limits and kernel.AssignProcessToJobObject(job, us)):
        raise OSError("this system does not let us make a job")


def cpu_seconds(pid: int) -> float:
    """The CPU time of a process that still runs; 0 where the system does not say."""
    try:
        return time.clock_gettime((~pid << 3) | 2) if LINUX else 0.0
    except OSError:
        return 0.0


def tasks() -> dict[int, tuple[int, int, int]]:
    """{process: (its parent, threads, bytes in memory)} of everything that /proc shows."""
    found = {}
    for name in _listed():
        with suppress(OSError, ValueError, IndexError):
            if name.isdecimal():
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
                page = os.sysconf("SC_PAGE_SIZE")
                found[int(name)] = int(fields[1]), int(fields[17]), int(fields[21]) * page
    return found


def _listed() -> list[str]:
    """The names in /proc; none where it belongs to a namespace around ours, which numbers us otherwise."""
    try:
        return os.listdir("/proc") if os.readlink("/proc/self") == str(os.getpid()) else []
    except OSError:  # a system without it
        return []


def descendants(of: int) -> dict[int, int]:
    """{process: bytes in memory} of everything that a process has started."""
    every = tasks()
    found: dict[int, int] = {}
    more = {of: 0}
    while more:
        more = {p: size for p, (parent, _, size) in every.items() if parent in more and p not in found}
        found |= more
    return found


def end_descendants(of: int) -> None:
    """End everything that this process has started. What multiplies is stopped first, until no more comes."""
    quiet = 0
    while quiet < QUIET:
        below = descendants(of)
        _signal(below, STOP)
        while below.keys() != (again := descendants(of)).keys():
            _signal(again, STOP)
            below = again
        _signal(below, KILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        quiet = 0 if below else quiet + 1


def _signal(processes: Iterable[int], number: int) -> None:
    for pid in processes:
        with suppress(OSError):
            os.kill(pid, number)


def end_group(pid: int) -> None:
    """End what a process that leads a group has started: what /proc shows below it, and its group."""
    _signal(descendants(pid), KILL)
    if hasattr(os, "killpg"):
        with suppress(OSError):
            os.killpg(pid, KILL)


def end_marked(mark: str) -> None:
    """End what carries a mark in its environment: the last sweep after a run, for what lost its parents."""
    quiet = 0
    while quiet < QUIET:
        marked = [pid for pid in tasks() if pid != os.getpid() and _carries(pid, mark.encode())]
        _signal(marked, KILL)
        quiet = 0 if marked else quiet + 1


def _carries(pid: int, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False


# --- cgroup v2 ------------------------------------------------------------------------------------


def cell(bounds: Bounds) -> str:
    """A new control group below the one we are in, or "" where we may not make one."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            mounts = [line.split()[4] for line in file if " - cgroup2 " in line]
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            groups = [line.strip()[3:] for line in file if line.startswith("0::")]
        path = f"{mounts[0]}{groups[0].rstrip('/')}/npformer-{os.getpid()}-{time.monotonic_ns()}"
        os.mkdir(path)
    except (OSError, IndexError):
        return ""
    for name, most in (("pids.max", bounds.processes), ("memory.max", bounds.megabytes * 2**20)):
        with suppress(OSError):  # the controller is not handed down to us
            _write(f"{path}/{name}", str(most))
    return path


def enter(path: str) -> None:
    """Move into a control group, with all that one starts from here on."""
    if path:
        with suppress(OSError):
            _write(f"{path}/cgroup.procs", "0")


def end_cell(path: str) -> None:
    """End everything in a control group, and remove it."""
    if not path:
        return
    with suppress(OSError):
        _write(f"{path}/cgroup.kill", "1")
    for _ in range(100):
        try:
            os.rmdir(path)
            return
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.01)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)
