"""The grader starts processes by fork: where there is none, it says so, and these tests have nothing to ask."""

import os
from threading import Lock
from types import SimpleNamespace

import pytest

from npformer.grader import run
from npformer.grader.judge import LIMITS

collect_ignore_glob = [] if hasattr(os, "fork") else ["test_*.py"]


class Kept(run.Judges):
    """Judges as a class has them, of one process for all threads, which stays and remembers its replies."""

    def __init__(self):
        super().__init__(LIMITS)
        self.mine, self.lock, self.end, self.said = SimpleNamespace(), Lock(), super().close, {}

    def __call__(self, name, data, ids):
        job = (name, data, tuple(ids))
        with self.lock:
            if job not in self.said:
                self.said[job] = super().__call__(*job)
        return self.said[job]

    def close(self):
        pass


@pytest.fixture(scope="session")
def kept_judge():
    judges = Kept()
    yield judges
    judges.end()


@pytest.fixture
def kept(kept_judge, monkeypatch):
    """For tests of what is done with the replies: to start a judge takes longer than to ask it."""
    monkeypatch.setattr(run, "Judges", lambda limits, *hidden: kept_judge)
