"""The sizes and choices of a model."""

from typing import Annotated, Literal, NamedTuple

from npformer.annotations import EVEN_HEADS, Count, Heads, Length, NonNegative, Rate, Size
from npformer.functional import Activation

Norm = Literal["post", "pre"]
Positions = Literal["sinusoidal", "learned", "rope", "alibi", "none"]


class TransformerConfig(NamedTuple):
    """The sizes and choices of a model; the defaults are the paper's base model (its Table 3)."""

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
