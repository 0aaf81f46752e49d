"""Symmetric matrices as their upper triangles: half the bytes, and the same bits when they come back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.errors import StorageError

SUFFIX = ".triangle"
"""Ends the name of a matrix of which the upper triangle is stored."""


def packed(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return arrays with each symmetric matrix as its upper triangle, row by row; others stay as they are."""
    return dict(
        (f"{name}{SUFFIX}", array[np.triu_indices(len(array))]) if _is_symmetric(array) else (name, array)
        for name, array in arrays.items()
    )


def unpacked(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return what was packed."""
    return dict(
        (name.removesuffix(SUFFIX), _matrix(name, array)) if name.endswith(SUFFIX) else (name, array)
        for name, array in arrays.items()
    )


def _is_symmetric(array: NDArray[Any]) -> bool:
    return array.ndim == 2 and len(array) > 1 and array.shape[0] == array.shape[1] and bool((array == array.T).all())


def _matrix(name: str, triangle: NDArray[Any]) -> NDArray[Any]:
    side = (math.isqrt(8 * triangle.size + 1) - 1) // 2
    if triangle.ndim != 1 or side * (side + 1) // 2 != triangle.size:
        raise StorageError(f"{name} has the shape {triangle.shape}, which is no triangle of a matrix")
    matrix = np.empty((side, side), dtype=triangle.dtype)
    rows, columns = np.triu_indices(side)
    matrix[rows, columns] = triangle
    matrix[columns, rows] = triangle
    return matrix
