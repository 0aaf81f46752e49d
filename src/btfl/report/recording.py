"""A method with a memory of what it has decided: along a whole stream, where a trace is of the last batch only.

Nothing but numpy is loaded until a table or a figure is asked for, so that a device can record too.
"""

from __future__ import annotations

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

    def _check(self) -> None:
        if not self._probabilities:
            raise InputError("nothing is recorded yet: call predict first")


def record(method: Method) -> Recording:
    """Return the method with a record of what it decides along a stream.

    >>> watched = btfl.record(btfl.Coherent(bundle))         # doctest: +SKIP
    >>> for batch in stream: watched.predict(batch)          # doctest: +SKIP
    >>> watched.plot()                                       # doctest: +SKIP
    """
    return Recording(method)
