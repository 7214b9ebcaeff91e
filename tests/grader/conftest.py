"""Fixtures that replace the grading processes, because starting a process takes long.

The grader needs `os.fork`. On a system without `os.fork`, pytest does not collect these tests.
"""

import os
import socket
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from npformer.grader import grading_process, supervisor
from npformer.grader.bubblewrap import Protection
from npformer.grader.companions import read_companions
from npformer.grader.grading_process import Limits, Row, SubmissionGrader
from npformer.grader.worker import server as worker_server
from npformer.grader.worker.protocol import Channel
from npformer.grader.worker.student_files import StudentLoader

# The limits of submissions that end by themselves: no slow or busy machine reaches these limits.
GENEROUS = Limits(seconds=600)

collect_ignore_glob = [] if hasattr(os, "fork") else ["test_*.py"]


def make_iter_reports(grade, missing_protections=()):
    """Return a replacement for `supervisor.iter_reports` that calls `grade` in this process."""

    def iter_reports(files, ids, *settings):
        for file in files:
            data = supervisor._read_or_explain(file)
            companions = read_companions(file)
            if isinstance(data, str):
                rows = grading_process.make_unread_rows(file.name, ids, data)
            else:
                rows = grade(file.name, data, tuple(ids), companions)
            yield file.name, missing_protections, grading_process.digest(data, companions), rows

    return iter_reports


@pytest.fixture(scope="session")
def cached_iter_reports(tmp_path_factory):
    """A replacement for `supervisor.iter_reports` that grades equal files only once, shared by many tests.

    Files in different folders can be equal, because the worker receives only the last part of a path.
    """
    cache = {}

    def grade(path, data, ids, companions):
        name = Path(path).name
        key = (name, data, ids, companions)
        if key not in cache:
            cache[key] = grader.grade(name, data, ids, companions)
        return [row._replace(submission=path) for row in cache[key]]

    with SubmissionGrader(str(tmp_path_factory.mktemp("grader")), Limits()) as grader:
        yield make_iter_reports(grade)


@pytest.fixture
def cached_grading(cached_iter_reports, monkeypatch):
    """Grade equal files only once. This fixture is for tests of the steps after grading."""
    monkeypatch.setattr(supervisor, "iter_reports", cached_iter_reports)


@pytest.fixture(autouse=True)
def assume_sandbox(monkeypatch):
    """Let the command `grade` assume a sandbox, so that it also runs as root on systems without one."""
    protection = Protection(has_sandbox=True, has_own_users=False)
    monkeypatch.setattr(grading_process, "find_system_protection", lambda limits: protection)


@pytest.fixture
def uncached_grading(tmp_path, monkeypatch):
    """Grade in this process, with one submission grader and without a cache for equal files."""
    (tmp_path / "grader").mkdir()
    with SubmissionGrader(str(tmp_path / "grader"), Limits()) as grader:
        monkeypatch.setattr(supervisor, "iter_reports", make_iter_reports(grader.grade))
        yield


@pytest.fixture
def graded_data(monkeypatch):
    """Use a fake grader that passes every answer. Return the list to which it adds the bytes of each file."""
    graded = []

    def grade(name, data, ids, companions):
        graded.append(data)
        return [Row(name, "", exercise_id, "pass", evidence="Seen.") for exercise_id in ids]

    monkeypatch.setattr(supervisor, "iter_reports", make_iter_reports(grade, ["network"]))
    return graded


# --- workers that are threads ----------------------------------------------------------------------


class ExitCalled(BaseException):
    """The error that `raise_exit` raises."""


def raise_exit(code):
    """Raise ExitCalled. This function replaces os._exit, which would end the tests."""
    raise ExitCalled(code)


class ThreadWorker:
    """A fake WorkerProcess, whose thread serves one submission. It reports the given CPU time."""

    finding = None

    def __init__(self, channel, cpu_seconds=0.0):
        self.channel = channel
        self.cpu_seconds = cpu_seconds

    def end(self):
        self.channel.close()
        return self.cpu_seconds


@pytest.fixture
def thread_grader(monkeypatch, tmp_path):
    """A submission grader whose workers are threads of this process, so that coverage traces workers too."""
    monkeypatch.setattr(grading_process, "find_protection", lambda contents: Protection(True, False))
    monkeypatch.setattr(worker_server, "os", SimpleNamespace(**{**vars(os), "_exit": raise_exit}))
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # A notebook replaces it.
    modules = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    with SubmissionGrader(str(tmp_path), GENEROUS) as grader:
        monkeypatch.setattr(grader, "launch_worker", partial(start_worker_thread, grader))
        yield grader
    for name in set(sys.modules) - modules:
        is_of_student = name == "submission" or isinstance(sys.modules[name].__loader__, StudentLoader)
        if is_of_student:
            del sys.modules[name]


def start_worker_thread(grader):
    """Start a thread that serves one submission, and return the channel to it."""
    grader_end, worker_end = socket.socketpair()

    def serve():
        with worker_end, suppress(EOFError, OSError, ExitCalled):
            worker_server.serve_submission(Channel(worker_end))

    threading.Thread(target=serve).start()
    grader.worker = ThreadWorker(Channel(grader_end))
    return grader.worker.channel
