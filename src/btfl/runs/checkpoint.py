"""A run that can be interrupted at any moment: after each round the whole state is on disk, and stays consistent.

A checkpoint is the shared weights, the metrics so far and, for every client, the round its private state was last
written in. Private states are files of their own, never overwritten; those no kept checkpoint refers to are swept
away. The last two checkpoints are kept: if the newer is damaged, the run goes on from the one before.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from btfl.core.client import Weights
from btfl.errors import StorageError
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
        self.check(spec)
        if not (self.folder / "run.json").exists():
            write_json(self.folder / "run.json", dict(spec))

    def check(self, spec: Mapping[str, Any]) -> None:
        """Refuse a folder that holds a run of another kind, and name the differences."""
        path = self.folder / "run.json"
        if not path.exists():
            return
        found = read_json(path)
        if found != dict(spec):
            differing = sorted(differences(found, dict(spec)))
            raise StorageError(
                f"{self.folder} holds another run; it differs in {', '.join(differing[:6])}. "
                "Name another folder, or ask for the settings it was started with"
            )

    def save(self, progress: Progress, changed: Mapping[int, Weights]) -> Progress:
        """Save the state after a round; ``changed`` are the private states the round has changed.

        Given back is the same state with private states that are read from here when they are asked for.
        """
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
        return replace(progress, private=_PrivateStates(self, self._written_in))

    def load(self, warn: Callable[[int, str], None] = lambda round_, sentence: None) -> Progress | None:
        """Load the newest checkpoint that is whole, or nothing if there is none yet.

        ``warn`` is told of each round whose checkpoint cannot be used, and why.
        """
        rounds = sorted(self._rounds(), reverse=True)
        for number in rounds:
            try:
                fields, shared = load_record(self._checkpoint(number), "checkpoint", KIND, VERSION)
                written_in = {int(client): int(round_) for client, round_ in fields["private"].items()}
                for client, round_ in written_in.items():
                    self.load_private(client, round_)  # only to see that it is whole
            except StorageError as error:
                sentence = f"checkpoint of round {number} cannot be used, trying the one before: {error}"
                log.warning(sentence)
                warn(number, sentence)
                continue
            self._written_in = written_in
            return Progress(fields["round"], shared, _PrivateStates(self, written_in), tuple(fields["history"]))
        if rounds:
            raise StorageError(f"no checkpoint in {self.folder} is whole; delete the folder to start again")
        return None

    def load_private(self, client: int, round_: int) -> Weights:
        """Load the private state a client had after a round."""
        return load_record(self._private(client, round_), "private", PRIVATE_KIND, VERSION)[1]

    def last_metrics(self) -> Mapping[str, Any]:
        """Return the metrics of the last round whose checkpoint can be read; empty if there is none."""
        for number in sorted(self._rounds(), reverse=True):
            try:
                history = read_json(self._checkpoint(number) / "checkpoint.json")["fields"]["history"]
            except (StorageError, LookupError, TypeError):
                continue
            return dict(history[-1]) if history else {}
        return {}

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


class _PrivateStates(Mapping[int, Weights]):
    """Private states that stay on disk until they are asked for: memory does not grow with the clients."""

    def __init__(self, run: RunFolder, written_in: Mapping[int, int]) -> None:
        self._run, self._written_in = run, dict(written_in)

    def __getitem__(self, client: int) -> Weights:
        return self._run.load_private(client, self._written_in[client])

    def __iter__(self) -> Iterator[int]:
        return iter(self._written_in)

    def __len__(self) -> int:
        return len(self._written_in)


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink(missing_ok=True)
    folder.rmdir()


def differences(found: Any, wanted: Any, name: str = "") -> list[str]:
    """Name what differs between two specifications, with both values."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return [
            difference
            for key in {*found, *wanted}
            for difference in differences(found.get(key), wanted.get(key), re.sub(r"^\.", "", f"{name}.{key}"))
        ]
    return [] if found == wanted else [f"{name} ({found!r} there, {wanted!r} asked for)"]
