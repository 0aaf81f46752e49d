"""``btfl data``: listing, getting and checking datasets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from btfl.data.fetching import fetch
from btfl.data.kept import Kept
from btfl.errors import DataError, InputError
from fake_cifar import Arrays, fake_cifar10, official

# typer below 0.21 warns when a click that is newer than it is imported
pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in Click 9:DeprecationWarning")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Arrays:
    monkeypatch.setenv("BTFL_DATA", str(tmp_path / "cache"))
    return fake_cifar10(monkeypatch)


def test_what_a_benchmark_wants_is_fetched_if_it_is_not_available(
    fake: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import btfl.cli.data as commands

    sought: list[str] = []

    def fetched(name: str) -> fetch.Got:
        sought.append(name)
        return fetch.get("cifar10", official(fake, tmp_path / "bin"))

    monkeypatch.setattr(commands, "_fetch", fetched)
    for name in ("digits", "folder", "CIFAR10", "cifar10"):
        commands.get_if_missing(name)
    assert sought == ["cifar10"]


def test_the_command_line_lists_gets_and_checks(fake: Arrays, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from btfl.cli.data import app

    run = CliRunner()
    assert "cifar10 is not available: run `btfl data get cifar10`" in run.invoke(app, ["list"]).output
    got = run.invoke(app, ["get", "cifar10", "--from", str(official(fake, tmp_path / "bin"))])
    assert "is verified" in got.output
    assert "already available" in run.invoke(app, ["get", "cifar10"]).output
    assert "cifar10 is available" in run.invoke(app, ["list"]).output
    checked = run.invoke(app, ["check"])
    assert checked.exit_code == 0
    assert "cifar10: every byte is as it must be" in checked.output
    (tmp_path / "cache" / "cifar10" / "y_test.npy").unlink()
    broken = run.invoke(app, ["check", "cifar10"])
    assert isinstance(broken.exception, DataError)
    assert "y_test.npy is missing" in str(broken.exception)
    assert isinstance(run.invoke(app, ["check", "cifar10.1"]).exception, DataError)


def test_data_of_ones_own_are_loaded_and_described(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from btfl.cli.data import app

    path = tmp_path / "walks.npz"
    y = np.array(["run", "sit"])[np.arange(6) % 2]
    np.savez(path, x=np.random.default_rng(0).normal(size=(6, 5, 3)), y=y, client=np.arange(6) // 4)
    said = CliRunner().invoke(app, ["check", "arrays", "--root", str(path)]).output
    assert "walks: 6 signals of 5x3" in said
    assert "2 classes, with 3 to 3 samples: run, sit" in said
    assert "2 clients, with 2 to 4 samples: 0, 1" in said
    table = tmp_path / "rows.csv"
    table.write_text("a,kind\n1,x\n2,y\n")
    assert (
        "2 vectors of 1"
        in CliRunner().invoke(app, ["check", "table", "--root", str(table), "--set", "label=kind"]).output
    )
    assert isinstance(CliRunner().invoke(app, ["check", "--root", str(path)]).exception, InputError)
    copied = ["check", "table", "--root", str(table), "--set", "dataset_options.label=kind"]  # as btfl bench takes it
    assert "2 vectors of 1" in CliRunner().invoke(app, copied).output
    without = CliRunner().invoke(app, ["check", "arrays"])
    assert "name the dataset and its file" in str(without.exception)
    assert "1,797 images of 8x8x1" in CliRunner().invoke(app, ["check", "digits"]).output
    listed = CliRunner().invoke(app, ["list"]).output
    assert "table: your own Parquet or CSV" in listed


def test_what_is_kept_is_removed_and_datasets_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, btfl: Callable[..., str]
) -> None:
    monkeypatch.setenv("BTFL_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("BTFL_KEPT_LIMIT", "1")
    (tmp_path / "data" / "cifar10").mkdir(parents=True)
    Kept.usual().keep({"a": np.zeros(1_000)}, "key")
    assert "1 kept file, 0.0 MB, removed from" in btfl("data", "clean").replace("\n", " ")
    assert Kept.usual().find("key") is None
    assert (tmp_path / "data" / "cifar10").is_dir()
    assert '"entries": 0' in btfl("data", "clean", "--json")
