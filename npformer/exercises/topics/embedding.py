"""Embeddings: the order of words, rows of a table, their factor, and the positions that are added."""

import numpy as np

from npformer.backend import Array
from npformer.embedding import EmbeddingCache, EmbeddingParams, embedding_backward, embedding_forward
from npformer.exercises.probe import Probe, normal
from npformer.exercises.task import (
    RIGHT,
    Choice,
    Code,
    Draw,
    Edit,
    Mistake,
    Place,
    Posed,
    Truth,
    Wrong,
    numbers,
)
from npformer.exercises.topics import positions
from npformer.positional import positional_encoding

S1_1 = Place(positions.PAPER, "01, section 1.1, Two sentences, the same three words")
S1_9 = Place('"Attention Is All You Need", section 3.4', "01, section 1.9, Add it, and look again")
S1_9_PE = Place(positions.PAPER, S1_9.teach)
S2_8 = Place(positions.PAPER, "02, section 2.8, Add, or glue together?")
S2_9 = Place(positions.PAPER, "02, section 2.9, The learned table, in outline")
S3_9 = Place("lesson 03, section 3.9", "03, section 3.9, Why the gradient of a bias is a sum")
S5_7 = Place(positions.PAPER, "05, section 5.7, Two hints for debugging, acted out")

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

# --- the order of words -------------------------------------------------------------------------------

bag = Choice("order.bag", "order", 1, S1_1,
    task="Attention is given word embeddings and nothing else. How much does it know about their order?",
    hint="Shuffle the rows of x in your mind and follow them.",
    question="If two words trade places, which numbers of the attention change?",
    options={
        "All of it, since it compares every pair of words.": Wrong("CF-PAIRS-ARE-ORDER",
            "Pairs are compared, and a pair of embeddings does not say which of the two came first."),
        "Nothing: shuffled words give shuffled outputs.": RIGHT,
        "Nothing, and that does no harm: the words alone say what is meant.": Wrong("CF-ORDER-IRRELEVANT",
            "\"dog bites man\" and \"man bites dog\" hold the same words."),
    })
encoding_use = Choice("order.encoding_use", "order", 1, S1_1,
    task="Which sentence describes best what a position encoding does in a transformer?",
    hint='Think of "dog bites man" and "man bites dog".',
    question="What does the model see of a word when its encoding arrives?",
    options={
        "It sorts the words before they reach the first layer.": Wrong("CF-PE-SORTS",
            "The words stay where they are."),
        "It takes the place of the embeddings.": Wrong("CF-PE-REPLACES",
            "Then the meaning of the words would be lost."),
        "It tells attention which words to look at and which to ignore.": Wrong("CF-PE-MASKS",
            "That would be a mask."),
        "It adds a vector that depends on the position.": RIGHT,
    })
clinic = Choice("order.clinic", "order", 1, S5_7,
    task="A model reads clinical notes and mixes up what was given before an operation with what was "
    "given after it. What do you look at first?",
    hint="Before and after are positions.",
    question='Which part of the input differs between "before" and "after"?',
    options={
        "How positions reach the embeddings.": RIGHT,
        "How large the vocabulary is.": Wrong("CF-VOCABULARY",
            "Before and after are in any vocabulary; what they apply to is a matter of order."),
        "Whether dropout is still on.": Wrong("CF-DROPOUT",
            "Dropout blurs all words alike; it does not exchange before and after."),
    })
padding = Truth("order.padding", "order", 2, positions.S1_4,
    task="In a table as the paper has it, the first row, position 0, is all zeros.",
    hint="What is cos 0?",
    question="What is cos 0?",
    right=False,
    wrong=Wrong(positions.ROW0_ZERO,
        "Some libraries zero a row for padding; here position 0 is the first word."))
trained = Truth("order.trained", "order", 1, S2_9,
    task="The sinusoidal table is trained together with the weights.",
    hint="Count its parameters.",
    question="Which parameters would the training change?",
    right=False,
    wrong=Wrong("CF-TABLE-TRAINED",
        "There are learned tables too, and the paper tried one; the sinusoidal table has no parameter."))
learned = Choice("order.learned", "order", 2, S2_9,
    task="What happens when a learned table of 512 positions meets a text of 600 words?",
    hint="A table is a list of rows.",
    question="Which row would the 600th word get, counted from 0: is there a row 599?",
    options={
        "It continues the pattern that it has learned.": Wrong("CF-TABLE-CONTINUES",
            "There is no formula behind a learned row."),
        "The last 88 have no row.": RIGHT,
        "It starts again at row 0, as a clock does.": Wrong("CF-TABLE-WRAPS",
            "Then two words would stand at one place."),
    })

# --- rows of a table, and positions added -------------------------------------------------------------

how = Choice("addition.how", "addition", 1, S2_8,
    task="How do an embedding x and the encoding PE of its position come together in the paper?",
    hint="The width stays d_model.",
    question="What is the width of the result?",
    options={
        "x + PE": RIGHT,
        "x and PE side by side": Wrong("CF-CONCATENATE", "Then the width would double."),
        "x · PE, entry by entry": Wrong("CF-PRODUCT", "At position 0 every second entry would be lost."),
    })


@numbers("addition.vector", "addition", 1, S1_9_PE,
    task="An embedding is {x}. The word stands at position 0 and d_model = 4. What enters the first "
    "block? (Leave the factor √d_model out.)",
    hint="Row 0 holds sin 0 and cos 0.",
    question="What is row 0 of the table?")
def vector(draw: Draw) -> Posed:
    """An embedding with the encoding of position 0 added."""
    x, row = draw.row([2, -1, 3, 5]), np.array([0, 1, 0, 1])
    return Posed({"x": x}, x + row, {
        positions.SWAPPED: x + row[::-1],
        Wrong("CF-PRODUCT", "This is a product, and it loses the embedding where the encoding is "
            "0."): x * row,
        Wrong("CF-NO-POSITION", "This is the embedding alone."): x,
        positions.SUM: x + 1,
        positions.POS_ONE_BASED: x + positional_encoding(2, 4)[1],
        Wrong("CF-SCALED-TOO", "Here the embedding was multiplied by √d_model first."): 2 * x + row,
    })


@numbers("addition.scale", "addition", 2, S1_9,
    task="By what does the paper multiply its embeddings when d_model = {d}?",
    hint="See the last sentence of the section.",
    question="How large are the entries of the position table beside the embeddings?")
def scale(draw: Draw) -> Posed:
    """What the paper multiplies its embeddings by."""
    root = draw.integer(16, 8, 32)
    wrong: dict[Mistake | Wrong, float] = {NO_SCALE: 1, SCALE_D: root * root, SCALE_DIVIDED: 1 / root}
    return Posed({"d": root * root}, root, wrong)


def rows(ids: Array, E: Array) -> Array:
    """npformer's."""
    return embedding_forward(ids, EmbeddingParams(E))[0]


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
        landmarks={
            "the rows of E for these ids": lambda ids, E: E[ids],
            "the row of the id before each id": lambda ids, E: rows((ids - 1) % len(E), E),
        },
    ),
    right=rows,
    solution="""
def embedding(ids, E):
    return E[ids] * E.shape[1] ** 0.5
""",
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
    right=lambda dy, ids, E: embedding_backward(dy, EmbeddingCache(ids, E)).E,
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
