"""All federations beside each other: what is kept in ``results/`` follows from the rows, and losses are shown."""

from __future__ import annotations

import csv
import io
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from btfl.data.streams import LETTERS
from btfl.errors import InputError
from btfl.report.accuracy import AVERAGE, compare
from btfl.report.federations import NAME, Federation, as_csv, full_tables, read_federations, short_table
from btfl.report.figures.federations import of_all_federations
from btfl.report.groups import load_runs
from btfl.report.tables import OURS, interval_cell

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
pytestmark = pytest.mark.skipif(not (RESULTS / f"{NAME}.md").exists(), reason="results/ is not here")


@pytest.fixture(scope="module")
def federations() -> list[Federation]:
    return read_federations(RESULTS)


@pytest.fixture(scope="module", autouse=True)
def benchmarks_on_path() -> Iterator[None]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield
    sys.path.remove(str(ROOT / "benchmarks"))


def test_what_is_kept_is_what_the_command_makes(federations: list[Federation]) -> None:
    from all_federations import full_page, with_short_table

    assert (RESULTS / f"{NAME}.md").read_text() == full_page(federations)
    page = (RESULTS / "README.md").read_text()
    assert page == with_short_table(page, federations)
    kept, made = (
        [*csv.DictReader(io.StringIO(text))] for text in ((RESULTS / f"{NAME}.csv").read_text(), as_csv(federations))
    )
    assert [list(row.values())[:4] for row in kept] == [list(row.values())[:4] for row in made]
    for name in ("difference", "low", "high"):
        np.testing.assert_allclose([float(row[name]) for row in kept], [float(row[name]) for row in made], atol=0.0011)


def test_the_readme_says_where_ours_does_not_clearly_win(federations: list[Federation]) -> None:
    said = (ROOT / "README.md").read_text().split("- **It does not win**")[1].split("by stream")[0].lower()
    unclear = {
        one.name
        for one in federations
        for found in one.differences
        if found.method not in OURS and found.verdict != "better"
    }
    datasets = {one.name.split("-")[0] for one in federations}
    assert {name for name in datasets if name in said} == {name.split("-")[0] for name in unclear}
    assert f"on {len(unclear)} of" in said
    assert f"{len(federations)} federations" in said


def test_every_folder_is_in_it_once(federations: list[Federation]) -> None:
    folders = [name for one in federations for name in one.folders]
    assert sorted(folders) == sorted(path.parent.name for path in RESULTS.glob("*/README.md"))
    assert len(set(folders)) == len(folders)


def test_every_method_of_every_folder_is_compared(federations: list[Federation]) -> None:
    for one in federations:
        there = {name for folder in one.folders for run in load_runs([RESULTS / folder]) for name in run.rows["method"]}
        methods = {name for name in there if "[" not in name and not name.startswith("oracle")}
        assert one.ours is not None
        assert {found.method for found in one.differences} == methods - {one.ours}
        assert one.version == (2 if "coherent" in there else 1)


def test_the_numbers_are_those_of_the_folders_own_pages(federations: list[Federation]) -> None:
    alone = [one for one in federations if len(one.folders) == 1]
    assert alone
    for one in alone:
        page = (RESULTS / one.name / "README.md").read_text()
        for found in one.differences:
            assert f"| {found.title} | {interval_cell(found.by_column['original_ind']).text} |" in page
            assert f"| {interval_cell(found.average).text} | {found.verdict} |" in page
            worse = [name for name, each in found.by_column.items() if each.high < 0 and name != AVERAGE]
            assert found.lost == "".join(LETTERS[name] for name in worse)


def test_everything_fits_eighty_columns(federations: list[Federation]) -> None:
    for table in (short_table(federations), full_tables(federations)[0]):
        assert max(map(len, table.text(80).splitlines())) <= 80


def test_the_figure_has_a_panel_for_each_method_and_a_mark_for_each_difference(federations: list[Federation]) -> None:
    few = [one for one in federations if one.name in ("pacs-cnn-dir0.1", "cifar10-cnn-dir0.1-held-out")]
    panels = [panel for panel in of_all_federations(few).axes if panel.get_title()]
    assert len(panels) == len({found.method for one in few for found in one.differences})
    marks = [line for panel in panels for line in panel.lines if line.get_marker() == "o"]
    assert len(marks) == sum(len(one.differences) for one in few)
    assert {text.get_text() for panel in panels for text in panel.texts} >= {"B"}


def test_folders_with_the_same_streams_and_training_are_one_federation(tmp_path: Path) -> None:
    kept = RESULTS / "cifar10-cct4-dir0.1-small"
    for name, methods in (("short", {"fedavg", "coherent"}), ("longer", {"fedavg", "btfl"})):
        shutil.copytree(kept, tmp_path / name)
        rows = pd.read_parquet(kept / "results.parquet")
        rows[rows["method"].isin(methods)].to_parquet(tmp_path / name / "results.parquet")
    shutil.copytree(RESULTS / "cifar10-resnet20-dir0.1-small", tmp_path / "same-streams-other-model")
    other, both = read_federations(tmp_path)
    assert (other.folders, both.folders) == (("same-streams-other-model",), ("short", "longer"))
    assert both.ours == OURS[1]  # what btfl 0.1.0 called coherent is its first version
    (whole,) = load_runs([kept])
    expected = compare(whole.rows, OURS[1], "btfl")
    found = {each.method: each for each in both.differences}
    assert found["btfl"].by_column[AVERAGE] == expected[AVERAGE]
    assert set(found) == {"fedavg", "btfl"}


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no folder with results"):
        read_federations(tmp_path)
