"""What zoo entries carry for ``btfl serve``: bundles without features, the extractor, the monitors' levels."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from btfl import Btfl, Calibration, Coherent
from btfl.core.calibration import SHAPES
from btfl.errors import StorageError
from btfl.methods.coherent.settings import FIRST_VERSION
from btfl.monitor import identity
from btfl.zoo.serving import entry_folder, load_serving, save_serving

ENTRIES = {"cifar10-cnn-dir0.1-quick": 10, "cifar10-cnn-dir0.1": 20, "hapt-natural": 30}


@pytest.mark.parametrize(("name", "clients"), ENTRIES.items())
def test_every_client_of_an_entry_can_be_served(name: str, clients: int) -> None:
    serving = load_serving(entry_folder(name))
    assert sorted(serving.bundles) == sorted(serving.calibrations) == list(range(clients))
    assert serving.extractor is not None
    features = np.maximum(np.random.default_rng(0).normal(size=(5, 64)), 0)
    for number, bundle in serving.bundles.items():
        for method in (Coherent(bundle), Btfl(bundle)):
            assert np.isfinite(method.predict(features)).all()
        assert serving.calibrations[number].source == "validation"
        assert serving.calibrations[number].method == identity(Coherent(bundle))


@pytest.mark.parametrize("name", ENTRIES)
def test_what_is_served_is_the_second_version_of_coherent(name: str) -> None:
    serving = load_serving(entry_folder(name))
    for bundle in serving.bundles.values():
        calibration = Calibration.in_statistics(bundle.statistics)
        assert calibration is not None
        assert Coherent(bundle).chosen == calibration.choose() != FIRST_VERSION


def test_an_entry_from_before_the_second_version_still_loads(tmp_path: Path) -> None:
    serving = load_serving(entry_folder("cifar10-cnn-dir0.1-quick"))
    older = {
        number: replace(bundle, statistics={key: each for key, each in bundle.statistics.items() if key not in SHAPES})
        for number, bundle in serving.bundles.items()
    }
    save_serving(tmp_path, replace(serving, bundles=older))
    bundle = load_serving(tmp_path).bundles[4]
    assert Coherent(bundle).chosen == FIRST_VERSION


@pytest.mark.parametrize("name", ENTRIES)
def test_no_feature_of_a_sample_is_in_an_entry(name: str) -> None:
    folder = entry_folder(name)
    (tensors,) = folder.glob("serving-*.safetensors")
    kinds = {key.partition("/")[2] for key in load_file(tensors)}
    assert not {kind for kind in kinds if "features" in kind or "labels" in kind}
    serving = load_serving(folder)
    assert all(array.shape[0] <= 64 for own in serving.own.values() for array in own.values())


@pytest.mark.parametrize("name", ENTRIES)
def test_own_sums_add_up_to_everyone_s(name: str) -> None:
    serving = load_serving(entry_folder(name))
    total = serving.bundles[0].statistics
    for kind in ("class_counts", "class_feature_sums", "feature_scatter"):
        added = sum(own[kind] for own in serving.own.values())
        np.testing.assert_allclose(added, total[f"global_{kind}"], rtol=1e-9)


def test_the_weights_of_the_entries_are_as_they_were() -> None:
    card = json.loads((entry_folder("cifar10-cnn-dir0.1-quick") / "card.json").read_text())
    assert card["recipes"]["fedavg"]["sha256"] == "b12befb23d0d48a5fb3971a777ca0ace4e120352d4df5b1e1954dcbe6b764649"


def test_what_was_saved_comes_back_and_damage_is_noticed(tmp_path: Path) -> None:
    serving = load_serving(entry_folder("cifar10-cnn-dir0.1-quick"))
    save_serving(tmp_path / "one", serving)
    again = load_serving(tmp_path / "one")
    assert again.extractor == serving.extractor
    assert again.calibrations == serving.calibrations
    features = np.ones((1, 64))
    assert (Coherent(again.bundles[4]).predict(features) == Coherent(serving.bundles[4]).predict(features)).all()
    for pattern in ("extractor-*.onnx", "serving-*.safetensors", "serving.json"):
        shutil.copytree(tmp_path / "one", tmp_path / pattern[:5])
        (file,) = (tmp_path / pattern[:5]).glob(pattern)
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        with pytest.raises(StorageError):
            load_serving(tmp_path / pattern[:5])
        shutil.rmtree(tmp_path / pattern[:5])
