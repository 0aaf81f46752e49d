"""Exact copies are found by content, whatever the samples are, and nothing else is."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl.data.duplicates import content_keys, first_copies, not_among
from btfl.data.samples import Values

SHAPES = st.sampled_from([((4, 4, 1), np.uint8), ((3, 3, 3), np.uint8), ((5, 2), np.float32), ((1,), np.float32)])


def samples(shape: tuple[int, ...], dtype: type, count: int, seed: int) -> Values:
    """Few different values, so that copies are frequent in the small shapes."""
    picks: Values = np.random.default_rng(seed).integers(0, 3, (max(count // 2, 1), *shape)).astype(dtype)
    return picks[np.random.default_rng(seed + 1).integers(0, len(picks), count)]


@settings(max_examples=60, deadline=None)
@given(SHAPES, st.integers(0, 40), st.integers(0, 5))
def test_the_first_copy_is_found_as_a_dictionary_would(
    form: tuple[tuple[int, ...], type], count: int, seed: int
) -> None:
    values = samples(*form, count, seed)
    first: dict[bytes, int] = {}
    assert first_copies(values).tolist() == [first.setdefault(key, i) for i, key in enumerate(content_keys(values))]


@settings(max_examples=60, deadline=None)
@given(SHAPES, st.integers(0, 30), st.integers(1, 30))
def test_what_is_not_among_others_is_found_as_a_set_would(
    form: tuple[tuple[int, ...], type], count: int, others: int
) -> None:
    values, more = samples(*form, count, 1), samples(*form, others, 2)
    seen = set(content_keys(more))
    assert not_among(values, more).tolist() == [i for i, key in enumerate(content_keys(values)) if key not in seen]


def test_long_samples_that_differ_in_one_byte_are_no_copies() -> None:
    images = np.zeros((3, 64, 64, 3), np.uint8)
    images[1, -1, -1, -1] = 1
    assert first_copies(images).tolist() == [0, 1, 0]
