"""The five streams: what they are made of, that they leak nothing, and that they are the same for everyone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from btfl.data.catalogue import load_source
from btfl.data.duplicates import content_keys
from btfl.data.fetching.cache import cache_root
from btfl.data.manifest import KIND, VERSION
from btfl.data.partition import Partition, PartitionSettings, make_partition
from btfl.data.source import Samples, Source
from btfl.data.streams import (
    CLEAN,
    OTHER_DOMAIN,
    POOL,
    STREAMS,
    Manifest,
    Stream,
    StreamSettings,
    make_manifest,
    render,
)
from btfl.engines.pool import WorkerPool
from btfl.errors import InputError, StorageError, UnknownNameError
from btfl.storage import load_record, save_record

SHARED = Path(os.environ.get("BTFL_TEST_DATA", Path(__file__).parents[2].parent / "shared" / "data"))


@pytest.fixture(scope="module")
def source() -> Source:
    return load_source("digits")


@pytest.fixture(scope="module")
def partition(source: Source) -> Partition:
    return make_partition(source, PartitionSettings(6, alpha=0.3), 0)


@pytest.fixture(scope="module")
def manifest(source: Source, partition: Partition) -> Manifest:
    return make_manifest(source, partition, StreamSettings(), 0)


def histogram(labels: np.ndarray) -> list[int]:
    return [int(count) for count in np.bincount(labels, minlength=10)]


def test_each_stream_is_made_of_what_the_spec_says(source: Source, partition: Partition, manifest: Manifest) -> None:
    for client, drawn in enumerate(manifest.clients):
        a, b, c, d = drawn.draws
        streams = render(source, manifest, client)
        own = partition.parts[client].test
        assert sorted(a.index.tolist()) == sorted(own.tolist())
        elsewhere = np.concatenate([p.test for i, p in enumerate(partition.parts) if i != client])
        assert set(c.index.tolist()) <= set(elsewhere.tolist())
        assert len(np.unique(c.index)) == len(c) == len(a)
        for clean, shifted, name in ((a, b, "shifted_ind"), (c, d, "shifted_exd")):
            assert (clean.origin == POOL).all()
            assert (clean.corruption == CLEAN).all()
            assert histogram(streams[name].labels) == histogram(source.pool.labels[clean.index])
            from_domain = shifted.origin == OTHER_DOMAIN
            assert from_domain.sum() == len(shifted) // 2
            assert (shifted.corruption[from_domain] == CLEAN).all()
            assert (shifted.corruption[~from_domain] != CLEAN).all()
            assert set(shifted.index[~from_domain].tolist()) <= set(clean.index.tolist())
        which, where = drawn.mixture.T
        assert np.bincount(which).tolist() == [len(a) // 4] * 4
        assert len(np.unique(drawn.mixture, axis=0)) == len(which)
        assert not (np.diff(which) >= 0).all()  # shuffled
        mixed = streams["synthetical"]
        for i, (stream, position) in enumerate(zip(which, where, strict=True)):
            parent = streams[STREAMS[stream]]
            assert (mixed.values[i] == parent.values[position]).all()
            assert mixed.labels[i] == parent.labels[position]
            assert mixed.external[i] == (stream >= 2)
        for name in STREAMS[:4]:
            assert (streams[name].external == name.endswith("exd")).all()


def test_all_corruptions_are_drawn_about_equally() -> None:
    source = load_source("digits", shift="none")
    partition = make_partition(source, PartitionSettings(4, "equal"), 0)
    manifest = make_manifest(source, partition, StreamSettings(), 0)
    drawn = np.concatenate([client.draws[1].corruption for client in manifest.clients])
    counts = np.bincount(drawn, minlength=15)
    assert counts.min() > 0.4 * len(drawn) / 15
    assert counts.max() < 2 * len(drawn) / 15


def test_without_another_domain_the_shifted_streams_are_corrupted_throughout(partition: Partition) -> None:
    source = load_source("digits", shift="none")
    manifest = make_manifest(source, partition, StreamSettings(), 0)
    assert manifest.shift_name is None
    for client in manifest.clients:
        assert (client.draws[1].corruption != CLEAN).all()
        assert (client.draws[3].origin == POOL).all()


def test_a_class_the_other_domain_lacks_is_corrupted_so_that_the_label_mix_stays(source: Source) -> None:
    assert source.shifted is not None
    keep = source.shifted.labels != 3
    shifted = Samples(source.shifted.values[keep][:40], source.shifted.labels[keep][:40])
    poor = Source("poor", source.classes, source.pool, shifted, "few prints")
    partition = make_partition(poor, PartitionSettings(4, alpha=1.0), 0)
    manifest = make_manifest(poor, partition, StreamSettings(), 0)
    for client in range(4):
        draw = manifest.clients[client].draws[1]
        streams = render(poor, manifest, client)
        assert histogram(streams["shifted_ind"].labels) == histogram(streams["original_ind"].labels)
        assert (streams["shifted_ind"].labels[draw.origin == OTHER_DOMAIN] != 3).all()


def leaks(source: Source, partition: Partition, manifest: Manifest) -> int:
    """Count samples of any stream whose original was trained or validated on by any client, by content."""
    keys = content_keys(source.pool.values)
    seen = {keys[i] for part in partition.parts for i in (*part.train, *part.validation)}
    shifted = content_keys(source.shifted.values) if source.shifted is not None else []
    count = 0
    for client in manifest.clients:
        for draw in client.draws:
            for origin, index in zip(draw.origin, draw.index, strict=True):
                count += (keys[index] if origin == POOL else shifted[index]) in seen
    return count


def rendered_leaks(source: Source, partition: Partition, streams: Mapping[str, Stream]) -> int:
    """The same, by the pixels a method is really shown."""
    rows = np.concatenate([np.concatenate([p.train, p.validation]) for p in partition.parts])
    seen = set(content_keys(source.pool.values[rows]))
    return sum(key in seen for stream in streams.values() for key in content_keys(stream.values))


def copied(source: Source) -> Source:
    """A dataset with exact copies in it, and an other domain that holds some of the pool's images."""
    rng = np.random.default_rng(0)
    images = source.pool.values.copy()
    images[:200] = images[rng.integers(200, len(images), 200)]
    assert source.shifted is not None
    shifted = source.shifted.values.copy()
    shifted[::3] = images[rng.integers(0, len(images), len(shifted[::3]))]
    return Source("copied", source.classes, Samples(images, source.pool.labels),
                  Samples(shifted, source.shifted.labels), "half copied")  # fmt: skip


def test_nothing_trained_or_validated_on_is_in_any_stream(source: Source) -> None:
    for one in (source, copied(source)):
        partition = make_partition(one, PartitionSettings(6, alpha=0.3), 0)
        manifest = make_manifest(one, partition, StreamSettings(), 0)
        assert leaks(one, partition, manifest) == 0
        assert sum(rendered_leaks(one, partition, render(one, manifest, client)) for client in range(6)) == 0


def test_the_leak_test_finds_the_published_leak(source: Source) -> None:
    partition = make_partition(source, PartitionSettings(6, alpha=0.3, split="redrawn"), 0)
    assert leaks(source, partition, make_manifest(source, partition, StreamSettings(), 0)) > 100


@pytest.mark.skipif(
    not (cache_root() / "cifar10").exists(), reason="CIFAR-10 is not in the cache: btfl data get cifar10"
)
def test_nothing_leaks_on_cifar10() -> None:
    source = load_source("cifar10", shift="none")
    partition = make_partition(source, PartitionSettings(20), 0)
    manifest = make_manifest(source, partition, StreamSettings(), 0)
    assert leaks(source, partition, manifest) == 0
    assert rendered_leaks(source, partition, render(source, manifest, 0)) == 0


@pytest.mark.skipif(not (SHARED / "office31-64.tar").exists(), reason=f"no Office-31 in {SHARED}")
def test_nothing_leaks_on_a_folder_dataset() -> None:
    source = load_source("folder", root=SHARED / "office31-64.tar")
    partition = make_partition(source, PartitionSettings(8), 0)
    manifest = make_manifest(source, partition, StreamSettings(), 0)
    assert partition.copies > 0  # Office-31 does hold exact copies
    assert leaks(source, partition, manifest) == 0
    assert rendered_leaks(source, partition, render(source, manifest, 3)) == 0


def test_the_same_seed_gives_the_same_hash_and_another_seed_another(source: Source, partition: Partition) -> None:
    hashes = [make_manifest(source, partition, StreamSettings(), seed).hash for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]
    milder = make_manifest(source, partition, StreamSettings(severity=3), 0)
    assert milder.hash != hashes[0]


def _pixels(source: Source, manifest: Manifest, client: int) -> bytes:
    return b"".join(stream.values.tobytes() for stream in render(source, manifest, client).values())


def test_every_worker_renders_the_same_images(source: Source, manifest: Manifest) -> None:
    here = [_pixels(source, manifest, client) for client in range(6)]
    with WorkerPool[int, bytes](2, _pixels, source, manifest) as pool:
        assert list(pool.map([5, 4, 3, 2, 1, 0])) == here[::-1]


def save_as_before(manifest: Manifest, folder: Path, version: int) -> None:
    """Save a manifest as versions 1 and 2 did: an array for each part of each stream of each client."""
    arrays: dict[str, NDArray[Any]] = {}
    for i, client in enumerate(manifest.clients):
        arrays[f"{i}.mixture"] = client.mixture
        for name, draw in zip(STREAMS[:4], client.draws, strict=True):
            arrays |= {f"{i}.{name}.{part}": getattr(draw, part) for part in ("origin", "index", "corruption")}
    manifest.save(folder)
    fields, _ = load_record(folder, "streams", KIND, VERSION)
    named = fields.pop("named_after_files")
    more = {"named_after_files": named} if version == 2 else {}
    save_record(folder, "streams", KIND, version, {**fields, **more}, arrays)


@pytest.mark.parametrize("version", [1, 2])
def test_manifests_of_older_versions_are_read_and_keep_their_hash(
    source: Source, manifest: Manifest, version: int, tmp_path: Path
) -> None:
    save_as_before(manifest, tmp_path, version)
    older = Manifest.load(tmp_path)
    assert older.hash == manifest.hash
    before = sum(path.stat().st_size for path in tmp_path.iterdir())
    older.save(tmp_path)
    assert Manifest.load(tmp_path).hash == manifest.hash
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < before / 2


def test_what_is_packed_comes_back_with_its_types_and_an_array_cut_short_is_named(
    manifest: Manifest, tmp_path: Path
) -> None:
    manifest.save(tmp_path)
    for kept, client in zip(Manifest.load(tmp_path).clients, manifest.clients, strict=True):
        assert kept.mixture.dtype == client.mixture.dtype
        for draw, same in zip(kept.draws, client.draws, strict=True):
            for part in ("origin", "index", "corruption"):
                np.testing.assert_array_equal(getattr(draw, part), getattr(same, part))
                assert getattr(draw, part).dtype == getattr(same, part).dtype
    fields, arrays = load_record(tmp_path, "streams", KIND, VERSION)
    save_record(tmp_path, "streams", KIND, VERSION, fields, {**arrays, "index": arrays["index"][:-1]})
    with pytest.raises(StorageError, match="samples where"):
        Manifest.load(tmp_path)


def test_a_saved_manifest_comes_back_and_damage_is_named(source: Source, manifest: Manifest, tmp_path: Path) -> None:
    manifest.save(tmp_path)
    again = Manifest.load(tmp_path)
    assert again.hash == manifest.hash
    assert _pixels(source, again, 2) == _pixels(source, manifest, 2)
    record = tmp_path / "streams.json"
    record.write_text(record.read_text().replace('"severity": 5', '"severity": 4'))
    with pytest.raises(StorageError, match="damaged or was edited"):
        Manifest.load(tmp_path)


def test_a_manifest_refuses_other_images(source: Source, manifest: Manifest) -> None:
    other = load_source("digits", shift="none")
    with pytest.raises(InputError, match="printed digits"):
        render(other, manifest, 0)
    darker = Source("darker", source.classes, Samples(source.pool.values // 2, source.pool.labels))
    with pytest.raises(InputError, match="fingerprints differ"):
        render(darker, manifest, 0)
    with pytest.raises(InputError, match="no client 6"):
        render(source, manifest, 6)


def test_streams_can_be_cut_short(source: Source, partition: Partition) -> None:
    manifest = make_manifest(source, partition, StreamSettings(longest=20), 0)
    for client in manifest.clients:
        assert [len(draw) for draw in client.draws] == [20] * 4
        assert len(client.mixture) == 20


def test_wrong_settings_are_refused() -> None:
    wrongs: tuple[dict[str, Any], ...] = ({"severity": 6}, {"longest": 3})
    for wrong in wrongs:
        with pytest.raises(InputError):
            StreamSettings(**wrong)
    with pytest.raises(UnknownNameError, match="frost"):
        StreamSettings(corruptions=("frst",))
