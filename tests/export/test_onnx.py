"""A client as ONNX gives what the library gives, and runs where there is no torch."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from btfl import Btfl, BtflSettings, ClientBundle
from btfl.core.likelihood import THRESHOLD
from btfl.errors import InputError
from btfl.methods.coherent import Coherent
from btfl.methods.coherent.settings import CoherentSettings
from btfl.models.forward import extract
from btfl.pixels.corruptions import corrupt
from btfl.pixels.types import Images
from btfl.randomness import generator
from btfl.runs.client import DeployedClient
from making import make_bundle, make_stream
from small import digits, train_small, untrained
from variants import one_in

ort = pytest.importorskip("onnxruntime", reason="ONNX needs `pip install btfl[onnx]`")
onnx = pytest.importorskip("onnx", reason="exporting to ONNX needs `pip install btfl[onnx]`")
pytest.importorskip("onnxscript", reason="exporting to ONNX needs `pip install btfl[onnx]`")

from btfl.export.clients import find_client  # noqa: E402
from btfl.export.coherent import coherent_graph  # noqa: E402
from btfl.export.decision import decision_graph  # noqa: E402
from btfl.export.write import export_split, export_whole  # noqa: E402
from btfl.monitor import carried_levels  # noqa: E402

Out = dict[str, np.ndarray]
REGIMES = ("internal", "mixture", "a", "b")
COHERENT = (1 / 3, 1 / 3, 1, 1)  # what its state begins with
EXPORTABLE: list[dict[str, Any]] = [
    {},
    {"count": "after"},
    {"prune_to": 0.0},
    {"prune_above": 300.0, "prune_to": 30.0},
    {"prune_above": 9.7, "prune_to": 7.7},
    {"smoothing": "squeeze", "global_from": "others", "global_entropy_scale": 4.6},
    {"use_entropy": False},
    {"use_characteristic": False},
    {"use_history": False},
    {"log_tau_limit": 0.5},
    {"log_tau_limit": 600.0},
]
"""Changes of BTFL's settings that a graph can hold."""


def session(model: bytes | str | Path, batch: int | None = None) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if batch is not None:
        options.add_free_dimension_override_by_name("batch", batch)
    return ort.InferenceSession(
        model if isinstance(model, bytes) else str(model), options, providers=["CPUExecutionProvider"]
    )


def run(session_: Any, name: str, stream: np.ndarray, batches: list[int], state: tuple[float, ...] = (1, 1)) -> Out:
    """Feed a stream in batches of these sizes, over and over, handing the state on."""
    parts: list[Out] = []
    (dtype,) = (value.type for value in session_.get_inputs() if value.name == "state")
    now, start = np.array(state, dtype=np.float32 if dtype == "tensor(float)" else np.float64), 0
    names = [output.name for output in session_.get_outputs()]
    while start < len(stream):
        size = batches[len(parts) % len(batches)]
        found = session_.run(None, {name: stream[start : start + size], "state": now})
        parts.append(dict(zip(names, found, strict=True)))
        now, start = parts[-1]["new_state"], start + size
    joined = {key: np.concatenate([part[key] for part in parts]) for key in names if key != "new_state"}
    return {**joined, "new_state": now}


def assert_like(found: Out, adapter: Btfl, probabilities: np.ndarray, within: float = 1e-5) -> None:
    trace = adapter.trace
    assert np.abs(found["probabilities"] - probabilities).max() < within
    assert np.abs(found["e"] - trace.e).max() < within
    assert (found["event"] == trace.event).all()
    assert found["new_state"].tolist() == [adapter.state["a"], adapter.state["b"]]


def synthetical(client: int, count: int) -> Images:
    """Equal parts of a client's own and others' digits, clean and corrupted, in random order."""
    data, rng = digits(), generator(0, "stream", client)
    own = data.partition.part_at(client, 0).test
    others = np.concatenate([data.partition.part_at(other, 0).test for other in range(4) if other != client])
    chosen = np.concatenate([rng.choice(own, count // 2), rng.choice(others, count - count // 2)])
    images = data.source.pool.values[chosen]
    images[::2] = corrupt(images[::2], "gaussian_noise", 3, generator(0, "noise"))
    return np.asarray(images[rng.permutation(count)])


@pytest.fixture(scope="module")
def trained() -> DeployedClient:
    return train_small("fedavg").client(1)


def test_a_stream_of_a_thousand_images_comes_out_as_from_the_library(trained: DeployedClient, tmp_path: Path) -> None:
    images = synthetical(1, 1_000)
    adapter = Btfl(trained.bundle)
    expected = adapter.predict(extract(trained.extractor(), images))
    assert {-1, 0, 1} == set(adapter.trace.event.tolist())  # the stream exercises the memory
    whole = session(export_whole(trained, tmp_path / "client.onnx"))
    for batches in ([1], [32], [1_000], [7, 1, 40]):
        assert_like(run(whole, "images", images, batches), adapter, expected)


def test_the_split_form_too(trained: DeployedClient, tmp_path: Path) -> None:
    images = synthetical(1, 1_000)
    adapter = Btfl(trained.bundle)
    expected = adapter.predict(extract(trained.extractor(), images))
    path, folder = export_split(trained, tmp_path / "extractor.onnx")
    extractor, bundle = session(path), ClientBundle.load(folder)
    assert set(bundle.statistics) <= set(Coherent.reads)  # features of the training set stay where they are
    (levels,) = carried_levels(bundle)  # and what the monitor needs of them goes along
    assert levels.fits(Coherent(bundle), warm_up=20)
    assert not levels.approximate
    device, found = Btfl(bundle), []
    for image in images:
        (features,) = extractor.run(None, {"images": image[None]})
        found.append(device.predict(features))
    assert np.abs(np.concatenate(found) - expected).max() < 1e-5
    assert device.state == adapter.state


@pytest.mark.parametrize(
    "settings",
    [
        CoherentSettings(),
        CoherentSettings(forgetting=0.9, change=0.2, log_tau_limit=600.0, temperature=0.05),
        CoherentSettings(global_heads="fedavg", local_heads="personal", openness=0.0),
        CoherentSettings(inverse_kappa=0.3),
        CoherentSettings(inverse_kappa=0.3, generative_share=0.75, local_temperature=2.0),
    ],
)
def test_the_coherent_method_too(trained: DeployedClient, settings: CoherentSettings, tmp_path: Path) -> None:
    images = synthetical(1, 1_000)
    adapter = Coherent(trained.bundle, settings)
    expected = adapter.predict(extract(trained.extractor(), images))
    assert adapter.trace.e.min() < 0.5  # the stream exercises the memory
    assert adapter.trace.e.max() > 0.7
    whole = session(export_whole(trained, tmp_path / "client.onnx", settings))
    for batches in ([1], [32], [7, 1, 40]):
        found = run(whole, "images", images, batches, state=COHERENT)
        assert np.abs(found["probabilities"] - expected).max() < 1e-5
        assert np.abs(found["e"] - adapter.trace.e).max() < 1e-5
        assert np.abs(found["all_external"] - adapter.trace.all_external).max() < 1e-5
        assert found["new_state"] == pytest.approx([adapter.state[name] for name in REGIMES], rel=1e-5)
    with pytest.raises(InputError, match="ablation"):
        export_whole(trained, tmp_path / "client.onnx", replace(settings, memory="soft"))


@pytest.mark.parametrize("model", one_in(3, ["cnn", "resnet20", "cct4"]))
def test_every_model_can_be_exported(model: str, tmp_path: Path) -> None:
    client = untrained(model)
    network = client.extractor()
    client = replace(client, bundle=make_bundle(network.feature_size, 10))
    images = generator(0, "images").integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    adapter = Btfl(client.bundle)
    expected = adapter.predict(extract(network, images))
    whole = session(export_whole(client, tmp_path / "client.onnx"))
    assert_like(run(whole, "images", images, [1, 39]), adapter, expected)


@pytest.mark.parametrize(("model", "shape"), [("cnn1d", (128, 6)), ("mlp", (20, 3)), ("mlp", (30,)), ("linear", (24,))])
def test_models_of_signals_and_vectors_can_be_exported(model: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    client = untrained(model, shape)
    network = client.extractor()
    client = replace(client, bundle=make_bundle(network.feature_size, 10))
    samples = generator(0, "samples").normal(size=(40, *shape)).astype(np.float32)
    adapter = Btfl(client.bundle)
    expected = adapter.predict(extract(network, samples))
    whole = session(export_whole(client, tmp_path / "client.onnx"))
    assert_like(run(whole, "samples", samples, [1, 39]), adapter, expected)


@pytest.mark.parametrize("changes", EXPORTABLE)
def test_the_decision_alone_agrees_to_many_digits(changes: dict[str, Any]) -> None:
    bundle = make_bundle(64, 10, samples=300)
    stream = make_stream(bundle, 1_500).astype(np.float32)
    settings = BtflSettings(**changes)
    adapter = Btfl(bundle, settings)
    expected = adapter.predict(stream)
    graph = session(decision_graph(bundle, settings).SerializeToString())
    assert_like(run(graph, "features", stream, [100, 1]), adapter, expected, within=1e-10)


@pytest.mark.parametrize(
    "changes",
    [{}, {"forgetting": 0.9, "change": 0.2, "log_tau_limit": 600.0, "temperature": 0.05}, {"inverse_kappa": 0.3}],
)
def test_coherents_decision_alone_agrees_to_many_digits(trained: DeployedClient, changes: dict[str, Any]) -> None:
    bundle, stream = trained.bundle, extract(trained.extractor(), synthetical(1, 600))
    adapter = Coherent(bundle, CoherentSettings(**changes))
    expected = adapter.predict(stream)
    graph = session(coherent_graph(bundle, adapter.settings).SerializeToString())
    for batches in ([600], [32], [100, 1]):
        found = run(graph, "features", stream, batches, state=COHERENT)
        assert np.abs(found["probabilities"] - expected).max() < 1e-10
        assert np.abs(found["e"] - adapter.trace.e).max() < 1e-10
        assert np.abs(found["all_external"] - adapter.trace.all_external).max() < 1e-10
        assert found["new_state"] == pytest.approx([adapter.state[name] for name in REGIMES], rel=1e-10)


@pytest.mark.parametrize("count", ["before", "after"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"prune_above": 4.0, "prune_to": 0.5}, {"prune_above": 40.0, "prune_to": 7.0}, {"prune_above": 900.0}],
)
def test_a_memory_may_be_pruned_anywhere_in_a_batch(changes: dict[str, Any], count: Any) -> None:
    settings = BtflSettings(**changes, count=count, use_entropy=False)  # every sample is an event
    bundle = make_bundle(64, 10, samples=300)
    stream = make_stream(bundle, 400).astype(np.float32)
    adapter = Btfl(bundle, settings)
    expected = adapter.predict(stream)
    assert np.count_nonzero(adapter.trace.event) > 350
    graph = session(decision_graph(bundle, settings).SerializeToString())
    for batches in ([400], [1], [2, 1, 65], [64], [13, 128]):
        assert_like(run(graph, "features", stream, batches), adapter, expected, within=1e-12)


@pytest.mark.parametrize("batches", [[200], [1], [32, 1]])
def test_single_precision_is_all_in_single_and_close(trained: DeployedClient, batches: list[int]) -> None:
    stream = extract(trained.extractor(), synthetical(1, 200))
    for model, method, begun in (
        (decision_graph(trained.bundle, BtflSettings(precision="single")), Btfl(trained.bundle), (1, 1)),
        (coherent_graph(trained.bundle, CoherentSettings(precision="single")), Coherent(trained.bundle), COHERENT),
    ):
        expected = method.predict(stream)
        found = run(session(model.SerializeToString()), "features", stream, batches, state=begun)
        assert found["probabilities"].dtype == found["e"].dtype == found["new_state"].dtype == np.float32
        assert np.abs(found["probabilities"] - expected).max() < 1e-4
        assert np.abs(found["e"] - method.trace["e"]).max() < 1e-4


@pytest.mark.parametrize("batches", [[1], [100, 1]])
@pytest.mark.parametrize("changes", EXPORTABLE)
def test_single_precision_has_every_setting(changes: dict[str, Any], batches: list[int]) -> None:
    bundle = make_bundle(64, 10, samples=300)
    stream = make_stream(bundle, 800).astype(np.float32)
    adapter = Btfl(bundle, BtflSettings(**changes))
    expected = adapter.predict(stream)
    graph = session(decision_graph(bundle, BtflSettings(precision="single", **changes)).SerializeToString())
    found = run(graph, "features", stream, batches)
    assert (found["event"] == adapter.trace.event).all()
    assert np.abs(found["probabilities"] - expected).max() < 1e-4
    assert np.abs(found["e"] - adapter.trace.e).max() < 1e-4
    assert found["new_state"] == pytest.approx([adapter.state["a"], adapter.state["b"]], rel=1e-5)


def test_a_feature_at_the_threshold_is_not_above_it_in_single_precision_either() -> None:
    bundle, last = make_bundle(16, 4), np.float32(THRESHOLD)
    last = last if float(last) <= THRESHOLD else np.nextafter(last, np.float32(0))
    next_ = np.nextafter(last, np.float32(1))
    rng = generator(0, "bits")
    near = np.array([last, next_, np.nextafter(last, np.float32(0)), -1e30, 1e30, 0.0], dtype=np.float32)
    stream = rng.choice(near[:3], (200, 16))
    stream[:, 0] = rng.choice(near, 200)
    settings = BtflSettings(use_entropy=False, log_tau_limit=600.0)
    adapter = Btfl(bundle, settings)
    adapter.predict(stream)
    assert {-1, 1} <= set(adapter.trace.event.tolist())
    graph = session(decision_graph(bundle, replace(settings, precision="single")).SerializeToString())
    found = run(graph, "features", stream, [1, 7])
    assert np.abs(found["e"] - adapter.trace.e).max() < 1e-5
    assert (found["event"] == adapter.trace.event).all()


@pytest.mark.parametrize("batch", [1, 40])
def test_another_runtime_gives_the_same(trained: DeployedClient, batch: int) -> None:
    from onnx.reference import ReferenceEvaluator

    features = extract(trained.extractor(), synthetical(1, 40))[:batch]
    single = BtflSettings(use_entropy=False, precision="single")
    for model, state, within in (
        (decision_graph(trained.bundle, BtflSettings(use_entropy=False)), np.ones(2), 1e-12),
        (decision_graph(trained.bundle, single), np.ones(2, np.float32), 1e-5),
        (coherent_graph(trained.bundle), np.array([1 / 3, 1 / 3, 1, 1]), 1e-12),
    ):
        onnx.checker.check_model(model, full_check=True)
        inputs = {"features": features, "state": state}
        expected = session(model.SerializeToString()).run(None, inputs)
        for one, other in zip(expected, ReferenceEvaluator(model).run(None, inputs), strict=True):
            assert np.abs(one - other).max() < within


def test_an_empty_batch_leaves_the_memory_as_it_was() -> None:
    bundle = make_bundle(16, 4)
    graph = session(decision_graph(bundle).SerializeToString())
    found = run(graph, "features", make_stream(bundle, 3).astype(np.float32), [3])["new_state"]
    probabilities, *_, after = graph.run(None, {"features": np.empty((0, 16), np.float32), "state": found})
    assert probabilities.shape == (0, 4)
    assert after.tolist() == found.tolist()


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("settings", [BtflSettings(), CoherentSettings(), CoherentSettings(inverse_kappa=0.3)])
def test_a_session_that_is_told_its_batch_gives_the_same_bits(
    trained: DeployedClient, settings: BtflSettings | CoherentSettings, batch: int, tmp_path: Path
) -> None:
    whole = export_whole(trained, tmp_path / "client.onnx", settings)
    begun = (1, 1) if isinstance(settings, BtflSettings) else (1 / 3, 1 / 3, 1, 1)
    images = synthetical(1, 40)
    told, not_told = (run(session(whole, size), "images", images, [batch], begun) for size in (batch, None))
    assert {name: values.tobytes() for name, values in told.items()} == {
        name: values.tobytes() for name, values in not_told.items()
    }


def test_extreme_images_give_probabilities(tmp_path: Path) -> None:
    bundle = make_bundle(16, 4)
    graph = session(decision_graph(bundle).SerializeToString())
    stream = (make_stream(bundle, 50) * 1e30).astype(np.float32)
    found = run(graph, "features", stream, [10])
    assert np.isfinite(found["probabilities"]).all()
    assert found["probabilities"].sum(axis=1) == pytest.approx(1)


@pytest.mark.parametrize("knob", ["batch", "squash", "mix", "expectation"])
def test_what_cannot_be_exported_is_refused(knob: str) -> None:
    release = {"batch": "batch", "squash": 4.0, "mix": "log-probabilities", "expectation": "trapezoid"}
    with pytest.raises(InputError, match=f"{knob} = .* cannot be exported"):
        decision_graph(make_bundle(), BtflSettings.preset("paper", **{knob: release[knob]}))


def test_the_same_client_gives_the_same_bytes_and_none_of_this_machines_paths(
    trained: DeployedClient, tmp_path: Path
) -> None:
    first = export_whole(trained, tmp_path / "first.onnx").read_bytes()
    assert export_whole(trained, tmp_path / "second.onnx").read_bytes() == first
    assert b".py" not in first


def test_it_runs_without_torch(trained: DeployedClient, tmp_path: Path) -> None:
    export_whole(trained, tmp_path / "client.onnx")
    np.save(tmp_path / "images.npy", synthetical(1, 5))
    code = """
import sys
sys.modules["torch"] = None  # importing it now fails
import numpy as np, onnxruntime
session = onnxruntime.InferenceSession("client.onnx", providers=["CPUExecutionProvider"])
state = np.ones(2)
for image in np.load("images.npy"):
    probabilities, e, event, state = session.run(None, {"images": image[None], "state": state})
print(probabilities.shape, state.shape)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(1, 10) (2,)"


def test_a_client_is_found_in_a_run_a_federation_and_its_own_folder(tmp_path: Path) -> None:
    federation = train_small("fedavg")
    final = tmp_path / "run" / "training" / "fedavg" / "final"
    federation.save(final)
    expected = federation.client(2).bundle.personal_head.weight.tolist()
    for found in (
        find_client(tmp_path / "run", 2),
        find_client(final, 2),
        find_client(final / "client-000002"),
    ):
        assert found.bundle.personal_head.weight.tolist() == expected
    for folder, number, recipe, words in (
        (tmp_path, 0, "fedavg", "no trained client"),
        (tmp_path / "run", 0, "fedrep", "trained here: fedavg"),
        (tmp_path / "run", 9, "fedavg", "clients 0 to 3"),
        (final / "client-000002", 1, "fedavg", "is client 2, not 1"),
    ):
        with pytest.raises(InputError, match=words):
            find_client(folder, number, recipe)


FORMS = {
    "extractor.onnx extractor-bundle": ["--onnx", "extractor.onnx", "--extractor-only"],
    "client.onnx": ["--onnx", "client.onnx"],
}


@pytest.mark.parametrize("names", one_in(2, FORMS))
def test_the_command_writes_both_forms(names: str, tmp_path: Path) -> None:
    train_small("fedavg").save(tmp_path / "federation")
    btfl = [sys.executable, "-c", "from btfl.cli import main; main()", "export", "federation", "--client", "1"]
    done = subprocess.run([*btfl, *FORMS[names]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == names.split()
    assert all((tmp_path / name).exists() for name in names.split())
    assert done.stderr == ""
