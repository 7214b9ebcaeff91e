"""Tiled attention: comparison with `attention`, gradient, memory, edge cases."""

import tracemalloc

import numpy as np
import pytest
from gradients import combine, make_gradient_test

import npformer as npf


def inputs(rng, T_q, T_k, leading=(2,), scale=1.0):
    """Return random queries, keys and values."""
    q, k = scale * rng.normal(size=(*leading, T_q, 4)), rng.normal(size=(*leading, T_k, 4))
    return q, k, rng.normal(size=(*leading, T_k, 3))


# --- the equation: tests/test_attention.py compares attention with PyTorch -------------------------


@pytest.mark.parametrize("tile", [1, 2, 3, 5, 128])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("T_q", "T_k"), [(1, 1), (6, 6), (7, 4), (4, 9), (0, 3), (3, 0)])
def test_tiled_attention_equals_attention(rng, T_q, T_k, causal, tile):
    q, k, v = inputs(rng, T_q, T_k)
    mask = npf.causal_mask(T_q, T_k) if causal else None
    y, cache = npf.attention_forward(q, k, v, mask=mask)
    tiled, tiled_cache = npf.tiled_attention_forward(q, k, v, causal=causal, tile=tile)
    np.testing.assert_allclose(tiled, y, rtol=0, atol=1e-12)
    dy = rng.normal(size=y.shape)
    found, expected = npf.tiled_attention_backward(dy, tiled_cache), npf.attention_backward(dy, cache)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


# --- the gradient -----------------------------------------------------------------------------------


test_gradients = make_gradient_test("tiled_attention", *combine(causal=[False, True], lead=[(), (2, 1)]))


# --- the edges --------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
def test_tiled_attention_with_largest_scores_at_ends(rng, causal):
    """The scores are large. If they ascend, each tile has a new maximum and rescales the earlier sums."""
    _, k, v = inputs(rng, 12, 12, leading=())
    q = np.ones((12, 4)) * 500
    for order in (1, -1):
        k[:] = np.arange(12.0)[::order, None]
        y, _ = npf.attention_forward(q, k, v, mask=npf.causal_mask(12) if causal else None)
        tiled, _ = npf.tiled_attention_forward(q, k, v, causal=causal, tile=5)
        np.testing.assert_allclose(tiled, y, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tile", [16, 32, 128])
@pytest.mark.parametrize("keys_are_equal", [False, True])
def test_tiled_attention_backward_reuses_forward_weights(rng, tile, keys_are_equal):
    """The weights of each query add up to 1, so the sums of dv and dy are equal.

    Scores near 2e6 have rounding errors of up to 1/8 in float32. So weights that the backward pass computed
    in a different way would not add up to 1.
    """
    for T in (60, 100, 257):
        q, k, v, dy = rng.normal(size=(4, 2, T, 128)).astype(np.float32)
        if keys_are_equal:
            k = np.repeat(k[:, :1], T, axis=1)
        q *= 2e6 * np.sqrt(128) / abs(q @ k.mT).max()
        dv = npf.tiled_attention_backward(dy, npf.tiled_attention_forward(q, k, v, tile=tile)[1])[2]
        np.testing.assert_allclose(dv.sum(axis=1), dy.sum(axis=1), rtol=0, atol=1e-3)


def peak_memory(function, *args, **kwargs):
    """Return the peak memory during a call, in bytes."""
    tracemalloc.start()
    try:
        function(*args, **kwargs)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_tiled_attention_memory_is_linear(rng):
    def bytes_for(T):
        q, k, v = (rng.normal(size=(T, 8)) for _ in range(3))
        y, cache = npf.tiled_attention_forward(q, k, v, tile=32)
        forward = peak_memory(npf.tiled_attention_forward, q, k, v, tile=32)
        return forward, peak_memory(npf.tiled_attention_backward, y, cache)

    for short, long in zip(bytes_for(256), bytes_for(1024), strict=True):
        assert long < 5 * short  # at 4 times the length, quadratic memory is 16 times larger
