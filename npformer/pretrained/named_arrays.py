"""Arrays under the names of others: a table of names is a tree of ours, with a name where the array goes."""

from collections.abc import Iterator, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin

from npformer.arrays import Array
from npformer.tree import as_damage, as_path, leaves, refilled, tree_map
from npformer.validation.annotation_reader import to_rule
from npformer.validation.checks import DimensionNames, check_float, check_numbers, check_shape, kind_of
from npformer.validation.signature import check_value

if TYPE_CHECKING:
    from pathlib import Path


T = TypeVar("T")  # a tree with arrays, or with names in their places


def table(kind: type[T], text: str, n_layers: int = 0) -> T:
    """A tree of this kind with the words of a text in place of arrays, in the order of `leaves`.

    A - stands for what is absent (None); the words of one block for those of all, {} for a block's number.
    """
    words = iter(text.split())

    def tree(kind: Any) -> Any:
        parts = get_args(kind)
        if get_origin(kind) in (Annotated, Union, UnionType):
            return tree(parts[0])
        if get_origin(kind) is tuple:
            block = tree(parts[0])
            return tuple(tree_map(lambda x, i=i: x.replace("{}", f"{i}"), block) for i in range(n_layers))
        if hasattr(kind, "_fields"):
            branches = [tree(annotation) for annotation in kind.__annotations__.values()]
            return kind(*branches) if any(branches) else None
        word = next(words)
        return None if word == "-" else word

    return cast(T, tree(kind))


class Entry(NamedTuple):
    """One name of a table, and how its array stands in the file."""

    name: str
    letters: DimensionNames  # of its axes
    is_turned: bool  # a W or the head: its outputs are rows there, columns here


def entries(names: Any) -> Iterator[Entry]:
    """The table's names in the order of `leaves`; the shape of each array is that of its annotation."""
    for field, part in zip(names._fields, names, strict=True):
        if isinstance(part, str):
            letters = to_rule(type(names).__annotations__[field]).dimension_names or ()
            is_turned = field.startswith("W") or field == "head"
            yield Entry(part, letters[::-1] if is_turned else letters, is_turned)
        elif part is not None:
            for branch in part if type(part) is tuple else [part]:
                yield from entries(branch)


def from_names(
    function: str, where: Any, names: T, found: Mapping[str, Any], sizes: dict[str, int], read: Any = None
) -> T:
    """The tree of the arrays that stand under the table's names, a W turned over as a view.

    Refuses what lacks one of them, has one too many or one of another shape, before `read` is asked for the
    first; and what it reads, unless that holds finite floats. Without `read` the arrays are those found.
    """
    expected = {name: (letters, is_turned) for name, letters, is_turned in entries(names)}
    model = f"{type(names).__name__} with n_layers={sizes.get('n_layers', 1)}"
    check_names(function, where, model, expected, found)
    for name, (letters, _) in expected.items():
        check_shape(function, f"{where}[{name!r}]", found[name], letters, sizes)
        sizes = sizes | dict(zip(letters, found[name].shape, strict=True))  # no config tells vocab_size

    def array(name: str, is_turned: bool) -> Array:
        x: Array = read(name) if read else found[name]
        for check in (check_float, check_numbers) if read else ():
            check(function, f"{where}[{name!r}]", x)
        return x.T if is_turned else x

    return cast(T, refilled(names, (array(name, turned) for name, (_, turned) in expected.items())))


def to_names(names: Any, params: Any) -> dict[str, Array]:
    """The other way: copies of the tree's arrays under the table's names, a W turned over."""
    pairs = zip(entries(names), leaves(params), strict=True)
    return {name: (leaf.T if turned else leaf).copy() for (name, _, turned), (_, leaf) in pairs}


def sizes_of(config: Any, **more: int) -> dict[str, int]:
    """What a config says of the letters."""
    d_kv = config.d_model // config.n_heads * getattr(config, "n_kv_heads", config.n_heads)
    return config._asdict() | {"d_kv": d_kv} | more


def check_names(function: str, where: Any, model: str, expected: Any, found: Any) -> None:
    """Refuse a name that is missing, and one for which the tree has no place."""
    for name in (name for name in (*expected, *found) if name not in expected or name not in found):
        has = f"no tensor {name}" if name in expected else f"the tensor {name}, which no equation here has"
        raise ValueError(f"{function}: {where} has {has}; expected the {len(expected)} of {model}")


def check_state(function: str, state: Any, model: str = "", names: Any = None) -> None:
    """Refuse anything but a dict of arrays of one float dtype, under these names where some are given."""
    if not isinstance(state, Mapping):
        raise TypeError(f"{function}: state is {kind_of(state)}; expected a dict of names and arrays")
    check_names(function, "state", model, names or state, state)
    dtype = None
    for name, array in state.items():
        check_float(function, f"state[{name!r}]", array, dtype)
        dtype = array.dtype


def config_from(function: str, file: Any, said: Any, sizes: dict[str, str], kind: type[T], **more: Any) -> T:
    """The config of this kind whose sizes a file says, each under its name there."""
    for name in sizes:
        if name not in said:
            raise ValueError(f"{function}: {file} does not say {name}")
    config = kind(**{letter: said[name] for name, letter in sizes.items()}, **more)
    check_value(function, f"{file}: config", config, kind)
    return config


def said_in(function: str, file: "Path", kind: type = dict) -> Any:
    """What a JSON file says, nothing where it is not there; damaged or of another kind, it is refused."""
    import json

    with as_damage(function, file, "JSON"):
        said = json.loads(file.read_bytes()) if file.is_file() else kind()
    if type(said) is not kind:
        raise ValueError(f"{function}: {file} holds {kind_of(said)}; expected a {kind.__name__}")
    return said


def check_settings(function: str, file: Any, said: Mapping[str, Any], fits: Mapping[str, Any]) -> None:
    """Refuse, by its name, what a file says that is not what fits; None is what no equation here has."""
    for name, value in fits.items():
        if said.get(name, value) != value:
            expected = "no such thing, which no equation here has" if value is None else repr(value)
            raise ValueError(f"{function}: {file} says {name} = {said[name]!r}; expected {expected}")


def package_folder(name: str) -> "Path | None":
    """Where a package lies, None where it is not installed; nothing in it is run."""
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec(name)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def existing(function: str, argument: str, path: Any) -> "Path":
    """The file of this path."""
    file = as_path(function, argument, path)
    if not file.is_file():
        raise FileNotFoundError(f"{function}: there is no file {path}")
    return file
