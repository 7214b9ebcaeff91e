"""Backward passes that are wrong in one place each, with the leaves whose gradient the mistake spoils.

Where a mistake sits inside an operation, the operation is a small pair written here from the textbook, so
that the checker is tested without the package's own layers. Where it sits around one (heads, residuals,
batches), the package's right backward pass is bent. A mistake is a piece of the right backward pass as it is,
and as somebody writes it.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from npformer.attention import (
    AttentionParams,
    causal_mask,
    multi_head_attention_backward,
    multi_head_attention_forward,
)
from npformer.encoder import (
    TransformerConfig,
    encoder_block_backward,
    encoder_block_forward,
    init_encoder_block,
)
from npformer.feed_forward import FFNParams, ffn_backward, ffn_forward
from npformer.functional import dropout_backward, dropout_forward
from npformer.tree import tree_map

rng = np.random.default_rng(20170612)
normal = rng.standard_normal

B, T, d, h = 2, 3, 4, 2


class Bug(NamedTuple):
    forward: Callable[..., Any]
    right: Callable[..., Any]
    wrong: Callable[..., Any]
    args: tuple[Any, ...]
    spoils: set[str]


BUGS: dict[str, Bug] = {}


def plant(
    operation: str, forward: Any, backward: Any, args: Any, bugs: dict[str, tuple[str, str, str]]
) -> None:
    """A bug: what is wrong; the leaves it spoils, a piece of backward's source, what stands in its place."""
    source = inspect.getsource(backward)
    for name, (spoils, piece, written) in bugs.items():
        assert source.count(piece) == 1, name
        there = dict(globals())
        exec(source.replace(piece, written), there)
        wrong = there[backward.__name__]
        BUGS[f"{operation}: {name}"] = Bug(forward, backward, wrong, args, set(spoils.split()))


def mean(x: Any, axis: int = -1) -> Any:
    return x.mean(axis=axis, keepdims=True)


def rows_sum(x: Any) -> Any:
    return x.sum(axis=tuple(range(x.ndim - 1)))


def weight_gradient(x: Any, dy: Any) -> Any:
    return x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])


# Layer norm


def norm(x: Any, gamma: Any, beta: Any) -> Any:
    std = np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    x_hat = (x - mean(x)) / std
    return x_hat * gamma + beta, (x, x_hat, std, gamma)


def norm_backward(dy: Any, cache: Any) -> Any:
    x, x_hat, std, gamma = cache  # noqa: RUF059  # mistakes need x
    g = dy * gamma
    dx = (g - mean(g) - x_hat * mean(g * x_hat)) / std
    return dx, rows_sum(dy * x_hat), rows_sum(dy)


plant("layer norm", norm, norm_backward, (normal((B, T, d)), normal(d), normal(d)), {
    "the mean term is missing": ("x", "g - mean(g)", "g"),
    "the variance term is missing": ("x", " - x_hat * mean(g * x_hat)", ""),
    "gamma outside the means": (
        "x", "(g - mean(g) - x_hat * mean(g * x_hat))", "gamma * (dy - mean(dy) - x_hat * mean(dy * x_hat))"
    ),
    "another eps, 1e-6 for 1e-5": ("x", "/ std", "/ np.sqrt(x.var(-1, keepdims=True) + 1e-6)"),
    "eps outside the root": ("x", "/ std", "/ (x.std(-1, keepdims=True) + 1e-5)"),
    "the variance divided by d - 1": ("x", "/ std", "/ np.sqrt(x.var(-1, ddof=1, keepdims=True) + 1e-5)"),
    "dgamma from x in place of x̂": ("gamma", "rows_sum(dy * x_hat)", "rows_sum(dy * x)"),
    "dgamma without x̂": ("gamma", "rows_sum(dy * x_hat)", "rows_sum(dy)"),
})  # fmt: skip
plant("layer norm", norm, norm_backward, (normal((1, 256)), normal(256), normal(256)), {
    "the x̂ term is missing, 256 wide, where it is small": ("x", " - x_hat * mean(g * x_hat)", ""),
})  # fmt: skip


# The feed-forward network, with d_ff = d_model so that a forgotten transpose has the right shape


def network(x: Any, W_1: Any, b_1: Any, W_2: Any, b_2: Any) -> Any:
    z = x @ W_1 + b_1
    return np.maximum(z, 0) @ W_2 + b_2, (x, z, W_1, W_2)


def network_backward(dy: Any, cache: Any) -> Any:
    x, z, W_1, W_2 = cache
    hidden = np.maximum(z, 0)
    dhidden = dy @ W_2.T
    dz = dhidden * (z > 0)
    dW_1, db_1 = weight_gradient(x, dz), rows_sum(dz)
    dW_2, db_2 = weight_gradient(hidden, dy), rows_sum(dy)
    dx = dz @ W_1.T
    return dx, dW_1, db_1, dW_2, db_2


NETWORK_ARGS = normal((B, T, d)), normal((d, d)), normal(d), normal((d, d)), normal(d)
plant("ffn", network, network_backward, NETWORK_ARGS, {
    "the mask is taken from the gradient": ("x W_1 b_1", "(z > 0)", "(dhidden > 0)"),
    "the mask is taken from x": ("x W_1 b_1", "(z > 0)", "(x > 0)"),
    "the mask is missing": ("x W_1 b_1", " * (z > 0)", ""),
    "the activation in place of the mask": ("x W_1 b_1", "(z > 0)", "hidden"),
    "dW_2 from the pre-activation": ("W_2", "weight_gradient(hidden", "weight_gradient(z"),
    "db_1 before the mask": ("b_1", "rows_sum(dz)", "rows_sum(dhidden)"),
    "W_2 is not transposed": ("x W_1 b_1", "W_2.T", "W_2"),
    "W_1 is not transposed": ("x", "W_1.T", "W_1"),
    "dW_1 is transposed": ("W_1", "weight_gradient(x, dz)", "weight_gradient(dz, x)"),
    "db_2 is averaged over the rows": ("b_2", "rows_sum(dy)", "rows_sum(dy) / (B * T)"),
    "db_2 is summed over the batch only": ("b_2", "rows_sum(dy)", "dy.sum(axis=0)"),
    "db_2 is one number": ("b_2", "rows_sum(dy)", "dy.sum()"),
    "dW_1 from the last batch item only": (
        "W_1", "weight_gradient(x, dz)", "weight_gradient(x[-1], dz[-1])"
    ),
    "everything divided by the batch size": ("x W_1 b_1 W_2 b_2", "= cache", "= cache; dy = dy / B"),
    "the gradients in another order": (
        "W_1 b_1 W_2 b_2", "dx, dW_1, db_1, dW_2, db_2", "dx, dW_2, db_2, dW_1, db_1"
    ),
})  # fmt: skip


# GELU


def gelu(z: Any) -> Any:
    cdf = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    return z * cdf, (z, cdf)


def gelu_backward(dy: Any, cache: Any) -> Any:
    z, cdf = cache
    return dy * (cdf + z * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))


def tanh_gelu(z: Any) -> Any:
    return 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))), z


def tanh_gelu_backward(dy: Any, z: Any) -> Any:
    a, b = math.sqrt(2 / math.pi), 0.044715
    t = np.tanh(a * (z + b * z**3))
    return dy * 0.5 * (1 + t + z * (1 - t**2) * a * (1 + 3 * b * z**2))


Z = (normal((B, T, d)),)
plant("gelu", tanh_gelu, tanh_gelu_backward, Z, {
    "√(2/π) wrong in its fifth digit": ("z", "math.sqrt(2 / math.pi)", "0.79789"),
    "0.044715 wrong in its fifth digit": ("z", "0.044715", "0.044716"),
})  # fmt: skip
plant("gelu", gelu, gelu_backward, Z, {
    "the tanh form's derivative for the exact one": (
        "z", "dy * (cdf + z * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))", "tanh_gelu_backward(dy, z)"
    ),
    "z φ(z) is missing": ("z", "(cdf + z * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))", "cdf"),
    "φ without its 1/√(2π)": ("z", " / math.sqrt(2 * math.pi)", ""),
})  # fmt: skip


# Softmax, and attention with a causal mask


def softmax(scores: Any) -> Any:
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    y = e / e.sum(axis=-1, keepdims=True)
    return y, y


def softmax_backward(dy: Any, y: Any) -> Any:
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


plant("softmax", softmax, softmax_backward, (normal((B, T, T)),), {
    "the diagonal for the whole Jacobian": ("scores", "(dy * y).sum(axis=-1, keepdims=True)", "dy * y"),
    "the row's sum is missing": ("scores", " - (dy * y).sum(axis=-1, keepdims=True)", ""),
    "the sum over columns": ("scores", "axis=-1", "axis=-2"),
})  # fmt: skip


def attend(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    weights, _ = softmax(np.where(causal_mask(q.shape[-2]), scores, -np.inf))
    return weights @ v, (q, k, v, weights)


def attend_backward(dy: Any, cache: Any) -> Any:
    q, k, v, weights = cache
    dv = weights.mT @ dy
    dscores = softmax_backward(dy @ v.mT, weights) / math.sqrt(d)
    dq = dscores @ k
    dk = dscores.mT @ q
    return dq, dk, dv


QKV = normal((B, T, d)), normal((B, T, d)), normal((B, T, d))
plant("attention", attend, attend_backward, QKV, {
    "1/√d_k is missing in dq": ("q", "dscores @ k", "dscores @ k * math.sqrt(d)"),
    "1/√d_k is missing in dk": ("k", "dscores.mT @ q", "dscores.mT @ q * math.sqrt(d)"),
    "the mask is forgotten on the way back": (
        "q k", "v.mT, weights", "v.mT, softmax(q @ k.mT / math.sqrt(d))[0]"
    ),
    "dv from weights that are not transposed": ("v", "weights.mT", "weights"),
    "dk from scores that are not transposed": ("k", "dscores.mT", "dscores"),
    "dk and dv are exchanged": ("k v", "return dq, dk, dv", "return dq, dv, dk"),
})  # fmt: skip


# Heads


def heads(q: Any, k: Any, v: Any, params: Any) -> Any:
    return multi_head_attention_forward(q, k, v, params, n_heads=h)


def heads_backward(dy: Any, cache: Any) -> Any:
    *inputs, g = multi_head_attention_backward(dy, cache)
    return *inputs, g


HEADS_ARGS = (*QKV, AttentionParams(*normal((4, d, d)), *normal((4, d))))
plant("heads", heads, heads_backward, HEADS_ARGS, {
    "the gradients of two heads are swapped": (
        "params.W_Q", "*inputs, g\n", "*inputs, g._replace(W_Q=np.roll(g.W_Q, d // h, axis=1))"
    ),
    "dW_O is transposed": ("params.W_O", "*inputs, g\n", "*inputs, g._replace(W_O=g.W_O.T)"),
    "db_K is that of b_Q, where it should be zero": (
        "params.b_K", "*inputs, g\n", "*inputs, g._replace(b_K=g.b_Q)"
    ),
    "db_K is a millionth of that of b_V": (
        "params.b_K", "*inputs, g\n", "*inputs, g._replace(b_K=1e-6 * g.b_V)"
    ),
    "db_O is forgotten": ("params.b_O", "*inputs, g\n", "*inputs, g._replace(b_O=np.zeros(d))"),
})  # fmt: skip


# Embedding


def embed(ids: Any, E: Any) -> Any:
    return E[ids] * math.sqrt(E.shape[1]), (ids, E)


def embed_backward(dy: Any, cache: Any) -> Any:
    ids, E = cache
    dE = np.zeros_like(E)
    np.add.at(dE, ids, dy * math.sqrt(d))
    return dE


plant("embedding", embed, embed_backward, (np.array([[1, 2, 1], [0, 1, 4]]), normal((5, d))), {
    "a repeated id overwrites what was there": (
        "E", "np.add.at(dE, ids, dy * math.sqrt(d))", "dE[ids] += dy * math.sqrt(d)"
    ),
    "√d_model is missing": ("E", " * math.sqrt(d)", ""),
    "the rows by order of appearance": ("E", "return dE", "return dE[[1, 2, 0, 4, 3]]"),
})  # fmt: skip


# Residuals and blocks


def residual(x: Any, params: Any) -> Any:
    y, cache = ffn_forward(x, params, activation="gelu")
    return x + y, cache


def residual_backward(dy: Any, cache: Any) -> Any:
    dx, grads = ffn_backward(dy, cache)
    dx = dx + dy
    return dx, grads


RESIDUAL_ARGS = normal((B, T, d)), FFNParams(normal((d, 5)), normal(5), normal((5, d)), normal(d))
RESIDUAL = residual, residual_backward, RESIDUAL_ARGS
plant("residual", *RESIDUAL, {
    "counted twice": ("x", "dx + dy", "dx + 2 * dy"),
    "forgotten": ("x", "dx + dy", "dx"),
    "the sub-layer gets half of it": (
        "x params.W_1 params.b_1 params.W_2 params.b_2", "ffn_backward(dy", "ffn_backward(dy / 2"
    ),
})  # fmt: skip
plant("batch", *RESIDUAL, {"its items are exchanged": ("x", "return dx", "return dx[::-1]")})
plant("positions", *RESIDUAL, {"shifted by one": ("x", "return dx", "return np.roll(dx, 1, axis=-2)")})


def block_backward(dy: Any, cache: Any) -> Any:
    dx, grads = encoder_block_backward(dy, cache)
    return dx, grads


CONFIG = TransformerConfig(d_model=d, d_ff=6, n_heads=h, activation="gelu", dropout=0.0)
BLOCK_PARAMS = tree_map(lambda x: x + normal(x.shape) / 2, init_encoder_block(CONFIG, rng))
plant("block", encoder_block_forward, block_backward, (normal((B, T, d)), BLOCK_PARAMS, CONFIG), {
    "the gradients of its two norms are exchanged": (
        "params.norm_1.gamma params.norm_1.beta params.norm_2.gamma params.norm_2.beta",
        "return dx, grads", "return dx, grads._replace(norm_1=grads.norm_2, norm_2=grads.norm_1)",
    ),
    "one entry of one weight is off by a ten-millionth": (
        "params.ffn.W_1",
        "return dx", "W_1 = grads.ffn.W_1; W_1[2, 3] += 1e-7 * abs(W_1).max(); return dx",
    ),
})  # fmt: skip


# Dropout, and a loss: one number


def drop(x: Any, generator: np.random.Generator) -> Any:
    return dropout_forward(x, 0.5, generator)


def drop_backward(dy: Any, cache: Any) -> Any:
    return dropout_backward(dy, cache)


plant("dropout", drop, drop_backward, (normal((B, T, d)), np.random.default_rng(1)), {
    "1/(1 - rate) is missing": ("x", "dropout_backward(dy, cache)", "dy * cache.keep"),
    "another mask on the way back": (
        "x", "dy, cache)\n", "dy, cache._replace(keep=np.random.default_rng(2).random(dy.shape) < 0.5))"
    ),
})  # fmt: skip


def loss(logits: Any, targets: Any) -> Any:
    y, _ = softmax(logits)
    return -np.log(np.take_along_axis(y, targets[:, None], axis=-1)).mean(), (y, targets)


def loss_backward(dloss: Any, cache: Any) -> Any:
    y, targets = cache
    return dloss * (y - np.eye(y.shape[-1])[targets]) / len(targets)


plant("loss", loss, loss_backward, (normal((T, 5)), np.array([0, 4, 2])), {
    "a sum in place of the mean": ("logits", " / len(targets)", ""),
    "dloss is taken for 1": ("logits", "return dloss * ", "return "),
    "the target's one is not subtracted": ("logits", "(y - np.eye(y.shape[-1])[targets])", "y"),
})  # fmt: skip
