"""What the clients' validation parts say about Coherent's settings: sums only, so that nobody has to choose them.

When everyone's summary is known, each client looks at its own validation samples with it and uploads about two
thousand sums, which the server adds up and sends back:

- the log likelihood of the true labels at every point of a small grid: under the global answer (shrinkage r,
  temperature T and share of the generative head), and under the local answer (r, T and temperature of the product of
  both heads), which has the global answer's r and T unless others are clearly more likely;
- the same for a local answer with a covariance of the client's own, over a grid of its own (``core.local_answer``);
- for each r three moments that say how much clients differ in what a class looks like. With m_k the mean of a class
  over the client's training samples, v_k that over its n_k validation samples and mu_k everyone's mean, in the metric
  of V,

      q = sum n_k (m_k - mu_k)' V^-1 (v_k - mu_k) / (d sum n_k (1 - p_k)),        p_k: the client's share of class k

  is the variance of the clients' own class means (S_b = q V), and the scatter of validation samples around v_k gives
  that within client and class (w V). Then kappa = w/q; the third moment is what q varies by where clients do not differ
  at all. The product of two parts is used, and not the square of one,
  because training leaves marks: the features of samples that were trained on differ from client to client even where
  the clients' data do not.

    fit = Calibration.of(global_head, personal_head, own, everyone, features, labels)    # on each client
    everyone = everyone.calibrated(Calibration.total(fits))                              # on the server; sent back
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features, as_labels, check_floats, printable
from btfl.core.generative import OPENNESS, Spectrum, shares, with_copies
from btfl.core.heads import HeadLike, LinearHead
from btfl.core.local_answer import GRID as OWN_GRID
from btfl.core.local_answer import Everyone, LocalAnswer, own_likelihoods
from btfl.core.softmax import log_softmax
from btfl.core.sums import DISTORTED, ClassSums
from btfl.errors import InputError

if TYPE_CHECKING:
    from btfl.core.summary import Summary

Floats = NDArray[np.float64]

SHRINKAGES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
TEMPERATURES = (1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0)
GENERATIVE_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
LOCAL_TEMPERATURES = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
LOWEST = float(np.log(1e-6))
"""No sample counts for less than this log likelihood: one that is far off must not decide alone."""
FEWEST = 100
"""With fewer validation samples in all, nothing is chosen by them."""
_CERTAIN = 3.0  # standard errors by which clients must differ before their means are taken to
_WORTH = 0.02  # nats a sample that settings of its own must be worth to the local answer

_GRID = (len(SHRINKAGES), len(TEMPERATURES))
SHAPES: Mapping[str, tuple[int, ...]] = {
    "calibration_samples": (1,),
    "calibration_global": (*_GRID, len(GENERATIVE_SHARES)),
    "calibration_local": (*_GRID, len(LOCAL_TEMPERATURES)),
    "calibration_moments": (len(SHRINKAGES), 3),
    "calibration_weights": (2,),
    "calibration_own": OWN_GRID,
}
"""What is uploaded, by the names that a bundle's statistics have too."""
_SINCE = ("calibration_own",)
"""What older calibrations lack: zeros stand for it, which choose nothing."""


class Choice(NamedTuple):
    """What the validation parts chose."""

    shrinkage: float
    temperature: float
    generative_share: float
    """How much of the global answer the generative head gives; the rest is the trained head's."""
    local_temperature: float
    """Of the product of the personal head and the generative one."""
    inverse_kappa: float
    """q/w: how much the clients' own class means vary, in units of the variance within; 0: not at all."""


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
    """Sums over one client's validation samples, or over those of several clients.

    Parameters
    ----------
    arrays : float64, with the names and shapes of ``SHAPES``. Use ``Calibration.of`` to measure them and
        ``Calibration.from_arrays`` for what was received.

    Examples
    --------
    >>> fit = Calibration.of(global_head, personal_head, own, everyone, features, labels)     # doctest: +SKIP
    >>> everyone.calibrated(Calibration.total(fits)).calibration.choose()                     # doctest: +SKIP
    Choice(shrinkage=0.1, temperature=2.0, generative_share=0.75, local_temperature=1.5, inverse_kappa=0.27)
    """

    arrays: Mapping[str, Floats]

    @classmethod
    def of(
        cls,
        global_head: HeadLike,
        personal_head: HeadLike,
        own: Summary,
        everyone: Summary,
        features: ArrayLike,
        labels: ArrayLike,
    ) -> Calibration:
        """Look at one client's validation samples.

        Parameters
        ----------
        global_head, personal_head : the client's two heads
        own, everyone : the client's summary of its training samples, and the total over clients
        features : (samples, dimensions) of samples that were not trained on
        labels : (samples,) of them, whole numbers
        """
        z = as_features(features, width=everyone.dimensions)
        y = as_labels(labels, len(z), everyone.classes)
        spectrum = Spectrum.of_everyone(everyone)
        log_everyone = shares(everyone.class_sums().counts)
        log_own = shares(own.class_sums().counts, log_everyone, OPENNESS)
        trained = np.exp(log_softmax(LinearHead.of(global_head).logits(z)))
        personal = log_softmax(LinearHead.of(personal_head).logits(z))
        rotated, rows = spectrum.rotate(z), np.arange(len(z))
        offsets = _Offsets(own.class_sums(), everyone.class_sums(), rotated, y, spectrum)
        arrays = {name: np.zeros(shape) for name, shape in SHAPES.items()}
        trained_right, share = trained[rows, y], np.array(GENERATIVE_SHARES)[:, None]
        sharper = np.array(LOCAL_TEMPERATURES)[:, None, None]
        for i, r in enumerate(SHRINKAGES):
            scores = spectrum.scores(rotated, r)
            arrays["calibration_moments"][i] = offsets.moments(r)
            for j, temperature in enumerate(TEMPERATURES):
                cooled = scores / temperature
                generative = np.exp(log_softmax(cooled + log_everyone))
                answers = (1 - share) * trained_right + share * generative[rows, y]
                arrays["calibration_global"][i, j] = _sums(np.log(np.maximum(answers, 1e-300)))
                local = personal + cooled + log_own
                arrays["calibration_local"][i, j] = _sums(log_softmax(local / sharper)[:, rows, y])
        plain = everyone.class_sums()
        total = Everyone.of(plain, with_copies(plain, everyone.class_sums(DISTORTED)))
        arrays["calibration_own"][:] = own_likelihoods(own.class_sums(), total, personal, z, y, _sums)
        arrays["calibration_samples"][0] = len(z)
        arrays["calibration_weights"][:] = offsets.weights
        return cls(arrays)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Calibration:
        """Return the calibration of arrays that were received or loaded; others than these are refused."""
        arrays = {**{name: np.zeros(SHAPES[name]) for name in _SINCE}, **arrays}
        if missing := [name for name in SHAPES if name not in arrays]:
            raise InputError(f"{missing[0]} is missing")
        if unknown := sorted(printable(name, 80) for name in set(arrays) - set(SHAPES)):
            raise InputError(f"{unknown[0]} is not asked for")
        for name, shape in SHAPES.items():
            array = check_floats(name, arrays[name], np.float64)
            if array.shape != shape:
                raise InputError(f"{name} has the shape {array.shape}, not {shape}")
        return cls({name: arrays[name] for name in SHAPES})

    def to_arrays(self) -> dict[str, Floats]:
        """Return the sums by name, for sending and saving, and for a bundle's statistics."""
        return dict(self.arrays)

    @classmethod
    def in_statistics(cls, statistics: Mapping[str, NDArray[Any]]) -> Calibration | None:
        """Return the calibration among a bundle's statistics; None if it was made without one."""
        found = {name: statistics[name] for name in SHAPES if name in statistics}
        return cls.from_arrays(found) if found else None

    @classmethod
    def total(cls, calibrations: Iterable[Calibration]) -> Calibration:
        """Add up calibrations in their order."""
        sums = {name: np.zeros(shape) for name, shape in SHAPES.items()}
        for one in calibrations:
            for name, array in one.arrays.items():
                sums[name] += array
        return cls(sums)

    def __add__(self, other: Calibration) -> Calibration:
        return Calibration.total((self, other))

    def check(self, most_samples: int) -> None:
        """Raise an ``InputError`` for what no client's validation samples could give; asked before adding up.

        Parameters
        ----------
        most_samples : how many validation samples the client can have
        """
        checked = Calibration.from_arrays(self.arrays).arrays
        samples = float(checked["calibration_samples"][0])
        if samples < 1 or samples != np.rint(samples) or samples > most_samples:
            raise InputError(f"calibration_samples must be a whole number from 1 to {most_samples}, not {samples:g}")
        for name in ("calibration_global", "calibration_local", "calibration_own"):
            low, high = float(checked[name].min()), float(checked[name].max())
            if high > 0 or low < samples * LOWEST - 1e-5:  # uploaded sums are rounded
                raise InputError(
                    f"{name} must be log likelihoods of {samples:.0f} samples, not {low:.3g} to {high:.3g}"
                )
        weights, moments = checked["calibration_weights"], checked["calibration_moments"]
        if (weights < 0).any() or weights.max() > samples or (moments[:, 1:] < 0).any():
            raise InputError("calibration_weights and the scatter in calibration_moments are out of range")
        # |m' v| is at most what the lengths of both allow; a hundred standard deviations is beyond any real feature
        if np.abs(moments).max() > 1e4 * samples:
            raise InputError("calibration_moments are out of range: no features are so far from their class")

    @property
    def samples(self) -> int:
        """How many validation samples it was made from."""
        return round(float(self.arrays["calibration_samples"][0]))

    def choose(self) -> Choice | None:
        """Return what the sums choose; None with too few samples to choose by."""
        if self.samples < FEWEST:
            return None
        likelihood, local = self.arrays["calibration_global"], self.arrays["calibration_local"]
        r, t, share = np.unravel_index(int(likelihood.argmax()), likelihood.shape)
        sharper = int(local[r, t].argmax())
        inverse = self._inverse_kappa(int(r))
        values = SHRINKAGES[r], TEMPERATURES[t], GENERATIVE_SHARES[share], LOCAL_TEMPERATURES[sharper]
        return Choice(*values, inverse)

    def choose_local(self) -> LocalAnswer | None:
        """Return what the local answer is made with; None: with the shrinkage and temperature of the global one.

        The most likely of three: with these; with a shrinkage and a temperature of its own, if that makes the labels
        at least 2 % more likely; and, where clients differ in what a class looks like, with means and a covariance of
        the client's own. None, too, with too few samples, or where clients differ and a btfl that did not measure
        the third yet made the sums.
        """
        choice, own, local = self.choose(), self.arrays["calibration_own"], self.arrays["calibration_local"]
        differ = choice is not None and choice.inverse_kappa > 0
        if choice is None or (differ and not own.any()):
            return None
        same = local[SHRINKAGES.index(choice.shrinkage), TEMPERATURES.index(choice.temperature)].max()
        apart = local.max() if local.max() - same >= _WORTH * self.samples else same
        if differ and own.max() > apart:
            return LocalAnswer.at(tuple(map(int, np.unravel_index(int(own.argmax()), own.shape))))
        if apart == same:
            return None
        r, t, sharper = np.unravel_index(int(local.argmax()), local.shape)
        values = SHRINKAGES[r], math.inf, choice.inverse_kappa, TEMPERATURES[t], LOCAL_TEMPERATURES[sharper]
        return LocalAnswer(*values)

    def _inverse_kappa(self, r: int) -> float:
        between, within, noise = self.arrays["calibration_moments"][r]
        others, degrees = self.arrays["calibration_weights"]
        if others <= 0 or degrees <= 0 or within <= 0:
            return 0.0
        q, w = between / others, within / degrees
        error = w * np.sqrt(noise) / others
        return float(f"{q / w:.3g}") if q > _CERTAIN * error else 0.0  # rounded: the last bits may differ elsewhere

    def __repr__(self) -> str:
        return f"Calibration({self.samples:,} validation samples)"


class _Offsets:
    """How far a client's classes are from everyone's, on its training samples and on its validation samples."""

    def __init__(self, own: ClassSums, everyone: ClassSums, rotated: Floats, labels: Any, spectrum: Spectrum) -> None:
        self._spectrum = spectrum
        counts = np.bincount(labels, minlength=len(own.counts)).astype(np.float64)
        sums = np.zeros((len(counts), rotated.shape[1]))
        np.add.at(sums, labels, rotated)
        has = (counts > 0) & (own.counts > 0) & (everyone.counts > own.counts)  # classes that others have, too
        mean = spectrum.rotate(everyone.sums[has] / everyone.counts[has, None])
        n, own_n = counts[has], own.counts[has]
        self._training = spectrum.rotate(own.sums[has] / own_n[:, None]) - mean
        self._validation = sums[has] - n[:, None] * mean
        several = counts > 1
        squares = np.zeros(rotated.shape[1]) + (rotated[several[labels]] ** 2).sum(axis=0)
        self._within = squares - (sums[several] ** 2 / counts[several, None]).sum(axis=0)
        share = 1 - own_n / everyone.counts[has]
        self.weights = np.array([(n * share).sum(), (counts[several] - 1).sum()])
        self._noise = min(float((n / own_n).sum()), float(n.sum()))

    def moments(self, shrinkage: float) -> tuple[float, float, float]:
        """Return the sums behind q, w and the variance of q in the metric of this shrinkage, a dimension each."""
        precision = 1 / self._spectrum.shrunk(shrinkage)
        between = float((self._training * self._validation @ precision).sum()) / len(precision)
        within = max(float(self._within @ precision), 0.0) / len(precision)
        return between, within, self._noise / self._spectrum.effective_dimensions(shrinkage)


def _sums(log_likelihoods: Floats) -> Floats:
    """Add up along the last axis, in the same order as a row alone; the last bits may differ elsewhere."""
    sums = np.ascontiguousarray(np.maximum(log_likelihoods, LOWEST)).sum(axis=-1)
    return np.array([round(one, 6) for one in sums.ravel().tolist()]).reshape(sums.shape)
