"""Train a tiny adapter with PEFT, and write its two files and PEFT's logits, for the tests of load_adapter.

    python tests/data/make_golden_adapter.py

The script needs a Python with torch, transformers and peft. npformer never needs these packages, and the
script does not import npformer.

The base model is a tiny LlamaForCausalLM with random weights: two blocks, two query heads and one key head
of width 8. PEFT adapts all seven matrices of both blocks, and trains for 20 steps on random ids.
`save_pretrained` writes the files adapter_config.json and adapter_model.safetensors to the folder
peft_adapter. golden_adapter.npz has

- the weights of the base model in float32, as `base.NAME`, and the ids,
- the logits of the base model and of the adapted model,
- the gradients of all A and B, as `gradient.NAME`; the loss is the mean cross-entropy of the next tokens,
- the weights of the model that PEFT has merged, as `merged.NAME`.

All answers were computed in float64, but transformers computes some parts in float32.
"""

import numpy as np
import torch
import transformers as t
from golden_files import HERE
from make_golden_ports import LLAMA, run
from peft import LoraConfig, get_peft_model

MODULES = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def train(model, ids, steps=20):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        model(ids, labels=ids).loss.backward()
        optimizer.step()


def compute_logits(model, ids):
    with torch.no_grad():
        return model.double()(ids).logits.numpy()


def compute_gradients(model, ids):
    model.double().zero_grad()
    model(ids, labels=ids).loss.backward()
    return {
        f"gradient.{name.replace('.default', '')}": p.grad.numpy()
        for name, p in model.named_parameters()
        if p.requires_grad
    }


if __name__ == "__main__":
    torch.manual_seed(0)
    model = t.LlamaForCausalLM(t.LlamaConfig(**LLAMA))
    base = run(model)
    answers = {name.replace("state.", "base."): a for name, a in base.items() if name.startswith("state.")}
    answers |= {"ids": base["ids"], "base.logits": base["logits"]}
    ids = torch.tensor(base["ids"])
    settings = LoraConfig(r=3, lora_alpha=6, target_modules=MODULES, task_type="CAUSAL_LM")
    adapted = get_peft_model(model.float(), settings)
    train(adapted, ids)
    adapted.eval().save_pretrained(HERE / "peft_adapter")
    (HERE / "peft_adapter" / "README.md").unlink()  # an empty template for describing a published adapter
    answers["adapted.logits"] = compute_logits(adapted, ids)
    answers |= compute_gradients(adapted, ids)
    merged = adapted.merge_and_unload().state_dict()
    answers |= {f"merged.{name}": a.numpy() for name, a in merged.items() if "proj" in name}
    np.savez_compressed(HERE / "golden_adapter.npz", **answers)
