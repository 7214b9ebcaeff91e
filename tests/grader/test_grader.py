"""The whole grader against a class that means harm, against Ctrl+C, and with judges that end."""

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
from importlib.util import find_spec
from multiprocessing.connection import Pipe
from pathlib import Path
from types import SimpleNamespace

import hostile
import pytest

from npformer import cli
from npformer.exercises.assignment_file import assignment_of
from npformer.grader import grading_process as judge
from npformer.grader import report_page as page
from npformer.grader import supervisor as run
from npformer.grader.grading_process import Judge, Limits
from npformer.grader.points import answers_table
from npformer.grader.submissions import hand_ins
from npformer.grader.supervisor import Journal, grade

ONLY = f"--exercises={','.join(hostile.IDS)}"
UNSHARES = shutil.which("unshare") and not subprocess.run(["unshare", "-Urmnipf", "true"]).returncode
PROC = pytest.mark.skipif(not os.path.isdir("/proc"), reason="looks at /proc")


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return {(row["submission"].lstrip("'"), row["exercise"]): row for row in csv.DictReader(file)}


def snapshot(folder):
    """What lies in a folder, links not followed."""
    return sorted((path.relative_to(folder).as_posix(), path.lstat().st_size) for path in folder.rglob("*"))


# --- a class that means harm ------------------------------------------------------------------------

SAID = {  # what stands in a cell
    ("surrogate_name.py", "student"): "A\\udcff\\x00 B",
    ("formula_name.py", "student"): "'=HYPERLINK(1)",
    ("long_name.py", "student"): "x" * 100,
    ("too_large_a_file.py", "evidence"): "It is larger than",
    ("odd_error.py", "evidence"): "“\\udcff",
    ("exit_in_table.py", "evidence"): "It ended the program.",
}


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_grade_hostile_class_changes_no_other_result(few, tmp_path, temporary, monkeypatch):
    """Hostile, broken and odd files beside good ones: a few by one worker, or all by two."""
    folder, out = tmp_path / "class", tmp_path / "out.csv"
    folder.mkdir()
    listener = socket.create_server(("127.0.0.1", 0))
    expected = hostile.write(folder, out=out, port=listener.getsockname()[1], good=3 if few else 50, few=few)
    if has_no_sandbox():  # these harm the test itself: see the page on what holds where
        for name in [name for name, case in expected.items() if "alone" in case.flags]:
            (folder / name).unlink()
            del expected[name]
    if find_spec("matplotlib") is None:
        expected.pop("plots.py", None)
    before = snapshot(folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SECRET_TOKEN", "a token of the teacher's")
    more = [f"--html={tmp_path}/page.html", f"--grades={tmp_path}/grades.csv", f"--feedback={tmp_path}/back"]
    given = ["grade", ".", f"--csv={out}", ONLY, "--seconds=1", f"--workers={1 if few else 2}", *more]
    assert cli.main(given) == 0
    listener.close()
    assert snapshot(folder) == before and not os.listdir(temporary)
    names = ["back", "class", "grades.csv", "out.csv", "page.html", "temporary"]
    assert sorted(os.listdir(tmp_path)) == names and len(os.listdir(tmp_path / "back")) > 20
    assert running(temporary) == []

    rows = rows_of(out)
    assert len(rows) == 3 * len(expected) and len(expected) > 20
    for name, case in expected.items():
        for exercise_id, allowed in zip(hostile.IDS, case.allowed, strict=True):
            row = rows[name.replace("\n", "\\n").lstrip("'"), exercise_id]
            assert row["status"] in hostile.STATUSES[allowed], (name, row)
    for row in rows.values():
        for cell in row.values():
            assert (not cell.startswith(tuple("=+-@\t\r")) and cell.isprintable()) or "\n" in cell, cell
    for (name, column), text in SAID.items():
        assert text in rows[name, "pe.table"][column], name
    assert len(rows["long_name.py", "pe.table"]["student"]) == 100


def has_no_sandbox():
    with tempfile.TemporaryDirectory() as home, Judge(home, Limits()) as judge:
        return judge.missing


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """Where a run has its own folders: what belongs to it carries this name."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path / "temporary"


def running(temporary):
    """The processes of the run that has its folders there; others may grade at the same time."""
    here = [path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if in_environ(path, temporary)]
    return [pid for pid in here if pid != str(os.getpid())]


def in_environ(path, temporary):
    try:
        return b"NPFORMER_RUN=" + os.fsencode(temporary) in path.read_bytes()
    except OSError:
        return False


def wait_for_nothing(temporary):
    """What belonged to the run ends with it."""
    for _ in range(200):
        if not (left := running(temporary)):
            return
        time.sleep(0.05)
    raise AssertionError(f"still running: {left}")


LOOKS_AROUND = """
import os
def softmax_forward(s):
    seen = [path for path in {paths!r} if os.path.lexists(path)]
    caps = [line.split()[1] for line in open('/proc/self/status') if line.startswith(('CapEff', 'CapPrm'))]
    raise ValueError(str((seen, set(caps), os.getuid() == {uid}, bool(os.statvfs('/usr').f_flag & os.ST_RDONLY), os.getpid() == 1, sorted(os.listdir('/')))).replace(' ', ''))
"""


def test_sandbox_shows_only_python_and_drops_privileges(tmp_path):
    """The submission itself asks the kernel what it can see of this machine."""
    secret = tmp_path / "secret"
    secret.write_text("x")
    paths = [str(secret), cli.__file__, run.__file__, "/etc/shadow", os.path.expanduser("~/.ssh")]
    paths += [pytest.__file__]  # in site-packages, which is needed: so is npformer if it is installed
    text = LOOKS_AROUND.format(paths=paths, uid=os.getuid())
    with Judge(str(tmp_path), Limits(hidden=str(Path(pytest.__file__).parent))) as judge:
        if judge.missing:
            assert not UNSHARES, "what util-linux's program may do, we may"
            pytest.skip("this system has no sandbox")
        evidence = judge.grade("a.py", text.encode(), ["softmax.forward"])[0].evidence
    same = os.getuid() != 0
    assert f"“([],{{'0000000000000000'}},{same},True,True," in evidence, evidence


def test_grade_limits_memory_and_processes(tmp_path):
    """A process that would stop whoever polls it, and one that hides its memory in children."""
    stops = "import os, signal\nfor p in range(1, 99999):\n    try: os.kill(p, signal.SIGSTOP) if p != os.getpid() else 0\n"
    stops += "    except OSError: pass\n" + hostile.cases()["allclose.py"].text
    grows = "def softmax_forward(s): return bytearray(900 * 2**20)\n"
    forks = "import os\ndef softmax_forward(s):\n    while True: os.fork() or os.pause()\n"
    draws = "import random\nimport numpy as np\nraise ValueError(str((random.random(), np.random.rand())))"
    with Judge(str(tmp_path), Limits(seconds=2, megabytes=800)) as judge:
        first, again = (judge.grade("a.py", draws.encode(), ["softmax.forward"]) for _ in range(2))
        assert first == again and "ValueError: (0." in first[0].evidence
        said = [judge.grade("a.py", text.encode(), ["softmax.forward"]) for text in (grows, forks)]
        if not judge.missing:
            assert judge.grade("a.py", stops.encode(), ["order.bag"])[0].status == "pass"
        stopped = judge.grade("b.py", b"raise KeyError('x')\norder_bag = 'b'", ["order.bag"])[0]
    assert stopped.status == "not read" and "KeyError" in stopped.evidence
    assert "MemoryError" in said[0][0].evidence
    assert said[1][0].status == "error"


SLEEPS = """
import time
order_bag = 'b'
def softmax_forward(s):
    while True:
        try: time.sleep(.5)
        except: pass
"""


def test_grade_ends_a_function_that_sleeps(tmp_path):
    """The limit by the clock, here 1 second, ends it; the CPU limit would never be reached."""
    started = time.monotonic()
    with Judge(str(tmp_path), Limits(seconds=7, wall=1)) as judge:
        bag, softmax = judge.grade("a.py", SLEEPS.encode(), ["order.bag", "softmax.forward"])
    assert bag.status == "pass" and softmax.status == "error"
    assert softmax.evidence == "It was still running after 7 seconds."
    assert time.monotonic() - started < 20


# --- a system without a sandbox --------------------------------------------------------------------

NO_NAMESPACES = "echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "

LEFT = """daemon setsid shell_stays ours_by_import ours_on_the_path ours_without_hook ours_by_process deep_folder memory
exit_in_table files_of_its_own""".split()


@pytest.mark.skipif(not UNSHARES, reason="needs unshare of util-linux")
def test_grade_without_sandbox_reports_it_and_ends_processes(tmp_path, temporary):
    """There is no fork bomb among the files: without a sandbox, the processes of root are not counted."""
    folder, out = tmp_path / "class", tmp_path / "out.csv"
    folder.mkdir()
    root = str(Path(__file__).resolve().parents[2])
    for name in LEFT:
        (folder / f"{name}.py").write_text(hostile.cases()[f"{name}.py"].text.replace("{root!r}", repr(root)))
    given = [str(folder), f"--csv={out}", ONLY, "--seconds=2", "--wall=15", "--workers=1"]
    shell = ["unshare", "-Ur", "sh", "-c", NO_NAMESPACES + '"$@"', "sh"]
    command = [*shell, sys.executable, "-m", "npformer", "grade", *given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "This system did not close for them: files, network, processes." in done.stdout
    tables = {name: row for (name, exercise), row in rows_of(out).items() if exercise == "pe.table"}
    assert {row["status"] for row in tables.values()} <= hostile.STATUSES["wrong"]
    assert tables["exit_in_table.py"]["evidence"] == "It ended the program."
    wait_for_nothing(temporary)


# --- interrupted ------------------------------------------------------------------------------------


SIGNALS = [(signal.SIGKILL, 1)]
SIGNALS += [
    pytest.param(n, 2, marks=pytest.mark.slow) for n in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM)
]


@PROC
@pytest.mark.parametrize(("number", "workers"), SIGNALS)
def test_grade_resumes_to_the_same_table(number, workers, tmp_path, temporary, kept):
    folder, out, whole = (tmp_path / name for name in ("class", "out.csv", "whole.csv"))
    folder.mkdir()
    for i in range(12):
        text = hostile.RIGHT if i % 3 else hostile.ZEROS
        pause = 0.05 if i < 6 else 0.3  # who interrupts after three is in time, on a busy machine too
        (folder / f"s{i:02}.py").write_text(f"student = 'S{i}'\nimport time\ntime.sleep({pause})\n{text}")
    given = ["grade", str(folder), f"--csv={out}", ONLY, f"--workers={workers}"]
    program = tmp_path / "program.py"  # it has no `if __name__`, and is not run again in each judge
    program.write_text("import sys\nfrom npformer import cli\nsys.exit(cli.main())")
    process = subprocess.Popen(
        [sys.executable, program, *given], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    process.stderr.readline()
    assert running(temporary), "the run's processes can be told by their folder"
    for _ in range(2):
        process.stderr.readline()
    process.send_signal(number)
    if workers > 1:  # who is impatient sends another, while it cleans up
        time.sleep(0.2)
        process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    journal = tmp_path / "out.csv.journal"
    assert 4 <= len(journal.read_text().splitlines()) < 13 and not out.exists()
    if number != signal.SIGKILL:
        assert not os.listdir(temporary)
        assert process.returncode in (128 + number, -number) and "--resume goes on from there" in said
    wait_for_nothing(temporary)
    with journal.open("a") as file:
        file.write('{"file": "s11.py", "rep')  # as a full disk would leave it
    assert cli.main([*given, "--resume"]) == 0
    rows = grade(hand_ins(folder), [*hostile.IDS], Limits())
    whole.write_text(answers_table(rows, assignment_of(hostile.IDS)), newline="")
    assert out.read_bytes() == whole.read_bytes() and not journal.exists()


@pytest.fixture
def two(tmp_path):
    (tmp_path / "class").mkdir()
    for name in ("a.py", "b.py"):
        (tmp_path / "class" / name).write_text("order_bag = 'b'")
    return tmp_path / "class"


def test_journal_begin_rejects_another_run(two, tmp_path, asked):
    out = tmp_path / "out.csv"
    os.symlink("/etc/passwd", two / "c.py")
    found = grade(hand_ins(two), ["order.bag"], Limits(), journal=Journal(out))
    assert [row.status for row in found] == ["pass", "pass", "not read"]
    (two / "b.py").write_text("order_bag = 'a'")
    asked.clear()
    journal = Journal(out, resume=True)
    grade(hand_ins(two), ["order.bag"], Limits(hidden="moved"), journal=journal)
    assert asked == [b"order_bag = 'a'"]
    with pytest.raises(ValueError, match="belongs to other exercises"):
        grade(hand_ins(two), ["pe.table"], Limits(), journal=journal)


def full(*given):
    raise OSError(28, "No space left on device", "a.file")


def stopped(*given):
    raise KeyboardInterrupt


def terminated(*given):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(5)


CUT = ((Journal, "add", full, 2), (page, "class_page", full, 2), (Journal, "add", stopped, 130), (Journal, "add", terminated, 143))  # fmt: skip


@pytest.mark.parametrize(("place", "name", "happens", "code"), CUT)
def test_grade_interrupted_reports_how_to_resume(place, name, happens, code, two, asked, capsys, monkeypatch):
    given = ["grade", str(two), "--csv=o.csv", "--html=o.html", "--only=pe.table"]
    monkeypatch.chdir(two.parent)
    before = signal.getsignal(signal.SIGTERM)
    with monkeypatch.context() as patch:
        patch.setattr(place, name, happens)
        assert cli.main(given) == code
    said = capsys.readouterr().err
    assert "what is done is in o.csv.journal, and --resume goes on from there\n" in said
    assert happens is not full or "'a.file' cannot be read or written: No space left on device\n" in said
    assert signal.getsignal(signal.SIGTERM) == before
    asked.clear()
    assert cli.main([*given, "--resume"]) == 0 and len(asked) == 2 * (place is Journal)
    assert "This system did not close for them: network. Run this in a container." in capsys.readouterr().out
    assert not Path("o.csv.journal").exists() and Path("o.html").exists()


# --- grading processes -------------------------------------------------------------------------------


def test_iter_reports_replaces_a_process_once_per_file(two, monkeypatch):
    started, start, ends = [], run.GradingProcess, 1

    def some_end(*settings):
        started.append(start(*settings))
        if len(started) <= ends:
            started[-1].process.kill()
        return started[-1]

    monkeypatch.setattr(run, "GradingProcess", some_end)
    assert [row.status for row in grade(hand_ins(two), ["order.bag"], Limits(), workers=0)] == [
        "pass",
        "pass",
    ]
    assert [each.process.exitcode for each in started] == [-signal.SIGKILL, 0]
    started, ends = [], 2
    found = grade(hand_ins(two), ["order.bag"], Limits())
    assert [(row.status, row.evidence) for row in found] == [
        ("not read", run.LOST),
        ("pass", "Every check agrees."),
    ]


def test_run_grading_process_ends_with_its_server(monkeypatch):
    """A file can end the server if there is no sandbox. It must not be blamed on the next file."""
    (line, its_line), (ours, theirs) = Pipe(), socket.socketpair()
    gone = SimpleNamespace(wait=lambda: 0, poll=lambda: -9)
    monkeypatch.setattr(judge, "_start_server", lambda *given: (gone, ours))
    monkeypatch.setattr(os, "setsid", lambda: None)
    line.send(("a.py", "It cannot be read.", ["order.bag"]))
    with line, its_line, theirs:
        theirs.sendall(b"[]")
        judge.run_grading_process(its_line, "", Limits())
        assert not line.poll()


def test_run_grading_process_ends_with_its_connection(tmp_path, monkeypatch):
    (line, its_line), alone = Pipe(), []
    monkeypatch.setattr(os, "setsid", lambda: alone.append(True))  # neither Ctrl+C nor Ctrl+Z reaches it
    line.send(("a.py", "It cannot be read.", ["order.bag"]))
    threading.Timer(0.5, line.close).start()
    judge.run_grading_process(its_line, str(tmp_path), Limits())
    assert alone and running(tmp_path) == []
