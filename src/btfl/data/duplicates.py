"""Exact copies inside a dataset: found by content, so that no split has one copy in training and one in a test."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from btfl.data.samples import Values

Indices = NDArray[np.int64]


def content_keys(values: Values) -> list[bytes]:
    """Return a digest of each sample's content."""
    rows = np.ascontiguousarray(values).reshape(len(values), -1)
    return [hashlib.blake2b(row.data, digest_size=16).digest() for row in rows]


def first_copies(values: Values) -> Indices:
    """Return, for each sample, the index of the first one with the same content (its own, if it is the first)."""
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(key, i) for i, key in enumerate(content_keys(values))], dtype=np.int64)


def not_among(values: Values, others: Values) -> Indices:
    """Return the indices of the samples that do not occur among the others."""
    seen = set(content_keys(others))
    return np.array([i for i, key in enumerate(content_keys(values)) if key not in seen], dtype=np.int64)
