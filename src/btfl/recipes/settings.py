"""How a federation is trained. The defaults are the paper's for the cnn on CIFAR-10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from btfl.errors import InputError
from btfl.knobs import knob
from btfl.recipes.privacy import PrivacySettings

Optimiser = Literal["sgd", "adam"]
Precision = Literal["fp32", "bf16"]
Defence = Literal[
    "auto",
    "screen",
    "none",
    "median",
    "trimmed-mean",
    "clip",
    "multi-krum",
    "geometric-median",
    "centred-clipping",
    "dnc",
]


@dataclass(frozen=True)
class TrainingSettings(PrivacySettings):
    """Everything the trained weights depend on, besides the data and the recipe."""

    title: ClassVar[str] = "training"

    model: str = knob(
        "cnn",
        "Model: cnn, resnet20, cct4 (images), cnn1d (signals), linear (vectors), mlp, or your own `module:Factory`.",
    )
    model_options: Mapping[str, Any] = knob({}, "Options of the model, for example width.")
    rounds: int = knob(130, "Rounds of training.", least=0)
    local_epochs: int = knob(5, "Epochs on the client's own data before it uploads.", least=1)
    personal_epochs: int = knob(1, "Epochs of personalisation a round, never uploaded.", least=0)
    finetune_epochs: int = knob(1, "Epochs for the fine-tuned copy of the final model (FedAvg+FT).", least=0)
    batch: int = knob(32, "Samples in a training step.", least=1)
    optimiser: Optimiser = knob("sgd", "Optimiser.")
    learning_rate: float = knob(0.01, "Learning rate.", least=0)
    momentum: float = knob(0.0, "Momentum of sgd.", least=0)
    weight_decay: float = knob(5e-4, "Weight decay.", least=0)
    augment: bool = knob(True, "Random crop with padding of an eighth of the side (4 at 32x32), and horizontal flip.")
    feature_l1: float = knob(
        0.0, "Weight of ||z||_1 / batch in the global loss; the published program uses 0.001 for the cnn.", least=0
    )
    ditto_lambda: float = knob(1.0, "Ditto: how strongly a personal model is held to the global one.", least=0)
    dbe_kappa: float = knob(1.0, "FedDBE: weight of the distance between mean features, own and everyone's.", least=0)
    dbe_momentum: float = knob(1.0, "FedDBE: share of a batch in the running mean feature.", above=0, most=1)
    adaptation_rounds: int = knob(
        20, "ATP: rounds after those of training, in which adaptation rates are learned.", least=0
    )
    babu_epochs: int = knob(5, "FedBABU: epochs of fine-tuning body and head when training ends.", least=0)
    participation: float = knob(1.0, "Share of the clients that take part in a round.", above=0, most=1)
    seed: int = knob(0, "Random seed.", least=0)
    precision: Precision = knob(
        "fp32", "What the extractor computes in while it is trained; weights, head and loss are always fp32."
    )
    compile: bool = knob(False, "Whether torch.compile makes a faster extractor for training.")
    defence: Defence = knob(
        "auto",
        "How the server averages, against clients that lie; `screen` leaves out who is far from all others; `auto` is "
        "that for fedavg, balanced and ditto, where the server sees single updates (not with secure or privacy=full).",
    )
    secure: bool = knob(
        False, "Secure aggregation: the server learns sums alone, masked on Flower; in one process the same arithmetic."
    )
    secure_range: float = knob(
        256.0, "Secure aggregation: no weight and no feature may be beyond this, in absolute value.", above=0, most=1e6
    )
    liars: float = knob(
        0.2,
        "Share of the clients that may lie, for defences that must be told: trimmed-mean, multi-krum, dnc.",
        least=0,
        below=0.5,
    )

    def check(self) -> None:
        """Refuse settings that do not go together."""
        super().check()
        if self.secure and self.defence not in ("auto", "none"):
            raise InputError(
                f"training: defence={self.defence} and secure do not go together: it compares single updates, which "
                "nobody sees. Leave the defence out"
            )
        if self.secure and self.clip_quantile is not None:
            raise InputError(
                "training: clip_quantile and secure do not go together: the clip adapts to the lengths of single "
                "updates. Choose update_clip, and leave the quantile out"
            )
        if self.clips_records and (self.precision != "fp32" or self.compile):
            raise InputError(
                "training: privacy_mechanism=dp-sgd computes the gradient of each record, which is done in fp32 and "
                "without torch.compile: leave precision at fp32 and compile at false"
            )

    @property
    def defence_in_force(self) -> Defence:
        """The defence, where it is left to btfl: ``screen``, or ``none`` where nobody sees single updates."""
        if self.defence != "auto":
            return self.defence
        return "none" if self.secure or self.clips_updates else "screen"

    @classmethod
    def for_model(cls, model: str, **changes: Any) -> TrainingSettings:
        """Return the paper's settings for a model, with single ones changed.

        >>> TrainingSettings.for_model("resnet20", rounds=10).momentum
        0.9
        """
        return cls.make(**{"model": model, **_PAPER.get(model, {}), **changes})

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON.

        Settings in ``_LATER`` are included only if they are not as they always were, so that older runs still go on.
        """
        values = super().as_dict()
        return {name: value for name, value in values.items() if name not in _LATER or value != _LATER[name]}


_LATER: Mapping[str, Any] = {
    "precision": "fp32",
    "compile": False,
    "ditto_lambda": 1.0,
    "dbe_kappa": 1.0,
    "dbe_momentum": 1.0,
    "babu_epochs": 5,
    "adaptation_rounds": 20,
    "defence": "auto",
    "secure": False,
    "secure_range": 256.0,
    "liars": 0.2,
    **{each.name: each.default for each in PrivacySettings.knobs()},
}
"""Settings that came after the first runs were written down, and what those runs had."""

_PAPER: Mapping[str, Mapping[str, Any]] = {
    "resnet20": {"momentum": 0.9},
    "cct4": {"optimiser": "adam", "learning_rate": 0.001, "weight_decay": 0.0},
    "mlp": {"learning_rate": 0.05, "momentum": 0.9, "rounds": 20, "augment": False},  # ours, for the 8x8 digits
    "cnn1d": {"learning_rate": 0.02, "momentum": 0.9, "rounds": 20, "augment": False},  # ours, for 128 steps of HAPT
    "linear": {"learning_rate": 0.01, "momentum": 0.9, "rounds": 50, "local_epochs": 1, "augment": False},  # ours
}
"""The paper's settings of a model, where they are not those of the cnn."""
