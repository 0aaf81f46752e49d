"""Exact copies inside a dataset: found by content, so that no split has one copy in training and one in a test."""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

from btfl.data.samples import Values
from btfl.randomness import generator

Indices = NDArray[np.int64]

_BYTES_AT_ONCE = 1 << 24
_MULTIPLIERS = 1024  # of a row's words, each by its own; then they repeat, with another start


def content_keys(values: Values) -> list[bytes]:
    """Return a digest of each sample's content."""
    return [hashlib.blake2b(row.data, digest_size=16).digest() for row in _rows(values)]


def first_copies(values: Values) -> Indices:
    """Return, for each sample, the index of the first one with the same content (its own, if it is the first)."""
    result = np.arange(len(values), dtype=np.int64)
    # Few samples have a copy: a quick number tells the rest apart, and only those that share one are looked at.
    numbers = _quick_numbers(values)
    _, index, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    doubtful = np.flatnonzero(counts[index] > 1)
    first: dict[bytes, int] = {}
    for start in range(0, len(doubtful), _at_once(values)):
        rows = doubtful[start : start + _at_once(values)]
        for i, key in zip(rows.tolist(), content_keys(values[rows]), strict=True):
            result[i] = first.setdefault(key, i)
    return result


def not_among(values: Values, others: Values) -> Indices:
    """Return the indices of the samples that do not occur among the others."""
    numbers, of_others = _quick_numbers(values), _quick_numbers(others)
    doubtful = np.flatnonzero(np.isin(numbers, of_others))
    if not len(doubtful):
        return np.arange(len(values), dtype=np.int64)
    seen = set(content_keys(others[np.isin(of_others, numbers[doubtful])]))
    copies = [i for i, key in zip(doubtful.tolist(), content_keys(values[doubtful]), strict=True) if key in seen]
    return np.setdiff1d(np.arange(len(values), dtype=np.int64), copies)


def _quick_numbers(values: Values) -> NDArray[np.uint64]:
    """Return a number for each sample (n,): the same for the same content, mostly another one for other content."""
    draws = generator(0, "quick numbers").integers(1 << 63, size=_MULTIPLIERS, dtype=np.uint64)
    odd = draws * np.uint64(2) + np.uint64(1)
    numbers = np.empty(len(values), np.uint64)
    for start in range(0, len(values), _at_once(values)):
        part = slice(start, start + _at_once(values))
        words = _words(values[part])
        total = np.zeros(len(words), np.uint64)
        for first in range(0, words.shape[1], _MULTIPLIERS):
            piece = words[:, first : first + _MULTIPLIERS].astype(np.uint64)
            total = total * odd[0] + piece @ odd[: piece.shape[1]]
        numbers[part] = total ^ (total >> np.uint64(31))
    return numbers


def _words(values: Values) -> NDArray[np.uint32 | np.uint8]:
    """Return each sample's bytes, four together where they come out even."""
    content = _rows(values).view(np.uint8)
    return content.view(np.uint32) if content.shape[1] % 4 == 0 else content


def _rows(values: Values) -> Values:
    return np.ascontiguousarray(values).reshape(len(values), math.prod(values.shape[1:]))


def _at_once(values: Values) -> int:
    return max(1, _BYTES_AT_ONCE // max(1, values[:1].nbytes))
