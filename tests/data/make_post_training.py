"""Write npformer/lessons/sorter.json: what the sorter of lesson 12 learns with ten seeds.

uv run python tests/data/make_post_training.py                takes about twenty minutes
"""

import json
import os
from pathlib import Path

os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")  # before NumPy is imported

import numpy as np

from npformer.lessons import sorter
from npformer.lessons.sorter import (
    reward_ascending,
    reward_exact,
    reward_exact_plus_one,
    score,
    share_found,
    train_by_imitation,
    train_by_reward,
)


def reward_digits(prompts, answers):
    """Return the share of the prompt's digits that occur anywhere in the answer (exercise 3)."""
    digits = prompts[:, : sorter.N_DIGITS, None]
    return (digits == answers[:, None, :]).any(axis=2).mean(axis=1).astype(np.float32)


FILE = Path(sorter.__file__).with_suffix(".json")
SEEDS = range(10)
RUNS = {
    "reward": (reward_exact, {}),
    "R, no baseline": (reward_exact, {"has_baseline": False}),
    "R + 1, no baseline": (reward_exact_plus_one, {"has_baseline": False}),
    "one update": (reward_exact, {"steps": 100}),
    "four updates, clipped": (reward_exact, {"steps": 100, "n_updates": 4}),
    "four updates, wide limit": (reward_exact, {"steps": 100, "n_updates": 4, "epsilon": 0.999}),
    "four updates, quarter rate": (
        reward_exact,
        {"steps": 100, "n_updates": 4, "learning_rate": 5e-4},
    ),
    "four updates, quarter rate, wide limit": (
        reward_exact,
        {"steps": 100, "n_updates": 4, "learning_rate": 5e-4, "epsilon": 0.999},
    ),
    "ascending": (reward_ascending, {"steps": 150}),
    "ascending with KL": (reward_ascending, {"steps": 150, "beta": 0.5}),
    "ascending, beta 0.05": (reward_ascending, {"steps": 150, "beta": 0.05}),
    "ascending, beta 5": (reward_ascending, {"steps": 150, "beta": 5.0}),
    "digits": (reward_digits, {"steps": 150}),
}


def rounded_score(params):
    """Return the score of a model as a dict, rounded to three decimals."""
    shares = {**score(params)._asdict(), "found": share_found(params, np.random.default_rng(98))}
    return {name: round(share, 3) for name, share in shares.items()}


def main():
    """Run every setting with every seed, and write the scores."""
    found = {name: [] for name in ("imitation", "more imitation", *RUNS)}
    for seed in SEEDS:
        imitated = train_by_imitation(np.random.default_rng(seed))
        found["imitation"].append(rounded_score(imitated))
        imitated_longer = train_by_imitation(np.random.default_rng(seed), steps=340)
        found["more imitation"].append(rounded_score(imitated_longer))
        for name, (reward, settings) in RUNS.items():
            trained = train_by_reward(imitated, reward, np.random.default_rng(seed), **settings)
            found[name].append(rounded_score(trained))
            print(seed, name, found[name][-1], flush=True)
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
