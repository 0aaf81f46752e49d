"""The end of a training, kept by the weights it follows from: `btfl bench --from` makes it once.

The end is every client's bundle and fine-tuned networks; with weights that were trained elsewhere it is most of the
work. It is kept with the user's other kept files (``btfl.data.kept``), which `btfl data clean` removes, and comes back
to the bit. What involves fresh noise, or is made on a GPU or on the clients' own devices, is not kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from btfl.core.provenance import sha256_of
from btfl.data.kept import Kept, source_digest
from btfl.engines import LocalEngine
from btfl.engines.base import Engine
from btfl.engines.federation import is_finished
from btfl.engines.log import RunLog
from btfl.recipes.base import Recipe
from btfl.runs.checkpoint import RunFolder, StoredWeights
from btfl.runs.layout import FederationFiles, TrainingFiles
from btfl.runs.start import last_state
from btfl.storage import write_atomically

_MOST = 512 << 20  # bytes of an end that is kept: all of it is in memory for a moment
_LIBRARIES = ("numpy", "scipy", "torch")


def can_be_kept(recipe: Recipe, engine: Engine) -> bool:
    """Whether the end would be the same if it were made again: on this processor, without noise, by code of btfl."""
    on_cpu = isinstance(engine, LocalEngine) and engine.device == "cpu"
    own_code = ":" in recipe.settings.model  # nothing tells when that has changed
    return on_cpu and not own_code and not recipe.settings.is_private and not recipe.settings.secure


@dataclass(frozen=True)
class KeptEnd:
    """The end of one training, in its folder and among what is kept.

    Parameters
    ----------
    folder : of the training; it has the last checkpoint
    spec : what is trained (``engines.provenance.run_spec``)
    kept : where the end is looked for
    """

    folder: Path
    spec: Mapping[str, Any]
    kept: Kept

    def restore(self) -> bool:
        """Write the end into the folder, if it was kept; return whether it was."""
        run, files = RunFolder(self.folder), TrainingFiles(self.folder)
        found = self.kept.find(*self._key())
        if found is None or files.final.record.exists():
            return False
        record = files.final.record.name
        with run.lock():
            for name in sorted(found, key=lambda name: name == record):  # the record last: with it the end is complete
                write_atomically(files.final.folder / name, found[name].tobytes())
        RunLog(self.folder, lambda event: None).write("kept", recipe=self.spec["recipe"])
        return True

    def keep(self) -> None:
        """Keep the end that is in the folder, if it is complete and not too large."""
        final = TrainingFiles(self.folder).final.folder
        if not is_finished(self.folder) or FederationFiles.current(final).inside:
            return
        paths = sorted(path for path in final.rglob("*") if path.is_file())
        if sum(path.stat().st_size for path in paths) > min(_MOST, self.kept.limit):
            return
        arrays = {path.relative_to(final).as_posix(): np.frombuffer(path.read_bytes(), np.uint8) for path in paths}
        self.kept.keep(arrays, *self._key())

    def _key(self) -> tuple[object, ...]:
        state = last_state(self.folder)
        digest = hashlib.sha256(sha256_of(state.shared).encode())
        for client in sorted(state.private):
            private = state.private[client]
            weights = private.load() if isinstance(private, StoredWeights) else private
            digest.update(f"{client} {sha256_of(weights)}\n".encode())
        processor = torch.backends.cpu.get_cpu_capability()
        spec = json.dumps(self.spec, sort_keys=True, default=str)
        return "end", source_digest(*_LIBRARIES), processor, spec, state.round, digest.hexdigest()
