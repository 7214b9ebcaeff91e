"""Check that a backward pass is the derivative of its forward pass, and describe a wrong gradient.

The package contains no code for particular layers. These are its modules; each uses the modules above it:

finite_differences   estimates derivatives and bounds their errors
relations            finds how a wrong array is related to the correct array
notes                describes a relation in words, with the templates in notes.toml
report               formats the result as a table
function_calls       calls both functions, and detects calls that change given data
verdicts             contains the rule that decides the verdict on an entry
leaf_comparison      applies the rule to all entries of one array
diagnosis            describes each gradient that fails
kernels              calls functions in low precision, and differentiates their reference in float64
low_precision        decides whether an error in low precision is rounding or a mistake
high_precision       compares float64 and float32 gradients with finite differences
comparison           contains the public functions, which import the other modules when they are called
"""

from npformer.gradcheck.comparison import assert_gradients, gradcheck
from npformer.gradcheck.report import GradientReport, GradientRow

__all__ = ["GradientReport", "GradientRow", "assert_gradients", "gradcheck"]
