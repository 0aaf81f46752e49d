"""How figures look: one colour, marker and line for each method, the same in every figure and every report.

The colours are Okabe and Ito's, moved to where they stand out from white and from near-black alike; methods that
share a colour, and all methods in greyscale or to a colour-blind reader, differ by marker and line.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

INK = "#010203"
"""Stands for the colour of text: black on paper, and replaced by the page's own colour inside the page."""
IND_COLOUR, EXD_COLOUR = "#2a8fd0", "#d55e00"

_BLUE, _SKY, _GREEN, _RED, _PINK, _OCHRE, _VIOLET, _GREY = (
    "#0072b2", "#2a8fd0", "#009e73", "#d55e00", "#c0649a", "#b07d00", "#8a6bbf", "#7f7f7f",
)  # fmt: skip


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    colour: str
    marker: str
    line: Any = "-"

    @property
    def symbol(self) -> str:
        """The marker as a character, for tables."""
        return _SYMBOLS.get(self.marker, "●")

    @property
    def edge(self) -> dict[str, Any]:
        """Marker and colour, for a scatter or a line's points."""
        return {"color": self.colour, "marker": self.marker}


_SYMBOLS = {
    "s": "■", "X": "✖", "^": "▲", "v": "▼", "P": "✚", "D": "◆", "d": "♦", "<": "◀", ">": "▶", "*": "★", "o": "●",
    "h": "⬢", "p": "⬟", "8": "⯃",
}  # fmt: skip
_DASH, _DOT, _DASHDOT = (0, (5, 2)), (0, (1.2, 1.4)), (0, (5, 1.5, 1.2, 1.5))

_STYLES: Mapping[str, Style] = {
    "fedavg": Style(INK, "s"),
    "fedavg-ft": Style(_GREY, "s", _DASH),
    "personal": Style(_GREY, "X", _DOT),
    "fedrep": Style(_BLUE, "^"),
    "fedrod": Style(_BLUE, "v", _DASH),
    "knn-per": Style(_GREEN, "P"),
    "fedthe": Style(_SKY, "D"),
    "fedthe-release": Style(_SKY, "h", _DOT),
    "fedthe-on-fedavg": Style(_SKY, "8", _DASHDOT),
    "fedthe-plus": Style(_SKY, "d", _DASH),
    "ttt": Style(_OCHRE, "<"),
    "ttt-release": Style(_OCHRE, "<", _DOT),
    "memo": Style(_OCHRE, ">", _DASH),
    "t3a": Style(_VIOLET, "<"),
    "tent": Style(_VIOLET, ">", _DASH),
    "lame": Style(_VIOLET, "h", _DOT),
    "em": Style(_GREEN, "p", _DASH),
    "bbse": Style(_GREEN, "d", _DOT),
    "btfl": Style(_RED, "o"),
    "btfl-release": Style(_RED, "v", _DASH),
    "coherent": Style(_PINK, "*"),
    "oracle": Style(INK, "*", _DOT),
    "oracle-balanced": Style(_GREY, "*", _DASHDOT),
}
_OTHER_COLOURS = (_PINK, _VIOLET, _OCHRE, _GREEN, _BLUE)
_OTHER_MARKERS = ("o", "s", "^", "D", "P", "X", "v", "h", "<", ">")
_OTHER_LINES = ("-", _DASH, _DOT, _DASHDOT)


def style_of(method: str) -> Style:
    """Return a method's style; one we do not know gets a style that follows from its name."""
    if method in _STYLES:
        return _STYLES[method]
    draw = int.from_bytes(hashlib.sha256(method.encode()).digest()[:4], "big")
    base = _STYLES.get(method.split("[")[0])
    colour = base.colour if base else _OTHER_COLOURS[draw % len(_OTHER_COLOURS)]
    marker = _OTHER_MARKERS[draw // 8 % len(_OTHER_MARKERS)]
    return Style(colour, marker, _OTHER_LINES[draw // 128 % len(_OTHER_LINES)])


RC: Mapping[Any, Any] = {
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
