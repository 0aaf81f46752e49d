"""Coherent with strangeness in its trace: of each sample, and of the stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features
from btfl.core.bundle import ClientBundle
from btfl.methods.base import Client, Column
from btfl.methods.card import PINK, Card
from btfl.methods.coherent.method import Coherent
from btfl.methods.coherent.settings import CoherentSettings
from btfl.methods.coherent.strange_stream import StrangeStream
from btfl.methods.coherent.strangeness import Strangeness
from btfl.methods.state import check_keys

Floats = NDArray[np.float64]
_STREAM = "strange_stream"


class WatchfulCoherent(Coherent):
    """Coherent with strangeness in its trace: a ``Monitor`` alarms at what is neither internal nor external.

    The answer is Coherent's own, to the bit: what is strange is still answered, and never silently. A sample costs one
    product with a (dimensions, dimensions) matrix more, and the memory of a stream has a number for each dimension.

    Examples
    --------
    >>> method = WatchfulCoherent(bundle)                                                 # doctest: +SKIP
    >>> monitor = Monitor(levels_for(method, bundle), on_alarm=print)                     # doctest: +SKIP
    >>> method.predict(features), monitor.watch(method.trace)                             # doctest: +SKIP
    """

    cards: ClassVar[tuple[Card, ...]] = (
        Card(
            "coherent-watchful",
            "Coherent, watchful (ours)",
            "Coherent, with strangeness in its trace",
            "ours, not the paper's (docs/method.md)",
            PINK,
            "8",
        ),
    )
    columns: ClassVar[Mapping[str, Column]] = {
        **Coherent.columns,
        "strangeness": Column("how little the sample resembles anything; about 2 % of the client's own are above 1"),
        _STREAM: Column("how far the last samples together are off the client's own, where labels make no difference"),
    }
    exportable: ClassVar[bool] = False

    def __init__(self, client: Client | ClientBundle, settings: CoherentSettings | None = None, **changes: Any) -> None:
        super().__init__(client, settings, **changes)
        self.strangeness = Strangeness(self.bundle, self.settings)
        self._stream = StrangeStream(self.strangeness)

    def predict(self, batch: ArrayLike) -> Floats:
        """Return Coherent's answer, and keep for the trace how strange each sample is, and the stream with it."""
        answer = super().predict(batch)
        assert self.found is not None
        features = as_features(batch, width=self.bundle.dimensions)
        white = self.strangeness.metric.white(features)
        self.found = (*self.found, self.strangeness.of_white(features, white), self._stream.take(white))
        return answer

    @property
    def widening(self) -> Mapping[str, float]:
        """The stream's strangeness is larger on new samples than on those that said what is typical."""
        return {_STREAM: self._stream.widening}

    @property
    def state(self) -> dict[str, Any]:
        """Coherent's memory, and that of the stream's strangeness."""
        return {**super().state, _STREAM: self._stream.state}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a saved state."""
        check_keys(state, self.state)
        average = self._stream.read(state[_STREAM])
        super().restore({name: value for name, value in state.items() if name != _STREAM})
        self._stream.restore(average)

    def reset(self) -> None:
        """Forget the stream."""
        super().reset()
        self._stream.reset()
