"""The commands npformer exercises and npformer show."""

import argparse
from collections.abc import Iterator
from typing import Any


def add_exercises(commands: Any) -> None:
    """Register the commands with a parser's subcommands."""
    what = "print every exercise of the bank, the easy ones first"
    every = commands.add_parser("exercises", help=what, description=f"P{what[1:]}.")
    every.set_defaults(run=_exercises)
    show = commands.add_parser("show", help="print one exercise", description="Print one exercise.")
    show.add_argument("id", metavar="ID", help="such as pe.entry, or pe.entry@Ada for Ada's own numbers")
    show.add_argument("--bug", action="store_true", help="its solution with one wrong line, to be mended")
    show.set_defaults(run=_show)


def _exercises(options: argparse.Namespace) -> Iterator[str]:
    from npformer.exercises import list_exercises

    yield str(list_exercises())


def _show(options: argparse.Namespace) -> Iterator[str]:
    from npformer.exercises import find_the_bug, show

    yield str(find_the_bug(options.id) if options.bug else show(options.id))
