"""The worked example with different numbers for each student. The student's name is the seed."""

import hashlib
import itertools
import unicodedata
from collections.abc import Iterator
from functools import partial

import numpy as np

from npformer.backend import Array
from npformer.lessons.worked_example import Example, dog_bites_man, values
from npformer.tree import tree_map

DECIMALS = 3
# A random byte selects one of these eight numbers. As 256 is a multiple of 8, all eight are equally likely.
NUMBERS = (-1.0, -0.5, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0)


def example_from_name(name: str) -> Example:
    """Draw random embeddings, weights and a target for “dog bites man”, with a name as the seed.

    The same name gives the same numbers on every machine. Capitals and spaces around the name make no
    difference. If a draw has extreme numbers, a new example is drawn.

    Parameters
    ----------
    name : str
        At least one letter.

    Returns
    -------
    example : Example
        The norms and the architecture are the same as in `dog_bites_man()`.

    Examples
    --------
    >>> example_from_name("Ada").block.attention.W_Q
    array([[ 0. ,  0. , -0.5,  0. ],
           [ 0. , -0.5,  0.5,  0. ],
           [-0.5,  0. ,  0.5,  0. ],
           [ 0.5,  0. , -1. , -0.5]])
    """
    numbers = _number_stream(normalize_name("example_from_name", name))
    example = _draw_example(numbers)
    while not is_lively(example):
        example = _draw_example(numbers)
    return example


def normalize_name(function: str, name: str) -> str:
    """Return a name in lowercase and without extra spaces. Error messages begin with `function`."""
    if not isinstance(name, str):
        raise TypeError(f"{function}: name is {type(name).__name__}; expected a string")
    letters = " ".join(unicodedata.normalize("NFC", name.casefold()).split())
    if not letters:
        raise ValueError(f"{function}: the name is empty; expected at least one letter")
    return letters


def _number_stream(letters: str) -> Iterator[float]:
    """Yield an endless stream of NUMBERS from a hash of the name.

    A library's random generator may give different numbers in a later version, but a hash stays the same.
    """
    count = 0
    while True:
        digest = hashlib.sha256(f"{letters} {count}".encode("utf-8", "surrogatepass")).digest()
        for byte in digest:
            yield NUMBERS[byte % len(NUMBERS)]
        count += 1


def _draw_example(numbers: Iterator[float]) -> Example:
    model = dog_bites_man()
    drawn_params = (model.embedding, model.block.attention, model.block.ffn)
    embedding, attention, ffn = tree_map(partial(_draw_array, numbers), drawn_params)
    block = model.block._replace(attention=attention, ffn=ffn)
    example = model._replace(embedding=embedding, block=block)
    y = values(example, "y")["y"]
    target = np.rint(y + _draw_array(numbers, y)) + 0.0  # integers near the output; + 0.0 turns -0.0 into 0.0
    return example._replace(target=target)


def _draw_array(numbers: Iterator[float], model: Array) -> Array:
    """Draw an array of the shape of `model`. A matrix is drawn again if a row or a column is all zeros."""
    while True:
        drawn = np.array(list(itertools.islice(numbers, model.size))).reshape(model.shape)
        if drawn.ndim == 1:
            return drawn
        has_zero_column = not drawn.any(axis=0).all()
        has_zero_row = not drawn.any(axis=1).all()
        if not has_zero_column and not has_zero_row:
            return drawn


def is_lively(example: Example) -> bool:
    """Return whether an example is suitable for a worksheet.

    No number is too small or too large, and rounding to three decimals hardly changes a result.
    Each token activates some hidden units but not all of them, and the training step lowers the loss.
    """
    return _is_forward_lively(example) and _is_backward_lively(example)


def _is_forward_lively(example: Example) -> bool:
    forward = values(example, "y")
    z, weights = forward["ffn.z"], forward["attention.weights"]
    active_units = (z > 0).sum(axis=-1)  # (n,)
    rounding_switches_no_unit = abs(z).min() >= 0.05
    every_token_has_active_units = active_units.min() >= 1
    every_token_has_inactive_units = active_units.max() < z.shape[-1]
    every_weight_is_visible = weights.min() >= 0.02
    no_row_of_weights_is_uniform = np.ptp(weights, axis=-1).min() >= 0.2
    variances_are_large = all(forward[f"{norm}.variance"].min() >= 0.3 for norm in ("norm_1", "norm_2"))
    return bool(
        rounding_switches_no_unit
        and every_token_has_active_units
        and every_token_has_inactive_units
        and every_weight_is_visible
        and no_row_of_weights_is_uniform
        and variances_are_large
    )


def _is_backward_lively(example: Example) -> bool:
    exact = values(example, "d_E")
    rounded = values(example, "d_E", DECIMALS)
    for name, value in exact.items():
        largest = abs(value).max()
        is_visible = largest >= 0.05 or not name.startswith("d_")
        rounding_error = abs(value - rounded[name]).max()
        if not (is_visible and largest < 20 and rounding_error <= 0.05):  # `not`, so that NaN is rejected too
            return False
    trained = values(example, "new_loss", DECIMALS)
    return bool(trained["new_loss"] < trained["loss"])
