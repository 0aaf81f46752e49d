"""A whole report: its files, what the page says, LaTeX that compiles, and combining what belongs together."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from btfl.report.build import write_report
from btfl.report.formats import to_latex, to_markdown
from btfl.report.groups import group_runs, load_runs
from btfl.report.table import Row, Table, number_cell, text_cell
from btfl.report.tables import accuracy_table
from btfl.report.terminal import to_text
from drawn_runs import make_run

SVG = re.compile(r"<svg (?!class=\"mark\").*?</svg>", re.DOTALL)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two heterogeneities, one of them with two seeds, and a second model."""
    folder = tmp_path_factory.mktemp("runs")
    many, few = ("fedavg", "fedthe", "btfl", "oracle"), ("fedavg", "personal")
    return [
        make_run(folder / "a0", seed=0, alpha=0.1, methods=many, notes=("scale 0.05 of the paper's",)),
        make_run(folder / "a1", seed=1, alpha=0.1, methods=many),
        make_run(folder / "b0", seed=0, alpha=1.0, methods=few),
        make_run(folder / "c0", seed=0, alpha=0.1, methods=few, model="resnet20"),
    ]


@pytest.fixture(scope="module")
def report(runs: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(runs, tmp_path_factory.mktemp("report")).page


def test_the_page_needs_nothing_else(report: Path) -> None:
    text = report.read_text()
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text)
    assert not re.search(r"@import|url\((?!#)", text)
    for link in re.findall(r'href="((?:tables|figures)/[^"]+)"', text):  # files beside it, for whoever wants them
        assert (report.parent / link).stat().st_size > 0


def test_every_figure_is_in_the_page_and_beside_it(report: Path) -> None:
    text = report.read_text()
    drawn = SVG.findall(text)
    names = {path.stem for path in (report.parent / "figures").iterdir()}
    subjects = {"accuracy", "clients", "weights", "detector", "streams", "calibration"}
    assert {"heterogeneity", "models", "lambda"} <= names
    assert {name.split("-")[0] for name in names} == subjects | {"heterogeneity", "models", "lambda"}
    assert len(drawn) == len(names)
    for name in names:
        assert (report.parent / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (report.parent / "figures" / f"{name}.svg").read_text().startswith("<?xml")
    assert all("currentColor" in svg and "<title" in svg for svg in drawn)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids)), "an id twice would draw one figure's marks in another"


def test_every_number_can_be_traced(report: Path, runs: list[Path]) -> None:
    text = report.read_text()
    for run in runs:
        record = json.loads((run / "run.json").read_text())
        assert record["streams"]["hash"] in text
        assert str(run) in text
        assert record["run"] in text
    assert "scale 0.05 of the paper&#39;s" in text


def test_the_same_runs_give_the_same_bytes(runs: list[Path], tmp_path: Path) -> None:
    once, again = (write_report(runs[2:3], tmp_path / name) for name in ("once", "again"))
    assert [part.name for part in once.report.parts] == ["results"]  # no e, no lambda, nothing to compare with
    files = [path for path in sorted(once.page.parent.rglob("*")) if path.is_file()]
    assert len(files) > 10
    for path in files:
        assert path.read_bytes() == (again.page.parent / path.relative_to(once.page.parent)).read_bytes(), path.name


def test_rows_alone_make_a_report_that_says_what_it_lacks(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", methods=("fedavg", "btfl"), length=8)
    (folder / "samples.parquet").unlink()
    report = write_report([folder], tmp_path / "report").report
    assert report.notes == ["run has no samples: no calibration, and nothing about e."]
    assert [table.name for part in report.parts for table in part.tables] == ["accuracy", "difference"]


def test_methods_missing_from_a_seed_are_named(tmp_path: Path) -> None:
    folders = [
        make_run(tmp_path / "s0", seed=0, methods=("fedavg", "btfl"), length=8),
        make_run(tmp_path / "s1", seed=1, methods=("fedavg",), length=8),
    ]
    (group,) = group_runs(load_runs(folders))
    assert "BTFL was run with 1 of 2 seeds." in accuracy_table(group).notes


def test_a_leaking_split_and_corruption_throughout_are_said_in_every_format(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", split="redrawn", shift="none", methods=("fedavg",), length=8)
    table = accuracy_table(group_runs(load_runs([folder]))[0])
    for written in (to_markdown(table), to_latex(table)):
        assert "LEAKING SPLIT" in written
        assert "corrupted throughout" in written


@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="pdflatex is not installed (apt: texlive-latex-recommended)"
)
def test_the_latex_compiles(report: Path, tmp_path: Path) -> None:
    shutil.copytree(report.parent / "tables", tmp_path / "tables")
    shutil.copy(report.parent / "tables.tex", tmp_path)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        errors="replace",
    )
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    assert (tmp_path / "tables.pdf").stat().st_size > 0


def test_a_title_with_anything_in_it_is_text(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", methods=("fedavg", "btfl"), length=8)
    rows = pd.read_parquet(run / "results.parquet")
    rows["title"] = r"\input{x} \g<0> <script>alert(1)</script> $\frac$ " + rows["title"]
    rows.to_parquet(run / "results.parquet")
    page = write_report([run], tmp_path / "out").page.read_text()
    assert r"\input{x}" in page
    assert "<script>alert" not in page
    assert not any(r"\input{x}" in path.read_text() for path in (tmp_path / "out" / "tables").glob("*.tex"))


@pytest.mark.slow
def test_a_terminal_that_is_not_utf_8_changes_no_byte(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", methods=("fedavg", "btfl"), length=8)
    code = "import sys; from btfl.report.build import write_report; write_report([sys.argv[1]], sys.argv[2])"
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code, run, tmp_path / "plain"], env=environment, check=True)
    expected = write_report([run], tmp_path / "out").page.read_bytes()
    assert (tmp_path / "plain" / "report.html").read_bytes() == expected


def test_a_wide_table_goes_on_below_with_as_many_columns_as_tell_its_rows_apart() -> None:
    def row(method: str, client: str, first: float) -> Row:
        return Row((text_cell(method), text_cell(client), *(number_cell(first + i) for i in range(9))))

    headings = ("method", "client", *(f"stream-{i}" for i in range(9)))
    rows = (row("FedAvg", "trained", 10.0), row("FedAvg", "new", 30.0), row("BTFL", "trained", 50.0))
    lines = to_text(Table("streams", "By client", headings, rows), 80).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("FedAvg" in line and "new" in line for line in lines) == 2  # in both parts
    alone = to_text(Table("streams", "By method", headings, rows[1:]), 80)
    assert (alone.count("FedAvg"), alone.count("new")) == (2, 1)  # the method is enough
