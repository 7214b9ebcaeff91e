"""An encoder block under the names that PyTorch gives its arrays, both ways."""

from collections.abc import Mapping

from npformer.arrays import Array, array_module
from npformer.attention import AttentionParams
from npformer.encoder import EncoderBlockParams
from npformer.pretrained.named_arrays import check_state, from_names, table, to_names
from npformer.tree import tree_map
from npformer.validation.checks import check_shape

IN_ORDER = """self_attn.in_proj_weight self_attn.in_proj_bias
    self_attn.out_proj.weight self_attn.out_proj.bias
    linear1.weight linear1.bias linear2.weight linear2.bias
    norm1.weight norm1.bias norm2.weight norm2.bias""".split()
IN_PROJ = {IN_ORDER[0]: ("3 d_model", "d_model"), IN_ORDER[1]: ("3 d_model",)}  # of Q, K and V
TABLE = """self_attn.in_proj_weight[0] self_attn.in_proj_weight[1] self_attn.in_proj_weight[2]
    self_attn.out_proj.weight
    self_attn.in_proj_bias[0] self_attn.in_proj_bias[1] self_attn.in_proj_bias[2] self_attn.out_proj.bias
    norm1.weight norm1.bias linear1.weight linear1.bias linear2.weight linear2.bias norm2.weight norm2.bias"""


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
    function = "encoder_block_from_torch"
    check_state(function, state, EncoderBlockParams.__name__, IN_ORDER)
    sizes: dict[str, int] = {}
    for letter, name in ("d_model", "norm1.weight"), ("d_ff", "linear1.bias"):  # they tell the sizes
        check_shape(function, f"state[{name!r}]", state[name], (letter,), sizes)
        sizes |= {letter: len(state[name]), f"3 {letter}": 3 * len(state[name])}
    arrays = dict(state)
    for name, letters in IN_PROJ.items():
        whole = arrays.pop(name)
        check_shape(function, f"state[{name!r}]", whole, letters, sizes)
        arrays |= {f"{name}[{i}]": part for i, part in enumerate(whole.reshape(3, -1, *whole.shape[1:]))}
    block = from_names(function, "state", table(EncoderBlockParams, TABLE), arrays, sizes)
    return EncoderBlockParams(*tree_map(lambda a: a.copy(), block))


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
    xp = array_module(params.norm_1.beta)
    zeros = xp.zeros_like(params.norm_1.beta)  # (d_model,)
    attention = AttentionParams(*[zeros if part is None else part for part in params.attention])
    state = to_names(table(EncoderBlockParams, TABLE), params._replace(attention=attention))
    whole = {name: xp.concatenate([state[f"{name}[{i}]"] for i in range(3)]) for name in IN_PROJ}
    return {name: (whole | state)[name] for name in IN_ORDER}
