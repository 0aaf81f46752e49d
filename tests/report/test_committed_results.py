"""What ``results/`` and the README say is what the runs kept there found."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from btfl.benchmark.record import run_id
from btfl.experiments.experiment import make_experiment
from btfl.report.formats import to_markdown
from btfl.report.groups import group_runs, load_runs
from btfl.report.tables import accuracy_table, interval_tables, paper_table
from btfl.report.unseen import unseen_table
from btfl.zoo.start import zoo_entries

ROOT = Path(__file__).parents[2]
KEPT = sorted(path.parent for path in (ROOT / "results").glob("*/README.md"))
MAIN = ROOT / "results" / "cifar10-cnn-dir0.1-seeds"
pytestmark = pytest.mark.skipif(not KEPT, reason="results/ is not here")


@pytest.mark.parametrize("folder", KEPT, ids=lambda path: path.name)
def test_the_tables_follow_from_the_rows(folder: Path) -> None:
    (group,) = group_runs(load_runs(runs_in(folder)))
    tables = [accuracy_table(group), unseen_table(group), *interval_tables(group), paper_table(group)]
    page = (folder / "README.md").read_text()
    for table in filter(None, tables):
        written = to_markdown(table)
        assert (folder / "tables" / f"{table.name}.md").read_text() == written
        assert written.replace("### ", "## ") in page


@pytest.mark.parametrize("folder", KEPT, ids=lambda path: path.name)
def test_every_number_can_be_traced(folder: Path) -> None:
    page = (folder / "README.md").read_text()
    assert re.search(r"^    btfl ", page, flags=re.MULTILINE), "the page must say how the run is made"
    for run in load_runs(runs_in(folder)):
        streams = json.loads((run.folder / "streams.json").read_text())
        assert set(run.rows["manifest"]) == {run.manifest_hash} == {streams["fields"]["hash"]}
        assert set(run.rows["run"]) == {run.record["run"]} == {run_id(make_experiment(dict(run.experiment)))}
        assert set(run.rows["seed"]) == {run.seed}
        assert (run.folder / streams["tensors"]).exists()
        assert run.manifest_hash in page
        assert not re.search(r'"/\w', (run.folder / "run.json").read_text()), "no places of one machine"


def runs_in(folder: Path) -> list[Path]:
    """Return the runs kept in a folder: itself, or 1, 2, ... in it, which are averaged."""
    return [folder] if (folder / "run.json").exists() else sorted(path.parent for path in folder.glob("*/run.json"))


def test_the_repository_stays_small() -> None:
    zoo = [path for entry in zoo_entries() for path in entry.folder.iterdir()]
    kept = [path for path in (ROOT / "results").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in [*zoo, *kept]) < 50_000_000


@pytest.mark.skipif(not MAIN.exists(), reason="the main result is not here")
def test_the_readme_shows_the_main_result() -> None:
    rows = {line.split(" | ")[0]: plain(line) for line in (MAIN / "tables" / "accuracy.md").read_text().splitlines()}
    section = (ROOT / "README.md").read_text().split("\n## Results", 1)[1].split("\n## ", 1)[0]
    shown = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| ---")][1:]
    assert len(shown) > 10
    for line in shown:
        assert rows[line.split(" | ")[0]] == plain(line)


def plain(line: str) -> str:
    """Without the marks of best and second best, which depend on the rows that are shown."""
    return line.replace("*", "")
