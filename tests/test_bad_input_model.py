"""What the loss, the optimizers, the decoder, the model and its decoding refuse, word for word.

test_bad_input.py spoils each argument of each function and asks that a message has its parts. Here stand the
mistakes that people make with a whole model, a row each, with the message as they will read it.
"""

from typing import Any, NamedTuple

import numpy as np
import pytest
from test_bad_input import Change, refusal, spoilt
from valid_calls import CONFIG, MODEL, drawn

import npformer as npf

OTHER_MODEL = drawn(npf.init_transformer, 5, CONFIG._replace(n_layers=1))
WIDER_MODEL = drawn(npf.init_transformer, 5, CONFIG._replace(d_model=16))
WITHOUT_TABLES = CONFIG._replace(positions="sinusoidal")


class Row(NamedTuple):
    function: str
    place: str  # the argument of the valid call, or the field in it, that is spoilt
    value: Any
    error: type[Exception]
    message: str


def with_entry(value, *place):
    """The array with one entry changed."""

    def change(array):
        array = array.copy()
        array[place] = value
        return array

    return Change(change)


def as_type(dtype):
    return Change(lambda array: array.astype(dtype))


def cut(*place):
    return Change(lambda array: array[place])


LOSS = [
    Row("cross_entropy_forward", "targets", with_entry(5, 1, 2), ValueError,
        "targets holds 5; expected ids from 0 to 4, the vocabulary"),
    Row("cross_entropy_forward", "targets", with_entry(-2, 0, 0), ValueError,  # -1 is ignored
        "targets holds -2; expected ids from 0 to 4, the vocabulary"),
    Row("cross_entropy_forward", "ignore_index", -100.0, TypeError,
        "ignore_index is a float (-100.0); expected an integer"),
    Row("cross_entropy_forward", "targets", as_type(float), TypeError,
        "targets has dtype float64; expected an array of integers"),
    Row("cross_entropy_forward", "targets", Change(lambda ids: np.eye(5)[ids]), TypeError,  # one-hot
        "targets has dtype float64; expected an array of integers"),
    Row("cross_entropy_forward", "targets", cut(slice(None), slice(1, None)), ValueError,
        "targets has shape (2, 5); expected (2, 6), an id for each row of logits"),
    Row("cross_entropy_forward", "targets", Change(np.ravel), ValueError,
        "targets has shape (12,); expected (2, 6), an id for each row of logits"),
    Row("cross_entropy_forward", "targets", Change(lambda ids: ids[..., None]), ValueError,
        "targets has shape (2, 6, 1); expected (2, 6), an id for each row of logits"),
    Row("cross_entropy_forward", "targets", Change(lambda ids: np.full_like(ids, -1)), ValueError,
        "targets has no id that counts; expected at least one: there is nothing to average"),
    Row("cross_entropy_forward", "logits", cut(slice(0)), ValueError,
        "targets has shape (2, 6); expected (0, 6), an id for each row of logits"),
    Row("cross_entropy_forward", "label_smoothing", 1.01, ValueError,
        "label_smoothing is 1.01; expected a number from 0 to 1"),
    Row("cross_entropy_forward", "label_smoothing", -0.1, ValueError,
        "label_smoothing is -0.1; expected a finite number and >= 0"),
    Row("cross_entropy_backward", "dloss", np.ones((2, 6)), ValueError,
        "dloss has shape (2, 6); expected () like the forward's output"),
    Row("cross_entropy_backward", "dloss", np.array(1, np.float32), TypeError,
        "dloss has dtype float32; expected float64 like the forward's output"),
    Row("cross_entropy_backward", "cache", (), TypeError,
        "cache is a tuple; expected a CrossEntropyCache"),
]  # fmt: skip

OPTIMIZERS = [
    Row("adam_update", "grads.gamma", with_entry(np.nan, 1), ValueError,
        "grads.gamma holds NaN or a number too large to square; expected finite ones"),
    Row("adam_update", "grads.beta", with_entry(-np.inf, 2), ValueError,
        "grads.beta holds NaN or a number too large to square; expected finite ones"),
    Row("adam_update", "grads.beta", with_entry(1e160, 0), ValueError,
        "grads.beta holds NaN or a number too large to square; expected finite ones"),
    Row("adam_update", "state", npf.adam_init(MODEL.encoder.blocks[0].ffn), ValueError,
        "state.m is not built like params; expected the same leaves, they differ in W_1"),
    Row("adam_update", "state.v", None, ValueError,
        "state.v is not built like params; expected the same leaves, they differ in beta"),
    Row("adam_update", "grads", Change(tuple), ValueError,
        "grads is not built like params; expected the same leaves, they differ in 0"),
    Row("adam_update", "state.m.gamma", np.ones(4), ValueError,
        "state.m.gamma has shape (4,); expected (3,) like the parameter"),
    Row("adam_update", "grads.beta", as_type(np.float32), TypeError,
        "grads.beta has dtype float32; expected float64 like the parameter"),
    Row("adam_update", "params.gamma", np.ones(3, int), TypeError,
        "params.gamma has dtype int64; expected float32 or float64 "
        "(for example params.gamma.astype(np.float64))"),
    Row("adam_update", "state", Change(tuple), TypeError,
        "state is a tuple; expected an AdamState"),
    Row("adam_update", "beta_2", 1, ValueError,
        "beta_2 is 1; expected a finite number and >= 0 and < 1"),
    Row("adam_init", "params", MODEL._asdict(), TypeError,
        "params is a dict; expected an array of float32 or float64"),
    Row("sgd_update", "grads.gamma", Change(lambda g: g[:2]), ValueError,
        "grads.gamma has shape (2,); expected (3,) like the parameter"),
    Row("warmup_learning_rate", "step", 0, ValueError,
        "step is 0; expected an integer of at least 1"),  # training starts with step 1
    Row("warmup_learning_rate", "warmup_steps", 4e3, TypeError,
        "warmup_steps is a float (4000.0); expected an integer"),
]  # fmt: skip

DECODER = [
    Row("decoder_block_forward", "memory", cut(0), ValueError,
        "memory has shape (6, 8); expected the leading axes of x, (2,)"),
    Row("decoder_block_forward", "memory", as_type(np.float32), TypeError,
        "memory has dtype float32; expected float64 like the other arrays"),
    Row("decoder_block_forward", "mask", np.ones((5, 6), bool), ValueError,
        "mask has shape (5, 6); expected one that broadcasts to (..., T, T) = (2, 5, 5)"),
    Row("decoder_block_forward", "memory_mask", np.ones((5, 5), bool), ValueError,
        "memory_mask has shape (5, 5); expected one that broadcasts to (..., T, S) = (2, 5, 6)"),
    Row("decoder_block_forward", "memory_mask", np.ones((2, 6)), TypeError,
        "memory_mask has dtype float64; expected bool, True = may attend"),
    Row("decoder_block_forward", "params", MODEL.encoder.blocks[0], TypeError,
        "params is an EncoderBlockParams; expected a DecoderBlockParams"),
    Row("decoder_block_forward", "params.cross_attention.W_K", np.ones((8, 4)), ValueError,
        "params.cross_attention.W_K has shape (8, 4); expected (d_model, d_model) with d_model=8"),
    Row("decoder_forward", "params.blocks.1.norm_3.beta", np.ones(1), ValueError,
        "params.blocks.1.norm_3.beta has shape (1,); expected (d_model,) with d_model=8"),
    Row("decoder_forward", "params", MODEL.decoder.blocks, TypeError,
        "params is a tuple; expected a DecoderParams"),
    Row("decoder_forward", "config.positions", "absolute", ValueError,
        "config.positions is 'absolute'; expected one of 'sinusoidal', 'learned', 'rope', 'alibi', 'none'"),
    Row("decoder_backward", "dy", cut(0), ValueError,
        "dy has shape (5, 8); expected (2, 5, 8) like the forward's output"),
    Row("decoder_backward", "cache", npf.DecoderBlockCache(*[None] * 8), TypeError,
        "cache is a DecoderBlockCache; expected a DecoderCache"),
    Row("decoder_block_backward", "dy", cut(Ellipsis, slice(4)), ValueError,
        "dy has shape (2, 5, 4); expected (2, 5, 8) like the forward's output"),
    Row("init_decoder", "config.n_layers", 2.0, TypeError,
        "config.n_layers is a float (2.0); expected an integer"),
    Row("init_decoder_block", "rng", 7, TypeError,
        "rng is an int (7); expected a numpy.random.Generator, for example np.random.default_rng(0)"),
]  # fmt: skip

TRANSFORMER = [
    Row("transformer_forward", "source_ids", with_entry(5, 1, 2), ValueError,
        "source_ids holds 5; expected ids from 0 to 4, the vocabulary"),
    Row("transformer_forward", "target_ids", with_entry(-1, 0, 0), ValueError,
        "target_ids holds -1; expected ids from 0 to 4, the vocabulary"),
    Row("transformer_forward", "source_ids", as_type(float), TypeError,
        "source_ids has dtype float64; expected an array of integers"),
    Row("transformer_forward", "target_ids", [[1, 2]], TypeError,
        "target_ids is a list; expected an array of integers"),
    Row("transformer_forward", "source_ids", np.array(3), ValueError,
        "source_ids has shape (); expected (..., T), an id for each position"),
    Row("transformer_forward", "target_ids", cut(0), ValueError,
        "target_ids has shape (5,); expected the leading axes of source_ids, (2,)"),
    Row("transformer_forward", "source_ids", np.ones((2, 10), int), ValueError,
        "source_ids has 10 positions; expected at most the learned table's max_length=9"),
    Row("transformer_forward", "target_ids", np.ones((2, 12), int), ValueError,
        "target_ids has 12 positions; expected at most the learned table's max_length=9"),
    Row("transformer_forward", "config.positions", "absolute", ValueError,
        "config.positions is 'absolute'; expected one of 'sinusoidal', 'learned', 'rope', 'alibi', 'none'"),
    Row("transformer_forward", "config", WITHOUT_TABLES, ValueError,
        "params.source_positions is a table; expected None with config.positions='sinusoidal'"),
    Row("transformer_forward", "params.target_positions", None, TypeError,
        "params.target_positions is None; expected a LearnedPositionsParams"),
    Row("transformer_forward", "params", WIDER_MODEL, ValueError,
        "params.embedding.E has shape (5, 16); expected (vocab_size, d_model) with d_model=8"),
    Row("transformer_forward", "params.encoder", WIDER_MODEL.encoder, ValueError,
        "params.encoder.blocks.0.attention.W_Q has shape (16, 16); "
        "expected (d_model, d_model) with d_model=8"),
    Row("transformer_forward", "params.decoder", MODEL.encoder, TypeError,
        "params.decoder is an EncoderParams; expected a DecoderParams"),
    Row("transformer_forward", "params.embedding", MODEL.embedding.E, TypeError,
        "params.embedding is an array of shape (5, 8); expected an EmbeddingParams"),
    Row("transformer_forward", "padding_id", 5, ValueError,
        "padding_id is 5; expected an id from 0 to 4"),
    Row("transformer_forward", "padding_id", -1, ValueError,
        "padding_id is -1; expected an integer of at least 0"),
    Row("transformer_forward", "padding_id", "<pad>", TypeError,
        "padding_id is the string '<pad>'; expected an integer"),
    Row("transformer_backward", "dlogits", Change(lambda d: d[..., :4]), ValueError,
        "dlogits has shape (2, 5, 4); expected (2, 5, 5) like the forward's output"),
    Row("transformer_backward", "cache", Change(tuple), TypeError,
        "cache is a tuple; expected a TransformerCache"),
    Row("init_transformer", "vocab_size", 0, ValueError,
        "vocab_size is 0; expected an integer of at least 1"),
    Row("init_transformer", "config.positions", "RoPE", ValueError,
        "config.positions is 'RoPE'; expected one of 'sinusoidal', 'learned', 'rope', 'alibi', 'none'"),
]  # fmt: skip

DECODING = [
    Row("greedy_decode", "start_id", 5, ValueError, "start_id is 5; expected an id from 0 to 4"),
    Row("greedy_decode", "start_id", -1, ValueError, "start_id is -1; expected an integer of at least 0"),
    Row("greedy_decode", "stop_id", 99, ValueError, "stop_id is 99; expected an id from 0 to 4"),
    Row("greedy_decode", "stop_id", "</s>", TypeError, "stop_id is the string '</s>'; expected an integer"),
    Row("greedy_decode", "stop_id", None, TypeError, "stop_id is None; expected an integer"),
    Row("greedy_decode", "max_length", 0, ValueError, "max_length is 0; expected an integer of at least 1"),
    Row("greedy_decode", "max_length", 2.5, TypeError, "max_length is a float (2.5); expected an integer"),
    Row("greedy_decode", "max_length", 10, ValueError,
        "max_length is 10; expected at most the learned table's 9 positions"),
    Row("greedy_decode", "padding_id", 5, ValueError, "padding_id is 5; expected an id from 0 to 4"),
    Row("greedy_decode", "source_ids", np.ones((2, 10), int), ValueError,
        "source_ids has 10 positions; expected at most the learned table's max_length=9"),
    Row("greedy_decode", "source_ids", with_entry(7, 0, 0), ValueError,
        "source_ids holds 7; expected ids from 0 to 4, the vocabulary"),
    Row("greedy_decode", "source_ids", as_type(np.float32), TypeError,
        "source_ids has dtype float32; expected an array of integers"),
    Row("greedy_decode", "config.positions", "absolute", ValueError,
        "config.positions is 'absolute'; expected one of 'sinusoidal', 'learned', 'rope', 'alibi', 'none'"),
    Row("greedy_decode", "params.source_positions", None, TypeError,
        "params.source_positions is None; expected a LearnedPositionsParams"),
]  # fmt: skip

ROWS = [*LOSS, *OPTIMIZERS, *DECODER, *TRANSFORMER, *DECODING]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.function}-{row.place}")
def test_the_refusal_says_what_was_received_and_what_was_expected(row):
    error = refusal(row.function, spoilt(row.function, row.place, row.value))
    assert (type(error), str(error)) == (row.error, f"{row.function}: {row.message}")


def test_a_gradient_of_nan_deep_in_a_model_is_named():
    grads = npf.tree_map(np.zeros_like, MODEL)
    grads.decoder.blocks[1].cross_attention.b_V[3] = np.nan
    with pytest.raises(
        ValueError, match=r"^adam_update: grads\.decoder\.blocks\.1\.cross_attention\.b_V holds NaN"
    ):
        npf.adam_update(MODEL, grads, npf.adam_init(MODEL), learning_rate=0.1)


def test_the_gradients_of_another_model_are_refused_by_their_first_leaf():
    for update in (
        lambda grads: npf.sgd_update(MODEL, grads, learning_rate=0.1),
        lambda grads: npf.adam_update(MODEL, grads, npf.adam_init(MODEL), learning_rate=0.1),
    ):
        with pytest.raises(
            ValueError, match=r"grads is not built like params; .* differ in decoder\.blocks\.1\."
        ):
            update(OTHER_MODEL)
        with pytest.raises(ValueError, match=r"grads\.embedding\.E has shape \(5, 16\); expected \(5, 8\)"):
            update(WIDER_MODEL)
