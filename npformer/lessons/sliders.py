"""A slider below a cell of a lesson. Without ipywidgets, the cell shows the first position only."""

from collections.abc import Callable


def add_slider(function: Callable[[int], object], lowest: int, highest: int, value: int, label: str) -> None:
    """Call a function with the position of a slider, now and after each move.

    If ipywidgets is not installed, call the function once and print how to install ipywidgets.

    Parameters
    ----------
    function : function of an int
        It displays one picture for a position of the slider.
    lowest, highest : int
        The ends of the slider.
    value : int
        The first position.
    label : str
        The text next to the slider.

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
        from ipywidgets import IntSlider
    except ModuleNotFoundError:
        function(value)
        print(f"This is the picture for {label} = {value}. For a slider: pip install ipywidgets")
        return
    from IPython.display import display

    slider = IntSlider(min=lowest, max=highest, value=value, description=label)
    display(slider)  # type: ignore[no-untyped-call]
    first = _capture_picture(function, value)
    shown = display(first, display_id=True)  # type: ignore[no-untyped-call]
    # Each move replaces the picture. `ipywidgets.interact` would do the same with an Output widget. But an
    # Output widget makes `jupyter execute` hang: while this command handles the widget's messages, it misses
    # the message that the cell has finished.
    slider.observe(lambda change: shown.update(_capture_picture(function, change["new"])), names="value")


def _capture_picture(function: Callable[[int], object], position: int) -> object:
    """Call a function that displays one picture. Return the picture, to be displayed later."""
    from IPython.utils.capture import capture_output

    with capture_output(stdout=False, stderr=False) as captured:
        function(position)
    (picture,) = captured.outputs
    return picture
