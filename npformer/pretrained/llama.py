"""Load and convert models of the Llama architecture with the array names of GGUF or Hugging Face."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.attention import AttentionParams
from npformer.modern.causal_lm import CausalBlockParams, CausalLMConfig, CausalLMParams
from npformer.positional import llama3_frequencies
from npformer.pretrained.named_arrays import (
    build_config,
    build_name_tree,
    build_tree,
    check_dtypes,
    check_is_dict,
    check_settings,
    export_arrays,
    get_sizes,
    read_json,
    require_file,
)
from npformer.pretrained.safetensors_files import read_arrays
from npformer.tree import as_path, tree_map
from npformer.validation.annotations import Count, DType, Float, Positive
from npformer.validation.call import Call, Phase
from npformer.validation.rules import EVEN, rule

if TYPE_CHECKING:
    from pathlib import Path


@rule("divides d_q", Phase.IDS)
def WIDTH_OF_HEADS(d_k: Any, name: str, call: Call) -> None:
    """Check that the columns can be split into heads of d_k columns."""
    d_q = call.sizes["d_q"]
    if d_q % d_k:
        raise call.value_error(f"{name} is {d_k}; expected a divisor of the {d_q} columns")


@rule("at most d_k", Phase.RELATIONS)
def AT_MOST_D_K(n_rotated: Any, name: str, call: Call) -> None:
    """Check that RoPE rotates at most all columns of a head."""
    d_k = call.arguments["d_k"]
    if n_rotated > d_k:
        raise call.value_error(f"{name} is {n_rotated}; expected at most d_k={d_k}")


HeadWidth = Annotated[Count, EVEN, WIDTH_OF_HEADS]
RotatedWidth = Annotated[Count, EVEN, AT_MOST_D_K]

# For each path in CausalLMParams: the name of the array in the file. {} stands for the block number.
GGUF_NAMES = {
    "embedding.E": "token_embd.weight",
    "blocks.{}.attention.W_Q": "blk.{}.attn_q.weight",
    "blocks.{}.attention.W_K": "blk.{}.attn_k.weight",
    "blocks.{}.attention.W_V": "blk.{}.attn_v.weight",
    "blocks.{}.attention.W_O": "blk.{}.attn_output.weight",
    "blocks.{}.norm_1.gamma": "blk.{}.attn_norm.weight",
    "blocks.{}.ffn.W_gate": "blk.{}.ffn_gate.weight",
    "blocks.{}.ffn.W_up": "blk.{}.ffn_up.weight",
    "blocks.{}.ffn.W_down": "blk.{}.ffn_down.weight",
    "blocks.{}.norm_2.gamma": "blk.{}.ffn_norm.weight",
    "norm.gamma": "output_norm.weight",
    "head": "output.weight",
}
HUGGING_FACE_NAMES = {
    "embedding.E": "model.embed_tokens.weight",
    "blocks.{}.attention.W_Q": "model.layers.{}.self_attn.q_proj.weight",
    "blocks.{}.attention.W_K": "model.layers.{}.self_attn.k_proj.weight",
    "blocks.{}.attention.W_V": "model.layers.{}.self_attn.v_proj.weight",
    "blocks.{}.attention.W_O": "model.layers.{}.self_attn.o_proj.weight",
    "blocks.{}.norm_1.gamma": "model.layers.{}.input_layernorm.weight",
    "blocks.{}.ffn.W_gate": "model.layers.{}.mlp.gate_proj.weight",
    "blocks.{}.ffn.W_up": "model.layers.{}.mlp.up_proj.weight",
    "blocks.{}.ffn.W_down": "model.layers.{}.mlp.down_proj.weight",
    "blocks.{}.norm_2.gamma": "model.layers.{}.post_attention_layernorm.weight",
    "norm.gamma": "model.norm.weight",
    "head": "lm_head.weight",
}
HUGGING_FACE_BIASES = {  # a model may have some of these biases, or none
    "blocks.{}.attention.b_Q": "model.layers.{}.self_attn.q_proj.bias",
    "blocks.{}.attention.b_K": "model.layers.{}.self_attn.k_proj.bias",
    "blocks.{}.attention.b_V": "model.layers.{}.self_attn.v_proj.bias",
    "blocks.{}.attention.b_O": "model.layers.{}.self_attn.o_proj.bias",
}


def build_causal_lm_names(
    names: Mapping[str, str], config: CausalLMConfig, most_blocks: int
) -> CausalLMParams:
    """Build the name tree of a causal model.

    A damaged config may claim billions of blocks. The tree never has more than `most_blocks` of them.
    """
    tree = build_name_tree(CausalLMParams, names, min(config.n_layers, most_blocks))
    return tree._replace(head=None) if config.tied else tree


def load_llama(path: Any, *, dtype: DType = np.float32) -> tuple[CausalLMParams, CausalLMConfig]:
    """Load a model of the Llama architecture from a folder in the format of Hugging Face.

    Reads config.json and every .safetensors file of the folder. Nothing in the files is executed. Only the
    model types llama and mistral are accepted, because other types use the same names for other equations.

    Parameters
    ----------
    path : str or path
        The folder.
    dtype : float dtype
        The dtype of the returned arrays.

    Returns
    -------
    params : CausalLMParams
        Each weight matrix is transposed to (d_in, d_out).
    config : CausalLMConfig

    Raises
    ------
    ImportError
        If the package safetensors is not installed.
    FileNotFoundError
        If a file is missing.
    ValueError
        If a file is damaged, if a tensor is missing, unknown or of the wrong shape, or if config.json has a
        setting that this package does not support (sliding-window attention, biases, a scaled RoPE other
        than that of Llama 3.1). The message names the tensor or the setting.

    Examples
    --------
    >>> load_llama("no/such/folder")
    Traceback (most recent call last):
        ...
    FileNotFoundError: load_llama: there is no file no/such/folder/config.json
    """
    folder = as_path("load_llama", "path", path)
    config = _read_config(require_file("load_llama", "path", folder / "config.json"))
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        files = [require_file("load_llama", "path", folder / "model.safetensors")]
    arrays: dict[str, Array] = {}
    for file in files:
        arrays.update(read_arrays("load_llama", file))
    arrays = _drop_tied_head("load_llama", folder, arrays, config)
    names = build_causal_lm_names(HUGGING_FACE_NAMES, config, most_blocks=len(arrays))
    read = arrays.__getitem__  # with `read`, build_tree also checks that all numbers are finite
    params = build_tree("load_llama", folder, names, arrays, get_sizes(config), read)
    return tree_map(lambda a: a.astype(dtype, copy=False), params), config


CONFIG_FIELDS = {  # the field of CausalLMConfig for each setting in config.json
    "hidden_size": "d_model",
    "intermediate_size": "d_ff",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "rms_norm_eps": "eps",
    "rope_theta": "base",
    "max_position_embeddings": "max_length",
    "tie_word_embeddings": "tied",
}
SUPPORTED_SETTINGS = {  # the only value that each setting may have; None: the setting must be absent
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "partial_rotary_factor": 1.0,
    "rope_type": "default",
    "rope_scaling": None,
    "sliding_window": None,
}


DEFAULTS = {  # the settings that a config.json may leave out, by model_type
    "llama": {"rope_theta": 10000.0, "tie_word_embeddings": False},
    "mistral": {
        "rope_theta": 10000.0, "tie_word_embeddings": False, "sliding_window": 4096, "num_key_value_heads": 8,
    },
}  # fmt: skip


LLAMA_3_FIELDS = {  # the argument of `llama3_frequencies` for each setting in config.json
    "factor": "factor",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "original_max_position_embeddings": "original_max_length",
}


class Llama3Config(NamedTuple):
    """The settings of RoPE in Llama 3.1, as arguments of ``llama3_frequencies``."""

    factor: Positive
    low_freq_factor: Positive
    high_freq_factor: Positive
    original_max_length: Count


def _read_config(file: "Path") -> CausalLMConfig:
    """Read config.json as a CausalLMConfig. Raises ValueError for a setting that is not supported."""
    settings = _read_settings(file)
    config = build_config("load_llama", file, settings, CONFIG_FIELDS, CausalLMConfig, rope_layout="halves")
    d_k = config.d_model // config.n_heads
    if settings.get("rope_type") == "llama3":
        settings["rope_type"] = "default"
        scaling = build_config("load_llama", file, settings, LLAMA_3_FIELDS, Llama3Config)
        frequencies = llama3_frequencies(d_k, base=config.base, **scaling._asdict())
        config = config._replace(frequencies=tuple(frequencies.tolist()))
    window = settings.get("sliding_window")
    if isinstance(window, int) and window >= config.max_length:  # the window covers every text
        del settings["sliding_window"]
    check_settings("load_llama", file, settings, SUPPORTED_SETTINGS | {"head_dim": d_k})
    return config


def _read_settings(file: "Path") -> dict[str, Any]:
    """Read config.json, with the defaults of its model_type. Settings that are null are left out."""
    settings: dict[str, Any] = read_json("load_llama", file)
    model_type = settings.get("model_type")
    if model_type not in list(DEFAULTS):  # in a damaged file, it may be a list
        raise ValueError(
            f"load_llama: {file} has model_type {model_type!r}; expected llama or mistral. For many other "
            "models, the guide page ports.md shows the whole forward pass"
        )
    settings = DEFAULTS[model_type] | settings
    if isinstance(settings.get("rope_scaling"), dict):
        settings |= settings.pop("rope_scaling")
        settings.setdefault("rope_type", settings.get("type", "not given"))  # older files say "type"
    settings |= settings.get("rope_parameters") or {}  # transformers 5 stores the settings of RoPE here
    settings = {name: value for name, value in settings.items() if value is not None}
    return {"num_key_value_heads": settings.get("num_attention_heads")} | settings


def causal_lm_from_torch(state: Mapping[str, Array], config: CausalLMConfig) -> CausalLMParams:
    """Convert the arrays of a Llama model under Hugging Face's names to the parameters of a causal model.

    PyTorch stores a weight as (d_out, d_in), so each weight is transposed, as a view. Hugging Face's models
    rotate the columns i and i + d_k/2. With config.rope_layout="interleaved", the columns of W_Q and W_K are
    reordered, so that the model gives the same logits. `load_safetensors(file)` returns a dict that can be
    used as `state`.

    Parameters
    ----------
    state : dict of str to float array
        The arrays under the names of Hugging Face. A tied model may also have its head, which must be equal
        to the embedding.
    config : CausalLMConfig

    Returns
    -------
    params : CausalLMParams
        Views of the arrays, except arrays with reordered columns.

    Raises
    ------
    TypeError
        If the values are not arrays of one float dtype.
    ValueError
        If a name is missing or unknown, or if a shape does not fit. Biases are known in attention only. The
        names of query norms are unknown, because `CausalLMParams` does not have such arrays.

    Examples
    --------
    >>> from npformer import CausalLMConfig, init_causal_lm
    >>> import numpy as np
    >>> config = CausalLMConfig(d_model=8, d_ff=5, n_heads=2, n_kv_heads=1, n_layers=1)
    >>> state = causal_lm_to_torch(init_causal_lm(10, config, np.random.default_rng(0)), config)
    >>> causal_lm_from_torch(state, config).blocks[0].ffn.W_gate.shape
    (8, 5)
    """
    function = "causal_lm_from_torch"
    check_is_dict(function, state)
    check_dtypes(function, state)
    arrays = _drop_tied_head(function, "state", state, config)
    names = _build_names_with_biases(config, most_blocks=len(arrays))
    blocks = tuple(
        _keep_biases(block, [name in arrays for name in block.attention]) for block in names.blocks
    )
    params = build_tree(function, "state", names._replace(blocks=blocks), arrays, get_sizes(config))
    return _reorder_columns(params, config, halves_to_interleaved)


def causal_lm_to_torch(params: CausalLMParams, config: CausalLMConfig) -> dict[str, Array]:
    """Convert the parameters of a causal model to arrays under the names of Hugging Face's files.

    Undoes `causal_lm_from_torch`. In an interleaved model, the columns of W_Q and W_K are reordered to
    halves, because Hugging Face's models rotate the columns i and i + d_k/2.

    Parameters
    ----------
    params : CausalLMParams
    config : CausalLMConfig

    Returns
    -------
    state : dict of str to float array
        Copies of the arrays under the names and in the shapes of Hugging Face's files. As in these files, a
        tied model has no `lm_head.weight`: use load_state_dict with strict=False, and then tie_weights.

    Examples
    --------
    >>> from npformer import CausalLMConfig, init_causal_lm
    >>> import numpy as np
    >>> config = CausalLMConfig(d_model=8, d_ff=5, n_heads=2, n_kv_heads=1, n_layers=1)
    >>> params = init_causal_lm(10, config, np.random.default_rng(0))
    >>> causal_lm_to_torch(params, config)["model.layers.0.self_attn.k_proj.weight"].shape
    (4, 8)
    """
    names = _build_names_with_biases(config, most_blocks=len(params.blocks))
    blocks = []
    for block_names, block in zip(names.blocks, params.blocks, strict=True):
        blocks.append(_keep_biases(block_names, [part is not None for part in block.attention]))
    params = _reorder_columns(params, config, interleaved_to_halves)
    return export_arrays(names._replace(blocks=tuple(blocks)), params)


# --- names that a model may lack --------------------------------------------------------------------


def _build_names_with_biases(config: CausalLMConfig, most_blocks: int) -> CausalLMParams:
    """Build the name tree of a model in which every projection of attention has a bias."""
    return build_causal_lm_names(HUGGING_FACE_NAMES | HUGGING_FACE_BIASES, config, most_blocks)


def _keep_biases(block: CausalBlockParams, is_present: list[bool]) -> CausalBlockParams:
    """Replace the names of absent biases by None. `is_present` has one entry for each array of attention."""
    names: list[Any] = []
    for field, name, keep in zip(AttentionParams._fields, block.attention, is_present, strict=True):
        is_absent_bias = field.startswith("b_") and not keep
        names.append(None if is_absent_bias else name)
    return block._replace(attention=AttentionParams(*names))


def _drop_tied_head(
    function: str, where: Any, arrays: Mapping[str, Array], config: CausalLMConfig
) -> dict[str, Array]:
    """Return the arrays without the head of a tied model. Raises ValueError if the head is not the embedding.

    PyTorch's state_dict lists a tied matrix under both names.
    """
    arrays = dict(arrays)
    embedding_name, head_name = HUGGING_FACE_NAMES["embedding.E"], HUGGING_FACE_NAMES["head"]
    if config.tied and head_name in arrays and embedding_name in arrays:
        head, embedding = arrays.pop(head_name), arrays[embedding_name]
        is_same = head.shape == embedding.shape and bool((head == embedding).all())
        if not is_same:
            problem = f"{head_name} differs from {embedding_name}; expected the same array with tied=True"
            raise ValueError(f"{function}: {where} has a head of its own: {problem}")
    return arrays


# --- the layouts of RoPE ----------------------------------------------------------------------------


def _reorder_columns(
    params: CausalLMParams, config: CausalLMConfig, reorder: Callable[..., Array]
) -> CausalLMParams:
    """Apply `reorder` to W_Q, W_K and their biases in an interleaved model. Leave other models unchanged."""
    if config.rope_layout == "halves":
        return params
    d_k = config.d_model // config.n_heads
    n_rotated = count_rotated_columns(config)
    blocks = []
    for block in params.blocks:
        attention = block.attention
        reordered: dict[str, Any] = {}
        for field in ("W_Q", "W_K", "b_Q", "b_K"):
            array = getattr(attention, field)
            reordered[field] = None if array is None else reorder(array, d_k, n_rotated=n_rotated)
        blocks.append(block._replace(attention=attention._replace(**reordered)))
    return params._replace(blocks=tuple(blocks))


def count_rotated_columns(config: CausalLMConfig) -> int:
    """Return how many columns of each head RoPE rotates: two for each frequency, or all."""
    if config.frequencies is None:
        return config.d_model // config.n_heads
    return 2 * len(config.frequencies)


def interleaved_to_halves(
    W: Float[Array, "... d_q"], d_k: HeadWidth, *, n_rotated: RotatedWidth | None = None
) -> Float[Array, "... d_q"]:
    """Move the columns 2i and 2i + 1 of each head to the columns i and i + n_rotated/2.

    A model whose RoPE rotates neighbouring columns gives the same logits with the layout "halves" after W_Q,
    W_K and their biases were reordered like this. If RoPE rotates only the first n_rotated columns of each
    head, the other columns stay where they are.

    Parameters
    ----------
    W : float array (..., d_q)
        W_Q, W_K, b_Q or b_K, with any number of heads.
    d_k : int
        The number of columns of each head. It is even.
    n_rotated : int, optional
        The number of columns of each head that RoPE rotates. It is even, and d_k by default.

    Returns
    -------
    reordered : float array (..., d_q)

    Examples
    --------
    >>> interleaved_to_halves(np.arange(8.0), 4)
    array([0., 2., 1., 3., 4., 6., 5., 7.])
    >>> interleaved_to_halves(np.arange(6.0), 6, n_rotated=4)
    array([0., 2., 1., 3., 4., 5.])
    """
    n_rotated = n_rotated or d_k
    return _reorder_rotated(W, d_k, n_rotated, (n_rotated // 2, 2))


def halves_to_interleaved(
    W: Float[Array, "... d_q"], d_k: HeadWidth, *, n_rotated: RotatedWidth | None = None
) -> Float[Array, "... d_q"]:
    """Move the columns i and i + n_rotated/2 of each head to the columns 2i and 2i + 1.

    This is the inverse of ``interleaved_to_halves``.

    Parameters
    ----------
    W : float array (..., d_q)
        W_Q, W_K, b_Q or b_K, with any number of heads.
    d_k : int
        The number of columns of each head. It is even.
    n_rotated : int, optional
        The number of columns of each head that RoPE rotates. It is even, and d_k by default.

    Returns
    -------
    reordered : float array (..., d_q)

    Examples
    --------
    >>> halves_to_interleaved(np.arange(8.0), 4)
    array([0., 2., 1., 3., 4., 6., 5., 7.])
    """
    n_rotated = n_rotated or d_k
    return _reorder_rotated(W, d_k, n_rotated, (2, n_rotated // 2))


def _reorder_rotated(W: Array, d_k: int, n_rotated: int, shape: tuple[int, int]) -> Array:
    """Give the rotated columns of each head this shape, exchange its axes, and keep the other columns."""
    heads = W.reshape(*W.shape[:-1], W.shape[-1] // d_k, d_k)  # (..., heads, d_k)
    rotated, others = heads[..., :n_rotated], heads[..., n_rotated:]
    exchanged = rotated.reshape(*rotated.shape[:-1], *shape).swapaxes(-1, -2)
    joined = array_module(W).concatenate([exchanged.reshape(rotated.shape), others], axis=-1)
    return joined.reshape(W.shape)
