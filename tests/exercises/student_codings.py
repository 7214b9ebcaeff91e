"""Functions as students might write them: each known mistake, and right answers in many forms.

Written for the tests, apart from the checker's own library: loops where that has arrays, arrays where
that has loops. A mistake that was met four times or more is coded in at least three ways.
"""

import math

import numpy as np

MISTAKES = []  # (exercise, code, function)
ACCEPTED = []  # (exercise, name, function)


def wrong(exercise, code):
    def keep(f):
        MISTAKES.append((exercise, code, f))
        return f

    return keep


def right(exercise):
    def keep(f):
        ACCEPTED.append((exercise, f.__name__, f))
        return f

    return keep


# --- the position table ---------------------------------------------------------------------------


def cells(f):
    """A table from a function of (position, column, d_model), cell by cell."""

    def table(n, d_model):
        return np.array([[f(p, j, d_model) for j in range(d_model)] for p in range(n)])

    return table


def pairs(sine, cosine):
    """A table filled with two slices; each function gives all pairs' angles from (positions, i, d_model)."""

    def table(n, d_model):
        p, i = np.arange(n)[:, None], np.arange(0, d_model, 2)[None, :]
        pe = np.zeros((n, d_model))
        pe[:, 0::2] = np.sin(sine(p, i, d_model))
        pe[:, 1::2] = np.cos(cosine(p, i, d_model))[:, : d_model // 2]
        return pe

    return table


def torch_style(exponent):
    def table(n, d_model):
        pe = np.zeros((n, d_model))
        div = np.exp(exponent(np.arange(0, d_model, 2), d_model))
        pe[:, 0::2] = np.sin(np.arange(n)[:, None] * div)
        pe[:, 1::2] = np.cos(np.arange(n)[:, None] * div)
        return pe

    return table


LOG = math.log(10000.0)


def add(code, *functions):
    for f in functions:
        wrong("pe.table", code)(f)


def wave(p, j, angle):
    return math.sin(angle) if j % 2 == 0 else math.cos(angle)


@wrong("pe.table", "PE-EXP-COLUMN")
def column_as_pair(n, d_model):
    angle_rates = 1 / np.power(10000, (2 * np.arange(d_model)[None, :]) / np.float32(d_model))
    angles = np.arange(n)[:, None] * angle_rates
    angles[:, 0::2] = np.sin(angles[:, 0::2])
    angles[:, 1::2] = np.cos(angles[:, 1::2])
    return angles


add(
    "PE-EXP-COLUMN",
    cells(lambda p, j, d: wave(p, j, p / 10000 ** (2 * j / d))),
    pairs(lambda p, i, d: p / 10000 ** (2 * i / d), lambda p, i, d: p / 10000 ** (2 * (i + 1) / d)),
)
add(
    "PE-EXP-DOUBLED",
    cells(lambda p, j, d: wave(p, j, p / 10000 ** (2 * (j - j % 2) / d))),
    pairs(*[lambda p, i, d: p / 10000 ** (2 * i / d)] * 2),
    torch_style(lambda i, d: -2 * i * LOG / d),
)
add(
    "PE-EXP-DOUBLED-COS",
    cells(lambda p, j, d: wave(p, j, p / 10000 ** ((2 * j if j % 2 == 0 else 2 * j - 1) / d))),
    pairs(lambda p, i, d: p / 10000 ** (2 * i / d), lambda p, i, d: p / 10000 ** ((2 * i + 1) / d)),
    pairs(lambda p, i, d: p * np.exp(-2 * i * LOG / d), lambda p, i, d: p * np.exp(-(2 * i + 1) * LOG / d)),
)
add(
    "PE-COS-OWN-INDEX",
    cells(lambda p, j, d: wave(p, j, p * 10000 ** (-j / d))),
    pairs(lambda p, i, d: p / 10000 ** (i / d), lambda p, i, d: p / 10000 ** ((i + 1) / d)),
    cells(lambda p, j, d: wave(p, j, p / 10000 ** ((2 * (j // 2) + j % 2) / d))),
)
add(
    "PE-EXP-NO-2",
    cells(lambda p, j, d: wave(p, j, p / 10000 ** (j // 2 / d))),
    pairs(*[lambda p, i, d: p / 10000 ** (i / 2 / d)] * 2),
    torch_style(lambda i, d: -(i // 2) * LOG / d),
)
add("PE-BASE-1E8", torch_style(lambda i, d: -i * math.log(1e8) / d))
add("PE-BASE-100", torch_style(lambda i, d: -i * math.log(100) / d))
add(
    "PE-BASE-1000",
    cells(lambda p, j, d: wave(p, j, p / 1000 ** ((j - j % 2) / d))),
    pairs(*[lambda p, i, d: p / 1000 ** (i / d)] * 2),
    torch_style(lambda i, d: -i * math.log(1000) / d),
)
add("PE-BASE-100000", torch_style(lambda i, d: -i * math.log(1e5) / d))
add("PE-EXP-SQRT-D", pairs(*[lambda p, i, d: p / 10000 ** (i / np.sqrt(d))] * 2))
add("PE-EXP-NO-D", pairs(*[lambda p, i, d: p / 10000.0**i] * 2))
add(
    "PE-EXP-SIGN",
    torch_style(lambda i, d: i * LOG / d),
    pairs(*[lambda p, i, d: p * 10000 ** (i / d)] * 2),
    cells(lambda p, j, d: wave(p, j, p * math.exp((j - j % 2) * LOG / d))),
)
add(
    "PE-SUM",
    cells(lambda p, j, d: math.sin(p / 1e4 ** ((j - j % 2) / d)) + math.cos(p / 1e4 ** ((j - j % 2) / d))),
    cells(lambda p, j, d: math.sin(p / 1e4 ** (j / d)) + math.cos(p / 1e4 ** (j / d))),
    lambda n, d: (lambda a: np.sin(a) + np.cos(a))(np.outer(np.arange(n), 1e4 ** (-2 * np.arange(d) / d))),
)
add(
    "PE-SWAPPED",
    cells(lambda p, j, d: wave(p, j + 1, p / 1e4 ** ((j - j % 2) / d))),
    lambda n, d: np.stack(
        [f(np.outer(np.arange(n), 1e4 ** (-np.arange(0, d, 2) / d))) for f in (np.cos, np.sin)], axis=-1
    ).reshape(n, -1)[:, :d],
    cells(lambda p, j, d: [math.cos, math.sin][j % 2](p * math.exp(-(j // 2) * 2 * LOG / d))),
)


@wrong("pe.table", "PE-COS-OVERWRITES")
def overwrites(n, d_model):
    pe = np.zeros((n, d_model))
    div = np.exp(np.arange(0, d_model, 2) * -(LOG / d_model))
    pe[:, 0::2] = np.sin(np.arange(n)[:, None] * div)
    pe[:, 0::2] = np.cos(np.arange(n)[:, None] * div)
    return pe


@wrong("pe.table", "PE-COS-OVERWRITES")
def overwrites_in_a_loop(n, d_model):
    pe = np.zeros((n, d_model))
    for p in range(n):
        for i in range(0, d_model, 2):
            pe[p, i] = math.sin(p / 10000 ** (i / d_model))
            pe[p, i] = math.cos(p / 10000 ** (i / d_model))
    return pe


add("PE-COS-OVERWRITES", cells(lambda p, j, d: 0.0 if j % 2 else math.cos(p / 1e4 ** (j / d))))
add("PE-SIN-ONLY", cells(lambda p, j, d: math.sin(p / 1e4 ** ((j - j % 2) / d))))
add("PE-SIN-ONLY", cells(lambda p, j, d: math.sin(p / 1e4 ** (2 * j / d))))


@wrong("pe.table", "PE-COS-OF-SIN")
def cosine_of_sine(n, d_model):
    pe = np.sin(np.outer(np.arange(n), 1e4 ** (-2 * (np.arange(d_model) // 2) / d_model)))
    pe[:, 1::2] = np.cos(pe[:, 1::2])
    return pe


@wrong("pe.table", "PE-ODD-EMPTY")
def odd_columns_forgotten(n, d_model):
    pe = np.zeros((n, d_model))
    for i in range((d_model + 1) // 2):
        pe[:, 2 * i] = np.sin(np.arange(n) / 10000 ** (2 * i / d_model))
    return pe


add("PE-POS-UNUSED", cells(lambda p, j, d: wave(p, j, 1 / 1e4 ** ((j - j % 2) / d))))
add("PE-POS-UNUSED", lambda n, d: np.tile(np.arange(d) % 2, (n, 1)))
add("PE-POS-ONE-BASED", cells(lambda p, j, d: wave(p, j, (p + 1) / 1e4 ** ((j - j % 2) / d))))
add("PE-TRANSPOSED", lambda n, d: cells(lambda p, j, d: wave(p, j, p / 1e4 ** ((j - j % 2) / d)))(n, d).T)
add("PE-DEGREES", cells(lambda p, j, d: wave(p, j, math.radians(p / 1e4 ** ((j - j % 2) / d)))))


def halves(exponent):
    def table(n, d_model):
        angles = np.arange(n)[:, None] * np.exp(-LOG * exponent((d_model + 1) // 2))[None, :]
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :d_model]

    return table


def tensor2tensor(n, d_model):
    half = d_model // 2
    rates = np.exp(np.arange(half) * -(LOG / (half - 1)))
    signal = np.hstack([np.sin(np.outer(np.arange(n), rates)), np.cos(np.outer(np.arange(n), rates))])
    return np.pad(signal, [[0, 0], [0, d_model % 2]])


add(
    "PE-HALVES",
    halves(lambda half: np.arange(half) / half),
    lambda n, d: (lambda t: np.hstack([t[:, 0::2], t[:, 1::2]]))(pairs(*[paper_angle] * 2)(n, d)),
    cells(
        lambda p, j, d: (
            math.sin(p / 1e4 ** (2 * j / d))
            if j < d / 2
            else math.cos(p / 1e4 ** (2 * (j - (d + 1) // 2) / d))
        )
    ),
)
add(
    "PE-HALVES-ENDPOINT",
    tensor2tensor,
    halves(lambda half: np.linspace(0, 1, half)),
    halves(lambda half: np.arange(half) / (half - 1)),
)


def paper_angle(p, i, d):
    return p / 10000 ** (i / d)


@wrong("pe.table", "PE-ROW0-ZERO")
def padding_row(n, d_model):
    pe = np.array([[p / np.power(10000, 2 * (j // 2) / d_model) for j in range(d_model)] for p in range(n)])
    pe[1:, 0::2] = np.sin(pe[1:, 0::2])
    pe[1:, 1::2] = np.cos(pe[1:, 1::2])
    return pe


add(
    "PE-ROW0-ZERO",
    cells(lambda p, j, d: 0.0 if p == 0 else wave(p, j, p / 1e4 ** ((j - j % 2) / d))),
    lambda n, d: (lambda t: np.concatenate([np.zeros((1, d)), t[1:]]))(pairs(*[paper_angle] * 2)(n, d)),
)
add("PE-ODD-D", torch_style(lambda i, d: -i * LOG / d))


@wrong("pe.table", "PE-ODD-D")
def assert_even(n, d_model):
    assert d_model % 2 == 0
    return pairs(paper_angle, paper_angle)(n, d_model)


@wrong("pe.table", "PE-ODD-D")
def stacked(n, d_model):
    a = np.outer(np.arange(n), 1e4 ** (-np.arange(0, d_model, 2) / d_model))
    return np.stack([np.sin(a), np.cos(a)], axis=2).reshape(n, -1)


def narrow(dtype):
    def table(n, d_model):
        j = np.arange(d_model)
        speed = (1 / 10000 ** (2 * (j // 2) / d_model)).astype(dtype)
        angles = np.arange(n, dtype=dtype)[:, None] * speed
        return np.where(j % 2 == 0, np.sin(angles), np.cos(angles))

    return table


def narrow_exp(dtype):
    def table(n, d_model):
        speed = np.exp(np.arange(0, d_model, 2, dtype=dtype) * dtype(-LOG / d_model))
        angles = np.arange(n).astype(dtype)[:, None] * speed
        both = np.stack([np.sin(angles), np.cos(angles)], axis=-1)
        return both.reshape(n, -1)[:, :d_model]

    return table


def narrow_divided(dtype):
    def table(n, d_model):
        pe = np.zeros((n, d_model), dtype)
        p = np.arange(n, dtype=dtype)
        for j in range(d_model):
            angle = p / dtype(10000 ** ((j - j % 2) / d_model))
            pe[:, j] = np.cos(angle) if j % 2 else np.sin(angle)
        return pe

    return table


add("PE-FLOAT32-ANGLES", narrow(np.float32), narrow_exp(np.float32), narrow_divided(np.float32))
add("PE-FLOAT16", narrow(np.float16), narrow_exp(np.float16), narrow_divided(np.float16))


right("pe.table")(pairs(paper_angle, paper_angle))
right("pe.table")(cells(lambda p, j, d: wave(p, j, p / 10000 ** ((j - j % 2) / d))))


@right("pe.table")
def by_rotation(n, d_model):
    turn = np.exp(1j * 10000.0 ** (-np.arange(0, d_model, 2) / d_model))
    hands = turn[None, :] ** np.arange(n)[:, None]
    return np.stack([hands.imag, hands.real], axis=-1).reshape(n, -1)[:, :d_model]


@right("pe.table")
def exp_log_float32_result(n, d_model):
    return cells(lambda p, j, d: wave(p, j, p * math.exp(-(j // 2) * 2 * LOG / d)))(n, d_model).astype("f4")


# --- feed-forward ---------------------------------------------------------------------------------


def relu(z):
    return np.where(z > 0, z, 0)


@wrong("ffn.forward", "FFN-NO-RELU")
def no_relu(x, W_1, b_1, W_2, b_2):
    return np.einsum("btf,fd->btd", np.einsum("btd,df->btf", x, W_1) + b_1, W_2) + b_2


@wrong("ffn.forward", "FFN-RELU-BEFORE-BIAS")
def relu_first(x, W_1, b_1, W_2, b_2):
    return (relu(x @ W_1) + b_1) @ W_2 + b_2


@wrong("ffn.forward", "FFN-RELU-TWICE")
def relu_again(x, W_1, b_1, W_2, b_2):
    return relu(relu(x @ W_1 + b_1) @ W_2 + b_2)


@wrong("ffn.forward", "FFN-RELU-LAST")
def relu_at_the_end_alone(x, W_1, b_1, W_2, b_2):
    return relu(np.einsum("btf,fd->btd", np.einsum("btd,df->btf", x, W_1) + b_1, W_2) + b_2)


@wrong("ffn.forward", "FFN-NO-B1")
def no_b_1(x, W_1, b_1, W_2, b_2):
    return np.dot(relu(np.dot(x, W_1)), W_2) + b_2


@wrong("ffn.forward", "FFN-NO-B2")
def no_b_2(x, W_1, b_1, W_2, b_2):
    return relu(x @ W_1 + b_1) @ W_2


@wrong("ffn.forward", "MUTATES-INPUT")
def doubles_up(x, W_1, b_1, W_2, b_2):
    y = relu(x @ W_1 + b_1) @ W_2 + b_2
    x[x <= 0] = 0
    return y


@right("ffn.forward")
def in_columns(x, W_1, b_1, W_2, b_2):
    columns = x.reshape(-1, x.shape[-1]).T
    hidden = np.maximum(W_1.T @ columns + b_1[:, None], 0)
    return (W_2.T @ hidden + b_2[:, None]).T.reshape(x.shape)


@right("ffn.forward")
def token_by_token(x, W_1, b_1, W_2, b_2):
    y = np.empty_like(x)
    for b in range(len(x)):
        for t in range(x.shape[1]):
            y[b, t] = sum(max(0.0, x[b, t] @ W_1[:, k] + b_1[k]) * W_2[k] for k in range(len(b_1))) + b_2
    return y


@right("ffn.forward")
def in_float32(x, *params):
    W_1, b_1, W_2, b_2 = (p.astype(np.float32) for p in params)
    return relu(x.astype(np.float32) @ W_1 + b_1) @ W_2 + b_2


def backward(
    dz=lambda dh, z: np.where(z > 0, dh, 0),
    db=lambda g: g.sum(axis=(0, 1)),
    dw=lambda a, g: np.einsum("bti,btj->ij", a, g),
    turned=lambda g, W: g @ W.T,
    finish=lambda x, grads: grads,
    hidden=relu,
    dtype=float,
):
    """The backward pass with one part put in by hand."""

    def f(dy, x, W_1, b_1, W_2, b_2):
        dy, x, W_1, b_1, W_2, b_2 = (np.array(a, dtype) for a in (dy, x, W_1, b_1, W_2, b_2))
        z = np.einsum("btd,df->btf", x, W_1) + b_1
        dh = turned(dy, W_2)
        d = dz(dh, z)
        return finish(x, (turned(d, W_1), dw(x, d), db(d), dw(hidden(z), dy), db(dy)))

    return f


def scaled(*which):
    def finish(x, grads):
        n = len(x) * x.shape[1]
        return [
            g / n if name in which else g for name, g in zip("x W_1 b_1 W_2 b_2".split(), grads, strict=True)
        ]

    return finish


def averaged_over_the_batch(x, grads):
    return [grads[0], *(g / len(x) for g in grads[1:])]


@wrong("ffn.backward", "FFN-DB-SCALAR")
def one_number_of_two(dy, x, W_1, b_1, W_2, b_2):
    h = relu(x @ W_1 + b_1)
    dz = (dy @ W_2.T) * (h > 0)
    flat = lambda a: a.reshape(-1, a.shape[-1])  # noqa: E731
    return dz @ W_1.T, flat(x).T @ flat(dz), np.sum(dz), flat(h).T @ flat(dy), flat(dy).sum(0)


@wrong("ffn.backward", "FFN-DB-MEAN")
def mean_in_a_loop(dy, x, W_1, b_1, W_2, b_2):
    dx, dW_1, db_1, dW_2, db_2 = backward()(dy, x, W_1, b_1, W_2, b_2)
    db_2 = np.zeros_like(b_2)
    for row in dy.reshape(-1, len(b_2)):
        db_2 += row / (len(x) * x.shape[1])
    return dx, dW_1, db_1, dW_2, db_2


for code, *functions in [
    ("FFN-DB-SCALAR", backward(db=np.sum), backward(db=lambda g: g.sum())),
    ("FFN-DB-BATCH-ONLY", backward(db=lambda g: np.sum(g, axis=0))),
    ("FFN-DB-UNSUMMED", backward(db=lambda g: g), backward(db=lambda g: 1.0 * g)),
    (
        "FFN-DB-MEAN",
        backward(db=lambda g: g.mean(axis=(0, 1))),
        backward(db=lambda g: g.sum((0, 1)) / len(g)),
    ),
    (
        "FFN-GRAD-MEAN",
        backward(finish=scaled("W_1", "b_1", "W_2", "b_2")),
        backward(finish=averaged_over_the_batch),
    ),
    ("FFN-GRAD-MEAN", backward(finish=scaled("x", "W_1", "b_1", "W_2", "b_2"))),
    ("FFN-DW-UNSUMMED", backward(dw=lambda a, g: np.einsum("bti,btj->bij", a, g))),
    ("FFN-W-UNTRANSPOSED", backward(turned=lambda g, W: np.dot(g, W))),
    ("FFN-NO-MASK", backward(dz=lambda dh, z: dh)),
    ("FFN-MASK-UPSTREAM", backward(dz=lambda dh, z: np.maximum(dh, 0))),
    ("FFN-MASK-TIMES-A", backward(dz=lambda dh, z: dh * relu(z))),
    ("FFN-DW2-PREACT", backward(hidden=lambda z: z)),
    ("FFN-RELU-AT-0", backward(dz=lambda dh, z: np.where(z < 0, 0, dh))),
]:
    for f in functions:
        wrong("ffn.backward", code)(f)


@wrong("ffn.backward", "FFN-DB-UNSUMMED")
def second_bias_left_alone(dy, x, W_1, b_1, W_2, b_2):
    dx, dW_1, db_1, dW_2, _ = backward()(dy, x, W_1, b_1, W_2, b_2)
    return dx, dW_1, db_1, dW_2, dy


@wrong("ffn.backward", "FFN-DB1-DHIDDEN")
def bias_above_the_relu(dy, x, W_1, b_1, W_2, b_2):
    dx, dW_1, _, dW_2, db_2 = backward()(dy, x, W_1, b_1, W_2, b_2)
    return dx, dW_1, (dy @ W_2.T).sum(axis=0).sum(axis=0), dW_2, db_2


for spoil in (lambda a: a.__setitem__(a < 0, 0), lambda a: a.__imul__(2), lambda a: a.fill(1)):

    @wrong("ffn.backward", "MUTATES-INPUT")
    def spoils_dy(dy, x, W_1, b_1, W_2, b_2, spoil=spoil):
        grads = backward()(dy, x, W_1, b_1, W_2, b_2)
        spoil(dy)
        return grads


right("ffn.backward")(backward())
right("ffn.backward")(backward(dtype=np.float32))


@right("ffn.backward")
def mask_from_hidden(dy, x, W_1, b_1, W_2, b_2):
    h = np.maximum(0, x @ W_1 + b_1)
    dz = dy @ W_2.T
    dz[h == 0] = 0
    return [
        dz @ W_1.T,
        np.tensordot(x, dz, ((0, 1), (0, 1))),
        dz.sum((0, 1)),
        np.tensordot(h, dy, ((0, 1), (0, 1))),
        dy.sum((0, 1)),
    ]


@right("ffn.backward")
def column_convention(dy, x, W_1, b_1, W_2, b_2):
    X, D = x.reshape(-1, x.shape[-1]).T, dy.reshape(-1, x.shape[-1]).T
    Z = W_1.T @ X + b_1[:, None]
    dZ = (W_2 @ D) * (Z > 0)
    return (W_1 @ dZ).T.reshape(x.shape), (dZ @ X.T).T, dZ.sum(1), (D @ np.maximum(Z, 0).T).T, D.sum(1)


# --- layer norm -----------------------------------------------------------------------------------


def norm(std, axis=-1, g=1, b=1):
    def f(x, gamma, beta, eps):
        mean = np.mean(x, axis=axis, keepdims=True)
        scale = gamma if g else np.ones_like(gamma)
        return scale * (x - mean) / std(x, eps, axis) + (beta if b else 0)

    return f


def paper_std(x, eps, axis):
    return np.sqrt(np.var(x, axis=axis, keepdims=True) + eps)


def in_rows(std):
    """One token after another, with Python's own arithmetic."""

    def f(x, gamma, beta, eps):
        y = np.zeros_like(x)
        for place in np.ndindex(x.shape[:-1]):
            row = list(x[place])
            mean = sum(row) / len(row)
            squares = sum((v - mean) ** 2 for v in row)
            y[place] = [(v - mean) / std(squares, len(row), eps) for v in row]
        return y * gamma + beta

    return f


for code, *functions in [
    ("LN-DDOF", norm(lambda x, e, a: np.sqrt(x.var(a, ddof=1, keepdims=True) + e))),
    ("LN-DDOF", norm(lambda x, e, a: np.sqrt(x.std(a, ddof=1, keepdims=True) ** 2 + e))),
    ("LN-DDOF", in_rows(lambda s, d, e: math.sqrt(s / (d - 1) + e))),
    ("LN-EPS-OUTSIDE", norm(lambda x, e, a: x.std(a, keepdims=True) + e)),
    ("LN-EPS-OUTSIDE", norm(lambda x, e, a: np.sqrt(x.var(a, keepdims=True)) + e)),
    ("LN-EPS-OUTSIDE", in_rows(lambda s, d, e: math.sqrt(s / d) + e)),
    ("LN-DDOF-EPS", norm(lambda x, e, a: x.std(a, ddof=1, keepdims=True) + e)),
    ("LN-DDOF-EPS", norm(lambda x, e, a: np.sqrt(x.var(a, ddof=1, keepdims=True)) + e)),
    ("LN-DDOF-EPS", in_rows(lambda s, d, e: math.sqrt(s / (d - 1)) + e)),
    (
        "LN-AXIS",
        norm(paper_std, axis=1),
        norm(paper_std, axis=0),
        norm(paper_std, axis=(1, 2)),
        norm(paper_std, axis=None),
    ),
    ("LN-NO-GAMMA", norm(paper_std, g=0)),
    ("LN-NO-BETA", norm(paper_std, b=0)),
    ("LN-VAR-NOT-STD", norm(lambda x, e, a: x.var(a, keepdims=True) + e)),
]:
    for f in functions:
        wrong("layer_norm.forward", code)(f)

right("layer_norm.forward")(norm(paper_std))
right("layer_norm.forward")(in_rows(lambda s, d, e: math.sqrt(s / d + e)))


@right("layer_norm.forward")
def norm_in_float32(x, gamma, beta, eps):
    return norm(paper_std)(*(a.astype(np.float32) for a in (x, gamma, beta)), np.float32(eps))


@wrong("layer_norm.forward", "MUTATES-INPUT")
def norm_in_place(x, gamma, beta, eps):
    std = paper_std(x, eps, -1)
    x -= x.mean(-1, keepdims=True)
    return x / std * gamma + beta


def norm_backward(dx, dgamma=lambda t: t.sum((0, 1)), dbeta=lambda t: t.sum((0, 1))):
    def f(dy, x, gamma, beta, eps):
        s = np.sqrt(x.var(-1, keepdims=True) + eps)
        xh = (x - x.mean(-1, keepdims=True)) / s
        return dx(dy, xh, s, gamma), dgamma(dy * xh), dbeta(dy)

    return f


def mean(a):
    return a.mean(-1, keepdims=True)


def paper_dx(dy, xh, s, gamma):
    d = xh.shape[-1]
    g = dy * gamma
    return (d * g - g.sum(-1, keepdims=True) - xh * (g * xh).sum(-1, keepdims=True)) / (d * s)


for code, f in [
    ("LN-DX-DIRECT", norm_backward(lambda dy, xh, s, g: dy * g / s)),
    ("LN-DX-GAMMA-OUTSIDE", norm_backward(lambda dy, xh, s, g: g / s * (dy - mean(dy) - xh * mean(dy * xh)))),
    ("LN-DX-NO-MEAN", norm_backward(lambda dy, xh, s, g: (dy * g - xh * mean(dy * g * xh)) / s)),
    ("LN-DX-NO-VAR", norm_backward(lambda dy, xh, s, g: (dy * g - mean(dy * g)) / s)),
    ("LN-NO-GAMMA", norm_backward(lambda dy, xh, s, g: (dy - mean(dy) - xh * mean(dy * xh)) / s)),
    ("LN-DGAMMA-SHAPE", norm_backward(paper_dx, lambda t: t, lambda t: t)),
    ("LN-DGAMMA-SHAPE", norm_backward(paper_dx, lambda t: np.sum(t, axis=0))),
]:
    wrong("layer_norm.backward", code)(f)

right("layer_norm.backward")(norm_backward(paper_dx))


@right("layer_norm.backward")
def through_the_jacobian(dy, x, gamma, beta, eps):
    d = x.shape[-1]
    dx = np.zeros_like(x)
    for place in np.ndindex(x.shape[:-1]):
        c = x[place] - x[place].mean()
        s = math.sqrt((c**2).mean() + eps)
        J = (np.eye(d) - 1 / d) / s - np.outer(c, c) / (d * s**3)
        dx[place] = J @ (dy[place] * gamma)
    x_hat = (x - mean(x)) / np.sqrt(x.var(-1, keepdims=True) + eps)
    return dx, np.einsum("btd,btd->d", dy, x_hat), np.einsum("btd->d", dy)


# --- softmax, attention, heads, embedding, loss, block --------------------------------------------


def stable(s, axis):
    e = np.exp(s - s.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


for code, *functions in [
    ("SM-AXIS", lambda s: stable(s, 0), lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum(axis=0)),
    ("SM-AXIS", lambda s: np.array([[e / sum(c) for e in c] for c in np.exp(s - s.max()).T]).T),
    ("SM-GLOBAL-SUM", lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum()),
    ("SM-OVERFLOW", lambda s: np.exp(s) / np.exp(s).sum(axis=1, keepdims=True)),
    ("SM-OVERFLOW", lambda s: (np.exp(s).T / np.sum(np.exp(s), axis=-1)).T),
    ("SM-OVERFLOW", lambda s: np.array([[math.exp(v) / sum(map(math.exp, row)) for v in row] for row in s])),
]:
    for f in functions:
        wrong("softmax.forward", code)(f)

right("softmax.forward")(lambda s: stable(s, -1))
right("softmax.forward")(lambda s: np.exp(s - np.logaddexp.reduce(s, axis=-1, keepdims=True)))
right("softmax.forward")(lambda s: stable(s.astype("f4"), 1))
right("softmax.forward")(lambda s: 1 / np.exp(s[..., None, :] - s[..., :, None]).sum(-1))

for code, f in [
    ("SM-JAC-DIAGONAL", lambda dp, p: dp * p * (1 - p)),
    ("SM-JAC-DIAGONAL", lambda dp, p: np.array([np.diag(r - r * r) @ d for d, r in zip(dp, p, strict=True)])),
    ("SM-JAC-DIAGONAL", lambda dp, p: np.multiply(dp, p) - dp * p**2),
    ("SM-AXIS", lambda dp, p: p * (dp - (dp * p).sum(0))),
    ("SM-AXIS", lambda dp, p: p * dp - p * np.einsum("ij,ij->j", dp, p)),
    ("SM-AXIS", lambda dp, p: np.array([q * (d - d @ q) for d, q in zip(dp.T, p.T, strict=True)]).T),
    ("SM-GLOBAL-SUM", lambda dp, p: p * (dp - np.sum(dp * p))),
]:
    wrong("softmax.backward", code)(f)

right("softmax.backward")(lambda dp, p: p * dp - p * np.einsum("ij,ij->i", dp, p)[:, None])
right("softmax.backward")(
    lambda dp, p: np.array([(np.diag(r) - np.outer(r, r)) @ d for d, r in zip(dp, p, strict=True)])
)


def attend(scale=lambda d: 1 / math.sqrt(d), hide=None, after=1, weigh=lambda w, mask: w, axis=-1):
    def f(q, k, v, mask=None):
        scores = np.einsum("id,jd->ij", q, k) * scale(q.shape[1])
        if mask is not None and hide is not None:
            scores = hide(scores, mask)
        weights = stable(scores, axis)
        weights = weights if mask is None else weigh(weights, mask)
        return weights @ v * (after if after == 1 else q.shape[1] ** -0.5)

    return f


def minus(scores, mask):
    return np.where(mask, scores, -1e30)


for code, *functions in [
    ("AT-NO-SCALE", attend(lambda d: 1, minus), attend(lambda d: 1, lambda s, m: s - 1e9 * ~m)),
    (
        "AT-NO-SCALE",
        lambda q, k, v, mask=None: stable(q @ k.T if mask is None else minus(q @ k.T, mask), 1) @ v,
    ),
    ("AT-SCALE-DK", attend(lambda d: 1 / d, minus), attend(lambda d: 1 / d, lambda s, m: s - 1e9 * ~m)),
    ("AT-SCALE-DK", lambda q, k, v, mask=None: attend(lambda d: 1, minus)(q / len(q[0]), k, v, mask)),
    ("AT-SCALE-MULTIPLIED", attend(math.sqrt, minus), attend(lambda d: d**0.5, lambda s, m: s - 1e9 * ~m)),
    ("AT-SCALE-MULTIPLIED", lambda q, k, v, mask=None: attend(hide=minus)(q * len(q[0]), k, v, mask)),
    ("AT-SCALE-AFTER", attend(lambda d: 1, minus, after=0)),
    (
        "AT-SCALE-AFTER",
        lambda q, k, v, mask=None: attend(lambda d: 1, minus)(q, k, v, mask) / q.shape[-1] ** 0.5,
    ),
    (
        "AT-SCALE-AFTER",
        lambda q, k, v, mask=None: attend(lambda d: 1, minus)(q, k, v / q.shape[-1] ** 0.5, mask),
    ),
    ("AT-MASK-AFTER", attend(weigh=lambda w, m: w * m)),
    ("AT-MASK-TIMES", attend(hide=lambda s, m: s * m)),
    ("AT-MASK-SIGN", attend(hide=lambda s, m: np.where(m, s, 1e9))),
    ("AT-MASK-SMALL", attend(hide=lambda s, m: np.where(m, s, -20))),
    ("AT-MASK-SMALL", attend(hide=lambda s, m: np.where(m, s, -1000))),
    ("AT-MASK-INVERTED", attend(hide=lambda s, m: np.where(m, -1e9, s))),
    ("AT-MASK-INVERTED", attend(hide=lambda s, m: np.where(m, -np.inf, s))),
    ("SM-AXIS", attend(hide=minus, axis=0)),
]:
    for f in functions:
        wrong("attention.forward", code)(f)

right("attention.forward")(attend(hide=minus))
right("attention.forward")(attend(hide=lambda s, m: np.where(m, s, -np.inf)))
right("attention.forward")(attend(weigh=lambda w, m: w * m / (w * m).sum(1, keepdims=True)))
right("attention.forward")(
    lambda q, k, v, mask=None: attend(hide=minus)(*(a.astype("f4") for a in (q, k, v)), mask)
)

for f in (
    lambda x, h: x.reshape(len(x), h, x.shape[1], -1),
    lambda x, h: np.reshape(x, (x.shape[0], h, x.shape[1], x.shape[2] // h)),
    lambda x, h: x.reshape(*x.shape[:2], h, -1),
):
    wrong("heads.split", "AT-HEADS-RESHAPE")(f)
right("heads.split")(lambda x, h: x.reshape(*x.shape[:2], h, -1).transpose(0, 2, 1, 3))
right("heads.split")(lambda x, h: np.stack(np.split(x, h, axis=-1), axis=1))

for f in (
    lambda x: x.reshape(len(x), x.shape[2], -1),
    lambda x: np.reshape(x, (x.shape[0], x.shape[2], x.shape[1] * x.shape[3])),
    lambda x: np.array([row.ravel().reshape(x.shape[2], -1) for row in x]),
):
    wrong("heads.merge", "AT-HEADS-RESHAPE")(f)
right("heads.merge")(lambda x: np.concatenate(list(x.swapaxes(0, 1)), axis=-1))

for f in (
    lambda ids, E: E[ids],
    lambda ids, E: np.take(E, ids, axis=0),
    lambda ids, E: np.eye(len(E))[ids] @ E,
):
    wrong("embedding.forward", "EMB-NO-SCALE")(f)
right("embedding.forward")(lambda ids, E: math.sqrt(E.shape[1]) * np.eye(len(E))[ids] @ E)


def logs(logits):
    return logits - np.log(np.exp(logits - logits.max(1)[:, None]).sum(1))[:, None] - logits.max(1)[:, None]


def nll(p, targets):
    return -np.mean(np.log(p[np.arange(len(p)), targets]))


for f in (
    lambda logits, targets: nll(stable(stable(logits, 1), 1), targets),
    lambda logits, targets: (
        -sum(math.log(stable(stable(r, 0), 0)[t]) for r, t in zip(logits, targets, strict=True))
        / len(targets)
    ),
    lambda logits, targets: (lambda p: np.mean(np.log(np.exp(p).sum(1)) - p[range(len(p)), targets]))(
        stable(logits, 1)
    ),
):
    wrong("cross_entropy.forward", "CE-DOUBLE-SOFTMAX")(f)
wrong("cross_entropy.forward", "CE-LOG-OF-0")(lambda logits, targets: nll(stable(logits, 1), targets))
right("cross_entropy.forward")(lambda logits, targets: -logs(logits)[range(len(targets)), targets].mean())
wrong("cross_entropy.forward", "CE-LOG-OF-0")(
    lambda logits, targets: float(nll(stable(logits.astype("f4"), 1), targets))
)


@wrong("block.forward", "BLOCK-PRE-FOR-POST")
def pre_norm(x, attend, norm_1, ffn, norm_2):
    x = x + attend(norm_1(x))
    return x + ffn(norm_2(x))


@wrong("block.forward", "BLOCK-PRE-FOR-POST")
def pre_norm_step_by_step(x, attend, norm_1, ffn, norm_2):
    for norm_of, layer in ((norm_1, attend), (norm_2, ffn)):
        x = layer(norm_of(x)) + x
    return x


@wrong("block.forward", "BLOCK-PRE-FOR-POST")
def pre_norm_summed(x, attend, norm_1, ffn, norm_2):
    a = attend(norm_1(x))
    return sum((x, a, ffn(norm_2(np.add(x, a)))))


@wrong("block.forward", "BLOCK-RESIDUAL-NORMED")
def residual_normed(x, attend, norm_1, ffn, norm_2):
    x = norm_1(x)
    x = x + attend(x)
    x = norm_2(x)
    return x + ffn(x)


@wrong("block.forward", "BLOCK-RESIDUAL-NORMED")
def residual_normed_step_by_step(x, attend, norm_1, ffn, norm_2):
    for norm_of, layer in ((norm_1, attend), (norm_2, ffn)):
        n = norm_of(x)
        x = n + layer(n)
    return x


@wrong("block.forward", "BLOCK-RESIDUAL-NORMED")
def residual_normed_inside_out(x, attend, norm_1, ffn, norm_2):
    h = norm_2((lambda n: np.add(attend(n), n))(norm_1(x)))
    return np.add(ffn(h), h)


@right("block.forward")
def post_norm(x, attend, norm_1, ffn, norm_2):
    for layer, norm_of in ((attend, norm_1), (ffn, norm_2)):
        x = norm_of(x + layer(x))
    return x


# --- the slips of strangers, after they were given names ---------------------------------------------

add(
    "PE-COS-NEXT-PAIR",
    pairs(lambda p, i, d: p / 10000 ** (i / d), lambda p, i, d: p / 10000 ** ((i + 2) / d)),
)
add(
    "PE-HALVES-COSINE",
    lambda n, d: np.roll(halves(n, d), d // 2, axis=1),
    lambda n, d: np.concatenate([halves(n, d)[:, d // 2 :], halves(n, d)[:, : d // 2]], axis=-1),
)


def halves(n, d):
    a = np.arange(n)[:, None] / 10000 ** (np.arange(d // 2) / (d / 2))
    return np.c_[np.sin(a), np.cos(a)]


def layered(act):
    return lambda x, W_1, b_1, W_2, b_2: act(x @ W_1 + b_1) @ W_2 + b_2


for code, act in {
    "FFN-STEP": lambda z: np.heaviside(z, 0),
    "FFN-GELU": lambda z: np.array([[[v * (1 + math.erf(v / 2**0.5)) / 2 for v in r] for r in s] for s in z]),
    "FFN-SIGMOID": lambda z: 0.5 + 0.5 * np.tanh(z / 2),
    "FFN-TANH": lambda z: 1 - 2 / (np.exp(2 * z) + 1),
    "FFN-LEAKY": lambda z: np.maximum(z, 0.01 * z),
    "FFN-ABS": lambda z: np.sqrt(z * z),
}.items():
    wrong("ffn.forward", code)(layered(act))

for code, f in [
    ("FFN-DB-ROW", backward(db=lambda g: g.sum(axis=(0, 1)).reshape(1, -1))),
    ("FFN-DW-TRANSPOSED", backward(dw=lambda a, g: np.einsum("bti,btj->ji", a, g))),
    ("FFN-MASK-TIMES-Z", backward(dz=lambda dh, z: z * dh)),
    ("FFN-MASK-INVERTED", backward(dz=lambda dh, z: np.where(z > 0, 0, dh))),
]:
    wrong("ffn.backward", code)(f)

wrong("layer_norm.forward", "LN-RMS")(lambda x, g, b, e: x / np.sqrt(mean(x * x) + e) * g + b)
wrong("layer_norm.forward", "LN-NO-MEAN")(lambda x, g, b, e: x / paper_std(x, e, -1) * g + b)

for code, f in [
    ("SM-TWICE", lambda s: stable(stable(s, -1), -1)),
    ("SM-GLOBAL-MAX", lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum(1, keepdims=True)),
]:
    wrong("softmax.forward", code)(f)

for code, f in [
    ("SM-JAC-PRODUCT", lambda dp, p: np.multiply(p, dp)),
    ("SM-JAC-NO-P", lambda dp, p: dp - np.einsum("ij,ij->i", dp, p)[:, None]),
    ("SM-GRAD-ROWS", lambda dp, p: (p * dp - p * np.einsum("ij,ij->i", dp, p)[:, None]) / dp.shape[0]),
]:
    wrong("softmax.backward", code)(f)

for code, f in [
    ("AT-MASK-IGNORED", attend()),
    ("AT-MASK-ADDED", attend(hide=lambda s, m: s + m.astype(float))),
    (
        "SM-GLOBAL-MAX",
        lambda q, k, v, mask=None: (lambda e: e / e.sum(1, keepdims=True) @ v)(
            (lambda s: np.exp(s - s.max()) * (1 if mask is None else mask))(q @ k.T / math.sqrt(q.shape[1]))
        ),
    ),
    (
        "SM-OVERFLOW",
        lambda q, k, v, mask=None: (lambda e: e / e.sum(1, keepdims=True) @ v)(
            np.exp(q @ k.T / math.sqrt(q.shape[1])) * (1 if mask is None else mask)
        ),
    ),
]:
    wrong("attention.forward", code)(f)

wrong("embedding.forward", "EMB-SCALE-D")(lambda ids, E: E.shape[1] * E[ids])
wrong("embedding.forward", "EMB-SCALE-DIVIDED")(
    lambda ids, E: np.take(E, ids, axis=0) / math.sqrt(E.shape[1])
)


def each_loss(logits, targets):
    return -np.log(stable(logits, 1)[np.arange(len(targets)), targets])


for code, f in [
    ("CE-SUM", lambda z, t: each_loss(z, t).sum()),
    ("CE-LOG-2", lambda z, t: -np.mean(np.log2(stable(z, 1)[np.arange(len(t)), t]))),
    ("CE-SIGN", lambda z, t: np.mean(np.log(stable(z, 1)[np.arange(len(t)), t]))),
    ("CE-DIVIDED-V", lambda z, t: each_loss(z, t).mean() / z.shape[1]),
    ("CE-UNREDUCED", each_loss),
    ("SM-OVERFLOW", lambda z, t: np.mean(np.log(np.exp(z).sum(1)) - z[range(len(t)), t])),
    (
        "SM-GLOBAL-MAX",
        lambda z, t: (lambda s: np.mean(np.log(np.exp(s).sum(1)) - s[range(len(t)), t]))(z - z.max()),
    ),
]:
    wrong("cross_entropy.forward", code)(f)

for code, f in [
    ("BLOCK-NO-RESIDUAL", lambda x, a, n1, f, n2: n2(f(n1(a(x))))),
    ("BLOCK-RESIDUAL-X", lambda x, a, n1, f, n2: n2(f(n1(a(x) + x)) + x)),
    ("BLOCK-NORMS-EXCHANGED", lambda x, a, n1, f, n2: (lambda h: n1(f(h) + h))(n2(a(x) + x))),
    ("BLOCK-ONE-NORM-TWICE", lambda x, a, n1, f, n2: (lambda h: n1(f(h) + h))(n1(a(x) + x))),
    ("BLOCK-NO-NORM", lambda x, a, n1, f, n2: (lambda h: f(h) + h)(a(x) + x)),
    ("BLOCK-NORM-INSIDE", lambda x, a, n1, f, n2: (lambda h: n2(f(h)) + h)(n1(a(x)) + x)),
]:
    wrong("block.forward", code)(f)

for code, f in [
    ("MASK-NOT-ITSELF", lambda T: np.tril(np.ones((T, T), bool), -1)),
    ("MASK-LOOKS-AHEAD", lambda T: np.tril(np.ones((T, T)), 1) == 1),
    ("MASK-UPPER", lambda T: np.triu(np.ones((T, T), bool), 1)),
]:
    wrong("mask.causal", code)(f)
right("mask.causal")(lambda T: np.tril(np.ones((T, T), bool)))
right("mask.causal")(lambda T: [[int(key <= query) for key in range(T)] for query in range(T)])


def turned(angle, first=0, pair=lambda i, d: (2 * i, 2 * i + 1)):
    """Pair by pair, by complex numbers."""

    def f(x):
        T, d = x.shape
        y = np.zeros((T, d))
        for p in range(T):
            for i in range(d // 2):
                a, b = pair(i, d)
                z = complex(x[p, a], x[p, b]) * np.exp(1j * (p + first) * angle(i, d))
                y[p, a], y[p, b] = z.real, z.imag
        return y

    return f


def slow(i, d):
    return 10000 ** (-2 * i / d)


for code, f in [
    ("ROPE-SIGN", turned(lambda i, d: -slow(i, d))),
    ("ROPE-HALVES", turned(slow, pair=lambda i, d: (i, i + d // 2))),
    ("ROPE-FROM-1", turned(slow, first=1)),
    ("ROPE-EXP-NO-2", turned(lambda i, d: 10000 ** (-i / d))),
    ("ROPE-EXP-DOUBLED", turned(lambda i, d: 10000 ** (-4 * i / d))),
]:
    wrong("rope.forward", code)(f)
right("rope.forward")(turned(slow))


def adam_like(b1=0.9, b2=0.98, c1=1, c2=1, square=lambda g: g**2, below=np.sqrt, sign=1, late=0):
    def f(w, g, m, v, t, lr):
        m = b1 * m + g * (1 - b1)
        v = b2 * v + square(g) * (1 - b2)
        m_hat = m / (1 - 0.9 ** (t + late)) ** c1
        v_hat = v / (1 - 0.98 ** (t + late)) ** c2
        return w - sign * lr * m_hat / (below(v_hat) + 1e-9), m, v

    return f


for code, f in [
    ("ADAM-NO-CORRECTION", adam_like(c1=0, c2=0)),
    ("ADAM-NO-ROOT", adam_like(below=lambda v: v)),
    ("ADAM-EPS-INSIDE", adam_like(below=lambda v: np.sqrt(v + 1e-9))),
    ("ADAM-UPHILL", adam_like(sign=-1)),
    ("ADAM-MIX-SWAPPED", adam_like(b1=1 - 0.9, b2=1 - 0.98)),
    ("ADAM-NO-SQUARE", adam_like(square=lambda g: g)),
    ("ADAM-STEP-OFF", adam_like(late=1)),
]:
    wrong("adam.step", code)(f)
right("adam.step")(adam_like())


def soft_targets(weights, gather=np.mean, log=logs):
    """Against a whole row of target weights."""

    def f(logits, targets, epsilon):
        q = weights(np.eye(logits.shape[1])[targets], epsilon, logits.shape[1])
        return gather(-(q * log(logits)).sum(1))

    return f


for code, f in [
    (
        "LS-LOG-OF-0",
        soft_targets(lambda one, e, V: (1 - e) * one + e / V, log=lambda z: np.log(stable(z, 1))),
    ),
    ("LS-IGNORED", soft_targets(lambda one, e, V: one)),
    ("LS-NOT-DIVIDED", soft_targets(lambda one, e, V: (1 - e) * one + e)),
    ("LS-OTHERS-ONLY", soft_targets(lambda one, e, V: (1 - e) * one + e * (1 - one) / (V - 1))),
    ("LS-TARGET-WHOLE", soft_targets(lambda one, e, V: one + e / V)),
    ("LS-NO-SPREAD", soft_targets(lambda one, e, V: (1 - e) * one)),
    ("CE-SUM", soft_targets(lambda one, e, V: (1 - e) * one + e / V, np.sum)),
    ("CE-SIGN", soft_targets(lambda one, e, V: (1 - e) * one + e / V, lambda rows: -rows.mean())),
]:
    wrong("loss.smoothed", code)(f)
right("loss.smoothed")(soft_targets(lambda one, e, V: (1 - e) * one + e / V))


# --- since 2017 -----------------------------------------------------------------------------------


def each_token(one):
    """A function of one token (d,), gamma and eps, for every token of x."""

    def f(x, gamma, eps):
        y = np.zeros(x.shape)
        for b in range(x.shape[0]):
            for t in range(x.shape[1]):
                y[b, t] = one(x[b, t], gamma, eps)
        return y

    return f


def length(x):
    return math.sqrt(sum(number**2 for number in x))


for code, f in [
    ("RMS-MEAN-TAKEN", each_token(lambda x, g, e: g * (x - x.mean()) / math.sqrt(x.var() + e))),
    ("RMS-MEAN-TAKEN", each_token(lambda x, g, e: g * (x - x.mean()) / math.sqrt(x @ x / len(x) + e))),
    ("RMS-MEAN-TAKEN", each_token(lambda x, g, e: g * x / math.sqrt(x.std() ** 2 + e))),
    ("RMS-EPS-OUTSIDE", each_token(lambda x, g, e: g * x / (length(x) / len(x) ** 0.5 + e))),
    ("RMS-NO-ROOT", each_token(lambda x, g, e: g * x / (x @ x / len(x) + e))),
    ("RMS-SUM", each_token(lambda x, g, e: g * x / math.sqrt(x @ x + e))),
    ("RMS-AXIS", lambda x, g, e: g * x / np.sqrt(np.mean(np.square(x), axis=1, keepdims=True) + e)),
    ("RMS-AXIS", lambda x, g, e: g * x / (np.einsum("btd,btd->td", x, x) / len(x) + e) ** 0.5),
    ("RMS-GLOBAL", lambda x, g, e: g * x / np.sqrt(np.mean(np.square(x)) + e)),
    ("RMS-GLOBAL", lambda x, g, e: np.stack([g * s / math.sqrt((s**2).mean() + e) for s in x])),
    ("RMS-GLOBAL", lambda x, g, e: g * x / np.sqrt(np.mean(x * x, axis=(0, 2), keepdims=True) + e)),
    ("RMS-NO-GAMMA", each_token(lambda x, g, e: x / math.sqrt(x @ x / len(x) + e))),
]:
    wrong("rms_norm.forward", code)(f)
right("rms_norm.forward")(each_token(lambda x, g, e: g * x / math.sqrt(x @ x / len(x) + e)))
right("rms_norm.forward")(
    lambda x, g, e: np.einsum("btd,d,bt->btd", x, g, (np.einsum("btd,btd->bt", x, x) / len(g) + e) ** -0.5)
)


def sigma(z):
    return 0.5 * (1 + np.tanh(z / 2))


def two_ways(meet):
    """Unit by unit: meet(z of the gate, z of the other way)."""

    def f(x, W_gate, W_up, W_down):
        y = np.zeros(x.shape)
        for unit in range(W_gate.shape[1]):
            y += meet(x @ W_gate[:, unit], x @ W_up[:, unit])[..., None] * W_down[unit]
        return y

    return f


for code, f in [
    ("GATE-EXCHANGED", two_ways(lambda g, u: g * u * sigma(u))),
    ("GATE-EXCHANGED", lambda x, g, u, d: ((x @ u) / (1 + np.exp(-(x @ u))) * (x @ g)) @ d),
    ("GATE-EXCHANGED", lambda x, g, u, d: np.einsum("...f,...f,fd", x @ u * sigma(x @ u), x @ g, d)),
    ("GATE-SIGMOID", two_ways(lambda g, u: sigma(g) * u)),
    ("GATE-OTHER-BEND", two_ways(lambda g, u: np.where(g > 0, g, 0) * u)),
    ("GATE-OTHER-BEND", two_ways(lambda g, u: (2 * sigma(2 * g) - 1) * u)),
    ("GATE-NO-BEND", two_ways(lambda g, u: g * u)),
    ("GATE-BOTH-BENT", two_ways(lambda g, u: g * sigma(g) * u * sigma(u))),
    ("GATE-BENT-AFTER", two_ways(lambda g, u: g * u * sigma(g * u))),
    ("GATE-ADDED", two_ways(lambda g, u: g * sigma(g) + u)),
]:
    wrong("gate.forward", code)(f)
right("gate.forward")(two_ways(lambda g, u: g * sigma(g) * u))


def by_head(key_head, value_head=None, scale=lambda d_k: d_k**-0.5):
    """Head by head: key_head(i, n_heads, n_kv_heads) is the key head of query head i."""

    def f(q, k, v):
        heads = []
        for i in range(len(q)):
            a, b = (choice(i, len(q), len(k)) for choice in (key_head, value_head or key_head))
            heads.append(stable(scale(q.shape[-1]) * q[i] @ k[a].T, -1) @ v[b])
        return np.array(heads)

    return f


def own(i, h, n_kv):
    return i // (h // n_kv)


for code, f in [
    ("KV-TILED", by_head(lambda i, h, n_kv: i % n_kv)),
    ("KV-TILED", by_head(lambda i, h, n_kv: i % n_kv, own)),
    ("KV-TILED", by_head(own, lambda i, h, n_kv: i % n_kv)),
    ("KV-FIRST-ONLY", by_head(lambda i, h, n_kv: 0)),
    ("AT-NO-SCALE", by_head(own, scale=lambda d_k: 1)),
    ("AT-SCALE-DK", by_head(own, scale=lambda d_k: 1 / d_k)),
]:
    wrong("attention.grouped", code)(f)
right("attention.grouped")(by_head(own))


@right("attention.grouped")
def groups_below_each_other(q, k, v):
    stacked = q.reshape(len(k), -1, q.shape[-1])
    return (stable(stacked @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1]), -1) @ v).reshape(*q.shape[:2], -1)


def meet_turned(q_turn, k_turn, v_turn=lambda x: x, scale=lambda d: d**-0.5):
    return lambda q, k, v: stable(scale(q.shape[1]) * q_turn(q) @ k_turn(k).T, -1) @ v_turn(v)


plain, rotated = (lambda x: x), turned(slow)
for code, f in [
    ("ROPE-ON-VALUES", meet_turned(rotated, rotated, rotated)),
    ("ROPE-ONE-SIDE", meet_turned(rotated, plain)),
    ("ROPE-ONE-SIDE", meet_turned(plain, rotated)),
    ("ROPE-SIGN", meet_turned(*[turned(lambda i, d: -slow(i, d))] * 2)),
    ("ROPE-HALVES", meet_turned(*[turned(slow, pair=lambda i, d: (i, i + d // 2))] * 2)),
    ("ROPE-EXP-NO-2", meet_turned(*[turned(lambda i, d: 10000 ** (-i / d))] * 2)),
    ("ROPE-EXP-DOUBLED", meet_turned(*[turned(lambda i, d: 10000 ** (-4 * i / d))] * 2)),
    ("AT-NO-SCALE", meet_turned(rotated, rotated, scale=lambda d: 1)),
    ("AT-SCALE-DK", meet_turned(rotated, rotated, scale=lambda d: 1 / d)),
]:
    wrong("rope.attention", code)(f)
right("rope.attention")(meet_turned(rotated, rotated))
right("rope.attention")(meet_turned(turned(slow, first=7), turned(slow, first=7)))

for code, f in [
    ("KEPT-MASK-AHEAD", lambda n, kept: np.tril(np.ones((n, kept + n), bool), kept + 1)),
    ("KEPT-MASK-AHEAD", lambda n, kept: [[j <= i + 1 + kept for j in range(kept + n)] for i in range(n)]),
    ("KEPT-MASK-NOT-ITSELF", lambda n, kept: np.tri(n, kept + n, kept - 1) == 1),
    ("KEPT-MASK-NOT-ITSELF", lambda n, kept: [[j < i + kept for j in range(kept + n)] for i in range(n)]),
    ("KEPT-MASK-FROM-0", lambda n, kept: np.tril(np.ones((n, kept + n), bool))),
    ("KEPT-MASK-NEW-ONLY", lambda n, kept: np.tril(np.ones((n, n), bool))),
]:
    wrong("mask.kept", code)(f)
right("mask.kept")(lambda n, kept: np.tril(np.ones((kept + n, kept + n), bool))[kept:])
right("mask.kept")(lambda n, kept: np.hstack([np.ones((n, kept), bool), np.tri(n, dtype=bool)]))


def softer(logits, temperature):
    return stable(logits, 1) ** (1 / temperature)


for code, f in [
    ("TEMP-AFTER-SOFTMAX", lambda z, t: stable(z, 1) / t),
    ("TEMP-AFTER-SOFTMAX", lambda z, t: stable(stable(z, 1) / t, 1)),
    ("TEMP-MULTIPLIED", lambda z, t: stable(t * z, 1)),
    ("SM-AXIS", lambda z, t: stable(z / t, 0)),
    ("SM-GLOBAL-SUM", lambda z, t: softer(z, t) * 0 + np.exp(z / t) / np.exp(z / t).sum()),
    ("SM-OVERFLOW", lambda z, t: np.exp(z / t) / np.exp(z / t).sum(1, keepdims=True)),
    ("SM-GLOBAL-MAX", lambda z, t: (lambda e: e / e.sum(1, keepdims=True))(np.exp((z - z.max()) / t))),
]:
    wrong("sample.temperature", code)(f)
right("sample.temperature")(lambda z, t: softer(z, t) / softer(z, t).sum(1, keepdims=True))


def collected(goes_on, order=lambda p: sorted(range(len(p)), key=lambda i: -p[i]), scale=True):
    """Token by token into a bag: goes_on(sum in the bag, probability of the next token, share)."""

    def f(p, share):
        bag, kept = 0.0, np.zeros(len(p))
        for i in order(p):
            if not goes_on(bag, p[i], share):
                break
            kept[i] = p[i]
            bag += p[i]
        return kept / bag if scale else kept

    return f


for code, f in [
    ("TOP-P-LAST-DROPPED", collected(lambda bag, p, share: bag + p <= share or bag == 0)),
    ("TOP-P-LAST-DROPPED", lambda p, s: (lambda kept: kept / kept.sum())(p * (cut(p) <= s))),
    ("TOP-P-NOT-DIVIDED", collected(lambda bag, p, share: bag < share, scale=False)),
    ("TOP-P-UNSORTED", collected(lambda bag, p, share: bag < share, order=lambda p: range(len(p)))),
    ("TOP-P-AS-LIMIT", lambda p, s: np.where(p >= 1 - s, p, 0) / p[p >= 1 - s].sum()),
    ("TOP-P-AS-LIMIT", lambda p, s: np.where(p < s, 0, p) / np.where(p < s, 0, p).sum()),
]:
    wrong("sample.top_p", code)(f)


def cut(p):
    """What each token and the likelier ones have together."""
    return np.array([p[p >= own_p].sum() for own_p in p])


right("sample.top_p")(collected(lambda bag, p, share: bag < share))
right("sample.top_p")(lambda p, s: (lambda kept: kept / kept.sum())(p * (cut(p) - p < s)))


# --- ways back ------------------------------------------------------------------------------------


def row_by_row(one):
    """A gradient of one row of logits after the other: one(probabilities, right class, rows)."""

    def f(logits, targets):
        gradient = np.zeros(logits.shape)
        for n, (z, t) in enumerate(zip(logits, targets, strict=True)):
            powers = [math.exp(number - max(z)) for number in z]
            gradient[n] = one(np.array(powers) / sum(powers), t, len(targets))
        return gradient

    return f


def less_at(p, t, taken=1.0):
    return np.array([share - taken * (c == t) for c, share in enumerate(p)])


for code, f in [
    ("CE-GRAD-NO-TARGET", row_by_row(lambda p, t, n: p / n)),
    ("CE-GRAD-NO-TARGET", row_by_row(lambda p, t, n: less_at(p, t, 0.0) / n)),
    ("CE-GRAD-TARGET-ONLY", row_by_row(lambda p, t, n: np.where(np.arange(len(p)) == t, p - 1, 0) / n)),
    ("CE-GRAD-COLUMNS", lambda z, t: (p := stable(z, 1)).__setitem__(np.s_[:, t], p[:, t] - 1) or p / len(t)),
    ("CE-GRAD-OF-P", row_by_row(lambda p, t, n: np.where(np.arange(len(p)) == t, -1 / p, 0) / n)),
    ("CE-SUM", row_by_row(lambda p, t, n: less_at(p, t))),
    ("CE-SIGN", row_by_row(lambda p, t, n: -less_at(p, t) / n)),
    ("CE-DOUBLE-SOFTMAX", row_by_row(lambda p, t, n: less_at(np.exp(p) / sum(np.exp(p)), t) / n)),
    ("SM-OVERFLOW", lambda z, t: (np.exp(z) / np.exp(z).sum(1)[:, None] - np.eye(z.shape[1])[t]) / len(t)),
]:
    wrong("cross_entropy.backward", code)(f)
right("cross_entropy.backward")(row_by_row(lambda p, t, n: less_at(p, t) / n))


def rms_ways(*ways, under=lambda x: x @ x / len(x), gradient=lambda dy, x, r: dy * x / r, gather=np.sum):
    """Token by token; each way is one(dx̂, x, root, gamma), and their sum is dx."""

    def f(dy, x, gamma, eps):
        dx, dgammas = np.zeros(x.shape), np.zeros(x.shape)
        for place in np.ndindex(x.shape[:2]):
            r = math.sqrt(under(x[place]) + eps)
            dx[place] = sum(way(gamma * dy[place], x[place], r, gamma) for way in ways)
            dgammas[place] = gradient(dy[place], x[place], r)
        return dx, gather(dgammas, axis=(0, 1))

    return f


def straight(g, x, r, gamma):
    return g / r


def through_root(g, x, r, gamma):
    return -(g @ x) * x / (len(x) * r**3)


def outside(g, x, r, gamma):
    return -gamma * (g / gamma @ x) * x / (len(x) * r**3)


for code, f in [
    ("RMS-DX-DIRECT", rms_ways(straight)),
    ("RMS-DX-MEAN", rms_ways(straight, through_root, lambda g, x, r, gamma: -g.mean() / r)),
    ("RMS-DX-GAMMA-OUTSIDE", rms_ways(straight, outside)),
    ("RMS-DGAMMA-OF-X", rms_ways(straight, through_root, gradient=lambda dy, x, r: dy * x)),
    ("RMS-DGAMMA-SHAPE", rms_ways(straight, through_root, gather=lambda all_of, axis: all_of)),
    ("RMS-DGAMMA-SHAPE", rms_ways(straight, through_root, gather=lambda all_of, axis: sum(all_of))),
    ("RMS-MEAN-TAKEN", rms_ways(straight, through_root, under=np.var)),
]:
    wrong("rms_norm.backward", code)(f)
right("rms_norm.backward")(rms_ways(straight, through_root))


def to_the_rows(take, factor=lambda d: d**0.5):
    """Each row of E from the list of the gradients that arrive at its word's places."""

    def f(dy, ids, E):
        arrived = [[] for _ in E]
        for place in np.ndindex(ids.shape):
            arrived[ids[place]].append(dy[place] * factor(E.shape[1]))
        return np.array([take(several) if several else np.zeros(E.shape[1]) for several in arrived])

    return f


for code, f in [
    ("EMB-GRAD-LAST", to_the_rows(lambda several: several[-1])),
    (
        "EMB-GRAD-LAST",
        lambda dy, ids, E: (d := np.zeros(E.shape)).__setitem__(ids, dy * E.shape[1] ** 0.5) or d,
    ),
    ("EMB-GRAD-NO-SCALE", to_the_rows(sum, lambda d: 1)),
    ("EMB-GRAD-MEAN", to_the_rows(lambda several: sum(several) / len(several))),
    ("EMB-GRAD-PLACES", lambda dy, ids, E: dy * math.sqrt(E.shape[-1])),
]:
    wrong("embedding.backward", code)(f)
right("embedding.backward")(to_the_rows(sum))


def query_by_query(
    through=lambda w, dw: np.diag(w) @ dw - np.outer(w, w) @ dw,
    scales=(-0.5, -0.5, -0.5),
    dk=lambda ds, q: np.einsum("ij,id->jd", ds, q),
    dv=lambda w, dy: np.einsum("ij,id->jd", w, dy),
):
    """The exponents of d_k are those of the scores, of dq and of dk."""

    def f(dy, q, k, v):
        forward, to_q, to_k = (float(k.shape[1]) ** power for power in scales)
        w = np.array([stable(forward * k @ row, -1) for row in q])
        ds = np.array([through(row, v @ up) for row, up in zip(w, dy, strict=True)])
        return to_q * np.einsum("ij,jd->id", ds, k), to_k * dk(ds, q), dv(w, dy)

    return f


for code, f in [
    ("AT-NO-SCALE", query_by_query(scales=(0, 0, 0))),
    ("AT-GRAD-NO-SCALE", query_by_query(scales=(-0.5, 0, 0))),
    ("AT-GRAD-NO-SCALE", query_by_query(scales=(-0.5, 0, -0.5))),
    ("AT-GRAD-NO-SCALE", query_by_query(scales=(-0.5, -0.5, 0))),
    ("AT-GRAD-NO-SOFTMAX", query_by_query(lambda w, dw: dw)),
    ("AT-GRAD-UNTRANSPOSED", query_by_query(dk=np.matmul)),
    ("AT-GRAD-UNTRANSPOSED", query_by_query(dv=np.dot)),
    ("AT-GRAD-UNTRANSPOSED", query_by_query(dk=np.dot, dv=np.matmul)),
    ("SM-JAC-DIAGONAL", query_by_query(lambda w, dw: w * dw - w * w * dw)),
    ("SM-JAC-PRODUCT", query_by_query(lambda w, dw: np.diag(w) @ dw)),
]:
    wrong("attention.backward", code)(f)
right("attention.backward")(query_by_query())


def unit_by_unit(
    slope=lambda z: sigma(z) + z * sigma(z) * (1 - sigma(z)),
    to_up=lambda g, u: g,
    to_gate=lambda g, u: u,
    ways=(1, 1),
    into_down=lambda g, u: g * u,
):
    """The gradients of the gated network, one hidden unit after the other; ways weigh dx's two terms."""

    def f(dy, x, W_gate, W_up, W_down):
        dx, *grads = (np.zeros(a.shape) for a in (x, W_gate, W_up, W_down))
        for unit in range(W_gate.shape[1]):
            z, u, dh = x @ W_gate[:, unit], x @ W_up[:, unit], dy @ W_down[unit]
            g = z * sigma(z)
            dz, du = dh * to_gate(g, u) * slope(z), dh * to_up(g, u)
            dx += ways[0] * dz[..., None] * W_gate[:, unit] + ways[1] * du[..., None] * W_up[:, unit]
            for grad, a, d in ((grads[0], x, dz), (grads[1], x, du)):
                grad[:, unit] = (a * d[..., None]).sum(axis=(0, 1))
            grads[2][unit] = (dy * into_down(g, u)[..., None]).sum(axis=(0, 1))
        return dx, *grads

    return f


for code, f in [
    ("GATE-ONE-WAY", unit_by_unit(ways=(1, 0))),
    ("GATE-ONE-WAY", unit_by_unit(ways=(0, 1))),
    ("GATE-OWN-FACTOR", unit_by_unit(to_up=lambda g, u: u, to_gate=lambda g, u: g)),
    ("GATE-HALF-SLOPE", unit_by_unit(slope=sigma)),
    ("GATE-HALF-SLOPE", unit_by_unit(slope=lambda z: z * sigma(z) * sigma(-z))),
    ("GATE-SIGMOID-SLOPE", unit_by_unit(slope=lambda z: sigma(z) * sigma(-z))),
    ("GATE-FOR-HIDDEN", unit_by_unit(into_down=lambda g, u: g)),
    ("GATE-FOR-HIDDEN", unit_by_unit(into_down=lambda g, u: u)),
]:
    wrong("gate.backward", code)(f)
right("gate.backward")(unit_by_unit())

for code, f in [
    ("ROPE-GRAD-FORWARD", turned(slow)),
    ("ROPE-GRAD-ONE-WAY", lambda dy: (turned(slow)(dy) + turned(lambda i, d: -slow(i, d))(dy)) / 2),
    ("ROPE-HALVES", turned(lambda i, d: -slow(i, d), pair=lambda i, d: (i, i + d // 2))),
    ("ROPE-FROM-1", turned(lambda i, d: -slow(i, d), first=1)),
    ("ROPE-EXP-NO-2", turned(lambda i, d: -(10000 ** (-i / d)))),
    ("ROPE-EXP-DOUBLED", turned(lambda i, d: -(10000 ** (-4 * i / d)))),
]:
    wrong("rope.backward", code)(f)
right("rope.backward")(turned(lambda i, d: -slow(i, d)))


def head_by_head(which, join=sum):
    """The key heads' gradients: join of those at the places which(g, n_heads, n_kv_heads)."""
    return lambda dy, n: np.array([join([dy[i] for i in which(g, len(dy), n)]) for g in range(n)])


def group(g, h, n_kv):
    return [i for i in range(h) if i // (h // n_kv) == g]


for code, f in [
    ("KV-GRAD-MEAN", head_by_head(group, lambda heads: sum(heads) / len(heads))),
    ("KV-GRAD-ONE", head_by_head(group, lambda heads: heads[0])),
    ("KV-GRAD-ONE", head_by_head(group, lambda heads: heads[-1])),
    ("KV-TILED", head_by_head(lambda g, h, n_kv: range(g, h, n_kv))),
    (
        "KV-GRAD-COPIED",
        lambda dy, n: [sum(dy[j] for j in group(i * n // len(dy), len(dy), n)) for i in range(len(dy))],
    ),
]:
    wrong("grouped.backward", code)(f)
right("grouped.backward")(head_by_head(group))


def two_stations(station, order=lambda a, n1, f, n2: ((n2, f), (n1, a))):
    """station(gradient, norm, layer) for each station of the way back."""

    def f(dy, *layers):
        for norm, layer in order(*layers):
            dy = station(dy, norm, layer)
        return dy

    return f


def add_and_norm(g, norm, layer):
    return layer(norm(g)) + norm(g)


for code, f in [
    ("BLOCK-NO-RESIDUAL", two_stations(lambda g, norm, layer: layer(norm(g)))),
    ("BLOCK-BACK-PAST-NORM", two_stations(lambda g, norm, layer: g + layer(norm(g)))),
    ("BLOCK-BACK-FORWARD", two_stations(add_and_norm, lambda a, n1, f, n2: ((n1, a), (n2, f)))),
    ("BLOCK-BACK-FORWARD", lambda dy, a, n1, f, n2: (lambda h: n2(h + f(h)))(n1(dy + a(dy)))),
    ("BLOCK-PRE-FOR-POST", two_stations(lambda g, norm, layer: g + norm(layer(g)))),
    ("BLOCK-NORMS-EXCHANGED", two_stations(add_and_norm, lambda a, n1, f, n2: ((n1, f), (n2, a)))),
    ("BLOCK-NO-NORM", two_stations(lambda g, norm, layer: g + layer(g))),
]:
    wrong("block.backward", code)(f)
right("block.backward")(two_stations(add_and_norm))


# --- a published model ----------------------------------------------------------------------------


def grid(step, value):
    """Group by group: the step from smallest, largest and bits, then each number from its distance."""

    def f(w, bits):
        out = []
        for row in w.tolist():
            low, d = min(row), step(min(row), max(row), bits)
            out.append([value(low, d, round((x - low) / d), (x - low) / d) for x in row])
        return np.array(out)

    return f


def levels(low, high, bits):
    return (high - low) / (2**bits - 1)


right("quantise.groups")(grid(levels, lambda low, d, q, exact: low + q * d))
right("quantise.groups")(
    lambda w, bits: np.stack(
        [
            g[np.abs(row[:, None] - g).argmin(axis=1)]
            for row in w
            for g in [np.linspace(row.min(), row.max(), 2**bits)]
        ]
    )
)
for code, f in [
    ("Q-STEPS", grid(lambda low, high, bits: (high - low) / 2**bits, lambda low, d, q, exact: low + q * d)),
    ("Q-DOWN", grid(levels, lambda low, d, q, exact: low + int(exact) * d)),
    ("Q-NO-SMALLEST", grid(levels, lambda low, d, q, exact: q * d)),
    (
        "Q-ONE-GROUP",
        lambda w, b: np.round((w - w.min()) / np.ptp(w) * (2**b - 1)) * np.ptp(w) / (2**b - 1) + w.min(),
    ),
]:
    wrong("quantise.groups", code)(f)


def llama_block(
    pair=lambda j, d_k: (j, j + d_k // 2), turned="qk", key_head=lambda i: i // 2, seen=lambda t: t + 1,
    silu_on=0, q_weight=lambda W: W.T, pre=True, gammas=(0, 1), around=(1, 1), scaled=True, way=1,
):  # fmt: skip
    """Token by token and head by head, in plain loops; each keyword is a slip that a port can make."""

    def turn(z, p):
        out, d_k = list(z), len(z)
        for j in range(d_k // 2):
            a, b = pair(j, d_k)
            angle = way * p * 10000 ** (-2 * j / d_k)
            out[a] = z[a] * math.cos(angle) - z[b] * math.sin(angle)
            out[b] = z[a] * math.sin(angle) + z[b] * math.cos(angle)
        return out

    def f(x, W_q, W_k, W_v, W_o, gamma_1, W_gate, W_up, W_down, gamma_2):
        both, d_k = (gamma_1, gamma_2), x.shape[1] // 4

        def norm(row, which):
            return row / math.sqrt(float(np.mean(row**2)) + 1e-5) * both[gammas[which]]

        def attend(rows):
            split = {}
            for name, W in (("q", q_weight(W_q)), ("k", W_k.T), ("v", W_v.T)):
                cut = [(row @ W).reshape(-1, d_k) for row in rows]
                turns = name in turned
                split[name] = [[turn(z, p) if turns else z for z in head] for p, head in enumerate(cut)]
            out = []
            for t in range(len(rows)):
                heads = []
                for i in range(4):
                    s = [np.dot(split["q"][t][i], split["k"][u][key_head(i)]) for u in range(len(rows))]
                    e = [math.exp(v / (math.sqrt(d_k) if scaled else 1)) for v in s[: seen(t)]]
                    mixed = zip(e, split["v"], strict=False)
                    heads.append(sum(w * np.array(row[key_head(i)]) for w, row in mixed) / sum(e))
                out.append(W_o @ np.concatenate(heads))
            return np.array(out)

        def feed(row):
            two = [W_gate @ row, W_up @ row]
            gate, up = two[silu_on], two[1 - silu_on]
            return W_down @ (gate * up / (1 + np.exp(-gate)))

        if not pre:
            h = np.array([norm(row, 0) for row in x + attend(x)])
            return np.array([norm(row + feed(row), 1) for row in h])
        h = around[0] * x + attend([norm(row, 0) for row in x])
        return np.array([around[1] * row + feed(norm(row, 1)) for row in h])

    return f


right("port.block")(llama_block())
for code, slip in [
    ("PORT-LAYOUT", {"pair": lambda j, d_k: (2 * j, 2 * j + 1)}),
    ("PORT-NOT-TURNED", {"q_weight": lambda W: W}),
    ("PORT-GATE-UP", {"silu_on": 1}),
    ("PORT-NORMS", {"gammas": (1, 0)}),
    ("KV-TILED", {"key_head": lambda i: i % 2}),
    ("PORT-NO-ROPE", {"turned": ""}),
    ("PORT-VALUES-TURNED", {"turned": "qkv"}),
    ("PORT-NO-MASK", {"seen": lambda t: None}),
    ("PORT-POST-NORM", {"pre": False}),
    ("AT-NO-SCALE", {"scaled": False}),
    ("ROPE-SIGN", {"way": -1}),
    ("BLOCK-NO-RESIDUAL", {"around": (0, 1)}),
]:
    wrong("port.block", code)(llama_block(**slip))
