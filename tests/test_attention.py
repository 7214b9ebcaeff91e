"""Attention, with one head and with many: what is promised, and what happens at its edges."""

from functools import partial

import numpy as np
from golden import agrees_with_pytorch
from together import together
from valid_calls import all_zero, array, call, drawn, sized

import npformer as npf
from npformer.attention import LARGE

DTYPES = together("dtype", [np.float64, np.float32])
PARAMS = drawn(partial(npf.init_attention, bias=True), 8)
WITHOUT_BIASES = drawn(npf.init_attention, 8)
PADDING = npf.padding_mask(np.array([[1, 1, 1, 0], [1, 0, 0, 0]]), 0)


def some_qkv(leading=(2,), T_q=3, T_k=5, dtype=np.float64):
    sizes = ((T_q, 4), (T_k, 4), (T_k, 6))
    return [array(*leading, *size, seed=i, dtype=dtype) for i, size in enumerate(sizes)]


# --- the equation, by hand --------------------------------------------------------------------------


def test_one_query_by_hand():
    """Scores (ln 3, 0) after the division by √4: weights (¾, ¼)."""
    q = np.array([[2 * np.log(3), 0, 0, 0]])
    y, cache = npf.attention_forward(q, np.eye(4)[:2], np.array([[4.0], [8.0]]))
    np.testing.assert_allclose(cache.scores, [[np.log(3), 0]], rtol=1e-15)
    np.testing.assert_allclose(cache.weights, [[0.75, 0.25]], rtol=1e-15)
    np.testing.assert_allclose(y, [[5]], rtol=1e-15)


def test_scores_are_scaled_and_biased_and_not_masked():
    q, k, v = some_qkv()
    bias = array(3, 5, seed=3)
    _, cache = npf.attention_forward(q, k, v, bias=bias, mask=np.zeros((3, 5), bool))
    np.testing.assert_allclose(cache.scores, q @ k.swapaxes(-1, -2) / 2 + bias, rtol=1e-14)


def test_masks():
    assert npf.causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert npf.causal_mask(1, 3).tolist() == [[True, True, True]]  # the newest query sees every key
    assert npf.causal_mask(3, 1).tolist() == [[False], [False], [True]]
    assert PADDING.tolist() == [[[True, True, True, False]], [[True, False, False, False]]]


def test_heads_are_neighbouring_columns():
    x = array(2, 3, 8)
    heads = npf.split_heads(x, 4)
    for head in range(4):
        assert (heads[:, head] == x[..., 2 * head : 2 * head + 2]).all()
    assert (npf.merge_heads(heads) == x).all() and np.shares_memory(heads, x)


@together("params", [PARAMS, WITHOUT_BIASES])
def test_many_heads_are_single_heads_side_by_side(params):
    """The paper's formula, a head at a time, each with its own d_model × d_k pieces of the projections."""
    x, memory = array(4, 8), array(5, 8, seed=1)
    b_Q, b_K, b_V, b_O = (np.zeros(8) if b is None else b for b in params[4:])
    heads = []
    for own in (slice(0, 4), slice(4, 8)):
        q = x @ params.W_Q[:, own] + b_Q[own]
        k, v = (memory @ W[:, own] + b[own] for W, b in ((params.W_K, b_K), (params.W_V, b_V)))
        heads.append(npf.softmax_forward(q @ k.T / 2)[0] @ v)
    expected = np.concatenate(heads, axis=-1) @ params.W_O + b_O
    y, cache = npf.multi_head_attention_forward(x, memory, memory, params, n_heads=2)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-14)
    assert cache.weights.shape == cache.scores.shape == (2, 4, 5)


def test_a_mask_has_no_head_axis_and_a_bias_has_one():
    x, mask, bias = array(2, 4, 8), PADDING & npf.causal_mask(4), array(2, 4, 4, seed=1)
    run = partial(npf.multi_head_attention_forward, x, x, x, PARAMS, n_heads=2)
    weights = run(mask=mask)[1].weights  # (B, h, T, T)
    assert ((weights > 0) == mask[:, None]).all()
    moved = run(bias=bias)[1].scores - run()[1].scores
    np.testing.assert_allclose(moved, np.broadcast_to(bias, (2, 2, 4, 4)), atol=1e-14)


@together(("T_q", "T_k"), [(5, 5), (2, 5)])
@together("options", [{}, {"base": 7.0, "rope_layout": "halves"}])
def test_rope_turns_queries_and_keys_and_nothing_else(T_q, T_k, options):
    """The last query stands at the last key. d_k = 4, as the first of two pairs turns alike at every base."""
    q, k = array(T_q, 8), array(T_k, 8, seed=1)
    _, cache = npf.multi_head_attention_forward(q, k, k, PARAMS, n_heads=2, rope=True, **options)
    own = {"base": options.get("base", 10000.0), "layout": options.get("rope_layout", "interleaved")}
    Q, K, V = (
        npf.split_heads(x @ W + b, 2)
        for x, W, b in zip((q, k, k), PARAMS[:3], (PARAMS.b_Q, PARAMS.b_K, PARAMS.b_V), strict=True)
    )
    Q, _ = npf.rope_forward(Q, positions=T_k - T_q + np.arange(T_q), **own)
    K, _ = npf.rope_forward(K, **own)
    np.testing.assert_allclose(cache.scores, Q @ K.swapaxes(-1, -2) / 2, rtol=0, atol=1e-13)
    np.testing.assert_allclose(cache.attention.v, V, rtol=0, atol=1e-14)


def test_projections_have_no_biases_unless_asked():
    rng = np.random.default_rng(0)
    assert npf.init_attention(4, rng)[4:] == (None,) * 4
    assert all(not b.any() and b.shape == (4,) for b in npf.init_attention(4, rng, bias=True)[4:])


# --- the gradient -----------------------------------------------------------------------------------


@together("leading", [(), (2, 3)])
def test_gradients_of_one_head(leading):
    forward = partial(npf.attention_forward, bias=array(3, 5))
    assert npf.gradcheck(forward, npf.attention_backward, *some_qkv(leading))


@together(
    ("options", "directions"),
    [
        ({"mask": npf.causal_mask(4) & PADDING, "bias": npf.alibi_bias(2, 4, 4)}, 3),
        ({"mask": np.array([[True], [False], [True], [False]])}, None),
        ({"rope": True}, 3),
    ],
)
def test_gradients_of_many_heads(options, directions):
    forward = partial(npf.multi_head_attention_forward, n_heads=2, **options)
    arrays = *(array(2, 4, 8, seed=i) for i in range(3)), PARAMS
    assert npf.gradcheck(forward, npf.multi_head_attention_backward, *arrays, directions=directions)


@together("name", ["b_Q", "b_K", "b_V", "b_O"])
def test_each_bias_may_stand_alone_and_absent_ones_have_no_gradient(name):
    params, x = WITHOUT_BIASES._replace(**{name: array(8)}), array(3, 8)
    pair = partial(npf.multi_head_attention_forward, n_heads=2), npf.multi_head_attention_backward
    assert npf.gradcheck(*pair, x, x + 1, x - 1, params, directions=3)
    grads = npf.multi_head_attention_backward(x, pair[0](x, x, x, params)[1])[3]
    assert [g is None for g in grads] == [p is None for p in params]


def test_many_weights_go_back_head_by_head_and_few_at_once():
    q, k, v = some_qkv((3,), T_q=300, T_k=310)
    y, cache = npf.attention_forward(q, k, v, mask=npf.causal_mask(300, 310))
    assert cache.weights.size > LARGE > cache.weights[0].size
    dy = array(*y.shape, seed=4)
    whole = npf.attention_backward(dy, cache)
    for i in range(3):
        _, own = npf.attention_forward(q[i], k[i], v[i], mask=npf.causal_mask(300, 310))
        for all_of_them, one in zip(whole, npf.attention_backward(dy[i], own), strict=True):
            np.testing.assert_allclose(all_of_them[i], one, rtol=0, atol=1e-14)


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("attention", "multi_head")


# --- the edges: masks -------------------------------------------------------------------------------


@DTYPES
def test_a_fully_masked_row_gives_zeros_and_no_gradient(dtype):
    """Zero output, zero weights, zero gradient, never NaN; the others are as if that query were not there."""
    q, k, v = some_qkv(T_q=5, T_k=6, dtype=dtype)
    dy = array(2, 5, 6, seed=3, dtype=dtype)
    y, cache = npf.attention_forward(q, k, v, mask=np.arange(5)[:, None] != 2)
    dq, dk, dv = npf.attention_backward(dy, cache)
    assert all_zero((y[:, 2], dq[:, 2], cache.weights[:, 2]))
    others = [0, 1, 3, 4]
    y_others, cache_others = npf.attention_forward(q[:, others], k, v)
    expected = y_others, *npf.attention_backward(dy[:, others], cache_others)
    for found, without in zip((y[:, others], dq[:, others], dk, dv), expected, strict=True):
        np.testing.assert_allclose(found, without, rtol=0, atol=1e-6)


def test_masked_keys_are_as_if_they_were_not_there_and_have_no_gradient():
    q, k, v = some_qkv()
    keep = np.array([True, False, True, True, False])
    y, cache = npf.attention_forward(q, k, v, mask=keep)
    dq, dk, dv = npf.attention_backward(y, cache)
    expected, shorter = npf.attention_forward(q, k[:, keep], v[:, keep])
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-15)
    assert all_zero((dk[:, ~keep], dv[:, ~keep]))
    k[:, ~keep], v[:, ~keep] = 1e6, -1e6
    assert (npf.attention_forward(q, k, v, mask=keep)[0] == y).all()
    for found, without in zip(
        (dq, dk[:, keep], dv[:, keep]), npf.attention_backward(y, shorter), strict=True
    ):
        np.testing.assert_allclose(found, without, rtol=0, atol=1e-15)


def test_a_bias_of_minus_infinity_is_a_mask():
    mask = npf.causal_mask(3, 5)
    hows = {"bias": np.where(mask, 0, -np.inf)}, {"mask": mask}
    by_bias, by_mask = (npf.attention_forward(*some_qkv(), **how)[0] for how in hows)
    assert (by_bias == by_mask).all()


# --- the edges: one key, no keys, huge scores -------------------------------------------------------


def test_one_key_that_may_be_seen_gets_all_the_weight():
    q, k, v = some_qkv()
    y, cache = npf.attention_forward(q, k, v, mask=np.arange(5) == 3)
    np.testing.assert_array_equal(y, np.broadcast_to(v[:, 3:4], y.shape))
    dq, dk, _ = npf.attention_backward(array(*y.shape), cache)
    np.testing.assert_allclose(dq, 0, atol=1e-15)  # a weight that is 1 whatever the scores has no slope
    np.testing.assert_allclose(dk, 0, atol=1e-15)


def test_no_keys_give_zeros_and_leave_the_output_bias_alone():
    y, cache = npf.attention_forward(*some_qkv(T_k=0), mask=np.ones((3, 0), bool))
    assert y.shape == (2, 3, 6) and all_zero((y, npf.attention_backward(y + 1, cache)[0]))
    arguments, _ = sized("multi_head_attention_forward", (2,), 3, 0)
    y, cache = call("multi_head_attention_forward", arguments)
    np.testing.assert_array_equal(y, np.broadcast_to(arguments["params"].b_O, y.shape))
    dq, dk, dv, grads = npf.multi_head_attention_backward(np.ones_like(y), cache)
    assert all_zero((dq, dk, dv, grads._replace(b_O=None))) and (grads.b_O == 6).all()
