"""Results in Python: numbers, tables in all formats, figures, a verdict; columns and references on request."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from btfl.errors import InputError, UnknownNameError
from btfl.report import extras
from btfl.report.results import Results
from btfl.report.table import Row, Table, number_cell, text_cell
from btfl.report.terminal import to_text
from drawn_runs import make_run

LONG = "btfl[prune_above=5,count=after]"
SHORT = ("BTFL", "[prune_above=5,", "count=after]")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sweep")
    methods = ("fedavg", "personal", "btfl", LONG, "oracle")
    few: dict[str, Any] = {"methods": methods, "clients": 12, "length": 16}
    return [
        make_run(folder / f"alpha-{alpha:g}-seed-{seed}", seed=seed, alpha=alpha, **few)
        for alpha in (0.1, 1.0)
        for seed in (0, 1)
    ]


@pytest.fixture(scope="module")
def one(folders: list[Path]) -> Results:
    return Results.load(*folders[:2])


def test_columns_are_those_done_by_hand(folders: list[Path], one: Results) -> None:
    table = one.table(columns=["fairness", "calibration"])
    read = {row["method"]: row for row in csv.DictReader(io.StringIO(table.csv()))}["BTFL"]
    found: dict[str, list[float]] = {"std over clients": [], "worst decile": [], "worst client": [], "log loss": []}
    for folder in folders[:2]:
        rows = pd.read_parquet(folder / "results.parquet").query("stream != 'switching' and method == 'btfl'")
        clients = np.sort([100 * part["accuracy"].mean() for _, part in rows.groupby("client")])
        mean = sum(clients) / 12
        found["std over clients"].append((sum((value - mean) ** 2 for value in clients) / 12) ** 0.5)
        found["worst decile"].append((clients[0] + clients[1]) / 2)  # a tenth of twelve, rounded up
        found["worst client"].append(clients[0])
        samples = pd.read_parquet(folder / "samples.parquet").query("stream != 'switching' and method == 'btfl'")
        found["log loss"].append(-np.log(samples["true_probability"]).mean())
    for heading, values in found.items():
        assert float(read[heading]) == pytest.approx(np.mean(values), abs=1e-8)
        assert float(read[f"{heading} std"]) == pytest.approx(np.std(values, ddof=1), abs=1e-8)
    assert 0 < float(read["ECE"]) < 100
    assert [row.cells[8].mark for row in table.rows].count("best") >= 1


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60))
def test_the_worst_are_never_better_than_the_mean(accuracies: list[float]) -> None:
    clients = np.array(accuracies)
    assert extras.worst_client(clients) <= extras.worst_decile(clients) + 1e-9
    assert extras.worst_decile(clients) <= clients.mean() + 1e-9
    assert extras.deviation(clients) >= 0
    assert extras.deviation(clients + 1) == pytest.approx(extras.deviation(clients), abs=1e-9)


def test_every_format_has_the_columns(one: Results) -> None:
    table = one.table(columns=["fairness", "ece"])
    for written in (table.text(), table.markdown(), table.latex(), table.html(), table.csv()):
        for word in ("worst", "decile", "ECE"):
            assert word in written
    assert "worst decile" in table.frame().columns
    assert table.html() == table._repr_html_()
    assert str(table) == table.text()


def test_columns_from_samples_are_empty_without_them(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", methods=("fedavg", "btfl"), length=8)
    (run / "samples.parquet").unlink()
    table = Results.load(run).table(columns=["calibration", "worst-client"])
    assert [cell.text for cell in table.rows[0].cells[-3:-1]] == ["–", "–"]
    assert table.rows[0].cells[-1].text != "–"


def test_no_label_is_cut_at_eighty_columns(one: Results) -> None:
    shown = [*one.tables.values(), one.table(columns=["fairness", "calibration"])]
    for table in (table for table in shown if not table.words):
        lines = table.text(80).splitlines()
        assert max(map(len, lines)) <= 80
        parts = sum(line.lstrip().startswith("method") for line in lines)
        assert parts >= 1
        labels = [row.cells[0].text for row in table.rows]
        pieces = Counter(p for label in labels for p in (SHORT if "[" in label else (label,)))
        for piece, times in pieces.items():
            found = [line for line in lines if re.match(rf" {{1,2}}{re.escape(piece)}( |$)", line)]
            assert len(found) == parts * times, (table.name, piece)


@given(st.integers(1, 9), st.integers(1, 40), st.integers(40, 120))
def test_all_columns_are_shown_whatever_the_width(columns: int, label: int, width: int) -> None:
    headings = ("method", *(f"c{i}" for i in range(columns)))
    rows = tuple(
        Row((text_cell(f"{'x' * label}{place}"), *(number_cell(10 * i + place) for i in range(columns))))
        for place in range(2)
    )
    text = to_text(Table("t", "A table", headings, rows), width)
    assert max(map(len, text.splitlines())) <= width
    assert all(f"c{i}" in text and f"{10 * i:.2f}" in text for i in range(columns))


def test_the_reference_is_compared_with_all_others(one: Results) -> None:
    table = one.table("difference", reference="fedavg")
    assert table.title.startswith("FedAvg minus each method")
    assert table.headline
    assert len(table.rows) == 4
    seen = one.seen(reference="fedavg")
    assert seen.verdict.startswith("FedAvg is worse than BTFL, the best of the others on average: ")
    assert set(seen.tables) >= {"difference", "difference-btfl"}
    assert one.verdict.startswith("BTFL has the highest average, ")
    with pytest.raises(UnknownNameError, match=r"method to compare with \(--reference\) 'coherent'"):
        one.seen(reference="coherent")


def test_the_verdict_names_another_method_beside_a_version_of_the_same(tmp_path: Path) -> None:
    skill = {"btfl": 0.9, "btfl-release": 0.8, "fedavg": 0.3}
    run = make_run(tmp_path / "run", methods=("fedavg", "btfl", "btfl-release"), length=60, skill=skill)
    said = Results.load(run).verdict
    assert re.match(r"BTFL has the highest average, .* above BTFL \(release\): .* and clearly above FedAvg: ", said)


def test_a_sweep_has_one_table_over_its_values_with_deviations(folders: list[Path]) -> None:
    both = Results.load(folders[0].parent)  # the folder that holds them
    assert [group.seeds for group in both.groups] == [[0, 1], [0, 1]]
    table = both.table()
    assert table.headings == ("method", "Dir(0.1)", "Dir(1)")
    assert all(" ± " in cell.text for row in table.rows for cell in row.cells[1:])
    assert len(both.verdict.splitlines()) == 2
    assert len(both.frame) == 4 * 5 * 12 * 5
    assert "switching" in set(both.samples["stream"])
    assert "switching" not in set(both.frame["stream"])
    with pytest.raises(UnknownNameError, match="unknown table 'accurracy'"):
        both.table("accurracy")


def test_other_numbers_that_vary_have_a_table_too(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / f"severity-{severity}", severity=severity, methods=("fedavg", "btfl"), length=8)
        for severity in (5, 1)
    ]
    table = Results.load(*runs).table()
    assert table.headings == ("method", "severity 1", "severity 5")
    assert table.title == "Average accuracy in % by severity: digits, mlp, Dir(0.1)"


def test_a_notebook_shows_the_verdict_the_notes_and_the_table(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", methods=("fedavg", "btfl"), length=8, notes=("a <note>",))
    results = Results.load(run)
    shown = results._repr_html_()
    assert results.verdict in shown
    assert "note: a &lt;note&gt;" in shown
    assert shown.count("<table>") == 1
    assert "FedAvg, BTFL" in repr(results)
    assert results.verdict in repr(results)
    assert results.plot()._repr_png_().startswith(b"\x89PNG")
    assert results.plot("clients").save(tmp_path / "f.svg").read_bytes().startswith(b"<?xml")
    with pytest.raises(InputError, match=r"saved as \.png or \.svg, not as 'f\.pdf'"):
        results.plot().save(tmp_path / "f.pdf")
    assert len(results.plot().figure().axes) == 6
    assert results.report(tmp_path / "out") == tmp_path / "out" / "report.html"


def test_one_method_has_nothing_to_be_compared_with(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", methods=("fedavg", "oracle"), length=8)
    assert "there is no other method to compare it with" in Results.load(run).verdict
