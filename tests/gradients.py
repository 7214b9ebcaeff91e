"""Every operation's backward against differences of its forward.

An operation's own file asks with one line, `test_gradients = gradients_hold("ffn", {"activation": "gelu"})`,
for each way in which it is called: a dict of what differs from the valid call that its signature gives.
"""

import inspect
from functools import partial
from itertools import product

from together import together
from valid_calls import arguments, drawn, with_arrays

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
    """`directions` is gradcheck's."""
    call = call_of(operation, way)
    forward, backward = (getattr(npf, f"{operation}_{which}") for which in ("forward", "backward"))
    kinds = {p.name: p.kind for p in inspect.signature(forward).parameters.values()}
    positional = [call.pop(name) for name, kind in kinds.items() if kind is kind.POSITIONAL_OR_KEYWORD]
    options = {"directions": way.get("directions")} | {x: call.pop(x) for x in ("rng",) if x in call}
    report, arrays = npf.gradcheck(partial(forward, **call), backward, *positional, **options), []
    assert report and report.tolerance == 1e-8, report
    with_arrays(tuple(positional), arrays.append)
    assert len(report.rows) == sum(a.dtype.kind == "f" for a in arrays)


def call_of(operation, way):
    """The valid call with what is another in this way; `lead`, `T`, `S` are lengths, and fields of a config
    mean another config and parameters for it."""
    sizes = {"T": 3, "S": 4} | {name: way[name] for name in ("lead", "T", "S") if name in way}
    call, fields = arguments(f"{operation}_forward", **sizes), {}
    if "config" in call:
        fields = {name: way[name] for name in call["config"]._fields if name in way}
        call["config"] = call["config"]._replace(**fields)
        vocabulary = () if operation.startswith(("encoder", "decoder")) else (5,)
        call["params"] = drawn(getattr(npf, f"init_{operation}"), *vocabulary, call["config"])
    own = {name: value for name, value in way.items() if name not in {*fields, *sizes, "directions", "lead"}}
    assert own.keys() <= call.keys(), f"{operation}_forward has no {own.keys() - call.keys()}"
    return call | own
