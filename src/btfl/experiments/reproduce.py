"""The paper's tables and figures by name, at the paper's size or honestly smaller: every change is written down."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from btfl.data.catalogue import load_source
from btfl.data.source import Source
from btfl.errors import DataError, InputError, UnknownNameError
from btfl.experiments.experiment import Experiment, make_experiment

FEWEST_CLIENTS, FEWEST_ROUNDS, FEWEST_IMAGES = 4, 3, 200  # images for each client
SMALLEST_IMAGE = 16
"""The paper's cnn cannot see anything smaller."""


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of the paper, as its TOML says it."""

    name: str
    paper: str
    title: str
    values: Mapping[str, Any]
    """The experiment, with the paper's settings."""
    runs: tuple[Mapping[str, Any], ...]
    """What each run changes in it."""
    seeds: tuple[int, ...]
    speed: bool = False
    """Whether adapting is timed too."""
    drawing: bool = False
    """Whether it is a drawing, with nothing to run."""


@dataclass(frozen=True)
class Substitution:
    """What is used in place of the paper's, because it is at hand or small."""

    dataset: str | None = None
    root: Path | None = None
    shift: str | None = None
    methods: tuple[str, ...] = ()


def reproduction_names() -> list[str]:
    """Name every table and figure of the paper."""
    return sorted(p.name.removesuffix(".toml") for p in _folder().iterdir() if p.name.endswith(".toml"))


def read_reproduction(name: str) -> Reproduction:
    """Read the TOML of a table or figure."""
    if name not in reproduction_names():
        raise UnknownNameError("table or figure", name, reproduction_names())
    content = tomllib.loads((_folder() / f"{name}.toml").read_text())
    return Reproduction(
        name,
        content["paper"],
        content["title"],
        content.get("experiment", {}),
        tuple(content.get("runs", [{}])),
        tuple(content.get("seeds", [0])),
        content.get("speed", False),
        content.get("drawing", False),
    )


def plan(reproduction: Reproduction, scale: float, instead: Substitution | None = None) -> list[Experiment]:
    """Return the experiments to run; each carries notes on all that is not as in the paper."""
    if reproduction.drawing:
        raise InputError(f"{reproduction.name} is a drawing ({reproduction.title}): there is nothing to run")
    if not 0 < scale <= 1:
        raise InputError(f"--scale is above 0 and at most 1, the paper's size; not {scale}")
    instead = instead or Substitution()
    seeds = reproduction.seeds[: max(1, round(scale * len(reproduction.seeds)))]
    sources: dict[str, Source] = {}
    found: list[Experiment] = []
    for changes in reproduction.runs:
        values = {**reproduction.values, **changes}
        dataset = instead.dataset or values["dataset"]
        if dataset not in sources:
            sources[dataset] = _source(dataset, instead)
        source = sources[dataset]
        values, notes = _substituted(values, instead, source)
        if scale < 1:
            values, smaller = _scaled(values, scale, source)
            notes += [f"scale {scale:g} of the paper's: {', '.join([*smaller, _of_seeds(seeds, reproduction)])}"]
        notes.insert(0, f"Reproduces {reproduction.paper}: {reproduction.title}.")
        name = f"{reproduction.name}-{values['dataset']}-{values['model']}-dir{values['alpha']:g}"
        if any(experiment.name == name for experiment in found):
            name += f"-{len(found) + 1}"  # substituted, two runs may look alike
        found += [make_experiment({**values, "name": name, "seed": seed, "notes": tuple(notes)}) for seed in seeds]
    return found


def _source(dataset: str, instead: Substitution) -> Source:
    try:
        return load_source(dataset, root=instead.root, shift=instead.shift)
    except (DataError, InputError) as error:
        raise DataError(f"{error}. Or take another dataset in its place, --dataset digits say") from None


def _substituted(values: Mapping[str, Any], instead: Substitution, source: Source) -> tuple[dict[str, Any], list[str]]:
    changed, notes = dict(values), []
    if instead.dataset is not None and instead.dataset != values["dataset"]:
        changed["dataset"] = instead.dataset
        notes.append(f"{instead.dataset} takes the place of the paper's {values['dataset']}.")
    changed.update({k: v for k, v in (("root", instead.root), ("shift", instead.shift)) if v is not None})
    if changed["model"] == "cnn" and min(source.image_shape[:2]) < SMALLEST_IMAGE:
        changed["model"] = "mlp"
        notes.append(
            f"The model is mlp instead of cnn, since images are {source.image_shape[0]}x{source.image_shape[1]}."
        )
    if instead.methods:
        changed["methods"] = instead.methods
        notes.append(f"Methods chosen by hand: {', '.join(instead.methods)}.")
    return changed, notes


def _scaled(values: dict[str, Any], scale: float, source: Source) -> tuple[dict[str, Any], list[str]]:
    """Shrink rounds and images by the scale, and clients by its root, so that each still has enough to learn from."""
    rounds, clients = values["training"]["rounds"], values["clients"]
    fewer_rounds = max(min(rounds, FEWEST_ROUNDS), round(rounds * scale))
    fewer_clients = max(min(clients, FEWEST_CLIENTS), round(clients * math.sqrt(scale)))
    total = len(source.pool)
    images = min(total, max(round(total * scale), FEWEST_IMAGES * fewer_clients))
    changed = {
        **values,
        "clients": fewer_clients,
        "samples": images if images < total else None,
        "training": {**values["training"], "rounds": fewer_rounds},
    }
    notes = [
        f"{fewer_rounds} rounds for {rounds}",
        f"{fewer_clients} clients for {clients}",
        f"{images:,} images of {total:,}",
    ]
    width = values.get("model_options", {}).get("width", 1)
    if width > 1:
        narrower = max(1, round(width * scale))
        changed["model_options"] = {**values["model_options"], "width": narrower}
        notes.append(f"width {narrower} for {width}")
    return changed, notes


def _of_seeds(seeds: tuple[int, ...], reproduction: Reproduction) -> str:
    return f"{len(seeds)} seed{'s' * (len(seeds) > 1)} of {len(reproduction.seeds)}"


def _folder() -> Any:
    return resources.files("btfl.experiments") / "paper"
