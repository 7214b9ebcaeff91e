"""Convert an encoder block from and to the names and shapes of PyTorch's nn.TransformerEncoderLayer."""

from collections.abc import Mapping

from npformer.arrays import Array, array_module
from npformer.attention import AttentionParams
from npformer.encoder import EncoderBlockParams
from npformer.pretrained.named_arrays import (
    build_name_tree,
    build_tree,
    check_dtypes,
    check_is_dict,
    check_names,
    export_arrays,
)
from npformer.tree import tree_map
from npformer.validation.checks import check_shape

IN_PROJ_WEIGHT = "self_attn.in_proj_weight"  # W_Qᵀ, W_Kᵀ and W_Vᵀ stacked: (3 d_model, d_model)
IN_PROJ_BIAS = "self_attn.in_proj_bias"  # b_Q, b_K and b_V stacked: (3 d_model,)
STATE_DICT_NAMES = (  # in PyTorch's order
    IN_PROJ_WEIGHT,
    IN_PROJ_BIAS,
    "self_attn.out_proj.weight",
    "self_attn.out_proj.bias",
    "linear1.weight",
    "linear1.bias",
    "linear2.weight",
    "linear2.bias",
    "norm1.weight",
    "norm1.bias",
    "norm2.weight",
    "norm2.bias",
)
STACKED = {IN_PROJ_WEIGHT: ("3 d_model", "d_model"), IN_PROJ_BIAS: ("3 d_model",)}
NAMES = {  # "[0]", "[1]" and "[2]" are the parts of a stacked array
    "attention.W_Q": f"{IN_PROJ_WEIGHT}[0]",
    "attention.W_K": f"{IN_PROJ_WEIGHT}[1]",
    "attention.W_V": f"{IN_PROJ_WEIGHT}[2]",
    "attention.W_O": "self_attn.out_proj.weight",
    "attention.b_Q": f"{IN_PROJ_BIAS}[0]",
    "attention.b_K": f"{IN_PROJ_BIAS}[1]",
    "attention.b_V": f"{IN_PROJ_BIAS}[2]",
    "attention.b_O": "self_attn.out_proj.bias",
    "norm_1.gamma": "norm1.weight",
    "norm_1.beta": "norm1.bias",
    "ffn.W_1": "linear1.weight",
    "ffn.b_1": "linear1.bias",
    "ffn.W_2": "linear2.weight",
    "ffn.b_2": "linear2.bias",
    "norm_2.gamma": "norm2.weight",
    "norm_2.beta": "norm2.bias",
}


def encoder_block_from_torch(state: Mapping[str, Array]) -> EncoderBlockParams:
    """Convert the state_dict of an nn.TransformerEncoderLayer to the parameters of an encoder block.

    PyTorch stores a weight as (d_out, d_in) and computes x Wᵀ + b, so each weight is transposed. Its
    in_proj_weight stacks W_Qᵀ, W_Kᵀ and W_Vᵀ. `{name: t.numpy() for name, t in layer.state_dict().items()}`
    makes the dict. A dict of gradients under the same names is converted to gradients. PyTorch's norm1
    becomes norm_1, in post-norm and in pre-norm layers (`norm_first`).

    Parameters
    ----------
    state : dict of str to float array
        The arrays under the names of PyTorch.

    Returns
    -------
    params : EncoderBlockParams
        Copies of the arrays.

    Raises
    ------
    TypeError
        If the values are not arrays of one float dtype.
    ValueError
        If a name is missing or unknown, or if a shape does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from npformer import TransformerConfig, init_encoder_block
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2, attention_bias=True)
    >>> state = encoder_block_to_torch(init_encoder_block(config, np.random.default_rng(0)))
    >>> encoder_block_from_torch(state).ffn.W_1.shape
    (8, 32)
    """
    function = "encoder_block_from_torch"
    check_is_dict(function, state)
    check_names(function, "state", EncoderBlockParams.__name__, STATE_DICT_NAMES, state)
    check_dtypes(function, state)
    sizes = _read_sizes(function, state)
    arrays = _split_stacked(function, state, sizes)
    names = build_name_tree(EncoderBlockParams, NAMES)
    block = build_tree(function, "state", names, arrays, sizes)
    return EncoderBlockParams(*tree_map(lambda a: a.copy(), block))


def _read_sizes(function: str, state: Mapping[str, Array]) -> dict[str, int]:
    """Return d_model, d_ff, 3 d_model and 3 d_ff. The lengths of two vectors determine them."""
    sizes: dict[str, int] = {}
    for dimension, name in (("d_model", "norm1.weight"), ("d_ff", "linear1.bias")):
        check_shape(function, f"state[{name!r}]", state[name], (dimension,), sizes)
        size = len(state[name])
        sizes[dimension] = size
        sizes[f"3 {dimension}"] = 3 * size
    return sizes


def _split_stacked(function: str, state: Mapping[str, Array], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Replace each stacked array by its three parts for Q, K and V, and return all arrays."""
    arrays = dict(state)
    for name, dimensions in STACKED.items():
        stacked = arrays.pop(name)
        check_shape(function, f"state[{name!r}]", stacked, dimensions, dict(sizes))
        parts = stacked.reshape(3, -1, *stacked.shape[1:])  # (3, d_model, ...)
        for i, part in enumerate(parts):
            arrays[f"{name}[{i}]"] = part
    return arrays


def encoder_block_to_torch(params: EncoderBlockParams) -> dict[str, Array]:
    """Convert the parameters of an encoder block to the state_dict of an nn.TransformerEncoderLayer.

    Undoes `encoder_block_from_torch`. Absent attention biases (None) become zeros, which have the same
    effect. `{name: torch.from_numpy(a) for name, a in state.items()}` is the argument of load_state_dict.

    Parameters
    ----------
    params : EncoderBlockParams

    Returns
    -------
    state : dict of str to float array
        Copies of the arrays under the names and in the shapes of PyTorch.

    Examples
    --------
    >>> import numpy as np
    >>> from npformer import TransformerConfig, init_encoder_block
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_encoder_block(config, np.random.default_rng(0))
    >>> encoder_block_to_torch(params)["self_attn.in_proj_weight"].shape
    (24, 8)
    """
    xp = array_module(params.norm_1.beta)
    zeros = xp.zeros_like(params.norm_1.beta)  # (d_model,)
    attention = AttentionParams(*[zeros if part is None else part for part in params.attention])
    names = build_name_tree(EncoderBlockParams, NAMES)
    arrays = export_arrays(names, params._replace(attention=attention))
    for name in STACKED:
        parts = [arrays[f"{name}[{i}]"] for i in range(3)]
        arrays[name] = xp.concatenate(parts)  # (3 d_model, ...)
    return {name: arrays[name] for name in STATE_DICT_NAMES}
