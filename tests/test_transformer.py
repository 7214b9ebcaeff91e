"""The whole model and greedy decoding: equations, gradient, golden values, edge cases."""

import math
from functools import partial
from typing import Any
from unittest.mock import Mock, patch

import numpy as np
import pytest
from golden import agrees_with_pytorch
from gradients import make_gradient_test
from valid_calls import all_finite, array, replaced

import npformer as npf
from npformer import decoding

SIZES = {"d_model": 4, "d_ff": 6, "n_heads": 2, "n_layers": 2, "max_length": 9, "dropout": 0.0, "eps": 1e-2}
small = partial(npf.TransformerConfig, **SIZES)
NORMS = pytest.mark.parametrize("norm", ["post", "pre"])
POSITIONS = pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rope", "alibi", "none"])
VOCAB_SIZE = 7
SOURCE = np.array([[3, 5, 2, 6], [4, 1, 0, 0]])  # id 0 is padding
TARGET = np.array([[1, 4, 4], [1, 6, 0]])


def model(config, size=0.3):
    """Return random parameters, none of which has its initial value 0 or 1."""
    rng = np.random.default_rng(6)
    params = npf.init_transformer(VOCAB_SIZE, config, rng)
    return npf.tree_map(lambda a: a + size * rng.normal(size=a.shape), params)


def logits_of(params, config, source=SOURCE, target=TARGET, padding_id=0, rng=None):
    """Return the logits of the whole model."""
    return npf.transformer_forward(source, target, params, config, padding_id=padding_id, rng=rng)[0]


# --- the equation, by hand --------------------------------------------------------------------------


@NORMS
@POSITIONS
def test_transformer_equals_its_parts_in_order(norm, positions):
    config = small(norm=norm, positions=positions)
    params = model(config)
    added = npf.positional_encoding(9, 4) if positions == "sinusoidal" else np.zeros((9, 4))
    tables = [added if learned is None else learned.P for learned in params[-2:]]
    x, y = (2 * params.embedding.E[ids] for ids in (SOURCE, TARGET))  # 2 is the factor √d_model
    visible = npf.padding_mask(SOURCE, 0)
    memory, _ = npf.encoder_forward(x + tables[0][:4], params.encoder, config, mask=visible)
    masks = {"mask": npf.causal_mask(3) & npf.padding_mask(TARGET, 0), "memory_mask": visible}
    y, _ = npf.decoder_forward(y + tables[1][:3], memory, params.decoder, config, **masks)
    expected = np.einsum("btd,vd->btv", y, params.embedding.E)
    np.testing.assert_allclose(logits_of(params, config), expected, rtol=0, atol=1e-13)


@NORMS
def test_init_transformer_scales_and_dtypes(norm):
    options = {"positions": "learned", "norm": norm, "attention_bias": True}
    config = small(d_model=64, n_heads=4, max_length=50, **options)
    params = npf.init_transformer(500, config, np.random.default_rng(0), dtype=np.float32)
    assert {a.dtype for _, a in npf.leaves(params)} == {np.dtype(np.float32)}
    assert params.embedding.E.shape == (500, 64)
    for table in params[
        -2:
    ]:  # The rms should be √½, as for sinusoids. For 3,200 draws, its standard error is 1.3 %.
        assert table.P.shape == (50, 64)
        assert math.sqrt((table.P**2).mean()) == pytest.approx(math.sqrt(0.5), rel=0.05)
    for stack in (params.encoder, params.decoder):
        assert len(stack.blocks) == 2 and (stack.norm is None) == (norm == "post")
        for path, a in npf.leaves(stack):  # matrices are random, gammas are 1, other vectors are 0
            assert a.ndim == 2 or (a == path.endswith("gamma")).all()
    matrices = [a.tobytes() for _, a in npf.leaves(params) if a.ndim == 2]
    assert len(set(matrices)) == len(matrices)
    assert npf.init_transformer(5, small(positions="rope"), np.random.default_rng(0))[-2:] == (None, None)


# --- the gradient, the golden values ----------------------------------------------------------------

TINY: dict[str, Any] = SIZES | {"n_layers": 1, "d_ff": 3, "dropout": 0.2, "directions": 1}
TINY |= {"source_ids": np.array([[3, 4, 2], [4, 0, 0]]), "target_ids": np.array([[1, 4], [1, 0]])}
test_transformer_gradients_with_padding_and_dropout = make_gradient_test(
    "transformer",  # Not tested here: sinusoids and ALiBi, which only add constants.
    TINY | {"positions": "learned", "norm": "pre", "activation": "gelu", "attention_bias": True},
    TINY | {"positions": "rope", "norm": "post", "activation": "relu", "attention_bias": False},
)
test_golden_values = agrees_with_pytorch("transformer", "training")


# --- the edges: masks and padding -------------------------------------------------------------------


@NORMS
@POSITIONS
def test_transformer_later_target_changes_no_earlier_logits(norm, positions):
    config = small(norm=norm, positions=positions)
    params, target = model(config), np.array([[1, 4, 2, 5, 6], [1, 1, 3, 2, 2]])
    before = logits_of(params, config, target=target)
    for t in range(1, 5):
        changed = (target + (np.arange(5) == t)) % VOCAB_SIZE  # for t = 4, id 6 becomes 0, which is padding
        after = logits_of(params, config, target=changed)
        assert (after[:, :t] == before[:, :t]).all() and (after[:, t] != before[:, t]).any(axis=-1).all()


@NORMS
@POSITIONS
def test_transformer_ignores_padding(norm, positions):
    """The logits depend neither on the number of padding tokens nor on the embedding of the padding token."""
    config = small(norm=norm, positions=positions)
    params, words = model(config), TARGET != 0
    logits = logits_of(params, config)
    longer = np.pad(SOURCE, ((0, 0), (0, 3))), np.pad(TARGET, ((0, 0), (0, 2)))
    alone = logits_of(params, config, SOURCE[1:, :2], TARGET[1:, :2], padding_id=None)
    other_padding = replaced(params, "embedding.E", lambda E: np.where(np.eye(7, 1), 1e3, E))
    other = logits_of(other_padding, config)
    for found, expected in (
        (logits_of(params, config, *longer)[:, :3], logits),
        (alone, logits[1:, :2]),
        (other[words][:, 1:], logits[words][:, 1:]),
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)
    unmasked = logits_of(params, config, padding_id=None)
    assert (abs(unmasked - logits)[1] > 1e-6).any(axis=-1).all()  # without masks, padding changes the logits


def test_transformer_sentence_of_padding_only_is_finite():
    config = small()
    params, source, target = model(config), np.array([[0, 0, 0], [1, 2, 0]]), np.array([[0, 0], [3, 4]])
    logits, cache = npf.transformer_forward(source, target, params, config, padding_id=0)
    assert all_finite((logits, npf.transformer_backward(np.ones_like(logits), cache)))
    alone = logits_of(params, config, source[1:], target[1:])
    np.testing.assert_allclose(logits[1:], alone, rtol=0, atol=1e-14)


# --- the edges: dropout -----------------------------------------------------------------------------


@NORMS
def test_transformer_dropout_on_embeddings_and_every_sublayer(norm):
    config = small(norm=norm, dropout=0.4)
    params = model(config)
    without_rng = logits_of(params, config, padding_id=None)
    logits, cache = npf.transformer_forward(SOURCE, TARGET, params, config, rng=np.random.default_rng(1))
    assert (logits != without_rng).all()
    without = config._replace(dropout=0.0)
    assert (logits_of(params, without, padding_id=None, rng=np.random.default_rng(1)) == without_rng).all()
    caches = [cache.source, cache.target]
    blocks: list[Any] = [*cache.encoder.blocks, *cache.decoder.blocks]
    for block in blocks:
        caches += [part for name, part in block._asdict().items() if name.startswith("residual")]
    draws = [part.dropout for part in caches]
    assert [draw.keep.shape[-2] for draw in draws] == [4, 3] + 4 * [4] + 6 * [3]
    assert {draw.rate for draw in draws} == {0.4}
    assert len({draw.keep.tobytes() for draw in draws}) == len(draws)


def test_transformer_dropout_follows_sum_with_positions():
    """In a model without blocks, dropout sets entries of embedding + position to 0 and doubles all others."""
    config = small(dropout=0.5, n_layers=0)
    params = model(config)
    _, cache = npf.transformer_forward(SOURCE, TARGET, params, config, rng=np.random.default_rng(0))
    x, keep = cache.logits.x, cache.target.dropout.keep
    embedded = 2 * params.embedding.E[TARGET] + npf.positional_encoding(3, 4)
    np.testing.assert_allclose(x, 2 * embedded * keep, rtol=1e-14)
    assert 0 < keep.sum() < keep.size


# --- greedy decoding: the likeliest token of the whole model, at the cost of one query ---------------

BATCH = np.random.default_rng(0).integers(1, VOCAB_SIZE, size=(10, 5))
BATCH *= np.arange(5) < np.array([5, 2, 3, 4, 5, 1, 5, 3, 2, 4])[:, None]  # pads short sentences with id 0
WORK = ("tied_logits_forward", "encoder_forward", "attention_forward", "linear_forward")


def varied_model(config):
    """Return parameters whose last gammas have both signs, so that the model seldom repeats a token."""
    last = "decoder.norm.gamma" if config.norm == "pre" else "decoder.blocks.1.norm_3.gamma"
    return replaced(model(config, size=0.1), last, lambda gamma: 2 * array(*gamma.shape, seed=65))


def recorded_decode(*args, **options):
    """Run greedy_decode. Return the ids, and for each function in WORK the arguments of all its calls."""
    mocks = {name: Mock(wraps=getattr(decoding, name)) for name in WORK}
    with patch.multiple(decoding, **mocks):
        ids = npf.greedy_decode(*args, **options)
    return ids, *([call.args for call in mocks[name].call_args_list] for name in WORK)


@NORMS
@POSITIONS
@pytest.mark.parametrize("padding_id", [0, None, 4])  # the model also generates id 4
def test_greedy_decode_equals_whole_model_with_one_query(norm, positions, padding_id):
    """Try several ids as stop_id, so that rows stop early, late, together or never.

    A row that has stopped contains only stop_id from then on.
    """
    sizes = {"d_model": 8, "d_ff": 12, "n_heads": 4}  # 4 heads, so that a mix-up with 2 layers fails
    config = small(**sizes, norm=norm, positions=positions, activation="gelu", attention_bias=True)
    params, options = varied_model(config), {"start_id": 1, "padding_id": padding_id}
    generated_ids, ends = set(), set()
    for stop_id, max_length in [(0, 1), *((word, 9) for word in (0, 2, 4, 6))]:
        options |= {"stop_id": stop_id, "max_length": max_length}
        ids, last, encoded, attended, multiplied = recorded_decode(BATCH, params, config, **options)
        n, logits = ids.shape[1], np.concatenate([x for x, _ in last], axis=1) @ params.embedding.E.T
        expected = logits_of(params, config, BATCH, np.insert(ids[:, :-1], 0, 1, axis=1), padding_id)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-13)
        stops = np.cumsum(ids == stop_id, axis=1)  # 1 at the first stop_id, more after it
        np.testing.assert_array_equal(ids, np.where(stops > 1, stop_id, expected.argmax(axis=-1)))
        assert n == max_length or stops[:, -1].min() == 1, "decoding ends when the last row stops"
        assert len(encoded) == 1 and len(last) == n
        queries_and_keys = [(q.shape[-2], k.shape[-2]) for q, k, _ in attended]
        assert queries_and_keys == [
            (1, keys) for t in range(1, n + 1) for keys in 2 * (t, 5)
        ]  # one query for self-attention (t keys) and cross-attention (5 keys)
        rows = [x.shape[-2] for x, *_ in multiplied]
        assert rows == 4 * [5] + (len(rows) - 4) * [1]  # 4: keys and values of the memory in two blocks
        generated_ids |= {*ids.flat}
        ends.add((n, len({*stops[:, -1]}) > 1))
    assert len(generated_ids) >= 4 and (9, True) in ends, "the model must generate different tokens"


def test_greedy_decode_large_max_length_needs_no_memory():
    decode = partial(npf.greedy_decode, SOURCE[:1], model(small()), small(), start_id=1)
    [[first]] = decode(stop_id=0, max_length=1)
    assert decode(stop_id=first, max_length=10**9).tolist() == [[first]]


# --- greedy decoding: the edges ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(5,), (1, 5), (2, 2, 5), (0, 5), (0, 0), (2, 0)])
def test_greedy_decode_accepts_any_leading_axes(dtype, shape):
    config = small(d_model=8, d_ff=12, norm="pre", positions="learned")
    params = npf.init_transformer(VOCAB_SIZE, config, np.random.default_rng(0), dtype=dtype)
    source, leading = np.resize(BATCH, shape), shape[:-1]
    options = {"start_id": np.int32(1), "stop_id": np.uint8(2), "max_length": np.int8(9), "padding_id": 0}
    ids = npf.greedy_decode(source, params, config, **options)
    assert ids.dtype == np.int64 and ids.shape[:-1] == leading and 1 <= ids.shape[-1] <= 9
    for place in np.ndindex(leading):
        alone = npf.greedy_decode(source[place], params, config, **options)
        np.testing.assert_array_equal(ids[place][: len(alone)], alone)
        assert (ids[place][len(alone) :] == 2).all()
