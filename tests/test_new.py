"""Tests of tests/new.py, which creates files with placeholders.

The new files make tests fail until every placeholder is replaced. The script overwrites no file."""

import ast
import builtins
import inspect
import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from scaffolds.exercise import FUNCTION, IMPORTS, NUMBERS, create_exercise
from scaffolds.files import MARK, CannotCreate, filled
from scaffolds.operation import MODULE, TESTS, create_operation
from scaffolds.section import create_section, steps_for_text_before
from scaffolds.sections import lesson_path, section_number, with_paragraph

ROOT = Path(__file__).parents[1]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".*_cache", "__pycache__", "build", "dist", "*.tmp")


# --- arguments that are rejected before any file is written --------------------------------------------


@pytest.mark.parametrize(("name", "message"), [
    ("rms_norm", r"npformer/modern/rms_norm\.py exists already"),
    ("layer_norm", r"npformer\.LayerNormParams exists already"),
    ("RMSNorm", "no name for a module"),
])  # fmt: skip
def test_create_operation_rejects_taken_or_bad_name(name, message):
    with pytest.raises(CannotCreate, match=message):
        create_operation(name, is_core=False)


@pytest.mark.parametrize(("exercise", "section", "file", "message"), [
    ("cross_entropy.forward", None, None, "has the exercise cross_entropy.forward already"),
    ("kl", "07.2", None, "'kl' is no id of an exercise"),
    ("kl.backward", None, None, "say which section teaches it"),
    ("kl.backward", "7", None, "'7' is no number of a section"),
    ("kl.backward", "07.99", None, r"lesson 07 has no section 7\.99"),
    ("kl.backward", "07.2", "kl", "the bank has no file 'kl'"),
], ids=lambda value: str(value)[:20])  # fmt: skip
def test_create_exercise_rejects_bad_input(exercise, section, file, message):
    with pytest.raises(CannotCreate, match=message):
        create_exercise(exercise, "function", section, file, None, 2)


@pytest.mark.parametrize(("section", "message"), [
    ("07.6", r"7\.6 has the title 'Training'"),
    ("07.99", r"7\.99 would leave a gap"),
    ("99.1", "there is no lesson 99"),
])  # fmt: skip
def test_create_section_rejects_taken_or_distant_number(section, message):
    with pytest.raises(CannotCreate, match=message):
        create_section(section, "Beam search")


@pytest.mark.parametrize(("lesson", "number", "n_steps"), [(7, 11, 0), (10, 12, 1)])
def test_create_section_notices_section_without_code(lesson, number, n_steps):
    """Section 7.10 has code, section 10.11 has none."""
    notebook = json.loads((ROOT / lesson_path(lesson)).read_text(encoding="utf-8"))
    steps = steps_for_text_before(notebook, lesson, number)
    assert len(steps) == n_steps
    assert all(f"Section {lesson}.{number - 1} has no code cell" in step for step in steps)


# --- where a paragraph goes ----------------------------------------------------------------------------


def test_section_number_accepts_both_forms():
    assert section_number("07.2") == section_number("7.2") == (7, 2)


@pytest.mark.parametrize(("number", "index"), [(1, 1), (2, 2)])
def test_with_paragraph_keeps_order_of_sections(number, index):
    """Section 7.2 has a part in the text. Section 7.1 has none, so a new part is inserted before 7.2."""
    text = (
        "About.\n\n# 01, section 1.1, A\n\nRead A.\n\n## a.a\n\n# 07, section 7.2, B\n\nRead B.\n\n## b.b\n"
    )
    parts = with_paragraph(text, 7, number, "## c.c").split("\n# ")[1:]
    assert "## c.c" in parts[index] if number == 1 else "## b.b\n\n## c.c" in parts[-1]
    assert len(parts) == 4 - number


# --- the names that the templates import and use ------------------------------------------------------

VALUES = {"id": "kl.value", "function": "kl_value", "CODE": "KL-WRONG", "name": "kl", "Name": "Kl"}


def names_used(code):
    """Return the names that a module's code uses without defining or importing them."""
    nodes = [*ast.walk(ast.parse(code))]
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    defined = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    defined |= {name.asname or name.name for node in imports for name in node.names}
    return used - defined - set(vars(builtins))


@pytest.mark.parametrize("kind", IMPORTS)
def test_exercise_template_uses_existing_names(kind):
    """npformer has all names that the template imports, and the template uses exactly these names."""
    imported = {}
    for module, names in IMPORTS[kind].items():
        imported |= {name: getattr(import_module(module), name) for name in names}
    code = filled({"numbers": NUMBERS, "function": FUNCTION}[kind], **VALUES)
    assert names_used(code) == imported.keys()
    for call in ast.walk(ast.parse(code)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
            keywords = {keyword.arg: None for keyword in call.keywords}
            inspect.signature(imported[call.func.id]).bind(*call.args, **keywords)


@pytest.mark.parametrize("template", [MODULE, TESTS], ids=["module", "tests"])
def test_operation_template_uses_existing_names(template):
    code = filled(template, **VALUES)
    assert names_used(code) == set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom):
            assert all(hasattr(import_module(node.module), name.name) for name in node.names)


# --- the commands, in a copy of the project ------------------------------------------------------------


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """Run each command once in a copy of the project. Return the folder of the copy, and the outputs."""
    folder = tmp_path_factory.mktemp("new") / "project"
    shutil.copytree(ROOT, folder, ignore=LEFT_OUT)
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
    new = [sys.executable, "tests/new.py"]
    commands = [
        ["operation", "scaled_columns"],
        ["operation", "moved_columns", "--core"],
        ["exercise", "kl.backward", "--section", "07.2", "--file", "loss"],
        ["exercise", "kl.sign", "--section", "07.2", "--kind", "letter"],
        ["exercise", "kl.zero", "--section", "07.2", "--kind", "truth"],
        ["exercise", "kl.value", "--section", "07.2", "--kind", "numbers", "--file", "in_numbers"],
        ["section", "07.11", "Beam search"],
    ]
    return folder, [run(folder, *new, *command).stdout for command in commands]


def run(folder, *command):
    """Run a command in the copy of the project, so that Python imports npformer from the copy."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_new_prints_files_and_next_steps(project):
    folder, outputs = project
    for output in outputs:
        files, _, steps = output.partition("\nNext:\n")
        assert steps.startswith("1. "), output
        for line in files.splitlines():
            action, _, path = line.partition(": ")
            assert action in ("created", "changed") and (folder / path).is_file(), line


@pytest.mark.slow
def test_new_leaves_importable_package_and_bank(project):
    folder, _ = project
    code = (
        "import npformer, npformer.exercises as e;"
        "npformer.scaled_columns_forward, npformer.moved_columns_forward;"
        "print(*[e.show(name) for name in ('kl.backward', 'kl.sign', 'kl.zero', 'kl.value')]);"
        "print(npformer.lessons.reveal('7.11a'))"
    )
    shown = run(folder, sys.executable, "-c", code)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.count(MARK) >= 5


@pytest.mark.slow
def test_new_makes_tests_fail_for_missing_parts(project):
    """The failing tests name the missing texts and code. The lists that new.py updates make no test fail."""
    folder, _ = project
    files = [
        "tests/test_project_rules.py",
        "tests/test_moved_columns.py",
        "tests/modern/test_scaled_columns.py",
        "tests/test_classroom.py",
    ]
    options = ["-q", "-n", "0", "-p", "no:cacheprovider", "-k", "not test_names"]
    tests = run(folder, sys.executable, "-m", "pytest", *options, *files)
    failed = {line.split()[1].partition("::")[2] for line in tests.stdout.splitlines() if "FAILED" in line}
    names = {name.partition("[")[0] for name in failed}
    assert names == {
        "test_no_text_is_left_to_write",
        "test_forward_by_hand",
        "test_gradients",
        "test_golden_values",
        "test_every_backward_has_golden_values",
        "test_edges",
        "test_plan_lesson_and_readme_agree",
    }, tests.stdout
    assert "the gradient is 0 everywhere" in tests.stdout
    answers = "npformer/lessons/answers/07.md"
    last_line = len((folder / answers).read_text(encoding="utf-8").splitlines())
    assert f"{answers}:{last_line}: {MARK} write the answer." in tests.stdout


@pytest.mark.slow
def test_new_overwrites_nothing(project):
    folder, _ = project
    again = run(folder, sys.executable, "tests/new.py", "operation", "scaled_columns")
    assert again.returncode == 1 and "nothing was written" in again.stderr
