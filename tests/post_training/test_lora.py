"""LoRA: equation, gradient, golden values, the first step."""

import numpy as np
from golden import agrees_with_pytorch
from gradients import combine, make_gradient_test
from valid_calls import array, generator

import npformer as npf

# --- the equation, by hand --------------------------------------------------------------------------


def test_lora_of_rank_one_by_hand():
    """A = (1, 2)ᵀ, B = (3, 4), α = 5 and r = 1. The upstream gradient is 1 in row 0 and 0 in row 1."""
    params = npf.LoRAParams(np.array([[1.0], [2.0]]), np.array([[3.0, 4.0]]))
    merged, cache = npf.lora_forward(np.eye(2), params, alpha=5.0)
    np.testing.assert_array_equal(merged, [[16, 20], [30, 41]])
    dW, grads = npf.lora_backward(np.array([[1.0, 1.0], [0.0, 0.0]]), cache)
    np.testing.assert_array_equal(dW, [[1, 1], [0, 0]])
    np.testing.assert_array_equal(grads.A, [[5 * 7], [0]])
    np.testing.assert_array_equal(grads.B, [[5, 5]])


# --- the gradient, the golden values ----------------------------------------------------------------

test_gradients = make_gradient_test("lora", *combine(alpha=[1.0, 16.0]))
test_golden_values = agrees_with_pytorch("lora")


# --- properties -------------------------------------------------------------------------------------


def test_lora_starts_at_model_and_moves_b():
    params, W = npf.init_lora(6, 5, 2, generator()), array(6, 5)
    merged, cache = npf.lora_forward(W, params)
    _, grads = npf.lora_backward(array(6, 5, seed=1), cache)
    np.testing.assert_array_equal(merged, W)
    assert not grads.A.any() and grads.B.all()


def test_lora_change_has_rank_r():
    params = npf.LoRAParams(array(8, 3, seed=1), array(3, 7, seed=2))
    merged, _ = npf.lora_forward(np.zeros((8, 7)), params)
    assert np.linalg.matrix_rank(merged) == 3


def test_lora_scale_depends_on_rank():
    """Two copies of a factor of rank 1 give the same ΔW, because α/r is half as large."""
    A, B, W = array(4, 1, seed=1), array(1, 5, seed=2), array(4, 5)
    once, _ = npf.lora_forward(W, npf.LoRAParams(A, B))
    twice, _ = npf.lora_forward(W, npf.LoRAParams(np.hstack([A, A]), np.vstack([B, B])))
    np.testing.assert_allclose(once, twice, rtol=1e-14)


def test_init_lora_variance_is_one_over_d_in():
    A = npf.init_lora(400, 2, 300, generator()).A
    assert abs(A.std() * np.sqrt(400) - 1) < 0.01
