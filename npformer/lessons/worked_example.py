"""The worked example: forward pass, backward pass and one training step for "dog bites man".

The example has one encoder block with three tokens, d_model = 4, two heads and d_ff = 6. Its weights are
integers and halves, so you can check every number with a pencil. The equations are those of "Attention Is All
You Need" (Vaswani et al., 2017).

An **Example** holds the sentence and every number that the calculation starts from. A **Trace** holds every
step of the calculation, with its value:

>>> example = dog_bites_man()
>>> example.tokens, example.embedding.E[2]
(('dog', 'bites', 'man'), array([ 1. ,  0. , -0.5,  0.5]))
>>> trace = worked_example(example)
>>> trace.named["loss"].equation, trace.named["loss"].value.round(3)
('L = ½ Σ (y − target)²', np.float64(5.474))

Three other modules explain the parts: `equations` writes the steps of an example without its numbers, `steps`
explains a step, and `recipes` explains the recipe that each cell of a step has. This module evaluates the
recipes. The page of the player evaluates the same recipes in JavaScript.

The package, the lessons, the worksheets and the player use the same symbols:

    E   the embedding table            Q, K, V, scores, weights, heads   inside the attention
    x   the input of the block         a = attention(x)   s = x + a      h = norm_1(s)
    z, hidden   inside the FFN         f = FFN(h)         t = h + f      y = norm_2(t)
    L   the loss                       mean, centred, variance, std, x_hat   inside a norm
    u, g   in a pre-norm block         u = norm_1(x)   h = x + a   g = norm_2(h)   y = h + f

Every step has a name. A symbol that occurs once in the block is the name of its step: "x", "a", "s", "h",
"f", "t", "y". The names of all other steps begin with a part of the block: "attention.Q", "norm_1.mean",
"ffn.z".

The gradient of h is written dh in equations. Its step has the prefix ``d_``: "d_h", "d_ffn.W_1",
"d_norm_1.gamma", "d_E". After the training step, the new value of h is written h′ in equations. Its step has
the prefix ``new_``: "new_E", "new_h", "new_loss".
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
from npformer.lessons.equations import UPDATES, Plan, dimension_sizes, make_steps
from npformer.lessons.recipes import RecipeGroup, evaluate, group_by_form
from npformer.lessons.steps import GIVEN, PLACES, Step, arrange_tables, text_of, text_width
from npformer.modern.rms_norm import RMSNormParams
from npformer.tree import leaves
from npformer.validation.checks import check_choice, check_integer, check_kind, check_number

MOST_DECIMALS = 8  # with more decimals, the rounding of float64 itself would become visible
LEARNING_RATE = 0.01  # with this step size the loss falls for every example that is drawn from a name


class Example(NamedTuple):
    """A sentence and every number that the calculation starts from."""

    tokens: tuple[str, ...]
    vocabulary: tuple[str, ...]
    ids: Array  # (n,), the row of each token in the embedding table
    embedding: EmbeddingParams
    block: EncoderBlockParams
    config: TransformerConfig
    target: Array  # (n, d_model), the output that would have loss 0
    causal: bool = False  # whether a token attends only to itself and to earlier tokens
    sentences: int = 1  # the number of sentences in `tokens`, all of the same length


class Trace(NamedTuple):
    """Every step in order. `trace.named["ffn.z"]` is one step, and `print(trace)` shows all of them."""

    example: Example
    decimals: int | None
    update: str  # "sgd" or "adam"
    steps: tuple[Step, ...]

    @property
    def named(self) -> dict[str, Step]:
        """The steps by name, in order."""
        return {step.name: step for step in self.steps}

    def __str__(self) -> str:
        return "\n".join(_text_lines(self))


def worked_example(
    example: Example | None = None,
    *,
    decimals: int | None = None,
    update: str = "sgd",
    learning_rate: float = LEARNING_RATE,
) -> Trace:
    """Calculate the forward pass and the backward pass of an encoder block, and one training step.

    After the training step, the forward pass is calculated again with the new parameters.

    Parameters
    ----------
    example : Example, optional
        The sentence and its numbers; "dog bites man" if omitted.
    decimals : int from 1 to 8, optional
        Round every step to this number of decimals before the next step uses it, as in a calculation by
        hand. `drift` returns the error that rounding causes. By default, steps are not rounded.
    update : "sgd" or "adam"
        The training step: gradient descent, or the first step of Adam.
    learning_rate : float
        The learning rate of the training step.

    Returns
    -------
    trace : Trace
        Every step in order, with its equation and its value.

    Raises
    ------
    ValueError
        If the shapes of the example's arrays do not fit each other, or if the block has attention biases or
        positions other than sinusoids, which the trace does not show.

    Examples
    --------
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
    return Trace(example, decimals, update, _calculate(example, decimals, update, float(learning_rate)))


def drift(trace: Trace) -> dict[str, float]:
    """Return the rounding error of each step: its largest difference from the step without rounding.

    Parameters
    ----------
    trace : Trace
        The result of `worked_example(decimals=…)`.

    Returns
    -------
    errors : dict
        The largest absolute difference of each step, by the step's name.

    Examples
    --------
    >>> errors = drift(worked_example(decimals=3))
    >>> print(f"{errors['attention.scores']:.4f} {errors['y']:.4f} {errors['d_E']:.4f}")
    0.0016 0.0033 0.0109
    """
    learning_rate = float(trace.named["eta"].value)
    exact = worked_example(trace.example, update=trace.update, learning_rate=learning_rate)
    errors = {}
    for rounded, step in zip(trace.steps, exact.steps, strict=True):
        difference = np.nan_to_num(rounded.value) - np.nan_to_num(step.value)
        errors[step.name] = float(abs(difference).max())
    return errors


def _check_block(example: Example) -> None:
    """Reject a block that the equations do not describe, because the trace would show wrong numbers."""
    if example.config.positions != "sinusoidal":
        found = example.config.positions
        raise ValueError(f"worked_example: config.positions is {found!r}; the trace shows 'sinusoidal' only")
    biases = ", ".join(path for path, _ in leaves(example.block.attention) if path.startswith("b_"))
    if biases:
        raise ValueError(f"worked_example: attention has {biases}; the trace shows no attention biases")


def make_plan(example: Example, update: str) -> Plan:
    """Return the plan of an example. The module `equations` explains plans."""
    return Plan(
        tokens=tuple(example.tokens),
        vocabulary=tuple(example.vocabulary),
        ids=tuple(example.ids.tolist()),
        config=example.config,
        rms=isinstance(example.block.norm_1, RMSNormParams),
        causal=example.causal,
        sentences=example.sentences,
        update=update,
    )


@lru_cache(maxsize=64)
def _group_recipes(plan: Plan) -> tuple[list[RecipeGroup], ...]:
    """Return the recipes of each step, grouped for evaluation. A given step has no recipes."""
    return tuple(group_by_form(step.recipes) for step in make_steps(plan))


def _calculate(
    example: Example,
    decimals: int | None = None,
    update: str = "sgd",
    learning_rate: float = LEARNING_RATE,
    last: str = "",
) -> tuple[Step, ...]:
    """Return the steps with their values, up to the step `last` or all of them.

    Each value is rounded, if `decimals` is given, before a later step uses it.
    """
    plan = make_plan(example, update)
    given = {"E": example.embedding.E, "target": example.target, "eta": np.array(learning_rate)}
    given |= dict(leaves(example.block))
    numbers = np.empty(sum(step.size for step in make_steps(plan)))  # the numbers of all cells of all steps
    first = 0
    steps: list[Step] = []
    for step, recipe_groups in zip(make_steps(plan), _group_recipes(plan), strict=True):
        cells = numbers[first : first + step.size]  # a view: writing to `cells` fills `numbers`
        if step.equation == GIVEN:
            cells[:] = _given_value(step, given).ravel()
        else:
            _fill(cells, recipe_groups, numbers)
            if decimals is not None:
                cells[:] = round_half_away(cells, decimals)
        steps.append(step._replace(decimals=decimals, value=cells.reshape(step.shape).copy()))
        first += step.size
        if step.name == last:
            break
    return tuple(steps)


def _given_value(step: Step, given: dict[str, Array]) -> Array:
    """Return the value of a given step. Adam's m, v and k are not in the example: they are zero at first."""
    value = given.get(step.name, np.zeros(step.shape))
    if value.shape != step.shape:
        expected = f"({', '.join(step.axes)}) = {step.shape}"
        raise ValueError(f"worked_example: {step.name} has shape {value.shape}; expected {expected}")
    return value


def values(example: Example, last: str, decimals: int | None = None) -> dict[str, Array]:
    """Return the values of the steps up to `last`, by name. This is faster than a whole trace."""
    return {step.name: step.value for step in _calculate(example, decimals, last=last)}


def _fill(cells: Array, recipe_groups: list[RecipeGroup], numbers: Array) -> None:
    """Calculate the cells of one step from the numbers of earlier cells."""
    with np.errstate(all="ignore"):  # no warning: if a user's numbers overflow, the trace shows NaN
        for form, indices, inputs in recipe_groups:
            columns = iter(numbers[inputs].T)
            cells[indices] = evaluate(form, columns)


def round_half_away(value: Array, decimals: int) -> Array:
    """Round as people do on paper: a half goes away from zero (0.0625 to 0.063, -0.0625 to -0.063).

    NumPy rounds a half to the even neighbour. Also, 0.841 / 2 is 0.4205 on paper, but a little less in
    binary. So a millionth of a unit in the last kept digit is added before rounding. This addition changes
    only results that are as close to a half as 0.4205.

    >>> round_half_away(np.array([0.841 / 2, -0.0625, 1.0004]), 3)
    array([ 0.421, -0.063,  1.   ])
    """
    units = np.floor(np.abs(value) * 10.0**decimals + (0.5 + 1e-6))
    return np.copysign(units, value) / 10.0**decimals + 0.0  # + 0.0 turns -0.0 into 0.0


# The numbers


def dog_bites_man() -> Example:
    """Return the example of the lessons.

    In head 1 both nouns attend most to the verb, and the verb to its object. Each token activates different
    hidden units, and unit 2 is 0 for all tokens. `<pad>` is not in the sentence, so its gradient is 0.

    Returns
    -------
    example : Example
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


def _change_config(example: Example, **changes: Any) -> Example:
    return example._replace(config=example.config._replace(**changes))


def _use_pre_norm(example: Example) -> Example:
    return _change_config(example, norm="pre")


def _use_causal_mask(example: Example) -> Example:
    return example._replace(causal=True)


def _use_gelu(example: Example) -> Example:
    return _change_config(example, activation="gelu")


def _use_rms_norm(example: Example) -> Example:
    norm_1 = cast(LayerNormParams, RMSNormParams(example.block.norm_1.gamma))
    norm_2 = cast(LayerNormParams, RMSNormParams(example.block.norm_2.gamma))
    return example._replace(block=example.block._replace(norm_1=norm_1, norm_2=norm_2))


def _use_two_sentences(example: Example) -> Example:
    """Append the same words in reverse order as a second sentence, with the targets in reverse order."""
    return example._replace(
        tokens=(*example.tokens, *example.tokens[::-1]),
        ids=np.concatenate([example.ids, example.ids[::-1]]),
        target=np.concatenate([example.target, example.target[::-1]]),
        sentences=2,
    )


def _use_one_head(example: Example) -> Example:
    return _change_config(example, n_heads=1)


VARIANTS: dict[str, Callable[[Example], Example]] = {
    "pre-norm": _use_pre_norm,
    "causal": _use_causal_mask,
    "gelu": _use_gelu,
    "rms-norm": _use_rms_norm,
    "two-sentences": _use_two_sentences,
    "one-head": _use_one_head,
}


def apply_variants(example: Example, variants: Sequence[str]) -> Example:
    """Apply variants, which are keys of VARIANTS, to an example in order, and return the new example.

    >>> apply_variants(dog_bites_man(), ["pre-norm", "one-head"]).config.norm
    'pre'
    """
    for variant in variants:
        check_choice("play", "a variant", variant, tuple(VARIANTS))
        example = VARIANTS[variant](example)
    return example


def _row(numbers: str) -> Array:
    return _rows(numbers)[0]


def _rows(numbers: str) -> Array:
    """Convert a text to a matrix: "|" separates the rows, and spaces separate the numbers."""
    return np.array([[float(number) for number in row.split()] for row in numbers.split("|")])


# The trace as text

WIDTH = 100  # the maximum number of characters in a line


def _text_lines(trace: Trace) -> Iterator[str]:
    yield from _heading_lines(trace)
    for section, steps in itertools.groupby(trace.steps, key=lambda step: step.section):
        yield ""
        yield f"── {section} ".ljust(WIDTH, "─")
        for row in arrange_tables(steps, text_width, WIDTH):
            yield ""
            yield from text_of(row)


def _heading_lines(trace: Trace) -> Iterator[str]:
    sizes = dimension_sizes(make_plan(trace.example, trace.update))
    shown_names = ("n", "d_model", "n_heads", "d_k", "d_ff")
    shown_sizes = ", ".join(f"{name} = {sizes[name]}" for name in shown_names)
    yield f"“{' '.join(trace.example.tokens)}” through one block, all the way back, and one step of training"
    yield f"{shown_sizes}, ε = {trace.example.config.eps:g}; ⊙ multiplies entry by entry"
    if trace.decimals is None:
        yield f"calculated to 16 digits, shown to {PLACES} decimals"
    else:
        yield f"every step rounded to {trace.decimals} decimals (halves away from zero) before it is used"
