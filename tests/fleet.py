"""A small fleet to serve: clients with different classes, features, and requests on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from btfl import ClientBundle, Coherent, Summary
from btfl.monitor import calibrate, own_features
from btfl.storage import write_json

if TYPE_CHECKING:
    from btfl.serve.tensors import InferRequest

CLASSES, DIMENSIONS = 6, 12
Floats = NDArray[np.float64]


def features(labels: NDArray[Any], seed: int) -> Floats:
    """Draw features of these classes, after a ReLU."""
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(len(labels), DIMENSIONS)) + 2.5 * np.eye(CLASSES, DIMENSIONS)[labels]
    return np.asarray(np.maximum(drawn, 0.0))


def own(client: int, samples: int, seed: int = 0) -> Floats:
    """Draw a stream of a client's own: classes 2 * client and 2 * client + 1."""
    rng = np.random.default_rng((client, seed))
    return features(2 * client + rng.integers(2, size=samples), seed * 7919 + client)


def foreign(client: int, samples: int, seed: int = 0) -> Floats:
    """Draw a stream of the other clients' classes."""
    rng = np.random.default_rng((client, seed, 1))
    return features((2 * client + rng.integers(2, CLASSES, size=samples)) % CLASSES, seed * 104729 + client)


def make_bundles(clients: int = 3) -> list[ClientBundle]:
    """Make the bundles of clients that have two classes each."""
    heads = np.eye(CLASSES, DIMENSIONS)
    parts, summaries = [], []
    for client in range(clients):
        labels = 2 * client + np.arange(120) % 2
        parts.append((features(labels, client), labels))
        summaries.append(Summary.of(*parts[-1], CLASSES))
    everyone = Summary.total(summaries)
    return [
        ClientBundle.of(
            heads, 2 * heads, mine, everyone, features=z, labels=y, validation=(own(client, 200, 5), np.zeros(200, int))
        )
        for client, ((z, y), mine) in enumerate(zip(parts, summaries, strict=True))
    ]


def save_fleet(folder: Path, clients: int = 3) -> Path:
    """Save the bundles as a folder that ``btfl serve`` takes."""
    for client, bundle in enumerate(make_bundles(clients)):
        place = folder / f"client-{client:06d}"
        bundle.save(place)
        levels = calibrate(Coherent(bundle), own_features(bundle), drawn=5000)
        write_json(place / "monitor.json", levels.to_json())
    return folder


def asking(array: Floats, sequence: str = "7", id: str = "", start: bool = False, end: bool = False) -> InferRequest:  # noqa: A002
    """Make a request as the server reads it."""
    from btfl.serve.tensors import InferRequest  # needs btfl[serve], which tests of the monitor do not

    return InferRequest(id, "features", array, sequence, start, end, (), False)
