"""The fixture `gradcheck` for other people's tests, and tolerances and progress of long checks."""

import importlib.metadata

import numpy as np
import pytest

import npformer as npf
from npformer.gradcheck import leaf_comparison

TEST_FILE = """
import numpy as np
import pytest


def forward(x):
    return x * x, x


def backward(dy, x):
    return 2 * dy * x


def wrong(dy, x):
    return dy * x


def test_correct(gradcheck):
    gradcheck(forward, backward, np.ones(3))


def test_wrong(gradcheck):
    gradcheck(forward, wrong, np.ones(3))


@pytest.mark.gradcheck(directions=2)
class TestMany:
    def test_directions(self, gradcheck):
        gradcheck(forward, wrong, np.ones(5))

    @pytest.mark.gradcheck(directions=4)
    def test_closest_marker(self, gradcheck):
        gradcheck(forward, wrong, np.ones(5))

    def test_argument_overrides_marker(self, gradcheck):
        gradcheck(forward, wrong, np.ones(5), directions=3)
"""


@pytest.fixture
def result(pytester):
    pytester.makepyfile(TEST_FILE)
    plugin = "npformer.gradcheck.pytest_plugin"
    return pytester.runpytest_inprocess(
        "-p", "no:npformer", "-p", plugin, "-p", "no:sugar", "--strict-markers"
    )


def test_plugin_reports_wrong_gradients_only(result):
    result.assert_outcomes(passed=1, failed=4)
    result.stdout.fnmatch_lines(["*the gradient is 1/2 times the correct gradient*"])


@pytest.mark.parametrize("count", [2, 3, 4])
def test_plugin_marker_gives_settings(result, count):
    result.stdout.fnmatch_lines([f"*{count} random directions*"])


def test_plugin_is_an_entry_point():
    (entry,) = [e for e in importlib.metadata.entry_points(group="pytest11") if e.name == "npformer"]
    assert entry.value == "npformer.gradcheck.pytest_plugin"


# Tolerances


def make_affine(error_of_W, error_of_b):
    def forward(x, W, b):
        return x @ W + b, (x, W)

    def backward(dy, cache):
        x, W = cache
        return dy @ W.T, x.T @ dy * (1 + error_of_W), dy.sum(0) * (1 + error_of_b)

    rng = np.random.default_rng(0)
    return forward, backward, rng.standard_normal((4, 3)), rng.standard_normal((3, 2)), rng.standard_normal(2)


def test_gradcheck_tolerance_of_one_leaf():
    report = npf.gradcheck(*make_affine(1e-5, 1e-5), tolerance={"W": 1e-4})
    assert [row.verdict for row in report.rows] == ["pass", "pass", "fail"]


def test_gradcheck_rejects_tolerance_of_unknown_leaf():
    with pytest.raises(ValueError, match="tolerance has the name 'w'; expected some of x, W, b"):
        npf.gradcheck(*make_affine(0, 0), tolerance={"w": 1e-4})


def test_gradcheck_rejects_tolerance_of_zero_in_mapping():
    with pytest.raises(ValueError, match="tolerance"):
        npf.gradcheck(*make_affine(0, 0), tolerance={"W": 0.0})


# Progress


def test_gradcheck_long_check_proposes_directions(monkeypatch, capsys):
    monkeypatch.setattr(leaf_comparison, "PATIENCE", 0.0)
    npf.gradcheck(lambda x: (x * x, x), lambda dy, x: 2 * dy * x, np.ones(30))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("gradcheck: ") and "of 30 entries of x" in line and "directions=3" in line


def test_gradcheck_short_check_prints_nothing(capsys):
    npf.gradcheck(lambda x: (x * x, x), lambda dy, x: 2 * dy * x, np.ones(30))
    assert capsys.readouterr() == ("", "")
