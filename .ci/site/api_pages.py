"""The reference: a page for each module, from its docstrings and signatures.

A signature of this package is long, because it says the shapes. So a page shows the call on one line, and
below it a table: each argument with its shape or range in words, and what comes back. The equation is the
docstring's first paragraph. A NamedTuple's fields have what the comments on their lines say.
"""

import inspect
import re
import types
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import numpy as np

import npformer
from npformer import annotations
from npformer.signature import Rule

GROUPS = {
    "The Transformer of 2017": (
        "functional normal positional embedding layer_norm feed_forward attention config encoder decoder "
        "transformer decoding loss optim"
    ),
    "Since 2017": (
        "modern.rms_norm modern.gated_ffn modern.tiled_attention modern.causal_lm modern.generation "
        "modern.byte_pairs"
    ),
    "Weights that others trained": "published.minilm published.llama2c published.torch_names",
    "Checks, trees, backends": "gradcheck signature annotations tree arrays backend",
    "For teaching": (
        "teaching teaching.worked_example teaching.worksheet teaching.player teaching.lessons teaching.text "
        "teaching.costs teaching.diagnostics"
    ),
    "Exercises": "exercises exercises.reply exercises.task",
}
ALSO = {  # what a reader may type into the search, and the page that answers
    "functional": "softmax backward; activation; linear layer; dense layer; backprop; backpropagation",
    "positional": "positional encoding; position encoding; rotary; RoPE; ALiBi; sinusoids",
    "embedding": "weight tying; tied embeddings",
    "layer_norm": "LayerNorm; normalization",
    "feed_forward": "FFN; MLP",
    "attention": "mask; causal mask; padding mask; self-attention; multi-head attention; GQA; MQA",
    "decoding": "KV cache; greedy decoding; inference",
    "loss": "cross-entropy; label smoothing",
    "optim": "Adam; SGD; warm-up; learning rate",
    "modern.rms_norm": "RMSNorm",
    "modern.gated_ffn": "SwiGLU; SiLU; gated linear unit",
    "modern.tiled_attention": "flash attention; FlashAttention; online softmax",
    "modern.causal_lm": "Llama; GPT; language model",
    "modern.generation": "KV cache; sampling; temperature; top-k; top-p",
    "modern.byte_pairs": "BPE; tokenizer; tokenization",
    "gradcheck": "gradient check; finite differences; numerical gradient; backprop; backpropagation",
    "backend": "GPU; CUDA; CuPy; device",
    "teaching.costs": "FLOPs; memory; number of parameters",
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


class Entry(NamedTuple):
    """A public name: where it is imported from, the object, and the module that defines it."""

    package: str
    name: str
    thing: Any
    module: str


def write_api(folder: Path) -> None:
    """The page of each module that has a public name, and the page that lists them."""
    folder.mkdir(parents=True)
    entries = public()
    pages = {module: [e for e in entries if e.module == module] for module in modules()}
    pages = {module: sorted(own, key=place) for module, own in pages.items() if own}
    if lost := {e.module for e in entries} - pages.keys():
        raise SystemExit(f"api_pages.py: no group has {', '.join(sorted(lost))}")
    for module, own in pages.items():
        (folder / f"{module}.rst").write_text(module_page(module, own), encoding="utf-8")
    (folder / "index.rst").write_text(index_page(pages), encoding="utf-8")


def modules() -> list[str]:
    return " ".join(GROUPS.values()).split()


def public() -> list[Entry]:
    """The names of npformer, of npformer.teaching and of npformer.exercises."""
    found = {}
    for package in ("npformer", "npformer.teaching", "npformer.exercises"):
        home = import_module(package)
        for name in home.__all__:
            if not name.startswith("_"):
                thing = getattr(home, name)
                found[name] = Entry(package, name, thing, module_of(thing, package))
    return list(found.values())


def module_of(thing: Any, package: str) -> str:
    """The module that defines it, without "npformer."; the front door's functions stand before it."""
    defined = getattr(inspect.unwrap(thing) if callable(thing) else thing, "__module__", package)
    if isinstance(thing, annotations.Axes):
        defined = annotations.__name__
    return defined.removeprefix("npformer.")


def place(entry: Entry) -> tuple[bool, int]:
    """Functions first, in the order of the source: a forward stands directly above its backward."""
    try:
        return inspect.isclass(entry.thing), inspect.getsourcelines(inspect.unwrap(entry.thing))[1]
    except TypeError:
        return False, 0


# --- pages ----------------------------------------------------------------------------------------


def index_page(pages: dict[str, list[Entry]]) -> str:
    lines = [heading("Reference", "="), OPENING]
    for group, names in GROUPS.items():
        own = [module for module in names.split() if module in pages]
        lines += [heading(group, "-"), ".. list-table::", "   :widths: 22 78", "   :class: modules", ""]
        for module in own:
            links = ", ".join(f":py:obj:`~{e.package}.{e.name}`" for e in pages[module])
            lines += [f"   * - :doc:`{module}`", f"     - {first_line(module)}", "", f"       {links}"]
        lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {module}" for module in own), ""]
    return "\n".join(lines)


OPENING = """\
Everything below is a function of arrays, imported from ``npformer``. ``f_forward`` returns an output and a
cache; ``f_backward`` takes the gradient of that output and the cache, and nothing else. A call is held to the
shapes that stand in its table: a letter has one length in a call, ``...`` are any leading axes. All arrays of
a call share one dtype, float32 or float64. A wrong kind of thing raises TypeError, a wrong shape or value
ValueError; the message names the function, the argument, what was expected and what was received.
"""


def first_line(module: str) -> str:
    return plain(
        (import_module(f"npformer.{module}").__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
    )


def module_page(module: str, entries: list[Entry]) -> str:
    """What the module says of itself, then each of its public names."""
    said = import_module(f"npformer.{module}").__doc__ or ""
    parts = [heading(module.rpartition(".")[2], "="), also(module), restructured(said)]
    for package in dict.fromkeys(e.package for e in entries):
        parts.append(f".. py:currentmodule:: {package}\n")
        parts += [directive(e) for e in entries if e.package == package]
    return "\n".join(parts)


def also(module: str) -> str:
    """Other words for what is here, which the search and the index know."""
    entries = [f"   single: {words}" for words in ALSO.get(module, "").split("; ") if words]
    return "\n".join([".. index::", *entries, ""]) if entries else ""


def directive(entry: Entry) -> str:
    """One public name: its call, its equation, its table, its code."""
    thing = entry.thing
    if inspect.isclass(thing):
        kind, call, body = "class", class_call(entry), class_body(thing)
    elif inspect.isroutine(thing):
        kind, call, body = "function", entry.name + call_of(thing), function_body(thing)
    else:
        kind, call, body = "data", entry.name, ALIASES.get(entry.name, "")
    return f".. py:{kind}:: {call}\n   :module: {entry.package}\n\n{indent(body, '   ')}\n"


ALIASES = {
    "Float": '``Float[Array, "... T d_model"]``: an array of floats with these axes.\n',
    "Ids": '``Ids[Array, "... T"]``: an array of integers with these axes.\n',
    "Mask": '``Mask[Array, "... T_q T_k"]``: booleans that broadcast to these axes; True = may attend.\n',
}


def function_body(thing: Any) -> str:
    body = inspect.unwrap(thing)
    said, start, example = restructured(body.__doc__ or "", equation=True).partition(EXAMPLE)
    return "\n".join([said, arguments(body), start + example, code(body)])


def class_call(entry: Entry) -> str:
    fields = getattr(entry.thing, "_fields", None)
    if fields is None or entry.name.endswith("Cache"):
        return entry.name  # a cache is made by a forward, not by a call
    return entry.name + call_of(entry.thing)


CACHE = "What the forward keeps for its backward. Read it as you like; a change would spoil the gradients."


def class_body(thing: type) -> str:
    said = thing.__doc__ or ""
    if re.match(rf"{thing.__name__}\(.*\)$", said):  # NamedTuple's own words
        said = CACHE if thing.__name__.endswith("Cache") else ""
    parts = [restructured(said)]
    if hasattr(thing, "_fields"):
        parts.append(table(fields_of(thing)))
    for name, member in vars(thing).items():
        if not name.startswith("_") and (isinstance(member, property) or inspect.isfunction(member)):
            parts.append(member_directive(name, member))
    return "\n".join(parts)


def member_directive(name: str, member: Any) -> str:
    if isinstance(member, property):
        head, said = f".. py:property:: {name}", member.fget.__doc__
    else:
        head, said = f".. py:method:: {name}{call_of(member, skip=1)}", member.__doc__
    return f"{head}\n\n{indent(restructured(said or ''), '   ')}"


# --- signatures -----------------------------------------------------------------------------------


def call_of(thing: Any, skip: int = 0) -> str:
    """(x, params, *, activation="relu"): the names and defaults."""
    parameters = list(inspect.signature(thing).parameters.values())[skip:]
    bare = [p.replace(annotation=p.empty, default=Shown(p.default)) if p.default is not p.empty
            else p.replace(annotation=p.empty) for p in parameters]  # fmt: skip
    return str(inspect.Signature(bare))


class Shown:
    """A default as one writes it: numpy.float64 is np.float64, the module numpy is np."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        if inspect.ismodule(self.value):
            return "np"
        return f"np.{self.value.__name__}" if inspect.isclass(self.value) else repr(self.value)


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
    if origin is tuple and ... in parts and getattr(parts[0], "__name__", "") in npformer.__all__:
        return f"a tuple of {in_words(parts[0])}"
    if origin is Literal:
        return " or ".join(f"``{part!r}``".replace("'", '"') for part in parts)
    if inspect.isclass(annotation) and annotation.__name__ in npformer.__all__:
        return f":py:class:`~npformer.{annotation.__name__}`"
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
    if public_name in npformer.__all__ and public_name not in ("Float", "Ids", "Mask"):
        return f":py:obj:`~npformer.{public_name}`"
    return f"``{name}``"


def heading(words: str, line: str) -> str:
    return f"{plain(words)}\n{line * (2 * len(words))}\n"
