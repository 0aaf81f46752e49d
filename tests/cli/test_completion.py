"""What the shell offers, asked as a shell asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
import typer
from click.shell_completion import ShellComplete

from btfl.cli.app import app


def offered(*words: str) -> set[str]:
    """Name what is offered for the last word."""
    completing = ShellComplete(typer.main.get_command(app), {}, "btfl", "_BTFL_COMPLETE")
    return {item.value for item in completing.get_completions(list(words[:-1]), words[-1])}


@pytest.mark.parametrize(
    ("words", "some"),
    [
        (["bench", "--method", ""], {"btfl", "coherent", "fedthe"}),
        (["bench", "--preset", ""], {"demo", "quick", "paper"}),
        (["bench", ""], {"demo", "table1", "ablation"}),
        (["train", "tab"], {"table1", "table7"}),
        (["bench", "--dataset", ""], {"digits", "cifar10"}),
        (["bench", "--model", ""], {"cnn", "mlp"}),
        (["bench", "--from", "zoo:"], {"zoo:cifar10-cnn-dir0.1"}),
        (["bench", "--split", ""], {"honest", "redrawn"}),
        (["bench", "--set", "training."], {"training.rounds=", "training.batch="}),
        (["bench", "--long"], {"--longest-stream"}),
        (["train", "--recipe", ""], {"fedavg", "ttt-release"}),
        (["flower", "new", "app", "qui"], {"quick"}),
        (["reproduce", ""], {"table1", "figure6"}),
        (["data", "get", ""], {"cifar10"}),
        (["export", "run", "--method", ""], {"btfl", "coherent"}),
        ([""], {"demo", "bench", "train", "report"}),
    ],
)
def test_names_that_btfl_knows_are_offered(words: list[str], some: set[str]) -> None:
    found = offered(*words)
    assert some <= found
    assert all(each.startswith(words[-1]) for each in found)


def test_files_of_ones_own_are_offered_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").touch()
    assert offered("bench", "mi") == {"mine.toml"}
    assert "mine.toml" not in offered("bench", "--preset", "")


def test_only_tables_and_figures_are_offered_to_reproduce() -> None:
    assert all(name.startswith(("table", "figure")) for name in offered("reproduce", ""))


PROGRAM = """
import sys
sys.argv[0] = "btfl"
from btfl.cli import main
try:
    main()
finally:
    heavy = {"torch", "pandas", "matplotlib", "sklearn"} & set(sys.modules)
    print("heavy:", *sorted(heavy), file=sys.stderr)
"""


def in_a_process(*words: str, **environment: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], env={**os.environ, **environment}, capture_output=True, text=True
    )
    return done.stdout, done.stderr.strip().splitlines()[-1]


def test_help_is_quick() -> None:
    for words in ([], ["bench"], ["train"], ["flower", "new"], ["data"], ["drift"]):
        said, heavy = in_a_process(*words, "--help", COLUMNS="80")
        assert "Usage" in said
        assert heavy == "heavy:"
        assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("words", ["btfl bench --method cohe", "btfl train tabl", "btfl bench --model cn"])
def test_a_shell_is_answered_without_torch(words: str) -> None:
    count = str(len(words.split()) - 1)
    said, heavy = in_a_process(_BTFL_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=count)
    assert said.split()
    assert all(each.startswith(words.split()[-1]) for each in said.split())
    assert heavy == "heavy:"


def test_commands_are_listed_in_the_order_of_use() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    with click.Context(group) as context:
        assert group.list_commands(context)[:4] == ["demo", "bench", "train", "report"]
