"""Measure the errors of npformer and of PyTorch on hard inputs, and write them to the guide page.

    PYTHONPATH=. python tests/data/make_hard_inputs.py

The script needs a Python with torch, mpmath and NumPy. It writes hard_inputs.json and the table in
notebooks/guide/how_right_how_fast.md. hard_inputs.py has the inputs and computes the exact results.
"""

import json

import torch
import torch.nn.functional as F
from golden_files import HERE
from hard_inputs import error, exact_results, make_cases, npformer_errors, rounded, write_table

EPS = 1e-5
IN_PYTORCH = {
    "layer norm": lambda x, gamma, beta: F.layer_norm(x, gamma.shape, gamma, beta, EPS),
    "RMSNorm": lambda x, gamma: F.rms_norm(x, gamma.shape, gamma, EPS),
    "softmax": lambda s: torch.softmax(s, -1),
    "cross entropy": lambda logits: F.cross_entropy(logits, torch.arange(len(logits))),
    "GELU": F.gelu,
    "SiLU": F.silu,
    "attention": F.scaled_dot_product_attention,
    # PyTorch has no such function. Training libraries write the formula like this.
    "KL penalty": lambda log_p, log_p_ref: torch.exp(log_p_ref - log_p) - (log_p_ref - log_p) - 1,
}


def pytorch_errors(case):
    """Return the errors of PyTorch's output and gradient."""
    arrays, d_output = rounded(case)
    first, *others = map(torch.from_numpy, arrays)
    first.requires_grad_()
    y = IN_PYTORCH[case.operation](first, *others)
    y.backward(torch.from_numpy(d_output))
    found = y.detach().numpy(), first.grad.numpy()
    return [error(a, b, case.each) for a, b in zip(found, exact_results(case), strict=True)]


if __name__ == "__main__":
    torch.set_num_threads(1)
    rows = [
        {
            "operation": case.operation, "input": case.input, "dtype": case.dtype,
            "npformer": npformer_errors(case), "PyTorch": pytorch_errors(case),
        }
        for case in make_cases()
    ]  # fmt: skip
    text = json.dumps(rows, indent=1) + "\n"
    (HERE / "hard_inputs.json").write_text(text, encoding="utf-8")
    write_table(rows)
