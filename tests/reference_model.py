"""The whole model once more, forward only and for complex numbers: a gradient reference without differences.

Written from the papers, apart from the package: no import of it, one position, one head and one row at a
time where that is plainer. For an analytic f, Im f(x + ih) / h is f'(x) with an error of O(h²) and nothing
to cancel, so h may be 1e-30 and the slope is as good as f itself (Squire and Trapp, "Using Complex
Variables to Estimate Derivatives of Real Functions", 1998).
"""

import math

import numpy as np

STEP = 1e-30
erf = np.vectorize(math.erf, otypes=[float])


def complex_direction(function, tree, path, direction):
    """The slope of φ along a direction in one leaf."""
    return function(replaced(tree, path, lambda leaf: leaf + 1j * STEP * direction)).imag / STEP


def replaced(tree, path, change):
    if not path:
        return change(tree)
    branches = list(tree)
    branches[path[0]] = replaced(branches[path[0]], path[1:], change)
    return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)


def paths(tree):
    """The way to every array of a tree."""
    if isinstance(tree, tuple):
        return [(i, *rest) for i, branch in enumerate(tree) for rest in paths(branch)]
    return [] if tree is None else [()]


# One function for one line of the papers


def relu(z):
    return np.where(z.real > 0, z, 0)


def gelu(z):
    """z Φ(z); Φ of a + ib for a b of 1e-30 is Φ(a) + ib φ(a)."""
    a, b = z.real, z.imag
    cdf = (1 + erf(a / math.sqrt(2))) / 2
    return z * (cdf + 1j * b * np.exp(-a * a / 2) / math.sqrt(2 * math.pi))


def softmax_row(scores):
    e = np.exp(scores - scores.real.max())
    return e / e.sum()


def layer_norm(x, p, eps):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return p.gamma * centred / np.sqrt(variance + eps) + p.beta


def feed_forward(x, p, activation):
    act = {"relu": relu, "gelu": gelu}[activation]
    return act(x @ p.W_1 + p.b_1) @ p.W_2 + p.b_2


def turned(x):
    """RoPE: at position t the pair of columns 2i and 2i + 1 is turned by the angle t · 10000^(-2i/d)."""
    T, d = x.shape
    y = np.empty(x.shape, complex)
    for t in range(T):
        for i in range(0, d, 2):
            angle = t * 10000.0 ** (-i / d)
            y[t, i] = x[t, i] * math.cos(angle) - x[t, i + 1] * math.sin(angle)
            y[t, i + 1] = x[t, i] * math.sin(angle) + x[t, i + 1] * math.cos(angle)
    return y


def slope_of_head(head, n_heads):
    """ALiBi's m for a power of two of heads."""
    return 2.0 ** (-8 * (head + 1) / n_heads)


def heads(q_in, kv_in, p, n_heads, mask, positions):
    """q_in (T_q, d), kv_in (T_k, d), mask (T_q, T_k): every head and query by itself."""
    q, k, v = q_in @ p.W_Q, kv_in @ p.W_K, kv_in @ p.W_V
    if p.b_Q is not None:
        q = q + p.b_Q
    if p.b_K is not None:
        k = k + p.b_K
    if p.b_V is not None:
        v = v + p.b_V
    d_k = q.shape[1] // n_heads
    out = np.zeros((len(q), q.shape[1]), complex)
    for head in range(n_heads):
        part = slice(head * d_k, (head + 1) * d_k)
        q_h, k_h = q[:, part], k[:, part]
        if positions == "rope":
            q_h, k_h = turned(q_h), turned(k_h)
        for i in range(len(q)):
            allowed = np.flatnonzero(mask[i])
            scores = k_h[allowed] @ q_h[i] / math.sqrt(d_k)
            if positions == "alibi":
                scores = scores - slope_of_head(head, n_heads) * abs(i - allowed)
            if len(allowed):
                out[i, part] = softmax_row(scores) @ v[allowed, part]
    out = out @ p.W_O
    return out if p.b_O is None else out + p.b_O


def sub_layer(x, f, norm, config):
    """Post-norm: norm(x + f(x)); pre-norm: x + f(norm(x))."""
    if config.norm == "post":
        return layer_norm(x + f(x), norm, config.eps)
    return x + f(layer_norm(x, norm, config.eps))


def encoder_block(x, p, config, mask):
    at = lambda x: heads(x, x, p.attention, config.n_heads, mask, config.positions)  # noqa: E731
    x = sub_layer(x, at, p.norm_1, config)
    return sub_layer(x, lambda x: feed_forward(x, p.ffn, config.activation), p.norm_2, config)


def decoder_block(x, memory, p, config, mask, memory_mask):
    own = lambda x: heads(x, x, p.self_attention, config.n_heads, mask, config.positions)  # noqa: E731
    cross = lambda x: heads(x, memory, p.cross_attention, config.n_heads, memory_mask, "none")  # noqa: E731
    x = sub_layer(x, own, p.norm_1, config)
    x = sub_layer(x, cross, p.norm_2, config)
    return sub_layer(x, lambda x: feed_forward(x, p.ffn, config.activation), p.norm_3, config)


def finished(x, norm, config):
    return x if norm is None else layer_norm(x, norm, config.eps)


def encoder(x, p, config, mask):
    for block in p.blocks:
        x = encoder_block(x, block, config, mask)
    return finished(x, p.norm, config)


def decoder(x, memory, p, config, mask, memory_mask):
    for block in p.blocks:
        x = decoder_block(x, memory, block, config, mask, memory_mask)
    return finished(x, p.norm, config)


def embedded(ids, E, table, config):
    T, d = len(ids), E.shape[1]
    x = E[ids] * math.sqrt(d)
    if table is not None:
        return x + table.P[:T]
    if config.positions == "sinusoidal":
        angle = [[t / 10000.0 ** (2 * (j // 2) / d) for j in range(d)] for t in range(T)]
        return x + np.where(np.arange(d) % 2, np.cos(angle), np.sin(angle))
    return x


def transformer(source_ids, target_ids, p, config, padding_id):
    """source_ids (B, S), target_ids (B, T) -> logits (B, T, vocab), one pair of sentences at a time."""
    logits = []
    for source, target in zip(source_ids, target_ids, strict=True):
        S, T, E = len(source), len(target), p.embedding.E
        read = np.array(source) != padding_id
        memory = encoder(
            embedded(source, E, p.source_positions, config), p.encoder, config, np.tile(read, (S, 1))
        )
        before = np.tri(T, dtype=bool) & (np.array(target) != padding_id)
        x = embedded(target, E, p.target_positions, config)
        y = decoder(x, memory, p.decoder, config, before, np.tile(read, (T, 1)))
        logits.append(y @ E.T)
    return np.array(logits)
