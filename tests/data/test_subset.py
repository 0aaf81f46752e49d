"""A smaller pool keeps the mix of classes, and is the same whoever asks."""

from __future__ import annotations

import numpy as np
import pytest

from btfl.data.catalogue import load_source
from btfl.data.subset import take
from btfl.errors import InputError


def test_classes_keep_their_shares() -> None:
    source = load_source("digits")
    small = take(source, 300)
    assert len(small.pool) == 300
    whole, part = (np.bincount(s.pool.labels, minlength=10) / len(s.pool) for s in (source, small))
    assert np.abs(whole - part).max() < 0.01
    assert small.pool.fingerprint == take(source, 300).pool.fingerprint
    assert small.shifted is source.shifted
    assert "only 300 of the 1,797 images were used" in small.notes


def test_asking_for_all_changes_nothing_and_for_none_is_an_error() -> None:
    source = load_source("digits")
    assert take(source, 5000) is source
    with pytest.raises(InputError, match="at least 1"):
        take(source, 0)
