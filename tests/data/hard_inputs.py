"""Hard inputs for single operations, and their exact outputs and gradients from 80-digit arithmetic.

make_hard_inputs.py measures the errors of npformer and of PyTorch on these inputs. test_hard_inputs.py
measures those of npformer again. No formula of a gradient is written here: the exact gradient is a difference
quotient of the exact output, with steps of 1e-25 in 80 digits.
"""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import mpmath
import numpy as np

import npformer as npf

DIGITS, STEP = 80, mpmath.mpf(10) ** -25


class Case(NamedTuple):
    """One operation on one input."""

    operation: str
    input: str  # the description on the page
    dtype: str
    arrays: tuple[Any, ...]  # the gradient with respect to the first one is tested
    exact: Any  # a function of arrays of mpmath numbers
    npformer: Any  # a function of NumPy arrays and d_output -> (output, gradient)
    each: bool = False  # whether an error is divided by its entry, not by the largest entry


mp_exp, mp_log, mp_erfc, mp_sqrt, mp_tanh = (
    np.vectorize(f, otypes=[object]) for f in (mpmath.exp, mpmath.log, mpmath.erfc, mpmath.sqrt, mpmath.tanh)
)


def layer_norm(x, gamma, beta, eps):
    centred = x - x.sum(-1, keepdims=True) / x.shape[-1]
    variance = (centred * centred).sum(-1, keepdims=True) / x.shape[-1]
    return gamma * centred / mp_sqrt(variance + eps) + beta


def rms_norm(x, gamma, eps):
    return gamma * x / mp_sqrt((x * x).sum(-1, keepdims=True) / x.shape[-1] + eps)


def softmax(s):
    e = mp_exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def cross_entropy(logits):
    """Return the mean loss. The target of row i is id i."""
    largest = logits.max(-1, keepdims=True)
    log_sums = mp_log(mp_exp(logits - largest).sum(-1, keepdims=True)) + largest
    return np.array((log_sums.ravel() - logits.diagonal()).sum() / len(logits))


def gelu(z):
    return z * mp_erfc(-z / mpmath.sqrt(2)) / 2


def silu(z):
    return z / (1 + mp_exp(-z))


def attention(q, k, v):
    return softmax(q @ k.T / mpmath.sqrt(q.shape[-1])) @ v


def kl_penalty(log_p, log_p_ref):
    return mp_exp(log_p_ref - log_p) - (log_p_ref - log_p) - 1


def pair(name, *params, **options):
    """Return a function that runs npformer's forward and backward, and returns y and the first gradient."""

    def run(x, *more, d_output):
        arguments = [x, *params_of(params, more)]
        y, cache = getattr(npf, f"{name}_forward")(*arguments, **options)
        gradients = getattr(npf, f"{name}_backward")(d_output, cache)
        return y, gradients[0] if isinstance(gradients, tuple) else gradients

    return run


def params_of(kinds, arrays):
    """Return a list of the arrays, or a list with one parameter tuple, `kinds[0](*arrays)`."""
    return [kinds[0](*arrays)] if kinds else list(arrays)


def run_kl_penalty(log_p, log_p_ref, d_output):
    y, cache = npf.kl_penalty_forward(log_p, log_p_ref=log_p_ref)
    return y, npf.kl_penalty_backward(d_output, cache)


def run_cross_entropy(logits, d_output):
    loss, cache = npf.cross_entropy_forward(logits, np.arange(len(logits)))
    return loss, npf.cross_entropy_backward(d_output, cache)


def make_cases():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3, 8))
    gamma, beta = 1 + 0.1 * rng.standard_normal(8), 0.1 * rng.standard_normal(8)
    logits = rng.standard_normal((3, 8))
    q, k, v = (rng.standard_normal((n, 4)) for n in (3, 5, 5))
    eps = 1e-5

    def norm(what, dtype, x, eps=eps):
        return Case(
            "layer norm", what, dtype, (x, gamma, beta),
            partial(layer_norm, eps=mpmath.mpf(eps)),
            pair("layer_norm", npf.LayerNormParams, eps=eps),
        )  # fmt: skip

    def ce(what, dtype, logits):
        return Case("cross entropy", what, dtype, (logits,), cross_entropy, run_cross_entropy)

    def rms(what, dtype, x):
        return Case("RMSNorm", what, dtype, (x, gamma), partial(rms_norm, eps=mpmath.mpf(eps)),
                    pair("rms_norm", npf.RMSNormParams, eps=eps))  # fmt: skip

    tails = np.array([-37.0, -20.0, -10.0, -6.0, -3.0, -1e-3, 4.0, 8.0])
    return [
        norm("rows at 50 ± 1e-3", "float64", 50 + 1e-3 * rows),
        norm("rows at 10,000 ± 0.1", "float32", 1e4 + 0.1 * rows),
        norm("rows of ±1e20", "float32", 1e20 * rows),
        rms("rows of ±1e20", "float32", 1e20 * rows),
        rms("rows of ±1e-20", "float32", 1e-20 * rows),
        Case("softmax", "scores of ±10,000", "float64", (1e4 + rows,), softmax, pair("softmax")),
        Case("softmax", "scores of ±1,000", "float32", (1e3 + rows,), softmax, pair("softmax")),
        ce("logits of ±1,000", "float64", 1e3 * logits),
        ce("logits of 10,000 ± 1", "float32", 1e4 + logits),
        ce("almost certain, loss about 2e-15", "float64", 36.0 * np.eye(3, 8)),
        Case("GELU", "z from -37 to 8, each entry", "float64", (tails,), gelu, pair("gelu"), each=True),
        Case("GELU", "z from -12 to 8, each entry", "float32", (np.clip(tails, -12, 8),), gelu, pair("gelu"),
             each=True),
        Case("SiLU", "z from -80 to 8, each entry", "float64", (np.r_[-80.0, -50.0, tails],), silu,
             pair("silu"), each=True),
        Case("attention", "scores of ±1", "float64", (q, k, v), attention, pair("attention")),
        Case("attention", "scores of ±30", "float64", (20 * q, k, v), attention, pair("attention")),
        Case("attention", "scores of ±30", "float32", (20 * q, k, v), attention, pair("attention")),
        Case("KL penalty", "log-probabilities that differ by 1e-6, each entry", "float64",
             (-3 + rows, -3 + rows + 1e-6), kl_penalty, run_kl_penalty, each=True),
    ]  # fmt: skip


def rounded(case):
    """Return the arrays of a case in its dtype, and a random d_output in this dtype."""
    arrays = tuple(a.astype(case.dtype) for a in case.arrays)
    shape = case.exact(*map(to_exact, arrays)).shape
    return arrays, np.random.default_rng(1).standard_normal(shape).astype(case.dtype)


def to_exact(array):
    """Return an array of mpmath numbers with exactly these values."""
    return np.vectorize(mpmath.mpf, otypes=[object])(array.astype(np.float64))


def exact_results(case):
    """Return the exact output and the exact gradient of the first array."""
    with mpmath.workdps(DIGITS):
        arrays, d_output = rounded(case)
        first, *others = map(to_exact, arrays)
        weights = to_exact(d_output)
        gradient = np.empty(first.shape, object)
        largest = abs(first).max()
        for place in np.ndindex(first.shape):
            h = STEP * (largest if largest < 1 else 1)
            nudge = np.zeros(first.shape, object)
            nudge[place] = h
            up, down = case.exact(first + nudge, *others), case.exact(first - nudge, *others)
            gradient[place] = np.sum(weights * (up - down)) / (2 * h)
        return np.asarray(case.exact(first, *others)), gradient


def error(found, exact, each):
    """Return the largest error divided by the largest entry, or with `each`, the largest relative error."""
    with mpmath.workdps(DIGITS):
        if not np.isfinite(found).all():
            return float("inf")
        scale = np.abs(exact) if each else np.max(np.abs(exact))
        return float(np.max(np.abs(to_exact(found) - exact) / scale))


def npformer_errors(case):
    """Return the errors of npformer's output and gradient."""
    arrays, d_output = rounded(case)
    found = case.npformer(*arrays, d_output=d_output)
    return [error(np.asarray(a), b, case.each) for a, b in zip(found, exact_results(case), strict=True)]


# --- the table on the guide page ----------------------------------------------------------------------

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "notebooks" / "guide" / "how_right_how_fast.md"
START, END = "<!-- hard inputs: written by tests/data/make_hard_inputs.py -->", "<!-- end of hard inputs -->"
HEAD = (
    "| operation | input | output: npformer | output: PyTorch | gradient: npformer | gradient: PyTorch |",
    "|---|---|---|---|---|---|",
)


def table_of(rows):
    """Return the table of the page. The smaller of two errors is bold if it is smaller by a factor of 10."""
    lines = list(HEAD)
    for row in rows:
        cells = [f"{row['operation']}, {row['dtype']}", row["input"]]
        for ours, theirs in zip(row["npformer"], row["PyTorch"], strict=True):
            cells += [format_error(ours, theirs), format_error(theirs, ours)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def format_error(value, other):
    text = "not finite" if value == float("inf") else "0" if value == 0 else f"{value:.0e}"
    is_much_smaller = 10 * max(value, 1e-16) < other
    return f"**{text}**" if is_much_smaller else text


def table_on_page():
    text = PAGE.read_text(encoding="utf-8")
    return text.partition(START)[2].partition(END)[0].strip()


def write_table(rows):
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(START)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{START}\n{table_of(rows)}\n{END}{after}", encoding="utf-8")
