"""A run that goes on, a device that is enrolled, a fleet that is exported: as a person types it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from btfl import ClientBundle
from btfl.monitor import Looks

Said = Callable[..., str]
WORDS = ["--preset", "demo", "--clients", "3", "--set", "training.local_epochs=1"]


def digest(said: str) -> str:
    found = re.search(r"sha256 ([0-9a-f]{64})", said)
    assert found is not None, said
    return found[1]


def test_a_run_goes_on_and_comes_to_what_a_longer_one_comes_to(btfl: Said) -> None:
    longer = digest(btfl("train", *WORDS, "--rounds", "2", "--workers", "1", "--out", "longer"))
    first = digest(btfl("train", *WORDS, "--rounds", "1", "--workers", "1", "--out", "run"))
    assert digest(btfl("train", "run", "--rounds", "2", "--workers", "1")) == longer != first
    assert "2 rounds already" in btfl("train", "run", "--rounds", "1", ok=False)
    assert "say for how many rounds" in btfl("train", "run", ok=False)
    assert "leave seed away" in btfl("train", "run", "--rounds", "3", "--seed", "1", ok=False)
    assert "goes on where it is" in btfl("train", "run", "--rounds", "3", "--out", "elsewhere", ok=False)


def test_another_federation_begins_with_a_runs_weights(btfl: Said, tmp_path: Path) -> None:
    btfl("bench", *WORDS, "--rounds", "1", "--method", "fedavg", "--workers", "1", "--out", "run")
    begun = digest(btfl("train", *WORDS, "--rounds", "1", "--from", "run", "--workers", "1", "--out", "another"))
    alone = digest(btfl("train", *WORDS, "--rounds", "1", "--workers", "1", "--out", "alone"))
    assert begun != alone
    pool = np.random.default_rng(0).integers(0, 17, size=(6, 8, 8, 1), dtype=np.uint8)
    np.savez(tmp_path / "own.npz", x=pool, y=np.arange(6))
    assert "enrolled with few labels (6 samples, 6 labels)" in btfl("enrol", "run", "--data", "own.npz", "--out", "new")
    told = json.loads((tmp_path / "new" / "bundle.json").read_text())["fields"]["metadata"]
    assert told["provenance"]["round"] == 1
    assert told["enrolment"]["level"] == "few labels"
    assert "say what to write" in btfl("export", "run", ok=False)
    pytest.importorskip("onnxscript", reason="exporting to ONNX needs `pip install btfl[onnx]`")
    assert "one extractor, 3 bundles" in btfl("export", "run", "--all-clients", "fleet")
    btfl("export", "new", "--extractor", "fleet/extractor.onnx", "--onnx", "new.onnx")
    assert (tmp_path / "new.onnx").stat().st_size > 1000


def test_a_fleet_takes_along_how_its_samples_look(btfl: Said, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="exporting to ONNX needs `pip install btfl[onnx]`")
    btfl("bench", *WORDS, "--rounds", "1", "--method", "fedavg", "--workers", "1", "--out", "run")
    assert "one graph has none" in btfl("export", "run", "--onnx", "x.onnx", "--looks", ok=False)
    assert "add --looks" in btfl("export", "run", "--onnx", "x.onnx", "--root", "here", ok=False)
    btfl("export", "run", "--onnx", "plain.onnx", "--extractor-only", "--client", "1")
    btfl("export", "run", "--onnx", "one.onnx", "--extractor-only", "--client", "1", "--looks")
    btfl("export", "run", "--all-clients", "fleet", "--looks")
    assert "finished run" in btfl("export", "fleet/client-000001", "--extractor", "fleet/extractor.onnx", "--onnx",
                                  "x.onnx", "--extractor-only", "--looks", ok=False)  # fmt: skip
    alone, of_fleet = (ClientBundle.load(tmp_path / name) for name in ("one-bundle", "fleet/client-000001"))
    looks = Looks.carried(alone)
    assert looks is not None
    assert looks.shape == (8, 8, 1)
    assert of_fleet.metadata["looks"] == alone.metadata["looks"]
    assert Looks.carried(ClientBundle.load(tmp_path / "plain-bundle")) is None
