"""The public names and their signatures, as others have written code against them: data/contract.txt.

    uv run python tests/contract.py        add the lines of new public names

Each line is a promise: names, order and defaults. A line may come, never go; so this only adds, and
test_house.py compares the lines with the package. Annotations may grow, so none are in the lines; an argument
that comes later, at the end and with a default, is written into its line by hand.
"""

import inspect
from pathlib import Path
from types import FunctionType, ModuleType

import npformer
import npformer.exercises
import npformer.teaching

FILE = Path(__file__).parent / "data" / "contract.txt"
DOORS = {"": npformer, "exercises.": npformer.exercises, "teaching.": npformer.teaching}
RECORDS = ("Params", "Config", "State")  # NamedTuples that a user makes; caches and reports may change


def signature(thing):
    """`(x, *, eps=1e-05)`: a function's parameters or a NamedTuple's fields, without annotations."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty, default=named(parameter.default))
        for parameter in inspect.signature(thing).parameters.values()
    ]
    return str(inspect.Signature(parameters))


def named(default):
    """numpy and float64 instead of an address or a path of this machine."""
    is_named = default is not inspect.Parameter.empty and isinstance(default, type | ModuleType)
    return type("Name", (), {"__repr__": lambda self: default.__name__})() if is_named else default


def public():
    """{name: signature} of what the package hands out now: of functions, and of what a user makes."""
    things = {
        f"{door}{name}": getattr(module, name) for door, module in DOORS.items() for name in module.__all__
    }
    return {
        name: signature(thing)
        for name, thing in things.items()
        if isinstance(inspect.unwrap(thing), FunctionType) or name.endswith(RECORDS)
    }


def promised(text):
    """{name: signature} of the lines of a contract."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.partition("(")[0]: "(" + line.partition("(")[2] for line in lines}


def broken(promises, found):
    """What the package no longer keeps, and what it hands out without a promise."""
    gone = [f"{name}{promises[name]} is not public any more" for name in promises if name not in found]
    new = [f"{name} is new: uv run python tests/contract.py" for name in found if name not in promises]
    both = [name for name in promises if name in found]
    changed = [f"{n}: promised {promises[n]}, got {found[n]}" for n in both if promises[n] != found[n]]
    return gone + changed + new


def main():
    text = FILE.read_text(encoding="utf-8")
    promises = promised(text)
    new = [f"{name}{found}\n" for name, found in public().items() if name not in promises]
    FILE.write_text(text + "".join(new), encoding="utf-8")
    print(f"{len(new)} new, {len(promises)} as before")


if __name__ == "__main__":
    main()
