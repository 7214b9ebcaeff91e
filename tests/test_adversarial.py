"""Hard pairs, labelled by mathematics before the checker sees them."""

from itertools import product
from pathlib import Path

from adversarial_pairs import PAIRS, SAID, VERDICT, fresh
from planted_bugs import BUGS
from together import failures

from npformer.gradcheck import gradcheck


def test_what_is_said_about_a_hard_pair():
    assert failures(lambda name, k: check_pair(PAIRS[name], k), product(PAIRS, [None, 3])) == {}


def test_what_is_said_about_other_pairs():
    assert len(SAID) > 90
    assert failures(lambda name: check_pair(SAID[name], None), product(SAID)) == {}


def check_pair(pair, directions):
    settings = pair.kwargs | ({"directions": directions} if directions else {})
    try:
        rows = gradcheck(*fresh(pair), *pair.args, **settings).rows
    except (TypeError, ValueError) as error:
        assert pair.must == "refused"
        assert str(error).startswith(f"gradcheck: {pair.note}")
        return
    verdicts = {row.verdict for row in rows}
    assert VERDICT[pair.must] in verdicts | ({"pass"} if not rows else set())
    assert pair.must == "wrong" or verdicts <= {"pass", VERDICT[pair.must]}
    if not directions:
        assert pair.note in "\n".join(f"{row.path} {row.verdict}: {row.note}" for row in rows)


def test_the_published_table_says_what_the_tests_say():
    """tests/data/make_kill_table.py writes it; every verdict in it is one that a test holds."""
    lines = (Path(__file__).parent / "data" / "kills.md").read_text(encoding="utf-8").splitlines()
    rows = [
        [cell.strip() for cell in line.replace("\\|", "¦").split(" | ")] for line in lines if line[:2] == "| "
    ]
    found = {row[0][2:].replace("¦", "|"): row[1:3] for row in rows}
    for name, pair in PAIRS.items():
        assert found[name] == [pair.must, VERDICT[pair.must]], name
    assert all(found[name][1] == "fail" for name in BUGS)
