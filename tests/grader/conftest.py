"""The grader starts processes by fork: where there is none, it says so, and these tests have nothing to ask."""

import os
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Pipe
from types import SimpleNamespace

import pytest

from npformer.grader import judge, run, student
from npformer.grader.judge import Judge, Limits, Row

collect_ignore_glob = [] if hasattr(os, "fork") else ["test_*.py"]


def judged_by(grade, ways=()):
    """In the place of all judges a function: to start a judge takes longer."""

    def judged(files, ids, *settings):
        for file in files:
            data = run._read(file)
            rows = (
                judge.unread(file.name, ids, data)
                if isinstance(data, str)
                else grade(file.name, data, tuple(ids))
            )
            yield file.name, ways, judge.digest(data), rows

    return judged


@pytest.fixture(scope="session")
def kept_judged(tmp_path_factory):
    """One judge for all tests that ask for it, which remembers its replies."""
    said = {}

    def grade(*job):
        if job not in said:
            said[job] = one.grade(*job)
        return said[job]

    with Judge(str(tmp_path_factory.mktemp("judge")), Limits()) as one:
        yield judged_by(grade)


@pytest.fixture
def kept(kept_judged, monkeypatch):
    """That one in the place of all judges, in tests of what is done with the replies."""
    monkeypatch.setattr(run, "judged", kept_judged)


@pytest.fixture
def asked(monkeypatch):
    """What a judge who sees everything as right is asked."""
    seen = []

    def grade(name, data, ids):
        seen.append(data)
        return [Row(name, "", exercise_id, "pass", evidence="Seen.") for exercise_id in ids]

    monkeypatch.setattr(run, "judged", judged_by(grade, ["network"]))
    return seen


class Left(BaseException):
    """In the place of os._exit."""


def leave(code):
    raise Left(code)


@pytest.fixture
def inside(monkeypatch, tmp_path):
    """A judge whose students are threads of this process: what happens on both sides is seen here."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b"[]")
    monkeypatch.setattr(judge, "_serving", lambda *given: (SimpleNamespace(wait=lambda: 0), ours))
    monkeypatch.setattr(student, "os", SimpleNamespace(**{**vars(os), "_exit": leave}))
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.chdir(tmp_path)
    with theirs, Judge(str(tmp_path), Limits(seconds=2)) as one:
        one.theirs, one.forked = theirs, partial(forked, theirs)
        yield one
    sys.modules.pop("submission", None)


def forked(server, request):
    """A process for one submission that is a thread."""
    server.sendall(b"0.0")  # CPU seconds, for the judge who hangs up
    pipe, its_pipe = Pipe()

    def run():
        with its_pipe, suppress(EOFError, OSError, Left):
            student.work(its_pipe)

    threading.Thread(target=run).start()
    return pipe
