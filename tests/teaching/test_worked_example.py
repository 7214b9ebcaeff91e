"""The worked example, against the package and against pencils.

The pencil of these tests is the decimal module: exact decimal arithmetic and its ROUND_HALF_UP, which share
nothing with the trace's own rounding.
"""

import re
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npformer.attention import causal_mask, multi_head_attention_backward, multi_head_attention_forward
from npformer.embedding import EmbeddingParams, embedding_backward, embedding_forward
from npformer.encoder import encoder_block_backward, encoder_block_forward
from npformer.feed_forward import ffn_backward, ffn_forward
from npformer.layer_norm import layer_norm_forward
from npformer.modern.rms_norm import RMSNormParams, rms_norm_backward, rms_norm_forward
from npformer.optim import adam_init, adam_update, sgd_update
from npformer.positional import positional_encoding
from npformer.teaching.text import build_vocabulary, encode, tokenize
from npformer.teaching.worked_example import (
    GIVEN,
    VARIANTS,
    dog_bites_man,
    drift,
    round_half_away,
    varied,
    worked_example,
)  # fmt: skip
from npformer.tree import leaves, tree_map

TRACE = worked_example()
VALUE = {step.name: step.value for step in TRACE.steps}
CALCULATED = [step for step in TRACE.steps if step.equation != GIVEN]
PARAMETERS = ["E", *(path for path, _ in leaves(TRACE.example.block))]


def close(actual, expected):
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-14)


def with_block(**parts):
    example = dog_bites_man()
    return example._replace(block=example.block._replace(**parts))


def replaced(path, change, example=None):
    """The example with one of its arrays changed: path "E", "target" or a path of the block."""
    example = dog_bites_man() if example is None else example
    if path == "E":
        return example._replace(embedding=EmbeddingParams(change(example.embedding.E)))
    paths = iter([name for name, _ in leaves(example.block)])
    block = tree_map(lambda array: change(array) if next(paths) == path else array, example.block)
    return example._replace(block=block)


# --- what there is --------------------------------------------------------------------------------


def names(place, *leaves):
    return [f"{place}.{leaf}" for leaf in leaves]


NORM = ("mean", "centred", "variance", "std", "x_hat")
NORM_BACK = ("gamma", "beta", "x_hat", "along_1", "along_x")
FORWARD = [
    *["embedding", "angles", "table", "x"],
    *names("attention", "Q", "K", "V", "scores", "max", "shifted", "exp", "weights", "heads"),
    *["a", "s", *names("norm_1", *NORM), "h"],
    *names("ffn", "z", "hidden"),
    *["f", "t", *names("norm_2", *NORM), "y"],
]
BACK = [
    *["loss", "d_y", *names("d_norm_2", *NORM_BACK), "d_t"],
    *names("d_ffn", "W_2", "b_2", "hidden", "z", "W_1", "b_1"),
    *["d_h", *names("d_norm_1", *NORM_BACK), "d_s"],
    *names("d_attention", "W_O", "heads", "V", "weights", "scores", "Q", "K", "W_Q", "W_K", "W_V"),
    *["d_x", "d_E"],
]
SECOND = [f"new_{name}" for name in FORWARD if name not in ("angles", "table")] + ["new_loss"]


def test_every_step_is_there_in_order():
    updated = [f"new_{name}" for name in TRACE.named if name in PARAMETERS]
    assert [step.name for step in CALCULATED] == FORWARD + BACK + updated + SECOND
    assert len(TRACE.named) == len(TRACE.steps), "no name stands twice"


def test_every_parameter_is_given_before_its_use_and_gets_a_gradient():
    order = list(TRACE.named)
    given = [step.name for step in TRACE.steps if step.equation == GIVEN]
    assert sorted(given) == sorted([*PARAMETERS, "target", "eta"])
    for path in PARAMETERS:
        place = "embedding" if path == "E" else path.split(".")[0]
        calculated = next(name for name in FORWARD if name.startswith(place))
        assert order.index(path) < order.index(calculated), path
        assert f"d_{path}" in BACK


def test_the_letters_of_a_shape_come_to_the_shape_of_the_value():
    sizes = {"n": 3, "vocab": 4, "d_model": 4, "d_model/2": 2, "n_heads": 2, "d_k": 2, "d_ff": 6, "1": 1}
    for step in TRACE.steps:
        assert tuple(sizes[letter] for letter in step.axes) == step.shape == step.value.shape, step.name


def test_the_sentence_is_tokenized_and_numbered_as_the_package_does_it():
    example = dog_bites_man()
    tokens = tokenize("Dog bites man.")
    vocabulary = build_vocabulary([tokens])
    assert example.tokens == tuple(tokens)
    assert example.vocabulary == tuple(vocabulary)
    np.testing.assert_array_equal(example.ids, encode([tokens], vocabulary)[0])


# --- the numbers ----------------------------------------------------------------------------------


def test_positions_are_those_of_the_source_document_as_printed():
    printed = [[f"{number:.3f}" for number in row] for row in VALUE["table"]]
    assert printed == [
        ["0.000", "1.000", "0.000", "1.000"],
        ["0.841", "0.540", "0.010", "1.000"],
        ["0.909", "-0.416", "0.020", "1.000"],
    ]


def test_forward_is_the_package_s_own():
    example = dog_bites_man()
    embedded, _ = embedding_forward(example.ids, example.embedding)
    close(VALUE["embedding"], embedded)
    close(VALUE["table"], positional_encoding(3, 4))
    y, cache = encoder_block_forward(VALUE["x"], example.block, example.config)
    close(VALUE["y"], y)
    close(VALUE["attention.weights"], cache.attention.weights)
    norm_1, norm_cache = layer_norm_forward(VALUE["s"], example.block.norm_1)
    close(VALUE["h"], norm_1)
    close(VALUE["norm_1.x_hat"], norm_cache.x_hat)
    ffn, ffn_cache = ffn_forward(VALUE["h"], example.block.ffn)
    close(VALUE["f"], ffn)
    close(VALUE["ffn.hidden"], ffn_cache.hidden)
    close(VALUE["ffn.z"], ffn_cache.z)


@pytest.mark.parametrize("tokens", ["dog bites dog"])
def test_gradients_are_the_package_s_own(tokens):
    example = dog_bites_man()
    ids = np.array([example.vocabulary.index(token) for token in tokens.split()])
    example = example._replace(tokens=tuple(tokens.split()), ids=ids)
    value = {step.name: step.value for step in worked_example(example).steps}
    _, cache = encoder_block_forward(value["x"], example.block, example.config)
    dx, grads = encoder_block_backward(value["d_y"], cache)
    close(value["d_x"], dx)
    for path, gradient in leaves(grads):
        close(value[f"d_{path}"], gradient)
    _, embedding_cache = embedding_forward(ids, example.embedding)
    close(value["d_E"], embedding_backward(dx, embedding_cache).E)


def test_a_few_numbers_by_hand():
    """The first token's numbers are fractions until the softmax: PE(0) is (0, 1, 0, 1)."""
    half = Fraction(1, 2)
    x = [2, 0 + 1, -1, 1 + 1]  # 2 · (1, 0, -½, ½) + (0, 1, 0, 1)
    Q = [half * x[0] + x[1] + half * x[3], -half * x[0] + x[3], -half * x[1] + x[3], x[2]]
    K = [-half * x[0], x[0] + half * x[2], x[0] + x[1] - x[3], -half * x[1] - half * x[3]]
    V = [x[1] - half * x[2] + half * x[3], -x[3], x[1] + half * x[2], -half * x[0] + half * x[1]]
    assert (Q, K, V) == ([3, 1, 1.5, -1], [-1, 1.5, 1, -1.5], [2.5, -2, 0.5, -0.5])
    for name, row in (("x", x), ("attention.Q", Q), ("attention.K", K), ("attention.V", V)):
        np.testing.assert_array_equal(VALUE[name][0], [float(number) for number in row])
    close(VALUE["attention.scores"][:, 0, 0], [(3 * -1 + 1 * 1.5) / 2**0.5, (1.5 * 1 + -1 * -1.5) / 2**0.5])


def test_weights_are_integers_and_halves():
    for step in TRACE.steps:
        if step.equation == GIVEN and step.name != "eta":
            np.testing.assert_array_equal(2 * step.value, np.rint(2 * step.value))
            assert abs(step.value).max() <= 2


def test_the_example_is_not_degenerate():
    z, weights = VALUE["ffn.z"], VALUE["attention.weights"]
    assert abs(z).min() > 0.05
    assert len({tuple(row) for row in z > 0}) == 3, "every token switches other units on"
    assert [bool(off) for off in (z <= 0).all(axis=0)] == [unit == 2 for unit in range(6)]
    assert min(VALUE["norm_1.variance"].min(), VALUE["norm_2.variance"].min()) > 0.5
    assert abs(weights - 1 / 3).max(axis=-1).min() > 0.1
    assert [TRACE.example.tokens[i] for i in weights[0].argmax(axis=-1)] == ["bites", "man", "bites"]
    assert abs(VALUE["attention.scores"]).max() < 2.5
    for step in CALCULATED:
        assert abs(step.value).max() > 0.1, f"{step.name} is all but zero"
        assert abs(step.value).max() < 10, f"{step.name} is too large for a pencil"


def test_the_dead_unit_and_the_absent_word_get_no_gradient_and_all_others_do():
    assert not VALUE["d_ffn.W_1"][:, 2].any() and not VALUE["d_ffn.W_2"][2].any()
    assert np.delete(VALUE["d_ffn.W_1"], 2, axis=1).all() and np.delete(VALUE["d_ffn.W_2"], 2, axis=0).all()
    assert not VALUE["d_E"][0].any() and VALUE["d_E"][1:].all()


# --- one step of training, and other blocks -------------------------------------------------------


def of_the_package(example, steps=0, update="sgd", learning_rate=0.01):
    """The loss, all gradients and the parameters after some steps of training, by the package's functions."""
    params = (example.embedding, example.block)
    state = adam_init(params)
    for _ in range(steps + 1):
        loss, grads = loss_and_gradients(example._replace(embedding=params[0], block=params[1]))
        before = params
        if update == "sgd":
            params = sgd_update(params, grads, learning_rate=learning_rate)
        else:
            params, state = adam_update(params, grads, state, learning_rate=learning_rate)
    return loss, dict(leaves(grads)), dict(leaves(before))


def loss_and_gradients(example):
    """A batch has its sentences on an axis of their own here: the trace has them under each other."""
    B, config, block = example.sentences, example.config, example.block
    n = len(example.ids) // B
    ids, target = example.ids.reshape(B, n), example.target.reshape(B, n, -1)
    embedded, seen = embedding_forward(ids, example.embedding)
    mask = causal_mask(n) if example.causal else None
    x = embedded + positional_encoding(n, config.d_model)
    if isinstance(block.norm_1, RMSNormParams):
        y, backward = block_by_parts(x, block, config, mask=mask)
        dx, grads = backward(y - target)
    else:
        y, cache = encoder_block_forward(x, block, config, mask=mask)
        dx, grads = encoder_block_backward(y - target, cache)
    return float(((y - target) ** 2).sum() / 2), (embedding_backward(dx, seen), grads)


def block_by_parts(x, block, config, *, mask):
    """A post-norm block with RMSNorm, which the package has for causal models only."""
    a, attended = multi_head_attention_forward(x, x, x, block.attention, n_heads=config.n_heads, mask=mask)
    h, normed_1 = rms_norm_forward(x + a, block.norm_1, eps=config.eps)
    f, fed = ffn_forward(h, block.ffn, activation=config.activation)
    y, normed_2 = rms_norm_forward(h + f, block.norm_2, eps=config.eps)

    def backward(dy):
        dt, dnorm_2 = rms_norm_backward(dy, normed_2)
        dh, dffn = ffn_backward(dt, fed)
        ds, dnorm_1 = rms_norm_backward(dt + dh, normed_1)
        dq, dk, dv, dattention = multi_head_attention_backward(ds, attended)
        return ds + dq + dk + dv, block._replace(
            attention=dattention, norm_1=dnorm_1, ffn=dffn, norm_2=dnorm_2
        )

    return y, backward


BLOCKS = [[], *([name] for name in VARIANTS), ["pre-norm", "causal", "gelu", "two-sentences", "one-head"],
          ["rms-norm", "causal", "two-sentences"]]  # fmt: skip


@pytest.mark.parametrize("update", ["sgd", "adam"])
@pytest.mark.parametrize("variants", BLOCKS, ids="+".join)
def test_every_block_and_its_step_of_training_are_the_package_s_own(variants, update):
    example = varied(dog_bites_man(), variants)
    value = worked_example(example, update=update, learning_rate=0.02).named
    loss, gradients, _ = of_the_package(example)
    new_loss, _, updated = of_the_package(example, 1, update, 0.02)
    assert value["loss"].value == pytest.approx(loss, abs=1e-12)
    assert value["new_loss"].value == pytest.approx(new_loss, abs=1e-10)
    for path, gradient in gradients.items():
        name = path.split(".", 1)[1]
        np.testing.assert_allclose(value[f"d_{name}"].value, gradient, rtol=0, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(
            value[f"new_{name}"].value, updated[path], rtol=0, atol=1e-10, err_msg=name
        )
    assert str(worked_example(example, update=update))


def test_a_batch_is_two_sentences_that_do_not_meet():
    both = worked_example(varied(dog_bites_man(), ["two-sentences"])).named
    example = dog_bites_man()
    turned = example._replace(tokens=example.tokens[::-1], ids=example.ids[::-1], target=example.target[::-1])
    apart = [worked_example(one).named for one in (example, turned)]
    close(both["y"].value, np.concatenate([one["y"].value for one in apart]))
    close(both["d_ffn.W_1"].value, sum(one["d_ffn.W_1"].value for one in apart))


def test_large_scores_do_no_harm():
    trace = worked_example(replaced("attention.W_Q", lambda W: W + 500 * np.eye(4)))
    assert all(np.isfinite(step.value).all() for step in trace.steps[: len(TRACE.steps) // 2])


@pytest.mark.parametrize(("wrong", "message"), [
    ({"update": "rmsprop"}, "update is 'rmsprop'"), ({"learning_rate": np.inf}, "learning_rate is inf"),
])  # fmt: skip
def test_another_training_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        worked_example(**wrong)
    with pytest.raises(ValueError, match="play: a variant is 'post'"):
        varied(dog_bites_man(), ["post"])


SWAPS = {
    **{f"attention.W_{m} transposed": (f"attention.W_{m}", lambda W: W.T) for m in "QKVO"},
    **{f"attention.W_{m} heads swapped": (f"attention.W_{m}", lambda W: np.roll(W, 2, 1)) for m in "QKV"},
    "attention.W_O heads swapped": ("attention.W_O", lambda W: np.roll(W, 2, 0)),
    "E one word on": ("E", lambda E: np.roll(E, 1, 0)),
    **{f"{path} reversed": (path, lambda a: a[..., ::-1].copy()) for path in PARAMETERS},
}


@pytest.mark.parametrize("mistake", SWAPS)
def test_a_mistake_changes_the_output(mistake):
    y = worked_example(replaced(*SWAPS[mistake])).named["y"].value
    assert abs(y - VALUE["y"]).max() > 0.05


def test_the_example_is_left_as_it_was():
    example, untouched = dog_bites_man(), dog_bites_man()
    worked_example(example, decimals=3)
    for (_, after), (path, before) in zip(leaves(example.block), leaves(untouched.block), strict=True):
        np.testing.assert_array_equal(after, before, err_msg=path)
    np.testing.assert_array_equal(example.embedding.E, untouched.embedding.E)


# --- the pencil -----------------------------------------------------------------------------------

PENCIL = worked_example(decimals=3)
WRITTEN = {step.name: step.value for step in PENCIL.steps}
THOUSANDTH = Decimal("0.001")


def on_paper(values):
    """Rounded as on paper: lists of Decimals to lists of Decimals."""
    return [[value.quantize(THOUSANDTH, ROUND_HALF_UP) for value in row] for row in values]


def decimals(array):
    """What stands in the trace, as the Decimals that its three printed decimals are."""
    return [[Decimal(f"{number:.3f}") for number in row] for row in array]


def product(a, b):
    columns = list(zip(*b, strict=True))
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in columns] for row in a]


def total(a, b):
    return [[x + y for x, y in zip(*rows, strict=True)] for rows in zip(a, b, strict=True)]


def test_every_rounded_step_has_three_decimals():
    for step in PENCIL.steps:
        np.testing.assert_array_equal(step.value, np.round(step.value, 3), err_msg=step.name)
        assert not np.signbit(step.value[step.value == 0]).any(), f"{step.name} has a -0"


def test_the_pencil_multiplies_what_stands_on_the_paper():
    paper = {name: decimals(np.atleast_2d(value)) for name, value in WRITTEN.items() if value.ndim < 3}
    x = on_paper(total(paper["embedding"], paper["table"]))
    assert x == paper["x"]
    for name in "QKV":
        assert on_paper(product(x, paper[f"attention.W_{name}"])) == paper[f"attention.{name}"]
    heads = decimals(np.concatenate(list(WRITTEN["attention.heads"]), axis=-1))
    assert on_paper(product(heads, paper["attention.W_O"])) == paper["a"]
    z = total(product(paper["h"], paper["ffn.W_1"]), 3 * paper["ffn.b_1"])
    assert on_paper(z) == paper["ffn.z"]
    h_transposed = list(zip(*paper["h"], strict=True))
    assert on_paper(product(h_transposed, paper["d_ffn.z"])) == paper["d_ffn.W_1"]


def test_the_pencil_divides_what_stands_on_the_paper():
    exp, weights = WRITTEN["attention.exp"], WRITTEN["attention.weights"]
    for head in range(2):
        rows = decimals(exp[head])
        assert on_paper([[e / sum(row) for e in row] for row in rows]) == decimals(weights[head])
    for norm in ("norm_1", "norm_2"):
        added = decimals(WRITTEN["s" if norm == "norm_1" else "t"])
        mean = on_paper([[sum(row) / 4] for row in added])
        assert mean == decimals(WRITTEN[f"{norm}.mean"])
        centred = [[a - m for a in row] for row, [m] in zip(added, mean, strict=True)]
        variance = on_paper([[sum(c * c for c in row) / 4] for row in centred])
        assert variance == decimals(WRITTEN[f"{norm}.variance"])
        std = on_paper([[(v + Decimal("0.00001")).sqrt()] for [v] in variance])
        assert std == decimals(WRITTEN[f"{norm}.std"])
        x_hat = on_paper([[c / s for c in row] for row, [s] in zip(centred, std, strict=True)])
        assert x_hat == decimals(WRITTEN[f"{norm}.x_hat"])


@given(st.integers(-20_000, 20_000), st.integers(1, 4), st.sampled_from([1, 2, 5, 10]))
def test_rounding_is_that_of_paper_at_every_tie(halves, places, divisor):
    """Halves of the last kept digit, as halves and as binary has them after a division."""
    number = Decimal(halves) / (2 * 10**places)
    expected = float(number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))
    assert round_half_away(np.array([float(number * divisor) / divisor]), places)[0] == expected


def test_what_is_given_is_never_rounded():
    example = replaced("ffn.W_1", lambda W: W / 4)
    rounded = worked_example(example, decimals=1)
    np.testing.assert_array_equal(rounded.named["ffn.W_1"].value, example.block.ffn.W_1)
    assert "0.125" in str(rounded.named["ffn.W_1"])


def test_drift_is_the_distance_from_the_exact_trace():
    far = drift(PENCIL)
    assert list(far) == [step.name for step in PENCIL.steps]
    for name, distance in far.items():
        assert distance == np.max(abs(WRITTEN[name] - VALUE[name])), name
    assert 1e-4 < max(far.values()) < 0.02
    assert set(drift(TRACE).values()) == {0.0}


def test_rounding_switches_no_unit():
    np.testing.assert_array_equal(WRITTEN["ffn.z"] > 0, VALUE["ffn.z"] > 0)


# --- as text --------------------------------------------------------------------------------------

TEXT, PENCIL_TEXT = str(TRACE), str(PENCIL)


@pytest.mark.parametrize("text", [TEXT, PENCIL_TEXT], ids=["exact", "pencil"])
def test_every_step_is_printed_within_the_width(text):
    assert max(map(len, text.splitlines())) <= 100
    for step in TRACE.steps:
        assert f"{step.name}  {step.shape}" in text
        assert step.equation in text
    for title in {step.section for step in TRACE.steps}:
        assert text.count(f"── {title} ─") == 1


def test_a_step_prints_as_a_table():
    assert str(TRACE.named["attention.weights"]).splitlines() == [
        "attention.weights  (2, 3, 3)",
        "weights = softmax(scores) = exp / row sum of exp  [eq. 1]",
        "      head 1              head 2",
        "        dog bites   man     dog bites   man",
        "dog   0.146 0.638 0.216   0.483 0.432 0.084",
        "bites 0.110 0.283 0.607   0.248 0.104 0.648",
        "man   0.275 0.601 0.125   0.319 0.087 0.594",
    ]
    assert str(TRACE.named["norm_1.gamma"]).splitlines() == ["norm_1.gamma  (4,)", "given", "  1   2 0.5   1"]
    assert str(PENCIL.named["loss"]).splitlines()[2] == f"{WRITTEN['loss']:.3f}"


def test_a_number_that_rounds_to_nothing_has_no_sign():
    step = TRACE.named["loss"]._replace(value=np.array(-0.0004))
    assert str(step).splitlines()[-1] == "0.000"


def test_the_text_says_how_far_rounding_led():
    far = drift(PENCIL)
    closing = PENCIL_TEXT[PENCIL_TEXT.index("Rounding to 3 decimals") :]
    for title in {step.section for step in PENCIL.steps}:
        worst = max(far[step.name] for step in PENCIL.steps if step.section == title)
        assert re.search(rf"{re.escape(title)} +at most {worst:.5f}, in ", closing)
    for name, end in (("y", "output y"), ("loss", "loss"), ("d_E", "gradient of E")):
        assert re.search(rf"{end} +{far[name]:.5f}", closing)
    assert "Rounding" not in TEXT


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"positions": "none"}, "worked_example: config.positions is 'none'; the trace shows"),
        ({"positions": "rope"}, "config.positions is 'rope'; the trace shows 'sinusoidal' only"),
    ],
)
def test_another_kind_of_block_is_refused(config, message):
    example = dog_bites_man()
    with pytest.raises(ValueError, match=re.escape(message)):
        worked_example(example._replace(config=example.config._replace(**config)))


def test_attention_biases_are_refused():
    attention = dog_bites_man().block.attention._replace(b_Q=np.zeros(4), b_O=np.zeros(4))
    with pytest.raises(ValueError, match="attention has b_Q, b_O; the trace shows no attention biases"):
        worked_example(with_block(attention=attention))


@pytest.mark.parametrize("path", ["E", "attention.W_K", "norm_1.beta", "ffn.W_1", "ffn.b_2", "norm_2.gamma"])
def test_a_wrong_shape_is_named(path):
    name = re.escape(path)
    with pytest.raises(ValueError, match=rf"worked_example: {name} has shape .*; expected \(.*\) = \("):
        worked_example(replaced(path, lambda array: np.concatenate([array, array])))


@pytest.mark.parametrize("number", [0, 9, -1])
def test_decimals_out_of_range_are_refused(number):
    with pytest.raises(ValueError, match=f"worked_example: decimals is {number}; expected"):
        worked_example(decimals=number)


@pytest.mark.parametrize("wrong", ["3", 3.0, True])
def test_decimals_of_another_kind_are_refused(wrong):
    with pytest.raises(TypeError, match="worked_example: decimals is"):
        worked_example(decimals=wrong)


def test_something_that_is_no_example_is_refused():
    with pytest.raises(TypeError, match=r"worked_example: example is .*; expected an Example"):
        worked_example(dog_bites_man().block)
