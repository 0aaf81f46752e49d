"""From a saved federation and a device's own file to its bundle: what ``btfl enrol`` does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from btfl.core.bundle import ClientBundle
from btfl.core.heads import LinearHead
from btfl.core.provenance import Provenance
from btfl.core.summary import STATISTICS, Summary
from btfl.data.sources.npz import Npz
from btfl.enrolment import Federation, enrol
from btfl.errors import DataError, InputError, listed
from btfl.export.clients import federation_in
from btfl.runs.enrolling import enrolling
from btfl.runs.trained import TrainedFederation
from btfl.zoo.serving import PREFIX, Serving, entry_folder, load_serving

Floats = NDArray[np.float64]
_BATCH = 256


@dataclass(frozen=True, eq=False)
class Server:
    """What a new device is enrolled in, and how its samples become features.

    Parameters
    ----------
    federation : heads and totals
    extract : (samples, ...) as the device measures them -> (samples, dimensions) features
    classes : names of the classes; empty: not known, labels are numbers
    """

    federation: Federation
    extract: Callable[[NDArray[Any]], Floats]
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class OwnData:
    """What a device brings.

    Parameters
    ----------
    samples : as it measures them; None if there are features
    features : of the federation's extractor; None if there are samples
    labels : None if there are none
    names : of the classes that labels are numbers of; empty: the federation's own
    """

    samples: NDArray[Any] | None = None
    features: NDArray[Any] | None = None
    labels: NDArray[Any] | None = None
    names: tuple[str, ...] = ()


def find_server(source: str, recipe: str = "fedavg") -> Server:
    """Find a federation to enrol in: a run, a training, a server's ``final`` folder, or ``zoo:NAME``."""
    if source.startswith(PREFIX):
        return _of_zoo(load_serving(entry_folder(source.removeprefix(PREFIX))))
    trained = federation_in(Path(source), recipe)
    found = enrolling(trained, source)
    names = () if found.provenance is None else found.provenance.classes
    return Server(found, lambda samples: _by_torch(trained, samples), names)


def read_own_data(path: Path) -> OwnData:
    """Read a device's npz file: ``x`` (samples) or ``features``, and ``y`` (labels) and ``classes`` if it has them.

    Anything else is a ``DataError``, in a sentence.
    """
    with Npz(path) as npz:
        found = {name: npz.read(name) for name in ("x", "features", "y", "classes") if name in npz}
    if ("x" in found) == ("features" in found):
        raise DataError(f"{path} must have either x, samples as the device measures them, or features")
    if single := [name for name, array in found.items() if array.ndim == 0]:
        raise DataError(f"{path}: {listed(single)} must be a list, not a single value")
    names = tuple(map(str, found["classes"].tolist())) if "classes" in found else ()
    own = OwnData(found.get("x"), found.get("features"), found.get("y"), names)
    count = len(found["x"] if "x" in found else found["features"])
    if count == 0:
        raise DataError(f"{path} holds no sample: leave --data out to enrol with nothing")
    if own.labels is not None and own.labels.shape != (count,):
        raise DataError(f"{path} has {count} samples, but labels y of the shape {own.labels.shape}")
    return own


def enrol_device(server: Server, own: OwnData | None, *, unlabelled: bool = False) -> ClientBundle:
    """Return the bundle of a new device.

    Parameters
    ----------
    server : what it is enrolled in
    own : what it brings; None: nothing
    unlabelled : whether to leave its labels unread
    """
    if own is None:
        return enrol(server.federation)
    features = server.extract(own.samples) if own.features is None and own.samples is not None else own.features
    labels = None if own.labels is None or unlabelled else _known(server, own.labels, own.names)
    return enrol(server.federation, features, labels)


def _known(server: Server, labels: NDArray[Any], names: tuple[str, ...]) -> NDArray[Any]:
    """Return labels as the federation numbers its classes; one that it does not know is an ``InputError``."""
    if labels.dtype.kind == "U":
        if not server.classes:
            raise InputError(
                "the federation does not say what its classes are called, since an older btfl trained it: give labels "
                "y as the numbers that it was trained with"
            )
        found, labels = np.unique(labels, return_inverse=True)
        names = tuple(map(str, found.tolist()))
    if not names or not server.classes:
        return labels
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= len(names):
        raise InputError(f"labels y are numbers of the {len(names)} classes that the file names")
    used = [names[number] for number in np.unique(labels)]
    if unknown := [name for name in used if name not in server.classes]:
        raise InputError(
            f"the federation does not know the class {listed(unknown)}: it knows {listed(server.classes, 12)}. "
            "Leave these samples out, or enrol without labels (--unlabelled)"
        )
    place = {name: server.classes.index(name) for name in used}
    return np.array([place[names[number]] for number in labels], dtype=np.int64)


def _of_zoo(serving: Serving) -> Server:
    first = next(iter(serving.bundles.values()))
    head: LinearHead = first.global_head
    everyone = first.global_likelihood
    arrays = {
        one.name: np.asarray(first.statistics[f"global_{one.name}"], dtype=np.float64)
        for one in STATISTICS
        if f"global_{one.name}" in first.statistics
    }
    arrays |= {
        "clients": np.array([float(everyone.clients)]),
        "samples": np.array([float(everyone.count)]),
        "zero_frequencies": everyone.frequencies * everyone.clients,
    }
    provenance = Provenance.of_bundle(first)
    total = Summary.from_arrays(arrays)
    extractor = serving.extractor
    if extractor is None:
        raise InputError("this entry has no extractor: `btfl zoo serving` adds it")
    names = () if provenance is None else provenance.classes
    return Server(Federation(head, total, provenance), lambda samples: _by_onnx(extractor, samples), names)


def _by_torch(trained: TrainedFederation, samples: NDArray[Any]) -> Floats:
    import torch

    from btfl.export.before import before
    from btfl.models import build, load_arrays, to_arrays
    from btfl.models.inputs import arranged

    model = trained.model
    network = build(model["name"], model["image_shape"], model["classes"], 0, **model["options"])
    load_arrays(network, {**to_arrays(network), **trained.shared})
    network.eval()
    preparing = before(model)
    prepared = _as_measured(samples, preparing.sample_shape)
    parts = []
    with torch.no_grad():
        for start in range(0, len(prepared), _BATCH):
            batch = torch.from_numpy(prepared[start : start + _BATCH])
            parts.append(network.features(arranged(preparing(batch))).numpy())
    return np.concatenate(parts).astype(np.float64)


def _by_onnx(extractor: bytes, samples: NDArray[Any]) -> Floats:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(extractor, options, providers=["CPUExecutionProvider"])
    (wanted,) = session.get_inputs()
    prepared = _as_measured(samples, tuple(wanted.shape[1:]))
    parts = [
        session.run(None, {wanted.name: prepared[start : start + _BATCH]})[0]
        for start in range(0, len(prepared), _BATCH)
    ]
    return np.concatenate(parts).astype(np.float64)


def _as_measured(samples: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return samples as the extractor takes them: uint8 images with a channel, else float32."""
    found = samples[..., None] if len(shape) == 3 and samples.ndim == 3 and shape[-1] == 1 else samples
    if found.shape[1:] != tuple(shape):
        raise InputError(
            f"the samples are {'x'.join(map(str, found.shape[1:]))}, but the extractor takes "
            f"{'x'.join(map(str, shape))}: they are of another kind, or of another size"
        )
    if len(shape) == 3:
        if found.dtype != np.uint8:
            raise InputError(f"images are uint8, from 0 to 255, not {found.dtype}")
        return np.ascontiguousarray(found)
    if found.dtype.kind not in "fiu":
        raise InputError(f"samples are numbers, not {found.dtype}")
    return np.ascontiguousarray(found, dtype=np.float32)
