"""Attention tile by tile: what is promised, and what happens at its edges."""

import tracemalloc

import numpy as np
from gradients import every, gradients_hold
from together import together

import npformer as npf


def inputs(rng, T_q, T_k, leading=(2,), scale=1.0):
    q, k = scale * rng.normal(size=(*leading, T_q, 4)), rng.normal(size=(*leading, T_k, 4))
    return q, k, rng.normal(size=(*leading, T_k, 3))


# --- the equation: that of attention, in which PyTorch's values are checked -------------------------


@together("tile", [1, 2, 3, 5, 128])
@together("causal", [False, True])
@together(("T_q", "T_k"), [(1, 1), (6, 6), (7, 4), (4, 9), (0, 3), (3, 0)])
def test_value_and_gradients_are_those_of_the_whole_table(rng, T_q, T_k, causal, tile):
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


test_gradients = gradients_hold("tiled_attention", *every(causal=[False, True], lead=[(), (2, 1)]))


# --- the edges --------------------------------------------------------------------------------------


@together("causal", [False, True])
def test_where_the_largest_scores_come_last_or_first(rng, causal):
    """Scores of thousands, growing and falling: each tile's maximum moves the sums before it."""
    _, k, v = inputs(rng, 12, 12, leading=())
    q = np.ones((12, 4)) * 500
    for order in (1, -1):
        k[:] = np.arange(12.0)[::order, None]
        y, _ = npf.attention_forward(q, k, v, mask=npf.causal_mask(12) if causal else None)
        tiled, _ = npf.tiled_attention_forward(q, k, v, causal=causal, tile=5)
        np.testing.assert_allclose(tiled, y, rtol=0, atol=1e-12)


@together("tile", [16, 32, 128])
@together("alike", [False, True])
def test_of_huge_scores_the_backward_has_the_forwards_weights(rng, tile, alike):
    """A query's weights add up to 1, so dv has in all what dy has; float32 rounds a score of 2e6 by 1/8."""
    for T in (60, 100, 257):
        q, k, v, dy = rng.normal(size=(4, 2, T, 128)).astype(np.float32)
        k = np.repeat(k[:, :1], T, axis=1) if alike else k
        q *= 2e6 * np.sqrt(128) / abs(q @ k.mT).max()
        dv = npf.tiled_attention_backward(dy, npf.tiled_attention_forward(q, k, v, tile=tile)[1])[2]
        np.testing.assert_allclose(dv.sum(axis=1), dy.sum(axis=1), rtol=0, atol=1e-3)


def peak(function, *args, **kwargs):
    tracemalloc.start()
    try:
        function(*args, **kwargs)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_with_the_length_and_not_with_its_square(rng):
    def bytes_for(T):
        q, k, v = (rng.normal(size=(T, 8)) for _ in range(3))
        y, cache = npf.tiled_attention_forward(q, k, v, tile=32)
        forward = peak(npf.tiled_attention_forward, q, k, v, tile=32)
        return forward, peak(npf.tiled_attention_backward, y, cache)

    for short, long in zip(bytes_for(256), bytes_for(1024), strict=True):
        assert long < 5 * short  # 4 would be linear, 16 square
