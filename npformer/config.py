"""The sizes and choices of a model."""

from typing import Annotated, Literal, NamedTuple

from npformer.functional import Activation
from npformer.validation.annotations import Count, Length, NonNegative, Rate, Size
from npformer.validation.rules import EVEN_HEADS, Heads

Norm = Literal["post", "pre"]
Positions = Literal["sinusoidal", "learned", "rope", "alibi", "none"]


class TransformerConfig(NamedTuple):
    """The sizes and choices of a model; the defaults are the paper's base model (its Table 3)."""

    d_model: Size = 512  # numbers a word
    d_ff: Size = 2048  # hidden units of the feed-forward network
    n_heads: Heads = 8  # of d_k = d_model / n_heads columns each
    n_layers: Length = 6  # blocks in a stack
    activation: Activation = "relu"  # of the feed-forward network
    norm: Norm = "post"  # behind the residual sum, as in the paper, or in front of the sub-layer
    eps: NonNegative = 1e-5  # of layer norm, beside the variance
    dropout: Rate = 0.1  # the share that is dropped where a call is given an rng
    positions: Annotated[Positions, EVEN_HEADS] = "sinusoidal"  # EVEN_HEADS: RoPE turns pairs of columns
    attention_bias: bool = False  # biases b_Q, b_K, b_V, b_O
    max_length: Count = 512  # rows of a learned position table; the other kinds have no limit
