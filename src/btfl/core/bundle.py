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

from btfl.core.heads import HeadLike, LinearHead
from btfl.core.likelihood import DiscretisedLikelihood
from btfl.errors import InputError, StorageError
from btfl.storage import load_record, save_record

KIND = "btfl client bundle"
VERSION = 1


@dataclass(frozen=True, eq=False, init=False)
class ClientBundle:
    """Two heads, two likelihoods, two mean entropies, and whatever else a test-time method needs."""

    global_head: LinearHead
    personal_head: LinearHead
    local_likelihood: DiscretisedLikelihood
    global_likelihood: DiscretisedLikelihood
    local_entropy: float
    """Mean entropy (nats) of the personal head over the client's training set, Hbar_l."""
    global_entropy: float
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
        local_entropy: float,
        global_entropy: float,
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
        for name in ("local_entropy", "global_entropy"):
            value = getattr(self, name)
            if not isinstance(value, int | float | np.floating) or not math.isfinite(value) or value < 0:
                raise InputError(f"{name} must be a finite number of nats, not negative, and not {value!r}")
            object.__setattr__(self, name, float(value))
        for key, value in self.statistics.items():
            if value.dtype.hasobject:
                raise InputError(f"statistic '{key}' holds Python objects; only arrays of numbers can be kept")
        try:
            json.dumps(dict(self.metadata), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise InputError(f"metadata must be plain JSON values: {error}") from None

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self.global_head.classes

    @property
    def dimensions(self) -> int:
        """The feature size d."""
        return self.global_head.dimensions

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
                LinearHead(arrays[f"{name}.weight"], arrays.get(f"{name}.bias"))
                for name in ("global_head", "personal_head")
            )
            local_likelihood, global_likelihood = (
                DiscretisedLikelihood(arrays[f"{name}.frequencies"], **fields[name])
                for name in ("local_likelihood", "global_likelihood")
            )
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
