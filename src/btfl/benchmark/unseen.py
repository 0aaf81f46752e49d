"""Clients that took no part in training: enrolled with more or less of their data, and run on their five streams.

A client that is held out brings its training part with all labels, with 20 or 5 of them, with none, or brings nothing;
``stream`` begins with nothing and learns label shares along the stream. All that follows from the features is made by
``btfl.enrolment``; only FedAvg+FT, which changes the network, is trained with torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.benchmark.evaluate import Evaluation, Predicts, run_stream
from btfl.core.bundle import ClientBundle
from btfl.data.federated import ClientData, FederatedData
from btfl.engines.pool import WorkerPool
from btfl.enrolment import Federation, LearnsAlong, enrol
from btfl.methods.registry import Variant
from btfl.models import Network, build, load_arrays, to_arrays
from btfl.models.forward import extract
from btfl.randomness import generator
from btfl.recipes.fedavg import FedAvg
from btfl.recipes.network import NetworkRecipe
from btfl.runs.client import DeployedClient
from btfl.runs.enrolling import RECIPES, enrolling
from btfl.runs.results import client_row
from btfl.runs.trained import TrainedFederation

LEVELS: Mapping[str, int | None] = {"all": None, "20": 20, "5": 5, "unlabelled": 0, "none": 0, "stream": 0}
"""What a client brings, and with how many labels: None is all of them."""
_ENOUGH = {"labels": ("all", "20", "5"), "samples": ("all", "20", "5", "unlabelled"), "nothing": tuple(LEVELS)}
_ROD = ("rod_head.weight", "rod_head.bias")


@dataclass(frozen=True, eq=False)
class Unseen:
    """What the clients that were held out are evaluated with.

    Parameters
    ----------
    evaluation : of the clients that were trained: streams, federations and methods
    data : of all clients
    recipes : that trained the federations, by name
    """

    evaluation: Evaluation
    data: FederatedData
    recipes: Mapping[str, NetworkRecipe]

    @property
    def methods(self) -> tuple[Variant, ...]:
        """Methods whose training a new client can be enrolled in."""
        return tuple(method for method in self.evaluation.methods if method.trained_with in self.recipes)


def levels_of(method: Variant) -> tuple[str, ...]:
    """Name what a client may bring for this method to be of use; ``stream`` only where its memory allows it."""
    enough = _ENOUGH[method.method.enrols]
    return tuple(level for level in enough if level != "stream" or method.method.memory_outlives_bundle)


def evaluate_unseen(unseen: Unseen, workers: int, constants: Mapping[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """Evaluate client after client; a row for each method, level and stream, as ``client_row`` makes it."""
    numbers = range(unseen.data.partition.seen, len(unseen.data.partition))
    with WorkerPool[int, list[dict[str, Any]]](workers, _rows_of, unseen, dict(constants)) as pool:
        yield from pool.map(numbers)


def _rows_of(unseen: Unseen, constants: Mapping[str, Any], number: int) -> list[dict[str, Any]]:
    evaluation, rows = unseen.evaluation, list[dict[str, Any]]()
    streams = evaluation.streams(number)
    values = {name: stream.values for name, stream in streams.items()}
    for recipe in dict.fromkeys(method.trained_with for method in unseen.methods):
        client = NewClient(unseen, recipe, number)
        features = {name: client.features(stream.values) for name, stream in streams.items()}
        for method in (one for one in unseen.methods if one.trained_with == recipe):
            inputs = features if method.method.takes == "features" else values
            batch = method.test_batch or evaluation.test_batch
            for level in levels_of(method):
                adapter = client.build(method, level)
                for name, stream in streams.items():
                    found = run_stream(method, adapter, number, stream, inputs[name], batch)
                    given = client.given(level)
                    row = client_row(found, evaluation.test_batch, constants)
                    rows.append({**row, "level": level, "labels_given": given})
    return rows


class NewClient:
    """A client that was held out, before one federation of its extractor's."""

    def __init__(self, unseen: Unseen, recipe: str, number: int) -> None:
        self._trained: TrainedFederation = unseen.evaluation.federations[recipe]
        self._recipe = unseen.recipes[recipe]
        self.federation: Federation = enrolling(self._trained)
        self._data = unseen.data.of(number, 0)
        train = self._data.train
        self._order = generator(self._recipe.settings.seed, "enrol", number).permutation(len(train))
        self._network = _network(self._trained)
        self._train = self.features(train.values)
        self._validation = self.features(self._data.validation.values)

    def features(self, values: Any) -> NDArray[np.float64]:
        """Return what the shared extractor makes of samples."""
        return extract(self._network, values).astype(np.float64)

    def given(self, level: str) -> int:
        """Return how many labels the client brings."""
        wanted, there = LEVELS[level], len(self._data.train)
        return there if wanted is None else min(wanted, there)

    def chosen(self, level: str) -> NDArray[np.int64]:
        """Return which training samples a level has labels of: of 20 the first 5 are those of 5."""
        return np.sort(self._order[: self.given(level)])

    def bundle(self, level: str) -> ClientBundle:
        """Return the bundle of a client that brings this."""
        told = {"client": self._data.client, "recipe": self._recipe.name}
        if level in ("none", "stream"):
            return enrol(self.federation, metadata=told)
        if level == "unlabelled":
            return enrol(self.federation, self._train, metadata=told)
        rows, labels = self.chosen(level), self._data.train.labels
        apart = (self._validation, self._data.validation.labels) if level == "all" else None
        bundle = enrol(self.federation, self._train[rows], labels[rows], validation=apart, metadata=told)
        if self._recipe.name == "balanced":  # FedRoD's head is what is added to the global one
            return replace(bundle, statistics={**bundle.statistics, **_correction(bundle)})
        return bundle

    def build(self, method: Variant, level: str) -> Predicts:
        """Return the method for this client at this level."""
        if level == "stream":
            return LearnsAlong(self.federation, method.method, **method.settings)
        bundle = self.bundle(level)
        networks: dict[str, Any] = {"global": self._trained.shared}
        if method.method.takes != "features":
            networks["finetuned"] = self._finetuned(level)
        return method.build(DeployedClient(bundle, networks, self._trained.model))

    def _finetuned(self, level: str) -> Any:
        assert isinstance(self._recipe, FedAvg)
        few = self._data.train.take(self.chosen(level))
        return self._recipe.finetuned(self._trained.shared, ClientData(self._data.client, few, self._data.validation))


def enrollable(evaluation: Evaluation, recipes: Mapping[str, Any]) -> tuple[dict[str, NetworkRecipe], list[str]]:
    """Return the recipes that a new client can be enrolled in, and why methods of others are left out."""
    kept = {name: recipe for name, recipe in recipes.items() if name in RECIPES and isinstance(recipe, NetworkRecipe)}
    left = [method.title for method in evaluation.methods if method.trained_with not in kept]
    note = (
        f"of the clients held out there is no {', '.join(left)}: its training leaves each client a network of its own"
    )
    return kept, [note] if left else []


def _network(trained: TrainedFederation) -> Network:
    """Return a network with the shared extractor; of one without a global head (FedRep) the head is never read."""
    model = trained.model
    network = build(model["name"], model["image_shape"], model["classes"], 0, **model["options"])
    load_arrays(network, {**to_arrays(network), **trained.shared})
    return network.eval()


def _correction(bundle: ClientBundle) -> dict[str, NDArray[np.float64]]:
    personal, head = bundle.personal_head, bundle.global_head
    biases = [np.zeros(one.classes) if one.bias is None else one.bias for one in (personal, head)]
    return dict(zip(_ROD, (personal.weight - head.weight, biases[0] - biases[1]), strict=True))
