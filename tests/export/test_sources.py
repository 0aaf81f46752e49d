"""What can be exported and enrolled in: nodes, zoo entries, bundles, fleets; and files of other trainings, refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from btfl import ClientBundle, Coherent
from btfl.core.provenance import Provenance
from btfl.errors import BtflError
from btfl.export.enrolling import OwnData, Server, enrol_device, find_server, read_own_data
from btfl.methods.coherent.settings import CoherentSettings
from btfl.runs.enrolling import enrolling
from btfl.runs.trained import TrainedFederation, save_outcome
from small import digits, images_of, train_small

ort = pytest.importorskip("onnxruntime", reason="running what was exported needs `pip install onnxruntime`")
onnx = pytest.importorskip("onnx", reason="exporting to ONNX needs `pip install btfl[onnx]`")
pytest.importorskip("onnxscript", reason="exporting to ONNX needs `pip install btfl[onnx]`")

from btfl.export.sources import find_fleet  # noqa: E402
from btfl.export.write import export_fleet, export_split, export_whole, provenance_of_model  # noqa: E402


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A server that keeps no bundle, as on Flower, and a node's own folder elsewhere."""
    folder, trained = tmp_path_factory.mktemp("flower"), train_small("fedavg")
    replace(trained, outcomes=(None,) * 4).save(folder / "server" / "final")
    save_outcome(folder / "node-2", trained.outcome(2))
    trained.save(folder / "federation")
    return folder


def answers(path: Path, images: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    state = np.array([1 / 3, 1 / 3, 1.0, 1.0])
    found = session.run(["probabilities"], {"images": images, "state": state})[0]
    return np.asarray(found)


def test_a_nodes_folder_with_what_its_server_keeps_is_exported_and_gives_the_same_answers(place: Path) -> None:
    fleet = find_fleet(str(place / "node-2"), federation=place / "server")
    assert fleet.extractor is not None
    path = export_whole(fleet.bundle(None), place / "node.onnx", CoherentSettings(), fleet.extractor())
    client, images = train_small("fedavg").client(2), images_of(2)
    from btfl.models.forward import extract

    expected = Coherent(client.bundle).predict(extract(client.extractor(), images).astype(np.float64))
    assert np.abs(answers(path, images) - expected).max() < 1e-6
    told = provenance_of_model(onnx.load(path))
    assert told is not None
    own = Provenance.of_bundle(client.bundle)
    assert own is not None
    assert told == replace(own, method="coherent")
    settings = {entry.key: entry.value for entry in onnx.load(path).metadata_props}["method_settings"]
    assert json.loads(settings)["memory"] == "regimes"


def test_a_fleet_is_one_extractor_and_a_bundle_each_and_replaces_the_one_before(place: Path, tmp_path: Path) -> None:
    fleet = find_fleet(str(place / "federation"))
    assert fleet.extractor is not None
    target = tmp_path / "fleet"
    for _ in range(2):
        assert export_fleet(fleet.bundles, fleet.extractor(), target) == 4
    assert sorted(path.name for path in target.iterdir()) == [
        "client-000000", "client-000001", "client-000002", "client-000003", "extractor.onnx",
    ]  # fmt: skip
    assert not [name for name in ClientBundle.load(target / "client-000001").statistics if "features" in name[:14]]
    again = find_fleet(str(target / "client-000003"), extractor=target / "extractor.onnx")
    assert again.extractor is not None
    with pytest.raises(BtflError, match="holds something else"):
        export_fleet(fleet.bundles, fleet.extractor(), place)


def test_an_extractor_of_another_training_or_another_size_is_refused(place: Path, tmp_path: Path) -> None:
    other = train_small("fedavg", rounds=5)
    export_split(other.client(1), tmp_path / "other.onnx")
    with pytest.raises(BtflError, match=r"round 2, the extractor of run \w+, round 5.*Export both together"):
        find_fleet(str(place / "node-2"), extractor=tmp_path / "other.onnx")
    other.save(tmp_path / "other")
    with pytest.raises(BtflError, match="Export both together"):
        find_fleet(str(place / "node-2"), federation=tmp_path / "other")
    narrow = onnx.load(tmp_path / "other.onnx")
    narrow.graph.output[0].type.tensor_type.shape.dim[-1].dim_value = 7
    del narrow.metadata_props[:]
    onnx.save(narrow, tmp_path / "narrow.onnx")
    with pytest.raises(BtflError, match="gives 7 features, but the bundle's heads read"):
        find_fleet(str(place / "node-2"), extractor=tmp_path / "narrow.onnx")
    for content in (b"", b"no graph at all"):
        (tmp_path / "wrong.onnx").write_bytes(content)
        with pytest.raises(BtflError, match=r"wrong\.onnx is no ONNX file"):
            find_fleet(str(place / "node-2"), extractor=tmp_path / "wrong.onnx")


def test_a_server_whose_clients_keep_their_bundles_says_so(place: Path) -> None:
    with pytest.raises(BtflError, match="on their own devices: export a node's folder"):
        find_fleet(str(place / "server" / "final"))


def own_file(path: Path, count: int = 12, **more: object) -> Path:
    data = digits()
    rows = data.partition.parts[3].test[:count]
    told = {"x": data.source.pool.values[rows], "y": data.source.pool.labels[rows], **more}
    np.savez(path, **{name: value for name, value in told.items() if value is not None})  # type: ignore[arg-type]
    return path


@pytest.fixture(scope="module")
def server(place: Path) -> Server:
    return find_server(str(place / "server"))


def test_a_device_is_enrolled_from_what_the_flower_server_keeps(server: Server, tmp_path: Path) -> None:
    names = np.array([str(number) for number in range(10)])
    own = read_own_data(own_file(tmp_path / "own.npz", classes=names))
    bundle = enrol_device(server, own)
    assert bundle.metadata["enrolment"]["labels"] == 12
    assert Provenance.of_bundle(bundle) == train_small("fedavg").provenance
    assert own.labels is not None
    reversed_ = enrol_device(server, OwnData(own.samples, None, 9 - own.labels, tuple(names[::-1])))
    assert np.array_equal(bundle.statistics["train_labels"], reversed_.statistics["train_labels"])
    assert enrol_device(server, own, unlabelled=True).metadata["enrolment"]["level"] == "unlabelled"
    one = enrol_device(server, read_own_data(own_file(tmp_path / "one.npz", 1)))
    assert one.metadata["enrolment"]["samples"] == 1
    assert np.isfinite(Coherent(one).predict(np.ones((3, one.dimensions)))).all()


def test_a_class_that_the_federation_does_not_know_is_named(server: Server, tmp_path: Path) -> None:
    names = np.array([*(str(number) for number in range(9)), "zebra"])
    labels = np.array([9, 1, 2])
    own = read_own_data(own_file(tmp_path / "own.npz", 3, y=labels, classes=names))
    with pytest.raises(BtflError, match="does not know the class zebra: it knows 0, 1"):
        enrol_device(server, own)
    assert enrol_device(server, own, unlabelled=True).metadata["enrolment"]["labels"] == 0


def test_names_in_place_of_numbers_need_a_federation_that_knows_them(server: Server, tmp_path: Path) -> None:
    own = read_own_data(own_file(tmp_path / "own.npz", 3, y=np.array(["7", "0", "7"])))
    assert enrol_device(server, own).statistics["train_labels"].tolist() == [7, 0, 7]
    with pytest.raises(BtflError, match="does not say what its classes are called"):
        enrol_device(replace(server, classes=()), own)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"x": None}, "must have either x"),
        ({"x": np.zeros((12, 9, 9, 1), np.uint8)}, "samples are 9x9x1, but the extractor takes 8x8x1"),
        ({"x": np.zeros((12, 8, 8, 1))}, "images are uint8"),
        ({"x": None, "features": np.zeros((12, 5))}, "come from another extractor"),
        ({"y": np.zeros(5, int)}, "12 samples, but labels y of the shape"),
        ({"x": np.zeros((0, 8, 8, 1), np.uint8), "y": None}, "holds no sample"),
        ({"x": np.uint8(3), "y": None}, "x must be a list, not a single value"),
        ({"classes": np.array("zebra")}, "classes must be a list, not a single value"),
        ({"x": np.array([{}], dtype=object)}, "which btfl does not open"),
    ],
)
def test_a_file_that_does_not_fit_is_one_sentence(
    server: Server, tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    with pytest.raises(BtflError, match=said) as caught:
        enrol_device(server, read_own_data(own_file(tmp_path / "own.npz", **changes)))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_a_file_that_was_cut_off_is_one_sentence(tmp_path: Path) -> None:
    whole = own_file(tmp_path / "own.npz")
    (tmp_path / "cut.npz").write_bytes(whole.read_bytes()[:500])
    for name, said in (("cut.npz", "not an npz file, or it is damaged"), ("absent.npz", "there is no file")):
        with pytest.raises(BtflError, match=said):
            read_own_data(tmp_path / name)


def test_an_old_federation_without_totals_says_how_to_make_them(tmp_path: Path) -> None:
    replace(train_small("fedavg"), total=None, provenance=None).save(tmp_path)
    with pytest.raises(BtflError, match="repeats the end of training alone"):
        find_server(str(tmp_path))
    assert TrainedFederation.load(tmp_path).provenance is None  # which is no reason to refuse it
    with pytest.raises(BtflError, match="networks of their own"):
        enrolling(train_small("ditto"))


def test_an_entry_of_the_zoo_is_exported_and_enrolled_in_without_torch(tmp_path: Path) -> None:
    fleet = find_fleet("zoo:cifar10-cnn-dir0.1-quick")
    assert fleet.extractor is not None
    path = export_whole(fleet.bundle(3), tmp_path / "client.onnx", CoherentSettings(), fleet.extractor())
    images = np.random.default_rng(0).integers(256, size=(5, 32, 32, 3), dtype=np.uint8)
    assert np.allclose(answers(path, images).sum(axis=1), 1.0)
    found = find_server("zoo:cifar10-cnn-dir0.1-quick")
    bundle = enrol_device(found, OwnData(images))
    assert bundle.metadata["enrolment"]["level"] == "unlabelled"
    with pytest.raises(BtflError, match="there is no client 99: there are clients 0 to 9"):
        fleet.bundle(99)
