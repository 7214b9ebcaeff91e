"""The worked example, against the package and against pencils.

The pencil of these tests is the decimal module: exact decimal arithmetic and its ROUND_HALF_UP, which share
nothing with the trace's own rounding. It works out every recipe of every step.
"""

from decimal import ROUND_HALF_UP, Decimal, localcontext

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

TRACE, PENCIL = worked_example(), worked_example(decimals=3)
VALUE, WRITTEN = ({step.name: step.value for step in trace.steps} for trace in (TRACE, PENCIL))


# --- what there is --------------------------------------------------------------------------------

NORM = "mean centred variance std x_hat"
NORM_BACK = "gamma beta x_hat along_1 along_x"
ORDER = [  # a place, and its steps
    ("", "embedding angles table x"),
    ("attention.", "Q K V scores max shifted exp weights heads"),
    *[("", "a s"), ("norm_1.", NORM), ("", "h"), ("ffn.", "z hidden"), ("", "f t"), ("norm_2.", NORM)],
    *[("", "y loss d_y"), ("d_norm_2.", NORM_BACK), ("", "d_t"), ("d_ffn.", "W_2 b_2 hidden z W_1 b_1")],
    *[("", "d_h"), ("d_norm_1.", NORM_BACK), ("", "d_s")],
    *[("d_attention.", "W_O heads V weights scores Q K W_Q W_K W_V"), ("", "d_x d_E")],
]


def test_every_step_is_there_in_order():
    once = [place + name for place, names in ORDER for name in names.split()]
    updated = [f"new_{name}" for name in TRACE.named if f"d_{name}" in TRACE.named and name not in once]
    again = [f"new_{name}" for name in once[: once.index("d_y")] if name not in ("angles", "table")]
    assert [step.name for step in TRACE.steps if step.equation != GIVEN] == once + updated + again
    assert len(TRACE.named) == len(TRACE.steps) and len(updated) == 13


def test_the_example_is_for_a_pencil_and_not_degenerate():
    z, weights = VALUE["ffn.z"], VALUE["attention.weights"]
    assert all(0.1 < abs(step.value).max() < 10 for step in TRACE.steps if step.name != "eta")
    assert [bool(off) for off in (z <= 0).all(axis=0)] == [unit == 2 for unit in range(6)]
    np.testing.assert_array_equal(WRITTEN["ffn.z"] > 0, z > 0, "rounding switches a unit")
    assert [TRACE.example.tokens[i] for i in weights[0].argmax(axis=-1)] == ["bites", "man", "bites"]
    assert not VALUE["d_E"][0].any() and VALUE["d_E"][1:].all()
    other = apply_variants(TRACE.example, ["two-sentences", "one-head"])
    assert (other.sentences, other.config.n_heads) == (2, 1)


# --- the numbers ----------------------------------------------------------------------------------


def loss_and_gradients(example):
    """A batch has its sentences on an axis of their own here: the trace has them under each other."""
    B, config, n = example.sentences, example.config, len(example.ids) // example.sentences
    ids, target = example.ids.reshape(B, n), example.target.reshape(B, n, -1)
    embedded, seen = embedding_forward(ids, example.embedding)
    x = embedded + positional_encoding(n, config.d_model)
    mask = causal_mask(n) if example.causal else None
    y, cache = encoder_block_forward(x, example.block, config, mask=mask)
    dx, grads = encoder_block_backward(y - target, cache)
    inside = {"attention.weights": cache.attention.weights, "ffn.hidden": cache.ffn.hidden}
    inside |= {"x": x, "y": y, "d_y": y - target, "d_x": dx}
    return float(((y - target) ** 2).sum() / 2), (embedding_backward(dx, seen), grads), inside


BLOCKS = [[], *([name] for name in VARIANTS), ["pre-norm", "causal", "gelu", "two-sentences", "one-head"],
          ["rms-norm", "causal", "two-sentences"], ["pre-norm", "rms-norm"], ["dog bites dog"]]  # fmt: skip


@pytest.mark.parametrize("update", ["sgd", "adam"])
@pytest.mark.parametrize("variants", BLOCKS, ids="+".join)
def test_every_block_and_its_step_of_training_are_the_package_s_own(variants, update, monkeypatch):
    example = apply_variants(dog_bites_man(), [] if variants == BLOCKS[-1] else variants)
    if variants == BLOCKS[-1]:  # a word that comes twice
        example = example._replace(tokens=("dog", "bites", "dog"), ids=np.array([2, 1, 2]))
    if isinstance(example.block.norm_1, RMSNormParams):  # which the package has for causal models only
        monkeypatch.setattr(encoder, "layer_norm_forward", rms_norm_forward)
        monkeypatch.setattr(encoder, "layer_norm_backward", rms_norm_backward)
    assert example.tokens == tuple(example.vocabulary[i] for i in example.ids)
    value = {s.name: s.value for s in worked_example(example, update=update, learning_rate=0.02).steps}
    params = (example.embedding, example.block)
    loss, grads, inside = loss_and_gradients(example)
    if update == "sgd":
        updated = sgd_update(params, grads, learning_rate=0.02)
    else:
        updated, state = adam_update(params, grads, adam_init(params), learning_rate=0.02)
        inside |= {f"new_m_{path.split('.', 1)[1]}": m for path, m in leaves(state.m)}
        inside |= {f"new_v_{path.split('.', 1)[1]}": v for path, v in leaves(state.v)}
    new_loss, _, again = loss_and_gradients(example._replace(embedding=updated[0], block=updated[1]))
    inside |= {f"new_{name}": again[name] for name in ("attention.weights", "ffn.hidden", "x", "y")}
    inside |= {f"d_{path.split('.', 1)[1]}": gradient for path, gradient in leaves(grads)}
    inside |= {f"new_{path.split('.', 1)[1]}": param for path, param in leaves(updated)}
    for name, right in {"loss": loss, "new_loss": new_loss, **inside}.items():
        far = {"rtol": 0, "atol": 1e-10 if "new" in name else 1e-12, "err_msg": name}
        np.testing.assert_allclose(value[name], np.reshape(right, value[name].shape), **far)


# --- the pencil -----------------------------------------------------------------------------------

THOUSANDTH = Decimal("0.001")
BY_HAND = {
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


def by_pencil(recipe, cells):
    if isinstance(recipe, int):
        return cells[recipe]
    if recipe[0] == "number":
        return Decimal(recipe[1])
    return BY_HAND[recipe[0]](*(by_pencil(part, cells) for part in recipe[1:]))


def test_every_number_is_what_a_pencil_makes_of_the_numbers_on_the_paper():
    """With 17 digits, as a calculator shows them; a half goes away from zero."""
    cells = []
    with localcontext(prec=17):
        for step in PENCIL.steps:
            stands = [Decimal(str(number)) for number in step.value.ravel().tolist()]
            for recipe, number in zip(step.recipes, stands, strict=step.equation != GIVEN):
                rounded = by_pencil(recipe, cells).quantize(Decimal("1e-10"))  # √2 · √2 is no tie
                assert rounded.quantize(THOUSANDTH, ROUND_HALF_UP) == number, step.name
            assert not np.signbit(step.value[step.value == 0]).any(), f"{step.name} has a -0"
            cells += stands


@given(st.integers(-20_000, 20_000), st.integers(1, 4), st.sampled_from([1, 2, 5, 10]))
def test_rounding_is_that_of_paper_at_every_tie(halves, places, divisor):
    """Halves of the last kept digit, as halves and as binary has them after a division."""
    number = Decimal(halves) / (2 * 10**places)
    expected = float(number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))
    assert round_half_away(np.array([float(number * divisor) / divisor]), places)[0] == expected


def test_what_is_given_is_never_rounded():
    rounded = worked_example(replaced(dog_bites_man(), "block.ffn.W_1", lambda W: W / 4), decimals=1)
    np.testing.assert_array_equal(rounded.named["ffn.W_1"].value, VALUE["ffn.W_1"] / 4)
    assert "0.125" in str(rounded.named["ffn.W_1"]) and rounded.named["y"].decimals == 1


def test_drift_is_the_distance_from_the_exact_trace():
    assert drift(PENCIL) == {name: np.max(abs(WRITTEN[name] - VALUE[name])) for name in VALUE}
    causal = worked_example(apply_variants(dog_bites_man(), ["causal"]))
    assert set(drift(TRACE).values()) == set(drift(causal).values()) == {0.0}


# --- as text --------------------------------------------------------------------------------------


def test_every_step_is_printed_below_the_title_of_its_section():
    text, titles = str(PENCIL), {step.section for step in PENCIL.steps}
    assert all(f"{step.name}  {step.shape}" in text and step.equation in text for step in PENCIL.steps)
    assert "\nevery step rounded to 3 decimals" in text and "\ncalculated to 16 digits" in str(TRACE)
    assert len(titles) == 18 and all(text.count(f"── {title} ─") == 1 for title in titles)


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
    nothing = TRACE.named["loss"]._replace(value=np.array(-0.0004))
    assert str(nothing).splitlines()[-1] == "0.000"
