"""Compare byte-level vocabularies with the library `tokenizers`, and llama2.c's tokenizer with known ids."""

import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
from small_models import FORMS, TOKENS, get_model_folder, put_files, write_llama2c

import npformer as npf
from npformer.pretrained.vocabulary import make_vocabulary, split_words


def draw_unusual_texts(n):
    """Yield n random texts made of letters, digits, spaces, punctuation, emoji and special tokens."""
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


SPECIAL_TOKENS = ["<|end|>", "<|mark|>"]


def train_library_tokenizer(digits_alone):
    """Train a tokenizer with the library `tokenizers`."""
    tokenizers = pytest.importorskip("tokenizers")
    trained = tokenizers.Tokenizer(tokenizers.models.BPE())
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.pre_tokenizer = byte_level
    if digits_alone:
        digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
        trained.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, byte_level])
    trained.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900,
        initial_alphabet=byte_level.alphabet(),
        special_tokens=SPECIAL_TOKENS,
        show_progress=False,
    )
    trained.train_from_iterator(
        [*draw_unusual_texts(500), Path(__file__).read_text(encoding="utf-8")], trainer
    )
    return trained


@pytest.mark.parametrize("digits_alone", [False, True])
def test_vocabulary_agrees_with_the_tokenizers_library(digits_alone):
    trained = train_library_tokenizer(digits_alone)
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(merge) for merge in model["merges"]]
    special_tokens = {token: model["vocab"][token] for token in SPECIAL_TOKENS}
    vocabulary = make_vocabulary(tokens, merges, special_tokens, digits_alone)
    for text in draw_unusual_texts(10_000 if digits_alone else 2_000):
        ids = vocabulary.encode(text)
        assert ids == trained.encode(text).ids, repr(text)
        assert vocabulary.decode(ids) == text


@pytest.fixture(scope="module")
def gguf_tokenizer():
    return npf.load_gguf(get_model_folder("gguf") / "model.gguf")[2]


def test_vocabulary_encodes_special_tokens_on_request(gguf_tokenizer):
    assert gguf_tokenizer.encode("<|mark|>") == [len(TOKENS) - 1]
    ids = gguf_tokenizer.encode("<|mark|>", with_special_tokens=False)
    assert len(ids) == 8 and gguf_tokenizer.decode(ids) == "<|mark|>"


def test_vocabulary_applies_merges_by_rank(gguf_tokenizer):
    assert gguf_tokenizer.encode("the than") == [TOKENS.index(x) for x in ("t", "he", "Ġt", "h", "an")]


def test_load_gguf_tokenizer_has_the_file_settings(gguf_tokenizer):
    assert (gguf_tokenizer.stop_id, gguf_tokenizer.chat_template) == (0, "{{ messages }}")
    assert repr(gguf_tokenizer) == f"Vocabulary({len(TOKENS)} tokens, 2 special tokens)"


def test_split_words_loses_no_character():
    assert "".join(split_words("a\x1cb  c\t\n d1")) == "a\x1cb  c\t\n d1"


def test_vocabulary_prefers_the_longer_special_token():
    assert make_vocabulary(["<m>", "<m>a", "a"], [], {"<m>": 0, "<m>a": 1}).encode("a<m>a<m>") == [2, 1, 0]


def test_vocabulary_leaves_out_unknown_bytes():
    assert make_vocabulary(["a", "b"], [], {}).encode("abc\x00a") == [0, 1, 0]


def load_gguf_tokenizer(tmp_path, settings):
    files, _ = FORMS["gguf"].write(FORMS["gguf"].config, settings=settings)
    return npf.load_gguf(put_files(tmp_path, files) / "model.gguf")[2]


@pytest.mark.parametrize(
    "settings", [{"tokenizer.ggml.model": "llama"}, {"tokenizer.ggml.pre": "qwen2"}], ids=str
)
def test_load_gguf_other_tokenizer_is_none(tmp_path, settings):
    assert load_gguf_tokenizer(tmp_path, settings) is None


def test_load_gguf_smollm_tokenizer_splits_digits(tmp_path):
    assert load_gguf_tokenizer(tmp_path, {"tokenizer.ggml.pre": "smollm"}).digits_alone


# --- the tokenizer of llama2.c --------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama2c():
    return FORMS["llama2c"].load(get_model_folder("llama2c"))[2]


@pytest.mark.parametrize(("text", "ids"), [
    ("", [1]),
    ("ab", [1, 265]),  # "ab" merges first (score -1), then the space and "ab" merge
    ("ba", [1, 259, 263]),
    ("bab", [1, 259, 261, 266]),  # "ab" merges before "ba": its score is higher, though its id is larger
    ("aab", [1, 264, 266]),  # "ab" merges before " a", because its score is higher
    ("ñ\n", [1, 259, 262, 3 + 10]),
    ("漢", [1, 259, *(3 + byte for byte in "漢".encode())]),
])  # fmt: skip
def test_llama2c_encode_gives_known_ids(llama2c, text, ids):
    assert llama2c.encode(text) == ids
    assert llama2c.decode(ids) == text


@pytest.mark.parametrize("text", ["", " ", "a  b", "  ab ba", "a\n\tb\0", "😀 ña漢", "▁a", "<s>"])
def test_llama2c_decode_undoes_encode(llama2c, text):
    assert llama2c.decode(llama2c.encode(text)) == text
    assert llama2c.decode(llama2c.encode(text, start=False)) == text
    ids = [*llama2c.encode(text), 2]
    assert llama2c.decode(ids + ids) == text + text  # id 1 begins a story, and id 2 ends it


def test_llama2c_decode_replaces_an_incomplete_character(llama2c):
    assert llama2c.decode([3 + 0xC3, 260]) == "�a"


def test_load_llama2c_reads_the_space_symbol(tmp_path, llama2c):
    put_files(tmp_path, write_llama2c(FORMS["llama2c"].config, space="▁")[0])
    tokenizer = npf.load_llama2c(tmp_path / "model.bin", tmp_path / "tokenizer.bin")[2]
    assert tokenizer == llama2c and repr(tokenizer) == "Llama2cTokenizer(267 tokens)"


def test_load_llama2c_without_a_tokenizer_file():
    assert npf.load_llama2c(get_model_folder("llama2c") / "model.bin")[2] is None


# --- arguments that every tokenizer rejects ---------------------------------------------------------


@pytest.fixture(params=["llama2c", "vocabulary", "byte pairs"])
def tokenizer(request, llama2c):
    if request.param == "llama2c":
        return llama2c
    if request.param == "vocabulary":
        return make_vocabulary(["a", "b"], [], {})
    return npf.train_byte_pairs("abab", 1)


def check_error(function, argument, error_type, message):
    with pytest.raises(error_type, match=f"^{function.__name__}: {re.escape(message)}"):
        function(argument)


@pytest.mark.parametrize(("text", "error_type", "message"), [
    pytest.param(None, TypeError, "text is None; expected a string", id="None"),
    pytest.param("\ud800", ValueError, "text holds half of a surrogate pair", id="half of a pair"),
])  # fmt: skip
def test_encode_rejects_what_is_not_text(tokenizer, text, error_type, message):
    check_error(tokenizer.encode, text, error_type, message)


MATRIX = np.ones((2, 2), int)
NO_LIST = "expected a list of integers"


@pytest.mark.parametrize(("ids", "error_type", "message"), [
    pytest.param(3, TypeError, f"ids is an int (3); {NO_LIST}", id="int"),
    pytest.param("ab", TypeError, f"ids is the string 'ab'; {NO_LIST}", id="string"),
    pytest.param(MATRIX, TypeError, f"ids is an array of shape (2, 2); {NO_LIST}", id="matrix"),
    pytest.param([1.0], TypeError, "an id is a float (1.0); expected an integer", id="floats"),
    pytest.param([-1], ValueError, "an id is -1; expected an integer of at least 0", id="negative"),
])  # fmt: skip
def test_decode_rejects_what_is_not_ids(tokenizer, ids, error_type, message):
    check_error(tokenizer.decode, ids, error_type, message)


def test_decode_rejects_an_id_out_of_range(tokenizer):
    n = len(tokenizer.pieces)
    check_error(tokenizer.decode, [0, n], ValueError, f"an id is {n}; expected ids from 0 to {n - 1}")
