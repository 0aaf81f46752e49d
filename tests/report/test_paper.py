"""The paper's numbers: all there, adding up but for one cell, and never held against what is not like them."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pandas as pd
import pytest

from btfl.report import paper, tables
from btfl.report.formats import to_csv
from btfl.report.groups import Group
from btfl.runs.saved import SavedRun, load_run
from drawn_runs import make_run


def run_like(folder: Path, **data: object) -> SavedRun:
    """Return a run that says it is the paper's main one."""
    run = load_run(make_run(folder, methods=("fedavg", "btfl"), length=8))
    record = dict(run.record)
    record["data"] = {**record["data"], "source": "cifar10", "shift": "CIFAR-10.1 v6", **data}
    record["experiment"] = {**record["experiment"], "model": "cnn", "alpha": 0.1, "clients": 20, "split": "redrawn"}
    record["training"] = {**record["training"], "rounds": 130}
    return SavedRun(run.folder, record, run.rows)


def test_rows_of_the_paper_add_up_but_for_the_misprint() -> None:
    table = paper.accuracy_table()
    wrong = []
    for key, rows in table[~table["model"].str.contains("@")].groupby(["dataset", "model", "dirichlet", "method"]):
        values = rows.set_index("distribution")["accuracy"]
        assert len(values) == 6
        # The printed averages are rounded, and some are of unrounded or other digits: up to 0.5 off, but for one.
        if abs(values.drop("average").mean() - values["average"]) > 0.5:
            wrong.append(key)
    assert wrong == [("imagenet32", "resnet20-gn-w4", 1.0, "FedAvg")]
    row = paper.printed("imagenet32", "resnet20-gn-w4", 1.0, "FedAvg")
    assert row["synthetical"].misprint is not None
    assert row["average"].misprint is None


def test_a_method_finds_its_row(tmp_path: Path) -> None:
    run = run_like(tmp_path / "run")
    assert paper.paper_row(run, "btfl", 32)["average"].accuracy == 68.03
    assert paper.paper_row(run, "btfl-release", 32)["average"].accuracy == 68.03
    assert paper.paper_row(run, "fedthe[test_batch=1]", 1)["original_exd"].accuracy == 44.82
    assert paper.paper_row(run, "btfl[count=after]", 32) == {}  # another method than the paper's
    assert paper.paper_row(run, "personal", 32) == {}
    own = load_run(make_run(tmp_path / "own", methods=("btfl",), length=8))
    assert paper.paper_row(own, "btfl", 32) == {}  # digits are not in the paper


def test_what_is_not_alike_is_said(tmp_path: Path) -> None:
    assert paper.differences(run_like(tmp_path / "a")) == []
    told = paper.differences(run_like(tmp_path / "b", shift="CINIC-10 (ImageNet part)"))
    assert told == ["the other domain is CINIC-10 (ImageNet part), not CIFAR-10.1"]
    assert "no other domain" in paper.differences(run_like(tmp_path / "c", shift=None))[0]
    run = run_like(tmp_path / "d")
    experiment = {**run.experiment, "split": "honest", "clients": 5, "samples": 1000}
    told = paper.differences(SavedRun(run.folder, {**run.record, "experiment": experiment}, run.rows))
    assert [words.split(",")[0] for words in told] == [
        "clients 5",
        "1",
        "honest split; the published procedure also trains on images it tests on",
    ]


def test_the_paper_comes_with_the_package() -> None:
    assert len(paper.accuracy_table()) == 280
    speed = paper.speed_table()
    assert isinstance(speed, pd.DataFrame)
    assert speed["seconds_per_1000"].min() == pytest.approx(17.3)


def test_ours_and_theirs_stand_side_by_side_with_the_difference(tmp_path: Path) -> None:
    run = run_like(tmp_path / "run")
    group = Group((run,), "cifar10, cnn, Dir(0.1)")
    table = tables.paper_table(group)
    assert table is not None
    assert table.notes[0].startswith("Same dataset")
    (row,) = (row for row in csv.DictReader(io.StringIO(to_csv(table))) if row["method"] == "BTFL")
    assert float(row["average paper"]) == 68.03
    assert float(row["average difference"]) == pytest.approx(float(row["average ours"]) - 68.03)
    own = Group((load_run(run.folder),), "digits, mlp, Dir(0.1)")
    assert tables.paper_table(own) is None


def test_the_misprint_is_marked(tmp_path: Path) -> None:
    run = run_like(tmp_path / "run", source="imagenet32", shift="ImageNet-R")
    experiment = {**run.experiment, "model": "resnet20", "model_options": {"width": 4}, "alpha": 1.0}
    group = Group((SavedRun(run.folder, {**run.record, "experiment": experiment}, run.rows),), "imagenet32")
    table = tables.paper_table(group)
    assert table is not None
    marked = [cell.text for row in table.rows for cell in row.cells if "†" in cell.text]
    assert len(marked) == 1
    assert "/ 40.54† (" in marked[0]
    assert "47.55" in table.notes[-1]
    assert "clients 20, not 10" in table.notes[0]
