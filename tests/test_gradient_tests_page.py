"""The page "Gradient-check tests for your code": its files run as they stand there, and fail as it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "notebooks/guide/gradient_tests.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, flags=re.DOTALL))
(SAID,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.mark.slow
def test_the_files_run_and_a_mistake_reads_as_on_the_page(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    def ran(*words):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout

    assert "19 passed" in ran()
    wrong = FILES["layers.py"].replace("dy * (s + beta * slope)", "dy * s")
    (tmp_path / "layers.py").write_text(wrong, encoding="utf-8")
    told = ran("test_layers.py::test_swish[1.0-(2, 3)]").replace("AssertionError: ", "").splitlines()
    told = [line[4:] for line in told if line.startswith("E  ")]
    assert [without_rounding(line) for line in told] == [without_rounding(line) for line in SAID.splitlines()]


def without_rounding(line):
    """What is left of a difference of 1e-13 is another number on another processor."""
    return re.sub(r"\d\.\de-1\d", "rounding", line)
