"""Write the tables of kills.md: the verdicts of gradcheck on every planted bug and every hard pair.

    uv run python tests/data/make_kill_table.py

It used 23 seconds of CPU time on 28 November 2026. The time grows with the number of pairs, and on a busy
machine the script waits for the processor: there it took two minutes. It measures no costs; their row comes
from gradcheck_cost.json.
"""

import json
import re
import sys
import warnings
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from pairs import (  # noqa: E402
    FRESH_BUGS,
    HARD_PAIRS,
    LATER_BUGS,
    PLANTED_BUGS,
    VERDICT_OF_LABEL,
    make_pair,
)
from valid_calls import arrays_in, like  # noqa: E402

from npformer import gradcheck  # noqa: E402
from npformer.gradcheck.report import VERDICTS  # noqa: E402


def verdict_of(forward, backward, args, **kwargs):
    """Return the worst verdict in a report and its note, or "refused" and the message of the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = gradcheck(forward, backward, *args, **kwargs).rows
    except (TypeError, ValueError) as error:
        return "refused", str(error).removeprefix("gradcheck: ").split(";")[0]
    verdict = min((row.verdict for row in rows), key=[*VERDICTS].index)
    paths = ", ".join(row.path for row in rows if row.verdict == verdict)
    notes = [
        f": {re.sub(', first [^]]*]', '', row.note)}" for row in rows if row.verdict == verdict and row.note
    ]
    return verdict, "" if verdict == "pass" else paths + "".join(notes[:1])


def planted(bugs):
    """Return a summary with counts, and a table row for each planted bug."""
    rows = [
        (name, " ".join(sorted(bug.spoils)), *verdict_of(bug.forward, bug.wrong, bug.args))
        for name, bug in bugs.items()
    ]
    caught, named = sum(row[2] == "fail" for row in rows), sum(";" in row[3] for row in rows)
    return f"{caught} of {len(rows)} caught, {named} named", rows


def hard(**settings):
    """Return a summary with counts, and a table row for each hard pair."""
    rows = []
    for name, row in HARD_PAIRS.items():
        must, forward, backward, args, kwargs, _ = make_pair(*row)
        rows.append((name, must, *verdict_of(forward, backward, args, **kwargs, **settings)))
    right = sum(VERDICT_OF_LABEL[must] == verdict for _, must, verdict, _ in rows)
    return f"{right} of {len(rows)} judged correctly", rows


def in_float32(forward, backward):
    """Change a pair so that its results have the dtype of the first float array among the arguments."""

    def narrow(*args):
        y, cache = forward(*args)
        dtypes = [a.dtype for a in arrays_in(args) if a.dtype.kind == "f"]
        return np.asarray(y, dtypes[0]), cache

    return narrow, lambda dy, cache: like(backward(dy, cache), dy.dtype)


def otherwise():
    """Return the table rows for checks in float32 and for checks along random directions."""
    rows = []
    for way in ("in float32", "directions=3"):
        settings = {"directions": 3} if way == "directions=3" else {}
        verdicts = []
        for bug in PLANTED_BUGS.values():
            pairs, args = [(bug.forward, bug.wrong), (bug.forward, bug.right)], bug.args
            if way == "in float32":
                pairs, args = [in_float32(*make_pair) for make_pair in pairs], like(args, np.float32)
            verdicts += [verdict_of(*make_pair, args, **settings)[0] for make_pair in pairs]
        n, failed = len(PLANTED_BUGS), verdicts[::2].count("fail")
        rows.append((way, f"{failed} of {n} rejected", f"{verdicts[1::2].count('pass')} of {n} pass"))
    return "", [*rows, ("directions=3, hard pairs", hard(directions=3)[0], "")]


def cost():
    """Return the table rows with the measured costs of gradcheck."""
    measured = json.loads((HERE / "gradcheck_cost.json").read_text(encoding="utf-8"))
    large = measured["large"]
    what = f"a Transformer, {large['arrays']} arrays, 3 directions each"
    row = (what, f"{large['weights']:,}", f"{large['seconds']}000", f"{large['calls']:,}", "", "")
    return "", [*measured["five"], row]


def refilled(section, counts, rows):
    """Return a section with new counts in its title and new rows in its table."""
    title, _, text = section.partition("\n")
    words, head, rule = re.match(r"(.*?)(^\|[^\n]*\n)(\|[- |]*\n)", text, re.DOTALL | re.MULTILINE).groups()
    lines = [" | ".join(str(cell).replace("|", "\\|") for cell in row) for row in rows]
    title = title.split(": ")[0]
    if counts:
        title += f": {counts}"
    return f"{title}\n{words}{head}{rule}" + "".join(f"| {line} |\n" for line in lines)


if __name__ == "__main__":
    page = HERE / "kills.md"
    top, *sections = page.read_text(encoding="utf-8").split("\n## ")
    tables = [planted(PLANTED_BUGS), planted(LATER_BUGS), planted(FRESH_BUGS), hard(), otherwise(), cost()]
    parts = [refilled(section, *table) for section, table in zip(sections, tables, strict=True)]
    page.write_text("\n## ".join([top, *parts]), encoding="utf-8")
