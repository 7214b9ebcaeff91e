"""Adapters: LoRA for the weight matrices of a causal language model, and their files.

A file has the format of PEFT, the library of Hugging Face for adapters. The package safetensors is needed
only to read and write files.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from npformer.arrays import Array
from npformer.modern.causal_lm import CausalBlockParams, CausalLMConfig, CausalLMParams
from npformer.post_training.lora import LoRACache, LoRAParams, init_lora, lora_backward, lora_forward
from npformer.pretrained.llama import (
    HUGGING_FACE_NAMES,
    count_rotated_columns,
    halves_to_interleaved,
    interleaved_to_halves,
)
from npformer.pretrained.named_arrays import check_names, check_settings, read_json, require_file
from npformer.pretrained.safetensors_files import read_arrays, save_safetensors
from npformer.tree import as_path, open_atomically
from npformer.validation.checks import check_choice, check_float, check_integer, check_kind, check_number

if TYPE_CHECKING:
    from pathlib import Path


class BlockAdapter(NamedTuple):
    """LoRA for the weight matrices of one block. None means that a matrix stays as it is."""

    W_Q: LoRAParams | None = None
    W_K: LoRAParams | None = None
    W_V: LoRAParams | None = None
    W_O: LoRAParams | None = None
    W_gate: LoRAParams | None = None
    W_up: LoRAParams | None = None
    W_down: LoRAParams | None = None


Adapter = tuple[BlockAdapter, ...]  # one for each block of the model


def init_adapter(
    params: CausalLMParams, r: int, rng: Any, *, matrices: tuple[str, ...] = ("W_Q", "W_V")
) -> Adapter:
    """Draw an adapter of rank r for the named matrices of every block. Before training, B = 0 and ΔW = 0.

    Parameters
    ----------
    params : CausalLMParams
        The model, which stays frozen.
    r : int
        The rank of all matrices ΔW.
    rng : numpy.random.Generator
    matrices : tuple of str
        Names from the fields of ``BlockAdapter``. Hu et al., "LoRA", 2021, section 4.2, choose W_Q and W_V.

    Returns
    -------
    adapter : tuple of BlockAdapter

    Examples
    --------
    >>> import numpy as np
    >>> from npformer import CausalLMConfig, init_causal_lm
    >>> config = CausalLMConfig(d_model=8, d_ff=12, n_heads=2, n_kv_heads=1, n_layers=1)
    >>> params = init_causal_lm(5, config, np.random.default_rng(0))
    >>> init_adapter(params, 2, np.random.default_rng(0))[0].W_V.B.shape
    (2, 4)
    """
    check_integer("init_adapter", "r", r, 1)
    for name in matrices:
        check_choice("init_adapter", "matrices", name, BlockAdapter._fields)
    adapter = []
    for block in params.blocks:
        parts = {}
        for name in matrices:
            W = get_matrix(block, name)
            d_in, d_out = W.shape
            parts[name] = init_lora(d_in, d_out, r, rng, dtype=W.dtype)
        adapter.append(BlockAdapter(**parts))
    return tuple(adapter)


def merge_adapter(params: CausalLMParams, adapter: Adapter, *, alpha: float = 8.0) -> CausalLMParams:
    """Return the model with W + α/r A B instead of each adapted matrix W. The other arrays are shared.

    Parameters
    ----------
    params : CausalLMParams
        The frozen model. It does not change.
    adapter : tuple of BlockAdapter
    alpha : float, alpha > 0

    Returns
    -------
    merged : CausalLMParams

    Examples
    --------
    >>> import numpy as np
    >>> from npformer import CausalLMConfig, init_causal_lm
    >>> config = CausalLMConfig(d_model=8, d_ff=12, n_heads=2, n_kv_heads=1, n_layers=1)
    >>> params = init_causal_lm(5, config, np.random.default_rng(0))
    >>> merged = merge_adapter(params, init_adapter(params, 2, np.random.default_rng(0)))
    >>> bool((merged.blocks[0].attention.W_Q == params.blocks[0].attention.W_Q).all())
    True
    """
    check_adapter("merge_adapter", params, adapter)
    check_number("merge_adapter", "alpha", alpha, above=0)
    blocks = []
    for block, part in zip(params.blocks, adapter, strict=True):
        for name, lora in matrices_of(part):
            merged, _ = lora_forward(get_matrix(block, name), lora, alpha=alpha)
            block = replace_matrix(block, name, merged)
        blocks.append(block)
    return params._replace(blocks=tuple(blocks))


def adapter_gradients(grads: CausalLMParams, adapter: Adapter, *, alpha: float = 8.0) -> Adapter:
    """Return dA = α/r dW Bᵀ and dB = α/r Aᵀ dW for each adapted matrix, from the merged model's gradients.

    Parameters
    ----------
    grads : CausalLMParams
        The result of ``causal_lm_backward`` for the merged model.
    adapter : tuple of BlockAdapter
    alpha : float, alpha > 0

    Returns
    -------
    grads : tuple of BlockAdapter

    Examples
    --------
    >>> import numpy as np
    >>> from npformer import CausalLMConfig, init_causal_lm
    >>> config = CausalLMConfig(d_model=8, d_ff=12, n_heads=2, n_kv_heads=1, n_layers=1)
    >>> params = init_causal_lm(5, config, np.random.default_rng(0))
    >>> adapter = init_adapter(params, 2, np.random.default_rng(0))
    >>> adapter_gradients(params, adapter)[0].W_Q.A.shape
    (8, 2)
    """
    check_adapter("adapter_gradients", grads, adapter)
    check_number("adapter_gradients", "alpha", alpha, above=0)
    found = []
    for block, part in zip(grads.blocks, adapter, strict=True):
        gradients = {}
        for name, lora in matrices_of(part):
            dW = get_matrix(block, name)
            s = float(alpha) / lora.A.shape[1]
            _, gradients[name] = lora_backward(dW, LoRACache(lora, s, dW))
        found.append(BlockAdapter(**gradients))
    return tuple(found)


# --- matrices by name -----------------------------------------------------------------------------


def matrices_of(part: BlockAdapter) -> Iterator[tuple[str, LoRAParams]]:
    """Iterate over the adapted matrices of a block."""
    for name, lora in zip(part._fields, part, strict=True):
        if lora is not None:
            yield name, lora


def get_matrix(block: CausalBlockParams, name: str) -> Array:
    """Return the weight matrix with this name, from the attention or from the feed-forward network."""
    matrix: Array = getattr(_layer_of(block, name), name)
    return matrix


def replace_matrix(block: CausalBlockParams, name: str, W: Array) -> CausalBlockParams:
    """Return the block with a different matrix under this name."""
    layer = _layer_of(block, name)._replace(**{name: W})
    if name in block.attention._fields:
        return block._replace(attention=layer)
    return block._replace(ffn=layer)


def _layer_of(block: CausalBlockParams, name: str) -> Any:
    """Return the parameters that contain the matrix with this name."""
    if name in block.attention._fields:
        return block.attention
    return block.ffn


def check_adapter(function: str, params: CausalLMParams, adapter: Adapter) -> None:
    """Raise an error unless the adapter has one part per block, and each pair A, B fits its matrix."""
    n_blocks = len(params.blocks)
    if len(adapter) != n_blocks:
        raise ValueError(f"{function}: adapter has {len(adapter)} blocks; expected {n_blocks} like the model")
    for i, (block, part) in enumerate(zip(params.blocks, adapter, strict=True)):
        for name, (A, B) in matrices_of(part):
            W = get_matrix(block, name)
            where = f"adapter[{i}].{name}"
            check_float(function, f"{where}.A", A, W.dtype, "the model")
            check_float(function, f"{where}.B", B, W.dtype, "the model")
            found = A.shape, B.shape
            r = A.shape[-1]
            expected = (W.shape[0], r), (r, W.shape[1])
            if found != expected:
                raise ValueError(f"{function}: {where} has the shapes {found}; expected {expected}")


# --- files ----------------------------------------------------------------------------------------

ARRAYS_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"
PREFIX = "base_model.model."  # the beginning of all names: PEFT wraps the model in two objects
MODULES = {  # the name that Hugging Face gives to each matrix
    "W_Q": "q_proj", "W_K": "k_proj", "W_V": "v_proj", "W_O": "o_proj",
    "W_gate": "gate_proj", "W_up": "up_proj", "W_down": "down_proj",
}  # fmt: skip
# Settings of PEFT that would change the equation. They must be absent or have this value.
SUPPORTED = {
    "peft_type": "LORA", "bias": "none", "use_rslora": False, "use_dora": False, "fan_in_fan_out": False,
    "modules_to_save": None, "rank_pattern": {}, "alpha_pattern": {}, "alora_invocation_tokens": None,
    "arrow_config": None, "kasa_config": None, "layer_replication": None, "lora_bias": False,
    "use_bdlora": None, "use_qalora": False,
}  # fmt: skip
# Values of PEFT's setting init_lora_weights for which PEFT also changes the frozen matrices W.
INITS_THAT_CHANGE_W = ("pissa", "olora", "corda", "lora_ga", "loftq")


def save_adapter(folder: Any, adapter: Adapter, config: CausalLMConfig, *, alpha: float = 8.0) -> None:
    """Save an adapter as two files, adapter_model.safetensors and adapter_config.json, as PEFT does.

    In an interleaved model, the columns of W_Q and W_K are reordered to halves, as in ``causal_lm_to_torch``.

    Parameters
    ----------
    folder : str or path
        The folder is created if it does not exist.
    adapter : tuple of BlockAdapter
        All matrices have the same rank.
    config : CausalLMConfig
        The configuration of the model.
    alpha : float, alpha > 0

    Raises
    ------
    ImportError
        If the package safetensors is not installed.
    ValueError
        If the adapter is empty, has matrices of several ranks, or does not fit the configuration.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> config = CausalLMConfig(d_model=8, d_ff=12, n_heads=2, n_kv_heads=1, n_layers=1)
    >>> lora = init_lora(8, 8, 2, np.random.default_rng(0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_adapter(folder, (BlockAdapter(W_Q=lora),), config, alpha=16)
    ...     adapter, alpha = load_adapter(folder, config)
    >>> adapter[0].W_Q.A.shape, alpha
    ((8, 2), 16.0)
    """
    import json

    check_kind("save_adapter", "config", config, CausalLMConfig)
    check_number("save_adapter", "alpha", alpha, above=0)
    ranks = {lora.A.shape[1] for part in adapter for _, lora in matrices_of(part)}
    if len(ranks) != 1:
        raise ValueError(f"save_adapter: adapter has the ranks {sorted(ranks)}; expected one rank")
    target = as_path("save_adapter", "folder", folder)
    target.mkdir(parents=True, exist_ok=True)
    adapter = _reorder_columns("save_adapter", adapter, config, interleaved_to_halves)
    save_safetensors(target / ARRAYS_FILE, adapter_to_torch(adapter))
    names = sorted({MODULES[name] for part in adapter for name, _ in matrices_of(part)})
    settings = {"peft_type": "LORA", "r": ranks.pop(), "lora_alpha": float(alpha), "target_modules": names}
    settings |= {"bias": "none", "task_type": "CAUSAL_LM"}
    with open_atomically("save_adapter", target / CONFIG_FILE) as stream:
        stream.write(json.dumps(settings, indent=1).encode())


def load_adapter(folder: Any, config: CausalLMConfig) -> tuple[Adapter, float]:
    """Load an adapter from the two files that ``save_adapter`` or PEFT has written. Nothing is executed.

    For an interleaved model, the columns of W_Q and W_K are reordered, as ``causal_lm_from_torch`` does.

    Parameters
    ----------
    folder : str or path
    config : CausalLMConfig
        The configuration of the model.

    Returns
    -------
    adapter : tuple of BlockAdapter
        Each A and B is transposed, because PyTorch stores a weight as (d_out, d_in).
    alpha : float

    Raises
    ------
    ImportError
        If the package safetensors is not installed.
    FileNotFoundError
        If a file is missing.
    ValueError
        If a file is damaged, or if it has a name or a setting that this package does not support.

    Examples
    --------
    >>> config = CausalLMConfig(d_model=8, d_ff=12, n_heads=2, n_kv_heads=1, n_layers=1)
    >>> load_adapter("no/such/folder", config)
    Traceback (most recent call last):
        ...
    FileNotFoundError: load_adapter: there is no file no/such/folder/adapter_config.json
    """
    function = "load_adapter"
    check_kind(function, "config", config, CausalLMConfig)
    source = as_path(function, "folder", folder)
    config_file = require_file(function, "folder", source / CONFIG_FILE)
    arrays_file = require_file(function, "folder", source / ARRAYS_FILE)
    settings = read_json(function, config_file)
    settings = {name: value for name, value in settings.items() if value is not None}
    check_settings(function, config_file, settings, SUPPORTED)
    init = settings.get("init_lora_weights")
    if str(init).lower().startswith(INITS_THAT_CHANGE_W):
        raise ValueError(
            f"{function}: {config_file} says init_lora_weights = {init!r}; expected an adapter for an "
            "unchanged base model, but with this value PEFT also changes the weights of the base model"
        )
    alpha: Any = settings.get("lora_alpha")
    check_number(function, f"{config_file}: lora_alpha", alpha, above=0)
    arrays = read_arrays(function, arrays_file)
    adapter = adapter_from_torch(function, arrays_file, arrays, config.n_layers)
    return _reorder_columns(function, adapter, config, halves_to_interleaved), float(alpha)


def adapter_to_torch(adapter: Adapter) -> dict[str, Array]:
    """Return the arrays of an adapter under PEFT's names. A and B are transposed."""
    arrays = {}
    for i, part in enumerate(adapter):
        for name, lora in matrices_of(part):
            name_A, name_B = names_in_file(i, name)
            arrays[name_A] = lora.A.T.copy()
            arrays[name_B] = lora.B.T.copy()
    return arrays


def adapter_from_torch(function: str, file: "Path", arrays: Mapping[str, Array], n_layers: int) -> Adapter:
    """Build an adapter from arrays under PEFT's names. Raises ValueError for a name that does not fit."""
    adapter: list[dict[str, tuple[str, str]]] = []
    expected: list[str] = []
    for i in range(n_layers):
        parts: dict[str, tuple[str, str]] = {}
        for name in BlockAdapter._fields:
            names = names_in_file(i, name)
            if names[0] in arrays or names[1] in arrays:
                expected += names
                parts[name] = names
        adapter.append(parts)
    check_names(function, file, f"an adapter with {n_layers} blocks", expected, arrays)
    for name in expected:
        check_float(function, f"{file}[{name!r}]", arrays[name])
    blocks = []
    for parts in adapter:
        pairs = {name: LoRAParams(arrays[a].T, arrays[b].T) for name, (a, b) in parts.items()}
        blocks.append(BlockAdapter(**pairs))
    return tuple(blocks)


def names_in_file(i: int, name: str) -> tuple[str, str]:
    """Return PEFT's names of A and B for a matrix of block i."""
    layer = "attention" if name in ("W_Q", "W_K", "W_V", "W_O") else "ffn"
    weight = HUGGING_FACE_NAMES[f"blocks.{{}}.{layer}.{name}"].replace("{}", str(i))
    module = PREFIX + weight.removesuffix(".weight")
    return f"{module}.lora_A.weight", f"{module}.lora_B.weight"


def _reorder_columns(
    function: str, adapter: Adapter, config: CausalLMConfig, reorder: Callable[..., Array]
) -> Adapter:
    """Reorder the columns of B, and so of ΔW = s A B, for W_Q and W_K of an interleaved model."""
    if config.rope_layout == "halves":
        return adapter
    d_k = config.d_model // config.n_heads
    blocks = []
    for i, part in enumerate(adapter):
        for name in ("W_Q", "W_K"):
            lora = getattr(part, name)
            if lora is None:
                continue
            d_out = lora.B.shape[1]
            if d_out % d_k:
                expected = f"a multiple of d_k = {d_k}"
                raise ValueError(
                    f"{function}: adapter[{i}].{name}.B has {d_out} columns; expected {expected}"
                )
            B = reorder(lora.B, d_k, n_rotated=count_rotated_columns(config))
            part = part._replace(**{name: lora._replace(B=B)})
        blocks.append(part)
    return tuple(blocks)
