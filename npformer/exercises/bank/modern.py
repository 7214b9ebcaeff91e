"""Exercises on changes since 2017: RMSNorm, gated FFN, RoPE in attention, grouped-query attention, KV cache.

The docstring of the package `npformer.exercises.bank` defines the terms call, derived call, view, edit,
intermediate result (`landmarks`) and detector.
"""


import numpy as np

from npformer.exercises.bank import attention, layer_norm, rope
from npformer.exercises.bank.questions import function_exercise, number_exercise
from npformer.exercises.number_detectors import are_close, find_ratio
from npformer.exercises.probe import Arguments, Draws, Trial, View, normal
from npformer.exercises.task import Draw, Edit, PosedQuestion, edit_either_line
from npformer.exercises.verdict import Finding, make_finding

# --- RMSNorm -------------------------------------------------------------------------------------------


(X_1, GAMMA_1, _, EPS_1), (X_2, GAMMA_2, _, EPS_2), _ = layer_norm.calls(False)
ABOVE = ("gamma * x", "gamma * (x - x.mean(axis=-1, keepdims=True))")
BELOW = ("x * x", "(x - x.mean(axis=-1, keepdims=True)) ** 2")

def draw_norm(draws: Draws) -> Arguments:
    """Return random x, gamma and eps. RMSNorm has no beta."""
    x, gamma, _, eps = layer_norm.draw(draws)
    return x, gamma, eps


def draw_norm_back(draws: Draws) -> Arguments:
    """Return a random backward call: the gradient of the output, and the arguments of a forward call."""
    dy, x, gamma, _, eps = layer_norm.draw_back(draws)
    return dy, x, gamma, eps


rms_norm = function_exercise("rms_norm.forward",
    ("y",), ((0.05 * X_1 + 0.02, GAMMA_1, EPS_1), (X_2 - 0.6, GAMMA_2, EPS_2)),
    draw=draw_norm, axes="x: batch positions d_model; gamma: d_model; y: batch positions d_model",
    neutral={"gamma": 1.0, "eps": 1e-12},
    landmarks={
        "mean_before_square":
            "gamma * x / np.sqrt(x.mean(axis=-1, keepdims=True) ** 2 + eps)",
    },
    solution="""
def rms_norm(x, gamma, eps):
    squares = (x * x).mean(axis=-1, keepdims=True)
    return gamma * x / np.sqrt(squares + eps)
""",
    mistakes={
        "RMS-MEAN-TAKEN": [Edit(*ABOVE, *BELOW), Edit(*ABOVE), Edit(*BELOW)],
        "RMS-EPS-OUTSIDE": [Edit("np.sqrt(squares + eps)", "(np.sqrt(squares) + eps)")],
        "RMS-NO-ROOT": [Edit("np.sqrt", "")],
        "RMS-SUM": [Edit(".mean(", ".sum(")],
        "RMS-AXIS": layer_norm.OTHER_AXES[:3],
        "RMS-GLOBAL": layer_norm.OTHER_AXES[3:],
        "RMS-NO-GAMMA": [Edit("gamma * ", "")],
    })


NORM_BACK = tuple((dy, x, gamma, eps) for dy, x, gamma, _, eps in layer_norm.calls(True))

rms_norm_back = function_exercise("rms_norm.backward",
    ("dx", "dgamma"), NORM_BACK, draw=draw_norm_back,
    axes="dy: batch positions d_model; x: batch positions d_model; gamma: d_model; "
        "dx: batch positions d_model; dgamma: d_model",
    neutral={"gamma": 1.0, "eps": 1e-12},
    solution="""
def rms_norm_backward(dy, x, gamma, eps):
    rms = np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)
    x_hat, dx_hat = x / rms, dy * gamma
    along = x_hat * (dx_hat * x_hat).mean(axis=-1, keepdims=True)
    return (dx_hat - along) / rms, (dy * x_hat).sum(axis=(0, 1))
""",
    mistakes={
        "RMS-DX-DIRECT": [Edit(" - along", "")],
        "RMS-DX-MEAN": [Edit(" - along", " - along - dx_hat.mean(axis=-1, keepdims=True)")],
        "RMS-DX-GAMMA-OUTSIDE": [Edit("dy * gamma", "dy", "(dx_hat - along)", "gamma * (dx_hat - along)")],
        "RMS-DGAMMA-OF-X": [Edit("dy * x_hat", "dy * x")],
        "RMS-DGAMMA-SHAPE": [Edit(layer_norm.SUM, left) for left in layer_norm.UNSUMMED],
        "RMS-MEAN-TAKEN": [
            Edit(*BELOW), Edit(*BELOW, "x / rms", "(x - x.mean(axis=-1, keepdims=True)) / rms"),
        ],
    })

# --- the gated feed-forward network ------------------------------------------------------------------


SILU = "z / (1 + np.exp(-z))"
GATED = f"""
def silu(z):
    return {SILU}

def gated_ffn(x, W_gate, W_up, W_down):
    gate, up = x @ W_gate, x @ W_up
    hidden = silu(gate) * up
    return hidden @ W_down
"""

GATE_CALLS = tuple(
    (normal(B, T, d), normal(d, f), normal(d, f, seed=1), normal(f, d, seed=2))
    for B, T, d, f in ((2, 3, 4, 5), (4, 2, 3, 3))
)

gate = function_exercise("gate.forward", ("y",), GATE_CALLS,
    axes="x: batch positions d_model; W_gate: d_model d_ff; W_up: d_model d_ff; W_down: d_ff d_model; "
        "y: batch positions d_model",
    landmarks={
        "silu_of_output": "silu(hidden @ W_down)",
        "softmax_gate": Edit(
            SILU, "np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)"
        ),
    },
    solution=GATED,
    mistakes={
        "GATE-EXCHANGED": [Edit("silu(gate) * up", "gate * silu(up)")],
        "GATE-SIGMOID": [Edit(SILU, "1 / (1 + np.exp(-z))")],
        "GATE-OTHER-BEND": [
            Edit(SILU, "np.maximum(z, 0)"),
            Edit(SILU, "z * (1 + np.vectorize(math.erf)(z / 2**0.5)) / 2"),
            Edit(SILU, "z * (1 + np.tanh((2 / np.pi) ** 0.5 * (z + 0.044715 * z**3))) / 2"),
            Edit(SILU, "np.tanh(z)"),
        ],
        "GATE-NO-BEND": [Edit("silu(gate)", "gate")],
        "GATE-BOTH-BENT": [Edit("* up", "* silu(up)")],
        "GATE-BENT-AFTER": [Edit("silu(gate) * up", "silu(gate * up)")],
        "GATE-ADDED": [Edit("* up", "+ up")],
    },
    ours="gated_ffn_forward")


SLOPE = "(sigmoid + gate * (1 - sigmoid))"

gate_back = function_exercise("gate.backward", ("dx", "dW_gate", "dW_up", "dW_down"),
    tuple((normal(*given[0].shape, seed=3), *given) for given in GATE_CALLS),
    axes="dy: batch positions d_model; x: batch positions d_model; W_gate: d_model d_ff; W_up: d_model d_ff; "
        "W_down: d_ff d_model; dx: batch positions d_model; dW_gate: d_model d_ff; dW_up: d_model d_ff; "
        "dW_down: d_ff d_model",
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
        "GATE-ONE-WAY": [Edit(" + dup @ W_up.T", ""), Edit("dz @ W_gate.T + ", "")],
        "GATE-OWN-FACTOR": [
            Edit("dhidden * up", "dhidden * gate", "dup = dhidden * gate", "dup = dhidden * up")
        ],
        "GATE-HALF-SLOPE": [Edit(SLOPE, "sigmoid"), Edit(SLOPE, "gate * (1 - sigmoid)")],
        "GATE-SIGMOID-SLOPE": [Edit(SLOPE, "sigmoid * (1 - sigmoid)")],
        "GATE-FOR-HIDDEN": [Edit("gate * up, dy", "gate, dy"), Edit("gate * up, dy", "up, dy")],
    },
    ours="gated_ffn_backward")


@number_exercise("modern.gate_width")
def gate_width(draw: Draw) -> PosedQuestion:
    """Ask for the d_ff that gives a gated FFN as many weights as a plain FFN with d_ff = 4 d_model."""
    d = 192 * draw.integer(4, 1, 20)
    return PosedQuestion({"d": d, "f": 4 * d}, 8 * d // 3, {
        "CF-PLAIN-WIDTH": 4 * d,
        "CF-HALF-WIDTH": 2 * d,
        "CF-A-THIRD": 4 * d // 3,
        "CF-WIDER": 6 * d,
        "CF-COUNT-OF-WEIGHTS": 8 * d * d,
    })

# --- RoPE in attention -------------------------------------------------------------------------------


def by_distance(trial: Trial) -> Finding | None:
    """Find out whether the attention weights depend on the distance between two tokens only.

    The detector makes one call for each pair of columns. In this call, all tokens are equal and only this
    pair is nonzero. v is the identity matrix, so the output equals the attention weights.
    """
    T, d = 8, trial.calls[0][0].shape[1]
    tokens = [np.tile(row, (T, 1)) for row in np.eye(d)[::2]]
    shown = [trial.both((token, token, np.eye(T))) for token in tokens]
    if not all(pair and pair[0].shape == (T, T) and (pair[0] > 0).all() for pair in shown):
        return None
    mine, due = np.moveaxis(np.diff(np.log([pair for pair in shown if pair])), 1, 0)
    if not are_close(mine[:, 1:, 1:], mine[:, :-1, :-1]):
        return make_finding("weight_depends_on_more")
    if not are_close(mine[:, 1, 0], -mine[:, 1, 1]):
        return make_finding("weights_asymmetric")
    if all(map(find_ratio, mine, due)) or are_close(mine, 0 * mine):
        return None
    return make_finding("weights_follow_other_angles")


ROPE_ATTENTION = f"""
{rope.forward.solution}
{attention.forward.solution}
def rope_attention(q, k, v):
    return attention(rope(q), rope(k), v)
"""

def draw_rope_attention(draws: Draws) -> Arguments:
    """Return random q, k and v of the same shape, with an even number of columns."""
    shape = draws.size(low=3), draws.size(low=4, high=12, multiple_of=2)
    return draws.normal(*shape), draws.normal(*shape), draws.normal(*shape)


rope_attention = function_exercise("rope.attention",
    ("y",), tuple(tuple(normal(T, d, seed=n) for n in range(3)) for T, d in ((5, 6), (3, 8), (4, 4), (1, 2))),
    draw=draw_rope_attention, axes="q: T d; k: T d; v: T d; y: T d", views=attention.VIEWS,
    landmarks={
        "attention_without_positions": "attention(q, k, v)",
        "rotated_attention": "rope(attention(q, k, v))",
    },
    solution=ROPE_ATTENTION,
    mistakes={
        "ROPE-ON-VALUES": [Edit("rope(k), v", "rope(k), rope(v)")],
        "ROPE-ONE-SIDE": [Edit("rope(k)", "k"), Edit("rope(q)", "q")],
        **rope.forward.edits("ROPE-SIGN", "ROPE-HALVES", "ROPE-EXP-NO-2", "ROPE-EXP-DOUBLED"),
        **attention.forward.edits("AT-NO-SCALE", "AT-SCALE-DK", "SM-AXIS", "SM-GLOBAL-SUM"),
    },
    detectors=(by_distance,))

# --- grouped-query attention -------------------------------------------------------------------------


def key_heads(trial: Trial) -> Finding | None:
    """Find out which KV head each query head uses.

    In the call of this detector, all query heads are equal and v is the identity matrix.
    """
    q, k, v = trial.calls[0]
    pair = trial.both(attention.weights(q[:1].repeat(len(q), axis=0), k, v))
    if pair is None or pair[0].shape != pair[1].shape:
        return None
    mine, due = pair
    heads = [[g for g, right in enumerate(due[::len(q) // len(k)]) if are_close(w, right)] for w in mine]
    if len(heads) < len(q) or not all(heads) or all(i * len(k) // len(q) in g for i, g in enumerate(heads)):
        return None
    return make_finding("key_heads_used", last=len(q) - 1, heads=[g[0] for g in heads])


def for_either(spread: str) -> list[Edit]:
    """Return three edits: they replace `np.repeat` by the expression `spread` for k, for v, or for both.

    In `spread`, the letter x stands for k or v.
    """
    pairs = ((f"np.repeat({x}, times, axis=0)", spread.replace("x", x)) for x in "kv")
    return edit_either_line(*(word for pair in pairs for word in pair))


def draw_grouped(draws: Draws) -> Arguments:
    """Return a random call in which two or three query heads share each KV head."""
    T_q, T_k, d_k, d_v = (draws.size() for _ in range(4))
    g, times = draws.size(high=10), int(draws.rng.integers(2, 4))
    return draws.normal(times * g, T_q, d_k), draws.normal(g, T_k, d_k), draws.normal(g, T_k, d_v)


grouped = function_exercise("attention.grouped", ("heads",),
    tuple(
        (normal(h, T_q, d_k), normal(g, T_k, d_k, seed=1), normal(g, T_k, d_v, seed=2))
        for h, g, T_q, T_k, d_k, d_v in ((6, 2, 3, 4, 5, 7), (4, 2, 5, 3, 2, 3), (2, 2, 3, 3, 3, 3))
    ),
    draw=draw_grouped,
    axes="q: n_heads T_q d_k; k: n_kv_heads T_k d_k; v: n_kv_heads T_k d_v; heads: n_heads T_q d_v",
    views=attention.VIEWS | {
        "equal_key_heads": View(
            lambda q, k, v: attention.weights(q, k[:1].repeat(len(k), axis=0), v),
            attention.without_last_column,
        ),
    },
    solution=f"""
{attention.forward.solution}
def grouped_attention(q, k, v):
    times = len(q) // len(k)
    return attention(q, np.repeat(k, times, axis=0), np.repeat(v, times, axis=0))
""",
    mistakes={
        "KV-TILED": for_either("np.concatenate([x] * times)"),
        "KV-FIRST-ONLY": for_either("x[[0] * len(q)]"),
        **attention.forward.edits("AT-NO-SCALE", "AT-SCALE-DK", "SM-AXIS"),
    },
    detectors=(key_heads,))


def draw_copies(draws: Draws) -> Arguments:
    """Return a random gradient of the repeated KV heads, and the number of KV heads."""
    g, times = draws.size(high=5), int(draws.rng.integers(2, 4))
    return draws.normal(times * g, draws.size(), draws.size()), g


grouped_back = function_exercise("grouped.backward", ("dx",), 
    ((normal(6, 4, 5), 2), (normal(8, 3, 2), 4), (normal(3, 3, 3), 3), (normal(4, 2, 3), 1)),
    draw=draw_copies, axes="dy: n_heads T d_k; n_kv_heads: n_kv_heads; dx: n_kv_heads T d_k",
    solution="""
def grouped_backward(dy, n_kv_heads):
    n_heads, T, d_k = dy.shape
    groups = dy.reshape(n_kv_heads, n_heads // n_kv_heads, T, d_k)
    return groups.sum(axis=1)
""",
    mistakes={
        "KV-GRAD-MEAN": [Edit(".sum(", ".mean(")],
        "KV-GRAD-ONE": [Edit("groups.sum(axis=1)", f"groups[:, {copy}]") for copy in (0, -1)],
        "KV-TILED": [
            Edit("reshape(n_kv_heads, n_heads // n_kv_heads", "reshape(-1, n_kv_heads", "axis=1", "axis=0")
        ],
        "KV-GRAD-COPIED": [Edit("sum(axis=1)", "sum(axis=1).repeat(n_heads // n_kv_heads, axis=0)")],
    },
    ours="sum_repeated_heads")


@number_exercise("modern.kept_bytes")
def kept_bytes(draw: Draw) -> PosedQuestion:
    """Ask for the bytes of KV cache per token in a model with grouped-query attention."""
    shared = 2 ** draw.integer(2, 1, 3)
    g, n = draw.integer(2, 2, 5), draw.integer(6, 3, 9)
    d_k = 2 ** draw.integer(6, 5, 7)
    right = 2 * n * g * d_k * 4
    return PosedQuestion({"n": n, "h": shared * g, "g": g, "d_k": d_k}, right, {
        "CF-ALL-HEADS-KEPT": right * shared,
        "CF-KEYS-ALONE": right // 2,
        "CF-ONE-BLOCK": right // n,
        "CF-NUMBERS-NOT-BYTES": right // 4,
        "CF-HEADS-NOT-COUNTED": right // g,
        "CF-EIGHT-BYTES": right * 2,
        "CF-BITS": right * 8,
    })

# --- the KV cache ------------------------------------------------------------------------------------


kept = function_exercise("mask.kept", ("mask",), ((3, 4), (2, 5), (4, 0), (5, 3), (4, 4), (1, 6)),
    draw=lambda draws: (draws.size(), draws.size()), axes="n: n; kept: kept; mask: n all",
    solution="""
def mask_of_new(n, kept):
    i, j = np.arange(n)[:, None], np.arange(kept + n)
    return j <= kept + i
""",
    mistakes={
        "KEPT-MASK-AHEAD": [Edit("<= kept + i", "<= kept + i + 1")],
        "KEPT-MASK-NOT-ITSELF": [Edit("<=", "<")],
        "KEPT-MASK-FROM-0": [Edit("<= kept + i", "<= i")],
        "KEPT-MASK-NEW-ONLY": [Edit("kept + ", "")],
    },
    ours="causal_mask")
