"""The grader starts processes by fork: where there is none, it says so, and these tests have nothing to ask."""

import os
import socket
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Pipe
from types import SimpleNamespace

import pytest

from npformer.grader import judge, run, student
from npformer.grader.frames import Line
from npformer.grader.judge import Judge, Limits

collect_ignore_glob = [] if hasattr(os, "fork") else ["test_*.py"]
ENDED = SimpleNamespace(
    wait=lambda *seconds: 0, join=lambda *seconds: 0, kill=lambda: None
)  # in the place of a process


def in_a_thread(grade):
    """In the place of a judge in a process of its own: a thread that asks `grade`."""
    line, its_line = Pipe()

    def work():
        with its_line, suppress(EOFError, OSError):
            while True:
                its_line.send(grade(*its_line.recv()))

    threading.Thread(target=work).start()
    return run.Worker(ENDED, line)


@pytest.fixture(scope="session")
def kept_grade():
    """One judge for all tests that ask for it, which remembers its replies."""
    said, lock = {}, threading.Lock()

    def grade(name, data, ids):
        job = (name, data, tuple(ids))
        with lock:
            if job not in said:
                said[job] = one.grade(*job)
        return said[job]

    with Judge() as one:
        yield grade


@pytest.fixture
def hire(monkeypatch):
    """Puts a function in the place of all judges."""
    return lambda grade: monkeypatch.setattr(run, "hired", lambda *settings: in_a_thread(grade))


@pytest.fixture(scope="session")
def kept_judge(kept_grade):
    """What stands for `run.hired` in tests of what is done with the replies: to start a judge takes longer."""
    return lambda *settings: in_a_thread(kept_grade)


@pytest.fixture
def kept(kept_judge, monkeypatch):
    """The same, in the place of all judges."""
    monkeypatch.setattr(run, "hired", kept_judge)


class Left(BaseException):
    """In the place of os._exit."""


def leave(code):
    raise Left(code)


@pytest.fixture
def inside(monkeypatch, tmp_path):
    """A judge whose students are threads of this process: what happens on both sides is seen here."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b"[]")
    monkeypatch.setattr(judge, "_serving", lambda home, hidden: (ENDED, ours))
    monkeypatch.setattr(student, "os", SimpleNamespace(**{**vars(os), "_exit": leave}))
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.chdir(tmp_path)
    with theirs, Judge(Limits(seconds=2)) as one:
        one.begin = begin
        yield one
    sys.modules.pop("submission", None)


def begin(request):
    """A process for one submission that is a thread."""
    (pipe, its_pipe), (control, keeper) = socket.socketpair(), socket.socketpair()

    def run():
        with its_pipe, keeper:
            try:
                student.work(Line(its_pipe.recv, its_pipe.sendall))
            except (EOFError, OSError, Left):
                its_pipe.close()
            keeper.sendall(b"0.0")

    threading.Thread(target=run).start()
    return pipe, control
