"""Tests of the claims: the quoted ranges are those of the committed table, and the statements hold."""

import ast
import json

import claims
import pytest

from npformer.handouts.lesson_copies import get_source
from npformer.lessons.predictions import ID, reveal

ENTRIES = claims.read_entries()
TABLES = json.loads((claims.DATA / "claims.json").read_text(encoding="utf-8"))
QUANTITIES = [(name, key) for name, entry in ENTRIES.items() for key in entry.get("quantities", {})]
LEAST_SHARE = 0.95  # a statement has to hold in 95 of 100 runs

per_entry = pytest.mark.parametrize("name", ENTRIES)
per_quantity = pytest.mark.parametrize(("name", "key"), QUANTITIES, ids=lambda part: part)


def read_notebook(lesson):
    (path,) = claims.NOTEBOOKS.glob(f"{lesson}_*.ipynb")
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def read_place(where):
    """Return the text that may quote a quantity: an answer, the texts of a lesson, or its slides."""
    if ID.fullmatch(where):
        return reveal(where).text
    lesson, _, part = where.partition(" ")
    cells = read_notebook(lesson)
    if part == "slides":
        return " ".join(cell["metadata"].get("npformer", {}).get("answer", "") for cell in cells)
    return " ".join(get_source(cell) for cell in cells if cell["cell_type"] == "markdown")


def normalize(text):
    """Return a text with single spaces and with hyphens as minus signs."""
    return " ".join(text.replace("−", "-").split())


def get_labels(lesson):
    """Return the fixed labels of statements: calls of print with a text first, and True in the output."""
    labels = set()
    for cell in read_notebook(lesson):
        if cell["cell_type"] != "code" or "npformer.exercises" in get_source(cell):
            continue
        printed = normalize("".join("".join(each.get("text", "")) for each in cell["outputs"]))
        calls = [node for node in ast.walk(ast.parse(get_source(cell))) if isinstance(node, ast.Call)]
        for call in calls:
            is_print = isinstance(call.func, ast.Name) and call.func.id == "print"
            if is_print and len(call.args) == 2 and isinstance(call.args[0], ast.Constant):
                label = normalize(str(call.args[0].value))
                if f"{label} True" in printed:
                    labels.add(label.removesuffix(":"))
    return labels


@per_entry
def test_claims_table_has_all_runs(name):
    assert TABLES[name]["runs"] == ENTRIES[name]["runs"], "run tests/claims.py again"


@per_quantity
def test_claims_table_measured_this_expression(name, key):
    assert TABLES[name]["quantities"][key]["value"] == ENTRIES[name]["quantities"][key]["value"]


@per_quantity
def test_claims_conditions_hold(name, key):
    condition = ENTRIES[name]["quantities"][key].get("holds", "True")
    assert eval(condition, {}, TABLES[name]["quantities"][key]), condition


@per_quantity
def test_claims_quoted_ranges_are_measured(name, key):
    measured = TABLES[name]["quantities"][key]
    numbers = {**measured, "share": 100 * measured["mean"], "runs": TABLES[name]["runs"]}
    for quote in ENTRIES[name]["quantities"][key].get("quoted", []):
        expected = normalize(quote["text"].format(**numbers))
        assert expected in normalize(read_place(quote["where"])), f"{quote['where']} must say: {expected}"


@per_entry
def test_claims_statements_hold_with_other_seeds(name):
    table = TABLES[name]
    few = [label for label, each in table["statements"].items() if each["same"] < LEAST_SHARE * table["runs"]]
    assert few == []


WHOLE = sorted({e["lesson"] for e in ENTRIES.values() if "skip" not in e and "until" not in e})


@pytest.mark.parametrize("lesson", WHOLE)  # lessons 8 and 11 are measured in parts
def test_claims_table_has_all_statements(lesson):
    measured = {
        normalize(label)
        for name, entry in ENTRIES.items()
        if entry["lesson"] == lesson
        for label in TABLES[name]["statements"]
    }
    assert get_labels(lesson) - measured == set(), "run tests/claims.py again"


def test_claims_every_lesson_is_measured():
    lessons = {path.name[:2] for path in claims.NOTEBOOKS.glob("[0-9]*.ipynb")}
    assert {entry["lesson"] for entry in ENTRIES.values()} == lessons


def test_claims_page_is_current():
    page = (claims.DATA / "claims.md").read_text(encoding="utf-8")
    assert page == claims.make_page(ENTRIES, TABLES)


def test_write_tables_keeps_entries_without_results(tmp_path):
    (tmp_path / "claims.json").write_text(json.dumps(TABLES), encoding="utf-8")
    results = tmp_path / "claims.jsonl"
    record = {"entry": "01", "run": 0, "statements": {"new": True}, "values": {}}
    results.write_text(json.dumps(record) + "\n", encoding="utf-8")
    claims.write_tables(results, tmp_path)
    written = json.loads((tmp_path / "claims.json").read_text(encoding="utf-8"))
    assert written == {
        **TABLES,
        "01": {"runs": 1, "statements": {"new": {"in_lesson": True, "same": 1}}, "quantities": {}},
    }
    assert list(written) == list(ENTRIES)
