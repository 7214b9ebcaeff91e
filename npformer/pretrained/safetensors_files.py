"""Load and save trees as safetensors files, the format of most published models.

The package safetensors is optional, so this module imports it only when a file is read or written.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from npformer.arrays import Array, describe_value, is_array
from npformer.pretrained.named_arrays import require_file
from npformer.tree import (
    as_path,
    check_same_names,
    check_same_shape_and_dtype,
    iter_leaves,
    open_atomically,
    replace_leaves,
    report_damage,
)

if TYPE_CHECKING:
    from pathlib import Path

NUMPY_DTYPES = {  # the name of each dtype in the file format, and its name in NumPy
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",  # NumPy has no bfloat16, so the bits are read as integers
    "I64": "<i8",
    "I32": "<i4",
    "BOOL": "?",
    "I16": "<i2",
    "I8": "i1",
    "U64": "<u8",
    "U32": "<u4",
    "U16": "<u2",
    "U8": "u1",
}


def load_safetensors(path: Any, like: Any = None) -> Any:
    """Load the arrays of a safetensors file.

    Arrays of float16 and of bfloat16, which NumPy does not have, become float32. Nothing in the file is
    executed.

    Parameters
    ----------
    path : str or path
    like : tree of arrays, optional
        A tree with the structure, shapes and dtypes of the tree that `save_safetensors` wrote.

    Returns
    -------
    arrays : dict of str to array, or a tree
        A dict of arrays by their names in the file. With `like`, a tree with the structure of `like`.

    Raises
    ------
    ImportError
        If the package safetensors is not installed.
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file is damaged, or if names, shapes or dtypes differ from those of `like`.

    Examples
    --------
    >>> load_safetensors("no/such/model.safetensors")
    Traceback (most recent call last):
        ...
    FileNotFoundError: load_safetensors: there is no file no/such/model.safetensors
    """
    function = "load_safetensors"
    file = require_file(function, "path", path)
    arrays = read_arrays(function, file)
    if like is None:
        return arrays
    expected = dict(iter_leaves(function, like))
    check_same_names(function, file, expected, arrays)
    for name, leaf in expected.items():
        check_same_shape_and_dtype(function, file, name, (arrays[name].shape, arrays[name].dtype), leaf)
    return replace_leaves(like, iter([arrays[name] for name in expected]))


def save_safetensors(path: Any, tree: Any) -> None:
    """Save the arrays of a tree, or a dict of arrays, as a safetensors file.

    Each array of a tree is saved under its path, such as `blocks.0.ffn.W_1`. Each array of a dict is saved
    under its key. The data are first written to a temporary file, so `path` never names an incomplete file.

    Parameters
    ----------
    path : str or path
    tree : tree of arrays, or dict of str to array

    Raises
    ------
    ImportError
        If the package safetensors is not installed.
    TypeError
        If a leaf is not a NumPy array of numbers, or if a key of a dict is not a string.
    ValueError
        If a key is "__metadata__", which the format reserves.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_safetensors(f"{folder}/w.safetensors", (np.ones(2),))
    ...     load_safetensors(f"{folder}/w.safetensors")
    {'0': array([1., 1.])}
    """
    file = as_path("save_safetensors", "path", path)
    named_leaves = tree if isinstance(tree, Mapping) else dict(iter_leaves("save_safetensors", tree))
    for name, leaf in named_leaves.items():
        _check_entry(name, leaf)
    library = _import_library("save_safetensors", "safetensors.numpy")
    data = library.save({name: np.asarray(leaf, order="C") for name, leaf in named_leaves.items()})
    with open_atomically("save_safetensors", file) as stream:
        stream.write(data)


def _check_entry(name: Any, leaf: Any) -> None:
    """Check the name and the array of an entry of a file."""
    function = "save_safetensors"
    if not isinstance(name, str):
        raise TypeError(f"{function}: tree has the key {name!r}; expected strings")
    if name == "__metadata__":
        raise ValueError(f"{function}: tree has the key {name!r}, which the format reserves")
    is_numeric = isinstance(leaf, np.ndarray) and is_array(leaf) and leaf.dtype.kind in "fiub"
    if not is_numeric:
        expected = "an array of numbers of NumPy"
        raise TypeError(f"{function}: {name or 'the tree'} is {describe_value(leaf)}; expected {expected}")
    if leaf.dtype.itemsize > LARGEST_NUMBER:
        raise TypeError(
            f"{function}: {name or 'the tree'} has dtype {leaf.dtype}; expected at most 64 bits per number"
        )


LARGEST_NUMBER = 8  # the largest number of bytes per number in a safetensors file


def read_arrays(function: str, file: "Path") -> dict[str, Array]:
    """Read all arrays of a safetensors file, by name."""
    library = _import_library(function, "safetensors")
    with report_damage(function, file, "a complete safetensors file"):
        entries = library.deserialize(file.read_bytes())
    return {name: _decode_array(function, file, name, entry) for name, entry in entries}


def _import_library(function: str, module: str) -> Any:
    """Import a module of the package safetensors. Raises ImportError with the command that installs it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise ImportError(f"{function}: safetensors is not installed; pip install safetensors") from None


def _decode_array(function: str, file: "Path", name: str, entry: dict[str, Any]) -> Array:
    """Convert one entry of a file to an array. Both half-precision formats become float32."""
    dtype = entry["dtype"]
    if dtype not in NUMPY_DTYPES:
        expected = ", ".join(NUMPY_DTYPES)
        raise ValueError(f"{function}: {name} has dtype {dtype} in {file}; expected {expected}")
    array = np.frombuffer(entry["data"], NUMPY_DTYPES[dtype]).reshape(entry["shape"])
    if dtype == "BF16":  # a bfloat16 number is the upper half of a float32 number
        return (array.astype(np.uint32) << 16).view(np.float32)
    if dtype == "F16":
        return array.astype(np.float32)
    return array
