"""The one door for what clients send: every array, metric, name and count is checked here, on every engine.

What comes through has the names, shapes and types that were agreed, is finite and within range, and claims no more
samples than the client was dealt. A client can still send wrong numbers that look right (docs/privacy.md lists them);
averaging that withstands such liars is not tried here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from btfl.checks import check_floats, printable
from btfl.core.calibration import Calibration
from btfl.core.summary import Summary
from btfl.data.federated import FederatedData
from btfl.errors import InputError, listed
from btfl.recipes.base import Description, Recipe, Update

if TYPE_CHECKING:
    from btfl.engines.base import Job
    from btfl.engines.faults import FaultSettings

Shapes = Mapping[str, tuple[int, ...]]
RESERVED = frozenset(
    "event time recipe round rounds clients client seconds stage message complete digest bytes_up bytes_down".split()  # noqa: SIM905
)
"""Names of the log's own fields: no metric may have them."""
MOST_METRICS, _LONGEST_NAME = 32, 64
_LARGEST_METRIC = float(np.finfo(np.float32).max)
_NAMED = 3  # names that an error quotes


class Door:
    """Checks the uploads of one run, and remembers how many samples each client has announced.

    Parameters
    ----------
    recipe : what is trained; its initial weights say which names and shapes were agreed
    data : how the samples were dealt: no client may claim more than its part
    faults : the limits
    """

    def __init__(self, recipe: Recipe, data: FederatedData, faults: FaultSettings) -> None:
        self._recipe, self.data, self._faults = recipe, data, faults
        self._shapes = {name: array.shape for name, array in recipe.initial().items()}
        self._first: dict[int, tuple[int, int]] = {}  # client -> samples it announced first, and in which round

    def update(self, job: Job, update: Update) -> None:
        """Raise an ``InputError`` for an update that cannot be averaged with others."""
        check_update(update, self._shapes, self._faults)
        samples = int(update.samples)
        self._check_dealt(job, samples)
        first, when = self._first.setdefault(job.client, (samples, job.round))
        if samples != first:
            allowed = abs(self._dealt(job.client, job.round) - self._dealt(job.client, when))
            if abs(samples - first) > allowed:
                raise InputError(f"it claims {samples} samples, but announced {first} before")

    def description(self, job: Job, description: Description) -> None:
        """Raise an ``InputError`` for sums that no data could give."""
        check_description(description, self._recipe, self._faults)
        if self._recipe.protection is None:
            self._check_dealt(job, float(description.summary.arrays["samples"][0]))

    def calibration(self, job: Job, calibration: Calibration) -> None:
        """Raise an ``InputError`` for sums that no validation part could give."""
        if not isinstance(calibration, Calibration):
            raise InputError(f"a calibration is expected, not {type(calibration).__name__}")
        part = self.data.partition.part_at(job.client, job.round)
        calibration.check(min(self._faults.most_samples, len(part.validation)))

    def _check_dealt(self, job: Job, samples: float) -> None:
        # A split that is redrawn in every round is redrawn here only for a client that claims more than its size.
        if samples > self.data.size(job.client) and samples > (dealt := self._dealt(job.client, job.round)):
            raise InputError(f"it claims {samples:g} samples, but was dealt {dealt}")

    def _dealt(self, client: int, round_: int) -> int:
        return len(self.data.partition.part_at(client, round_).train)


def check_update(update: Update, shapes: Shapes, faults: FaultSettings) -> None:
    """Raise an ``InputError`` for an update that fits no round, whoever it is from."""
    samples = update.samples
    if isinstance(samples, bool) or not isinstance(samples, int | np.integer) or samples < 1:
        raise InputError(f"the number of samples must be a whole number above 0, not {printable(repr(samples), 40)}")
    if samples > faults.most_samples:
        raise InputError(f"it claims more samples than most_samples = {faults.most_samples} allows")
    check_arrays(update.upload, shapes, faults.largest)
    _check_private(update.private)
    check_metrics(update.metrics)


def check_description(description: Description, recipe: Recipe, faults: FaultSettings) -> None:
    """Raise an ``InputError`` for statistics that no data could give."""
    check_summary(description.summary, recipe.check_summary, faults)
    _check_private(description.private)


def check_summary(summary: Summary, check: Callable[[Summary], None], faults: FaultSettings) -> None:
    """Raise an ``InputError`` for sums that cannot be added to others'; ``check`` knows their sizes."""
    if not isinstance(summary, Summary):
        raise InputError(f"a summary is expected, not {type(summary).__name__}")
    for name, array in _arrays(summary.arrays).items():
        check_floats(name, array, np.float64)
    if summary.calibration is not None:
        raise InputError("a calibration is not asked for yet: it is made with everyone's summary")
    check(summary)
    for name in ("samples", "class_counts", "distorted_class_counts"):
        top = np.abs(summary.arrays[name]).max(initial=0.0)
        if top > faults.most_samples:
            raise InputError(f"{name} are {top:.3g}, more than most_samples = {faults.most_samples} allows")


def check_arrays(arrays: object, shapes: Shapes, largest: float) -> None:
    """Raise an ``InputError`` for arrays that are missing, unknown, of another shape or type, or out of range."""
    received = _arrays(arrays)
    if missing := sorted(set(shapes) - set(received)):
        raise InputError(f"missing: {listed(missing, _NAMED)}")
    if unknown := sorted(printable(name, 80) for name in set(received) - set(shapes)):
        raise InputError(f"not asked for: {listed(unknown, _NAMED)}")
    for name, value in received.items():
        array = check_floats(name, value, np.float32, np.float64)
        if array.shape != shapes[name]:
            raise InputError(f"{name} has the shape {array.shape}, not {shapes[name]}")
        top = max(array.max(initial=0.0), -array.min(initial=0.0))
        if top > largest:
            raise InputError(f"{name} is out of range: up to {top:.3g}, the limit is {largest:g}")


def check_metrics(metrics: object) -> None:
    """Raise an ``InputError`` for metrics that cannot be averaged or written to the log."""
    if not isinstance(metrics, Mapping) or len(metrics) > MOST_METRICS:
        raise InputError(f"metrics must be at most {MOST_METRICS} numbers by name")
    for name, value in metrics.items():
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or not name.isprintable():
            raise InputError(
                f"a metric's name must be 1 to {_LONGEST_NAME} printable characters, not {printable(repr(name), 40)}"
            )
        if name in RESERVED:
            raise InputError(f"a metric must not be called {name!r}: the log has a field of that name")
        if not _is_number(value):
            raise InputError(f"training has not stayed finite: its {name} is {printable(repr(value), 40)}")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(value) and abs(float(value)) <= _LARGEST_METRIC
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _arrays(arrays: object) -> Mapping[str, Any]:
    if not isinstance(arrays, Mapping) or not all(isinstance(name, str) for name in arrays):
        raise InputError("arrays by name are expected")
    return arrays


def _check_private(private: object) -> None:
    for name, array in _arrays(private).items():
        check_floats(f"the client's own {name}", array, np.float32, np.float64)
