"""Drift detectors: our P(external) and what it is compared with. Each sees a client's bundle and features, no label.

River's detectors (ADWIN, KSWIN, Page-Hinkley) watch one number a sample, so each is fed the four signals below. The two
window tests compare the latest features with the client's training features; they are written here, in numpy.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.softmax import entropy, log_softmax
from btfl.errors import InputError, UnknownNameError
from btfl.methods.base import Trace
from btfl.methods.btfl import Btfl
from btfl.methods.coherent import Coherent
from btfl.methods.heads import probabilities

Floats = NDArray[np.float64]
Signal = Callable[[ClientBundle, Floats], Floats]
"""A number for each sample of a stream; it depends on no later sample."""

WINDOW, BINS = 50, 32


# Signals of single samples, for detectors that watch one number.


def confidence(bundle: ClientBundle, features: Floats) -> Floats:
    """Return the global head's largest probability."""
    return np.asarray(probabilities(bundle.global_head, features).max(axis=1))


def personal_entropy(bundle: ClientBundle, features: Floats) -> Floats:
    """Return the entropy of the personal head."""
    return entropy(log_softmax(bundle.personal_head.logits(features)))


def distance(bundle: ClientBundle, features: Floats) -> Floats:
    """Return the distance to the mean training feature, each dimension in its own standard deviations."""
    train = _training(bundle)
    scale = train.std(axis=0)
    return np.asarray(np.linalg.norm((features - train.mean(axis=0)) / np.where(scale > 0, scale, 1.0), axis=1))


def evidence(bundle: ClientBundle, features: Floats) -> Floats:
    """Return -log tau of the coherent method: the sample's own evidence of being external, without memory."""
    return -_coherent(bundle, features).log_tau


SIGNALS: Mapping[str, tuple[str, Signal]] = {
    "confidence": ("global confidence", confidence),
    "entropy": ("personal entropy", personal_entropy),
    "distance": ("distance to training mean", distance),
    "evidence": ("our −log τ", evidence),
}


def scaled(signal: Signal, bundle: ClientBundle, features: Floats) -> Floats:
    """Return a signal between 0 and 1, as ADWIN assumes: the 1st to 99th percentile of the training features."""
    low, high = _range(signal, bundle)
    return np.clip((signal(bundle, features) - low) / max(high - low, 1e-12), 0.0, 1.0)


@lru_cache(maxsize=16)
def _range(signal: Signal, bundle: ClientBundle) -> tuple[float, float]:
    low, high = np.quantile(signal(bundle, _training(bundle)), [0.01, 0.99])
    return float(low), float(high)


# Scores of the stream so far, which rise when it turns external.


def regime(bundle: ClientBundle, features: Floats) -> Floats:
    """Return the coherent method's probability that the recent stream is all external."""
    return _coherent(bundle, features).all_external


def coherent_e(bundle: ClientBundle, features: Floats) -> Floats:
    """Return the coherent method's probability that the sample is external."""
    return _coherent(bundle, features).e


def btfl_e(bundle: ClientBundle, features: Floats) -> Floats:
    """Return BTFL's weight of the global head."""
    return _btfl(bundle, features).e


def btfl_memory(bundle: ClientBundle, features: Floats) -> Floats:
    """Return a/(a + b), the mean of BTFL's memory."""
    trace = _btfl(bundle, features)
    return np.asarray(trace.a / (trace.a + trace.b))


def cusum(bundle: ClientBundle, features: Floats) -> Floats:
    """Return Page's cumulative sum of -log tau, never below zero: the quickest of all tests, were tau exact."""
    total, sums = 0.0, []
    for value in evidence(bundle, features).tolist():
        total = max(0.0, total + value)
        sums.append(total)
    return np.array(sums)


def ks_window(bundle: ClientBundle, features: Floats) -> Floats:
    """Return the largest Kolmogorov-Smirnov distance over dimensions between the window and the training features.

    Distributions are compared at ``BINS`` quantiles of the training features.
    """
    train = _training(bundle)
    points = np.quantile(train, np.linspace(0, 1, BINS), axis=0)
    expected = np.stack([(train <= point).mean(axis=0) for point in points])
    below = (features[:, None, :] <= points).reshape(len(features), -1)
    return _when_full(np.abs(_window_means(below) - expected.ravel()).max(axis=1))


def mmd_window(bundle: ClientBundle, features: Floats) -> Floats:
    """Return the squared maximum mean discrepancy between the window and the training features, minus a constant.

    The kernel is Gaussian; the square of its width is the median squared distance between training features.
    """
    train = _training(bundle)[:1000]
    width = float(np.median(_squared_distances(train[:200], train[-200:]))) or 1.0
    to_training = np.exp(-_squared_distances(features, train) / width).mean(axis=1)
    sums = np.pad(np.exp(-_squared_distances(features, features) / width).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    ends = np.arange(1, len(features) + 1)
    starts = np.maximum(ends - WINDOW, 0)
    within = sums[ends, ends] - sums[starts, ends] - sums[ends, starts] + sums[starts, starts]
    return _when_full(within / WINDOW**2 - 2 * _window_means(to_training[:, None])[:, 0])


def kswin(signal: Signal, bundle: ClientBundle, features: Floats) -> Floats:
    """Return -log p of river's KSWIN; with alpha = 0 it never resets, and p is what another alpha is compared with."""
    detector, scores = river().KSWIN(alpha=0.0, seed=0), []
    for value in scaled(signal, bundle, features).tolist():
        detector.update(value)
        tested = len(detector.window) == detector.window_size
        scores.append(-np.log(max(detector.p_value, 1e-300)) if tested else 0.0)
    return np.array(scores)


@dataclass(frozen=True)
class Detector:
    """A score that rises, to be compared with a threshold; or a detector of the library at several sensitivities."""

    name: str
    title: str
    family: str
    signal: Signal
    """The score; or what the library's detector is fed, between 0 and 1."""
    make: Callable[[float], Any] | None = None
    """The library's detector with its own parameter; None: the signal is the score."""
    parameters: tuple[float, ...] = ()
    needs_river: bool = False


def _adwin(delta: float) -> Any:
    return river().ADWIN(delta=delta, clock=1)  # looks at every sample; its default looks at every 32nd


def _page_hinkley(threshold: float) -> Any:
    return river().PageHinkley(threshold=threshold)


def _detectors() -> Iterable[Detector]:
    ours = "ours"
    yield Detector("regime", "coherent, P(all EXD)", ours, regime)
    yield Detector("coherent-e", "coherent, e", ours, coherent_e)
    yield Detector("cusum", "CUSUM of −log τ", ours, cusum)
    yield Detector("btfl-memory", "BTFL, a/(a+b)", ours, btfl_memory)
    yield Detector("btfl-e", "BTFL, e", ours, btfl_e)
    yield Detector("ks-window", "KS on features", "window tests", ks_window)
    yield Detector("mmd-window", "MMD on features", "window tests", mmd_window)
    deltas, thresholds = tuple(np.geomspace(1e-15, 0.99, 40)), tuple(np.geomspace(0.3, 150, 40))
    for key, (label, signal) in SIGNALS.items():
        fed = partial(scaled, signal)
        yield Detector(f"adwin-{key}", f"ADWIN, {label}", "ADWIN", fed, _adwin, deltas, True)
        yield Detector(f"kswin-{key}", f"KSWIN, {label}", "KSWIN", partial(kswin, signal), needs_river=True)
        yield Detector(
            f"ph-{key}", f"Page-Hinkley, {label}", "Page-Hinkley", fed, _page_hinkley, thresholds[::-1], True
        )


DETECTORS: Mapping[str, Detector] = {detector.name: detector for detector in _detectors()}


def choose(names: Sequence[str] | None) -> list[Detector]:
    """Return the detectors of these names; None: all that are available here."""
    if not names:
        return [one for one in DETECTORS.values() if not one.needs_river or has_river()]
    for name in names:
        if name not in DETECTORS:
            raise UnknownNameError("detector", name, DETECTORS)
    if any(DETECTORS[name].needs_river for name in names):
        river()
    return [DETECTORS[name] for name in dict.fromkeys(names)]


def has_river() -> bool:
    """Return whether the library of detectors is installed."""
    return find_spec("river") is not None


def river() -> Any:
    """Return river's detectors, or raise an ``InputError`` that says how to install them."""
    if not has_river():
        raise InputError("ADWIN, KSWIN and Page-Hinkley are river's, which is not installed: pip install 'btfl[drift]'")
    return importlib.import_module("river.drift")


def _coherent(bundle: ClientBundle, features: Floats) -> Trace:
    adapter = Coherent(bundle)
    adapter.predict(features)
    return adapter.trace


def _btfl(bundle: ClientBundle, features: Floats) -> Trace:
    adapter = Btfl(bundle)
    adapter.predict(features)
    return adapter.trace


def _training(bundle: ClientBundle) -> Floats:
    return bundle.statistic("train_features")


def _window_means(values: NDArray[Any]) -> Floats:
    """Return the mean of the latest ``WINDOW`` rows at each row; of less, while there is less, over ``WINDOW`` too."""
    sums: Floats = values.cumsum(axis=0, dtype=np.float64)
    sums[WINDOW:] = sums[WINDOW:] - sums[:-WINDOW]
    return np.asarray(sums / WINDOW)


def _when_full(scores: Floats) -> Floats:
    """Set the scores before the window is full to minus infinity."""
    scores[: WINDOW - 1] = -np.inf
    return scores


def _squared_distances(one: Floats, other: Floats) -> Floats:
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * one @ other.T
    return np.asarray(np.maximum(squares, 0.0))
