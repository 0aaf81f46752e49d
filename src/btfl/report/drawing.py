"""A figure: the same drawing as PNG, as SVG, and as SVG for the inside of a page; drawn when it is first asked for.

What was drawn from the same data before is kept (``btfl.data.kept``) and not drawn again.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np

from btfl.data.kept import Kept
from btfl.errors import InputError
from btfl.report.style import INK, RC
from btfl.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False, repr=False)
class Drawing:
    """A figure with what a reader needs to understand it; a notebook shows it as it is.

    Parameters
    ----------
    name : for file names and links
    title, caption : above and below it, on the page
    make : makes the figure; called with our style in force
    made_of : a digest of all that it is made of, under which it is kept; None: it is drawn every time
    """

    name: str
    title: str
    caption: str
    make: Callable[[], Figure]
    made_of: str | None = None

    def __repr__(self) -> str:
        return f"Drawing({self.name}: {self.title})"

    def figure(self) -> Figure:
        """Return a matplotlib figure of one's own, to change or to save in another format."""
        with _our_style():
            return self.make()

    def save(self, path: str | Path) -> Path:
        """Write it to a file that ends in ``.png`` or ``.svg``, and return the path."""
        path = Path(path)
        formats = {".png": lambda: self.png, ".svg": lambda: self.svg}
        if path.suffix not in formats:
            raise InputError(f"a figure is saved as {' or '.join(formats)}, not as '{path.name}'")
        write_atomically(path, formats[path.suffix]())
        return path

    @property
    def png(self) -> bytes:
        """The figure as PNG."""
        return self._files[0]

    @property
    def svg(self) -> bytes:
        """The figure as SVG."""
        return self._files[1]

    @cached_property
    def _files(self) -> tuple[bytes, bytes]:
        """Both formats, as they were kept or as they are drawn now."""
        if self.made_of is None:
            return self._drawn()
        kept, key = Kept.usual(), ("figure", self.name, self.made_of)
        found = kept.find(*key)
        if found is not None:
            return found["png"].tobytes(), found["svg"].tobytes()
        png, svg = self._drawn()
        kept.keep({"png": np.frombuffer(png, np.uint8), "svg": np.frombuffer(svg, np.uint8)}, *key)
        return png, svg

    def _drawn(self) -> tuple[bytes, bytes]:
        """Draw in both formats; the same data give the same bytes."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        with _our_style():
            figure = self.make()
            png, svg = io.BytesIO(), io.BytesIO()
            figure.set_dpi(mpl.rcParams["savefig.dpi"])
            # laid out once; ``savefig`` would draw each format twice, the first time for the layout alone
            if (engine := figure.get_layout_engine()) is not None:
                engine.execute(figure)
                figure.set_layout_engine("none")
            FigureCanvasAgg(figure).print_png(png, metadata={"Software": None})  # type: ignore[no-untyped-call]
            said = {"Date": None, "Creator": None}
            FigureCanvasSVG(figure).print_svg(svg, metadata=said)  # type: ignore[no-untyped-call]
        return png.getvalue(), svg.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png

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


@contextmanager
def _our_style() -> Iterator[None]:
    with mpl.rc_context():
        mpl.rcdefaults()  # a report looks the same with any matplotlibrc
        mpl.rcParams.update(RC)
        yield


def _escaped_title(svg: str, identifier: str, title: str) -> str:
    plain = title.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # a function, because a title may have backslashes, which a replacement text would interpret
    return re.sub(r"<svg[^>]*>", lambda opening: f'{opening[0]}<title id="{identifier}">{plain}</title>', svg, count=1)
