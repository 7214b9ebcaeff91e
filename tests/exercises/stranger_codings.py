"""Code exercises as strangers write them: right answers, variants and slips, labelled by mathematics.

Written from descriptions of homework and tutorials before the checker was tried on them, and not changed to
fit it afterwards. A slip comes with a word (a regular expression) that a useful observation has to contain
where the checker has no name for the slip. It is kept apart from student_codings.py, whose slips are those
of the checker's own list.
"""

import math
from functools import partial, reduce
from itertools import product

import numpy as np
from labelled import each, labels

STRANGERS = []  # (exercise, "right", "variant" or "wrong", word, function)
right, variant, slip = labels(STRANGERS, "right", "variant", "wrong")

# --- pe.table, right --------------------------------------------------------------------------------

PE = "pe.table"


@right(PE)
def pe_slices_of_equal_width(seq_len, dim):
    pe = np.zeros((seq_len, dim))
    position = np.arange(seq_len).reshape(-1, 1)
    div_term = np.exp(np.arange(0, dim, 2) * -(np.log(10000.0) / dim))
    pe[:, ::2] = np.sin(position * div_term)
    pe[:, 1::2] = np.cos(position * div_term)
    return pe


@right(PE)
def pe_two_loops(max_len, d):
    out = []
    for pos in range(max_len):
        row = []
        for i in range(d // 2):
            angle = pos / (10000 ** (2 * i / d))
            row += [math.sin(angle), math.cos(angle)]
        out.append(row)
    return out


@right(PE)
def pe_stacked(n, d_model):
    angles = np.outer(np.arange(n), 1e4 ** (-np.arange(0, d_model, 2) / d_model))
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)


@right(PE)
def pe_angle_table_overwritten(n, d):
    def get_angles(pos, i):
        return pos / np.power(10000, (2 * (i // 2)) / np.float64(d))

    rads = get_angles(np.arange(n)[:, np.newaxis], np.arange(d)[np.newaxis, :])
    rads[:, 0::2] = np.sin(rads[:, 0::2])
    rads[:, 1::2] = np.cos(rads[:, 1::2])
    return rads


@right(PE)
def pe_complex(n, d):
    z = np.exp(1j * np.arange(n)[:, None] / 10000 ** (2 * np.arange(d // 2) / d))
    pe = np.empty((n, d))
    pe[:, 0::2], pe[:, 1::2] = z.imag, z.real
    return pe


@right(PE)
def pe_phase(n, d):
    j = np.arange(d)
    return np.sin(np.arange(n)[:, None] / 10000 ** ((j - j % 2) / d) + (j % 2) * np.pi / 2)


@right(PE)
def pe_einsum(n, d):
    freq = np.repeat(np.power(10000.0, -2 * np.arange(d // 2) / d), 2)
    a = np.einsum("p,f->pf", np.arange(n, dtype=float), freq)
    return np.where(np.arange(d) % 2, np.cos(a), np.sin(a))


@right(PE)
def pe_refuses_odd(n, d):
    if d % 2 != 0:
        raise ValueError(f"cannot use sin/cos positional encoding with odd dim {d}")
    return pe_stacked(n, d)


@right(PE)
def pe_float32(n, d):
    return np.asarray(pe_stacked(n, d), dtype=np.float32)


class PositionTable:
    base = 10_000

    def __call__(self, n, d):
        return np.array([self.row(p, d) for p in range(n)])

    def row(self, p, d):
        return [self.wave(j)(p / self.base ** ((j if j % 2 == 0 else j - 1) / d)) for j in range(d)]

    def wave(self, j):
        return (math.sin, math.cos)[j & 1]


right(PE)(PositionTable())
right(PE)(partial(lambda base, n, d: pe_stacked(n, d) if base == 10000 else None, 10000))
right(PE)(
    lambda n, d: np.vectorize(lambda p, j: (math.cos if j % 2 else math.sin)(p / 1e4 ** (j // 2 * 2 / d)))(
        *np.indices((n, d))
    )
)


@right(PE)
def pe_by_rotation(n, d):
    rows = [np.tile([0.0, 1.0], d // 2)]
    w = 10000.0 ** (-np.arange(0, d, 2) / d)
    for _ in range(n - 1):
        s, c = rows[-1][::2], rows[-1][1::2]
        new = np.empty(d)
        new[::2], new[1::2] = s * np.cos(w) + c * np.sin(w), c * np.cos(w) - s * np.sin(w)
        rows.append(new)
    return np.vstack(rows)


@variant(PE)
def pe_sines_first(n, d):
    a = np.arange(n)[:, None] * 10000.0 ** (-2 * np.arange(d // 2) / d)
    return np.concatenate((np.sin(a), np.cos(a)), axis=1)


@variant(PE)
def pe_cosines_first(n, d):
    a = np.arange(n)[:, None] * 10000.0 ** (-2 * np.arange(d // 2) / d)
    return np.hstack([np.cos(a), np.sin(a)])


@variant(PE)
def pe_diffusion(n, d):
    half = d // 2
    emb = np.exp(np.arange(half) * -(math.log(10000) / (half - 1)))
    emb = np.arange(n)[:, None] * emb[None]
    return np.concatenate([np.sin(emb), np.cos(emb)], -1)


@variant(PE)
def pe_padding_row(n, d):
    table = pe_stacked(n, d)
    table[0] = 0
    return table


# --- pe.table, slips --------------------------------------------------------------------------------


def waves(sine, cosine):
    """Sine and cosine columns from (p, i, d), cell by cell."""

    def f(n, d):
        pe = np.zeros((n, d))
        for p, i in product(range(n), range(d // 2)):
            pe[p, 2 * i], pe[p, 2 * i + 1] = sine(p, i, d), cosine(p, i, d)
        return pe

    return f


def angle(p, i, d):
    return p / 10000 ** (2 * i / d)


def sin_right(p, i, d):
    return math.sin(angle(p, i, d))


def cos_right(p, i, d):
    return math.cos(angle(p, i, d))


each(
    slip(PE, "cos"),
    waves(sin_right, lambda p, i, d: math.cos(p / 10000 ** (2 * (i + 1) / d))),
    waves(sin_right, lambda p, i, d: math.cos(p / 10000 ** ((2 * i + 2) / d))),
    waves(sin_right, lambda p, i, d: math.cos(angle(p, i, d) + 1)),
    waves(sin_right, lambda p, i, d: -math.cos(angle(p, i, d))),
    waves(sin_right, lambda p, i, d: math.cos(angle(p, i, d)) ** 2),
)
each(
    slip(PE, "sine|columns 0"),
    waves(lambda p, i, d: -math.sin(angle(p, i, d)), cos_right),
    waves(lambda p, i, d: abs(math.sin(angle(p, i, d))), cos_right),
    waves(lambda p, i, d: math.sinh(angle(p, i, d)), cos_right),
    waves(lambda p, i, d: math.tan(angle(p, i, d)), cos_right),
)
slip(PE, "sign|-1|minus|negative|opposite")(lambda n, d: -np.array(pe_two_loops(n, d)))
slip(PE, "base")(
    lambda n, d: np.sin(
        np.arange(n)[:, None] / 2000.0 ** ((np.arange(d) // 2 * 2) / d) + np.pi / 2 * (np.arange(d) % 2)
    )
)
slip(PE, "base|factor|speed")(
    waves(
        lambda p, i, d: math.sin(2 * math.pi * angle(p, i, d)),
        lambda p, i, d: math.cos(2 * math.pi * angle(p, i, d)),
    )
)
slip(PE, "√d|root|sqrt|factor")(lambda n, d: pe_stacked(n, d) * np.sqrt(d))
slip(PE, "factor|half|0.5")(lambda n, d: pe_stacked(n, d) / 2)
slip(PE, "axis|shape")(lambda n, d: pe_stacked(n, d)[None])
slip(PE, "axis|flat|one row|shape")(lambda n, d: pe_stacked(n, d).ravel())
slip(PE, "row")(lambda n, d: pe_stacked(n - 1, d))
slip(PE, "row")(lambda n, d: pe_stacked(n + 1, d)[1:])
slip(PE, "row")(lambda n, d: pe_stacked(n + 1, d))
slip(PE, "column|shape")(lambda n, d: pe_stacked(n, d)[:, ::2])
slip(PE, "whole|integer")(lambda n, d: pe_stacked(n, d).astype(int))
slip(PE, "whole|integer|round")(lambda n, d: pe_stacked(n, d).round())
slip(PE, "revers|order|backward|opposite")(lambda n, d: pe_stacked(n, d)[::-1])
slip(PE, "revers|order|opposite|column")(lambda n, d: pe_stacked(n, d)[:, ::-1])
slip(PE, "return")(lambda n, d: print("", end=""))
slip(PE, "tuple")(lambda n, d: (pe_stacked(n, d), np.arange(n)))
slip(PE, "dict")(lambda n, d: {"pe": pe_stacked(n, d)})
slip(PE, "NameError|name")(lambda n, d: np.sin(pos))
slip(PE, "argument")(lambda n: np.zeros((n, 8)))
slip(PE, "1|added|constant")(lambda n, d: pe_stacked(n, d) + 1)
slip(PE, "position|row")(
    waves(lambda p, i, d: sin_right(p // 1 - 1, i, d), lambda p, i, d: cos_right(p - 1, i, d))
)
slip(PE, "position|row")(
    lambda n, d: (lambda t: np.sin(t + np.pi / 2 * (np.arange(d) % 2)))(
        np.arange(n)[:, None] / n / 10000.0 ** (np.arange(d) // 2 * 2 / d)
    )
)
slip(PE, "whole|integer|column|row")(
    lambda n, d: np.where(
        np.arange(d) % 2 == 0,
        *(f(np.arange(n)[:, None] // 10000 ** (np.arange(d) // 2 * 2 / d)) for f in (np.sin, np.cos)),
    )
)


@slip(PE, "column")
def pe_last_pair_forgotten(n, d):
    pe = np.zeros((n, d))
    for i in range(0, d - 2, 2):
        w = 1 / 10000 ** (i / d)
        pe[:, i], pe[:, i + 1] = np.sin(np.arange(n) * w), np.cos(np.arange(n) * w)
    return pe


@slip(PE, "return|row|shape")
def pe_returns_inside_the_loop(n, d):
    pe = np.zeros((n, d))
    for p in range(n):
        for i in range(0, d, 2):
            pe[p, i], pe[p, i + 1] = np.sin(p / 1e4 ** (i / d)), np.cos(p / 1e4 ** (i / d))
        return pe


# --- ffn.forward ------------------------------------------------------------------------------------

FFN = "ffn.forward"


def ffn_with(act, bias_1=True, bias_2=True):
    def f(x, w1, b1, w2, b2):
        return act(x @ w1 + (b1 if bias_1 else 0)) @ w2 + (b2 if bias_2 else 0)

    return f


@right(FFN)
def ffn_token_by_token(x, W1, b1, W2, b2):
    y = np.zeros(x.shape)
    for b, t in np.ndindex(*x.shape[:2]):
        hidden = [max(0.0, float(x[b, t] @ W1[:, k] + b1[k])) for k in range(len(b1))]
        y[b, t] = sum(h * W2[k] for k, h in enumerate(hidden)) + b2
    return y


each(
    right(FFN),
    ffn_with(lambda z: z * (z > 0)),
    ffn_with(lambda z: (z + np.abs(z)) / 2),
    ffn_with(lambda z: np.clip(z, 0, None)),
    ffn_with(lambda z: np.where(z > 0, z, 0.0)),
    lambda x, W, b, V, c: np.einsum("btf,fd->btd", np.fmax(np.einsum("btd,df->btf", x, W) + b, 0), V) + c,
    lambda x, W, b, V, c: np.stack([np.maximum(s @ W + b, 0).dot(V) + c for s in x]),
    lambda x, W, b, V, c: (
        np.c_[
            np.maximum(0, np.c_[x.reshape(-1, x.shape[2]), np.ones(x[..., 0].size)] @ np.r_[W, [b]]),
            np.ones(x[..., 0].size),
        ]
        @ np.r_[V, [c]]
    ).reshape(x.shape),
    lambda x, W, b, V, c: reduce(
        lambda a, layer: layer(a), (lambda a: a @ W + b, partial(np.maximum, 0), lambda a: a @ V + c), x
    ),
    lambda *args: ffn_with(partial(np.maximum, 0))(*(np.float32(a) for a in args)),
)


@slip(FFN, "argument|changed|place")
def ffn_relu_in_place_on_x(x, W1, b1, W2, b2):
    out = np.maximum(x @ W1 + b1, 0) @ W2 + b2
    x[:] = out
    return x


for word, act in (
    ("step|0, 0, 0, 1, 1|0 and 1", lambda z: (z > 0) * 1.0),
    ("gelu", lambda z: 0.5 * z * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))),
    ("gelu", lambda z: 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))),
    ("sigmoid", lambda z: 1 / (1 + np.exp(-z))),
    ("tanh", np.tanh),
    ("leaky|-0.0", lambda z: np.where(z > 0, z, 0.01 * z)),
    ("leaky|-0.", lambda z: np.where(z > 0, z, 0.2 * z)),
    (r"\||absolute|2, 1, 0, 1, 2", np.abs),
    ("unit|activation", lambda z: np.log1p(np.exp(z))),
    ("unit|activation", lambda z: z / (1 + np.exp(-z))),
    ("unit|activation", lambda z: np.where(z > 0, z, np.exp(np.minimum(z, 0)) - 1)),
    ("unit|activation", lambda z: np.maximum(z, 0) ** 2),
    ("unit|activation", lambda z: np.minimum(z, 0)),
    ("unit|activation", lambda z: np.maximum(z, 1)),
    ("unit|activation", lambda z: np.clip(z, 0, 1)),
    ("unit|activation|softmax|other|depends", lambda z: np.exp(z) / np.exp(z).sum(-1, keepdims=True)),
):
    slip(FFN, word)(ffn_with(act))

relu = partial(np.maximum, 0)
slip(FFN, "b_1")(ffn_with(relu, bias_1=False))
slip(FFN, "b_2")(ffn_with(relu, bias_2=False))
slip(FFN, "b_1|b_2|not used")(ffn_with(relu, bias_1=False, bias_2=False))
slip(FFN, "b_2|twice|added")(lambda x, W1, b1, W2, b2: ffn_with(relu)(x, W1, b1, W2, b2) + b2)
slip(FFN, "b_2|sign|added")(lambda x, W1, b1, W2, b2: ffn_with(relu)(x, W1, b1, W2, -b2))
slip(FFN, "b_1")(lambda x, W1, b1, W2, b2: ffn_with(relu)(x, W1, -b1, W2, b2))
slip(FFN, "x.*added|residual|added.*x")(lambda x, *p: x + ffn_with(relu)(x, *p))
slip(FFN, "hidden|shape")(lambda x, W1, b1, W2, b2: relu(x @ W1 + b1))
slip(FFN, "tuple")(lambda x, W1, b1, W2, b2: (ffn_with(relu)(x, W1, b1, W2, b2), relu(x @ W1 + b1)))
slip(FFN, "axis|batch|sentence|shape")(lambda x, *p: ffn_with(relu)(x, *p)[0])
slip(FFN, "axis|flat|shape")(lambda x, *p: ffn_with(relu)(x, *p).reshape(-1, x.shape[-1]))
slip(FFN, "sign|-1|opposite")(lambda x, *p: -ffn_with(relu)(x, *p))
slip(FFN, "token|sentence|depend|neighbour")(
    lambda x, *p: ffn_with(relu)(x + x.mean(axis=1, keepdims=True), *p)
)
slip(FFN, "shape|argument|matmul")(lambda x, W1, b1, W2, b2: relu(x @ W1 + b1) @ W2.T + b2)


# --- ffn.backward -----------------------------------------------------------------------------------

BACK = "ffn.backward"


def walked(dy, x, W1, b1, W2, b2):
    """The right gradients, by plain einsum."""
    z = np.einsum("btd,df->btf", x, W1) + b1
    a = np.clip(z, 0, None)
    dz = np.einsum("btd,fd->btf", dy, W2) * np.heaviside(z, 0)
    return (
        np.einsum("btf,df->btd", dz, W1),
        np.einsum("btd,btf->df", x, dz),
        dz.sum((0, 1)),
        np.einsum("btf,btd->fd", a, dy),
        np.einsum("btd->d", dy),
    )


def changed(name, how, base=walked):
    """The right gradients with one of them changed."""
    place = ("dx", "dW_1", "db_1", "dW_2", "db_2").index(name)

    def f(*args):
        out = list(base(*args))
        out[place] = how(out[place], *args)
        return tuple(out)

    return f


right(BACK)(walked)
right(BACK)(lambda *args: list(walked(*args)))
right(BACK)(lambda *args: walked(*(np.float32(a) for a in args)))


@right(BACK)
def ffn_back_loops(dy, x, W1, b1, W2, b2):
    dx, dW1, db1, dW2, db2 = (np.zeros_like(a) for a in (x, W1, b1, W2, b2))
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            z = x[b, t] @ W1 + b1
            dz = (W2 @ dy[b, t]) * (z > 0)
            dW2 += np.outer(np.maximum(z, 0), dy[b, t])
            dW1 += np.outer(x[b, t], dz)
            db1 += dz
            db2 += dy[b, t]
            dx[b, t] = W1 @ dz
    return dx, dW1, db1, dW2, db2


each(
    slip(BACK, "axis|shape|\\(1, "),
    changed("db_1", lambda g, *a: g[None]),
    changed("db_2", lambda g, *a: g.reshape(1, -1)),
    changed("db_2", lambda g, *a: g[None], changed("db_1", lambda g, *a: g[None])),
)
each(
    slip(BACK, "transpos|dW"),
    changed("dW_1", lambda g, *a: g.T),
    changed("dW_2", lambda g, *a: g.T),
    changed("dW_2", lambda g, *a: g.T, changed("dW_1", lambda g, *a: g.T)),
)
slip(BACK, "order")(lambda *args: (lambda dx, dW1, db1, dW2, db2: (dW1, db1, dW2, db2, dx))(*walked(*args)))
slip(BACK, "order")(lambda *args: (lambda dx, dW1, db1, dW2, db2: (dx, db1, dW1, db2, dW2))(*walked(*args)))
slip(BACK, "5|dx|outputs|four|4")(lambda *args: walked(*args)[1:])
slip(BACK, "dict")(lambda *args: dict(zip("dx dW1 db1 dW2 db2".split(), walked(*args), strict=True)))
slip(BACK, "dW_1.*sign|opposite|-1|minus")(changed("dW_1", lambda g, *a: -g))
slip(BACK, "db_1")(changed("db_1", lambda g, *a: 0 * g))
slip(BACK, "dx")(changed("dx", lambda g, dy, *a: g + dy))
slip(BACK, "dx")(changed("dx", lambda g, *a: 2 * g))
slip(BACK, "dW_2|factor|2|twice")(changed("dW_2", lambda g, *a: g / 2))
slip(BACK, "dW_1")(changed("dW_1", lambda g, dy, x, *a: g / x.shape[1]))
slip(BACK, "slope|mask|unit|off")(
    lambda dy, x, W1, b1, W2, b2: (
        lambda z: (
            ((dy @ W2.T) * z) @ W1.T,
            np.einsum("bti,btj->ij", x, (dy @ W2.T) * z),
            ((dy @ W2.T) * z).sum((0, 1)),
            np.einsum("bti,btj->ij", relu(z), dy),
            dy.sum((0, 1)),
        )
    )(x @ W1 + b1)
)
slip(BACK, "slope|mask|unit|off|b_1|bias")(
    lambda dy, x, W1, b1, W2, b2: (
        lambda z: (
            ((dy @ W2.T) * (x @ W1 > 0)) @ W1.T,
            np.einsum("bti,btj->ij", x, (dy @ W2.T) * (x @ W1 > 0)),
            ((dy @ W2.T) * (x @ W1 > 0)).sum((0, 1)),
            np.einsum("bti,btj->ij", relu(z), dy),
            dy.sum((0, 1)),
        )
    )(x @ W1 + b1)
)
slip(BACK, "slope|mask|unit|on|off")(
    lambda dy, x, W1, b1, W2, b2: (
        lambda z: (
            ((dy @ W2.T) * (z < 0)) @ W1.T,
            np.einsum("bti,btj->ij", x, (dy @ W2.T) * (z < 0)),
            ((dy @ W2.T) * (z < 0)).sum((0, 1)),
            np.einsum("bti,btj->ij", relu(z), dy),
            dy.sum((0, 1)),
        )
    )(x @ W1 + b1)
)
slip(BACK, "return")(lambda *args: [walked(*args)] and None)
slip(BACK, "dW_1|sentence|batch")(
    changed("dW_1", lambda g, dy, x, W1, b1, W2, b2: walked(dy[:1], x[:1], W1, b1, W2, b2)[1])
)
slip(BACK, "dW_2")(
    changed("dW_2", lambda g, dy, x, W1, b1, W2, b2: np.einsum("btf,btd->fd", (x @ W1 + b1 > 0) * 1.0, dy))
)


# --- layer_norm.forward -----------------------------------------------------------------------------

NORM = "layer_norm.forward"


def along(x, f):
    return f(x, axis=-1, keepdims=True)


@right(NORM)
def norm_classic(x, gamma, beta, eps=1e-5):
    mu, var = along(x, np.mean), along(x, np.var)
    return gamma * ((x - mu) / np.sqrt(var + eps)) + beta


each(
    right(NORM),
    lambda x, g, b, e: np.array(
        [[g * (r - r.mean()) * (((r - r.mean()) ** 2).mean() + e) ** -0.5 + b for r in s] for s in x]
    ),
    lambda x, g, b, e: (
        (x - along(x, np.mean)) * g / np.sqrt(along(x**2, np.mean) - along(x, np.mean) ** 2 + e) + b
    ),
    lambda x, g, b, e: ((x.T - x.mean(-1).T) / np.sqrt(x.var(-1).T + e)).T * g + b,
    lambda x, g, b, e: np.apply_along_axis(
        lambda r: [
            gi * (v - sum(r) / len(r)) / math.sqrt(sum((u - sum(r) / len(r)) ** 2 for u in r) / len(r) + e)
            + bi
            for v, gi, bi in zip(r, g, b, strict=True)
        ],
        -1,
        x,
    ),
    partial(lambda flip, x, g, b, e: norm_classic(x, g, b, e) if not flip else None, False),
    lambda x, g, b, e: (
        (lambda c: c / np.sqrt(np.einsum("...d,...d->...", c, c)[..., None] / x.shape[-1] + e))(
            x - np.einsum("btd->bt", x)[..., None] / x.shape[2]
        )
        * g
        + b
    ),
)


def normed(centre=True, spread=lambda v, e: np.sqrt(v + e), scale=lambda xh, g, b: g * xh + b):
    def f(x, gamma, beta, eps):
        c = x - along(x, np.mean) if centre else x
        return scale(c / spread(along(x, np.var), eps), gamma, beta)

    return f


slip(NORM, "rms|mean")(lambda x, g, b, e: g * x / np.sqrt(along(x**2, np.mean) + e) + b)
slip(NORM, "mean|shift|centre")(normed(centre=False))
each(
    slip(NORM, "eps"),
    normed(spread=lambda v, e: np.sqrt(v)),
    normed(spread=lambda v, e: np.sqrt(v + 1e-5)),
    normed(spread=lambda v, e: np.sqrt(v + 1e-6)),
    normed(spread=lambda v, e: np.sqrt(v) + 1e-8),
    normed(spread=lambda v, e: np.sqrt(v + e**2)),
    normed(spread=lambda v, e: np.sqrt(v - e)),
)
slip(NORM, "gamma|beta")(normed(scale=lambda xh, g, b: g * (xh + b)))
slip(NORM, "gamma|beta")(normed(scale=lambda xh, g, b: b * xh + g))
slip(NORM, "gamma")(normed(scale=lambda xh, g, b: g**2 * xh + b))
slip(NORM, "gamma")(normed(scale=lambda xh, g, b: xh / g + b))
slip(NORM, "gamma")(normed(scale=lambda xh, g, b: g + xh + b))
slip(NORM, "gamma")(normed(scale=lambda xh, g, b: (1 + g) * xh + b))
slip(NORM, "beta")(normed(scale=lambda xh, g, b: g * xh - b))
slip(NORM, "gamma|beta|x̂|x_hat|normalised")(normed(scale=lambda xh, g, b: xh))
slip(NORM, "x.*added|residual|added.*x")(lambda x, g, b, e: x + norm_classic(x, g, b, e))
slip(NORM, "spread|var|root|divided")(normed(spread=lambda v, e: 1.0))
slip(NORM, "token|sentence|depend|positions|LN-AXIS|neighbour")(
    lambda x, g, b, e: g * (x - x.mean(1, keepdims=True)) / np.sqrt(along(x, np.var) + e) + b
)
slip(NORM, "mean|median|shift|centre|number.*each|row")(
    lambda x, g, b, e: g * (x - along(x, np.median)) / np.sqrt(along(x, np.var) + e) + b
)
slip(NORM, "AttributeError|attribute")(lambda x, g, b, e: x.normalise())
slip(NORM, "tuple")(lambda x, g, b, e: (norm_classic(x, g, b, e), along(x, np.mean)))


# --- layer_norm.backward ----------------------------------------------------------------------------

NBACK = "layer_norm.backward"


def norm_walk(dx):
    def f(dy, x, gamma, beta, eps):
        std = np.sqrt(along(x, np.var) + eps)
        xh = (x - along(x, np.mean)) / std
        return dx(dy * gamma, xh, std, gamma), np.sum(dy * xh, axis=(0, 1)), np.sum(dy, axis=(0, 1))

    return f


def full_dx(g, xh, s, gamma):
    return (g - along(g, np.mean) - xh * along(g * xh, np.mean)) / s


right(NBACK)(norm_walk(full_dx))
right(NBACK)(
    norm_walk(
        lambda g, xh, s, gamma: (
            (1 / g.shape[-1]) / s * (g.shape[-1] * g - along(g, np.sum) - xh * along(g * xh, np.sum))
        )
    )
)


@right(NBACK)
def norm_back_staged(dout, x, gamma, beta, eps):
    D = x.shape[-1]
    xmu = x - along(x, np.mean)
    ivar = 1.0 / np.sqrt(along(xmu**2, np.mean) + eps)
    dxhat = dout * gamma
    divar = along(dxhat * xmu, np.sum)
    dvar = -0.5 * ivar**3 * divar
    dxmu = dxhat * ivar + 2 * xmu * dvar / D
    dx = dxmu - along(dxmu, np.sum) / D
    return dx, (dout * xmu * ivar).reshape(-1, D).sum(0), dout.reshape(-1, D).sum(0)


slip(NBACK, "dx")(norm_walk(lambda g, xh, s, gamma: full_dx(g, xh, s, gamma) * s))
slip(NBACK, "dx")(norm_walk(lambda g, xh, s, gamma: full_dx(g, xh, s, gamma) / s))
slip(NBACK, "dx")(
    norm_walk(lambda g, xh, s, gamma: (g - along(g, np.mean) + xh * along(g * xh, np.mean)) / s)
)
slip(NBACK, "dx")(norm_walk(lambda g, xh, s, gamma: (g - along(g, np.sum) - xh * along(g * xh, np.sum)) / s))
slip(NBACK, "dx")(norm_walk(lambda g, xh, s, gamma: (g - along(g, np.mean) - xh * along(g, np.mean)) / s))
slip(NBACK, "dgamma")(
    lambda dy, x, g, b, e: (lambda r: (r[0], np.sum(dy * x, axis=(0, 1)), r[2]))(
        norm_walk(full_dx)(dy, x, g, b, e)
    )
)
slip(NBACK, "dgamma")(
    lambda dy, x, g, b, e: (lambda r: (r[0], r[1] * g, r[2]))(norm_walk(full_dx)(dy, x, g, b, e))
)
slip(NBACK, "dgamma|dbeta|order|exchanged")(lambda *a: (lambda r: (r[0], r[2], r[1]))(norm_walk(full_dx)(*a)))
slip(NBACK, "dbeta|mean|factor")(
    lambda dy, *a: (lambda r: (r[0], r[1], dy.mean((0, 1))))(norm_walk(full_dx)(dy, *a))
)
slip(NBACK, "axis|shape|\\(1, ")(
    lambda dy, *a: (lambda r: (r[0], r[1], r[2][None]))(norm_walk(full_dx)(dy, *a))
)
slip(NBACK, "eps|dx|dgamma")(lambda dy, x, g, b, e: norm_walk(full_dx)(dy, x, g, b, 0.0))
slip(NBACK, "3|outputs|dgamma")(lambda *a: norm_walk(full_dx)(*a)[0])


# --- softmax ----------------------------------------------------------------------------------------

SM = "softmax.forward"


def soft(s, axis=-1):
    e = np.exp(s - np.max(s, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


@right(SM)
def softmax_rows(scores):
    result = np.zeros_like(scores, dtype=float)
    for i, row in enumerate(scores):
        biggest = max(row)
        powers = [math.e ** (v - biggest) for v in row]
        result[i] = [p / math.fsum(powers) for p in powers]
    return result


each(
    right(SM),
    soft,
    lambda s: np.apply_along_axis(lambda r: np.exp(r - r.max()) / np.exp(r - r.max()).sum(), 1, s),
    lambda s: (lambda e: (e.T / e.sum(1)).T)(np.exp((s.T - s.max(1)).T)),
    lambda s: np.exp(s - s.max(1)[:, None] - np.log(np.exp(s - s.max(1)[:, None]).sum(1))[:, None]),
    lambda s: [[1 / sum(math.exp(min(b - a, 700)) for b in r) for a in r] for r in s],
    lambda s: np.vstack(list(map(soft, s))),
)
slip(SM, "maximum|largest|whole|far apart|row")(
    lambda s: (lambda e: e / e.sum(-1, keepdims=True))(np.exp(s - np.max(s)))
)
slip(SM, "maximum|largest|overflow|1000|finite")(lambda s: np.exp(s) / np.exp(s).sum(1)[:, None])
slip(SM, "base|log 2|0.69|scores times")(
    lambda s: (
        2.0 ** (s - s.max(1, keepdims=True)) / (2.0 ** (s - s.max(1, keepdims=True))).sum(1, keepdims=True)
    )
)
slip(SM, "log")(
    lambda s: s - s.max(1, keepdims=True) - np.log(np.exp(s - s.max(1, keepdims=True)).sum(1, keepdims=True))
)
slip(SM, "sum|row")(lambda s: np.exp(s - s.max(1, keepdims=True)))
slip(SM, "sigmoid|sum|row")(lambda s: 1 / (1 + np.exp(-s)))
slip(SM, "sign|-1|minus|smallest|opposite")(lambda s: soft(-s))
slip(SM, "largest|one|argmax|whole")(lambda s: np.eye(s.shape[1])[s.argmax(1)])
slip(SM, "transpos")(lambda s: soft(s).T)
slip(SM, "square|sum|row|twice|times")(lambda s: soft(s) ** 2)
slip(SM, "times|0.5|half|tempera")(lambda s: soft(s / 2))
slip(SM, "times|root|√")(lambda s: soft(s / math.sqrt(s.shape[1])))
slip(SM, "row")(lambda s: soft(s)[0])
slip(SM, "flat|shape|axis")(lambda s: soft(s).ravel())
slip(SM, "softmax|twice|sum|depend|row|scores")(lambda s: soft(soft(s)))
slip(SM, "argument|changed|place")(
    lambda s: np.divide(
        np.exp(np.subtract(s, s.max(1, keepdims=True), out=s), out=s), s.sum(1, keepdims=True), out=s
    )
)

SMB = "softmax.backward"
right(SMB)(lambda dp, p: p * (dp - np.sum(dp * p, axis=-1, keepdims=True)))
right(SMB)(lambda dp, p: np.stack([np.diagflat(r) @ g - r * (r @ g) for r, g in zip(p, dp, strict=True)]))
right(SMB)(
    lambda dp, p: np.einsum(
        "ni,nij->nj", dp, np.einsum("ni,ij->nij", p, np.eye(p.shape[1])) - np.einsum("ni,nj->nij", p, p)
    )
)


@right(SMB)
def softmax_back_loops(grad, prob):
    out = np.zeros_like(prob)
    for n, i, j in product(range(len(prob)), range(prob.shape[1]), range(prob.shape[1])):
        out[n, i] += grad[n, j] * prob[n, j] * ((i == j) - prob[n, i])
    return out


slip(SMB, "p . dp|p·dp|product|sum")(lambda dp, p: p * dp)
slip(SMB, "rows|factor")(lambda dp, p: p * (dp - (dp * p).sum(1, keepdims=True)) / len(p))
slip(SMB, "sign|-1|opposite")(lambda dp, p: p * ((dp * p).sum(1, keepdims=True) - dp))
slip(SMB, "sum|p|row")(lambda dp, p: dp - (dp * p).sum(1, keepdims=True))
slip(SMB, "mean|sum|row|shift|number")(lambda dp, p: p * (dp - dp.mean(1, keepdims=True)))
slip(SMB, "sum|row|shift|number")(lambda dp, p: p * (dp - dp.sum(1, keepdims=True)))
slip(SMB, "dp|not used|change")(lambda dp, p: p * (1 - p))
slip(SMB, "p|dp|arrived|same")(lambda dp, p: dp)
slip(SMB, "sign|sum|row|number|shift")(lambda dp, p: p * (dp + (dp * p).sum(1, keepdims=True)))
slip(SMB, "square|p|row|factor")(lambda dp, p: p * (dp - (dp * p).sum(1, keepdims=True)) * p)


# --- attention --------------------------------------------------------------------------------------

AT = "attention.forward"


def looked(
    scores_of=lambda q, k: q @ k.T / np.sqrt(q.shape[-1]),
    hide=lambda s, m: np.where(m, s, -1e9),
    soften=soft,
    mix=lambda w, v: w @ v,
):
    def f(q, k, v, mask=None):
        s = scores_of(q, k)
        if mask is not None:
            s = hide(s, mask)
        return mix(soften(s), v)

    return f


@right(AT)
def attention_query_by_query(Q, K, V, mask=None):
    out = np.zeros((len(Q), V.shape[1]))
    for i, query in enumerate(Q):
        seen = [j for j in range(len(K)) if mask is None or mask[i][j]]
        logits = [sum(a * b for a, b in zip(query, K[j], strict=True)) / math.sqrt(len(query)) for j in seen]
        top = max(logits)
        weights = [math.exp(s - top) for s in logits]
        for w, j in zip(weights, seen, strict=True):
            out[i] += w / sum(weights) * V[j]
    return out


def _masked_in_place(s, m):
    s = s.copy()
    s[~m] = float("-inf")
    return s


each(
    right(AT),
    looked(),
    looked(hide=_masked_in_place),
    looked(hide=lambda s, m: s + np.where(m, 0, -1e12)),
    looked(hide=lambda s, m: s - 1e9 * (1 - m)),
    looked(lambda q, k: (q * q.shape[1] ** -0.25) @ (k * k.shape[1] ** -0.25).T),
    looked(
        lambda q, k: np.einsum("id,jd->ij", q, k) / q.shape[1] ** 0.5,
        mix=lambda w, v: np.einsum("ij,jd->id", w, v),
    ),
    lambda q, k, v, mask=None: looked()(np.float32(q), np.float32(k), np.float32(v), mask),
    lambda q, k, v, mask=None: looked()(q, k, v, np.ones((len(q), len(k)), bool) if mask is None else mask),
    lambda query, key, value, mask=None: (lambda w: (w / w.sum(1, keepdims=True)) @ value)(
        soft(query @ key.T / math.sqrt(key.shape[1])) * (1 if mask is None else mask)
    ),
    lambda q, k, v, mask=None: np.array(
        [
            (lambda keep: soft(k[keep] @ row / math.sqrt(row.size)) @ v[keep])(
                slice(None) if mask is None else mask[i]
            )
            for i, row in enumerate(q)
        ]
    ),
)
slip(AT, "mask")(lambda q, k, v, mask=None: looked()(q, k, v))
slip(AT, "mask|argument")(lambda q, k, v: looked()(q, k, v))
slip(AT, "mask")(looked(hide=lambda s, m: s + m))
slip(AT, "mask|True")(looked(hide=lambda s, m: np.where(m, -1e9, s)))
slip(AT, "mask|True")(looked(hide=lambda s, m: np.where(m == 0, s, -1e9)))
slip(AT, "mask|hidden")(looked(hide=lambda s, m: np.where(m, s, 0)))
slip(AT, "mask|hidden")(looked(hide=lambda s, m: np.where(m, s, 1e-9)))
slip(AT, "mask|hidden")(looked(hide=lambda s, m: np.where(m, s, -1)))
slip(AT, "mask|hidden")(looked(hide=lambda s, m: s * m))
slip(AT, "mask|hidden|future|causal")(
    lambda q, k, v, mask=None: looked()(
        q, k, v, None if mask is None else np.tril(np.ones((len(q), len(k)), bool))
    )
)
slip(AT, "d_k|6|scale|size|times")(looked(lambda q, k: q @ k.T / math.sqrt(6)))
slip(AT, "d_k|8|scale|size|times")(looked(lambda q, k: q @ k.T / 8))
slip(AT, "d_k|T_k|scale|keys|times")(looked(lambda q, k: q @ k.T / math.sqrt(len(k))))
slip(AT, "d_k|scale|times")(looked(lambda q, k: q @ k.T / 2))
slip(AT, "sign|minus|times -|negative|opposite")(looked(lambda q, k: -q @ k.T / np.sqrt(q.shape[1])))
slip(AT, "maximum|largest|overflow|1000|finite")(
    looked(soften=lambda s: np.exp(s) / np.exp(s).sum(-1, keepdims=True))
)
slip(AT, "maximum|largest|whole|1000|far apart|finite")(
    looked(soften=lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum(-1, keepdims=True))
)
slip(AT, "quer|keys|axis|column|SM-AXIS")(looked(soften=partial(soft, axis=0)))
slip(AT, "softmax|sum|weights")(looked(soften=lambda s: s / s.sum(-1, keepdims=True)))
slip(AT, "weights")(looked(mix=lambda w, v: w))
slip(AT, "tuple")(looked(mix=lambda w, v: (w @ v, w)))
slip(AT, "transpos")(looked(mix=lambda w, v: (w @ v).T))
slip(AT, "sum|weights")(looked(soften=lambda s: np.exp(s - s.max(-1, keepdims=True))))
slip(AT, "v|values|mean|q|k|not used|change")(lambda q, k, v, mask=None: np.tile(v.mean(0), (len(q), 1)))
slip(AT, "softmax|weights|one|sum|quer")(looked(soften=lambda s: np.eye(s.shape[1])[s.argmax(1)]))
slip(AT, "sigmoid|sum|weights")(looked(soften=lambda s: 1 / (1 + np.exp(-s))))
slip(AT, "length|q|product|cosine|softmax|times|weights")(
    looked(
        lambda q, k: (
            (q / np.linalg.norm(q, axis=1, keepdims=True)) @ (k / np.linalg.norm(k, axis=1, keepdims=True)).T
        )
    )
)


# --- heads ------------------------------------------------------------------------------------------

SPLIT, MERGE = "heads.split", "heads.merge"
right(SPLIT)(lambda x, n_heads: np.einsum("bthd->bhtd", x.reshape(*x.shape[:2], n_heads, -1)))
right(SPLIT)(
    lambda x, h: np.array(
        [[s[:, i * s.shape[1] // h : (i + 1) * s.shape[1] // h] for i in range(h)] for s in x]
    )
)
right(SPLIT)(lambda x, h: np.moveaxis(x.reshape(x.shape[0], x.shape[1], h, x.shape[2] // h), 2, 1))
slip(SPLIT, "head|axis|order|transpos|AT-HEADS")(
    lambda x, h: x.reshape(x.shape[0], x.shape[1], x.shape[2] // h, h).transpose(0, 3, 1, 2)
)
slip(SPLIT, "axis|axes|transpos|order|head")(
    lambda x, h: x.reshape(*x.shape[:2], h, -1).transpose(2, 0, 1, 3)
)
slip(SPLIT, "head|axis|shape")(lambda x, h: x.reshape(*x.shape[:2], h, -1).transpose(0, 2, 1, 3)[:, 0])
slip(SPLIT, "head|revers|order")(lambda x, h: x.reshape(*x.shape[:2], h, -1).transpose(0, 2, 1, 3)[:, ::-1])
slip(SPLIT, "TypeError|whole|integer|float")(
    lambda x, h: x.reshape(*x.shape[:2], h, x.shape[2] / h).transpose(0, 2, 1, 3)
)
right(MERGE)(lambda x: np.transpose(x, (0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1))
right(MERGE)(lambda x: np.stack([np.hstack(tuple(s)) for s in x]))
right(MERGE)(lambda x: np.einsum("bhtd->bthd", x).reshape(len(x), x.shape[2], x.shape[1] * x.shape[3]))
slip(MERGE, "head|order|column|revers")(
    lambda x: x[:, ::-1].transpose(0, 2, 1, 3).reshape(len(x), x.shape[2], -1)
)
slip(MERGE, "order|column|head|entries")(lambda x: x.transpose(0, 2, 3, 1).reshape(len(x), x.shape[2], -1))
slip(MERGE, "sum|head|shape|side")(lambda x: x.sum(1))
slip(MERGE, "mean|head|shape|side")(lambda x: x.mean(1))
slip(MERGE, "axis|axes|shape")(lambda x: x.transpose(0, 2, 1, 3))
slip(MERGE, "axis|flat|shape")(lambda x: x.transpose(0, 2, 1, 3).reshape(-1, x.shape[1] * x.shape[3]))


# --- embedding --------------------------------------------------------------------------------------

EMB = "embedding.forward"
right(EMB)(lambda ids, E: np.array([[E[i] * math.sqrt(len(E[i])) for i in row] for row in ids]))
right(EMB)(lambda ids, table: table.take(ids, axis=0) * table.shape[1] ** 0.5)
right(EMB)(lambda ids, E: (np.arange(len(E)) == ids[..., None]) @ (E * np.sqrt(E.shape[-1])))
slip(EMB, "EMB|d_model|factor")(lambda ids, E: E[ids] * E.shape[1])
slip(EMB, "EMB|root|factor|d_model")(lambda ids, E: E[ids] / np.sqrt(E.shape[1]))
slip(EMB, "factor|root|vocabulary")(lambda ids, E: E[ids] * math.sqrt(E.shape[0]))
slip(EMB, "factor|root|22.6")(lambda ids, E: E[ids] * math.sqrt(512))
slip(EMB, "id|row|1|shift")(lambda ids, E: E[ids - 1] * math.sqrt(E.shape[1]))
slip(EMB, "added|constant|root")(lambda ids, E: E[ids] + math.sqrt(E.shape[1]))
slip(EMB, "position|row|depend|added|column")(
    lambda ids, E: (
        E[ids] * math.sqrt(E.shape[1]) + pe_stacked(ids.shape[1], E.shape[1] // 2 * 2 + 2)[:, : E.shape[1]]
    )
)
slip(EMB, "sum|axis|shape|token")(lambda ids, E: (E[ids] * math.sqrt(E.shape[1])).sum(1))
slip(EMB, "axis|flat|shape")(lambda ids, E: E[ids.ravel()] * math.sqrt(E.shape[1]))
slip(EMB, "IndexError|index|shape")(lambda ids, E: E[:, ids] * math.sqrt(E.shape[1]))


# --- cross-entropy ----------------------------------------------------------------------------------

CE = "cross_entropy.forward"


@right(CE)
def loss_by_rows(logits, targets):
    total = 0.0
    for row, t in zip(logits, targets, strict=True):
        m = row.max()
        total += m + math.log(sum(math.exp(v - m) for v in row)) - row[t]
    return total / len(targets)


def rows_of_loss(logits, targets, soften=soft):
    return -np.log(soften(logits)[np.arange(len(targets)), targets])


each(
    right(CE),
    lambda z, t: rows_of_loss(z, t).mean(),
    lambda z, t: -np.mean(np.log(np.take_along_axis(soft(z), t[:, None], 1))),
    lambda z, t: -(np.eye(z.shape[1])[t] * np.log(soft(z))).sum() / len(z),
    lambda z, t: np.mean(np.logaddexp.reduce(z, axis=1) - z[range(len(z)), t]),
    lambda z, t: np.array([rows_of_loss(z, t).mean()]).item(),
    lambda z, t: np.average(rows_of_loss(np.float32(z), t)),
    lambda z, t: -np.mean(np.log(soft(z)[np.arange(len(t)), t] + 1e-12)),
)
slip(CE, "sum|rows")(lambda z, t: rows_of_loss(z, t).sum())
slip(CE, "base|log 2|bits")(lambda z, t: rows_of_loss(z, t).mean() / math.log(2))
slip(CE, "base|log 10")(lambda z, t: -np.mean(np.log10(soft(z)[np.arange(len(t)), t])))
slip(CE, "sign")(lambda z, t: -rows_of_loss(z, t).mean())
slip(CE, "V|classes|factor")(lambda z, t: -(np.eye(z.shape[1])[t] * np.log(soft(z))).mean())
slip(CE, "mean|row|shape")(rows_of_loss)
slip(CE, "log|probab")(lambda z, t: soft(z)[np.arange(len(t)), t].mean())
slip(CE, "exp|perplex")(lambda z, t: np.exp(rows_of_loss(z, t).mean()))
slip(CE, "maximum|largest|overflow|1000|finite")(
    lambda z, t: np.mean(rows_of_loss(z, t, lambda s: np.exp(s) / np.exp(s).sum(1, keepdims=True)))
)
slip(CE, "maximum|largest|whole|1000|far apart|finite")(
    lambda z, t: np.mean(
        rows_of_loss(z, t, lambda s: np.exp(s - s.max()) / np.exp(s - s.max()).sum(1, keepdims=True))
    )
)
slip(CE, "log|mean")(lambda z, t: -np.log(soft(z)[np.arange(len(t)), t].mean()))
slip(CE, "axis|column|SM-AXIS|rows|depend|shift")(
    lambda z, t: np.mean(rows_of_loss(z, t, partial(soft, axis=0)))
)
slip(CE, "softmax|twice|CE-DOUBLE")(lambda z, t: rows_of_loss(soft(z), t).mean())
slip(CE, "tuple")(lambda z, t: (rows_of_loss(z, t).mean(), soft(z) - np.eye(z.shape[1])[t]))
slip(CE, "target|class|change")(lambda z, t: -np.log(soft(z).max(1)).mean())
slip(CE, "factor|half|2")(lambda z, t: rows_of_loss(z, t).mean() / 2)
slip(CE, "target|class|1")(lambda z, t: rows_of_loss(z, (t + 1) % z.shape[1]).mean())
slip(CE, "axis|shape")(lambda z, t: rows_of_loss(z, t).mean(keepdims=True))
slip(CE, "first|last|row|change|depend")(lambda z, t: rows_of_loss(z, t)[-1])


# --- a block ----------------------------------------------------------------------------------------

BLOCK = "block.forward"


@right(BLOCK)
def block_plain(x, attend, norm_1, ffn, norm_2):
    x = norm_1(x + attend(x))
    x = norm_2(x + ffn(x))
    return x


right(BLOCK)(lambda x, att, n1, ff, n2: (lambda h: n2(np.add(ff(h), h)))(n1(np.sum([att(x), x], axis=0))))
for word, f in (
    ("residual|x|added", lambda x, a, n1, f, n2: n2(f(n1(a(x))))),
    ("residual|x|added", lambda x, a, n1, f, n2: (lambda h: n2(h + f(h)))(n1(a(x)))),
    ("residual|added", lambda x, a, n1, f, n2: n2(f(n1(x + a(x))))),
    ("residual|x", lambda x, a, n1, f, n2: n2(x + f(n1(x + a(x))))),
    ("norm", lambda x, a, n1, f, n2: (lambda h: n1(h + f(h)))(n2(x + a(x)))),
    ("norm_2", lambda x, a, n1, f, n2: (lambda h: n1(h + f(h)))(n1(x + a(x)))),
    ("norm", lambda x, a, n1, f, n2: (lambda h: h + f(h))(x + a(x))),
    ("norm_1", lambda x, a, n1, f, n2: (lambda h: n2(h + f(h)))(x + a(x))),
    ("norm_2", lambda x, a, n1, f, n2: (lambda h: h + f(h))(n1(x + a(x)))),
    ("norm", lambda x, a, n1, f, n2: (lambda h: h + n2(f(h)))(x + n1(a(x)))),
    ("attend|order|first", lambda x, a, n1, f, n2: (lambda h: n2(h + a(h)))(n1(x + f(x)))),
    ("ffn|attend|order|x", lambda x, a, n1, f, n2: n2(n1(x + a(x)) + f(x))),
    ("ffn|norm_2|never|called", lambda x, a, n1, f, n2: n1(x + a(x))),
    ("attend|never|called", lambda x, a, n1, f, n2: n2(x + f(x))),
    ("twice|added|residual", lambda x, a, n1, f, n2: (lambda h: n2(h + f(h)) + h)(n1(x + a(x)))),
    ("attend|twice|called", lambda x, a, n1, f, n2: (lambda h: n2(h + f(h)))(n1(x + a(a(x))))),
    ("minus|sign|norm|residual|attend", lambda x, a, n1, f, n2: (lambda h: n2(h + f(h)))(n1(x - a(x)))),
    ("return", lambda x, a, n1, f, n2: [n2(x + f(x))] and None),
):
    slip(BLOCK, word)(f)
