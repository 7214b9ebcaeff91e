"""Embeddings: rows of a table, their factor, and the positions that are added."""

import numpy as np

from npformer.exercises.probe import Probe, normal
from npformer.exercises.task import Code, Draw, Edit, Mistake, Place, Posed
from npformer.exercises.topics import positions
from npformer.exercises.topics.questions import drawn
from npformer.exercises.topics.shared import instead
from npformer.positional import positional_encoding

S1_9 = Place('"Attention Is All You Need", section 3.4', "01, section 1.9, Add it, and look again")
S3_9 = Place("lesson 03, section 3.9", "03, section 3.9, Why the gradient of a bias is a sum")

# --- what is said -------------------------------------------------------------------------------------

NO_SCALE = Mistake("EMB-NO-SCALE", S1_9,
    "The right rows were found; the answer is smaller by one constant factor.",
    "This output matches a lookup without the factor of the paper.",
    "How large are the embeddings beside the position table?")
SCALE_D = Mistake("EMB-SCALE-D", S1_9,
    "The right rows were found; the answer is larger by one constant factor.",
    "This output matches a factor of d_model; a root is missing.",
    "Which factor does the paper's last sentence of this section name?")
SCALE_DIVIDED = Mistake("EMB-SCALE-DIVIDED", S1_9,
    "The right rows were found; the answer is smaller by one constant factor.",
    "This output matches rows that are divided by √d_model.",
    "Should an embedding become larger or smaller beside the position table?")
GRAD_LAST = Mistake("EMB-GRAD-LAST", S3_9,
    "Words that occur once have the right gradient; of a word that occurs again one place alone counts.",
    "This pattern appears when dE[ids] is written to, with = or with +=: NumPy keeps one of several.",
    "A word stands at two places: how many gradients arrive at its row, and what becomes of them?")
GRAD_MEAN = Mistake("EMB-GRAD-MEAN", S3_9,
    "Words that occur once have the right gradient; that of a repeated word is too small, by how often it "
    "occurs.",
    "This output matches a mean over the places of each word.",
    "If one row of E moves, at how many places does x move?")
GRAD_NO_SCALE = Mistake("EMB-GRAD-NO-SCALE", S1_9,
    "The right rows have their sums; all are smaller by one constant factor.",
    "This output matches the way back through a lookup alone, without the factor of the paper.",
    "If one number of E grows by 1, by how much does x grow at each of its places?")
GRAD_PLACES = Mistake("EMB-GRAD-PLACES", S3_9,
    "The factor is right, and there is a row for each place of the text, not for each word.",
    "This output matches dy times its factor, not yet brought to the rows of E.",
    "Which rows of E were looked up, and which shape has the gradient of E?")

# --- rows of a table, and positions added -------------------------------------------------------------

@drawn("addition.vector")
def vector(draw: Draw) -> Posed:
    """An embedding with the encoding of position 0 added."""
    x, row = draw.row([2, -1, 3, 5]), np.array([0, 1, 0, 1])
    return Posed({"x": x}, x + row, {
        positions.SWAPPED: x + row[::-1],
        "CF-PRODUCT": x * row,
        "CF-NO-POSITION": x,
        positions.SUM: x + 1,
        positions.POS_ONE_BASED: x + positional_encoding(2, 4)[1],
        "CF-SCALED-TOO": 2 * x + row,
    })


@drawn("addition.scale")
def scale(draw: Draw) -> Posed:
    """What the paper multiplies its embeddings by."""
    root = draw.integer(16, 8, 32)
    return Posed({"d": root * root}, root, {NO_SCALE: 1, SCALE_D: root * root, SCALE_DIVIDED: 1 / root})


SOLUTION = """
def embedding(ids, E):
    return E[ids] * E.shape[1] ** 0.5
"""
forward = Code("embedding.forward", "addition", 2, S1_9,
    task="Look ids (batch, T) up in E (vocabulary, d_model) as the paper does, its factor included.",
    hint="Indexing, then one factor.",
    question="What does the paper do with the looked-up rows?",
    probe=Probe(
        "ids, E", ("x",),
        (
            (np.array([[2, 0, 5], [1, 5, 3]]), normal(6, 8)),
            (np.array([[1, 3], [2, 1], [0, 3]]), normal(4, 5)),
        ),
        sizes="ids: batch T; E: vocabulary d_model",
        landmarks=instead(SOLUTION, {
            "the rows of E for these ids": "E[ids]",
            "the row of the id before each id": "E[(ids - 1) % len(E)] * E.shape[1] ** 0.5",
        }),
    ),
    solution=SOLUTION,
    mistakes={
        NO_SCALE: [Edit(" * E.shape[1] ** 0.5", "")],
        SCALE_D: [Edit(" ** 0.5", "")],
        SCALE_DIVIDED: [Edit("* E", "/ E")],
    })


backward = Code("embedding.backward", "backward", 3, S1_9,
    task="x holds the rows of E (vocabulary, d_model) for ids (batch, T), times √d_model, as in the paper. "
    "Given dy in x's shape, return the gradient of E. A word may occur more than once, or not at all.",
    hint="Each place of the text has one gradient, and one row of E that it belongs to.",
    question="Which places of the text send a gradient to one row of E, and what becomes of several?",
    probe=Probe(
        "dy, ids, E", ("dE",),
        (
            (normal(2, 3, 8, seed=1), np.array([[2, 0, 5], [2, 5, 2]]), normal(6, 8)),
            (normal(3, 2, 5, seed=1), np.array([[1, 3], [1, 0], [4, 1]]), normal(7, 5)),
        ),
        sizes="ids: batch T; E: vocabulary d_model", unit="place",
    ),
    solution="""
def embedding_backward(dy, ids, E):
    dE = np.zeros(E.shape)
    np.add.at(dE, ids, dy)
    return dE * E.shape[1] ** 0.5
""",
    mistakes={
        GRAD_LAST: [Edit("np.add.at(dE, ids, dy)", "dE[ids] += dy")],
        GRAD_MEAN: [
            Edit("return ", "times = np.bincount(ids.ravel(), minlength=len(E))[:, None]\n    return ",
                "return dE", "return dE / np.maximum(times, 1)"),
        ],
        GRAD_PLACES: [Edit("return dE", "return dy")],
        GRAD_NO_SCALE: [Edit(" * E.shape[1] ** 0.5", "")],
    })
