"""How the time of an encoder grows with the sentence, the hidden layer and the depth: measured and predicted.

    uv run python tests/benchmarks/growth.py            prints a table and writes figures/data/growth.json
    uv run python figures/make.py growth.svg            draws it

CPU time of one forward + backward, float32, one thread, the median of interleaved repeats. The prediction
knows no measurement of the encoder: it is the multiplications that npformer.teaching.costs counts, three
times (once forward, twice backward), at the speed of one bare 512 × 512 × 512 product of the same run.
"""

import json
import os
import statistics
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
os.environ.pop("OPENBLAS_CORETYPE", None)

import numpy as np  # noqa: E402  after the settings, which NumPy's BLAS reads once

import npformer as npf  # noqa: E402

TARGET = Path(__file__).resolve().parents[2] / "figures" / "data" / "growth.json"
BASE = {"n": 128, "d_ff": 1024, "n_layers": 1}
SWEEPS = {
    "n": [32, 64, 128, 256, 512, 1024, 2048],
    "d_ff": [128, 256, 512, 1024, 2048, 4096],
    "n_layers": [1, 2, 4, 8, 12],
}


def step(n, d_ff, n_layers):
    config = npf.TransformerConfig(d_model=256, d_ff=d_ff, n_heads=4, n_layers=n_layers)
    rng = np.random.default_rng(0)
    params = npf.init_encoder(config, rng, dtype=np.float32)
    x = rng.normal(size=(n, 256)).astype(np.float32)
    multiplications = 3 * n_layers * npf.encoder_block_multiplications(n, config).total
    return lambda: npf.encoder_backward(x, npf.encoder_forward(x, params, config)[1]), multiplications


def cpu_times(functions, rounds=5):
    """The median CPU seconds of each function, called in turn; the first round only warms up."""
    times = [[] for _ in functions]
    for _ in range(rounds + 1):
        for function, own in zip(functions, times, strict=True):
            start = time.process_time()
            function()
            own.append(time.process_time() - start)
    return [statistics.median(own[1:]) for own in times]


def bare_product():
    a, b = (np.random.default_rng(i).normal(size=(512, 512)).astype(np.float32) for i in range(2))
    out = np.empty_like(a)
    return lambda: np.matmul(a, b, out=out)


def main():
    result = {}
    for argument, values in SWEEPS.items():
        runs, multiplications = zip(*[step(**BASE | {argument: value}) for value in values], strict=True)
        *measured, product = cpu_times([*runs, bare_product()])
        predicted = [count * product / 512**3 for count in multiplications]
        result[argument] = {"value": values, "measured_s": measured, "predicted_s": predicted}
        for value, seconds, expected in zip(values, measured, predicted, strict=True):
            print(f"{argument} = {value:5}  {1e3 * seconds:8.2f} ms  predicted {1e3 * expected:8.2f} ms")
    rounded = json.loads(json.dumps(result), parse_float=lambda text: float(f"{float(text):.4g}"))
    TARGET.write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
