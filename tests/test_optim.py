import math
import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pytest
from golden import TOLERANCE, TRAJECTORIES, assert_close, inputs_of
from together import together
from valid_calls import INTEGERS

from npformer import (
    AdamState,
    TransformerConfig,
    adam_init,
    adam_update,
    init_encoder_block,
    leaves,
    sgd_update,
    tree_map,
    warmup_learning_rate,
)


class Layer(NamedTuple):
    W: Any
    b: Any = None


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def params(rng):
    return (Layer(rng.normal(size=(3, 2)), rng.normal(size=2)), Layer(rng.normal(size=(2, 1))))


def like(tree, rng, scale=1.0):
    return tree_map(lambda p: (scale * rng.normal(size=p.shape)).astype(p.dtype), tree)


def read_only(tree):
    for _, array in leaves(tree):
        array.flags.writeable = False
    return tree


def assert_trees(assertion, tree, *others, **options):
    """The same assertion for the leaves at the same place; the trees have the same types and gaps."""
    tree_map(lambda *arrays: assertion(*arrays, **options), tree, *others)


# Gradient descent


def test_sgd_goes_against_the_gradient_by_the_learning_rate(params, rng):
    grads = like(params, rng)
    new = sgd_update(read_only(params), read_only(grads), learning_rate=0.25)
    assert isinstance(new[1], Layer) and new[1].b is None
    for (_, after), (_, before), (_, g) in zip(leaves(new), leaves(params), leaves(grads), strict=True):
        assert [float(a) for a in after.flat] == [
            p - 0.25 * q for p, q in zip(before.flat, g.flat, strict=True)
        ]


# Adam


def steps(params, gradients, **options):
    """The parameters after each update."""
    state = adam_init(params)
    for grads in gradients:
        params, state = adam_update(params, grads, state, **options)
        yield params, state


def test_the_state_starts_at_zero(params):
    state = adam_init(params)
    assert state.step == 0 and type(state) is AdamState
    for mean in (state.m, state.v):
        assert_trees(np.testing.assert_array_equal, mean, tree_map(np.zeros_like, params))
    assert not any(
        np.shares_memory(a, b) for (_, a), (_, b) in zip(leaves(state.m), leaves(state.v), strict=True)
    )


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e6])
def test_the_first_step_is_the_learning_rate_against_the_gradients_sign(params, rng, size):
    grads = like(params, rng, size)
    new, state = adam_update(params, grads, adam_init(params), learning_rate=0.1)
    expected = tree_map(lambda p, g: p - 0.1 * np.sign(g), params, grads)
    assert_trees(np.testing.assert_allclose, new, expected, rtol=0, atol=0.1 * 1e-9 / (1e-3 * size))
    assert state.step == 1


def test_under_a_constant_gradient_every_step_has_the_same_length(params, rng):
    """The bias corrections undo the zeros that the means start from, at every step."""
    grads, before = like(params, rng), params
    for after, _ in steps(params, [grads] * 30, learning_rate=0.01, beta_1=0.8, beta_2=0.99, eps=0):
        moved = tree_map(lambda a, b: a - b, after, before)
        expected = tree_map(lambda g: -0.01 * np.sign(g), grads)
        assert_trees(np.testing.assert_allclose, moved, expected, rtol=1e-12)
        before = after


def test_the_means_are_weighted_sums_of_all_gradients(rng):
    """m is (1 - β₁) Σ β₁^age g, v the same of g² with β₂; a step uses both, divided by their weights."""
    gradients, beta_1, beta_2 = rng.normal(size=(12, 4)), 0.7, 0.9
    p = np.zeros(4)
    for t, (params, state) in enumerate(
        steps((p,), ((g,) for g in gradients), learning_rate=0.3, beta_1=beta_1, beta_2=beta_2, eps=0.2), 1
    ):
        age = np.arange(t)[::-1, None]
        m, weight_m = (beta_1**age * gradients[:t]).sum(0), (beta_1**age).sum()
        v, weight_v = (beta_2**age * gradients[:t] ** 2).sum(0), (beta_2**age).sum()
        np.testing.assert_allclose(state.m[0], (1 - beta_1) * m, rtol=1e-13, atol=1e-16)
        np.testing.assert_allclose(state.v[0], (1 - beta_2) * v, rtol=1e-13)
        p = p - 0.3 * (m / weight_m) / (np.sqrt(v / weight_v) + 0.2)
        np.testing.assert_allclose(params[0], p, rtol=1e-12, atol=1e-15)
        assert state.step == t


@together("dtype", TOLERANCE)
@together("name", TRAJECTORIES)
def test_golden_values(name, dtype):
    """PyTorch's parameters after 1, 10 and 100 steps, and both running means at the end."""
    case, arrays = TRAJECTORIES[name], inputs_of(TRAJECTORIES[name], dtype)
    options = dict(case["settings"])
    gradients = {name.removeprefix("g."): a for name, a in arrays.items() if name.startswith("g.")}
    schedule = [options.pop(word) for word in ("d_model", "warmup_steps") if word in options]
    params, found = tuple(arrays[leaf] for leaf in gradients), {}
    state = adam_init(params)
    for step in range(1, 101):
        if schedule:
            options["learning_rate"] = warmup_learning_rate(step, schedule[0], warmup_steps=schedule[1])
        grads = tuple(gradient[step - 1] for gradient in gradients.values())
        params, state = adam_update(params, grads, state, **options)
        found |= {f"{leaf}_after_{step}": p for leaf, p in zip(gradients, params, strict=True)}
    for mean in ("m", "v"):
        found |= {f"{mean}.{leaf}": a for leaf, a in zip(gradients, getattr(state, mean), strict=True)}
    for what, expected in case["answers"].items():
        assert_close(found[what], expected, dtype, what)


def test_the_defaults_are_the_papers(params, rng):
    gradients = [like(params, rng) for _ in range(3)]
    *_, (by_default, _) = steps(params, gradients, learning_rate=0.1)
    paper = {"beta_1": 0.9, "beta_2": 0.98, "eps": 1e-9, "weight_decay": 0.0}
    *_, (spelled_out, _) = steps(params, gradients, learning_rate=0.1, **paper)
    assert_trees(np.testing.assert_array_equal, by_default, spelled_out)


@pytest.mark.parametrize("size", [1e-2, 1e4])
def test_the_decay_is_apart_from_the_gradient(params, rng, size):
    """Whatever the gradient's size, a step with decay ends learning rate · decay · p from one without."""
    grads, state = like(params, rng, size), adam_init(params)
    plain, _ = adam_update(params, grads, state, learning_rate=0.1)
    decayed, after = adam_update(params, grads, state, learning_rate=0.1, weight_decay=0.5)
    pulled = tree_map(lambda a, b: a - b, plain, decayed)
    assert_trees(np.testing.assert_allclose, pulled, tree_map(lambda p: 0.05 * p, params), rtol=1e-12)
    squares = tree_map(lambda g: 0.02 * g * g, grads)  # (1 - β₂) g²: the means have seen no decay
    assert_trees(np.testing.assert_allclose, after.v, squares, rtol=1e-12)


def test_decay_alone_shrinks_and_a_parameter_without_gradient_stays(params):
    nothing = tree_map(np.zeros_like, params)
    *_, (same, _) = steps(params, [nothing] * 3, learning_rate=0.1)
    assert_trees(np.testing.assert_array_equal, same, params)
    *_, (shrunk, _) = steps(params, [nothing] * 3, learning_rate=0.1, weight_decay=2)
    assert_trees(np.testing.assert_allclose, shrunk, tree_map(lambda p: 0.8**3 * p, params), rtol=1e-14)


def test_an_update_makes_new_trees_and_leaves_the_old_ones(params, rng):
    old = read_only(params), read_only(like(params, rng)), adam_init(params)
    read_only(old[2].m), read_only(old[2].v)
    new, state = adam_update(*old, learning_rate=0.1, weight_decay=0.1)
    assert isinstance(new[0], Layer) and isinstance(state.m[1], Layer)
    assert new[1].b is None and state.m[1].b is None and state.v[1].b is None
    made = [array for tree in (new, state.m, state.v) for _, array in leaves(tree)]
    given = [array for tree in (old[0], old[1], old[2].m, old[2].v) for _, array in leaves(tree)]
    assert not any(np.shares_memory(a, b) for a in made for b in given)


@pytest.mark.parametrize("number", [float, np.float32, np.float64])
def test_float32_stays_float32_whatever_the_numbers_are(params, rng, number):
    params = tree_map(lambda p: p.astype(np.float32), params)
    options = {
        "learning_rate": number(0.1),
        "beta_1": number(0.9),
        "beta_2": number(0.98),
        "eps": number(1e-9),
    }
    gradients = [like(params, rng) for _ in range(2)]
    *_, (new, state) = steps(params, gradients, **options, weight_decay=number(0.1))
    arrays = [array for tree in (new, state.m, state.v) for _, array in leaves(tree)]
    assert {array.dtype for array in arrays} == {np.dtype(np.float32)}
    assert {a.dtype for _, a in leaves(sgd_update(new, params, learning_rate=number(1)))} == {
        np.dtype(np.float32)
    }


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e200])
def test_a_gradient_that_is_not_finite_is_named(rng, value):
    block = init_encoder_block(TransformerConfig(d_model=4, d_ff=6, n_heads=2), rng)
    grads, state = like(block, rng), adam_init(block)
    grads.ffn.W_2[5, 1] = value
    with pytest.raises(ValueError, match=r"^adam_update: grads\.ffn\.W_2 holds NaN or "):
        adam_update(block, grads, state, learning_rate=0.1)
    with pytest.raises(ValueError, match=r"^adam_update: grads holds NaN or "):
        adam_update(np.ones(()), np.array(value), adam_init(np.ones(())), learning_rate=0.1)


def test_arrays_of_no_axes_stay_arrays():
    for dtype in (np.float32, np.float64):
        p = (np.array(0.5, dtype),)
        moved = sgd_update(p, p, learning_rate=0.1)
        adam, state = adam_update(p, p, adam_init(p), learning_rate=0.1)
        for array in (moved[0], adam[0], state.m[0], state.v[0]):
            assert type(array) is np.ndarray and array.shape == () and array.dtype == dtype


def test_without_eps_a_weight_without_a_gradient_stays_where_it_is():
    params, grads = (np.array([1.0, 2.0]),), (np.array([0.0, 3.0]),)
    moved, state = adam_update(params, grads, adam_init(params), learning_rate=0.1, eps=0.0)
    np.testing.assert_allclose(moved[0], [1.0, 1.9])
    moved, _ = adam_update(moved, grads, state, learning_rate=0.1, eps=0.0)
    np.testing.assert_allclose(moved[0], [1.0, 1.8])


def test_the_step_may_be_any_integer():
    params = (np.ones(2),)
    for kind in (int, *INTEGERS):
        state = adam_init(params)._replace(step=kind(127))
        assert adam_update(params, params, state, learning_rate=0.1)[1].step == 128


def test_a_tree_that_is_too_deep_is_refused():
    tree = np.ones(1)
    for _ in range(3000):
        tree = (tree,)
    with pytest.raises(ValueError, match=r"^sgd_update: the tree is nested more than 100 deep"):
        sgd_update(tree, tree, learning_rate=0.1)
    with pytest.raises(ValueError, match=r"^adam_init: the tree is nested more than 100 deep"):
        adam_init(tree)


def test_large_gradients_are_no_trouble_while_their_squares_are_numbers():
    """In float32 3e37 is one; a thousand of them add up to more than float32 can say."""
    p, g = (np.zeros(1000, np.float32),), (np.full(1000, 5.5e18, np.float32),)
    new, state = adam_update(p, g, adam_init(p), learning_rate=0.1)
    np.testing.assert_allclose(new[0], -0.1, rtol=1e-6)
    assert np.isfinite(state.v[0]).all()


def test_an_update_needs_little_more_memory_than_the_trees_that_it_returns():
    n = 200_000
    params, grads = ((np.ones(n),) * 4 for _ in range(2))
    state = adam_init(params)
    tracemalloc.start()
    try:
        adam_update(params, grads, state, learning_rate=0.1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    arrays = peak / (8 * n)
    assert arrays < 3 * 4 + 3.1, "three trees of four leaves come back, three arrays are made on the way"


# The paper's learning rate


@pytest.mark.parametrize("d_model", [1, 64, 512])
@pytest.mark.parametrize("warmup_steps", [1, 40, 4000])
def test_the_schedule_rises_in_a_straight_line_and_falls_as_one_over_the_root(d_model, warmup_steps):
    def rate(step):
        return warmup_learning_rate(step, d_model, warmup_steps=warmup_steps)

    top = 1 / math.sqrt(d_model * warmup_steps)
    assert rate(warmup_steps) == pytest.approx(top, rel=1e-14)
    for step in range(1, 3 * warmup_steps, 1 + warmup_steps // 50):
        expected = top * (step / warmup_steps if step < warmup_steps else math.sqrt(warmup_steps / step))
        assert rate(step) == pytest.approx(expected, rel=1e-13)
        assert rate(step) < top * (1 + 1e-15) and type(rate(step)) is float


def test_the_papers_base_model_peaks_at_seven_ten_thousandths():
    rates = [warmup_learning_rate(step, 512) for step in range(1, 8001)]
    assert rates.index(max(rates)) + 1 == 4000
    assert max(rates) == pytest.approx(6.9877e-4, rel=1e-5)
    assert rates[0] == pytest.approx(max(rates) / 4000, rel=1e-12)


# Trees that do not fit


W, b, last = np.ones((3, 2)), np.ones(2), Layer(np.ones((2, 1)))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((Layer(W, b), Layer(np.ones((2, 1)), np.ones(1))), r"grads .* 1\.b$"),
        ((Layer(W), last), r"grads .* 0\.b$"),
        ((Layer(W, b),), r"grads .* 1\.W$"),
        ((Layer(W.T, b), last), r"grads\.0\.W has shape \(2, 3\); expected \(3, 2\)"),
        ((Layer(W, b), Layer(np.ones((2, 1), np.float32))), r"grads\.1\.W has dtype float32"),
        ((Layer(W, [1.0, 1.0]), last), r"grads\.0\.b is a list"),
        ((Layer(W.view(np.matrix), b), last), r"grads\.0\.W is a matrix"),
    ],
)
def test_the_leaf_that_does_not_fit_is_named(wrong, message):
    params = Layer(W, b), last
    with pytest.raises((ValueError, TypeError), match=rf"^sgd_update: {message}"):
        sgd_update(params, wrong, learning_rate=0.1)
    with pytest.raises((ValueError, TypeError), match=rf"^adam_update: {message}"):
        adam_update(params, wrong, adam_init(params), learning_rate=0.1)


def test_leaves_in_another_order_are_refused():
    class Turned(NamedTuple):
        b: Any
        W: Any

    with pytest.raises(ValueError, match=r"^sgd_update: grads is not built like params; .* in their order$"):
        sgd_update(Layer(np.ones(2), np.ones(2)), Turned(np.ones(2), np.ones(2)), learning_rate=0.1)


def test_a_look_alike_is_not_the_parameters_type():
    class Alike(NamedTuple):
        W: Any
        b: Any

    expected = r"^sgd_update: grads is not built like params; expected the same NamedTuples$"
    for grads in (Alike(np.ones(2), None), Layer(np.ones(2), ())):
        with pytest.raises(ValueError, match=expected):
            sgd_update(Layer(np.ones(2)), grads, learning_rate=0.1)
