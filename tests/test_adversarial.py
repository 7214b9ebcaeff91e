"""Hard pairs, labelled by mathematics before the checker sees them."""

import pytest
from adversarial_pairs import PAIRS

from npformer.gradcheck import gradcheck

VERDICT = {"wrong": "fail", "kink": "kink", "cannot tell": "unsure"}


@pytest.mark.parametrize("name", PAIRS)
def test_what_is_said_about_a_hard_pair(name):
    pair = PAIRS[name]
    if pair.must == "refused":
        with pytest.raises((TypeError, ValueError), match=r"^gradcheck: "):
            gradcheck(pair.forward, pair.backward, *pair.args, **pair.kwargs)
        return
    report = gradcheck(pair.forward, pair.backward, *pair.args, **pair.kwargs)
    verdicts = {row.verdict for row in report.rows}
    if pair.must == "right":
        assert report, report
    else:
        assert not report
        assert VERDICT[pair.must] in verdicts and ("fail" not in verdicts or pair.must == "wrong"), report
