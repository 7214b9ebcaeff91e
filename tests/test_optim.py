"""Gradient descent, Adam and the paper's learning rate: equations, golden values, edge cases."""

import math
import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pytest
from golden import TOLERANCE, TRAJECTORIES, assert_close, inputs_of
from valid_calls import array

import npformer as npf


class Layer(NamedTuple):
    W: Any
    b: Any = None


PARAMS = Layer(array(3, 2), array(2, seed=1)), Layer(array(2, 1, seed=2))
GRADS = npf.tree_map(lambda p: np.cos(7 * p), PARAMS)


def assert_close_trees(tree, expected, rtol=0.0, atol=0.0):
    npf.tree_map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), tree, expected)


def updates(params, gradients, **options):
    """Yield the parameters and the state after each update."""
    state = npf.adam_init(params)
    for grads in gradients:
        params, state = npf.adam_update(params, grads, state, **options)
        yield params, state


# --- the equations, by hand -------------------------------------------------------------------------


def test_sgd_update_subtracts_scaled_gradient():
    new = npf.sgd_update(PARAMS, GRADS, learning_rate=0.25)
    assert_close_trees(new, npf.tree_map(lambda p, g: p - 0.25 * g, PARAMS, GRADS))


def test_adam_update_equals_weighted_sums():
    """m = (1 - β₁) Σ β₁^age g and v = (1 - β₂) Σ β₂^age g².

    The update divides Σ β₁^age g by Σ β₁^age, and Σ β₂^age g² by Σ β₂^age.
    """
    gradients, beta_1, beta_2, p = array(12, 4), 0.7, 0.9, np.zeros(4)
    options = {"learning_rate": 0.3, "beta_1": beta_1, "beta_2": beta_2, "eps": 0.2}
    for t, (params, state) in enumerate(updates((p,), [(g,) for g in gradients], **options), 1):
        age = np.arange(t)[::-1, None]
        m, weight_m = (beta_1**age * gradients[:t]).sum(0), (beta_1**age).sum()
        v, weight_v = (beta_2**age * gradients[:t] ** 2).sum(0), (beta_2**age).sum()
        np.testing.assert_allclose(state.m[0], (1 - beta_1) * m, rtol=1e-13, atol=1e-16)
        np.testing.assert_allclose(state.v[0], (1 - beta_2) * v, rtol=1e-13)
        p = p - 0.3 * (m / weight_m) / (np.sqrt(v / weight_v) + 0.2)
        np.testing.assert_allclose(params[0], p, rtol=1e-12, atol=1e-15)
        assert state.step == t


@pytest.mark.parametrize("size", [0.0, 1e-2, 1e4])
def test_adam_update_weight_decay_ignores_gradient(size):
    """Whatever the gradient is, weight decay changes the result by learning_rate · weight_decay · p."""
    grads, state = npf.tree_map(lambda g: size * g, GRADS), npf.adam_init(PARAMS)
    plain, before = npf.adam_update(PARAMS, grads, state, learning_rate=0.1)
    decayed, after = npf.adam_update(PARAMS, grads, state, learning_rate=0.1, weight_decay=0.5)
    difference = npf.tree_map(lambda a, b: a - b, plain, decayed)
    assert_close_trees(difference, npf.tree_map(lambda p: 0.05 * p, PARAMS), rtol=1e-12)
    assert_close_trees((after.m, after.v), (before.m, before.v))  # m and v do not depend on weight decay


@pytest.mark.parametrize(("d_model", "warmup_steps"), [(1, 1), (64, 40), (512, 4000)])
def test_warmup_learning_rate_rises_then_falls(d_model, warmup_steps):
    top = 1 / math.sqrt(d_model * warmup_steps)
    for step in range(1, 3 * warmup_steps, 1 + warmup_steps // 50):
        rate = npf.warmup_learning_rate(step, d_model, warmup_steps=warmup_steps)
        expected = top * (step / warmup_steps if step < warmup_steps else math.sqrt(warmup_steps / step))
        assert type(rate) is float and rate == pytest.approx(expected, rel=1e-13)


# --- the golden values ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("name", TRAJECTORIES)
def test_adam_update_golden_values(name, dtype):
    """Compare with PyTorch: the parameters after 1, 10 and 100 steps, and both running means at the end."""
    case, arrays = TRAJECTORIES[name], inputs_of(TRAJECTORIES[name], dtype)
    options, found = dict(case["settings"]), {}
    schedule = {word: options.pop(word) for word in ("d_model", "warmup_steps") if word in options}
    names = [name.removeprefix("g.") for name in arrays if name.startswith("g.")]
    params = tuple(arrays[name] for name in names)
    state = npf.adam_init(params)
    for step, grads in enumerate(zip(*(arrays[f"g.{name}"] for name in names), strict=True), 1):
        if schedule:
            options["learning_rate"] = npf.warmup_learning_rate(step, **schedule)
        params, state = npf.adam_update(params, grads, state, **options)
        found |= {f"{name}_after_{step}": p for name, p in zip(names, params, strict=True)}
    for mean in ("m", "v"):
        found |= {f"{mean}.{name}": a for name, a in zip(names, getattr(state, mean), strict=True)}
    for what, expected in case["answers"].items():
        assert_close(found[what], expected, dtype, what)


# --- the edges --------------------------------------------------------------------------------------


def test_adam_update_returns_new_trees_of_same_types():
    state = npf.adam_init(PARAMS)
    new, after = npf.adam_update(PARAMS, GRADS, state, learning_rate=0.1, weight_decay=0.1)
    assert isinstance(new[0], Layer) and new[1].b is None and after.m[1].b is None
    trees = (PARAMS, GRADS, state.m, state.v), (new, after.m, after.v)
    old, made = ([a for _, a in npf.leaves(tree)] for tree in trees)
    assert not any(np.shares_memory(a, b) for a in made for b in [*old, *made] if a is not b)


@pytest.mark.parametrize("number", [float, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_updates_keep_float32_and_shape(number, shape):
    params, options = (np.full(shape, 0.5, np.float32),), {"eps": number(1e-9), "weight_decay": number(0.1)}
    options |= {"learning_rate": number(0.1), "beta_1": number(0.9), "beta_2": number(0.98)}
    new, state = npf.adam_update(params, params, npf.adam_init(params), **options)
    for made in (*new, *state.m, *state.v, *npf.sgd_update(params, params, learning_rate=number(1))):
        assert type(made) is np.ndarray and made.shape == shape and made.dtype == np.float32


def test_adam_update_of_large_gradients_is_finite():
    """Each square is 3e37 and fits into float32, but the sum of 1000 such squares would overflow."""
    p, g = (np.zeros(1000, np.float32),), (np.full(1000, 5.5e18, np.float32),)
    new, state = npf.adam_update(p, g, npf.adam_init(p), learning_rate=0.1)
    np.testing.assert_allclose(new[0], -0.1, rtol=1e-6)
    assert np.isfinite(state.v[0]).all()


def test_adam_update_without_eps_keeps_unused_weight():
    grads = (np.array([0.0, 3.0]),)
    values = [p[0] for p, _ in updates((np.array([1.0, 2.0]),), [grads] * 2, learning_rate=0.1, eps=0.0)]
    np.testing.assert_allclose(values, [[1.0, 1.9], [1.0, 1.8]])


def test_adam_update_needs_little_extra_memory():
    params = (np.ones(200_000),) * 4
    state = npf.adam_init(params)
    tracemalloc.start()
    try:
        npf.adam_update(params, params, state, learning_rate=0.1)
        arrays = tracemalloc.get_traced_memory()[1] / params[0].nbytes
    finally:
        tracemalloc.stop()
    assert arrays < 3 * 4 + 3.1, "three trees of four leaves are returned; three temporary arrays are allowed"
