"""Scaling: mean 0 and deviation 1 over the training parts, and nothing of it from test data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from btfl.data.federated import FederatedData
from btfl.data.partition import Partition, PartitionSettings, make_partition
from btfl.data.samples import Scaling
from btfl.data.scaling import scaling_of, standardised
from btfl.data.source import Samples, Source
from btfl.data.streams import StreamSettings, make_manifest, render
from btfl.experiments.experiment import make_experiment


def measured(steps: int = 0) -> tuple[Source, Partition]:
    rng = np.random.default_rng(0)
    shape = (200, steps, 3) if steps else (200, 3)
    values = rng.normal(size=shape) * [1, 50, 0] + [1e3, -2, 7]
    source = Source("measured", ("a", "b"), Samples(values, np.arange(200) % 2))
    return source, make_partition(source, PartitionSettings(4, "equal"), seed=0)


@pytest.mark.parametrize("steps", [0, 6])
def test_training_parts_have_mean_0_and_deviation_1(steps: int) -> None:
    source, partition = measured(steps)
    data = FederatedData(standardised(source, partition), partition)
    train = np.concatenate([data.of(client, 0).train.values for client in range(4)]).reshape(-1, 3)
    assert train.dtype == np.float32
    np.testing.assert_allclose(train.mean(0, dtype=np.float64), 0, atol=1e-4)
    np.testing.assert_allclose(train.std(0, dtype=np.float64), [1, 1, 0], atol=1e-4)  # the last never changes


def test_what_is_not_trained_with_changes_nothing() -> None:
    source, partition = measured()
    values = source.pool.values.copy()
    for part in partition.parts:
        values[part.test] += 1e6
        values[part.validation] -= 1e6
    other = replace(source, pool=Samples(values, source.pool.labels))
    for one, two in zip(
        vars(scaling_of(source, partition)).values(), vars(scaling_of(other, partition)).values(), strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_streams_are_scaled_after_they_are_corrupted() -> None:
    source, partition = measured(6)
    manifest = make_manifest(source, partition, StreamSettings(), 0)
    scaled = standardised(source, partition)
    assert scaled.scaling is not None
    for name, stream in render(source, manifest, 1).items():
        np.testing.assert_array_equal(render(scaled, manifest, 1)[name].values, scaled.scaling(stream.values))


def test_copies_are_scaled_with_their_samples_and_images_never() -> None:
    scaling = Scaling(np.array([1.0]), np.array([2.0]))
    both = scaling.of(Samples(np.array([[1.0], [3.0]]), np.zeros(2, np.int64), np.array([[5.0], [7.0]])))
    assert both.values.tolist() == [[0], [1]]
    assert both.copies is not None
    assert both.copies.tolist() == [[2], [3]]
    grey = np.broadcast_to(np.arange(20, dtype=np.uint8)[:, None, None, None], (20, 8, 8, 1))
    images = Source("grey", ("a",), Samples(grey, np.zeros(20, np.int64)))
    assert standardised(images, make_partition(images, PartitionSettings(2, "equal"), 0)) is images
    assert make_experiment({"standardise": False}).standardise is False
