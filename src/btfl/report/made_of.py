"""What a figure is made of, as one digest: the runs it shows, and the code and libraries that draw it.

Figures are kept under it (``btfl.data.kept``), so that a report whose runs have not changed draws none of them again.
They are kept with the user's other kept files and not in the run's folder, which may come from a stranger.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from btfl.report.groups import Group
from btfl.runs.saved import SavedRun

_LIBRARIES = ("matplotlib", "numpy", "pandas", "pillow", "pyarrow")


def made_of(groups: Sequence[Group]) -> str:
    """Return the sha256 of everything that figures of these groups are drawn from.

    That is every record, row and sample of their runs, what a person asked for, and the source of btfl.
    """
    told = [_code(), *(_described(group) for group in groups)]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def _described(group: Group) -> dict[str, Any]:
    return {
        "label": group.label,
        "asked": group.asked,
        "styles": [[name, repr(group.style(name))] for name in group.titles],
        "runs": [_run(run) for run in group.runs],
    }


def _run(run: SavedRun) -> dict[str, Any]:
    return {
        "record": run.record,
        "rows": run.rows_sha256,
        "samples": run.samples_sha256 if run.has_samples else None,
    }


@cache
def _code() -> str:
    """Return a digest of btfl's source and of the libraries' versions: what others have drawn is not found."""
    package, digest = Path(__file__).parents[1], hashlib.sha256()
    digest.update(" ".join(f"{name} {version(name)}" for name in _LIBRARIES).encode())
    for path in sorted(path for path in package.rglob("*") if path.suffix in (".py", ".csv")):
        digest.update(f"{path.relative_to(package)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
