"""A figure is drawn once for the same runs and the same question, and again for any others."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from btfl.data.kept import FOLDER, LIMIT
from btfl.report.build import write_report
from btfl.report.drawing import Drawing
from btfl.report.groups import group_runs, load_runs
from btfl.report.made_of import made_of
from btfl.runs.layout import RunFiles
from drawn_runs import make_run

METHODS = ("fedavg", "btfl", "oracle")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "kept"))
    monkeypatch.setenv(LIMIT, "50")
    return tmp_path / "kept"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", length=8, methods=METHODS)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def digest(run: Path, reference: str | None = None) -> str:
    return made_of(group_runs(load_runs([run]), reference=reference))


def test_a_report_on_the_same_run_draws_nothing_and_has_the_same_bytes(
    run: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_report([run], tmp_path / "first")
    entries = sorted(kept.iterdir())
    assert len(entries) == len(list((tmp_path / "first" / "figures").glob("*.png"))) > 0
    with monkeypatch.context() as patched:
        patched.setattr(Drawing, "_drawn", None)  # would fail if it were called
        write_report([run], tmp_path / "second")
    assert files(tmp_path / "second") == files(tmp_path / "first")
    entries[0].write_bytes(entries[0].read_bytes()[:-1])
    write_report([run], tmp_path / "third")  # what is damaged is drawn again
    assert files(tmp_path / "third") == files(tmp_path / "first")


def test_what_lies_in_the_folder_of_a_run_is_not_believed(run: Path, kept: Path) -> None:
    page = write_report([run], run).page
    as_drawn = page.read_bytes()
    for path in (run / "figures").glob("*.svg"):
        path.write_bytes(path.read_bytes().replace(b"</svg>", b"<script>alert(1)</script></svg>"))
    assert write_report([run], run).page.read_bytes() == as_drawn
    assert not any(b"alert(1)" in path.read_bytes() for path in (run / "figures").glob("*.svg"))


def test_another_question_or_other_rows_are_another_figure(run: Path) -> None:
    usual = digest(run)
    assert digest(run) == usual
    assert digest(run, reference="fedavg") != usual
    rows = pd.read_parquet(RunFiles(run).results)
    rows.assign(accuracy=rows["accuracy"].where(rows.index != 3, 0.125)).to_parquet(RunFiles(run).results, index=False)
    assert digest(run) != usual


@pytest.mark.parametrize("column", ["e", "confidence", "local_entropy"])
def test_other_samples_are_another_figure(run: Path, column: str) -> None:
    usual, path = digest(run), RunFiles(run).samples
    samples = pd.read_parquet(path)
    samples.assign(**{column: samples[column] * 0.5}).to_parquet(path, index=False)
    assert digest(run) != usual


def test_samples_of_a_method_are_those_of_the_whole_table(run: Path) -> None:
    (saved,) = load_runs([run])
    for method in METHODS:
        part, every = saved.samples_of(method), saved.samples
        expected = every.loc[every["method"] == method, list(part)].reset_index(drop=True)
        found = part.astype({"stream": expected["stream"].dtype}).reset_index(drop=True)
        pd.testing.assert_frame_equal(found, expected)
    assert len(saved.samples_of("no such method")) == 0
