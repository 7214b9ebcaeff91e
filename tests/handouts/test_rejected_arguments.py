"""Test that functions for lessons, player and handouts reject wrong arguments.

Each line of the tables has a call and the beginning of its error message.
"""

import importlib
import re

import numpy as np
import pytest
from valid_calls import replaced

from npformer import encoder_block_forward
from npformer.lessons.worked_example import dog_bites_man

WRONG_VALUE = """
example_from_name(" ") | example_from_name: the name is empty
worksheet_pages("A", paper="a5") | worksheet_pages: paper is 'a5'; expected one of 'a4', 'letter'
worksheet_pages("A", minutes=20) | worksheet_pages: minutes is 20; expected 15, 30, 45 or None
save_worksheet("A", "folder.pdf") | 'folder.pdf' is a folder; expected a file
save_worksheet("A", "sheet.png") | 'sheet.png' should end in one of .pdf, .html
save_worksheet("A", "sheet.pdf.txt") | 'sheet.pdf.txt' should end in one of .pdf, .html
play().save("play.pdf") | 'play.pdf' should end in .html
play(at="u") | play: at is 'u'; the trace has no step 'u'
play(at="ffn.z,18") | play: at is 'ffn.z,18'; expected a cell of ffn.z from 0 to 17
play(at="ffn.z,-1") | play: at is 'ffn.z,-1'; expected a cell of ffn.z from 0 to 17
play(at="ffn.z, 1") | play: at is 'ffn.z, 1'; expected a cell of ffn.z from 0 to 17
play(variants=["post-norm"]) | play: a variant is 'post-norm'; expected
play(marks=[Mark("ffn.z", 18, 1.0, 2.0)]) | play: at is 'ffn.z,18'; expected a cell
compare({"x_hat": W}) | compare: mine holds 'x_hat'; norm_1.x_hat and norm_2.x_hat have this name
compare({"zz": W}) | compare: mine holds 'zz'; expected one of E, embedding
compare({"a": 1}, {"a": 2}).play() | play: only a trace can be played
worked_example(update="rmsprop") | worked_example: update is 'rmsprop'
worked_example(learning_rate=inf) | worked_example: learning_rate is inf
worked_example(decimals=0) | worked_example: decimals is 0; expected
worked_example(decimals=9) | worked_example: decimals is 9; expected
worked_example(rope) | worked_example: config.positions is 'rope'; the trace shows 'sinusoidal' only
worked_example(biased) | worked_example: attention has b_Q, b_O; the trace shows no attention biases
worked_example(narrow) | worked_example: ffn.b_2 has shape (1,); expected (d_model) = (4,)
encode([["dog"], []], {"dog": 0}) | encode: '<pad>' is not in the vocabulary
decode(np.array([5]), {"dog": 0}) | decode: ids has shape (1,); expected (B, T)
order_task([3, 2], rng) | order_task: lengths[1] is 2; expected an integer of at least 3
order_task([3], rng, n_test=0) | order_task: n_test is 0; expected
order_task([3], rng, n_test=4000) | order_task: n_test is 4000; expected
number_in_words(-1) | number_in_words: number is -1; expected
number_in_words(1_000_000) | number_in_words: number is 1000000; expected
number_task(0, 1, rng) | number_task: n_train is 0; expected an integer of at least 1
number_task(1, 0, rng) | number_task: n_test is 0; expected an integer of at least 1
number_task(99_999, 2, rng) | number_task: n_train + n_test is 100001; expected at most
small_stories(0, rng) | small_stories: n is 0; expected an integer of
order_sensitivity(np.tanh, np.ones((1, 4)), rng) | order_sensitivity: x has shape (1, 4); expected two
curves(W[0], {"": dict.fromkeys("abcd", W[0])}, x_label="x") | plots: 4 lines in one panel; expected at most 3
reveal("1.1z") | reveal: there is no answer '1.1z'; that lesson has 1.1a, 1.1b
reveal("77.1a") | reveal: there is no answer '77.1a'; an id is such as '1.1a'
"""
WRONG_TYPE = """
example_from_name(7) | example_from_name: name is int; expected a string
play(marks=[("ffn.z", 8, 1.0, 2.0)]) | play: a mark is
play(dog_bites_man()) | play: trace is
play(at=3) | play: at is
compare(3) | compare: mine is an int (3); expected a function, two of them, or a dict
compare((encoder_block_forward, 3)) | compare: mine is
compare(encoder_block_forward, {"a": 1}) | compare: reference is
compare({}, 3) | compare: reference is an int (3); expected a trace, or a dict of arrays
worked_example(decimals=3.0) | worked_example: decimals is
worked_example(dog_bites_man().block) | worked_example: example is
build_vocabulary("dog") | build_vocabulary: sentences is the string 'dog'
build_vocabulary([["dog", 3]]) | build_vocabulary: a word of a sentence is an int (3)
encode([["dog"]], {"dog": 1.5}) | encode: vocabulary['dog'] is a float (1.5)
order_task(5, rng) | order_task: lengths is an int (5); expected a list of integers
order_task("35", rng) | order_task: lengths[0] is the string '3'
order_task([3.0], rng) | order_task: lengths[0] is a float (3.0); expected an integer
order_task([3], 0) | order_task: rng is an int (0); expected a numpy.random.Generator
number_task(1, 1, None) | number_task: rng is None; expected a numpy.random.Generator
small_stories(1, 7) | small_stories: rng is an int (7); expected a numpy.random
is_small_story(None) | is_small_story: text is None; expected a string
reveal(1.1) | reveal: id is a float; expected a string
"""
MISSING_FOLDER = """
save_worksheet("A", "no/where/sheet.pdf") | there is no folder 'no/where'
play().save("no/where/play.html") | there is no folder 'no/where'
"""
NAMES = {"np": np, "inf": np.inf, "W": np.eye(3), "encoder_block_forward": encoder_block_forward}
MODULES = (
    "player.compare", "lessons.diagnostics", "handouts.lesson_copies", "lessons.predictions",
    "player.player_page", "lessons.plots", "lessons.tasks", "lessons.text", "lessons.named_example",
    "lessons.worked_example", "handouts.worksheet",
)  # fmt: skip
for module in MODULES:
    NAMES |= vars(importlib.import_module(f"npformer.{module}"))
BIASES = {"b_Q": np.zeros(4), "b_O": np.zeros(4)}
NAMES |= {
    "rope": replaced(dog_bites_man(), "config.positions", lambda _: "rope"),
    "biased": replaced(dog_bites_man(), "block.attention", lambda params: params._replace(**BIASES)),
    "narrow": replaced(dog_bites_man(), "block.ffn.b_2", lambda b_2: b_2[:1]),
    "rng": np.random.default_rng(0),
}


def list_cases(error_type, lines):
    """Return a test case for each line of a table."""
    return [pytest.param(error_type, *line.split(" | "), id=line) for line in lines.strip().splitlines()]


CASES = [
    *list_cases(ValueError, WRONG_VALUE),
    *list_cases(TypeError, WRONG_TYPE),
    *list_cases(FileNotFoundError, MISSING_FOLDER),
]


@pytest.mark.parametrize(("error_type", "call", "message"), CASES)
def test_wrong_arguments_are_rejected(error_type, call, message, tmp_path, monkeypatch):
    """The call raises the error before it writes a file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.pdf").mkdir()
    with pytest.raises(error_type, match=f"^{re.escape(message)}"):
        eval(call, dict(NAMES))
    assert [path.name for path in tmp_path.iterdir()] == ["folder.pdf"]
