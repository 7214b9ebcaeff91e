"""Break the package in hundreds of small ways and count the breaks that no test notices.

    uv run python tests/mutation.py                     a seeded sample of 300 mutants
    uv run python tests/mutation.py --sample 40 --only attention

A mutant is one change to one operator, number, comparison, truth value, keyword or statement of a module;
strings, annotations and messages are left alone. Each runs the tests of its module in a copy of the project
and is killed when one fails or none ends in time. Survivors are listed; those in EQUIVALENT compute the same.
"""

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
TESTS = {  # the fastest to notice first
    "functional": ["test_functional.py", "test_golden.py", "test_feed_forward.py", "test_bad_input.py"],
    "positional": ["test_positional.py", "test_attention.py", "test_bad_input.py"],
    "layer_norm": ["test_layer_norm.py", "test_golden.py", "test_bad_input.py", "test_edge_cases.py"],
    "feed_forward": ["test_feed_forward.py", "test_golden.py", "test_bad_input.py", "test_edge_cases.py"],
    "attention": ["test_attention.py", "test_golden.py", "test_bad_input.py", "test_edge_cases.py"],
    "encoder": ["test_golden.py", "test_bad_input.py", "test_encoder.py"],
    "gradcheck": ["test_gradcheck.py"],
    "published.minilm": ["published/test_minilm.py", "test_bad_input.py"],
    "published.torch_names": ["published/test_torch_names.py", "test_bad_input.py"],
}
SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
EQUIVALENT = {  # "module: line | what": why no test can tell
    "functional: return abs((z > 0) - tail) | comparison: z > 0 -> z >= 0": "both are ½ at 0",
    "gradcheck: for place in np.argwhere(found.doubt > enough): "
    "| comparison: found.doubt > enough -> found.doubt >= enough": "just enough is as good refined",
    "gradcheck: if isinstance(value, np.random.Generator): "
    "| condition: if isinstance(value, np.random.Generator): -> if True:": "a deep copy is alike",
    "positional: following = hands[2**k : 2 ** (k + 1)] | number: 2 -> 3": "the next turn writes those rows",
    "positional: following = hands[2**k : 2 ** (k + 1)] | number: 1 -> 2": "the next turn writes those rows",
    "positional: d_model = rows.shape[-1] | sign: -1 -> 1": "rows has two axes",
    "attention: LARGE = 2**18  # entries; a whole (..., T_q, T_k) more than this would be much memory "
    "| operator: 2 ** 18 -> 2 * 18": "head by head gives the same numbers",
    "published.minilm: if TYPE_CHECKING: | condition: if TYPE_CHECKING: -> if True:": "only an import",
    "published.minilm: means /= xp.sqrt((means * means).sum(axis=-1, keepdims=True)) "
    "| sign: -1 -> 1": "means has two axes",
    "published.minilm: return reader.weights.get_tensor(name).astype(reader.dtype, copy=False) "
    "| truth: False -> True": "a copy is alike",
    "gradcheck: index = _position(np.where(among, error, -1.0)) "
    "| number: 1.0 -> 1.001": "below every error all the same",
}


def variants(node):
    """The mutated forms of one node, each with a word for what was done."""
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
        yield "operator", changed(node, op=SWAPS[type(node.op)]())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield "comparison", changed(node, ops=[SWAPS[type(node.ops[0])](), *node.ops[1:]])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not | ast.Invert):
        yield "sign", node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield "truth", changed(node, value=not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float | complex):
        yield "number", changed(node, value=node.value + 1)
        if isinstance(node.value, float) and node.value:
            yield "number", changed(node, value=node.value * 1.001)
    if isinstance(node, ast.Call) and node.keywords:
        yield "keyword", changed(node, keywords=node.keywords[1:])
    if isinstance(node, ast.AugAssign | ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield "statement", ast.copy_location(ast.Pass(), node)
    if isinstance(node, ast.If):
        yield "condition", changed(node, test=ast.Constant(True))


def changed(node, **fields):
    node = copy.copy(node)
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def mutable(node):
    """Every node below that is code: no strings, annotations, types of a NamedTuple's fields or messages."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params") or isinstance(node, ast.JoinedStr | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise) or (isinstance(node, ast.FunctionDef) and name == "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from mutable(child)


def mutants(module):
    """(line, what, source) for every mutant of a module."""
    source = (ROOT / "npformer" / f"{module}.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    for number, node in enumerate(mutable(tree)):
        for what, mutated in variants(node):
            fresh = ast.parse(source)
            target = list(mutable(fresh))[number]
            Replace(target, mutated).visit(fresh)
            line = source.splitlines()[node.lineno - 1].strip()
            short = f"{ast.unparse(node).splitlines()[0]} -> {ast.unparse(mutated).splitlines()[0]}"
            yield node.lineno, line, f"{what}: {short}", ast.unparse(ast.fix_missing_locations(fresh))


class Replace(ast.NodeTransformer):
    def __init__(self, target, mutated):
        self.target, self.mutated = target, mutated

    def visit(self, node):
        return self.mutated if node is self.target else self.generic_visit(node)


def equivalent(module, line, what):
    """Why a mutant computes the same, or nothing; `strict` guards lists that are as long by construction."""
    if "strict=True" in line and ("True -> False" in what or what.startswith("keyword: zip(")):
        return "the lists are as long as each other"
    return EQUIVALENT.get(f"{module}: {line} | {what}", "")


def survives(folder, module, source, limit):
    path = folder / "npformer" / f"{module}.py"
    original = path.read_text(encoding="utf-8")
    path.write_text(source, encoding="utf-8")
    try:
        return run_tests(folder, module, limit) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        path.write_text(original, encoding="utf-8")


def run_tests(folder, module, limit=None):
    tests = [f"tests/{name}" for name in TESTS[module]]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    settings = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=settings, capture_output=True, timeout=limit).returncode


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=TESTS, action="append", help="this module (may be repeated)")
    parser.add_argument(
        "--limit", type=float, default=300, help="seconds after which a mutant counts as killed"
    )
    options = parser.parse_args()
    every = [(module, *mutant) for module in options.only or TESTS for mutant in mutants(module)]
    chosen = random.Random(options.seed).sample(every, min(options.sample, len(every)))
    print(f"{len(chosen)} of {len(every)} mutants", flush=True)
    with tempfile.TemporaryDirectory() as top:
        folders = SimpleQueue()
        for i in range(options.workers):
            ignore = shutil.ignore_patterns(".*", "notebooks", "figures")
            folders.put(Path(shutil.copytree(ROOT, Path(top) / str(i), ignore=ignore)))

        def judge(mutant):
            module, number, line, what, source = mutant
            folder = folders.get()
            alive = survives(folder, module, source, options.limit)
            folders.put(folder)
            if alive:
                why = equivalent(module, line, what)
                print(
                    f"npformer/{module}.py:{number} survived: {line} | {what} {why and f'(same: {why})'}",
                    flush=True,
                )
                return "equivalent" if why else "survived"
            return "killed"

        with ThreadPoolExecutor(options.workers) as pool:
            counts = Counter(pool.map(judge, chosen))
    share = counts["survived"] / max(1, len(chosen))
    print(f"{dict(counts)}: {share:.1%} survive and are not known to be equivalent")
    return share >= 0.05


if __name__ == "__main__":
    sys.exit(main())
