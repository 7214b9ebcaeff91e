"""Compare the worked example with npformer and with an independent decimal calculation.

The calculation evaluates every recipe of every step with the decimal module. It shares no code with the
rounding of the trace.
"""

from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from valid_calls import replaced

from npformer import encoder
from npformer.attention import causal_mask
from npformer.embedding import embedding_backward, embedding_forward
from npformer.encoder import encoder_block_backward, encoder_block_forward
from npformer.lessons import worked_example
from npformer.lessons.steps import GIVEN
from npformer.lessons.worked_example import VARIANTS, apply_variants, dog_bites_man, drift, round_half_away
from npformer.modern.rms_norm import RMSNormParams, rms_norm_backward, rms_norm_forward
from npformer.optim import adam_init, adam_update, sgd_update
from npformer.positional import positional_encoding
from npformer.tree import leaves

TRACE = worked_example()
ROUNDED = worked_example(decimals=3)
VALUES = {step.name: step.value for step in TRACE.steps}
ROUNDED_VALUES = {step.name: step.value for step in ROUNDED.steps}


# --- the steps --------------------------------------------------------------------------------

NORM = "mean centred variance std x_hat"
NORM_BACK = "gamma beta x_hat along_1 along_x"
ORDER = [  # a prefix, and the steps with this prefix
    ("", "embedding angles table x"),
    ("attention.", "Q K V scores max shifted exp weights heads"),
    *[("", "a s"), ("norm_1.", NORM), ("", "h"), ("ffn.", "z hidden"), ("", "f t"), ("norm_2.", NORM)],
    *[("", "y loss d_y"), ("d_norm_2.", NORM_BACK), ("", "d_t"), ("d_ffn.", "W_2 b_2 hidden z W_1 b_1")],
    *[("", "d_h"), ("d_norm_1.", NORM_BACK), ("", "d_s")],
    *[("d_attention.", "W_O heads V weights scores Q K W_Q W_K W_V"), ("", "d_x d_E")],
]


def test_worked_example_has_every_step_in_order():
    first_pass = [prefix + name for prefix, names in ORDER for name in names.split()]
    parameters = [name for name in TRACE.named if f"d_{name}" in TRACE.named and name not in first_pass]
    updated = [f"new_{name}" for name in parameters]
    forward = [name for name in first_pass[: first_pass.index("d_y")] if name not in ("angles", "table")]
    second_pass = [f"new_{name}" for name in forward]
    calculated = [step.name for step in TRACE.steps if step.equation != GIVEN]
    assert calculated == first_pass + updated + second_pass
    assert len(TRACE.named) == len(TRACE.steps) and len(updated) == 13


def test_dog_bites_man_has_numbers_for_a_pencil():
    z, weights = VALUES["ffn.z"], VALUES["attention.weights"]
    assert all(0.1 < abs(step.value).max() < 10 for step in TRACE.steps if step.name != "eta")
    assert np.flatnonzero((z <= 0).all(axis=0)).tolist() == [2], "unit 2 is the only unit that is always 0"
    np.testing.assert_array_equal(ROUNDED_VALUES["ffn.z"] > 0, z > 0, "rounding switches a unit")
    assert [TRACE.example.tokens[i] for i in weights[0].argmax(axis=-1)] == ["bites", "man", "bites"]
    assert not VALUES["d_E"][0].any() and VALUES["d_E"][1:].all()


def test_apply_variants_changes_sentences_and_heads():
    other = apply_variants(TRACE.example, ["two-sentences", "one-head"])
    assert (other.sentences, other.config.n_heads) == (2, 1)


# --- the numbers ----------------------------------------------------------------------------------


def loss_and_gradients(example):
    """Compute the loss, the gradients and some inner values with npformer.

    npformer's arrays have an axis for the sentences of a batch. In the trace, the tokens of all sentences
    are on one axis.
    """
    B, config, n = example.sentences, example.config, len(example.ids) // example.sentences
    ids, target = example.ids.reshape(B, n), example.target.reshape(B, n, -1)
    embedded, embedding_cache = embedding_forward(ids, example.embedding)
    x = embedded + positional_encoding(n, config.d_model)
    mask = causal_mask(n) if example.causal else None
    y, cache = encoder_block_forward(x, example.block, config, mask=mask)
    dx, grads = encoder_block_backward(y - target, cache)
    loss = float(((y - target) ** 2).sum() / 2)
    gradients = (embedding_backward(dx, embedding_cache), grads)
    inner_values = {
        "attention.weights": cache.attention.weights,
        "ffn.hidden": cache.ffn.hidden,
        "x": x,
        "y": y,
        "d_y": y - target,
        "d_x": dx,
    }
    return loss, gradients, inner_values


REPEATED_WORD = dog_bites_man()._replace(tokens=("dog", "bites", "dog"), ids=np.array([2, 1, 2]))
SETS_OF_VARIANTS = [
    [],
    *([name] for name in VARIANTS),
    ["pre-norm", "causal", "gelu", "two-sentences", "one-head"],
    ["rms-norm", "causal", "two-sentences"],
    ["pre-norm", "rms-norm"],
]
EXAMPLES = {"+".join(names): apply_variants(dog_bites_man(), names) for names in SETS_OF_VARIANTS}
EXAMPLES["dog bites dog"] = REPEATED_WORD


@pytest.mark.parametrize("update", ["sgd", "adam"])
@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_worked_example_equals_the_package(example, update, monkeypatch):
    if isinstance(example.block.norm_1, RMSNormParams):
        # npformer has no encoder block with RMSNorm, so RMSNorm replaces layer norm here.
        monkeypatch.setattr(encoder, "layer_norm_forward", rms_norm_forward)
        monkeypatch.setattr(encoder, "layer_norm_backward", rms_norm_backward)
    assert example.tokens == tuple(example.vocabulary[i] for i in example.ids)
    values = {s.name: s.value for s in worked_example(example, update=update, learning_rate=0.02).steps}
    params = (example.embedding, example.block)
    loss, grads, expected = loss_and_gradients(example)
    if update == "sgd":
        updated = sgd_update(params, grads, learning_rate=0.02)
    else:
        updated, state = adam_update(params, grads, adam_init(params), learning_rate=0.02)
        expected |= with_step_names("new_m_", state.m)
        expected |= with_step_names("new_v_", state.v)
    new_example = example._replace(embedding=updated[0], block=updated[1])
    new_loss, _, new_values = loss_and_gradients(new_example)
    expected |= {f"new_{name}": new_values[name] for name in ("attention.weights", "ffn.hidden", "x", "y")}
    expected |= with_step_names("d_", grads)
    expected |= with_step_names("new_", updated)
    expected |= {"loss": loss, "new_loss": new_loss}
    for name, array in expected.items():
        tolerance = 1e-10 if "new" in name else 1e-12
        array = np.reshape(array, values[name].shape)
        np.testing.assert_allclose(values[name], array, rtol=0, atol=tolerance, err_msg=name)


def with_step_names(prefix, tree):
    """Return the arrays of a pair (embedding, block) under the names of their steps, such as "d_ffn.W_1"."""
    return {prefix + path.split(".", 1)[1]: array for path, array in leaves(tree)}


# --- the calculation by hand  ----------------------------------------------------------------------

THOUSANDTH = Decimal("0.001")
BY_HAND: dict[str, Callable[..., Any]] = {
    "+": lambda *terms: sum(terms),
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "square": lambda a: a * a,
    "sqrt": Decimal.sqrt,
    "exp": Decimal.exp,
    "max": max,
    "relu": lambda z: max(z, Decimal(0)),
    "gate": lambda d, z: d if z > 0 else Decimal(0),
    "sin": lambda a: Decimal(np.sin(float(a))),
    "cos": lambda a: Decimal(np.cos(float(a))),
}


def evaluate_by_hand(recipe, cells):
    if isinstance(recipe, int):
        return cells[recipe]
    if recipe[0] == "number":
        return Decimal(recipe[1])
    return BY_HAND[recipe[0]](*(evaluate_by_hand(part, cells) for part in recipe[1:]))


def test_rounded_steps_equal_a_calculation_by_hand():
    """Calculate each number with 17 digits from the rounded numbers of earlier steps, and round half up."""
    cells = []
    with localcontext(prec=17):
        for step in ROUNDED.steps:
            numbers = [Decimal(str(number)) for number in step.value.ravel().tolist()]
            for recipe, number in zip(step.recipes, numbers, strict=step.equation != GIVEN):
                exact = evaluate_by_hand(recipe, cells)
                exact = exact.quantize(Decimal("1e-10"))  # so that √2 · √2 is exactly 2
                assert exact.quantize(THOUSANDTH, ROUND_HALF_UP) == number, step.name
            assert not np.signbit(step.value[step.value == 0]).any(), f"{step.name} has a -0"
            cells += numbers


@given(st.integers(-20_000, 20_000), st.integers(1, 4), st.sampled_from([1, 2, 5, 10]))
def test_round_half_away_rounds_ties_like_people(halves, places, divisor):
    """Test ties that are exact in binary, and ties that are slightly wrong after a division."""
    number = Decimal(halves) / (2 * 10**places)
    expected = float(number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))
    assert round_half_away(np.array([float(number * divisor) / divisor]), places)[0] == expected


def test_worked_example_never_rounds_given_numbers():
    rounded = worked_example(replaced(dog_bites_man(), "block.ffn.W_1", lambda W: W / 4), decimals=1)
    np.testing.assert_array_equal(rounded.named["ffn.W_1"].value, VALUES["ffn.W_1"] / 4)
    assert "0.125" in str(rounded.named["ffn.W_1"]) and rounded.named["y"].decimals == 1


def test_drift_is_the_difference_from_the_exact_trace():
    assert drift(ROUNDED) == {name: np.max(abs(ROUNDED_VALUES[name] - VALUES[name])) for name in VALUES}
    causal = worked_example(apply_variants(dog_bites_man(), ["causal"]))
    assert set(drift(TRACE).values()) == set(drift(causal).values()) == {0.0}


# --- as text --------------------------------------------------------------------------------------


def test_trace_prints_every_step_and_every_section():
    text, titles = str(ROUNDED), {step.section for step in ROUNDED.steps}
    assert all(f"{step.name}  {step.shape}" in text and step.equation in text for step in ROUNDED.steps)
    assert "\nevery step rounded to 3 decimals" in text and "\ncalculated to 16 digits" in str(TRACE)
    assert len(titles) == 18 and all(text.count(f"── {title} ─") == 1 for title in titles)


def test_step_prints_as_a_table():
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
    assert str(ROUNDED.named["loss"]).splitlines()[2] == f"{ROUNDED_VALUES['loss']:.3f}"
    almost_zero = TRACE.named["loss"]._replace(value=np.array(-0.0004))
    assert str(almost_zero).splitlines()[-1] == "0.000"
