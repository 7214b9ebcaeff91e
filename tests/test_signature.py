"""npformer/signature.py: every annotation is read, and a `checked` function stays a function like any other."""

import ast
import copy
import doctest
import inspect
import itertools
import pickle
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace
from typing import Any, get_args, get_origin

import numpy as np
import pytest
import standin_cupy
import test_bad_input
from bad_calls import CHECKED, faults_of, valid_places
from valid_calls import CALLS, CONFIG, array, call, with_arrays

import npformer as npf
from npformer import Float, Ids, Mask, checked
from npformer.signature import (
    ANYTHING,
    Call,
    Rule,
    ask_all,
    ask_nothing,
    check_value,
    lengths,
    read_signature,
    to_rule,
)

BODIES = {name: inspect.unwrap(getattr(npf, name)) for name in CHECKED}


# --- every annotation is read ---------------------------------------------------------------------

ASK_NOTHING = {
    ("sgd_update", "params"): "what stands beside it is compared with it",
    ("adam_update", "params"): "what stands beside it is compared with it",
    ("order_sensitivity", "f"): "asked where it is called",
    ("load_minilm", "path"): "asked where the folder is opened",
    ("sentence_embeddings", "texts"): "asked where they are cut into tokens",
    ("sentence_embeddings", "tokenizer"): "asked where it is called",
    ("encoder_block_from_torch", "state"): "a dict is asked name by name",
}


def test_every_parameter_is_annotated_and_read():
    for name, body in BODIES.items():
        assert set(body.__annotations__) == {*inspect.signature(body).parameters, "return"}, name
    silent = {
        (name, parameter)
        for name, body in BODIES.items()
        for parameter, annotation in body.__annotations__.items()
        if parameter != "return" and to_rule(annotation) is ANYTHING
    }
    assert silent == set(ASK_NOTHING)


def test_every_field_of_parameters_is_read():
    kinds = {place.annotation for name in CHECKED for place in valid_places(name)}
    kinds = {kind for kind in kinds if hasattr(kind, "_fields") and not kind.__name__.endswith("Cache")}
    assert len(kinds) > 10
    for kind in kinds:
        assert all(to_rule(annotation) is not ANYTHING for annotation in kind.__annotations__.values()), kind


# --- what comes back is what the signature says ---------------------------------------------------

NEW_LETTERS = {  # lengths that the arguments do not tell
    "angular_frequencies": {"pairs"},
    "wavelengths": {"pairs"},
    "rope_forward": {"pairs"},
    "split_heads": {"d_k"},
    "merge_heads": {"d_model"},
}


def ask_result(name):
    """Hold what a function returns to its annotation, with the letters that its arguments have told."""
    body, arguments = inspect.unwrap(getattr(npf, name)), CALLS[name]()
    told = Call(name, arguments, {})
    ask_all(told, read_signature(body))
    for argument, value in arguments.items():
        if isinstance(value, int):
            told.letters.setdefault(argument, value)
    returns, result, before = body.__annotations__["return"], body(**arguments), set(told.letters)
    several = get_origin(returns) is tuple
    for annotation, value in zip(get_args(returns), result, strict=True) if several else [(returns, result)]:
        if getattr(annotation, "__name__", "").endswith("Cache"):
            ask_cache(annotation, value, told)
        else:
            to_rule(annotation).ask(value, "the result", told)
    assert set(told.letters) - before - {"1"} == NEW_LETTERS.get(name, set())


def ask_cache(kind, cache, told):
    for field, annotation in kind.__annotations__.items():
        rule, value = to_rule(annotation), getattr(cache, field)
        if rule.letters is not None and isinstance(value, tuple):
            assert lengths(rule.letters, told) == value, field
        elif rule.letters is not None and value is not None:
            rule.ask(value, f"the cache's {field}", told)


@pytest.mark.parametrize("name", CHECKED)
def test_the_result_is_what_the_signature_says(name, folder):
    ask_result(name)


# --- a letter changed in any annotation is noticed ------------------------------------------------

NOTHING = Rule("nothing", ask_nothing)
OTHERS = {
    "Float": "Ids", "Ids": "Float", "Mask": "Bias", "Bias": "Mask", "Numbers": "Ids", "Count": "Length",
    "Length": "Integer", "Size": "Length", "Integer": "Count", "Rate": "NonNegative", "NonNegative": "Positive",
    "Positive": "NonNegative", "Finite": "NonNegative", "Heads": "Count", "Id": "Integer",
}  # fmt: skip


def owners():
    """(what has annotations, function that has to notice): functions, their parameters and their caches."""
    found = {}
    for name in sorted(CHECKED, key=lambda name: len(valid_places(name))):  # the cheapest function first
        found[BODIES[name]] = name
        for place in valid_places(name):
            if hasattr(place.annotation, "_fields"):
                found.setdefault(place.annotation, name)
    return found


def annotations(owner):
    """The annotations as they are written, by name."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    if isinstance(tree, ast.ClassDef):
        return {node.target.id: node.annotation for node in tree.body if isinstance(node, ast.AnnAssign)}
    arguments = [*tree.args.args, *tree.args.kwonlyargs]
    return {a.arg: a.annotation for a in arguments} | {"return": tree.returns}


def mutants(written):
    """An annotation with a letter renamed or left out, another kind of array or number, or without None."""
    for node in ast.walk(ast.parse(written, mode="eval")):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and '"' not in node.value:
            letters = node.value.split()
            for i, letter in enumerate(letters):
                for other in ([] if letter == "..." else [f"new_{letter}"], []):
                    yield written.replace(repr(node.value), repr(" ".join([*letters[:i], *other, *letters[i + 1 :]])))
        if isinstance(node, ast.Name) and node.id in OTHERS:
            yield written.replace(node.id, OTHERS[node.id])
        if isinstance(node, ast.Name) and (node.id.isupper() or node.id in ("Rng", "DType", "bool", "Axis")):
            yield written.replace(node.id, "NOTHING")
        if isinstance(node, ast.BinOp):
            yield ast.unparse(node.left)


def all_mutants():
    for owner, function in owners().items():
        for name, node in annotations(owner).items():
            if name != "return" or "Float" in ast.unparse(node):
                for mutant in dict.fromkeys(mutants(ast.unparse(node))):
                    if mutant != ast.unparse(node):
                        yield owner, function, name, mutant


def notices(function):
    """Whether the valid call, the generated faults, the result or the sweep tell that something is wrong."""
    places = list(valid_places(function))
    try:
        call(function, CALLS[function]())
        wrong = any(test_bad_input.answer(p, fault) for p in places for fault in faults_of(p, places))
        if not wrong:
            ask_result(function)
            test_bad_input.test_odd_values_are_refused_or_welcome(function, None)
    except Exception:
        return True
    return wrong


def survives(owner, function, name, mutant, monkeypatch):
    names = vars(npf.signature) | vars(sys.modules[owner.__module__]) | {"NOTHING": NOTHING, "Any": Any}
    with monkeypatch.context() as patch:
        patch.setitem(owner.__annotations__, name, eval(mutant, names))
        patch.setattr(npf, function, checked(BODIES[function]))
        valid_places.cache_clear()
        noticed = notices(function)
    valid_places.cache_clear()
    return not noticed
