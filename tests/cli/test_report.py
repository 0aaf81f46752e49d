"""Reports and reproductions as a person asks for them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drawn_runs import make_run


def btfl(*words: str, folder: Path, ok: bool = True) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from btfl.cli import main; main()", *words],
        cwd=folder,
        env={**os.environ, "COLUMNS": "80", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in done.stderr
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_seeds_combine_and_the_table_fits_eighty_columns(tmp_path: Path) -> None:
    for seed in (0, 1):
        make_run(tmp_path / f"s{seed}", seed=seed, methods=("fedavg", "personal"), length=8)
    said = btfl("report", "s0", "s1", "--out", "both", folder=tmp_path)
    assert "Mean ± standard deviation over 2 seeds (0, 1)." in said
    assert "Report: both/report.html" in said
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= 80
    assert (tmp_path / "both" / "tables" / "accuracy.tex").exists()


def test_what_cannot_be_put_together_is_a_sentence(tmp_path: Path) -> None:
    make_run(tmp_path / "one", methods=("fedavg",), length=8)
    make_run(tmp_path / "two", methods=("fedavg",), length=8, split="redrawn")
    said = btfl("report", "one", "two", folder=tmp_path, ok=False)
    assert "split is 'honest' in the one and 'redrawn' in the other" in " ".join(said.split())
    assert "not a finished run" in btfl("report", "nowhere", folder=tmp_path, ok=False)


def test_every_table_and_figure_of_the_paper_can_be_reproduced(tmp_path: Path) -> None:
    listed = btfl("reproduce", "--list", folder=tmp_path)
    assert all(
        f"{kind}{number}" in listed for kind, last in (("table", 7), ("figure", 6)) for number in range(1, last + 1)
    )


@pytest.mark.slow
def test_a_table_of_the_paper_at_a_small_scale_says_so(tmp_path: Path) -> None:
    words = ("reproduce", "table2", "--scale", "0.02", "--dataset", "digits", "--method", "fedavg", "--method", "btfl")
    said = " ".join(btfl(*words, "--out", "here", "--workers", "1", folder=tmp_path).split())
    assert "digits takes the place of the paper's cifar10" in said
    assert "scale 0.02 of the paper's: 3 rounds for 130" in said
    assert "run 1 of 1" in said
    page = (tmp_path / "here" / "report.html").read_text()
    assert "scale 0.02 of the paper&#39;s" in page
    assert "table2: All methods on the five streams" in page
    assert "table4" in btfl("reproduce", "tabel4", folder=tmp_path, ok=False)
