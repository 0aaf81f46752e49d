"""Things tests make: a bundle and a stream of features."""

from __future__ import annotations

import numpy as np

from btfl import ClientBundle, DiscretisedLikelihood


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
