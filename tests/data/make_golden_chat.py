"""Golden values of SmolLM2-135M-Instruct from transformers, which reads the same GGUF file in its own way.

python -m pip install torch transformers gguf accelerate; python tests/data/make_golden_chat.py FILE.gguf
"""

import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).parent

PROMPTS = [  # ids, so that the tokenizer is no part of this: it is held against `tokenizers`
    [504, 3575, 282, 4649, 314],  # The capital of France is
    [1, 4093, 198, 19556, 17, 2, 198, 1, 520, 9531, 198],  # a conversation
    [0], [49151], [198, 198, 198, 198],
    *np.random.default_rng(0).integers(0, 49152, (3, 24)).tolist(),
    *np.random.default_rng(1).integers(0, 49152, (2, 90)).tolist(),
]  # fmt: skip
SOME = np.random.default_rng(2).permutation(49152)[:200]  # logits of these ids are kept


def main(file):
    path = Path(file)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None  # a hundred tokens each, whatever they are
    golden = {"some": SOME}
    for i, prompt in enumerate(PROMPTS):
        ids = torch.tensor([prompt])
        with torch.no_grad():
            logits = model(ids).logits[0].numpy()  # (T, vocab_size)
            text = model.generate(
                ids, attention_mask=torch.ones_like(ids), max_new_tokens=100, do_sample=False
            )
        golden |= {f"ids_{i}": np.array(prompt), f"logits_{i}": logits[:, SOME], f"text_{i}": text[0].numpy()}
        golden |= {f"norm_{i}": np.linalg.norm(logits, axis=-1)}
    np.savez_compressed(HERE / "golden_chat.npz", **golden)


def small():
    """A tiny model of the same kind with its weights under their names, in float64."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=20, hidden_size=16, intermediate_size=10, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, rope_theta=500.0, rms_norm_eps=1e-6, tie_word_embeddings=False,
        initializer_range=0.5,
    )  # fmt: skip
    model = LlamaForCausalLM(config).double().eval()
    ids = torch.randint(0, 20, (2, 7))
    with torch.no_grad():
        arrays = {name: array.numpy() for name, array in model.state_dict().items()}
        said = model(ids, output_hidden_states=True)
        layers = {f"after block {i}": x.numpy() for i, x in enumerate(said.hidden_states[1:-1], 1)}
        np.savez_compressed(HERE / "golden_llama.npz", ids=ids, logits=said.logits, **layers, **arrays)


if __name__ == "__main__":
    small()
    main(*sys.argv[1:])
