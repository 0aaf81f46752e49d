"""Entries of the zoo: trained federations to start from, so that nothing is trained again.

An entry holds what training ends with: the shared weights and every client's private state, for each recipe. All else
(likelihoods, sums, fine-tuned copies, training features) follows from these and the data in seconds, and is computed
again; so an entry of twenty clients is smaller than a megabyte for each recipe. Its card says how, when and where it
was trained, and the sha256 that the finished federation had there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from btfl.errors import StorageError, UnknownNameError
from btfl.experiments.experiment import check_name
from btfl.recipes.registry import RECIPES, recipe_class
from btfl.runs.checkpoint import TrainingState
from btfl.runs.saved import load_run
from btfl.runs.start import RunStart, Start
from btfl.storage import load_record, read_described, save_record, write_json

KIND, RECIPE_KIND, VERSION = "btfl zoo entry", "btfl trained weights", 1
PREFIX, CARD = "zoo:", "card.json"


@dataclass(frozen=True, repr=False)
class ZooEntry:
    """An entry of the zoo: a ``Start`` in its folder, described by its card."""

    folder: Path
    card: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"ZooEntry({self.name}: {', '.join(self.recipes)})"

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

    @property
    def clients(self) -> int:
        """How many clients were trained; older cards say what was asked for, which is as many."""
        return int(self.card.get("clients", self.card["experiment"]["clients"]))

    def end_of_training(self, recipe: str) -> tuple[Mapping[str, Any], TrainingState]:
        """Return the specification and the weights of a recipe."""
        fields, arrays = load_record(self.folder, recipe, RECIPE_KIND, VERSION)
        shared: dict[str, Any] = {}
        private: dict[int, dict[str, Any]] = {}
        try:
            for name, array in arrays.items():
                owner, _, key = name.partition("/")
                (shared if owner == "shared" else private.setdefault(int(owner), {}))[key] = array
            return dict(fields["spec"]), TrainingState(fields["round"], shared, private, tuple(fields["history"]))
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"the {recipe} of {self.folder} is damaged: {error!r}") from None

    def digest(self, recipe: str) -> str:
        """Return the sha256 the card records."""
        return str(self.card["recipes"][recipe]["sha256"])

    @classmethod
    def read(cls, folder: Path) -> ZooEntry:
        """Read the card of an entry; one that is damaged, or names files outside the entry, is an error."""
        card = read_described(folder / CARD, KIND, VERSION, ("name", "experiment", "recipes"))
        name, experiment, recipes = card["name"], card["experiment"], card["recipes"]
        if not isinstance(name, str) or not isinstance(experiment, dict) or not isinstance(recipes, dict):
            raise StorageError(f"{folder / CARD} is damaged: it has a name, an experiment and recipes of another kind")
        check_name(name, f"the name in {folder / CARD}")
        for recipe, told in recipes.items():
            if recipe not in RECIPES:  # names of files are made of it
                raise UnknownNameError(f"recipe in {folder / CARD}", recipe, RECIPES)
            if not isinstance(told, dict) or not {"rounds", "sha256"} <= set(told):
                raise StorageError(f"{folder / CARD} is damaged: it does not describe the recipe '{recipe}'")
        return cls(folder, card)


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
    return RunStart(folder, load_run(folder).experiment)


def zoo_entries() -> list[ZooEntry]:
    """Return the entries that come with btfl."""
    zoo = Path(str(resources.files("btfl.zoo")))
    return [ZooEntry.read(path.parent) for path in sorted(zoo.glob(f"*/{CARD}"))]


def pack(run: Path, name: str, into: Path, about: Mapping[str, Any], only: Sequence[str] | None = None) -> ZooEntry:
    """Make an entry of the zoo from a finished run.

    Parameters
    ----------
    run : the run's folder
    name : what the entry is called
    into : the folder of the zoo
    about : what the card says of version, commit, date, machine, and a note
    only : the recipes to pack, of those trained in the run; None: all. Methods that need another one are left out of
        the entry's experiment, so that `btfl bench --from` asks for none that it lacks
    """
    check_name(name, "the name of an entry")
    record = load_run(run).record
    start, folder = RunStart(run, record["experiment"]), into / name
    chosen = tuple(start.recipes if only is None else dict.fromkeys(only))
    for recipe in chosen:
        if recipe not in start.recipes:
            raise UnknownNameError(f"recipe trained in {run}", recipe, start.recipes)
    recipes, clients = {}, 0
    for recipe in chosen:
        if recipe_class(recipe).rounds_of in chosen:
            continue  # the same weights a second time
        spec, state = start.end_of_training(recipe)
        fields = {"spec": dict(spec), "round": state.round, "history": [dict(row) for row in state.history]}
        save_record(folder, recipe, RECIPE_KIND, VERSION, fields, _flat(state))
        federation = start.federation(recipe)
        clients = len(federation.outcomes)
        recipes[recipe] = {"rounds": state.round, "sha256": federation.digest()}
    experiment = {key: value for key, value in start.experiment.items() if key not in ("root", "notes")}
    if set(chosen) != set(start.recipes):
        experiment["methods"] = _methods_on(recipes, record["methods"])
    if record["data"]["shift"] is None:  # the default is whatever is available, which may be more elsewhere
        experiment["shift"] = "none"
    card = {"kind": KIND, "version": VERSION, "name": name, "experiment": experiment, "recipes": recipes, **about}
    write_json(folder / CARD, {**card, "clients": clients})
    return ZooEntry.read(folder)


def _methods_on(recipes: Iterable[str], methods: Iterable[Mapping[str, Any]]) -> list[str]:
    """Name the methods of a run that need no other recipe than these."""
    there = set(recipes)
    return [each["name"] for each in methods if {each["recipe"], recipe_class(each["recipe"]).rounds_of} & there]


def _flat(state: TrainingState) -> dict[str, Any]:
    owners = {"shared": state.shared, **{f"{client:06d}": private for client, private in state.private.items()}}
    return {f"{owner}/{key}": array for owner, weights in owners.items() for key, array in weights.items()}
