"""A valid call of every public function, made from its signature: what the tests spoil in one place.

`CALLS[name]()` makes fresh arguments; `call(name, arguments)` calls npformer's function of that name.
An array has the lengths of its letters, parameters and configs are of their annotation's type, and any other
argument has the value that NAMED has for its name, or its default. A new public function needs a line in OWN
only where this is not enough. Different letters have different lengths, so that a wrong letter shows.
`places(name)` are the function's arguments and every field of the parameters and the config in them.
"""

import inspect
import re
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from small_models import ENCODER, Letters, folder, sentence_encoder

import npformer as npf
from npformer.tree import ends, ends_mapped
from npformer.validation.signature import read_signature, walk

CONFIG = npf.TransformerConfig(
    8, 12, n_heads=2, n_layers=1, norm="pre", positions="learned", attention_bias=True, max_length=9
)
VOCABULARY = {"<pad>": 0, "bites": 1, "dog": 2}
VOCAB_SIZE = 5


def array(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def generator():
    return np.random.default_rng(0)


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(VOCAB_SIZE, size=shape)


def drawn(init, *sizes):
    """Parameters without a 0 or a 1 that would hide a mistake."""
    return npf.tree_map(lambda a: a + 0.1 * array(*a.shape, seed=1), init(*sizes, generator()))


def norm_params(d_model):
    return npf.LayerNormParams(1 + 0.1 * array(d_model, seed=2), 0.1 * array(d_model, seed=3))


MODEL = drawn(npf.init_transformer, VOCAB_SIZE, CONFIG)
LM_CONFIG = npf.CausalLMConfig(
    d_model=8, d_ff=12, n_heads=2, n_kv_heads=1, n_layers=1, max_length=9, tied=False
)
LM = drawn(npf.init_causal_lm, VOCAB_SIZE, LM_CONFIG)
MINILM = sentence_encoder()

# --- the arguments of a call, from the signature ---------------------------------------------------


def trees_in(tree):
    """Every NamedTuple, by its type; of several of a type the first."""
    found = {type(tree): tree} if hasattr(tree, "_fields") else {}
    for part in tree if isinstance(tree, tuple) else ():
        found = trees_in(part) | found
    return found


STATE = npf.adam_init(norm_params(3))
TREES = trees_in((MODEL, LM, MINILM, CONFIG, LM_CONFIG, STATE))
TREE = (np.ones(2), None)
NAMED = {
    "activation": "gelu", "approximate": False, "base": 100.0, "bias": True, "causal": True, "directions": 2,
    "dropout": 0.1, "dtype": np.float64, "ignore_index": -1, "label_smoothing": 0.1, "layout": "halves",
    "learning_rate": 0.1, "padding_id": 0, "rate": 0.5, "rope": True, "rope_layout": "halves", "start": 0,
    "start_id": 1, "step": 3, "stop_id": 2, "temperature": 0.8, "tile": 2, "tolerance": 1e-6, "top_k": 3,
    "top_p": 0.9, "weight_decay": 0.01, "xp": np,
    # sizes
    "B": 2, "T": 6, "T_k": 4, "T_q": 3, "d": 8, "d_ff": 12, "d_model": 8, "k": 2, "max_length": 4,
    "max_new_tokens": 3, "n": 3, "n_heads": 2, "n_merges": 3, "r": 4, "vocab_size": VOCAB_SIZE,
    # trees, texts, functions
    "tree": TREE[:1], "trees": (TREE[:1],), "arrays": TREE[:1], "params": norm_params(3),
    "grads": norm_params(3), "like": (np.ones(2),), "text": "low lower", "sentence": "Dog bites man.",
    "sentences": [["dog", "bites"], ["dog"]], "special": ["<pad>"], "texts": ["dog", "bites", ""],
    "vocabulary": VOCABULARY, "tokenizer": Letters(), "f": lambda x: x * x[..., :1, :],
    "forward": npf.relu_forward, "backward": npf.relu_backward, "args": (array(3),), "kwargs": {},
    "model_file": folder("llama2c") / "model.bin", "tokenizer_file": folder("llama2c") / "tokenizer.bin",
}  # fmt: skip
ARRAY = re.compile(r"(Float|Ids|Mask|Bias|Numbers)\[Array, '([^']*)'")
SIGNATURE = cache(inspect.signature)


def arguments(name, lead=(2,), T=6, S=7, rng=generator, seed=0):
    """Of the function of this name: `lead` leading axes, T positions (queries), S keys of another text."""
    body, made = inspect.unwrap(getattr(npf, name)), {}
    for i, parameter in enumerate(SIGNATURE(body).parameters.values()):
        annotation = body.__annotations__[parameter.name]
        if found := ARRAY.match(str(annotation)):
            kind, shape = found[1], shape_of(found[2], lead, T, S)
            made[parameter.name] = KINDS[kind](shape, seed + i, len(lead))
        elif str(annotation).startswith("Rng"):
            made[parameter.name] = rng and rng()
        elif annotation in TREES:
            made[parameter.name] = TREES[annotation]
        else:
            made[parameter.name] = NAMED.get(parameter.name, parameter.default)
    return made | OWN.get(name, dict)()


def shape_of(letters, lead, T, S):
    """Leading axes and a position where no letter is one: (..., d_model) is (2, 6, 8)."""
    lengths = {"T": T, "T_q": T, "S": S, "T_k": S, "d": 8, "d_model": 8, "d_in": 4, "d_out": 5, "d_k": 4}
    lengths |= {"d_v": 3, "d_ff": 12, "h": 2, "vocab_size": VOCAB_SIZE}
    words = letters.split()
    if "..." not in words:
        return tuple(lengths[word] for word in words)
    positions = () if {"T", "T_q", "T_k", "S"} & {*words} else (T,)
    return (*lead, *positions, *(lengths[word] for word in words[1:]))


KINDS = {  # an array of this kind
    "Float": lambda shape, seed, lead: array(*shape, seed=seed),
    "Ids": lambda shape, seed, lead: ids(*shape, seed=seed),
    "Mask": lambda shape, seed, lead: np.random.default_rng(seed).random(shape) < 0.7,
    "Bias": lambda shape, seed, lead: array(*shape[lead:], seed=seed),  # the same for all of a batch
    "Numbers": lambda shape, seed, lead: np.arange(*shape),
}


def saved(save, file):
    """A function that reads a file gets one that was written."""
    save(file, (np.ones(2),))
    return {"path": file}


OWN = {  # what a signature and the names in it do not tell
    "generate": lambda: {"ids": 1 + ids(2, 4) % 4},
    "load_gguf": lambda: {"path": folder("gguf") / "model.gguf", "dtype": np.float32},
    "load_llama": lambda: {"path": folder("llama"), "dtype": np.float32},
    "load_minilm": lambda: {"path": folder("minilm")},
    "causal_lm_from_torch": lambda: {"state": npf.causal_lm_to_torch(LM, LM_CONFIG)},
    "encoder_block_from_torch": lambda: {"state": npf.encoder_block_to_torch(MODEL.encoder.blocks[0])},
    "gradcheck": lambda: {"rng": generator()},
    "assert_gradients": lambda: {"rng": generator()},
    "decode": lambda: {"ids": np.array([[1, 2]])},
    "tree_map": lambda: {"f": np.add},
    "to_backend": lambda: {"tree": TREE, "backend": "numpy"},
    "to_numpy": lambda: {"tree": TREE},
    "table_1": lambda: {"n": 10},
    "minilm_input": lambda: {"config": ENCODER},
    "sentence_embeddings": lambda: {"config": ENCODER},
    "save": lambda: {"path": "written.npz"},
    "load": lambda: saved(npf.save, "saved.npz"),
    "save_safetensors": lambda: {"path": "written.safetensors"},
    "load_safetensors": lambda: saved(npf.save_safetensors, "saved.safetensors"),
}

# --- forward and backward ---------------------------------------------------------------------------

FORWARD = {name: partial(arguments, name) for name in npf.__all__ if name.endswith("_forward")}


@cache
def differentiated(forward):
    """The arguments whose gradients the backward returns, in its order: arrays and parameters."""
    annotations = inspect.unwrap(getattr(npf, forward)).__annotations__.items()
    return [n for n, a in annotations if n != "return" and (str(a).startswith("Float") or n == "params")]


def backward(forward, dy, cache):
    """The backward's gradients by the name of the argument that they belong to."""
    gradients, names = getattr(npf, backward_of(forward))(dy, cache), differentiated(forward)
    return dict(zip(names, gradients if len(names) > 1 else (gradients,), strict=True))


def backward_of(forward):
    return forward.replace("_forward", "_backward")


def backward_call(forward):
    """The arguments of the backward: a random gradient in the output's shape, and the forward's cache."""
    y, cache = call(forward, FORWARD[forward]())
    first, _ = inspect.signature(getattr(npf, backward_of(forward))).parameters
    return {first: array(*y.shape, seed=4), "cache": cache}


BACKWARD = {backward_of(forward): partial(backward_call, forward) for forward in FORWARD}
SIZED = tuple(name for name in FORWARD if name != "cross_entropy_forward")  # which is a mean over the batch


def sized(name, lead, T, S, rng=None, seed=0):
    """Arguments of a forward in these sizes, and the shape that its output must have."""
    returns = inspect.unwrap(getattr(npf, name)).__annotations__["return"]
    shape = shape_of(ARRAY.search(str(returns))[2], lead, T, S)
    return arguments(name, lead, T, S, rng, seed), shape


# --- every public function ---------------------------------------------------------------------------

UNREADABLE = (
    {"load_llama", "load_minilm", "load_safetensors", "save_safetensors"}
    if find_spec("safetensors") is None
    else set()
)  # without the extra
ELSEWHERE = {"checked", "play", "compare"}  # tested in teaching
CALLS = (
    FORWARD
    | BACKWARD
    | {
        name: partial(arguments, name)
        for name in npf.__all__
        if name.islower()
        and callable(getattr(npf, name))
        and name not in {*FORWARD, *BACKWARD, *ELSEWHERE, *UNREADABLE}
    }
)


def call(name, arguments):
    """Call the function with its arguments by position where it takes them so, by name otherwise."""
    function = getattr(npf, name)
    bound = inspect.BoundArguments(SIGNATURE(inspect.unwrap(function)), arguments)
    result = function(*bound.args, **bound.kwargs)
    return list(result) if inspect.isgenerator(result) else result


def replaced(tree, path, change):
    """The arguments (or a tree) with change(value) for the value at the path, such as params.ffn.W_1."""
    head, _, rest = path.partition(".")
    if not path:
        return change(tree)
    if isinstance(tree, dict):
        return tree | {head: replaced(tree[head], rest, change)}
    if hasattr(tree, "_fields"):
        return tree._replace(**{head: replaced(getattr(tree, head), rest, change)})
    here = int(head)
    return (*tree[:here], replaced(tree[here], rest, change), *tree[here + 1 :])


def with_arrays(tree, change):
    """The arguments with change(array) for every array in them, however deep."""
    return ends_mapped(lambda a: change(a) if isinstance(a, np.ndarray) else a, tree)


def arrays_in(tree):
    return [a for _, a in ends("", tree) if isinstance(a, np.ndarray)]


def like(tree, dtype):
    """The same arguments in another precision; ids and masks stay what they are."""
    return with_arrays(tree, lambda a: a.astype(dtype) if a.dtype.kind == "f" else a)


INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def all_zero(tree):
    return not any(a.any() for a in arrays_in(tree))


def all_finite(tree):
    return all(np.isfinite(a).all() for a in arrays_in(tree))


def shapes(tree):
    return [(path, a.shape, a.dtype) for path, a in npf.leaves(tree)]


def fingerprint(tree):
    """Equal for two values when nothing in them differs: kinds, shapes, bytes, a generator's state."""
    return [(path, type(end), state_of(end)) for path, end in ends("", tree)]


def state_of(end):
    if isinstance(end, np.ndarray):
        return end.shape, end.dtype, end.tobytes()
    if isinstance(end, np.random.Generator):
        return repr(end.bit_generator.state)
    return end if isinstance(end, int) else repr(end)


# --- places: every argument, and every field of the parameters and the config in it -------------------

CHECKED = [name for name in CALLS if getattr(npf, name).__code__ is npf.linear_forward.__code__]  # the door's


class Place(NamedTuple):
    function: str
    path: str  # params.attention.W_Q
    text: str  # of its annotation: Float[Array, 'd_model d_model']
    value: Any  # what stands there in the valid call

    def __str__(self):
        return f"{self.function}-{self.path}"

    @property
    def kind(self):
        return "dtype" if ", dtype" in self.text else re.match(r"[\w.]*", self.text)[0]

    @property
    def letters(self):
        """["...", "T", "d_model"], where the annotation says so."""
        found = re.match(r"\w+\[Array, '([^']*)'", self.text)
        return found[1].split() if found else []

    @property
    def optional(self):
        return "None" in self.text

    @property
    def related(self):
        """Whether more is asked than a kind, a shape and bounds: of the rest test_bad_input has a table."""
        of_config = self.path.startswith("config.") and self.kind != "float"
        related = re.search(r", (?![<>]=? \d|[\d'.]|dtype|finite|an integer)", self.text)
        return bool(related) or of_config or str(self) in RELATED


RELATED = {"order_sensitivity-x", "generate-ids", "generate-rng", "dead_units-hidden"}


@cache
def places(function):
    """Every argument of a function and every field of the parameters and the config in them."""
    asked, values = read_signature(inspect.unwrap(getattr(npf, function))).rules, CALLS[function]()
    found = {}
    for path, rule, value in (place for name, whole in asked for place in walk(name, whole, values[name])):
        text = str(rule).replace("typing.", "") + " | None" * str(rule).startswith("typing.Optional")
        text = re.sub(r"^(Optional\[|Annotated\[)*", "", text)
        found.setdefault(path, Place(function, path, text, value))
    return list(found.values())


def first_of_their_kind(every):
    """The names of those whose rule no place before had: params.W_Q of attention, not of every model."""
    seen = {}
    for place in every:
        inside, _, name = place.path.rpartition(".")
        seen.setdefault((bool(inside), name.strip("01"), place.text), str(place))
    return set(seen.values())


def variants(function):
    """The valid call with each other setting: (what, arguments) for None, every word and every flag."""
    for place in places(function):
        if BOUND.search(str(place)) or place.path.count(".") > place.path.startswith("config."):
            continue
        others = [None] * (place.optional and place.value is not None)
        others += re.findall(r"'(\w+)'", place.text) * (place.kind == "Literal")
        others += [place.value is False] * (place.kind == "bool")
        for other in others:
            yield f"{place.path}={other}", replaced(CALLS[function](), place.path, lambda _, x=other: x)


# what parameters or other settings decide
BOUND = re.compile(r"config\.tied|generate-rng|(transformer|greedy|minilm|sentence).*config\.positions")
