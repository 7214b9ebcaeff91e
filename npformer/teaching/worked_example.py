"""The worked example: "dog bites man" through one encoder block and all the way back, by hand.

Three tokens, d_model = 4, two heads, d_ff = 6, and weights that are integers and halves, so that a person
with a pencil can follow every number. Each step is one plain line of NumPy, written down with its name, its
equation and its shape. The equations are those of "Attention Is All You Need" (Vaswani et al., 2017).

One letter for each thing, the same in the package, the lessons, the worksheets and the player:

    E   the embedding table            Q, K, V, scores, weights, heads   inside the attention
    x   what enters the block          a = attention(x)   s = x + a      h = norm_1(s)
    z, hidden   inside the FFN         f = FFN(h)         t = h + f      y = norm_2(t)
    L   the loss                       mean, centred, variance, std, x_hat   inside a norm

What stands in one place of the block only is a step of that name: "x", "a", "s", "h", "f", "t", "y". The
others carry their place: "attention.Q", "norm_1.mean", "ffn.z". The gradient of anything has a d in front of
its letter, dh, and a d_ in front of its step's name: "d_h", "d_ffn.W_1", "d_norm_1.gamma", "d_E".
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from npformer.attention import AttentionParams, merge_heads, split_heads
from npformer.backend import Array
from npformer.config import TransformerConfig
from npformer.embedding import EmbeddingParams
from npformer.encoder import EncoderBlockParams
from npformer.feed_forward import FFNParams
from npformer.layer_norm import LayerNormParams
from npformer.tree import leaves
from npformer.validate import check_integer, check_kind

Write: TypeAlias = Callable[..., Array]  # _write below, with all but the step's own arguments filled in
Section: TypeAlias = Callable[[str], Write]  # from a section's title to its Write

GIVEN = "given"  # the equation of a number that nobody has to calculate

MOST_DECIMALS = 8  # more would be rounding what the calculation itself has rounded

AXES = {  # the shape of every step and parameter in letters; those that are not here are (n, d_model)
    "E": "vocab d_model",
    "angles": "n d_model/2",
    **dict.fromkeys(("W_Q", "W_K", "W_V", "W_O"), "d_model d_model"),
    **dict.fromkeys(("scores", "exp", "weights"), "n_heads n n"),
    "heads": "n_heads n d_k",
    **dict.fromkeys(("mean", "variance", "std", "along_1", "along_x"), "n 1"),
    **dict.fromkeys(("gamma", "beta", "b_2"), "d_model"),
    **dict.fromkeys(("z", "hidden"), "n d_ff"),
    **{"W_1": "d_model d_ff", "b_1": "d_ff", "W_2": "d_ff d_model", "loss": ""},
}


class Example(NamedTuple):
    """A sentence and every number that the calculation starts from."""

    tokens: tuple[str, ...]
    vocabulary: tuple[str, ...]
    ids: Array  # (n,), where each token stands in the vocabulary
    embedding: EmbeddingParams
    block: EncoderBlockParams
    config: TransformerConfig
    target: Array  # (n, d_model), what the loss would like the output to be


class Step(NamedTuple):
    """One line of the calculation; `print(step)` shows it as a table."""

    section: str
    name: str
    equation: str
    source: str  # where the paper has it: "eq. 1", "sec. 3.5"; empty where it has nothing
    axes: tuple[str, ...]  # the shape in letters: ("n_heads", "n", "n")
    shape: tuple[int, ...]  # what the letters come to: (2, 3, 3)
    rows: tuple[str, ...]  # a word for each row, where the rows are words
    columns: tuple[str, ...]
    decimals: int | None  # what the value was rounded to
    value: Array

    @property
    def matrices(self) -> Array:
        """The value as matrices (n_heads, rows, columns), one a head; a vector is one of a single row."""
        stacked = np.atleast_2d(self.value)
        return stacked.reshape(-1, *stacked.shape[-2:])

    def __str__(self) -> str:
        return "\n".join(_table(self, labelled=True))


class Trace(NamedTuple):
    """Every step in order; `trace.named["ffn.z"]` finds one, `print(trace)` shows them all."""

    example: Example
    decimals: int | None
    steps: tuple[Step, ...]

    @property
    def named(self) -> dict[str, Step]:
        """The steps by their names, in order."""
        return {step.name: step for step in self.steps}

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def worked_example(example: Example | None = None, *, decimals: int | None = None) -> Trace:
    """Every step of one encoder block, forward and then back to every parameter, in order.

    Without an example it is "dog bites man". `decimals=3` rounds every step to three decimals before the
    next one uses it, as a pencil and a calculator do; `drift` says how far that leads.

    Raises TypeError unless example is an Example and decimals an integer, ValueError for decimals outside
    1 to 8, for arrays that do not fit each other, and for a block of another kind: pre-norm, GELU, attention
    biases, other positions.

    >>> trace = worked_example(decimals=3)
    >>> print(trace.named["table"])
    table  (3, 4)
    PE(pos, 2i) = sin(angle), PE(pos, 2i+1) = cos(angle)  [sec. 3.5]
    dog    0.000  1.000  0.000  1.000
    bites  0.841  0.540  0.010  1.000
    man    0.909 -0.416  0.020  1.000
    """
    example = dog_bites_man() if example is None else example
    check_kind("worked_example", "example", example, Example)
    _check_block(example)
    if decimals is not None:
        check_integer("worked_example", "decimals", decimals, minimum=1)
        if decimals > MOST_DECIMALS:
            raise ValueError(f"worked_example: decimals is {decimals}; expected at most {MOST_DECIMALS}")
    steps: list[Step] = []

    def section(title: str) -> Write:
        return partial(_write, steps, example, decimals, title)

    block, config = example.block, example.config
    x = _words_and_positions_forward(section, example)
    a, seen = _attention_forward(section, x, block.attention, config.n_heads)
    h, seen_1 = _add_and_norm_forward(section, NORM_1, x, a, block.norm_1, config.eps)
    f, seen_ffn = _ffn_forward(section, h, block.ffn)
    y, seen_2 = _add_and_norm_forward(section, NORM_2, h, f, block.norm_2, config.eps)
    dy = _loss(section, y, example.target)
    dt = _add_and_norm_backward(section, NORM_2, dy, seen_2, block.norm_2)
    dh = _ffn_backward(section, dt, seen_ffn, block.ffn)
    ds = _add_and_norm_backward(section, NORM_1, dh, seen_1, block.norm_1)
    dx = _attention_backward(section, ds, seen, block.attention)
    _words_and_positions_backward(section, dx, example)
    return Trace(example, decimals, tuple(steps))


def drift(trace: Trace) -> dict[str, float]:
    """How far rounding has led each step: the largest difference from the same step worked exactly, by name.

    >>> far = drift(worked_example(decimals=3))
    >>> print(f"{far['attention.scores']:.4f} {far['y']:.4f} {far['d_E']:.4f}")
    0.0016 0.0010 0.0108
    """
    exact = worked_example(trace.example)
    pairs = zip(trace.steps, exact.steps, strict=True)
    return {step.name: float(np.abs(step.value - true.value).max()) for step, true in pairs}


def _check_block(example: Example) -> None:
    """The trace writes down one kind of block; another kind would get this block's numbers."""
    for name, wanted in (("norm", "post"), ("activation", "relu"), ("positions", "sinusoidal")):
        found = getattr(example.config, name)
        if found != wanted:
            raise ValueError(f"worked_example: config.{name} is {found!r}; the trace shows {wanted!r} only")
    biases = [path for path, _ in leaves(example.block.attention) if path.startswith("b_")]
    if biases:
        raise ValueError(
            f"worked_example: attention has {', '.join(biases)}; the trace shows no attention biases"
        )


# The numbers


def dog_bites_man() -> Example:
    """The example of the lessons, with weights chosen so that no number is dull.

    In head 1 the two nouns look at the verb, and the verb at its object. Every token switches other hidden
    units on; unit 2 is off for all of them. `<pad>` does not stand in the sentence and gets no gradient.
    """
    E = _rows("0 0 0 0 | -.5 1 .5 .5 | 1 0 -.5 .5 | 1 -.5 .5 0")
    attention = AttentionParams(
        W_Q=_rows(".5 -.5 0 0 | 1 0 -.5 0 | 0 0 0 1 | .5 1 1 0"),
        W_K=_rows("-.5 1 1 0 | 0 0 1 -.5 | 0 .5 0 0 | 0 0 -1 -.5"),
        W_V=_rows("0 0 0 -.5 | 1 0 1 .5 | -.5 0 .5 0 | .5 -1 0 0"),
        W_O=_rows("0 .5 0 -.5 | .5 0 -1 0 | 1 .5 0 0 | 0 0 -.5 1"),
    )
    W_1 = _rows("-.5 1 -.5 0 -.5 0 | 0 0 0 0 0 .5 | 0 1 1 0 -.5 1 | 0 0 .5 .5 0 0")
    W_2 = _rows("0 0 -.5 -.5 | 0 -.5 -.5 0 | 0 0 0 .5 | 0 -.5 0 0 | .5 0 1 1 | .5 0 1 0")
    ffn = FFNParams(W_1, _row("-.5 -1 -1 1 .5 -1"), W_2, _row("0 1 -.5 0"))
    norm_1 = LayerNormParams(_row("1 2 .5 1"), _row("0 .5 0 -.5"))
    norm_2 = LayerNormParams(_row("2 1 1 .5"), _row("0 -1 .5 1"))
    config = TransformerConfig(d_model=4, d_ff=6, n_heads=2, n_layers=1, dropout=0.0)
    return Example(
        tokens=("dog", "bites", "man"),
        vocabulary=("<pad>", "bites", "dog", "man"),
        ids=np.array([2, 1, 3]),
        embedding=EmbeddingParams(E),
        block=EncoderBlockParams(attention, norm_1, ffn, norm_2),
        config=config,
        target=_rows("1 -1 -.5 -.5 | -.5 1 2 -.5 | 1 -1 1 1"),
    )


def _row(numbers: str) -> Array:
    return _rows(numbers)[0]


def _rows(numbers: str) -> Array:
    return np.array([[float(number) for number in row.split()] for row in numbers.split("|")])


# One step


def _write(
    steps: list[Step],
    example: Example,
    decimals: int | None,
    section: str,
    name: str,
    equation: str,
    value: Array,
    source: str = "",
) -> Array:
    """Put one step on the list, rounded as a pencil rounds, and hand its value on to the next."""
    axes = tuple(AXES.get(name.rpartition(".")[2].removeprefix("d_"), "n d_model").split())
    sizes, words = _sizes(example), _words(example)
    shape = tuple(sizes[letter] for letter in axes)
    if value.shape != shape:
        expected = f"({', '.join(axes)}) = {shape}"
        raise ValueError(f"worked_example: {name} has shape {value.shape}; expected {expected}")
    if decimals is not None and equation != GIVEN:
        value = round_half_away(value, decimals)
    rows, columns = (words.get(letter, ()) for letter in ("", "", *axes)[-2:])
    steps.append(Step(section, name, equation, source, axes, shape, rows, columns, decimals, value))
    return value


def _sizes(example: Example) -> dict[str, int]:
    d_model, n_heads = example.config.d_model, example.config.n_heads
    sizes = {"n": len(example.tokens), "vocab": len(example.vocabulary), "n_heads": n_heads, "1": 1}
    widths = {"d_model": d_model, "d_k": d_model // n_heads, "d_model/2": d_model // 2}
    return {**sizes, **widths, "d_ff": example.config.d_ff}


def _words(example: Example) -> dict[str, tuple[str, ...]]:
    pairs = tuple(f"i = {i}" for i in range(example.config.d_model // 2))
    return {"n": example.tokens, "vocab": example.vocabulary, "d_model/2": pairs}


def round_half_away(value: Array, decimals: int) -> Array:
    """Round as people do on paper: a half goes away from zero (0.0625 to 0.063, -0.0625 to -0.063).

    NumPy sends a half to the even neighbour; and 0.841 / 2, which a pencil writes as 0.4205, lies a little
    below the half in binary. A millionth of the last kept digit decides nothing else and settles that.

    >>> round_half_away(np.array([0.841 / 2, -0.0625, 1.0004]), 3)
    array([ 0.421, -0.063,  1.   ])
    """
    units = np.floor(np.abs(value) * 10.0**decimals + (0.5 + 1e-6))
    return np.copysign(units, value) / 10.0**decimals + 0.0  # + 0.0: no -0


# The steps, forward and directly below the way back


def _words_and_positions_forward(section: Section, example: Example) -> Array:
    write = section("Words and positions")
    n, d_model = len(example.tokens), example.config.d_model
    E = write("E", GIVEN, example.embedding.E)
    embedding = E[example.ids] * math.sqrt(d_model)  # (n, d_model)
    embedding = write("embedding", "embedding = E[ids] · √d_model", embedding, "sec. 3.4")
    pos, two_i = np.arange(n)[:, None], np.arange(0, d_model, 2)
    angles = pos / 10000 ** (two_i / d_model)  # (n, d_model/2)
    angles = write("angles", "angle = pos / 10000^(2i/d_model)", angles, "sec. 3.5")
    table = np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d_model)
    table = write("table", "PE(pos, 2i) = sin(angle), PE(pos, 2i+1) = cos(angle)", table, "sec. 3.5")
    return write("x", "x = embedding + PE", embedding + table, "sec. 3.5")


def _words_and_positions_backward(section: Section, dx: Array, example: Example) -> None:
    write = section("Back to the words")
    dE = np.zeros_like(example.embedding.E)
    np.add.at(dE, example.ids, math.sqrt(dx.shape[-1]) * dx)  # a word that stands twice gets both
    write("d_E", "dE[word] = √d_model · Σ over its places of dx", dE)


def _attention_forward(
    section: Section, x: Array, params: AttentionParams, n_heads: int
) -> tuple[Array, tuple[Array, ...]]:
    write = section("Multi-head attention")
    _write_given(write, "attention", params)
    Q = write("attention.Q", "Q = x W_Q", x @ params.W_Q, "sec. 3.2.2")
    K = write("attention.K", "K = x W_K", x @ params.W_K, "sec. 3.2.2")
    V = write("attention.V", "V = x W_V", x @ params.W_V, "sec. 3.2.2")
    Q, K, V = (split_heads(projected, n_heads) for projected in (Q, K, V))  # each (n_heads, n, d_k)
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])  # (n_heads, n, n)
    scores = write("attention.scores", "scores = Q Kᵀ / √d_k, head by head", scores, "eq. 1")
    exp = write("attention.exp", "exp = e^scores", np.exp(scores))
    weights = exp / exp.sum(axis=-1, keepdims=True)
    weights = write("attention.weights", "weights = softmax(scores) = exp / row sum of exp", weights, "eq. 1")
    heads = weights @ V  # (n_heads, n, d_k)
    heads = write("attention.heads", "heads = weights V, head by head", heads, "eq. 1")
    a = merge_heads(heads) @ params.W_O  # (n, d_model)
    a = write("a", "a = Concat(heads) W_O", a, "sec. 3.2.2")
    return a, (x, Q, K, V, weights, heads)


def _attention_backward(
    section: Section, ds: Array, seen: tuple[Array, ...], params: AttentionParams
) -> Array:
    write = section("Back through multi-head attention")
    x, Q, K, V, weights, heads = seen
    n_heads, root = len(heads), math.sqrt(heads.shape[-1])  # root is √d_k
    write("d_attention.W_O", "dW_O = Concat(heads)ᵀ ds", merge_heads(heads).T @ ds)
    dheads = split_heads(ds @ params.W_O.T, n_heads)  # (n_heads, n, d_k)
    dheads = write("d_attention.heads", "dheads = ds W_Oᵀ, cut into heads", dheads)
    dV = merge_heads(weights.mT @ dheads)  # (n, d_model)
    dV = write("d_attention.V", "dV = weightsᵀ dheads, heads side by side", dV)
    dweights = write("d_attention.weights", "dweights = dheads Vᵀ", dheads @ V.mT)  # (n_heads, n, n)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    equation = "dscores = weights ⊙ (dweights − row sum of dweights ⊙ weights)"
    dscores = write("d_attention.scores", equation, dscores)
    dQ, dK = merge_heads(dscores @ K) / root, merge_heads(dscores.mT @ Q) / root  # each (n, d_model)
    dQ = write("d_attention.Q", "dQ = dscores K / √d_k, heads side by side", dQ)
    dK = write("d_attention.K", "dK = dscoresᵀ Q / √d_k, heads side by side", dK)
    for name, gradient in zip("QKV", (dQ, dK, dV), strict=True):
        write(f"d_attention.W_{name}", f"dW_{name} = xᵀ d{name}", x.T @ gradient)
    dx = ds + dQ @ params.W_Q.T + dK @ params.W_K.T + dV @ params.W_V.T
    return write("d_x", "dx = ds + dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ", dx)


class _Norm(NamedTuple):
    """The letters of one LayerNorm(x + Sublayer(x)): what goes past, the sub-layer, their sum, the output."""

    title: str
    name: str
    past: str
    sublayer: str
    sum: str
    out: str


NORM_1 = _Norm("first add & norm", "norm_1", "x", "a", "s", "h")
NORM_2 = _Norm("second add & norm", "norm_2", "h", "f", "t", "y")


def _add_and_norm_forward(
    section: Section, norm: _Norm, past: Array, sublayer: Array, params: LayerNormParams, eps: float
) -> tuple[Array, tuple[Array, Array]]:
    write, name = section(norm.title.capitalize()), norm.name
    _write_given(write, name, params)
    added = write(norm.sum, f"{norm.sum} = {norm.past} + {norm.sublayer}", past + sublayer, "sec. 3.1")
    mean = added.mean(axis=-1, keepdims=True)  # (n, 1)
    mean = write(f"{name}.mean", f"mean = row mean of {norm.sum}", mean)
    centred = write(f"{name}.centred", f"centred = {norm.sum} − mean", added - mean)
    variance = (centred**2).mean(axis=-1, keepdims=True)  # (n, 1)
    variance = write(f"{name}.variance", "variance = row mean of centred²", variance)
    std = write(f"{name}.std", "std = √(variance + ε)", np.sqrt(variance + eps))
    x_hat = write(f"{name}.x_hat", "x_hat = centred / std", centred / std)
    out = params.gamma * x_hat + params.beta
    out = write(norm.out, f"{norm.out} = gamma ⊙ x_hat + beta", out, "sec. 3.1")
    return out, (x_hat, std)


def _add_and_norm_backward(
    section: Section, norm: _Norm, dout: Array, seen: tuple[Array, Array], params: LayerNormParams
) -> Array:
    """What layer norm takes away, a shift of the row and a stretch of x_hat, no gradient can ask for."""
    write, name = section(f"Back through the {norm.title}"), f"d_{norm.name}"
    x_hat, std = seen
    write(f"{name}.gamma", f"dgamma = Σ over tokens of d{norm.out} ⊙ x_hat", (dout * x_hat).sum(axis=0))
    write(f"{name}.beta", f"dbeta = Σ over tokens of d{norm.out}", dout.sum(axis=0))
    dx_hat = write(f"{name}.x_hat", f"dx_hat = d{norm.out} ⊙ gamma", dout * params.gamma)
    along_1 = dx_hat.mean(axis=-1, keepdims=True)  # (n, 1)
    along_1 = write(f"{name}.along_1", "along_1 = row mean of dx_hat", along_1)
    along_x = (dx_hat * x_hat).mean(axis=-1, keepdims=True)  # (n, 1)
    along_x = write(f"{name}.along_x", "along_x = row mean of dx_hat ⊙ x_hat", along_x)
    dadded = (dx_hat - along_1 - along_x * x_hat) / std
    return write(f"d_{norm.sum}", f"d{norm.sum} = (dx_hat − along_1 − along_x · x_hat) / std", dadded)


def _ffn_forward(section: Section, h: Array, params: FFNParams) -> tuple[Array, tuple[Array, ...]]:
    write = section("Feed-forward network")
    _write_given(write, "ffn", params)
    z = write("ffn.z", "z = h W_1 + b_1", h @ params.W_1 + params.b_1, "eq. 2")  # (n, d_ff)
    hidden = write("ffn.hidden", "hidden = max(0, z)", np.maximum(0, z), "eq. 2")
    f = hidden @ params.W_2 + params.b_2  # (n, d_model)
    return write("f", "f = hidden W_2 + b_2", f, "eq. 2"), (h, z, hidden)


def _ffn_backward(section: Section, dt: Array, seen: tuple[Array, ...], params: FFNParams) -> Array:
    write = section("Back through the feed-forward network")
    h, z, hidden = seen
    write("d_ffn.W_2", "dW_2 = hiddenᵀ dt", hidden.T @ dt)
    write("d_ffn.b_2", "db_2 = Σ over tokens of dt", dt.sum(axis=0))
    dhidden = write("d_ffn.hidden", "dhidden = dt W_2ᵀ", dt @ params.W_2.T)  # (n, d_ff)
    dz = write("d_ffn.z", "dz = dhidden where z > 0, else 0", np.where(z > 0, dhidden, 0.0))
    write("d_ffn.W_1", "dW_1 = hᵀ dz", h.T @ dz)
    write("d_ffn.b_1", "db_1 = Σ over tokens of dz", dz.sum(axis=0))
    return write("d_h", "dh = dt + dz W_1ᵀ", dt + dz @ params.W_1.T)  # (n, d_model)


def _loss(section: Section, y: Array, target: Array) -> Array:
    write = section("Loss")
    write("target", GIVEN, target)
    write("loss", "L = ½ Σ (y − target)²", np.asarray(((y - target) ** 2).sum() / 2))
    return write("d_y", "dy = y − target", y - target)


def _write_given(write: Write, place: str, params: Any) -> None:
    for name, value in leaves(params):
        write(f"{place}.{name}", GIVEN, value)


# The trace as text

WIDTH = 100  # letters on a line
PLACES = 3  # decimals shown of exact numbers


def _lines(trace: Trace) -> Iterator[str]:
    yield from _opening(trace)
    for section, steps in itertools.groupby(trace.steps, key=lambda step: step.section):
        yield from ("", f"── {section} ".ljust(WIDTH, "─"))
        for row in side_by_side(steps, _text_width, WIDTH):
            yield from ("", *_text(row))
    if trace.decimals is not None:
        yield from ("", *_closing(trace, places=trace.decimals + 2))


def _opening(trace: Trace) -> Iterator[str]:
    sizes = _sizes(trace.example)
    shown = ("n", "d_model", "n_heads", "d_k", "d_ff")
    letters = ", ".join(f"{letter} = {sizes[letter]}" for letter in shown)
    yield f"“{' '.join(trace.example.tokens)}” through one encoder block and all the way back"
    yield f"{letters}, ε = {trace.example.config.eps:g}; ⊙ multiplies entry by entry"
    if trace.decimals is None:
        yield f"calculated to 16 digits, shown to {PLACES} decimals"
    else:
        yield f"every step rounded to {trace.decimals} decimals (halves away from zero) before it is used"


def _closing(trace: Trace, places: int) -> Iterator[str]:
    """How far the rounding led: the worst step of each section."""
    far = drift(trace)
    yield f"Rounding to {trace.decimals} decimals has led this far from the exact numbers:"
    for section, steps in itertools.groupby(trace.steps, key=lambda step: step.section):
        worst = max(steps, key=lambda step: far[step.name]).name
        yield f"  {section:38} at most {far[worst]:.{places}f}, in {worst}"
    for end, name in (("the output y", "y"), ("the loss", "loss"), ("the gradient of E", "d_E")):
        yield f"  {end:38}         {far[name]:.{places}f}"


class Placed(NamedTuple):
    """A step in a row of tables; the words of its rows are left out where the table before has the same."""

    step: Step
    labelled: bool


def side_by_side(
    steps: Iterable[Step], width_of: Callable[[list[Placed]], float], width: float
) -> Iterator[list[Placed]]:
    """Rows of tables, as many beside each other as the width allows."""
    row: list[Placed] = []
    for step in steps:
        longer = [*row, Placed(step, not row or _levels(row[-1].step) != _levels(step))]
        if row and width_of(longer) > width:
            yield row
            longer = [Placed(step, True)]
        row = longer
    yield row


def _levels(step: Step) -> tuple[Any, ...]:
    """What two tables must share for their rows to stand at one height and mean the same."""
    return step.rows, bool(step.columns), len(step.matrices) > 1


def _text_width(row: list[Placed]) -> int:
    return max(map(len, _text(row)))


def _text(row: list[Placed]) -> list[str]:
    tables = [_table(*placed) for placed in row]
    widths = [max(map(len, table)) for table in tables]
    return [
        "   ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in itertools.zip_longest(*tables, fillvalue="")
    ]


def _table(step: Step, labelled: bool) -> list[str]:
    """Name and shape, equation, and the numbers, with the words of their columns and rows."""
    over, body = _grid(step)
    labels = step.rows if labelled else ()
    margin = max((len(label) + 1 for label in labels), default=0)
    source = f"  [{step.source}]" if step.source else ""
    return [
        f"{step.name}  {step.shape}",
        f"{step.equation}{source}",
        *(" " * margin + line for line in over),
        *(label.ljust(margin) + line for label, line in zip(labels or [""] * len(body), body, strict=True)),
    ]


def _grid(step: Step) -> tuple[list[str], list[str]]:
    """What stands over the columns, and the rows of numbers; heads are side by side."""
    texts = [[[format_number(step, v) for v in row] for row in matrix] for matrix in step.matrices]
    width = max(map(len, itertools.chain(step.columns, *itertools.chain(*texts))))

    def line(parts: Iterable[Iterable[str]]) -> str:
        return "   ".join(" ".join(text.rjust(width) for text in part) for part in parts)

    body = [line(parts) for parts in zip(*texts, strict=True)]
    over = [line([step.columns] * len(texts))] if step.columns else []
    if len(texts) > 1:
        span = len(line([texts[0][0]]))
        over.insert(0, "   ".join(f"head {i}".ljust(span) for i in range(1, len(texts) + 1)).rstrip())
    return over, body


def format_number(step: Step, value: float) -> str:
    """A number of the step as it is written: a given one as it is, a calculated one with its decimals."""
    places = PLACES if step.decimals is None else step.decimals
    return f"{value:g}" if step.equation == GIVEN else f"{value:z.{places}f}"
