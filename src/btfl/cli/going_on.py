"""What a training was asked for, kept beside it so that it can go on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from btfl.experiments.experiment import Experiment

KIND, VERSION = "btfl experiment", 1


def save_experiment(folder: Path, experiment: Experiment) -> None:
    """Write what was trained in a folder, or what its training has become after more rounds."""
    from btfl.runs.layout import RunFiles
    from btfl.storage import sealed, write_json

    content = {"kind": KIND, "version": VERSION, "experiment": experiment.model_dump(mode="json", exclude_unset=True)}
    write_json(RunFiles(folder).experiment, sealed(content))


def load_experiment(folder: Path) -> Experiment:
    """Return what was trained in a folder; one that does not say is an ``InputError``."""
    from btfl.errors import InputError
    from btfl.experiments.experiment import make_experiment
    from btfl.runs.layout import RunFiles
    from btfl.runs.saved import load_run
    from btfl.storage import read_described

    files = RunFiles(folder)
    if files.experiment.exists():
        return make_experiment(dict(read_described(files.experiment, KIND, VERSION, ("experiment",))["experiment"]))
    if files.record.exists():
        return make_experiment(dict(load_run(folder).experiment))
    raise InputError(
        f"{folder} does not say which experiment it was trained for, as an older btfl trained it: give the command "
        "that trained it once more, and then this one"
    )
