"""What a run saves: documented columns, those of every method, the same bytes twice, and a switching stream."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from btfl.benchmark.evaluate import evaluate_client
from btfl.benchmark.run import BenchRun, run_bench
from btfl.data.manifest import SWITCHING
from btfl.data.streams import STREAMS
from btfl.errors import InputError
from btfl.experiments.experiment import make_experiment
from btfl.experiments.files import read_preset
from btfl.methods.heads import GlobalHead
from btfl.methods.registry import find_method
from btfl.report.cost import cost_tables
from btfl.report.figures.weights import along_streams
from btfl.report.groups import group_runs
from btfl.runs.costs import read_costs
from btfl.runs.results import Predictions, client_rows, sample_rows, write_table
from btfl.runs.saved import SavedRun, load_run
from btfl.studies.speed.measure import measure_run

FURTHER = {"all_external"}
"""Documented columns that are there only if a method has them."""
DOCS = Path(__file__).parents[2] / "docs" / "results.md"
SMALL: dict[str, Any] = {
    **read_preset("demo"),
    "clients": 3,
    "samples": 300,
    "methods": ("fedavg", "btfl", "btfl[test_batch=1]", "oracle"),
    "training": {"rounds": 1, "local_epochs": 1},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> BenchRun:
    return run_bench(make_experiment(SMALL), tmp_path_factory.mktemp("bench") / "run")


def documented(heading: str) -> set[str]:
    """Read the column names of one table of the docs."""
    section = DOCS.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_column_is_documented_and_every_documented_column_is_there(run: BenchRun) -> None:
    assert set(pd.read_parquet(run.folder / "results.parquet")) == documented("results.parquet")
    assert set(pd.read_parquet(run.folder / "samples.parquet")) == documented("samples.parquet") - FURTHER


class Surprised(GlobalHead):
    """A user's own method, with a column of its own."""

    @property
    def trace(self) -> dict[str, np.ndarray]:
        return {"surprise": np.arange(self.last, dtype=np.float64)}

    def predict(self, batch: Any) -> np.ndarray:
        self.last = len(batch)
        return super().predict(batch)


class Greedy(Surprised):
    """A method whose column has the name of one of the benchmark's."""

    @property
    def trace(self) -> dict[str, np.ndarray]:
        return {"label": np.zeros(self.last)}


def predictions(run: BenchRun, *methods: str) -> list[Predictions]:
    """Run methods on the streams of one client; nothing is trained again."""
    return evaluate_client(replace(run.evaluation, methods=tuple(map(find_method, methods))), 0)


def test_every_column_of_every_method_is_kept(run: BenchRun, tmp_path: Path) -> None:
    own = f"{__name__}:Surprised"
    found = predictions(run, "fedavg", "btfl", "coherent", own)
    write_table(sample_rows(found, {"run": "one", "seed": 0}), tmp_path / "samples.parquet")
    saved = SavedRun(tmp_path, run.record, client_rows(found, 32))
    assert list(saved.samples)[-2:] == ["all_external", "surprise"]  # after the others, in the order of their names
    assert documented("samples.parquet") == set(saved.samples) - {"surprise"}
    counts = saved.samples.groupby("method")[["e", "a", "all_external", "surprise"]].count()
    has = {method: [name for name, count in row.items() if count] for method, row in counts.iterrows()}
    assert has == {"fedavg": [], "btfl": ["e", "a"], "coherent": ["e", "all_external"], own: ["surprise"]}
    (group,) = group_runs([saved])
    assert group.telling("surprise") == [own]
    assert group.telling("no such column") == []


def test_a_column_that_is_there_already_is_refused(run: BenchRun) -> None:
    with pytest.raises(InputError, match="a trace column 'label', which the results have already"):
        predictions(run, f"{__name__}:Greedy")


def test_samples_of_an_older_file_have_every_column(run: BenchRun, tmp_path: Path) -> None:
    for name in ("run.json", "results.parquet"):
        (tmp_path / name).write_bytes((run.folder / name).read_bytes())
    pd.read_parquet(run.folder / "samples.parquet").drop(columns=["a", "b", "lambda_s"]).to_parquet(
        tmp_path / "samples.parquet", index=False
    )
    older = load_run(tmp_path)
    assert older.samples[["a", "b", "lambda_s"]].isna().all(axis=None)
    (group,) = group_runs([older])
    assert len(along_streams(group, "btfl").axes) == 2  # e on two streams, without the memory
    assert repr(older) == f"SavedRun({tmp_path.name}: digits, mlp, seed 0, 4 methods, 3 clients)"


def test_the_same_experiment_leaves_the_same_bytes_in_any_folder(run: BenchRun, tmp_path: Path) -> None:
    again = run_bench(make_experiment(SMALL), tmp_path / "elsewhere").folder
    for name in ("results.parquet", "samples.parquet", "run.json", "streams.json"):
        assert (run.folder / name).read_bytes() == (again / name).read_bytes(), name


def test_samples_add_up_to_results(run: BenchRun) -> None:
    rows, samples = load_run(run.folder).rows, load_run(run.folder).samples
    keys = ["run", "seed", "method", "client", "stream"]
    found = samples.groupby(keys)["right"].agg(["size", "sum"])
    expected = rows.set_index(keys)[["samples", "correct"]]
    assert (found.loc[expected.index].to_numpy() == expected.to_numpy()).all()
    assert (samples["true_probability"] <= samples["confidence"] + 1e-12).all()
    assert (samples.loc[samples["right"], "true_probability"] == samples.loc[samples["right"], "confidence"]).all()
    batches = rows.groupby("method")["test_batch"].unique()
    assert (batches["btfl"], batches["btfl[test_batch=1]"]) == ([32], [1])


def test_the_switching_stream_is_run_by_methods_that_tell_e_and_counts_nowhere(run: BenchRun) -> None:
    samples = load_run(run.folder).samples
    switching = samples[samples["stream"] == SWITCHING]
    assert set(switching["method"]) == {"btfl", "btfl[test_batch=1]", "oracle"}
    for (_, client), part in switching.groupby(["method", "client"]):
        external = part.sort_values("position")["external"].to_numpy(dtype=bool)
        assert np.diff(external.astype(int)).tolist().count(1) == 1  # there
        assert np.diff(external.astype(int)).tolist().count(-1) == 1  # and back
        sizes = samples[(samples["client"] == client) & (samples["method"] == "btfl")].groupby("stream").size()
        assert len(part) == sizes["original_ind"] + sizes["original_exd"]
    # It is the method's own doing: the memory starts again and moves along the stream.
    own = switching[(switching["method"] == "btfl") & (switching["client"] == 0)].sort_values("position")
    head = samples[(samples["method"] == "btfl") & (samples["client"] == 0) & (samples["stream"] == STREAMS[0])]
    half = (~own["external"].to_numpy(dtype=bool)).argmin()
    assert own["e"].to_numpy()[:half].tolist() == head.sort_values("position")["e"].to_numpy()[:half].tolist()


def test_a_run_without_it_has_none(tmp_path: Path) -> None:
    values = {**SMALL, "switching": False, "methods": ("btfl",)}
    rows = run_bench(make_experiment(values), tmp_path).rows
    assert set(rows["stream"]) == set(STREAMS)


def test_the_record_says_what_was_run(run: BenchRun) -> None:
    record = load_run(run.folder).record
    assert record["streams"]["hash"] == run.manifest.hash
    assert record["data"]["images"] == 300
    assert "only 300 of the 1,797 images were used" in record["notes"]
    assert [method["name"] for method in record["methods"]] == list(SMALL["methods"])
    assert record["training"]["rounds"] == 1


def test_timings_have_a_file_of_their_own_and_a_table(run: BenchRun, tmp_path: Path) -> None:
    costs = measure_run(run.evaluation, tmp_path, samples=4, repeats=2)
    assert [cost.method for cost in costs] == ["forward", "fedavg", "btfl", "btfl[test_batch=1]"]  # no oracle
    assert all(min(cost.seconds_per_1000) > 0 and len(cost.ratios) == 2 for cost in costs)
    assert costs[0].ratios == [1, 1]
    assert read_costs(tmp_path) == costs
    assert read_costs(run.folder) == []  # nothing was timed unasked
    saved = load_run(run.folder)
    (group,) = group_runs([SavedRun(tmp_path, saved.record, saved.rows)])
    (table,) = cost_tables(group)
    assert [row.cells[0].text for row in table.rows] == ["bare forward pass", "FedAvg", "BTFL", "BTFL [test_batch=1]"]
    assert {row.cells[-1].text for row in table.rows} == {"–"}  # the paper timed CIFAR-10, not digits
