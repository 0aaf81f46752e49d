"""Which client has which sample: the pool dealt to clients, each part split into train, validation and test.

Exact copies of a sample always go to the same side of the same client, so that no split leaks by content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from btfl.data.duplicates import first_copies
from btfl.data.natural import natural_clients, own_copies
from btfl.data.source import Labels, Source
from btfl.data.split import FEWEST, ClientPart, Indices, split_at_random, split_in_order
from btfl.errors import InputError
from btfl.knobs import Settings, knob
from btfl.randomness import generator

__all__ = ["FEWEST", "ClientPart", "Indices", "Kind", "Partition", "PartitionSettings", "Split", "make_partition"]

Kind = Literal["dirichlet", "equal", "shards", "domain", "natural"]
Split = Literal["honest", "redrawn", "ordered"]


@dataclass(frozen=True)
class PartitionSettings(Settings):
    """How the samples are divided among the clients."""

    title: ClassVar[str] = "the partition"

    clients: int | None = knob(20, "Number of clients; of natural ones all, if not given.", least=2)
    kind: Kind = knob("dirichlet", "How samples are divided among the clients; natural: by whose they are.")
    alpha: float = knob(0.1, "Dirichlet parameter: the smaller it is, the more the clients' labels differ.", above=0)
    shards: int = knob(2, "Runs of equal labels that a client gets, where the partition is by shards.", least=1)
    split: Split = knob(
        "honest",
        "Split each client once, or again every round as published, which tests on training samples; "
        "ordered: by the order of the samples in each class, for windows that overlap in time.",
    )
    fewest: int = knob(20, "Distinct samples that a natural client needs; those with fewer are left out.", least=FEWEST)
    held_out: float = knob(
        0.0, "Share of the clients that are kept out of training, to be enrolled when it has ended.", least=0, below=1
    )

    def check(self) -> None:
        """Refuse to deal samples to nobody knows how many clients."""
        if self.clients is None and self.kind != "natural":
            raise InputError(f"the partition: say how many clients a {self.kind} partition has")

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON.

        Settings in ``_LATER`` are included only if they are not as they always were, so that hashes stay.
        """
        return {name: value for name, value in super().as_dict().items() if _LATER.get(name, ...) != value}


_LATER: Mapping[str, Any] = {"fewest": 20, "held_out": 0.0}
"""Settings that came after the first manifests were written, and what those had."""


@dataclass(frozen=True, eq=False, repr=False)
class Partition:
    """Which client has which samples; make one with ``make_partition``.

    Parameters
    ----------
    settings, seed : what it was made with
    parts : one for each client
    copies_of : for each pool sample (n,), the first one with the same content (of natural clients: and owner)
    names : of the clients, if they are natural
    notes : what was left out and why, and what else a reader must know
    held_out : how many clients, the last ones, are kept out of training
    """

    settings: PartitionSettings
    seed: int
    parts: tuple[ClientPart, ...]
    copies_of: Indices
    names: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    held_out: int = 0

    def __len__(self) -> int:
        return len(self.parts)

    @property
    def seen(self) -> int:
        """How many clients take part in training: the first ones."""
        return len(self.parts) - self.held_out

    def __repr__(self) -> str:
        return (
            f"Partition({len(self.copies_of):,} samples, {len(self)} clients, {self.settings.kind}, seed {self.seed})"
        )

    @property
    def copies(self) -> int:
        """How many pool samples are exact copies of an earlier one."""
        return len(self._copies)

    @cached_property
    def _copies(self) -> Indices:
        return _later_copies(self.copies_of)

    def part_at(self, client: int, round_: int) -> ClientPart:
        """Return the split the client trains on in a round: always the same one, unless it is redrawn."""
        if self.settings.split == "redrawn":
            return self.redraw(client, "round", round_)
        return self.parts[client]

    def redraw(self, client: int, *purpose: str | int) -> ClientPart:
        """Draw a fresh split of a client's part (only the leaking, published procedure does this)."""
        rng = generator(self.seed, "redraw", client, *purpose)
        return split_at_random(self.parts[client].everything, self.copies_of, self._copies, rng)


def make_partition(source: Source, settings: PartitionSettings, seed: int) -> Partition:
    """Deal a source's pool to clients: a pure function of the source, the settings and the seed.

    Clients that are held out come last. They are drawn after all have been dealt to, so that the others' samples are
    those they would have otherwise.

    Example
    -------
    >>> make_partition(load_source("digits"), PartitionSettings(clients=5), seed=0)
    Partition(1,797 samples, 5 clients, dirichlet, seed 0)
    """
    copies_of = first_copies(source.pool.values)
    ordered = settings.split == "ordered"
    if settings.kind == "natural":
        found = natural_clients(source, copies_of, settings.clients, settings.fewest, ordered, seed)
        copies_of = own_copies(source, copies_of)
        notes = (*found.notes, *_notes(source, settings, copies_of))
        return _held_back(Partition(settings, seed, found.parts, copies_of, found.names, notes))
    dealt = _deal(source, np.flatnonzero(copies_of == np.arange(len(copies_of))), settings, seed)
    copies = _later_copies(copies_of)
    parts = tuple(
        split_in_order(owned, source.pool.labels)
        if ordered
        else split_at_random(owned, copies_of, copies, generator(seed, "split", client))
        for client, owned in enumerate(dealt)
    )
    if broken := sum(not part.is_whole for part in parts):
        raise InputError(
            f"{broken} clients have no class with enough {source.kind} for an ordered split; ask for fewer clients"
        )
    return _held_back(Partition(settings, seed, parts, copies_of, notes=_notes(source, settings, copies_of)))


def _held_back(partition: Partition) -> Partition:
    """Return the partition with the clients that are held out at its end, drawn by the seed."""
    share, count = partition.settings.held_out, len(partition)
    if share == 0:
        return partition
    held_out = max(round(share * count), 1)
    if count - held_out < 2:
        raise InputError(
            f"held_out = {share:g} of {count} clients leaves {count - held_out} to train with; a federation needs at "
            "least 2"
        )
    drawn = np.sort(generator(partition.seed, "held out").choice(count, size=held_out, replace=False)).tolist()
    order = [*(client for client in range(count) if client not in set(drawn)), *drawn]
    note = f"{held_out} of {count} clients are held out: they take no part in training, and are enrolled afterwards"
    return replace(
        partition,
        parts=tuple(partition.parts[client] for client in order),
        names=tuple(partition.names[client] for client in order) if partition.names else (),
        notes=(*partition.notes, note),
        held_out=held_out,
    )


def _deal(source: Source, originals: Indices, settings: PartitionSettings, seed: int) -> list[Indices]:
    """Deal the samples that are no copies, each client's sorted."""
    clients = _count(settings)
    if len(originals) < FEWEST * clients:
        most = len(originals) // FEWEST
        instead = f"Ask for at most {most} clients" if most > 1 else "That is too little data for a federation"
        raise InputError(
            f"{len(originals)} distinct {source.kind} cannot be dealt to {clients} clients: each needs at least "
            f"{FEWEST}, for train, validation and test. {instead}"
        )
    rng = generator(seed, "partition", settings.kind)
    deal: Callable[[], list[Indices]] = {
        "dirichlet": lambda: _dirichlet(source.pool.labels[originals], settings, rng),
        "equal": lambda: np.array_split(rng.permutation(len(originals)), clients),
        "shards": lambda: _shards(source.pool.labels[originals], settings, rng),
        "domain": lambda: _by_domain(source, originals, settings, rng),
    }[settings.kind]
    return [np.sort(originals[owned]) for owned in deal()]


def _count(settings: PartitionSettings) -> int:
    assert settings.clients is not None, "only natural clients have no number, and those are not dealt to"
    return settings.clients


def _notes(source: Source, settings: PartitionSettings, copies_of: Indices) -> tuple[str, ...]:
    notes, ordered = [], settings.split == "ordered"
    if copies := len(_later_copies(copies_of)):
        fate = "are left out" if ordered else "each stays on one side of one client's split"
        joint = " and" if ordered else ";"
        notes.append(f"{copies} {source.kind} are exact copies of others{joint} {fate}")
    if source.kind == "signals" and not ordered:
        notes.append(
            "signals are split at random: where windows overlap in time, test samples share a part with training "
            "samples; split=ordered is for those"
        )
    if ordered and settings.kind != "natural":
        notes.append("samples are dealt at random: neighbours in time may be with different clients")
    return tuple(notes)


def _dirichlet(labels: Labels, settings: PartitionSettings, rng: np.random.Generator) -> list[Indices]:
    """Deal each class by proportions drawn from Dirichlet(alpha); clients that already have an equal share get no more.

    Then the poorest are filled up until none has less than half of an equal share.
    """
    clients = _count(settings)
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
    """Move samples to clients that have too few, of classes they already have, each from the client that has most.

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
    pieces = np.array_split(order, _count(settings) * settings.shards)
    hands = np.array_split(rng.permutation(len(pieces)), _count(settings))
    parts = [np.concatenate([pieces[i] for i in hand]) for hand in hands]
    return _fill_up(parts, labels, FEWEST, rng)


def _by_domain(
    source: Source, originals: Indices, settings: PartitionSettings, rng: np.random.Generator
) -> list[Indices]:
    """Deal each client samples of one domain only; larger domains get more clients."""
    if source.domains is None:
        raise InputError(f"{source.name} has no domains to deal by; use dirichlet, equal or shards")
    domains = source.domains[originals]
    names, counts = np.unique(domains, return_counts=True)
    clients = _count(settings)
    if clients < len(names):
        raise InputError(f"{len(names)} domains need at least as many clients, not {clients}")
    hosts = np.ones(len(names), dtype=np.int64)
    for _ in range(clients - len(names)):  # the next client goes where a client's share is largest
        hosts[np.argmax(counts / hosts)] += 1
    parts: list[Indices] = []
    for name, count, size in zip(names, hosts, counts, strict=True):
        if size < FEWEST * count:
            raise InputError(f"a domain with {size} {source.kind} cannot serve {count} clients; ask for fewer clients")
        parts.extend(np.array_split(rng.permutation(np.flatnonzero(domains == name)), count))
    return parts


def _later_copies(copies_of: Indices) -> Indices:
    return np.flatnonzero(copies_of != np.arange(len(copies_of)))
