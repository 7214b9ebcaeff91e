"""A slider below a cell of a lesson. Without ipywidgets, the cell shows the first position only."""

from collections.abc import Callable


def add_slider(function: Callable[[int], object], lowest: int, highest: int, value: int, label: str) -> None:
    """Call a function with the position of a slider, now and after each move.

    If ipywidgets is not installed, call the function once and say how to get the slider.

    Parameters
    ----------
    function : function of an int
        It shows something, such as a picture, for a position of the slider.
    lowest, highest : int
        The ends of the slider.
    value : int
        The first position.
    label : str
        The text beside the slider.

    Examples
    --------
    >>> import sys
    >>> from unittest.mock import patch
    >>> with patch.dict(sys.modules, ipywidgets=None):  # as if it were not installed
    ...     add_slider(lambda k: print("k is", k), 0, 9, value=4, label="k")
    k is 4
    This is the picture for k = 4. For a slider: pip install ipywidgets
    """
    try:
        from ipywidgets import IntSlider, interact
    except ModuleNotFoundError:
        function(value)
        print(f"This is the picture for {label} = {value}. For a slider: pip install ipywidgets")
        return
    slider = IntSlider(min=lowest, max=highest, value=value, description=label)

    def show(position: int) -> None:
        function(position)

    interact(show, position=slider)
