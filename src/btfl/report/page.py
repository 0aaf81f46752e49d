"""The page: everything in one file that opens from disk with no network."""

from __future__ import annotations

import math
from importlib import resources
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from btfl import __version__
from btfl.report.style import INK, style_of
from btfl.report.table import Cell

if TYPE_CHECKING:
    from btfl.report.build import ReportContents


def render(report: ReportContents) -> str:
    """Return the page as HTML."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["sort_key"] = _sort_key
    by_name = {name: group.style(name) for group in reversed(report.groups) for name in group.titles}
    environment.filters["style_of"] = lambda method: by_name.get(method) or style_of(method)
    environment.filters["on_page"] = lambda colour: "currentColor" if colour == INK else colour
    template = environment.from_string(_asset("page.html"))
    return template.render(
        report=report,
        groups=report.groups,
        style=Markup(_asset("page.css")),
        script=Markup(_asset("page.js")),
        inline=lambda drawing: Markup(drawing.inline()),
        settings=_settings,
        version=__version__,
    )


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
