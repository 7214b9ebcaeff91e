"""Latent attention: equation, gradient, golden values, absorbed matrices, masks, a wrong number of heads."""

import math
from functools import partial

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import make_gradient_test
from valid_calls import LATENT, array

import npformer as npf

# --- the equation -----------------------------------------------------------------------------------


def test_latent_attention_of_two_tokens_by_hand():
    """With d_c = 1, RMSNorm returns ±gamma. With d_R = 2, RoPE turns by one radian per position.

    x = 2 and -2, gamma = 3, so c_KV = 3 and -3, and v_C = 3 and -3. All other matrices are 0 or 1, so
    q_C k_C = 2 · 3 = 6 and 2 · (-3) = -6 for the first query, and the opposite for the second. The rotated
    parts are (x, 0), turned by 0 and by 1 radian. Their product is ±4 cos(distance). √(d_k + d_R) = √3.
    """
    one, pair = np.ones((1, 1)), np.array([[1.0, 0.0]])
    params = npf.LatentAttentionParams(one, np.array([3.0]), one, one, pair, one, pair, one)
    x = np.array([[2.0], [-2.0]])
    y, cache = npf.multi_head_latent_attention_forward(x, params, n_heads=1, eps=0.0)
    a, b = (6 + 4) / math.sqrt(3), (-6 - 4 * math.cos(1)) / math.sqrt(3)
    np.testing.assert_allclose(cache.scores, [[[a, b], [b, a]]], rtol=1e-14)
    share = 1 / (1 + math.exp(b - a))
    np.testing.assert_allclose(y, [[3 * share - 3 * (1 - share)], [3 * (1 - share) - 3 * share]], rtol=1e-14)
    np.testing.assert_array_equal(cache.c_KV, [[3], [-3]])
    np.testing.assert_allclose(cache.k_R, [[2, 0], [-2 * math.cos(1), -2 * math.sin(1)]], rtol=1e-15)


def test_init_latent_attention_draws_fitting_shapes():
    params = npf.init_latent_attention(7, np.random.default_rng(0), n_heads=3, d_k=4, d_c=5, d_R=2)
    shapes = [(7, 5), (5,), (5, 12), (5, 12), (7, 2), (7, 12), (7, 6), (12, 7)]
    assert [a.shape for a in params] == shapes and (params.gamma == 1).all()
    y, _ = npf.multi_head_latent_attention_forward(array(4, 7), params, n_heads=3)
    assert y.shape == (4, 7)


# --- the gradient, the golden values ----------------------------------------------------------------

PADDING = np.array([[[True, True, False]], [[True, False, False]]])  # (B, 1, T)
NO_KEYS_FOR_QUERY_1 = np.array([[True], [False], [True]])

test_gradients = make_gradient_test(
    "multi_head_latent_attention",
    {"mask": None, "lead": ()},
    {"mask": npf.causal_mask(3) & PADDING, "rope_layout": "interleaved"},
    {"mask": NO_KEYS_FOR_QUERY_1, "lead": (2, 1), "eps": 0.5},
)
test_golden_values = agrees_with_pytorch("multi_head_latent_attention")


# --- the point of the paper: keys and values are never built ---------------------------------------


def test_latent_attention_absorbs_w_uk_and_w_uv():
    """q_C k_C = (q_C W_UKᵀ) c_KV, and w v_C = (w c_KV) W_UV, for each head. Only c_KV and k_R are needed."""
    x, d_k, d_R = array(2, 4, 8), 5, 6
    y, cache = npf.multi_head_latent_attention_forward(x, LATENT, n_heads=2, mask=npf.causal_mask(4))
    c_KV, k_R = cache.c_KV[..., None, :, :], cache.k_R[..., None, :, :]  # (2, 1, 4, ·)
    q_C, q_R = np.split(cache.attention.q, [d_k], axis=-1)  # (2, 2, 4, ·)
    W_UK, W_UV = npf.split_heads(LATENT.W_UK, 2), npf.split_heads(LATENT.W_UV, 2)  # (h, d_c, ·)
    scores = ((q_C @ W_UK.mT) @ c_KV.mT + q_R @ k_R.mT) / math.sqrt(d_k + d_R)
    np.testing.assert_allclose(scores, cache.scores, rtol=0, atol=1e-13)
    heads = (cache.weights @ c_KV) @ W_UV
    np.testing.assert_allclose(npf.merge_heads(heads) @ LATENT.W_O, y, rtol=0, atol=1e-13)


def test_latent_attention_scores_depend_on_distance():
    """If the same tokens come three positions later, their scores do not change."""
    x = array(4, 8)
    later = np.concatenate([array(3, 8, seed=1), x])
    run = partial(npf.multi_head_latent_attention_forward, params=LATENT, n_heads=2, base=7.0)
    np.testing.assert_allclose(run(later)[1].scores[:, 3:, 3:], run(x)[1].scores, rtol=0, atol=1e-12)


# --- the edges: masks, heads ------------------------------------------------------------------------


def test_latent_attention_ignores_later_and_padded_tokens():
    x, mask = array(2, 5, 8), npf.causal_mask(5) & (np.arange(5) != 1)
    run = partial(npf.multi_head_latent_attention_forward, params=LATENT, n_heads=2, mask=mask)
    changed = x.copy()
    changed[:, [1, 4]] = 100.0  # token 1 is padding, token 4 is the last one
    y, cache = run(x)
    np.testing.assert_array_equal(run(changed)[0][:, [0, 2, 3]], y[:, [0, 2, 3]])
    dx, _ = npf.multi_head_latent_attention_backward(np.ones_like(y) * [[1.0], [0], [1], [1], [0]], cache)
    assert not dx[:, [1, 4]].any() and dx[:, [0, 2, 3]].all()


def test_latent_attention_mask_has_no_head_axis():
    """A mask (B, T, T) applies to every head of its own text."""
    x, mask = array(2, 4, 8), np.stack([npf.causal_mask(4), npf.causal_mask(4)[::-1]])
    _, cache = npf.multi_head_latent_attention_forward(x, LATENT, n_heads=2, mask=mask)
    assert ((cache.weights > 0) == mask[:, None]).all()


def test_latent_attention_fully_masked_row_is_zero():
    x, mask = array(3, 8), np.array([[True], [False], [True]])
    y, cache = npf.multi_head_latent_attention_forward(x, LATENT, n_heads=2, mask=mask)
    dx, grads = npf.multi_head_latent_attention_backward(np.array([[0.0], [1], [0]]) * np.ones((3, 8)), cache)
    assert not y[1].any() and not dx.any() and not any(gradient.any() for gradient in grads)


def test_latent_attention_of_no_tokens_is_empty():
    y, cache = npf.multi_head_latent_attention_forward(np.ones((2, 0, 8)), LATENT, n_heads=2)
    dx, grads = npf.multi_head_latent_attention_backward(y, cache)
    assert y.shape == dx.shape == (2, 0, 8) and not any(gradient.any() for gradient in grads)


@pytest.mark.parametrize(
    ("n_heads", "changes", "message"),
    [
        (4, {}, "n_heads is 4; expected a divisor of d_Q=10 and d_V=14"),
        (5, {}, "n_heads is 5; expected a divisor of d_Q=10 and d_V=14"),
        (1, {}, "params.W_QR has 12 columns; expected n_heads · d_R = 6"),
        (2, {"W_QR": np.ones((8, 6))}, "params.W_QR has 6 columns; expected n_heads · d_R = 12"),
        (
            2,
            {"W_UV": np.ones((3, 15)), "W_O": np.ones((15, 8))},
            "n_heads is 2; expected a divisor of d_Q=10 and d_V=15",
        ),
        (
            2,
            {"W_KR": np.ones((8, 3))},
            "params.W_KR's last axis is 3; expected an even number, a pair is two columns",
        ),
        (2, {"gamma": np.ones(4)}, "params.gamma has shape (4,); expected (d_c,) with d_c=3"),
    ],
)
def test_latent_attention_rejects_wrong_heads(n_heads, changes, message):
    with pytest.raises(ValueError) as error:
        npf.multi_head_latent_attention_forward(array(3, 8), LATENT._replace(**changes), n_heads=n_heads)
    assert str(error.value).endswith(message)
