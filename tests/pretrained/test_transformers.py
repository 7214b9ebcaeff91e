"""Run exported and loaded models with the code of PyTorch and transformers, if these libraries are installed.

Each model has random weights. The logits of npformer and of the other library are compared.

uv run --extra pretrained --with torch,transformers,gguf,accelerate pytest -k transformers tests/pretrained

In every test run, test_torch_names.py makes such comparisons with the stored answers in golden_exports.npz
(causal models) and golden_layer.npz (encoder layers).
"""

from typing import Any

import numpy as np
import pytest
from small_models import (
    CONFIG,
    ENCODER,
    make_causal_lm,
    put_files,
    write_gguf,
    write_llama,
    write_minilm,
)

import npformer as npf

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")
VOCAB_SIZE = 11  # as in `write_llama`
IDS = np.random.default_rng(0).integers(0, VOCAB_SIZE, (2, 7))

LAYOUTS = pytest.mark.parametrize("layout", ["halves", "interleaved"])
HEADS = pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
TIED = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])


def convert_to_float64(params):
    return npf.tree_map(lambda a: a.astype(np.float64), params)


def add_biases(params):
    """Add random biases to all projections of attention."""
    rng = np.random.default_rng(1)

    def with_biases(block):
        weights = block.attention[:4]
        biases = [rng.standard_normal(W.shape[1]) for W in weights]
        return block._replace(attention=npf.AttentionParams(*weights, *biases))

    return params._replace(blocks=tuple(with_biases(block) for block in params.blocks))


def build_llama(config, attention_bias=False):
    """Build the model of transformers with the sizes of a config."""
    llama_config = transformers.LlamaConfig(
        vocab_size=VOCAB_SIZE, hidden_size=config.d_model, intermediate_size=config.d_ff,
        num_hidden_layers=config.n_layers, num_attention_heads=config.n_heads, rope_theta=config.base,
        num_key_value_heads=config.n_kv_heads, rms_norm_eps=config.eps, tie_word_embeddings=config.tied,
        max_position_embeddings=config.max_length, attention_bias=attention_bias,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(llama_config).double().eval()


def load_state(model, state, tied):
    """Load an exported state into a model of transformers. Only the head of a tied model may be missing."""
    tensors = {name: torch.from_numpy(a) for name, a in state.items()}
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert unexpected == []
    assert missing == (["lm_head.weight"] if tied else [])
    model.tie_weights()


def assert_same_logits(model, params, config, ids=IDS):
    """Compare the logits. The tolerance is that of float32, in which transformers computes RoPE."""
    with torch.no_grad():
        expected = model(torch.from_numpy(ids)).logits.numpy()
    found, _ = npf.causal_lm_forward(ids, params, config)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * abs(expected).max())


@LAYOUTS
@TIED
@HEADS
@pytest.mark.parametrize("has_biases", [True, False], ids=["biases", "no biases"])
def test_causal_lm_to_torch_runs_in_transformers(layout, tied, n_kv_heads, has_biases):
    config = CONFIG._replace(rope_layout=layout, tied=tied, n_kv_heads=n_kv_heads)
    params = convert_to_float64(make_causal_lm(config, VOCAB_SIZE))
    if has_biases:
        params = add_biases(params)
    model = build_llama(config, has_biases)
    load_state(model, npf.causal_lm_to_torch(params, config), tied)
    assert_same_logits(model, params, config)


@LAYOUTS
@TIED
@HEADS
def test_causal_lm_from_torch_reads_a_transformers_model(layout, tied, n_kv_heads):
    torch.manual_seed(0)
    config = CONFIG._replace(rope_layout=layout, tied=tied, n_kv_heads=n_kv_heads)
    model = build_llama(config, attention_bias=True)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    assert_same_logits(model, npf.causal_lm_from_torch(state, config), config)


@LAYOUTS
@TIED
@HEADS
def test_saved_folder_is_read_by_transformers(tmp_path, layout, tied, n_kv_heads):
    pytest.importorskip("safetensors")
    config = CONFIG._replace(rope_layout=layout, tied=tied, n_kv_heads=n_kv_heads)
    files, params = write_llama(config, settings={"vocab_size": VOCAB_SIZE})
    put_files(tmp_path, files)
    npf.save_safetensors(tmp_path / "model.safetensors", npf.causal_lm_to_torch(params, config))
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    assert_same_logits(model.eval(), convert_to_float64(params), config)


@TIED
@HEADS
@pytest.mark.parametrize("model_type", ["llama", "mistral"])
def test_load_llama_reads_a_folder_of_transformers(tmp_path, tied, n_kv_heads, model_type):
    pytest.importorskip("safetensors")
    config = CONFIG._replace(rope_layout="halves", tied=tied, n_kv_heads=n_kv_heads)
    written = {"model_type": model_type, "vocab_size": VOCAB_SIZE, "sliding_window": None}
    put_files(tmp_path, write_llama(config, settings=written)[0])
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    model.config.sliding_window = None
    model.save_pretrained(tmp_path / "again")
    params, loaded_config = npf.load_llama(tmp_path / "again", dtype=np.float64)
    assert loaded_config == config
    assert_same_logits(model.eval(), params, config)


def test_load_llama_reads_llama_3_frequencies(tmp_path):
    pytest.importorskip("safetensors")
    config = CONFIG._replace(rope_layout="halves")
    scaling = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    }  # fmt: skip
    put_files(tmp_path, write_llama(config, settings={"rope_scaling": scaling, "vocab_size": VOCAB_SIZE})[0])
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)
    params, loaded_config = npf.load_llama(tmp_path, dtype=np.float64)
    assert loaded_config.frequencies is not None
    assert_same_logits(model.eval(), params, loaded_config)


@TIED
@HEADS
def test_load_gguf_agrees_with_transformers(tmp_path, tied, n_kv_heads):
    """transformers reorders the columns of a GGUF file to halves; npformer reads them as interleaved."""
    pytest.importorskip("gguf", reason="gguf is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    files, _ = write_gguf(CONFIG._replace(tied=tied, n_kv_heads=n_kv_heads))
    put_files(tmp_path, files)
    options = {"gguf_file": "model.gguf", "dtype": torch.float32}
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **options).double().eval()
    params, config, _ = npf.load_gguf(tmp_path / "model.gguf", dtype=np.float64)
    assert_same_logits(model, params, config)


def test_load_minilm_agrees_with_transformers(tmp_path):
    pytest.importorskip("safetensors")
    pytest.importorskip("tokenizers")
    put_files(tmp_path, write_minilm(tensors={"pooler.dense.weight": None})[0])
    options = {"dtype": torch.float64, "attn_implementation": "eager", "add_pooling_layer": False}
    model = transformers.BertModel.from_pretrained(tmp_path, **options).eval()
    params, config, _ = npf.load_minilm(tmp_path, dtype=np.float64)
    with torch.no_grad():
        expected = model(input_ids=torch.from_numpy(IDS)).last_hidden_state.numpy()
    found, _ = npf.encoder_forward(npf.minilm_input(IDS, params, config), params.encoder, config)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * abs(expected).max())


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("has_biases", [True, False], ids=["biases", "no biases"])
def test_encoder_block_to_torch_runs_in_pytorch(norm, activation, has_biases):
    config = ENCODER._replace(norm=norm, activation=activation, attention_bias=has_biases)
    rng = np.random.default_rng(0)
    drawn = npf.init_encoder_block(config, rng)
    params = npf.tree_map(lambda a: a + 0.3 * rng.standard_normal(a.shape), drawn)
    layer = torch.nn.TransformerEncoderLayer(
        config.d_model, config.n_heads, config.d_ff, dropout=0.0, activation=activation, batch_first=True,
        norm_first=norm == "pre", layer_norm_eps=config.eps, dtype=torch.float64,
    )  # fmt: skip
    state = npf.encoder_block_to_torch(params)
    layer.load_state_dict({name: torch.from_numpy(a) for name, a in state.items()})
    x = rng.standard_normal((2, 5, config.d_model))
    with torch.no_grad():
        expected = layer(torch.from_numpy(x)).numpy()
    found, _ = npf.encoder_block_forward(x, params, config)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)
