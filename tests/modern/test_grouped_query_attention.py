"""multi_head_attention_forward with fewer heads of keys than of queries."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from together import together

import npformer as npf
from npformer import AttentionParams, gradcheck, multi_head_attention_backward, multi_head_attention_forward


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def params_of(rng, n_kv_heads, biases=False, d_model=8, h=4):
    d_kv = d_model // h * n_kv_heads
    widths = (d_model, d_kv, d_kv, d_model)
    weights = [rng.normal(size=(d_model, width)) for width in widths]
    return AttentionParams(*weights, *[rng.normal(size=width) if biases else None for width in widths])


def repeated(W, times, d_k=2):
    """The columns of each head so many times, head by head: plain loops."""
    heads = [W[..., i : i + d_k] for i in range(0, W.shape[-1], d_k)]
    return np.concatenate([head for head in heads for _ in range(times)], axis=-1)


# --- the equation, by hand --------------------------------------------------------------------------


@together("n_kv_heads", [1, 2, 4])
def test_it_is_attention_whose_neighbouring_heads_have_the_same_keys(rng, n_kv_heads):
    params, times = params_of(rng, n_kv_heads, biases=True), 4 // n_kv_heads
    names = ("W_K", "W_V", "b_K", "b_V")
    wide = params._replace(**{name: repeated(getattr(params, name), times) for name in names})
    q, k, v = (rng.normal(size=(3, T, 8)) for T in (5, 6, 6))
    settings = {"n_heads": 4, "mask": npf.causal_mask(5, 6), "bias": rng.normal(size=(4, 5, 6)), "rope": True}
    y, cache = multi_head_attention_forward(q, k, v, params, n_kv_heads=n_kv_heads, **settings)
    expected, wide_cache = multi_head_attention_forward(q, k, v, wide, **settings)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-13)
    assert cache.weights.shape == (3, 4, 5, 6)
    dy = rng.normal(size=y.shape)
    found, told = multi_head_attention_backward(dy, cache), multi_head_attention_backward(dy, wide_cache)
    for a, b in zip(found[:3], told[:3], strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)
    pieces = told[3].W_K.reshape(8, n_kv_heads, times, 2).sum(axis=2).reshape(8, -1)  # the copies' gradients
    np.testing.assert_allclose(found[3].W_K, pieces, rtol=0, atol=1e-12)


def test_all_key_heads_is_bit_for_bit_none(rng):
    params, x = params_of(rng, 4), rng.normal(size=(2, 5, 8))
    with_all, _ = multi_head_attention_forward(x, x, x, params, n_heads=4, n_kv_heads=4)
    assert (with_all == multi_head_attention_forward(x, x, x, params, n_heads=4)[0]).all()


# --- the gradient -----------------------------------------------------------------------------------


@together(("n_kv_heads", "leading"), [(1, ()), (2, (1, 1)), (np.int8(4), (2,))])
def test_gradients(rng, n_kv_heads, leading):
    q, k, v = (rng.normal(size=(*leading, T, 8)) for T in (3, 4, 4))
    assert gradcheck(
        multi_head_attention_forward, multi_head_attention_backward, q, k, v,
        params_of(rng, int(n_kv_heads), biases=True), n_heads=4, n_kv_heads=n_kv_heads, rope=True, base=50.0,
        directions=None if leading == (1, 1) else 3,
    )  # fmt: skip


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("grouped_attention")


# --- the edges --------------------------------------------------------------------------------------


@together(
    ("n_kv_heads", "change", "error", "message"),
    [
        (3, {}, ValueError, "n_kv_heads is 3; expected a divisor of n_heads=4"),
        (8, {}, ValueError, "n_kv_heads is 8; expected a divisor of n_heads=4"),
        (0, {}, ValueError, "n_kv_heads is 0; expected an integer of at least 1"),
        (2.0, {}, TypeError, r"n_kv_heads is a float \(2.0\); expected "),
        (True, {}, TypeError, r"n_kv_heads is a bool \(True\); expected "),
        (
            1,
            {},
            ValueError,
            r"params.W_K has shape \(8, 4\); expected \(d_model, d_kv\) with d_model=8, d_kv=2",
        ),
        (None, {}, ValueError, r"params.W_K has shape \(8, 4\); expected \(d_model, d_kv\) with .* d_kv=8"),
        (2, {"W_V": np.ones((8, 8))}, ValueError, r"params.W_V has shape \(8, 8\); expected .* d_kv=4"),
        (2, {"b_K": np.ones(8)}, ValueError, r"params.b_K has shape \(8,\); expected \(d_kv,\) with d_kv=4"),
    ],
)
def test_what_does_not_fit_is_refused(rng, n_kv_heads, change, error, message):
    x, params = np.ones((2, 3, 8)), params_of(rng, 2)._replace(**change)
    with pytest.raises(error, match="^multi_head_attention_forward: " + message):
        multi_head_attention_forward(x, x, x, params, n_heads=4, n_kv_heads=n_kv_heads)


def test_other_functions_know_no_shared_keys(rng):
    config = npf.TransformerConfig(d_model=8, d_ff=5, n_heads=4, n_layers=1)
    params = npf.init_encoder_block(config, rng)._replace(attention=params_of(rng, 2))
    with pytest.raises(ValueError, match=r"params.attention.W_K has shape \(8, 4\); expected .* d_kv=8"):
        npf.encoder_block_forward(np.ones((3, 8)), params, config)
