"""What width and length cost: multiplications, parameters, scores."""

from npformer.exercises.task import RIGHT, Choice, Draw, Place, Posed, Wrong, numbers

WIDTH = Place('"Attention Is All You Need", section 4', "03, section 3.11, What width costs")
WEIGHTS = Place('"Attention Is All You Need", section 3.3', WIDTH.teach)
ALL_PAIRS = Place(WIDTH.read, "04, section 4.1, Everybody asks, everybody answers")

wider = Choice("cost.wider", "cost", 1, WIDTH,
    task="d_ff or the number of layers grows. What grows with it?",
    hint="Count multiplications.",
    question="How many multiplications does one token need?",
    options={
        "The speed, on any machine with more than one core.": Wrong("CF-BIGGER-IS-FASTER",
            "More multiplications take more time."),
        "The number of labels.": Wrong("CF-LABELS", "The task decides how many labels there are."),
        "Computation, memory and time.": RIGHT,
    })


@numbers("cost.parameters", "cost", 2, WEIGHTS,
    task="How many parameters has a feed-forward network with d_model = {d} and d_ff = {f}, biases "
    "included?",
    hint="Two matrices, two vectors.",
    question="What are the shapes of the four arrays?")
def parameters(draw: Draw) -> Posed:
    """The number of parameters of a feed-forward network."""
    d, f = 64 * draw.integer(8, 2, 8), 64 * draw.integer(32, 9, 32)
    return Posed({"d": d, "f": f}, 2 * d * f + f + d, {
        Wrong("CF-NO-BIASES", "The weights are all counted; something else is learned too."): 2 * d * f,
        Wrong("CF-ONE-MATRIX", "This counts the first layer."): d * f + f,
        Wrong("CF-ONE-BIAS", "Both matrices and one bias are counted."): 2 * d * f + f,
        Wrong("CF-SECOND-BIAS", "Both matrices and the second bias are counted."): 2 * d * f + d,
        Wrong("CF-EQUAL-BIASES", "Both matrices are counted, and two biases of one "
            "length."): 2 * d * f + 2 * f,
        Wrong("CF-ONE-MATRIX-BARE", "This counts one matrix."): d * f,
    })


@numbers("cost.scores", "cost", 1, ALL_PAIRS,
    task="A text has {T} tokens. How many cells has the score matrix of one attention head?",
    hint="Every query meets every key.",
    question="How many keys does one query meet?")
def scores(draw: Draw) -> Posed:
    """The cells of one head's scores."""
    T = draw.integer(10, 6, 30)
    return Posed({"T": T}, T * T, {
        Wrong("CF-ONE-SCORE-EACH", "This is one score for each token."): T,
        Wrong("CF-BOTH-SIDES", "This grows in proportion to the number of tokens."): 2 * T,
        Wrong("CF-CAUSAL-CELLS", "This is what a causal mask leaves visible; here nothing is "
            "hidden."): T * (T + 1) // 2,
        Wrong("CF-NOT-ITSELF", "This leaves out the scores of a token with itself."): T * (T - 1),
    })
