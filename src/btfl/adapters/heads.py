"""What 0.1 called ``btfl.methods.heads``."""

import warnings

from btfl.core.heads import probabilities

__all__ = ["probabilities"]
warnings.warn(
    "btfl.adapters.heads.probabilities is now btfl.core.heads.probabilities", DeprecationWarning, stacklevel=2
)
