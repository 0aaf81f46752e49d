"""Where everything of a run is: the one module that knows the names of its files and folders.

RUN/                                        made by ``btfl bench``: ``RunFiles``
  run.json, results.parquet, samples.parquet, unseen.parquet, clients.csv, speed.json, times.json; the streams as
  ``data.manifest`` saves them
  .lock and lock.json while it is at work
  training/RECIPE/                          one training: ``TrainingFiles``
    training.json, log.jsonl, tensorboard/; .lock and lock.json while it is at work
    nodes.json                              which Flower node is which client, if nodes are bound
    checkpoints/round-000001/               ``checkpoint.json`` and its tensors
    private/client-000000-round-000001/     ``private.json`` and its tensors
    clients/client-000000/                  what a Flower client keeps, if its node names no other folder
    final/                                  the trained federation: ``FederationFiles``
      federation.json, total.json
      client-000000/                        the bundle, and ``network-NAME.json`` of each network of its own
      after-000025/                         where more rounds were trained: clients and total in place of those above
"""

from __future__ import annotations

import re
from pathlib import Path

from btfl.errors import StorageError
from btfl.storage import read_json

CHECKPOINT, PRIVATE, FEDERATION, TOTAL = "checkpoint", "private", "federation", "total"
"""Records, each a JSON file and one of tensors (``btfl.storage.save_record``)."""
_NETWORK = "network-"
_AFTER = "after-"


class RunFiles:
    """The files of a benchmark run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "run.json"  # what was run; written last, so a folder that has it is complete
        self.results = folder / "results.parquet"  # a row for each method, client and stream
        self.samples = folder / "samples.parquet"  # a row for each sample of those
        self.clients = folder / "clients.csv"  # names of natural clients, and how many samples each has
        self.experiment = folder / "experiment.json"  # what `btfl train` was asked for, so that it can go on
        self.unseen = folder / "unseen.parquet"  # as results, of clients that were held out: a row for each level, too
        self.lock = folder / ".lock"  # there while `btfl bench` is at work in the folder (``runs.lock``)
        self.holder = folder / "lock.json"  # who that is
        self.costs = folder / "speed.json"  # what adapting cost, where it was measured
        self.times = folder / "times.json"  # how long each method took in this run

    @property
    def all_trainings(self) -> Path:
        """The folder that has one for each recipe."""
        return self.folder / "training"

    def training(self, recipe: str) -> TrainingFiles:
        """Return the files of the training of a recipe."""
        return TrainingFiles(self.all_trainings / recipe)

    def trained(self) -> dict[str, FederationFiles]:
        """Return the federations that were trained to the end, by recipe."""
        found = sorted(self.all_trainings.glob(f"*/final/{FEDERATION}.json"))
        return {path.parent.parent.name: FederationFiles(path.parent) for path in found}


class TrainingFiles:
    """The files of one training."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "training.json"  # what determines the outcome: recipe, settings, data
        self.older_record = folder / "run.json"  # the same as btfl 0.1.0 wrote it, without a kind and a version
        self.lock = folder / ".lock"  # there while a training is at work in the folder (``runs.lock``)
        self.holder = folder / "lock.json"  # who that is
        self.log = folder / "log.jsonl"  # what happened, a line of JSON each
        self.nodes = folder / "nodes.json"  # which Flower node is which client, if nodes are bound
        self.privacy = folder / "privacy.json"  # what was released with differential privacy, where it is
        self.tensorboard = folder / "tensorboard"
        self.clients = folder / "clients"  # what Flower clients keep, if their nodes name no other folder
        self.final = FederationFiles(folder / "final")
        self.checkpoints, self.private_states = folder / "checkpoints", folder / "private"

    def checkpoint(self, round_: int) -> Path:
        """Return the folder of a round's checkpoint."""
        return self.checkpoints / f"round-{round_:06d}"

    def rounds(self) -> list[int]:
        """Return the rounds that have a checkpoint, the last one first; one without its JSON was never completed."""
        found = (re.fullmatch(r"round-(\d{6,12})", path.name) for path in self.all_checkpoints())
        numbers = sorted((int(named[1]) for named in found if named), reverse=True)
        return [number for number in numbers if self.checkpoint_record(number).exists()]

    def checkpoint_record(self, round_: int) -> Path:
        """Return the JSON of a round's checkpoint."""
        return self.checkpoint(round_) / f"{CHECKPOINT}.json"

    def all_checkpoints(self) -> list[Path]:
        """Return the folders of all checkpoints, complete or not."""
        return list(self.checkpoints.glob("round-*"))

    def private(self, client: int, round_: int) -> Path:
        """Return the folder of the private state that a client had after a round."""
        return self.private_states / f"{client_name(client)}-round-{round_:06d}"

    def all_private(self) -> list[Path]:
        """Return the folders of all private states."""
        return list(self.private_states.glob("client-*"))


class FederationFiles:
    """The files of a trained federation.

    Where one takes the place of another, clients and total lie in a folder of their own, ``inside``, which the record
    names: replacing the record is the one step that makes them count.
    """

    def __init__(self, folder: Path, inside: str = "") -> None:
        self.folder, self.inside = folder, inside
        self.record = folder / f"{FEDERATION}.json"  # written last, so a folder that has it is complete
        self.total = self.place / f"{TOTAL}.json"  # the sum over clients of their uploads; btfl 0.1.0 saved none

    @classmethod
    def current(cls, folder: Path) -> FederationFiles:
        """Return the files of the federation that is in a folder now; a record that cannot be read names none."""
        record = cls(folder).record
        try:
            name = read_json(record)["fields"].get("inside", "")
        except (StorageError, LookupError, TypeError, AttributeError):
            name = ""
        return cls(folder, name if isinstance(name, str) and is_inside(name) else "")

    @property
    def place(self) -> Path:
        """The folder of clients and total."""
        return self.folder / self.inside if self.inside else self.folder

    def client(self, number: int) -> Path:
        """Return a client's folder."""
        return self.place / client_name(number)

    def others(self) -> list[Path]:
        """Return what lies beside the record and is not named by it: clients, totals and folders of an earlier one."""
        found = [*self.folder.glob("client-*"), *self.folder.glob(f"{TOTAL}*")] if self.inside else []
        return found + [path for path in self.folder.glob(f"{_AFTER}*") if path.name != self.inside]


def inside_name(round_: int, number: int = 0) -> str:
    """Name the folder of a federation that takes another's place, after so many rounds."""
    return f"{_AFTER}{round_:06d}" + (f"-{number}" if number else "")


def is_inside(name: str) -> bool:
    """Return whether a record may name this folder: one of ours, and none that leads elsewhere."""
    return name == "" or re.fullmatch(rf"{_AFTER}\d{{6,12}}(-\d{{1,6}})?", name) is not None


def client_name(number: int) -> str:
    """Name a client's folder: ``client-000003``."""
    return f"client-{number:06d}"


def client_number(folder: Path) -> int | None:
    """Return the number of the client whose folder this is; None if it is no client's."""
    named = re.fullmatch(r"client-(\d+)", folder.name)
    return int(named[1]) if named else None


def network_record(name: str) -> str:
    """Name the record of a network in a client's folder."""
    return f"{_NETWORK}{name}"


def networks_in(folder: Path) -> list[str]:
    """Name the networks in a client's folder."""
    return sorted(path.stem.removeprefix(_NETWORK) for path in folder.glob(f"{_NETWORK}*.json"))
