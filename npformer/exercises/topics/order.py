"""Order in numbers: sentences of one bag, a coin's interval, ALiBi's bias, the rows that training met."""

import math

from npformer.exercises.task import Draw, Mistake, Numbers, Place, Posed

TWINS = Place("lesson 06, section 6.1", "06, section 6.1, A task in which only the order decides")
COIN = Place("lesson 06, section 6.3", "06, section 6.3, Measuring and training")
LONGER = Place("lesson 06, section 6.7", "06, section 6.7, Longer than anything in training")


def orders_of_a_bag(draw: Draw) -> Posed:
    """How many sentences have the same words."""
    k = draw.integer(4, 4, 7)
    wrong: dict[Mistake | str, int] = {
        "CF-TWIN-ALONE": 2,
        "CF-ORDER-EACH-WORD": k,
        "CF-ORDERS-ADDED": k * (k + 1) // 2,
        "CF-WORDS-REPEATED": k**k,
        "CF-PAIRS-OF-PLACES": k * (k - 1),
        "CF-ONLY-OTHERS": math.factorial(k) - 1,
    }
    return Posed({"k": k}, math.factorial(k), wrong)


twins = Numbers("order.twins", "order", 2, TWINS,
    task="A sentence is {k} different words in any order. How many such sentences share one bag of words, "
    "this one counted?",
    hint="Fill the places one after the other: how many words are left for each?",
    question="How many words are left for the second place when the first has its word?",
    draw=orders_of_a_bag,
    says={
        "CF-TWIN-ALONE": "This counts the sentence and its twin; all words may trade places, not two alone.",
        "CF-ORDER-EACH-WORD": "This is how many words can come first.",
        "CF-ORDERS-ADDED": "Here the choices for the places are added; each goes with each of the next.",
        "CF-WORDS-REPEATED": "This lets a word stand at several places; then it is another bag.",
        "CF-PAIRS-OF-PLACES": "This fills the first two places.",
        "CF-ONLY-OTHERS": "This leaves out the sentence itself.",
    })

ABOVE = (10, 3, 4, 5, 6, 8, 9, 11, 12, 13)  # percent above a half; 7 and 14 lie on the interval's very end


def enough_for_a_coin(draw: Draw) -> Posed:
    """How large a test has to be before a share says more than luck."""
    above = ABOVE[draw.integer(0, 0, len(ABOVE) - 1)] / 100
    least = {"CF-ONE-DEVIATION": 1.0, "CF-COIN-VARIANCE-1": 2 * 1.96, "": 1.96}
    n = {shown: int((width / 2 / above) ** 2) + 1 for shown, width in least.items()}
    wrong: dict[Mistake | str, int] = {
        "CF-ONE-DEVIATION": n["CF-ONE-DEVIATION"],
        "CF-COIN-VARIANCE-1": n["CF-COIN-VARIANCE-1"],
        "CF-COIN-NO-SQUARE": int(1.96 / 2 / above) + 1,
        "CF-COIN-FROM-0": int((1.96 / 2 / (0.5 + above)) ** 2) + 1,
        "CF-COIN-OF-THE-MODEL": int(1.96**2 * (0.25 - above**2) / above**2) + 1,
        "CF-COIN-STILL-WITHIN": n[""] - 1,
    }
    return Posed({"p": round(50 + 100 * above)}, n[""], wrong)


coin = Numbers("order.coin", "order", 3, COIN,
    task="A model is right on {p} % of its test. How many sentences has the test at least, if {p} % lies "
    "above the coin's interval (95 times in 100)?",
    hint="The interval ends 1.96 standard deviations above one half: 1.96 √(1/(4n)).",
    question="How far above one half is the model, and how far does the interval reach with n sentences?",
    draw=enough_for_a_coin,
    says={
        "CF-ONE-DEVIATION": "Here the interval is one standard deviation wide to each side; a coin leaves it "
        "about every third time.",
        "CF-COIN-VARIANCE-1": "Here one flip has the variance 1.",
        "CF-COIN-NO-SQUARE": "Here the interval shrinks in proportion to n; it shrinks with the root of n.",
        "CF-COIN-FROM-0": "This measures the share from 0; the coin's interval lies about one half.",
        "CF-COIN-OF-THE-MODEL": "This takes the variance of the model's own share; the question is what a "
        "coin would do.",
        "CF-COIN-STILL-WITHIN": "With one sentence fewer than needed the share lies within the interval.",
    })


def bias_at_a_distance(draw: Draw) -> Posed:
    """What one head of ALiBi adds to one score."""
    head, i, steps = draw.integer(3, 3, 7), draw.integer(12, 8, 30), draw.integer(5, 3, 7)
    slope, j = 2.0**-head, i - steps
    wrong: dict[Mistake | str, float] = {
        "CF-BIAS-ADDED": slope * steps,
        "CF-HEAD-FROM-0": -2 * slope * steps,
        "CF-HEAD-ONE-MORE": -slope * steps / 2,
        "CF-SLOPE-LINEAR": -steps / (2 * head),
        "CF-NO-SLOPE": -steps,
        "CF-NO-DISTANCE": -slope,
        "CF-BOTH-ENDS": -slope * (steps + 1),
        "CF-KEY-ALONE": -slope * j,
        "CF-QUERY-ALONE": -slope * i,
    }
    return Posed({"h": head, "i": i, "j": j}, -slope * steps, wrong)


alibi = Numbers("order.alibi", "order", 2, LONGER,
    task="The 8 heads of ALiBi, head 1 to head 8, have the slopes 1/2, 1/4, 1/8 and so on. What does head "
    "{h} add to the score of the query at position {i} and the key at position {j}? Three decimals.",
    hint="Count the steps between the two words; each takes one slope off.",
    question="Is a score larger or smaller when its two words are further apart, and by how much a step?",
    draw=bias_at_a_distance,
    decimals=3,
    says={
        "CF-BIAS-ADDED": "So a far word would get more attention than a near one.",
        "CF-HEAD-FROM-0": "This belongs to the head before: head 1 has the slope 1/2.",
        "CF-HEAD-ONE-MORE": "This belongs to the next head.",
        "CF-SLOPE-LINEAR": "Here the slopes are 1/2, 1/4, 1/6: each is half of the one before it.",
        "CF-NO-SLOPE": "This is the distance alone, as for a slope of 1.",
        "CF-NO-DISTANCE": "This is what one step takes off.",
        "CF-BOTH-ENDS": "This counts words, both ends among them; steps are counted.",
        "CF-KEY-ALONE": "Here the key's position is taken for the distance.",
        "CF-QUERY-ALONE": "Here the query's position is taken for the distance.",
    })


def numbers_that_training_met(draw: Draw) -> Posed:
    """What of a learned table ever got a gradient."""
    rows, d = 32 * draw.integer(4, 2, 8), 8 * draw.integer(4, 2, 8)
    low, high = draw.integer(5, 3, 8), draw.integer(20, 12, 40)
    wrong: dict[Mistake | str, int] = {
        "CF-ROWS-NEVER-MET": (rows - high) * d,
        "CF-WHOLE-TABLE": rows * d,
        "CF-POSITIONS-NOT-NUMBERS": high,
        "CF-LENGTHS-NOT-POSITIONS": (high - low + 1) * d,
        "CF-SHORTEST-ONLY": low * d,
        "CF-ROW-TOO-MANY": (high + 1) * d,
        "CF-ROW-TOO-FEW": (high - 1) * d,
    }
    return Posed({"rows": rows, "d": d, "low": low, "high": high}, high * d, wrong)


met = Numbers("order.met", "order", 2, LONGER,
    task="A learned table of positions has {rows} rows of {d} numbers. All sentences in training have {low} "
    "to {high} words. How many numbers of the table ever got a gradient?",
    hint="Which positions has the longest sentence?",
    question="Which is the last position that a sentence of training has, counted from 0?",
    draw=numbers_that_training_met,
    says={
        "CF-ROWS-NEVER-MET": "These are the numbers that stay as they were born.",
        "CF-WHOLE-TABLE": "This is the whole table; no sentence of training reached its end.",
        "CF-POSITIONS-NOT-NUMBERS": "These are positions; each has a row of numbers.",
        "CF-LENGTHS-NOT-POSITIONS": "This counts the lengths; a short sentence has the first positions too.",
        "CF-SHORTEST-ONLY": "This is what every sentence reaches; the longest ones go further.",
        "CF-ROW-TOO-MANY": "One row too many: positions are counted from 0.",
        "CF-ROW-TOO-FEW": "One row short: position 0 counts as well.",
    })
