"""Exercises on porting a published chat model: four-bit quantization and a whole block.

The docstring of the package `npformer.exercises.bank` defines the terms call, edit and intermediate result
(`landmarks`).
"""

import numpy as np

from npformer.exercises.bank.questions import function_exercise
from npformer.exercises.probe import Arguments, Draws, normal
from npformer.exercises.task import Edit, edit_either_line


def draw(draws: Draws) -> Arguments:
    """Return random groups of positive and negative numbers, and the number of bits."""
    n, members = draws.size(high=5), draws.size(low=6, high=12)
    return draws.rng.uniform(0.5, 4.0) * draws.normal(n, members), int(draws.rng.integers(2, 5))


SPREAD = "(w.max(axis=1, keepdims=True) - m) / (2**bits - 1)"
NEAREST = "np.rint((w - m) / d)"
CLIPPED = "np.clip(np.rint(w / d), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)"

quantise = function_exercise("quantise.groups", ("rounded",),
    ((normal(3, 8), 2), (normal(4, 6, seed=1) * 5, 3), (np.abs(normal(2, 5)) + 1, 1), (normal(3, 7) - 4, 4),
        (3 * normal(2, 12), 8), (normal(1, 6), 3)),
    draw=draw, axes="w: groups members; bits: bits; rounded: groups members",
    landmarks={"whole_numbers_q": "q", "steps_d_q": "d * q"},
    solution="""
def quantised(w, bits):
    m = w.min(axis=1, keepdims=True)
    d = (w.max(axis=1, keepdims=True) - m) / (2**bits - 1)
    q = np.rint((w - m) / d)
    return m + d * q
""",
    mistakes={
        "Q-STEPS": [
            Edit("(2**bits - 1)", "2**bits"),
            Edit("(2**bits - 1)", "2**bits", NEAREST, f"np.clip({NEAREST}, 0, 2**bits - 1)"),
            Edit("(2**bits - 1)", "2**bits", NEAREST, "np.clip(np.floor((w - m) / d), 0, 2**bits - 1)"),
        ],
        "Q-STEP-FORGOTTEN": [Edit("m + d * q", "m + q")],
        "Q-DOWN": [Edit("np.rint", "np.floor"), Edit(NEAREST, "(w - m) // d")],
        "Q-UP": [Edit("np.rint", "np.ceil")],
        "Q-SYMMETRIC": [
            Edit("m + d * q", "d * q", SPREAD, f"np.abs(w).max(axis=1, keepdims=True) / ({half})",
                NEAREST, rounded)
            for half in ("2 ** (bits - 1) - 1", "2 ** (bits - 1)")
            for rounded in ("np.rint(w / d)", CLIPPED)
        ],
        "Q-ZERO-POINT": [
            Edit(NEAREST, f"{q}", "m + d * q", "d * (q - z)")
            for q in (
                "np.rint(w / d) + (z := np.rint(-m / d))",
                "np.clip(np.rint(w / d) + (z := np.rint(-m / d)), 0, 2**bits - 1)",
                "np.rint(w / d + (z := np.rint(-m / d)))",
                "np.clip(np.rint(w / d + (z := np.rint(-m / d))), 0, 2**bits - 1)",
            )
        ],
        "Q-ONE-GROUP": [Edit("min(axis=1, keepdims=True)", "min()", "max(axis=1, keepdims=True)", "max()")],
        "Q-NO-SMALLEST": [Edit("m + d", "d")],
        "Q-NOT-BACK": [Edit("m + d * q", "q")],
        "Q-LARGEST-AS-STEP": [Edit("(w.max(axis=1, keepdims=True) - m) /", "w.max(axis=1, keepdims=True) /")],
        "Q-AXIS": [Edit("axis=1", "axis=0")],
    },
    ours=None)

# --- a block to port -------------------------------------------------------------------------------------


def weights(T: int, d: int, f: int) -> Arguments:
    """Return x and the arrays of one block, shaped as in a model file. The last array belongs to norm 2."""
    shapes = [(T, d), (d, d), (d // 2, d), (d // 2, d), (d, d), (d,), (f, d), (f, d), (d, f), (d,)]
    return tuple(normal(*shape, seed=k) * (0.6 if k else 1) for k, shape in enumerate(shapes))


def small_rows() -> Arguments:
    """Return a call in which eps changes the result, because one token is close to 0."""
    x, *arrays = weights(4, 8, 6)
    x[1] *= 1e-3
    return x, *arrays


def draw_block(draws: Draws) -> Arguments:
    """Return a block with random T and f. d is 24, so that each of four heads has an even width."""
    T, f = draws.size(low=3, high=7), draws.size(low=3, high=12)
    _, *arrays = weights(T, 24, f)
    return draws.normal(T, 24), *(0.6 * draws.normal(*array.shape) for array in arrays)


NORM = "gamma * x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5)"
MASK = "np.where(np.tri(T, dtype=bool), scores, -np.inf)"
ANGLE = "10000.0 ** (-2 * np.arange(d_k // 2) / d_k)"
SILU = "gate / (1 + np.exp(-gate))"

block = function_exercise("port.block", ("y",),
    (weights(5, 16, 10), weights(3, 8, 6), weights(4, 8, 8), small_rows(), weights(1, 8, 5)), draw=draw_block,
    axes="x: T d_model; y: T d_model",
    landmarks={
        "attention_station": "h",
        "network_alone": "feed(norm(h, gamma_2))",
        "parallel_stations": "x + attend(norm(x, gamma_1)) + feed(norm(x, gamma_2))",
    },
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
        "PORT-LAYOUT": [
            Edit("slice(None, d_k // 2), slice(d_k // 2, None)", "slice(0, None, 2), slice(1, None, 2)")
        ],
        "PORT-NOT-TURNED": [Edit("W_q.T", "W_q"), Edit("W_o.T", "W_o"), Edit("W_q.T", "W_q", "W_o.T", "W_o")],
        "PORT-GATE-UP": [Edit("gate, up = m @ W_gate.T, m @ W_up.T", "up, gate = m @ W_gate.T, m @ W_up.T")],
        "PORT-NORMS": [Edit("norm(x, gamma_1)", "norm(x, gamma_2)", "norm(h, gamma_2)", "norm(h, gamma_1)")],
        "KV-TILED": [
            Edit("np.repeat(k, 2, axis=0), np.repeat(v, 2, axis=0)",
                "np.concatenate([k, k]), np.concatenate([v, v])")
        ],
        "PORT-NO-ROPE": [Edit("turn(heads(n @ W_q.T)), turn(heads(n @ W_k.T))",
            "heads(n @ W_q.T), heads(n @ W_k.T)")],
        "PORT-VALUES-TURNED": [Edit("heads(n @ W_v.T)", "turn(heads(n @ W_v.T))")],
        "PORT-NO-MASK": [Edit(MASK, "scores")],
        "PORT-MASK-STRICT": [Edit(MASK, "np.where(np.tri(T, k=-1, dtype=bool), scores, -1e30)")],
        "PORT-MASK-ZERO": [Edit(MASK, "np.where(np.tri(T, dtype=bool), scores, 0.0)")],
        "PORT-EPS": [
            Edit("1e-5", "1e-6"), Edit("1e-5", "1e-8"), Edit(" + 1e-5", ""),
            Edit(NORM, "gamma * x / (np.sqrt((x * x).mean(axis=1, keepdims=True)) + 1e-5)"),
        ],
        "PORT-LAYER-NORM": [
            Edit(NORM, "gamma * (x - x.mean(axis=1, keepdims=True)) "
                "/ np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)"),
        ],
        "PORT-NO-GAMMA": [Edit("gamma * x /", "x /")],
        "PORT-GAMMA-PLUS-1": [Edit("gamma * x /", "(1 + gamma) * x /")],
        "PORT-NORM-TWO-OF-X": [Edit("feed(norm(h, gamma_2))", "feed(norm(x, gamma_2))")],
        "PORT-RESIDUAL-NORMED": [
            Edit("x + attend(norm(x, gamma_1))", "norm(x, gamma_1) + attend(norm(x, gamma_1))",
                "h + feed(norm(h, gamma_2))", "norm(h, gamma_2) + feed(norm(h, gamma_2))"),
        ],
        "PORT-ACTIVATION": [
            Edit(SILU, other) for other in (
                "1 / (1 + np.exp(-gate))", "np.maximum(gate, 0)", "gate", "np.tanh(gate)",
                "gate * (1 + np.vectorize(math.erf)(gate / 2**0.5)) / 2",
                "gate * (1 + np.tanh((2 / np.pi) ** 0.5 * (gate + 0.044715 * gate**3))) / 2",
            )
        ],
        "PORT-ROPE-WIDTH": [
            Edit(ANGLE, other) for other in (
                "10000.0 ** (-2 * np.arange(d_k // 2) / d)", "10000.0 ** (-np.arange(d_k // 2) / d_k)",
                "10000.0 ** (-np.arange(d_k // 2) / d)",
            )
        ],
        "PORT-SCALE": [
            Edit("math.sqrt(d_k)", other) for other in ("math.sqrt(d)", "d_k", "math.sqrt(d // 2)")
        ],
        "PORT-KV-HEADS": [
            Edit("np.repeat(k, 2, axis=0), np.repeat(v, 2, axis=0)", "k[[0, 0, 0, 0]], v[[0, 0, 0, 0]]"),
        ],
        "PORT-POST-NORM": [Edit("x + attend(norm(x, gamma_1))", "norm(x + attend(x), gamma_1)",
            "h + feed(norm(h, gamma_2))", "norm(h + feed(h), gamma_2)")],
        "AT-NO-SCALE": [Edit(" / math.sqrt(d_k)", "")],
        "ROPE-SIGN": [
            Edit("- b * np.sin(angle)", "+ b * np.sin(angle)", "a * np.sin(angle) +", "-a * np.sin(angle) +")
        ],
        "PORT-NO-RESIDUAL": edit_either_line("x + attend", "attend", "h + feed", "feed"),
    })
