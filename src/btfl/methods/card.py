"""What a method says of itself: its names, where it comes from, and how it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

INK = "#010203"
"""Stands for the colour of text: black on paper, and replaced by the page's own colour inside a page."""
BLUE, SKY, GREEN, RED, PINK, OCHRE, VIOLET, GREY = (
    "#0072b2", "#2a8fd0", "#009e73", "#d55e00", "#c0649a", "#b07d00", "#8a6bbf", "#7f7f7f",
)  # fmt: skip
"""Okabe and Ito's colours, moved to where they stand out from white and from near-black alike."""


@dataclass(frozen=True)
class Card:
    """A method under one of its names; a method with several presets has several cards.

    Parameters
    ----------
    name : how it is asked for, ``--method NAME``
    title : how it stands in a table
    summary : what it does at test time, in one line
    paper : where it comes from
    colour, marker, line : how it is drawn: ``#rrggbb``; one of matplotlib's filled markers, ``4`` or ``6`` (stars),
        alone or followed by ``open`` or ``dotted``; solid, dashed, dotted or dashdot. Without a colour
        a style follows from the name
    settings : what this name changes in the method's settings
    recipe : the training it stands on, if not the method's own
    """

    name: str
    title: str
    summary: str = ""
    paper: str = ""
    colour: str = ""
    marker: str = "o"
    line: str = "solid"
    settings: Mapping[str, Any] = field(default_factory=dict)
    recipe: str | None = None
