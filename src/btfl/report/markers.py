"""Markers of methods: a shape, filled, open or with a dot, as a path that figures and pages draw alike.

A page draws them as SVG and not as characters, so that no font has to have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from matplotlib.markers import MarkerStyle
from matplotlib.path import Path
from matplotlib.transforms import Affine2D
from numpy.typing import NDArray

SHAPES: Mapping[str, Any] = {
    **{each: each for each in ("o", "s", "^", "v", "<", ">", "D", "d", "p", "h", "8", "P", "X", "*")},
    "4": (4, 1, 0),
    "6": (6, 1, 0),
}
"""Matplotlib's filled markers, and stars of four and six points."""
FILLS = ("", "open", "dotted")
_LARGER = {"*": 1.4, "4": 1.45, "6": 1.15, "D": 1.2, "d": 1.35, "^": 1.1, "v": 1.1, "<": 1.1, ">": 1.1}
"""What has little ink for its size is drawn larger."""
_WITHIN = 0.62  # size of the hole
_DOT = 0.3
_FINE = 200  # polygons are made of curves at this size, so that a circle looks round


def is_marker(name: object) -> bool:
    """Whether this is the name of a marker: a shape, alone or followed by ``open`` or ``dotted``."""
    shape, _, fill = str(name).partition(" ")
    return isinstance(name, str) and shape in SHAPES and fill in FILLS


@cache
def marker_path(name: str) -> Path:
    """Return a marker as a path to be filled, from -0.5 to 0.5 or a little more; holes turn the other way round.

    >>> len(marker_path("s").vertices) < len(marker_path("s open").vertices)
    True
    """
    shape, _, fill = name.partition(" ")
    style = MarkerStyle(SHAPES[shape])
    (corners,) = _polygons(style.get_path().transformed(style.get_transform() + Affine2D().scale(_FINE)))
    corners = corners * (_LARGER.get(shape, 1.0) / (2 * np.abs(corners).max()))
    centre = (corners.min(axis=0) + corners.max(axis=0)) / 2 if shape not in "^v<>" else corners[:-1].mean(axis=0)
    loops = [corners]
    if fill:
        loops.append((centre + _WITHIN * (corners - centre))[::-1])
    if fill == "dotted":
        loops.append(centre + _DOT * (corners - centre))
    return Path.make_compound_path(*(_closed(loop) for loop in loops))


def marker_style(name: str) -> MarkerStyle:
    """Return a marker for matplotlib, in its own size: a bare path would be scaled."""
    path = marker_path(name)
    return MarkerStyle(path, transform=Affine2D().scale(2 * float(np.abs(path.vertices).max())))


def marker_svg(name: str) -> str:
    """Return a marker as an SVG picture that is as high as the text around it, in the text's colour."""
    parts = ["M" + "L".join(f"{x:.3g} {-y:.3g}" for x, y in loop[:-1]) + "Z" for loop in _polygons(marker_path(name))]
    return (
        '<svg class="mark" viewBox="-.75 -.75 1.5 1.5" aria-hidden="true">'
        f'<path fill="currentColor" d="{"".join(parts)}"/></svg>'
    )


def _polygons(path: Path) -> list[NDArray[np.float64]]:
    """Return the corners of each loop, (n, 2), the last one being the first."""
    return [np.asarray(loop, dtype=np.float64) for loop in path.to_polygons()]


def _closed(corners: NDArray[np.float64]) -> Path:
    codes = [Path.MOVETO, *[Path.LINETO] * (len(corners) - 2), Path.CLOSEPOLY]
    return Path(corners, codes)
