"""The equations of the worked example, a line each: a block forward, all the way back, one step of training.

A line calculates with arrays of terms (`recipes`), not with numbers: what comes out is how each cell is
found. The equations are those of "Attention Is All You Need" (Vaswani et al., 2017); a forward stands
directly above its backward, and is used a second time with the new parameters.
"""

import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

import numpy as np

from npformer.backend import Array
from npformer.config import TransformerConfig
from npformer.teaching.recipes import (
    Recipes,
    Term,
    by_form,
    constant,
    each,
    number,
    root,
    row_max,
    row_mean,
    terms,
)
from npformer.teaching.steps import GIVEN, Step

Write: TypeAlias = Callable[..., Array]  # _write below, with all but the line's own arguments filled in
Section: TypeAlias = Callable[[str], Write]  # from a section's title to its Write
Take: TypeAlias = Callable[..., list[Array]]  # the parameters of these names
Cells: TypeAlias = dict[str, Array]  # the cells of every line so far, under its name

AXES = {  # the shape of every step and parameter in letters; those that are not here are (n, d_model)
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
PREFIX = re.compile(r"^(new_)?((d|m_hat|v_hat|m|v)_)?")  # in front of the thing's own name
NEW = re.compile(  # the letters that get a prime in the second pass
    r"(?<!row )\b(embedding|scores|masked|max|shifted|exp|weights|heads|mean_square|mean|centred|variance|std"
    r"|rms|x_hat|share|hidden|gamma|beta|W_[QKVO12]|b_[12]|[xuQKVashgzftyLE])\b(?!\()",
    re.ASCII,  # so that a letter ends before ᵀ and ²
)
TRAINING, AGAIN = "One step of training", "Second pass: "

UPDATES = ("sgd", "adam")
BETA_1, BETA_2, EPS = 0.9, 0.98, 1e-9  # of Adam: section 5.3 of the paper


class Plan(NamedTuple):
    """All of an example but its numbers: what decides which lines there are and which cells they join."""

    tokens: tuple[str, ...]
    vocabulary: tuple[str, ...]
    ids: tuple[int, ...]
    config: TransformerConfig
    rms: bool  # RMSNorm in place of LayerNorm
    causal: bool
    sentences: int
    update: str


@lru_cache(maxsize=64)
def lines(plan: Plan) -> tuple[Step, ...]:
    """Every line in order, without its numbers; a recipe looks only back."""
    written: list[Step] = []
    cells: Cells = {}

    def section(title: str) -> Write:
        return partial(_write, written, cells, plan, title)

    def again(title: str) -> Write:
        return partial(_write_again, section(AGAIN + title[0].lower() + title[1:]))

    def given(write: Write, *names: str) -> list[Array]:
        return [write(name, GIVEN) for name in names]

    def updated(write: Write, *names: str) -> list[Array]:
        return [cells.get(f"new_{name}", cells[name]) for name in names]

    _forward(section, given, plan, cells)
    _backward(section, plan, cells)
    parameters = [step.name for step in written if step.equation == GIVEN and f"d_{step.name}" in cells]
    (_adam if plan.update == "adam" else _sgd)(section, parameters, cells)
    _forward(again, updated, plan, cells)
    return tuple(written)


@lru_cache(maxsize=64)
def recipes_of(plan: Plan) -> tuple[list[Recipes], ...]:
    """Those of each line, ready to be evaluated; none for what is given."""
    return tuple(by_form(step.recipes) for step in lines(plan))


def _write(
    written: list[Step],
    cells: Cells,
    plan: Plan,
    section: str,
    name: str,
    equation: str,
    made: Array | None = None,
    source: str = "",
) -> Array:
    """Put a line on the list, and hand on the cells that it fills. What is given has no recipes."""
    axes, sizes = _axes(name, plan), sizes_of(plan)
    shape = tuple(sizes[letter] for letter in axes)
    words = {"vocab": plan.vocabulary, "n": plan.tokens, "B·n": plan.tokens}
    words["d_model/2"] = tuple(f"i = {i}" for i in range(sizes["d_model/2"]))
    rows, columns = (words.get(letter, ()) for letter in ("", "", *axes)[-2:])
    titles = _titles(plan) if len(axes) == 3 else ()
    recipes = () if made is None else tuple(term.recipe for term in np.ravel(np.asarray(made, object)))
    first = sum(step.size for step in written)
    written.append(Step(section, name, equation, source, axes, shape, titles, rows, columns, recipes))
    cells[name] = terms(Term, np.arange(first, first + written[-1].size).reshape(shape))
    return cells[name]


def _write_again(write: Write, name: str, equation: str, made: Array, source: str = "") -> Array:
    return write(f"new_{name}", NEW.sub(r"\1′", equation), made, source)


def _axes(name: str, plan: Plan) -> tuple[str, ...]:
    axes = AXES.get(PREFIX.sub("", name.rpartition(".")[2]), "n d_model")
    if plan.sentences > 1:  # a batch: its sentences under each other, until they are cut for the attention
        axes = re.sub(r"^n", "B·n", axes)
    return tuple(axes.split())


def sizes_of(plan: Plan) -> dict[str, int]:
    """What the letters of a shape come to."""
    config, B, tokens = plan.config, plan.sentences, len(plan.tokens)
    d_model, n_heads = config.d_model, config.n_heads
    sizes = {"n": tokens // B, "B·n": tokens, "vocab": len(plan.vocabulary), "1": 1}
    heads = {"n_heads": n_heads, "B·n_heads": B * n_heads, "d_k": d_model // n_heads}
    return {**sizes, **heads, "d_model": d_model, "d_model/2": d_model // 2, "d_ff": config.d_ff}


def _titles(plan: Plan) -> tuple[str, ...]:
    sentences = [f"sentence {i + 1}" for i in range(plan.sentences)] if plan.sentences > 1 else [""]
    heads = [f"head {i + 1}" for i in range(plan.config.n_heads)] if plan.config.n_heads > 1 else [""]
    titles = (", ".join(filter(None, (sentence, head))) for sentence in sentences for head in heads)
    return tuple(filter(None, titles))


# The block: what enters each part, and on the way back the gradient of what left it


def _forward(section: Section, take: Take, plan: Plan, cells: Cells) -> None:
    x = _words_and_positions_forward(section, take, plan, cells)
    if plan.config.norm == "post":
        a = _attention_forward(section, take, plan, "x", x)
        h = _add_and_norm(section, take, plan, POST_1, x, a)
        f = _ffn_forward(section, take, plan, "h", h)
        y = _add_and_norm(section, take, plan, POST_2, h, f)
    else:
        u = _norm_forward(section("First norm"), take, plan, PRE_1, x)
        a = _attention_forward(section, take, plan, "u", u)
        h = section("First sum")("h", "h = x + a", x + a)
        g = _norm_forward(section("Second norm"), take, plan, PRE_2, h)
        f = _ffn_forward(section, take, plan, "g", g)
        y = section("Second sum")("y", "y = h + f", h + f)
    _loss_forward(section, take, y)


def _backward(section: Section, plan: Plan, c: Cells) -> None:
    """In a sum, what entered went two ways: past the sub-layer and through it. So its gradients add."""
    _loss_backward(section, c)
    if plan.config.norm == "post":
        _norm_backward(section("Back through the second add & norm"), plan, c, POST_2)
        _ffn_backward(section, plan, c, "h", "t", "h")
        _norm_backward(section("Back through the first add & norm"), plan, c, POST_1)
        _attention_backward(section, plan, c, "x", "s", "x")
    else:
        _ffn_backward(section, plan, c, "g", "y", "")
        _norm_backward(section("Back through the second norm"), plan, c, PRE_2)
        _attention_backward(section, plan, c, "u", "h", "")
        _norm_backward(section("Back through the first norm"), plan, c, PRE_1)
    _words_and_positions_backward(section, plan, c)


def _words_and_positions_forward(section: Section, take: Take, plan: Plan, cells: Cells) -> Array:
    write = section("Words and positions")
    d_model = plan.config.d_model
    (E,) = take(write, "E")
    embedding = E[list(plan.ids)] * root(d_model)  # (n, d_model)
    embedding = write("embedding", "embedding = E[ids] · √d_model", embedding, "sec. 3.4")
    table = cells["table"] if "table" in cells else _positions(write, plan)
    return write("x", "x = embedding + PE", embedding + table, "sec. 3.5")


def _words_and_positions_backward(section: Section, plan: Plan, c: Cells) -> None:
    write = section("Back to the words")
    absent = number(0.0, "0, since this word does not stand in the sentence")
    dE = np.full(c["E"].shape, absent)
    for word in set(plan.ids):  # a word that stands twice gets both
        dE[word] = c["d_x"][np.array(plan.ids) == word].sum(axis=0) * root(plan.config.d_model)
    write("d_E", "dE[word] = √d_model · Σ over its places of dx", dE)


def _positions(write: Write, plan: Plan) -> Array:
    n, d_model = len(plan.tokens), plan.config.d_model
    pos = terms(number, np.arange(n)[:, None] % (n // plan.sentences))  # (n, 1), from 0 in each sentence
    power = [number(10000 ** (i / d_model), f"10000^({i}/{d_model})") for i in range(0, d_model, 2)]
    angles = pos / np.array(power)  # (n, d_model/2)
    angles = write("angles", "angle = pos / 10000^(2i/d_model)", angles, "sec. 3.5")
    table = np.stack([each("sin", angles), each("cos", angles)], axis=-1).reshape(n, d_model)
    return write("table", "PE(pos, 2i) = sin(angle), PE(pos, 2i+1) = cos(angle)", table, "sec. 3.5")


def _attention_forward(section: Section, take: Take, plan: Plan, x: str, entered: Array) -> Array:
    write = section("Multi-head attention")
    *W, W_O = take(write, *(f"attention.W_{letter}" for letter in "QKVO"))
    Q, K, V = (
        _cut(write(f"attention.{letter}", f"{letter} = {x} W_{letter}", entered @ W_, "sec. 3.2.2"), plan)
        for letter, W_ in zip("QKV", W, strict=True)
    )  # each (n_heads, n, d_k)
    scores = Q @ K.mT / root(Q.shape[-1])  # (n_heads, n, n)
    scores = write("attention.scores", "scores = Q Kᵀ / √d_k, head by head", scores, "eq. 1")
    weights = _softmax(write, "masked" if plan.causal else "scores", _masked(write, scores, plan))
    heads = write("attention.heads", "heads = weights V, head by head", weights @ V, "eq. 1")
    return write("a", "a = Concat(heads) W_O", _joined(heads, plan) @ W_O, "sec. 3.2.2")  # (n, d_model)


def _attention_backward(section: Section, plan: Plan, c: Cells, x: str, out: str, past: str) -> None:
    """`out` is what a's gradient is called, `past` what else the gradient of x takes in: that of the sum."""
    write = section("Back through multi-head attention")
    Q, K, V = (_cut(c[f"attention.{letter}"], plan) for letter in "QKV")
    weights, heads, da, d_k = c["attention.weights"], c["attention.heads"], c[f"d_{out}"], root(Q.shape[-1])
    write("d_attention.W_O", f"dW_O = Concat(heads)ᵀ d{out}", _joined(heads, plan).T @ da)
    dheads = _cut(da @ c["attention.W_O"].T, plan)  # (n_heads, n, d_k)
    dheads = write("d_attention.heads", f"dheads = d{out} W_Oᵀ, cut into heads", dheads)
    dV = _joined(weights.mT @ dheads, plan)  # (n, d_model)
    dV = write("d_attention.V", "dV = weightsᵀ dheads, heads side by side", dV)
    dweights = write("d_attention.weights", "dweights = dheads Vᵀ", dheads @ V.mT)  # (n_heads, n, n)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    equation = "dscores = weights ⊙ (dweights − row sum of dweights ⊙ weights)"
    dscores = write("d_attention.scores", equation, dscores)
    dQ, dK = _joined(dscores @ K, plan) / d_k, _joined(dscores.mT @ Q, plan) / d_k  # each (n, d_model)
    dQ = write("d_attention.Q", "dQ = dscores K / √d_k, heads side by side", dQ)
    dK = write("d_attention.K", "dK = dscoresᵀ Q / √d_k, heads side by side", dK)
    gradients = dict(zip("QKV", (dQ, dK, dV), strict=True))
    for letter, gradient in gradients.items():
        write(f"d_attention.W_{letter}", f"dW_{letter} = {x}ᵀ d{letter}", c[x].T @ gradient)
    through = [gradient @ c[f"attention.W_{letter}"].T for letter, gradient in gradients.items()]
    dx = sum(through[1:], da + through[0] if past else through[0])
    equation = f"d{x} = {f'd{out} + ' if past else ''}dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ"
    write(f"d_{x}", equation, dx)


def _masked(write: Write, scores: Array, plan: Plan) -> Array:
    if not plan.causal:
        return scores
    later = np.triu(np.ones(scores.shape[-2:], dtype=bool), k=1)
    masked = np.where(later, np.array(Term(("hidden",)), object), scores)
    return write(
        "attention.masked", "masked = scores, and −∞ where the key comes later", masked, "sec. 3.2.3"
    )


def _softmax(write: Write, letter: str, scores: Array) -> Array:
    """The largest score of a row is taken away first: the weights stay, and no e^score is too large."""
    largest = write("attention.max", f"max = row maximum of {letter}", row_max(scores))  # (n_heads, n, 1)
    shifted = write("attention.shifted", f"shifted = {letter} − max", scores - largest)
    exp = write("attention.exp", "exp = e^shifted", each("exp", shifted))
    weights = exp / exp.sum(axis=-1, keepdims=True)
    return write("attention.weights", "weights = softmax(scores) = exp / row sum of exp", weights, "eq. 1")


def _cut(a: Array, plan: Plan) -> Array:
    B, n_heads = plan.sentences, plan.config.n_heads
    a = a.reshape(B, len(a) // B, n_heads, -1).swapaxes(1, 2)  # (B, n_heads, n, d_k)
    return a.reshape(B * n_heads, *a.shape[2:])


def _joined(heads: Array, plan: Plan) -> Array:
    B, (_, n, d_k) = plan.sentences, heads.shape
    return heads.reshape(B, -1, n, d_k).swapaxes(1, 2).reshape(B * n, -1)  # (n, d_model)


class _Norm(NamedTuple):
    """The letters of one norm: its name, what enters it, what leaves it; what the sum before it adds."""

    name: str
    entered: str
    out: str
    past: str = ""  # in a post-norm block what goes past the sub-layer, in a pre-norm block what joins later
    sublayer: str = ""


POST_1, POST_2 = _Norm("norm_1", "s", "h", "x", "a"), _Norm("norm_2", "t", "y", "h", "f")
PRE_1, PRE_2 = _Norm("norm_1", "x", "u", "h"), _Norm("norm_2", "h", "g", "y")


def _add_and_norm(
    section: Section, take: Take, plan: Plan, norm: _Norm, past: Array, sublayer: Array
) -> Array:
    write = section("First add & norm" if norm is POST_1 else "Second add & norm")
    return _norm_forward(write, take, plan, norm, past + sublayer)


def _norm_forward(write: Write, take: Take, plan: Plan, norm: _Norm, entered: Array) -> Array:
    name, letter, out, past, sublayer = norm
    parts = ("gamma",) if plan.rms else ("gamma", "beta")
    gamma, *beta = take(write, *(f"{name}.{part}" for part in parts))
    if sublayer:
        entered = write(letter, f"{letter} = {past} + {sublayer}", entered, "sec. 3.1")
    x_hat = (_divided_by_rms if plan.rms else _standardized)(write, name, letter, entered, plan.config.eps)
    if plan.rms:
        return write(out, f"{out} = gamma ⊙ x_hat", gamma * x_hat)
    return write(out, f"{out} = gamma ⊙ x_hat + beta", gamma * x_hat + beta[0], "sec. 3.1")


def _norm_backward(write: Write, plan: Plan, c: Cells, norm: _Norm) -> None:
    """What layer norm takes away, a shift of the row and a stretch of x_hat, no gradient can ask for."""
    name, letter, out, past, sublayer = norm
    dout, x_hat, std = c[f"d_{out}"], c[f"{name}.x_hat"], "rms" if plan.rms else "std"
    write(f"d_{name}.gamma", f"dgamma = Σ over tokens of d{out} ⊙ x_hat", (dout * x_hat).sum(axis=0))
    if not plan.rms:
        write(f"d_{name}.beta", f"dbeta = Σ over tokens of d{out}", dout.sum(axis=0))
    dx_hat = write(f"d_{name}.x_hat", f"dx_hat = d{out} ⊙ gamma", dout * c[f"{name}.gamma"])
    dcentred, taken = dx_hat, "dx_hat − along_x · x_hat"
    if not plan.rms:
        along_1 = write(f"d_{name}.along_1", "along_1 = row mean of dx_hat", row_mean(dx_hat))  # (n, 1)
        dcentred, taken = dx_hat - along_1, "dx_hat − along_1 − along_x · x_hat"
    along_x = row_mean(dx_hat * x_hat)  # (n, 1)
    along_x = write(f"d_{name}.along_x", "along_x = row mean of dx_hat ⊙ x_hat", along_x)
    dentered, equation = (dcentred - along_x * x_hat) / c[f"{name}.{std}"], f"({taken}) / {std}"
    if not sublayer:
        dentered, equation = c[f"d_{past}"] + dentered, f"d{past} + {equation}"
    write(f"d_{letter}", f"d{letter} = {equation}", dentered)


def _standardized(write: Write, name: str, letter: str, entered: Array, eps: float) -> Array:
    mean = write(f"{name}.mean", f"mean = row mean of {letter}", row_mean(entered))  # (n, 1)
    centred = write(f"{name}.centred", f"centred = {letter} − mean", entered - mean)
    variance = row_mean(each("square", centred))  # (n, 1)
    variance = write(f"{name}.variance", "variance = row mean of centred²", variance)
    std = write(f"{name}.std", "std = √(variance + ε)", each("sqrt", variance + number(eps)))
    return write(f"{name}.x_hat", "x_hat = centred / std", centred / std)


def _divided_by_rms(write: Write, name: str, letter: str, entered: Array, eps: float) -> Array:
    square = row_mean(each("square", entered))  # (n, 1)
    square = write(f"{name}.mean_square", f"mean_square = row mean of {letter}²", square)
    rms = write(f"{name}.rms", "rms = √(mean_square + ε)", each("sqrt", square + number(eps)))
    return write(f"{name}.x_hat", f"x_hat = {letter} / rms", entered / rms)


def _ffn_forward(section: Section, take: Take, plan: Plan, x: str, entered: Array) -> Array:
    write = section("Feed-forward network")
    W_1, b_1, W_2, b_2 = take(write, "ffn.W_1", "ffn.b_1", "ffn.W_2", "ffn.b_2")
    z = write("ffn.z", f"z = {x} W_1 + b_1", entered @ W_1 + b_1, "eq. 2")  # (n, d_ff)
    if plan.config.activation == "relu":
        hidden = write("ffn.hidden", "hidden = max(0, z)", each("relu", z), "eq. 2")
    else:
        share = write("ffn.share", "share = Φ(z), of a normal distribution below z", each("share", z))
        hidden = write("ffn.hidden", "hidden = GELU(z) = z ⊙ share", z * share)
    return write("f", "f = hidden W_2 + b_2", hidden @ W_2 + b_2, "eq. 2")  # (n, d_model)


def _ffn_backward(section: Section, plan: Plan, c: Cells, x: str, out: str, past: str) -> None:
    write = section("Back through the feed-forward network")
    z, hidden, df = c["ffn.z"], c["ffn.hidden"], c[f"d_{out}"]
    write("d_ffn.W_2", f"dW_2 = hiddenᵀ d{out}", hidden.T @ df)
    write("d_ffn.b_2", f"db_2 = Σ over tokens of d{out}", df.sum(axis=0))
    dhidden = write("d_ffn.hidden", f"dhidden = d{out} W_2ᵀ", df @ c["ffn.W_2"].T)  # (n, d_ff)
    if plan.config.activation == "relu":
        dz = write("d_ffn.z", "dz = dhidden where z > 0, else 0", each("gate", dhidden, z))
    else:
        dz = dhidden * (c["ffn.share"] + z * each("bell", z))
        dz = write("d_ffn.z", "dz = dhidden ⊙ (share + z ⊙ φ(z)), φ the slope of Φ", dz)
    write("d_ffn.W_1", f"dW_1 = {x}ᵀ dz", c[x].T @ dz)
    write("d_ffn.b_1", "db_1 = Σ over tokens of dz", dz.sum(axis=0))
    dx, equation = dz @ c["ffn.W_1"].T, "dz W_1ᵀ"  # (n, d_model)
    if past:
        dx, equation = df + dx, f"d{out} + {equation}"
    write(f"d_{x}", f"d{x} = {equation}", dx)


def _loss_forward(section: Section, take: Take, y: Array) -> None:
    write = section("Loss")
    (target,) = take(write, "target")
    write("loss", "L = ½ Σ (y − target)²", each("square", y - target).sum() / number(2))


def _loss_backward(section: Section, c: Cells) -> None:
    section("Loss")("d_y", "dy = y − target", c["y"] - c["target"])


# One step of training


def _sgd(section: Section, parameters: list[str], c: Cells) -> None:
    write = section(TRAINING)
    eta = write("eta", GIVEN)
    for name in parameters:
        p = name.rpartition(".")[2]
        write(f"new_{name}", f"{p}′ = {p} − η d{p}", c[name] - eta * c[f"d_{name}"])


def _adam(section: Section, parameters: list[str], c: Cells) -> None:
    """Kingma and Ba, "Adam", 2015, algorithm 1. m and v remember; m_hat and v_hat undo their start from 0."""
    write = section(TRAINING)
    eta, k = write("eta", GIVEN), write("k", GIVEN)
    k = write("new_k", "k′ = k + 1", k + constant(1))
    for name in parameters:
        write, p = section(f"{TRAINING}: {_PLACES[name.split('.')[0]]}"), name.rpartition(".")[2]
        d, m, v = c[f"d_{name}"], write(f"m_{name}", GIVEN), write(f"v_{name}", GIVEN)
        m = constant(BETA_1) * m + constant(1 - BETA_1) * d
        m = write(f"new_m_{name}", f"m′ = β_1 m + (1 − β_1) d{p}", m, "sec. 5.3")
        v = constant(BETA_2) * v + constant(1 - BETA_2) * each("square", d)
        v = write(f"new_v_{name}", f"v′ = β_2 v + (1 − β_2) d{p}²", v, "sec. 5.3")
        m = m / (constant(1) - each("power", constant(BETA_1), k))
        m = write(f"m_hat_{name}", "m_hat = m′ / (1 − β_1^k′)", m)
        v = v / (constant(1) - each("power", constant(BETA_2), k))
        v = write(f"v_hat_{name}", "v_hat = v′ / (1 − β_2^k′)", v)
        new = c[name] - eta * m / (each("sqrt", v) + number(EPS))
        write(f"new_{name}", f"{p}′ = {p} − η m_hat / (√v_hat + ε)", new, "sec. 5.3")


_PLACES = {
    "E": "words", "attention": "attention", "norm_1": "first norm", "ffn": "feed-forward",
    "norm_2": "second norm",
}  # fmt: skip
