"""One code, two array libraries: the package runs on a stand-in for CuPy and gives NumPy's own numbers.

The stand-in (standin_cupy.py) refuses what would leave a GPU in silence or make it wait. What runs here has
not been shown to be fast on a GPU, nor that CuPy's kernels round as NumPy does: `pytest -m gpu` is for that.
"""

import ast
import inspect
import re
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import standin_cupy as cupy
from bad_calls import CHECKED
from valid_calls import (
    CALLS,
    CONFIG,
    DIFFERENTIATED,
    FORWARD,
    VOCAB_SIZE,
    array,
    backward,
    backward_of,
    call,
    drawn,
    fingerprint,
    generator,
    ids,
    like,
    norm_params,
    with_arrays,
)

import npformer as npf
from npformer import attention, optim


@pytest.fixture(autouse=True)
def _standin(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", cupy)


def to_device(tree):
    return with_arrays(tree, cupy.asarray)


def check_same(found, expected, path="result", last_bits=64):
    """Every array of NumPy's result has its equal on the device; everything else is equal.

    A matrix product may round in another way when its operands lie elsewhere in memory, hence the last bits.
    """
    if isinstance(expected, np.ndarray):
        assert type(found) is cupy.ndarray, f"{path} is {type(found)}, expected an array of the device"
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype), path
        close = last_bits * np.finfo(expected.dtype).eps if expected.dtype.kind == "f" else 0
        np.testing.assert_allclose(cupy.asnumpy(found), expected, rtol=close, atol=close, err_msg=path)
    elif isinstance(expected, tuple):
        assert type(found) is type(expected) and len(found) == len(expected), path
        names = getattr(expected, "_fields", range(len(expected)))
        for name, a, b in zip(names, found, expected, strict=True):
            check_same(a, b, f"{path}.{name}", last_bits)
    elif isinstance(expected, dict):
        assert list(found) == list(expected), path
        for name in expected:
            check_same(found[name], expected[name], f"{path}[{name!r}]", last_bits)
    else:
        assert found == expected, path


def check_forward_and_backward(name, arguments):
    """`arguments()` makes them anew, so that both libraries start from the same generator."""
    y, cache = call(name, arguments())
    device_y, device_cache = call(name, to_device(arguments()))
    check_same((device_y, device_cache), (y, cache), name)
    dy = array(*y.shape, seed=4, dtype=y.dtype)
    gradients, device_gradients = backward(name, dy, cache), backward(name, cupy.asarray(dy), device_cache)
    assert list(device_gradients) == list(gradients) == DIFFERENTIATED[name].split()
    for argument, gradient in gradients.items():
        check_same(device_gradients[argument], gradient, f"{name}: d{argument}")


# Every forward and backward


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("name", FORWARD)
def test_a_forward_and_its_backward_stay_on_the_device(name, dtype):
    check_forward_and_backward(name, lambda: like(FORWARD[name](), dtype))


VARIANTS = {
    "linear without a bias": ("linear_forward", {"b": None}),
    "gelu in its tanh form": ("gelu_forward", {"approximate": True}),
    "softmax over the first axis, a line of -inf": (
        "softmax_forward",
        {"axis": 0, "scores": np.array([[1.0, -np.inf], [2.0, -np.inf]])},
    ),
    "no dropout": ("dropout_forward", {"rng": None}),
    "rope of neighbours, from position 0": ("rope_forward", {"positions": None, "layout": "interleaved"}),
    "relu": ("ffn_forward", {"activation": "relu"}),
    "a constant row and eps = 0": ("layer_norm_forward", {"x": np.ones((2, 8)), "eps": 0}),
    "no mask, no bias": ("attention_forward", {"mask": None, "bias": None}),
    "queries that see nothing": ("attention_forward", {"mask": np.zeros((5, 6), bool)}),
    "no rope": ("multi_head_attention_forward", {"rope": False}),
    "every target counts": ("cross_entropy_forward", {"ignore_index": None, "label_smoothing": 0.0}),
    "ignored targets": ("cross_entropy_forward", {"ignore_index": 2}),
    "post-norm, ALiBi, ReLU": (
        "encoder_block_forward",
        {"config": CONFIG._replace(norm="post", positions="alibi")},
    ),
    "pre-norm, RoPE, GELU": (
        "decoder_block_forward",
        {"config": CONFIG._replace(positions="rope", activation="gelu")},
    ),
}


@pytest.mark.parametrize(("name", "changes"), VARIANTS.values(), ids=list(VARIANTS))
def test_the_other_branches_stay_on_the_device_too(name, changes):
    check_forward_and_backward(name, lambda: FORWARD[name]() | changes)


def test_attention_at_once_on_the_device_and_head_by_head_on_the_host(monkeypatch):
    """As for long sequences: a host has little memory to spare, a device little time for small kernels."""
    monkeypatch.setattr(attention, "LARGE", 0)
    shapes, gradients = [], attention._gradients

    def seen(dy, q, k, v, w):
        shapes.append(w.shape)
        return gradients(dy, q, k, v, w)

    monkeypatch.setattr(attention, "_gradients", seen)
    q, k = np.ones((2, 3, 4, 5)), np.ones((2, 3, 6, 5))
    for move in (np.asarray, cupy.asarray):
        y, cache = attention.attention_forward(move(q), move(k), move(k))
        attention.attention_backward(y, cache)
    assert shapes == [(4, 6)] * 6 + [(2, 3, 4, 6)]
    check_forward_and_backward("attention_forward", FORWARD["attention_forward"])
    check_forward_and_backward("multi_head_attention_forward", FORWARD["multi_head_attention_forward"])


@pytest.mark.parametrize(
    ("name", "field", "changes"),
    [
        ("attention_forward", "scores", {}),
        ("multi_head_attention_forward", "scores", {}),
        ("multi_head_attention_forward", "weights", {}),
        ("ffn_forward", "z", {"activation": "gelu"}),
        ("ffn_forward", "z", {"activation": "relu"}),
    ],
)
def test_what_a_cache_computes_anew_stays_on_the_device(name, field, changes):
    _, cache = call(name, FORWARD[name]() | changes)
    _, device_cache = call(name, to_device(FORWARD[name]() | changes))
    check_same(getattr(device_cache, field), getattr(cache, field), f"{name}: {field}")


# A whole model


EVERY_MODEL = [
    pytest.param(
        CONFIG._replace(positions=positions, norm=norm, activation=activation), id=f"{positions}-{norm}"
    )
    for positions in ("sinusoidal", "learned", "rope", "alibi", "none")
    for norm, activation in (("pre", "gelu"), ("post", "relu"))
]


def trained(params, source_ids, target_ids, config, steps=2):
    """Parameters, optimizer's state and losses after some steps, on whichever library the arrays are of."""
    rng, state, losses = generator(), npf.adam_init(params), []
    for _ in range(steps):
        logits, cache = npf.transformer_forward(
            source_ids, target_ids[:, :-1], params, config, padding_id=0, rng=rng
        )
        loss, loss_cache = npf.cross_entropy_forward(
            logits, target_ids[:, 1:], ignore_index=0, label_smoothing=0.1
        )
        grads = npf.transformer_backward(npf.cross_entropy_backward(1.0, loss_cache), cache)
        params, state = npf.adam_update(params, grads, state, learning_rate=0.01, weight_decay=0.1)
        losses.append(loss)
    return params, state, tuple(losses)


@pytest.mark.parametrize("config", EVERY_MODEL)
def test_training_gives_the_same_parameters(config):
    # without attention biases: b_K's gradient is zero but for rounding, and Adam makes full steps of that
    config = config._replace(attention_bias=False)
    start = drawn(npf.init_transformer, VOCAB_SIZE, config), ids(3, 6), ids(3, 6, seed=1)
    on_device = npf.to_backend(start, "cupy")
    check_same(trained(*on_device, config), trained(*start, config), last_bits=50_000)  # 1e-11


@pytest.mark.parametrize("padding_id", [None, 0])
@pytest.mark.parametrize("config", EVERY_MODEL)
def test_greedy_decoding_gives_the_same_tokens(config, padding_id):
    params = drawn(npf.init_transformer, VOCAB_SIZE, config)
    settings = {"start_id": 1, "stop_id": 2, "max_length": 6, "padding_id": padding_id}
    found = npf.greedy_decode(cupy.asarray(ids(3, 6)), to_device(params), config, **settings)
    check_same(found, npf.greedy_decode(ids(3, 6), params, config, **settings))


def test_greedy_decoding_waits_once_a_token(monkeypatch):
    waits = []
    monkeypatch.setattr(cupy, "_wait", waits.append)
    arguments = to_device(CALLS["greedy_decode"]())
    tokens = call("greedy_decode", arguments).shape[-1]
    assert waits == ["a truth value"] * tokens  # has every row stopped?


# Everything else that is handed arrays, or makes them

BY_THEMSELVES = {  # each has a test below, or in test_backend.py
    "array_module", "gradcheck", "leaves", "load", "order_sensitivity", "save", "to_backend", "to_numpy",
    "tree_map",
}  # fmt: skip
ON_THE_HOST = {"decode", "load_minilm"}  # words, files


def takes_arrays(name):
    found = []
    with_arrays(CALLS[name](), found.append)
    return bool(found)


TAKE_ARRAYS = [
    name
    for name in CALLS
    if not name.endswith(("_forward", "_backward"))
    and name not in BY_THEMSELVES | ON_THE_HOST
    and takes_arrays(name)
]


@pytest.mark.parametrize("name", TAKE_ARRAYS)
def test_a_function_of_arrays_stays_on_the_device(name):
    check_same(call(name, to_device(CALLS[name]())), call(name, CALLS[name]()), name)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("positional_encoding", {"n": 130, "layout": "interleaved"}),
        ("positional_encoding", {"n": 130, "start": 7, "dtype": np.float32}),
        ("positional_encoding", {"d_model": 5, "layout": "interleaved"}),
        ("positional_encoding", {"n": 0}),
        ("alibi_bias", {}),
        ("alibi_bias", {"n_heads": 6, "dtype": np.float32}),
        ("causal_mask", {}),
    ],
)
def test_arrays_made_from_nothing_are_made_there(name, changes):
    arguments = CALLS[name]() | changes
    check_same(call(name, arguments | {"xp": cupy}), call(name, arguments), name)


def test_order_sensitivity_shuffles_on_the_device():
    x, weights = array(2, 6, 8), array(6, 1, seed=1)
    expected = npf.order_sensitivity(lambda x: x * weights, x, generator())
    on_device = cupy.asarray(weights)
    found = npf.order_sensitivity(lambda x: x * on_device, cupy.asarray(x), generator())
    assert type(found) is float and found == pytest.approx(expected, rel=1e-14) and found > 0.1


def test_trees_of_device_arrays():
    tree = to_device((np.ones(2), None))
    check_same(npf.tree_map(lambda a, b: a + b, tree, tree), (np.full(2, 2.0), None))
    assert [path for path, _ in npf.leaves(tree)] == ["0"]
    assert npf.array_module(np.ones(2), tree[0]) is cupy and npf.array_module(np.ones(2)) is np


# Gradients by differences

GRADCHECKED = {  # and how many of the arguments go by position
    "ffn_forward": 2,
    "attention_forward": 3,
    "layer_norm_forward": 2,
    "cross_entropy_forward": 2,
    "embedding_forward": 2,
    "dropout_forward": 3,
}


def test_an_update_finds_out_quickly_that_trees_are_alike_on_the_device_too(monkeypatch):
    """Two milliseconds a step are saved where no leaf needs its path to be put together."""
    monkeypatch.setattr(optim, "_explain", None)
    params = to_device(CALLS["sgd_update"]()["params"])
    npf.adam_update(params, params, npf.adam_init(params), learning_rate=0.1)
    npf.sgd_update(params, params, learning_rate=0.1)


@pytest.mark.parametrize("name", GRADCHECKED)
def test_gradcheck_gives_the_same_verdicts(name):
    arguments = FORWARD[name]()
    names = list(arguments)[: GRADCHECKED[name]]

    def report(arguments):
        settings = {key: value for key, value in arguments.items() if key not in names}
        held = {key: settings.pop(key) for key in ("bias",) if key in settings}  # without a gradient
        pair = partial(getattr(npf, name), **held), getattr(npf, backward_of(name))
        return npf.gradcheck(*pair, *(arguments[key] for key in names), **settings)

    found, expected = report(to_device(arguments)), report(arguments)
    assert found and [row.path for row in found.rows] == [row.path for row in expected.rows]


def test_gradcheck_finds_a_wrong_gradient_on_the_device():
    x = cupy.asarray(array(3))
    report = npf.gradcheck(lambda x: (x * x, x), lambda dy, x: dy * x, x)
    assert not report and report.rows[0].verdict == "fail"


# From one library to the other, and to files


def test_trees_move_there_and_back():
    assert npf.available_backends() == ("numpy", "cupy")
    state = npf.AdamState(3, (norm_params(4), None), (norm_params(4), None))
    there = npf.to_backend(state, "cupy")
    check_same(there, state)
    for tree in (npf.to_numpy(there), npf.to_backend(there, "numpy")):
        assert tree.step == 3 and type(tree.m[0].gamma) is np.ndarray
        np.testing.assert_array_equal(tree.v[0].beta, state.v[0].beta)
    with pytest.raises(TypeError, match="to_backend"):
        npf.to_backend([np.ones(2)], "cupy")


def test_a_file_moves_from_one_library_to_the_other(tmp_path):
    here = npf.adam_init(norm_params(4))._replace(step=7, m=norm_params(4))
    there = npf.to_backend(here, "cupy")
    npf.save(tmp_path / "from_device", there)
    npf.save(tmp_path / "from_host", here)
    for file in ("from_device", "from_host"):
        check_same(npf.load(tmp_path / file, there), here)
        loaded = npf.load(tmp_path / file, here)
        assert type(loaded.m.gamma) is np.ndarray and loaded.step == 7
        np.testing.assert_array_equal(loaded.m.gamma, here.m.gamma)


# Refusals


def test_wrong_arrays_on_the_device_are_refused_in_the_same_words():
    params = to_device(FORWARD["ffn_forward"]()["params"])
    with pytest.raises(
        ValueError, match=r"^ffn_forward: x has shape \(3, 6, 7\); expected \(\.\.\., d_model\)"
    ):
        npf.ffn_forward(cupy.asarray(array(3, 6, 7)), params)
    with pytest.raises(TypeError, match=r"^ffn_forward: x has dtype int64; expected float32 or float64"):
        npf.ffn_forward(cupy.asarray(ids(3, 8)), params)
    with pytest.raises(
        TypeError, match=r"^causal_mask: T_q is an array of shape \(2,\); expected an integer"
    ):
        npf.causal_mask(cupy.asarray(ids(2)))
    with pytest.raises(ValueError, match=r"^adam_update: grads\.gamma has shape \(5,\); expected \(4,\)"):
        params = to_device(norm_params(4))
        grads = params._replace(gamma=cupy.asarray(array(5)))
        npf.adam_update(params, grads, npf.adam_init(params), learning_rate=0.1)


# The stand-in itself: a check that cannot fail proves nothing


@pytest.mark.parametrize(
    "use",
    [
        lambda d: np.exp(d),
        lambda d: np.sum(d),
        lambda d: np.asarray(d),
        lambda d: np.concatenate([d, d]),
        lambda d: np.ones(2) + d,
        lambda d: d + np.ones(2),
        lambda d: d * np.float64(2),
        lambda d: d.__imul__(np.ones(2)),
        lambda d: np.ones(2)[d],
        lambda d: d[np.array([0])],
        lambda d: d.__setitem__(0, np.ones(1)),
        lambda d: cupy.where(np.ones(2, bool), d, d),
        lambda d: cupy.zeros(2, device="gpu"),
        lambda d: d.max(initial=0.0),
        lambda d: list(d[0]),
        lambda d: len(d[0]),
        lambda d: hash(d),
    ],
)
def test_the_standin_refuses_what_belongs_to_numpy(use):
    with pytest.raises(TypeError):
        use(cupy.asarray(np.ones(2)))


def test_the_standin_lacks_what_cupy_lacks():
    assert not any(hasattr(cupy, name) for name in ("vecdot", "errstate", "random"))
    assert not any(hasattr(cupy.ndarray, name) for name in ("mT", "__array_namespace__"))


WAITING = [
    "float(x[0])", "bool(x[0])", "int(x[0])", "1 if x.sum() else 0", "x.sum() and x", "x.sum().item()",
    "x.get()", "x[x > 0]", "[7, 8][x.argmax()]", "f'{x}'",
]  # fmt: skip


@pytest.mark.parametrize("expression", WAITING)
def test_the_standin_lets_no_forward_wait(expression):
    x = cupy.asarray(np.array([1.0, 3.0]))
    package = {"__name__": "npformer.planted"}
    exec(f"def planted_forward(x): return inside(x)\ndef inside(x): return {expression}", package)
    package["inside"](x)  # a wait elsewhere is allowed
    with pytest.raises(RuntimeError, match="makes the host wait for the device inside planted_forward"):
        package["planted_forward"](x)


# No waiting, by the source: also in the lines that no test runs

HOST_ATTRIBUTES = {"shape", "ndim", "size", "dtype"}
HOST_CALLS = {"len", "isinstance", "hasattr", "type"}
CONVERSIONS = {"float", "bool", "int", "complex", "str", "any", "all", "max", "min", "sum", "sorted", "range"}
TRANSFERS = {"item", "tolist", "get"}
WITHOUT_WAITING = cupy.WITHOUT_WAITING


def named_tuples(trees):
    """The fields of every NamedTuple, as {class: {field: annotation}}."""
    classes = [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return {
        c.name: {f.target.id: ast.unparse(f.annotation) for f in c.body if isinstance(f, ast.AnnAssign)}
        for c in classes
        if any(ast.unparse(base) == "NamedTuple" for base in c.bases)
    }


class Waits:
    """The places of one function where the value of an array is turned into a Python value.

    A name has the annotation of its parameter, its field, or of what it is assigned. `Any` counts as an
    array, and so does everything that is computed from one, but for its shape and the like.
    """

    def __init__(self, function, fields):
        self.fields = fields
        arguments = function.args.posonlyargs + function.args.args + function.args.kwonlyargs
        self.types = {a.arg: ast.unparse(a.annotation) for a in arguments if a.annotation}
        nodes = list(ast.walk(function))
        for _ in range(3):  # a name may stand before what makes it an array, in a loop
            for node in nodes:
                self.bind(node)
        self.offences = [f"{function.name}: {ast.unparse(node)}" for node in nodes if self.waits(node)]

    def bind(self, node):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                self.assign(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign) and node.value:
            self.assign(node.target, node.value)
        elif isinstance(node, ast.For | ast.comprehension):
            self.assign(node.target, node.iter)

    def assign(self, target, value):
        if isinstance(target, ast.Name):
            known, new = self.types.get(target.id), self.type_of(value)
            self.types[target.id] = known if known and self.holds_arrays(known) else new
        elif isinstance(target, ast.Tuple):
            fields = self.fields.get(self.type_of(value))
            if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts):
                parts = value.elts
            elif fields and len(fields) == len(target.elts):
                parts = [ast.Attribute(value, name) for name in fields]
            else:
                parts = [value] * len(target.elts)
            for part, source in zip(target.elts, parts, strict=True):
                self.assign(part, source)

    def type_of(self, node):
        if isinstance(node, ast.Name):
            return self.types.get(node.id, "")
        if isinstance(node, ast.Attribute) and (fields := self.fields.get(self.type_of(node.value))):
            return fields.get(node.attr, "")
        return "Array" if self.is_array(node) else ""

    def holds_arrays(self, annotation):
        words = set(ast.walk(ast.parse(annotation)))
        names = {word.id for word in words if isinstance(word, ast.Name)}
        return bool(names & {"Array", "Any"}) or any(
            self.holds_arrays(" | ".join(self.fields[name].values())) for name in names & self.fields.keys()
        )

    def is_array(self, node):
        if isinstance(node, ast.Name):
            return node.id not in HOST_ATTRIBUTES and self.holds_arrays(self.types.get(node.id, ""))
        if isinstance(node, ast.Attribute):
            known = self.fields.get(self.type_of(node.value), {}).get(node.attr)
            return node.attr not in HOST_ATTRIBUTES and (
                self.is_array(node.value) if known is None else self.holds_arrays(known)
            )
        if isinstance(node, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            return False
        if isinstance(node, ast.Call) and ast.unparse(node.func) in HOST_CALLS | CONVERSIONS:
            return False
        if isinstance(node, ast.Subscript):
            return self.is_array(node.value)
        return any(map(self.is_array, ast.iter_child_nodes(node)))

    def waits(self, node):
        if isinstance(node, ast.If | ast.While | ast.IfExp | ast.Assert):
            return self.is_array(node.test)
        if isinstance(node, ast.BoolOp):
            return any(map(self.is_array, node.values[:-1]))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.is_array(node.operand)
        if isinstance(node, ast.comprehension):
            return any(map(self.is_array, node.ifs))
        if isinstance(node, ast.Call):
            converts = ast.unparse(node.func) in CONVERSIONS or ast.unparse(node.func).startswith("math.")
            transfers = isinstance(node.func, ast.Attribute) and node.func.attr in TRANSFERS
            return (converts and any(map(self.is_array, node.args))) or (
                transfers and self.is_array(node.func.value)
            )
        return False


def waits_of(sources):
    """Every wait in the forwards, the backwards, the updates and in what they call, checks left out.

    The checks look at shapes and dtypes, and at values on NumPy arrays only: the stand-in sees to that.
    """
    trees = [ast.parse(source) for source in sources]
    fields, functions = named_tuples(trees), {}
    for node in (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        if not node.name.lstrip("_").startswith("check"):
            functions.setdefault(node.name, []).append(node)
    reached, waiting = set(), [name for name in functions if name.endswith(WITHOUT_WAITING)]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            used = (node for f in functions[name] for node in ast.walk(f) if isinstance(node, ast.Name))
            waiting += [node.id for node in used if node.id in functions]
    return [
        o for name in sorted(reached) for f in functions[name] for o in Waits(f, fields).offences
    ], reached


def test_no_forward_or_backward_waits_for_the_device():
    public = {name for name in npf.__all__ if name.endswith(WITHOUT_WAITING)}
    modules = {inspect.getmodule(inspect.unwrap(getattr(npf, name))) for name in public}
    offences, reached = waits_of(Path(module.__file__).read_text(encoding="utf-8") for module in modules)
    assert public | {"softmax_in_place", "residual_backward", "stack_forward"} <= reached
    assert offences == []


PLANTED = """
class PlantedCache(NamedTuple):
    x: Array
    rate: float

def helper(x: Array) -> Array:
    {}

def planted_forward(x: Array, scale: float, mask: Any) -> Array:
    return helper(x)

def planted_backward(dy: Array, cache: PlantedCache) -> Array:
    x, rate = cache
    {}
"""


@pytest.mark.parametrize(
    "line",
    [
        "return float(x.sum())",
        "return x * bool(x.any())",
        "y = x * 2; return int(y[0])",
        "if x.max() > 0: return x",
        "while not (x == 0).all(): x = x / 2",
        "return x if x.sum() else -x",
        "return x.max() or 1",
        "return x.sum().item()",
        "total = x.sum().tolist(); return total",
        "return math.sqrt((x * x).sum())",
        "return [row for row in x if row.sum()]",
        "for row in x: assert row[0]",
        "a, b = x, 1; return max(a, b)",
    ],
)
def test_a_planted_wait_is_caught(line):
    for source in (PLANTED.format(line, "return dy"), PLANTED.format("return x", line)):
        offences, _ = waits_of([source])
        assert offences, source


@pytest.mark.parametrize(
    "line",
    [
        "return x if x.shape[-1] > 2 and len(x) else -x",
        "return x if x is not None else 1",
        "return x * (1 / math.sqrt(x.shape[-1]))",
    ],
)
def test_shapes_cost_no_wait(line):
    assert waits_of([PLANTED.format(line, "return dy * float(rate) if cache.rate else dy")])[0] == []


# --- arrays of both libraries in one call ---------------------------------------------------------


def holders(arguments):
    """The arguments with arrays in them."""
    return [name for name, value in arguments.items() if fingerprint(to_device(value)) != fingerprint(value)]


MIXED = [
    (name, holder) for name in CHECKED for holder in holders(CALLS[name]()) if len(holders(CALLS[name]())) > 1
]


def test_there_are_many_calls_with_arrays_in_two_arguments():
    assert len(MIXED) > 80


@pytest.mark.parametrize(("name", "holder"), MIXED)
def test_arrays_of_both_libraries_in_one_call_are_refused(name, holder):
    arguments = CALLS[name]()
    with pytest.raises(TypeError) as caught:
        call(name, arguments | {holder: to_device(arguments[holder])})
    mixed = "(CuPy; expected one of NumPy|NumPy; expected one of CuPy)"
    assert re.match(rf"{name}: [\w.]+ is an array of {mixed} like [\w.]+ ", str(caught.value))
    assert holder in str(caught.value)


def test_a_mixed_tree_is_refused_with_the_path_in_it():
    params = npf.FFNParams(array(4, 8), array(8), cupy.asarray(array(8, 4)), array(4))
    with pytest.raises(TypeError) as caught:
        npf.ffn_forward(array(2, 4), params)
    assert str(caught.value) == (
        "ffn_forward: params.W_2 is an array of CuPy; expected one of NumPy like x "
        "(to_backend and to_numpy move arrays)"
    )
