"""Arithmetic, walking and files for trees: NamedTuples and tuples, nested, with arrays at their ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from npformer.validate import check_callable, is_array, kind_of

if TYPE_CHECKING:
    from pathlib import Path  # pathlib and zipfile are imported where a file is: not everybody has one


def tree_map(f: Callable[..., Any], tree: Any, *trees: Any) -> Any:
    """Apply f to the arrays that stand at the same place in each tree; None stays None.

    A tree is an array, None, a tuple of trees or a NamedTuple of trees. `+` on NamedTuples would
    concatenate them, so sums of parameters are written tree_map(lambda a, b: a + b, params, grads).

    Raises ValueError when the trees are not built alike, naming the place, TypeError for a list or a dict.

    >>> tree_map(lambda a, b: a - b, (np.ones(2), None), (np.ones(2), None))
    (array([0., 0.]), None)
    """
    check_callable("tree_map", "f", f)
    return mapped("tree_map", "", f, tree, *trees)


def mapped(function: str, path: str, f: Callable[..., Any], tree: Any, *trees: Any) -> Any:
    """What `tree_map` does, under the name of the function that was called."""
    kinds = [_kind(t) for t in (tree, *trees)]
    if any(kind != kinds[0] for kind in kinds):
        found = " and ".join(_describe(t) for t in (tree, *trees))
        raise ValueError(f"{function}: the trees differ at {path or 'the root'}: {found}")
    if tree is None:
        return None
    if not isinstance(tree, tuple):
        return f(*(_leaf(function, path, t) for t in (tree, *trees)))
    places = [_join(path, name) for name in _names(tree)]
    branches = zip(places, tree, *trees, strict=True)
    return _rebuild(tree, [mapped(function, place, f, *branch) for place, *branch in branches])


def _leaf(function: str, path: str, leaf: Any) -> Any:
    """Refuse a list or a dict of arrays: f would get it whole."""
    if isinstance(leaf, list | dict):
        place, expected = path or "a tree", "an array, None or a tuple of trees"
        raise TypeError(f"{function}: {place} is {kind_of(leaf)}; expected {expected}")
    return leaf


def leaves(tree: Any) -> Iterator[tuple[str, Any]]:
    """Every array of the tree with its path, in order; absent parameters (None) are skipped.

    >>> [path for path, _ in leaves(((np.ones(2), None), np.ones(1)))]
    ['0.0', '1']
    """
    return _walk("", tree)


def together(*trees: Any) -> list[tuple[Any, ...]]:
    """The arrays that stand at the same place in each tree; ValueError when the trees are not built alike."""
    first, *others = trees
    if isinstance(first, tuple):
        if any(type(other) is not type(first) or len(other) != len(first) for other in others):
            raise ValueError("the trees are not built alike")
        return [place for branches in zip(*trees, strict=True) for place in together(*branches)]
    if any(isinstance(other, tuple) or (other is None) != (first is None) for other in others):
        raise ValueError("the trees are not built alike")
    return [] if first is None else [trees]


def refilled(tree: Any, arrays: Iterator[Any]) -> Any:
    """A tree built like this one with the next of the arrays at each place."""
    if isinstance(tree, tuple):
        return _rebuild(tree, [refilled(branch, arrays) for branch in tree])
    return None if tree is None else next(arrays)


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
        return _rebuild(tree, parts)
    return parts if isinstance(tree, list) else dict(zip(tree, parts, strict=True))


def _walk(path: str, tree: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(tree, tuple):
        for name, branch in zip(_names(tree), tree, strict=True):
            yield from _walk(_join(path, name), branch)
    elif tree is not None:
        yield path, tree


def _names(tree: tuple[Any, ...]) -> tuple[str, ...]:
    return getattr(tree, "_fields", None) or tuple(str(i) for i in range(len(tree)))


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _rebuild(tree: tuple[Any, ...], branches: list[Any]) -> Any:
    return type(tree)(*branches) if hasattr(tree, "_fields") else tuple(branches)


def _kind(tree: Any) -> tuple[Any, int]:
    """What two trees must share to be mapped together: the type of the node and its number of branches."""
    if isinstance(tree, tuple):
        return type(tree), len(tree)
    return (None if tree is None else "leaf"), 0


def _describe(tree: Any) -> str:
    if isinstance(tree, tuple):
        return f"a {type(tree).__name__} of {len(tree)}"
    return "None" if tree is None else f"a leaf ({type(tree).__name__})"


def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Write the tree's arrays to an .npz file, each under its path (`blocks.0.ffn.W_1`); never a pickle.

    `.npz` is appended when it is missing. The file appears when it is complete: a full disk or an
    interrupted run leaves an older file of that name as it was. Arrays on a GPU are brought to the host,
    so a file moves freely between NumPy and CuPy.

    Raises TypeError for a leaf that is not an array of numbers, OSError when the file cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(f"{folder}/weights", (np.ones(2),))
    ...     load(f"{folder}/weights", (np.zeros(2),))
    (array([1., 1.]),)
    """
    import zipfile

    arrays = {name: _host_array("save", name, leaf) for name, leaf in leaves(tree)}
    target = _target("save", path)
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with zipfile.ZipFile(unfinished, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                    np.lib.format.write_array(entry, array, allow_pickle=False)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], like: Any) -> Any:
    """Read a tree written by `save`, in the form of `like`: its NamedTuples, shapes, dtypes, array library.

    Nothing in the file is executed. Raises ValueError naming the leaf when the file lacks one, has one too
    many, or holds another shape or dtype; ValueError too when it is not a file of this kind, and
    FileNotFoundError when there is none.
    """
    target = _target("load", path)
    expected = {name: _host_array("load", name, leaf) for name, leaf in leaves(like)}
    found = _read(target)
    for name in sorted(expected.keys() ^ found.keys()):
        where = "is missing from" if name in expected else "is not in `like` but stands in"
        raise ValueError(f"load: {name or 'the array'} {where} {target}")
    for name, leaf in expected.items():
        if (found[name].shape, found[name].dtype) != (leaf.shape, leaf.dtype):
            raise ValueError(
                f"load: {name or 'the array'} has shape {found[name].shape} and dtype {found[name].dtype} "
                f"in {target}; expected {leaf.shape} and {leaf.dtype}"
            )
    pairs = zip(together(like), (found[name] for name in expected), strict=True)
    return refilled(like, iter([_as(leaf, array) for (leaf,), array in pairs]))


def _read(target: Path) -> dict[str, NDArray[Any]]:
    """The file's arrays by name; anything but a complete .npz file of plain arrays is refused."""
    import zipfile

    with target.open("rb") as file:
        try:
            with zipfile.ZipFile(file):  # refuses a truncated file and one of another kind
                file.seek(0)
                archive = np.load(file, allow_pickle=False)
                return {name: archive[name] for name in archive.files}
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"load: {target} is not a complete .npz file of arrays ({error})") from None


def _as(leaf: Any, array: NDArray[Any]) -> Any:
    """The array in the leaf's own array library, or as a number where the leaf is one (Adam's step)."""
    if isinstance(leaf, int | float):
        return type(leaf)(array)
    return sys.modules["cupy"].asarray(array) if hasattr(leaf, "get") else array


def _target(function: str, path: str | os.PathLike[str]) -> Path:
    from pathlib import Path

    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{function}: path is {kind_of(path)}; expected a string or a pathlib.Path")
    target = Path(path)
    if not target.name or "\0" in target.name:
        raise ValueError(f"{function}: path is {os.fspath(path)!r}; expected the name of a file")
    return target if target.suffix == ".npz" else target.with_name(target.name + ".npz")


def _host_array(function: str, name: str, leaf: Any) -> NDArray[Any]:
    """The leaf as a NumPy array: a CuPy array comes to the host by its .get(), a number becomes 0-d."""
    array = leaf.get() if hasattr(leaf, "get") and not isinstance(leaf, dict) else leaf
    array = np.asarray(array) if isinstance(array, int | float) else array
    if not is_array(array) or array.dtype.kind not in "fiub":
        raise TypeError(
            f"{function}: {name or 'the tree'} is {_describe(leaf)}; expected an array of numbers"
        )
    return array
