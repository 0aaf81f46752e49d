"""A training that can be interrupted at any moment: after each round the whole state is on disk, and consistent.

A checkpoint is the shared weights, the metrics so far and, for every client, the round its private state was last
written in. Private states are files of their own, never overwritten; those no kept checkpoint refers to are deleted.
The last two checkpoints are kept: if the newer is damaged, the training goes on from the one before.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from btfl.core.client import Weights
from btfl.errors import StorageError
from btfl.runs.layout import CHECKPOINT, PRIVATE, TrainingFiles
from btfl.runs.lock import locked
from btfl.runs.standing import Standing
from btfl.storage import load_record, read_described, read_json, save_record, sealed, sweep_temporary, write_json

KIND, CHECKPOINT_KIND, PRIVATE_KIND, VERSION = "btfl training", "btfl checkpoint", "btfl private state", 1
_KEPT = 2
log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class TrainingState:
    """A training after some rounds: everything needed to go on."""

    round: int
    """Rounds completed."""
    shared: Weights
    """Weights that the server has."""
    private: Mapping[int, Weights] = field(default_factory=dict)
    """Private states of the clients that have any."""
    history: tuple[Mapping[str, Any], ...] = ()
    """Metrics of each round."""
    standing: Standing = field(default_factory=Standing)
    """What the defence ``screen`` knows of the clients."""
    clip: float | None = None
    """With privacy: the length to which updates are clipped, where it adapts."""


class RunFolder:
    """The folder of one training: what is trained, and its newest checkpoints."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.files = TrainingFiles(self.folder)
        self._written_in: dict[int, int] = {}  # client -> round of its newest private state
        self._whole: dict[int, dict[int, int]] = {}  # round saved or loaded here -> what _written_in was then

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder while a training writes there; another one that asks for it is told who holds it, and stops.

        What killed trainings left behind is removed: temporary files, and checkpoints that were never completed.
        """
        with locked(self.folder, self.files.lock, self.files.holder):
            sweep_temporary(self.folder)
            for folder in (self.files.checkpoints, self.files.private_states, self.files.final.folder):
                sweep_temporary(folder, below=True)
            self._sweep()
            yield

    def tidy(self) -> None:
        """Remove what a kill at the very end of a training left, if anything, unless another is at work."""
        needed = self._needed_on_disk()
        aside = any(path not in needed for path in self.files.all_private())
        if aside or self.files.lock.exists() or self.files.holder.exists():
            with suppress(OSError), self.lock():
                self._sweep()

    def spec(self) -> dict[str, Any] | None:
        """Return what is trained here: recipe, settings and data; None if nothing was begun."""
        if self.files.record.exists():
            found = read_described(self.files.record, KIND, VERSION, ("spec",))["spec"]
        elif self.files.older_record.exists():
            found = read_json(self.files.older_record)
        else:
            return None
        if not isinstance(found, dict):
            raise StorageError(f"{self.folder} is damaged: what is trained there is not described by names")
        return found

    def begin(self, spec: Mapping[str, Any]) -> None:
        """Write what is trained here, or make sure that the folder holds a training of the very same kind."""
        self.check(spec)
        if self.spec() is None:
            write_json(self.files.record, sealed({"kind": KIND, "version": VERSION, "spec": dict(spec)}))

    def lengthen(self, spec: Mapping[str, Any]) -> None:
        """Let the training here go on for more rounds, if these are all that differs; its checkpoints stay."""
        found = self.spec()
        if found is None or not isinstance(found.get("settings"), dict):
            return
        before, asked = found["settings"].get("rounds"), spec["settings"]["rounds"]
        same = not differences({**found, "settings": {**found["settings"], "rounds": asked}}, dict(spec))
        if same and type(before) is int and before != asked:
            if asked < before:
                raise StorageError(
                    f"{self.folder} has been trained for {before} rounds already: ask for more than that, not {asked}"
                )
            if spec["settings"].get("privacy", "none") != "none":
                raise StorageError(
                    f"{self.folder} was trained with noise for {before} rounds and one end, so that more would break "
                    "its promise of privacy: train in another folder, with all rounds planned"
                )
            with self.lock():
                write_json(self.files.record, sealed({"kind": KIND, "version": VERSION, "spec": dict(spec)}))

    def check(self, spec: Mapping[str, Any]) -> None:
        """Refuse a folder that holds a training of another kind, and name the differences."""
        found = self.spec()
        if found is not None and (differing := sorted(differences(found, dict(spec)))):
            raise StorageError(
                f"{self.folder} holds another run; it differs in {', '.join(differing[:6])}. "
                "Name another folder, or ask for the settings it was started with"
            )

    def save(self, state: TrainingState, changed: Mapping[int, Weights]) -> TrainingState:
        """Save the state after a round; ``changed`` are the private states the round has changed.

        If training begins again after this round, all are forgotten.
        Returned is the same state with private states that are read from here when they are asked for.
        """
        if state.standing.restarted == state.round:
            self._written_in = {}
        for client, private in changed.items():
            whose = {"client": client, "round": state.round}
            save_record(self.files.private(client, state.round), PRIVATE, PRIVATE_KIND, VERSION, whose, private)
            self._written_in[client] = state.round
        fields = {
            "round": state.round,
            "history": [dict(row) for row in state.history],
            "private": {str(client): round_ for client, round_ in sorted(self._written_in.items())},
            "standing": state.standing.as_json(),
            "clip": state.clip,
        }
        place = self.files.checkpoint(state.round)
        save_record(place, CHECKPOINT, CHECKPOINT_KIND, VERSION, fields, state.shared)
        self._whole[state.round] = dict(self._written_in)
        self._sweep(state.round)
        return replace(state, private=_PrivateStates(self, self._written_in))

    def load(self, warn: Callable[[int, str], None] = lambda round_, sentence: None) -> TrainingState | None:
        """Load the newest checkpoint that is whole, or nothing if there is none yet.

        ``warn`` is told of each round whose checkpoint cannot be used, and why.
        """
        rounds = self.files.rounds()
        for number in rounds:
            try:
                fields, shared = load_record(self.files.checkpoint(number), CHECKPOINT, CHECKPOINT_KIND, VERSION)
                written_in, standing = _written_in(fields, number), Standing.from_json(fields.get("standing"))
                for client, round_ in written_in.items():
                    self.load_private(client, round_)  # only to see that it is whole
            except StorageError as error:
                sentence = f"checkpoint of round {number} cannot be used, trying the one before: {error}"
                log.warning(sentence)
                warn(number, sentence)
                continue
            self._written_in, self._whole[number] = written_in, dict(written_in)
            return TrainingState(
                number, shared, _PrivateStates(self, written_in), tuple(fields["history"]), standing, _clip(fields)
            )
        if rounds and rounds != [1]:  # of the first round nothing is lost that one more round does not bring back
            raise StorageError(f"no checkpoint in {self.folder} is whole; delete the folder to start again")
        return None

    def load_private(self, client: int, round_: int) -> Weights:
        """Load the private state a client had after a round; another client's, or another round's, is refused."""
        place = self.files.private(client, round_)
        whose, private = load_record(place, PRIVATE, PRIVATE_KIND, VERSION)
        if whose and whose != {"client": client, "round": round_}:  # btfl 0.1.0 did not say whose
            raise StorageError(
                f"{place} holds the private state of client {whose.get('client')!r} after round "
                f"{whose.get('round')!r}, not of client {client} after round {round_}"
            )
        return private

    def put_aside(self, client: int, round_: int, private: Weights) -> Weights:
        """Keep what a client has made of its own at the end, until ``clear_aside``; it is no part of a checkpoint."""
        if not private:
            return private
        whose = {"client": client, "round": round_ + 1}
        save_record(self.files.private(client, round_ + 1), PRIVATE, PRIVATE_KIND, VERSION, whose, private)
        return StoredWeights(self.folder, client, round_ + 1)

    def clear_aside(self) -> None:
        """Remove what no checkpoint needs."""
        self._sweep()

    def last_metrics(self) -> Mapping[str, Any]:
        """Return the metrics of the last round whose checkpoint can be read; empty if there is none."""
        for number in self.files.rounds():
            try:
                fields = self._fields(number)
                _written_in(fields, number)
            except StorageError:
                continue
            return dict(fields["history"][-1]) if fields["history"] else {}
        return {}

    def _fields(self, round_: int) -> Any:
        """Return what a checkpoint says beside its weights; of these it is not known whether they are whole."""
        return read_described(self.files.checkpoint_record(round_), CHECKPOINT_KIND, VERSION, ("fields",))["fields"]

    def _sweep(self, newest: int | None = None) -> None:
        """Delete old checkpoints, and private states that none of the kept ones needs.

        ``newest`` is the round that was saved just now: it is kept with the one before, and later ones are of no use.
        Which are whole is known from saving or loading them: nothing is read here, since a disk that cannot be read
        for a moment must not cost a checkpoint. Without ``newest`` nothing is known yet, so that a checkpoint that is
        damaged or cannot be read keeps all that was completed.
        """
        if newest is None:
            kept = self._needed_on_disk()
        else:
            last = sorted(number for number in self._whole if number <= newest)[-_KEPT:]
            self._whole = {number: self._whole[number] for number in last}
            kept = self._needed_by(self._whole)
        for path in (*self.files.all_checkpoints(), *self.files.all_private()):
            if path not in kept:
                _remove(path)

    def _needed_on_disk(self) -> set[Path]:
        rounds = self.files.rounds()
        try:
            return self._needed_by({number: _written_in(self._fields(number), number) for number in rounds[:_KEPT]})
        except StorageError:
            return {*map(self.files.checkpoint, rounds), *self.files.all_private()}

    def _needed_by(self, whole: Mapping[int, Mapping[int, int]]) -> set[Path]:
        """Return the folders of checkpoints and of the private states that they need."""
        private = {self.files.private(*item) for written_in in whole.values() for item in written_in.items()}
        return {*map(self.files.checkpoint, whole), *private}


def _written_in(fields: Any, number: int) -> dict[int, int]:
    """Check what a checkpoint says beside its weights; return the round each private state was written in."""
    if (
        not isinstance(fields, dict)
        or fields.get("round") != number
        or not isinstance(fields.get("history"), list)
        or not all(isinstance(row, dict) for row in fields["history"])
        or not isinstance(fields.get("private"), dict)
        or not all(re.fullmatch(r"\d{1,12}", client) for client in fields["private"])
        or not all(type(round_) is int and 0 < round_ <= number for round_ in fields["private"].values())
    ):
        raise StorageError(f"the checkpoint of round {number} does not say which round, metrics and private states")
    return {int(client): round_ for client, round_ in fields["private"].items()}


def _clip(fields: Any) -> float | None:
    clip = fields.get("clip")
    if clip is not None and not (isinstance(clip, int | float) and clip > 0):
        raise StorageError("the checkpoint does not say to which length updates are clipped")
    return clip


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


class StoredWeights(Mapping[str, Any]):
    """A client's private state that stays on disk: read when it is worked with, by whichever process does that."""

    def __init__(self, folder: Path, client: int, round_: int) -> None:
        self._folder, self._client, self._round = folder, client, round_

    def load(self) -> Weights:
        """Read it."""
        return RunFolder(self._folder).load_private(self._client, self._round)

    def __getitem__(self, name: str) -> Any:
        return self.load()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.load())

    def __len__(self) -> int:
        return len(self.load())


class _PrivateStates(Mapping[int, Weights]):
    """Private states that stay on disk until they are asked for: memory does not grow with the clients."""

    def __init__(self, run: RunFolder, written_in: Mapping[int, int]) -> None:
        self._run, self._written_in = run, dict(written_in)

    def __getitem__(self, client: int) -> Weights:
        return StoredWeights(self._run.folder, client, self._written_in[client])

    def __iter__(self) -> Iterator[int]:
        return iter(self._written_in)

    def __len__(self) -> int:
        return len(self._written_in)


def differences(found: Any, wanted: Any, name: str = "") -> list[str]:
    """Name what differs between two specifications of a training, with both values.

    What the same samples are called is no difference: it may be the name of a file. Nor is a defence ``none`` where
    nothing is said of it: that was the default until 0.2, which did not write it down.
    """
    if isinstance(found, dict) and isinstance(wanted, dict):
        fingerprint = found.get("fingerprint")
        called = {"source"} if fingerprint is not None and fingerprint == wanted.get("fingerprint") else set()
        return [
            difference
            for key in {*found, *wanted} - called
            for difference in differences(found.get(key), wanted.get(key), re.sub(r"^\.", "", f"{name}.{key}"))
        ]
    undefended = name == "settings.defence" and found is None and wanted == "none"
    return [] if found == wanted or undefended else [f"{name} ({found!r} there, {wanted!r} asked for)"]
