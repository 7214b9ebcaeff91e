"""The ends of the ranges: empty sequences, masks that hide everything, huge numbers, odd layouts in memory.

Warnings are errors here, so a test that passes also says that NumPy had nothing to complain about.
"""

from itertools import product

import numpy as np
import pytest
from bad_calls import CHECKED, first_of_their_kind, valid_places
from together import failures, together
from valid_calls import (
    CALLS,
    CONFIG,
    FORWARD,
    MODEL,
    VOCAB_SIZE,
    array,
    backward,
    call,
    fingerprint,
    generator,
    ids,
    like,
    norm_params,
    replaced,
    shapes,
    sized,
)

import npformer as npf

KINDS = (np.float64, np.float32)
DTYPES = together("dtype", KINDS)


def all_zero(tree):
    return all((a == 0).all() for _, a in npf.leaves(tree))


def all_finite(tree):
    return all(np.isfinite(a).all() for _, a in npf.leaves(tree))


# --- nothing in the batch, nothing in the sequence ------------------------------------------------


EMPTY = [
    ((0,), 3, 4),
    ((2,), 0, 0),
    ((2,), 3, 0),
    ((2,), 0, 4),
    ((), 0, 3),
    ((), 3, 0),
    ((2, 0), 3, 3),
    ((0, 2), 0, 0),
]


@together(("lead", "T", "S"), EMPTY)
def test_nothing_goes_forward_and_backward(lead, T, S):
    def check(name, arguments, shape):
        y, cache = call(name, arguments)
        assert (y.shape, y.dtype) == (shape, np.float64)
        gradients = backward(name, array(*shape, seed=4), cache)
        for argument, gradient in gradients.items():
            assert shapes(gradient) == shapes(arguments[argument])
            assert all_finite(gradient)
            if 0 in (*lead, T):  # nothing came out, so nothing goes back
                assert all_zero(gradient)

    cases = sized(lead, T, S, generator())
    assert failures(check, [(name, *case) for name, case in cases.items()]) == {}


def test_the_same_arguments_with_something_in_them_have_gradients():
    """The test above would pass for a backward that returns zeros."""
    for name, (arguments, shape) in sized((2,), 3, 4).items():
        gradients = backward(name, array(*shape, seed=4), call(name, arguments)[1])
        assert not any(all_zero(gradient) for gradient in gradients.values()), name


@together("mask", [None, np.ones((3, 0), bool)])
def test_no_keys_give_zeros(mask):
    y, cache = npf.attention_forward(array(2, 3, 4), array(2, 0, 4), array(2, 0, 5), mask=mask)
    dq, dk, dv = npf.attention_backward(array(2, 3, 5), cache)
    assert y.shape == (2, 3, 5) and dq.shape == (2, 3, 4) and all_zero((y, dq))
    assert (dk.shape, dv.shape, cache.weights.shape) == ((2, 0, 4), (2, 0, 5), (2, 3, 0))


def test_no_keys_leave_the_output_bias_alone():
    arguments, _ = sized((2,), 3, 0)["multi_head_attention_forward"]
    y, cache = call("multi_head_attention_forward", arguments)
    b_O = arguments["params"].b_O
    np.testing.assert_array_equal(y, np.broadcast_to(b_O, y.shape))
    dq, dk, dv, grads = npf.multi_head_attention_backward(np.ones_like(y), cache)
    assert all_zero((dq, dk, dv, grads._replace(b_O=None)))
    np.testing.assert_array_equal(grads.b_O, np.full(8, 6.0))


def test_masks_and_biases_of_any_length():
    for T_q, T_k in product((0, 1, 3), repeat=2):
        assert npf.causal_mask(T_q, T_k).shape == (T_q, T_k)
        assert npf.alibi_bias(3, T_q, T_k).shape == (3, T_q, T_k)
        assert npf.positional_encoding(T_q, 5).shape == (T_q, 5)
        assert npf.padding_mask(np.zeros((T_q, T_k), int), 0).shape == (T_q, 1, T_k)


def test_decoding_without_sentences_or_without_source():
    options = {"start_id": 1, "stop_id": 2, "max_length": 3}
    for source in (np.zeros((0, 4), int), np.zeros((0, 0), int)):
        decoded = npf.greedy_decode(source, MODEL, CONFIG, **options)
        assert decoded.shape[0] == 0 and decoded.ndim == 2 and decoded.dtype.kind == "i"
    assert npf.greedy_decode(np.zeros((2, 0), int), MODEL, CONFIG, **options).shape[0] == 2


def test_a_mean_over_no_target_is_refused():
    for logits, targets in ((array(0, 5), ids(0)), (array(2, 0, 5), ids(2, 0))):
        with pytest.raises(ValueError, match=r"^cross_entropy_forward: targets has no id that counts"):
            npf.cross_entropy_forward(logits, targets)
    with pytest.raises(ValueError, match=r"nothing to average"):
        npf.cross_entropy_forward(array(2, 5), np.array([3, 3]), ignore_index=3)


# --- masks that hide everything -------------------------------------------------------------------


def hidden_from(query, T_q, T_k):
    mask = np.ones((T_q, T_k), bool)
    mask[query] = False
    return mask


@DTYPES
def test_a_query_that_may_see_nothing_gets_zeros_and_gives_no_gradient(dtype):
    q, k, v = (
        array(2, 5, 4, dtype=dtype),
        array(2, 6, 4, seed=1, dtype=dtype),
        array(2, 6, 3, seed=2, dtype=dtype),
    )
    dy = array(2, 5, 3, seed=3, dtype=dtype)
    y, cache = npf.attention_forward(q, k, v, mask=hidden_from(2, 5, 6))
    dq, dk, dv = npf.attention_backward(dy, cache)
    assert all_finite((y, dq, dk, dv)) and not all_zero((dk, dv))
    assert all_zero((y[:, 2], dq[:, 2], cache.weights[:, 2]))
    others = [0, 1, 3, 4]  # as if that query were not there
    y_others, cache_others = npf.attention_forward(q[:, others], k, v)
    np.testing.assert_allclose(y[:, others], y_others, rtol=0, atol=1e-6)
    for whole, part in zip((dk, dv), npf.attention_backward(dy[:, others], cache_others)[1:], strict=True):
        np.testing.assert_allclose(whole, part, rtol=0, atol=1e-6)


@DTYPES
@together("norm", ["post", "pre"])
def test_a_mask_without_a_single_true_in_blocks_and_stacks(norm, dtype):
    config = CONFIG._replace(norm=norm, dropout=0.0)
    x, memory = array(2, 6, 8, dtype=dtype), array(2, 5, 8, seed=1, dtype=dtype)
    nothing, no_memory = np.zeros((2, 6, 6), bool), np.zeros((1, 5), bool)
    encoder, decoder = like(MODEL.encoder, dtype), like(MODEL.decoder, dtype)
    y, cache = npf.encoder_forward(x, encoder, config, mask=nothing)
    assert all_zero(cache.blocks[0].attention.weights)
    results = [y, npf.encoder_backward(array(2, 6, 8, seed=2, dtype=dtype), cache)]
    y, cache = npf.decoder_forward(x, memory, decoder, config, mask=nothing, memory_mask=no_memory)
    dx, dmemory, grads = npf.decoder_backward(array(2, 6, 8, seed=2, dtype=dtype), cache)
    assert all_finite((*results, y, dx, grads)) and all_zero(dmemory) and not all_zero(dx)


def test_a_sentence_of_padding_only():
    source, target = np.array([[0, 0, 0], [1, 2, 0]]), np.array([[0, 0], [3, 4]])
    logits, cache = npf.transformer_forward(source, target, MODEL, CONFIG, padding_id=0)
    grads = npf.transformer_backward(array(2, 2, VOCAB_SIZE), cache)
    assert all_finite((logits, grads))
    alone, _ = npf.transformer_forward(source[1:], target[1:], MODEL, CONFIG, padding_id=0)
    np.testing.assert_allclose(logits[1:], alone, rtol=0, atol=1e-14)


def test_one_key_that_may_be_seen_gets_all_the_weight():
    mask = np.zeros((5, 6), bool)
    mask[:, 3] = True
    v = array(2, 6, 3)
    y, cache = npf.attention_forward(array(2, 5, 4), array(2, 6, 4), v, mask=mask)
    np.testing.assert_array_equal(y, np.broadcast_to(v[:, 3:4], y.shape))
    dq, dk, _ = npf.attention_backward(array(2, 5, 3), cache)
    np.testing.assert_allclose(dq, 0, atol=1e-15)  # a weight that is 1 whatever the scores has no slope
    np.testing.assert_allclose(dk, 0, atol=1e-15)


# --- softmax at its ends --------------------------------------------------------------------------


@DTYPES
@together("size", [1e4, 1e30])
def test_huge_logits(size, dtype):
    logits = np.array([[-size, size, 0], [size, size, -size], [-size, -size, -size]], dtype)
    y, cache = npf.softmax_forward(logits)
    third = dtype(1) / dtype(3)
    np.testing.assert_array_equal(y, np.array([[0, 1, 0], [0.5, 0.5, 0], [third] * 3], dtype))
    assert all_finite(npf.softmax_backward(array(3, 3, dtype=dtype), cache))
    loss, cache = npf.cross_entropy_forward(logits, np.array([1, 0, 2]))
    np.testing.assert_allclose(loss, (0 + np.log(2) + np.log(3)) / 3, rtol=1e-6)
    assert all_finite(npf.cross_entropy_backward(1.0, cache))
    loss, _ = npf.cross_entropy_forward(logits[:1], np.array([0]))
    np.testing.assert_allclose(loss, 2 * size, rtol=1e-6)


@DTYPES
def test_attention_with_huge_scores_looks_at_one_key(dtype):
    q, k, v = 1e4 * np.eye(3, dtype=dtype), 1e4 * np.eye(3, dtype=dtype), array(3, 2, dtype=dtype)
    y, cache = npf.attention_forward(q, k, v)
    np.testing.assert_array_equal(y, v)
    assert all_finite(npf.attention_backward(array(3, 2, dtype=dtype), cache))


# --- layer norm where there is no variance --------------------------------------------------------

CONSTANTS = [0.0, 1.0, 0.1, -1 / 3, 1e4 + 0.1, 1e-30, 7e7]


def test_a_constant_row_gives_beta():
    assert failures(check_constant_rows, product((1, 3, 7, 512), (1e-5, 0.0), KINDS)) == {}


def check_constant_rows(d, eps, dtype):
    x = np.repeat(np.array(CONSTANTS, dtype)[:, None], d, axis=1)
    params = like(norm_params(d), dtype)
    y, cache = npf.layer_norm_forward(x, params, eps=eps)
    np.testing.assert_array_equal(y, np.broadcast_to(params.beta, y.shape))
    assert all_zero(cache.x_hat)
    dy = array(len(x), d, seed=5, dtype=dtype)
    dx, grads = npf.layer_norm_backward(dy, cache)
    assert all_finite((dx, grads)) and all_zero(grads.gamma)
    np.testing.assert_array_equal(grads.beta, dy.sum(axis=0))
    # to first order the row's entries only move against their mean, divided by √eps (by 1 where that is 0)
    moved = dy * params.gamma - (dy * params.gamma).mean(axis=-1, keepdims=True)
    np.testing.assert_allclose(dx, moved / (np.sqrt(eps) or 1), rtol=1e-4, atol=1e-4)


def test_a_constant_row_among_others_does_not_disturb_them():
    x = array(3, 4)
    x[1] = 0.3
    for eps in (0.0, 1e-5):
        y, _ = npf.layer_norm_forward(x, norm_params(4), eps=eps)
        alone, _ = npf.layer_norm_forward(x[::2], norm_params(4), eps=eps)
        np.testing.assert_array_equal(y[::2], alone)


@DTYPES
@together("size", [1e-30, 1e-25, 1e25])
def test_without_eps_the_size_of_a_row_does_not_matter(size, dtype):
    """In float32 the squares of such rows are 0 or infinite."""
    x, dy, norm = array(3, 4, dtype=dtype), array(3, 4, seed=1, dtype=dtype), like(norm_params(4), dtype)
    for name, params in (("layer_norm", norm), ("rms_norm", npf.RMSNormParams(norm.gamma))):
        forward, backward = getattr(npf, f"{name}_forward"), getattr(npf, f"{name}_backward")
        (y, cache), (small_y, small_cache) = (forward(x * dtype(s), params, eps=0) for s in (1, size))
        np.testing.assert_allclose(small_y, y, rtol=1e-5, atol=1e-6)
        dx, small_dx = backward(dy, cache)[0], backward(dy, small_cache)[0]
        np.testing.assert_allclose(small_dx * size, dx, rtol=1e-4, atol=1e-5)


@DTYPES
def test_an_eps_that_float32_does_not_know_is_none(dtype):
    x = np.array([[0.0, 0.0], [3e-25, 1e-25]], dtype)
    for forward, params in (
        (npf.layer_norm_forward, norm_params(2)),
        (npf.rms_norm_forward, npf.RMSNormParams(np.ones(2))),
    ):
        y, cache = forward(x, like(params, dtype), eps=1e-50)  # (1e-25)²
        exact, _ = forward(x.astype(np.float64), params, eps=1e-50)
        np.testing.assert_allclose(y, exact, rtol=1e-5)
        assert all_zero(cache.x_hat[0])


def test_nan_in_a_row_stays_in_the_row():
    x = array(3, 4)
    x[1, 2] = np.nan
    y, _ = npf.layer_norm_forward(x, norm_params(4))
    assert np.isnan(y[1]).all() and all_finite(y[::2])


# --- ReLU, ids, gradients that are not numbers ----------------------------------------------------


def test_the_hidden_layer_makes_the_same_choice():
    params = npf.FFNParams(np.zeros((2, 3)), np.zeros(3), np.ones((3, 2)), np.zeros(2))
    _, cache = npf.ffn_forward(np.ones((1, 2)), params)
    dx, grads = npf.ffn_backward(np.ones((1, 2)), cache)
    assert all_zero((dx, grads.W_1, grads.b_1))


def test_ids_of_every_integer_type_mean_the_same():
    """np.take would refuse int64 ids where an index has 32 bits (in a browser)."""
    assert failures(check_ids, [(kind,) for kind in INTEGERS]) == {}


INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def check_ids(kind):
    wide, narrow = ids(2, 6), ids(2, 6).astype(kind)
    y, cache = npf.embedding_forward(narrow, MODEL.embedding)
    expected, expected_cache = npf.embedding_forward(wide, MODEL.embedding)
    np.testing.assert_array_equal(y, expected)
    grads, expected_grads = npf.embedding_backward(y, cache), npf.embedding_backward(y, expected_cache)
    np.testing.assert_array_equal(grads.E, expected_grads.E)
    logits = array(2, 6, VOCAB_SIZE)
    assert npf.cross_entropy_forward(logits, narrow)[0] == npf.cross_entropy_forward(logits, wide)[0]
    np.testing.assert_array_equal(npf.padding_mask(narrow, 0), npf.padding_mask(wide, 0))


def test_one_id_alone_is_copied_out_of_the_table():
    E = MODEL.embedding.E.copy()
    x, cache = npf.embedding_forward(np.array(2), MODEL.embedding)
    assert x.shape == (8,) and (MODEL.embedding.E == E).all()
    dE = npf.embedding_backward(np.ones(8), cache).E
    assert dE[2].all() and all_zero(np.delete(dE, 2, axis=0))


@together("wrong", [np.nan, np.inf, -np.inf])
def test_adam_names_the_gradient_that_is_no_number(wrong):
    params = MODEL.encoder.blocks[0]
    grads = npf.tree_map(np.ones_like, params)
    grads.ffn.W_2[3, 1] = wrong
    with pytest.raises(ValueError, match=r"^adam_update: grads\.ffn\.W_2 holds NaN"):
        npf.adam_update(params, grads, npf.adam_init(params), learning_rate=0.1)


def test_an_output_may_be_written_into():
    assert failures(check_writing, FORWARD.items()) == {}


def check_writing(name, forward):
    y, cache = call(name, forward())
    before = [g.copy() for _, g in npf.leaves(tuple(backward(name, np.ones_like(y), cache).values()))]
    y, cache = call(name, forward())
    dy = np.ones_like(y)
    y[...] = np.nan
    after = [g for _, g in npf.leaves(tuple(backward(name, dy, cache).values()))]
    assert all((a == b).all() for a, b in zip(before, after, strict=True))


# --- sizes as NumPy's integers --------------------------------------------------------------------


WHOLE = [p for name in CHECKED for p in valid_places(name) if type(p.value) is int and p.words != "int"]
FIRST = first_of_their_kind(WHOLE)
PLACES = [place for place in WHOLE if str(place) in FIRST or place.function in ("greedy_decode", "generate")]


def outcome(place, value):
    """What a call gives, or how it is refused."""
    try:
        return fingerprint(
            call(place.function, replaced(CALLS[place.function](), place.path, lambda _: value))
        )
    except (TypeError, ValueError) as error:
        return str(error)


def test_an_integer_of_numpys_is_an_integer():
    """100 + 100 and 100 * 100 do not fit into np.int8. Of the other kinds two at a place, by turns."""
    assert failures(check_integers, [(i, place) for i, place in enumerate(PLACES)]) == {}


def check_integers(i, place):
    for value in {place.value, 100}:
        expected = outcome(place, value)
        for kind in (np.int8, np.uint8, *np.roll(INTEGERS[2:], i)[:2]):
            if np.iinfo(kind).min <= value <= np.iinfo(kind).max:
                assert outcome(place, kind(value)) == expected, (value, kind)


# --- the layout in memory -------------------------------------------------------------------------
