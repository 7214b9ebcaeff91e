"""The worked example with numbers of its own for each student, drawn from a name."""

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
DRAWN_FROM = (-1.0, -0.5, 0.0, 0.0, 0.0, 0.0, 0.5, 1.0)  # eight, so that a byte picks fairly


def example_from_name(name: str) -> Example:
    """“dog bites man” with embeddings, weights and target drawn from a name: the same ones everywhere.

    Capitals and spaces around the name make no difference. Draws that make a dull example are passed over.

    Raises TypeError unless the name is a string, ValueError when there is nothing in it.

    >>> example_from_name("Ada").block.attention.W_Q
    array([[ 0. ,  0. , -0.5,  0. ],
           [ 0. , -0.5,  0.5,  0. ],
           [-0.5,  0. ,  0.5,  0. ],
           [ 0.5,  0. , -1. , -0.5]])
    """
    draws = map(_draw, itertools.repeat(_numbers(letters_of("example_from_name", name))))
    return next(filter(is_lively, draws))


def letters_of(function: str, name: str) -> str:
    """A name as something is drawn from it, for that function: capitals and spaces make no difference."""
    if not isinstance(name, str):
        raise TypeError(f"{function}: name is {type(name).__name__}; expected a string")
    letters = " ".join(unicodedata.normalize("NFC", name.casefold()).split())
    if not letters:
        raise ValueError(f"{function}: the name is empty; expected at least one letter")
    return letters


def _numbers(letters: str) -> Iterator[float]:
    """Integers and halves without end, from a hash of the name: a library's random generator may change."""
    count = 0
    while True:
        digest = hashlib.sha256(f"{letters} {count}".encode("utf-8", "surrogatepass")).digest()
        yield from (DRAWN_FROM[byte % len(DRAWN_FROM)] for byte in digest)
        count += 1


def _draw(numbers: Iterator[float]) -> Example:
    model = dog_bites_man()
    like = (model.embedding, model.block.attention, model.block.ffn)
    embedding, attention, ffn = tree_map(partial(_draw_array, numbers), like)
    block = model.block._replace(attention=attention, ffn=ffn)
    example = model._replace(embedding=embedding, block=block)
    y = values(example, "y")["y"]
    target = np.rint(y + _draw_array(numbers, y)) + 0.0  # whole numbers near the output; + 0.0: no -0
    return example._replace(target=target)


def _draw_array(numbers: Iterator[float], like: Array) -> Array:
    """An array of that shape; a matrix has no row and no column of zeros only."""
    while True:
        drawn = np.array(list(itertools.islice(numbers, like.size))).reshape(like.shape)
        if drawn.ndim == 1 or (drawn.any(axis=0).all() and drawn.any(axis=1).all()):
            return drawn


def is_lively(example: Example) -> bool:
    """Whether the example is worth a pencil: nothing vanishes, nothing grows, rounding does no harm."""
    forward = values(example, "y")
    z, weights = forward["ffn.z"], forward["attention.weights"]
    on = (z > 0).sum(axis=-1)
    return (
        bool(abs(z).min() >= 0.05)  # rounding switches no unit on or off
        and bool(on.min() >= 1 and on.max() < z.shape[-1])
        and bool(weights.min() >= 0.02 and np.ptp(weights, axis=-1).min() >= 0.2)  # no head is blind or bored
        and all(forward[f"{norm}.variance"].min() >= 0.3 for norm in ("norm_1", "norm_2"))
        and _is_lively_on_the_way_back(example)
    )


def _is_lively_on_the_way_back(example: Example) -> bool:
    exact, pencil = values(example, "d_E"), values(example, "d_E", DECIMALS)
    for name, value in exact.items():  # a NaN is not within anything
        seen = abs(value).max() >= 0.05 or not name.startswith("d_")
        if not (seen and abs(value).max() < 20 and abs(value - pencil[name]).max() <= 0.05):
            return False
    trained = values(example, "new_loss", DECIMALS)
    return bool(trained["new_loss"] < trained["loss"])
