"""The reference: what autodoc shows of each public name, in this package's words.

A signature of this package is long, because it says the shapes. So autodoc shows the call on one line, and
below it stands a table: each argument with its shape or range in words, and what comes back. The equation is
the docstring's first paragraph. A NamedTuple's fields have what the comments on their lines say.
"""

import inspect
import re
import types
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from textwrap import indent
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import numpy as np

import npformer
from npformer.validation.signature import Rule

PACKAGES = "npformer", "npformer.lessons", "npformer.exercises"
PUBLIC = {name: getattr(home, name) for home in map(import_module, PACKAGES) for name in home.__all__}
ALSO = {  # what a reader may type into the search, and the page that answers
    "npformer.functional": "softmax backward; activation; linear layer; dense layer; backpropagation",
    "npformer.positional": "positional encoding; position encoding; rotary; RoPE; ALiBi; sinusoids",
    "npformer.embedding": "weight tying; tied embeddings",
    "npformer.layer_norm": "LayerNorm; normalization",
    "npformer.feed_forward": "FFN; MLP",
    "npformer.attention": "mask; causal mask; padding mask; self-attention; multi-head attention; GQA; MQA",
    "npformer.decoding": "KV cache; greedy decoding; inference",
    "npformer.loss": "cross-entropy; label smoothing",
    "npformer.optim": "Adam; SGD; warm-up; learning rate",
    "npformer.modern.rms_norm": "RMSNorm",
    "npformer.modern.gated_ffn": "SwiGLU; SiLU; gated linear unit",
    "npformer.modern.tiled_attention": "flash attention; FlashAttention; online softmax",
    "npformer.modern.causal_lm": "Llama; GPT; language model",
    "npformer.modern.generation": "KV cache; sampling; temperature; top-k; top-p",
    "npformer.modern.byte_pairs": "BPE; tokenizer; tokenization",
    "npformer.gradcheck": "gradient check; finite differences; numerical gradient; backprop; backpropagation",
    "npformer.backend": "GPU; CUDA; CuPy; device",
    "npformer.lessons.costs": "FLOPs; memory; number of parameters",
}
KINDS = {
    "Float": "floats",
    "Ids": "ids, integers",
    "Mask": "booleans that broadcast to",
    "Bias": "floats that broadcast to",
    "Numbers": "integers or floats",
    "Shape": "the shape",
}
ARRAY = re.compile(r"(\w+)\[Array, '([^']*)'(?:, (.*))?\]")
ALIASES = {"Float", "Ids", "Mask"}  # what they say stands in api/index.rst
EXAMPLE = ".. code-block:: pycon"
LETTER = re.compile(r"\b(d?[A-Za-z])\\_(?!hat)(\w{1,5})\b")  # W_1 in an equation, as `plain` has left it
PLAIN = {
    int: "integer",
    float: "number",
    str: "text",
    bool: "True or False",
    Any: "anything",
    type(None): "None",
}


def setup(app: Any) -> dict[str, bool]:
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-signature", call_of_a_cache)
    app.connect("autodoc-process-docstring", in_our_words)
    return {"parallel_read_safe": True}


def skip(app: Any, what: str, name: str, thing: Any, leave_out: bool, options: Any) -> bool | None:
    """Only names of the front door; and the fields of a NamedTuple stand in its table."""
    if what == "module":
        return name not in PUBLIC
    return type(thing).__name__ == "_tuplegetter" or None


def call_of_a_cache(app: Any, what: str, name: str, thing: Any, *rest: Any) -> tuple[str, str] | None:
    """It is made by a forward, not by a call."""
    return ("", "") if what == "class" and name.endswith("Cache") else None


def in_our_words(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    said = "\n".join(lines)
    if what in ("function", "exception"):
        said, start, example = restructured(said, equation=True).partition(EXAMPLE)
        said = "\n".join([said, arguments(thing), start + example, code(thing)])
    elif what == "class" and hasattr(thing, "_fields"):
        if not said.strip() or said.startswith(f"{thing.__name__}("):  # NamedTuple's own words
            said = CACHE if name.endswith("Cache") else ""
        said = "\n".join([restructured(said), table(fields_of(thing))])
    else:
        said = restructured(said)
    lines[:] = said.splitlines()


CACHE = "What the forward keeps for its backward. Read it as you like; a change would spoil the gradients."


# --- signatures -----------------------------------------------------------------------------------


def arguments(body: Any) -> str:
    """The table of a function: its arguments, and what comes back."""
    signature = inspect.signature(body, eval_str=True)
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    rows = [
        (f"``{stars.get(p.kind, '')}{p.name}``", in_words(p.annotation))
        for p in signature.parameters.values()
        if p.annotation is not p.empty
    ]
    back = signature.return_annotation
    results = get_args(back) if get_origin(back) is tuple and ... not in get_args(back) else (back,)
    words = " and ".join(in_words(result) for result in results if result is not signature.empty)
    return table([*rows, ("returns", words)] if words else rows)


def fields_of(thing: Any) -> list[tuple[str, str]]:
    """Each field of a NamedTuple with its shape and the comment on its line."""
    source, rows = inspect.getsource(thing), []
    for name in thing._fields:
        comment = re.search(
            rf"^    {name}: [^#\n]*#\s*(?:type: ignore\S*\s*#\s*)?(.*)$", source, re.MULTILINE
        )
        annotation = thing.__annotations__.get(name, Any)
        words = "that of the arrays" if (name, annotation) == ("dtype", Any) else in_words(annotation)
        rows.append((f"``{name}``", words + (f": {plain(comment[1])}" if comment else "")))
    return rows


def table(rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    lines = [f"   * - {name}\n     - {words}" for name, words in rows]
    return "\n".join([".. list-table::", "   :class: arguments", "   :widths: 25 75", "", *lines, ""])


def in_words(annotation: Any) -> str:
    """What an annotation says, in words: "(..., T, d_model) floats"."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, Rule):
        return rule_in_words(annotation.text)
    if origin is Annotated:
        rules = [str(p).removesuffix(", a letter") for p in parts[1:] if isinstance(p, Rule)]
        extra = [rule for rule in rules if rule != "an integer"]  # the type says so
        if extra == ["dtype"]:
            return "``np.float64`` or ``np.float32``"
        return ", ".join([in_words(parts[0]), *(f"``{e}``" if e[0] in "<>0" else e for e in extra)])
    if origin in (Union, types.UnionType):
        return " or ".join(in_words(part) for part in parts)
    if origin is np.ndarray:
        return "an array"
    if origin is Callable or isinstance(annotation, TypeVar):
        return "a function"
    if origin is Mapping:
        return f"a dict from {in_words(parts[0])} to {in_words(parts[1])}"
    if origin is tuple and set(map(get_origin, parts)) == {Callable}:
        return "a tuple of functions"
    if origin is tuple and ... in parts and getattr(parts[0], "__name__", "") in npformer.__all__:
        return f"a tuple of {in_words(parts[0])}"
    if origin is Literal:
        return " or ".join(f"``{part!r}``".replace("'", '"') for part in parts)
    if inspect.isclass(annotation) and annotation.__name__ in npformer.__all__:
        return f":py:class:`.{annotation.__name__}`"
    return PLAIN.get(annotation) or name_of(annotation)


def rule_in_words(text: str) -> str:
    """The text of a rule: "Mask[Array, '... T_q T_k'] | None"."""
    found = ARRAY.match(text)
    if found is None:
        return {"Rng": "numpy.random.Generator", "Rng | None": "numpy.random.Generator or None"}.get(
            text, plain(text)
        )
    kind, letters, more = found.groups()
    more = (more or "").replace("tells d_kv", "")  # what the rule does, not what the reader has to keep
    axes = letters.split()
    shape = f"({', '.join(axes)}{',' if len(axes) == 1 and axes[0] != '...' else ''})"
    words = f"``{shape}`` {KINDS[kind]}" if not KINDS[kind].endswith("to") else f"{KINDS[kind]} ``{shape}``"
    return words + (f", {plain(more)}" if more else "") + (" or None" if text.endswith("| None") else "")


def name_of(annotation: Any) -> str:
    """A type's own name, without the modules it lives in."""
    found = (
        annotation.__name__ if inspect.isclass(annotation) and not get_args(annotation) else str(annotation)
    )
    short = re.sub(r"[A-Za-z_]+[.](?=[A-Za-z_])", "", found)
    return f"``{re.sub(r'ndarray.tuple.Any, [.]{3}., dtype.[^]]*..', 'array', short)}``"


# --- texts ----------------------------------------------------------------------------------------


def code(body: Any) -> str:
    """The function's own lines, folded, without its docstring: they are the equations."""
    lines, _ = inspect.getsourcelines(body)
    source = re.sub(r'\n    """.*?"""', "", "".join(lines), count=1, flags=re.DOTALL)
    opening, closing = "<details class='code'><summary>Code</summary>", "</details>"
    block = f".. code-block:: python\n\n{indent(source, '   ')}"
    return f".. raw:: html\n\n   {opening}\n\n{block}\n.. raw:: html\n\n   {closing}\n"


def restructured(docstring: str, equation: bool = False) -> str:
    """A docstring as reStructuredText: paragraphs, indented blocks, doctests; nothing else is markup."""
    blocks = inspect.cleandoc(docstring).split("\n\n")
    typeset_blocks = [typeset(block, equation and n == 0) for n, block in enumerate(paragraphs(blocks))]
    return "\n\n".join(typeset_blocks) + "\n"


def paragraphs(blocks: list[str]) -> Iterator[str]:
    """Blocks, with those of one doctest or one indented text together."""
    kept = ""
    for block in blocks:
        goes_on = block.startswith("    ") and kept.startswith((">>>", "    "))
        if kept and not goes_on:
            yield kept
        kept = f"{kept}\n\n{block}" if goes_on else block
    yield kept


def typeset(block: str, equation: bool) -> str:
    if block.lstrip().startswith(">>>"):
        return f"{EXAMPLE}\n\n{indent(block, '   ')}"
    if block.startswith("    "):
        return f".. code-block:: text\n\n{indent(inspect.cleandoc(block), '   ')}"
    if not (equation and " = " in block):
        return plain(block)
    return ".. rst-class:: equation\n\n" + LETTER.sub(r"\1\\ :sub:`\2`\\ ", plain(block))


def plain(text: str) -> str:
    """Text that means itself; what stands between backquotes is a name, and a link where it is public."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(named(p[1:-1]) if p.startswith("`") else re.sub(r"([\\*|_`])", r"\\\1", p) for p in parts)


def named(name: str) -> str:
    public_name = name.removeprefix("npformer.").removesuffix("()")
    if public_name not in PUBLIC or public_name in ALIASES:
        return f"``{name}``"
    return f":py:{'class' if inspect.isclass(PUBLIC[public_name]) else 'func'}:`.{public_name}`"
