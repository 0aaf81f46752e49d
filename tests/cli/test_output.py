"""``--json``, ``-q`` and ``-v``: declared once, and every command that prints a result has them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import typer

from btfl.cli import main
from btfl.cli.app import app
from btfl.cli.output import _plain
from btfl.methods.registry import METHODS
from btfl.zoo.start import zoo_entries
from drawn_runs import make_run

Asked = Callable[..., tuple[str, str]]


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Asked:
    """Return what a command writes to stdout and stderr."""

    def said(*words: str, code: int = 0) -> tuple[str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["btfl", *words])
        monkeypatch.setenv("BTFL_DATA", str(tmp_path / "cache"))
        with pytest.raises(SystemExit) as stopped:
            main()
        written = capfd.readouterr()
        assert (stopped.value.code or 0) == code, written.out + written.err
        return written.out, written.err

    return said


def every_command(group: click.Group) -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        inner = every_command(command) if isinstance(command, click.Group) else {"": command}
        found.update({f"{name} {rest}".strip(): each for rest, each in inner.items()})
    return found


def test_every_command_has_the_three_options() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    for name, command in every_command(group).items():
        with click.Context(command) as context:
            flags = {flag for each in command.get_params(context) for flag in each.opts}
        assert {"--json", "-q", "--quiet", "-v", "--verbose"} <= flags, name


def test_lists_as_json(ask: Asked) -> None:
    methods = json.loads(ask("methods", "--json")[0])["methods"]
    assert [each["name"] for each in methods] == list(METHODS)
    one = json.loads(ask("methods", "coherent", "--json")[0])
    assert {"name", "value", "default", "range", "help"} == set(one["settings"][0])
    datasets = {each["name"]: each for each in json.loads(ask("data", "list", "--json")[0])["datasets"]}
    assert datasets["digits"]["available"]
    assert not datasets["cifar10"]["available"]
    entries = json.loads(ask("zoo", "list", "--json")[0])["entries"]
    assert [entry["name"] for entry in entries] == [entry.card["name"] for entry in zoo_entries()]
    assert "table2" in [each["name"] for each in json.loads(ask("reproduce", "--list", "--json")[0])["reproductions"]]


def test_a_report_as_json_has_what_the_tables_have_quiet_less_and_verbose_more(ask: Asked, tmp_path: Path) -> None:
    make_run(tmp_path / "run", methods=("fedavg", "btfl", "oracle"), length=20)
    out, err = ask("report", "run", "--json")
    found = json.loads(out)
    assert not err
    (accuracy,) = (table for table in found["tables"] if table["name"] == "accuracy")
    rows = {row["name"]: row for row in accuracy["rows"]}
    assert rows["oracle"]["apart"]
    assert rows["fedavg"]["mean e"] is None
    average = sum(rows["btfl"][name] for name in rows["btfl"] if name[:2] in ("A ", "B ", "C ", "D ", "E ")) / 5
    assert rows["btfl"]["average"] == pytest.approx(average)
    assert found["page"] == "run/report.html"
    assert len(found["verdicts"]) == 1
    quiet, verbose = (ask("report", "run", flag)[0] for flag in ("-q", "-v"))
    assert found["verdicts"][0] in " ".join(verbose.split())
    assert "One seed (0)" in verbose
    assert "One seed (0)" not in quiet
    assert "Report: run/report.html" in quiet
    assert "Expected calibration error" in verbose
    assert "Expected calibration error" not in quiet
    assert "opposite directions" in ask("report", "run", "-q", "-v", code=2)[1]


def test_a_run_and_its_studies_as_json_with_progress_on_stderr(ask: Asked) -> None:
    few = ["--clients", "3", "--rounds", "1", "--workers", "1", "--method", "btfl", "--method", "coherent"]
    out, err = ask("bench", "demo", *few, "--set", "training.local_epochs=1", "--out", "run", "--json")
    assert json.loads(out)["runs"] == ["run"]
    assert "round 1/1" in err
    assert not ask("bench", "demo", *few, "--set", "training.local_epochs=1", "--out", "run", "--json", "-q")[1]
    scenario = ["--scenario", "switch-50", "--length", "60"]
    assert json.loads(ask("scenarios", "run", *scenario, "--json")[0])["tables"][0]["rows"]
    drift = ["--detector", "regime", "--draws", "1", "--before", "120", "--after", "20"]
    assert json.loads(ask("drift", "run", *drift, "--json")[0])["file"] == "run/drift.parquet"
    trained = json.loads(ask("train", "demo", *few, "--set", "training.local_epochs=1", "--out", "run", "--json")[0])
    assert len(trained["trained"][0]["sha256"]) == 64


def test_costs_as_json(ask: Asked) -> None:
    words = ["speed", "--models", "mlp", "--methods", "btfl", "--samples", "4", "--repeats", "1", "--no-memory"]
    assert {row["name"] for row in json.loads(ask(*words, "--json")[0])["tables"][0]["rows"]} >= {"btfl"}


def test_an_error_leaves_stdout_empty(ask: Asked) -> None:
    out, err = ask("report", "nowhere", "--json", code=2)
    assert not out
    assert "not a finished run" in err


@pytest.mark.parametrize(
    ("value", "plain"), [(float("nan"), None), (Path("a/b"), "a/b"), ({1: (2, None)}, {"1": [2, None]}), (True, True)]
)
def test_what_json_cannot_hold_has_a_plain_form(value: Any, plain: Any) -> None:
    assert _plain(value) == plain
