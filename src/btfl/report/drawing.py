"""A finished figure: the same drawing as PNG, as SVG, and as SVG for the inside of a page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib as mpl
from matplotlib.figure import Figure

from btfl.report.style import INK, RC


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure with what a reader needs to understand it."""

    name: str
    """For file names and links."""
    title: str
    caption: str
    png: bytes
    svg: bytes

    def inline(self) -> str:
        """Return SVG for a page: text in the page's colour, no background, and ids that no other figure has."""
        text = self.svg.decode()
        text = text[text.index("<svg") :]
        text = text.replace("fill: #ffffff", "fill: none", 1).replace(INK, "currentColor")
        text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
        text = re.sub(r'\bid="', f'id="{self.name}-', text)
        text = re.sub(r'href="#', f'href="#{self.name}-', text)
        text = text.replace("url(#", f"url(#{self.name}-")
        width = re.search(r'<svg[^>]*?\bwidth="([\d.]+)pt"', text)
        assert width is not None, "matplotlib writes the width in points"
        shown = f'style="max-width:{float(width[1]) * 1.45:.0f}px" role="img" aria-labelledby="{self.name}-title"'
        text = re.sub(r'(<svg[^>]*?) width="[\d.]+pt" height="[\d.]+pt"', rf"\1 {shown}", text, count=1)
        return _escaped_title(text, f"{self.name}-title", self.title)


def draw(name: str, title: str, caption: str, make: Callable[[], Figure]) -> Drawing:
    """Draw a figure in our style, in both formats; the same data give the same bytes.

    Parameters
    ----------
    name : for file names and links
    title, caption : above and below it, on the page
    make : makes the figure; called with our style in force
    """
    with mpl.rc_context():
        mpl.rcdefaults()  # a report looks the same with any matplotlibrc
        mpl.rcParams.update(RC)
        figure = make()
        png, svg = io.BytesIO(), io.BytesIO()
        figure.savefig(png, format="png", metadata={"Software": None})
        figure.set_layout_engine("none")  # the layout stays as it is; computing it again costs as much as drawing
        figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return Drawing(name, title, caption, png.getvalue(), svg.getvalue())


def _escaped_title(svg: str, identifier: str, title: str) -> str:
    plain = title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # a function, because a title may have backslashes, which a replacement text would interpret
    return re.sub(r"<svg[^>]*>", lambda opening: f'{opening[0]}<title id="{identifier}">{plain}</title>', svg, count=1)
