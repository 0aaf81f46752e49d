"""``btfl data``: listing, getting and checking datasets."""

from __future__ import annotations

from pathlib import Path

import pytest

from btfl.data.fetching import fetch
from btfl.errors import DataError
from fake_cifar import Arrays, fake_cifar10, official

# typer below 0.21 warns when a click that is newer than it is imported
pytestmark = pytest.mark.filterwarnings("ignore:.*will be removed in Click 9:DeprecationWarning")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Arrays:
    monkeypatch.setenv("BTFL_DATA", str(tmp_path / "cache"))
    return fake_cifar10(monkeypatch)


def test_what_a_benchmark_wants_is_brought_if_it_is_not_at_hand(
    fake: Arrays, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import btfl.cli.data as commands

    sought: list[str] = []

    def fetched(name: str) -> None:
        sought.append(name)
        fetch.get("cifar10", official(fake, tmp_path / "bin"))

    monkeypatch.setattr(commands, "get", fetched)
    for name in ("digits", "folder", "CIFAR10", "cifar10"):
        commands.get_if_missing(name)
    assert sought == ["cifar10"]


def test_the_command_line_lists_gets_and_checks(fake: Arrays, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from btfl.cli.data import app

    run = CliRunner()
    assert "cifar10 is not at hand: run `btfl data get cifar10`" in run.invoke(app, ["list"]).output
    got = run.invoke(app, ["get", "cifar10", "--from", str(official(fake, tmp_path / "bin"))])
    assert "is verified" in got.output
    assert "already at hand" in run.invoke(app, ["get", "cifar10"]).output
    assert "cifar10 is at hand" in run.invoke(app, ["list"]).output
    checked = run.invoke(app, ["check"])
    assert checked.exit_code == 0
    assert "cifar10: every byte is as it must be" in checked.output
    (tmp_path / "cache" / "cifar10" / "y_test.npy").unlink()
    broken = run.invoke(app, ["check", "cifar10"])
    assert isinstance(broken.exception, DataError)
    assert "y_test.npy is missing" in str(broken.exception)
    assert isinstance(run.invoke(app, ["check", "cifar10.1"]).exception, DataError)
