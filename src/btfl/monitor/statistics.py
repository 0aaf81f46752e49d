"""How a sample looks before any network: some thirty numbers about its values, its steps and its colours."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import finite_array
from btfl.errors import InputError

Floats = NDArray[np.float64]
SMALLEST = 5
"""Values along each side that a sample needs: below that there are hardly any steps to look at."""
FINER = 3
"""Times that steps of steps are taken, to see finer and finer detail; ``benchmarks/choose_looks.py`` chose it."""
_COARSER = 2  # times that a sample is halved, to see larger and larger steps
_QUANTILES = (0.02, 0.25, 0.5, 0.75, 0.98)
_AT_ONCE = 100_000  # values, which stay in the caches
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


def statistics_of(samples: ArrayLike, step: float, finer: int = FINER) -> Floats:
    """Return (samples, numbers): what each sample looks like, in units of ``step``.

    Parameters
    ----------
    samples : images (n, height, width, channels) or signals (n, time, channels), as they came in
    step : a step too small to matter (``smallest_step``)
    finer : times that steps of steps are taken
    """
    values = np.asarray(samples)
    check_shape(values.shape[1:])
    samples_at_once = max(_AT_ONCE // int(np.prod(values.shape[1:])), 1)
    in_steps = (
        finite_array("samples", values[begin : begin + samples_at_once]) / step
        for begin in range(0, len(values), samples_at_once)
    )
    parts = [np.concatenate(list(_numbers(some, finer)), axis=1) for some in in_steps]
    if not parts:
        raise InputError("there are no samples to look at")
    return np.concatenate(parts)


def _numbers(values: Floats, finer: int) -> Iterator[Floats]:
    """Give matrices (samples, some numbers each); log1p keeps what is smaller than a step, 1, near 0."""
    channels = np.ascontiguousarray(np.moveaxis(values, -1, 1))  # (samples, channels, sides...)
    flat = _flat(channels)
    yield flat.mean(axis=2)
    yield np.log1p(flat.std(axis=2))
    planes = channels
    if values.ndim == 4:  # an image is one plane of brightness; channels of a signal are planes of their own
        planes = channels.mean(axis=1, keepdims=True)
        if channels.shape[1] > 1:
            colours = channels - planes
            yield np.log1p(np.sqrt((_flat(colours) ** 2).mean(axis=2)).mean(axis=1, keepdims=True))
            yield np.log1p(_sizes(_steps(colours, 2)).mean(axis=1, keepdims=True))
    order = np.sort(_flat(planes), axis=2)
    places = [round(share * (order.shape[2] - 1)) for share in _QUANTILES]
    yield order[:, :, places].reshape(len(order), -1)
    for side in range(2, planes.ndim):
        steps = _steps(planes, side)
        size = np.abs(steps)
        yield np.log1p(_flat(size).mean(axis=2))
        yield np.log1p(np.sqrt((_flat(size) ** 2).mean(axis=2)))
        yield (_flat(size) <= 2.0).mean(axis=2)
        for _ in range(finer):  # what an enlarged image does not have
            steps = _steps(steps, side)
            yield np.log1p(_sizes(steps))
        first, second = np.array_split(planes, 2, axis=side)
        yield _flat(first).mean(axis=2) - _flat(second).mean(axis=2)
    for _ in range(_COARSER):
        planes = _halved(planes)
        for side in range(2, planes.ndim):
            if planes.shape[side] > 1:
                yield np.log1p(_sizes(_steps(planes, side)))


def _flat(planes: Floats) -> Floats:
    """Return (samples, planes, values)."""
    return planes.reshape(*planes.shape[:2], -1)


def _steps(planes: Floats, side: int) -> Floats:
    """Return what each value differs from the one before it along a side."""
    along = np.moveaxis(planes, side, 0)
    return np.ascontiguousarray(np.moveaxis(along[1:] - along[:-1], 0, side))


def _sizes(steps: Floats) -> Floats:
    """Return (samples, planes): the mean size of steps."""
    return np.asarray(np.abs(_flat(steps)).mean(axis=2))


def _halved(planes: Floats) -> Floats:
    """Return planes of half the sides, each value the mean of its neighbours; an odd last one is left out."""
    for side in range(2, planes.ndim):
        half = planes.shape[side] // 2
        if half:
            along = np.moveaxis(planes, side, 0)
            planes = np.ascontiguousarray(
                np.moveaxis((along[0 : 2 * half : 2] + along[1 : 2 * half : 2]) / 2.0, 0, side)
            )
    return planes
