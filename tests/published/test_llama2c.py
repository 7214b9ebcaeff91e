"""Files of llama2.c's layout: a tiny one written here, and the published story-teller where it is.

`npformer fetch stories` obtains stories15M.bin and tokenizer.bin; without them their tests are skipped.
"""

import struct
from pathlib import Path

import numpy as np
import pytest
from small_llama2c import CONFIG, VOCAB, header, model, tokenizer_bytes, write_files, written

import npformer as npf
from npformer import load_llama2c
from npformer.published.stories import MODEL, TOKENIZER, stories_folder

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture
def folder(tmp_path):
    write_files(tmp_path)
    return tmp_path


@pytest.fixture
def tokenizer(folder):
    return load_llama2c(folder / "model.bin", folder / "tokenizer.bin")[2]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("n_kv_heads", [1, 4])
def test_every_weight_finds_its_place(tmp_path, tied, n_kv_heads):
    config = CONFIG._replace(tied=tied, n_kv_heads=n_kv_heads)
    params, file = model(config), tmp_path / "model.bin"
    file.write_bytes(written(params, config))
    found, found_config, tokenizer = load_llama2c(str(file))
    assert found_config == config and tokenizer is None
    assert [path for path, _ in npf.leaves(found)] == [path for path, _ in npf.leaves(params)]
    for (path, a), (_, b) in zip(npf.leaves(found), npf.leaves(params), strict=True):
        assert a.dtype == np.float32 and (a == b).all(), path
    ids = np.array([[3, 1, 4, 1, 5]])
    logits, cache = npf.causal_lm_forward(ids, found, config)
    np.testing.assert_allclose(logits, npf.causal_lm_forward(ids, params, config)[0], rtol=0, atol=1e-4)
    grads = npf.causal_lm_backward(logits, cache)  # it can be trained further, too
    assert npf.sgd_update(found, grads, learning_rate=0.1).norm.gamma.dtype == np.float32


def test_the_weights_stay_in_the_file(folder):
    params, _, _ = load_llama2c(folder / "model.bin")
    for path, array in npf.leaves(params):
        assert not array.flags.owndata and not array.flags.writeable, path
        base = array
        while not isinstance(base, np.memmap):
            base = base.base


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", [1]),
        ("ab", [1, 265]),  # " ab": a b first (-1), then the space
        ("ba", [1, 259, 266]),
        ("aab", [1, 264, 263]),  # a b scores more than a space and a, and leaves those two to each other
        ("ñ\n", [1, 259, 262, 3 + 10]),
        ("漢", [1, 259, *(3 + byte for byte in "漢".encode())]),
    ],
)
def test_texts_by_hand(tokenizer, text, ids):
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == tokenizer.decode(np.array(ids)) == text


@pytest.mark.parametrize("text", ["", " ", "a  b", "  ab ba", "a\n\tb\0", "😀 ña漢", "▁a", "<s>"])
def test_any_text_comes_back(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.decode(tokenizer.encode(text, start=False)) == text
    ids = [*tokenizer.encode(text), 2]
    assert tokenizer.decode(ids + ids) == text + text  # two stories


def test_a_file_that_writes_the_space_as_a_bar(folder, tokenizer):
    (folder / "bars.bin").write_bytes(tokenizer_bytes(space="▁"))
    bars = load_llama2c(folder / "model.bin", folder / "bars.bin")[2]
    assert bars == tokenizer and repr(bars) == f"Llama2cTokenizer({VOCAB} pieces)"


def test_half_a_letter_is_marked(tokenizer):
    assert tokenizer.decode([3 + 0xC3, 260]) == "�a"


def test_a_small_vocabulary_of_bytes_only(tmp_path):
    params = npf.init_causal_lm(5, CONFIG, np.random.default_rng(0), dtype=np.float32)
    (tmp_path / "m.bin").write_bytes(written(params, CONFIG).replace(header(CONFIG), header(CONFIG, 5)))
    (tmp_path / "t.bin").write_bytes(struct.pack("<i", 1) + struct.pack("<fi", 0, 0) * 5)
    assert load_llama2c(tmp_path / "m.bin", tmp_path / "t.bin")[2].decode([1, 3, 4]) == "\0\1"


def refused(error, message, *files):
    with pytest.raises(error, match="^load_llama2c: " + message):
        load_llama2c(*files)


@pytest.mark.parametrize(("spoil", "message"), [
    (lambda data: data[:20], ".*model.bin has 20 bytes; expected a header of 28"),
    (lambda data: data[:-4], r".*model.bin has \d+ bytes; expected \d+, as its header says"),
    (lambda data: data + b"\0", r".*model.bin has \d+ bytes; expected \d+, as its header says"),
    (lambda data: b"{" + data[1:], ".*expected"),
    (lambda data: header(CONFIG._replace(d_model=0)) + data[28:], ".*layout: config.d_model is 0; ex"),
    (lambda data: header(CONFIG._replace(d_ff=-3)) + data[28:], ".*d_ff is -3; expected"),
    (lambda data: header(CONFIG._replace(n_heads=3)) + data[28:], ".*n_heads is 3; expected a divisor"),
    (lambda data: header(CONFIG._replace(n_kv_heads=3)) + data[28:], ".*n_kv_heads is 3; expected"),
    (lambda data: header(CONFIG, 0) + data[28:], ".*vocab_size is 0; expected an int"),
    (lambda data: struct.pack("<7i", *[2**31 - 1] * 7), ".*; expected "),
    (lambda data: header(CONFIG._replace(n_layers=2**31 - 1)) + data[28:], r".* bytes; expected \d+, as its"),
    (lambda data: bytes(1000), ".*d_model is 0"),
])  # fmt: skip
def test_a_file_that_is_cut_off_or_foreign_is_refused(folder, spoil, message):
    file = folder / "model.bin"
    file.write_bytes(spoil(file.read_bytes()))
    refused(ValueError, message, file)


@pytest.mark.parametrize("spoil", [
    lambda data: data[:-1],
    lambda data: data + b"\0",
    lambda data: data + struct.pack("<fi", 0, 1) + b"a",
    lambda data: data[:2],
    lambda data: data[:8] + struct.pack("<i", -1) + data[12:],
    lambda data: data[:8] + struct.pack("<i", 2**30) + data[12:],
])  # fmt: skip
def test_a_tokenizer_file_that_does_not_fit_is_refused(folder, spoil):
    file = folder / "tokenizer.bin"
    file.write_bytes(spoil(file.read_bytes()))
    expected = rf".*tokenizer.bin ends or goes on after \d+ pieces; expected exactly {VOCAB}"
    refused(ValueError, expected, folder / "model.bin", file)


def test_what_is_no_file_and_no_text_is_refused(folder, tokenizer):
    refused(FileNotFoundError, "there is no file .*nowhere", folder / "nowhere")
    refused(FileNotFoundError, "there is no file", folder)
    refused(FileNotFoundError, "there is no file .*nowhere", folder / "model.bin", "nowhere")
    refused(TypeError, r"model_file is an int \(3\); expected a string", 3)
    with pytest.raises(TypeError, match="encode: text is None; expected a string"):
        tokenizer.encode(None)
    with pytest.raises(ValueError, match="encode: text holds half of a surrogate pair"):
        tokenizer.encode("\ud800")
    with pytest.raises(TypeError, match="decode: ids is the string 'a'; expected a list of integers"):
        tokenizer.decode("a")
    with pytest.raises(ValueError, match=f"decode: an id is {VOCAB}; expected ids from 0 to {VOCAB - 1}"):
        tokenizer.decode([VOCAB])


# The published model

stories = pytest.mark.skipif(
    not (stories_folder() / MODEL).is_file(), reason="stories15M is not here: npformer fetch stories"
)


@pytest.fixture(scope="module")
def storyteller():
    return load_llama2c(stories_folder() / MODEL, stories_folder() / TOKENIZER)


@stories
def test_its_logits_are_those_of_pytorch(storyteller):
    params, config, _ = storyteller
    with np.load(DATA / "golden_stories.npz") as golden:
        ids, n, columns, expected = (golden[name] for name in ("ids", "prompt", "columns", "logits"))
    exact = npf.tree_map(lambda a: a.astype(np.float64), params)
    for tree, tolerance in ((exact, 1e-12), (params, 1e-4)):
        logits, _ = npf.causal_lm_forward(ids[None, :n], tree, config)
        np.testing.assert_allclose(logits[0][:, columns], expected, rtol=0, atol=tolerance)
    assert (
        npf.generate(ids[None, :n], params, config, max_new_tokens=len(ids) - n, temperature=0) == ids
    ).all()


@stories
def test_it_tells_a_story(storyteller):
    params, config, tokenizer = storyteller
    prompt = tokenizer.encode("Once upon a time, there was a little girl named Lily.")
    assert prompt == [1, 9038, 2501, 263, 931, 29892, 727, 471, 263, 2217, 7826, 4257, 365, 2354, 29889]
    ids = npf.generate(np.array([prompt]), params, config, max_new_tokens=40, temperature=0)
    story = tokenizer.decode(ids[0])
    assert story.startswith("Once upon a time, there was a little girl named Lily. She loved to play")
