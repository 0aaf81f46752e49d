"""Images that look unlike all that a client has seen are an alarm of the server, too."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="btfl[serve] is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnxscript", reason="exporting to ONNX needs `pip install btfl[onnx]`")

from asgi import Client
from btfl import ClientBundle
from btfl.core.provenance import Provenance
from btfl.errors import InputError
from btfl.export.before import before
from btfl.export.extractor import extractor_graph
from btfl.export.write import export_fleet, stamp
from btfl.monitor import Looks
from btfl.serve.app import create_app
from btfl.serve.settings import ServeSettings
from btfl.serve.state import Serving
from small import digits, train_small

CLIENT = 1


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    client, data = train_small("fedavg", rounds=1).client(CLIENT), digits()
    part, pool = data.partition.part_at(CLIENT, 0), data.source.pool.values
    with_looks = Looks.of(pool[part.train], pool[part.validation]).carried_by(client.bundle)
    graph = extractor_graph(client.extractor(), before(client.model))
    stamp(graph, Provenance.of_bundle(client.bundle))
    folder = tmp_path_factory.mktemp("looking") / "fleet"
    export_fleet({0: lambda: client.bundle, 1: lambda: with_looks}, graph, folder)
    return folder


@pytest.fixture(scope="module")
def own() -> np.ndarray:
    data = digits()
    return np.asarray(data.source.pool.values[data.partition.part_at(CLIENT, 0).test][:40])


@pytest.fixture
def client(fleet: Path, tmp_path: Path) -> Iterator[Client]:
    serving = Serving(str(fleet), ServeSettings.make(auth=False, database=f"sqlite:///{tmp_path / 'memory.db'}"))
    asked = Client(create_app(serving))
    yield asked
    asked.close()
    serving.close()


def ask(client: Client, images: np.ndarray, model: str = "client-1", **more: Any) -> dict[str, Any]:
    told = {"name": "images", "datatype": "UINT8", "shape": list(images.shape), "data": images.ravel().tolist()}
    body = {"inputs": [told], **more}
    said: dict[str, Any] = client.post(f"/v2/models/{model}/infer", json=body).json()
    return said


def column(said: dict[str, Any], name: str) -> list[float]:
    (found,) = (output["data"] for output in said["outputs"] if output["name"] == name)
    return list(found)


def test_a_failed_camera_is_an_alarm_at_once_and_over_requests(client: Client, own: np.ndarray) -> None:
    first = ask(client, own[:5], parameters={"sequence_id": 7, "sequence_start": True})
    assert max(column(first, "looks")) < 5
    assert first["parameters"]["alarm"] == ""
    black = ask(client, np.zeros_like(own[:1]), parameters={"sequence_id": 7})
    assert "strange" in black["parameters"]["alarm"]
    still = ask(client, own[5:10], parameters={"sequence_id": 7})  # five calm ones do not end it
    assert "strange" in still["parameters"]["alarm"]
    over = ask(client, own[10:40], parameters={"sequence_id": 7})
    assert "strange" not in over["parameters"]["alarm"]


def test_the_answers_are_those_without_it(client: Client, own: np.ndarray) -> None:
    plain, looking = (ask(client, own[:8], model) for model in ("client-0", "client-1"))
    assert column(plain, "probabilities") == column(looking, "probabilities")
    assert "looks" not in {output["name"] for output in plain["outputs"]}


def test_looks_are_told_of_images_alone(client: Client, own: np.ndarray) -> None:
    features = {"name": "features", "datatype": "FP64", "shape": [1, 64], "data": [1.0] * 64}
    answer = client.post("/v2/models/client-1/infer", json={"inputs": [features]})
    assert answer.status_code == 200
    assert "looks" not in {output["name"] for output in answer.json()["outputs"]}
    asked = {"inputs": [features], "outputs": [{"name": "looks"}]}
    refused = client.post("/v2/models/client-1/infer", json=asked)
    assert refused.status_code == 400
    assert "send images" in refused.json()["error"]
    unknown = ask(client, own[:1], "client-0", outputs=[{"name": "looks"}])
    assert "no output" in unknown["error"]


def test_looks_of_other_images_than_the_extractors_are_refused_at_the_start(fleet: Path, tmp_path: Path) -> None:
    shutil.copytree(fleet, tmp_path / "mixed")
    bundle = ClientBundle.load(fleet / "client-000000")
    pictures = np.random.default_rng(0).integers(0, 256, size=(20, 16, 16, 3), dtype=np.uint8)
    shutil.rmtree(tmp_path / "mixed" / "client-000000")
    Looks.of(pictures).carried_by(bundle).save(tmp_path / "mixed" / "client-000000")
    with pytest.raises(InputError, match="export both from one run"):
        Serving(str(tmp_path / "mixed"), ServeSettings.make(auth=False, database=f"sqlite:///{tmp_path / 'other.db'}"))
