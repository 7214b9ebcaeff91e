"""Write the answers of PyTorch 2.13 and transformers for published models and for two small models.

    python tests/data/make_golden_published.py layer llama exports
    python tests/data/make_golden_published.py minilm FOLDER chat FILE.gguf stories FILE.bin

You can name one or several of the six models. The script needs a Python with torch and transformers; `chat`
also needs gguf and accelerate. npformer never needs these packages, and the script does not import npformer.
Each NAME becomes golden_NAME.npz, in float64 except for `chat`.

layer: one nn.TransformerEncoderLayer for each norm order. The file has its state_dict, x, y, a random d_y,
d_x, and the gradient of each parameter under its name in the state_dict.
llama: a tiny LlamaForCausalLM. The file has named weights, ids, the output of the first block, and logits.
exports: tiny LlamaForCausalLMs, tied or not, with and without grouped heads. Those with grouped heads also
have biases in attention. For each model, the file has named weights in float32, and logits in float64.
minilm: FOLDER contains all-MiniLM-L6-v2: config.json, model.safetensors, vocab.txt. The file has the `texts`
(JSON), the token `ids` of all texts in one array with their `counts`, the `means` of BertModel's last layer
over the tokens of each text, and `outputs`, the last layer for the text with index FIRST. transformers
computes the ids from vocab.txt, whereas npformer reads tokenizer.json.
chat: SmolLM2-135M-Instruct. transformers reads the GGUF file with its own code.
stories: stories15M.bin in llama2.c's layout, computed by the functions of make_golden.py. The file has some
logits after the beginning of a story, and the tokens with which PyTorch continues it.
"""

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from golden_files import HERE
from make_golden import causal_lm
from torch import nn
from transformers import AutoModelForCausalLM, BertModel, BertTokenizer, LlamaConfig, LlamaForCausalLM

# --- one layer, a small model ------------------------------------------------------------------------


def layer():
    """Return the arrays of one encoder layer for each norm order."""
    found = {}
    for order in ("post", "pre"):
        torch.manual_seed(order == "pre")
        options = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "dtype": torch.float64}
        module = nn.TransformerEncoderLayer(8, 2, 12, norm_first=order == "pre", **options)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += 0.3 * torch.randn_like(parameter)  # a parameter of 0 or 1 could hide a mistake
        x = torch.randn(3, 5, 8, dtype=torch.float64, requires_grad=True)
        y = module(x)
        d_y = torch.randn_like(y)
        y.backward(d_y)
        arrays = {"x": x, "y": y, "d_y": d_y, "d_x": x.grad}
        arrays |= {f"state.{name}": tensor for name, tensor in module.state_dict().items()}
        arrays |= {f"d_state.{name}": tensor.grad for name, tensor in module.named_parameters()}
        found |= {f"{order}.{name}": tensor.detach().numpy() for name, tensor in arrays.items()}
    return found


def llama():
    """Return the arrays of a tiny Llama model with random weights."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=20, hidden_size=16, intermediate_size=10, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, rope_theta=500.0, rms_norm_eps=1e-6, tie_word_embeddings=False,
        initializer_range=0.5,
    )  # fmt: skip
    model = LlamaForCausalLM(config).double().eval()
    ids = torch.randint(0, 20, (2, 7))
    with torch.no_grad():
        outputs = model(ids, output_hidden_states=True)
    layers = {f"after block {i}": x.numpy() for i, x in enumerate(outputs.hidden_states[1:-1], 1)}
    weights = {name: array.numpy() for name, array in model.state_dict().items()}
    return {"ids": ids.numpy(), "logits": outputs.logits.numpy(), **layers, **weights}


def exports():
    """Return the weights and the logits of Llama models, tied or not, with and without grouped heads."""
    torch.manual_seed(1)
    ids = torch.randint(0, 20, (2, 7))
    found = {"ids": ids.numpy()}
    for tied in (False, True):
        for n_kv_heads in (4, 2):
            # With d_k = 6, the two conversions between RoPE layouts permute the columns differently. With
            # d_k = 4, they would be equal, and a conversion in the wrong direction would not be noticed.
            config = LlamaConfig(
                vocab_size=20, hidden_size=24, intermediate_size=10, num_hidden_layers=1,
                num_attention_heads=4, num_key_value_heads=n_kv_heads, rope_theta=500.0, rms_norm_eps=1e-6,
                tie_word_embeddings=tied, attention_bias=n_kv_heads == 2, initializer_range=0.5,
            )  # fmt: skip
            model = LlamaForCausalLM(config).eval()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter += 0.3 * torch.randn_like(parameter)  # a 0 or 1 could hide a mistake
                weights = {f"state.{name}": x.numpy().copy() for name, x in model.state_dict().items()}
                arrays = weights | {"logits": model.double()(ids).logits.numpy()}
            case = f"{'tied' if tied else 'untied'} {n_kv_heads}"
            found |= {f"{case}.{name}": array for name, array in arrays.items()}
    return found


# --- all-MiniLM-L6-v2 --------------------------------------------------------------------------------

FIRST = 1
SENTENCES = (
    "The ferry leaves the harbour at seven and comes back after dark.",
    "On the deck an old man sells tea from a copper pot, and nobody knows since when.",
    "Children count the gulls, lose the number, and begin again.",
    "When the wind turns, the captain takes the longer way behind the island.",
    "He says that the sea is never in a hurry.",
)
TEXTS = [
    "", "A dog bites a man.", "A man bites a dog.", "   \t\n ",
    "🙂", "Party tonight 🎉🎉 who brings the cake? 👩‍👩‍👧",
    "明天会下雨吗？", "我喜欢在山里散步，尤其是秋天。",
    "Завтра будет дождь.", "Где находится ближайшая библиотека?",
    "Crème brûlée, façade, naïve, Ångström: accents are taken off.", "Straße, Fußgänger und schöne Grüße",
    "مرحبا بالعالم",
    "SHOUTING IS NOT HEARD HERE", "3.14159 + 2.71828 = 5.85987, about 6 (100 %)",
    "pneumonoultramicroscopicsilicovolcanoconiosis", "x" * 120,
    "don't; won't; it's: the rock'n'roll of apostrophes?!...", "[MASK] and [SEP] written in a text",
    "tab\tand\nnew line\rand\u00a0hard space\u200b", "How do I change the oil of my car?", "one",
    *SENTENCES, " ".join(" ".join(SENTENCES * 10).split()[:300]),
]  # fmt: skip


def minilm(folder):
    """Return the token ids and the outputs of all-MiniLM-L6-v2 for the texts."""
    model = BertModel.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
    tokenizer = BertTokenizer(vocab=str(Path(folder, "vocab.txt")), do_lower_case=True)
    ids = [tokenizer(text, truncation=False)["input_ids"] for text in TEXTS]
    with torch.no_grad():
        outputs = [model(input_ids=torch.tensor([row])).last_hidden_state[0] for row in ids]
    return {
        "texts": np.array(json.dumps(TEXTS)),
        "ids": np.concatenate([np.array(row, np.int32) for row in ids]),
        "counts": np.array([len(row) for row in ids]),
        "means": torch.stack([y.mean(0) for y in outputs]).numpy(),
        "outputs": outputs[FIRST].numpy(),
    }


# --- SmolLM2-135M-Instruct ---------------------------------------------------------------------------

PROMPTS = [  # The prompts are ids, because a different test checks the tokenizer.
    [504, 3575, 282, 4649, 314],  # "The capital of France is"
    [1, 4093, 198, 19556, 17, 2, 198, 1, 520, 9531, 198],  # a conversation with one message
    [0], [49151], [198, 198, 198, 198],
    *np.random.default_rng(0).integers(0, 49152, (3, 24)).tolist(),
    *np.random.default_rng(1).integers(0, 49152, (2, 90)).tolist(),
]  # fmt: skip
SOME_IDS = np.random.default_rng(2).permutation(49152)[:200]  # the file has only the logits of these ids


def chat(file):
    """Return logits of the chat model, and the tokens that the model generates for each prompt."""
    path = Path(file)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    model.generation_config.eos_token_id = None  # so that every generated text has 100 tokens
    golden = {"some": SOME_IDS}
    for i, prompt in enumerate(PROMPTS):
        ids = torch.tensor([prompt])
        options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 100, "do_sample": False}
        with torch.no_grad():
            logits, text = model(ids).logits[0].numpy(), model.generate(ids, **options)  # (T, vocab_size)
        golden |= {
            f"ids_{i}": np.array(prompt),
            f"logits_{i}": logits[:, SOME_IDS],
            f"text_{i}": text[0].numpy(),
        }
        golden |= {f"norm_{i}": np.linalg.norm(logits, axis=-1)}
    return golden


# --- stories15M --------------------------------------------------------------------------------------

STORY = [1, 9038, 2501, 263, 931, 29892, 727, 471, 263, 2217, 7826, 4257, 365, 2354, 29889]


def read_stories(file):
    """Return the weights of a llama2.c file under the names that make_golden.py uses, and the settings."""
    data = Path(file).read_bytes()
    d, f, n, h, h_kv, vocab, T = struct.unpack("<7i", data[:28])
    numbers = np.frombuffer(data[28:], "<f4").astype(np.float64)
    d_kv = d // h * h_kv
    t = {}
    parts = [("norm_1.gamma", d), ("attention.W_Q", d, d), ("attention.W_K", d_kv, d)]
    parts += [("attention.W_V", d_kv, d), ("attention.W_O", d, d), ("norm_2.gamma", d)]
    parts += [("ffn.W_gate", f, d), ("ffn.W_down", d, f), ("ffn.W_up", f, d)]
    names_and_shapes = [
        ("embedding.E", vocab, d),
        *((f"blocks.{i}.{x}", *shape) for x, *shape in parts for i in range(n)),
    ]
    for name, *shape in [*names_and_shapes, ("norm.gamma", d)]:
        array, numbers = np.split(numbers, [int(np.prod(shape))])
        array = array.reshape(shape)
        t[name] = torch.tensor(array.T if name.startswith("blocks") else array)
    assert vocab > 0 and T * (d // h) == numbers.size
    return t, {"n_layers": n, "n_heads": h, "n_kv_heads": h_kv, "eps": 1e-5, "base": 10000.0}


def stories(file):
    """Return some logits of stories15M, and the story that the model writes."""
    t, s = read_stories(file)

    def logits(ids):
        return causal_lm(t | {"ids": torch.tensor([ids])}, s)[0].numpy()

    ids = list(STORY)
    columns = np.linspace(0, len(t["embedding.E"]) - 1, 50).astype(int)
    for _ in range(40):
        ids.append(int(logits(ids)[-1].argmax()))
    some = logits(STORY)[:, columns]
    return {"ids": np.array(ids), "prompt": len(STORY), "columns": columns, "logits": some}


if __name__ == "__main__":
    torch.set_num_threads(1)
    functions: tuple[Callable[..., dict], ...] = (layer, llama, exports, minilm, chat, stories)
    makers = {function.__name__: function for function in functions}
    words = sys.argv[1:]
    while words:
        make = makers[words.pop(0)]
        golden = make() if make in (layer, llama, exports) else make(words.pop(0))
        np.savez_compressed(HERE / f"golden_{make.__name__}.npz", **golden)
