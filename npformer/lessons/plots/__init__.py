"""Pictures of arrays: functions that take arrays and return matplotlib figures.

    from npformer import positional_encoding
    plots.picture(plots.heat_map(positional_encoding(50, 64)))

Each module draws one kind of picture: `squares`, `lines`, `points`, `waves`, `block`, `bars`. All of them use
`colours`, `style` and `words`. The module `words` writes the alternative texts.
"""

from npformer.lessons.plots.bars import confidence, next_token, score_tiles, timeline
from npformer.lessons.plots.block import block_diagram, hourglass, lanes
from npformer.lessons.plots.lines import (
    accuracy,
    curves,
    gpu_growth,
    gradient_by_depth,
    growth,
    ranks,
    wavelength_curves,
)
from npformer.lessons.plots.points import error_clouds
from npformer.lessons.plots.squares import (
    attention_heads,
    attention_weights,
    binary_counter,
    cross_attention,
    heat_map,
    heat_maps,
    matrices,
    matrix,
    position_similarity,
    themes,
)
from npformer.lessons.plots.style import describe, encoded, picture
from npformer.lessons.plots.waves import clock_hands, frequency_bands

__all__ = [
    "accuracy",
    "attention_heads",
    "attention_weights",
    "binary_counter",
    "block_diagram",
    "clock_hands",
    "confidence",
    "cross_attention",
    "curves",
    "describe",
    "encoded",
    "error_clouds",
    "frequency_bands",
    "gpu_growth",
    "gradient_by_depth",
    "growth",
    "heat_map",
    "heat_maps",
    "hourglass",
    "lanes",
    "matrices",
    "matrix",
    "next_token",
    "picture",
    "position_similarity",
    "ranks",
    "score_tiles",
    "themes",
    "timeline",
    "wavelength_curves",
]
