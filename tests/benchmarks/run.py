"""Measure the time of npformer, of plain NumPy code and of PyTorch in one run.

    uv run python tests/benchmarks/run.py                            compare with plain NumPy only
    uv run python tests/benchmarks/run.py --torch PYTHON             PYTHON is an interpreter that has torch
    uv run python tests/benchmarks/run.py growth --write           write data for figures/make.py
    uv run python tests/benchmarks/run.py check --torch PYTHON --write

The script measures CPU time with one thread. Every variant runs in a new process (this script with --one).
The variants of a case (npformer, plain NumPy, PyTorch) take turns for several rounds, and every result is a
median over the rounds; only `check` takes the smallest time. OPENBLAS_CORETYPE is unset, so OpenBLAS chooses
its default kernel. These are the measurements, and the files that --write changes:

speed   The time of each case. It is also divided by the time of plain NumPy code (or of the matrix products
        alone, or of the forward pass without checks of its arguments), and by the time of PyTorch.
        --write changes the guide page how_right_how_fast.md.
growth  The time of an encoder's forward and backward pass as sentence length, hidden layer and depth grow.
        A prediction is printed next to each time. npformer.lessons.costs counts the multiplications of a
        forward pass, and the backward pass needs twice as many. The prediction assumes the speed of a
        512 × 512 × 512 matrix product, which is measured in the same run.
        --write changes figures/data/growth.json.
check   The time of gradcheck and of torch.autograd.gradcheck, with default settings, for the same five
        functions and float64 arrays. gradcheck also checks a model with seven million weights. PyTorch's
        check compares the whole Jacobian to 6 digits, with two forward calls per entry and one backward call
        per output. npformer compares the gradient for one random d_output to 8 digits, with six calls per
        entry. --write changes tests/data/gradcheck_cost.json.
"""

import argparse
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
import timeit
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "notebooks" / "guide" / "how_right_how_fast.md"
START, END = "<!-- speed: written by tests/benchmarks/run.py -->", "<!-- end of speed -->"
HEAD = (
    "| operation (float32 if no dtype is given) | CPU time | ÷ plain NumPy or products | ÷ PyTorch |",
    "|---|---|---|---|",
)
# (name, case, whether plain code exists, largest ratio to plain code, largest ratio to PyTorch)
CASES: list[tuple[str, str, bool, float | None, float | None]] = [
    (f"position table {n:,} × {d}, {dtype}", f"table:{n}:{d}:{dtype}", True, gate, 1.00)
    for n, d, gate in ((50, 8, 1.10), (512, 512, 0.60), (8192, 512, 0.30), (131072, 512, 0.30))
    for dtype in ("float32", "float64")
]
CASES += [
    ("encoder block forward + backward, base", "block:base", True, 1.16, None),
    ("encoder block forward + backward, long", "block:long", True, 1.40, None),
    ("encoder block forward + backward, tiny", "block:tiny", False, None, 0.35),
]
CASES += [
    ("Adam update, lesson 7", "adam", True, 1.50, None),
    ("forward pass with checks of its arguments, lesson 7", "transformer", True, 1.05, None),
]
# The sizes of the encoder block: B, T, d_model, d_ff, n_heads.
SIZES = {"tiny": (2, 3, 4, 16, 2), "base": (8, 128, 512, 2048, 8), "long": (1, 1024, 512, 2048, 8)}

SWEEPS = {
    "n": [32, 64, 128, 256, 512, 1024, 2048],
    "d_ff": [128, 256, 512, 1024, 2048, 4096],
    "n_layers": [1, 2, 4, 8, 12],
}
CHECKED = {  # for each gradient check, the number of entries to check, and the operation with its arguments
    "linear, 6 × 8 by 16": (192, "linear x W_1 b_1"),
    "softmax, 6 × 8": (48, "softmax x"),
    "layer norm, 6 × 8": (64, "layer_norm x gamma beta"),
    "feed-forward, 6 × 8 × 16": (328, "ffn x W_1 b_1 W_2 b_2"),
    "attention, 2 heads of 6 × 8": (288, "attention q k v"),
}

# Each of these functions makes the call whose time is measured. `variant` is "npformer", "plain" or "torch".


def table(variant, n, d, dtype):
    """Return a function that computes the position table."""
    n, d, xp = int(n), int(d), importlib.import_module("torch" if variant == "torch" else "numpy")
    kind = getattr(xp, dtype)
    # In PyTorch the angles have the dtype of the table, as in most tutorials. float32 angles cause errors of
    # up to 5e-4 in the table. NumPy computes the angles in float64.
    dtype_of_angles = None if xp is np else kind

    def compute():
        turn = 10000 ** (xp.arange(0, d, 2, dtype=dtype_of_angles) / d)
        angles = xp.arange(n, dtype=dtype_of_angles)[:, None] / turn
        table = xp.empty((n, d), dtype=kind)
        table[:, 0::2], table[:, 1::2] = xp.sin(angles), xp.cos(angles)

    if variant == "npformer":
        from npformer import positional_encoding

        return partial(positional_encoding, n, d, dtype=kind)
    return compute


def block(variant, size):
    """Return a function that runs the forward and backward pass of the block, or only its matrix products."""
    B, T, d, f, h = SIZES[size]
    x, dy = np.random.default_rng(0).normal(size=(2, B, T, d)).astype(np.float32)
    if variant == "npformer":
        import npformer as npf

        config = npf.TransformerConfig(d_model=d, d_ff=f, n_heads=h, attention_bias=True)
        params = npf.init_encoder_block(config, np.random.default_rng(1), dtype=np.float32)
        return lambda: npf.encoder_block_backward(dy, npf.encoder_block_forward(x, params, config)[1])
    if variant == "torch":
        import torch

        layer = torch.nn.TransformerEncoderLayer(d, h, f, dropout=0.0, batch_first=True)
        x, dy = torch.tensor(x, requires_grad=True), torch.tensor(dy)
        return lambda: torch.autograd.grad(layer(x), [x, *layer.parameters()], dy)
    N, k, heads = B * T, d // h, (B, h)
    linear = [((N, d), (d, d)), ((N, d), (d, d)), ((d, N), (N, d))] * 4
    feed = [((N, d), (d, f)), ((N, f), (f, d))] * 2 + [((f, N), (N, d)), ((d, N), (N, f))]
    square = [((*heads, T, k), (*heads, k, T))] * 2  # products for the scores and the gradient of weights
    tall = [((*heads, T, T), (*heads, T, k))] * 4  # products for weights @ v and the gradients of v, q, k
    return products(linear + feed + square + tall)


def small_transformer():
    """Return the arguments of a forward pass of lesson 7's model: 32 pairs of 8 tokens."""
    import npformer as npf

    config = npf.TransformerConfig(d_model=32, d_ff=128, n_heads=2, n_layers=1)
    rng = np.random.default_rng(0)
    source, target = rng.integers(0, 20, size=(2, 32, 8))
    return source, target, npf.init_transformer(20, config, rng, dtype=np.float32), config


def adam(variant):
    """Return a function that makes one Adam update, or computes algorithm 1 for a list of arrays."""
    import npformer as npf

    params = small_transformer()[2]
    grads = npf.tree_map(np.ones_like, params)
    state = npf.adam_init(params)
    if variant == "npformer":
        return lambda: npf.adam_update(params, grads, state, learning_rate=1e-3)
    arrays = [[array for _, array in npf.leaves(tree)] for tree in (params, grads, state.m, state.v)]
    return lambda: [adam_of_array(*of_leaf) for of_leaf in zip(*arrays, strict=True)]


def adam_of_array(p, g, m, v, beta_1=0.9, beta_2=0.98, eps=1e-9, learning_rate=1e-3):
    """Return the first update of an array by algorithm 1, in the order of its equations."""
    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * g**2
    m_hat = m / (1 - beta_1)
    v_hat = v / (1 - beta_2)
    return p - learning_rate * m_hat / (np.sqrt(v_hat) + eps), m, v


def transformer(variant):
    """Return a function that runs a forward pass, with or without the checks of its arguments.

    Both ignore NumPy's warnings.
    """
    import npformer as npf
    from npformer.transformer import transformer_forward

    forward = np.errstate(all="ignore")(transformer_forward)
    if variant == "npformer":
        forward = npf.transformer_forward
    arguments = small_transformer()
    return lambda: forward(*arguments)


def products(shapes):
    """Return a function that computes matrix products. It writes them into arrays that already exist."""
    rng = np.random.default_rng(2)
    pairs = [tuple(rng.normal(size=shape).astype(np.float32) for shape in pair) for pair in shapes]
    outs = [np.matmul(a, b) for a, b in pairs]
    return lambda: [np.matmul(a, b, out=out) for (a, b), out in zip(pairs, outs, strict=True)]


def growth(variant, n, d_ff, n_layers):
    """Return a function that runs an encoder, or the matrix product whose speed the prediction uses."""
    if variant == "plain":
        return products([((512, 512), (512, 512))])
    import npformer as npf

    config, rng = growing(d_ff, n_layers), np.random.default_rng(0)
    params = npf.init_encoder(config, rng, dtype=np.float32)
    x = rng.normal(size=(int(n), 256)).astype(np.float32)
    return lambda: npf.encoder_backward(x, npf.encoder_forward(x, params, config)[1])


def growing(d_ff, n_layers):
    """Return the config of an encoder for the growth measurement."""
    from npformer import TransformerConfig

    return TransformerConfig(d_model=256, d_ff=int(d_ff), n_heads=4, n_layers=int(n_layers))


def check(variant, what):
    """Return a function that checks a gradient and returns how often the check calls `forward`."""
    operation, *names = what.split()
    n, d, f = np.random.default_rng(0).standard_normal, 8, 16
    arrays = {"x": n((6, d)), "W_1": n((d, f)), "b_1": n(f), "W_2": n((f, d)), "b_2": n(d)}
    arrays |= {"gamma": n(d), "beta": n(d)} | dict(zip("qkv", n((3, 2, 6, d)), strict=True))
    args = [arrays[name] for name in names]
    if variant == "torch":
        import torch

        F, tensors = torch.nn.functional, [torch.tensor(array, requires_grad=True) for array in args]
        forward = {
            "linear": lambda x, W, b: F.linear(x, W.T, b),
            "softmax": lambda x: F.softmax(x, -1),
            "layer_norm": lambda x, gamma, beta: F.layer_norm(x, (d,), gamma, beta),
            "ffn": lambda x, W_1, b_1, W_2, b_2: F.linear(F.relu(F.linear(x, W_1.T, b_1)), W_2.T, b_2),
            "attention": lambda q, k, v: F.softmax(q @ k.mT / math.sqrt(d), -1) @ v,
        }[operation]
        return counting(forward, lambda f: torch.autograd.gradcheck(f, tensors))
    import npformer as npf

    kind = {"ffn": npf.FFNParams, "layer_norm": npf.LayerNormParams}.get(operation)
    args = [args[0], kind(*args[1:])] if kind else args
    forward, backward = (getattr(npf, f"{operation}_{way}") for way in ("forward", "backward"))
    return counting(forward, lambda f: npf.gradcheck(f, backward, *args))


def counting(forward, test):
    """Return a function that runs `test`, which must pass, and returns how often `test` called `forward`."""

    def run():
        calls = []

        def counted(*args):
            calls.append(args)
            return forward(*args)

        assert test(counted)
        return len(calls)

    return run


def large():
    """Measure the cost of one gradient check of a whole Transformer with three directions per array."""
    import npformer as npf

    config = npf.TransformerConfig(n_layers=1)
    params = npf.init_transformer(32, config, np.random.default_rng(0))
    args, reports = (np.array([[3, 1, 4, 1, 5]]), np.array([[2, 7, 1, 8]]), params, config), []

    def test(forward):
        reports.append(npf.gradcheck(forward, npf.transformer_backward, *args, directions=3))
        return reports[0]

    start, calls = time.process_time(), counting(npf.transformer_forward, test)()
    seconds, weights = round(time.process_time() - start), [array.size for _, array in npf.leaves(params)]
    return {"weights": sum(weights), "arrays": len(weights), "seconds": seconds, "calls": calls,
            "sampled": reports[0].sampled}  # fmt: skip


def one(case, variant, seconds):
    """Return the median CPU time of one call, and the integer that the call returns (or 0).

    The CPU time includes all threads.
    """
    name, *options = case.split(":")
    makers: dict[str, Any] = {
        "table": table,
        "block": block,
        "adam": adam,
        "transformer": transformer,
        "growth": growth,
        "check": check,
    }
    run = makers[name](variant, *options)
    shortest = min(timeit.repeat(run, number=1, repeat=3))
    repetitions = range(math.ceil(1e-3 / shortest))  # each measured time is at least a millisecond
    times, stop = [], time.perf_counter() + seconds
    while time.perf_counter() < stop or len(times) < 5:
        start = time.process_time()
        for _ in repetitions:
            returned = run()
        times.append((time.process_time() - start) / len(repetitions))
    return statistics.median(times), returned if isinstance(returned, int) else 0


# The rounds and the tables.


def measure_one(python, case, variant, options):
    """Return the result of `one` in a new process."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = os.environ | threads | {"PYTHONPATH": str(ROOT)}
    environment.pop("OPENBLAS_CORETYPE", None)
    command = [python, __file__, "--one", case, variant, "--seconds", str(options.seconds)]
    return json.loads(subprocess.check_output(command, text=True, env=environment))


def measure(case, variants, options):
    """Return {variant: (times of all rounds, integer that a call returns)} for {variant: its Python}."""
    found = {variant: [] for variant in variants}
    for _ in range(options.rounds):
        for variant, python in variants.items():
            found[variant].append(measure_one(python, case, variant, options))
    return {variant: ([seconds for seconds, _ in rows], rows[0][1]) for variant, rows in found.items()}


def speed(options):
    """Measure the cases. Return the path of the guide page, and its text with the new rows."""
    print("\n".join(HEAD))
    rows = {}
    for name, case, plainer, *gates in CASES:
        if options.only not in name:
            continue
        other_variants = {"plain": sys.executable if plainer else None, "torch": options.torch}
        variants = {"npformer": sys.executable} | {
            name: python for name, python in other_variants.items() if python
        }
        found = measure(case, variants, options)
        seconds, _ = found["npformer"]
        ratios = [
            statistics.median(np.divide(seconds, found[variant][0])) if variant in found else None
            for variant in other_variants
        ]
        cells = " | ".join(map(cell, ratios, gates))
        rows[name] = f"| {name} | {1e3 * statistics.median(seconds):.3g} ms | {cells} |"
        print(rows[name], flush=True)
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    table, after = rest.split(END)
    old = {line.split(" | ")[0].removeprefix("| "): line for line in table.splitlines() if " ms " in line}
    known = old | rows
    lines = [*HEAD, *(known[name] for name, *_ in CASES if name in known)]
    return PAGE, before + START + "\n" + "\n".join(lines) + "\n" + END + after


def cell(ratio, gate):
    """Return the table cell of a ratio, with the largest allowed ratio if there is one."""
    if ratio is None:
        return "–"
    if gate is None:
        return f"{ratio:.2f}"
    sign = "✓" if ratio <= gate else "✗"
    return f"{ratio:.2f} {sign} (at most {gate:.2f})"


def grown(options):
    """Measure the growth. Return the path of the data file, and its new text."""
    from npformer import encoder_block_multiplications

    result, both = {}, dict.fromkeys(("npformer", "plain"), sys.executable)
    for argument, values in SWEEPS.items():
        curve = result[argument] = {"value": values, "measured_s": [], "predicted_s": []}
        for value in values:
            n, d_ff, n_layers = ({"n": 128, "d_ff": 1024, "n_layers": 1} | {argument: value}).values()
            found = measure(f"growth:{n}:{d_ff}:{n_layers}", both, options)
            measured, product = (statistics.median(times) for times, _ in found.values())
            count = 3 * n_layers * encoder_block_multiplications(n, growing(d_ff, n_layers)).total
            predicted = count * product / 512**3
            for name, seconds in (("measured_s", measured), ("predicted_s", predicted)):
                curve[name].append(float(f"{seconds:.4g}"))
            print(f"{argument} {value}: {1e3 * measured:.2f} ms, {1e3 * predicted:.2f} predicted", flush=True)
    return ROOT / "figures" / "data" / "growth.json", json.dumps(result, indent=1) + "\n"


def checked(options):
    """Measure the gradient checks. Return the path of the data file, and its new text."""
    rows = []
    for name, (entries, what) in CHECKED.items():
        found = measure(f"check:{what}", {"npformer": sys.executable, "torch": options.torch}, options)
        costs = [x for times, calls in found.values() for x in (round(1e3 * min(times), 1), calls)]
        rows.append([name, entries, *costs])
        print(*rows[-1], sep=" · ", flush=True)
    cost = {"large": large(), "five": rows}
    print(cost["large"])
    text = json.dumps(cost, indent=1, ensure_ascii=False) + "\n"
    return ROOT / "tests" / "data" / "gradcheck_cost.json", text


def main():
    """Run the measurement `speed`, `growth` or `check`."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("what", nargs="?", choices=("speed", "growth", "check"), default="speed")
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch 2.13")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="of speed, the cases whose name has this in it"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each variant and round")
    parser.add_argument("--write", action="store_true", help="put what was measured into its place")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "VARIANT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        case, variant = options.one
        print(json.dumps(one(case, variant, options.seconds)))
        return
    file, text = {"speed": speed, "growth": grown, "check": checked}[options.what](options)
    if options.write:
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
