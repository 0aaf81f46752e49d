"""A model of the server: one client's method and monitor, given a memory and samples, giving answers and a memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.errors import InputError
from btfl.methods.base import BundleOnly, Column, Method
from btfl.methods.registry import find_method
from btfl.monitor import Alarm, AlarmLevels, Looks, Monitor, MonitorSettings, carried_levels, identity, levels_for
from btfl.monitor.looks import SIGNAL as LOOKS
from btfl.serve.refusal import RefusedError
from btfl.serve.source import Served
from btfl.serve.tensors import NAMES

Outputs = dict[str, NDArray[Any]]


class Step(NamedTuple):
    """What a request comes to: the answer, the memory after it, and what the history keeps."""

    outputs: Outputs
    state: bytes
    """JSON of the method's and the monitor's memory."""
    samples: int
    seen: int
    """Samples of the stream so far."""
    alarms: tuple[Alarm, ...]
    alarmed: str
    """Kinds of the alarms that are on after it, with commas between them."""
    means: Mapping[str, float]
    """Mean of e and log_tau over the samples; the last all_external and the largest strangeness."""


class Model:
    """One client, ready to answer.

    Parameters
    ----------
    served : its name and bundle
    method : as ``--method`` names it
    settings : of the monitor
    stored : levels of the monitor that were found earlier; if none fits, they are found now, which takes a second
    """

    def __init__(
        self, served: Served, method: str, settings: MonitorSettings, stored: Iterable[AlarmLevels] = ()
    ) -> None:
        variant = find_method(method)
        if variant.method.takes != "features":
            raise InputError(
                f"{variant.title} changes a network with torch; btfl serve runs methods that take features"
            )
        self.name, self.sha256 = served.name, served.sha256
        self.method: Method = variant.build(BundleOnly(_without_samples(served.bundle, variant.method.needs)))
        self.classes, self.dimensions = served.bundle.classes, served.bundle.dimensions
        self.identity = f"{identity(self.method)} classes={self.classes}"
        """A memory that was made by the same method, with the same settings, for as many classes, can be kept."""
        beside = [] if served.calibration is None else [served.calibration]
        known = [*beside, *carried_levels(served.bundle), *stored]
        found = next((each for each in known if each.fits(self.method, settings.warm_up)), None)
        self.found_levels = found is None
        """Whether the monitor's levels had to be found now."""
        self.calibration = found or levels_for(self.method, served.bundle, settings.warm_up)
        self.monitor = Monitor(self.calibration, settings)
        self.looks = Looks.carried(served.bundle)
        """How the client's samples look, if its bundle says so: for whoever sends images."""
        self._frames = None if self.looks is None else Monitor(self.looks.levels(), replace(settings, warm_up=0))
        told = Column("how far an image is off the client's own; mostly below 1 for these")
        seen = {} if self.looks is None else {LOOKS: told}
        self.columns: Mapping[str, Column] = {**self.method.columns, **seen}
        self._lock = threading.Lock()
        self._fresh = self._state()
        self._holds: bytes | None = None  # the memory that the method has right now

    @property
    def fresh(self) -> bytes:
        """The memory of a stream that begins."""
        return self._fresh

    def _state(self) -> bytes:
        frames = {} if self._frames is None else {LOOKS: self._frames.state}
        return orjson.dumps({"method": self.method.state, "monitor": self.monitor.state, **frames})

    def can_restore(self, state: bytes) -> bool:
        """Return whether the method takes a memory back."""
        with self._lock:
            self._holds = None
            try:
                self._restore(state)
            except (InputError, ValueError, KeyError, TypeError):
                return False
            return True

    def _restore(self, state: bytes) -> None:
        told = orjson.loads(state)
        self.method.restore(told["method"])
        self.monitor.restore(told["monitor"])
        if self._frames is not None:
            self._frames.reset()
            if LOOKS in told:  # a memory of a time before the bundle had it begins without an alarm
                self._frames.restore(told[LOOKS])

    def step(self, features: NDArray[Any], state: bytes, images: NDArray[Any] | None = None) -> Step:
        """Answer the next samples of a stream whose memory is ``state``; ``images``, if that is what came in."""
        looks = None if images is None or self.looks is None else _looks(self.looks, images)
        with self._lock:  # a method holds one memory at a time
            try:
                if state is self._fresh:
                    self.method.reset()
                    self.monitor.reset()
                    if self._frames is not None:
                        self._frames.reset()
                elif state is not self._holds:  # where each client has one stream it is there already
                    self._restore(state)
                self._holds = None
                probabilities = self.method.predict(features)
            except InputError as error:
                raise RefusedError(400, str(error)) from None
            outputs: Outputs = {"probabilities": probabilities, **self.method.trace}
            before, alarms, alarmed = self.monitor.seen, self.monitor.watch(outputs), self.monitor.alarmed
            if self._frames is not None:
                self._frames.seen = before  # features may have come in between
                if looks is not None:
                    outputs[LOOKS] = looks
                    alarms += self._frames.watch(outputs)
                alarmed = tuple(dict.fromkeys(alarmed + self._frames.alarmed))
            self._holds = after = self._state()
            seen = self.monitor.seen
        if len(features) > 1:  # columns of a batch may lie among others
            outputs = {name: np.ascontiguousarray(one) for name, one in outputs.items()}
        return Step(outputs, after, len(features), seen, tuple(alarms), ",".join(alarmed), _means(outputs))

    def metadata(self, images: tuple[int, ...] | None) -> dict[str, Any]:
        """Return what the protocol tells of a model; ``images``: (height, width, channels), if it takes them."""
        inputs = [{"name": "features", "datatype": "FP64", "shape": [-1, self.dimensions]}]
        if images is not None:
            inputs.append({"name": "images", "datatype": "UINT8", "shape": [-1, *images]})
        outputs = [{"name": "probabilities", "datatype": "FP64", "shape": [-1, self.classes]}]
        for name, column in self.columns.items():
            outputs.append({"name": name, "datatype": NAMES[np.dtype(column.dtype).str[1:]], "shape": [-1]})
        return {"name": self.name, "versions": ["1"], "platform": "btfl", "inputs": inputs, "outputs": outputs}


def _looks(looks: Looks, images: NDArray[Any]) -> NDArray[np.float64]:
    try:
        return looks.strangeness(images)
    except InputError as error:
        raise RefusedError(400, str(error)) from None


def _means(trace: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    """Return what the history keeps of a request's samples."""
    found = {}
    for name in ("e", "log_tau"):
        if name in trace:
            values = trace[name]
            found[name] = float(values[0] if len(values) == 1 else np.add.reduce(values) / len(values))
    if "all_external" in trace:
        found["all_external"] = float(trace["all_external"][-1])
    if "strangeness" in trace:
        found["strangeness"] = float(trace["strangeness"].max())
    return found


def _without_samples(bundle: ClientBundle, needed: tuple[str, ...]) -> ClientBundle:
    """Return a bundle without the features of samples that the method does not need: a fleet's do not fit in memory."""
    kept = {
        name: value
        for name, value in bundle.statistics.items()
        if name in needed or not name.startswith(("train_", "validation_"))
    }
    return replace(bundle, statistics=kept)
