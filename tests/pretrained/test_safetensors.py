"""Trees in safetensors files, against the library of that name."""

import json
import struct
import sys

import numpy as np
import pytest

import npformer as npf

library = pytest.importorskip("safetensors.numpy", reason="needs safetensors: uv sync --extra pretrained")


def test_a_tree_comes_back(tmp_path):
    file, tree = tmp_path / "w.safetensors", (np.arange(6.0).reshape(2, 3).T, (np.float32([1, 2]), None))
    npf.save_safetensors(file, tree)
    expected = {"0": tree[0].tolist(), "1.0": [1, 2]}
    assert {name: a.tolist() for name, a in library.load_file(file).items()} == expected
    back = npf.load_safetensors(file, tree)
    assert (back[0] == tree[0]).all() and back[1][0].dtype == np.float32 and back[1][1] is None
    npf.save_safetensors(file, {"x": tree[0]})
    assert list(npf.load_safetensors(file)) == ["x"]
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


@pytest.mark.parametrize("dtype", "f8 f4 i8 i4 i2 i1 u8 u4 u2 u1 ?".split())
def test_every_dtype_of_numpy_comes_back(tmp_path, dtype):
    numbers = np.arange(6).reshape(2, 3).astype(dtype)
    npf.save_safetensors(tmp_path / "w", {"x": numbers})
    back = npf.load_safetensors(tmp_path / "w")["x"]
    assert back.dtype == numbers.dtype and (back == numbers).all()


def write(file, entries):
    """The format: the header's length, the header, the bytes. Numbers, each alone: (dtype, bytes)."""
    header, data = {}, b""
    for name, (dtype, raw) in entries.items():
        header[name] = {"dtype": dtype, "shape": [1], "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    words = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(words)) + words + data)


def test_half_precision_becomes_float32(tmp_path):
    file = tmp_path / "w"
    halves = {"a": ("BF16", b"\x80\x3f"), "b": ("BF16", b"\x00\xc0"), "c": ("F16", b"\x00\x38")}
    write(file, halves)
    found = npf.load_safetensors(file)
    assert {name: a.tolist() for name, a in found.items()} == {"a": [1], "b": [-2], "c": [0.5]}
    assert {a.dtype for a in found.values()} == {np.dtype(np.float32)}
    write(file, {"f": ("F8_E4M3", b"\0")})
    with pytest.raises(ValueError, match="f has dtype F8_E4M3"):
        npf.load_safetensors(file)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"^load_safetensors: .* is not a complete safetensors file"):
        npf.load_safetensors(file)


def test_without_the_library_the_words_say_what_to_type(tmp_path, monkeypatch):
    (tmp_path / "w").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match="pip install safetensors"):
        npf.load_safetensors(tmp_path / "w")
