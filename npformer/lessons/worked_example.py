"""The worked example: "dog bites man" through one encoder block, all the way back, and one step of training.

Three tokens, d_model = 4, two heads, d_ff = 6, and weights that are integers and halves, so that a person
with a pencil can follow every number. Each step is one plain line of NumPy, in equations.py, with its name,
its equation and its shape. They are those of "Attention Is All You Need" (Vaswani et al., 2017).

Those lines calculate with terms instead of numbers: what they give is a list of how each cell comes about,
its recipe. This file evaluates the list, and so does the page of the player.

One letter for each thing, the same in the package, the lessons, the worksheets and the player:

    E   the embedding table            Q, K, V, scores, weights, heads   inside the attention
    x   what enters the block          a = attention(x)   s = x + a      h = norm_1(s)
    z, hidden   inside the FFN         f = FFN(h)         t = h + f      y = norm_2(t)
    L   the loss                       mean, centred, variance, std, x_hat   inside a norm
    u, g   in a pre-norm block         u = norm_1(x)   h = x + a   g = norm_2(h)   y = h + f

What stands in one place of the block only is a step of that name: "x", "a", "s", "h", "f", "t", "y". The
others carry their place: "attention.Q", "norm_1.mean", "ffn.z". The gradient of anything has a d in front of
its letter, dh, and a d_ in front of its step's name: "d_h", "d_ffn.W_1", "d_norm_1.gamma", "d_E". What is
new after the step of training has a prime, h′, and a new_ in front: "new_E", "new_h", "new_loss".
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from npformer.attention import AttentionParams
from npformer.backend import Array
from npformer.config import TransformerConfig
from npformer.embedding import EmbeddingParams
from npformer.encoder import EncoderBlockParams
from npformer.feed_forward import FFNParams
from npformer.layer_norm import LayerNormParams
from npformer.lessons.equations import UPDATES, Plan, lines, sizes_of
from npformer.lessons.recipes import Recipes, by_form, evaluate
from npformer.lessons.steps import GIVEN, PLACES, Step, side_by_side, text_of, text_width
from npformer.modern.rms_norm import RMSNormParams
from npformer.tree import leaves
from npformer.validation.checks import check_choice, check_integer, check_kind, check_number

MOST_DECIMALS = 8  # more would be rounding what the calculation itself has rounded
LEARNING_RATE = 0.01  # small enough for the loss to fall, whatever a name has drawn


class Example(NamedTuple):
    """A sentence and every number that the calculation starts from."""

    tokens: tuple[str, ...]
    vocabulary: tuple[str, ...]
    ids: Array  # (n,), where each token stands in the vocabulary
    embedding: EmbeddingParams
    block: EncoderBlockParams
    config: TransformerConfig
    target: Array  # (n, d_model), what the loss would like the output to be
    causal: bool = False  # whether a word sees only itself and those before it
    sentences: int = 1  # of equal length; their tokens follow each other


class Trace(NamedTuple):
    """Every step in order; `trace.named["ffn.z"]` finds one, `print(trace)` shows them all."""

    example: Example
    decimals: int | None
    update: str  # "sgd" or "adam"
    steps: tuple[Step, ...]

    @property
    def named(self) -> dict[str, Step]:
        """The steps by their names, in order."""
        return {step.name: step for step in self.steps}

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def worked_example(
    example: Example | None = None,
    *,
    decimals: int | None = None,
    update: str = "sgd",
    learning_rate: float = LEARNING_RATE,
) -> Trace:
    """Every step of one encoder block, forward, back to every parameter, and one step of training, in order.

    Without an example it is "dog bites man". `decimals=3` rounds every step to three decimals before the
    next one uses it, as a pencil and a calculator do; `drift` says how far that leads. The update is plain
    gradient descent, "sgd", or the first one of "adam"; after it comes the forward pass a second time.

    Raises TypeError unless example is an Example, decimals an integer and learning_rate a number,
    ValueError for decimals outside 1 to 8, another update, arrays that do not fit each other, and a block of
    another kind: attention biases, other positions.

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
    check_choice("worked_example", "update", update, UPDATES)
    check_number("worked_example", "learning_rate", learning_rate)
    return Trace(example, decimals, update, _steps(example, decimals, update, float(learning_rate)))


def drift(trace: Trace) -> dict[str, float]:
    """How far rounding has led each step: the largest difference from the same step worked exactly, by name.

    >>> far = drift(worked_example(decimals=3))
    >>> print(f"{far['attention.scores']:.4f} {far['y']:.4f} {far['d_E']:.4f}")
    0.0016 0.0033 0.0109
    """
    rate = float(trace.named["eta"].value)
    exact = worked_example(trace.example, update=trace.update, learning_rate=rate)
    return {
        step.name: float(abs(np.nan_to_num(step.value) - np.nan_to_num(true.value)).max())
        for step, true in zip(trace.steps, exact.steps, strict=True)
    }


def _check_block(example: Example) -> None:
    """The trace writes down some kinds of block; another kind would get the numbers of one of these."""
    if example.config.positions != "sinusoidal":
        found = example.config.positions
        raise ValueError(f"worked_example: config.positions is {found!r}; the trace shows 'sinusoidal' only")
    biases = ", ".join(path for path, _ in leaves(example.block.attention) if path.startswith("b_"))
    if biases:
        raise ValueError(f"worked_example: attention has {biases}; the trace shows no attention biases")


def plan_of(example: Example, update: str) -> Plan:
    """The example without its numbers."""
    ids, rms = tuple(example.ids.tolist()), isinstance(example.block.norm_1, RMSNormParams)
    words = (tuple(example.tokens), tuple(example.vocabulary), ids)
    return Plan(*words, example.config, rms, example.causal, example.sentences, update)


@lru_cache(maxsize=64)
def _recipes_of(plan: Plan) -> tuple[list[Recipes], ...]:
    """Those of each line, ready to be evaluated; none for what is given."""
    return tuple(by_form(step.recipes) for step in lines(plan))


def _steps(
    example: Example,
    decimals: int | None = None,
    update: str = "sgd",
    learning_rate: float = LEARNING_RATE,
    last: str = "",
) -> tuple[Step, ...]:
    """The lines with their numbers, each rounded as a pencil rounds before the next one uses it."""
    plan = plan_of(example, update)
    given = {"E": example.embedding.E, "target": example.target, "eta": np.array(learning_rate)}
    given |= dict(leaves(example.block))
    numbers, first = np.empty(sum(line.size for line in lines(plan))), 0
    steps: list[Step] = []
    for line, recipes in zip(lines(plan), _recipes_of(plan), strict=True):
        cells = numbers[first : first + line.size]
        if line.equation == GIVEN:
            value = given.get(line.name, np.zeros(line.shape))  # Adam's m, v and k begin with zeros
            if value.shape != line.shape:
                expected = f"({', '.join(line.axes)}) = {line.shape}"
                raise ValueError(f"worked_example: {line.name} has shape {value.shape}; expected {expected}")
            cells[:] = value.ravel()
        else:
            _fill(cells, recipes, numbers)
            cells[:] = cells if decimals is None else round_half_away(cells, decimals)
        steps.append(line._replace(decimals=decimals, value=cells.reshape(line.shape).copy()))
        first += line.size
        if line.name == last:
            break
    return tuple(steps)


def values(example: Example, last: str, decimals: int | None = None) -> dict[str, Array]:
    """Only the values, by their names, and only up to the step `last`: for who looks at many examples."""
    return {step.name: step.value for step in _steps(example, decimals, last=last)}


def _fill(cells: Array, recipes: list[Recipes], numbers: Array) -> None:
    with np.errstate(all="ignore"):  # numbers of somebody's own may be too large: then NaN is shown
        for form, places, enter in recipes:
            cells[places] = evaluate(form, iter(numbers[enter].T))


def round_half_away(value: Array, decimals: int) -> Array:
    """Round as people do on paper: a half goes away from zero (0.0625 to 0.063, -0.0625 to -0.063).

    NumPy sends a half to the even neighbour; and 0.841 / 2, which a pencil writes as 0.4205, lies a little
    below the half in binary. A millionth of the last kept digit decides nothing else and settles that.

    >>> round_half_away(np.array([0.841 / 2, -0.0625, 1.0004]), 3)
    array([ 0.421, -0.063,  1.   ])
    """
    units = np.floor(np.abs(value) * 10.0**decimals + (0.5 + 1e-6))
    return np.copysign(units, value) / 10.0**decimals + 0.0  # + 0.0: no -0


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


def _configured(**changes: Any) -> Callable[[Example], Example]:
    return lambda example: example._replace(config=example.config._replace(**changes))


def _rms_norm(example: Example) -> Example:
    norms = (RMSNormParams(norm.gamma) for norm in (example.block.norm_1, example.block.norm_2))
    norm_1, norm_2 = (cast(LayerNormParams, norm) for norm in norms)
    return example._replace(block=example.block._replace(norm_1=norm_1, norm_2=norm_2))


def _two_sentences(example: Example) -> Example:
    """The sentence and the same words from the last to the first, each with its own target."""
    ids, target = (np.concatenate([a, a[::-1]]) for a in (example.ids, example.target))
    return example._replace(
        tokens=(*example.tokens, *example.tokens[::-1]), ids=ids, target=target, sentences=2
    )


VARIANTS: dict[str, Callable[[Example], Example]] = {
    "pre-norm": _configured(norm="pre"),
    "causal": lambda example: example._replace(causal=True),
    "gelu": _configured(activation="gelu"),
    "rms-norm": _rms_norm,
    "two-sentences": _two_sentences,
    "one-head": _configured(n_heads=1),
}


def varied(example: Example, variants: Sequence[str]) -> Example:
    """The example in another block: a few of VARIANTS, one after the other.

    >>> varied(dog_bites_man(), ["pre-norm", "one-head"]).config.norm
    'pre'
    """
    for variant in variants:
        check_choice("play", "a variant", variant, tuple(VARIANTS))
        example = VARIANTS[variant](example)
    return example


def _row(numbers: str) -> Array:
    return _rows(numbers)[0]


def _rows(numbers: str) -> Array:
    return np.array([[float(number) for number in row.split()] for row in numbers.split("|")])


# The trace as text

WIDTH = 100  # letters on a line


def _lines(trace: Trace) -> Iterator[str]:
    yield from _opening(trace)
    for section, steps in itertools.groupby(trace.steps, key=lambda step: step.section):
        yield from ("", f"── {section} ".ljust(WIDTH, "─"))
        for row in side_by_side(steps, text_width, WIDTH):
            yield from ("", *text_of(row))


def _opening(trace: Trace) -> Iterator[str]:
    sizes = sizes_of(plan_of(trace.example, trace.update))
    shown = ("n", "d_model", "n_heads", "d_k", "d_ff")
    letters = ", ".join(f"{letter} = {sizes[letter]}" for letter in shown)
    yield f"“{' '.join(trace.example.tokens)}” through one block, all the way back, and one step of training"
    yield f"{letters}, ε = {trace.example.config.eps:g}; ⊙ multiplies entry by entry"
    if trace.decimals is None:
        yield f"calculated to 16 digits, shown to {PLACES} decimals"
    else:
        yield f"every step rounded to {trace.decimals} decimals (halves away from zero) before it is used"
