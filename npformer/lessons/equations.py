"""The equations of the worked example, a line each: a block forward, all the way back, one step of training.

A line calculates with arrays of terms (`recipes`), not with numbers: what comes out is how each cell is
found. The equations are those of "Attention Is All You Need" (Vaswani et al., 2017); a forward stands
directly above its backward, and is used a second time with the new parameters.
"""

import re
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from npformer.backend import Array
from npformer.config import TransformerConfig
from npformer.lessons.recipes import Term, constant, each, number, root, row_max, row_mean, terms
from npformer.lessons.steps import GIVEN, Step

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


class Board:
    """What is written so far, line by line, and the cells that each line fills.

    In the second pass the same lines are written anew, with a prime, and the new cells stand for the old.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lines: list[Step] = []
        self.cells: dict[str, Array] = {}
        self.title = ""
        self.again = False

    def section(self, title: str) -> None:
        """Begin one."""
        self.title = AGAIN + title[0].lower() + title[1:] if self.again else title

    def __getitem__(self, name: str) -> Array:
        return self.cells.get(f"new_{name}" if self.again else name, self.cells[name])

    def take(self, *names: str) -> list[Array]:
        """Parameters, which are given when they are taken first: they have no recipes."""
        return [self[name] if name in self.cells else self.write(name, GIVEN) for name in names]

    def write(self, name: str, equation: str, made: Array | None = None, source: str = "") -> Array:
        """Put a line on the board, and hand on the cells that it fills."""
        if self.again:
            name, equation = f"new_{name}", NEW.sub(r"\1′", equation)
        plan, sizes, axes = self.plan, sizes_of(self.plan), _axes(name, self.plan)
        shape = tuple(sizes[letter] for letter in axes)
        words = {"vocab": plan.vocabulary, "n": plan.tokens, "B·n": plan.tokens}
        words["d_model/2"] = tuple(f"i = {i}" for i in range(sizes["d_model/2"]))
        rows, columns = (words.get(letter, ()) for letter in ("", "", *axes)[-2:])
        titles = _titles(plan) if len(axes) == 3 else ()
        recipes = () if made is None else tuple(term.recipe for term in np.ravel(np.asarray(made, object)))
        first = sum(step.size for step in self.lines)
        line = Step(self.title, name, equation, source, axes, shape, titles, rows, columns, recipes)
        self.lines.append(line)
        self.cells[name] = terms(Term, np.arange(first, first + line.size).reshape(shape))
        return self.cells[name]


@lru_cache(maxsize=64)
def lines(plan: Plan) -> tuple[Step, ...]:
    """Every line in order, without its numbers; a recipe looks only back."""
    board = Board(plan)
    _forward(board)
    _backward(board)
    given = [step.name for step in board.lines if step.equation == GIVEN]
    parameters = [name for name in given if f"d_{name}" in board.cells]
    (_adam if plan.update == "adam" else _sgd)(board, parameters)
    board.again = True
    _forward(board)
    return tuple(board.lines)


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


def _forward(b: Board) -> None:
    _words_and_positions_forward(b)
    if b.plan.config.norm == "post":
        _attention_forward(b, "x")
        _norm_forward(b, "First add & norm", POST_1)
        _ffn_forward(b, "h")
        _norm_forward(b, "Second add & norm", POST_2)
    else:
        _norm_forward(b, "First norm", PRE_1)
        _attention_forward(b, "u")
        b.section("First sum")
        b.write("h", "h = x + a", b["x"] + b["a"])
        _norm_forward(b, "Second norm", PRE_2)
        _ffn_forward(b, "g")
        b.section("Second sum")
        b.write("y", "y = h + f", b["h"] + b["f"])
    _loss_forward(b)


def _backward(b: Board) -> None:
    """In a sum, what entered went two ways: past the sub-layer and through it. So its gradients add."""
    _loss_backward(b)
    if b.plan.config.norm == "post":
        _norm_backward(b, "Back through the second add & norm", POST_2)
        _ffn_backward(b, "h", "t", past=True)
        _norm_backward(b, "Back through the first add & norm", POST_1)
        _attention_backward(b, "x", "s", past=True)
    else:
        _ffn_backward(b, "g", "y")
        _norm_backward(b, "Back through the second norm", PRE_2)
        _attention_backward(b, "u", "h")
        _norm_backward(b, "Back through the first norm", PRE_1)
    _words_and_positions_backward(b)


def _words_and_positions_forward(b: Board) -> None:
    b.section("Words and positions")
    (E,) = b.take("E")
    embedding = E[list(b.plan.ids)] * root(b.plan.config.d_model)  # (n, d_model)
    embedding = b.write("embedding", "embedding = E[ids] · √d_model", embedding, "sec. 3.4")
    if not b.again:
        _positions(b)
    b.write("x", "x = embedding + PE", embedding + b["table"], "sec. 3.5")


def _words_and_positions_backward(b: Board) -> None:
    b.section("Back to the words")
    absent = number(0.0, "0, since this word does not stand in the sentence")
    dE, ids = np.full(b["E"].shape, absent), np.array(b.plan.ids)
    for word in set(b.plan.ids):  # a word that stands twice gets both
        dE[word] = b["d_x"][ids == word].sum(axis=0) * root(b.plan.config.d_model)
    b.write("d_E", "dE[word] = √d_model · Σ over its places of dx", dE)


def _positions(b: Board) -> None:
    n, d_model = len(b.plan.tokens), b.plan.config.d_model
    pos = terms(number, np.arange(n)[:, None] % (n // b.plan.sentences))  # (n, 1), from 0 in each sentence
    power = [number(10000 ** (i / d_model), f"10000^({i}/{d_model})") for i in range(0, d_model, 2)]
    angles = pos / np.array(power)  # (n, d_model/2)
    angles = b.write("angles", "angle = pos / 10000^(2i/d_model)", angles, "sec. 3.5")
    table = np.stack([each("sin", angles), each("cos", angles)], axis=-1).reshape(n, d_model)
    b.write("table", "PE(pos, 2i) = sin(angle), PE(pos, 2i+1) = cos(angle)", table, "sec. 3.5")


def _attention_forward(b: Board, x: str) -> None:
    b.section("Multi-head attention")
    *W, W_O = b.take(*(f"attention.W_{letter}" for letter in "QKVO"))
    Q, K, V = (
        _cut(b.write(f"attention.{letter}", f"{letter} = {x} W_{letter}", b[x] @ W_, "sec. 3.2.2"), b.plan)
        for letter, W_ in zip("QKV", W, strict=True)
    )  # each (n_heads, n, d_k)
    scores = Q @ K.mT / root(Q.shape[-1])  # (n_heads, n, n)
    scores = b.write("attention.scores", "scores = Q Kᵀ / √d_k, head by head", scores, "eq. 1")
    weights = _softmax(b, "masked" if b.plan.causal else "scores", _masked(b, scores))
    heads = b.write("attention.heads", "heads = weights V, head by head", weights @ V, "eq. 1")
    b.write("a", "a = Concat(heads) W_O", _joined(heads, b.plan) @ W_O, "sec. 3.2.2")  # (n, d_model)


def _attention_backward(b: Board, x: str, out: str, past: bool = False) -> None:
    """`out` is what a's gradient is called; the gradient of x takes it in, where it went past."""
    b.section("Back through multi-head attention")
    Q, K, V = (_cut(b[f"attention.{letter}"], b.plan) for letter in "QKV")
    weights, heads, da, d_k = b["attention.weights"], b["attention.heads"], b[f"d_{out}"], root(Q.shape[-1])
    b.write("d_attention.W_O", f"dW_O = Concat(heads)ᵀ d{out}", _joined(heads, b.plan).T @ da)
    dheads = _cut(da @ b["attention.W_O"].T, b.plan)  # (n_heads, n, d_k)
    dheads = b.write("d_attention.heads", f"dheads = d{out} W_Oᵀ, cut into heads", dheads)
    dV = _joined(weights.mT @ dheads, b.plan)  # (n, d_model)
    dV = b.write("d_attention.V", "dV = weightsᵀ dheads, heads side by side", dV)
    dweights = b.write("d_attention.weights", "dweights = dheads Vᵀ", dheads @ V.mT)  # (n_heads, n, n)
    dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True))
    equation = "dscores = weights ⊙ (dweights − row sum of dweights ⊙ weights)"
    dscores = b.write("d_attention.scores", equation, dscores)
    dQ, dK = _joined(dscores @ K, b.plan) / d_k, _joined(dscores.mT @ Q, b.plan) / d_k  # each (n, d_model)
    dQ = b.write("d_attention.Q", "dQ = dscores K / √d_k, heads side by side", dQ)
    dK = b.write("d_attention.K", "dK = dscoresᵀ Q / √d_k, heads side by side", dK)
    gradients = dict(zip("QKV", (dQ, dK, dV), strict=True))
    for letter, gradient in gradients.items():
        b.write(f"d_attention.W_{letter}", f"dW_{letter} = {x}ᵀ d{letter}", b[x].T @ gradient)
    through = [gradient @ b[f"attention.W_{letter}"].T for letter, gradient in gradients.items()]
    dx = sum(through[1:], da + through[0] if past else through[0])
    b.write(f"d_{x}", f"d{x} = {f'd{out} + ' if past else ''}dQ W_Qᵀ + dK W_Kᵀ + dV W_Vᵀ", dx)


def _masked(b: Board, scores: Array) -> Array:
    if not b.plan.causal:
        return scores
    later = np.triu(np.ones(scores.shape[-2:], dtype=bool), k=1)
    masked = np.where(later, np.array(Term(("hidden",)), object), scores)
    equation = "masked = scores, and −∞ where the key comes later"
    return b.write("attention.masked", equation, masked, "sec. 3.2.3")


def _softmax(b: Board, letter: str, scores: Array) -> Array:
    """The largest score of a row is taken away first: the weights stay, and no e^score is too large."""
    largest = b.write("attention.max", f"max = row maximum of {letter}", row_max(scores))  # (n_heads, n, 1)
    shifted = b.write("attention.shifted", f"shifted = {letter} − max", scores - largest)
    exp = b.write("attention.exp", "exp = e^shifted", each("exp", shifted))
    weights = exp / exp.sum(axis=-1, keepdims=True)
    return b.write("attention.weights", "weights = softmax(scores) = exp / row sum of exp", weights, "eq. 1")


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


def _norm_forward(b: Board, title: str, norm: _Norm) -> None:
    b.section(title)
    name, letter, out, past, sublayer = norm
    gamma, *beta = b.take(*(f"{name}.{part}" for part in (("gamma",) if b.plan.rms else ("gamma", "beta"))))
    if sublayer:
        b.write(letter, f"{letter} = {past} + {sublayer}", b[past] + b[sublayer], "sec. 3.1")
    x_hat = (_divided_by_rms if b.plan.rms else _standardized)(b, name, letter)
    if b.plan.rms:
        b.write(out, f"{out} = gamma ⊙ x_hat", gamma * x_hat)
    else:
        b.write(out, f"{out} = gamma ⊙ x_hat + beta", gamma * x_hat + beta[0], "sec. 3.1")


def _norm_backward(b: Board, title: str, norm: _Norm) -> None:
    """What layer norm takes away, a shift of the row and a stretch of x_hat, no gradient can ask for."""
    b.section(title)
    name, letter, out, past, sublayer = norm
    dout, x_hat, std = b[f"d_{out}"], b[f"{name}.x_hat"], "rms" if b.plan.rms else "std"
    b.write(f"d_{name}.gamma", f"dgamma = Σ over tokens of d{out} ⊙ x_hat", (dout * x_hat).sum(axis=0))
    if not b.plan.rms:
        b.write(f"d_{name}.beta", f"dbeta = Σ over tokens of d{out}", dout.sum(axis=0))
    dx_hat = b.write(f"d_{name}.x_hat", f"dx_hat = d{out} ⊙ gamma", dout * b[f"{name}.gamma"])
    dcentred, taken = dx_hat, "dx_hat − along_x · x_hat"
    if not b.plan.rms:
        along_1 = b.write(f"d_{name}.along_1", "along_1 = row mean of dx_hat", row_mean(dx_hat))  # (n, 1)
        dcentred, taken = dx_hat - along_1, "dx_hat − along_1 − along_x · x_hat"
    along_x = row_mean(dx_hat * x_hat)  # (n, 1)
    along_x = b.write(f"d_{name}.along_x", "along_x = row mean of dx_hat ⊙ x_hat", along_x)
    dentered, equation = (dcentred - along_x * x_hat) / b[f"{name}.{std}"], f"({taken}) / {std}"
    if not sublayer:
        dentered, equation = b[f"d_{past}"] + dentered, f"d{past} + {equation}"
    b.write(f"d_{letter}", f"d{letter} = {equation}", dentered)


def _standardized(b: Board, name: str, letter: str) -> Array:
    mean = b.write(f"{name}.mean", f"mean = row mean of {letter}", row_mean(b[letter]))  # (n, 1)
    centred = b.write(f"{name}.centred", f"centred = {letter} − mean", b[letter] - mean)
    variance = row_mean(each("square", centred))  # (n, 1)
    variance = b.write(f"{name}.variance", "variance = row mean of centred²", variance)
    std = b.write(f"{name}.std", "std = √(variance + ε)", each("sqrt", variance + number(b.plan.config.eps)))
    return b.write(f"{name}.x_hat", "x_hat = centred / std", centred / std)


def _divided_by_rms(b: Board, name: str, letter: str) -> Array:
    square = row_mean(each("square", b[letter]))  # (n, 1)
    square = b.write(f"{name}.mean_square", f"mean_square = row mean of {letter}²", square)
    rms = b.write(f"{name}.rms", "rms = √(mean_square + ε)", each("sqrt", square + number(b.plan.config.eps)))
    return b.write(f"{name}.x_hat", f"x_hat = {letter} / rms", b[letter] / rms)


def _ffn_forward(b: Board, x: str) -> None:
    b.section("Feed-forward network")
    W_1, b_1, W_2, b_2 = b.take("ffn.W_1", "ffn.b_1", "ffn.W_2", "ffn.b_2")
    z = b.write("ffn.z", f"z = {x} W_1 + b_1", b[x] @ W_1 + b_1, "eq. 2")  # (n, d_ff)
    if b.plan.config.activation == "relu":
        hidden = b.write("ffn.hidden", "hidden = max(0, z)", each("relu", z), "eq. 2")
    else:
        share = b.write("ffn.share", "share = Φ(z), of the normal distribution below z", each("share", z))
        hidden = b.write("ffn.hidden", "hidden = GELU(z) = z ⊙ share", z * share)
    b.write("f", "f = hidden W_2 + b_2", hidden @ W_2 + b_2, "eq. 2")  # (n, d_model)


def _ffn_backward(b: Board, x: str, out: str, past: bool = False) -> None:
    b.section("Back through the feed-forward network")
    z, hidden, df = b["ffn.z"], b["ffn.hidden"], b[f"d_{out}"]
    b.write("d_ffn.W_2", f"dW_2 = hiddenᵀ d{out}", hidden.T @ df)
    b.write("d_ffn.b_2", f"db_2 = Σ over tokens of d{out}", df.sum(axis=0))
    dhidden = b.write("d_ffn.hidden", f"dhidden = d{out} W_2ᵀ", df @ b["ffn.W_2"].T)  # (n, d_ff)
    if b.plan.config.activation == "relu":
        dz = b.write("d_ffn.z", "dz = dhidden where z > 0, else 0", each("gate", dhidden, z))
    else:
        dz = dhidden * (b["ffn.share"] + z * each("bell", z))
        dz = b.write("d_ffn.z", "dz = dhidden ⊙ (share + z ⊙ φ(z)), φ the slope of Φ", dz)
    b.write("d_ffn.W_1", f"dW_1 = {x}ᵀ dz", b[x].T @ dz)
    b.write("d_ffn.b_1", "db_1 = Σ over tokens of dz", dz.sum(axis=0))
    dx, equation = dz @ b["ffn.W_1"].T, "dz W_1ᵀ"  # (n, d_model)
    if past:
        dx, equation = df + dx, f"d{out} + {equation}"
    b.write(f"d_{x}", f"d{x} = {equation}", dx)


def _loss_forward(b: Board) -> None:
    b.section("Loss")
    (target,) = b.take("target")
    b.write("loss", "L = ½ Σ (y − target)²", each("square", b["y"] - target).sum() / number(2))


def _loss_backward(b: Board) -> None:
    b.write("d_y", "dy = y − target", b["y"] - b["target"])


# One step of training


def _sgd(b: Board, parameters: list[str]) -> None:
    b.section(TRAINING)
    (eta,) = b.take("eta")
    for name in parameters:
        p = name.rpartition(".")[2]
        b.write(f"new_{name}", f"{p}′ = {p} − η d{p}", b[name] - eta * b[f"d_{name}"])


def _adam(b: Board, parameters: list[str]) -> None:
    """Kingma and Ba, "Adam", 2015, algorithm 1. m and v remember; m_hat and v_hat undo their start from 0."""
    b.section(TRAINING)
    eta, k = b.take("eta", "k")
    k = b.write("new_k", "k′ = k + 1", k + constant(1))
    for name in parameters:
        b.section(f"{TRAINING}: {_PLACES[name.split('.')[0]]}")
        p, d, (m, v) = name.rpartition(".")[2], b[f"d_{name}"], b.take(f"m_{name}", f"v_{name}")
        m = constant(BETA_1) * m + constant(1 - BETA_1) * d
        m = b.write(f"new_m_{name}", f"m′ = β_1 m + (1 − β_1) d{p}", m, "sec. 5.3")
        v = constant(BETA_2) * v + constant(1 - BETA_2) * each("square", d)
        v = b.write(f"new_v_{name}", f"v′ = β_2 v + (1 − β_2) d{p}²", v, "sec. 5.3")
        m = m / (constant(1) - each("power", constant(BETA_1), k))
        m = b.write(f"m_hat_{name}", "m_hat = m′ / (1 − β_1^k′)", m)
        v = v / (constant(1) - each("power", constant(BETA_2), k))
        v = b.write(f"v_hat_{name}", "v_hat = v′ / (1 − β_2^k′)", v)
        new = b[name] - eta * m / (each("sqrt", v) + number(EPS))
        b.write(f"new_{name}", f"{p}′ = {p} − η m_hat / (√v_hat + ε)", new, "sec. 5.3")


_PLACES = {
    "E": "words", "attention": "attention", "norm_1": "first norm", "ffn": "feed-forward",
    "norm_2": "second norm",
}  # fmt: skip
