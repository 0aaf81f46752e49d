"""A trained federation on disk: the shared network once, each client's bundle and own networks, the sums of all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from btfl.core.bundle import OWN_SUMS, ClientBundle
from btfl.core.calibration import SHAPES
from btfl.core.client import ClientOutcome, Weights
from btfl.core.provenance import KEY, Provenance
from btfl.core.summary import Summary
from btfl.errors import InputError, StorageError
from btfl.runs.client import DeployedClient
from btfl.runs.layout import FEDERATION, TOTAL, FederationFiles, network_record, networks_in
from btfl.runs.schema import FederationFields, check
from btfl.storage import Arrays, load_record, load_version, save_record

KIND, VERSION = "btfl trained federation", 3  # 1: no sums over distorted copies; 2: no calibration
_BEFORE_CALIBRATION = 2
NETWORK_KIND, NETWORK_VERSION = "btfl network", 1
_FOLLOWS = {*SHAPES, OWN_SUMS}
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
    outcomes: tuple[ClientOutcome | None, ...]
    total: Summary | None = None
    provenance: Provenance | None = None

    def __repr__(self) -> str:
        here = sum(outcome is not None for outcome in self.outcomes)
        return (
            f"TrainedFederation({self.spec['recipe']}, {self.spec['settings']['model']}, "
            f"{self.spec['settings']['rounds']} rounds, bundles of {here} of {len(self.outcomes)} clients)"
        )

    def client(self, number: int) -> DeployedClient:
        """Return one client as its device has it."""
        outcome = self.outcome(number)
        return DeployedClient(outcome.bundle, {"global": self.shared, **outcome.networks}, self.model)

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
        class sums, which follow from the rest, so that digests of older versions still compare.
        """
        digest = hashlib.sha256(_digest(self.shared))
        for number in range(len(self.outcomes)):
            digest.update(_digest(_arrays(self.outcome(number))))
        return digest.hexdigest()

    def save(self, folder: str | Path) -> None:
        """Save; the record of the federation comes last, so a folder that has one is complete."""
        files = FederationFiles(Path(folder))
        for number, outcome in enumerate(self.outcomes):
            if outcome is not None:
                save_outcome(files.client(number), outcome)
        if self.total is None:
            files.total.unlink(missing_ok=True)  # of another federation that was saved here
        else:
            save_record(files.folder, TOTAL, TOTAL_KIND, TOTAL_VERSION, {}, self.total.to_arrays())
        networks = [None if outcome is None else sorted(outcome.networks) for outcome in self.outcomes]
        fields: dict[str, Any] = {"spec": dict(self.spec), "networks": networks}
        if self.provenance is not None:
            fields[KEY] = self.provenance.as_dict()
        save_record(files.folder, FEDERATION, KIND, VERSION, fields, self.shared)

    @staticmethod
    def is_saved(folder: str | Path) -> bool:
        """Return whether a folder holds a federation, complete with every client, as this btfl saves it."""
        path = FederationFiles(Path(folder)).record
        return path.exists() and load_version(path) == VERSION

    @classmethod
    def load(cls, folder: str | Path) -> TrainedFederation:
        """Load a saved federation."""
        files = FederationFiles(Path(folder))
        older = files.record.exists() and load_version(files.record) == _BEFORE_CALIBRATION
        fields, shared = load_record(files.folder, FEDERATION, KIND, _BEFORE_CALIBRATION if older else VERSION)
        check(FederationFields, fields, files.record)
        outcomes = [
            None if names is None else load_outcome(files.client(number), names)
            for number, names in enumerate(fields["networks"])
        ]
        total = None
        if files.total.exists():
            arrays = load_record(files.folder, TOTAL, TOTAL_KIND, TOTAL_VERSION)[1]
            try:
                total = Summary.from_arrays(arrays)
            except InputError as error:
                raise StorageError(f"{files.total} does not fit together: {error}") from None
        provenance = Provenance.from_dict(fields[KEY]) if KEY in fields else None
        return cls(fields["spec"], shared, tuple(outcomes), total, provenance)


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
