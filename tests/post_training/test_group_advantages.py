"""Advantages of a group: by hand, properties, groups of equal rewards."""

import numpy as np
import pytest
from valid_calls import array

import npformer as npf


def test_group_advantages_by_hand():
    """The mean of 1 and 5 is 3, and the standard deviation is 2."""
    rewards = np.array([[1.0, 5.0], [0.0, 0.0]])
    np.testing.assert_allclose(npf.group_advantages(rewards, eps=1e-9), [[-1, 1], [0, 0]], rtol=1e-8)
    np.testing.assert_array_equal(npf.group_advantages(rewards, normalize=False), [[-2, 2], [0, 0]])


@pytest.mark.parametrize("normalize", [True, False])
def test_group_advantages_sum_to_zero(normalize):
    advantages = npf.group_advantages(array(3, 8), normalize=normalize)
    np.testing.assert_allclose(advantages.sum(axis=-1), 0, atol=1e-13)


def test_group_advantages_ignore_shift_and_scale():
    rewards = array(3, 8)
    expected = npf.group_advantages(rewards, eps=1e-12)
    np.testing.assert_allclose(npf.group_advantages(7 * rewards - 5, eps=1e-12), expected, rtol=1e-9)


def test_group_advantages_of_equal_rewards_are_tiny():
    """The mean of equal rewards has a rounding error. Without eps, the advantages would be ±1."""
    advantages = npf.group_advantages(np.full((1, 7), 0.1))
    assert abs(advantages).max() < 1e-12
