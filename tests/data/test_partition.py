"""Partitions: everyone gets something, nothing twice, always in the end, and copies stay together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from btfl.data.partition import FEWEST, Partition, PartitionSettings, make_partition
from btfl.data.source import Samples, Source
from btfl.errors import InputError, UnknownNameError


def made_up(size: int = 600, classes: int = 7, seed: int = 0, domains: int | None = None) -> Source:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (size, 4, 4, 1), dtype=np.uint8)
    labels = rng.integers(0, classes, size)
    names = tuple(str(i) for i in range(classes))
    of_domain = None if domains is None else rng.integers(0, domains, size)
    return Source("made up", names, Samples(images, labels), domains=of_domain)


def owned(partition: Partition) -> np.ndarray:
    return np.concatenate([part.everything for part in partition.parts])


@given(
    st.integers(2, 40),
    st.sampled_from(["dirichlet", "equal", "shards"]),
    st.floats(0.01, 100.0),
    st.integers(1, 6),
    st.integers(0, 3),
)
def test_every_image_is_dealt_once_and_everyone_has_all_three_parts(
    clients: int, kind: str, alpha: float, shards: int, seed: int
) -> None:
    source = made_up()
    partition = make_partition(source, PartitionSettings(clients, kind, alpha, shards), seed)  # type: ignore[arg-type]
    assert sorted(owned(partition).tolist()) == list(range(600))
    assert len(partition) == clients
    for part in partition.parts:
        assert min(len(part.train), len(part.validation), len(part.test)) >= 1


@given(st.floats(0.01, 1.0), st.integers(2, 30))
def test_dirichlet_gives_nobody_less_than_half_an_equal_share(alpha: float, clients: int) -> None:
    partition = make_partition(made_up(), PartitionSettings(clients, alpha=alpha), 0)
    assert min(len(part.everything) for part in partition.parts) >= 600 / clients / 2


def test_split_is_60_20_20() -> None:
    partition = make_partition(made_up(5000), PartitionSettings(5, "equal"), 0)
    for part in partition.parts:
        assert (len(part.train), len(part.validation), len(part.test)) == (600, 200, 200)


def heterogeneity(partition: Partition, source: Source) -> float:
    """The mean distance between a client's label mix and everyone's."""
    mixes = np.array(
        [np.bincount(source.pool.labels[p.everything], minlength=7) / len(p.everything) for p in partition.parts]
    )
    return float(np.abs(mixes - mixes.mean(axis=0)).sum(axis=1).mean())


def test_a_smaller_alpha_makes_clients_differ_more() -> None:
    source = made_up(5000)
    found = [
        heterogeneity(make_partition(source, PartitionSettings(20, alpha=alpha), 0), source)
        for alpha in (0.05, 0.5, 5.0, 500.0)
    ]
    assert found == sorted(found, reverse=True)
    assert found[0] > 1.0  # of at most 2
    assert found[-1] < 0.2


def test_shards_give_few_classes_and_domains_give_one_domain() -> None:
    source = made_up(2000, classes=10, domains=3)
    partition = make_partition(source, PartitionSettings(20, "shards", shards=2), 0)
    assert np.mean([len(np.unique(source.pool.labels[p.everything])) for p in partition.parts]) <= 4
    partition = make_partition(source, PartitionSettings(7, "domain"), 0)
    assert source.domains is not None
    for part in partition.parts:
        assert len(np.unique(source.domains[part.everything])) == 1


def test_the_same_seed_gives_the_same_parts_and_another_gives_others() -> None:
    source = made_up()
    parts = [owned(make_partition(source, PartitionSettings(10), seed)).tolist() for seed in (1, 1, 2)]
    assert parts[0] == parts[1] != parts[2]


def test_copies_stay_on_one_side_of_one_client() -> None:
    source = made_up(300)
    rng = np.random.default_rng(0)
    images = source.pool.values.copy()
    images[rng.choice(300, 120, replace=False)] = images[rng.integers(0, 300, 120)]
    source = Source("with copies", source.classes, Samples(images, source.pool.labels))
    partition = make_partition(source, PartitionSettings(8), 0)
    assert partition.copies > 50
    assert sorted(owned(partition).tolist()) == list(range(300))
    side_of: dict[bytes, set[tuple[int, str]]] = {}
    for client, part in enumerate(partition.parts):
        for side in ("train", "validation", "test"):
            for i in getattr(part, side):
                side_of.setdefault(images[i].tobytes(), set()).add((client, side))
    assert all(len(sides) == 1 for sides in side_of.values())


def test_ten_thousand_clients() -> None:
    source = made_up(50_000, classes=10)
    partition = make_partition(source, PartitionSettings(10_000, alpha=0.1), 0)
    assert min(len(part.everything) for part in partition.parts) >= FEWEST
    assert len(np.unique(owned(partition))) == 50_000


def test_what_cannot_be_met_is_refused_in_a_sentence() -> None:
    with pytest.raises(InputError, match="at most 120 clients"):
        make_partition(made_up(), PartitionSettings(121), 0)
    with pytest.raises(InputError, match=r"9 distinct images cannot be dealt to 2 clients.*too little data"):
        make_partition(made_up(9), PartitionSettings(2), 0)
    with pytest.raises(InputError, match="no domains to deal by"):
        make_partition(made_up(), PartitionSettings(5, "domain"), 0)
    with pytest.raises(InputError, match="3 domains need at least"):
        make_partition(made_up(domains=3), PartitionSettings(2, "domain"), 0)
    with pytest.raises(UnknownNameError, match="dirichlet"):
        PartitionSettings(kind="dirichlt")  # type: ignore[arg-type]
    wrongs: tuple[dict[str, Any], ...] = ({"clients": 1}, {"alpha": 0.0}, {"shards": 0})
    for wrong in wrongs:
        with pytest.raises(InputError):
            PartitionSettings(**wrong)


def test_the_published_split_trains_on_what_it_tests_elsewhere_and_the_honest_one_never() -> None:
    source = made_up()
    leaking = make_partition(source, PartitionSettings(5, split="redrawn"), 0)
    honest = make_partition(source, PartitionSettings(5), 0)
    trained = np.concatenate([leaking.part_at(0, round_).train for round_ in range(10)])
    assert np.isin(leaking.redraw(0, "test").test, trained).mean() > 0.9
    assert honest.part_at(0, 1) is honest.part_at(0, 9)
