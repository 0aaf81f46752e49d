"""What a figure is made of, as one digest: the runs it shows, and the code and libraries that draw it.

Figures are kept under it (``btfl.data.kept``), so that a report whose runs have not changed draws none of them again.
They are kept with the user's other kept files and not in the run's folder, which may come from a stranger.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from btfl.data.kept import source_digest
from btfl.report import paper
from btfl.report.groups import Group
from btfl.runs.saved import SavedRun

_LIBRARIES = ("matplotlib", "numpy", "pandas", "pillow", "pyarrow")


def made_of(groups: Sequence[Group]) -> str:
    """Return the sha256 of everything that figures of these groups are drawn from.

    That is every record, row and sample of their runs, what a person asked for, the paper's numbers, and btfl's source.
    """
    told = [source_digest(*_LIBRARIES), paper.sha256(), *(_described(group) for group in groups)]
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
