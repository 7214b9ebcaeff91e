"""That the golden values can find a mistake, and that every one of them is asked for: golden.py."""

import re
from pathlib import Path

import numpy as np
from golden import CASES, EVERYTHING, OPERATIONS, TRAJECTORIES

TESTS = Path(__file__).parent


def test_every_operation_is_asked_by_a_file_of_its_own():
    texts = [path.read_text(encoding="utf-8") for path in TESTS.rglob("test_*.py")]
    calls = [call for text in texts for call in re.findall(r"agrees_with_pytorch\(([^)]*)\)", text)]
    assert set(re.findall(r'"(\w+)"', " ".join(calls))) == set(OPERATIONS)
    assert {case["operation"] for case in CASES.values()} == set(OPERATIONS) and len(TRAJECTORIES) >= 4


def test_the_proof_is_not_blind():
    """No constant gamma, beta or upstream gradient, no zero bias, no gradient that is zero for no reason."""
    for name, case in EVERYTHING.items():
        for argument, array in case["inputs"].items():
            plain = argument.split(".")[-1]
            if plain in ("gamma", "beta", "d_y") and array.size > 1:
                assert np.ptp(array) > 0.1, f"{name}: {argument} is constant"
            if plain.startswith("b_"):
                assert abs(array).max() > 1e-3, f"{name}: {argument} is zero"
        if "1e4" in name or "t1" in name or "one" in name:
            continue  # a saturated softmax or a single key: Q and K really have no gradient
        for argument, array in case["answers"].items():
            if not argument.endswith("b_K"):
                assert abs(array).max() > 1e-5, f"{name}: {argument} is zero"
