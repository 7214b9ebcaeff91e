"""What one more token costs in greedy decoding, with the keys and values kept and without.

    uv run python tests/benchmarks/decoding.py

CPU time of the last token of a sequence, float32, one thread. Kept, a token attends to those before it: a
part that does not grow, and one in proportion to the length. Not kept, every token goes through the whole
model again.
"""

import os
import statistics
import time

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ.pop("OPENBLAS_CORETYPE", None)

import numpy as np  # noqa: E402  after the settings, which NumPy's BLAS reads once

from npformer import TransformerConfig, greedy_decode, init_transformer, transformer_forward  # noqa: E402

CONFIG = TransformerConfig(d_model=256, d_ff=1024, n_heads=4, n_layers=2, dropout=0.0)
STOP = 99


def model():
    """A random model that never says STOP: its row of E is zero, and another word has a larger logit."""
    params = init_transformer(100, CONFIG, np.random.default_rng(0), dtype=np.float32)
    params.embedding.E[STOP] = 0
    return params


def cpu(f, repeats=7):
    times = []
    for _ in range(repeats):
        start = time.process_time()
        f()
        times.append(time.process_time() - start)
    return statistics.median(times)


def decode(params, source, length):
    ids = greedy_decode(source, params, CONFIG, start_id=0, stop_id=STOP, max_length=length)
    assert ids.shape == (1, length)
    return ids


def main():
    params, source = model(), np.arange(1, 17)[None]
    lengths = (128, 256, 512, 1024, 2048)
    print("length   a token, kept   a token, not kept")
    for length in lengths:
        times = [
            cpu(lambda n=n: decode(params, source, n), repeats=3) for n in (length - length // 4, length)
        ]
        kept = (times[1] - times[0]) / (length // 4)  # of the last quarter's tokens
        target = np.resize(np.arange(1, 90), (1, length))
        whole = cpu(lambda target=target: transformer_forward(source, target, params, CONFIG), repeats=3)
        print(f"{length:6}   {1e3 * kept:10.2f} ms   {1e3 * whole:14.2f} ms", flush=True)


if __name__ == "__main__":
    main()
