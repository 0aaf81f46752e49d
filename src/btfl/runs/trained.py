"""A trained federation on disk: the shared network once, each client's bundle and own networks, the sums of all."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, overload

import numpy as np

from btfl.core.bundle import OWN_SCATTER, OWN_SUMS, ClientBundle
from btfl.core.calibration import SHAPES
from btfl.core.client import ClientOutcome, Weights
from btfl.core.provenance import KEY, Provenance
from btfl.core.summary import Summary
from btfl.errors import InputError, StorageError
from btfl.runs.client import DeployedClient
from btfl.runs.layout import (
    FEDERATION,
    TOTAL,
    FederationFiles,
    inside_name,
    is_inside,
    network_record,
    networks_in,
)
from btfl.runs.schema import FederationFields, check
from btfl.storage import Arrays, load_record, load_version, read_described, save_record

KIND, VERSION = "btfl trained federation", 3  # 1: no sums over distorted copies; 2: no calibration
_BEFORE_CALIBRATION = 2
NETWORK_KIND, NETWORK_VERSION = "btfl network", 1
_FOLLOWS = {*SHAPES, OWN_SUMS, OWN_SCATTER}
TOTAL_KIND, TOTAL_VERSION = "btfl total over clients", 1


@dataclass(frozen=True, eq=False, repr=False)
class TrainedFederation:
    """What is left when training ends; everything after it needs no federation.

    Parameters
    ----------
    spec : what it was trained with: the recipe's settings, and the data's
    shared : weights that the server has
    outcomes : by client; None: the client failed when the run ended, or keeps its bundle on its own device
    total : the total of all clients' summaries; None if btfl 0.1.0 trained it
    provenance : which training it is, after which round; None if an older btfl trained it

    Example: ``TrainedFederation.load("runs/demo/training/fedavg/final").client(0).bundle``
    """

    spec: Mapping[str, Any]
    shared: Weights
    outcomes: Sequence[ClientOutcome | None]
    total: Summary | None = None
    provenance: Provenance | None = None

    def __repr__(self) -> str:
        here = len(self.outcomes) - len(self.missing)
        return (
            f"TrainedFederation({self.spec['recipe']}, {self.spec['settings']['model']}, "
            f"{self.spec['settings']['rounds']} rounds, bundles of {here} of {len(self.outcomes)} clients)"
        )

    def client(self, number: int) -> DeployedClient:
        """Return one client as its device has it."""
        outcome = self.outcome(number)
        return DeployedClient(outcome.bundle, {"global": self.shared, **outcome.networks}, self.model)

    @property
    def missing(self) -> list[int]:
        """The clients whose bundles are not here."""
        if isinstance(self.outcomes, SavedOutcomes):
            return self.outcomes.missing
        return [number for number, outcome in enumerate(self.outcomes) if outcome is None]

    @property
    def model(self) -> dict[str, Any]:
        """How to build a network for its weights, and what comes before it (``DeployedClient.model``)."""
        settings, told = self.spec["settings"], self.spec.get("data", {})
        return {
            "name": settings["model"],
            "options": settings["model_options"],
            "image_shape": tuple(self.spec["image_shape"]),
            "classes": self.spec["classes"],
            **{name: told[name] for name in ("scaling", "backbone") if name in told},
        }

    def outcome(self, number: int) -> ClientOutcome:
        """Return what one client is left with, or say that it is not here."""
        outcome = self.outcomes[number]
        if outcome is None:
            raise InputError(
                f"the bundle of client {number} is not here: the client failed when the run ended (run it again), "
                "or keeps it on its own device"
            )
        return outcome

    def digest(self) -> str:
        """Return the sha256 over all final weights, heads, likelihoods and statistics, of the server and every client.

        The total is no part of it: every bundle holds what follows from it. Nor are the calibration and a client's own
        sums, which follow from the rest, so that digests of older versions still compare.
        """
        digest = hashlib.sha256(_digest(self.shared))
        for number in range(len(self.outcomes)):
            digest.update(_digest(_arrays(self.outcome(number))))
        return digest.hexdigest()

    def save(self, folder: str | Path) -> None:
        """Save; the record of the federation comes last, so a folder that has one is complete.

        If it takes the place of another one there, that one is whole until then, and is removed afterwards.
        """
        writer = FederationWriter(Path(folder), int(self.spec["settings"]["rounds"]))
        for number, outcome in enumerate(self.outcomes):
            writer.add(number, outcome)
        writer.finish(self)

    @staticmethod
    def is_saved(folder: str | Path) -> bool:
        """Return whether a folder holds a federation, complete with every client, as this btfl saves it."""
        path = FederationFiles(Path(folder)).record
        return path.exists() and load_version(path) == VERSION

    @classmethod
    def load(cls, folder: str | Path) -> TrainedFederation:
        """Load a saved federation."""
        record = FederationFiles(Path(folder)).record
        older = record.exists() and load_version(record) == _BEFORE_CALIBRATION
        fields, shared = load_record(record.parent, FEDERATION, KIND, _BEFORE_CALIBRATION if older else VERSION)
        check(FederationFields, fields, record)
        files = FederationFiles(record.parent, _inside(fields, record))
        outcomes = SavedOutcomes(files, fields["networks"])
        total = None
        if files.total.exists():
            arrays = load_record(files.place, TOTAL, TOTAL_KIND, TOTAL_VERSION)[1]
            try:
                total = Summary.from_arrays(arrays)
            except InputError as error:
                raise StorageError(f"{files.total} does not fit together: {error}") from None
        provenance = Provenance.from_dict(fields[KEY]) if KEY in fields else None
        return cls(fields["spec"], shared, outcomes, total, provenance)

    @staticmethod
    def saved_rounds(folder: str | Path) -> int:
        """Return after how many rounds the federation in a folder was saved."""
        record = FederationFiles(Path(folder)).record
        fields = read_described(record, KIND, VERSION, ("fields",))["fields"]
        check(FederationFields, fields, record)
        return int(fields["spec"]["settings"]["rounds"])


class SavedOutcomes(Sequence[ClientOutcome | None]):
    """What clients are left with, on disk until it is asked for: memory does not grow with their number."""

    def __init__(self, files: FederationFiles, networks: Sequence[Sequence[str] | None]) -> None:
        self._files, self._networks = files, tuple(networks)

    @property
    def missing(self) -> list[int]:
        """The clients of which nothing is here."""
        return [number for number, names in enumerate(self._networks) if names is None]

    def __len__(self) -> int:
        return len(self._networks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(other) == len(self) and all(
            one is None and two is None for one, two in zip(self._networks, other, strict=True)
        )  # fmt: skip

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, place: int) -> ClientOutcome | None: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[ClientOutcome | None, ...]: ...

    def __getitem__(self, place: int | slice) -> ClientOutcome | tuple[ClientOutcome | None, ...] | None:
        if isinstance(place, slice):
            return tuple(self[number] for number in range(*place.indices(len(self))))
        number = range(len(self))[place]
        names = self._networks[number]
        return None if names is None else load_outcome(self._files.client(number), names)


class FederationWriter:
    """Saves a federation client by client; nothing counts before ``finish``.

    Parameters
    ----------
    folder : of the federation; one that is there already stays whole until this one is finished
    rounds : that were trained
    """

    def __init__(self, folder: Path, rounds: int) -> None:
        record, inside = FederationFiles(folder).record, ""
        if record.exists():
            taken = FederationFiles.current(folder).inside
            inside = next(name for n in count() if (name := inside_name(rounds, n)) != taken)
        self._files, self._networks = FederationFiles(folder, inside), dict[int, list[str] | None]()

    def add(self, number: int, outcome: ClientOutcome | None) -> None:
        """Save what a client is left with; None: it is not here."""
        self._networks[number] = None if outcome is None else sorted(outcome.networks)
        if outcome is not None:
            save_outcome(self._files.client(number), outcome)

    @property
    def outcomes(self) -> SavedOutcomes:
        """What was saved so far, in the order of the clients."""
        return SavedOutcomes(self._files, [names for _, names in sorted(self._networks.items())])

    def finish(self, federation: TrainedFederation) -> None:
        """Write the total and the record, and remove what took their place before."""
        files = self._files
        if federation.total is None:
            files.total.unlink(missing_ok=True)  # of another federation that was saved here
        else:
            save_record(files.place, TOTAL, TOTAL_KIND, TOTAL_VERSION, {}, federation.total.to_arrays())
        networks = [names for _, names in sorted(self._networks.items())]
        fields: dict[str, Any] = {"spec": dict(federation.spec), "networks": networks}
        if files.inside:
            fields["inside"] = files.inside
        if federation.provenance is not None:
            fields[KEY] = federation.provenance.as_dict()
        save_record(files.folder, FEDERATION, KIND, VERSION, fields, federation.shared)
        for path in files.others():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def _inside(fields: Mapping[str, Any], record: Path) -> str:
    name = fields.get("inside", "")
    if not isinstance(name, str) or not is_inside(name):
        raise StorageError(f"{record} is damaged: it names the folder {name!r}")
    return name


def save_outcome(folder: Path, outcome: ClientOutcome) -> None:
    """Save what one client is left with; the bundle comes last, so a folder that has one is complete."""
    for name, weights in outcome.networks.items():
        save_record(folder, network_record(name), NETWORK_KIND, NETWORK_VERSION, {}, weights)
    outcome.bundle.save(folder)


def load_outcome(folder: Path, networks: Sequence[str] | None = None) -> ClientOutcome:
    """Load what one client is left with; networks: those that must be there, or None for those that are."""
    names = networks_in(folder) if networks is None else networks
    bundle = ClientBundle.load(folder)
    return ClientOutcome(
        bundle, {name: load_record(folder, network_record(name), NETWORK_KIND, NETWORK_VERSION)[1] for name in names}
    )


def _arrays(outcome: ClientOutcome) -> Arrays:
    bundle = outcome.bundle
    likelihoods = {"local": bundle.local_likelihood, "global": bundle.global_likelihood}
    heads = {"personal": bundle.personal_head, "global": bundle.global_head}
    networks = outcome.networks
    return {
        **{f"head.{key}.weight": head.weight for key, head in heads.items()},
        **{f"head.{key}.bias": head.bias for key, head in heads.items() if head.bias is not None},
        **{f"likelihood.{key}": one.frequencies for key, one in likelihoods.items()},
        **{f"likelihood.{key}.size": np.array([one.count, one.clients]) for key, one in likelihoods.items()},
        "entropies": np.array([bundle.local_entropy, bundle.global_entropy]),
        **{f"statistics.{key}": array for key, array in bundle.statistics.items() if key not in _FOLLOWS},
        **{f"network.{name}.{key}": array for name in networks for key, array in networks[name].items()},
    }


def _digest(arrays: Arrays) -> bytes:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        array = np.asarray(arrays[name], order="C")  # ascontiguousarray would make a scalar a vector
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.digest()
