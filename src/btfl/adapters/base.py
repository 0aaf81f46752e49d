"""What 0.1 called ``btfl.methods.base``."""

import warnings

from btfl.methods.base import Method as Adapter

__all__ = ["Adapter"]
warnings.warn("btfl.adapters.base.Adapter is now btfl.methods.base.Method", DeprecationWarning, stacklevel=2)
