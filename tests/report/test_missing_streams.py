"""Data without shifted streams: every table and figure shows A, C and E, averages those, and says so."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from btfl.report.accuracy import by_client, compare
from btfl.report.build import WrittenReport, write_report
from btfl.report.groups import group_runs, load_runs
from btfl.report.results import Results
from btfl.report.tables import accuracy_table
from drawn_runs import make_run

SHIFTED = ("shifted_ind", "shifted_exd")


def without_shifts(folder: Path, **settings: object) -> Path:
    """Make a run and take B and D out of its tables, as data have it that know no shift."""
    run = make_run(folder, **settings)  # type: ignore[arg-type]
    for name in ("results.parquet", "samples.parquet"):
        table = pd.read_parquet(run / name)
        table[~table["stream"].isin(SHIFTED)].to_parquet(run / name, index=False)
    return run


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> WrittenReport:
    folder = tmp_path_factory.mktemp("three")
    runs = [without_shifts(folder / f"s{seed}", seed=seed, shift="none") for seed in (0, 1)]
    return write_report(runs, folder / "out", extras=("fairness", "calibration"))


def test_the_average_is_that_of_the_streams_that_are_there(tmp_path: Path) -> None:
    run = without_shifts(tmp_path / "run", methods=("fedavg", "btfl"), length=8)
    rows = pd.read_parquet(run / "results.parquet").query("stream != 'switching'")
    table = by_client(rows)
    assert list(table.columns) == ["original_ind", "original_exd", "synthetical", "average"]
    of_one = rows[(rows["method"] == "btfl") & (rows["client"] == 2)]
    assert table.loc[("btfl", 0, 2), "average"] == pytest.approx(100 * of_one["accuracy"].sum() / 3)
    assert set(compare(rows, "btfl", "fedavg")) == set(table.columns)


def test_every_table_has_three_streams_and_the_first_says_why(report: WrittenReport) -> None:
    tables = {table.name: table for part in report.report.parts for table in part.tables}
    assert set(tables) == {"accuracy", "difference", "calibration", "detection", "lambda"}
    for name, table in tables.items():
        letters = [heading[0] for heading in table.headings if re.match(r"[A-E] ", heading)]
        assert letters == (["A"] if name == "detection" else ["A", "C", "E"])
        assert not any("nan" in cell.text for row in table.rows for cell in row.cells)
    assert tables["detection"].headings == ("method", "A against C", "inside E")
    said = " ".join(tables["accuracy"].notes)
    assert "B and D are left out: for these data there is neither another domain nor a corruption" in said
    assert "The average is that of A, C and E." in said


def test_the_figures_and_the_page_speak_of_three_streams(report: WrittenReport) -> None:
    page = report.page.read_text()
    assert "over all 3 streams" in page
    assert "mean of A and C, to compare with E" in page
    assert "A to D" not in page
    assert "five streams" not in page
    assert {path.stem for path in (report.page.parent / "figures").glob("*.png")} == {
        "accuracy", "clients", "weights", "streams", "detector", "calibration", "lambda",
    }  # fmt: skip


def test_runs_with_and_without_the_shifted_streams_are_never_averaged(tmp_path: Path) -> None:
    runs = [without_shifts(tmp_path / "three", seed=0, length=8), make_run(tmp_path / "five", seed=1, length=8)]
    groups = group_runs(load_runs(runs), apart=True)
    assert [group.streams for group in groups] != [groups[0].streams] * 2
    assert [len(accuracy_table(group).headings) for group in groups] == [6, 8]
    assert "streams A, C, E" in groups[0].label
    assert len(Results.load(*runs).frame["group"].unique()) == 2
