"""No method sees a test label or another client's raw data, and all methods give the same bytes twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import btfl.benchmark.evaluate as evaluation_module
from btfl.benchmark.evaluate import evaluate_client
from btfl.benchmark.run import BenchRun, run_bench
from btfl.data.catalogue import load_source
from btfl.data.kept import Kept
from btfl.data.source import Source
from btfl.data.streams import STREAMS, Manifest, Stream, render
from btfl.errors import InputError
from btfl.experiments.experiment import make_experiment
from btfl.methods.registry import METHODS
from btfl.models.forward import extract
from btfl.runs.results import Predictions


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> BenchRun:
    """Every method there is, on a federation small enough for a test."""
    folder = tmp_path_factory.mktemp("bench")
    digits = load_source("digits")
    assert digits.shifted is not None
    rows, shifted = np.arange(0, 1797, 18), np.arange(0, 1020, 10)
    np.savez(
        folder / "few.npz",
        x=digits.pool.values[rows],
        y=digits.pool.labels[rows],
        x_shift=digits.shifted.values[shifted],
        y_shift=digits.shifted.labels[shifted],
    )
    experiment = make_experiment(
        {
            "name": "few",
            "dataset": "arrays",
            "root": folder / "few.npz",
            "clients": 3,
            "alpha": 0.5,
            "model": "mlp",
            "methods": (*METHODS, "btfl[test_batch=1]", "fedthe[test_batch=1]"),
            "training": {"rounds": 2},
        }
    )
    return run_bench(experiment, folder / "run", workers=2)


def by_method(predictions: list[Predictions]) -> dict[tuple[str, str], bytes]:
    return {(one.method.name, one.stream): one.probabilities.tobytes() for one in predictions}


def test_no_method_but_the_oracle_changes_its_mind_when_the_labels_do(
    run: BenchRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = by_method(evaluate_client(run.evaluation, 1))

    def with_wrong_answers(source: Source, manifest: Manifest, client: int, kept: Kept | None) -> Mapping[str, Stream]:
        return {
            name: replace(stream, labels=(stream.labels + 1) % 10, external=~stream.external)
            for name, stream in render(source, manifest, client, kept).items()
        }

    monkeypatch.setattr(evaluation_module, "render", with_wrong_answers)
    poisoned = by_method(evaluate_client(run.evaluation, 1))
    assert honest.keys() == poisoned.keys()
    changed = {method for method, stream in honest if honest[method, stream] != poisoned[method, stream]}
    assert changed == {"oracle", "oracle-balanced"}


def test_a_client_keeps_features_of_its_own_images_only(run: BenchRun) -> None:
    pool = run.source.pool
    for recipe, federation in run.evaluation.federations.items():
        client = federation.client(2)
        statistics = client.bundle.statistics
        kept = {name: value for name, value in statistics.items() if name.endswith(("_features", "_labels"))}
        assert kept.keys() == {"train_features", "train_labels", "validation_features", "validation_labels"}
        seen = extract(client.extractor(), pool.values)
        sizes = {part: len(statistics[f"{part}_labels"]) for part in ("train", "validation")}
        assert sum(sizes.values()) < len(pool) / 2, recipe
        for part, size in sizes.items():
            distances = np.abs(statistics[f"{part}_features"][:, None] - seen[None]).max(axis=2)
            sources = distances.argmin(axis=1)
            assert distances.min(axis=1).max() < 1e-5
            assert (pool.labels[sources] == statistics[f"{part}_labels"]).mean() > 0.9  # near-copies aside
            assert size == len(statistics[f"{part}_features"])


def test_the_oracle_is_the_ceiling_of_what_mixes_two_heads(run: BenchRun) -> None:
    accuracy = run.rows[run.rows["stream"].isin(STREAMS)]
    table = accuracy.groupby(["method", "stream"])["accuracy"].mean().unstack()
    ceilings = {"fedavg": "oracle", "balanced": "oracle-balanced"}
    for name in ("btfl", "btfl-release", "fedthe", "fedthe-on-fedavg"):
        assert (table.loc[ceilings[METHODS[name].trained_with]] >= table.loc[name]).all(), name


def test_twice_and_with_other_workers_gives_the_same_bytes(run: BenchRun, tmp_path: Path) -> None:
    again = run_bench(run.experiment, tmp_path, workers=1)
    for name in ("results.parquet", "samples.parquet", "streams.json", "run.json"):
        assert (run.folder / name).read_bytes() == (again.folder / name).read_bytes(), name


def test_what_does_not_fit_is_left_out_with_a_reason(run: BenchRun) -> None:
    assert "tent" not in set(run.rows["method"])
    assert any("Tent is left out" in note for note in run.record["notes"])
    experiment = make_experiment({**run.experiment.model_dump(), "methods": ("tent",)})
    with pytest.raises(InputError, match="none of the methods can be used"):
        run_bench(experiment, run.folder)


def test_a_method_whose_recipe_was_not_trained_says_so(run: BenchRun) -> None:
    without = replace(run.evaluation, federations={"fedavg": run.evaluation.federations["fedavg"]})
    with pytest.raises(InputError, match=r"needs a federation trained with the recipe '.+'; trained here: fedavg"):
        evaluate_client(without, 0)
