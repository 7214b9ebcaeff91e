"""Attention with one head and with several heads: equations, gradients, golden values, edge cases."""

from functools import partial

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import combine, make_gradient_test
from valid_calls import all_zero, array, call, sized

import npformer as npf
from npformer.attention import LARGE

PADDING = npf.padding_mask(np.array([[1, 1, 1, 0], [1, 0, 0, 0]]), 0)


def some_qkv(leading=(2,), T_q=3, T_k=5, dtype=np.float64):
    """Return random queries, keys and values."""
    sizes = ((T_q, 4), (T_k, 4), (T_k, 6))
    return [array(*leading, *size, seed=i, dtype=dtype) for i, size in enumerate(sizes)]


def params_of(n_kv_heads=4, biases="QKVO"):
    """Return parameters with d_model = 8, four query heads and d_k = 2; `biases` lists the biases."""
    widths = dict(zip("QKVO", (8, 2 * n_kv_heads, 2 * n_kv_heads, 8), strict=True))
    found = {f"W_{x}": array(8, n, seed=i) / 3 for i, (x, n) in enumerate(widths.items())}
    return npf.AttentionParams(**found, **{f"b_{x}": array(widths[x], seed=4) for x in biases})


def output_and_gradients(q, k, v, dy, **options):
    """Run attention forward and backward, and return y, dq, dk and dv."""
    y, cache = npf.attention_forward(q, k, v, **options)
    return y, *npf.attention_backward(dy, cache)


def assert_close(found, expected, atol=1e-13):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


# --- the equations, by hand -------------------------------------------------------------------------


def test_attention_of_one_query_by_hand():
    """The scores are (ln 3, 0) after the division by √4, so the weights are ¾ and ¼."""
    q = np.array([[2 * np.log(3), 0, 0, 0]])
    y, cache = npf.attention_forward(q, np.eye(4)[:2], np.array([[4.0], [8.0]]))
    assert_close((cache.scores, cache.weights, y), ([[np.log(3), 0]], [[0.75, 0.25]], [[5]]), atol=1e-14)


def test_causal_mask_and_padding_mask_by_hand():
    assert npf.causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert npf.causal_mask(1, 3).tolist() == [[True, True, True]]  # the last query attends to every key
    assert npf.causal_mask(3, 1).tolist() == [[False], [False], [True]]
    assert PADDING.tolist() == [[[True, True, True, False]], [[True, False, False, False]]]


@pytest.mark.parametrize(("n_kv_heads", "biases"), [(4, "QKVO"), (4, ""), (2, "QKVO"), (1, "")])
def test_multi_head_attention_equals_single_heads(n_kv_heads, biases):
    """Compute the paper's formula one head at a time.

    If there are fewer key heads than query heads, neighbouring query heads share a key head.
    """
    x, memory, params = array(4, 8), array(5, 8, seed=1), params_of(n_kv_heads, biases)
    b_Q, b_K, b_V, b_O = (np.zeros(8) if b is None else b for b in params[4:])
    heads = []
    for head in range(4):
        query_columns = slice(2 * head, 2 * head + 2)
        first = 2 * (head // (4 // n_kv_heads))
        key_columns = slice(first, first + 2)
        q = x @ params.W_Q[:, query_columns] + b_Q[query_columns]
        k = memory @ params.W_K[:, key_columns] + b_K[key_columns]
        v = memory @ params.W_V[:, key_columns] + b_V[key_columns]
        heads.append(npf.softmax_forward(q @ k.T / np.sqrt(2))[0] @ v)
    options = {"n_heads": 4, "n_kv_heads": n_kv_heads}
    y, cache = npf.multi_head_attention_forward(x, memory, memory, params, **options)
    np.testing.assert_allclose(y, np.concatenate(heads, axis=-1) @ params.W_O + b_O, rtol=0, atol=1e-13)
    assert cache.weights.shape == cache.scores.shape == (4, 4, 5)


def test_multi_head_attention_adds_bias_and_applies_mask():
    """The bias has a head axis, but the mask has none. The cached scores include only the bias."""
    x, mask, bias = array(2, 4, 8), PADDING & npf.causal_mask(4), array(4, 4, 4, seed=1)
    run = partial(npf.multi_head_attention_forward, x, x, x, params_of(), n_heads=4)
    assert ((run(mask=mask)[1].weights > 0) == mask[:, None]).all()  # (B, h, T, T)
    moved = run(bias=bias, mask=mask)[1].scores - run()[1].scores
    np.testing.assert_allclose(moved, np.broadcast_to(bias, (2, 4, 4, 4)), atol=1e-13)


@pytest.mark.parametrize(("T_q", "T_k"), [(5, 5), (2, 5)])
@pytest.mark.parametrize(("base", "layout"), [(10000.0, "interleaved"), (7.0, "halves")])
def test_rope_rotates_queries_and_keys_aligned_at_end(T_q, T_k, base, layout):
    """Heads of width 4 are needed, because the angle of the first pair does not depend on the base."""
    q, k, params = array(T_q, 8), array(T_k, 8, seed=1), params_of(biases="")
    run = partial(npf.multi_head_attention_forward, q, k, k, params, n_heads=2)
    _, cache = run(rope=True, base=base, rope_layout=layout)
    Q, K = (npf.split_heads(x @ W, 2) for x, W in ((q, params.W_Q), (k, params.W_K)))
    Q, _ = npf.rope_forward(Q, positions=T_k - T_q + np.arange(T_q), base=base, layout=layout)
    K, _ = npf.rope_forward(K, base=base, layout=layout)
    np.testing.assert_allclose(cache.scores, Q @ K.swapaxes(-1, -2) / 2, rtol=0, atol=1e-13)
    assert (cache.attention.v == run()[1].attention.v).all()


@pytest.mark.parametrize("settings", [{"scale": np.float64(0.7)}, {"soft_cap": np.float64(0.7)}], ids=str)
def test_numpy_scalars_as_settings_keep_float32(settings):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    params = npf.init_attention(4, rng, dtype=np.float32)
    y, cache = npf.multi_head_attention_forward(x, x, x, params, n_heads=2, **settings)
    dq, *_ = npf.multi_head_attention_backward(y, cache)
    assert y.dtype == np.float32 and cache.weights.dtype == np.float32 and dq.dtype == np.float32


def test_scale_and_soft_cap_by_hand():
    """With scale 3, the scores are (3, 0), and the cap 2 gives (2 tanh 1.5, 0). The bias is added last."""
    q, bias = np.array([[1.0, 0]]), np.array([[0, 0.5]])
    _, cache = npf.attention_forward(q, np.eye(2), np.eye(2), scale=3.0)
    assert cache.scores.tolist() == [[3, 0]]
    _, cache = npf.attention_forward(q, np.eye(2), np.eye(2), scale=3.0, soft_cap=2.0, bias=bias)
    assert_close(
        (cache.scores, cache.weights), ([[2 * np.tanh(1.5), 0.5]], npf.softmax_forward(cache.scores)[0])
    )


def test_rope_table_with_own_positions_for_each_text():
    """Two texts of one batch have the results that each text has alone."""
    x, params = array(2, 4, 8), params_of(biases="")
    run = partial(npf.multi_head_attention_forward, params=params, n_heads=2)
    frequencies = npf.angular_frequencies(4)[:1]  # rotate only the first two columns of each head
    y, _ = run(x, x, x, rope=npf.rope_table(POSITIONS, frequencies))
    for text, positions, expected in zip(x, POSITIONS, y, strict=True):
        alone, _ = run(text, text, text, rope=npf.rope_table(positions, frequencies))
        np.testing.assert_allclose(alone, expected, rtol=0, atol=1e-13)
    shifted, _ = run(x, x, x, rope=npf.rope_table(POSITIONS + 5, frequencies))
    np.testing.assert_allclose(shifted, y, rtol=0, atol=1e-13)
    assert abs(y - run(x, x, x)[0]).max() > 1e-3


def test_rope_table_equals_the_default():
    x, memory, params = array(2, 8), array(5, 8, seed=1), params_of(biases="")
    table = npf.rope_table(np.arange(5), npf.angular_frequencies(4))
    run = partial(npf.multi_head_attention_forward, params=params, n_heads=2)
    for q, k in ((x, memory), (memory, x), (memory, memory)):
        np.testing.assert_allclose(run(q, k, k, rope=table)[0], run(q, k, k, rope=True)[0], atol=1e-14)


def test_bias_of_minus_infinity_masks_one_head():
    """Head 0 is causal and head 1 sees all keys."""
    x, params = array(2, 4, 8), params_of(biases="")
    mask = np.stack([npf.causal_mask(4), np.ones((4, 4), bool)])  # (h, T, T)
    run = partial(npf.multi_head_attention_forward, x, x, x, params, n_heads=2)
    y, cache = run(bias=np.where(mask, 0, -np.inf))
    assert (cache.weights > 0).tolist() == np.broadcast_to(mask, (2, 2, 4, 4)).tolist()
    assert (cache.weights[:, 0] == run(mask=mask[0])[1].weights[:, 0]).all()
    assert (cache.weights[:, 1] == run()[1].weights[:, 1]).all()
    assert all(np.isfinite(g).all() for _, g in npf.leaves(npf.multi_head_attention_backward(y, cache)))


def test_init_attention_has_biases_only_on_request():
    rng = np.random.default_rng(0)
    assert npf.init_attention(4, rng)[4:] == (None,) * 4
    assert all(not b.any() and b.shape == (4,) for b in npf.init_attention(4, rng, bias=True)[4:])


# --- the gradients, the golden values ---------------------------------------------------------------

test_attention_gradients = make_gradient_test(
    "attention", *combine(lead=[(), (2, 3)]), {"scale": None, "soft_cap": None}, {"soft_cap": None}
)
FOUR_HEADS = {"n_heads": 4, "bias": None, "rope": False, "directions": 3}
MASK = npf.causal_mask(3, 4) & PADDING
MASK_AND_BIAS = {"mask": MASK, "bias": npf.alibi_bias(4, 3, 4), "params": params_of()}
ONE_MASKED_ROW = {"lead": (), "mask": np.array([[True], [False], [True]]), "params": params_of()}
CAPPED = {"scale": 1.5, "soft_cap": 1.2}
POSITIONS = np.array([[0, 1, 2, 3], [0, 0, 1, 7]])  # one row of positions for each text
TABLE = npf.rope_table(POSITIONS, npf.angular_frequencies(2, base=50.0), layout="halves")
WITH_ROPE = FOUR_HEADS | {"rope": True, "base": 50.0}
test_multi_head_attention_gradients = make_gradient_test(
    "multi_head_attention",
    FOUR_HEADS | MASK_AND_BIAS,
    FOUR_HEADS | ONE_MASKED_ROW | {"directions": None},
    *[FOUR_HEADS | {"lead": (1, 2), "mask": None, "params": params_of(biases=x)} for x in "QKVO"],
    *[WITH_ROPE | {"n_kv_heads": n, "params": params_of(n)} for n in (1, 2, np.int8(4))],
    FOUR_HEADS | CAPPED | {"params": params_of(), "rope": TABLE},
)
test_golden_values = agrees_with_pytorch("attention", "multi_head_attention", "grouped_attention")


def test_attention_backward_of_large_batch_equals_single_items():
    """With more than LARGE weights, the backward pass computes one head at a time instead of all at once."""
    (q, k, v), mask = some_qkv((3,), T_q=300, T_k=310), npf.causal_mask(300, 310)
    dy = array(3, 300, 6, seed=3)
    assert 3 * 300 * 310 > LARGE > 300 * 310
    at_once = output_and_gradients(q, k, v, dy, mask=mask, **CAPPED)
    one_by_one = [output_and_gradients(q[i], k[i], v[i], dy[i], mask=mask, **CAPPED) for i in range(3)]
    assert_close(at_once, map(np.stack, zip(*one_by_one, strict=True)), atol=1e-14)


# --- the edges: masks -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_attention_fully_masked_row_is_zero(dtype):
    """A fully masked query has zero output, weights and gradient. Other queries do not change."""
    (q, k, v), dy = some_qkv(T_q=5, T_k=6, dtype=dtype), array(2, 5, 6, seed=3, dtype=dtype)
    mask, other_queries = np.arange(5)[:, None] != 2, [0, 1, 3, 4]
    y, dq, dk, dv = output_and_gradients(q, k, v, dy, mask=mask)
    assert all_zero((y[:, 2], dq[:, 2], npf.attention_forward(q, k, v, mask=mask)[1].weights[:, 2]))
    without = output_and_gradients(q[:, other_queries], k, v, dy[:, other_queries])
    assert_close((y[:, other_queries], dq[:, other_queries], dk, dv), without, atol=1e-6)


def test_attention_ignores_masked_keys():
    (q, k, v), dy, keep = some_qkv(), array(2, 3, 6, seed=3), np.array([True, False, True, True, False])
    without = output_and_gradients(q, k[:, keep], v[:, keep], dy)
    k[:, ~keep], v[:, ~keep] = 1e6, -1e6
    y, dq, dk, dv = output_and_gradients(q, k, v, dy, mask=keep)
    assert all_zero((dk[:, ~keep], dv[:, ~keep]))
    assert_close((y, dq, dk[:, keep], dv[:, keep]), without)


# --- the edges: no keys, shared keys ----------------------------------------------------------------


def test_attention_without_keys_is_zero():
    q, k, v = some_qkv(T_k=0)
    y, dq, _, _ = output_and_gradients(q, k, v, array(2, 3, 6), mask=np.ones((3, 0), bool))
    assert y.shape == (2, 3, 6) and all_zero((y, dq))
    arguments, _ = sized("multi_head_attention_forward", (2,), 3, 0)
    y, cache = call("multi_head_attention_forward", arguments)
    np.testing.assert_array_equal(y, np.broadcast_to(arguments["params"].b_O, y.shape))
    dq, dk, dv, grads = npf.multi_head_attention_backward(np.ones_like(y), cache)
    assert all_zero((dq, dk, dv, grads._replace(b_O=None))) and (grads.b_O == 6).all()
