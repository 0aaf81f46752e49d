"""One client's samples split into train, validation and test, at random or in their order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from btfl.data.samples import Labels

Indices = NDArray[np.int64]

FEWEST = 5  # with fewer samples a client cannot have train, validation and test
SHARES = (0.6, 0.2, 0.2)
BORDER = 1  # samples left out between two sides of an ordered split: windows that overlap by half share nothing then


@dataclass(frozen=True, eq=False, repr=False)
class ClientPart:
    """One client's samples: ``train``, ``validation`` and ``test``, each as indices (n,) into the pool."""

    train: Indices
    validation: Indices
    test: Indices

    def __repr__(self) -> str:
        return f"ClientPart({', '.join(f'{size:,} {name}' for name, size in self.sizes.items())})"

    @property
    def sizes(self) -> dict[str, int]:
        """How many samples each side has."""
        return {"train": len(self.train), "validation": len(self.validation), "test": len(self.test)}

    @property
    def everything(self) -> Indices:
        """All samples of the client."""
        return np.concatenate([self.train, self.validation, self.test])

    @property
    def is_whole(self) -> bool:
        """Whether the client has something to train on, to choose by and to test with."""
        return min(len(self.train), len(self.validation), len(self.test)) > 0


def split_at_random(owned: Indices, copies_of: Indices, copies: Indices, rng: np.random.Generator) -> ClientPart:
    """Split a client's part 60 / 20 / 20, each of the pool's ``copies`` on the side of the sample it copies."""
    originals = rng.permutation(np.unique(copies_of[owned]))
    sides = np.split(originals, _cuts(len(originals)))
    if len(copies):
        sides = [np.concatenate([side, copies[np.isin(copies_of[copies], side)]]) for side in sides]
    train, validation, test = (np.sort(side) for side in sides)
    return ClientPart(train, validation, test)


def split_in_order(owned: Indices, labels: Labels) -> ClientPart:
    """Split a client's part within each class: the first 60 % to train with, then validation, the last to test with.

    For samples in the order of time, of which neighbours overlap. One sample is left out at each border. A class with
    too few for that is trained with only.

    Parameters
    ----------
    owned : indices into the pool, of distinct samples
    labels : of the pool
    """
    sides: list[list[Indices]] = [[], [], []]
    owned = np.sort(owned)
    of_owned = labels[owned]
    for label in np.unique(of_owned):
        rows = owned[of_owned == label]
        kept = len(rows) - 2 * BORDER
        if kept < 3:
            sides[0].append(rows)
            continue
        first, second = _cuts(kept)
        pieces = rows[:first], rows[first + BORDER : second + BORDER], rows[second + 2 * BORDER :]
        for side, piece in zip(sides, pieces, strict=True):
            side.append(piece)
    train, validation, test = (np.sort(np.concatenate([owned[:0], *side])) for side in sides)
    return ClientPart(train, validation, test)


def _cuts(count: int) -> tuple[int, int]:
    """Return where 60 / 20 / 20 of so many samples are cut, with at least one on each side."""
    first = min(max(round(SHARES[0] * count), 1), count - 2)
    return first, min(max(first + round(SHARES[1] * count), first + 1), count - 1)
