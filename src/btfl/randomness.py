"""Every random number comes from a generator derived from a seed and what it is for, never from a global one.

Two purposes never share a generator, so adding a random choice somewhere leaves all others as they were, and the
order in which clients or workers run cannot matter.
"""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return the generator for one purpose, for example ``generator(seed, "train", round, client)``."""
    key = "\x1f".join([str(int(seed)), *(f"{type(part).__name__}:{part}" for part in purpose)])
    words = np.frombuffer(hashlib.sha256(key.encode()).digest(), dtype=np.uint32)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words.tolist())))
