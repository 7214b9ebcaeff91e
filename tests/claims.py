"""Do the claims of the lessons hold with other seeds, and in one other setting?

    uv run python tests/claims.py           all lessons of `SETTINGS`, a quarter of an hour and more
    uv run python tests/claims.py 05 08     some of them

A claim is a line that a lesson prints and that ends in True. The lessons' own cells are run, with every seed
shifted or a size replaced in their source. Prints what is not True in every run, and exits with 1 then.
"""

import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from unittest.mock import patch

import numpy as np

SETTINGS = {
    "02": ("d=32", "d=48"),
    "05": ("d_model=64, d_ff=256", "d_model=32, d_ff=128"),
    "06": ("d_model=16, d_ff=32", "d_model=32, d_ff=64"),
    "07": ("d_model=32, d_ff=128", "d_model=48, d_ff=192"),
    "08": ("NEAR = 17", "NEAR = 33"),
    "10": ("d_model=96, d_ff=192", "d_model=128, d_ff=256"),
    "11": ("N = 50", "N = 80"),
}
default_rng = np.random.default_rng


def claims(number, shift=0, before="", after=""):
    """The claims of a lesson whose seeds are so much larger, or in whose source something is replaced."""
    (path,) = (Path(__file__).parent.parent / "notebooks").glob(f"{number}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    sources = [source for source in sources if "npformer.exercises" not in source and "check(" not in source]
    assert any(before in source for source in sources), f"{path.name}: there is no {before!r} to replace"
    names, said = {"__name__": path.stem, "display": print}, io.StringIO()
    with (
        redirect_stdout(said),
        patch("numpy.random.default_rng", lambda s: default_rng(s + shift if isinstance(s, int) else s)),
        patch("npformer.lessons.plots.picture", lambda *_, **__: None),  # nobody looks at them here
    ):
        for source in sources:
            exec(source.replace(before, after) if before else source, names)
    return set(re.findall(r"^(.*\S)\s+True$", said.getvalue(), re.M))


def main(numbers):
    failed = False
    for number in numbers:
        runs = {f"seeds + {shift}": claims(number, shift) for shift in (10, 20, 30)}
        runs[" in place of ".join(SETTINGS[number][::-1])] = claims(number, 0, *SETTINGS[number])
        for claim in claims(number):
            for run in (run for run, held in runs.items() if claim not in held):
                failed = True
                print(f"{number}: {claim} does not hold with {run}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or SETTINGS))
