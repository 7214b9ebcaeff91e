"""A step of Adam: two running means, two corrections, one division."""

import numpy as np

from npformer.exercises.probe import Arguments, Trial, normal
from npformer.exercises.see import Seen, close
from npformer.exercises.task import Edit
from npformer.exercises.topics.questions import coded

# --- what is asked -----------------------------------------------------------------------------------


def calls() -> tuple[Arguments, ...]:
    """Steps 2 and 4; then step 3 with gradients so small that ε counts under the root, and nowhere else."""
    made = [
        (w, g, 0.3 * m, 0.1 * v * v, t, rate)
        for n, t, rate in ((3, 2, 0.1), (5, 4, 0.02))
        for w, g, m, v in [normal(4, n)]
    ]
    w, g, m, v = normal(4, 4)
    return (*made, (w, 1e-5 * g, 3e-6 * m, 1e-11 * v * v, 3, 0.05))


def running_mean(trial: Trial) -> Seen | None:
    """What m, or v, is mixed from, in the student's own numbers."""
    if trial.output == 0:
        return None
    name, power = (("m", 1), ("v", 2))[trial.output - 1]
    old = np.concatenate([given[1 + trial.output] for given in trial.calls])
    new = np.concatenate([given[1] ** power for given in trial.calls])
    found = np.concatenate(trial.found)
    (kept, taken), *_ = np.linalg.lstsq(np.stack([old, new], axis=1), found, rcond=None)
    if not close(kept * old + taken * new, found):
        return None
    what = "g" if power == 1 else "g²"
    return Seen(f"The new {name} is {kept + 0.0:.3g} times the old one and {taken + 0.0:.3g} times {what}.",
        "Which β belongs to which of the two means, and what do the two shares of a mean sum to?")


SOLUTION = """
def adam(w, g, m, v, t, learning_rate):
    m = 0.9 * m + 0.1 * g
    v = 0.98 * v + 0.02 * g * g
    m_hat = m / (1 - 0.9**t)
    v_hat = v / (1 - 0.98**t)
    return w - learning_rate * m_hat / (np.sqrt(v_hat) + 1e-9), m, v
"""
step = coded("adam.step", ("w", "m", "v"), calls(), sizes="w: n; t: t",
    landmarks={
        "the corrected mean m̂": "m_hat",
        "the corrected mean v̂": "v_hat",
        "the step alone, which is taken from w": "learning_rate * m_hat / (np.sqrt(v_hat) + 1e-9)",
    },
    solution=SOLUTION,
    mistakes={
        "ADAM-NO-CORRECTION": [
            Edit(" / (1 - 0.9**t)", "", " / (1 - 0.98**t)", ""),
            Edit(" / (1 - 0.9**t)", ""),
            Edit(" / (1 - 0.98**t)", ""),
        ],
        "ADAM-NO-ROOT": [Edit("np.sqrt(v_hat)", "v_hat")],
        "ADAM-EPS-INSIDE": [Edit("np.sqrt(v_hat) + 1e-9", "np.sqrt(v_hat + 1e-9)")],
        "ADAM-UPHILL": [Edit("w - ", "w + ")],
        "ADAM-MIX-SWAPPED": [
            Edit("0.9 * m + 0.1 * g", "0.1 * m + 0.9 * g", "0.98 * v + 0.02 * g", "0.02 * v + 0.98 * g"),
        ],
        "ADAM-NO-SQUARE": [Edit("g * g", "g")],
        "ADAM-STEP-OFF": [Edit("**t", "**(t + 1)"), Edit("**t", "**(t - 1)")],
    },
    looks=(running_mean,),
    ours="adam_update")
