"""Tests of `npformer.arrays`, which finds the type of the entries in arrays of other libraries."""

from types import SimpleNamespace

import pytest

from npformer.arrays import dtype_kind


@pytest.mark.parametrize(
    ("dtype", "letter"), [("torch.float64", "f"), ("bfloat16", "f"), ("torch.complex64", "c"), ("int32", "i")]
)
def test_kind_of_number_reads_dtype_of_other_libraries(dtype, letter):
    assert dtype_kind(SimpleNamespace(shape=(2,), dtype=dtype, __dlpack__=None)) == letter


def test_kind_of_number_without_array_protocol_is_dash():
    assert dtype_kind(SimpleNamespace(shape=(2,), dtype="float64")) == "-"
    assert dtype_kind([1.0]) == "-"
