"""That every golden value is asked for: golden.py."""

import re
from pathlib import Path

from golden import CASES, TRAJECTORIES

TESTS = Path(__file__).parent


def test_every_operation_is_asked_by_a_file_of_its_own():
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")]
    calls = [call for text in texts for call in re.findall(r"agrees_with_pytorch\(([^)]*)\)", text)]
    asked = re.findall(r'"(\w+)"', " ".join(calls))
    assert set(asked) == {case["operation"] for case in CASES.values()} and len(TRAJECTORIES) >= 4
