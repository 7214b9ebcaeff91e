"""Search by meaning, and the clock of a GPU."""

import numpy as np

from npformer.exercises.task import RIGHT, Choice, Draw, Place, Posed, Wrong, numbers

S8_2 = Place("lesson 08, section 8.2", "08, section 8.2, From letters to one vector")
S8_3 = Place("lesson 08, section 8.3", "08, section 8.3, Search by meaning")
S9_3 = Place("lesson 09, section 9.3", "09, section 9.3, Where the host waits")
S9_6 = Place("lesson 09, section 9.6", "09, section 9.6, The clock")

# --- search -------------------------------------------------------------------------------------------

@numbers("search.pool", "search", 2, S8_2,
    task="Four token rows come out of an encoder: {rows}. The last is padding. What is the mean-pooled "
    "vector? Two decimals.",
    hint="The mask says which rows count, in the sum and in the divisor.",
    question="How many rows take part, in the sum and in the divisor?",
    decimals=2)
def pool(draw: Draw) -> Posed:
    """The mean of the tokens that are no padding."""
    tokens = np.stack([draw.row(row, 1, 9) for row in ([2, 5], [4, 1], [9, 6])])
    rows = np.concatenate([tokens, [[7, 8]]])
    return Posed({"rows": rows}, tokens.mean(axis=0), {
        Wrong("CF-PADDING-COUNTED", "The row of the padding takes part in this mean."): rows.mean(axis=0),
        Wrong("CF-SUM-NO-MEAN", "This is a sum, which grows with the length of the "
            "text."): tokens.sum(axis=0),
        Wrong("CF-FIRST-TOKEN", "This is the first token alone."): tokens[0],
        Wrong("CF-DIVIDED-BY-ALL", "The padding is left out of the sum and counted in the "
            "divisor."): tokens.sum(axis=0) / 4,
        Wrong("CF-LARGEST", "This is the largest of each column."): tokens.max(axis=0),
        Wrong("CF-ROW-MEANS", "One mean for each token; one for each feature is asked "
            "for."): rows.mean(axis=1),
    })


@numbers("search.cosine", "search", 2, S8_3,
    task="Two sentence vectors are {a} and {b}. What is their cosine? Three decimals.",
    hint="The dot product, divided by both lengths.",
    question="What is divided out of the dot product?",
    decimals=3)
def cosine(draw: Draw) -> Posed:
    """The cosine between two vectors."""
    a, b = draw.row([3, 4], 1, 9), draw.row([1, 7], -9, 9)
    long_a, long_b = np.sqrt(a @ a), np.sqrt(b @ b) or 1.0  # b = 0 has the answer 0, and is drawn again
    product, right = float(a @ b), float(a @ b / (long_a * long_b))
    angle = np.arccos(np.clip(right, -1, 1))
    return Posed({"a": a, "b": b}, right, {
        Wrong("CF-DOT-PRODUCT", "This is the product q·k of the two, which grows with their "
            "lengths."): product,
        Wrong("CF-SQUARED-LENGTHS", "Here the product is divided by the squares of the "
            "lengths."): right / (long_a * long_b),
        Wrong("CF-ONE-LENGTH", "Here one of the two lengths is divided out."): product / long_a,
        Wrong("CF-DISTANCE", "This is the distance between the two points."): np.sqrt(((a - b) ** 2).sum()),
        Wrong("CF-ANGLE", "This is an angle; a sine or a cosine of it is asked for."): angle,
        Wrong("CF-ANGLE-DEGREES", "This is an angle, in degrees."): np.degrees(angle),
        Wrong("CF-COSINE-DISTANCE", "This is the distance that is made from a cosine: 1 less it."): 1 - right,
    })
unit = Choice("search.unit", "search", 3, S8_3,
    task="All vectors of a search have length 1. Which two orders of the results may differ?",
    hint="|a - b|² = 2 - 2 a·b.",
    question="What does |a - b|² become when both lengths are 1?",
    options={
        "By largest dot product and by largest cosine.": Wrong("CF-UNIT-DOT",
            "With lengths of 1 the two are one number."),
        "By largest dot product and by smallest distance.": Wrong("CF-UNIT-DISTANCE",
            "The square of the distance is 2 less twice the dot product: one falls as the other rises."),
        "None of these: they all agree.": RIGHT,
    })

# --- the GPU ------------------------------------------------------------------------------------------

@numbers("gpu.waits", "gpu", 2, S9_3,
    task="A training of {steps} steps runs on a GPU. The loss is printed after every {k}th step, and "
    "nothing else is looked at. How often does the host wait?",
    hint="Printing needs the number itself.",
    question="Which line needs a number on the host?")
def waits(draw: Draw) -> Posed:
    """How often the host waits when the loss is looked at after each k-th step."""
    k = draw.integer(10, 3, 20)
    steps = k * draw.integer(20, 8, 40)
    return Posed({"k": k, "steps": steps}, steps // k, {
        Wrong("CF-EVERY-STEP", "So often the host would wait if each loss were looked at."): steps,
        Wrong("CF-ONCE", "Once would be enough if the loss were looked at in the end only."): 1,
        Wrong("CF-INTERVAL", "This is the distance between two looks."): k,
        Wrong("CF-NEVER", "Each look brings a number to the host, and the host waits for it."): 0,
    })
clock = Choice("gpu.clock", "gpu", 2, S9_6,
    task="A stopwatch around one product on a GPU shows 20 microseconds, for any size. What was measured?",
    hint="The host hands work over and goes on.",
    question="When does the host know that the GPU has finished?",
    options={
        "How long it takes to hand the work over.": RIGHT,
        "The product: a GPU is so fast that the size does not show.": Wrong("CF-GPU-INSTANT",
            "A product of twice the width has eight times the work, on any machine."),
        "The way of the numbers to the GPU and back again.": Wrong("CF-GPU-COPY",
            "The arrays are there already, and a copy would grow with them."),
    })
