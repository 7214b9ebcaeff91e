"""Modules that the notebooks import: answers, texts, tasks, costs, diagnostics, worked example, plots."""

from npformer.lessons.named_example import example_from_name
from npformer.lessons.predictions import reveal
from npformer.lessons.worked_example import worked_example

__all__ = ["example_from_name", "reveal", "worked_example"]
