"""The equations of the worked example: forward pass, backward pass and one training step.

Each equation is one line of NumPy that writes one step (`steps` explains what a step is). The line calculates
with arrays of terms, not with numbers, so the result contains a recipe for every cell (`recipes` explains
terms and recipes). The equations are those of "Attention Is All You Need" (Vaswani et al., 2017).

A **Plan** holds the sentence, the architecture and the variants of an example, but not its numbers.
`make_steps` writes the steps of a plan:

>>> from npformer.lessons.worked_example import dog_bites_man, make_plan
>>> E, embedding, *_ = make_steps(make_plan(dog_bites_man(), "sgd"))
>>> E.equation, embedding.equation
('given', 'embedding = E[ids] · √d_model')
>>> embedding.recipes[0]  # the first number of "dog" is cell 8, the first number of row 2 of E
('*', 8, ('number', 2.0, '√4'))

Each forward function is directly above its backward function. The forward functions run a second time after
the training step, with the new parameters.
"""

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.config import TransformerConfig
from npformer.lessons.recipes import (
    Recipe,
    Term,
    apply_entrywise,
    make_constant,
    make_number,
    make_root,
    make_terms,
    row_max,
    row_mean,
)
from npformer.lessons.steps import GIVEN, Step

DEFAULT_AXES = "n d_model"
AXES = {  # the dimension names of every step and parameter whose shape is not DEFAULT_AXES
    "E": "vocab d_model",
    "angles": "n d_model/2",
    **dict.fromkeys(("W_Q", "W_K", "W_V", "W_O"), "d_model d_model"),
    **dict.fromkeys(("scores", "masked", "shifted", "exp", "weights"), "n_heads n n"),
    "max": "n_heads n 1",
    "heads": "n_heads n d_k",
    **dict.fromkeys(("mean", "variance", "std", "mean_square", "rms", "along_1", "along_x"), "n 1"),
    **dict.fromkeys(("gamma", "beta", "b_2"), "d_model"),
    **dict.fromkeys(("z", "share", "hidden"), "n d_ff"),
    **{"W_1": "d_model d_ff", "b_1": "d_ff", "W_2": "d_ff d_model"},
    **dict.fromkeys(("loss", "eta", "k"), ""),
}
PREFIX = re.compile(r"^(new_)?((d|m_hat|v_hat|m|v)_)?")  # the part of a step's name before its key in AXES
NEW = re.compile(  # the symbols that get a prime in the equations of the second pass
    r"(?<!row )\b(embedding|scores|masked|max|shifted|exp|weights|heads|mean_square|mean|centred|variance|std"
    r"|rms|x_hat|share|hidden|gamma|beta|W_[QKVO12]|b_[12]|[xuQKVashgzftyLE])\b(?!\()",
    re.ASCII,  # so that ᵀ and ² are not letters, and a symbol can end before them
)
TRAINING = "One step of training"  # the title of the section with the updates
AGAIN = "Second pass: "  # every section title of the second pass begins with this text

UPDATES = ("sgd", "adam")
BETA_1, BETA_2, EPS = 0.9, 0.98, 1e-9  # the constants of Adam in section 5.3 of the paper


class Plan(NamedTuple):
    """The description of an example without its numbers. Examples with the same plan have the same steps."""

    tokens: tuple[str, ...]
    vocabulary: tuple[str, ...]
    ids: tuple[int, ...]
    config: TransformerConfig
    rms: bool  # whether both norms are RMSNorm; otherwise both are layer norm
    causal: bool
    sentences: int
    update: str  # "sgd" or "adam"


class Calculation:
    """The steps written so far, and the cells of each step.

    `calc.write` appends a step and returns its cells as an array of terms. `calc["ffn.z"]` returns the cells
    of a step that is already written. In the second pass the same functions write the steps again under new
    names, and `calc["ffn.z"]` returns the new cells.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.steps: list[Step] = []
        self.cells: dict[str, Array] = {}
        self.n_cells = 0
        self.title = ""
        self.is_second_pass = False

    def begin_section(self, title: str) -> None:
        """Set the section title of the steps that follow."""
        if self.is_second_pass:
            self.title = AGAIN + title[0].lower() + title[1:]
        else:
            self.title = title

    def __getitem__(self, name: str) -> Array:
        new_name = f"new_{name}"
        if self.is_second_pass and new_name in self.cells:
            return self.cells[new_name]
        return self.cells[name]

    def take(self, *names: str) -> list[Array]:
        """Return the cells of steps whose numbers are given, such as parameters. Append the new steps."""
        return [self[name] if name in self.cells else self.write(name, GIVEN) for name in names]

    def write(self, name: str, equation: str, terms: Array | None = None, source: str = "") -> Array:
        """Append a step and return its cells. Without `terms`, the step has given numbers."""
        if self.is_second_pass:
            name = f"new_{name}"
            equation = NEW.sub(r"\1′", equation)
        axes = _axes(name, self.plan)
        shape = tuple(dimension_sizes(self.plan)[axis] for axis in axes)
        titles = _matrix_titles(self.plan) if len(axes) == 3 else ()
        rows, columns = _cell_labels(axes, self.plan)
        recipes: tuple[Recipe, ...] = ()
        if terms is not None:
            recipes = tuple(term.recipe for term in np.ravel(np.asarray(terms, dtype=object)))
        step = Step(self.title, name, equation, source, axes, shape, titles, rows, columns, recipes)
        self.steps.append(step)
        cell_numbers = np.arange(self.n_cells, self.n_cells + step.size).reshape(shape)
        self.n_cells += step.size
        self.cells[name] = make_terms(Term, cell_numbers)
        return self.cells[name]


@lru_cache(maxsize=64)
def make_steps(plan: Plan) -> tuple[Step, ...]:
    """Return every step in order, without numbers. A recipe uses only cells of earlier steps."""
    calc = Calculation(plan)
    _forward(calc)
    _backward(calc)
    given = [step.name for step in calc.steps if step.equation == GIVEN]
    parameters = [name for name in given if f"d_{name}" in calc.cells]
    if plan.update == "adam":
        _adam(calc, parameters)
    else:
        _sgd(calc, parameters)
    calc.is_second_pass = True
    _forward(calc)
    return tuple(calc.steps)


def _axes(name: str, plan: Plan) -> tuple[str, ...]:
    """Return the dimension names of a step."""
    last_part = name.rpartition(".")[2]
    axes = AXES.get(PREFIX.sub("", last_part), DEFAULT_AXES)
    if plan.sentences > 1:
        # A table contains the rows of all sentences. Only the attention has a separate matrix per sentence.
        axes = re.sub(r"^n", "B·n", axes)
    return tuple(axes.split())


def dimension_sizes(plan: Plan) -> dict[str, int]:
    """Return the size of every dimension name."""
    config = plan.config
    n_tokens = len(plan.tokens)
    return {
        "n": n_tokens // plan.sentences,
        "B·n": n_tokens,
        "vocab": len(plan.vocabulary),
        "1": 1,
        "n_heads": config.n_heads,
        "B·n_heads": plan.sentences * config.n_heads,
        "d_k": config.d_model // config.n_heads,
        "d_model": config.d_model,
        "d_model/2": config.d_model // 2,
        "d_ff": config.d_ff,
    }


def _cell_labels(axes: tuple[str, ...], plan: Plan) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels of the rows and of the columns of a step; () for a dimension without labels."""
    labels = {
        "vocab": plan.vocabulary,
        "n": plan.tokens,
        "B·n": plan.tokens,
        "d_model/2": tuple(f"i = {i}" for i in range(plan.config.d_model // 2)),
    }
    row_axis, column_axis = ("", "", *axes)[-2:]  # a vector has no row axis, and a number has no axes
    return labels.get(row_axis, ()), labels.get(column_axis, ())


def _matrix_titles(plan: Plan) -> tuple[str, ...]:
    """Return a title for each head of each sentence; () for a single matrix."""
    titles = []
    for sentence in range(plan.sentences):
        for head in range(plan.config.n_heads):
            parts = []
            if plan.sentences > 1:
                parts.append(f"sentence {sentence + 1}")
            if plan.config.n_heads > 1:
                parts.append(f"head {head + 1}")
            titles.append(", ".join(parts))
    return tuple(titles) if len(titles) > 1 else ()


# The block. A forward function takes the name of its input, a backward function the name of its output.


def _forward(calc: Calculation) -> None:
    _words_and_positions_forward(calc)
    if calc.plan.config.norm == "post":
        _attention_forward(calc, "x")
        _norm_forward(calc, "First add & norm", POST_1)
        _ffn_forward(calc, "h")
        _norm_forward(calc, "Second add & norm", POST_2)
    else:
        _norm_forward(calc, "First norm", PRE_1)
        _attention_forward(calc, "u")
        calc.begin_section("First sum")
        calc.write("h", "h = x + a", calc["x"] + calc["a"])
        _norm_forward(calc, "Second norm", PRE_2)
        _ffn_forward(calc, "g")
        calc.begin_section("Second sum")
        calc.write("y", "y = h + f", calc["h"] + calc["f"])
    _loss_forward(calc)


def _backward(calc: Calculation) -> None:
    """Write the backward pass.

    The input of a residual sum reaches the sum in two ways: directly, and through the sub-layer. So the two
    gradients of the input are added.
    """
    _loss_backward(calc)
    if calc.plan.config.norm == "post":
        _norm_backward(calc, "Back through the second add & norm", POST_2)
        _ffn_backward(calc, "h", "t", adds_residual=True)
        _norm_backward(calc, "Back through the first add & norm", POST_1)
        _attention_backward(calc, "x", "s", adds_residual=True)
    else:
        _ffn_backward(calc, "g", "y")
        _norm_backward(calc, "Back through the second norm", PRE_2)
        _attention_backward(calc, "u", "h")
        _norm_backward(calc, "Back through the first norm", PRE_1)
    _words_and_positions_backward(calc)


def _words_and_positions_forward(calc: Calculation) -> None:
    calc.begin_section("Words and positions")
    (E,) = calc.take("E")
    embedding = E[list(calc.plan.ids)] * make_root(calc.plan.config.d_model)  # (n, d_model)
    embedding = calc.write("embedding", "embedding = E[ids] · √d_model", embedding, "sec. 3.4")
    if not calc.is_second_pass:
        _write_positions(calc)
    calc.write("x", "x = embedding + PE", embedding + calc["table"], "sec. 3.5")


def _words_and_positions_backward(calc: Calculation) -> None:
    calc.begin_section("Back to the words")
    absent = make_number(0.0, "0, since this word does not stand in the sentence")
    dE = np.full(calc["E"].shape, absent, dtype=object)
    ids = np.array(calc.plan.ids)
    for word in set(calc.plan.ids):
        # The gradient of a word is the sum over all positions at which the word occurs.
        dE[word] = calc["d_x"][ids == word].sum(axis=0) * make_root(calc.plan.config.d_model)
    calc.write("d_E", "dE[word] = √d_model · Σ of dx over its positions", dE)


def _write_positions(calc: Calculation) -> None:
    n = len(calc.plan.tokens)
    d_model = calc.plan.config.d_model
    positions = np.arange(n)[:, None] % (n // calc.plan.sentences)  # (n, 1), from 0 in each sentence
    pos = make_terms(make_number, positions)
    powers = [make_number(10000 ** (i / d_model), f"10000^({i}/{d_model})") for i in range(0, d_model, 2)]
    angles = pos / np.array(powers)  # (n, d_model/2)
    angles = calc.write("angles", "angle = pos / 10000^(2i/d_model)", angles, "sec. 3.5")
    sines = apply_entrywise("sin", angles)
    cosines = apply_entrywise("cos", angles)
    table = np.stack([sines, cosines], axis=-1).reshape(n, d_model)
    calc.write("table", "PE(pos, 2i) = sin(angle), PE(pos, 2i+1) = cos(angle)", table, "sec. 3.5")


def _attention_forward(calc: Calculation, x: str) -> None:
    calc.begin_section("Multi-head attention")
    plan = calc.plan
    weight_names = ("attention.W_Q", "attention.W_K", "attention.W_V", "attention.W_O")
    W_Q, W_K, W_V, W_O = calc.take(*weight_names)
    Q = calc.write("attention.Q", f"Q = {x} W_Q", calc[x] @ W_Q, "sec. 3.2.2")  # (n, d_model)
    K = calc.write("attention.K", f"K = {x} W_K", calc[x] @ W_K, "sec. 3.2.2")
    V = calc.write("attention.V", f"V = {x} W_V", calc[x] @ W_V, "sec. 3.2.2")
    Q, K, V = _split_heads(Q, plan), _split_heads(K, plan), _split_heads(V, plan)  # each (n_heads, n, d_k)
    d_k = Q.shape[-1]
    scores = Q @ K.mT / make_root(d_k)  # (n_heads, n, n)
    scores = calc.write("attention.scores", "scores = Q Kᵀ / √d_k, head by head", scores, "eq. 1")
    if plan.causal:
        weights = _softmax(calc, "masked", _mask_later_keys(calc, scores))
    else:
        weights = _softmax(calc, "scores", scores)
    heads = calc.write("attention.heads", "heads = weights V, head by head", weights @ V, "eq. 1")
    a = _merge_heads(heads, plan) @ W_O  # (n, d_model)
    calc.write("a", "a = Concat(heads) W_O", a, "sec. 3.2.2")


def _attention_backward(calc: Calculation, x: str, output: str, adds_residual: bool = False) -> None:
    """Write the gradients of the attention. `output` is the name of the residual sum that contains `a`.

    The gradient of `a` is the gradient of this sum. With `adds_residual`, the sum also contains `x`, so the
    gradient of the sum is added to the gradient of `x`.
    """
    calc.begin_section("Back through multi-head attention")
    da = calc[f"d_{output}"]
    dQ, dK, dV = _scores_backward(calc, output)  # each (n, d_model)
    calc.write("d_attention.W_Q", f"dW_Q = {x}ᵀ dQ", calc[x].T @ dQ)
    calc.write("d_attention.W_K", f"dW_K = {x}ᵀ dK", calc[x].T @ dK)
    calc.write("d_attention.W_V", f"dW_V = {x}ᵀ dV", calc[x].T @ dV)
    dx = dQ @ calc["attention.W_Q"].T
    equation = "dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ"
    if adds_residual:
        dx = da + dx
        equation = f"d{output} + {equation}"
    dx = dx + dK @ calc["attention.W_K"].T + dV @ calc["attention.W_V"].T
    calc.write(f"d_{x}", f"d{x} = {equation}", dx)


def _scores_backward(calc: Calculation, output: str) -> tuple[Array, Array, Array]:
    """Write the gradients from the attention's output back to Q, K and V, and return dQ, dK and dV."""
    plan, da = calc.plan, calc[f"d_{output}"]
    Q, K, V = (_split_heads(calc[f"attention.{name}"], plan) for name in ("Q", "K", "V"))
    weights, heads = calc["attention.weights"], calc["attention.heads"]
    root_d_k = make_root(Q.shape[-1])
    dW_O = _merge_heads(heads, plan).T @ da
    calc.write("d_attention.W_O", f"dW_O = Concat(heads)ᵀ d{output}", dW_O)
    dheads = _split_heads(da @ calc["attention.W_O"].T, plan)  # (n_heads, n, d_k)
    dheads = calc.write("d_attention.heads", f"dheads = d{output} W_Oᵀ, cut into heads", dheads)
    dV = _merge_heads(weights.mT @ dheads, plan)  # (n, d_model)
    dV = calc.write("d_attention.V", "dV = weightsᵀ dheads, heads side by side", dV)
    dweights = calc.write("d_attention.weights", "dweights = dheads Vᵀ", dheads @ V.mT)  # (n_heads, n, n)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    equation = "dscores = weights ⊙ (dweights − row sum of dweights ⊙ weights)"
    dscores = calc.write("d_attention.scores", equation, dscores)
    dQ = _merge_heads(dscores @ K, plan) / root_d_k  # (n, d_model)
    dQ = calc.write("d_attention.Q", "dQ = dscores K / √d_k, heads side by side", dQ)
    dK = _merge_heads(dscores.mT @ Q, plan) / root_d_k  # (n, d_model)
    dK = calc.write("d_attention.K", "dK = dscoresᵀ Q / √d_k, heads side by side", dK)
    return dQ, dK, dV


def _mask_later_keys(calc: Calculation, scores: Array) -> Array:
    is_later = np.triu(np.ones(scores.shape[-2:], dtype=bool), k=1)
    minus_infinity = np.array(Term(("hidden",)), dtype=object)
    masked = np.where(is_later, minus_infinity, scores)
    equation = "masked = scores, and −∞ where the key comes later"
    return calc.write("attention.masked", equation, masked, "sec. 3.2.3")


def _softmax(calc: Calculation, name: str, scores: Array) -> Array:
    """Write the softmax. Subtracting the row maximum keeps e^score small and does not change the weights."""
    largest = calc.write("attention.max", f"max = row maximum of {name}", row_max(scores))  # (n_heads, n, 1)
    shifted = calc.write("attention.shifted", f"shifted = {name} − max", scores - largest)
    exp = calc.write("attention.exp", "exp = e^shifted", apply_entrywise("exp", shifted))
    weights = exp / exp.sum(axis=-1, keepdims=True)
    equation = "weights = softmax(scores) = exp / row sum of exp"
    return calc.write("attention.weights", equation, weights, "eq. 1")


def _split_heads(a: Array, plan: Plan) -> Array:
    n_heads = plan.config.n_heads
    n = len(a) // plan.sentences
    a = a.reshape(plan.sentences, n, n_heads, -1)  # (B, n, n_heads, d_k)
    a = a.swapaxes(1, 2)  # (B, n_heads, n, d_k)
    return a.reshape(plan.sentences * n_heads, n, -1)  # (B·n_heads, n, d_k)


def _merge_heads(heads: Array, plan: Plan) -> Array:
    _, n, d_k = heads.shape
    heads = heads.reshape(plan.sentences, -1, n, d_k)  # (B, n_heads, n, d_k)
    heads = heads.swapaxes(1, 2)  # (B, n, n_heads, d_k)
    return heads.reshape(plan.sentences * n, -1)  # (B·n, d_model)


class _Norm(NamedTuple):
    """The names of the steps around one norm.

    In a post-norm block, the norm follows a residual sum: `input` = `residual` + `sublayer`. In a pre-norm
    block, the residual sum comes later: `residual` is a sum that contains `input`, and `sublayer` is empty.
    """

    name: str
    input: str
    output: str
    residual: str
    sublayer: str = ""


POST_1 = _Norm("norm_1", input="s", output="h", residual="x", sublayer="a")
POST_2 = _Norm("norm_2", input="t", output="y", residual="h", sublayer="f")
PRE_1 = _Norm("norm_1", input="x", output="u", residual="h")
PRE_2 = _Norm("norm_2", input="h", output="g", residual="y")


def _norm_forward(calc: Calculation, title: str, norm: _Norm) -> None:
    calc.begin_section(title)
    (gamma,) = calc.take(f"{norm.name}.gamma")
    if not calc.plan.rms:
        (beta,) = calc.take(f"{norm.name}.beta")
    if norm.sublayer:
        equation = f"{norm.input} = {norm.residual} + {norm.sublayer}"
        calc.write(norm.input, equation, calc[norm.residual] + calc[norm.sublayer], "sec. 3.1")
    if calc.plan.rms:
        x_hat = _divide_by_rms(calc, norm)
        calc.write(norm.output, f"{norm.output} = gamma ⊙ x_hat", gamma * x_hat)
    else:
        x_hat = _standardize(calc, norm)
        equation = f"{norm.output} = gamma ⊙ x_hat + beta"
        calc.write(norm.output, equation, gamma * x_hat + beta, "sec. 3.1")


def _norm_backward(calc: Calculation, title: str, norm: _Norm) -> None:
    """Write the gradients of a norm.

    Layer norm returns the same output if a row is shifted or scaled. So the gradient of the row has no
    component along the row of ones and no component along x_hat. RMSNorm ignores only scaling, so for RMSNorm
    only the component along x_hat is 0.
    """
    calc.begin_section(title)
    name, out = norm.name, norm.output
    dout, x_hat = calc[f"d_{out}"], calc[f"{name}.x_hat"]
    dgamma = (dout * x_hat).sum(axis=0)
    calc.write(f"d_{name}.gamma", f"dgamma = Σ over tokens of d{out} ⊙ x_hat", dgamma)
    if not calc.plan.rms:
        calc.write(f"d_{name}.beta", f"dbeta = Σ over tokens of d{out}", dout.sum(axis=0))
    dx_hat = calc.write(f"d_{name}.x_hat", f"dx_hat = d{out} ⊙ gamma", dout * calc[f"{name}.gamma"])
    dinput, equation = _standardize_backward(calc, norm, dx_hat)
    if not norm.sublayer:
        dinput = calc[f"d_{norm.residual}"] + dinput
        equation = f"d{norm.residual} + {equation}"
    calc.write(f"d_{norm.input}", f"d{norm.input} = {equation}", dinput)


def _standardize(calc: Calculation, norm: _Norm) -> Array:
    name, x = norm.name, calc[norm.input]
    mean = calc.write(f"{name}.mean", f"mean = row mean of {norm.input}", row_mean(x))  # (n, 1)
    centred = calc.write(f"{name}.centred", f"centred = {norm.input} − mean", x - mean)
    variance = row_mean(apply_entrywise("square", centred))  # (n, 1)
    variance = calc.write(f"{name}.variance", "variance = row mean of centred²", variance)
    std = apply_entrywise("sqrt", variance + make_number(calc.plan.config.eps))
    std = calc.write(f"{name}.std", "std = √(variance + ε)", std)
    return calc.write(f"{name}.x_hat", "x_hat = centred / std", centred / std)


def _divide_by_rms(calc: Calculation, norm: _Norm) -> Array:
    name, x = norm.name, calc[norm.input]
    square = row_mean(apply_entrywise("square", x))  # (n, 1)
    square = calc.write(f"{name}.mean_square", f"mean_square = row mean of {norm.input}²", square)
    rms = apply_entrywise("sqrt", square + make_number(calc.plan.config.eps))
    rms = calc.write(f"{name}.rms", "rms = √(mean_square + ε)", rms)
    return calc.write(f"{name}.x_hat", f"x_hat = {norm.input} / rms", x / rms)


def _standardize_backward(calc: Calculation, norm: _Norm, dx_hat: Array) -> tuple[Array, str]:
    """Return the gradient of the norm's input, and the right side of its equation."""
    name, x_hat = norm.name, calc[f"{norm.name}.x_hat"]
    if not calc.plan.rms:
        along_1 = calc.write(f"d_{name}.along_1", "along_1 = row mean of dx_hat", row_mean(dx_hat))  # (n, 1)
    along_x = row_mean(dx_hat * x_hat)  # (n, 1)
    along_x = calc.write(f"d_{name}.along_x", "along_x = row mean of dx_hat ⊙ x_hat", along_x)
    if calc.plan.rms:
        dinput = (dx_hat - along_x * x_hat) / calc[f"{name}.rms"]
        return dinput, "(dx_hat − along_x · x_hat) / rms"
    dinput = (dx_hat - along_1 - along_x * x_hat) / calc[f"{name}.std"]
    return dinput, "(dx_hat − along_1 − along_x · x_hat) / std"


def _ffn_forward(calc: Calculation, x: str) -> None:
    calc.begin_section("Feed-forward network")
    W_1, b_1, W_2, b_2 = calc.take("ffn.W_1", "ffn.b_1", "ffn.W_2", "ffn.b_2")
    z = calc.write("ffn.z", f"z = {x} W_1 + b_1", calc[x] @ W_1 + b_1, "eq. 2")  # (n, d_ff)
    if calc.plan.config.activation == "relu":
        hidden = calc.write("ffn.hidden", "hidden = max(0, z)", apply_entrywise("relu", z), "eq. 2")
    else:
        equation = "share = Φ(z), of the normal distribution below z"
        share = calc.write("ffn.share", equation, apply_entrywise("share", z))
        hidden = calc.write("ffn.hidden", "hidden = GELU(z) = z ⊙ share", z * share)
    calc.write("f", "f = hidden W_2 + b_2", hidden @ W_2 + b_2, "eq. 2")  # (n, d_model)


def _ffn_backward(calc: Calculation, x: str, output: str, adds_residual: bool = False) -> None:
    """Write the gradients of the feed-forward network. The arguments are as in `_attention_backward`."""
    calc.begin_section("Back through the feed-forward network")
    z, hidden, df = calc["ffn.z"], calc["ffn.hidden"], calc[f"d_{output}"]
    calc.write("d_ffn.W_2", f"dW_2 = hiddenᵀ d{output}", hidden.T @ df)
    calc.write("d_ffn.b_2", f"db_2 = Σ over tokens of d{output}", df.sum(axis=0))
    dhidden = df @ calc["ffn.W_2"].T  # (n, d_ff)
    dhidden = calc.write("d_ffn.hidden", f"dhidden = d{output} W_2ᵀ", dhidden)
    if calc.plan.config.activation == "relu":
        dz = apply_entrywise("gate", dhidden, z)
        dz = calc.write("d_ffn.z", "dz = dhidden where z > 0, else 0", dz)
    else:
        dz = dhidden * (calc["ffn.share"] + z * apply_entrywise("bell", z))
        dz = calc.write("d_ffn.z", "dz = dhidden ⊙ (share + z ⊙ φ(z)), φ the slope of Φ", dz)
    calc.write("d_ffn.W_1", f"dW_1 = {x}ᵀ dz", calc[x].T @ dz)
    calc.write("d_ffn.b_1", "db_1 = Σ over tokens of dz", dz.sum(axis=0))
    dx = dz @ calc["ffn.W_1"].T  # (n, d_model)
    equation = "dz W_1ᵀ"
    if adds_residual:
        dx = df + dx
        equation = f"d{output} + {equation}"
    calc.write(f"d_{x}", f"d{x} = {equation}", dx)


def _loss_forward(calc: Calculation) -> None:
    calc.begin_section("Loss")
    (target,) = calc.take("target")
    squares = apply_entrywise("square", calc["y"] - target)
    calc.write("loss", "L = ½ Σ (y − target)²", squares.sum() / make_number(2))


def _loss_backward(calc: Calculation) -> None:
    calc.write("d_y", "dy = y − target", calc["y"] - calc["target"])


# One step of training


def _sgd(calc: Calculation, parameters: list[str]) -> None:
    calc.begin_section(TRAINING)
    (eta,) = calc.take("eta")
    for name in parameters:
        p = name.rpartition(".")[2]
        calc.write(f"new_{name}", f"{p}′ = {p} − η d{p}", calc[name] - eta * calc[f"d_{name}"])


def _adam(calc: Calculation, parameters: list[str]) -> None:
    """Write one training step with Adam: Kingma and Ba, "Adam", 2015, algorithm 1."""
    calc.begin_section(TRAINING)
    eta, k = calc.take("eta", "k")
    k = calc.write("new_k", "k′ = k + 1", k + make_constant(1))
    for name in parameters:
        part = name.split(".")[0]
        calc.begin_section(f"{TRAINING}: {PART_NAMES[part]}")
        _adam_of_parameter(calc, name, eta, k)


def _adam_of_parameter(calc: Calculation, name: str, eta: Array, k: Array) -> None:
    """Write the new running means m and v of one parameter, and its new value.

    m and v start at 0, so both are too small at first; m_hat and v_hat correct this.
    """
    p = name.rpartition(".")[2]
    d = calc[f"d_{name}"]
    m, v = calc.take(f"m_{name}", f"v_{name}")
    one, beta_1, beta_2 = make_constant(1), make_constant(BETA_1), make_constant(BETA_2)
    m = beta_1 * m + make_constant(1 - BETA_1) * d
    m = calc.write(f"new_m_{name}", f"m′ = β_1 m + (1 − β_1) d{p}", m, "sec. 5.3")
    v = beta_2 * v + make_constant(1 - BETA_2) * apply_entrywise("square", d)
    v = calc.write(f"new_v_{name}", f"v′ = β_2 v + (1 − β_2) d{p}²", v, "sec. 5.3")
    m_hat = m / (one - apply_entrywise("power", beta_1, k))
    m_hat = calc.write(f"m_hat_{name}", "m_hat = m′ / (1 − β_1^k′)", m_hat)
    v_hat = v / (one - apply_entrywise("power", beta_2, k))
    v_hat = calc.write(f"v_hat_{name}", "v_hat = v′ / (1 − β_2^k′)", v_hat)
    new = calc[name] - eta * m_hat / (apply_entrywise("sqrt", v_hat) + make_number(EPS))
    calc.write(f"new_{name}", f"{p}′ = {p} − η m_hat / (√v_hat + ε)", new, "sec. 5.3")


PART_NAMES = {  # the first part of a parameter's name, and the text for it in section titles
    "E": "words",
    "attention": "attention",
    "norm_1": "first norm",
    "ffn": "feed-forward",
    "norm_2": "second norm",
}
