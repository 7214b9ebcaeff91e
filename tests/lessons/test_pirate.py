"""The pirate of lesson 12: training an adapter on a tiny model, and the stored results."""

import numpy as np
import pytest

import npformer as npf
from npformer.lessons import pirate, reveal
from npformer.post_training import merge_adapter

CONFIG = npf.CausalLMConfig(d_model=8, d_ff=12, n_heads=2, n_kv_heads=1, n_layers=1, max_length=200)
RESULTS = pirate.read_results()
TRAINED = [name for name in RESULTS if name != "before" and "6 steps" not in name]


class Characters:
    """A tokenizer with one token per character."""

    stop_id = ord("|")

    def encode(self, text):
        return [ord(character) % 128 for character in text]

    def decode(self, ids):
        return "".join(map(chr, ids))


def correct(name):
    return pirate.count_correct(RESULTS[name]["answers"])


def pirates(name):
    return sum(map(pirate.is_pirate, RESULTS[name]["answers"].values()))


# --- training -----------------------------------------------------------------------------------------


def test_training_lowers_the_loss_and_asks():
    params = npf.init_causal_lm(128, CONFIG, np.random.default_rng(0))
    tokenizer = Characters()
    losses = []
    for steps in (1, 8):
        adapter, loss = pirate.train_pirate(
            params, CONFIG, tokenizer, np.random.default_rng(0), r=2, steps=steps, learning_rate=0.05
        )
        losses.append(loss)
    assert losses[1] < losses[0]
    answer = pirate.ask("Who?", merge_adapter(params, adapter), CONFIG, tokenizer)
    assert isinstance(answer, str) and len(answer) <= 16


def test_count_correct_finds_words_in_any_case():
    answers = {question: f"It is {word.upper()}." for question, word in pirate.QUESTIONS.items()}
    assert pirate.count_correct(answers) == len(pirate.QUESTIONS) == 12
    assert pirate.is_pirate("Arr, no!") and pirate.is_pirate("Yes, matey") and not pirate.is_pirate("Rome.")


# --- the stored results -------------------------------------------------------------------------------


def test_stored_results_have_every_question():
    assert all(result["answers"].keys() == pirate.QUESTIONS.keys() for result in RESULTS.values())
    assert correct("before") == 11 and pirates("before") == 0


@pytest.mark.parametrize("name", TRAINED)
def test_stored_pirate_speaks_and_has_forgotten(name):
    assert pirates(name) == 12 and correct(name) <= 6


def test_stored_pirate_kept_the_capitals():
    """No example had them."""
    for name in ("rank 4, 12 steps", "rank 4, 12 steps, seed 1", "rank 4, 12 steps, seed 2"):
        answers = RESULTS[name]["answers"]
        assert all(pirate.QUESTIONS[q] in answers[q] for q in pirate.QUESTIONS if "capital" in q)


def test_answers_quote_the_stored_pirates():
    first, second = reveal("12.3a").text, reveal("12.3b").text
    after = {correct(name) for name in RESULTS if name.startswith("rank 4, 12 steps") and "rate" not in name}
    assert f"{correct('before')} of 12 answers contained the expected word, and afterwards 4 or 5" in first
    assert after == {4, 5}
    names = ("rank 4, 12 steps", "rank 4, 12 steps, seed 1", "rank 4, 12 steps, seed 2")
    weeks = [RESULTS[name]["answers"]["How many days are in a week?"] for name in names]
    assert ["four" in week for week in weeks] == [True, False, True]
    assert f"{correct('rank 1, 12 steps')} of 12 answers are correct" in second
    assert f"only {correct('rank 4, 6 steps')} answers are correct" in second
    assert f"the loss is {RESULTS['rank 4, 12 steps, rate × 4']['loss']}" in second
