"""What ``btfl serve zoo:NAME`` needs of an entry, beside its weights: bundles without features, and the extractor.

A bundle follows from two heads, two mean entropies, everyone's sums (with those that choose Coherent's settings) and
the client's own. These are small (about 30 kB for a client of the CNN), hold no features of samples, and need neither
the dataset nor torch. What all clients share, as FedAvg's global head, is there once. The extractor lies beside them as
ONNX, and so do the levels at which each client's monitor alarms, which were found on its validation features.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from btfl.core.bundle import OWN_SUMS, ClientBundle
from btfl.core.calibration import SHAPES as CALIBRATION
from btfl.core.heads import LinearHead
from btfl.core.likelihood import DiscretisedLikelihood
from btfl.errors import BtflError, InputError, StorageError, UnknownNameError
from btfl.monitor import AlarmLevels
from btfl.runs.layout import client_name
from btfl.storage import LARGEST_TENSORS, Arrays, load_record, read_file, save_record, write_atomically
from btfl.zoo.triangles import packed, unpacked

PREFIX, CARD = "zoo:", "card.json"
RECORD, KIND, VERSION = "serving", "btfl zoo serving", 1
_GLOBAL = "global_head"
_HEADS = (_GLOBAL, "personal_head")


@dataclass(frozen=True, eq=False)
class Serving:
    """Bundles of a federation without features, and what else a server needs."""

    bundles: Mapping[int, ClientBundle]
    own: Mapping[int, Arrays]
    """Each client's own sums, by the names of ``core.summary.STATISTICS``; of its samples, not of distorted copies."""
    calibrations: Mapping[int, AlarmLevels]
    extractor: bytes | None
    """ONNX: uint8 images (n, height, width, channels) to float32 features (n, d)."""
    recipe: str
    digest: str
    """The sha256 that the trained federation had (``TrainedFederation.digest``)."""


def save_serving(folder: Path, serving: Serving) -> None:
    """Write the files into the folder of an entry, beside its weights; these stay as they are."""
    clients, arrays = {}, dict[str, Any]()
    for number, bundle in serving.bundles.items():
        name = client_name(number)
        arrays |= {f"{name}/{key}": value for key, value in _arrays(bundle, serving.own[number]).items()}
        clients[str(number)] = {
            "local_entropy": bundle.local_entropy,
            "global_entropy": bundle.global_entropy,
            "metadata": dict(bundle.metadata),
            "calibration": serving.calibrations[number].to_json() if number in serving.calibrations else None,
        }
    first = next(iter(serving.bundles.values()))
    shared = [key for key in first.statistics if key.startswith("global_") or key in CALIBRATION]
    arrays |= {f"total/{key}": first.statistics[key] for key in shared}
    for key in [key for key in _arrays(first, {}) if key.startswith(f"{_GLOBAL}.")]:
        copies = [f"{client_name(number)}/{key}" for number in serving.bundles]
        if all(copy in arrays and np.array_equal(arrays[copy], arrays[copies[0]]) for copy in copies):
            arrays[f"total/{key}"] = arrays[copies[0]]
            for copy in copies:
                del arrays[copy]
    everyone = first.global_likelihood
    arrays["total/zero_frequencies"] = everyone.frequencies
    fields: dict[str, Any] = {
        "recipe": serving.recipe,
        "digest": serving.digest,
        "clients": clients,
        "total": {"count": everyone.count, "clients": everyone.clients},
        "extractor": None,
    }
    if serving.extractor is not None:
        sha = hashlib.sha256(serving.extractor).hexdigest()
        fields["extractor"] = {"file": f"extractor-{sha[:16]}.onnx", "sha256": sha}
        write_atomically(folder / fields["extractor"]["file"], serving.extractor)
    save_record(folder, RECORD, KIND, VERSION, fields, packed(arrays))


def _arrays(bundle: ClientBundle, own: Arrays) -> Arrays:
    heads = {name: getattr(bundle, name) for name in _HEADS}
    return {
        **{f"{name}.weight": head.weight for name, head in heads.items()},
        **{f"{name}.bias": head.bias for name, head in heads.items() if head.bias is not None},
        **{key: value for key, value in own.items() if not key.startswith("distorted_")},
    }


def load_serving(folder: Path) -> Serving:
    """Read what ``save_serving`` wrote; anything missing or damaged is a ``StorageError``."""
    fields, arrays = load_record(folder, RECORD, KIND, VERSION)
    try:
        parts: dict[str, dict[str, Any]] = {}
        for name, array in unpacked(arrays).items():
            owner, _, key = name.partition("/")
            parts.setdefault(owner, {})[key] = array
        total = parts["total"]
        everyone = DiscretisedLikelihood(total.pop("zero_frequencies"), **fields["total"])
        common = {key: total.pop(key) for key in [key for key in total if key.startswith(f"{_GLOBAL}.")]}
        bundles, own, calibrations = {}, {}, {}
        for text, told in fields["clients"].items():
            number, mine = int(text), {**common, **parts[client_name(int(text))]}
            global_head, personal_head = (
                LinearHead(mine.pop(f"{name}.weight"), mine.pop(f"{name}.bias", None)) for name in _HEADS
            )
            own[number] = mine
            bundles[number] = ClientBundle(
                global_head,
                personal_head,
                DiscretisedLikelihood(mine["zero_frequencies"], round(float(mine["samples"][0]))),
                everyone,
                told["local_entropy"],
                told["global_entropy"],
                {**total, "local_class_counts": mine["class_counts"], OWN_SUMS: mine["class_feature_sums"]},
                told["metadata"],
            )
            if told["calibration"] is not None:
                calibrations[number] = AlarmLevels.from_json(told["calibration"])
        extractor = None if fields["extractor"] is None else _read_extractor(folder, **fields["extractor"])
        return Serving(bundles, own, calibrations, extractor, str(fields["recipe"]), str(fields["digest"]))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, BtflError) and not isinstance(error, InputError):
            raise
        raise StorageError(f"{folder / RECORD}.json is damaged: {error}") from None


def _read_extractor(folder: Path, file: str, sha256: str) -> bytes:
    if not re.fullmatch(r"extractor-[0-9a-f]{16}\.onnx", file):
        raise StorageError(f"{folder / RECORD}.json is damaged: it names the extractor {file!r}")
    content = read_file(folder / file, LARGEST_TENSORS)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise StorageError(f"{folder / file} is damaged or truncated: its sha256 is not the one in {RECORD}.json")
    return content


def entry_folder(name: str) -> Path:
    """Return the folder of an entry that comes with btfl, by its name without ``zoo:``."""
    zoo = Path(str(resources.files("btfl.zoo")))
    known = {path.parent.name: path.parent for path in sorted(zoo.glob(f"*/{CARD}"))}
    if name not in known:
        raise UnknownNameError("entry of the zoo", name, known)
    return known[name]
