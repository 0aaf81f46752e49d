"""An experiment as a person writes it down: one TOML, checked once, here."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from btfl.data.partition import Kind, PartitionSettings, Split
from btfl.data.streams import StreamSettings
from btfl.errors import InputError, StorageError, UnknownNameError
from btfl.methods.registry import find_method
from btfl.pixels.corruptions import CORRUPTIONS
from btfl.recipes.settings import TrainingSettings

_SEEDS_APART = 1_000_000  # a draw of the streams must not be that of another seed
DEFAULT_METHODS = ("fedavg", "fedavg-ft", "personal", "btfl", "btfl-release", "oracle")


class Experiment(BaseModel):
    """Everything a benchmark run depends on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = "experiment"
    seed: int = Field(0, ge=0)

    dataset: str = "digits"
    root: Path | None = None
    """Where the dataset is; None: the cache."""
    shift: str | None = None
    """The other domain; None: the dataset's own default. ``none``: none at all."""
    dataset_options: dict[str, Any] = {}

    samples: int | None = Field(None, ge=1)
    """Use only so many images of the dataset; None: all."""

    clients: int = Field(20, ge=2)
    partition: Kind = "dirichlet"
    alpha: float = Field(0.1, gt=0)
    shards: int = Field(2, ge=1)
    split: Split = "honest"

    severity: Literal[1, 2, 3, 4, 5] = 5
    corruptions: tuple[str, ...] = CORRUPTIONS
    draw: int = Field(0, ge=0)
    """Which draw of the streams: another number gives other streams for the same clients and the same weights."""
    longest_stream: int | None = Field(None, ge=4)
    """At most so many samples a stream; None: all of a client's test part."""

    model: str = "cnn"
    model_options: dict[str, Any] = {}
    training: dict[str, Any] = {}
    """Changes to the paper's training settings for the model: rounds, batch, learning_rate, ..."""

    methods: tuple[str, ...] = DEFAULT_METHODS
    test_batch: int = Field(32, ge=1)
    """How many samples of a stream a method sees at a time."""
    switching: bool = True
    """Also run methods that tell their weight e on a stream that turns external and back; never in an average."""

    notes: tuple[str, ...] = ()
    """What a reader of the results must be told, such as what was made smaller; the report shows it."""

    def partition_settings(self) -> PartitionSettings:
        """Return how the pool is dealt."""
        return PartitionSettings(self.clients, self.partition, self.alpha, self.shards, self.split)

    def stream_settings(self) -> StreamSettings:
        """Return how the streams are made."""
        return StreamSettings(self.severity, self.corruptions, longest=self.longest_stream)

    @property
    def stream_seed(self) -> int:
        """What the streams follow from."""
        return self.seed + self.draw * _SEEDS_APART

    def training_settings(self) -> TrainingSettings:
        """Return how the federation is trained."""
        return TrainingSettings.for_model(self.model, model_options=self.model_options, seed=self.seed, **self.training)

    def check(self) -> Experiment:
        """Find wrong names and values before any work is done."""
        self.partition_settings(), self.stream_settings(), self.training_settings()
        for name in self.methods:
            method = find_method(name)
            method.adapter_class().check_settings(method.settings)
        return self


def make_experiment(values: dict[str, Any]) -> Experiment:
    """Check what a person typed; every mistake gets a sentence."""
    try:
        return Experiment(**values).check()
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            raise UnknownNameError("setting of an experiment", name, Experiment.model_fields) from None
        raise InputError(f"{name}: {first['msg']}, not {first['input']!r}") from None


def read_experiment(path: Path) -> dict[str, Any]:
    """Read the values from a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise StorageError(f"{path} does not exist") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None


def preset_names() -> list[str]:
    """Name the experiments that come with btfl."""
    return sorted(p.name.removesuffix(".toml") for p in _presets().iterdir() if p.name.endswith(".toml"))


def read_preset(name: str) -> dict[str, Any]:
    """Read an experiment that comes with btfl."""
    if name not in preset_names():
        raise UnknownNameError("preset", name, preset_names())
    return tomllib.loads((_presets() / f"{name}.toml").read_text())


def _presets() -> Any:
    return resources.files("btfl.experiments") / "presets"
