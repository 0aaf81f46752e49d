"""What the defence ``screen`` remembers from round to round: where clients have pointed, and how long updates are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.errors import StorageError

Floats = NDArray[np.float64]

TURNED = 0.5
"""A client is turned round if its leaning is below minus so many times the median client's."""
CLEAR = 0.08
"""The median client's leaning must be so far from 0 before anybody is turned round, seen from there. Below it honest
clients were taken for turned round: where the median was 0.05 to 0.07, late in training or early with two classes."""
MANY = 0.25
"""With so large a share of the clients turned round, what was trained until then is given up, once."""
MAJORITY = 0.55
"""So large a share must have the same sign."""
ROUNDS, FEWEST = 2, 4
"""No client is judged in fewer rounds, nor among fewer clients."""
MOST_MET = 128
"""With more clients than this in all rounds together, no pairs are kept, whose number grows with the square."""
_DEVIATION = 1.4826  # of a normal distribution, in median deviations


@dataclass(frozen=True)
class Standing:
    """For each client that took part so far: in how many rounds, and the path of its updates in them."""

    rounds: Mapping[int, int] = field(default_factory=dict)
    cosines: Mapping[int, float] = field(default_factory=dict)
    """Of its updates with the weights that it was sent, added up with weights; in each round seen from where most
    clients went, since liars may have led training backwards and the others then lead it forward again."""
    weights: Mapping[int, float] = field(default_factory=dict)
    """The weights, added up: an update's length, or the usual one if that is less."""
    usual: float = 0.0
    """The median length of updates, in the round in which it was largest."""
    suspects: frozenset[int] = frozenset()
    """Who pointed against the majority in the very first round, until its updates say otherwise."""
    misnamed: frozenset[int] = frozenset()
    """Who called classes by other names than most, in the very first round or over several."""
    pairs: Mapping[tuple[int, int], tuple[float, float]] = field(default_factory=dict)
    """For two clients, the lower number first, that have raised the same rows of the head in some round: the products
    of those rows and the products of their lengths, added up (``btfl.engines.camps``)."""
    compared: int = 0
    """In how many rounds such pairs were compared."""
    restarted: int = 0
    """The round after which training was begun again, because liars had led it astray; 0 if it was not."""

    def after(self, clients: Sequence[int], along: Floats, lengths: Floats) -> Standing:
        """Return the standing after one more round of these clients, whose usual length is known.

        A round in which they go one way as often as the other says nothing of any of them.

        Parameters
        ----------
        along, lengths : (clients,) how far each update goes along the weights that were sent, and how long it is
        """
        sign = _sign(along)
        if not sign:
            return self
        rounds, sums, weights = dict(self.rounds), dict(self.cosines), dict(self.weights)
        for client, part, length in zip(clients, (sign * along).tolist(), lengths.tolist(), strict=True):
            weight = min(length, self.usual)
            rounds[client] = rounds.get(client, 0) + 1
            sums[client] = sums.get(client, 0.0) + (part * weight / length if length > 0 else 0.0)
            weights[client] = weights.get(client, 0.0) + weight
        return replace(self, rounds=rounds, cosines=sums, weights=weights)

    def measuring(self, length: float) -> Standing:
        """Return the standing after a round whose median update was so long."""
        return replace(self, usual=max(self.usual, length))

    def suspecting(self, clients: Iterable[int]) -> Standing:
        """Return the standing with these clients under suspicion."""
        return replace(self, suspects=self.suspects | frozenset(clients))

    def naming(self, clients: Iterable[int]) -> Standing:
        """Return the standing after these clients were found to call classes by other names."""
        return replace(self, misnamed=self.misnamed | frozenset(clients))

    def meeting(self, clients: Sequence[int], products: Floats, sizes: Floats) -> Standing:
        """Return the standing after one more round of these clients; as it is if there are too many to keep pairs of.

        Parameters
        ----------
        products, sizes : (clients, clients) of the rows that both have raised (``btfl.engines.camps.Moves``)
        """
        if len({client for pair in self.pairs for client in pair} | set(clients)) > MOST_MET:
            return self
        pairs = dict(self.pairs)
        for one, other in zip(*np.nonzero(np.triu(sizes, 1) > 0), strict=True):
            pair = (min(clients[one], clients[other]), max(clients[one], clients[other]))
            product, size = pairs.get(pair, (0.0, 0.0))
            pairs[pair] = (product + float(products[one, other]), size + float(sizes[one, other]))
        return replace(self, pairs=pairs, compared=self.compared + 1)

    def agreement(self, clients: Sequence[int]) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the mean cosine of each pair of these clients, and which of them have met."""
        sums = np.zeros((2, len(clients), len(clients)))
        for one, first in enumerate(clients):
            for other, second in enumerate(clients):
                if first != second:
                    sums[:, one, other] = self.pairs.get((min(first, second), max(first, second)), (0.0, 0.0))
        met = sums[1] > 0
        return np.where(met, sums[0] / np.where(met, sums[1], 1.0), 0.0), met

    def leanings(self) -> dict[int, float]:
        """Return for each client that can be judged the mean cosine of its updates with the weights it was sent."""
        judged = (client for client, rounds in self.rounds.items() if rounds >= ROUNDS and self.weights[client] > 0)
        return {client: self.cosines[client] / self.weights[client] for client in judged}

    def turned(self, clients: Sequence[int]) -> set[int]:
        """Return which of these clients have pointed away from what the others agree on."""
        found = self.leanings()
        middle, spread = _agreed(np.array(list(found.values())))
        if abs(middle) < CLEAR:
            return set(self.suspects & set(clients))
        relative = {client: found[client] / middle for client in clients if client in found}
        bound = min(-TURNED, 1.0 - farthest(len(found)) * spread / abs(middle))
        against = {client for client, value in relative.items() if value < bound}
        return against | {client for client in self.suspects & set(clients) if relative.get(client, 0.0) < TURNED}

    def as_json(self) -> dict[str, Any]:
        """Return it as plain values, for a checkpoint."""
        seen = {
            str(client): [rounds, self.cosines[client], self.weights[client]]
            for client, rounds in sorted(self.rounds.items())
        }
        named = {"suspects": sorted(self.suspects), "misnamed": sorted(self.misnamed)}
        pairs = [[*pair, *sums] for pair, sums in sorted(self.pairs.items())]
        met = {"pairs": pairs, "compared": self.compared}
        return {"clients": seen, "usual": self.usual, **named, **met, "restarted": self.restarted}

    @classmethod
    def from_json(cls, values: Any) -> Standing:
        """Return the standing that a checkpoint holds; one of an older btfl holds none, or cosines without weights."""
        try:
            seen = {} if values is None else values["clients"]
            found = {int(client): (int(rounds), *map(float, path)) for client, (rounds, *path) in seen.items()}
            found = {client: (*path, float(path[0])) if len(path) == 2 else path for client, path in found.items()}
            suspects = frozenset(int(client) for client in (() if values is None else values["suspects"]))
            misnamed = frozenset(int(client) for client in (() if values is None else values.get("misnamed", ())))
            restarted = 0 if values is None else int(values["restarted"])  # only whether it was, in an older one
            usual = 0.0 if values is None else float(values.get("usual", 0.0))
            met = () if values is None else values.get("pairs", ())
            compared = 0 if values is None else int(values.get("compared", 0))
            pairs = {(int(one), int(other)): (float(product), float(size)) for one, other, product, size in met}
            rounds, cosines, weights = ({client: path[place] for client, path in found.items()} for place in range(3))
        except (TypeError, ValueError, AttributeError, KeyError, IndexError):
            raise StorageError("the checkpoint does not say where clients have pointed so far") from None
        return cls(rounds, cosines, weights, usual, suspects, misnamed, pairs, compared, restarted)  # type: ignore[arg-type]


def farthest(count: int) -> float:
    """Return how many deviations from the middle an honest one of so many may be: the more, the farther."""
    return float(np.sqrt(2 * np.log(max(count, 1))))


def _agreed(leanings: Floats) -> tuple[float, float]:
    """Return what most clients agree on, and how far honest ones are from it, as a deviation.

    The first is their median size with the sign that most of them have, the second is taken from those beyond it: liars
    who point the other way are not among them.
    """
    sign = _sign(leanings)
    if len(leanings) < FEWEST or not sign:
        return 0.0, 0.0
    size = float(np.median(np.abs(leanings)))
    return size * sign, deviation_beyond(sign * leanings, size)


def deviation_beyond(values: Floats, middle: float) -> float:
    """Return the deviation of values from a middle, by those that are not below it."""
    beyond = values[values >= middle] - middle
    return _DEVIATION * float(np.median(beyond)) if len(beyond) else 0.0


def _sign(values: Floats) -> float:
    """Return the sign that most of them have; 0 where there is no such majority."""
    above = int((values > 0).sum())
    most = max(above, len(values) - above)
    if most < MAJORITY * len(values):
        return 0.0
    return 1.0 if above == most else -1.0
