"""Train the models of lessons 6 and 7 and keep the numbers that the figures of this folder show.

    uv run python figures/train.py      about a minute; writes figures/data/trained.json

The script runs the cells of the lessons, so that the figures show the lessons' results. Another machine's
arithmetic gives slightly different numbers; figures/make.py draws the numbers in the file.
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FILE = ROOT / "figures" / "data" / "trained.json"
COMMAND = "uv run python figures/train.py"


def run(lesson: str) -> dict[str, Any]:
    """Run all cells of a lesson, and return the names that they define."""
    notebook = json.loads((ROOT / "notebooks" / lesson).read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": lesson}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{lesson}, {cell['id']}", "exec"), names)
    return names


def numbers(order: dict[str, Any], translator: dict[str, Any]) -> dict[str, Any]:
    """Return the accuracies and attention weights of both lessons that the figures show, as lists."""
    both = {name: [rounded(curve) for _, curve in runs] for name, runs in order["runs"].items()}
    single = {"no positions": order["curve_plain"], "sinusoidal": order["curve_waves"]}
    panels = {"every word sees all": order["free"], "causal mask": order["behind"]}
    return {
        "made by": COMMAND,
        "steps": list(order["steps"]),
        "with and without positions": {name: [rounded(curve)] for name, curve in single.items()},
        "five seeds": both,
        "words": order["LONG"],
        "longer than in training": {
            title: {name: [rounded(row) for row in rows] for name, rows in panel.items()}
            for title, panel in panels.items()
        },
        "cross-attention": {
            "words": translator["words"],
            "written": translator["digits"],
            "weights": [rounded(row) for row in translator["weights"]],
        },
    }


def rounded(values: Any) -> list[float]:
    """Round to four decimals, which is more than a figure shows."""
    return [round(float(value), 4) for value in values]


def main() -> int:
    """Run both lessons and write the file."""
    kept = numbers(run("06_order.ipynb"), run("07_decoder.ipynb"))
    FILE.parent.mkdir(exist_ok=True)
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in kept.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
