"""The whole grader against a class that means harm, against Ctrl+C, and what it writes for teachers."""

import csv
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import hostile
import pytest

from npformer import cli
from npformer.grader import grading, shelter
from npformer.grader.grading import Hand, Journal, grade, grade_one, listed, shown, write_csv
from npformer.grader.judging import Judge, Limits, grade_file

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="links, pipes and signals of POSIX")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
ONLY = f"--only={','.join(hostile.IDS)}"


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as file:
        return {(row["submission"].lstrip("'"), row["exercise"]): row for row in csv.DictReader(file)}


def snapshot(folder):
    """What lies in a folder, links not followed."""
    return sorted((path.relative_to(folder).as_posix(), path.lstat().st_size) for path in folder.rglob("*"))


# --- a class that means harm ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def temporary(tmp_path_factory):
    """Where the class of harm's run has its own folders: what belongs to it carries this name."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def class_of_harm(tmp_path_factory, temporary):
    """164 hostile, broken and odd files beside 50 good ones, graded once by two workers."""
    top = tmp_path_factory.mktemp("harm")
    folder, out = top / "class", top / "out.csv"
    folder.mkdir()
    listener = socket.create_server(("127.0.0.1", 0))
    expected = hostile.write(folder, out=out, port=listener.getsockname()[1], good=50)
    (folder / "closed.py").chmod(0)
    if os.name == "posix" and os.geteuid() != 0 and not walls_stand():
        (folder / "kill_all.py").unlink()  # it would end this test as well: see the page on limits
        del expected["kill_all.py"]
    if find_spec("matplotlib") is None:
        del expected["plots.py"]
    before, beside = snapshot(folder), set(os.listdir(os.path.dirname(top)))
    with pytest.MonkeyPatch.context() as patch:
        use_as_temporary(temporary, patch)
        patch.setenv("SECRET_TOKEN", "a token of the teacher's")
        code = cli.main(["grade", str(folder), "--csv", str(out), ONLY, "--seconds=1", "--workers=2"])
    listener.close()
    assert code == 0 and snapshot(folder) == before, "nothing in the folder was touched"
    assert set(os.listdir(os.path.dirname(top))) == beside and not os.listdir(temporary)
    assert sorted(os.listdir(top)) == ["class", "out.csv", "outside.py"]
    return expected, rows_of(out)


def use_as_temporary(folder, patch):
    patch.setenv("TMPDIR", str(folder))
    patch.setattr(tempfile, "tempdir", None)


def walls_stand():
    """Whether this system keeps a student's process away from others."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if shelter.apart() else 1)
    return os.waitpid(pid, 0)[1] == 0


@POSIX
def test_no_row_is_lost_and_no_verdict_changed(class_of_harm):
    expected, rows = class_of_harm
    assert len(rows) == 3 * len(expected) and len(expected) > 210
    wrong = []
    for name, case in expected.items():
        for exercise_id, allowed in zip(hostile.IDS, (case.bag, case.table, case.softmax), strict=True):
            row = rows[name.replace("\n", "\\n").lstrip("'"), exercise_id]
            if row["status"] not in hostile.STATUSES[allowed]:
                wrong.append((name, exercise_id, allowed, row["status"], row["evidence"]))
    assert wrong == []


@POSIX
def test_nothing_is_left_running(class_of_harm, temporary):
    assert running(temporary) == []


def running(temporary):
    """The processes of the run that has its folders there; others may grade at the same time."""
    mine = [pid for pid in shelter.tasks() if b"NPFORMER_RUN" in environment_of(pid)]
    return [pid for pid in mine if os.fsencode(temporary) in environment_of(pid)]


def environment_of(pid):
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@POSIX
def test_every_cell_of_the_table_is_harmless_text(class_of_harm):
    _, rows = class_of_harm
    for row in rows.values():
        for cell in row.values():
            assert (not cell.startswith(tuple("=+-@\t\r")) and cell.isprintable()) or "\n" in cell, cell
    assert rows["surrogate_name.py", "order.bag"]["student"] == "A\\udcff\\x00 B"
    assert rows["formula_name.py", "order.bag"]["student"] == "'=HYPERLINK(1)"
    assert rows["long_name.py", "order.bag"]["student"] == "x" * 100
    assert rows["bad_cell.ipynb", "pe.table"]["evidence"]


@POSIX
def test_refusals_say_why(class_of_harm):
    _, rows = class_of_harm
    says = {name: rows[name, "pe.table"]["evidence"] for name in (*hostile.NOT_READ, "too_large_a_file.py")}
    assert says["outside.py"] == "It is a link to a place outside the folder."
    assert says["broken.py"].startswith("The file cannot be read") and "cannot be read" in says["around.py"]
    assert says["pipe.py"] == "It is no file." and says["too_large_a_file.py"].startswith("It is larger than")


@POSIX
def test_thirteen_endless_loops_cost_one_limit(tmp_path):
    names = [f"{a}_{b}" for a, b in (i.split(".") for i in LOOPS)]
    text = "".join(f"def {name}(*a):\n    while True: pass\n" for name in names)
    path = tmp_path / "a.py"
    path.write_text(text + "order_bag = 'b'\n")
    rows = grade_one(path, [*LOOPS, "order.bag"], Limits(seconds=1))
    assert [row.status for row in rows] == ["error"] * 13 + ["pass"]
    assert rows[0].evidence == "It was still running after 0.5 seconds."
    assert rows[1].evidence == "It was still running after 0.25 seconds."


LOOPS = (
    "pe.table", "ffn.forward", "ffn.backward", "layer_norm.forward", "layer_norm.backward", "softmax.forward",
    "softmax.backward", "attention.forward", "heads.split", "heads.merge", "embedding.forward",
    "cross_entropy.forward", "block.forward",
)  # fmt: skip


# --- interrupted ------------------------------------------------------------------------------------


@pytest.fixture
def small_class(tmp_path):
    return write_class(tmp_path / "class")


@pytest.fixture(scope="module")
def class_to_read(tmp_path_factory):
    """The same, for tests that change nothing in it."""
    return write_class(tmp_path_factory.mktemp("read") / "class")


def write_class(folder):
    folder.mkdir()
    for i in range(12):
        text = hostile.RIGHT if i % 3 else hostile.ZEROS
        pause = (
            0.05 if i < 6 else 0.3
        )  # whoever interrupts after three of them is in time, on a busy machine too
        (folder / f"s{i:02}.py").write_text(f"student = 'S{i}'\nimport time\ntime.sleep({pause})\n{text}")
    return folder


@pytest.fixture(scope="module")
def whole_table(class_to_read, tmp_path_factory):
    """What every run must come to in the end; no process is started for it."""
    judges, table = {}, tmp_path_factory.mktemp("whole") / "whole.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hand, "judged", lambda self, path: in_this_process(judges, self, path))
        write_csv(grade(class_to_read, hostile.IDS, workers=1), table)
        judges["one"].close()
    return table.read_bytes()


def command(folder, out, *more):
    return [
        sys.executable,
        "-m",
        "npformer",
        "grade",
        str(folder),
        "--csv",
        str(out),
        ONLY,
        "--workers=2",
        *more,
    ]


@POSIX
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, shelter.KILL])
def test_an_interrupted_run_goes_on_to_the_same_table(
    number, class_to_read, whole_table, tmp_path, monkeypatch
):
    out, temporary = tmp_path / "out.csv", tmp_path / "temporary"
    temporary.mkdir()
    use_as_temporary(temporary, monkeypatch)
    process = subprocess.Popen(
        command(class_to_read, out), stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    for _ in range(3):
        process.stderr.readline()
    seen = running(temporary) or not shelter.LINUX
    process.send_signal(number)
    said = process.communicate(timeout=60)[1]
    journal = tmp_path / "out.csv.journal"
    kept = len(journal.read_text().splitlines()) - 1
    assert 3 <= kept < 12 and not out.exists()
    if number != shelter.KILL:
        assert process.returncode == 128 + number and "--resume goes on from there" in said
    assert seen, "the run's processes can be told by their folder"
    wait_for_nothing(temporary)
    with journal.open("a") as file:
        file.write('{"file": "s11.py", "rep')  # as a full disk would leave it
    again = subprocess.run(
        command(class_to_read, out, "--resume"), capture_output=True, text=True, timeout=120
    )
    assert again.returncode == 0, again.stderr
    assert out.read_bytes() == whole_table and not journal.exists()


def in_this_process(judges, hand, path):
    if "one" not in judges:
        judges["one"] = Judge(hand.course.limits)
    return grade_file(judges["one"], str(path), str(hand.course.folder), hand.course.ids)


def wait_for_nothing(temporary):
    """What belonged to the run ends with it."""
    for _ in range(200):
        if not (left := running(temporary)):
            return
        time.sleep(0.05)
    raise AssertionError(f"still running: {left}")


def test_a_changed_file_is_judged_again(small_class, tmp_path):
    out = tmp_path / "out.csv"
    with Journal(out) as journal:
        grade(small_class, ["order.bag"], workers=2, journal=journal)
    (small_class / "s05.py").write_text("order_bag = 'a'")
    judged = []
    with Journal(out, resume=True) as journal, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hand, "judged", lambda self, path: judged.append(path.name) or REPORT)
        rows = grade(small_class, ["order.bag"], journal=journal)
    assert judged == ["s05.py"] and [row.status for row in rows].count("pass") == 11
    journal.remove()
    assert not journal.path.exists()


REPORT = {
    "student": "",
    "digest": "",
    "open": [],
    "reports": [{"status": "error", "codes": [], "evidence": "", "hint": "", "question": ""}],
}


def test_another_run_s_journal_is_refused(small_class, tmp_path, capsys):
    out = tmp_path / "out.csv"
    with Journal(out) as journal, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Hand, "judged", lambda self, path: REPORT)
        grade(small_class, ["order.bag"], journal=journal)
    assert cli.main(["grade", str(small_class), "--csv", str(out), ONLY, "--resume"]) == 2
    assert "belongs to other exercises, limits or another version" in capsys.readouterr().err
    with Journal(out, resume=True) as journal:
        journal.path.write_text("")
        assert journal.begin(grading.Class(small_class, [], ("order.bag",), Limits())) == {}


@POSIX
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_a_run_with_their_code(number, small_class, tmp_path, monkeypatch, capsys):
    """Whether a handler of ours catches them or Python's own has come first."""

    def grade_and_stop(*arguments, **options):
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        os.kill(os.getpid(), number)
        time.sleep(5)

    monkeypatch.setattr(grading, "grade", grade_and_stop)
    before = signal.getsignal(number)
    assert cli.main(["grade", str(small_class), "--csv", str(tmp_path / "o.csv")]) == 128 + number
    assert "--resume goes on from there" in capsys.readouterr().err and signal.getsignal(number) == before


def test_what_the_system_leaves_open_and_what_is_passed_over_is_said(
    small_class, tmp_path, monkeypatch, capsys
):
    (small_class / "x.py").mkdir()
    monkeypatch.setattr(Hand, "judged", lambda self, path: {**REPORT, "open": ["network"]})
    assert cli.main(["grade", str(small_class), "--csv", str(tmp_path / "o.csv"), "--only=pe.table"]) == 0
    shown_ = capsys.readouterr()
    assert "This system did not close for them: network. See --container." in shown_.out
    assert shown_.err.startswith("passed over: x.py\n")


# --- the hands --------------------------------------------------------------------------------------


def test_a_judge_that_ends_is_replaced_and_costs_one_submission(small_class, monkeypatch):
    """Its first line on s01 is its last, twice."""
    say = Hand._say

    def deadly(self, line):
        say(self, {"path": None} if line.get("path", "").endswith("s01.py") else line)

    monkeypatch.setattr(Hand, "_say", deadly)
    for path in list(small_class.iterdir())[:]:
        if path.name > "s03.py":
            path.unlink()
    rows = grade(small_class, ["order.bag"], workers=1)
    assert [row.status for row in rows] == ["pass", "not read", "pass", "pass"]
    assert rows[1].evidence == "The grader ended on this file; look at it yourself."


def test_an_error_of_ours_is_not_swallowed(small_class, monkeypatch):
    def full(self, path):
        raise OSError("no space left on device")

    monkeypatch.setattr(Hand, "judged", full)
    with pytest.raises(OSError, match="no space left"):
        grade(small_class, ["order.bag"], workers=2)


def test_a_hand_that_is_closed_starts_nothing(small_class, tmp_path):
    hand = Hand(grading.Class(small_class, [], ("order.bag",), Limits()), str(tmp_path))
    hand.work(queue.Queue(), queue.Queue())  # open still, and nothing left to do
    hand.hang_up()
    hand.close()
    assert hand.judged(small_class / "s00.py")["reports"][0]["status"] == "not read"
    hand.work(queue.Queue(), queue.Queue())
    assert hand.process is None


# --- the folder -------------------------------------------------------------------------------------


@POSIX
def test_folders_that_hold_no_submissions_are_passed_over(tmp_path, monkeypatch):
    folder = tmp_path / "class"
    folder.mkdir()
    hostile.write(folder, out=tmp_path / "out.csv", good=1)
    found, passed_over = listed(folder)
    names = {shown(path, folder) for path in found}
    assert names == {name.replace("\n", "\\n") for name in hostile.cases()} | {
        "good_000.py", "n\\xff\\xfe.py", *hostile.NOT_READ
    }  # fmt: skip
    assert passed_over == ["linked", "x.py"]

    def walk(top, onerror):
        onerror(PermissionError(13, "no", str(folder / "secret")))
        yield str(folder), [], ["a.py"]

    monkeypatch.setattr(os, "walk", walk)
    assert listed(folder) == ([folder / "a.py"], ["secret"])


def test_a_file_called_numpy_harms_nobody_where_we_are_called_from(tmp_path, monkeypatch, capsys):
    for name in ("numpy.py", "json.py", "ada.py"):
        (tmp_path / name).write_text(hostile.RIGHT)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["grade", ".", "--csv", "out.csv", ONLY]) == 0
    assert Counter(row["status"] for row in rows_of(tmp_path / "out.csv").values()) == {"pass": 9}
