"""What is saved comes back as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from btfl.storage import load_record, save_record


@pytest.mark.parametrize(
    "array", [np.float32(3).reshape(()), np.zeros((0, 2)), np.arange(6.0).reshape(2, 3).T, np.arange(4)]
)
def test_arrays_keep_their_shape_and_type(array: np.ndarray, tmp_path: Path) -> None:
    """A scalar too: BatchNorm counts its batches in one."""
    save_record(tmp_path, "thing", "kind", 1, {}, {"array": array})
    _, loaded = load_record(tmp_path, "thing", "kind", 1)
    assert loaded["array"].shape == array.shape
    assert loaded["array"].dtype == array.dtype
    np.testing.assert_array_equal(loaded["array"], array)
