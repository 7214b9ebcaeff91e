"""Pictures of arrays: functions that take arrays and return matplotlib Figures, a file for each lesson.

    from npformer import positional_encoding
    plots.picture(plots.heat_map(positional_encoding(50, 64)))

The files read in the lessons' order, `style`, `tables` and `lines` first: positions, feed_forward, attention,
block, order, decoder, search, speed, modern.
"""

from npformer.teaching.plots.attention import attention_heads, attention_weights
from npformer.teaching.plots.block import block_diagram, dataflow, gradient_by_depth
from npformer.teaching.plots.decoder import confidence, cross_attention
from npformer.teaching.plots.feed_forward import hourglass, lanes
from npformer.teaching.plots.lines import curves
from npformer.teaching.plots.modern import next_token, score_tiles
from npformer.teaching.plots.order import accuracy
from npformer.teaching.plots.positions import (
    binary_counter,
    clock_hands,
    frequency_bands,
    position_similarity,
    wavelength_curves,
)
from npformer.teaching.plots.search import themes
from npformer.teaching.plots.speed import gpu_growth, growth, timeline
from npformer.teaching.plots.style import (
    COSINE,
    FAINT,
    GRADIENT,
    INK,
    POSITION,
    SINE,
    STYLE,
    WEIGHT_MAP,
    describe,
    encoded,
    picture,
)
from npformer.teaching.plots.tables import heat_map, heat_maps, matrices, matrix

__all__ = [
    "COSINE",
    "FAINT",
    "GRADIENT",
    "INK",
    "POSITION",
    "SINE",
    "STYLE",
    "WEIGHT_MAP",
    "accuracy",
    "attention_heads",
    "attention_weights",
    "binary_counter",
    "block_diagram",
    "clock_hands",
    "confidence",
    "cross_attention",
    "curves",
    "dataflow",
    "describe",
    "encoded",
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
    "score_tiles",
    "themes",
    "timeline",
    "wavelength_curves",
]
