"""A step of Adam: two running means, two corrections, one division."""

import numpy as np

from npformer.exercises.probe import Arguments, Probe, Trial, normal
from npformer.exercises.see import CALLS, NUMBERS, Seen, close, unused
from npformer.exercises.task import Code, Edit, Mistake, Place
from npformer.exercises.topics.shared import instead

ADAM = Place('"Adam" (Kingma and Ba), algorithm 1', "06, section 6.3, Measuring and training")

# --- what is said ------------------------------------------------------------------------------------

NO_CORRECTION = Mistake("ADAM-NO-CORRECTION", ADAM,
    "m and v agree; the step of w is taken from a mean that still leans towards its zero start.",
    "This output matches a step without one of the two divisions by 1 - β to the t.",
    "How large is m after one step that started at 0?")
NO_ROOT = Mistake("ADAM-NO-ROOT", ADAM, "m and v agree; the step of w is divided by v̂.",
    "This output matches a division without the root.",
    "Which unit has v, and which has w?")
EPS_INSIDE = Mistake("ADAM-EPS-INSIDE", ADAM,
    "Ordinary gradients agree; where they are very small, the step of w is too short.",
    "This pattern appears when ε is added under the root.",
    "Next to which number is ε small: next to v̂, or next to its root?")
UPHILL = Mistake("ADAM-UPHILL", ADAM, "m and v agree; w takes the right step in the opposite direction.",
    "This output matches a step that is added.",
    "Should a step of Adam raise or lower the loss?")
MIX_SWAPPED = Mistake("ADAM-MIX-SWAPPED", ADAM,
    "Nearly all of the new gradient is taken into m, and nearly nothing is kept.",
    "This pattern appears when β and 1 - β change places.",
    "Which of the two has the larger weight, the old mean or the new gradient?")
NO_SQUARE = Mistake("ADAM-NO-SQUARE", ADAM, "m agrees; v is a mean of gradients.",
    "This output matches a v in which the gradient is not squared.",
    "What does v measure, so that its root has the unit of a gradient?")
STEP_OFF = Mistake("ADAM-STEP-OFF", ADAM, "m and v agree; the corrections belong to a neighbouring t.",
    "This pattern appears when t is raised or lowered once more inside.",
    "Which t has the very first step?")

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
step = Code("adam.step", "backward", 4, ADAM,
    task="Write step t (1, 2, …) of Adam with β_1 = 0.9, β_2 = 0.98, ε = 1e-9 added to the root: w, "
    "its gradient g, the means m and v before the step. Return the new w, m, v.",
    hint="Two running means, two corrections, one division.",
    question="Which two means are kept, and what is done to them before they meet?",
    probe=Probe(
        "w, g, m, v, t, learning_rate", ("w", "m", "v"), calls(), sizes="w: n; t: t",
        landmarks=instead(SOLUTION, {
            "the corrected mean m̂": "m_hat",
            "the corrected mean v̂": "v_hat",
            "the step alone, which is taken from w": "learning_rate * m_hat / (np.sqrt(v_hat) + 1e-9)",
        }),
    ),
    solution=SOLUTION,
    mistakes={
        NO_CORRECTION: [
            Edit(" / (1 - 0.9**t)", "", " / (1 - 0.98**t)", ""),
            Edit(" / (1 - 0.9**t)", ""),
            Edit(" / (1 - 0.98**t)", ""),
        ],
        NO_ROOT: [Edit("np.sqrt(v_hat)", "v_hat")],
        EPS_INSIDE: [Edit("np.sqrt(v_hat) + 1e-9", "np.sqrt(v_hat + 1e-9)")],
        UPHILL: [Edit("w - ", "w + ")],
        MIX_SWAPPED: [
            Edit("0.9 * m + 0.1 * g", "0.1 * m + 0.9 * g", "0.98 * v + 0.02 * g", "0.02 * v + 0.98 * g"),
        ],
        NO_SQUARE: [Edit("g * g", "g")],
        STEP_OFF: [Edit("**t", "**(t + 1)"), Edit("**t", "**(t - 1)")],
    },
    looks=(*NUMBERS, running_mean, unused, *CALLS),
    ours="adam_update")
