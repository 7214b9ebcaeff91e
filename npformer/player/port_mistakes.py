"""Find the mistake in a port of a causal language model: which change makes the port equal to the reference?

The guide page port.md lists mistakes that raise no error. For each of them, the change that repairs the
mistake is tried on the first layer that differs: the layer gets its correct input from the reference, and its
output is compared with the reference.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.attention import causal_mask
from npformer.modern.causal_lm import (
    CausalBlockParams,
    CausalLMConfig,
    CausalLMParams,
    causal_block_forward,
    logits_forward,
    rope_table_of,
)
from npformer.modern.rms_norm import RMSNormParams, rms_norm_forward


class Mistake(NamedTuple):
    """A mistake, described by the change that makes the arrays equal."""

    name: str  # a key of CHANGES
    value: Any = None  # what to use instead, such as 500000.0 for the base


class Port(NamedTuple):
    """A model in npformer's form."""

    params: CausalLMParams
    config: CausalLMConfig


class Variant(NamedTuple):
    """A changed port, and the mistake that the change repairs."""

    mistake: Mistake
    port: Port


CHANGES = {  # the text of each change; {0} is the value of the mistake
    "rope_layout": "rope_layout={0!r}",
    "base": "base={0:,g}",
    "eps": "eps={0:g}",
    "heads": "n_heads={0[0]} and n_kv_heads={0[1]}",
    "gate_up": "W_gate and W_up exchanged",
    "transposed": "{0} transposed",
    "norms": "norm_1 and norm_2 exchanged",
    "one_plus_gamma": "1 added to each gamma",
    "embedding_scale": "the embeddings multiplied by √d_model",
    "tied": "the embedding as the output matrix (tied=True)",
    "own_head": "{0} as the output matrix (tied=False)",
    "factor": "this array multiplied by {0:.6g}",
    "root": "this array multiplied by √{0}",
    "inverse_root": "this array divided by √{0}",
    "offset": "the same {0} numbers added to each row (a missing bias?)",
}
NEAR_ONE = 1e-3  # a factor that is closer to 1 says nothing about a mistake
BASES = [digit * 10.0**power for power in range(2, 8) for digit in range(1, 10)]
EPSES = [digit / 10**power for power in range(3, 13) for digit in range(1, 10)] + [0.0]


def describe(mistake: Mistake) -> str:
    """Return the change that makes the arrays equal, in words."""
    return CHANGES[mistake.name].format(mistake.value)


def walk_stations(x: Array, first: int, port: Port) -> Iterator[tuple[str, Array]]:
    """Yield the input x (..., T, d_model) of each block from `first` on, and the logits, by station."""
    params, config = port
    T = x.shape[-2]
    mask, rope = causal_mask(T), rope_table_of(config, np.arange(T), x.dtype)
    for i in range(first, len(params.blocks)):
        yield f"after block {i}", x
        x, _ = causal_block_forward(x, params.blocks[i], config, mask, rope)
    y, _ = rms_norm_forward(x, params.norm, eps=config.eps)
    yield "logits", logits_forward(y, params)[0]


def find_mistakes(
    station: str,
    reference: Mapping[str, Array],
    port: Port,
    state: Mapping[str, Array],
    tolerance: float,
) -> tuple[Mistake, ...]:
    """Return the mistakes that explain the first difference.

    If several values repair the same mistake, such as several bases, only the value with the smallest error
    is returned.
    """
    smallest: dict[str, tuple[float, Mistake]] = {}
    for mistake, changed in iter_variants(port, state):
        difference = error_at(station, reference, changed)
        best, _ = smallest.get(mistake.name, (tolerance, mistake))
        if difference <= best:
            smallest[mistake.name] = difference, mistake
    return tuple(mistake for _, mistake in smallest.values())


def find_simple_change(value: Array, expected: Array, tolerance: float) -> tuple[Mistake, ...]:
    """Return the factor or the row that makes an array equal to the expected array, if there is one."""
    is_comparable = np.isfinite(value).all() and np.isfinite(expected).all() and value.any()
    if not is_comparable:
        return ()
    allowed = tolerance * float(np.abs(expected).max())
    return _find_factor(value, expected, allowed) or _find_offset(value, expected, allowed)


def _find_factor(value: Array, expected: Array, allowed: float) -> tuple[Mistake, ...]:
    """Return a factor that makes the arrays equal. It is named if it is the root of the number of columns."""
    square = float((value * value).sum())
    factor = float((value * expected).sum()) / square  # the factor with the least squared error
    is_equal = np.abs(factor * value - expected).max() <= allowed
    if not is_equal or abs(factor - 1) < NEAR_ONE:
        return ()
    width = value.shape[-1] if value.ndim else 1
    root = width**0.5
    if width > 1 and abs(factor / root - 1) < NEAR_ONE:
        return (Mistake("root", width),)
    if width > 1 and abs(factor * root - 1) < NEAR_ONE:
        return (Mistake("inverse_root", width),)
    return (Mistake("factor", factor),)


def _find_offset(value: Array, expected: Array, allowed: float) -> tuple[Mistake, ...]:
    """Return the length of a row that makes the arrays equal if it is added to each of their rows."""
    difference = expected - value
    has_many_rows = value.ndim > 1 and value.size > value.shape[-1]
    if not has_many_rows:
        return ()
    rows = difference.reshape(-1, value.shape[-1])
    is_equal = np.abs(rows - rows.mean(axis=0)).max() <= allowed
    return (Mistake("offset", value.shape[-1]),) if is_equal else ()


def error_at(station: str, reference: Mapping[str, Array], port: Port) -> float:
    """Return the largest error of a port at a station, divided by the largest number there.

    The port starts at the last station of the reference before this one, or at the token ids.
    """
    names = [f"after block {i}" for i in range(len(port.params.blocks))] + ["logits"]
    earlier = [i for i in range(names.index(station)) if names[i] in reference]
    first = earlier[-1] if earlier else 0
    x = port.params.embedding.E[reference["ids"]]
    if earlier:
        x = reference[names[first]].astype(x.dtype)
    value = dict(walk_stations(x, first, port))[station]
    expected = reference[station]
    return float(np.abs(value - expected).max() / max(np.abs(expected).max(), 1e-300))


# --- the changes --------------------------------------------------------------------------------------


def iter_variants(port: Port, state: Mapping[str, Array]) -> Iterator[Variant]:
    """Yield the port with each change."""
    params, config = port
    for mistake, fields in settings_to_try(port):
        yield Variant(mistake, Port(params, config._replace(**fields)))
    for mistake, blocks in blocks_to_try(params):
        yield Variant(mistake, Port(params._replace(blocks=blocks), config))
    yield Variant(Mistake("one_plus_gamma"), Port(add_one(params), config))
    E = params.embedding.E
    scaled = params._replace(embedding=params.embedding._replace(E=E * E.shape[1] ** 0.5))
    if params.head is None:
        scaled = scaled._replace(head=E.T)
    yield Variant(Mistake("embedding_scale"), Port(scaled, config))
    for mistake, head in heads_to_try(params, state):
        yield Variant(mistake, Port(params._replace(head=head), config))


def settings_to_try(port: Port) -> Iterator[tuple[Mistake, dict[str, Any]]]:
    """Yield mistakes in the config, each with the fields that would repair it."""
    params, config = port
    layout = "halves" if config.rope_layout == "interleaved" else "interleaved"
    yield Mistake("rope_layout", layout), {"rope_layout": layout}
    for base in BASES:
        yield Mistake("base", base), {"base": base, "frequencies": None}
    for eps in EPSES:
        yield Mistake("eps", eps), {"eps": eps}
    d_model = config.d_model
    d_kv = params.blocks[0].attention.W_K.shape[1] if params.blocks else d_model
    for n_heads in range(1, d_model // 2 + 1):
        d_k = d_model // n_heads
        fits = (
            d_model % n_heads == 0 and d_k % 2 == 0 and d_kv % d_k == 0 and n_heads % (d_kv // d_k or 1) == 0
        )
        if fits and n_heads != config.n_heads:
            heads = (n_heads, d_kv // d_k)
            yield Mistake("heads", heads), {"n_heads": n_heads, "n_kv_heads": heads[1], "frequencies": None}


def blocks_to_try(params: CausalLMParams) -> Iterator[tuple[Mistake, tuple[CausalBlockParams, ...]]]:
    """Yield mistakes in the blocks, each with all blocks after the repair."""
    blocks = params.blocks
    yield (
        Mistake("gate_up"),
        tuple(
            block._replace(ffn=block.ffn._replace(W_gate=block.ffn.W_up, W_up=block.ffn.W_gate))
            for block in blocks
        ),
    )
    yield (
        Mistake("norms"),
        tuple(block._replace(norm_1=block.norm_2, norm_2=block.norm_1) for block in blocks),
    )
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        matrices = [getattr(block.attention, name) for block in blocks]
        if all(W.shape[0] == W.shape[1] for W in matrices):
            changed = [
                block._replace(attention=block.attention._replace(**{name: W.T}))
                for block, W in zip(blocks, matrices, strict=True)
            ]
            yield Mistake("transposed", name), tuple(changed)


def add_one(params: CausalLMParams) -> CausalLMParams:
    """Add 1 to gamma of every norm, as in models whose norm multiplies by 1 + gamma."""

    def one_more(norm: RMSNormParams) -> RMSNormParams:
        return RMSNormParams(norm.gamma + 1)

    blocks = tuple(
        block._replace(norm_1=one_more(block.norm_1), norm_2=one_more(block.norm_2))
        for block in params.blocks
    )
    return params._replace(blocks=blocks, norm=one_more(params.norm))


def heads_to_try(
    params: CausalLMParams, state: Mapping[str, Array]
) -> Iterator[tuple[Mistake, Array | None]]:
    """Yield other output matrices: the embedding, and each array of the file with the embedding's shape.

    None represents the embedding.
    """
    E = params.embedding.E
    if params.head is not None:
        yield Mistake("tied"), None
    for name, array in state.items():
        if array.shape == E.shape:
            yield Mistake("own_head", name), array.T.astype(E.dtype)
