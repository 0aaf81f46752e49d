"""Where each client has pointed so far: the one thing that the defence ``screen`` remembers from round to round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.errors import StorageError

Floats = NDArray[np.float64]

TURNED = 0.5
"""A client is turned round if its mean cosine is below minus so many times the median client's."""
CLEAR = 0.05
"""The median client's mean cosine must be so far from 0 before anybody is turned round, seen from there."""
MANY = 0.25
"""With so large a share of the clients turned round, what was trained until then is given up, once."""
MAJORITY = 0.55
"""So large a share must have the same sign."""
ROUNDS, FEWEST = 2, 4
"""No client is judged in fewer rounds, nor among fewer clients."""


@dataclass(frozen=True)
class Standing:
    """For each client that took part so far: in how many rounds, and the sum of its cosines in them."""

    rounds: Mapping[int, int] = field(default_factory=dict)
    cosines: Mapping[int, float] = field(default_factory=dict)
    suspects: frozenset[int] = frozenset()
    """Who pointed against the majority in the very first round, until its cosines say otherwise."""
    restarted: bool = False
    """Whether training was begun again, because liars had led it astray."""

    def after(self, clients: Sequence[int], cosines: Floats) -> Standing:
        """Return the standing after one more round of these clients."""
        rounds, sums = dict(self.rounds), dict(self.cosines)
        for client, cosine in zip(clients, cosines.tolist(), strict=True):
            rounds[client] = rounds.get(client, 0) + 1
            sums[client] = sums.get(client, 0.0) + cosine
        return replace(self, rounds=rounds, cosines=sums)

    def suspecting(self, clients: Iterable[int]) -> Standing:
        """Return the standing with these clients under suspicion."""
        return replace(self, suspects=self.suspects | frozenset(clients))

    def turned(self, clients: Sequence[int]) -> set[int]:
        """Return which of these clients have pointed away from what the others agree on."""
        mean = {client: self.cosines[client] / rounds for client, rounds in self.rounds.items() if rounds >= ROUNDS}
        middle = _middle(np.array(list(mean.values())))
        if abs(middle) < CLEAR:
            return set(self.suspects & set(clients))
        relative = {client: mean[client] / middle for client in clients if client in mean}
        against = {client for client, value in relative.items() if value < -TURNED}
        return against | {client for client in self.suspects & set(clients) if relative.get(client, 0.0) < TURNED}

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values, for a checkpoint."""
        seen = {str(client): [rounds, self.cosines[client]] for client, rounds in sorted(self.rounds.items())}
        return {"clients": seen, "suspects": sorted(self.suspects), "restarted": self.restarted}

    @classmethod
    def from_json(cls, values: Any) -> Standing:
        """Return the standing that a checkpoint holds; one of an older btfl holds none."""
        try:
            seen = {} if values is None else values["clients"]
            found = {int(client): (int(rounds), float(cosine)) for client, (rounds, cosine) in seen.items()}
            suspects = frozenset(int(client) for client in (() if values is None else values["suspects"]))
            restarted = bool(values is not None and values["restarted"])
        except (TypeError, ValueError, AttributeError, KeyError):
            raise StorageError("the checkpoint does not say where clients have pointed so far") from None
        rounds, cosines = ({client: pair[place] for client, pair in found.items()} for place in (0, 1))
        return cls(rounds, cosines, suspects, restarted)  # type: ignore[arg-type]


def _middle(means: Floats) -> float:
    """Return what most clients agree on: the median size of their means, with the sign that most of them have."""
    above = int((means > 0).sum())
    most = max(above, len(means) - above)
    if len(means) < FEWEST or most < MAJORITY * len(means):
        return 0.0
    return float(np.median(np.abs(means))) * (1.0 if above == most else -1.0)
