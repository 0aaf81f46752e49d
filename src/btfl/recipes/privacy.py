"""Settings of differential privacy: what is protected, how well, and by how much clipping."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from btfl.errors import InputError
from btfl.knobs import Settings, knob
from btfl.randomness import generator

Privacy = Literal["none", "summary", "full"]
Unit = Literal["client", "record"]
Mechanism = Literal["dp-fedavg", "dp-sgd"]
Noise = Literal["secret", "seeded"]


@dataclass(frozen=True, kw_only=True)
class PrivacySettings(Settings):
    """What is released with differential privacy; part of the settings of training."""

    privacy: Privacy = knob(
        "none", "Differential privacy of nothing, of the summary at the end, or of all that is released (full)."
    )
    epsilon: float = knob(8.0, "Differential privacy: epsilon of the whole run.", above=0)
    delta: float = knob(1e-5, "Differential privacy: delta of the whole run.", above=0, below=1)
    privacy_unit: Unit = knob("client", "Whom the guarantee is for: a client with all its samples, or one record.")
    update_clip: float = knob(1.0, "Full privacy: longest update, in the Euclidean norm.", above=0)
    clip_quantile: float | None = knob(
        None, "Full privacy: adapt the clip to this quantile of the updates' lengths; none: keep it.", above=0, below=1
    )
    feature_radius: float | None = knob(None, "Privacy: longest feature vector in a summary; none: 2 sqrt(d).", above=0)
    client_bound: float = knob(
        100.0, "Privacy of clients: length to which a client's sums are shortened, in samples.", above=0
    )
    summary_share: float = knob(0.2, "Full privacy: share of the budget that the summary gets.", above=0, below=1)
    privacy_noise: Noise = knob(
        "secret",
        "Noise from the system's entropy, or from the seed: that repeats, and protects from nobody who knows it.",
    )
    privacy_mechanism: Mechanism = knob(
        "dp-fedavg",
        "Full privacy: noise on the sum of clipped updates, or (dp-sgd, for records) in each client's own steps.",
    )
    client_samples: int | None = knob(
        None, "DP-SGD: how many records a client has, about; a number that everyone may know.", least=1
    )
    record_clip: float = knob(0.1, "DP-SGD: longest gradient of a record, in the Euclidean norm.", above=0)

    def check(self) -> None:
        """Refuse settings that do not go together."""
        defence = getattr(self, "defence", "none")
        self._check_mechanism()
        if self.clips_updates and defence not in ("auto", "none"):
            raise InputError(
                f"{self.title}: defence={defence} and privacy=full do not go together: who is left out depends on the "
                "data, which the guarantee does not cover. Clipping bounds what a liar can do; leave the defence out"
            )

    def _check_mechanism(self) -> None:
        if self.privacy_mechanism != "dp-sgd":
            return
        if self.privacy != "full" or self.privacy_unit != "record":
            raise InputError(
                f"{self.title}: privacy_mechanism=dp-sgd protects single records in training and summary: it goes with "
                f"privacy=full and privacy_unit=record, not with {self.privacy} and {self.privacy_unit}"
            )
        if self.client_samples is None:
            raise InputError(
                f"{self.title}: privacy_mechanism=dp-sgd must know how many records a client has, about, to draw "
                "batches by: set client_samples to a number that everyone may know, for example 100"
            )
        if self.clip_quantile is not None:
            raise InputError(
                f"{self.title}: clip_quantile and privacy_mechanism=dp-sgd do not go together: gradients of records "
                "are clipped to record_clip. Leave the quantile out"
            )

    @property
    def is_private(self) -> bool:
        """Whether anything is released with differential privacy."""
        return self.privacy != "none"

    @property
    def clips_updates(self) -> bool:
        """Whether the server clips whole updates and adds noise to their sum (DP-FedAvg)."""
        return self.privacy == "full" and self.privacy_mechanism == "dp-fedavg"

    @property
    def clips_records(self) -> bool:
        """Whether each client clips its records' gradients and adds noise to every step (DP-SGD)."""
        return self.privacy == "full" and self.privacy_mechanism == "dp-sgd"

    def promise(self) -> dict[str, Any]:
        """Return what is promised, as plain JSON, for run records and bundles; empty if nothing is."""
        if not self.is_private:
            return {}
        return {
            "of": "training and summary" if self.privacy == "full" else "summary",
            "unit": self.privacy_unit,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "noise": self.privacy_noise,
            **({"mechanism": self.privacy_mechanism} if self.clips_records else {}),
        }

    def sentence(self) -> str:
        """Return the promise in words."""
        told = self.promise()
        if not told:
            return ""
        seeded = " The noise is a function of the seed: a simulation." if self.privacy_noise == "seeded" else ""
        local = " Each client's own steps have the noise of training (DP-SGD)." if self.clips_records else ""
        return (
            f"Differential privacy of {told['of']} for every {told['unit']}: epsilon = {self.epsilon:g}, "
            f"delta = {self.delta:g}.{local}{seeded}"
        )


def noise_generator(settings: Any, *purpose: str | int) -> np.random.Generator:
    """Return where noise for one purpose comes from: the system's entropy, or the seed of a simulation."""
    if settings.privacy_noise == "seeded":
        return generator(settings.seed, "privacy", *purpose)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(secrets.randbits(256))))
