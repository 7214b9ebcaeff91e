"""Write kills.md: what gradcheck says of every planted bug and hard pair, and what became of the mutants.

uv run python tests/data/make_kill_table.py                a minute: mutants and costs as last measured
uv run python tests/data/make_kill_table.py --mutants      an hour: the mutants judged anew before
"""

import json
import subprocess
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from adversarial_pairs import PAIRS, fresh  # noqa: E402
from float32_pairs import in_float32, to_float32  # noqa: E402
from more_bugs import MORE  # noqa: E402
from planted_bugs import BUGS  # noqa: E402

from npformer import gradcheck  # noqa: E402

HEAD = """# What is caught

A test that has never failed has shown little. So this page counts mistakes that were made on purpose, and who
noticed them. Three kinds:

- **Wrong backward passes** go to `gradcheck`, which compares a backward with differences of its forward. Each
  line is one mistake that students and libraries make. It must say `fail`, name the right array, and say
  what its gradient looks like beside the right one. A second list was written when that was done.
- **Pairs that are hard to judge** go to `gradcheck` too, right ones among them: tiny and huge numbers, kinks,
  shared memory, noise. What it must say was written down before, from the mathematics.
- **Mutants** are the package itself with one small change: a plus for a minus, a number one higher, a line
  left out, a letter of a shape. The tests must fail; a mutant that they let pass has *survived*.

`uv run python tests/data/make_kill_table.py` writes this page; with `--mutants` it judges the mutants anew
before, which takes about an hour. A test holds the tables of pairs and of
mistakes against the verdicts of today. `python tests/benchmarks/gradcheck.py --write`, with PyTorch,
measures what a check costs.

"""
PLANTED = """
A line: the mistake; the arrays whose gradient it spoils; what `gradcheck` said; what it named, with its note.

"""
SECOND = """
Written after the relations were: what `gradcheck` says of mistakes that it was not made for.

"""
OTHERWISE = """
"right ones": backward passes that are right, and what was said of them. Along `directions=3` three random
directions of each array are looked at in place of every entry; the hard pairs are those of the table above.

"""
COST = """
A Transformer of {weights:,} weights in {arrays} arrays, along three directions each: {seconds} s of one
processor, {calls:,} forward calls.
The report says: {sampled}.

The same functions and numbers, one thread, the best of three runs. `torch.autograd.gradcheck` compares whole
Jacobians to six digits and asks PyTorch's own backward passes; `npformer.gradcheck` compares what one random
d_output sends back, to eight digits and more.

"""
ADVERSARIAL = """
A line: the pair; what it is by mathematics; what `gradcheck` said; what it named, with its note. `kink`: the
slope jumps there, and the answer lies between the two slopes. `unsure` is said where float64 has too few
digits, or there is no slope. `refused`: the question has no meaning, and an exception says so.

"""
MUTANTS = """
{tried} of the {possible} possible mutants, drawn by seeds so that every module has its part, judged on
{date}. *equal*: a survivor that computes the same, for the reason below. *left*: no test noticed. One module
alone, other mutants: `uv run python tests/mutation.py --only attention --sample 60 --seed 1`.

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
    caught, named = sum(row[2] == "fail" for row in rows), sum(";" in row[3] for row in rows)
    head = f"## Wrong backward passes, planted one by one: {caught} of {len(rows)} caught, {named} named\n"
    return head + PLANTED + table(("what is wrong", "spoils", "gradcheck", "where"), rows)


def adversarial():
    rows = []
    for name, pair in PAIRS.items():
        verdict, note = said(*fresh(pair), pair.args, pair.kwargs)
        rows.append((name, pair.must, verdict, note))
    right = sum(EXPECTED[must] == verdict for _, must, verdict, _ in rows)
    head = f"## Pairs that are hard to judge: {right} of {len(rows)} judged as they must be\n"
    return head + ADVERSARIAL + table(("pair", "must be", "gradcheck", "note"), rows)


def second():
    rows = []
    for name, (forward, right, wrong, args) in MORE.items():
        assert gradcheck(forward, right, *args), name
        rows.append((name, *said(forward, wrong, args, {})))
    caught, named = sum(row[1] == "fail" for row in rows), sum(";" in row[2] for row in rows)
    head = f"## A second list: {caught} of {len(rows)} caught, {named} named\n"
    return head + SECOND + table(("what is wrong", "gradcheck", "where"), rows)


def otherwise():
    """In float32, and along directions."""
    rows, three = [], {"directions": 3}
    for way, settings in (("in float32", {}), ("directions=3", three)):
        verdicts = []
        for bug in BUGS.values():
            pairs, args = [(bug.forward, back) for back in (bug.right, bug.wrong)], bug.args
            if way == "in float32":
                pairs, args = [in_float32(*pair) for pair in pairs], to_float32(args)
            verdicts.append([said(*pair, args, settings)[0] for pair in pairs])
        n = len(verdicts)
        passed, failed = (
            sum(v == word for v in c)
            for c, word in zip(zip(*verdicts, strict=True), ("pass", "fail"), strict=True)
        )
        rows.append((way, f"{failed} of {n} refused", f"{passed} of {n} pass"))
    judged = [
        said(*fresh(pair), pair.args, pair.kwargs | three)[0] == EXPECTED[pair.must]
        for pair in PAIRS.values()
    ]
    rows.append(("directions=3, hard pairs", f"{sum(judged)} of {len(judged)} judged as they must be", ""))
    return (
        "## In float32, and along directions\n"
        + OTHERWISE
        + table(("", "planted mistakes", "right ones"), rows)
    )


def cost(path):
    measured = json.loads(path.read_text(encoding="utf-8"))
    head = ("function", "entries", "npformer, ms", "forward calls", "torch, ms", "forward calls")
    return "## What a check costs\n" + COST.format(**measured["large"]) + table(head, measured["five"])


def mutants(path):
    """Module by module, and the survivors with the reason where there is one."""
    judged = json.loads(path.read_text(encoding="utf-8"))
    words = ("killed", "equivalent", "survived")
    rows = [
        (module, sum(counts.values()), *(counts.get(word, 0) for word in words))
        for module, counts in judged["modules"].items()
    ]
    rows.append(("all", *(sum(row[i] for row in rows) for i in range(1, 5))))
    left = [(where, what, why or "left") for where, what, why in judged["left"]]
    return (
        f"## Mutants of every module: {rows[-1][2]} of {rows[-1][1]} killed, {rows[-1][3]} equal\n"
        + MUTANTS.format(tried=rows[-1][1], possible=judged["possible"], date=judged["date"])
        + table(("module", "tried", "killed", "equal", "left"), rows)
        + "\n### Those that no test killed\n\n"
        + table(("where", "what", "why"), left)
    )


def whole():
    measured = cost(HERE / "gradcheck_cost.json"), mutants(HERE / "mutants.json")
    return "\n".join([HEAD + planted(), second(), adversarial(), otherwise(), *measured])


if __name__ == "__main__":
    if "--mutants" in sys.argv[1:]:
        judge = [sys.executable, str(HERE.parent / "mutation.py"), "--write", str(HERE / "mutants.json")]
        subprocess.run(judge, check=False)  # its exit status says only whether many survived
    (HERE / "kills.md").write_text(whole(), encoding="utf-8")
