"""A manifest: the streams of all clients as indices, with a hash to compare two of them by."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from btfl.data.partition import Indices, PartitionSettings
from btfl.data.samples import kind_of
from btfl.errors import InputError, StorageError, UnknownNameError
from btfl.knobs import Settings, knob
from btfl.pixels.corruptions import CORRUPTIONS, SEVERITIES
from btfl.signals.corruptions import SIGNAL_CORRUPTIONS, suited
from btfl.storage import load_record, load_version, save_record

STREAMS = ("original_ind", "shifted_ind", "original_exd", "shifted_exd", "synthetical")
SWITCHING = "switching"
"""A sixth stream, beside the five of the benchmark: IND, then EXD, then IND again."""
LETTERS = dict(zip(STREAMS, "ABCDE", strict=True))
POOL, OTHER_DOMAIN = 0, 1  # where a sample comes from
CLEAN = -1  # no corruption

KIND = "btfl stream manifest"
VERSION = 3
"""Version 1 did not say which names are of files, and both it and 2 had an array for each part of each stream."""
_PARTS = ("origin", "index", "corruption")
_NAMES = frozenset(("source", "shift_name"))


@dataclass(frozen=True)
class StreamSettings(Settings):
    """How the shifted streams are made."""

    title: ClassVar[str] = "the streams"

    severity: int = knob(5, "Severity of the corruptions.", least=min(SEVERITIES), most=max(SEVERITIES))
    corruptions: tuple[str, ...] = knob(
        CORRUPTIONS, "Corruptions of the shifted streams; all that there are for the kind of data, if not given."
    )
    longest: int | None = knob(None, "Most samples of a stream, drawn at random; all if not given.", least=4)

    def check(self) -> None:
        """Refuse corruptions that do not exist."""
        for name in self.corruptions:
            if name not in (*CORRUPTIONS, *SIGNAL_CORRUPTIONS):
                raise UnknownNameError("corruption", name, (*CORRUPTIONS, *SIGNAL_CORRUPTIONS))

    def suited_to(self, sample_shape: tuple[int, ...]) -> StreamSettings:
        """Return the settings with corruptions that samples of this shape can have; vectors have none.

        What a person has chosen is never exchanged: a corruption of another kind of data is an error.
        """
        kind = kind_of(sample_shape)
        known = {"images": CORRUPTIONS, "signals": suited(sample_shape[-1]), "vectors": ()}[kind]
        if self.corruptions == CORRUPTIONS:
            return replace(self, corruptions=known)
        if not self.corruptions and known:
            raise InputError("name at least one corruption")
        for name in self.corruptions:
            if name not in known:
                raise InputError(
                    f"{kind} of {'x'.join(map(str, sample_shape))} cannot have the corruption '{name}'; "
                    + (f"known are {', '.join(known)}" if known else "they have none, so leave corruptions out")
                )
        return self

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as plain values; hashes of streams cover ``_FIXED``, which was once a setting."""
        return {**super().as_dict(), "corruptions": list(self.corruptions), **_FIXED}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> StreamSettings:
        """Make settings from what ``as_dict`` returned."""
        kept = {name: value for name, value in values.items() if name not in _FIXED}
        return cls(**{**kept, "corruptions": tuple(values["corruptions"])})


_FIXED: Mapping[str, Any] = {"use_domain": True}


@dataclass(frozen=True, eq=False, repr=False)
class Draw:
    """How a stream's samples are made, one entry a sample in each array (n,).

    Parameters
    ----------
    origin : POOL or OTHER_DOMAIN
    index : which sample of that origin
    corruption : position in ``StreamSettings.corruptions``, or CLEAN
    """

    origin: NDArray[np.int8]
    index: Indices
    corruption: NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.index)

    def __repr__(self) -> str:
        other, corrupted = int((self.origin == OTHER_DOMAIN).sum()), int((self.corruption != CLEAN).sum())
        return f"Draw({len(self):,} samples, {corrupted:,} corrupted, {other:,} of the other domain)"


@dataclass(frozen=True, eq=False)
class ClientStreams:
    """Streams A to D of one client, and how E is picked from them.

    Parameters
    ----------
    draws : of A, B, C and D; B and D are empty where there is neither another domain nor a corruption
    mixture : E as (stream 0 to 3, position in it), shape (samples, 2)
    """

    draws: tuple[Draw, Draw, Draw, Draw]
    mixture: NDArray[np.int32] = field(repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class Manifest:
    """The streams of all clients, and what they are a function of; make one with ``streams.make_manifest``."""

    settings: StreamSettings
    partition: PartitionSettings
    seed: int
    source: str
    source_fingerprint: str
    shift_name: str | None
    shift_fingerprint: str | None
    left_out: int
    """Samples of the other domain that are not used, since the pool holds exact copies of them."""
    clients: tuple[ClientStreams, ...]
    named_after_files: frozenset[str] = frozenset()
    """Which of ``source`` and ``shift_name`` are names of files or folders, which no hash covers."""

    def __repr__(self) -> str:
        other = self.shift_name or "no other domain"
        return f"Manifest({self.source!r}, {other}, {len(self.clients)} clients, seed {self.seed}, {self.hash[:12]})"

    @property
    def left_out_streams(self) -> tuple[str, ...]:
        """Streams that no client has: B and D of vectors without another domain."""
        return tuple(
            name for i, name in enumerate(STREAMS[:4]) if not any(len(client.draws[i]) for client in self.clients)
        )

    @cached_property
    def hash(self) -> str:
        """Sha256 over everything but the names of files: equal hashes mean equal streams."""
        return self._hash_without(self.named_after_files)

    def same_streams(self, other: Manifest) -> bool:
        """Return whether another manifest has the same streams of the same samples, whatever those are called.

        btfl 0.1 and 0.2 hashed the names of files too, so that manifests of theirs keep hashes of their own.
        """
        return self.hash == other.hash or self._hash_without(_NAMES) == other._hash_without(_NAMES)

    def _hash_without(self, names: frozenset[str]) -> str:
        fields = {name: None if name in names & _NAMES else value for name, value in self._fields().items()}
        digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode())
        for name, array in sorted(self._arrays().items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def save(self, folder: str | Path) -> None:
        """Save beside the results made from it."""
        fields = {**self._fields(), "hash": self.hash, "named_after_files": sorted(self.named_after_files)}
        save_record(Path(folder), "streams", KIND, VERSION, fields, _packed(self.clients))

    @classmethod
    def load(cls, folder: str | Path) -> Manifest:
        """Load a saved manifest and check its hash."""
        path = Path(folder) / "streams.json"
        found = load_version(path) if path.exists() else VERSION
        version = found if found in (1, 2) else VERSION
        fields, arrays = load_record(Path(folder), "streams", KIND, version)
        try:
            clients = _unpacked(arrays) if version == VERSION else _of_single_arrays(arrays, fields["clients"])
            manifest = cls(
                StreamSettings.from_dict(fields["settings"]),
                PartitionSettings(**fields["partition"]),
                fields["seed"],
                fields["source"],
                fields["source_fingerprint"],
                fields["shift_name"],
                fields["shift_fingerprint"],
                fields["left_out"],
                clients,
                frozenset(fields["named_after_files"] if version > 1 else ()),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"the stream manifest in {folder} is incomplete: {error}") from None
        if manifest.hash != fields["hash"]:
            raise StorageError(f"the stream manifest in {folder} does not match its own hash")
        return manifest

    def _fields(self) -> dict[str, Any]:
        return {
            "settings": self.settings.as_dict(),
            "partition": self.partition.as_dict(),
            "seed": self.seed,
            "source": self.source,
            "source_fingerprint": self.source_fingerprint,
            "shift_name": self.shift_name,
            "shift_fingerprint": self.shift_fingerprint,
            "left_out": self.left_out,
            "clients": len(self.clients),
        }

    def _arrays(self) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {}
        for i, client in enumerate(self.clients):
            for stream, draw in zip(STREAMS, client.draws, strict=False):
                for part in _PARTS:
                    arrays[f"{i}.{stream}.{part}"] = getattr(draw, part)
            arrays[f"{i}.mixture"] = client.mixture
        return arrays


def _packed(clients: Sequence[ClientStreams]) -> dict[str, NDArray[Any]]:
    """Return the streams of all clients one after the other, in a quarter of the bytes that they have in memory."""
    draws = [draw for client in clients for draw in client.draws]
    mixture = np.concatenate([np.zeros((0, 2), np.int32), *(client.mixture for client in clients)])
    together = {
        part: np.concatenate([np.zeros(0, np.int8), *(getattr(draw, part) for draw in draws)]) for part in _PARTS
    }
    return {
        "lengths": _narrow(np.array([[*map(len, client.draws), len(client.mixture)] for client in clients], np.int64)),
        "origin": np.packbits(together["origin"] == OTHER_DOMAIN),
        "index": _narrow(together["index"]),
        "corruption": together["corruption"],
        "mixture_stream": _narrow(mixture[:, 0]),
        "mixture_position": _narrow(mixture[:, 1]),
    }


def _unpacked(arrays: Mapping[str, NDArray[Any]]) -> tuple[ClientStreams, ...]:
    """Return what ``_packed`` packed; arrays of other lengths than they say are a ``ValueError``."""
    lengths = arrays["lengths"].astype(np.int64).reshape(-1, 5)
    of_draws = lengths[:, :4].ravel()
    origin = np.unpackbits(arrays["origin"], count=len(arrays["index"]))
    parts = zip(
        _split(origin.astype(np.int8), of_draws),
        _split(arrays["index"].astype(np.int64), of_draws),
        _split(arrays["corruption"].astype(np.int8), of_draws),
        strict=True,
    )
    draws = [Draw(*one) for one in parts]
    mixture = np.stack([arrays["mixture_stream"], arrays["mixture_position"]], axis=1).astype(np.int32)
    return tuple(
        ClientStreams((draws[4 * i], draws[4 * i + 1], draws[4 * i + 2], draws[4 * i + 3]), picks)
        for i, picks in enumerate(_split(mixture, lengths[:, 4]))
    )


def _split(together: NDArray[Any], lengths: NDArray[np.int64]) -> list[NDArray[Any]]:
    if len(together) != lengths.sum():
        raise ValueError(f"{len(together)} samples where {lengths.sum()} were told")
    return np.split(together, np.cumsum(lengths)[:-1]) if len(lengths) else []


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers from 0 in the smallest type that holds them."""
    return values.astype(np.min_scalar_type(values.max(initial=0)))


def _of_single_arrays(arrays: Mapping[str, NDArray[Any]], clients: int) -> tuple[ClientStreams, ...]:
    """Return the streams as versions 1 and 2 wrote them."""
    draws = [
        [Draw(*(arrays[f"{i}.{stream}.{part}"] for part in _PARTS)) for stream in STREAMS[:4]] for i in range(clients)
    ]
    return tuple(ClientStreams((a, b, c, d), arrays[f"{i}.mixture"]) for i, (a, b, c, d) in enumerate(draws))
