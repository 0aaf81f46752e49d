"""Coherent, our own version of the idea (docs/method.md): density, evidence, memory, weight, and the method itself."""

from btfl.methods.coherent.method import Coherent
from btfl.methods.coherent.settings import CoherentSettings
from btfl.methods.coherent.strangeness import Strangeness
from btfl.methods.coherent.watchful import WatchfulCoherent

__all__ = ["Coherent", "CoherentSettings", "Strangeness", "WatchfulCoherent"]
