"""The grader on Windows, as far as another system can play it: without forks, and with jobs."""

import ctypes
import subprocess
import sys
import types

import pytest

from npformer.grader import shelter

# Everything that Python has on POSIX only and the grader could use is taken away before it is imported.
WITHOUT_POSIX = """
import os, signal, subprocess, sys, types
if os.name == "posix":
    subprocess.signal = types.SimpleNamespace(**vars(signal))  # it needs them to run at all, here
    gone = {
        os: "fork killpg setsid chown geteuid getegid getuid getgid setgroups setresuid setresgid mkfifo",
        signal: "SIGKILL SIGSTOP SIGCHLD SIGHUP set_wakeup_fd",
    }
    for module, names in gone.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    sys.modules.update(dict.fromkeys(("resource", "fcntl", "pwd", "grp", "termios")))
from npformer.grader import shelter
shelter.LINUX = False
from npformer.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_class_is_graded_without_what_posix_has(tmp_path):
    folder, out = tmp_path / "class", tmp_path / "out.csv"
    folder.mkdir()
    (folder / "ada.py").write_text("order_bag = 'b'\ndef softmax_forward(s): return s\n")
    (folder / "bea.py").write_text("order_bag = 'a'\n")
    command = [sys.executable, "-c", WITHOUT_POSIX, "check", str(folder / "ada.py")]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300)
    assert (result.returncode, result.stderr) == (1, "") and "1 right of 2 answered" in result.stdout
    command[3:] = ["grade", str(folder), "--csv", str(out), "--only=order.bag"]
    result = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=300)
    assert result.returncode == 0, result.stderr
    rows = out.read_text(encoding="utf-8").splitlines()[1:]
    assert [row.split(",")[3] for row in rows] == ["pass", "known_mistake"]


class Kernel:
    """kernel32 as far as a job needs it; what `fails` gives nothing."""

    def __init__(self, fails=""):
        self.fails, self.asked, self.limits = fails, [], None

    def __getattr__(self, name):
        def function(*arguments):
            self.asked.append((name, *arguments))
            if name == "SetInformationJobObject":
                self.limits = arguments[2]._obj
            return 0 if name == self.fails else 7

        self.__dict__[name] = function
        return function


def on_windows(monkeypatch, kernel):
    monkeypatch.setattr(ctypes, "WinDLL", lambda name, use_last_error: kernel, raising=False)


def test_a_job_holds_a_process_and_all_that_it_starts(monkeypatch):
    on_windows(monkeypatch, kernel := Kernel())
    shelter.join_a_job(shelter.Bounds(1.5, 10, 5))
    names = [call[0] for call in kernel.asked]
    assert names == [
        "CreateJobObjectW",
        "SetInformationJobObject",
        "GetCurrentProcess",
        "AssignProcessToJobObject",
    ]
    assert (kernel.asked[1][1].value, kernel.asked[1][2]) == (7, 9), "the job's limits, extended"
    if ctypes.sizeof(ctypes.c_void_p) == 8:
        assert kernel.asked[1][4] == 144, "what Windows calls its size"
        assert (shelter.Job.flags.offset, shelter.Job.processes.offset, shelter.Job.job_memory.offset) == (
            16, 40, 120
        )  # fmt: skip
    limits = kernel.limits
    assert (limits.process_time, limits.processes, limits.job_memory) == (35_000_000, 5, 10 * 2**20)
    assert limits.flags == 0x2000 | 0x8 | 0x200 | 0x2


@pytest.mark.parametrize("fails", ["CreateJobObjectW", "SetInformationJobObject", "AssignProcessToJobObject"])
def test_a_system_that_makes_no_job_is_no_error_of_ours(fails, monkeypatch):
    on_windows(monkeypatch, Kernel(fails))
    with pytest.raises(OSError, match="does not let us make a job"):
        shelter.join_a_job(shelter.Bounds(1.5, 10))
    monkeypatch.setitem(sys.modules, "resource", None)
    shelter.limit(shelter.Bounds(1.5, 10), True)


def test_elsewhere_there_are_no_jobs(monkeypatch):
    monkeypatch.setattr(shelter, "ctypes", types.SimpleNamespace())
    with pytest.raises(OSError, match="has no jobs"):
        shelter.join_a_job(shelter.Bounds(1.5, 10))


@pytest.mark.skipif(sys.platform != "win32", reason="asks Windows itself")
def test_windows_ends_what_a_process_of_a_job_has_started(tmp_path):
    """The grandchild would write a file, were it still there."""
    late = f"import time; time.sleep(5); open({str(tmp_path / 'late')!r}, 'w')"
    program = (
        "import subprocess, sys\n"
        "from npformer.grader import shelter\n"
        "shelter.join_a_job(shelter.Bounds(60, 2048))\n"
        f"subprocess.Popen([sys.executable, '-c', {late!r}])\n"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([sys.executable, "-c", "import time; time.sleep(60)"], timeout=8)
    assert not (tmp_path / "late").exists()
