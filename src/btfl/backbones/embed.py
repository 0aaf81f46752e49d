"""Samples to features through a frozen backbone, each computed once for all runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from btfl.backbones.load import Backbone
from btfl.backbones.store import FeatureStore
from btfl.data.fetching.cache import Progress, cache_root, silent
from btfl.data.samples import Samples, Scaling, Values
from btfl.pixels import augmix
from btfl.randomness import generator
from btfl.signals import distort

Rows = NDArray[np.float32]
Places = list[int]
Spread = Callable[[Callable[[Places], Rows], Sequence[Places]], Iterator[Rows]]
"""(function, items) -> results in the order of the items: where the work is done."""

_AT_ONCE = 256  # samples of one piece of work, and of one file


def here(function: Callable[[Places], Rows], items: Sequence[Places]) -> Iterator[Rows]:
    """Do all work in this process, one piece after the other."""
    return map(function, items)


class Embedder:
    """A backbone and what it has computed so far, on disk.

    Parameters
    ----------
    backbone : what computes features
    root : the cache's folder; btfl's own if not given

    Example: ``Embedder(load_backbone("efficientnet-lite0", (128, 128, 3))).features(images).shape``
    """

    def __init__(self, backbone: Backbone, root: Path | None = None) -> None:
        self.backbone = backbone
        slug = "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in backbone.name)
        self.folder = (root or cache_root() / "features") / f"{slug}-{backbone.identity[:16]}"
        self.scaling: Scaling | None = None
        """What ``scaled_features`` are measured in; None: they are as the backbone gives them."""
        self._store = FeatureStore(self.folder, backbone.dimensions)

    def __repr__(self) -> str:
        return f"Embedder({self.backbone!r}, {len(self._store):,} features in {self.folder})"

    def features(self, values: Values, *, spread: Spread = here, progress: Progress = silent) -> Rows:
        """Return the features (n, d) of samples (n, ...); what is not on disk is computed and kept there.

        Parameters
        ----------
        values : samples of the shape that the backbone was loaded for
        spread : where the work is done
        progress : called as ``progress(what, done, total)`` with the samples of this call that had to be computed
        """
        return self._rows(_keys(values), partial(_plain, self.backbone, values), spread, progress)

    def scaled_features(self, values: Values) -> Rows:
        """Return the features of samples in the units that heads were trained in."""
        rows = self.features(values)
        return rows if self.scaling is None else self.scaling(rows)

    def copies(self, values: Values, strength: float, *, spread: Spread = here, progress: Progress = silent) -> Rows:
        """Return the features (n, d) of one distorted copy of each sample; the copy is a function of the sample alone.

        Parameters
        ----------
        values : images or signals
        strength : of the distortions
        """
        told = f"distorted {strength:g} ".encode()
        keys = [hashlib.sha256(told + key).digest() for key in _keys(values)]
        return self._rows(keys, partial(_distorted, self.backbone, strength, values), spread, progress)

    def samples(
        self, samples: Samples, strength: float, *, spread: Spread = here, progress: Progress = silent
    ) -> Samples:
        """Return samples as the vectors that a head is trained on, with those of distorted copies.

        Samples that are vectors themselves have no copies.
        """
        vectors = self.features(samples.values, spread=spread, progress=progress)
        copies = None
        if samples.kind != "vectors":
            copies = self.copies(samples.values, strength, spread=spread, progress=progress)
        return Samples(vectors, samples.labels, copies)

    def _rows(self, keys: Sequence[bytes], work: Callable[[Places], Rows], spread: Spread, progress: Progress) -> Rows:
        rows, there = self._store.find(keys)
        first: dict[bytes, int] = {}
        for place in np.flatnonzero(~there).tolist():
            first.setdefault(keys[place], place)
        missing = list(first.values())
        parts = [missing[i : i + _AT_ONCE] for i in range(0, len(missing), _AT_ONCE)]
        done, what = 0, f"features of {self.backbone.name}"
        for part, found in zip(parts, spread(work, parts), strict=True):
            self._store.add([keys[place] for place in part], found)
            rows[part] = found
            done += len(part)
            progress(what, done, len(missing))
        for place in np.flatnonzero(~there).tolist():
            rows[place] = rows[first[keys[place]]]
        return rows


def _plain(backbone: Backbone, values: Values, places: Places) -> Rows:
    return backbone.features(values[places])


def _distorted(backbone: Backbone, strength: float, values: Values, places: Places) -> Rows:
    values = values[places]
    distorted = augmix.distorted if backbone.kind == "images" else distort.distorted
    copies = [
        distorted(values[i : i + 1], generator(0, "distorted copy", key.hex()), strength)
        for i, key in enumerate(_keys(values))
    ]
    return backbone.features(np.concatenate(copies))


def _keys(values: Values) -> list[bytes]:
    """Return the sha256 of each sample's type, shape and bytes."""
    rows = np.ascontiguousarray(values).reshape(len(values), -1)
    told = f"{values.dtype.str} {values.shape[1:]} ".encode()
    return [hashlib.sha256(told + row.tobytes()).digest() for row in rows]
