"""Is this backward pass the derivative of that forward, and if not, what does it look like? Knows no layer.

differences.py finds slopes and how far they may be off, judging.py calls the two functions and compares,
relations.py knows what wrong gradients look like, report.py prints.
"""

from npformer.gradcheck.judging import assert_gradients, gradcheck
from npformer.gradcheck.report import GradientReport, GradientRow

__all__ = ["GradientReport", "GradientRow", "assert_gradients", "gradcheck"]
