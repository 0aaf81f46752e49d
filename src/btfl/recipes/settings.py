"""How a federation is trained. The defaults are the paper's for the cnn on CIFAR-10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from btfl.errors import InputError, UnknownNameError

Optimiser = Literal["sgd", "adam"]
Precision = Literal["fp32", "bf16"]


@dataclass(frozen=True)
class TrainingSettings:
    """Everything the trained weights depend on, besides the data and the recipe."""

    model: str = "cnn"
    model_options: Mapping[str, Any] = field(default_factory=dict)
    rounds: int = 130
    local_epochs: int = 5
    """Epochs on the client's own data before it uploads."""
    personal_epochs: int = 1
    """Epochs of personalisation a round, never uploaded."""
    finetune_epochs: int = 1
    """Epochs for the fine-tuned copy of the final model (FedAvg+FT)."""
    batch: int = 32
    optimiser: Optimiser = "sgd"
    learning_rate: float = 0.01
    momentum: float = 0.0
    weight_decay: float = 5e-4
    augment: bool = True
    """Random crop with padding of an eighth of the side (4 at 32x32), and horizontal flip."""
    feature_l1: float = 0.0
    """Weight of ||z||_1 / batch in the global loss; the published program uses 0.001 for the cnn."""
    participation: float = 1.0
    """Share of the clients that take part in a round."""
    seed: int = 0
    precision: Precision = "fp32"
    """What the extractor computes in while it is trained; its weights, the head and the loss are in fp32 always."""
    compile: bool = False
    """Whether torch.compile makes a faster extractor for training."""

    def __post_init__(self) -> None:
        if self.optimiser not in get_args(Optimiser):
            raise UnknownNameError("optimiser", self.optimiser, get_args(Optimiser))
        if self.precision not in get_args(Precision):
            raise UnknownNameError("precision", str(self.precision), get_args(Precision))
        if not isinstance(self.compile, bool):
            raise InputError(f"compile is true or false, not {self.compile!r}")
        for name, least in (
            ("rounds", 0),
            ("local_epochs", 1),
            ("personal_epochs", 0),
            ("finetune_epochs", 0),
            ("batch", 1),
            ("seed", 0),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise InputError(f"{name} must be a whole number of at least {least}, not {value!r}")
        if not 0 < self.participation <= 1:
            raise InputError(f"participation is a share above 0 and up to 1, not {self.participation}")
        for name in ("learning_rate", "momentum", "weight_decay", "feature_l1"):
            if not getattr(self, name) >= 0:
                raise InputError(f"{name} must not be negative, not {getattr(self, name)!r}")

    @classmethod
    def for_model(cls, model: str, **changes: Any) -> TrainingSettings:
        """Return the paper's settings for a model, with single ones changed."""
        known = {field.name for field in fields(cls)}
        for change in changes:
            if change not in known:
                raise UnknownNameError("training setting", change, known)
        return replace(cls(model=model), **{**_PAPER.get(model, {}), **changes})

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON.

        Settings in ``_LATER`` are told only if they are not as they always were, so that older runs still go on.
        """
        values = {**asdict(self), "model_options": dict(self.model_options)}
        return {name: value for name, value in values.items() if name not in _LATER or value != _LATER[name]}


_LATER: Mapping[str, Any] = {"precision": "fp32", "compile": False}
"""Settings that came after the first runs were written down, and what those runs had."""

_PAPER: Mapping[str, Mapping[str, Any]] = {
    "resnet20": {"momentum": 0.9},
    "cct4": {"optimiser": "adam", "learning_rate": 0.001, "weight_decay": 0.0},
    "mlp": {"learning_rate": 0.05, "momentum": 0.9, "rounds": 20, "augment": False},  # ours, for the 8x8 digits
}
