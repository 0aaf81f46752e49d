"""Everything that a benchmark run depends on, checked once, here."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from btfl.backbones.names import check_backbone
from btfl.data.catalogue import SOURCES
from btfl.data.partition import Kind, PartitionSettings, Split
from btfl.data.streams import StreamSettings
from btfl.errors import InputError, UnknownNameError
from btfl.experiments.fields import checked, knobs_of, setting
from btfl.imports import check_trusted
from btfl.knobs import Knob
from btfl.methods.registry import find_method
from btfl.models.names import MODELS
from btfl.recipes.settings import TrainingSettings

_SEEDS_APART = 1_000_000  # a draw of the streams must not be that of another seed
LONGEST_NAME = 150
DEFAULT_METHODS = ("fedavg", "fedavg-ft", "fedthe-on-fedavg", "personal", "btfl", "coherent", "oracle")


class Experiment(BaseModel):
    """Everything a benchmark run depends on. A new field is an option of the command line, too.

    >>> make_experiment({"dataset": "digits", "model": "mlp", "training": {"rounds": 3}}).training_settings().rounds
    3
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field("experiment", description="What the run is called.")
    seed: int = setting(TrainingSettings, "seed")

    dataset: str = Field("digits", description="Dataset; see `btfl data list`.")
    root: Path | None = Field(None, description="Where the dataset is, if not in the cache.")
    shift: str | None = Field(
        None, description="The other domain: a name, a file, or `none`; the dataset's own if not given."
    )
    dataset_options: dict[str, Any] = Field({}, description="Options of the dataset, for example image_size.")
    samples: int | None = Field(None, ge=1, description="Samples of the dataset to use; all if not given.")

    clients: int | None = setting(PartitionSettings, "clients")
    partition: Kind = setting(PartitionSettings, "kind")
    alpha: float = setting(PartitionSettings, "alpha")
    shards: int = setting(PartitionSettings, "shards")
    split: Split = setting(PartitionSettings, "split")
    fewest: int = setting(PartitionSettings, "fewest")
    held_out: float = setting(PartitionSettings, "held_out")
    standardise: bool = Field(
        True, description="Scale signals and vectors by mean and deviation of all clients' training parts."
    )

    severity: int = setting(StreamSettings, "severity")
    corruptions: tuple[str, ...] = setting(StreamSettings, "corruptions")
    draw: int = Field(0, ge=0, description="Which draw of the streams, for the same clients and weights.")
    longest_stream: int | None = setting(StreamSettings, "longest")

    backbone: str | None = Field(
        None,
        description="Frozen backbone whose features heads are trained on: efficientnet-lite0 to 2, timm:NAME, or your "
        "own `module:factory`.",
    )
    backbone_size: int | None = Field(
        None,
        ge=8,
        description="Side to which images are resized before the backbone, in pixels; not at all if not given.",
    )
    model: str = setting(TrainingSettings, "model")
    model_options: dict[str, Any] = setting(TrainingSettings, "model_options")
    training: dict[str, Any] = Field(
        {}, description="Changes to the paper's training settings for the model: rounds, batch, learning_rate, ..."
    )

    methods: tuple[str, ...] = Field(DEFAULT_METHODS, description="Methods to compare; see `btfl methods`.")
    test_batch: int = Field(32, ge=1, description="Samples of a stream that a method sees at a time.")
    switching: bool = Field(
        True, description="Also run methods that have a weight e on a stream that turns external and back."
    )

    notes: tuple[str, ...] = Field(
        (), description="What a reader of the results must know, such as what was made smaller."
    )

    @model_validator(mode="before")
    @classmethod
    def _all_natural_clients(cls, values: Any) -> Any:
        """Take all natural clients, unless a number is given."""
        if isinstance(values, dict) and values.get("partition") == "natural":
            return {"clients": None, **values}
        return values

    @model_validator(mode="before")
    @classmethod
    def _head_on_a_backbone(cls, values: Any) -> Any:
        """Train a linear head on a backbone, unless another model is named."""
        if isinstance(values, dict) and values.get("backbone") is not None:
            return {"model": "linear", **values}
        return values

    @classmethod
    def knobs(cls) -> tuple[Knob, ...]:
        """Return what is known of each setting."""
        return knobs_of(cls)

    def partition_settings(self) -> PartitionSettings:
        """Return how the samples are divided among the clients."""
        return PartitionSettings(
            self.clients, self.partition, self.alpha, self.shards, self.split, self.fewest, self.held_out
        )

    def stream_settings(self) -> StreamSettings:
        """Return how the streams are made."""
        return StreamSettings(self.severity, self.corruptions, longest=self.longest_stream)

    @property
    def stream_seed(self) -> int:
        """The random seed of the streams."""
        return self.seed + self.draw * _SEEDS_APART

    def training_settings(self) -> TrainingSettings:
        """Return how the federation is trained."""
        for name in ("model", "model_options", "seed"):
            if name in self.training:
                raise InputError(
                    f"training: {name} is a setting of the experiment itself: write {name}, not training.{name}"
                )
        return TrainingSettings.for_model(self.model, model_options=self.model_options, seed=self.seed, **self.training)

    def check(self) -> Experiment:
        """Find wrong names and values before any work is done."""
        check_name(self.name)
        if self.dataset.lower() not in SOURCES:
            raise UnknownNameError("dataset", self.dataset, SOURCES)
        if taken := {"name", "image_shape", "classes", "seed"} & set(self.model_options):
            raise InputError(f"model_options: {', '.join(sorted(taken))} follows from the data and the experiment")
        if ":" in self.model:
            check_trusted(self.model, "model")
        elif self.model not in MODELS:
            raise UnknownNameError("model", self.model, MODELS)
        if self.backbone is not None:
            check_backbone(self.backbone)
        elif self.backbone_size is not None:
            raise InputError("backbone_size is for a backbone: name one with backbone, or leave the size out")
        self.partition_settings(), self.stream_settings(), self.training_settings()
        if not self.corruptions:
            raise InputError("corruptions: name at least one corruption")
        for name in self.methods:
            method = find_method(name)
            method.method.check_settings(method.settings)
        return self


def check_name(name: str, of: str = "name") -> None:
    """Raise an ``InputError`` unless a name can be that of a folder, inside the folder it is meant for.

    Parameters
    ----------
    of : what is named, for error messages
    """
    if not re.fullmatch(r"\w[\w .,:+=@()\[\]-]*", name) or len(name.encode()) > LONGEST_NAME or name != name.strip():
        raise InputError(
            f"{of} is a word for a folder: it begins with a letter or digit, has no / or \\ and at most {LONGEST_NAME} "
            f"bytes; not {name[:LONGEST_NAME]!r}"
        )


def make_experiment(values: dict[str, Any]) -> Experiment:
    """Make an experiment from what a person wrote; every mistake is an error that says what would be right."""
    return checked(Experiment, values, "an experiment").check()
