"""What the checker says to every answer in these tests, kept in a file; and what it says otherwise later.

    uv run python tests/exercises/replies.py keep FILE
    uv run python tests/exercises/replies.py compare FILE [PREFIX …]

keeps the replies, then lists those that differ now; a prefix such as `softmax` or `attention.f` asks these
exercises alone. Numbers are asked again as they were kept, so that other numbers drawn for a name show.
"""

import contextlib
import io
import json
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from codings import codings

from npformer.exercises import check, list_exercises, show

NAMES = ("", "@Ada", "@Bo 3", "@李")
NEAR = (0.0, 1.0, -1.0, 17.3, 6.9, "half", [1, 2], None)


def plain_answers(exercise):
    """(asked, answer) of what is no code: each letter, the right number, known wrong ones, some near it."""
    if exercise.kind in ("choice", "truth"):
        letters = "abcdef"[: len(exercise.options)] if exercise.kind == "choice" else (True, False)
        yield from ((exercise.id, answer) for answer in (*letters, "maybe", None))
    elif exercise.kind != "code":
        for name in NAMES:
            question = exercise.posed(name[1:])
            right = np.asarray(question.answer, float)
            near = (
                right,
                -right,
                right + 1,
                2 * right,
                np.round(right, 1),
                right[::-1] if right.ndim else right,
            )
            for value in (*question.wrong.values(), *near, *NEAR):
                plain = value if isinstance(value, str | list | None) else np.asarray(value, float).tolist()
                yield exercise.id + name, plain


def replies(exercise, answer):
    """The replies of the three levels, as a file gives them back; what the answer prints is lost."""
    with contextlib.redirect_stdout(io.StringIO()):
        told = [check(exercise, answer, level=level) for level in (1, 2, 3)]
    return json.loads(json.dumps(told))


def told(exercise, prefixes):
    return not prefixes or exercise.startswith(tuple(prefixes))


def code_replies(prefixes=()):
    rows = [(c.place, c.exercise, c.function) for c in codings() if told(c.exercise, prefixes)]
    for n, (key, exercise, f) in enumerate(rows):
        if sys.stderr.isatty() and not n % 20:
            print(f"\r{n} of {len(rows)} codings", end="", file=sys.stderr, flush=True)
        yield [key, exercise, f.__name__ if hasattr(f, "__name__") else "", replies(exercise, f)]


def shown():
    return {e.id + name: str(show(e.id + name)) for e in list_exercises() for name in NAMES}


def keep(path):
    plain = [
        [asked, answer, replies(asked, answer)]
        for e in list_exercises()
        for asked, answer in plain_answers(e)
    ]
    Path(path).write_text(
        json.dumps({"code": list(code_replies()), "plain": plain, "shown": shown()}), "utf-8"
    )


def compare(path, prefixes):
    """Print what differs, and how much was compared."""
    kept, now, seen = json.loads(Path(path).read_text("utf-8")), shown(), Counter()
    pairs = [((k, e, n), old) for k, e, n, old in kept["code"] if told(e, prefixes)]
    new = {(k, e, n): r for k, e, n, r in code_replies(prefixes)}
    for key, old in pairs:
        seen["code"] += 1
        if new.get(key) != old:
            seen["code differs"] += 1
            difference(" ".join(key), old, new.get(key))
    for asked, answer, old in kept["plain"]:
        if told(asked, prefixes):
            seen["plain"] += 1
            reply = replies(asked, answer)
            if reply != old:
                seen["plain differs"] += 1
                difference(f"{asked} {answer!r}", old, reply)
    for asked, text in kept["shown"].items():
        if told(asked, prefixes) and now.get(asked) != text:
            seen["shown differs"] += 1
            print(f"--- show {asked}\n  was {text}\n  is  {now.get(asked)}")
    print(dict(seen))
    return sum(n for what, n in seen.items() if "differs" in what)


def difference(what, old, new):
    """The levels that differ, level 3 first: it says most."""
    print(f"--- {what}")
    level = next((k for k in (2, 1, 0) if not new or old[k] != new[k]), 2)
    print(f"  level {level + 1}\n  was {old[level]}\n  is  {new and new[level]}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    begun = time.time()
    what, path, *prefixes = sys.argv[1:]
    differ = keep(path) if what == "keep" else compare(path, prefixes)
    print(f"{time.time() - begun:.0f} s")
    sys.exit(bool(differ))
