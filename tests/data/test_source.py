"""Images and datasets say what they are, never their arrays."""

from __future__ import annotations

import numpy as np
import pytest

from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.source import Samples, Source
from btfl.data.streams import StreamSettings, make_manifest, render
from btfl.errors import DataError


def labelled(count: int, side: int = 8) -> Samples:
    images = np.random.default_rng(count).integers(0, 256, (count, side, side, 1), np.uint8)
    return Samples(images, np.arange(count) % 4)


def test_what_an_object_is_can_be_read_from_it() -> None:
    source = Source("mine", tuple("abcd"), labelled(2_000), labelled(40), "sketches")
    assert repr(source.pool) == "Samples(2,000 images of 8x8x1)"
    assert repr(source) == ("Source('mine', 2,000 images of 8x8x1, 4 classes, other domain: sketches (40 images))")
    assert repr(Source("mine", tuple("abcd"), labelled(9))).endswith("4 classes, no other domain)")
    partition = make_partition(source, PartitionSettings(clients=5, kind="equal"), seed=3)
    assert repr(partition) == "Partition(2,000 samples, 5 clients, equal, seed 3)"
    assert repr(partition.parts[0]) == "ClientPart(240 train, 80 validation, 80 test)"
    assert "train=Samples(240 images of 8x8x1)" in repr(FederatedData(source, partition).of(0, 0))
    manifest = make_manifest(source, partition, StreamSettings(), seed=3)
    assert repr(manifest) == f"Manifest('mine', sketches, 5 clients, seed 3, {manifest.hash[:12]})"
    assert repr(manifest.clients[0].draws[1]) == "Draw(80 samples, 40 corrupted, 40 of the other domain)"
    stream = render(source, manifest, 0)["original_exd"]
    assert repr(stream) == "Stream('original_exd', 80 samples, 80 external)"


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(DataError, match=r"uint8 images \(n, height, width, 1 or 3\)"):
        Samples(np.zeros((3, 8, 8), np.uint8), np.zeros(3, np.int64))
    with pytest.raises(DataError, match=r"3 images but labels of shape \(2,\)"):
        Samples(np.zeros((3, 8, 8, 1), np.uint8), np.zeros(2, np.int64))
    with pytest.raises(DataError, match="labels of the pool run from 0 to 3, but there are 2 classes"):
        Source("mine", ("a", "b"), labelled(8))
    with pytest.raises(DataError, match="both must be of one size"):
        Source("mine", tuple("abcd"), labelled(8), labelled(8, side=9))


def test_numbers_become_signals_and_vectors() -> None:
    signals = Samples(np.arange(24, dtype=np.int16).reshape(2, 4, 3), np.arange(2))
    assert (signals.kind, signals.shape, str(signals.values.dtype)) == ("signals", (4, 3), "float32")
    vectors = Samples(np.full((2, 5), 1 / 3), np.arange(2))
    assert (vectors.kind, vectors.shape) == ("vectors", (5,))
    assert vectors.values[0, 0] == np.float32(1 / 3)
    assert Samples(np.zeros((2, 5), np.uint8), np.arange(2)).kind == "vectors"
    assert repr(Source("mine", ("a", "b"), signals)) == "Source('mine', 2 signals of 4x3, 2 classes, no other domain)"


def test_whole_numbers_that_would_be_rounded_are_refused() -> None:
    assert Samples(np.full((1, 2), 2**24), np.zeros(1, np.int64)).values[0, 0] == 2**24
    with pytest.raises(DataError, match=r"16777217 \(sample 1\) exactly"):
        Samples(np.array([[1], [2**24 + 1]]), np.zeros(2, np.int64))


@pytest.mark.parametrize("strange", [np.nan, np.inf, 1e300])
def test_what_is_not_finite_is_refused(strange: float) -> None:
    values = np.zeros((4, 6, 2))
    values[2, 1, 1] = strange
    with pytest.raises(DataError, match="NaN or infinite values in 1 of 4 signals, first in number 2"):
        Source("mine", ("a",), Samples(values, np.zeros(4, np.int64)))


def test_copies_are_of_the_same_form_and_follow_their_samples() -> None:
    values, labels = np.arange(8, dtype=np.float32).reshape(4, 2), np.zeros(4, np.int64)
    both = Samples(values, labels, values + 1)
    taken = both.take(np.array([3, 1]))
    assert taken.copies is not None
    np.testing.assert_array_equal(taken.copies, taken.values + 1)
    assert both.fingerprint != Samples(values, labels).fingerprint
    with pytest.raises(DataError, match="distorted copies are of the same form"):
        Samples(values, labels, values[:2])
