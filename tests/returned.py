"""What comes back, held to the signature: the result and the arrays in the cache, with a call's letters.

A result may have lengths that no argument tells; which, stands in NEW_LETTERS. Any other letter that comes up
only in the result is a wrong one.
"""

import inspect
from typing import get_args, get_origin

from small_models import FORMS
from valid_calls import CALLS, CONFIG, LM_CONFIG

import npformer as npf
from npformer.door.signature import Call, ask_all, read_signature, shape_of, to_rule

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
    "load_llama2c": FORMS["llama2c"].config,
    "load_gguf": FORMS["gguf"].config,
    "load_llama": FORMS["llama"].config,
    "causal_lm_from_torch": LM_CONFIG,
}  # which tables and key heads the result has


def ask_call(name):
    """Hold what a public function returns to its annotation."""
    body, arguments = inspect.unwrap(getattr(npf, name)), CALLS[name]()
    told = told_by(body, arguments)
    ask_result(body, body(**arguments), told, CONFIGS.get(name, CONFIG))


def told_by(body, arguments):
    """What the arguments tell, each of them asked."""
    told = Call(body.__name__, arguments, {})
    ask_all(told, read_signature(body).rules)
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
            to_rule(annotation).ask(value, "the result", told)
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
            rule.ask(value, f"the cache's {field}", told)
