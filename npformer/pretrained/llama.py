"""Load and convert models of the Llama architecture with the array names of GGUF or Hugging Face."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.arrays import Array
from npformer.modern.causal_lm import CausalLMConfig, CausalLMParams
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
from npformer.validation.annotations import DType

if TYPE_CHECKING:
    from pathlib import Path

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
    model types llama and mistral are accepted, because other types use the same names in other equations.

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
        setting that this package does not support (scaled RoPE, sliding-window attention, biases). The
        message names the tensor or the setting.

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


def _read_config(file: "Path") -> CausalLMConfig:
    """Read config.json as a CausalLMConfig. Raises ValueError for a setting that is not supported."""
    settings: dict[str, Any] = {"rope_theta": 10000.0, "tie_word_embeddings": False}
    settings |= read_json("load_llama", file)
    settings |= settings.get("rope_parameters") or {}  # transformers 5 stores the settings of RoPE here
    settings = {name: value for name, value in settings.items() if value is not None}
    model_type = settings.get("model_type")
    if model_type not in ("llama", "mistral"):
        raise ValueError(
            f"load_llama: {file} holds a model of the kind {model_type!r}; expected llama or mistral"
        )
    settings = {"num_key_value_heads": settings.get("num_attention_heads")} | settings
    config = build_config("load_llama", file, settings, CONFIG_FIELDS, CausalLMConfig, rope_layout="halves")
    supported = SUPPORTED_SETTINGS | {"head_dim": config.d_model // config.n_heads}
    check_settings("load_llama", file, settings, supported)
    return config


def causal_lm_from_torch(state: Mapping[str, Array], config: CausalLMConfig) -> CausalLMParams:
    """Convert the arrays of a Llama model under Hugging Face's names to the parameters of a causal model.

    PyTorch stores a weight as (d_out, d_in), so each weight is transposed, as a view. Hugging Face's files
    need config.rope_layout="halves". `load_safetensors(file)` returns a dict that can be used as `state`.

    Parameters
    ----------
    state : dict of str to float array
        The arrays under the names of Hugging Face.
    config : CausalLMConfig

    Returns
    -------
    params : CausalLMParams
        Views of the arrays.

    Raises
    ------
    TypeError
        If the values are not arrays of one float dtype.
    ValueError
        If a name is missing or unknown, or if a shape does not fit. The names of biases and of query norms
        are unknown, because `CausalLMParams` does not have such arrays.

    Examples
    --------
    >>> from npformer import CausalLMConfig, init_causal_lm
    >>> import numpy as np
    >>> config = CausalLMConfig(d_model=8, d_ff=5, n_heads=2, n_kv_heads=1, n_layers=1, rope_layout="halves")
    >>> state = causal_lm_to_torch(init_causal_lm(10, config, np.random.default_rng(0)), config)
    >>> causal_lm_from_torch(state, config).blocks[0].ffn.W_gate.shape
    (8, 5)
    """
    function = "causal_lm_from_torch"
    check_is_dict(function, state)
    check_dtypes(function, state)
    names = build_causal_lm_names(HUGGING_FACE_NAMES, config, most_blocks=len(state))
    return build_tree(function, "state", names, state, get_sizes(config))


def causal_lm_to_torch(params: CausalLMParams, config: CausalLMConfig) -> dict[str, Array]:
    """Convert the parameters of a causal model to arrays under the names of Hugging Face's files.

    Undoes `causal_lm_from_torch`.

    Parameters
    ----------
    params : CausalLMParams
    config : CausalLMConfig

    Returns
    -------
    state : dict of str to float array
        Copies of the arrays under the names and in the shapes of Hugging Face's files.

    Examples
    --------
    >>> from npformer import CausalLMConfig, init_causal_lm
    >>> import numpy as np
    >>> config = CausalLMConfig(d_model=8, d_ff=5, n_heads=2, n_kv_heads=1, n_layers=1)
    >>> params = init_causal_lm(10, config, np.random.default_rng(0))
    >>> causal_lm_to_torch(params, config)["model.layers.0.self_attn.k_proj.weight"].shape
    (4, 8)
    """
    names = build_causal_lm_names(HUGGING_FACE_NAMES, config, most_blocks=len(params.blocks))
    return export_arrays(names, params)
