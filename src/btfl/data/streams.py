"""The five test streams of BTGFL for every client, as indices with a hash.

| stream           | what it holds                                                                         |
| A original_ind   | the client's own held-out test samples                                                |
| B shifted_ind    | the label mix of A; half corrupted, half from the other domain                        |
| C original_exd   | samples from the other clients' test parts, as many as A                              |
| D shifted_exd    | C's counterpart of B                                                                  |
| E synthetical    | equal parts of A, B, C and D, shuffled into one stream                                |

Signals are corrupted as sensors are; vectors are not, so their B and D come from the other domain alone. Without one
they are left out, and E is half A, half C.

A manifest is a pure function of the source, the partition and the settings. Samples are made from it on demand, each
the same whoever asks, so every method on every machine sees the same stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from btfl.data.duplicates import not_among
from btfl.data.kept import Kept
from btfl.data.manifest import (
    CLEAN,
    LETTERS,
    OTHER_DOMAIN,
    POOL,
    STREAMS,
    ClientStreams,
    Draw,
    Manifest,
    StreamSettings,
)
from btfl.data.partition import Indices, Partition
from btfl.data.samples import Values
from btfl.data.source import Labels, Source
from btfl.errors import InputError
from btfl.pixels.corruptions import corrupt
from btfl.randomness import generator
from btfl.signals.corruptions import corrupt_signals

__all__ = [
    "CLEAN",
    "LETTERS",
    "OTHER_DOMAIN",
    "POOL",
    "STREAMS",
    "ClientStreams",
    "Draw",
    "Manifest",
    "Stream",
    "StreamSettings",
    "make_manifest",
    "render",
]


@dataclass(frozen=True, eq=False, repr=False)
class Stream:
    """A test stream: what a method sees (values), and what its predictions are compared with (labels, external).

    Parameters
    ----------
    name : one of ``STREAMS``
    values : uint8 images (n, height, width, channels), float32 signals (n, time, channels) or vectors (n, d)
    labels : (n,)
    external : (n,), whether a sample comes from another client (EXD); neither this nor the labels reach a method
    """

    name: str
    values: Values
    labels: Labels
    external: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Stream({self.name!r}, {len(self):,} samples, {int(self.external.sum()):,} external)"


def make_manifest(source: Source, partition: Partition, settings: StreamSettings, seed: int) -> Manifest:
    """Draw every client's five streams, as indices: a pure function of the arguments.

    Example
    -------
    >>> manifest = make_manifest(source, partition, StreamSettings(severity=3), seed=0)
    >>> render(source, manifest, client=0)["synthetical"].values.shape
    (72, 8, 8, 1)
    """
    domain = source.shifted
    by_class, left_out = None, 0
    if domain is not None:
        # A sample of the other domain that is in the pool too may have been trained on.
        usable = not_among(domain.values, source.pool.values)
        left_out = len(domain) - len(usable)
        by_class = [usable[domain.labels[usable] == label] for label in range(len(source.classes))]
    settings = settings.suited_to(source.sample_shape)
    others = _Others(partition)
    clients = tuple(
        _draw_client(source.pool.labels, partition, client, others, by_class, settings, seed)
        for client in range(len(partition))
    )
    return Manifest(
        settings,
        partition.settings,
        seed,
        source.name,
        source.pool.fingerprint,
        source.shift_name if domain is not None else None,
        domain.fingerprint if domain is not None else None,
        left_out,
        clients,
        frozenset("source" if name == "name" else name for name in source.named_after_files),
    )


def render(source: Source, manifest: Manifest, client: int, kept: Kept | None = None) -> Mapping[str, Stream]:
    """Make the samples of one client's five streams, by name; those that are left out are missing.

    Signals and vectors are scaled as the source says, after they were corrupted. Corrupted images are taken from
    ``kept``, or added to it.
    """
    _check_source(source, manifest)
    if not 0 <= client < len(manifest.clients):
        raise InputError(f"there are clients 0 to {len(manifest.clients) - 1}, no client {client}")
    drawn = manifest.clients[client]
    draws = {name: draw for name, draw in zip(STREAMS, drawn.draws, strict=False) if len(draw)}
    corrupted = [name for name, draw in draws.items() if (draw.corruption != CLEAN).any() and source.kind == "images"]
    key = "streams", manifest.hash, client
    made = (kept.find(*key) or {}) if kept is not None and corrupted else {}
    streams = {name: _render_draw(source, manifest, client, name, draw, made.get(name)) for name, draw in draws.items()}
    if kept is not None and corrupted and not made:
        kept.keep({name: streams[name].values for name in corrupted}, *key)
    parents = list(streams.values())
    which, where = drawn.mixture.T
    starts = np.cumsum([0, *(len(draw) for draw in drawn.draws[:-1])])[which] + where
    streams[STREAMS[4]] = Stream(
        STREAMS[4],
        np.concatenate([parent.values for parent in parents])[starts],
        np.concatenate([parent.labels for parent in parents])[starts],
        np.concatenate([parent.external for parent in parents])[starts],
    )
    return streams


def _draw_client(
    labels: Labels,
    partition: Partition,
    client: int,
    others: _Others,
    by_class: list[Indices] | None,
    settings: StreamSettings,
    seed: int,
) -> ClientStreams:
    rng = generator(seed, "streams", client)
    redrawn = partition.settings.split == "redrawn"
    own = partition.redraw(client, "test").test if redrawn else partition.parts[client].test
    own = rng.permutation(own)[: settings.longest]
    external = others.draw(client, len(own), rng)
    draws = (
        _as_is(own),
        _shifted(own, labels, by_class, settings, rng),
        _as_is(external),
        _shifted(external, labels, by_class, settings, rng),
    )
    there = [(stream, draw) for stream, draw in enumerate(draws) if len(draw)]
    share = max(min(len(draw) for _, draw in there) // len(there), 1)
    picks = [
        np.stack([np.full(share, stream), rng.choice(len(draw), size=share, replace=False)], axis=1)
        for stream, draw in there
    ]
    return ClientStreams(draws, rng.permutation(np.concatenate(picks)).astype(np.int32))


class _Others:
    """The test parts of all clients, to draw from those of all but one."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        tests = [part.test for part in partition.parts]
        self.ends = np.cumsum([0, *map(len, tests)])
        self.tests = np.concatenate(tests)

    def draw(self, client: int, count: int, rng: np.random.Generator) -> Indices:
        """Draw so many samples of the other clients, none twice."""
        partition = self.partition
        if partition.settings.split == "redrawn":
            # The published procedure re-splits the other clients here, their training samples included.
            everyone = range(len(partition))
            tests = [partition.redraw(other, "external", client).test for other in everyone if other != client]
            others = np.concatenate(tests)
            return rng.choice(others, size=min(count, len(others)), replace=False)
        # As above, without a copy of all other clients' indices for each client.
        start, end = self.ends[client], self.ends[client + 1]
        size = len(self.tests) - (end - start)
        chosen = rng.choice(size, size=min(count, size), replace=False)
        external: Indices = self.tests[np.where(chosen < start, chosen, chosen + (end - start))]
        return external


def _as_is(index: Indices) -> Draw:
    return Draw(np.full(len(index), POOL, np.int8), index, np.full(len(index), CLEAN, np.int8))


def _shifted(
    index: Indices,
    labels: Labels,
    by_class: list[Indices] | None,
    settings: StreamSettings,
    rng: np.random.Generator,
) -> Draw:
    """Replace half of the samples by those of the other domain with the same labels, and corrupt the rest.

    A class the other domain lacks is corrupted instead, so that the label mix stays. A sample of the other domain is
    used again only when its class has no unused one left. Where there is no corruption, all are replaced, and what
    cannot be is left out.
    """
    origin = np.full(len(index), POOL, np.int8)
    chosen = index.copy()
    if by_class is not None:
        half = rng.permutation(len(index))[: len(index) // 2 if settings.corruptions else None]
        for label in np.unique(labels[index[half]]):
            supply = by_class[label]
            if len(supply) == 0:
                continue
            slots = half[labels[index[half]] == label]
            rounds = -(-len(slots) // len(supply))
            origin[slots] = OTHER_DOMAIN
            chosen[slots] = np.concatenate([rng.permutation(supply) for _ in range(rounds)])[: len(slots)]
    if not settings.corruptions:
        order = rng.permutation(np.flatnonzero(origin == OTHER_DOMAIN))
        return Draw(origin[order], chosen[order], np.full(len(order), CLEAN, np.int8))
    corruption = rng.integers(len(settings.corruptions), size=len(index)).astype(np.int8)
    corruption[origin == OTHER_DOMAIN] = CLEAN
    order = rng.permutation(len(index))
    return Draw(origin[order], chosen[order], corruption[order])


def _render_draw(
    source: Source, manifest: Manifest, client: int, name: str, draw: Draw, made: Values | None = None
) -> Stream:
    """Make the samples of a stream; ``made`` are its images, if they were made before."""
    values = np.empty((len(draw), *source.sample_shape), dtype=source.pool.values.dtype)
    labels = np.empty(len(draw), dtype=np.int64)
    for origin, part in ((POOL, source.pool), (OTHER_DOMAIN, source.shifted)):
        rows = draw.origin == origin
        if part is not None and rows.any():
            values[rows] = part.values[draw.index[rows]]
            labels[rows] = part.labels[draw.index[rows]]
    external = np.full(len(draw), name.endswith("_exd"))
    if made is not None:
        return Stream(name, made, labels, external)
    for number in np.unique(draw.corruption[draw.corruption != CLEAN]).tolist():
        rows = draw.corruption == number
        corruption = manifest.settings.corruptions[number]
        rng = generator(manifest.seed, "corrupt", client, name, corruption)
        severity = manifest.settings.severity
        if source.kind == "images":
            values[rows] = corrupt(values[rows], corruption, severity, rng)
        else:
            unit = source.pool.spread
            values[rows] = corrupt_signals(values[rows], corruption, severity, rng, unit.mean, unit.deviation)
    if source.scaling is not None:
        values = source.scaling(values)
    return Stream(name, values, labels, external)


def _check_source(source: Source, manifest: Manifest) -> None:
    if source.pool.fingerprint != manifest.source_fingerprint:
        raise InputError(
            f"these streams were drawn from other samples than {source.name} holds here: the fingerprints differ"
        )
    if manifest.shift_fingerprint is not None and (
        source.shifted is None or source.shifted.fingerprint != manifest.shift_fingerprint
    ):
        raise InputError(
            f"these streams need {manifest.shift_name} as the other domain, with fingerprint "
            f"{manifest.shift_fingerprint[:12]}; name it with --shift"
        )
