"""The rules of the project: imports, public names, docstrings, names of tests, files of the repository."""

import ast
import graphlib
import inspect
import itertools
import re
import subprocess
import sys
import tomllib
from functools import cache
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
    "modern": 10, "pretrained": 11, "post_training": 11,
    "lessons": 12, "player": 13, "exercises": 14, "handouts": 15, "grader": 16, "quiz": 16,
    "npformer": 17,  # npformer/__init__.py, the list of public names
    "cli": 18,
    "__main__": 19,
}  # fmt: skip

TOP_LEVEL = {
    "README.md", "npformer", "notebooks", "tests", "figures", "pyproject.toml",
    ".ci", ".devcontainer", ".github", ".gitignore", "LICENSE", "CITATION.cff",
}  # fmt: skip

SLIDE = 25  # the largest number of lines of a function below its signature and docstring
MOST_WORDS = 8  # the largest number of words in the name of a test, after "test_"
PATHS = sorted(PACKAGE.rglob("*.py"))
TEST_FILES = sorted((ROOT / "tests").rglob("test_*.py"))
MODULES = {str(p.relative_to(PACKAGE)): ast.parse(p.read_text(encoding="utf-8")) for p in PATHS}


def floor(*parts):
    """Return the key in FLOORS for a module; `parts` are the parts of the module's dotted name."""
    return "npformer" if parts[0] in ("__init__", "npformer") else parts[0]


# --- imports only go down -------------------------------------------------------------------------


def imported(tree):
    """Yield the keys in FLOORS of all modules that a module imports, at the top or inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            is_in_worker = node.level == 1  # test_worker_imports_only_itself_of_npformer checks these
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
        assert name in FLOORS, (
            f"{path}: add its level to FLOORS here, and a line to notebooks/guide/layout.md"
        )
        imports = set(imported(tree)) - {name}
        assert [module for module in imports if FLOORS[module] > FLOORS[name]] == [], path
        graph.setdefault(name, set()).update(imports)
    graphlib.TopologicalSorter(graph).prepare()  # raises CycleError for circular imports


def test_worker_imports_only_itself_of_npformer():
    """The student's process imports the worker as a separate package, and must not import npformer."""
    for path, tree in MODULES.items():
        is_in_worker = Path(path).parts[:2] == ("grader", "worker")
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0 or (is_in_worker and node.level == 1), f"{path}: write the name out"
        if is_in_worker:
            assert list(imported(tree)) == [], path


def test_modules_missing_on_windows_are_imported_in_functions():
    """Doctests import every module on Windows too, and Windows does not have modules such as `fcntl`."""
    for path, tree in MODULES.items():
        names = {name.name for node in tree.body if isinstance(node, ast.Import) for name in node.names}
        assert names.isdisjoint({"resource", "fcntl", "pwd", "grp", "termios"}), path


# --- the cost of `import npformer` ----------------------------------------------------------------

IMPORT_PROBE = """
import sys, numpy, numpy.random
before = set(sys.modules)
import npformer
added = [name for name in set(sys.modules) - before if not name.startswith("npformer")]
others = {name.partition(".")[0] for name in added} - set(sys.stdlib_module_names) - {"numpy"}
later = {"exercises", "gradcheck.high_precision", "lessons", "player", "pretrained"}
early = [name for name in later if f"npformer.{name}" in sys.modules]
print(len(added), *early, *sorted(others))
"""


def test_import_of_package_imports_numpy_and_little_else():
    """Importing npformer takes half the time of `import numpy`. With Python 3.11, it imports few modules."""
    command = [sys.executable, "-c", IMPORT_PROBE]
    count, *others = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    assert others == [] and int(count) <= 15


LATER_PROBE = """
import pickle
import npformer as npf
assert "table_1" in dir(npf) and "table_1" not in vars(npf)
assert pickle.loads(pickle.dumps(npf.table_1)) is npf.table_1
assert npf.lessons.costs.table_1 is npf.table_1.__wrapped__
names = {}
exec("from npformer import *", names)
assert names.keys() >= set(npf.__all__)
try:
    npf.ffn_foward
except AttributeError as error:
    print(error)
"""


def test_names_imported_later_behave_like_others():
    command = [sys.executable, "-c", LATER_PROBE]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "module 'npformer' has no attribute 'ffn_foward'"
    with pytest.raises(AttributeError, match=r"^module 'npformer' has no attribute 'no_such_name'$"):
        npformer.no_such_name  # noqa: B018
    assert npformer.player.__name__ == npformer.__getattr__("player").__name__ == "npformer.player"
    assert {*npformer.__all__, "player"} <= {*dir(npformer)}


# --- the public names -----------------------------------------------------------------------------


# The names, the order and the defaults of all public arguments. Users have written code that depends on them,
# so a line may be added, but never removed. The lines contain no annotations, because annotations may change.
# A new argument needs a default, and the line of its function must be edited.
CONTRACT = (ROOT / "tests/data/contract.txt").read_text(encoding="utf-8")
PUBLIC_MODULES = {"": npformer, "exercises.": npformer.exercises, "lessons.": npformer.lessons}
# Users create NamedTuples with these endings. Caches and reports are not in CONTRACT, so their fields may
# change.
RECORDS = ("Params", "Config", "State")


def promise(function):
    """Return the signature of a function or a NamedTuple without annotations, such as `(x, *, eps=1e-05)`."""
    parameters = inspect.signature(function).parameters.values()
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return re.sub(r"<(?:class|module) '(?:\w+\.)*(\w+)'.*?>", r"\1", str(inspect.Signature(bare)))


def has_promised_signature(name, value):
    """Return whether a public name is a function, or a NamedTuple that users create."""
    return inspect.isfunction(inspect.unwrap(value)) or name.endswith(RECORDS)


def test_public_signatures_equal_the_contract():
    promised = {line for line in CONTRACT.splitlines() if line and not line.startswith("#")}
    found = set()
    for prefix, module in PUBLIC_MODULES.items():
        for name in module.__all__:
            value = getattr(module, name)
            if has_promised_signature(name, value):
                found.add(prefix + name + promise(value))
    assert promised - found == set(), (
        "these promised signatures have changed. "
        "If you only added an argument with a default, edit its line in tests/data/contract.txt"
    )
    assert found - promised == set(), "add these lines to tests/data/contract.txt"


def test_version_equals_that_of_pyproject():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert npformer.__version__ == tomllib.loads(text)["project"]["version"]


def test_all_is_sorted_without_repeats_and_importable():
    assert npformer.__all__ == sorted(set(npformer.__all__))
    assert [name for name in npformer.__all__ if not hasattr(npformer, name)] == []
    # pytest adds names that begin with "@" to the modules of a plugin.
    public_names = {name for name in vars(npformer) if not name.startswith(("_", "@"))}
    imported_names = public_names - set(FLOORS)
    assert imported_names <= set(npformer.__all__), (
        "npformer/__init__.py imports a name that is not in __all__"
    )


# --- docstrings, order and length of functions ----------------------------------------------------


def test_modules_and_public_names_have_docstrings():
    """Caches need no docstring, because the docstring of the forward function describes its cache."""
    without = [path for path, tree in MODULES.items() if not ast.get_docstring(tree)]
    for path, node in ((path, node) for path, tree in MODULES.items() for node in tree.body):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        if not node.name.endswith("Cache") and not ast.get_docstring(node):
            without.append(f"{path}:{node.lineno} {node.name}")
    assert without == []


def test_every_forward_is_directly_above_its_backward():
    for path, tree in MODULES.items():
        if FLOORS[floor(*Path(path).with_suffix("").parts)] <= FLOORS["modern"]:
            names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
            for name, below in itertools.pairwise(["", *names, ""]):
                forward = name.endswith("_forward") and not name.startswith("_")
                if forward or (below.endswith("_backward") and not below.startswith("_")):
                    assert forward and below == name.replace("_forward", "_backward"), f"{path}: {name}"


def test_every_function_fits_on_a_slide():
    too_long = []
    for path, node in ((path, node) for path, tree in MODULES.items() for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            assert node.end_lineno is not None
            if body and node.end_lineno - body[0].lineno + 1 > SLIDE:
                too_long.append(f"{path}:{node.lineno} {node.name}")
    assert too_long == []


# --- the files of the repository ------------------------------------------------------------------

# Each pattern is written in pieces, so that it does not match this file.
FORBIDDEN = {
    "a path of one machine": "/(?:wo" "rk|ro" "ot|ho" r"me/\w+|Us" r"ers/\w+)/|[A-Z]:\\\\?Us" "ers",
    "a registry's host": r"pypi\.o" r"rg|files\.python" r"hosted|registry\.npm" r"js|conda\.ana" "conda",
    "a memory address": r"\bat 0x[0-9a-f]{6,}",
    "a kernel's temporary file": "ipykernel" r"_\d+",
}  # fmt: skip


def repository_files():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [path for path in listing.stdout.splitlines() if (ROOT / path).is_file()]


UNFINISHED = re.compile(r"\bTO" r"DO\b|\bFIX" r"ME\b|\bX" r"XX\b")
# Encoded pictures are removed before the search, because their random letters can match a pattern.
PICTURE = re.compile(r'data:image/png;base64,[^"\\]*|"image/png": "[^"]*"')


def test_every_golden_case_is_tested():
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    arguments = "".join(re.findall(r"agrees_with_pytorch\((.*?)\)", tests, re.DOTALL))
    assert {case["operation"] for case in CASES.values()} == {*re.findall(r'"(\w+)"', arguments)}


# Backward functions without golden values of PyTorch, each with the reason.
WITHOUT_GOLDEN_VALUES = {
    "dropout": "PyTorch draws different random numbers",
    "learned_positions": "PyTorch has no such function: it is an addition, and golden models use it",
    "rope": "PyTorch has no such function; golden cases of attention and of models use it",
    "tiled_attention": "test_tiled_attention.py compares it with attention, which has golden values",
}


@cache
def operations_tested_with(helper):
    """Return the operations that the tests pass to a helper, such as make_gradient_test("ffn", …)."""
    operations = set()
    for path in TEST_FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id == helper:
                arguments = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
                operations.update(map(str, arguments))
    return operations


def test_every_backward_has_a_gradient_test():
    operations = {name.removesuffix("_backward") for name in npformer.__all__ if name.endswith("_backward")}
    advice = 'write test_gradients = make_gradient_test("<operation>", {}) in the tests of these operations'
    assert operations - operations_tested_with("make_gradient_test") == set(), advice


def test_every_backward_has_golden_values():
    operations = {name.removesuffix("_backward") for name in npformer.__all__ if name.endswith("_backward")}
    without = operations - operations_tested_with("agrees_with_pytorch")
    advice = (
        'write test_golden_values = agrees_with_pytorch("<operation>") in the tests of these operations, '
        "or add them with a reason to WITHOUT_GOLDEN_VALUES"
    )
    assert without == set(WITHOUT_GOLDEN_VALUES), advice


def test_top_level_has_only_known_files():
    assert {Path(path).parts[0] for path in repository_files()} <= TOP_LEVEL


def text_offences(path, text):
    """Return messages about forbidden patterns and signs of copied code: a licence text or minified code."""
    offences = [what for what, pattern in FORBIDDEN.items() if re.search(pattern, text)]
    is_minified = path.endswith((".js", ".css")) and max(map(len, text.splitlines()), default=0) > 1000
    has_licence = path != "LICENSE" and re.search("permission is hereby gran" + "ted", text, flags=re.I)
    if is_minified or has_licence:
        offences.append("others wrote it")
    return [f"{path}: {what}" for what in offences]


@cache
def repository_texts():
    """Return {path: text} of the text files, without encoded pictures."""
    files = {path: (ROOT / path).read_bytes() for path in repository_files()}
    return {path: PICTURE.sub("", data.decode("utf-8")) for path, data in files.items() if b"\0" not in data}


def test_no_file_has_forbidden_text():
    offences = []
    for path, text in repository_texts().items():
        offences += text_offences(path, text)
    assert offences == []


def test_no_text_is_left_to_write():
    """No file contains a mark for missing text or code, such as the marks that tests/new.py writes."""
    unfinished = []
    for path, text in repository_texts().items():
        for number, line in enumerate(text.splitlines(), start=1):
            if UNFINISHED.search(line):
                unfinished.append(f"{path}:{number}: {line.strip()}")
    assert not unfinished, "\n".join(["write what is missing:", *unfinished])


# --- the names of the tests ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: path.stem)
def test_test_names_have_at_most_eight_words(path):
    """A name has the form test_<function>_<what it does>, and must fit on a line of pytest's report."""
    names = re.findall(r"\bdef (test_\w+)|^ *(test_\w+) = ", path.read_text(encoding="utf-8"), re.MULTILINE)
    for name in ("".join(pair) for pair in names):
        words = name.removeprefix("test_").split("_")
        assert len(words) <= MOST_WORDS, f"{name} has {len(words)} words"
