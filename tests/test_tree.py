import zipfile
from typing import NamedTuple

import numpy as np
import pytest

from npformer import leaves, load, save, tree_map


class Pair(NamedTuple):
    W: object
    b: object = None


TREE = Pair((np.arange(3.0), Pair(np.ones((2, 2), np.float32))), np.array([True, False]))


def test_tree_map_keeps_the_types_and_the_gaps():
    mapped = tree_map(lambda a: a * 2, TREE)
    assert isinstance(mapped, Pair) and isinstance(mapped.W[1], Pair) and mapped.W[1].b is None
    assert mapped.W[0].tolist() == [0, 2, 4]


def test_tree_map_over_three_trees_takes_the_same_place_of_each():
    a, b, c = (Pair(np.array(x), (np.array(10 * x),)) for x in (1.0, 2.0, 3.0))
    assert tree_map(lambda x, y, z: x + y * z, a, b, c) == Pair(7.0, (610.0,))


@pytest.mark.parametrize(
    ("tree", "other", "place"),
    [
        (Pair(np.ones(1), None), Pair(np.ones(1), np.ones(1)), "at b: None and a leaf"),
        (Pair(np.ones(1)), (np.ones(1), None), "at the root: a Pair of 2 and a tuple of 2"),
        (
            (np.ones(1), (np.ones(1),)),
            (np.ones(1), (np.ones(1), np.ones(1))),
            "at 1: a tuple of 1 and a tuple of 2",
        ),
    ],
)
def test_tree_map_names_the_place_where_trees_differ(tree, other, place):
    with pytest.raises(ValueError, match=r"^tree_map: the trees differ ") as error:
        tree_map(lambda x, y: x, tree, other)
    assert place in str(error.value)


def test_leaves_are_named_by_their_path_and_skip_none():
    assert [path for path, _ in leaves(TREE)] == ["W.0", "W.1.W", "b"]
    assert [path for path, _ in leaves(np.ones(2))] == [""]


@pytest.mark.parametrize("name", ["weights", "weights.npz", "weights.v1"])
def test_a_tree_comes_back_from_its_file_to_the_bit(tmp_path, name):
    save(tmp_path / name, TREE)
    back = load(tmp_path / name, tree_map(np.zeros_like, TREE))
    for (path, a), (same_path, b) in zip(leaves(TREE), leaves(back), strict=True):
        assert path == same_path and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    assert [file.suffix for file in tmp_path.iterdir()] == [".npz"]


def test_a_bare_array_and_a_number_are_trees_too(tmp_path):
    save(tmp_path / "array", np.arange(3))
    assert load(tmp_path / "array", np.zeros(3, int)).tolist() == [0, 1, 2]
    save(tmp_path / "state", (7, 0.5))
    assert load(tmp_path / "state", (0, 0.0)) == (7, 0.5)


def test_what_was_saved_is_read_without_pickle(tmp_path):
    with pytest.raises(TypeError, match=r"^save: 0 is a leaf .object.; expected an array of numbers"):
        save(tmp_path / "x", (object(),))
    with pytest.raises(TypeError, match=r"^save: 0 is a leaf .ndarray.; expected an array of numbers"):
        save(tmp_path / "x", (np.array([None]),))
    np.savez(tmp_path / "pickled.npz", W=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match=r"^load: .*pickled.npz is not a complete .npz file"):
        load(tmp_path / "pickled", Pair(np.ones(1)))


def test_an_interrupted_save_leaves_the_older_file(tmp_path, monkeypatch):
    save(tmp_path / "weights", (np.ones(2),))

    def full_disk(*args, **kwargs):
        raise OSError("no space left")

    monkeypatch.setattr(np.lib.format, "write_array", full_disk)
    with pytest.raises(OSError, match=r"no space left"):
        save(tmp_path / "weights", (np.zeros(2),))
    assert load(tmp_path / "weights", (np.zeros(2),))[0].tolist() == [1, 1]
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("like", "message"),
    [
        (Pair(np.ones(2), np.ones(1)), "load: b is missing from"),
        ((np.ones(2),), "load: 0 is missing from"),
        (Pair(np.ones(3)), r"load: W has shape \(2,\) and dtype float64 in .*; expected \(3,\) and float64"),
        (Pair(np.ones(2, np.float32)), "expected .* and float32"),
        (Pair(None, None), "load: W is not in `like` but stands in"),
    ],
)
def test_load_names_the_leaf_that_does_not_fit(tmp_path, like, message):
    save(tmp_path / "weights", Pair(np.ones(2)))
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "weights", like)


def test_load_refuses_what_is_not_its_file(tmp_path):
    save(tmp_path / "whole", Pair(np.ones(500)))
    (tmp_path / "half.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:2000])
    np.save(tmp_path / "single.npy", np.ones(2))
    (tmp_path / "single.npy").rename(tmp_path / "single.npz")
    (tmp_path / "text.npz").write_text("not an archive")
    with zipfile.ZipFile(tmp_path / "cut.npz", "w") as archive:
        archive.writestr("W.npy", b"\x93NUMPY")
    for name in ("half", "single", "text", "cut"):
        with pytest.raises(ValueError, match=rf"^load: .*{name}.npz is not a complete .npz file of arrays"):
            load(tmp_path / name, Pair(np.ones(500)))
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "absent", Pair(np.ones(2)))
