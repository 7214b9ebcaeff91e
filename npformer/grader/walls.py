"""What the kernel holds back: limits on one process, and on Linux a root of its own in which it runs.

Called through libc: namespaces (no network, no other process to see), a root directory in which only Python
and the system's libraries are there, to read only, and a user whom nobody else is. `tried` tells what holds.
"""

import ctypes
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

LARGEST_FILE = 2**24
PROCESSES = 64
SCRATCH = "/scratch"  # where it runs and may write, behind walls: a file system in memory
SYSTEM = (
    "/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/fonts",
    "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/proc",
)  # fmt: skip
NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
READ_ONLY, NO_SETUID, BIND, RECURSIVE, PRIVATE, DETACH = 1, 2, 0x1000, 0x4000, 0x40000, 2  # of mount
DUMPABLE, SUBREAPER, NO_NEW_PRIVILEGES = 4, 36, 38  # of prctl
MOUNT_SETATTR, HERE, ALL_BELOW = 442, -100, 0x8000


def call(name: str, *arguments: object) -> int:
    """A function of libc; OSError where it fails, AttributeError where the system has none."""
    result = int(getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def apart(owner: int, folder: str, needed: Sequence[str], hidden: Sequence[str]) -> None:
    """Leave for a root in which only what is needed can be seen, to read only; an error where nobody may.

    `folder` is empty and becomes the root; the mounts are seen by this process and its children alone. There
    is no network; the next child is process 1 of its own, and `owner` has a folder in memory to write to.
    """
    uid, gid, rooms = os.geteuid(), os.getegid(), NEWNS | NEWIPC | NEWPID | NEWNET
    try:
        call("unshare", rooms)
    except OSError:  # not root: where the system lets users have a namespace of users
        call("unshare", rooms | NEWUSER)
        maps = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
        for name, text in maps.items():
            Path("/proc/self", name).write_text(text, encoding="ascii")
    call("mount", b"none", b"/", None, RECURSIVE | PRIVATE, None)
    call("mount", b"none", os.fsencode(folder), b"tmpfs", NO_SETUID, b"size=1m,mode=755")
    _furnish(folder, needed, hidden)
    os.chdir(folder)
    call("pivot_root", b".", b".")
    call("umount2", b".", DETACH)
    options = f"size=64m,nr_inodes=4k,mode=700,uid={owner}".encode()
    call("mount", b"none", SCRATCH.encode(), b"tmpfs", NO_SETUID, options)
    os.environ.update(dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR", "IPYTHONDIR"), SCRATCH))
    os.chdir(SCRATCH)


def _furnish(root: str, needed: Sequence[str], hidden: Sequence[str]) -> None:
    """Everything that is needed in its place below a new root, and nothing in the place of what is hidden."""
    paths = {place for path in (*SYSTEM, *needed) for place in (path, os.path.realpath(path))}
    for path in sorted(paths, key=lambda path: (path != os.path.realpath(path), path)):
        place = root + path
        if os.path.lexists(place) or not os.path.lexists(path):  # it lies in another that is there
            continue
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), place)
            continue
        os.mkdir(place) if os.path.isdir(path) else os.close(os.open(place, os.O_CREAT))
        call("mount", os.fsencode(path), os.fsencode(place), None, BIND | RECURSIVE, None)
    os.makedirs(root + SCRATCH, exist_ok=True)
    if not os.path.lexists(root + "/tmp"):  # it is there where Python itself lies below it
        os.symlink(SCRATCH, root + "/tmp")
    for path in hidden:
        if os.path.isdir(root + path):
            call("mount", b"none", os.fsencode(root + path), b"tmpfs", 0, b"size=4k,mode=755")
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY | NO_SETUID, 0, 0, 0)
    arguments = (HERE, os.fsencode(root), ALL_BELOW, ctypes.byref(attributes), 32)
    call("syscall", ctypes.c_long(MOUNT_SETATTR), *arguments)


def own_processes() -> None:
    """As the first process behind walls: a /proc that shows those below it, or none."""
    try:
        call("mount", b"proc", b"/proc", b"proc", 0, None)
    except OSError:
        call("mount", b"none", b"/proc", b"tmpfs", 0, b"size=4k,mode=555")


def adopt() -> None:
    """Be the parent of what one's children leave behind, where the system has that."""
    with suppress(OSError, AttributeError):
        call("prctl", SUBREAPER, 1, 0, 0, 0)


def become(user: int) -> None:
    """Give every privilege up, for good. As root: become a user whom nobody else is."""
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    call("prctl", DUMPABLE, 1, 0, 0, 0)


def tried(*acts: Callable[[], object]) -> bool:
    """Whether a child can do this, one after the other."""
    pid = os.fork()
    if pid == 0:
        try:
            for act in acts:
                act()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def limit(cpu: float, megabytes: int, processes: int) -> None:
    """The system's own limits, where it has them. Memory is counted by process."""
    import resource  # not on Windows, where this is never called

    wanted = {"AS": megabytes * 2**20, "FSIZE": LARGEST_FILE, "CPU": max(round(cpu), 1)}
    for name, most in {**wanted, "NOFILE": 256, "CORE": 0, "NPROC": processes}.items():
        with suppress(ValueError, OSError, AttributeError):  # a system that has the limit by name only
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def end(child: int) -> None:
    """End a child, its group and, where the system tells, all that they have left to us."""
    for kill in (os.kill, os.killpg):
        with suppress(OSError):
            kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):  # nobody is left
        while below := _told(f"/proc/self/task/{os.getpid()}/children").split():
            for pid in below:
                with suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)
            os.waitpid(-1, 0)
        os.waitpid(child, 0)  # where the system does not tell


def threads_of_the_system() -> int:
    """How many there are: no more of them can count for a user; 0 where the system does not say."""
    return int(_told("/proc/loadavg").strip().rpartition("/")[2].partition(" ")[0] or 0)


def _told(path: str) -> str:
    """What the system says in a file; "" where it has none."""
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""
