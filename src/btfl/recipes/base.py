"""What a recipe is: what each client does with what it is sent, and what the server makes of what comes back.

A recipe is a handful of pure functions over plain arrays. It never knows which engine runs it, and keeps nothing
between calls: a client's private state goes in and comes out. The server only ever averages uploads (``train``) or
adds them up (``describe``), so both can be done under secure aggregation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from btfl.core.calibration import Calibration
from btfl.core.client import ClientOutcome, Weights
from btfl.core.heads import LinearHead
from btfl.core.summary import Protection, Summary
from btfl.data.federated import ClientData
from btfl.errors import InputError
from btfl.models.names import HEADS_ALONE
from btfl.recipes.settings import Defence, TrainingSettings


@dataclass(frozen=True, eq=False)
class Update:
    """What a round of training gives: weights for the server, and what stays with the client."""

    upload: Weights
    samples: int
    private: Weights = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Description:
    """The summary of the client's data under the final model; the server only learns the total over clients."""

    summary: Summary
    private: Weights = field(default_factory=dict)


class Recipe(ABC):
    """A way to train a federation."""

    name: ClassVar[str]
    rounds_of: ClassVar[str | None] = None
    """The recipe whose rounds these are, where only the end differs: what it has trained need not be trained again."""
    calibrates: ClassVar[bool] = False
    """Whether clients are asked to ``calibrate``."""
    trains_extractor_alone: ClassVar[bool] = False
    """Whether no head is trained in its rounds, so that a model which is a head alone leaves nothing to train."""
    private_records: ClassVar[bool] = False
    """Whether DP-SGD, where it is asked for, trains all that is uploaded in a round. Not inherited: a recipe made from
    another one says it again, since what it uploads beside that has no noise."""
    grows_surer: ClassVar[bool] = False
    """Whether all that is uploaded is trained by cross-entropy under one shared head: a round then makes the model
    surer of itself, and an honest update has a positive product with the weights that were sent, which the defence
    ``screen`` relies on. Not inherited, for the same reason."""
    protection: Callable[[int], Protection] | None = None
    """Makes, from a client's number, what is done to its data before its summary is uploaded: clipping, noise."""

    def __init__(self, settings: TrainingSettings, sample_shape: tuple[int, ...], classes: int) -> None:
        if reason := self.unsuitable(settings.model):
            raise InputError(f"the recipe '{self.name}' {reason}: take another recipe, or another model")
        if settings.clips_records and not vars(type(self)).get("private_records", False):
            raise InputError(
                f"the recipe '{self.name}' cannot be trained with privacy_mechanism=dp-sgd, only fedavg and ditto can: "
                "leave out the methods that need it"
            )
        self.settings, self.sample_shape, self.classes = settings, sample_shape, classes

    @classmethod
    def unsuitable(cls, model: str) -> str | None:
        """Return why a model cannot be trained this way; None if it can."""
        if cls.trains_extractor_alone and model in HEADS_ALONE:
            return f"trains an extractor under a fixed head, and the model '{model}' has none"
        return None

    @property
    def leans(self) -> bool:
        """Whether honest updates lean towards the weights that were sent (``grows_surer``); heads alone do not."""
        return bool(vars(type(self)).get("grows_surer", False)) and self.settings.model not in HEADS_ALONE

    @property
    def defence(self) -> Defence:
        """The defence in force: left to btfl, it is ``screen`` for those recipes alone whose updates lean."""
        if self.settings.defence == "auto" and not self.leans:
            return "none"
        return self.settings.defence_in_force

    @property
    def rounds(self) -> int:
        """How many rounds it takes: those of the settings, and any that the recipe adds after them."""
        return self.settings.rounds

    @abstractmethod
    def initial(self) -> Weights:
        """Return the weights everyone starts from."""

    @abstractmethod
    def train(self, round_: int, shared: Weights, private: Weights, data: ClientData) -> Update:
        """Do one client's work in one round."""

    @abstractmethod
    def describe(self, shared: Weights, private: Weights, data: ClientData) -> Description:
        """When training has ended, say what the client's data look like under the final model."""

    @abstractmethod
    def check_summary(self, summary: Summary) -> None:
        """Refuse, with an ``InputError``, a summary that no client's data could give; asked before adding up."""

    def feature_size(self) -> int:
        """Return how many features a summary is about."""
        raise InputError(f"the recipe '{self.name}' does not say how wide its features are")

    def shared_head(self, shared: Weights) -> LinearHead | None:
        """Return the head that everyone trained, by which the server can judge class means; None if there is none."""
        return None

    def calibrate(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> Calibration:
        """When everyone's summary is known, look at the client's validation part with it.

        Asked of recipes that say ``calibrates``; the total comes back with ``everyone``.
        """
        raise InputError(f"the recipe '{self.name}' does not look at validation parts")

    @abstractmethod
    def conclude(self, shared: Weights, private: Weights, data: ClientData, everyone: Summary) -> ClientOutcome:
        """Make the client's bundle from the final model and the total of all summaries."""

    def spec(self) -> dict[str, Any]:
        """Return everything that determines the outcome besides the data, as plain JSON."""
        return {
            "recipe": self.name,
            "settings": self.settings.as_dict(),
            "image_shape": list(self.sample_shape),  # its name in files since there were only images
            "classes": self.classes,
        }
