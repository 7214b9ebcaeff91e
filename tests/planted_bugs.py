"""Backward passes that are wrong in one place each, with the leaves whose gradient the mistake spoils.

Where a mistake sits inside an operation, the operation is a small pair written here from the textbook, so
that the checker is tested without the package's own layers. Where it sits around one (heads, residuals,
batches), the package's right backward pass is bent.
"""

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
    name: str, pair: tuple[Callable[..., Any], Callable[..., Any]], args: tuple[Any, ...], spoils: str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(wrong: Callable[..., Any]) -> Callable[..., Any]:
        BUGS[name] = Bug(*pair, wrong, args, set(spoils.split()))
        return wrong

    return register


def rows_sum(x: Any) -> Any:
    return x.sum(axis=tuple(range(x.ndim - 1)))


def weight_gradient(x: Any, dy: Any) -> Any:
    return x.reshape(-1, x.shape[-1]).T @ dy.reshape(-1, dy.shape[-1])


# Layer norm


def norm_forward(x: Any, gamma: Any, beta: Any) -> Any:
    centred = x - x.mean(axis=-1, keepdims=True)
    std = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-5)
    return centred / std * gamma + beta, (x, centred / std, std, gamma)


def norm_dx(dy: Any, x_hat: Any, std: Any, gamma: Any) -> Any:
    g = dy * gamma
    return (g - g.mean(axis=-1, keepdims=True) - x_hat * (g * x_hat).mean(axis=-1, keepdims=True)) / std


def norm_backward(dy: Any, cache: Any) -> Any:
    _, x_hat, std, gamma = cache
    return norm_dx(dy, x_hat, std, gamma), rows_sum(dy * x_hat), rows_sum(dy)


NORM = norm_forward, norm_backward
NORM_ARGS = normal((B, T, d)), normal(d), normal(d)
WIDE_ARGS = normal((1, 256)), normal(256), normal(256)


@plant("layer norm: the mean term is missing", NORM, NORM_ARGS, "x")
def _(dy: Any, cache: Any) -> Any:
    _, x_hat, std, gamma = cache
    g = dy * gamma
    return (g - x_hat * (g * x_hat).mean(axis=-1, keepdims=True)) / std, *norm_backward(dy, cache)[1:]


@plant("layer norm: the variance term is missing", NORM, NORM_ARGS, "x")
@plant("layer norm: the x̂ term is missing, 256 wide, where it is small", NORM, WIDE_ARGS, "x")
def _(dy: Any, cache: Any) -> Any:
    _, _, std, gamma = cache
    g = dy * gamma
    return (g - g.mean(axis=-1, keepdims=True)) / std, *norm_backward(dy, cache)[1:]


@plant("layer norm: gamma outside the means", NORM, NORM_ARGS, "x")
def _(dy: Any, cache: Any) -> Any:
    _, x_hat, std, gamma = cache
    return norm_dx(dy, x_hat, std, np.ones_like(gamma)) * gamma, *norm_backward(dy, cache)[1:]


@plant("layer norm: another eps, 1e-6 for 1e-5", NORM, NORM_ARGS, "x")
def _(dy: Any, cache: Any) -> Any:
    x, x_hat, _, gamma = cache
    return norm_dx(dy, x_hat, np.sqrt(x.var(-1, keepdims=True) + 1e-6), gamma), *norm_backward(dy, cache)[1:]


@plant("layer norm: eps outside the root", NORM, NORM_ARGS, "x")
def _(dy: Any, cache: Any) -> Any:
    x, x_hat, _, gamma = cache
    return norm_dx(dy, x_hat, x.std(-1, keepdims=True) + 1e-5, gamma), *norm_backward(dy, cache)[1:]


@plant("layer norm: the variance divided by d - 1", NORM, NORM_ARGS, "x")
def _(dy: Any, cache: Any) -> Any:
    x, x_hat, _, gamma = cache
    std = np.sqrt(x.var(axis=-1, ddof=1, keepdims=True) + 1e-5)
    return norm_dx(dy, x_hat, std, gamma), *norm_backward(dy, cache)[1:]


@plant("layer norm: dgamma from x in place of x̂", NORM, NORM_ARGS, "gamma")
def _(dy: Any, cache: Any) -> Any:
    dx, _, dbeta = norm_backward(dy, cache)
    return dx, rows_sum(dy * cache[0]), dbeta


@plant("layer norm: dgamma without x̂", NORM, NORM_ARGS, "gamma")
def _(dy: Any, cache: Any) -> Any:
    dx, _, dbeta = norm_backward(dy, cache)
    return dx, dbeta, dbeta


# The feed-forward network, with d_ff = d_model so that a forgotten transpose has the right shape


def relu_network(x: Any, W_1: Any, b_1: Any, W_2: Any, b_2: Any) -> Any:
    z = x @ W_1 + b_1
    return np.maximum(z, 0) @ W_2 + b_2, (x, z, W_1, W_2)


def relu_network_backward(dy: Any, cache: Any) -> Any:
    x, z, W_1, W_2 = cache
    return network_gradients(dy, x, np.maximum(z, 0), dy @ W_2.T * (z > 0), W_1)


def network_gradients(dy: Any, x: Any, hidden: Any, dz: Any, W_1: Any) -> Any:
    return dz @ W_1.T, weight_gradient(x, dz), rows_sum(dz), weight_gradient(hidden, dy), rows_sum(dy)


NETWORK = relu_network, relu_network_backward
NETWORK_ARGS = normal((B, T, d)), normal((d, d)), normal(d), normal((d, d)), normal(d)


@plant("ffn: the mask is taken from the gradient", NETWORK, NETWORK_ARGS, "x W_1 b_1")
def _(dy: Any, cache: Any) -> Any:
    x, z, W_1, W_2 = cache
    dhidden = dy @ W_2.T
    return network_gradients(dy, x, np.maximum(z, 0), dhidden * (dhidden > 0), W_1)


@plant("ffn: the mask is taken from x", NETWORK, NETWORK_ARGS, "x W_1 b_1")
def _(dy: Any, cache: Any) -> Any:
    x, z, W_1, W_2 = cache
    return network_gradients(dy, x, np.maximum(z, 0), dy @ W_2.T * (x > 0), W_1)


@plant("ffn: the mask is missing", NETWORK, NETWORK_ARGS, "x W_1 b_1")
def _(dy: Any, cache: Any) -> Any:
    x, z, W_1, W_2 = cache
    return network_gradients(dy, x, np.maximum(z, 0), dy @ W_2.T, W_1)


@plant("ffn: the activation in place of the mask", NETWORK, NETWORK_ARGS, "x W_1 b_1")
def _(dy: Any, cache: Any) -> Any:
    x, z, W_1, W_2 = cache
    return network_gradients(dy, x, np.maximum(z, 0), dy @ W_2.T * np.maximum(z, 0), W_1)


@plant("ffn: dW_2 from the pre-activation", NETWORK, NETWORK_ARGS, "W_2")
def _(dy: Any, cache: Any) -> Any:
    dx, dW_1, db_1, _, db_2 = relu_network_backward(dy, cache)
    return dx, dW_1, db_1, weight_gradient(cache[1], dy), db_2


@plant("ffn: db_1 before the mask", NETWORK, NETWORK_ARGS, "b_1")
def _(dy: Any, cache: Any) -> Any:
    dx, dW_1, _, dW_2, db_2 = relu_network_backward(dy, cache)
    return dx, dW_1, rows_sum(dy @ cache[3].T), dW_2, db_2


@plant("ffn: W_2 is not transposed", NETWORK, NETWORK_ARGS, "x W_1 b_1")
def _(dy: Any, cache: Any) -> Any:
    x, z, W_1, W_2 = cache
    return relu_network_backward(dy, (x, z, W_1, W_2.T))[:3] + relu_network_backward(dy, cache)[3:]


@plant("ffn: W_1 is not transposed", NETWORK, NETWORK_ARGS, "x")
def _(dy: Any, cache: Any) -> Any:
    x, z, W_1, W_2 = cache
    return relu_network_backward(dy, (x, z, W_1.T, W_2))


@plant("ffn: dW_1 is transposed", NETWORK, NETWORK_ARGS, "W_1")
def _(dy: Any, cache: Any) -> Any:
    dx, dW_1, *others = relu_network_backward(dy, cache)
    return dx, dW_1.T, *others


@plant("ffn: db_2 is averaged over the rows", NETWORK, NETWORK_ARGS, "b_2")
def _(dy: Any, cache: Any) -> Any:
    *others, db_2 = relu_network_backward(dy, cache)
    return *others, db_2 / (B * T)


@plant("ffn: db_2 is summed over the batch only", NETWORK, NETWORK_ARGS, "b_2")
def _(dy: Any, cache: Any) -> Any:
    return *relu_network_backward(dy, cache)[:4], dy.sum(axis=0)


@plant("ffn: db_2 is one number", NETWORK, NETWORK_ARGS, "b_2")
def _(dy: Any, cache: Any) -> Any:
    return *relu_network_backward(dy, cache)[:4], dy.sum()


@plant("ffn: dW_1 from the last batch item only", NETWORK, NETWORK_ARGS, "W_1")
def _(dy: Any, cache: Any) -> Any:
    dx, _, *others = relu_network_backward(dy, cache)
    last = relu_network_backward(dy[-1], (cache[0][-1], cache[1][-1], *cache[2:]))[1]
    return dx, last, *others


@plant("ffn: everything divided by the batch size", NETWORK, NETWORK_ARGS, "x W_1 b_1 W_2 b_2")
def _(dy: Any, cache: Any) -> Any:
    return relu_network_backward(dy / B, cache)


@plant("ffn: the gradients in another order", NETWORK, NETWORK_ARGS, "W_1 b_1 W_2 b_2")
def _(dy: Any, cache: Any) -> Any:
    dx, dW_1, db_1, dW_2, db_2 = relu_network_backward(dy, cache)
    return dx, dW_2, db_2, dW_1, db_1


# GELU


def exact_gelu(z: Any) -> Any:
    cdf = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    return z * cdf, (z, cdf)


def exact_gelu_backward(dy: Any, cache: Any) -> Any:
    z, cdf = cache
    return dy * (cdf + z * np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi))


def tanh_gelu(z: Any) -> Any:
    return 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))), z


def tanh_gelu_backward(dy: Any, z: Any, a: float = math.sqrt(2 / math.pi), b: float = 0.044715) -> Any:
    t = np.tanh(a * (z + b * z**3))
    return dy * 0.5 * (1 + t + z * (1 - t**2) * a * (1 + 3 * b * z**2))


EXACT, TANH, Z = (exact_gelu, exact_gelu_backward), (tanh_gelu, tanh_gelu_backward), (normal((B, T, d)),)


@plant("gelu: √(2/π) wrong in its fifth digit", TANH, Z, "z")
def _(dy: Any, cache: Any) -> Any:
    return tanh_gelu_backward(dy, cache, a=0.79789)


@plant("gelu: 0.044715 wrong in its fifth digit", TANH, Z, "z")
def _(dy: Any, cache: Any) -> Any:
    return tanh_gelu_backward(dy, cache, b=0.044716)


@plant("gelu: the tanh form's derivative for the exact one", EXACT, Z, "z")
def _(dy: Any, cache: Any) -> Any:
    return tanh_gelu_backward(dy, cache[0])


@plant("gelu: z φ(z) is missing", EXACT, Z, "z")
def _(dy: Any, cache: Any) -> Any:
    return dy * cache[1]


@plant("gelu: φ without its 1/√(2π)", EXACT, Z, "z")
def _(dy: Any, cache: Any) -> Any:
    z, cdf = cache
    return dy * (cdf + z * np.exp(-(z**2) / 2))


# Softmax


def softmax(scores: Any) -> Any:
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    y = e / e.sum(axis=-1, keepdims=True)
    return y, y


def softmax_backward(dy: Any, y: Any) -> Any:
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


SOFTMAX, SCORES = (softmax, softmax_backward), (normal((B, T, T)),)


@plant("softmax: the diagonal for the whole Jacobian", SOFTMAX, SCORES, "scores")
def _(dy: Any, y: Any) -> Any:
    return dy * y * (1 - y)


@plant("softmax: the row's sum is missing", SOFTMAX, SCORES, "scores")
def _(dy: Any, y: Any) -> Any:
    return dy * y


@plant("softmax: the sum over columns", SOFTMAX, SCORES, "scores")
def _(dy: Any, y: Any) -> Any:
    return y * (dy - (dy * y).sum(axis=-2, keepdims=True))


# Attention, with a causal mask


def attend(q: Any, k: Any, v: Any) -> Any:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    weights, _ = softmax(np.where(causal_mask(q.shape[-2]), scores, -np.inf))
    return weights @ v, (q, k, v, weights)


def attend_backward(dy: Any, cache: Any) -> Any:
    q, k, v, weights = cache
    dscores = softmax_backward(dy @ v.mT, weights) / math.sqrt(q.shape[-1])
    return dscores @ k, dscores.mT @ q, weights.mT @ dy


ATTEND, QKV = (attend, attend_backward), (normal((B, T, d)), normal((B, T, d)), normal((B, T, d)))


@plant("attention: 1/√d_k is missing in dq", ATTEND, QKV, "q")
def _(dy: Any, cache: Any) -> Any:
    dq, dk, dv = attend_backward(dy, cache)
    return dq * math.sqrt(d), dk, dv


@plant("attention: 1/√d_k is missing in dk", ATTEND, QKV, "k")
def _(dy: Any, cache: Any) -> Any:
    dq, dk, dv = attend_backward(dy, cache)
    return dq, dk * math.sqrt(d), dv


@plant("attention: the mask is forgotten on the way back", ATTEND, QKV, "q k")
def _(dy: Any, cache: Any) -> Any:
    q, k, v, weights = cache
    unmasked, _ = softmax(q @ k.mT / math.sqrt(d))
    return *attend_backward(dy, (q, k, v, unmasked))[:2], weights.mT @ dy


@plant("attention: dv from weights that are not transposed", ATTEND, QKV, "v")
def _(dy: Any, cache: Any) -> Any:
    dq, dk, _ = attend_backward(dy, cache)
    return dq, dk, cache[3] @ dy


@plant("attention: dk from scores that are not transposed", ATTEND, QKV, "k")
def _(dy: Any, cache: Any) -> Any:
    q, _, v, weights = cache
    dq, _, dv = attend_backward(dy, cache)
    return dq, softmax_backward(dy @ v.mT, weights) / math.sqrt(d) @ q, dv


@plant("attention: dk and dv are exchanged", ATTEND, QKV, "k v")
def _(dy: Any, cache: Any) -> Any:
    dq, dk, dv = attend_backward(dy, cache)
    return dq, dv, dk


# Heads


def heads_forward(q: Any, k: Any, v: Any, params: Any) -> Any:
    return multi_head_attention_forward(q, k, v, params, n_heads=h)


HEADS = heads_forward, multi_head_attention_backward
HEADS_ARGS = (*QKV, AttentionParams(*normal((4, d, d)), *normal((4, d))))


def bend_heads(dy: Any, cache: Any, **changes: Callable[[Any], Any]) -> Any:
    *inputs, grads = multi_head_attention_backward(dy, cache)
    return *inputs, grads._replace(**{name: change(grads) for name, change in changes.items()})


@plant("heads: the gradients of two heads are swapped", HEADS, HEADS_ARGS, "params.W_Q")
def _(dy: Any, cache: Any) -> Any:
    return bend_heads(dy, cache, W_Q=lambda grads: np.roll(grads.W_Q, d // h, axis=1))


@plant("heads: dW_O is transposed", HEADS, HEADS_ARGS, "params.W_O")
def _(dy: Any, cache: Any) -> Any:
    return bend_heads(dy, cache, W_O=lambda grads: grads.W_O.T)


@plant("heads: db_K is that of b_Q, where it should be zero", HEADS, HEADS_ARGS, "params.b_K")
def _(dy: Any, cache: Any) -> Any:
    return bend_heads(dy, cache, b_K=lambda grads: grads.b_Q)


@plant("heads: db_K is a millionth of that of b_V", HEADS, HEADS_ARGS, "params.b_K")
def _(dy: Any, cache: Any) -> Any:
    return bend_heads(dy, cache, b_K=lambda grads: 1e-6 * grads.b_V)


@plant("heads: db_O is forgotten", HEADS, HEADS_ARGS, "params.b_O")
def _(dy: Any, cache: Any) -> Any:
    return bend_heads(dy, cache, b_O=lambda grads: np.zeros(d))


# Embedding


def embed(ids: Any, E: Any) -> Any:
    return E[ids] * math.sqrt(E.shape[1]), (ids, E)


def embed_backward(dy: Any, cache: Any) -> Any:
    ids, E = cache
    dE = np.zeros_like(E)
    np.add.at(dE, ids, dy * math.sqrt(E.shape[1]))
    return dE


EMBED, EMBED_ARGS = (embed, embed_backward), (np.array([[1, 2, 1], [0, 1, 4]]), normal((5, d)))


@plant("embedding: a repeated id overwrites what was there", EMBED, EMBED_ARGS, "E")
def _(dy: Any, cache: Any) -> Any:
    ids, E = cache
    dE = np.zeros_like(E)
    dE[ids] += dy * math.sqrt(d)
    return dE


@plant("embedding: √d_model is missing", EMBED, EMBED_ARGS, "E")
def _(dy: Any, cache: Any) -> Any:
    return embed_backward(dy, cache) / math.sqrt(d)


@plant("embedding: the rows by order of appearance", EMBED, EMBED_ARGS, "E")
def _(dy: Any, cache: Any) -> Any:
    return embed_backward(dy, cache)[[1, 2, 0, 4, 3]]


# Residuals and blocks


def residual_forward(x: Any, params: Any) -> Any:
    y, cache = ffn_forward(x, params, activation="gelu")
    return x + y, cache


def residual_backward(dy: Any, cache: Any) -> Any:
    dx, grads = ffn_backward(dy, cache)
    return dx + dy, grads


RESIDUAL = residual_forward, residual_backward
RESIDUAL_ARGS = normal((B, T, d)), FFNParams(normal((d, 5)), normal(5), normal((5, d)), normal(d))


@plant("residual: counted twice", RESIDUAL, RESIDUAL_ARGS, "x")
def _(dy: Any, cache: Any) -> Any:
    dx, grads = ffn_backward(dy, cache)
    return dx + 2 * dy, grads


@plant("residual: forgotten", RESIDUAL, RESIDUAL_ARGS, "x")
def _(dy: Any, cache: Any) -> Any:
    return ffn_backward(dy, cache)


@plant("residual: the sub-layer gets half of it", RESIDUAL, RESIDUAL_ARGS, " ".join(
    ["x", "params.W_1", "params.b_1", "params.W_2", "params.b_2"]
))  # fmt: skip
def _(dy: Any, cache: Any) -> Any:
    dx, grads = ffn_backward(dy / 2, cache)
    return dx + dy, grads


@plant("batch: its items are exchanged", RESIDUAL, RESIDUAL_ARGS, "x")
def _(dy: Any, cache: Any) -> Any:
    dx, grads = residual_backward(dy, cache)
    return dx[::-1], grads


@plant("positions: shifted by one", RESIDUAL, RESIDUAL_ARGS, "x")
def _(dy: Any, cache: Any) -> Any:
    dx, grads = residual_backward(dy, cache)
    return np.roll(dx, 1, axis=-2), grads


CONFIG = TransformerConfig(d_model=d, d_ff=6, n_heads=h, activation="gelu", dropout=0.0)
BLOCK = encoder_block_forward, encoder_block_backward
BLOCK_ARGS = (
    normal((B, T, d)),
    tree_map(lambda x: x + normal(x.shape) / 2, init_encoder_block(CONFIG, rng)),
    CONFIG,
)


@plant("block: the gradients of its two norms are exchanged", BLOCK, BLOCK_ARGS, " ".join(
    f"params.norm_{i}.{name}" for i in (1, 2) for name in ("gamma", "beta")
))  # fmt: skip
def _(dy: Any, cache: Any) -> Any:
    dx, grads = encoder_block_backward(dy, cache)
    return dx, grads._replace(norm_1=grads.norm_2, norm_2=grads.norm_1)


@plant("block: one entry of one weight is off by a ten-millionth", BLOCK, BLOCK_ARGS, "params.ffn.W_1")
def _(dy: Any, cache: Any) -> Any:
    dx, grads = encoder_block_backward(dy, cache)
    W_1 = grads.ffn.W_1.copy()
    W_1[2, 3] += 1e-7 * abs(W_1).max()
    return dx, grads._replace(ffn=grads.ffn._replace(W_1=W_1))


# Dropout


def drop(x: Any, generator: np.random.Generator) -> Any:
    return dropout_forward(x, 0.5, generator)


DROP, DROP_ARGS = (drop, dropout_backward), (normal((B, T, d)), np.random.default_rng(1))


@plant("dropout: 1/(1 - rate) is missing", DROP, DROP_ARGS, "x")
def _(dy: Any, cache: Any) -> Any:
    return dy * cache.keep


@plant("dropout: another mask on the way back", DROP, DROP_ARGS, "x")
def _(dy: Any, cache: Any) -> Any:
    return dropout_backward(dy, cache._replace(keep=np.random.default_rng(2).random(dy.shape) < 0.5))


# A loss: one number


def mean_log_loss(logits: Any, targets: Any) -> Any:
    y, _ = softmax(logits)
    return -np.log(np.take_along_axis(y, targets[:, None], axis=-1)).mean(), (y, targets)


def mean_log_loss_backward(dloss: Any, cache: Any) -> Any:
    y, targets = cache
    return dloss * (y - np.eye(y.shape[-1])[targets]) / len(targets)


LOSS, LOSS_ARGS = (mean_log_loss, mean_log_loss_backward), (normal((T, 5)), np.array([0, 4, 2]))


@plant("loss: a sum in place of the mean", LOSS, LOSS_ARGS, "logits")
def _(dloss: Any, cache: Any) -> Any:
    return mean_log_loss_backward(dloss, cache) * T


@plant("loss: dloss is taken for 1", LOSS, LOSS_ARGS, "logits")
def _(dloss: Any, cache: Any) -> Any:
    return mean_log_loss_backward(1.0, cache)


@plant("loss: the target's one is not subtracted", LOSS, LOSS_ARGS, "logits")
def _(dloss: Any, cache: Any) -> Any:
    return dloss * cache[0] / T
