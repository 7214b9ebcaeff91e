"""The most memory that one encoder block's forward + backward holds, against what has to be held.

    uv run python tests/benchmarks/memory.py

tracemalloc counts every array that NumPy makes. The input, the parameters and the upstream gradient are there
before. What has to be held at the end is the cache, as npformer.teaching.costs counts it, and the gradients.
"""

import tracemalloc

import numpy as np

from npformer import (
    TransformerConfig,
    encoder_block_backward,
    encoder_block_cache_bytes,
    encoder_block_forward,
    init_encoder_block,
    leaves,
)


def peak(B, T, config):
    """Bytes at the worst moment, without what was there before."""
    rng = np.random.default_rng(0)
    params = init_encoder_block(config, rng, dtype=np.float32)
    x, dy = (rng.normal(size=(B, T, config.d_model)).astype(np.float32) for _ in range(2))
    tracemalloc.start()
    _, cache = encoder_block_forward(x, params, config)
    forward = tracemalloc.get_traced_memory()[1]
    encoder_block_backward(dy, cache)
    both = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return forward, both, sum(array.nbytes for _, array in leaves(params))


def main():
    config = TransformerConfig(dropout=0.0)
    for name, B, T in (("base", 8, 128), ("long", 1, 1024)):
        held = encoder_block_cache_bytes(B, T, config)
        forward, both, gradients = peak(B, T, config)
        needed = held + gradients
        print(f"{name}: {both / needed:.2f} of the cache and the gradients, {needed / 2**20:.0f} MiB")
        print(f"      forward alone {forward / held:.2f} of the cache, {held / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
