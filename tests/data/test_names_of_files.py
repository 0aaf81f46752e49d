"""Streams are those of the samples: how files and folders are called and packed changes no hash."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from btfl.benchmark.run import BenchRun, run_bench
from btfl.data.catalogue import load_source
from btfl.data.manifest import Manifest
from btfl.data.partition import PartitionSettings, make_partition
from btfl.data.source import Source
from btfl.data.streams import StreamSettings, make_manifest
from btfl.experiments.experiment import make_experiment
from btfl.report.groups import group_runs, load_runs

RESULTS = Path(__file__).parents[2] / "results"
Files = dict[str, bytes]


def pictures(first: Sequence[str], between: str = "") -> Files:
    """Return 5 picture files of each of two classes in each folder of the first level."""
    rng, files = np.random.default_rng(0), {}
    for one in first:
        for label in ("bed", "mug"):
            for i in range(5):
                file = io.BytesIO()
                Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(file, "PNG")
                files[f"{one}/{between}{label}/{i}.png"] = file.getvalue()
    return files


def as_folder(root: Path, files: Files) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def as_tar(path: Path, files: Files, prefix: str = "", mode: str = "w") -> Path:
    """Write files to a tar, the last one first."""
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for name in reversed(files):
            member = tarfile.TarInfo(prefix + name)
            member.size = len(files[name])
            tar.addfile(member, io.BytesIO(files[name]))
    return path


def manifest_of(source: Source) -> Manifest:
    settings = PartitionSettings(clients=2, kind="equal")
    return make_manifest(source, make_partition(source, settings, seed=0), StreamSettings(), seed=0)


@pytest.mark.parametrize(
    ("dataset", "options", "files"),
    [
        ("folder", {"shift": "oil", "image_size": 8}, pictures(("ink", "oil", "pen"))),
        ("folder", {"shift": "oil", "image_size": 8}, pictures(("ink", "oil", "pen"), "images/")),
        ("folder", {"shift": "none", "image_size": 8}, pictures(("ink", "oil", "pen"))),
        ("folder", {"level": "client", "image_size": 8}, pictures(("ann", "ben", "cas", "dan"))),
        ("officehome", {"image_size": 8}, pictures(("Art", "Clipart", "Product", "Real World"))),
    ],
    ids=["domains", "a level between", "no shift", "clients", "officehome"],
)
def test_a_tree_of_pictures(tmp_path: Path, dataset: str, options: dict[str, Any], files: Files) -> None:
    places = [
        as_folder(tmp_path / "mine", files),
        as_folder(tmp_path / "yours" / "top", files).parent,
        as_folder(tmp_path / "backwards", dict(reversed(files.items()))),
        as_tar(tmp_path / "packed64.tar", files),
        as_tar(tmp_path / "dotted.tar", files, "./"),
        as_tar(tmp_path / "topped.tar", files, "some/top/"),
        as_tar(tmp_path / "small.tar.gz", files, "./top/", "w:gz"),
    ]
    manifests = [manifest_of(load_source(dataset, root=place, **options)) for place in places]
    assert len({manifest.hash for manifest in manifests}) == 1
    assert all(manifest.same_streams(manifests[0]) for manifest in manifests)
    changed = {**files, next(iter(files)): files[list(files)[1]]}
    other = manifest_of(load_source(dataset, root=as_folder(tmp_path / "changed", changed), **options))
    assert other.hash != manifests[0].hash
    assert not other.same_streams(manifests[0])


def vectors(rows: int, seed: int) -> tuple[Any, Any]:
    return np.random.default_rng(seed).normal(size=(rows, 3)).astype(np.float32), np.arange(rows) % 2


def write_npz(path: Path, rows: int = 40, seed: int = 0) -> None:
    x, y = vectors(rows, seed)
    np.savez(path, x=x, y=y)


def write_table(path: Path, rows: int = 40, seed: int = 0) -> None:
    x, y = vectors(rows, seed)
    table = pd.DataFrame(x, columns=list("abc")).assign(label=y)
    table.to_csv(path, index=False) if path.suffix == ".csv" else table.to_parquet(path)


@pytest.mark.parametrize(
    ("dataset", "write", "suffix"),
    [("arrays", write_npz, ".npz"), ("table", write_table, ".csv"), ("table", write_table, ".parquet")],
)
def test_a_file_of_samples(tmp_path: Path, dataset: str, write: Callable[..., None], suffix: str) -> None:
    manifests = []
    for pool, shift in (("mine", "winter"), ("copy-2", "w2")):
        for place, seed in ((pool, 0), (shift, 1)):
            write(tmp_path / f"{place}{suffix}", seed=seed)
        manifests += [
            manifest_of(load_source(dataset, root=tmp_path / f"{pool}{suffix}", shift=other))
            for other in ("none", tmp_path / f"{shift}{suffix}")
        ]
    alone, shifted, alone_again, shifted_again = manifests
    assert alone.hash == alone_again.hash != shifted.hash == shifted_again.hash
    assert (shifted.source, shifted.shift_name) == ("mine", "winter")  # still told, though not hashed
    assert not alone.same_streams(shifted)


def test_pairs_within_a_file_are_told_apart_by_their_names(tmp_path: Path) -> None:
    (x, y), (other, _) = vectors(40, 0), vectors(40, 1)
    np.savez(tmp_path / "a.npz", x=x, y=y, x_wet=other, y_wet=y, x_dry=other, y_dry=y)
    wet, dry = (manifest_of(load_source("arrays", root=tmp_path / "a.npz", shift=name)) for name in ("wet", "dry"))
    assert wet.hash != dry.hash


def test_a_manifest_that_names_files_comes_back(tmp_path: Path) -> None:
    write_npz(tmp_path / "mine.npz")
    manifest = manifest_of(load_source("arrays", root=tmp_path / "mine.npz"))
    manifest.save(tmp_path)
    again = Manifest.load(tmp_path)
    assert (again.hash, again.source, again.named_after_files) == (manifest.hash, "mine", manifest.named_after_files)


def test_manifests_of_earlier_versions_keep_the_hash_with_the_name_and_are_recognised(tmp_path: Path) -> None:
    older = Manifest.load(RESULTS / "pacs-cnn-dir0.1")
    assert older.source == "pacs64"
    newer = replace(older, source="pacs", named_after_files=frozenset({"source"}))
    assert newer.hash != older.hash
    assert newer.same_streams(older)
    assert older.same_streams(newer)
    assert not replace(newer, seed=1).same_streams(older)
    older.save(tmp_path)
    assert (Manifest.load(tmp_path).hash, Manifest.load(tmp_path).source) == (older.hash, "pacs64")


def bench(root: Path, out: Path, *methods: str, seed: int = 0) -> BenchRun:
    few: dict[str, Any] = {"clients": 2, "partition": "equal", "training": {"rounds": 1}, "model": "mlp"}
    return run_bench(make_experiment({**few, "dataset": "arrays", "root": root, "methods": methods, "seed": seed}), out)


def test_a_run_goes_on_and_is_reported_with_the_same_samples_under_another_name(tmp_path: Path) -> None:
    for name in ("mine", "renamed"):
        write_npz(tmp_path / f"{name}.npz", rows=80)
    first = bench(tmp_path / "mine.npz", tmp_path / "out", "fedavg")
    added = bench(tmp_path / "renamed.npz", tmp_path / "out", "personal")
    assert added.manifest.hash == first.manifest.hash
    assert set(added.rows["method"]) == {"fedavg", "personal"}
    bench(tmp_path / "renamed.npz", tmp_path / "seed-1", "fedavg", "personal", seed=1)
    (group,) = group_runs(load_runs([tmp_path / "out", tmp_path / "seed-1"]))
    assert group.seeds == [0, 1]


def test_rows_are_added_to_a_run_of_an_earlier_version_which_keeps_its_hash(tmp_path: Path) -> None:
    write_npz(tmp_path / "mine.npz", rows=80)
    out = tmp_path / "out"
    first = bench(tmp_path / "mine.npz", out, "fedavg")
    older = replace(first.manifest, named_after_files=frozenset())
    older.save(out)
    record = json.loads((out / "run.json").read_text())
    record["streams"]["hash"] = older.hash
    del record["record_sha256"]  # 0.1.0 sealed nothing
    (out / "run.json").write_text(json.dumps(record))
    added = bench(tmp_path / "mine.npz", out, "personal")
    assert set(added.rows["manifest"]) == {older.hash} != {first.manifest.hash}
    bench(tmp_path / "mine.npz", tmp_path / "new", "btfl")
    (group,) = group_runs(load_runs([out, tmp_path / "new"]))  # both hashes, one set of streams
    assert set(group.titles) == {"fedavg", "personal", "btfl"}
