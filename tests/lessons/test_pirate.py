"""The pirate of lesson 12: training an adapter on a tiny model, and the stored results."""

import re

import numpy as np
import pytest

import npformer as npf
from npformer.lessons import pirate, reveal
from npformer.post_training import merge_adapter

CONFIG = npf.CausalLMConfig(d_model=8, d_ff=12, n_heads=2, n_kv_heads=1, n_layers=1, max_length=200)
RESULTS = pirate.read_results()
TRAINED = [name for name in RESULTS if not name.startswith("before") and "6 steps" not in name]
MAIN = "rank 4, 12 steps"


class Characters:
    """A tokenizer with one token per character."""

    stop_id = ord("|")

    def encode(self, text):
        return [ord(character) % 128 for character in text]

    def decode(self, ids):
        return "".join(map(chr, ids))


def correct(name):
    """Return the number of correct answers of each run."""
    return [pirate.count_correct(run["answers"]) for run in RESULTS[name]]


def pirates(name):
    """Return the number of answers in the style of the examples, for each run."""
    return [sum(map(pirate.is_pirate, run["answers"].values())) for run in RESULTS[name]]


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


def test_ask_continues_the_opening():
    params = npf.init_causal_lm(128, CONFIG, np.random.default_rng(0))
    answer = pirate.ask("Who?", params, CONFIG, Characters(), opening="Arr!")
    ids = pirate.to_prompt("Who?", Characters()) + Characters().encode("Arr!")
    logits, _ = npf.causal_lm_forward(np.array([ids]), params, CONFIG)
    assert answer.startswith("Arr!" + chr(logits[0, -1].argmax())) and len(answer) <= 4 + 16


def test_count_correct_finds_words_in_any_case():
    answers = {question: f"It is {word.upper()}." for question, word in pirate.QUESTIONS.items()}
    assert pirate.count_correct(answers) == len(pirate.QUESTIONS) == 11
    assert pirate.count_correct({**answers, "What language is spoken in Germany?": "Germany"}) == 10
    assert pirate.is_pirate("Arr, no!") and pirate.is_pirate("Yes, matey") and not pirate.is_pirate("Rome.")


# --- the stored results -------------------------------------------------------------------------------


def test_no_example_has_the_answer_to_a_question():
    texts = " ".join([*pirate.EXAMPLES, *pirate.EXAMPLES.values()]).lower()
    trained = set(re.findall(r"\w+", texts))
    assert trained.isdisjoint(" ".join(pirate.QUESTIONS.values()).lower().split())


def test_stored_results_have_every_question():
    runs = [run for runs in RESULTS.values() for run in runs]
    assert all(run["answers"].keys() == pirate.QUESTIONS.keys() for run in runs)
    assert correct("before") == [10] and pirates("before") == [0]


@pytest.mark.parametrize("name", TRAINED)
def test_stored_pirate_speaks_and_is_mostly_wrong(name):
    assert set(pirates(name)) == {11} and max(correct(name)) <= 5


def test_opening_alone_makes_answers_wrong():
    """This control has no training: every answer begins with the given words "Arr, it be"."""
    runs = RESULTS["before, with the opening"]
    assert all(answer.startswith("Arr, it be") for answer in runs[0]["answers"].values())
    assert correct("before, with the opening") == [5]
    assert max(correct(MAIN)) <= 5


def test_stored_pirate_kept_most_capitals():
    """The trained model still knows most capitals, though no training example contains their names."""
    found = {}
    for question in ("Italy", "Japan", "Spain"):
        (key,) = [q for q in pirate.QUESTIONS if question in q]
        found[question] = sum(pirate.QUESTIONS[key] in run["answers"][key] for run in RESULTS[MAIN])
    assert found == {"Italy": 10, "Japan": 10, "Spain": 8}
    assert sum("Barcelona" in str(run["answers"]) for run in RESULTS[MAIN]) == 2


def test_answers_quote_the_stored_pirates():
    first, second = reveal("12.3a").text, reveal("12.3b").text
    (before,), after = correct("before"), correct(MAIN)
    assert f"{before} of 11 answers contained the expected word" in first and set(after) == {4, 5}
    assert f"the control has only {correct('before, with the opening')[0]} correct answers" in first
    weeks = [run["answers"]["How many days are in a week?"] for run in RESULTS[MAIN]]
    assert "four" in weeks[0] and sum("four" in week for week in weeks) == 3
    assert "With three, a week has four days" in first
    short, quick = correct("rank 4, 6 steps"), correct("rank 4, 12 steps, rate × 4")
    assert f"only {min(short)} or {max(short)} answers are correct" in second
    quick_losses = [run["loss"] for run in RESULTS["rank 4, 12 steps, rate × 4"]]
    assert f"the loss is {min(quick_losses)} to {max(quick_losses)}" in second
    assert f"only {min(quick)} to {max(quick)} other answers are correct" in second
    means = {name: np.mean(correct(name)) for name in RESULTS if name.startswith("rank")}
    assert all(len(RESULTS[name]) == 10 for name in means) and max(means, key=means.__getitem__) == MAIN
