"""Where trained weights come from, as every engine writes it into bundles and federations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from btfl import __version__
from btfl.core.client import ClientOutcome, Weights
from btfl.core.provenance import KEY, Provenance, sha256_of
from btfl.data.federated import FederatedData
from btfl.recipes.base import Recipe
from btfl.recipes.parts import extractor_of


def run_spec(recipe: Recipe, data: FederatedData) -> dict[str, Any]:
    """Return everything that determines the outcome of a run, as plain JSON."""
    source, partition = data.source, data.partition
    told = {
        "source": source.name,
        "fingerprint": source.pool.fingerprint,
        "partition": partition.settings.as_dict(),
        "partition_seed": partition.seed,
    }
    if data.backbone is not None:
        told["backbone"] = dict(data.backbone)
    if partition.names:
        told["owners"] = source.owners_fingerprint
    if source.scaling is not None:
        told["scaling"] = source.scaling.as_dict()
    return {**recipe.spec(), "clients": len(data), "data": told}


def run_identity(spec: Mapping[str, Any]) -> str:
    """Name a training by its specification but for the number of rounds: it stays the same when it goes on."""
    settings = {name: value for name, value in spec["settings"].items() if name != "rounds"}
    return hashlib.sha256(json.dumps({**spec, "settings": settings}, sort_keys=True).encode()).hexdigest()[:16]


def provenance_of(recipe: Recipe, data: FederatedData, shared: Weights) -> Provenance:
    """Return where the weights of a training that has ended come from.

    The run's name is the same after more rounds: they are no part of it.
    """
    spec = run_spec(recipe, data)
    settings = dict(spec["settings"])
    before = {name: spec["data"].get(name) for name in ("scaling", "backbone")}
    return Provenance(
        run=run_identity(spec),
        round=recipe.rounds,
        extractor=sha256_of(extractor_of(shared), before),
        classes=tuple(map(str, data.source.classes)),
        recipe=recipe.name,
        settings=settings,
        btfl=__version__,
    )


def stamped(outcome: ClientOutcome, recipe: Recipe, data: FederatedData, shared: Weights) -> ClientOutcome:
    """Return a client's outcome with a bundle that says where it comes from."""
    told = provenance_of(recipe, data, shared).as_dict()
    return replace(outcome, bundle=replace(outcome.bundle, metadata={**outcome.bundle.metadata, KEY: told}))
