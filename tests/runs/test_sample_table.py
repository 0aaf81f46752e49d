"""``samples.parquet`` written in parts: the same rows as in one piece, and the old file if something fails."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from btfl.methods.registry import find_method
from btfl.runs import results
from btfl.runs.results import Predictions, SampleTable, sample_rows, write_table


def of_client(client: int) -> list[Predictions]:
    rng = np.random.default_rng(client)
    return [
        Predictions(
            find_method(name), client, stream, rng.dirichlet(np.ones(3), 20), rng.integers(0, 3, 20),
            rng.random(20) < 0.5, {"e": rng.random(20)} if name == "btfl" else {},
        )
        for name in ("fedavg", "btfl")
        for stream in ("original_ind", "original_exd")
    ]  # fmt: skip


@pytest.mark.parametrize("at_once", [50, 10_000])
def test_parts_make_the_same_table_as_one_piece(tmp_path: Path, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_ROWS_AT_ONCE", at_once)
    whole = sample_rows([one for client in range(5) for one in of_client(client)])
    write_table(whole, tmp_path / "whole.parquet")
    with SampleTable(tmp_path / "parts.parquet") as table:
        for client in range(5):
            table.add(sample_rows(of_client(client)))
    parts = pd.read_parquet(tmp_path / "parts.parquet")
    pd.testing.assert_frame_equal(parts, pd.read_parquet(tmp_path / "whole.parquet"))
    same = (tmp_path / "parts.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert same == (at_once > len(whole))


def fail_after_a_client(path: Path) -> None:
    with SampleTable(path) as table:
        table.add(sample_rows(of_client(0)))
        raise RuntimeError


def test_a_failure_leaves_the_file_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "_ROWS_AT_ONCE", 50)
    path = tmp_path / "samples.parquet"
    path.write_text("before")
    with pytest.raises(RuntimeError):
        fail_after_a_client(path)
    assert path.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["samples.parquet"]
