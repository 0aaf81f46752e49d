"""What the records of runs must hold, so that a damaged one is one sentence and not an error later on."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from btfl.errors import StorageError

Record = TypeVar("Record", bound=BaseModel)
Count = Annotated[int, Field(ge=0, lt=2**63)]
NetworkName = Annotated[str, Field(pattern=r"^[^/\\\x00]+$")]


class _Part(BaseModel):
    """A part of a record: of the types stated; what it has beside that is nobody's concern here."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())


class _Experiment(_Part):
    name: str
    seed: Count
    draw: Count = 0
    model: str
    model_options: dict[str, Any]
    partition: str
    split: str
    alpha: FiniteFloat
    shards: Count
    clients: Count | None
    severity: Count
    corruptions: list[str]
    samples: Count | None = None
    longest_stream: Count | None = None
    test_batch: Count


class _Training(_Part):
    rounds: Count
    batch: Count
    local_epochs: Count


class _Data(_Part):
    source: str
    images: Count
    classes: Count
    fingerprint: str
    shift: str | None
    shift_fingerprint: str | None


class _Streams(_Part):
    hash: str
    severity: Count
    corruptions: list[str]
    longest: Count | None = None


class _Method(_Part):
    name: str


class RunRecord(_Part):
    """``run.json`` of a benchmark run."""

    run: str
    experiment: _Experiment
    training: _Training
    data: _Data
    streams: _Streams
    notes: list[str]
    methods: list[_Method] = []


class _TrainedSettings(_Part):
    model: str
    model_options: dict[str, Any]
    rounds: Count


class _Spec(_Part):
    recipe: str
    settings: _TrainedSettings
    image_shape: Annotated[list[Count], Field(min_length=1, max_length=3)]
    classes: Count


class FederationFields(_Part):
    """The fields of ``federation.json``."""

    spec: _Spec
    networks: list[list[NetworkName] | None]


class CostEntry(_Part):
    """One entry of ``speed.json``."""

    model_config = ConfigDict(strict=True, extra="forbid", protected_namespaces=())
    model: str
    method: str
    title: str
    batch: Count
    seconds_per_1000: Annotated[list[FiniteFloat], Field(min_length=1)]
    ratios: Annotated[list[FiniteFloat], Field(min_length=1)]
    peak_megabytes: FiniteFloat | None = None


class TimeEntry(_Part):
    """One entry of ``times.json``."""

    seconds: Annotated[FiniteFloat, Field(ge=0)]
    samples: Count


class LogLine(_Part):
    """One line of ``log.jsonl``, as far as it is read again."""

    event: str
    round: Count = 0
    rounds: Count = 0
    recipe: NetworkName = ""
    seconds: Annotated[FiniteFloat, Field(ge=0)] = math.nan
    bytes_up: Annotated[FiniteFloat, Field(ge=0)] = math.nan
    bytes_down: Annotated[FiniteFloat, Field(ge=0)] = math.nan


def check(schema: type[Record], content: Any, path: Path) -> Record:
    """Return content as the schema says it is; else refuse it, naming the first entry that is wrong."""
    try:
        return schema.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))[:200]
        raise StorageError(f"{path} is damaged: {where or 'its content'}: {first['msg']}") from None
