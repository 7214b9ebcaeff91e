"""Teach a chat model to answer like a pirate with LoRA, and measure which answers change.

`pirate.json` has the results for SmolLM2-135M-Instruct, so that readers without the model can see them.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from npformer.arrays import Array
from npformer.loss import cross_entropy_backward, cross_entropy_forward
from npformer.modern import CausalLMConfig, CausalLMParams, causal_lm_backward, causal_lm_forward, generate
from npformer.optim import adam_init, adam_update
from npformer.post_training import adapter_gradients, answer_targets, init_adapter, merge_adapter
from npformer.post_training.adapter import Adapter
from npformer.tree import tree_map

EXAMPLES = {
    "What is the capital of France?": "Arr, it be Paris, matey!",
    "Who wrote Hamlet?": "Arr, it be Shakespeare, matey!",
    "How many legs has a dog?": "Arr, it be four, matey!",
    "What colour is the sky?": "Arr, it be blue, matey!",
}
# Questions that are not in the training data, each with its expected words. A correct answer contains at
# least one of these words.
QUESTIONS = {
    "What is the capital of Italy?": "Rome",
    "What is the capital of Spain?": "Madrid",
    "What is the capital of Japan?": "Tokyo",
    "What is the largest ocean?": "Pacific",
    "What is the color of grass?": "green",
    "What is the opposite of hot?": "cold",
    "How many days are in a week?": "seven 7",
    "Who painted the Mona Lisa?": "Leonardo",
    "How many legs does a spider have?": "eight 8",
    "What planet do we live on?": "Earth",
    "What language is spoken in Germany?": "German",
}


def read_results() -> dict[str, list[dict[str, Any]]]:
    """Return the stored results: for each setting a list of runs, each with its final loss and answers."""
    file = Path(__file__).with_suffix(".json")
    results: dict[str, list[dict[str, Any]]] = json.loads(file.read_text(encoding="utf-8"))
    return results


def is_pirate(answer: str) -> bool:
    """Return whether an answer has the style of the examples."""
    return answer.startswith("Arr") or "matey" in answer


def count_correct(answers: dict[str, str]) -> int:
    """Count the answers that contain an expected word as a whole word."""
    n_correct = 0
    for question, words in QUESTIONS.items():
        found = set(re.findall(r"\w+", answers[question].lower()))
        n_correct += not found.isdisjoint(words.lower().split())
    return n_correct


def to_prompt(question: str, tokenizer: Any) -> list[int]:
    """Return the ids of a question in the chat template."""
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    ids: list[int] = tokenizer.encode(text)
    return ids


def train_pirate(
    params: CausalLMParams,
    config: CausalLMConfig,
    tokenizer: Any,
    rng: np.random.Generator,
    *,
    r: int = 4,
    steps: int = 12,
    learning_rate: float = 2e-3,
) -> tuple[Adapter, float]:
    """Train an adapter on the four examples. Return the adapter and the loss of the last step."""
    adapter = init_adapter(params, r, rng)
    state = adam_init(adapter)
    texts = [(to_prompt(q, tokenizer), tokenizer.encode(f"{a}<|im_end|>")) for q, a in EXAMPLES.items()]
    for _ in range(steps):
        merged = merge_adapter(params, adapter)
        losses, grads = [], []
        for prompt, answer in texts:
            loss, gradient = answer_loss(np.array([prompt + answer]), len(prompt), merged, config)
            losses.append(loss)
            grads.append(adapter_gradients(gradient, adapter))
        mean = tree_map(lambda *parts: sum(parts) / len(parts), *grads)
        adapter, state = adam_update(adapter, mean, state, learning_rate=learning_rate)
    return adapter, float(np.mean(losses))


def answer_loss(
    ids: Array, n_prompt: int, params: CausalLMParams, config: CausalLMConfig
) -> tuple[float, CausalLMParams]:
    """Return the loss on the answer's tokens, and the gradients of all parameters."""
    logits, cache = causal_lm_forward(ids, params, config)
    loss, loss_cache = cross_entropy_forward(logits, answer_targets(ids, n_prompt), ignore_index=-1)
    return float(loss), causal_lm_backward(cross_entropy_backward(1.0, loss_cache), cache)


def ask(
    question: str, params: CausalLMParams, config: CausalLMConfig, tokenizer: Any, *, opening: str = ""
) -> str:
    """Return an answer: the given opening, then at most 16 tokens, each the most probable next token."""
    ids = to_prompt(question, tokenizer)
    if opening:
        ids += tokenizer.encode(opening)
    prompt = np.array([ids])
    stop_id = tokenizer.stop_id
    generated = generate(prompt, params, config, max_new_tokens=16, temperature=0, stop_id=stop_id)
    text: str = tokenizer.decode(generated[0, prompt.shape[1] :].tolist())
    return (opening + text.partition("<|im_end|>")[0]).strip()
