"""Strangeness of a stream: what a single sample cannot show, the last samples together can.

A black frame may lie among the farthest tenth of a client's samples and not beyond them; but samples are off their
classes' means in all directions, and a dead camera's are all off in the same. So the deviations are averaged over the
last samples, with a memory that fades,

    a <- a + (u - o - a) / 20,

where u is how far a white sample is off everyone's mean in the directions in which class means do not differ
(``Metric.unlabelled``), and o the mean of u on the client's own samples. A stream of the client's own has a around 0,
whatever its labels are; its length is told in units of what it would be for independent samples of variance 1. A
sample counts as at most twice as far off as samples are, so that one of them is no alarm, and an alarm ends in time.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.errors import InputError
from btfl.methods.coherent.strangeness import Strangeness
from btfl.methods.state import check_keys, numbers

Floats = NDArray[np.float64]
REMEMBERED = 20
"""Samples that the memory spans."""
_FARTHEST = 2.0  # in units of how far off samples of variance 1 are


class StrangeStream:
    """Watches a stream; about 1 on the client's own, and larger the more its samples are off in one direction.

    Parameters
    ----------
    strangeness : of the client, for its metric and what is typical
    """

    def __init__(self, strangeness: Strangeness) -> None:
        self._metric, self._own = strangeness.metric, strangeness.unlabelled
        self._kept, self._usual = 1.0 / REMEMBERED, float(np.sqrt(max(self._metric.directions, 1)))
        self._unit = self._usual * np.sqrt(self._kept / (2.0 - self._kept))
        # the mean of own samples is off by 1/n of their variance, which they themselves do not show
        uncertain = 1.0 / strangeness.averaged if strangeness.averaged else 0.0
        self.widening = float(np.sqrt(1.0 + uncertain * (2.0 - self._kept) / self._kept))
        """How much larger it is on new samples of the client's own than on those that said what is typical."""
        self._average = np.zeros_like(self._own)

    def take(self, white: Floats) -> Floats:
        """Take in the next white samples (``Metric.white``), and return the stream's strangeness after each of them."""
        off = self._metric.unlabelled(white) - self._own
        off /= np.maximum(np.linalg.norm(off, axis=1, keepdims=True) / (_FARTHEST * self._usual), 1.0)
        found, average = np.empty(len(off)), self._average
        for place, each in enumerate(off):
            average = average + self._kept * (each - average)
            found[place] = np.sqrt(average @ average)
        self._average = average
        return np.asarray(found / self._unit)

    @property
    def state(self) -> dict[str, Any]:
        """The memory of the stream, as plain JSON."""
        return {"of": self._metric.mark, "average": self._average.tolist()}

    def read(self, state: Any) -> Floats:
        """Return the average of a saved state; one of another model, whose features mean something else, is 0."""
        check_keys(state, ("of", "average"))
        if not (isinstance(state["of"], str) and re.fullmatch("[0-9a-f]{16}", state["of"])):
            raise InputError("'of' in the state of a stream's strangeness has 16 hex digits: give what .state gave")
        nothing = np.zeros_like(self._own)
        return numbers("average", state["average"], nothing.shape) if state["of"] == self._metric.mark else nothing

    def restore(self, average: Floats) -> None:
        """Go on from an average that was read."""
        self._average = average

    def reset(self) -> None:
        """Forget the stream."""
        self._average = np.zeros_like(self._own)
