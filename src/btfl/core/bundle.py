"""What one client keeps when training ends. Everything after it needs no federation, and no torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from btfl.checks import as_features, as_labels
from btfl.core.heads import HeadLike, LinearHead, mean_entropy
from btfl.core.likelihood import DiscretisedLikelihood
from btfl.core.summary import Summary
from btfl.errors import InputError, StorageError
from btfl.storage import load_record, save_record

OWN_SUMS = "local_class_feature_sums"
"""The statistic with the client's own sums of features by class."""
OWN_SCATTER = "local_feature_scatter"
"""The statistic with the client's own sum of z z'; kept where its local answer has a covariance of its own."""
KIND = "btfl client bundle"
VERSION = 1
LARGEST_WEIGHT = 1e50
"""Of a head's weights and biases: logits, and their squares, are finite for any feature up to the same size."""
LARGEST_COUNT = 2**53
"""Of samples and clients: exact as a float."""


@dataclass(frozen=True, eq=False, init=False, repr=False)
class ClientBundle:
    """Two heads, two likelihoods, two mean entropies, and whatever else a test-time method needs.

    ``ClientBundle.of`` makes one from two heads and two summaries; ``save`` and ``load`` keep it on disk.

    Parameters
    ----------
    global_head, personal_head : a head, a (classes, dimensions) matrix, a pair (weight, bias), or anything with
        ``.weight`` and ``.bias``
    local_likelihood, global_likelihood : of the client's own features, and of everyone's
    local_entropy, global_entropy : mean entropy (nats) of the personal and of the global head over the client's
        training set; None if not known, which BTFL refuses and Coherent does not need
    statistics : further arrays that methods need, by name (docs/adding-a-method.md lists them)
    metadata : where it comes from; JSON values only

    Examples
    --------
    >>> import numpy as np
    >>> from btfl import ClientBundle, Summary
    >>> z, y = np.abs(np.random.default_rng(0).normal(size=(60, 8))), np.arange(60) % 3
    >>> own, others = Summary.of(z[:30], y[:30], 3), Summary.of(z[30:], y[30:], 3)
    >>> ClientBundle.of(np.eye(3, 8), 2 * np.eye(3, 8), own, own + others, features=z[:30], labels=y[:30])
    ClientBundle(3 classes, 8 dimensions, 30 own samples of 60 from 2 clients, 9 statistics)
    """

    global_head: LinearHead
    personal_head: LinearHead
    local_likelihood: DiscretisedLikelihood
    global_likelihood: DiscretisedLikelihood
    local_entropy: float | None
    """Mean entropy (nats) of the personal head over the client's training set, Hbar_l."""
    global_entropy: float | None
    """Mean entropy (nats) of the global head over the client's training set, Hbar_g."""
    statistics: Mapping[str, NDArray[Any]]
    """Further arrays that other methods need, by name."""
    metadata: Mapping[str, Any]
    """Where it comes from: client, dataset, model, seed. JSON values only."""

    def __init__(
        self,
        global_head: HeadLike,
        personal_head: HeadLike,
        local_likelihood: DiscretisedLikelihood,
        global_likelihood: DiscretisedLikelihood,
        local_entropy: float | None = None,
        global_entropy: float | None = None,
        statistics: Mapping[str, ArrayLike] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        for name, value in (
            ("global_head", LinearHead.of(global_head)),
            ("personal_head", LinearHead.of(personal_head)),
            ("local_likelihood", local_likelihood),
            ("global_likelihood", global_likelihood),
            ("local_entropy", local_entropy),
            ("global_entropy", global_entropy),
            ("statistics", {key: np.asarray(array) for key, array in (statistics or {}).items()}),
            ("metadata", dict(metadata or {})),
        ):
            object.__setattr__(self, name, value)
        self._check()

    @classmethod
    def of(
        cls,
        global_head: HeadLike,
        personal_head: HeadLike,
        own: Summary,
        everyone: Summary,
        *,
        features: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        validation: tuple[ArrayLike, ArrayLike] | None = None,
        statistics: Mapping[str, ArrayLike] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> ClientBundle:
        """Make a bundle from two heads, the client's own summary and everyone's.

        Parameters
        ----------
        global_head, personal_head : a head, a (classes, dimensions) matrix, a pair (weight, bias), or anything with
            ``.weight`` and ``.bias``
        own : the summary of the client's training data
        everyone : the total over all clients, this one included
        features, labels : (samples, dimensions) and (samples,), the client's own training data. They stay on the
            client; BTFL needs them for its mean entropies, and so do methods that compare with training samples
        validation : features and labels of the client's validation part, for methods that choose settings on it
        statistics : further arrays that a method of yours needs
        metadata : where it comes from; JSON values only
        """
        heads = LinearHead.of(global_head), LinearHead.of(personal_head)
        for what, head in zip(("global head", "personal head"), heads, strict=True):
            head.check_size(what, own.classes, own.dimensions)
        entropies: list[float | None] = [None, None]
        mine = own.class_sums()
        kept: dict[str, ArrayLike] = {
            **everyone.for_bundle(),
            "local_class_counts": mine.counts,
            OWN_SUMS: mine.sums,
        }
        answer = None if everyone.calibration is None else everyone.calibration.choose_local()
        if answer is not None and answer.has_own_covariance:
            kept[OWN_SCATTER] = mine.scatter
        if features is not None:
            train = np.asarray(features)
            exact = as_features(train, width=own.dimensions)
            entropies = [mean_entropy(head, exact) for head in heads]
            kept["train_features"] = train
            if labels is not None:
                kept["train_labels"] = as_labels(labels, len(train), own.classes)
        if validation is not None:
            kept["validation_features"], kept["validation_labels"] = validation
        return cls(
            *heads,
            own.likelihood,
            everyone.likelihood,
            local_entropy=entropies[1],
            global_entropy=entropies[0],
            statistics={**kept, **(statistics or {})},
            metadata=metadata,
        )

    def _check(self) -> None:
        if self.global_head.classes != self.personal_head.classes:
            raise InputError(
                f"the heads do not agree: {self.global_head.classes} classes in the global head, "
                f"{self.personal_head.classes} in the personal one"
            )
        for what, size in (
            ("personal head", self.personal_head.dimensions),
            ("local likelihood", self.local_likelihood.dimensions),
            ("global likelihood", self.global_likelihood.dimensions),
        ):
            if size != self.dimensions:
                raise InputError(f"the global head takes {self.dimensions} dimensions, but the {what} {size}")
        for what, head in (("global head", self.global_head), ("personal head", self.personal_head)):
            largest = max(np.abs(part).max(initial=0.0) for part in (head.weight, head.bias) if part is not None)
            if largest > LARGEST_WEIGHT:
                raise InputError(f"the {what} holds weights up to {largest:.3g}; the limit is {LARGEST_WEIGHT:g}")
        for name in ("local_entropy", "global_entropy"):
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, int | float | np.floating) or not math.isfinite(value) or value < 0:
                raise InputError(f"{name} must be a finite number of nats, not negative, and not {value!r}")
            object.__setattr__(self, name, float(value))
        for key, value in self.statistics.items():
            if value.dtype.hasobject:
                raise InputError(f"statistic '{key}' holds Python objects; only arrays of numbers can be kept")
        try:
            json.dumps(dict(self.metadata), allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"metadata must be plain JSON values: {error}") from None

    @property
    def mean_entropies(self) -> tuple[float, float]:
        """Hbar_l and Hbar_g; an ``InputError`` if the bundle was made without features."""
        if self.local_entropy is None or self.global_entropy is None:
            raise InputError(
                "this bundle lacks the mean entropies of both heads over the training set: make it with "
                "ClientBundle.of(..., features=...)"
            )
        return self.local_entropy, self.global_entropy

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.global_head.classes

    @property
    def dimensions(self) -> int:
        """The feature size d."""
        return self.global_head.dimensions

    def statistic(self, name: str) -> NDArray[Any]:
        """Return one of the statistics; if the bundle lacks it, the error says how to get it.

        Arrays of real numbers come as float64, whole numbers as they are.
        """
        self.require(name)
        array = self.statistics[name]
        return array.astype(np.float64, copy=False) if array.dtype.kind == "f" else array

    def require(self, *names: str, by: str = "this method") -> None:
        """Raise an ``InputError`` if the bundle lacks one of these statistics."""
        if missing := [name for name in names if name not in self.statistics]:
            raise InputError(
                f"{by} needs {', '.join(missing)} among the bundle's statistics: training leaves them there, and "
                "so does ClientBundle.of with features, labels and validation. Train again, or make the bundle that way"
            )

    def __repr__(self) -> str:
        local, everyone = self.local_likelihood, self.global_likelihood
        return (
            f"ClientBundle({self.classes} classes, {self.dimensions} dimensions, {local.count:,} own samples of "
            f"{everyone.count:,} from {everyone.clients:,} clients, {len(self.statistics)} statistics)"
        )

    def save(self, folder: str | Path) -> None:
        """Save into a folder as safetensors and JSON; if it fails, what was there before is still whole."""
        arrays: dict[str, NDArray[Any]] = {f"statistics.{k}": v for k, v in self.statistics.items()}
        for name, head in (("global_head", self.global_head), ("personal_head", self.personal_head)):
            arrays[f"{name}.weight"] = head.weight
            if head.bias is not None:
                arrays[f"{name}.bias"] = head.bias
        fields: dict[str, Any] = {
            "local_entropy": self.local_entropy,
            "global_entropy": self.global_entropy,
            "metadata": dict(self.metadata),
        }
        for name, likelihood in (
            ("local_likelihood", self.local_likelihood),
            ("global_likelihood", self.global_likelihood),
        ):
            arrays[f"{name}.frequencies"] = likelihood.frequencies
            fields[name] = {"count": likelihood.count, "clients": likelihood.clients}
        save_record(Path(folder), "bundle", KIND, VERSION, fields, arrays)

    @classmethod
    def load(cls, folder: str | Path) -> ClientBundle:
        """Load from a folder, refusing what is missing, damaged or of a version we do not know."""
        folder = Path(folder)
        fields, arrays = load_record(folder, "bundle", KIND, VERSION)
        try:
            global_head, personal_head = (
                LinearHead(_numbers(arrays, f"{name}.weight"), _numbers(arrays, f"{name}.bias", needed=False))
                for name in ("global_head", "personal_head")
            )
            local_likelihood, global_likelihood = (
                DiscretisedLikelihood(_numbers(arrays, f"{name}.frequencies"), **_size(fields[name], name))
                for name in ("local_likelihood", "global_likelihood")
            )
            if not isinstance(fields["metadata"], dict):
                raise InputError("its metadata have no names")
            for name in ("local_entropy", "global_entropy"):
                value = fields[name]
                if isinstance(value, bool) or (isinstance(value, int | float) and value > math.log(LARGEST_COUNT)):
                    raise InputError(f"{name} must be a number of nats, and not {value!r}")
            return cls(
                global_head,
                personal_head,
                local_likelihood,
                global_likelihood,
                local_entropy=fields["local_entropy"],
                global_entropy=fields["global_entropy"],
                statistics={
                    key.removeprefix("statistics."): value
                    for key, value in arrays.items()
                    if key.startswith("statistics.")
                },
                metadata=fields["metadata"],
            )
        except (KeyError, TypeError) as error:
            raise StorageError(f"the bundle in {folder} is incomplete: {error}") from None
        except InputError as error:
            raise StorageError(f"the bundle in {folder} does not fit together: {error}") from None


def _numbers(arrays: Mapping[str, NDArray[Any]], name: str, needed: bool = True) -> Any:
    """Return one of the saved arrays of real numbers; None if it is not there and not needed."""
    if not needed and name not in arrays:
        return None
    if arrays[name].dtype.kind not in "fiu":
        raise InputError(f"{name} holds {arrays[name].dtype}, not real numbers")
    return arrays[name]


def _size(found: Any, name: str) -> dict[str, int]:
    """Return how many samples, of how many clients, a saved likelihood comes from."""
    if (
        not isinstance(found, dict)
        or found.keys() != {"count", "clients"}
        or not all(type(value) is int and 1 <= value <= LARGEST_COUNT for value in found.values())
    ):
        raise InputError(f"the {name} needs a count of samples and of clients, each from 1 to {LARGEST_COUNT:,}")
    return found
