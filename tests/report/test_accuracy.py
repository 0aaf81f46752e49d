"""The numbers of the tables, against sums done by hand; and intervals that hold a known difference."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from btfl.data.streams import STREAMS
from btfl.errors import InputError
from btfl.report.accuracy import compare, paired_bootstrap
from btfl.report.formats import to_csv, to_latex, to_markdown
from btfl.report.groups import group_runs, load_runs
from btfl.report.table import Cell, Row, Table, mark_best, number, number_cell, text_cell
from btfl.report.tables import accuracy_table, interval_tables
from drawn_runs import make_run


def test_mean_and_deviation_are_those_done_by_hand(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / f"s{seed}", seed=seed) for seed in (0, 1, 2)]
    (group,) = group_runs(load_runs(folders))
    table = accuracy_table(group)
    read = {row["method"]: row for row in csv.DictReader(io.StringIO(to_csv(table)))}
    for method, title in (("btfl", "BTFL"), ("fedavg", "FedAvg")):
        of_seeds = []
        for folder in folders:
            rows = pd.read_parquet(folder / "results.parquet")
            own = rows[(rows["method"] == method) & (rows["stream"] != "switching")]
            clients = [
                sum(own.loc[(own["client"] == c) & (own["stream"] == s), "correct"].item() / 40 for s in STREAMS) / 5
                for c in range(4)
            ]
            of_seeds.append(100 * sum(clients) / 4)
        mean = sum(of_seeds) / 3
        deviation = (sum((value - mean) ** 2 for value in of_seeds) / 2) ** 0.5
        assert float(read[title]["average"]) == pytest.approx(mean, abs=1e-9)
        assert float(read[title]["average std"]) == pytest.approx(deviation, abs=1e-9)
        (shown,) = (row.cells[6].text for row in table.rows if row.cells[0].text == title)
        assert shown == f"{mean:.2f} ± {deviation:.2f}"


def test_the_oracle_is_last_and_never_best(tmp_path: Path) -> None:
    (group,) = group_runs(load_runs([make_run(tmp_path / "run")]))
    table = accuracy_table(group)
    assert table.rows[-1].apart
    assert table.rows[-1].cells[0].text == "Oracle"
    assert not any(cell.mark for cell in table.rows[-1].cells)
    best = [row.cells[0].text for row in table.rows if row.cells[6].mark == "best"]
    assert best == ["BTFL"]
    assert any("One seed" in note for note in table.notes)


def test_the_switching_stream_is_in_no_average(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run")
    before = to_csv(accuracy_table(group_runs(load_runs([folder]))[0]))
    rows = pd.read_parquet(folder / "results.parquet")
    assert (rows["stream"] == "switching").any()
    rows.loc[rows["stream"] == "switching", "accuracy"] = 0.0
    rows.to_parquet(folder / "results.parquet", index=False)
    assert to_csv(accuracy_table(group_runs(load_runs([folder]))[0])) == before


def test_what_is_printed_alike_is_marked_alike() -> None:
    values = (70.001, 70.004, 60.0, 50.0)
    rows = mark_best([Row((text_cell("m"), number_cell(value))) for value in values], [1])
    assert [row.cells[1].mark for row in rows] == ["best", "best", "second", ""]
    least = mark_best(rows, [1], least=True)
    assert [row.cells[1].mark for row in least] == ["", "", "second", "best"]


def test_an_interval_holds_a_known_difference_as_often_as_it_says() -> None:
    rng = np.random.default_rng(7)
    held = 0
    for _ in range(100):
        seeds = [rng.normal(1.5, 2.0, size=40)]
        found = paired_bootstrap(seeds)
        held += found.low <= 1.5 <= found.high
        assert found.low <= found.difference <= found.high
    assert held >= 88  # of 95 expected: a percentile interval of 40 clients is a little short


def test_more_clients_make_the_interval_narrower_and_the_same_data_the_same_interval() -> None:
    rng = np.random.default_rng(3)
    few, many = ([rng.normal(size=count) for _ in range(3)] for count in (10, 400))
    assert paired_bootstrap(few) == paired_bootstrap(few)
    narrow, wide = paired_bootstrap(many), paired_bootstrap(few)
    assert narrow.high - narrow.low < wide.high - wide.low
    assert (narrow.clients, narrow.seeds) == (1200, 3)


def test_pairs_are_the_same_clients_of_the_same_seeds(tmp_path: Path) -> None:
    folders = [make_run(tmp_path / f"s{seed}", seed=seed) for seed in (0, 1)]
    (group,) = group_runs(load_runs(folders))
    found = compare(group.rows, "btfl", "fedavg")["average"]
    wide = group.rows.pivot_table(index=["seed", "client"], columns="method", values="accuracy") * 100
    assert found.difference == pytest.approx((wide["btfl"] - wide["fedavg"]).mean())
    assert (found.clients, found.seeds) == (8, 2)
    assert found.low > 0
    (table,) = interval_tables(group)
    assert {row.cells[0].text: row.cells[-1].text for row in table.rows}["FedAvg"] == "better"
    with pytest.raises(InputError, match="not both"):
        compare(group.rows, "btfl", "memo")


def test_the_formats_write_the_same_table() -> None:
    rows = (
        Row((text_cell("a_b|c"), Cell("1.50 ± 0.10", 1.5, "best", {"std": 0.1}))),
        Row((text_cell("50 % & λ"), number_cell(float("nan"))), apart=True),
    )
    table = Table("t", "Of 100 % & more", ("method", "x"), rows, ("A note.",))
    assert "| a_b\\|c | **1.50 ± 0.10** |" in to_markdown(table)
    assert to_csv(table).splitlines() == ["method,x,x std", "a_b|c,1.5,0.1", "50 % & λ,,"]
    latex = to_latex(table)
    assert r"a\_b$|$c & \textbf{1.50 $\pm$ 0.10} \\" in latex
    assert r"\midrule" + "\n" + r"50 \% \& $\lambda$ & -- \\" in latex


def test_numbers_have_a_true_minus_and_no_negative_zero() -> None:
    assert number(-1.234) == "−1.23"
    assert number(-0.001) == "0.00"
    assert number(0.5, signed=True) == "+0.50"
    assert number(float("nan")) == "–"
