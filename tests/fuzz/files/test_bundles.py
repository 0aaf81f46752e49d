"""Damaged bundles: each is refused in one sentence, or is what it was, or at least a bundle that predicts."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from btfl import Btfl, ClientBundle
from btfl.core.bundle import KIND, VERSION
from btfl.errors import BtflError, StorageError
from btfl.storage import load_record, save_record
from fuzz.files.damage import damaged_bytes, damaged_json
from making import make_bundle, make_stream


def said(folder: Path) -> tuple[str, ClientBundle | None]:
    """Load, and return how that ended; any error but ours is raised."""
    try:
        return "loaded", ClientBundle.load(folder)
    except StorageError:
        return "refused", None


def content(bundle: ClientBundle) -> str:
    fields = (bundle.local_entropy, bundle.global_entropy, dict(bundle.metadata))
    likelihoods = [(one.count, one.clients) for one in (bundle.local_likelihood, bundle.global_likelihood)]
    return json.dumps([fields, likelihoods], sort_keys=True) + str(sorted(bundle.statistics))


def made(folder: Path) -> ClientBundle:
    bundle = make_bundle(6, 3)
    values = {"client": 3, "dataset": "digits", "é": [1, 2.5, None]}
    bundle = ClientBundle(
        bundle.global_head, bundle.personal_head, bundle.local_likelihood, bundle.global_likelihood, 0.4, 0.6,
        {"counts": np.arange(3)}, values,
    )  # fmt: skip
    bundle.save(folder)
    return bundle


def flips(folder: Path, step: int) -> Counter[str]:
    """Flip single bits of the JSON, every ``step``-th one."""
    whole, path = content(made(folder)), folder / "bundle.json"
    text, counts = path.read_bytes(), Counter[str]()
    for bit in range(0, 8 * len(text), step):
        flipped = bytearray(text)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(flipped))
        how, bundle = said(folder)
        counts[how] += 1
        assert bundle is None or content(bundle) == whole, f"bit {bit} changed the bundle silently"
    return counts


def fuzz(folder: Path, cases: int, seed: int) -> Counter[str]:
    """Damage bytes of either file, the JSON as one would who knows the format, or arrays under a right sha256."""
    rng, counts = random.Random(seed), Counter[str]()
    bundle = made(folder)
    whole, stream = content(bundle), make_stream(bundle, 7)
    (tensors,) = folder.glob("*.safetensors")
    record, path = (folder / "bundle.json").read_bytes(), folder / "bundle.json"
    binary, (fields, arrays) = tensors.read_bytes(), load_record(folder, "bundle", KIND, VERSION)
    for _ in range(cases):
        path.write_bytes(record)
        tensors.write_bytes(binary)
        kind = rng.choice(("json bytes", "tensor bytes", "json values", "arrays"))
        if kind == "json bytes":
            path.write_bytes(damaged_bytes(record, rng))
        elif kind == "tensor bytes":
            tensors.write_bytes(damaged_bytes(binary, rng))
        elif kind == "json values":
            path.write_bytes(damaged_json(json.loads(record), rng))
        else:
            save_record(folder, "bundle", KIND, VERSION, fields, damaged_arrays(arrays, rng))
        how, found = said(folder)
        counts[f"{kind}: {how}"] += 1
        if found is not None and kind.endswith("bytes"):
            assert content(found) == whole, "changed silently"
        elif found is not None:
            predicts(found, stream)
    return counts


def predicts(bundle: ClientBundle, stream: NDArray[np.float64]) -> None:
    if bundle.dimensions == stream.shape[1]:
        try:
            rows = Btfl(bundle).predict(stream)
        except BtflError:
            return  # refused where it is used: no entropies, for example
        np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-9)


def damaged_arrays(arrays: dict[str, NDArray[np.generic]], rng: random.Random) -> dict[str, NDArray[np.generic]]:
    changed = dict(arrays)
    name = rng.choice(sorted(changed))
    array = changed.pop(name)
    kind = rng.randrange(6)
    if kind == 1:
        changed[name] = array.astype(rng.choice(("float16", "int8", "bool", "complex64", "uint64", "float32")))
    elif kind == 2:
        changed[name] = array.reshape(-1)[: rng.randrange(array.size + 1)]
    elif kind == 3:
        changed[rng.choice(("global_head.bias", "x", "", "statistics.", "personal_head.weight"))] = array
    elif kind > 3:
        flat = array.astype(np.float64).reshape(-1)
        flat[rng.randrange(flat.size)] = rng.choice((np.nan, np.inf, 1e308, -1e308, 1e49, -1e49, 2.0, -1.0, 5e-324))
        changed[name] = flat.reshape(array.shape)
    return changed


def test_no_flipped_bit_of_the_json_changes_a_bundle(tmp_path: Path) -> None:
    print(flips(tmp_path, 23))


@pytest.mark.filterwarnings("ignore:invalid value encountered in cast", "ignore:overflow encountered in cast")
def test_damaged_bundles(tmp_path: Path) -> None:
    print(fuzz(tmp_path, 300, seed=0))


@pytest.mark.slow
def test_no_flipped_bit_of_the_json_changes_a_bundle_every_bit(tmp_path: Path) -> None:
    print(flips(tmp_path, 1), "0 raw errors, 0 silent changes")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast", "ignore:overflow encountered in cast")
def test_ten_thousand_damaged_bundles(tmp_path: Path) -> None:
    print(fuzz(tmp_path, 10_000, seed=1), "0 raw errors, 0 silent changes")
