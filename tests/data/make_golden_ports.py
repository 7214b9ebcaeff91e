"""Write golden_ports.npz: tiny models of transformers with random weights, for the tests of the guide page.

    python tests/data/make_golden_ports.py

The script needs a Python with torch and transformers. npformer never needs these packages, and the script
does not import npformer. test_ports.py runs the code of the page notebooks/guide/ports.md on these models.

For each model, the file has its weights in float32 under the names `MODEL.state.NAME`, the token ids, the
embeddings ("after block 0"), the output of the first block, and the logits (of BERT and T5: the last hidden
layer). Marian has the ids of the decoder, and the output of every block, too. The outputs were computed in
float64 from these weights. But transformers computes some parts in float32.
"""

import numpy as np
import torch
import transformers as t
from golden_files import HERE

VOCAB_SIZE, T = 20, 9
SINUSOIDS = "embed_positions"  # in the names of Marian's position tables, which its files do not contain
PADDING = 19  # Marian's id of the padding, which is also the first id of the decoder
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
    "marian": lambda: t.MarianMTModel(
        t.MarianConfig(
            vocab_size=VOCAB_SIZE, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=20, decoder_ffn_dim=20, activation_function="swish",
            scale_embedding=True, max_position_embeddings=32, pad_token_id=PADDING, eos_token_id=0,
            decoder_start_token_id=PADDING, forced_eos_token_id=0,
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
    has_decoder = model.config.is_encoder_decoder
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if SINUSOIDS not in name:
                parameter += 0.3 * torch.randn_like(parameter)  # a 0 or 1 could hide a mistake
        if has_decoder:
            model.final_logits_bias.normal_()
    arrays = [(name, a) for name, a in model.state_dict().items() if SINUSOIDS not in name]
    state = {f"state.{name_in_file(model, name)}": a.numpy().copy() for name, a in arrays}
    ids = torch.randint(1, VOCAB_SIZE, (2, T))
    if has_decoder:
        return state | run_with_decoder(model.double(), ids)
    with torch.no_grad():
        outputs = model.double()(ids, output_hidden_states=True)
    streams = {f"after block {i}": x.numpy() for i, x in enumerate(outputs.hidden_states[:-1])}
    last = outputs.logits if "logits" in outputs else outputs.last_hidden_state
    return state | {"ids": ids.numpy()} | streams | {"logits": last.numpy()}


def run_with_decoder(model, ids):
    """Return the ids and the outputs of an encoder and a decoder. The second text is padded."""
    ids = ids.clamp(max=PADDING - 1)
    ids[1, -3:] = PADDING
    decoder_ids = torch.randint(1, PADDING, (2, T - 2))
    decoder_ids[:, 0] = PADDING
    with torch.no_grad():
        outputs = model(ids, ids != PADDING, decoder_ids, output_hidden_states=True)
    arrays = {"ids": ids.numpy(), "decoder_ids": decoder_ids.numpy()}
    for part in ("encoder", "decoder"):
        for i, x in enumerate(outputs[f"{part}_hidden_states"]):
            arrays[f"{part} after block {i}"] = x.numpy()
    return arrays | {"logits": outputs.logits.numpy()}


if __name__ == "__main__":
    arrays = {}
    for i, (name, make) in enumerate(MODELS.items()):
        torch.manual_seed(i)
        arrays |= {f"{name}.{key}": value for key, value in run(make()).items()}
    np.savez_compressed(HERE / "golden_ports.npz", **arrays)
