"""Hard pairs, labelled by mathematics before the checker sees them."""

from itertools import product
from pathlib import Path

import pytest
from adversarial_pairs import PAIRS, fresh
from planted_bugs import BUGS
from together import failures

from npformer.gradcheck import gradcheck

VERDICT = {"wrong": "fail", "kink": "kink", "cannot tell": "unsure"}


def test_what_is_said_about_a_hard_pair():
    assert failures(check_pair, product(PAIRS, [None, 3])) == {}


def check_pair(name, directions):
    pair = PAIRS[name]
    if pair.must == "refused":
        with pytest.raises((TypeError, ValueError), match=r"^gradcheck: "):
            gradcheck(*fresh(pair), *pair.args, **pair.kwargs, directions=directions)
        return
    report = gradcheck(*fresh(pair), *pair.args, **pair.kwargs, directions=directions)
    verdicts = {row.verdict for row in report.rows}
    if pair.must == "right":
        assert report, report
    else:
        assert not report
        assert VERDICT[pair.must] in verdicts and ("fail" not in verdicts or pair.must == "wrong"), report


def test_the_published_table_says_what_the_tests_say():
    """tests/data/make_kill_table.py writes it; every verdict in it is one that a test holds."""
    lines = (Path(__file__).parent / "data" / "kills.md").read_text(encoding="utf-8").splitlines()
    rows = [
        [cell.strip() for cell in line.replace("\\|", "¦").split(" | ")] for line in lines if line[:2] == "| "
    ]
    found = {row[0][2:].replace("¦", "|"): row[1:3] for row in rows}
    for name, pair in PAIRS.items():
        expected = {"right": "pass", "refused": "refused"} | VERDICT
        assert found[name] == [pair.must, expected[pair.must]], name
    assert all(found[name][1] == "fail" for name in BUGS)
