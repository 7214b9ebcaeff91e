"""A published chat model: four bits a number, and a block to port."""

from npformer.exercises.probe import Arguments, Probe, normal
from npformer.exercises.task import Code, Edit, Mistake, Place, either
from npformer.exercises.topics.attention import NO_SCALE
from npformer.exercises.topics.block import NO_RESIDUAL
from npformer.exercises.topics.modern import TILED
from npformer.exercises.topics.rope import SIGN

S11_8 = Place("lesson 11, section 11.8", "11, section 11.8, Four bits a number")
S11_10 = Place("Port a model in an hour, section 5", "11, section 11.10, Exercises")


STEPS = Mistake("Q-STEPS", S11_8, "The smallest number of each group is kept, and the largest is not.",
    "This output matches a range that is divided by the number of values, not of steps between them.",
    "How many steps are there between 2^bits values?")
DOWN = Mistake("Q-DOWN", S11_8, "No number has become larger; some are off by almost a whole step.",
    "This output matches a rounding down.",
    "Which of the values is nearest?")
ONE_GROUP = Mistake("Q-ONE-GROUP", S11_8, "The steps are as wide in every group.",
    "This output matches one step and one smallest number for all groups.",
    "Along which axis are smallest and largest taken?")
NO_SMALLEST = Mistake("Q-NO-SMALLEST", S11_8, "Every group begins at 0.",
    "This output matches d q, to which the smallest number is not added again.",
    "What was taken off before the division?")

quantise = Code("quantise.groups", "published", 3, S11_8,
    task="Each row of w (n, group) is a group. Store it in whole numbers q from 0 to 2^bits - 1, with the "
    "group's smallest number m and a step d so that m + d q reaches from the smallest to the largest, and "
    "round to the nearest. Return what the numbers have become, m + d q (n, group).",
    hint="Take m off, divide by d, round, and go back.",
    question="Which values can a number of this group become?",
    probe=Probe(
        "w, bits", ("rounded",), ((normal(3, 8), 2), (normal(4, 6, seed=1) * 5, 3)),
        sizes="w: n group; bits: bits", unit="group",
    ),
    solution="""
def quantised(w, bits):
    m = w.min(axis=1, keepdims=True)
    d = (w.max(axis=1, keepdims=True) - m) / (2**bits - 1)
    q = np.rint((w - m) / d)
    return m + d * q
""",
    mistakes={
        STEPS: [Edit("(2**bits - 1)", "2**bits")],
        DOWN: [Edit("np.rint", "np.floor"), Edit("np.rint((w - m) / d)", "(w - m) // d")],
        ONE_GROUP: [Edit("min(axis=1, keepdims=True)", "min()", "max(axis=1, keepdims=True)", "max()")],
        NO_SMALLEST: [Edit("m + d", "d")],
    })

# --- a block to port -------------------------------------------------------------------------------------

LAYOUT = Mistake("PORT-LAYOUT", S11_10, "The first token is right, and no other is.",
    "This output matches RoPE on neighbouring columns, where this file has its pairs in halves.",
    "Which two columns of a head are turned together?")
NOT_TURNED = Mistake("PORT-NOT-TURNED", S11_10, "All shapes fit, and nothing stops.",
    "This output matches a square matrix that is not turned over.",
    "In the file a weight is (d_out, d_in). Which of the products are with a square one?")
GATE_UP = Mistake("PORT-GATE-UP", S11_10, "Attention is right; what is added behind it is not.",
    "This output matches a SiLU on the other of the two matrices.",
    "Through which of W_gate and W_up does the SiLU go?")
NORMS = Mistake("PORT-NORMS", S11_10, "Both stations are there, and in order.",
    "This output matches the two norms' gammas exchanged.",
    "Which gamma stands in front of attention?")
NO_ROPE = Mistake("PORT-NO-ROPE", S11_10, "The first token is right.",
    "This output does not depend on the order of the earlier words.",
    "What turns, and by what?")
VALUES_TURNED = Mistake("PORT-VALUES-TURNED", S11_10, "Who looks at whom is right.",
    "This output matches values that are turned like the keys.",
    "Which of q, k and v are turned?")
NO_MASK = Mistake("PORT-NO-MASK", S11_10, "The last token is right, and no other is.",
    "This output matches attention to later words too.",
    "What may the first word look at?")
POST_NORM = Mistake("PORT-POST-NORM", S11_10, "All parts are there.",
    "This output matches norms behind the sums, as in 2017.",
    "Does x go through a norm on its way from block to block?")


def weights(T: int, d: int, f: int) -> Arguments:
    """x and the arrays of one block as in a file, in the order of the arguments; the second norm's last."""
    shapes = [(T, d), (d, d), (d // 2, d), (d // 2, d), (d, d), (d,), (f, d), (f, d), (d, f), (d,)]
    return tuple(normal(*shape, seed=k) * (0.6 if k else 1) for k, shape in enumerate(shapes))


block = Code("port.block", "published", 5, S11_10,
    task="A capstone. Port one block of a Llama-like model from Hugging Face's arrays: y (T, d_model) from x "
    "(T, d_model). A weight is (d_out, d_in): W_q and W_o (d, d), W_k and W_v (d/2, d), W_gate and W_up "
    "(f, d), W_down (d, f). 4 query heads, 2 key heads (head i uses key head i // 2), causal. RMSNorm with "
    "gamma_1 in front of attention and gamma_2 in front of the gated network, eps 1e-5 under the root; "
    "SiLU on the gate; both stations are added to x. RoPE with base 10000 on q and k: in each head the "
    "columns j and j + d_k/2 are a pair, which position p turns by p 10000^(-2j/d_k).",
    hint="Write it station by station, and compare one station at a time.",
    question="Is the first token right? Is the last one?",
    probe=Probe(
        "x, W_q, W_k, W_v, W_o, gamma_1, W_gate, W_up, W_down, gamma_2", ("y",),
        (weights(5, 16, 10), weights(3, 8, 6)), sizes="x: T d_model", unit="token",
    ),
    solution="""
def block(x, W_q, W_k, W_v, W_o, gamma_1, W_gate, W_up, W_down, gamma_2):
    T, d = x.shape
    d_k = d // 4

    def norm(x, gamma):
        return gamma * x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5)

    def heads(z):
        return z.reshape(T, -1, d_k).swapaxes(0, 1)

    def turn(z):
        first, second = slice(None, d_k // 2), slice(d_k // 2, None)
        angle = np.arange(T)[:, None] * 10000.0 ** (-2 * np.arange(d_k // 2) / d_k)
        a, b, y = z[..., first], z[..., second], np.empty_like(z)
        y[..., first] = a * np.cos(angle) - b * np.sin(angle)
        y[..., second] = a * np.sin(angle) + b * np.cos(angle)
        return y

    def attend(n):
        q, k, v = turn(heads(n @ W_q.T)), turn(heads(n @ W_k.T)), heads(n @ W_v.T)
        k, v = np.repeat(k, 2, axis=0), np.repeat(v, 2, axis=0)
        scores = q @ k.swapaxes(1, 2) / math.sqrt(d_k)
        scores = np.where(np.tri(T, dtype=bool), scores, -np.inf)
        w = np.exp(scores - scores.max(axis=-1, keepdims=True))
        w = w / w.sum(axis=-1, keepdims=True)
        return (w @ v).swapaxes(0, 1).reshape(T, d) @ W_o.T

    def feed(m):
        gate, up = m @ W_gate.T, m @ W_up.T
        return (gate / (1 + np.exp(-gate)) * up) @ W_down.T

    h = x + attend(norm(x, gamma_1))
    y = h + feed(norm(h, gamma_2))
    return y
""",
    mistakes={
        LAYOUT: [
            Edit("slice(None, d_k // 2), slice(d_k // 2, None)", "slice(0, None, 2), slice(1, None, 2)")
        ],
        NOT_TURNED: [Edit("W_q.T", "W_q"), Edit("W_o.T", "W_o"), Edit("W_q.T", "W_q", "W_o.T", "W_o")],
        GATE_UP: [Edit("gate, up = m @ W_gate.T, m @ W_up.T", "up, gate = m @ W_gate.T, m @ W_up.T")],
        NORMS: [Edit("norm(x, gamma_1)", "norm(x, gamma_2)", "norm(h, gamma_2)", "norm(h, gamma_1)")],
        TILED.seen_as("All parts are there; some heads look at another head's keys and values."): [
            Edit("np.repeat(k, 2, axis=0), np.repeat(v, 2, axis=0)",
                "np.concatenate([k, k]), np.concatenate([v, v])")
        ],
        NO_ROPE: [Edit("turn(heads(n @ W_q.T)), turn(heads(n @ W_k.T))",
            "heads(n @ W_q.T), heads(n @ W_k.T)")],
        VALUES_TURNED: [Edit("heads(n @ W_v.T)", "turn(heads(n @ W_v.T))")],
        NO_MASK: [Edit("np.where(np.tri(T, dtype=bool), scores, -np.inf)", "scores")],
        POST_NORM: [Edit("x + attend(norm(x, gamma_1))", "norm(x + attend(x), gamma_1)",
            "h + feed(norm(h, gamma_2))", "norm(h + feed(h), gamma_2)")],
        NO_SCALE.seen_as("The first token is right."): [Edit(" / math.sqrt(d_k)", "")],
        SIGN.seen_as("The first token is right."): [
            Edit("- b * np.sin(angle)", "+ b * np.sin(angle)", "a * np.sin(angle) +", "-a * np.sin(angle) +")
        ],
        NO_RESIDUAL: either("x + attend", "attend", "h + feed", "feed"),
    })
