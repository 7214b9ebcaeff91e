"""An encoder block under the names that PyTorch gives its arrays, both ways."""

from collections.abc import Mapping
from typing import Any

from npformer.arrays import Array, array_module
from npformer.attention import AttentionParams
from npformer.door.validate import check_array, kind_of
from npformer.encoder import EncoderBlockParams
from npformer.feed_forward import FFNParams
from npformer.layer_norm import LayerNormParams


def encoder_block_from_torch(state: Mapping[str, Array]) -> EncoderBlockParams:
    """The arrays of an nn.TransformerEncoderLayer, by its state_dict's names, as this package's parameters.

    PyTorch keeps a weight as (d_out, d_in) and computes x Wᵀ + b, so each is turned over; in_proj_weight is
    W_Qᵀ, W_Kᵀ and W_Vᵀ, one below the other. `{name: t.numpy() for name, t in layer.state_dict().items()}`
    makes the dict; the same dict of gradients becomes gradients. norm1 is norm_1, whichever norm comes first.

    Raises TypeError for values that are not arrays of one float dtype, ValueError for a name that is missing
    or one too many, or a shape that does not fit.

    >>> import numpy as np
    >>> from npformer import TransformerConfig, init_encoder_block
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2, attention_bias=True)
    >>> state = encoder_block_to_torch(init_encoder_block(config, np.random.default_rng(0)))
    >>> encoder_block_from_torch(state).ffn.W_1.shape
    (8, 32)
    """
    d = _check_state("encoder_block_from_torch", state)
    W_Q, W_K, W_V = (W.T.copy() for W in state["self_attn.in_proj_weight"].reshape(3, d, d))
    b_Q, b_K, b_V = state["self_attn.in_proj_bias"].reshape(3, d).copy()
    W_O, W_1, W_2 = (
        state[f"{name}.weight"].T.copy() for name in ("self_attn.out_proj", "linear1", "linear2")
    )
    b_O, b_1, b_2 = (state[f"{name}.bias"].copy() for name in ("self_attn.out_proj", "linear1", "linear2"))
    gamma_1, gamma_2 = state["norm1.weight"].copy(), state["norm2.weight"].copy()
    beta_1, beta_2 = state["norm1.bias"].copy(), state["norm2.bias"].copy()
    return EncoderBlockParams(
        AttentionParams(W_Q, W_K, W_V, W_O, b_Q, b_K, b_V, b_O),
        LayerNormParams(gamma_1, beta_1),
        FFNParams(W_1, b_1, W_2, b_2),
        LayerNormParams(gamma_2, beta_2),
    )


def encoder_block_to_torch(params: EncoderBlockParams) -> dict[str, Array]:
    """The block's arrays by the names and in the shapes of an nn.TransformerEncoderLayer's state_dict.

    `layer.load_state_dict({name: torch.from_numpy(a) for name, a in state.items()})` takes it from there.
    Absent attention biases (None) become zeros, which add as little. Undoes `encoder_block_from_torch`.

    >>> import numpy as np
    >>> from npformer import TransformerConfig, init_encoder_block
    >>> config = TransformerConfig(d_model=8, d_ff=32, n_heads=2)
    >>> params = init_encoder_block(config, np.random.default_rng(0))
    >>> encoder_block_to_torch(params)["self_attn.in_proj_weight"].shape
    (24, 8)
    """
    (W_Q, W_K, W_V, W_O, *biases), norm_1, ffn, norm_2 = params
    xp = array_module(W_Q)
    zeros = xp.zeros_like(norm_1.beta)  # (d_model,)
    W_QKV = xp.concatenate([W_Q, W_K, W_V], axis=1)  # (d_model, 3 d_model)
    b_Q, b_K, b_V, b_O = (zeros if b is None else b.copy() for b in biases)
    return {
        "self_attn.in_proj_weight": W_QKV.T.copy(),  # (3 d_model, d_model)
        "self_attn.in_proj_bias": xp.concatenate([b_Q, b_K, b_V]),  # (3 d_model,)
        "self_attn.out_proj.weight": W_O.T.copy(),
        "self_attn.out_proj.bias": b_O,
        "linear1.weight": ffn.W_1.T.copy(),  # (d_ff, d_model)
        "linear1.bias": ffn.b_1.copy(),
        "linear2.weight": ffn.W_2.T.copy(),  # (d_model, d_ff)
        "linear2.bias": ffn.b_2.copy(),
        "norm1.weight": norm_1.gamma.copy(),
        "norm1.bias": norm_1.beta.copy(),
        "norm2.weight": norm_2.gamma.copy(),
        "norm2.bias": norm_2.beta.copy(),
    }


_AXES = {
    "norm1.weight": ("d_model",),
    "linear1.bias": ("d_ff",),
    "self_attn.in_proj_weight": ("3 d_model", "d_model"),
    "self_attn.in_proj_bias": ("3 d_model",),
    "self_attn.out_proj.weight": ("d_model", "d_model"),
    "self_attn.out_proj.bias": ("d_model",),
    "linear1.weight": ("d_ff", "d_model"),
    "linear2.weight": ("d_model", "d_ff"),
    "linear2.bias": ("d_model",),
    "norm1.bias": ("d_model",),
    "norm2.weight": ("d_model",),
    "norm2.bias": ("d_model",),
}


def _check_state(function: str, state: Any) -> int:
    """Refuse anything but the twelve arrays of one layer; returns d_model."""
    if not isinstance(state, Mapping):
        raise TypeError(f"{function}: state is {kind_of(state)}; expected a dict of names and arrays")
    for name in (name for name in (*_AXES, *state) if name not in _AXES or name not in state):
        where = "has no" if name in _AXES else "holds"
        raise ValueError(
            f"{function}: state {where} {name!r}; expected the 12 arrays of one layer with biases"
        )
    for name in ("norm1.weight", "linear1.bias"):  # they tell the sizes
        check_array(function, f"state[{name!r}]", state[name], _AXES[name], {})
    d_model, d_ff = len(state["norm1.weight"]), len(state["linear1.bias"])
    sizes = {"d_model": d_model, "3 d_model": 3 * d_model, "d_ff": d_ff}
    for name, letters in _AXES.items():
        check_array(function, f"state[{name!r}]", state[name], letters, sizes, state["norm1.weight"].dtype)
    return d_model
