"""The decoder: what is promised, and what happens at its edges."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from together import together
from valid_calls import CONFIG, MODEL, all_finite, all_zero, array, like

from npformer import (
    AttentionParams,
    DecoderParams,
    LayerNormParams,
    TransformerConfig,
    causal_mask,
    decoder_backward,
    decoder_block_backward,
    decoder_block_forward,
    decoder_forward,
    encoder_backward,
    encoder_forward,
    ffn_forward,
    gradcheck,
    init_decoder,
    init_decoder_block,
    layer_norm_forward,
    leaves,
    multi_head_attention_forward,
    padding_mask,
    tree_map,
)

POSITIONS = ["sinusoidal", "learned", "rope", "alibi", "none"]


def small(**options):
    sizes = {"d_model": 4, "d_ff": 6, "n_heads": 2, "n_layers": 2}
    return TransformerConfig(**sizes | {"dropout": 0.0, "eps": 1e-3} | options)


def shaken(params, rng):
    """No parameter at the 0 or 1 that it starts from."""
    return tree_map(lambda a: a + 0.3 * rng.normal(size=a.shape), params)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def x(rng):
    return rng.normal(size=(2, 3, 4))


@pytest.fixture
def memory(rng):
    return rng.normal(size=(2, 5, 4))


# --- the equation, by hand --------------------------------------------------------------------------


@together("activation", ["relu", "gelu"])
def test_the_block_is_its_parts_in_the_papers_order(rng, x, memory, activation):
    config = small(activation=activation)
    p = shaken(init_decoder_block(config, rng), rng)
    own, across = causal_mask(3), padding_mask(np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 0]]), 0)
    looked_back = multi_head_attention_forward(x, x, x, p.self_attention, n_heads=2, mask=own)[0]
    g = layer_norm_forward(x + looked_back, p.norm_1, eps=1e-3)[0]
    looked_across = multi_head_attention_forward(g, memory, memory, p.cross_attention, n_heads=2, mask=across)
    h = layer_norm_forward(g + looked_across[0], p.norm_2, eps=1e-3)[0]
    fed = ffn_forward(h, p.ffn, activation=activation)[0]
    expected = layer_norm_forward(h + fed, p.norm_3, eps=1e-3)[0]
    y, _ = decoder_block_forward(x, memory, p, config, mask=own, memory_mask=across)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-14)


def test_pre_norm_normalizes_what_enters_and_neither_the_memory_nor_what_goes_past(rng, x, memory):
    config = small(norm="pre")
    p = shaken(init_decoder_block(config, rng), rng)
    normed = layer_norm_forward(x, p.norm_1, eps=1e-3)[0]
    g = x + multi_head_attention_forward(normed, normed, normed, p.self_attention, n_heads=2)[0]
    normed = layer_norm_forward(g, p.norm_2, eps=1e-3)[0]
    h = g + multi_head_attention_forward(normed, memory, memory, p.cross_attention, n_heads=2)[0]
    expected = h + ffn_forward(layer_norm_forward(h, p.norm_3, eps=1e-3)[0], p.ffn)[0]
    y, _ = decoder_block_forward(x, memory, p, config)
    np.testing.assert_allclose(y, expected, rtol=0, atol=1e-14)


@together("norm", ["pre", "post"])
def test_the_stack_is_its_blocks_with_one_memory_and_pre_norm_ends_with_a_norm(rng, x, memory, norm):
    config = small(norm=norm, n_layers=3)
    params = shaken(init_decoder(config, rng), rng)
    assert len(params.blocks) == 3 and (params.norm is None) == (norm == "post")
    y, masks = x, {"mask": causal_mask(3), "memory_mask": np.array([True, True, False, True, True])}
    for block in params.blocks:
        y, _ = decoder_block_forward(y, memory, block, config, **masks)
    y = y if norm == "post" else layer_norm_forward(y, params.norm, eps=1e-3)[0]
    assert (decoder_forward(x, memory, params, config, **masks)[0] == y).all()


@together("positions", POSITIONS)
def test_positions_act_on_the_target_and_never_on_the_memory(rng, x, memory, positions):
    """The memory is a bag of rows: their order changes nothing. That of x does, if positions act inside."""
    config = small(positions=positions)
    params = shaken(init_decoder(config, rng), rng)
    y = decoder_forward(x, memory, params, config)[0]
    turned = decoder_forward(x, memory[:, ::-1], params, config)[0]
    np.testing.assert_allclose(turned, y, rtol=0, atol=1e-13)
    backwards = decoder_forward(x[:, ::-1], memory, params, config)[0][:, ::-1]
    if positions == "rope":
        assert abs(backwards - y).max() > 1e-3
    else:  # |i - j| is the same in a mirror, and the other three do not act inside
        np.testing.assert_allclose(backwards, y, rtol=0, atol=1e-13)
    crossed = decoder_forward(x[:, [1, 0, 2]], memory, params, config)[0][:, [1, 0, 2]]
    assert (abs(crossed - y).max() > 1e-3) == (positions in ("rope", "alibi"))


def test_the_starting_parameters(rng):
    config = small(d_model=8, d_ff=12, attention_bias=True, norm="pre", n_layers=2)
    params = init_decoder(config, rng, dtype=np.float32)
    assert {array.dtype for _, array in leaves(params)} == {np.dtype(np.float32)}
    assert isinstance(params.norm, LayerNormParams)
    for block in params.blocks:
        for attention in (block.self_attention, block.cross_attention):
            assert isinstance(attention, AttentionParams)
            assert attention.W_O.shape == (8, 8) and not attention.b_V.any()
        for norm in (block.norm_1, block.norm_2, block.norm_3):
            assert (norm.gamma == 1).all() and not norm.beta.any()
        assert block.ffn.W_1.shape == (8, 12)
    weights = [array for path, array in leaves(params) if array.ndim == 2]
    assert len({array.tobytes() for array in weights}) == len(weights) == 2 * (4 + 4 + 2)
    assert (init_decoder(config, np.random.default_rng(1)).blocks[0].ffn.W_1
            == init_decoder(config, np.random.default_rng(1)).blocks[0].ffn.W_1).all()  # fmt: skip


# --- the gradient -----------------------------------------------------------------------------------


@together(
    ("norm", "activation", "attention_bias"),
    [("pre", "relu", False), ("pre", "gelu", True), ("post", "relu", True), ("post", "gelu", False)],
)
def test_gradients_at_every_parameter(rng, x, memory, norm, activation, attention_bias):
    config = small(norm=norm, activation=activation, attention_bias=attention_bias, n_layers=1, d_ff=3)
    params = shaken(init_decoder(config, rng), rng)
    x, memory, directions = x[:1, :2], memory[:1, :3], None if (norm, activation) == ("pre", "gelu") else 1
    report = gradcheck(decoder_forward, decoder_backward, x, memory, params, config, directions=directions)
    assert report, report
    assert len(report.rows) == 2 + len(list(leaves(params)))


@together(("norm", "positions"), [("pre", "alibi"), ("post", "rope")])
def test_gradients_with_masks_positions_and_dropout(rng, x, memory, norm, positions):
    config = small(norm=norm, positions=positions, dropout=0.3, n_layers=1, d_ff=3)
    params = shaken(init_decoder(config, rng), rng)
    masks = {
        "mask": causal_mask(3) & padding_mask(np.array([[1, 1, 0], [0, 1, 1]]), 0),  # row 0 may see nothing
        "memory_mask": padding_mask(np.array([[1, 1, 0], [0, 0, 0]]), 0),
    }

    def forward(x, memory, params):
        return decoder_forward(x, memory, params, config, **masks, rng=np.random.default_rng(5))

    report = gradcheck(forward, decoder_backward, x, memory[:, :3], params, directions=1)
    assert report, report


@together(("leading", "T", "S"), [((), 1, 3), ((1,), 2, 1), ((2, 2), 1, 1)])
def test_gradients_of_a_block_of_any_size(rng, leading, T, S):
    config = small(d_model=2, d_ff=3, n_heads=1, attention_bias=True)
    params = shaken(init_decoder_block(config, rng), rng)
    x, memory = rng.normal(size=(*leading, T, 2)), rng.normal(size=(*leading, S, 2))
    pair = decoder_block_forward, decoder_block_backward
    report = gradcheck(*pair, x, memory, params, config, directions=1)
    assert report, report


@together("norm", ["pre", "post"])
def test_the_memory_gets_the_gradients_of_every_block(rng, x, memory, norm):
    config = small(norm=norm)
    params = shaken(init_decoder(config, rng), rng)
    report = gradcheck(lambda memory: decoder_forward(x, memory, params, config),
                       lambda dy, cache: decoder_backward(dy, cache)[1], memory)  # fmt: skip
    assert report, report
    _, cache = decoder_forward(x, memory, params, config)
    dx, dmemory, _ = decoder_backward(np.ones_like(x), cache._replace(norm=None))
    dx_2, dmemory_2, _ = decoder_block_backward(np.ones_like(x), cache.blocks[1])
    dx_1, dmemory_1, _ = decoder_block_backward(dx_2, cache.blocks[0])
    assert dmemory_1.any() and dmemory_2.any()
    np.testing.assert_allclose(dmemory, dmemory_1 + dmemory_2, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(dx, dx_1)


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("decoder_block", "decoder_stack")


# --- the edges --------------------------------------------------------------------------------------


@together("positions", POSITIONS)
@together("norm", ["pre", "post"])
def test_behind_a_causal_mask_a_later_row_changes_no_earlier_one(rng, x, memory, norm, positions):
    config = small(norm=norm, positions=positions)
    params = shaken(init_decoder(config, rng), rng)
    changed = x.copy()
    changed[:, 2] += rng.normal(size=4)

    def outputs(mask):
        return [decoder_forward(row, memory, params, config, mask=mask)[0] for row in (x, changed)]

    (before, after), (open_before, open_after) = outputs(causal_mask(3)), outputs(None)
    assert (before[:, :2] == after[:, :2]).all() and (before[:, 2] != after[:, 2]).all()
    assert (abs(open_before[:, :2] - open_after[:, :2]) > 1e-6).all()


@together("norm", ["pre", "post"])
def test_hidden_memory_has_no_influence_and_no_gradient(rng, x, memory, norm):
    config = small(norm=norm)
    params = shaken(init_decoder(config, rng), rng)
    keep = padding_mask(np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]), 0)
    y, cache = decoder_forward(x, memory, params, config, memory_mask=keep)
    _, dmemory, _ = decoder_backward(rng.normal(size=y.shape), cache)
    assert not dmemory[0, 2:].any() and dmemory[0, :2].all() and dmemory[1].all()
    changed = memory.copy()
    changed[0, 2:] = 1e6
    assert (decoder_forward(x, changed, params, config, memory_mask=keep)[0] == y).all()
    alone, _ = decoder_forward(x[:1], memory[:1, :2], params, config)
    np.testing.assert_allclose(y[:1], alone, rtol=0, atol=1e-14)
    changed[1, 4] += 1
    seen = decoder_forward(x, changed, params, config, memory_mask=keep)[0]
    assert (seen[1] != y[1]).all() and (seen[0] == y[0]).all()


@together("norm", ["pre", "post"])
def test_a_fully_masked_memory_adds_zero_and_no_gradient(rng, x, memory, norm):
    """Not NaN: the row's output is what it is with a cross-attention that adds zero (or its bias b_O)."""
    config = small(norm=norm, attention_bias=True)
    p = shaken(init_decoder_block(config, rng), rng)
    hidden = np.zeros(5, bool)
    y, cache = decoder_block_forward(x, memory, p, config, memory_mask=hidden)
    silent = p._replace(cross_attention=p.cross_attention._replace(W_O=np.zeros((4, 4))))
    np.testing.assert_allclose(y, decoder_block_forward(x, memory, silent, config)[0], rtol=0, atol=1e-14)
    _, dmemory, grads = decoder_block_backward(np.ones_like(y), cache)
    assert not dmemory.any() and not grads.cross_attention.W_K.any() and grads.cross_attention.b_O.all()
    empty, _ = decoder_block_forward(x, memory[:, :0], p, config)
    np.testing.assert_allclose(y, empty, rtol=0, atol=1e-14)


@together("dtype", [np.float64, np.float32])
@together("norm", ["post", "pre"])
def test_fully_masked_rows_pass_through_both_stacks(norm, dtype):
    config = CONFIG._replace(norm=norm, dropout=0.0)
    x, memory = array(2, 6, 8, dtype=dtype), array(2, 5, 8, seed=1, dtype=dtype)
    nothing, no_memory = np.zeros((2, 6, 6), bool), np.zeros((1, 5), bool)
    encoder, decoder = like(MODEL.encoder, dtype), like(MODEL.decoder, dtype)
    y, cache = encoder_forward(x, encoder, config, mask=nothing)
    assert all_zero(cache.blocks[0].attention.weights)
    results = [y, encoder_backward(array(2, 6, 8, seed=2, dtype=dtype), cache)]
    y, cache = decoder_forward(x, memory, decoder, config, mask=nothing, memory_mask=no_memory)
    dx, dmemory, grads = decoder_backward(array(2, 6, 8, seed=2, dtype=dtype), cache)
    assert all_finite((*results, y, dx, grads)) and all_zero(dmemory) and not all_zero(dx)


def test_a_stack_of_no_blocks_hands_x_through_and_needs_no_memory(x, memory):
    y, cache = decoder_forward(x, memory, DecoderParams(()), small(n_layers=0))
    dx, dmemory, grads = decoder_backward(np.ones_like(x), cache)
    assert (y == x).all() and (dx == 1).all() and grads == DecoderParams(())
    assert dmemory.shape == memory.shape and not dmemory.any()


@together("norm", ["pre", "post"])
def test_dropout_is_on_each_sub_layers_output_and_only_with_an_rng(rng, memory, norm):
    config = small(norm=norm, dropout=0.5)
    params = shaken(init_decoder_block(config, rng), rng)
    x, memory = rng.normal(size=(40, 5, 4)), rng.normal(size=(40, 2, 4))
    still, _ = decoder_block_forward(x, memory, params, config)
    undropped = config._replace(dropout=0.0)
    assert (decoder_block_forward(x, memory, params, undropped, rng=rng)[0] == still).all()
    y, cache = decoder_block_forward(x, memory, params, config, rng=np.random.default_rng(3))
    draws = [cache.residual_1.dropout.keep, cache.residual_2.dropout.keep, cache.residual_3.dropout.keep]
    for i, keep in enumerate(draws):
        assert keep.shape == x.shape and abs(keep.mean() - 0.5) < 0.06
        assert all((keep != other).any() for other in draws[:i])
    assert (decoder_block_forward(x, memory, params, config, rng=np.random.default_rng(3))[0] == y).all()
