"""The type of images everywhere in btfl."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.uint8]
"""(n, height, width, channels), channels 1 or 3."""
