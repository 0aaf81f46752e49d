"""Things tests make: a bundle, a stream of features, and a client that every method can be built for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from btfl import ClientBundle, DiscretisedLikelihood, Summary

if TYPE_CHECKING:
    from btfl.models import Network
    from btfl.runs.client import DeployedClient

IMAGE_SHAPE = (8, 8, 1)


def make_bundle(
    dimensions: int = 16, classes: int = 4, seed: int = 0, samples: int = 60, clients: int = 3, bias: bool = True
) -> ClientBundle:
    """Make a bundle whose two heads and likelihoods really differ."""
    rng = np.random.default_rng(seed)
    own, *others = (
        np.maximum(rng.normal(rng.uniform(-0.5, 1.5, dimensions), 1.0, (samples, dimensions)), 0.0)
        for _ in range(clients)
    )
    local = DiscretisedLikelihood.fit(own)
    return ClientBundle(
        global_head=(rng.normal(size=(classes, dimensions)), rng.normal(size=classes) if bias else None),
        personal_head=(rng.normal(size=(classes, dimensions)) * 1.5, None),
        local_likelihood=local,
        global_likelihood=DiscretisedLikelihood.average([local, *map(DiscretisedLikelihood.fit, others)]),
        local_entropy=0.4,
        global_entropy=0.6,
    )


def make_stream(bundle: ClientBundle, samples: int = 97, seed: int = 1) -> np.ndarray:
    """Make features on which all three kinds of events occur."""
    rng = np.random.default_rng(seed)
    shape = (samples, bundle.dimensions)
    return np.maximum(rng.normal(0.5, 1.0, shape) * rng.uniform(0.1, 2.0, (samples, 1)), 0.0)


def make_images(samples: int, seed: int = 1) -> np.ndarray:
    """Make images of noise."""
    return np.random.default_rng(seed).integers(256, size=(samples, *IMAGE_SHAPE), dtype=np.uint8)


def normalised(image_shape: tuple[int, int, int], classes: int) -> Network:
    """Make a small network with a normalisation layer; as a model it is named ``making:normalised``."""
    from torch import nn

    from btfl.models import Network

    height, width, channels = image_shape
    layers = nn.Flatten(), nn.Linear(height * width * channels, 16), nn.LayerNorm(16), nn.ReLU()
    return Network(nn.Sequential(*layers), 16, classes)


def make_client(classes: int = 4, seed: int = 0) -> DeployedClient:
    """Make a client with all that any recipe leaves: every method can be built for it. Its network is untrained."""
    from btfl.models import build, to_arrays  # torch: not for tests of the core
    from btfl.models.forward import extract
    from btfl.models.rotations import new_rotation_head
    from btfl.runs.client import DeployedClient

    rng = np.random.default_rng(seed)
    network = build("making:normalised", IMAGE_SHAPE, classes, seed)
    weights = to_arrays(network)
    features, labels = extract(network, make_images(40, seed)), rng.integers(classes, size=40)
    own = Summary.of(features, labels, classes)
    everyone = own + Summary.of(rng.permuted(features, axis=1), rng.integers(classes, size=40), classes)
    shape = weights["head.weight"].shape
    bundle = ClientBundle.of(
        weights["head.weight"],
        (rng.normal(size=shape), rng.normal(size=classes)),
        own,
        everyone,
        features=features,
        labels=labels,
        validation=(features[:12], labels[:12]),
        statistics={
            "rod_head.weight": rng.normal(size=shape),
            "rod_head.bias": rng.normal(size=classes),
            "pfedfda.means": np.abs(rng.normal(size=shape)),
            "pfedfda.covariance": np.eye(shape[1]),
        },
    )
    rotation = to_arrays(new_rotation_head(shape[1], seed))
    tuned = {**weights, **{f"auxiliary.rotation.{name}": array for name, array in rotation.items()}}
    whole = {**weights, "auxiliary.atp.rates": rng.normal(size=len(weights)).astype(np.float32)}
    model = {"name": "making:normalised", "options": {}, "image_shape": IMAGE_SHAPE, "classes": classes}
    return DeployedClient(bundle, {"global": whole, "finetuned": tuned, "personal": weights}, model)
