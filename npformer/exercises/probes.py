"""What each code exercise is run on, and the right function it is compared with: npformer's own."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from npformer.attention import attention_forward, merge_heads, split_heads
from npformer.backend import Array
from npformer.embedding import EmbeddingParams, embedding_forward
from npformer.feed_forward import FFNParams, ffn_backward, ffn_forward
from npformer.functional import softmax_backward, softmax_forward
from npformer.layer_norm import LayerNormParams, layer_norm_backward, layer_norm_forward
from npformer.loss import cross_entropy_forward
from npformer.positional import positional_encoding

Arguments = tuple[Any, ...]


class Subject(NamedTuple):
    """One code exercise: its arguments and outputs by name, the right function, and the probes."""

    arguments: str
    outputs: tuple[str, ...]
    right: Callable[..., Any]
    probes: tuple[Arguments, ...]
    hard: dict[str, Arguments]  # a robustness code: the probe that shows it


def _ffn_forward(x: Array, *params: Array) -> Array:
    return ffn_forward(x, FFNParams(*params))[0]


def _ffn_backward(dy: Array, x: Array, *params: Array) -> tuple[Array, ...]:
    dx, grads = ffn_backward(dy, ffn_forward(x, FFNParams(*params))[1])
    return dx, *grads


def _layer_norm_forward(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    return layer_norm_forward(x, LayerNormParams(gamma, beta), eps=eps)[0]


def _layer_norm_backward(
    dy: Array, x: Array, gamma: Array, beta: Array, eps: float
) -> tuple[Array, Array, Array]:
    cache = layer_norm_forward(x, LayerNormParams(gamma, beta), eps=eps)[1]
    dx, (dgamma, dbeta) = layer_norm_backward(dy, cache)
    return dx, dgamma, dbeta


def _softmax(scores: Array) -> Array:
    return softmax_forward(scores)[0]


def _embedding(ids: Array, E: Array) -> Array:
    return embedding_forward(ids, EmbeddingParams(E))[0]


def _cross_entropy(logits: Array, targets: Array) -> Array:
    return cross_entropy_forward(logits, targets)[0]


def _softmax_backward(dp: Array, p: Array) -> Array:
    return softmax_backward(dp, softmax_forward(np.log(p))[1])


def _block(x: Array, attend: Any, norm_1: Any, ffn: Any, norm_2: Any) -> Array:
    h = norm_1(x + attend(x))
    return norm_2(h + ffn(h))


@cache
def subjects() -> dict[str, Subject]:
    """Every code exercise by its id. The numbers are the same in every run."""
    return {**_layers(), **_attention_parts(), **_heads_and_words()}


def _layers() -> dict[str, Subject]:
    pe, ffn, norm = positional_encoding, "x, W_1, b_1, W_2, b_2", "x, gamma, beta, eps"
    gradients, norm_gradients = ("dx", "dW_1", "db_1", "dW_2", "db_2"), ("dx", "dgamma", "dbeta")
    return {
        "pe.table": Subject("n, d_model", ("table",), pe, ((6, 8), (7, 12)), {"PE-ODD-D": (6, 7)}),
        "ffn.forward": Subject(ffn, ("y",), _ffn_forward, _ffn_probes(0), {}),
        "ffn.backward": Subject(f"dy, {ffn}", gradients, _ffn_backward, _ffn_probes(1), {}),
        "layer_norm.forward": Subject(norm, ("y",), _layer_norm_forward, _norm_probes(0), {}),
        "layer_norm.backward": Subject(
            f"dy, {norm}", norm_gradients, _layer_norm_backward, _norm_probes(1), {}
        ),
    }


def _attention_parts() -> dict[str, Subject]:
    rows, huge = ((_normal(3, 4),), (_normal(5, 2),)), (_normal(3, 4) + 1000,)
    blocks = _block_probe(4), _block_probe(6)
    return {
        "softmax.forward": Subject("scores", ("p",), _softmax, rows, {"SM-OVERFLOW": huge}),
        "softmax.backward": Subject("dp, p", ("dx",), _softmax_backward, _softmax_probes(), {}),
        "attention.forward": Subject("q, k, v, mask=None", ("y",), _attention, _attention_probes(), {}),
        "block.forward": Subject("x, attend, norm_1, ffn, norm_2", ("y",), _block, blocks, {}),
    }


def _heads_and_words() -> dict[str, Subject]:
    whole, pieces = (
        ((_normal(2, 3, 8), 4), (_normal(3, 5, 6), 2)),
        ((_normal(2, 4, 3, 2),), (_normal(3, 2, 5, 3),)),
    )
    words = ((np.array([[2, 0, 5], [1, 5, 3]]), _normal(6, 8)), (np.array([[1, 3]]), _normal(4, 5)))
    logits, targets = _normal(5, 7), np.array([3, 0, 6, 2, 2])
    losses = ((logits, targets), (3 * logits[:3], targets[1:4]))
    return {
        "heads.split": Subject("x, n_heads", ("heads",), split_heads, whole, {}),
        "heads.merge": Subject("x", ("y",), merge_heads, pieces, {}),
        "embedding.forward": Subject("ids, E", ("x",), _embedding, words, {}),
        "cross_entropy.forward": Subject("logits, targets", ("loss",), _cross_entropy, losses, {}),
    }


def _normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).normal(size=shape)


def _attention(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    return attention_forward(q, k, v, mask=mask)[0]


def _ffn_probes(upstream: int) -> tuple[Arguments, ...]:
    """All sizes distinct, then d_ff = d_model; in each, one unit whose z is exactly 0 everywhere."""
    probes: list[Arguments] = []
    for B, T, d_model, d_ff in ((2, 3, 4, 5), (2, 3, 4, 4)):
        W_1, b_1 = _normal(d_model, d_ff), _normal(d_ff)
        W_1[:, 1], b_1[1] = 0, 0
        x, dy = _normal(B, T, d_model), _normal(B, T, d_model, 1)[..., 0]
        probes.append((*[dy] * upstream, x, W_1, b_1, _normal(d_ff, d_model, 1)[..., 0], _normal(d_model)))
    return tuple(probes)


def _norm_probes(upstream: int) -> tuple[Arguments, ...]:
    """A large eps; then rows of very small spread, and forward a constant one."""
    x, dy = _normal(2, 3, 5), _normal(2, 3, 5, 1)[..., 0]
    small = 1 + x * np.array([1.0, 1e-3 if not upstream else 0.1, 0.1 * upstream])[:, None]
    gamma, beta = 1 + 0.5 * _normal(5), _normal(5, 1)[:, 0]
    return tuple((*[dy] * upstream, rows, gamma, beta, eps) for rows, eps in ((x, 0.1), (small, 1e-5)))


def _softmax_probes() -> tuple[Arguments, ...]:
    rows = (_normal(3, 4), _normal(5, 2))
    return tuple((2 * _normal(*scores.shape, 1)[..., 0], softmax_forward(scores)[0]) for scores in rows)


def _attention_probes() -> tuple[Arguments, ...]:
    """v = 1 shows the weights. A mask with some and some, then one that hides nothing, then none."""
    q, k, v = 2 * _normal(4, 6), 2 * _normal(5, 6), _normal(5, 3)
    some = np.array([[1, 0, 1, 0, 1], [0, 1, 1, 0, 0], [1, 1, 0, 0, 1], [0, 0, 1, 1, 0]], bool)
    return (q, k, np.eye(5), None), (q, k, v, some), (q, k, np.eye(5), np.ones((4, 5), bool))


def _block_probe(d: int) -> Arguments:
    """x and four layers to put together: a mixing of the rows, a norm, a layer for each row, a norm."""
    mix, W = _normal(3, 3), _normal(d, d)
    norm_1, norm_2 = (LayerNormParams(1 + 0.5 * _normal(d), _normal(d, n)[:, 0]) for n in (1, 2))
    return (
        _normal(3, d),
        lambda x: mix @ x,
        lambda x: layer_norm_forward(x, norm_1)[0],
        lambda x: np.tanh(x @ W),
        lambda x: layer_norm_forward(x, norm_2)[0],
    )
