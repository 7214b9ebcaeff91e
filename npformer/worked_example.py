"""The worked example: "dog bites man" through one encoder block and all the way back, by hand.

Three tokens, d_model = 4, two heads, d_ff = 6, and weights that are integers and halves, so that a person
with a pencil can follow every number. Each step is one plain line of NumPy, written down with its name, its
equation and its shape. The equations are those of "Attention Is All You Need" (Vaswani et al., 2017).

The gradient of anything carries its name with a d_ in front: d_ffn.z, d_ffn.W_1, d_norm_1.gamma, d_E.
"""

from functools import partial
from typing import NamedTuple

from npformer.backend import Array
from npformer.embedding import EmbeddingParams
from npformer.encoder import EncoderBlockParams, TransformerConfig
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
        return "\n".join(_side_by_side([_table(self)]))


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
    block, steps = example.block, list[Step]()

    def section(title: str) -> Write:
        return partial(_write, steps, example, decimals, title)

    x = _words_and_positions_forward(section("Words and positions"), example)
    attended, seen = _attention_forward(section("Multi-head attention"), x, block.attention, example.config)
    u, norm_1 = _add_and_norm_forward(
        section("First add & norm"), 1, x, attended, block.norm_1, example.config
    )
    fed, on = _ffn_forward(section("Feed-forward network"), u, block.ffn)
    y, norm_2 = _add_and_norm_forward(section("Second add & norm"), 2, u, fed, block.norm_2, example.config)
    dy = _loss(section("Loss"), y, example.target)
    dc = _add_and_norm_backward(section("Back through the second add & norm"), 2, dy, norm_2, block.norm_2)
    du = _ffn_backward(section("Back through the feed-forward network"), dc, on, block.ffn)
    da = _add_and_norm_backward(section("Back through the first add & norm"), 1, du, norm_1, block.norm_1)
    dx = _attention_backward(section("Back through multi-head attention"), da, seen, block.attention)
    _words_and_positions_backward(section("Back to the words"), dx, example)
    return Trace(example, decimals, tuple(steps))


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
    write: Write, x: Array, params: AttentionParams, config: TransformerConfig
) -> tuple[Array, tuple[Array, ...]]:
    _write_given(write, "attention", params)
    projections = [
        write(f"attention.{name}", f"{name} = x W_{name}", x @ W, "section 3.2.2")
        for name, W in zip("QKV", (params.W_Q, params.W_K, params.W_V), strict=True)
    ]
    Q, K, V = (split_heads(p, config.n_heads) for p in projections)  # (h, n, d_k)
    scores = Q @ K.mT / math.sqrt(Q.shape[-1])  # (h, n, n)
    scores = write("attention.scores", "Q Kᵀ / √d_k in each head", scores, "equation 1")
    exp = write("attention.exp", "e^scores", np.exp(scores))
    weights = exp / exp.sum(axis=-1, keepdims=True)
    weights = write("attention.weights", "softmax(scores) = exp / row sum of exp", weights, "equation 1")
    heads = write("attention.heads", "weights V in each head", weights @ V, "equation 1")  # (h, n, d_k)
    output = merge_heads(heads) @ params.W_O  # (n, d_model)
    write("attention.output", "Concat(head_1, …, head_h) W_O", output, "section 3.2.2")
    return output, (x, Q, K, V, weights, heads)
