"""Trees in safetensors files, the format in which most models are published; by the library of that name."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.arrays import Array, is_array, kind_of
from npformer.pretrained.named_arrays import existing
from npformer.tree import as_damage, as_path, check_same_kind, check_same_names, refilled, walked, whole_file

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
    function = "load_safetensors"
    file = existing(function, "path", path)
    arrays = arrays_in(function, file)
    if like is None:
        return arrays
    expected = dict(walked(function, like))
    check_same_names(function, file, expected, arrays)
    for name, leaf in expected.items():
        check_same_kind(function, file, name, (arrays[name].shape, arrays[name].dtype), leaf)
    return refilled(like, iter([arrays[name] for name in expected]))


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
    file = as_path("save_safetensors", "path", path)
    leaves = tree if isinstance(tree, Mapping) else dict(walked("save_safetensors", tree))
    for name, leaf in leaves.items():
        if not isinstance(leaf, np.ndarray) or not is_array(leaf) or leaf.dtype.kind not in "fiub":
            expected = "an array of numbers of NumPy"
            raise TypeError(f"save_safetensors: {name or 'the tree'} is {kind_of(leaf)}; expected {expected}")
    library = _library("save_safetensors", "safetensors.numpy")
    data = library.save({name: np.ascontiguousarray(leaf) for name, leaf in leaves.items()})
    with whole_file(file) as stream:
        stream.write(data)


def arrays_in(function: str, file: "Path") -> dict[str, Array]:
    """What a safetensors file holds, by name."""
    library = _library(function, "safetensors")
    with as_damage(function, file, "a complete safetensors file"):
        entries = library.deserialize(file.read_bytes())
    return {name: _array(function, file, name, entry) for name, entry in entries}


def _library(function: str, name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise ImportError(f"{function}: safetensors is not installed; pip install safetensors") from None


def _array(function: str, file: "Path", name: str, entry: dict[str, Any]) -> Array:
    """One entry; a half-precision number is the upper half of a float32, or NumPy's own kind."""
    kind = entry["dtype"]
    if kind not in DTYPES:
        raise ValueError(f"{function}: {name} has dtype {kind} in {file}; expected {', '.join(DTYPES)}")
    array = np.frombuffer(entry["data"], DTYPES[kind]).reshape(entry["shape"])
    if kind == "BF16":
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32) if kind == "F16" else array
