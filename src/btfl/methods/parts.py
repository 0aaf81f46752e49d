"""A long batch is answered in parts, so that what is between features and answers stays in the processor's caches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from btfl.methods.base import Method

Floats = NDArray[np.float64]


def in_parts(method: Method, features: Floats, rows: int, answer: Callable[[Floats, Floats | None], Floats]) -> Floats:
    """Return (samples, classes) answers; ``method.found`` is then that of all samples.

    Parameters
    ----------
    method : a method whose answers do not depend on how its stream is cut
    features : (samples, dimensions)
    rows : samples of a part at most; parts are of about the same size
    answer : returns the answers for the features of a part, in an array that it is given, and leaves ``method.found``
    """
    if len(features) <= rows:
        return answer(features, None)
    answers, found = np.empty((len(features), method.bundle.classes)), []
    count = -(-len(features) // rows)
    ends = [len(features) * number // count for number in range(count + 1)]
    for part in map(slice, ends, ends[1:]):
        answer(features[part], answers[part])
        found.append(method.found or ())
    method.found = tuple(np.concatenate(column) for column in zip(*found, strict=True))
    return answers
