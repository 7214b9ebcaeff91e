"""Text to ids and back: GPT-2's kind against the library `tokenizers`, llama2.c's by hand."""

import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
from small_models import FORMS, TOKENS, folder, put, write_llama2c

import npformer as npf
from npformer.pretrained.vocabulary import make_vocabulary, split_words


def hostile_strings(n):
    """Letters, digits of many scripts, white space, signs, emoji, combining marks, endings, marks."""
    draw = random.Random(0)
    parts = [
        *"aZéßñİıǆΣаяאע你好ひ한ก्๏ःัาिं", *"0159²½Ⅷ٣१𝟘①",
        *" \t\n\r\x0b\x0c\x1c\x1f\x85\xa0\u2003\u2028\u3000\u200b",
        *"'’\"!?.,-_*/\\(){}<>|@#$€%&", "😀", "👩‍👩‍👧", "🏳️‍🌈", "e\u0301", "\u0301", "\ufeff", "\x00", "\x7f",
        "'s", "'t", "'re", "'ll", "'S", "n't", "the ", " the", "  ", "\n\n",
        "<|end|>", "<|mark|>", "<|end|", "2026",
    ]  # fmt: skip
    for _ in range(n):
        yield "".join(draw.choice(parts) for _ in range(draw.randrange(1, 12)))


@pytest.mark.parametrize("digits_alone", [False, True])
def test_ids_are_those_of_the_tokenizers_library(digits_alone):
    tokenizers = pytest.importorskip("tokenizers")
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    cut = tokenizers.pre_tokenizers.Sequence([digits, byte_level]) if digits_alone else byte_level
    trained.pre_tokenizer, trained.decoder = cut, tokenizers.decoders.ByteLevel()
    marks = ["<|end|>", "<|mark|>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=byte_level.alphabet(), special_tokens=marks, show_progress=False
    )
    trained.train_from_iterator([*hostile_strings(500), Path(__file__).read_text(encoding="utf-8")], trainer)
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(merge) for merge in model["merges"]]
    ours = make_vocabulary(tokens, merges, {mark: model["vocab"][mark] for mark in marks}, digits_alone)
    for text in hostile_strings(10_000 if digits_alone else 2_000):
        ids = ours.encode(text)
        assert ids == trained.encode(text).ids, repr(text)
        assert ours.decode(ids) == text


def test_a_mark_that_a_user_spells_is_text():
    tokenizer = npf.load_gguf(folder("gguf") / "model.gguf")[2]
    assert (tokenizer.stop_id, tokenizer.chat_template) == (0, "{{ messages }}")
    assert tokenizer.encode("<|mark|>") == [len(TOKENS) - 1]
    spelt = tokenizer.encode("<|mark|>", marks=False)
    assert len(spelt) == 8 and tokenizer.decode(spelt) == "<|mark|>"
    assert tokenizer.encode("the than") == [TOKENS.index(x) for x in ("t", "he", "Ġt", "h", "an")]
    assert repr(tokenizer) == f"Vocabulary({len(TOKENS)} pieces, 2 marks)"
    assert "".join(split_words("a\x1cb  c\t\n d1")) == "a\x1cb  c\t\n d1"


def test_the_longer_of_two_marks_and_a_byte_that_no_token_stands_for():
    assert make_vocabulary(["<m>", "<m>a", "a"], [], {"<m>": 0, "<m>a": 1}).encode("a<m>a<m>") == [2, 1, 0]
    assert make_vocabulary(["a", "b"], [], {}).encode("abc\x00a") == [0, 1, 0]


@pytest.mark.parametrize(("name", "is_read"), [
    ({"tokenizer.ggml.model": "llama"}, False), ({"tokenizer.ggml.pre": "qwen2"}, False),
    ({"tokenizer.ggml.pre": "smollm"}, True),
])  # fmt: skip
def test_another_kind_of_vocabulary_is_none(tmp_path, name, is_read):
    files, _ = FORMS["gguf"].write(FORMS["gguf"].config, said=name)
    found = npf.load_gguf(put(tmp_path, files) / "model.gguf")[2]
    assert found.digits_alone if is_read else found is None


# --- llama2.c's -----------------------------------------------------------------------------------


@pytest.fixture
def llama2c():
    return FORMS["llama2c"].load(folder("llama2c"))[2]


@pytest.mark.parametrize(("text", "ids"), [
    ("", [1]),
    ("ab", [1, 265]),  # " ab": a b first (-1), then the space
    ("ba", [1, 259, 263]),
    ("bab", [1, 259, 261, 266]),  # a b scores more than b a, whose id is smaller
    ("aab", [1, 264, 266]),  # a b scores more than a space and a, and leaves those two to each other
    ("ñ\n", [1, 259, 262, 3 + 10]),
    ("漢", [1, 259, *(3 + byte for byte in "漢".encode())]),
])  # fmt: skip
def test_texts_by_hand(llama2c, text, ids):
    assert llama2c.encode(text) == ids and llama2c.decode(ids) == text


@pytest.mark.parametrize("text", ["", " ", "a  b", "  ab ba", "a\n\tb\0", "😀 ña漢", "▁a", "<s>"])
def test_any_text_comes_back(llama2c, text):
    assert llama2c.decode(llama2c.encode(text)) == text
    assert llama2c.decode(llama2c.encode(text, start=False)) == text
    ids = [*llama2c.encode(text), 2]
    assert llama2c.decode(ids + ids) == text + text  # two stories
    assert llama2c.decode([3 + 0xC3, 260]) == "�a"  # half a letter


def test_a_file_that_writes_the_space_as_a_bar_and_one_without_a_tokenizer(tmp_path, llama2c):
    put(tmp_path, write_llama2c(FORMS["llama2c"].config, space="▁")[0])
    bars = npf.load_llama2c(tmp_path / "model.bin", tmp_path / "tokenizer.bin")[2]
    assert bars == llama2c and repr(bars) == "Llama2cTokenizer(267 pieces)"
    assert npf.load_llama2c(tmp_path / "model.bin")[2] is None


def test_what_is_no_text_and_no_ids_is_refused_by_every_tokenizer(llama2c):
    for tokenizer in (llama2c, make_vocabulary(["a", "b"], [], {}), npf.train_byte_pairs("abab", 1)):
        n = len(tokenizer.pieces)
        for wrong, error, said in [
            (None, TypeError, "text is None; expected a string"),
            ("\ud800", ValueError, "text holds half of a surrogate pair"),
            (3, TypeError, "ids is an int (3); expected a list of integers"),
            ("ab", TypeError, "ids is the string 'ab'; expected a list of integers"),
            (np.ones((2, 2), int), TypeError, "ids is an array of shape (2, 2); expected a list of integers"),
            ([1.0], TypeError, "an id is a float (1.0); expected an integer"),
            ([0, n], ValueError, f"an id is {n}; expected ids from 0 to {n - 1}"),
            ([-1], ValueError, "an id is -1; expected an integer of at least 0"),
        ]:
            method = "encode" if said.startswith("text") else "decode"
            with pytest.raises(error, match=f"^{method}: {re.escape(said)}"):
                getattr(tokenizer, method)(wrong)
