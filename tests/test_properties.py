"""What holds for every forward and backward, whatever the sizes and the numbers: tried on many of both."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from together import together
from valid_calls import SIZED, array, backward, call, fingerprint, generator, like, shapes, sized, with_arrays

import npformer as npf

EVERY_OPERATION = together("name", SIZED)

lengths = st.integers(0, 5)
leads = st.lists(st.integers(0, 3), max_size=2).map(tuple)
seeds = st.integers(0, 2**32 - 2)
dtypes = st.sampled_from([np.float32, np.float64])
EPSILON = {np.float32: 2.0**-23, np.float64: 2.0**-52}


def examples(n):
    return settings(max_examples=n)  # no deadline and the same examples every time: conftest.py


def worst(found, expected):
    """The largest difference between two trees, relative to each leaf's largest entry or to 1."""
    pairs = zip(npf.leaves(found), npf.leaves(expected), strict=True)
    return max((abs(a - b).max() / max(1, abs(b).max()) for (_, a), (_, b) in pairs if b.size), default=0.0)


def results(name, arguments, dy):
    """The output, and the gradients for the upstream gradient dy."""
    y, cache = call(name, arguments)
    return y, *backward(name, dy, cache).values()


@EVERY_OPERATION
@examples(5)
@given(lead=leads, T=lengths, S=lengths, seed=seeds, dtype=dtypes)
def test_shapes_dtypes_and_leading_axes_stay(name, lead, T, S, seed, dtype):
    arguments, shape = sized(lead, T, S, generator(), seed)[name]
    arguments = like(arguments, dtype)
    y, cache = call(name, arguments)
    assert type(y) is np.ndarray and (y.shape, y.dtype) == (shape, dtype)
    for argument, gradient in backward(name, array(*shape, seed=seed, dtype=dtype), cache).items():
        assert type(gradient) is type(arguments[argument])
        assert shapes(gradient) == shapes(arguments[argument])


@EVERY_OPERATION
@examples(5)
@given(lead=leads, T=lengths, S=lengths, seed=seeds)
def test_nothing_that_was_passed_is_changed(name, lead, T, S, seed):
    arguments, shape = sized(lead, T, S, generator(), seed)[name]
    arrays = {argument: value for argument, value in arguments.items() if argument != "rng"}
    before = fingerprint(arrays)
    y, cache = call(name, arguments)
    assert fingerprint(arrays) == before
    dy = array(*shape, seed=seed)
    before = fingerprint((arrays, y, dy, cache))
    backward(name, dy, cache)
    assert fingerprint((arrays, y, dy, cache)) == before


def arrays_in(tree):
    found = []
    with_arrays(tree, found.append)
    return found


@EVERY_OPERATION
@examples(4)
@given(lead=leads, T=lengths, S=lengths, seed=seeds)
def test_a_second_backward_says_the_same_as_the_first(name, lead, T, S, seed):
    """And gradients own their memory: who writes into them, as an optimizer may, does not spoil the cache."""
    arguments, shape = sized(lead, T, S, generator(), seed)[name]
    _, cache = call(name, arguments)
    dy = array(*shape, seed=seed)
    first, second = backward(name, dy, cache), backward(name, dy, cache)
    assert fingerprint(first) == fingerprint(second)
    for gradient in arrays_in(first):
        assert not any(np.may_share_memory(gradient, cached) for cached in arrays_in(cache))


@EVERY_OPERATION
@examples(5)
@given(lead=leads, T=lengths, S=lengths, seed=seeds, a=st.floats(-3, 3), b=st.floats(-3, 3))
def test_backward_is_linear_in_the_upstream_gradient(name, lead, T, S, seed, a, b):
    arguments, shape = sized(lead, T, S, generator(), seed)[name]
    _, cache = call(name, arguments)
    dy_1, dy_2 = array(*shape, seed=seed), array(*shape, seed=seed + 1)

    def gradients(dy):
        return tuple(backward(name, dy, cache).values())

    separate = npf.tree_map(lambda g_1, g_2: a * g_1 + b * g_2, gradients(dy_1), gradients(dy_2))
    assert worst(gradients(a * dy_1 + b * dy_2), separate) <= 1e-12


BATCHED = set("x z scores q k v memory mask memory_mask ids source_ids target_ids".split())


@EVERY_OPERATION
@examples(5)
@given(B=st.integers(1, 4), T=lengths, S=lengths, seed=seeds)
def test_the_items_of_a_batch_know_nothing_of_each_other(name, B, T, S, seed):
    """Each item alone gives its own part of the output and the gradients; parameters get the items' sum."""
    arguments, shape = sized((B,), T, S, None, seed)[name]
    dy = array(*shape, seed=seed)
    y, cache = call(name, arguments)
    together = backward(name, dy, cache)
    alone = []
    for i in range(B):
        item = {argument: value[i] if argument in BATCHED else value for argument, value in arguments.items()}
        y_i, cache_i = call(name, item)
        assert worst(y[i], y_i) <= 1e-13
        alone.append(backward(name, dy[i], cache_i))
    for argument, gradient in together.items():
        items = [gradients[argument] for gradients in alone]
        if argument in BATCHED:
            assert worst(gradient, np.stack(items)) <= 1e-12
        else:
            assert worst(gradient, npf.tree_map(lambda *g: sum(g), *items)) <= 1e-12


@EVERY_OPERATION
@examples(5)
@given(lead=leads, T=lengths, S=lengths, seed=seeds)
def test_float32_follows_float64(name, lead, T, S, seed):
    arguments, shape = sized(lead, T, S, generator(), seed)[name]
    arguments, dy = like(arguments, np.float32), array(*shape, seed=seed, dtype=np.float32)
    wide = like(arguments, np.float64) | ({"rng": generator()} if "rng" in arguments else {})
    narrow = results(name, arguments, dy)
    assert worst(narrow, results(name, wide, dy.astype(np.float64))) <= 3e-5


def views(seed):
    """Turns an array into an equal one that lies differently: axes exchanged, turned round, with gaps."""
    draw = np.random.default_rng(seed)

    def view(a):
        order = draw.permutation(a.ndim)
        steps = [int(draw.choice([-2, -1, 1, 2])) for _ in order]
        room = np.full([abs(step) * n for step, n in zip(steps, np.array(a.shape)[order], strict=True)], 7)
        strided = room.astype(a.dtype)[tuple(slice(None, None, step) for step in steps)]
        strided = strided.transpose(np.argsort(order)) if a.ndim else strided
        strided[...] = a
        return strided

    return view


@EVERY_OPERATION
@examples(5)
@given(lead=leads, T=lengths, S=lengths, seed=seeds, dtype=dtypes)
def test_how_the_arrays_lie_in_memory_does_not_matter(name, lead, T, S, seed, dtype):
    arguments, shape = sized(lead, T, S, None, seed)[name]
    arguments, dy = like(arguments, dtype), array(*shape, seed=seed, dtype=dtype)
    view = views(seed)
    found, expected = results(name, with_arrays(arguments, view), view(dy)), results(name, arguments, dy)
    assert worst(found, expected) <= 500 * EPSILON[dtype]


@examples(25)
@given(lead=leads, T=lengths, seed=seeds, smoothing=st.floats(0, 1), dtype=dtypes)
def test_cross_entropy_is_the_mean_over_the_batch(lead, T, seed, smoothing, dtype):
    logits = array(*lead, T, 5, seed=seed, dtype=dtype)
    targets = np.random.default_rng(seed).integers(-1, 5, size=(*lead, T))
    counted = targets != -1
    if not counted.any():
        return
    options = {"label_smoothing": smoothing}
    before = fingerprint((logits, targets))
    loss, cache = npf.cross_entropy_forward(logits, targets, ignore_index=-1, **options)
    dlogits = npf.cross_entropy_backward(3.0, cache)
    assert loss.shape == () and loss.dtype == dlogits.dtype == dtype and dlogits.shape == logits.shape
    assert fingerprint((logits, targets)) == before and (dlogits[~counted] == 0).all()
    rows = zip(logits[counted], targets[counted], strict=True)
    alone = [npf.cross_entropy_forward(row[None], target[None], **options) for row, target in rows]
    tolerance = 1e-12 if dtype is np.float64 else 3e-5
    assert abs(loss - np.mean([loss_i for loss_i, _ in alone])) <= tolerance * max(1, abs(loss))
    gradients = [npf.cross_entropy_backward(3.0 / len(alone), cache_i)[0] for _, cache_i in alone]
    assert worst(dlogits[counted], np.stack(gradients)) <= tolerance
    assert worst(npf.cross_entropy_backward(-1.5, cache), -dlogits / 2) <= tolerance
