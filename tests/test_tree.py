"""Tests of trees of arrays: tree_map, leaves, save, load."""

import io
import os
import signal
import stat
import subprocess
import sys
import tracemalloc
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

from npformer import adam_init, leaves, load, save, sgd_update, tree_map


class Pair(NamedTuple):
    W: Any
    b: Any = None


TREE = Pair((np.arange(3.0), Pair(np.ones((2, 2), np.float32))), np.array([True, False]))


def test_tree_map_keeps_types_and_none():
    mapped = tree_map(lambda a: a * 2, TREE)
    assert isinstance(mapped, Pair) and isinstance(mapped.W[1], Pair) and mapped.W[1].b is None
    assert mapped.W[0].tolist() == [0, 2, 4]


def test_tree_map_over_three_trees():
    a, b, c = (Pair(np.array(x), (np.array(10 * x),)) for x in (1.0, 2.0, 3.0))
    assert tree_map(lambda x, y, z: x + y * z, a, b, c) == Pair(7.0, (610.0,))


def test_leaves_have_paths_and_skip_none():
    assert [path for path, _ in leaves(TREE)] == ["W.0", "W.1.W", "b"]
    assert [path for path, _ in leaves(np.ones(2))] == [""]


@pytest.mark.parametrize("name", ["weights", "weights.npz", "weights.v1"])
def test_save_and_load_round_trip_is_exact(tmp_path, name):
    save(tmp_path / name, TREE)
    back = load(tmp_path / name, tree_map(np.zeros_like, TREE))
    for (path, a), (same_path, b) in zip(leaves(TREE), leaves(back), strict=True):
        assert path == same_path and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    assert [file.suffix for file in tmp_path.iterdir()] == [".npz"]


def test_save_and_load_of_array_and_number(tmp_path):
    save(tmp_path / "array", np.arange(3))
    assert load(tmp_path / "array", np.zeros(3, int)).tolist() == [0, 1, 2]
    save(tmp_path / "state", (7, 0.5))
    assert load(tmp_path / "state", (0, 0.0)) == (7, 0.5)


def test_save_interrupted_keeps_older_file(tmp_path, monkeypatch):
    """`save` writes all data to the disk before it gives the file its final name."""
    save(tmp_path / "weights", (np.ones(2),))

    def full_disk(number):
        assert sorted(file.suffix for file in tmp_path.iterdir()) == [".npz", ".part"]
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match=r"no space left"):
        save(tmp_path / "weights", (np.zeros(2),))
    assert load(tmp_path / "weights", (np.zeros(2),))[0].tolist() == [1, 1]
    assert len(list(tmp_path.iterdir())) == 1


def test_load_rejects_broken_files(tmp_path):
    save(tmp_path / "whole", Pair(np.ones(500)))
    (tmp_path / "half.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:2000])
    (tmp_path / "text.npz").write_text("not an archive")
    for name in ("half", "text"):
        with pytest.raises(ValueError, match=rf"^load: .*{name}.npz is not a complete .npz file of arrays"):
            load(tmp_path / name, Pair(np.ones(500)))
    with pytest.raises(FileNotFoundError, match=r"^load: there is no file .*absent.npz"):
        load(tmp_path / "absent", Pair(np.ones(2)))


def test_save_names_a_missing_folder_and_a_folder(tmp_path):
    (tmp_path / "folder.npz").mkdir()
    with pytest.raises(FileNotFoundError, match=r"^save: there is no folder .*nowhere"):
        save(tmp_path / "nowhere" / "file", Pair(np.ones(2)))
    with pytest.raises(
        IsADirectoryError, match=r"^save: .*folder.npz is a folder; expected the name of a file"
    ):
        save(tmp_path / "folder", Pair(np.ones(2)))
    assert [path.name for path in tmp_path.iterdir()] == ["folder.npz"]


# Files that several threads or processes write at the same time, and damaged or malicious files


def test_save_from_many_threads_is_atomic(tmp_path):
    """While several threads save to a path, a reader always finds a complete file there."""
    path, like = tmp_path / "weights", (np.zeros(5000), np.zeros(3))
    save(path, like)

    def write(number):
        for _ in range(10):
            save(path, (np.full(5000, number), np.full(3, number)))

    def read():
        for _ in range(30):
            a, b = load(path, like)
            assert (a == b[0]).all()

    with ThreadPoolExecutor() as threads:
        for task in [threads.submit(write, i) for i in (0.0, 1.0, 2.0, 3.0)] + [threads.submit(read)]:
            task.result()
    assert [file.name for file in tmp_path.iterdir()] == ["weights.npz"]


@pytest.mark.skipif(sys.platform == "win32", reason="locks and signals are POSIX's")
def test_save_removes_temporary_file_of_killed_save(tmp_path):
    killed = """
import os, signal, numpy as np, npformer
os.fsync = lambda number: os.kill(os.getpid(), signal.SIGKILL)
npformer.save("weights", (np.ones(2),))
"""
    process = subprocess.run([sys.executable, "-c", killed], cwd=tmp_path, check=False)
    fcntl, (left,) = pytest.importorskip("fcntl"), tmp_path.iterdir()
    assert process.returncode == -signal.SIGKILL and left.suffix == ".part"
    save(tmp_path / "others", (np.ones(2),))
    with open(left) as file:  # the lock marks a save that is still running, so its file must stay
        fcntl.flock(file, fcntl.LOCK_EX)
        save(tmp_path / "weights", (np.ones(2),))
    assert left.exists()
    with pytest.warns(UserWarning, match=rf"^save: an earlier save of .*weights.npz .* {left.name}, which"):
        save(tmp_path / "weights", (np.ones(2),))
    assert not left.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="links and modes are POSIX's")
def test_save_follows_link_and_keeps_mode(tmp_path):
    (tmp_path / "inside").mkdir()
    real, link = tmp_path / "inside" / "real.npz", tmp_path / "link.npz"
    save(real, (np.ones(2),))
    real.chmod(0o640)
    link.symlink_to(real)
    save(link, (np.zeros(2),))
    assert link.is_symlink() and load(real, (np.ones(2),))[0].tolist() == [0, 0]
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    save(tmp_path / "new", (np.ones(2),))
    (tmp_path / "other").touch()
    assert (tmp_path / "new.npz").stat().st_mode == (tmp_path / "other").stat().st_mode


def archive_of(**entries):
    """Return the bytes of an .npz archive with these {name: bytes}."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


@pytest.mark.parametrize("packed", [False, True])
def test_load_detects_flipped_bits(tmp_path, packed):
    """For a damaged file, `load` raises a clear error or returns the correct values."""
    like = Pair(np.arange(40.0), Pair(np.ones((2, 2), np.float32), np.array(3)))
    path, loaded, rng = tmp_path / "weights.npz", 0, np.random.default_rng(0)
    save(path, like)
    if packed:
        np.savez_compressed(path, **dict(leaves(like)))
    original = path.read_bytes()
    for bit in rng.choice(8 * len(original), 600, replace=False).tolist():
        byte = bit // 8
        flipped = bytes([original[byte] ^ 1 << bit % 8])
        path.write_bytes(original[:byte] + flipped + original[byte + 1 :])
        try:
            back = load(path, like)
        except ValueError as error:
            assert str(error).startswith("load: ") and "\n" not in str(error), error
        else:
            loaded += 1
            for (_, a), (_, b) in zip(leaves(like), leaves(back), strict=True):
                assert a.dtype == b.dtype and a.tobytes() == b.tobytes(), bit
    assert loaded < 300


def header(shape, dtype="'<f8'", size=None, version=1):
    """Return the header of an .npy file, possibly with a wrong size."""
    text = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    length = (len(text) if size is None else size).to_bytes(2 * version, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + length + text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (header("(10000000000,)"), r"W has shape \(10000000000,\) and dtype float64 in .*; expected \(3,\)"),
        (header("(3,)", "'<f4'"), r"W has shape \(3,\) and dtype float32 in .*; expected \(3,\) and float64"),
        (header("(3,)", "'|O'"), r"W has shape \(3,\) and dtype object"),
        (header("(3,)") + bytes(23), r"is not a complete .npz file of arrays \(.*an array is too short"),
        (header("(3,)") + bytes(25), "an array is too long"),
        (header("(3,)", size=2**32 - 1, version=2), "an array's header is not of version 1.0"),
        (header("(3, __import__('os'))"), r"is not a complete .npz file .*malformed node"),
        (b"", "EOF: reading magic string"),
    ],
)  # fmt: skip
def test_load_rejects_wrong_headers(tmp_path, content, message):
    (tmp_path / "weights.npz").write_bytes(archive_of(W=content))
    with pytest.raises(ValueError, match=rf"^load: .*{message}"):
        load(tmp_path / "weights", Pair(np.ones(3)))


def test_load_of_zip_bomb_needs_no_memory(tmp_path):
    for claims in (header("(3,)"), header("(6250000,)"), header("(3,)", size=2**31, version=2)):
        (tmp_path / "bomb.npz").write_bytes(archive_of(W=claims + bytes(50_000_000)))
        tracemalloc.start()
        with pytest.raises(ValueError, match=r"^load: "):
            load(tmp_path / "bomb", Pair(np.ones(3)))
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
        tracemalloc.stop()


def test_load_rejects_unusual_archives(tmp_path):
    whole = header("(3,)") + bytes(24)
    with zipfile.ZipFile(tmp_path / "weights.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("W.npy", whole)
    (tmp_path / "twice.npz").write_bytes(archive_of(W=whole, w=whole).replace(b"w.npy", b"W.npy"))
    for name in ("weights", "twice"):
        with pytest.raises(ValueError, match=r"^load: .*it is packed in a way that np.savez never does"):
            load(tmp_path / name, Pair(np.ones(3)))


def test_load_reads_files_of_numpy(tmp_path):
    columns = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    np.savez(tmp_path / "plain.npz", W=columns, b=np.array(True))
    back = load(tmp_path / "plain", Pair(np.zeros((2, 3)), np.array(False)))
    assert back.W.tolist() == columns.tolist() and back.b.tolist() is True
    save(tmp_path / "odd", (np.ones((0, 3)), np.arange(2, dtype=">i4")))
    empty, ids = load(tmp_path / "odd", (np.ones((0, 3)), np.zeros(2, ">i4")))
    assert empty.shape == (0, 3) and ids.tolist() == [0, 1]


def test_functions_reject_tree_nested_too_deep(tmp_path):
    tree: Any = np.ones(1)
    for _ in range(5000):
        tree = (tree,)
    for name, call in {
        "tree_map": lambda: tree_map(np.copy, tree),
        "leaves": lambda: list(leaves(tree)),
        "load": lambda: load(tmp_path / "x", tree),
        "sgd_update": lambda: sgd_update(tree, tree, learning_rate=0.1),
        "adam_init": lambda: adam_init(tree),
    }.items():
        with pytest.raises(ValueError, match=rf"^{name}: the tree is nested more than 100 deep, at 0\.0\."):
            call()
