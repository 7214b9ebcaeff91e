"""Write kills.md: what gradcheck says of every planted bug and hard pair, and what became of the mutants.

uv run python tests/mutation.py --write tests/data/mutants.json      (long)
uv run python tests/data/make_kill_table.py
"""

import json
import sys
import warnings
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from adversarial_pairs import PAIRS, fresh  # noqa: E402
from planted_bugs import BUGS  # noqa: E402

from npformer import gradcheck  # noqa: E402

HEAD = """# What is caught

Written by `tests/data/make_kill_table.py`; a test compares the first two tables with the verdicts of today.

"""
WORST = ("fail", "unsure", "kink", "pass")  # a report is told by its worst row
EXPECTED = {"right": "pass", "wrong": "fail", "kink": "kink", "cannot tell": "unsure", "refused": "refused"}


def said(forward, backward, args, kwargs):
    """The worst verdict of a report with its note, or the refusal."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = gradcheck(forward, backward, *args, **kwargs)
    except (TypeError, ValueError) as error:
        return "refused", str(error).removeprefix("gradcheck: ").split(";")[0]
    verdict = min((row.verdict for row in report.rows), key=WORST.index)
    paths = ", ".join(row.path for row in report.rows if row.verdict == verdict)
    notes = [row.note for row in report.rows if row.verdict == verdict and row.note]
    return (
        verdict,
        "" if verdict == "pass" else f"{paths}: {notes[0].split(', first')[0]}" if notes else paths,
    )


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell(c) for c in line) + " |" for line in lines) + "\n"


def cell(value):
    return str(value).replace("|", "\\|")


def planted():
    rows = []
    for name, bug in BUGS.items():
        verdict, where = said(bug.forward, bug.wrong, bug.args, {})
        rows.append((name, " ".join(sorted(bug.spoils)), verdict, where))
    caught = sum(verdict == "fail" for _, _, verdict, _ in rows)
    head = f"## Wrong backward passes, planted one by one: {caught} of {len(rows)} caught\n\n"
    return head + table(("what is wrong", "spoils", "gradcheck", "where"), rows)


def adversarial():
    rows = []
    for name, pair in PAIRS.items():
        verdict, note = said(*fresh(pair), pair.args, pair.kwargs)
        rows.append((name, pair.must, verdict, note))
    right = sum(EXPECTED[must] == verdict for _, must, verdict, _ in rows)
    head = f"## Pairs that are hard to judge: {right} of {len(rows)} judged as they must be\n\n"
    return head + table(("pair", "must be", "gradcheck", "note"), rows)


def mutants(path):
    """Module by module, and the survivors with the reason where there is one."""
    if not path.exists():
        return ""
    results = json.loads(path.read_text(encoding="utf-8"))
    modules = dict.fromkeys(result["module"] for result in results)
    rows = []
    for module in modules:
        counts = Counter(result["result"] for result in results if result["module"] == module)
        rows.append(
            (module, sum(counts.values()), *(counts[word] for word in ("killed", "equivalent", "survived")))
        )
    rows.append(("all", *(sum(row[i] for row in rows) for i in range(1, 5))))
    left = [
        (f"{result['module']}:{result['line']}", result["what"].splitlines()[0], result["why"] or "left")
        for result in results
        if result["result"] != "killed"
    ]
    return (
        "## Mutants of every module\n\n"
        + table(("module", "tried", "killed", "equal", "left"), rows)
        + "\n### Those that no test killed\n\n"
        + table(("where", "what", "why"), left)
    )


def whole():
    return "\n".join([HEAD + planted(), adversarial(), mutants(HERE / "mutants.json")])


if __name__ == "__main__":
    (HERE / "kills.md").write_text(whole(), encoding="utf-8")
