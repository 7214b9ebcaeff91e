"""What teachers get: points, a roster, a page, feedback, Gradescope's file, containers, a cluster."""

import errno
import html.parser
import json
import os
import sys
from importlib.util import find_spec

import hostile
import pytest

from npformer import cli
from npformer.exercises.grader import grading, judging, reports
from npformer.exercises.grader.assignments import write_assignment
from npformer.exercises.grader.grading import Class, Row, grade, grade_one
from npformer.exercises.grader.judging import Judge, Limits, grade_bytes
from npformer.exercises.grader.reports import card, feedback, read_points, read_roster, summary

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="the fake engine is a shell script")
IDS = ("order.bag", "pe.table")


def row(submission, exercise="order.bag", status="pass", codes="", student="", evidence="Seen.", question=""):
    return Row(submission, student, exercise, status, codes, evidence, "", question)


@pytest.fixture
def folder(tmp_path):
    where = tmp_path / "class"
    where.mkdir()
    (where / "ada.py").write_text(f"student = 'Ada'\n{hostile.RIGHT}")
    (where / "b<b>.py").write_text("order_bag = 'a'\nstudent = '<script>'\n")
    return where


def test_everything_at_once(folder, tmp_path, capsys):
    (tmp_path / "points.toml").write_text('default = 0\npe.table = 3\n"order.bag" = 0.5\n')
    (tmp_path / "roster.csv").write_text("id,Name\n1,Ada\n2,Ben\n")
    names = {
        "csv": "out.csv",
        "html": "page.html",
        "feedback": "back",
        "points": "points.toml",
        "roster": "roster.csv",
    }
    options = [f"--{name}={tmp_path / file}" for name, file in names.items()]
    assert cli.main(["grade", str(folder), *options, "--only=order.bag,pe.table"]) == 0
    out = capsys.readouterr().out
    assert "Missing: Ben.\nNot on the roster: b<b>.py.\n" in out
    assert "say: If two words trade places, which numbers of the attention change?" in out
    table = (tmp_path / "out.csv").read_text().splitlines()
    assert table[0].endswith(",points") and [line.rsplit(",", 1)[1] for line in table[1:]] == [
        "0.5",
        "3",
        "0",
        "0",
    ]
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page and "&lt;script&gt;" in page and "http" not in page.replace("http-equiv", "")
    html.parser.HTMLParser().feed(page)
    assert "<td class=n>3.5<td>" in page and "Missing: Ben." in page and "What to teach again" in page
    back = tmp_path / "back"
    assert sorted(os.listdir(back)) == ["ada.py.md", "b_b_.py.md"]
    assert (
        (back / "ada.py.md").read_text().startswith("# Ada\n\n2 right of 2 answered.\nPoints: 3.5 of 3.5.\n")
    )
    assert "Not answered: pe.table." in (back / "b_b_.py.md").read_text()


def test_gradescope_gets_its_file(folder, tmp_path, capsys):
    out = tmp_path / "results.json"
    assert (
        cli.main(["check", str(folder / "ada.py"), "--gradescope", str(out), "--only=order.bag,pe.table"])
        == 0
    )
    found = json.loads(out.read_text())
    assert found["score"] == 2 and [test["status"] for test in found["tests"]] == ["passed", "passed"]
    assert found["tests"][0] == {
        "name": "order.bag",
        "score": 1.0,
        "max_score": 1.0,
        "status": "passed",
        "output": "Right\nEvery check agrees.",
        "output_format": "text",
        "visibility": "visible",
    }
    options = ["--csv", str(tmp_path / "o.csv"), "--gradescope", str(tmp_path / "b.json"), "--only=order.bag"]
    assert cli.main(["grade", str(folder), *options]) == 2
    assert "the results of one submission; this folder holds more" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("order_bag = 'b'", 0),
        ("order_bag = 'a'", 1),
        ("", 1),
        ("order_bag = 'b'\n1 / 0", 0),
        ("pe_even = 'b'\n1 / 0", 1),
    ],
)
def test_the_exit_code_says_whether_all_is_right(text, code, tmp_path):
    (tmp_path / "a.py").write_text(text)
    assert cli.main(["check", str(tmp_path / "a.py"), "--only", "order.bag"]) == code


def test_a_whole_file_may_leave_exercises_out(tmp_path):
    (tmp_path / "a.py").write_text("order_bag = 'b'")
    assert cli.main(["check", str(tmp_path / "a.py")]) == 0


@pytest.mark.parametrize("option", ["--seconds=0", "--seconds=nan", "--wall=-1", "--megabytes=0"])
def test_limits_that_are_none_are_refused(option, tmp_path, capsys):
    (tmp_path / "a.py").write_text("")
    assert cli.main(["check", str(tmp_path / "a.py"), option]) == 2
    assert "are numbers above 0" in capsys.readouterr().err


# --- points, rosters, replies -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pe.table = '3'", "p.toml: pe.table is '3'; expected a number of points"),
        ("pe.table = true", "expected a number of points"),
        ("pe.table = -1", "expected a number of points"),
        ("pe.tabel = 1", "there is no exercise 'pe.tabel'"),
        ("pe.table = = 1", "p.toml: "),
    ],
)
def test_points_that_make_no_sense_are_refused(text, message, tmp_path):
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(ValueError, match=message.replace("?", ".")):
        read_points(tmp_path / "p.toml", IDS)


def test_points_are_one_unless_said(tmp_path):
    (tmp_path / "p.toml").write_text('"pe.table" = 2.5')
    assert read_points(tmp_path / "p.toml", IDS) == {"order.bag": 1.0, "pe.table": 2.5}


def test_a_roster_knows_students_by_name_and_by_path(tmp_path):
    roster = tmp_path / "r.csv"
    roster.write_text(
        "Student,mail\nAda Lovelace,al\nBen,ben@x.org\nBen Ode,bo\nCem,c1\nDot,\n", encoding="utf-8-sig"
    )
    rows = [
        row("x.py", student="ada lovelace"),
        row("Ben Ode_17_file/hw.py"),
        row("ben.ipynb"),
        row("ben@x.org/hw.py"),
        row("zed.py"),
    ]
    found = read_roster(roster, rows)
    assert found.missing == ["Cem", "Dot"] and found.unknown == ["zed.py"]
    assert found.twice == {"Ben": ["ben.ipynb", "ben@x.org/hw.py"]}
    assert str(found) == (
        "Missing: Cem, Dot.\nMore than once: Ben (ben.ipynb, ben@x.org/hw.py).\nNot on the roster: zed.py."
    )
    roster.write_text("name\nzed\n")
    assert str(read_roster(roster, [row("zed.py")])) == "Everybody is there."


@pytest.mark.parametrize("text", ["", "mail\nx\n"])
def test_a_roster_without_names_is_refused(text, tmp_path):
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(ValueError, match="expected a column called student or name"):
        read_roster(tmp_path / "r.csv", [])


def test_feedback_files_do_not_overwrite_each_other(tmp_path):
    from npformer.exercises.grader.reports import write_feedback

    rows = [row("a/x.py"), row("a_x.py"), row("A?x.py"), row("///"), row("...")]
    assert write_feedback(rows, None, tmp_path / "f") == 5
    assert sorted(os.listdir(tmp_path / "f")) == ["A_x.py~3.md", "_.md", "_~2.md", "a_x.py.md", "a_x.py~2.md"]


def test_feedback_says_what_was_not_read_and_leaves_markdown_alone():
    rows = [
        row("a.py", status="not read", evidence="a.py, line 1: `x` *y*."),
        row("a.py", "pe.table", "error", "", "", "It stopped with <b>.", "What?"),
    ]
    text = feedback(rows)
    assert r"Not read to the end. a.py, line 1: \`x\` \*y\*." in text
    assert "## pe.table: Not checked to the end\n\nIt stopped with \\<b\\>.\n\nWhat?" in text


def test_a_card_without_a_title_of_the_checker_s_own():
    assert card(row("a.py", status="not answered", evidence="")) == "Not answered"


def test_a_class_that_is_explained_by_nothing_has_no_patterns():
    said = summary([row("a.py", status="unrecognised"), row("b.py", status="not answered")])
    assert said.startswith(
        "2 submissions, 1 answers, 0 right.\nExplained by no known mistake:\n     1  order.bag; teach"
    )
    assert "say: " in said


# --- assignments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["nbgrader", "otter"])
def test_an_assignment_is_a_notebook_without_answers(form, tmp_path, capsys):
    out = tmp_path / "hw.ipynb"
    ids = "pe.table,order.bag,pe.entry"
    assert (
        cli.main(["assignment", "--exercises", ids, "--out", str(out), "--format", form, "--points=1.5"]) == 0
    )
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(out, 4)
    nbformat.validate(notebook)
    text = out.read_text(encoding="utf-8")
    assert 'assert check(\\"pe.table\\", pe_table)' in text and "1.5" in text
    assert "order_bag = None" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--exercises=pe.table", "--out={}/a.txt"], "'a.txt' should end in .ipynb"),
        (["--exercises=pe.table", "--out={}/none/a.ipynb"], "there is no folder '{}/none'"),
        (["--exercises=pe.table,pe.table", "--out={}/a.ipynb"], "every exercise once"),
        (["--exercises=pe.table", "--out={}/a.ipynb", "--points=-1"], "expected points of 0 or more"),
        (["--exercises=pe.tabel", "--out={}/a.ipynb"], "there is no exercise 'pe.tabel'"),
    ],
)
def test_an_assignment_that_cannot_be_is_refused(arguments, message, tmp_path, capsys):
    assert cli.main(["assignment", *(a.format(tmp_path) for a in arguments)]) == 2
    assert message.format(tmp_path) in capsys.readouterr().err


def test_an_asserted_result_shows_its_card(tmp_path):
    write_assignment(["pe.table"], tmp_path / "a.ipynb")
    names = {"np": __import__("numpy")}
    for cell in json.loads((tmp_path / "a.ipynb").read_text())["cells"]:
        source = "".join(cell["source"])
        if "import" in source:
            exec(source, names)
        if source.startswith("assert"):
            test = source
    names["pe_table"] = lambda n, d: names["np"].zeros((n, d))
    with pytest.raises(AssertionError, match="Not yet"):
        exec(test, names)
    exec(test.replace("assert", "assert not"), names)
    with pytest.raises(AssertionError, match="mine"):
        exec(f"{test.strip()}, 'mine'", names)
    exec(hostile.RIGHT, names)
    exec(test, names)


# --- a Python for each submission, and containers -----------------------------------------------------


def test_without_a_fork_every_submission_gets_a_python(tmp_path):
    hanging = hostile.RIGHT.replace("    powers =", "    while True: pass\n    powers =")
    deaf = "import time\norder_bag = 'b'\ndef softmax_forward(s): time.sleep(3000)\n"
    with Judge(Limits(seconds=1, wall=2), fork=False) as judge:
        reports = grade_bytes(judge, "a.py", hanging.encode(), hostile.IDS)["reports"]
        assert [report["status"] for report in reports] == ["pass", "pass", "error"]
        assert reports[2]["evidence"] == "It was still running after 0.5 seconds."
        report = grade_bytes(judge, "b.py", deaf.encode(), ["order.bag", "softmax.forward"])
        assert [report["status"] for report in report["reports"]] == ["pass", "error"]
        assert report["open"] == ["files", "network"]
        early = grade_bytes(judge, "c.py", b"import os\nos._exit(0)", ["order.bag"])["reports"]
        assert early[0]["evidence"] == "It ended the program."


@POSIX
def test_a_container_is_asked_for_all_its_walls(tmp_path, monkeypatch):
    """An engine that writes down what it is asked for, and runs the command in no container at all."""
    log = tmp_path / "log"
    engine = tmp_path / "podman"
    engine.write_text(
        f'#!/bin/sh\necho "$@" | tr "\\n" " " >> {log}; echo >> {log}\nif [ "$1" = run ]; then\n'
        'while [ "$1" != python ]; do shift; done; shift\n'
        f'exec env -i {sys.executable} "$@"\nfi\n'
    )
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "a.py").write_text(hostile.RIGHT)
    rows = grade_one(tmp_path / "a.py", hostile.IDS, Limits(container="podman", image="course"))
    assert [r.status for r in rows] == ["pass"] * 3
    asked, ended = log.read_text().splitlines()
    for wall in ("--network=none", "--read-only", "--cap-drop=ALL", "--user=65534:65534", "--memory=2048m"):
        assert wall in asked
    assert " course python -P -c" in asked and ended.startswith("kill npformer-")
    engine.write_text("#!/bin/sh\nexit 125\n")
    refused = "The system had no process for it."
    assert grade_one(tmp_path / "a.py", ["order.bag"], Limits(container="podman"))[0].evidence == refused

    def write_to_nobody(self, data, seconds):  # an engine that ended before it was written to
        raise BrokenPipeError

    monkeypatch.setattr(judging.Alone, "write", write_to_nobody)
    assert grade_one(tmp_path / "a.py", ["order.bag"], Limits(container="podman"))[0].evidence == refused


def test_an_engine_that_is_not_there_is_said_at_once(tmp_path, capsys, monkeypatch):
    (tmp_path / "a.py").write_text("")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli.main(["check", str(tmp_path / "a.py"), "--container=docker"]) == 2
    assert "docker is not installed; install it, or leave --container out" in capsys.readouterr().err


DOWN = "echo 'Cannot connect to the Docker daemon at unix:///run/docker.sock.' >&2; echo more >&2; exit 1"
UNKNOWN = 'if [ "$1" = image ]; then echo "Error: No such image: $3" >&2; exit 1; fi; echo CONTAINERS'


@POSIX
@pytest.mark.parametrize(
    ("engine", "said"),
    [
        (
            DOWN,
            "docker does not answer; start it, then try again. `docker ps` says: "
            "Cannot connect to the Docker daemon at unix:///run/docker.sock.",
        ),
        (
            "exit 3",
            "docker does not answer; start it, then try again. `docker ps` says: nothing, with exit code 3",
        ),
        (
            "exec sleep 9",
            "docker does not answer; start it, then try again. `docker ps` says: nothing in 0.2 seconds",
        ),
        (
            UNKNOWN,
            "docker has no image 'course'; build or pull it, or name another with --image. "
            "`docker image inspect course` says: Error: No such image: course",
        ),
    ],
)
def test_an_engine_that_would_refuse_everybody_is_asked_once(
    engine, said, folder, tmp_path, capsys, monkeypatch
):
    fake = tmp_path / "docker"
    fake.write_text(f"#!/bin/sh\n{engine}\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr("npformer.exercises.commands.ENGINE_SECONDS", 0.2 if "sleep" in engine else 60.0)
    options = ["--csv", str(tmp_path / "o.csv"), "--container=docker", "--image=course"]
    assert cli.main(["grade", str(folder), *options]) == 2
    assert capsys.readouterr().err == f"npformer grade: {said}\n"
    assert not list(tmp_path.glob("o.csv*"))


@POSIX
def test_an_engine_that_cannot_be_started_is_said(folder, tmp_path, capsys, monkeypatch):
    (tmp_path / "podman").write_bytes(b"\0\0\0\0")
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert cli.main(["check", str(folder / "ada.py"), "--container=podman"]) == 2
    assert (
        "podman does not answer; start it, then try again. `podman ps` says: Exec format error\n"
        in capsys.readouterr().err
    )


@POSIX
def test_an_engine_that_answers_is_used(folder, tmp_path, monkeypatch):
    fake = tmp_path / "podman"
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    used = []
    monkeypatch.setattr(grading, "grade_one", lambda path, ids, limits: used.append(limits.container) or [])
    assert cli.main(["check", str(folder / "ada.py"), "--container=podman"]) == 1
    assert used == ["podman"]


# --- what is asked before grading ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--html", "{}"], "'{}' is a folder; expected a file"),
        (["--roster", "{}/none.csv"], "there is no file '{}/none.csv'"),
        (["--points", "{}"], "'{}' is a folder; expected a file"),
        (
            ["--csv", "{}/begun.csv"],
            "'{}/begun.csv.journal' is of a run that was interrupted: --resume goes on; "
            "to begin anew, remove it",
        ),
    ],
)
def test_what_would_fail_at_the_end_is_said_before_grading(
    options, said, folder, tmp_path, capsys, monkeypatch
):
    (tmp_path / "begun.csv.journal").write_text("hours of work")
    monkeypatch.setattr(grading, "grade", lambda *given, **options: pytest.fail("graded"))
    options = [option.format(tmp_path) for option in options]
    assert cli.main(["grade", str(folder), "--csv", str(tmp_path / "o.csv"), *options]) == 2
    assert capsys.readouterr().err == f"npformer grade: {said.format(tmp_path)}\n"
    assert (tmp_path / "begun.csv.journal").read_text() == "hours of work"


def test_where_a_file_cannot_be_written_in_the_end_nothing_is_lost(folder, tmp_path, capsys, monkeypatch):
    """The table is there by then, and --resume goes on."""
    options = ["--csv", str(tmp_path / "o.csv"), "--html", str(tmp_path / "o.html"), "--only=order.bag"]

    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "o.html"))

    with monkeypatch.context() as patch:
        patch.setattr(reports, "write_page", full)
        assert cli.main(["grade", str(folder), *options]) == 2
    said = capsys.readouterr().err
    assert f"what is graded is in {tmp_path / 'o.csv.journal'}, and --resume goes on from there\n" in said
    assert f"grade: {str(tmp_path / 'o.html')!r} cannot be read or written: No space left on device\n" in said
    assert (tmp_path / "o.csv").exists()
    monkeypatch.setattr(grading.Hand, "judged", lambda hand, path: pytest.fail("graded again"))
    assert cli.main(["grade", str(folder), *options, "--resume"]) == 0
    assert (tmp_path / "o.html").exists() and not (tmp_path / "o.csv.journal").exists()


def test_only_files_of_python_and_notebooks_are_checked(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("hello")
    assert cli.main(["check", str(tmp_path / "a.txt")]) == 2
    assert capsys.readouterr().err == "npformer check: 'a.txt' should end in .py or .ipynb\n"
    assert cli.main(["check", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"npformer check: {str(tmp_path)!r} is a folder; expected a file\n"


# --- a cluster --------------------------------------------------------------------------------------


def test_without_dask_it_says_how_to_get_it(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match="uv sync --extra dask"):
        grade(folder, IDS, cluster="tcp://127.0.0.1:1")


@pytest.fixture
def threads_of_this_process(monkeypatch):
    """In the place of distributed: tasks run here, at once, in the order in which they were sent."""

    class Future:
        count = 0

        def __init__(self, function, arguments):
            Future.count += 1
            self.key, self.call = Future.count, (function, arguments)

        def result(self):
            function, arguments = self.call
            if arguments[2] == "killer.py":
                raise RuntimeError("the worker died")
            return function(*arguments)

    class Client:
        loop = "a loop"

        def __init__(self, address, set_as_default):
            assert address == "here"

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def submit(self, function, *arguments, pure):
            return Future(function, arguments)

    class Coming(list):
        add = list.append

        def __init__(self, loop):
            assert loop == "a loop"

        def __iter__(self):
            while self:
                yield self.pop()

    fake = type(sys)("distributed")
    fake.Client, fake.as_completed = Client, Coming
    monkeypatch.setitem(sys.modules, "distributed", fake)
    monkeypatch.setattr(grading, "IN_FLIGHT", 2)


@POSIX
def test_a_cluster_gives_the_same_table(folder, threads_of_this_process):
    (folder / "killer.py").write_text("")
    os.symlink(__file__, folder / "link.py")
    here = grade(folder, IDS)
    there = grade(folder, IDS, cluster="here")
    course = Class(folder, [folder / "ada.py"], IDS, Limits())
    assert [place for place, _ in grading.by_cluster(course, [0], "here")] == [0]
    for judge in vars(grading._kept).pop("judges").values():
        judge.close()
    killed = "The grader ended on this file (RuntimeError); look at it yourself."
    for a, b in zip(here, there, strict=True):
        assert a == b or (a.submission, b.evidence) == ("killer.py", killed)


@pytest.mark.skipif(
    find_spec("distributed") is None, reason="distributed is not installed: uv sync --extra dask"
)
def test_a_dask_worker_that_is_lost_loses_nothing(tmp_path):
    from distributed import Client, LocalCluster

    folder = tmp_path / "class"
    folder.mkdir()
    for i in range(30):
        text = hostile.RIGHT if i % 3 else hostile.ZEROS
        (folder / f"s{i:02}.py").write_text(f"student = 'S{i}'\nimport time\ntime.sleep(0.2)\n{text}")
    told = []
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:

        def tell(line):
            told.append(line)
            if len(told) == 6:
                with Client(cluster.scheduler_address, set_as_default=False) as client:
                    worker = sorted(client.scheduler_info()["workers"])[0]
                    client.submit(os._exit, 1, workers=[worker], allow_other_workers=False, pure=False)

        there = grade(folder, IDS, cluster=cluster.scheduler_address, tell=tell)
    assert there == grade(folder, IDS, workers=2) and len(told) == 30


def test_a_class_without_files_left_starts_nobody(folder):
    course = Class(folder, [], IDS, Limits())
    assert list(grading.by_workers(course, [], 2)) == []
