"""The sandbox: limits on one process, and on Linux a root directory in which only Python can be seen.

Called through libc: namespaces (no network, no view of other processes), a read-only root directory that
contains Python and the system's libraries, and a user that owns nothing. `works` finds out what the system
allows.
"""

import ctypes
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

MAX_FILE_BYTES = 2**24
MAX_PROCESSES = 64
SCRATCH = "/scratch"  # the working directory in the sandbox: a file system in memory
SYSTEM = (
    "/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/fonts",
    "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/proc",
)  # fmt: skip
NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
READ_ONLY, NO_SETUID, BIND, RECURSIVE, PRIVATE, DETACH = 1, 2, 0x1000, 0x4000, 0x40000, 2  # of mount
DUMPABLE, SUBREAPER, NO_NEW_PRIVILEGES = 4, 36, 38  # of prctl
MOUNT_SETATTR, HERE, ALL_BELOW = 442, -100, 0x8000


def call(name: str, *arguments: object) -> int:
    """Call a function of libc. Raises OSError if it fails, AttributeError if the system does not have it."""
    result = int(getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def works(*steps: Callable[[], object]) -> bool:
    """Return whether a child process can take these steps one after the other."""
    pid = os.fork()
    if pid == 0:
        try:
            for step in steps:
                step()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


# --- a root directory of its own ------------------------------------------------------------------


def enter_sandbox(owner: int, root: str, needed: Sequence[str], hidden: Sequence[str]) -> None:
    """Enter a read-only root directory that contains only the system's libraries and the paths in `needed`.

    `root` is an empty directory. Only this process and its children see the mounts. They have no network, the
    next child is process 1 in its own namespace, and the user `owner` can write to a directory in memory.
    Raises OSError if the system does not allow it.
    """
    _unshare_namespaces()
    call("mount", b"none", b"/", None, RECURSIVE | PRIVATE, None)
    call("mount", b"none", os.fsencode(root), b"tmpfs", NO_SETUID, b"size=1m,mode=755")
    bind_mounts(root, needed)
    cover(root, hidden)
    make_read_only(root)
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", DETACH)
    options = f"size=64m,nr_inodes=4k,mode=700,uid={owner}".encode()
    call("mount", b"none", SCRATCH.encode(), b"tmpfs", NO_SETUID, options)
    os.environ.update(dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR", "IPYTHONDIR"), SCRATCH))
    os.chdir(SCRATCH)


def _unshare_namespaces() -> None:
    """Leave the system's namespaces; without root's privileges, by a user namespace if users may have one."""
    uid, gid = os.geteuid(), os.getegid()
    namespaces = NEWNS | NEWIPC | NEWPID | NEWNET
    try:
        call("unshare", namespaces)
    except OSError:
        call("unshare", namespaces | NEWUSER)
        maps = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
        for name, text in maps.items():
            Path("/proc/self", name).write_text(text, encoding="ascii")


def bind_mounts(root: str, needed: Sequence[str]) -> None:
    """Mount the system's libraries and the needed paths at the same places below `root`."""
    paths = {place for path in (*SYSTEM, *needed) for place in (path, os.path.realpath(path))}
    for path in sorted(paths, key=lambda path: (path != os.path.realpath(path), path)):
        place = root + path
        is_below_another = os.path.lexists(place)
        if is_below_another or not os.path.lexists(path):
            continue
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), place)
            continue
        if os.path.isdir(path):
            os.mkdir(place)
        else:
            os.close(os.open(place, os.O_CREAT))
        call("mount", os.fsencode(path), os.fsencode(place), None, BIND | RECURSIVE, None)
    os.makedirs(root + SCRATCH, exist_ok=True)
    if not os.path.lexists(root + "/tmp"):  # it is there if Python itself is below it
        os.symlink(SCRATCH, root + "/tmp")


def cover(root: str, hidden: Sequence[str]) -> None:
    """Mount an empty directory over each of the hidden directories below `root`."""
    for path in hidden:
        if os.path.isdir(root + path):
            call("mount", b"none", os.fsencode(root + path), b"tmpfs", 0, b"size=4k,mode=755")


def make_read_only(root: str) -> None:
    """Make `root` and every mount below it read-only."""
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY | NO_SETUID, 0, 0, 0)
    arguments = (HERE, os.fsencode(root), ALL_BELOW, ctypes.byref(attributes), 32)
    call("syscall", ctypes.c_long(MOUNT_SETATTR), *arguments)


def mount_own_proc() -> None:
    """As process 1 of the sandbox: mount a /proc that shows only the processes in it, or an empty one."""
    try:
        call("mount", b"proc", b"/proc", b"proc", 0, None)
    except OSError:
        call("mount", b"none", b"/proc", b"tmpfs", 0, b"size=4k,mode=555")


# --- privileges, limits, processes ----------------------------------------------------------------


def drop_privileges(user: int) -> None:
    """Give up every privilege for good. As root, become `user`, which owns nothing."""
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    call("capset", ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))
    call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    call("prctl", DUMPABLE, 1, 0, 0, 0)


def limit_resources(cpu: float, megabytes: int, processes: int) -> None:
    """Set the limits of the system, as far as it has them. Memory is counted for each process."""
    import resource  # not on Windows, where this is never called

    limits = {
        "AS": megabytes * 2**20,
        "FSIZE": MAX_FILE_BYTES,
        "CPU": max(round(cpu), 1),
        "NOFILE": 256,
        "CORE": 0,
        "NPROC": processes,
    }
    for name, most in limits.items():
        with suppress(ValueError, OSError, AttributeError):  # some systems only have the name of a limit
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (most, most))


def set_subreaper() -> None:
    """Become the parent of the processes that one's children leave behind, if the system can do that."""
    with suppress(OSError, AttributeError):
        call("prctl", SUBREAPER, 1, 0, 0, 0)


def kill_all(child: int) -> None:
    """Kill a child, its process group and, if the system lists them, all processes that they have left."""
    for kill in (os.kill, os.killpg):
        with suppress(OSError):
            kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):  # no child is left
        while children := _read_proc(f"/proc/self/task/{os.getpid()}/children").split():
            for pid in children:
                with suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)
            os.waitpid(-1, 0)
        os.waitpid(child, 0)  # on a system that does not list them


def count_threads() -> int:
    """Return the number of threads on this system, 0 if it does not report it."""
    return int(_read_proc("/proc/loadavg").strip().rpartition("/")[2].partition(" ")[0] or 0)


def _read_proc(path: str) -> str:
    """Return the text of a file in /proc, "" if there is none."""
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""
