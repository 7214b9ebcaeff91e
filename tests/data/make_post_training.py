"""Write post_training.json: what the sorter of lesson 12 learns with five seeds.

uv run python tests/data/make_post_training.py                takes about six minutes
"""

import json
import os
from pathlib import Path

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")  # before NumPy is imported

import numpy as np

from npformer.lessons.sorter import (
    reward_ascending,
    reward_exact,
    score,
    train_by_imitation,
    train_by_reward,
)

FILE = Path(__file__).parent / "post_training.json"
SEEDS = range(5)
RUNS = {
    "reward": (reward_exact, {}),
    "without the mean": (reward_exact, {"is_centred": False}),
    "four updates, clipped": (reward_exact, {"steps": 100, "n_updates": 4}),
    "four updates, not clipped": (reward_exact, {"steps": 100, "n_updates": 4, "epsilon": 0.999}),
    "ascending": (reward_ascending, {"steps": 150}),
    "ascending with KL": (reward_ascending, {"steps": 150, "beta": 0.5}),
}


def rounded_score(params):
    """Return the score of a model as a dict, with three digits."""
    return {name: round(share, 3) for name, share in score(params)._asdict().items()}


def main():
    """Run every setting with every seed, and write the scores."""
    found = {name: [] for name in ("imitation", *RUNS)}
    for seed in SEEDS:
        imitated = train_by_imitation(np.random.default_rng(seed))
        found["imitation"].append(rounded_score(imitated))
        for name, (reward, settings) in RUNS.items():
            trained = train_by_reward(imitated, reward, np.random.default_rng(seed), **settings)
            found[name].append(rounded_score(trained))
            print(seed, name, found[name][-1], flush=True)
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
