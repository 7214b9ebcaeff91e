"""Exercises on embeddings: selecting rows of a table, scaling the rows, adding the positional encoding.

The docstring of the package `npformer.exercises.bank` defines the terms call, edit and intermediate result
(`landmarks`).
"""

import numpy as np

from npformer.exercises.bank.questions import function_exercise, number_exercise
from npformer.exercises.probe import Arguments, Draws, normal
from npformer.exercises.task import Draw, Edit, PosedQuestion
from npformer.positional import positional_encoding

# --- rows of a table, and positions added -------------------------------------------------------------

@number_exercise("addition.vector")
def vector(draw: Draw) -> PosedQuestion:
    """Ask for the sum of an embedding and the encoding of position 0."""
    x, row = draw.row([2, -1, 3, 5]), np.array([0, 1, 0, 1])
    return PosedQuestion({"x": x}, x + row, {
        "PE-SWAPPED": x + row[::-1],
        "CF-PRODUCT": x * row,
        "CF-NO-POSITION": x,
        "PE-SUM": x + 1,
        "PE-POS-ONE-BASED": x + positional_encoding(2, 4)[1],
        "CF-SCALED-TOO": 2 * x + row,
    })


@number_exercise("addition.scale")
def scale(draw: Draw) -> PosedQuestion:
    """Ask for the factor by which the paper multiplies its embeddings."""
    root = draw.integer(16, 8, 32)
    return PosedQuestion({"d": root * root}, root, {
        "EMB-NO-SCALE": 1,
        "EMB-SCALE-D": root * root,
        "EMB-SCALE-DIVIDED": 1 / root,
    })


SOLUTION = """
def embedding(ids, E):
    return E[ids] * E.shape[1] ** 0.5
"""
def draw(draws: Draws) -> Arguments:
    """Return random ids, which may repeat, and an embedding matrix."""
    V, d = draws.size(), draws.size()
    return draws.rng.integers(0, V, size=(draws.size(high=6), draws.size())), draws.normal(V, d)


def draw_back(draws: Draws) -> Arguments:
    """Return a random gradient of the selected rows, random ids, and an embedding matrix."""
    ids, E = draw(draws)
    return draws.normal(*ids.shape, E.shape[1]), ids, E


forward = function_exercise("embedding.forward", ("x",),
    (
        (np.array([[2, 0, 5], [1, 5, 3]]), normal(6, 8)),
        (np.array([[1, 3], [2, 1], [0, 3]]), normal(4, 5)),
        (np.array([[0, 2], [1, 1]]), normal(3, 2)),
    ),
    draw=draw, axes="ids: batch T; E: vocabulary d_model; x: batch T d_model",
    landmarks={
        "rows_of_E": "E[ids]",
        "scaled_row_of_previous_id": "E[(ids - 1) % len(E)] * E.shape[1] ** 0.5",
        "row_of_previous_id": "E[(ids - 1) % len(E)]",
        "scaled_row_of_next_id": "E[(ids + 1) % len(E)] * E.shape[1] ** 0.5",
        "row_of_next_id": "E[(ids + 1) % len(E)]",
    },
    solution=SOLUTION,
    mistakes={
        "EMB-NO-SCALE": [Edit(" * E.shape[1] ** 0.5", "")],
        "EMB-SCALE-D": [Edit(" ** 0.5", "")],
        "EMB-SCALE-DIVIDED": [Edit("* E", "/ E")],
    })


backward = function_exercise("embedding.backward", ("dE",),
    (
        (normal(2, 3, 8, seed=1), np.array([[2, 0, 5], [2, 5, 2]]), normal(6, 8)),
        (normal(3, 2, 5, seed=1), np.array([[1, 3], [1, 0], [4, 1]]), normal(7, 5)),
    ),
    draw=draw_back, axes="dy: batch T d_model; ids: batch T; E: vocabulary d_model; dE: vocabulary d_model",
    solution="""
def embedding_backward(dy, ids, E):
    dE = np.zeros(E.shape)
    np.add.at(dE, ids, dy)
    return dE * E.shape[1] ** 0.5
""",
    mistakes={
        "EMB-GRAD-LAST": [Edit("np.add.at(dE, ids, dy)", "dE[ids] += dy")],
        "EMB-GRAD-MEAN": [
            Edit("return ", "times = np.bincount(ids.ravel(), minlength=len(E))[:, None]\n    return ",
                "return dE", "return dE / np.maximum(times, 1)"),
        ],
        "EMB-GRAD-PLACES": [Edit("return dE", "return dy")],
        "EMB-GRAD-NO-SCALE": [Edit(" * E.shape[1] ** 0.5", "")],
    })
