"""The grader starts processes by fork: where there is none, it says so, and these tests have nothing to ask."""

import os
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import pytest

from npformer.grader import grading_process as judge
from npformer.grader import supervisor as run
from npformer.grader.grading_process import Judge, Limits, Row
from npformer.grader.worker import server as worker_server
from npformer.grader.worker.protocol import Channel

collect_ignore_glob = [] if hasattr(os, "fork") else ["test_*.py"]


def reports_by(grade, missing=()):
    """Replaces the grading processes by a function: it takes long to start a process."""

    def iter_reports(files, ids, *settings):
        for file in files:
            data = run._read(file)
            rows = (
                judge.unread_rows(file.name, ids, data)
                if isinstance(data, str)
                else grade(file.name, data, tuple(ids))
            )
            yield file.name, missing, judge.digest(data), rows

    return iter_reports


@pytest.fixture(scope="session")
def kept_reports(tmp_path_factory):
    """One judge for all tests that ask for it. It remembers its replies."""
    said = {}

    def grade(*job):
        if job not in said:
            said[job] = one.grade(*job)
        return said[job]

    with Judge(str(tmp_path_factory.mktemp("judge")), Limits()) as one:
        yield reports_by(grade)


@pytest.fixture
def kept(kept_reports, monkeypatch):
    """Replaces the grading processes by that judge, in tests of what is done with the replies."""
    monkeypatch.setattr(run, "iter_reports", kept_reports)


@pytest.fixture
def one_judge(tmp_path, monkeypatch):
    """Replaces the grading processes by one judge in this process, which remembers nothing."""
    (tmp_path / "judge").mkdir()
    with Judge(str(tmp_path / "judge"), Limits()) as one:
        monkeypatch.setattr(run, "iter_reports", reports_by(one.grade))
        yield


@pytest.fixture
def asked(monkeypatch):
    """The files that a judge is asked to grade. It passes every answer."""
    seen = []

    def grade(name, data, ids):
        seen.append(data)
        return [Row(name, "", exercise_id, "pass", evidence="Seen.") for exercise_id in ids]

    monkeypatch.setattr(run, "iter_reports", reports_by(grade, ["network"]))
    return seen


class Left(BaseException):
    """Raised instead of os._exit."""


def leave(code):
    raise Left(code)


@pytest.fixture
def inside(monkeypatch, tmp_path):
    """A judge whose workers are threads of this process, so that coverage sees both sides."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b"[]")
    monkeypatch.setattr(judge, "_start_server", lambda *given: (SimpleNamespace(wait=lambda: 0), ours))
    monkeypatch.setattr(worker_server, "os", SimpleNamespace(**{**vars(os), "_exit": leave}))
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.chdir(tmp_path)
    with theirs, Judge(str(tmp_path), Limits(seconds=2)) as one:
        one.theirs, one.fork_worker = theirs, partial(start_thread, theirs)
        yield one
    sys.modules.pop("submission", None)


def start_thread(server, request):
    """Start a worker for one submission that is a thread."""
    server.sendall(b"0.0")  # CPU seconds, for the judge when it closes the worker
    here, there = socket.socketpair()

    def run():
        with there, suppress(EOFError, OSError, Left):
            worker_server.serve_submission(Channel(there))

    threading.Thread(target=run).start()
    return Channel(here)
