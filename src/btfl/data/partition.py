"""Which client has which image: the pool dealt to clients, each part split into train, validation and test.

Exact copies of an image always go to the same side of the same client, so that no split leaks by content.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from btfl.data.duplicates import first_copies
from btfl.data.source import Labels, Source
from btfl.errors import InputError
from btfl.knobs import Settings, knob
from btfl.randomness import generator

Indices = NDArray[np.int64]
Kind = Literal["dirichlet", "equal", "shards", "domain"]
Split = Literal["honest", "redrawn"]

FEWEST = 5  # with fewer images a client cannot have train, validation and test
SHARES = (0.6, 0.2, 0.2)


@dataclass(frozen=True)
class PartitionSettings(Settings):
    """How the images are divided among the clients."""

    title: ClassVar[str] = "the partition"

    clients: int = knob(20, "Number of clients.", least=2)
    kind: Kind = knob("dirichlet", "How images are divided among the clients.")
    alpha: float = knob(0.1, "Dirichlet parameter: the smaller it is, the more the clients' labels differ.", above=0)
    shards: int = knob(2, "Runs of equal labels that a client gets, where the partition is by shards.", least=1)
    split: Split = knob(
        "honest", "Split each client once, or again every round as published, which tests on training images."
    )


@dataclass(frozen=True, eq=False, repr=False)
class ClientPart:
    """One client's images: ``train``, ``validation`` and ``test``, each as indices (n,) into the pool."""

    train: Indices
    validation: Indices
    test: Indices

    def __repr__(self) -> str:
        sides = (("train", self.train), ("validation", self.validation), ("test", self.test))
        return f"ClientPart({', '.join(f'{len(side):,} {name}' for name, side in sides)})"

    @property
    def everything(self) -> Indices:
        """All images of the client."""
        return np.concatenate([self.train, self.validation, self.test])


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """Which client has which images; make one with ``make_partition``.

    Parameters
    ----------
    settings, seed : what it was made with
    parts : one for each client
    copies_of : for each pool image (n,), the first one with the same pixels
    """

    settings: PartitionSettings
    seed: int
    parts: tuple[ClientPart, ...]
    copies_of: Indices

    def __len__(self) -> int:
        return len(self.parts)

    def __repr__(self) -> str:
        return f"Partition({len(self.copies_of):,} images, {len(self)} clients, {self.settings.kind}, seed {self.seed})"

    @property
    def copies(self) -> int:
        """How many pool images are exact copies of an earlier one."""
        return len(self._copies)

    @cached_property
    def _copies(self) -> Indices:
        return _later_copies(self.copies_of)

    def part_at(self, client: int, round_: int) -> ClientPart:
        """Return the split the client trains on in a round: always the same one, unless it is redrawn."""
        if self.settings.split == "honest":
            return self.parts[client]
        return self.redraw(client, "round", round_)

    def redraw(self, client: int, *purpose: str | int) -> ClientPart:
        """Draw a fresh split of a client's part (only the leaking, published procedure does this)."""
        rng = generator(self.seed, "redraw", client, *purpose)
        return _split(self.parts[client].everything, self.copies_of, self._copies, rng)


def make_partition(source: Source, settings: PartitionSettings, seed: int) -> Partition:
    """Deal a source's pool to clients: a pure function of the source, the settings and the seed.

    Example
    -------
    >>> make_partition(load_source("digits"), PartitionSettings(clients=5), seed=0)
    Partition(1,797 images, 5 clients, dirichlet, seed 0)
    """
    copies_of = first_copies(source.pool.values)
    originals = np.flatnonzero(copies_of == np.arange(len(copies_of)))
    if len(originals) < FEWEST * settings.clients:
        raise InputError(
            f"{len(originals)} distinct images cannot be dealt to {settings.clients} clients: each needs at least "
            f"{FEWEST}, for train, validation and test. Ask for at most {len(originals) // FEWEST} clients"
        )
    rng = generator(seed, "partition", settings.kind)
    deal: Callable[[], list[Indices]] = {
        "dirichlet": lambda: _dirichlet(source.pool.labels[originals], settings, rng),
        "equal": lambda: np.array_split(rng.permutation(len(originals)), settings.clients),
        "shards": lambda: _shards(source.pool.labels[originals], settings, rng),
        "domain": lambda: _by_domain(source, originals, settings, rng),
    }[settings.kind]
    copies = _later_copies(copies_of)
    parts = tuple(
        _split(np.sort(originals[owned]), copies_of, copies, generator(seed, "split", client))
        for client, owned in enumerate(deal())
    )
    return Partition(settings, seed, parts, copies_of)


def _dirichlet(labels: Labels, settings: PartitionSettings, rng: np.random.Generator) -> list[Indices]:
    """Deal each class by proportions drawn from Dirichlet(alpha); clients that already have an equal share get no more.

    Then the poorest are filled up until none has less than half of an equal share.
    """
    clients = settings.clients
    owned: list[list[Indices]] = [[] for _ in range(clients)]
    sizes = np.zeros(clients, dtype=np.int64)
    for label in rng.permutation(np.unique(labels)):
        members = rng.permutation(np.flatnonzero(labels == label))
        proportions = rng.dirichlet(np.full(clients, settings.alpha)) * (sizes < len(labels) / clients)
        if not proportions.sum() > 0:  # every client the draw favoured is full already
            proportions = (sizes < len(labels) / clients).astype(np.float64)
        cuts = (np.cumsum(proportions / proportions.sum())[:-1] * len(members)).astype(np.int64)
        for client, piece in enumerate(np.split(members, cuts)):
            owned[client].append(piece)
            sizes[client] += len(piece)
    least = max(-(-len(labels) // (2 * clients)), FEWEST)
    return _fill_up([np.concatenate(pieces) for pieces in owned], labels, least, rng)


def _fill_up(parts: list[Indices], labels: Labels, least: int, rng: np.random.Generator) -> list[Indices]:
    """Move images to clients that have too few, of classes they already have, each from the client that has most.

    So the label mixes stay as different as they were drawn. It ends: as long as one client has too few, another has
    more than enough; where none of those has a wanted class, another of its classes will do.
    """
    classes = int(labels.max()) + 1
    piles = [[part[labels[part] == label].tolist() for label in range(classes)] for part in parts]
    counts = np.array([[len(pile) for pile in own] for own in piles])
    sizes = counts.sum(axis=1)
    for poor in np.flatnonzero(sizes < least).tolist():
        mix = (counts[poor] if sizes[poor] else np.ones(classes)) / max(sizes[poor], 1)
        for label in rng.choice(classes, size=least - sizes[poor], p=mix / mix.sum()).tolist():
            givers = sizes > least
            able = givers & (counts[:, label] > 0)
            donor = int(np.argmax(np.where(able if able.any() else givers, sizes, -1)))
            given = label if able.any() else int(np.argmax(counts[donor]))
            piles[poor][given].append(piles[donor][given].pop())
            for client, change in ((poor, 1), (donor, -1)):
                counts[client, given] += change
                sizes[client] += change
    return [np.array([i for pile in own for i in pile], dtype=np.int64) for own in piles]


def _shards(labels: Labels, settings: PartitionSettings, rng: np.random.Generator) -> list[Indices]:
    """Sort by label, cut into equal runs, deal each client a few of them."""
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    pieces = np.array_split(order, settings.clients * settings.shards)
    hands = np.array_split(rng.permutation(len(pieces)), settings.clients)
    parts = [np.concatenate([pieces[i] for i in hand]) for hand in hands]
    return _fill_up(parts, labels, FEWEST, rng)


def _by_domain(
    source: Source, originals: Indices, settings: PartitionSettings, rng: np.random.Generator
) -> list[Indices]:
    """Deal each client images of one domain only; larger domains get more clients."""
    if source.domains is None:
        raise InputError(f"{source.name} has no domains to deal by; use dirichlet, equal or shards")
    domains = source.domains[originals]
    names, counts = np.unique(domains, return_counts=True)
    if settings.clients < len(names):
        raise InputError(f"{len(names)} domains need at least as many clients, not {settings.clients}")
    hosts = np.ones(len(names), dtype=np.int64)
    for _ in range(settings.clients - len(names)):  # the next client goes where a client's share is largest
        hosts[np.argmax(counts / hosts)] += 1
    parts: list[Indices] = []
    for name, count, size in zip(names, hosts, counts, strict=True):
        if size < FEWEST * count:
            raise InputError(f"a domain with {size} images cannot serve {count} clients; ask for fewer clients")
        parts.extend(np.array_split(rng.permutation(np.flatnonzero(domains == name)), count))
    return parts


def _later_copies(copies_of: Indices) -> Indices:
    return np.flatnonzero(copies_of != np.arange(len(copies_of)))


def _split(owned: Indices, copies_of: Indices, copies: Indices, rng: np.random.Generator) -> ClientPart:
    """Split a client's part 60 / 20 / 20, each of the pool's ``copies`` on the side of the image it copies."""
    originals = rng.permutation(np.unique(copies_of[owned]))
    first = min(max(round(SHARES[0] * len(originals)), 1), len(originals) - 2)
    second = min(max(first + round(SHARES[1] * len(originals)), first + 1), len(originals) - 1)
    sides = np.split(originals, [first, second])
    if len(copies):
        sides = [np.concatenate([side, copies[np.isin(copies_of[copies], side)]]) for side in sides]
    train, validation, test = (np.sort(side) for side in sides)
    return ClientPart(train, validation, test)
