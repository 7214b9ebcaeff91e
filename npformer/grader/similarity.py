"""Find pairs of submissions with much code in common. This is a hint for the teacher, not a proof.

The code is compared as runs of successive tokens. Names, comments and layout do not matter. Runs that many
students have in common do not count, because they may come from the teacher's notebook. Submissions are also
compared with the source of npformer.
"""

import keyword
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import TypeAlias

from npformer.grader.submissions import Submission
from npformer.grader.worker.student_module import split_source

RUN_LENGTH = 12  # the number of tokens in a run
MIN_SHARED_RUNS = 20  # the least number of common runs in a reported pair
MIN_SHARE = 0.5  # the least ratio of the common runs to the runs of the shorter submission
PACKAGE = "npformer's own source"
READ_ERRORS = (ValueError, TypeError, LookupError, AttributeError, RecursionError)
# A possessive quantifier (`*+`) never backtracks, and a string without a closing quote extends to the end of
# its line or file. Therefore the time is proportional to the length of the text, whatever a student writes.
TOKEN = re.compile(
    r"""
    \#.*|\s+  # a comment and space are left out
    |(?P<text>(?i:[rbfu]{0,2})(?:
        "{3}(?:\\[\s\S]|[^"\\]|"(?!"{2}))*+\\?(?:"{3}|\Z)
        |'{3}(?:\\[\s\S]|[^'\\]|'(?!''))*+\\?(?:'{3}|\Z)
        |"(?:\\[\s\S]|[^"\\\n])*+\\?(?:"|(?=\n)|\Z)
        |'(?:\\[\s\S]|[^'\\\n])*+\\?(?:'|(?=\n)|\Z)
    ))
    |(?P<number>\.?\d[\w.]*(?:(?<=[eE])[+-]\d+)?)
    |(?P<name>\w+)
    |(?P<sign>\*\*=?|//=?|<<=?|>>=?|->|:=|\.\.\.|[-+*/%&|^@=<>!]=|[^\s\\])
    |\\  # the end of a line that continues is left out
    """,
    re.VERBOSE,
)

# The ratio of the common runs to the runs of the shorter submission, and the owners of the two submissions.
Pair: TypeAlias = tuple[float, str, str]


def find_similar(submissions: Iterable[tuple[str, Submission]]) -> list[Pair]:
    """Return the pairs of owners whose files have many runs in common. The most similar pair comes first."""
    runs = defaultdict[str, set[int]](set)
    for owner, file in submissions:
        runs[owner] |= _read_runs(file)
    max_owners = max(3, len(runs) // 5)
    runs[PACKAGE] |= _read_package_runs()
    rare_runs = _find_rare_runs(runs, max_owners)
    sizes = Counter(owner for owners in rare_runs for owner in owners)
    shared = Counter(pair for owners in rare_runs for pair in combinations(owners, 2))
    pairs = []
    for (first, second), count in shared.items():
        share = count / min(sizes[first], sizes[second])
        if count >= MIN_SHARED_RUNS and share >= MIN_SHARE:
            pairs.append((share, first, second))
    return sorted(pairs, key=lambda pair: (-pair[0], *pair[1:]))


def _find_rare_runs(runs: dict[str, set[int]], max_owners: int) -> list[list[str]]:
    """Return the list of owners for each rare run, which at most `max_owners` students have."""
    owners_by_run = defaultdict[int, list[str]](list)
    for owner, owner_runs in runs.items():
        for run in owner_runs:
            owners_by_run[run].append(owner)
    return [owners for owners in owners_by_run.values() if len({*owners} - {PACKAGE}) <= max_owners]


@cache
def _read_package_runs() -> frozenset[int]:
    """Return the hashed runs of npformer's own source."""
    paths = Path(__file__).parents[1].rglob("*.py")
    return frozenset[int]().union(*(hash_token_runs(path.name, path.read_bytes()) for path in paths))


def _read_runs(file: Submission) -> set[int]:
    """Return the hashed runs of a submission; an empty set if the file cannot be read."""
    try:
        return hash_token_runs(file.name, file.read())
    except ValueError:
        return set()


def hash_token_runs(name: str, data: bytes) -> set[int]:
    """Return the hashes of all runs of tokens in a file; an empty set if the file cannot be read.

    >>> original = hash_token_runs("a.py", b"y = (a + b) * c - d / e")
    >>> original == hash_token_runs("b.py", b"z=(p+q)*r-s/t  # mine")
    True
    """
    try:
        tokens = [token for _, source in split_source(name, data) for token in _iter_tokens(source)]
    except READ_ERRORS:
        return set()
    return {hash(tuple(tokens[i : i + RUN_LENGTH])) for i in range(len(tokens) - RUN_LENGTH + 1)}


def _iter_tokens(source: str) -> Iterator[str]:
    """Yield the tokens without comments and spaces. Every name becomes "name", and every string "text".

    The module `tokenize` would take six times as long.
    """
    for match in TOKEN.finditer(source):
        kind, text = match.lastgroup, match[0]
        if kind == "name" and not keyword.iskeyword(text):
            yield "name"
        elif kind == "text":
            yield "text"
        elif kind is not None:
            yield text
