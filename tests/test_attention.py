"""Attention, with one head and with many: what is promised, and what happens at its edges."""

from functools import partial

import numpy as np
import pytest
from golden import CASES as GOLDEN
from golden import agrees_with_pytorch
from together import together
from valid_calls import all_finite, all_zero, array, call, sized

from npformer import (
    AttentionParams,
    alibi_bias,
    attention_backward,
    attention_forward,
    causal_mask,
    gradcheck,
    init_attention,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_forward,
    padding_mask,
    rope_forward,
    softmax_forward,
    split_heads,
    tree_map,
)
from npformer.attention import LARGE

DTYPES = together("dtype", [np.float64, np.float32])


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def random_qkv(rng, leading=(2,), T_q=3, T_k=5, d_k=4, d_v=6):
    return [rng.normal(size=(*leading, T, d)) for T, d in ((T_q, d_k), (T_k, d_k), (T_k, d_v))]


def random_attention(d_model, rng, bias=True):
    return tree_map(lambda a: a + 0.3 * rng.normal(size=a.shape), init_attention(d_model, rng, bias=bias))


# --- the equation, by hand --------------------------------------------------------------------------


def test_one_query_by_hand():
    """Scores (ln 3, 0) after the division by √4: weights (¾, ¼)."""
    q = np.array([[2 * np.log(3), 0, 0, 0]])
    y, cache = attention_forward(q, np.eye(4)[:2], np.array([[4.0], [8.0]]))
    np.testing.assert_allclose(cache.scores, [[np.log(3), 0]], rtol=1e-15)
    np.testing.assert_allclose(cache.weights, [[0.75, 0.25]], rtol=1e-15)
    np.testing.assert_allclose(y, [[5]], rtol=1e-15)


def test_the_scale_is_one_over_the_root_of_d_k(rng):
    """Read off the output: centred logarithms of the weights against centred products of queries and keys."""
    q, k, _ = random_qkv(rng, leading=(), d_k=9)
    weights = attention_forward(q, k, np.eye(5))[0]
    products, logs = q @ k.T, np.log(weights)
    products -= products.mean(-1, keepdims=True)
    logs -= logs.mean(-1, keepdims=True)
    assert (products * logs).sum() / (products**2).sum() == pytest.approx(1 / 3, rel=1e-12)


def test_scores_are_scaled_and_biased_and_not_masked(rng):
    q, k, v = random_qkv(rng)
    bias = rng.normal(size=(3, 5))
    _, cache = attention_forward(q, k, v, bias=bias, mask=np.zeros((3, 5), bool))
    np.testing.assert_allclose(cache.scores, q @ k.swapaxes(-1, -2) / 2 + bias, rtol=1e-14)


def test_causal_masks():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert causal_mask(1, 3).tolist() == [[True, True, True]]  # the newest query sees every key
    assert causal_mask(3, 1).tolist() == [[False], [False], [True]]
    assert causal_mask(0).shape == (0, 0) and causal_mask(2, 0).shape == (2, 0)


def test_padding_masks():
    ids = np.array([[5, 2, 0], [0, 0, 0]])
    assert padding_mask(ids, 0).tolist() == [[[True, True, False]], [[False, False, False]]]


def test_heads_are_neighbouring_columns(rng):
    x = rng.normal(size=(2, 3, 8))
    heads = split_heads(x, 4)
    for head in range(4):
        assert (heads[:, head] == x[..., 2 * head : 2 * head + 2]).all()
    assert (merge_heads(heads) == x).all() and np.shares_memory(heads, x)


@together("bias", [True, False])
def test_many_heads_are_single_heads_side_by_side(rng, bias):
    """The paper's formula, a head at a time, each with its own d_model × d_k pieces of the projections."""
    params, x, memory = random_attention(6, rng, bias), rng.normal(size=(4, 6)), rng.normal(size=(5, 6))
    b_Q, b_K, b_V, b_O = (np.zeros(6) if b is None else b for b in params[4:])
    heads = []
    for head in range(3):
        own = slice(2 * head, 2 * head + 2)
        q, k, v = (
            x_ @ W[:, own] + b[own]
            for x_, W, b in (
                (x, params.W_Q, b_Q),
                (memory, params.W_K, b_K),
                (memory, params.W_V, b_V),
            )
        )
        heads.append(softmax_forward(q @ k.T / np.sqrt(2))[0] @ v)
    expected = np.concatenate(heads, axis=-1) @ params.W_O + b_O
    y, cache = multi_head_attention_forward(x, memory, memory, params, n_heads=3)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-14)
    assert cache.weights.shape == cache.scores.shape == (3, 4, 5)


def test_a_mask_has_no_head_axis_and_a_bias_has_one(rng):
    x, params = rng.normal(size=(2, 4, 6)), random_attention(6, rng)
    mask = padding_mask(np.array([[1, 1, 1, 0], [1, 1, 0, 0]]), 0) & causal_mask(4)  # (B, T, T)
    _, cache = multi_head_attention_forward(x, x, x, params, n_heads=3, mask=mask)
    for head in range(3):
        assert ((cache.weights[:, head] > 0) == mask).all()
    bias = rng.normal(size=(3, 4, 4))
    _, cache = multi_head_attention_forward(x, x, x, params, n_heads=3, bias=bias)
    _, plain = multi_head_attention_forward(x, x, x, params, n_heads=3)
    np.testing.assert_allclose(cache.scores - plain.scores, np.broadcast_to(bias, (2, 3, 4, 4)), atol=1e-14)


def test_rope_turns_queries_and_keys_and_nothing_else(rng):
    x, params = rng.normal(size=(5, 8)), random_attention(8, rng, bias=False)
    _, cache = multi_head_attention_forward(x, x, x, params, n_heads=2, rope=True)
    q, k = (rope_forward(split_heads(x @ W, 2))[0] for W in (params.W_Q, params.W_K))
    np.testing.assert_allclose(cache.scores, q @ k.swapaxes(-1, -2) / 2, rtol=0, atol=1e-14)
    np.testing.assert_allclose(cache.attention.v, split_heads(x @ params.W_V, 2), rtol=0, atol=1e-15)
    last, _ = multi_head_attention_forward(x[-1:], x, x, params, n_heads=2, rope=True)
    whole, _ = multi_head_attention_forward(x, x, x, params, n_heads=2, rope=True)
    # the last query stands at the last key
    np.testing.assert_allclose(last[0], whole[-1], rtol=0, atol=1e-14)


@together(("T_q", "T_k"), [(5, 5), (2, 5)])
def test_base_and_layout_are_those_of_the_queries_and_of_the_keys(rng, T_q, T_k):
    """Neither is the default; d_k = 4, as the first of two pairs turns alike at every base."""
    q, k, params = rng.normal(size=(T_q, 8)), rng.normal(size=(T_k, 8)), random_attention(8, rng)
    _, cache = multi_head_attention_forward(
        q, k, k, params, n_heads=2, rope=True, base=7.0, rope_layout="halves"
    )
    parts = ((q, params.W_Q, params.b_Q, T_k - T_q), (k, params.W_K, params.b_K, 0))
    q, k = (
        rope_forward(
            split_heads(x @ W + b, 2), positions=first + np.arange(len(x)), base=7.0, layout="halves"
        )[0]
        for x, W, b, first in parts
    )
    np.testing.assert_allclose(cache.scores, q @ k.swapaxes(-1, -2) / 2, rtol=0, atol=1e-13)


def test_projections_have_no_biases_unless_asked(rng):
    assert init_attention(4, rng)[4:] == (None,) * 4
    assert all(not b.any() and b.shape == (4,) for b in init_attention(4, rng, bias=True)[4:])


# --- the gradient -----------------------------------------------------------------------------------


@together("leading", [(), (1,), (2, 3)])
def test_gradients_of_one_head(rng, leading):
    q, k, v = random_qkv(rng, leading)
    assert gradcheck(partial(attention_forward, bias=rng.normal(size=(3, 5))), attention_backward, q, k, v)


CASES = {
    "plain": {},
    "causal": {"mask": causal_mask(4)},
    "padding": {"mask": padding_mask(np.array([[1, 1, 1, 0], [1, 0, 0, 0]]), 0)},
    "nobody": {"mask": np.array([[True] * 4, [False] * 4, [True] * 4, [False] * 4])},
    "alibi": {"bias": alibi_bias(2, 4, 4)},
    "rope": {"rope": True},
}


@together("given", ["b_Q", "b_K", "b_V", "b_O"])
def test_each_bias_may_stand_alone(rng, given):
    x, params = (
        rng.normal(size=(3, 4)),
        random_attention(4, rng, bias=False)._replace(**{given: rng.normal(size=4)}),
    )
    pair = partial(multi_head_attention_forward, n_heads=2), multi_head_attention_backward
    assert gradcheck(*pair, x, x + 1, x - 1, params)


@together("options", CASES.values())
def test_gradients_of_many_heads(rng, options):
    q, k, v = (rng.normal(size=(2, 4, 4)) for _ in range(3))
    params = random_attention(4, rng)
    forward = partial(multi_head_attention_forward, n_heads=2, **options)
    directions = None if options is CASES["nobody"] else 3
    assert gradcheck(forward, multi_head_attention_backward, q, k, v, params, directions=directions)


def test_many_weights_go_back_head_by_head_and_few_at_once(rng):
    q, k, v = random_qkv(rng, leading=(3,), T_q=300, T_k=310)
    y, cache = attention_forward(q, k, v, mask=causal_mask(300, 310))
    assert cache.weights.size > LARGE > cache.weights[0].size
    dy = rng.normal(size=y.shape)
    whole = attention_backward(dy, cache)
    for i in range(3):
        _, own = attention_forward(q[i], k[i], v[i], mask=causal_mask(300, 310))
        for all_of_them, one in zip(whole, attention_backward(dy[i], own), strict=True):
            np.testing.assert_allclose(all_of_them[i], one, rtol=0, atol=1e-14)


def test_self_attention_is_the_sum_of_its_three_uses(rng):
    params = random_attention(4, rng)

    def forward(x):
        return multi_head_attention_forward(x, x, x, params, n_heads=2)

    def backward(dy, cache):
        return sum(multi_head_attention_backward(dy, cache)[:3])

    assert gradcheck(forward, backward, rng.normal(size=(3, 4)))


def test_absent_biases_have_absent_gradients(rng):
    x, params = rng.normal(size=(3, 4)), random_attention(4, rng, bias=False)
    some = params._replace(b_V=np.ones(4))
    grads = multi_head_attention_backward(x, multi_head_attention_forward(x, x, x, some, n_heads=2)[1])[3]
    assert isinstance(grads, AttentionParams)
    assert [g is None for g in grads] == [p is None for p in some]


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("attention", "multi_head")


@together("name", [name for name, case in GOLDEN.items() if "causal" in name and "mask" in case["constants"]])
def test_causal_mask_is_the_one_that_pytorch_was_given(name):
    mask = np.array(GOLDEN[name]["constants"]["mask"])
    np.testing.assert_array_equal(causal_mask(*mask.shape), mask)


def test_padding_mask_is_the_one_that_pytorch_was_given():
    ids = np.array([[5, 2, 9, 4, 1], [3, 6, 8, 0, 0]])  # 0 is the padding: five words, three words
    mask = np.array(GOLDEN["attention_padding"]["constants"]["mask"])
    np.testing.assert_array_equal(padding_mask(ids, 0), mask)


# --- the edges: masks -------------------------------------------------------------------------------


@DTYPES
def test_a_fully_masked_row_gives_zeros_and_no_gradient(dtype):
    q, k, v = (
        array(2, 5, 4, dtype=dtype),
        array(2, 6, 4, seed=1, dtype=dtype),
        array(2, 6, 3, seed=2, dtype=dtype),
    )
    dy = array(2, 5, 3, seed=3, dtype=dtype)
    y, cache = attention_forward(q, k, v, mask=np.arange(5)[:, None] != 2)
    dq, dk, dv = attention_backward(dy, cache)
    assert all_finite((y, dq, dk, dv)) and not all_zero((dk, dv))
    assert all_zero((y[:, 2], dq[:, 2], cache.weights[:, 2]))
    others = [0, 1, 3, 4]  # as if that query were not there
    y_others, cache_others = attention_forward(q[:, others], k, v)
    np.testing.assert_allclose(y[:, others], y_others, rtol=0, atol=1e-6)
    for whole, part in zip((dk, dv), attention_backward(dy[:, others], cache_others)[1:], strict=True):
        np.testing.assert_allclose(whole, part, rtol=0, atol=1e-6)


def test_a_mask_takes_keys_away_as_if_they_were_not_there(rng):
    q, k, v = random_qkv(rng)
    keep = np.array([True, False, True, True, False])
    masked = attention_forward(q, k, v, mask=keep)[0]
    np.testing.assert_allclose(masked, attention_forward(q, k[:, keep], v[:, keep])[0], rtol=0, atol=1e-15)


def test_masked_keys_and_values_have_no_influence_and_no_gradient(rng):
    q, k, v = random_qkv(rng, T_q=5)
    y, cache = attention_forward(q, k, v, mask=causal_mask(5))
    k[:, 4], v[:, 4] = 1e6, -1e6
    assert (attention_forward(q, k, v, mask=causal_mask(5))[0][:, :4] == y[:, :4]).all()
    dy = np.zeros_like(y)
    dy[:, 2] = 1
    dq, dk, dv = attention_backward(dy, cache)
    assert not dk[:, 3:].any() and not dv[:, 3:].any() and dv[:, :3].all()
    assert not np.delete(dq, 2, axis=1).any()


def test_a_bias_of_minus_infinity_is_a_mask(rng):
    q, k, v = random_qkv(rng, T_q=5)
    bias = np.where(causal_mask(5), 0, -np.inf)
    by_bias, by_mask = (
        attention_forward(q, k, v, **how)[0] for how in ({"bias": bias}, {"mask": causal_mask(5)})
    )
    assert (by_bias == by_mask).all()


def test_one_key_that_may_be_seen_gets_all_the_weight():
    mask = np.zeros((5, 6), bool)
    mask[:, 3] = True
    v = array(2, 6, 3)
    y, cache = attention_forward(array(2, 5, 4), array(2, 6, 4), v, mask=mask)
    np.testing.assert_array_equal(y, np.broadcast_to(v[:, 3:4], y.shape))
    dq, dk, _ = attention_backward(array(2, 5, 3), cache)
    np.testing.assert_allclose(dq, 0, atol=1e-15)  # a weight that is 1 whatever the scores has no slope
    np.testing.assert_allclose(dk, 0, atol=1e-15)


# --- the edges: no keys, huge scores ----------------------------------------------------------------


@together("mask", [None, np.ones((3, 0), bool)])
def test_no_keys_give_zeros(mask):
    y, cache = attention_forward(array(2, 3, 4), array(2, 0, 4), array(2, 0, 5), mask=mask)
    dq, dk, dv = attention_backward(array(2, 3, 5), cache)
    assert y.shape == (2, 3, 5) and dq.shape == (2, 3, 4) and all_zero((y, dq))
    assert (dk.shape, dv.shape, cache.weights.shape) == ((2, 0, 4), (2, 0, 5), (2, 3, 0))


def test_no_keys_leave_the_output_bias_alone():
    arguments, _ = sized((2,), 3, 0)["multi_head_attention_forward"]
    y, cache = call("multi_head_attention_forward", arguments)
    b_O = arguments["params"].b_O
    np.testing.assert_array_equal(y, np.broadcast_to(b_O, y.shape))
    dq, dk, dv, grads = multi_head_attention_backward(np.ones_like(y), cache)
    assert all_zero((dq, dk, dv, grads._replace(b_O=None)))
    np.testing.assert_array_equal(grads.b_O, np.full(8, 6.0))


@DTYPES
def test_attention_with_huge_scores_looks_at_one_key(dtype):
    q, k, v = 1e4 * np.eye(3, dtype=dtype), 1e4 * np.eye(3, dtype=dtype), array(3, 2, dtype=dtype)
    y, cache = attention_forward(q, k, v)
    np.testing.assert_array_equal(y, v)
    assert all_finite(attention_backward(array(3, 2, dtype=dtype), cache))
