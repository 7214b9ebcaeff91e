"""More codings by strangers: those of the newer exercises, and a second visit to the older ones.

Written like stranger_codings.py: from the text of the tasks, before the checker was tried on them. Here the
word of a slip has to stand in the reply (evidence or hint) even where the checker has a name for it: a wrong
name is worse than none.
"""

import math
from functools import partial

import numpy as np
import stranger_codings as before
from labelled import each, labels
from stranger_codings import AT, BACK, BLOCK, CE, EMB, FFN, MERGE, NBACK, NORM, PE, SM, SMB, SPLIT, soft

LATER = []  # like STRANGERS: (exercise, "right" or "wrong", word, function)
right, slip = labels(LATER, "right", "wrong")

# --- mask.causal ------------------------------------------------------------------------------------

CAUSAL = "mask.causal"


@right(CAUSAL)
def causal_mask(size: int) -> np.ndarray:
    """Mask out subsequent positions."""
    subsequent = np.triu(np.ones((size, size)), k=1).astype("uint8")
    return subsequent == 0


@right(CAUSAL)
def maske(T):
    return [[spalte <= zeile for spalte in range(T)] for zeile in range(T)]


@right(CAUSAL)
def causal_row_by_row(T):
    mask = np.zeros((T, T), dtype=bool)
    for i in range(T):
        mask[i, : i + 1] = True
    return mask


each(
    right(CAUSAL),
    lambda T: np.tril(np.ones((T, T), dtype=np.bool_)),
    lambda T: np.arange(T) <= np.arange(T)[:, None],
    lambda T: np.fromfunction(lambda i, j: i >= j, (T, T), dtype=int),
    lambda T: np.cumsum(np.eye(T), axis=0) > 0,
    lambda T: ~np.isinf(np.triu(np.full((T, T), -np.inf), 1)),
)
each(
    slip(CAUSAL, "hide|invert|opposite|exchanged|False"),
    lambda T: np.triu(np.ones((T, T)), k=1).astype(bool),
    lambda T: np.arange(T)[None, :] > np.arange(T)[:, None],
)
slip(CAUSAL, "itself|diagonal")(lambda T: np.tril(np.ones((T, T), dtype=bool), k=-1))
slip(CAUSAL, "itself|diagonal|later|future|next|after|ahead")(lambda T: np.tri(T, k=1, dtype=bool))
slip(CAUSAL, "itself|diagonal|only|earlier|before")(lambda T: np.eye(T, dtype=bool))
slip(CAUSAL, "True|everything|all|later|future")(lambda T: np.ones((T, T), dtype=bool))
slip(CAUSAL, "inf|added|True|score|number")(lambda T: np.triu(np.full((T, T), -np.inf), k=1))
slip(CAUSAL, "axis|axes|shape")(lambda T: np.tri(T, dtype=bool)[None, None])
slip(CAUSAL, "shape|row|size")(lambda T: np.tri(T + 1, dtype=bool))
slip(CAUSAL, "shape|row|flat|axis")(lambda T: np.array([j <= i for i in range(T) for j in range(T)]))
slip(CAUSAL, "revers|order|first|last|earlier|before")(lambda T: np.fliplr(np.tri(T, dtype=bool)))


# --- sample.temperature -----------------------------------------------------------------------------

TEMP = "sample.temperature"


@right(TEMP)
def apply_temperature(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Temperature-scaled softmax, numerically stable."""
    scaled = np.asarray(logits, dtype=np.float64) / temperature
    scaled = scaled - np.max(scaled, axis=-1, keepdims=True)
    exp_logits = np.exp(scaled)
    return exp_logits / np.sum(exp_logits, axis=-1, keepdims=True)


@right(TEMP)
def wahrscheinlichkeiten(logits, temperatur):
    ergebnis = []
    for zeile in logits:
        groesste = max(zeile)
        e = [math.exp((z - groesste) / temperatur) for z in zeile]
        ergebnis.append([a / sum(e) for a in e])
    return ergebnis


each(
    right(TEMP),
    lambda z, t: np.exp(z / t - np.logaddexp.reduce(z / t, axis=1, keepdims=True)),
    lambda z, t: np.apply_along_axis(lambda r: np.exp(r - r.max()) / np.exp(r - r.max()).sum(), 1, z / t),
    lambda z, t: (lambda s: (np.exp(s.T) / np.exp(s.T).sum(0)).T)((z - z.max(1)[:, None]) * (1 / t)),
    lambda z, t: soft(np.float32(z) / np.float32(t)),
)


class Sampler:
    def __init__(self):
        self.eps = 0

    def __call__(self, logits, temperature):
        out = np.empty_like(logits)
        for i in range(len(logits)):
            out[i] = self.softmax(logits[i] / temperature)
        return out

    def softmax(self, row):
        e = np.exp(row - np.amax(row))
        return e / (np.sum(e) + self.eps)


right(TEMP)(Sampler())
slip(TEMP, "multipl|temperature")(lambda z, t: soft(z * t))
slip(TEMP, "sum to|after|temperature|divided")(lambda z, t: soft(z) / t)
slip(TEMP, "large|1000|finite|maximum|overflow")(
    lambda z, t: np.exp(z / t) / np.exp(z / t).sum(-1, keepdims=True)
)
slip(TEMP, "axis|column|rows")(lambda z, t: soft(z / t, axis=0))
slip(TEMP, "temperature")(lambda z, t: soft(z))
slip(TEMP, "temperature|twice|square")(lambda z, t: soft(z / t**2))
slip(TEMP, "temperature|root")(lambda z, t: soft(z / math.sqrt(t)))
slip(TEMP, "softmax|sum|negative|probab|logit")(lambda z, t: z / t)
slip(TEMP, "log|negative|below 0")(lambda z, t: np.log(soft(z / t) + 1e-300))
slip(TEMP, "sum to|largest|maximum|factor")(lambda z, t: np.exp((z - z.max(-1, keepdims=True)) / t))
slip(TEMP, "sign|order|least|likel|opposite|small")(lambda z, t: soft(-z / t))
slip(TEMP, "change|argument|copy")(
    lambda z, t: soft(np.divide(z, t, out=z)),
)
slip(TEMP, "shape|token|whole|axis")(lambda z, t: soft(z / t).argmax(-1))
slip(TEMP, "0 or 1|one|whole|likel|temperature|largest")(lambda z, t: np.eye(z.shape[1])[z.argmax(1)])
slip(TEMP, "shape|sum|all|total|rows")(lambda z, t: soft((z / t).ravel()).reshape(z.shape))
slip(TEMP, "shape|rows|axis|keepdims|ValueError|divided|broadcast|sum to")(
    lambda z, t: (lambda e: e / e.sum(-1))(np.exp(z / t - (z / t).max(-1, keepdims=True)))
)


# --- loss.smoothed ----------------------------------------------------------------------------------

SMOOTH = "loss.smoothed"


def log_soft(z):
    z = z - z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


@right(SMOOTH)
def label_smoothing_loss(logits: np.ndarray, targets: np.ndarray, smoothing: float = 0.1) -> float:
    n, num_classes = logits.shape
    true_dist = np.full((n, num_classes), smoothing / num_classes)
    true_dist[np.arange(n), targets] += 1.0 - smoothing
    log_probs = log_soft(logits)
    return float(-(true_dist * log_probs).sum(axis=1).mean())


@right(SMOOTH)
def verlust(logits, ziele, eps):
    summe = 0
    for zeile, ziel in zip(logits, ziele, strict=True):
        m = max(zeile)
        lse = m + math.log(sum(math.exp(z - m) for z in zeile))
        for k, z in enumerate(zeile):
            q = eps / len(zeile) + (1 - eps if k == ziel else 0)
            summe += q * (lse - z)
    return summe / len(ziele)


each(
    right(SMOOTH),
    lambda z, t, e: (1 - e) * -log_soft(z)[range(len(t)), t].mean() + e * -log_soft(z).mean(axis=-1).mean(),
    lambda z, t, e: (
        np.einsum("nv,nv->", (1 - e) * np.eye(z.shape[1])[t] + e / z.shape[1], -log_soft(z)) / len(z)
    ),
    lambda z, t, e: np.float32(
        np.mean(np.logaddexp.reduce(z, 1) - (1 - e) * z[np.arange(len(t)), t] - e * z.mean(1))
    ),
)


def smoothed_with(q):
    """The loss with target probabilities from q(one-hot, epsilon, V)."""

    def f(logits, targets, epsilon):
        V = logits.shape[1]
        return -(q(np.eye(V)[targets], epsilon, V) * log_soft(logits)).sum(1).mean()

    return f


slip(SMOOTH, "V - 1|V-1|V − 1|other|right class|itself")(
    smoothed_with(lambda o, e, V: np.where(o > 0, 1 - e, e / (V - 1)))
)
slip(SMOOTH, "right|sum|itself|too")(smoothed_with(lambda o, e, V: np.where(o > 0, 1 - e, e / V)))
slip(SMOOTH, "V|divid|sum|share")(smoothed_with(lambda o, e, V: (1 - e) * o + e))
slip(SMOOTH, "V - 2|V|padding|share")(smoothed_with(lambda o, e, V: np.where(o > 0, 1 - e, e / (V - 2))))
slip(SMOOTH, "epsilon|exchanged|1 - ")(smoothed_with(lambda o, e, V: e * o + (1 - e) / V))
slip(SMOOTH, "epsilon|smooth")(smoothed_with(lambda o, e, V: o))
slip(SMOOTH, "epsilon|0.1|smooth")(smoothed_with(lambda o, e, V: 0.9 * o + 0.1 / V))
slip(SMOOTH, "1 - |epsilon|right class|sum")(smoothed_with(lambda o, e, V: o + e / V))
slip(SMOOTH, "sum|rows|N")(lambda z, t, e: label_smoothing_loss(z, t, e) * len(z))
slip(SMOOTH, "V|mean|factor|class")(lambda z, t, e: label_smoothing_loss(z, t, e) / z.shape[1])
slip(SMOOTH, "shape|mean|row|one number")(
    lambda z, t, e: -(((1 - e) * np.eye(z.shape[1])[t] + e / z.shape[1]) * log_soft(z)).sum(-1)
)
slip(SMOOTH, "sign|-1|negative")(lambda z, t, e: -label_smoothing_loss(z, t, e))
slip(SMOOTH, "large|1000|finite|log|overflow|maximum")(
    lambda z, t, e: (
        -(
            ((1 - e) * np.eye(z.shape[1])[t] + e / z.shape[1])
            * np.log(np.exp(z) / np.exp(z).sum(1, keepdims=True))
        )
        .sum(1)
        .mean()
    )
)
slip(SMOOTH, "large|1000|finite|log|0|far apart|rounded|small")(
    lambda z, t, e: -(((1 - e) * np.eye(z.shape[1])[t] + e / z.shape[1]) * np.log(soft(z))).sum(1).mean()
)
slip(SMOOTH, "softmax|twice")(lambda z, t, e: label_smoothing_loss(soft(z), t, e))
slip(SMOOTH, "axis|column|rows")(
    lambda z, t, e: (
        -(((1 - e) * np.eye(z.shape[1])[t] + e / z.shape[1]) * np.log(soft(z, 0) + 1e-12)).sum(1).mean()
    )
)
slip(SMOOTH, "2|base|factor|bits")(lambda z, t, e: label_smoothing_loss(z, t, e) / math.log(2))
slip(SMOOTH, "log|probab")(
    lambda z, t, e: (((1 - e) * np.eye(z.shape[1])[t] + e / z.shape[1]) * soft(z)).sum(1).mean()
)


# --- rms_norm.forward -------------------------------------------------------------------------------

RMS = "rms_norm.forward"


class RMSNorm:
    """As in the LLaMA code."""

    def _norm(self, x, eps):
        return x * (1.0 / np.sqrt(np.power(x, 2).mean(-1, keepdims=True) + eps))

    def __call__(self, x, weight, eps=1e-6):
        output = self._norm(x.astype(np.float32), eps).astype(x.dtype)
        return output * weight


@right(RMS)
def rms_con_bucles(x, gamma, eps):
    salida = np.zeros_like(x)
    lotes, posiciones, d = x.shape
    for b in range(lotes):
        for p in range(posiciones):
            suma = 0.0
            for j in range(d):
                suma += x[b, p, j] ** 2
            raiz = (suma / d + eps) ** 0.5
            for j in range(d):
                salida[b, p, j] = gamma[j] * x[b, p, j] / raiz
    return salida


right(RMS)(RMSNorm())
each(
    right(RMS),
    lambda x, g, e: np.einsum("btd,d,bt->btd", x, g, (np.einsum("btd,btd->bt", x, x) / len(g) + e) ** -0.5),
    lambda x, g, e: x / np.sqrt(np.linalg.norm(x, axis=-1)[..., None] ** 2 / x.shape[-1] + e) * g,
    lambda x, gamma, eps: (gamma * x / np.sqrt(np.mean(x * x, axis=2, keepdims=True) + eps)).tolist(),
    lambda x, g, e: np.apply_along_axis(lambda t: g * t * (t @ t / t.size + e) ** -0.5, -1, x),
    lambda x, g, e: x * g / np.sqrt(x.var(-1, keepdims=True) + x.mean(-1, keepdims=True) ** 2 + e),
)


def rms(x):
    return np.sqrt((x * x).mean(-1, keepdims=True))


slip(RMS, "mean")(lambda x, g, e: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + e) * g)
slip(RMS, "eps")(lambda x, g, e: g * x / (rms(x) + e))
slip(RMS, "eps")(lambda x, g, e: g * x / rms(x))
slip(RMS, "root|squared|mean square")(lambda x, g, e: g * x / (rms(x) ** 2 + e))
slip(RMS, "mean|sum|d_model|√d|length|factor")(
    lambda x, g, e: g * x / np.sqrt((x**2).sum(-1, keepdims=True) + e)
)
slip(RMS, "gamma")(lambda x, g, e: x / np.sqrt(rms(x) ** 2 + e))
slip(RMS, "gamma")(lambda x, g, e: (1 + g) * x / np.sqrt(rms(x) ** 2 + e))
slip(RMS, "gamma")(lambda x, g, e: g + x / np.sqrt(rms(x) ** 2 + e))
slip(RMS, "gamma")(lambda x, g, e: x * g / np.sqrt(rms(x * g) ** 2 + e))
slip(RMS, "axis|position|token")(lambda x, g, e: g * x / np.sqrt((x**2).mean(1, keepdims=True) + e))
slip(RMS, "axis|all|token|whole")(lambda x, g, e: g * x / np.sqrt((x**2).mean() + e))
slip(RMS, "keepdims|shape|broadcast|ValueError|axis")(
    lambda x, g, e: g * x / np.sqrt((x**2).mean(axis=-1) + e)
)
slip(RMS, "multipl|divid|root")(lambda x, g, e: g * x * np.sqrt(rms(x) ** 2 + e))
slip(RMS, "sum of x|square|root|mean")(
    lambda x, g, e: g * x / np.sqrt(np.mean(x, -1, keepdims=True) ** 2 + e)
)
slip(RMS, "change|copy|argument")(
    lambda x, g, e: np.multiply(x, g / np.sqrt((x**2).mean(-1, keepdims=True) + e), out=x)
)


# --- gate.forward -----------------------------------------------------------------------------------

GATE = "gate.forward"


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


@right(GATE)
def swiglu_ffn(x: np.ndarray, w1: np.ndarray, w3: np.ndarray, w2: np.ndarray) -> np.ndarray:
    """SwiGLU feed-forward: w2(silu(w1 x) * w3 x)."""
    gate = np.matmul(x, w1)
    return np.matmul(gate * sigmoid(gate) * np.matmul(x, w3), w2)


@right(GATE)
def ffn_geschachtelt(x, W_tor, W_hoch, W_runter):
    y = []
    for satz in x:
        zeilen = []
        for wort in satz:
            tor = [sum(wort[i] * W_tor[i][j] for i in range(len(wort))) for j in range(W_tor.shape[1])]
            hoch = wort @ W_hoch
            verborgen = np.array([t / (1 + math.exp(-t)) * h for t, h in zip(tor, hoch, strict=True)])
            zeilen.append(verborgen @ W_runter)
        y.append(zeilen)
    return y


@right(GATE)
def gate_fused(x, W_gate, W_up, W_down):
    gate, up = np.split(x @ np.hstack([W_gate, W_up]), 2, axis=-1)
    return (gate * (1 + np.tanh(gate / 2)) / 2 * up) @ W_down


right(GATE)(
    lambda x, a, b, c: np.einsum(
        "btf,btf,fd->btd", (lambda z: z * sigmoid(z))(x @ a), x @ b, c, optimize=True
    )
)
right(GATE)(lambda x, a, b, c: swiglu_ffn(*map(np.float32, (x, a, b, c))))


def gated(hidden):
    return lambda x, a, b, c: hidden(x @ a, x @ b) @ c


def silu(z):
    return z * sigmoid(z)


slip(GATE, "gate|up|exchanged")(gated(lambda g, u: g * silu(u)))
slip(GATE, "sign|silu|sigmoid|activation|-z|SiLU")(gated(lambda g, u: g / (1 + np.exp(g)) * u))
slip(GATE, "sigmoid|SiLU|gate")(gated(lambda g, u: sigmoid(g) * u))
slip(GATE, "relu|activation|max|SiLU|cut off at 0")(gated(lambda g, u: np.maximum(g, 0) * u))
slip(GATE, "gelu|activation|1.702|SiLU")(gated(lambda g, u: g * sigmoid(1.702 * g) * u))
slip(GATE, "gelu|activation|SiLU")(
    gated(lambda g, u: g * (1 + np.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3))) / 2 * u)
)
slip(GATE, "tanh|activation|SiLU")(gated(lambda g, u: np.tanh(g) * u))
slip(GATE, "activation|both|up|SiLU")(gated(lambda g, u: silu(g) * silu(u)))
slip(GATE, "sum|added|product|multipl|times")(gated(lambda g, u: silu(g) + u))
slip(GATE, "product|after|activation|gate|SiLU")(gated(lambda g, u: silu(g * u)))
slip(GATE, "up|W_up")(gated(lambda g, u: silu(g)))
slip(GATE, "gate|W_gate")(gated(lambda g, u: u))
slip(GATE, "activation|SiLU|sigmoid")(gated(lambda g, u: g * u))
slip(GATE, "sum|added|product|gate|activation")(gated(lambda g, u: silu(g + u)))
slip(GATE, "up|W_up|gate|twice")(gated(lambda g, u: silu(g) * g))
slip(GATE, "x|residual|added")(lambda x, a, b, c: x + swiglu_ffn(x, a, b, c))
slip(GATE, "activation|after|down|last")(lambda x, a, b, c: silu(swiglu_ffn(x, a, b, c)))
slip(GATE, "activation|after|down|last|SiLU|gate")(lambda x, a, b, c: silu(((x @ a) * (x @ b)) @ c))
slip(GATE, "shape|W_down|d_ff|down")(lambda x, a, b, c: silu(x @ a) * (x @ b))
slip(GATE, "ValueError|shape|transpos")(lambda x, a, b, c: (silu(x @ a.T) * (x @ b.T)) @ c.T)
slip(GATE, "sign|silu|sigmoid|SiLU|-1|activation")(gated(lambda g, u: -silu(-g) * u))
slip(GATE, "softmax|activation|sum|row|SiLU")(gated(lambda g, u: soft(g) * u))


# --- sample.top_p -----------------------------------------------------------------------------------

TOP = "sample.top_p"


@right(TOP)
def nucleus(probs: np.ndarray, top_p: float) -> np.ndarray:
    sorted_idx = np.argsort(probs)[::-1]
    cumulative = np.cumsum(probs[sorted_idx])
    cutoff = np.searchsorted(cumulative, top_p) + 1
    filtered = np.zeros_like(probs)
    filtered[sorted_idx[:cutoff]] = probs[sorted_idx[:cutoff]]
    return filtered / filtered.sum()


@right(TOP)
def kern(p, anteil):
    uebrig = dict(enumerate(p))
    behalten, summe = {}, 0.0
    while uebrig and summe < anteil:
        bester = max(uebrig, key=uebrig.get)
        behalten[bester] = uebrig.pop(bester)
        summe += behalten[bester]
    return [behalten.get(i, 0) / summe for i in range(len(p))]


@right(TOP)
def top_p_torch_like(p, share):
    order = np.argsort(-p)
    sorted_p = p[order]
    remove = np.cumsum(sorted_p) - sorted_p >= share
    sorted_p = np.where(remove, 0, sorted_p)
    out = np.empty_like(p)
    out[order] = sorted_p / sorted_p.sum()
    return out


right(TOP)(lambda p, s: (lambda keep: p * keep / (p * keep).sum())(np.array([p[p > q].sum() < s for q in p])))
right(TOP)(
    lambda p, s: (lambda least: np.where(p >= least, p, 0) / p[p >= least].sum())(
        max(q for q in p if p[p >= q].sum() >= s)
    )
)


def kept_of(choose, again=lambda kept: kept / kept.sum()):
    """The tokens that choose(sorted p, cumulative p, share) keeps, in p's order."""

    def f(p, share):
        order = np.argsort(p)[::-1]
        keep = np.zeros(len(p), bool)
        keep[order] = choose(p[order], np.cumsum(p[order]), share)
        return again(np.where(keep, p, 0))

    return f


slip(TOP, "sum to|renormal|again|divid")(kept_of(lambda p, c, s: c - p < s, lambda kept: kept))
slip(TOP, "one too few|fewer|below|less|limit|reach|too few|finite|at least")(kept_of(lambda p, c, s: c <= s))
slip(TOP, "one too few|fewer|below|less|limit|reach|too few|at least")(
    kept_of(lambda p, c, s: (c <= s) | (np.arange(len(p)) < 1))
)
slip(TOP, "one|too many|more|fewest")(kept_of(lambda p, c, s: np.r_[True, (c - p < s)[:-1]]))
slip(TOP, "each|alone|single|share|threshold|together|least|finite")(
    lambda p, s: np.where(p >= s, p, 0) / max(p[p >= s].sum(), 1e-12)
)
slip(TOP, "number of|share of the tokens|count|together|how many|fewest|too")(
    kept_of(lambda p, c, s: np.arange(len(p)) < max(1, int(s * len(p))))
)
slip(TOP, "order|sorted|place")(lambda p, s: np.sort(nucleus(p, s))[::-1])
slip(TOP, "least|likel|smallest|order|small")(
    lambda p, s: (
        lambda o: (lambda k: k / k.sum())(np.where((np.cumsum(p[o]) - p[o] < s)[np.argsort(o)], p, 0))
    )(np.argsort(p))
)
slip(TOP, "order|sort|likel|place")(
    lambda p, s: (lambda k: k / k.sum())(np.where(np.cumsum(p) - p < s, p, 0))
)
slip(TOP, "divid|sum to|share|renormal|total")(
    lambda p, s: kept_of(lambda q, c, t: c - q < t, lambda kept: kept / s)(p, s)
)
slip(TOP, "softmax|sum|0|again|renormal")(
    kept_of(
        lambda p, c, s: c - p < s,
        lambda kept: np.where(kept > 0, np.exp(kept), 0) / np.exp(kept[kept > 0]).sum(),
    )
)
slip(TOP, "softmax|0 for|others|again|no token|zero|cut")(kept_of(lambda p, c, s: c - p < s, soft))
slip(TOP, "shape|length|order|too few")(lambda p, s: np.sort(nucleus(p, s)[nucleus(p, s) > 0])[::-1])
slip(TOP, "shape|one number|token|whole")(lambda p, s: int(nucleus(p, s).argmax()))
slip(TOP, "1 - |share|least|together|fewest|too")(kept_of(lambda p, c, s: c - p < 1 - s))


# --- mask.kept --------------------------------------------------------------------------------------

KEPT = "mask.kept"


@right(KEPT)
def prefill_mask(new_tokens: int, past_len: int) -> np.ndarray:
    total = past_len + new_tokens
    q_pos = np.arange(past_len, total)[:, None]
    k_pos = np.arange(total)[None, :]
    return k_pos <= q_pos


@right(KEPT)
def maske_mit_gedaechtnis(n, behalten):
    zeilen = []
    for i in range(n):
        zeilen.append([True] * (behalten + i + 1) + [False] * (n - i - 1))
    return zeilen


each(
    right(KEPT),
    lambda n, kept: np.concatenate([np.ones((n, kept)), np.tril(np.ones((n, n)))], axis=1).astype(bool),
    lambda n, kept: (
        np.tril(np.ones((kept + n, kept + n), dtype=bool))[-n:] if n else np.ones((0, kept), bool)
    ),
    lambda n, k: np.tri(n, k + n, k, bool),
    lambda n, kept: ~np.triu(np.ones((n, kept + n), dtype=bool), kept + 1),
)
slip(KEPT, "kept|left|first|shift|offset|position")(lambda n, kept: np.tri(n, kept + n, dtype=bool))
slip(KEPT, "itself|diagonal|one")(lambda n, kept: np.tri(n, kept + n, kept - 1, dtype=bool))
slip(KEPT, "later|future|next|one|ahead")(lambda n, kept: np.tri(n, kept + n, kept + 1, dtype=bool))
slip(KEPT, "order|left|right|kept|first|last|later|column")(
    lambda n, kept: np.hstack([np.tri(n, dtype=bool), np.ones((n, kept), bool)])
)
slip(KEPT, "kept|earlier|first|left")(
    lambda n, kept: np.hstack([np.zeros((n, kept), bool), np.tri(n, dtype=bool)])
)
slip(KEPT, "True|all|later|future|each other|new")(lambda n, kept: np.ones((n, kept + n), dtype=bool))
slip(KEPT, "shape|row|new")(lambda n, kept: np.tri(kept + n, dtype=bool))
slip(KEPT, "shape|column|kept")(lambda n, kept: np.tri(n, dtype=bool))
slip(KEPT, "shape|transpos|axes")(lambda n, kept: prefill_mask(n, kept).T)
slip(KEPT, "invert|hide|opposite|exchanged")(lambda n, kept: ~prefill_mask(n, kept))
slip(KEPT, "True|inf|added|score|number")(lambda n, kept: np.where(prefill_mask(n, kept), 0.0, -np.inf))
slip(KEPT, "axis|axes|shape")(lambda n, kept: prefill_mask(n, kept)[None])
slip(KEPT, "kept|exchanged|shape|order")(lambda n, kept: prefill_mask(kept, n))


# --- rope.forward -----------------------------------------------------------------------------------

ROPE = "rope.forward"


@right(ROPE)
def apply_rotary_emb(x: np.ndarray, theta: float = 10000.0) -> np.ndarray:
    """Complex view, as in the LLaMA code."""
    T, d = x.shape
    freqs = 1.0 / (theta ** (np.arange(0, d, 2)[: (d // 2)] / d))
    freqs_cis = np.exp(1j * np.outer(np.arange(T), freqs))
    x_complex = np.ascontiguousarray(x.reshape(T, d // 2, 2)).view(complex)[..., 0] * freqs_cis
    return np.stack([x_complex.real, x_complex.imag], -1).reshape(T, d)


@right(ROPE)
def drehung(x):
    T, d = x.shape
    y = np.zeros((T, d))
    for p in range(T):
        for i in range(d // 2):
            w = p / 10000 ** (2 * i / d)
            dreh = np.array([[math.cos(w), -math.sin(w)], [math.sin(w), math.cos(w)]])
            y[p, 2 * i : 2 * i + 2] = dreh @ x[p, 2 * i : 2 * i + 2]
    return y


def rotate_every_two(x):
    return np.stack((-x[:, 1::2], x[:, ::2]), axis=-1).reshape(x.shape)


def turning(angles):
    """cos and sin for every column, from the angles of the pairs."""
    return np.repeat(np.cos(angles), 2, -1), np.repeat(np.sin(angles), 2, -1)


def rope_angles(T, d, base=10000.0):
    return np.outer(np.arange(T), base ** (-np.arange(0, d, 2) / d))


@right(ROPE)
def rope_gptj(x):
    cos, sin = turning(rope_angles(*x.shape))
    return x * cos + rotate_every_two(x) * sin


@right(ROPE)
def rope_by_big_matrices(x):
    out = []
    for p, row in enumerate(x):
        R = np.zeros((len(row), len(row)))
        for i in range(0, len(row), 2):
            c, s = math.cos(p / 1e4 ** (i / len(row))), math.sin(p / 1e4 ** (i / len(row)))
            R[i : i + 2, i : i + 2] = [[c, -s], [s, c]]
        out.append(R.dot(row))
    return out


right(ROPE)(lambda x: np.asarray(rope_gptj(x.astype("float32")), "float32"))


def roped(first, second):
    """Each pair (a, b) becomes first(a, b, angle), second(a, b, angle)."""

    def f(x):
        w = rope_angles(*x.shape)
        a, b = x[:, ::2], x[:, 1::2]
        return np.stack([first(a, b, w), second(a, b, w)], -1).reshape(x.shape)

    return f


def with_angles(angles):
    return lambda x: (lambda c, s: x * c + rotate_every_two(x) * s)(*turning(angles(*x.shape)))


@slip(ROPE, "half|halves|pair")
def rope_rotate_half(x):
    h = x.shape[1] // 2
    w = np.concatenate([rope_angles(*x.shape)] * 2, -1)
    return x * np.cos(w) + np.concatenate([-x[:, h:], x[:, :h]], -1) * np.sin(w)


@slip(ROPE, "pair|half|halves|angle|columns")
def rope_mixes_tile_and_pairs(x):
    w = np.concatenate([rope_angles(*x.shape)] * 2, -1)
    return x * np.cos(w) + rotate_every_two(x) * np.sin(w)


slip(ROPE, "direction|sign|way|minus|backward|opposite")(
    roped(lambda a, b, w: a * np.cos(w) + b * np.sin(w), lambda a, b, w: b * np.cos(w) - a * np.sin(w))
)
slip(ROPE, "length|sign|minus")(
    roped(lambda a, b, w: a * np.cos(w) + b * np.sin(w), lambda a, b, w: a * np.sin(w) + b * np.cos(w))
)
slip(ROPE, "length|sign|minus")(
    roped(lambda a, b, w: a * np.cos(w) - b * np.sin(w), lambda a, b, w: a * np.sin(w) - b * np.cos(w))
)
slip(ROPE, "sin|cos|exchanged|angle|first|position 0|turn")(
    roped(lambda a, b, w: a * np.sin(w) - b * np.cos(w), lambda a, b, w: a * np.cos(w) + b * np.sin(w))
)
slip(ROPE, "length|cos|mix|partner|other column|pair")(
    roped(lambda a, b, w: a * np.cos(w), lambda a, b, w: b * np.sin(w))
)
slip(ROPE, "exchanged|order|column|pair")(
    roped(lambda a, b, w: a * np.sin(w) + b * np.cos(w), lambda a, b, w: a * np.cos(w) - b * np.sin(w))
)
slip(ROPE, "position|one|first|1")(
    with_angles(lambda T, d: np.outer(np.arange(1, T + 1), 1e4 ** (-np.arange(0, d, 2) / d)))
)
slip(ROPE, "2i|exponent|speed|angle|half")(
    with_angles(lambda T, d: np.outer(np.arange(T), 1e4 ** (-np.arange(d // 2) / d)))
)
slip(ROPE, "2i|exponent|speed|angle|half|twice")(
    with_angles(lambda T, d: np.outer(np.arange(T), 1e4 ** (-2 * np.arange(0, d, 2) / d)))
)
slip(ROPE, "base|speed|angle|1000")(with_angles(partial(rope_angles, base=1000.0)))
slip(ROPE, "base|speed|angle")(with_angles(partial(rope_angles, base=500000.0)))
slip(ROPE, "same|speed|angle|pair|column")(with_angles(lambda T, d: np.outer(np.arange(T), np.ones(d // 2))))
slip(ROPE, "position|row|same")(
    with_angles(lambda T, d: np.outer(np.ones(T), 1e4 ** (-np.arange(0, d, 2) / d)))
)
slip(ROPE, "grow|sign|exponent|speed|angle")(
    with_angles(lambda T, d: np.outer(np.arange(T), 1e4 ** (np.arange(0, d, 2) / d)))
)
slip(ROPE, "degree|angle|speed")(with_angles(lambda T, d: np.radians(rope_angles(T, d))))
slip(ROPE, "2π|angle|speed")(with_angles(lambda T, d: 2 * np.pi * rope_angles(T, d)))
slip(ROPE, "d/2 - 1|endpoint|speed|angle|exponent|last")(
    with_angles(lambda T, d: np.outer(np.arange(T), 1e4 ** (-np.arange(d // 2) / (d // 2 - 1))))
)
slip(ROPE, "revers|angle|speed|order|last")(with_angles(lambda T, d: rope_angles(T, d)[:, ::-1]))
slip(ROPE, "added|add|length|turn")(lambda x: x + before.pe_stacked(*x.shape))
slip(ROPE, "complex")(lambda x: (x[:, ::2] + 1j * x[:, 1::2]) * np.exp(1j * rope_angles(*x.shape)))


# --- adam.step --------------------------------------------------------------------------------------

ADAM = "adam.step"


@right(ADAM)
def adam(params, grads, exp_avg, exp_avg_sq, step, lr):
    beta1, beta2, eps = 0.9, 0.98, 1e-9
    exp_avg = exp_avg * beta1 + grads * (1 - beta1)
    exp_avg_sq = exp_avg_sq * beta2 + (1 - beta2) * grads * grads
    denom = np.sqrt(exp_avg_sq) / math.sqrt(1 - beta2**step) + eps
    return params - lr / (1 - beta1**step) * exp_avg / denom, exp_avg, exp_avg_sq


@right(ADAM)
def schritt(w, g, m, v, t, lernrate):
    neu_w, neu_m, neu_v = np.empty_like(w), np.empty_like(m), np.empty_like(v)
    for k in np.ndindex(w.shape):
        neu_m[k] = 0.9 * m[k] + 0.1 * g[k]
        neu_v[k] = 0.98 * v[k] + 0.02 * g[k] ** 2
        m_hut, v_hut = neu_m[k] / (1 - 0.9**t), neu_v[k] / (1 - 0.98**t)
        neu_w[k] = w[k] - lernrate * m_hut / (v_hut**0.5 + 1e-9)
    return [neu_w, neu_m, neu_v]


right(ADAM)(
    np.vectorize(
        lambda w, g, m, v, t, a: (
            lambda M, V: (w - a * M / (1 - 0.9**t) / (math.sqrt(V / (1 - 0.98**t)) + 1e-9), M, V)
        )(m + (g - m) * 0.1, v + (g * g - v) * 0.02),
        otypes=[float] * 3,
    )
)
right(ADAM)(lambda w, g, m, v, t, a: adam(*(np.array(z, np.float64) for z in (w, g, m, v)), t, a))


def adam_with(b1=0.9, b2=0.98, update=None, hats=True, moment=lambda g: g * g):
    def f(w, g, m, v, t, lr):
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * moment(g)
        mh, vh = (m / (1 - b1**t), v / (1 - b2**t)) if hats else (m, v)
        step = update or (lambda mh, vh, m, v: mh / (np.sqrt(vh) + 1e-9))
        return w - lr * step(mh, vh, m, v), m, v

    return f


slip(ADAM, "epsilon|ε|root")(adam_with(update=lambda mh, vh, m, v: mh / np.sqrt(vh + 1e-9)))
slip(ADAM, "correct|bias|1 - β|step|early")(adam_with(hats=False))
slip(ADAM, "correct|v|bias")(adam_with(update=lambda mh, vh, m, v: mh / (np.sqrt(v) + 1e-9)))
slip(ADAM, "correct|m|bias")(adam_with(update=lambda mh, vh, m, v: m / (np.sqrt(vh) + 1e-9)))
slip(ADAM, "β_2|0.98|0.999|v")(adam_with(b2=0.999))
slip(ADAM, "β|exchanged|0.98")(adam_with(b1=0.98, b2=0.9))
slip(ADAM, "root|v")(adam_with(update=lambda mh, vh, m, v: mh / (vh + 1e-9)))
slip(ADAM, "square|v|g")(adam_with(moment=np.abs))
slip(ADAM, "square|v|g|NaN|finite")(adam_with(moment=lambda g: g))
slip(ADAM, "sign|minus|uphill|direction|up")(
    adam_with(update=lambda mh, vh, m, v: -mh / (np.sqrt(vh) + 1e-9))
)
slip(ADAM, "v|spread|divid|root")(adam_with(update=lambda mh, vh, m, v: mh))


@slip(ADAM, "correct|m and v|keep|stored|bias|1 - β")
def adam_returns_hats(w, g, m, v, t, lr):
    m = 0.9 * m + 0.1 * g
    v = 0.98 * v + 0.02 * g**2
    m = m / (1 - 0.9**t)
    v = v / (1 - 0.98**t)
    w = w - lr * m / (np.sqrt(v) + 1e-9)
    return w, m, v


@slip(ADAM, "change|copy|argument")
def adam_in_place(w, g, m, v, t, lr):
    m *= 0.9
    m += 0.1 * g
    v *= 0.98
    v += 0.02 * g**2
    w -= lr * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.98**t)) + 1e-9)
    return w, m, v


slip(ADAM, "t|step|counts|correct")(lambda w, g, m, v, t, a: adam(w, g, m, v, t + 1, a))
slip(ADAM, "t|step|correct|first")(lambda w, g, m, v, t, a: adam(w, g, m, v, 1, a))
slip(ADAM, "order|exchanged|first")(lambda *args: (lambda w, m, v: (m, v, w))(*adam(*args)))
slip(ADAM, "order|exchanged|m and v")(lambda *args: (lambda w, m, v: (w, v, m))(*adam(*args)))
slip(ADAM, "three|3|tuple|only|one array|returned|number of")(lambda *args: adam(*args)[0])
slip(ADAM, "before|old|m|new")(
    lambda w, g, m, v, t, a: (
        w - a * m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.98**t)) + 1e-9),
        0.9 * m + 0.1 * g,
        0.98 * v + 0.02 * g * g,
    )
)
slip(ADAM, "β|exchanged|weights|g|m")(
    lambda w, g, m, v, t, a: (
        lambda M, V: (w - a * M / (1 - 0.9**t) / (np.sqrt(V / (1 - 0.98**t)) + 1e-9), M, V)
    )(0.1 * m + 0.9 * g, 0.02 * v + 0.98 * g * g)
)
slip(ADAM, "decay|w|weight")(lambda w, g, m, v, t, a: adam(w, g + 0.01 * w, m, v, t, a))
slip(ADAM, "decay|w|weight")(
    lambda w, g, m, v, t, a: (lambda o: (o[0] - a * 0.01 * w, *o[1:]))(adam(w, g, m, v, t, a))
)
slip(ADAM, "w|step|change|difference|update")(lambda w, *a: (lambda o: (w - o[0], *o[1:]))(adam(w, *a)))
slip(ADAM, "correct|β|power|t")(
    lambda w, g, m, v, t, a: (
        lambda M, V: (w - a * M / (1 - 0.9 * t) / (np.sqrt(np.abs(V / (1 - 0.98 * t))) + 1e-9), M, V)
    )(0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g * g)
)
slip(ADAM, "learning_rate|rate")(lambda w, g, m, v, t, a: adam(w, g, m, v, t, 1e-3))


# --- rope.attention ---------------------------------------------------------------------------------

RAT = "rope.attention"


@right(RAT)
def attention_with_rope(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    q_rot, k_rot = apply_rotary_emb(q), apply_rotary_emb(k)
    scores = q_rot @ k_rot.T / np.sqrt(q.shape[-1])
    return soft(scores) @ v


@right(RAT)
def aufmerksamkeit(q, k, v):
    T, d = q.shape
    ausgabe = []
    for m in range(T):
        punkte = []
        for n in range(T):
            s = 0.0
            for i in range(d // 2):
                w = (n - m) / 10000 ** (2 * i / d)
                a, b = k[n, 2 * i], k[n, 2 * i + 1]
                s += q[m, 2 * i] * (a * math.cos(w) - b * math.sin(w))
                s += q[m, 2 * i + 1] * (a * math.sin(w) + b * math.cos(w))
            punkte.append(s / math.sqrt(d))
        g = np.exp(np.array(punkte) - max(punkte))
        ausgabe.append(g @ v / g.sum())
    return np.array(ausgabe)


def rope_attention_by(turn_q, turn_k, scale=lambda d: math.sqrt(d)):
    return lambda q, k, v: soft(turn_q(q) @ turn_k(k).T / scale(q.shape[1])) @ v


def later_by_one(x):
    return rope_gptj(np.vstack([0 * x[:1], x]))[1:]


def same(x):
    return x


each(
    right(RAT),
    rope_attention_by(later_by_one, later_by_one),
    lambda q, k, v: np.einsum(
        "ij,jc->ic", soft(np.einsum("ic,jc->ij", rope_gptj(q), rope_gptj(k)) * q.shape[1] ** -0.5), v
    ),
    lambda q, k, v: rope_attention_by(rope_gptj, rope_gptj)(*map(np.float32, (q, k, v))),
)
back = roped(lambda a, b, w: a * np.cos(w) + b * np.sin(w), lambda a, b, w: b * np.cos(w) - a * np.sin(w))
slip(RAT, r"\bv\b|value")(lambda q, k, v: attention_with_rope(q, k, rope_gptj(v)))
slip(RAT, r"\bk\b|keys|key")(rope_attention_by(rope_gptj, same))
slip(RAT, r"\bq\b|quer")(rope_attention_by(same, rope_gptj))
slip(RAT, "turn|angle|position|RoPE")(rope_attention_by(same, same))
slip(RAT, "scale|√d|root|divid")(rope_attention_by(rope_gptj, rope_gptj, lambda d: 1))
slip(RAT, "scale|√d|root|divid")(rope_attention_by(rope_gptj, rope_gptj, lambda d: d))
slip(RAT, "half|halves|pair")(rope_attention_by(rope_rotate_half, rope_rotate_half))
slip(RAT, "direction|way|sign|backward|opposite")(rope_attention_by(back, back))
slip(RAT, "direction|way|sign|backward|opposite|same")(rope_attention_by(rope_gptj, back))
slip(RAT, "direction|way|sign|backward|opposite|same")(rope_attention_by(back, rope_gptj))
slip(RAT, "base|angle|speed|turn")(rope_attention_by(*2 * [with_angles(partial(rope_angles, base=1000.0))]))
slip(RAT, "angle|speed|exponent|turn|2i")(
    rope_attention_by(
        *2 * [with_angles(lambda T, d: np.outer(np.arange(T), 1e4 ** (-np.arange(d // 2) / d)))]
    )
)
slip(RAT, "position|one|shift|1|turn")(rope_attention_by(rope_gptj, later_by_one))
slip(RAT, "added|add|turn|angle|position")(
    rope_attention_by(*2 * [lambda x: x + before.pe_stacked(*x.shape)])
)
slip(RAT, "turn|after|output|y|softmax|position")(
    lambda q, k, v: rope_gptj(soft(q @ k.T / math.sqrt(q.shape[1])) @ v)
)
slip(RAT, "mask|later|first|query|causal|row")(
    lambda q, k, v: (
        soft(
            np.where(
                np.tri(len(q), dtype=bool), rope_gptj(q) @ rope_gptj(k).T / math.sqrt(q.shape[1]), -np.inf
            )
        )
        @ v
    )
)
slip(RAT, "axis|column|sum to 1|rows")(
    lambda q, k, v: soft(rope_gptj(q) @ rope_gptj(k).T / math.sqrt(q.shape[1]), 0) @ v
)
slip(RAT, "tuple|array|two|2")(lambda q, k, v: (attention_with_rope(q, k, v), soft(q @ k.T)))
slip(RAT, "exchanged|quer|keys|transpos|q and k")(lambda q, k, v: attention_with_rope(k, q, v))


# --- attention.grouped ------------------------------------------------------------------------------

GQA = "attention.grouped"


@right(GQA)
def grouped_query_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    n_rep = q.shape[0] // k.shape[0]
    k = np.repeat(k, n_rep, axis=0)
    v = np.repeat(v, n_rep, axis=0)
    scores = np.matmul(q, k.transpose(0, 2, 1)) / math.sqrt(q.shape[-1])
    return np.matmul(soft(scores), v)


@right(GQA)
def koepfe_einzeln(q, k, v):
    ergebnis = []
    gruppe = len(q) / len(k)
    for i, fragen in enumerate(q):
        schluessel = int(i // gruppe)
        punkte = fragen.dot(k[schluessel].T) / fragen.shape[1] ** 0.5
        ergebnis.append(soft(punkte).dot(v[schluessel]))
    return ergebnis


@right(GQA)
def gqa_five_axes(q, k, v):
    h, t, d = q.shape
    grouped = q.reshape(len(k), -1, t, d)
    w = soft(np.einsum("gitd,gsd->gits", grouped, k) / d**0.5)
    return np.einsum("gits,gsc->gitc", w, v).reshape(h, t, -1)


right(GQA)(
    lambda q, k, v: grouped_query_attention(np.float32(q), np.float32(k), np.float32(v)).astype(np.float32)
)
right(GQA)(
    lambda q, k, v: (
        grouped_query_attention(
            q,
            np.broadcast_to(k[:, None], (len(k), len(q) // len(k), *k.shape[1:])).reshape(-1, *k.shape[1:]),
            v.repeat(len(q) // len(v), 0),
        )
        if len(q) > len(k)
        else grouped_query_attention(q, k, v)
    )
)


def grouped_by(pick_k, pick_v=None, scale=lambda q, k: math.sqrt(q.shape[-1]), axis=-1):
    """Head i uses key head pick_k(i, n_heads, n_kv_heads)."""

    def f(q, k, v):
        ik = [pick_k(i, len(q), len(k)) for i in range(len(q))]
        iv = [(pick_v or pick_k)(i, len(q), len(k)) for i in range(len(q))]
        return soft(q @ k[ik].transpose(0, 2, 1) / scale(q, k), axis) @ v[iv]

    return f


def own_group(i, h, g):
    return i // (h // g)


slip(GQA, "neighbour|tile|turn|share|key head|group|i %|remainder")(grouped_by(lambda i, h, g: i % g))
slip(GQA, r"\bv\b|value")(grouped_by(own_group, lambda i, h, g: i % g))
slip(GQA, r"\bk\b|key")(grouped_by(lambda i, h, g: i % g, own_group))
slip(GQA, "first|one|key head|same|share|group")(grouped_by(lambda i, h, g: 0))
slip(GQA, "revers|order|key head|share|group|head")(grouped_by(lambda i, h, g: g - 1 - own_group(i, h, g)))
slip(GQA, "group|key head|i //|share|neighbour|head")(grouped_by(lambda i, h, g: min(i // g, g - 1)))
slip(GQA, "IndexError|index|key head|group")(grouped_by(lambda i, h, g: i))
slip(GQA, "scale|√d|root|divid")(grouped_by(own_group, scale=lambda q, k: 1))
slip(GQA, "scale|√d|root|divid")(grouped_by(own_group, scale=lambda q, k: q.shape[-1]))
slip(GQA, "scale|√d|root|divid")(grouped_by(own_group, scale=lambda q, k: math.sqrt(q.shape[-1] * len(q))))
slip(GQA, "scale|√d|root|divid|axis")(grouped_by(own_group, scale=lambda q, k: math.sqrt(k.shape[1])))
slip(GQA, "axis|column|rows|sum to 1|keys")(grouped_by(own_group, axis=-2))
slip(GQA, "axis|heads|sum to 1")(grouped_by(own_group, axis=0))
slip(GQA, "mean|average|key head|group|share")(
    lambda q, k, v: grouped_query_attention(q, k.mean(0, keepdims=True), v.mean(0, keepdims=True))
)
slip(GQA, "shape|heads|too few|group")(
    lambda q, k, v: grouped_query_attention(q.reshape(len(k), -1, *q.shape[1:]).mean(1), k, v)
)
slip(GQA, "shape|heads|side by side|merge|axis|axes")(
    lambda q, k, v: np.hstack(list(grouped_query_attention(q, k, v)))
)
slip(GQA, "shape|axis|axes|group")(
    lambda q, k, v: grouped_query_attention(q, k, v).reshape(len(k), -1, q.shape[1], v.shape[2])
)
slip(GQA, "later|mask|first|query|key|row")(
    lambda q, k, v: (
        soft(
            np.where(
                np.tri(q.shape[1], k.shape[1], dtype=bool),
                q @ k.repeat(len(q) // len(k), 0).transpose(0, 2, 1) / math.sqrt(q.shape[2]),
                -1e30,
            )
        )
        @ v.repeat(len(q) // len(v), 0)
    )
)
slip(GQA, "ValueError|shape|axis|head")(
    lambda q, k, v: soft(q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[2])) @ v
)
slip(GQA, "order|head|group|key head|neighbour|transpos")(
    lambda q, k, v: grouped_query_attention(
        q.reshape(-1, len(k), *q.shape[1:]).swapaxes(0, 1).reshape(q.shape), k, v
    )
)


# --- a second visit to the older exercises ----------------------------------------------------------


@right(SPLIT)
def diviser(x, tetes):
    B, T, D = x.shape
    sortie = np.zeros((B, tetes, T, D // tetes))
    for h in range(tetes):
        sortie[:, h] = x[..., h * (D // tetes) : (h + 1) * (D // tetes)]
    return sortie


right(SPLIT)(lambda x, h: np.stack(np.split(x, h, axis=-1), axis=1))
slip(SPLIT, "head|transpos|AT-HEADS|place|order")(lambda x, h: x.reshape(len(x), h, x.shape[1], -1))
slip(SPLIT, "shape|axes|axis|batch")(
    lambda x, h: x.reshape(*x.shape[:2], h, -1).transpose(0, 2, 1, 3).reshape(-1, x.shape[1], x.shape[2] // h)
)
slip(SPLIT, "n_heads|8|ValueError|shape|d_k|exchanged")(
    lambda x, d_k: x.reshape(*x.shape[:2], -1, d_k).transpose(0, 2, 1, 3)
)


@right(MERGE)
def coller(tetes):
    B, H, T, D = tetes.shape
    y = np.zeros((B, T, H * D))
    for h in range(H):
        y[:, :, h * D : (h + 1) * D] = tetes[:, h]
    return y


right(MERGE)(lambda x: np.concatenate(list(np.moveaxis(x, 1, 0)), axis=-1))
slip(MERGE, "transpos|head|place|order")(lambda x: x.reshape(len(x), x.shape[2], -1))
slip(MERGE, "shape|axis|axes|head")(lambda x: x.reshape(len(x), -1, x.shape[3]))
slip(MERGE, "axis|axes|transpos|head|place|order")(lambda x: x.swapaxes(2, 3).reshape(len(x), x.shape[2], -1))
slip(MERGE, "shape|first|head|column|too few")(lambda x: x[:, 0])


@right(EMB)
def einbetten(ids, tabelle):
    onehot = np.zeros((*ids.shape, tabelle.shape[0]))
    for stelle in np.ndindex(ids.shape):
        onehot[stelle][ids[stelle]] = 1
    return onehot @ tabelle * math.sqrt(tabelle.shape[1])


right(EMB)(lambda ids, E: np.vectorize(lambda i: E[i] * len(E[i]) ** 0.5, signature="()->(d)")(ids))
slip(EMB, "√d_model|factor|scale|root")(lambda ids, E: E[ids])
slip(EMB, "length|norm|row|factor|size")(
    lambda ids, E: E[ids] / np.linalg.norm(E[ids], axis=-1, keepdims=True) * math.sqrt(E.shape[1])
)
slip(EMB, "factor|root|T|size")(lambda ids, E: E[ids] * math.sqrt(ids.shape[1]))
slip(EMB, "axis|axes|shape|exchanged|transpos")(
    lambda ids, E: (E[ids] * E.shape[1] ** 0.5).transpose(1, 0, 2)
)
slip(EMB, "mean|axis|shape|token")(lambda ids, E: E[ids].mean(1) * E.shape[1] ** 0.5)

right(BLOCK)(
    lambda y, attention, ln1, mlp, ln2: [y := ln1(np.add(y, attention(y))), y := ln2(np.add(mlp(y), y))][-1]
)


@right(BLOCK)
def encoder_layer(src, self_attn, norm1, linear, norm2):
    residual = src
    src = residual + self_attn(src)
    src = norm1(src)
    residual = src
    src = linear(src)
    return norm2(residual + src)


slip(BLOCK, "norm|before|pre")(lambda x, a, n1, f, n2: (lambda h: h + f(n2(h)))(x + a(n1(x))))
slip(BLOCK, "same|parallel|attend|norm|x|ffn")(lambda x, a, n1, f, n2: n2(x + a(n1(x)) + f(n1(x))))
slip(BLOCK, "change|copy|argument")(
    lambda x, a, n1, f, n2: (lambda h: n2(h + f(h)))(n1(np.add(x, a(x), out=x)))
)

right(SMB)(lambda dp, p: np.array([(np.diag(z) - np.outer(z, z)) @ d for z, d in zip(p, dp, strict=True)]))
right(SMB)(lambda dp, p: (lambda pd: pd - p * pd.sum(axis=1).reshape(-1, 1))(np.multiply(p, dp)))
slip(SMB, "axis|column|row")(lambda dp, p: p * (dp - (dp * p).sum(0, keepdims=True)))


def ln_parts(dy, x, gamma, eps):
    xc = x - x.mean(-1, keepdims=True)
    s = np.sqrt((xc**2).mean(-1, keepdims=True) + eps)
    return xc, s, xc / s, dy * gamma


@right(NBACK)
def rueckwaerts(dy, x, gamma, beta, eps):
    d = x.shape[-1]
    dx, dg, db = np.zeros_like(x), np.zeros(d), np.zeros(d)
    for b, t in np.ndindex(x.shape[:2]):
        z, oben = x[b, t], dy[b, t]
        s = math.sqrt(z.var() + eps)
        h = (z - z.mean()) / s
        dg += oben * h
        db += oben
        jacobi = (np.eye(d) - 1 / d - np.outer(h, h) / d) / s
        dx[b, t] = jacobi @ (oben * gamma)
    return dx, dg, db


@right(NBACK)
def ln_back_by_steps(dy, x, gamma, beta, eps):
    xc, s, h, dh = ln_parts(dy, x, gamma, eps)
    D = x.shape[-1]
    dvar = np.sum(dh * xc * -0.5 * s**-3, axis=-1, keepdims=True)
    dmu = np.sum(-dh / s, axis=-1, keepdims=True) + dvar * np.mean(-2 * xc, axis=-1, keepdims=True)
    dx = dh / s + dvar * 2 * xc / D + dmu / D
    return dx, np.einsum("btd,btd->d", dy, h), np.einsum("btd->d", dy)


def ln_dx(dx):
    def f(dy, x, gamma, beta, eps):
        xc, s, h, dh = ln_parts(dy, x, gamma, eps)
        return dx(xc, s, h, dh), (dy * h).sum((0, 1)), dy.sum((0, 1))

    return f


def m(a):
    return a.mean(-1, keepdims=True)


slip(NBACK, "dx|spread|var")(ln_dx(lambda xc, s, h, dh: (dh - m(dh)) / s))
slip(NBACK, "dx|sign|mean|spread")(ln_dx(lambda xc, s, h, dh: (dh - m(dh) + h * m(dh * h)) / s))
slip(NBACK, "dx|d_model|factor|mean|sum")(
    ln_dx(lambda xc, s, h, dh: (dh - dh.sum(-1, keepdims=True) - h * (dh * h).sum(-1, keepdims=True)) / s)
)
slip(NBACK, "dx|std|spread|factor|token|divid")(ln_dx(lambda xc, s, h, dh: dh - m(dh) - h * m(dh * h)))
slip(NBACK, "dx|spread|std|xc|x")(ln_dx(lambda xc, s, h, dh: (dh - m(dh) - xc * m(dh * xc)) / s))

right(BACK)(
    lambda dy, x, a, b, c, d: (
        lambda z: (
            lambda dz: (
                dz @ a.T,
                np.tensordot(x, dz, ((0, 1), (0, 1))),
                dz.sum((0, 1)),
                np.tensordot(np.maximum(z, 0), dy, 2 * [(0, 1)]),
                dy.sum(axis=(0, 1)),
            )
        )(np.where(z > 0, dy @ c.T, 0))
    )(x @ a + b)
)
slip(BACK, "dW_2|db_2|mask|y|dy")(
    lambda dy, x, a, b, c, d: before.walked(dy * ((np.maximum(x @ a + b, 0) @ c + d) > 0), x, a, b, c, d)
)
slip(BACK, "dx|x|mask")(lambda dy, x, *p: (lambda o: (o[0] * (x > 0), *o[1:]))(before.walked(dy, x, *p)))

right(SM)(lambda s: np.exp(s - np.max(s, 1)[:, None]) / np.exp(s - np.max(s, 1)[:, None]).sum(1)[:, None])
right(SM)(lambda s: np.array([1 / np.exp(np.clip(row - row[:, None], None, 700)).sum(1) for row in s]))
slip(SM, "log|negative|below 0")(log_soft)

right(CE)(lambda z, t: sum(-log_soft(z)[i, k] for i, k in enumerate(t)) / len(t))
right(CE)(lambda z, t: np.take(-log_soft(z), t + z.shape[1] * np.arange(len(t))).mean())
slip(CE, "all|target|class|rows|pairs|columns")(lambda z, t: -log_soft(z)[:, t].mean())
slip(CE, "class|V|1 - p|other|binary")(
    lambda z, t: (
        -np.mean(
            (lambda o, p: o * np.log(p + 1e-12) + (1 - o) * np.log(1 - p + 1e-12))(
                np.eye(z.shape[1])[t], soft(z)
            )
        )
    )
)
slip(CE, "square|log|p")(lambda z, t: ((soft(z) - np.eye(z.shape[1])[t]) ** 2).sum(1).mean())
slip(CE, "clip|far|large|small|1000|log|finite")(
    lambda z, t: -np.mean(np.log(np.clip(soft(z)[np.arange(len(t)), t], 1e-2, 1)))
)

right(NORM)(
    lambda x, g, b, e: np.einsum("d,btd,bt->btd", g, x - x.mean(2)[..., None], 1 / np.sqrt(x.var(2) + e)) + b
)
right(NORM)(
    lambda x, g, b, e: [[(t - sum(t) / len(t)) / (np.var(t) + e) ** 0.5 * g + b for t in s] for s in x]
)

right(AT)(
    lambda q, k, v, mask=None: np.array(
        [
            (lambda w: w @ v / w.sum())(
                np.exp(
                    (s := k @ row / math.sqrt(len(row)) + (0 if mask is None else np.where(mask[i], 0, -1e9)))
                    - s.max()
                )
            )
            for i, row in enumerate(q)
        ]
    )
)
slip(AT, r"mask|hidden|-1e9|look")(
    lambda q, k, v, mask=None: (
        soft(q @ k.T / math.sqrt(q.shape[1]) + (0 if mask is None else -1e9 * mask)) @ v
    )
)

right(PE)(
    lambda n, d: np.array(
        [[(np.sin, np.cos)[j % 2](p * 10000 ** (-(j - j % 2) / d)) for j in range(d)] for p in range(n)]
    )
)
slip(PE, "column|base|exponent|speed|d")(lambda n, d: before.pe_stacked(n, 512)[:, :d])
slip(PE, "position|row|order")(lambda n, d: np.cumsum(before.pe_stacked(n, d), 0))
slip(PE, "exponent|speed|column|d_model|pair")(
    before.waves(
        lambda p, i, d: math.sin(p / 10000 ** (i / (d // 2 - 1))),
        lambda p, i, d: math.cos(p / 10000 ** (i / (d // 2 - 1))),
    )
)
slip(PE, "i // 2|pair|column|exponent|speed")(
    lambda n, d: np.where(
        np.arange(d) % 2,
        np.cos(np.arange(n)[:, None] / 1e4 ** ((np.arange(d) // 2) / d)),
        np.sin(np.arange(n)[:, None] / 1e4 ** ((np.arange(d) // 2) / d)),
    )
)


@right(FFN)
def red(x, W1, b1, W2, b2):
    plano = x.reshape(-1, x.shape[-1])
    oculta = np.array([[max(h, 0.0) for h in fila] for fila in plano @ W1 + b1])
    return (oculta @ W2 + b2).reshape(x.shape)


right(FFN)(
    lambda x, a, b, c, d: np.einsum("btf,fd->btd", (np.einsum("btd,df->btf", x, a) + b).clip(min=0), c) + d
)


# --- ways back: written from the tasks alone, before the checker was asked -----------------------------

CEB = "cross_entropy.backward"


@right(CEB)
def softmax_minus_one_hot(logits, targets):
    """dL/dz = (softmax(z) - y) / N"""
    N = logits.shape[0]
    z = logits - np.max(logits, axis=1)[:, None]
    probs = np.exp(z)
    probs /= probs.sum(axis=1)[:, None]
    probs[np.arange(N), targets] -= 1.0
    return probs / N


@right(CEB)
def zeile_fuer_zeile(logits, targets):
    grad = []
    for z, t in zip(logits.tolist(), targets.tolist(), strict=True):
        top = max(z)
        e = [math.exp(a - top) for a in z]
        grad.append([(a / sum(e) - (c == t)) / len(targets) for c, a in enumerate(e)])
    return grad


@right(CEB)
def by_the_jacobian(logits, targets):
    gradient = np.zeros(logits.shape)
    for row, (p, t) in enumerate(zip(soft(logits), targets, strict=True)):
        jacobian = np.diag(p) - np.outer(p, p)
        gradient[row] = -jacobian[t] / p[t] if p[t] else p - np.eye(len(p))[t]
    return gradient / len(logits)


def ce_grad(change, p_of=soft):
    return lambda z, t: change(p_of(z), np.eye(z.shape[1])[t], len(z))


right(CEB)(ce_grad(lambda p, y, n: np.divide(p - y, n).astype(np.float32)))
slip(CEB, r"rows|N\b|mean|sum")(ce_grad(lambda p, y, n: p - y))
slip(CEB, r"sign|minus|opposite")(ce_grad(lambda p, y, n: (y - p) / n))
slip(CEB, r"right class|target|taken")(ce_grad(lambda p, y, n: p / n))
slip(CEB, r"right class|other classes|0 ")(ce_grad(lambda p, y, n: (p - 1) * y / n))
slip(CEB, r"probabilit|sum to 0|softmax")(ce_grad(lambda p, y, n: -y / (p * n)))
slip(CEB, r"softmax|twice|logits")(ce_grad(lambda p, y, n: (soft(p) - y) / n))
slip(CEB, r"V|classes|factor")(ce_grad(lambda p, y, n: (p - y) / p.size))
slip(CEB, r"softmax|probabilit|logits|sum to 0|cancel|shift")(
    ce_grad(lambda p, y, n: (p - y) / n, lambda z: z)
)
slip(CEB, r"column|axis|row|cancel|shift")(
    ce_grad(lambda p, y, n: (p - y) / n, lambda z: np.exp(z) / np.exp(z).sum(0))
)
slip(CEB, r"1000|large|finite|NaN|number")(
    ce_grad(lambda p, y, n: (p - y) / n, lambda z: np.exp(z) / np.exp(z).sum(1, keepdims=True))
)
slip(CEB, r"shape|one number|row")(lambda z, t: (soft(z)[np.arange(len(t)), t] - 1) / len(t))
slip(CEB, r"class|right|place|order|target")(ce_grad(lambda p, y, n: (p - np.roll(y, 1, axis=1)) / n))

RMSB = "rms_norm.backward"


@right(RMSB)
def rms_norm_back(dout, x, weight, eps):
    D = x.shape[-1]
    inv = 1.0 / np.sqrt(np.mean(x**2, -1, keepdims=True) + eps)
    g = dout * weight
    dx = inv * g - x * inv**3 * np.sum(g * x, -1, keepdims=True) / D
    dw = np.sum(dout * x * inv, axis=(0, 1))
    return dx, dw


@right(RMSB)
def jeton_par_jeton(dy, x, gamma, eps):
    dx, dgamma = np.empty_like(x), np.zeros_like(gamma)
    d = len(gamma)
    for b, t in np.ndindex(*x.shape[:2]):
        r = math.sqrt(x[b, t] @ x[b, t] / d + eps)
        jacobian = np.eye(d) / r - np.outer(x[b, t], x[b, t]) / (d * r**3)
        dx[b, t] = jacobian @ (gamma * dy[b, t])
        dgamma += dy[b, t] * x[b, t] / r
    return dx, dgamma


def rms_back(
    dx=lambda g, h, r: (g - h * (g * h).mean(-1, keepdims=True)) / r,
    dgamma=lambda dy, x, h: (dy * h).sum((0, 1)),
    root=lambda x, e: np.sqrt((x * x).mean(-1, keepdims=True) + e),
):
    def f(dy, x, gamma, eps):
        r = root(x, eps)
        return dx(dy * gamma, x / r, r), dgamma(dy, x, x / r)

    return f


right(RMSB)(rms_back())
slip(RMSB, r"constant|mean square|way|along")(rms_back(dx=lambda g, h, r: g / r))
slip(RMSB, r"mean|LayerNorm")(
    rms_back(dx=lambda g, h, r: (g - g.mean(-1, keepdims=True) - h * (g * h).mean(-1, keepdims=True)) / r)
)
slip(RMSB, r"sum|multiple|x̂|along|d_model")(
    rms_back(dx=lambda g, h, r: (g - h * (g * h).sum(-1, keepdims=True)) / r)
)
slip(RMSB, r"sign|twice|x̂|multiple|along")(
    rms_back(dx=lambda g, h, r: (g + h * (g * h).mean(-1, keepdims=True)) / r)
)
slip(RMSB, r"divided|size|token|rms|root|row")(
    rms_back(dx=lambda g, h, r: g - h * (g * h).mean(-1, keepdims=True))
)
slip(RMSB, r"dgamma.*(axes|axis|shape|sum)")(rms_back(dgamma=lambda dy, x, h: (dy * h).sum(0)))
slip(RMSB, r"dgamma")(rms_back(dgamma=lambda dy, x, h: (dy * x).sum((0, 1))))
slip(RMSB, r"dgamma.*(batch|positions|factor|mean)")(rms_back(dgamma=lambda dy, x, h: (dy * h).mean((0, 1))))
slip(RMSB, r"dgamma.*(x|sum of dy)")(rms_back(dgamma=lambda dy, x, h: dy.sum((0, 1))))
slip(RMSB, r"eps|small|spread|0")(rms_back(root=lambda x, e: np.sqrt((x * x).mean(-1, keepdims=True)) + e))
slip(RMSB, r"mean|LayerNorm|std|spread|eps|number added|x̂")(
    rms_back(root=lambda x, e: np.sqrt(x.var(-1, keepdims=True) + e))
)


@slip(RMSB, r"gamma")
def gamma_comes_last(dy, x, gamma, eps):
    dx, dgamma = rms_back()(dy, x, np.ones_like(gamma), eps)
    return gamma * dx, dgamma


slip(RMSB, r"order|one array|2 outputs|came back")(lambda *a: rms_back()(*a)[0])
slip(RMSB, r"order")(lambda *a: rms_back()(*a)[::-1])

EMBB = "embedding.backward"


@right(EMBB)
def word_by_word(dy, ids, E):
    dE = np.zeros_like(E)
    for sentence, upstream in zip(ids, dy, strict=True):
        for word, g in zip(sentence, upstream, strict=True):
            dE[word] += math.sqrt(E.shape[1]) * g
    return dE


@right(EMBB)
def eins_aus_n(dy, ids, E):
    one_hot = np.eye(len(E))[ids.ravel()]
    return E.shape[1] ** 0.5 * one_hot.T @ dy.reshape(-1, E.shape[1])


right(EMBB)(
    lambda dy, ids, E: np.array([dy[ids == w].sum(axis=0) * np.sqrt(E.shape[-1]) for w in range(E.shape[0])])
)


def gather_back(write, factor=lambda E: math.sqrt(E.shape[1]), rows=len):
    def f(dy, ids, E):
        dE = np.zeros((rows(E), E.shape[1]))
        write(dE, ids, dy * factor(E))
        return dE

    return f


def keeps_the_last(dE, ids, g):
    dE[ids] = g


def adds_once(dE, ids, g):
    dE[ids] += g


slip(EMBB, r"occurs|again|repeat|several|one place")(gather_back(keeps_the_last))
slip(EMBB, r"occurs|again|repeat|several|one place")(gather_back(adds_once))
slip(EMBB, r"factor|smaller|√d_model")(gather_back(np.add.at, factor=lambda E: 1.0))
slip(EMBB, r"d_model")(gather_back(np.add.at, factor=lambda E: E.shape[1]))
slip(EMBB, r"d_model")(gather_back(np.add.at, factor=lambda E: E.shape[1] ** -0.5))
slip(EMBB, r"batch|T\b|factor")(
    lambda dy, ids, E: gather_back(np.add.at)(dy, ids, E) / (ids.shape[0] * ids.shape[1])
)
slip(EMBB, r"shape|place|row|axes")(lambda dy, ids, E: dy * math.sqrt(E.shape[1]))
slip(EMBB, r"mean|how often|times|row")(
    lambda dy, ids, E: np.array(
        [dy[ids == w].mean(0) * E.shape[1] ** 0.5 if (ids == w).any() else 0 * E[0] for w in range(len(E))]
    )
)
slip(EMBB, r"NaN|finite|0")(
    lambda dy, ids, E: np.array([dy[ids == w].mean(0) * E.shape[1] ** 0.5 for w in range(len(E))])
)
slip(EMBB, r"row|shape|too few")(
    lambda dy, ids, E: gather_back(np.add.at, rows=lambda E: ids.max() + 1)(dy, ids, E)
)
slip(EMBB, r"E\b")(lambda dy, ids, E: E + gather_back(np.add.at)(dy, ids, E))
slip(EMBB, r"sentence|place|batch|axes|shape|sum")(
    lambda dy, ids, E: np.stack([gather_back(np.add.at)(g, i, E) for g, i in zip(dy, ids, strict=True)])
)
slip(EMBB, r"E\b|row|dy")(lambda dy, ids, E: E[ids] * math.sqrt(E.shape[1]))

ATB = "attention.backward"


@right(ATB)
def attention_grad(grad_out, Q, K, V):
    d_k = Q.shape[1]
    A = soft(Q @ K.T / np.sqrt(d_k))
    dV = A.T @ grad_out
    dA = grad_out @ V.T
    D = np.sum(grad_out * (A @ V), axis=1, keepdims=True)
    dS = A * (dA - D)
    return dS @ K / np.sqrt(d_k), dS.T @ Q / np.sqrt(d_k), dV


@right(ATB)
def consulta_a_consulta(dy, q, k, v):
    root = math.sqrt(k.shape[1])
    dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    for i, query in enumerate(q):
        w = np.exp(k @ query / root)
        w /= w.sum()
        jacobian = np.diag(w) - np.outer(w, w)
        d_scores = jacobian @ (v @ dy[i]) / root
        dq[i] = d_scores @ k
        for j, d_score in enumerate(d_scores):
            dk[j] += d_score * query
            dv[j] += w[j] * dy[i]
    return [dq, dk, dv]


def back_through(
    weights=lambda s: soft(s),
    scores=lambda w, dw: w * (dw - (w * dw).sum(1, keepdims=True)),
    scale=lambda d: d**-0.5,
    last=None,
    dv=lambda w, dy: w.T @ dy,
    finish=lambda dq, dk, dv: (dq, dk, dv),
):
    def f(dy, q, k, v):
        w = weights(scale(k.shape[1]) * q @ k.T)
        ds = (last or scale)(k.shape[1]) * scores(w, dy @ v.T)
        return finish(ds @ k, ds.T @ q, dv(w, dy))

    return f


right(ATB)(back_through())
right(ATB)(back_through(finish=lambda *three: tuple(a.astype(np.float32) for a in three)))
slip(ATB, r"root of d_k|√d_k|scale|not divided")(back_through(last=lambda d: 1.0))
slip(ATB, r"divided|scale|d_k")(back_through(scale=lambda d: 1.0))
slip(ATB, r"d_k")(back_through(last=lambda d: 1 / d))
slip(ATB, r"softmax|weights")(back_through(scores=lambda w, dw: dw))
slip(ATB, r"term|p·dp|subtracted|weight")(back_through(scores=lambda w, dw: w * dw))
slip(ATB, r"weight|sum|derivative")(back_through(scores=lambda w, dw: w * (1 - w) * dw))
slip(ATB, r"dq|sum|axis|quer|row")(back_through(scores=lambda w, dw: w * (dw - (w * dw).sum(0))))
slip(ATB, r"dv.*(transposed|key|quer)|transposed|stop")(back_through(dv=lambda w, dy: w @ dy))
slip(ATB, r"order|place")(back_through(finish=lambda dq, dk, dv: (dv, dk, dq)))
slip(ATB, r"dk.*(shape|transposed)")(back_through(finish=lambda dq, dk, dv: (dq, dk.T, dv)))
slip(ATB, r"opposite|sign")(back_through(scores=lambda w, dw: w * ((w * dw).sum(1, keepdims=True) - dw)))
slip(ATB, r"dv.*(dy|weights|sum|quer|row)")(back_through(dv=lambda w, dy: w.T @ dy / len(dy)))
slip(ATB, r"quer|row|column|axis|key|shift|sum")(back_through(weights=lambda s: soft(s.T).T))

GATEB = "gate.backward"


@right(GATEB)
def swiglu_backward(dout, x, w1, w3, w2):
    B, T, D = x.shape
    xf, df = x.reshape(-1, D), dout.reshape(-1, D)
    h1, h3 = xf.dot(w1), xf.dot(w3)
    s = 1 / (1 + np.exp(-h1))
    act = h1 * s
    dh = df.dot(w2.T)
    dw2 = (act * h3).T.dot(df)
    dh3 = dh * act
    dh1 = dh * h3 * s * (1 + h1 * (1 - s))
    dx = dh1.dot(w1.T) + dh3.dot(w3.T)
    return dx.reshape(B, T, D), xf.T.dot(dh1), xf.T.dot(dh3), dw2


@right(GATEB)
def einheit_fuer_einheit(dy, x, W_gate, W_up, W_down):
    dx, dG, dU, dD = (np.zeros(a.shape) for a in (x, W_gate, W_up, W_down))
    for b, t in np.ndindex(*x.shape[:2]):
        for f in range(W_gate.shape[1]):
            g, u = float(x[b, t] @ W_gate[:, f]), float(x[b, t] @ W_up[:, f])
            s = 1 / (1 + math.exp(-g))
            dh = float(dy[b, t] @ W_down[f])
            dg, du = dh * u * (s + g * s * (1 - s)), dh * g * s
            dx[b, t] += dg * W_gate[:, f] + du * W_up[:, f]
            dG[:, f] += dg * x[b, t]
            dU[:, f] += du * x[b, t]
            dD[f] += g * s * u * dy[b, t]
    return dx, dG, dU, dD


def logistic(z):
    return 1 / (1 + np.exp(-z))


def gate_ways(
    slope=lambda z: logistic(z) * (1 + z * (1 - logistic(z))),
    du=lambda dh, g, u: dh * g,
    dg=lambda dh, g, u: dh * u,
    dx=lambda dz, du, G, U: dz @ G.T + du @ U.T,
    hidden=np.multiply,
    gather=lambda a, d: np.tensordot(a, d, ([0, 1], [0, 1])),
):
    def f(dy, x, G, U, D):
        z, u = x @ G, x @ U
        g, dh = z * logistic(z), dy @ D.T
        dz, d_up = dg(dh, g, u) * slope(z), du(dh, g, u)
        return dx(dz, d_up, G, U), gather(x, dz), gather(x, d_up), gather(hidden(g, u), dy)

    return f


right(GATEB)(gate_ways())
slip(GATEB, r"dx.*(term|W_up|way)")(gate_ways(dx=lambda dz, du, G, U: dz @ G.T))
slip(GATEB, r"dx.*(term|W_gate|way)")(gate_ways(dx=lambda dz, du, G, U: du @ U.T))
slip(GATEB, r"other|factor|shut|product")(gate_ways(du=lambda dh, g, u: dh * u, dg=lambda dh, g, u: dh * g))
slip(GATEB, r"SiLU|slope")(gate_ways(slope=lambda z: 1.0))
slip(GATEB, r"slope|SiLU|sigmoid")(gate_ways(slope=lambda z: logistic(z) * (1 - logistic(z))))
slip(GATEB, r"slope|SiLU|term|factor")(gate_ways(slope=logistic))
slip(GATEB, r"slope|SiLU|ReLU|activation")(gate_ways(slope=lambda z: 1.0 * (z > 0)))
slip(GATEB, r"dW_down")(gate_ways(hidden=lambda g, u: g))
slip(GATEB, r"hidden|factor|product|added")(gate_ways(hidden=np.add))
slip(GATEB, r"batch|positions|factor")(
    gate_ways(gather=lambda a, d: np.tensordot(a, d, ([0, 1], [0, 1])) / (d.shape[0] * d.shape[1]))
)
slip(GATEB, r"transposed")(gate_ways(gather=lambda a, d: np.tensordot(d, a, ([0, 1], [0, 1]))))
slip(GATEB, r"axes|axis|batch")(gate_ways(gather=lambda a, d: a.swapaxes(1, 2) @ d))
slip(GATEB, r"order|exchanged|place")(lambda *a: (lambda x, g, u, d: (x, u, g, d))(*gate_ways()(*a)))
slip(GATEB, r"W_up|up|dW_gate")(gate_ways(dg=lambda dh, g, u: dh))
slip(GATEB, r"dx.*(mean|half|1/2|factor)")(gate_ways(dx=lambda dz, du, G, U: (dz @ G.T + du @ U.T) / 2))

ROPEB = "rope.backward"


@right(ROPEB)
def rotary_grad(grad):
    seq, dim = grad.shape
    inv_freq = 1.0 / (10000 ** (np.arange(0, dim, 2) / dim))
    theta = np.outer(np.arange(seq), inv_freq)
    g1, g2 = grad[:, ::2], grad[:, 1::2]
    return np.stack(
        [g1 * np.cos(theta) + g2 * np.sin(theta), g2 * np.cos(theta) - g1 * np.sin(theta)], -1
    ).reshape(seq, dim)


@right(ROPEB)
def en_nombres_complexes(dy):
    T, d = dy.shape
    phase = np.exp(-1j * np.arange(T)[:, None] / 10000.0 ** (np.arange(0, d, 2) / d))
    z = (dy[:, 0::2] + 1j * dy[:, 1::2]) * phase
    dx = np.empty((T, d))
    dx[:, 0::2], dx[:, 1::2] = z.real, z.imag
    return dx


@right(ROPEB)
def by_the_matrix_transposed(dy):
    rows = []
    for p, row in enumerate(dy):
        R = np.zeros((len(row), len(row)))
        for j in range(0, len(row), 2):
            a = p * 10000 ** (-j / len(row))
            R[j : j + 2, j : j + 2] = [[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]
        rows.append(R.T @ row)
    return np.array(rows)


def spun(made, speed=lambda j, d: 10000.0 ** (-j / d), first=0):
    def f(dy):
        T, d = dy.shape
        angle = (first + np.arange(T))[:, None] * speed(np.arange(0, d, 2), d)
        dx = np.array(dy, dtype=float)
        dx[:, ::2], dx[:, 1::2] = made(dy[:, ::2], dy[:, 1::2], np.cos(angle), np.sin(angle))
        return dx

    return f


def spun_back(a, b, c, s):
    return a * c + b * s, b * c - a * s


slip(ROPEB, r"other way|forward|once more|direction")(spun(lambda a, b, c, s: (a * c - b * s, a * s + b * c)))
slip(ROPEB, r"cosine|one column|length|not depend|turn")(spun(lambda a, b, c, s: (a * c, b * c)))
slip(ROPEB, r"length|minus|turn|sign")(spun(lambda a, b, c, s: (a * c + b * s, b * c + a * s)))
slip(ROPEB, r"length|cos|turn")(spun(lambda a, b, c, s: (a * (c - s), b * (c + s))))
slip(ROPEB, r"angle|speed|exponent|twice")(spun(spun_back, speed=lambda j, d: 10000.0 ** (-2 * j / d)))
slip(ROPEB, r"step|position|counted")(spun(spun_back, first=1))
slip(ROPEB, r"dy|not turned")(lambda dy: dy)
slip(ROPEB, r"length|inverse|divided|turn|row|place")(spun(lambda a, b, c, s: (a / c + b * s, b / c - a * s)))


@slip(ROPEB, r"pair|half|column")
def halves_as_in_a_library(dy):
    T, d = dy.shape
    angle = np.arange(T)[:, None] / 10000 ** (np.arange(d // 2) * 2 / d)
    a, b = dy[:, : d // 2], dy[:, d // 2 :]
    return np.hstack([a * np.cos(angle) + b * np.sin(angle), b * np.cos(angle) - a * np.sin(angle)])


@slip(ROPEB, r"length|turn|already|old|column|sign")
def in_place_too_early(dy):
    dx = dy.copy()
    T, d = dx.shape
    angle = np.arange(T)[:, None] / 10000 ** (np.arange(0, d, 2) / d)
    dx[:, ::2] = dx[:, ::2] * np.cos(angle) + dx[:, 1::2] * np.sin(angle)
    dx[:, 1::2] = dx[:, 1::2] * np.cos(angle) - dx[:, ::2] * np.sin(angle)
    return dx


KVB = "grouped.backward"


@right(KVB)
def accumulate(dk_expanded, n_kv):
    n_rep = dk_expanded.shape[0] // n_kv
    dk = np.zeros((n_kv, *dk_expanded.shape[1:]))
    for h in range(dk_expanded.shape[0]):
        dk[h // n_rep] += dk_expanded[h]
    return dk


right(KVB)(lambda dy, g: np.add.reduceat(dy, np.arange(0, len(dy), len(dy) // g), axis=0))
right(KVB)(lambda dy, g: [sum(part) for part in np.split(dy, g)])
right(KVB)(lambda dy, g: np.einsum("ig,itd->gtd", np.repeat(np.eye(g), len(dy) // g, axis=0), dy))
slip(KVB, r"mean|smaller|query heads of a group")(lambda dy, g: dy.reshape(g, -1, *dy.shape[1:]).mean(1))
slip(KVB, r"one query head|first|too few")(lambda dy, g: dy[:: len(dy) // g])
slip(KVB, r"own|neighbour|again and again|head")(lambda dy, g: dy.reshape(-1, g, *dy.shape[1:]).sum(0))
slip(KVB, r"axes|sum|axis 1")(lambda dy, g: dy.reshape(g, -1, *dy.shape[1:]))
slip(KVB, r"dy|itself")(lambda dy, g: dy)
slip(KVB, r"shape|axis|axes")(lambda dy, g: dy.sum(axis=0))
slip(KVB, r"head|n_kv_heads|all|every")(lambda dy, g: np.array([dy.sum(axis=0)] * g))
slip(KVB, r"once for each|query head|rows|axis 0")(
    lambda dy, g: np.repeat(dy.reshape(g, -1, *dy.shape[1:]).sum(1), len(dy) // g, axis=0)
)


@slip(KVB, r"one query head|last|written over")
def overwritten(dy, g):
    dx = np.empty((g, *dy.shape[1:]))
    for i, head in enumerate(dy):
        dx[i * g // len(dy)] = head
    return dx


BLB = "block.backward"


@right(BLB)
def reverse(dout, attn_bwd, ln1_bwd, mlp_bwd, ln2_bwd):
    d_res2 = ln2_bwd(dout)
    d_h = d_res2.copy()
    d_h += mlp_bwd(d_res2)
    d_res1 = ln1_bwd(d_h)
    d_x = d_res1.copy()
    d_x += attn_bwd(d_res1)
    return d_x


@right(BLB)
def stationsweise(dy, attend_back, norm_1_back, ffn_back, norm_2_back):
    for norm, layer in ((norm_2_back, ffn_back), (norm_1_back, attend_back)):
        dy = norm(dy)
        dy = layer(dy) + dy
    return dy


slip(BLB, r"around|residual|ways")(lambda dy, a, n1, f, n2: a(n1(f(n2(dy)))))
slip(BLB, r"around|residual|ways")(lambda dy, a, n1, f, n2: (lambda s: s + a(s))(n1(f(n2(dy)))))
slip(BLB, r"norm")(lambda dy, a, n1, f, n2: (lambda h: h + a(n1(h)))(dy + f(n2(dy))))
slip(BLB, r"pre-norm|norm")(lambda dy, a, n1, f, n2: (lambda h: h + n1(a(h)))(dy + n2(f(dy))))
slip(BLB, r"order|first")(lambda dy, a, n1, f, n2: (lambda h: n2(h + f(h)))(n1(dy + a(dy))))
slip(BLB, r"order|first|exchanged")(
    lambda dy, a, n1, f, n2: (lambda h: (lambda s: s + f(s))(n2(h)))(n1(dy) + a(n1(dy)))
)
slip(BLB, r"norm.*exchanged|other one's norm")(
    lambda dy, a, n1, f, n2: (lambda s: s + a(s))(n2((lambda t: t + f(t))(n1(dy))))
)
slip(BLB, r"norm")(lambda dy, a, n1, f, n2: (lambda s: s + a(s))(dy + f(dy)))
slip(BLB, r"never called")(lambda dy, a, n1, f, n2: (lambda s: s + a(s))(n1(n2(dy))))
slip(BLB, r"attend_back|ffn_back|norm_1|norm_2|called|order")(
    lambda dy, a, n1, f, n2: (lambda t: n1(t + f(t)) + a(t))(n2(dy))
)
slip(BLB, r"after|added|changed|2|sum")(
    lambda dy, a, n1, f, n2: dy + (lambda s: s + a(s))(n1((lambda t: t + f(t))(n2(dy))))
)


# --- a published model ------------------------------------------------------------------------------

Q4 = "quantise.groups"


@right(Q4)
def quantize_dequantize(weights, n_bits):
    lo = weights.min(-1)[:, None]
    hi = weights.max(-1)[:, None]
    scale = (hi - lo) / ((1 << n_bits) - 1)
    codes = np.clip(((weights - lo) / scale + 0.5).astype(int), 0, (1 << n_bits) - 1)
    return codes * scale + lo


@right(Q4)
def gruppenweise(w, bits):
    stufen = 2**bits - 1
    rows = []
    for r in w:
        q = np.round(np.interp(r, (min(r), max(r)), (0, stufen)))
        rows.append(np.interp(q, (0, stufen), (min(r), max(r))))
    return np.array(rows)


slip(Q4, r"values|steps|largest")(
    lambda w, b: (lambda m, d: m + d * np.rint((w - m) / d))(w.min(1)[:, None], np.ptp(w, 1)[:, None] / 2**b)
)
slip(Q4, r"all groups|every group")(
    lambda w, b: (lambda m, d: m + d * np.rint((w - m) / d))(w.min(), (w.max() - w.min()) / (2**b - 1))
)
slip(Q4, r"down|larger")(
    lambda w, b: (lambda m, d: m + d * ((w - m) // d))(w.min(1)[:, None], np.ptp(w, 1)[:, None] / (2**b - 1))
)
slip(Q4, r"begins at 0|smallest|row")(
    lambda w, b: (lambda m, d: d * np.rint((w - m) / d))(
        w.min(1)[:, None], np.ptp(w, 1)[:, None] / (2**b - 1)
    )
)
slip(Q4, r"w|itself|rounded|same")(lambda w, b: w)
slip(Q4, r"axis|row|group|column")(
    lambda w, b: (lambda m, d: m + d * np.rint((w - m) / d))(w.min(0), np.ptp(w, 0) / (2**b - 1))
)

PORT = "port.block"


def vectorised(
    rot="halves", scale=True, act=lambda z: z / (1 + np.exp(-z)), second=True, rep=np.repeat, axis=-1
):
    def rope(z):  # (T, heads, d_k)
        T, _, d = z.shape
        ang = np.outer(np.arange(T), 1 / 10000 ** (np.arange(0, d, 2) / d))[:, None]
        if rot == "pairs":
            c = (z[..., ::2] + 1j * z[..., 1::2]) * np.exp(1j * ang)
            return np.stack([c.real, c.imag], axis=-1).reshape(z.shape)
        c = (z[..., : d // 2] + 1j * z[..., d // 2 :]) * np.exp((1j if rot == "halves" else -1j) * ang)
        return np.concatenate([c.real, c.imag], axis=-1)

    def rms(z, g):
        return z / np.sqrt(np.mean(np.square(z), -1, keepdims=True) + 1e-5) * g

    def f(x, Wq, Wk, Wv, Wo, g1, Wg, Wu, Wd, g2):
        T, d = x.shape
        n = rms(x, g1)
        q, k, v = ((n @ W.T).reshape(T, -1, d // 4) for W in (Wq, Wk, Wv))
        q, k = rope(q), rope(k)
        k, v = rep(k, 2, axis=1), rep(v, 2, axis=1)
        s = np.einsum("thd,uhd->htu", q, k) / (np.sqrt(d // 4) if scale else 1)
        s = np.where(np.triu(np.ones((T, T)), 1) > 0, -1e30, s)
        e = np.exp(s - s.max(axis=axis, keepdims=True))
        p = e / e.sum(axis=axis, keepdims=True)
        h = x + np.einsum("htu,uhd->thd", p, v).reshape(T, d) @ Wo.T
        m = rms(h, g2)
        y = (act(m @ Wg.T) * (m @ Wu.T)) @ Wd.T
        return h + y if second else y

    return f


right(PORT)(vectorised())
right(PORT)(vectorised(act=lambda z: z * (0.5 + 0.5 * np.tanh(z / 2))))
slip(PORT, r"neighbouring|pair")(vectorised(rot="pairs"))
slip(PORT, r"other way|sign|back|opposite")(vectorised(rot="back"))
slip(PORT, r"√|scal|divi")(vectorised(scale=False))
slip(PORT, r"residual|around|added|sum")(vectorised(second=False))
slip(PORT, r"head")(vectorised(rep=lambda z, times, axis: np.concatenate([z] * times, axis=axis)))
slip(PORT, r"token|row|differs")(vectorised(act=lambda z: np.maximum(z, 0)))
slip(PORT, r"token|row|differs")(vectorised(axis=-2))
