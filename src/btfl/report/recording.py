"""A method with a memory of what it has decided: along a whole stream, where a trace is of the last batch only.

Nothing but numpy is loaded until a table or a figure is asked for, so that a device can record too.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.errors import InputError
from btfl.methods.base import Method, Trace

if TYPE_CHECKING:
    import pandas as pd

    from btfl.report.drawing import Drawing

Floats = NDArray[np.float64]


class Recording:
    """A method that is used as before, and what it has answered and why, sample after sample.

    Parameters
    ----------
    method : any method; it goes on from where it is
    """

    def __init__(self, method: Method) -> None:
        self.method = method
        self._probabilities: list[Floats] = []
        self._traces: list[Mapping[str, NDArray[Any]]] = []

    def predict(self, batch: NDArray[Any]) -> Floats:
        """Return (n, classes) probabilities for the next n samples of the stream, and keep them with their trace."""
        found = self.method.predict(batch)
        self._probabilities.append(found)
        self._traces.append({name: np.array(values) for name, values in self.method.trace.items()})
        return found

    def reset(self) -> None:
        """Forget the stream, and what was kept of it."""
        self.method.reset()
        self._probabilities.clear()
        self._traces.clear()

    @property
    def state(self) -> dict[str, Any]:
        """The method's memory of the stream, as plain JSON; what was recorded is no part of it."""
        return self.method.state

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state; what was recorded stays."""
        self.method.restore(state)

    def __len__(self) -> int:
        return sum(map(len, self._probabilities))

    @property
    def probabilities(self) -> Floats:
        """All answers, (samples, classes)."""
        self._check()
        return np.concatenate(self._probabilities)

    @property
    def trace(self) -> Trace:
        """The columns of the method's trace, over all samples."""
        self._check()
        return Trace({name: np.concatenate([part[name] for part in self._traces]) for name in self._traces[0]})

    @property
    def frame(self) -> pd.DataFrame:
        """A row for each sample: its position, predicted class and confidence, and the columns of the trace."""
        import pandas as pd

        answers = self.probabilities
        return pd.DataFrame(
            {
                "position": np.arange(len(answers)),
                "predicted": answers.argmax(axis=1),
                "confidence": answers.max(axis=1),
                **self.trace,
            }
        )

    def plot(self, external: ArrayLike | None = None, title: str | None = None) -> Drawing:
        """Return a figure of e along the stream, which a notebook shows; with memory and events where there are any.

        Parameters
        ----------
        external : (samples,), whether each is from elsewhere, where that is known: drawn in two colours then
        title : above the figure; None: the method's
        """
        from btfl.report.drawing import Drawing
        from btfl.report.figures.weights import draw_streams

        name, frame = self.method.card().title, self.frame
        if "e" not in frame:
            raise InputError(f"{name} has no weight e of the global head, so there is nothing to draw along the stream")
        if external is not None:
            known = np.asarray(external)
            if known.shape != (len(frame),) or known.dtype.kind not in "biu":
                raise InputError(
                    f"external must say true or false for each of {len(frame)} recorded samples, not {known.dtype} of "
                    f"shape {known.shape}"
                )
            frame["external"] = known.astype(bool)
        heading = title or name
        return Drawing("stream", heading, "e along the stream.", lambda: draw_streams([frame], [heading]))

    def __repr__(self) -> str:
        return f"Recording({len(self)} samples of {self.method!r})"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: e along the stream, drawn with nothing but numpy."""
        title = html.escape(self.method.card().title)
        if not self._probabilities or "e" not in self.trace:
            return f"<p>{title}: {len(self):,} samples recorded</p>"
        caption = f"{title}: trust in the global head (e) for each of {len(self):,} samples"
        return f"<p>{caption}</p>{_strip(self.trace['e'])}"

    def _check(self) -> None:
        if not self._probabilities:
            raise InputError("nothing is recorded yet: call predict first")


_WIDTH, _HEIGHT, _LEFT, _PAD = 640, 150, 30, 10
_DOTS = 2_000  # more would be drawn over each other, and slow a notebook down


def _strip(weights: Floats) -> str:
    """Return e along the stream as a small picture (SVG) in the page's own colours, light or dark."""
    shown = np.unique(np.linspace(0, len(weights) - 1, min(len(weights), _DOTS)).astype(int))
    across = _LEFT + _PAD + (_WIDTH - _LEFT - 2 * _PAD) * shown / max(len(weights) - 1, 1)
    down = _PAD + (_HEIGHT - 2 * _PAD) * (1.0 - weights[shown])
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in zip(across, down, strict=True))
    lines = "".join(
        f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:g}" y2="{y:g}"/>'
        f'<text x="{_LEFT - 6}" y="{y + 4:g}" stroke="none" text-anchor="end">{value:g}</text>'
        for value in (0.0, 0.5, 1.0)
        for y in (_PAD + (_HEIGHT - 2 * _PAD) * (1.0 - value),)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" style="max-width:100%" role="img" '
        f'aria-label="e along the stream" font-family="sans-serif" font-size="11">'
        f'<g stroke="currentColor" stroke-opacity="0.3" fill="currentColor">{lines}</g>'
        f'<g fill="#d6277e" fill-opacity="0.6">{dots}</g></svg>'
    )


def record(method: Method) -> Recording:
    """Return the method with a record of what it decides along a stream.

    >>> watched = btfl.record(btfl.Coherent(bundle))         # doctest: +SKIP
    >>> for batch in stream: watched.predict(batch)          # doctest: +SKIP
    >>> watched.plot()                                       # doctest: +SKIP
    """
    return Recording(method)
