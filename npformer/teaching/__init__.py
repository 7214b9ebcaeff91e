"""For the class: the worked example, worksheets, the player, tasks, pictures, costs and diagnostics."""

from npformer.teaching.worked_example import Example, worked_example

__all__ = ["example_from_name", "worked_example"]


def example_from_name(name: str) -> Example:
    """The worked example with numbers drawn from a student's name: worksheet.example_from_name.

    >>> example_from_name("Ada").tokens
    ('dog', 'bites', 'man')
    """
    from npformer.teaching import (
        worksheet,
    )  # when it is used: it imports what `import npformer` does not need

    return worksheet.example_from_name(name)
