"""Every shape that stands in the package is kept, inside it too, also in what comes back.

The front door asks the arguments of public functions only. Here each function of the package that tells a
shape is held to it wherever it is called from: what it is given, what it returns, what it caches. So a letter
that is wrong in any annotation shows in a valid call, and "..." where no leading axes ever come.
"""

import functools
import importlib
import inspect
import pkgutil
from typing import get_args, get_origin

import numpy as np
from small_models import FORMS
from valid_calls import CALLS, CHECKED, CONFIG, LM_CONFIG

import npformer as npf
from npformer.modern import gated_ffn
from npformer.validation.signature import Call, ask_all, read_signature, shape_of, to_rule, walk

APART = ("exercises", "lessons", "player", "handouts", "__main__", "cli", "gradcheck")
MODULES = [
    importlib.import_module(found.name)
    for found in pkgutil.walk_packages(npf.__path__, "npformer.")
    if found.name.split(".")[1] not in APART
]
INSIDE = {
    thing
    for module in MODULES
    for thing in vars(module).values()
    if inspect.isfunction(thing)
    and thing.__module__ == module.__name__
    and "[Array, " in str(thing.__annotations__)
}
NOT_HELD = {"generate"}  # turns kept keys of all heads back at once, with one row of turns for all
LENGTHS = {  # of letters that only a result may tell; the last ones are of models in files
    "N": {12}, "S": {7}, "d_ff": {12, 64}, "d_k": {4}, "d_model": {8, 4, 32}, "max_length": {9, 20},
    "n_segments": {2}, "pairs": {2, 4}, "vocab_size": {5, 11, 29, 262, 267},
}  # fmt: skip


def hold(body, arguments, result, config, leading):
    """Hold a call to all its annotations; `leading` learns where "..." stood for axes."""
    told = Call(body.__name__, arguments, {})
    asked = [(name, rule) for name, rule in read_signature(body).rules if name in arguments]
    places = [place for name, rule in asked for place in walk(name, rule, arguments[name])]
    ask_all(told, places)
    told.letters = {name: n for name, n in arguments.items() if isinstance(n, int)} | told.letters
    before, results = set(told.letters), list(returned(body, result))
    told.arguments = {"config": config} | arguments
    for name, rule, value in results:
        if name and isinstance(value, tuple):
            assert shape_of(rule.letters, told) == value, name  # a cache keeps a shape
        elif not name or value is not None:
            ask_all(told, inside := [*walk(name or "the result", rule, value)])
            places += inside
    for letter in set(told.letters) - before - {"1", "d_kv", "h"}:
        assert told.letters[letter] in LENGTHS[letter], letter
    for name, rule, value in places:
        if "..." in (rule.letters or ()) and hasattr(value, "shape"):
            where = body.__name__, name.strip(".0123456789")
            leading[where] = leading.get(where, False) or len(value.shape) >= len(rule.letters)


def returned(body, result):
    """Each part of a result with its rule; of a cache each field that has a shape, with its name."""
    returns = body.__annotations__["return"]
    parts = get_args(returns) if get_origin(returns) is tuple else [returns]
    for annotation, value in zip(parts, result if len(parts) > 1 else [result], strict=True):
        if getattr(annotation, "__name__", "").endswith("Cache"):
            rules = [(name, to_rule(field)) for name, field in annotation.__annotations__.items()]
            yield from [
                (name, rule, getattr(value, name)) for name, rule in rules if rule.letters is not None
            ]
        else:
            yield "", to_rule(annotation), value


def held(body, config, called, leading):
    """The function, held to its whole signature at each call."""

    @functools.wraps(body)
    def inside(*args, **kwargs):
        bound = inspect.signature(body).bind(*args, **kwargs)
        bound.apply_defaults()
        called.add(body.__name__)
        result = body(*args, **kwargs)
        hold(body, dict(bound.arguments), result, config, leading)
        return result

    return inside


def test_every_shape_is_kept_inside_the_package(monkeypatch, folder):
    called, leading = set(), {}
    for name in [name for name in CHECKED if name not in NOT_HELD]:
        config = LM_CONFIG if "causal" in name else CONFIG
        config = FORMS[name.removeprefix("load_")].config if name.startswith("load_") else config
        wrapped = {body: held(body, config, called, leading) for body in INSIDE}
        with monkeypatch.context() as patch:
            for module in MODULES:
                for place, thing in list(vars(module).items()):
                    if inspect.isfunction(thing) and thing in wrapped:
                        patch.setattr(module, place, wrapped[thing])
            body = inspect.unwrap(getattr(npf, name))
            wrapped.get(body, held(body, config, called, leading))(**CALLS[name]())
    z, cache = wrapped[gated_ffn.sigmoid_forward](np.ones((2, 3)))
    wrapped[gated_ffn.sigmoid_backward](z, cache)
    assert {place for place, ever in leading.items() if not ever} == set()
    assert {body.__name__ for body in INSIDE} - called == NOT_HELD
