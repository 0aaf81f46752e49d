"""Products with many heads and classes: the same to the bit in any batch, and as exact as promised."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from btfl.core.products import LARGE, OnGrids, Plain, Rowwise, aligned, product_with
from btfl.errors import UnknownNameError

Floats = NDArray[np.float64]
scales = st.sampled_from([1e-9, 1e-3, 1.0, 40.0, 1e8])


def drawn(seed: int, samples: int, dimensions: int, columns: int, scale: float = 1.0) -> tuple[Floats, Floats]:
    """Features and weights of very different sizes, some of them zero."""
    rng = np.random.default_rng(seed)
    features = np.maximum(rng.normal(0.2, 1.0, (samples, dimensions)), 0.0) * rng.uniform(0, 5, (samples, 1)) * scale
    weights = rng.normal(size=(dimensions, columns)) * 10.0 ** rng.uniform(-3, 3, columns)
    features[0] = 0.0
    weights[:, 0] = 0.0
    return features, weights


@given(st.integers(0, 99), st.integers(2, 40), st.integers(1, 300), st.integers(1, 40), scales, st.integers(1, 9))
def test_on_grids_neither_the_cut_nor_the_order_of_dimensions_changes_a_bit(
    seed: int, samples: int, dimensions: int, columns: int, scale: float, cut: int
) -> None:
    features, weights = drawn(seed, samples, dimensions, columns, scale)
    product = OnGrids(weights)
    whole = product.rows(features)
    parts = [product.rows(features[i : i + cut]) for i in range(0, samples, cut)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    alone = [product.of_one(row[None], float(np.vdot(row, row))) for row in features]
    assert np.concatenate(alone).tobytes() == whole.tobytes()
    shuffled = np.random.default_rng(seed).permutation(dimensions)
    again = OnGrids(np.ascontiguousarray(weights[shuffled])).rows(np.ascontiguousarray(features[:, shuffled]))
    assert (again == whole).all()


@given(st.integers(0, 99), st.integers(1, 200), scales)
def test_on_grids_the_error_is_as_small_as_promised(seed: int, dimensions: int, scale: float) -> None:
    features, weights = drawn(seed, 3, dimensions, 4, scale)
    found = OnGrids(weights).rows(features)
    for i, j in np.ndindex(found.shape):
        exact = sum(Fraction(float(z)) * Fraction(float(w)) for z, w in zip(features[i], weights[:, j], strict=True))
        size = np.linalg.norm(features[i]) * np.linalg.norm(weights[:, j])
        bound = dimensions**0.5 * (2**-26 + 2**-27) * size * (1 + 1e-4)
        assert abs(float(Fraction(float(found[i, j])) - exact)) <= bound


def test_large_products_are_on_grids_and_small_ones_row_by_row() -> None:
    small, large = np.ones((64, LARGE // 64 - 1)), np.ones((64, LARGE // 64))
    assert isinstance(product_with(small), Rowwise)
    assert isinstance(product_with(small, "double"), Rowwise)
    assert isinstance(product_with(large), OnGrids)
    assert isinstance(product_with(large, "double"), Plain)
    assert isinstance(product_with(small, "single"), Plain)
    with pytest.raises(UnknownNameError, match="double, same-bits, single"):
        product_with(small, "half")  # type: ignore[arg-type]


@pytest.mark.parametrize(("precision", "tolerance"), [("double", 1e-13), ("same-bits", 1e-6), ("single", 1e-5)])
def test_every_precision_gives_the_product(precision: str, tolerance: float) -> None:
    rng = np.random.default_rng(0)
    features, weights = rng.normal(size=(30, 512)), rng.normal(size=(512, 130)) / 512**0.5
    product = product_with(weights, precision)  # type: ignore[arg-type]
    for found in (product.rows(features), np.concatenate([product.of_one(z[None], z @ z) for z in features])):
        assert found.dtype == np.float64
        assert found == pytest.approx(features @ weights, abs=tolerance)


@given(st.integers(1, 40), st.integers(1, 9), st.sampled_from([np.float32, np.float64]), st.booleans())
def test_an_aligned_matrix_is_a_copy_that_begins_at_a_cache_line(
    rows: int, columns: int, dtype: type[np.floating[Any]], turned: bool
) -> None:
    matrix = np.arange(rows * columns, dtype=dtype).reshape(rows, columns)
    matrix = matrix.T if turned else matrix
    found = aligned(matrix)
    assert found.ctypes.data % 64 == 0
    assert found.flags["C_CONTIGUOUS"]
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, matrix)
    assert not np.shares_memory(found, matrix)
