"""The targets of a loss on the answer: by hand, padding, and the tokens that count in the loss."""

import numpy as np
import pytest
from valid_calls import INTEGERS, array

import npformer as npf


@pytest.mark.parametrize("dtype", INTEGERS)
def test_answer_targets_by_hand(dtype):
    ids = np.array([[7, 8, 9, 4, 5], [7, 8, 9, 6, 0]], dtype)
    expected = [[-1, -1, 4, 5, -1], [-1, -1, 6, -1, -1]]
    np.testing.assert_array_equal(npf.answer_targets(ids, 3, padding_id=0), expected)
    np.testing.assert_array_equal(npf.answer_targets(ids[:1], 3, ignore_index=99), [[99, 99, 4, 5, 99]])


@pytest.mark.parametrize("n_prompt", [4, 5])
def test_answer_targets_of_long_prompt_are_ignored(n_prompt):
    ids = np.array([[1, 2, 3, 4]])
    assert (npf.answer_targets(ids, n_prompt) == -1).all()


def test_answer_targets_keep_prompt_out_of_loss():
    ids, logits = np.array([[1, 2, 3, 4, 0]]), array(1, 5, 6)
    loss, _ = npf.cross_entropy_forward(logits, npf.answer_targets(ids, 3), ignore_index=-1)
    expected, _ = npf.cross_entropy_forward(logits[:, 2:4], ids[:, 3:])
    assert float(loss) == pytest.approx(float(expected), rel=1e-15)
