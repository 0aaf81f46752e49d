"""Markers: every method has its own, drawn as a shape and not as a character of a font."""

from __future__ import annotations

import re

import numpy as np
import pytest

from btfl.methods.registry import METHODS
from btfl.report.markers import FILLS, SHAPES, is_marker, marker_path, marker_svg
from btfl.report.style import style_of


def area(name: str) -> float:
    """Area of the ink: loops that turn the other way round are holes."""
    total = 0.0
    for loop in marker_path(name).to_polygons():
        x, y = np.asarray(loop).T
        total += float(np.dot(x[:-1], y[1:]) - np.dot(x[1:], y[:-1])) / 2
    return abs(total)


def test_every_method_has_a_marker_of_its_own_and_ours_is_not_the_oracle_s() -> None:
    markers = {name: variant.card.marker for name, variant in METHODS.items()}
    assert all(map(is_marker, markers.values()))
    assert len({marker_svg(marker) for marker in markers.values()}) == len(markers)
    assert markers["oracle"][0] != markers["coherent"][0]


@pytest.mark.parametrize("shape", SHAPES)
def test_open_is_less_ink_than_filled_and_a_dot_is_between(shape: str) -> None:
    full, opened, dotted = (area(f"{shape} {fill}".strip()) for fill in FILLS)
    assert 0.5 * full < opened < dotted < full
    assert 0.5 - 1e-9 <= np.abs(marker_path(shape).vertices).max() <= 0.75  # the size of the picture on a page


def test_a_page_needs_no_character_of_a_font_for_them() -> None:
    for name in METHODS:
        drawn = marker_svg(style_of(name).marker)
        assert re.fullmatch(r'<svg [^>]*><path fill="currentColor" d="(M[\d.e -]+(L[\d.e -]+)+Z)+"/></svg>', drawn)


@pytest.mark.parametrize("wrong", ["", "x", "o half", "⯃", 3, None])
def test_what_is_no_marker(wrong: object) -> None:
    assert not is_marker(wrong)
