"""Finding a trained client in what training leaves: a run, a federation, or a client's own folder in it."""

from __future__ import annotations

from pathlib import Path

from btfl.errors import InputError
from btfl.runs.client import DeployedClient
from btfl.runs.layout import FederationFiles, RunFiles, TrainingFiles, client_number
from btfl.runs.trained import TrainedFederation


def find_client(folder: str | Path, number: int | None = None, recipe: str = "fedavg") -> DeployedClient:
    """Return a trained client.

    Parameters
    ----------
    folder : of a run, a training, a trained federation, or a client in one (``client-000003`` for example)
    number : which client; None: the first, or the one whose folder it is
    recipe : which training of a run
    """
    folder = Path(folder)
    own = client_number(folder)
    around = next((place for place in folder.parents[:2] if FederationFiles(place).record.exists()), None)
    if own is not None and around is not None:
        if number is not None and number != own:
            raise InputError(f"{folder} is client {own}, not {number}: leave --client out")
        folder, number = around, own
    federation, number = federation_in(folder, recipe), number or 0
    if not 0 <= number < len(federation.outcomes):
        raise InputError(
            f"there is no client {number}: this federation has clients 0 to {len(federation.outcomes) - 1}"
        )
    return federation.client(number)


def federation_in(folder: Path, recipe: str = "fedavg") -> TrainedFederation:
    """Return the trained federation in a folder: its own, a training's, or a run's."""
    places = [FederationFiles(folder), TrainingFiles(folder).final, RunFiles(folder).training(recipe).final]
    place = next((place for place in places if place.record.exists()), None)
    if place is None:
        trained = ", ".join(RunFiles(folder).trained())
        raise InputError(
            f"there is no trained client in {folder}: give a finished run of `btfl bench`, a trained federation (a "
            f"folder with {places[0].record.name}) or a client's folder in one. Looked for the recipe '{recipe}'"
            + (f"; trained here: {trained}" if trained else "")
        )
    return TrainedFederation.load(place.folder)
