"""A Llama-like model under the names that others give its arrays: GGUF files, and Hugging Face's."""

from collections.abc import Mapping, Sized
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.arrays import Array
from npformer.modern.causal_lm import CausalLMConfig, CausalLMParams
from npformer.pretrained.named_arrays import (
    check_settings,
    check_state,
    config_from,
    existing,
    from_names,
    said_in,
    sizes_of,
    table,
    to_names,
)
from npformer.pretrained.safetensors_files import arrays_in
from npformer.tree import as_path, tree_map
from npformer.validation.annotations import DType

if TYPE_CHECKING:
    from pathlib import Path

GGUF = """token_embd.weight
    blk.{}.attn_q.weight blk.{}.attn_k.weight blk.{}.attn_v.weight blk.{}.attn_output.weight - - - -
    blk.{}.attn_norm.weight
    blk.{}.ffn_gate.weight blk.{}.ffn_up.weight blk.{}.ffn_down.weight
    blk.{}.ffn_norm.weight
    output_norm.weight output.weight"""
HUGGING_FACE = """model.embed_tokens.weight
    model.layers.{}.self_attn.q_proj.weight model.layers.{}.self_attn.k_proj.weight
    model.layers.{}.self_attn.v_proj.weight model.layers.{}.self_attn.o_proj.weight - - - -
    model.layers.{}.input_layernorm.weight
    model.layers.{}.mlp.gate_proj.weight model.layers.{}.mlp.up_proj.weight
    model.layers.{}.mlp.down_proj.weight
    model.layers.{}.post_attention_layernorm.weight
    model.norm.weight lm_head.weight"""


def causal_lm_table(text: str, config: CausalLMConfig, found: Sized) -> CausalLMParams:
    """The names of a whole model; where the config claims more blocks than there are arrays, of fewer."""
    names = table(CausalLMParams, text, min(config.n_layers, len(found)))
    return names._replace(head=None) if config.tied else names


def load_llama(path: Any, *, dtype: DType = np.float32) -> tuple[CausalLMParams, CausalLMConfig]:
    """A Llama-like model from a folder as Hugging Face has it: params, config.

    Reads config.json and every .safetensors file in the folder; each W is turned over to (d_in, d_out).
    Models of the kinds llama and mistral: others have the same names and other equations. Nothing in the
    files is executed.

    Raises ImportError without the package safetensors; FileNotFoundError for a file that is not there;
    ValueError for one that is damaged, for a tensor that is missing, one too many or of another shape, and
    for a setting that these equations do not have (stretched RoPE, a window, biases), which it names.

    >>> load_llama("no/such/folder")
    Traceback (most recent call last):
        ...
    FileNotFoundError: load_llama: there is no file no/such/folder/config.json
    """
    folder = as_path("load_llama", "path", path)
    config = _config(existing("load_llama", "path", folder / "config.json"))
    files = sorted(folder.glob("*.safetensors")) or [
        existing("load_llama", "path", folder / "model.safetensors")
    ]
    found = {name: x for file in files for name, x in arrays_in("load_llama", file).items()}
    names = causal_lm_table(HUGGING_FACE, config, found)
    params = from_names("load_llama", folder, names, found, sizes_of(config), found.__getitem__)
    return tree_map(lambda a: a.astype(dtype, copy=False), params), config


SIZES = {
    "hidden_size": "d_model", "intermediate_size": "d_ff", "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads", "num_key_value_heads": "n_kv_heads", "rms_norm_eps": "eps",
    "rope_theta": "base", "max_position_embeddings": "max_length", "tie_word_embeddings": "tied",
}  # fmt: skip
FITS = {"hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "partial_rotary_factor": 1.0}
FITS |= {"rope_type": "default", "rope_scaling": None, "sliding_window": None}


def _config(file: "Path") -> CausalLMConfig:
    """What config.json says, in our letters; a setting that these equations do not have is refused."""
    said = {"rope_theta": 10000.0, "tie_word_embeddings": False} | said_in("load_llama", file)
    said |= said.get("rope_parameters") or {}  # where transformers 5 writes what is RoPE's
    said = {name: value for name, value in said.items() if value is not None}
    if (kind := said.get("model_type")) not in ("llama", "mistral"):
        raise ValueError(f"load_llama: {file} holds a model of the kind {kind!r}; expected llama or mistral")
    said = {"num_key_value_heads": said.get("num_attention_heads")} | said
    config = config_from("load_llama", file, said, SIZES, CausalLMConfig, rope_layout="halves")
    check_settings("load_llama", file, said, FITS | {"head_dim": config.d_model // config.n_heads})
    return config


def causal_lm_from_torch(state: Mapping[str, Array], config: CausalLMConfig) -> CausalLMParams:
    """The arrays of a Llama-like model, by the names in Hugging Face's files, as this package's parameters.

    PyTorch keeps a weight as (d_out, d_in), so each is turned over, as a view. Those files have RoPE's pairs
    in halves: config.rope_layout="halves". `load_safetensors(file)` makes such a dict.

    Raises TypeError for values that are not arrays of one float dtype; ValueError for a name that is missing,
    for one too many (a bias, a norm of the queries: these equations have none), and for another shape.

    >>> from npformer import CausalLMConfig, init_causal_lm
    >>> import numpy as np
    >>> config = CausalLMConfig(d_model=8, d_ff=5, n_heads=2, n_kv_heads=1, n_layers=1, rope_layout="halves")
    >>> state = causal_lm_to_torch(init_causal_lm(10, config, np.random.default_rng(0)), config)
    >>> causal_lm_from_torch(state, config).blocks[0].ffn.W_gate.shape
    (8, 5)
    """
    check_state("causal_lm_from_torch", state)
    names = causal_lm_table(HUGGING_FACE, config, state)
    return from_names("causal_lm_from_torch", "state", names, state, sizes_of(config))


def causal_lm_to_torch(params: CausalLMParams, config: CausalLMConfig) -> dict[str, Array]:
    """The arrays by the names and in the shapes of Hugging Face's files. Undoes `causal_lm_from_torch`.

    >>> from npformer import CausalLMConfig, init_causal_lm
    >>> import numpy as np
    >>> config = CausalLMConfig(d_model=8, d_ff=5, n_heads=2, n_kv_heads=1, n_layers=1)
    >>> params = init_causal_lm(10, config, np.random.default_rng(0))
    >>> causal_lm_to_torch(params, config)["model.layers.0.self_attn.k_proj.weight"].shape
    (4, 8)
    """
    return to_names(causal_lm_table(HUGGING_FACE, config, params.blocks), params)
