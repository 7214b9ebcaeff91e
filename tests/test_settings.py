"""Settings that contradict the parameters, and what NumPy makes of extremes: refused or right, by name."""

import queue
import re

import numpy as np
import pytest

import npformer as npf

RNG = np.random.default_rng(0)
CONFIG = npf.TransformerConfig(d_model=8, d_ff=12, n_heads=2, n_layers=2, dropout=0.0)
BIASED, LEARNED = CONFIG._replace(attention_bias=True), CONFIG._replace(positions="learned", max_length=5)
IDS, X = np.array([[1, 2, 3]]), RNG.standard_normal((1, 3, 8))


def of_encoder(config, params):
    return lambda: npf.encoder_forward(X, params, config)


def of_decoder(config, params):
    return lambda: npf.decoder_forward(X, X, params, config)


def of_model(config, params):
    return lambda: npf.transformer_forward(IDS, IDS, params, config)


def of_decoding(config, params):
    return lambda: npf.greedy_decode(IDS, params, config, start_id=0, stop_id=1, max_length=3)


def without(block, *names):
    return block._replace(attention=block.attention._replace(**dict.fromkeys(names)))


ENCODER, DECODER, MODEL = (
    npf.init_encoder(CONFIG, RNG), npf.init_decoder(CONFIG, RNG), npf.init_transformer(9, CONFIG, RNG)
)  # fmt: skip
WITH_BIASES, WITH_TABLES = npf.init_encoder(BIASED, RNG), npf.init_transformer(9, LEARNED, RNG)
BLOCK = WITH_BIASES.blocks[0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (of_encoder(CONFIG._replace(n_layers=3), ENCODER), "encoder_forward: params.blocks holds 2 blocks"),
        (of_decoder(CONFIG._replace(n_layers=1), DECODER), "decoder_forward: params.blocks holds 2 blocks"),
        (of_model(CONFIG._replace(n_layers=1), MODEL), "transformer_forward: params.encoder.blocks holds 2"),
        (of_decoding(CONFIG._replace(n_layers=1), MODEL), "greedy_decode: params.encoder.blocks holds 2"),
        (of_model(LEARNED._replace(max_length=7), WITH_TABLES),
         "transformer_forward: params.source_positions.P has 5 rows; expected config.max_length=7"),
        (of_decoding(LEARNED._replace(max_length=4), WITH_TABLES),
         "greedy_decode: params.source_positions.P has 5 rows; expected config.max_length=4"),
    ],
)  # fmt: skip
def test_a_config_that_contradicts_the_parameters_is_refused_by_the_function_that_was_called(call, message):
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        call()


def test_a_block_has_no_use_for_the_number_of_layers():
    y, _ = npf.encoder_block_forward(X, ENCODER.blocks[0], CONFIG._replace(n_layers=7, max_length=2))
    assert np.isfinite(y).all()


@pytest.mark.parametrize("config", [BIASED, CONFIG])
def test_any_of_the_biases_may_be_absent_as_in_published_models_whose_keys_have_none(config):
    y, cache = npf.encoder_block_forward(X, without(BLOCK, "b_K"), config)
    _, grads = npf.encoder_block_backward(y, cache)
    assert grads.attention.b_K is None and grads.attention.b_Q.shape == (8,)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("filling", [-np.inf, np.nan, np.inf, 1e308])
def test_a_row_that_is_ignored_counts_for_nothing_whatever_it_holds(smoothing, filling):
    logits, targets = RNG.standard_normal((4, 5)), np.array([3, 9, 0, 9])
    logits[1], logits[3, 2] = filling, filling
    counted = [0, 2]
    loss, cache = npf.cross_entropy_forward(logits, targets, ignore_index=9, label_smoothing=smoothing)
    alone, alone_cache = npf.cross_entropy_forward(
        logits[counted], targets[counted], label_smoothing=smoothing
    )
    dlogits = npf.cross_entropy_backward(1.0, cache)
    assert loss == alone and (dlogits[[1, 3]] == 0).all()
    assert (dlogits[counted] == npf.cross_entropy_backward(1.0, alone_cache)).all()


def zero_d(value=0.5):
    return np.array(value)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["relu", "gelu"])
def test_a_result_of_no_axes_is_an_array(name, dtype):
    y, cache = getattr(npf, f"{name}_forward")(zero_d().astype(dtype))
    dz = getattr(npf, f"{name}_backward")(y, cache)
    assert all(type(a) is np.ndarray and a.shape == () and a.dtype == dtype for a in (y, dz))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_updates_of_arrays_of_no_axes_are_arrays(dtype):
    p = zero_d().astype(dtype)
    moved = npf.sgd_update((p,), (p,), learning_rate=0.1)
    adam, state = npf.adam_update((p,), (p,), npf.adam_init((p,)), learning_rate=0.1)
    for array in (moved[0], adam[0], state.m[0], state.v[0]):
        assert type(array) is np.ndarray and array.shape == () and array.dtype == dtype


TINY = np.full((2, 2), 1e-300)
EXTREME = {
    "softmax": lambda: npf.softmax_forward(np.array([[0.0, -800.0], [-np.inf, -np.inf]])),
    "softmax backward": lambda: npf.softmax_backward(
        TINY, npf.softmax_forward(np.array([[0.0, -740.0]] * 2))[1]
    ),
    "attention": lambda: npf.attention_forward(
        np.full((2, 2), 30.0), np.array([[30.0, 30], [-30, -30]]), TINY
    ),
    "gelu": lambda: npf.gelu_forward(np.array([-40.0, 1e-310, 40.0])),
    "gelu backward": lambda: npf.gelu_backward(TINY, npf.gelu_forward(np.array([[-38.0, 1e-310]] * 2))[1]),
    "loss": lambda: npf.cross_entropy_forward(np.array([[0.0, -800.0]]), np.array([0])),
    "loss backward": lambda: npf.cross_entropy_backward(
        1e-300, npf.cross_entropy_forward(np.array([[0.0, -740.0]]), np.array([0]))[1]
    ),
    "adam": lambda: npf.adam_update((TINY,), (TINY,), npf.adam_init((TINY,)), learning_rate=1e-3),
    "sgd": lambda: npf.sgd_update((TINY,), (TINY,), learning_rate=1e-200),
    "gradcheck": lambda: npf.gradcheck(npf.softmax_forward, npf.softmax_backward, np.array([[0.0, -740.0]])),
}


@pytest.mark.parametrize("name", EXTREME)
def test_a_caller_that_raises_at_underflow_is_not_stopped_inside(name):
    with np.errstate(all="raise"):
        EXTREME[name]()


def test_what_can_never_be_held_fails_at_once():
    with pytest.raises(MemoryError, match=r"shape \(1000000000, 1000000\)"):  # the first array that is made
        npf.positional_encoding(10**9, 10**6)


def test_a_length_that_is_never_reached_takes_no_memory():
    stop = int(npf.greedy_decode(IDS, MODEL, CONFIG, start_id=0, stop_id=8, max_length=1)[0, 0])
    ids = npf.greedy_decode(IDS, MODEL, CONFIG, start_id=0, stop_id=stop, max_length=10**9)
    assert ids.tolist() == [[stop]]


def test_adam_without_eps_leaves_a_weight_without_a_gradient_where_it_is():
    params, grads = (np.array([1.0, 2.0]),), (np.array([0.0, 3.0]),)
    moved, state = npf.adam_update(params, grads, npf.adam_init(params), learning_rate=0.1, eps=0.0)
    np.testing.assert_allclose(moved[0], [1.0, 1.9])
    moved, _ = npf.adam_update(moved, grads, state, learning_rate=0.1, eps=0.0)
    np.testing.assert_allclose(moved[0], [1.0, 1.8])


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint64, int])
def test_adams_step_may_be_any_integer(kind):
    params = (np.ones(2),)
    state = npf.adam_init(params)._replace(step=kind(127))
    assert npf.adam_update(params, params, state, learning_rate=0.1)[1].step == 128


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_positions_that_are_not_finite_are_refused(value):
    with pytest.raises(ValueError, match=r"^rope_forward: positions holds NaN or infinity; expected finite"):
        npf.rope_forward(np.ones((2, 4)), positions=np.array([0.0, value]))


def test_a_gamma_that_does_not_fit_is_named():
    wrong = npf.LayerNormParams(np.ones(3), np.ones(4))
    with pytest.raises(ValueError, match=r"^layer_norm_forward: params\.gamma has shape \(3,\); expected"):
        npf.layer_norm_forward(np.ones((2, 4)), wrong)


def test_updates_name_themselves_where_a_tree_is_too_deep():
    tree = np.ones(1)
    for _ in range(3000):
        tree = (tree,)
    for name, call in {
        "sgd_update": lambda: npf.sgd_update(tree, tree, learning_rate=0.1),
        "adam_init": lambda: npf.adam_init(tree),
    }.items():
        with pytest.raises(ValueError, match=rf"^{name}: the tree is nested more than 100 deep"):
            call()


def test_no_path_is_not_the_folder_where_we_are():
    with pytest.raises(FileNotFoundError, match=r"^load_minilm: there is no folder ''"):
        npf.load_minilm("")


def test_an_argument_with_a_get_of_its_own_is_left_alone():
    waiting = queue.Queue()
    assert npf.gradcheck(lambda x, q: (x * 2, q), lambda dy, q: dy * 2, np.ones(2), waiting)
