"""Where a run may take trained weights from, so that nothing is trained again: another run, or an entry of the zoo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from btfl.errors import InputError, StorageError
from btfl.runs.checkpoint import RunFolder, TrainingState, differences
from btfl.runs.layout import RunFiles
from btfl.runs.trained import TrainedFederation

PRIVACY = frozenset(
    (
        "privacy", "epsilon", "delta", "privacy_unit", "update_clip", "clip_quantile", "feature_radius", "client_bound",
        "summary_share", "privacy_noise", "privacy_mechanism", "client_samples", "record_clip",
    )
)  # fmt: skip
"""Settings of differential privacy (``btfl.recipes.privacy``)."""


class Start(Protocol):
    """Where a run may start from."""

    @property
    def name(self) -> str:
        """What it is called."""

    @property
    def experiment(self) -> Mapping[str, Any]:
        """The experiment it was trained for."""

    @property
    def recipes(self) -> Sequence[str]:
        """What was trained."""

    def end_of_training(self, recipe: str) -> tuple[Mapping[str, Any], TrainingState]:
        """Return what was trained and with which settings."""

    def digest(self, recipe: str) -> str:
        """Return the sha256 of the finished federation where it was trained."""


@dataclass(frozen=True)
class RunStart:
    """A finished run of ``btfl bench``."""

    folder: Path
    experiment: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What it is called."""
        return str(self.folder)

    @property
    def recipes(self) -> Sequence[str]:
        """What was trained to the end."""
        return tuple(RunFiles(self.folder).trained())

    def end_of_training(self, recipe: str) -> tuple[Mapping[str, Any], TrainingState]:
        """Return the specification and the last checkpoint of a recipe."""
        folder = RunFiles(self.folder).training(recipe).folder
        return RunFolder(folder).spec() or {}, last_state(folder)

    def digest(self, recipe: str) -> str:
        """Return the sha256 of the federation there."""
        return self.federation(recipe).digest()

    def federation(self, recipe: str) -> TrainedFederation:
        """Return the federation that was trained there with a recipe."""
        return TrainedFederation.load(RunFiles(self.folder).training(recipe).final.folder)


def prepare_training(start: Start, spec: Mapping[str, Any], folder: Path, rounds_of: str | None = None) -> None:
    """Write the weights of a start into a folder as training would have left them.

    Parameters
    ----------
    start : where the weights are
    spec : what the new run trains (``engines.federation.run_spec``)
    folder : of the training of one recipe
    rounds_of : another recipe whose weights serve as well, if the recipe itself was not trained
    """
    recipe = str(spec["recipe"])
    trained = recipe if recipe in start.recipes else rounds_of or recipe
    if trained not in start.recipes:
        raise InputError(
            f"{start.name} was trained with {', '.join(start.recipes)} only, and a method asked for needs '{trained}': "
            "leave that method out, or train your own with `btfl bench` without --from"
        )
    trained_with, state = start.end_of_training(trained)
    if found := sorted(
        differences(trained_with, {**spec, "recipe": trained, "settings": _of_rounds(spec["settings"])})
    ):
        raise InputError(
            f"{start.name} was trained with other settings: {', '.join(found[:6])}. "
            "Take back what you changed, or train your own with `btfl bench` without --from"
        )
    write_checkpoint(state, spec, folder)


def _of_rounds(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that rounds depend on: privacy of the summary alone is a matter of the end."""
    of_the_end = PRIVACY if settings.get("privacy") == "summary" else frozenset()
    return {name: value for name, value in settings.items() if name not in of_the_end}


def last_state(folder: Path) -> TrainingState:
    """Return what the training in this folder ended with."""
    state = RunFolder(folder).load()
    if state is None:
        raise StorageError(f"{folder} no longer has a checkpoint: train it again")
    return state


def write_checkpoint(state: TrainingState, spec: Mapping[str, Any], folder: Path) -> None:
    """Write trained weights where a training of ``spec`` would have left them, unless something is there already."""
    run = RunFolder(folder)
    if run.spec() is None:
        with run.lock():
            run.save(state, state.private)
            run.begin(spec)  # last: a folder that has it is complete, and one that has not is written again


def digest_note(start: Start, recipe: str, federation: TrainedFederation) -> str | None:
    """Return a note if the last bits differ here from those where the federation was trained and finished."""
    if recipe not in start.recipes or federation.digest() == start.digest(recipe):
        return None
    return (
        f"{recipe}: what follows from the weights of {start.name} (likelihoods, sums, fine-tuned copies) differs here "
        "in its last bits from what it was where they were trained, as it may on another processor"
    )
