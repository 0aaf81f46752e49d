"""A trained federation on disk: the shared network once, and each client's bundle and own networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from btfl.adapters.client import DeployedClient
from btfl.bundle import ClientBundle
from btfl.recipes.base import ClientOutcome, Weights
from btfl.storage import load_record, save_record

KIND, NETWORK_KIND, VERSION = "btfl trained federation", "btfl network", 1


@dataclass(frozen=True, eq=False)
class TrainedFederation:
    """What is left when training ends; everything after it needs no federation."""

    spec: Mapping[str, Any]
    """What it was trained with: the recipe's settings, and the data's."""
    shared: Weights
    outcomes: tuple[ClientOutcome, ...]

    def client(self, number: int) -> DeployedClient:
        """Give one client as its device has it."""
        outcome, settings = self.outcomes[number], self.spec["settings"]
        model = {
            "name": settings["model"],
            "options": settings["model_options"],
            "image_shape": tuple(self.spec["image_shape"]),
            "classes": self.spec["classes"],
        }
        return DeployedClient(outcome.bundle, {"global": self.shared, **outcome.networks}, model)

    def save(self, folder: str | Path) -> None:
        """Save; the record of the federation comes last, so a folder that has one is complete."""
        folder = Path(folder)
        for number, outcome in enumerate(self.outcomes):
            place = folder / f"client-{number:06d}"
            outcome.bundle.save(place)
            for name, weights in outcome.networks.items():
                save_record(place, f"network-{name}", NETWORK_KIND, VERSION, {}, weights)
        networks = [sorted(outcome.networks) for outcome in self.outcomes]
        save_record(folder, "federation", KIND, VERSION, {"spec": dict(self.spec), "networks": networks}, self.shared)

    @classmethod
    def load(cls, folder: str | Path) -> TrainedFederation:
        """Load a saved federation."""
        folder = Path(folder)
        fields, shared = load_record(folder, "federation", KIND, VERSION)
        outcomes = []
        for number, names in enumerate(fields["networks"]):
            place = folder / f"client-{number:06d}"
            networks = {name: load_record(place, f"network-{name}", NETWORK_KIND, VERSION)[1] for name in names}
            outcomes.append(ClientOutcome(ClientBundle.load(place), networks))
        return cls(fields["spec"], shared, tuple(outcomes))
