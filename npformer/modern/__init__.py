"""Parts of newer Transformers that the paper of 2017 does not have. RoPE and ALiBi are in positional.py."""

from npformer.modern.byte_pairs import BytePairs, train_byte_pairs
from npformer.modern.causal_lm import (
    CausalBlockParams,
    CausalLMConfig,
    CausalLMParams,
    causal_lm_backward,
    causal_lm_forward,
    init_causal_lm,
)
from npformer.modern.gated_ffn import (
    GatedFFNParams,
    gated_ffn_backward,
    gated_ffn_forward,
    init_gated_ffn,
    silu_backward,
    silu_forward,
)
from npformer.modern.generation import generate
from npformer.modern.latent_attention import (
    LatentAttentionParams,
    init_latent_attention,
    multi_head_latent_attention_backward,
    multi_head_latent_attention_forward,
)
from npformer.modern.rms_norm import RMSNormParams, init_rms_norm, rms_norm_backward, rms_norm_forward
from npformer.modern.tiled_attention import tiled_attention_backward, tiled_attention_forward

__all__ = [
    "BytePairs", "CausalBlockParams", "CausalLMConfig", "CausalLMParams", "GatedFFNParams",
    "LatentAttentionParams", "RMSNormParams", "causal_lm_backward", "causal_lm_forward", "gated_ffn_backward",
    "gated_ffn_forward", "generate", "init_causal_lm", "init_gated_ffn", "init_latent_attention",
    "init_rms_norm", "multi_head_latent_attention_backward", "multi_head_latent_attention_forward",
    "rms_norm_backward", "rms_norm_forward", "silu_backward", "silu_forward", "tiled_attention_backward",
    "tiled_attention_forward", "train_byte_pairs",
]  # fmt: skip
