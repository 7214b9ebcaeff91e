"""What each code exercise is run on, and the right function it is compared with: npformer's own.

Probes are drawn so that no two relations coincide: all sizes of a probe differ and change from probe to
probe, no array is symmetric, no two rows have their maximum in common.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from npformer.attention import attention_forward, causal_mask, merge_heads, split_heads
from npformer.backend import Array
from npformer.embedding import EmbeddingParams, embedding_forward
from npformer.exercises.topics.old_wrong_code import silu, table
from npformer.feed_forward import FFNParams, ffn_backward, ffn_forward
from npformer.functional import softmax_backward, softmax_forward
from npformer.layer_norm import LayerNormParams, layer_norm_backward, layer_norm_forward
from npformer.loss import cross_entropy_forward
from npformer.modern.gated_ffn import GatedFFNParams, gated_ffn_forward
from npformer.modern.generation import last_left
from npformer.modern.rms_norm import RMSNormParams, rms_norm_forward
from npformer.optim import AdamState, adam_update
from npformer.positional import positional_encoding, rope_forward

Arguments = tuple[Any, ...]
Look = Callable[..., Any]  # of a probe's arguments


class Subject(NamedTuple):
    """One code exercise: its arguments and outputs by name, the right function, and the probes."""

    arguments: str
    outputs: tuple[str, ...]
    right: Callable[..., Any]
    probes: tuple[Arguments, ...]
    hard: dict[str, Arguments] = {}  # noqa: RUF012  # a robustness code: the probe that shows it
    sizes: str = ""  # "x: B T d_model; W_1: d_model d_ff", the axes of the arguments by name
    neutral: dict[str, Any] = {}  # noqa: RUF012  # the value at which an argument does nothing
    landmarks: dict[str, Look] = {}  # noqa: RUF012  # what a line of the solution holds, by its name
    unit: str = "row"  # what stands in a row of the first argument
    outer: str = "sentence"  # what stands along axis 0 of an argument of three axes
    cancels: dict[str, Callable[..., Arguments]] = {}  # noqa: RUF012  # changes that the right answer does not see

    @property
    def names(self) -> list[str]:
        """The arguments' names."""
        return [name.split("=")[0] for name in self.arguments.split(", ")]


@cache
def subjects() -> dict[str, Subject]:
    """Every code exercise by its id. The numbers are the same in every run."""
    return {exercise_id: make() for exercise_id, make in SUBJECTS.items()}


def _normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).normal(size=shape)


# --- the right functions ---------------------------------------------------------------------------


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


def _softmax_backward(dp: Array, p: Array) -> Array:
    return softmax_backward(dp, softmax_forward(np.log(p))[1])


def _attention(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    return attention_forward(q, k, v, mask=mask)[0]


def _embedding(ids: Array, E: Array) -> Array:
    return embedding_forward(ids, EmbeddingParams(E))[0]


def _cross_entropy(logits: Array, targets: Array) -> Array:
    return cross_entropy_forward(logits, targets)[0]


def _smoothed(logits: Array, targets: Array, epsilon: float) -> Array:
    return cross_entropy_forward(logits, targets, label_smoothing=epsilon)[0]


def _block(x: Array, attend: Any, norm_1: Any, ffn: Any, norm_2: Any) -> Array:
    h = norm_1(x + attend(x))
    return norm_2(h + ffn(h))


def _rope(x: Array) -> Array:
    return rope_forward(x)[0]


def _adam(w: Array, g: Array, m: Array, v: Array, t: int, learning_rate: float) -> tuple[Array, Array, Array]:
    new, state = adam_update(w, g, AdamState(t - 1, m, v), learning_rate=learning_rate)
    return new, state.m, state.v


def _rms_norm(x: Array, gamma: Array, eps: float) -> Array:
    return rms_norm_forward(x, RMSNormParams(gamma), eps=eps)[0]


def _by_its_mean(x: Array, gamma: Array, eps: float) -> Array:
    return gamma * x / np.sqrt(x.mean(axis=-1, keepdims=True) ** 2 + eps)


def _gated(x: Array, *params: Array) -> Array:
    return gated_ffn_forward(x, GatedFFNParams(*params))[0]


def _grouped(q: Array, k: Array, v: Array) -> Array:
    k, v = (np.repeat(heads, len(q) // len(k), axis=0) for heads in (k, v))
    return attention_forward(q, k, v)[0]


def _rope_attention(q: Array, k: Array, v: Array) -> Array:
    return attention_forward(_rope(q), _rope(k), v)[0]


def _kept_mask(n: int, kept: int) -> Array:
    return causal_mask(n, kept + n)


def _with_temperature(logits: Array, temperature: float) -> Array:
    return softmax_forward(logits / temperature)[0]


def _top_p(p: Array, share: float) -> Array:
    p = p * (p >= last_left(p, len(p), share))
    return p / p.sum()


# --- the exercises -----------------------------------------------------------------------------------


def _from(row: int) -> Look:
    return lambda n, d: positional_encoding(n, d, start=row)


def _faster(factor: float) -> Look:
    return lambda n, d: table(n, d, unit=factor)


_FFN = "x: batch positions d_model; W_1: d_model d_ff"
_NORM = "x: batch positions d_model"


def _hidden(x: Array, W_1: Array, b_1: Array, *_: Array) -> Array:
    return np.maximum(x @ W_1 + b_1, 0)


def _softmax_inside(x: Array, W_1: Array, b_1: Array, W_2: Array, b_2: Array) -> Array:
    return softmax_forward(x @ W_1 + b_1)[0] @ W_2 + b_2


def _x_bent(x: Array, W_1: Array, b_1: Array, W_2: Array, b_2: Array) -> Array:
    return (np.maximum(x, 0) @ W_1 + b_1) @ W_2 + b_2


def _x_hat(x: Array, gamma: Array, beta: Array, eps: float) -> Array:
    return layer_norm_forward(x, LayerNormParams(gamma, beta), eps=eps)[1].x_hat


_NORMS: dict[str, Look] = {
    "x̂, before gamma and beta": _x_hat,
    "x less its mean": lambda x, *_: x - x.mean(axis=-1, keepdims=True),
}


_APART = np.array([[1000.0], [-1000.0], [0.0]])


def _of_targets(z: Array, targets: Array) -> Array:
    return softmax_forward(z)[0][np.arange(len(targets)), targets]


_NEAR_LOSSES: dict[str, Look] = {
    "the mean probability of the right classes, without a logarithm": lambda z, t: _of_targets(z, t).mean(),
    "the mean of 1 - p, without a logarithm": lambda z, t: (1 - _of_targets(z, t)).mean(),
    "the log of the mean probability: the mean is taken before the log": lambda z, t: (
        -np.log(_of_targets(z, t).mean())
    ),
    "e to the power of the loss, the perplexity": lambda z, t: np.exp(-np.log(_of_targets(z, t)).mean()),
    "the loss of the last row": lambda z, t: -np.log(_of_targets(z, t))[-1],
    "the loss of the first row": lambda z, t: -np.log(_of_targets(z, t))[0],
    "the loss of the class with the largest logit, whatever the targets": lambda z, t: (
        -np.log(softmax_forward(z)[0].max(axis=1)).mean()
    ),
    "the loss of the classes one after the targets": lambda z, t: (
        -np.log(_of_targets(z, (t + 1) % z.shape[1])).mean()
    ),
    "a binary cross-entropy, in which every class is judged by itself through a sigmoid": lambda z, t: (
        (np.logaddexp(0, z) - z * np.eye(z.shape[1])[t]).sum(axis=1).mean()
    ),
    "a binary cross-entropy of the probabilities, in which the wrong classes count too": lambda z, t: (
        -np.log(abs(1 - np.eye(z.shape[1])[t] - softmax_forward(z)[0])).sum(axis=1).mean()
    ),
    "the mean over every row with every target, N × N numbers": lambda z, t: (
        -np.log(softmax_forward(z)[0][:, t]).mean()
    ),
    "the mean squared distance between the probabilities and the right class": lambda z, t: (
        ((softmax_forward(z)[0] - np.eye(z.shape[1])[t]) ** 2).sum(axis=1).mean()
    ),
    "the loss of the classes one before the targets": lambda z, t: -np.log(_of_targets(z, t - 1)).mean(),
}


_NEAR_SMOOTHED: dict[str, Look] = {
    "the loss of a softmax that is taken twice": lambda z, t, e: _smoothed(_softmax(z), t, e),
    "the loss without the part of epsilon that belongs to the right class": lambda z, t, e: (
        _smoothed(z, t, e) + (e / z.shape[1] * np.log(_of_targets(z, t))).mean()
    ),
    "the loss of smoothed probabilities, with targets of 0 and 1": lambda z, t, e: (
        -np.log((1 - e) * _of_targets(z, t) + e / z.shape[1]).mean()
    ),
    "a mean of probabilities, without a logarithm": lambda z, t, e: (
        (1 - e) * _of_targets(z, t).mean() + e / z.shape[1]
    ),
}


def _neighbour(step: int) -> Look:
    return lambda ids, E: E[(ids + step) % len(E)] * E.shape[1] ** 0.5


def _heads_inside(x: Array, n_heads: int) -> Array:
    return x.reshape(*x.shape[:2], -1, n_heads).transpose(0, 3, 1, 2)


def _columns_first(x: Array) -> Array:
    return x.transpose(0, 2, 3, 1).reshape(len(x), x.shape[2], -1)


def _large(rows: int, columns: int) -> Array:
    """Numbers near 1000; but one row has -1000 too, so that only its maximum makes it safe to subtract."""
    large = _normal(rows, columns) + 1000
    large[1, 1:] -= 2000
    return large


_HARD = {
    "SM-OVERFLOW": (_normal(3, 7) + 1000, np.array([4, 0, 6])),
    "SM-GLOBAL-MAX": (_normal(3, 7) + _APART, np.array([4, 0, 6])),
}
_SHIFT: dict[str, Callable[..., Arguments]] = {
    "the same number added to all logits of a row": lambda z, *more: (z + _normal(len(z), 1), *more)
}


def _losses() -> tuple[Arguments, ...]:
    return tuple(
        (scale * _normal(N, V), np.array(targets))
        for N, V, scale, targets in (
            (5, 7, 1.0, [3, 0, 6, 2, 2]),
            (3, 4, 3.0, [0, 3, 2]),
            (2, 9, 2.0, [8, 5]),
            (7, 3, 1.0, [2, 0, 1, 1, 2, 0, 1]),
        )
    )


def _pe_table_probed() -> Subject:
    tables: dict[str, Look] = {f"the table from position {k} on": _from(k) for k in (2, -1)}
    faster = {"2π": 2 * np.pi, "π": np.pi, "2": 2.0, "1/2": 0.5, "1/10": 0.1, "1/(2π)": 0.5 / np.pi}
    tables |= {f"the table with all speeds multiplied by {words}": _faster(c) for words, c in faster.items()}
    return Subject(
        "n, d_model",
        ("table",),
        positional_encoding,
        ((6, 8), (7, 12)),
        {"PE-ODD-D": (6, 7)},
        sizes="n: n; d_model: d_model",
        landmarks=tables,
    )


def _ffn_forward_probed() -> Subject:
    hidden = {"z = x W_1 + b_1": lambda x, W, b, *_: x @ W + b, "the hidden layer": _hidden}
    hidden["a network whose activation acts on x, and not on the hidden units"] = _x_bent
    hidden["a network whose activation is a softmax over the hidden units"] = _softmax_inside
    return Subject(
        "x, W_1, b_1, W_2, b_2",
        ("y",),
        _ffn_forward,
        _ffn_probes(0),
        sizes=_FFN,
        unit="token",
        neutral={"b_1": 0.0, "b_2": 0.0},
        landmarks=hidden,
    )


def _layer_norm_forward_probed() -> Subject:
    return Subject(
        "x, gamma, beta, eps",
        ("y",),
        _layer_norm_forward,
        _norm_probes(0),
        sizes=_NORM,
        unit="token",
        neutral={"gamma": 1.0, "beta": 0.0, "eps": 1e-12},
        landmarks=_NORMS,
        cancels={
            "the same number added to all features of x": lambda x, *more: (x + 3.0, *more),
        },
    )


def _ffn_backward_probed() -> Subject:
    return Subject(
        "dy, x, W_1, b_1, W_2, b_2",
        ("dx", "dW_1", "db_1", "dW_2", "db_2"),
        _ffn_backward,
        _ffn_probes(1),
        sizes=_FFN,
        unit="token",
        neutral={"b_1": 0.0},
    )


def _layer_norm_backward_probed() -> Subject:
    return Subject(
        "dy, x, gamma, beta, eps",
        ("dx", "dgamma", "dbeta"),
        _layer_norm_backward,
        _norm_probes(1),
        sizes=_NORM,
        unit="token",
        neutral={"gamma": 1.0, "eps": 1e-12},
        landmarks={
            "dy itself": lambda dy, *_: dy,
            "dy · gamma": lambda dy, x, gamma, *_: dy * gamma,
            "the sum of dy · x, where x is not normalised": lambda dy, x, *_: (dy * x).sum(axis=(0, 1)),
            "the sum of dy times x less its mean, which is not divided": lambda dy, x, *_: (
                dy * (x - x.mean(axis=-1, keepdims=True))
            ).sum(axis=(0, 1)),
        },
    )


def _softmax_backward_probed() -> Subject:
    return Subject(
        "dp, p",
        ("dx",),
        _softmax_backward,
        _softmax_probes(),
        sizes="p: rows columns",
        landmarks={
            "dp as it arrived": lambda dp, p: dp,
            "dp·p": lambda dp, p: dp * p,
            "p times dp less the plain sum of dp, in which no dp has a weight": lambda dp, p: (
                p * (dp - dp.sum(axis=-1, keepdims=True))
            ),
            "the gradient for the softmax of p: a softmax is taken once more": lambda dp, p: (
                _softmax_backward(dp, _softmax(p))
            ),
        },
        cancels={
            "the same number added to all of dp": lambda dp, p: (dp + 2.0, p),
        },
    )


def _softmax_forward_probed() -> Subject:
    rows = ((_normal(3, 4),), (2 * _normal(5, 2),), (3 * _normal(4, 6),))
    return Subject(
        "scores",
        ("p",),
        _softmax,
        rows,
        {"SM-OVERFLOW": (_large(3, 4),), "SM-GLOBAL-MAX": (_normal(3, 4) + _APART,)},
        sizes="scores: rows columns",
        landmarks={
            "the logarithm of the softmax": lambda s: np.log(softmax_forward(s)[0]),
            "e to the power of the scores": np.exp,
        },
        cancels={"the same number added to all scores of a row": lambda s: (s + _normal(len(s), 1),)},
    )


def _attention_forward_probed() -> Subject:
    return Subject(
        "q, k, v, mask=None",
        ("y",),
        _attention,
        _attention_probes(),
        {"SM-OVERFLOW": _huge(np.full((3, 1), 1000.0), last=-1.0), "SM-GLOBAL-MAX": _huge(_APART)},
        sizes="q: T_q d_k; k: T_k d_k; v: T_k d_v",
        neutral={"mask": None},
        unit="query",
        landmarks={
            "the weights, before they meet v": lambda q, k, v, mask=None: (
                attention_forward(q, k, v, mask=mask)[1].weights
            ),
            "the scores": lambda q, k, v, mask=None: q @ k.T / k.shape[1] ** 0.5,
        },
        cancels={
            "the same vector added to all keys": lambda q, k, *more: (q, k + _normal(k.shape[1]), *more)
        },
    )


def _block_forward_probed() -> Subject:
    return Subject(
        "x, attend, norm_1, ffn, norm_2",
        ("y",),
        _block,
        (_block_probe(4), _block_probe(6)),
    )


def _cross_entropy_forward_probed() -> Subject:
    return Subject(
        "logits, targets",
        ("loss",),
        _cross_entropy,
        _losses(),
        _HARD | {"CE-LOG-OF-0": (_large(3, 7), np.array([4, 3, 6]))},
        sizes="logits: N V",
        cancels=_SHIFT,
        landmarks=_NEAR_LOSSES,
    )


def _loss_smoothed_probed() -> Subject:
    softened = tuple(
        (*probe, epsilon) for probe, epsilon in zip(_losses(), (0.1, 0.3, 0.2, 0.25), strict=True)
    )
    return Subject(
        "logits, targets, epsilon",
        ("loss",),
        _smoothed,
        softened,
        {
            **{code: (*probe, 0.1) for code, probe in _HARD.items()},
            "LS-LOG-OF-0": (_large(3, 7), np.array([4, 0, 6]), 0.1),
        },
        sizes="logits: N V",
        cancels=_SHIFT,
        neutral={"epsilon": 0.0},
        landmarks=_NEAR_SMOOTHED,
    )


def _heads_split_probed() -> Subject:
    whole = ((_normal(2, 3, 8), 4), (_normal(3, 5, 6), 2))
    return Subject(
        "x, n_heads",
        ("heads",),
        split_heads,
        whole,
        sizes="x: batch T d_model; n_heads: n_heads",
        landmarks={"x, its last axis cut with the heads on the inside": _heads_inside},
    )


def _heads_merge_probed() -> Subject:
    pieces = ((_normal(2, 4, 3, 2),), (_normal(3, 2, 5, 4),))
    return Subject(
        "x",
        ("y",),
        merge_heads,
        pieces,
        sizes="x: batch n_heads T d_k",
        landmarks={
            "the heads with their columns shuffled together, d_k before heads": _columns_first,
            "the heads side by side in the reverse order": lambda x: merge_heads(x[:, ::-1]),
            "the heads one after the other, along the positions": lambda x: x.reshape(
                len(x), -1, x.shape[-1]
            ),
            "the sum of the heads": lambda x: x.sum(axis=1),
            "the mean of the heads": lambda x: x.mean(axis=1),
        },
    )


def _embedding_forward_probed() -> Subject:
    words = (
        (np.array([[2, 0, 5], [1, 5, 3]]), _normal(6, 8)),
        (np.array([[1, 3], [2, 1], [0, 3]]), _normal(4, 5)),
    )
    shifted: dict[str, Look] = {"the rows of E for these ids": lambda ids, E: E[ids]}
    shifted |= {
        f"the row of the id {where} each id": _neighbour(step)
        for where, step in (("after", 1), ("before", -1))
    }
    return Subject(
        "ids, E",
        ("x",),
        _embedding,
        words,
        sizes="ids: batch T; E: vocabulary d_model",
        landmarks=shifted,
    )


def _mask_causal_probed() -> Subject:
    return Subject("T", ("mask",), causal_mask, ((4,), (6,)), sizes="T: T")


def _rope_forward_probed() -> Subject:
    return Subject(
        "x",
        ("y",),
        _rope,
        ((_normal(5, 6),), (_normal(3, 8),)),
        sizes="x: T d",
        unit="position",
        landmarks={"x, not turned": lambda x: x},
    )


def _adam_step_probed() -> Subject:
    steps = tuple(
        (w, g, 0.3 * m, 0.1 * v * v, t, rate)
        for n, t, rate in ((3, 2, 0.1), (5, 4, 0.02))
        for w, g, m, v in [_normal(4, n)]
    )
    return Subject(
        "w, g, m, v, t, learning_rate",
        ("w", "m", "v"),
        _adam,
        (*steps, _small_step(*_normal(4, 4))),
        sizes="w: n; t: t",
        landmarks={
            "the corrected mean m̂": lambda w, g, m, v, t, rate: (0.9 * m + 0.1 * g) / (1 - 0.9**t),
            "the corrected mean v̂": lambda w, g, m, v, t, rate: (0.98 * v + 0.02 * g * g) / (1 - 0.98**t),
            "the step alone, which is taken from w": lambda w, *more: w - _adam(w, *more)[0],
        },
    )


def _small_step(w: Array, g: Array, m: Array, v: Array) -> Arguments:
    """Gradients so small that ε counts where it stands under the root, and nowhere else."""
    return w, 1e-5 * g, 3e-6 * m, 1e-11 * v * v, 3, 0.05


def _rms_norm_probed() -> Subject:
    probes = tuple((x, gamma, eps) for x, gamma, _, eps in _norm_probes(0))
    return Subject(
        "x, gamma, eps",
        ("y",),
        _rms_norm,
        ((0.05 * probes[0][0] + 0.02, *probes[0][1:]), (probes[1][0] - 0.6, *probes[1][1:])),
        sizes=_NORM,
        unit="token",
        neutral={"gamma": 1.0, "eps": 1e-12},
        landmarks={
            "x̂, before gamma": lambda x, gamma, eps: _rms_norm(x, np.ones_like(gamma), eps),
            "gamma x over the size of x's mean: the mean comes before the square": _by_its_mean,
        },
    )


def _gate_forward_probed() -> Subject:
    sizes = ((2, 3, 4, 5), (4, 2, 3, 3))
    return Subject(
        "x, W_gate, W_up, W_down",
        ("y",),
        _gated,
        tuple(
            (_normal(B, T, d), _normal(d, f), _normal(d, f, seed=1), _normal(f, d, seed=2))
            for B, T, d, f in sizes
        ),
        sizes="x: batch positions d_model; W_gate: d_model d_ff",
        unit="token",
        landmarks={
            "the gate": lambda x, W_gate, *_: silu(x @ W_gate),
            "the hidden layer": lambda x, W_gate, W_up, _: silu(x @ W_gate) * (x @ W_up),
            "the right output, put through SiLU once more": lambda x, *params: silu(_gated(x, *params)),
            "a gate that is a softmax over the hidden units": lambda x, W_gate, W_up, W_down: (
                (_softmax(x @ W_gate) * (x @ W_up)) @ W_down
            ),
        },
    )


def _attention_grouped_probed() -> Subject:
    sizes = ((6, 2, 3, 4, 5, 7), (4, 2, 5, 3, 2, 3))
    return Subject(
        "q, k, v",
        ("heads",),
        _grouped,
        tuple(
            (_normal(h, T_q, d_k), _normal(g, T_k, d_k, seed=1), _normal(g, T_k, d_v, seed=2))
            for h, g, T_q, T_k, d_k, d_v in sizes
        ),
        sizes="q: n_heads T_q d_k; k: n_kv_heads T_k d_k; v: n_kv_heads T_k d_v",
        unit="position",
        outer="head",
    )


def _rope_attention_probed() -> Subject:
    return Subject(
        "q, k, v",
        ("y",),
        _rope_attention,
        tuple(tuple(_normal(T, d, seed=n) for n in range(3)) for T, d in ((5, 6), (3, 8))),
        sizes="q: T d",
        unit="position",
        landmarks={
            "attention without positions": _attention,
            "attention without positions, its output turned": lambda q, k, v: _rope(_attention(q, k, v)),
        },
    )


def _mask_kept_probed() -> Subject:
    return Subject("n, kept", ("mask",), _kept_mask, ((3, 4), (2, 5), (4, 0)), sizes="n: n; kept: kept")


def _sample_temperature_probed() -> Subject:
    return Subject(
        "logits, temperature",
        ("p",),
        _with_temperature,
        ((_normal(3, 4), 0.5), (2 * _normal(5, 2), 1.6), (0.5 * _normal(4, 6), 0.8)),
        {"SM-OVERFLOW": (_large(3, 4), 0.5), "SM-GLOBAL-MAX": (_normal(3, 4) + _APART, 0.5)},
        sizes="logits: rows V",
        neutral={"temperature": 1.0},
        landmarks={"the logits, divided": lambda z, t: z / t},
        cancels={"the same number added to all logits of a row": lambda z, t: (z + _normal(len(z), 1), t)},
    )


def _sample_top_p_probed() -> Subject:
    p = np.array([0.08, 0.4, 0.02, 0.25, 0.15, 0.1])
    return Subject(
        "p, share",
        ("kept",),
        _top_p,
        ((p, 0.7), (p[::-1], 0.5), (np.array([0.1, 0.05, 0.85]), 0.6), (p[[3, 0, 1, 5, 4, 2]], 0.93)),
        sizes="p: V",
    )


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "pe.table": _pe_table_probed,
    "ffn.forward": _ffn_forward_probed,
    "layer_norm.forward": _layer_norm_forward_probed,
    "ffn.backward": _ffn_backward_probed,
    "layer_norm.backward": _layer_norm_backward_probed,
    "softmax.backward": _softmax_backward_probed,
    "softmax.forward": _softmax_forward_probed,
    "attention.forward": _attention_forward_probed,
    "block.forward": _block_forward_probed,
    "cross_entropy.forward": _cross_entropy_forward_probed,
    "loss.smoothed": _loss_smoothed_probed,
    "heads.split": _heads_split_probed,
    "heads.merge": _heads_merge_probed,
    "embedding.forward": _embedding_forward_probed,
    "mask.causal": _mask_causal_probed,
    "rope.forward": _rope_forward_probed,
    "adam.step": _adam_step_probed,
    "rms_norm.forward": _rms_norm_probed,
    "gate.forward": _gate_forward_probed,
    "attention.grouped": _attention_grouped_probed,
    "rope.attention": _rope_attention_probed,
    "mask.kept": _mask_kept_probed,
    "sample.temperature": _sample_temperature_probed,
    "sample.top_p": _sample_top_p_probed,
}


# --- the numbers ---------------------------------------------------------------------------------------


def _ffn_probes(upstream: int) -> tuple[Arguments, ...]:
    """All sizes distinct, then d_ff = d_model; in each, one unit whose z is exactly 0 everywhere."""
    probes: list[Arguments] = []
    for B, T, d_model, d_ff in ((2, 3, 4, 5), (4, 2, 3, 3)):
        W_1, b_1 = _normal(d_model, d_ff), _normal(d_ff)
        W_1[:, 1], b_1[1] = 0, 0
        x, dy = _normal(B, T, d_model), _normal(B, T, d_model, seed=1)
        probes.append((*[dy] * upstream, x, W_1, b_1, _normal(d_ff, d_model, seed=1), _normal(d_model)))
    return tuple(probes)


def _norm_probes(upstream: int) -> tuple[Arguments, ...]:
    """A large eps; then rows of very small spread, and forward a constant one."""
    probes: list[Arguments] = []
    for shape, eps in (((2, 3, 5), 0.1), ((3, 4, 7), 1e-5)):
        x, dy = 0.7 + _normal(*shape), _normal(*shape, seed=1)
        if eps < 0.1:
            x = 1 + x * np.array([1.0, 1e-3 if not upstream else 0.1, 0.1 * upstream, 2.0])[:, None]
        gamma, beta = 1 + 0.5 * _normal(shape[-1]), _normal(shape[-1], seed=1)
        probes.append((*[dy] * upstream, x, gamma, beta, eps))
    return tuple(probes)


def _softmax_probes() -> tuple[Arguments, ...]:
    shapes = (3, 4), (5, 2), (4, 6)
    return tuple((2 * _normal(*shape, seed=1), softmax_forward(_normal(*shape))[0]) for shape in shapes)


def _attention_probes() -> tuple[Arguments, ...]:
    """v = 1 shows the weights. No mask, some and some, one that hides nothing; and three widths d_k."""
    q, k = 2 * _normal(4, 6), 2 * _normal(5, 6)
    some = np.array([[1, 0, 1, 0, 1], [0, 1, 1, 0, 0], [1, 1, 0, 0, 1], [0, 0, 1, 1, 0]], bool)
    few = np.array([[1, 0, 0, 1, 0, 1, 1], [0, 1, 0, 0, 0, 0, 1], [0, 1, 1, 0, 1, 0, 0]], bool)
    small, wide = (_normal(3, 2), _normal(4, 2)), (4 * _normal(3, 9), 4 * _normal(7, 9))
    return (
        (q, k, np.eye(5), None),
        (q, k, _normal(5, 3), some),
        (*small, np.eye(4), np.ones((3, 4), bool)),
        (*wide, _normal(7, 2), few),
    )


def _huge(level: Array, last: float = 1.0) -> Arguments:
    """Queries and keys whose scores are `level` more than ordinary ones, the last key's `last` times that."""
    q, k = _normal(3, 4), _normal(5, 4)
    more = 5**0.5 * np.array([[1.0], [1.0], [1.0], [1.0], [last]])
    return np.append(q, level, axis=1), np.append(k, more, axis=1), _normal(5, 2), None


def _block_probe(d: int) -> Arguments:
    """x and four layers to put together: a mixing of the rows, a norm, a layer for each row, a norm."""
    mix, W = _normal(3, 3), _normal(d, d)
    norm_1, norm_2 = (LayerNormParams(1 + 0.5 * _normal(d), _normal(d, seed=n)) for n in (1, 2))
    layers: dict[str, Callable[[Array], Array]] = {
        "attend": lambda x: mix @ x,
        "norm_1": lambda x: layer_norm_forward(x, norm_1)[0],
        "ffn": lambda x: np.tanh(x @ W),
        "norm_2": lambda x: layer_norm_forward(x, norm_2)[0],
    }
    for name, layer in layers.items():
        layer.__name__ = layer.__qualname__ = name  # an error of a call names it
    return _normal(3, d), *layers.values()
