"""Hand-ins that are alike: a hint for the teacher, no verdict.

Code is read as runs of tokens, whatever its names, comments and layout. Runs that many students share, the
notebook that was handed out among them, do not count. npformer's own source is one more hand-in.
"""

import io
import keyword
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from typing import TypeAlias

from npformer.grader.submissions import HandIn
from npformer.grader.worker.student_module import split_source

RUN = 12  # tokens
FEWEST = 20  # runs that two must share
LEAST = 0.5  # of the runs of the shorter one
OURS = "npformer's own source"
Pair: TypeAlias = tuple[float, str, str]  # the part of the shorter that stands in both, and whose
COUNTED = (tokenize.NAME, tokenize.NUMBER, tokenize.OP, tokenize.STRING)


def alike(hand_ins: Iterable[tuple[str, HandIn]]) -> list[Pair]:
    """The pairs of owners whose files are most alike; the most alike first."""
    runs = defaultdict[str, set[int]](set)
    for owner, file in hand_ins:
        with suppress(ValueError):  # it cannot be read
            runs[owner] |= runs_of(file.name, file.read())
    few = max(3, len(runs) // 5)
    for path in Path(__file__).parents[1].rglob("*.py"):
        runs[OURS] |= runs_of(path.name, path.read_bytes())
    owners_of = defaultdict[int, list[str]](list)
    for owner, own in runs.items():
        for run in own:
            owners_of[run].append(owner)
    told = {run: owners for run, owners in owners_of.items() if len({*owners} - {OURS}) <= few}
    sizes = Counter(owner for owners in told.values() for owner in owners)
    shared = Counter(pair for owners in told.values() for pair in combinations(owners, 2))
    pairs = [(n / min(sizes[each] for each in pair), *pair) for pair, n in shared.items() if n >= FEWEST]
    return sorted((pair for pair in pairs if pair[0] >= LEAST), key=lambda pair: (-pair[0], *pair[1:]))


def runs_of(name: str, data: bytes) -> set[int]:
    """The runs of tokens in a file; none of a file that cannot be read.

    >>> runs_of("a.py", b"y = (a + b) * c - d / e") == runs_of("b.py", b"z=(p+q)*r-s/t  # mine")
    True
    """
    try:
        words = [word for _, source in split_source(name, data) for word in _words(source)]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return set()
    return {hash(tuple(words[i : i + RUN])) for i in range(len(words) - RUN + 1)}


def _words(source: str) -> Iterator[str]:
    with suppress(tokenize.TokenError, SyntaxError):  # so far as it can be read
        for kind, text, *_ in tokenize.generate_tokens(io.StringIO(source).readline):
            if kind == tokenize.NAME and not keyword.iskeyword(text):
                yield "name"
            elif kind in COUNTED:
                yield "text" if kind == tokenize.STRING else text
