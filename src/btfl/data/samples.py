"""Labelled samples: images, signals or vectors, each in one array."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from btfl.errors import DataError

Labels = NDArray[np.int64]  # (n,)
Values = NDArray[Any]
"""uint8 images (n, height, width, channels), float32 signals (n, time, channels) or float32 vectors (n, d)."""
SampleKind = Literal["images", "signals", "vectors"]
_KINDS: dict[int, SampleKind] = {3: "images", 2: "signals", 1: "vectors"}
_ALL_EXACT, _MOST_EXACT = 2**24, 2**53  # whole numbers that float32 and float64 hold without a gap
_FORMS = (
    "samples are uint8 images (n, height, width, 1 or 3), or numbers: signals (n, time, channels) or vectors (n, d)"
)


@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """Samples with their labels.

    Parameters
    ----------
    values : uint8 (n, height, width, channels), channels 1 or 3: images; or numbers of any type, kept as float32:
        signals (n, time, channels) or vectors (n, d)
    labels : whole numbers (n,), kept as int64
    copies : of the same form as values, one distorted copy of each sample, where whoever made the samples brings
        them; else images and signals are distorted when they are needed, and vectors have no copies

    Example
    -------
    >>> Samples(np.zeros((5, 8, 8, 1), np.uint8), np.arange(5))
    Samples(5 images of 8x8x1)
    >>> Samples(np.zeros((5, 128, 6)), np.arange(5)).values.dtype
    dtype('float32')
    """

    values: Values
    labels: Labels
    copies: Values | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", as_values(self.values))
        if self.labels.shape != (len(self.values),):
            raise DataError(f"{len(self.values)} {self.kind} but labels of shape {self.labels.shape}")
        object.__setattr__(self, "labels", self.labels.astype(np.int64, copy=False))
        if self.copies is not None:
            object.__setattr__(self, "copies", as_values(self.copies))
            if self.copies.shape != self.values.shape or self.copies.dtype != self.values.dtype:
                raise DataError(
                    f"distorted copies are of the same form as the samples, {self.values.dtype} of shape "
                    f"{self.values.shape}, not {self.copies.dtype} of shape {self.copies.shape}"
                )

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"Samples({self.summary})"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one sample: (height, width, channels), (time, channels) or (d,)."""
        return tuple(self.values.shape[1:])

    @property
    def kind(self) -> SampleKind:
        """What the samples are: ``images``, ``signals`` or ``vectors``."""
        return kind_of(self.shape)

    @property
    def summary(self) -> str:
        """How many samples of which kind and size, in words."""
        return f"{len(self):,} {self.kind} of {'x'.join(map(str, self.shape))}"

    def take(self, rows: NDArray[np.integer]) -> Samples:
        """Return some of the samples, by their indices (n,)."""
        return Samples(self.values[rows], self.labels[rows], None if self.copies is None else self.copies[rows])

    @cached_property
    def spread(self) -> Scaling:
        """Mean and deviation of each channel or column over all samples: the unit of corruptions."""
        rows = self.values.reshape(-1, self.values.shape[-1])
        mean = rows.mean(axis=0, dtype=np.float64)
        return Scaling(mean, rows.std(axis=0, dtype=np.float64, mean=mean[None]))

    @cached_property
    def fingerprint(self) -> str:
        """Sha256 over shape, values and labels, and copies if there are any: what a stream manifest is tied to."""
        digest = hashlib.sha256(repr(self.values.shape).encode())
        for array in (self.values, self.labels, *(() if self.copies is None else (self.copies,))):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


@dataclass(frozen=True, eq=False, repr=False)
class Scaling:
    """What signals or vectors are measured in: a mean and a deviation for each channel or column (c,), float64.

    A channel that never changes has the deviation 1, so that nothing is divided by zero.
    """

    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]

    def __post_init__(self) -> None:
        same = self.deviation <= 1e-7 * np.abs(self.mean)  # float32 holds no more digits than that
        object.__setattr__(self, "deviation", np.where(same, 1.0, self.deviation))

    def __repr__(self) -> str:
        return f"Scaling({len(self.mean)} channels or columns)"

    def __call__(self, values: Values) -> NDArray[np.float32]:
        """Return signals (n, time, channels) or vectors (n, d) less the mean, in deviations."""
        return ((values - self.mean) / self.deviation).astype(np.float32)

    def of(self, samples: Samples) -> Samples:
        """Return samples scaled, and their distorted copies."""
        copies = None if samples.copies is None else self(samples.copies)
        return Samples(self(samples.values), samples.labels, copies)

    def as_dict(self) -> dict[str, list[float]]:
        """Return plain values, for JSON."""
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}


def kind_of(shape: tuple[int, ...]) -> SampleKind:
    """Return what samples of this shape are; only images have three sizes."""
    return _KINDS[len(shape)]


def as_values(array: Values) -> Values:
    """Return samples in the form they are kept in, or say why they are none.

    Float64 is rounded to float32; whole numbers that float32 cannot hold exactly, from 16,777,217 on, are an error.
    """
    if array.dtype == np.uint8 and array.ndim >= 3:
        if array.ndim != 4 or array.shape[3] not in (1, 3):
            raise DataError(f"{_FORMS}; not uint8 of shape {array.shape}")
        return array
    if array.dtype.kind not in "iufb" or array.ndim not in (2, 3):
        raise DataError(f"{_FORMS}; not {array.dtype} of shape {array.shape}")
    if 0 in array.shape[1:]:
        raise DataError(f"samples of shape {array.shape[1:]} hold nothing")
    if array.dtype == np.float32:
        return array
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which a source refuses
        values: Values = array.astype(np.float32)
    if array.dtype.kind in "iu" and max(values.max(initial=0), -values.min(initial=0)) >= _ALL_EXACT:
        first = next(iter(np.argwhere((values != array) | (np.abs(values) > _MOST_EXACT)).tolist()), None)
    else:
        first = None
    if first is not None:
        raise DataError(
            f"whole numbers are kept as float32, which cannot hold {array[tuple(first)]} (sample {first[0]}) exactly: "
            f"subtract an offset, or make them floats if the last digits do not matter"
        )
    return values
