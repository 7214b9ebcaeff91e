"""Tell autodoc the public names of this package, the fields of its NamedTuples, and its search terms.

The reference is made by autodoc from the docstrings, which are in NumPy form and read by napoleon.
"""

import inspect
import re
from importlib import import_module
from typing import Any

PACKAGES = "npformer", "npformer.lessons", "npformer.exercises"
PUBLIC = {name for package in PACKAGES for name in import_module(package).__all__}

# Extra search terms of each page. A reader who searches for one of these terms should find the page.
SEARCH_TERMS = {
    "npformer.functional": "softmax backward; activation; linear layer; dense layer; backpropagation",
    "npformer.positional": "positional encoding; position encoding; rotary; RoPE; YaRN; ALiBi; sinusoids",
    "npformer.embedding": "weight tying; tied embeddings",
    "npformer.layer_norm": "LayerNorm; normalization",
    "npformer.feed_forward": "FFN; MLP",
    "npformer.attention": (
        "mask; causal mask; padding mask; self-attention; multi-head attention; GQA; MQA; soft-capping"
    ),
    "npformer.decoding": "KV cache; greedy decoding; inference",
    "npformer.loss": "cross-entropy; label smoothing",
    "npformer.optim": "Adam; SGD; warm-up; learning rate",
    "npformer.modern.rms_norm": "RMSNorm",
    "npformer.modern.gated_ffn": "SwiGLU; SiLU; gated linear unit",
    "npformer.modern.tiled_attention": "flash attention; FlashAttention; online softmax",
    "npformer.modern.causal_lm": "Llama; GPT; language model",
    "npformer.modern.generation": "KV cache; sampling; temperature; top-k; top-p",
    "npformer.modern.byte_pairs": "BPE; tokenizer; tokenization",
    "npformer.post_training.lora": "fine-tuning; low-rank adaptation",
    "npformer.post_training.adapter": "PEFT; fine-tuning; adapter",
    "npformer.post_training.dpo": "preferences; RLHF; alignment",
    "npformer.post_training.grpo": "reinforcement learning; PPO; RLVR; reward",
    "npformer.gradcheck": "gradient check; finite differences; numerical gradient; backprop; backpropagation",
    "npformer.backend": "GPU; CUDA; CuPy; device",
    "npformer.lessons.costs": "FLOPs; memory; number of parameters",
}

FIELD_COMMENT = r"^    {name}: [^#\n]*#\s*(?:type: ignore\S*\s*#\s*)?(.*)$"
CACHE = "Values that the forward pass caches for its backward pass. Read them, but do not change them."


def setup(app: Any) -> dict[str, bool]:
    """Connect this module to Sphinx."""
    app.connect("autodoc-skip-member", skip_private_members)
    app.connect("autodoc-process-signature", hide_signature_of_caches)
    app.connect("autodoc-process-docstring", add_fields)
    return {"parallel_read_safe": True}


def skip_private_members(
    app: Any, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Tell autodoc to skip private names, and also the fields of a NamedTuple, which `add_fields` lists."""
    if what == "module":
        return name not in PUBLIC
    is_field = type(member).__name__ == "_tuplegetter"
    return True if is_field else None


def hide_signature_of_caches(
    app: Any, what: str, name: str, member: Any, *rest: Any
) -> tuple[str, str] | None:
    """Hide the signature of a cache class, because only forward functions create caches."""
    is_cache = what == "class" and name.endswith("Cache")
    return ("", "") if is_cache else None


def add_fields(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Append the fields of a NamedTuple to its docstring.

    Each field has its annotation and the comment on its line.
    """
    is_named_tuple = what == "class" and hasattr(member, "_fields")
    if not is_named_tuple:
        return
    has_own_docstring = bool(lines) and not lines[0].startswith(f"{member.__name__}(")
    if not has_own_docstring:
        lines[:] = [CACHE, ""] if name.endswith("Cache") else []
    if ":ivar" in "\n".join(lines) or ".. attribute::" in "\n".join(lines):
        return  # The docstring already has a section Attributes, which describes the fields.
    source = inspect.getsource(member)
    lines.append("")
    for field in member._fields:
        comment = re.search(FIELD_COMMENT.format(name=field), source, re.MULTILINE)
        annotation = short_annotation(member.__annotations__.get(field, ""))
        description = f": {escape(comment[1])}" if comment else ""
        lines.append(f"- ``{field}`` – ``{annotation}``{description}")
    lines.append("")


def short_annotation(annotation: Any) -> str:
    """Return an annotation without the names of modules: ``Float[Array, '... T d_model']``."""
    text = annotation.__name__ if inspect.isclass(annotation) else str(annotation)
    rule = re.search(r"\w+\[Array, '[^']*'", text)
    if rule:
        return rule[0] + "]"
    text = re.sub(r"[A-Za-z_]+\.(?=[A-Za-z_])", "", text)
    return re.sub(r"ndarray\[tuple\[Any, \.\.\.\], dtype\[Any\]\]", "Array", text)


def escape(text: str) -> str:
    """Escape the characters that reStructuredText would read as markup."""
    return re.sub(r"([\\*|_`])", r"\\\1", text)
