"""The sandbox, which protects the teacher's computer and the correct answers from the code of submissions.

The limits on memory, CPU time, files and processes exist on every system with `fork`. On Linux, this module
also uses namespaces and drops privileges, through libc. A submission then runs:

- without a network, so it cannot send data out or get help from other computers;
- without access to other processes, so it can neither read their memory nor end them;
- in a read-only root directory with only Python and the system's libraries, so it cannot read the teacher's
  files or change any file;
- as a user without files or other processes, if the grader runs as root.

The function `works` tests whether the system offers a protection.
"""

import ctypes
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

MAX_FILE_BYTES = 2**24
MAX_PROCESSES = 64
MAX_OPEN_FILES = 256
SCRATCH = "/scratch"  # the working directory in the sandbox, which is a file system in memory
SYSTEM_PATHS = (  # the paths that Python and its libraries need
    "/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/fonts",
    "/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/proc",
)  # fmt: skip

# Constants of the Linux kernel. These flags of `unshare` choose the namespaces.
CLONE_NEWNS = 0x20000  # namespace for mounts
CLONE_NEWIPC = 0x8000000  # namespace for shared memory
CLONE_NEWUSER = 0x10000000  # namespace for users
CLONE_NEWPID = 0x20000000  # namespace for processes
CLONE_NEWNET = 0x40000000  # namespace for the network
# Flags of `mount` and `umount2`.
MS_RDONLY = 1
MS_NOSUID = 2
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x40000
MNT_DETACH = 2
# The number of the system call mount_setattr, and two arguments: start at the current directory, and
# include all mounts below.
SYS_MOUNT_SETATTR = 442
AT_FDCWD = -100
AT_RECURSIVE = 0x8000
# Options of `prctl`, and the version number that `capset` needs.
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
CAPABILITY_VERSION_3 = 0x20080522


def call(name: str, *arguments: object) -> int:
    """Call a libc function. Raises OSError if the call fails, AttributeError if the function is missing."""
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(getattr(libc, name)(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return result


def works(*steps: Callable[[], object]) -> bool:
    """Return whether a child process can run these steps one after the other."""
    pid = os.fork()
    if pid == 0:
        try:
            for step in steps:
                step()
            os._exit(0)
        finally:  # reached only if a step has raised an error
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


# --- the root directory ---------------------------------------------------------------------------


def enter_sandbox(owner: int, root: str, needed: Sequence[str], hidden: Sequence[str]) -> None:
    """Enter a read-only root directory that contains only the system's libraries and the paths in `needed`.

    A submission in the sandbox cannot read the teacher's files or other submissions. It cannot change
    files of the computer, and it has no network.

    `root` is an empty directory. The mounts exist only for this process and its children. The next child is
    process 1 of a new process namespace. When process 1 ends, all processes in the namespace end. The user
    `owner` can write into one directory, which is in memory. Raises OSError if the system does not allow a
    sandbox.
    """
    _unshare_namespaces()
    # Make all mounts private, so that no other process sees the mounts that follow.
    call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    call("mount", b"none", os.fsencode(root), b"tmpfs", MS_NOSUID, b"size=1m,mode=755")
    bind_mounts(root, needed)
    cover_directories(root, hidden)
    make_read_only(root)
    os.chdir(root)
    call("pivot_root", b".", b".")
    call("umount2", b".", MNT_DETACH)  # Remove the old root directory.
    options = f"size=64m,nr_inodes=4k,mode=700,uid={owner}".encode()
    call("mount", b"none", SCRATCH.encode(), b"tmpfs", MS_NOSUID, options)
    os.environ.update(dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR", "IPYTHONDIR"), SCRATCH))
    os.chdir(SCRATCH)


def _unshare_namespaces() -> None:
    """Leave the system's namespaces for mounts, processes, the network and shared memory.

    Only root may do this directly. Any other user first needs a user namespace, if the system allows it.
    """
    uid, gid = os.geteuid(), os.getegid()
    namespaces = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
    try:
        call("unshare", namespaces)
    except OSError:
        call("unshare", namespaces | CLONE_NEWUSER)
        # "setgroups" comes first, because the kernel accepts `gid_map` only after "deny".
        maps = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
        for name, text in maps.items():
            Path("/proc/self", name).write_text(text, encoding="ascii")


def bind_mounts(root: str, needed: Sequence[str]) -> None:
    """Mount the system's libraries and the needed paths below `root`, under the same paths."""
    paths = {path for given in (*SYSTEM_PATHS, *needed) for path in (given, os.path.realpath(given))}
    for path in sorted(paths, key=_get_mount_order):
        target = root + path
        is_below_another = os.path.lexists(target)
        if is_below_another or not os.path.lexists(path):
            continue
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), target)
            continue
        if os.path.isdir(path):
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT))
        call("mount", os.fsencode(path), os.fsencode(target), None, MS_BIND | MS_REC, None)
    os.makedirs(root + SCRATCH, exist_ok=True)
    if not os.path.lexists(root + "/tmp"):  # Python itself may be below /tmp.
        os.symlink(SCRATCH, root + "/tmp")


def _get_mount_order(path: str) -> tuple[bool, str]:
    """Return the key for sorting the mounts: links come last, and a directory comes before its contents."""
    is_link_on_the_way = path != os.path.realpath(path)
    return is_link_on_the_way, path


def cover_directories(root: str, hidden: Sequence[str]) -> None:
    """Mount an empty directory over each hidden directory below `root`.

    A hidden directory can be inside a needed directory. For example, npformer with the correct answers is in
    site-packages.
    """
    for path in hidden:
        if os.path.isdir(root + path):
            call("mount", b"none", os.fsencode(root + path), b"tmpfs", 0, b"size=4k,mode=755")


def make_read_only(root: str) -> None:
    """Make `root` and every mount below `root` read-only, and disable the setuid bits of programs there."""
    attributes = (ctypes.c_uint64 * 4)(MS_RDONLY | MS_NOSUID, 0, 0, 0)
    size = ctypes.sizeof(attributes)
    arguments = (AT_FDCWD, os.fsencode(root), AT_RECURSIVE, ctypes.byref(attributes), size)
    call("syscall", ctypes.c_long(SYS_MOUNT_SETATTR), *arguments)


def mount_own_proc() -> None:
    """Mount a /proc with only the processes in the sandbox, or an empty /proc if the system forbids this.

    Process 1 of the sandbox calls this function. The system's /proc would show the environments and command
    lines of the teacher's processes.
    """
    try:
        call("mount", b"proc", b"/proc", b"proc", 0, None)
    except OSError:
        call("mount", b"none", b"/proc", b"tmpfs", 0, b"size=4k,mode=555")


# --- privileges and limits ------------------------------------------------------------------------


def drop_privileges(user: int) -> None:
    """Give up every privilege for good, so that a submission cannot undo the sandbox.

    If `user` is not 0, the process continues as this user, who owns nothing. All kernel capabilities are
    given up too, and no program that the submission starts can gain capabilities.
    """
    if user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    no_capabilities = (ctypes.c_uint32 * 6)()
    call("capset", ctypes.byref(header), ctypes.byref(no_capabilities))
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    call("prctl", PR_SET_DUMPABLE, 1, 0, 0, 0)  # Otherwise the process cannot read /proc/self.


def limit_resources(cpu: float, megabytes: int, processes: int) -> None:
    """Limit CPU time, memory, files and processes, so that a submission cannot make the computer unusable.

    The system counts CPU time and memory per process, and processes per user. Limits that the system does not
    have are left out.
    """
    import resource  # imported here because Windows lacks the module

    limits = {
        "AS": megabytes * 2**20,
        "FSIZE": MAX_FILE_BYTES,
        "CPU": max(round(cpu), 1),
        "NOFILE": MAX_OPEN_FILES,
        "CORE": 0,
        "NPROC": processes,
    }
    for name, maximum in limits.items():
        with suppress(ValueError, OSError, AttributeError):  # Some systems define a limit but reject it.
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (maximum, maximum))


# --- processes ------------------------------------------------------------------------------------


def set_subreaper() -> None:
    """Make this process the parent of every orphaned descendant, if the system allows this.

    A submission can start a process in a new session and end the parent of that process. Such an orphan would
    otherwise become a child of process 1 of the system, and `kill_descendants` would not find it.
    """
    with suppress(OSError, AttributeError):
        call("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants(child: int) -> None:
    """Kill a child, its process group and, if the system lists children, all further descendants."""
    for kill in (os.kill, os.killpg):
        with suppress(OSError):
            kill(child, signal.SIGKILL)
    with suppress(ChildProcessError):  # raised when no child is left
        while children := _list_children():
            for pid in children:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)  # The children of the ended process become children of this process.
        os.waitpid(child, 0)  # needed on a system that does not list children


def _list_children() -> list[int]:
    """Return the process ids of the children, or [] if the system does not list children."""
    return [int(pid) for pid in _read_proc(f"/proc/self/task/{os.getpid()}/children").split()]


def count_threads() -> int:
    """Return the number of threads on this system, or 0 if the system does not report the number."""
    # The text looks like "0.20 0.18 0.12 1/80 11206", which means 80 threads.
    threads = _read_proc("/proc/loadavg").strip().rpartition("/")[2].partition(" ")[0]
    return int(threads or 0)


def _read_proc(path: str) -> str:
    """Return the text of a file in /proc, or "" if the file does not exist."""
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError:
        return ""
