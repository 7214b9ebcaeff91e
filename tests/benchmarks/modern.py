"""What the modern parts cost: attention in tiles against the whole table, a token of stories15M.

    uv run python tests/benchmarks/modern.py

One thread; each ratio is of two best times of the same run, taken in turns. A token of the story-teller, in
float32 and with its keys kept, against the bare products x @ W of its own weights: only where
`npformer fetch stories` has put it.
"""

import os
import time
import tracemalloc

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np  # noqa: E402  after the settings, which NumPy's BLAS reads once

import npformer as npf  # noqa: E402
from npformer.published.stories import MODEL, stories_folder  # noqa: E402


def best(*functions, repeats=7):
    """The best time of each, taken in turns."""
    times = [float("inf")] * len(functions)
    for _ in range(repeats):
        for i, f in enumerate(functions):
            start = time.perf_counter()
            f()
            times[i] = min(times[i], time.perf_counter() - start)
    return times


def tiles(leading, T, dtype, causal):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(*leading, T, 64)).astype(dtype) for _ in range(3))
    mask = npf.causal_mask(T) if causal else None
    y, cache = npf.attention_forward(q, k, v, mask=mask)
    _, tiled_cache = npf.tiled_attention_forward(q, k, v, causal=causal)
    times = best(
        lambda: npf.attention_forward(q, k, v, mask=mask),
        lambda: npf.tiled_attention_forward(q, k, v, causal=causal),
        lambda: npf.attention_backward(y, cache),
        lambda: npf.tiled_attention_backward(y, tiled_cache),
    )
    return times[1] / times[0], times[3] / times[2]


def memory(T):
    """The whole table's bytes for each byte of the peak, forward and backward."""
    q, k, v = (np.random.default_rng(0).normal(size=(T, 64)) for _ in range(3))
    tracemalloc.start()
    y, cache = npf.tiled_attention_forward(q, k, v)
    forward = tracemalloc.get_traced_memory()[1]
    tracemalloc.reset_peak()
    npf.tiled_attention_backward(y, cache)
    backward = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return 8 * T * T / forward, 2 * 8 * T * T / backward  # plainly: the weights, and with ds twice as much


def token():
    params, config, _ = npf.load_llama2c(stories_folder() / MODEL)
    products = [W for path, W in npf.leaves(params.blocks) if W.ndim == 2] + [params.embedding.E.T]
    rows = {d: np.ones((1, d), np.float32) for d in (config.d_model, config.d_ff)}
    ids = np.array([[1, 9038, 2501, 263, 931]])

    def bare():
        for _ in range(100):
            for W in products:
                rows[len(W)] @ W

    def write(**settings):
        npf.generate(ids, params, config, max_new_tokens=100, **settings)

    rng = np.random.default_rng(0)
    times = best(bare, lambda: write(temperature=0), lambda: write(temperature=0.8, top_p=0.9, rng=rng))
    print(f"a token, greedy: {10 * times[1]:.2f} ms, {times[1] / times[0]:.2f} of its bare products")
    print(f"a token, top_p:  {10 * times[2]:.2f} ms, {times[2] / times[0]:.2f} of its bare products")


def main():
    print("tiled against whole, d_k = 64: forward, backward")
    for leading, T in (((), 1024), ((8,), 1024), ((), 4096)):
        for dtype in (np.float64, np.float32):
            for causal in (False, True):
                forward, backward = tiles(leading, T, dtype, causal)
                what = f"{leading!s:5} T={T} {dtype.__name__} {'causal' if causal else ''}"
                print(f"  {what:30} {forward:.2f}  {backward:.2f}", flush=True)
    print("T = 16384: 1/{:.0f} of the whole table's memory forward, 1/{:.0f} backward".format(*memory(16384)))
    if (stories_folder() / MODEL).is_file():
        token()


if __name__ == "__main__":
    main()
