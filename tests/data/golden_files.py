"""The format of the golden files, which make_golden.py writes and golden.py reads.

A case has these parts:

- a name
- the operation, such as `encoder_block`, which stands for its forward and its backward function
- the settings: options of the forward function, and fields of its config
- the inputs by name; `d_y` is the random upstream gradient
- the constants, which are ids and masks
- the answers: `y`, and `d_<input>` for every gradient.

The name of a parameter is its path in npformer's tree, such as `blocks.0.ffn.W_1`. A case of Adam has the
gradients of all steps among the inputs, such as `g.W`; the first axis is the step. The answers are the
parameters after some steps, such as `W_after_10`, and both running means at the end, `m.W` and `v.W`.

A file has three arrays. `inputs` and `answers` contain all numbers, one array after the other. `index` is
JSON: it contains the list of cases, with the shape of each array.

The answers are computed in float64, but every input is a float32 number. So float64 and float32 have the same
inputs and the same answer. In float64, npformer must agree with the answer to 1e-11.
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
NAMES = ("functional", "attention", "encoder", "model", "modern", "post_training")
FILES = [HERE / f"golden_{name}.npz" for name in NAMES]


def read(file):
    """Return the cases of a file, with their `inputs`, `constants` and `answers` as arrays."""
    with np.load(file) as archive:
        index = json.loads(str(archive["index"]))
        numbers = {kind: archive[kind] for kind in ("inputs", "answers")}
    for case in index:
        for kind in numbers:
            for name, shape in case[kind].items():
                size = int(np.prod(shape))
                case[kind][name] = numbers[kind][:size].reshape(shape)
                numbers[kind] = numbers[kind][size:]
        case["constants"] = {name: np.array(constant) for name, constant in case["constants"].items()}
    return index


def write(file, cases):
    """Write cases to a file, in the format that `read` reads."""
    arrays = {}
    for kind in ("inputs", "answers"):
        arrays[kind] = np.concatenate([a.ravel() for case in cases for a in case[kind].values()])
        cases = [case | {kind: {name: a.shape for name, a in case[kind].items()}} for case in cases]
    index = [case | {"constants": {x: a.tolist() for x, a in case["constants"].items()}} for case in cases]
    np.savez_compressed(file, index=np.array(json.dumps(index)), **arrays)
