"""The digits need no file, are the same every time, and their printed sibling is a real but bridgeable shift."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier

from btfl.data.catalogue import SOURCES, load_source
from btfl.data.source import Source
from btfl.data.sources.digits import FONTS, PER_CLASS, printed
from btfl.errors import InputError, UnknownNameError


@pytest.fixture(scope="module")
def digits() -> Source:
    return load_source("digits")


def test_the_pool_is_scikit_learns_digits_spread_over_the_grey_levels(digits: Source) -> None:
    assert digits.sample_shape == (8, 8, 1)
    assert len(digits.pool) == 1797
    assert digits.pool.values.max() == 255
    back = np.rint(digits.pool.values[..., 0] / 255 * 16)
    np.testing.assert_array_equal(back, load_digits().images)


def test_printed_digits_are_balanced_made_of_block_counts_and_repeatable(digits: Source) -> None:
    assert digits.shifted is not None
    assert digits.shift_name == "printed digits"
    np.testing.assert_array_equal(np.bincount(digits.shifted.labels), np.full(10, PER_CLASS))
    counts = digits.shifted.values / 255 * 16
    np.testing.assert_allclose(counts, np.rint(counts), atol=0.04)
    assert printed(per_class=2).fingerprint == printed(per_class=2).fingerprint
    assert printed(per_class=2).fingerprint != printed(per_class=2, seed=9).fingerprint
    assert PER_CLASS % len(FONTS) == 0


def test_printed_digits_have_as_much_ink_as_handwritten_ones_and_fill_the_height(digits: Source) -> None:
    assert digits.shifted is not None
    assert abs(digits.shifted.values.mean() / digits.pool.values.mean() - 1) < 0.15
    rows_with_ink = (digits.shifted.values[..., 0].max(axis=2) > 0).sum(axis=1)
    assert rows_with_ink.min() >= 7


def test_what_is_learnt_from_handwriting_carries_over_to_print_in_part(digits: Source) -> None:
    assert digits.shifted is not None
    images = digits.pool.values.reshape(len(digits.pool), -1) / 255
    learnt = KNeighborsClassifier(5).fit(images[::2], digits.pool.labels[::2])
    at_home = learnt.score(images[1::2], digits.pool.labels[1::2])
    abroad = learnt.score(digits.shifted.values.reshape(len(digits.shifted), -1) / 255, digits.shifted.labels)
    assert at_home > 0.95
    assert 0.5 < abroad < 0.85


def test_without_the_print_the_notes_say_what_follows() -> None:
    source = load_source("digits", shift="none")
    assert source.shifted is None
    assert "corrupted throughout" in source.notes[0]


def test_a_name_or_option_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean digits"):
        load_source("digit")
    with pytest.raises(InputError, match="no shift 'typed'; it knows printed and none"):
        load_source("digits", shift="typed")
    with pytest.raises(InputError, match="no option 'image_size'"):
        load_source("digits", image_size=3)
    with pytest.raises(InputError, match=r"data of your own in mine\.npz name the dataset, too"):
        load_source("digits", root="mine.npz")
    for entry in SOURCES.values():
        assert callable(entry.loader())
