"""Make a valid call of every public function from its signature. Tests change one place in such a call.

`CALLS[name]()` makes fresh arguments, and `call(name, arguments)` calls the npformer function of that name.
`places(name)` are the arguments of a function, and every field of the parameters and the config in them.

What to add for a new public function
-------------------------------------
For most functions you add nothing, because the signature determines their arguments. If a line is missing, a
test fails and names this line. These are the cases; the names are in this file unless another file is given:

- An array has a new dimension name: add a length to LENGTHS. Different names have different lengths, so
  that a wrong name in an annotation makes a test fail.
- An argument has no default, or its default hides mistakes: add a valid value under the argument's name to
  VALUES_BY_NAME.
- The value under that name is wrong for this one function: add a line to VALUES_OF_FUNCTION.
- The function has parameters of a new type: add an example of this type to EXAMPLES.
- The annotation of an argument says nothing about valid values (such as Any or str): add the argument to
  UNCHECKED_PLACES in test_bad_input.py, and its wrong values to RELATIONS there.
- The function does not validate its arguments by its signature: add the odd values that it accepts to
  ACCEPTED_ODD_VALUES in test_bad_input.py.

A loss needs no line. Its output is one number without leading axes, so the tests of sizes and batches leave
it out. Its upstream gradient must have the annotation DLoss and the name dloss: test_bad_input.py tests it.
"""

import inspect
import re
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from small_models import ENCODER, LetterTokenizer, get_model_folder, make_sentence_encoder

import npformer as npf
from npformer.tree import iter_nested_leaves, map_nested_leaves
from npformer.validation.annotation_reader import read_signature
from npformer.validation.call import walk

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
    """Return random parameters. No entry is 0 or 1, because such entries could hide a mistake."""
    return npf.tree_map(lambda a: a + 0.1 * array(*a.shape, seed=1), init(*sizes, generator()))


def norm_params(d_model):
    return npf.LayerNormParams(1 + 0.1 * array(d_model, seed=2), 0.1 * array(d_model, seed=3))


MODEL = drawn(npf.init_transformer, VOCAB_SIZE, CONFIG)
LM_CONFIG = npf.CausalLMConfig(
    d_model=8, d_ff=12, n_heads=2, n_kv_heads=1, n_layers=1, max_length=9, tied=False
)
LM = drawn(npf.init_causal_lm, VOCAB_SIZE, LM_CONFIG)
LORA = npf.LoRAParams(array(4, 3, seed=1), array(3, 5, seed=2))
LATENT = drawn(partial(npf.init_latent_attention, n_heads=2, d_k=5, d_c=3, d_R=6), 8)
LATENT = LATENT._replace(W_UV=array(3, 14, seed=5), W_O=array(14, 8, seed=6))  # d_v = 7 is not d_k
MINILM = make_sentence_encoder()

# --- the values of arguments ------------------------------------------------------------------------

# Examples of parameters, configs and states. An argument with a NamedTuple type gets the first example of
# this type. The example may be a part of a larger one, such as a block of MODEL.
EXAMPLES = (MODEL, LM, LATENT, LORA, MINILM, CONFIG, LM_CONFIG, npf.adam_init(norm_params(3)))

# The lengths of all dimensions except sequences (T, T_q, S, T_k).
LENGTHS = {
    "G": 4, "r": 3, "d_q": 20, "pairs": 2,
    "d": CONFIG.d_model, "d_model": CONFIG.d_model, "d_in": 4, "d_out": 5, "d_k": 4, "d_v": 3,
    "d_ff": CONFIG.d_ff, "h": CONFIG.n_heads, "vocab_size": VOCAB_SIZE,
}  # fmt: skip

TREE = (np.ones(2), None)

# {name: value} for arguments that are no arrays and have no type from EXAMPLES. An argument without an entry
# keeps its default.
VALUES_BY_NAME = {
    # settings, most of them different from the default
    "activation": "gelu", "alpha": 6.0, "approximate": False, "base": 100.0, "beta": 0.3, "bias": True,
    "causal": True, "directions": 2, "epsilon": 0.3, "normalize": False,
    "factor": 4.0, "original_max_length": 100, "scale": 0.7, "soft_cap": 2.0,
    "dropout": 0.1, "dtype": np.float64, "ignore_index": -1, "label_smoothing": 0.1, "layout": "halves",
    "learning_rate": 0.1, "padding_id": 0, "rate": 0.5, "rope": True, "rope_layout": "halves", "start": 0,
    "start_id": 1, "step": 3, "stop_id": 2, "temperature": 0.8, "tile": 2, "tolerance": 1e-6, "top_k": 3,
    "top_p": 0.9, "weight_decay": 0.01, "xp": np,
    # sizes
    "B": 2, "T": 6, "d_in": 4, "d_out": 5, "n_prompt": 2,
    "T_k": 4, "T_q": 3, "d": CONFIG.d_model, "d_R": 6, "d_c": 3, "d_ff": CONFIG.d_ff,
    "d_k": 5, "d_model": CONFIG.d_model, "k": 2, "max_length": 4, "max_new_tokens": 3, "n": 3,
    "n_heads": CONFIG.n_heads, "n_merges": 3, "r": 4, "vocab_size": VOCAB_SIZE,
    # trees, texts, functions
    "tree": TREE[:1], "trees": (TREE[:1],), "arrays": TREE[:1], "params": norm_params(3),
    "grads": norm_params(3), "like": (np.ones(2),), "text": "low lower", "sentence": "Dog bites man.",
    "sentences": [["dog", "bites"], ["dog"]], "special": ["<pad>"], "texts": ["dog", "bites", ""],
    "vocabulary": VOCABULARY, "tokenizer": LetterTokenizer(), "f": lambda x: x * x[..., :1, :],
    "forward": npf.relu_forward, "backward": npf.relu_backward, "args": (array(3),), "kwargs": {},
    "model_file": get_model_folder("llama2c") / "model.bin",
    "tokenizer_file": get_model_folder("llama2c") / "tokenizer.bin",
}  # fmt: skip


def path_of_saved_file(save, file):
    """Write a file with `save`. Return the arguments of the function that reads the file."""
    save(file, (np.ones(2),))
    return {"path": file}


# Arguments that are valid only for one function. They replace the arguments from the other tables.
VALUES_OF_FUNCTION = {
    "halves_to_interleaved": lambda: {"d_k": 2, "n_rotated": 2},
    "init_lora": lambda: {"r": 3},
    "interleaved_to_halves": lambda: {"d_k": 2, "n_rotated": 2},
    "generate": lambda: {"ids": 1 + ids(2, 4) % 4},  # no padding, and short enough for new tokens
    "load_gguf": lambda: {"path": get_model_folder("gguf") / "model.gguf", "dtype": np.float32},
    "load_llama": lambda: {"path": get_model_folder("llama"), "dtype": np.float32},
    "load_minilm": lambda: {"path": get_model_folder("minilm")},
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
    "load": lambda: path_of_saved_file(npf.save, "saved.npz"),
    "save_safetensors": lambda: {"path": "written.safetensors"},
    "load_safetensors": lambda: path_of_saved_file(npf.save_safetensors, "saved.safetensors"),
}

# --- the arguments of a call, from the signature ------------------------------------------------------


def trees_in(tree):
    """Return {type: NamedTuple} for a tree, with the first NamedTuple of each type."""
    found = {type(tree): tree} if hasattr(tree, "_fields") else {}
    for part in tree if isinstance(tree, tuple) else ():
        found = trees_in(part) | found
    return found


TREES = trees_in(EXAMPLES)
ARRAY = re.compile(r"(Float|Ids|Mask|Counted|Bias|Constant|Numbers|RowNumbers)\[Array, '([^']*)'")
SIGNATURE = cache(inspect.signature)


def arguments(name, lead=(2,), T=6, S=7, rng=generator, seed=0):
    """Return valid arguments for the function with this name.

    The arrays have the leading axes `lead`, T positions (of queries), and S positions (of keys).
    """
    body = inspect.unwrap(getattr(npf, name))
    special_values = VALUES_OF_FUNCTION[name]() if name in VALUES_OF_FUNCTION else {}
    made = {}
    for i, parameter in enumerate(SIGNATURE(body).parameters.values()):
        annotation = body.__annotations__[parameter.name]
        array_annotation = ARRAY.match(str(annotation))
        if parameter.name in special_values:
            value = special_values[parameter.name]
        elif array_annotation:
            kind, dimensions = array_annotation.groups()
            value = array_of_kind(kind, shape_of(dimensions, lead, T, S), seed + i, len(lead))
        elif str(annotation).startswith("Rng"):
            value = rng and rng()
        elif annotation in TREES:
            value = TREES[annotation]
        else:
            value = value_by_name(name, parameter)
        made[parameter.name] = value
    return made


def value_by_name(function, parameter):
    """Return the value from VALUES_BY_NAME, or the default of the parameter."""
    if parameter.name in VALUES_BY_NAME:
        return VALUES_BY_NAME[parameter.name]
    if parameter.default is parameter.empty:
        raise LookupError(
            f"no valid value is known for the argument {parameter.name!r} of {function}: add "
            f'"{parameter.name}": <a valid value> to VALUES_BY_NAME in tests/valid_calls.py'
        )
    return parameter.default


def shape_of(dimensions, lead, T, S):
    """Return the shape of an array with these dimensions, such as (2, 6, 8) for "... d_model".

    "..." stands for `lead`, and also for T if the dimensions contain no sequence (T, T_q, T_k or S).
    """
    lengths = LENGTHS | {"T": T, "T_q": T, "S": S, "T_k": S}
    names = dimensions.split()
    unknown = [name for name in names if name != "..." and name not in lengths]
    if unknown:
        raise LookupError(
            f"no length is known for the dimension {unknown[0]!r} of {dimensions!r}: add "
            f'"{unknown[0]}": <a length> to LENGTHS in tests/valid_calls.py'
        )
    if "..." not in names:
        return tuple(lengths[name] for name in names)
    has_sequence = not {"T", "T_q", "T_k", "S"}.isdisjoint(names)
    positions = () if has_sequence else (T,)
    return (*lead, *positions, *(lengths[name] for name in names[1:]))


def array_of_kind(kind, shape, seed, n_leading):
    """Return an array for an annotation of this kind: 0, 1, 2, … for numbers, random entries otherwise."""
    if kind == "Ids":
        return ids(*shape, seed=seed)
    if kind in ("Mask", "Counted"):
        return np.random.default_rng(seed).random(shape) < 0.7
    if kind in ("Bias", "Constant"):  # without leading axes: all items of a batch share the numbers
        return array(*shape[n_leading:], seed=seed)
    if kind in ("Numbers", "RowNumbers"):
        return np.arange(np.prod(shape)).reshape(shape)
    return array(*shape, seed=seed)


# --- forward and backward ---------------------------------------------------------------------------

FORWARD = {name: partial(arguments, name) for name in npf.__all__ if name.endswith("_forward")}


@cache
def differentiated(forward):
    """Return the names of the arguments whose gradients the backward function returns, in the same order."""
    names = []
    for name, annotation in inspect.unwrap(getattr(npf, forward)).__annotations__.items():
        has_gradient = str(annotation).startswith("Float") or name == "params"
        if name != "return" and has_gradient:
            names.append(name)
    return names


def backward(forward, dy, cache):
    """Call the backward function. Return {argument of the forward function: gradient}."""
    gradients = getattr(npf, backward_of(forward))(dy, cache)
    names = differentiated(forward)
    if len(names) == 1:
        gradients = (gradients,)
    return dict(zip(names, gradients, strict=True))


def backward_of(forward):
    return forward.replace("_forward", "_backward")


def backward_call(forward):
    """Return arguments of a backward function: a random upstream gradient and the cache of a forward pass."""
    y, cache = call(forward, FORWARD[forward]())
    first, _ = inspect.signature(getattr(npf, backward_of(forward))).parameters
    return {first: array(*y.shape, seed=4), "cache": cache}


def output_dimensions(forward):
    """Return the dimensions in the annotation of a forward function's output, such as "... T d_model"."""
    returns = inspect.unwrap(getattr(npf, forward)).__annotations__["return"]
    return ARRAY.search(str(returns))[2]


BACKWARD = {backward_of(forward): partial(backward_call, forward) for forward in FORWARD}

# The forward functions whose output has leading axes. A loss has none, because it is a mean over a batch.
SIZED = tuple(name for name in FORWARD if "..." in output_dimensions(name))


def sized(name, lead, T, S, rng=None, seed=0):
    """Return arguments of a forward function with these sizes, and the shape that the output must have."""
    return arguments(name, lead, T, S, rng, seed), shape_of(output_dimensions(name), lead, T, S)


# --- every public function ---------------------------------------------------------------------------

# Functions that cannot be called because the extra `pretrained` is not installed.
UNREADABLE = (
    {"load_llama", "load_minilm", "load_safetensors", "save_safetensors"}
    if find_spec("safetensors") is None
    else set()
)
ELSEWHERE = {"checked", "play", "compare"}  # test_signature.py and tests/player test these
NAMES_OF_FUNCTIONS = {name for name in npf.__all__ if name.islower() and callable(getattr(npf, name))}
OTHER_FUNCTIONS = sorted(NAMES_OF_FUNCTIONS - {*FORWARD, *BACKWARD} - ELSEWHERE - UNREADABLE)
CALLS = FORWARD | BACKWARD | {name: partial(arguments, name) for name in OTHER_FUNCTIONS}


def call(name, arguments):
    """Call the function. Pass arguments by position if the function allows this, otherwise by name."""
    function = getattr(npf, name)
    bound = inspect.BoundArguments(SIGNATURE(inspect.unwrap(function)), arguments)
    result = function(*bound.args, **bound.kwargs)
    return list(result) if inspect.isgenerator(result) else result


def replaced(tree, path, change):
    """Return arguments or a tree, with `change` applied to the value at a path such as params.ffn.W_1."""
    if not path:
        return change(tree)
    head, _, rest = path.partition(".")
    if isinstance(tree, dict):
        return tree | {head: replaced(tree[head], rest, change)}
    if hasattr(tree, "_fields"):
        return tree._replace(**{head: replaced(getattr(tree, head), rest, change)})
    i = int(head)
    return (*tree[:i], replaced(tree[i], rest, change), *tree[i + 1 :])


def with_arrays(tree, change):
    """Return arguments with `change` applied to every array at any depth."""
    return map_nested_leaves(lambda a: change(a) if isinstance(a, np.ndarray) else a, tree)


def arrays_in(tree):
    return [a for _, a in iter_nested_leaves("", tree) if isinstance(a, np.ndarray)]


def like(tree, dtype):
    """Convert all float arrays in the arguments to `dtype`. Ids and masks keep their dtype."""
    return with_arrays(tree, lambda a: a.astype(dtype) if a.dtype.kind == "f" else a)


INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


def all_zero(tree):
    return not any(a.any() for a in arrays_in(tree))


def all_finite(tree):
    return all(np.isfinite(a).all() for a in arrays_in(tree))


def shapes(tree):
    return [(path, a.shape, a.dtype) for path, a in npf.leaves(tree)]


def fingerprint(tree):
    """Return a value that is equal for two trees with equal types, shapes, bytes and generator states."""
    return [(path, type(end), state_of(end)) for path, end in iter_nested_leaves("", tree)]


def state_of(end):
    """Return the part of a fingerprint that belongs to one leaf of a tree."""
    if isinstance(end, np.ndarray):
        return end.shape, end.dtype, end.tobytes()
    if isinstance(end, np.random.Generator):
        return repr(end.bit_generator.state)
    return end if isinstance(end, int) else repr(end)


# --- places: every argument, and every field of the parameters and the config in it -------------------


def is_checked(name):
    """Return whether `checked` wraps a public function. All wrappers by `checked` share one code object."""
    return getattr(npf, name).__code__ is npf.linear_forward.__code__


CHECKED = [name for name in CALLS if is_checked(name)]


class Place(NamedTuple):
    """One argument of a function, or a field in an argument."""

    function: str
    path: str  # such as params.attention.W_Q
    text: str  # the annotation, such as Float[Array, 'd_model d_model']
    value: Any  # the value in the valid call

    def __str__(self):
        return f"{self.function}-{self.path}"

    @property
    def kind(self):
        """The annotation without its details, such as Float, Literal, int or TransformerConfig."""
        return "dtype" if ", dtype" in self.text else re.match(r"[\w.]*", self.text)[0]

    @property
    def dimension_names(self):
        """The dimension names in the annotation, such as ["...", "T", "d_model"]."""
        found = re.match(r"\w+\[Array, '([^']*)'", self.text)
        return found[1].split() if found else []

    @property
    def is_optional(self):
        return "None" in self.text

    @property
    def has_relations(self):
        """Whether npformer checks more than the kind, the shape and the bounds of this place.

        RELATIONS in test_bad_input.py has examples of further checks.
        """
        is_in_config = self.path.startswith("config.") and self.kind != "float"
        further_rule = re.search(r", (?![<>]=? \d|[\d'.]|dtype|finite|an integer)", self.text)
        return bool(further_rule) or is_in_config or str(self) in PLACES_WITH_RELATIONS


# Places with further checks that are not in their annotations.
PLACES_WITH_RELATIONS = {
    "order_sensitivity-x", "generate-ids", "generate-rng", "dead_units-hidden", "softmax_forward-scores",
}  # fmt: skip


@cache
def places(function):
    """Return every argument of a function, and every field of its parameters and of its config."""
    values = CALLS[function]()
    found = {}
    for name, rule in read_signature(inspect.unwrap(getattr(npf, function))).rules:
        for path, part_rule, value in walk(name, rule, values[name]):
            if path not in found:  # a value with several rules counts as one place
                found[path] = Place(function, path, normalized(str(part_rule)), value)
    return list(found.values())


def normalized(description):
    """Remove the names of `typing` from an annotation. A possible result is Float[Array, 'd'] | None."""
    description = description.replace("typing.", "")
    wrappers = re.match(r"(Optional\[|Annotated\[)*", description)[0]
    description = description.removeprefix(wrappers)
    return f"{description} | None" if "Optional" in wrappers else description


def first_of_their_kind(every):
    """Return the name of the first place for each combination of a field name and an annotation.

    For example, params.W_Q of attention is in the result, but W_Q in the parameters of a model is not.
    """
    first = {}
    for place in every:
        parent, _, name = place.path.rpartition(".")
        is_field = bool(parent)
        first.setdefault((is_field, name.strip("01"), place.text), str(place))
    return set(first.values())


def variants(function):
    """Yield (description, arguments) for valid calls in which one setting differs from `CALLS`.

    The settings are None, every choice of a Literal, and the opposite of a boolean.
    """
    for place in places(function):
        is_in_config = place.path.startswith("config.")
        is_nested = place.path.count(".") > (1 if is_in_config else 0)
        if FIXED_SETTINGS.search(str(place)) or is_nested:
            continue
        for other in other_settings(place):
            yield f"{place.path}={other}", replaced(CALLS[function](), place.path, lambda _, x=other: x)


def other_settings(place):
    """Return the settings that `variants` tries at one place."""
    settings = []
    if place.is_optional and place.value is not None:
        settings.append(None)
    if place.kind == "Literal":
        settings += re.findall(r"'(\w+)'", place.text)
    if place.kind == "bool":
        settings.append(place.value is False)
    return settings


# `variants` does not change these settings, because they must fit the parameters or other settings.
FIXED_SETTINGS = re.compile(
    r"config\.tied|generate-rng|(transformer|greedy|minilm|sentence).*config\.positions"
)
