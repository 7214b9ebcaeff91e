"""Break the package in hundreds of small ways and count the breaks that no test notices.

    uv run python tests/mutation.py                     a seeded sample of 450 mutants
    uv run python tests/mutation.py --sample 40 --only attention
    uv run python tests/mutation.py --write tests/data/mutants.json

A mutant is one change to one operator, number, comparison, truth value, keyword or statement of a module, one
name for another (b_K for b_Q, n_layers for n_heads), or one letter of a shape in a signature; other strings
and messages are left alone. Each runs the tests of its module in a copy of the project, where they pass
without it, and is killed when one fails or does not end in time. Survivors are listed; those in EQUIVALENT
compute the same.
"""

import argparse
import ast
import copy
import functools
import importlib
import itertools
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from queue import SimpleQueue

os.environ["OMP_NUM_THREADS"] = "1"
for name in ("numpy", "hypothesis", "mpmath"):  # at hand in every process that is forked off here
    importlib.import_module(name)
import pytest  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
MODEL = ["test_bad_input.py"]
CHECKS = (
    "door.validate",
    "door.signature",
    "door.annotations",
    "door.rules",
    "config",
)  # every function goes through them
TESTS = {  # the fastest to notice first
    "functional": ["test_functional.py", "test_feed_forward.py", "test_bad_input.py"],
    "positional": ["test_positional.py", "test_attention.py", "test_bad_input.py"],
    "layer_norm": ["test_layer_norm.py", "test_properties.py", "test_bad_input.py"],
    "feed_forward": ["test_feed_forward.py", "test_properties.py", "test_bad_input.py"],
    "attention": [
        "test_attention.py",
        "modern/test_grouped_query_attention.py",
        "test_properties.py",
        *MODEL,
    ],
    "embedding": ["test_embedding.py", "test_properties.py", *MODEL],
    "encoder": ["test_encoder.py", *MODEL],
    "decoder": ["test_decoder.py", *MODEL],
    "transformer": ["test_transformer.py", *MODEL],
    "decoding": ["test_transformer.py", "test_properties.py"],
    "config": ["test_encoder.py", "test_bad_input.py"],
    "loss": ["test_loss.py", "test_properties.py", "test_bad_input.py"],
    "optim": ["test_optim.py", "test_properties.py", "test_bad_input.py"],
    "tree": ["test_tree.py", "test_backend.py", "test_bad_input.py"],
    "backend": ["test_backend.py", "test_gpu.py"],
    "door.validate": ["test_properties.py", "test_bad_input.py", "test_gpu.py"],
    "door.rules": [
        "test_bad_input.py",
        "test_properties.py",
        "test_transformer.py",
        "test_optim.py",
        "test_signature.py",
        "modern/test_generation.py",
    ],
    "door.signature": ["test_signature.py", "test_bad_input.py", "test_properties.py"],
    "door.annotations": ["test_signature.py", "test_bad_input.py", "test_properties.py"],
    "normal": ["test_functional.py"],
    "gradcheck.differences": ["test_gradcheck.py", "test_adversarial.py"],
    "gradcheck.judging": ["test_gradcheck.py", "test_adversarial.py"],
    "gradcheck.relations": ["test_relations.py", "test_gradcheck.py"],
    "gradcheck.report": ["test_gradcheck.py"],
    "modern.rms_norm": ["modern/test_rms_norm.py", "test_bad_input.py"],
    "modern.gated_ffn": ["modern/test_gated_ffn.py", "test_bad_input.py"],
    "modern.causal_lm": ["modern/test_causal_lm.py"],
    "modern.generation": ["modern/test_generation.py", "modern/test_causal_lm.py"],
    "modern.tiled_attention": ["modern/test_tiled_attention.py", "test_bad_input.py"],
    "modern.byte_pairs": ["modern/test_byte_pairs.py"],
    "published.reader": [f"published/test_{x}.py" for x in ("torch_names", "loaders")],
    "published.llama2c": ["published/test_loaders.py", "published/test_vocabularies.py"],
    "published.llama": ["published/test_loaders.py", "published/test_torch_names.py"],
    "published.gguf": ["published/test_loaders.py", "published/test_vocabularies.py"],
    "published.safetensors_files": ["published/test_safetensors.py", "published/test_loaders.py", *MODEL],
    "published.stories": ["published/test_stories.py"],
    "published.minilm": ["published/test_minilm.py", "published/test_loaders.py", "test_bad_input.py"],
    "published.torch_names": ["published/test_torch_names.py", "test_bad_input.py"],
}
LIMIT = 300  # seconds for a file of tests: what takes longer counts as killed
AT_LEAST = 12  # mutants of every module in a sample
LETTERED = {"Float", "Ids", "Mask", "Bias", "Numbers", "Shape"}  # followed by the letters of a shape
EXCHANGED = {  # one name taken for another
    "b_Q": "b_K", "b_K": "b_Q", "b_V": "b_O", "b_O": "b_K", "W_Q": "W_K", "W_K": "W_Q", "W_V": "W_O",
    "W_O": "W_V",
    "norm_1": "norm_2", "norm_2": "norm_1", "norm_3": "norm_2", "n_heads": "n_layers", "gamma": "beta",
    "source_positions": "target_positions", "target_positions": "source_positions",
    "self_attention": "cross_attention", "cross_attention": "self_attention",
}  # fmt: skip
SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
EQUIVALENT = {  # "module: what": why no test can tell
    "functional: comparison: z > 0 -> z >= 0": "both are ½ at 0",
    "attention: operator: 2 ** 18 -> 2 * 18": "head by head gives the same numbers",
    "modern.byte_pairs: operator: len(tokens) - 1 -> len(tokens) + 1": "what is behind is not read",
    "modern.byte_pairs: operator: np.arange(len(places)) - first[run - 1] -> "
    "np.arange(len(places)) + first[run - 1]": "as even",
    "modern.tiled_attention: letter: '... T_q 1' -> '... other 1'": "the cache is the forward's own",
    "modern.generation: condition: if top_k is not None or top_p is not None: -> if True:": "all are left",
    "modern.generation: condition: if stop_id is not None: -> if True:": "no id is equal to None",
    "feed_forward: keyword: array_module(x).maximum(z, 0, out=z) -> array_module(x).maximum(z, 0)": "memory",
    "published.minilm: condition: if TYPE_CHECKING: -> if True:": "only an import",
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
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in EXCHANGED:
        yield "name", changed(node, attr=EXCHANGED[node.attr])
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id[:2] in ("W_", "b_"):
        if node.id in EXCHANGED:
            yield "name", changed(node, id=EXCHANGED[node.id])
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


def shapes(tree):
    """The strings in a module that are letters of a shape."""
    returned = [node.returns for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.returns]
    unchecked = {
        id(part) for returns in returned for part in ast.walk(returns)
    }  # what comes back is told only
    for node in ast.walk(tree):
        if (
            id(node) not in unchecked
            and isinstance(node, ast.Subscript)
            and getattr(node.value, "id", "") in LETTERED
        ):
            yield from (part for part in ast.walk(node.slice) if is_letters(part))


def is_letters(node):
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " array" not in node.value


def other_letters(node):
    """One letter of a shape is another, so that it no longer holds two arrays together; or one too many."""
    words = node.value.split()
    for i in range(len(words)):
        yield "letter", changed(node, value=" ".join([*words[:i], "other", *words[i + 1 :]]))
    if words[:1] != ["..."]:
        yield "letter", changed(node, value=" ".join(["...", *words]))


def path_of(module, root):
    return root / "npformer" / f"{module.replace('.', '/')}.py"


def mutants(module, root=ROOT):
    """(line, text, what, the function that makes the source) for every mutant of a module."""
    for places, forms in ((mutable, variants), (shapes, other_letters)):
        yield from changes(path_of(module, root).read_text(encoding="utf-8"), places, forms)


def changes(source, places, forms):
    lines = source.splitlines()
    for number, node in enumerate(places(ast.parse(source))):
        for what, mutated in forms(node):
            short = f"{ast.unparse(node).splitlines()[0]} -> {ast.unparse(mutated).splitlines()[0]}"
            make = functools.partial(changed_source, source, places, number, mutated)
            yield node.lineno, lines[node.lineno - 1].strip(), f"{what}: {short}", make


def changed_source(source, places, number, mutated):
    """The module with another node in place of the node of this number."""
    tree = ast.parse(source)
    Replace(list(places(tree))[number], mutated).visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree))


class Replace(ast.NodeTransformer):
    def __init__(self, target, mutated):
        self.target, self.mutated = target, mutated

    def visit(self, node):
        return self.mutated if node is self.target else self.generic_visit(node)


def equivalent(module, line, what):
    """Why a mutant computes the same, or nothing; `strict` guards lists that are as long by construction."""
    if "strict=True" in line and ("True -> False" in what or what.startswith("keyword: zip(")):
        return "the lists are as long as each other"
    return EQUIVALENT.get(f"{module}: {what}", "")


def survives(folder, module, what, source):
    """Whether no test notices; file by file, so that what the first one catches costs no more."""
    path = path_of(module, folder)
    original = path.read_text(encoding="utf-8")
    rewrite(path, source)
    try:
        names = ["test_letters.py"] * what.startswith("letter") + TESTS[module]
        return all(status_of(folder, name, module) in (0, 5) for name in names)  # 5: no test was chosen
    finally:
        rewrite(path, original)


WRITTEN = itertools.count(1)


def rewrite(path, source):
    """With a time of its own: what Python has compiled goes by size and time, and both may be as before."""
    path.write_text(source, encoding="utf-8")
    os.utime(path, (next(WRITTEN), 0))


def status_of(folder, name, module):
    """The exit status of one file of tests; of the sweep over all functions only the module's own."""
    options = ["-x", "--tb=no"]
    if name == "test_bad_input.py" and module not in CHECKS:
        tree = ast.parse(path_of(module, folder).read_text(encoding="utf-8"))
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        options += ["-k", " or ".join(functions)]
    sys.stdout.flush()
    child = os.fork()  # a process that has what the tests import at hand
    if child == 0:
        begin_tests(folder, f"tests/{name}", options)
    end = time.monotonic() + LIMIT
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > end:
            os.killpg(child, signal.SIGKILL)
        time.sleep(0.02)
    return os.waitstatus_to_exitcode(ended[1])


def begin_tests(folder, test, options):
    """The child's whole life."""
    status = 1
    try:
        os.setsid()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.chdir(folder)
        sys.path.insert(0, str(folder))
        quietly = "-q -n 0 -p no:cacheprovider -W ignore::pytest.PytestAssertRewriteWarning"
        status = pytest.main([*quietly.split(), *options, test])
    finally:
        os._exit(status)


def drawn(every, sample, seed):
    """A seeded sample in which every module has its part."""
    draw, total, chosen = random.Random(seed), sum(map(len, every.values())), []
    for found in every.values():
        share = max(AT_LEAST, round(sample * len(found) / max(1, total)))
        chosen += draw.sample(found, min(share, len(found)))
    draw.shuffle(chosen)  # a run that is stopped early has seen something of every module
    return chosen


def options_of_the_command_line():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sample", type=int, default=450)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", choices=TESTS, action="append", help="this module (may be repeated)")
    parser.add_argument("--write", type=Path, help="a .json file for the results")
    return parser.parse_args()


def main():
    options = options_of_the_command_line()
    modules = options.only or list(TESTS)
    every = {module: [(module, *found) for found in mutants(module)] for module in modules}
    chosen = drawn(every, options.sample, options.seed)
    print(f"{len(chosen)} of {sum(map(len, every.values()))} mutants", flush=True)
    with tempfile.TemporaryDirectory() as top, ThreadPoolExecutor(options.workers) as pool:
        folders = SimpleQueue()
        for i in range(options.workers):
            ignore = shutil.ignore_patterns(".*", "notebooks", "figures")
            folders.put(Path(shutil.copytree(ROOT, Path(top) / str(i), ignore=ignore)))

        def inside_a_copy(task, *args):
            folder = folders.get()
            try:
                return task(folder, *args)
            finally:
                folders.put(folder)

        asked = {(name, module) for module in modules for name in TESTS[module]}
        wrong = [name for name, module in asked if inside_a_copy(status_of, name, module) not in (0, 5)]
        if wrong:
            return f"these fail as it is: {', '.join(sorted(wrong))}"
        results = list(pool.map(functools.partial(inside_a_copy, judged), chosen))
    return told(results, sum(map(len, every.values())), options.write)


def judged(folder, mutant):
    """What became of one mutant."""
    module, number, line, what, make = mutant
    why, result = "", "killed"
    if survives(folder, module, what, make()):
        why = equivalent(module, line, what)
        result = "equivalent" if why else "survived"
        print(f"{module}:{number} {result}: {line} | {what} {why and f'(same: {why})'}", flush=True)
    return {"module": module, "line": number, "what": what, "result": result, "why": why}


def told(results, possible, path):
    """Print the count, write the file, and say whether too many survive."""
    counts = Counter(result["result"] for result in results)
    share = counts["survived"] / max(1, len(results))
    print(f"{dict(counts)}: {share:.1%} survive and are not known to be equivalent")
    if path:
        path.write_text(summary(results, possible), encoding="utf-8")
    return share >= 0.05


def summary(results, possible):
    """What make_kill_table.py reads: how many of each module, and every mutant that was not killed."""
    results.sort(key=lambda result: (list(TESTS).index(result["module"]), result["line"], result["what"]))
    counts = {
        module: Counter(result["result"] for result in results if result["module"] == module)
        for module in dict.fromkeys(result["module"] for result in results)
    }
    left = [
        [f"{result['module']}:{result['line']}", result["what"].splitlines()[0], result["why"]]
        for result in results
        if result["result"] != "killed"
    ]
    line = functools.partial(json.dumps, ensure_ascii=False)
    return (
        f'{{"date": "{date.today()}", "possible": {possible},\n"modules": {{\n'
        + ",\n".join(f"{line(module)}: {line(count)}" for module, count in counts.items())
        + '},\n"left": [\n'
        + ",\n".join(map(line, left))
        + "]}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
