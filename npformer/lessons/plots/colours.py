"""Which colour means what: one visual language for every lesson.

Sine is blue, cosine orange, position green, meaning grey and a gradient red, always; signed values lie on a
diverging map centred at zero, weights on a sequential one. The colours are Okabe and Ito's, which
colour-blind readers tell apart.
"""

SINE, COSINE, POSITION, MEANING, GRADIENT = "#0072B2", "#E69F00", "#009E73", "#7F7F7F", "#D55E00"
INK, FAINT = "#1A1A1A", "#D9D9D9"
SIGNED_MAP, WEIGHT_MAP = "RdBu_r", "Purples"
