"""Try what the lessons claim on three other seeds and in one other setting.

    uv run python tests/claims.py           all lessons of `SETTINGS`, a quarter of an hour and more
    uv run python tests/claims.py 05 08     some of them

A claim is a line that a lesson prints and that ends in True. The lessons' own cells are run, with every seed
shifted or a size replaced in their source; what is not True in every run is no claim. Prints a table, and
exits with 1 if one fails.
"""

import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

FOLDER = Path(__file__).parent.parent / "notebooks"
SHIFTS = (10, 20, 30)
CLAIM = re.compile(r"^(.*\S)\s+(True|False)$", re.M)
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


def claims(number: str, shift: int = 0, change: tuple[str, str] = ("", "")) -> dict[str, bool]:
    """{line: whether it said True} of a lesson whose seeds are so much larger, or whose source is changed."""
    (path,) = FOLDER.glob(f"{number}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    sources = [source for source in sources if "npformer.exercises" not in source and "check(" not in source]
    if not any(change[0] in source for source in sources):
        raise ValueError(f"{path.name}: there is no {change[0]!r} to replace")
    names: dict[str, Any] = {"__name__": path.stem, "display": print}
    said = io.StringIO()
    with (
        redirect_stdout(said),
        patch("numpy.random.default_rng", lambda s: default_rng(s + shift if isinstance(s, int) else s)),
        patch("npformer.teaching.plots.picture", lambda *_, **__: None),  # nobody looks at them here
    ):
        for source in sources:
            exec(source.replace(*change) if change[0] else source, names)
    return {line.rstrip(": "): word == "True" for line, word in CLAIM.findall(said.getvalue())}


def main(numbers: list[str]) -> int:
    print("| claim | seeds | setting | holds |\n|---|---|---|---|", flush=True)
    every = []
    for number in numbers or SETTINGS:
        change = SETTINGS[number]
        as_is, other = claims(number), claims(number, change=change)
        seeds = [claims(number, shift) for shift in SHIFTS]
        for claim in (line for line, true in as_is.items() if true):
            kept, also = sum(found.get(claim, False) for found in seeds), other.get(claim, False)
            every.append(kept == len(SHIFTS) and also)
            holds = "yes" if every[-1] else "NO"
            print(
                f"| {number}: {claim} | {kept} of {len(SHIFTS)} | {change[1]}: {also} | {holds} |", flush=True
            )
    return 0 if all(every) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
