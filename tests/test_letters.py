"""Every shape that stands in the package is kept, inside it too.

The front door asks the arguments of public functions only. Here each function of the package that tells a
shape is held to it wherever it is called from: what it is given, what it returns, what it caches. So a letter
that is wrong in any annotation shows in a valid call, and "..." where no leading axes ever come.
"""

import functools
import importlib
import inspect
import pkgutil
import re

import numpy as np
from bad_calls import CHECKED
from returned import ask_result, returned, told_by
from valid_calls import CALLS, CONFIG, LM_CONFIG

import npformer as npf
from npformer.door.signature import to_rule
from npformer.modern import gated_ffn

APART = ("exercises", "teaching", "__main__", "cli", "gradcheck")
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
CONFIGS = {"causal_lm_backward": LM_CONFIG, "causal_lm_forward": LM_CONFIG}


def held(body, config, called, leading):
    """The function, held to its whole signature at each call; `leading` learns where "..." stood for axes."""

    @functools.wraps(body)
    def inside(*args, **kwargs):
        bound = inspect.signature(body).bind(*args, **kwargs)
        bound.apply_defaults()
        told = told_by(body, dict(bound.arguments))
        called.add(body.__name__)
        result = body(*args, **kwargs)
        ask_result(body, result, told, config)
        parts = [(name, body.__annotations__[name], value) for name, value in bound.arguments.items()]
        parts += [("returns", annotation, value) for annotation, value in returned(body, result)]
        for name, annotation, value in parts:
            for path, letters, axes in arrays_of(name, annotation, value):
                place = (body.__name__, re.sub(r"\.\d+", "", path))
                leading[place] = leading.get(place, False) or axes >= len(letters)
        return result

    return inside


def arrays_of(name, annotation, value):
    """(path, letters, number of axes) of each array with leading axes in what an annotation describes."""
    letters = to_rule(annotation).letters
    if letters is not None and letters[:1] == ("...",) and value is not None:
        yield name, letters, len(value if isinstance(value, tuple) else value.shape)
    elif isinstance(annotation, type) and hasattr(annotation, "_fields"):
        for (field, inner), part in zip(annotation.__annotations__.items(), value, strict=True):
            yield from arrays_of(f"{name}.{field}", inner, part)


def test_every_shape_is_kept_inside_the_package(monkeypatch, folder):
    called, leading = set(), {}
    for name in [name for name in CHECKED if name not in NOT_HELD]:
        config = CONFIGS.get(name, CONFIG)
        with monkeypatch.context() as patch:
            wrapped = {body: held(body, config, called, leading) for body in INSIDE}
            for module in MODULES:
                for place, thing in list(vars(module).items()):
                    if inspect.isfunction(thing) and thing in wrapped:
                        patch.setattr(module, place, wrapped[thing])
            body = inspect.unwrap(getattr(npf, name))
            wrapped.get(body, body)(**CALLS[name]())
    z, cache = held(gated_ffn.sigmoid_forward, CONFIG, called, leading)(np.ones((2, 3)))
    held(gated_ffn.sigmoid_backward, CONFIG, called, leading)(z, cache)
    assert {place for place, ever in leading.items() if not ever} == set()
    assert {body.__name__ for body in INSIDE} - called == NOT_HELD
