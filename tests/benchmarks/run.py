"""Ratios of npformer's time to bare matrix products and to PyTorch, each measured in one run.

    uv run python tests/benchmarks/run.py                            the gates, without PyTorch
    uv run python tests/benchmarks/run.py --torch PYTHON             PYTHON is an interpreter that has torch
    uv run python tests/benchmarks/run.py --torch PYTHON --write     the table goes into its page

One thread, CPU time. Every variant runs in a fresh process (this script with --one), the variants of a case
in turn, round after round; a ratio is the median over the rounds. OPENBLAS_CORETYPE is unset, so OpenBLAS
chooses the kernel that it would choose for you.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "notebooks" / "guide" / "how_right_how_fast.md"
START, END = "<!-- speed: written by tests/benchmarks/run.py -->", "<!-- end of speed -->"
HEAD = (
    "| float32 unless said, one thread | CPU time | ÷ plain NumPy, or bare products | ÷ PyTorch |",
    "|---|---|---|---|",
)
# name, case, whether there is something plainer to be held against, gates for that ratio and for PyTorch's
CASES = [
    *[
        (f"position table {n:,} × 512, {dtype}", f"table:{n}:{dtype}", True, gate, 1.00)
        for n, gate in ((512, 0.60), (8192, 0.30), (131072, 0.30))
        for dtype in ("float32", "float64")
    ],
    ("encoder block forward + backward, base", "block:base", True, 1.16, None),
    ("encoder block forward + backward, long", "block:long", True, 1.40, None),
    ("encoder block forward + backward, tiny", "block:tiny", False, None, 0.35),
]
# B, T, d_model, d_ff, n_heads
SIZES = {"tiny": (2, 3, 4, 16, 2), "base": (8, 128, 512, 2048, 8), "long": (1, 1024, 512, 2048, 8)}


# What is timed: a case's function for a variant, "npformer", "plain" or "torch".


def table(variant, n, dtype, d=512):
    n = int(n)
    if variant == "npformer":
        from npformer import positional_encoding

        return lambda: positional_encoding(n, d, dtype=np.dtype(dtype))
    if variant == "torch":
        import torch as xp
    else:
        xp = np
    kind = getattr(xp, dtype)
    # in PyTorch of the table's own type, as most tutorials have them: in float32 up to 5e-4 off
    of_angles = np.float64 if xp is np else kind

    def usual():  # all angles, then their sines, then their cosines
        turn = 10000.0 ** (xp.arange(0, d, 2, dtype=of_angles) / d)
        angles = xp.arange(n, dtype=of_angles)[:, None] / turn
        table = xp.empty((n, d), dtype=kind)
        table[:, 0::2], table[:, 1::2] = xp.sin(angles), xp.cos(angles)
        return table

    return usual


def block(variant, size):
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
    square = [((*heads, T, k), (*heads, k, T))] * 2  # scores, and the gradient of the weights
    tall = [((*heads, T, T), (*heads, T, k))] * 4  # weights v, and the gradients of v, q and k
    return products(linear + feed + square + tall)


def products(shapes):
    """The bare matrix products, each into its own array made beforehand."""
    rng = np.random.default_rng(2)
    pairs = [tuple(rng.normal(size=shape).astype(np.float32) for shape in pair) for pair in shapes]
    outs = [np.matmul(a, b) for a, b in pairs]
    return lambda: [np.matmul(a, b, out=out) for (a, b), out in zip(pairs, outs, strict=True)]


def one(case, variant, seconds):
    """The median CPU seconds of one call: of all its threads; other programs' load does not count."""
    name, *options = case.split(":")
    run = {"table": table, "block": block}[name](variant, *options)
    for _ in range(3):
        run()
    times, stop = [], time.perf_counter() + seconds
    while time.perf_counter() < stop or len(times) < 5:
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return statistics.median(times)


# The rounds and the table.


def time_of(python, case, variant, seconds):
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    environment = os.environ | threads | {"PYTHONPATH": str(HERE.parents[1])}
    environment.pop("OPENBLAS_CORETYPE", None)
    command = [python, __file__, "--one", case, variant, "--seconds", str(seconds)]
    return float(subprocess.check_output(command, text=True, env=environment))


def measure(case, plainer, options):
    """The medians over the rounds of npformer's time, and of its ratios to what is plainer and to PyTorch."""
    others = {"plain": sys.executable if plainer else None, "torch": options.torch}
    ours, ratios = [], {variant: [] for variant in others}
    for _ in range(options.rounds):
        ours.append(time_of(sys.executable, case, "npformer", options.seconds))
        for variant, python in others.items():
            if python:
                ratios[variant].append(ours[-1] / time_of(python, case, variant, options.seconds))
    return [statistics.median(values) if values else None for values in (ours, *ratios.values())]


def cell(ratio, gate):
    if ratio is None:
        return "–"
    verdict = "" if gate is None else (" ✓" if ratio <= gate else " ✗") + f" (at most {gate:.2f})"
    return f"{ratio:.2f}{verdict}"


def write(rows):
    """Put the measured rows into the page; those of the other cases stay as they are."""
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    table, after = rest.split(END)
    old = {line.split(" | ")[0].removeprefix("| "): line for line in table.splitlines() if " ms " in line}
    known = old | rows
    lines = [*HEAD, *(known[name] for name, *_ in CASES if name in known)]
    PAGE.write_text(before + START + "\n" + "\n".join(lines) + "\n" + END + after, encoding="utf-8")


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch 2.13")
    parser.add_argument("--only", default="", metavar="TEXT", help="the cases whose name has this in it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each variant and round")
    parser.add_argument("--write", action="store_true", help="put the table into its page of the site")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "VARIANT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(one(*options.one, options.seconds))
        return
    print("\n".join(HEAD))
    rows = {}
    for name, case, plainer, gate, torch_gate in CASES:
        if options.only in name:
            ours, to_plain, to_torch = measure(case, plainer, options)
            ratios = f"{cell(to_plain, gate)} | {cell(to_torch, torch_gate)}"
            rows[name] = f"| {name} | {1e3 * ours:.3g} ms | {ratios} |"
            print(rows[name], flush=True)
    if options.write:
        write(rows)


if __name__ == "__main__":
    main()
