"""Check that the claims of the lessons hold with other seeds, and with one changed setting.

    uv run python tests/claims.py           all lessons in SETTINGS, takes 15 minutes or more
    uv run python tests/claims.py 05 08     only these lessons

A claim is a line that a lesson prints and that ends in True. This program also runs the cells of a
lesson with other seeds, and with one setting changed in the source. It prints each claim of the original
lesson that does not hold in one of these runs. It exits with 1 if there is such a claim.
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
    """Add `shift` to a lesson's seeds, replace `before` by `after`, run the lesson and return its claims."""
    (path,) = (Path(__file__).parent.parent / "notebooks").glob(f"{number}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    sources = [source for source in sources if "npformer.exercises" not in source and "check(" not in source]
    assert any(before in source for source in sources), f"{path.name}: there is no {before!r} to replace"
    names = {"__name__": path.stem, "display": print}
    printed = io.StringIO()
    with (
        redirect_stdout(printed),
        patch("numpy.random.default_rng", lambda s: default_rng(s + shift if isinstance(s, int) else s)),
        patch("npformer.lessons.plots.picture", lambda *_, **__: None),  # claims need no pictures
    ):
        for source in sources:
            exec(source.replace(before, after) if before else source, names)
    return set(re.findall(r"^(.*\S)\s+True$", printed.getvalue(), re.M))


def main(numbers):
    failed = False
    for number in numbers:
        runs = {f"seeds + {shift}": claims(number, shift) for shift in (10, 20, 30)}
        before, after = SETTINGS[number]
        runs[f"{after} in place of {before}"] = claims(number, 0, before, after)
        for claim in claims(number):
            for run, claims_of_run in runs.items():
                if claim not in claims_of_run:
                    failed = True
                    print(f"{number}: {claim} does not hold with {run}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or SETTINGS))
