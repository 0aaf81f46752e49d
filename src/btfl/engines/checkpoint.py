"""A run that can be interrupted at any moment: after each round the whole state is on disk, and stays consistent.

A checkpoint is the shared weights, the metrics so far and, for every client, the round its private state was last
written in. Private states are files of their own, never overwritten; those no kept checkpoint refers to are swept
away. The last two checkpoints are kept: if the newer is damaged, the run goes on from the one before.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from btfl.errors import StorageError
from btfl.recipes.base import Weights
from btfl.storage import load_record, read_json, save_record, write_json

KIND, PRIVATE_KIND, VERSION = "btfl checkpoint", "btfl private state", 1
_KEPT = 2
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Progress:
    """How far a run has come: everything needed to go on."""

    round: int
    """Rounds completed."""
    shared: Weights
    private: Mapping[int, Weights] = field(default_factory=dict)
    """Private states of the clients that have any."""
    history: tuple[Mapping[str, Any], ...] = ()
    """Metrics of each round."""


class RunFolder:
    """The folder of one run."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._written_in: dict[int, int] = {}  # client -> round of its newest private state

    def begin(self, spec: Mapping[str, Any]) -> None:
        """Write down what this run is, or make sure that the folder holds a run of the very same kind."""
        path = self.folder / "run.json"
        if not path.exists():
            write_json(path, dict(spec))
            return
        found = read_json(path)
        if found != dict(spec):
            differing = sorted(_differences(found, dict(spec)))
            raise StorageError(
                f"{self.folder} holds another run; it differs in {', '.join(differing[:6])}. "
                "Name another folder, or ask for the settings it was started with"
            )

    def save(self, progress: Progress, changed: Mapping[int, Weights]) -> None:
        """Save the state after a round; ``changed`` are the private states the round has changed."""
        for client, private in changed.items():
            save_record(self._private(client, progress.round), "private", PRIVATE_KIND, VERSION, {}, private)
            self._written_in[client] = progress.round
        fields = {
            "round": progress.round,
            "history": [dict(row) for row in progress.history],
            "private": {str(client): round_ for client, round_ in sorted(self._written_in.items())},
        }
        save_record(self._checkpoint(progress.round), "checkpoint", KIND, VERSION, fields, progress.shared)
        self._sweep()

    def load(self) -> Progress | None:
        """Load the newest checkpoint that is whole, or nothing if there is none yet."""
        rounds = sorted(self._rounds(), reverse=True)
        for number in rounds:
            try:
                fields, shared = load_record(self._checkpoint(number), "checkpoint", KIND, VERSION)
                written_in = {int(client): int(round_) for client, round_ in fields["private"].items()}
                private = {
                    client: load_record(self._private(client, round_), "private", PRIVATE_KIND, VERSION)[1]
                    for client, round_ in written_in.items()
                }
            except StorageError as error:
                log.warning("checkpoint of round %d cannot be used, trying the one before: %s", number, error)
                continue
            self._written_in = written_in
            return Progress(fields["round"], shared, private, tuple(fields["history"]))
        if rounds:
            raise StorageError(f"no checkpoint in {self.folder} is whole; delete the folder to start again")
        return None

    def _checkpoint(self, round_: int) -> Path:
        return self.folder / "checkpoints" / f"round-{round_:06d}"

    def _private(self, client: int, round_: int) -> Path:
        return self.folder / "private" / f"client-{client:06d}-round-{round_:06d}"

    def _rounds(self) -> list[int]:
        return [int(path.name.removeprefix("round-")) for path in (self.folder / "checkpoints").glob("round-*")]

    def _sweep(self) -> None:
        """Delete old checkpoints, and private states that none of the kept ones needs."""
        numbers = sorted(self._rounds(), reverse=True)
        needed: set[str] = set()
        for number in numbers[:_KEPT]:
            record = self._checkpoint(number) / "checkpoint.json"
            if record.exists():
                for client, round_ in read_json(record)["fields"]["private"].items():
                    needed.add(self._private(int(client), int(round_)).name)
        for number in numbers[_KEPT:]:
            _remove(self._checkpoint(number))
        for path in (self.folder / "private").glob("client-*"):
            if path.name not in needed:
                _remove(path)


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink(missing_ok=True)
    folder.rmdir()


def _differences(found: Any, wanted: Any, name: str = "") -> list[str]:
    if isinstance(found, dict) and isinstance(wanted, dict):
        return [
            difference
            for key in {*found, *wanted}
            for difference in _differences(found.get(key), wanted.get(key), re.sub(r"^\.", "", f"{name}.{key}"))
        ]
    return [] if found == wanted else [f"{name} ({found!r} there, {wanted!r} asked for)"]
