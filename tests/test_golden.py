"""That every golden value is asked for: golden.py."""

import re
from pathlib import Path

from golden import CASES, OPERATIONS, TRAJECTORIES

TESTS = Path(__file__).parent


def test_every_operation_is_asked_by_a_file_of_its_own():
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")]
    calls = [call for text in texts for call in re.findall(r"agrees_with_pytorch\(([^)]*)\)", text)]
    assert set(re.findall(r'"(\w+)"', " ".join(calls))) == set(OPERATIONS)
    assert {case["operation"] for case in CASES.values()} == set(OPERATIONS) and len(TRAJECTORIES) >= 4
