"""Test saving and loading trees as safetensors files. The safetensors library reads the files too."""

import json
import struct
import sys

import numpy as np
import pytest

import npformer as npf

library = pytest.importorskip("safetensors.numpy", reason="needs safetensors: uv sync --extra pretrained")


TREE = (np.arange(6.0).reshape(2, 3).T, (np.float32([1, 2]), None))


def test_save_safetensors_can_be_read_by_the_library(tmp_path):
    file = tmp_path / "w.safetensors"
    npf.save_safetensors(file, TREE)
    expected = {"0": TREE[0].tolist(), "1.0": [1, 2]}
    assert {name: a.tolist() for name, a in library.load_file(file).items()} == expected


def test_load_safetensors_returns_the_saved_tree(tmp_path):
    file = tmp_path / "w.safetensors"
    npf.save_safetensors(file, TREE)
    loaded = npf.load_safetensors(file, TREE)
    assert (loaded[0] == TREE[0]).all()
    assert loaded[1][0].dtype == np.float32
    assert loaded[1][1] is None


def test_save_safetensors_overwrites_a_file(tmp_path):
    file = tmp_path / "w.safetensors"
    npf.save_safetensors(file, TREE)
    npf.save_safetensors(file, {"x": TREE[0]})
    assert list(npf.load_safetensors(file)) == ["x"]
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1", "?"])
def test_load_safetensors_keeps_the_dtype(tmp_path, dtype):
    numbers = np.arange(6).reshape(2, 3).astype(dtype)
    npf.save_safetensors(tmp_path / "w", {"x": numbers})
    loaded = npf.load_safetensors(tmp_path / "w")["x"]
    assert loaded.dtype == numbers.dtype and (loaded == numbers).all()


def write_numbers(file, numbers):
    """Write a file with arrays of one number each, given as {name: (dtype, bytes)}.

    A safetensors file consists of the length of the header, the header, and the bytes of the arrays.
    """
    header, data = {}, b""
    for name, (dtype, raw) in numbers.items():
        header[name] = {"dtype": dtype, "shape": [1], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    encoded = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(encoded)) + encoded + data)


def test_load_safetensors_converts_half_precision_to_float32(tmp_path):
    file = tmp_path / "w"
    write_numbers(file, {"a": ("BF16", b"\x80\x3f"), "b": ("BF16", b"\x00\xc0"), "c": ("F16", b"\x00\x38")})
    found = npf.load_safetensors(file)
    assert {name: a.tolist() for name, a in found.items()} == {"a": [1], "b": [-2], "c": [0.5]}
    assert {a.dtype for a in found.values()} == {np.dtype(np.float32)}


def test_load_safetensors_rejects_other_dtypes(tmp_path):
    file = tmp_path / "w"
    write_numbers(file, {"f": ("F8_E4M3", b"\0")})
    with pytest.raises(ValueError, match="f has dtype F8_E4M3"):
        npf.load_safetensors(file)


def test_load_safetensors_rejects_a_truncated_file(tmp_path):
    file = tmp_path / "w"
    write_numbers(file, {"f": ("F8_E4M3", b"\0")})
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"^load_safetensors: .* is not a complete safetensors file"):
        npf.load_safetensors(file)


def test_save_safetensors_keeps_arrays_without_axes(tmp_path):
    file = tmp_path / "w.safetensors"
    npf.save_safetensors(file, (np.array(2.0), np.ones(1)))
    assert [a.shape for a in npf.load_safetensors(file, (np.array(0.0), np.ones(1)))] == [(), (1,)]
    assert library.load_file(file)["0"].shape == ()


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ({1: np.ones(2)}, TypeError, "tree has the key 1; expected strings"),
        ({"__metadata__": np.ones(2)}, ValueError, "tree has the key '__metadata__', which the format"),
    ],
)
def test_save_safetensors_rejects_keys(arrays, error, message, tmp_path):
    file = tmp_path / "w.safetensors"
    with pytest.raises(error, match=f"save_safetensors: {message}"):
        npf.save_safetensors(file, arrays)
    assert not file.exists()


def test_save_safetensors_rejects_numbers_of_many_bits(tmp_path, monkeypatch):
    """On some machines, `longdouble` has 64 bits. So the test lowers the limit."""
    monkeypatch.setattr(npf.pretrained.safetensors_files, "LARGEST_NUMBER", 4)
    with pytest.raises(TypeError, match="a has dtype float64; expected at most 64 bits per number"):
        npf.save_safetensors(tmp_path / "w.safetensors", {"a": np.ones(2)})


def test_load_safetensors_names_the_missing_library(tmp_path, monkeypatch):
    (tmp_path / "w").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match="pip install safetensors"):
        npf.load_safetensors(tmp_path / "w")
