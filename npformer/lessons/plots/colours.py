"""The meaning of each colour: one visual language for every lesson.

Sine is always blue, cosine orange, position green, meaning grey and a gradient red. Signed values are drawn
with a diverging colour map centred at zero, weights with a sequential one. The colours are those of Okabe and
Ito, which colour-blind readers can distinguish.
"""

SINE, COSINE, POSITION, MEANING, GRADIENT = "#0072B2", "#E69F00", "#009E73", "#7F7F7F", "#D55E00"
INK, FAINT = "#1A1A1A", "#D9D9D9"
SIGNED_MAP, WEIGHT_MAP = "RdBu_r", "Purples"
