"""What one client's features and labels come to: the sums it uploads, and the server adds up.

Sums only, so that the server needs to learn no more than their total over clients (secure aggregation can carry them).
Everything that is uploaded about data is declared in ``STATISTICS``: a new statistic is one more entry there.

    own = Summary.of(features, labels, classes=10)      # on each client
    everyone = Summary.total(summaries)                 # on the server; or own + another + ...
    bundle = ClientBundle.of(global_head, personal_head, own, everyone, features=features)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features, as_labels, check_floats, printable
from btfl.core.calibration import SHAPES, Calibration
from btfl.core.likelihood import THRESHOLD, DiscretisedLikelihood
from btfl.core.sums import DISTORTED, KINDS, PLAIN, ClassSums
from btfl.errors import InputError

__all__ = [
    "DISTORTED",
    "KINDS",
    "LARGEST",
    "PLAIN",
    "STATISTICS",
    "ClassSums",
    "Protection",
    "RunningTotal",
    "Statistic",
    "Summary",
]

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

LARGEST = 1e100
"""No sum is beyond this, in absolute value: features in single precision cannot lead to more."""
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Statistic:
    """One array that a client uploads, and how it is measured."""

    name: str
    axes: tuple[str, ...]
    """Its shape, as a sequence of ``classes`` and ``dimensions``; empty: a single number."""
    measure: Callable[[Floats, Labels, int], Floats]
    """(features, labels, classes) -> the array."""
    distorted: bool = False
    """Whether it is measured on distorted copies instead of the samples themselves."""
    kept: bool = True
    """Whether a client's bundle keeps everyone's, as ``global_NAME``."""

    def shape(self, classes: int, dimensions: int) -> tuple[int, ...]:
        """Return its shape for so many classes and dimensions."""
        sizes = {"classes": classes, "dimensions": dimensions}
        return tuple(sizes[axis] for axis in self.axes) or (1,)


def _class_counts(features: Floats, labels: Labels, classes: int) -> Floats:
    return np.bincount(labels, minlength=classes).astype(np.float64)


def _class_feature_sums(features: Floats, labels: Labels, classes: int) -> Floats:
    sums = np.zeros((classes, features.shape[1]))
    np.add.at(sums, labels, features)
    return sums


def _feature_scatter(features: Floats, labels: Labels, classes: int) -> Floats:
    # not a matrix product: the linear algebra library may add in another order with another number of threads
    return np.asarray(np.einsum("ni,nj->ij", features, features))


_PER_CLASS = (
    ("class_counts", ("classes",), _class_counts),
    ("class_feature_sums", ("classes", "dimensions"), _class_feature_sums),
    ("feature_scatter", ("dimensions", "dimensions"), _feature_scatter),
)
_SIGNED = {f"{kind}{name}" for kind in KINDS for name in ("class_feature_sums", "feature_scatter")}
"""What may have entries below zero, if features may."""
STATISTICS: tuple[Statistic, ...] = (
    Statistic("clients", (), lambda features, labels, classes: np.ones(1), kept=False),
    Statistic("samples", (), lambda features, labels, classes: np.full(1, float(len(features))), kept=False),
    Statistic(
        "zero_frequencies",
        ("dimensions",),
        lambda features, labels, classes: DiscretisedLikelihood.fit(features).frequencies,
        kept=False,
    ),
    *(
        Statistic(f"{kind}{name}", axes, measure, distorted=kind == DISTORTED)
        for kind in KINDS
        for name, axes, measure in _PER_CLASS
    ),
)
"""Everything that is uploaded, in order."""


class Protection(Protocol):
    """What is done to a client's data before anything of it leaves the client: the place for clipping and noise."""

    def features(self, features: Floats) -> Floats:
        """Return (samples, dimensions) features as they may be added up, for example clipped to a length."""

    def summary(self, summary: Summary) -> Summary:
        """Return the summary as it may be uploaded, for example with noise."""


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """Sums over one client's samples, or over those of several clients.

    Parameters
    ----------
    arrays : the statistics by name, float64; see ``STATISTICS`` for names and shapes. Use ``Summary.of`` to measure
        them and ``Summary.from_arrays`` for what was received.
    calibration : of a total, what all clients' validation parts make of it (``calibrated``)

    Examples
    --------
    >>> import numpy as np
    >>> from btfl import Summary
    >>> one = Summary.of(np.ones((6, 4)), [0, 0, 1, 1, 2, 2], classes=3)
    >>> one + one
    Summary(2 clients, 12 samples, 3 classes, 4 dimensions, no distorted copies)
    """

    arrays: Mapping[str, Floats]
    calibration: Calibration | None = None

    @classmethod
    def of(
        cls,
        features: ArrayLike,
        labels: ArrayLike,
        classes: int,
        *,
        distorted: ArrayLike | None = None,
        protection: Protection | None = None,
    ) -> Summary:
        """Measure one client's data.

        Parameters
        ----------
        features : (samples, dimensions), the extractor's output for each training sample
        labels : (samples,), whole numbers from 0 to classes - 1
        classes : how many classes the federation has
        distorted : (samples, dimensions), features of one distorted copy of each sample in the same order; without
            them their sums are zero
        protection : what is done to features before, and to the sums after they are added up
        """
        plain = as_features(features)
        numbers = as_labels(labels, len(plain), classes)
        copies = plain[:0] if distorted is None else as_features(distorted, width=plain.shape[1])
        if len(copies) not in (0, len(plain)):
            raise InputError(f"distorted features must be {len(plain)} rows, one for each sample, not {len(copies)}")
        if protection is not None:
            plain, copies = protection.features(plain), protection.features(copies)
        summary = cls(
            {
                one.name: one.measure(
                    *((copies, numbers[: len(copies)]) if one.distorted else (plain, numbers)), classes
                )
                for one in STATISTICS
            }
        )
        return summary if protection is None else protection.summary(summary)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[np.float64]]) -> Summary:
        """Return the summary of arrays that were received or loaded; a missing or unknown name is refused."""
        found = {name: array for name, array in arrays.items() if name in SHAPES}
        _check_names({name: array for name, array in arrays.items() if name not in SHAPES})
        calibration = Calibration.from_arrays(found) if found else None
        return cls({one.name: arrays[one.name] for one in STATISTICS}, calibration)

    def to_arrays(self) -> dict[str, Floats]:
        """Return the statistics by name, and the calibration's if there is one, for sending and saving."""
        return {**self.arrays, **({} if self.calibration is None else self.calibration.to_arrays())}

    def calibrated(self, calibration: Calibration) -> Summary:
        """Return a total together with what the clients' validation parts make of it."""
        return Summary(self.arrays, calibration)

    @classmethod
    def total(cls, summaries: Iterable[Summary]) -> Summary:
        """Add up summaries in their order, one at a time: memory does not grow with their number."""
        running = RunningTotal()
        for summary in summaries:
            running.add(summary)
        return running.total()

    def __add__(self, other: Summary) -> Summary:
        if not isinstance(other, Summary):
            return NotImplemented
        if (self.classes, self.dimensions) != (other.classes, other.dimensions):
            raise InputError(f"summaries of different sizes cannot be added: {self!r} and {other!r}")
        return Summary({name: array + other.arrays[name] for name, array in self.arrays.items()})

    def __radd__(self, other: object) -> Summary:
        return self if other == 0 else NotImplemented  # sum(summaries) begins with 0

    def check(self, classes: int, dimensions: int, *, exact: bool = True, nonnegative: bool = False) -> None:
        """Raise an ``InputError`` for what no client's data could give; the server asks before it adds up.

        Parameters
        ----------
        classes, dimensions : sizes that were agreed on
        exact : whether counts and sums must fit together, see ``_check_consistent``. ``False`` is for sums with noise:
            then shapes, finite values, one client and a positive number of samples are asked for.
        nonnegative : whether the extractor is known to end in a ReLU, so that no exact sum may be negative either
        """
        _check_names(self.arrays)
        for one in STATISTICS:
            array, shape = check_floats(one.name, self.arrays[one.name], np.float64), one.shape(classes, dimensions)
            if array.shape != shape:
                raise InputError(f"{one.name} has the shape {array.shape}, not {shape}")
            if max(array.max(), -array.min()) > LARGEST:
                raise InputError(f"{one.name} is out of range: beyond {LARGEST:g}")
        if exact:
            self._check_consistent(nonnegative)
        elif not (0.5 <= self.arrays["clients"][0] <= 1.5 and self.arrays["samples"][0] >= 0.5):
            raise InputError("a client speaks for itself alone, and for at least one sample: add no noise to these")

    def _check_consistent(self, nonnegative: bool) -> None:
        """Refuse sums that fit no samples.

        Sums over n samples of features in single precision, of any sign, always pass: whatever is compared may differ
        by what n additions in double precision can lose, 8 n eps (eps = 2.2e-16), relative to the size of the features.
        """
        arrays = self.arrays
        for name, array in arrays.items():
            if nonnegative or name not in _SIGNED:
                least = float(array.min())
            else:
                least = float(np.diagonal(array).min()) if "scatter" in name else 0.0
            if least < 0:
                raise InputError(f"{name} must not be negative, not {least:g}")
        frequencies = arrays["zero_frequencies"]
        if (frequencies > 1).any():
            raise InputError(f"zero_frequencies are shares from 0 to 1, not {frequencies.max():g}")
        samples, counts = float(arrays["samples"][0]), arrays["class_counts"]
        if arrays["clients"][0] != 1:
            raise InputError(f"a client speaks for itself alone, not for {arrays['clients'][0]:g} clients")
        if samples < 1 or (counts != np.rint(counts)).any() or counts.sum() != samples:
            raise InputError(f"class_counts must be whole numbers that add up to the {samples:g} samples")
        zeros = frequencies * samples
        if (np.abs(zeros - np.rint(zeros)) > 4 * _EPSILON * samples).any():
            raise InputError(f"zero_frequencies must be multiples of 1/{samples:.0f}, a share of the samples")
        copies = arrays["distorted_class_counts"]
        if copies.any() and (copies != counts).any():
            raise InputError("distorted_class_counts must be those of the samples, or zero where there are no copies")
        for kind in KINDS:
            _check_sums(kind, self.class_sums(kind))
        _check_bits(np.rint(zeros), self.class_sums())

    @property
    def classes(self) -> int:
        """The number of classes."""
        return len(self.arrays["class_counts"])

    @property
    def dimensions(self) -> int:
        """The feature size d."""
        return len(self.arrays["zero_frequencies"])

    @property
    def clients(self) -> int:
        """How many clients it speaks for."""
        return round(float(self.arrays["clients"][0]))

    @property
    def samples(self) -> int:
        """How many samples it was made from."""
        return round(float(self.arrays["samples"][0]))

    @property
    def has_copies(self) -> bool:
        """Whether distorted copies were added up too."""
        return bool(self.arrays["distorted_class_counts"].any())

    def class_sums(self, kind: str = PLAIN) -> ClassSums:
        """Return the sums of one kind, ``PLAIN`` or ``DISTORTED``."""
        return ClassSums(*(self.arrays[f"{kind}{name}"] for name, _, _ in _PER_CLASS))

    @property
    def likelihood(self) -> DiscretisedLikelihood:
        """The discretised likelihood; of several clients their average, each counting the same."""
        if self.clients < 1:
            raise InputError(f"sums of {self.clients} clients have no average")
        frequencies = np.clip(self.arrays["zero_frequencies"] / self.clients, 0.0, 1.0)
        return DiscretisedLikelihood(frequencies, self.samples, self.clients)

    def for_bundle(self) -> dict[str, Floats]:
        """Return what a client's bundle keeps of everyone's sums, by the names they have there."""
        kept = {f"global_{one.name}": self.arrays[one.name] for one in STATISTICS if one.kept}
        return kept if self.calibration is None else {**kept, **self.calibration.to_arrays()}

    def __repr__(self) -> str:
        copies = "with distorted copies" if self.has_copies else "no distorted copies"
        return (
            f"Summary({self.clients} client{'s' * (self.clients != 1)}, {self.samples:,} samples, "
            f"{self.classes} classes, {self.dimensions} dimensions, {copies})"
        )


class RunningTotal:
    """Adds up summaries one at a time, in their order."""

    def __init__(self) -> None:
        self._sums: dict[str, Floats] = {}

    @property
    def classes(self) -> int:
        """The number of classes; 0 before the first summary."""
        return len(self._sums.get("class_counts", ()))

    def add(self, summary: Summary) -> None:
        """Add one more."""
        for name, array in summary.arrays.items():
            if name in self._sums:
                self._sums[name] += array
            else:
                self._sums[name] = np.array(array, dtype=np.float64)

    def total(self) -> Summary:
        """Return the total so far."""
        if not self._sums:
            raise InputError("nothing to add up: no client sent a summary")
        return Summary(self._sums)


def _check_names(arrays: Mapping[str, Floats]) -> None:
    known = [one.name for one in STATISTICS]
    if missing := [name for name in known if name not in arrays]:
        raise InputError(f"{missing[0]} is missing")
    if unknown := sorted(printable(name, 80) for name in set(arrays) - set(known)):
        raise InputError(f"{unknown[0]} is not asked for")


def _check_sums(kind: str, of: ClassSums) -> None:
    """Refuse a scatter that is not symmetric, or that has no room for the class sums.

    With samples z of class k, S - sum_k s_k s_k' / n_k is the scatter within the classes: positive semidefinite, and
    so is S. Looked at relative to the features' sizes, z_i / sqrt(S_ii), so that a small feature is checked as well as
    a large one.
    """
    sums, scatter = f"{kind}class_feature_sums", f"{kind}feature_scatter"
    has, size = of.counts > 0, np.sqrt(np.diagonal(of.scatter))
    on = size > 0
    if of.sums[~has].any() or (not has.any() and of.scatter.any()):
        raise InputError(f"{sums} and {scatter} must be zero where there is no sample")
    if of.sums[:, ~on].any() or of.scatter[~on].any() or of.scatter[:, ~on].any():
        raise InputError(f"{sums} and {scatter} do not fit: a feature that is zero in one is not in the other")
    if not on.any():
        return
    lost = 8 * _EPSILON * (of.counts.sum() + len(of.counts))
    relative = of.scatter[np.ix_(on, on)] / size[on] / size[on, None]
    if (np.abs(relative - relative.T) > lost).any():
        raise InputError(f"{scatter} is not symmetric")
    roots = of.sums[np.ix_(has, on)] / size[on] / np.sqrt(of.counts[has, None])
    if ((roots * roots).sum(axis=0) > 1 + lost).any():
        raise InputError(f"{sums} are larger than {scatter} and the counts allow")
    within = relative - roots.T @ roots
    within.flat[:: len(within) + 1] += lost * len(within)
    try:
        np.linalg.cholesky(within)
    except np.linalg.LinAlgError:
        raise InputError(f"{scatter} is no scatter of these classes: it is not positive semidefinite") from None


def _check_bits(off: Floats, of: ClassSums) -> None:
    """Refuse shares of zeros that fit no features with these sums: (dimensions,) samples in which a feature is off.

    A feature is off in ``off`` samples, where it is at most t (``THRESHOLD``), and on in the others, where it is above.
    Of all such samples with the same sum, those have the least sum of squares in which it has one value where it is on
    and one where it is off; with the mean below t, the value where it is on is t itself, else the one where it is off.
    """
    samples, total, squares = of.counts.sum(), of.sums.sum(axis=0), np.diagonal(of.scatter)
    on, lost = samples - off, 8 * _EPSILON * samples
    if (squares < on * THRESHOLD**2 * (1 - lost)).any():
        raise InputError("zero_frequencies and feature_scatter do not fit: a feature is on more often than it can be")
    near = of.counts[:, None] * THRESHOLD  # a class's sum if each of its samples were at the threshold
    slack = lost * np.sqrt(samples * squares)
    if (of.sums[:, on == 0] > (near + slack)[:, on == 0]).any():
        raise InputError("zero_frequencies and class_feature_sums do not fit: a feature that is never on is too large")
    if (of.sums[:, off == 0] < (near - slack)[:, off == 0]).any():
        raise InputError("zero_frequencies and class_feature_sums do not fit: a feature that is always on is too small")
    both = (on > 0) & (off > 0)
    on, off, total, squares = on[both], off[both], total[both], squares[both]
    at, others = np.where(total < samples * THRESHOLD, (on, off), (off, on))
    least = at * THRESHOLD**2 + (total - at * THRESHOLD) ** 2 / others
    if (squares < least * (1 - lost * math.sqrt(samples))).any():  # a sum's rounding counts more where one has few
        raise InputError(
            "zero_frequencies, class_feature_sums and feature_scatter do not fit: with so many samples on, features "
            "of this sum have larger squares"
        )
