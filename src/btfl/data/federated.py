"""Each client's own data, cut from a source by a partition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from btfl.data.partition import Indices, Partition
from btfl.data.source import Samples, Source


@dataclass(frozen=True, eq=False)
class ClientData:
    """What one client trains with: its own train and validation parts, nothing else."""

    client: int
    train: Samples
    validation: Samples


@dataclass(frozen=True, eq=False)
class FederatedData:
    """A source and its partition among clients.

    Example
    -------
    >>> data = FederatedData(source, make_partition(source, PartitionSettings(clients=5), seed=0))
    >>> data.of(client=3, round_=0).train
    Samples(108 images of 8x8x1)
    """

    source: Source
    partition: Partition
    embedded: Samples | None = None
    """The pool as features of a frozen backbone, in the same order; where there are any, clients train on these."""
    backbone: Mapping[str, Any] | None = None
    """Which backbone that is, as plain JSON."""

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Of what clients train on: the source's samples, or their features."""
        return self.source.sample_shape if self.embedded is None else self.embedded.shape

    def __len__(self) -> int:
        """Return how many clients take part in training; those that are held out come after them."""
        return self.partition.seen

    def of(self, client: int, round_: int) -> ClientData:
        """Return what a client may train with in a round; its test part is not in it."""
        part = self.partition.part_at(client, round_)
        return ClientData(client, self._select(part.train), self._select(part.validation))

    def size(self, client: int) -> int:
        """Return how many samples a client trains with, to within a few where the split is redrawn in every round."""
        return len(self.partition.parts[client].train)

    def _select(self, rows: Indices) -> Samples:
        if self.embedded is not None:
            return self.embedded.take(rows)
        taken, scaling = self.source.pool.take(rows), self.source.scaling
        return taken if scaling is None else scaling.of(taken)
