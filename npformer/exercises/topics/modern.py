"""Since 2017: RMSNorm, a gate, RoPE in attention, shared key heads, tiles, pieces of words, kept keys."""


import numpy as np

from npformer.exercises.probe import Probe, Trial, normal
from npformer.exercises.see import CALLS, NUMBERS, Seen, close, ratio, unused
from npformer.exercises.task import Code, Draw, Edit, Mistake, Place, Posed, either
from npformer.exercises.topics import attention, layer_norm, rope
from npformer.exercises.topics.attention import NO_SCALE, SCALE_DK
from npformer.exercises.topics.questions import drawn
from npformer.exercises.topics.shared import instead

S10_2 = Place('"Root Mean Square Layer Normalization" (Zhang and Sennrich), section 4',
    "10, section 10.2, RMSNorm: the mean stays")
S10_2_BACK = Place("lesson 10, section 10.2", S10_2.teach)
S10_3 = Place('"GLU Variants Improve Transformer" (Shazeer), section 2', "10, section 10.3, A gate")
S10_3_BACK = Place("lesson 10, section 10.3", S10_3.teach)
S10_4 = Place('"RoFormer" (Su et al.), section 3.2', "10, section 10.4, RoPE: distance only")
S10_5 = Place('"GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints" '
    "(Ainslie et al.), section 2.2", "10, section 10.5, Fewer heads for keys and values")
S10_5_LESSON = Place("lesson 10, section 10.5", S10_5.teach)
S10_9 = Place("lesson 10, section 10.9", "10, section 10.9, What the kept keys save")

# --- RMSNorm -------------------------------------------------------------------------------------------

MEAN_TAKEN = Mistake("RMS-MEAN-TAKEN", S10_2,
    "A number added to all features of a token has less effect than it should, or none.",
    "This pattern appears when a mean is taken off, as LayerNorm does, above or below the line.",
    "Which of LayerNorm's two steps is left in RMSNorm?")
EPS_OUTSIDE = Mistake("RMS-EPS-OUTSIDE", S10_2, "Large tokens nearly agree; tokens close to 0 do not.",
    "This pattern appears when eps is added to the root.",
    "What stands under the root?")
NO_ROOT = Mistake("RMS-NO-ROOT", S10_2, "A token that is doubled gives an output of half the size.",
    "This output matches a division by the mean square, without its root.",
    "If x is measured in metres, in what is its mean square measured?")
SUM = Mistake("RMS-SUM", S10_2, "All numbers are smaller by about one factor, the root of d_model.",
    "This output matches a division by the root of the sum of squares.",
    "How many squares are added up, and does the result grow with their number?")
AXIS = Mistake("RMS-AXIS", S10_2, "A token's output changes when another token does.",
    "This pattern appears when the mean square runs over another axis than the features.",
    "Whose squares are averaged: one token's, or one feature's?")
GLOBAL = Mistake("RMS-GLOBAL", S10_2, "A token's output changes when any feature of another token does.",
    "This pattern appears when the mean is taken over the features of more than one token.",
    "How many numbers are averaged for one token: do those of its neighbours count?")
DX_DIRECT = Mistake("RMS-DX-DIRECT", S10_2_BACK,
    "A token that is doubled hardly changes its output, and this dx says that it does.",
    "This output matches a dx that treats the root mean square as a constant.",
    "Along how many ways does one x reach the output?")
DX_MEAN = Mistake("RMS-DX-MEAN", S10_2_BACK,
    "From all numbers of a token's dx one and the same number is taken off.",
    "This pattern appears when a mean is taken off, as on LayerNorm's way back.",
    "Is a mean subtracted on the way forward?")
DX_GAMMA_OUTSIDE = Mistake("RMS-DX-GAMMA-OUTSIDE", S10_2_BACK, "With gamma = 1 dx would agree.",
    "This output matches gamma multiplied after the mean is taken.",
    "Which gradient arrives at x̂?")
DGAMMA_OF_X = Mistake("RMS-DGAMMA-OF-X", S10_2_BACK,
    "dgamma follows the size of the tokens: doubled tokens would double it.",
    "This output matches a sum of dy · x, where x is not divided yet.",
    "What does gamma multiply?")
DGAMMA_SHAPE = Mistake("RMS-DGAMMA-SHAPE", S10_2_BACK, "The gradient of gamma is not of gamma's shape.",
    "This pattern appears when dgamma is not summed over all tokens.",
    "How many gammas are there?")
NO_GAMMA = Mistake("RMS-NO-GAMMA", S10_2, "The answer is the same whatever gamma is.",
    "This output does not depend on gamma.",
    "What multiplies the divided number?")


(X_1, GAMMA_1, _, EPS_1), (X_2, GAMMA_2, _, EPS_2) = layer_norm.calls(False)
ABOVE = ("gamma * x", "gamma * (x - x.mean(axis=-1, keepdims=True))")
BELOW = ("x * x", "(x - x.mean(axis=-1, keepdims=True)) ** 2")

rms_norm = Code("rms_norm.forward", "modern", 3, S10_2,
    task="Write RMSNorm for x (batch, positions, d_model), with gamma (d_model,), eps added to the mean "
    "square. Return y in x's shape.",
    hint="Each token is divided by one number.",
    question="By which number is one token divided, and from what is it computed?",
    probe=Probe(
        "x, gamma, eps", ("y",), ((0.05 * X_1 + 0.02, GAMMA_1, EPS_1), (X_2 - 0.6, GAMMA_2, EPS_2)),
        sizes="x: batch positions d_model", unit="token", neutral={"gamma": 1.0, "eps": 1e-12},
        landmarks={
            "gamma x over the size of x's mean: the mean comes before the square": lambda x, gamma, eps: (
                gamma * x / np.sqrt(x.mean(axis=-1, keepdims=True) ** 2 + eps)
            ),
        },
    ),
    solution="""
def rms_norm(x, gamma, eps):
    squares = (x * x).mean(axis=-1, keepdims=True)
    return gamma * x / np.sqrt(squares + eps)
""",
    mistakes={
        MEAN_TAKEN: [Edit(*ABOVE, *BELOW), Edit(*ABOVE), Edit(*BELOW)],
        EPS_OUTSIDE: [Edit("np.sqrt(squares + eps)", "(np.sqrt(squares) + eps)")],
        NO_ROOT: [Edit("np.sqrt", "")],
        SUM: [Edit(".mean(", ".sum(")],
        AXIS: layer_norm.OTHER_AXES[:3],
        GLOBAL: layer_norm.OTHER_AXES[3:],
        NO_GAMMA: [Edit("gamma * ", "")],
    })


NORM_BACK = tuple((dy, x, gamma, eps) for dy, x, gamma, _, eps in layer_norm.calls(True))

rms_norm_back = Code("rms_norm.backward", "backward", 4, S10_2_BACK,
    task="Write the gradients of RMSNorm for x and dy (batch, positions, d_model), with gamma (d_model,), "
    "eps added to the mean square. Return dx, dgamma in this order, each in the shape of what it belongs to.",
    hint="One x reaches the output directly and through the root mean square.",
    question="Along which ways does one x reach the output?",
    probe=Probe(
        "dy, x, gamma, eps", ("dx", "dgamma"), NORM_BACK, sizes="x: batch positions d_model", unit="token",
        neutral={"gamma": 1.0, "eps": 1e-12},
    ),
    solution="""
def rms_norm_backward(dy, x, gamma, eps):
    rms = np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    x_hat, dx_hat = x / rms, dy * gamma
    along = x_hat * (dx_hat * x_hat).mean(axis=-1, keepdims=True)
    return (dx_hat - along) / rms, (dy * x_hat).sum(axis=(0, 1))
""",
    mistakes={
        DX_DIRECT: [Edit(" - along", "")],
        DX_MEAN: [Edit(" - along", " - along - dx_hat.mean(axis=-1, keepdims=True)")],
        DX_GAMMA_OUTSIDE: [Edit("dy * gamma", "dy", "(dx_hat - along)", "gamma * (dx_hat - along)")],
        DGAMMA_OF_X: [Edit("dy * x_hat", "dy * x")],
        DGAMMA_SHAPE: [Edit(layer_norm.SUM, left) for left in layer_norm.UNSUMMED],
        MEAN_TAKEN.seen_as("Were the mean of every token 0, all would agree."): [
            Edit(*BELOW), Edit(*BELOW, "x / rms", "(x - x.mean(axis=-1, keepdims=True)) / rms"),
        ],
    })

# --- a gate --------------------------------------------------------------------------------------------

EXCHANGED = Mistake("GATE-EXCHANGED", S10_3,
    "The numbers are right for W_gate and W_up in each other's place.",
    "This output matches a SiLU on x W_up: the two hidden layers have changed roles.",
    "Which of the two hidden layers goes through the SiLU?")
SIGMOID = Mistake("GATE-SIGMOID", S10_3, "The gate lies between 0 and 1 everywhere.",
    "This output matches a sigmoid where the SiLU is asked for.",
    "What is the sigmoid multiplied by in a SiLU?")
OTHER_BEND = Mistake("GATE-OTHER-BEND", S10_3,
    "Two hidden layers meet in a product, and the gate is bent in another way.",
    "This output matches a gate of ReLU, GELU or tanh.",
    "Which function is asked for, and what is it at -1?")
NO_BEND = Mistake("GATE-NO-BEND", S10_3, "When x is doubled, the output is four times as large.",
    "This output matches a product of two hidden layers, without an activation.",
    "Which of the two goes through an activation first?")
BOTH_BENT = Mistake("GATE-BOTH-BENT", S10_3, "Both hidden layers are bent.",
    "This output matches a SiLU on both factors.",
    "How often does the activation stand in the equation?")
BENT_AFTER = Mistake("GATE-BENT-AFTER", S10_3, "The product is bent, and not one of its factors.",
    "This output matches a SiLU after the multiplication.",
    "What comes first, the activation or the product?")
ADDED = Mistake("GATE-ADDED", S10_3, "Where a gate is closed, its unit still lets something through.",
    "This output matches two hidden layers that are added.",
    "What has to happen to x W_up where the gate is 0?")
ONE_WAY = Mistake("GATE-ONE-WAY", S10_3_BACK, "dx holds one of its two terms.",
    "This output matches a dx that comes back through W_gate alone, or through W_up alone.",
    "Into how many products does x go?")
OWN_FACTOR = Mistake("GATE-OWN-FACTOR", S10_3_BACK,
    "Where the gate is shut, W_up should not learn, and here it does.",
    "This pattern appears when each factor of a product gets the gradient times itself.",
    "If h = g u, what does a little more of g add to h?")
HALF_SLOPE = Mistake("GATE-HALF-SLOPE", S10_3_BACK, "The slope of the SiLU is one of two terms.",
    "This output matches σ alone, or z σ (1 - σ) alone: one factor of z σ(z) is held still.",
    "z σ(z) is a product: what does its slope consist of?")
SIGMOID_SLOPE = Mistake("GATE-SIGMOID-SLOPE", S10_3_BACK, "The slope lies between 0 and 1/4 everywhere.",
    "This output matches the slope of the sigmoid, σ (1 - σ), where that of the SiLU is asked for.",
    "Which function is the gate, and what is its slope at 0?")
GATE_FOR_HIDDEN = Mistake("GATE-FOR-HIDDEN", S10_3_BACK,
    "dW_down depends on one of the two hidden layers only.",
    "This output matches a dW_down that is made with one of the two factors instead of their product.",
    "What went into W_down on the way forward?")


SILU = "z / (1 + np.exp(-z))"
GATED = f"""
def silu(z):
    return {SILU}

def gated_ffn(x, W_gate, W_up, W_down):
    gate, up = x @ W_gate, x @ W_up
    hidden = silu(gate) * up
    return hidden @ W_down
"""

gate = Code("gate.forward", "modern", 3, S10_3,
    task="Write the gated feed-forward network with SiLU, z times its sigmoid: x (batch, positions, "
    "d_model), W_gate and W_up (d_model, d_ff), W_down (d_ff, d_model). Return y in x's shape.",
    hint="Two hidden layers, one of them bent, multiplied.",
    question="Which of the two hidden layers is bent, and how do they meet?",
    probe=Probe(
        "x, W_gate, W_up, W_down", ("y",),
        tuple(
            (normal(B, T, d), normal(d, f), normal(d, f, seed=1), normal(f, d, seed=2))
            for B, T, d, f in ((2, 3, 4, 5), (4, 2, 3, 3))
        ),
        sizes="x: batch positions d_model; W_gate: d_model d_ff", unit="token",
        landmarks=instead(GATED, {
            "the right output, put through SiLU once more": "silu(hidden @ W_down)",
            "a gate that is a softmax over the hidden units": Edit(
                SILU, "np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)"
            ),
        }),
    ),
    solution=GATED,
    mistakes={
        EXCHANGED: [Edit("silu(gate) * up", "gate * silu(up)")],
        SIGMOID: [Edit(SILU, "1 / (1 + np.exp(-z))")],
        OTHER_BEND: [
            Edit(SILU, "np.maximum(z, 0)"),
            Edit(SILU, "z * (1 + np.vectorize(math.erf)(z / 2**0.5)) / 2"),
            Edit(SILU, "z * (1 + np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z**3))) / 2"),
            Edit(SILU, "np.tanh(z)"),
        ],
        NO_BEND: [Edit("silu(gate)", "gate")],
        BOTH_BENT: [Edit("* up", "* silu(up)")],
        BENT_AFTER: [Edit("silu(gate) * up", "silu(gate * up)")],
        ADDED: [Edit("* up", "+ up")],
    },
    looks=(*NUMBERS, unused, *CALLS),
    ours="gated_ffn_forward")


SLOPE = "(sigmoid + gate * (1 - sigmoid))"

gate_back = Code("gate.backward", "backward", 5, S10_3_BACK,
    task="Write the gradients of the gated network, y = (SiLU(x W_gate) · (x W_up)) W_down, with SiLU(z) = z "
    "times its sigmoid. dy and x are (batch, positions, d_model), W_gate and W_up (d_model, d_ff), W_down "
    "(d_ff, d_model). Return dx, dW_gate, dW_up, dW_down in this order, each in its own array's shape.",
    hint="Two products of two factors each: the hidden layer, and the SiLU.",
    question="Which two things are multiplied there, and what does each of them send back?",
    probe=Probe(
        "dy, x, W_gate, W_up, W_down", ("dx", "dW_gate", "dW_up", "dW_down"),
        tuple((normal(*given[0].shape, seed=3), *given) for given in gate.probe.calls),
        sizes=gate.probe.sizes, unit="token",
    ),
    solution=f"""
def gated_ffn_backward(dy, x, W_gate, W_up, W_down):
    z, up = x @ W_gate, x @ W_up
    sigmoid = 1 / (1 + np.exp(-z))
    gate = z * sigmoid
    dhidden = dy @ W_down.T
    dup = dhidden * gate
    dz = dhidden * up * {SLOPE}
    dx = dz @ W_gate.T + dup @ W_up.T
    dW_gate, dW_up = (np.einsum("btd,btf->df", x, d) for d in (dz, dup))
    dW_down = np.einsum("btf,btd->fd", gate * up, dy)
    return dx, dW_gate, dW_up, dW_down
""",
    mistakes={
        ONE_WAY: [Edit(" + dup @ W_up.T", ""), Edit("dz @ W_gate.T + ", "")],
        OWN_FACTOR: [Edit("dhidden * up", "dhidden * gate", "dup = dhidden * gate", "dup = dhidden * up")],
        HALF_SLOPE: [Edit(SLOPE, "sigmoid"), Edit(SLOPE, "gate * (1 - sigmoid)")],
        SIGMOID_SLOPE: [Edit(SLOPE, "sigmoid * (1 - sigmoid)")],
        GATE_FOR_HIDDEN: [Edit("gate * up, dy", "gate, dy"), Edit("gate * up, dy", "up, dy")],
    },
    ours="gated_ffn_backward")


@drawn("modern.gate_width")
def gate_width(draw: Draw) -> Posed:
    """The hidden width at which a gated network has as many weights as a plain one of 4 d_model."""
    d = 192 * draw.integer(4, 1, 20)
    return Posed({"d": d, "f": 4 * d}, 8 * d // 3, {
        "CF-PLAIN-WIDTH": 4 * d,
        "CF-HALF-WIDTH": 2 * d,
        "CF-A-THIRD": 4 * d // 3,
        "CF-WIDER": 6 * d,
        "CF-COUNT-OF-WEIGHTS": 8 * d * d,
    })

# --- turned queries and keys -----------------------------------------------------------------------------

ON_VALUES = Mistake("ROPE-ON-VALUES", S10_4, "The weights are right, and what they mix has been turned.",
    "This output matches values that are turned like keys: it says where a word stands, and not only what it "
    "is.",
    "Which of q, k and v enter the scores?")
ONE_SIDE = Mistake("ROPE-ONE-SIDE", S10_4, "The weights change when the whole text moves along.",
    "This output matches a rotation of the queries alone, or of the keys alone.",
    "What is left of two rotations when a query meets a key?")

def by_distance(trial: Trial) -> Seen | None:
    """Where all tokens are alike, one pair of columns at a time, and v = 1: what the weights depend on."""
    T, d = 8, trial.calls[0][0].shape[1]
    tokens = [np.tile(row, (T, 1)) for row in np.eye(d)[::2]]
    shown = [trial.both((token, token, np.eye(T))) for token in tokens]
    if not all(pair and pair[0].shape == (T, T) and (pair[0] > 0).all() for pair in shown):
        return None
    mine, due = np.moveaxis(np.diff(np.log([pair for pair in shown if pair])), 1, 0)
    if not close(mine[:, 1:, 1:], mine[:, :-1, :-1]):
        return Seen(
            "Where all tokens are alike, a key's weight depends on more than its distance from the query.",
            "Which of q and k are turned, in which direction, and what is left when they meet?")
    if not close(mine[:, 1, 0], -mine[:, 1, 1]):
        return Seen(
            "Where all tokens are alike, the key before a query and the key after it get different weights.",
            "From which position on are queries counted, and from which are keys?")
    if all(map(ratio, mine, due)) or close(mine, 0 * mine):
        return None
    return Seen("The weights follow the distance between query and key, by other angles than they should.",
        "By which angle does pair i turn in one step?")


ROPE_ATTENTION = f"""
{rope.forward.solution}
{attention.forward.solution}
def rope_attention(q, k, v):
    return attention(rope(q), rope(k), v)
"""

rope_attention = Code("rope.attention", "modern", 4, S10_4,
    task="Write one head's attention with RoPE for q, k, v (T, d), d even, without a mask: at position p "
    "the pair of columns 2i and 2i+1 turns by the angle p / 10000^(2i/d), so that (1, 0) becomes (cos, "
    "sin). Return y, an array.",
    hint="A place may show in the weights, and in nothing else.",
    question="Which of q, k and v meet in the scores, and which is mixed by them?",
    probe=Probe(
        "q, k, v", ("y",), tuple(tuple(normal(T, d, seed=n) for n in range(3)) for T, d in ((5, 6), (3, 8))),
        sizes="q: T d", unit="position", shows=attention.SHOWN,
        landmarks=instead(ROPE_ATTENTION, {
            "attention without positions": "attention(q, k, v)",
            "attention without positions, its output turned": "rope(attention(q, k, v))",
        }),
    ),
    solution=ROPE_ATTENTION,
    mistakes={
        ON_VALUES: [Edit("rope(k), v", "rope(k), rope(v)")],
        ONE_SIDE: [Edit("rope(k)", "k"), Edit("rope(q)", "q")],
        **{
            mistake: rope.forward.mistakes[mistake]
            for mistake in (rope.SIGN, rope.HALVES, rope.EXP_NO_2, rope.EXP_DOUBLED)
        },
        **{mistake: attention.forward.mistakes[mistake] for mistake in (NO_SCALE, SCALE_DK)},
    },
    looks=(*NUMBERS, by_distance, *CALLS))

# --- shared key heads ------------------------------------------------------------------------------------

TILED = Mistake("KV-TILED", S10_5,
    "The first query head agrees, and some later ones look at another head's keys or values.",
    "This pattern appears when the key heads are written one after the other again and again, where each "
    "should be repeated in its place.",
    "With two key heads, which one does query head 1 use?")
FIRST_ONLY = Mistake("KV-FIRST-ONLY", S10_5,
    "The query heads of the first group agree, and the later key heads have no effect.",
    "This output matches one key head, or one value head, for all queries.",
    "Which query heads does the second key head serve?")


def key_heads(trial: Trial) -> Seen | None:
    """Which key head each query head looks at, where all queries are alike and v = 1."""
    q, k, v = trial.calls[0]
    mine, due = trial.both(attention.weights(q[:1].repeat(len(q), axis=0), k, v)) or ([], [])
    heads = [[g for g, right in enumerate(due[::len(q) // len(k)]) if close(w, right)] for w in mine]
    if len(heads) < len(q) or not all(heads) or all(i * len(k) // len(q) in g for i, g in enumerate(heads)):
        return None
    told = ", ".join(f"{g[0]}" for g in heads)
    return Seen(
        f"In the first call, query heads 0 to {len(q) - 1} look at the keys of the key heads {told}.",
        "Which query heads are neighbours, and which key head do they share?")


def for_either(spread: str) -> list[Edit]:
    """Keys and values spread in another way; the keys alone; the values alone."""
    pairs = ((f"np.repeat({x}, times, axis=0)", spread.replace("x", x)) for x in "kv")
    return either(*(word for pair in pairs for word in pair))


grouped = Code("attention.grouped", "modern", 4, S10_5,
    task="Write attention with fewer key heads: q (n_heads, T_q, d_k), k (n_kv_heads, T_k, d_k), v "
    "(n_kv_heads, T_k, d_v), no mask. Neighbouring query heads share a key head: head i uses key head i // "
    "(n_heads / n_kv_heads). Return (n_heads, T_q, d_v).",
    hint="Write the key heads' numbers under the query heads'.",
    question="Which key head do query heads 0, 1 and 2 look at?",
    probe=Probe(
        "q, k, v", ("heads",),
        tuple(
            (normal(h, T_q, d_k), normal(g, T_k, d_k, seed=1), normal(g, T_k, d_v, seed=2))
            for h, g, T_q, T_k, d_k, d_v in ((6, 2, 3, 4, 5, 7), (4, 2, 5, 3, 2, 3))
        ),
        sizes="q: n_heads T_q d_k; k: n_kv_heads T_k d_k; v: n_kv_heads T_k d_v",
        unit="position", outer="head",
        shows=attention.SHOWN | {
            "With v = 1 and all key heads alike, which shows the queries": lambda q, k, v: (
                attention.weights(q, k[:1].repeat(len(k), axis=0), v)
            ),
        },
    ),
    solution=f"""
{attention.forward.solution}
def grouped_attention(q, k, v):
    times = len(q) // len(k)
    return attention(q, np.repeat(k, times, axis=0), np.repeat(v, times, axis=0))
""",
    mistakes={
        TILED: for_either("np.concatenate([x] * times)"),
        FIRST_ONLY: for_either("x[[0] * len(q)]"),
        **{mistake: attention.forward.mistakes[mistake] for mistake in (NO_SCALE, SCALE_DK)},
    },
    looks=(*NUMBERS, key_heads, *CALLS))


GRAD_MEAN = Mistake("KV-GRAD-MEAN", S10_5_LESSON,
    "The gradient is smaller by one constant factor, the number of query heads of a group.",
    "This output matches a mean over the query heads of a group.",
    "If one number of a key head moves, in how many copies does it move?")
GRAD_ONE = Mistake("KV-GRAD-ONE", S10_5_LESSON,
    "Each key head has the gradient of one query head of its group.",
    "This pattern appears when the gradient of the first copy is taken, or the last one written over others.",
    "How many query heads send something back to one key head?")
GRAD_COPIED = Mistake("KV-GRAD-COPIED", S10_5_LESSON,
    "The sums are right, and each stands there once for each query head of its group.",
    "This output matches sums that are written under all query heads again.",
    "How many key heads were there before the copies were made?")

grouped_back = Code("grouped.backward", "backward", 3, S10_5_LESSON,
    task="In grouped attention each of the key heads x (n_kv_heads, T, d_k) is copied for the n_heads / "
    "n_kv_heads query heads that share it: query head i uses key head i // (n_heads / n_kv_heads). dy "
    "(n_heads, T, d_k) is the gradient of the copies. Return dx, the gradient of the key heads.",
    hint="What goes to several places gets something back from each of them.",
    question="Which of the query heads send a gradient to key head 0, and what becomes of several?",
    probe=Probe(
        "dy, n_kv_heads", ("dx",), ((normal(6, 4, 5), 2), (normal(8, 3, 2), 4)),
        sizes="dy: n_heads T d_k; n_kv_heads: n_kv_heads", unit="position", outer="head",
    ),
    solution="""
def grouped_backward(dy, n_kv_heads):
    n_heads, T, d_k = dy.shape
    groups = dy.reshape(n_kv_heads, n_heads // n_kv_heads, T, d_k)
    return groups.sum(axis=1)
""",
    mistakes={
        GRAD_MEAN: [Edit(".sum(", ".mean(")],
        GRAD_ONE: [Edit("groups.sum(axis=1)", "groups[:, 0]"), Edit("groups.sum(axis=1)", "groups[:, -1]")],
        TILED.seen_as("Each key head has a sum of as many gradients as it should, and not of its own."): [
            Edit("reshape(n_kv_heads, n_heads // n_kv_heads", "reshape(-1, n_kv_heads", "axis=1", "axis=0")
        ],
        GRAD_COPIED: [Edit("sum(axis=1)", "sum(axis=1).repeat(n_heads // n_kv_heads, axis=0)")],
    },
    ours="sum_repeated")


@drawn("modern.kept_bytes")
def kept_bytes(draw: Draw) -> Posed:
    """The bytes that a model with shared key heads keeps for each token."""
    shared = 2 ** draw.integer(2, 1, 3)
    g, n = draw.integer(2, 2, 5), draw.integer(6, 3, 9)
    d_k = 2 ** draw.integer(6, 5, 7)
    right = 2 * n * g * d_k * 4
    return Posed({"n": n, "h": shared * g, "g": g, "d_k": d_k}, right, {
        "CF-ALL-HEADS-KEPT": right * shared,
        "CF-KEYS-ALONE": right // 2,
        "CF-ONE-BLOCK": right // n,
        "CF-NUMBERS-NOT-BYTES": right // 4,
        "CF-HEADS-NOT-COUNTED": right // g,
        "CF-EIGHT-BYTES": right * 2,
        "CF-BITS": right * 8,
    })

# --- kept keys ---------------------------------------------------------------------------------------


AHEAD = Mistake("KEPT-MASK-AHEAD", S10_9, "Each new token sees one key more than it should.",
    "This output matches a mask that shows each new token the next one.",
    "Which key belongs to the first new token itself?")
NOT_ITSELF = Mistake("KEPT-MASK-NOT-ITSELF", S10_9, "Each new token sees one key less than it should.",
    "This output matches a mask in which no new token sees itself.",
    "Which key belongs to the first new token itself?")
FROM_0 = Mistake("KEPT-MASK-FROM-0", S10_9, "The first new token sees one key, however many are kept.",
    "This pattern appears when rows are counted from the first new token and columns from the first token of "
    "all.",
    "At which place of the whole text does the first new token stand?")
NEW_ONLY = Mistake("KEPT-MASK-NEW-ONLY", S10_9, "The mask has no columns for the kept keys.",
    "This output matches the causal mask of the new tokens alone.",
    "How many keys does each new query meet?")

kept = Code("mask.kept", "modern", 3, S10_9,
    task="A model has kept the keys of the first tokens, kept of them, and now gets n more at once. Write "
    "their mask (n, kept + n): True where a new token may look, itself included.",
    hint="At which place of the whole text does the first new token stand?",
    question="How many keys may the first of the new tokens see, and how many the last?",
    probe=Probe("n, kept", ("mask",), ((3, 4), (2, 5), (4, 0)), sizes="n: n; kept: kept"),
    solution="""
def mask_of_new(n, kept):
    i, j = np.arange(n)[:, None], np.arange(kept + n)
    return j <= kept + i
""",
    mistakes={
        AHEAD: [Edit("<= kept + i", "<= kept + i + 1")],
        NOT_ITSELF: [Edit("<=", "<")],
        FROM_0: [Edit("<= kept + i", "<= i")],
        NEW_ONLY: [Edit("kept + ", "")],
    },
    ours="causal_mask")
