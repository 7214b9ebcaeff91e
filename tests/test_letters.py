"""Every shape that stands in the package is kept, inside it too, also in what comes back.

The front door asks the arguments of public functions only. Here each function of the package that tells a
shape is held to it wherever it is called from: what it is given, what it returns, what it caches. So a letter
that is wrong in any annotation shows in a valid call, and "..." where no leading axes ever come. A result may
have lengths that no argument tells; which, stands in NEW_LETTERS: any other letter is a wrong one.
"""

import functools
import importlib
import inspect
import pkgutil
import re
from typing import get_args, get_origin

import numpy as np
from bad_calls import CHECKED
from small_models import FORMS
from valid_calls import CALLS, CONFIG, LM_CONFIG

import npformer as npf
from npformer.door.signature import Call, ask_all, read_signature, shape_of, to_rule, walk
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
NEW_LETTERS = {
    "cross_entropy_forward": "N",  # lengths that the arguments do not tell
    "angular_frequencies": "pairs",
    "wavelengths": "pairs",
    "rope_forward": "pairs",
    "split_heads": "d_k",
    "merge_heads": "d_model",
    "encoder_block_backward": "d_ff",
    "encoder_backward": "d_ff",
    "decoder_block_backward": "d_ff S",
    "decoder_backward": "d_ff",
    "transformer_backward": "max_length d_ff d_model",
    "init_transformer": "max_length",
    "encoder_block_from_torch": "d_model d_ff",
    "causal_lm_backward": "d_ff d_model",
    "load_gguf": "vocab_size d_model d_ff",
    "load_llama": "vocab_size d_model d_ff",
    "causal_lm_from_torch": "vocab_size",
    "load_llama2c": "vocab_size d_model d_ff",
    "load_minilm": "vocab_size d_model d_ff n_segments max_length",
}
CONFIGS = {
    "causal_lm_backward": LM_CONFIG,
    "causal_lm_forward": LM_CONFIG,
    "load_llama2c": FORMS["llama2c"].config,
    "load_gguf": FORMS["gguf"].config,
    "load_llama": FORMS["llama"].config,
    "causal_lm_from_torch": LM_CONFIG,
    "load_minilm": FORMS["minilm"].config,
}  # which tables and key heads the result has


def told_by(body, arguments):
    """What the arguments tell, each of them asked."""
    told = Call(body.__name__, arguments, {})
    rules = [(name, rule) for name, rule in read_signature(body).rules if name in arguments]
    ask_all(told, [place for pair in rules for place in walk(*pair, arguments[pair[0]])])
    return told


def ask_result(body, result, told, config):
    """Hold a result to the function's annotation, with the letters that its arguments have told."""
    for argument, value in told.arguments.items():
        if isinstance(value, int):
            told.letters.setdefault(argument, value)
    told.arguments = {"config": config} | told.arguments
    before = set(told.letters)
    for annotation, value in returned(body, result):
        if getattr(annotation, "__name__", "").endswith("Cache"):
            ask_cache(annotation, value, told)
        else:
            ask_all(told, [*walk("the result", to_rule(annotation), value)])
    assert set(told.letters) - before - {"1", "d_kv", "h"} == set(NEW_LETTERS.get(body.__name__, "").split())


def returned(body, result):
    """Each part of a result with its annotation."""
    returns = body.__annotations__["return"]
    return (
        zip(get_args(returns), result, strict=True) if get_origin(returns) is tuple else [(returns, result)]
    )


def ask_cache(kind, cache, told):
    for field, annotation in kind.__annotations__.items():
        rule, value = to_rule(annotation), getattr(cache, field)
        if rule.letters is not None and isinstance(value, tuple):
            assert shape_of(rule.letters, told) == value, field
        elif rule.letters is not None and value is not None:
            ask_all(told, [*walk(f"the cache's {field}", rule, value)])


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
            wrapped.get(body, held(body, config, called, leading))(**CALLS[name]())
    z, cache = held(gated_ffn.sigmoid_forward, CONFIG, called, leading)(np.ones((2, 3)))
    held(gated_ffn.sigmoid_backward, CONFIG, called, leading)(z, cache)
    assert {place for place, ever in leading.items() if not ever} == set()
    assert {body.__name__ for body in INSIDE} - called == NOT_HELD
