"""What a gradient check costs: beside torch.autograd.gradcheck, and of a model of seven million weights.

    uv run --with torch python tests/benchmarks/gradcheck.py            # or any Python with PyTorch and NumPy
    uv run --with torch python tests/benchmarks/gradcheck.py --write    # into tests/data/gradcheck_cost.json

The same five functions on the same float64 arrays, both checks as they come. torch compares the whole
Jacobian, 6 digits deep, with two forward calls an entry and a backward call for each output; npformer
compares what one random d_output sends back, 8 digits deep, with six forward calls an entry. PyTorch is
asked of its own functions and backward passes. Processor time: the best of three runs, the model once.
"""

import json
import math
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

import npformer as npf  # noqa: E402

n = np.random.default_rng(0).standard_normal
d, d_ff = 8, 16
FFN = npf.FFNParams(n((d, d_ff)), n(d_ff), n((d_ff, d)), n(d))
NORM = npf.LayerNormParams(n(d), n(d))
OURS = {
    "linear, 6 × 8 by 16": (npf.linear_forward, npf.linear_backward, (n((6, d)), FFN.W_1, FFN.b_1)),
    "softmax, 6 × 8": (npf.softmax_forward, npf.softmax_backward, (n((6, d)),)),
    "layer norm, 6 × 8": (npf.layer_norm_forward, npf.layer_norm_backward, (n((6, d)), NORM)),
    "feed-forward, 6 × 8 × 16": (npf.ffn_forward, npf.ffn_backward, (n((6, d)), FFN)),
    "attention, 2 heads of 6 × 8": (npf.attention_forward, npf.attention_backward, tuple(n((3, 2, 6, d)))),
}


def theirs(torch):
    """The same functions of PyTorch, of the arrays one after another."""
    F = torch.nn.functional
    return [
        lambda x, W, b: F.linear(x, W.T, b),
        lambda x: F.softmax(x, -1),
        lambda x, gamma, beta: F.layer_norm(x, (d,), gamma, beta),
        lambda x, W_1, b_1, W_2, b_2: F.linear(F.relu(F.linear(x, W_1.T, b_1)), W_2.T, b_2),
        lambda q, k, v: F.softmax(q @ k.mT / math.sqrt(d), -1) @ v,
    ]


def counted(function):
    """The function, and a list with an item for each call."""
    calls = []
    return lambda *args: calls.append(1) or function(*args), calls


def best(check, function, runs=3):
    """(milliseconds, forward calls) of a check of a forward that must pass."""
    found = []
    for _ in range(runs):
        forward, calls = counted(function)
        start = time.process_time()
        assert check(forward)
        found.append((time.process_time() - start) * 1e3)
    return round(min(found), 1), len(calls)


def five():
    import torch

    torch.set_num_threads(1)
    rows = []
    for (name, (forward, backward, args)), same in zip(OURS.items(), theirs(torch), strict=True):
        arrays = [array for _, array in npf.leaves(args)]
        tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
        assert np.allclose(same(*tensors).detach().numpy(), forward(*args)[0], atol=1e-12)
        ours = best(lambda f, backward=backward, args=args: npf.gradcheck(f, backward, *args), forward)
        other = best(lambda f, tensors=tensors: torch.autograd.gradcheck(f, tensors), same)
        rows.append([name, sum(array.size for array in arrays), *ours, *other])
        print(*rows[-1], sep=" · ", flush=True)
    return rows


def large():
    """What it costs to check a whole Transformer along three directions an array."""
    config = npf.TransformerConfig(n_layers=1)
    params = npf.init_transformer(32, config, np.random.default_rng(0))
    forward, calls = counted(npf.transformer_forward)
    ids = np.array([[3, 1, 4, 1, 5]]), np.array([[2, 7, 1, 8]])
    start = time.process_time()
    report = npf.gradcheck(forward, npf.transformer_backward, *ids, params, config, directions=3)
    seconds = time.process_time() - start
    assert report, report
    weights = [array.size for _, array in npf.leaves(params)]
    found = {"weights": sum(weights), "arrays": len(weights), "seconds": round(seconds)}
    found |= {"calls": len(calls), "sampled": report.sampled}
    print(found)
    return found


if __name__ == "__main__":
    measured = {"large": large(), "five": five()}
    if "--write" in sys.argv[1:]:
        text = json.dumps(measured, indent=1, ensure_ascii=False) + "\n"
        (HERE.parent / "data" / "gradcheck_cost.json").write_text(text, encoding="utf-8")
