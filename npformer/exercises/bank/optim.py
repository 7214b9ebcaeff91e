"""Exercises on Adam, which computes two running means, two bias corrections and one division.

The docstring of the package `npformer.exercises.bank` defines the terms call, edit, intermediate result
(`landmarks`) and detector.
"""

import numpy as np

from npformer.exercises.bank.questions import function_exercise
from npformer.exercises.number_detectors import are_close
from npformer.exercises.probe import Arguments, Draws, Trial, normal
from npformer.exercises.task import Edit
from npformer.exercises.verdict import Finding, make_finding

# --- the calls, and a detector -----------------------------------------------------------------------


def calls() -> tuple[Arguments, ...]:
    """Return calls for ordinary steps and edge cases: zero gradients, the first step, gradients close to ε.

    The call with t = 3 gives a different result if ε is inside the square root instead of outside.
    """
    made = [
        (w, g, 0.3 * m, 0.1 * v * v, t, rate)
        for n, t, rate in ((3, 2, 0.1), (5, 4, 0.02))
        for w, g, m, v in [normal(4, n)]
    ]
    w, g, m, v = normal(4, 4)
    nothing = [np.zeros(4) for _ in range(3)]
    no_means = [np.zeros(4) for _ in range(2)]
    return (
        *made,
        (w, 1e-5 * g, 3e-6 * m, 1e-11 * v * v, 3, 0.05),
        (w, *nothing, 2, 0.1),
        (w, 1e-9 * g, *no_means, 1, 0.1),
    )


def draw(draws: Draws) -> Arguments:
    """Return random parameters, gradients and running means. v is never negative."""
    n = draws.size()
    w, g, m, v = draws.normal(4, n)
    return w, g, 0.3 * m, 0.1 * v * v, draws.size(low=3), draws.uniform(0.01, 0.1)


def running_mean(trial: Trial) -> Finding | None:
    """Find the factors by which a wrong function multiplies the old running mean and the new gradient."""
    if trial.output == 0:
        return None
    name, power = (("m", 1), ("v", 2))[trial.output - 1]
    old = np.concatenate([given[1 + trial.output] for given in trial.calls])
    new = np.concatenate([given[1] ** power for given in trial.calls])
    found = np.concatenate(trial.found)
    (kept, taken), *_ = np.linalg.lstsq(np.stack([old, new], axis=1), found, rcond=None)
    if not are_close(kept * old + taken * new, found):
        return None
    return make_finding("running_mean", mean=name, kept=float(kept), taken=float(taken), power=power)


SOLUTION = """
def adam(w, g, m, v, t, learning_rate):
    m = 0.9 * m + 0.1 * g
    v = 0.98 * v + 0.02 * g * g
    m_hat = m / (1 - 0.9**t)
    v_hat = v / (1 - 0.98**t)
    return w - learning_rate * m_hat / (np.sqrt(v_hat) + 1e-9), m, v
"""
step = function_exercise("adam.step", ("w", "m", "v"), calls(), draw=draw,
    axes="w: n; g: n; m: n; v: n; t: t",
    landmarks={
        "m_hat": "m_hat",
        "v_hat": "v_hat",
        "step_alone": "learning_rate * m_hat / (np.sqrt(v_hat) + 1e-9)",
    },
    solution=SOLUTION,
    mistakes={
        "ADAM-NO-CORRECTION": [Edit(" / (1 - 0.9**t)", "", " / (1 - 0.98**t)", "")],
        "ADAM-ONE-CORRECTION": [Edit(" / (1 - 0.9**t)", ""), Edit(" / (1 - 0.98**t)", "")],
        "ADAM-NO-EPS": [Edit(" + 1e-9", ""), Edit("+ 1e-9", "- 1e-9")],
        "ADAM-NO-ROOT": [Edit("np.sqrt(v_hat)", "v_hat")],
        "ADAM-EPS-INSIDE": [Edit("np.sqrt(v_hat) + 1e-9", "np.sqrt(v_hat + 1e-9)")],
        "ADAM-EPS-SIZE": [Edit("1e-9", "1e-8"), Edit("1e-9", "1e-7"), Edit("1e-9", "1e-6")],
        "ADAM-CORRECTION-TIMES": [
            Edit("/ (1 - 0.9**t)", "* (1 - 0.9**t)", "/ (1 - 0.98**t)", "* (1 - 0.98**t)"),
            Edit("/ (1 - 0.9**t)", "* (1 - 0.9**t)"), Edit("/ (1 - 0.98**t)", "* (1 - 0.98**t)"),
        ],
        "ADAM-UPHILL": [Edit("w - ", "w + ")],
        "ADAM-MIX-SWAPPED": [
            Edit("0.9 * m + 0.1 * g", "0.1 * m + 0.9 * g", "0.98 * v + 0.02 * g", "0.02 * v + 0.98 * g"),
        ],
        "ADAM-NO-SQUARE": [Edit("g * g", "g")],
        "ADAM-STEP-OFF": [Edit("**t", "**(t + 1)"), Edit("**t", "**(t - 1)")],
    },
    detectors=(running_mean,),
    ours="adam_update")
