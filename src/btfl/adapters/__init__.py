"""What 0.1 called ``btfl.methods``: methods in files that were written for it still run."""

import warnings

warnings.warn("btfl.adapters is now btfl.methods", DeprecationWarning, stacklevel=2)
