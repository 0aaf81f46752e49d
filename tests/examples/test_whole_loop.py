"""The page of Python that shows the whole loop: it runs, it is short, and it uses public names only."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd

PAGE = Path(__file__).parents[2] / "examples" / "whole_loop.py"


def test_it_trains_adapts_and_reports(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, PAGE, "run"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "BTFL" in done.stdout
    assert "Coherent" in done.stdout
    assert "report.html" in done.stdout
    assert (tmp_path / "run" / "report.html").stat().st_size > 0
    rows = pd.read_parquet(tmp_path / "run" / "results.parquet")
    assert set(rows["method"]) == {"fedavg", "personal", "btfl", "coherent"}
    assert rows.groupby(["method", "client"])["stream"].nunique().eq(5).all()


def test_it_is_short_and_uses_public_names_only() -> None:
    text = PAGE.read_text()
    assert len(text.splitlines()) < 60
    assert not re.findall(r"(?:\.|import )_\w+", text)
