"""The rules of the house: who may import whom, what is public, what is written down, what is left out.

Every rule is a function that takes source text and returns a list of offences.
"""

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import contract
import pytest

import npformer

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "npformer"

FLOORS = {
    "arrays": 0, "installed": 0, "tree": 1, "door": 2,
    "normal": 3, "functional": 4, "backend": 4, "positional": 4, "gradcheck": 4, "optim": 4, "config": 5,
    "layer_norm": 6, "feed_forward": 6, "attention": 6, "embedding": 6, "loss": 6,
    "encoder": 7, "decoder": 7,
    "transformer": 8, "decoding": 9,
    "modern": 10, "published": 11, "teaching": 12, "exercises": 13, "grader": 14,
    "npformer": 15,  # npformer/__init__.py, the list of public names
    "cli": 16,
    "__main__": 17,
}  # fmt: skip

TOP_LEVEL = {
    "README.md", "npformer", "notebooks", "tests", "figures", "pyproject.toml",
    ".ci", ".devcontainer", ".github", ".gitignore", "LICENSE", "CITATION.cff",
}  # fmt: skip

parsed = functools.cache(ast.parse)
SLIDE = 25  # lines of a function below its signature and docstring


def sources():
    """{path relative to the package: source text} of every module."""
    return {str(p.relative_to(PACKAGE)): p.read_text(encoding="utf-8") for p in sorted(PACKAGE.rglob("*.py"))}


def module_name(path):
    """The name that FLOORS knows: "plots.py" and "plots/lines.py" are both "plots"."""
    first, *rest = Path(path).with_suffix("").parts
    return "npformer" if first == "__init__" else on_a_floor(first, *rest)


def on_a_floor(first, *rest):
    """A module of a room that has a floor of its own, or its room."""
    return f"{first}.{rest[0]}" if rest and f"{first}.{rest[0]}" in FLOORS else first


# --- imports only go down -------------------------------------------------------------------------


def imported_modules(source, path="positional.py"):
    """Modules of the package that a source imports, wherever the import stands."""
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            depth = len(Path(path).parts)
            inside = ["npformer", *Path(path).parts[:-1]][: depth - node.level + 1] if node.level else []
            base = ".".join([*inside, *([node.module] if node.module else [])])
            dotted = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in dotted:
            parts = name.split(".")
            if parts[0] == "npformer":
                yield on_a_floor(*parts[1:]) if len(parts) > 1 and parts[1] in FLOORS else "npformer"


def floor_offences(modules):
    found, graph = [], {}
    for path, source in modules.items():
        name = module_name(path)
        if name not in FLOORS:
            found.append(f"{path}: no floor is known for {name}; give it one in FLOORS and in the design")
            continue
        others = set(imported_modules(source, path)) - {name}
        found += [
            f"{path} imports {o}, which lives higher up" for o in sorted(others) if FLOORS[o] > FLOORS[name]
        ]
        graph.setdefault(name, set()).update(others)
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        found.append(f"imports go round in a circle: {' -> '.join(error.args[1])}")
    return found


def test_imports_only_go_down():
    assert floor_offences(sources()) == []


# --- what `import npformer` costs -----------------------------------------------------------------

IMPORT_PROBE = """
import sys, numpy, numpy.random
before = set(sys.modules)
{statement}
added = [name for name in set(sys.modules) - before if not name.startswith("npformer")]
others = {{name.partition(".")[0] for name in added}} - set(sys.stdlib_module_names) - {{"numpy"}}
print(len(added), *sorted(others))
"""


def import_probe(statement):
    """(modules besides NumPy's and our own, names from outside the standard library)"""
    command = [sys.executable, "-c", IMPORT_PROBE.format(statement=statement)]
    count, *names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return int(count), names


def test_importing_the_package_leaves_the_exercises_alone():
    probe = "import npformer, sys; print('npformer.exercises' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True).stdout == "False\n"


def test_importing_the_package_brings_numpy_and_little_else():
    """Six small modules of the standard library with Python 3.11; what takes time is what is imported."""
    count, names = import_probe("import npformer")
    assert names == [] and count <= 15


# --- the public names -----------------------------------------------------------------------------


def test_every_promised_name_is_public_with_its_signature_and_every_new_one_is_promised():
    promises = contract.promised(contract.FILE.read_text(encoding="utf-8"))
    assert contract.broken(promises, contract.public()) == []


def test_all_is_sorted_without_repeats_and_importable():
    assert npformer.__all__ == sorted(set(npformer.__all__))
    assert [name for name in npformer.__all__ if not hasattr(npformer, name)] == []
    written = {name for name in vars(npformer) if not name.startswith("_") and name not in FLOORS}
    assert written <= set(npformer.__all__), "a name is imported into npformer/__init__.py but not in __all__"


# --- how the code is written ----------------------------------------------------------------------


def functions(tree):
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def docstring_offences(modules):
    """Modules, public functions and public classes say what they are; a cache is described by its forward."""
    found = []
    for path, source in modules.items():
        tree = parsed(source)
        if not ast.get_docstring(tree):
            found.append(f"{path} has no docstring")
        for node in tree.body:
            public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            if public and not node.name.endswith("Cache") and not ast.get_docstring(node):
                found.append(f"{path}:{node.lineno} {node.name} has no docstring")
    return found


def test_modules_and_public_names_have_docstrings():
    assert docstring_offences(sources()) == []


def pair_offences(modules):
    """Each `*_forward` stands directly above its `*_backward`, and neither stands alone."""
    found = []
    for path, source in modules.items():
        names = [n.name for n in parsed(source).body if isinstance(n, ast.FunctionDef)]
        for name in (n for n in names if not n.startswith("_")):
            here = names.index(name)
            if name.endswith("_forward") and names[here + 1 : here + 2] != [name[:-8] + "_backward"]:
                found.append(f"{path}: {name} is not followed by its backward")
            if name.endswith("_backward") and name[:-9] + "_forward" not in names:
                found.append(f"{path}: {name} has no forward")
    return found


def test_a_forward_stands_directly_above_its_backward():
    assert (
        pair_offences({p: s for p, s in sources().items() if 4 <= FLOORS.get(module_name(p), 0) <= 10}) == []
    )


def used_names(node):
    for n in ast.walk(node):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
            yield n.id
        elif isinstance(n, ast.Attribute):
            yield n.attr
        elif isinstance(n, ast.ImportFrom):
            yield from (alias.name for alias in n.names)


def defined_names(node):
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [t.id for t in targets if isinstance(t, ast.Name)]


def unused_offences(modules):
    """Private module-level names that nothing else in the package mentions; recursion alone is no use."""
    statements = [(path, node) for path, source in modules.items() for node in parsed(source).body]
    uses = [set(used_names(node)) for _, node in statements]
    times = Counter(name for names in uses for name in names)
    return [
        f"{path}:{node.lineno} {name} is used nowhere"
        for (path, node), own in zip(statements, uses, strict=True)
        for name in defined_names(node)
        if name.startswith("_") and not name.startswith("__") and times[name] == (name in own)
    ]


def test_no_private_name_is_unused():
    assert unused_offences(sources()) == []


def slide_offences(modules):
    found = []
    for path, source in modules.items():
        for node in functions(parsed(source)):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = node.end_lineno - body[0].lineno + 1 if body else 0
            if lines > SLIDE:
                found.append(f"{path}:{node.lineno} {node.name} is {lines} lines long, more than a slide")
    return found


def test_every_function_fits_on_a_slide():
    assert slide_offences(sources()) == []


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


def test_nothing_lies_at_the_top_but_what_belongs_there():
    assert {Path(path).parts[0] for path in repository_files()} - TOP_LEVEL == set()


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
