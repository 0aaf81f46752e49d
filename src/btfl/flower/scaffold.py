"""A Flower app as files: a ``pyproject.toml`` that holds the experiment, and the three modules every Flower app has."""

from __future__ import annotations

import json
import re
from pathlib import Path

from btfl.errors import StorageError, UnknownNameError
from btfl.flower.task import FlowerTask, Value
from btfl.recipes.registry import RECIPES
from btfl.storage import write_atomically

_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.26"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
description = "A btfl experiment as a Flower app."
license = "Apache-2.0"
dependencies = ["btfl[flower]"]

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "btfl"

[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

# What is trained. Single values can be changed for a run: flwr run . --run-config 'experiment.training.rounds=5'
[tool.flwr.app.config]
{config}
"""

_MODULES = {
    "__init__.py": '"""A btfl experiment as a Flower app."""\n',
    "task.py": '''\
"""What is trained: the experiment of the run config. Change this to train something of your own."""

from btfl.flower.task import FlowerTask


def read_task(run_config):
    """Return recipe, data and settings."""
    return FlowerTask.from_run_config(run_config)
''',
    "client_app.py": '''\
"""The client: trains, keeps its personal head, describes its data, and ends with its bundle in its own folder."""

from btfl.flower.client_app import make_client_app
from {package}.task import read_task

app = make_client_app(read_task)
''',
    "server_app.py": '''\
"""The server: averages the model, adds up the descriptions, and keeps checkpoints in the run's folder."""

from btfl.flower.server_app import make_server_app
from {package}.task import read_task

app = make_server_app(read_task)
''',
}


def write_app(folder: Path, task: FlowerTask) -> list[Path]:
    """Write the app into a new or empty folder; give the files."""
    if task.recipe not in RECIPES:
        raise UnknownNameError("recipe", task.recipe, RECIPES)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise StorageError(f"{folder} is not empty; name a folder that does not exist yet")
    package = re.sub(r"\W", "_", folder.name.lower())
    package = package if package[:1].isalpha() else f"app_{package}"
    config = "\n".join(f"{_key(key)} = {_toml(value)}" for key, value in task.run_config().items())
    pyproject = _PYPROJECT.format(name=package.replace("_", "-"), package=package, config=config)
    files = {folder / "pyproject.toml": pyproject}
    files |= {folder / package / name: text.format(package=package) for name, text in _MODULES.items()}
    for path, text in files.items():
        write_atomically(path, text.encode())
    return list(files)


def _key(key: str) -> str:
    """Write a dotted key; TOML reads it as tables, and Flower flattens those again."""
    return ".".join(part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else json.dumps(part) for part in key.split("."))


def _toml(value: Value) -> str:
    return json.dumps(value) if isinstance(value, str | bool) else repr(value)
