"""Finding a trained client in what training leaves: a run, a federation, or a client's own folder in it."""

from __future__ import annotations

import re
from pathlib import Path

from btfl.errors import InputError
from btfl.runs.client import DeployedClient
from btfl.runs.trained import TrainedFederation

_RECORD = "federation.json"


def find_client(folder: str | Path, number: int | None = None, recipe: str = "fedavg") -> DeployedClient:
    """Return a client by its number; a client's own folder, ``client-000003`` say, names itself."""
    folder = Path(folder)
    named = re.fullmatch(r"client-(\d+)", folder.name)
    if named and (folder.parent / _RECORD).exists():
        if number is not None and number != int(named[1]):
            raise InputError(f"{folder} is client {int(named[1])}, not {number}: leave --client out")
        folder, number = folder.parent, int(named[1])
    places = [folder, folder / "final", folder / "training" / recipe / "final"]
    place = next((place for place in places if (place / _RECORD).exists()), None)
    if place is None:
        raise InputError(
            f"there is no trained client in {folder}: give a finished run of `btfl bench`, a trained federation (a "
            f"folder with {_RECORD}) or a client's folder in one. Looked for the recipe '{recipe}'{_trained(folder)}"
        )
    federation, number = TrainedFederation.load(place), number or 0
    if not 0 <= number < len(federation.outcomes):
        raise InputError(
            f"there is no client {number}: this federation has clients 0 to {len(federation.outcomes) - 1}"
        )
    return federation.client(number)


def _trained(folder: Path) -> str:
    found = sorted(path.parent.parent.name for path in folder.glob(f"training/*/final/{_RECORD}"))
    return f"; trained here: {', '.join(found)}" if found else ""
