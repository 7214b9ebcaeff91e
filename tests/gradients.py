"""Every operation's backward against differences of its forward.

An operation's own file asks with one line, `test_gradients = gradients_hold("ffn", {"activation": "gelu"})`,
for each way in which it is called: a dict of what differs from the valid call that its signature gives.
"""

from functools import partial
from itertools import product

from together import together
from valid_calls import PARAMETERS, arguments, drawn

import npformer as npf


def gradients_hold(operation, *ways):
    """A test: in each of these ways gradcheck passes, and it has looked at every array and parameter."""

    @together("way", ways)
    def test(way):
        check(operation, way)

    return test


def every(**choices):
    """The ways to combine these choices."""
    return [dict(zip(choices, way, strict=True)) for way in product(*choices.values())]


def check(operation, way):
    """`lead`, `T`, `S` are lengths, `directions` is gradcheck's; a config's fields mean other parameters."""
    sizes = {"T": 3, "S": 4} | {name: way[name] for name in ("lead", "T", "S") if name in way}
    call = arguments(f"{operation}_forward", **sizes)
    if "config" in call:
        fields = {name: way[name] for name in call["config"]._fields if name in way}
        call["config"] = call["config"]._replace(**fields)
        config = call["config"]
        vocabulary = () if operation.startswith(("encoder", "decoder")) else (5,)
        call["params"] = drawn(getattr(npf, f"init_{operation}"), *vocabulary, config)
    call |= {name: value for name, value in way.items() if name in call}
    forward, backward = (getattr(npf, f"{operation}_{which}") for which in ("forward", "backward"))
    kinds = {p.name: p.kind for p in PARAMETERS(forward)}
    positional = [call.pop(name) for name, kind in kinds.items() if kind is kind.POSITIONAL_OR_KEYWORD]
    options = {"directions": way.get("directions")} | {x: call.pop(x) for x in ("rng",) if x in call}
    report = npf.gradcheck(partial(forward, **call), backward, *positional, **options)
    assert report and report.tolerance == 1e-8, report
    floats = [a for _, a in npf.leaves(tuple(x for x in positional if is_tree(x))) if a.dtype.kind == "f"]
    assert len(report.rows) == len(floats)


def is_tree(x):
    return hasattr(x, "dtype") or (hasattr(x, "_fields") and not type(x).__name__.endswith("Config"))
