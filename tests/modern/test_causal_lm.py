"""The language model: what is promised, and what happens at its edges."""

import numpy as np
import pytest
from golden import agrees_with_pytorch
from together import together

import npformer as npf
from npformer import CausalLMConfig, causal_lm_backward, causal_lm_forward, gradcheck, init_causal_lm

CONFIG = CausalLMConfig(
    d_model=8, d_ff=5, n_heads=4, n_kv_heads=2, n_layers=2, eps=1e-3, base=50.0, max_length=9
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def drawn(config, rng, vocab_size=7):
    """Parameters without a 1 that would hide a mistake."""
    params = init_causal_lm(vocab_size, config, rng)
    return npf.tree_map(lambda a: a + 0.3 * rng.normal(size=a.shape), params)


# --- the equation, by hand --------------------------------------------------------------------------


def test_the_embedding_is_not_multiplied(rng):
    """Without layers: logits = RMSNorm(E[ids]) Eᵀ, and eps sees the size of E."""
    config = CONFIG._replace(n_layers=0, eps=0.5)
    params, ids = drawn(config, rng), np.array([[2, 6]])
    x = params.embedding.E[ids]
    y = params.norm.gamma * x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 0.5)
    np.testing.assert_allclose(
        causal_lm_forward(ids, params, config)[0], y @ params.embedding.E.T, rtol=0, atol=1e-14
    )


def test_only_distances_matter(rng):
    """RoPE alone knows the order: a text moved on by three places, which nobody may see, says the same."""
    params, ids = drawn(CONFIG, rng), np.array([[3, 1, 4, 1, 5]])
    moved = np.concatenate([np.zeros((1, 3), int), ids], axis=1)
    logits, _ = causal_lm_forward(ids, params, CONFIG, padding_id=0)
    later, _ = causal_lm_forward(moved, params, CONFIG, padding_id=0)
    np.testing.assert_allclose(later[:, 3:], logits, rtol=0, atol=1e-12)
    exchanged, _ = causal_lm_forward(ids[:, [1, 0, 2, 3, 4]], params, CONFIG)
    assert abs(exchanged[:, 2:] - logits[:, 2:]).max() > 1e-3


def test_the_defaults_are_those_of_the_story_teller(rng):
    params = init_causal_lm(32000, CausalLMConfig(), rng, dtype=np.float32)
    assert sum(a.size for _, a in npf.leaves(params)) == 15_191_712
    assert {a.dtype for _, a in npf.leaves(params)} == {np.dtype(np.float32)}


def test_it_learns_to_count(rng):
    """0 1 2 3 0 1 2 3 …, from any start: after some steps of Adam the next number is certain."""
    config = CONFIG._replace(n_kv_heads=1, n_layers=1)
    params = init_causal_lm(4, config, rng)
    ids = (np.arange(4)[:, None] + np.arange(7)) % 4
    state, losses = npf.adam_init(params), []
    for _ in range(60):
        logits, cache = causal_lm_forward(ids[:, :-1], params, config)
        loss, loss_cache = npf.cross_entropy_forward(logits, ids[:, 1:])
        grads = causal_lm_backward(npf.cross_entropy_backward(1.0, loss_cache), cache)
        params, state = npf.adam_update(params, grads, state, learning_rate=0.02)
        losses.append(float(loss))
    assert losses[0] > 1 and losses[-1] < 0.01
    written = npf.generate(ids[:, :1], params, config, max_new_tokens=5, temperature=0)
    assert (written == (np.arange(4)[:, None] + np.arange(6)) % 4).all()


# --- the gradient -----------------------------------------------------------------------------------


@together(("tied", "n_kv_heads", "n_layers"), [(True, 2, 2), (False, 1, 1), (True, 1, 1)])
def test_gradients(rng, tied, n_kv_heads, n_layers):
    """At every entry of the model without tied matrices, of the others along three directions."""
    config = CONFIG._replace(
        d_model=4, n_heads=2, d_ff=3, tied=tied, n_kv_heads=n_kv_heads, n_layers=n_layers
    )
    ids, params = np.array([[3, 1, 3, 2], [2, 4, 0, 0]]), drawn(config, rng, vocab_size=5)
    pair, settings = (causal_lm_forward, causal_lm_backward), {"padding_id": None if n_layers == 2 else 0}
    report = gradcheck(*pair, ids, params, config, directions=3 if tied else None, **settings)
    assert report, report
    assert len(report.rows) == 2 + (not tied) + n_layers * 9


def test_a_tied_matrix_gets_both_gradients(rng):
    tied = drawn(CONFIG, rng)
    own, ids = tied._replace(head=tied.embedding.E.T.copy()), np.array([[3, 3, 1]])
    logits, cache = causal_lm_forward(ids, tied, CONFIG)
    _, own_cache = causal_lm_forward(ids, own, CONFIG._replace(tied=False))
    dlogits = rng.normal(size=logits.shape)
    together, apart = causal_lm_backward(dlogits, cache), causal_lm_backward(dlogits, own_cache)
    assert together.head is None
    np.testing.assert_allclose(together.embedding.E, apart.embedding.E + apart.head.T, rtol=0, atol=1e-13)


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("causal_lm")


# --- the edges --------------------------------------------------------------------------------------


def test_no_position_sees_a_later_one(rng):
    params, ids = drawn(CONFIG, rng), rng.integers(7, size=(2, 6))
    logits, _ = causal_lm_forward(ids, params, CONFIG)
    for t in range(6):
        changed = ids.copy()
        changed[:, t] = (changed[:, t] + 1) % 7
        others, _ = causal_lm_forward(changed, params, CONFIG)
        assert (others[:, :t] == logits[:, :t]).all() and (others[:, t] != logits[:, t]).any()


def test_padding_is_seen_by_nobody(rng):
    params, ids = drawn(CONFIG, rng), np.array([[3, 1, 4, 0, 0]])
    padded, _ = causal_lm_forward(ids, params, CONFIG, padding_id=0)
    np.testing.assert_allclose(padded[:, :3], causal_lm_forward(ids[:, :3], params, CONFIG)[0], atol=1e-14)
    other = params._replace(embedding=npf.EmbeddingParams(params.embedding.E.copy()))
    other.embedding.E[0] += 1
    before = np.array([[3, 0, 4]])  # what stands after padding does not see it
    logits = [causal_lm_forward(before, p, CONFIG._replace(tied=False), padding_id=0)[0][0, 2] for p in (
        params._replace(head=np.ones((8, 7))), other._replace(head=np.ones((8, 7))))]  # fmt: skip
    np.testing.assert_allclose(*logits, atol=1e-14)


@together(
    ("change", "error", "message"),
    [
        ({"ids": np.zeros((1, 10), int)}, ValueError, "ids has 10 positions; expected at most .*=9$"),
        ({"ids": np.array([[7]])}, ValueError, "ids holds 7; expected ids from 0 to 6"),
        ({"config": CONFIG._replace(n_kv_heads=3)}, ValueError, "config.n_kv_heads is 3; expected a divisor"),
        ({"config": CONFIG._replace(n_heads=8)}, ValueError, "config.n_heads is 8; expected an even d_k"),
        ({"config": CONFIG._replace(n_kv_heads=4)}, ValueError, "params.blocks.0.attention.W_K has shape"),
        ({"config": CONFIG._replace(tied=False)}, TypeError, "params.head is None; expected an array"),
        ({"config": npf.TransformerConfig()}, TypeError, "config is a TransformerConfig; expected"),
        ({"padding_id": 7}, ValueError, "padding_id is 7; expected an id from 0 to 6"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(rng, change, error, message):
    arguments = {"ids": np.zeros((1, 3), int), "params": drawn(CONFIG, rng), "config": CONFIG} | change
    with pytest.raises(error, match="^causal_lm_forward: " + message):
        causal_lm_forward(**arguments)


def test_a_head_beside_tied_logits_is_refused(rng):
    params = drawn(CONFIG, rng)._replace(head=np.ones((8, 7)))
    with pytest.raises(ValueError, match=r"params\.head is an array; expected None with config\.tied=True"):
        causal_lm_forward(np.zeros((1, 3), int), params, CONFIG)
