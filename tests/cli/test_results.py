"""The commands that pages of ``results/`` show make the runs that are kept there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import click
import pytest
import typer

from btfl.benchmark.record import run_id
from btfl.cli.app import app
from btfl.cli.collect import collect_sweep

RESULTS = Path(__file__).parents[2] / "results"
COMMANDS = [
    (page.parent, words)
    for page in sorted(RESULTS.glob("*/README.md"))
    for words in re.findall(r"^    btfl bench (.*)$", page.read_text(), re.M)
    if " and " not in words  # several commands in one line, for a person
]


@pytest.mark.parametrize(("folder", "words"), COMMANDS, ids=lambda value: getattr(value, "name", None))
def test_a_command_makes_the_run_that_is_kept(folder: Path, words: str) -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    with group.commands["bench"].make_context("bench", shlex.split(words)) as context:
        made = {run_id(experiment) for experiment in collect_sweep(context.params).experiments}
    assert made <= {json.loads(path.read_text())["run"] for path in folder.glob("**/run.json")}
