"""Trees of arrays: arithmetic, iteration over their leaves, and files.

A tree is an array, None, a tuple of trees or a NamedTuple of trees. Its leaves are its arrays. The path of a
leaf consists of the field names and indices from the root to the leaf, such as ``blocks.0.ffn.W_1``.
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from npformer.arrays import array_module, describe_value, is_array

if TYPE_CHECKING:
    # Only the functions that use files import pathlib and zipfile at run time. This makes `import npformer`
    # faster for everyone else.
    from pathlib import Path

Tree = TypeVar("Tree")  # the type of a tree, for functions that return a tree of the same type
MAX_DEPTH = 100  # the maximum depth of nested tuples
NPZ = "a complete .npz file of arrays"
PROCESS_ID = os.urandom(8).hex()  # part of the names of this process's unfinished files


def tree_map(f: Callable[..., Any], tree: Tree, *trees: Any) -> Tree:
    """Apply f to each array of a tree, or to the arrays with the same path in several trees.

    None stays None. To add two trees, write ``tree_map(lambda a, b: a + b, params, grads)``. The operator
    ``+`` would concatenate the NamedTuples.

    Parameters
    ----------
    f : function
        It receives one array of each tree, and returns an array.
    tree : tree
    *trees : trees of the same form

    Returns
    -------
    result : tree of the same form

    Raises
    ------
    ValueError
        If the trees do not have the same form. The message names the path.
    TypeError
        If a tree contains a list or a dict.

    Examples
    --------
    >>> tree_map(lambda a, b: a - b, (np.ones(2), None), (np.ones(2), None))
    (array([0., 0.]), None)
    """
    if not callable(f):
        raise TypeError(f"tree_map: f is {describe_value(f)}; expected a function")
    return map_leaves("tree_map", f, tree, *trees)


def map_leaves(function: str, f: Callable[..., Any], tree: Tree, *trees: Any) -> Tree:
    """Do the same as ``tree_map``. Error messages name ``function``, the function that the user called."""
    rows = list(zip_leaves(function, tree, *trees))
    for path, leaves in rows:
        for leaf in leaves:
            if isinstance(leaf, list | dict):  # otherwise f would receive the whole list or dict
                expected = "expected an array, None or a tuple of trees"
                raise TypeError(f"{function}: {path or 'a tree'} is {describe_value(leaf)}; {expected}")
    return replace_leaves(tree, iter([f(*leaves) for _, leaves in rows]))


def leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over the arrays of a tree in order, each with its path.

    Absent parameters (None) are skipped.

    Parameters
    ----------
    tree : tree

    Returns
    -------
    pairs : iterator of (path, array)
        The arrays are those of the tree and are not copied.

    Raises
    ------
    ValueError
        If the tree is nested more than 100 deep.

    Examples
    --------
    >>> [path for path, _ in leaves(((np.ones(2), None), np.ones(1)))]
    ['0.0', '1']
    """
    return iter_leaves("leaves", tree)


def iter_leaves(function: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """Do the same as ``leaves``. Error messages name ``function``, the function that the user called."""
    return ((path, leaf) for path, (leaf,) in zip_leaves(function, tree))


def zip_leaves(function: str, *trees: Any, path: str = "") -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Iterate over the paths of several trees. Each path comes with the leaf of every tree at this path.

    Raises ValueError where the trees do not have the same form.
    """
    first, *others = trees
    if any(_node_type(other) != _node_type(first) for other in others):
        found = " and ".join(map(_describe, trees))
        raise ValueError(f"{function}: the trees differ at {path or 'the root'}: {found}")
    if path.count(".") >= MAX_DEPTH:  # The message of Python's RecursionError would not help the user.
        raise ValueError(f"{function}: the tree is nested more than {MAX_DEPTH} deep, at {path[:40]}...")
    if isinstance(first, tuple):
        for i, parts in enumerate(zip(*trees, strict=True)):
            name = get_branch_name(first, i)
            yield from zip_leaves(function, *parts, path=f"{path}.{name}" if path else name)
    elif first is not None:
        yield path, trees


def _node_type(tree: Any) -> tuple[Any, int]:
    """Return the type of a node and the number of its branches. Trees of the same form agree in both."""
    if isinstance(tree, tuple):
        return type(tree), len(tree)
    return (None if tree is None else "leaf"), 0


def _describe(tree: Any) -> str:
    """Describe a node in an error message."""
    if isinstance(tree, tuple):
        return f"a {type(tree).__name__} of {len(tree)}"
    return "None" if tree is None else f"a leaf ({type(tree).__name__})"


def list_leaves(tree: Any) -> list[Any]:
    """Return the arrays of a tree in the order of ``leaves``. Without paths, this is several times faster."""
    found: list[Any] = []
    _append_leaves(tree, found)
    return found


def _append_leaves(tree: Any, found: list[Any]) -> None:
    """Append the arrays of a tree to a list."""
    if isinstance(tree, tuple):
        for part in tree:
            _append_leaves(part, found)
    elif tree is not None:
        found.append(tree)


def replace_leaves(tree: Any, arrays: Iterator[Any]) -> Any:
    """Return a tree of the same form whose leaves are the given arrays, in the order of ``leaves``."""
    if isinstance(tree, tuple):
        return tuple.__new__(type(tree), [replace_leaves(part, arrays) for part in tree])
    return None if tree is None else next(arrays)


def get_branches(tree: Any) -> dict[Any, Any] | None:
    """Return the branches of a node by index, dict key or dataclass field. Return None for a leaf.

    The trees of ``tree_map`` and ``save`` consist of tuples only. ``gradcheck`` also uses lists, dicts and
    dataclasses.
    """
    if isinstance(tree, tuple | list):
        return dict(enumerate(tree))
    if _is_dataclass(tree):
        return {name: getattr(tree, name) for name in tree.__dataclass_fields__}
    return tree if isinstance(tree, dict) else None


def _is_dataclass(value: Any) -> bool:
    """Return whether a value is an instance of a dataclass."""
    return hasattr(type(value), "__dataclass_fields__")


def get_branch_name(tree: Any, key: Any) -> str:
    """Return the field name of a NamedTuple's branch, and otherwise the index or the key as a string."""
    return tree._fields[key] if hasattr(tree, "_fields") else str(key)


def replace_branches(tree: Any, new_branches: Sequence[Any]) -> Any:
    """Return a node of the same type as ``tree``, with these branches."""
    if isinstance(tree, tuple):
        return tuple.__new__(type(tree), new_branches)  # works for a NamedTuple, too
    if isinstance(tree, list):
        return list(new_branches)
    if _is_dataclass(tree):
        new_tree = copy.copy(tree)
        for name, branch in zip(tree.__dataclass_fields__, new_branches, strict=True):
            object.__setattr__(new_tree, name, branch)  # works for a frozen dataclass, too
        return new_tree
    return dict(zip(tree, new_branches, strict=True))


def iter_nested_leaves(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over the leaves of nested tuples, lists, dicts and dataclasses, each with its path.

    None is a leaf here.
    """
    parts = get_branches(tree)
    if parts is None:
        yield path, tree
        return
    for key, branch in parts.items():
        yield from iter_nested_leaves(f"{path}.{get_branch_name(tree, key)}", branch)


def map_nested_leaves(f: Callable[[Any], Any], tree: Any) -> Any:
    """Apply f to each leaf of nested tuples, lists, dicts and dataclasses. None is a leaf here."""
    parts = get_branches(tree)
    if parts is None:
        return f(tree)
    return replace_branches(tree, [map_nested_leaves(f, part) for part in parts.values()])


def replace_nested_leaf(tree: Any, where: tuple[Any, ...], f: Callable[[Any], Any]) -> Any:
    """Return the tree after applying f to one leaf. ``where`` lists the keys from the root to this leaf."""
    if not where:
        return f(tree)
    first, *rest = where
    new_branches = []
    for key, branch in (get_branches(tree) or {}).items():
        new_branches.append(replace_nested_leaf(branch, tuple(rest), f) if key == first else branch)
    return replace_branches(tree, new_branches)


def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Write the arrays of a tree to an .npz file, each under its path (``blocks.0.ffn.W_1``).

    The file contains no pickle. It appears under its name only when it is complete. So after a full disk or
    an interruption, the old file is still there. If two threads save to the same path, one of the two files
    remains, and it is complete. If a process is killed while it saves, a ``.part`` file remains. The next
    save to the same path removes it with a warning.

    The function follows a symbolic link, and keeps the permissions of an existing file. It copies arrays from
    a GPU to NumPy arrays, so NumPy and CuPy can read the same file.

    Parameters
    ----------
    path : str or pathlib.Path
        If the name does not end in ``.npz``, this ending is appended.
    tree : tree

    Raises
    ------
    TypeError
        If a leaf is not an array of numbers.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/weights", (np.ones(2),))
    ...     load(f"{folder}/weights", (np.zeros(2),))
    (array([1., 1.]),)
    """
    arrays = {name: _host_array("save", name, leaf) for name, leaf in iter_leaves("save", tree)}
    target = _npz_path("save", os.path.realpath(_npz_path("save", path)))
    with open_atomically("save", target) as file:
        _write_arrays(file, arrays)


@contextmanager
def open_atomically(function: str, target: Path) -> Iterator[BinaryIO]:
    """Open a file for writing that appears under its name only when it is complete. See ``save``."""
    from zlib import crc32

    if not target.parent.is_dir():
        raise FileNotFoundError(f"{function}: there is no folder {target.parent}")
    if target.is_dir():
        raise IsADirectoryError(f"{function}: {target} is a folder; expected the name of a file")

    # The prefix contains a checksum and not the target's name, because a longer name may exceed the allowed
    # length.
    prefix = f".{crc32(os.fsencode(target.name)):08x}"
    _remove_unfinished(target, prefix)
    unfinished = target.with_name(f"{prefix}-{PROCESS_ID}-{os.urandom(8).hex()}.part")
    try:
        with open(unfinished, "xb") as file:
            with suppress(OSError):  # Some file systems do not support locks.
                _lock(file)
            yield file
            file.flush()
            os.fsync(file.fileno())  # Otherwise a power failure could leave an empty file under the new name.
        if target.exists():
            unfinished.chmod(target.stat().st_mode & 0o7777)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _remove_unfinished(target: Path, prefix: str) -> None:
    """Delete the temporary files of interrupted saves of this target, with a warning.

    A running save holds a lock on its temporary file, and a locked file is not deleted.
    """
    for part in list(target.parent.glob(f"{prefix}-*.part")):
        if part.name.startswith(f"{prefix}-{PROCESS_ID}-"):
            continue
        with suppress(OSError):
            with open(part, "rb") as file:
                _lock(file)
            part.unlink()
            words = f"{target} was interrupted; {part.name}, which it left behind, is removed"
            warnings.warn(f"save: an earlier save of {words}", stacklevel=5)


def _lock(file: IO[bytes]) -> None:
    """Lock a file until it is closed or this process ends.

    Raises OSError if another process holds the lock.
    """
    with suppress(ImportError):  # Windows has no fcntl, but it does not delete an open file.
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _write_arrays(file: BinaryIO, arrays: dict[str, NDArray[Any]]) -> None:
    """Write an .npz file."""
    import zipfile

    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def load(path: str | os.PathLike[str], like: Tree) -> Tree:
    """Read a tree that ``save`` has written.

    The function does not execute anything from the file. It compares names, shapes and dtypes with ``like``
    before it reads the data, so a file cannot use more memory than ``like``.

    Parameters
    ----------
    path : str or pathlib.Path
        If the name does not end in ``.npz``, this ending is appended.
    like : tree
        A tree of the same form. The result has its NamedTuples, shapes, dtypes and array library.

    Returns
    -------
    tree : tree of the same form as ``like``

    Raises
    ------
    ValueError
        If a leaf is missing from the file, if the file has an additional leaf, or if a shape or dtype
        differs. The message names the leaf. ValueError is also raised if the file is damaged or not an .npz
        file.
    FileNotFoundError
        If the file does not exist.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/weights", (np.ones(2), None))
    ...     load(f"{folder}/weights", (np.zeros(2), None))
    (array([1., 1.]), None)
    """
    target = _npz_path("load", path)
    expected = {name: _host_array("load", name, leaf) for name, leaf in iter_leaves("load", like)}
    if not target.is_file():
        raise FileNotFoundError(f"load: there is no file {target}")
    with open(target, "rb") as file:
        found = _read_arrays(file, target, expected)
    pairs = zip(leaves(like), found, strict=True)
    return replace_leaves(like, iter([_convert_like(leaf, array) for (_, leaf), array in pairs]))


def _read_arrays(file: BinaryIO, target: Path, expected: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """Read the arrays of an .npz file, in the order of ``expected``. Raises ValueError for any defect."""
    with report_damage("load", target, NPZ):
        archive, entries = _open_archive(file)
    check_same_names("load", target, expected, entries)
    arrays = []
    for name, leaf in expected.items():
        with report_damage("load", target, NPZ):
            stream = archive.open(entries[name])
            shape, is_fortran, dtype = _read_header(stream)
        check_same_shape_and_dtype("load", target, name, (shape, dtype), leaf)
        with report_damage("load", target, NPZ):
            arrays.append(_read_data(stream, leaf, is_fortran))
    return arrays


def _open_archive(file: BinaryIO) -> tuple[Any, dict[str, Any]]:
    """Return the zip archive and its entries, by the names of the arrays."""
    import zipfile

    archive = zipfile.ZipFile(file)  # raises an error for a truncated file or another format
    infos = archive.infolist()
    entries = {info.filename.removesuffix(".npy"): info for info in infos}
    compressions = {info.compress_type for info in infos}
    has_duplicates = len(entries) < len(infos)
    if has_duplicates or not compressions <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise ValueError("it is packed in a way that np.savez never does")
    return archive, entries


def check_same_names(function: str, target: Path, expected: Collection[str], found: Collection[str]) -> None:
    """Raise ValueError if the file lacks a leaf or has an additional one."""
    for name in sorted({*expected} ^ {*found}):
        where = "is missing from" if name in expected else "is not in `like`, but it is in"
        raise ValueError(f"{function}: {name or 'the array'} {where} {target}")


def check_same_shape_and_dtype(
    function: str, target: Path, name: str, found: tuple[Any, Any], leaf: Any
) -> None:
    """Raise ValueError if the shape and dtype in the file are not those of the leaf."""
    if found != (leaf.shape, leaf.dtype):
        has = f"{name or 'the array'} has shape {found[0]} and dtype {found[1]} in {target}"
        raise ValueError(f"{function}: {has}; expected {leaf.shape} and {leaf.dtype}")


@contextmanager
def report_damage(function: str, file: Path, kind: str) -> Iterator[None]:
    """Turn any exception into a ValueError. Its message says that the file is not of this kind.

    Libraries raise many types of exceptions for a damaged file, even if only one bit is wrong.
    """
    try:
        yield
    except Exception as error:
        words = f"{error}" if type(error) is ValueError else f"{type(error).__name__}: {error}"
        first_line = words.partition("\n")[0]
        raise ValueError(f"{function}: {file} is not {kind} ({first_line})") from None


def _read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, Fortran order and dtype of an array, in the format version that np.savez writes.

    A header of this version has at most 64 kB, so a damaged file cannot make NumPy read a huge header.
    """
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array's header is not of version 1.0")
    return np.lib.format.read_array_header_1_0(stream)


def _read_data(stream: IO[bytes], leaf: NDArray[Any], is_fortran: bool) -> NDArray[Any]:
    """Read the data of an array, which must have the size of the leaf."""
    # zipfile compares the checksum only at the end of the entry. Reading one byte more than expected reaches
    # the end.
    data = stream.read(leaf.nbytes + 1)
    if len(data) != leaf.nbytes:
        raise ValueError(f"an array is too {'long' if len(data) > leaf.nbytes else 'short'}")
    return np.frombuffer(data, leaf.dtype).reshape(leaf.shape, order="F" if is_fortran else "C").copy("K")


def _convert_like(leaf: Any, array: NDArray[Any]) -> Any:
    """Convert an array to the array library of the leaf.

    For a leaf that is a number (Adam's step), return a number.
    """
    if isinstance(leaf, int | float):
        return type(leaf)(array)
    return array_module(leaf).asarray(array)


def as_path(function: str, argument: str, path: Any) -> Path:
    """Convert a string to a path. Raises TypeError for anything that is neither a string nor a path."""
    from pathlib import Path

    if not isinstance(path, str | os.PathLike):
        raise TypeError(
            f"{function}: {argument} is {describe_value(path)}; expected a string or a pathlib.Path"
        )
    return Path(path)


def _npz_path(function: str, path: str | os.PathLike[str]) -> Path:
    """Convert to a path that ends in .npz."""
    target = as_path(function, "path", path)
    if not target.name or "\0" in target.name:
        raise ValueError(f"{function}: path is {os.fspath(path)!r}; expected the name of a file")
    return target if target.suffix == ".npz" else target.with_name(target.name + ".npz")


def copy_to_host(leaf: Any) -> Any:
    """Return a CuPy array as a NumPy array.

    Any other value is returned unchanged, even if it has a method ``get``.
    """
    xp = array_module(leaf)
    is_cupy_array = xp is not np and isinstance(leaf, xp.ndarray)
    return leaf.get() if is_cupy_array else leaf


def _host_array(function: str, name: str, leaf: Any) -> NDArray[Any]:
    """Return the leaf as a NumPy array. A number becomes an array of shape ()."""
    array = copy_to_host(leaf)
    if isinstance(array, int | float):
        array = np.asarray(array)
    if not is_array(array) or array.dtype.kind not in "fiub":
        raise TypeError(
            f"{function}: {name or 'the tree'} is {_describe(leaf)}; expected an array of numbers"
        )
    return array
