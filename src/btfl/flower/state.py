"""A client's private state on Flower: in the node's own context while a run lasts, and on its own disk beyond that.

Flower's context ends with the run. So that an interrupted run can be taken up by another one, each state is also
written to the client's folder, under the step it was made in. The last two are kept: the server may have stopped
before it saw what the client did last, and then asks for that step again.

A client whose answer came too late has still done its work, and goes on from it: unlike on one machine, the server
cannot undo what a client has made of its own.
"""

from __future__ import annotations

import logging
from pathlib import Path

from flwr.app import ConfigRecord, Context

from btfl.core.client import Weights
from btfl.errors import StorageError
from btfl.flower.messages import from_record, to_record
from btfl.storage import load_record, save_record

KIND, VERSION = "btfl private state of a Flower client", 1
_ARRAYS, _FACTS = "btfl_private", "btfl_private_facts"
_KEPT = 2
log = logging.getLogger(__name__)


class PrivateState:
    """What one client keeps from one step of a run to the next."""

    def __init__(self, context: Context, folder: Path, run: str) -> None:
        self._state, self._folder, self._run = context.state, folder / "private", run

    def before(self, step: int, since: int = 0) -> Weights:
        """Return the newest state made before a step, and after step ``since``; nothing if there is none."""
        facts = self._state.config_records.get(_FACTS)
        if facts is not None and facts["run"] == self._run and since < int(str(facts["step"])) < step:
            return from_record(self._state.array_records[_ARRAYS])
        for earlier in sorted((s for s in self._steps() if since < s < step), reverse=True):
            try:
                fields, arrays = load_record(self._folder, _name(earlier), KIND, VERSION)
            except StorageError as error:
                log.warning("a private state cannot be used, trying the one before: %s", error)
                continue
            if fields["run"] == self._run:
                return arrays
        return {}

    def keep(self, step: int, private: Weights) -> None:
        """Keep the state made in a step."""
        self._state[_ARRAYS] = to_record(private)
        self._state[_FACTS] = ConfigRecord({"run": self._run, "step": step})
        save_record(self._folder, _name(step), KIND, VERSION, {"run": self._run}, private)
        for old in sorted(self._steps(), reverse=True)[_KEPT:]:
            for path in self._folder.glob(f"{_name(old)}*"):
                path.unlink(missing_ok=True)

    def _steps(self) -> list[int]:
        return [int(path.stem.removeprefix("step-")) for path in self._folder.glob("step-*.json")]


def _name(step: int) -> str:
    return f"step-{step:06d}"
