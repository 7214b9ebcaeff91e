"""A Llama-like model under the names that others give its arrays: GGUF files, and Hugging Face's."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from npformer.arrays import Array
from npformer.attention import AttentionParams
from npformer.door.validate import check_float, kind_of
from npformer.embedding import EmbeddingParams
from npformer.modern.causal_lm import CausalBlockParams, CausalLMConfig, CausalLMParams
from npformer.modern.gated_ffn import GatedFFNParams
from npformer.modern.rms_norm import RMSNormParams


class Names(NamedTuple):
    """What a kind of file calls the arrays; those of a block, in the order of `_shapes`, with its number."""

    embedding: str
    norm: str
    head: str
    block: str
    of_a_block: tuple[str, ...]

    def in_block(self, i: int) -> list[str]:
        return [f"{self.block.format(i)}.{name}.weight" for name in self.of_a_block]


GGUF = Names(
    "token_embd.weight", "output_norm.weight", "output.weight", "blk.{}",
    ("attn_q", "attn_k", "attn_v", "attn_output", "attn_norm", "ffn_gate", "ffn_up", "ffn_down", "ffn_norm"),
)  # fmt: skip
HUGGING_FACE = Names(
    "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight", "model.layers.{}",
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "input_layernorm",
     "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "post_attention_layernorm"),
)  # fmt: skip


def causal_lm_from_torch(state: Mapping[str, Array], config: CausalLMConfig) -> CausalLMParams:
    """The arrays of a Llama-like model, by the names in Hugging Face's files, as this package's parameters.

    PyTorch keeps a weight as (d_out, d_in), so each is turned over, as a view. Those files have RoPE's pairs
    in halves: config.rope_layout="halves". `load_safetensors(file)` makes such a dict.

    Raises TypeError for values that are not arrays of floats; ValueError for a name that is missing, for
    one too many (a bias, a norm of the queries: these equations have none), and for another shape.

    >>> from npformer import CausalLMConfig, init_causal_lm
    >>> import numpy as np
    >>> config = CausalLMConfig(d_model=8, d_ff=5, n_heads=2, n_kv_heads=1, n_layers=1, rope_layout="halves")
    >>> state = causal_lm_to_torch(init_causal_lm(10, config, np.random.default_rng(0)), config)
    >>> causal_lm_from_torch(state, config).blocks[0].ffn.W_gate.shape
    (8, 5)
    """
    function = "causal_lm_from_torch"
    if not isinstance(state, Mapping):
        raise TypeError(f"{function}: state is {kind_of(state)}; expected a dict of names and arrays")
    for name, array in state.items():
        check_float(function, f"state[{name!r}]", array)
    check_names(function, "state", {name: array.shape for name, array in state.items()}, config, HUGGING_FACE)
    return params_by_name(state.__getitem__, config, HUGGING_FACE)


def causal_lm_to_torch(params: CausalLMParams, config: CausalLMConfig) -> dict[str, Array]:
    """The arrays by the names and in the shapes of Hugging Face's files. Undoes `causal_lm_from_torch`.

    >>> from npformer import CausalLMConfig, init_causal_lm
    >>> import numpy as np
    >>> config = CausalLMConfig(d_model=8, d_ff=5, n_heads=2, n_kv_heads=1, n_layers=1)
    >>> params = init_causal_lm(10, config, np.random.default_rng(0))
    >>> causal_lm_to_torch(params, config)["model.layers.0.self_attn.k_proj.weight"].shape
    (4, 8)
    """
    names = HUGGING_FACE
    state = {names.embedding: params.embedding.E.copy(), names.norm: params.norm.gamma.copy()}
    state |= {} if params.head is None else {names.head: params.head.T.copy()}
    for i, (attention, norm_1, ffn, norm_2) in enumerate(params.blocks):
        arrays = [W.T for W in attention[:4]] + [norm_1.gamma] + [W.T for W in ffn] + [norm_2.gamma]
        state |= {name: array.copy() for name, array in zip(names.in_block(i), arrays, strict=True)}
    return state


def check_names(
    function: str, where: Any, found: Mapping[str, tuple[int, ...]], config: CausalLMConfig, names: Names
) -> None:
    """Refuse a tensor that is missing, one that the equations do not have, and one of another shape."""
    vocab_size = found[names.embedding][0] if len(found.get(names.embedding, ())) == 2 else 0
    expected = _shapes(config, vocab_size, names)
    for name in (name for name in (*expected, *found) if name not in expected or name not in found):
        if name in expected:
            raise ValueError(f"{function}: {where} has no tensor {name}")
        raise ValueError(
            f"{function}: {where} has the tensor {name}, and the equations of `causal_lm_forward` have none; "
            f"without it the model would compute something else"
        )
    for name, shape in expected.items():
        if tuple(found[name]) != shape:
            raise ValueError(
                f"{function}: {name} has shape {tuple(found[name])} in {where}; expected {shape}, "
                f"(d_out, d_in) by the config"
            )


def _shapes(config: CausalLMConfig, vocab_size: int, names: Names) -> dict[str, tuple[int, ...]]:
    """What such a file holds; each W with its outputs as rows."""
    d, f = config.d_model, config.d_ff
    d_kv = d // config.n_heads * config.n_kv_heads
    shapes: dict[str, tuple[int, ...]] = {names.embedding: (vocab_size, d), names.norm: (d,)}
    shapes |= {} if config.tied else {names.head: (vocab_size, d)}
    of_a_block = ((d, d), (d_kv, d), (d_kv, d), (d, d), (d,), (f, d), (f, d), (d, f), (d,))
    for i in range(config.n_layers):
        shapes |= dict(zip(names.in_block(i), of_a_block, strict=True))
    return shapes


def params_by_name(read: Callable[[str], Array], config: CausalLMConfig, names: Names) -> CausalLMParams:
    """The tree, each W turned over as a view: (d_in, d_out)."""

    def block(i: int) -> CausalBlockParams:
        W_Q, W_K, W_V, W_O, norm_1, gate, up, down, norm_2 = (read(name).T for name in names.in_block(i))
        return CausalBlockParams(
            AttentionParams(W_Q, W_K, W_V, W_O),
            RMSNormParams(norm_1),
            GatedFFNParams(gate, up, down),
            RMSNormParams(norm_2),
        )

    embedding = EmbeddingParams(read(names.embedding))  # the largest first, while there is room
    blocks = tuple(block(i) for i in range(config.n_layers))
    head = None if config.tied else read(names.head).T
    return CausalLMParams(embedding, blocks, RMSNormParams(read(names.norm)), head)
