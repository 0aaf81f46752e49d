"""``kill -9`` during enrolment, renewal and export leaves the old or the new, never a mixture: at 20 moments each."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from btfl import ClientBundle
from btfl.core.provenance import Provenance, check_fits
from btfl.engines import LocalEngine, train_federation
from btfl.enrolment import enrol
from btfl.recipes import TrainingSettings
from btfl.recipes.registry import make_recipe
from btfl.runs.enrolling import enrolling
from btfl.runs.trained import TrainedFederation
from crashing import killed, moments, touches
from small import digits

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the child is forked, and folders are exchanged"),
]


def train(folder: Path, rounds: int) -> TrainedFederation:
    settings = TrainingSettings.for_model("mlp", rounds=rounds, local_epochs=1, finetune_epochs=0)
    recipe = make_recipe("fedavg", settings, (8, 8, 1), 10)
    return train_federation(recipe, digits(), LocalEngine(), folder=folder, longer=True)


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """A training after one round, and the same after two."""
    places = {number: tmp_path_factory.mktemp("training") for number in (1, 2)}
    for number, place in places.items():
        train(place, number)
    return places


def test_enrolment(rounds: dict[int, Path], tmp_path: Path) -> None:
    federations = {number: enrolling(TrainedFederation.load(place / "final")) for number, place in rounds.items()}
    features = np.abs(np.random.default_rng(0).normal(size=(12, federations[1].total.dimensions)))
    bundles = {number: enrol(federation, features) for number, federation in federations.items()}
    bundles[1].save(tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "counted")
    total, deaths = touches(lambda: bundles[2].save(tmp_path / "counted"), None, tmp_path / "told"), 0
    found = []
    for at in moments(total, 24):
        device = tmp_path / f"device-{at}"
        shutil.copytree(tmp_path / "old", device)
        deaths += killed(lambda place=device: bundles[2].save(place), None, at)  # type: ignore[misc]
        found.append(_round_of(ClientBundle.load(device), bundles))
        bundles[2].save(device)  # and given again, it ends
        assert _round_of(ClientBundle.load(device), bundles) == 2
    assert deaths >= 20
    assert found == sorted(found)
    assert set(found) == {1, 2}


def _round_of(bundle: ClientBundle, known: dict[int, ClientBundle]) -> int:
    """The round whose bundle this is, in all of its parts."""
    provenance = Provenance.of_bundle(bundle)
    assert provenance is not None
    whole = known[provenance.round]
    assert np.array_equal(bundle.global_head.weight, whole.global_head.weight)
    assert np.array_equal(bundle.personal_head.weight, whole.personal_head.weight)
    assert bundle.statistics.keys() == whole.statistics.keys()
    assert all(np.array_equal(bundle.statistics[name], array) for name, array in whole.statistics.items())
    return provenance.round


def test_renewal_of_a_training(rounds: dict[int, Path], tmp_path: Path) -> None:
    digests = {TrainedFederation.load(place / "final").digest(): number for number, place in rounds.items()}
    shutil.copytree(rounds[1], tmp_path / "counted")
    total = touches(lambda: train(tmp_path / "counted", 2), tmp_path / "counted", tmp_path / "told")
    found = []
    for at in moments(total):
        place = tmp_path / f"run-{at}"
        shutil.copytree(rounds[1], place)
        assert killed(lambda place=place: train(place, 2), place, at)  # type: ignore[misc]
        federation = TrainedFederation.load(place / "final")
        number = digests[federation.digest()]
        assert federation.provenance is not None
        assert federation.provenance.round == number
        for client in range(4):
            told = Provenance.of_bundle(federation.client(client).bundle)
            check_fits(told, federation.provenance)
        found.append(number)
    assert found == sorted(found)  # the old ones, and from one moment on the new ones
    assert set(found) == {1, 2}
    assert digests[train(place, 2).digest()] == 2


def test_export_of_a_fleet(rounds: dict[int, Path], tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="exporting to ONNX needs `pip install btfl[onnx]`")
    from btfl.export.write import export_fleet, provenance_of_model, stamp

    def export(number: int, folder: Path) -> None:
        federation = TrainedFederation.load(rounds[number] / "final")
        box = onnx.helper
        edge = [box.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 4]) for name in ("x", "features")]
        nodes = [box.make_node("Identity", ["x"], ["features"])]
        model = box.make_model(box.make_graph(nodes, "extractor", edge[:1], edge[1:]))
        stamp(model, federation.provenance)
        export_fleet({n: (lambda n=n: federation.outcome(n).bundle) for n in range(4)}, model, folder)  # type: ignore[misc]

    export(1, tmp_path / "old" / "fleet")
    shutil.copytree(tmp_path / "old", tmp_path / "counted")
    total = touches(lambda: export(2, tmp_path / "counted" / "fleet"), tmp_path / "counted", tmp_path / "told")
    found = []
    for at in moments(total):
        place = tmp_path / f"export-{at}"
        shutil.copytree(tmp_path / "old", place)
        assert killed(lambda place=place: export(2, place / "fleet"), place, at)  # type: ignore[misc]
        extractor = provenance_of_model(onnx.load(place / "fleet" / "extractor.onnx"))
        assert extractor is not None
        folders = sorted((place / "fleet").glob("client-*"))
        assert len(folders) == 4
        for folder in folders:
            check_fits(Provenance.of_bundle(ClientBundle.load(folder)), extractor)
        found.append(extractor.round)
    assert found == sorted(found)
    assert set(found) == {1, 2}
