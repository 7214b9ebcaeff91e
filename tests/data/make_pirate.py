"""Write npformer/lessons/pirate.json: the answers of SmolLM2-135M before and after LoRA, with ten seeds.

uv run --extra pretrained --extra chat python tests/data/make_pirate.py      takes about half an hour

The script keeps the results that the file already has, and computes the others. Delete the file to compute
all results again.
"""

import json
import os
from pathlib import Path

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")  # before NumPy is imported

import numpy as np

import npformer as npf
from npformer.lessons import pirate
from npformer.post_training import merge_adapter
from npformer.pretrained.chat_model import find_chat_file

FILE = Path(pirate.__file__).with_suffix(".json")
SETTINGS: dict[str, dict] = {
    "rank 4, 12 steps": {},
    "rank 1, 12 steps": {"r": 1},
    "rank 4, 6 steps": {"steps": 6},
    "rank 4, 12 steps, rate × 4": {"learning_rate": 8e-3},
}
SEEDS = range(10)


def main():
    """Train in every setting, and write the answers."""
    params, config, tokenizer = npf.load_gguf(find_chat_file())

    def answers(model):
        return {q: pirate.ask(q, model, config, tokenizer) for q in pirate.QUESTIONS}

    found = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
    if "before" not in found:
        found["before"] = {"loss": None, "answers": answers(params)}
    for name, settings in SETTINGS.items():
        for seed in SEEDS:
            key = f"{name}, seed {seed}" if seed else name
            if key in found:
                continue
            adapter, loss = pirate.train_pirate(
                params, config, tokenizer, np.random.default_rng(seed), **settings
            )
            found[key] = {"loss": round(loss, 3), "answers": answers(merge_adapter(params, adapter))}
            FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            correct = pirate.count_correct(found[key]["answers"])
            n_pirate = sum(map(pirate.is_pirate, found[key]["answers"].values()))
            print(key, loss, correct, n_pirate, flush=True)


if __name__ == "__main__":
    main()
