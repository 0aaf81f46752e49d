"""Experiments as TOML files: those that come with btfl, by name, and a person's own, by path. All have one schema.

Settings of the experiment (``btfl.experiments.experiment.Experiment``) stand at the top level; beside them a file may
have what ``ExperimentFile`` lists. Files that come with btfl are in the folders of this package:

- ``presets/``: demo, quick, paper
- ``paper/``: the paper's tables and figures, table1 to table7 and figure1 to figure6
- ``results/``: what the results that are kept in the repository were made with
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from btfl.errors import InputError, StorageError, UnknownNameError
from btfl.experiments.experiment import Experiment
from btfl.experiments.fields import checked

_SUFFIX = ".toml"


class ExperimentFile(BaseModel):
    """An experiment as its file says it.

    >>> read_experiment("table3").runs
    ({'model': 'cnn'}, {'model': 'resnet20'}, {'model': 'cct4'})
    """

    model_config = ConfigDict(frozen=True)

    name: str
    values: dict[str, Any] = Field(description="Settings of the experiment.")
    title: str = Field("", description="What it shows, in a line.")
    paper: str = Field("", description="The table or figure of the paper that it is for.")
    seeds: tuple[int, ...] = Field((), description="Random seeds to run it with.")
    runs: tuple[dict[str, Any], ...] = Field(({},), description="Settings that each run changes.", min_length=1)
    speed: bool = Field(False, description="Whether adapting is timed too.")
    drawing: bool = Field(False, description="Whether it is a drawing, with nothing to run.")

    def first(self) -> dict[str, Any]:
        """Return the settings of its first run, with its first seed."""
        if self.drawing:
            raise InputError(f"{self.name} is a drawing ({self.title}): there is nothing to run")
        return {**self.values, **self.runs[0], **({"seed": self.seeds[0]} if self.seeds else {})}


_BESIDE = tuple(name for name in ExperimentFile.model_fields if name not in ("name", "values"))


def experiment_names() -> list[str]:
    """Name the experiments that come with btfl."""
    return sorted(_shipped())


def read_experiment(name: str | Path) -> ExperimentFile:
    """Read an experiment that comes with btfl, by its name, or a TOML file, by its path."""
    path = _shipped().get(str(name))
    if path is None:
        path = Path(name)
        if path.is_dir():
            raise InputError(
                f"{name} is a folder, not an experiment: to start from a finished run use --from {name}, and "
                f"`btfl train {name} --rounds N` goes on with one"
            )
        if path.suffix != _SUFFIX and not path.is_file():
            raise UnknownNameError("experiment", str(name), experiment_names())
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        hint = f"; btfl has an experiment '{path.stem}' of its own" if path.stem in _shipped() else ""
        raise StorageError(f"{path} does not exist{hint}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not valid TOML, which is text in UTF-8: save it as that") from None
    except (ValueError, RecursionError) as error:  # of tomllib, and of int() for a number of 5,000 digits
        raise InputError(f"{path} is not valid TOML: {error}") from None
    beside = {key: content.pop(key) for key in _BESIDE if key in content}
    found = checked(ExperimentFile, {"name": path.stem, "values": content, **beside}, str(path))
    _check_names(path, content, [*Experiment.model_fields, *_BESIDE])
    for run in found.runs:
        _check_names(path, run, Experiment.model_fields)
    return found


def read_preset(name: str) -> dict[str, Any]:
    """Return the settings of an experiment that comes with btfl."""
    if name not in _shipped():
        raise UnknownNameError("preset", name, experiment_names())
    return read_experiment(name).first()


def _check_names(path: Path, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise UnknownNameError(f"setting in {path}", name, known)


def _shipped() -> dict[str, Path]:
    folder = Path(str(resources.files("btfl.experiments")))
    return {path.stem: path for path in folder.glob(f"*/*{_SUFFIX}")}
