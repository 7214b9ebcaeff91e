"""What can be seen in an answer to an exercise on what came after 2017, and in two backward passes.

As in `behaviour`, the student's function is called on arguments that show one thing at a time.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from npformer.backend import Array
from npformer.exercises.probe import Trial, run
from npformer.exercises.relations import EXACT, Seen, close, named_factor, ratio
from npformer.exercises.see import unused, written
from npformer.exercises.topics.old_behaviour import OWN_MASK, POINTS, later_keys_hidden, scale, wave

Look = Callable[[Trial], Seen | None]

# --- which tokens are left -------------------------------------------------------------------------


def tokens_left(trial: Trial) -> Seen | None:
    """Which tokens keep a probability: too few, too many, others, or the right ones with other numbers."""
    pairs = [trial.both(probe) for probe in trial.calls]
    told = [pair for pair in pairs if pair and pair[0].shape == pair[1].shape]
    if len(told) < len(pairs) or all(np.array_equal(np.sort(a), np.sort(b)) for a, b in told):
        return None
    if not all(np.isfinite(a).all() for a, _ in told):
        return Seen("{it} is not finite everywhere.", "Is at least one token left, whatever the share?")
    if all(((a > 0) == (b > 0)).all() for a, b in told):
        return _other_shares([a for a, _ in told])
    if any(_unlikely(a, probe[0]) for (a, _), probe in zip(told, trial.calls, strict=True)):
        return Seen(
            "In {it} a token is left, and a likelier one is not.",
            "In which order do tokens get in, and does the result stand in p's order again?",
        )
    return _too_few_or_many([int((a > 0).sum() - (b > 0).sum()) for a, b in told], told[0][0])


def _other_shares(found: list[Array]) -> Seen:
    sums = ", ".join(f"{a.sum():.3g}" for a in found[:2])
    if all(abs(a.sum() - 1) < 2e-3 for a in found):
        return Seen(
            "The right tokens are left, and the numbers sum to 1; their proportions are not those of p.",
            "By what is each p that is left divided?",
        )
    return Seen(
        f"The right tokens are left; the new probabilities sum to {sums} on the first calls.",
        "What do probabilities sum to?",
    )


def _unlikely(found: Array, p: Array) -> bool:
    left, gone = p[found > 0], p[found <= 0]
    return left.size > 0 and gone.size > 0 and float(left.min()) < float(gone.max())


def _too_few_or_many(more: list[int], first: Array) -> Seen | None:
    if (first > 0).all() and max(more) > 0:
        return Seen("In {it} no token is dropped.", "What happens to the tokens that are not needed?")
    asks = "When is the share reached, and is the token with which it is reached left or dropped?"
    if min(more) >= 0:
        return Seen("The likeliest tokens are left, and too many of them.", asks)
    if max(more) <= 0:
        return Seen("The likeliest tokens are left, and too few of them.", asks)
    return Seen(
        "The likeliest tokens are left: on some calls too many of them, on others too few.",
        "What is compared with the share: one probability, a number of tokens, or a running sum?",
    )


# --- one unit of a gated network -------------------------------------------------------------------

GATES: dict[str, Callable[[Array], Array]] = {
    "z times the sigmoid of -z": lambda z: z / (1 + np.exp(z)),
    "z itself": lambda z: z,
    "z squared": np.square,
    "the sigmoid of -z": lambda z: 1 / (1 + np.exp(z)),
}


def one_gate(trial: Trial) -> Seen | None:
    """The network is right but for what one hidden unit makes of its two numbers."""
    answers = _joined(trial, POINTS, np.ones(5))
    if answers is None:
        return None
    for x, W_gate, W_up, W_down in trial.calls:
        hidden, pair = _joined(trial, x @ W_gate, x @ W_up), trial.both((x, W_gate, W_up, W_down))
        if hidden is None or pair is None or not close(pair[0], hidden @ W_down):
            return None
    known = next((f" It is {name}." for name, f in GATES.items() if close(answers, f(POINTS))), "")
    return Seen(
        "The three products with the weights are right. Where x W_up is 1, one hidden unit makes of "
        f"z = x W_gate = -2, -1, 0, 1, 2: {written(answers)}.{known}",
        "What does SiLU make of these five z, and which part of it is above 0 for each z?",
    )


def _joined(trial: Trial, gate: Array, up: Array) -> Array | None:
    """What one unit makes of a number of the gate and one beside it."""
    x = np.stack([gate, up], axis=-1).reshape(1, -1, 2)
    first, second = np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]])
    outcome = run(trial.function, (x, first, second, first.T), trial.probe)
    shaped = outcome.arrays and outcome.arrays[0].shape == x.shape and not outcome.arrays[0][..., 1].any()
    return outcome.arrays[0][0, :, 0].reshape(gate.shape) if shaped else None


# --- key heads -------------------------------------------------------------------------------------


def key_heads(trial: Trial) -> Seen | None:
    """How the weights are made, with v = 1: which key head each query head looks at, and by which scale."""
    shown = [_weights_of_heads(trial, q, k) for q, k, _ in trial.calls]
    weights = [w for w in shown if w is not None]
    if len(weights) < len(shown):
        return None
    if not all(np.allclose(w.sum(axis=-1), 1, atol=1e-5) for w in weights):
        return NO_SOFTMAX
    if later_keys_hidden(weights):
        return OWN_MASK
    probes = list(zip(weights, trial.calls, strict=True))
    used = [
        [_used(w, q, k) for w, q in zip(heads, queries, strict=True)] for heads, (queries, k, _) in probes
    ]
    known = [[one for one in heads if one] for heads in used]
    if known != used:
        return _other_queries(weights[0], *trial.calls[0][:2])
    scales = [heads[0][1] for heads in known]
    d_k = [q.shape[-1] ** -0.5 for q, *_ in trial.calls]
    if not np.allclose(scales, d_k, rtol=1e-4):
        return scaled_by(scales, trial)
    heads, (q, k, _) = [g for g, _ in known[0]], trial.calls[0]
    return _mapped(heads) if heads != [i * len(k) // len(q) for i in range(len(q))] else None


NO_SOFTMAX = Seen(
    "With v = 1 the output shows the weights: those of one query do not sum to 1, so they are no softmax "
    "over the keys.",
    "What do the weights of one query sum to, and over which axis?",
)


def scaled_by(scales: list[float], trial: Trial) -> Seen:
    """A softmax of q·k times another number than 1/√d_k."""
    name = named_factor(scales, trial.sizes)
    if not name:
        times = [scale * sizes["d_k"] ** 0.5 for scale, sizes in zip(scales, trial.sizes, strict=True)]
        name = f"1/√d_k times {named_factor(times, trial.sizes) or 'another one in each call'}"
    return Seen(
        f"The weights are a softmax of q·k times one number, {name}.",
        "By what are the scores divided, and does it follow d_k?",
    )


def _mapped(heads: list[int]) -> Seen:
    written = ", ".join(map(str, heads))
    return Seen(
        f"In the first call, query heads 0 to {len(heads) - 1} look at the keys of the key heads {written}.",
        "Which query heads are neighbours, and which key head do they share?",
    )


def _other_queries(weights: Array, queries: Array, k: Array) -> Seen | None:
    """Heads of the output that are made from the queries of other heads."""
    made = [next((i for i, q in enumerate(queries) if _used(w, q, k)), None) for w in weights]
    if None in made:
        return None
    return Seen(
        f"In the first call, heads 0 to {len(made) - 1} of {{it}} are made from the queries of the heads "
        f"{', '.join(map(str, made))}.",
        "Which heads share a key head, and in which order do they come out of a reshape?",
    )


def _weights_of_heads(trial: Trial, q: Array, k: Array) -> Array | None:
    pair = trial.both((q, k, np.broadcast_to(np.eye(k.shape[1]), (len(k), k.shape[1], k.shape[1])).copy()))
    return pair[0] if pair and pair[0].shape == pair[1].shape else None


def _used(weights: Array, q: Array, k: Array) -> tuple[int, float] | None:
    """The key head whose products with q these weights are a softmax of, and the number before q·k."""
    found = [(g, s) for g, keys in enumerate(k) if (s := scale(q @ keys.T, weights)) is not None]
    return found[0] if found else None


# --- turned queries and keys -----------------------------------------------------------------------


def turned_pairs(trial: Trial) -> Seen | None:
    """What is left of two rotations: tokens all alike, one pair of columns at a time, v = 1."""
    T, d = 8, trial.calls[0][0].shape[1]
    if _causal_by_itself(trial):
        return OWN_MASK
    logs = []
    for i in range(d // 2):
        token = np.tile(np.eye(d)[2 * i], (T, 1))
        pair = trial.both((token, token, np.eye(T)))
        if pair is None or pair[0].shape != (T, T):
            return None
        if not np.allclose(pair[0].sum(axis=-1), 1, atol=1e-5):
            return NO_SOFTMAX
        if not (pair[0] > 0).all():
            return None
        logs.append((np.log(pair[0]), np.log(pair[1])))
    return _by_distance([mine for mine, _ in logs]) or _by_angle(logs)


def _causal_by_itself(trial: Trial) -> bool:
    """Whether v = 1 shows weights of 0 above the diagonal."""
    shown = [trial.both((q, k, np.eye(len(k)))) for q, k, _ in trial.calls]
    weights = [pair[0] for pair in shown if pair and pair[0].shape == pair[1].shape]
    return len(weights) == len(shown) and later_keys_hidden(weights)


def _by_distance(logs: list[Array]) -> Seen | None:
    steps = [np.diff(log, axis=1) for log in logs]
    if not all(np.allclose(s[1:, 1:], s[:-1, :-1], atol=1e-5) for s in steps):
        return Seen(
            "Where all tokens are alike, a key's weight depends on more than its distance from the query.",
            "Which of q and k are turned, in which direction, and what is left when they meet?",
        )
    if not all(np.allclose(log[1, 0], log[1, 2], atol=1e-5) for log in logs):
        return Seen(
            "Where all tokens are alike, the key before a query and the key after it get different weights.",
            "From which position on are queries counted, and from which are keys?",
        )
    return None


def _by_angle(logs: list[tuple[Array, Array]]) -> Seen | None:
    """The weights follow the distance: by which angles, and are the scores as large as they should be?"""
    steps = [(np.diff(mine[0]), np.diff(right[0])) for mine, right in logs]
    times = [ratio(mine, right) for mine, right in steps]
    if all(time is not None and abs(time - 1) < 1e-4 for time in times):
        return None  # right for these tokens: what differs is something else
    if all(times):
        return Seen(
            "All pairs turn by the right angles, and the scores are "
            f"{written(np.array(times[:1]))} times as large as they should be.",
            "By what are the scores divided, and does it follow d?",
        )
    angles = [wave(mine) for mine, _ in steps]
    if any(angle is None for angle in angles):
        return None
    return Seen(
        "The weights follow the distance between query and key; from one place to the next the pairs turn by "
        f"{written(np.array(angles))} radians.",
        "By which angle does pair i turn in one step?",
    )


# --- the two running means of Adam -----------------------------------------------------------------


def running_mean(trial: Trial) -> Seen | None:
    """What m, or v, is mixed from, in the student's own numbers."""
    if trial.output == 0:
        return None
    name, power = (("m", 1), ("v", 2))[trial.output - 1]
    pairs = [trial.both(probe) for probe in trial.calls]
    told = [(pair[0], probe) for pair, probe in zip(pairs, trial.calls, strict=True) if pair]
    old = np.concatenate([probe[1 + trial.output] for _, probe in told])
    new = np.concatenate([probe[1] ** power for _, probe in told])
    found = np.concatenate([a for a, _ in told])
    (kept, taken), *_ = np.linalg.lstsq(np.stack([old, new], axis=1), found, rcond=None)
    if not close(kept * old + taken * new, found):
        return None
    what = "g" if power == 1 else "g²"
    return Seen(
        f"The new {name} is {kept + 0.0:.3g} times the old one and {taken + 0.0:.3g} times {what}.",
        "Which β belongs to which of the two means, and what do the two shares of a mean sum to?",
    )


def step_size(trial: Trial) -> Seen | None:
    """The step of w points where it should and is too long or too short, by a factor that follows t."""
    if trial.output:
        return None
    told = {}
    for probe in trial.calls:
        pair = trial.both(probe)
        if pair is None or pair[0].shape != probe[0].shape:
            return None
        if np.abs(probe[1]).max() > 1e-3:  # beside smaller gradients ε counts
            told[probe[4]] = ratio(probe[0] - pair[0], probe[0] - pair[1])
    if not all(told.values()):
        return None
    return Seen(
        "The step of {it} is right up to one factor that follows t: "
        f"{' and '.join(f'{factor:.3g} at t = {t}' for t, factor in told.items())}.",
        "What do 1 - β_1 to the power of t and 1 - β_2 to the power of t come to at t = 1 and 2?",
    )


# --- the three terms of a layer norm's dx ----------------------------------------------------------


def three_terms(trial: Trial) -> Seen | None:
    """dx has the right three terms, with other weights."""
    if trial.output:
        return None
    weights = [_terms(trial, probe) for probe in trial.calls]
    if not all(w is not None for w in weights):
        return None
    known = [w for w in weights if w is not None]
    named = {
        words: named_factor([float(w[k]) for w in known], trial.sizes) or "that changes from call to call"
        for k, words in ((1, "the mean of dy · gamma"), (2, "the term along x̂"))
    }
    other = " and ".join(f"{words} has the weight {name}" for words, name in named.items() if name != "1")
    asks = "Which sign" if set(named.values()) <= {"1", "-1"} else "Is it a sum or a mean, and which sign"
    return Seen(f"{{it}} has its three terms, but {other}, where 1 is right.", f"{asks} has that term?")


def _terms(trial: Trial, probe: tuple[Any, ...]) -> Array | None:
    dy, x, gamma, _, eps = probe
    pair = trial.both(probe)
    if pair is None or pair[0].shape != x.shape:
        return None
    centred = x - x.mean(axis=-1, keepdims=True)
    std = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps)
    x_hat, dx_hat = centred / std, dy * gamma
    along = x_hat * (dx_hat * x_hat).mean(axis=-1, keepdims=True)
    mean = np.broadcast_to(dx_hat.mean(axis=-1, keepdims=True), x.shape)
    terms = np.stack([(term / std).ravel() for term in (dx_hat, -mean, -along)], axis=1)
    weights, *_ = np.linalg.lstsq(terms, pair[0].ravel(), rcond=None)
    fits = np.abs(terms @ weights - pair[0].ravel()).max() <= EXACT * np.abs(pair[0]).max()
    return weights if fits and abs(weights[0] - 1) < 1e-4 and (np.abs(weights) > 1e-4).all() else None


BEFORE: dict[str, Look] = {"sample.top_p": tokens_left}
SINCE_2017: dict[str, tuple[Look, ...]] = {
    "gate.forward": (unused, one_gate),
    "attention.grouped": (key_heads,),
    "rope.attention": (turned_pairs,),
    "adam.step": (running_mean, unused, step_size),
    "layer_norm.backward": (three_terms,),
}
