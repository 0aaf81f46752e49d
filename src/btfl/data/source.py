"""A dataset as the benchmark sees it: labelled samples to partition among clients, and another domain of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from btfl.data.samples import Labels, SampleKind, Samples, Scaling
from btfl.errors import DataError

__all__ = [
    "NO_SHIFT_NOTE",
    "Labels",
    "SampleKind",
    "Samples",
    "Source",
    "SourceLoader",
    "without_shift",
]

NO_SHIFT_NOTE = "there is no other domain: the shifted streams are corrupted throughout"
NO_B_AND_D_NOTE = (
    "there is no other domain, and vectors are not corrupted: the shifted streams B and D are left out, and E is half "
    "A and half C"
)


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """A dataset: the samples that are dealt to the clients, and another domain for the shifted streams.

    Parameters
    ----------
    name : of the dataset
    classes : names of the classes; labels are their positions
    pool : the samples that are dealt to the clients and split into train, validation and test
    shifted : the other domain, with samples of the same size and classes, though some may be missing; None: there is
        none, so the shifted streams are corrupted throughout, or left out if the samples are vectors
    shift_name : of the other domain
    domains : the domain of each pool sample (n,), as positions in ``domain_names``, where the dataset has several
    domain_names : of the pool
    owners : the client that each pool sample belongs to (n,), as positions in ``owner_names``, where clients exist
    owner_names : of the clients
    named_after_files : which of ``name`` and ``shift_name`` are those of files or folders, which say nothing about the
        samples: the hash of streams leaves them out
    scaling : of signals and vectors before a network sees them (``btfl.data.scaling``); None: as they are
    notes : what the user should know, for example which samples were left out and why

    Example
    -------
    >>> digits = Samples(np.zeros((20, 8, 8, 1), np.uint8), np.arange(20) % 10)
    >>> Source("mine", tuple("0123456789"), digits)
    Source('mine', 20 images of 8x8x1, 10 classes, no other domain)
    """

    name: str
    classes: tuple[str, ...]
    pool: Samples
    shifted: Samples | None = None
    shift_name: str | None = None
    domains: NDArray[np.int64] | None = None
    domain_names: tuple[str, ...] = ()
    owners: NDArray[np.int64] | None = None
    owner_names: tuple[str, ...] = ()
    named_after_files: frozenset[str] = frozenset()
    scaling: Scaling | None = None
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        for what, part in (("pool", self.pool), ("shifted", self.shifted)):
            if part is None:
                continue
            if len(part) == 0:
                raise DataError(f"{self.name}: the {what} holds no sample")
            low, high = int(part.labels.min()), int(part.labels.max())
            if low < 0 or high >= len(self.classes):
                raise DataError(
                    f"{self.name}: labels of the {what} run from {low} to {high}, but there are "
                    f"{len(self.classes)} classes (0 to {len(self.classes) - 1})"
                )
            _check_finite(self.name, what, part)
        if self.shifted is not None and self.shifted.shape != self.pool.shape:
            raise DataError(
                f"{self.name}: the {self.shifted.kind} of the other domain ({self.shift_name}) are "
                f"{self.shifted.shape}, those of the pool {self.pool.shape}; both must be of one size"
            )
        for name, of_sample in (("domains", self.domains), ("owners", self.owners)):
            if of_sample is not None and of_sample.shape != self.pool.labels.shape:
                raise DataError(f"{self.name}: {len(self.pool)} {self.kind} but {name} of shape {of_sample.shape}")

    def __repr__(self) -> str:
        other = "no other domain"
        if self.shifted is not None:
            other = f"other domain: {self.shift_name or 'unnamed'} ({len(self.shifted):,} {self.kind})"
        owned = "" if self.owners is None else f"{len(self.owner_names):,} clients, "
        return f"Source({self.name!r}, {self.pool.summary}, {owned}{len(self.classes)} classes, {other})"

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Of one sample: (height, width, channels), (time, channels) or (d,)."""
        return self.pool.shape

    @property
    def owners_fingerprint(self) -> str | None:
        """Sha256 over the clients' names and whose each sample is, where clients exist."""
        if self.owners is None:
            return None
        digest = hashlib.sha256(repr(self.owner_names).encode())
        digest.update(np.ascontiguousarray(self.owners, dtype=np.int64).data)
        return digest.hexdigest()

    @property
    def kind(self) -> SampleKind:
        """What the samples are: ``images``, ``signals`` or ``vectors``."""
        return self.pool.kind


def without_shift(kind: SampleKind) -> str:
    """Return the note of a source that has no other domain."""
    return NO_B_AND_D_NOTE if kind == "vectors" else NO_SHIFT_NOTE


SourceLoader = Callable[..., Source]


def _check_finite(name: str, what: str, part: Samples) -> None:
    if part.kind == "images" or (np.isfinite(part.values.min()) and np.isfinite(part.values.max())):
        return
    wrong = np.flatnonzero(~np.isfinite(part.values.reshape(len(part), -1)).all(axis=1))
    raise DataError(
        f"{name}: the {what} holds NaN or infinite values in {len(wrong):,} of {len(part):,} {part.kind}, first in "
        f"number {wrong[0]:,}; leave those out or fill them in"
    )
