"""The page: everything in one file that opens from disk with no network."""

from __future__ import annotations

import math
from importlib import resources
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from btfl import __version__
from btfl.report.markers import marker_svg
from btfl.report.style import INK, style_of
from btfl.report.table import Cell
from btfl.report.tables import best_first

if TYPE_CHECKING:
    from btfl.report.build import ReportContents

_WORDS: tuple[tuple[str | None, str, str], ...] = (
    ("original_ind", "A, IND", "the client's own kind of data: test samples of its own"),
    ("shifted_ind", "B, IND shifted", "the same classes as A, corrupted or from another domain"),
    ("original_exd", "C, EXD", "data of other clients"),
    ("shifted_exd", "D, EXD shifted", "the same classes as C, corrupted or from another domain"),
    ("synthetical", "E, mixed", "equal parts of the others, shuffled"),
    (
        None,
        "accuracy",
        "share of samples whose class is answered rightly, in %; each client counts the same",
    ),
    (None, "average", "mean of the streams, by which methods are ranked"),
    (None, "e", "weight of the global head in an answer; 1 minus e is that of the client's personal head"),
    (None, "better, not clear", "whether the 95 % interval of a difference over clients lies above zero, or holds it"),
    (None, "oracle", "is told the answers and picks the better head: a ceiling, not a method"),
)
"""Each with the stream it is about, or None."""


def render(report: ReportContents) -> str:
    """Return the page as HTML."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["sort_key"] = _sort_key
    by_name = {name: group.style(name) for group in reversed(report.groups) for name in group.titles}
    environment.filters["style_of"] = lambda method: by_name.get(method) or style_of(method)
    environment.filters["best_first"] = best_first
    environment.filters["marker_svg"] = lambda name: Markup(marker_svg(name))
    environment.filters["on_page"] = lambda colour: "currentColor" if colour == INK else colour
    template = environment.from_string(_asset("page.html"))
    return template.render(
        report=report,
        groups=report.groups,
        style=Markup(_asset("page.css")),
        script=Markup(_asset("page.js")),
        inline=lambda drawing: Markup(drawing.inline()),
        settings=_settings,
        definitions=_definitions(report),
        version=__version__,
    )


def _definitions(report: ReportContents) -> list[tuple[str, str]]:
    """Return the words that the page uses, for somebody who has read nothing else; streams that are there only."""
    there = {stream for group in report.groups for stream in group.streams}
    return [(word, meaning) for stream, word, meaning in _WORDS if stream is None or stream in there]


def _asset(name: str) -> str:
    return (resources.files("btfl.report") / name).read_text(encoding="utf-8")


def _sort_key(cell: Cell) -> str:
    if isinstance(cell.value, str):
        return cell.value
    return "" if math.isnan(cell.value) else repr(float(cell.value))


def _settings(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Return every setting of a run that is set, as text."""
    experiment = [(key, value) for key, value in record["experiment"].items() if value not in (None, {}, [], "")]
    training = [(f"training.{key}", value) for key, value in record["training"].items() if value not in (None, {})]
    shown = {key: value for key, value in [*experiment, *training] if key not in ("training", "training.seed")}
    return [
        (key, ", ".join(map(str, value)) if isinstance(value, list) else str(value)) for key, value in shown.items()
    ]
