"""Tests of the whole grader: hostile submissions, the sandbox, interruptions, and processes that die."""

import csv
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing.connection import Pipe
from pathlib import Path

import hostile
import pytest

from npformer import cli
from npformer.exercises.assignment_file import make_assignment
from npformer.grader import grading_process, report_page, supervisor, worker_process
from npformer.grader.class_list import find_owners
from npformer.grader.companions import Companions
from npformer.grader.grading_process import Limits, SubmissionGrader
from npformer.grader.points import format_answers_table
from npformer.grader.submissions import find_submissions
from npformer.grader.supervisor import Journal, grade_class
from npformer.grader.worker import sandbox

EXERCISES_OPTION = f"--exercises={','.join(hostile.IDS)}"
HAS_UNSHARE = shutil.which("unshare") and not subprocess.run(["unshare", "-Urmnipf", "true"]).returncode
GENEROUS = "--seconds=600"  # for submissions that end by themselves
PATIENCE = 600  # seconds; the limit for everything that ends by itself, also on a slow and busy machine
NEEDS_PROC = pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks at /proc")


def read_rows(path):
    """Return {(submission, exercise): row} of an answers table."""
    with path.open(newline="", encoding="utf-8") as file:
        return {(row["submission"].lstrip("'"), row["exercise"]): row for row in csv.DictReader(file)}


def list_files(folder):
    """Return the paths and sizes in a folder, without following links."""
    return sorted((path.relative_to(folder).as_posix(), path.lstat().st_size) for path in folder.rglob("*"))


# --- processes of a run ----------------------------------------------------------------------------


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The temporary directory of a run. All processes of the run have its path in their environment."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / "temporary"


def list_processes(temporary):
    """Return the ids of the processes of this run, except this process. Other runs may be active too."""
    environments = Path("/proc").glob("[0-9]*/environ")
    found = [path.parent.name for path in environments if is_of_run(path, temporary)]
    return [process_id for process_id in found if process_id != str(os.getpid())]


def is_of_run(environment_path, temporary):
    """Return whether a process has the run's directory in its environment.

    Only root may read the environment of a process that protects its memory. The resource tracker is a process
    of `multiprocessing` that ends with the tests.
    """
    try:
        is_tracker = b"resource_tracker" in environment_path.with_name("cmdline").read_bytes()
        return b"=" + os.fsencode(temporary) in environment_path.read_bytes() and not is_tracker
    except OSError:
        return False


def wait_until(condition):
    """Wait until a condition holds. A slow machine may take long, so the limit only ends a hanging test."""
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < PATIENCE, "the condition does not become true"
        time.sleep(0.01)


def wait_for_processes(temporary):
    """Wait until all processes of the run have ended."""
    wait_until(lambda: not list_processes(temporary))


# --- a class with hostile submissions ----------------------------------------------------------------

EXPECTED_CELLS = {  # {(file, column): a text that this cell of the table must contain}
    ("surrogate_name.py", "student"): "A\\udcff\\x00 B",
    ("formula_name.py", "student"): "'=HYPERLINK(1)",
    ("long_name.py", "student"): "x" * 100,
    ("too_large_a_file.py", "evidence"): "It is larger than",
    ("odd_error.py", "evidence"): "“\\udcff",
    ("exit_in_table.py", "evidence"): "The code ended the program.",
}
FORMULA_STARTS = tuple("=+-@\t\r")


def find_missing_protections():
    """Return the protections that this system does not offer."""
    with tempfile.TemporaryDirectory() as home, SubmissionGrader(home, Limits()) as grader:
        return grader.missing_protections


def write_hostile_class(folder, out, port, few):
    """Write the class, and return the cases.

    Files that do not end by themselves, and files that this system cannot grade safely, are left out.
    """
    cases = hostile.write_class(folder, out=out, port=port, correct_files=1 if few else 50, few=few)
    left_out = {"endless"}
    if find_missing_protections():  # without these protections, some files would harm the test itself
        left_out.add("alone")
    for name in [name for name, case in cases.items() if left_out & case.flags]:
        (folder / name).unlink()
        del cases[name]
    if find_spec("matplotlib") is None:
        cases.pop("plots.py", None)
    return cases


def check_rows(rows, cases):
    """Check the statuses of all rows, and that no cell is a formula or has control characters."""
    assert len(rows) == 3 * len(cases) and len(cases) > 15
    for name, case in cases.items():
        for exercise_id, allowed in zip(hostile.IDS, case.allowed, strict=True):
            row = rows[name.replace("\n", "\\n").lstrip("'"), exercise_id]
            assert row["status"] in hostile.STATUSES[allowed], (name, row)
    for row in rows.values():
        for cell in row.values():
            is_plain = not cell.startswith(FORMULA_STARTS) and cell.isprintable()
            assert is_plain or "\n" in cell, cell
    for (name, column), text in EXPECTED_CELLS.items():
        assert text in rows[name, "pe.table"][column], name
    assert len(rows["long_name.py", "pe.table"]["student"]) == 100


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["few", "all"])
def test_grade_hostile_class_changes_no_other_result(few, tmp_path, temporary, monkeypatch):
    """Grade hostile, broken, odd and correct files: a few files with one worker, or all files with two."""
    folder, out = tmp_path / "class", tmp_path / "out.csv"
    folder.mkdir()
    listener = socket.create_server(("127.0.0.1", 0))
    cases = write_hostile_class(folder, out, listener.getsockname()[1], few)
    before = list_files(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SECRET_TOKEN", "a token of the teacher's")
    outputs = [
        f"--html={tmp_path}/page.html",
        f"--grades={tmp_path}/grades.csv",
        f"--feedback={tmp_path}/back",
    ]
    limit = GENEROUS if few else "--seconds=6"  # among all files, some run until the limit
    options = [f"--csv={out}", EXERCISES_OPTION, limit, f"--workers={1 if few else 2}", *outputs]
    assert cli.main(["grade", ".", *options]) == 0
    listener.close()
    assert list_files(folder) == before and not os.listdir(temporary)
    names = ["back", "class", "grades.csv", "out.csv", "page.html", "temporary"]
    assert sorted(os.listdir(tmp_path)) == names and len(os.listdir(tmp_path / "back")) > 15
    assert list_processes(temporary) == []
    check_rows(read_rows(out), cases)


# --- submissions that do not end by themselves -----------------------------------------------------
# The limit of CPU time is short. An honest function needs a hundredth of this time, even on a busy machine.

ENDLESS_CASES = {name: case for name, case in hostile.read_cases().items() if "endless" in case.flags}
SLEEPING = {"half_a_frame.py", "sleep_in_table.py", "sleep_that_catches_all.py"}


def shorten_wall_limit(grader, monkeypatch):
    """Give the first worker one more second of wall time once its file has run, however long this took."""
    read_answers = grader.read_answers

    def read_answers_and_shorten(reply):
        read_answers(reply)
        grader.wall_left = 1.0
        monkeypatch.undo()

    monkeypatch.setattr(grader, "read_answers", read_answers_and_shorten)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "loop_in_table.py" else pytest.mark.slow)
        for name in ENDLESS_CASES
    ],
)
def test_grade_endless_function_costs_only_itself(name, tmp_path, monkeypatch):
    """A file that sleeps does not reach the limit of CPU time, but the limit of wall time."""
    wall = 2 if name == "sleep_at_load.py" else PATIENCE
    limits = Limits(seconds=2, wall=wall)
    with SubmissionGrader(str(tmp_path), limits) as grader:
        if name in SLEEPING:
            shorten_wall_limit(grader, monkeypatch)
        rows = grader.grade(name, ENDLESS_CASES[name].text.encode(), hostile.IDS)
    for row, allowed in zip(rows, ENDLESS_CASES[name].allowed, strict=True):
        assert row.status in hostile.STATUSES[allowed], row
    reason = f"The code was still running after {limits.seconds:g} seconds."
    assert any(row.evidence == reason for row in rows)


FORKS_LOOPS = """
import os
def softmax_forward(s):
    for _ in range(8):
        if os.fork() == 0:
            while True: pass
    for _ in range(8): os.wait()
"""


@NEEDS_PROC
def test_grade_limits_cpu_time_of_all_processes(tmp_path):
    """The kernel's limit alone would end each of the eight processes, and then the function would return."""
    with SubmissionGrader(str(tmp_path), Limits(seconds=2, wall=PATIENCE)) as grader:
        (row,) = grader.grade("a.py", FORKS_LOOPS.encode(), ["softmax.forward"])
    assert row.evidence == "The code was still running after 2 seconds."


@NEEDS_PROC
def test_end_counts_cpu_time_of_forgotten_processes(tmp_path, monkeypatch):
    """All processes have ended before `end` looks at them, and the kernel has forgotten their CPU time."""
    end = worker_process.WorkerProcess.end
    end_processes = worker_process.end_processes

    def end_late(worker):
        monkeypatch.setattr(worker_process, "_iter_descendants", lambda others: iter(()))
        return end(worker)

    monkeypatch.setattr(worker_process.WorkerProcess, "end", end_late)
    monkeypatch.setattr(worker_process, "end_processes", lambda *ids: 0 * end_processes(*ids))
    with SubmissionGrader(str(tmp_path), Limits(seconds=1, wall=PATIENCE)) as grader:
        (row,) = grader.grade("a.py", b"while True: pass", hostile.IDS[:1])
    assert row.evidence == "The code was still running after 1 second."


# --- the sandbox -----------------------------------------------------------------------------------

LOOKS_AROUND = """
import os
def softmax_forward(s):
    seen = [path for path in {paths!r} if os.path.lexists(path)]
    caps = [line.split()[1] for line in open('/proc/self/status') if line.startswith(('CapEff', 'CapPrm'))]
    raise ValueError(str((seen, set(caps), os.getuid() == {uid}, bool(os.statvfs('/usr').f_flag & os.ST_RDONLY), os.getpid() < 9, sorted(os.listdir('/')))).replace(' ', ''))
"""


def test_sandbox_shows_only_python_and_drops_privileges(tmp_path):
    """The submission checks from inside which of these paths exist, and which privileges it has."""
    secret = tmp_path / "secret"
    secret.write_text("x")
    paths = [str(secret), cli.__file__, supervisor.__file__, "/etc/shadow", os.path.expanduser("~/.ssh")]
    # The sandbox must hide a folder inside site-packages too, because npformer may be installed there. In this
    # test, `hidden` is the folder of pytest.
    paths.append(pytest.__file__)
    text = LOOKS_AROUND.format(paths=paths, uid=os.getuid())
    with SubmissionGrader(str(tmp_path), Limits(hidden=str(Path(pytest.__file__).parent))) as grader:
        if grader.missing_protections:
            assert not HAS_UNSHARE, "the program `unshare` works here, so the sandbox must work too"
            pytest.skip("this system has no sandbox")
        evidence = grader.grade("a.py", text.encode(), ["softmax.forward"])[0].evidence
    is_same_user = os.getuid() != 0
    assert f"“([],{{'0000000000000000'}},{is_same_user},True,True," in evidence, evidence


ALLOCATES = "def softmax_forward(s): return bytearray(900 * 2**20)\n"
FORKS = "import os, signal\ndef softmax_forward(s):\n    while True: os.fork() or signal.pause()\n"
DRAWS = "import random\nimport numpy as np\nraise ValueError(str((random.random(), np.random.rand())))"
STOPS_OTHERS = """import os, signal
for p in range(1, 99999):
    try: os.kill(p, signal.SIGSTOP) if p != os.getpid() else 0
    except OSError: pass
"""


@pytest.fixture(scope="module")
def small_grader(tmp_path_factory):
    """A submission grader with small limits."""
    home = tmp_path_factory.mktemp("small")
    with SubmissionGrader(str(home), Limits(seconds=60, megabytes=800)) as grader:
        yield grader


def test_grade_unseeded_numbers_are_the_same(small_grader):
    first, second = (small_grader.grade("a.py", DRAWS.encode(), ["softmax.forward"]) for _ in range(2))
    assert first == second and "ValueError: (0." in first[0].evidence


def test_grade_limits_memory(small_grader):
    (row,) = small_grader.grade("a.py", ALLOCATES.encode(), ["softmax.forward"])
    assert "MemoryError" in row.evidence


def test_grade_limits_processes(small_grader):
    (row,) = small_grader.grade("a.py", FORKS.encode(), ["softmax.forward"])
    assert row.status == "error"


def test_grade_file_cannot_stop_other_processes(small_grader):
    """A file tries to stop all other processes. The next file is graded as usual."""
    if not small_grader.missing_protections:
        text = STOPS_OTHERS + hostile.read_cases()["allclose.py"].text
        assert small_grader.grade("a.py", text.encode(), ["order.bag"])[0].status == "pass"
    (row,) = small_grader.grade("b.py", b"raise KeyError('x')", ["order.bag"])
    assert row.status == "not read" and "KeyError" in row.evidence


SLEEPS = """
import time
order_bag = 'b'
def softmax_forward(s):
    while True:
        try: time.sleep(.5)
        except: pass
"""


def test_grade_ends_a_function_that_sleeps(tmp_path, monkeypatch):
    """The wall limit ends the function. A sleeping function never reaches the CPU limit."""
    with SubmissionGrader(str(tmp_path), Limits(seconds=7, wall=PATIENCE)) as grader:
        shorten_wall_limit(grader, monkeypatch)
        bag, softmax = grader.grade("a.py", SLEEPS.encode(), ["order.bag", "softmax.forward"])
    assert bag.status == "pass" and softmax.status == "error"
    assert softmax.evidence == "The code was still running after 7 seconds."


# --- a system without a sandbox --------------------------------------------------------------------

NO_NAMESPACES = "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "
HARMLESS = """setsid exit_in_table ours_on_the_path daemon shell_stays ours_by_import ours_without_hook ours_by_process
deep_folder memory files_of_its_own""".split()


@pytest.mark.skipif(not HAS_UNSHARE, reason="needs unshare of util-linux")
@pytest.mark.parametrize("count", [3, pytest.param(len(HARMLESS), marks=pytest.mark.slow)])
def test_grade_without_sandbox_reports_it_and_ends_processes(count, tmp_path, temporary):
    """The files start only a few processes, because the system does not limit the processes of root."""
    folder, out = tmp_path / "class", tmp_path / "out.csv"
    folder.mkdir()
    cases = hostile.read_cases()
    for name in HARMLESS[:count]:
        text = cases[f"{name}.py"].text.replace("{root!r}", repr(hostile.ROOT))
        (folder / f"{name}.py").write_text(text)
    options = [f"--csv={out}", EXERCISES_OPTION, GENEROUS, "--workers=1"]
    shell = ["unshare", "-Ur", "sh", "-c", NO_NAMESPACES + '"$@"', "sh"]
    command = [*shell, sys.executable, "-m", "npformer", "grade", str(folder), *options, "--unsafe"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr
    assert "Missing protections on this system: files, network, processes, signals." in result.stdout
    rows = {name: row for (name, exercise_id), row in read_rows(out).items() if exercise_id == "pe.table"}
    assert {row["status"] for row in rows.values()} <= hostile.STATUSES["wrong"]
    assert rows["exit_in_table.py"]["evidence"] == "The code ended the program."
    wait_for_processes(temporary)


# --- interruptions ---------------------------------------------------------------------------------

SIGNALS = [(signal.SIGKILL, 1)]
for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
    SIGNALS.append(pytest.param(number, 2, marks=pytest.mark.slow))
# There is no `if __name__ == "__main__"`: the test fails if a grading process runs this program again.
# A shell that starts the tests in the background ignores Ctrl+C for them. So this program sets Python's handler.
PROGRAM = """\
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from npformer import cli
sys.exit(cli.main())
"""


ENDLESS = "import time\nwhile True: time.sleep(1)\n"


def write_twelve_files(folder, last_six=""):
    """Write twelve files. The last six begin with the code `last_six`."""
    folder.mkdir(exist_ok=True)
    for i in range(12):
        text = hostile.RIGHT if i % 3 else hostile.ZEROS
        code = last_six if i >= 6 else ""
        (folder / f"s{i:02}.py").write_text(f"student = 'S{i}'\n{code}{text}")


def interrupt_after_three_files(command, temporary, signal_number, is_repeated):
    """Start a run, and send it a signal after three files. Return the process and the text of stderr.

    If `is_repeated`, send the signal again as soon as the run has ended one of its processes.
    """
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    process.stderr.readline()
    if os.geteuid() == 0:
        assert list_processes(temporary), "the processes of the run are found by its directory"
    for _ in range(3):
        process.stderr.readline()
    count = len(list_processes(temporary))
    assert count, "the processes of the run are found by its directory"
    process.send_signal(signal_number)
    if is_repeated:
        wait_until(lambda: len(list_processes(temporary)) < count or process.poll() is not None)
        process.send_signal(signal_number)
    return process, process.communicate(timeout=PATIENCE)[1]


@NEEDS_PROC
@pytest.mark.parametrize(("signal_number", "workers"), SIGNALS)
def test_grade_resumes_to_the_same_table(signal_number, workers, tmp_path, temporary, cached_grading):
    folder, out, expected = (tmp_path / name for name in ("class", "out.csv", "expected.csv"))
    # The last six files never end, so the run cannot finish before the signal comes.
    write_twelve_files(folder, ENDLESS)
    limits = [f"--wall={10 * PATIENCE}", f"--workers={workers}"]
    arguments = ["grade", str(folder), f"--csv={out}", EXERCISES_OPTION, *limits]
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, program, *arguments]
    process, stderr = interrupt_after_three_files(command, temporary, signal_number, is_repeated=workers > 1)
    journal = tmp_path / "out.csv.journal"
    assert 4 <= len(journal.read_text().splitlines()) < 13 and not out.exists()
    if signal_number != signal.SIGKILL:
        assert not os.listdir(temporary)
        assert process.returncode in (128 + signal_number, -signal_number)
        assert "--resume continues from there" in stderr
    wait_for_processes(temporary)
    with journal.open("a") as file:
        file.write('{"file": "s11.py", "rep')  # an incomplete line, as after a full disk
    write_twelve_files(folder)  # the students submit the last six files again
    assert cli.main([*arguments, "--resume"]) == 0
    rows = grade_class(find_submissions(folder), [*hostile.IDS], Limits())
    owners = find_owners(find_submissions(folder), {row.submission: row.student for row in rows}, None)
    expected_table = format_answers_table(rows, make_assignment(hostile.IDS), owners.by_file)
    expected.write_text(expected_table, newline="")
    assert out.read_bytes() == expected.read_bytes() and not journal.exists()


@pytest.fixture
def two_files(tmp_path):
    """A folder with two submissions."""
    (tmp_path / "class").mkdir()
    for name in ("a.py", "b.py"):
        (tmp_path / "class" / name).write_text("order_bag = 'b'")
    return tmp_path / "class"


def test_journal_begin_skips_unchanged_files(two_files, tmp_path, graded_data):
    out = tmp_path / "out.csv"
    os.symlink("/etc/passwd", two_files / "c.py")
    rows = grade_class(find_submissions(two_files), ["order.bag"], Limits(), journal=Journal(out))
    assert [row.status for row in rows] == ["pass", "pass", "passed over"]
    (two_files / "b.py").write_text("order_bag = 'a'")
    graded_data.clear()
    journal = Journal(out, resume=True)
    grade_class(find_submissions(two_files), ["order.bag"], Limits(hidden="moved"), journal=journal)
    assert graded_data == [b"order_bag = 'a'"]
    with pytest.raises(ValueError, match="belongs to other exercises"):
        grade_class(find_submissions(two_files), ["pe.table"], Limits(), journal=journal)


def fill_disk(*arguments):
    raise OSError(28, "No space left on device", "a.file")


def press_ctrl_c(*arguments):
    raise KeyboardInterrupt


def terminate(*arguments):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)  # The handler of the signal interrupts the wait.


INTERRUPTIONS = {  # an object, the name of its function to replace, the replacement, the exit code
    "full disk for the journal": (Journal, "add", fill_disk, 2),
    "full disk for the page": (report_page, "format_class_page", fill_disk, 2),
    "Ctrl+C": (Journal, "add", press_ctrl_c, 130),
    "SIGTERM": (Journal, "add", terminate, 143),
}


@pytest.mark.parametrize(("target", "name", "interrupt", "code"), INTERRUPTIONS.values(), ids=INTERRUPTIONS)
def test_grade_interrupted_reports_how_to_resume(
    target, name, interrupt, code, two_files, graded_data, capsys, monkeypatch
):
    arguments = ["grade", str(two_files), "--csv=o.csv", "--html=o.html", "--exercises=pe.table"]
    monkeypatch.chdir(two_files.parent)
    old_handler = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(target, name, interrupt)
        assert cli.main(arguments) == code
    stderr = capsys.readouterr().err
    assert "the results so far are in o.csv.journal; --resume continues from there\n" in stderr
    if interrupt is fill_disk:
        assert "'a.file' cannot be read or written: No space left on device\n" in stderr
    assert signal.getsignal(signal.SIGTERM) == old_handler
    graded_data.clear()
    assert cli.main([*arguments, "--resume"]) == 0
    has_empty_journal = target is Journal
    assert len(graded_data) == (2 if has_empty_journal else 0)
    assert (
        "Missing protections on this system: network. Install bubblewrap, or run the command in a container."
        in capsys.readouterr().out
    )
    assert not Path("o.csv.journal").exists() and Path("o.html").exists()


# --- grading processes -----------------------------------------------------------------------------


@pytest.fixture
def started_processes(monkeypatch):
    """Return a function: `kill_first(count)` kills the next `count` grading processes when they start."""
    started = []
    start = supervisor.GradingProcess

    def kill_first(count):
        started.clear()

        def start_or_kill(*settings):
            started.append(start(*settings))
            if len(started) <= count:
                started[-1].process.kill()
            return started[-1]

        monkeypatch.setattr(supervisor, "GradingProcess", start_or_kill)
        return started

    return kill_first


def test_iter_reports_grades_again_if_a_process_ends(two_files, started_processes, monkeypatch):
    monkeypatch.setattr(supervisor, "JOIN_SECONDS", PATIENCE)  # On a busy machine, a process ends slowly.
    started = started_processes(1)
    rows = grade_class(find_submissions(two_files), ["order.bag"], Limits(), workers=0)
    assert [row.status for row in rows] == ["pass", "pass"]
    assert [grading.process.exitcode for grading in started] == [-signal.SIGKILL, 0]


def test_iter_reports_gives_up_after_two_processes(two_files, started_processes):
    started_processes(2)
    rows = grade_class(find_submissions(two_files), ["order.bag"], Limits())
    expected = [("not read", supervisor.LOST), ("pass", "Your answer passes every check.")]
    assert [(row.status, row.evidence) for row in rows] == expected


FILE_MESSAGE = ("a.py", "It cannot be read.", ["order.bag"], "a.py", Companions())


@contextmanager
def restored_sigterm():
    """Restore the handler of SIGTERM at the end of the block."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, handler)


def test_run_grading_process_ends_without_worker(monkeypatch, tmp_path):
    """Without a worker there is no report. The supervisor grades the file again in a new process."""
    supervisor_end, process_end = Pipe()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    monkeypatch.setattr(os, "setsid", lambda: None)
    monkeypatch.setattr(sandbox, "end_with_parent", lambda number: None)
    supervisor_end.send(("a.py", b"", ["order.bag"], "a.py", Companions()))
    with supervisor_end, process_end, restored_sigterm():
        grading_process.run_grading_process(process_end, str(tmp_path), Limits())
        assert not supervisor_end.poll()


def test_run_grading_process_ends_with_its_connection(tmp_path, monkeypatch):
    supervisor_end, process_end = Pipe()
    session_calls = []
    # The process must start its own session, so that neither Ctrl+C nor Ctrl+Z reaches it.
    monkeypatch.setattr(os, "setsid", lambda: session_calls.append(True))
    monkeypatch.setattr(sandbox, "end_with_parent", lambda number: None)  # this is not the real process
    supervisor_end.send(FILE_MESSAGE)

    def receive_and_close():
        with supervisor_end:
            supervisor_end.recv()

    threading.Thread(target=receive_and_close).start()
    with restored_sigterm():
        grading_process.run_grading_process(process_end, str(tmp_path), Limits())
    assert session_calls and list_processes(tmp_path) == []
