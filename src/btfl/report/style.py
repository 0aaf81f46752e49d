"""How figures look: one colour, marker and line for each method, the same in every figure and every report.

The colours are Okabe and Ito's, moved to where they stand out from white and from near-black alike; methods that
share a colour, and all methods in greyscale or to a colour-blind reader, differ by marker and line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matplotlib.markers import MarkerStyle

from btfl.methods.card import BLUE, GREEN, OCHRE, PINK, VIOLET
from btfl.methods.card import INK as INK
from btfl.methods.registry import METHODS
from btfl.report.markers import is_marker, marker_style

IND_COLOUR, EXD_COLOUR = "#2a8fd0", "#d55e00"


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    colour: str
    marker: str
    line: Any = "-"

    @property
    def shape(self) -> MarkerStyle | None:
        """The marker as matplotlib draws it; None for no marker."""
        return marker_style(self.marker) if self.marker else None

    # A rim would close the holes of open markers, so they have none.

    @property
    def on_line(self) -> dict[str, Any]:
        """Marker and colour of a line's points."""
        return {"color": self.colour, "marker": self.shape, "markeredgecolor": "none"}

    @property
    def scattered(self) -> dict[str, Any]:
        """Marker and colour of a scatter."""
        return {"color": self.colour, "marker": self.shape, "linewidths": 0}


_LINES: Mapping[str, Any] = {
    "solid": "-", "dashed": (0, (5, 2)), "dotted": (0, (1.2, 1.4)), "dashdot": (0, (5, 1.5, 1.2, 1.5)),
}  # fmt: skip
_OTHER_COLOURS = (PINK, VIOLET, OCHRE, GREEN, BLUE)
_OTHER_MARKERS = ("o", "s", "^", "D", "P", "X", "v", "h", "<", ">")


def style_of(method: str, card: Mapping[str, Any] | None = None) -> Style:
    """Return a method's style: that of its card, ours or one that a run has saved, else one that follows from its name.

    Parameters
    ----------
    method : its name, with or without settings in brackets
    card : colour, marker and line as ``run.json`` has them, for a method of a user's own
    """
    known = METHODS.get(method)
    if known is not None:
        return Style(known.card.colour, known.card.marker, _LINES[known.card.line])
    if card and re.fullmatch(r"#[0-9a-f]{6}", str(card.get("colour"))) and is_marker(card.get("marker")):
        return Style(card["colour"], card["marker"], _LINES.get(str(card.get("line")), "-"))
    draw = int.from_bytes(hashlib.sha256(method.encode()).digest()[:4], "big")
    base = METHODS.get(method.split("[")[0])
    colour = base.card.colour if base else _OTHER_COLOURS[draw % len(_OTHER_COLOURS)]
    marker = _OTHER_MARKERS[draw // 8 % len(_OTHER_MARKERS)]
    return Style(colour, marker, list(_LINES.values())[draw // 128 % len(_LINES)])


RC: Mapping[Any, Any] = {
    "text.parse_math": False,  # titles of a stranger's methods are text, whatever they have between dollar signs
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": INK,
    "grid.alpha": 0.14,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "savefig.dpi": 160,
    "svg.fonttype": "path",
    "svg.hashsalt": "btfl",
}
