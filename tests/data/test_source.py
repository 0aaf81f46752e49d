"""Images and datasets say what they are, never their arrays."""

from __future__ import annotations

import numpy as np
import pytest

from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.source import LabelledImages, Source
from btfl.data.streams import StreamSettings, make_manifest, render
from btfl.errors import DataError


def labelled(count: int, side: int = 8) -> LabelledImages:
    images = np.random.default_rng(count).integers(0, 256, (count, side, side, 1), np.uint8)
    return LabelledImages(images, np.arange(count) % 4)


def test_what_an_object_is_can_be_read_from_it() -> None:
    source = Source("mine", tuple("abcd"), labelled(2_000), labelled(40), "sketches")
    assert repr(source.pool) == "LabelledImages(2,000 images of 8x8x1)"
    assert repr(source) == ("Source('mine', 2,000 images of 8x8x1, 4 classes, other domain: sketches (40 images))")
    assert repr(Source("mine", tuple("abcd"), labelled(9))).endswith("4 classes, no other domain)")
    partition = make_partition(source, PartitionSettings(clients=5, kind="equal"), seed=3)
    assert repr(partition) == "Partition(2,000 images, 5 clients, equal, seed 3)"
    assert repr(partition.parts[0]) == "ClientPart(240 train, 80 validation, 80 test)"
    assert "train=LabelledImages(240 images of 8x8x1)" in repr(FederatedData(source, partition).of(0, 0))
    manifest = make_manifest(source, partition, StreamSettings(), seed=3)
    assert repr(manifest) == f"Manifest('mine', sketches, 5 clients, seed 3, {manifest.hash[:12]})"
    assert repr(manifest.clients[0].draws[1]) == "Draw(80 samples, 40 corrupted, 40 of the other domain)"
    stream = render(source, manifest, 0)["original_exd"]
    assert repr(stream) == "Stream('original_exd', 80 samples, 80 external)"


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(DataError, match="images must be uint8 of shape"):
        LabelledImages(np.zeros((3, 8, 8), np.uint8), np.zeros(3, np.int64))
    with pytest.raises(DataError, match=r"3 images but labels of shape \(2,\)"):
        LabelledImages(np.zeros((3, 8, 8, 1), np.uint8), np.zeros(2, np.int64))
    with pytest.raises(DataError, match="labels of the pool run from 0 to 3, but there are 2 classes"):
        Source("mine", ("a", "b"), labelled(8))
    with pytest.raises(DataError, match="both must be of one size"):
        Source("mine", tuple("abcd"), labelled(8), labelled(8, side=9))
