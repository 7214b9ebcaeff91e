"""What the notebooks import: answers, texts, tasks, costs, diagnostics, the worked example and plots."""

from npformer.lessons.named_example import example_from_name
from npformer.lessons.predictions import reveal
from npformer.lessons.worked_example import worked_example

__all__ = ["example_from_name", "reveal", "worked_example"]
