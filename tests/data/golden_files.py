"""The golden files: what they hold, and how. golden.py reads them, make_golden.py writes their answers.

A case has a name, the operation (`encoder_block`: the forward of this name and its backward), its settings
(the forward's own options, the fields of its config), its inputs (`d_y` is the random upstream gradient) and
the answers (`y`, then `d_<input>` for every gradient); ids and masks are its constants. A parameter's name is
its path in npformer's tree, `blocks.0.ffn.W_1`. A case of Adam has the gradients of all steps among its
inputs, `g.W`, steps along the first axis; its answers are each parameter after some of the steps,
`W_after_10`, and both means at the end, `m.W`, `v.W`.

Three arrays keep a file small: `inputs` and `answers` hold all numbers end to end, and `index` is JSON, the
list of cases with the shapes in place of the arrays.

Why the inputs are float32. The answers are computed in float64, but every input is a float32 number. So one
answer is the truth for both: npformer in float64 must meet it to 1e-11, and in float32 it sees the same
inputs.
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
FILES = [HERE / f"golden_{name}.npz" for name in ("functional", "attention", "encoder", "model", "modern")]


def read(file):
    """The cases of a file, each with its `inputs`, `constants` and `answers` as arrays."""
    with np.load(file) as archive:
        index, numbers = json.loads(str(archive["index"])), {x: archive[x] for x in ("inputs", "answers")}
    for case in index:
        for kind in numbers:
            for name, shape in case[kind].items():
                size = int(np.prod(shape))
                case[kind][name] = numbers[kind][:size].reshape(shape)
                numbers[kind] = numbers[kind][size:]
        case["constants"] = {name: np.array(constant) for name, constant in case["constants"].items()}
    return index


def write(file, cases):
    """The other way."""
    arrays = {}
    for kind in ("inputs", "answers"):
        arrays[kind] = np.concatenate([a.ravel() for case in cases for a in case[kind].values()])
        cases = [case | {kind: {name: a.shape for name, a in case[kind].items()}} for case in cases]
    index = [case | {"constants": {x: a.tolist() for x, a in case["constants"].items()}} for case in cases]
    np.savez_compressed(file, index=np.array(json.dumps(index)), **arrays)
