"""What a run has been through, for programs to read: ``log.jsonl`` in its folder, and TensorBoard if asked for.

A line is one JSON object: what happened (``event``), when (``time``, UTC) and its numbers.

- ``start``, ``resume``: recipe, round (completed before), rounds, clients (of the federation), defence (in force)
- ``taken``: recipe and rounds, where a recipe begins with what another one has trained
- ``kept``: recipe, where the end was made before from the same weights (`btfl bench --from`) and was kept
- ``round``: round, rounds, clients (whose updates were used), seconds, bytes_up and bytes_down (of arrays, all clients
  together), and what the recipe measures (loss, accuracy)
- ``warning``: stage, round, client (null if it is about none), message
- ``end``: round, rounds, complete (every client has its bundle), digest (null if the bundles are not all here)

Lines are only ever added. A round that is done again after a kill stands there again: take the last one. The log holds
times, so it is no part of what two equal runs have in common.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from btfl.errors import InputError
from btfl.runs.layout import TrainingFiles

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

    from btfl.engines.federation import Event


class RunLog:
    """A report that writes down what is of interest, and passes everything on."""

    def __init__(self, folder: Path, report: Callable[[Event], None]) -> None:
        self._path, self._report = TrainingFiles(folder).log, report
        self._left_out = 0  # clients of this round
        _cut_torn_line(self._path)

    def __call__(self, event: Event) -> None:
        """Take note of a round or of a warning."""
        if event.warning:
            self._left_out += event.client is not None
            about = {"stage": event.stage, "round": event.round, "client": event.client}
            self.write("warning", **about, message=event.warning)
        elif event.metrics:
            clients, self._left_out = event.clients - self._left_out, 0
            self.write("round", round=event.round, rounds=event.rounds, clients=clients, **event.metrics)
        self._report(event)

    def write(self, event: str, **fields: Any) -> None:
        """Add a line."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"event": event, "time": time, **fields}, allow_nan=False)
        with self._path.open("ab") as file:
            file.write(f"{line}\n".encode())


def _cut_torn_line(path: Path) -> None:
    """Remove what a kill in the middle of writing has left at the end."""
    if path.exists():
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)


class TensorBoardReport:
    """A report that writes the metrics of each round as scalars, under ``folder/tensorboard``."""

    def __init__(self, folder: Path) -> None:
        need_tensorboard()
        self._folder = TrainingFiles(folder).tensorboard
        self._writer: SummaryWriter | None = None

    def __enter__(self) -> TensorBoardReport:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def __call__(self, event: Event) -> None:
        """Write a round that is done; on disk at once, to be watched while training goes on."""
        if not event.metrics:
            return
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # What an interrupted run has written of this round and later ones is forgotten.
            self._writer = SummaryWriter(self._folder, purge_step=event.round)
        for name, value in event.metrics.items():
            self._writer.add_scalar(f"train/{name}", value, event.round)
        self._writer.flush()


def need_tensorboard() -> None:
    """Say what to install, if TensorBoard is not there."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError:
        raise InputError("writing for TensorBoard needs the package: pip install 'btfl[tensorboard]'") from None
