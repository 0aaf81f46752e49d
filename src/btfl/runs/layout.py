"""Where everything of a run is: the one module that knows the names of its files and folders.

RUN/                                        made by ``btfl bench``: ``RunFiles``
  run.json, results.parquet, samples.parquet, speed.json, times.json; the streams as ``data.manifest`` saves them
  .lock and lock.json while it is at work
  training/RECIPE/                          one training: ``TrainingFiles``
    training.json, log.jsonl, tensorboard/; .lock and lock.json while it is at work
    checkpoints/round-000001/               ``checkpoint.json`` and its tensors
    private/client-000000-round-000001/     ``private.json`` and its tensors
    clients/client-000000/                  what a Flower client keeps, if its node names no other folder
    final/                                  the trained federation: ``FederationFiles``
      federation.json, total.json
      client-000000/                        the bundle, and ``network-NAME.json`` of each network of its own
"""

from __future__ import annotations

import re
from pathlib import Path

CHECKPOINT, PRIVATE, FEDERATION, TOTAL = "checkpoint", "private", "federation", "total"
"""Records, each a JSON file and one of tensors (``btfl.storage.save_record``)."""
_NETWORK = "network-"


class RunFiles:
    """The files of a benchmark run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "run.json"  # what was run; written last, so a folder that has it is complete
        self.results = folder / "results.parquet"  # a row for each method, client and stream
        self.samples = folder / "samples.parquet"  # a row for each sample of those
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
    """The files of a trained federation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / f"{FEDERATION}.json"  # written last, so a folder that has it is complete
        self.total = folder / f"{TOTAL}.json"  # the sum over clients of their uploads; btfl 0.1.0 saved none

    def client(self, number: int) -> Path:
        """Return a client's folder."""
        return self.folder / client_name(number)


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
