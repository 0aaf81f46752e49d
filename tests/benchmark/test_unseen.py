"""Clients that were held out are enrolled at every level, and stand beside those that were trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from btfl.benchmark.run import run_bench
from btfl.benchmark.unseen import LEVELS, levels_of
from btfl.experiments.experiment import make_experiment
from btfl.methods.registry import find_method
from btfl.report.groups import group_runs, load_runs
from btfl.report.unseen import unseen_table
from btfl.runs.saved import load_run

METHODS = ("fedavg", "fedavg-ft", "fedrep", "fedrod", "knn-per", "fedthe", "btfl", "coherent")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("held-out")
    run_bench(experiment(METHODS[:-1]), folder)
    run_bench(experiment(METHODS[-1:]), folder)  # a method that is added later finds the others' rows there
    return folder


def experiment(methods: tuple[str, ...]):  # type: ignore[no-untyped-def]
    told = {
        "name": "held", "dataset": "digits", "shift": "none", "clients": 6, "held_out": 0.34, "model": "mlp",
        "longest_stream": 40, "training": {"rounds": 2, "local_epochs": 1}, "methods": methods,
    }  # fmt: skip
    return make_experiment(told)


def test_every_method_has_a_row_for_each_client_level_and_stream_it_can_do(folder: Path) -> None:
    run = load_run(folder)
    assert set(run.rows["client"]) == {0, 1, 2, 3}
    assert run.unseen is not None
    assert set(run.unseen["client"]) == {4, 5}
    assert {"level", "labels_given"}.isdisjoint(run.rows.columns)
    for name in METHODS:
        found = run.unseen[run.unseen["method"] == name]
        assert set(found["level"]) == set(levels_of(find_method(name)))
        assert len(found) == 2 * 5 * len(set(found["level"]))
    given = {level: set(part["labels_given"]) for level, part in run.unseen.groupby("level")}
    assert (given["20"], given["5"]) == ({20}, {5})
    assert given["unlabelled"] == given["none"] == given["stream"] == {0}
    assert min(given["all"]) > 20


def test_which_levels_a_method_can_do_follows_from_what_it_needs() -> None:
    can = {name: levels_of(find_method(name)) for name in METHODS}
    assert can["coherent"] == can["btfl"] == tuple(LEVELS)
    assert can["fedthe"] == ("all", "20", "5", "unlabelled")
    assert can["fedavg-ft"] == can["knn-per"] == can["fedrep"] == can["fedrod"] == ("all", "20", "5")
    assert can["fedavg"] == ("all", "20", "5", "unlabelled", "none")


def test_the_table_shows_them_side_by_side_with_intervals(folder: Path) -> None:
    (group,) = group_runs(load_runs([folder]))
    table = unseen_table(group)
    assert table is not None
    kinds = [(row.cells[0].text, row.cells[1].text) for row in table.rows]
    assert kinds[0] == ("FedAvg", "trained")
    assert ("Coherent (ours)", "new, 5 labels") in kinds
    assert all(row.cells[-1].parts["low"] <= row.cells[-1].value <= row.cells[-1].parts["high"] for row in table.rows)  # type: ignore[operator]
    assert "unseen.parquet" in {path.name for path in folder.iterdir()}


def test_the_global_model_answers_alike_whatever_a_client_brings(folder: Path) -> None:
    found = load_run(folder).unseen
    assert found is not None
    fedavg = found[found["method"] == "fedavg"].groupby(["client", "stream"])["accuracy"].nunique()
    assert (fedavg == 1).all()
