"""Symmetric matrices come back to the bit, and others are left alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from btfl.errors import StorageError
from btfl.zoo.triangles import packed, unpacked


@given(arrays(np.float64, array_shapes(min_dims=1, max_dims=3, max_side=6), elements=st.floats(-9, 9)))
def test_any_array_comes_back(array: np.ndarray) -> None:
    found = unpacked(packed({"a": array}))
    assert list(found) == ["a"]
    np.testing.assert_array_equal(found["a"], array)


@given(arrays(np.float64, st.tuples(st.integers(2, 20), st.integers(1, 9)), elements=st.floats(-9, 9)))
def test_a_symmetric_one_takes_half(factors: np.ndarray) -> None:
    scatter = factors @ factors.T
    scatter = (scatter + scatter.T) / 2
    (stored,) = packed({"scatter": scatter}).values()
    side = len(scatter)
    assert stored.shape == (side * (side + 1) // 2,)
    np.testing.assert_array_equal(unpacked(packed({"scatter": scatter}))["scatter"], scatter)


def test_what_is_no_triangle_is_refused() -> None:
    with pytest.raises(StorageError, match="no triangle"):
        unpacked({"scatter.triangle": np.zeros(5)})
