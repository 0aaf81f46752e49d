"""Options come from the settings themselves, and a single one is given once."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from pydantic import Field, create_model

from btfl.cli.app import app
from btfl.cli.collect import collect
from btfl.cli.options import experiment_options
from btfl.errors import InputError, UnknownNameError
from btfl.experiments import experiment as experiments
from btfl.experiments.experiment import Experiment

Said = Callable[..., str]


def commands() -> dict[str, click.Command]:
    """Every command, ``data get`` for instance."""
    group = typer.main.get_command(app)
    assert isinstance(group, click.Group)
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found.update({f"{name} {inner}": each for inner, each in command.commands.items()})
        else:
            found[name] = command
    return found


def flags() -> dict[str, click.Parameter]:
    return {each.opts[0]: each for each in experiment_options() if isinstance(each, click.Option)}


def config(app: Path) -> dict[str, Any]:
    """What an app that `btfl flower new` wrote says of its experiment."""
    table = tomllib.loads((app / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    return dict(table["experiment"])


def test_every_single_setting_of_an_experiment_is_an_option_with_its_range() -> None:
    found = flags()
    for knob in Experiment.knobs():
        if knob.type not in (dict, tuple):
            assert f"--{knob.name.replace('_', '-')}" in found
    assert {"--preset", "--method", "--rounds", "--set"} <= set(found)
    assert found["--method"].multiple
    clients, alpha, split = (found[flag].type for flag in ("--clients", "--alpha", "--split"))
    assert isinstance(clients, click.IntRange)
    assert clients.min == 2
    assert isinstance(alpha, click.FloatRange)
    assert (alpha.min, alpha.min_open) == (0, True)
    assert isinstance(split, click.Choice)
    assert list(split.choices) == ["honest", "redrawn", "ordered"]


@pytest.mark.parametrize("command", ["bench", "train", "flower simulate", "flower new"])
def test_each_command_that_takes_an_experiment_has_all_its_options(command: str, btfl: Said) -> None:
    said = btfl(*command.split(), "--help")
    assert "Experiment" in said
    for words in (*flags(), "--min-share", "--smallest-cohort", "Random seed.", "[default: (20)]"):
        assert words in said
    assert ("--time-limit" in said) == command.startswith("flower")


def test_a_new_field_of_an_experiment_is_an_option_at_once(
    tmp_path: Path, btfl: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    wider: Any = create_model("Wider", __base__=Experiment, paint_coats=(int, Field(2, ge=1, description="Coats.")))
    for module in ("btfl.experiments.experiment", "btfl.experiments.files", "btfl.cli.collect"):
        monkeypatch.setattr(f"{module}.Experiment", wider)
    assert "Coats. [default: (2)]" in " ".join(btfl("bench", "--help").replace("│", "").split())
    assert "0 is not in the range x>=1" in btfl("train", "demo", "--paint-coats", "0", ok=False)
    btfl("flower", "new", "app", "demo", "--paint-coats", "3")
    assert config(tmp_path / "app")["paint_coats"] == 3
    (tmp_path / "mine.toml").write_text("paint_coats = 4")
    assert collect({"experiment": str(tmp_path / "mine.toml")}).model_dump()["paint_coats"] == 4
    assert experiments.make_experiment({}).model_dump()["paint_coats"] == 2


def test_options_change_what_the_experiment_says(tmp_path: Path, btfl: Said) -> None:
    words = ["--clients", "3", "--rounds", "4", "--method", "btfl", "--method", "fedavg", "--test-batch", "8"]
    more = ["--switching", "false", "--split", "redrawn", "--set", "training.batch=16", "--set", "notes=['mine']"]
    btfl("flower", "new", "app", "--preset", "demo", *words, *more, "--time-limit", "30")
    said = config(tmp_path / "app")
    assert said["training"] == {"rounds": 4, "batch": 16}
    assert (said["clients"], said["test_batch"], said["switching"], said["split"]) == (3, 8, False, "redrawn")
    assert said["methods"] == '["btfl", "fedavg"]'
    assert said["name"] == "demo"


def test_an_experiment_that_comes_with_btfl_has_its_name_and_its_first_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert collect({"experiment": "demo"}) == collect({"preset": "demo"})
    assert not capsys.readouterr().err
    chosen = collect({"experiment": "table3", "seed": 5})
    assert (chosen.name, chosen.model, chosen.seed) == ("table3", "cnn", 5)
    assert "first of 3 runs of table3; `btfl reproduce table3` does all" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["bench", "--seed", "1", "--seed", "2"], "--seed is given twice: 1 and 2; give it once"),
        (["train", "--preset", "demo", "--preset=demo"], "--preset is given twice: demo and demo"),
        (["train", "-o", "a", "--out", "b"], "--out is given twice: a and b"),
        (["flower", "new", "app", "--recipe", "ttt", "--recipe", "fedrep"], "--recipe is given twice: ttt and fedrep"),
        (["demo", "-w", "1", "-w", "2", "-w", "3"], "--workers is given 3 times: 1 and 2 and 3"),
        (["report", "here", "--apart", "--apart"], "--apart is given twice; give it once"),
        (["speed", "--memory", "--no-memory"], "--memory is given twice; give it once"),
        (["data", "get", "cifar10", "--from", "a", "--from", "b"], "--from is given twice: a and b"),
        (["zoo", "pack", "run", "name", "--note", "a", "--note", "b"], "--note is given twice: a and b"),
    ],
)
def test_a_single_option_given_twice_is_an_error(words: list[str], expected: str, btfl: Said) -> None:
    assert expected in btfl(*words, ok=False)


def test_no_command_takes_the_last_of_two() -> None:
    for name, command in commands().items():
        with command.make_context(name, ["--help"], resilient_parsing=True) as context:
            options = [each for each in command.get_params(context) if isinstance(each, click.Option)]
            arguments = [each for each in command.get_params(context) if isinstance(each, click.Argument)]
        words = ["1"] * sum(each.required for each in arguments)
        for option in options:
            if option.multiple or option.is_eager or option.is_flag:
                continue
            value = (
                "true"
                if option.type is click.BOOL
                else "0.5"
                if option.name in ("scale", "min_share", "delta", "held_out")
                else "2"
            )
            if isinstance(option.type, click.Choice):
                value = str(option.type.choices[-1])
            elif isinstance(option.type, click.IntRange):
                value = str(max(2, option.type.min or 0))
            others = [each for each in options if each.required and each is not option]
            required = [word for each in others for word in (each.opts[0], "file")]
            with pytest.raises(click.UsageError, match=f"{option.opts[0]} is given twice"):
                command.make_context(name, [*words, *required, *[option.opts[0], value] * 2])


@pytest.mark.parametrize("name", sorted(commands()))
def test_no_help_is_cut_off_at_80_columns(name: str, btfl: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 80)
    assert "…" not in btfl(*name.split(), "--help")


def test_an_option_of_a_dataset_says_where_it_belongs() -> None:
    with pytest.raises(InputError, match=r"label is an option of a dataset: write --set dataset_options\.label="):
        collect({"changes": ["label=species"]})
    assert collect({"changes": ["dataset_options.label=species"]}).dataset_options == {"label": "species"}
    with pytest.raises(UnknownNameError, match="'lable'"):
        collect({"changes": ["lable=species"]})
