"""``btfl flower new`` writes an app that says the same as the experiment; and what is said without Flower."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from btfl.engines import FaultSettings
from btfl.errors import BtflError, StorageError, UnknownNameError
from btfl.experiments.experiment import make_experiment
from btfl.experiments.files import read_preset
from btfl.flower import need_flower
from btfl.flower.scaffold import write_app
from btfl.flower.task import FlowerTask, Value

EXPERIMENT = make_experiment({**read_preset("demo"), "clients": 2, "training": {"rounds": 3}})
TASK = FlowerTask.of(EXPERIMENT, "balanced", "the-run", FaultSettings(min_share=0.75, time_limit=30.0))


def flattened(table: dict[str, object], prefix: str = "") -> dict[str, Value]:
    """What Flower makes of a run config."""
    flat: dict[str, Value] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            flat.update(flattened(value, f"{prefix}{key}."))
        else:
            assert isinstance(value, bool | int | float | str)
            flat[f"{prefix}{key}"] = value
    return flat


def test_the_app_says_the_same_as_the_experiment(tmp_path: Path) -> None:
    files = write_app(tmp_path / "My app", TASK)
    app = tomllib.loads((tmp_path / "My app" / "pyproject.toml").read_text())
    config = app["tool"]["flwr"]["app"]
    assert FlowerTask.from_run_config(flattened(config["config"])) == TASK
    assert config["components"] == {"serverapp": "my_app.server_app:app", "clientapp": "my_app.client_app:app"}
    for path in files[1:]:
        compile(path.read_text(), str(path), "exec")


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(StorageError, match="not empty"):
        write_app(tmp_path, TASK)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_unknown_recipe_is_found_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="fedavg"):
        write_app(tmp_path / "app", FlowerTask.of(EXPERIMENT, "fedavgg", "run", FaultSettings()))
    assert not (tmp_path / "app").exists()


def test_without_flower_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BtflError, match=r"pip install 'btfl\[flower\]'"):
        need_flower()


@pytest.mark.skipif(importlib.util.find_spec("flwr") is not None, reason="Flower is installed")
def test_simulating_without_flower_ends_in_a_sentence() -> None:
    command = [sys.executable, "-c", "from btfl.cli import main; main()", "flower", "simulate", "--preset", "demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.strip() == "btfl: Flower is not installed; get it with: pip install 'btfl[flower]'"
