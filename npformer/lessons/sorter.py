"""A small causal model that learns to sort four digits: by imitation, and by reward.

A prompt is four digits and a separator. The answer is the same digits in ascending order. The file
`sorter.json` contains the scores of models that were trained with ten seeds, in several settings.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.loss import cross_entropy_backward, cross_entropy_forward
from npformer.modern import (
    CausalLMConfig,
    CausalLMParams,
    causal_lm_backward,
    causal_lm_forward,
    generate,
    init_causal_lm,
)
from npformer.optim import adam_init, adam_update
from npformer.post_training import (
    answer_targets,
    group_advantages,
    grpo_backward,
    grpo_forward,
    token_log_probs_backward,
    token_log_probs_forward,
)

N_DIGITS = 4
SEPARATOR = 10
VOCAB_SIZE = 11
N_PROMPT = N_DIGITS + 1
CONFIG = CausalLMConfig(d_model=32, d_ff=64, n_heads=4, n_kv_heads=4, n_layers=2, max_length=16)
N_PROMPTS, GROUP = 8, 16  # the prompts of one step, and the answers to each of them


class Score(NamedTuple):
    """The shares of 500 answers that have a property. The model answers with its most probable tokens."""

    exact: float  # correct answers
    ascending: float  # answers in ascending order, with whatever digits
    one_digit: float  # answers that repeat one digit


def draw_prompts(n: int, rng: np.random.Generator) -> Array:
    """Draw n prompts: four random digits and the separator, (n, 5)."""
    digits = rng.integers(0, 10, (n, N_DIGITS))
    return np.hstack([digits, np.full((n, 1), SEPARATOR)])


def sorted_digits(prompts: Array) -> Array:
    """Return the correct answers to prompts: (n, 5) -> (n, 4)."""
    return np.sort(prompts[:, :N_DIGITS], axis=1)


def reward_exact(prompts: Array, answers: Array) -> Array:
    """Return 1 for each correct answer, and 0 otherwise."""
    return (answers == sorted_digits(prompts)).all(axis=1).astype(np.float32)


def reward_exact_plus_one(prompts: Array, answers: Array) -> Array:
    """Return 2 for each correct answer, and 1 otherwise."""
    return reward_exact(prompts, answers) + np.float32(1)


def reward_ascending(prompts: Array, answers: Array) -> Array:
    """Return the share of neighbouring digits in each answer that do not descend, whatever the prompt is."""
    return (np.diff(answers, axis=1) >= 0).mean(axis=1).astype(np.float32)


def score(params: CausalLMParams) -> Score:
    """Measure a model on 500 prompts, which are the same in every call."""
    prompts = draw_prompts(500, np.random.default_rng(99))
    answers = generate(prompts, params, CONFIG, max_new_tokens=N_DIGITS, temperature=0)[:, N_PROMPT:]
    exact = reward_exact(prompts, answers).mean(dtype=np.float64)
    ascending = (np.diff(answers, axis=1) >= 0).all(axis=1).mean()
    one_digit = (answers[:, 1:] == answers[:, :-1]).all(axis=1).mean()
    return Score(float(exact), float(ascending), float(one_digit))


def share_found(params: CausalLMParams, rng: np.random.Generator, *, n_prompts: int = 200) -> float:
    """Return the share of new prompts with at least one correct answer among 16 sampled answers (pass@16)."""
    prompts = np.repeat(draw_prompts(n_prompts, rng), GROUP, axis=0)
    answers = generate(prompts, params, CONFIG, max_new_tokens=N_DIGITS, rng=rng)[:, N_PROMPT:]
    is_correct = reward_exact(prompts, answers).reshape(n_prompts, GROUP) == 1
    return float(is_correct.any(axis=1).mean())


def read_results(name: str, field: str = "exact") -> list[float]:
    """Return the stored results of ten seeds in percent: a field of `Score`, or "found" (`share_found`)."""
    file = Path(__file__).with_suffix(".json")
    runs = json.loads(file.read_text(encoding="utf-8"))[name]
    return [round(100 * run[field], 1) for run in runs]


def train_by_imitation(rng: np.random.Generator, *, steps: int = 40) -> CausalLMParams:
    """Train a new model on correct answers. Only the tokens of the answers contribute to the loss."""
    params = init_causal_lm(VOCAB_SIZE, CONFIG, rng, dtype=np.float32)
    state = adam_init(params)
    for step in range(1, steps + 1):
        prompts = draw_prompts(32, rng)
        ids = np.hstack([prompts, sorted_digits(prompts)])
        logits, cache = causal_lm_forward(ids, params, CONFIG)
        _, loss_cache = cross_entropy_forward(logits, answer_targets(ids, N_PROMPT), ignore_index=-1)
        grads = causal_lm_backward(cross_entropy_backward(1.0, loss_cache), cache)
        rate = 3e-3 * min(1, step / 20)
        params, state = adam_update(params, grads, state, learning_rate=rate)
    return params


def answer_log_probs(params: CausalLMParams, ids: Array) -> tuple[Array, Callable[[Array], CausalLMParams]]:
    """Return log π of each answer token (n, 4), and the backward function.

    The backward function maps the gradient of these numbers to the gradients of the parameters.
    """
    logits, cache = causal_lm_forward(ids, params, CONFIG)
    targets = answer_targets(ids, N_PROMPT)
    all_log_p, log_p_cache = token_log_probs_forward(logits, targets, ignore_index=-1)  # (n, 9)
    is_answer = slice(N_DIGITS, -1)

    def backward(dlog_p: Array) -> CausalLMParams:
        dall_log_p = np.zeros_like(all_log_p)
        dall_log_p[:, is_answer] = dlog_p
        return causal_lm_backward(token_log_probs_backward(dall_log_p, log_p_cache), cache)

    return all_log_p[:, is_answer], backward


def train_by_reward(
    params: CausalLMParams,
    reward: Callable[[Array, Array], Array],
    rng: np.random.Generator,
    *,
    steps: int = 300,
    has_baseline: bool = True,
    n_updates: int = 1,
    learning_rate: float = 2e-3,
    epsilon: float = 0.2,
    beta: float = 0.0,
) -> CausalLMParams:
    """Train with GRPO: sample 16 answers to each of 8 prompts, and make the better ones more probable.

    Without a baseline, the rewards themselves are the advantages.
    """
    reference = params
    state = adam_init(params)
    for _ in range(steps):
        prompts = np.repeat(draw_prompts(N_PROMPTS, rng), GROUP, axis=0)
        ids = generate(prompts, params, CONFIG, max_new_tokens=N_DIGITS, rng=rng)
        rewards = reward(prompts, ids[:, N_PROMPT:]).reshape(N_PROMPTS, GROUP)
        advantages = group_advantages(rewards) if has_baseline else rewards
        log_p_ref, _ = answer_log_probs(reference, ids)
        log_p_old, _ = answer_log_probs(params, ids)
        for _ in range(n_updates):
            log_p, backward = answer_log_probs(params, ids)
            _, cache = grpo_forward(
                log_p, log_p_old=log_p_old, log_p_ref=log_p_ref, advantages=advantages.reshape(-1, 1),
                epsilon=epsilon, beta=beta,
            )  # fmt: skip
            grads = backward(grpo_backward(1.0, cache))
            params, state = adam_update(params, grads, state, learning_rate=learning_rate)
    return params
