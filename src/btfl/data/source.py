"""A dataset as the benchmark sees it: labelled images to partition among clients, and another domain of them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from btfl.errors import DataError
from btfl.pixels.types import Images

Labels = NDArray[np.int64]  # (n,)
NO_SHIFT_NOTE = "there is no other domain: the shifted streams are corrupted throughout"


@dataclass(frozen=True, eq=False, repr=False)
class LabelledImages:
    """Images with their labels.

    Parameters
    ----------
    images : uint8 (n, height, width, channels), channels 1 or 3
    labels : whole numbers (n,), kept as int64

    Example
    -------
    >>> LabelledImages(np.zeros((5, 8, 8, 1), np.uint8), np.arange(5))
    LabelledImages(5 images of 8x8x1)
    """

    images: Images
    labels: Labels

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4 or self.images.shape[3] not in (1, 3):
            raise DataError(
                f"images must be uint8 of shape (n, height, width, 1 or 3), not "
                f"{self.images.dtype} of shape {self.images.shape}"
            )
        if self.labels.shape != (len(self.images),):
            raise DataError(f"{len(self.images)} images but labels of shape {self.labels.shape}")
        object.__setattr__(self, "labels", self.labels.astype(np.int64, copy=False))

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        height, width, channels = self.images.shape[1:]
        return f"LabelledImages({len(self):,} images of {height}x{width}x{channels})"

    @cached_property
    def fingerprint(self) -> str:
        """Sha256 over shape, pixels and labels: what a stream manifest is tied to."""
        digest = hashlib.sha256(repr(self.images.shape).encode())
        digest.update(np.ascontiguousarray(self.images).data)
        digest.update(np.ascontiguousarray(self.labels).data)
        return digest.hexdigest()


@dataclass(frozen=True, eq=False, repr=False)
class Source:
    """A dataset: the images that are dealt to the clients, and another domain for the shifted streams.

    Parameters
    ----------
    name : of the dataset
    classes : names of the classes; labels are their positions
    pool : the images that are dealt to the clients and split into train, validation and test
    shifted : the other domain, of the same image size and classes, though some may be missing; None: there is none, so
        the shifted streams are corrupted throughout
    shift_name : of the other domain
    domains : the domain of each pool image (n,), as positions in ``domain_names``, where the dataset has several
    domain_names : of the pool
    notes : what the user should know, for example which images were left out and why

    Example
    -------
    >>> digits = LabelledImages(np.zeros((20, 8, 8, 1), np.uint8), np.arange(20) % 10)
    >>> Source("mine", tuple("0123456789"), digits)
    Source('mine', 20 images of 8x8x1, 10 classes, no other domain)
    """

    name: str
    classes: tuple[str, ...]
    pool: LabelledImages
    shifted: LabelledImages | None = None
    shift_name: str | None = None
    domains: NDArray[np.int64] | None = None
    domain_names: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        for what, part in (("pool", self.pool), ("shifted", self.shifted)):
            if part is None:
                continue
            if len(part) == 0:
                raise DataError(f"{self.name}: the {what} holds no image")
            low, high = int(part.labels.min()), int(part.labels.max())
            if low < 0 or high >= len(self.classes):
                raise DataError(
                    f"{self.name}: labels of the {what} run from {low} to {high}, but there are "
                    f"{len(self.classes)} classes (0 to {len(self.classes) - 1})"
                )
        if self.shifted is not None and self.shifted.images.shape[1:] != self.pool.images.shape[1:]:
            raise DataError(
                f"{self.name}: the images of the other domain ({self.shift_name}) are {self.shifted.images.shape[1:]}, "
                f"those of the pool {self.pool.images.shape[1:]}; both must be of one size"
            )
        if self.domains is not None and self.domains.shape != self.pool.labels.shape:
            raise DataError(f"{self.name}: {len(self.pool)} images but {self.domains.shape} domains")

    def __repr__(self) -> str:
        height, width, channels = self.image_shape
        other = "no other domain"
        if self.shifted is not None:
            other = f"other domain: {self.shift_name or 'unnamed'} ({len(self.shifted):,} images)"
        size = f"{len(self.pool):,} images of {height}x{width}x{channels}"
        return f"Source({self.name!r}, {size}, {len(self.classes)} classes, {other})"

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width, channels."""
        height, width, channels = self.pool.images.shape[1:]
        return height, width, channels


SourceLoader = Callable[..., Source]
