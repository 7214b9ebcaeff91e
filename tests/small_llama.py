"""A folder of Hugging Face's with a small Llama-like model."""

import json
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

import npformer as npf

CONFIG = npf.CausalLMConfig(
    d_model=16, d_ff=10, n_heads=4, n_kv_heads=2, n_layers=2, eps=1e-6, base=500.0, max_length=9,
    tied=False, rope_layout="halves",
)  # fmt: skip
VOCAB = 11
SAID = {
    "model_type": "llama", "hidden_act": "silu", "hidden_size": 16, "intermediate_size": 10,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "rms_norm_eps": 1e-6,
    "rope_theta": 500.0, "rope_scaling": None, "max_position_embeddings": 9, "tie_word_embeddings": False,
}  # fmt: skip


def params():
    return npf.init_causal_lm(VOCAB, CONFIG, np.random.default_rng(0), dtype=np.float32)


def write_model(folder, said=SAID, **more):
    """Its two files; more are tensors beside the right ones, or None in the place of one."""
    state = npf.causal_lm_to_torch(params(), CONFIG) | more
    npf.save_safetensors(folder / "model.safetensors", {k: x for k, x in state.items() if x is not None})
    (folder / "config.json").write_text(json.dumps(said))
    return folder


@cache
def _folder():
    folder = tempfile.TemporaryDirectory()  # removed when Python ends
    write_model(Path(folder.name))
    return folder


def folder():
    """The path of a folder that load_llama reads."""
    return Path(_folder().name)
