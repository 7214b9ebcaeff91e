"""Try what the lessons claim on three other seeds and in one other setting.

    uv run python tests/claims.py           all lessons of `LESSONS`, a quarter of an hour and more
    uv run python tests/claims.py 05 08     some of them

A claim is a line that a lesson prints and that ends in True. The lessons' own cells are run, with a seed or a
size replaced in their source; what is not True in every run is no claim. Prints a table, and exits with 1 if
one fails.
"""

import io
import json
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent.parent / "notebooks"
SEEDS = (10, 20, 30)
CLAIM = re.compile(r"^(.*\S)\s+(True|False)$")


class Lesson(NamedTuple):
    last: str  # the id of the last cell that is needed
    seed: dict[str, tuple[str, str]]  # cell: what is replaced, and by what; {s} is the seed
    setting: dict[str, tuple[str, str]]


LESSONS = {
    "02": Lesson(
        "a-2-8c",
        {"c-2-8c-train": ("default_rng(0)", "default_rng({s})")},
        {"c-2-8c-train": ("d=32", "d=48")},
    ),
    "05": Lesson(
        "cell-5-6-holds",
        {
            "cell-left": ("seed=0", "seed={s}"),
            "cell-alike": ("default_rng(0)", "default_rng({s})"),
            "cell-sizes": ("in range(3)", "in range({s}, {s} + 3)"),
        },
        {"cell-stack": ("d_model=64, d_ff=256", "d_model=32, d_ff=128")},
    ),
    "06": Lesson(
        "cell-52",
        {"cell-24": ("default_rng(seed)", "default_rng(seed + {s})"), "cell-04": ("rng(0)", "rng({s})")},
        {"cell-09": ("d_model=16, d_ff=32", "d_model=32, d_ff=64")},
    ),
    "07": Lesson(
        "cell-42-same",
        {
            "cell-06": ("default_rng(0)", "default_rng({s})"),
            "cell-10": ("default_rng(0)", "default_rng({s})"),
            "cell-18": ("default_rng(1)", "default_rng({s} + 1)"),
        },
        {"cell-10": ("d_model=32, d_ff=128", "d_model=48, d_ff=192")},
    ),
    "08": Lesson(
        "cell-29",
        {"shuffled-tables": ("in range(3)", "in range({s}, {s} + 3)")},
        {"shuffled-tables": ("NEAR = 17", "NEAR = 33")},
    ),
    "10": Lesson(
        "same-10-8b",
        {
            "cell-37": ("default_rng(0)", "default_rng({s})"),
            "cell-39-writes": ("default_rng(2)", "default_rng({s} + 2)"),
        },
        {"cell-35": ("d_model=96, d_ff=192", "d_model=128, d_ff=256")},
    ),
    "11": Lesson(
        "cell-the-way",
        {
            "cell-first-and-second": ("in range(4)", "in range({s}, {s} + 4)"),
            "cell-heads": ("twice(0)", "twice({s})"),
            "cell-second-loss": ("seed=0", "seed={s}"),
            "cell-one-head": ("in range(4)", "in range({s}, {s} + 4)"),
            "cell-slope": ('" Italy"', '[" Spain", " Germany", " Japan"][{s} // 10 - 1]'),
        },
        {"cell-twice": ("N = 50", "N = 80")},
    ),
}


def claims(number: str, changes: dict[str, tuple[str, str]]) -> dict[str, bool]:
    """{line: whether it said True}, from the first cell that is ever changed to the last that is needed."""
    last, *ever = LESSONS[number]
    (path,) = FOLDER.glob(f"{number}_*.ipynb")
    names: dict[str, Any] = {"__name__": path.stem}
    claims_begun, said, left = False, io.StringIO(), dict(changes)
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            source, (old, new) = "".join(cell["source"]), left.pop(cell["id"], ("", ""))
            if old not in source:
                raise ValueError(f"{path.name}, {cell['id']}: there is no {old!r} to replace")
            if not claims_begun and any(cell["id"] in change for change in ever):
                claims_begun, said = True, io.StringIO()
            with redirect_stdout(said):
                exec(compile(source.replace(old, new) if old else source, cell["id"], "exec"), names)
        if cell["id"] == last:
            break
    if left:
        raise ValueError(f"{path.name}: no cell {list(left)} up to {last}")
    found = (CLAIM.match(line) for line in said.getvalue().splitlines())
    return {match[1].rstrip(": "): match[2] == "True" for match in found if match}


def main(numbers: list[str]) -> int:
    from npformer.teaching import plots

    plots.picture = lambda *_, **__: None  # nobody looks at them here
    print("| claim | seeds | setting | holds |\n|---|---|---|---|", flush=True)
    every = []
    for number in numbers or LESSONS:
        _, seed, setting = LESSONS[number]
        with_seed = [{c: (old, new.format(s=s)) for c, (old, new) in seed.items()} for s in SEEDS]
        as_is, *seeds, other = (claims(number, changes) for changes in ({}, *with_seed, setting))
        size = next(iter(setting.values()))[1]
        for claim in (line for line, true in as_is.items() if true):
            kept = [found.get(claim, False) for found in seeds]
            every.append(all(kept) and other.get(claim, False))
            print(
                f"| {number}: {claim} | {sum(kept)} of {len(SEEDS)} | {size}: {other.get(claim, False)} "
                f"| {'yes' if every[-1] else 'NO'} |",
                flush=True,
            )
    return 0 if all(every) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
