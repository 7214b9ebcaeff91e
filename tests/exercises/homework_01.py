"""Homework as students hand it in: right answers in odd dress, and wrong ones with one slip each.

Written from the texts of the tasks alone, before the checker or its other tests were looked at, with what a
teacher would say to each slip; the last word is what a reply has to contain. Changed since: words of one
letter are out; an option may be counted (one label); a p that is held above a small number before its
logarithm passes here, with a remark (two labels).
"""

import math
from fractions import Fraction

import numpy as np
from labelled import labels

HOMEWORK = []  # (exercise, "right", "variant", "remarked" or "wrong", word, function)
right, variant, remarked, slip = labels(HOMEWORK, "right", "variant", "remarked", "wrong")


# --- right, in odd dress --------------------------------------------------------------------------
@right("softmax.forward", "lists and math")
def softmax_by_lists(scores):
    result = []
    for row in scores:
        biggest = max(row)
        powers = [math.exp(value - biggest) for value in row]
        total = sum(powers)
        result.append([power / total for power in powers])
    return np.array(result)


@right("softmax.forward", "transposed there and back, with a tiny number under the fraction")
def softmax_transposed(scores):
    s = np.array(scores, dtype=np.float64).T
    e = np.exp(s - s.max(axis=0))
    return (e / (e.sum(axis=0) + 1e-12)).T


@right("softmax.forward", "by the logarithm, typed and asserted")
def softmax_by_log(scores: np.ndarray, dim: int = -1) -> np.ndarray:
    """Numerically stable softmax."""
    assert isinstance(scores, np.ndarray), "scores must be an array"
    shifted = scores - np.max(scores, axis=dim, keepdims=True)
    log_probs = shifted - np.log(np.sum(np.exp(shifted), axis=dim, keepdims=True))
    probs = np.exp(log_probs)
    assert np.allclose(probs.sum(axis=dim), 1.0)
    return probs


class Softmax:
    def __init__(self, axis=1):
        self.axis = axis

    def __call__(self, scores):
        out = scores.copy()
        for i in range(out.shape[0]):
            out[i] -= out[i].max()
            out[i] = np.exp(out[i])
            out[i] /= out[i].sum()
        return out


right("softmax.forward", "an object with __call__")(Softmax())


@right("embedding.forward", "one-hot product")
def embedding_one_hot(ids, E):
    vocabulary, d_model = E.shape
    one_hot = np.eye(vocabulary)[ids]
    return np.einsum("btv,vd->btd", one_hot, E) * d_model**0.5


@right("embedding.forward", "nested loops")
def embedding_loops(ids, E):
    B = len(ids)
    T = len(ids[0])
    d = len(E[0])
    out = np.empty((B, T, d))
    for b in range(0, B, 1):
        for t in range(0, T, 1):
            for j in range(0, d, 1):
                out[b][t][j] = E[ids[b][t]][j] * math.sqrt(d)
    return out


right("embedding.forward", "a lambda with take")(
    lambda ids, E: np.take(E, ids, axis=0) * np.sqrt(E.shape[-1])
)


@right("mask.causal", "two loops")
def mask_by_loops(T):
    mask = np.zeros((T, T), dtype=bool)
    for i in range(T):
        for j in range(i + 1):
            mask[i, j] = True
    return mask


@right("mask.causal", "not above the diagonal, as one writes it for PyTorch")
def mask_from_triu(T):
    return ~np.triu(np.ones((T, T)), k=1).astype(bool)


@right("mask.causal", "a list of lists of True and False")
def mask_nested_list(T):
    return [[key <= query for key in range(T)] for query in range(T)]


@right("sample.temperature", "row by row with a helper")
def temperature_rows(logits, temperature=1.0):
    def one(row):
        z = row / temperature
        z = z - np.amax(z)
        return np.exp(z) / np.exp(z).sum()

    return np.stack([one(row) for row in logits])


@right("sample.temperature", "logsumexp by logaddexp.reduce")
def temperature_logaddexp(logits, temperature):
    z = np.divide(logits, temperature)
    return np.exp(z - np.logaddexp.reduce(z, axis=1)[:, None])


@right("pe.table", "the usual exp/log text")
def table_exp_log(n, d_model):
    pe = np.zeros((n, d_model))
    position = np.arange(0, n)[:, np.newaxis]
    div_term = np.exp(np.arange(0, d_model, 2) * -(np.log(10000.0) / d_model))
    pe[:, 0::2] = np.sin(position * div_term)
    pe[:, 1::2] = np.cos(position * div_term)
    return pe


@right("pe.table", "cell by cell with an if, as in Java")
def table_cells(n: int, d_model: int) -> np.ndarray:
    table = [[0.0 for _ in range(d_model)] for _ in range(n)]
    for pos in range(n):
        for column in range(d_model):
            if column % 2 == 0:
                table[pos][column] = math.sin(pos / math.pow(10000, column / d_model))
            else:
                table[pos][column] = math.cos(pos / math.pow(10000, (column - 1) / d_model))
    return np.array(table)


@right("pe.table", "a complex number turns")
def table_complex(n, d_model):
    turn = 10000.0 ** (-2 * np.arange(d_model // 2) / d_model)
    z = np.exp(1j * np.outer(np.arange(n), turn))
    return np.stack([z.imag, z.real], axis=-1).reshape(n, d_model)


@right("pe.table", "cosine as a shifted sine")
def table_phase(n, d_model):
    column = np.arange(d_model)
    angle = np.arange(n)[:, None] / np.power(10000, 2 * (column // 2) / np.float32(d_model))
    return np.sin(angle + (column % 2) * np.pi / 2)


@variant("pe.table", "all sines, then all cosines")
def table_halves_given(n, d_model):
    half = d_model // 2
    freq = np.power(10000.0, -np.arange(half) / half)
    args = np.arange(n)[:, None] * freq[None, :]
    return np.concatenate((np.sin(args), np.cos(args)), axis=1)


@right("ffn.forward", "column vectors, token by token")
def ffn_columns(x, W_1, b_1, W_2, b_2):
    y = np.zeros_like(x)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            h = W_1.T @ x[b, t].reshape(-1, 1) + b_1.reshape(-1, 1)
            h[h < 0] = 0
            y[b, t] = (W_2.T @ h + b_2.reshape(-1, 1)).ravel()
    return y


@right("ffn.forward", "einsum and a ReLU by absolute value")
def ffn_einsum_abs(x, W_1, b_1, W_2, b_2):
    z = np.einsum("bpd,df->bpf", x, W_1) + b_1
    return np.einsum("bpf,fd->bpd", (z + np.abs(z)) / 2, W_2) + b_2


@right("ffn.forward", "float32")
def ffn_float32(x, W_1, b_1, W_2, b_2):
    x, W_1, b_1, W_2, b_2 = (a.astype(np.float32) for a in (x, W_1, b_1, W_2, b_2))
    hidden = np.where(x @ W_1 + b_1 > 0, x @ W_1 + b_1, 0)
    return hidden @ W_2 + b_2


@right("layer_norm.forward", "E[x^2] - E[x]^2")
def norm_moments(x, gamma, beta, eps=1e-5):
    mean = x.mean(-1)
    var = (x * x).mean(-1) - mean * mean
    return gamma * ((x - mean[..., None]) / np.sqrt(var + eps)[..., None]) + beta


@right("layer_norm.forward", "three loops")
def norm_loops(x, gamma, beta, eps):
    out = np.array(x)
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            mu = sum(x[b, t]) / len(x[b, t])
            sigma2 = sum((v - mu) ** 2 for v in x[b, t]) / len(x[b, t])
            for j in range(x.shape[2]):
                out[b, t, j] = gamma[j] * (x[b, t, j] - mu) / math.sqrt(sigma2 + eps) + beta[j]
    return out


@right("heads.split", "np.split and stack")
def split_by_split(x, n_heads):
    return np.stack(np.split(x, n_heads, axis=-1), axis=1)


@right("heads.split", "slices in a list")
def split_slices(x, n_heads):
    width = x.shape[-1] // n_heads
    return np.array([[batch[:, h * width : (h + 1) * width] for h in range(n_heads)] for batch in x])


@right("heads.merge", "concatenate the heads")
def merge_concatenate(x):
    return np.concatenate([x[:, h] for h in range(x.shape[1])], axis=-1)


@right("heads.merge", "swapaxes and reshape with -1")
def merge_swap(x):
    b, _h, t, _k = x.shape
    return np.swapaxes(x, 1, 2).reshape(b, t, -1)


@right("cross_entropy.forward", "a python loop, a plain float")
def loss_loop(logits, targets):
    total = 0
    for i in range(len(targets)):
        row = logits[i] - max(logits[i])
        total += math.log(sum(math.exp(v) for v in row)) - row[targets[i]]
    return float(total / len(targets))


@right("cross_entropy.forward", "one-hot")
def loss_one_hot(logits, targets):
    N, V = logits.shape
    y = np.zeros((N, V))
    y[range(N), targets] = 1
    m = logits.max(1, keepdims=True)
    log_p = logits - m - np.log(np.exp(logits - m).sum(1, keepdims=True))
    return -(y * log_p).sum(axis=1).mean()


@right("block.forward", "names as in a PyTorch module")
def block_torch_names(x, attend, norm_1, ffn, norm_2):
    residual = x
    x = attend(x)
    x = norm_1(residual + x)
    residual = x
    x = ffn(x)
    return norm_2(residual + x)


@right("loss.smoothed", "a matrix of targets")
def smoothed_matrix(logits, targets, epsilon=0.1):
    n_classes = logits.shape[1]
    q = np.full(logits.shape, epsilon / n_classes)
    for n, t in enumerate(targets):
        q[n, t] += 1 - epsilon
    z = logits - logits.max(axis=1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    return np.mean(np.sum(-q * log_p, axis=1))


@right("rms_norm.forward", "norm over root d")
def rms_linalg(x, gamma, eps):
    d = x.shape[-1]
    rms = np.sqrt(np.linalg.norm(x, axis=-1, keepdims=True) ** 2 / d + eps)
    return x / rms * gamma


@right("gate.forward", "helper inside, sigmoid by tanh")
def gate_tanh(x, W_gate, W_up, W_down):
    def silu(a):
        return a * 0.5 * (1 + np.tanh(a / 2))

    return np.matmul(np.multiply(silu(np.matmul(x, W_gate)), np.matmul(x, W_up)), W_down)


@right("sample.top_p", "a while loop over the sorted tokens")
def nucleus_while(p, share):
    order = sorted(range(len(p)), key=lambda i: -p[i])
    kept, total = [], 0.0
    while total < share and len(kept) < len(p):
        kept.append(order[len(kept)])
        total += p[kept[-1]]
    new = [0.0] * len(p)
    for i in kept:
        new[i] = p[i] / total
    return np.array(new)


@right("sample.top_p", "cumulative sum before each token")
def nucleus_cumsum(p, share):
    idx = np.argsort(p)[::-1]
    before = np.cumsum(p[idx]) - p[idx]
    q = p.copy()
    q[idx[before >= share]] = 0
    q /= q.sum()
    return q


@right("mask.kept", "ones beside a triangle")
def kept_hstack(n, kept):
    return np.hstack([np.ones((n, kept), bool), np.tril(np.ones((n, n), bool))])


@right("mask.kept", "the last rows of the whole triangle")
def kept_rows(n, kept):
    full = np.tril(np.ones((kept + n, kept + n)))
    return full[kept:, :] == 1


@right("softmax.backward", "the Jacobian of each row")
def softmax_jacobian(dp, p):
    ds = np.zeros(p.shape)
    for r in range(p.shape[0]):
        s = p[r].reshape(-1, 1)
        jacobian = np.diagflat(s) - np.dot(s, s.T)
        ds[r] = jacobian @ dp[r]
    return ds


@right("attention.forward", "minus a billion, softmax inside")
def attention_billion(q, k, v, mask=None):
    d_k = q.shape[-1]
    scores = np.matmul(q, k.T) / math.sqrt(d_k)
    if mask is not None:
        scores = np.where(mask == 0, -1e9, scores)
    scores = scores - scores.max(axis=-1, keepdims=True)
    attn = np.exp(scores)
    attn = attn / attn.sum(axis=-1, keepdims=True)
    return np.matmul(attn, v)


@right("attention.forward", "query by query")
def attention_per_query(q, k, v, mask=None, dropout=None, verbose=False):
    y = []
    for i in range(q.shape[0]):
        s = [q[i] @ k[j] / q.shape[1] ** 0.5 for j in range(k.shape[0])]
        allowed = [j for j in range(k.shape[0]) if mask is None or mask[i][j]]
        top = max(s[j] for j in allowed)
        w = {j: math.exp(s[j] - top) for j in allowed}
        z = sum(w.values())
        y.append(sum(w[j] / z * v[j] for j in allowed))
    return np.array(y)


@right("rope.forward", "complex numbers")
def rope_complex(x):
    T, d = x.shape
    z = x[:, ::2] + 1j * x[:, 1::2]
    z = z * np.exp(1j * np.arange(T)[:, None] / 10000 ** (np.arange(0, d, 2) / d))
    out = np.empty_like(x)
    out[:, ::2], out[:, 1::2] = z.real, z.imag
    return out


@right("rope.forward", "a 2 by 2 matrix for each pair")
def rope_matrices(x):
    y = np.zeros(x.shape)
    for p in range(x.shape[0]):
        for i in range(x.shape[1] // 2):
            a = p / 10000 ** (2 * i / x.shape[1])
            R = np.array([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]])
            y[p, 2 * i : 2 * i + 2] = R @ x[p, 2 * i : 2 * i + 2]
    return y


@right("adam.step", "the paper's other form: the step size carries the corrections")
def adam_by_dict(w, g, m, v, t, learning_rate):
    hp = {"b1": 0.9, "b2": 0.98, "eps": 1e-9}
    m = m + (1 - hp["b1"]) * (g - m)
    v = v + (1 - hp["b2"]) * (g**2 - v)
    m_hat, v_hat = m / (1 - hp["b1"] ** t), v / (1 - hp["b2"] ** t)
    return w - learning_rate * m_hat / (np.sqrt(v_hat) + hp["eps"]), m, v


@right("rope.attention", "helpers rot and softmax")
def rope_attention_helpers(q, k, v):
    def rot(a):
        T, d = a.shape
        angle = np.outer(np.arange(T), 10000.0 ** (-np.arange(0, d, 2) / d))
        even, odd = a[:, 0::2], a[:, 1::2]
        turned = np.dstack(
            (even * np.cos(angle) - odd * np.sin(angle), even * np.sin(angle) + odd * np.cos(angle))
        )
        return turned.reshape(T, d)

    s = rot(q) @ rot(k).T / np.sqrt(q.shape[1])
    w = np.exp(s - s.max(1)[:, None])
    return (w / w.sum(1)[:, None]) @ v


@right("attention.grouped", "repeat")
def grouped_repeat(q, k, v):
    rep = q.shape[0] // k.shape[0]
    k, v = k.repeat(rep, axis=0), v.repeat(rep, axis=0)
    s = np.einsum("hqd,hkd->hqk", q, k) / q.shape[-1] ** 0.5
    s = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hqk,hkv->hqv", s / s.sum(-1, keepdims=True), v)


@right("attention.grouped", "reshape to groups")
def grouped_reshape(q, k, v):
    h, T_q, d_k = q.shape
    g = k.shape[0]
    q5 = q.reshape(g, h // g, T_q, d_k)
    s = q5 @ k[:, None].transpose(0, 1, 3, 2) * d_k**-0.5
    w = np.exp(s - s.max(axis=-1, keepdims=True))
    w /= w.sum(axis=-1, keepdims=True)
    return (w @ v[:, None]).reshape(h, T_q, -1)


@right("ffn.backward", "flattened, a list returned")
def ffn_grads_flat(dy, x, W_1, b_1, W_2, b_2):
    X = x.reshape(-1, x.shape[-1])
    dY = dy.reshape(-1, dy.shape[-1])
    A = np.maximum(0, X @ W_1 + b_1)
    dA = dY @ W_2.T
    dA[A <= 0] = 0
    return [(dA @ W_1.T).reshape(x.shape), X.T @ dA, dA.sum(0), A.T @ dY, dY.sum(0)]


@right("layer_norm.backward", "the chain through variance and mean, step by step")
def norm_grads_chain(dy, x, gamma, beta, eps):
    D = x.shape[-1]
    mu = x.mean(-1, keepdims=True)
    xmu = x - mu
    var = (xmu**2).mean(-1, keepdims=True)
    inv = 1 / np.sqrt(var + eps)
    dxhat = dy * gamma
    dvar = np.sum(dxhat * xmu, -1, keepdims=True) * -0.5 * inv**3
    dmu = -np.sum(dxhat * inv, -1, keepdims=True) + dvar * np.mean(-2 * xmu, -1, keepdims=True)
    dx = dxhat * inv + dvar * 2 * xmu / D + dmu / D
    return dx, np.sum(dy * xmu * inv, axis=(0, 1)), dy.sum(axis=(0, 1))


# --- wrong, one slip each -------------------------------------------------------------------------
# helpers a student has from an earlier exercise
def _soft(s, axis=-1):
    e = np.exp(s - s.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def _turn(a, sign=1, base=10000.0, first=0):
    T, d = a.shape
    angle = sign * np.outer(np.arange(first, T + first), base ** (-np.arange(0, d, 2) / d))
    out = np.empty_like(a)
    out[:, 0::2] = a[:, 0::2] * np.cos(angle) - a[:, 1::2] * np.sin(angle)
    out[:, 1::2] = a[:, 0::2] * np.sin(angle) + a[:, 1::2] * np.cos(angle)
    return out


@slip("softmax.forward", "return too early: other rows stay zero", "row")
def softmax_other_rows_zero(scores):
    out = np.zeros_like(scores)
    for i in range(scores.shape[0]):
        e = np.exp(scores[i] - scores[i].max())
        out[i] = e / e.sum()
        return out


@slip("softmax.forward", "keepdims forgotten", "shape|broadcast|keepdims|axis|axes")
def softmax_no_keepdims(scores):
    e = np.exp(scores - scores.max(axis=1, keepdims=True))
    return e / e.sum(axis=1)


@slip(
    "softmax.forward",
    "clipped so that nothing overflows: large scores come out alike",
    "large|1000|clip|differ",
)
def softmax_clipped(scores):
    e = np.exp(np.clip(scores, -50, 50))
    return e / e.sum(axis=1, keepdims=True)


@slip("softmax.forward", "divided by plain sum, no exponential", "exp|negative")
def softmax_plain_share(scores):
    s = scores - scores.min(axis=1, keepdims=True)
    return s / s.sum(axis=1, keepdims=True)


@slip("embedding.forward", "positions added, not asked", "position|added|add")
def embedding_with_positions(ids, E):
    x = E[ids] * np.sqrt(E.shape[1])
    return x + table_exp_log(x.shape[1], x.shape[2])


@slip("pe.table", "precedence: 10000 ** 2 * i / d", "exponent|power|bracket|parenthes|speed|frequenc|angle")
def table_precedence(n, d_model):
    pe = np.zeros((n, d_model))
    for pos in range(n):
        for i in range(d_model // 2):
            pe[pos, 2 * i] = np.sin(pos / 10000**2 * i / d_model)
            pe[pos, 2 * i + 1] = np.cos(pos / 10000**2 * i / d_model)
    return pe


@slip(
    "pe.table", "integer division // in the exponent: all pairs turn alike", "same|speed|alike|exponent|pair"
)
def table_integer_division(n, d_model):
    pe = np.zeros((n, d_model))
    for pos in range(n):
        for i in range(0, d_model, 2):
            pe[pos, i] = math.sin(pos / 10000 ** (i // d_model))
            pe[pos, i + 1] = math.cos(pos / 10000 ** (i // d_model))
    return pe


@slip("pe.table", "position and width exchanged in the fraction", "shape|position|transpos")
def table_roles_exchanged(n, d_model):
    pe = np.zeros((d_model, n))
    for pos in range(d_model):
        for i in range(0, n, 2):
            pe[pos, i] = math.sin(pos / 10000 ** (i / n))
            if i + 1 < n:
                pe[pos, i + 1] = math.cos(pos / 10000 ** (i / n))
    return pe


@slip("pe.table", "math.sin of an array", "TypeError|one number|array|scalar|float")
def table_math_sin(n, d_model):
    pos = np.arange(n)[:, None]
    i = np.arange(0, d_model, 2)
    pe = np.zeros((n, d_model))
    pe[:, 0::2] = math.sin(pos / 10000 ** (i / d_model))
    pe[:, 1::2] = math.cos(pos / 10000 ** (i / d_model))
    return pe


@slip("ffn.forward", "max(0, array): the comparison of an array", "max|ambiguous|truth|array")
def ffn_builtin_max(x, W_1, b_1, W_2, b_2):
    return max(0, x @ W_1 + b_1) @ W_2 + b_2


@slip("ffn.forward", "np.max for np.maximum", "max")
def ffn_np_max(x, W_1, b_1, W_2, b_2):
    return np.max(0, x @ W_1 + b_1) @ W_2 + b_2


@slip("ffn.forward", "transposed weights: shapes do not fit", "shape|W_1|transpos")
def ffn_torch_weights(x, W_1, b_1, W_2, b_2):
    h = np.maximum(0, x @ W_1.T + b_1)
    return h @ W_2.T + b_2


@slip("ffn.forward", "ReLU on x, not on the hidden layer", "activation|before|relu|negative")
def ffn_relu_on_x(x, W_1, b_1, W_2, b_2):
    return (np.maximum(0, x) @ W_1 + b_1) @ W_2 + b_2


@slip("ffn.forward", "ReLU at the very end only", "output|negative|last|end")
def ffn_relu_last(x, W_1, b_1, W_2, b_2):
    return np.maximum(0, (x @ W_1 + b_1) @ W_2 + b_2)


@slip("layer_norm.forward", "batch norm: over batch and positions", "batch|positions|feature|token|axis")
def norm_batch(x, gamma, beta, eps):
    mu = x.mean(axis=(0, 1))
    var = x.var(axis=(0, 1))
    return gamma * (x - mu) / np.sqrt(var + eps) + beta


@slip("layer_norm.forward", "keepdims forgotten", "shape|broadcast|keepdims|axis|axes")
def norm_no_keepdims(x, gamma, beta, eps):
    return gamma * (x - x.mean(axis=-1)) / np.sqrt(x.var(axis=-1) + eps) + beta


@slip(
    "cross_entropy.forward",
    "binary cross-entropy over all classes",
    "binary|sigmoid|other classes|each class|softmax",
)
def loss_binary(logits, targets):
    y = np.eye(logits.shape[1])[targets]
    return np.mean(np.maximum(logits, 0) - logits * y + np.log1p(np.exp(-np.abs(logits))))


@remarked(
    "cross_entropy.forward",
    "p clipped before the log: a hopeless row is judged mildly",
    "clip|cap|bound|large|1e-|limit|1000|extreme|27",
)
def loss_clipped(logits, targets):
    p = np.clip(_soft(logits), 1e-12, 1.0)
    return -np.mean(np.log(p[np.arange(len(targets)), targets]))


@remarked(
    "cross_entropy.forward",
    "a small number inside the log",
    "clip|cap|bound|large|1e-|limit|1000|extreme|27|added",
)
def loss_log_eps(logits, targets):
    p = _soft(logits)
    return float(np.mean([-np.log(p[i, t] + 1e-10) for i, t in enumerate(targets)]))


@slip("cross_entropy.forward", "the negative likelihood without the log", "log")
def loss_no_log(logits, targets):
    return -_soft(logits)[np.arange(len(targets)), targets].mean()


@slip("cross_entropy.forward", "squared error of probabilities", "log|square")
def loss_squared(logits, targets):
    return np.mean((_soft(logits) - np.eye(logits.shape[1])[targets]) ** 2)


@slip("cross_entropy.forward", "entropy of the prediction, targets not used", "target")
def loss_entropy(logits, targets):
    p = _soft(logits)
    return -np.mean(np.sum(np.where(p > 0, p * np.log(p + 1e-300), 0), axis=1))


@slip("block.forward", "attend called with three arrays", "argument|attend|one array")
def block_three_arguments(x, attend, norm_1, ffn, norm_2):
    h = norm_1(x + attend(x, x, x))
    return norm_2(h + ffn(h))


@slip("loss.smoothed", "smooths the prediction, not the target", "prediction|target|log|probabilit|epsilon")
def smoothed_prediction(logits, targets, epsilon):
    V = logits.shape[1]
    p = (1 - epsilon) * _soft(logits) + epsilon / V
    return -np.mean(np.log(p[np.arange(len(targets)), targets]))


@slip("sample.top_p", "a threshold on each p", "share|together|token|each")
def nucleus_threshold(p, share):
    q = np.where(p >= 1 - share, p, 0)
    return q / q.sum() if q.any() else p / p.sum()


@slip("sample.top_p", "zeros are written into p itself", "chang|argument")
def nucleus_in_place(p, share):
    order = np.argsort(p)[::-1]
    total = 0
    for i in order:
        if total >= share:
            p[i] = 0
        total += p[i]
    p /= p.sum()
    return p


@slip("softmax.backward", "diagonal of the Jacobian only", "diagonal|other|Jacobian")
def dsoftmax_diagonal(dp, p):
    return dp * p * (1 - p)


@slip("softmax.backward", "summed over everything", "row|sum|everything|whole")
def dsoftmax_global(dp, p):
    return p * (dp - np.sum(dp * p))


@slip("softmax.backward", "softmax taken again", "softmax|again|scores")
def dsoftmax_again(dp, p):
    s = _soft(p)
    return s * (dp - (dp * s).sum(1, keepdims=True))


@slip("softmax.backward", "np.dot of dp and p: shapes", "shape|dot|fit")
def dsoftmax_dot(dp, p):
    return p * (dp - np.dot(dp, p))


@slip("attention.forward", "`if mask:` on an array", "truth|ambiguous|if|None|mask")
def attention_if_mask(q, k, v, mask=None):
    s = q @ k.T / np.sqrt(k.shape[-1])
    if mask:
        s = np.where(mask, s, -1e30)
    return _soft(s) @ v


@slip("attention.forward", "no scale", "scale|√d|divid|root|factor")
def attention_no_scale(q, k, v, mask=None):
    s = np.dot(q, k.transpose())
    if mask is not None:
        s[mask == False] = -np.inf  # noqa: E712
    return _soft(s) @ v


@slip("attention.forward", "a causal mask of its own", "causal|future|later|mask|earlier|look")
def attention_always_causal(q, k, v, mask=None):
    s = q @ k.T / np.sqrt(k.shape[1])
    tri = np.tril(np.ones(s.shape, dtype=bool))
    if mask is not None:
        tri = tri & mask
    return _soft(np.where(tri, s, -1e30)) @ v


@slip("attention.forward", "divided by d_k, the root is missing", "root|d_k|scale")
def attention_no_root(q, k, v, mask=None):
    s = q @ k.T / k.shape[-1]
    if mask is not None:
        s = np.where(mask, s, -np.inf)
    return _soft(s) @ v


@slip("rope.forward", "first half with second half (rotate_half)", "pair|half|neighbour|columns")
def rope_half(x):
    T, d = x.shape
    freq = 10000.0 ** (-np.arange(0, d, 2) / d)
    angle = np.outer(np.arange(T), freq)
    angle = np.concatenate([angle, angle], axis=1)
    rotated = np.concatenate([-x[:, d // 2 :], x[:, : d // 2]], axis=1)
    return x * np.cos(angle) + rotated * np.sin(angle)


@slip("adam.step", "m and v change in place", "chang|argument")
def adam_in_place(w, g, m, v, t, learning_rate):
    m *= 0.9
    m += 0.1 * g
    v *= 0.98
    v += 0.02 * g**2
    return w - learning_rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.98**t)) + 1e-9), m, v


@slip("adam.step", "g is averaged in without 1 - beta", "0.1|1 -|factor")
def adam_momentum(w, g, m, v, t, learning_rate):
    m = 0.9 * m + g
    v = 0.98 * v + 0.02 * g**2
    return w - learning_rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.98**t)) + 1e-9), m, v


@slip("attention.grouped", "scale by the number of heads", "scale|root|factor|d_k")
def grouped_scale(q, k, v):
    h, g = q.shape[0], k.shape[0]
    out = []
    for i in range(h):
        out.append(_soft(q[i] @ k[i // (h // g)].T / np.sqrt(h)) @ v[i // (h // g)])
    return np.array(out)


def _ffn_parts(dy, x, W_1, b_1, W_2):
    z = x @ W_1 + b_1
    h = np.maximum(0, z)
    dh = dy @ W_2.T
    return z, h, dh, dh * (z > 0)


@slip("ffn.backward", "everything divided by the batch", "factor|batch|divid|mean")
def dffn_batch_mean(dy, x, W_1, b_1, W_2, b_2):
    _z, h, _dh, dz = _ffn_parts(dy, x, W_1, b_1, W_2)
    m = x.shape[0]
    return (
        dz @ W_1.T,
        np.einsum("btd,btf->df", x, dz) / m,
        dz.sum((0, 1)) / m,
        np.einsum("btf,btd->fd", h, dy) / m,
        dy.sum((0, 1)) / m,
    )


@slip("ffn.backward", "mask from the gradient that arrives", "mask|sign|hidden")
def dffn_mask_gradient(dy, x, W_1, b_1, W_2, b_2):
    _z, h, dh, _ = _ffn_parts(dy, x, W_1, b_1, W_2)
    dz = np.where(dh > 0, dh, 0)
    return (
        dz @ W_1.T,
        np.einsum("btd,btf->df", x, dz),
        dz.sum((0, 1)),
        np.einsum("btf,btd->fd", h, dy),
        dy.sum((0, 1)),
    )


@slip("ffn.backward", "mask forgotten", "mask|ReLU|activation")
def dffn_no_mask(dy, x, W_1, b_1, W_2, b_2):
    _z, h, dh, _ = _ffn_parts(dy, x, W_1, b_1, W_2)
    return (
        dh @ W_1.T,
        np.einsum("btd,btf->df", x, dh),
        dh.sum((0, 1)),
        np.einsum("btf,btd->fd", h, dy),
        dy.sum((0, 1)),
    )


@slip("ffn.backward", "b_1 forgotten when z is computed again", "b_1|mask")
def dffn_no_b1(dy, x, W_1, b_1, W_2, b_2):
    _z, h, _dh, dz = _ffn_parts(dy, x, W_1, 0 * b_1, W_2)
    return (
        dz @ W_1.T,
        np.einsum("btd,btf->df", x, dz),
        dz.sum((0, 1)),
        np.einsum("btf,btd->fd", h, dy),
        dy.sum((0, 1)),
    )


@slip("ffn.backward", "dW_2 with z in place of the hidden layer", "dW_2|hidden")
def dffn_z_for_hidden(dy, x, W_1, b_1, W_2, b_2):
    z, _h, _dh, dz = _ffn_parts(dy, x, W_1, b_1, W_2)
    return (
        dz @ W_1.T,
        np.einsum("btd,btf->df", x, dz),
        dz.sum((0, 1)),
        np.einsum("btf,btd->fd", z, dy),
        dy.sum((0, 1)),
    )


@slip("ffn.backward", "x.T on three axes", "shape|transpos|axes|matmul")
def dffn_dot_t(dy, x, W_1, b_1, W_2, b_2):
    _z, h, _dh, dz = _ffn_parts(dy, x, W_1, b_1, W_2)
    return dz @ W_1.T, x.T @ dz, dz.sum((0, 1)), h.T @ dy, dy.sum((0, 1))


def _hat(x, eps):
    inv = 1 / np.sqrt(x.var(-1, keepdims=True) + eps)
    return (x - x.mean(-1, keepdims=True)) * inv, inv


@slip("layer_norm.backward", "mean and variance taken for constants", "mean|constant|variance|term|std")
def dnorm_direct(dy, x, gamma, beta, eps):
    h, inv = _hat(x, eps)
    return dy * gamma * inv, (dy * h).sum((0, 1)), dy.sum((0, 1))


@slip("layer_norm.backward", "gamma not in the means", "gamma|mean")
def dnorm_gamma_late(dy, x, gamma, beta, eps):
    h, inv = _hat(x, eps)
    d = dy - dy.mean(-1, keepdims=True) - h * (dy * h).mean(-1, keepdims=True)
    return gamma * inv * d, (dy * h).sum((0, 1)), dy.sum((0, 1))


@slip("layer_norm.backward", "gamma forgotten in dx", "gamma")
def dnorm_no_gamma(dy, x, gamma, beta, eps):
    h, inv = _hat(x, eps)
    d = dy - dy.mean(-1, keepdims=True) - h * (dy * h).mean(-1, keepdims=True)
    return inv * d, (dy * h).sum((0, 1)), dy.sum((0, 1))


@slip("layer_norm.backward", "dgamma and dbeta averaged", "factor|mean|sum|averag")
def dnorm_averaged(dy, x, gamma, beta, eps):
    h, inv = _hat(x, eps)
    g = dy * gamma
    dx = inv * (g - g.mean(-1, keepdims=True) - h * (g * h).mean(-1, keepdims=True))
    return dx, (dy * h).mean((0, 1)), dy.mean((0, 1))


@slip("layer_norm.backward", "not summed over the positions", "shape|sum|dgamma|axis")
def dnorm_batch_only(dy, x, gamma, beta, eps):
    h, inv = _hat(x, eps)
    g = dy * gamma
    dx = inv * (g - g.mean(-1, keepdims=True) - h * (g * h).mean(-1, keepdims=True))
    return dx, (dy * h).sum(0), dy.sum(0)


# --- numbers, letters and truth values -------------------------------------------------------------

R, W = "right", "wrong"
ANSWERS = [
    ("order.bag", "B)", R, ""),
    ("order.bag", "b.", R, ""),
    ("order.bag", "(b)", R, ""),
    ("order.bag", " b ", R, ""),
    ("order.bag", "Answer: b", R, ""),
    ("order.bag", "b) Nothing: shuffled words give shuffled outputs.", R, ""),
    ("order.bag", "Nothing: shuffled words give shuffled outputs.", R, ""),
    ("order.bag", "c", W, "harm"),
    ("order.bag", "2", R, "options may be counted from 1"),
    ("order.bag", 1, W, "letter"),
    ("order.bag", "", W, "letter"),
    ("order.bag", None, W, "letter"),
    ("order.bag", "e", W, "no such letter"),
    ("order.bag", ["b"], R, ""),
    ("order.trained", "FALSE", R, ""),
    ("order.trained", "false.", R, ""),
    ("order.trained", "no", R, "no"),
    ("order.trained", "F", R, ""),
    ("order.trained", np.False_, R, ""),
    ("order.trained", 0, R, "0 for False"),
    ("order.trained", "TRUE", W, "not trained"),
    ("block.mixing", "T", R, ""),
    ("block.mixing", "yes", R, ""),
    ("block.mixing", np.bool_(True), R, ""),
    ("block.mixing", 1, R, ""),
    ("block.mixing", "true, because the FFN works on each token alone", R, ""),
    ("block.mixing", "a", W, "True or False"),
    ("norm.axis", "b", W, "positions"),
    ("attention.axis", "A", W, "queries"),
    ("ffn.convolution", "b", W, "kernel"),
    ("pe.exp_log", "a", W, "no overflow"),
    ("decoder.forcing", "c", W, "t included"),
    ("pe.even", "the sine", R, ""),
    ("pe.pair", "3", R, ""),
    ("pe.pair", np.int64(3), R, ""),
    ("pe.pair", 3.0, R, ""),
    ("pe.pair", "i = 3", R, ""),
    ("pe.pair", 7 // 2, R, ""),
    ("pe.pair", 3.5, W, "half"),
    ("pe.pair", 4, W, "from 1"),
    ("pe.pair", 7, W, "column"),
    ("pe.pair", "three", W, "digits"),
    ("addition.vector", [2, 0, 3, 6], R, ""),
    ("addition.vector", "2, 0, 3, 6", R, ""),
    ("addition.vector", "[2 0 3 6]", R, ""),
    ("addition.vector", (2, 0, 3, 6), R, ""),
    ("addition.vector", np.array([[2, 0, 3, 6]]), R, ""),
    ("addition.vector", [2, -1, 3, 5], W, "position 0 is not zero"),
    ("addition.vector", [3, -1, 4, 5], W, "sine cosine swapped"),
    ("addition.vector", [3, 0, 4, 6], W, "1 everywhere"),
    ("addition.vector", [2, 0, 3], W, "length"),
    ("addition.vector", {2, 0, 3, 6}, W, "a set"),
    ("cost.scores", 10, W, "squared"),
    ("cost.scores", 20, W, "sum not product"),
    ("cost.scores", 55, W, "causal"),
    ("cost.scores", 90, W, "itself"),
    ("cost.scores", "10*10", R, "product"),
    ("cost.scores", "100 cells", R, ""),
    ("attention.width", 4096, W, "multiplied"),
    ("attention.width", 512, W, "whole"),
    ("attention.width", "64", R, ""),
    ("attention.width", 512 / 8, R, ""),
    ("attention.width", [64], R, ""),
    ("pe.entry", -0.666, R, ""),
    ("pe.entry", math.cos(2.3), R, ""),
    ("pe.entry", "-0,666", R, "comma"),
    ("pe.entry", np.float32(-0.666276), R, ""),
    ("pe.entry", math.sin(2.3), W, "sine"),
    ("pe.entry", math.cos(math.radians(2.3)), W, "degrees"),
    ("pe.entry", math.cos(23 / 10000**0.375), W, "own column"),
    ("pe.entry", math.cos(23 / 10000**0.75), W, "column for pair"),
    ("pe.entry", math.cos(23 / 10000**0.125), W, "2 missing"),
    ("pe.entry", math.cos(2.4), W, "counted from 1"),
    ("pe.entry", math.cos(2.2), W, "counted"),
    ("pe.entry", -0.67, W, "rounded"),
    ("pe.entry", 0.666, W, "sign"),
    ("pe.entry", math.cos(23), W, "no frequency"),
    ("pe.entry", math.cos(23 / 1000**0.25), W, "base"),
    ("pe.row", [0.141, -0.990, 0.139, 0.990, 0.006, 1.000], R, ""),
    ("pe.row", "0.141; -0.990; 0.139; 0.990; 0.006; 1.000", R, ""),
    ("pe.row", [0.141, 0.139, 0.006, -0.990, 0.990, 1.000], W, "halves"),
    ("pe.row", [0.052, 0.999, 0.002, 1.0, 0.0, 1.0], W, "degrees"),
    ("pe.row", [-0.990, 0.141, 0.990, 0.139, 1.0, 0.006], W, "swapped"),
    (
        "pe.row",
        [
            math.sin(2),
            math.cos(2),
            math.sin(2 / 10000 ** (1 / 3)),
            math.cos(2 / 10000 ** (1 / 3)),
            math.sin(2 / 10000 ** (2 / 3)),
            math.cos(2 / 10000 ** (2 / 3)),
        ],
        W,
        "position 2",
    ),
    ("pe.row", [0.14, -0.99, 0.14, 0.99, 0.01, 1.0], W, "rounded"),
    ("addition.scale", 16, R, ""),
    ("addition.scale", "sqrt(256)", R, ""),
    ("addition.scale", "√256", R, ""),
    ("addition.scale", 256, W, "root"),
    ("addition.scale", 1 / 16, W, "divide"),
    ("addition.scale", 128, W, "half"),
    ("addition.scale", math.log(256), W, "log"),
    ("ffn.token", [10, -5], R, ""),
    ("ffn.token", np.array([10.0, -5.0]), R, ""),
    ("ffn.token", [13, -14], W, "no relu"),
    ("ffn.token", [12, -6], W, "bias missing"),
    ("ffn.token", [10, 0], W, "relu at end"),
    ("ffn.token", [0, 6, 0], W, "hidden"),
    ("ffn.token", [-5, 10], W, "order"),
    ("cost.parameters", 2099712, R, ""),
    ("cost.parameters", "2,099,712", R, "thousands"),
    ("cost.parameters", "2 099 712", R, "thousands"),
    ("cost.parameters", 2097152, W, "biases"),
    ("cost.parameters", 1050624, W, "one matrix"),
    ("cost.parameters", 2099200, W, "one bias"),
    ("cost.parameters", 2.1e6, W, "rounded"),
    ("cost.parameters", 1048576, W, "one matrix"),
    ("cost.parameters", 2101248, W, "two b_1"),
    ("attention.scale", 8, R, ""),
    ("attention.scale", "8.00", R, ""),
    ("attention.scale", 22.63, W, "d_model"),
    ("attention.scale", 64, W, "root"),
    ("attention.scale", 0.125, W, "reciprocal"),
    ("attention.scale", 2.83, W, "root of heads"),
    ("attention.scale", math.sqrt(8), W, "heads"),
    ("attention.softmax", [0.125, 0.375, 0.5], R, ""),
    ("attention.softmax", "1/8, 3/8, 1/2", R, ""),
    ("attention.softmax", [Fraction(1, 8), Fraction(3, 8), Fraction(1, 2)], R, ""),
    ("attention.softmax", [0.0, 0.442, 0.558], W, "no exp"),
    ("attention.softmax", [0.035, 0.259, 0.705], W, "exp twice"),
    ("attention.softmax", [1, 3, 4], W, "not divided"),
    ("attention.softmax", [0.13, 0.38, 0.5], W, "rounded"),
    ("attention.softmax", [12.5, 37.5, 50], W, "percent"),
    ("attention.softmax", ["12.5%", "37.5%", "50%"], R, "percent"),
    ("attention.causal", 15, R, ""),
    ("attention.causal", 10, W, "diagonal"),
    ("attention.causal", 25, W, "all"),
    ("attention.causal", 20, W, "diagonal hidden"),
    ("attention.causal", 12.5, W, "half"),
    ("norm.token", [-3.025, 2.447, 5.683, -0.553], R, ""),
    ("norm.token", [-2.486, 2.387, 5.324, -0.613], W, "d-1"),
    ("norm.token", [-4.025, 0.447, 2.683, 0.447], W, "beta"),
    ("norm.token", [-0.342, 1.553, 4.342, -0.553], W, "gamma"),
    ("norm.token", [-0.8, 2.2, 4.2, -0.8], W, "variance"),
    ("norm.token", [-8, 3, 9, 0], W, "not divided"),
    ("norm.token", [3.683, 0.211, 10.155, 1.683], W, "mean not subtracted"),
    ("norm.token", [-1.342, -0.447, 1.342, 0.447], W, "gamma, beta"),
    ("backward.bias", [7, 4], R, ""),
    ("backward.bias", "[7, 4]", R, ""),
    ("backward.bias", [7 / 3, 4 / 3], W, "mean"),
    ("backward.bias", [3, 1, 7], W, "axis"),
    ("backward.bias", 11, W, "one number"),
    ("backward.bias", [[1, 2], [2, -1], [4, 3]], W, "not summed"),
    ("backward.bias", [[7, 4]], R, ""),
    ("backward.bias", [8, -6], W, "product"),
    ("backward.relu", [-5, 0, 4, 0], R, ""),
    ("backward.relu", [0, 2, 4, 3], W, "mask on gradient"),
    ("backward.relu", [2, 0, 3, 0], W, "forward"),
    ("backward.relu", [-10, 0, 12, 0], W, "times z"),
    ("backward.relu", [0, 0, 4, 0], W, "both"),
    ("backward.relu", [-5, 2, 4, 3], W, "no mask"),
    ("backward.relu", [1, 0, 1, 0], W, "mask only"),
    ("backward.relu", [0, 2, 0, 3], W, "inverted"),
    ("decoder.cells", 49, W, "source"),
    ("decoder.cells", 25, W, "target"),
    ("decoder.cells", 12, W, "sum"),
    ("decoder.cells", "7x5", R, ""),
    ("decoder.cells", 35, R, ""),
    ("search.pool", [5, 4], R, ""),
    ("search.pool", [5.5, 5], W, "padding"),
    ("search.pool", [3.75, 3], W, "divided by 4"),
    ("search.pool", [9, 6], W, "max"),
    ("search.pool", [2, 5], W, "first row"),
    ("search.pool", [15, 12], W, "sum"),
    ("search.pool", [3.5, 4, 7.5], W, "axis"),
    ("search.cosine", 0.877, R, ""),
    ("search.cosine", 31, W, "dot"),
    ("search.cosine", 0.123, W, "distance"),
    ("search.cosine", 0.502, W, "angle"),
    ("search.cosine", 28.7, W, "degrees"),
    ("search.cosine", 31 / 1250, W, "roots"),
    ("search.cosine", 0.88, W, "rounded"),
    ("search.cosine", 6.2, W, "one length"),
    ("gpu.waits", 20, R, ""),
    ("gpu.waits", 200, W, "each"),
    ("gpu.waits", 10, W, "interval"),
    ("gpu.waits", 21, W, "off by one"),
    ("gpu.waits", 19, W, "off by one"),
    ("modern.gate_width", 2048, R, ""),
    ("modern.gate_width", 1536, W, "half"),
    ("modern.gate_width", 3072, W, "same"),
    ("modern.gate_width", 4608, W, "up"),
    ("modern.gate_width", 1024, W, "third"),
    ("modern.gate_width", "2048", R, ""),
    ("pe.wavelength", 1000, R, ""),
    ("pe.wavelength", 6283.2, W, "2 pi twice"),
    ("pe.wavelength", 10000, W, "last exponent"),
    ("pe.wavelength", 3162.3, W, "7/8"),
    ("pe.wavelength", 0.001, W, "reciprocal"),
    ("pe.wavelength", 1, W, "fastest"),
    ("pe.wavelength", "1e3", R, ""),
    ("pe.shift", 0.05, R, ""),
    ("pe.shift", "0,05", R, "comma"),
    ("pe.shift", "1/20", R, "fraction"),
    ("pe.shift", 0.01, W, "one step"),
    ("pe.shift", 0.025, W, "half"),
    ("pe.shift", 2.865, W, "degrees"),
    ("pe.shift", 0.008, W, "turns"),
    ("pe.shift", 20, W, "reciprocal"),
    ("pe.shift", 3141.593, W, "multiplied"),
    ("loss.uniform", 6.908, R, ""),
    ("loss.uniform", math.log(1000), R, ""),
    ("loss.uniform", 9.966, W, "log2"),
    ("loss.uniform", 3, W, "log10"),
    ("loss.uniform", 0.001, W, "probability"),
    ("loss.uniform", -6.908, W, "sign"),
    ("loss.uniform", "ln(1000)", R, ""),
    ("loss.uniform", 0, W, "zero"),
    ("loss.uniform", "6.908 nats", R, ""),
    ("loss.uniform", 6.9, W, "rounded"),
    ("decoder.kept", 21, R, ""),
    ("decoder.kept", 36, W, "square"),
    ("decoder.kept", 15, W, "itself"),
    ("decoder.kept", 6, W, "one each"),
    ("decoder.kept", 91, W, "all again"),
    ("modern.kept_bytes", 6144, R, ""),
    ("modern.kept_bytes", "6,144", R, "thousands"),
    ("modern.kept_bytes", 3072, W, "values"),
    ("modern.kept_bytes", 24576, W, "query heads"),
    ("modern.kept_bytes", 1536, W, "numbers not bytes"),
    ("modern.kept_bytes", 1024, W, "blocks"),
    ("modern.kept_bytes", 12288, W, "8 bytes"),
    ("modern.kept_bytes", "6 KB", W, "unit"),
    ("modern.kept_bytes", 49152, W, "bits"),
    ("backward.softmax", [0.5, 2.25, -2.75], R, ""),
    ("backward.softmax", [1, 2.25, -1.5], W, "diagonal"),
    ("backward.softmax", [2, 3, -2], W, "p dp"),
    ("backward.softmax", [1, 9, -11], W, "no p"),
    ("backward.softmax", [-0.5, -2.25, 2.75], W, "sign"),
    ("backward.softmax", [-2, 1, -4], W, "plain sum"),
    ("backward.softmax", ["1/2", "9/4", "-11/4"], R, ""),
]
