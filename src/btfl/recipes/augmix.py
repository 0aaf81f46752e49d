"""What 0.1 called ``btfl.pixels.augmix``."""

import warnings

from btfl.pixels.augmix import augmix, distorted

__all__ = ["augmix", "distorted"]
warnings.warn("btfl.recipes.augmix is now btfl.pixels.augmix", DeprecationWarning, stacklevel=2)
