"""Write npformer/lessons/pirate.json: the answers of SmolLM2-135M before and after LoRA, in several settings.

The script adds the runs that are missing in the file. To repeat all runs, delete the file first.

uv run --extra pretrained --extra chat python tests/data/make_pirate.py      takes about an hour
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
OPENING = "Arr, it be"  # the first words of all four example answers
SETTINGS: dict[str, dict] = {
    "before": {},
    "before, with the opening": {"opening": OPENING},
    "rank 4, 12 steps": {},
    "rank 1, 12 steps": {"r": 1},
    "rank 4, 6 steps": {"steps": 6},
    "rank 4, 12 steps, rate × 4": {"learning_rate": 8e-3},
}
N_SEEDS = {"before": 1, "before, with the opening": 1}  # these runs draw no random numbers
N_SEEDS_OF_AN_ADAPTER = 10


def run(name, seed, chat_model):
    """Train in one setting with one seed ("before": not at all). Return the final loss and the answers."""
    params, config, tokenizer = chat_model
    settings = dict(SETTINGS[name])
    opening = settings.pop("opening", "")
    loss = None
    if not name.startswith("before"):
        rng = np.random.default_rng(seed)
        adapter, loss = pirate.train_pirate(params, config, tokenizer, rng, **settings)
        loss = round(loss, 3)
        params = merge_adapter(params, adapter)
    answers = {q: pirate.ask(q, params, config, tokenizer, opening=opening) for q in pirate.QUESTIONS}
    return {"loss": loss, "answers": answers}


def main():
    """Train in every setting with every seed, and write the answers after each run."""
    chat_model = npf.load_gguf(find_chat_file())
    found = pirate.read_results() if FILE.exists() else {}
    for name in SETTINGS:
        runs = found.setdefault(name, [])
        for seed in range(len(runs), N_SEEDS.get(name, N_SEEDS_OF_AN_ADAPTER)):
            runs.append(run(name, seed, chat_model))
            FILE.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            answers = runs[-1]["answers"]
            n_pirate = sum(map(pirate.is_pirate, answers.values()))
            print(name, seed, runs[-1]["loss"], pirate.count_correct(answers), n_pirate, flush=True)


if __name__ == "__main__":
    main()
