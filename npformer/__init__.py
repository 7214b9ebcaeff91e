"""npformer: the Transformer in plain NumPy functions, with hand-written and checked backward passes.

Each call npformer.f(...) checks its arguments against the annotations in the signature of f: shapes such as
"... T d_model", dtypes, ranges and choices. All arrays of a call have the same dtype, float32 or float64. A
wrong type raises TypeError. A wrong value or shape raises ValueError. The message names the function, the
argument, what was expected and what was received. A backward function requires the cache of its own forward
function, and a gradient with exactly the shape of the output. The values inside an array are checked for
NumPy arrays only: ids must be in range, and gradients must not contain NaN. For a GPU array, this check would
make the CPU wait for the GPU.

You may write into an output: it shares no memory with an input or with the cache. Exceptions are functions
whose docstrings promise a view, or an array that is not copied. Inputs are not copied, and the cache refers
to them. So do not change an input before the backward function has run.

The functions of the modules, such as npformer.feed_forward.ffn_forward, contain only the equations. They
check nothing and call each other. A docstring names only errors beyond those of argument validation.
"""

from importlib import import_module as _import_module
from types import FunctionType as _FunctionType
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from npformer.attention import (
    AttentionCache,
    AttentionParams,
    MultiHeadAttentionCache,
    attention_backward,
    attention_forward,
    causal_mask,
    init_attention,
    merge_heads,
    multi_head_attention_backward,
    multi_head_attention_forward,
    padding_mask,
    split_heads,
)
from npformer.backend import array_module, available_backends, to_backend, to_numpy
from npformer.config import TransformerConfig
from npformer.decoder import (
    DecoderBlockCache,
    DecoderBlockParams,
    DecoderCache,
    DecoderParams,
    decoder_backward,
    decoder_block_backward,
    decoder_block_forward,
    decoder_forward,
    init_decoder,
    init_decoder_block,
)
from npformer.decoding import greedy_decode
from npformer.embedding import (
    EmbeddingParams,
    embedding_backward,
    embedding_forward,
    init_embedding,
    tied_logits_backward,
    tied_logits_forward,
)
from npformer.encoder import (
    EncoderBlockCache,
    EncoderBlockParams,
    EncoderCache,
    EncoderParams,
    encoder_backward,
    encoder_block_backward,
    encoder_block_forward,
    encoder_forward,
    init_encoder,
    init_encoder_block,
)
from npformer.feed_forward import FFNCache, FFNParams, ffn_backward, ffn_forward, init_ffn
from npformer.functional import (
    dropout_backward,
    dropout_forward,
    gelu_backward,
    gelu_forward,
    linear_backward,
    linear_forward,
    relu_backward,
    relu_forward,
    softmax_backward,
    softmax_forward,
)
from npformer.gradcheck import assert_gradients, gradcheck
from npformer.layer_norm import (
    LayerNormCache,
    LayerNormParams,
    init_layer_norm,
    layer_norm_backward,
    layer_norm_forward,
)
from npformer.loss import CrossEntropyCache, cross_entropy_backward, cross_entropy_forward
from npformer.modern import (
    BytePairs,
    CausalBlockParams,
    CausalLMConfig,
    CausalLMParams,
    GatedFFNParams,
    LatentAttentionParams,
    RMSNormParams,
    causal_lm_backward,
    causal_lm_forward,
    gated_ffn_backward,
    gated_ffn_forward,
    generate,
    init_causal_lm,
    init_gated_ffn,
    init_latent_attention,
    init_rms_norm,
    multi_head_latent_attention_backward,
    multi_head_latent_attention_forward,
    rms_norm_backward,
    rms_norm_forward,
    silu_backward,
    silu_forward,
    tiled_attention_backward,
    tiled_attention_forward,
    train_byte_pairs,
)
from npformer.optim import AdamState, adam_init, adam_update, sgd_update, warmup_learning_rate
from npformer.positional import (
    LearnedPositionsParams,
    RoPETable,
    alibi_bias,
    angular_frequencies,
    learned_positions_backward,
    learned_positions_forward,
    llama3_frequencies,
    positional_encoding,
    rope_backward,
    rope_forward,
    rope_table,
    shift_matrix,
    wavelengths,
    yarn_frequencies,
)
from npformer.transformer import (
    TransformerCache,
    TransformerParams,
    init_transformer,
    transformer_backward,
    transformer_forward,
)
from npformer.tree import leaves, load, save, tree_map
from npformer.validation.annotations import Float, Ids, Mask
from npformer.validation.signature import checked

if _TYPE_CHECKING:
    from npformer.gradcheck import GradientReport, GradientRow
    from npformer.lessons.costs import (
        BlockMultiplications,
        CausalParameterCount,
        LayerCost,
        ParameterCount,
        causal_block_multiplications,
        causal_parameter_count,
        encoder_block_cache_bytes,
        encoder_block_multiplications,
        kept_bytes,
        parameter_count,
        score_cells,
        table_1,
        training_bytes,
    )
    from npformer.lessons.diagnostics import dead_units, order_sensitivity, token_similarity
    from npformer.lessons.text import build_vocabulary, decode, encode, tokenize
    from npformer.player.compare import compare
    from npformer.player.player_page import play
    from npformer.post_training import (
        LoRAParams,
        answer_targets,
        clipped_policy_backward,
        clipped_policy_forward,
        dpo_backward,
        dpo_forward,
        group_advantages,
        grpo_backward,
        grpo_forward,
        init_lora,
        kl_penalty_backward,
        kl_penalty_forward,
        lora_backward,
        lora_forward,
        policy_gradient_backward,
        policy_gradient_forward,
        token_log_probs_backward,
        token_log_probs_forward,
    )
    from npformer.pretrained.gguf import load_gguf
    from npformer.pretrained.llama import (
        causal_lm_from_torch,
        causal_lm_to_torch,
        halves_to_interleaved,
        interleaved_to_halves,
        load_llama,
    )
    from npformer.pretrained.llama2c import load_llama2c
    from npformer.pretrained.minilm import MiniLMParams, load_minilm, minilm_input, sentence_embeddings
    from npformer.pretrained.safetensors_files import load_safetensors, save_safetensors
    from npformer.pretrained.torch_names import encoder_block_from_torch, encoder_block_to_torch

__version__ = "0.1.0"

__all__ = [
    "AdamState", "AttentionCache", "AttentionParams", "BlockMultiplications", "BytePairs",
    "CausalBlockParams", "CausalLMConfig", "CausalLMParams", "CausalParameterCount", "CrossEntropyCache",
    "DecoderBlockCache", "DecoderBlockParams", "DecoderCache", "DecoderParams", "EmbeddingParams",
    "EncoderBlockCache", "EncoderBlockParams", "EncoderCache", "EncoderParams", "FFNCache", "FFNParams",
    "Float", "GatedFFNParams", "GradientReport", "GradientRow", "Ids", "LatentAttentionParams", "LayerCost",
    "LayerNormCache", "LayerNormParams", "LearnedPositionsParams", "LoRAParams", "Mask", "MiniLMParams",
    "MultiHeadAttentionCache", "ParameterCount", "RMSNormParams", "RoPETable", "TransformerCache",
    "TransformerConfig", "TransformerParams", "__version__", "adam_init", "adam_update", "alibi_bias",
    "angular_frequencies", "answer_targets", "array_module", "assert_gradients", "attention_backward",
    "attention_forward", "available_backends", "build_vocabulary", "causal_block_multiplications",
    "causal_lm_backward", "causal_lm_forward", "causal_lm_from_torch", "causal_lm_to_torch", "causal_mask",
    "causal_parameter_count", "checked", "clipped_policy_backward", "clipped_policy_forward", "compare",
    "cross_entropy_backward", "cross_entropy_forward", "dead_units", "decode", "decoder_backward",
    "decoder_block_backward", "decoder_block_forward", "decoder_forward", "dpo_backward", "dpo_forward",
    "dropout_backward", "dropout_forward", "embedding_backward", "embedding_forward", "encode",
    "encoder_backward", "encoder_block_backward", "encoder_block_cache_bytes", "encoder_block_forward",
    "encoder_block_from_torch", "encoder_block_multiplications", "encoder_block_to_torch", "encoder_forward",
    "ffn_backward", "ffn_forward", "gated_ffn_backward", "gated_ffn_forward", "gelu_backward", "gelu_forward",
    "generate", "gradcheck", "greedy_decode", "group_advantages", "grpo_backward", "grpo_forward",
    "halves_to_interleaved", "init_attention", "init_causal_lm", "init_decoder", "init_decoder_block",
    "init_embedding", "init_encoder", "init_encoder_block", "init_ffn", "init_gated_ffn",
    "init_latent_attention", "init_layer_norm", "init_lora", "init_rms_norm", "init_transformer",
    "interleaved_to_halves", "kept_bytes", "kl_penalty_backward", "kl_penalty_forward", "layer_norm_backward",
    "layer_norm_forward", "learned_positions_backward", "learned_positions_forward", "leaves",
    "linear_backward", "linear_forward", "llama3_frequencies", "load", "load_gguf", "load_llama",
    "load_llama2c", "load_minilm", "load_safetensors", "lora_backward", "lora_forward", "merge_heads",
    "minilm_input", "multi_head_attention_backward", "multi_head_attention_forward",
    "multi_head_latent_attention_backward", "multi_head_latent_attention_forward", "order_sensitivity",
    "padding_mask", "parameter_count", "play", "policy_gradient_backward", "policy_gradient_forward",
    "positional_encoding", "relu_backward", "relu_forward", "rms_norm_backward", "rms_norm_forward",
    "rope_backward", "rope_forward", "rope_table", "save", "save_safetensors", "score_cells",
    "sentence_embeddings", "sgd_update", "shift_matrix", "silu_backward", "silu_forward", "softmax_backward",
    "softmax_forward", "split_heads", "table_1", "tied_logits_backward", "tied_logits_forward",
    "tiled_attention_backward", "tiled_attention_forward", "to_backend", "to_numpy",
    "token_log_probs_backward", "token_log_probs_forward", "token_similarity", "tokenize", "train_byte_pairs",
    "training_bytes", "transformer_backward", "transformer_forward", "tree_map", "warmup_learning_rate",
    "wavelengths", "yarn_frequencies",
]  # fmt: skip

# Users get each function f as npformer.f, which validates the arguments. Inside the package, functions call
# each other without validation. These modules are exceptions: their functions accept any type (a tree, a
# text, a user's function) and check their own arguments.
_MODULES_THAT_CHECK = {
    "npformer.arrays",
    "npformer.backend",
    "npformer.gradcheck.comparison",
    "npformer.lessons.text",
    "npformer.player.compare",
    "npformer.player.player_page",
    "npformer.pretrained.safetensors_files",
    "npformer.tree",
}


def _make_public(value: _Any) -> _Any:
    """Return a function with argument validation, and any other value unchanged."""
    if isinstance(value, _FunctionType) and value.__module__ not in _MODULES_THAT_CHECK:
        function = checked(value)
        function.__module__ = __name__  # pickle looks for the function here
        return function
    return value


# Most programs use none of these names, and their modules would double the time of `import npformer`. So
# `__getattr__`, which Python calls for a missing attribute, imports a module when its first name is used.
_LATER = {
    "npformer.gradcheck.report": ("GradientReport", "GradientRow"),
    "npformer.lessons.costs": (
        "BlockMultiplications", "CausalParameterCount", "LayerCost", "ParameterCount",
        "causal_block_multiplications", "causal_parameter_count", "encoder_block_cache_bytes",
        "encoder_block_multiplications", "kept_bytes", "parameter_count", "score_cells", "table_1",
        "training_bytes",
    ),
    "npformer.lessons.diagnostics": ("dead_units", "order_sensitivity", "token_similarity"),
    "npformer.lessons.text": ("build_vocabulary", "decode", "encode", "tokenize"),
    "npformer.player.compare": ("compare",),
    "npformer.player.player_page": ("play",),
    "npformer.post_training": (
        "LoRAParams", "answer_targets", "clipped_policy_backward", "clipped_policy_forward",
        "dpo_backward", "dpo_forward", "group_advantages", "grpo_backward", "grpo_forward",
        "init_lora", "kl_penalty_backward", "kl_penalty_forward", "lora_backward", "lora_forward",
        "policy_gradient_backward", "policy_gradient_forward", "token_log_probs_backward",
        "token_log_probs_forward",
    ),
    "npformer.pretrained.gguf": ("load_gguf",),
    "npformer.pretrained.llama": (
        "causal_lm_from_torch", "causal_lm_to_torch", "halves_to_interleaved", "interleaved_to_halves",
        "load_llama",
    ),
    "npformer.pretrained.llama2c": ("load_llama2c",),
    "npformer.pretrained.minilm": ("MiniLMParams", "load_minilm", "minilm_input", "sentence_embeddings"),
    "npformer.pretrained.safetensors_files": ("load_safetensors", "save_safetensors"),
    "npformer.pretrained.torch_names": ("encoder_block_from_torch", "encoder_block_to_torch"),
}  # fmt: skip
_PACKAGES_IMPORTED_LATER = ("lessons", "player", "post_training", "pretrained")
_MODULE_OF = {name: module for module, names in _LATER.items() for name in names}

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> _Any:
        """Import a public name at its first use."""
        if name in _PACKAGES_IMPORTED_LATER:
            return _import_module(f"npformer.{name}")
        if name not in _MODULE_OF:
            raise AttributeError(f"module 'npformer' has no attribute {name!r}")
        value = _make_public(getattr(_import_module(_MODULE_OF[name]), name))
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Return all names, also those that are imported later."""
    return sorted({*globals(), *__all__})


for _name in set(__all__) - set(_MODULE_OF):
    globals()[_name] = _make_public(globals()[_name])
