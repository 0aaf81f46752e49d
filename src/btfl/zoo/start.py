"""A trained federation to start from: a run on disk, or an entry of the zoo. Nothing is trained again.

An entry holds what training ends with: the shared weights and every client's private state, for each recipe. All else
(likelihoods, sums, fine-tuned copies, training features) follows from these and the data in seconds, and is made anew;
so an entry of twenty clients is smaller than a megabyte a recipe. Its card says how, when and where it was trained, and
the sha256 that the finished federation had there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from btfl.core.client import Weights
from btfl.errors import InputError, StorageError, UnknownNameError
from btfl.recipes.base import Recipe
from btfl.recipes.registry import recipe_class
from btfl.runs.checkpoint import Progress, RunFolder, differences
from btfl.runs.saved import load_run
from btfl.runs.trained import TrainedFederation
from btfl.storage import load_record, read_json, save_record, write_json

KIND, RECIPE_KIND, VERSION = "btfl zoo entry", "btfl trained weights", 1
PREFIX, CARD = "zoo:", "card.json"


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

    def end_of_training(self, recipe: str) -> tuple[Mapping[str, Any], Progress]:
        """Return what was trained and with which settings."""

    def digest(self, recipe: str) -> str:
        """Return the sha256 of the finished federation where it was trained."""


@dataclass(frozen=True)
class ZooEntry:
    """An entry of the zoo, in its folder."""

    folder: Path
    card: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{PREFIX}{self.card['name']}"

    @property
    def experiment(self) -> Mapping[str, Any]:
        """The experiment it was trained for."""
        return dict(self.card["experiment"])

    @property
    def recipes(self) -> Sequence[str]:
        """What was trained."""
        return tuple(self.card["recipes"])

    def end_of_training(self, recipe: str) -> tuple[Mapping[str, Any], Progress]:
        """Return the weights of an entry's recipe."""
        fields, arrays = load_record(self.folder, recipe, RECIPE_KIND, VERSION)
        shared: dict[str, Any] = {}
        private: dict[int, dict[str, Any]] = {}
        for name, array in arrays.items():
            owner, _, key = name.partition("/")
            (shared if owner == "shared" else private.setdefault(int(owner), {}))[key] = array
        return fields["spec"], Progress(fields["round"], shared, private, tuple(fields["history"]))

    def digest(self, recipe: str) -> str:
        """Return the sha256 the card records."""
        return str(self.card["recipes"][recipe]["sha256"])

    @classmethod
    def read(cls, folder: Path) -> ZooEntry:
        """Read the card of an entry."""
        card = read_json(folder / CARD)
        if not isinstance(card, dict) or card.get("kind") != KIND or card.get("version") != VERSION:
            raise StorageError(f"{folder / CARD} is not the card of a zoo entry that this btfl can read")
        return cls(folder, card)


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
        """What was trained, to the end."""
        return tuple(sorted(path.parent.name for path in (self.folder / "training").glob("*/final")))

    def end_of_training(self, recipe: str) -> tuple[Mapping[str, Any], Progress]:
        """Return the last checkpoint of a recipe."""
        folder = self.folder / "training" / recipe
        return read_json(folder / "run.json"), last_round(folder)

    def digest(self, recipe: str) -> str:
        """Return the sha256 of the federation there."""
        return TrainedFederation.load(self.folder / "training" / recipe / "final").digest()


def find_start(text: str) -> Start:
    """Find what ``--from`` names: ``zoo:NAME``, the folder of an entry, or the folder of a run."""
    if text.startswith(PREFIX):
        entries, name = {entry.card["name"]: entry for entry in zoo_entries()}, text.removeprefix(PREFIX)
        if name not in entries:
            raise UnknownNameError("entry of the zoo", name, entries)
        return entries[name]
    folder = Path(text)
    if (folder / CARD).exists():
        return ZooEntry.read(folder)
    return RunStart(folder, load_run(folder).record["experiment"])


def zoo_entries() -> list[ZooEntry]:
    """Return the entries that come with btfl."""
    zoo = Path(str(resources.files("btfl.zoo")))
    return [ZooEntry.read(path.parent) for path in sorted(zoo.glob(f"*/{CARD}"))]


def lay(start: Start, recipe: Recipe, spec: Mapping[str, Any], folder: Path) -> None:
    """Put a start's weights where training would have left them; ``spec`` is what the new run is trained with."""
    trained = recipe.name if recipe.name in start.recipes else recipe.rounds_of or recipe.name
    if trained not in start.recipes:
        raise InputError(
            f"{start.name} was trained with {', '.join(start.recipes)} only, and a method asked for needs '{trained}': "
            "leave that method out, or train your own with `btfl bench` without --from"
        )
    trained_with, progress = start.end_of_training(trained)
    if found := sorted(differences(trained_with, {**spec, "recipe": trained})):
        raise InputError(
            f"{start.name} was trained with other settings: {', '.join(found[:6])}. "
            "Take back what you changed, or train your own with `btfl bench` without --from"
        )
    put(progress, spec, folder)


def last_round(folder: Path) -> Progress:
    """Return what the training of a recipe in this folder ended with."""
    progress = RunFolder(folder).load()
    if progress is None:
        raise StorageError(f"{folder} has no checkpoint any more: train it anew")
    return progress


def put(progress: Progress, spec: Mapping[str, Any], folder: Path) -> None:
    """Put trained weights where a training to ``spec`` would have left them, unless something is there already."""
    run = RunFolder(folder)
    if not (folder / "run.json").exists():
        run.save(progress, progress.private)
        run.begin(spec)  # last: a folder that has it is complete, and one that has not is written anew


def pack(run: Path, name: str, into: Path, told: Mapping[str, Any]) -> ZooEntry:
    """Make an entry of the zoo from a finished run; ``told`` is what its card says of commit, date and machine."""
    record = load_run(run).record
    start, folder = RunStart(run, record["experiment"]), into / name
    recipes = {}
    for recipe in start.recipes:
        if recipe_class(recipe).rounds_of in start.recipes:
            continue  # the same weights once more
        spec, progress = start.end_of_training(recipe)
        fields = {"spec": dict(spec), "round": progress.round, "history": [dict(row) for row in progress.history]}
        save_record(folder, recipe, RECIPE_KIND, VERSION, fields, _flat(progress))
        recipes[recipe] = {"rounds": progress.round, "sha256": start.digest(recipe)}
    experiment = {key: value for key, value in start.experiment.items() if key not in ("root", "notes")}
    if record["data"]["shift"] is None:  # the default is whatever is at hand, which may be more elsewhere
        experiment["shift"] = "none"
    card = {"kind": KIND, "version": VERSION, "name": name, "experiment": experiment, "recipes": recipes, **told}
    write_json(folder / CARD, card)
    return ZooEntry.read(folder)


def digest_note(start: Start, recipe: str, federation: TrainedFederation) -> str | None:
    """Say so if the last bits came out otherwise here than where the federation was trained, and finished so."""
    if recipe not in start.recipes or federation.digest() == start.digest(recipe):
        return None
    return (
        f"{recipe}: what follows from the weights of {start.name} (likelihoods, sums, fine-tuned copies) differs here "
        "in its last bits from what it was where they were trained, as it may on another processor"
    )


def _flat(progress: Progress) -> dict[str, Any]:
    private: dict[str, Weights] = {f"{client:06d}": state for client, state in progress.private.items()}
    every = {"shared": progress.shared, **private}
    return {f"{owner}/{key}": array for owner, weights in every.items() for key, array in weights.items()}
