"""A Llama-like model under the names that others give its arrays: GGUF files, and Hugging Face's."""

from collections.abc import Mapping, Sized

from npformer.arrays import Array
from npformer.modern.causal_lm import CausalLMConfig, CausalLMParams
from npformer.published.reader import check_state, from_names, sizes_of, table, to_names

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
