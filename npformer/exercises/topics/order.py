"""Order in numbers: sentences of one bag, a coin's interval, ALiBi's bias, the rows that training met."""

import math

from npformer.exercises.task import Draw, Place, Posed, Wrong, numbers

TWINS = Place("lesson 06, section 6.1", "06, section 6.1, A task in which only the order decides")
COIN = Place("lesson 06, section 6.3", "06, section 6.3, Measuring and training")
LONGER = Place("lesson 06, section 6.7", "06, section 6.7, Longer than anything in training")


@numbers("order.twins", "order", 2, TWINS,
    task="A sentence is {k} different words in any order. How many such sentences share one bag of words, "
    "this one counted?",
    hint="Fill the places one after the other: how many words are left for each?",
    question="How many words are left for the second place when the first has its word?")
def twins(draw: Draw) -> Posed:
    """How many sentences have the same words."""
    k = draw.integer(4, 4, 7)
    return Posed({"k": k}, math.factorial(k), {
        Wrong("CF-TWIN-ALONE", "This counts the sentence and its twin; all words may trade places, not two "
            "alone."): 2,
        Wrong("CF-ORDER-EACH-WORD", "This is how many words can come first."): k,
        Wrong("CF-ORDERS-ADDED", "Here the choices for the places are added; each goes with each of the "
            "next."): k * (k + 1) // 2,
        Wrong("CF-WORDS-REPEATED", "This lets a word stand at several places; then it is another bag."): k**k,
        Wrong("CF-PAIRS-OF-PLACES", "This fills the first two places."): k * (k - 1),
        Wrong("CF-ONLY-OTHERS", "This leaves out the sentence itself."): math.factorial(k) - 1,
    })

ABOVE = (10, 3, 4, 5, 6, 8, 9, 11, 12, 13)  # percent above a half; 7 and 14 lie on the interval's very end


@numbers("order.coin", "order", 3, COIN,
    task="A model is right on {p} % of its test. How many sentences has the test at least, if {p} % lies "
    "above the coin's interval (95 times in 100)?",
    hint="The interval ends 1.96 standard deviations above one half: 1.96 √(1/(4n)).",
    question="How far above one half is the model, and how far does the interval reach with n sentences?")
def coin(draw: Draw) -> Posed:
    """How large a test has to be before a share says more than luck."""
    above = ABOVE[draw.integer(0, 0, len(ABOVE) - 1)] / 100
    least, narrow, wide = (int((width / 2 / above) ** 2) + 1 for width in (1.96, 1.0, 2 * 1.96))
    return Posed({"p": round(50 + 100 * above)}, least, {
        Wrong("CF-ONE-DEVIATION", "Here the interval is one standard deviation wide to each side; a coin "
            "leaves it about every third time."): narrow,
        Wrong("CF-COIN-VARIANCE-1", "Here one flip has the variance 1."): wide,
        Wrong("CF-COIN-NO-SQUARE", "Here the interval shrinks in proportion to n; it shrinks with the root "
            "of n."): int(1.96 / 2 / above) + 1,
        Wrong("CF-COIN-FROM-0", "This measures the share from 0; the coin's interval lies about one "
            "half."): int((1.96 / 2 / (0.5 + above)) ** 2) + 1,
        Wrong("CF-COIN-OF-THE-MODEL", "This takes the variance of the model's own share; the question is "
            "what a coin would do."): int(1.96**2 * (0.25 - above**2) / above**2) + 1,
        Wrong("CF-COIN-STILL-WITHIN", "With one sentence fewer than needed the share lies within the "
            "interval."): least - 1,
    })


@numbers("order.alibi", "order", 2, LONGER,
    task="The 8 heads of ALiBi, head 1 to head 8, have the slopes 1/2, 1/4, 1/8 and so on. What does head "
    "{h} add to the score of the query at position {i} and the key at position {j}? Three decimals.",
    hint="Count the steps between the two words; each takes one slope off.",
    question="Is a score larger or smaller when its two words are further apart, and by how much a step?",
    decimals=3)
def alibi(draw: Draw) -> Posed:
    """What one head of ALiBi adds to one score."""
    head, i, steps = draw.integer(3, 3, 7), draw.integer(12, 8, 30), draw.integer(5, 3, 7)
    slope, j = 2.0**-head, i - steps
    return Posed({"h": head, "i": i, "j": j}, -slope * steps, {
        Wrong("CF-BIAS-ADDED", "So a far word would get more attention than a near one."): slope * steps,
        Wrong("CF-HEAD-FROM-0", "This belongs to the head before: head 1 has the slope "
            "1/2."): -2 * slope * steps,
        Wrong("CF-HEAD-ONE-MORE", "This belongs to the next head."): -slope * steps / 2,
        Wrong("CF-SLOPE-LINEAR", "Here the slopes are 1/2, 1/4, 1/6: each is half of the one before "
            "it."): -steps / (2 * head),
        Wrong("CF-NO-SLOPE", "This is the distance alone, as for a slope of 1."): -steps,
        Wrong("CF-NO-DISTANCE", "This is what one step takes off."): -slope,
        Wrong("CF-BOTH-ENDS", "This counts words, both ends among them; steps are "
            "counted."): -slope * (steps + 1),
        Wrong("CF-KEY-ALONE", "Here the key's position is taken for the distance."): -slope * j,
        Wrong("CF-QUERY-ALONE", "Here the query's position is taken for the distance."): -slope * i,
    })


@numbers("order.met", "order", 2, LONGER,
    task="A learned table of positions has {rows} rows of {d} numbers. All sentences in training have {low} "
    "to {high} words. How many numbers of the table ever got a gradient?",
    hint="Which positions has the longest sentence?",
    question="Which is the last position that a sentence of training has, counted from 0?")
def met(draw: Draw) -> Posed:
    """What of a learned table ever got a gradient."""
    rows, d = 32 * draw.integer(4, 2, 8), 8 * draw.integer(4, 2, 8)
    low, high = draw.integer(5, 3, 8), draw.integer(20, 12, 40)
    return Posed({"rows": rows, "d": d, "low": low, "high": high}, high * d, {
        Wrong("CF-ROWS-NEVER-MET", "These are the numbers that stay as they were born."): (rows - high) * d,
        Wrong("CF-WHOLE-TABLE", "This is the whole table; no sentence of training reached its "
            "end."): rows * d,
        Wrong("CF-POSITIONS-NOT-NUMBERS", "These are positions; each has a row of numbers."): high,
        Wrong("CF-LENGTHS-NOT-POSITIONS", "This counts the lengths; a short sentence has the first positions "
            "too."): (high - low + 1) * d,
        Wrong("CF-SHORTEST-ONLY", "This is what every sentence reaches; the longest ones go "
            "further."): low * d,
        Wrong("CF-ROW-TOO-MANY", "One row too many: positions are counted from 0."): (high + 1) * d,
        Wrong("CF-ROW-TOO-FEW", "One row short: position 0 counts as well."): (high - 1) * d,
    })
