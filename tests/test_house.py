"""The rules of the house: who may import whom, what is public, what is written down, what is left out.

Every rule is a function that takes source text and returns a list of offences, so that each can be shown an
offender (`test_*_is_caught`) before it is trusted with the package.
"""

import ast
import graphlib
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import npformer

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "npformer"

FLOORS = {
    "arrays": 0, "validate": 0, "signature": 1, "tree": 1, "backend": 2,
    "normal": 3, "functional": 4, "positional": 4, "gradcheck": 4, "optim": 4, "config": 5,
    "layer_norm": 6, "feed_forward": 6, "attention": 6, "embedding": 6, "loss": 6,
    "encoder": 7, "decoder": 7,
    "transformer": 8, "decoding": 9,
    "modern": 10, "published": 11, "teaching": 12, "exercises": 13,
    "npformer": 14,  # npformer/__init__.py, the list of public names
    "cli": 15,
    "__main__": 16,
}  # fmt: skip

TOP_LEVEL = {
    "README.md", "npformer", "notebooks", "tests", "figures", "pyproject.toml",
    ".ci", ".github", ".gitignore", "LICENSE", "CITATION.cff",
}  # fmt: skip

SLIDE = 25  # lines of a function below its signature and docstring

# The public contract, a signature a line; a NamedTuple is written as its fields.
CONTRACT = {
    "arrays": """
array_module(*arrays)""",
    "backend": """
        to_backend(tree, backend)
        to_numpy(tree)
        available_backends()
    """,
    "tree": """
        tree_map(f, tree, *trees)
        leaves(tree)
        save(path, tree)
        load(path, like)
    """,
    "functional": """
        linear_forward(x, W, b=None)
        linear_backward(dy, cache)
        relu_forward(z)
        relu_backward(dy, cache)
        gelu_forward(z, approximate=False)
        gelu_backward(dy, cache)
        softmax_forward(scores, axis=-1)
        softmax_backward(dy, cache)
        dropout_forward(x, rate, rng)
        dropout_backward(dy, cache)
    """,
    "positional": """
        positional_encoding(n, d_model, *, base=10000.0, start=0, layout="interleaved",
            dtype=np.float64, xp=np)
        angular_frequencies(d_model, *, base=10000.0)
        wavelengths(d_model, *, base=10000.0)
        shift_matrix(k, d_model, *, base=10000.0)
        LearnedPositionsParams(P)
        learned_positions_forward(x, params)
        learned_positions_backward(dy, cache)
        rope_forward(x, *, positions=None, base=10000.0, layout="interleaved")
        rope_backward(dy, cache)
        alibi_bias(n_heads, T_q, T_k, *, dtype=np.float64, xp=np)
    """,
    "gradcheck": """
        gradcheck(forward, backward, *args, rng=None, tolerance=1e-8, **kwargs)
    """,
    "optim": """
        sgd_update(params, grads, *, learning_rate)
        AdamState(step, m, v)
        adam_init(params)
        adam_update(params, grads, state, *, learning_rate, beta_1=0.9, beta_2=0.98, eps=1e-9,
            weight_decay=0.0)
        warmup_learning_rate(step, d_model, *, warmup_steps=4000)
    """,
    "feed_forward": """
        FFNParams(W_1, b_1, W_2, b_2)
        init_ffn(d_model, d_ff, rng, *, dtype=np.float64)
        ffn_forward(x, params, *, activation="relu", dropout=0.0, rng=None)
        ffn_backward(dy, cache)
    """,
    "layer_norm": """
        LayerNormParams(gamma, beta)
        init_layer_norm(d_model, *, dtype=np.float64)
        layer_norm_forward(x, params, *, eps=1e-5)
        layer_norm_backward(dy, cache)
    """,
    "attention": """
        attention_forward(q, k, v, *, mask=None, bias=None)
        attention_backward(dy, cache)
        AttentionParams(W_Q, W_K, W_V, W_O, b_Q=None, b_K=None, b_V=None, b_O=None)
        init_attention(d_model, rng, *, bias=False, dtype=np.float64)
        multi_head_attention_forward(q, k, v, params, *, n_heads, mask=None, bias=None, rope=False)
        multi_head_attention_backward(dy, cache)
        split_heads(x, n_heads)
        merge_heads(x)
        causal_mask(T_q, T_k=None, *, xp=np)
        padding_mask(ids, padding_id)
    """,
    "embedding": """
        EmbeddingParams(E)
        init_embedding(vocab_size, d_model, rng, *, dtype=np.float64)
        embedding_forward(ids, params)
        embedding_backward(dy, cache)
        tied_logits_forward(x, params)
        tied_logits_backward(dlogits, cache)
    """,
    "loss": """
        cross_entropy_forward(logits, targets, *, ignore_index=None, label_smoothing=0.0)
        cross_entropy_backward(dloss, cache)
    """,
    "config": """
        TransformerConfig(d_model=512, d_ff=2048, n_heads=8, n_layers=6, activation="relu", norm="post",
            eps=1e-5, dropout=0.1, positions="sinusoidal", attention_bias=False, max_length=512)
    """,
    "encoder": """
        EncoderBlockParams(attention, norm_1, ffn, norm_2)
        EncoderParams(blocks, norm=None)
        init_encoder_block(config, rng, *, dtype=np.float64)
        init_encoder(config, rng, *, dtype=np.float64)
        encoder_block_forward(x, params, config, *, mask=None, rng=None)
        encoder_block_backward(dy, cache)
        encoder_forward(x, params, config, *, mask=None, rng=None)
        encoder_backward(dy, cache)
    """,
    "decoder": """
        DecoderBlockParams(self_attention, norm_1, cross_attention, norm_2, ffn, norm_3)
        DecoderParams(blocks, norm=None)
        decoder_block_forward(x, memory, params, config, *, mask=None, memory_mask=None, rng=None)
        decoder_block_backward(dy, cache)
        decoder_forward(x, memory, params, config, *, mask=None, memory_mask=None, rng=None)
        decoder_backward(dy, cache)
    """,
    "transformer": """
        TransformerParams(embedding, encoder, decoder, source_positions=None, target_positions=None)
        init_transformer(vocab_size, config, rng, *, dtype=np.float64)
        transformer_forward(source_ids, target_ids, params, config, *, padding_id=None, rng=None)
        transformer_backward(dlogits, cache)
    """,
    "decoding": """
        greedy_decode(source_ids, params, config, *, start_id, stop_id, max_length, padding_id=None)
    """,
}


def sources():
    """{path relative to the package: source text} of every module."""
    return {str(p.relative_to(PACKAGE)): p.read_text(encoding="utf-8") for p in sorted(PACKAGE.rglob("*.py"))}


def module_name(path):
    """The name that FLOORS knows: "plots.py" and "plots/lines.py" are both "plots"."""
    first = Path(path).parts[0].removesuffix(".py")
    return "npformer" if first == "__init__" else first


def planted(source):
    return {"planted.py": textwrap.dedent(source)}


# --- imports only go down -------------------------------------------------------------------------


def imported_modules(source, path="positional.py"):
    """Modules of the package that a source imports, wherever the import stands."""
    for node in ast.walk(ast.parse(source)):
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
                yield parts[1] if len(parts) > 1 and parts[1] in FLOORS else "npformer"


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


@pytest.mark.parametrize(
    "line",
    [
        "from npformer.encoder import encoder_forward",
        "import npformer.encoder",
        "from npformer import encoder",
        "from npformer import encoder_forward",
        "from . import encoder",
        "from .encoder import encoder_forward",
        "def f():\n    from npformer.encoder import encoder_forward",
    ],
)
def test_an_import_that_goes_up_is_caught(line):
    assert len(floor_offences({"attention.py": line})) == 1
    assert floor_offences({"cli.py": line}) == []


def test_an_import_that_goes_up_from_a_subpackage_is_caught():
    assert floor_offences({"exercises/bank.py": "from .. import cli"}) != []
    assert floor_offences({"exercises/bank.py": "from . import cli"}) == []


def test_a_circle_and_an_unknown_module_are_caught():
    circle = {"encoder.py": "import npformer.decoder", "decoder.py": "import npformer.encoder"}
    assert "circle" in floor_offences(circle)[0]
    assert "no floor" in floor_offences({"utils.py": ""})[0]


# --- what `import npformer` costs -----------------------------------------------------------------

IMPORT_PROBE = """
import sys, time
start = time.perf_counter(); import numpy, numpy.random; numpy_time = time.perf_counter() - start
before = set(sys.modules)
start = time.perf_counter(); {statement}; own_time = time.perf_counter() - start
added = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(own_time / numpy_time, *sorted(added - set(sys.stdlib_module_names) - {{"npformer", "numpy"}}))
"""


def import_probe(statement):
    """(time relative to NumPy's own import, names from outside the standard library)"""
    command = [sys.executable, "-c", IMPORT_PROBE.format(statement=statement)]
    ratio, *names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(ratio), names


def test_importing_the_package_brings_numpy_and_nothing_else_and_is_quick():
    probes = [import_probe("import npformer") for _ in range(3)]
    assert probes[0][1] == []
    assert min(ratio for ratio, _ in probes) < 1


def test_another_library_at_import_is_caught():
    assert "matplotlib" in import_probe("import npformer, matplotlib")[1]


# --- the public names -----------------------------------------------------------------------------


def signature(node):
    """A function as `name(parameters)` and a NamedTuple as `name(fields)`, without annotations."""
    if isinstance(node, ast.ClassDef):
        fields = [n for n in node.body if isinstance(n, ast.AnnAssign)]
        written = [f"{n.target.id}={ast.unparse(n.value)}" if n.value else n.target.id for n in fields]
        return f"{node.name}({', '.join(written)})"
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return f"{node.name}({ast.unparse(node.args)})"


def normal(line):
    return ast.unparse(ast.parse(f"def {line}: ...")).splitlines()[0].removeprefix("def ").removesuffix(":")


def promised(text):
    """[(name, normalised signature)] of one module's part of the contract."""
    joined = re.sub(r",\n\s+", ", ", text.strip())
    return [(line.split("(")[0].strip(), normal(line.strip())) for line in joined.splitlines()]


def contract_offences(modules, contract, public):
    found = []
    for module, text in contract.items():
        source = modules.get(f"{module}.py", "")
        defined = {n.name: n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        for name, expected in promised(text):
            if name not in defined:
                found.append(f"{module}.py does not define {name}")
            elif (got := signature(defined[name])) != expected:
                found.append(f"{module}.py: expected {expected}, got {got}")
            elif name not in public:
                found.append(f"{name} is missing from npformer.__all__")
    return found


def test_every_contract_name_is_public_with_its_signature():
    assert contract_offences(sources(), CONTRACT, npformer.__all__) == []


def test_a_broken_contract_is_caught():
    contract = {"planted": "f(x, *, eps=1e-5)\nP(a, b=None)"}
    right = (
        "def f(x: int, *, eps: float = 0.00001) -> int: ...\nclass P:\n    a: int\n    b: int | None = None"
    )
    assert contract_offences({"planted.py": right}, contract, ["f", "P"]) == []
    assert contract_offences({"planted.py": right}, contract, ["P"]) == ["f is missing from npformer.__all__"]
    wrong = right.replace("eps", "epsilon")
    assert contract_offences({"planted.py": wrong}, contract, ["f", "P"])[0].startswith(
        "planted.py: expected f("
    )
    assert contract_offences({}, contract, ["f", "P"])[1] == "planted.py does not define P"


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
        tree = ast.parse(source)
        if not ast.get_docstring(tree):
            found.append(f"{path} has no docstring")
        for node in tree.body:
            public = isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
            if public and not node.name.endswith("Cache") and not ast.get_docstring(node):
                found.append(f"{path}:{node.lineno} {node.name} has no docstring")
    return found


def test_modules_and_public_names_have_docstrings():
    assert docstring_offences(sources()) == []


def test_a_missing_docstring_is_caught():
    source = '"""Module."""\ndef f(): pass\nclass C:\n    x = 1\ndef _private(): pass\n'
    assert len(docstring_offences(planted(source))) == 2
    assert len(docstring_offences(planted("x = 1"))) == 1


def pair_offences(modules):
    """Each `*_forward` stands directly above its `*_backward`, and neither stands alone."""
    found = []
    for path, source in modules.items():
        names = [n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
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


def test_a_lonely_or_distant_half_is_caught():
    assert pair_offences(planted("def f_forward(): ...\ndef f_backward(): ...")) == []
    assert len(pair_offences(planted("def f_forward(): ...\ndef _g(): ...\ndef f_backward(): ..."))) == 1
    assert len(pair_offences(planted("def f_forward(): ..."))) == 1
    assert len(pair_offences(planted("def f_backward(): ..."))) == 1


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
    statements = [(path, node) for path, source in modules.items() for node in ast.parse(source).body]
    uses = [(node, set(used_names(node))) for _, node in statements]
    found = []
    for path, node in statements:
        for name in defined_names(node):
            private = name.startswith("_") and not name.startswith("__")
            if private and not any(name in names for other, names in uses if other is not node):
                found.append(f"{path}:{node.lineno} {name} is used nowhere")
    return found


def test_no_private_name_is_unused():
    assert unused_offences(sources()) == []


def test_an_unused_private_name_is_caught():
    source = """
        _USED, _UNUSED = 1, 2
        _DEAD = 3
        def _lonely(n):
            return _lonely(n - 1)
        def _busy():
            return _USED
        def public():
            return _busy()
    """
    names = [line.split()[1] for line in unused_offences(planted(source))]
    assert names == ["_DEAD", "_lonely"]


def slide_offences(modules):
    found = []
    for path, source in modules.items():
        for node in functions(ast.parse(source)):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = node.end_lineno - body[0].lineno + 1 if body else 0
            if lines > SLIDE:
                found.append(f"{path}:{node.lineno} {node.name} is {lines} lines long, more than a slide")
    return found


def test_every_function_fits_on_a_slide():
    assert slide_offences(sources()) == []


def test_a_long_function_is_caught():
    long = "def f():\n" + '    """Doc."""\n' + "    x = 1\n" * (SLIDE + 1)
    assert len(slide_offences(planted(long))) == 1
    assert slide_offences(planted(long.replace("    x = 1\n", "", 1))) == []


# --- what is in the repository --------------------------------------------------------------------

# Written in pieces, so that this file does not find itself.
FORBIDDEN = {
    "a path of one machine": r"/(?:wo"
    + r"rk|ro"
    + r"ot|ho"
    + r"me/\w+|Us"
    + r"ers/\w+)/|[A-Z]:\\\\?Us"
    + r"ers",
    "a registry's host": r"pypi\.o"
    + r"rg|files\.python"
    + r"hosted|registry\.npm"
    + r"js|conda\.ana"
    + r"conda",
    "an unfinished mark": r"\bTO" + r"DO\b|\bFIX" + r"ME\b|\bX" + r"XX\b",
    "a memory address": r"\bat 0x[0-9a-f]{6,}",
    "a kernel's temporary file": r"ipykernel" + r"_\d+",
}


def repository_files():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listing = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout")
    return [path for path in listing.stdout.splitlines() if (ROOT / path).is_file()]


def top_level_offences(paths):
    return sorted({Path(p).parts[0] for p in paths} - TOP_LEVEL)


PICTURE = re.compile(r'"image/png": "[^"]*"')  # base64, in which any letters may meet by chance


def text_offences(path, text):
    text = PICTURE.sub("", text)
    return [f"{path}: {what}" for what, pattern in FORBIDDEN.items() if re.search(pattern, text)]


def test_nothing_lies_at_the_top_but_what_belongs_there():
    assert top_level_offences(repository_files()) == []


def test_a_stray_file_at_the_top_is_caught():
    assert top_level_offences(["README.md", "setup.py", "docs/index.md"]) == ["docs", "setup.py"]


def test_no_machine_paths_hosts_or_unfinished_marks():
    found = []
    for path in repository_files():
        data = (ROOT / path).read_bytes()
        if b"\0" not in data:  # text, notebooks and their outputs included
            found += text_offences(path, data.decode("utf-8"))
    assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "see /ho" + "me/ada/notes",
        "C:\\Us" + "ers\\ada",
        "https://pypi.o" + "rg/simple",
        "# TO" + "DO later",
        "<object at 0x7f" + "3a2c11d0>",
        "/x/ipykernel" + "_123/4.py:3",
    ],
)
def test_a_forbidden_text_is_caught(text):
    assert len(text_offences("planted.md", text)) == 1


def test_the_letters_of_a_picture_are_no_text():
    assert text_offences("planted.ipynb", '"image/png": "iVBO/X' + 'XX/w0"') == []
