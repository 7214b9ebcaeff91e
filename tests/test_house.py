"""The rules of the house: who may import whom, what is public, what is written down, what is left out."""

import ast
import graphlib
import inspect
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
from golden import CASES

import npformer
import npformer.exercises
import npformer.lessons

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "npformer"

FLOORS = {
    "arrays": 0, "installation": 0, "tree": 1, "validation": 2,
    "normal": 3, "functional": 4, "backend": 4, "positional": 4, "gradcheck": 4, "optim": 4, "config": 5,
    "layer_norm": 6, "feed_forward": 6, "attention": 6, "embedding": 6, "loss": 6,
    "encoder": 7, "decoder": 7,
    "transformer": 8, "decoding": 9,
    "modern": 10, "pretrained": 11,
    "lessons": 12, "player": 13, "exercises": 14, "handouts": 15, "grader": 16,
    "npformer": 17,  # npformer/__init__.py, the list of public names
    "cli": 18,
    "__main__": 19,
}  # fmt: skip

TOP_LEVEL = {
    "README.md", "npformer", "notebooks", "tests", "figures", "pyproject.toml",
    ".ci", ".devcontainer", ".github", ".gitignore", "LICENSE", "CITATION.cff",
}  # fmt: skip

SLIDE = 25  # lines of a function below its signature and docstring
PATHS = sorted(PACKAGE.rglob("*.py"))
MODULES = {str(p.relative_to(PACKAGE)): ast.parse(p.read_text(encoding="utf-8")) for p in PATHS}


def floor(*parts):
    """The name that FLOORS knows: a module or a room."""
    return "npformer" if parts[0] in ("__init__", "npformer") else parts[0]


# --- imports only go down -------------------------------------------------------------------------


def imported(tree):
    """Names on FLOORS that a module imports, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            is_in_worker = node.level == 1  # see `test_worker_imports_only_itself_of_npformer`
            dotted = [] if is_in_worker else [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for package, *parts in (name.split(".") for name in dotted):
            if package == "npformer":
                yield floor(*parts) if parts and parts[0] in FLOORS else "npformer"


def test_imports_only_go_down():
    graph = {}
    for path, tree in MODULES.items():
        name = floor(*Path(path).with_suffix("").parts)
        assert name in FLOORS, f"{path}: give it a floor here and in the design"
        others = set(imported(tree)) - {name}
        assert [other for other in others if FLOORS[other] > FLOORS[name]] == [], path
        graph.setdefault(name, set()).update(others)
    graphlib.TopologicalSorter(graph).prepare()  # raises where imports go round in a circle


def test_worker_imports_only_itself_of_npformer():
    """It is imported as a package of its own in the student's process, where npformer must not be."""
    for path, tree in MODULES.items():
        is_in_worker = Path(path).parts[:2] == ("grader", "worker")
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0 or (is_in_worker and node.level == 1), f"{path}: write the name out"
        if is_in_worker:
            assert list(imported(tree)) == [], path


def test_what_windows_has_not_is_imported_where_it_is_used():
    """Every module is imported there too, for its examples."""
    for path, tree in MODULES.items():
        names = {name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names}
        assert names.isdisjoint({"resource", "fcntl", "pwd", "grp", "termios"}), path


# --- what `import npformer` costs -----------------------------------------------------------------

IMPORT_PROBE = """
import sys, numpy, numpy.random
before = set(sys.modules)
import npformer
added = [name for name in set(sys.modules) - before if not name.startswith("npformer")]
others = {name.partition(".")[0] for name in added} - set(sys.stdlib_module_names) - {"numpy"}
print(len(added), "npformer.exercises" in sys.modules, *sorted(others))
"""


def test_importing_the_package_brings_numpy_and_little_else():
    """Six small modules of the standard library with Python 3.11; what takes time is what is imported."""
    command = [sys.executable, "-c", IMPORT_PROBE]
    count, *others = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert others == ["False"] and int(count) <= 15


# --- the public names -----------------------------------------------------------------------------


# Names, order and defaults, as others have written code against them. A line may come, never go; annotations
# may grow, so none are in the lines. An argument that comes later, with a default, is written into its line.
CONTRACT = (ROOT / "tests/data/contract.txt").read_text(encoding="utf-8")
DOORS = {"": npformer, "exercises.": npformer.exercises, "lessons.": npformer.lessons}
RECORDS = ("Params", "Config", "State")  # NamedTuples that a user makes; caches and reports may change


def promise(thing):
    """`(x, *, eps=1e-05)`: a function's parameters or a NamedTuple's fields, without annotations."""
    parameters = inspect.signature(thing).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return re.sub(r"<(?:class|module) '(?:\w+\.)*(\w+)'.*?>", r"\1", str(inspect.Signature(bare)))


def test_every_promised_name_is_public_with_its_signature_and_every_new_one_is_promised():
    promised = {line for line in CONTRACT.splitlines() if line and not line.startswith("#")}
    public = {door + name: getattr(room, name) for door, room in DOORS.items() for name in room.__all__}
    functions = {name: thing for name, thing in public.items() if inspect.isfunction(inspect.unwrap(thing))}
    records = {name: thing for name, thing in public.items() if name.endswith(RECORDS)}
    found = {name + promise(thing) for name, thing in (functions | records).items()}
    assert promised - found == set(), "a promise is no longer kept"
    assert found - promised == set(), "write these lines into tests/data/contract.txt"


def test_all_is_sorted_without_repeats_and_importable():
    assert npformer.__all__ == sorted(set(npformer.__all__))
    assert [name for name in npformer.__all__ if not hasattr(npformer, name)] == []
    written = {name for name in vars(npformer) if not name.startswith("_") and name not in FLOORS}
    assert written <= set(npformer.__all__), "a name is imported into npformer/__init__.py but not in __all__"


# --- how the code is written ----------------------------------------------------------------------


def test_modules_and_public_names_have_docstrings():
    """A cache is described by its forward."""
    without = [path for path, tree in MODULES.items() if not ast.get_docstring(tree)]
    for path, node in ((path, node) for path, tree in MODULES.items() for node in tree.body):
        public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
        if public and not node.name.endswith("Cache") and not ast.get_docstring(node):
            without.append(f"{path}:{node.lineno} {node.name}")
    assert without == []


def test_a_forward_stands_directly_above_its_backward():
    for path, tree in MODULES.items():
        if FLOORS[floor(*Path(path).with_suffix("").parts)] <= FLOORS["modern"]:
            names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
            for name, below in itertools.pairwise(["", *names, ""]):
                forward = name.endswith("_forward") and not name.startswith("_")
                if forward or (below.endswith("_backward") and not below.startswith("_")):
                    assert forward and below == name.replace("_forward", "_backward"), f"{path}: {name}"


def test_every_function_fits_on_a_slide():
    long = []
    for path, node in ((path, node) for path, tree in MODULES.items() for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body and node.end_lineno - body[0].lineno + 1 > SLIDE:
                long.append(f"{path}:{node.lineno} {node.name}")
    assert long == []


# --- what is in the repository --------------------------------------------------------------------

# Written in pieces, so that this file does not find itself.
FORBIDDEN = {
    "a path of one machine": "/(?:wo" "rk|ro" "ot|ho" r"me/\w+|Us" r"ers/\w+)/|[A-Z]:\\\\?Us" "ers",
    "a registry's host": r"pypi\.o" r"rg|files\.python" r"hosted|registry\.npm" r"js|conda\.ana" "conda",
    "an unfinished mark": r"\bTO" r"DO\b|\bFIX" r"ME\b|\bX" r"XX\b",
    "a memory address": r"\bat 0x[0-9a-f]{6,}",
    "a kernel's temporary file": "ipykernel" r"_\d+",
}  # fmt: skip


def repository_files():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [path for path in listing.stdout.splitlines() if (ROOT / path).is_file()]


PICTURE = re.compile(r'data:image/png;base64,[^"\\]*|"image/png": "[^"]*"')  # any letters


def test_every_golden_answer_is_asked_for():
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    asked = "".join(re.findall(r"agrees_with_pytorch\((.*?)\)", tests, re.DOTALL))
    assert {case["operation"] for case in CASES.values()} == {*re.findall(r'"(\w+)"', asked)}


def test_nothing_lies_at_the_top_but_what_belongs_there():
    assert {Path(path).parts[0] for path in repository_files()} <= TOP_LEVEL


def text_offences(path, text):
    """What must not be written, and what came from elsewhere: a licence, code that a tool has squeezed."""
    found = [what for what, pattern in FORBIDDEN.items() if re.search(pattern, PICTURE.sub("", text))]
    squeezed = path.endswith((".js", ".css")) and max(map(len, text.splitlines()), default=0) > 1000
    licence = path != "LICENSE" and re.search("permission is hereby gran" + "ted", text, flags=re.I)
    return [f"{path}: {what}" for what in [*found, *["others wrote it"] * bool(squeezed or licence)]]


def test_no_machine_paths_hosts_unfinished_marks_or_borrowed_files():
    texts = {path: (ROOT / path).read_bytes() for path in repository_files()}
    texts = {path: data.decode("utf-8") for path, data in texts.items() if b"\0" not in data}
    assert [offence for path, text in texts.items() for offence in text_offences(path, text)] == []
