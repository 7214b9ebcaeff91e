"""Arithmetic, walking and files for trees: NamedTuples and tuples, nested, with arrays at their ends."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import IO, TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from npformer.arrays import array_module, is_array, kind_of

if TYPE_CHECKING:
    from pathlib import Path  # pathlib and zipfile are imported where a file is: not everybody has one


DEEPEST = 100  # tuples inside of each other
NPZ = "a complete .npz file of arrays"
OWN = os.urandom(8).hex()  # marks the unfinished files of this process


def tree_map(f: Callable[..., Any], tree: Any, *trees: Any) -> Any:
    """Apply f to the arrays that stand at the same place in each tree; None stays None.

    A tree is an array, None, a tuple of trees or a NamedTuple of trees. `+` on NamedTuples would
    concatenate them, so sums of parameters are written tree_map(lambda a, b: a + b, params, grads).

    Raises ValueError when the trees are not built alike, naming the place, TypeError for a list or a dict.

    >>> tree_map(lambda a, b: a - b, (np.ones(2), None), (np.ones(2), None))
    (array([0., 0.]), None)
    """
    if not callable(f):
        raise TypeError(f"tree_map: f is {kind_of(f)}; expected a function")
    return mapped("tree_map", f, tree, *trees)


def mapped(function: str, f: Callable[..., Any], tree: Any, *trees: Any) -> Any:
    """What `tree_map` does, under the name of the function that was called."""
    rows = list(together(function, tree, *trees))
    for path, leaves in rows:
        for leaf in leaves:
            if isinstance(leaf, list | dict):  # f would get it whole
                expected = "expected an array, None or a tuple of trees"
                raise TypeError(f"{function}: {path or 'a tree'} is {kind_of(leaf)}; {expected}")
    return refilled(tree, iter([f(*leaves) for _, leaves in rows]))


def leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Every array of the tree with its path, in order; absent parameters (None) are skipped.

    >>> [path for path, _ in leaves(((np.ones(2), None), np.ones(1)))]
    ['0.0', '1']
    """
    return walked("leaves", tree)


def walked(function: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """What `leaves` does, under the name of the function that was called."""
    return ((path, leaf) for path, (leaf,) in together(function, tree))


def together(function: str, *trees: Any, path: str = "") -> Iterator[tuple[str, tuple[Any, ...]]]:
    """The arrays that stand at the same place in each tree, and its path; ValueError where trees differ."""
    first, *others = trees
    if any(_kind(other) != _kind(first) for other in others):
        found = " and ".join(map(_describe, trees))
        raise ValueError(f"{function}: the trees differ at {path or 'the root'}: {found}")
    if path.count(".") >= DEEPEST:  # Python's own limit would not say what is wrong
        raise ValueError(f"{function}: the tree is nested more than {DEEPEST} deep, at {path[:40]}...")
    if isinstance(first, tuple):
        for i, parts in enumerate(zip(*trees, strict=True)):
            name = branch_name(first, i)
            yield from together(function, *parts, path=f"{path}.{name}" if path else name)
    elif first is not None:
        yield path, trees


def _kind(tree: Any) -> tuple[Any, int]:
    """What two trees must share to be mapped together: the type of the node and its number of branches."""
    if isinstance(tree, tuple):
        return type(tree), len(tree)
    return (None if tree is None else "leaf"), 0


def _describe(tree: Any) -> str:
    if isinstance(tree, tuple):
        return f"a {type(tree).__name__} of {len(tree)}"
    return "None" if tree is None else f"a leaf ({type(tree).__name__})"


def refilled(tree: Any, arrays: Iterator[Any]) -> Any:
    """A tree built like this one with the next of the arrays at each place."""
    return ends_mapped(lambda end: None if end is None else next(arrays), tree)


def branches(tree: Any) -> dict[Any, Any] | None:
    """The branches of a tuple or a list by place, of a dict by key; None for what has none.

    The trees of `tree_map` and `save` are tuples only; `gradcheck` walks lists and dicts as well.
    """
    if isinstance(tree, tuple | list):
        return dict(enumerate(tree))
    return tree if isinstance(tree, dict) else None


def branch_name(tree: Any, key: Any) -> str:
    """The field's name in a NamedTuple, else the place or the key."""
    return tree._fields[key] if hasattr(tree, "_fields") else str(key)


def rebuilt(tree: Any, parts: list[Any]) -> Any:
    """A node of the same kind with other branches."""
    if isinstance(tree, tuple):
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return parts if isinstance(tree, list) else dict(zip(tree, parts, strict=True))


def ends(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    """The ends of tuples, lists and dicts, whatever they are, with their paths."""
    parts = branches(tree)
    if parts is None:
        yield path, tree
        return
    for key, branch in parts.items():
        yield from ends(f"{path}.{branch_name(tree, key)}", branch)


def ends_mapped(f: Callable[[Any], Any], tree: Any) -> Any:
    """f of every end of tuples, lists and dicts."""
    parts = branches(tree)
    return f(tree) if parts is None else rebuilt(tree, [ends_mapped(f, part) for part in parts.values()])


def end_replaced(tree: Any, where: tuple[Any, ...], f: Callable[[Any], Any]) -> Any:
    """The tree with f of what stands at one place, in its stead; `where` is the way down, key by key."""
    if not where:
        return f(tree)
    parts = (branches(tree) or {}).items()
    return rebuilt(tree, [end_replaced(x, where[1:], f) if key == where[0] else x for key, x in parts])


def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Write the tree's arrays to an .npz file, each under its path (`blocks.0.ffn.W_1`); never a pickle.

    `.npz` is appended when it is missing. The file appears when it is complete: a full disk, an interrupted
    run or another thread that saves to the same path leaves a whole file of that name, the older or the
    newer. What a killed run has left, a `.part` file, the next save of that name removes, with a warning. A
    symbolic link is followed, and the file keeps its mode. Arrays on a GPU are brought to the
    host, so a file moves freely between NumPy and CuPy.

    Raises TypeError for a leaf that is not an array of numbers, OSError when the file cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/weights", (np.ones(2),))
    ...     load(f"{folder}/weights", (np.zeros(2),))
    (array([1., 1.]),)
    """
    arrays = {name: _host_array("save", name, leaf) for name, leaf in walked("save", tree)}
    with whole_file(_target("save", os.path.realpath(_target("save", path)))) as file:
        _write(file, arrays)


@contextmanager
def whole_file(target: Path) -> Iterator[BinaryIO]:
    """A file to write that appears under its name when it is complete; see `save`."""
    from zlib import crc32

    mark = f".{crc32(os.fsencode(target.name)):08x}"  # the name itself may be as long as a name can be
    _remove_unfinished(target, mark)
    unfinished = target.with_name(f"{mark}-{OWN}-{os.urandom(8).hex()}.part")
    try:
        with open(unfinished, "xb") as file:
            with suppress(OSError):  # a disk that knows no locks
                _hold(file)
            yield file
            file.flush()
            os.fsync(file.fileno())  # or a power cut could leave the new name with no content
        if target.exists():
            unfinished.chmod(target.stat().st_mode & 0o7777)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _remove_unfinished(target: Path, mark: str) -> None:
    """What saves of this name left behind that were killed; one that is still at work holds its file."""
    for part in set(target.parent.glob(f"{mark}-*.part")) - set(target.parent.glob(f"{mark}-{OWN}-*")):
        with suppress(OSError):
            with open(part, "rb") as file:
                _hold(file)
            part.unlink()
            words = f"{target} was interrupted; {part.name}, which it left behind, is removed"
            warnings.warn(f"save: an earlier save of {words}", stacklevel=5)


def _hold(file: IO[bytes]) -> None:
    """Keep others from holding this file until it is closed, or until this process ends in whatever way."""
    with suppress(ImportError):  # not on Windows, which does not delete a file that is open
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _write(file: BinaryIO, arrays: dict[str, NDArray[Any]]) -> None:
    import zipfile

    with zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, array, allow_pickle=False)


def load(path: str | os.PathLike[str], like: Any) -> Any:
    """Read a tree written by `save`, in the form of `like`: its NamedTuples, shapes, dtypes, array library.

    Nothing in the file is executed, and names, shapes and dtypes are compared with `like` before any data
    is read, so that a file takes no more memory than `like` does. Raises ValueError naming the leaf when
    the file lacks one, has one too many, or holds another shape or dtype; ValueError too when it is damaged
    or not a file of this kind, and FileNotFoundError when there is none.
    """
    target = _target("load", path)
    expected = {name: _host_array("load", name, leaf) for name, leaf in walked("load", like)}
    with open(target, "rb") as file:
        found = _read(file, target, expected)
    pairs = zip(leaves(like), found, strict=True)
    return refilled(like, iter([_as(leaf, array) for (_, leaf), array in pairs]))


def _read(file: BinaryIO, target: Path, expected: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
    """The file's arrays in the order of `expected`; ValueError with our words for whatever is wrong."""
    import zipfile

    with as_damage("load", target, NPZ):
        archive = zipfile.ZipFile(file)  # refuses a truncated file and one of another kind
        entries = {entry.filename.removesuffix(".npy"): entry for entry in archive.infolist()}
        kinds = {entry.compress_type for entry in archive.infolist()}
        if len(entries) < len(archive.infolist()) or not kinds <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
            raise ValueError("it is packed in a way that np.savez never does")
    check_same_names("load", target, expected, entries)
    arrays = []
    for name, leaf in expected.items():
        with as_damage("load", target, NPZ):
            stream = archive.open(entries[name])
            shape, in_columns, dtype = _header(stream)
        check_same_kind("load", target, name, (shape, dtype), leaf)
        with as_damage("load", target, NPZ):
            arrays.append(_data(stream, leaf, in_columns))
    return arrays


def check_same_names(function: str, target: Path, expected: Collection[str], found: Collection[str]) -> None:
    """Refuse a file that lacks a leaf or has one too many."""
    for name in sorted({*expected} ^ {*found}):
        where = "is missing from" if name in expected else "is not in `like` but stands in"
        raise ValueError(f"{function}: {name or 'the array'} {where} {target}")


def check_same_kind(function: str, target: Path, name: str, found: tuple[Any, Any], leaf: Any) -> None:
    """Refuse an array in a file of another shape or dtype than the leaf's."""
    if found != (leaf.shape, leaf.dtype):
        has = f"{name or 'the array'} has shape {found[0]} and dtype {found[1]} in {target}"
        raise ValueError(f"{function}: {has}; expected {leaf.shape} and {leaf.dtype}")


@contextmanager
def as_damage(function: str, file: Path, kind: str) -> Iterator[None]:
    """What goes wrong in here is the file's fault: a flipped bit makes libraries raise almost anything."""
    try:
        yield
    except Exception as error:
        words = f"{error}" if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise ValueError(f"{function}: {file} is not {kind} ({words.partition(chr(10))[0]})") from None


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and dtype of an array in a file, in the version that np.savez writes: at most 64 kB."""
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array's header is not of version 1.0")
    return np.lib.format.read_array_header_1_0(stream)


def _data(stream: IO[bytes], leaf: NDArray[Any], in_columns: bool) -> NDArray[Any]:
    """The rest of an entry, which must be as long as the leaf and have the checksum that was stored."""
    data = stream.read(leaf.nbytes + 1)  # at the end of the entry zipfile compares the checksum
    if len(data) != leaf.nbytes:
        raise ValueError(f"an array is too {'long' if len(data) > leaf.nbytes else 'short'}")
    return np.frombuffer(data, leaf.dtype).reshape(leaf.shape, order="F" if in_columns else "C").copy("K")


def _as(leaf: Any, array: NDArray[Any]) -> Any:
    """The array in the leaf's own array library, or as a number where the leaf is one (Adam's step)."""
    if isinstance(leaf, int | float):
        return type(leaf)(array)
    return array_module(leaf).asarray(array)


def as_path(function: str, argument: str, path: Any) -> Path:
    """Refuse what names no file."""
    from pathlib import Path

    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{function}: {argument} is {kind_of(path)}; expected a string or a pathlib.Path")
    return Path(path)


def _target(function: str, path: str | os.PathLike[str]) -> Path:
    target = as_path(function, "path", path)
    if not target.name or "\0" in target.name:
        raise ValueError(f"{function}: path is {os.fspath(path)!r}; expected the name of a file")
    return target if target.suffix == ".npz" else target.with_name(target.name + ".npz")


def on_host(leaf: Any) -> Any:
    """A CuPy array as a NumPy array; what is no CuPy array stays, whatever methods it has."""
    xp = array_module(leaf)
    return leaf.get() if xp is not np and isinstance(leaf, xp.ndarray) else leaf


def _host_array(function: str, name: str, leaf: Any) -> NDArray[Any]:
    """The leaf as a NumPy array; a number becomes one of shape ()."""
    array = on_host(leaf)
    array = np.asarray(array) if isinstance(array, int | float) else array
    if not is_array(array) or array.dtype.kind not in "fiub":
        raise TypeError(
            f"{function}: {name or 'the tree'} is {_describe(leaf)}; expected an array of numbers"
        )
    return array
