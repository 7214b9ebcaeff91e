"""The encoder block on a GPU: CuPy's time over NumPy's on this machine's CPU.

    uv run --extra cuda12 python tests/benchmarks/gpu.py             (or cuda13)
    … tests/benchmarks/gpu.py --write                    and the figures go into figures/data/gpu.json

Wall clock. A variant is warmed up, then called again and again for some time, and the device is idle at both
readings of the clock. The variants of a case take turns, round after round; every figure is a median over
the rounds. NumPy uses the threads that it would use for you; CuPy has no TF32. Before anything is timed, the
two must agree on the numbers. Without a GPU nothing is measured and the exit status is 1.

figures/data/gpu.json, which nobody writes but --write:

    machine     gpu, cpu, cores, python, numpy, cupy
    block       the encoder block forward + backward; a list of
                {size ("base" or "long"), B, T, d_model, d_ff, n_heads, dtype ("float32" or "float64"),
                 seconds: {cupy, numpy}, ratio: {numpy}}, CuPy's time divided by NumPy's
    growth      the same without size, for B = 1 and T = 8, 16, … 2048
"""

import argparse
import functools
import json
import os
import platform
import statistics
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np

import npformer as npf
from npformer.backend import _why_no_cupy

RESULTS = Path(__file__).resolve().parents[2] / "figures" / "data" / "gpu.json"
CONFIG = npf.TransformerConfig(dropout=0.0, attention_bias=True)  # the paper's base model
CASES = [("block", {"size": "base"}, 8, 128), ("block", {"size": "long"}, 1, 1024)]  # part, its name, B, T
CASES += [("growth", {}, 1, 2**k) for k in range(3, 12)]
TOLERANCE = {"float32": 1e-2, "float64": 1e-9}


# Timing


def seconds_per_call(run, synchronise, seconds):
    """The time of one call, from a run of calls that lasts about so many seconds; the device ends idle.

    A GPU works on after a call returns, hence the waiting at both ends.
    """
    run()  # kernels are compiled and memory is taken at the first call
    calls = 1
    for _ in range(2):  # first one call, which tells how many there is time for
        synchronise()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        synchronise()
        each = (time.perf_counter() - start) / calls
        calls = max(1, round(seconds / max(each, 1e-6)))
    return each


# What is timed


def forward_and_backward(x, dy, params):
    y, cache = npf.encoder_block_forward(x, params, CONFIG)
    return y, npf.encoder_block_backward(dy, cache)


def length(tree):
    return sum(float((leaf * leaf).sum()) for _, leaf in npf.leaves(tree)) ** 0.5


def measured(B, T, dtype, options, synchronise):
    """One entry of `block` or `growth`; what does not give NumPy's numbers is not timed.

    All arrays count as one, by their length as a vector: where a ReLU's input is zero but for rounding, two
    right answers differ in one token's share of the gradient, and a wrong answer differs everywhere.
    """
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, B, T, CONFIG.d_model)).astype(dtype)
    here = x, dy, npf.init_encoder_block(CONFIG, rng, dtype=dtype)
    there = npf.to_backend(here, "cupy")
    found, expected = npf.to_numpy(forward_and_backward(*there)), forward_and_backward(*here)
    error = length(npf.tree_map(np.subtract, found, expected)) / length(expected)
    if not error <= TOLERANCE[dtype]:
        raise SystemExit(f"CuPy is off by {error:.1e} in {dtype}: nothing worth timing")

    times = {"cupy": [], "numpy": []}
    for _ in range(options.rounds):
        for name, arguments, wait in (("cupy", there, synchronise), ("numpy", here, lambda: None)):
            run = functools.partial(forward_and_backward, *arguments)
            times[name].append(seconds_per_call(run, wait, options.seconds))
    ratios = [ours / its for ours, its in zip(times["cupy"], times["numpy"], strict=True)]
    sizes = {name: getattr(CONFIG, name) for name in ("d_model", "d_ff", "n_heads")}
    seconds = {name: statistics.median(found) for name, found in times.items()}
    ratio = {"numpy": statistics.median(ratios)}
    return {"B": B, "T": T, **sizes, "dtype": dtype, "seconds": seconds, "ratio": ratio}


# Where it ran


def machine(cupy):
    """The names and versions of what the figures depend on most."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    cpus = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "gpu": cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode(),
        "cpu": cpus[0] if cpus else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "cupy": cupy.__version__,
    }


def main():
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=5, help="how often the variants take turns (5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each variant and round (1)")
    parser.add_argument("--write", action="store_true", help="put the figures into figures/data/gpu.json")
    options = parser.parse_args()
    reason = _why_no_cupy()
    if reason:
        hint = "; nvidia-smi tells whether the driver sees a GPU" if "no GPU answers" in reason else ""
        return f"gpu.py: nothing was measured. {reason}{hint}"
    os.environ["CUPY_TF32"] = "0"
    cupy = sys.modules["cupy"]
    figures = {"machine": machine(cupy), "block": [], "growth": []}
    print("\n".join(f"{name}: {value}" for name, value in figures["machine"].items()), flush=True)
    for (part, named, B, T), dtype in product(CASES, TOLERANCE):
        entry = named | measured(B, T, dtype, options, cupy.cuda.Device().synchronize)
        figures[part].append(entry)
        ms, ratio = 1e3 * entry["seconds"]["cupy"], entry["ratio"]["numpy"]
        print(f"{part}: B {B}, T {T:4}, {dtype} {ms:8.3f} ms, {ratio:.3g} of numpy", flush=True)
    if options.write:
        RESULTS.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
        print(f"written: {RESULTS.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
