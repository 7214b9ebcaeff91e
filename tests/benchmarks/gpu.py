"""Measure the time of the encoder block with CuPy on a GPU, and with NumPy on the same machine's CPU.

    uv run --extra cuda12 python tests/benchmarks/gpu.py             (or cuda13)
    … tests/benchmarks/gpu.py --write                    also writes the JSON file and the guide's table

The script measures wall-clock time. It reads the clock only while the GPU is idle. After a first call to warm
up, CuPy and NumPy take turns for several rounds, and every result is a median over the rounds. NumPy uses its
default number of threads. CuPy does not use TF32. Before each measurement, the results of CuPy and NumPy must
agree. Without a GPU, the script measures nothing and exits with 1.

Only --write writes files: the table in notebooks/guide/how_right_how_fast.md, and figures/data/gpu.json:

    machine     gpu, cpu, cores, python, numpy, cupy, and the date of the measurement
    operation   the time of one addition of two arrays of 8 float32 numbers: {seconds}. The kernel has almost
                nothing to compute, so this is the cost of a launch from Python
    transfer    the time to copy an array of float32 from the host to the device and back; a list of
                {bytes, seconds: {to_device, to_host}}
    product     the time of a product of two n × n matrices on the device; a list of {n, dtype, seconds}
    block       the forward and backward pass of the encoder block; a list of
                {size ("base" or "long"), B, T, d_model, d_ff, n_heads, dtype ("float32" or "float64"),
                 seconds: {cupy, numpy}, ratio: {numpy}}, CuPy's time divided by NumPy's
    growth      a list of the same entries without size, for B = 1 and T = 8, 16, … 2048
"""

import argparse
import datetime
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

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "figures" / "data" / "gpu.json"
PAGE = ROOT / "notebooks" / "guide" / "how_right_how_fast.md"
START, END = "<!-- gpu: written by tests/benchmarks/gpu.py -->\n", "<!-- end of gpu -->"
LENGTHS_IN_TABLE = (8, 32, 128, 512, 2048)
CONFIG = npf.TransformerConfig(dropout=0.0, attention_bias=True)  # the sizes of the paper's base model
# Each case: the part of gpu.json that contains the result, the size to write into the entry, B, T.
CASES = [("block", {"size": "base"}, 8, 128), ("block", {"size": "long"}, 1, 1024)]
CASES += [("growth", {}, 1, 2**k) for k in range(3, 12)]
TRANSFERS = (1_000, 100_000, 10_000_000, 1_000_000_000)  # bytes
PRODUCTS = (16, 64, 128, 512, 2048, 8192)
TOLERANCE = {"float32": 1e-2, "float64": 1e-9}


# Timing


def seconds_per_call(run, synchronise, seconds):
    """Return the mean time of one call, measured with calls that take about `seconds` in total.

    A call returns before the GPU has finished its work. So the function waits for the GPU before each reading
    of the clock.
    """
    run()  # The first call compiles kernels and allocates memory.
    calls = 1
    for _ in range(2):  # The first pass times one call. It determines the number of calls in the second pass.
        synchronise()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        synchronise()
        seconds_of_one = (time.perf_counter() - start) / calls
        calls = max(1, round(seconds / max(seconds_of_one, 1e-6)))
    return seconds_of_one


# The calls whose time is measured


def forward_and_backward(x, dy, params):
    """Return the output of the encoder block and its gradients."""
    y, cache = npf.encoder_block_forward(x, params, CONFIG)
    return y, npf.encoder_block_backward(dy, cache)


def length(tree):
    """Return the Euclidean norm of the vector that contains all entries of all arrays of a tree."""
    return sum(float((leaf * leaf).sum()) for _, leaf in npf.leaves(tree)) ** 0.5


def measured(B, T, dtype, options, synchronise):
    """Return one entry of `block` or `growth`, after checking that CuPy and NumPy give the same numbers.

    The check divides the norm of all differences by the norm of NumPy's results, and does not compare single
    entries. If the input of a ReLU is almost zero, rounding decides its sign. Then two correct results can
    differ in the gradient of one token. A wrong result differs everywhere.
    """
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, B, T, CONFIG.d_model)).astype(dtype)
    on_host = x, dy, npf.init_encoder_block(CONFIG, rng, dtype=dtype)
    on_device = npf.to_backend(on_host, "cupy")
    found = npf.to_numpy(forward_and_backward(*on_device))
    expected = forward_and_backward(*on_host)
    error = length(npf.tree_map(np.subtract, found, expected)) / length(expected)
    if not error <= TOLERANCE[dtype]:
        raise SystemExit(f"CuPy is off by {error:.1e} in {dtype}: nothing worth timing")

    times = {"cupy": [], "numpy": []}
    for _ in range(options.rounds):
        for name, arguments, wait in (("cupy", on_device, synchronise), ("numpy", on_host, lambda: None)):
            run = functools.partial(forward_and_backward, *arguments)
            times[name].append(seconds_per_call(run, wait, options.seconds))
    ratios = [cupy / numpy for cupy, numpy in zip(times["cupy"], times["numpy"], strict=True)]
    sizes = {name: getattr(CONFIG, name) for name in ("d_model", "d_ff", "n_heads")}
    seconds = {name: statistics.median(rounds) for name, rounds in times.items()}
    ratio = {"numpy": statistics.median(ratios)}
    return {"B": B, "T": T, **sizes, "dtype": dtype, "seconds": seconds, "ratio": ratio}


def measure_operation(cupy, options):
    """Return the entry `operation`: the median time of one addition of two small arrays."""
    x = cupy.ones(8, dtype=np.float32)
    run = functools.partial(cupy.add, x, x)
    synchronise = cupy.cuda.Device().synchronize
    rounds = [seconds_per_call(run, synchronise, options.seconds) for _ in range(options.rounds)]
    return {"seconds": statistics.median(rounds)}


def measure_transfer(n_bytes, cupy, options):
    """Return one entry of `transfer`. The copies use npf.to_backend and npf.to_numpy."""
    on_host = np.ones(n_bytes // 4, dtype=np.float32)
    on_device = npf.to_backend(on_host, "cupy")
    copies = {
        "to_device": functools.partial(npf.to_backend, on_host, "cupy"),
        "to_host": functools.partial(npf.to_numpy, on_device),
    }
    synchronise = cupy.cuda.Device().synchronize
    seconds = {}
    for name, copy in copies.items():
        rounds = [seconds_per_call(copy, synchronise, options.seconds / 4) for _ in range(options.rounds)]
        seconds[name] = statistics.median(rounds)
    return {"bytes": n_bytes, "seconds": seconds}


def measure_product(n, dtype, cupy, options):
    """Return one entry of `product`, after checking one row of the product on the host."""
    a, b = np.random.default_rng(0).standard_normal((2, n, n)).astype(dtype)
    a_device, b_device = npf.to_backend((a, b), "cupy")
    row = npf.to_numpy(a_device @ b_device)[0]
    expected = a[0].astype(np.float64) @ b.astype(np.float64)
    error = np.abs(row - expected).max() / np.abs(expected).max()
    if not error <= TOLERANCE[dtype]:
        raise SystemExit(f"A product of CuPy is off by {error:.1e} in {dtype}: nothing worth timing")
    run = functools.partial(cupy.matmul, a_device, b_device)
    synchronise = cupy.cuda.Device().synchronize
    rounds = [seconds_per_call(run, synchronise, options.seconds / 4) for _ in range(options.rounds)]
    return {"n": n, "dtype": dtype, "seconds": statistics.median(rounds)}


# The description of the machine


def machine(cupy):
    """Return the hardware and the versions that influence the measured times most."""
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
        "date": datetime.date.today().isoformat(),
    }


def make_table(figures):
    """Return the Markdown table of the guide: the times of the block, in milliseconds, for some lengths."""
    lines = [
        "| tokens | CuPy, float32 | NumPy, float32 | CuPy, float64 | NumPy, float64 |",
        "|---|---|---|---|---|",
    ]
    seconds = {(run["T"], run["dtype"]): run["seconds"] for run in figures["growth"]}
    for T in LENGTHS_IN_TABLE:
        cells = [f"{T:,}"]
        for dtype in TOLERANCE:
            cells += [f"{1e3 * seconds[T, dtype][library]:.3g} ms" for library in ("cupy", "numpy")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def write_results(figures):
    """Write the results into gpu.json, and the table into the guide."""
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(before + START + make_table(figures) + END + after, encoding="utf-8")
    print(f"written: {RESULTS.name}, {PAGE.name}")


def main():
    """Measure all cases. Return 0, or an error message if there is no GPU."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--rounds", type=int, default=5, help="how often the variants take turns (5)")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each variant and round (1)")
    parser.add_argument("--write", action="store_true", help="put the figures into figures/data/gpu.json")
    options = parser.parse_args()
    reason = _why_no_cupy()
    if reason:
        return f"gpu.py: nothing was measured. {reason}; nvidia-smi shows whether the driver sees a GPU"
    os.environ["CUPY_TF32"] = "0"
    cupy = sys.modules["cupy"]
    figures = {"machine": machine(cupy), "operation": {}}
    figures |= {part: [] for part in ("transfer", "product", "block", "growth")}
    print("\n".join(f"{name}: {value}" for name, value in figures["machine"].items()), flush=True)
    figures["operation"] = measure_operation(cupy, options)
    print(f"operation: {1e6 * figures['operation']['seconds']:.2f} µs", flush=True)
    for n_bytes in TRANSFERS:
        entry = measure_transfer(n_bytes, cupy, options)
        figures["transfer"].append(entry)
        there, back = (1e3 * entry["seconds"][name] for name in ("to_device", "to_host"))
        print(f"transfer: {n_bytes:13,} bytes, {there:.3f} ms, back {back:.3f} ms", flush=True)
    for n, dtype in product(PRODUCTS, TOLERANCE):
        entry = measure_product(n, dtype, cupy, options)
        figures["product"].append(entry)
        ms, teraflops = 1e3 * entry["seconds"], 2 * n**3 / entry["seconds"] / 1e12
        print(f"product: n {n:5}, {dtype} {ms:8.3f} ms, {teraflops:.1f} TFLOP/s", flush=True)
    for (part, named, B, T), dtype in product(CASES, TOLERANCE):
        entry = named | measured(B, T, dtype, options, cupy.cuda.Device().synchronize)
        figures[part].append(entry)
        ms, ratio = 1e3 * entry["seconds"]["cupy"], entry["ratio"]["numpy"]
        print(f"{part}: B {B}, T {T:4}, {dtype} {ms:8.3f} ms, {ratio:.3g} of numpy", flush=True)
    if options.write:
        write_results(figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
