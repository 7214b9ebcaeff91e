"""Is this backward pass the derivative of that forward, and if not, what does it look like? Knows no layer.

differences.py finds slopes and how far they may be off, calls.py calls the two functions, judging.py
compares, relations.py detects what a wrong gradient looks like, notes.py describes that with the templates
of notes.toml, report.py prints.
"""

from npformer.gradcheck.comparison import assert_gradients, gradcheck
from npformer.gradcheck.report import GradientReport, GradientRow

__all__ = ["GradientReport", "GradientRow", "assert_gradients", "gradcheck"]
