"""Trees in safetensors files, the format in which most models are published; by the library of that name."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.arrays import Array
from npformer.door.validate import is_array, kind_of
from npformer.tree import refilled, walked

if TYPE_CHECKING:
    from pathlib import Path

DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "BOOL": "?"}
DTYPES |= {"I16": "<i2", "I8": "i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1"}


def load_safetensors(path: Any, like: Any = None) -> Any:
    """The file's arrays as a dict of names; with `like`, a tree, what `save_safetensors` wrote, in its form.

    bfloat16, which NumPy does not know, and float16 become float32. Nothing in the file is executed.

    Raises ImportError without the package safetensors, FileNotFoundError for a file that is not there, and
    ValueError for a damaged one, or where names, shapes or dtypes are not those of `like`.

    >>> load_safetensors("no/such/model.safetensors")
    Traceback (most recent call last):
        ...
    FileNotFoundError: load_safetensors: there is no file no/such/model.safetensors
    """
    file = _path("load_safetensors", path)
    if not file.is_file():
        raise FileNotFoundError(f"load_safetensors: there is no file {path}")
    library = _library("load_safetensors")
    try:
        entries = dict(library.deserialize(file.read_bytes()))
    except library.SafetensorError as error:
        raise ValueError(f"load_safetensors: {file} is not a complete safetensors file ({error})") from None
    arrays = {name: _array(name, entry, file) for name, entry in entries.items()}
    return arrays if like is None else _tree(arrays, like, file)


def save_safetensors(path: Any, tree: Any) -> None:
    """Write a tree's arrays, each under its path (`blocks.0.ffn.W_1`), or a dict of arrays by its names.

    The file appears when it is complete. Raises ImportError without the package safetensors, TypeError for
    a leaf that is no array of NumPy.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_safetensors(f"{folder}/w.safetensors", (np.ones(2),))
    ...     load_safetensors(f"{folder}/w.safetensors")
    {'0': array([1., 1.])}
    """
    file = _path("save_safetensors", path)
    leaves = tree if isinstance(tree, Mapping) else dict(walked("save_safetensors", "", tree))
    for name, leaf in leaves.items():
        if not isinstance(leaf, np.ndarray) or not is_array(leaf) or leaf.dtype.kind not in "fiub":
            expected = "an array of numbers of NumPy"
            raise TypeError(f"save_safetensors: {name or 'the tree'} is {kind_of(leaf)}; expected {expected}")
    from importlib import import_module

    _library("save_safetensors")
    arrays = {name: np.ascontiguousarray(leaf) for name, leaf in leaves.items()}
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        unfinished.write_bytes(import_module("safetensors.numpy").save(arrays))
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def _path(function: str, path: Any) -> "Path":
    from pathlib import Path

    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{function}: path is {kind_of(path)}; expected a string or a pathlib.Path")
    return Path(path)


def _library(function: str) -> Any:
    from importlib import import_module
    from importlib.util import find_spec

    if find_spec("safetensors") is None:
        raise ImportError(f"{function}: safetensors is not installed; pip install safetensors")
    return import_module("safetensors")


def _array(name: str, entry: dict[str, Any], file: "Path") -> Array:
    """One entry; a half-precision number is the upper half of a float32, or NumPy's own kind."""
    kind = entry["dtype"]
    if kind not in DTYPES:
        kinds = ", ".join(DTYPES)
        raise ValueError(f"load_safetensors: {name} has dtype {kind} in {file}; expected one of {kinds}")
    array = np.frombuffer(entry["data"], DTYPES[kind]).reshape(entry["shape"])
    if kind == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32) if kind == "F16" else array


def _tree(arrays: dict[str, Array], like: Any, file: "Path") -> Any:
    expected = dict(walked("load_safetensors", "", like))
    for name in sorted(expected.keys() ^ arrays.keys()):
        where = "is missing from" if name in expected else "is not in `like` but stands in"
        raise ValueError(f"load_safetensors: {name or 'the array'} {where} {file}")
    for name, leaf in expected.items():
        found = arrays[name].shape, arrays[name].dtype
        if found != (leaf.shape, leaf.dtype):
            have = f"has shape {found[0]} and dtype {found[1]} in {file}"
            raise ValueError(
                f"load_safetensors: {name or 'the array'} {have}; expected {leaf.shape} and {leaf.dtype}"
            )
    return refilled(like, iter([arrays[name] for name in expected]))
