"""Write npformer/lessons/pirate.json: the answers of SmolLM2-135M before and after LoRA, in several settings.

uv run --extra pretrained --extra chat python tests/data/make_pirate.py      takes about six minutes
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
    "rank 4, 12 steps, seed 1": {"seed": 1},
    "rank 4, 12 steps, seed 2": {"seed": 2},
    "rank 1, 12 steps": {"r": 1},
    "rank 4, 6 steps": {"steps": 6},
    "rank 4, 12 steps, rate × 4": {"learning_rate": 8e-3},
}


def main():
    """Train in every setting, and write the answers."""
    params, config, tokenizer = npf.load_gguf(find_chat_file())

    def answers(model):
        return {q: pirate.ask(q, model, config, tokenizer) for q in pirate.QUESTIONS}

    found = {"before": {"loss": None, "answers": answers(params)}}
    for name, settings in SETTINGS.items():
        options = {key: value for key, value in settings.items() if key != "seed"}
        rng = np.random.default_rng(settings.get("seed", 0))
        adapter, loss = pirate.train_pirate(params, config, tokenizer, rng, **options)
        found[name] = {"loss": round(loss, 3), "answers": answers(merge_adapter(params, adapter))}
        FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        correct = pirate.count_correct(found[name]["answers"])
        print(name, loss, correct, sum(map(pirate.is_pirate, found[name]["answers"].values())), flush=True)


if __name__ == "__main__":
    main()
