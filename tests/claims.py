"""Measure the claims of the lessons with many seeds, and write a table of the percentiles.

    uv run python tests/claims.py run --workers 2       all entries of tests/data/claims.toml; takes hours
    uv run python tests/claims.py run 07 10 --runs 3    two entries, at most three runs each
    uv run python tests/claims.py table                 write new results into claims.json and claims.md

An entry of `claims.toml` names a lesson and the number of its runs. A run executes the cells of the lesson
with different seeds: run k adds 10 k to each seed, so run 0 is the lesson as it is. A run records

- the statements: calls of `print` with a text and, as the last argument, True or False,
- the quantities: expressions of the entry, evaluated in the namespace of the lesson after its last cell.

Each finished run is one line of the file of results, so an interrupted measurement continues where it was.
"""

import argparse
import json
import os
import tomllib
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stdout
from io import StringIO
from multiprocessing import get_context
from pathlib import Path
from unittest.mock import patch

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
os.environ.update(dict.fromkeys(THREADS, "1"))  # one thread per process, set before NumPy is imported

import numpy as np  # noqa: E402

TESTS = Path(__file__).parent
DATA = TESTS / "data"
NOTEBOOKS = TESTS.parent / "notebooks"
default_rng = np.random.default_rng
PAGE_HEAD = """# The claims of the lessons, measured

Some statements and ranges in the lessons depend on random numbers. This page shows what was measured when
the lessons were run with different seeds. In each run, the data, the initial weights and the batches are
different.

Each row of a table is about one quantity. The column *numbers* shows how many numbers were measured in all
runs; one run can give several numbers. 90 % of these numbers are between the columns *5 %* and *95 %*. For a
quantity that is true or false, the column *mean* shows in which share of the runs it was true. The column
*holds* shows a condition on the numbers, and whether the condition is true.

`tests/data/claims.toml` defines the quantities. `tests/claims.py` measures the quantities and writes this
page. `tests/lessons/test_claims.py` compares every range that a lesson quotes with the tables."""


def read_entries():
    """Return the entries of claims.toml by name."""
    return tomllib.loads((DATA / "claims.toml").read_text(encoding="utf-8"))


def read_cells(entry):
    """Return the code cells of the lesson of an entry, without exercises and without the cells to skip."""
    (path,) = NOTEBOOKS.glob(f"{entry['lesson']}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    skipped = ["npformer.exercises", "\ncheck(", *entry.get("skip", [])]
    sources = [source for source in sources if not any(text in source for text in skipped)]
    if "until" in entry:
        sources = sources[: next(i for i, source in enumerate(sources) if entry["until"] in source)]
    if "replace" in entry:
        before, after = entry["replace"]
        assert any(before in source for source in sources), f"{path.name}: there is no {before!r} to replace"
        sources = [source.replace(before, after) for source in sources]
    return sources


def run_cells(sources):
    """Execute cells. Return their namespace and the statements that they printed."""
    statements = {}

    def record(*parts, **_):
        is_statement = len(parts) > 1 and isinstance(parts[-1], bool | np.bool_)
        if is_statement:
            label = " ".join(" ".join(map(str, parts[:-1])).split()).removesuffix(":")
            statements[label] = statements.get(label, True) and bool(parts[-1])

    names = {"__name__": "lesson", "display": record, "print": record}
    for source in sources:
        exec(source, names)
    return names, statements


def measure(name, entry, run):
    """Return the record of one run of an entry: its statements and the values of its quantities."""
    shift = 10 * run

    def shifted_rng(seed=None):
        return default_rng(seed + shift if isinstance(seed, int) else seed)

    with (
        redirect_stdout(StringIO()),
        patch("numpy.random.default_rng", shifted_rng),
        patch("npformer.lessons.plots.picture", lambda *_, **__: None),  # claims need no pictures
    ):
        names, statements = run_cells(read_cells(entry))
        exec(entry.get("setup", ""), names)
        quantities = entry.get("quantities", {})
        values = {key: eval(each["value"], names) for key, each in quantities.items()}
    flat = {key: np.ravel(value).astype(float).tolist() for key, value in values.items()}
    return {"entry": name, "run": run, "statements": statements, "values": flat}


def summarize(numbers):
    """Return the count, mean, extremes and percentiles of the numbers, with four significant digits."""
    least, p5, p50, p95, most = np.percentile(numbers, [0, 5, 50, 95, 100])
    of_all = {"mean": np.mean(numbers), "least": least, "p5": p5, "p50": p50, "p95": p95, "most": most}
    return {"n": len(numbers)} | {key: float(f"{number:.4g}") for key, number in of_all.items()}


def make_table(name, entry, records):
    """Return the part of claims.json for an entry: the number of runs, the statements and the quantities."""
    records = sorted((record for record in records if record["entry"] == name), key=lambda each: each["run"])
    first = records[0]["statements"]
    statements = {}
    for label, in_lesson in first.items():
        same = sum(record["statements"].get(label) == in_lesson for record in records)
        statements[label] = {"in_lesson": in_lesson, "same": same}
    quantities = {}
    for key, quantity in entry.get("quantities", {}).items():
        numbers = [number for record in records for number in record["values"][key]]
        quantities[key] = {"value": quantity["value"], **summarize(numbers)}
    return {"runs": len(records), "statements": statements, "quantities": quantities}


def write_tables(path, folder=DATA):
    """Write claims.json and claims.md from a file of results. An entry without results keeps its table."""
    entries, records = read_entries(), read_results(path)
    measured = {record["entry"] for record in records}
    tables = json.loads((folder / "claims.json").read_text(encoding="utf-8"))
    tables |= {name: make_table(name, entries[name], records) for name in measured}
    tables = {name: tables[name] for name in entries if name in tables}
    text = json.dumps(tables, indent=1, ensure_ascii=False) + "\n"
    (folder / "claims.json").write_text(text, encoding="utf-8")
    (folder / "claims.md").write_text(make_page(entries, tables), encoding="utf-8")


def make_page(entries, tables):
    """Return the page with the tables of all entries."""
    lines = [PAGE_HEAD]
    for name, table in tables.items():
        lines += [f"\n## Lesson {int(entries[name]['lesson'])}: `{name}`\n"]
        lines += [describe_entry(entries[name], table)]
        changed = {k: each for k, each in table["statements"].items() if each["same"] < table["runs"]}
        if changed:
            lines += ["\n| statement | in the lesson | the same in |\n|---|---|---|"]
        for label, each in changed.items():
            lines += [f"| {label} | {each['in_lesson']} | {each['same']} of {table['runs']} runs |"]
        if table["quantities"]:
            lines += ["\n| quantity | numbers | mean | least | 5 % | median | 95 % | most | holds |"]
            lines += ["|---|---|---|---|---|---|---|---|---|"]
        for key, of in table["quantities"].items():
            shown = " | ".join(
                f"{of[column]:g}" for column in ("n", "mean", "least", "p5", "p50", "p95", "most")
            )
            lines += [f"| {key.replace('_', ' ')} | {shown} | {holds(entries[name], key, of)} |"]
    return "\n".join(lines) + "\n"


def describe_entry(entry, table):
    """Return the sentences about the runs, the setting and the statements of an entry."""
    sentences = [f"Number of runs: {table['runs']}."]
    if "replace" in entry:
        before, after = entry["replace"]
        sentences += [f"Setting: `{after}` instead of `{before}`."]
    changed = sum(each["same"] < table["runs"] for each in table["statements"].values())
    if table["statements"]:
        sentences += [f"Number of statements: {len(table['statements'])}."]
        sentences += [f"Number of statements that changed in at least one run: {changed}."]
    return " ".join(sentences)


def holds(entry, key, of):
    """Return the condition of a quantity with yes or no, such as "p5 > 99: yes"; "" if it has none."""
    condition = entry["quantities"][key].get("holds")
    if condition is None:
        return ""
    answer = "yes" if eval(condition, {}, of) else "no"
    return f"{condition}: {answer}"


def read_results(path):
    """Return the records of a file of results; an incomplete last line is ignored."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def run_all(chosen, most_runs, workers, path):
    """Measure all runs that the file of results does not have yet. Append a line for each."""
    entries = read_entries()
    path.parent.mkdir(exist_ok=True)
    done = {(record["entry"], record["run"]) for record in read_results(path)}
    tasks = []
    for name in chosen or entries:
        runs = min(entries[name]["runs"], most_runs)
        tasks += [(k / runs, name, k) for k in range(runs) if (name, k) not in done]
    tasks.sort()  # so that an interrupted measurement has about the same share of the runs of every entry
    with (
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
        path.open("a", encoding="utf-8") as results,
    ):
        futures = {pool.submit(measure, name, entries[name], k): (name, k) for _, name, k in tasks}
        for future in as_completed(futures):
            error = future.exception()
            print(*futures[future], "failed: " + repr(error) if error else "", flush=True)
            if not error:
                print(json.dumps(future.result()), file=results, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("action", choices=["run", "table"])
    parser.add_argument("entries", nargs="*")
    parser.add_argument("--runs", type=int, default=10**6, help="at most so many runs of each entry")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--results", type=Path, default=TESTS.parent / "build" / "claims.jsonl")
    options = parser.parse_args()
    if options.action == "table":
        write_tables(options.results)
    else:
        run_all(options.entries, options.runs, options.workers, options.results)
