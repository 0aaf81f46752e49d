"""What Prometheus reads: requests, latency, e, alarms; no series for each client unless that is asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from btfl.serve.model import Step

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)
_TENTHS = tuple(round(0.1 * i, 1) for i in range(1, 11))


class Metrics:
    """Counters of one server; with several workers they are added up when they are read."""

    def __init__(self, label_models: bool) -> None:
        self._registry = CollectorRegistry()
        self._known: dict[tuple[str, int], tuple[Counter, Histogram]] = {}
        self._models = label_models
        labels = ("model",) if label_models else ()
        here = self._registry
        self._requests = Counter(
            "btfl_requests", "Requests by what they were and how they ended.", ("of", "code"), registry=here
        )
        self._seconds = Histogram("btfl_request_seconds", "Time to answer.", ("of",), buckets=_SECONDS, registry=here)
        self._samples = Counter("btfl_samples", "Samples that were judged.", labels, registry=here)
        self._e = Histogram(
            "btfl_e", "Mean weight of the global head of a request.", labels, buckets=_TENTHS, registry=here
        )
        self._alarms = Counter("btfl_alarms", "Alarms that began.", ("kind", *labels), registry=here)
        self._memories = Counter(
            "btfl_memories", "Streams that began, or met a renewed bundle.", ("became",), registry=here
        )
        self._replays = Counter("btfl_replayed_requests", "Requests that had been answered before.", registry=here)
        self._conflicts = Counter(
            "btfl_conflicts", "Times that a stream was changed by another in between.", registry=here
        )
        self._webhooks = Counter("btfl_webhooks", "Alarms posted to the webhook.", ("ended",), registry=here)

    def request(self, of: str, code: int, seconds: float) -> None:
        """Count a request: what it was, the status, and how long it took."""
        found = self._known.get((of, code))
        if found is None:  # looking up labels takes longer than counting
            found = self._known[of, code] = self._requests.labels(of, str(code)), self._seconds.labels(of)
        found[0].inc()
        found[1].observe(seconds)

    def step(self, model: str, step: Step) -> None:
        """Count what a request came to."""
        mine: tuple[str, ...]
        samples, e, mine = self._samples, self._e, ()
        if self._models:
            mine = (model,)
            samples, e = samples.labels(model), e.labels(model)
        samples.inc(step.samples)
        if "e" in step.means:
            e.observe(step.means["e"])
        for alarm in step.alarms:
            if alarm.begins:
                self._alarms.labels(alarm.kind, *mine).inc()

    def taken(self, memory: str, replayed: bool, conflicts: int) -> None:
        """Count what became of a stream's memory."""
        if replayed:
            self._replays.inc()
        elif memory != "continued":
            self._memories.labels(memory).inc()
        if conflicts:
            self._conflicts.inc(conflicts)

    def webhook(self, ended: str) -> None:
        """Count a posted alarm: sent, failed or dropped."""
        self._webhooks.labels(ended).inc()

    def text(self, gauges: Mapping[str, tuple[str, float]]) -> bytes:
        """Return everything in Prometheus' format; gauges by name, with what they mean."""
        registry = self._registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry) + _gauges(gauges)


def _gauges(gauges: Mapping[str, tuple[str, float]]) -> bytes:
    """Write numbers that are true when they are read."""
    lines: list[str] = []
    for name, (said, value) in gauges.items():
        lines += [f"# HELP {name} {said}", f"# TYPE {name} gauge", f"{name} {value:g}"]
    return ("\n".join(lines) + "\n").encode()
