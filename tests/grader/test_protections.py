"""Tests of the table of protections in notebooks/guide/grading.md: one test per row and column.

A column is a way to run the grader: with or without bubblewrap, as root or as an ordinary user. Each column is
one run, in a separate process. The columns of root are slow tests. One submission tries everything that a
submission must not be able to do. Instead of a student's name, it reports the attempts that succeeded.
"""

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import zipfile
from multiprocessing.connection import Pipe
from pathlib import Path

import pytest
from class_files import make_submission, write_text

import npformer.functional
from npformer import cli
from npformer.grader import bubblewrap, grade_commands, grading_process, supervisor, worker_process
from npformer.grader.bubblewrap import Protection
from npformer.grader.companions import Companions
from npformer.grader.grading_process import find_system_protection
from npformer.grader.submissions import find_students, find_submissions, skip_surplus_files
from npformer.grader.worker import sandbox

PROBE = """
import os, socket
done = []
def attempt(name, function):
    try:
        function()
        done.append(name)
    except Exception:
        pass
def read_memory_of_grader():
    parent = os.getppid()
    assert open(f"/proc/{parent}/comm").read().startswith("python")  # and not bubblewrap, which has no secrets
    open(f"/proc/{parent}/mem", "r+b").close()
def read_own_class():
    from npformer.exercises.bank import bank
    bank()["pe.table"]
def import_from_disk():
    import sys
    sys.meta_path[:] = [finder for finder in sys.meta_path if "Fake" not in type(finder).__name__]
    sys.path.insert(0, os.path.dirname(os.path.dirname("@bank@")))
    sys.modules.pop("npformer", None)
    from npformer.positional import positional_encoding
    positional_encoding(2, 4)  # because an import alone does not fail in a function
attempt("network", lambda: socket.create_connection(("127.0.0.1", @port@), 60))
attempt("read", lambda: open("@secret@").read())
attempt("write", lambda: open("@folder@/written", "w").close())
attempt("token", lambda: os.environ["SECRET_TOKEN"])
attempt("others", lambda: open("/proc/@pid@/environ", "rb").read(1))
attempt("signal", lambda: os.kill(@pid@, 0))
attempt("import", read_own_class)
attempt("disk", lambda: open("@bank@").read())
attempt("path", import_from_disk)
attempt("memory", read_memory_of_grader)
student = " ".join(["tried", *done])
"""
# The loop and the wait are one statement. Otherwise the wait would begin after an error in the loop.
MANY_PROCESSES = """
import os, signal
def start():
    for _ in range(300):
        if os.fork() == 0:
            signal.pause()
    signal.pause()
start()
"""
MUCH_MEMORY = """
import os, signal
for _ in range(4):
    if os.fork() == 0:
        kept = b"x" * (150 * 2**20)
        signal.pause()
signal.pause()
"""
LEAVES_PROCESS = """
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp(sys.executable, [sys.executable, "-c", "import signal; signal.pause()", "@mark@"])
    os._exit(0)
os.wait()
order_bag = "b"
"""
RUNS_LONG = "while True: pass"
TOO_MUCH_MEMORY = "The processes of the code together used more than 400 MB of memory."
# The program of each column grades the files like a grading process, and prints the results as JSON. The
# bystander is another process of the teacher. Only the file `cpu.py` can reach a limit of time.
PROGRAM = """
import json, subprocess, sys, tempfile
from pathlib import Path
from npformer.grader.grading_process import Limits, SubmissionGrader
from npformer.grader.worker.sandbox import protect_memory
folder = Path(sys.argv[1])
bystander = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
probe = folder / "probe.py"
probe.write_text(probe.read_text().replace("@pid@", str(bystander.pid)))
results = {}
others = Limits(seconds=600, hidden=str(folder))
limits = {"cpu.py": others._replace(seconds=1, wall=600), "memory.py": others._replace(megabytes=400)}
protect_memory()
with tempfile.TemporaryDirectory() as home:
    Path(home).chmod(0o755)
    with SubmissionGrader(home, others) as grader:
        for path in sorted(folder.iterdir()):
            grader.limits = limits.get(path.name, others)
            (row,) = grader.grade(path.name, path.read_bytes(), ["order.bag"])
            results[path.stem] = [row.student, row.status, row.evidence]
bystander.kill()
bystander.wait()
print(json.dumps([grader.missing_protections, results]))
"""
USER = ["unshare", "-U", "--map-user=1000", "--map-group=1000"]
IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0
CAN_BE_USER = not IS_ROOT or (
    shutil.which("unshare") and not subprocess.run([*USER, "true"], capture_output=True).returncode
)
COLUMNS = ("bubblewrap, root", "bubblewrap, user", "no sandbox, root", "no sandbox, user")


def make_path_without_bubblewrap(folder):
    """Return a folder for PATH that has the programs of the grader, but not bubblewrap."""
    folder.mkdir()
    for program in ("sh", "chmod", "rm"):
        (folder / program).symlink_to(shutil.which(program))
    return str(folder)


def skip_if_impossible(column):
    """Skip the test if this system cannot grade in this way."""
    is_root = column.endswith("root")
    if sys.platform != "linux":
        pytest.skip("the columns are for Linux")
    if is_root and not IS_ROOT:
        pytest.skip("the tests do not run as root")
    if not is_root and not CAN_BE_USER:
        pytest.skip("unshare cannot start a process as an ordinary user")
    if column in IN_SANDBOX and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")


def write_column_files(top, port):
    """Write the submissions, and the files that they must not reach. Return the folder of the submissions."""
    folder = top / "class"
    folder.mkdir()
    (top / "secret").write_text("secret")
    (top / "teacher").mkdir()
    values = {"port": port, "secret": top / "secret", "folder": top / "teacher", "mark": top}
    values["bank"] = npformer.functional.__file__
    texts = {
        "probe": PROBE,
        "processes": MANY_PROCESSES,
        "memory": MUCH_MEMORY,
        "leaves": LEAVES_PROCESS,
        "cpu": RUNS_LONG,
    }
    for name, text in texts.items():
        for key, value in values.items():
            text = text.replace(f"@{key}@", str(value))
        (folder / f"{name}.py").write_text(text)
    return folder


def grade_column(column, top):
    """Grade the submissions in one column. Return the missing protections, and the results by file."""
    environment = os.environ | {"SECRET_TOKEN": "token"}
    if column not in IN_SANDBOX:
        environment["PATH"] = make_path_without_bubblewrap(top / "bin")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        folder = write_column_files(top, listener.getsockname()[1])
        command = [sys.executable, "-c", PROGRAM, str(folder)]
        if IS_ROOT and not column.endswith("root"):
            command = [str(shutil.which("unshare")), *USER[1:], *command]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=1200)
    assert result.returncode == 0, result.stderr
    missing, results = json.loads(result.stdout)
    if column in IN_SANDBOX and missing:
        pytest.skip("bubblewrap does not work here, because the system forbids namespaces")
    return missing, results


ALWAYS = set(COLUMNS)
IN_SANDBOX = {"bubblewrap, root", "bubblewrap, user"}
ROWS = {  # for each row of the table: what the probe tries, and the columns that prevent it
    "verdict in memory": ("memory", ALWAYS - {"no sandbox, root"}),
    "import of answers": ("import", ALWAYS),
    "answers on the disk": ("disk", IN_SANDBOX),
    "import of answers from the disk": ("path", IN_SANDBOX),
    "network": ("network", IN_SANDBOX),
    "writes": ("write", IN_SANDBOX),
    "reads": ("read", IN_SANDBOX),
    "signals": ("signal", IN_SANDBOX),
    "tokens": ("token", ALWAYS),
    "tokens of other processes": ("others", IN_SANDBOX),
}


@pytest.mark.parametrize(
    "column", [pytest.param(name, marks=pytest.mark.slow if "root" in name else []) for name in COLUMNS]
)
def test_sandbox_keeps_what_the_table_says(column, tmp_path):
    """One run per column, because each run starts several processes."""
    skip_if_impossible(column)
    missing, results = grade_column(column, tmp_path)
    check_attempts(column, *results["probe"])
    check_limits(results)
    check_ended(results, tmp_path)
    assert (missing == []) == (column in IN_SANDBOX)
    assert column in IN_SANDBOX or {"files", "network"} <= set(missing)


def check_attempts(column, student, status, evidence):
    """Check what the probe could do. For root without a sandbox, more may be prevented than the table says."""
    assert student.startswith("tried"), evidence
    may_be_protected = column == "no sandbox, root"
    prevented, expected = {}, {}
    for row, (attempt, protected) in ROWS.items():
        if column in protected or not may_be_protected:
            prevented[row] = attempt not in student.split()
            expected[row] = column in protected
    assert prevented == expected


def check_limits(results):
    """Check the limits of memory, CPU time and processes.

    Either the kernel stops the start of processes with an error, or the grading process ends the submission.
    """
    assert results["memory"][2] == TOO_MUCH_MEMORY
    assert results["cpu"][2] == "The code was still running after 1 second."
    evidence = results["processes"][2]
    assert "more than 64 processes" in evidence or "BlockingIOError" in evidence


def check_ended(results, top):
    """Check that the process in another session has ended too."""
    assert results["leaves"][1] == "pass"
    command_lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in command_lines if line.endswith(os.fsencode(top) + b"\0")]


# --- the supervisor --------------------------------------------------------------------------------

STOPS_GRADER = """
import os, signal
os.kill(os.getppid(), signal.SIGSTOP)
"""


def test_supervisor_kills_a_stopped_grading_process(tmp_path, monkeypatch):
    """Without a sandbox, a submission can stop the process that grades it. The next file is graded as usual."""
    monkeypatch.setenv("PATH", make_path_without_bubblewrap(tmp_path / "bin"))
    if IS_ROOT and "signals" not in find_missing():
        pytest.skip("here, root's submissions run as a user who cannot stop the process")
    monkeypatch.setattr(supervisor, "get_longest_time", lambda limits, count: 5.0)
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "a.py").write_text(STOPS_GRADER)
    (report,) = supervisor.iter_reports(
        find_submissions(tmp_path / "class"), ["order.bag"], grading_process.Limits(), 1, {}
    )
    assert report[3][0].evidence == supervisor.STUCK


def find_missing():
    """Return the protections that this system does not offer."""
    with tempfile.TemporaryDirectory() as home:
        with grading_process.SubmissionGrader(home, grading_process.Limits()) as grader:
            return grader.missing_protections


def test_remove_old_homes_leaves_active_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for name in ("npformer-dead", "npformer-active", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "npformer-dead" / "file").touch()
    (tmp_path / "npformer-link").symlink_to(tmp_path / "other")
    lock = supervisor._lock_directory(str(tmp_path / "npformer-active"))
    supervisor.remove_old_homes()
    os.close(lock)
    assert sorted(os.listdir(tmp_path)) == ["npformer-active", "npformer-link", "other"]


# --- how a worker is started -----------------------------------------------------------------------

RIGHT = b"order_bag = 'b'"
CONTENTS = bubblewrap.Contents("/worker", "/home", (sys.prefix,), ())


def make_bubblewrap(folder, text):
    """Write a program `bwrap` with this text, and return the folder for PATH."""
    path = make_path_without_bubblewrap(folder)
    (folder / "bwrap").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "bwrap").chmod(0o755)
    return path


ENDLESS = "exec sh -c 'while :; do :; done'"
PROBLEMS = {  # the text of a program `bwrap`, and the reported problem
    "echo 'bwrap: No permissions to create new namespace' >&2; exit 1": (
        "bubblewrap does not work: bwrap: No permissions to create new namespace"
    ),
    ENDLESS: "bubblewrap does not work: Command ",
}


@pytest.mark.parametrize(("text", "problem"), PROBLEMS.items())
def test_find_protection_names_the_problem(text, problem, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", make_bubblewrap(tmp_path / "bin", text))
    if text == ENDLESS:
        monkeypatch.setattr(bubblewrap, "PROBE_SECONDS", 1.0)
    monkeypatch.setattr(bubblewrap, "_can_read_python", lambda: False)
    protection = bubblewrap.find_protection(CONTENTS)
    assert protection.problem.startswith(problem) and not protection.has_sandbox
    assert {"files", "network", "signals"} <= set(protection.missing)


@pytest.mark.parametrize(
    ("user", "names"), [(0, "files, memory, network"), (7, "files, memory, network, signals")]
)
def test_find_protection_without_bubblewrap(user, names, tmp_path, monkeypatch):
    """Only Linux limits the memory. A separate user, which only root can choose, cannot send signals."""
    monkeypatch.setenv("PATH", make_path_without_bubblewrap(tmp_path / "bin"))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    monkeypatch.setattr(bubblewrap, "_can_read_python", lambda: True)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert ", ".join(bubblewrap.find_protection(CONTENTS).missing) == names


def test_find_system_protection_grades_nothing():
    protection = find_system_protection(grading_process.Limits())
    assert protection.has_sandbox == (protection.problem == "")


def test_can_read_python_without_python(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent")
    assert not bubblewrap._can_read_python()


@pytest.mark.skipif(not IS_ROOT, reason="only root can choose the user of a process")
def test_can_read_python_starts_it(monkeypatch):
    monkeypatch.setattr(bubblewrap, "get_own_user", lambda: 0)
    assert bubblewrap._can_read_python()


def test_make_command_changes_the_user_only_for_root():
    assert "setpriv" in bubblewrap.make_command(CONTENTS, is_root=True)
    assert "setpriv" not in bubblewrap.make_command(CONTENTS, is_root=False)


@pytest.mark.parametrize(
    "has_own_users", [False, pytest.param(True, marks=pytest.mark.skipif(not IS_ROOT, reason="needs root"))]
)
def test_grade_without_sandbox_leaves_no_directory(has_own_users, tmp_path, monkeypatch):
    monkeypatch.setattr(grading_process, "find_protection", lambda contents: Protection(False, has_own_users))
    monkeypatch.setattr(worker_process, "get_own_user", os.getuid)
    with grading_process.SubmissionGrader(str(tmp_path), grading_process.Limits()) as grader:
        assert grader.grade("a.py", RIGHT, ["order.bag"])[0].status == "pass"
    assert os.listdir(tmp_path) == ["npformer.py"]


def test_grade_ends_too_many_processes(tmp_path, monkeypatch):
    """The kernel allows 64 processes. Here, the grading process allows fewer."""
    monkeypatch.setattr(worker_process, "SANDBOX_PROCESSES", -40)
    text = MANY_PROCESSES.replace("300", "40")
    with grading_process.SubmissionGrader(str(tmp_path), grading_process.Limits()) as grader:
        (row,) = grader.grade("a.py", text.encode(), ["order.bag"])
    assert row.evidence == "The code started more than 64 processes."


def test_grade_ends_too_much_memory(tmp_path):
    with grading_process.SubmissionGrader(str(tmp_path), grading_process.Limits(megabytes=400)) as grader:
        (row,) = grader.grade("a.py", MUCH_MEMORY.encode(), ["order.bag"])
    assert row.evidence == TOO_MUCH_MEMORY


def test_launch_worker_raises_if_it_has_ended(tmp_path, monkeypatch):
    def fail(*settings):
        raise BrokenPipeError

    monkeypatch.setattr(worker_process.WorkerProcess, "settle", fail)
    with grading_process.SubmissionGrader(str(tmp_path), grading_process.Limits()) as grader:
        with pytest.raises(EOFError, match="the worker has ended"):
            grader.grade("a.py", RIGHT, ["order.bag"])


def test_exit_ends_the_process():
    with pytest.raises(SystemExit):
        grading_process._exit(15, None)


# --- the budget of a student -----------------------------------------------------------------------


def test_distribute_shares_one_budget_per_student(tmp_path, monkeypatch):
    """All files of a student are sent to the same process, which adds up the times of the student."""
    sent = []

    class Process:
        """A fake grading process."""

        is_stuck = False

        def __init__(self, home, limits):
            self.connection, self.other_end = Pipe()

        def send(self, file, ids, student):
            sent.append((id(self), file.name, student))
            self.file = file
            self.other_end.send("report")

        def receive(self):
            return self.file.name, [], "", [self.connection.recv()]

    monkeypatch.setattr(supervisor, "GradingProcess", Process)
    files = [make_submission(name) for name in ("a1", "b", "a2", "a3")]
    queue = supervisor._queue_files(files, {"a1": "ada", "a2": "ada", "a3": "ada"})
    list(supervisor._distribute(queue, [], grading_process.Limits(), 2, "", []))
    processes = {process for process, _, student in sent if student == "ada"}
    assert len(processes) == 1 and sorted(name for _, name, _ in sent) == ["a1", "a2", "a3", "b"]


def test_grade_stops_when_the_budget_is_used(thread_grader):
    (row,) = thread_grader.grade("a.py", b"order_bag = 'b'", ["order.bag"], budget=0.01)
    assert (row.status, row.evidence) == ("not read", "The files of this student have used up their time.")


def test_grading_process_adds_up_times_of_a_student(tmp_path, monkeypatch):
    """Each file uses two of the three time limits. Only the third file gets no time."""
    budgets = []

    def grade(grader, name, data, ids, companions, budget):
        budgets.append(budget)
        grader.used = 2.0
        return []

    monkeypatch.setattr(grading_process.SubmissionGrader, "grade", grade)
    monkeypatch.setattr(os, "setsid", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    monkeypatch.setattr(sandbox, "end_with_parent", lambda number: None)
    supervisor_end, process_end = Pipe()
    for student in ("ada", "bob", "ada", "ada"):
        supervisor_end.send(("a.py", b"", [], student, Companions()))

    def receive_and_close():
        for _ in range(4):
            supervisor_end.recv()
        supervisor_end.close()

    thread = threading.Thread(target=receive_and_close)
    thread.start()
    grading_process.run_grading_process(process_end, str(tmp_path), grading_process.Limits())
    thread.join()
    assert budgets == [3.0, 3.0, 1.0, -1.0]


STUDENT_PATHS = {  # the path of a file, and the student whose limits apply
    "a.py": "",
    "mallory.zip/a.py": "mallory.zip",
    "folder/mallory.zip/b/a.py": "folder/mallory.zip",
    "smithanna_4711_990_hw1.py": "4711",
    "submission_42/a.py": "42",
    "known.py": "s1",
}


@pytest.mark.parametrize(("name", "student"), STUDENT_PATHS.items())
def test_find_students_reads_paths(name, student):
    students = find_students([make_submission(name)], {"known.py": "s1"})
    assert students.get(name, "") == student


def test_find_students_counts_a_zip_in_a_folder():
    assert find_students([make_submission("m.zip/a.py")], {}) == {"m.zip/a.py": "m.zip"}


def test_skip_surplus_files_keeps_forty():
    files = [make_submission(f"m.zip/{i:02}.py") for i in range(60)] + [make_submission("ada.py")]
    checked = skip_surplus_files(files, dict.fromkeys([file.name for file in files[:60]], "m.zip"))
    reasons = [file.skip_reason for file in checked]
    assert reasons == [""] * 40 + ["the student has more than 40 files"] * 20 + [""]


# --- links -----------------------------------------------------------------------------------------


def test_find_submissions_lists_links_in_zips(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        member = zipfile.ZipInfo("link.py")
        member.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(member, "../ada/hw1.py")
        archive.writestr("a.py", "")
    reasons = {file.name: file.skip_reason for file in find_submissions(tmp_path)}
    assert reasons == {"m.zip/a.py": "", "m.zip/link.py": "it is a symbolic link"}


def test_submission_read_rejects_a_new_link(tmp_path):
    """A submission without a sandbox can replace a file by a link after the files were found."""
    (tmp_path / "a.py").touch()
    (file,) = find_submissions(tmp_path)
    (tmp_path / "a.py").unlink()
    (tmp_path / "a.py").symlink_to(tmp_path / "b.py")
    with pytest.raises(ValueError, match="it is a symbolic link"):
        file.read()


# --- the command -----------------------------------------------------------------------------------

NO_SANDBOX = Protection(False, False, ("files", "network"), "bubblewrap (bwrap) is not installed")


@pytest.fixture
def run_as(monkeypatch):
    """Return a function that checks the protection as a given user, on a system without a sandbox."""

    def check(user, unsafe):
        monkeypatch.setattr(grading_process, "find_system_protection", lambda limits: NO_SANDBOX)
        monkeypatch.setattr(os, "geteuid", lambda: user)
        options = type("Options", (), {"unsafe": unsafe})
        grade_commands._check_protection(options, grading_process.Limits())

    return check


def test_check_as_root_without_sandbox_needs_no_option(tmp_path, capsys, cached_grading, monkeypatch):
    monkeypatch.setattr(grading_process, "find_system_protection", lambda limits: NO_SANDBOX)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    path = write_text(tmp_path / "hw.py", "order_bag = 'b'")
    assert cli.main(["check", str(path)]) == 0
    output = capsys.readouterr()
    assert "Correct: 1 of 1." in output.out and output.err == ""


def test_grade_as_root_without_sandbox_needs_unsafe(run_as, capsys):
    with pytest.raises(
        ValueError, match=r"bwrap\) is not installed; .*files, network; root needs the option --unsafe"
    ):
        run_as(0, unsafe=False)
    run_as(0, unsafe=True)
    assert "no sandbox: bubblewrap (bwrap) is not installed; missing" in capsys.readouterr().err


def test_grade_as_user_without_sandbox_warns(run_as, capsys):
    run_as(1000, unsafe=False)
    assert "missing protections: files, network" in capsys.readouterr().err
