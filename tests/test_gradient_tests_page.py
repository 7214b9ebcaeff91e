"""Run the files of the page "Gradient-check tests for your code", and compare a failure with the page."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import npformer as npf

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "notebooks/guide/gradient_tests.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, flags=re.DOTALL))
(FAILURE,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)


def run_pytest(folder, *arguments):
    """Run pytest in a folder and return its output."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout


def mask_rounding(line):
    """Replace numbers near 1e-13, because rounding errors differ between processors."""
    return re.sub(r"\d\.\de-1\d", "rounding", line)


@pytest.fixture
def folder(tmp_path):
    """Write the files of the page into a folder, and return this folder."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_page_files_pass(folder):
    assert "19 passed" in run_pytest(folder)


@pytest.mark.slow
def test_page_mistake_fails_with_the_shown_text(folder):
    wrong = FILES["layers.py"].replace("dy * (s + beta * slope)", "dy * s")
    (folder / "layers.py").write_text(wrong, encoding="utf-8")
    output = run_pytest(folder, "test_layers.py::test_swish[1.0-(2, 3)]").replace("AssertionError: ", "")
    message = [line[4:] for line in output.splitlines() if line.startswith("E  ")]
    expected = FAILURE.splitlines()
    assert [mask_rounding(line) for line in message] == [mask_rounding(line) for line in expected]


def test_page_kernel_passes_and_its_mistake_fails():
    """A sum that is 1 % too large has a systematic error of about 8 rounding units."""
    pytest.importorskip("ml_dtypes")
    (text,) = re.findall(r"```python\n(import ml_dtypes\n.*?)```", PAGE, flags=re.DOTALL)
    names = {}
    exec(text, names)
    names["test_softmax_kernel"]()
    exec(text.replace("(dp * p).sum", "1.01 * (dp * p).sum"), names)
    with pytest.raises(AssertionError) as caught:
        names["test_softmax_kernel"]()
    systematic = re.search(r"the largest systematic error is (\S+) rounding units", str(caught.value))
    assert float(systematic[1]) > 4


def test_page_second_derivatives_reject_a_wrong_sign():
    (text,) = re.findall(r"```python\n(def tanh_backward\(.*?)```", PAGE, flags=re.DOTALL)
    names = {"np": np, "npf": npf}
    exec(text, names)
    with pytest.raises(AssertionError, match="opposite sign"):
        exec(text.replace("d_dx * dy * -2", "d_dx * dy * 2"), names)


def test_page_fixture_passes(pytester):
    (text,) = re.findall(r"```python\n(@pytest.mark.gradcheck\(.*?)```", PAGE, flags=re.DOTALL)
    pytester.makepyfile(layers=FILES["layers.py"])
    pytester.makepyfile(test_fixture=f"import numpy as np\nimport pytest\nfrom layers import *\n\n\n{text}")
    plugin = "npformer.gradcheck.pytest_plugin"
    result = pytester.runpytest_inprocess("-p", "no:npformer", "-p", plugin, "-p", "no:sugar")
    result.assert_outcomes(passed=1)


def test_page_comparison_equals_the_measured_counts():
    """If this test fails, run tests/benchmarks/gradcheck_tools.py with --write."""
    file = ROOT / "tests" / "benchmarks" / "gradcheck_tools.py"
    spec = importlib.util.spec_from_file_location("gradcheck_tools", file)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    results = json.loads(script.RESULTS.read_text(encoding="utf-8"))
    assert f"\n\n{script.make_table(results)}\n" in PAGE
    wrong, correct = results["wrong"], results["right"]
    assert f"are {wrong['planted']} planted mistakes and {wrong['hard']} hard pairs" in PAGE
    assert f"are {correct['planted']} operations and {correct['hard']} hard pairs" in PAGE
    ours, *others = results["tools"]
    assert ours["caught"] == sum(wrong.values())
    assert not any(ours[key] for key in ours if isinstance(ours[key], list))
    assert not any(row["accused planted"] for row in others)
