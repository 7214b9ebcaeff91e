"""The sorter of lesson 12: its rewards and gradients, and what ten seeds have learned."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import npformer as npf
from npformer.lessons import reveal, sorter

FILE = Path(sorter.__file__).with_suffix(".json")
SCORES = json.loads(FILE.read_text(encoding="utf-8"))
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
LESSON = json.loads((NOTEBOOKS / "12_taught_by_reward.ipynb").read_text(encoding="utf-8"))


def shares(name, field):
    """Return the share in a field, such as "exact", for each seed of a setting."""
    return np.array([run[field] for run in SCORES[name]])


def exact(name):
    """Return the share of correct answers for each seed of a setting."""
    return shares(name, "exact")


# --- the task -----------------------------------------------------------------------------------------


def test_rewards_by_hand():
    prompts = np.array([[3, 1, 2, 1, 10], [3, 1, 2, 1, 10], [3, 1, 2, 1, 10]])
    answers = np.array([[1, 1, 2, 3], [7, 7, 7, 7], [1, 2, 1, 3]])
    np.testing.assert_array_equal(sorter.sorted_digits(prompts)[0], answers[0])
    np.testing.assert_array_equal(sorter.reward_exact(prompts, answers), [1, 0, 0])
    np.testing.assert_array_equal(sorter.reward_exact_plus_one(prompts, answers), [2, 1, 1])
    np.testing.assert_allclose(sorter.reward_ascending(prompts, answers), [1, 1, 2 / 3], rtol=1e-6)


def test_answer_log_probs_equal_those_of_the_logits():
    params = npf.init_causal_lm(sorter.VOCAB_SIZE, sorter.CONFIG, np.random.default_rng(0))
    ids = np.array([[3, 1, 2, 1, 10, 1, 1, 2, 3]])
    log_p, _ = sorter.answer_log_probs(params, ids)
    logits, _ = npf.causal_lm_forward(ids, params, sorter.CONFIG)
    p = np.exp(logits[0]) / np.exp(logits[0]).sum(axis=-1, keepdims=True)
    expected = [p[position, ids[0, position + 1]] for position in range(4, 8)]
    np.testing.assert_allclose(np.exp(log_p[0]), expected, rtol=1e-12)


def test_answer_log_probs_gradient_equals_finite_difference():
    params = npf.init_causal_lm(sorter.VOCAB_SIZE, sorter.CONFIG, np.random.default_rng(0))
    ids = np.array([[3, 1, 2, 1, 10, 1, 1, 2, 3]])
    _, backward = sorter.answer_log_probs(params, ids)
    grads = backward(np.ones((1, 4)))
    step = 1e-6
    sums = []
    for sign in (1, -1):
        moved = npf.tree_map(lambda a, sign=sign: a + sign * step, params)
        sums.append(sorter.answer_log_probs(moved, ids)[0].sum())
    slope = sum(g.sum() for _, g in npf.leaves(grads))
    assert (sums[0] - sums[1]) / (2 * step) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("settings", [{}, {"has_baseline": False, "n_updates": 2, "beta": 0.5}])
def test_training_changes_finite_parameters(settings):
    imitated = sorter.train_by_imitation(np.random.default_rng(0), steps=2)
    trained = sorter.train_by_reward(
        imitated, sorter.reward_ascending, np.random.default_rng(0), steps=2, **settings
    )
    pairs = zip(npf.leaves(imitated), npf.leaves(trained), strict=True)
    assert all(np.isfinite(b).all() and not np.array_equal(a, b) for (_, a), (_, b) in pairs)
    assert all(0 <= share <= 1 for share in sorter.score(trained))


@pytest.mark.parametrize(("settings", "is_changed"), [
    ({}, False),  # each reward minus the mean is 0
    ({"has_baseline": False}, True),
    ({"has_baseline": False, "learning_rate": 0.0}, False),
])  # fmt: skip
def test_equal_rewards_teach_only_without_baseline(settings, is_changed):
    def always_one(prompts, answers):
        return np.ones(len(answers), dtype=np.float32)

    imitated = sorter.train_by_imitation(np.random.default_rng(0), steps=1)
    trained = sorter.train_by_reward(imitated, always_one, np.random.default_rng(0), steps=1, **settings)
    pairs = zip(npf.leaves(imitated), npf.leaves(trained), strict=True)
    assert any(not np.array_equal(a, b) for (_, a), (_, b) in pairs) == is_changed


# --- the claims, with ten seeds -----------------------------------------------------------------------


def test_reward_teaches_more_than_imitation():
    assert len(SCORES["reward"]) == 10
    assert (exact("reward") > exact("imitation") + 0.25).all()
    assert (exact("more imitation") > exact("reward") + 0.2).all()


def test_reward_finds_more_than_sixteen_attempts_before():
    assert (exact("reward") > shares("imitation", "found")).sum() == 9
    assert (shares("reward", "found") < exact("reward") + 0.15).all()


def test_reward_without_baseline_needs_zero_for_wrong_answers():
    """With the rewards 1 and 0, the model learns equally well with and without the mean as a baseline.

    With the rewards 2 and 1, wrong answers become more probable too, and hardly any answer is correct.
    """
    assert len(SCORES["R, no baseline"]) == len(SCORES["R + 1, no baseline"]) == 10
    assert (exact("R, no baseline") > exact("imitation") + 0.25).all()
    assert abs(exact("R, no baseline").mean() - exact("reward").mean()) < 0.03
    assert exact("R + 1, no baseline").max() < 0.02


def test_four_updates_need_clipping_or_a_smaller_rate():
    one, clipped = exact("one update"), exact("four updates, clipped")
    wide, quarter = exact("four updates, wide limit"), exact("four updates, quarter rate")
    assert len(one) == len(clipped) == len(wide) == len(quarter) == 10
    assert (clipped > wide).sum() == 9 and clipped.mean() > wide.mean() + 0.1
    assert (one > clipped).all() and (quarter > one).sum() == 9


def test_clipping_matters_less_at_quarter_rate():
    clipped, wide = exact("four updates, quarter rate"), exact("four updates, quarter rate, wide limit")
    assert len(clipped) == len(wide) == 10
    assert (clipped > wide).sum() == 7 and clipped.mean() - wide.mean() == pytest.approx(0.03, abs=0.005)


def test_reward_without_digits_is_hacked():
    """The answers are ascending, but hardly any answer is correct.

    With the KL term, the share of correct answers does not fall as far, but it does not grow either.
    """
    assert (shares("ascending", "ascending") == 1).all() and exact("ascending").max() == 0.004
    assert (shares("ascending", "one_digit") > 0.5).sum() == 9
    assert (exact("ascending with KL") > exact("ascending") + 0.1).all()
    assert (exact("ascending with KL") < exact("imitation") + 0.01).all()


@pytest.mark.parametrize(("answer", "setting", "field", "sentence"), [
    ("12.6a", "imitation", "exact", "only {} to 38 % are correct, depending on the seed"),
    ("12.6a", "imitation", "exact", "Ten stored seeds gave {} to {} %"),
    ("12.10a", "more imitation", "exact", "imitation sorts better: {} to {} % of its answers are correct"),
    ("12.10a", "reward", "exact", "With reward, {} to {} % are correct"),
    ("12.10a", "imitation", "found", "16 attempts find a correct answer for {} to {} % of the prompts"),
    ("12.10a", "reward", "found", "it now finds a correct answer for only {} to {} % of the prompts"),
])  # fmt: skip
def test_answers_quote_the_stored_ranges(answer, setting, field, sentence):
    percent = sorter.read_results(setting, field)
    least, most = (math.floor(end + 0.5) for end in (min(percent), max(percent)))
    assert sentence.format(least, most) in reveal(answer).text


def test_answer_quotes_the_stored_means():
    ends = [math.floor(100 * exact(name).mean() + 0.5) for name in ("R, no baseline", "reward")]
    sentence = "{} % of the answers are correct on average, compared with {} %"
    assert sentence.format(*ends) in reveal("12.7d").text


def test_lesson_quotes_the_stored_updates():
    (cell,) = [cell for cell in LESSON["cells"] if cell["id"] == "l12-8-controls"]
    ranges = {
        "four updates, clipped": "{} to {} % of the answers are correct",
        "one update": "compared with {} to {} % with one update",
        "four updates, quarter rate": "learning rate, four updates give {} to {} %",
        "four updates, quarter rate, wide limit": "With the wide limit, four updates give {} to {} %",
    }
    for name, sentence in ranges.items():
        percent = sorter.read_results(name)
        ends = [math.floor(end + 0.5) for end in (min(percent), max(percent))]
        assert sentence.format(*ends) in "".join(cell["source"])


def test_lesson_quotes_the_stored_exercises():
    (cell,) = [cell for cell in LESSON["cells"] if cell["id"] == "l12-known"]
    ranges = {
        ("digits", "ascending"): "With ten seeds, {} to {} % of the answers ascend",
        ("imitation", "ascending"): "compared with {} to {} % after imitation",
        ("digits", "exact"): "{} to {} % of the answers are correct. For each of the ten seeds",
        ("ascending, beta 5", "exact"): "With ten seeds, {} to {} % of the answers are correct",
        ("ascending, beta 5", "ascending"): "and {} to {} % ascend: the model hardly moves",
        ("ascending with KL", "exact"): "With 0.5, {} to {} % are correct",
        ("ascending with KL", "ascending"): "and {} to {} % ascend. With 0.05",
        ("ascending, beta 0.05", "exact"): "all answers ascend, but only {} to {} % are correct",
    }
    for (name, field), sentence in ranges.items():
        percent = sorter.read_results(name, field)
        ends = [math.floor(end + 0.5) for end in (min(percent), max(percent))]
        assert len(percent) == 10 and sentence.format(*ends) in "".join(cell["source"])
    assert (shares("ascending, beta 0.05", "ascending") == 1).all()
    assert (exact("digits") > exact("imitation")).all()  # "for each of the ten seeds"


def test_share_found_counts_prompts_with_a_correct_sample():
    params = sorter.train_by_imitation(np.random.default_rng(0), steps=1)
    assert 0 <= sorter.share_found(params, np.random.default_rng(0), n_prompts=4) <= 1
