"""Check the backward passes of PyTorch, and planted mistakes, in low precision.

    PYTHON tests/benchmarks/low_precision.py
    PYTHON tests/benchmarks/low_precision.py --seeds 3 --write     replace the tables of the guide page

PYTHON is an interpreter that has torch, ml_dtypes and pytest, for example
`uv run --isolated --with torch --with ml_dtypes python`.

The first table has one row per operation of PyTorch: the largest systematic error of its gradients on the
CPU, and whether they are within the default tolerances of torch.testing. The second table has one row per
planted mistake: its systematic error, and whether the same tolerances let it pass. One seed takes about 15
minutes on one core.
"""

import argparse
import re
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from test_low_precision import (  # noqa: E402
    gelu,
    gelu_kernel,
    layer_norm,
    layer_norm_kernel,
    linear_kernel,
    softmax,
    softmax_kernel,
)

import npformer as npf  # noqa: E402

PAGE = ROOT / "notebooks" / "guide" / "low_precision.md"
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
TOLERANCES = {"bfloat16": (1.6e-2, 1e-5), "float16": (1e-3, 1e-5), "float32": (1.3e-6, 1e-5)}
torch.set_num_threads(1)
LAYER = torch.nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True)


def attend(q, k, v):
    """Compute scaled dot-product attention of one head."""
    return F.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None])[0, 0]


def run_layer(x):
    """Compute one encoder layer in the precision of x."""
    return LAYER.to(x.dtype)(x[None])[0]


def cross_entropy(logits):
    """Compute the mean cross-entropy for the targets 0, 1, 2, ..."""
    return F.cross_entropy(logits, torch.arange(len(logits)) % logits.shape[1])[None]


def layer_norm_of(x, gamma, beta):
    return F.layer_norm(x, x.shape[-1:], gamma, beta)


def swiglu(x, W, V, W_2):
    return (F.silu(x @ W) * (x @ V)) @ W_2


def draw_norm(normal, offset=0.0):
    return [offset + normal(24, 32), 1 + 0.3 * normal(32), 0.3 * normal(32)]


# {operation: (a function of tensors, a function that draws its arguments)}
OPERATIONS = {
    "layer norm": (layer_norm_of, draw_norm),
    "layer norm, mean 30": (layer_norm_of, lambda normal: draw_norm(normal, 30.0)),
    "RMS norm": (
        lambda x, gamma: F.rms_norm(x, x.shape[-1:], gamma, 1e-6),
        lambda normal: draw_norm(normal)[:2],
    ),
    "softmax": (lambda x: F.softmax(x, -1), lambda normal: [2 * normal(24, 32)]),
    "softmax, scores up to 60": (lambda x: F.softmax(x, -1), lambda normal: [20 * normal(24, 32)]),
    "log softmax": (lambda x: F.log_softmax(x, -1), lambda normal: [2 * normal(24, 32)]),
    "GELU": (F.gelu, lambda normal: [2 * normal(24, 32)]),
    "GELU, tanh": (lambda x: F.gelu(x, approximate="tanh"), lambda normal: [2 * normal(24, 32)]),
    "SiLU": (F.silu, lambda normal: [2 * normal(24, 32)]),
    "attention, 24 tokens": (attend, lambda normal: [normal(24, 16) for _ in range(3)]),
    "attention, 300 tokens": (attend, lambda normal: [normal(300, 16) for _ in range(3)]),
    "attention from products": (
        lambda q, k, v: F.softmax(q @ k.T / 4, -1) @ v,
        lambda normal: [normal(24, 16) for _ in range(3)],
    ),
    "linear, (64, 128) × (128, 32)": (
        F.linear,
        lambda normal: [normal(64, 128), normal(32, 128) / 11, normal(32)],
    ),
    "FFN with ReLU": (
        lambda x, W_1, b_1, W_2: F.relu(x @ W_1 + b_1) @ W_2,
        lambda normal: [normal(24, 16), normal(16, 64) / 4, 0.3 * normal(64), normal(64, 16) / 8],
    ),
    "gated FFN (SwiGLU)": (
        swiglu,
        lambda normal: [normal(24, 16), normal(16, 40) / 4, normal(16, 40) / 4, normal(40, 16) / 6],
    ),
    "cross-entropy": (cross_entropy, lambda normal: [2 * normal(24, 32)]),
    "convolution": (
        lambda x, w: F.conv1d(x[None], w)[0],
        lambda normal: [normal(8, 40), normal(6, 8, 3) / 5],
    ),
    "batch norm": (
        lambda x, gamma, beta: F.batch_norm(x, None, None, gamma, beta, True),
        lambda normal: [normal(48, 12), 1 + 0.3 * normal(12), normal(12)],
    ),
    "encoder layer": (run_layer, lambda normal: [normal(12, 16)]),
}


def make_pair(function):
    """Return forward and backward of a PyTorch function."""

    def forward(*args):
        with torch.enable_grad():
            leaves = [x.detach().requires_grad_() for x in args]
            y = function(*leaves)
        return y.detach(), (y, leaves)

    def backward(dy, cache):
        y, args = cache
        return tuple(torch.autograd.grad(y, args, dy, retain_graph=True))

    return forward, backward


def is_within_tolerances(function, args, dtype, seed):
    """Return whether all gradients are within torch.testing's tolerances of the gradients in float64."""
    forward, backward = make_pair(function)
    gradients = []
    for precision in (DTYPES[dtype], torch.float64):
        y, cache = forward(*[x.to(DTYPES[dtype]).to(precision) for x in args])
        dy = torch.tensor(np.random.default_rng(seed).standard_normal(y.shape)).to(DTYPES[dtype])
        gradients.append([g.double().numpy() for g in backward(dy.to(precision), cache)])
    relative, absolute = TOLERANCES[dtype]
    return all(np.allclose(g, true, rtol=relative, atol=absolute) for g, true in zip(*gradients, strict=True))


def check_operation(name, dtype, seed):
    """Return the largest systematic error, the verdict, and whether the default tolerances accept it."""
    function, draw = OPERATIONS[name]
    normal = np.random.default_rng(seed).standard_normal
    args = [torch.tensor(x) for x in draw(lambda *shape: normal(shape))]
    if name == "encoder layer":  # the same rounded weights in both precisions
        with torch.no_grad():
            for parameter in LAYER.double().parameters():
                parameter.copy_(parameter.to(DTYPES[dtype]).double())
    report = npf.gradcheck(
        *make_pair(function),
        *[x.to(DTYPES[dtype]) for x in args],
        rng=np.random.default_rng(seed),
        reference=function,
    )
    worst = max(row.systematic for row in report.rows)
    return worst, bool(report), is_within_tolerances(function, args, dtype, seed)


def tabulate_operations(seeds):
    """Return the lines of the first table."""
    names = list(DTYPES)
    lines = [
        f"| PyTorch {torch.__version__.split('+')[0]}, CPU | {' | '.join(names)} |",
        "|---|---|---|---|",
    ]
    totals = {dtype: [0, 0, 0] for dtype in names}
    for name in OPERATIONS:
        cells = []
        for dtype in names:
            start = time.perf_counter()
            results = [check_operation(name, dtype, seed) for seed in range(seeds)]
            worst = max(result[0] for result in results)
            n_passed = sum(result[1] for result in results)
            n_within = sum(result[2] for result in results)
            print(name, dtype, results, f"{time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
            totals[dtype][0] += n_passed == seeds
            totals[dtype][1] += n_within == seeds
            tolerances = "within" if n_within == seeds else "outside"
            verdict = "" if n_passed == seeds else " **(not passed)**"
            cells.append(f"{worst:.1f}{verdict}, {tolerances}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    passed = [f"{totals[dtype][0]} pass, {totals[dtype][1]} within" for dtype in names]
    lines.append(f"| **of {len(OPERATIONS)}** | {' | '.join(passed)} |")
    return lines


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


# {mistake: (a function of the dtype and of whether to make the mistake, the reference, the arguments)}
MISTAKES = {
    "layer norm: eps = 1e-3 instead of 1e-5": (
        lambda dtype, wrong: layer_norm_kernel(dtype, "eps" if wrong else ""),
        layer_norm,
        (array(6, 8), 1 + 0.3 * array(8, seed=1), array(8, seed=2)),
    ),
    "layer norm: variance with n - 1": (
        lambda dtype, wrong: layer_norm_kernel(dtype, "n - 1" if wrong else ""),
        layer_norm,
        (array(6, 32), 1 + 0.3 * array(32, seed=1), array(32, seed=2)),
    ),
    "layer norm: the last row is lost in dγ": (
        lambda dtype, wrong: layer_norm_kernel(dtype, "last row" if wrong else ""),
        layer_norm,
        (array(6, 8), 1 + 0.3 * array(8, seed=1), array(8, seed=2)),
    ),
    "softmax: its sum is 1 % too large": (
        lambda dtype, wrong: softmax_kernel(dtype, 1.01 if wrong else 1.0),
        softmax,
        (2 * array(24, 32),),
    ),
    "GELU: derivative of the tanh approximation": (
        lambda dtype, wrong: gelu_kernel(dtype, wrong),
        gelu,
        (2 * array(24, 32),),
    ),
    "linear: dW is 2 % too small": (
        lambda dtype, wrong: linear_kernel(dtype, 0.98 if wrong else 1.0),
        np.matmul,
        (array(12, 16), array(16, 8, seed=1) / 4),
    ),
}


def check_mistake(name, dtype):
    """Return the largest systematic error of a mistake, and whether the default tolerances accept it."""
    import ml_dtypes

    numpy_dtype = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32}[dtype]
    make_kernel, reference, given = MISTAKES[name]
    args = [x.astype(numpy_dtype) for x in given]
    report = npf.gradcheck(*make_kernel(numpy_dtype, True), *args, reference=reference)
    worst = max(row.systematic for row in report.rows)
    gradients = []
    for is_wrong in (True, False):
        forward, backward = make_kernel(numpy_dtype, is_wrong)
        y, cache = forward(*args)
        found = backward(np.random.default_rng(1).standard_normal(y.shape).astype(numpy_dtype), cache)
        gradients.append(found if isinstance(found, tuple) else (found,))
    relative, absolute = TOLERANCES[dtype]
    is_accepted = all(
        np.allclose(wrong.astype(float), correct.astype(float), rtol=relative, atol=absolute)
        for wrong, correct in zip(*gradients, strict=True)
    )
    return worst, bool(report), is_accepted


def tabulate_mistakes():
    """Return the lines of the second table."""
    lines = [f"| planted mistake | {' | '.join(DTYPES)} |", "|---|---|---|---|"]
    for name in MISTAKES:
        cells = []
        for dtype in DTYPES:
            worst, passes, is_accepted = check_mistake(name, dtype)
            print(name, dtype, worst, passes, is_accepted, file=sys.stderr, flush=True)
            verdict = " **(passed)**" if passes else ""
            cells.append(f"{worst:.3g}{verdict}, {'within' if is_accepted else 'outside'}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def replace_table(text, lines):
    """Return the text with these lines instead of the table whose head begins with the same word."""
    first_words = lines[0].split()[1]
    pattern = rf"^\| {first_words}[^\n]*\n(?:\|[^\n]*\n)+"
    assert re.search(pattern, text, re.MULTILINE), first_words
    return re.sub(pattern, lambda _: "\n".join(lines) + "\n", text, flags=re.MULTILINE)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1, help="the number of seeds for PyTorch's operations")
    parser.add_argument("--write", action="store_true", help="replace the tables of the guide page")
    options = parser.parse_args()
    tables = [tabulate_mistakes(), tabulate_operations(options.seeds)]
    for table in tables:
        print("\n".join(table), "\n")
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        for table in tables:
            page = replace_table(page, table)
        PAGE.write_text(page, encoding="utf-8")
