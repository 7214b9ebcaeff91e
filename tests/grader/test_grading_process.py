"""Tests of `grading_process`: it survives everything that a worker can send or do."""

import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from conftest import ThreadWorker

from npformer.exercises import check as check_exercise
from npformer.exercises import checker, templates
from npformer.exercises.probe import limit_time
from npformer.exercises.remote_calls import RemoteResult
from npformer.exercises.verdict import make_finding
from npformer.grader import grading_process, worker_process
from npformer.grader.grading_process import Limits, SubmissionGrader
from npformer.grader.worker.protocol import Channel, pack


@pytest.fixture
def grade_replies(thread_grader):
    """A function that grades a file whose workers send fixed replies.

    Each worker sends the given values or bytes, whatever it receives, and then closes the channel. The
    function returns the status and the evidence in each row of the result.
    """
    with ExitStack() as stack:

        def grade(
            *replies,
            ids=("pe.table",),
            cpu_used=0.0,
            received_limits=None,
            wall_left=None,
            wall_left_for_calls=None,
            budget=grading_process.BUDGET,
        ):
            def launch_worker():
                if wall_left is not None:
                    thread_grader.wall_left = wall_left
                grader_end, worker_end = socket.socketpair()
                stack.enter_context(worker_end)
                for reply in replies:
                    Channel(worker_end).send(reply if isinstance(reply, bytes) else pack(reply, []))
                if wall_left_for_calls is None:
                    worker_end.shutdown(socket.SHUT_WR)
                if received_limits is not None:
                    received_limits.append((thread_grader.cpu, thread_grader.wall_left))
                thread_grader.worker = ThreadWorker(Channel(grader_end), cpu_used)
                return thread_grader.worker.channel

            def read_answers(reply):
                SubmissionGrader.read_answers(thread_grader, reply)
                thread_grader.wall_left = wall_left_for_calls

            thread_grader.launch_worker = launch_worker
            if wall_left_for_calls is not None:  # The first reply takes as long as it needs.
                thread_grader.read_answers = read_answers
            return [
                (row.status, row.evidence) for row in thread_grader.grade("a.py", b"", ids, budget=budget)
            ]

        yield grade


def make_first_reply(*ids):
    """Return the first reply of a worker, in which every answer is a function."""
    texts = {"student": "Ada", "problem": "", "notes": "", "names": ""}
    return texts | {"answers": dict.fromkeys(ids, len), "reasons": dict.fromkeys(ids, "")}


TABLE = make_first_reply("pe.table")
ERROR = {"type_name": "KeyError", "message": "x", "line": 3, "function": "f\n"}
ENDED = "The code ended the program."
NO_ANSWER = templates.sentence(make_finding("no_answer_sent"))

# --- forged replies --------------------------------------------------------------------------------

FORGED_REPLIES = {
    "no bytes": b"",
    "no JSON": b"\xff" * 8,
    "zeros": b"\0" * 8,
    "a number": 3,
    "unknown callback": {"callback": 5, "args": ()},
    "no changed": {"value": 3},
    "no value": {"changed": []},
    "changed number": {"value": 3, "changed": [0]},  # pe.table has no array arguments that could change
    "changed text": {"value": 3, "changed": ["x"]},
    "no list": {"value": 3, "changed": 0},
    "function as value": {"value": len, "changed": []},
    "empty error": {"error": {}, "changed": []},
    "number as error": {"error": 3, "changed": []},
}


@pytest.mark.parametrize("reply", FORGED_REPLIES.values(), ids=FORGED_REPLIES)
def test_request_gives_up_after_forged_reply(grade_replies, reply):
    ((status, evidence),) = grade_replies(TABLE, reply)
    assert status == "error" and evidence in (ENDED, NO_ANSWER)


FORGED_FIRST_REPLIES = {
    "a number": 3,
    "no answers": {"answers": {}},
    "no texts": {"student": 1, "answers": {"pe.table": 1}, "reasons": {"pe.table": ""}},
    "no reasons": {"answers": {"pe.table": 1}},
    "number as reason": TABLE | {"reasons": {"pe.table": 1}},
    "function as student": TABLE | {"student": len},
}


@pytest.mark.parametrize("reply", FORGED_FIRST_REPLIES.values(), ids=FORGED_FIRST_REPLIES)
def test_read_answers_rejects_forged_first_reply(grade_replies, reply):
    assert grade_replies(reply) == [("not read", NO_ANSWER)]


def test_call_remotely_limits_callbacks(grade_replies, monkeypatch):
    monkeypatch.setattr(grading_process, "MAX_CALLBACKS", 20)
    callback = {"callback": 0, "args": (1,)}
    rows = grade_replies(make_first_reply("block.forward"), *[callback] * 22, ids=["block.forward"])
    assert rows == [("error", NO_ANSWER)]


def grade_forged_value(grade_replies, reply):
    """Return the evidence for a worker that sends this reply to every call of pe.table."""
    return grade_replies(TABLE, *[reply | {"changed": []}] * 99)[0][1]


@pytest.mark.parametrize("value", [{"value": np.zeros((6, 8)), "changed": [0]}, ERROR, {"error": ERROR}])
def test_call_remotely_reads_plain_fields(grade_replies, value):
    """A dict that imitates an object of the checker is treated as a plain dict."""
    assert " dict" in grade_forged_value(grade_replies, {"value": value})


def test_call_remotely_reports_errors(grade_replies):
    evidence = grade_forged_value(grade_replies, {"error": ERROR})
    assert evidence == "The function stopped with KeyError: “x” (line 3 of f)."
    evidence = grade_forged_value(grade_replies, {"error": ERROR | {"line": None}})
    assert evidence == "The function stopped with KeyError: “x”."


@pytest.mark.parametrize("field", [{"line": 2**30}, {"line": "3"}, {"line": True}, {"message": 3}], ids=repr)
def test_call_remotely_rejects_forged_error_fields(grade_replies, field):
    reply = {"error": ERROR | field, "changed": []}
    assert grade_replies(TABLE, *[reply] * 99) == [("error", NO_ANSWER)]


def test_call_remotely_reports_changed_arguments(thread_grader):
    thread_grader.answers = {}
    thread_grader.failure, thread_grader.wall_left, thread_grader.cpu = None, 5.0, 1.0
    grader_end, worker_end = socket.socketpair()
    thread_grader.channel = Channel(grader_end)
    with worker_end:
        Channel(worker_end).send(pack({"value": 2, "changed": [1]}))
        assert thread_grader.call_remotely(0, 3, np.ones(2)) == RemoteResult(2, (1,))
        grader_end.close()
    thread_grader.channel = None


# --- time limits -----------------------------------------------------------------------------------


def test_exchange_uses_up_the_wall_limit(thread_grader):
    thread_grader.wall_left = 600.0
    grader_end, worker_end = socket.socketpair()

    def reply_later():
        channel = Channel(worker_end)
        channel.receive()
        time.sleep(0.1)  # The exchange has begun, so it lasts at least this long.
        channel.send(b"x")

    with grader_end, worker_end:
        thread = threading.Thread(target=reply_later)
        thread.start()
        assert thread_grader.exchange(Channel(grader_end), b"") == b"x"
        thread.join()
    assert thread_grader.wall_left <= 599.9


LOOKS_AT_TIMER = """
import signal
import numpy as np
def softmax_forward(s):
    if signal.getitimer(signal.ITIMER_REAL)[0]:
        raise RuntimeError("the wall limit of the checker is running")
    powers = np.exp(s - s.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
"""


def test_exchange_does_not_count_for_the_checker(thread_grader):
    """While the checker waits for a worker, here a thread of this process, no timer of the checker runs."""
    with limit_time(1000):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        (row,) = thread_grader.grade("a.py", LOOKS_AT_TIMER.encode(), ["softmax.forward"])
    assert row.status == "pass", row


def test_request_stops_waiting_at_the_limit(grade_replies, thread_grader):
    thread_grader.limits = Limits(seconds=2, wall=1e-9)
    assert grade_replies(TABLE) == [("not read", "The code was still running after 2 seconds.")]
    assert grade_replies(TABLE, wall_left=0.0) == [
        ("not read", "The code was still running after 2 seconds.")
    ]
    thread_grader.limits = Limits(seconds=1)
    rows = grade_replies(TABLE, cpu_used=0.9)
    assert rows == [("error", "The code was still running after 1 second.")]
    rows = grade_replies(TABLE, wall_left_for_calls=0.05)
    assert rows == [("error", "The code was still running after 1 second.")]


def test_start_worker_halves_time_after_each_loop(thread_grader, grade_replies):
    """Endless loops in four functions take less than twice the time of one loop."""
    ids = ("pe.table", "ffn.forward", "softmax.forward", "heads.split")
    limits = []  # (CPU seconds, wall seconds) of each worker
    thread_grader.limits = Limits(seconds=8)
    rows = grade_replies(make_first_reply(*ids), ids=ids, received_limits=limits, cpu_used=8.0)
    endings = [("error", f"The code was still running after {n}.") for n in ("8 seconds", "4 seconds")]
    assert rows[:2] == endings and {status for status, _ in rows} == {"error"}
    assert limits == [(8, 24), (4, 12), (2, 6), (1, 3)]
    assert grade_replies(TABLE, received_limits=limits)
    assert limits[4:] == [(8, 24)], "the file of the next student has all of its time"


def test_start_worker_keeps_time_if_none_was_used(thread_grader, grade_replies):
    limits = []
    thread_grader.limits = Limits(seconds=8000)
    ids = ("pe.table", "ffn.forward")
    assert grade_replies(make_first_reply(*ids), ids=ids, received_limits=limits) == [("error", ENDED)] * 2
    assert len(limits) == 2 and all(cpu > 7000 for cpu, _ in limits)


def test_endless_files_of_a_student_cost_three_limits(thread_grader, grade_replies):
    """The files of a student share three time limits. Each endless file halves the time of the next file."""
    thread_grader.limits = Limits(seconds=40)
    budget, costs = grading_process.BUDGET, []
    for _ in range(100):
        grade_replies(TABLE, cpu_used=1000.0, budget=budget)
        budget -= thread_grader.used
        costs.append(thread_grader.used)
        if thread_grader.used == 0.0:
            break
    assert costs[:6] == [1.0, 0.5, 0.25, 0.125, 0.0625, 0.05]
    assert 2.9 < sum(costs) <= 3.0 and costs[-1] == 0.0


def test_ended_process_uses_no_memory():
    process = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True)
    status = Path(f"/proc/{int(process.stdout)}/smaps_rollup")
    assert worker_process._sum_fields(status, ["Pss", "SwapPss"]) == 0


# --- the server ------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A directory that is on the search path, like the current directory."""
    current = tmp_path / "current"
    root = tmp_path / "root"
    current.mkdir()
    root.mkdir()
    monkeypatch.chdir(current)
    monkeypatch.setattr(sys, "path", ["", str(current), str(root), "/packages"])
    return root


def test_make_search_path_leaves_out_a_clone(root):
    assert grading_process._make_search_path(root) == ["/packages"]


def test_make_search_path_keeps_site_packages(root):
    (root / "numpy").mkdir()
    assert grading_process._make_search_path(root) == [str(root), "/packages"]


def test_choose_covered_leaves_needed_directories(tmp_path):
    """If Python itself is in a secret directory, this directory cannot be covered."""
    secret = [tmp_path / "with_python", tmp_path / "class"]
    needed = [str(tmp_path / "with_python" / "bin")]
    assert grading_process._choose_covered(secret, needed) == [str(tmp_path / "class")]


# --- the checker -----------------------------------------------------------------------------------


def raise_overflow(exercise_id, answer, level):
    """A checker that raises an unexpected error."""
    raise OverflowError


def ignore_end_of_worker(exercise_id, answer, level):
    """A checker that catches WorkerEnded, like an error of the student's code, and passes the answer."""
    for _ in range(2):
        with pytest.raises(grading_process.WorkerEnded):
            answer()
    return check_exercise("order.bag", "b")


CHECKERS = [(raise_overflow, "This answer cannot be checked (OverflowError)."), (ignore_end_of_worker, ENDED)]


@pytest.mark.parametrize(("check", "evidence"), CHECKERS)
def test_check_answer_survives_errors_of_the_checker(grade_replies, monkeypatch, check, evidence):
    monkeypatch.setattr(grading_process, "check", check)
    assert grade_replies(TABLE) == [("error", evidence)]


@pytest.mark.parametrize(("level", "has_questions"), [(1, False), (3, True)])
def test_grade_feedback_depends_on_level(thread_grader, level, has_questions):
    thread_grader.limits = Limits(level=level)
    (row,) = thread_grader.grade("a.py", b"order_bag = 'a'", ["order.bag"])
    assert bool(row.question) is bool(row.hint) is has_questions


LARGE_REPLIES = {
    "frame of empty lists": (
        "import gc\ndef softmax_forward(s): return [[]] * 240_000\norder_bag = [[[]] * 400] * 400\n"
    ),
    "many arrays in many callbacks": (
        "import numpy as np\na = [np.zeros(1)] * 80_000\n"
        "def block_forward(x, attend, *rest):\n    while True: attend(a)\n"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("text", LARGE_REPLIES.values(), ids=LARGE_REPLIES)
def test_grade_bounds_the_cost_of_replies(text, tmp_path, monkeypatch):
    monkeypatch.setattr(checker, "SECONDS", 1.0)
    ids = ["order.bag", "softmax.forward", "block.forward"]
    with SubmissionGrader(str(tmp_path), Limits(seconds=5)) as grader:
        rows = grader.grade("a.py", text.encode(), ids)
        assert not any(row.status == "pass" for row in rows)
