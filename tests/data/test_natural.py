"""Clients that exist: each has its own samples, nothing leaks between them, and who is left out is said."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from btfl.data.partition import Partition, PartitionSettings, make_partition
from btfl.data.source import Samples, Source
from btfl.data.split import split_in_order
from btfl.data.streams import StreamSettings, make_manifest, render
from btfl.errors import InputError


def owned(sizes: Sequence[int], classes: int = 3, steps: int = 0) -> Source:
    """A source with so many samples of each client, all of them different."""
    rng = np.random.default_rng(0)
    count = sum(sizes)
    values = rng.normal(size=(count, steps, 2) if steps else (count, 4)).astype(np.float32)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    names = tuple(f"person {i}" for i in range(len(sizes)))
    labels = np.arange(count) % classes
    return Source("people", tuple(map(str, range(classes))), Samples(values, labels), owners=owners, owner_names=names)


def natural(source: Source, seed: int = 0, **changes: object) -> Partition:
    values = {"clients": None, "kind": "natural", "fewest": 5, **changes}
    return make_partition(source, PartitionSettings(**values), seed)  # type: ignore[arg-type]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(5, 60), min_size=2, max_size=8), st.sampled_from(["honest", "redrawn"]), st.integers(0, 3))
def test_every_sample_is_with_its_owner_on_one_side(sizes: list[int], split: str, seed: int) -> None:
    source = owned(sizes)
    partition = natural(source, seed, split=split)
    assert partition.names == source.owner_names
    everything = np.concatenate([part.everything for part in partition.parts])
    assert np.sort(everything).tolist() == list(range(sum(sizes)))
    assert source.owners is not None
    for client, part in enumerate(partition.parts):
        assert set(source.owners[part.everything].tolist()) == {client}
        assert part.is_whole


def test_small_clients_are_left_out_and_counted() -> None:
    partition = natural(owned([30, 4, 25, 2]), fewest=10)
    assert partition.names == ("person 0", "person 2")
    assert any("2 of 4 clients have fewer than 10 distinct vectors" in note for note in partition.notes)
    assert any("person 1, person 3" in note for note in partition.notes)


def test_a_number_of_clients_is_drawn_by_the_seed() -> None:
    source = owned([10] * 30)
    assert len(natural(source)) == 30
    chosen = [natural(source, seed, clients=5).names for seed in range(3)]
    assert all(len(names) == 5 for names in chosen)
    assert len(set(chosen)) > 1
    assert chosen[1] == natural(source, 1, clients=5).names
    with pytest.raises(InputError, match="has 30 clients with enough vectors, not 31"):
        natural(source, clients=31)


def test_one_client_is_no_federation_and_no_owner_is_no_client() -> None:
    with pytest.raises(InputError, match="people has 1 client with at least 5 distinct vectors"):
        natural(owned([30]))
    source = owned([30, 30])
    nobody = Source("nobody", source.classes, source.pool)
    with pytest.raises(InputError, match="nobody does not say which client a sample belongs to"):
        natural(nobody)
    with pytest.raises(InputError, match="say how many clients"):
        PartitionSettings(None, "dirichlet")


def test_a_copy_of_anothers_sample_is_left_out_and_ones_own_stays_on_one_side() -> None:
    source = owned([40, 40])
    values = source.pool.values.copy()
    values[41], values[7], values[9] = values[0], values[3], values[3]  # 41 is the second client's
    source = Source("copies", source.classes, Samples(values, source.pool.labels), owners=source.owners,
                    owner_names=source.owner_names)  # fmt: skip
    for split in ("honest", "redrawn"):
        partition = natural(source, split=split)
        everything = np.concatenate([part.everything for part in partition.parts])
        assert 41 not in everything
        assert len(everything) == 79
        for part in (partition.parts[0], partition.redraw(0, "round", 3)):
            sides = [{3, 7, 9} & set(side.tolist()) for side in (part.train, part.validation, part.test)]
            assert sorted(map(len, sides)) == [0, 0, 3]
        assert any("1 vectors are exact copies of another client's" in note for note in partition.notes)
        assert any("2 vectors are exact copies of others; each stays on one side" in note for note in partition.notes)


def test_an_ordered_split_has_time_on_its_side() -> None:
    source = owned([60, 90], steps=8)
    partition = natural(source, split="ordered")
    labels = source.pool.labels
    for part in partition.parts:
        for label in range(3):
            train, validation, test = (side[labels[side] == label] for side in (part.train, part.validation, part.test))
            order = np.concatenate([train, validation, test])
            assert (np.diff(order) > 0).all()
            # samples of a class are three apart here; one is left out at each border
            assert validation[0] - train[-1] == test[0] - validation[-1] == 6
    assert not any("split at random" in note for note in partition.notes)
    assert any("split at random" in note for note in natural(source).notes)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=60))
def test_an_ordered_split_uses_a_sample_once_and_leaves_two_of_each_class(classes: list[int]) -> None:
    labels = np.array(classes, dtype=np.int64)
    part = split_in_order(np.arange(len(labels)), labels)
    used = part.everything
    assert len(used) == len(set(used.tolist()))
    for label, count in zip(*np.unique(labels, return_counts=True), strict=True):
        of_class = [int((labels[side] == label).sum()) for side in (part.train, part.validation, part.test)]
        if count < 5:
            assert of_class == [count, 0, 0]
        else:
            assert sum(of_class) == count - 2
            assert min(of_class) >= 1


def test_clients_without_a_class_for_an_ordered_split_are_left_out() -> None:
    source = owned([30, 30, 9])  # of the last, three of each class: too few for a border on both sides
    partition = natural(source, split="ordered")
    assert partition.names == ("person 0", "person 1")
    assert any("no class with enough vectors for an ordered split" in note for note in partition.notes)


def test_streams_are_the_clients_own_and_others() -> None:
    source = owned([40, 60, 50], steps=10)
    partition = natural(source, split="ordered")
    manifest = make_manifest(source, partition, StreamSettings(), 0)
    assert manifest.settings.corruptions[0] == "noise"
    assert "turned" not in manifest.settings.corruptions  # two channels have no direction in space
    assert source.owners is not None
    for client, drawn in enumerate(manifest.clients):
        a, b, c, d = drawn.draws
        assert set(source.owners[a.index].tolist()) == set(source.owners[b.index].tolist()) == {client}
        assert client not in source.owners[np.concatenate([c.index, d.index])]
        streams = render(source, manifest, client)
        assert list(streams) == ["original_ind", "shifted_ind", "original_exd", "shifted_exd", "synthetical"]
        np.testing.assert_array_equal(streams["original_ind"].values, source.pool.values[a.index])
        assert not (streams["shifted_ind"].values == source.pool.values[b.index]).all(axis=(1, 2)).any()
