"""Write golden_ports.npz: tiny models of transformers with random weights, for the tests of the guide page.

    python tests/data/make_golden_ports.py

The script needs a Python with torch and transformers. npformer never needs these packages, and the script
does not import npformer. test_ports.py runs the code of the page notebooks/guide/ports.md on these models.

For each model, the file has its weights in float32 under the names `MODEL.state.NAME`, the token ids, the
embeddings ("after block 0"), the output of the first block, and the logits (of BERT and T5: the last hidden
layer). The outputs were computed in float64 from these weights. But transformers computes some parts in
float32.
"""

import numpy as np
import torch
import transformers as t
from golden_files import HERE

VOCAB_SIZE, T = 20, 9
SIZES = {"vocab_size": VOCAB_SIZE, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2}
LLAMA = SIZES | {
    "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
    "max_position_embeddings": 64, "rope_theta": 500.0,
}  # fmt: skip
# Some default ids are larger than this vocabulary.
COMMON = SIZES | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
# The original length is short, so that some pairs are scaled, some are not, and some are partly scaled.
LLAMA_3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "beta_fast": 2.0}
MODELS = {
    "pythia": lambda: t.GPTNeoXForCausalLM(
        t.GPTNeoXConfig(**SIZES, num_attention_heads=2, rotary_pct=0.5, rotary_emb_base=500)
    ),
    "phi": lambda: t.PhiForCausalLM(
        t.PhiConfig(**SIZES, num_attention_heads=2, partial_rotary_factor=0.5, rope_theta=500.0)
    ),
    "llama 3.1": lambda: t.LlamaForCausalLM(t.LlamaConfig(**LLAMA, rope_scaling=LLAMA_3)),
    "yarn": lambda: t.LlamaForCausalLM(t.LlamaConfig(**LLAMA, rope_scaling=YARN)),
    "helium": lambda: t.HeliumForCausalLM(t.HeliumConfig(**LLAMA, head_dim=8)),
    "gemma 2": lambda: t.Gemma2ForCausalLM(
        t.Gemma2Config(
            **LLAMA | {"tie_word_embeddings": True}, head_dim=12, query_pre_attn_scalar=7,
            attn_logit_softcapping=2.0, final_logit_softcapping=1.5, sliding_window=64,
            attn_implementation="eager",
        )
    ),
    "gpt-2": lambda: t.GPT2LMHeadModel(
        t.GPT2Config(vocab_size=VOCAB_SIZE, n_positions=32, n_embd=16, n_layer=2, n_head=2, n_inner=20)
    ),
    "llama": lambda: t.LlamaForCausalLM(
        t.LlamaConfig(**LLAMA | {"num_attention_heads": 4, "num_key_value_heads": 2})
    ),
    "bert": lambda: t.BertModel(
        t.BertConfig(**SIZES, num_attention_heads=2, max_position_embeddings=32), add_pooling_layer=False
    ),
    # With 3 heads, ALiBi combines the slopes for 2 heads with one of the slopes for 4 heads.
    "bloom": lambda: t.BloomForCausalLM(
        t.BloomConfig(vocab_size=VOCAB_SIZE, hidden_size=18, n_layer=2, n_head=3)
    ),
    "cohere": lambda: t.CohereForCausalLM(
        t.CohereConfig(
            **COMMON, num_attention_heads=2, num_key_value_heads=1, rope_theta=500.0, logit_scale=0.25
        )
    ),
    "granite": lambda: t.GraniteForCausalLM(
        t.GraniteConfig(
            **LLAMA | COMMON | {"tie_word_embeddings": True}, embedding_multiplier=3.0,
            attention_multiplier=0.2, residual_multiplier=0.6, logits_scaling=4.0,
        )
    ),
    "t5": lambda: t.T5EncoderModel(
        t.T5Config(
            vocab_size=VOCAB_SIZE, d_model=16, d_kv=5, d_ff=20, num_layers=2, num_heads=3,
            relative_attention_num_buckets=8, relative_attention_max_distance=6,
            feed_forward_proj="gated-gelu",
        )
    ),
}  # fmt: skip


def name_in_file(model, name):
    """Return the name of an array in the model's file. GPT-NeoX's output head is renamed in memory."""
    is_pythia = isinstance(model, t.GPTNeoXForCausalLM)
    return name.replace("lm_head", "embed_out") if is_pythia else name


def run(model):
    """Return the weights, ids and outputs of a model with larger random weights than those it starts with."""
    model = model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)  # a 0 or 1 could hide a mistake
    arrays = model.state_dict().items()
    state = {f"state.{name_in_file(model, name)}": a.numpy().copy() for name, a in arrays}
    ids = torch.randint(1, VOCAB_SIZE, (2, T))
    with torch.no_grad():
        outputs = model.double()(ids, output_hidden_states=True)
    streams = {f"after block {i}": x.numpy() for i, x in enumerate(outputs.hidden_states[:-1])}
    last = outputs.logits if "logits" in outputs else outputs.last_hidden_state
    return state | {"ids": ids.numpy()} | streams | {"logits": last.numpy()}


if __name__ == "__main__":
    arrays = {}
    for i, (name, make) in enumerate(MODELS.items()):
        torch.manual_seed(i)
        arrays |= {f"{name}.{key}": value for key, value in run(make()).items()}
    np.savez_compressed(HERE / "golden_ports.npz", **arrays)
