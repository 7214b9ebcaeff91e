"""A published chat model: four bits a number, and a block to port."""

from npformer.exercises.probe import Arguments, normal
from npformer.exercises.task import Edit, either
from npformer.exercises.topics.questions import coded

quantise = coded("quantise.groups", ("rounded",), ((normal(3, 8), 2), (normal(4, 6, seed=1) * 5, 3)),
    sizes="w: n group; bits: bits", unit="group",
    solution="""
def quantised(w, bits):
    m = w.min(axis=1, keepdims=True)
    d = (w.max(axis=1, keepdims=True) - m) / (2**bits - 1)
    q = np.rint((w - m) / d)
    return m + d * q
""",
    mistakes={
        "Q-STEPS": [Edit("(2**bits - 1)", "2**bits")],
        "Q-DOWN": [Edit("np.rint", "np.floor"), Edit("np.rint((w - m) / d)", "(w - m) // d")],
        "Q-ONE-GROUP": [Edit("min(axis=1, keepdims=True)", "min()", "max(axis=1, keepdims=True)", "max()")],
        "Q-NO-SMALLEST": [Edit("m + d", "d")],
    })

# --- a block to port -------------------------------------------------------------------------------------


def weights(T: int, d: int, f: int) -> Arguments:
    """x and the arrays of one block as in a file, in the order of the arguments; the second norm's last."""
    shapes = [(T, d), (d, d), (d // 2, d), (d // 2, d), (d, d), (d,), (f, d), (f, d), (d, f), (d,)]
    return tuple(normal(*shape, seed=k) * (0.6 if k else 1) for k, shape in enumerate(shapes))


block = coded("port.block", ("y",),
    (weights(5, 16, 10), weights(3, 8, 6)), sizes="x: T d_model", unit="token",
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
        "PORT-NO-MASK": [Edit("np.where(np.tri(T, dtype=bool), scores, -np.inf)", "scores")],
        "PORT-POST-NORM": [Edit("x + attend(norm(x, gamma_1))", "norm(x + attend(x), gamma_1)",
            "h + feed(norm(h, gamma_2))", "norm(h + feed(h), gamma_2)")],
        "AT-NO-SCALE": [Edit(" / math.sqrt(d_k)", "")],
        "ROPE-SIGN": [
            Edit("- b * np.sin(angle)", "+ b * np.sin(angle)", "a * np.sin(angle) +", "-a * np.sin(angle) +")
        ],
        "BLOCK-NO-RESIDUAL": either("x + attend", "attend", "h + feed", "feed"),
    })
