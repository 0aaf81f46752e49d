"""The type of signals everywhere in btfl."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Signals = NDArray[np.float32]
"""(n, time, channels)."""
