"""Clients that are held out: nothing of theirs is in training, in the scaling or in the totals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from btfl.data.catalogue import load_source
from btfl.data.federated import FederatedData
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.scaling import scaling_of
from btfl.data.source import Samples, Source
from btfl.data.streams import StreamSettings, make_manifest
from btfl.engines import LocalEngine, train_federation
from btfl.errors import InputError
from btfl.recipes import TrainingSettings
from btfl.recipes.registry import make_recipe


def test_the_clients_are_those_of_a_partition_without_it_and_the_last_are_held_out() -> None:
    source = load_source("digits", shift="none")
    plain = make_partition(source, PartitionSettings(10), seed=0)
    held = make_partition(source, PartitionSettings(10, held_out=0.2), seed=0)
    assert (held.seen, held.held_out, len(held), len(FederatedData(source, held))) == (8, 2, 10, 8)
    key = lambda part: part.train.tobytes()  # noqa: E731
    assert sorted(map(key, plain.parts)) == sorted(map(key, held.parts))
    assert plain.held_out == 0
    assert "held_out" not in plain.settings.as_dict()
    assert make_partition(source, PartitionSettings(10, held_out=0.2), seed=1).parts[-1] is not held.parts[-1]


def test_all_clients_have_streams_and_those_without_it_are_the_same_as_ever() -> None:
    source = load_source("digits", shift="none")
    plain = make_manifest(source, make_partition(source, PartitionSettings(10), 0), StreamSettings(), 0)
    nothing = make_manifest(source, make_partition(source, PartitionSettings(10, held_out=0.0), 0), StreamSettings(), 0)
    held = make_manifest(source, make_partition(source, PartitionSettings(10, held_out=0.2), 0), StreamSettings(), 0)
    assert plain.hash == nothing.hash != held.hash
    assert len(held.clients) == 10


def test_too_many_held_out_is_a_sentence() -> None:
    with pytest.raises(InputError, match="needs at least 2"):
        make_partition(load_source("digits", shift="none"), PartitionSettings(3, held_out=0.9), seed=0)


def poisoned(source: Source, rows: np.ndarray) -> Source:
    """The same source with other samples, and other labels, in these rows."""
    values, labels = source.pool.values.copy(), source.pool.labels.copy()
    values[rows], labels[rows] = 255 - values[rows], (labels[rows] + 1) % len(source.classes)
    return replace(source, pool=Samples(values, labels))


def test_nothing_of_theirs_is_in_training_or_in_the_totals() -> None:
    source = load_source("digits", shift="none")
    partition = make_partition(source, PartitionSettings(5, held_out=0.2), seed=0)
    theirs = np.concatenate([part.everything for part in partition.parts[partition.seen :]])
    recipe = make_recipe("fedavg", TrainingSettings.for_model("mlp", rounds=2, local_epochs=1), (8, 8, 1), 10)
    one, other = (
        train_federation(recipe, FederatedData(data, partition), LocalEngine())
        for data in (source, poisoned(source, theirs))
    )
    assert one.digest() == other.digest()
    assert len(one.outcomes) == 4
    assert one.total is not None
    assert other.total is not None
    assert one.total.clients == 4
    assert one.total.samples == sum(len(part.train) for part in partition.parts[:4])
    sums, others = one.total.to_arrays(), other.total.to_arrays()
    assert all(np.array_equal(sums[name], others[name]) for name in sums)


def test_nothing_of_theirs_is_in_the_scaling() -> None:
    rng = np.random.default_rng(0)
    samples = Samples(rng.normal(size=(200, 3)).astype(np.float32), np.arange(200) % 4)
    source = Source("vectors", tuple("abcd"), samples)
    partition = make_partition(source, PartitionSettings(5, "equal", held_out=0.2), seed=0)
    before = scaling_of(source, partition)
    values = samples.values.copy()
    values[partition.parts[-1].everything] += 100
    after = scaling_of(replace(source, pool=Samples(values, samples.labels)), partition)
    assert np.array_equal(before.mean, after.mean)
    assert np.array_equal(before.deviation, after.deviation)
