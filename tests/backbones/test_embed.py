"""Features of a frozen backbone are a function of the sample, are computed once, and survive a damaged cache."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from btfl.backbones.embed import Embedder
from btfl.backbones.load import Backbone, load_backbone
from btfl.backbones.store import FeatureStore
from btfl.data.samples import Samples
from btfl.engines.pool import WorkerPool
from btfl.errors import InputError

SHAPE = (12, 10, 3)


def small() -> nn.Module:
    """A backbone with signed features, for images."""
    return nn.Sequential(nn.Conv2d(3, 6, 3, stride=2), nn.GELU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())


def for_signals() -> nn.Module:
    return nn.Sequential(nn.Conv1d(2, 5, 3), nn.AdaptiveAvgPool1d(1), nn.Flatten())


def images(n: int = 40, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, (n, *SHAPE), dtype=np.uint8)


class Counting:
    """Does the work here, and counts the samples."""

    def __init__(self) -> None:
        self.samples = 0

    def __call__(self, function: Any, items: Any) -> Any:
        for item in items:
            self.samples += len(item)
            yield function(item)


@pytest.fixture
def backbone() -> Backbone:
    return load_backbone(f"{__name__}:small", SHAPE)


def test_a_sample_is_computed_once_whatever_it_comes_with(backbone: Backbone, tmp_path: Path) -> None:
    values, count = images(), Counting()
    first = Embedder(backbone, tmp_path).features(values, spread=count)
    assert count.samples == 40
    mixed = np.concatenate([values[30:], images(5, seed=1), values[:3], values[30:31]])
    again = Embedder(load_backbone(f"{__name__}:small", SHAPE), tmp_path).features(mixed, spread=count)
    assert count.samples == 45
    assert again[:10].tobytes() == first[30:].tobytes()
    assert again[15:18].tobytes() == first[:3].tobytes()
    assert again[18].tobytes() == first[30].tobytes()


def test_equal_samples_are_computed_once(backbone: Backbone, tmp_path: Path) -> None:
    values, count = images(4), Counting()
    found = Embedder(backbone, tmp_path).features(np.concatenate([values, values]), spread=count)
    assert count.samples == 4
    assert found[:4].tobytes() == found[4:].tobytes()


def test_features_are_those_of_the_module_in_any_number_of_processes(backbone: Backbone, tmp_path: Path) -> None:
    values = images(600)

    def spread(function: Any, items: Any) -> Any:
        with WorkerPool[Any, Any](2, function) as pool:
            yield from pool.map(items)

    told: list[tuple[str, int, int | None]] = []
    here = Embedder(backbone, tmp_path / "1").features(values, progress=lambda *words: told.append(words))
    assert told[-1] == (f"features of {__name__}:small", 600, 600)
    assert Embedder(backbone, tmp_path / "2").features(values, spread=spread).tobytes() == here.tobytes()
    assert Embedder(backbone, tmp_path / "3").features(values[::-1])[::-1].tobytes() == here.tobytes()
    with torch.no_grad():
        plain = backbone.module(torch.from_numpy(values).permute(0, 3, 1, 2).float() / 255).numpy()
    np.testing.assert_allclose(here, plain, rtol=1e-4, atol=1e-5)


def test_copies_are_a_function_of_the_sample_alone(backbone: Backbone, tmp_path: Path) -> None:
    values = images(6)
    copies = Embedder(backbone, tmp_path / "1").copies(values, 5.0)
    assert Embedder(backbone, tmp_path / "2").copies(values[::-1], 5.0)[::-1].tobytes() == copies.tobytes()
    other = Embedder(backbone, tmp_path / "1")
    assert other.copies(values, 1.0).tobytes() != copies.tobytes()
    assert other.features(values).tobytes() != copies.tobytes()
    samples = other.samples(Samples(values, np.arange(6)), 5.0)
    assert (samples.kind, samples.shape) == ("vectors", (24,))
    assert samples.copies is not None
    assert samples.copies.tobytes() == copies.tobytes()


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "text"])
def test_a_damaged_file_is_computed_again_with_a_note(
    damage: str, backbone: Backbone, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = images(300)
    expected = Embedder(backbone, tmp_path).features(values)
    path = sorted(Embedder(backbone, tmp_path).folder.iterdir())[0]
    content = path.read_bytes()
    flipped = content[:-5] + bytes([content[-5] ^ 1]) + content[-4:]
    path.write_bytes({"cut": content[:100], "flipped": flipped, "empty": b"", "text": b"no tensors"}[damage])
    with caplog.at_level(logging.WARNING, logger="btfl"):
        assert Embedder(backbone, tmp_path).features(values).tobytes() == expected.tobytes()
    assert f"cached features in {path} are damaged and computed again" in caplog.text
    caplog.clear()
    count = Counting()
    assert Embedder(backbone, tmp_path).features(values, spread=count).tobytes() == expected.tobytes()
    assert (count.samples, caplog.text) == (0, "")


def test_other_weights_sizes_and_shapes_are_kept_apart(tmp_path: Path) -> None:
    name = f"{__name__}:small"
    one, resized = load_backbone(name, SHAPE), load_backbone(name, SHAPE, image_size=16)
    other = load_backbone(name, (12, 12, 3))
    changed = load_backbone(name, SHAPE)
    with torch.no_grad():
        changed.module[0].bias += 1.0  # type: ignore[index]
    again = Backbone(name, changed.module, SHAPE)
    assert len({backbone.identity for backbone in (one, resized, other, again)}) == 4
    assert load_backbone(name, SHAPE).identity == one.identity
    assert one.spec["weights"] != again.spec["weights"]
    assert Embedder(one, tmp_path).folder != Embedder(again, tmp_path).folder


def test_signals_go_through_a_backbone_of_ones_own(tmp_path: Path) -> None:
    signals = np.random.default_rng(0).normal(size=(5, 20, 2)).astype(np.float32)
    backbone = load_backbone(f"{__name__}:for_signals", (20, 2))
    samples = Embedder(backbone, tmp_path).samples(Samples(signals, np.arange(5)), 5.0)
    assert samples.shape == (5,)
    assert samples.copies is not None
    with pytest.raises(InputError, match=r"loaded for samples of \(20, 2\), not \(12, 10, 3\)"):
        backbone.features(images(2))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=6), max_size=5), st.lists(st.integers(0, 30)))
def test_the_store_gives_back_what_was_added(tmp_path_factory: Any, added: list[list[int]], wanted: list[int]) -> None:
    folder = tmp_path_factory.mktemp("store")
    store = FeatureStore(folder, 3)

    def key(number: int) -> bytes:
        return number.to_bytes(32, "big")

    for numbers in added:
        store.add([key(number) for number in numbers], np.full((len(numbers), 3), numbers[0], np.float32))
    first: dict[int, int] = {}
    for numbers in added:
        for number in numbers:
            first.setdefault(number, numbers[0])
    for one in (store, FeatureStore(folder, 3)):
        rows, there = one.find([key(number) for number in wanted])
        assert there.tolist() == [number in first for number in wanted]
        for row, number in zip(rows, wanted, strict=True):
            among = {numbers[0] for numbers in added if number in numbers} or {0}
            assert float(row[0]) in among
    assert len(store) == len(first)
