"""Exercises on post-training: LoRA, the loss on answers, DPO, advantages, the clipped objective, the KL term.

The docstring of the package `npformer.exercises.bank` defines the terms call and edit.
"""

import numpy as np

from npformer.exercises.bank.questions import function_exercise, number_exercise
from npformer.exercises.probe import Arguments, Draws, normal
from npformer.exercises.task import Draw, Edit, PosedQuestion

# --- LoRA ----------------------------------------------------------------------------------------------

@number_exercise("lora.count")
def count(draw: Draw) -> PosedQuestion:
    """Ask for the number of trained parameters of an adapted matrix."""
    r = draw.integer(4, 2, 8)
    n, m = 32 * draw.integer(3, 2, 6), 32 * draw.integer(8, 7, 12)
    right = r * (n + m)
    return PosedQuestion({"n": n, "m": m, "r": r}, right, {
        "CF-LORA-WHOLE": n * m,
        "CF-LORA-PRODUCT": r * n * m,
        "CF-LORA-ONE-FACTOR": r * n,
        "CF-LORA-OTHER-FACTOR": r * m,
        "CF-LORA-FROZEN-TOO": right + n * m,
        "CF-LORA-TWO-SQUARES": 2 * r * (n + m),
    })


def draw_lora(draws: Draws) -> Arguments:
    """Return a random gradient of the adapted matrix W + s A B, random factors A and B, and alpha."""
    d_in, d_out, r = draws.size(), draws.size(), draws.size()
    factors = draws.normal(d_in, r), draws.normal(r, d_out)
    return draws.normal(d_in, d_out), *factors, draws.uniform(0.3, 0.9) * r


lora_back = function_exercise("lora.factors", ("dA", "dB"),
    (
        (normal(5, 4), normal(5, 2), normal(2, 4), 8.0),
        (normal(3, 3), normal(3, 3, seed=1), normal(3, 3, seed=2), 6.0),
        (normal(4, 6), normal(4, 1), np.zeros((1, 6)), 2.0),
    ),
    draw=draw_lora, axes="dW: d_in d_out; A: d_in r; B: r d_out; dA: d_in r; dB: r d_out",
    solution="""
def lora_factors(dW, A, B, alpha):
    s = alpha / A.shape[1]
    dA = s * (dW @ B.T)
    dB = s * (A.T @ dW)
    return dA, dB
""",
    mistakes={
        "LORA-NO-SCALE": [
            Edit("dA = s * ", "dA = "), Edit("dB = s * ", "dB = "),
            Edit("dA = s * ", "dA = ", "dB = s * ", "dB = "),
        ],
        "LORA-SCALE-ALPHA": [Edit("alpha / A.shape[1]", "alpha")],
        "LORA-SCALE-TURNED": [Edit("alpha / A.shape[1]", "A.shape[1] / alpha")],
        "LORA-SCALE-ROWS": [Edit("A.shape[1]", "A.shape[0]")],
        "LORA-SIGN": [Edit("s * (dW @ B.T)", "-s * (dW @ B.T)", "s * (A.T @ dW)", "-s * (A.T @ dW)")],
    },
    ours=None)  # lora_backward of npformer returns dW first

# --- the answer in a sequence ------------------------------------------------------------------------


def draw_targets(draws: Draws) -> Arguments:
    """Return random ids and the length of the prompt."""
    N, n_prompt, n_answer = draws.size(), draws.size(), draws.size()
    return draws.rng.integers(0, 50, size=(N, n_prompt + n_answer)), n_prompt


targets = function_exercise("sft.targets", ("targets",),
    (
        (np.array([[3, 1, 2, 1, 10, 1, 1, 2, 3]]), 5),
        (np.array([[7, 8, 9, 4, 5], [9, 7, 8, 6, 2]]), 3),
        (np.array([[4, 5, 6], [1, 2, 3]]), 1),
    ),
    draw=draw_targets, axes="ids: N T; targets: N T",
    solution="""
def sft_targets(ids, n_prompt):
    targets = np.full(ids.shape, -1)
    targets[:, n_prompt - 1 : -1] = ids[:, n_prompt:]
    return targets
""",
    mistakes={
        "SFT-NOT-SHIFTED": [Edit("n_prompt - 1 : -1", "n_prompt:")],
        "SFT-FIRST-MISSING": [
            Edit("n_prompt - 1 : -1", "n_prompt:-1", "ids[:, n_prompt:]", "ids[:, n_prompt + 1:]")
        ],
        "SFT-PROMPT-COUNTED": [Edit("n_prompt - 1 : -1", ":-1", "ids[:, n_prompt:]", "ids[:, 1:]")],
        "SFT-WRAPPED": [
            Edit("n_prompt - 1 : -1", "n_prompt - 1:", "= ids[", "= np.c_[ids, ids[:, 0]][")
        ],
        "SFT-SHIFTED-TWICE": [
            Edit("return targets", "return np.c_[targets[:, 1:], np.full(len(ids), -1)]"),
            Edit("return targets", "return np.roll(targets, -1, axis=1)"),
        ],
        "SFT-SHIFTED-BACK": [
            Edit("n_prompt - 1 : -1", "n_prompt:", "ids[:, n_prompt:]", "ids[:, n_prompt - 1:-1]")
        ],
    },
    ours="answer_targets")


def draw_log_prob(draws: Draws) -> Arguments:
    """Return random logits, random ids and the length of the prompt."""
    n_prompt, n_answer, V = draws.size(), draws.size(low=3), draws.size(low=3)
    T = n_prompt + n_answer
    return 2 * draws.normal(T, V), draws.rng.integers(0, V, size=T), n_prompt


log_prob = function_exercise("answer.log_prob", ("log_prob",),
    (
        (normal(9, 4), np.array([3, 1, 2, 1, 0, 1, 1, 2, 3]), 5),
        (2 * normal(6, 3), np.array([0, 2, 1, 1, 0, 2]), 2),
        (normal(4, 5), np.array([4, 0, 3, 1]), 1),
    ),
    draw=draw_log_prob, axes="logits: T V; ids: T; log_prob:",
    solution="""
def answer_log_prob(logits, ids, n_prompt):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    at = np.arange(n_prompt - 1, len(ids) - 1)
    return log_p[at, ids[at + 1]].sum()
""",
    mistakes={
        "LP-PROMPT-COUNTED": [Edit("np.arange(n_prompt - 1, ", "np.arange(0, ")],
        "LP-NOT-SHIFTED": [Edit("log_p[at, ", "log_p[at + 1, ")],
        "LP-FIRST-MISSING": [Edit("np.arange(n_prompt - 1, ", "np.arange(n_prompt, ")],
        "LP-MEAN": [Edit("ids[at + 1]].sum()", "ids[at + 1]].mean()")],
        "LP-PROBABILITY": [Edit("log_p[at, ids[at + 1]].sum()", "np.exp(log_p[at, ids[at + 1]].sum())")],
        "LP-LOSS": [Edit("return log_p", "return -log_p")],
        "LP-MEAN-LOSS": [
            Edit("return log_p[at, ids[at + 1]].sum()", "return -log_p[at, ids[at + 1]].mean()")
        ],
        "LP-SUM-OF-PROBABILITIES": [
            Edit("log_p[at, ids[at + 1]].sum()", "np.exp(log_p[at, ids[at + 1]]).sum()")
        ],
        "LP-LAST-MISSING": [Edit("len(ids) - 1)", "len(ids) - 2)")],
        "LP-NO-SOFTMAX": [Edit("return log_p[", "return logits[")],
    },
    ours=None)

# --- preferences -------------------------------------------------------------------------------------


def draw_pairs(draws: Draws) -> Arguments:
    """Return random log-probabilities of N pairs of answers under the model and the reference, and beta."""
    N = draws.size()
    log_p = tuple(-2 - abs(draws.normal(N)) for _ in range(4))
    return *log_p, draws.uniform(0.3, 0.8)


dpo_back = function_exercise("dpo.backward", ("dlog_p_w", "dlog_p_l"),
    (
        (np.array([-3.0, -5.0]), np.array([-4.0, -2.5]), np.array([-3.5, -4.0]), np.array([-3.0, -3.5]), 0.5),
        (np.array([-2.0]), np.array([-6.0]), np.array([-5.0]), np.array([-4.0]), 2.0),
    ),
    draw=draw_pairs,
    axes="log_p_w: N; log_p_l: N; log_p_ref_w: N; log_p_ref_l: N; dlog_p_w: N; dlog_p_l: N",
    solution="""
def dpo_backward(log_p_w, log_p_l, log_p_ref_w, log_p_ref_l, beta):
    z = beta * ((log_p_w - log_p_ref_w) - (log_p_l - log_p_ref_l))
    wrong = 1 / (1 + np.exp(z))
    dz = -wrong / len(z)
    return beta * dz, -beta * dz
""",
    mistakes={
        "DPO-SIGN": [Edit("dz = -wrong", "dz = wrong")],
        "DPO-NO-REFERENCE": [Edit("(log_p_w - log_p_ref_w) - (log_p_l - log_p_ref_l)", "log_p_w - log_p_l")],
        "DPO-OTHER-SIGMA": [Edit("np.exp(z)", "np.exp(-z)")],
        "DPO-SUM": [Edit(" / len(z)", "")],
        "DPO-NO-BETA-IN-Z": [Edit("z = beta * (", "z = (")],
        "DPO-NO-BETA": [Edit("return beta * dz, -beta * dz", "return dz, -dz")],
        "DPO-BOTH-UP": [Edit("-beta * dz", "beta * dz")],
    })

# --- reward ------------------------------------------------------------------------------------------


advantage = function_exercise("grpo.advantage", ("advantages",),
    (
        (np.array([[0.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 1.0]]),),
        (np.array([[0.0, 0.0, 1.0], [2.0, 2.0, 2.0], [0.5, 1.0, 0.0]]),),
        (3 + normal(4, 4),),
    ),
    axes="rewards: groups members; advantages: groups members",
    solution="""
def grpo_advantage(rewards):
    mean = rewards.mean(axis=1, keepdims=True)
    std = rewards.std(axis=1, keepdims=True)
    return (rewards - mean) / (std + 1e-4)
""",
    mistakes={
        "ADV-NOT-CENTRED": [Edit("(rewards - mean)", "rewards")],
        "ADV-ALL-GROUPS": [
            Edit("mean(axis=1", "mean(axis=None"), Edit("std(axis=1", "std(axis=None"),
            Edit("mean(axis=1", "mean(axis=None", "std(axis=1", "std(axis=None"),
        ],
        "ADV-OTHER-AXIS": [Edit("mean(axis=1", "mean(axis=0", "std(axis=1", "std(axis=0")],
        "ADV-NO-STD": [Edit(" / (std + 1e-4)", "")],
        "ADV-VARIANCE": [Edit("rewards.std(", "rewards.var(")],
        "ADV-DDOF": [Edit("std(axis=1, ", "std(axis=1, ddof=1, ")],
        "ADV-EPS-INSIDE": [
            Edit("(std + 1e-4)", "np.sqrt(rewards.var(axis=1, keepdims=True) + 1e-4)")
        ],
        "ADV-LEAVE-ONE-OUT": [
            Edit("(rewards - mean)", "(rewards - mean) * rewards.shape[1] / (rewards.shape[1] - 1)")
        ],
    },
    ours="group_advantages")


def draw_tokens(draws: Draws) -> Arguments:
    """Return random log-probabilities of N tokens under the current and old model, advantages, epsilon."""
    N = draws.size(low=8, high=16)
    log_p = -0.1 - 0.5 * abs(draws.normal(N))
    return log_p, log_p - 0.5 * draws.normal(N), draws.normal(N), draws.uniform(0.1, 0.3)


def draw_tokens_back(draws: Draws) -> Arguments:
    """Return a random backward call: the gradient of the objective, and the arguments of a forward call."""
    given = draw_tokens(draws)
    return draws.normal(len(given[0])), *given


RATIOS = np.log([0.5, 1.5, 0.5, 1.5, 1.1, 0.9])
BEFORE = np.array([-0.3, -1.0, -0.8, -0.5, -0.2, -0.1])
SIGNS = np.array([1.0, 1.0, -1.0, -2.0, 0.5, -0.5])
TOKENS = (BEFORE + RATIOS, BEFORE, SIGNS, 0.2)
SMALLER = "np.minimum(rho * advantages, clipped * advantages)"
RATIO = ("log_p - log_p_old", "log_p_old - log_p")

clip = function_exercise("clip.forward", ("y",), (TOKENS, (*TOKENS[:3], 0.05)),
    draw=draw_tokens, axes="log_p: N; log_p_old: N; advantages: N; y: N",
    solution="""
def clip_forward(log_p, log_p_old, advantages, epsilon):
    rho = np.exp(log_p - log_p_old)
    clipped = np.clip(rho, 1 - epsilon, 1 + epsilon)
    return np.minimum(rho * advantages, clipped * advantages)
""",
    mistakes={
        "CLIP-RATIO-TURNED": [Edit(*RATIO)],
        "CLIP-ALWAYS": [Edit(SMALLER, "clipped * advantages")],
        "CLIP-MAXIMUM": [Edit("np.minimum", "np.maximum")],
        "CLIP-NO-EXP": [Edit("np.exp(log_p - log_p_old)", "log_p - log_p_old")],
        "CLIP-NEVER": [Edit(SMALLER, "rho * advantages")],
        "CLIP-ONLY-ABOVE": [Edit("np.clip(rho, 1 - epsilon, 1 + epsilon)", "np.minimum(rho, 1 + epsilon)")],
        "CLIP-AROUND-ZERO": [Edit("1 - epsilon, 1 + epsilon", "-epsilon, epsilon")],
        "CLIP-MIN-OF-RATIOS": [Edit(SMALLER, "np.minimum(rho, clipped) * advantages")],
    },
    ours="clipped_policy_forward")

clip_back = function_exercise("clip.backward", ("dlog_p",),
    ((np.ones(6), *TOKENS), (normal(6), *TOKENS[:3], 0.05)), draw=draw_tokens_back,
    axes="dy: N; log_p: N; log_p_old: N; advantages: N; dlog_p: N",
    solution="""
def clip_backward(dy, log_p, log_p_old, advantages, epsilon):
    rho = np.exp(log_p - log_p_old)
    too_high = (advantages > 0) & (rho > 1 + epsilon)
    too_low = (advantages < 0) & (rho < 1 - epsilon)
    drho = np.where(too_high | too_low, 0, dy * advantages)
    return drho * rho
""",
    mistakes={
        "CLIP-GRAD-NO-RATIO": [Edit("return drho * rho", "return drho")],
        "CLIP-GRAD-BOTH-SIDES": [Edit("(advantages > 0) & ", "", "(advantages < 0) & ", "")],
        "CLIP-GRAD-WRONG-SIDE": [
            Edit("advantages > 0", "advantages <= 0", "advantages < 0", "advantages >= 0")
        ],
        "CLIP-NEVER": [Edit("np.where(too_high | too_low, 0, dy * advantages)", "dy * advantages")],
        "CLIP-RATIO-TURNED": [Edit(*RATIO)],
        "CLIP-GRAD-CLIPPED-RATIO": [
            Edit(
                "np.where(too_high | too_low, 0, dy * advantages)", "dy * advantages",
                "drho * rho", "drho * np.clip(rho, 1 - epsilon, 1 + epsilon)",
            )
        ],
        "CLIP-GRAD-NO-ADVANTAGE": [Edit("0, dy * advantages", "0, dy")],
    },
    ours="clipped_policy_backward")


@number_exercise("reward.kl", decimals=3)
def estimate(draw: Draw) -> PosedQuestion:
    """Ask for the KL estimate of one token."""
    p, p_ref = draw.integer(80, 60, 90) / 100, draw.integer(20, 10, 40) / 100
    q = p_ref / p
    return PosedQuestion({"p": p, "p_ref": p_ref}, q - np.log(q) - 1, {
        "CF-KL-TURNED": 1 / q - np.log(1 / q) - 1,
        "CF-KL-LOG-RATIO": -np.log(q),
        "CF-KL-LOG-Q": np.log(q),
        "CF-KL-NO-ONE": q - np.log(q),
        "CF-KL-LOG-ADDED": q + np.log(q) - 1,
        "CF-KL-WEIGHTED": -p * np.log(q),
        "CF-KL-LOG-10": q - np.log10(q) - 1,
    })
