"""A second evaluation of the same weights computes no feature again, and comes to the same answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from btfl.benchmark import evaluate as module
from btfl.benchmark.evaluate import Evaluation, evaluate_client
from btfl.data.kept import Kept
from btfl.data.streams import StreamSettings, make_manifest
from btfl.methods.registry import find_method
from btfl.models.forward import extract
from small import digits, train_small


def test_features_are_kept_by_weights_and_streams(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, federation = digits(), train_small("fedavg")
    manifest = make_manifest(data.source, data.partition, StreamSettings(corruptions=("contrast",)), 0)
    methods = (find_method("coherent"), find_method("fedavg"))
    plain = Evaluation(data.source, manifest, {"fedavg": federation}, methods)
    keeping = replace(plain, kept=Kept(tmp_path, 10_000_000))
    computed: list[int] = []

    def counted(network: Any, samples: Any) -> Any:
        computed.append(len(samples))
        return extract(network, samples)

    monkeypatch.setattr(module, "extract", counted)
    without, first = evaluate_client(plain, 0), evaluate_client(keeping, 0)
    before = len(computed)
    second = evaluate_client(keeping, 0)
    assert before == 10
    assert len(computed) == before
    for answers in (first, second):
        for one, other in zip(answers, without, strict=True):
            assert (one.probabilities == other.probabilities).all()
            assert all((one.trace[name] == other.trace[name]).all() for name in other.trace)
    other_weights = replace(keeping, federations={"fedavg": train_small("fedavg", rounds=1)})
    evaluate_client(other_weights, 0)
    assert len(computed) == before + 5
    assert np.unique([path.suffix for path in tmp_path.iterdir()]).tolist() == [".kept"]
