"""The configuration of a model: its sizes and choices."""

from typing import Annotated, Any, Literal, NamedTuple

from npformer.functional import Activation
from npformer.validation.annotations import Count, Length, NonNegative, Rate, Size
from npformer.validation.call import Call, Phase
from npformer.validation.checks import check_integer
from npformer.validation.rules import rule

# --- what the settings must satisfy ---------------------------------------------------------------
# Rules are conditions that a type cannot express. Argument validation (npformer/validation) checks them.
# The modules attention and modern.causal_lm use Heads too, and attention uses EVEN_HEADS.


@rule("divides d_model", Phase.IDS)
def HEADS(value: Any, name: str, call: Call) -> None:
    """Check that the number of heads divides d_model, and record the number as the size h."""
    check_integer(call.function, name, value, 1)
    d_model = call.sizes["d_model"]
    if d_model % value:
        raise call.value_error(f"{name} is {value}; expected a divisor of d_model={d_model}")
    call.sizes["h"] = value


@rule("RoPE needs an even d_k", Phase.MASKS)
def EVEN_HEADS(value: Any, name: str, call: Call) -> None:
    """Check that d_k is even if the value switches RoPE on, because RoPE rotates pairs of columns."""
    d_model, n_heads = call.sizes["d_model"], call.sizes["h"]
    d_k = d_model // n_heads
    has_rope = value in (True, "rope")
    if has_rope and d_k % 2:
        given = f"d_model={d_model} and n_heads={n_heads} give {d_k}"
        raise call.value_error(f"{name} is {value!r}; expected an even d_k, {given}")


Heads = Annotated[int, HEADS]


# --- the configuration ----------------------------------------------------------------------------


Norm = Literal["post", "pre"]
Positions = Literal["sinusoidal", "learned", "rope", "alibi", "none"]


class TransformerConfig(NamedTuple):
    """The sizes and choices of a Transformer. The defaults are the base model of the paper (Table 3).

    Attributes
    ----------
    d_model : int
        The number of columns of each token's vector.
    d_ff : int
        The number of hidden units of the feed-forward network.
    n_heads : int
        The number of attention heads. Each head has d_k = d_model / n_heads columns.
    n_layers : int
        The number of blocks in each stack.
    activation : "relu", "gelu" or "gelu_tanh"
        The activation function of the feed-forward network.
    norm : "post" or "pre"
        "post" normalizes after the residual sum, as in the paper. "pre" normalizes the input of each
        sub-layer.
    eps : float, eps >= 0
        The number that layer norm adds to the variance.
    dropout : float, 0 <= dropout < 1
        The dropout rate. It has an effect only in calls with an rng.
    positions : "sinusoidal", "learned", "rope", "alibi" or "none"
        How the model represents positions. RoPE rotates pairs of columns, so "rope" needs an even d_k.
    attention_bias : bool
        Whether attention has the biases b_Q, b_K, b_V and b_O. Only ``init_…`` functions read this field.
    max_length : int
        The number of rows of a learned position table. The other choices of positions have no limit.
    """

    d_model: Size = 512
    d_ff: Size = 2048
    n_heads: Heads = 8
    n_layers: Length = 6
    activation: Activation = "relu"
    norm: Norm = "post"
    eps: NonNegative = 1e-5
    dropout: Rate = 0.1
    positions: Annotated[Positions, EVEN_HEADS] = "sinusoidal"
    attention_bias: bool = False
    max_length: Count = 512
