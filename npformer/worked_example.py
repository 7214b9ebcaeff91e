"""The worked example: "dog bites man" through one encoder block and all the way back, by hand.

Three tokens, d_model = 4, two heads, d_ff = 6, and weights that are integers and halves, so that a person
with a pencil can follow every number. Each step is one plain line of NumPy, written down with its name, its
equation and its shape. The equations are those of "Attention Is All You Need" (Vaswani et al., 2017).

The gradient of anything carries its name with a d_ in front: d_ffn.z, d_ffn.W_1, d_norm_1.gamma, d_E.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from npformer.attention import AttentionParams, merge_heads, split_heads
from npformer.backend import Array
from npformer.embedding import EmbeddingParams
from npformer.encoder import EncoderBlockParams, TransformerConfig
from npformer.feed_forward import FFNParams
from npformer.layer_norm import LayerNormParams
from npformer.tree import leaves
from npformer.validate import check_integer, check_kind

Write: TypeAlias = Callable[..., Array]  # _write, its first arguments filled in

GIVEN = "given"  # the equation of a number that nobody has to calculate

AXES = {  # the shape of every step and parameter in letters; those that are not here are (n, d_model)
    "E": "vocab d_model",
    "angles": "n d_model/2",
    **dict.fromkeys(("W_Q", "W_K", "W_V", "W_O"), "d_model d_model"),
    **dict.fromkeys(("scores", "exp", "weights"), "h n n"),
    "heads": "h n d_k",
    **dict.fromkeys(("mean", "variance", "std", "along_ones", "along_x_hat"), "n 1"),
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
    source: str  # where the paper has it: "equation 1", "section 3.5"; empty where it has nothing
    axes: tuple[str, ...]  # the shape in letters: ("h", "n", "n")
    shape: tuple[int, ...]  # what the letters come to: (2, 3, 3)
    rows: tuple[str, ...]  # a word for each row, where the rows are words
    columns: tuple[str, ...]
    decimals: int | None  # what the value was rounded to
    value: Array

    def __str__(self) -> str:
        return "\n".join(_row(self))


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

    >>> trace = worked_example(decimals=3)
    >>> print(trace.named["table"])
    table  (3, 4)
    PE(pos, 2i) = sin(angle), PE(pos, 2i+1) = cos(angle)  [section 3.5]
    dog   0.000  1.000 0.000 1.000
    bites 0.841  0.540 0.010 1.000
    man   0.909 -0.416 0.020 1.000
    """
    example = dog_bites_man() if example is None else example
    check_kind("worked_example", "example", example, Example)
    if decimals is not None:
        check_integer("worked_example", "decimals", decimals, minimum=0)
    _check_config(example.config)
    steps: list[Step] = []

    def section(title: str) -> Write:
        return partial(_write, steps, example, decimals, title)

    block, eps = example.block, example.config.eps
    x = _words_and_positions_forward(section("Words and positions"), example)
    attended, seen = _attention_forward(section("Multi-head attention"), x, block.attention, example.config.n_heads)
    u, seen_1 = _add_and_norm_forward(section("First add & norm"), NORM_1, x, attended, block.norm_1, eps)
    fed, seen_ffn = _ffn_forward(section("Feed-forward network"), u, block.ffn)
    y, seen_2 = _add_and_norm_forward(section("Second add & norm"), NORM_2, u, fed, block.norm_2, eps)
    dy = _loss(section("Loss"), y, example.target)
    dc = _add_and_norm_backward(section("Back through the second add & norm"), NORM_2, dy, seen_2, block.norm_2)
    du = _ffn_backward(section("Back through the feed-forward network"), dc, seen_ffn, block.ffn)
    da = _add_and_norm_backward(section("Back through the first add & norm"), NORM_1, du, seen_1, block.norm_1)
    dx = _attention_backward(section("Back through multi-head attention"), da, seen, block.attention)
    _words_and_positions_backward(section("Back to the words"), dx, example)
    return Trace(example, decimals, tuple(steps))


def drift(trace: Trace) -> dict[str, float]:
    """How far rounding has led each step: the largest difference from the same step worked exactly, by name.

    >>> far = drift(worked_example(decimals=3))
    >>> f"{far['attention.scores']:.4f} {far['norm_2.output']:.4f} {max(far.values()):.4f}"
    """
    exact = worked_example(trace.example)
    pairs = zip(trace.steps, exact.steps, strict=True)
    return {step.name: float(np.abs(step.value - true.value).max()) for step, true in pairs}


def _check_config(config: TransformerConfig) -> None:
    """The trace writes down one kind of block; another kind would get another block's numbers."""
    wanted = {"norm": "post", "activation": "relu", "positions": "sinusoidal", "attention_bias": False}
    for name, value in wanted.items():
        if getattr(config, name) != value:
            found = getattr(config, name)
            raise ValueError(f"worked_example: config.{name} is {found!r}; the trace shows {value!r} only")


# The numbers


def dog_bites_man() -> Example:
    """The example of the lessons: weights chosen so that no number is dull.

    Head 1 looks from each noun to the verb. Every token switches other hidden units on, unit 3 stays off for
    all of them, and the word of the vocabulary that is not in the sentence gets no gradient.
    """
    tokens, vocabulary = ("dog", "bites", "man"), ("<pad>", "bites", "dog", "man")
    E = _rows("0 0 0 0 | 0 1 -.5 -1 | 1 -.5 0 .5 | -.5 .5 1 0")
    attention = AttentionParams(
        W_Q=_rows("0 .5 0 -1 | -.5 0 0 0 | 0 .5 0 1 | 0 0 .5 0"),
        W_K=_rows("-.5 0 0 0 | 0 .5 0 0 | 0 -1 1 0 | 0 0 -.5 -.5"),
        W_V=_rows("0 1 0 0 | 0 0 0 .5 | 0 0 -.5 1 | -1 0 0 0"),
        W_O=_rows("0 1 -1 0 | -.5 0 0 1 | 0 0 0 1 | 0 1 -.5 0"),
    )
    ffn = FFNParams(
        W_1=_rows("0 -1 0 0 0 0 | 0 0 0 -.5 0 1 | .5 0 .5 0 0 0 | 1 0 1 1 1 -.5"),
        b_1=_rows("0 1 .5 0 .5 -2")[0],
        W_2=_rows("1 0 0 0 | 0 0 0 1 | 0 0 .5 -1 | 1 0 -1 0 | 0 -1 0 -.5 | 0 -1 0 0"),
        b_2=_rows(".5 .5 -.5 1")[0],
    )
    norm_1 = LayerNormParams(_rows("1 2 .5 1")[0], _rows("0 .5 0 -.5")[0])
    norm_2 = LayerNormParams(_rows("2 1 1 .5")[0], _rows("0 -1 .5 1")[0])
    config = TransformerConfig(d_model=4, d_ff=6, n_heads=2, n_layers=1, dropout=0.0)
    block = EncoderBlockParams(attention, norm_1, ffn, norm_2)
    target = _rows("-1 0 -1 0 | 0 -.5 -1 1 | -1 -2 0 2")
    return Example(tokens, vocabulary, np.array([2, 1, 3]), EmbeddingParams(E), block, config, target)


def _rows(numbers: str) -> Array:
    return np.array([[float(number) for number in row.split()] for row in numbers.split("|")])


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
    sizes, words = _sizes(example), {"n": example.tokens, "vocab": example.vocabulary}
    shape = tuple(sizes[letter] for letter in axes)
    if value.shape != shape:
        expected = f"({', '.join(axes)}) = {shape}"
        raise ValueError(f"worked_example: {name} has shape {value.shape}; expected {expected}")
    if decimals is not None and equation != GIVEN:
        value = round_half_away(value, decimals)
    rows, columns = (words.get(letter, ()) for letter in ("", "", *axes)[-2:])
    columns = columns if len(axes) > 1 else ()
    steps.append(Step(section, name, equation, source, axes, shape, rows, columns, decimals, value))
    return value


def _sizes(example: Example) -> dict[str, int]:
    d_model, h = example.config.d_model, example.config.n_heads
    n, vocab = len(example.tokens), len(example.vocabulary)
    sizes = {"n": n, "vocab": vocab, "h": h, "1": 1, "d_model": d_model, "d_ff": example.config.d_ff}
    return {**sizes, "d_k": d_model // h, "d_model/2": d_model // 2}


def round_half_away(value: Array, decimals: int) -> Array:
    """Round as people do on paper: a half goes away from zero (0.0625 to 0.063, -0.0625 to -0.063).

    NumPy sends a half to the even neighbour; and 0.841 / 2, which a pencil writes as 0.4205, lies a little
    below the half in binary. A millionth of the last kept digit decides nothing else and settles that.

    >>> round_half_away(np.array([0.841 / 2, -0.0625, 1.0004]), 3)
    array([ 0.421, -0.063,  1.   ])
    """
    units = np.floor(np.abs(value) * 10.0**decimals + (0.5 + 1e-6))
    return np.copysign(units, value) / 10.0**decimals + 0.0  # + 0.0: no -0


# Forward, each step with its backward below


def _words_and_positions_forward(write: Write, example: Example) -> Array:
    n, d_model = len(example.tokens), example.config.d_model
    E = write("E", GIVEN, example.embedding.E)
    embedded = write("embedding", "E[ids] · √d_model", E[example.ids] * math.sqrt(d_model), "section 3.4")
    pos, two_i = np.arange(n)[:, None], np.arange(0, d_model, 2)
    angles = write("angles", "pos / 10000^(2i/d_model)", pos / 10000 ** (two_i / d_model), "section 3.5")
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1)  # (n, d_model/2, 2)
    equation = "PE(pos, 2i) = sin(angle), PE(pos, 2i+1) = cos(angle)"
    table = write("table", equation, pairs.reshape(n, d_model), "section 3.5")
    return write("sum", "x = embedding + table", embedded + table, "section 3.5")


def _words_and_positions_backward(write: Write, dx: Array, example: Example) -> None:
    E, ids = example.embedding.E, example.ids
    dE = np.zeros_like(E)
    np.add.at(dE, ids, math.sqrt(E.shape[1]) * dx)  # a word that stands twice gets both gradients
    write("d_E", "√d_model · dx, added to the row of each token's word; 0 for a word that is not there", dE)


def _attention_forward(
    write: Write, x: Array, params: AttentionParams, n_heads: int
) -> tuple[Array, tuple[Array, ...]]:
    _write_given(write, "attention", params)
    Q = write("attention.Q", "Q = x W_Q", x @ params.W_Q, "section 3.2.2")
    K = write("attention.K", "K = x W_K", x @ params.W_K, "section 3.2.2")
    V = write("attention.V", "V = x W_V", x @ params.W_V, "section 3.2.2")
    Q, K, V = (split_heads(projected, n_heads) for projected in (Q, K, V))  # each (h, n, d_k)
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])  # (h, n, n)
    scores = write("attention.scores", "Q Kᵀ / √d_k, head by head", scores, "equation 1")
    exp = write("attention.exp", "e^scores", np.exp(scores))
    weights = exp / exp.sum(axis=-1, keepdims=True)
    weights = write("attention.weights", "softmax(scores) = exp / row sum of exp", weights, "equation 1")
    heads = write("attention.heads", "weights V, head by head", weights @ V, "equation 1")  # (h, n, d_k)
    output = merge_heads(heads) @ params.W_O  # (n, d_model)
    output = write("attention.output", "Concat(head_1, …, head_h) W_O", output, "section 3.2.2")
    return output, (x, Q, K, V, weights, heads)


def _attention_backward(write: Write, da: Array, seen: tuple[Array, ...], params: AttentionParams) -> Array:
    x, Q, K, V, weights, heads = seen
    root = math.sqrt(Q.shape[-1])  # √d_k
    write("d_attention.W_O", "Concat(heads)ᵀ da", merge_heads(heads).T @ da)
    dheads = split_heads(da @ params.W_O.T, len(heads))  # (h, n, d_k)
    dheads = write("d_attention.heads", "da W_Oᵀ, cut into heads", dheads)
    dV = write("d_attention.V", "weightsᵀ dheads, heads side by side", merge_heads(weights.mT @ dheads))
    dweights = write("d_attention.weights", "dheads Vᵀ", dheads @ V.mT)  # (h, n, n)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    equation = "weights ⊙ (dweights − row sum of dweights ⊙ weights)"
    dscores = write("d_attention.scores", equation, dscores)
    dQ = write("d_attention.Q", "dscores K / √d_k, heads side by side", merge_heads(dscores @ K) / root)
    dK = write("d_attention.K", "dscoresᵀ Q / √d_k, heads side by side", merge_heads(dscores.mT @ Q) / root)
    for name, gradient in zip("QKV", (dQ, dK, dV), strict=True):
        write(f"d_attention.W_{name}", f"xᵀ d{name}", x.T @ gradient)
    dx = da + dQ @ params.W_Q.T + dK @ params.W_K.T + dV @ params.W_V.T
    return write("d_sum", "dx = da + dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ", dx)


class _Norm(NamedTuple):
    """What one add & norm is called: LayerNorm(a = x + attention.output) = u, LayerNorm(c = u + ffn.output) = y."""

    name: str
    before: str
    sublayer: str
    added: str
    after: str


NORM_1 = _Norm("norm_1", "x", "attention.output", "a", "u")
NORM_2 = _Norm("norm_2", "u", "ffn.output", "c", "y")


def _add_and_norm_forward(
    write: Write, norm: _Norm, x: Array, fx: Array, params: LayerNormParams, eps: float
) -> tuple[Array, tuple[Array, Array]]:
    name, a = norm.name, norm.added
    _write_given(write, name, params)
    added = write(f"{name}.add", f"{a} = {norm.before} + {norm.sublayer}", x + fx, "section 3.1")
    mean = write(f"{name}.mean", f"row mean of {a}", added.mean(axis=-1, keepdims=True))  # (n, 1)
    centred = write(f"{name}.centred", f"{a} − mean", added - mean)
    variance = write(f"{name}.variance", "row mean of centred²", (centred**2).mean(axis=-1, keepdims=True))
    std = write(f"{name}.std", "√(variance + ε)", np.sqrt(variance + eps))
    x_hat = write(f"{name}.x_hat", "centred / std", centred / std)
    y = params.gamma * x_hat + params.beta
    y = write(f"{name}.output", f"{norm.after} = gamma ⊙ x_hat + beta", y, "section 3.1")
    return y, (x_hat, std)


def _add_and_norm_backward(
    write: Write, norm: _Norm, dy: Array, seen: tuple[Array, Array], params: LayerNormParams
) -> Array:
    name, du = norm.name, f"d{norm.after}"
    x_hat, std = seen
    write(f"d_{name}.gamma", f"sum over tokens of {du} ⊙ x_hat", (dy * x_hat).sum(axis=0))
    write(f"d_{name}.beta", f"sum over tokens of {du}", dy.sum(axis=0))
    dx_hat = write(f"d_{name}.x_hat", f"{du} ⊙ gamma", dy * params.gamma)
    along_ones = dx_hat.mean(axis=-1, keepdims=True)
    along_ones = write(f"d_{name}.along_ones", "row mean of dx_hat", along_ones)
    along_x_hat = (dx_hat * x_hat).mean(axis=-1, keepdims=True)
    along_x_hat = write(f"d_{name}.along_x_hat", "row mean of dx_hat ⊙ x_hat", along_x_hat)
    equation = f"d{norm.added} = (dx_hat − along_ones − along_x_hat · x_hat) / std"
    return write(f"d_{name}.add", equation, (dx_hat - along_ones - along_x_hat * x_hat) / std)


def _ffn_forward(write: Write, u: Array, params: FFNParams) -> tuple[Array, tuple[Array, ...]]:
    _write_given(write, "ffn", params)
    z = write("ffn.z", "u W_1 + b_1", u @ params.W_1 + params.b_1, "equation 2")  # (n, d_ff)
    hidden = write("ffn.hidden", "max(0, z)", np.maximum(0, z), "equation 2")
    output = write("ffn.output", "hidden W_2 + b_2", hidden @ params.W_2 + params.b_2, "equation 2")
    return output, (u, z, hidden)


def _ffn_backward(write: Write, dc: Array, seen: tuple[Array, ...], params: FFNParams) -> Array:
    u, z, hidden = seen
    write("d_ffn.W_2", "hiddenᵀ dc", hidden.T @ dc)
    write("d_ffn.b_2", "sum over tokens of dc", dc.sum(axis=0))
    dhidden = write("d_ffn.hidden", "dc W_2ᵀ", dc @ params.W_2.T)  # (n, d_ff)
    dz = write("d_ffn.z", "dhidden where z > 0, else 0", np.where(z > 0, dhidden, 0.0))
    write("d_ffn.W_1", "uᵀ dz", u.T @ dz)
    write("d_ffn.b_1", "sum over tokens of dz", dz.sum(axis=0))
    return write("d_norm_1.output", "du = dc + dz W_1ᵀ", dc + dz @ params.W_1.T)


def _loss(write: Write, y: Array, target: Array) -> Array:
    write("target", GIVEN, target)
    write("loss", "½ Σ (y − target)²", np.asarray(((y - target) ** 2).sum() / 2))
    return write("d_norm_2.output", "dy = y − target", y - target)


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
        yield from _paragraphs(steps)
    if trace.decimals is not None:
        yield from ("", *_closing(trace))


def _opening(trace: Trace) -> Iterator[str]:
    config, sizes = trace.example.config, _sizes(trace.example)
    letters = ", ".join(f"{letter} = {sizes[letter]}" for letter in ("n", "d_model", "h", "d_k", "d_ff"))
    yield f"“{' '.join(trace.example.tokens)}” through one encoder block and all the way back"
    yield f"{letters}, ε = {config.eps:g}; post-norm, ReLU; ⊙ multiplies entry by entry"
    if trace.decimals is None:
        yield f"calculated to 16 digits, shown to {PLACES} decimals"
    else:
        yield f"every step rounded to {trace.decimals} decimals, halves away from zero, before the next one uses it"


def _closing(trace: Trace) -> Iterator[str]:
    """How far the rounding led: the worst step of each section."""
    far = drift(trace)
    yield f"Rounding to {trace.decimals} decimals has led this far from the exact numbers:"
    for section, steps in itertools.groupby(trace.steps, key=lambda step: step.section):
        worst = max(steps, key=lambda step: far[step.name]).name
        yield f"  {section:40} {far[worst]:.1e} at most, in {worst}"
    ends = ", ".join(f"{name} {far[name]:.1e}" for name in ("norm_2.output", "loss", "d_sum", "d_E"))
    yield f"  at the ends: {ends}"


def _paragraphs(steps: Iterable[Step]) -> Iterator[str]:
    """The steps' tables, as many beside each other as the width allows."""
    row: list[Step] = []
    for step in steps:
        if row and max(map(len, _row(*row, step))) > WIDTH:
            yield from ("", *_row(*row))
            row = []
        row.append(step)
    yield from ("", *_row(*row))


def _row(*steps: Step) -> list[str]:
    """Tables beside each other; words at the left are not repeated."""
    left = (None, *(step.rows for step in steps))
    tables = [_table(step, step.rows != before) for step, before in zip(steps, left, strict=False)]
    widths = [max(map(len, table)) for table in tables]
    return [
        "   ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in itertools.zip_longest(*tables, fillvalue="")
    ]


def _table(step: Step, labelled: bool) -> list[str]:
    """Name and shape, equation, column words and head numbers where there are any, and the numbers."""
    value = np.atleast_2d(step.value)
    heads = value.reshape(-1, *value.shape[-2:])  # (h, rows, columns)
    texts = [[[_number(step, v) for v in row] for row in head] for head in heads]
    width = max(map(len, itertools.chain(step.columns, *itertools.chain(*texts))))
    body = [_join(groups, width) for groups in zip(*texts, strict=True)]
    over = [_join([step.columns] * len(heads), width)] if step.columns else []
    if len(heads) > 1:
        span = len(_join(texts[0][:1], width))
        over = ["   ".join(f"head {i + 1}".ljust(span) for i in range(len(heads))), *over]
    labels = step.rows if labelled else ()
    margin = max((len(label) + 1 for label in labels), default=0)
    left = [*[""] * len(over), *(labels or [""] * len(body))]
    lines = [label.ljust(margin) + text for label, text in zip(left, [*over, *body], strict=True)]
    source = f"  [{step.source}]" if step.source else ""
    return [f"{step.name}  {step.shape}", step.equation + source, *lines]


def _join(groups: Iterable[Iterable[str]], width: int) -> str:
    return "   ".join(" ".join(text.rjust(width) for text in group) for group in groups)


def _number(step: Step, value: float) -> str:
    places = PLACES if step.decimals is None else step.decimals
    return f"{value:g}" if step.equation == GIVEN else f"{value:z.{places}f}"
