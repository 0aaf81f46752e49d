"""A trained federation: saved with the total over clients, loaded without it where there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from btfl.runs.trained import TrainedFederation
from small import train_small


def test_the_total_over_clients_is_kept_and_is_no_part_of_the_digest(tmp_path: Path) -> None:
    trained = train_small("fedavg")
    assert trained.total is not None
    bundle = trained.client(0).bundle
    assert trained.total.clients == len(trained.outcomes)
    assert trained.total.class_sums().counts.tolist() == bundle.statistics["global_class_counts"].tolist()
    trained.save(tmp_path)
    loaded = TrainedFederation.load(tmp_path)
    assert loaded.total is not None
    saved, kept = loaded.total.to_arrays(), trained.total.to_arrays()
    assert saved.keys() == kept.keys()
    assert all(np.array_equal(saved[name], kept[name]) for name in kept)
    assert loaded.digest() == trained.digest() == replace(trained, total=None).digest()


def test_a_federation_without_a_total_is_loaded_as_before(tmp_path: Path) -> None:
    trained = train_small("fedavg")
    trained.save(tmp_path)
    older = replace(trained, total=None)
    older.save(tmp_path)  # no total of another federation is left behind
    assert TrainedFederation.is_saved(tmp_path)
    assert TrainedFederation.load(tmp_path).total is None


def test_it_says_what_it_is() -> None:
    trained = train_small("fedavg")
    assert repr(trained) == "TrainedFederation(fedavg, mlp, 2 rounds, bundles of 4 of 4 clients)"
    incomplete = replace(trained, outcomes=(None, *trained.outcomes[1:]))
    assert "bundles of 3 of 4 clients" in repr(incomplete)
