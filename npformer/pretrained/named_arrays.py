"""Build the parameter trees of this package from arrays that a file stores under different names.

A table maps each path of a tree to a name in the file: {"embedding.E": "token_embd.weight", ...}.
`build_name_tree` turns the table into a tree of names: the same NamedTuples, with names instead of arrays.
"""

from collections.abc import Callable, Iterator, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar, Union, cast, get_args, get_origin

from npformer.arrays import Array
from npformer.tree import as_path, leaves, replace_leaves, report_damage, tree_map
from npformer.validation.annotation_reader import to_rule
from npformer.validation.checks import DimensionNames, check_float, check_numbers, check_shape, describe_value
from npformer.validation.signature import check_value

if TYPE_CHECKING:
    from pathlib import Path


T = TypeVar("T")  # the type of a tree, such as CausalLMParams

# --- trees of names ---------------------------------------------------------------------------------


def build_name_tree(kind: type[T], names: Mapping[str, str], n_layers: int = 0) -> T:
    """Build a tree of the type `kind` that holds the names of the arrays instead of the arrays.

    `names` maps the path of each array to its name in the file. In paths and names, {} stands for a block
    number. A path that is not in `names` becomes None.
    """
    return cast(T, _build_branch(kind, names, n_layers, ""))


def _build_branch(annotation: Any, names: Mapping[str, str], n_layers: int, path: str) -> Any:
    """Build the part of a name tree that lies under one path, from the annotation of that part."""
    origin = get_origin(annotation)
    if origin in (Annotated, Union, UnionType):
        return _build_branch(get_args(annotation)[0], names, n_layers, path)
    if origin is tuple:
        block = _build_branch(get_args(annotation)[0], names, n_layers, f"{path}.{{}}")
        return tuple(_insert_block_number(block, i) for i in range(n_layers))
    if hasattr(annotation, "_fields"):
        prefix = f"{path}." if path else ""
        branches = [
            _build_branch(field_annotation, names, n_layers, f"{prefix}{field}")
            for field, field_annotation in annotation.__annotations__.items()
        ]
        return annotation(*branches) if any(branches) else None
    return names.get(path)


def _insert_block_number(block: Any, i: int) -> Any:
    """Return a block of names in which the number i replaces each {}."""
    return tree_map(lambda name: name.replace("{}", str(i)), block)


class Entry(NamedTuple):
    """The description of one array in a file: its name and the layout in which the file stores it."""

    name: str
    dimensions: DimensionNames  # the names of the dimensions, in the order of the file
    is_transposed: bool  # True for a weight matrix: the file stores it as (d_out, d_in)


def iter_entries(names: Any) -> Iterator[Entry]:
    """Yield the entries of a name tree in the order of `leaves`."""
    for field, part in zip(names._fields, names, strict=True):
        if isinstance(part, str):
            yield _build_entry(part, field, type(names).__annotations__[field])
        elif type(part) is tuple:
            for block in part:
                yield from iter_entries(block)
        elif part is not None:
            yield from iter_entries(part)


def _build_entry(name: str, field: str, annotation: Any) -> Entry:
    """Build an entry. Its dimensions come from the annotation of the field that takes the array."""
    dimensions = to_rule(annotation).dimension_names or ()
    is_transposed = field.startswith("W") or field == "head"
    if is_transposed:
        dimensions = dimensions[::-1]
    return Entry(name, dimensions, is_transposed)


# --- from named arrays to a tree, and back ----------------------------------------------------------


def build_tree(
    function: str,
    where: Any,
    names: T,
    found: Mapping[str, Any],
    sizes: Mapping[str, int],
    read: Callable[[str], Any] | None = None,
) -> T:
    """Build a tree of parameters from the arrays in `found`, whose names are in the name tree `names`.

    Weight matrices are transposed as views. The names and all shapes are checked before the first array is
    read. If `read` is given, `read(name)` returns each array, and all numbers must be finite floats.
    Otherwise the arrays come from `found`, and their numbers are not checked.
    """
    expected = {entry.name: entry for entry in iter_entries(names)}
    model = f"{type(names).__name__} with n_layers={sizes.get('n_layers', 1)}"
    check_names(function, where, model, expected, found)
    _check_shapes(function, where, expected, found, sizes)
    arrays = []
    for name, entry in expected.items():
        if read is None:
            array = found[name]
        else:
            array = read(name)
            check_float(function, f"{where}[{name!r}]", array)
            check_numbers(function, f"{where}[{name!r}]", array)
        arrays.append(array.T if entry.is_transposed else array)
    return cast(T, replace_leaves(names, iter(arrays)))


def _check_shapes(
    function: str,
    where: Any,
    expected: Mapping[str, Entry],
    found: Mapping[str, Any],
    sizes: Mapping[str, int],
) -> None:
    """Raise ValueError if an array does not have the shape that its entry and the sizes require."""
    sizes = dict(sizes)
    for name, entry in expected.items():
        check_shape(function, f"{where}[{name!r}]", found[name], entry.dimensions, sizes)
        # A size that the config lacks, such as vocab_size, is set by the first array with this dimension.
        sizes.update(zip(entry.dimensions, found[name].shape, strict=True))


def export_arrays(names: Any, params: Any) -> dict[str, Array]:
    """Return copies of the arrays of a tree under the names of a name tree, in the shapes of the file.

    Undoes `build_tree`.
    """
    arrays: dict[str, Array] = {}
    for entry, (_, array) in zip(iter_entries(names), leaves(params), strict=True):
        stored = array.T if entry.is_transposed else array
        arrays[entry.name] = stored.copy()
    return arrays


def get_sizes(config: Any, **more: int) -> dict[str, int]:
    """Return the size of each dimension that the config or `more` determines, by dimension name."""
    n_kv_heads = getattr(config, "n_kv_heads", config.n_heads)
    d_kv = config.d_model // config.n_heads * n_kv_heads
    return config._asdict() | {"d_kv": d_kv} | more


# --- checks -----------------------------------------------------------------------------------------


def check_names(function: str, where: Any, model: str, expected: Any, found: Any) -> None:
    """Raise ValueError for a name that is missing, and for a name that the model does not have."""
    for name in expected:
        if name not in found:
            _reject_names(function, where, f"no tensor {name}", len(expected), model)
    for name in found:
        if name not in expected:
            has = f"the tensor {name}, which no equation here has"
            _reject_names(function, where, has, len(expected), model)


def _reject_names(function: str, where: Any, has: str, n_expected: int, model: str) -> None:
    raise ValueError(f"{function}: {where} has {has}; expected the {n_expected} of {model}")


def check_is_dict(function: str, state: Any) -> None:
    """Raise TypeError unless `state` is a dict."""
    if not isinstance(state, Mapping):
        raise TypeError(f"{function}: state is {describe_value(state)}; expected a dict of names and arrays")


def check_dtypes(function: str, state: Mapping[str, Any]) -> None:
    """Raise TypeError unless all values of `state` are arrays of the same float dtype."""
    dtype = None
    for name, array in state.items():
        check_float(function, f"state[{name!r}]", array, dtype)
        dtype = array.dtype


def check_settings(
    function: str, file: Any, settings: Mapping[str, Any], supported: Mapping[str, Any]
) -> None:
    """Raise ValueError if a setting in a file has a value that is not supported.

    A supported value of None means that no equation of this package has such a setting.
    """
    for name, value in supported.items():
        if settings.get(name, value) != value:
            expected = "no such setting: its equation is not supported" if value is None else repr(value)
            raise ValueError(f"{function}: {file} says {name} = {settings[name]!r}; expected {expected}")


def require_file(function: str, argument: str, path: Any) -> "Path":
    """Return the path as a Path. Raises FileNotFoundError if it is not a file."""
    file = as_path(function, argument, path)
    if not file.is_file():
        raise FileNotFoundError(f"{function}: there is no file {path}")
    return file


# --- settings ---------------------------------------------------------------------------------------


def build_config(
    function: str, file: Any, settings: Any, fields: Mapping[str, str], kind: type[T], **more: Any
) -> T:
    """Build a config of the type `kind` from the settings of a file.

    `fields` maps the name of each setting to the field of the config that takes its value.
    Raises ValueError if a setting is missing or its value is out of range.
    """
    values = {}
    for name, field in fields.items():
        if name not in settings:
            raise ValueError(f"{function}: {file} does not say {name}")
        values[field] = settings[name]
    config = kind(**values, **more)
    check_value(function, f"{file}: config", config, kind)
    return config


def read_json(function: str, file: "Path", kind: type = dict) -> Any:
    """Return the content of a JSON file, or an empty dict or list if the file does not exist.

    Raises ValueError if the file is damaged, or if its content is not a dict or list as `kind` requires.
    """
    import json

    content = kind()
    with report_damage(function, file, "JSON"):
        if file.is_file():
            content = json.loads(file.read_bytes())
    if type(content) is not kind:
        raise ValueError(f"{function}: {file} holds {describe_value(content)}; expected a {kind.__name__}")
    return content


def find_package(name: str) -> "Path | None":
    """Return the folder of an installed package, or None. The package is not imported."""
    from importlib.util import find_spec
    from pathlib import Path

    spec = find_spec(name)
    if spec is None or not spec.origin:
        return None
    return Path(spec.origin).parent
