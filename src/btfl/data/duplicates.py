"""Exact copies inside a dataset: found by content, so that no split has one copy in training and one in a test."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from btfl.pixels.types import Images

Indices = NDArray[np.int64]


def content_keys(images: Images) -> list[bytes]:
    """Return a digest of each image's pixels."""
    rows = np.ascontiguousarray(images).reshape(len(images), -1)
    return [hashlib.blake2b(row.data, digest_size=16).digest() for row in rows]


def first_copies(images: Images) -> Indices:
    """Return, for each image, the index of the first image with the same pixels (its own, if it is the first)."""
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(key, i) for i, key in enumerate(content_keys(images))], dtype=np.int64)


def not_among(images: Images, others: Images) -> Indices:
    """Return the indices of the images that do not occur among the others."""
    seen = set(content_keys(others))
    return np.array([i for i, key in enumerate(content_keys(images)) if key not in seen], dtype=np.int64)
