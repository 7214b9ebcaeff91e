"""The whole model and greedy decoding: what is promised, and what happens at their edges."""

import itertools
import math

import numpy as np
import pytest
from golden import agrees_with_pytorch
from together import together
from valid_calls import CONFIG, MODEL, all_finite

import npformer.transformer
from npformer import (
    EmbeddingParams,
    TransformerConfig,
    adam_init,
    adam_update,
    causal_mask,
    cross_entropy_backward,
    cross_entropy_forward,
    decoder_backward,
    decoder_forward,
    embedding_backward,
    embedding_forward,
    encoder_backward,
    encoder_forward,
    gradcheck,
    greedy_decode,
    init_transformer,
    leaves,
    padding_mask,
    positional_encoding,
    tied_logits_backward,
    tied_logits_forward,
    transformer_backward,
    transformer_forward,
    tree_map,
)

POSITIONS = ["sinusoidal", "learned", "rope", "alibi", "none"]
NORMS = ["post", "pre"]
VOCAB_SIZE = 7
SOURCE = np.array([[3, 5, 2, 6], [4, 1, 0, 0]])  # 0 is the padding
TARGET = np.array([[1, 4, 4], [1, 6, 0]])


def small(**options):
    sizes = {"d_model": 4, "d_ff": 6, "n_heads": 2, "n_layers": 2, "max_length": 9}
    return TransformerConfig(**sizes | {"dropout": 0.0, "eps": 1e-2} | options)


def shaken_model(config, rng, size=0.3, vocab_size=VOCAB_SIZE):
    """No parameter at the 0 or 1 that it starts from."""
    params = init_transformer(vocab_size, config, rng)
    return tree_map(lambda a: a + size * rng.normal(size=a.shape), params)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def logits_of(params, config, source=SOURCE, target=TARGET, padding_id=0):
    return transformer_forward(source, target, params, config, padding_id=padding_id)[0]


# --- the equation, by hand --------------------------------------------------------------------------


@together("norm", NORMS)
@together("positions", POSITIONS)
def test_the_model_is_its_parts_in_the_order_of_the_papers_figure(rng, norm, positions):
    config = small(norm=norm, positions=positions)
    params = shaken_model(config, rng)
    added = positional_encoding(9, 4) if positions == "sinusoidal" else np.zeros((9, 4))
    tables = [added if learned is None else learned.P for learned in params[-2:]]
    x, y = (2 * params.embedding.E[ids] for ids in (SOURCE, TARGET))  # √d_model = 2
    hidden = padding_mask(SOURCE, 0)
    memory, _ = encoder_forward(x + tables[0][:4], params.encoder, config, mask=hidden)
    own = causal_mask(3) & padding_mask(TARGET, 0)
    y, _ = decoder_forward(y + tables[1][:3], memory, params.decoder, config, mask=own, memory_mask=hidden)
    expected = np.einsum("btd,vd->btv", y, params.embedding.E)
    np.testing.assert_allclose(logits_of(params, config), expected, rtol=0, atol=1e-13)


def test_the_starting_parameters(rng):
    config = small(d_model=64, n_heads=4, positions="learned", max_length=50, norm="pre", n_layers=1)
    params = init_transformer(500, config, rng, dtype=np.float32)
    assert {array.dtype for _, array in leaves(params)} == {np.dtype(np.float32)}
    assert params.embedding.E.shape == (500, 64)
    assert (8 * params.embedding.E).std() == pytest.approx(1, abs=0.02)  # 32,000 draws
    tables = [table.P for table in params[-2:]]
    assert all(table.shape == (50, 64) for table in tables) and (tables[0] != tables[1]).any()
    sinusoids = math.sqrt((positional_encoding(50, 64) ** 2).mean())
    for table in tables:  # 3,200 draws: the root mean square is known to 1.3 %
        assert math.sqrt((table**2).mean()) == pytest.approx(sinusoids, rel=0.05)
    for stack in (params.encoder, params.decoder):
        assert len(stack.blocks) == 1 and stack.norm is not None
    for positions in ("sinusoidal", "rope", "alibi", "none"):
        assert init_transformer(5, small(positions=positions), rng)[-2:] == (None, None)


def test_it_learns_to_turn_a_sentence_round():
    """After 120 steps of Adam the loss is a tenth at most, and decoding gives the sentences back to front."""
    config = small(d_model=16, d_ff=32, n_layers=1, norm="pre")
    sentences = np.array(list(itertools.permutations([3, 4, 5])))  # 1 starts, 2 stops
    start, stop = np.ones((6, 1), int), np.full((6, 1), 2)
    targets = np.hstack([start, sentences[:, ::-1]])
    labels = np.hstack([sentences[:, ::-1], stop])
    params = init_transformer(6, config, np.random.default_rng(0))
    state, losses = adam_init(params), []
    for _ in range(120):
        logits, cache = transformer_forward(sentences, targets, params, config)
        loss, loss_cache = cross_entropy_forward(logits, labels)
        grads = transformer_backward(cross_entropy_backward(1.0, loss_cache), cache)
        params, state = adam_update(params, grads, state, learning_rate=0.01)
        losses.append(float(loss))
    assert losses[-1] < 0.1 * losses[0]
    answers = greedy_decode(sentences, params, config, start_id=1, stop_id=2, max_length=6)
    np.testing.assert_array_equal(answers, labels)


# --- the gradient -----------------------------------------------------------------------------------


@together(("positions", "norm", "activation"), [("learned", "pre", "gelu"), ("rope", "post", "relu")])
def test_gradients_of_every_parameter_with_padding_and_dropout(rng, positions, norm, activation):
    """The whole model along a direction in every leaf; every call draws the same. The loss has every entry.

    What sinusoids and ALiBi add is constant: the shared matrix below and the stacks' own tests have them.
    """
    config = small(n_layers=1, d_ff=3, positions=positions, norm=norm, activation=activation, max_length=3)
    config = config._replace(dropout=0.2, attention_bias=positions == "learned")
    params = shaken_model(config, rng, vocab_size=5)
    source, target = np.array([[3, 4, 2], [4, 0, 0]]), np.array([[1, 4], [1, 0]])
    report = gradcheck(
        transformer_forward,
        transformer_backward,
        source,
        target,
        params,
        config,
        padding_id=0,
        rng=np.random.default_rng(6),
        directions=1,
    )
    assert report and report.tolerance == 1e-8, report
    assert len(report.rows) == len(list(leaves(params)))


@together("norm", NORMS)
def test_the_shared_matrix_gets_the_sum_of_its_three_uses_gradients(rng, norm):
    """With a copy of the matrix for each use, three gradients; and none of them is zero."""
    config = small(norm=norm)
    params = shaken_model(config, rng)
    E_source, E_target, E_logits = (EmbeddingParams(params.embedding.E.copy()) for _ in range(3))
    x, source = embedding_forward(SOURCE, E_source)
    memory, encoder = encoder_forward(x + positional_encoding(4, 4), params.encoder, config)
    x, target = embedding_forward(TARGET, E_target)
    y, decoder = decoder_forward(
        x + positional_encoding(3, 4), memory, params.decoder, config, mask=causal_mask(3)
    )
    logits, tied = tied_logits_forward(y, E_logits)
    model_logits, cache = transformer_forward(SOURCE, TARGET, params, config)
    np.testing.assert_allclose(model_logits, logits, rtol=0, atol=1e-13)

    dlogits = rng.normal(size=logits.shape)
    dy, from_logits = tied_logits_backward(dlogits, tied)
    dx, dmemory, ddecoder = decoder_backward(dy, decoder)
    from_target = embedding_backward(dx, target)
    dx, dencoder = encoder_backward(dmemory, encoder)
    from_source = embedding_backward(dx, source)
    three = [gradient.E for gradient in (from_logits, from_target, from_source)]
    assert all(abs(gradient).max() > 0.1 for gradient in three)
    grads = transformer_backward(dlogits, cache)
    np.testing.assert_allclose(grads.embedding.E, sum(three), rtol=0, atol=1e-13)
    for ours, theirs in ((grads.encoder, dencoder), (grads.decoder, ddecoder)):
        tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-13), ours, theirs)


def test_learned_positions_are_two_tables_and_only_the_rows_in_use_are_trained(rng):
    config = small(positions="learned")
    params = shaken_model(config, rng)
    logits, cache = transformer_forward(SOURCE, TARGET, params, config, padding_id=0)
    grads = transformer_backward(rng.normal(size=logits.shape), cache)
    for table, T in ((grads.source_positions.P, 4), (grads.target_positions.P, 3)):
        assert table.shape == (9, 4) and table[:T].any(axis=-1).all() and not table[T:].any()
    for name in ("source_positions", "target_positions"):
        P = getattr(params, name).P.copy()
        P[1] += rng.normal(size=4)
        moved = logits_of(params._replace(**{name: getattr(params, name)._replace(P=P)}), config)
        unmoved = moved[:, 0] == logits[:, 0]  # before the target's second position
        assert unmoved.all() == (name == "target_positions") and (moved[:, 1] != logits[:, 1]).any()


# --- the golden value -------------------------------------------------------------------------------


test_golden_values = agrees_with_pytorch("transformer", "training")


# --- the edges: who sees what -----------------------------------------------------------------------


@together("norm", NORMS)
@together("positions", POSITIONS)
def test_a_later_target_token_changes_no_earlier_logits(rng, norm, positions):
    config = small(norm=norm, positions=positions)
    params = shaken_model(config, rng)
    target = np.array([[1, 4, 2, 5, 6], [1, 1, 3, 2, 2]])
    before = logits_of(params, config, target=target)
    for t in range(1, 5):
        changed = target.copy()
        changed[:, t] = (target[:, t] + 1) % VOCAB_SIZE  # from 6 to 0, the padding, among others
        after = logits_of(params, config, target=changed)
        assert (after[:, :t] == before[:, :t]).all()
        assert (after[:, t] != before[:, t]).any(axis=-1).all()
    shorter = logits_of(params, config, target=target[:, :2])
    np.testing.assert_allclose(shorter, before[:, :2], rtol=0, atol=1e-13)


@together("norm", NORMS)
@together("positions", POSITIONS)
def test_padding_changes_nothing(rng, norm, positions):
    """Neither its amount, nor what stands in its row of E, nor that it is there at all."""
    config = small(norm=norm, positions=positions)
    params = shaken_model(config, rng)
    logits = logits_of(params, config)
    longer = np.pad(SOURCE, ((0, 0), (0, 3))), np.pad(TARGET, ((0, 0), (0, 2)))
    np.testing.assert_allclose(logits_of(params, config, *longer)[:, :3], logits, rtol=0, atol=1e-13)
    alone = logits_of(params, config, SOURCE[1:, :2], TARGET[1:, :2], padding_id=None)
    np.testing.assert_allclose(logits[1:, :2], alone, rtol=0, atol=1e-13)

    E = params.embedding.E.copy()
    E[0] = 1e3 * rng.normal(size=4)
    repainted = logits_of(params._replace(embedding=EmbeddingParams(E)), config)
    words = TARGET != 0
    np.testing.assert_allclose(repainted[words][:, 1:], logits[words][:, 1:], rtol=0, atol=1e-13)
    seen = logits_of(params, config, padding_id=None)
    assert (abs(seen - logits)[1] > 1e-6).any(axis=-1).all()  # and without the masks it does change


@together("norm", NORMS)
def test_padding_in_the_middle_is_hidden_from_what_follows(rng, norm):
    config = small(norm=norm, positions="none")
    params = shaken_model(config, rng)
    source, target = np.array([[3, 0, 5, 0, 2]]), np.array([[1, 0, 4, 0, 6]])
    logits = logits_of(params, config, source, target)
    without = logits_of(params, config, source[:, ::2], target[:, ::2], padding_id=None)
    np.testing.assert_allclose(logits[:, ::2], without, rtol=0, atol=1e-13)


def test_a_sentence_of_padding_only_is_finite_and_disturbs_no_other():
    source, target = np.array([[0, 0, 0], [1, 2, 0]]), np.array([[0, 0], [3, 4]])
    logits, cache = transformer_forward(source, target, MODEL, CONFIG, padding_id=0)
    grads = transformer_backward(np.ones_like(logits), cache)
    assert all_finite((logits, grads))
    alone, _ = transformer_forward(source[1:], target[1:], MODEL, CONFIG, padding_id=0)
    np.testing.assert_allclose(logits[1:], alone, rtol=0, atol=1e-14)


@together("positions", POSITIONS)
def test_the_order_of_the_source_matters_where_there_are_positions(rng, positions):
    config = small(positions=positions)
    params = shaken_model(config, rng)
    turned = logits_of(params, config, SOURCE[:1, [1, 0, 2, 3]], TARGET[:1])
    difference = abs(turned - logits_of(params, config, SOURCE[:1], TARGET[:1])).max()
    assert difference < 1e-13 if positions == "none" else difference > 1e-4


# --- the edges: dropout -----------------------------------------------------------------------------


@together("norm", NORMS)
def test_dropout_is_on_embeddings_and_every_sub_layer_and_only_with_an_rng(rng, norm):
    config = small(norm=norm, dropout=0.4)
    params = shaken_model(config, rng)
    still = logits_of(params, config)
    assert (logits_of(params, config._replace(dropout=0.0)) == still).all()

    def dropped(seed, config=config):
        return transformer_forward(
            SOURCE, TARGET, params, config, padding_id=0, rng=np.random.default_rng(seed)
        )

    logits, cache = dropped(1)
    assert (dropped(1, config._replace(dropout=0.0))[0] == still).all()
    assert (logits != still).all() and (dropped(1)[0] == logits).all() and (dropped(2)[0] != logits).all()
    draws = [cache.source.dropout, cache.target.dropout]
    for block in cache.encoder.blocks:
        draws += [block.residual_1.dropout, block.residual_2.dropout]
    for block in cache.decoder.blocks:
        draws += [block.residual_1.dropout, block.residual_2.dropout, block.residual_3.dropout]
    assert [draw.keep.shape[-2] for draw in draws] == [4, 3] + 4 * [4] + 6 * [3]
    assert all(draw.rate == 0.4 for draw in draws)
    bits = [draw.keep.tobytes() for draw in draws]
    assert len(set(bits)) == len(bits)


def test_dropped_entries_are_of_the_embeddings_with_their_positions(rng):
    """Without blocks: what is dropped of embedding + position is zero, and the rest twice as large."""
    config = small(dropout=0.5, n_layers=0)
    params = shaken_model(config, rng)
    _, cache = transformer_forward(SOURCE, TARGET, params, config, rng=rng)
    x = cache.logits.x
    whole = 2 * params.embedding.E[TARGET] + positional_encoding(3, 4)
    keep = cache.target.dropout.keep
    assert 0 < keep.sum() < keep.size and not x[~keep].any()
    np.testing.assert_allclose(x[keep], 2 * whole[keep], rtol=1e-14)


# --- greedy decoding: the same as without kept keys -------------------------------------------------


def talkative_model(config):
    """A last norm whose gammas have both signs: the likeliest next word is seldom the last one again."""
    rng = np.random.default_rng(6)
    params = shaken_model(config, rng, size=0.1)
    decoder, gamma = params.decoder, 2 * rng.normal(size=config.d_model)
    if decoder.norm is not None:
        return params._replace(decoder=decoder._replace(norm=decoder.norm._replace(gamma=gamma)))
    *first, last = decoder.blocks
    last = last._replace(norm_3=last.norm_3._replace(gamma=gamma))
    return params._replace(decoder=decoder._replace(blocks=(*first, last)))


def plainly_decoded(source, params, config, *, start_id, max_length, padding_id=None):
    """The likeliest next token of the whole model, run from the start for every token, with no stop."""
    ids = np.full((*source.shape[:-1], 1), start_id)
    for _ in range(max_length):
        logits, _ = transformer_forward(source, ids, params, config, padding_id=padding_id)
        ids = np.concatenate([ids, logits[..., -1:, :].argmax(axis=-1)], axis=-1)
    return ids[..., 1:]


def stopped(ids, stop_id):
    """stop_id from its first place in each row on, and no column after the one where the last row stopped."""
    after = np.cumsum(ids == stop_id, axis=-1) > 0
    rows = np.where(after, stop_id, ids)
    return rows[:, : min(ids.shape[1], 1 + int((~after).sum(axis=-1).max()))]


def stopping_places(ids, stop_id):
    return tuple(int((np.cumsum(row == stop_id) == 0).sum()) for row in ids)


BATCH = np.random.default_rng(0).integers(1, VOCAB_SIZE, size=(10, 5))
BATCH *= np.arange(5) < np.array([5, 2, 3, 4, 5, 1, 5, 3, 2, 4])[:, None]  # 0 behind the shorter ones


@together(
    ("norm", "positions", "padding_id"), [*itertools.product(NORMS, POSITIONS, [0]), ("pre", "rope", None)]
)
def test_decoding_with_kept_keys_is_decoding_without(norm, positions, padding_id):
    """Token by token, for every id as the stop: rows that stop early, late, together and never."""
    config = small(d_model=8, d_ff=12, norm=norm, positions=positions, attention_bias=True)
    params = talkative_model(config)
    options = {"start_id": 1, "max_length": 9, "padding_id": padding_id}
    plain = plainly_decoded(BATCH, params, config, **options)
    assert len(np.unique(plain)) >= 4, "a model that says the same all the time proves nothing"
    for stop_id in range(VOCAB_SIZE):
        ids = greedy_decode(BATCH, params, config, stop_id=stop_id, **options)
        np.testing.assert_array_equal(ids, stopped(plain, stop_id))
    places = [stopping_places(plain, stop_id) for stop_id in range(VOCAB_SIZE)]
    assert any(len({p for p in place if p < 9}) > 1 for place in places), (
        "no two rows stop at different times"
    )
    assert any(min(place) < 9 == max(place) for place in places), "no row goes on to the end alone"


@together("norm", NORMS)
@together("positions", POSITIONS)
def test_kept_keys_give_the_logits_of_the_whole_model(norm, positions, monkeypatch):
    """Not only the likeliest token: a small mistake in the positions might leave that one as it is."""
    config = small(d_model=8, d_ff=12, norm=norm, positions=positions, activation="gelu", attention_bias=True)
    params, steps = talkative_model(config), []

    def seen(x, embedding):
        logits, cache = tied_logits_forward(x, embedding)
        steps.append(logits)
        return logits, cache

    with monkeypatch.context() as patched:
        patched.setattr(npformer.decoding, "tied_logits_forward", seen)
        options = {"start_id": 1, "stop_id": 2, "max_length": 9, "padding_id": 0}
        ids = greedy_decode(BATCH, params, config, **options)
    targets = np.insert(ids[:, :-1], 0, 1, axis=1)
    logits, _ = transformer_forward(BATCH, targets, params, config, padding_id=0)
    assert len(steps) == ids.shape[1] > 3
    np.testing.assert_allclose(np.concatenate(steps, axis=1), logits, rtol=0, atol=1e-13)


def test_a_stop_for_all_ends_the_decoding_early_and_max_length_ends_it_at_last():
    config = small(d_model=8, d_ff=12)
    params = talkative_model(config)
    plain = plainly_decoded(BATCH, params, config, start_id=1, max_length=9)
    lengths = set()
    for stop_id, max_length in itertools.product(range(VOCAB_SIZE), (1, 2, 5, 9)):
        for rows in (slice(0, 1), slice(1, 3), slice(0, 4)):
            ids = greedy_decode(
                BATCH[rows], params, config, start_id=1, stop_id=stop_id, max_length=max_length
            )
            np.testing.assert_array_equal(ids, stopped(plain[rows, :max_length], stop_id))
            lengths.add((ids.shape[1], max_length))
    assert any(length < longest for length, longest in lengths)
    assert {(1, 1), (9, 9)} <= lengths


@together("padding_id", range(VOCAB_SIZE))
def test_padding_among_the_decoded_tokens_is_hidden_as_in_the_whole_model(padding_id):
    """Each word as the padding: the model is started with it, or says it on the way."""
    config = small(d_model=8, d_ff=12, positions="rope")
    params, stop_id = talkative_model(config), (padding_id + 1) % VOCAB_SIZE
    for start_id in {1, padding_id}:
        options = {"start_id": start_id, "max_length": 9, "padding_id": padding_id}
        plain = plainly_decoded(BATCH, params, config, **options)
        ids = greedy_decode(BATCH, params, config, stop_id=stop_id, **options)
        np.testing.assert_array_equal(ids, stopped(plain, stop_id))


def test_a_new_token_costs_one_query_and_a_key_for_each_earlier_token(monkeypatch):
    """Counted: the encoder runs once, and no sub-layer of the decoder sees an earlier token a second time."""
    config = small(n_layers=2)
    params = shaken_model(config, np.random.default_rng(0))
    plain = plainly_decoded(BATCH, params, config, start_id=1, max_length=6)
    unsaid = next(word for word in range(VOCAB_SIZE) if word not in plain)
    calls = {"encoder_forward": [], "attention_forward": [], "ffn_forward": [], "linear_forward": []}

    def counted(name):
        original = getattr(npformer.decoding, name)

        def forward(x, *args, **options):
            calls[name].append((x.shape, *(a.shape for a in args[:1] if isinstance(a, np.ndarray))))
            return original(x, *args, **options)

        return forward

    for name in calls:
        monkeypatch.setattr(npformer.decoding, name, counted(name))
    monkeypatch.setattr(npformer.attention, "linear_forward", npformer.decoding.linear_forward)
    ids = greedy_decode(BATCH, params, config, start_id=1, stop_id=unsaid, max_length=6)
    assert ids.shape == (10, 6)
    assert len(calls["encoder_forward"]) == 1
    assert [x[-2] for x, *_ in calls["ffn_forward"]] == 6 * 2 * [1]  # six tokens, two blocks
    queries_and_keys = [(q[-2], k[-2]) for q, k in calls["attention_forward"]]
    assert queries_and_keys == [(1, keys) for t in range(1, 7) for keys in 2 * (t, 5)]  # own, source
    rows = [x[-2] for x, _ in calls["linear_forward"]]
    encoder, rows = rows[: 2 * 4], rows[2 * 4 :]
    assert encoder + rows[:4] == 12 * [5]  # each block's Q K V O; the memory's keys and values for each block
    assert rows[4:] == 6 * 2 * (4 + 2) * [1]  # Q K V O of the one new token, Q O of the cross-attention


# --- greedy decoding: the edges ---------------------------------------------------------------------


@together("dtype", [np.float32, np.float64])
@together("leading", [(), (1,), (2, 2), (0,)])
def test_decoding_takes_any_leading_axes_and_gives_ids(dtype, leading):
    config = small(d_model=8, d_ff=12, norm="pre", positions="learned")
    params = init_transformer(VOCAB_SIZE, config, np.random.default_rng(0), dtype=dtype)
    source = BATCH[: math.prod(leading)].reshape(*leading, 5) if leading else BATCH[0]
    options = {"start_id": np.int32(1), "stop_id": np.uint8(2), "max_length": np.int8(9), "padding_id": 0}
    ids = greedy_decode(source, params, config, **options)
    assert ids.dtype == np.int64 and ids.shape[:-1] == leading and 1 <= ids.shape[-1] <= 9
    for place in np.ndindex(leading):
        alone = greedy_decode(source[place], params, config, **options)
        np.testing.assert_array_equal(ids[place][: len(alone)], alone)
        assert (ids[place][len(alone) :] == 2).all()


def test_decoding_without_sentences_or_without_source():
    options = {"start_id": 1, "stop_id": 2, "max_length": 3}
    for source in (np.zeros((0, 4), int), np.zeros((0, 0), int)):
        decoded = greedy_decode(source, MODEL, CONFIG, **options)
        assert decoded.shape[0] == 0 and decoded.ndim == 2 and decoded.dtype.kind == "i"
    assert greedy_decode(np.zeros((2, 0), int), MODEL, CONFIG, **options).shape[0] == 2


def test_a_length_that_is_never_reached_takes_no_memory():
    config = small()
    params, options = shaken_model(config, np.random.default_rng(0)), {"start_id": 1}
    stop = int(greedy_decode(SOURCE[:1], params, config, stop_id=2, max_length=1, **options)[0, 0])
    ids = greedy_decode(SOURCE[:1], params, config, stop_id=stop, max_length=10**9, **options)
    assert ids.tolist() == [[stop]]


def test_decoding_leaves_its_arguments_as_they_are():
    config = small(positions="learned")
    params, source = shaken_model(config, np.random.default_rng(0)), SOURCE.copy()
    for array in (source, *(a for _, a in leaves(params))):
        array.flags.writeable = False
    greedy_decode(source, params, config, start_id=1, stop_id=2, max_length=9, padding_id=0)
