"""What no feature shows: whether a sample looks, before any network, like those that its client has seen.

A network learns to tell classes apart, and makes features of anything: to the small ones a black frame is a sample
among others. The frame itself is not. ``Looks`` keeps how a client's own samples look (``statistics.py``), and says how
far a new one is off, in many directions (``directions.py``). It is made from the client's own samples on its own
device; nothing of it is uploaded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.core.bundle import ClientBundle
from btfl.errors import InputError
from btfl.methods.coherent.strangeness import conformal_level
from btfl.methods.state import check_keys
from btfl.monitor.directions import distance, usual_directions
from btfl.monitor.levels import RATES, AlarmLevels, level_alone
from btfl.monitor.statistics import check_shape, smallest_step, statistics_of

Floats = NDArray[np.float64]
SIGNAL = "looks"
"""Its name among the signals of a monitor, and among a bundle's metadata."""
FEWEST = 10
"""Own samples without which nothing can be said."""
_FOLDS, _MOST_KEPT, _MOST_VALUES = 5, 1_000, 10_000_000


@dataclass(frozen=True, eq=False)
class Looks:
    """How a client's own samples look; make it with ``Looks.of``.

    Examples
    --------
    >>> looks = Looks.of(own_images)                                              # doctest: +SKIP
    >>> looks.strangeness(new_images) > looks.level(false_alarms=0.01)            # doctest: +SKIP
    >>> monitor = Monitor(looks.among(levels_for(method, bundle)))                # doctest: +SKIP
    >>> monitor.watch({**method.trace, "looks": looks.strangeness(new_images)})   # doctest: +SKIP
    """

    shape: tuple[int, ...]
    """Of a sample: (height, width, channels) or (time, channels)."""
    step: float
    """A step of values too small to matter."""
    centre: Floats
    """(numbers,) The mean of each statistic."""
    directions: Floats
    """(numbers, 2 numbers) In which to look for deviations, each in units of what is usual along it."""
    own: Floats
    """How far off own samples are that had no part in the two, in ascending order."""

    @classmethod
    def of(cls, samples: ArrayLike, held_out: ArrayLike | None = None) -> Looks:
        """Return how samples of a client look.

        Parameters
        ----------
        samples : its own, as they came in: images (n, height, width, channels) or signals (n, time, channels)
        held_out : others of its own, to see how far off new ones are. Each fifth of ``samples``, compared with the
            rest, says so too; alone it is too strict a level where neighbours overlap in time
        """
        seen = np.asarray(samples)
        if seen.ndim < 2 or len(seen) < FEWEST:
            raise InputError(f"{FEWEST} own samples or more say how a client's samples look, not {len(seen)}")
        shape, step = seen.shape[1:], smallest_step(seen)
        known = statistics_of(seen, step)
        centre, directions = usual_directions(known)
        folds = np.arange(len(known)) % _FOLDS
        parts = [distance(known[folds == one], *usual_directions(known[folds != one])) for one in range(_FOLDS)]
        if held_out is not None and len(others := np.asarray(held_out)):
            _check_same(shape, others)
            parts.append(distance(statistics_of(others, step), centre, directions))
        own = np.concatenate(parts)
        if len(own) > _MOST_KEPT:  # as many as say how the rarest thousandth looks
            own = np.quantile(own, np.linspace(0, 1, _MOST_KEPT))
        return cls(shape, step, centre, directions, np.sort(own))

    def strangeness(self, samples: ArrayLike) -> Floats:
        """Return (samples,): how far each is off the client's own, mostly below 1 for these."""
        values = np.asarray(samples)
        _check_same(self.shape, values)
        return distance(statistics_of(values, self.step), self.centre, self.directions)

    def level(self, false_alarms: float = 0.01) -> float:
        """Return what so large a share of the client's own samples exceed, at most: the conformal quantile."""
        return conformal_level(self.own, false_alarms)

    def levels(self, warm_up: int = 0) -> AlarmLevels:
        """Return levels of a ``Monitor`` that watches this alone."""
        return self.among(AlarmLevels({}, {}, warm_up, "samples", len(self.own), SIGNAL))

    def among(self, levels: AlarmLevels) -> AlarmLevels:
        """Return a method's levels with those of this signal beside them."""
        own = tuple(level_alone(self.own, rate) for rate in RATES)
        middle = {**levels.middle, SIGNAL: float(np.median(self.own))}
        return replace(levels, levels={**levels.levels, SIGNAL: own}, middle=middle)

    def carried_by(self, bundle: ClientBundle) -> ClientBundle:
        """Return a bundle that takes it along."""
        told = {
            "shape": list(self.shape),
            "step": self.step,
            "centre": self.centre.tolist(),
            "directions": self.directions.tolist(),
            "own": np.round(self.own, 4).tolist(),
        }
        return replace(bundle, metadata={**bundle.metadata, SIGNAL: told})

    @classmethod
    def carried(cls, bundle: ClientBundle) -> Looks | None:
        """Return what a bundle takes along, if it does."""
        told = bundle.metadata.get(SIGNAL)
        return None if told is None else _read(told)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape))
        return f"Looks({shape}, {len(self.centre)} numbers, {len(self.own)} own samples)"


def _check_same(shape: tuple[int, ...], samples: NDArray[Any]) -> None:
    if samples.shape[1:] != shape:
        raise InputError(
            f"samples have the shape {samples.shape[1:]}, but those that say how they look had {shape}"
            + ("; for one sample pass sample[None]" if samples.shape == shape else "")
        )


def _read(told: Any) -> Looks:
    check_keys(told, ("shape", "step", "centre", "directions", "own"))
    try:
        arrays = {name: np.asarray(told[name], dtype=np.float64) for name in ("centre", "directions", "own")}
        shape, step = tuple(told["shape"]), float(told["step"])
    except (TypeError, ValueError):
        raise InputError(f"{SIGNAL} in the bundle's metadata holds lists of numbers") from None
    centre, directions, own = arrays["centre"], arrays["directions"], arrays["own"]
    if not shape or not all(isinstance(side, int) for side in shape) or math.prod(shape) > _MOST_VALUES:
        raise InputError(
            f"{SIGNAL} in the bundle's metadata has the shape of a sample, of {_MOST_VALUES} values at most"
        )
    check_shape(shape)
    if (
        not all(np.isfinite(array).all() for array in arrays.values())
        or not (np.isfinite(step) and step > 0)
        or own.ndim != 1
        or not len(own)
        or directions.shape != (len(centre), 2 * len(centre))
        or centre.shape != statistics_of(np.zeros((1, *shape)), step).shape[1:]
    ):
        raise InputError(f"{SIGNAL} in the bundle's metadata fits no samples of the shape {shape}")
    return Looks(shape, step, centre, directions, np.sort(own))
