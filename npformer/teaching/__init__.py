"""For the class: the worked example, worksheets, tasks, pictures, costs and diagnostics."""

from npformer.teaching.worked_example import worked_example
from npformer.teaching.worksheet import example_from_name

__all__ = ["example_from_name", "worked_example"]
