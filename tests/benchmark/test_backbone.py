"""A run on a frozen backbone: heads alone are trained, streams are real, and what is trained can be deployed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from btfl import Btfl
from btfl.backbones.embed import Embedder
from btfl.backbones.load import Backbone
from btfl.benchmark.record import run_id
from btfl.benchmark.run import run_bench
from btfl.data.streams import render
from btfl.engines import Event
from btfl.engines.provenance import run_spec
from btfl.errors import InputError
from btfl.experiments.experiment import Experiment, make_experiment
from btfl.experiments.load import embedded, load_data, load_for_training
from btfl.recipes.registry import make_recipe
from btfl.recipes.settings import TrainingSettings

METHODS = ("fedavg", "fedavg-ft", "fedrep", "fedrod", "btfl", "coherent", "memo", "oracle")


def experiment(**changes: Any) -> Experiment:
    return make_experiment(
        {
            "dataset": "digits",
            "backbone": "small:frozen",
            "samples": 300,
            "clients": 3,
            "alpha": 1.0,
            "methods": METHODS,
            "training": {"rounds": 2, "local_epochs": 1},
            **changes,
        }
    )


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BTFL_DATA", str(tmp_path / "cache"))


def test_a_run_is_the_same_with_any_workers_and_computes_each_sample_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, Event]] = []
    one = run_bench(experiment(), tmp_path / "one", watch=lambda name, event: told.append((name, event)))
    embedding = [event for name, event in told if event.stage == "embed"]
    assert (embedding[-1].clients_done, embedding[-1].clients) == (300, 300)
    two = run_bench(experiment(), tmp_path / "two", workers=2)
    assert one.rows.equals(two.rows)
    for name in ("fedavg", "fedrep", "balanced"):
        assert one.evaluation.federations[name].digest() == two.evaluation.federations[name].digest()

    def fail(self: Any, values: Any) -> Any:
        raise AssertionError("a sample is computed again")

    monkeypatch.setattr(Backbone, "features", fail)
    assert run_bench(experiment(), tmp_path / "three").rows.equals(one.rows)

    assert set(one.rows["method"]) == set(METHODS) - {"memo"}
    assert one.rows.groupby("method")["stream"].nunique().ge(5).all()
    assert "MEMO is left out" in " ".join(one.record["notes"])
    assert one.record["data"]["image_shape"] == [8, 8, 1]
    shared = {name: set(federation.shared) for name, federation in one.evaluation.federations.items()}
    assert shared == {"fedavg": {"head.weight", "head.bias"}, "balanced": {"head.weight", "head.bias"}, "fedrep": set()}
    accuracy = one.rows[one.rows["stream"] == "original_ind"].groupby("method")["accuracy"].mean()
    assert accuracy["coherent"] > 0.7


def test_streams_are_rendered_as_pictures_and_seen_as_features(tmp_path: Path) -> None:
    run = run_bench(experiment(methods=("btfl",)), tmp_path / "run")
    evaluation = run.evaluation
    assert evaluation.embedder is not None
    pictures, seen = render(run.source, run.manifest, 1), evaluation.streams(1)
    for name, stream in pictures.items():
        assert stream.values.dtype == np.uint8
        assert seen[name].values.shape == (len(stream), 24)
        np.testing.assert_array_equal(seen[name].values, evaluation.embedder.scaled_features(stream.values))
        np.testing.assert_array_equal(seen[name].labels, stream.labels)


def test_features_are_in_deviations_of_the_training_parts() -> None:
    data, embedder = embedded(experiment(), load_data(experiment()))
    assert embedder is not None
    train = np.concatenate([data.of(client, 0).train.values for client in range(3)]).astype(np.float64)
    np.testing.assert_allclose(train.mean(axis=0), 0.0, atol=1e-5)
    np.testing.assert_allclose(train.std(axis=0), 1.0, atol=1e-5)
    first = data.of(0, 0).train
    assert (data.sample_shape, first.kind) == ((24,), "vectors")
    assert first.copies is not None
    raw, plain = embedded(experiment(standardise=False), load_data(experiment()))
    assert plain is not None
    assert plain.scaling is None
    assert raw.embedded is not None
    np.testing.assert_array_equal(raw.embedded.values, plain.features(raw.source.pool.values))


def test_partition_streams_and_names_are_those_without_a_backbone(tmp_path: Path) -> None:
    with_backbone, without = experiment(), experiment(backbone=None, model="mlp")
    one, other = load_for_training(with_backbone), load_for_training(without)
    assert one.source.pool.fingerprint == other.source.pool.fingerprint
    for mine, theirs in zip(one.partition.parts, other.partition.parts, strict=True):
        np.testing.assert_array_equal(mine.train, theirs.train)
    recipe = make_recipe("fedavg", with_backbone.training_settings(), one.sample_shape, 10)
    assert run_spec(recipe, one)["data"]["backbone"]["name"] == "small:frozen"
    recipe = make_recipe("fedavg", without.training_settings(), other.sample_shape, 10)
    assert "backbone" not in run_spec(recipe, other)["data"]
    assert run_id(with_backbone) != run_id(without)


def test_names_of_runs_without_a_backbone_are_as_they_were() -> None:
    records = [json.loads(path.read_text()) for path in (Path(__file__).parents[2] / "results").rglob("run.json")]
    older = [record for record in records if "backbone" not in record["experiment"]]
    assert older
    for record in older:
        assert run_id(make_experiment(record["experiment"])) == record["run"]


def test_a_client_is_exported_with_its_backbone(tmp_path: Path) -> None:
    ort = pytest.importorskip("onnxruntime", reason="ONNX needs `pip install btfl[onnx]`")
    pytest.importorskip("onnxscript", reason="exporting to ONNX needs `pip install btfl[onnx]`")
    from btfl.export.clients import find_client
    from btfl.export.write import export_whole

    run = run_bench(experiment(methods=("btfl",)), tmp_path / "run")
    client = find_client(tmp_path / "run", 1)
    path = export_whole(client, tmp_path / "client.onnx")
    pictures = render(run.source, run.manifest, 1)["synthetical"].values
    embedder = run.evaluation.embedder
    assert isinstance(embedder, Embedder)
    expected = Btfl(client.bundle).predict(embedder.scaled_features(pictures))
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    found = session.run(["probabilities"], {"images": pictures, "state": np.ones(2)})[0]
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_what_trains_an_extractor_alone_is_left_out_where_there_is_none(tmp_path: Path) -> None:
    methods = ("fedavg", "fedbabu", "pfedfda", "pfedfda-release", "ditto", "feddbe", "local", "atp")
    run = run_bench(experiment(methods=methods), tmp_path)
    assert set(run.rows["method"]) == {"fedavg", "ditto", "feddbe", "local", "atp"}
    reason = "it trains an extractor under a fixed head, and the model 'linear' has none"
    titles = {note.split(" is left out")[0] for note in run.record["notes"] if note.endswith(reason)}
    assert titles == {"FedBABU", "pFedFDA", "pFedFDA (release)"}
    with pytest.raises(InputError, match="recipe 'fedbabu' trains an extractor under a fixed head"):
        make_recipe("fedbabu", TrainingSettings(model="linear"), (5,), 3)
