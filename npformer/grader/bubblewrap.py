"""Start the worker in a sandbox that the program bubblewrap (`bwrap`) makes.

In the sandbox, a submission has no network and sees no other processes. Its root directory has only Python,
the packages and the system's libraries, all read-only. Its working directory is in memory and has a size
limit.
bubblewrap is a small program that Flatpak uses too. It needs no privileges where the system allows user
namespaces.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

WORKING_DIRECTORY = "/tmp"  # in the sandbox; a file system in memory
WORKING_BYTES = 2**26
PACKAGE_DIRECTORY = "/run/npformer"  # in the sandbox; the parent directory of the package `worker`
FIRST_USER = 2**30  # the first user number for workers; the system's own users have smaller numbers
PROBE_SECONDS = 60.0  # the time limit of the command that tests the sandbox
PROBLEM_LENGTH = 150
SYSTEM_PATHS = (  # the paths that Python and its libraries need
    "/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/etc/fonts",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
NAMESPACES = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
OWN_USER = (
    "--unshare-user",
    "--disable-userns",
)  # a user namespace in which no further user namespace can be made
ENDS_TOGETHER = ("--die-with-parent", "--new-session")


class Protection(NamedTuple):
    """How workers are started on this system, and which protections are missing."""

    has_sandbox: bool
    has_own_users: bool  # each worker runs as a separate user, who owns nothing
    missing: tuple[str, ...] = ()
    problem: str = ""  # why there is no sandbox, or ""


class Contents(NamedTuple):
    """The directories of the computer that the sandbox shows and hides."""

    package: str  # the package `worker`
    home: str  # the directory with the empty module npformer.py
    needed: tuple[str, ...]  # Python and the packages
    hidden: tuple[str, ...]  # directories that are hidden if they are inside a needed directory


def get_own_user() -> int:
    """Return the number of the user for the workers of this process.

    A grading process has one worker at a time. So no two workers have the same user at the same time.
    """
    return FIRST_USER + os.getpid()


def find_protection(contents: Contents) -> Protection:
    """Try the sandbox. Return how workers can be started, and the protections that are missing."""
    is_root = os.geteuid() == 0
    problem = _find_problem(contents)
    if not problem:
        return Protection(has_sandbox=True, has_own_users=is_root)
    has_own_users = is_root and _can_read_python()
    missing = ["files", "network"]
    if not has_own_users:
        missing.append("signals")
    is_root_in_worker = is_root and not has_own_users
    if is_root_in_worker:  # The kernel does not limit the number of root's processes.
        missing.append("processes")
    if sys.platform != "linux":
        missing.append("memory")
    return Protection(False, has_own_users, tuple(sorted(missing)), problem)


def _find_problem(contents: Contents) -> str:
    """Return why bubblewrap cannot make the sandbox, or "" if it can."""
    if shutil.which("bwrap") is None:
        return "bubblewrap (bwrap) is not installed"
    command = [
        *make_command(contents, is_root=os.geteuid() == 0),
        sys.executable,
        "-P",
        "-c",
        "import encodings",
    ]
    try:
        result = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=PROBE_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work: {error}"
    if result.returncode == 0:
        return ""
    reason = " ".join(result.stderr.decode("utf-8", "replace").split())[:PROBLEM_LENGTH]
    return f"bubblewrap does not work: {reason}"


def _can_read_python() -> bool:
    """Return whether a user who owns nothing can start Python and import NumPy."""
    user = get_own_user()
    try:
        result = subprocess.run(
            [sys.executable, "-c", "import numpy"],
            capture_output=True,
            cwd="/",
            user=user,
            group=user,
            extra_groups=(),
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return result.returncode == 0


# --- the command ----------------------------------------------------------------------------------


def make_command(contents: Contents, is_root: bool) -> list[str]:
    """Return the beginning of the command that starts a program in the sandbox.

    Root mounts the directories, because perhaps only root can read them. Then `setpriv` changes to a user who
    owns nothing. This user starts bubblewrap again, which makes the user namespace.
    """
    mounts = _make_mounts(contents)
    if not is_root:
        return ["bwrap", *OWN_USER, *NAMESPACES, *ENDS_TOGETHER, *mounts]
    user = str(get_own_user())
    may_change_user = ("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID")
    change_user = ("setpriv", "--reuid", user, "--regid", user, "--clear-groups")
    inner = ("bwrap", *OWN_USER, "--dev-bind", "/", "/", "--chdir", WORKING_DIRECTORY)
    return ["bwrap", *NAMESPACES, *ENDS_TOGETHER, *may_change_user, *mounts, *change_user, *inner]


def _make_mounts(contents: Contents) -> list[str]:
    """Return the options for the root directory. The order matters: a mount hides earlier mounts below it."""
    shown = _leave_out_nested(
        path for given in (*SYSTEM_PATHS, *contents.needed) for path in _name_twice(given)
    )
    package = f"{PACKAGE_DIRECTORY}/worker"
    module = f"{PACKAGE_DIRECTORY}/hidden/npformer.py"
    options = ["--perms", "1777", "--size", str(WORKING_BYTES), "--tmpfs", WORKING_DIRECTORY]
    for directory in _list_parents((*shown, *DEVICES, package, module)):
        options += ["--perms", "0755", "--dir", directory]
    for path in shown:
        options += ["--ro-bind-try", path, path]
    for path in DEVICES:
        options += ["--dev-bind-try", path, path]
    for path in contents.hidden:
        is_shown = any(Path(path).is_relative_to(directory) for directory in shown)
        if is_shown and os.path.isdir(path):
            options += ["--perms", "0755", "--tmpfs", path, "--remount-ro", path]
    options += ["--ro-bind", contents.package, package]
    options += ["--ro-bind", f"{contents.home}/npformer.py", module]
    options += ["--proc", "/proc", "--remount-ro", "/", "--chdir", WORKING_DIRECTORY]
    return options


def _name_twice(path: str) -> tuple[str, str]:
    """Return a path as given, and without symbolic links. Python uses both."""
    return path, os.path.realpath(path)


def _leave_out_nested(paths: Iterable[str]) -> list[str]:
    """Return the paths, sorted, without those that are inside another path of the list."""
    shown: list[str] = []
    for path in sorted(set(paths)):
        is_nested = any(Path(path).is_relative_to(other) for other in shown)
        if not is_nested:
            shown.append(path)
    return shown


def _list_parents(paths: Sequence[str]) -> list[str]:
    """Return all parent directories of the paths, except / and the working directory. Parents come first."""
    parents = {str(parent) for path in paths for parent in Path(path).parents}
    return sorted(parents - {"/", WORKING_DIRECTORY})
