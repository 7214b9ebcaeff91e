"""Attention, with one head and with many: the equations, the gradients, the golden values, the edges."""

from functools import partial

import numpy as np
from golden import agrees_with_pytorch
from gradients import every, gradients_hold
from together import together
from valid_calls import all_zero, array, call, sized

import npformer as npf
from npformer.attention import LARGE

PADDING = npf.padding_mask(np.array([[1, 1, 1, 0], [1, 0, 0, 0]]), 0)


def some_qkv(leading=(2,), T_q=3, T_k=5, dtype=np.float64):
    sizes = ((T_q, 4), (T_k, 4), (T_k, 6))
    return [array(*leading, *size, seed=i, dtype=dtype) for i, size in enumerate(sizes)]


def params_of(n_kv_heads=4, biases="QKVO"):
    """For d_model = 8 and four heads of queries: d_k = 2."""
    widths = dict(zip("QKVO", (8, 2 * n_kv_heads, 2 * n_kv_heads, 8), strict=True))
    found = {f"W_{x}": array(8, n, seed=i) / 3 for i, (x, n) in enumerate(widths.items())}
    return npf.AttentionParams(**found, **{f"b_{x}": array(widths[x], seed=4) for x in biases})


def outcome(q, k, v, dy, **how):
    """y, dq, dk, dv."""
    y, cache = npf.attention_forward(q, k, v, **how)
    return y, *npf.attention_backward(dy, cache)


def assert_close(found, expected, atol=1e-13):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


# --- the equations, by hand -------------------------------------------------------------------------


def test_one_query_by_hand():
    """Scores (ln 3, 0) after the division by √4: weights (¾, ¼)."""
    q = np.array([[2 * np.log(3), 0, 0, 0]])
    y, cache = npf.attention_forward(q, np.eye(4)[:2], np.array([[4.0], [8.0]]))
    assert_close((cache.scores, cache.weights, y), ([[np.log(3), 0]], [[0.75, 0.25]], [[5]]), atol=1e-14)


def test_masks():
    assert npf.causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert npf.causal_mask(1, 3).tolist() == [[True, True, True]]  # the newest query sees every key
    assert npf.causal_mask(3, 1).tolist() == [[False], [False], [True]]
    assert PADDING.tolist() == [[[True, True, True, False]], [[True, False, False, False]]]


@together(("n_kv_heads", "biases"), [(4, "QKVO"), (4, ""), (2, "QKVO"), (1, "")])
def test_many_heads_are_single_heads_side_by_side(n_kv_heads, biases):
    """The paper's formula, a head at a time; of fewer heads of keys neighbouring queries share one."""
    x, memory, params = array(4, 8), array(5, 8, seed=1), params_of(n_kv_heads, biases)
    b_Q, b_K, b_V, b_O = (np.zeros(8) if b is None else b for b in params[4:])
    heads = []
    for head in range(4):
        own = slice(2 * head, 2 * head + 2)
        first = 2 * (head // (4 // n_kv_heads))
        its_keys = slice(first, first + 2)
        q, k = x @ params.W_Q[:, own] + b_Q[own], memory @ params.W_K[:, its_keys] + b_K[its_keys]
        v = memory @ params.W_V[:, its_keys] + b_V[its_keys]
        heads.append(npf.softmax_forward(q @ k.T / np.sqrt(2))[0] @ v)
    options = {"n_heads": 4, "n_kv_heads": n_kv_heads}
    y, cache = npf.multi_head_attention_forward(x, memory, memory, params, **options)
    np.testing.assert_allclose(y, np.concatenate(heads, axis=-1) @ params.W_O + b_O, rtol=0, atol=1e-13)
    assert cache.weights.shape == cache.scores.shape == (4, 4, 5)


def test_a_mask_has_no_head_axis_and_a_bias_has_one_and_scores_are_with_it_and_before_the_mask():
    x, mask, bias = array(2, 4, 8), PADDING & npf.causal_mask(4), array(4, 4, 4, seed=1)
    run = partial(npf.multi_head_attention_forward, x, x, x, params_of(), n_heads=4)
    assert ((run(mask=mask)[1].weights > 0) == mask[:, None]).all()  # (B, h, T, T)
    moved = run(bias=bias, mask=mask)[1].scores - run()[1].scores
    np.testing.assert_allclose(moved, np.broadcast_to(bias, (2, 4, 4, 4)), atol=1e-13)


@together(("T_q", "T_k"), [(5, 5), (2, 5)])
@together(("base", "layout"), [(10000.0, "interleaved"), (7.0, "halves")])
def test_rope_turns_queries_and_keys_with_the_last_query_at_the_last_key(T_q, T_k, base, layout):
    """Two heads, as the first of two pairs turns alike at every base."""
    q, k, params = array(T_q, 8), array(T_k, 8, seed=1), params_of(biases="")
    run = partial(npf.multi_head_attention_forward, q, k, k, params, n_heads=2)
    _, cache = run(rope=True, base=base, rope_layout=layout)
    Q, K = (npf.split_heads(x @ W, 2) for x, W in ((q, params.W_Q), (k, params.W_K)))
    Q, _ = npf.rope_forward(Q, positions=T_k - T_q + np.arange(T_q), base=base, layout=layout)
    K, _ = npf.rope_forward(K, base=base, layout=layout)
    np.testing.assert_allclose(cache.scores, Q @ K.swapaxes(-1, -2) / 2, rtol=0, atol=1e-13)
    assert (cache.attention.v == run()[1].attention.v).all()


def test_projections_have_no_biases_unless_asked():
    rng = np.random.default_rng(0)
    assert npf.init_attention(4, rng)[4:] == (None,) * 4
    assert all(not b.any() and b.shape == (4,) for b in npf.init_attention(4, rng, bias=True)[4:])


# --- the gradients, the golden values ---------------------------------------------------------------

test_gradients_of_one_head = gradients_hold("attention", *every(lead=[(), (2, 3)]))
FOUR = {"n_heads": 4, "bias": None, "rope": False, "directions": 3}
BOTH = {"mask": npf.causal_mask(3, 4) & PADDING, "bias": npf.alibi_bias(4, 3, 4), "params": params_of()}
HALF_OPEN = {"lead": (), "mask": np.array([[True], [False], [True]]), "params": params_of()}
TURNED = FOUR | {"rope": True, "base": 50.0}
test_gradients_of_many_heads = gradients_hold(
    "multi_head_attention",
    FOUR | BOTH,
    FOUR | HALF_OPEN | {"directions": None},
    *[FOUR | {"lead": (1, 2), "mask": None, "params": params_of(biases=x)} for x in "QKVO"],
    *[TURNED | {"n_kv_heads": n, "params": params_of(n)} for n in (1, 2, np.int8(4))],
)
test_golden_values = agrees_with_pytorch("attention", "multi_head_attention", "grouped_attention")


def test_many_weights_go_back_head_by_head_and_few_at_once():
    (q, k, v), mask = some_qkv((3,), T_q=300, T_k=310), npf.causal_mask(300, 310)
    dy = array(3, 300, 6, seed=3)
    assert 3 * 300 * 310 > LARGE > 300 * 310
    whole = outcome(q, k, v, dy, mask=mask)
    one_by_one = [outcome(q[i], k[i], v[i], dy[i], mask=mask) for i in range(3)]
    assert_close(whole, map(np.stack, zip(*one_by_one, strict=True)), atol=1e-14)


# --- the edges: masks -------------------------------------------------------------------------------


@together("dtype", [np.float64, np.float32])
def test_a_fully_masked_row_gives_zeros_and_no_gradient(dtype):
    """Zero output, zero weights, zero gradient, never NaN; the others are as if that query were not there."""
    (q, k, v), dy = some_qkv(T_q=5, T_k=6, dtype=dtype), array(2, 5, 6, seed=3, dtype=dtype)
    mask, others = np.arange(5)[:, None] != 2, [0, 1, 3, 4]
    y, dq, dk, dv = outcome(q, k, v, dy, mask=mask)
    assert all_zero((y[:, 2], dq[:, 2], npf.attention_forward(q, k, v, mask=mask)[1].weights[:, 2]))
    without = outcome(q[:, others], k, v, dy[:, others])
    assert_close((y[:, others], dq[:, others], dk, dv), without, atol=1e-6)


def test_masked_keys_are_as_if_they_were_not_there_and_have_no_gradient():
    (q, k, v), dy, keep = some_qkv(), array(2, 3, 6, seed=3), np.array([True, False, True, True, False])
    without = outcome(q, k[:, keep], v[:, keep], dy)
    k[:, ~keep], v[:, ~keep] = 1e6, -1e6
    y, dq, dk, dv = outcome(q, k, v, dy, mask=keep)
    assert all_zero((dk[:, ~keep], dv[:, ~keep]))
    assert_close((y, dq, dk[:, keep], dv[:, keep]), without)


# --- the edges: no keys, shared keys ----------------------------------------------------------------


def test_no_keys_give_zeros_and_leave_the_output_bias_alone():
    y, dq, _, _ = outcome(*some_qkv(T_k=0), array(2, 3, 6), mask=np.ones((3, 0), bool))
    assert y.shape == (2, 3, 6) and all_zero((y, dq))
    arguments, _ = sized("multi_head_attention_forward", (2,), 3, 0)
    y, cache = call("multi_head_attention_forward", arguments)
    np.testing.assert_array_equal(y, np.broadcast_to(arguments["params"].b_O, y.shape))
    dq, dk, dv, grads = npf.multi_head_attention_backward(np.ones_like(y), cache)
    assert all_zero((dq, dk, dv, grads._replace(b_O=None))) and (grads.b_O == 6).all()
