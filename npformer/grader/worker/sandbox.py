"""Resource limits and options of Linux that a process sets for itself.

bubblewrap makes the sandbox (module `bubblewrap`). The worker adds these limits before it runs a submission.
"""

import ctypes
import signal
from contextlib import suppress

MAX_FILE_BYTES = 2**24
MAX_PROCESSES = 64
MAX_OPEN_FILES = 256

# Options of `prctl`, from the header linux/prctl.h.
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38


def set_process_option(option: int, value: int) -> None:
    """Call `prctl` of Linux. Other systems do not have this function, so nothing happens there."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def protect_memory() -> None:
    """Forbid other processes of the same user to read or write the memory of this process."""
    set_process_option(PR_SET_DUMPABLE, 0)


def end_with_parent(number: int = signal.SIGKILL) -> None:
    """Let the kernel send this signal to this process when its parent ends, even if the parent was killed."""
    set_process_option(PR_SET_PDEATHSIG, number)


def adopt_orphans(is_on: bool) -> None:
    """Set whether this process becomes the parent of every orphaned descendant.

    A submission can start a process in a new session and end the parent of that process. Such an orphan would
    otherwise become a child of process 1 of the system, and the grading process would not find it.
    """
    set_process_option(PR_SET_CHILD_SUBREAPER, int(is_on))


def forbid_privileges() -> None:
    """Forbid programs with a setuid bit, such as `sudo`, to give this process the rights of another user."""
    set_process_option(PR_SET_NO_NEW_PRIVS, 1)


def limit_resources(cpu: float, megabytes: int, processes: int) -> None:
    """Limit CPU time, memory, files and processes of this process and its children.

    The kernel counts CPU time and memory per process, and processes per user. The CPU time that this process
    has used already does not count. Limits that the system does not have are left out.
    """
    import resource  # imported here because Windows lacks the module

    usage = resource.getrusage(resource.RUSAGE_SELF)
    limits = {
        "AS": megabytes * 2**20,
        "FSIZE": MAX_FILE_BYTES,
        "CPU": max(round(cpu + usage.ru_utime + usage.ru_stime), 1),
        "NOFILE": MAX_OPEN_FILES,
        "CORE": 0,
        "NPROC": processes,
    }
    for name, maximum in limits.items():
        with suppress(ValueError, OSError, AttributeError):  # Some systems define a limit but reject it.
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (maximum, maximum))
