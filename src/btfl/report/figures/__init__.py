"""The figures, a file for each subject; functions return matplotlib Figures in the style of ``btfl.report.style``.

A file, and with it matplotlib, is loaded when one of its figures is drawn: a figure that was kept needs neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from btfl.report.figures import accuracy as accuracy
    from btfl.report.figures import judgement as judgement
    from btfl.report.figures import weights as weights


def __getattr__(name: str) -> Any:
    """Return one of the files."""
    if name in ("accuracy", "judgement", "weights"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
