"""Every method on every stream of every client: the same streams, the same trained weights.

Features are computed once for each stream and shared by the methods that need only features. A method never sees a
label, nor whether a sample is external; only the oracle, which is no method, gets the answers.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from btfl.backbones.embed import Embedder
from btfl.data.kept import Kept
from btfl.data.manifest import SWITCHING
from btfl.data.source import Source
from btfl.data.streams import Manifest, Stream, render
from btfl.engines.pool import WorkerPool
from btfl.errors import InputError, TooFewClientsError
from btfl.methods.heads import Oracle
from btfl.methods.registry import Variant
from btfl.models import Network, to_arrays
from btfl.models.forward import extract
from btfl.recipes.registry import recipe_class
from btfl.runs.client import DeployedClient
from btfl.runs.results import Predictions
from btfl.runs.trained import TrainedFederation


class Predicts(Protocol):
    """A method built for a client, or what stands for one: fed a stream batch by batch."""

    def predict(self, batch: NDArray[Any]) -> NDArray[np.float64]:
        """Return (n, classes) probabilities for the next n samples of the stream."""

    @property
    def trace(self) -> Mapping[str, NDArray[Any]]:
        """Return what was found for each sample of the last batch."""

    def reset(self) -> None:
        """Forget the stream."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What is evaluated: shared by all clients.

    Parameters
    ----------
    source, manifest : the images, and the streams as indices of them
    federations : by recipe
    methods : what is run on every stream
    test_batch : samples at a time, of methods that say nothing else
    switching : also run the switching stream, for methods whose trace has the weight ``e``
    embedder : where heads are trained on the features of a frozen backbone: streams are rendered as samples, and every
        method sees their features
    held_out : how many clients, the last ones, took no part in training
    kept : where rendered streams and their features are looked for, and kept for another time; None: nowhere
    """

    source: Source
    manifest: Manifest
    federations: Mapping[str, TrainedFederation]
    methods: tuple[Variant, ...]
    test_batch: int = 32
    switching: bool = False
    embedder: Embedder | None = None
    held_out: int = 0
    kept: Kept | None = None

    @property
    def seen(self) -> int:
        """How many clients took part in training; those that were held out come after them."""
        return len(self.manifest.clients) - self.held_out

    def streams(self, client: int) -> Mapping[str, Stream]:
        """Return one client's streams as its methods see them."""
        streams = render(self.source, self.manifest, client, self.kept)
        if self.embedder is None:
            return streams
        names = list(streams)
        ends = np.cumsum([len(streams[name]) for name in names])[:-1]
        rows = self.embedder.scaled_features(np.concatenate([streams[name].values for name in names]))
        return {
            name: replace(streams[name], values=part) for name, part in zip(names, np.split(rows, ends), strict=True)
        }

    def features(
        self, client: int, on_device: DeployedClient, streams: Mapping[str, Stream]
    ) -> dict[str, NDArray[np.float64]]:
        """Return the features of one client's streams by the extractor on its device, (n, d) by stream."""
        network = on_device.extractor()
        key: tuple[object, ...] = ()
        if self.kept is not None and self.embedder is None and ":" not in on_device.model["name"]:  # code of one's own
            model = json.dumps(dict(on_device.model), sort_keys=True, default=str)
            made_with = torch.__version__, torch.backends.cpu.get_cpu_capability()
            key = "features", self.manifest.hash, client, model, _digest(network), *made_with
            found = self.kept.find(*key)
            if found is not None and found.keys() == streams.keys():
                return {name: found[name].astype(np.float64) for name in streams}
        made = {name: extract(network, stream.values) for name, stream in streams.items()}
        if self.kept is not None and key:
            self.kept.keep(made, *key)
        return {name: rows.astype(np.float64) for name, rows in made.items()}


def _digest(network: Network) -> str:
    """Return the sha256 of a network's weights."""
    digest = hashlib.sha256()
    for name, array in sorted(to_arrays(network).items()):
        digest.update(f"{name} {array.dtype} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def evaluate(evaluation: Evaluation, workers: int = 1) -> Iterator[list[Predictions]]:
    """Evaluate client after client, in so many processes; the predictions come in the order of the clients."""
    with WorkerPool[int, list[Predictions]](workers, evaluate_client, evaluation) as pool:
        yield from pool.map(range(evaluation.seen))


def evaluate_client(evaluation: Evaluation, number: int) -> list[Predictions]:
    """Run every method on the five streams of one client, and on the switching one if asked."""
    streams = evaluation.streams(number)
    clients: dict[str, DeployedClient] = {}
    features: dict[str, dict[str, NDArray[np.float64]]] = {}
    values = {name: stream.values for name, stream in streams.items()}
    switching = _switching(streams)
    results = []
    for method in evaluation.methods:
        adapter_class = method.method
        recipe = method.trained_with
        if recipe not in clients:
            clients[recipe] = _client(evaluation, method, recipe, number)
        if adapter_class.takes == "features" and recipe not in features:
            features[recipe] = evaluation.features(number, clients[recipe], streams)
        adapter = method.build(clients[recipe])
        batch = method.test_batch or evaluation.test_batch
        inputs = features[recipe] if adapter_class.takes == "features" else values
        of_method = [run_stream(method, adapter, number, streams[name], inputs[name], batch) for name in streams]
        if evaluation.switching and "e" in of_method[-1].trace:
            of_method.append(run_stream(method, adapter, number, switching, _switch(inputs), batch))
        results.extend(of_method)
    return results


def _switch(parts: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Return half of A, all of C and the other half of A in a row: IND, EXD and back."""
    internal, external = parts["original_ind"], parts["original_exd"]
    half = len(internal) // 2
    return np.concatenate([internal[:half], external, internal[half:]])


def _switching(streams: Mapping[str, Stream]) -> Stream:
    """Make the stream that turns external and back; it is for looking at, and has no part in any average."""
    return Stream(
        SWITCHING,
        _switch({name: stream.values for name, stream in streams.items()}),
        _switch({name: stream.labels for name, stream in streams.items()}),
        _switch({name: stream.external for name, stream in streams.items()}),
    )


def run_stream(
    method: Variant, adapter: Predicts, client: int, stream: Stream, seen: NDArray[Any], batch: int
) -> Predictions:
    """Run a method over a stream.

    Parameters
    ----------
    method, adapter : what is run: its name and settings, and the object built for this client
    client, stream : whose stream, and which
    seen : what the method sees of the stream: (n, d) features or (n, height, width, channels) images
    batch : samples at a time
    """
    adapter.reset()
    probabilities, traces, seconds = [], [], 0.0
    for start in range(0, len(stream), batch):
        rows = slice(start, start + batch)
        if isinstance(adapter, Oracle):
            adapter.tell(stream.labels[rows])
        started = time.perf_counter()
        answers = adapter.predict(seen[rows])
        seconds += time.perf_counter() - started
        probabilities.append(_checked(answers, stream.labels[rows], method))
        traces.append(adapter.trace)
    if any(part.keys() != traces[0].keys() for part in traces):
        raise InputError(f"method '{method.name}' must have the same trace columns for every batch of a stream")
    trace = {key: np.concatenate([part[key] for part in traces]) for key in traces[0]}
    together = np.concatenate(probabilities)
    return Predictions(method, client, stream.name, together, stream.labels, stream.external, trace, seconds)


def _checked(probabilities: Any, labels: NDArray[np.int64], method: Variant) -> NDArray[np.float64]:
    if not isinstance(probabilities, np.ndarray):
        raise InputError(
            f"method '{method.name}' gave a {type(probabilities).__name__} where an array (n, classes) is needed"
        )
    if probabilities.ndim != 2 or len(probabilities) != len(labels) or probabilities.shape[1] <= labels.max():
        raise InputError(
            f"method '{method.name}' gave {probabilities.shape} for {len(labels)} samples, not (n, classes)"
        )
    if not np.isfinite(probabilities).all():
        raise InputError(f"method '{method.name}' gave probabilities that are not finite")
    return probabilities


def _client(evaluation: Evaluation, method: Variant, recipe: str, number: int) -> DeployedClient:
    if recipe not in evaluation.federations:
        trained = ", ".join(evaluation.federations) or "none"
        raise InputError(
            f"method '{method.name}' needs a federation trained with the recipe '{recipe}'; trained here: {trained}"
        )
    return evaluation.federations[recipe].client(number)


def needed_recipes(methods: Sequence[Variant]) -> list[str]:
    """Name the recipes that these methods need, in the order they first appear."""
    return list(dict.fromkeys(method.trained_with for method in methods))


def for_samples(methods: Sequence[Variant], kind: str, model: str) -> tuple[tuple[Variant, ...], tuple[str, ...]]:
    """Return the methods for samples of this kind and this model, and why the others are not; before any training."""
    kept, reasons = [], []
    for method in methods:
        reason = recipe_class(method.trained_with).unsuitable(model)
        if kind not in method.method.samples:
            reasons.append(f"{method.title} is left out: it is for {' and '.join(method.method.samples)} only")
        elif reason is not None:
            reasons.append(f"{method.title} is left out: it {reason}")
        else:
            kept.append(method)
    if not methods:
        raise InputError("there is no method to compare: name at least one of those that `btfl methods` lists")
    if not kept:
        raise InputError(f"none of the methods can be used on {kind}. " + ". ".join(reasons))
    return tuple(kept), tuple(reasons)


def trained(
    methods: Sequence[Variant], failed: Mapping[str, TooFewClientsError]
) -> tuple[tuple[Variant, ...], tuple[str, ...]]:
    """Return the methods whose recipe could be trained, and why the others are left out; raise if none could be."""
    kept = tuple(method for method in methods if method.trained_with not in failed)
    if not kept:
        raise next(iter(failed.values()))
    return kept, tuple(
        f"{method.title} is left out: the training of {method.trained_with} failed: {failed[method.trained_with]}"
        for method in methods
        if method.trained_with in failed
    )


def suitable(
    methods: Sequence[Variant], federations: Mapping[str, TrainedFederation]
) -> tuple[tuple[Variant, ...], tuple[str, ...]]:
    """Return the methods that can be used on these models, and why the others cannot."""
    kept, reasons = [], []
    for method in methods:
        reason = method.method.unsuitable(federations[method.trained_with].client(0))
        if reason is None:
            kept.append(method)
        else:
            reasons.append(f"{method.title} is left out: {reason}")
    if not kept:
        raise InputError("none of the methods can be used here. " + ". ".join(reasons))
    return tuple(kept), tuple(reasons)
