"""Exercises whose answer is a number, on topics such as costs, masks, word order, search and GPUs.

The docstring of the package `npformer.exercises.bank` defines the term "code of a mistake".
"""

import math

import numpy as np

from npformer.exercises.bank.questions import number_exercise
from npformer.exercises.task import Draw, PosedQuestion


@number_exercise("cost.parameters")
def parameters(draw: Draw) -> PosedQuestion:
    """Ask for the number of parameters of a feed-forward network."""
    d, f = 64 * draw.integer(8, 2, 8), 64 * draw.integer(32, 9, 32)
    return PosedQuestion({"d": d, "f": f}, 2 * d * f + f + d, {
        "CF-NO-BIASES": 2 * d * f,
        "CF-ONE-MATRIX": d * f + f,
        "CF-ONE-BIAS": 2 * d * f + f,
        "CF-SECOND-BIAS": 2 * d * f + d,
        "CF-EQUAL-BIASES": 2 * d * f + 2 * f,
        "CF-ONE-MATRIX-BARE": d * f,
    })


@number_exercise("cost.scores")
def scores(draw: Draw) -> PosedQuestion:
    """Ask for the number of cells in the score matrix of one head."""
    T = draw.integer(10, 6, 30)
    return PosedQuestion({"T": T}, T * T, {
        "CF-ONE-SCORE-EACH": T,
        "CF-BOTH-SIDES": 2 * T,
        "CF-CAUSAL-CELLS": T * (T + 1) // 2,
        "CF-NOT-ITSELF": T * (T - 1),
    })


@number_exercise("decoder.cells")
def cells(draw: Draw) -> PosedQuestion:
    """Ask for the number of cells in the score matrix of one head in cross-attention."""
    S, T = draw.integer(7, 6, 30), draw.integer(5, 3, 30)
    return PosedQuestion({"S": S, "T": T}, S * T, {
        "CF-SQUARE-TARGET": T * T,
        "CF-SQUARE-SOURCE": S * S,
        "CF-LENGTHS-ADDED": S + T,
        "CF-BOTH-TEXTS": (S + T) ** 2,
    })


@number_exercise("decoder.kept")
def kept(draw: Draw) -> PosedQuestion:
    """Ask for the number of scores that one head computes for t new tokens with a KV cache."""
    t = draw.integer(6, 4, 30)
    return PosedQuestion({"t": t}, t * (t + 1) // 2, {
        "CF-FULL-SQUARES": sum(n * n for n in range(1, t + 1)),
        "CF-LAST-SQUARE": t * t,
        "CF-ONE-SCORE-EACH": t,
        "CF-NOT-ITSELF": t * (t - 1) // 2,
    })


@number_exercise("order.twins")
def twins(draw: Draw) -> PosedQuestion:
    """Ask for the number of sentences that have the same words in different orders."""
    k = draw.integer(4, 4, 7)
    return PosedQuestion({"k": k}, math.factorial(k), {
        "CF-TWIN-ALONE": 2,
        "CF-ORDER-EACH-WORD": k,
        "CF-ORDERS-ADDED": k * (k + 1) // 2,
        "CF-WORDS-REPEATED": k**k,
        "CF-PAIRS-OF-PLACES": k * (k - 1),
        "CF-ONLY-OTHERS": math.factorial(k) - 1,
    })


# Accuracies minus 50 %, in percentage points. The list omits 7 and 14: their test sets would have exactly 196
# and 49 sentences, with which the accuracy lies exactly at the end of the confidence interval.
ABOVE = (10, 3, 4, 5, 6, 8, 9, 11, 12, 13)


@number_exercise("order.coin")
def coin(draw: Draw) -> PosedQuestion:
    """Ask for the size that a test set needs so that an accuracy differs significantly from chance."""
    above = ABOVE[draw.integer(0, 0, len(ABOVE) - 1)] / 100
    least, narrow, wide = (int((width / 2 / above) ** 2) + 1 for width in (1.96, 1.0, 2 * 1.96))
    return PosedQuestion({"p": round(50 + 100 * above)}, least, {
        "CF-ONE-DEVIATION": narrow,
        "CF-COIN-VARIANCE-1": wide,
        "CF-COIN-NO-SQUARE": int(1.96 / 2 / above) + 1,
        "CF-COIN-FROM-0": int((1.96 / 2 / (0.5 + above)) ** 2) + 1,
        "CF-COIN-OF-THE-MODEL": int(1.96**2 * (0.25 - above**2) / above**2) + 1,
        "CF-COIN-STILL-WITHIN": least - 1,
    })


@number_exercise("order.alibi", decimals=3)
def alibi(draw: Draw) -> PosedQuestion:
    """Ask for the bias that ALiBi adds to one score of one head."""
    head, i, steps = draw.integer(3, 3, 7), draw.integer(12, 8, 30), draw.integer(5, 3, 7)
    slope, j = 2.0**-head, i - steps
    return PosedQuestion({"h": head, "i": i, "j": j}, -slope * steps, {
        "CF-BIAS-ADDED": slope * steps,
        "CF-HEAD-FROM-0": -2 * slope * steps,
        "CF-HEAD-ONE-MORE": -slope * steps / 2,
        "CF-SLOPE-LINEAR": -steps / (2 * head),
        "CF-NO-SLOPE": -steps,
        "CF-NO-DISTANCE": -slope,
        "CF-BOTH-ENDS": -slope * (steps + 1),
        "CF-KEY-ALONE": -slope * j,
        "CF-QUERY-ALONE": -slope * i,
    })


@number_exercise("order.met")
def met(draw: Draw) -> PosedQuestion:
    """Ask how many numbers of a learned position table ever receive a gradient."""
    rows, d = 32 * draw.integer(4, 2, 8), 8 * draw.integer(4, 2, 8)
    low, high = draw.integer(5, 3, 8), draw.integer(20, 12, 40)
    return PosedQuestion({"rows": rows, "d": d, "low": low, "high": high}, high * d, {
        "CF-ROWS-NEVER-MET": (rows - high) * d,
        "CF-WHOLE-TABLE": rows * d,
        "CF-POSITIONS-NOT-NUMBERS": high,
        "CF-LENGTHS-NOT-POSITIONS": (high - low + 1) * d,
        "CF-SHORTEST-ONLY": low * d,
        "CF-ROW-TOO-MANY": (high + 1) * d,
        "CF-ROW-TOO-FEW": (high - 1) * d,
    })


@number_exercise("search.pool", decimals=2)
def pool(draw: Draw) -> PosedQuestion:
    """Ask for the mean of the token vectors, in which padding tokens do not count."""
    tokens = np.stack([draw.row(row, 1, 9) for row in ([2, 5], [4, 1], [9, 6])])
    rows = np.concatenate([tokens, [[7, 8]]])
    return PosedQuestion({"rows": rows}, tokens.mean(axis=0), {
        "CF-PADDING-COUNTED": rows.mean(axis=0),
        "CF-SUM-NO-MEAN": tokens.sum(axis=0),
        "CF-FIRST-TOKEN": tokens[0],
        "CF-DIVIDED-BY-ALL": tokens.sum(axis=0) / 4,
        "CF-LARGEST": tokens.max(axis=0),
        "CF-ROW-MEANS": rows.mean(axis=1),
    })


@number_exercise("search.cosine", decimals=3)
def cosine(draw: Draw) -> PosedQuestion:
    """Ask for the cosine similarity of two vectors."""
    a, b = draw.row([3, 4], 1, 9), draw.row([1, 7], -9, 9)
    long_a = np.sqrt(a @ a)
    long_b = np.sqrt(b @ b) or 1.0  # avoids 0/0 if b = 0: the answer is then 0, and new vectors are drawn
    product, right = float(a @ b), float(a @ b / (long_a * long_b))
    angle = np.arccos(np.clip(right, -1, 1))
    return PosedQuestion({"a": a, "b": b}, right, {
        "CF-DOT-PRODUCT": product,
        "CF-SQUARED-LENGTHS": right / (long_a * long_b),
        "CF-ONE-LENGTH": product / long_a,
        "CF-DISTANCE": np.sqrt(((a - b) ** 2).sum()),
        "CF-ANGLE": angle,
        "CF-ANGLE-DEGREES": np.degrees(angle),
        "CF-COSINE-DISTANCE": 1 - right,
    })


@number_exercise("gpu.waits")
def waits(draw: Draw) -> PosedQuestion:
    """Ask how often the host waits for the GPU if it reads the loss after every k-th step."""
    k = draw.integer(10, 3, 20)
    steps = k * draw.integer(20, 8, 40)
    return PosedQuestion({"k": k, "steps": steps}, steps // k, {
        "CF-EVERY-STEP": steps,
        "CF-ONCE": 1,
        "CF-INTERVAL": k,
        "CF-NEVER": 0,
    })
