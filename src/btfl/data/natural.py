"""Clients that exist: each sample belongs to whoever it came from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from btfl.data.source import Source
from btfl.data.split import ClientPart, Indices, split_at_random, split_in_order
from btfl.errors import InputError, listed
from btfl.randomness import generator


@dataclass(frozen=True, eq=False)
class NaturalClients:
    """The clients of a source.

    Parameters
    ----------
    parts, names : of the clients that take part, in the order of their names
    notes : who and what was left out, and why
    """

    parts: tuple[ClientPart, ...]
    names: tuple[str, ...]
    notes: tuple[str, ...]


def own_copies(source: Source, copies_of: Indices) -> Indices:
    """Return, for each pool sample (n,), the first one with the same content; its own index if that is another's."""
    owners = _owners(source)
    return np.where(owners[copies_of] == owners, copies_of, np.arange(len(owners)))


def natural_clients(
    source: Source, copies_of: Indices, clients: int | None, fewest: int, ordered: bool, seed: int
) -> NaturalClients:
    """Return the clients that exist, with their splits.

    Parameters
    ----------
    source : whose ``owners`` say whose each sample is
    copies_of : for each pool sample (n,), the first one with the same content, whoever has it
    clients : how many to draw, by the seed; None: all
    fewest : distinct samples that a client needs; those with fewer are left out
    ordered : whether parts are split in the order of the file, else at random
    seed : random seed of the draw and the splits
    """
    owners, notes = _owners(source), list[str]()
    theirs = owners[copies_of] == owners  # a sample that another client has too would leak from one to the other
    if not theirs.all():
        notes.append(f"{int((~theirs).sum()):,} {source.kind} are exact copies of another client's and are left out")
    order = np.argsort(owners, kind="stable")
    groups = np.split(order, np.cumsum(np.bincount(owners, minlength=len(source.owner_names)))[:-1])
    of_same = own_copies(source, copies_of)
    kept: list[tuple[int, Indices, Indices]] = []
    small: list[int] = []
    for owner, group in enumerate(groups):
        rows = group[theirs[group]]
        originals = rows[of_same[rows] == rows]
        if len(originals) < fewest:
            small.append(owner)
        else:
            kept.append((owner, originals, rows[of_same[rows] != rows]))
    if small:
        notes.append(
            f"{len(small):,} of {len(groups):,} clients have fewer than {fewest} distinct {source.kind} and are left "
            f"out: {listed(source.owner_names[owner] for owner in small)}"
        )
    if len(kept) < 2:
        raise InputError(
            f"{source.name} has {len(kept)} client{'s' * (len(kept) != 1)} with at least {fewest} distinct "
            f"{source.kind} (fewest), of {len(groups)} in all; a federation needs at least 2"
        )
    if clients is not None:
        kept = _draw(kept, clients, source, seed, notes)
    parts, names, broken = [], [], []
    for number, (owner, originals, copies) in enumerate(kept):
        if ordered:
            part = split_in_order(originals, source.pool.labels)
        else:
            part = split_at_random(originals, of_same, copies, generator(seed, "split", number))
        if part.is_whole:
            parts.append(part)
            names.append(source.owner_names[owner])
        else:
            broken.append(source.owner_names[owner])
    if broken:
        notes.append(
            f"{len(broken)} clients have no class with enough {source.kind} for an ordered split and are left out: "
            f"{listed(broken)}"
        )
    if len(parts) < 2:
        raise InputError(
            f"an ordered split leaves {len(parts)} clients of {source.name}; a federation needs at least 2"
        )
    return NaturalClients(tuple(parts), tuple(names), tuple(notes))


def _owners(source: Source) -> Indices:
    if source.owners is None:
        raise InputError(
            f"{source.name} does not say which client a sample belongs to, so there are no natural clients: use "
            f"dirichlet, equal or shards"
        )
    return source.owners


def _draw(
    kept: list[tuple[int, Indices, Indices]], clients: int, source: Source, seed: int, notes: list[str]
) -> list[tuple[int, Indices, Indices]]:
    if clients > len(kept):
        raise InputError(f"{source.name} has {len(kept)} clients with enough {source.kind}, not {clients}")
    if clients < len(kept):
        notes.append(f"{clients} of {len(kept)} clients take part, drawn at random by the seed")
    chosen = generator(seed, "partition", "natural").choice(len(kept), size=clients, replace=False)
    return [kept[i] for i in np.sort(chosen).tolist()]
