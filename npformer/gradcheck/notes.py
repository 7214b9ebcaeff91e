"""Describe relations and reasons in words, with the templates in notes.toml and reasons.toml.

This module formats the numbers, axes and lengths of a note. relations.py contains no text.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from npformer.gradcheck.finite_differences import Reason
from npformer.gradcheck.noise import LARGEST_ROUNDING, Noise
from npformer.gradcheck.relations import Factor, Origin, Relation, is_number

OPTIONAL: dict[str, tuple[str, ...]] = {  # for each kind: the parameters that a note may leave out
    "transposed": ("order",),
    "other": ("factor", "times_d_output"),
    "term_added": ("factor",),
    "symmetric": ("factor",),
    "multiplied": ("name", "instead_of"),
    "mixes": ("not_along",),
    "stray": ("from_index", "to_index"),
    "d_output_transposed": ("order",),
}
MOST_ORIGINS = 2  # the largest number of lengths that a note names for one factor


@cache
def load_templates(file_name: str = "notes.toml") -> dict[str, dict[str, str]]:
    """Read templates: notes.toml has a table for each kind of relation, reasons.toml has all other texts."""
    import tomllib  # imported here because only a wrong gradient needs these modules
    from pathlib import Path

    text = Path(__file__).with_name(file_name).read_text(encoding="utf-8")
    return tomllib.loads(text)


def describe_relation(relation: Relation) -> tuple[str, ...]:
    """Return the parts of a note: the observation, the likely cause, and the lengths that explain a factor.


    Examples
    --------
    >>> from npformer.gradcheck.relations import Relation
    >>> describe_relation(Relation("sign"))
    ('the gradient has the opposite sign everywhere', 'perhaps a minus sign is missing or extra')
    """
    parts = [describe_observation(relation)]
    other = relation.parameters.get("other")
    if other is not None:
        parts.append(describe_observation(other))
    template = load_templates()[relation.kind]
    parts.append(template["cause"])
    if relation.parameters.get("origins"):
        parts.append(template["sizes"].format_map(describe_parameters(relation)))
    return tuple(parts)


def describe_observation(relation: Relation) -> str:
    """Describe how a gradient differs from the correct gradient, with the template for these parameters."""
    silent = [name for name in OPTIONAL.get(relation.kind, ()) if _is_silent(name, relation.parameters[name])]
    key = "observation"
    if silent:
        key = f"observation_without_{'_and_'.join(silent)}"
    return load_templates()[relation.kind][key].format_map(describe_parameters(relation))


def _is_silent(name: str, value: Any) -> bool:
    """Return whether a note should leave out an optional parameter, such as a factor of 1."""
    if name == "factor":
        return is_number(value, 1)
    if name == "order":
        return len(value) == 2  # With two axes, only one other order exists.
    if name == "not_along":
        return value is None  # The value 0 means axis 0, so `not value` would be wrong.
    return not value


def describe_parameters(relation: Relation) -> dict[str, str]:
    """Return the text that replaces the placeholder of each parameter."""
    texts = {name: _format_parameter(name, value) for name, value in relation.parameters.items()}
    if relation.kind == "factor":  # The text of the origins depends on the factor.
        texts["origins"] = format_origins(relation.parameters["origins"], relation.parameters["factor"])
    return texts


def _format_parameter(name: str, value: Any) -> str:
    """Format one parameter by its name or its type."""
    if name == "axes":
        return format_axes(value)
    if name == "share":
        return f"{value:.0e}"
    if value is None:
        return ""
    if isinstance(value, Relation):
        return describe_observation(value)
    if isinstance(value, Factor):
        return format_factor(value)
    if isinstance(value, tuple) and name != "shape":
        return ", ".join(map(str, value))
    return str(value)


def format_axes(axes: Sequence[int]) -> str:
    """Format axes as "axis 0" or "axes 0 and 1"."""
    word = "axes" if len(axes) > 1 else "axis"
    return f"{word} {' and '.join(map(str, axes))}"


def format_factor(factor: Factor) -> str:
    """Format a factor as a fraction or a root, such as -1/2 or √5. Other factors are written in digits."""
    if factor.fraction is None:
        digits = f"{factor.value:.7g}"
        if digits == "1":
            return f"1 + {factor.value - 1:.1g}"
        return digits
    number = str(abs(factor.fraction))
    if factor.is_root and "/" in number:
        number = f"({number})"
    root = "√" if factor.is_root else ""
    sign = "-" if factor.value < 0 else ""
    return sign + root + number


def format_origins(origins: Sequence[Origin], factor: Factor) -> str:
    """Format the lengths that explain a factor, as in "2 is the length of axis 0 of x"."""
    length = format_factor(_make_length(factor))
    lengths = [_format_origin(origin) for origin in origins[:MOST_ORIGINS]]
    return f"{length} is {', and '.join(lengths)}"


def _make_length(factor: Factor) -> Factor:
    """Return the absolute value of the factor, or the inverse of this value if it is less than 1."""
    value = abs(factor.value)
    fraction = None if factor.fraction is None else abs(factor.fraction)
    if value < 1:
        value = 1 / value
        fraction = None if fraction is None else 1 / fraction
    return Factor(value, fraction, factor.is_root)


def _format_origin(origin: Origin) -> str:
    """Format one length or a product of two lengths, as in "the root of the length of axis 1 of x"."""
    length = f"the length of {' times '.join(origin.names)}"
    return f"the root of {length}" if origin.is_root else length


def describe_reason(reason: Reason) -> str:
    """Describe why an entry of a gradient cannot be judged."""
    return load_templates("reasons.toml")["reasons"][reason.value]


def describe_kink(left: float, right: float, place: str) -> str:
    """Describe the two slopes at a kink, and the gradient's position: `place`, a key of `places_at_kink`."""
    templates = load_templates("reasons.toml")
    place_text = templates["places_at_kink"][place]
    return templates["reasons"]["kink"].format(left=left, right=right, place=place_text)


def describe_noise(noise: Noise) -> str:
    """Describe the noise of forward as the reason why a gradient cannot be judged."""
    templates = load_templates("reasons.toml")["noise"]
    if noise.height > 0:
        return templates["staircase"].format(height=noise.height)
    return templates["rounding"].format(level=noise.level)


def describe_noise_of_reference(noise: Noise, is_forward: bool) -> str:
    """Describe the noise of a reference. `is_forward` says that forward is its own reference."""
    templates = load_templates("reasons.toml")["noise_of_reference"]
    if noise.height > 0 and noise.level > LARGEST_ROUNDING:
        template = templates["staircase"]
    else:  # A rounded function is a staircase too, with very low steps.
        template = templates["forward" if is_forward else "reference"]
    return template.format(height=noise.height, level=noise.level)


def describe_count(count: int, size: int) -> str:
    """Describe in how many entries a gradient is wrong."""
    return load_templates("reasons.toml")["reasons"]["wrong_entries"].format(count=count, size=size)
