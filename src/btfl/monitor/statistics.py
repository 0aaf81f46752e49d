"""How a sample looks before any network: some thirty numbers about its values, its steps and its colours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import finite_array
from btfl.errors import InputError

Floats = NDArray[np.float64]
SMALLEST = 4
"""Values along each side that a sample needs: below that there are hardly any steps to look at."""
_COARSER = 2  # times that a sample is halved, to see larger and larger steps
_QUANTILES = (0.02, 0.25, 0.5, 0.75, 0.98)
_AT_ONCE = 256  # samples, so that memory does not grow with them
_STEP_OF_INTEGERS, _STEP_OF_FLOATS = 0.5, 1e-3


def check_shape(shape: tuple[int, ...]) -> None:
    """Refuse samples that are no images (height, width, channels) and no signals (time, channels)."""
    if len(shape) not in (2, 3) or min(shape[:-1]) < SMALLEST or shape[-1] < 1:
        raise InputError(
            f"samples are images (n, height, width, channels) or signals (n, time, channels) with at least {SMALLEST} "
            f"values a side, not (n, {', '.join(map(str, shape))}); vectors have no steps to look at"
        )


def smallest_step(samples: ArrayLike) -> float:
    """Return a step too small to matter: half a grey level, or a thousandth of the deviation of real numbers."""
    values = np.asarray(samples)
    if values.dtype.kind in "iub":
        return _STEP_OF_INTEGERS
    return max(_STEP_OF_FLOATS * float(np.std(values, dtype=np.float64)), np.finfo(np.float64).tiny)


def statistics_of(samples: ArrayLike, step: float) -> Floats:
    """Return (samples, numbers): what each sample looks like, in units of ``step``.

    Parameters
    ----------
    samples : images (n, height, width, channels) or signals (n, time, channels), as they came in
    step : a step too small to matter (``smallest_step``)
    """
    values = np.asarray(samples)
    check_shape(values.shape[1:])
    parts = [
        np.concatenate(list(_numbers(finite_array("samples", values[begin : begin + _AT_ONCE]) / step)), axis=1)
        for begin in range(0, len(values), _AT_ONCE)
    ]
    if not parts:
        raise InputError("there are no samples to look at")
    return np.concatenate(parts)


def _numbers(values: Floats) -> Iterator[Floats]:
    """Give matrices (samples, some numbers each); log1p keeps what is smaller than a step, 1, near 0."""
    sides = tuple(range(1, values.ndim - 1))
    yield values.mean(axis=sides)
    yield np.log1p(values.std(axis=sides))
    planes = values
    if values.ndim == 4:  # an image is one plane of brightness; channels of a signal are planes of their own
        planes = values.mean(axis=-1, keepdims=True)
        if values.shape[-1] > 1:
            colours = values - planes
            yield np.log1p(np.sqrt((colours**2).mean(axis=sides)).mean(axis=1, keepdims=True))
            yield np.log1p(np.abs(np.diff(colours, axis=1)).mean(axis=sides).mean(axis=1, keepdims=True))
    flat = planes.reshape(len(planes), -1, planes.shape[-1])
    yield np.concatenate(list(np.quantile(flat, _QUANTILES, axis=1)), axis=1)
    for side in sides:
        steps = np.abs(np.diff(planes, axis=side))
        yield np.log1p(steps.mean(axis=sides))
        yield np.log1p(np.sqrt((steps**2).mean(axis=sides)))
        yield (steps <= 2.0).mean(axis=sides)
        yield np.log1p(np.abs(np.diff(planes, 2, axis=side)).mean(axis=sides))
        first, second = np.array_split(planes, 2, axis=side)
        yield first.mean(axis=sides) - second.mean(axis=sides)
    for _ in range(_COARSER):
        planes = _halved(planes, sides)
        for side in sides:
            if planes.shape[side] > 1:
                yield np.log1p(np.abs(np.diff(planes, axis=side)).mean(axis=sides))


def _halved(planes: Floats, sides: tuple[int, ...]) -> Floats:
    """Return planes of half the sides, each value the mean of its neighbours; an odd last one is left out."""
    for side in sides:
        half = planes.shape[side] // 2
        if half:
            even = np.take(planes, range(2 * half), axis=side)
            planes = even.reshape(*even.shape[:side], half, 2, *even.shape[side + 1 :]).mean(axis=side + 1)
    return planes
